//! Timeslice building on simulated fabrics under random faults: nothing that an input still holds
//! is lost, nothing is built twice by decision.
//!
//! # Model
//! A seed gives a fat tree or a dragonfly, inputs and builders, a policy, rings, lengths, and what
//! goes wrong: ranks that die, or die and come back, processors that stop or are elsewhere now and
//! then, links at a twentieth of their rate, receivers that take in a tenth, clocks that jump,
//! drift or stand still, transmit queues for two messages; ranks that retire, join and weigh other.
//! The job runs until every rank that takes part has ended. Then every timeslice must have been
//! built once, by decision, with the contributions of all inputs that never were out, and with the
//! bytes that these gave.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use clearway_proto::base::{Bytes, Class, Nanos, RandomKey, RandomStream, Rank};
use clearway_proto::timeslice::{
    ContributionSource, ContributionSpans, Dfs, Policy, ReleasePolicy, SettledTimeslice,
    TimesliceCommand, TimesliceConfig, TimesliceEvent, TimesliceLayout, TimesliceNode, Window,
    WriteSlots,
};
use clearway_proto::wire::{RegionId, Span, Wire};
use clearway_sim::Picos;
use clearway_sim::fault::{Fault, FaultDurations, FaultKind, FaultPlan};
use clearway_sim::spec::FabricSpec;
use clearway_sim::wire::SimWire;
use clearway_sim::world::WorldEvent;

use crate::faulty_world::{self, FaultyWorld};

/// A message between hosts takes some two microseconds.
const BEAT: Nanos = Nanos::from_micros(100);
/// Faults begin within this time; a job without any takes about as long.
const STRIKES: u64 = 1_000_000;
/// Longer than what any heartbeat bears.
const LENGTH_MAX: u64 = 3_000_000;
/// Whatever happened is over by then.
const LIMIT: Picos = Picos::from_micros(400_000);

/// What a seed is.
struct BuildTrial {
    spec: FabricSpec,
    inputs: u32,
    builders: u32,
    policy: Policy,
    timeslices: u64,
    /// The longest contribution.
    longest: u32,
    ring: u64,
    plan: FaultPlan,
    /// What is asked of ranks, and when.
    asked: Vec<(Picos, Rank, TimesliceCommand)>,
    seed: u64,
}

fn content(place: usize, timeslice: u64, at: usize) -> u8 {
    (place as u64 * 31 + timeslice * 7 + at as u64) as u8
}

impl BuildTrial {
    fn drawn(seed: u64) -> Self {
        let mut stream = RandomKey::new(seed).purpose("timeslices on a fabric").stream();
        let mut below = |bound: u64| stream.below(bound);
        let spec = faulty_world::drawn(&mut below);
        let (inputs, builders) = (2 + below(4) as u32, 2 + below(4) as u32);
        let longest = [60, 3_000][below(2) as usize];
        let mut trial = Self {
            spec,
            inputs,
            builders,
            policy: [Policy::BestEffort, Policy::Offset, Policy::Dfs, Policy::Token]
                [below(4) as usize],
            timeslices: 50 + below(1_000),
            longest,
            ring: u64::from(longest) * (2 + below(16)),
            plan: FaultPlan::new(Vec::new()),
            asked: Vec::new(),
            seed,
        };
        trial.draw_faults(&mut stream);
        trial
    }

    fn ranks(&self) -> u32 {
        self.inputs + self.builders
    }

    fn length(&self, timeslice: u64) -> u32 {
        1 + (timeslice * 37 % u64::from(self.longest)) as u32
    }

    fn draw_faults(&mut self, stream: &mut RandomStream) {
        let mut below = |bound: u64| stream.below(bound);
        // Fewer than half are struck by what can put them out, so that the others can always
        // decide; one input and one builder never are.
        let mut safe = vec![
            below(u64::from(self.inputs)) as u32,
            self.inputs + below(u64::from(self.builders)) as u32,
        ];
        let mut strikes = (self.ranks() - 1) / 2;
        let mut faults = Vec::new();
        for _ in 0..below(7) {
            let (at, length) =
                (Picos::from_nanos(below(STRIKES)), Picos::from_nanos(1 + below(LENGTH_MAX)));
            let rank = below(u64::from(self.ranks())) as u32;
            let (host, (_, switch)) =
                (faulty_world::host(rank), faulty_world::leaf(&self.spec, rank));
            let link = [
                format!("{switch} -> {host}"),
                format!("{host} -> {switch}"),
                format!("{host} -- {switch}"),
            ];
            let draw = below(14);
            if draw < 5 {
                if strikes == 0 || safe.contains(&rank) {
                    continue;
                }
                strikes -= 1;
                safe.push(rank);
            }
            let (until, target, kind) = match draw {
                0 => (LIMIT + LIMIT, host, FaultKind::Crash),
                1 => (at + length, host, FaultKind::Crash),
                2 | 3 => (at + length, host, FaultKind::Paused),
                4 => {
                    self.asked.push((at, Rank(rank), TimesliceCommand::Retire));
                    if below(2) == 0 {
                        self.asked.push((at + length, Rank(rank), TimesliceCommand::Join));
                    }
                    continue;
                }
                5 => {
                    self.asked.push((
                        at,
                        Rank(rank),
                        TimesliceCommand::Weigh { weight: 1 + below(40) as u32 },
                    ));
                    continue;
                }
                6 | 7 => {
                    let kind = FaultKind::LinkDegraded {
                        percent: [5, 25][below(2) as usize],
                        latency: Picos::ZERO,
                    };
                    (at + length, link[below(3) as usize].clone(), kind)
                }
                8 => (at + length, host, FaultKind::SlowReceiver { percent: 10 }),
                9 => (
                    at + length,
                    host,
                    FaultKind::ClockJump { ahead: Picos::from_nanos(below(LENGTH_MAX)) },
                ),
                10 => (at + length, host, FaultKind::ClockFrozen),
                11 => (
                    at + length,
                    host,
                    FaultKind::ClockDrift { ppm: [-500_000, 1_000, 500_000][below(3) as usize] },
                ),
                12 => {
                    let every = Picos::from_micros(20 + below(60));
                    let kind = FaultKind::Interruptions {
                        every,
                        length: Picos(every.0 / 2),
                        lengths: FaultDurations::Equal,
                    };
                    (at + length, host, kind)
                }
                _ => (at + length, host, FaultKind::TightQueue { messages: 2 }),
            };
            faults.push(Fault { at, until, target, kind });
        }
        self.asked.sort_by_key(|(at, ..)| *at);
        self.plan = FaultPlan::new(faults);
    }

    /// Whether `rank` dies in the plan, and whether it comes back.
    fn dies(&self, rank: u32) -> Option<bool> {
        let is_own = |fault: &&Fault| {
            fault.kind == FaultKind::Crash && fault.target == faulty_world::host(rank)
        };
        self.plan.faults.iter().find(is_own).map(|fault| fault.until < LIMIT)
    }

    /// The engine at the end of `wire`, and where an input's contributions lie.
    fn node(&self, wire: &mut SimWire, layout: &Arc<TimesliceLayout>) -> (TimesliceNode, RegionId) {
        let rank = wire.rank();
        let length = self.ring * u64::from(self.inputs);
        let rings = wire.register(Bytes(length)).expect("a fresh end has room for a region");
        let total: u64 =
            (0..self.timeslices).map(|timeslice| u64::from(self.length(timeslice))).sum();
        let own = wire.register(Bytes(total)).expect("a fresh end has room for a region");
        if rank.0 < self.inputs {
            let bytes = wire.region_mut(own).expect("it was registered");
            let mut offset = 0;
            for timeslice in 0..self.timeslices {
                let length = self.length(timeslice) as usize;
                (0..length)
                    .for_each(|at| bytes[offset + at] = content(rank.index(), timeslice, at));
                offset += length;
            }
        }
        let config = TimesliceConfig {
            rank,
            run: 0,
            layout: layout.clone(),
            policy: self.policy,
            window: Window { least: 2, most: 8 },
            dfs: Dfs { interval: 20, history: 5, ..Dfs::default() },
            source: ContributionSource::Given,
            slots: WriteSlots::from_policy(self.policy),
            rings: Span { region: rings, offset: 0, length: length as u32 },
            ring: Bytes(self.ring),
            release: ReleasePolicy::ByCommand,
            heartbeat: Some(BEAT),
            class: Class::Bulk,
            control: Class::Control,
        };
        (TimesliceNode::new(config), own)
    }
}

/// A timeslice that a builder reported as complete.
#[derive(Clone, Debug)]
struct CompletedTimeslice {
    rank: Rank,
    life: u32,
    /// Inputs whose contribution was there.
    with: BTreeSet<usize>,
}

/// One rank as its application knows it.
#[derive(Clone, Debug, Default)]
struct BuildProcess {
    /// How often it was taken in.
    lives: u32,
    ended: bool,
    out: bool,
    dead: bool,
    /// It asks to join whenever it is out.
    persistent: bool,
}

/// A job under way.
struct RunningJob<'a> {
    trial: &'a BuildTrial,
    layout: Arc<TimesliceLayout>,
    stage: FaultyWorld<TimesliceNode>,
    stream: RandomStream,
    own: Vec<RegionId>,
    processes: Vec<BuildProcess>,
    built: BTreeMap<u64, Vec<CompletedTimeslice>>,
    releases: BTreeMap<(Picos, u64), (Rank, u32, u64)>,
    ever_out: BTreeSet<Rank>,
    /// How often one rank, the first, was notified that another is out.
    reported: BTreeMap<(Rank, Rank), u32>,
    helpless: bool,
    /// How many of the trial's requests were made.
    asked: usize,
}

impl<'a> RunningJob<'a> {
    fn new(trial: &'a BuildTrial) -> Self {
        let (inputs, builders) =
            ((0..trial.inputs).map(Rank), (trial.inputs..trial.ranks()).map(Rank));
        let layout = TimesliceLayout::new(inputs.collect(), builders.collect(), &[])
            .expect("a sound layout");
        let layout = Arc::new(layout);
        let mut own = Vec::new();
        let stage = FaultyWorld::new(&trial.spec, trial.ranks(), trial.seed, &trial.plan, |wire| {
            let (node, region) = trial.node(wire, &layout);
            own.push(region);
            node
        });
        let mut stream = RandomKey::new(trial.seed).purpose("application").stream();
        let process = |rank| BuildProcess {
            persistent: stream.below(2) == 0 || trial.dies(rank) == Some(true),
            ..BuildProcess::default()
        };
        let processes = (0..trial.ranks()).map(process).collect();
        let mut job = Self {
            trial,
            layout,
            stage,
            stream,
            own,
            processes,
            built: BTreeMap::new(),
            releases: BTreeMap::new(),
            ever_out: (0..trial.ranks())
                .filter(|rank| trial.dies(*rank).is_some())
                .map(Rank)
                .collect(),
            reported: BTreeMap::new(),
            helpless: false,
            asked: 0,
        };
        (0..trial.inputs).for_each(|rank| job.feed(Rank(rank), 0));
        job
    }

    fn command(&mut self, rank: Rank, command: TimesliceCommand) {
        let now = self.stage.world.now();
        self.stage.world.command(now, rank, command);
    }

    /// Gives an input everything from `first` on.
    fn feed(&mut self, rank: Rank, first: u64) {
        let region = self.own[rank.index()];
        let mut offset: u64 =
            (0..first).map(|timeslice| u64::from(self.trial.length(timeslice))).sum();
        for timeslice in first..self.trial.timeslices {
            let length = self.trial.length(timeslice);
            let pieces = ContributionSpans::new([Span { region, offset, length }])
                .expect("contributions are not empty");
            self.command(rank, TimesliceCommand::Give(pieces));
            offset += u64::from(length);
        }
        self.command(rank, TimesliceCommand::Finish { timeslice: self.trial.timeslices });
        self.command(rank, TimesliceCommand::Begin);
    }

    /// Runs a while, and does what applications do.
    fn turn(&mut self) {
        let now = self.stage.world.now();
        while let Some((_, rank, command)) =
            self.trial.asked.get(self.asked).filter(|(at, ..)| *at <= now)
        {
            self.asked += 1;
            self.processes[rank.index()].persistent |= *command == TimesliceCommand::Join;
            self.command(*rank, *command);
        }
        while let Some(entry) = self.releases.first_entry().filter(|entry| entry.key().0 <= now) {
            let (rank, life, timeslice) = entry.remove();
            if self.processes[rank.index()].lives == life {
                self.command(rank, TimesliceCommand::Release { timeslice });
            }
        }
        let (mut reported, mut remade) = (Vec::new(), Vec::new());
        let (trial, layout, own) = (self.trial, &self.layout, &mut self.own);
        let mut remake = |wire: &mut SimWire| {
            let (node, region) = trial.node(wire, layout);
            own[wire.rank().index()] = region;
            remade.push(wire.rank());
            node
        };
        let hear = &mut |it: WorldEvent<'_, TimesliceNode>| {
            let spans: Vec<Option<Span>> = match it.event {
                TimesliceEvent::Complete { timeslice, .. } => (0..trial.inputs as usize)
                    .map(|place| it.engine.contribution(place, timeslice))
                    .collect(),
                _ => Vec::new(),
            };
            reported.push((it.rank, it.event, spans));
        };
        self.stage.turn(&mut remake, hear);
        for (rank, event, spans) in reported {
            self.handle_event(rank, event, &spans);
        }
        for rank in remade {
            (self.processes[rank.index()].out, self.processes[rank.index()].dead) = (true, false);
            // It learns all that was decided from the beginning.
            self.reported.retain(|(teller, _), _| *teller != rank);
            self.command(rank, TimesliceCommand::Join);
        }
        for rank in (0..trial.ranks()).map(Rank) {
            if self.stage.world.engine_mut(rank).is_none() {
                self.processes[rank.index()].dead = true;
            }
        }
    }

    fn handle_event(&mut self, rank: Rank, event: TimesliceEvent, spans: &[Option<Span>]) {
        let process = &mut self.processes[rank.index()];
        match event {
            TimesliceEvent::Complete { timeslice, .. } => self.complete(rank, timeslice, spans),
            TimesliceEvent::Ended => process.ended = true,
            // From here on nothing is expected of an input that retires, whether it goes before the
            // end or not.
            TimesliceEvent::Retired { .. } => drop(self.ever_out.insert(rank)),
            TimesliceEvent::Joined { timeslice, .. } => {
                (process.out, process.ended) = (false, false);
                process.lives += 1;
                if rank.0 < self.trial.inputs {
                    self.feed(rank, timeslice);
                }
            }
            TimesliceEvent::Out => {
                process.out = true;
                let again = process.persistent;
                self.ever_out.insert(rank);
                if again {
                    self.command(rank, TimesliceCommand::Join);
                }
            }
            TimesliceEvent::Lost { rank: lost, .. } => {
                self.ever_out.insert(lost);
                *self.reported.entry((rank, lost)).or_default() += 1;
            }
            TimesliceEvent::Helpless => self.helpless = true,
            TimesliceEvent::Refused { missing, .. } => panic!("{missing}"),
            TimesliceEvent::TooLong { .. } | TimesliceEvent::Aborted { .. } => panic!("{event:?}"),
            _ => {}
        }
    }

    fn complete(&mut self, rank: Rank, timeslice: u64, spans: &[Option<Span>]) {
        let life = self.processes[rank.index()].lives;
        let is_there = self.stage.world.engine_mut(rank).is_some();
        let mut with = BTreeSet::new();
        for (place, span) in
            spans.iter().enumerate().filter_map(|(place, span)| Some((place, (*span)?)))
        {
            with.insert(place);
            // The memory of one that died meanwhile died with it.
            let wire = self.stage.world.network_mut().wire(rank);
            let Some(bytes) = wire.region(span.region).filter(|_| is_there) else { continue };
            let bytes = &bytes[span.range_in(bytes.len()).expect("within the rings")];
            assert_eq!(
                bytes.len(),
                self.trial.length(timeslice) as usize,
                "timeslice {timeslice}, input {place}"
            );
            let wrong =
                (0..).zip(bytes).find(|(at, byte)| **byte != content(place, timeslice, *at));
            assert_eq!(wrong, None, "timeslice {timeslice}, input {place} at {rank:?}");
        }
        self.built.entry(timeslice).or_default().push(CompletedTimeslice { rank, life, with });
        let due = self.stage.world.now() + Picos::from_nanos(self.stream.below(40_000));
        self.releases.insert((due, self.stream.below(u64::MAX)), (rank, life, timeslice));
    }

    /// Whether every rank that takes part has ended, and nothing more is to come.
    fn is_over(&self) -> bool {
        let last = self
            .trial
            .plan
            .faults
            .iter()
            .map(|fault| fault.until)
            .filter(|until| *until < LIMIT)
            .max();
        let now = self.stage.world.now();
        let over = |process: &BuildProcess| process.dead || process.ended || process.out;
        last.is_none_or(|last| last < now)
            && self.asked == self.trial.asked.len()
            && self.processes.iter().all(over)
    }

    /// What removed builders have built by decision, as the one that knows most of them says.
    fn built_by_removed(&mut self) -> Vec<SettledTimeslice> {
        let ranks = (0..self.trial.ranks()).map(Rank);
        let all = ranks.filter_map(|rank| {
            Some(self.stage.world.engine_mut(rank)?.settled().collect::<Vec<_>>())
        });
        all.max_by_key(Vec::len).unwrap_or_default()
    }

    fn check(&mut self) {
        assert!(!self.helpless, "somebody could decide nothing");
        assert!(self.is_over(), "it never ends");
        let settled = self.built_by_removed();
        // Each removal ends a life; what was built in one that no decision has ended counts, also
        // of one that died behind its end.
        let removals = |rank| {
            self.reported
                .iter()
                .filter(|((_, lost), _)| *lost == rank)
                .map(|(_, count)| *count)
                .max()
        };
        let is_current =
            |built: &&CompletedTimeslice| built.life >= removals(built.rank).unwrap_or(0);
        for timeslice in 0..self.trial.timeslices {
            let all = self.built.get(&timeslice).map_or(&[][..], Vec::as_slice);
            let by_decision = settled.iter().filter(|settled| settled.timeslice == timeslice);
            let mut valid: Vec<&CompletedTimeslice> = all.iter().filter(is_current).collect();
            for SettledTimeslice { rank, .. } in by_decision {
                let built = all.iter().rfind(|built| built.rank == *rank && !is_current(built));
                valid.push(built.unwrap_or_else(|| {
                    panic!("timeslice {timeslice} was never complete at {rank:?}")
                }));
            }
            assert!(valid.len() <= 1, "timeslice {timeslice} was built twice: {valid:?}");
            for place in 0..self.trial.inputs as usize {
                if !self.ever_out.contains(&Rank(place as u32)) {
                    let built = valid
                        .first()
                        .unwrap_or_else(|| panic!("timeslice {timeslice} is lost: {all:?}"));
                    assert!(
                        built.with.contains(&place),
                        "timeslice {timeslice} lacks input {place}: {built:?}"
                    );
                }
            }
        }
    }
}

fn run(seed: u64) {
    let trial = BuildTrial::drawn(seed);
    let mut job = RunningJob::new(&trial);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        while !job.is_over() && !job.helpless && job.stage.world.now() < LIMIT {
            job.turn();
        }
        job.check();
    }));
    if let Err(why) = caught {
        let what = why.downcast_ref::<String>().cloned();
        let what = what
            .or_else(|| why.downcast_ref::<&str>().map(|what| (*what).to_owned()))
            .unwrap_or_default();
        let BuildTrial { spec, inputs, builders, policy, timeslices, ring, asked, plan, .. } =
            &trial;
        panic!(
            "seed {seed}: {what}\n{}, {inputs} to {builders}, {policy:?}, {timeslices} timeslices, rings {ring}, {asked:?}, at {:?}\n{:?}\n{}",
            spec.name,
            job.stage.world.now(),
            job.processes,
            plan.to_text()
        );
    }
}

/// `TIMESLICE_SEEDS=1000 cargo test -p clearway --test fabrics timeslice` runs as many as you like.
#[test]
fn swarm__on_fabrics_nothing_is_lost_or_built_twice() {
    let number = |name| std::env::var(name).ok().and_then(|number: String| number.parse().ok());
    let first = number("TIMESLICE_FIRST").unwrap_or(0);
    (first..first + number("TIMESLICE_SEEDS").unwrap_or(40)).for_each(run);
}
