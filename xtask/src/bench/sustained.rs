//! `cargo xtask bench sustained`: writes a file of four times the memory of a `clearway mount` to a
//! server on another host, and compares that with each part of the path alone, in the same run.
//!
//! # Model
//! ```text
//!   nothing    the file into a file system that does nothing, over the same library
//!   messages   as many bytes by reliable messages from host to host
//!   disk       the file on the disk of the server's log
//!   mount      the file through mount, messages, server and log
//! ```
//! Each is timed from the first byte until all are known to be at their end: for files, synced. The
//! processors' time is that of all processes of a part; the server drains at 1 Mb/s meanwhile.
//!
//! # Not here
//! The writer: `crates/clearway-fs/benches/sustained_bench.rs`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};

use super::pair::{LabPair, lacks_programs, value_of};
use super::served::ServedMounts;
use super::shm::stdout_text;
use super::{build, build_program, load, parse_with_program, spread};

/// The memory of the mount and of the server.
const MEMORY: &str = "64MiB";
/// The size of the file in MiB: four times the memory.
const MIB: u32 = 4 * 64;
/// Faster than the machine, so that it is no bound.
const RATE: &str = "32Gb/s";
/// Frames of a packet, as with segmentation offload.
const FRAMES: u32 = 43;
const SERVER_PORT: u16 = 7_300;
/// The log holds all of it, and hardly drains.
const SERVER_FLAGS: [&str; 6] = ["--memory", MEMORY, "--size", "1GiB", "--drain-rate", "1Mb/s"];
/// Ticks of a processor's time in /proc, a second (proc_pid_stat(5)).
const TICKS: f64 = 100.0;

const NOTHING: &str = "nothing";
const MESSAGES: &str = "messages";
const DISK: &str = "disk";
const MOUNT: &str = "mount";
const PARTS: [&str; 4] = [NOTHING, MESSAGES, DISK, MOUNT];

/// Seconds, and processor seconds, by part: a value for each round.
type SustainedFigures = BTreeMap<&'static str, Vec<[f64; 2]>>;

/// Runs the bench.
pub(super) fn run(arguments: &[String]) -> Result<ExitCode> {
    let (rounds, program) = parse_with_program("sustained", arguments)?;
    if !Path::new("/dev/fuse").exists() || lacks_programs("sustained") {
        eprintln!("skipped: bench sustained needs /dev/fuse, nft, ip and timeout");
        return Ok(ExitCode::SUCCESS);
    }
    let writer = build("clearway-fs", "sustained_bench")?;
    let messages = build("clearway-wires", "reliable_bench")?;
    let program = program.map_or_else(build_program, Ok)?;
    // Next to the build, which is on a disk.
    let above = writer.parent().context("a program lies in a directory")?;
    let place = above.join(format!("sustained-bench-{}", std::process::id()));
    fs::create_dir_all(&place)?;
    println!("{MIB} MiB, memory {MEMORY}, {rounds} rounds, load {} before", load());
    let programs = [writer.as_path(), messages.as_path(), program.as_path()];
    let mut figures = SustainedFigures::new();
    for round in 0..rounds {
        for part in PARTS {
            match measure(part, programs, &place) {
                Ok(seen) => figures.entry(part).or_default().push(seen),
                Err(error) => eprintln!("skipped: {part} in round {round}: {error:#}"),
            }
        }
    }
    let _ = fs::remove_dir_all(&place);
    print!("{}", text(&figures));
    println!("load {} after", load());
    Ok(ExitCode::SUCCESS)
}

fn measure(part: &str, [writer, messages, program]: [&Path; 3], place: &Path) -> Result<[f64; 2]> {
    let mib = MIB.to_string();
    match part {
        NOTHING => {
            let directory = place.join("null");
            fs::create_dir_all(&directory)?;
            let mut command = Command::new(writer);
            written(command.arg("null").arg(directory).arg(mib))
        }
        MESSAGES => {
            let bench = messages.to_str().context("a path that is no text")?;
            let lab = LabPair::up(program.to_owned(), 1, RATE, "fifo", FRAMES)?;
            let seen = lab.carry([bench, "send", "receive"], 1, MIB, || Ok(()))?;
            Ok([seen.seconds, seen.processor])
        }
        DISK => {
            let file = place.join("disk");
            // The log's blocks are there before they are written.
            let prepared = fs::File::create(&file)?;
            let length = (u64::from(MIB) << 20).to_string();
            let reserved = Command::new("fallocate").args(["-l", &length]).arg(&file).status()?;
            ensure!(reserved.success(), "no room for the file");
            prepared.sync_all()?;
            let mut command = Command::new(writer);
            let seen = written(command.arg("write").arg(&file).arg(mib));
            fs::remove_file(file)?;
            seen
        }
        _ => {
            let lab = LabPair::up(program.to_owned(), 1, RATE, "fifo", FRAMES)?;
            let served = place.join("served");
            let _ = fs::remove_dir_all(&served);
            let name = program.display().to_string();
            let address = lab.end(1, SERVER_PORT);
            let mut staging =
                ServedMounts::up(program, &served, address, lab.on(1, &name), &SERVER_FLAGS)?;
            staging.mount(lab.on(0, &name), &["--memory", MEMORY])?;
            let mount = staging.mounts.first().context("a mount")?;
            let before = processor_of(&served);
            let mut command = lab.on(0, &writer.display().to_string());
            let [seconds, own] = written(command.arg("write").arg(mount.join("file")).arg(mib))?;
            Ok([seconds, own + processor_of(&served) - before])
        }
    }
}

/// Runs the writer; returns what it says.
fn written(command: &mut Command) -> Result<[f64; 2]> {
    let text = stdout_text(command.stdin(Stdio::null()).output()?)?;
    let value = |name| value_of(&text, name).with_context(|| format!("the writer said {text:?}"));
    Ok([value("seconds")?, value("processor")?])
}

/// Returns the seconds that processors have spent in processes with this path in their command line.
fn processor_of(place: &Path) -> f64 {
    let place = place.as_os_str().as_encoded_bytes();
    let mut ticks = 0;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if line.windows(place.len()).any(|part| part == place) {
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            ticks += ticks_of(&stat).unwrap_or_default();
        }
    }
    ticks as f64 / TICKS
}

/// Returns the time in user and kernel mode of a line of /proc/PID/stat.
fn ticks_of(stat: &str) -> Option<u64> {
    // The name of the program may have blanks and brackets.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut words = rest.split_ascii_whitespace().skip(11);
    let mut next = || words.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

fn median(figures: &SustainedFigures, part: &str, which: usize) -> Option<f64> {
    let values: Vec<f64> = figures.get(part)?.iter().map(|value| value[which]).collect();
    Some(spread(&values)?.0)
}

/// Returns the rate through the mount over that of the slowest part, and the processors' time over that
/// of all parts.
fn ratios(figures: &SustainedFigures) -> Option<[f64; 2]> {
    let parts = [NOTHING, MESSAGES, DISK];
    let seconds: Vec<f64> =
        parts.iter().map(|part| median(figures, part, 0)).collect::<Option<_>>()?;
    let spent: Vec<f64> =
        parts.iter().map(|part| median(figures, part, 1)).collect::<Option<_>>()?;
    let slowest = seconds.into_iter().fold(0.0, f64::max);
    let rate = slowest / median(figures, MOUNT, 0)?;
    Some([rate, median(figures, MOUNT, 1)? / spent.iter().sum::<f64>()])
}

fn text(figures: &SustainedFigures) -> String {
    let mut text = String::from("median (least to greatest)\n\n");
    for part in PARTS {
        let Some(values) = figures.get(part) else { continue };
        let column = |which: usize| values.iter().map(|it| it[which]).collect::<Vec<_>>();
        let [seconds, spent] = [0, 1].map(|which| spread(&column(which)));
        if let (Some((median, least, greatest)), Some((spent, _, _))) = (seconds, spent) {
            text.push_str(&format!(
                "  {part:<10} {median:>6.3} s ({least:.3} to {greatest:.3})  {:>6.0} MiB/s  processors {spent:.3} s\n",
                f64::from(MIB) / median
            ));
        }
    }
    if let Some([rate, spent]) = ratios(figures) {
        text.push_str(&format!("\n  rate, mount / slowest part {rate:.2}   aim: >= 0.5\n"));
        text.push_str(&format!("  processors, mount / all parts {spent:.2}   aim: <= 1.15\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of__are_of_both_modes_behind_any_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 30 12 0 0 20 0 1 0 5 6 7";
        assert_eq!(ticks_of(stat), Some(42));
        assert_eq!(ticks_of("7 (a) S 1"), None);
    }

    #[test]
    fn ratios__are_to_the_slowest_part_and_to_the_sum() {
        let mut figures = SustainedFigures::from([
            (NOTHING, vec![[1.0, 1.0]]),
            (MESSAGES, vec![[2.0, 2.0]]),
            (DISK, vec![[4.0, 1.0]]),
        ]);
        assert_eq!(ratios(&figures), None);
        figures.insert(MOUNT, vec![[8.0, 5.0]]);
        assert_eq!(ratios(&figures), Some([0.5, 1.25]));
    }
}
