//! One rank of broadcasts: the root or a receiver over the wire that its coordinator chose, cast
//! after cast.
//!
//! # Model
//! The engine says what leaves when; this is what is around it: memory, the bytes of objects and
//! their comparison at every receiver, and the coordinator's orders. A node lives until the next
//! cast begins, so that its peers are never left alone with what they lack.
//!
//! # Invariants
//! I1. No object counts as received whose bytes were not compared.
//!
//! # Not here
//! What is said to the coordinator: `messages`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use clearway_proto::base::{Bytes, Class, GroupId, LocalNs, Nanos, Rank};
use clearway_proto::broadcast::{
    Algorithm, BroadcastCommand, BroadcastConfig, BroadcastEvent, BroadcastNode, Member,
    SlowReceivers,
};
use clearway_proto::wire::{Driver, OperationKind, RegionId, Span, Wire};
use clearway_runtime::{clock, progress};
use nix::sys::signal::{Signal, raise};

use super::bare_exchange::{self, BareExchange};
use super::fault_injection::{FaultInjectingWire, PayloadTally};
use super::messages::{
    BroadcastAssignment, BroadcastProtocol, BroadcastRequest, BroadcastResponse, BroadcastResult,
    CastTiming,
};
use super::pattern::{self, ObjectPattern};
use super::progress_samples::ProgressSamples;
use super::teams;
use super::traffic::traffic;
use crate::run::exit::Exit;
use crate::run::rank_process::{Incoming, RankContext, Requests, respond};

/// The rank that casts.
const ROOT: Rank = Rank(0);
/// The group of all.
const GROUP: GroupId = GroupId(0);
/// Symbols that may be under way: a quarter of a second at 200 Mb/s, longer than a rank of a busy
/// machine waits for a processor.
pub(super) const WINDOW: u32 = 4096;
/// Short objects that may lie at a receiver, or wait at the root until they are with everybody.
pub(super) const SLOTS: u32 = 1024;
/// Short objects between two synchronisations.
pub(super) const SYNC_EVERY: u32 = 16;

fn send_response(said: BroadcastResponse) -> Result<()> {
    respond::<BroadcastProtocol>(said)
}

/// Serves requests until the coordinator is done.
pub(crate) fn serve(end: RankContext) -> Result<Exit> {
    let (wire, mut orders) = end.begin::<BroadcastProtocol>()?;
    let mut wire = FaultInjectingWire::new(wire);
    let mut memory = None;
    let mut next = match orders.next()? {
        Some(Incoming::Request(BroadcastRequest::Take(assignment))) => AfterCast::Cast(assignment),
        Some(Incoming::Leave) => AfterCast::Leave,
        _ => AfterCast::Gone,
    };
    loop {
        let assignment = match next {
            AfterCast::Cast(assignment) => assignment,
            AfterCast::Leave => return Ok(Exit::Good),
            AfterCast::Gone => return Ok(Exit::Failed),
        };
        next = match take(&mut wire, *assignment, &mut memory, &mut orders) {
            Ok(next) => next,
            Err(error) => {
                send_response(BroadcastResponse::Failed(format!("{error:#}")))?;
                return Ok(Exit::Good);
            }
        };
    }
}

/// What comes after a cast.
pub(super) enum AfterCast {
    /// Another one.
    Cast(Box<BroadcastAssignment>),
    /// The coordinator said that all is over.
    Leave,
    /// The coordinator is gone, or none.
    Gone,
}

/// The region that this rank has, once it has one: every cast uses it, since a wire keeps what was
/// registered.
#[derive(Clone, Copy)]
pub(super) struct BroadcastMemory {
    region: RegionId,
    length: u64,
}

impl BroadcastMemory {
    /// Returns a region of at least `length`.
    pub(super) fn region(
        kept: &mut Option<Self>,
        wire: &mut dyn Wire,
        length: u64,
    ) -> Result<RegionId> {
        if let Some(own) = kept.filter(|own| own.length >= length) {
            return Ok(own.region);
        }
        let region = wire
            .register(Bytes(length))
            .map_err(|_| anyhow!("{} of memory are not to be had", Bytes(length)))?;
        *kept = Some(Self { region, length });
        Ok(region)
    }
}

/// Takes part in one cast.
fn take(
    wire: &mut FaultInjectingWire,
    assignment: BroadcastAssignment,
    memory: &mut Option<BroadcastMemory>,
    orders: &mut Requests<BroadcastProtocol>,
) -> Result<AfterCast> {
    wire.set(assignment.faults, assignment.seed ^ u64::from(assignment.key));
    if assignment.roots > 0 {
        return teams::serve(wire, &assignment, memory, orders);
    }
    let group = wire.capabilities().operations.has(OperationKind::Multicast).then_some(GROUP);
    // Nobody but the root sends to the group: as a member it would get all of its own symbols back.
    if let Some(group) = group.filter(|_| wire.rank() != ROOT) {
        wire.join(group)
            .map_err(|missing| anyhow!("the group of all cannot be joined: {missing}"))?;
    }
    if assignment.rhythm == CastTiming::Bare {
        return serve_bare(wire, &assignment, group, orders);
    }
    let symbol = symbol_of(wire)?;
    let slots = SLOTS * symbol;
    let count = match assignment.rhythm {
        CastTiming::Batches(count) => count,
        CastTiming::Ordered | CastTiming::Apart(_) | CastTiming::Bare => 1,
    };
    let slots_at = assignment.length.0 * u64::from(count);
    let region = BroadcastMemory::region(memory, wire, slots_at + u64::from(slots))?;
    let places = RegionLayout { region, symbol, count, slots_at };
    let slots = Span { region, offset: places.slots_at, length: slots };
    let node = member(&assignment, wire.rank(), ROOT, group, symbol, slots);
    let mut casting = RunningCast::new(assignment, places, wire, orders);
    casting.run(wire, node)
}

/// Returns the length of a symbol over `wire` in bytes.
pub(super) fn symbol_of(wire: &dyn Wire) -> Result<u32> {
    BroadcastConfig::symbol_max(wire.capabilities())
        .ok_or_else(|| anyhow!("nothing can be cast over {}: it lacks messages, copies, digests or room for headers; --wire udp, ofi or shm works", wire.capabilities().name))
}

/// Creates the node of `rank` in the cast of `root` to all ranks of `assignment`, through `group`
/// if it goes by multicast.
pub(super) fn member(
    assignment: &BroadcastAssignment,
    rank: Rank,
    root: Rank,
    group: Option<GroupId>,
    symbol: u32,
    slots: Span,
) -> BroadcastNode {
    let per_leaf = assignment.per_leaf.max(1);
    let members =
        (0..assignment.ranks).map(|rank| Member { rank: Rank(rank), leaf: rank / per_leaf });
    BroadcastNode::new(BroadcastConfig {
        rank,
        members: members.collect(),
        root,
        group: group
            .filter(|_| matches!(assignment.way, Algorithm::Multicast | Algorithm::Segments)),
        key: assignment.key + root.0,
        symbol,
        window: WINDOW,
        history: 2 * WINDOW,
        slots,
        rate: assignment.rate,
        first_rate: None,
        sync_every: SYNC_EVERY,
        silence: assignment.silence,
        slow_receivers: SlowReceivers::Wait,
        algorithm: assignment.way,
        class: Class::Bulk,
        control: Class::Control,
    })
}

/// Where things lie in a rank's region: long objects, and slots of short ones behind them.
#[derive(Clone, Copy)]
struct RegionLayout {
    region: RegionId,
    symbol: u32,
    /// Long objects that have room at once.
    count: u32,
    slots_at: u64,
}

impl RegionLayout {
    /// Returns where the root has object `number` of `length` bytes, and a receiver gets it if it
    /// is long.
    fn object_span(&self, number: u32, length: Bytes) -> Span {
        let offset = match self.is_short(length) {
            true => self.slots_at + u64::from(number % SLOTS) * u64::from(self.symbol),
            false => u64::from(number % self.count) * length.0,
        };
        Span { region: self.region, offset, length: length.0 as u32 }
    }

    fn is_short(&self, length: Bytes) -> bool {
        length.0 <= u64::from(self.symbol)
    }
}

/// One cast.
struct RunningCast<'a> {
    assignment: BroadcastAssignment,
    places: RegionLayout,
    orders: &'a mut Requests<BroadcastProtocol>,
    is_root: bool,
    /// The wire's: what goes to the group reaches nobody.
    is_filtered: Rc<Cell<bool>>,
    /// Root: objects are cast, the next one at.
    cast_at: Option<LocalNs>,
    cast: u32,
    stable: u32,
    account: BroadcastResult,
    /// Processor time when the last long object was cast, or the first short one.
    processor: Nanos,
    traffic: Option<[Bytes; 2]>,
    tally: Rc<RefCell<PayloadTally>>,
    /// What had no room here before this cast.
    dropped: u64,
    samples: ProgressSamples,
    /// When each was reported: a step can be long.
    events: Vec<(LocalNs, BroadcastEvent)>,
    commands: Vec<BroadcastCommand>,
    /// Root: the object that is made next.
    making: Option<ObjectPattern>,
    /// Long objects that are with everybody, and not yet compared.
    comparing: VecDeque<ObjectPattern>,
    /// How many symbols had come at the last step, and since when no other has.
    came: (u64, LocalNs),
    is_done: bool,
    next: Option<AfterCast>,
}

impl<'a> RunningCast<'a> {
    fn new(
        assignment: BroadcastAssignment,
        places: RegionLayout,
        wire: &FaultInjectingWire,
        orders: &'a mut Requests<BroadcastProtocol>,
    ) -> Self {
        let (is_root, is_filtered) = (wire.rank() == ROOT, wire.is_filtered());
        let mut commands = Vec::new();
        if !is_root && !places.is_short(assignment.length) {
            let first = 0..places.count.min(assignment.objects);
            commands.extend(first.map(|object| BroadcastCommand::Place {
                into: places.object_span(object, assignment.length),
            }));
        }
        Self {
            assignment,
            places,
            orders,
            is_root,
            is_filtered,
            cast_at: None,
            cast: 0,
            stable: 0,
            account: BroadcastResult::default(),
            processor: clock::processor(),
            traffic: traffic(),
            tally: wire.tally(),
            dropped: wire.counters().receive_overflow,
            samples: ProgressSamples::default(),
            events: Vec::new(),
            commands,
            making: None,
            comparing: VecDeque::new(),
            came: (0, LocalNs(0)),
            is_done: false,
            next: None,
        }
    }

    fn run(&mut self, wire: &mut FaultInjectingWire, node: BroadcastNode) -> Result<AfterCast> {
        let input = self.orders.source().try_clone_to_owned()?;
        send_response(BroadcastResponse::Taken)?;
        let mut driver = Driver::boot(node, clock::now(), 0);
        let mut host = BroadcastHost { casting: self };
        progress::run(&mut driver, wire, &[input.as_fd()], &mut host);
        Ok(self.next.take().unwrap_or(AfterCast::Gone))
    }

    fn respond(&mut self, what: BroadcastResponse) {
        if send_response(what).is_err() {
            self.next = Some(AfterCast::Gone);
        }
    }

    fn handle_request(&mut self, order: Incoming<BroadcastRequest>, now: LocalNs) {
        match order {
            Incoming::Request(BroadcastRequest::Take(assignment)) => {
                self.next = Some(AfterCast::Cast(assignment))
            }
            Incoming::Request(BroadcastRequest::Begin) => self.cast_at = Some(now),
            // One long object: short ones go by themselves.
            Incoming::Request(BroadcastRequest::Cast) => self.cast_at = Some(now),
            Incoming::Request(BroadcastRequest::Dead(rank)) => {
                self.commands.push(BroadcastCommand::Dead { rank: Rank(rank) })
            }
            Incoming::Request(BroadcastRequest::Die) => {
                // As if somebody else had done it: nothing of this process gets to run any more.
                let _ = raise(Signal::SIGKILL);
            }
            Incoming::Request(BroadcastRequest::Stop(length)) => {
                thread::sleep(Duration::from_nanos(length.0))
            }
            Incoming::Request(BroadcastRequest::Filter) => self.is_filtered.set(true),
            Incoming::Leave => self.next = Some(AfterCast::Leave),
        }
    }

    /// Does what an event of the engine asks for.
    fn handle_event(&mut self, event: BroadcastEvent, now: LocalNs, wire: &mut dyn Wire) {
        match event {
            BroadcastEvent::Ready => self.respond(BroadcastResponse::Ready),
            BroadcastEvent::Received { object, at } => self.receive(object, at, now, wire),
            BroadcastEvent::Stable { object, .. } => self.object_stable(object, now),
            BroadcastEvent::Aborted { object } => self.account.aborted = Some(object),
            BroadcastEvent::Switched { way } => self.respond(BroadcastResponse::Switched(way, now)),
            BroadcastEvent::Lost { rank } => self.respond(BroadcastResponse::Lost(rank.0)),
            BroadcastEvent::Out => {
                self.is_done = true;
                self.respond(BroadcastResponse::Out);
            }
            BroadcastEvent::Helpless => self.respond(BroadcastResponse::Helpless),
            BroadcastEvent::Refused { missing } => self
                .respond(BroadcastResponse::Failed(format!("nothing can be cast here: {missing}"))),
            _ => {}
        }
    }

    fn receive(&mut self, object: u32, at: Span, now: LocalNs, wire: &mut dyn Wire) {
        self.account.times.push([now; 2]);
        if self.is_sampled() && object == self.assignment.sampled_object {
            self.samples.end(now, self.symbols());
        }
        if self.places.is_short(self.assignment.length) {
            self.record_fault(
                object,
                pattern::fault(wire, at, self.assignment.length, self.assignment.seed, object),
            );
            self.commands.push(BroadcastCommand::Release { object });
        }
    }

    /// Handles an object that is with everybody.
    fn object_stable(&mut self, object: u32, now: LocalNs) {
        self.stable = object + 1;
        if let Some(times) = self.account.times.get_mut(object as usize) {
            times[1] = now;
        }
        let is_short = self.places.is_short(self.assignment.length);
        let is_ordered = self.assignment.rhythm == CastTiming::Ordered;
        if self.is_root && (is_ordered || self.stable == self.assignment.objects) {
            self.account.processor.push(clock::processor() - self.processor);
        }
        if is_short {
            return;
        }
        if self.is_root {
            return self.object_received(object);
        }
        let at = self.places.object_span(object, self.assignment.length);
        self.comparing.push_back(ObjectPattern::new(at, self.assignment.seed, object));
    }

    /// Handles a long object that is with everybody, and right here.
    fn object_received(&mut self, object: u32) {
        if self.assignment.rhythm == CastTiming::Ordered {
            self.respond(BroadcastResponse::Has(object));
        }
    }

    /// Compares the next piece of the first long object that waits for it.
    fn compare_some(&mut self, wire: &dyn Wire) {
        let Some(first) = self.comparing.front_mut() else { return };
        let object = first.number;
        let ControlFlow::Break(wrong) = first.compare_piece(wire, self.assignment.length) else {
            return;
        };
        self.comparing.pop_front();
        self.record_fault(object, wrong);
        let next = object + self.places.count;
        if next < self.assignment.objects {
            let into = self.places.object_span(next, self.assignment.length);
            self.commands.push(BroadcastCommand::Place { into });
        }
        self.object_received(object);
    }

    fn record_fault(&mut self, object: u32, wrong: Option<String>) {
        self.account.faults.extend(wrong.map(|what| format!("object {object} {what}")));
    }

    /// Casts what is due.
    fn cast(&mut self, now: LocalNs, wire: &mut dyn Wire) {
        let Some(at) = self.cast_at.filter(|at| *at <= now && self.cast < self.assignment.objects)
        else {
            return;
        };
        let count = match self.assignment.rhythm {
            CastTiming::Batches(count) if self.stable == self.cast => {
                count.min(self.assignment.objects - self.cast)
            }
            CastTiming::Batches(_) => return,
            // Memory of an object that is not with everybody is not used again.
            _ if self.cast - self.stable >= SLOTS => return,
            CastTiming::Ordered | CastTiming::Apart(_) | CastTiming::Bare => 1,
        };
        if self.cast == 0 || self.assignment.rhythm == CastTiming::Ordered {
            self.processor = clock::processor();
        }
        for _ in 0..count {
            if self.cast_one(wire).is_continue() {
                return;
            }
        }
        self.cast_at = match self.assignment.rhythm {
            CastTiming::Ordered => None,
            // One that was away goes on from here.
            CastTiming::Apart(gap) => Some((at + gap).max(now)),
            CastTiming::Batches(_) | CastTiming::Bare => Some(at),
        };
        if self.cast == self.assignment.objects {
            self.cast_at = None;
            self.commands.push(BroadcastCommand::Flush);
        }
    }

    /// Makes the next piece of the next object, and casts it if that was the last one.
    fn cast_one(&mut self, wire: &mut dyn Wire) -> ControlFlow<()> {
        let from = self.places.object_span(self.cast, self.assignment.length);
        let making = self
            .making
            .get_or_insert_with(|| ObjectPattern::new(from, self.assignment.seed, self.cast));
        if making.make_piece(wire).is_continue() {
            return ControlFlow::Continue(());
        }
        self.making = None;
        if self.assignment.rhythm == CastTiming::Ordered {
            self.processor = clock::processor();
        }
        // The time to make the object is not that of its broadcast.
        self.account.times.push([clock::now(); 2]);
        self.commands.push(BroadcastCommand::Cast { from });
        self.cast += 1;
        ControlFlow::Break(())
    }

    /// Returns the symbols of one object.
    fn symbols(&self) -> u64 {
        self.assignment.length.0.div_ceil(u64::from(self.places.symbol)).max(1)
    }

    /// Returns whether this rank notes how one object comes in: short ones are here at once.
    fn is_sampled(&self) -> bool {
        !self.is_root && self.assignment.rhythm == CastTiming::Ordered
    }

    /// Notes how an object in the middle comes in, and how long nothing came in the middle of any.
    fn watch(&mut self, received: u64, now: LocalNs) {
        let sampled_object = self.assignment.sampled_object;
        let here = received.saturating_sub(u64::from(sampled_object) * self.symbols());
        if self.is_sampled() && self.stable == sampled_object && here < self.symbols() {
            self.samples.sample(now, here);
        }
        let (before, since) = self.came;
        if received == before {
            return;
        }
        let symbols = self.symbols();
        if before / symbols == (received - 1) / symbols && before % symbols != 0 {
            self.account.stall = self.account.stall.max(now.since(since));
        }
        self.came = (received, now);
    }

    /// Tells the coordinator how it ended, once.
    fn conclude(&mut self, node: &BroadcastNode, wire: &dyn Wire) {
        let end = self.account.aborted.unwrap_or(u32::MAX).min(self.assignment.objects);
        if self.is_done || self.stable < end || !self.comparing.is_empty() {
            return;
        }
        self.is_done = true;
        self.account.stable = self.stable;
        self.account.record = node.record();
        self.account.samples = self.samples.take();
        let PayloadTally { lost, sources } = self.tally.take();
        self.account.lost = lost + wire.counters().receive_overflow.saturating_sub(self.dropped);
        self.account.sources = sources;
        let now = traffic().zip(self.traffic);
        self.account.traffic =
            now.map(|(now, then)| [0, 1].map(|way| Bytes(now[way].0.saturating_sub(then[way].0))));
        let account = std::mem::take(&mut self.account);
        self.respond(BroadcastResponse::Done(Box::new(account)));
    }

    /// Returns when the root casts by itself again.
    fn next_cast_at(&self) -> Option<LocalNs> {
        let is_free = match self.assignment.rhythm {
            CastTiming::Batches(_) => self.stable == self.cast,
            _ => self.cast - self.stable.min(self.cast) < SLOTS,
        };
        self.cast_at.filter(|_| is_free)
    }
}

/// The rank's side of the progress loop.
struct BroadcastHost<'a, 'b> {
    casting: &'a mut RunningCast<'b>,
}

impl progress::EngineHost<BroadcastNode> for BroadcastHost<'_, '_> {
    fn event(&mut self, event: BroadcastEvent) {
        self.casting.events.push((clock::now(), event));
    }

    fn control(&mut self, _which: usize, now: LocalNs, _driver: &mut Driver<BroadcastNode>) {
        match self.casting.orders.waiting() {
            Some(orders) => {
                orders.into_iter().for_each(|order| self.casting.handle_request(order, now))
            }
            None => self.casting.next = Some(AfterCast::Gone),
        }
    }

    fn after_step(
        &mut self,
        now: LocalNs,
        driver: &mut Driver<BroadcastNode>,
        wire: &mut dyn Wire,
    ) -> ControlFlow<(), Option<LocalNs>> {
        let casting = &mut *self.casting;
        for (at, event) in std::mem::take(&mut casting.events) {
            casting.handle_event(event, at, wire);
        }
        casting.cast(now, wire);
        casting.compare_some(wire);
        casting.watch(driver.engine_mut().record().received, now);
        casting.conclude(driver.engine_mut(), wire);
        if casting.next.is_some() {
            return ControlFlow::Break(());
        }
        let has_more = !casting.commands.is_empty() || !casting.comparing.is_empty();
        casting.commands.drain(..).for_each(|command| driver.command(now, command));
        ControlFlow::Continue(if has_more { Some(now) } else { casting.next_cast_at() })
    }
}

/// Takes part in rounds of the bare exchange.
fn serve_bare(
    wire: &mut FaultInjectingWire,
    assignment: &BroadcastAssignment,
    group: Option<GroupId>,
    orders: &mut Requests<BroadcastProtocol>,
) -> Result<AfterCast> {
    let input = orders.source().try_clone_to_owned()?;
    send_response(BroadcastResponse::Taken)?;
    let end = BareExchange::new(wire.rank(), assignment.ranks, group, assignment.objects);
    if wire.rank() == ROOT {
        send_response(BroadcastResponse::Ready)?;
    }
    let mut driver = Driver::boot(end, clock::now(), 0);
    let mut host = BareExchangeHost { orders, is_over: false, next: None };
    progress::run(&mut driver, wire, &[input.as_fd()], &mut host);
    Ok(host.next.unwrap_or(AfterCast::Gone))
}

/// The rank's side of the progress loop, of bare exchanges.
struct BareExchangeHost<'a> {
    orders: &'a mut Requests<BroadcastProtocol>,
    is_over: bool,
    next: Option<AfterCast>,
}

impl progress::EngineHost<BareExchange> for BareExchangeHost<'_> {
    fn event(&mut self, _over: bare_exchange::ExchangeDone) {
        self.is_over = true;
    }

    fn control(&mut self, _which: usize, now: LocalNs, driver: &mut Driver<BareExchange>) {
        let Some(orders) = self.orders.waiting() else {
            self.next = Some(AfterCast::Gone);
            return;
        };
        for order in orders {
            match order {
                Incoming::Request(BroadcastRequest::Begin) => {
                    driver.command(now, bare_exchange::StartExchange)
                }
                Incoming::Request(BroadcastRequest::Take(assignment)) => {
                    self.next = Some(AfterCast::Cast(assignment))
                }
                Incoming::Leave => self.next = Some(AfterCast::Leave),
                Incoming::Request(_) => {}
            }
        }
    }

    fn after_step(
        &mut self,
        _now: LocalNs,
        driver: &mut Driver<BareExchange>,
        _wire: &mut dyn Wire,
    ) -> ControlFlow<(), Option<LocalNs>> {
        if std::mem::take(&mut self.is_over) {
            let times = std::mem::take(&mut driver.engine_mut().times);
            if send_response(BroadcastResponse::Done(Box::new(BroadcastResult {
                times,
                ..BroadcastResult::default()
            })))
            .is_err()
            {
                self.next = Some(AfterCast::Gone);
            }
        }
        if self.next.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(None) }
    }
}
