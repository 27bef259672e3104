//! A control socket: takes connections, each on a thread of its own for as long as its request lasts.
//!
//! # Invariants
//! I1. Only root and the user of this process are answered.
//! I2. There are at most [`CONNECTIONS_MAX`] requests at a time; one more is closed without an answer.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::FsError;
use crate::control::SocketPath;

/// Requests at a time.
const CONNECTIONS_MAX: usize = 64;

/// Counts requests that are answered.
#[derive(Clone, Default)]
pub(crate) struct RequestSlots(Arc<AtomicUsize>);

/// The place of a request, until it is dropped.
pub(crate) struct RequestSlot(Arc<AtomicUsize>);

impl RequestSlots {
    /// Returns a place; none when all are taken.
    pub(crate) fn enter(&self) -> Option<RequestSlot> {
        let place = RequestSlot(Arc::clone(&self.0));
        (self.0.fetch_add(1, Ordering::AcqRel) < CONNECTIONS_MAX).then_some(place)
    }
}

impl Drop for RequestSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The socket, until it is dropped. A client that waits then learns it by the end of its connection.
pub(crate) struct ControlSocket {
    path: PathBuf,
    is_closed: Arc<AtomicBool>,
}

impl ControlSocket {
    /// Opens a socket, in place of one that a killed process left, and gives its connections to
    /// `serve`.
    ///
    /// # Errors
    /// [`FsError::Place`]; the system has no room for a thread.
    pub(crate) fn open(
        path: PathBuf,
        places: RequestSlots,
        serve: impl Fn(&UnixStream) -> io::Result<()> + Send + Sync + 'static,
    ) -> Result<Self, FsError> {
        let listener = bind(&path).map_err(FsError::at("cannot make the control socket", &path))?;
        let is_closed = Arc::new(AtomicBool::new(false));
        let socket = Self { path, is_closed: Arc::clone(&is_closed) };
        let thread = std::thread::Builder::new().name("control".into());
        let started =
            thread.spawn(move || listen(&listener, &places, &is_closed, &Arc::new(serve)));
        started.map_err(FsError::system("start a thread"))?;
        Ok(socket)
    }

    /// Returns where the socket is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::Release);
        // Wakes the thread that listens.
        let _ = SocketPath::open(&self.path).and_then(|socket| UnixStream::connect(socket.path()));
        let _ = fs::remove_file(&self.path);
    }
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
        _ => {}
    }
    let listener = UnixListener::bind(SocketPath::open(path)?.path())?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

fn listen(
    listener: &UnixListener,
    places: &RequestSlots,
    is_closed: &AtomicBool,
    serve: &Arc<impl Fn(&UnixStream) -> io::Result<()> + Send + Sync + 'static>,
) {
    for stream in listener.incoming() {
        if is_closed.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = stream else { continue };
        let Some(place) = places.enter().filter(|_| is_allowed(&stream)) else { continue };
        let serve = Arc::clone(serve);
        let thread = std::thread::Builder::new().name("control-request".into());
        // Without a thread, the connection is closed without an answer.
        let _ = thread.spawn(move || {
            // A client that went away needs no answer.
            let _ = serve(&stream);
            drop(place);
        });
    }
}

/// Returns whether the other end is root or the user of this process.
fn is_allowed(stream: &UnixStream) -> bool {
    rustix::net::sockopt::socket_peercred(stream)
        .is_ok_and(|peer| peer.uid.is_root() || peer.uid == rustix::process::geteuid())
}
