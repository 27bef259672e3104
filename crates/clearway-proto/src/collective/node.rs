//! One rank's part in the operations of a group.
//!
//! # Model
//! ```text
//!   command -> step 0 -> step 1 -> .. -> complete        each step: send (if it has a receiver), then wait (if it has a sender)
//! ```
//! What comes for a step lies at its place, by operation and step, until the step takes it. Blocks go into memory when they come. What was
//! posted and is not over is kept, to be posted again when a queue was full.
//!
//! # Invariants
//! I1. Memory is set by the number of ranks and the length of blocks; what a peer sends cannot make it grow.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::frame::{Frame, Kind, LONGEST, Part};
use super::{Command, Config, Event, Failure, Lower, Numbers, RANKS_MAX};
use crate::base::{Head, LocalNs, Nanos, Place, Rank, STEPS_MAX, Schedule};
use crate::wire::{
    Arrival, Datagram, Destination, Engine, Input, Missing, More, Operation, Out, RegionId, Span, Status, Token,
};

/// How long a message is waited for until its sender is asked something, whereby the wire finds out whether it is there: one answer a
/// second costs nothing, and wires take longer to give somebody up.
const ASK_AFTER: Nanos = Nanos::from_secs(1);
/// Messages posted and not over: those of two operations, and words about a failure.
const FLIGHTS: usize = 4 * STEPS_MAX;
/// Effects of one step of an operation.
const EFFECTS: usize = 4;
const _: () = assert!(Place { rank: 0, ranks: RANKS_MAX }.steps(Schedule::Allreduce) as usize <= STEPS_MAX);

impl Kind {
    const fn schedule(self) -> Schedule {
        match self {
            Self::Barrier => Schedule::Barrier,
            Self::Reduce(_) => Schedule::Allreduce,
            Self::Gather => Schedule::Allgather,
        }
    }
}

/// The operation that runs.
#[derive(Clone, Copy, Debug)]
struct Running {
    kind: Kind,
    step: u32,
    is_sent: bool,
    numbers: Numbers,
}

/// A message that was posted and is not over.
#[derive(Clone, Copy, Debug)]
struct Flight {
    to: u32,
    head: Head<LONGEST>,
    body: Span,
}

/// One rank's part in the operations of a group.
#[derive(Debug)]
pub struct Node {
    config: Config,
    place: Place,
    /// The operation that runs or ran last, counted from 1.
    operation: u64,
    running: Option<Running>,
    /// What came, by parity of the operation and by step.
    came: [[Option<Part>; STEPS_MAX]; 2],
    flights: Vec<Option<Flight>>,
    /// Flights that found no room.
    stuck: VecDeque<usize>,
    /// Since when something is waited for, or somebody was asked.
    waits_since: Option<LocalNs>,
    failed: Option<Failure>,
    wants_more: bool,
    strange: u64,
}

impl Node {
    /// A member that has done nothing yet; `None` for no rank of a group, or a group of more than [`super::RANKS_MAX`].
    pub fn new(config: Config) -> Option<Self> {
        let is_possible = config.rank.0 < config.ranks && config.ranks <= RANKS_MAX;
        is_possible.then(|| Self {
            place: Place { rank: config.rank.0, ranks: config.ranks },
            config,
            operation: 0,
            running: None,
            came: [[None; STEPS_MAX]; 2],
            flights: (0..FLIGHTS).map(|_| None).collect(),
            stuck: VecDeque::with_capacity(FLIGHTS),
            waits_since: None,
            failed: None,
            wants_more: false,
            strange: 0,
        })
    }

    /// Where the block of `rank` lies when an allgather is complete; `None` without blocks.
    pub fn block_of(&self, rank: Rank) -> Option<Span> {
        let ranks = self.config.ranks;
        let place = (rank.0 + ranks).checked_sub(self.config.rank.0)? % ranks;
        (rank.0 < ranks).then(|| self.blocks(self.operation, place, 1))?
    }

    /// Messages that counted for nothing: no rank of this group writes such.
    pub const fn strangers(&self) -> u64 {
        self.strange
    }

    /// `count` blocks of an operation from `place` on: those of this rank, the next one, and so on.
    fn blocks(&self, operation: u64, place: u32, count: u32) -> Option<Span> {
        let region = self.config.blocks?;
        let block = u64::from(self.config.block);
        let start = (operation % 2) * u64::from(self.config.ranks) + u64::from(place);
        Some(Span { region, offset: start * block, length: count.checked_mul(self.config.block)? })
    }

    fn begin(&mut self, now: LocalNs, command: Command, out: &mut Out<Event>) {
        if let Some(failure) = self.failed {
            return out.tell(Event::Failed(failure));
        }
        let (kind, numbers) = match command {
            Command::Barrier => (Kind::Barrier, Numbers::default()),
            Command::Allreduce { reduction, numbers } => (Kind::Reduce(reduction), numbers),
            Command::Allgather { .. } => (Kind::Gather, Numbers::default()),
        };
        if self.running.is_some() {
            return out.tell(Event::Failed(Failure::Refused));
        }
        if let Command::Allgather { own } = command {
            let place = self.blocks(self.operation + 1, 0, 1);
            let Some(into) = place.filter(|place| place.length == own.length && own.region != RegionId::RECEIVE) else {
                return out.tell(Event::Failed(Failure::Refused));
            };
            if own.length > 0 {
                out.operate(Operation::Copy { from: own, into });
            }
        }
        self.operation += 1;
        self.running = Some(Running { kind, step: 0, is_sent: false, numbers });
        self.waits_since = None;
        self.advance(now, out);
    }

    /// Goes on as far as what has come allows.
    fn advance(&mut self, now: LocalNs, out: &mut Out<Event>) {
        self.wants_more = false;
        while let Some(running) = self.running {
            if out.room() < EFFECTS {
                self.wants_more = true;
                return;
            }
            let schedule = running.kind.schedule();
            if running.step == self.place.steps(schedule) {
                (self.running, self.waits_since) = (None, None);
                out.tell(Event::Complete(running.numbers));
                return;
            }
            let step = self.place.step(schedule, running.step);
            let (kind, numbers) = (running.kind, running.numbers);
            if let Some(to) = step.to.filter(|_| !running.is_sent) {
                let part = Part { kind, operation: self.operation, step: running.step as u8, numbers };
                let body = self.blocks(self.operation, 0, step.blocks).filter(|_| kind == Kind::Gather);
                if !self.send(to, &Frame::Part(part), body.unwrap_or(Span::EMPTY), out) {
                    return;
                }
                self.running = Some(Running { is_sent: true, ..running });
            }
            let Some(numbers) = self.take(now, running, step.from, out) else { return };
            self.running = Some(Running { kind, step: running.step + 1, is_sent: false, numbers });
            self.waits_since = None;
        }
    }

    /// The numbers after a step; nothing while what it waits for has not come, or it is not what it should be.
    fn take(&mut self, now: LocalNs, running: Running, from: Option<u32>, out: &mut Out<Event>) -> Option<Numbers> {
        let Some(from) = from else { return Some(running.numbers) };
        let Some(part) = self.came[(self.operation % 2) as usize][running.step as usize].take() else {
            self.waits_since = self.waits_since.or(Some(now));
            return None;
        };
        let mut numbers = running.numbers;
        if part.kind != running.kind || part.numbers.words().len() != numbers.words().len() {
            self.fail(Failure::Differs(Rank(from)), out);
            return None;
        }
        if let Kind::Reduce(reduction) = running.kind {
            let is_result = running.step + 1 == self.place.steps(Schedule::Allreduce);
            if is_result {
                return Some(part.numbers);
            }
            let lower = if from < self.place.rank { Lower::Other } else { Lower::Own };
            numbers.combine(reduction, &part.numbers, lower);
        }
        Some(numbers)
    }

    /// Posts a message; `false` while as many are under way as there may be.
    fn send(&mut self, to: u32, frame: &Frame, body: Span, out: &mut Out<Event>) -> bool {
        let Some(slot) = self.flights.iter().position(Option::is_none) else { return false };
        self.flights[slot] = Some(Flight { to, head: frame.encode(), body });
        self.post(slot, out);
        true
    }

    fn post(&self, slot: usize, out: &mut Out<Event>) {
        if let Some(Flight { to, head, body }) = &self.flights[slot] {
            let token = Some(Token(slot as u64));
            out.send(Destination::One(Rank(*to)), self.config.class, head.bytes(), *body, token);
        }
    }

    fn datagram(&mut self, now: LocalNs, datagram: Datagram<'_>, out: &mut Out<Event>) {
        let frame = Frame::parse(datagram.head).filter(|_| datagram.from.0 < self.config.ranks);
        match frame {
            Some(Frame::Part(part)) => self.part(now, datagram, part, out),
            Some(Frame::Lost(rank)) => self.fail(Failure::Lost(rank), out),
            Some(Frame::Question) => {
                if let Some(failure) = self.failed {
                    self.send(datagram.from.0, &Frame::Lost(self.to_blame(failure)), Span::EMPTY, out);
                }
            }
            None => self.strange += 1,
        }
    }

    fn part(&mut self, now: LocalNs, datagram: Datagram<'_>, part: Part, out: &mut Out<Event>) {
        let schedule = part.kind.schedule();
        let ahead = part.operation.checked_sub(self.operation);
        let is_due = ahead == Some(1) || ahead == Some(0) && self.running.is_some();
        let is_step = u32::from(part.step) < self.place.steps(schedule);
        let step = is_step.then(|| self.place.step(schedule, part.step.into()));
        let Some(step) = step.filter(|step| is_due && step.from == Some(datagram.from.0)) else {
            self.strange += 1;
            return;
        };
        if part.kind == Kind::Gather {
            let into = self.blocks(part.operation, 1 << part.step, step.blocks);
            let Some(into) = into.filter(|into| into.length == datagram.body.length) else {
                self.strange += 1;
                return self.fail(Failure::Differs(datagram.from), out);
            };
            if into.length > 0 {
                out.operate(Operation::Copy { from: datagram.body, into });
            }
        }
        self.came[(part.operation % 2) as usize][usize::from(part.step)] = Some(part);
        self.advance(now, out);
    }

    /// Whom others are told of: a rank that does something else has its own opinion of who does.
    const fn to_blame(&self, failure: Failure) -> Rank {
        match failure {
            Failure::Lost(rank) | Failure::Differs(rank) => rank,
            Failure::Refused => self.config.rank,
        }
    }

    /// Nothing completes any more; this rank and all others are told why.
    fn fail(&mut self, failure: Failure, out: &mut Out<Event>) {
        if self.failed.is_some() {
            return;
        }
        (self.failed, self.running, self.waits_since) = (Some(failure), None, None);
        out.tell(Event::Failed(failure));
        let lost = Frame::Lost(self.to_blame(failure));
        for to in self.place.neighbours() {
            self.send(to, &lost, Span::EMPTY, out);
        }
    }

    /// A message is over.
    fn done(&mut self, now: LocalNs, slot: usize, status: Status, out: &mut Out<Event>) {
        let Some(Some(flight)) = self.flights.get(slot).copied() else { return };
        if status == Status::NoRoom {
            return self.stuck.push_back(slot);
        }
        self.flights[slot] = None;
        match status {
            Status::Complete | Status::NoRoom => {}
            Status::Flushed | Status::Refused(Missing::Rank) => self.fail(Failure::Lost(Rank(flight.to)), out),
            Status::Refused(_) => self.fail(Failure::Refused, out),
        }
        self.advance(now, out);
    }

    fn tick(&mut self, now: LocalNs, out: &mut Out<Event>) {
        self.advance(now, out);
        let is_due = self.waits_since.is_some_and(|since| since + ASK_AFTER <= now);
        if let Some(running) = self.running.filter(|_| is_due) {
            self.waits_since = Some(now);
            let from = self.place.step(running.kind.schedule(), running.step).from;
            let is_asked = |from: &u32| self.flights.iter().flatten().any(|flight| flight.to == *from);
            if let Some(from) = from.filter(|from| !is_asked(from)) {
                self.send(from, &Frame::Question, Span::EMPTY, out);
            }
        }
    }
}

impl Engine for Node {
    type Command = Command;
    type Event = Event;

    fn input(&mut self, now: LocalNs, input: Input<'_, Command>, out: &mut Out<Event>) -> More {
        match input {
            Input::Boot { .. } => {}
            Input::Tick => self.tick(now, out),
            Input::Command(command) => self.begin(now, command, out),
            Input::Arrival(arrival) => match arrival {
                Arrival::Datagram(datagram) => self.datagram(now, datagram, out),
                Arrival::Done { token, status, .. } => self.done(now, token.0 as usize, status, out),
                Arrival::Room { .. } => {
                    for _ in 0..self.stuck.len() {
                        if let Some(slot) = self.stuck.pop_front() {
                            self.post(slot, out);
                        }
                    }
                }
                _ => {}
            },
        }
        if self.wants_more { More::Yes } else { More::No }
    }

    fn deadline(&self) -> Option<LocalNs> {
        self.waits_since.map(|since| since + ASK_AFTER)
    }
}
