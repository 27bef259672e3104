//! `cargo xtask dist-check [DIR]`: unpacks what a release consists of, and tries it by the commands
//! that its documentation names.
//!
//! # Model
//! The archive is tried where it is unpacked. The Debian package is tried at its own paths: in a
//! tree of its files above those of this machine ([`place`]), or where it is unpacked if this
//! machine allows no such tree. What cannot be tried is skipped with the reason.
//!
//! # Not here
//! An installation by `apt`: it changes the machine.

mod place;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};

use super::{SUMS, VERSION, archive_name, debian};
use crate::install::contents::COMPLETIONS;
use crate::install::read;
use place::Place;

/// A program whose PEs tell each other that they are there.
const PROGRAM: &str = r#"#include <shmem.h>
#include <stdio.h>

int main(void)
{
    static int arrived;
    shmem_init();
    shmem_int_atomic_inc(&arrived, 0);
    shmem_barrier_all();
    if (shmem_my_pe() == 0)
        printf("%d of %d\n", arrived, shmem_n_pes());
    shmem_finalize();
    return 0;
}
"#;

/// What came of a trial.
enum Outcome {
    Passed,
    /// It could not be tried, for this reason.
    Skipped(String),
}

/// The trials of a run, counted.
#[derive(Default)]
struct Trials {
    passed: usize,
    skipped: usize,
    failed: usize,
}

impl Trials {
    /// Prints what came of a trial, and counts it.
    fn record(&mut self, name: &str, outcome: Result<Outcome>) {
        match outcome {
            Ok(Outcome::Passed) => {
                self.passed += 1;
                println!("ok       {name}");
            }
            Ok(Outcome::Skipped(reason)) => {
                self.skipped += 1;
                println!("skipped  {name}: {reason}");
            }
            Err(error) => {
                self.failed += 1;
                println!("FAILED   {name}: {error:#}");
            }
        }
    }
}

/// Tries what stands in the directory.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let dist = match arguments {
        [] => Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/dist"),
        [one] if !one.starts_with('-') => PathBuf::from(one),
        _ => bail!("give one directory that `cargo xtask dist` made (default: target/dist)"),
    };
    let dist = fs::canonicalize(&dist)
        .with_context(|| format!("{} is not there; `cargo xtask dist` makes it", dist.display()))?;
    let scratch = std::env::temp_dir().join(format!("clearway-dist-check-{}", std::process::id()));
    fs::create_dir_all(&scratch)?;
    let mut trials = Trials::default();
    let tried = try_all(&dist, &scratch, &mut trials);
    let removed = fs::remove_dir_all(&scratch);
    tried?;
    removed?;
    println!("{} ok, {} skipped, {} failed", trials.passed, trials.skipped, trials.failed);
    Ok(if trials.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn try_all(dist: &Path, scratch: &Path, trials: &mut Trials) -> Result<()> {
    let mut sums = Command::new("sha256sum");
    sums.current_dir(dist).args(["--check", "--quiet", SUMS]);
    trials.record("sums", output_of(&mut sums).map(|_| Outcome::Passed));
    trials.record("recipe for Spack", python(&dist.join("package.py")));

    let prefix = scratch.join(archive_name());
    let archive = dist.join(format!("{}.tar.gz", archive_name()));
    output_of(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(scratch))?;
    let system = Place::prefix(&prefix, scratch)?;
    try_system(&system, trials);
    trials.record("archive: man pages", pages(&system));

    let package = dist.join(debian::file_name(VERSION)?);
    if !has("dpkg-deb") {
        let reason = "there is no dpkg-deb (Debian: dpkg)".to_owned();
        trials.record("Debian package", Ok(Outcome::Skipped(reason)));
        return Ok(());
    }
    let tree = scratch.join("debian");
    output_of(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&tree))?;
    output_of(Command::new("dpkg-deb").arg("-e").arg(&package).arg(scratch.join("control")))?;
    let mut sums = Command::new("md5sum");
    sums.current_dir(&tree).args(["--check", "--quiet"]).arg(scratch.join("control/md5sums"));
    trials.record("sums of the Debian package", output_of(&mut sums).map(|_| Outcome::Passed));
    let (system, reason) = Place::debian(&tree, scratch)?;
    if let Some(reason) = reason {
        trials.record("Debian package at its own paths", Ok(Outcome::Skipped(reason)));
    }
    try_system(&system, trials);
    trials.record("systemd unit", unit(&system, &tree));
    trials.record("Debian package: man pages", compressed_pages(&system));
    Ok(())
}

/// Tries what every way of installing brings.
fn try_system(system: &Place, trials: &mut Trials) {
    let mut record = |name: &str, outcome| {
        trials.record(&format!("{}: {name}", system.name), outcome);
    };
    record("version", version(system));
    record("simulated test of congestion", simulated(system));
    record("OpenSHMEM program", shmem(system));
    record("pkg-config", package_config(system));
    for (shell, place) in COMPLETIONS {
        record(&format!("completions of {shell}"), completions(system, shell, place));
    }
    record("Slurm plug-in script", plug_in(system));
    let module = system.usr.join("share/clearway/python/clearway_shmem_queue.py");
    record("module for Python", python(&module));
}

fn version(system: &Place) -> Result<Outcome> {
    let expected = format!("clearway {VERSION}");
    for tool in [system.clearway(), system.tool("oshrun")] {
        let text = output_of(system.command(&tool).arg("--version"))?;
        ensure!(text.trim() == expected, "{tool} --version prints `{}`", text.trim());
    }
    Ok(Outcome::Passed)
}

fn simulated(system: &Place) -> Result<Outcome> {
    let mut command = system.command(&system.clearway());
    output_of(command.args(["run", "incast", "--on", "sim", "--out", "incast"]))?;
    let page = system.work.join("incast/report.html");
    ensure!(page.is_file(), "the run wrote no report.html");
    Ok(Outcome::Passed)
}

fn shmem(system: &Place) -> Result<Outcome> {
    if !has("cc") {
        return Ok(Outcome::Skipped("there is no C compiler".to_owned()));
    }
    fs::write(system.work.join("hello.c"), PROGRAM)?;
    let compile = ["-Wall", "-Werror", "-o", "hello", "hello.c"];
    output_of(system.command(&system.tool("oshcc")).args(compile))?;
    let text = output_of(system.command(&system.tool("oshrun")).args(["-n", "2", "./hello"]))?;
    ensure!(text == "2 of 2\n", "two PEs print `{}`", text.trim());
    Ok(Outcome::Passed)
}

fn package_config(system: &Place) -> Result<Outcome> {
    if !has("pkg-config") {
        return Ok(Outcome::Skipped("there is no pkg-config".to_owned()));
    }
    let mut command = system.command("pkg-config");
    command.env("PKG_CONFIG_PATH", system.libraries().join("pkgconfig"));
    let text = output_of(command.args(["--modversion", "clearway-shmem"]))?;
    ensure!(text.contains(VERSION), "pkg-config prints `{}`", text.trim());
    Ok(Outcome::Passed)
}

fn completions(system: &Place, shell: &str, place: &str) -> Result<Outcome> {
    if !has(shell) {
        return Ok(Outcome::Skipped(format!("there is no {shell}")));
    }
    // Debian's package has those of zsh in another directory.
    let vendor = place.replace("site-functions", "vendor-completions");
    let script = [place, &vendor].map(|place| system.usr.join(place));
    let script = script.into_iter().find(|path| path.is_file());
    let script = script.with_context(|| format!("{place} is missing"))?;
    output_of(Command::new(shell).arg("-n").arg(script)).map(|_| Outcome::Passed)
}

fn plug_in(system: &Place) -> Result<Outcome> {
    let scripts = system.usr.join("share/doc/clearway/examples/slurm");
    for script in ["prolog.sh", "epilog.sh"] {
        output_of(Command::new("sh").arg("-n").arg(scripts.join(script)))?;
    }
    if !has("lua5.4") {
        return Ok(Outcome::Skipped("there is no lua5.4".to_owned()));
    }
    // Slurm gives scripts this table.
    let script = scripts.join("burst_buffer.lua");
    output_of(Command::new("lua5.4").args(["-e", "slurm = {}"]).arg(script))
        .map(|_| Outcome::Passed)
}

/// Compiles a file with Python, in memory.
fn python(file: &Path) -> Result<Outcome> {
    if !has("python3") {
        return Ok(Outcome::Skipped("there is no python3".to_owned()));
    }
    let program = "import sys; compile(open(sys.argv[1]).read(), sys.argv[1], 'exec')";
    output_of(Command::new("python3").args(["-c", program]).arg(file)).map(|_| Outcome::Passed)
}

fn unit(system: &Place, tree: &Path) -> Result<Outcome> {
    if !has("systemd-analyze") {
        return Ok(Outcome::Skipped("there is no systemd-analyze".to_owned()));
    }
    if !system.is_whole() {
        return Ok(Outcome::Skipped("the unit names a program that is not at its path".to_owned()));
    }
    // A template is verified as one of its units.
    let text = read(&tree.join("lib/systemd/system/clearway-stage@.service"))?;
    fs::write(system.work.join("clearway-stage@one.service"), text)?;
    let mut command = system.command("systemd-analyze");
    let manual = if has("man") { "--man=yes" } else { "--man=no" };
    let made = command.args(["verify", manual, "./clearway-stage@one.service"]).output()?;
    let said = String::from_utf8_lossy(&made.stderr);
    // Units of this machine are read too; what is wrong with those is not meant.
    let own: Vec<&str> = said.lines().filter(|line| line.contains("clearway")).collect();
    ensure!(own.is_empty(), "{}", own.join("; "));
    if !made.status.success() {
        let reason = format!("systemd-analyze does not work here ({})", said.trim());
        return Ok(Outcome::Skipped(reason));
    }
    Ok(Outcome::Passed)
}

/// The paths of all man pages, sorted.
fn page_paths(system: &Place) -> Result<Vec<PathBuf>> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(system.usr.join("share/man/man1"))? {
        pages.push(entry?.path());
    }
    pages.sort();
    for needed in ["clearway.1", "oshcc", "oshrun"] {
        let begins = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(needed))
        };
        ensure!(pages.iter().any(begins), "there is no page {needed}");
    }
    Ok(pages)
}

/// Whether each page is whole, and no link leads to nothing.
fn compressed_pages(system: &Place) -> Result<Outcome> {
    output_of(Command::new("gzip").arg("-t").args(page_paths(system)?)).map(|_| Outcome::Passed)
}

fn pages(system: &Place) -> Result<Outcome> {
    let pages = page_paths(system)?;
    if has("mandoc") {
        let mut command = Command::new("mandoc");
        output_of(command.args(["-T", "lint", "-W", "error"]).args(pages))?;
        return Ok(Outcome::Passed);
    }
    if !has("groff") {
        return Ok(Outcome::Skipped("there is neither mandoc nor groff".to_owned()));
    }
    // It formats all without printing, and warns of macros that there are not.
    let made =
        Command::new("groff").args(["-z", "-man", "-Tutf8", "-wmac"]).args(pages).output()?;
    let warnings = String::from_utf8_lossy(&made.stderr);
    ensure!(made.status.success() && warnings.is_empty(), "{}", warnings.trim());
    Ok(Outcome::Passed)
}

/// Whether a program is in the path.
fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Returns what a command prints; fails with the end of its messages.
fn output_of(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let made = command.output().with_context(|| name.clone())?;
    if made.status.success() {
        return Ok(String::from_utf8_lossy(&made.stdout).into_owned());
    }
    let text = [made.stdout, made.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let end: Vec<&str> = text.trim().lines().rev().take(3).collect();
    let end: Vec<&str> = end.into_iter().rev().collect();
    bail!("{name}: {}: {}", made.status, end.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of__has_the_last_words_of_what_failed() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two; echo three; echo four >&2; exit 7"]);
        let error = output_of(&mut command).expect_err("it failed").to_string();
        assert!(error.contains("7") && error.ends_with("two | three | four"), "{error}");
        assert_eq!(output_of(Command::new("echo").arg("x")).expect("it works"), "x\n");
    }

    #[test]
    fn record__counts_each_kind() {
        let mut trials = Trials::default();
        trials.record("a", Ok(Outcome::Passed));
        trials.record("b", Ok(Outcome::Skipped("no b".to_owned())));
        trials.record("c", Err(anyhow::anyhow!("wrong")));
        assert_eq!((trials.passed, trials.skipped, trials.failed), (1, 1, 1));
    }
}
