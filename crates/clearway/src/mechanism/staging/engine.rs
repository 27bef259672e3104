//! The processes of a node: one of an application, a writer, or a server.
//!
//! # Model
//! A process of the application repeats its steps. Every message is a write with a number, the
//! step's since the beginning, so that messages of later steps may come early; a step is over when its
//! messages are here and its own long ones have ended. What finds no room at
//! the interface is posted again when there is some. A writer keeps slots:
//! a request is written into the server's memory, the server answers at once, and after a pause the
//! slot writes again. That is `dd` on a file system in user space: one request at a time, with what
//! the kernel and both programs take between two of them.
//!
//! # Not here
//! Acknowledgement by the wire means memory; no disk is behind a server. Checkpoints: `storage`.

use std::collections::{BTreeMap, VecDeque};

use clearway_proto::base::{Class, LocalNs, Nanos, Rank};
use clearway_proto::stats::Histogram;
use clearway_proto::wire::{
    Arrival, Destination, Engine, Input, More, Operation, Out, PathId, RegionId, RemoteSpan, Span,
    Status, Token,
};

use super::pattern::Step;
use super::storage::StoragePart;

/// The class of the application, and of what is written.
pub(super) const APPLICATION: Class = Class::LowLatency;
pub(super) const WRITTEN: Class = Class::Bulk;

/// Messages of up to this many bytes always find room: nobody waits for their end, as in libraries
/// that copy short messages.
const SHORT: u32 = 8 << 10;

/// A message of a process.
#[derive(Clone, Copy, Debug)]
struct ProcessMessage {
    to: Rank,
    bytes: u32,
    class: Class,
    number: u64,
}

/// What a process does.
#[derive(Clone, Debug)]
pub(super) enum ProcessRole {
    /// A part of an application.
    Application(ApplicationPart),
    /// A writer.
    Writer(WriterPart),
    /// A server, or nothing.
    Waiting,
    /// A part of what carries a checkpoint; another engine plays it.
    Storage(StoragePart),
}

/// What one process of an application does.
#[derive(Clone, Debug)]
pub(super) struct ApplicationPart {
    /// The steps of an iteration.
    pub(super) steps: Vec<Step>,
    /// Iterations that are not measured, and those that are.
    pub(super) iterations: [u32; 2],
    /// When it begins.
    pub(super) begin: LocalNs,
}

/// What the writers of a node do.
#[derive(Clone, Debug)]
pub(super) struct WriterPart {
    pub(super) server: Rank,
    /// Bytes of a request.
    pub(super) request: u32,
    pub(super) pause: Nanos,
    /// When each slot writes next; none while its request is under way.
    pub(super) slots: Vec<Option<LocalNs>>,
    /// From when on requests are counted.
    pub(super) begin: LocalNs,
}

/// What a process counted.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessRecord {
    /// Times of measured iterations, in ns.
    pub(super) iterations: Histogram,
    /// Their sum, exactly.
    pub(super) sum: u64,
    /// Requests that were answered since the application began.
    pub(super) requests: u64,
    /// How long it wrote its part of a checkpoint.
    pub(super) wrote_for: Option<Nanos>,
}

/// One process.
#[derive(Debug)]
pub(super) struct ProcessEngine {
    role: ProcessRole,
    /// The bytes of every message.
    memory: RegionId,
    /// The step under way since the beginning, and how many of its sends are posted.
    step: u64,
    posted: usize,
    /// Long messages that have not ended, by token, and those that found no room.
    under_way: BTreeMap<u64, ProcessMessage>,
    tokens: u64,
    refused: VecDeque<ProcessMessage>,
    is_full: bool,
    /// The first thing that went wrong.
    fault: Option<String>,
    /// Messages that are here, by step.
    here: BTreeMap<u64, u32>,
    /// When the iteration under way began.
    since: Option<LocalNs>,
    record: ProcessRecord,
}

impl ProcessEngine {
    /// Creates a process whose messages are from and into `memory`.
    pub(super) fn new(role: ProcessRole, memory: RegionId) -> Self {
        Self {
            role,
            memory,
            step: 0,
            posted: 0,
            under_way: BTreeMap::new(),
            tokens: 0,
            refused: VecDeque::new(),
            is_full: false,
            fault: None,
            here: BTreeMap::new(),
            since: None,
            record: ProcessRecord::default(),
        }
    }

    /// Returns whether this is no process of the application, or one that did all iterations.
    pub(super) fn is_over(&self) -> bool {
        match &self.role {
            ProcessRole::Application(part) => self.step >= part.all_steps(),
            _ => true,
        }
    }

    /// Returns what was counted.
    ///
    /// # Errors
    /// One sentence: what went wrong.
    pub(super) fn record(&self) -> Result<&ProcessRecord, String> {
        self.fault.clone().map_or(Ok(&self.record), Err)
    }

    /// Posts a message.
    fn post(&mut self, message: ProcessMessage, out: &mut Out<()>) {
        let ProcessMessage { to, bytes, class, number } = message;
        let token = (bytes > SHORT).then(|| {
            self.tokens += 1;
            self.under_way.insert(self.tokens, message);
            Token(self.tokens)
        });
        out.operate(Operation::Write {
            to,
            path: PathId(0),
            class,
            from: Span { region: self.memory, offset: 0, length: bytes },
            into: RemoteSpan { region: self.memory, offset: 0 },
            immediate: Some(number),
            token,
        });
    }

    /// Takes the end of a long message.
    fn ended(&mut self, token: Token, status: Status) {
        let Some(message) = self.under_way.remove(&token.0) else { return };
        match status {
            Status::Complete => {}
            Status::NoRoom => {
                self.refused.push_back(message);
                self.is_full = true;
            }
            other => {
                let why = format!("a message of {} bytes ended as {other:?}", message.bytes);
                self.fault.get_or_insert(why);
            }
        }
    }

    /// Posts again what found no room; whether nothing is left of it.
    fn post_again(&mut self, out: &mut Out<()>) -> bool {
        while !self.is_full
            && out.room() > 0
            && let Some(message) = self.refused.pop_front()
        {
            self.post(message, out);
        }
        self.refused.is_empty()
    }

    /// Does what can be done of the application's steps.
    fn advance(&mut self, now: LocalNs, out: &mut Out<()>) -> More {
        loop {
            let ProcessRole::Application(part) = &self.role else { return More::No };
            if now < part.begin || self.step >= part.all_steps() {
                return More::No;
            }
            let in_iteration = (self.step % part.steps.len() as u64) as usize;
            let is_last = in_iteration + 1 == part.steps.len();
            let (unmeasured, step) = (part.unmeasured(), part.steps.get(in_iteration));
            let Some(Step { sends, waits }) = step else { return More::No };
            let (next, waits) = (sends.get(self.posted).copied(), *waits);
            if in_iteration == 0 {
                self.since.get_or_insert(now);
            }
            if let Some((to, bytes)) = next {
                if self.is_full {
                    return More::No;
                }
                if out.room() == 0 {
                    return More::Yes;
                }
                let number = self.step;
                self.post(ProcessMessage { to, bytes, class: APPLICATION, number }, out);
                self.posted += 1;
                continue;
            }
            let here = self.here.get(&self.step).copied().unwrap_or_default();
            if here < waits || !self.under_way.is_empty() || !self.refused.is_empty() {
                return More::No;
            }
            self.here.remove(&self.step);
            self.posted = 0;
            self.step += 1;
            if is_last
                && let Some(since) = self.since.take()
                && self.step > unmeasured
            {
                let taken = now.since(since).0;
                self.record.iterations.record(taken);
                self.record.sum += taken;
            }
        }
    }

    /// Writes what is due.
    fn write_requests(&mut self, now: LocalNs, out: &mut Out<()>) -> More {
        let ProcessRole::Writer(part) = &self.role else { return More::No };
        let is_due = |next: &Option<LocalNs>| next.is_some_and(|next| next <= now);
        let due: Vec<usize> =
            (0..part.slots.len()).filter(|slot| is_due(&part.slots[*slot])).collect();
        let (server, request, count) = (part.server, part.request, due.len().min(out.room()));
        for slot in due.iter().take(count) {
            let number = *slot as u64;
            self.post(ProcessMessage { to: server, bytes: request, class: WRITTEN, number }, out);
            if let ProcessRole::Writer(part) = &mut self.role {
                part.slots[*slot] = None;
            }
        }
        if count < due.len() { More::Yes } else { More::No }
    }

    /// Takes a message that is here, or a request.
    fn landed(&mut self, from: Rank, number: u64, out: &mut Out<()>) {
        match &self.role {
            ProcessRole::Application(_) => *self.here.entry(number).or_default() += 1,
            _ => {
                let slot = (number as u32).to_le_bytes();
                out.send(Destination::One(from), WRITTEN, &slot, Span::EMPTY, None);
            }
        }
    }

    /// Takes the answer to the request of a slot.
    fn answered(&mut self, head: &[u8], now: LocalNs) {
        let ProcessRole::Writer(part) = &mut self.role else { return };
        let Ok(slot) = head.try_into().map(u32::from_le_bytes) else { return };
        if let Some(next) = part.slots.get_mut(slot as usize) {
            *next = Some(now + part.pause);
            self.record.requests += u64::from(now >= part.begin);
        }
    }
}

impl ApplicationPart {
    fn all_steps(&self) -> u64 {
        let [before, measured] = self.iterations.map(u64::from);
        (before + measured) * self.steps.len() as u64
    }

    fn unmeasured(&self) -> u64 {
        u64::from(self.iterations[0]) * self.steps.len() as u64
    }
}

impl Engine for ProcessEngine {
    type Command = ();
    type Event = ();

    fn input(&mut self, now: LocalNs, input: Input<'_, ()>, out: &mut Out<()>) -> More {
        match input {
            Input::Arrival(Arrival::Landed { from, immediate, .. }) => {
                self.landed(from, immediate, out);
            }
            Input::Arrival(Arrival::Datagram(datagram)) => self.answered(datagram.head, now),
            Input::Arrival(Arrival::Done { token, status, .. }) => self.ended(token, status),
            Input::Arrival(Arrival::Room { .. }) => self.is_full = false,
            _ => {}
        }
        if !self.post_again(out) {
            return if self.is_full { More::No } else { More::Yes };
        }
        match self.role {
            ProcessRole::Application(_) => self.advance(now, out),
            _ => self.write_requests(now, out),
        }
    }

    fn deadline(&self) -> Option<LocalNs> {
        match &self.role {
            ProcessRole::Application(part) if self.since.is_none() && self.step == 0 => {
                Some(part.begin)
            }
            ProcessRole::Writer(part) => part.slots.iter().flatten().min().copied(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use clearway_proto::wire::{Effect, Queue, Stamp};

    use super::*;

    fn landed(number: u64) -> Arrival<'static> {
        let at = Stamp::Taken(LocalNs(0));
        Arrival::Landed { from: Rank(1), into: Span::EMPTY, immediate: number, at }
    }

    /// The numbers of the messages that leave.
    fn leaving(out: &mut Out<()>) -> Vec<u64> {
        let (effects, _) = out.split();
        let numbers: Vec<u64> = effects
            .filter_map(|effect| match effect {
                Effect::Operate(timed) => match timed.operation {
                    Operation::Write { immediate, .. } => immediate,
                    _ => None,
                },
                Effect::Notify(()) => None,
            })
            .collect();
        out.clear();
        numbers
    }

    #[test]
    fn advance__messages_of_later_steps_may_come_early_and_iterations_are_timed() {
        let step = |sends: u32, waits| Step { sends: vec![(Rank(1), 8); sends as usize], waits };
        let part = ApplicationPart {
            steps: vec![step(1, 1), step(2, 1)],
            iterations: [1, 1],
            begin: LocalNs(100),
        };
        let mut engine = ProcessEngine::new(ProcessRole::Application(part), RegionId(0));
        let mut out = Out::with_limit(64);
        assert_eq!(engine.deadline(), Some(LocalNs(100)));
        let mut at = |now, number: Option<u64>| {
            let input = number.map_or(Input::Tick, |number| Input::Arrival(landed(number)));
            let _ = engine.input(LocalNs(now), input, &mut out);
            (leaving(&mut out), engine.record.sum, engine.is_over())
        };
        assert_eq!(at(100, None), (vec![0], 0, false));
        assert_eq!(at(110, Some(1)), (vec![], 0, false), "early");
        assert_eq!(at(120, Some(0)), (vec![1, 1, 2], 0, false));
        assert_eq!(at(130, Some(2)), (vec![3, 3], 0, false));
        assert_eq!(at(150, Some(3)), (vec![], 30, true));
    }

    #[test]
    fn ended__what_found_no_room_is_posted_again_when_there_is_some() {
        let sends = vec![(Rank(1), 64 << 10); 3];
        let part = ApplicationPart {
            steps: vec![Step { sends, waits: 1 }, Step { sends: vec![(Rank(2), 8)], waits: 0 }],
            iterations: [0, 1],
            begin: LocalNs(0),
        };
        let mut engine = ProcessEngine::new(ProcessRole::Application(part), RegionId(0));
        let mut out = Out::with_limit(64);
        let mut take = |arrival: Option<Arrival<'static>>| {
            let input = arrival.map_or(Input::Tick, Input::Arrival);
            let _ = engine.input(LocalNs(0), input, &mut out);
            leaving(&mut out).len()
        };
        let done = |token, status| {
            Some(Arrival::Done { token: Token(token), status, value: 0, at: LocalNs(0) })
        };
        assert_eq!(take(None), 3);
        assert_eq!(take(done(2, Status::NoRoom)) + take(done(3, Status::NoRoom)), 0);
        assert_eq!(take(Some(landed(0))), 0, "the next step waits behind them");
        let queue = Queue::Path { path: PathId(0), class: APPLICATION };
        assert_eq!(take(Some(Arrival::Room { queue })), 2);
        assert_eq!(take(done(1, Status::Complete)) + take(done(4, Status::Complete)), 0);
        assert_eq!(take(done(5, Status::Complete)), 1, "the next step");
        assert!(engine.is_over() && engine.record().is_ok());
        let message = ProcessMessage { to: Rank(1), bytes: 1 << 20, class: WRITTEN, number: 0 };
        engine.post(message, &mut out);
        engine.ended(Token(6), Status::Flushed);
        assert!(engine.record().is_err());
    }

    #[test]
    fn answered__a_slot_writes_again_after_its_pause() {
        let part = WriterPart {
            server: Rank(9),
            request: 4096,
            pause: Nanos(50),
            slots: vec![Some(LocalNs(0)); 2],
            begin: LocalNs(200),
        };
        let mut engine = ProcessEngine::new(ProcessRole::Writer(part), RegionId(0));
        let mut out = Out::with_limit(64);
        let _ = engine.input(LocalNs(0), Input::Tick, &mut out);
        assert_eq!((leaving(&mut out), engine.deadline()), (vec![0, 1], None));
        engine.answered(&1u32.to_le_bytes(), LocalNs(100));
        assert_eq!((engine.deadline(), engine.record.requests), (Some(LocalNs(150)), 0));
        let _ = engine.input(LocalNs(150), Input::Tick, &mut out);
        assert_eq!(leaving(&mut out), [1]);
        engine.answered(&1u32.to_le_bytes(), LocalNs(200));
        engine.answered(&[7], LocalNs(200));
        assert_eq!((engine.deadline(), engine.record.requests), (Some(LocalNs(250)), 1));
    }
}
