//! The congestion test's engine, and next to it that of broadcasts, over one wire: for congestors
//! that cast.
//!
//! # Model
//! A rank whose load is a broadcast is a member of it from the load's beginning to its end, when
//! all members drop what they have: what a broadcast does to others is asked, not whether it
//! succeeds. The first member has some objects under way at any time. What comes new to a member
//! counts as load that arrived, so that nothing counts twice that was sent twice.
//!
//! # Invariants
//! I1. Where no load is a broadcast, inputs and effects are those of the congestion test's engine
//!     alone.
//! I2. No header is both engines': see [`CastMembership::key`]. No token is: see [`MARK`].

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use anyhow::{Result, anyhow};
use clearway_proto::base::{Bytes, Class, GroupId, LocalNs, Nanos, RandomKey, Rank};
use clearway_proto::broadcast::{Algorithm, BroadcastCommand, Member, SlowReceivers};
use clearway_proto::congestion::{
    BroadcastLoad, BroadcastLoadAlgorithm, CongestionFrame, LoadKind, LoadSeries, LoadTask,
    MarkCount, Phase, PhaseRecord, SliceBytes, VictimTask,
};
use clearway_proto::wire::{
    Arrival, Datagram, Effect, Engine, Input, More, Operation, OperationKind, Out, RegionId, Span,
    TimedOperation, Token, Wire,
};
use clearway_proto::{broadcast, congestion};

/// Objects under way: while one is becoming stable, others leave.
const PLACES: usize = 4;
/// Symbols under way to the slowest member: as many as objects of a megabyte have in packets of
/// Ethernet.
const WINDOW: u32 = 4096;
/// Nobody is put out: a member that hears nothing is one that congestion keeps it from.
const SILENCE: Nanos = Nanos::from_secs(30);
/// Short messages between two synchronisations: there are none.
const SYNC_EVERY: u32 = 16;
/// Bytes of a symbol's header.
const HEAD: u64 = 42;
/// A token of a broadcast's engine has one of its kinds from this bit on, where one of the
/// congestion test has nothing.
const KIND: u32 = 56;
/// From here on it has nothing, and gets its seat's mark.
const MARK: u32 = 58;
/// Broadcasts of one rank; the bit above tells two phases apart that follow each other.
pub(crate) const CASTS_MAX: usize = 32;
/// Effects of a broadcast in one step that find room without growth.
const EFFECTS: usize = 256;
/// A step that finds less room than this waits for the next: what one input of a broadcast may
/// cause.
const ROOM: usize = 64;

/// Both engines.
#[derive(Debug)]
pub(crate) struct TestWithCast {
    rank: Rank,
    test: congestion::CongestionNode,
    cast_memory: Option<CastMemory>,
    /// How much memory victims were given.
    memory: Bytes,
    /// The number of the phase under way, and its broadcasts.
    phase: u32,
    seats: Vec<CastMembership>,
    /// Those of phases whose record was not taken.
    left: Vec<CastMembership>,
    out: Out<broadcast::BroadcastEvent>,
}

/// What broadcasts have of a rank's wire.
#[derive(Clone, Copy, Debug)]
struct CastMemory {
    rank: Rank,
    region: RegionId,
    /// How many broadcasts have room there.
    casts: usize,
    symbol: u32,
    has_multicast: bool,
}

/// A rank's part in one broadcast.
#[derive(Debug)]
struct CastMembership {
    cast: BroadcastLoad,
    class: Class,
    /// Its place among all of this rank's.
    place: usize,
    phase: u32,
    begin: LocalNs,
    slice: Nanos,
    overhead: Bytes,
    from: LocalNs,
    until: LocalNs,
    is_to_come: bool,
    node: Option<Box<broadcast::BroadcastNode>>,
    /// Symbols that were counted.
    counted: u64,
    series: LoadSeries,
    marks: BTreeMap<(Class, Option<Class>), u64>,
    /// Memory of its first object; of the others that of the first.
    memory: Span,
    /// What the engine is to be asked.
    commands: VecDeque<BroadcastCommand>,
}

impl TestWithCast {
    /// Creates the engines on `wire`.
    pub(crate) fn new(wire: &mut dyn Wire, body_max: u32, key: RandomKey) -> Result<Self> {
        let length = Bytes(u64::from(body_max));
        let region = wire.register(length).map_err(|missing| anyhow!("{missing}"))?;
        let test = congestion::CongestionNode::new(congestion::CongestionConfig {
            rank: wire.rank(),
            payload: Span { region, offset: 0, length: body_max },
            body_max,
            memory: None,
            shared_clock: wire.capabilities().shared_clock,
            key,
        });
        let out = Out::with_limit(EFFECTS);
        Ok(Self {
            rank: wire.rank(),
            test,
            cast_memory: None,
            memory: Bytes(0),
            phase: 0,
            seats: Vec::new(),
            left: Vec::new(),
            out,
        })
    }

    /// Returns this rank.
    pub(crate) const fn rank(&self) -> Rank {
        self.rank
    }

    /// Gets from `wire` what `loads` need; a symbol is no longer than `symbol_max`.
    ///
    /// # Errors
    /// One sentence: the wire lacks something, or memory.
    pub(crate) fn prepare<'a>(
        &mut self,
        wire: &mut dyn Wire,
        loads: impl IntoIterator<Item = &'a LoadKind>,
        symbol_max: u32,
    ) -> Result<()> {
        let casts: Vec<&BroadcastLoad> = loads.into_iter().filter_map(cast_of).collect();
        if casts.is_empty() {
            return Ok(());
        }
        let has_multicast = wire.capabilities().operations.has(OperationKind::Multicast);
        for cast in casts
            .iter()
            .filter(|cast| has_multicast && cast.way == BroadcastLoadAlgorithm::Multicast)
        {
            wire.join(GroupId(cast.group))
                .map_err(|missing| anyhow!("the group of a broadcast: {missing}"))?;
        }
        if self.cast_memory.is_some_and(|cast_memory| cast_memory.casts >= casts.len()) {
            return Ok(());
        }
        let symbol = broadcast::BroadcastConfig::symbol_max(wire.capabilities());
        let symbol = symbol.ok_or_else(|| {
            anyhow!("this wire lacks messages, copies or digests, so nothing can be cast")
        })?;
        let length: u64 = casts.iter().map(|cast| cast.object.0 * PLACES as u64).sum();
        let region = wire.register(Bytes(length));
        let region = region
            .map_err(|_| anyhow!("{} of memory for broadcasts are not to be had", Bytes(length)))?;
        let symbol = symbol.min(symbol_max);
        self.cast_memory = Some(CastMemory {
            rank: wire.rank(),
            region,
            casts: casts.len(),
            symbol,
            has_multicast,
        });
        Ok(())
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
        let length = victim.memory();
        if length <= self.memory {
            return Ok(());
        }
        let region = wire.register(length);
        let region = region
            .map_err(|_| anyhow!("{length} of memory for gathered blocks are not to be had"))?;
        let me = wire.rank();
        if let Some(memory) = wire.region_mut(region) {
            VictimTask::fill(memory, me);
        }
        self.memory = length;
        self.test.give_memory(Span { region, offset: 0, length: length.0 as u32 });
        Ok(())
    }

    /// Gets from `wire` what the phase that was begun last needs.
    pub(crate) fn prepare_phase(&mut self, wire: &mut dyn Wire) -> Result<()> {
        if let Some(victim) = self.test.victim().cloned() {
            self.prepare_victim(wire, &victim)?;
        }
        let loads: Vec<LoadKind> =
            self.seats.iter().map(|seat| LoadKind::Cast(seat.cast.clone())).collect();
        self.prepare(wire, &loads, u32::MAX)
    }

    /// Returns the record of the earliest phase that ended and was not taken yet.
    pub(crate) fn take_record(&mut self) -> Option<PhaseRecord> {
        let mut record = self.test.take_record()?;
        if record.number == self.phase {
            self.left.append(&mut self.seats);
        }
        for seat in self.left.extract_if(.., |seat| seat.phase == record.number) {
            let marks = seat.marks.into_iter();
            record.marks.extend(marks.map(|((asked, arrived), messages)| MarkCount {
                asked,
                arrived,
                messages,
            }));
            record.load.push(seat.series);
        }
        Some(record)
    }

    fn begin(&mut self, phase: &Phase) {
        self.left.append(&mut self.seats);
        self.phase = phase.number;
        let loads = phase.loads.iter().filter_map(|load| Some((load, cast_of(&load.kind)?)));
        self.seats = loads
            .enumerate()
            .map(|(place, (load, cast))| CastMembership::new(place, phase, load, cast))
            .collect();
    }

    /// Returns whether a header is of the congestion test's phase under way.
    fn is_of_test(&self, head: &[u8]) -> bool {
        CongestionFrame::parse(head).is_some_and(|(_, phase, _)| phase == self.phase)
    }

    /// Gives `input` to the broadcast at `place`, and what follows from it to `out`.
    fn input_to(
        &mut self,
        place: usize,
        now: LocalNs,
        input: Input<'_, BroadcastCommand>,
        out: &mut Out<congestion::CongestionEvent>,
    ) -> More {
        let Some(seat) = self.seats.get_mut(place) else { return More::No };
        let (Some(node), Some(cast_memory)) = (&mut seat.node, self.cast_memory) else {
            return More::No;
        };
        let is_root = cast_memory.rank == seat.series.peer;
        let mut more = node.input(now, input, &mut self.out);
        loop {
            seat.count(now, cast_memory.symbol);
            let (effects, heads) = self.out.split();
            for effect in effects {
                match effect {
                    Effect::Notify(event) => seat.handle_event(event, is_root),
                    Effect::Operate(timed) => forward(timed, heads, seat.mark(), out),
                }
            }
            self.out.clear();
            let (Some(command), Some(node)) = (seat.commands.pop_front(), &mut seat.node) else {
                return more;
            };
            more = either(more, node.input(now, Input::Command(command), &mut self.out));
        }
    }

    /// Begins, continues and ends what is due.
    fn tick_casts(&mut self, now: LocalNs, out: &mut Out<congestion::CongestionEvent>) -> More {
        let mut more = More::No;
        for place in 0..self.seats.len() {
            let seat = &mut self.seats[place];
            if now >= seat.until {
                (seat.node, seat.is_to_come) = (None, false);
            } else if now >= seat.from && seat.is_to_come {
                seat.is_to_come = false;
                let Some(cast_memory) = self.cast_memory else { continue };
                seat.join(&cast_memory);
                more = either(more, self.input_to(place, now, Input::Boot { incarnation: 0 }, out));
            } else if seat
                .node
                .as_ref()
                .is_some_and(|node| node.deadline().is_some_and(|at| at <= now))
            {
                if out.room() < ROOM {
                    return More::Yes;
                }
                more = either(more, self.input_to(place, now, Input::Tick, out));
            }
        }
        more
    }

    fn arrival(
        &mut self,
        now: LocalNs,
        arrival: Arrival<'_>,
        out: &mut Out<congestion::CongestionEvent>,
    ) -> More {
        match arrival {
            Arrival::Datagram(datagram) if self.is_of_test(datagram.head) => {}
            Arrival::Datagram(datagram) => {
                self.seats.iter_mut().for_each(|seat| seat.see_mark(&datagram));
                return self.input_to_all(now, arrival, out);
            }
            Arrival::Done { token, status, value, at } if token.0 >> KIND != 0 => {
                let mark = (token.0 >> MARK) as usize;
                let token = Token(token.0 & ((1 << MARK) - 1));
                let done = Input::Arrival(Arrival::Done { token, status, value, at });
                let place = self.seats.iter().position(|seat| seat.mark() == mark);
                return place.map_or(More::No, |place| self.input_to(place, now, done, out));
            }
            Arrival::Done { .. } => {}
            // A queue that has room has it for both.
            other => {
                let more = self.input_to_all(now, other, out);
                return either(more, self.test.input(now, Input::Arrival(other), out));
            }
        }
        self.test.input(now, Input::Arrival(arrival), out)
    }

    fn input_to_all(
        &mut self,
        now: LocalNs,
        arrival: Arrival<'_>,
        out: &mut Out<congestion::CongestionEvent>,
    ) -> More {
        let places = 0..self.seats.len();
        places.fold(More::No, |more, place| {
            either(more, self.input_to(place, now, Input::Arrival(arrival), out))
        })
    }
}

/// Returns a broadcast, if `kind` is one.
const fn cast_of(kind: &LoadKind) -> Option<&BroadcastLoad> {
    match kind {
        LoadKind::Cast(cast) => Some(cast),
        LoadKind::Flows(_) | LoadKind::Burn { .. } | LoadKind::Staging(_) => None,
    }
}

const fn either(a: More, b: More) -> More {
    match (a, b) {
        (More::No, More::No) => More::No,
        _ => More::Yes,
    }
}

/// Asks for what a broadcast's engine asks for, with its token marked.
fn forward(
    timed: TimedOperation,
    heads: &[u8],
    mark: usize,
    out: &mut Out<congestion::CongestionEvent>,
) {
    let marked = |token: Token| Token(token.0 | (mark as u64) << MARK);
    let mut operation = timed.operation;
    match &mut operation {
        Operation::Send { head, token, .. } => {
            *head = out.head(head.bytes_in(heads).unwrap_or_default());
            *token = token.map(marked);
        }
        Operation::Digest { token, .. } => *token = marked(*token),
        // It asks for nothing else with a token.
        _ => {}
    }
    match timed.not_before {
        Some(at) => out.operate_at(at, operation),
        None => out.operate(operation),
    }
}

impl CastMembership {
    fn new(place: usize, phase: &Phase, load: &LoadTask, cast: &BroadcastLoad) -> Self {
        let root = cast.members.first().copied().unwrap_or(Rank(0));
        Self {
            cast: cast.clone(),
            class: load.class,
            place,
            phase: phase.number,
            begin: phase.begin,
            slice: phase.slice,
            overhead: phase.overhead,
            from: phase.begin + load.from,
            until: phase.begin + load.until,
            is_to_come: true,
            node: None,
            counted: 0,
            marks: BTreeMap::new(),
            series: LoadSeries {
                peer: root,
                class: load.class,
                slices: Vec::new(),
                longest_gap: Nanos::ZERO,
            },
            memory: Span::EMPTY,
            commands: VecDeque::new(),
        }
    }

    fn mark(&self) -> usize {
        self.place % CASTS_MAX + self.phase as usize % 2 * CASTS_MAX
    }

    /// Tells this broadcast from others, as far as they may be on the wire at once. In a header its
    /// lower half stands where the congestion test's have the upper half of a phase's number, and
    /// that is zero in all runs.
    fn key(&self) -> u32 {
        self.phase << 16 | (u32::from(self.cast.group) % 0xffff + 1)
    }

    /// Takes part.
    fn join(&mut self, cast_memory: &CastMemory) {
        let object = self.cast.object.0;
        let offset = self.place as u64 * PLACES as u64 * object;
        self.memory = Span { region: cast_memory.region, offset, length: object as u32 };
        let way = match self.cast.way {
            BroadcastLoadAlgorithm::Multicast => Algorithm::Multicast,
            BroadcastLoadAlgorithm::Chain => Algorithm::Chain,
            BroadcastLoadAlgorithm::Tree => Algorithm::Tree,
        };
        let group = (way == Algorithm::Multicast && cast_memory.has_multicast)
            .then_some(GroupId(self.cast.group));
        let members: Arc<[Member]> =
            self.cast.members.iter().map(|rank| Member { rank: *rank, leaf: 0 }).collect();
        self.node = Some(Box::new(broadcast::BroadcastNode::new(broadcast::BroadcastConfig {
            rank: cast_memory.rank,
            members,
            root: self.series.peer,
            group,
            key: self.key(),
            symbol: cast_memory.symbol,
            window: WINDOW,
            history: 2 * WINDOW,
            slots: Span { length: 0, ..self.memory },
            rate: Some(self.cast.rate),
            first_rate: None,
            sync_every: SYNC_EVERY,
            silence: SILENCE,
            slow_receivers: SlowReceivers::Wait,
            algorithm: way,
            class: self.class,
            control: self.cast.control,
        })));
        let is_root = cast_memory.rank == self.series.peer;
        self.commands = (0..PLACES).map(|number| self.command(number as u32, is_root)).collect();
    }

    /// Returns what is asked for object `number`, of the root or of another member.
    fn command(&self, number: u32, is_root: bool) -> BroadcastCommand {
        let offset =
            self.memory.offset + u64::from(number % PLACES as u32) * u64::from(self.memory.length);
        let at = Span { offset, ..self.memory };
        if is_root {
            BroadcastCommand::Cast { from: at }
        } else {
            BroadcastCommand::Place { into: at }
        }
    }

    /// Counts the mark of a message of this broadcast.
    fn see_mark(&mut self, datagram: &Datagram<'_>) {
        if self.cast.members.contains(&datagram.from) {
            let asked = if datagram.body.length > 0 { self.class } else { self.cast.control };
            *self.marks.entry((asked, datagram.class)).or_default() += 1;
        }
    }

    /// Returns when something is to be done for it.
    fn deadline(&self) -> Option<LocalNs> {
        match &self.node {
            Some(node) => Some(node.deadline().map_or(self.until, |at| at.min(self.until))),
            None => self.is_to_come.then_some(self.from),
        }
    }

    fn handle_event(&mut self, event: broadcast::BroadcastEvent, is_root: bool) {
        // Whatever else happens shows in what arrives.
        if let broadcast::BroadcastEvent::Stable { object, .. } = event {
            let command = self.command(object.wrapping_add(PLACES as u32), is_root);
            self.commands.push_back(command);
        }
    }

    /// Counts what came new.
    fn count(&mut self, now: LocalNs, symbol: u32) {
        let received = self.node.as_ref().map_or(0, |node| node.record().received);
        let new = received.saturating_sub(self.counted);
        if new == 0 {
            return;
        }
        self.counted = received;
        let slice = u32::try_from(now.since(self.begin).steps_of(self.slice)).unwrap_or(u32::MAX);
        let slices = &mut self.series.slices;
        if slices.last().is_none_or(|last| last.slice != slice) {
            slices.push(SliceBytes { slice, ..SliceBytes::default() });
        }
        if let Some(last) = slices.last_mut() {
            last.messages += new;
            last.body += new * u64::from(symbol);
            last.link += new * (u64::from(symbol) + HEAD + self.overhead.0);
        }
    }
}

impl Engine for TestWithCast {
    /// A phase to run. One that is still under way is ended at once.
    type Command = Phase;
    type Event = congestion::CongestionEvent;

    fn input(
        &mut self,
        now: LocalNs,
        input: Input<'_, Phase>,
        out: &mut Out<congestion::CongestionEvent>,
    ) -> More {
        if let Input::Command(phase) = &input {
            self.begin(phase);
        }
        if self.seats.is_empty() {
            return self.test.input(now, input, out);
        }
        match input {
            Input::Arrival(arrival) => self.arrival(now, arrival, out),
            Input::Tick => {
                let more = self.tick_casts(now, out);
                either(more, self.test.input(now, Input::Tick, out))
            }
            other => self.test.input(now, other, out),
        }
    }

    fn deadline(&self) -> Option<LocalNs> {
        let seats = self.seats.iter().filter_map(CastMembership::deadline);
        seats.chain(self.test.deadline()).min()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clearway_proto::base::BitsPerSec;

    use super::*;

    fn seat(phase: u32, place: usize, group: u16) -> CastMembership {
        let cast = BroadcastLoad {
            members: [0, 1].map(Rank).into(),
            way: BroadcastLoadAlgorithm::Chain,
            object: Bytes(1 << 20),
            rate: BitsPerSec::mega(100),
            group,
            control: Class::Control,
        };
        let load = LoadTask {
            kind: LoadKind::Cast(cast.clone()),
            class: Class::Bulk,
            from: Nanos::ZERO,
            until: Nanos::from_secs(1),
        };
        let phase = Phase {
            number: phase,
            begin: LocalNs(0),
            length: Nanos::from_secs(1),
            drain: Nanos::ZERO,
            slice: Nanos::from_millis(100),
            overhead: Bytes(28),
            victim: None,
            loads: vec![load.clone()],
        };
        CastMembership::new(place, &phase, &load, &cast)
    }

    #[test]
    fn key__tells_groups_apart_and_is_of_no_phase() {
        let keys: BTreeSet<u32> = (0..5)
            .flat_map(|phase| [0, 1, 2, 77].map(|group| seat(phase, 0, group).key()))
            .collect();
        assert_eq!(keys.len(), 20);
        for group in [0, 1, u16::MAX - 1, u16::MAX] {
            assert_ne!(seat(3, 0, group).key() & 0xffff, 0);
        }
    }

    #[test]
    fn mark__tells_broadcasts_of_a_rank_and_phases_that_follow_each_other_apart() {
        let marks: BTreeSet<usize> = [7, 8]
            .into_iter()
            .flat_map(|phase| (0..CASTS_MAX).map(move |place| seat(phase, place, 0).mark()))
            .collect();
        assert_eq!(marks.len(), 2 * CASTS_MAX);
        assert!(marks.iter().all(|mark| *mark < 1 << (u64::BITS - MARK)));
    }

    #[test]
    fn forward__a_token_comes_back_as_it_was() {
        let (mut out, mark) = (Out::with_limit(8), seat(8, 5, 0).mark());
        let token = Token(1 << KIND | 0x1234);
        let operation = Operation::Digest { of: Span::EMPTY, token };
        forward(TimedOperation { operation, not_before: None }, &[], mark, &mut out);
        let Some(Effect::Operate(timed)) = out.effects().first() else { panic!("an operation") };
        let marked = timed.operation.token().expect("a token");
        assert_eq!(
            ((marked.0 >> MARK) as usize, Token(marked.0 & ((1 << MARK) - 1))),
            (mark, token)
        );
    }
}
