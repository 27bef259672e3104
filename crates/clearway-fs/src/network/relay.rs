//! The control socket of a mount whose log is at a server: passes requests on.
//!
//! # Invariants
//! I1. The server is asked when it has all bytes that were written before.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use rustix::io::Errno;

use super::client::RemoteFiles;
use super::request::FileResponse;
use crate::FsError;
use crate::control::{ControlRequest, ControlResponse, write_line};
use crate::control_socket::{ControlConnection, ControlSocket, NO_PLACE, RequestSlots};

/// Bytes of the longest request.
const LINE_MAX: u64 = 60 << 10;

/// The socket, until it is dropped.
pub(super) struct ControlRelay(ControlSocket);

struct RelayShared {
    files: Arc<RemoteFiles>,
    /// The mount point, and what is mounted there.
    directory: PathBuf,
    server: String,
    /// The path of the mounted directory in the server's tree, with a slash behind it unless it is
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

impl ControlRelay {
    /// Opens a socket and answers on it.
    pub(super) fn open(
        files: &Arc<RemoteFiles>,
        directory: &Path,
        server: &str,
        tree: &str,
    ) -> Result<Self, FsError> {
        let path = socket_directory()?.join(format!("mount-{}", std::process::id()));
        let tree = tree.trim_matches('/');
        let shared = RelayShared {
            files: Arc::clone(files),
            directory: directory.to_owned(),
            server: server.to_owned(),
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
        let Ok(mut request) = serde_json::from_str::<ControlRequest>(&line) else {
            let why = "the request cannot be read; use the same release of clearway as the mount";
            return write_line(&mut out, &ControlResponse::Refused { why: why.to_owned() });
        };
        let Some(_place) = connection.begin() else {
            return write_line(&mut out, &ControlResponse::Refused { why: NO_PLACE.to_owned() });
        };
        for path in request.paths_mut() {
            path.0 = format!("{}{}", self.tree, path.0.trim_start_matches('/'));
        }
        let mut passed = Vec::new();
        write_line(&mut passed, &request)?;
        let passed = String::from_utf8_lossy(&passed).into_owned();
        let (sender, receiver) = mpsc::channel();
        let files = Arc::clone(&self.files);
        self.files.after_all_writes(Box::new(move || {
            let answer = Box::new(move |found| {
                let _ = sender.send(found);
            });
            files.control(passed, answer);
        }));
        let found: Result<(FileResponse, Vec<u8>), Errno> =
            receiver.recv().unwrap_or(Err(Errno::IO));
        match found.and_then(|(response, lines)| response.outcome().map(|_| lines)) {
            Ok(lines) => self.pass_back(&lines, &mut out),
            Err(Errno::SHUTDOWN) => {
                let why = "the mount ended before the server answered";
                write_line(&mut out, &ControlResponse::Refused { why: why.to_owned() })
            }
            Err(why) => {
                let why = format!("the server does not answer: {why}");
                write_line(&mut out, &ControlResponse::Refused { why })
            }
        }
    }

    /// Writes the lines of a response, as this mount is.
    fn pass_back(&self, lines: &[u8], out: &mut &UnixStream) -> io::Result<()> {
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let mut response: ControlResponse = serde_json::from_slice(line)?;
            match &mut response {
                ControlResponse::Status(status) => {
                    status.mounted_on = self.directory.display().to_string();
                    status.process = std::process::id();
                    status.server = Some(self.server.clone());
                    status.unacknowledged_bytes = self.files.counts().unacknowledged;
                }
                ControlResponse::File(file) => {
                    if let Some(below) = file.path.0.strip_prefix(&self.tree) {
                        file.path.0 = below.to_owned();
                    }
                }
                _ => {}
            }
            write_line(out, &response)?;
        }
        Ok(())
    }
}
