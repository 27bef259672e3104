//! Runs the engines of the congestion test and those of a staging mount, or of its server, over one
//! wire: for congestors that write a checkpoint.
//!
//! # Model
//! A client makes calls as a mount makes them for writes: a header and 1 MiB of data, as many calls
//! as the server's frames allow, over a reliable lane of the load's class. The server answers when a
//! call has arrived whole. The first call has no data, as that of a mount, and the others wait for
//! its answer. Nothing is stored: what a checkpoint does to others on the network is
//! asked. Data counts as load where it arrives.
//!
//! # Invariants
//! I1. Where no load is of a staging server, inputs and effects are those of the engines inside.
//! I2. No header is of both: one of the congestion test begins with a number below 16, and one of a
//!     reliable lane of any class but the first with a greater one.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use clearway_fs::network::WINDOW;
use clearway_proto::base::{BitsPerSec, Bytes, Class, LocalNs, Nanos, RandomKey, Rank};
use clearway_proto::calls::{
    CallClient, CallCommand, CallConfig, CallEvent, CallServer, ClientPacer, DATA_MAX, FRAME,
    PacerConfig, Parcel, ServerCallCommand, ServerCallEvent, frame_memory,
};
use clearway_proto::congestion::{
    CongestionEvent, LoadKind, LoadSeries, LoadTask, MarkCount, Phase, PhaseRecord, SliceBytes,
    StagingLoad, StagingPace, VictimTask,
};
use clearway_proto::reliable::{ReliableWire, StreamConfig};
use clearway_proto::wire::{
    Arrival, Capabilities, Datagram, Driver, Engine, Input, More, Operation, Out, RegionId, Span,
    Token, Wire,
};

use super::cast_load::TestWithCast;
use super::effect_wire::EffectWire;

/// Bytes of the header of a write, rounded up: the request of a mount with its file, place and time.
const REQUEST: u32 = 64;
/// Bytes of the header of an answer, rounded up.
const RESPONSE: u32 = 16;
/// Calls that a client has made: more than a server has frames for.
const CALLS: usize = 2 * (WINDOW / (DATA_MAX / FRAME)) as usize;
/// The bit of a token that says whose it is: a broadcast's has one of the bits 56 and 57 besides, and
/// one of the congestion test has neither.
const OWN: u64 = 1 << 63;
/// The first byte of a header that is none of the congestion test's.
const FIRST: u8 = 16;
/// The low half of a first byte that says: a fragment with data.
const DATA: u8 = 1;
/// Times that the engines are asked in one step.
const TURNS_MAX: usize = 16;

/// All engines of a rank.
#[derive(Debug)]
pub(crate) struct TestWithStaging {
    test: TestWithCast,
    /// What parts in staging have of the wire, each kind of part its own.
    memories: Vec<StagingMemory>,
    seat: Option<StagingSeat>,
    /// Those of phases whose record was not taken.
    left: Vec<StagingSeat>,
    /// Tokens of operations under way, as the reliable wire knows them.
    tokens: BTreeMap<u64, Token>,
    last_token: u64,
    /// Bytes of the longest message that travels as one.
    message_max: u32,
}

#[derive(Clone, Debug)]
struct StagingMemory {
    rank: Rank,
    capabilities: Capabilities,
    /// For a server, or a client; and how many ranks have room.
    need: SeatNeed,
    /// In the order in which a seat registers them; the last has what is sent.
    regions: Vec<RegionId>,
}

/// What the memory of a seat depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SeatNeed {
    part: StagingPart,
    ranks: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StagingPart {
    Client(Rank),
    Server,
}

/// A rank's part in one phase.
#[derive(Debug)]
struct StagingSeat {
    need: SeatNeed,
    class: Class,
    load: StagingLoad,
    phase: u32,
    begin: LocalNs,
    slice: Nanos,
    overhead: Bytes,
    from: LocalNs,
    until: LocalNs,
    is_to_come: bool,
    engines: Option<Box<SeatEngines>>,
    series: BTreeMap<Rank, LoadSeries>,
    marks: BTreeMap<(Class, Option<Class>), u64>,
}

/// The engines of a seat.
#[derive(Debug)]
struct SeatEngines {
    wire: ReliableWire<EffectWire>,
    calls: CallEnd,
    /// What is sent.
    memory: RegionId,
    class: Class,
    next: Option<LocalNs>,
    /// A server's that sets the pace, and the class of its probes.
    pacer: Option<(ClientPacer<Rank>, Class)>,
}

#[derive(Debug)]
enum CallEnd {
    Client { driver: Box<Driver<CallClient>>, made: u64, open: usize },
    Server(Box<Driver<CallServer>>),
}

impl StagingMemory {
    /// Returns whether it is what a part with this need registers.
    fn serves(&self, need: SeatNeed) -> bool {
        self.need.ranks == need.ranks && self.need.lengths() == need.lengths()
    }
}

impl SeatNeed {
    fn new(load: &StagingLoad, me: Rank) -> Self {
        let part =
            if load.server == me { StagingPart::Server } else { StagingPart::Client(load.server) };
        Self { part, ranks: load.ranks }
    }

    /// Returns the lengths of frames and of what is sent.
    const fn lengths(&self) -> [Bytes; 2] {
        match self.part {
            StagingPart::Client(_) => {
                [frame_memory(1, WINDOW), Bytes(DATA_MAX as u64 + REQUEST as u64)]
            }
            StagingPart::Server => [frame_memory(self.ranks, WINDOW), Bytes(RESPONSE as u64)],
        }
    }

    /// Returns a reliable wire over `below`, as a mount and its server have one.
    fn wire(&self, below: EffectWire, incarnation: u32) -> Result<ReliableWire<EffectWire>> {
        // Each mount has a wire of its own, of two ranks.
        ReliableWire::new(below, self.ranks, &StreamConfig::new(2), incarnation)
            .map_err(|missing| anyhow!("no staging over this wire: {missing}"))
    }
}

impl TestWithStaging {
    /// Creates the engines on `wire`.
    pub(crate) fn new(wire: &mut dyn Wire, body_max: u32, key: RandomKey) -> Result<Self> {
        Ok(Self {
            test: TestWithCast::new(wire, body_max, key)?,
            memories: Vec::new(),
            seat: None,
            left: Vec::new(),
            tokens: BTreeMap::new(),
            last_token: 0,
            message_max: body_max,
        })
    }

    /// Gets from `wire` what `loads` need; a symbol of a broadcast is no longer than `symbol_max`.
    ///
    /// # Errors
    /// One sentence: the wire lacks something, or memory.
    pub(crate) fn prepare<'a>(
        &mut self,
        wire: &mut dyn Wire,
        loads: impl IntoIterator<Item = &'a LoadKind> + Clone,
        symbol_max: u32,
    ) -> Result<()> {
        let me = wire.rank();
        let staging = loads.clone().into_iter().filter_map(staging_of);
        let need = staging.map(|load| SeatNeed::new(load, me)).max_by_key(|need| need.ranks);
        if let Some(need) = need {
            self.prepare_seat(wire, need)?;
        }
        self.test.prepare(wire, loads, symbol_max)
    }

    /// Gets from `wire` the memory that `victim` needs, unless the last one needed as much.
    ///
    /// # Errors
    /// There is no more memory.
    pub(crate) fn prepare_victim(
        &mut self,
        wire: &mut dyn Wire,
        victim: &VictimTask,
    ) -> Result<()> {
        self.test.prepare_victim(wire, victim)
    }

    /// Gets from `wire` what the phase that was begun last needs.
    pub(crate) fn prepare_phase(&mut self, wire: &mut dyn Wire) -> Result<()> {
        if let Some(seat) = &self.seat {
            let need = seat.need;
            self.prepare_seat(wire, need)?;
        }
        self.test.prepare_phase(wire)
    }

    fn prepare_seat(&mut self, wire: &mut dyn Wire, need: SeatNeed) -> Result<()> {
        if self.memories.iter().any(|memory| memory.serves(need)) {
            return Ok(());
        }
        let (rank, mut capabilities) = (wire.rank(), wire.capabilities().clone());
        capabilities.message_max = capabilities.message_max.min(self.message_max as usize);
        let asking = EffectWire::new(rank, capabilities.clone(), wire.now(), &[]);
        let mut lengths = need.wire(asking, 0)?.below().asked.clone();
        lengths.extend(need.lengths());
        let mut regions = Vec::with_capacity(lengths.len());
        for length in lengths {
            let region = wire.register(length);
            regions
                .push(region.map_err(|_| anyhow!("there is no {length} of memory for staging"))?);
        }
        self.memories.push(StagingMemory { rank, capabilities, need, regions });
        Ok(())
    }

    /// Returns the record of the earliest phase that ended and was not taken yet.
    pub(crate) fn take_record(&mut self) -> Option<PhaseRecord> {
        let mut record = self.test.take_record()?;
        self.left.extend(self.seat.take_if(|seat| seat.phase == record.number));
        for seat in self.left.extract_if(.., |seat| seat.phase == record.number) {
            let marks = seat.marks.into_iter();
            record.marks.extend(marks.map(|((asked, arrived), messages)| MarkCount {
                asked,
                arrived,
                messages,
            }));
            record.load.extend(seat.series.into_values());
        }
        Some(record)
    }

    fn begin(&mut self, phase: &Phase, me: Rank) {
        self.left.extend(self.seat.take());
        // What ends now means nothing to a wire that is made anew.
        self.tokens.clear();
        let loads = phase.loads.iter().filter_map(|load| Some((load, staging_of(&load.kind)?)));
        let seats = loads.map(|(task, load)| StagingSeat::new(phase, task, load, me));
        // The server of several groups is one.
        self.seat = seats.max_by_key(|seat| seat.need.ranks);
    }

    /// Begins, continues and ends what is due.
    fn tick_seat(&mut self, now: LocalNs, out: &mut Out<CongestionEvent>) -> More {
        let Some(seat) = &mut self.seat else { return More::No };
        if now >= seat.until {
            (seat.engines, seat.is_to_come) = (None, false);
        } else if now >= seat.from && seat.is_to_come {
            seat.is_to_come = false;
            let memory = self.memories.iter().find(|memory| memory.serves(seat.need));
            seat.engines = memory.and_then(|memory| seat.open(now, memory));
        }
        self.step(now, out)
    }

    /// Lets the engines do what they can, and forwards what they ask for.
    fn step(&mut self, now: LocalNs, out: &mut Out<CongestionEvent>) -> More {
        let engines = self.seat.as_mut().and_then(|seat| seat.engines.as_mut());
        let Some(engines) = engines else { return More::No };
        engines.step(now);
        let leaving = &mut engines.wire.below_mut().leaving;
        while out.room() > 0 {
            let Some((mut operation, bytes)) = leaving.pop_front() else { return More::No };
            if let Operation::Send { head, .. } = &mut operation {
                *head = out.head(&bytes);
            }
            if let Some(token) = token_of(&mut operation) {
                self.last_token += 1;
                self.tokens.insert(self.last_token, *token);
                *token = Token(OWN | self.last_token);
            }
            out.operate(operation);
        }
        if leaving.is_empty() { More::No } else { More::Yes }
    }

    /// Gives what the wire brought to the seat, and lets it go on.
    fn bring(
        &mut self,
        now: LocalNs,
        arrival: Arrival<'_>,
        out: &mut Out<CongestionEvent>,
    ) -> More {
        if let Some(engines) = self.seat.as_mut().and_then(|seat| seat.engines.as_mut()) {
            engines.wire.below_mut().bring(arrival);
        }
        self.step(now, out)
    }

    fn arrival(
        &mut self,
        now: LocalNs,
        arrival: Arrival<'_>,
        out: &mut Out<CongestionEvent>,
    ) -> More {
        match arrival {
            Arrival::Datagram(datagram) if is_staging(datagram.head) && self.seat.is_some() => {
                self.seat.iter_mut().for_each(|seat| seat.count(&datagram));
                self.bring(now, arrival, out)
            }
            Arrival::Done { token, status, value, at } if token.0 >> KIND_SHIFT == OWN_KIND => {
                let token = self.tokens.remove(&(token.0 & !OWN));
                let done = token.map(|token| Arrival::Done { token, status, value, at });
                done.map_or(More::No, |done| self.bring(now, done, out))
            }
            Arrival::Room { .. } => {
                let more = self.bring(now, arrival, out);
                either(more, self.test.input(now, Input::Arrival(arrival), out))
            }
            other => self.test.input(now, Input::Arrival(other), out),
        }
    }
}

/// From here on a token says whose it is.
const KIND_SHIFT: u32 = 56;
/// What one of ours says there.
const OWN_KIND: u64 = OWN >> KIND_SHIFT;

/// Returns a part in staging, if `kind` is one.
const fn staging_of(kind: &LoadKind) -> Option<&StagingLoad> {
    match kind {
        LoadKind::Staging(load) => Some(load),
        _ => None,
    }
}

/// Returns whether a header is that of a reliable lane.
fn is_staging(head: &[u8]) -> bool {
    head.first().is_some_and(|first| *first >= FIRST)
}

const fn either(a: More, b: More) -> More {
    match (a, b) {
        (More::No, More::No) => More::No,
        _ => More::Yes,
    }
}

/// Returns the token of what a reliable wire asks for.
const fn token_of(operation: &mut Operation) -> Option<&mut Token> {
    match operation {
        Operation::Send { token, .. } => token.as_mut(),
        Operation::Digest { token, .. } | Operation::CopyChecked { token, .. } => Some(token),
        _ => None,
    }
}

impl StagingSeat {
    fn new(phase: &Phase, task: &LoadTask, load: &StagingLoad, me: Rank) -> Self {
        let need = SeatNeed::new(load, me);
        // A client must not come before its server.
        let from = if need.part == StagingPart::Server { Nanos::ZERO } else { task.from };
        Self {
            need,
            class: task.class,
            load: *load,
            phase: phase.number,
            begin: phase.begin,
            slice: phase.slice,
            overhead: phase.overhead,
            from: phase.begin + from,
            until: phase.begin + task.until,
            is_to_come: true,
            engines: None,
            series: BTreeMap::new(),
            marks: BTreeMap::new(),
        }
    }

    /// Makes the engines; `None` where the wire has no room for them, which was found out before.
    fn open(&self, now: LocalNs, memory: &StagingMemory) -> Option<Box<SeatEngines>> {
        let below = EffectWire::new(memory.rank, memory.capabilities.clone(), now, &memory.regions);
        let mut wire = self.need.wire(below, self.phase).ok()?;
        let [frames, sent] = self.need.lengths();
        let frames = wire.register(frames).ok()?;
        let sent = wire.register(sent).ok()?;
        let config = CallConfig::new(frames, WINDOW, wire.capabilities());
        let pacer = match (self.load.pace, self.need.part) {
            (StagingPace::Server { probes }, StagingPart::Server) => {
                let config = PacerConfig { link: self.load.rate, floor: BitsPerSec(0) };
                Some((ClientPacer::new(now, config), probes))
            }
            _ => None,
        };
        let calls = match self.need.part {
            StagingPart::Client(server) => {
                let driver = Driver::boot_lean(CallClient::new(server, &config), now, 0);
                CallEnd::Client { driver: Box::new(driver), made: 0, open: 0 }
            }
            StagingPart::Server => {
                let server = CallServer::new(memory.rank, self.need.ranks, &config);
                CallEnd::Server(Box::new(Driver::boot_lean(server, now, 0)))
            }
        };
        Some(Box::new(SeatEngines {
            wire,
            calls,
            memory: sent,
            class: self.class,
            next: None,
            pacer,
        }))
    }

    /// Returns when something is to be done for it.
    fn deadline(&self) -> Option<LocalNs> {
        match &self.engines {
            Some(engines) => Some(engines.next.map_or(self.until, |next| next.min(self.until))),
            None => self.is_to_come.then_some(self.from),
        }
    }

    /// Counts data that arrived.
    fn count(&mut self, datagram: &Datagram<'_>) {
        let Some(first) = datagram.head.first().filter(|first| **first & 15 == DATA) else {
            return;
        };
        if datagram.body.length == 0 {
            return;
        }
        let at = datagram.at.instant();
        let asked = Class::ALL.get(usize::from(*first >> 4)).copied().unwrap_or(self.class);
        *self.marks.entry((asked, datagram.class)).or_default() += 1;
        let since = at.since(self.begin);
        let slice = u32::try_from(since.steps_of(self.slice)).unwrap_or(u32::MAX);
        let series = self.series.entry(datagram.from).or_insert_with(|| LoadSeries {
            peer: datagram.from,
            class: asked,
            slices: Vec::new(),
            longest_gap: Nanos::ZERO,
        });
        if series.slices.last().is_none_or(|last| last.slice < slice) {
            series.slices.push(SliceBytes { slice, ..SliceBytes::default() });
        }
        if let Some(last) = series.slices.last_mut() {
            let body = u64::from(datagram.body.length);
            last.messages += 1;
            last.body += body;
            last.link += body + datagram.head.len() as u64 + self.overhead.0;
        }
    }
}

impl SeatEngines {
    /// Makes calls or answers them until nothing is left to do now.
    fn step(&mut self, now: LocalNs) {
        self.wire.below_mut().now = now;
        for _ in 0..TURNS_MAX {
            let (next, has_more) = match &mut self.calls {
                CallEnd::Client { driver, made, open } => {
                    let (mut returned, wire) = (Vec::new(), &mut self.wire);
                    let progress = driver.step(wire, &mut |event| {
                        if let CallEvent::Returned(parcel) = event {
                            returned.push(parcel.number);
                        }
                    });
                    let has_more = !returned.is_empty() || *open < CALLS;
                    for number in returned {
                        *open -= 1;
                        driver.command(now, CallCommand::Release(number));
                    }
                    // A server that sets a pace answers the first call with it.
                    while *open < CALLS && (*made, *open) != (1, 1) {
                        (*open, *made) = (*open + 1, *made + 1);
                        let at = |offset, length| Span { region: self.memory, offset, length };
                        let data = if *made == 1 { 0 } else { DATA_MAX };
                        let (header, data) = (at(0, REQUEST), at(u64::from(REQUEST), data));
                        let request = Parcel { number: *made, class: self.class, header, data };
                        driver.command(now, CallCommand::Call { request, response_max: 0 });
                    }
                    (progress.next, has_more)
                }
                CallEnd::Server(driver) => {
                    let (mut called, mut echoes) = (Vec::new(), Vec::new());
                    let progress = driver.step(&mut self.wire, &mut |event| match event {
                        ServerCallEvent::Called { client, request } => {
                            called.push((client, request.number, request.class));
                        }
                        ServerCallEvent::Echoed { sent_at, latency, .. } => {
                            echoes.push((sent_at, latency));
                        }
                        _ => {}
                    });
                    let pacer = self.pacer.as_mut();
                    let paced = pacer.map(|pacer| pace_clients(now, driver, pacer, &echoes));
                    let (ordered, paced) = paced.unwrap_or_default();
                    let has_more = ordered || !called.is_empty();
                    let header = Span { region: self.memory, offset: 0, length: RESPONSE };
                    for (client, number, class) in called {
                        let response = Parcel { number, class, header, data: Span::EMPTY };
                        driver.command(now, ServerCallCommand::Answer { client, response });
                    }
                    (progress.next.into_iter().chain(paced).min(), has_more)
                }
            };
            self.next = next;
            if !has_more {
                return;
            }
        }
        self.next = Some(now);
    }
}

/// Probes and paces clients; returns whether there were orders, and when there are the next.
fn pace_clients(
    now: LocalNs,
    driver: &mut Driver<CallServer>,
    (pacer, class): &mut (ClientPacer<Rank>, Class),
    echoes: &[(LocalNs, Nanos)],
) -> (bool, Option<LocalNs>) {
    let newest: Vec<_> = driver.engine_mut().newest_data().collect();
    newest.iter().for_each(|(client, at)| pacer.data(now, *client, *at));
    echoes.iter().for_each(|(sent_at, latency)| pacer.echo(*sent_at, *latency));
    let (mut ordered, mut next) = (false, None);
    for (client, _) in newest {
        while let Some(order) = pacer.poll(now, client) {
            ordered = true;
            driver.command(now, ServerCallCommand::from_order(order, client, *class));
        }
        next = next.into_iter().chain(pacer.deadline(client)).min();
    }
    (ordered, next)
}

impl Engine for TestWithStaging {
    /// A phase to run. One that is still under way is ended at once.
    type Command = Phase;
    type Event = CongestionEvent;

    fn input(
        &mut self,
        now: LocalNs,
        input: Input<'_, Phase>,
        out: &mut Out<CongestionEvent>,
    ) -> More {
        if let Input::Command(phase) = &input {
            let me = self.test.rank();
            self.begin(phase, me);
        }
        match input {
            Input::Arrival(arrival) => self.arrival(now, arrival, out),
            Input::Tick => {
                let more = self.tick_seat(now, out);
                either(more, self.test.input(now, Input::Tick, out))
            }
            other => self.test.input(now, other, out),
        }
    }

    fn deadline(&self) -> Option<LocalNs> {
        let seat = self.seat.as_ref().and_then(StagingSeat::deadline);
        [seat, self.test.deadline()].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use clearway_proto::wire::memory::{MemoryConfig, MemoryFabric};

    use super::*;

    /// A phase in which rank 0 serves, or has no load.
    fn phase(number: u32, pace: Option<StagingPace>) -> Phase {
        let staging = |pace| LoadTask {
            kind: LoadKind::Staging(StagingLoad {
                server: Rank(0),
                ranks: 2,
                rate: BitsPerSec::mega(1000),
                pace,
            }),
            class: Class::Bulk,
            from: Nanos::from_micros(20),
            until: Nanos::from_micros(300),
        };
        Phase {
            number,
            begin: LocalNs(u64::from(number) * 1_000_000),
            length: Nanos::from_micros(400),
            drain: Nanos::ZERO,
            slice: Nanos::from_micros(100),
            overhead: Bytes(28),
            victim: None,
            loads: pace.into_iter().map(staging).collect(),
        }
    }

    /// Runs phases one behind the other; the server's records.
    fn records(phases: &[Phase]) -> Vec<PhaseRecord> {
        let mut fabric = MemoryFabric::new(MemoryConfig::lossless(2));
        let mut drivers = [0, 1].map(|rank| {
            let wire = fabric.wire(Rank(rank));
            let engine = TestWithStaging::new(wire, 1024, RandomKey::new(1)).expect("room");
            Driver::boot(engine, LocalNs(0), 0)
        });
        let mut records = Vec::new();
        for phase in phases {
            for (rank, driver) in (0..).map(Rank).zip(&mut drivers) {
                driver.command(fabric.wire(rank).now(), phase.clone());
                driver.engine_mut().prepare_phase(fabric.wire(rank)).expect("memory");
            }
            let mut now = fabric.wire(Rank(0)).now();
            while now < phase.begin + phase.length + Nanos::from_micros(10) {
                for (rank, driver) in (0..).map(Rank).zip(&mut drivers) {
                    let _ = driver.step(fabric.wire(rank), &mut |_| ());
                }
                now += Nanos::from_micros(1);
                fabric.advance(now);
            }
            records.extend(drivers[0].engine_mut().take_record());
            let _ = drivers[1].engine_mut().take_record();
        }
        records
    }

    fn bytes(record: &PhaseRecord) -> u64 {
        record.load.iter().flat_map(|series| &series.slices).map(|slice| slice.body).sum()
    }

    #[test]
    fn phase__what_a_client_writes_is_load_of_its_class_at_the_server_and_ends_in_time() {
        let all = records(&[phase(1, Some(StagingPace::Lanes)), phase(2, None)]);
        let [staged, quiet] = &all[..] else { panic!("{} records", all.len()) };
        assert!(bytes(staged) > 64 << 10, "{}", bytes(staged));
        assert_eq!((staged.load[0].peer, staged.load[0].class), (Rank(1), Class::Bulk));
        assert!(staged.load[0].slices.iter().all(|slice| slice.slice <= 3));
        assert_eq!((bytes(quiet), staged.foreign), (0, 0));
    }

    #[test]
    fn pace__a_server_that_sets_it_gets_no_more_than_the_link_carries() {
        let probes = Class::LowLatency;
        let all = records(&[
            phase(1, Some(StagingPace::Server { probes })),
            phase(2, Some(StagingPace::Lanes)),
        ]);
        let [paced, free] = &all[..] else { panic!("{} records", all.len()) };
        assert!((1..bytes(free) / 2).contains(&bytes(paced)), "{} {}", bytes(paced), bytes(free));
    }

    #[test]
    fn is_staging__no_header_of_the_congestion_test_is() {
        use clearway_proto::congestion::CongestionFrame;
        for first in FIRST..=u8::MAX {
            let head = [[first, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0], [0; 11]].concat();
            for length in 0..=head.len() {
                assert!(CongestionFrame::parse(&head[..length]).is_none());
            }
        }
    }
}
