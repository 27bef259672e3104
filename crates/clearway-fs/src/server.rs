//! Answers requests on the control socket of a mount.
//!
//! # Model
//! The socket is a file of the log's directory: a mount that was killed leaves it there, and the next
//! one of the log replaces it. Each connection has a thread for as long as its one request lasts.
//!
//! # Invariants
//! I1. Only root and the user of the mount are answered.
//! I2. No thread of a connection holds the lock of the engine while it reads or writes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufReader, BufWriter, Write};
use std::ops::Bound;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use clearway_proto::base::Class;
use clearway_proto::staging::{DrainWish, EntryName, InodeId, InodeKind, Tree};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::FsError;
use crate::classes::wish;
use crate::control::{
    ControlPath, ControlRequest, ControlResponse, DrainState, FileKindName, FileStatus, LeftOut,
    MountStatus, PATHS_MAX, SafetyLevel, UserStatus, read_line, write_line,
};
use crate::control_socket::{ControlConnection, ControlSocket, NO_PLACE, RequestSlots};
use crate::engine::{ChangeSource, Core, CoreCounts, DrainCondition, Engine};
use crate::log_directory::CONTROL_NAME;
use crate::mount::MountNames;
use crate::names::NodeType;
use crate::network::MountPacing;
use crate::network::User;
use crate::stored;

/// Entries that are looked at under the lock of the engine: less than a millisecond.
const ENTRIES_AT_ONCE: usize = 512;

/// The socket, until it is closed.
pub(crate) struct ControlServer {
    shared: Arc<ServerShared>,
    socket: ControlSocket,
}

/// Reads the status of a mount from another thread.
#[derive(Clone)]
pub struct StatusReader(Arc<ServerShared>);

impl StatusReader {
    /// Returns how the mount is: what `stage status` shows.
    pub fn status(&self) -> MountStatus {
        self.0.status()
    }
}

struct ServerShared {
    engine: Arc<Engine>,
    names: MountNames,
    pacing: Option<Arc<MountPacing>>,
    places: RequestSlots,
}

/// Takes the lines of a response, once.
type LinesAnswer = Mutex<Option<Box<dyn FnOnce(String) + Send>>>;

/// Answers requests of clients on the network.
#[derive(Clone)]
pub(crate) struct ControlRequests(Arc<ServerShared>);

impl ControlRequests {
    /// Answers a line on a thread of its own; `respond` gets all lines of the response.
    pub(crate) fn answer(
        &self,
        line: String,
        user: &Arc<User>,
        respond: impl FnOnce(String) + Send + 'static,
    ) {
        let (shared, user) = (Arc::clone(&self.0), Arc::clone(user));
        let respond: Box<dyn FnOnce(String) + Send> = Box::new(respond);
        let respond = Arc::new(Mutex::new(Some(respond)));
        let send = |respond: &LinesAnswer, lines: Vec<u8>| {
            let respond = respond.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(respond) = respond {
                respond(String::from_utf8_lossy(&lines).into_owned());
            }
        };
        let refused = |why: &str| {
            let mut lines = Vec::new();
            let _ = refuse(&mut lines, why);
            lines
        };
        let Some(place) = shared.places.enter() else {
            return send(&respond, refused(NO_PLACE));
        };
        let answer = Arc::clone(&respond);
        let thread = std::thread::Builder::new().name("control-request".into());
        let started = thread.spawn(move || {
            let mut lines = Vec::new();
            if let Ok(Some(request)) = read_request(line.as_bytes(), &mut lines) {
                let _ = respond_to(&request, None, Some(&user), &shared, &mut lines);
            }
            drop(place);
            send(&answer, lines);
        });
        if started.is_err() {
            send(&respond, refused("the server has no room for a thread; repeat it"));
        }
    }
}

impl ControlServer {
    /// Opens a socket and answers on it.
    ///
    /// # Errors
    /// [`FsError::Place`].
    pub(crate) fn open(
        engine: &Arc<Engine>,
        names: MountNames,
        pacing: Option<Arc<MountPacing>>,
    ) -> Result<Self, FsError> {
        let path = names.log.join(CONTROL_NAME);
        let places = RequestSlots::default();
        let engine = Arc::clone(engine);
        let shared = Arc::new(ServerShared { engine, names, pacing, places: places.clone() });
        let served = Arc::clone(&shared);
        let socket =
            ControlSocket::open(path, places, move |connection| serve(connection, &served))?;
        Ok(Self { shared, socket })
    }

    /// Returns where the socket is.
    pub(crate) fn path(&self) -> &Path {
        self.socket.path()
    }

    /// Returns what reads the status of the mount.
    pub(crate) fn status_reader(&self) -> StatusReader {
        StatusReader(Arc::clone(&self.shared))
    }

    /// Returns what answers requests of clients on the network.
    pub(crate) fn requests(&self) -> ControlRequests {
        ControlRequests(Arc::clone(&self.shared))
    }

    /// Closes the socket. A client that waits learns it by the end of its connection.
    pub(crate) fn close(self) {}
}

fn serve(connection: &ControlConnection, shared: &ServerShared) -> io::Result<()> {
    let stream = connection.stream();
    let mut out = BufWriter::new(stream);
    let Some(request) = read_request(stream, &mut out)? else { return Ok(()) };
    let Some(_place) = connection.begin() else { return refuse(&mut out, NO_PLACE) };
    respond_to(&request, Some(stream), None, shared, &mut out)
}

fn refuse(out: &mut dyn Write, why: &str) -> io::Result<()> {
    let mut out = out;
    write_line(&mut out, &ControlResponse::Refused { why: why.to_owned() })?;
    out.flush()
}

/// Reads a request; one that cannot be read is refused.
fn read_request(input: impl io::Read, out: &mut dyn Write) -> io::Result<Option<ControlRequest>> {
    match read_line(&mut BufReader::new(input)) {
        Err(why) if why.kind() == io::ErrorKind::InvalidData => {
            let why = format!(
                "the request cannot be read: {why}; use the same release of clearway as the mount"
            );
            refuse(out, &why).map(|()| None)
        }
        request => request,
    }
}

/// Answers a request: of a `user` on the network, or of one who may do all.
fn respond_to(
    request: &ControlRequest,
    stream: Option<&UnixStream>,
    user: Option<&User>,
    shared: &ServerShared,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut out = out;
    let end = match shared.answer(request, stream, user, out)? {
        Ok(()) => ControlResponse::Done,
        Err(why) => ControlResponse::Refused { why },
    };
    write_line(&mut out, &end)?;
    out.flush()
}

impl ServerShared {
    /// Does what is asked; the outer error is the stream's, the inner one for the client.
    fn answer(
        &self,
        request: &ControlRequest,
        stream: Option<&UnixStream>,
        user: Option<&User>,
        out: &mut dyn Write,
    ) -> io::Result<Result<(), String>> {
        if request.paths().len() > PATHS_MAX {
            return Ok(Err(format!("a request names at most {PATHS_MAX} paths")));
        }
        let mut found = Vec::new();
        for path in request.paths() {
            match self.engine.look(|core| find(core, path)) {
                Ok(path) if self.engine.look(|core| may_ask(core, path.inode, user)) => {
                    found.push(path);
                }
                Ok(_) => return Ok(Err(format!("{}: only its owner may ask for that", path.0))),
                Err(why) => return Ok(Err(format!("{}: {why}", path.0))),
            }
        }
        let mut out = out;
        match request {
            ControlRequest::Status => {
                write_line(&mut out, &ControlResponse::Status(Box::new(self.status())))?;
                Ok(Ok(()))
            }
            ControlRequest::Abandon => Ok(Err(
                "the log of this mount is on this machine, so there is no server to give up; unmount without --force".to_owned(),
            )),
            ControlRequest::Ls { .. } | ControlRequest::Stat { .. } => {
                let lists = matches!(request, ControlRequest::Ls { .. });
                for path in found {
                    let files = self.engine.look(|core| files(core, &path, lists));
                    for file in files {
                        write_line(&mut out, &ControlResponse::File(file))?;
                    }
                }
                Ok(Ok(()))
            }
            ControlRequest::Wait { until: SafetyLevel::Logged, .. } => Ok(self.wait(&found)),
            ControlRequest::SetClass { class, .. } => Ok(self.set_class(&found, *class)),
            ControlRequest::Wait { until: SafetyLevel::Stored, .. } => {
                let inodes = stored::all_below(&self.engine, &roots(&found));
                let listener = &mut |what: Option<&str>| listen_to(stream, out, what);
                Ok(stored::wait(&self.engine, inodes, listener))
            }
            ControlRequest::Publish { .. } => {
                let inodes = stored::all_below(&self.engine, &roots(&found));
                let listener = &mut |what: Option<&str>| listen_to(stream, out, what);
                Ok(stored::publish(&self.engine, inodes, listener))
            }
            ControlRequest::Drain { .. } => {
                let inodes = stored::all_below(&self.engine, &roots(&found));
                Ok(stored::promote(&self.engine, inodes))
            }
            ControlRequest::Cancel { .. } => {
                let inodes = stored::all_below(&self.engine, &roots(&found));
                Ok(stored::cancel(&self.engine, inodes).and_then(|()| self.wait(&found)))
            }
        }
    }

    fn status(&self) -> MountStatus {
        let (class_bytes, class_files) = self.by_class();
        let read_bytes = self.engine.bytes_read.load(Ordering::Relaxed);
        self.engine.look(|core| {
            let (space, moved_bytes) = (core.space(), core.moved_bytes());
            let (unlogged_bytes, cached_bytes) = core.memory_bytes();
            let (counts, stalled) = core.counts();
            let CoreCounts { changes, written_bytes, stalls, syncs } = counts.clone();
            let (condition, drained, draining) = core.drain_status();
            MountStatus {
                log: self.names.log.display().to_string(),
                store: self.names.store.display().to_string(),
                mounted_on: self.names.directory.display().to_string(),
                process: std::process::id(),
                class: core.class_of(InodeId::ROOT).name().to_owned(),
                log_bytes: space.total.0,
                log_bytes_free: space.free.0,
                segments: space.segments,
                segments_free: space.segments_free,
                segments_retired: space.segments_retired,
                snapshot_failed: space.snapshot_failed.map(|fault| fault.to_string()),
                inodes: core.tree().inode_usage().total(),
                inodes_max: self.engine.inodes_max,
                unlogged_bytes,
                cached_bytes,
                class_bytes,
                class_files,
                users: users_of(core.tree()),
                lag: core.tree().store_lag() as u64,
                drain: state_of(condition),
                draining,
                drained_bytes: drained.bytes,
                drained_files: drained.files,
                drain_failures: drained.failures,
                late_files: core.late_files(),
                store_process: core.store_process(),
                written_bytes,
                read_bytes,
                moved_bytes,
                changes,
                stalls,
                stalled,
                syncs,
                stopped: core.stopped().map(|why| why.to_string()),
                server: None,
                unacknowledged_bytes: 0,
                pace: self.pacing.as_ref().map(|pacing| pacing.status()),
                held: core.drain_held(),
            }
        })
    }

    /// Returns the bytes of files in the log by class, and the files that the store lacks. Requests
    /// come in between, so what changes meanwhile may be counted as it was or as it is.
    fn by_class(&self) -> (BTreeMap<Class, u64>, BTreeMap<Class, u64>) {
        let (mut bytes, mut files) = (BTreeMap::new(), BTreeMap::new());
        let mut seen = BTreeSet::new();
        let is_directory = |kind: &InodeKind| matches!(kind, InodeKind::Directory { .. });
        let directories: Vec<InodeId> = self.engine.look(|core| {
            let inodes = core.tree().inodes();
            inodes.filter(|(_, inode)| is_directory(&inode.kind)).map(|(id, _)| id).collect()
        });
        for directory in directories {
            let mut last = None;
            loop {
                let count = self.engine.look(|core| {
                    let some = entries_after(core, directory, last.take(), ENTRIES_AT_ONCE);
                    for (name, inode) in &some {
                        let in_log = core.log_bytes(*inode);
                        let links = core.tree().inode(*inode).map_or(0, |inode| inode.links);
                        let lacks = core
                            .tree()
                            .content(*inode)
                            .is_some_and(|content| content.drained() < content.version());
                        // A file with several names is one file.
                        if (lacks || in_log > 0) && (links < 2 || seen.insert(*inode)) {
                            let class = core.class_at(*inode, (directory, name.clone()));
                            *bytes.entry(class).or_insert(0) += in_log;
                            *files.entry(class).or_insert(0) += u64::from(lacks);
                        }
                    }
                    let count = some.len();
                    last = some.into_iter().next_back().map(|(name, _)| name);
                    count
                });
                if count < ENTRIES_AT_ONCE {
                    break;
                }
            }
        }
        (bytes, files)
    }

    /// Waits until what is below the paths is durable in the log: all of the log, because it is one
    /// order.
    fn wait(&self, found: &[FoundPath]) -> Result<(), String> {
        let (sender, receiver) = mpsc::channel();
        self.engine.wait(|core| {
            for FoundPath { inode, .. } in found {
                let sender = sender.clone();
                let answer = Box::new(move |done| {
                    let _ = sender.send(done);
                });
                match core.node_type(*inode) {
                    Some(NodeType::Directory) => core.wait_for_all(answer),
                    _ => core.wait_for(*inode, answer),
                }
            }
        });
        drop(sender);
        for done in receiver {
            done.map_err(|why| format!("the log could not make everything durable: {why}"))?;
        }
        Ok(())
    }

    fn set_class(&self, found: &[FoundPath], class: Option<Class>) -> Result<(), String> {
        let (sender, receiver) = mpsc::channel();
        for FoundPath { inode, .. } in found {
            let (inode, sender) = (*inode, sender.clone());
            let answer = Box::new(move |done| {
                let _ = sender.send(done);
            });
            self.engine
                .change(ChangeSource::Operator, answer, move |core| core.set_class(inode, class));
        }
        drop(sender);
        let mut outcomes = found.iter().zip(receiver);
        outcomes.try_for_each(|(FoundPath { path, .. }, done): (_, Result<(), Errno>)| {
            done.map_err(|why| format!("{}: {why}", path.0))
        })?;
        self.wait(found)
    }
}

/// Tells a client that waits; whether it is still there.
fn listen_to(stream: Option<&UnixStream>, out: &mut dyn Write, what: Option<&str>) -> bool {
    if let Some(what) = what {
        let notice = ControlResponse::Notice { what: what.to_owned() };
        if write_line(&mut &mut *out, &notice).and_then(|()| out.flush()).is_err() {
            return false;
        }
    }
    // A client on the network that is gone does not read what it is sent.
    let Some(stream) = stream else { return true };
    let mut byte = [0; 1];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    // A client sends one line and then nothing; its end is an end of the stream.
    !matches!(recv(stream, &mut byte, flags), Ok((_, 0)) | Err(Errno::CONNRESET))
}

fn roots(found: &[FoundPath]) -> Vec<InodeId> {
    found.iter().map(|path| path.inode).collect()
}

/// Returns what each user has in the log.
fn users_of(tree: &Tree) -> Vec<UserStatus> {
    let owners = tree.log_usage().owners();
    owners.map(|(uid, log_bytes)| UserStatus { uid, log_bytes }).collect()
}

const fn state_of(condition: DrainCondition) -> DrainState {
    match condition {
        DrainCondition::Idle => DrainState::Idle,
        DrainCondition::Working => DrainState::Working,
        DrainCondition::Failing => DrainState::Failing,
        DrainCondition::Parked => DrainState::Parked,
    }
}

/// A path of a request, and what is there.
struct FoundPath {
    path: ControlPath,
    inode: InodeId,
    /// The directory and the name; none for the root.
    home: Option<(InodeId, EntryName)>,
}

/// Returns whether a user may ask for something about an inode.
fn may_ask(core: &mut Core, inode: InodeId, user: Option<&User>) -> bool {
    match user {
        Some(User::Person { uid, .. }) => {
            core.attributes(inode).is_ok_and(|found| found.uid == *uid)
        }
        Some(User::Host) | None => true,
    }
}

/// Finds what a path names.
fn find(core: &mut Core, path: &ControlPath) -> Result<FoundPath, String> {
    let bytes = path.to_bytes().ok_or("a % of a path has two hexadecimal digits behind it")?;
    let (mut inode, mut home) = (InodeId::ROOT, None);
    for name in bytes.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        let name = EntryName::new(name).map_err(|why| why.to_string())?;
        let entry = core.tree().lookup(inode, &name).map_err(|why| why.to_string())?;
        home = Some((inode, name));
        inode = entry;
    }
    Ok(FoundPath { path: path.clone(), inode, home })
}

/// Returns the entries of a directory; none of what is no directory.
fn entries(core: &mut Core, directory: InodeId) -> Vec<(EntryName, InodeId)> {
    entries_after(core, directory, None, usize::MAX)
}

/// Returns entries of a directory behind `last`, at most `most`.
fn entries_after(
    core: &mut Core,
    directory: InodeId,
    last: Option<EntryName>,
    most: usize,
) -> Vec<(EntryName, InodeId)> {
    match core.tree().inode(directory).map(|inode| &inode.kind) {
        Some(InodeKind::Directory { entries, .. }) => {
            let behind = last.map_or(Bound::Unbounded, Bound::Excluded);
            let some = entries.range((behind, Bound::Unbounded)).take(most);
            some.map(|(name, inode)| (name.clone(), *inode)).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the status of a file, or of the entries of a directory if that `lists`.
fn files(core: &mut Core, found: &FoundPath, lists: bool) -> Vec<FileStatus> {
    let FoundPath { path, inode, home } = found;
    if !lists || core.node_type(*inode) != Some(NodeType::Directory) {
        return file(core, path.clone(), *inode, home.clone()).into_iter().collect();
    }
    let below = |name: &EntryName| {
        let name = ControlPath::from_bytes(name.bytes()).0;
        let up = path.0.trim_end_matches('/');
        ControlPath(if up.is_empty() { name } else { format!("{up}/{name}") })
    };
    let listed = entries(core, *inode);
    let shown = listed.into_iter().filter_map(|(name, entry)| {
        let path = below(&name);
        file(core, path, entry, Some((*inode, name)))
    });
    shown.collect()
}

fn file(
    core: &mut Core,
    path: ControlPath,
    inode: InodeId,
    home: Option<(InodeId, EntryName)>,
) -> Option<FileStatus> {
    let (what, size, version) = match &core.tree().inode(inode)?.kind {
        InodeKind::File(content) => (FileKindName::File, content.size(), content.version()),
        InodeKind::Directory { .. } => (FileKindName::Directory, 0, 0),
        InodeKind::Symlink(_) => (FileKindName::Symlink, 0, 0),
        InodeKind::Special(_) => (FileKindName::Special, 0, 0),
    };
    let class = match home {
        Some(home) => core.class_at(inode, home),
        None => core.class_of(inode),
    };
    let log_bytes = core.log_bytes(inode);
    let is_stored = core.query_drain(|drain, tree| drain.has(tree, inode)).unwrap_or(false);
    let is_hidden =
        core.tree().content(inode).is_some() && core.tree().stored_places(inode).next().is_none();
    let left_out = match wish(core.tree(), inode) {
        DrainWish::Nothing if !is_stored => Some(LeftOut::Cancelled),
        DrainWish::Unseen if is_hidden => Some(LeftOut::Unpublished),
        _ => None,
    };
    Some(FileStatus {
        path,
        what,
        size,
        class,
        version,
        log_bytes,
        is_logged: core.is_logged(inode),
        is_stored,
        left_out,
    })
}
