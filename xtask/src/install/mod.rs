//! `cargo xtask install --prefix DIR`: the program and the OpenSHMEM library where a user, a
//! compiler and a reader of man pages look for them.
//!
//! # Model
//! [`contents`] lists the files of the tree and of the build with their places below the prefix;
//! the program writes man pages and completions of itself, and [`licences`] collects those of
//! libraries. Packages are made of the same files. All of it finds the rest by its own place, so
//! that a prefix can be moved or packed.
//!
//! # Invariants
//! I1. A file is written next to its place and then renamed: a program that runs from there keeps
//!     what it has.

pub(crate) mod contents;
mod licences;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::MetadataCommand;

use contents::{Installed, Origin};

/// The profile under which programs for users are built.
pub(crate) const PACKAGED: &str = "packaged";

/// Reads a directory behind the option `place`, if it is given, and the profile of a build.
pub(crate) fn parse(arguments: &[String], place: &str) -> Result<(Option<PathBuf>, String)> {
    let (mut directory, mut profile) = (None, PACKAGED.to_owned());
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value"));
        match word.as_str() {
            "--profile" => profile.clone_from(value()?),
            word if word == place => directory = Some(PathBuf::from(value()?)),
            _ => bail!(
                "`{word}` is unknown; {place} DIR, and --profile NAME for another profile than {PACKAGED}, are known"
            ),
        }
    }
    Ok((directory, profile))
}

/// Builds, and installs what was built.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let (prefix, profile) = parse(arguments, "--prefix")?;
    let given = prefix.context("say where: --prefix DIR")?;
    let built = build(&profile, &[]).context("nothing was installed")?;
    let prefix = std::path::absolute(&given)?;
    install(&built, &prefix, &prefix)?;
    println!("installed below {}; try `oshcc -o app app.c && oshrun -n 4 ./app`", given.display());
    Ok(ExitCode::SUCCESS)
}

/// The tree and what cargo made of it.
pub(crate) struct BuiltTree {
    /// The root of the tree.
    pub(crate) root: PathBuf,
    /// The directory of what was built.
    pub(crate) programs: PathBuf,
    /// Cargo's directory for all that can be made again.
    pub(crate) target: PathBuf,
}

/// Builds the program and the library under `profile`; `configuration` are values for cargo.
pub(crate) fn build(profile: &str, configuration: &[String]) -> Result<BuiltTree> {
    let status = Command::new(env!("CARGO"))
        .args(["build", "--profile", profile, "--package", "clearway"])
        .args(["--package", "clearway-shmem"])
        .args(configuration.iter().flat_map(|value| ["--config", value]))
        .status()
        .context("cargo")?;
    ensure!(status.success(), "the build failed");
    let metadata = MetadataCommand::new().no_deps().exec()?;
    // The profile for development has a directory of another name.
    let directory = if profile == "dev" { "debug" } else { profile };
    Ok(BuiltTree {
        root: metadata.workspace_root.into_std_path_buf(),
        programs: metadata.target_directory.as_std_path().join(directory),
        target: metadata.target_directory.into_std_path_buf(),
    })
}

/// Installs what was built below `prefix`, for use when the prefix stands at `home`.
pub(crate) fn install(built: &BuiltTree, prefix: &Path, home: &Path) -> Result<()> {
    install_contents(built, prefix, home)?;
    let notices = prefix.join("share/doc/clearway/THIRD-PARTY.txt");
    write(&notices, licences::third_party(&built.root)?.as_bytes(), 0o644)?;
    write_own_pages(&prefix.join("bin/clearway"), prefix)
}

/// Installs the files that [`contents`] lists.
pub(crate) fn install_contents(built: &BuiltTree, prefix: &Path, home: &Path) -> Result<()> {
    for installed in contents::contents(&built.root)? {
        let Installed { origin, place, mode } = &installed;
        let to = prefix.join(place);
        make_parent(&to)?;
        match origin {
            Origin::Tree(from) => copy(&built.root.join(from), &to, *mode)?,
            Origin::Text(from) => {
                let text = read(&built.root.join(from))?;
                write(&to, contents::with_prefix(&text, home).as_bytes(), *mode)?;
            }
            Origin::Built(name) => copy(&built.programs.join(name), &to, *mode)?,
            Origin::Link(target) => link(target, &to)?,
        }
    }
    Ok(())
}

/// The man pages and completions that the program writes of itself.
fn write_own_pages(program: &Path, prefix: &Path) -> Result<()> {
    let pages = prefix.join("share/man/man1");
    let status = Command::new(program)
        .args(["man", "--dir"])
        .arg(&pages)
        .status()
        .context("clearway man")?;
    ensure!(status.success(), "clearway man failed");
    for (shell, place) in contents::COMPLETIONS {
        let made = Command::new(program).args(["completions", shell]).output()?;
        ensure!(made.status.success(), "clearway completions {shell} failed");
        let to = prefix.join(place);
        make_parent(&to)?;
        write(&to, &made.stdout, 0o644)?;
    }
    Ok(())
}

/// The text of a file.
pub(crate) fn read(from: &Path) -> Result<String> {
    fs::read_to_string(from).with_context(|| format!("{} cannot be read", from.display()))
}

/// Makes the directory that `to` will be in.
pub(crate) fn make_parent(to: &Path) -> Result<()> {
    let directory = to.parent().context("a file is in a directory")?;
    fs::create_dir_all(directory).with_context(|| format!("{} cannot be made", directory.display()))
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let bytes = fs::read(from).with_context(|| format!("{} is missing", from.display()))?;
    write(to, &bytes, mode)
}

/// Writes a file whole.
pub(crate) fn write(to: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let aside = aside(to);
    let written = fs::write(&aside, bytes)
        .and_then(|()| fs::set_permissions(&aside, fs::Permissions::from_mode(mode)))
        .and_then(|()| fs::rename(&aside, to));
    written.with_context(|| format!("{} cannot be written", to.display()))
}

/// Makes a symbolic link in the place of what was there.
pub(crate) fn link(target: &str, name: &Path) -> Result<()> {
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
    fn parse__a_directory_a_profile_and_nothing_else() {
        let parsed = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            parse(&words, "--out").map_err(|error| error.to_string())
        };
        assert_eq!(parsed(&[]), Ok((None, PACKAGED.to_owned())));
        let both = parsed(&["--out", "a", "--profile", "dev"]);
        assert_eq!(both, Ok((Some(PathBuf::from("a")), "dev".to_owned())));
        assert!(parsed(&["--out"]).is_err());
        assert!(parsed(&["a"]).is_err_and(|error| error.contains("--out DIR")));
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
