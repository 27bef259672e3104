//! The server's end of one client: its calls, and what it has open.
//!
//! # Model
//! Each client has a wire of its own, with two ranks, and a thread that drives it. Requests are
//! executed by that thread as far as they wait for nothing; what waits for the log or the store is
//! answered by their threads, through a list that the client's thread empties.
//!
//! # Invariants
//! I1. Files that a client has open stay until it closes them, or until it is lost for longer than
//!     the server waits for it.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clearway_proto::base::{Class, LocalNs, Nanos};
use clearway_proto::calls::{
    CallConfig, CallServer, DATA_MAX, HEADER_MAX, LossCause, Parcel, ReceivedParcel,
    ServerCallCommand, ServerCallEvent, frame_memory,
};
use clearway_proto::staging::{ClientId, InodeId};
use clearway_proto::wire::{Driver, RegionId, Span, Wire};
use clearway_runtime::progress::{self, EngineHost};
use clearway_runtime::waiting::Waitable;
use clearway_runtime::wake_signal::WakeSignal;

use super::access::User;
use super::execute::ClientCall;
use super::pacing::MountPacing;
use super::request::{FileRequest, FileResponse, decode, encode};
use super::{CLIENT_RANK, ClientName, SERVER_RANK};
use crate::FsError;
use crate::arena::{Arena, Loan};
use crate::engine::{Core, Engine};
use crate::handles::OpenUsage;
use crate::server::ControlRequests;

/// Bytes of pages of each size that a session keeps for responses.
const PAGES_KEPT: usize = 4 << 20;
/// How long a session keeps the memory that its client has used.
const IDLE_MAX: Nanos = Nanos::from_secs(10);
/// Files that a client may have open.
const OPEN_MAX: usize = 1 << 20;

/// Files that a client has open.
#[derive(Debug, Default)]
pub(crate) struct SessionFiles(Mutex<OpenFiles>);

#[derive(Debug, Default)]
struct OpenFiles {
    handles: BTreeMap<(InodeId, bool), Vec<u64>>,
    /// The session is over: nobody would close what a late request opens.
    is_closed: bool,
}

impl SessionFiles {
    fn open_files(&self) -> MutexGuard<'_, OpenFiles> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a file, and holds it.
    pub(super) fn open(&self, core: &mut Core, inode: InodeId, usage: OpenUsage) {
        let mut files = self.open_files();
        if files.is_closed || files.handles.values().map(Vec::len).sum::<usize>() >= OPEN_MAX {
            return;
        }
        core.hold(inode);
        let handle = core.open_file(inode, usage);
        files.handles.entry((inode, usage == OpenUsage::Write)).or_default().push(handle);
    }

    /// Closes a file once.
    pub(super) fn close(&self, core: &mut Core, inode: InodeId, usage: OpenUsage) {
        let key = (inode, usage == OpenUsage::Write);
        let mut files = self.open_files();
        let Some(handle) = files.handles.get_mut(&key).and_then(Vec::pop) else { return };
        if files.handles.get(&key).is_some_and(Vec::is_empty) {
            files.handles.remove(&key);
        }
        drop(files);
        core.close_handle(handle);
        core.forget(inode, 1);
    }

    /// Returns whether a file is open, to be written if `for_writing`.
    pub(super) fn is_open(&self, inode: InodeId, for_writing: bool) -> bool {
        let handles = &self.open_files().handles;
        handles.contains_key(&(inode, true))
            || !for_writing && handles.contains_key(&(inode, false))
    }

    /// Returns whether none is open.
    pub(super) fn is_empty(&self) -> bool {
        self.open_files().handles.is_empty()
    }

    /// Closes all of them, and opens none any more.
    fn close_all(&self, core: &mut Core) {
        let closed = OpenFiles { is_closed: true, ..OpenFiles::default() };
        let files = std::mem::replace(&mut *self.open_files(), closed);
        for ((inode, _), handles) in files.handles {
            for handle in handles {
                core.close_handle(handle);
                core.forget(inode, 1);
            }
        }
    }
}

/// A response that waits to be sent.
struct DueResponse {
    number: u64,
    class: Class,
    header: Loan,
    data: Option<Loan>,
}

/// What other threads have for the thread of a client.
struct SessionShared {
    due: Mutex<Vec<DueResponse>>,
    signal: WakeSignal,
    arena: Arc<Arena>,
}

impl SessionShared {
    /// Keeps a response for the client's thread.
    fn respond(&self, number: u64, class: Class, response: &FileResponse, data: &[u8]) {
        let mut bytes = encode(response);
        if bytes.len() > HEADER_MAX as usize || data.len() > DATA_MAX as usize {
            bytes = encode(&FileResponse::failed(rustix::io::Errno::OVERFLOW));
        }
        let Some(header) = self.arena.fill(&bytes) else { return };
        let has_data = !data.is_empty() && data.len() <= DATA_MAX as usize;
        let data = has_data.then(|| self.arena.fill(data));
        let (response, data) = match data {
            Some(None) => (None, None),
            Some(data) => (Some(header), data),
            None => (Some(header), None),
        };
        let Some(header) = response else { return };
        let due = DueResponse { number, class, header, data };
        self.due.lock().unwrap_or_else(PoisonError::into_inner).push(due);
        self.signal.raise();
    }
}

/// Serves one client over a wire of two ranks, of which the server has [`SERVER_RANK`].
pub(super) struct Session {
    pub(super) engine: Arc<Engine>,
    pub(super) control: ControlRequests,
    pub(super) user: Arc<User>,
    pub(super) client: ClientName,
    pub(super) files: Arc<SessionFiles>,
    pub(super) pacing: Option<Arc<MountPacing>>,
}

struct SessionHost {
    session: Session,
    shared: Arc<SessionShared>,
    region: RegionId,
    frames: RegionId,
    /// The memory of frames is to be given back.
    are_frames_idle: bool,
    called: Vec<ReceivedParcel>,
    /// Places of responses that are on their way.
    lent: BTreeMap<u64, Vec<u64>>,
    /// Probes that came back: when they left, and how long they took.
    echoes: Vec<(LocalNs, Nanos)>,
    /// Its number where clients are paced.
    paced_as: Option<u64>,
    lost: Option<LossCause>,
    is_closed: bool,
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionEnd {
    /// The client closed its connection.
    Closed,
    Lost(LossCause),
}

impl Session {
    /// Serves until the client leaves or is lost; `link` is readable when it closes its connection.
    ///
    /// # Errors
    /// The wire lacks something.
    pub(super) fn run(
        self,
        mut wire: Box<dyn Waitable + Send>,
        link: OwnedFd,
        window: u32,
    ) -> Result<SessionEnd, FsError> {
        let missing =
            |_| FsError::Option("there is no memory for another client; end some".to_owned());
        let frames = wire.register(frame_memory(2, window)).map_err(missing)?;
        let arena = Arc::new(Arena::new(PAGES_KEPT));
        let adopted = Arc::clone(&arena);
        let region = wire.adopt(adopted).map_err(missing)?;
        let mut config = CallConfig::new(frames, window, wire.capabilities());
        config.idle_max = Some(IDLE_MAX);
        let mut driver = Driver::boot(CallServer::new(SERVER_RANK, 2, &config), wire.now(), 0);
        let signal = WakeSignal::new().map_err(FsError::system("make an event counter"))?;
        let shared = Arc::new(SessionShared { due: Mutex::default(), signal, arena });
        let mut host = SessionHost {
            session: self,
            shared: Arc::clone(&shared),
            region,
            frames,
            are_frames_idle: false,
            called: Vec::new(),
            lent: BTreeMap::new(),
            echoes: Vec::new(),
            paced_as: None,
            lost: None,
            is_closed: false,
        };
        host.paced_as = host.session.pacing.as_ref().map(|pacing| pacing.join());
        progress::run(&mut driver, &mut *wire, &[shared.signal.as_fd(), link.as_fd()], &mut host);
        if let (Some(pacing), Some(own)) = (&host.session.pacing, host.paced_as) {
            pacing.leave(own);
        }
        Ok(host.lost.map_or(SessionEnd::Closed, SessionEnd::Lost))
    }

    /// Closes what the client has open.
    pub(super) fn close_files(engine: &Engine, files: &SessionFiles) {
        engine.wait(|core| files.close_all(core));
    }
}

impl SessionHost {
    /// Takes a request out of its frames, and executes it.
    fn call(&mut self, wire: &dyn Wire, parcel: &ReceivedParcel) -> Result<(), io::Error> {
        let unreadable = |_| io::Error::from(io::ErrorKind::InvalidData);
        let mut header = vec![0; parcel.header.length as usize];
        wire.copy_out(parcel.header, &mut header).map_err(unreadable)?;
        let request: FileRequest =
            decode(&header).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        let length = parcel.data.iter().map(|span| span.length as usize).sum();
        let data = if length == 0 {
            None
        } else {
            let fill = |bytes: &mut [u8]| {
                let mut rest = bytes;
                for span in &parcel.data {
                    let (piece, behind) = rest.split_at_mut(span.length as usize);
                    wire.copy_out(*span, piece).map_err(unreadable)?;
                    rest = behind;
                }
                Ok::<_, io::Error>(())
            };
            let loan = self.session.engine.arena.fill_with(length, fill)?;
            Some(Arc::new(loan.ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?))
        };
        let (number, class) = (parcel.number, parcel.class);
        let shared = Arc::clone(&self.shared);
        let respond = Box::new(move |response: FileResponse, data: &[u8]| {
            shared.respond(number, class, &response, data);
        });
        if let FileRequest::Control(line) = request {
            self.session.control.answer(line, &self.session.user, move |lines| {
                respond(FileResponse::Control, lines.as_bytes());
            });
            return Ok(());
        }
        let caller = ClientCall {
            client: self.client(class),
            number,
            user: Arc::clone(&self.session.user),
            files: Arc::clone(&self.session.files),
        };
        self.session.engine.execute(&caller, request, data, respond);
        Ok(())
    }

    /// Returns the client of the log for calls of a class: only they keep their order.
    fn client(&self, class: Class) -> ClientId {
        self.session.client.of_class(class)
    }

    /// Probes and paces the client, if the server sets a pace; returns whether something was sent,
    /// and when to look again.
    fn pace(&mut self, now: LocalNs, driver: &mut Driver<CallServer>) -> (bool, Option<LocalNs>) {
        let (Some(pacing), Some(own)) = (self.session.pacing.clone(), self.paced_as) else {
            return (false, None);
        };
        let newest = driver.engine_mut().newest_data().map(|(_, at)| at).max();
        let mut has_sent = false;
        let echoes = self.echoes.drain(..);
        let next = pacing.poll(now, own, newest, echoes, |order| {
            has_sent = true;
            let command = ServerCallCommand::from_order(order, CLIENT_RANK, Class::LowLatency);
            driver.command(now, command);
        });
        (has_sent, next)
    }

    /// Sends responses that are due.
    fn send_due(&mut self, now: LocalNs, driver: &mut Driver<CallServer>) {
        let due =
            std::mem::take(&mut *self.shared.due.lock().unwrap_or_else(PoisonError::into_inner));
        for DueResponse { number, class, header, data } in due {
            let mut places = Vec::with_capacity(2);
            let mut lend = |loan: Loan| {
                let length = loan.bytes().len() as u32;
                let offset = self.shared.arena.lend(Arc::new(loan));
                places.push(offset);
                Span { region: self.region, offset, length }
            };
            let (header, data) = (lend(header), data.map_or(Span::EMPTY, &mut lend));
            self.lent.insert(number, places);
            let response = Parcel { number, class, header, data };
            driver.command(now, ServerCallCommand::Answer { client: CLIENT_RANK, response });
        }
    }
}

impl EngineHost<CallServer> for SessionHost {
    fn event(&mut self, event: ServerCallEvent) {
        match event {
            ServerCallEvent::Called { request, .. } => self.called.push(request),
            ServerCallEvent::Free { number, .. } => {
                for place in self.lent.remove(&number).unwrap_or_default() {
                    self.shared.arena.take_back(place);
                }
            }
            ServerCallEvent::Echoed { sent_at, latency, .. } => {
                self.echoes.push((sent_at, latency))
            }
            ServerCallEvent::FramesIdle => self.are_frames_idle = true,
            ServerCallEvent::Lost { cause, .. } => self.lost = Some(cause),
        }
    }

    fn control(&mut self, which: usize, _now: LocalNs, _driver: &mut Driver<CallServer>) {
        match which {
            0 => self.shared.signal.clear(),
            _ => self.is_closed = true,
        }
    }

    fn after_step(
        &mut self,
        now: LocalNs,
        driver: &mut Driver<CallServer>,
        wire: &mut dyn Wire,
    ) -> ControlFlow<(), Option<LocalNs>> {
        let mut has_more = false;
        for parcel in std::mem::take(&mut self.called) {
            has_more = true;
            if self.call(wire, &parcel).is_err() {
                self.lost = Some(LossCause::Violation);
            }
            let (client, number) = (CLIENT_RANK, parcel.number);
            driver.command(now, ServerCallCommand::Release { client, number });
        }
        if self.lost.is_some() || self.is_closed {
            return ControlFlow::Break(());
        }
        if std::mem::take(&mut self.are_frames_idle) && driver.engine_mut().are_frames_free() {
            wire.clear(self.frames);
            self.shared.arena.release_free();
        }
        let before = self.lent.len();
        self.send_due(now, driver);
        has_more |= self.lent.len() != before;
        // What the step took is no delay of the network.
        let (has_paced, next) = self.pace(wire.now(), driver);
        let now = (has_more || has_paced).then_some(now);
        ControlFlow::Continue(now.into_iter().chain(next).min())
    }
}
