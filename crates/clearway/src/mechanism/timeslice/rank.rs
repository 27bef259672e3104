//! One rank of timeslice building: an input or a builder over the wire that its conductor chose, run after run.
//!
//! # Model
//! The engine says who sends what when; this is what is around it: memory, the source of an input, the sink of a builder, and the
//! conductor's orders. All of them are looked at after each step of the engine; a source or sink with something new wakes the rank.
//!
//! # Invariants
//! I1. A rank never waits for its source, its sink or its conductor while peers wait for it.
//!
//! # Not here
//! What is said to the conductor: `words`. What a rank does in a run, and with which memory: `part`.

use std::collections::VecDeque;
use std::io::Read;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use anyhow::{Context, Result};
use clearway_proto::base::{Bytes, Class, LocalNs, Nanos, RandomKey, Rank};
use clearway_proto::timeslice::{
    ReleasePolicy, TimesliceCommand, TimesliceConfig, TimesliceEvent, TimesliceLayout, TimesliceNode, WriteSlots,
};
use clearway_proto::wire::{Driver, RegionId, Span, Wire};
use clearway_runtime::waiting::Waitable;
use clearway_runtime::{clock, progress};
use nix::sys::signal::{Signal, raise};

use super::numbers::Numbers;
use super::outlet::{Outlet, Returned};
use super::part::{Memory, Part};
use super::stream::look;
use super::words::{Account, Asked, Assignment, Building, Progress, Said};
use crate::run::exit::Exit;
use crate::run::rank::{Incoming, RankEnd, Requests, respond};

/// Tells the conductor something.
fn say(said: Said) -> Result<()> {
    respond::<Building>(said)
}

/// Serves requests until the coordinator is done.
pub(crate) fn serve(end: RankEnd) -> Result<Exit> {
    let (mut wire, mut orders) = end.begin::<Building>()?;
    let mut memory = Memory::default();
    let mut next = loop {
        break match orders.next()? {
            Some(Incoming::Request(Asked::Look(template))) => {
                say(look(&template).map_or_else(|error| Said::Failed(format!("{error:#}")), |()| Said::Found))?;
                continue;
            }
            Some(Incoming::Request(Asked::Take(assignment))) => Next::Run(assignment),
            Some(Incoming::Leave) => Next::Leave,
            _ => Next::Gone,
        };
    };
    loop {
        let assignment = match next {
            Next::Run(assignment) => assignment,
            Next::Leave => return Ok(Exit::Good),
            Next::Gone => return Ok(Exit::Failed),
        };
        next = match Running::open(&mut *wire, &assignment, &mut memory, &mut orders) {
            Ok((running, node)) => running.run(&mut *wire, node),
            Err(error) => {
                say(Said::Failed(format!("{error:#}")))?;
                return Ok(Exit::Good);
            }
        };
    }
}

/// What comes after a run.
enum Next {
    /// Another one.
    Run(Box<Assignment>),
    /// The conductor said that all is over.
    Leave,
    /// The conductor is gone, or none.
    Gone,
}

/// Progress that is told.
struct Telling {
    every: Nanos,
    next: LocalNs,
    number: u64,
}

/// One run.
struct Running<'a> {
    orders: &'a mut Requests<Building>,
    part: Part,
    region: RegionId,
    inputs: u32,
    /// How long after the order an input begins.
    skew: Nanos,
    begin_at: Option<LocalNs>,
    telling: Option<Telling>,
    /// Since when nothing that was counted is told.
    told_at: LocalNs,
    events: VecDeque<TimesliceEvent>,
    commands: VecDeque<TimesliceCommand>,
    /// The conductor said that it may begin, since it takes part.
    has_begun: bool,
    /// The conductor knows that this input is at rest.
    rest_told: bool,
    /// This rank takes no part, by a decision of all.
    is_out: bool,
    /// It wished that: all that it has built counts. Otherwise nothing does that is not settled.
    is_retired: bool,
    /// This rank's part is over, but for what is at the sink.
    ended: bool,
    next: Option<Next>,
}

impl<'a> Running<'a> {
    fn open(
        wire: &mut dyn Waitable,
        assignment: &Assignment,
        memory: &mut Memory,
        orders: &'a mut Requests<Building>,
    ) -> Result<(Self, TimesliceNode)> {
        let Assignment { inputs, builders, .. } = *assignment;
        let (places, ranks) = ((0..inputs).map(Rank), (inputs..inputs + builders).map(Rank));
        let layout = Arc::new(TimesliceLayout::new(places.collect(), ranks.collect(), &assignment.weights)?);
        let rank = wire.rank();
        let role = layout.role(rank).context("a rank without a part")?;
        let (part, region, source) = Part::of(role, wire, assignment, memory)?;
        let release = if matches!(part, Part::Builder(_)) { ReleasePolicy::ByCommand } else { ReleasePolicy::AtOnce };
        let skew = RandomKey::new(assignment.seed).purpose("start").node(u64::from(rank.0)).stream();
        let node = TimesliceNode::new(TimesliceConfig {
            rank,
            run: assignment.number as u16,
            layout,
            policy: assignment.policy,
            window: assignment.window,
            dfs: assignment.dfs,
            source,
            slots: WriteSlots::from_policy(assignment.policy),
            rings: Span { region, offset: 0, length: 0 },
            ring: assignment.ring,
            release,
            heartbeat: assignment.heartbeat,
            class: Class::Bulk,
            control: Class::Control,
        });
        let running = Self {
            orders,
            part,
            region,
            inputs,
            skew: Nanos({ skew }.below(assignment.start_skew.0 + 1)),
            begin_at: None,
            telling: None,
            told_at: clock::now(),
            events: VecDeque::new(),
            commands: VecDeque::new(),
            has_begun: false,
            rest_told: false,
            is_out: false,
            is_retired: false,
            ended: false,
            next: None,
        };
        Ok((running, node))
    }

    /// Runs until the conductor wants something else.
    fn run(mut self, wire: &mut dyn Waitable, node: TimesliceNode) -> Next {
        let bell = match &self.part {
            Part::Input(intake) => intake.stream().bell().try_clone().ok(),
            Part::Builder(outlet) => outlet.bell().try_clone().ok(),
            Part::Same(_) | Part::Endless { .. } | Part::Discard { .. } => None,
        };
        let Ok(input) = self.orders.source().try_clone_to_owned() else { return Next::Gone };
        let written = if let Part::Builder(outlet) = &self.part { outlet.unfinished() } else { None };
        if written.map_or(Ok(()), |name| say(Said::Writes(name))).and_then(|()| say(Said::Taken)).is_err() {
            return Next::Gone;
        }
        let mut driver = Driver::boot(node, clock::now(), 0);
        let mut control = vec![input.as_fd()];
        control.extend(bell.as_ref().map(AsFd::as_fd));
        let mut host = Host { running: &mut self, bell: bell.as_ref() };
        progress::run(&mut driver, wire, &control, &mut host);
        self.next.unwrap_or(Next::Gone)
    }

    /// Ends the run because of `what`; the conductor ends all others.
    fn fail(&mut self, what: String) {
        if say(Said::Failed(what)).is_err() {
            self.next = Some(Next::Gone);
        }
        self.part = Part::Discard { account: Account::default() };
    }

    fn say(&mut self, what: Said) {
        if say(what).is_err() {
            self.next = Some(Next::Gone);
        }
    }

    fn obey(&mut self, order: Incoming<Asked>, now: LocalNs, driver: &mut Driver<TimesliceNode>) {
        match order {
            Incoming::Request(Asked::Take(assignment)) => self.next = Some(Next::Run(assignment)),
            Incoming::Request(Asked::Begin(every)) => {
                self.begin_at = Some(now + self.skew);
                self.has_begun = true;
                // Who joins goes on counting samples from where the others are.
                self.telling.get_or_insert(Telling { every, next: now + every, number: 1 });
                self.open_up();
            }
            Incoming::Request(Asked::Hold) => match &mut self.part {
                Part::Input(intake) => {
                    intake.hold();
                    self.rest_told = false;
                }
                Part::Same(same) => {
                    same.limit = same.given;
                    self.rest_told = false;
                }
                // It can end wherever it is.
                Part::Endless { given } => {
                    let given = *given;
                    self.say(Said::Over(given));
                }
                Part::Builder(_) | Part::Discard { .. } => {}
            },
            Incoming::Request(Asked::Pad(timeslice)) => {
                if let Part::Input(intake) = &mut self.part {
                    intake.go_on_to(timeslice);
                }
            }
            Incoming::Request(Asked::End(_)) if self.is_out => self.conclude(),
            Incoming::Request(Asked::End(timeslice)) => {
                if !std::mem::replace(&mut self.has_begun, true) {
                    self.commands.push_back(TimesliceCommand::Begin);
                }
                match &mut self.part {
                    Part::Input(intake) => intake.go_on_to(timeslice),
                    Part::Same(same) => same.limit = timeslice,
                    _ => {}
                }
                self.commands.push_back(TimesliceCommand::Finish { timeslice });
            }
            Incoming::Request(Asked::Keep) => {
                let kept = if let Part::Builder(outlet) = &mut self.part { outlet.keep() } else { Ok(()) };
                self.say(kept.map_or_else(|error| Said::Failed(format!("{error:#}")), |()| Said::Kept));
            }
            // Asked before a run.
            Incoming::Request(Asked::Look(_)) => {}
            Incoming::Request(Asked::Die) => {
                // As if somebody else had done it: nothing of this process gets to run any more.
                let _ = raise(Signal::SIGKILL);
            }
            Incoming::Request(Asked::Retire) => self.commands.push_back(TimesliceCommand::Retire),
            Incoming::Request(Asked::Join) => self.commands.push_back(TimesliceCommand::Join),
            Incoming::Request(Asked::Tell) => {
                let settled = settled(driver.engine_mut());
                self.say(Said::Settled(settled));
            }
            Incoming::Leave => self.next = Some(Next::Leave),
        }
    }

    /// Does what an event of the engine asks for.
    fn heed(&mut self, event: TimesliceEvent) {
        match (event, &mut self.part) {
            (TimesliceEvent::Ready, _) => self.say(Said::Ready),
            (TimesliceEvent::Free { timeslice }, Part::Input(intake)) => intake.free(timeslice),
            (TimesliceEvent::Free { timeslice }, Part::Same(same)) => same.free = timeslice,
            (TimesliceEvent::Complete { timeslice, position, .. }, Part::Builder(outlet)) => {
                outlet.complete(position, timeslice)
            }
            (TimesliceEvent::Complete { timeslice, .. }, Part::Discard { account }) => account.take(timeslice),
            (TimesliceEvent::Ended, _) => self.ended = true,
            (TimesliceEvent::Aborted { by }, _) => self.fail(format!("rank {by} ended the run")),
            (TimesliceEvent::TooLong { bytes, ring }, _) => self.fail(format!(
                "a contribution has {} and the ring of a builder {}: --ring makes it longer",
                Bytes(bytes),
                Bytes(ring)
            )),
            (TimesliceEvent::Refused { missing, .. }, _) => {
                self.fail(format!("timeslices cannot be built over this wire: {missing}"))
            }
            (TimesliceEvent::Lost { rank }, _) => self.say(Said::Lost(rank.0)),
            (TimesliceEvent::Helpless, _) => self.say(Said::Helpless),
            (TimesliceEvent::Retired { timeslice }, part) => {
                match part {
                    Part::Input(intake) => intake.retire(timeslice),
                    Part::Same(same) => (same.limit, same.given) = (timeslice, same.given.min(timeslice)),
                    _ => {}
                }
                self.is_retired = true;
            }
            // What its sink has that is void stands behind what counts; the conductor says how much that is.
            (TimesliceEvent::Out, part) => {
                if let (Part::Builder(outlet), false) = (part, self.is_retired) {
                    outlet.end();
                }
                self.is_out = true;
                self.say(Said::Out { is_retired: self.is_retired });
            }
            (TimesliceEvent::Joined { timeslice }, part) => {
                match part {
                    Part::Input(intake) => intake.join(timeslice),
                    Part::Same(same) => (same.limit, same.given, same.free) = (timeslice, timeslice, timeslice),
                    _ => {}
                }
                (self.is_out, self.is_retired, self.has_begun, self.rest_told) = (false, false, false, false);
                self.say(Said::Joined);
            }
            _ => {}
        }
    }

    /// An input that takes part gives all that it may.
    fn open_up(&mut self) {
        match &mut self.part {
            Part::Input(intake) => intake.open(),
            Part::Same(same) => same.limit = same.most,
            Part::Endless { .. } | Part::Builder(_) | Part::Discard { .. } => {}
        }
    }

    /// Nothing more comes of this rank's part but what is at its sink.
    fn conclude(&mut self) {
        match &mut self.part {
            Part::Builder(outlet) => outlet.end(),
            Part::Input(intake) => {
                let account = Account {
                    cut: intake.cut,
                    microslices: intake.microslices,
                    bytes: intake.bytes,
                    ..Account::default()
                };
                self.say(Said::Done(Box::new(account)));
            }
            Part::Same(_) | Part::Endless { .. } => self.say(Said::Done(Box::default())),
            Part::Discard { account } => {
                let account = std::mem::take(account);
                self.say(Said::Done(Box::new(account)));
            }
        }
    }

    /// Moves microslices in and timeslices out.
    fn move_on(&mut self, driver: &mut Driver<TimesliceNode>, wire: &mut dyn Wire) {
        // What the sink of a builder that retired has is told at the end.
        if self.is_out && !(self.is_retired && matches!(self.part, Part::Builder(_))) {
            return;
        }
        let failed = match &mut self.part {
            Part::Input(intake) => match wire.region_mut(self.region) {
                Some(memory) => {
                    let commands = &mut self.commands;
                    let moved = intake.pump(memory, &mut |pieces| commands.push_back(TimesliceCommand::Give(pieces)));
                    moved.err().map(|error| format!("{error:#}"))
                }
                None => Some("its memory is gone".to_owned()),
            },
            Part::Builder(outlet) => hand_over(outlet, self.inputs, driver.engine_mut(), wire, &mut self.commands),
            Part::Same(same) => {
                same.pump(&mut |pieces| self.commands.push_back(TimesliceCommand::Give(pieces)));
                None
            }
            Part::Endless { given } => {
                *given = driver.engine_mut().reached().unwrap_or(0);
                None
            }
            Part::Discard { .. } => None,
        };
        if let Some(sentence) = failed {
            self.fail(sentence);
        }
    }

    /// Tells the conductor what it waits for.
    fn report(&mut self, now: LocalNs, driver: &mut Driver<TimesliceNode>) {
        if self.is_out {
            return;
        }
        if let Some(telling) = self.telling.as_mut().filter(|telling| telling.next <= now) {
            let number = telling.number;
            // One that was away tells once and goes on from here.
            let passed = 1 + now.since(telling.next).0 / telling.every.0.max(1);
            (telling.next, telling.number) = (telling.next + Nanos(telling.every.0 * passed), number + passed);
            let number = number + passed - 1;
            let timeslices = match &self.part {
                Part::Input(intake) => intake.given(),
                Part::Same(same) => same.given,
                Part::Endless { given } => *given,
                Part::Builder(outlet) => outlet.taken(),
                Part::Discard { account } => account.taken.count(),
            };
            if let Some(record) = driver.engine_mut().take_record(now) {
                let awaited = driver.engine_mut().awaited().map(|rank| rank.0);
                let span = now.since(std::mem::replace(&mut self.told_at, now));
                let progress = Progress { number, record, span, timeslices, processor: clock::processor(), awaited };
                self.say(Said::Progress(Box::new(progress)));
            }
        }
        let rest = match &self.part {
            Part::Input(intake) => Some((intake.is_at_rest(), intake.given())),
            Part::Same(same) => Some((same.given >= same.limit, same.given)),
            Part::Endless { .. } | Part::Builder(_) | Part::Discard { .. } => None,
        };
        // Nobody listens for it before it may begin.
        if let Some((at_rest, given)) = rest.filter(|_| self.has_begun) {
            if at_rest && !self.rest_told {
                self.say(Said::Over(given));
            }
            self.rest_told = at_rest;
        }
        if self.ended {
            self.ended = false;
            self.conclude();
        }
    }
}

/// Gives `outlet` what can leave, and the engine what came back. Why it cannot go on, if it cannot.
fn hand_over(
    outlet: &mut Outlet,
    inputs: u32,
    node: &mut TimesliceNode,
    wire: &dyn Wire,
    commands: &mut VecDeque<TimesliceCommand>,
) -> Option<String> {
    loop {
        match outlet.hear() {
            Returned::Release(timeslice) => commands.push_back(TimesliceCommand::Release { timeslice }),
            Returned::Over(account) => return say(Said::Done(Box::new(account))).err().map(|error| error.to_string()),
            Returned::Failed(sentence) => return Some(sentence),
            Returned::Nothing => break,
        }
    }
    while let Some(mut built) = outlet.next(node.row().unwrap_or(0)) {
        for place in 0..inputs as usize {
            let span = node.contribution(place, built.timeslice);
            let bytes = span.and_then(|Span { region, offset, length }| {
                wire.region(region)?.get(offset as usize..)?.get(..length as usize)
            });
            built.push(bytes.unwrap_or_default());
        }
        outlet.give(built);
    }
    None
}

/// What builders had built that are out, by decision.
fn settled(node: &TimesliceNode) -> Vec<(u32, Numbers)> {
    let mut settled: Vec<(u32, Numbers)> = Vec::new();
    for (rank, timeslice) in node.settled() {
        match settled.last_mut() {
            Some((last, numbers)) if *last == rank.0 => numbers.push(timeslice),
            _ => settled.push((rank.0, Numbers::from_iter([timeslice]))),
        }
    }
    settled
}

/// The rank's side of the progress loop.
struct Host<'a, 'b> {
    running: &'a mut Running<'b>,
    bell: Option<&'a UnixStream>,
}

impl progress::Host<TimesliceNode> for Host<'_, '_> {
    fn told(&mut self, event: TimesliceEvent) {
        self.running.events.push_back(event);
    }

    fn control(&mut self, which: usize, now: LocalNs, driver: &mut Driver<TimesliceNode>) {
        if which > 0 {
            if let Some(mut bell) = self.bell {
                let _ = bell.read(&mut [0; 64]);
            }
            return;
        }
        match self.running.orders.waiting() {
            Some(orders) => orders.into_iter().for_each(|order| self.running.obey(order, now, driver)),
            None => self.running.next = Some(Next::Gone),
        }
    }

    fn after_step(
        &mut self,
        now: LocalNs,
        driver: &mut Driver<TimesliceNode>,
        wire: &mut dyn Wire,
    ) -> ControlFlow<(), Option<LocalNs>> {
        let running = &mut *self.running;
        while let Some(event) = running.events.pop_front() {
            running.heed(event);
        }
        if running.begin_at.is_some_and(|at| at <= now) {
            running.begin_at = None;
            running.commands.push_back(TimesliceCommand::Begin);
        }
        running.move_on(driver, wire);
        running.report(now, driver);
        if running.next.is_some() {
            return ControlFlow::Break(());
        }
        let has_commands = !running.commands.is_empty();
        running.commands.drain(..).for_each(|command| driver.command(now, command));
        let telling = running.telling.as_ref().map(|telling| telling.next);
        let wake = [running.begin_at, telling].into_iter().flatten().min();
        ControlFlow::Continue(if has_commands { Some(now) } else { wake })
    }
}
