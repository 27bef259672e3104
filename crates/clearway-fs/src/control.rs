//! Defines the requests and responses of a mount's control socket: lines of JSON.
//!
//! # Model
//! A client connects to the socket that the mount point names in its extended attribute
//! [`CONTROL_XATTR`], writes one request as a line, and reads responses, one a line, until a last one:
//! [`ControlResponse::Done`] or [`ControlResponse::Refused`]. A connection carries one request.
//!
//! Paths start at the mount point and have no slash in front; the mount point itself is the empty
//! path. JSON has no bytes, so a byte of a path that is not part of UTF-8 is written `%XX`, and `%`
//! is `%25` ([`ControlPath`]).
//!
//! # Invariants
//! I1. A line is at most [`LINE_MAX`] bytes, and a request names at most [`PATHS_MAX`] paths.
//! I2. Any bytes are a request or a sentence that says what is wrong with them.

use std::fs::File;
use std::io::{self, BufRead, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use clearway_proto::base::Class;
use clearway_proto::stats::Histogram;
use serde::{Deserialize, Serialize};

use crate::store::DrainHeld;

/// The extended attribute by which a mount point names its control socket.
pub const CONTROL_XATTR: &str = "user.clearway.control";
/// Bytes of the longest line: [`PATHS_MAX`] long paths.
pub const LINE_MAX: usize = 4 << 20;
/// Paths of one request.
pub const PATHS_MAX: usize = 4096;

/// A way to a socket whose path may be longer than the 107 bytes that an address of a socket has: it
/// leads through the open directory.
pub(crate) struct SocketPath {
    path: PathBuf,
    /// Keeps `path` valid.
    _directory: File,
}

impl SocketPath {
    /// Opens the directory of the socket at `path`.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::InvalidInput`] when the path has no last name.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let directory = File::open(directory)?;
        let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
        Ok(Self { path: Path::new(&link).join(name), _directory: directory })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// A path below the mount point, as text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ControlPath(pub String);

impl ControlPath {
    /// Writes the bytes of a path as text.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut text = String::new();
        for chunk in bytes.utf8_chunks() {
            text.push_str(&chunk.valid().replace('%', "%25"));
            for byte in chunk.invalid() {
                text.push_str(&format!("%{byte:02X}"));
            }
        }
        Self(text)
    }

    /// Returns the bytes; `None` when a `%` has no two digits behind it.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let (mut bytes, mut rest) = (Vec::new(), self.0.as_bytes());
        while let Some((first, behind)) = rest.split_first() {
            rest = behind;
            if *first == b'%' {
                let (digits, behind) = rest.split_at_checked(2)?;
                let digits = std::str::from_utf8(digits).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = behind;
            } else {
                bytes.push(*first);
            }
        }
        Some(bytes)
    }
}

/// How safe bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SafetyLevel {
    /// They survive the end of the mount's process and of its machine's power: durable in the log.
    Logged,
    /// They survive the loss of the log: durable in the store.
    Stored,
}

/// A request to a mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ControlRequest {
    /// Asks how the mount is: one [`ControlResponse::Status`].
    Status,
    /// Gives up the servers of the mount: all its requests fail from now on, and writes that the
    /// servers lack are lost.
    Abandon,
    /// Asks for the entries of directories: a [`ControlResponse::File`] each.
    Ls {
        /// The directories, or files.
        paths: Vec<ControlPath>,
    },
    /// Asks for files: a [`ControlResponse::File`] each.
    Stat {
        /// The files.
        paths: Vec<ControlPath>,
    },
    /// Answers when everything below the paths, as it is now, is safe.
    Wait {
        /// The files and directories.
        paths: Vec<ControlPath>,
        /// How safe.
        until: SafetyLevel,
    },
    /// Drains files before others.
    Drain {
        /// The files and directories.
        paths: Vec<ControlPath>,
    },
    /// Makes a set of files appear in the store as a whole, and answers when it is there.
    Publish {
        /// The files and directories.
        paths: Vec<ControlPath>,
    },
    /// Drains files no more until they change again.
    Cancel {
        /// The files and directories.
        paths: Vec<ControlPath>,
    },
    /// Sets the class of what is sent of files from now on.
    SetClass {
        /// The files and directories.
        paths: Vec<ControlPath>,
        /// The class; none to inherit one from the directory again.
        class: Option<Class>,
    },
}

impl ControlRequest {
    /// Returns the paths that it names.
    pub fn paths(&self) -> &[ControlPath] {
        match self {
            Self::Status | Self::Abandon => &[],
            Self::Ls { paths }
            | Self::Stat { paths }
            | Self::Wait { paths, .. }
            | Self::Drain { paths }
            | Self::Publish { paths }
            | Self::Cancel { paths }
            | Self::SetClass { paths, .. } => paths,
        }
    }

    /// Returns the list of paths that it names; `None` when it names none.
    fn path_list(&mut self) -> Option<&mut Vec<ControlPath>> {
        match self {
            Self::Status | Self::Abandon => None,
            Self::Ls { paths }
            | Self::Stat { paths }
            | Self::Wait { paths, .. }
            | Self::Drain { paths }
            | Self::Publish { paths }
            | Self::Cancel { paths }
            | Self::SetClass { paths, .. } => Some(paths),
        }
    }

    /// Returns the paths that it names, to be changed.
    pub(crate) fn paths_mut(&mut self) -> &mut [ControlPath] {
        self.path_list().map_or(&mut [], |paths| paths)
    }

    /// Returns the same request about other paths.
    pub(crate) fn with_paths(&self, paths: Vec<ControlPath>) -> Self {
        let mut other = self.clone();
        if let Some(list) = other.path_list() {
            *list = paths;
        }
        other
    }

    /// Names one more path.
    pub(crate) fn push_path(&mut self, path: ControlPath) {
        if let Some(list) = self.path_list() {
            list.push(path);
        }
    }
}

/// A response of a mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ControlResponse {
    /// How the mount is.
    Status(Box<MountStatus>),
    /// A file.
    File(FileStatus),
    /// Something that a person who waits should know.
    Notice {
        /// One sentence.
        what: String,
    },
    /// Everything that was asked is done; nothing follows.
    Done,
    /// It is not done; nothing follows.
    Refused {
        /// Why: one sentence.
        why: String,
    },
}

/// How a mount is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountStatus {
    /// The server that has the log, if it is not this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Bytes of writes that the server has not acknowledged.
    #[serde(default)]
    pub unacknowledged_bytes: u64,
    /// The directory of the log.
    pub log: String,
    /// The directory of the store.
    pub store: String,
    /// The mount point.
    pub mounted_on: String,
    /// The process that has the log open.
    pub process: u32,
    /// The class of files that have none.
    pub class: String,
    /// Bytes of the log in all.
    pub log_bytes: u64,
    /// Bytes of segments that are free.
    pub log_bytes_free: u64,
    /// Segments of the log.
    pub segments: u64,
    /// Segments that are free.
    pub segments_free: u64,
    /// Segments that are not used any more, because the disk failed there.
    pub segments_retired: u64,
    /// Why the last snapshot of the log was not written, if so: no segment becomes free until one is.
    #[serde(default)]
    pub snapshot_failed: Option<String>,
    /// Inodes in use.
    pub inodes: u64,
    /// Inodes that there can be.
    pub inodes_max: u64,
    /// Bytes of writes that are not durable in the log yet.
    pub unlogged_bytes: u64,
    /// Bytes in memory that are durable, kept for readers.
    pub cached_bytes: u64,
    /// Bytes of files that lie in the log, by class.
    pub class_bytes: std::collections::BTreeMap<Class, u64>,
    /// Files that the store does not have as they are, by class.
    pub class_files: std::collections::BTreeMap<Class, u64>,
    /// Bytes of files that lie in the log, of each user that owns some.
    #[serde(default)]
    pub users: Vec<UserStatus>,
    /// Names, attributes and removals that the store lacks.
    pub lag: u64,
    /// How the drain is.
    pub drain: DrainState,
    /// Steps of the drain that are under way.
    pub draining: u64,
    /// Bytes that were drained since the mount began, by the class that they had then.
    pub drained_bytes: std::collections::BTreeMap<Class, u64>,
    /// Versions of files that the store got whole since the mount began.
    pub drained_files: u64,
    /// Steps of the drain that failed since the mount began.
    pub drain_failures: u64,
    /// Files that the store lacks after their deadline.
    #[serde(default)]
    pub late_files: u64,
    /// The process that changes the store, if there is one.
    pub store_process: Option<u32>,
    /// Bytes that were written since the mount began.
    pub written_bytes: u64,
    /// Bytes that were read since the mount began.
    pub read_bytes: u64,
    /// Bytes of files that the log wrote again elsewhere, so that it has free segments.
    pub moved_bytes: u64,
    /// Changes since the mount began, writes among them.
    pub changes: u64,
    /// Changes since the mount began that waited for memory or for the log.
    pub stalls: u64,
    /// Changes that wait now.
    pub stalled: u64,
    /// How long fsync, close and waits waited for the disk since the mount began, in ns; those that
    /// had nothing to wait for are not counted, and those that failed are infinite.
    pub syncs: Histogram,
    /// Why the log takes no more changes; none while it does.
    pub stopped: Option<String>,
    /// The pace of a server's mounts, if it sets one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<PaceStatus>,
    /// For how long and how far the agent of the node held the drain back, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<DrainHeld>,
}

/// The pace that a server sets its mounts, as `stage status` shows it: the last
/// [`YieldReport`](clearway_proto::flow::YieldReport), with the link and the senders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaceStatus {
    /// The rate of the link in bits a second.
    pub link: u64,
    /// The rate that the mounts share.
    pub rate: u64,
    /// By how many thousandths small messages were slower while mounts sent, at the last decision.
    pub excess_permille: u32,
    /// The part of the rate that only the floor needs.
    pub for_floor: u64,
    /// Mounts that write now.
    #[serde(default)]
    pub senders: u64,
}

/// How the drain of a mount is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DrainState {
    /// The store has everything that it may have.
    #[default]
    Idle,
    /// It gets on.
    Working,
    /// Steps fail, and are tried again.
    Failing,
    /// The store makes no progress.
    Parked,
}

/// Why the store does not get a file by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeftOut {
    /// Somebody cancelled it, and it did not change since.
    Cancelled,
    /// It appears when it is published.
    Unpublished,
}

/// How a file is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStatus {
    /// Its path.
    pub path: ControlPath,
    /// What it is.
    pub what: FileKindName,
    /// Its size in bytes; zero for what is no file.
    pub size: u64,
    /// The class of its traffic.
    pub class: Class,
    /// Counts changes of its bytes.
    pub version: u64,
    /// Bytes of it that lie in the log.
    pub log_bytes: u64,
    /// Whether its last change is durable in the log.
    pub is_logged: bool,
    /// Whether the store has all of it: bytes, attributes and names, and of a directory the names in
    /// it.
    pub is_stored: bool,
    /// Why the store does not get it by itself, if that is so.
    pub left_out: Option<LeftOut>,
}

/// What a user has in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserStatus {
    /// The user.
    pub uid: u32,
    /// Bytes of its files that lie in the log.
    pub log_bytes: u64,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKindName {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A pipe, socket or device.
    Special,
}

/// Reads a line and what it says; `None` at the end.
///
/// # Errors
/// Of the stream; [`io::ErrorKind::InvalidData`] for a line that is too long or says nothing known.
pub fn read_line<T: for<'de> Deserialize<'de>>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    let mut from = io::Read::take(from, LINE_MAX as u64 + 1);
    from.read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.len() > LINE_MAX {
        let why = format!("a line is longer than {LINE_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let said = serde_json::from_slice(&line);
    said.map(Some).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why.to_string()))
}

/// Writes `said` as a line.
///
/// # Errors
/// Of the stream.
pub fn write_line(into: &mut impl Write, said: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(said)?;
    line.push(b'\n');
    into.write_all(&line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn write_line__a_request_is_one_line_of_json() {
        let paths = vec![ControlPath::from_bytes(b"a%\xff/b")];
        let request = ControlRequest::Wait { paths, until: SafetyLevel::Logged };
        let mut line = Vec::new();
        write_line(&mut line, &request).expect("memory");
        let text = "{\"verb\":\"wait\",\"paths\":[\"a%25%FF/b\"],\"until\":\"logged\"}\n";
        assert_eq!(String::from_utf8_lossy(&line), text);
        assert_eq!(read_line(&mut &line[..]).expect("a line"), Some(request));
        assert_eq!(read_line::<ControlRequest>(&mut &b""[..]).expect("the end"), None);
    }

    #[test]
    fn read_line__what_is_no_request_is_refused() {
        for line in ["{}\n", "{\"verb\":\"fly\"}\n", "{\"verb\":\"ls\",\"path\":[]}\n", "x\n"] {
            assert!(read_line::<ControlRequest>(&mut line.as_bytes()).is_err(), "{line}");
        }
        let endless = vec![b' '; LINE_MAX + 2];
        assert!(read_line::<ControlRequest>(&mut &endless[..]).is_err());
    }

    proptest! {
        #[test]
        fn control_path__any_bytes_come_back(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(ControlPath::from_bytes(&bytes).to_bytes(), Some(bytes.clone()));
            let _ = ControlPath(String::from_utf8_lossy(&bytes).into_owned()).to_bytes();
        }
    }
}
