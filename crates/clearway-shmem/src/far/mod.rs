//! Reaches PEs of other hosts: gathers small operations as records, which the target's processor
//! applies in order.
//!
//! # Model
//! ```text
//! thread of the program -- push --> Lane: open buffer -- close --> engine and wire --> peer
//!                                   one for each peer and class    stepped by threads that wait
//! ```
//! A *lane* is a stream of elements to one peer in one class, with sequential numbers. Its open buffer
//! is sent when no message of the lane is under way and none was sent in the last 8 us, when it is
//! full, and when a thread waits. So a lone operation leaves at once, and a loop of operations fills
//! messages: the 8 us become up to 64 while they end with many elements and the loop does not pause
//! for 8 us. After a `quiet` that
//! completed a single message, the next operation waits for another `quiet`, so that one message
//! carries the operation and the request to acknowledge it. The next poll, at the latest one of the
//! progress thread, ends that wait. Contexts of one class share lanes. So a fence has nothing to do,
//! and `quiet` waits until all issued elements have ended.
//!
//! Long puts and gets are split into several elements.
//!
//! # Invariants
//! I1. A lane's lock is taken before the engine's, never after it.
//!
//! # Not here
//! Messages, credits, retransmission ([`clearway_proto::queue`]); the threads that drive the engine
//! ([`clearway_runtime::attend`]).

mod apply;
mod lane;
mod object;
mod ticket;
mod wire;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use clearway_proto::base::{Bytes, Class, Nanos, Rank};
use clearway_proto::queue::{
    ClosingCause, ClosingPolicy, ContextId, Element, Place as FarPlace, Push, QueueCommand,
    QueueConfig, QueueEvent, QueueLimits, QueueNode, StreamState, Ticket,
};
use clearway_proto::wire::{Driver, Granted, RegionId, Span};
use clearway_runtime::attend::{LockedEngine, SharedEngine};
use clearway_runtime::clock;
use clearway_runtime::near::{LINES, Line};
use clearway_runtime::waiting::WakeDescriptors;

use self::apply::{LINE, Local, line_bytes, line_offset};
use self::lane::{Lane, OpenLane};
pub(crate) use self::object::{Change, FarObject};
use self::ticket::Tickets;
pub(crate) use self::wire::{FarWire, open};
use crate::address::{Caller, Segment};
use crate::job::{self, Job};
use crate::team::SLOT_WORDS;

/// The class of messages of collectives.
const LINES_CLASS: Class = Class::LowLatency;
/// Batches of a class that the wire may hold at once; at this limit a push waits.
const BATCHES: u32 = 64;
/// Bytes under way that are more than the network carries in the time of a wake-up: they take 50 us at
/// 10 Gb/s.
const BULK: u64 = 64 << 10;
/// How long a PE that ends waits for PEs that may be gone: many round trips between busy processors.
const PARTING: Nanos = Nanos::from_millis(1_000);
/// How long it still answers them: a few times the interval at which a stream repeats its request.
const LAST_ANSWERS: Nanos = Nanos::from_millis(20);

/// Registered memory for closed buffers of a class.
#[derive(Default)]
struct BatchMemory {
    region: Option<RegionId>,
    free: Vec<u32>,
}

/// Counts of messages and elements that a PE sent to PEs of other hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FarTraffic {
    /// Messages with elements.
    pub messages: u64,
    /// Elements: puts, requests for bytes, atomic operations.
    pub elements: u64,
}

/// Messages with elements that were closed, and their bytes.
#[derive(Default)]
struct SentMessages {
    messages: AtomicU64,
    bytes: AtomicU64,
}

/// The engine, wire and lanes to far PEs.
pub(crate) struct Far {
    engine: SharedEngine<QueueNode>,
    descriptors: Option<WakeDescriptors>,
    /// By peer and class.
    lanes: Box<[OnceLock<Box<Lane>>]>,
    limits: QueueLimits,
    policy: ClosingPolicy,
    batches: Mutex<[BatchMemory; Class::ALL.len()]>,
    /// Bytes of batches under way.
    batch_bytes: AtomicU64,
    tickets: Tickets,
    /// Lanes to close after they have gathered long enough.
    idle: Mutex<Vec<(Rank, Class)>>,
    has_idle: AtomicBool,
    /// Messages of elements that were closed, and their bytes, by class.
    sent: [SentMessages; Class::ALL.len()],
    /// Lanes with open elements.
    open_lanes: AtomicU32,
    /// The first PE of each PE's host.
    leaders: Vec<usize>,
    classes: [Granted; Class::ALL.len()],
    description: String,
}

impl std::fmt::Debug for Far {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Far").field("description", &self.description).finish_non_exhaustive()
    }
}

impl Far {
    /// Starts an engine on `wire`. `leaders` has the first PE of each PE's host. Messages leave at
    /// `threshold` bytes, or at their longest.
    ///
    /// # Errors
    /// The wire cannot carry OpenSHMEM; the sentence has the reason.
    pub(crate) fn new(
        wire: FarWire,
        me: usize,
        leaders: Vec<usize>,
        threshold: Option<usize>,
    ) -> Result<Self, String> {
        let classes = wire.classes();
        let FarWire { wire, description } = wire;
        let mut wire = wire.wire;
        let ranks = leaders.len() as u32;
        let refused = |reason| format!("{description} cannot carry OpenSHMEM: {reason}");
        let limits = QueueLimits::new(ranks, wire.capabilities()).map_err(refused)?;
        let answers = wire.register(limits.answer_memory(ranks)).map_err(refused)?;
        let config =
            QueueConfig::new(Rank(me as u32), ranks, wire.capabilities(), answers, [None; 4])
                .map_err(refused)?;
        let driver = Driver::boot(QueueNode::new(config), wire.now(), 0);
        let engine = SharedEngine::new(driver, wire).map_err(|error| error.to_string())?;
        let descriptors = engine.wake_descriptors().map_err(|error| error.to_string())?;
        Ok(Self {
            engine,
            descriptors,
            lanes: (0..leaders.len() * Class::ALL.len()).map(|_| OnceLock::new()).collect(),
            limits,
            policy: ClosingPolicy::new(threshold.map_or(limits.batch, |bytes| {
                u32::try_from(bytes).unwrap_or(limits.batch).min(limits.batch)
            })),
            batches: Mutex::default(),
            batch_bytes: AtomicU64::new(0),
            tickets: Tickets::new(),
            idle: Mutex::default(),
            has_idle: AtomicBool::new(false),
            sent: Default::default(),
            open_lanes: AtomicU32::new(0),
            leaders,
            classes,
            description,
        })
    }

    /// Starts the progress thread, which answers far PEs while the program computes.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(crate) fn attend(&'static self, job: &'static Job) -> Result<(), String> {
        let mut local = Local { far: self, job };
        let attend = move || {
            let mut after = |_: &mut Local<'_>| self.close_idle();
            let has_more = || self.has_idle.load(Ordering::SeqCst);
            self.engine.attend(self.descriptors.as_ref(), &mut local, &mut after, &has_more);
        };
        let thread = std::thread::Builder::new().name("clearway-far".to_owned()).spawn(attend);
        thread.map(drop).map_err(|error| format!("the system refused a thread: {error}"))
    }

    /// Ends the use of the wire, before the process unloads libraries.
    pub(crate) fn end(&self) {
        self.engine.end();
    }

    /// Returns a description of the wire for a person.
    pub(crate) fn description(&self) -> &str {
        &self.description
    }

    /// Returns the class that the wire grants for `class`.
    pub(crate) fn granted(&self, class: Class) -> Granted {
        self.classes[class.index()]
    }

    /// Returns the object at `offset` of a segment of PE `pe`.
    pub(crate) fn object(
        &'static self,
        class: Class,
        pe: usize,
        segment: Segment,
        offset: usize,
    ) -> FarObject {
        FarObject { far: self, class, pe: pe as u32, segment, offset: offset as u64 }
    }

    /// Returns the lane to `pe` in the class of this index, if it was ever used.
    fn used_lane(&self, pe: usize, class: usize) -> Option<&Lane> {
        self.lanes.get(pe * Class::ALL.len() + class)?.get().map(|lane| &**lane)
    }

    fn lane(&self, pe: usize, class: Class) -> &Lane {
        self.lanes[pe * Class::ALL.len() + class.index()]
            .get_or_init(|| Box::new(Lane::new(Rank(pe as u32), class, &self.limits)))
    }

    /// Returns the lanes of `class` that were ever used.
    fn lanes_of(&self, class: Class) -> impl Iterator<Item = &Lane> {
        let lanes = self.lanes.iter().skip(class.index()).step_by(Class::ALL.len());
        lanes.filter_map(|lane| lane.get().map(|lane| &**lane))
    }

    /// Appends `element` to a lane, and closes the lane if it is due. Returns how many were issued to
    /// the lane.
    #[inline]
    fn push(&self, pe: usize, class: Class, element: Element<'_>) -> u64 {
        let lane = self.lane(pe, class);
        let mut state = lane.lock();
        let issued = self.append(lane, &mut state, element);
        let stream = lane.gathers_now(state.open.elements(), clock::now);
        if let Some(cause) = self.policy.cause(&state.open, class, stream, Nanos::ZERO) {
            if cause == ClosingCause::Idle {
                lane.adapt(state.open.elements(), &self.policy);
            }
            self.close(lane, &mut state);
        } else if !lane.is_under_way.load(Ordering::SeqCst) {
            self.list(lane);
        }
        issued
    }

    /// Appends `element` to the open buffer of a lane, after closing a full one. Returns how
    /// many were issued to the lane.
    #[inline]
    fn append(&self, lane: &Lane, state: &mut OpenLane, element: Element<'_>) -> u64 {
        // The holder of the lock is the only one that counts.
        let issued = lane.issued.load(Ordering::Relaxed) + 1;
        let OpenLane { open, buffer } = &mut *state;
        if !open.is_empty() && open.push(buffer, element) == Push::Kept {
            lane.issued.store(issued, Ordering::Release);
        } else {
            self.begin(lane, state, element, issued);
        }
        issued
    }

    /// Appends `element`, the number `issued` of its lane, as the first of an open buffer.
    #[cold]
    #[inline(never)]
    fn begin(&self, lane: &Lane, state: &mut OpenLane, element: Element<'_>, issued: u64) {
        self.close(lane, state);
        let OpenLane { open, buffer } = &mut *state;
        assert!(open.push(buffer, element) == Push::Kept, "an element that no buffer keeps");
        self.open_lanes.fetch_add(1, Ordering::Relaxed);
        // Sequentially consistent with `Room`: either that event sees this element, or this thread
        // sees that nothing is under way. Those behind it in the buffer leave with it.
        lane.issued.swap(issued, Ordering::SeqCst);
    }

    /// Lists `lane`, so that a thread that polls closes it at its time.
    fn list(&self, lane: &Lane) {
        // Most of those who come find it listed, and loops come here with each element.
        if !lane.is_listed.load(Ordering::SeqCst) && !lane.is_listed.swap(true, Ordering::AcqRel) {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.push((lane.peer, lane.class));
            self.has_idle.store(true, Ordering::SeqCst);
            drop(idle);
            self.engine.wake();
        }
    }

    /// Sends the elements that a lane gathered.
    fn close(&self, lane: &Lane, state: &mut OpenLane) {
        let Ok(job) = job::installed() else { return };
        if let Some(mut locked) = self.issue(job, lane, state) {
            self.leave(job, &mut locked);
            // After the step, which can take longer than a lane gathers.
            lane.closed_at.store(clock::now().0, Ordering::Relaxed);
        }
    }

    /// Sends the elements that a lane gathered, unless another thread holds the lane, which then sends
    /// them, or no memory is free. Returns whether the caller has to try again.
    fn try_close(&self, lane: &Lane, cause: ClosingCause) -> bool {
        let (Ok(job), Some(mut state)) = (job::installed(), lane.state.try_lock()) else {
            return true;
        };
        if state.open.is_empty() {
            return false;
        }
        if cause == ClosingCause::Idle {
            lane.adapt(state.open.elements(), &self.policy);
        }
        let mut locked = self.engine.lock();
        let has_memory = self.try_issue(&mut locked, lane, &mut state);
        self.leave(job, &mut locked);
        lane.closed_at.store(clock::now().0, Ordering::Relaxed);
        !has_memory
    }

    /// Gives the engine the elements of a lane, and returns the engine, or none if there are no
    /// elements. Waits for memory without the engine's lock, so that urgent traffic does not wait for
    /// the credit of a bulk transfer.
    fn issue(
        &self,
        job: &'static Job,
        lane: &Lane,
        state: &mut OpenLane,
    ) -> Option<MutexGuard<'_, LockedEngine<QueueNode>>> {
        if state.open.is_empty() {
            return None;
        }
        loop {
            let mut locked = self.engine.lock();
            if self.try_issue(&mut locked, lane, state) {
                return Some(locked);
            }
            self.leave(job, &mut locked);
            drop(locked);
            self.wait_sent(|| self.has_batch_memory(lane.class));
        }
    }

    /// Gives the engine the elements of a lane that has some, if memory is free. Returns whether it is.
    fn try_issue(
        &self,
        locked: &mut LockedEngine<QueueNode>,
        lane: &Lane,
        state: &mut OpenLane,
    ) -> bool {
        let Some(span) = self.batch_memory(locked, lane.class) else { return false };
        lane.is_under_way.store(true, Ordering::Release);
        lane.closed.store(lane.issued.load(Ordering::Relaxed), Ordering::Release);
        self.open_lanes.fetch_sub(1, Ordering::Relaxed);
        lane.messages.fetch_add(1, Ordering::Relaxed);
        let OpenLane { open, buffer } = state;
        let batch = open.close(buffer, span);
        self.batch_bytes.fetch_add(batch.buffer.length.into(), Ordering::Relaxed);
        let sent = &self.sent[lane.class.index()];
        sent.messages.fetch_add(1, Ordering::Relaxed);
        sent.bytes.fetch_add(batch.buffer.length.into(), Ordering::Relaxed);
        let bytes = &buffer[..batch.buffer.length as usize];
        if let Err(reason) = locked.wire().copy_in(batch.buffer, bytes) {
            job::end_with(1, &format!("the wire refused its own memory: {reason}"));
        }
        let (peer, class, context) = (lane.peer, lane.class, lane.context());
        locked.command(QueueCommand::Close { peer, class, context, batch });
        true
    }

    /// Sends what was issued, and then handles what arrived.
    fn leave(&self, job: &'static Job, locked: &mut LockedEngine<QueueNode>) {
        let mut local = Local { far: self, job };
        locked.flush(&mut local);
        locked.step(&mut local);
    }

    /// Takes memory for a batch of `class`, if any is free.
    fn batch_memory(&self, locked: &mut LockedEngine<QueueNode>, class: Class) -> Option<Span> {
        let mut all = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = &mut all[class.index()];
        if memory.region.is_none() {
            let bytes = u64::from(BATCHES) * u64::from(self.limits.batch);
            match locked.wire().register(Bytes(bytes)) {
                Ok(region) => {
                    *memory = BatchMemory { region: Some(region), free: (0..BATCHES).collect() };
                }
                Err(reason) => job::end_with(1, &format!("the wire has no memory: {reason}")),
            }
        }
        let (region, number) = (memory.region?, memory.free.pop()?);
        let offset = number * self.limits.batch;
        Some(Span { region, offset: offset.into(), length: self.limits.batch })
    }

    /// Returns whether memory for a batch of `class` is free.
    fn has_batch_memory(&self, class: Class) -> bool {
        let all = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        !all[class.index()].free.is_empty()
    }

    /// Takes back the memory of a batch.
    fn free(&self, buffer: Span) {
        let mut all = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = all.iter_mut().find(|memory| memory.region == Some(buffer.region));
        if let Some(memory) = memory {
            memory.free.push((buffer.offset / u64::from(self.limits.batch)) as u32);
            self.batch_bytes.fetch_sub(buffer.length.into(), Ordering::Relaxed);
        }
    }

    /// Handles an event of the engine, which is locked.
    fn handle(&self, job: &Job, event: QueueEvent) {
        match event {
            QueueEvent::Ended { context, peer, count } => {
                if let Some(lane) = self.used_lane(peer.index(), context.0 as usize) {
                    lane.ended.fetch_add(count.into(), Ordering::AcqRel);
                }
            }
            QueueEvent::Free { buffer } => self.free(buffer),
            QueueEvent::Room { peer, class } => {
                if let Some(lane) = self.used_lane(peer.index(), class.index()) {
                    lane.is_under_way.swap(false, Ordering::SeqCst);
                    if lane.issued.load(Ordering::SeqCst) != lane.closed.load(Ordering::Acquire) {
                        self.list(lane);
                    }
                }
            }
            QueueEvent::Lost(peer) => {
                job::lost_far(job, peer.index(), "cannot be reached any more")
            }
            QueueEvent::Malformed(peer) => {
                job::lost_far(job, peer.index(), "sent what no PE of this library sends");
            }
            QueueEvent::Fetched { .. } | QueueEvent::Refused { .. } | QueueEvent::Finished => {}
        }
    }

    /// Closes the lanes that have gathered long enough.
    fn close_idle(&self) {
        if !self.has_idle.swap(false, Ordering::SeqCst) {
            return;
        }
        let idle = std::mem::take(&mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner));
        for (peer, class) in idle {
            let lane = self.lane(peer.index(), class);
            // Before the look at what is under way: who finds that over and the lane listed leaves
            // it to this thread.
            lane.is_listed.swap(false, Ordering::SeqCst);
            lane.is_completed_next.store(false, Ordering::Relaxed);
            // The end of what is under way lists it again.
            if lane.is_under_way.load(Ordering::Acquire) {
                continue;
            }
            let has_more = match lane.gathers_still(clock::now()) {
                StreamState::Idle => self.try_close(lane, ClosingCause::Idle),
                StreamState::Busy => true,
            };
            if has_more {
                self.list(lane);
            }
        }
    }

    /// Answers far PEs, unless another thread does.
    #[inline]
    pub(crate) fn poll(&self) -> bool {
        let Ok(job) = job::installed() else { return false };
        let did = self.engine.poll(&mut Local { far: self, job });
        if self.has_idle.load(Ordering::Relaxed) {
            self.close_idle();
        }
        did
    }

    /// Waits until `ready` returns true.
    pub(crate) fn wait(&self, ready: impl FnMut() -> bool) {
        self.close_open();
        self.wait_sent(ready);
    }

    /// Waits until `ready` returns true, which must not depend on open elements of lanes.
    fn wait_sent(&self, ready: impl FnMut() -> bool) {
        let is_bulk = || self.batch_bytes.load(Ordering::Relaxed) >= BULK;
        self.engine.wait(self.descriptors.as_ref(), ready, || self.poll(), is_bulk);
    }

    /// Sends the elements of all lanes, because a wait may depend on them. It does not wait for lanes
    /// that other threads fill: these send by themselves.
    pub(crate) fn close_open(&self) {
        if self.open_lanes.load(Ordering::Relaxed) > 0 {
            for lane in Class::ALL.into_iter().flat_map(|class| self.lanes_of(class)) {
                if self.try_close(lane, ClosingCause::Ordered) {
                    self.list(lane);
                }
            }
        }
    }

    /// Sends everything of `class`, and requests acknowledgements. Returns whether anything is not
    /// complete.
    pub(crate) fn send(&self, class: Class) -> bool {
        let Ok(job) = job::installed() else { return false };
        if self.outstanding(class) == 0 {
            return false;
        }
        for lane in self.lanes_of(class) {
            let mut state = lane.lock();
            drop(self.issue(job, lane, &mut state));
            match lane.messages.swap(0, Ordering::Relaxed) {
                0 => {}
                count => lane.is_completed_next.store(count == 1, Ordering::Relaxed),
            }
        }
        // Behind the last batches, which then carry the request.
        let context = ContextId(class.index() as u32);
        let mut locked = self.engine.lock();
        locked.command(QueueCommand::Flush { context, peer: None });
        self.leave(job, &mut locked);
        true
    }

    /// Returns how many elements of `class` are not acknowledged as complete.
    fn outstanding(&self, class: Class) -> u64 {
        self.lanes_of(class).map(Lane::outstanding).sum()
    }

    /// Returns how many elements were issued to `pe` in `class`.
    pub(crate) fn issued(&self, pe: usize, class: Class) -> u64 {
        self.used_lane(pe, class.index()).map_or(0, |lane| lane.issued.load(Ordering::Acquire))
    }

    /// Returns how many of the first `issued` elements to `pe` in `class` are not acknowledged
    /// as complete.
    pub(crate) fn open(&self, pe: usize, class: Class, issued: u64) -> u64 {
        let lane = self.used_lane(pe, class.index());
        lane.map_or(0, |lane| issued.saturating_sub(lane.ended.load(Ordering::Acquire)))
    }

    /// Completes everything of `class`.
    pub(crate) fn quiet(&self, class: Class) {
        if !self.send(class) {
            return;
        }
        for lane in self.lanes_of(class) {
            let issued = lane.issued.load(Ordering::Acquire);
            self.wait(|| lane.ended.load(Ordering::Acquire) >= issued);
        }
    }

    /// Completes everything before this PE ends, without a barrier afterwards. So another PE may end
    /// before it acknowledges what it applied; the wait for it is bounded.
    pub(crate) fn part(&self) {
        let until = clock::now() + PARTING;
        for class in Class::ALL {
            self.send(class);
            for lane in self.lanes_of(class) {
                self.wait(|| lane.outstanding() == 0 || clock::now() >= until);
            }
        }
        // The other PEs wait for acknowledgements of this one at the same time.
        let until = clock::now() + LAST_ANSWERS;
        self.wait(|| clock::now() >= until);
    }

    /// Waits for the answer to `ticket`.
    fn wait_for(&self, ticket: Ticket) {
        self.wait(|| self.tickets.is_answered(ticket));
    }

    /// Takes a ticket.
    fn ticket(&self, pe: usize, into: Caller, length: usize, is_watched: bool) -> Ticket {
        self.tickets.take(pe, into, length, is_watched, || {
            self.close_open();
            self.poll();
        })
    }

    /// Sends `lines`, each with its owner, to the host of PE `pe`, which writes them in order.
    pub(crate) fn send_lines<'a>(
        &self,
        pe: usize,
        slot: usize,
        number: usize,
        lines: impl Iterator<Item = (usize, &'a Line)>,
    ) {
        let lane = self.lane(pe, LINES_CLASS);
        let mut state = lane.lock();
        for (owner, line) in lines {
            let bytes = line_bytes(line);
            let offset = line_offset(owner, slot, number);
            let at = FarPlace { segment: Segment::Lines as u8, offset };
            self.append(lane, &mut state, Element::Put { at, bytes: &bytes });
        }
        self.close(lane, &mut state);
    }

    /// Returns how many messages this PE sent, and how many elements in them and in open buffers.
    pub(crate) fn traffic(&self) -> FarTraffic {
        let lanes = self.lanes.iter().filter_map(OnceLock::get);
        FarTraffic {
            messages: self.sent.iter().map(|sent| sent.messages.load(Ordering::Relaxed)).sum(),
            elements: lanes.map(|lane| lane.issued.load(Ordering::Relaxed)).sum(),
        }
    }

    /// Returns how many messages of `class` this PE sent, and their bytes.
    pub(crate) fn sent(&self, class: Class) -> [u64; 2] {
        let SentMessages { messages, bytes } = &self.sent[class.index()];
        [messages, bytes].map(|count| count.load(Ordering::Relaxed))
    }

    /// Returns the first PE of the host of PE `pe`.
    pub(crate) fn leader_of(&self, pe: usize) -> usize {
        self.leaders[pe]
    }

    /// Fetches a line of far PE `pe` from its host.
    fn line(&'static self, pe: usize, slot: usize, line: usize) -> [u64; LINE / 8] {
        let mut words = [0u64; LINE / 8];
        let offset = line_offset(pe, slot, line) as usize;
        self.object(LINES_CLASS, pe, Segment::Lines, offset)
            .get(Caller::from_slice_mut(&mut words), LINE);
        words
    }

    /// Fetches the epochs of the lines of `slot` that far PE `pe` or its neighbours write.
    pub(crate) fn epochs(&'static self, pe: usize, slot: usize) -> [u32; LINES - 1] {
        [0, 1, 3].map(|line| self.line(pe, slot, line)[0] as u32)
    }

    /// Fetches the payload of a line of far PE `pe`.
    pub(crate) fn payload(&'static self, pe: usize, slot: usize, line: usize) -> [u64; SLOT_WORDS] {
        let words = self.line(pe, slot, line);
        std::array::from_fn(|word| words[word + 1])
    }
}
