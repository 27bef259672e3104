//! The control socket of a mount whose log is at a server: passes requests on.
//!
//! # Model
//! Each of several servers is asked about the paths that lie there, one after the other.
//!
//! # Invariants
//! I1. A server is asked when it has all bytes that were written before.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use clearway_proto::staging::InodeId;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use super::request::{FileRequest, FileResponse, RequestPlace};
use super::trees::{ServedTree, ServedTrees, TreeResponse, request_first};
use crate::FsError;
use crate::control::{ControlPath, ControlRequest, ControlResponse, MountStatus, write_line};
use crate::control_socket::{ControlConnection, ControlSocket, NO_PLACE, RequestSlots};

/// Bytes of the longest request.
const LINE_MAX: u64 = 60 << 10;

/// The socket, until it is dropped.
pub(super) struct ControlRelay(ControlSocket);

struct RelayShared {
    trees: ServedTrees,
    /// The mount point.
    directory: PathBuf,
    /// The path of the mounted directory in the servers' trees, with a slash behind it unless it is
    /// the root.
    tree: String,
}

/// Returns the directory of sockets: of this user alone.
fn socket_directory() -> Result<PathBuf, FsError> {
    let uid = rustix::process::geteuid().as_raw();
    let directory = if uid == 0 {
        PathBuf::from("/run/clearway")
    } else {
        match std::env::var_os("XDG_RUNTIME_DIR") {
            Some(runtime) => Path::new(&runtime).join("clearway"),
            None => std::env::temp_dir().join(format!("clearway-{uid}")),
        }
    };
    let made = fs::DirBuilder::new().mode(0o700).create(&directory);
    if let Err(why) = made
        && why.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(FsError::at("cannot make the directory of the control socket", &directory)(
            why,
        ));
    }
    let found = fs::symlink_metadata(&directory)
        .map_err(FsError::at("cannot use the directory of the control socket", &directory))?;
    if !found.is_dir() || found.uid() != uid || found.mode() & 0o022 != 0 {
        return Err(FsError::Option(format!(
            "{} is not a directory that only this user writes to; remove it",
            directory.display()
        )));
    }
    Ok(directory)
}

/// Removes the empty journals that mounts left whose processes are gone.
fn remove_left_journals(directory: &Path) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.strip_prefix("mount-")?.strip_suffix(".log"));
        let process = number.and_then(|number| Pid::from_raw(number.parse().ok()?));
        let is_gone = process.is_some_and(|it| test_kill_process(it) == Err(Errno::SRCH));
        if is_gone && path.symlink_metadata().is_ok_and(|found| found.is_file() && found.len() == 0)
        {
            // Another mount may be faster.
            let _ = fs::remove_file(path);
        }
    }
}

impl ControlRelay {
    /// Opens a socket and answers on it.
    pub(super) fn open(trees: &ServedTrees, directory: &Path, tree: &str) -> Result<Self, FsError> {
        let sockets = socket_directory()?;
        remove_left_journals(&sockets);
        let path = sockets.join(format!("mount-{}", std::process::id()));
        let tree = tree.trim_matches('/');
        let shared = RelayShared {
            trees: trees.clone(),
            directory: directory.to_owned(),
            tree: if tree.is_empty() { String::new() } else { format!("{tree}/") },
        };
        ControlSocket::open(path, RequestSlots::default(), move |connection| {
            shared.serve(connection)
        })
        .map(Self)
    }

    /// Returns where the socket is.
    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl RelayShared {
    fn serve(&self, connection: &ControlConnection) -> io::Result<()> {
        let stream = connection.stream();
        let mut line = String::new();
        BufReader::new(stream.take(LINE_MAX)).read_line(&mut line)?;
        let mut out = stream;
        if !line.ends_with('\n') {
            let why = format!("a request has at most {LINE_MAX} bytes; name fewer paths");
            return write_line(&mut out, &ControlResponse::Refused { why });
        }
        let Ok(request) = serde_json::from_str::<ControlRequest>(&line) else {
            let why = "the request cannot be read; use the same release of clearway as the mount";
            return write_line(&mut out, &ControlResponse::Refused { why: why.to_owned() });
        };
        let Some(_place) = connection.begin() else {
            return write_line(&mut out, &ControlResponse::Refused { why: NO_PLACE.to_owned() });
        };
        if request == ControlRequest::Abandon {
            self.trees.abandon();
            return write_line(&mut out, &ControlResponse::Done);
        }
        let parts = self.divided(&request);
        if let (ControlRequest::Publish { .. }, [first, second, ..]) = (&request, parts.as_slice())
        {
            let why = format!(
                "a set appears as a whole only if it is on one server, and this one is on {} and {}; publish directories at the top of the mount one after the other",
                first.0.name, second.0.name
            );
            return write_line(&mut out, &ControlResponse::Refused { why });
        }
        for (tree, mut request) in parts {
            for path in request.paths_mut() {
                path.0 = format!("{}{}", self.tree, path.0.trim_start_matches('/'));
            }
            if request == ControlRequest::Status && tree.files.is_away() {
                // A user that unmounts must not wait for the server.
                write_line(&mut out, &self.status_without(&tree))?;
                continue;
            }
            let outcome = ask(&tree, &request).and_then(|lines| self.pass_back(&tree, &lines, out));
            match outcome {
                Ok(RelayEnd::Done) => {}
                Ok(RelayEnd::Refused) => return Ok(()),
                Err(why) => {
                    return write_line(
                        &mut out,
                        &ControlResponse::Refused { why: why.to_string() },
                    );
                }
            }
        }
        write_line(&mut out, &ControlResponse::Done)
    }

    /// Returns what each server is asked: about the paths that lie there.
    fn divided(&self, request: &ControlRequest) -> Vec<(Arc<ServedTree>, ControlRequest)> {
        let mut parts: Vec<_> = self
            .trees
            .all()
            .map(|tree| (Arc::clone(tree), request.with_paths(Vec::new())))
            .collect();
        if request.paths().is_empty() {
            return parts;
        }
        for path in request.paths() {
            let top = path.0.trim_start_matches('/').split('/').next().unwrap_or_default();
            let holder = match ControlPath(top.to_owned()).to_bytes() {
                Some(name) if !name.is_empty() => Some(self.holder(&name)),
                _ => None,
            };
            for (tree, part) in &mut parts {
                if holder.as_ref().is_none_or(|holder| Arc::ptr_eq(holder, tree)) {
                    part.push_path(path.clone());
                }
            }
        }
        parts.retain(|(_, part)| !part.paths().is_empty());
        parts
    }

    /// Returns the server that has a name at the top of the mount, or would make it.
    fn holder(&self, name: &[u8]) -> Arc<ServedTree> {
        let mut holders = self.trees.holders(InodeId::ROOT.0, name);
        if holders.len() > 1 {
            let (sender, receiver) = mpsc::channel();
            let wanted = name.to_vec();
            let request =
                move |tree: &ServedTree| FileRequest::Lookup(RequestPlace::new(tree.root, &wanted));
            let answer = Box::new(move |tree: &Arc<ServedTree>, found: TreeResponse| {
                let _ = sender.send(found.is_ok().then(|| Arc::clone(tree)));
            });
            request_first(holders.clone(), request, answer);
            if let Ok(Some(holder)) = receiver.recv() {
                return holder;
            }
        }
        holders.swap_remove(0)
    }

    /// Returns what is known of a mount whose server is away.
    fn status_without(&self, tree: &ServedTree) -> ControlResponse {
        ControlResponse::Status(Box::new(MountStatus {
            server: Some(tree.name.clone()),
            mounted_on: self.directory.display().to_string(),
            process: std::process::id(),
            unacknowledged_bytes: tree.files.counts().unacknowledged,
            stopped: Some("the server is away".to_owned()),
            ..MountStatus::default()
        }))
    }

    /// Writes the lines of a server's response, as this mount is, but the last if it was done.
    fn pass_back(
        &self,
        tree: &ServedTree,
        lines: &[u8],
        mut out: &UnixStream,
    ) -> io::Result<RelayEnd> {
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let mut response: ControlResponse = serde_json::from_slice(line)?;
            match &mut response {
                ControlResponse::Status(status) => {
                    status.mounted_on = self.directory.display().to_string();
                    status.process = std::process::id();
                    status.server = Some(tree.name.clone());
                    status.unacknowledged_bytes = tree.files.counts().unacknowledged;
                }
                ControlResponse::File(file) => {
                    if let Some(below) = file.path.0.strip_prefix(&self.tree) {
                        file.path.0 = below.to_owned();
                    }
                }
                ControlResponse::Done => return Ok(RelayEnd::Done),
                ControlResponse::Refused { .. } => {
                    write_line(&mut out, &response)?;
                    return Ok(RelayEnd::Refused);
                }
                ControlResponse::Notice { .. } => {}
            }
            write_line(&mut out, &response)?;
        }
        Err(io::Error::other("the server ended its answer too early; repeat the command"))
    }
}

/// How a server's response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RelayEnd {
    Done,
    Refused,
}

/// Asks a server when it has all bytes that were written before; returns the lines of its response.
fn ask(tree: &Arc<ServedTree>, request: &ControlRequest) -> io::Result<Vec<u8>> {
    let mut passed = Vec::new();
    write_line(&mut passed, request)?;
    let passed = String::from_utf8_lossy(&passed).into_owned();
    let (sender, receiver) = mpsc::channel();
    let files = Arc::clone(&tree.files);
    tree.files.after_all_writes(Box::new(move || {
        let answer = Box::new(move |found| {
            let _ = sender.send(found);
        });
        files.control(passed, answer);
    }));
    let found: Result<(FileResponse, Vec<u8>), Errno> = receiver.recv().unwrap_or(Err(Errno::IO));
    match found.and_then(|(response, lines)| response.outcome().map(|_| lines)) {
        Ok(lines) => Ok(lines),
        Err(Errno::SHUTDOWN) => Err(io::Error::other("the mount ended before the server answered")),
        Err(why) => {
            Err(io::Error::other(format!("the server {} does not answer: {why}", tree.name)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remove_left_journals__empty_ones_of_processes_that_are_gone() {
        let directory = std::env::temp_dir().join(format!("clearway-left-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("made");
        // No process has a number above 2^22 (proc(5)).
        let own = format!("mount-{}.log", std::process::id());
        for (name, text) in [
            ("mount-4194305.log", ""),
            ("mount-4194306.log", "said"),
            (&own, ""),
            ("notes.log", ""),
        ] {
            fs::write(directory.join(name), text).expect("written");
        }
        remove_left_journals(&directory);
        let is_there = |name: &str| directory.join(name).exists();
        assert!(!is_there("mount-4194305.log") && is_there("mount-4194306.log"));
        assert!(is_there(&own) && is_there("notes.log"));
        fs::remove_dir_all(directory).expect("removed");
    }
}
