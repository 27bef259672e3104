//! The processes that carry a checkpoint: clients that write it, staging servers that keep it in a log
//! and drain it, and the store behind them.
//!
//! # Model
//! The engines of calls are those of mounts and of their server, over the network's own wire. A client
//! makes calls of 1 MiB, as many as the server's frames allow; it is done when all are answered. A
//! server writes what arrives to its log, one call after the other at the log's rate, and answers a
//! call when it is in the log: so the log's speed holds the clients back. A call waits while the log has
//! no room. What is in the log travels on to the store, as the calls of a client; it leaves the log when the
//! store has answered. The store is a server that does not drain.
//!
//! # Invariants
//! I1. The log never holds more than its room: what is written to it counts before it is there.
//!
//! # Not here
//! Names and attributes of files, syncs, and reads of the log by the drain: all take no time.

use std::collections::{BTreeMap, VecDeque};

use clearway_fs::network::WINDOW;
use clearway_proto::base::{BitsPerSec, Bytes, LocalNs, Nanos, Rank};
use clearway_proto::calls::{
    CallClient, CallCommand, CallConfig, CallEvent, CallServer, DATA_MAX, FRAME, Parcel,
    ServerCallCommand, ServerCallEvent, frame_memory,
};
use clearway_proto::wire::{
    Arrival, Effect, Engine, Input, More, Operation, Out, RegionId, Span, TimedOperation, Token,
    Wire,
};

use super::engine::WRITTEN;

/// Bytes of the header of a write, rounded up: the request of a mount with its file, place and time.
const REQUEST: u32 = 64;
/// Bytes of the header of an answer, rounded up.
const RESPONSE: u32 = 16;
/// Calls that a client has made: more than a server has frames for.
const CALLS: usize = 2 * (WINDOW / (DATA_MAX / FRAME)) as usize;
/// Bytes of a piece: as many as are under way must fit into the interface's queue, whatever their
/// lengths, because a long one that found no room would be overtaken by a short one.
const PIECE: u32 = 16 << 10;
/// The bit of a token that says: of a client's engine.
const OF_CLIENT: u64 = 1 << 63;
/// Effects of one input of an engine of calls that find room without growth.
const EFFECTS: usize = 64;

/// What a process does.
#[derive(Clone, Debug)]
pub(super) enum StoragePart {
    /// Writes a checkpoint.
    Client(WritePart),
    /// Takes what others write.
    Server(ServePart),
}

/// What a client writes.
#[derive(Clone, Debug)]
pub(super) struct WritePart {
    pub(super) to: Rank,
    pub(super) bytes: Bytes,
    pub(super) begin: LocalNs,
}

/// What a server is like.
#[derive(Clone, Debug)]
pub(super) struct ServePart {
    /// Of its log.
    pub(super) rate: BitsPerSec,
    /// Bytes that its log holds at most.
    pub(super) room: Bytes,
    /// Bytes that are in the log at the beginning.
    pub(super) kept: Bytes,
    /// The store, if this is not the store itself.
    pub(super) drains_to: Option<Rank>,
}

/// One process.
#[derive(Debug)]
pub(super) struct StorageEngine {
    memory: RegionId,
    server: Option<ServerEndpoint>,
    client: Option<ClientEndpoint>,
    fault: Option<String>,
}

/// An engine of calls, and what it wrote in one step.
#[derive(Debug)]
struct CallEndpoint<E: Engine> {
    engine: E,
    out: Out<E::Event>,
    wants_more: bool,
    /// Goes into its tokens.
    mark: u64,
}

#[derive(Debug)]
struct ServerEndpoint {
    calls: CallEndpoint<CallServer>,
    log: ServerLog,
    events: Vec<ServerCallEvent>,
}

/// A log in which calls lie one behind the other.
#[derive(Debug)]
struct ServerLog {
    rate: BitsPerSec,
    room: u64,
    /// Bytes in it, and those on their way into it.
    kept: u64,
    free_at: LocalNs,
    /// Calls that find no room.
    waiting: VecDeque<LogWrite>,
    /// Calls that are being written, and when each is there.
    under_way: VecDeque<(LocalNs, LogWrite)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LogWrite {
    client: Rank,
    number: u64,
    bytes: u64,
}

#[derive(Debug)]
struct ClientEndpoint {
    calls: CallEndpoint<CallClient>,
    to: Rank,
    begin: LocalNs,
    /// Bytes for which no call was made.
    left: u64,
    /// Bytes of open calls.
    open: BTreeMap<u64, u64>,
    last: u64,
    /// When nothing was left.
    finished: Option<LocalNs>,
    events: Vec<CallEvent>,
}

impl<E: Engine> CallEndpoint<E> {
    fn new(engine: E, mark: u64) -> Self {
        Self { engine, out: Out::with_limit(EFFECTS), wants_more: false, mark }
    }

    /// Takes `input`, makes what is wished for that of the process, and adds to `events`.
    fn give(
        &mut self,
        now: LocalNs,
        input: Input<'_, E::Command>,
        out: &mut Out<()>,
        events: &mut Vec<E::Event>,
    ) {
        self.wants_more = self.engine.input(now, input, &mut self.out) == More::Yes;
        let (effects, heads) = self.out.split();
        for effect in effects {
            let TimedOperation { mut operation, .. } = match effect {
                Effect::Notify(event) => {
                    events.push(event);
                    continue;
                }
                Effect::Operate(timed) => timed,
            };
            if let Operation::Send { head, token, .. } = &mut operation {
                *head = out.head(head.bytes_in(heads).unwrap_or_default());
                *token = token.map(|token| Token(token.0 | self.mark));
            }
            out.operate(operation);
        }
        self.out.clear();
    }
}

impl ServerLog {
    fn new(part: &ServePart) -> Self {
        Self {
            rate: part.rate,
            room: part.room.0,
            kept: part.kept.0,
            free_at: LocalNs(0),
            waiting: VecDeque::new(),
            under_way: VecDeque::new(),
        }
    }

    /// Begins to write what finds room.
    fn begin(&mut self, now: LocalNs) {
        while let Some(write) = self.waiting.front().copied()
            && self.kept + write.bytes <= self.room
        {
            self.waiting.pop_front();
            self.kept += write.bytes;
            self.free_at = self.free_at.max(now) + self.rate.time_for(Bytes(write.bytes));
            self.under_way.push_back((self.free_at, write));
        }
    }

    /// Takes out a call that is in the log now.
    fn end(&mut self, now: LocalNs) -> Option<LogWrite> {
        let is_there = self.under_way.front().is_some_and(|(at, _)| *at <= now);
        if is_there { self.under_way.pop_front().map(|(_, write)| write) } else { None }
    }
}

impl ClientEndpoint {
    fn new(to: Rank, bytes: u64, begin: LocalNs, config: &CallConfig) -> Self {
        Self {
            calls: CallEndpoint::new(CallClient::new(to, config), OF_CLIENT),
            to,
            begin,
            left: bytes,
            open: BTreeMap::new(),
            last: 0,
            finished: None,
            events: Vec::new(),
        }
    }

    /// Makes the calls that are due.
    fn call(&mut self, now: LocalNs, memory: RegionId, out: &mut Out<()>) {
        while now >= self.begin && self.left > 0 && self.open.len() < CALLS {
            let bytes = self.left.min(u64::from(DATA_MAX));
            self.last += 1;
            self.left -= bytes;
            self.open.insert(self.last, bytes);
            let header = Span { region: memory, offset: 0, length: REQUEST };
            let data = Span { region: memory, offset: u64::from(REQUEST), length: bytes as u32 };
            let request = Parcel { number: self.last, class: WRITTEN, header, data };
            let call = Input::Command(CallCommand::Call { request, response_max: 0 });
            self.calls.give(now, call, out, &mut self.events);
        }
    }

    /// Takes what returned; how many bytes.
    fn returned(&mut self, now: LocalNs, out: &mut Out<()>) -> Result<u64, String> {
        let mut bytes = 0;
        for event in core::mem::take(&mut self.events) {
            match event {
                CallEvent::Returned(parcel) => {
                    bytes += self.open.remove(&parcel.number).unwrap_or_default();
                    let release = Input::Command(CallCommand::Release(parcel.number));
                    self.calls.give(now, release, out, &mut self.events);
                }
                CallEvent::Free(_) => {}
                CallEvent::Lost => return Err(format!("rank {} is lost", self.to.0)),
            }
        }
        if bytes > 0 && self.left == 0 && self.open.is_empty() {
            self.finished = Some(now);
        }
        Ok(bytes)
    }

    fn deadline(&self) -> Option<LocalNs> {
        let begins = (self.left > 0 && self.last == 0).then_some(self.begin);
        begins.into_iter().chain(self.calls.engine.deadline()).min()
    }
}

impl ServerEndpoint {
    /// Takes calls that arrived into the log, and answers those that are there; returns the bytes of
    /// these.
    fn log(&mut self, now: LocalNs, memory: RegionId, out: &mut Out<()>) -> Result<u64, String> {
        for event in core::mem::take(&mut self.events) {
            match event {
                ServerCallEvent::Called { client, request } => {
                    let bytes = request.data.iter().map(|span| u64::from(span.length)).sum();
                    let number = request.number;
                    self.log.waiting.push_back(LogWrite { client, number, bytes });
                }
                ServerCallEvent::Lost { client, .. } => {
                    return Err(format!("rank {} is lost", client.0));
                }
                _ => {}
            }
        }
        self.log.begin(now);
        let mut logged = 0;
        while let Some(LogWrite { client, number, bytes }) = self.log.end(now) {
            logged += bytes;
            let header = Span { region: memory, offset: 0, length: RESPONSE };
            let response = Parcel { number, class: WRITTEN, header, data: Span::EMPTY };
            let answer = ServerCallCommand::Answer { client, response };
            self.calls.give(now, Input::Command(answer), out, &mut self.events);
        }
        Ok(logged)
    }
}

impl StorageEngine {
    /// Creates a process among `ranks` with the memory that it needs on `wire`.
    pub(super) fn new(part: &StoragePart, ranks: u32, wire: &mut dyn Wire) -> Self {
        let mut register = |length| wire.register(length).unwrap_or(RegionId::RECEIVE);
        let memory = register(Bytes(u64::from(REQUEST + DATA_MAX)));
        let mut config = |peers| register(frame_memory(peers, WINDOW));
        let (taking, giving) = match part {
            StoragePart::Client(_) => (None, Some(config(1))),
            StoragePart::Server(_) => (Some(config(ranks)), Some(config(1))),
        };
        let (rank, capabilities) = (wire.rank(), wire.capabilities().clone());
        let config = |frames| {
            let config = CallConfig::new(frames, WINDOW, &capabilities);
            CallConfig { piece_max: config.piece_max.min(PIECE), ..config }
        };
        let (server, client) = match part {
            StoragePart::Client(part) => (None, Some((part.to, part.bytes.0, part.begin))),
            StoragePart::Server(part) => {
                let drain = part.drains_to.map(|store| (store, part.kept.0, LocalNs(0)));
                (Some(part), drain)
            }
        };
        let server = server.zip(taking).map(|(part, frames)| ServerEndpoint {
            calls: CallEndpoint::new(CallServer::new(rank, ranks, &config(frames)), 0),
            log: ServerLog::new(part),
            events: Vec::new(),
        });
        let client = client.zip(giving).map(|((to, bytes, begin), frames)| {
            ClientEndpoint::new(to, bytes, begin, &config(frames))
        });
        Self { memory, server, client, fault: None }
    }

    /// Returns whether this is a client that waits for an answer, or will.
    pub(super) fn is_writing(&self) -> bool {
        let client = self.client.as_ref().filter(|_| self.server.is_none());
        client.is_some_and(|client| client.finished.is_none())
    }

    /// Returns whether this is a client or a server with bytes that are not where they go.
    pub(super) fn has_unwritten(&self) -> bool {
        self.client.as_ref().is_some_and(|client| client.left > 0 || !client.open.is_empty())
    }

    /// Returns how long this client wrote; `None` if it is none.
    ///
    /// # Errors
    /// One sentence: what went wrong.
    pub(super) fn wrote_for(&self) -> Result<Option<Nanos>, String> {
        if let Some(why) = &self.fault {
            return Err(why.clone());
        }
        let client = self.client.as_ref().filter(|_| self.server.is_none());
        Ok(client.and_then(|client| Some(client.finished?.since(client.begin))))
    }

    fn arrival(&mut self, now: LocalNs, arrival: Arrival<'_>, out: &mut Out<()>) {
        let (mut to_client, mut to_server) = (true, true);
        let arrival = match arrival {
            Arrival::Datagram(datagram) => {
                to_client = self.client.as_ref().is_some_and(|seat| seat.to == datagram.from);
                to_server = !to_client;
                arrival
            }
            Arrival::Done { token, status, value, at } => {
                to_client = token.0 & OF_CLIENT != 0;
                to_server = !to_client;
                Arrival::Done { token: Token(token.0 & !OF_CLIENT), status, value, at }
            }
            other => other,
        };
        if let Some(seat) = self.client.as_mut().filter(|_| to_client) {
            seat.calls.give(now, Input::Arrival(arrival), out, &mut seat.events);
        }
        if let Some(seat) = self.server.as_mut().filter(|_| to_server) {
            seat.calls.give(now, Input::Arrival(arrival), out, &mut seat.events);
        }
    }

    /// Gives both engines the time.
    fn tick(&mut self, now: LocalNs, out: &mut Out<()>) {
        if let Some(seat) = &mut self.client {
            seat.calls.give(now, Input::Tick, out, &mut seat.events);
        }
        if let Some(seat) = &mut self.server {
            seat.calls.give(now, Input::Tick, out, &mut seat.events);
        }
    }

    /// Does what is due.
    fn advance(&mut self, now: LocalNs, out: &mut Out<()>) -> Result<(), String> {
        if let Some(client) = &mut self.client {
            let bytes = client.returned(now, out)?;
            if let Some(server) = &mut self.server {
                server.log.kept -= bytes;
            }
        }
        if let Some(server) = &mut self.server {
            let logged = server.log(now, self.memory, out)?;
            match &mut self.client {
                Some(client) => client.left += logged,
                // What a store has is not kept for anybody.
                None => server.log.kept -= logged,
            }
        }
        if let Some(client) = &mut self.client {
            client.call(now, self.memory, out);
        }
        Ok(())
    }
}

impl Engine for StorageEngine {
    type Command = ();
    type Event = ();

    fn input(&mut self, now: LocalNs, input: Input<'_, ()>, out: &mut Out<()>) -> More {
        if self.fault.is_some() {
            return More::No;
        }
        match input {
            Input::Arrival(arrival) => self.arrival(now, arrival, out),
            Input::Tick if out.room() < EFFECTS => return More::Yes,
            Input::Tick => self.tick(now, out),
            _ => {}
        }
        if let Err(why) = self.advance(now, out) {
            self.fault = Some(why);
            return More::No;
        }
        let of_client = self.client.as_ref().is_some_and(|seat| seat.calls.wants_more);
        let of_server = self.server.as_ref().is_some_and(|seat| seat.calls.wants_more);
        if of_client || of_server { More::Yes } else { More::No }
    }

    fn deadline(&self) -> Option<LocalNs> {
        let logged = self.server.iter().flat_map(|seat| seat.log.under_way.front());
        let client = self.client.as_ref().and_then(ClientEndpoint::deadline);
        logged.map(|(at, _)| *at).chain(client).min()
    }
}

#[cfg(test)]
mod tests {
    use clearway_proto::wire::Driver;
    use clearway_proto::wire::memory::{MemoryConfig, MemoryFabric};

    use super::*;

    const MIB: u64 = 1 << 20;
    const CLIENT: u32 = 0;
    const SERVER: u32 = 1;
    const STORE: u32 = 2;

    fn client(to: u32, bytes: u64) -> StoragePart {
        let begin = LocalNs(1_000);
        StoragePart::Client(WritePart { to: Rank(to), bytes: Bytes(bytes), begin })
    }

    /// A server whose log takes `mega` megabytes in a second.
    fn server(mega: u64, room: u64, drains_to: Option<u32>) -> StoragePart {
        StoragePart::Server(ServePart {
            rate: BitsPerSec::mega(8 * mega),
            room: Bytes(room),
            kept: Bytes(0),
            drains_to: drains_to.map(Rank),
        })
    }

    /// Returns how many milliseconds the client writes, over a network that takes no time.
    fn writes_for(parts: &[StoragePart; 3]) -> u64 {
        until_written(parts).0
    }

    /// Returns the same, and whether the server has something for the store then.
    fn until_written(parts: &[StoragePart; 3]) -> (u64, bool) {
        let mut fabric = MemoryFabric::new(MemoryConfig::lossless(3));
        let mut drivers = [CLIENT, SERVER, STORE].map(|rank| {
            let engine = StorageEngine::new(&parts[rank as usize], 3, fabric.wire(Rank(rank)));
            Driver::boot(engine, LocalNs(0), 0)
        });
        for step in 1..100_000 {
            for (rank, driver) in (0..).map(Rank).zip(&mut drivers) {
                let _ = driver.step(fabric.wire(rank), &mut |()| ());
                let kept = driver.engine_mut().server.as_ref().map_or(0, |seat| seat.log.kept);
                let room = match &parts[rank.index()] {
                    StoragePart::Server(part) => part.room.0,
                    StoragePart::Client(_) => 0,
                };
                assert!(kept <= room);
            }
            let client = drivers[0].engine_mut();
            if let Some(time) = client.wrote_for().expect("no fault") {
                assert!(!client.has_unwritten());
                return (time.0 / 1_000_000, drivers[1].engine_mut().has_unwritten());
            }
            fabric.advance(LocalNs(step * 10_000));
        }
        panic!("the client does not come to its end");
    }

    #[test]
    fn storage__a_client_is_blocked_for_the_time_of_the_store_or_of_the_log() {
        let store = || server(100, u64::MAX, None);
        let idle = || server(1, MIB, None);
        let direct = writes_for(&[client(STORE, 32 * MIB), idle(), store()]);
        assert!((335..340).contains(&direct), "{direct}");
        let log = server(400, 64 * MIB, Some(STORE));
        let staged = writes_for(&[client(SERVER, 32 * MIB), log, store()]);
        assert!((83..88).contains(&staged), "{staged}");
    }

    #[test]
    fn has_unwritten__is_a_server_that_drains_longer_than_its_client_writes() {
        let store = || server(100, u64::MAX, None);
        let log = server(400, 64 * MIB, Some(STORE));
        assert!(until_written(&[client(SERVER, 32 * MIB), log, store()]).1);
        let idle = server(400, 64 * MIB, Some(STORE));
        assert!(!until_written(&[client(STORE, 32 * MIB), idle, store()]).1);
    }

    #[test]
    fn storage__a_full_log_takes_no_more_than_the_store() {
        let log = server(400, 8 * MIB, Some(STORE));
        let store = server(100, u64::MAX, None);
        let staged = writes_for(&[client(SERVER, 32 * MIB), log, store]);
        // Eight of 32 stay in the log.
        assert!((240..270).contains(&staged), "{staged}");
    }
}
