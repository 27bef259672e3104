//! The processes of a node: one of an application, a writer, or a server.
//!
//! # Model
//! A process of the application repeats its steps. Every message is a write with a number, the
//! step's since the beginning, so that messages of later steps may come early. A writer keeps slots:
//! a request is written into the server's memory, the server answers at once, and after a pause the
//! slot writes again. That is `dd` on a file system in user space: one request at a time, with what
//! the kernel and both programs take between two of them.
//!
//! # Not here
//! Acknowledgement by the wire means memory; no disk is behind a server.

use std::collections::BTreeMap;

use clearway_proto::base::{Class, LocalNs, Nanos, Rank};
use clearway_proto::stats::Histogram;
use clearway_proto::wire::{
    Arrival, Destination, Engine, Input, More, Operation, Out, PathId, RegionId, RemoteSpan, Span,
};

use super::pattern::Step;

/// The class of the application, and of what is written.
pub(super) const APPLICATION: Class = Class::LowLatency;
pub(super) const WRITTEN: Class = Class::Bulk;

/// What a process does.
#[derive(Clone, Debug)]
pub(super) enum ProcessRole {
    /// A part of an application.
    Application(ApplicationPart),
    /// A writer.
    Writer(WriterPart),
    /// A server, or nothing.
    Waiting,
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
    pub(super) const fn record(&self) -> &ProcessRecord {
        &self.record
    }

    fn write(&self, to: Rank, bytes: u32, class: Class, number: u64) -> Operation {
        Operation::Write {
            to,
            path: PathId(0),
            class,
            from: Span { region: self.memory, offset: 0, length: bytes },
            into: RemoteSpan { region: self.memory, offset: 0 },
            immediate: Some(number),
            token: None,
        }
    }

    /// Does what can be done of the application's steps.
    fn advance(&mut self, now: LocalNs, out: &mut Out<()>) -> More {
        let ProcessRole::Application(part) = &self.role else { return More::No };
        while now >= part.begin && self.step < part.all_steps() {
            let in_iteration = (self.step % part.steps.len() as u64) as usize;
            let Some(step) = part.steps.get(in_iteration) else { return More::No };
            if in_iteration == 0 {
                self.since.get_or_insert(now);
            }
            while let Some((to, bytes)) = step.sends.get(self.posted) {
                if out.room() == 0 {
                    return More::Yes;
                }
                out.operate(self.write(*to, *bytes, APPLICATION, self.step));
                self.posted += 1;
            }
            if self.here.get(&self.step).copied().unwrap_or_default() < step.waits {
                return More::No;
            }
            self.here.remove(&self.step);
            self.posted = 0;
            self.step += 1;
            if in_iteration + 1 == part.steps.len()
                && let Some(since) = self.since.take()
                && self.step > part.unmeasured()
            {
                let taken = now.since(since).0;
                self.record.iterations.record(taken);
                self.record.sum += taken;
            }
        }
        More::No
    }

    /// Writes what is due.
    fn write_requests(&mut self, now: LocalNs, out: &mut Out<()>) -> More {
        let ProcessRole::Writer(part) = &self.role else { return More::No };
        let is_due = |next: &Option<LocalNs>| next.is_some_and(|next| next <= now);
        let due: Vec<usize> =
            (0..part.slots.len()).filter(|slot| is_due(&part.slots[*slot])).collect();
        let (server, request, count) = (part.server, part.request, due.len().min(out.room()));
        for slot in due.iter().take(count) {
            out.operate(self.write(server, request, WRITTEN, *slot as u64));
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
            _ => {}
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
    use clearway_proto::wire::{Effect, Stamp};

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
