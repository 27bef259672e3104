//! Errors of a mount: one sentence each, with what works.

use std::io;
use std::path::{Path, PathBuf};

use clearway_proto::staging::LogError;
use clearway_runtime::RuntimeError;

/// Why a log is not mounted, or a mount is not reached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FsError {
    /// A file or directory cannot be used: correct its permissions or place.
    #[error("{what} {path}: {why}; {remedy}", path = path.display(), remedy = remedy(why.kind()))]
    Place {
        /// What was tried, as the beginning of a sentence.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system says.
        why: io::Error,
    },
    /// The log cannot be opened as it is.
    #[error("the log in {path}: {why}", path = path.display())]
    Log {
        /// Its directory.
        path: PathBuf,
        /// Why.
        why: LogError,
    },
    /// Another process has the log open: unmount it there first.
    #[error("the log in {path} is in use by another mount{holder}; unmount that one first, or end its process after a forced unmount", path = path.display())]
    InUse {
        /// Its directory.
        path: PathBuf,
        /// ` (process N)`, if that is known.
        holder: String,
    },
    /// The directory has something that is no log: name another one.
    #[error("{path} is not empty and has no log; name an empty directory or that of a log", path = path.display())]
    NoLog {
        /// The directory.
        path: PathBuf,
    },
    /// The directory has the segments of a log, and no superblock: a new log would remove them.
    #[error("{path} has the bytes of a log, and its superblock is gone; put the file `superblock` back, or name another directory for a new log", path = path.display())]
    NoSuperblock {
        /// The directory.
        path: PathBuf,
    },
    /// The directory has no log: name that of one.
    #[error("{path} has no log; name the directory of one", path = path.display())]
    NotLog {
        /// The directory.
        path: PathBuf,
    },
    /// A segment of a log is missing; restore it from a copy.
    #[error("segment {missing} is missing in {}; restore it from a copy", path.display())]
    NoSegment {
        /// The log.
        path: PathBuf,
        /// Its number.
        missing: u64,
    },
    /// An option has an impossible value.
    #[error("{0}")]
    Option(String),
    /// The kernel does not mount it.
    #[error("cannot mount on {path}: {why}; check the directory and /dev/fuse, and install fusermount3 to mount without root", path = path.display())]
    Mount {
        /// The mount point.
        path: PathBuf,
        /// What the system says.
        why: io::Error,
    },
    /// The system has no room for what a mount needs: threads, descriptors.
    #[error("cannot {what}: {why}")]
    System {
        /// What was tried, to be read behind "cannot".
        what: &'static str,
        /// What the system says.
        why: io::Error,
    },
    /// The system refuses what the engine needs.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The path lies on no mount of a log.
    #[error("{path} is not on a mounted log; name a path below a mount point of clearway", path = path.display())]
    NotMounted {
        /// The path.
        path: PathBuf,
    },
    /// The mount does not answer.
    #[error(
        "the mount does not answer on its control socket: {0}; look at mount.log in the directory of its log, or mount the log again"
    )]
    Control(io::Error),
    /// The mount refuses the request.
    #[error("{0}")]
    Refused(String),
}

/// Returns what works where a path cannot be used.
const fn remedy(why: io::ErrorKind) -> &'static str {
    match why {
        io::ErrorKind::ReadOnlyFilesystem => {
            "mount its file system for writing, or name a directory on another one"
        }
        io::ErrorKind::StorageFull => {
            "make room on its file system, or name a directory on another"
        }
        _ => "check this path and its permissions",
    }
}

impl FsError {
    /// Returns what makes an error of the system one of what was tried.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |why| Self::System { what, why }
    }

    /// Returns what makes an error of the system one of `path`.
    pub(crate) fn at(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |why| Self::Place { what, path, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place__what_works_depends_on_what_the_system_says() {
        let sentence = |errno: rustix::io::Errno| {
            FsError::at("cannot write", Path::new("/store/mark"))(errno.into()).to_string()
        };
        let said = sentence(rustix::io::Errno::ROFS);
        assert!(said.starts_with("cannot write /store/mark: Read-only file system"), "{said}");
        assert!(
            said.ends_with(
                "; mount its file system for writing, or name a directory on another one"
            )
        );
        assert!(
            sentence(rustix::io::Errno::ACCESS).ends_with("check this path and its permissions")
        );
    }
}
