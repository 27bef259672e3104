//! A control socket: takes connections, each on a thread of its own for as long as its request lasts.
//!
//! # Invariants
//! I1. Only root and the user of this process are answered.
//! I2. There are at most [`CONNECTIONS_MAX`] requests at a time; one more is refused.
//! I3. At most as many connections wait for their request: one more ends the wait of the oldest, so
//!     that connections that send nothing keep nobody out.

use std::collections::VecDeque;
use std::fs::{self, Permissions};
use std::io;
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::FsError;
use crate::control::SocketPath;

/// Requests at a time, and connections that wait for theirs.
const CONNECTIONS_MAX: usize = 64;
/// How long a client may be silent before its request is there.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Why a request is not answered that finds no place.
pub(crate) const NO_PLACE: &str = "as many requests as there can be are answered; repeat it";

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

/// Connections that wait for their request, the oldest first.
#[derive(Clone, Default)]
struct WaitingConnections(Arc<Mutex<VecDeque<Arc<UnixStream>>>>);

impl WaitingConnections {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<UnixStream>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, stream: &Arc<UnixStream>) {
        let mut waiting = self.lock();
        if waiting.len() >= CONNECTIONS_MAX
            && let Some(oldest) = waiting.pop_front()
        {
            // A request that is there already can still be read.
            let _ = oldest.shutdown(Shutdown::Read);
        }
        waiting.push_back(Arc::clone(stream));
    }

    fn remove(&self, stream: &Arc<UnixStream>) {
        self.lock().retain(|other| !Arc::ptr_eq(other, stream));
    }
}

/// A connection of a client.
pub(crate) struct ControlConnection {
    stream: Arc<UnixStream>,
    waiting: WaitingConnections,
    places: RequestSlots,
}

impl ControlConnection {
    /// Returns the stream; a read of it ends when nothing comes for some seconds.
    pub(crate) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Begins to answer the request, which has been read; none when all places are taken.
    pub(crate) fn begin(&self) -> Option<RequestSlot> {
        self.waiting.remove(&self.stream);
        self.places.enter()
    }
}

impl Drop for ControlConnection {
    fn drop(&mut self) {
        self.waiting.remove(&self.stream);
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
        serve: impl Fn(&ControlConnection) -> io::Result<()> + Send + Sync + 'static,
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
    serve: &Arc<impl Fn(&ControlConnection) -> io::Result<()> + Send + Sync + 'static>,
) {
    let waiting = WaitingConnections::default();
    for stream in listener.incoming() {
        if is_closed.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = stream else { continue };
        if !is_allowed(&stream) || stream.set_read_timeout(Some(REQUEST_TIMEOUT)).is_err() {
            continue;
        }
        let stream = Arc::new(stream);
        waiting.push(&stream);
        let (waiting, places) = (waiting.clone(), places.clone());
        let connection = ControlConnection { stream, waiting, places };
        let serve = Arc::clone(serve);
        let thread = std::thread::Builder::new().name("control-request".into());
        // Without a thread, the connection is closed without an answer.
        let _ = thread.spawn(move || {
            // A client that went away needs no answer.
            let _ = serve(&connection);
        });
    }
}

/// Returns whether the other end is root or the user of this process.
fn is_allowed(stream: &UnixStream) -> bool {
    rustix::net::sockopt::socket_peercred(stream)
        .is_ok_and(|peer| peer.uid.is_root() || peer.uid == rustix::process::geteuid())
}

#[cfg(test)]
mod tests {
    //! Requests are answered while other connections say nothing.

    use std::io::{BufRead, BufReader, Read, Write};

    use super::*;

    /// Answers each line with itself.
    fn echo(connection: &ControlConnection) -> io::Result<()> {
        let (mut line, mut out) = (String::new(), connection.stream());
        if BufReader::new(connection.stream()).read_line(&mut line)? == 0 {
            return Ok(());
        }
        let Some(_place) = connection.begin() else { return out.write_all(NO_PLACE.as_bytes()) };
        out.write_all(line.as_bytes())
    }

    #[test]
    fn listen__connections_that_send_nothing_keep_nobody_out() {
        let directory = std::env::temp_dir().join(format!("clearway-idle-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let path = directory.join("control");
        let socket =
            ControlSocket::open(path.clone(), RequestSlots::default(), echo).expect("a socket");
        let connect = || UnixStream::connect(&path).expect("connected");
        let mut idle: Vec<UnixStream> = (0..3 * CONNECTIONS_MAX).map(|_| connect()).collect();
        for number in 0..3 {
            let (mut stream, mut said) = (connect(), String::new());
            writeln!(stream, "status {number}").expect("written");
            stream.read_to_string(&mut said).expect("an answer");
            assert_eq!(said, format!("status {number}\n"));
        }
        // The oldest hears at once that nobody waits for it.
        let mut said = String::new();
        assert_eq!(idle[0].read_to_string(&mut said).expect("the end"), 0);
        // The latest can still ask.
        let mut last = idle.pop().expect("a connection");
        writeln!(last, "late").expect("written");
        last.read_to_string(&mut said).expect("an answer");
        assert!(said.ends_with("late\n"), "{said}");
        drop(socket);
        fs::remove_dir_all(&directory).expect("removed");
    }
}
