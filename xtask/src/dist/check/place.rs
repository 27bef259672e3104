//! Where what was unpacked is tried: at the place where it was unpacked, or at its own paths in a
//! tree that only the tried program sees.
//!
//! # Model
//! A mount namespace of its own, made without privilege, has an overlay of the package's `/usr`
//! above this machine's, with this machine's `/etc`, `/dev` and `/proc`. Both are read only;
//! `/work` is a directory of this check.
//!
//! # Invariants
//! I1. Files of the package come before those of this machine, and a machine that has Clearway
//!     below `/usr` gets no such tree: its files would hide that some are missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::{has, output_of};

/// Makes the tree $1 of the package $2 with the work directory $3, and runs the rest in it.
const ENTER: &str = r#"
set -eu
new=$1 package=$2 work=$3
shift 3
mount -t tmpfs none "$new"
mkdir "$new/usr" "$new/etc" "$new/dev" "$new/proc" "$new/run" "$new/tmp" "$new/work"
for name in bin sbin lib lib32 lib64 libx32; do
    if [ -L "/$name" ]; then
        cp -P "/$name" "$new/$name"
    elif [ -d "/$name" ]; then
        mkdir "$new/$name"
        mount --rbind "/$name" "$new/$name"
    fi
done
mount -t overlay -o "ro,lowerdir=$package/usr:/usr" none "$new/usr"
for name in etc dev proc; do
    mount --rbind "/$name" "$new/$name"
done
mount --bind "$work" "$new/work"
exec chroot "$new" /bin/sh -c 'cd /work && exec "$@"' sh "$@"
"#;

/// Where files are tried.
pub(super) struct Place {
    /// How results name it.
    pub(super) name: &'static str,
    /// The prefix, as this process sees it.
    pub(super) usr: PathBuf,
    /// The directory in which programs run, as this process sees it.
    pub(super) work: PathBuf,
    /// The root of the package and the place of its tree, if it is tried at its own paths.
    tree: Option<(PathBuf, PathBuf)>,
    /// Where the plain names of tools are, below the prefix.
    tools: &'static str,
}

impl Place {
    /// Tries the prefix where it is.
    pub(super) fn prefix(usr: &Path, scratch: &Path) -> Result<Self> {
        let work = scratch.join("work-archive");
        fs::create_dir_all(&work)?;
        Ok(Self { name: "archive", usr: usr.to_owned(), work, tree: None, tools: "bin" })
    }

    /// Tries a package that is unpacked at `package` at its own paths; says why if it cannot.
    pub(super) fn debian(package: &Path, scratch: &Path) -> Result<(Self, Option<String>)> {
        let (work, new) = (scratch.join("work-debian"), scratch.join("root"));
        for directory in [&work, &new] {
            fs::create_dir_all(directory)?;
        }
        let mut place = Self {
            name: "Debian package",
            usr: package.join("usr"),
            work,
            tree: Some((package.to_owned(), new)),
            tools: "lib/clearway/bin",
        };
        let reason = if Path::new("/usr/bin/clearway").exists() {
            Some(
                "this machine has a /usr/bin/clearway, which would stand in for a missing one"
                    .to_owned(),
            )
        } else if !has("unshare") {
            Some("there is no unshare (Debian: util-linux)".to_owned())
        } else {
            let entered = output_of(place.command("true").arg("--version"));
            entered.err().map(|error| format!("this machine allows no such tree ({error:#})"))
        };
        if reason.is_some() {
            place.tree = None;
        }
        Ok((place, reason))
    }

    /// Whether all paths are those of an installed package.
    pub(super) fn is_whole(&self) -> bool {
        self.tree.is_some()
    }

    /// The prefix, as tried programs see it.
    fn visible_prefix(&self) -> PathBuf {
        if self.is_whole() { PathBuf::from("/usr") } else { self.usr.clone() }
    }

    /// The path of the program.
    pub(super) fn clearway(&self) -> String {
        self.visible_prefix().join("bin/clearway").to_string_lossy().into_owned()
    }

    /// The path of a tool under its plain name.
    pub(super) fn tool(&self, name: &str) -> String {
        self.visible_prefix().join(self.tools).join(name).to_string_lossy().into_owned()
    }

    /// The directory of the library, as tried programs see it.
    pub(super) fn libraries(&self) -> PathBuf {
        let of_a_machine = format!("lib/{}-linux-gnu", std::env::consts::ARCH);
        let below = if self.usr.join(&of_a_machine).is_dir() { &of_a_machine } else { "lib" };
        self.visible_prefix().join(below)
    }

    /// A command that runs there, in the work directory.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = if let Some((package, new)) = &self.tree {
            let mut command = Command::new("unshare");
            command.args(["--user", "--map-root-user", "--mount", "sh", "-c", ENTER, "enter"]);
            command.arg(new).arg(package).arg(&self.work).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.current_dir(&self.work).env_remove("TMPDIR").env_remove("LD_LIBRARY_PATH");
        // A launcher of this process is none of the tried programs'.
        command.env("OSHRUN_LAUNCHER", "here");
        command
    }
}
