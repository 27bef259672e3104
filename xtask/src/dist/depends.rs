//! Which Debian packages programs and libraries need.
//!
//! # Model
//! `dpkg-shlibdeps` knows the package of each library and the version that brought each symbol.
//! Without it: the newest version of glibc that any of the files asks for, and libgcc, which
//! unwinds Rust's stacks.
//!
//! # Source
//! dpkg-shlibdeps(1); versions of symbols as in the ELF section `.gnu.version_r`, whose names stand
//! in the table of strings as `GLIBC_2.34`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// How names of glibc's versions begin.
const GLIBC: &[u8] = b"\0GLIBC_2.";
/// What the unwinder of Rust needs: the first version with all its symbols.
const UNWINDER: &str = "libgcc-s1 (>= 4.2)";

/// Returns the value of `Depends` for `files`; `scratch` is a directory to work in.
pub(super) fn depends(files: &[PathBuf], scratch: &Path) -> Result<String> {
    let work = scratch.join("shlibdeps");
    // The program wants to be run where a source package is.
    fs::create_dir_all(work.join("debian"))?;
    fs::write(
        work.join("debian/control"),
        "Source: clearway\n\nPackage: clearway\nArchitecture: any\n",
    )?;
    let tried = Command::new("dpkg-shlibdeps").arg("-O").args(files).current_dir(&work).output();
    let Ok(made) = tried else {
        println!(
            "there is no dpkg-shlibdeps (Debian: dpkg-dev): Depends has glibc's newest version that is asked for"
        );
        let read: Result<Vec<Vec<u8>>, _> = files.iter().map(fs::read).collect();
        return Ok(of_glibc(&read?));
    };
    ensure!(
        made.status.success(),
        "dpkg-shlibdeps failed: {}",
        String::from_utf8_lossy(&made.stderr).trim()
    );
    let text = String::from_utf8_lossy(&made.stdout);
    let found = text.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    Ok(found.context("dpkg-shlibdeps found no package that is needed")?.to_owned())
}

/// What is needed by the newest version of glibc that `files` name.
fn of_glibc(files: &[Vec<u8>]) -> String {
    let newest = files.iter().flat_map(|bytes| minor_versions(bytes)).max().unwrap_or(0);
    format!("libc6 (>= 2.{newest}), {UNWINDER}")
}

/// The `34` of each `GLIBC_2.34`.
fn minor_versions(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.windows(GLIBC.len()).enumerate().filter(|(_, name)| *name == GLIBC).filter_map(
        |(at, _)| {
            let rest = bytes.get(at + GLIBC.len()..)?;
            let digits: Vec<u8> =
                rest.iter().copied().take(4).take_while(u8::is_ascii_digit).collect();
            // `GLIBC_2.2.5` counts as 2.2, which anything newer hides.
            String::from_utf8(digits).ok()?.parse().ok()
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_glibc__takes_the_newest() {
        let files = [
            b"\0GLIBC_2.9\0GLIBC_2.34\0GLIBC_2.2.5\0".to_vec(),
            b"\0GLIBC_2.18\0GLIBC_2.\0xGLIBC_2.99\0GLIBC_2.".to_vec(),
        ];
        assert_eq!(of_glibc(&files), "libc6 (>= 2.34), libgcc-s1 (>= 4.2)");
    }
}
