//! A mount's connection to its server: made, kept, and made again.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use clearway_proto::base::{Bytes, Class, LocalNs, Nanos};
use clearway_proto::calls::{
    CallClient, CallCommand, CallConfig, CallEvent, Parcel, ReceivedParcel, frame_memory,
};
use clearway_proto::wire::{Driver, RegionId, Span, Wire};
use clearway_runtime::clock;
use clearway_runtime::progress::{self, EngineHost};
use clearway_runtime::waiting::{Waitable, ready};

use super::SERVER_RANK;
use super::client::RemoteFiles;
use super::request::{FileRequest, FileResponse, decode, encode};
use crate::FsError;

/// Pauses between attempts to connect: each twice as long as the one before, up to the longest.
const PAUSE_MIN: Nanos = Nanos::from_millis(100);
const PAUSE_MAX: Nanos = Nanos::from_secs(2);
/// The number of the call that opens files again. No other call has it.
const REOPEN: u64 = u64::MAX >> 8;

/// An open connection to a server.
pub struct ServerConnection {
    /// A wire of two ranks, on which the server has [`SERVER_RANK`].
    pub wire: Box<dyn Waitable + Send>,
    /// Is readable when the server closes the connection.
    pub link: OwnedFd,
    /// The log that the server has.
    pub log: u128,
}

/// Why there is no connection.
#[derive(Debug)]
pub enum ConnectError {
    /// It may work later.
    Later(String),
    /// It never will.
    Never(String),
}

/// Connects to a server.
pub trait ServerConnector: Send {
    /// Makes a new connection for the same client.
    ///
    /// # Errors
    /// [`ConnectError`].
    fn connect(&mut self) -> Result<ServerConnection, ConnectError>;
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionEnd {
    Finished,
    Lost,
}

/// Keeps a mount connected, until everything is answered after [`RemoteFiles::finish`], or the server
/// has been away for `timeout`: then all requests fail. Without `timeout` it waits for ever.
pub(super) fn keep_connected(
    files: &Arc<RemoteFiles>,
    mut connector: Box<dyn ServerConnector>,
    first: ServerConnection,
    timeout: Option<Duration>,
) {
    let log = first.log;
    let mut connection = first;
    loop {
        match drive(files, connection) {
            Ok(ConnectionEnd::Finished) => return,
            Ok(ConnectionEnd::Lost) => (files.report)(
                "the connection to the server is lost; requests wait until the server is there again",
            ),
            Err(why) => (files.report)(&why.to_string()),
        }
        files.lose_connection();
        let lost_at = clock::now();
        let is_over =
            |most: &Duration| u128::from(clock::now().since(lost_at).0) >= most.as_nanos();
        let (mut pause, mut reported) = (PAUSE_MIN, String::new());
        connection = loop {
            if files.is_finished() {
                return;
            }
            let refused = match connector.connect() {
                Ok(connection) if connection.log == log => break connection,
                Ok(_) => ConnectError::Never(
                    "the server has another log now: unmount, and mount again".to_owned(),
                ),
                Err(why) => why,
            };
            let given_up = timeout.filter(is_over);
            match (refused, given_up) {
                (ConnectError::Never(why), _) => {
                    (files.report)(&format!("{why}; all requests fail from now on"));
                    return files.fail();
                }
                (ConnectError::Later(why), Some(most)) => {
                    let lost = Bytes(files.counts().unacknowledged);
                    (files.report)(&format!(
                        "no connection for {most:?}: {why}; all requests fail from now on, and {lost} of writes are lost; unmount, and mount again when the server is back"
                    ));
                    return files.fail();
                }
                (ConnectError::Later(why), None) if why != reported => {
                    (files.report)(&format!("no connection yet: {why}"));
                    reported = why;
                }
                (ConnectError::Later(_), None) => {}
            }
            files.signal.clear();
            let _ = ready([], Some(pause), &[files.signal.as_fd()]);
            pause = pause.times(2).min(PAUSE_MAX);
        };
        files.regain_connection();
        (files.report)("the server is there again");
    }
}

/// Makes calls over a connection until it is lost, or everything is answered.
fn drive(files: &Arc<RemoteFiles>, connection: ServerConnection) -> Result<ConnectionEnd, FsError> {
    let ServerConnection { mut wire, link, .. } = connection;
    let missing = |_| FsError::Option("there is no memory for a connection; end some".to_owned());
    let frames = wire.register(frame_memory(1, super::WINDOW)).map_err(missing)?;
    let adopted = Arc::clone(&files.arena);
    let region = wire.adopt(adopted).map_err(missing)?;
    let config = CallConfig::new(frames, super::WINDOW, wire.capabilities());
    let mut driver = Driver::boot(CallClient::new(SERVER_RANK, &config), wire.now(), 0);
    let mut host = ClientHost {
        files: Arc::clone(files),
        region,
        lent: BTreeMap::new(),
        returned: Vec::new(),
        phase: Phase::Begun,
        is_lost: false,
    };
    progress::run(&mut driver, &mut *wire, &[files.signal.as_fd(), link.as_fd()], &mut host);
    for place in host.lent.into_values().flatten() {
        files.arena.take_back(place);
    }
    Ok(if host.is_lost { ConnectionEnd::Lost } else { ConnectionEnd::Finished })
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Begun,
    /// The server is asked to open again what is open.
    Reopening,
    Ready,
}

struct ClientHost {
    files: Arc<RemoteFiles>,
    region: RegionId,
    /// Places of requests that are on their way.
    lent: BTreeMap<u64, Vec<u64>>,
    returned: Vec<ReceivedParcel>,
    phase: Phase,
    is_lost: bool,
}

impl ClientHost {
    /// Opens files again that the server may not know.
    fn reopen(&mut self, now: LocalNs, driver: &mut Driver<CallClient>) {
        self.files.forget_versions();
        let mut open = self.files.open_files();
        open.truncate(super::request::REOPENED_MAX);
        let bytes = encode(&FileRequest::Reopen(open));
        let Some(loan) = self.files.arena.fill(&bytes) else { return self.is_lost = true };
        let length = bytes.len() as u32;
        let offset = self.files.arena.lend(Arc::new(loan));
        self.lent.insert(REOPEN, vec![offset]);
        let header = Span { region: self.region, offset, length };
        let request =
            Parcel { number: REOPEN, class: Class::BestEffort, header, data: Span::EMPTY };
        driver.command(now, CallCommand::Call { request, response_max: 0 });
    }

    /// Gives calls to the engine; whether there were any.
    fn post(&mut self, now: LocalNs, driver: &mut Driver<CallClient>) -> bool {
        let queue = self.files.take_queue();
        for number in &queue {
            let files = Arc::clone(&self.files);
            let region = self.region;
            let mut places = Vec::with_capacity(2);
            let command = files.with_call(*number, |call| {
                let mut lend = |loan: &Arc<crate::arena::Loan>| {
                    let length = loan.bytes().len() as u32;
                    let offset = files.arena.lend(Arc::clone(loan));
                    places.push(offset);
                    Span { region, offset, length }
                };
                let header = lend(&call.header);
                let data = call.data.as_ref().map_or(Span::EMPTY, &mut lend);
                let request = Parcel { number: *number, class: call.class, header, data };
                CallCommand::Call { request, response_max: call.response_max }
            });
            if let Some(command) = command {
                self.lent.insert(*number, places);
                driver.command(now, command);
            }
        }
        !queue.is_empty()
    }

    /// Takes a response out of its frames.
    fn take(&mut self, wire: &dyn Wire, parcel: &ReceivedParcel) -> Option<()> {
        let read = |span: Span| {
            let mut bytes = vec![0; span.length as usize];
            wire.copy_out(span, &mut bytes).ok().map(|()| bytes)
        };
        let response: FileResponse = decode(&read(parcel.header)?)?;
        let mut data = Vec::with_capacity(parcel.data.iter().map(|s| s.length as usize).sum());
        for span in &parcel.data {
            let begin = data.len();
            data.resize(begin + span.length as usize, 0);
            wire.copy_out(*span, data.get_mut(begin..)?).ok()?;
        }
        if parcel.number == REOPEN {
            self.phase = Phase::Ready;
        } else {
            self.files.returned(parcel.number, Ok((response, data)));
        }
        Some(())
    }
}

impl EngineHost<CallClient> for ClientHost {
    fn event(&mut self, event: CallEvent) {
        match event {
            CallEvent::Returned(parcel) => self.returned.push(parcel),
            CallEvent::Free(number) => {
                for place in self.lent.remove(&number).unwrap_or_default() {
                    self.files.arena.take_back(place);
                }
            }
            CallEvent::Lost => self.is_lost = true,
        }
    }

    fn control(&mut self, which: usize, _now: LocalNs, _driver: &mut Driver<CallClient>) {
        match which {
            0 => self.files.signal.clear(),
            _ => self.is_lost = true,
        }
    }

    fn after_step(
        &mut self,
        now: LocalNs,
        driver: &mut Driver<CallClient>,
        wire: &mut dyn Wire,
    ) -> ControlFlow<(), Option<LocalNs>> {
        let mut has_more = false;
        for parcel in std::mem::take(&mut self.returned) {
            has_more = true;
            if self.take(wire, &parcel).is_none() {
                self.is_lost = true;
            }
            driver.command(now, CallCommand::Release(parcel.number));
        }
        if self.is_lost || self.files.is_finished() {
            return ControlFlow::Break(());
        }
        match self.phase {
            Phase::Begun => {
                self.phase = Phase::Reopening;
                self.reopen(now, driver);
                has_more = true;
            }
            Phase::Reopening => {}
            Phase::Ready => has_more |= self.post(now, driver),
        }
        ControlFlow::Continue(has_more.then_some(now))
    }
}
