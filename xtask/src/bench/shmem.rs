//! `cargo xtask bench shmem`: the OpenSHMEM library next to Open MPI's, the same program linked to
//! each, in one run.
//!
//! # Model
//! Two PEs with a core each, and four PEs on two cores; a round runs both libraries, in turn first,
//! all under Open MPI's launcher. The program times batches and gives the tenth of them and their
//! median; what is printed is the median over rounds of each, and the ratio of the two libraries. A
//! batch counts only if each PE that worked had a processor for nine tenths of its time, by the
//! processor time that it used; how many of those made did is printed too. With more PEs than
//! processors that cannot be, and all count.
//!
//! Debian's Open MPI 4.1 crashes in `shmem_finalize` after everything was measured, so a run counts
//! if its last line is there.
//!
//! The row `line` is the time in which a line of the cache passes between the two processors, taken
//! with plain loads and stores in each run. Virtual processors change cores: where the two libraries
//! had different times, rows that wait for the other PE do not compare.
//!
//! # Not here
//! The measured loops: `shmem_peer.c`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::hosts::are_there;
use super::mpi::{OPEN_MPI, OPEN_MPI_AS_ROOT};
use super::shm::directory;
use super::{BenchArguments, built, load, spread};

/// The program.
pub(super) const SOURCE: &str = include_str!("shmem_peer.c");
/// Longest run in s; one that hangs is ended by `timeout`.
const DEADLINE_S: &str = "300";

/// The library's name, by which programs find it.
const LIBRARY: &str = "libclearway_shmem.so.1";

const OWN: &str = "clearway";
const PEER: &str = "Open MPI";

/// What the program measures with two PEs, and the ratio of times that is wanted where there is
/// one.
const PAIR: [(&str, Option<f64>); 14] = [
    ("p_quiet", Some(0.25)),
    ("g", Some(0.2)),
    ("fetch_add", Some(0.05)),
    ("line", None),
    ("half_round_trip", Some(0.4)),
    ("put_nbi", Some(1.0 / 3.0)),
    ("atomic_inc", Some(1.0 / 3.0)),
    ("put_bulk", None),
    ("get_bulk", None),
    ("memcpy", None),
    ("barrier_all", Some(0.7)),
    ("sum_to_all", Some(0.7)),
    ("histogram", None),
    ("index_gather", None),
];
/// The same with four PEs on two cores.
const CROWD: [(&str, Option<f64>); 4] = [
    ("half_round_trip", Some(1.0)),
    ("fetch_add", Some(1.0)),
    ("barrier_all", Some(0.5)),
    ("sum_to_all", Some(1.0)),
];

/// One figure of a run: tenth and median in ns, batches that counted, batches made.
pub(super) type Figure = [f64; 4];
/// By contestant, PEs and name.
type Seen = BTreeMap<(&'static str, u32, &'static str), Vec<Figure>>;

/// The programs.
struct ShmemPrograms {
    own: PathBuf,
    peer: Option<PathBuf>,
}

/// Runs the bench.
pub(super) fn run(asked: &BenchArguments) -> Result<ExitCode> {
    if !are_there("bench shmem", &["cc", "timeout", OPEN_MPI.launcher]) {
        return Ok(ExitCode::SUCCESS);
    }
    let programs = compile(&directory())?;
    let loaded = load();
    let mut seen = Seen::new();
    for round in 0..asked.rounds {
        let mut contests = vec![(OWN, Some(&programs.own)), (PEER, programs.peer.as_ref())];
        if round % 2 == 1 {
            contests.reverse();
        }
        for (name, program) in contests {
            let Some(program) = program else { continue };
            for (pes, what) in [(2, "all"), (4, "crowd")] {
                match measure(program, pes, what) {
                    Ok(text) => {
                        // On a busy machine a round takes minutes, and what it found should not be
                        // lost with those that follow.
                        eprintln!("round {round}, {name}, {pes} PEs:\n{}", text.trim_end());
                        collect(name, pes, &text, &mut seen);
                    }
                    Err(error) => {
                        eprintln!("skipped: {name} with {pes} PEs in round {round}: {error:#}")
                    }
                }
            }
        }
    }
    let waiting = measure(&programs.own, 2, "waiting").and_then(|text| figure(&text, "waiting"));
    // What stays behind in the system's directory for such things harms nobody.
    let _ = fs::remove_dir_all(directory());
    if asked.json {
        println!("{}", record(asked, loaded, &seen));
    } else {
        print!("{}", text(asked, loaded, &seen));
        if let Ok([share, ..]) = waiting {
            println!("\n  a PE in wait_until: {share:.2} % of a processor, over 10 s");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Compiles the program with each library.
fn compile(directory: &Path) -> Result<ShmemPrograms> {
    let own = compile_own(directory, &build_library()?)?;
    let peer = OPEN_MPI.compile_with(directory, "peer_of_openmpi", SOURCE, &["-loshmem"]);
    Ok(ShmemPrograms { own, peer })
}

/// Builds the library as users' programs find it.
pub(super) fn build_library() -> Result<PathBuf> {
    built(&["-p", "clearway-shmem", "--lib"], "clearway_shmem")
}

/// Compiles the program with our library `built`, which stays where it is.
pub(super) fn compile_own(directory: &Path, built: &Path) -> Result<PathBuf> {
    fs::create_dir_all(directory)?;
    let library = directory.join(LIBRARY);
    // What other libraries compile.
    fs::write(directory.join("peer.c"), SOURCE)?;
    // Another run of this process's number may have left one.
    let _ = fs::remove_file(&library);
    symlink(built, &library)?;
    compile_with_own(directory, "own", SOURCE)
}

/// Compiles `source` as the program `name`, with our library, which [`compile_own`] put there.
pub(super) fn compile_with_own(directory: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let (source, own) = (directory.join(format!("{name}.c")), directory.join(name));
    fs::write(&source, text)?;
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../crates/clearway-shmem/include");
    let path = format!("-Wl,-rpath,{}", directory.display());
    let output = Command::new("cc")
        .args(["-O2", include, "-o"])
        .args([&own, &source, &directory.join(LIBRARY)])
        .arg(path)
        .output()?;
    ensure!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(own)
}

/// One run; what it said.
fn measure(program: &Path, pes: u32, what: &str) -> Result<String> {
    let output = Command::new("timeout")
        .args([
            DEADLINE_S,
            OPEN_MPI.launcher,
            "--oversubscribe",
            "--bind-to",
            "none",
            "-n",
            &pes.to_string(),
        ])
        .arg(program)
        .arg(what)
        .envs(OPEN_MPI_AS_ROOT)
        .output()
        .context(OPEN_MPI.launcher)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        text.lines().any(|line| line == "done"),
        "{}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(text)
}

/// The figure called `name` in `text`.
pub(super) fn figure(text: &str, name: &str) -> Result<Figure> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let words: Vec<f64> =
        line.unwrap_or_default().split(' ').filter_map(|word| word.parse().ok()).collect();
    Figure::try_from(words).ok().with_context(|| format!("no figure for {name}"))
}

fn collect(contest: &'static str, pes: u32, text: &str, seen: &mut Seen) {
    let names = if pes == 2 { PAIR.as_slice() } else { CROWD.as_slice() };
    for (name, _) in names {
        match figure(text, name) {
            Ok(figure) => seen.entry((contest, pes, name)).or_default().push(figure),
            Err(error) => eprintln!("skipped: {contest}, {pes} PEs: {error}: no batch counted"),
        }
    }
}

/// The median over rounds of number `part` of a figure.
fn median(
    seen: &Seen,
    contest: &'static str,
    pes: u32,
    name: &'static str,
    part: usize,
) -> Option<f64> {
    let rounds = seen.get(&(contest, pes, name))?;
    spread(&rounds.iter().map(|figure| figure[part]).collect::<Vec<_>>()).map(|(median, ..)| median)
}

/// All rows: PEs, name, wanted ratio.
fn rows() -> impl Iterator<Item = (u32, &'static str, Option<f64>)> {
    let of = |pes| move |(name, wanted): (&'static str, Option<f64>)| (pes, name, wanted);
    PAIR.into_iter().map(of(2)).chain(CROWD.into_iter().map(of(4)))
}

fn text(asked: &BenchArguments, loaded: f64, seen: &Seen) -> String {
    let mut text = format!(
        "{} rounds, load {loaded} before and {} after; ns for each operation, p10 / p50, medians over rounds\n\n\
         {:<4}{:<18}{:>20}{:>22}{:>18}{:>9}{:>9}\n",
        asked.rounds,
        load(),
        "PEs",
        "",
        OWN,
        PEER,
        "ratio p10 / p50",
        "wanted",
        "counted"
    );
    for (pes, name, wanted) in rows() {
        let both = |contest| {
            Some([median(seen, contest, pes, name, 0)?, median(seen, contest, pes, name, 1)?])
        };
        let pair = |both: Option<[f64; 2]>, digits: usize| {
            both.map_or("-".to_owned(), |[p10, p50]| format!("{p10:.digits$} / {p50:.digits$}"))
        };
        let (own, peer) = (both(OWN), both(PEER));
        let ratio = own.zip(peer).map(|(own, peer)| [own[0] / peer[0], own[1] / peer[1]]);
        let wanted = wanted.map_or(String::new(), |wanted| format!("{wanted:.2}"));
        let share = |part| median(seen, OWN, pes, name, part);
        let counted = share(2)
            .zip(share(3))
            .map_or(String::new(), |(counted, made)| format!("{:.0} %", 100.0 * counted / made));
        text.push_str(&format!(
            "{pes:<4}{name:<18}{:>20}{:>22}{:>18}{wanted:>9}{counted:>9}\n",
            pair(own, 1),
            pair(peer, 1),
            pair(ratio, 2)
        ));
    }
    for bulk in ["put_bulk", "get_bulk"] {
        let of = |name| median(seen, OWN, 2, name, 1);
        if let Some((memcpy, moved)) = of("memcpy").zip(of(bulk)) {
            text.push_str(&format!(
                "\n  {bulk} of 1 MiB: {:.2} of the rate of memcpy in the same run",
                memcpy / moved
            ));
        }
    }
    for (name, what) in [("histogram", "updates"), ("index_gather", "gets")] {
        if let Some(ns) = median(seen, OWN, 2, name, 1) {
            text.push_str(&format!("\n  {name}: {:.0} million {what}/s a PE", 1e3 / ns));
        }
    }
    text.push('\n');
    text
}

fn record(asked: &BenchArguments, loaded: f64, seen: &Seen) -> serde_json::Value {
    let each: Vec<_> = seen
        .iter()
        .map(|((contest, pes, name), rounds)| json!({"contest": contest, "pes": pes, "name": name, "rounds": rounds}))
        .collect();
    json!({"bench": "shmem", "rounds": asked.rounds, "load": [loaded, load()], "figures": each})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure__is_the_line_of_its_name() {
        let text = "put_nbi 1.0 2.0 3 4\nput_bulk 5.5 6.5 7 8\nhistogram none\n";
        assert_eq!(figure(text, "put_bulk").ok(), Some([5.5, 6.5, 7.0, 8.0]));
        assert!(figure(text, "put").is_err() && figure(text, "histogram").is_err());
    }

    #[test]
    fn text__gives_the_ratio_of_medians() {
        let mut seen = Seen::new();
        collect(OWN, 2, "g 1.0 2.0 100 200\n", &mut seen);
        collect(PEER, 2, "g 10.0 8.0 100 100\n", &mut seen);
        let text = text(&BenchArguments { rounds: 1, json: false }, 0.5, &seen);
        let line = text.lines().find(|line| line.starts_with("2   g ")).expect("a line");
        assert!(
            line.contains("1.0 / 2.0") && line.contains("0.10 / 0.25") && line.ends_with("50 %"),
            "{line}"
        );
    }
}
