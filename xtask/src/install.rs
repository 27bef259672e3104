//! `cargo xtask install --prefix DIR`: the program and the OpenSHMEM library where a user, a
//! compiler and a reader of man pages look for them.
//!
//! # Model
//! `bin` has the program and the tools, `lib` the library under its own name and those that build
//! systems link, `include` the headers, `share` the man pages, the examples of queues, the module
//! for Python and the dashboard. All of it finds the rest by its own place, so that a prefix
//! can be moved or packed.
//!
//! # Invariants
//! I1. A file is written beside its place and then renamed: a program that runs from there keeps
//!     what it has.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::MetadataCommand;

/// The library under the name by which programs ask for it.
const LIBRARY: &str = "libclearway_shmem.so.1";
/// The names by which it is linked: its own, and those of other OpenSHMEM libraries.
const LINK_NAMES: [&str; 3] = ["libclearway_shmem.so", "libsma.so", "liboshmem.so"];
/// The compiler's other names.
const COMPILERS: [&str; 3] = ["oshc++", "oshcxx", "oshCC"];

/// What is asked for.
struct InstallArguments {
    prefix: PathBuf,
    profile: String,
}

fn parse(arguments: &[String]) -> Result<InstallArguments> {
    let mut asked = InstallArguments { prefix: PathBuf::new(), profile: "release".to_owned() };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value"));
        match word.as_str() {
            "--prefix" => asked.prefix = PathBuf::from(value()?),
            "--profile" => asked.profile = value()?.clone(),
            _ => bail!(
                "`{word}` is unknown; give --prefix DIR, and --profile NAME for another build than release"
            ),
        }
    }
    ensure!(!asked.prefix.as_os_str().is_empty(), "say where: --prefix DIR");
    Ok(asked)
}

/// Builds, and installs what was built.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let asked = parse(arguments)?;
    let status = Command::new(env!("CARGO"))
        .args([
            "build",
            "--profile",
            &asked.profile,
            "--package",
            "clearway",
            "--package",
            "clearway-shmem",
        ])
        .status()
        .context("cargo")?;
    ensure!(status.success(), "nothing was installed, for the build failed");
    let metadata = MetadataCommand::new().no_deps().exec()?;
    // The profile for development has a directory of another name.
    let directory = if asked.profile == "dev" { "debug" } else { &asked.profile };
    install(
        metadata.workspace_root.as_std_path(),
        &metadata.target_directory.as_std_path().join(directory),
        &asked.prefix,
    )?;
    println!(
        "installed below {}; try `oshcc -o app app.c && oshrun -n 4 ./app`",
        asked.prefix.display()
    );
    Ok(ExitCode::SUCCESS)
}

/// Installs what stands in `built` and in the tree at `root` below `prefix`.
fn install(root: &Path, built: &Path, prefix: &Path) -> Result<()> {
    let crate_directory = root.join("crates/clearway-shmem");
    let (tools, include) = (crate_directory.join("tools"), crate_directory.join("include"));
    let place = |below: &str| -> Result<PathBuf> {
        let directory = prefix.join(below);
        fs::create_dir_all(&directory)
            .with_context(|| format!("{} cannot be made", directory.display()))?;
        Ok(directory)
    };
    let (bin, lib) = (place("bin")?, place("lib")?);
    copy(&built.join("clearway"), &bin.join("clearway"), 0o755)?;
    for tool in ["oshcc", "oshrun"] {
        copy(&tools.join(tool), &bin.join(tool), 0o755)?;
    }
    COMPILERS.iter().try_for_each(|name| link("oshcc", &bin.join(name)))?;
    copy(
        &built.join("clearway-shmem-describe"),
        &place("libexec/clearway")?.join("clearway-shmem-describe"),
        0o755,
    )?;
    copy(&built.join("libclearway_shmem.so"), &lib.join(LIBRARY), 0o755)?;
    LINK_NAMES.iter().try_for_each(|name| link(LIBRARY, &lib.join(name)))?;
    for (from, below) in [(include.clone(), "include"), (include.join("mpp"), "include/mpp")] {
        let to = place(below)?;
        for file in files(&from)? {
            copy(&file, &to.join(file.file_name().unwrap_or_default()), 0o644)?;
        }
    }
    for (from, below) in [
        ("examples/queues", "share/clearway/examples"),
        ("examples/tail", "share/clearway/examples"),
        ("python", "share/clearway/python"),
    ] {
        let to = place(below)?;
        for file in files(&crate_directory.join(from))? {
            copy(&file, &to.join(file.file_name().unwrap_or_default()), 0o644)?;
        }
    }
    let dashboards = place("share/clearway/grafana")?;
    copy(&root.join("examples/grafana/clearway.json"), &dashboards.join("clearway.json"), 0o644)?;
    let text = fs::read_to_string(tools.join("clearway-shmem.pc"))?;
    let described = place("lib/pkgconfig")?.join("clearway-shmem.pc");
    write(&described, text.replace("@VERSION@", env!("CARGO_PKG_VERSION")).as_bytes(), 0o644)?;
    pages(&tools, &bin.join("clearway"), &place("share/man/man1")?)
}

/// The man pages of the tools, and those that the program writes of itself.
fn pages(tools: &Path, program: &Path, to: &Path) -> Result<()> {
    for page in ["oshcc.1", "oshrun.1"] {
        copy(&tools.join(page), &to.join(page), 0o644)?;
    }
    write(&to.join("oshc++.1"), b".so man1/oshcc.1\n", 0o644)?;
    let status =
        Command::new(program).args(["man", "--dir"]).arg(to).status().context("clearway man")?;
    ensure!(status.success(), "clearway man failed");
    Ok(())
}

/// The files of a directory, without those below it.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    files.retain(|path| path.is_file());
    files.sort();
    Ok(files)
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let bytes = fs::read(from).with_context(|| format!("{} is missing", from.display()))?;
    write(to, &bytes, mode)
}

fn write(to: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let aside = aside(to);
    let written = fs::write(&aside, bytes)
        .and_then(|()| fs::set_permissions(&aside, fs::Permissions::from_mode(mode)))
        .and_then(|()| fs::rename(&aside, to));
    written.with_context(|| format!("{} cannot be written", to.display()))
}

fn link(target: &str, name: &Path) -> Result<()> {
    let aside = aside(name);
    // What an interrupted installation left.
    let _ = fs::remove_file(&aside);
    let made = symlink(target, &aside).and_then(|()| fs::rename(&aside, name));
    made.with_context(|| format!("{} cannot be made", name.display()))
}

/// Where a file is until it is whole.
fn aside(to: &Path) -> PathBuf {
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    to.with_file_name(format!(".{name}.new"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse__needs_a_prefix() {
        assert!(parse(&[]).is_err_and(|error| error.to_string().contains("--prefix DIR")));
        assert!(parse(&["--prefix".to_owned()]).is_err());
        let asked = parse(&["--prefix".to_owned(), "/opt".to_owned()]).expect("a prefix");
        assert_eq!(
            (asked.prefix.as_path(), asked.profile.as_str()),
            (Path::new("/opt"), "release")
        );
    }

    #[test]
    fn link__replaces_what_was_there() {
        let directory =
            std::env::temp_dir().join(format!("clearway-install-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let name = directory.join("liba.so");
        write(&name, b"old", 0o644).expect("written");
        link("liba.so.1", &name).expect("a link");
        assert_eq!(fs::read_link(&name).ok(), Some(PathBuf::from("liba.so.1")));
        assert_eq!(fs::read_dir(&directory).expect("a directory").count(), 1);
        fs::remove_dir_all(directory).expect("removed");
    }
}
