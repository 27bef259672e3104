//! The Debian package: the installed tree in Debian's places, and the files that describe it.
//!
//! # Model
//! The prefix is `/usr`. The library goes to the directory of the machine's kind, man pages and
//! changelogs are compressed, units go to `/lib/systemd/system`. Open MPI's packages own `oshcc`,
//! `oshrun` and `liboshmem.so`, so that the tools are called `oshcc.clearway` and so on; their plain
//! names stand in `/usr/lib/clearway/bin`, and other names of the library in `/usr/lib/clearway/lib`.
//!
//! # Source
//! Debian Policy 4.6; deb(5), deb-control(5), deb-triggers(5), deb-shlibs(5); the machine-readable
//! copyright format 1.0.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::archive::{self, Body, TreeEntry};
use super::depends;
use crate::install::contents::{BINARIES, COMPILERS, DOCUMENTS, LIBRARY, LINK_NAMES};
use crate::install::{link, make_parent, read, write};

/// The maintainer of packages whose builder names none: the owner of the repository, with an address
/// that takes no mail.
const MAINTAINER: &str = "Clearway maintainers <clearway@users.noreply.github.com>";
const PACKAGE: &str = "clearway";
/// The end of names that Open MPI's packages have too.
const SUFFIX: &str = ".clearway";

/// Kinds of machine: Rust's name, Debian's, and that of Debian's directories.
const MACHINES: [(&str, &str, &str); 2] =
    [("x86_64", "amd64", "x86_64-linux-gnu"), ("aarch64", "arm64", "aarch64-linux-gnu")];

/// A package to make: of what, for which machine, at which time.
pub(super) struct DebianPackage<'a> {
    /// The tree of this repository.
    pub(super) root: &'a Path,
    /// The directory in which `usr` is installed; the package is arranged there.
    pub(super) stage: &'a Path,
    /// A directory for files that are needed on the way.
    pub(super) scratch: &'a Path,
    /// Version as cargo writes it.
    pub(super) version: &'a str,
    /// The time of all entries, in seconds since 1970.
    pub(super) time: u64,
}

/// Returns the version as Debian orders it: what comes before a release sorts before it.
pub(super) fn debian_version(version: &str) -> String {
    version.replacen('-', "~", 1)
}

/// Returns Debian's name of this machine's kind, and that of its directories.
fn machine() -> Result<(&'static str, &'static str)> {
    let found = MACHINES.iter().find(|(rust, ..)| *rust == std::env::consts::ARCH);
    let (_, debian, directory) =
        found.context("Debian packages are made on x86_64 and aarch64 only")?;
    Ok((debian, directory))
}

/// Returns the name of the package's file.
pub(super) fn file_name(version: &str) -> Result<String> {
    Ok(format!("{PACKAGE}_{}_{}.deb", debian_version(version), machine()?.0))
}

impl DebianPackage<'_> {
    /// Arranges the tree, and returns the bytes of the package.
    pub(super) fn build(&self) -> Result<Vec<u8>> {
        let (architecture, directory) = machine()?;
        self.arrange(directory)?;
        self.describe()?;
        let entries = archive::read_tree(self.stage)?;
        let mut control = Vec::new();
        let mut add = |name: &str, text: String| {
            let body = Body::File { bytes: text.into_bytes(), mode: 0o644 };
            control.push(TreeEntry { path: name.to_owned(), body });
        };
        let depends = depends::depends(&self.binaries(directory), self.scratch)?;
        let size = installed_kib(&entries);
        let version = debian_version(self.version);
        add("control", control_file(&version, architecture, &depends, size));
        add("md5sums", md5sums(self.stage, &entries)?);
        add("shlibs", format!("libclearway_shmem 1 {PACKAGE} (>= {version})\n"));
        add("triggers", "activate-noawait ldconfig\n".to_owned());
        let pack = |entries: &[TreeEntry]| -> Result<Vec<u8>> {
            archive::gzip(&archive::tar(".", entries, self.time)?, self.scratch)
        };
        let (control, data) = (pack(&control)?, pack(&entries)?);
        archive::ar(
            &[("debian-binary", b"2.0\n"), ("control.tar.gz", &control), ("data.tar.gz", &data)],
            self.time,
        )
    }

    /// The programs and the library, where the package has them.
    fn binaries(&self, directory: &str) -> Vec<PathBuf> {
        let library = format!("lib/{directory}/{LIBRARY}");
        let places = BINARIES.iter().map(|place| match *place {
            place if place.starts_with("lib/") => library.as_str(),
            place => place,
        });
        places.map(|place| self.stage.join("usr").join(place)).collect()
    }

    /// Moves what Debian has elsewhere than an ordinary prefix.
    fn arrange(&self, directory: &str) -> Result<()> {
        let usr = self.stage.join("usr");
        let libraries = format!("lib/{directory}");
        relocate(&usr, &format!("lib/{LIBRARY}"), &format!("{libraries}/{LIBRARY}"))?;
        for name in LINK_NAMES {
            fs::remove_file(usr.join("lib").join(name))?;
            // Its own name is nobody else's.
            if name == LINK_NAMES[0] {
                link(LIBRARY, &usr.join(&libraries).join(name))?;
            } else {
                let to = usr.join("lib/clearway/lib").join(name);
                make_parent(&to)?;
                link(&format!("../../{directory}/{LIBRARY}"), &to)?;
            }
        }
        let description = "pkgconfig/clearway-shmem.pc";
        relocate(&usr, &format!("lib/{description}"), &format!("{libraries}/{description}"))?;
        replace(
            &usr.join(&libraries).join(description),
            "${prefix}/lib",
            &format!("${{prefix}}/{libraries}"),
        )?;
        replace(&usr.join(&libraries).join(description), "${pcfiledir}/../..", "/usr")?;
        replace(
            &usr.join("bin/oshcc"),
            "lib=$prefix/lib\n",
            &format!("lib=$prefix/{libraries}\n"),
        )?;
        self.rename_tools(&usr)?;
        let units = self.stage.join("lib/systemd/system");
        make_parent(&units)?;
        fs::rename(usr.join("lib/systemd/system"), units)?;
        for emptied in ["lib/systemd", "lib/pkgconfig"] {
            fs::remove_dir(usr.join(emptied)).with_context(|| format!("usr/{emptied}"))?;
        }
        // Zsh looks for what packages bring in another directory than for what a site brings.
        relocate(&usr, "share/zsh/site-functions", "share/zsh/vendor-completions")?;
        compress_pages(&usr.join("share/man/man1"))
    }

    /// Gives the tools and their pages names that nobody else has, and keeps the plain ones apart.
    fn rename_tools(&self, usr: &Path) -> Result<()> {
        let pages = usr.join("share/man/man1");
        for name in COMPILERS {
            fs::remove_file(usr.join("bin").join(name))?;
            fs::remove_file(pages.join(format!("{name}.1")))?;
            link(&format!("oshcc{SUFFIX}"), &usr.join(format!("bin/{name}{SUFFIX}")))?;
            link(&format!("oshcc{SUFFIX}.1"), &pages.join(format!("{name}{SUFFIX}.1")))?;
        }
        for name in ["oshcc", "oshrun"] {
            relocate(usr, &format!("bin/{name}"), &format!("bin/{name}{SUFFIX}"))?;
            let (page, renamed) = (format!("{name}.1"), format!("{name}{SUFFIX}.1"));
            fs::rename(pages.join(page), pages.join(renamed))?;
        }
        for name in COMPILERS.iter().copied().chain(["oshcc", "oshrun"]) {
            let plain = usr.join("lib/clearway/bin").join(name);
            make_parent(&plain)?;
            link(&format!("../../../bin/{name}{SUFFIX}"), &plain)?;
        }
        Ok(())
    }

    /// Writes the copyright and the changelogs, in the form of Debian.
    fn describe(&self) -> Result<()> {
        let documents = self.stage.join("usr").join(DOCUMENTS);
        let licence = read(&self.root.join("LICENSE-MIT"))?;
        let repository = env!("CARGO_PKG_REPOSITORY");
        write(&documents.join("copyright"), copyright(&licence, repository)?.as_bytes(), 0o644)?;
        // The copyright has the one, and leads to the other.
        for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
            fs::remove_file(documents.join(name))?;
        }
        let date = Command::new("date")
            .env("LC_ALL", "C")
            .args(["-u", "-R", "-d", &format!("@{}", self.time)])
            .output()
            .context("date is needed for Debian's changelog")?;
        let date = String::from_utf8_lossy(&date.stdout).trim().to_owned();
        let text = changelog(&debian_version(self.version), &date);
        write(&documents.join("changelog"), text.as_bytes(), 0o644)?;
        compress(&documents, &["changelog", "CHANGELOG.md", "THIRD-PARTY.txt"])?;
        let overrides = self.stage.join("usr/share/lintian/overrides").join(PACKAGE);
        make_parent(&overrides)?;
        write(&overrides, OVERRIDES.as_bytes(), 0o644)
    }
}

/// What Debian's checker warns of, and why it stays.
const OVERRIDES: &str = "\
# The program comes first; its OpenSHMEM library has no package of its own.
clearway: package-name-doesnt-match-sonames libclearway-shmem1
# For the same reason headers and the link for compilers are here.
clearway: link-to-shared-library-in-wrong-package *
";

/// Returns the maintainer: what the builder has in DEBFULLNAME and DEBEMAIL (debchange(1)), if both
/// are there.
fn maintainer() -> String {
    let named = ["DEBFULLNAME", "DEBEMAIL"].map(|name| std::env::var(name).ok());
    maintainer_of(named)
}

fn maintainer_of(named: [Option<String>; 2]) -> String {
    let is_line = |text: &String| !text.trim().is_empty() && !text.contains(['\n', '<', '>']);
    match named.map(|text| text.filter(is_line)) {
        [Some(name), Some(address)] => format!("{} <{}>", name.trim(), address.trim()),
        _ => MAINTAINER.to_owned(),
    }
}

/// Returns Debian's changelog: one entry, for the rest is in the project's own.
fn changelog(version: &str, date: &str) -> String {
    format!(
        "{PACKAGE} ({version}) unstable; urgency=medium\n\n  * Release {version}. CHANGELOG.md.gz lists the changes.\n\n -- {}  {date}\n",
        maintainer()
    )
}

/// Returns the copyright file; the text of the MIT licence comes from the tree.
fn copyright(licence: &str, repository: &str) -> Result<String> {
    let holder = licence.lines().find_map(|line| line.strip_prefix("Copyright (c) "));
    let holder = holder.context("LICENSE-MIT names no holder of the copyright")?;
    let terms = licence
        .lines()
        .skip_while(|line| !line.starts_with("Permission is"))
        .map(|line| if line.is_empty() { " .\n".to_owned() } else { format!(" {line}\n") });
    Ok(format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: Clearway\n\
         Source: {repository}\n\
         Comment: Licences of the libraries that the program contains are in THIRD-PARTY.txt.gz.\n\n\
         Files: *\nCopyright: {holder}\nLicense: Apache-2.0 or Expat\n\n\
         License: Apache-2.0\n On Debian systems, the text of this licence is in /usr/share/common-licenses/Apache-2.0.\n\n\
         License: Expat\n{}",
        terms.collect::<String>()
    ))
}

/// Returns the control file of the package.
fn control_file(version: &str, architecture: &str, depends: &str, size_kib: u64) -> String {
    format!(
        "Package: {PACKAGE}\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: {}\n\
         Installed-Size: {size_kib}\nDepends: {depends}\nRecommends: fuse3\n\
         Suggests: c-compiler, libfabric1, libpmix2, munge\nSection: net\nPriority: optional\n\
         Homepage: {}\n\
         Description: traffic classes, data movement and OpenSHMEM for shared cluster networks\n \
         Clearway measures whether a shared network lets small messages through while\n \
         bulk data moves at line rate, and which traffic class makes it do so. It also\n \
         copies files to many hosts, builds timeslices of detector data, stages\n \
         checkpoints, and runs OpenSHMEM programs.\n .\n \
         The OpenSHMEM tools are oshcc.clearway, oshc++.clearway and oshrun.clearway,\n \
         next to those of Open MPI; /usr/lib/clearway/bin has them under their plain\n names.\n",
        maintainer(),
        env!("CARGO_PKG_REPOSITORY")
    )
}

/// The size as deb-substvars(5) counts it: each file rounded up to KiB, anything else as one.
fn installed_kib(entries: &[TreeEntry]) -> u64 {
    let size = |entry: &TreeEntry| match &entry.body {
        Body::File { bytes, .. } => (bytes.len() as u64).div_ceil(1024),
        Body::Directory | Body::Link(_) => 1,
    };
    entries.iter().map(size).sum()
}

/// Returns the sums of all files, as `dpkg --verify` reads them.
fn md5sums(stage: &Path, entries: &[TreeEntry]) -> Result<String> {
    let files = entries.iter().filter(|entry| matches!(entry.body, Body::File { .. }));
    let made = Command::new("md5sum")
        .current_dir(stage)
        .arg("--")
        .args(files.map(|entry| &entry.path))
        .output()
        .context("md5sum is needed for the sums of a Debian package")?;
    ensure!(made.status.success(), "md5sum failed: {}", String::from_utf8_lossy(&made.stderr));
    Ok(String::from_utf8_lossy(&made.stdout).into_owned())
}

/// Compresses all pages, and gives links the new names.
fn compress_pages(pages: &Path) -> Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(pages)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_symlink() {
            let target = fs::read_link(entry.path())?;
            fs::remove_file(entry.path())?;
            link(&format!("{}.gz", target.display()), &pages.join(format!("{name}.gz")))?;
        } else {
            files.push(name);
        }
    }
    compress(pages, &files)
}

/// Replaces files of a directory by compressed ones.
fn compress<T: AsRef<str>>(directory: &Path, names: &[T]) -> Result<()> {
    let status = Command::new("gzip")
        .current_dir(directory)
        .args(["-9n", "--"])
        .args(names.iter().map(AsRef::as_ref))
        .status()
        .context("gzip is needed to compress packages")?;
    ensure!(status.success(), "gzip failed");
    Ok(())
}

/// Moves a file or directory within `usr`.
fn relocate(usr: &Path, from: &str, to: &str) -> Result<()> {
    make_parent(&usr.join(to))?;
    fs::rename(usr.join(from), usr.join(to)).with_context(|| format!("usr/{from}"))
}

/// Replaces text that must be there.
fn replace(path: &Path, old: &str, new: &str) -> Result<()> {
    let text = read(path)?;
    ensure!(text.contains(old), "{} lacks `{}`", path.display(), old.trim());
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(path)?.permissions());
    write(path, text.replace(old, new).as_bytes(), mode & 0o777)
}

#[cfg(test)]
mod tests;
