//! A mount's end: calls that are not answered, and bytes that the server does not have yet.
//!
//! # Model
//! A write is answered when its bytes are in memory here. They stay until the server answers that
//! they are in its log. What needs the server to know of writes of a file waits for them: a sync, a
//! close, a rename, a read of the same bytes, a change of the size.
//!
//! While more bytes are unanswered than memory is allowed for, writes are answered late; no thread
//! of the kernel's requests is blocked.
//!
//! # Invariants
//! I1. The bytes of an answered write stay in memory until the server has them in its log, or until
//!     the file has failed.
//! I2. A file that failed fails each write, sync and close until all who have it open closed it.
//! I3. Answers are sent without the lock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clearway_proto::base::{Bytes, Class, xxh3};
use clearway_proto::calls::{DATA_MAX, HEADER_MAX};
use clearway_proto::staging::{InodeId, WallNs};
use clearway_runtime::wake_signal::WakeSignal;
use rustix::io::Errno;

use super::request::{
    FileRequest, FileResponse, RequestCaller, RespondedAttributes, RespondedOpening, encode,
};
use crate::FsError;
use crate::arena::{Arena, Loan};
use crate::backing::ReadAnswer;
use crate::classes::CLASS_XATTR;
use crate::engine::Reporter;
use crate::handles::OpenUsage;
use crate::names::Attributes;

/// Sends the answer of a request: the response and its data.
pub(crate) type RemoteAnswer = Box<dyn FnOnce(Result<(FileResponse, Vec<u8>), Errno>) + Send>;
/// Sends the outcome of a write or a sync.
pub(crate) type DoneAnswer = Box<dyn FnOnce(Result<(), Errno>) + Send>;
/// Something to do without the lock.
type Action = Box<dyn FnOnce() + Send>;

/// Files that are named when their bytes are lost, and how long the server may take for a name.
const NAMED_MAX: usize = 8;
const NAMES_WAIT: Duration = Duration::from_secs(1);
/// Closed files whose version is known: two megabytes of memory.
const VERSIONS_MAX: usize = 1 << 16;

/// A call that is not answered.
pub(super) struct OpenCall {
    pub(super) class: Class,
    pub(super) header: Arc<Loan>,
    pub(super) data: Option<Arc<Loan>>,
    pub(super) response_max: u32,
    origin: CallOrigin,
    answer: RemoteAnswer,
}

/// What a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallOrigin {
    /// A request of the kernel: the mount ends when the server has answered.
    File,
    /// A question that waits for no server: it fails with [`Errno::NOTCONN`] while the server is away.
    Probe,
    /// A request of `clearway stage`, which may wait for as long as the store is away: the mount does
    /// not wait for it.
    Control,
}

/// A file with bytes that the server does not have, or that failed.
#[derive(Default)]
struct DirtyFile {
    /// Where its writes lie that are not answered, by their number.
    writes: BTreeMap<u64, (u64, u64)>,
    class: Option<Class>,
    /// Behind the last byte of these writes.
    end: u64,
    mtime: WallNs,
    error: Option<Errno>,
    /// What waits until all writes up to a number are answered.
    waiting: Vec<(u64, Action)>,
}

/// A file that is open.
#[derive(Clone, Copy, Debug)]
struct OpenFile {
    readers: u32,
    writers: u32,
    class: Class,
    /// The version of its bytes when it was opened last.
    version: u64,
    /// Whether all pages that the kernel has of it are those of the version, or of later ones.
    has_pages: bool,
}

#[derive(Default)]
struct ClientState {
    last_number: u64,
    calls: BTreeMap<u64, OpenCall>,
    /// Calls that the connection has not been given.
    queue: VecDeque<u64>,
    dirty: BTreeMap<InodeId, DirtyFile>,
    open: BTreeMap<InodeId, OpenFile>,
    /// Versions of files that are closed, and that the kernel may have pages of.
    versions: BTreeMap<InodeId, u64>,
    /// Bytes of writes that are not answered.
    unanswered: u64,
    /// Answers of writes that wait for memory.
    stalled: VecDeque<Action>,
    /// The connection is lost, and not made again.
    is_away: bool,
    /// The server is gone for good.
    has_failed: bool,
    is_closing: bool,
    writes_ever: u64,
    written_bytes: u64,
    read_bytes: u64,
}

/// Files of a server, as a mount sees them.
pub(crate) struct RemoteFiles {
    state: Mutex<ClientState>,
    pub(super) signal: WakeSignal,
    pub(super) arena: Arc<Arena>,
    memory: u64,
    pub(super) report: Reporter,
}

/// What is counted about a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteCounts {
    /// Bytes of writes that the server has not acknowledged.
    pub unacknowledged: u64,
    /// Calls that are not answered.
    pub calls: u64,
    /// Bytes that programs wrote.
    pub written_bytes: u64,
    /// Bytes that programs read.
    pub read_bytes: u64,
}

impl RemoteCounts {
    /// Returns the sums.
    pub(super) const fn plus(self, other: Self) -> Self {
        Self {
            unacknowledged: self.unacknowledged + other.unacknowledged,
            calls: self.calls + other.calls,
            written_bytes: self.written_bytes + other.written_bytes,
            read_bytes: self.read_bytes + other.read_bytes,
        }
    }
}

impl RemoteFiles {
    /// Creates it; up to `memory` bytes of writes wait for the server.
    pub(super) fn new(memory: u64, report: Reporter) -> Result<Arc<Self>, FsError> {
        Ok(Arc::new(Self {
            state: Mutex::default(),
            signal: WakeSignal::new().map_err(FsError::system("make an event counter"))?,
            arena: Arc::new(Arena::new(memory as usize)),
            memory,
            report,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, ClientState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what was counted.
    pub(super) fn counts(&self) -> RemoteCounts {
        let state = self.lock();
        RemoteCounts {
            unacknowledged: state.unanswered,
            calls: state.calls.len() as u64,
            written_bytes: state.written_bytes,
            read_bytes: state.read_bytes,
        }
    }

    /// Makes a call.
    pub(crate) fn request(
        &self,
        class: Class,
        request: &FileRequest,
        response_max: u32,
        answer: RemoteAnswer,
    ) {
        self.call(CallOrigin::File, class, request, None, response_max, answer);
    }

    /// Makes a call that fails with [`Errno::NOTCONN`] if the server is away, or goes away.
    pub(super) fn probe(&self, class: Class, request: &FileRequest, answer: RemoteAnswer) {
        self.call(CallOrigin::Probe, class, request, None, 0, answer);
    }

    /// Passes on what a control socket received; fails with [`Errno::SHUTDOWN`] when the mount ends
    /// before the answer.
    pub(super) fn control(&self, line: String, answer: RemoteAnswer) {
        let request = FileRequest::Control(line);
        self.call(CallOrigin::Control, Class::BestEffort, &request, None, DATA_MAX, answer);
    }

    fn call(
        &self,
        origin: CallOrigin,
        class: Class,
        request: &FileRequest,
        data: Option<Arc<Loan>>,
        response_max: u32,
        answer: RemoteAnswer,
    ) {
        let header = encode(request);
        if header.len() > HEADER_MAX as usize {
            return answer(Err(Errno::TOOBIG));
        }
        let Some(header) = self.arena.fill(&header) else { return answer(Err(Errno::NOMEM)) };
        let mut state = self.lock();
        let refusal = match origin {
            CallOrigin::Probe if state.is_away || state.has_failed => Some(Errno::NOTCONN),
            _ if state.has_failed => Some(Errno::IO),
            CallOrigin::Control if state.is_closing => Some(Errno::SHUTDOWN),
            _ => None,
        };
        if let Some(why) = refusal {
            drop(state);
            return answer(Err(why));
        }
        state.last_number += 1;
        let number = state.last_number;
        let header = Arc::new(header);
        let call = OpenCall { class, header, data, response_max, origin, answer };
        state.calls.insert(number, call);
        state.queue.push_back(number);
        drop(state);
        self.signal.raise();
    }

    /// Returns the class of an open file.
    pub(crate) fn class_of(&self, inode: InodeId) -> Class {
        self.lock().open.get(&inode).map_or(Class::BestEffort, |file| file.class)
    }

    /// Notes that a file was opened; returns whether pages that are cached are those of its bytes.
    pub(crate) fn opened(
        &self,
        inode: InodeId,
        usage: OpenUsage,
        opening: RespondedOpening,
        age: FileAge,
    ) -> CacheState {
        let mut state = self.lock();
        let is_dirty = state.dirty.contains_key(&inode);
        let version = state.versions.remove(&inode).unwrap_or(u64::MAX);
        let class = opening.class();
        let fresh = OpenFile { readers: 0, writers: 0, class, version, has_pages: true };
        let file = state.open.entry(inode).or_insert(fresh);
        match usage {
            OpenUsage::Read => file.readers += 1,
            OpenUsage::Write => file.writers += 1,
        }
        file.class = opening.class();
        let known = std::mem::replace(&mut file.version, opening.version);
        let is_same = known == opening.version || is_dirty || file.writers > 1;
        // What is written here changes pages and version, and others may write between the two.
        file.has_pages &= usage == OpenUsage::Read && (known == opening.version || !is_dirty);
        if is_same || age == FileAge::New { CacheState::Valid } else { CacheState::Stale }
    }

    /// Closes a file.
    pub(crate) fn close(self: &Arc<Self>, inode: InodeId, usage: OpenUsage) {
        let mut state = self.lock();
        if let Some(file) = state.open.get_mut(&inode) {
            match usage {
                OpenUsage::Read => file.readers = file.readers.saturating_sub(1),
                OpenUsage::Write => file.writers = file.writers.saturating_sub(1),
            }
            if file.readers + file.writers == 0 {
                let (version, has_pages) = (file.version, file.has_pages);
                state.open.remove(&inode);
                if has_pages {
                    state.versions.insert(inode, version);
                }
                if state.versions.len() > VERSIONS_MAX {
                    state.versions.pop_first();
                }
                // The next program that opens it begins anew.
                if let Some(file) = state.dirty.get_mut(&inode) {
                    file.error = None;
                }
                state.clean(inode);
            }
        }
        drop(state);
        let request = FileRequest::Close { inode: inode.0, usage };
        self.after_writes(inode, move |files| {
            files.request(Class::BestEffort, &request, 0, Box::new(|_| {}));
        });
    }

    /// Forgets the versions of closed files: a server that was killed may give a number again.
    pub(super) fn forget_versions(&self) {
        self.lock().versions.clear();
    }

    /// Returns the files that are open, for a server that does not know them.
    pub(super) fn open_files(&self) -> Vec<(u64, OpenUsage)> {
        let state = self.lock();
        let usages = |(inode, file): (&InodeId, &OpenFile)| {
            let readers = std::iter::repeat_n((inode.0, OpenUsage::Read), file.readers as usize);
            let writers = std::iter::repeat_n((inode.0, OpenUsage::Write), file.writers as usize);
            readers.chain(writers).collect::<Vec<_>>()
        };
        state.open.iter().flat_map(usages).collect()
    }

    /// Writes bytes; answers when they are in memory.
    pub(crate) fn write(
        self: &Arc<Self>,
        inode: InodeId,
        offset: u64,
        bytes: &[u8],
        drops_set_id: Option<RequestCaller>,
        answer: DoneAnswer,
    ) {
        let Some(loan) = self.arena.fill(bytes) else { return answer(Err(Errno::NOMEM)) };
        self.write_loan(inode, offset, Arc::new(loan), xxh3(bytes), drops_set_id, answer);
    }

    fn write_loan(
        self: &Arc<Self>,
        inode: InodeId,
        offset: u64,
        loan: Arc<Loan>,
        digest: u64,
        drops_set_id: Option<RequestCaller>,
        answer: DoneAnswer,
    ) {
        let length = loan.bytes().len() as u64;
        let mut state = self.lock();
        let class = state.open.get(&inode).map_or(Class::BestEffort, |file| file.class);
        let file = state.dirty.entry(inode).or_default();
        if let Some(why) = file.error {
            drop(state);
            return answer(Err(why));
        }
        if file.class.is_some_and(|before| before != class) && !file.writes.is_empty() {
            // Calls of two classes have no order.
            let files = Arc::clone(self);
            let again: Action = Box::new(move || {
                files.write_loan(inode, offset, loan, digest, drops_set_id, answer);
            });
            file.waiting.push((u64::MAX, again));
            return;
        }
        file.class = Some(class);
        file.end = file.end.max(offset + length);
        file.mtime = crate::engine::wall_now();
        state.writes_ever += 1;
        let write = state.writes_ever;
        if let Some(file) = state.dirty.get_mut(&inode) {
            file.writes.insert(write, (offset, offset + length));
        }
        state.unanswered += length;
        state.written_bytes += length;
        drop(state);
        let request = FileRequest::Write { inode: inode.0, offset, digest, drops_set_id };
        let files = Arc::clone(self);
        let returned: RemoteAnswer = Box::new(move |response| {
            let outcome = response.and_then(|(response, _)| response.outcome().map(drop));
            files.written(inode, write, length, outcome);
        });
        self.call(CallOrigin::File, class, &request, Some(loan), 0, returned);
        let mut state = self.lock();
        if state.unanswered > self.memory {
            state.stalled.push_back(Box::new(move || answer(Ok(()))));
            return;
        }
        drop(state);
        answer(Ok(()));
    }

    /// Takes the answer of a write.
    fn written(&self, inode: InodeId, write: u64, length: u64, outcome: Result<(), Errno>) {
        let mut actions: Vec<Action> = Vec::new();
        let mut state = self.lock();
        state.unanswered = state.unanswered.saturating_sub(length);
        let mut first_error = None;
        if let Some(file) = state.dirty.get_mut(&inode) {
            file.writes.remove(&write);
            if let Err(why) = outcome
                && file.error.is_none()
            {
                (file.error, first_error) = (Some(why), Some(why));
            }
            let first = file.writes.keys().next().copied();
            let is_ready = |mark: u64| first.is_none_or(|first| first > mark);
            let waiting = std::mem::take(&mut file.waiting);
            let (ready, waiting): (Vec<_>, _) =
                waiting.into_iter().partition(|(mark, _)| is_ready(*mark));
            file.waiting = waiting;
            actions.extend(ready.into_iter().map(|(_, action)| action));
        }
        state.clean(inode);
        while state.unanswered <= self.memory
            && let Some(answer) = state.stalled.pop_front()
        {
            actions.push(answer);
        }
        drop(state);
        // Once for a file: a program that fills the log can have thousands of writes under way.
        if let Some(why) = first_error {
            (self.report)(&format!(
                "a write to the file with inode {} failed at the server: {why}; the file fails until it is closed",
                inode.0
            ));
        }
        actions.into_iter().for_each(|action| action());
    }

    /// Does `action` when the server has all bytes of a file that were written until now.
    pub(crate) fn after_writes(
        self: &Arc<Self>,
        inode: InodeId,
        action: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) {
        let files = Arc::clone(self);
        let mut state = self.lock();
        let mark = state.writes_ever;
        if let Some(file) = state.dirty.get_mut(&inode)
            && !file.writes.is_empty()
        {
            file.waiting.push((mark, Box::new(move || action(&files))));
            return;
        }
        drop(state);
        action(self);
    }

    /// Does `action` when the server has all bytes that were written until now.
    pub(crate) fn after_all_writes(self: &Arc<Self>, action: Action) {
        let mark = self.lock().writes_ever;
        self.after_writes_until(mark, action);
    }

    fn after_writes_until(self: &Arc<Self>, mark: u64, action: Action) {
        let mut state = self.lock();
        let is_before = |file: &DirtyFile| file.writes.keys().next().is_some_and(|at| *at <= mark);
        // One file after the other.
        let Some(file) = state.dirty.values_mut().find(|file| is_before(file)) else {
            drop(state);
            return action();
        };
        let files = Arc::clone(self);
        file.waiting.push((mark, Box::new(move || files.after_writes_until(mark, action))));
    }

    /// Returns whether the server lacks bytes that were written.
    pub(crate) fn is_dirty(&self) -> bool {
        self.lock().dirty.values().any(|file| !file.writes.is_empty())
    }

    /// Answers when the server has what was written to a file.
    pub(crate) fn sync(self: &Arc<Self>, inode: InodeId, answer: DoneAnswer) {
        self.after_writes(inode, move |files| {
            let error = files.lock().dirty.get(&inode).and_then(|file| file.error);
            answer(error.map_or(Ok(()), Err));
        });
    }

    /// Reads bytes.
    pub(crate) fn read(
        self: &Arc<Self>,
        inode: InodeId,
        offset: u64,
        length: u32,
        answer: ReadAnswer,
    ) {
        let state = self.lock();
        let end = offset + u64::from(length);
        let overlaps = state.dirty.get(&inode).is_some_and(|file| {
            // Behind the end that the server knows there are zeros, too.
            file.writes.values().any(|(_, behind)| *behind > offset) && end > offset
        });
        drop(state);
        let read = move |files: &Arc<Self>| {
            let request = FileRequest::Read { inode: inode.0, offset, length };
            let counted = Arc::clone(files);
            let returned: RemoteAnswer = Box::new(move |response| match response {
                Ok((FileResponse::Data, bytes)) => {
                    counted.lock().read_bytes += bytes.len() as u64;
                    answer(Ok(&bytes));
                }
                Ok((response, _)) => answer(Err(response.outcome().err().unwrap_or(Errno::IO))),
                Err(why) => answer(Err(why)),
            });
            files.request(files.class_of(inode), &request, length, returned);
        };
        if overlaps { self.after_writes(inode, read) } else { read(self) }
    }

    /// Returns attributes with the writes that the server does not have.
    pub(crate) fn overlay(&self, found: RespondedAttributes) -> Attributes {
        let mut found = Attributes::from(found);
        let state = self.lock();
        if let Some(file) = state.dirty.get(&found.inode)
            && !file.writes.is_empty()
        {
            found.size = found.size.max(file.end);
            found.mtime = found.mtime.max(file.mtime);
        }
        found
    }

    /// Learns the classes of open files again: one that they came from has changed.
    pub(crate) fn refresh_classes(self: &Arc<Self>) {
        let open: Vec<InodeId> = self.lock().open.keys().copied().collect();
        for inode in open {
            let name = CLASS_XATTR.as_bytes().to_vec();
            let request = FileRequest::GetXattr { inode: inode.0, name };
            let files = Arc::clone(self);
            let answer: RemoteAnswer = Box::new(move |response| {
                let Ok((FileResponse::Bytes(name), _)) = response else { return };
                let class = std::str::from_utf8(&name).ok().and_then(|name| name.parse().ok());
                if let (Some(class), Some(file)) = (class, files.lock().open.get_mut(&inode)) {
                    file.class = class;
                }
            });
            self.request(Class::BestEffort, &request, 0, answer);
        }
    }

    /// Takes calls that the connection has not been given.
    pub(super) fn take_queue(&self) -> Vec<u64> {
        self.lock().queue.drain(..).collect()
    }

    /// Takes the news that the connection is lost: puts all calls that are not answered into the queue
    /// again, in their order, and fails probes.
    pub(super) fn lose_connection(&self) {
        let mut state = self.lock();
        state.is_away = true;
        let probes = state.take_calls(CallOrigin::Probe);
        state.queue = state.calls.keys().copied().collect();
        drop(state);
        for call in probes.into_values() {
            (call.answer)(Err(Errno::NOTCONN));
        }
    }

    /// Returns whether the server is away, for now or for good.
    pub(super) fn is_away(&self) -> bool {
        let state = self.lock();
        state.is_away || state.has_failed
    }

    /// Takes the news that there is a connection again.
    pub(super) fn regain_connection(&self) {
        self.lock().is_away = false;
    }

    /// Gives a call to `take`.
    pub(super) fn with_call<T>(&self, number: u64, take: impl FnOnce(&OpenCall) -> T) -> Option<T> {
        self.lock().calls.get(&number).map(take)
    }

    /// Answers a call.
    pub(super) fn returned(&self, number: u64, response: Result<(FileResponse, Vec<u8>), Errno>) {
        let call = self.lock().calls.remove(&number);
        if let Some(call) = call {
            (call.answer)(response);
        }
    }

    /// Fails everything: the server is gone for good. Probes fail as while it is away, so that the
    /// mount can be found and unmounted.
    pub(super) fn fail(&self) {
        let calls = {
            let mut state = self.lock();
            state.has_failed = true;
            state.queue.clear();
            std::mem::take(&mut state.calls)
        };
        for call in calls.into_values() {
            let is_probe = call.origin == CallOrigin::Probe;
            (call.answer)(Err(if is_probe { Errno::NOTCONN } else { Errno::IO }));
        }
    }

    /// Fails everything as [`RemoteFiles::fail`] does, and reports the files that lose bytes by their
    /// names, as far as the server answers at once.
    pub(super) fn give_up(self: &Arc<Self>) {
        let (lost, bytes) = {
            let state = self.lock();
            let dirty = state.dirty.iter().filter(|(_, file)| !file.writes.is_empty());
            (dirty.map(|(inode, _)| *inode).collect::<Vec<_>>(), state.unanswered)
        };
        let named: Vec<String> = self.names(&lost);
        self.fail();
        if bytes > 0 && !named.is_empty() {
            let others = match lost.len() - named.len() {
                0 => String::new(),
                1 => " and 1 other file".to_owned(),
                others => format!(" and {others} other files"),
            };
            (self.report)(&format!(
                "the server does not have the last {} that were written to {}{others}; they are lost",
                Bytes(bytes),
                named.join(", ")
            ));
        }
    }

    /// Returns names of the first of these files.
    fn names(&self, inodes: &[InodeId]) -> Vec<String> {
        let (sender, names) = channel();
        let named = inodes.iter().take(NAMED_MAX);
        for (place, inode) in named.clone().enumerate() {
            let sender = sender.clone();
            let answer: RemoteAnswer = Box::new(move |found| {
                let _ = sender.send((place, found));
            });
            self.probe(Class::Control, &FileRequest::Path { inode: inode.0 }, answer);
        }
        drop(sender);
        let mut found: Vec<String> =
            named.map(|inode| format!("the file with inode {}", inode.0)).collect();
        while let Ok((place, response)) = names.recv_timeout(NAMES_WAIT) {
            if let (Ok((FileResponse::Bytes(path), _)), Some(name)) =
                (response, found.get_mut(place))
            {
                *name = String::from_utf8_lossy(&path).into_owned();
            }
        }
        found
    }

    /// Asks the connection to end once everything is answered that the kernel asked for.
    pub(super) fn finish(&self) {
        let mut state = self.lock();
        state.is_closing = true;
        let given_up = state.take_calls(CallOrigin::Control);
        drop(state);
        for call in given_up.into_values() {
            (call.answer)(Err(Errno::SHUTDOWN));
        }
        self.signal.raise();
    }

    /// Returns whether the connection may end.
    pub(super) fn is_finished(&self) -> bool {
        let state = self.lock();
        state.is_closing && (state.calls.is_empty() || state.has_failed)
    }
}

impl ClientState {
    /// Takes the calls of an origin.
    fn take_calls(&mut self, origin: CallOrigin) -> BTreeMap<u64, OpenCall> {
        let (taken, kept) = std::mem::take(&mut self.calls)
            .into_iter()
            .partition(|(_, call): &(u64, OpenCall)| call.origin == origin);
        self.calls = kept;
        taken
    }

    /// Forgets a file of which the server has everything.
    fn clean(&mut self, inode: InodeId) {
        let is_open = self.open.contains_key(&inode);
        if let Some(file) = self.dirty.get(&inode)
            && file.writes.is_empty()
            && file.waiting.is_empty()
            && (file.error.is_none() || !is_open)
        {
            self.dirty.remove(&inode);
        }
    }
}

/// Whether a file was made by the request that opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileAge {
    New,
    Existing,
}

/// Whether pages in the kernel's cache are those of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheState {
    Valid,
    Stale,
}
