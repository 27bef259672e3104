//! Sends requests to a mount over its control socket.
//!
//! # Model
//! A path of the user's leads to the mount that it lies on: the nearest directory above it that names a
//! control socket ([`CONTROL_XATTR`]) is the mount point, and what is behind it the path in the mount.

use std::io::{self, BufReader};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::FsError;
use crate::control::{
    CONTROL_XATTR, ControlPath, ControlRequest, ControlResponse, SocketPath, read_line, write_line,
};
use crate::log_directory::CONTROL_NAME;

/// Bytes of the longest path (`PATH_MAX`).
const SOCKET_PATH_MAX: usize = 4096;

/// A mount, by its control socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlClient {
    /// The mount point.
    pub mounted_on: PathBuf,
    socket: PathBuf,
}

impl ControlClient {
    /// Finds the mount that `path` lies on, and the path there.
    ///
    /// # Errors
    /// [`FsError::Place`] when there is no such path, [`FsError::NotMounted`].
    pub fn find(path: &Path) -> Result<(Self, ControlPath), FsError> {
        let wrong = FsError::at("cannot find", path);
        let full = match path.file_name() {
            // The last name may be that of a link, which is meant itself.
            Some(name) => {
                let above = path.parent().filter(|above| !above.as_os_str().is_empty());
                let above =
                    std::fs::canonicalize(above.unwrap_or(Path::new("."))).map_err(wrong)?;
                above.join(name)
            }
            None => std::fs::canonicalize(path).map_err(wrong)?,
        };
        std::fs::symlink_metadata(&full).map_err(FsError::at("cannot find", path))?;
        for above in full.ancestors() {
            if let Some(socket) = socket_of(above) {
                let inside = full.strip_prefix(above).unwrap_or(Path::new(""));
                let inside = ControlPath::from_bytes(inside.as_os_str().as_bytes());
                return Ok((Self { mounted_on: above.to_owned(), socket }, inside));
            }
        }
        Err(FsError::NotMounted { path: path.to_owned() })
    }

    /// Returns the client of the process that has the log in a directory.
    pub fn of_log(log: &Path) -> Self {
        Self { mounted_on: log.to_owned(), socket: log.join(CONTROL_NAME) }
    }

    /// Sends a request, and gives each response but the last to `take`.
    ///
    /// # Errors
    /// [`FsError::Control`], [`FsError::Refused`].
    pub fn ask(
        &self,
        request: &ControlRequest,
        mut take: impl FnMut(ControlResponse),
    ) -> Result<(), FsError> {
        let connected =
            SocketPath::open(&self.socket).and_then(|socket| UnixStream::connect(socket.path()));
        let mut stream = connected.map_err(FsError::Control)?;
        write_line(&mut stream, request).map_err(FsError::Control)?;
        let mut responses = BufReader::new(stream);
        loop {
            match read_line(&mut responses).map_err(FsError::Control)? {
                Some(ControlResponse::Done) => return Ok(()),
                Some(ControlResponse::Refused { why }) => return Err(FsError::Refused(why)),
                Some(response) => take(response),
                None => {
                    let why = "the mount ended meanwhile";
                    return Err(FsError::Control(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        why,
                    )));
                }
            }
        }
    }
}

/// Returns the control socket that a directory names.
fn socket_of(directory: &Path) -> Option<PathBuf> {
    let mut value = vec![0; SOCKET_PATH_MAX];
    let length = rustix::fs::getxattr(directory, CONTROL_XATTR, &mut value).ok()?;
    value.truncate(length);
    (!value.is_empty()).then(|| std::ffi::OsString::from_vec(value).into())
}
