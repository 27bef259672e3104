//! `cargo xtask dist`: writes the files of a release into one directory.
//!
//! # Model
//! The installed tree is packed twice: as an archive for any prefix, and as a Debian package. With
//! them come the recipe for Spack and the file for containers of `packaging/` with the version
//! filled in, the notes of the release from the changelog, and the sums of all.
//!
//! # Invariants
//! I1. The directory is complete or absent: it is made next to its place and renamed.
//! I2. The same programs, tree and time give the same bytes.
//! I3. A directory that an earlier run did not make is not replaced.

mod archive;
pub(crate) mod check;
mod debian;
mod depends;
mod notes;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::install::contents::BINARIES;
use crate::install::{self, BuiltTree, read, write};
use debian::DebianPackage;

/// The version of all crates.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The sums of all other files of the directory.
const SUMS: &str = "SHA256SUMS";
/// Where an archive is unpacked by its documentation.
const USUAL_PREFIX: &str = "/usr/local";

/// Builds, and writes the directory of a release.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let (out, profile) = install::parse(arguments, "--out")?;
    let built = install::build(&profile, &without_paths(&profile)?)?;
    let out = out.unwrap_or_else(|| built.target.join("dist"));
    let out = std::path::absolute(out)?;
    let parent = out.parent().context("--out names no directory that can be made")?;
    fs::create_dir_all(parent)?;
    ensure!(
        is_replaceable(&out)?,
        "{} holds other files than an earlier run made; name another directory with --out",
        out.display()
    );
    let [aside, old] = [".new", ".old"].map(|end| sibling(&out, end));
    for left in [&aside, &old].into_iter().filter(|left| left.exists()) {
        fs::remove_dir_all(left)?;
    }
    let work = aside.join("work");
    fs::create_dir_all(&work)?;
    let made = write_files(&built, &aside, &work).and_then(|()| Ok(fs::remove_dir_all(&work)?));
    if let Err(error) = made.and_then(|()| sums(&aside)) {
        // The first error says more than one about what remains.
        let _ = fs::remove_dir_all(&aside);
        return Err(error);
    }
    if out.exists() {
        fs::rename(&out, &old)?;
    }
    fs::rename(&aside, &out)?;
    if old.exists() {
        fs::remove_dir_all(&old)?;
    }
    println!("{}", out.display());
    print!("{}", read(&out.join(SUMS))?);
    Ok(ExitCode::SUCCESS)
}

/// Values for cargo by which programs of a release do not hold the paths of the machine that built
/// them. Others keep the paths, so that a build for development is shared with other commands.
fn without_paths(profile: &str) -> Result<Vec<String>> {
    if profile != install::PACKAGED {
        return Ok(Vec::new());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the tree has a root")?;
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo"));
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from).or(home);
    let cargo = cargo.context("neither CARGO_HOME nor HOME is set")?;
    let flags = std::env::var("CFLAGS").unwrap_or_default();
    let maps = [(root, "/clearway"), (cargo.as_path(), "/cargo")];
    let maps = maps.map(|(from, to)| format!("{}={to}", from.display()));
    let [rust, c] = ["--remap-path-prefix", "-ffile-prefix-map"]
        .map(|flag| maps.iter().map(|map| format!("{flag}={map}")).collect::<Vec<_>>());
    Ok(vec![
        format!("build.rustflags={rust:?}"),
        format!("env.CFLAGS.value={:?}", format!("{flags} {}", c.join(" ")).trim()),
        "env.CFLAGS.force=true".to_owned(),
    ])
}

/// Returns a hidden name next to `out`.
fn sibling(out: &Path, end: &str) -> PathBuf {
    let name = out.file_name().unwrap_or_default().to_string_lossy();
    out.with_file_name(format!(".{name}{end}"))
}

/// Whether there is nothing, an empty directory, or only what an earlier run made.
fn is_replaceable(out: &Path) -> Result<bool> {
    if !out.exists() {
        return Ok(true);
    }
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(out).with_context(|| out.display().to_string())? {
        names.insert(entry?.file_name().to_string_lossy().into_owned());
    }
    let sums = fs::read_to_string(out.join(SUMS)).unwrap_or_default();
    let mut known: BTreeSet<String> = sums.lines().filter_map(named).map(str::to_owned).collect();
    known.insert(SUMS.to_owned());
    Ok(names.is_subset(&known))
}

/// The file that a line of sums names.
fn named(line: &str) -> Option<&str> {
    line.split_once("  ").map(|(_, name)| name)
}

/// Writes all files of the release except the sums into `out`; `work` is for what is on the way.
fn write_files(built: &BuiltTree, out: &Path, work: &Path) -> Result<()> {
    let time = time(&built.root)?;
    let changelog = read(&built.root.join("CHANGELOG.md"))?;
    let repository = env!("CARGO_PKG_REPOSITORY");
    let notes = notes::release_notes(&changelog, VERSION, repository)?;
    write(&out.join("RELEASE_NOTES.md"), notes.as_bytes(), 0o644)?;

    let name = archive_name();
    let prefix = work.join(&name);
    install_stripped(built, &prefix, Path::new(USUAL_PREFIX))?;
    let packed = archive::tar(&name, &archive::read_tree(&prefix)?, time)?;
    let packed = archive::gzip(&packed, work)?;
    write(&out.join(format!("{name}.tar.gz")), &packed, 0o644)?;

    let stage = work.join("debian");
    install_stripped(built, &stage.join("usr"), Path::new("/usr"))?;
    let package =
        DebianPackage { root: &built.root, stage: &stage, scratch: work, version: VERSION, time };
    let package_name = debian::file_name(VERSION)?;
    write(&out.join(&package_name), &package.build()?, 0o644)?;

    let commit = git(&built.root, &["rev-parse", "HEAD"]);
    for name in ["package.py", "Containerfile"] {
        let text = read(&built.root.join("packaging").join(name))?;
        let text = substitute(&text, &package_name, commit.as_deref());
        write(&out.join(name), text.as_bytes(), 0o644)?;
    }
    Ok(())
}

/// The name of the archive, and of the directory in it.
fn archive_name() -> String {
    format!("clearway-{VERSION}-{}-linux", std::env::consts::ARCH)
}

/// Installs without the tables of symbols that only debuggers read.
fn install_stripped(built: &BuiltTree, prefix: &Path, home: &Path) -> Result<()> {
    install::install(built, prefix, home)?;
    let status = Command::new("strip")
        .arg("--strip-unneeded")
        .args(["--remove-section=.comment", "--remove-section=.note"])
        .args(BINARIES.iter().map(|place| prefix.join(place)))
        .status()
        .context("strip (binutils) is needed to make packages")?;
    ensure!(status.success(), "strip failed");
    Ok(())
}

/// The time of all entries: what the environment says, else that of the last change.
fn time(root: &Path) -> Result<u64> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => git(root, &["log", "-1", "--format=%ct"])
            .context("this tree has no history that dates it; set SOURCE_DATE_EPOCH")?,
    };
    text.parse().with_context(|| {
        format!("SOURCE_DATE_EPOCH is `{text}`, which is no number of seconds since 1970")
    })
}

/// What git prints, if it works here.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let made = Command::new("git").current_dir(root).args(arguments).output().ok()?;
    let text = String::from_utf8(made.stdout).ok()?;
    made.status.success().then(|| text.trim().to_owned())
}

/// Sets the version, the package's name, and the commit if it is known.
fn substitute(text: &str, package: &str, commit: Option<&str>) -> String {
    let text = text.replace("@VERSION@", VERSION).replace("@DEB@", package);
    match commit {
        Some(commit) => text.replace("@COMMIT@", commit),
        None => text.replace(", commit=\"@COMMIT@\"", ""),
    }
}

/// Writes the sums of all files of `out`.
fn sums(out: &Path) -> Result<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir(out)? {
        names.push(entry?.file_name());
    }
    names.sort();
    let made = Command::new("sha256sum")
        .current_dir(out)
        .arg("--")
        .args(names)
        .output()
        .context("sha256sum is needed to make packages")?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr).trim());
    write(&out.join(SUMS), &made.stdout, 0o644)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_replaceable__only_what_a_run_made() {
        let out = std::env::temp_dir().join(format!("clearway-dist-{}", std::process::id()));
        assert!(is_replaceable(&out).expect("nothing there"));
        fs::create_dir_all(&out).expect("a directory");
        assert!(is_replaceable(&out).expect("an empty directory"));
        fs::write(out.join("a"), "a").expect("a file");
        assert!(!is_replaceable(&out).expect("a file of somebody"));
        sums(&out).expect("sums");
        assert!(is_replaceable(&out).expect("made by a run"));
        fs::write(out.join("b"), "b").expect("a file");
        assert!(!is_replaceable(&out).expect("a file more"));
        fs::remove_dir_all(out).expect("removed");
    }

    #[test]
    fn substitute__leaves_no_mark() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging");
        for name in ["package.py", "Containerfile"] {
            let text = fs::read_to_string(root.join(name)).expect(name);
            for commit in [None, Some("0123")] {
                let filled = substitute(&text, "clearway_1_amd64.deb", commit);
                let marks = ["@COMMIT@", "@VERSION@", "@DEB@"];
                assert!(!marks.iter().any(|mark| filled.contains(mark)), "{filled}");
            }
        }
    }
}
