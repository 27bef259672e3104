//! One rank of timeslice building: an input or a builder over the wire that its coordinator chose,
//! run after run.
//!
//! # Model
//! The engine says who sends what when; this is what is around it: memory, the source of an input,
//! the sink of a builder, and the coordinator's orders. All of them are looked at after each step
//! of the engine; a source or sink with something new wakes the rank.
//!
//! # Invariants
//! I1. A rank never waits for its source, its sink or its coordinator while peers wait for it.
//!
//! # Not here
//! What is said to the coordinator: `messages`. What a rank does in a run, and with which memory:
//! `role`.

use std::collections::VecDeque;
use std::io::Read;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use clearway_proto::base::{Bytes, Class, LocalNs, Nanos, RandomKey, Rank};
use clearway_proto::microslice::SliceRule;
use clearway_proto::timeslice::{
    ReleasePolicy, Role, TimesliceCommand, TimesliceConfig, TimesliceEvent, TimesliceNode,
    WriteSlots,
};
use clearway_proto::wire::{Driver, RegionId, Span, Wire};
use clearway_runtime::waiting::Waitable;
use clearway_runtime::{clock, progress};
use nix::sys::signal::{Signal, raise};

use super::builder_output::{BuilderOutput, SinkEvent};
use super::input_buffer::FirstStart;
use super::losses::BuilderWait;
use super::measured::ping;
use super::messages::{
    TimesliceAssignment, TimesliceProgress, TimesliceProtocol, TimesliceRequest, TimesliceResponse,
    TimesliceResult,
};
use super::plan::{layout, numbered_role};
use super::role::{TimesliceMemory, TimesliceRole};
use super::settled::SettledWork;
use super::stream::look;
use crate::run::exit::Exit;
use crate::run::rank_process::{Incoming, RankContext, Requests, respond, takes_no_part};

/// A builder waits for its sink if that is behind for more than this part of the time: a sink that
/// keeps up is behind only while several timeslices become complete at once.
const SINK_PART: u64 = 8;
/// Bytes of timeslices that leave before peers are looked after again, or one timeslice.
const HANDED_AT_ONCE: usize = 1 << 20;

/// Tells the coordinator something.
fn send_response(said: TimesliceResponse) -> Result<()> {
    respond::<TimesliceProtocol>(said)
}

/// Serves requests until the coordinator is done.
pub(crate) fn serve(end: RankContext) -> Result<Exit> {
    let (mut wire, mut orders) = end.begin::<TimesliceProtocol>()?;
    let mut memory = TimesliceMemory::default();
    let mut asked = VecDeque::new();
    let mut next = loop {
        let incoming = match asked.pop_front() {
            Some(incoming) => Some(incoming),
            None => orders.next()?,
        };
        break match incoming {
            Some(Incoming::Request(TimesliceRequest::Ping(order))) => {
                match ping(&mut *wire, &mut orders, &order) {
                    Ok(outcome) if !outcome.is_coordinated => AfterRun::Gone,
                    Ok(outcome) => {
                        asked.extend(outcome.asked);
                        send_response(TimesliceResponse::Pinged(outcome.results))?;
                        continue;
                    }
                    Err(error) => {
                        send_response(TimesliceResponse::Failed(format!("{error:#}")))?;
                        continue;
                    }
                }
            }
            Some(Incoming::Request(TimesliceRequest::Look(template))) => {
                send_response(look(&template).map_or_else(
                    |error| TimesliceResponse::Failed(format!("{error:#}")),
                    |()| TimesliceResponse::Found,
                ))?;
                continue;
            }
            Some(Incoming::Request(TimesliceRequest::Take(assignment))) => {
                AfterRun::Run(assignment)
            }
            Some(Incoming::Leave) => AfterRun::Leave,
            _ => AfterRun::Gone,
        };
    };
    loop {
        let assignment = match next {
            AfterRun::Run(assignment) => assignment,
            AfterRun::Leave => return Ok(Exit::Good),
            AfterRun::Gone => return Ok(Exit::Failed),
        };
        next = match RunningBuild::open(&mut *wire, &assignment, &mut memory, &mut orders) {
            Ok((running, node)) => running.run(&mut *wire, node),
            Err(error) => {
                send_response(TimesliceResponse::Failed(format!("{error:#}")))?;
                return Ok(match assignment.restart {
                    Some(restart) if restart.is_alone => takes_no_part(wire.rank(), &error),
                    _ => Exit::Good,
                });
            }
        };
    }
}

/// What comes after a run.
enum AfterRun {
    /// Another one.
    Run(Box<TimesliceAssignment>),
    /// The coordinator said that all is over.
    Leave,
    /// The coordinator is gone, or none.
    Gone,
}

/// Progress that is reported.
struct ProgressReporter {
    every: Nanos,
    next: LocalNs,
    number: u64,
}

/// One run.
struct RunningBuild<'a> {
    orders: &'a mut Requests<TimesliceProtocol>,
    part: TimesliceRole,
    region: RegionId,
    /// In turns, of each input.
    places_of_inputs: Vec<usize>,
    /// How long after the order an input begins.
    skew: Nanos,
    begin_at: Option<LocalNs>,
    telling: Option<ProgressReporter>,
    /// Since when nothing that was counted is reported.
    reported_at: LocalNs,
    events: VecDeque<TimesliceEvent>,
    commands: VecDeque<TimesliceCommand>,
    /// The coordinator has to know when the first microslice starts.
    first_is_wanted: bool,
    /// The coordinator said that it may begin, since it takes part.
    has_begun: bool,
    /// The coordinator knows that this input is at rest.
    rest_reported: bool,
    /// This rank takes no part, by a decision of all.
    is_out: bool,
    /// It wished that: all that it has built counts. Otherwise nothing does that is not settled.
    is_retired: bool,
    /// This rank's part is over, but for what is at the sink.
    ended: bool,
    /// The last look at its source or sink left work that waits for nothing.
    has_work: bool,
    /// How many processes were this rank in this run before this one.
    incarnation: u32,
    next: Option<AfterRun>,
}

impl<'a> RunningBuild<'a> {
    fn open(
        wire: &mut dyn Waitable,
        assignment: &TimesliceAssignment,
        memory: &mut TimesliceMemory,
        orders: &'a mut Requests<TimesliceProtocol>,
    ) -> Result<(Self, TimesliceNode)> {
        let TimesliceAssignment { inputs, builders, .. } = *assignment;
        let of_ranks = [inputs, builders];
        let layout = layout(of_ranks, &assignment.weights, &assignment.neighbourhoods)?;
        let rank = wire.rank();
        let role = numbered_role(rank, of_ranks).context("a rank without a part")?;
        let place_of = |input| match layout.role(Rank(input))? {
            Role::Input(place) => Some(place),
            Role::Builder(_) => None,
        };
        let places_of_inputs = (0..inputs).filter_map(place_of).collect();
        let (mut part, region, source) = TimesliceRole::new(role, wire, assignment, memory)?;
        if let (TimesliceRole::Input(buffer), Some(origin)) =
            (&mut part, assignment.restart.and_then(|restart| restart.origin))
        {
            buffer.set_origin(clock::now(), origin);
        }
        let release = if matches!(part, TimesliceRole::Builder(_)) {
            ReleasePolicy::ByCommand
        } else {
            ReleasePolicy::AtOnce
        };
        let skew =
            RandomKey::new(assignment.seed).purpose("start").node(u64::from(rank.0)).stream();
        let node = TimesliceNode::new(TimesliceConfig {
            rank,
            run: assignment.number as u16,
            layout: Arc::new(layout),
            policy: assignment.policy,
            window: assignment.window,
            dfs: assignment.dfs,
            source,
            slots: WriteSlots::from_policy(assignment.policy),
            rings: Span { region, offset: 0, length: 0 },
            ring: assignment.ring,
            release,
            heartbeat: assignment.heartbeat,
            class: assignment.class,
            control: Class::Control,
        });
        let running = Self {
            orders,
            part,
            region,
            places_of_inputs,
            skew: Nanos({ skew }.below(assignment.start_skew.0 + 1)),
            begin_at: None,
            telling: None,
            reported_at: clock::now(),
            events: VecDeque::new(),
            commands: VecDeque::new(),
            first_is_wanted: matches!(assignment.feed.slices, SliceRule::ByTime(_))
                && assignment.restart.is_none(),
            has_begun: false,
            rest_reported: false,
            is_out: assignment.restart.is_some(),
            is_retired: false,
            ended: false,
            has_work: false,
            incarnation: assignment.restart.map_or(0, |restart| restart.incarnation),
            next: None,
        };
        Ok((running, node))
    }

    /// Runs until the coordinator wants something else.
    fn run(mut self, wire: &mut dyn Waitable, node: TimesliceNode) -> AfterRun {
        let wake_signal = match &self.part {
            TimesliceRole::Input(input_buffer) => input_buffer.wake_signal(),
            TimesliceRole::Builder(output) => output.wake_signal(),
            TimesliceRole::Same(_)
            | TimesliceRole::Endless { .. }
            | TimesliceRole::Discard { .. } => None,
        };
        let wake_signal = wake_signal.and_then(|signal| signal.try_clone().ok());
        let Ok(input) = self.orders.source().try_clone_to_owned() else { return AfterRun::Gone };
        let written = if let TimesliceRole::Builder(output) = &self.part {
            output.unfinished()
        } else {
            None
        };
        if written
            .map_or(Ok(()), |name| send_response(TimesliceResponse::Writes(name)))
            .and_then(|()| send_response(TimesliceResponse::Taken))
            .is_err()
        {
            return AfterRun::Gone;
        }
        let mut driver = Driver::boot(node, clock::now(), self.incarnation);
        let mut control = vec![input.as_fd()];
        control.extend(wake_signal.as_ref().map(AsFd::as_fd));
        let mut host = TimesliceHost { running: &mut self, wake_signal: wake_signal.as_ref() };
        progress::run(&mut driver, wire, &control, &mut host);
        self.next.unwrap_or(AfterRun::Gone)
    }

    /// Ends the run because of `what`; the coordinator ends all others.
    fn fail(&mut self, what: String) {
        if send_response(TimesliceResponse::Failed(what)).is_err() {
            self.next = Some(AfterRun::Gone);
        }
        self.part = TimesliceRole::Discard { account: TimesliceResult::default() };
    }

    fn respond(&mut self, what: TimesliceResponse) {
        if send_response(what).is_err() {
            self.next = Some(AfterRun::Gone);
        }
    }

    fn handle_request(
        &mut self,
        order: Incoming<TimesliceRequest>,
        now: LocalNs,
        driver: &mut Driver<TimesliceNode>,
    ) {
        match order {
            Incoming::Request(TimesliceRequest::Take(assignment)) => {
                self.next = Some(AfterRun::Run(assignment))
            }
            Incoming::Request(TimesliceRequest::Begin { every, origin, reported }) => {
                self.begin_at = Some(now + self.skew);
                self.has_begun = true;
                // A rank that joins goes on counting samples from where the others are.
                self.telling.get_or_insert(ProgressReporter {
                    every,
                    next: now + every,
                    number: reported + 1,
                });
                self.open_up(now, origin);
            }
            Incoming::Request(TimesliceRequest::Hold) => match &mut self.part {
                TimesliceRole::Input(input_buffer) => {
                    input_buffer.hold();
                    self.rest_reported = false;
                }
                TimesliceRole::Same(same) => {
                    same.limit = same.given;
                    self.rest_reported = false;
                }
                // It can end wherever it is.
                TimesliceRole::Endless { given } => {
                    let given = *given;
                    self.respond(TimesliceResponse::Over(given));
                }
                TimesliceRole::Builder(_) | TimesliceRole::Discard { .. } => {}
            },
            Incoming::Request(TimesliceRequest::Pad(timeslice)) => {
                if let TimesliceRole::Input(input_buffer) = &mut self.part {
                    input_buffer.resume_at(timeslice);
                }
            }
            Incoming::Request(TimesliceRequest::End(_)) if self.is_out => self.conclude(),
            Incoming::Request(TimesliceRequest::End(timeslice)) => {
                if !std::mem::replace(&mut self.has_begun, true) {
                    self.commands.push_back(TimesliceCommand::Begin);
                }
                match &mut self.part {
                    TimesliceRole::Input(input_buffer) => input_buffer.resume_at(timeslice),
                    TimesliceRole::Same(same) => same.limit = timeslice,
                    _ => {}
                }
                self.commands.push_back(TimesliceCommand::Finish { timeslice });
            }
            Incoming::Request(TimesliceRequest::Keep) => {
                let kept = if let TimesliceRole::Builder(output) = &mut self.part {
                    output.keep()
                } else {
                    Ok(())
                };
                self.respond(kept.map_or_else(
                    |error| TimesliceResponse::Failed(format!("{error:#}")),
                    |()| TimesliceResponse::Kept,
                ));
            }
            // Asked before a run.
            Incoming::Request(TimesliceRequest::Look(_) | TimesliceRequest::Ping(_)) => {}
            Incoming::Request(TimesliceRequest::Die) => {
                // As if somebody else had done it: nothing of this process gets to run any more.
                let _ = raise(Signal::SIGKILL);
            }
            Incoming::Request(TimesliceRequest::Retire) => {
                self.commands.push_back(TimesliceCommand::Retire)
            }
            Incoming::Request(TimesliceRequest::Join) => {
                self.commands.push_back(TimesliceCommand::Join)
            }
            Incoming::Request(TimesliceRequest::Tell) => {
                let settled = SettledWork::all(driver.engine_mut());
                self.respond(TimesliceResponse::Settled(settled));
            }
            Incoming::Leave => self.next = Some(AfterRun::Leave),
        }
    }

    /// Does what an event of the engine asks for.
    fn handle_event(&mut self, event: TimesliceEvent) {
        match (event, &mut self.part) {
            (TimesliceEvent::Ready, _) => self.respond(TimesliceResponse::Ready),
            (TimesliceEvent::Free { timeslice }, TimesliceRole::Input(input_buffer)) => {
                input_buffer.free(timeslice)
            }
            (TimesliceEvent::Free { timeslice }, TimesliceRole::Same(same)) => {
                same.free = timeslice
            }
            (
                TimesliceEvent::Complete { timeslice, position, .. },
                TimesliceRole::Builder(output),
            ) => output.complete(position, timeslice),
            (TimesliceEvent::Complete { timeslice, .. }, TimesliceRole::Discard { account }) => {
                account.take(timeslice)
            }
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
            (TimesliceEvent::Lost { rank, epoch }, _) => {
                self.respond(TimesliceResponse::Lost { rank: rank.0, epoch })
            }
            (TimesliceEvent::Helpless, _) => self.respond(TimesliceResponse::Helpless),
            (TimesliceEvent::Retired { timeslice }, part) => {
                match part {
                    TimesliceRole::Input(input_buffer) => input_buffer.retire(timeslice),
                    TimesliceRole::Same(same) => {
                        (same.limit, same.given) = (timeslice, same.given.min(timeslice))
                    }
                    _ => {}
                }
                self.is_retired = true;
            }
            // What its sink has that is void stands behind what counts; the coordinator says how
            // much that is. A rank that wished to go is removed like a dead one where it was
            // silent while that was decided.
            (TimesliceEvent::Void { .. }, _) => self.is_retired = false,
            (TimesliceEvent::Out, part) => {
                if let (TimesliceRole::Builder(output), false) = (part, self.is_retired) {
                    output.end();
                }
                self.is_out = true;
                self.respond(TimesliceResponse::Out { is_retired: self.is_retired });
            }
            (TimesliceEvent::Joined { timeslice, epoch }, part) => {
                match part {
                    TimesliceRole::Input(input_buffer) => input_buffer.join(timeslice),
                    TimesliceRole::Same(same) => {
                        (same.limit, same.given, same.free) = (timeslice, timeslice, timeslice)
                    }
                    _ => {}
                }
                (self.is_out, self.is_retired, self.has_begun, self.rest_reported) =
                    (false, false, false, false);
                self.respond(TimesliceResponse::Joined { epoch });
            }
            _ => {}
        }
    }

    /// Lets an input that takes part give all that it may.
    fn open_up(&mut self, now: LocalNs, origin: Option<u64>) {
        match &mut self.part {
            TimesliceRole::Input(input_buffer) => input_buffer.open(now, origin),
            TimesliceRole::Same(same) => same.limit = same.most,
            TimesliceRole::Endless { .. }
            | TimesliceRole::Builder(_)
            | TimesliceRole::Discard { .. } => {}
        }
    }

    /// Concludes this rank's part, of which nothing more comes but what is at its sink.
    fn conclude(&mut self) {
        match &mut self.part {
            TimesliceRole::Builder(output) => output.end(),
            part => {
                let result = part.result();
                self.respond(TimesliceResponse::Done(Box::new(result)));
            }
        }
    }

    /// Reports when the first microslice starts, where the coordinator needs that.
    fn report_first(&mut self) {
        let TimesliceRole::Input(input_buffer) = &mut self.part else { return };
        if !std::mem::take(&mut self.first_is_wanted) {
            return;
        }
        match input_buffer.first_start() {
            Ok(FirstStart::Awaited) => self.first_is_wanted = true,
            Ok(FirstStart::At(start)) => self.respond(TimesliceResponse::First(Some(start))),
            Ok(FirstStart::Never) => self.respond(TimesliceResponse::First(None)),
            Err(error) => self.fail(format!("{error:#}")),
        }
    }

    /// Moves microslices in and timeslices out.
    fn move_on(&mut self, now: LocalNs, driver: &mut Driver<TimesliceNode>, wire: &mut dyn Wire) {
        self.has_work = false;
        // What the sink of a builder that retired has is reported at the end.
        if self.is_out && !(self.is_retired && matches!(self.part, TimesliceRole::Builder(_))) {
            return;
        }
        let commands = &mut self.commands;
        let mut give = |pieces| commands.push_back(TimesliceCommand::Give(pieces));
        let moved = match &mut self.part {
            TimesliceRole::Input(input_buffer) => match wire.region_mut(self.region) {
                Some(memory) => {
                    let moved = input_buffer.pump(now, memory, &mut give);
                    let node = driver.engine_mut();
                    input_buffer.note_holder(now, |it| node.holder(it).map(|rank| rank.0));
                    moved
                }
                None => Err(anyhow!("its memory is gone")),
            },
            TimesliceRole::Builder(output) => {
                let node = driver.engine_mut();
                let moved = hand_over(output, &self.places_of_inputs, node, wire, commands);
                output.look(now);
                moved
            }
            TimesliceRole::Same(same) => {
                same.pump(&mut give);
                Ok(false)
            }
            TimesliceRole::Endless { given } => {
                *given = driver.engine_mut().reached().unwrap_or(0);
                Ok(false)
            }
            TimesliceRole::Discard { .. } => Ok(false),
        };
        match moved {
            Ok(has_work) => self.has_work = has_work,
            Err(error) => self.fail(format!("{error:#}")),
        }
    }

    /// Tells the coordinator what it waits for.
    fn report(&mut self, now: LocalNs, driver: &mut Driver<TimesliceNode>) {
        if self.is_out {
            return;
        }
        // What was counted behind the last whole sample is reported at the end.
        let is_due = |telling: &&mut ProgressReporter| telling.next <= now || self.ended;
        if let Some(telling) = self.telling.as_mut().filter(is_due) {
            let number = telling.number;
            // One that was away tells once and goes on from here.
            let passed = 1 + now.since(telling.next).0 / telling.every.0.max(1);
            (telling.next, telling.number) =
                (telling.next + Nanos(telling.every.0 * passed), number + passed);
            let number = number + passed - 1;
            let timeslices = match &self.part {
                TimesliceRole::Input(input_buffer) => input_buffer.given(),
                TimesliceRole::Same(same) => same.given,
                TimesliceRole::Endless { given } => *given,
                TimesliceRole::Builder(output) => output.taken(),
                TimesliceRole::Discard { account } => account.taken.count(),
            };
            if let Some(record) = driver.engine_mut().take_record(now) {
                let span = now.since(std::mem::replace(&mut self.reported_at, now));
                let behind = match &mut self.part {
                    TimesliceRole::Builder(output) => output.take_behind(),
                    _ => Nanos::ZERO,
                };
                let waits = match driver.engine_mut().awaited() {
                    _ if behind.0 > span.0 / SINK_PART => BuilderWait::Sink,
                    Some(rank) => BuilderWait::Input(rank.0),
                    None => BuilderWait::Nothing,
                };
                let source = match &self.part {
                    TimesliceRole::Input(input_buffer) => Some(input_buffer.account()),
                    _ => None,
                };
                let progress = TimesliceProgress {
                    source,
                    number,
                    record,
                    span,
                    timeslices,
                    processor: clock::processor(),
                    waits,
                };
                self.respond(TimesliceResponse::Progress(Box::new(progress)));
            }
        }
        let rest = match &self.part {
            TimesliceRole::Input(input_buffer) => {
                Some((input_buffer.is_at_rest(), input_buffer.given()))
            }
            TimesliceRole::Same(same) => Some((same.given >= same.limit, same.given)),
            TimesliceRole::Endless { .. }
            | TimesliceRole::Builder(_)
            | TimesliceRole::Discard { .. } => None,
        };
        // Nobody listens for it before it may begin.
        if let Some((at_rest, given)) = rest.filter(|_| self.has_begun) {
            if at_rest && !self.rest_reported {
                self.respond(TimesliceResponse::Over(given));
            }
            self.rest_reported = at_rest;
        }
        if self.ended {
            self.ended = false;
            self.conclude();
        }
    }
}

/// Gives `output` what can leave, and the engine what came back. Returns whether more can leave at
/// once.
///
/// # Errors
/// Why the sink cannot go on.
fn hand_over(
    output: &mut BuilderOutput,
    places_of_inputs: &[usize],
    node: &mut TimesliceNode,
    wire: &dyn Wire,
    commands: &mut VecDeque<TimesliceCommand>,
) -> Result<bool> {
    let mut bytes = 0;
    loop {
        while let Some(event) = output.next_event() {
            match event {
                SinkEvent::Taken(timeslice) => {
                    commands.push_back(TimesliceCommand::Release { timeslice })
                }
                SinkEvent::Over(result) => {
                    return send_response(TimesliceResponse::Done(result)).map(|()| false);
                }
                SinkEvent::Failed(sentence) => bail!(sentence),
            }
        }
        if bytes >= HANDED_AT_ONCE {
            return Ok(true);
        }
        let Some(timeslice) = output.next(node.row().unwrap_or(0)) else { return Ok(false) };
        let parts = places_of_inputs.iter().map(|place| {
            let span = node.contribution(*place, timeslice);
            let part = span.and_then(|Span { region, offset, length }| {
                wire.region(region)?.get(offset as usize..)?.get(..length as usize)
            });
            part.inspect(|part| bytes += part.len()).unwrap_or_default()
        });
        output.hand_over(timeslice, parts);
    }
}

/// The rank's side of the progress loop.
struct TimesliceHost<'a, 'b> {
    running: &'a mut RunningBuild<'b>,
    wake_signal: Option<&'a UnixStream>,
}

impl progress::EngineHost<TimesliceNode> for TimesliceHost<'_, '_> {
    fn event(&mut self, event: TimesliceEvent) {
        self.running.events.push_back(event);
    }

    fn control(&mut self, which: usize, now: LocalNs, driver: &mut Driver<TimesliceNode>) {
        if which > 0 {
            if let Some(mut wake_signal) = self.wake_signal {
                let _ = wake_signal.read(&mut [0; 64]);
            }
            return;
        }
        match self.running.orders.waiting() {
            Some(orders) => {
                orders.into_iter().for_each(|order| self.running.handle_request(order, now, driver))
            }
            None => self.running.next = Some(AfterRun::Gone),
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
            running.handle_event(event);
        }
        if running.begin_at.is_some_and(|at| at <= now) {
            running.begin_at = None;
            running.commands.push_back(TimesliceCommand::Begin);
        }
        running.report_first();
        running.move_on(now, driver, wire);
        running.report(now, driver);
        if running.next.is_some() {
            return ControlFlow::Break(());
        }
        let has_commands = !running.commands.is_empty();
        running.commands.drain(..).for_each(|command| driver.command(now, command));
        let telling = running.telling.as_ref().map(|telling| telling.next);
        let silent = match &running.part {
            TimesliceRole::Input(input_buffer) => input_buffer.deadline(),
            _ => None,
        };
        let wake = [running.begin_at, telling, silent].into_iter().flatten().min();
        ControlFlow::Continue(if has_commands || running.has_work { Some(now) } else { wake })
    }
}
