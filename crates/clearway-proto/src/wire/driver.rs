//! Runs one engine over one wire: feeds inputs, applies effects in order, holds what is paced,
//! completes tokens once.
//!
//! # Model
//! A step is: poll, give every arrival to the engine, tick it if due, post the operations, give
//! back what completed at once; again until nothing is left to do at this instant or the step's
//! budget is spent. The same driver runs on virtual time (tests, simulator) and on real clocks
//! (`clearway-runtime` adds only the waiting).
//!
//! # Invariants
//! I1. `Tick` is given only when the deadline is due or the engine asked for more.
//! I2. A token that was issued comes back exactly once, refused or not.
//! I3. Held operations leave in the order of (`not_before`, order of issue).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::{
    APPLY_MAX, Arrival, Effect, Engine, Fault, HeadRef, Input, More, Operation, OperationKind, Out,
    PostOutcome, RefusalReason, SHOW_MAX, Span, Status, Token, Wire, bytes_of,
};
use crate::base::{LocalNs, Rank};

/// Arrivals taken from the wire in one round; a round's effects then fit the buffer of an engine
/// that writes up to 16 effects for each.
const POLL_LIMIT: usize = 64;
/// Effects for which one round's buffer is sized.
const OUT_LIMIT: usize = 1024;
/// Rounds in one step: bounds the time until the caller can look at its own business again.
const ROUNDS_MAX: usize = 16;

/// The application, as it applies records that an engine has found for it.
pub trait Applier {
    /// Applies the `records` of rank `from`, and writes what it answers into `answer`; how many
    /// bytes.
    ///
    /// # Errors
    /// What is wrong with the records; the engine hears of it as [`Status::Failed`].
    fn apply(&mut self, from: Rank, records: &[u8], answer: &mut [u8]) -> Result<usize, Fault>;
}

/// What a step achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Inputs given to the engine.
    pub inputs: usize,
    /// When to step again even if the wire stays silent; `Some(now)` when there is more to do at
    /// once.
    pub next: Option<LocalNs>,
}

/// An operation that waits for its time, with its own copy of the header.
#[derive(Debug)]
struct DeferredOperation {
    operation: Operation,
    head: Vec<u8>,
}

/// One engine, and everything between it and its wire.
///
/// # Example
/// An alarm asks for a `Tick` by its deadline. The caller waits until [`Progress::next`], and steps
/// again:
/// ```
/// use clearway_proto::base::{LocalNs, Nanos, Rank};
/// use clearway_proto::wire::memory::{MemoryConfig, MemoryFabric};
/// use clearway_proto::wire::{Driver, Engine, Input, More, Out};
///
/// struct Alarm(Option<LocalNs>);
///
/// impl Engine for Alarm {
///     type Command = Nanos;
///     type Event = LocalNs;
///
///     fn input(&mut self, now: LocalNs, input: Input<'_, Nanos>, out: &mut Out<LocalNs>) -> More {
///         match input {
///             Input::Command(wait) => self.0 = Some(now + wait),
///             Input::Tick => out.notify(self.0.take().unwrap_or(now)),
///             _ => {}
///         }
///         More::No
///     }
///
///     fn deadline(&self) -> Option<LocalNs> {
///         self.0
///     }
/// }
///
/// let mut fabric = MemoryFabric::new(MemoryConfig::lossless(1));
/// let mut driver = Driver::boot(Alarm(None), LocalNs(0), 0);
/// driver.command(LocalNs(0), Nanos(500));
/// let next = driver.step(fabric.wire(Rank(0)), &mut |_| panic!("too early")).next;
/// assert_eq!(next, Some(LocalNs(500)));
///
/// fabric.advance(LocalNs(500));
/// let mut rung = None;
/// driver.step(fabric.wire(Rank(0)), &mut |at| rung = Some(at));
/// assert_eq!(rung, Some(LocalNs(500)));
/// ```
#[derive(Debug)]
pub struct Driver<E: Engine> {
    engine: E,
    out: Out<E::Event>,
    held: BTreeMap<(LocalNs, u64), DeferredOperation>,
    held_count: u64,
    completed: VecDeque<(Token, Status, u64)>,
    wants_more: bool,
    batch: Vec<Operation>,
    /// Headers of held operations that leave together.
    heads: Vec<u8>,
    answers: Vec<PostOutcome>,
    /// Bytes to be shown in the next round.
    shown: VecDeque<(Token, Vec<u8>)>,
    /// The last poll took everything, and nothing was posted since that the wire still has to end.
    is_drained: bool,
    /// The answer of an applier, and records that give no reference.
    scratch: [Vec<u8>; 2],
    refused: u64,
}

impl<E: Engine> Driver<E> {
    /// Takes `engine` and gives it its first input at `now`.
    pub fn boot(engine: E, now: LocalNs, incarnation: u32) -> Self {
        let mut driver = Self::around(engine, Out::with_limit(OUT_LIMIT));
        driver.batch.reserve(OUT_LIMIT);
        driver.answers.reserve(OUT_LIMIT);
        driver.give(now, Input::Boot { incarnation });
        driver
    }

    /// Creates the same with buffers that grow to what the engine really writes: for thousands of
    /// nodes in one process. The engine sees no difference; steps allocate until they have been as
    /// large as they get.
    pub fn boot_lean(engine: E, now: LocalNs, incarnation: u32) -> Self {
        let mut driver = Self::around(engine, Out::growing(OUT_LIMIT));
        driver.give(now, Input::Boot { incarnation });
        driver
    }

    fn around(engine: E, out: Out<E::Event>) -> Self {
        Self {
            engine,
            out,
            held: BTreeMap::new(),
            held_count: 0,
            completed: VecDeque::new(),
            wants_more: false,
            batch: Vec::new(),
            heads: Vec::new(),
            answers: Vec::new(),
            shown: VecDeque::new(),
            is_drained: false,
            scratch: [Vec::new(), Vec::new()],
            refused: 0,
        }
    }

    /// Returns the engine, for taking results out. Do not drive it from here.
    pub fn engine_mut(&mut self) -> &mut E {
        &mut self.engine
    }

    /// Gives the engine a command; its effects leave with the next step.
    pub fn command(&mut self, now: LocalNs, command: E::Command) {
        self.give(now, Input::Command(command));
    }

    /// Returns whether commands asked for operations that were not posted yet.
    pub fn has_operations(&self) -> bool {
        self.out.effects().iter().any(|effect| matches!(effect, Effect::Operate(_)))
    }

    /// Does everything that can be done now, by the wire's clock; `on_event` gets the engine's
    /// events.
    ///
    /// The clock is read for each round, so that what an engine stamps is as old as one round, not
    /// as one step.
    pub fn step(&mut self, wire: &mut dyn Wire, on_event: &mut dyn FnMut(E::Event)) -> Progress {
        self.step_for(wire, on_event, None)
    }

    /// Runs a step as [`Driver::step`] does, with an application that applies records
    /// ([`Operation::Apply`], which [`Driver::step`] refuses).
    pub fn step_with(
        &mut self,
        wire: &mut dyn Wire,
        on_event: &mut dyn FnMut(E::Event),
        applier: &mut dyn Applier,
    ) -> Progress {
        self.step_for(wire, on_event, Some(applier))
    }

    /// Posts what commands asked for, without a poll: what a thread waits for leaves before anything
    /// that arrived is looked at. What ends at once is given back, and the engine ticked if it asks
    /// for more. Returns when to step, which the caller does soon.
    pub fn flush(
        &mut self,
        wire: &mut dyn Wire,
        on_event: &mut dyn FnMut(E::Event),
        mut applier: Option<&mut dyn Applier>,
    ) -> Option<LocalNs> {
        for _ in 0..ROUNDS_MAX {
            let now = wire.now();
            let mut given = self.give_ended(now);
            if core::mem::take(&mut self.wants_more) {
                self.give(now, Input::Tick);
                given += 1;
            }
            self.apply(now, wire, on_event, &mut applier);
            if given == 0 && self.completed.is_empty() && self.shown.is_empty() {
                return self.next_wake(self.engine.deadline(), wire);
            }
        }
        Some(wire.now())
    }

    /// Operations without a token that were refused.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    fn step_for(
        &mut self,
        wire: &mut dyn Wire,
        on_event: &mut dyn FnMut(E::Event),
        mut applier: Option<&mut dyn Applier>,
    ) -> Progress {
        let mut inputs = 0;
        self.is_drained = false;
        for _ in 0..ROUNDS_MAX {
            let (given, deadline) = self.round(wire.now(), wire, on_event, &mut applier);
            inputs += given;
            // An operation of a command may have ended at once, with nothing else to wake this
            // engine.
            if given == 0 && self.completed.is_empty() && self.shown.is_empty() {
                return Progress { inputs, next: self.next_wake(deadline, wire) };
            }
        }
        Progress { inputs, next: Some(wire.now()) }
    }

    /// Returns when the engine, whose deadline this is, a held operation or the wire wants the next
    /// step.
    fn next_wake(&self, deadline: Option<LocalNs>, wire: &dyn Wire) -> Option<LocalNs> {
        let held = self.held.first_key_value().map(|((at, _), _)| *at);
        [deadline, held, wire.deadline()].into_iter().flatten().min()
    }

    /// Runs one poll and everything that follows from it; returns the number of inputs given, and
    /// the deadline behind what was polled: the engine's still, if no input was given.
    fn round(
        &mut self,
        now: LocalNs,
        wire: &mut dyn Wire,
        on_event: &mut dyn FnMut(E::Event),
        applier: &mut Option<&mut dyn Applier>,
    ) -> (usize, Option<LocalNs>) {
        // An operation that ended at once ended before anything that arrives now: a queue's `Room`
        // must not overtake its `NoRoom`.
        let mut given = self.give_ended(now);
        if !self.is_drained {
            let polled = wire.poll(POLL_LIMIT, &mut |arrival| {
                self.give(now, Input::Arrival(arrival));
            });
            // A poll is a system call of some wires: none is made to find nothing once more.
            self.is_drained = polled < POLL_LIMIT;
            given += polled;
        }
        let deadline = self.engine.deadline();
        if self.wants_more || deadline.is_some_and(|at| at <= now) {
            self.wants_more = false;
            self.give(now, Input::Tick);
            given += 1;
        }
        self.release_held(now, wire, applier);
        self.apply(now, wire, on_event, applier);
        (given, deadline)
    }

    /// Gives what ended at once, or was shown; how much.
    fn give_ended(&mut self, now: LocalNs) -> usize {
        let mut given = 0;
        for _ in 0..self.shown.len() {
            if let Some((token, bytes)) = self.shown.pop_front() {
                self.give(now, Input::Arrival(Arrival::Shown { token, bytes: &bytes }));
                given += 1;
            }
        }
        for _ in 0..self.completed.len() {
            if let Some((token, status, value)) = self.completed.pop_front() {
                self.give(now, Input::Arrival(Arrival::Done { token, status, value, at: now }));
                given += 1;
            }
        }
        given
    }

    fn give(&mut self, now: LocalNs, input: Input<'_, E::Command>) {
        if self.engine.input(now, input, &mut self.out) == More::Yes {
            self.wants_more = true;
        }
    }

    /// Posts held operations whose time has come, all of them at once: a burst is one call of a
    /// socket wire.
    fn release_held(
        &mut self,
        now: LocalNs,
        wire: &mut dyn Wire,
        applier: &mut Option<&mut dyn Applier>,
    ) {
        let (mut batch, mut heads) =
            (core::mem::take(&mut self.batch), core::mem::take(&mut self.heads));
        while let Some(entry) = self.held.first_entry()
            && entry.key().0 <= now
        {
            let DeferredOperation { mut operation, head: bytes } = entry.remove();
            if let Some(own) = operation.own_bytes() {
                *own = HeadRef { start: heads.len() as u32, length: bytes.len() as u16 };
                heads.extend_from_slice(&bytes);
            }
            batch.push(operation);
        }
        self.post(wire, &batch, &heads, applier);
        batch.clear();
        heads.clear();
        (self.batch, self.heads) = (batch, heads);
    }

    /// Applies the effects of this round in order.
    fn apply(
        &mut self,
        now: LocalNs,
        wire: &mut dyn Wire,
        on_event: &mut dyn FnMut(E::Event),
        applier: &mut Option<&mut dyn Applier>,
    ) {
        if self.out.is_empty() {
            return;
        }
        let mut out = core::mem::replace(&mut self.out, Out::with_limit(0));
        let mut batch = core::mem::take(&mut self.batch);
        let (effects, heads) = out.split();
        for effect in effects {
            match effect {
                Effect::Notify(event) => on_event(event),
                Effect::Operate(timed) => match timed.not_before {
                    Some(at) if at > now => self.hold(at, timed.operation, heads),
                    _ => {
                        if let Operation::Abandon { peer } = timed.operation {
                            self.drop_held(peer);
                        }
                        batch.push(timed.operation);
                    }
                },
            }
        }
        self.post(wire, &batch, heads, applier);
        batch.clear();
        out.clear();
        self.batch = batch;
        self.out = out;
    }

    fn hold(&mut self, at: LocalNs, mut operation: Operation, heads: &[u8]) {
        let mut kept = Vec::new();
        if let Some(own) = operation.own_bytes() {
            kept.extend_from_slice(own.bytes_in(heads).unwrap_or_default());
            *own = HeadRef { start: 0, length: kept.len() as u16 };
        }
        self.held.insert((at, self.held_count), DeferredOperation { operation, head: kept });
        self.held_count += 1;
    }

    /// Ends the held operations for `peer`.
    fn drop_held(&mut self, peer: Rank) {
        let completed = &mut self.completed;
        self.held.retain(|_, held| {
            let is_kept = held.operation.peer() != Some(peer);
            if let (false, Some(token)) = (is_kept, held.operation.token()) {
                completed.push_back((token, Status::Flushed, 0));
            }
            is_kept
        });
    }

    /// Posts operations in order; those of the driver's own it does between the others.
    fn post(
        &mut self,
        wire: &mut dyn Wire,
        operations: &[Operation],
        heads: &[u8],
        applier: &mut Option<&mut dyn Applier>,
    ) {
        for alike in operations.chunk_by(|a, b| a.is_of_driver() == b.is_of_driver()) {
            if !alike.first().is_some_and(Operation::is_of_driver) {
                self.post_to_wire(wire, alike, heads);
                continue;
            }
            for operation in alike {
                let status = match self.serve(wire, operation, heads, applier) {
                    Ok(None) => continue,
                    Ok(Some(ended)) => ended,
                    Err(missing) => (Status::Refused(missing), 0),
                };
                match operation.token() {
                    Some(token) => self.completed.push_back((token, status.0, status.1)),
                    None => self.refused += 1,
                }
            }
        }
    }

    /// Does an operation of the driver's own; how it ended, if its token completes now.
    fn serve(
        &mut self,
        wire: &mut dyn Wire,
        operation: &Operation,
        heads: &[u8],
        applier: &mut Option<&mut dyn Applier>,
    ) -> Result<Option<(Status, u64)>, RefusalReason> {
        match *operation {
            Operation::CopyChecked { from, into, digest, .. } => {
                let found = wire.digest(from)?;
                if found == digest {
                    self.answers.clear();
                    wire.post(&[Operation::Copy { from, into }], &[], &mut self.answers);
                    if let Some(PostOutcome::Refused(missing)) = self.answers.first() {
                        return Err(*missing);
                    }
                }
                Ok(Some((Status::Complete, u64::from(found))))
            }
            Operation::Store { bytes, into } => {
                wire.copy_in(into, bytes.bytes_in(heads).ok_or(RefusalReason::Memory)?)?;
                Ok(None)
            }
            Operation::Show { of, token } => {
                let length = within(of.length, SHOW_MAX)?;
                let mut bytes = alloc::vec![0; length];
                wire.copy_out(of, &mut bytes)?;
                self.shown.push_back((token, bytes));
                Ok(None)
            }
            Operation::Apply { of, from, answer, .. } => {
                let applier =
                    applier.as_deref_mut().ok_or(RefusalReason::Operation(OperationKind::Apply))?;
                let (length, room) =
                    (within(of.length, APPLY_MAX)?, within(answer.length, APPLY_MAX)?);
                let [answered, copied] = &mut self.scratch;
                answered.clear();
                answered.resize(room, 0);
                let result = match bytes_of(wire.region(of.region), of) {
                    Ok(records) => applier.apply(from, records, answered),
                    // Adopted memory gives no reference.
                    Err(_) => {
                        copied.resize(length, 0);
                        wire.copy_out(of, copied)?;
                        applier.apply(from, copied, answered)
                    }
                };
                let written = match result {
                    Ok(written) => written.min(room),
                    Err(fault) => return Ok(Some((Status::Failed(fault), 0))),
                };
                wire.copy_in(Span { length: written as u32, ..answer }, &answered[..written])?;
                Ok(Some((Status::Complete, written as u64)))
            }
            _ => Err(RefusalReason::Operation(operation.kind())),
        }
    }

    fn post_to_wire(&mut self, wire: &mut dyn Wire, operations: &[Operation], heads: &[u8]) {
        self.answers.clear();
        wire.post(operations, heads, &mut self.answers);
        assert_eq!(self.answers.len(), operations.len(), "a wire answers every operation");
        // What is done, or was refused, brings nothing more.
        let is_over =
            |answer: &PostOutcome| matches!(answer, PostOutcome::Done(_) | PostOutcome::Refused(_));
        self.is_drained &= self.answers.iter().all(is_over);
        for (operation, answer) in operations.iter().zip(&self.answers) {
            let Some(token) = operation.token() else {
                self.refused += u64::from(matches!(answer, PostOutcome::Refused(_)));
                continue;
            };
            match *answer {
                PostOutcome::Done(value) => {
                    self.completed.push_back((token, Status::Complete, value))
                }
                PostOutcome::NoRoom => self.completed.push_back((token, Status::NoRoom, 0)),
                PostOutcome::Refused(missing) => {
                    self.completed.push_back((token, Status::Refused(missing), 0))
                }
                PostOutcome::Posted => {}
            }
        }
    }
}

/// Returns a length that is allowed.
fn within(length: u32, most: usize) -> Result<usize, RefusalReason> {
    if length as usize <= most { Ok(length as usize) } else { Err(RefusalReason::Length) }
}

#[cfg(test)]
mod tests;
