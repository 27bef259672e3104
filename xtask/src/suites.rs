//! `cargo xtask suites`: test suites and programs of other people on a mounted log.
//!
//! # Model
//! A log is made and mounted next to the build. Each suite that is installed runs in a directory of
//! the mount. Where a suite says what a file system lacks, it runs on a tmpfs too, and the mount
//! may lack nothing more.
//!
//! # Not here
//! What survives a crash: [`super::crash`], and the tests of `clearway mount`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

/// A tmpfs that every Linux has.
const SHARED: &str = "/dev/shm";
/// Features of POSIX and Linux that pjdfstest does not try unless they are named, and users that every
/// Linux has. Ticks of a tmpfs's time are up to 10 ms long.
const PJDFSTEST: &str = "[features]\nposix_fallocate = {}\nrename_ctime = {}\nutime_now = {}\n\
    utimensat = {}\n[settings]\nnaptime = 0.02\nallow_remount = false\nexpected_failures = []\n\
    [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"], [\"bin\", \"bin\"]]\n";
/// A database with a write-ahead log, which is mapped into memory.
const SQL: &str = "pragma journal_mode = wal; create table t (a integer primary key, b blob); \
    with recursive c (x) as (select 1 union all select x + 1 from c where x < 5000) \
    insert into t select x, randomblob(300) from c; delete from t where a % 3 = 0; \
    pragma wal_checkpoint; vacuum; pragma integrity_check; select count(*) from t;";
/// Seeds of fsx.
const SEEDS: u64 = 5;

/// One suite: what has to be installed, where it comes from, and how it runs in a directory. The other
/// directory lies on a tmpfs.
struct FileSuite {
    program: &'static str,
    from: &'static str,
    run: fn(&Path, &Path) -> Result<String>,
}

const SUITES: &[FileSuite] = &[
    FileSuite { program: "pjdfstest", from: "cargo install pjdfstest", run: pjdfstest },
    FileSuite { program: "fsx", from: "cargo install fsx", run: fsx },
    FileSuite { program: "fio", from: "a package of the system", run: fio },
    FileSuite { program: "stress-ng", from: "a package of the system", run: stress_ng },
    FileSuite { program: "sqlite3", from: "a package of the system", run: sqlite3 },
    FileSuite { program: "git", from: "a package of the system", run: git },
];

/// Runs `suites [NAME...]`.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let names: BTreeSet<&str> = SUITES.iter().map(|suite| suite.program).collect();
    if let Some(other) = arguments.iter().find(|name| !names.contains(name.as_str())) {
        bail!("there is no suite `{other}`; there are {names:?}");
    }
    if !Path::new("/dev/fuse").exists() {
        eprintln!("skipped: suites needs /dev/fuse");
        return Ok(ExitCode::SUCCESS);
    }
    let place = SuitePlace::new(&crate::bench::build_program()?)?;
    let mut is_good = true;
    for suite in SUITES {
        let FileSuite { program, from, run } = suite;
        if !arguments.is_empty() && !arguments.iter().any(|name| name == program) {
            continue;
        }
        if Command::new(program).arg("--version").output().is_err() {
            println!("{program}: skipped, it is not installed ({from})");
            continue;
        }
        let directories = [place.mount.join(program), place.other.join(program)];
        directories.iter().try_for_each(fs::create_dir_all)?;
        let [mounted, other] = directories;
        let begun = Instant::now();
        let outcome = run(&mounted, &other);
        let seconds = begun.elapsed().as_secs_f64();
        match outcome {
            Ok(said) => println!("{program}: good in {seconds:.1} s: {said}"),
            Err(why) => {
                is_good = false;
                println!("{program}: failed: {why:#}");
            }
        }
        fs::remove_dir_all(&mounted).with_context(|| format!("{}", mounted.display()))?;
    }
    place.end()?;
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The directories of a mount, and one on a tmpfs.
struct SuitePlace {
    program: PathBuf,
    root: PathBuf,
    mount: PathBuf,
    other: PathBuf,
}

impl SuitePlace {
    fn new(program: &Path) -> Result<Self> {
        let above = program.parent().context("a program lies in a directory")?;
        let name = format!("clearway-suites-{}", std::process::id());
        let (root, other) = (above.join(&name), Path::new(SHARED).join(&name));
        let mount = root.join("mount");
        for directory in [&mount, &root.join("store"), &other] {
            fs::create_dir_all(directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
        }
        let place = Self { program: program.to_owned(), root, mount, other };
        let places = format!("{0}/log:{0}/store", place.root.display());
        let mut command = Command::new(program);
        command.args(["mount", "--size", "4GiB", "--local", &places]).arg(&place.mount);
        done(&mut command)?;
        Ok(place)
    }

    /// Unmounts; a mount that is still busy or ended badly is an error.
    fn end(self) -> Result<()> {
        done(Command::new(&self.program).arg("umount").arg(&self.mount)).map(drop)
    }
}

impl Drop for SuitePlace {
    fn drop(&mut self) {
        // After an error it is still mounted.
        let _ = Command::new(&self.program).arg("umount").arg(&self.mount).output();
        for directory in [&self.root, &self.other] {
            let _ = fs::remove_dir_all(directory);
        }
    }
}

/// Runs a program to its good end; what it printed.
fn done(command: &mut Command) -> Result<String> {
    let output = finished(command)?;
    let said = said(&output);
    ensure!(output.status.success(), "{command:?} ended with {}: {}", output.status, tail(&said));
    Ok(said)
}

fn finished(command: &mut Command) -> Result<Output> {
    command.output().with_context(|| format!("cannot start {command:?}"))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.trim().lines().collect();
    lines[lines.len().saturating_sub(5)..].join("; ")
}

/// Compares which cases are good on the mount with those on a tmpfs.
fn pjdfstest(directory: &Path, other: &Path) -> Result<String> {
    let configuration = other.join("pjdfstest.toml");
    fs::write(&configuration, PJDFSTEST)?;
    let good = |path: &Path, second: &Path| -> Result<BTreeSet<String>> {
        let mut command = Command::new("pjdfstest");
        command.arg("-c").arg(&configuration).arg("-p").arg(path).arg("-s").arg(second);
        let said = said(&finished(&mut command)?);
        let cases = said.lines().filter_map(|line| line.strip_suffix(" ok"));
        Ok(cases.map(|case| case.trim().to_owned()).collect())
    };
    let (mounted, expected) = (good(directory, other)?, good(other, directory)?);
    ensure!(!expected.is_empty(), "no case is good on a tmpfs; is this run as root?");
    let missing: Vec<&String> = expected.difference(&mounted).collect();
    ensure!(missing.is_empty(), "good on a tmpfs, not on the mount: {missing:?}");
    Ok(format!("{} cases, {} on a tmpfs", mounted.len(), expected.len()))
}

fn fsx(directory: &Path, _other: &Path) -> Result<String> {
    for seed in 1..=SEEDS {
        let mut command = Command::new("fsx");
        command.args(["-q", "-N", "5000", "-S", &seed.to_string()]).arg(directory.join("file"));
        done(command.current_dir(directory)).with_context(|| format!("seed {seed}"))?;
    }
    Ok(format!("{SEEDS} times 5000 operations"))
}

fn fio(directory: &Path, _other: &Path) -> Result<String> {
    for (pattern, block, direct) in [("randrw", "4k", "0"), ("write", "1m", "1")] {
        let mut command = Command::new("fio");
        command.args(["--name=verify", "--size=32m", "--numjobs=2", "--fsync=16", "--do_verify=1"]);
        command
            .args(["--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0"])
            .arg(format!("--rw={pattern}"));
        command.arg(format!("--bs={block}")).arg(format!("--direct={direct}"));
        done(command.arg(format!("--directory={}", directory.display())))?;
    }
    Ok("4 KiB at random and 1 MiB direct, verified".into())
}

/// Runs all stressors of file systems. Their end says whether one of them found nothing to do, so what
/// counts is what they say.
fn stress_ng(directory: &Path, _other: &Path) -> Result<String> {
    let mut command = Command::new("stress-ng");
    command.args(["--class", "filesystem", "--sequential", "1", "--timeout", "1s", "--verify"]);
    let output = finished(command.arg("--temp-path").arg(directory))?;
    let said = said(&output);
    let failed: Vec<&str> =
        said.lines().filter(|line| line.contains("fail:") || line.contains("error:")).collect();
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    // 3: something that a stressor needs is not there.
    ensure!(matches!(output.status.code(), Some(0 | 3)), "{}: {}", output.status, tail(&said));
    Ok("no stressor of file systems failed".into())
}

fn sqlite3(directory: &Path, _other: &Path) -> Result<String> {
    let said = done(Command::new("sqlite3").arg(directory.join("db")).arg(SQL))?;
    let lines: Vec<&str> = said.lines().collect();
    ensure!(lines.ends_with(&["ok", "3334"]), "it says {lines:?}");
    Ok("a write-ahead log, a checkpoint and a vacuum keep a sound database".into())
}

/// Clones the repository that this is run in.
fn git(directory: &Path, _other: &Path) -> Result<String> {
    let clone = directory.join("clone");
    let top = done(Command::new("git").args(["rev-parse", "--show-toplevel"]))?;
    let source = format!("file://{}", top.trim());
    done(Command::new("git").args(["clone", "--quiet", &source]).arg(&clone))?;
    for words in [&["fsck", "--full"][..], &["gc", "--quiet"], &["fsck", "--full"]] {
        done(Command::new("git").arg("-C").arg(&clone).args(words))?;
    }
    let changed = done(Command::new("git").arg("-C").arg(&clone).args(["status", "--short"]))?;
    ensure!(changed.is_empty(), "{}", tail(&changed));
    Ok("clone, fsck, gc, fsck".into())
}
