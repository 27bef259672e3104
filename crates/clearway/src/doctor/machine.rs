//! Tells which programs and devices are there: the FUSE device, its mount program, and `nft`.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::finding::{Finding, FindingGroup};

/// The device of file systems in user space.
const FUSE: &str = "/dev/fuse";
/// Where system programs lie, which ordinary users' paths leave out.
const SYSTEM_DIRECTORIES: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Looks at every one.
pub(super) fn examine() -> FindingGroup {
    // Opening the device mounts nothing.
    let opened = OpenOptions::new().read(true).write(true).open(FUSE).map(drop);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let findings = vec![
        fuse(opened, fs::metadata(FUSE).map(|device| device.permissions().mode()).ok()),
        fusermount(program("fusermount3", &path, &is_executable)),
        nft(program("nft", &path, &is_executable)),
    ];
    FindingGroup { title: "Programs and devices", findings }
}

fn fuse(opened: io::Result<()>, mode: Option<u32>) -> Finding {
    let item = "FUSE";
    match opened {
        Ok(()) => Finding::ok(item, format!("{FUSE} opens")),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let mode = mode.map_or("unknown".to_owned(), |mode| format!("{:04o}", mode & 0o7777));
            let found = format!(
                "{FUSE} is closed to this user (mode {mode}); needed to mount staging only"
            );
            Finding::missing(
                item,
                found,
                format!("`chmod 0666 {FUSE}` as root, as most distributions have it"),
            )
        }
        Err(error) => {
            let found =
                format!("{FUSE} does not open ({}); needed to mount staging only", error.kind());
            Finding::missing(
                item,
                found,
                "`modprobe fuse` as root; in a container pass `--device /dev/fuse`",
            )
        }
    }
}

fn fusermount(file: Option<PathBuf>) -> Finding {
    let item = "fusermount3";
    let purpose = "not in the path; needed to mount staging without root only";
    let found = |file: PathBuf| Finding::ok(item, file.display().to_string());
    file.map_or_else(|| Finding::missing(item, purpose, "install fuse3"), found)
}

fn nft(file: Option<PathBuf>) -> Finding {
    let item = "nft";
    let purpose = "the script of `clearway setup-node` is for it";
    let found = |file: PathBuf| Finding::ok(item, format!("{}; {purpose}", file.display()));
    file.map_or_else(|| Finding::missing(item, purpose, "install nftables, if you want it"), found)
}

/// Returns the first file called `name` that `runs`, in the directories of `path` and of the
/// system.
pub(super) fn program(name: &str, path: &OsStr, runs: &dyn Fn(&Path) -> bool) -> Option<PathBuf> {
    let system = SYSTEM_DIRECTORIES.into_iter().map(PathBuf::from);
    std::env::split_paths(path)
        .chain(system)
        .map(|directory| directory.join(name))
        .find(|file| runs(file))
}

/// Returns whether somebody may run `file`.
pub(super) fn is_executable(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    #[test]
    fn fuse__closed_and_absent_have_different_remedies() {
        assert_eq!(fuse(Ok(()), Some(0o20666)).status, Status::Ok);
        let closed = fuse(Err(io::ErrorKind::PermissionDenied.into()), Some(0o20600));
        assert!(closed.found.contains("mode 0600"), "{}", closed.found);
        assert!(closed.remedies[0].contains("chmod 0666"));
        let absent = fuse(Err(io::ErrorKind::NotFound.into()), None);
        assert!(absent.status == Status::Missing && absent.remedies[0].contains("modprobe fuse"));
    }

    #[test]
    fn program__is_found_by_path_first_then_in_the_systems_directories() {
        let find = |path: &str, there: &'static str| {
            program("nft", OsStr::new(path), &|file| file == Path::new(there))
        };
        assert_eq!(find("/bin:/mine", "/mine/nft"), Some("/mine/nft".into()));
        assert_eq!(find("/bin", "/usr/sbin/nft"), Some("/usr/sbin/nft".into()));
        assert_eq!(find("/bin", "/opt/nft"), None);
    }
}
