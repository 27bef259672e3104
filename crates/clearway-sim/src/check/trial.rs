//! One run of couriers on a small network under a plan, with every checker: what was reached, or
//! what was violated.
//!
//! # Model
//! Faults until the last one is over, then everything must be answered within a deadline. The
//! network is looked at every ten microseconds while faults last, and at the end.
//!
//! # Invariants
//! I1. A trial is a value; running it twice gives the same outcome.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;

use clearway_proto::base::{BitsPerSec, Bytes, Nanos, RandomKey, Rank};
use clearway_proto::wire::{OperationKind, Wire};

use super::checked_engine::{CheckEvent, CheckedEngine, FILE, GROUP, Workload};
use super::coverage::State;
use super::draw;
use super::memory::{Layout, REGION};
use super::starvation::StarvationDetector;
use crate::disk::DiskSpec;
use crate::fabric::{EventQueueKind, EventSet, Fabric, FabricOptions, Trains};
use crate::fault::{self, Disks, FaultKind, FaultPlan, FaultSite, Injector, ResolvedPlan};
use crate::graph::DeviceId;
use crate::spec::FabricSpec;
use crate::spec::file::FileError;
use crate::time::Picos;
use crate::topology::{self, RoutedGraph as Topology};
use crate::wire::{Completion, ContentModel, Network, NetworkConfig, SimWire, scattered};
use crate::world::{StopReason, World, WorldEvent};

/// Between two looks at the network.
const LOOK_EVERY: Picos = Picos::from_micros(10);
/// Everything must be answered so long after the last fault: an interface repeats what was lost
/// every 67 ms, seven times, and then waits as long again for a node that is down.
const TIMEOUT: Picos = Picos::from_micros(1_200_000);
/// A fault that lasts longer is there to stay: nobody waits for its end, and no check excuses it.
/// Deliberate bugs are such.
const FOR_GOOD: Picos = Picos::from_micros(1_000_000);
/// Faults lie in the first so much of a run.
const FAULTS_UNTIL: Picos = Picos::from_micros(150);

/// Everything that decides a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// Root of what is random.
    pub seed: u64,
    /// The network.
    pub spec: FabricSpec,
    /// What goes wrong.
    pub plan: FaultPlan,
    /// Ranks, each on a host of its own.
    pub ranks: u32,
    /// Operations of each rank.
    pub operations: u32,
    /// Time between them at most, by the rank's clock.
    pub gap: Nanos,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Symptom {
    /// Credits do not add up.
    Leak,
    /// Lanes wait for each other, or for credit that nobody has.
    Standstill,
    /// A parcel was accepted twice, or a copy that nobody made arrived.
    Twice,
    /// A token came back that was not awaited.
    Token,
    /// An operation ended in a way it must not.
    Ending,
    /// A byte lies where it must not.
    Memory,
    /// Something was not answered in time.
    Unanswered,
    /// The network still holds messages when all is quiet.
    Leftover,
    /// Two ways to compute differ.
    Differs,
}

/// A check that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub symptom: Symptom,
    /// When it was noticed.
    pub at: Picos,
    /// What was found.
    pub sentence: String,
}

/// What a run showed.
#[derive(Clone, Debug)]
pub struct TrialOutcome {
    /// The first check that failed.
    pub violation: Option<Violation>,
    /// States that were reached.
    pub states: BTreeSet<State>,
    /// Kinds of fault that struck.
    pub struck: BTreeSet<&'static str>,
    /// The digest at each look: where two runs part.
    pub trail: Vec<u128>,
    /// When it ended.
    pub end: Picos,
}

/// What happens, for a person.
pub type Listener<'a> = &'a mut dyn FnMut(Picos, fmt::Arguments<'_>);

impl Trial {
    /// Creates the trial of `seed`: a network, a load and a plan.
    pub fn draw(seed: u64) -> Self {
        let key = RandomKey::new(seed);
        let mut stream = key.purpose("trial").stream();
        let mut spec = draw::network(&mut stream);
        spec.host.clock_ppm = draw::one_of(&mut stream, &[0, 50]);
        spec.arbitration.express &= (1 << spec.classes.virtual_lanes) - 1;
        let hosts = spec.topology.hosts();
        let mut trial = Self {
            seed,
            spec,
            plan: FaultPlan::default(),
            ranks: 2 + stream.below(u64::from(hosts) - 1) as u32,
            operations: 5 + stream.below(30) as u32,
            gap: Nanos(draw::one_of(&mut stream, &[200, 2_000, 10_000])),
        };
        if let Ok(network) = topology::build(&trial.spec) {
            trial.plan =
                fault::draw(key, &trial.site(&network, &trial.hosts()), Picos(1), FAULTS_UNTIL);
        }
        trial
    }

    fn hosts(&self) -> Vec<DeviceId> {
        scattered(self.spec.topology.hosts(), self.ranks, 1, RandomKey::new(self.seed))
    }

    fn site<'a>(&'a self, network: &'a Topology, hosts: &'a [DeviceId]) -> FaultSite<'a> {
        FaultSite { spec: &self.spec, graph: &network.graph, hosts, disks: Disks::Present }
    }

    /// Runs it; `listen` hears everything that happens.
    ///
    /// # Errors
    /// Why the network cannot be built, or the plan does not fit it.
    pub fn run(&self, listen: Listener<'_>) -> Result<TrialOutcome, FileError> {
        self.run_as(WAY, listen)
    }

    /// Runs it twice, in different ways of computing the same; a difference is a violation.
    ///
    /// # Errors
    /// As [`Trial::run`].
    pub fn run_both_ways(&self) -> Result<TrialOutcome, FileError> {
        let mut outcome = self.run(&mut |_, _| ())?;
        let other = self.run_as(OTHER_WAY, &mut |_, _| ())?;
        let place = outcome.trail.iter().zip(&other.trail).position(|(a, b)| a != b);
        let place =
            place.or((outcome.trail.len() != other.trail.len()).then_some(outcome.trail.len()));
        if let (None, Some(look)) = (&outcome.violation, place) {
            let sentence = format!("lazy and eager events part before look {look}");
            outcome.violation =
                Some(Violation { symptom: Symptom::Differs, at: outcome.end, sentence });
        }
        Ok(outcome)
    }

    fn run_as(
        &self,
        options: FabricOptions,
        listen: Listener<'_>,
    ) -> Result<TrialOutcome, FileError> {
        let network = topology::build(&self.spec).map_err(|error| FileError::Wrong {
            file: self.spec.name.clone(),
            line: 1,
            why: error.to_string(),
        })?;
        let hosts = self.hosts();
        let resolved = self.plan.resolve(&self.site(&network, &hosts))?;
        Ok(RunningTrial::new(self, network, hosts, &resolved, options).finish(listen))
    }

    /// Lists when faults begin and end, in order, as a person reads it.
    fn changes(&self) -> VecDeque<(Picos, String)> {
        let ends = self.plan.faults.iter().flat_map(|fault| {
            let (kind, target) = (fault.kind.name(), &fault.target);
            [
                (fault.at, format!("{kind} begins at {target}")),
                (fault.until, format!("{kind} ends at {target}")),
            ]
        });
        let mut changes: Vec<(Picos, String)> = ends.collect();
        changes.sort();
        changes.into()
    }

    fn errand(&self) -> Workload {
        Workload { ranks: self.ranks, count: self.operations, gap: self.gap }
    }

    /// Returns whether the plan has a fault for which `is` says yes.
    fn has(&self, is: impl Fn(&FaultKind) -> bool) -> bool {
        self.plan.faults.iter().any(|fault| is(&fault.kind))
    }
}

/// How trials are computed: audits need lazy events and no trains.
const WAY: FabricOptions =
    FabricOptions { queue: EventQueueKind::Wheel, events: EventSet::Lazy, trains: Trains::Off };
/// How they are computed to compare.
const OTHER_WAY: FabricOptions =
    FabricOptions { queue: EventQueueKind::Heap, events: EventSet::Eager, trains: Trains::Off };

/// A trial that runs.
struct RunningTrial<'a> {
    trial: &'a Trial,
    world: World<CheckedEngine, Fabric>,
    injector: Injector,
    options: FabricOptions,
    outcome: TrialOutcome,
    watch: StarvationDetector,
    /// Parcels accepted: by receiver and its incarnation, sender and its incarnation, number.
    accepted: BTreeSet<(u32, u32, u32, u32, u32)>,
}

impl<'a> RunningTrial<'a> {
    fn new(
        trial: &'a Trial,
        network: Topology,
        hosts: Vec<DeviceId>,
        resolved: &ResolvedPlan,
        options: FabricOptions,
    ) -> Self {
        let key = RandomKey::new(trial.seed);
        let mut fabric = Fabric::new(&trial.spec, network, trial.seed, options);
        fabric.afflict(resolved.fabric.clone(), key.purpose("strikes"));
        let disk = DiskSpec {
            latency: Picos::from_micros(5),
            rate: BitsPerSec::mega(8_000),
            sync: Picos::from_micros(20),
            capacity: Bytes(1 << 20),
        };
        let config = NetworkConfig { hosts, bodies: ContentModel::Real, disk: Some(disk), key };
        let wires = Network::new(fabric, &trial.spec, config);
        Self {
            trial,
            world: World::new(wires, |wire| start(wire, trial)),
            injector: Injector::new(resolved, key.purpose("interruptions")),
            options,
            outcome: TrialOutcome {
                violation: None,
                states: BTreeSet::new(),
                struck: BTreeSet::new(),
                trail: Vec::new(),
                end: Picos::ZERO,
            },
            watch: StarvationDetector::default(),
            accepted: BTreeSet::new(),
        }
    }

    /// Runs to the end or to the first violation.
    fn finish(mut self, listen: Listener<'_>) -> TrialOutcome {
        let passing = self
            .trial
            .plan
            .faults
            .iter()
            .map(|fault| fault.until)
            .filter(|until| *until < FOR_GOOD);
        let healed = passing.max().unwrap_or_default().max(FAULTS_UNTIL);
        let last = healed + TIMEOUT;
        let mut next = LOOK_EVERY;
        let mut ended = StopReason::InTime;
        let mut changes = self.trial.changes();
        while self.outcome.violation.is_none() && ended == StopReason::InTime && next <= last {
            while let Some((at, _)) = changes.front().filter(|(at, _)| *at <= next) {
                let at = *at;
                self.run_until(at, listen);
                if let Some((_, what)) = changes.pop_front() {
                    listen(at, format_args!("{what}"));
                }
            }
            ended = self.run_until(next, listen);
            self.look();
            // The rest after the faults is a matter of milliseconds.
            let step = if next < healed { LOOK_EVERY } else { Picos(TIMEOUT.0 / 64) };
            next += step;
        }
        if self.outcome.violation.is_none() {
            self.judge(ended);
        }
        for (number, fault) in (0u32..).zip(&self.trial.plan.faults) {
            if self.injector.strikes(number) + self.fabric().strikes(number) > 0 {
                self.outcome.struck.insert(fault.kind.name());
            }
        }
        self.outcome.end = self.world.now();
        if let Some(violation) = &self.outcome.violation {
            listen(violation.at, format_args!("{:?}: {}", violation.symptom, violation.sentence));
        }
        self.outcome
    }

    fn fabric(&self) -> &Fabric {
        self.world.network().carrier()
    }

    fn run_until(&mut self, until: Picos, listen: Listener<'_>) -> StopReason {
        let Self { trial, world, injector, outcome, accepted, .. } = self;
        let copies_made = trial.has(|kind| matches!(kind, FaultKind::Duplication(_)));
        let mut hear = |reported: WorldEvent<'_, CheckedEngine>| {
            listen(reported.at, format_args!("rank {} {}", reported.rank.0, reported.event));
            let violation = match reported.event {
                CheckEvent::Reached(state) => {
                    outcome.states.insert(state);
                    let stranger = state == State::CopySeen && !copies_made;
                    stranger
                        .then(|| (Symptom::Twice, "a copy that no fault made arrived".to_owned()))
                }
                CheckEvent::Accepted { from, incarnation, number } => {
                    let own = reported.engine.incarnation();
                    let fresh =
                        accepted.insert((reported.rank.0, own, from.0, incarnation, number));
                    (!fresh).then(|| {
                        (Symptom::Twice, format!("parcel {number} of rank {} came twice", from.0))
                    })
                }
                CheckEvent::Stranger(token) => {
                    Some((Symptom::Token, format!("token {:#x} was not awaited", token.0)))
                }
                CheckEvent::Wrong(token, status) => {
                    Some((Symptom::Ending, format!("token {:#x} ended as {status:?}", token.0)))
                }
            };
            if let (None, Some((symptom, what))) = (&outcome.violation, violation) {
                let sentence = format!("rank {}: {what}", reported.rank.0);
                outcome.violation = Some(Violation { symptom, at: reported.at, sentence });
            }
        };
        injector.run_until(world, until, &mut |wire| start(wire, trial), &mut hear)
    }

    fn violate(&mut self, symptom: Symptom, sentence: String) {
        if self.outcome.violation.is_none() {
            self.outcome.violation = Some(Violation { symptom, at: self.world.now(), sentence });
        }
    }

    /// Looks at the network.
    fn look(&mut self) {
        let digest = self.world.digest();
        self.outcome.trail.push(digest);
        let starved = self.watch.look(self.world.network().carrier());
        if !starved.is_empty() {
            self.outcome.states.insert(State::Starved);
        }
        if self.fabric().totals().dropped > 0 {
            self.outcome.states.insert(State::Dropped);
        }
        // A thief of credits is at work until its fault is over.
        let now = self.world.now();
        let stealing = |fault: &fault::Fault| {
            matches!(fault.kind, FaultKind::LostCredit { .. })
                && fault.at <= now
                && now <= fault.until
                && fault.until < FOR_GOOD
        };
        let honest = !self.trial.plan.faults.iter().any(stealing);
        if self.options == WAY && honest {
            let leak = self.fabric().audit().first().map(|leak| {
                let label = self.fabric().graph().label(leak.channel);
                format!(
                    "lane {} of {label} can account for {} of {} bytes",
                    leak.lane, leak.found, leak.size
                )
            });
            if let Some(sentence) = leak {
                self.violate(Symptom::Leak, sentence);
            }
        }
    }

    /// Judges what is left at the end.
    fn judge(&mut self, ended: StopReason) {
        let stall = self.fabric().standstill().first().map(|stall| {
            let label = self.fabric().graph().label(stall.channel);
            format!(
                "lane {} of {label} waits for room that {} packets hold for good",
                stall.lane, stall.holders
            )
        });
        if let Some(sentence) = stall {
            self.violate(Symptom::Standstill, sentence);
        }
        if ended == StopReason::InTime {
            let ranks = (0..self.trial.ranks).map(Rank);
            let left: usize =
                ranks.filter_map(|rank| Some(self.world.engine_mut(rank)?.unacknowledged())).sum();
            let sentence =
                format!("after {TIMEOUT} without faults {left} parcels are still under way");
            self.violate(Symptom::Unanswered, sentence);
        }
        let silent = self
            .trial
            .has(|kind| matches!(kind, FaultKind::Completions { end: Completion::Never }));
        let damaging = self.trial.has(|kind| matches!(kind, FaultKind::Corruption(_)));
        for rank in (0..self.trial.ranks).map(Rank) {
            let Some(engine) = self.world.engine_mut(rank) else { continue };
            let (awaited, parcels) = (engine.awaited(), engine.unacknowledged());
            if parcels > 0 {
                self.violate(
                    Symptom::Unanswered,
                    format!("rank {}: {parcels} parcels or posts are left", rank.0),
                );
            }
            if !awaited.is_empty() && !silent {
                let sentence =
                    format!("rank {}: nothing was heard of {}", rank.0, awaited.join(", "));
                self.violate(Symptom::Unanswered, sentence);
            }
            let layout = Layout { ranks: self.trial.ranks };
            let stray = self
                .world
                .network()
                .end(rank)
                .region(REGION)
                .map(|memory| layout.inspect(rank, memory));
            if let (Some(Err(stray)), false) = (stray, damaging) {
                let sentence = format!(
                    "rank {}: {:#x} at {} belongs to {:?}",
                    rank.0, stray.found, stray.at, stray.whose
                );
                self.violate(Symptom::Memory, sentence);
            }
        }
        let left = self.world.network().under_way();
        if left > 0 {
            self.violate(
                Symptom::Leftover,
                format!("{left} messages are under way and nothing is left to happen"),
            );
        }
        if self.outcome.violation.is_none() {
            self.outcome.states.insert(State::Healed);
        }
    }
}

/// Gives a node its memory, its group and its file, and starts its engine.
fn start(wire: &mut SimWire, trial: &Trial) -> CheckedEngine {
    let layout = Layout { ranks: trial.ranks };
    layout.register(wire).unwrap_or_default();
    if wire.capabilities().operations.has(OperationKind::Multicast) {
        wire.join(GROUP).unwrap_or_default();
    }
    wire.open(FILE, Bytes(0)).unwrap_or_default();
    let key = RandomKey::new(trial.seed).node(u64::from(wire.incarnation()));
    CheckedEngine::new(wire.rank(), trial.errand(), key)
}
