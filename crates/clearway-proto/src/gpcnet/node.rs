//! One rank of the benchmark: gives every input to the part that it concerns.
//!
//! # Invariants
//! I1. A frame of another test changes nothing but the count of strangers.
//! I2. A rank whose test is over goes on answering until it gets another task: nobody waits for one
//!     that has left.
//! I3. A test that the wire cannot carry ends at once, with the reason in its record.
//!
//! # Not here
//! What the parts do: `test_run` (victims), `load` (congestors), `exchange` (one iteration).

use super::context::{
    GpcnetConfig, GpcnetContext, GpcnetEvent, GpcnetLabel, GpcnetPurpose, TestFailure,
};
use super::exchange::IteratedExchange;
use super::frame::GpcnetFrame;
use super::load::LoadRun;
use super::record::GpcnetRecord;
use super::reduce::{Reduction, ReductionLane};
use super::task::{Task, TaskKind};
use super::test_run::TestRun;
use crate::base::{Class, LocalNs, Rank};
use crate::wire::{Arrival, Engine, Input, More, Out, Status};

/// Turns of one call, so that a process that woke up late hears its wire again.
const TURNS_MAX: usize = 64;

/// The engine of the published benchmark.
#[derive(Debug)]
pub struct GpcnetNode {
    config: GpcnetConfig,
    running: Option<RunningTest>,
    finished: Option<GpcnetRecord>,
}

/// A test under way, or over and still answering.
#[derive(Debug)]
struct RunningTest {
    number: u32,
    class: Class,
    body_max: u32,
    part: TestRole,
    foreign: u64,
    reported: bool,
}

/// What this rank is in the test.
#[derive(Debug)]
enum TestRole {
    Victim(TestRun),
    Congestor(LoadRun),
}

impl TestRole {
    fn exchange(&mut self) -> &mut IteratedExchange {
        match self {
            Self::Victim(course) => &mut course.exchange,
            Self::Congestor(load) => &mut load.exchange,
        }
    }

    /// Returns the lanes other than that of the slice.
    fn lanes(&mut self) -> (&mut Reduction, Option<&mut Reduction>) {
        match self {
            Self::Victim(course) => (&mut course.wide, course.everyone.as_mut()),
            Self::Congestor(load) => (&mut load.group, load.everyone.as_mut()),
        }
    }

    fn lane(&mut self, lane: usize) -> Option<&mut Reduction> {
        let (wide, everyone) = self.lanes();
        match lane {
            lane if lane == ReductionLane::Wide as usize => Some(wide),
            lane if lane == ReductionLane::Everyone as usize => everyone,
            _ => None,
        }
    }

    fn is_over(&self) -> bool {
        match self {
            Self::Victim(course) => course.is_over(),
            Self::Congestor(load) => load.is_over(),
        }
    }

    fn go_on(&mut self, cx: &mut GpcnetContext<'_>) -> bool {
        match self {
            Self::Victim(course) => course.go_on(cx),
            Self::Congestor(load) => load.go_on(cx),
        }
    }

    /// Returns what was recorded; once.
    fn record(&mut self) -> GpcnetRecord {
        let (resent, wrong) = (self.exchange().channels.resent, self.exchange().wrong);
        let record = GpcnetRecord { resent, wrong, ..GpcnetRecord::default() };
        match self {
            Self::Victim(course) => GpcnetRecord {
                ranks: course.ranks() as u32,
                times: course.collector.take(),
                ..record
            },
            Self::Congestor(load) => GpcnetRecord {
                ranks: load.ranks() as u32,
                times: load.collectors[0].take(),
                with_victims: load.collectors[1].take(),
                ..record
            },
        }
    }
}

impl GpcnetNode {
    /// Creates a node without a task.
    pub const fn new(config: GpcnetConfig) -> Self {
        Self { config, running: None, finished: None }
    }

    /// Returns the record of the test that ended last, once.
    pub fn take_record(&mut self) -> Option<GpcnetRecord> {
        self.finished.take()
    }

    fn begin(&mut self, now: LocalNs, task: Task, out: &mut Out<GpcnetEvent>) -> More {
        let Task { number, class, body_max, everyone, work } = task;
        let body_max = body_max.min(self.config.memory.length);
        let needs = match &work {
            TaskKind::Victim(victim) => victim.test.needs(),
            TaskKind::Congestor(congestor) => congestor.congestor.needs(),
        };
        if let Some(failure) = TestFailure::without(needs, self.config.operations) {
            self.running = None;
            self.finished =
                Some(GpcnetRecord { number, failure: Some(failure), ..GpcnetRecord::default() });
            out.notify(GpcnetEvent::Over { number });
            return More::No;
        }
        let mut cx = GpcnetContext { now, config: &self.config, number, class, body_max, out };
        let part = match work {
            TaskKind::Victim(victim) => {
                TestRole::Victim(TestRun::begin(victim, &everyone, &mut cx))
            }
            TaskKind::Congestor(congestor) => {
                TestRole::Congestor(LoadRun::begin(congestor, &everyone, &mut cx))
            }
        };
        self.running =
            Some(RunningTest { number, class, body_max, part, foreign: 0, reported: false });
        self.go_on(now, out)
    }

    /// Takes every turn that has become possible, up to a bound.
    fn go_on(&mut self, now: LocalNs, out: &mut Out<GpcnetEvent>) -> More {
        let Some(running) = &mut self.running else { return More::No };
        let (mut cx, part) = running.context(now, &self.config, out);
        let mut turns = 0;
        while turns < TURNS_MAX && part.go_on(&mut cx) {
            turns += 1;
        }
        let unfinished = part.exchange().channels.unfinished;
        if part.is_over() {
            self.finish(None, out);
        }
        if turns == TURNS_MAX || unfinished { More::Yes } else { More::No }
    }

    fn finish(&mut self, failure: Option<TestFailure>, out: &mut Out<GpcnetEvent>) {
        if let Some(running) = self.running.as_mut().filter(|running| !running.reported) {
            running.reported = true;
            let (number, foreign) = (running.number, running.foreign);
            self.finished =
                Some(GpcnetRecord { number, failure, foreign, ..running.part.record() });
            out.notify(GpcnetEvent::Over { number });
        }
    }

    fn arrival(&mut self, now: LocalNs, arrival: Arrival<'_>, out: &mut Out<GpcnetEvent>) -> More {
        let Some(running) = &mut self.running else { return More::No };
        let mut failure = None;
        match arrival {
            Arrival::Datagram(datagram) => match GpcnetFrame::parse(datagram.head) {
                Some((number, frame)) if number == running.number => {
                    running.frame(now, &self.config, datagram.from, frame, out);
                }
                _ => running.foreign += 1,
            },
            Arrival::Done { token, status, .. } => {
                if let Some(label) = GpcnetLabel::from_token(token, running.number) {
                    failure = running.done(now, &self.config, label, status, out).err();
                }
            }
            Arrival::Room { .. } => {
                let (mut cx, part) = running.context(now, &self.config, out);
                part.exchange().room(&mut cx);
                let (wide, everyone) = part.lanes();
                [Some(wide), everyone].into_iter().flatten().for_each(|lane| lane.room(&mut cx));
            }
            _ => {}
        }
        if failure.is_some() {
            self.finish(failure, out);
            self.running = None;
            return More::No;
        }
        self.go_on(now, out)
    }

    fn tick(&mut self, now: LocalNs, out: &mut Out<GpcnetEvent>) -> More {
        if let Some(running) = &mut self.running {
            let (mut cx, part) = running.context(now, &self.config, out);
            part.exchange().tick(&mut cx);
            let (wide, everyone) = part.lanes();
            [Some(wide), everyone].into_iter().flatten().for_each(|lane| lane.tick(&mut cx));
        }
        self.go_on(now, out)
    }
}

impl RunningTest {
    fn context<'a>(
        &'a mut self,
        now: LocalNs,
        config: &'a GpcnetConfig,
        out: &'a mut Out<GpcnetEvent>,
    ) -> (GpcnetContext<'a>, &'a mut TestRole) {
        let Self { number, class, body_max, .. } = *self;
        (GpcnetContext { now, config, number, class, body_max, out }, &mut self.part)
    }

    fn frame(
        &mut self,
        now: LocalNs,
        config: &GpcnetConfig,
        from: Rank,
        frame: GpcnetFrame,
        out: &mut Out<GpcnetEvent>,
    ) {
        let (mut cx, part) = self.context(now, config, out);
        match frame {
            GpcnetFrame::Step { lane, round, step, value, answer }
                if lane != ReductionLane::Slice as u8 =>
            {
                if let Some(lane) = part.lane(usize::from(lane)) {
                    lane.arrival(&mut cx, from, round, step, value, answer);
                }
            }
            _ => part.exchange().arrival(&mut cx, from, frame),
        }
    }

    fn done(
        &mut self,
        now: LocalNs,
        config: &GpcnetConfig,
        label: GpcnetLabel,
        status: Status,
        out: &mut Out<GpcnetEvent>,
    ) -> Result<(), TestFailure> {
        let (mut cx, part) = self.context(now, config, out);
        if label.purpose == GpcnetPurpose::Step
            && status == Status::NoRoom
            && let Some(lane) = part.lane(label.place)
        {
            lane.no_room();
            return Ok(());
        }
        part.exchange().done(&mut cx, label, status)
    }
}

impl Engine for GpcnetNode {
    /// A test to make. One that is still under way is forgotten.
    type Command = Task;
    type Event = GpcnetEvent;

    fn input(&mut self, now: LocalNs, input: Input<'_, Task>, out: &mut Out<GpcnetEvent>) -> More {
        match input {
            Input::Boot { .. } => More::No,
            Input::Tick => self.tick(now, out),
            Input::Arrival(arrival) => self.arrival(now, arrival, out),
            Input::Command(task) => self.begin(now, task, out),
        }
    }

    fn deadline(&self) -> Option<LocalNs> {
        let (exchange, wide, everyone) = match &self.running.as_ref()?.part {
            TestRole::Victim(course) => (&course.exchange, &course.wide, &course.everyone),
            TestRole::Congestor(load) => (&load.exchange, &load.group, &load.everyone),
        };
        let everyone = everyone.as_ref().and_then(Reduction::deadline);
        [exchange.deadline(), wide.deadline(), everyone].into_iter().flatten().min()
    }
}
