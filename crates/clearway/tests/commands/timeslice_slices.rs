//! Timeslices cut by time, and what became of each microslice.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output};

use clearway_proto::archive::{
    ArchiveKind, Compression, Header, Item, Limits, Reader, Versions, Writer,
};
use clearway_proto::base::Nanos;
use clearway_proto::microslice::{
    Checksum, Generator, GeneratorPlan, Microslice, MicrosliceFlags, SizeDistribution, fold,
};

use crate::scraped::{Scraped, address};
use crate::timeslice_ranks::{build, directory, start, text};

const PROGRAM: &str = env!("CARGO_BIN_EXE_clearway");
const US: u64 = 1_000;

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(output)))
}

/// Writes an archive with microslices of `channel` that start at `starts`.
fn record(directory: &Path, channel: u16, starts: &[u64]) {
    let header = Header {
        versions: Versions::NEWEST,
        kind: ArchiveKind::Microslices,
        compression: Compression::None,
        created_s: 0,
        host: Vec::new(),
        user: Vec::new(),
    };
    let generator = Generator::new(GeneratorPlan {
        channel,
        seed: 1,
        sizes: SizeDistribution::Skewed,
        mean_bytes: 256,
        period: Nanos(1),
        checksum: Checksum::Crc32c,
    });
    let (mut writer, mut bytes) = Writer::new(&header);
    let mut content = Vec::new();
    for start in starts {
        let descriptor = generator.microslice(*start, &mut content);
        assert_eq!(descriptor.index, *start);
        let microslice = Microslice { descriptor, content: &content };
        let mut put = |piece: &[u8]| {
            bytes.extend_from_slice(piece);
            Ok::<_, std::convert::Infallible>(())
        };
        writer.microslice(&microslice, &mut put).expect("memory");
    }
    fs::write(directory.join(format!("run_{channel}.msa")), bytes).expect("a file");
}

/// A timeslice as it was written: start, duration, and of each component its flags and the starts of
/// its microslices.
#[derive(Debug, PartialEq, Eq)]
struct Written {
    start: u64,
    duration: u64,
    components: Vec<(u32, Vec<u64>)>,
}

/// What the archives of `builders` builders have, by number.
fn written(directory: &Path, builders: u32) -> BTreeMap<u64, Written> {
    let mut all = BTreeMap::new();
    for builder in 0..builders {
        let bytes = fs::read(directory.join(format!("ts_{builder}.tsa"))).expect("an archive");
        let mut reader = Reader::new(Limits { item_bytes: 1 << 20 });
        let mut rest = &bytes[..];
        while reader.feed(&mut rest).expect("an archive").is_some() {
            let Some(Item::Timeslice(timeslice)) = reader.item() else { continue };
            let components = timeslice.components().map(|component| {
                let starts = component
                    .microslices()
                    .map(|microslice| microslice.expect("within the data").descriptor.index);
                (component.descriptor.flags.0, starts.collect())
            });
            let descriptor = &timeslice.descriptor;
            let one = Written {
                start: descriptor.start_ns,
                duration: descriptor.duration_ns,
                components: components.collect(),
            };
            assert!(all.insert(descriptor.index, one).is_none(), "built twice");
        }
    }
    all
}

/// Microslices that start every `step`, from `first` on, before `end`.
fn every(step: u64, first: u64, end: u64) -> Vec<u64> {
    (0..).map(|number| first + number * step).take_while(|start| *start < end).collect()
}

#[test]
fn build__by_time_each_microslice_is_where_its_start_says_whatever_is_lost_before_it() {
    let directory = directory("ts-by-time");
    let (end, duration) = (50_000 * US, 1_000 * US);
    // One is whole. One begins later, lacks some and repeats some. One has another step and another
    // phase. One ends sooner.
    let mut lossy = every(100 * US, 2_300 * US, end);
    lossy.retain(|start| ![5_000, 5_100, 17_900, 30_000].contains(&(start / US)));
    let lossy_unique = lossy.clone();
    lossy.insert(11, lossy[10]);
    lossy.insert(50, lossy[40]);
    let inputs = [
        (every(100 * US, 0, end), every(100 * US, 0, end)),
        (lossy, lossy_unique),
        (every(130 * US, 70 * US, end), every(130 * US, 70 * US, end)),
        (every(100 * US, 0, 20_050 * US), every(100 * US, 0, 20_050 * US)),
    ];
    for (channel, (offered, _)) in inputs.iter().enumerate() {
        record(&directory, channel as u16, offered);
    }
    for policy in ["best-effort", "offset", "dfs", "token"] {
        (0..2)
            .for_each(|builder| drop(fs::remove_file(directory.join(format!("ts_{builder}.tsa")))));
        let words = format!(
            "--inputs 4 --builders 2 --source run_%i.msa --sink ts_%b.tsa --duration 1ms --before 250us --after 100us \
             --policy {policy} --ring 256KiB --json"
        );
        let Some(output) = build(&directory, "6", &words) else { return };
        assert!(output.status.success(), "{policy}: {}", text(&output));
        let timeslices = written(&directory, 2);
        assert_eq!(timeslices.len(), 50, "{policy}");
        for (number, timeslice) in &timeslices {
            let start = number * duration;
            assert_eq!((timeslice.start, timeslice.duration), (start, duration));
            let span = start.saturating_sub(250 * US)..start + duration + 100 * US;
            for (input, (flags, starts)) in timeslice.components.iter().enumerate() {
                let expected: Vec<u64> =
                    inputs[input].1.iter().copied().filter(|it| span.contains(it)).collect();
                assert_eq!(*starts, expected, "{policy}: timeslice {number}, input {input}");
                let lacks = |begin: u64, end: u64| span.start < end * US && begin * US < span.end;
                let is_short = match input {
                    1 => {
                        lacks(0, 2_300)
                            || lacks(5_000, 5_101)
                            || lacks(17_900, 17_901)
                            || lacks(30_000, 30_001)
                    }
                    3 => lacks(20_100, 60_000),
                    _ => false,
                };
                // The last ones end behind the end of all.
                if span.end <= end - 200 * US {
                    assert_eq!(flags & 1 == 1, is_short, "{policy}: timeslice {number}, {input}");
                }
            }
        }
        let reported = json(&output);
        let account = |input: usize, name: &str| reported["inputs"][input][name].as_u64();
        for (input, (offered, unique)) in inputs.iter().enumerate() {
            assert_eq!(account(input, "offered"), Some(offered.len() as u64), "{reported}");
            assert_eq!(account(input, "built"), Some(unique.len() as u64), "{policy}: {reported}");
        }
        // One would start at 50.0 ms, in the overlap behind the last timeslice; 50.12 ms is not.
        assert_eq!((account(0, "short"), account(2, "short")), (Some(1), Some(0)), "{reported}");
        assert_eq!(account(1, "repeated"), Some(2));
        assert_eq!(account(1, "missing"), Some(23 + 4), "{reported}");
        assert_eq!(account(3, "missing"), Some(299), "{reported}");
        assert_eq!(
            (account(0, "missing"), account(2, "missing")),
            (Some(0), Some(0)),
            "{reported}"
        );
    }
    fs::remove_dir_all(directory).expect("to remove it");
}

/// FLESnet's analyser asks contents that its generator could have made for that one's checksum,
/// whether a flag says that it is a CRC or not.
#[test]
fn build__made_microslices_in_archives_have_flesnets_checksum() {
    let directory = directory("ts-checksum");
    let words = "--inputs 2 --builders 1 --timeslices 5 --timeslice-size 4 --contribution 8KiB \
                 --source pattern --sizes skewed --sink ts_%b.tsa";
    let Some(output) = build(&directory, "3", words) else { return };
    assert!(output.status.success(), "{}", text(&output));
    let bytes = fs::read(directory.join("ts_0.tsa")).expect("an archive");
    let mut reader = Reader::new(Limits { item_bytes: 1 << 20 });
    let (mut rest, mut seen) = (&bytes[..], 0);
    while reader.feed(&mut rest).expect("an archive").is_some() {
        let Some(Item::Timeslice(timeslice)) = reader.item() else { continue };
        for component in timeslice.components() {
            for microslice in component.microslices() {
                let Microslice { descriptor, content } = microslice.expect("within the data");
                assert_eq!(descriptor.crc, fold(content));
                assert!(!descriptor.flags.has(MicrosliceFlags::CRC_VALID));
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 2 * 5 * 4);
    let mut check = Command::new(PROGRAM);
    check.args(["msa", "check", "ts_0.tsa"]).current_dir(&directory);
    assert!(check.output().expect("the program").status.success());
    fs::remove_dir_all(directory).expect("to remove it");
}

#[test]
fn build__by_time_what_cannot_be_together_is_refused() {
    let directory = directory("ts-apart");
    record(&directory, 0, &every(100 * US, 0, 10_000 * US));
    record(&directory, 1, &every(100 * US, 3_600_000_000 * US, 3_600_010_000 * US));
    let words = "--inputs 2 --builders 1 --source run_%i.msa --sink check";
    let Some(output) = build(&directory, "3", words) else { return };
    let sentence = "starts 3600 s behind that of rank 0";
    let said = text(&output);
    assert!(!output.status.success() && said.contains(sentence), "{said}");
    let mistakes = [
        (
            "--slice time --overlap 1",
            "--overlap is for timeslices by index; --slice index cuts them so",
        ),
        (
            "--slice index --before 1ms",
            "--before is for timeslices by time; --slice time cuts them so",
        ),
        (
            "--duration 1ms --timeslice-size 2",
            "--timeslice-size is for timeslices by index and --duration for timeslices by time; give those of one kind",
        ),
        (
            "--duration 0ms",
            "--duration and --microslice are longer than nothing, as in --duration 10ms",
        ),
        (
            "--duration 1ns",
            "--duration 1ns makes up to 60000000000 timeslices of one gap of 60s (--max-gap); 60us and longer works",
        ),
        ("--duration 999ns --max-gap 1us", "1us and longer works"),
        ("--source-rate 1Mb/s", "--source-rate and --source-buffer are for --source pattern"),
    ];
    for (flags, sentence) in mistakes {
        let Some(output) = build(&directory, "3", &format!("{words} {flags}")) else { return };
        let said = text(&output);
        assert!(!output.status.success() && said.contains(sentence), "{flags}: {said}");
    }
    fs::remove_dir_all(directory).expect("to remove it");
}

#[test]
fn build__a_detector_that_is_not_kept_up_with_drops_and_all_is_accounted_for() {
    let directory = directory("ts-detector");
    // A sink that nobody takes anything from, until detectors have dropped a third of all.
    let words = "--inputs 2 --builders 1 --source pattern --source-rate 200Mb/s --source-buffer 256KiB --memory 1MiB \
                 --slice time --duration 5ms --timeslices 200 --ring 1MiB --sink consumer:slow_%b --json --metrics 127.0.0.1:0";
    let Some(mut child) = start(&directory, "build", "3", words) else { return };
    let mut said =
        BufReader::new(child.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    let place = said.find_map(|line| address(&line)).expect("an address");
    std::thread::spawn(move || said.count());
    let overflowed = "timeslice_microslices_total{account=\"overflowed\"}";
    loop {
        let scraped = Scraped::from_address(&place).expect("a run that waits");
        if scraped.has(overflowed) && scraped.get(overflowed) > 6000.0 {
            break;
        }
    }
    let consumer = Command::new(PROGRAM)
        .args(["timeslice", "consume", "slow_0"])
        .current_dir(&directory)
        .output()
        .expect("the program");
    let output = child.wait_with_output().expect("an end");
    assert!(output.status.success(), "{} {}", text(&output), text(&consumer));
    let reported = json(&output);
    for input in reported["inputs"].as_array().expect("inputs") {
        let account = |name: &str| input[name].as_u64().unwrap_or_else(|| panic!("{input}"));
        assert!(account("overflowed") > 0, "{input}");
        assert_eq!(account("missing"), 0, "what was dropped is not missing at the source: {input}");
        let ends = account("built") + account("overflowed") + account("unused");
        assert_eq!(account("offered"), ends, "{input}");
        assert!(input.get("fault").is_none(), "{input}");
        let held_back = input["held_back"]["2"].as_u64().unwrap_or(0);
        // A busy machine lets an input itself be late as well.
        let overflowed = account("overflowed");
        assert!((overflowed / 2..=overflowed).contains(&held_back), "{input}");
    }
    let builder = &reported["builders"][0];
    assert_eq!(
        (&builder["builder"], &builder["is_dead"]),
        (&2.into(), &false.into()),
        "{reported}"
    );
    let rows = reported["losses"].as_array().expect("rows by second");
    let sum = |input: u64| -> i64 {
        let own = rows.iter().filter(|row| row["input"] == input);
        own.filter_map(|row| row["overflowed"].as_i64()).sum()
    };
    for input in [0, 1] {
        let overflowed = reported["inputs"][input as usize]["overflowed"].as_i64();
        assert_eq!(Some(sum(input)), overflowed, "{reported}");
    }
    let sink = serde_json::json!({"sink": 2});
    let causes = rows.iter().filter_map(|row| row["causes"].as_array()).flatten();
    let counts = causes.map(|cause| (cause[0] == sink, cause[1].as_u64().unwrap_or(0)));
    let (right, all) =
        counts.fold((0, 0), |(right, all), (is, n)| (right + if is { n } else { 0 }, all + n));
    assert!(all > 0 && 2 * right >= all, "{right} of {all}: {reported}");
    fs::remove_dir_all(directory).expect("to remove it");
}

#[test]
fn build__a_pipe_that_falls_silent_does_not_hold_the_others_back() {
    let directory = directory("ts-silent");
    record(&directory, 0, &every(100 * US, 0, 3_000_000 * US));
    let silent = directory.join("run_1.msa");
    nix::unistd::mkfifo(&silent, nix::sys::stat::Mode::from_bits_truncate(0o600)).expect("a pipe");
    let words = "--inputs 2 --builders 1 --source run_%i.msa --sink check --duration 100ms --silence 200ms \
                 --timeslices 12 --json";
    let Some(child) = start(&directory, "build", "3", words) else { return };
    // Half a second of microslices, and then nothing, with the pipe open.
    let other = directory.join("half");
    fs::create_dir_all(&other).expect("a directory");
    record(&other, 1, &every(100 * US, 0, 500_000 * US));
    let bytes = fs::read(other.join("run_1.msa")).expect("an archive");
    let mut pipe = fs::OpenOptions::new().write(true).open(&silent).expect("a reader");
    std::io::Write::write_all(&mut pipe, &bytes).expect("to be read");
    let output = child.wait_with_output().expect("an end");
    drop(pipe);
    assert!(output.status.success(), "{}", text(&output));
    let reported = json(&output);
    assert_eq!(reported["timeslices"], 12, "{reported}");
    let silent = &reported["inputs"][1];
    let numbers = (silent["built"].as_u64(), silent["missing"].as_u64());
    assert_eq!(numbers, (Some(5_000), Some(7_000)), "{reported}");
    fs::remove_dir_all(directory).expect("to remove it");
}
