//! Many small jobs under random faults: nothing that an input still holds is lost, and nothing is
//! built twice by decision.
//!
//! # Model
//! A seed gives a job (inputs, builders, policy, memory, rings, lengths) and faults: kills, restarts,
//! pauses, clocks that jump ahead or are set back, drops of bandwidth, nodes ten times too slow,
//! ranks that join, retire or weigh other. The job runs on the memory wire until every rank that
//! takes part has ended. Then every timeslice must have been built once, by decision, with the
//! contributions of all inputs that never were out.

mod strikes;

use alloc::sync::Arc;
use alloc::vec::Vec;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use self::strikes::strikes_of;
use super::membership::{Change, Journal, RosterMember};
use super::*;
use crate::base::{Bytes, Class, LocalNs, Nanos, RandomKey, RandomStream, Rank};
use crate::wire::memory::{MemoryConfig, MemoryFabric, MemoryWire};
use crate::wire::{Arrival, Driver, Span, Wire, forward_wire};

/// Time between beats; a message takes a twentieth of it.
const BEAT: Nanos = Nanos::from_micros(20);
const LATENCY: Nanos = Nanos(1_000);
/// Jobs take about a millisecond; this is long after the last fault.
const LATE: LocalNs = LocalNs(100_000_000);
/// A schedule that paces takes what an interval took with ranks that were away for usual, for a
/// while. Where an input holds little, everybody waits until builders report room, which they do
/// once in a millisecond under a policy that grants.
const LATE_PACED: LocalNs = LocalNs(4_000_000_000);
/// After the last join something is complete at least this often: a schedule that paces may wait for
/// two of its intervals, which take some 100 us here, while a clock is learned.
const GAP_MAX: u64 = 15 * BEAT.0;
/// And a timeslice takes this long at most on average: the slowest of 200 jobs takes 3.3 us.
const EACH_MAX: u64 = 4_000;
/// Faults strike before this.
const STRIKES: u64 = 700_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SwarmFault {
    /// It never runs again.
    Kill,
    /// It begins anew after so long, and asks to join.
    Restart(u64),
    /// It does not run for so long.
    Pause(u64),
    /// Its clock jumps ahead.
    Jump(u64),
    /// Its clock is set back: it stands until the time that it has shown comes again, since an
    /// engine's never goes back.
    SetBack(u64),
    /// It hears one thing in a microsecond, for so long: three messages would come in that.
    Drop(u64),
    /// It runs once in ten microseconds from now on.
    Slow,
    Retire,
    Join,
    Weigh(u32),
    /// An input hears where the stream ends.
    Finish,
}

/// What strikes which ranks, by when.
type FaultsByTime = BTreeMap<u64, Vec<(u32, SwarmFault)>>;

/// A wire whose rank has a clock of its own, and hears so much at a time.
struct FaultyWire<'a> {
    wire: &'a mut MemoryWire,
    now: LocalNs,
    most: usize,
}

impl Wire for FaultyWire<'_> {
    forward_wire!(
        wire: rank, capabilities, memory, groups, post, deadline, counters
    );

    fn now(&self) -> LocalNs {
        self.now
    }
    fn poll(&mut self, limit: usize, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        let count = self.wire.poll(limit.min(self.most), sink);
        self.most -= count;
        count
    }
}

/// One rank of a trial.
struct SwarmProcess {
    driver: Option<Driver<TimesliceNode>>,
    /// It does not run before this.
    sleeps_until: u64,
    is_slow: bool,
    /// Until then it hears one thing at a time.
    narrow_until: u64,
    /// By how much its clock is ahead of the fabric's, or behind; and what it has shown.
    ahead: i64,
    shown: u64,
    /// How often it was taken in.
    lives: u32,
    ended: bool,
    out: bool,
    /// It asks to join whenever it is out.
    persistent: bool,
    wake: Option<LocalNs>,
    /// Of an input: what it has to give, the next one first, and the first that is not free.
    supply: VecDeque<(u64, ContributionSpans)>,
    free: u64,
    /// Contributions that it holds at most.
    memory: u64,
    /// Of a builder: the length of each of its rings.
    ring: u64,
}

impl SwarmProcess {
    fn new(out: bool, persistent: bool, [memory, ring]: [u64; 2]) -> Self {
        Self {
            memory,
            ring,
            driver: None,
            sleeps_until: 0,
            is_slow: false,
            narrow_until: 0,
            ahead: 0,
            shown: 0,
            lives: 0,
            ended: false,
            out,
            persistent,
            wake: None,
            supply: VecDeque::new(),
            free: 0,
        }
    }

    /// Returns what its clock shows when the fabric's shows `now`.
    fn clock(&mut self, now: LocalNs) -> LocalNs {
        Self::shown(self.ahead, &mut self.shown, now)
    }

    fn shown(ahead: i64, shown: &mut u64, now: LocalNs) -> LocalNs {
        *shown = now.0.saturating_add_signed(ahead).max(*shown);
        LocalNs(*shown)
    }
}

/// A timeslice that a builder reported as complete.
#[derive(Clone, Debug)]
struct BuiltTimeslice {
    rank: Rank,
    life: u32,
    /// Inputs whose contribution was there.
    with: BTreeSet<usize>,
}

struct SwarmTrial {
    stream: RandomStream,
    inputs: u32,
    builders: u32,
    policy: Policy,
    timeslices: u64,
    layout: Arc<TimesliceLayout>,
    fabric: MemoryFabric,
    processes: Vec<SwarmProcess>,
    faults: FaultsByTime,
    built: BTreeMap<u64, Vec<BuiltTimeslice>>,
    void: BTreeSet<(Rank, u32, u64)>,
    releases: BTreeMap<(u64, u64), (Rank, u32, u64)>,
    helpless: bool,
    /// Inputs learn where the stream ends when nobody goes or comes any more, not at once.
    ends_late: bool,
    /// When timeslices were complete, and when a rank last joined.
    completed_at: Vec<u64>,
    joined_at: u64,
    plan: SwarmPlan,
    memory: SwarmMemory,
}

/// What strikes the ranks of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SwarmPlan {
    /// A few faults of all kinds.
    Faults,
    /// Ranks that retire and come back, each once, and nothing else.
    Returns,
    /// Two of four inputs and four builders are killed and started anew, and nothing else.
    Restarts,
    /// The same, where inputs hold little.
    ScarceMemory,
}

/// How much inputs hold, and how long rings are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SwarmMemory {
    /// The same everywhere, as the plan says.
    Alike,
    /// Each input holds another number of contributions, and each builder has rings of another
    /// length.
    Own,
}

fn content(place: usize, timeslice: u64, at: usize) -> u8 {
    (place as u64 * 31 + timeslice * 7 + at as u64) as u8
}

fn length(timeslice: u64) -> u32 {
    1 + (timeslice * 37 % 60) as u32
}

impl SwarmTrial {
    fn new(seed: u64, plan: SwarmPlan, memory: SwarmMemory) -> Self {
        let mut stream = RandomKey::new(seed).purpose("timeslice swarm").stream();
        let mut below = |bound: u64| stream.below(bound);
        let (inputs, builders) = match plan {
            SwarmPlan::Restarts | SwarmPlan::ScarceMemory => (4, 4),
            SwarmPlan::Faults | SwarmPlan::Returns => (2 + below(3) as u32, 2 + below(3) as u32),
        };
        let policy =
            [Policy::BestEffort, Policy::Offset, Policy::Dfs, Policy::Token][below(4) as usize];
        let (timeslices, ring) = (20 + below(600), 128 + below(1000));
        let (timeslices, ahead, delay) = match plan {
            SwarmPlan::Faults => (timeslices, u64::MAX, 0),
            SwarmPlan::Returns if below(3) == 0 => {
                (timeslices * 3, 100 + below(200), below(2) * below(BEAT.0))
            }
            SwarmPlan::Returns => (timeslices * 3, u64::MAX, below(3) * below(3 * BEAT.0)),
            SwarmPlan::Restarts => (4_000, u64::MAX, 0),
            SwarmPlan::ScarceMemory => (4_000, 100 + below(200), 0),
        };
        let ranks = inputs + builders;
        let absent =
            if below(4) == 0 && builders > 2 { std::vec![Rank(inputs)] } else { Vec::new() };
        let (absent, faults) = strikes_of(plan, &mut stream, [inputs, builders], absent);
        let layout = TimesliceLayout::new(
            (0..inputs).map(Rank).collect(),
            (inputs..ranks).map(Rank).collect(),
            &[],
        );
        let layout =
            Arc::new(layout.and_then(|layout| layout.without(&absent)).expect("a sound layout"));
        let config = MemoryConfig { latency: LATENCY, seed, ..MemoryConfig::lossless(ranks) };
        let mut fabric = MemoryFabric::new(config);
        if delay > 0 {
            fabric.draw_delays(Nanos(delay));
        }
        let process = |rank| {
            let persistent = stream.below(2) == 0;
            let own = match memory {
                SwarmMemory::Alike => [ahead, ring],
                SwarmMemory::Own => [10 + stream.below(300), 64 + stream.below(1000)],
            };
            SwarmProcess::new(absent.contains(&Rank(rank)), persistent, own)
        };
        let processes = (0..ranks).map(process).collect();
        let mut trial = Self {
            stream,
            inputs,
            builders,
            policy,
            timeslices,
            layout,
            fabric,
            processes,
            faults,
            built: BTreeMap::new(),
            void: BTreeSet::new(),
            releases: BTreeMap::new(),
            helpless: false,
            ends_late: plan != SwarmPlan::Faults,
            completed_at: Vec::new(),
            joined_at: 0,
            plan,
            memory,
        };
        (0..ranks).for_each(|rank| trial.boot(rank, 0));
        (0..inputs).for_each(|rank| trial.feed(rank, 0));
        trial
    }

    fn boot(&mut self, rank: u32, incarnation: u32) {
        let now = self.processes[rank as usize].clock(self.fabric.now());
        let wire = self.fabric.wire(Rank(rank));
        let ring = self.processes[rank as usize].ring;
        let length = ring * u64::from(self.inputs);
        let region = wire.register(Bytes(length)).expect("there is room");
        let node = TimesliceNode::new(TimesliceConfig {
            rank: Rank(rank),
            run: 0,
            layout: self.layout.clone(),
            policy: self.policy,
            window: Window { least: 2, most: 8 },
            dfs: Dfs { interval: 20, history: 5, ..Dfs::default() },
            source: ContributionSource::Given,
            slots: WriteSlots::from_policy(self.policy),
            rings: Span { region, offset: 0, length: length as u32 },
            ring: Bytes(ring),
            release: ReleasePolicy::ByCommand,
            heartbeat: Some(BEAT),
            class: Class::Bulk,
            control: Class::Control,
        });
        self.processes[rank as usize].driver = Some(Driver::boot(node, now, incarnation));
    }

    fn command(&mut self, rank: u32, command: TimesliceCommand) {
        let process = &mut self.processes[rank as usize];
        let now = process.clock(self.fabric.now());
        if let Some(driver) = &mut process.driver {
            driver.command(now, command);
            process.wake = Some(LocalNs(0));
        }
    }

    /// Gives an input everything from `first` on.
    fn feed(&mut self, rank: u32, first: u64) {
        let wire = self.fabric.wire(Rank(rank));
        let total: u64 =
            (first..self.timeslices).map(|timeslice| u64::from(length(timeslice))).sum();
        let region = wire.register(Bytes(total.max(1))).expect("there is room");
        let bytes = wire.region_mut(region).expect("it was registered");
        let mut offset = 0_u64;
        let mut all = VecDeque::new();
        for timeslice in first..self.timeslices {
            let length = length(timeslice);
            for at in 0..length as usize {
                bytes[offset as usize + at] = content(rank as usize, timeslice, at);
            }
            let pieces = ContributionSpans::new([Span { region, offset, length }]);
            all.push_back((timeslice, pieces.expect("contributions are not empty")));
            offset += u64::from(length);
        }
        let process = &mut self.processes[rank as usize];
        (process.supply, process.free) = (all, first);
        self.give(rank);
        if !self.ends_late {
            self.command(rank, TimesliceCommand::Finish { timeslice: self.timeslices });
        }
        self.command(rank, TimesliceCommand::Begin);
    }

    /// Gives an input what it may hold.
    fn give(&mut self, rank: u32) {
        let process = &mut self.processes[rank as usize];
        let limit = process.free.saturating_add(process.memory);
        let may = process.supply.iter().take_while(|(timeslice, _)| *timeslice < limit).count();
        let given: Vec<_> = process.supply.drain(..may).collect();
        given
            .into_iter()
            .for_each(|(_, pieces)| self.command(rank, TimesliceCommand::Give(pieces)));
    }

    /// Tells the inputs where the stream ends, as soon as nobody goes or comes any more.
    fn end_late(&mut self) {
        let all_there = self.processes.iter().all(|process| !process.out);
        if self.ends_late && self.faults.is_empty() && all_there {
            self.ends_late = false;
            for rank in 0..self.inputs {
                let at = self.fabric.now().0 + self.stream.below(4 * BEAT.0);
                self.faults.entry(at).or_default().push((rank, SwarmFault::Finish));
            }
        }
    }

    fn strike(&mut self, rank: u32, fault: SwarmFault) {
        let now = self.fabric.now().0;
        let process = &mut self.processes[rank as usize];
        match fault {
            SwarmFault::Kill => process.driver = None,
            SwarmFault::Restart(after) => {
                process.driver = None;
                process.sleeps_until = now + after;
                self.faults.entry(now + after).or_default().push((rank, SwarmFault::Join));
            }
            SwarmFault::Pause(length) => process.sleeps_until = now + length,
            SwarmFault::Jump(by) => process.ahead += by as i64,
            SwarmFault::SetBack(by) => process.ahead -= by as i64,
            SwarmFault::Drop(length) => process.narrow_until = now + length,
            SwarmFault::Slow => process.is_slow = true,
            SwarmFault::Retire => self.command(rank, TimesliceCommand::Retire),
            SwarmFault::Finish => {
                self.command(rank, TimesliceCommand::Finish { timeslice: self.timeslices })
            }
            SwarmFault::Weigh(weight) => self.command(rank, TimesliceCommand::Weigh { weight }),
            SwarmFault::Join => {
                if process.driver.is_none() {
                    // Arrivals for the dead are gone with it.
                    while self.fabric.wire(Rank(rank)).poll(1000, &mut |_| {}) > 0 {}
                    self.processes[rank as usize].out = true;
                    self.boot(rank, 1);
                }
                self.processes[rank as usize].persistent = true;
                self.command(rank, TimesliceCommand::Join);
            }
        }
    }

    /// Returns whether every rank that takes part has ended.
    fn is_over(&self) -> bool {
        let over =
            |process: &SwarmProcess| process.driver.is_none() || process.ended || process.out;
        !self.ends_late && self.faults.is_empty() && self.processes.iter().all(over)
    }

    fn run(&mut self) {
        let is_slow = self.policy == Policy::Dfs || self.memory == SwarmMemory::Own;
        let late = if is_slow { LATE_PACED } else { LATE };
        while !self.is_over() && !self.helpless && self.fabric.now() < late {
            let now = self.fabric.now();
            while let Some(entry) = self.faults.first_entry().filter(|entry| *entry.key() <= now.0)
            {
                entry.remove().into_iter().for_each(|(rank, fault)| self.strike(rank, fault));
            }
            while let Some(entry) =
                self.releases.first_entry().filter(|entry| entry.key().0 <= now.0)
            {
                let (rank, life, timeslice) = entry.remove();
                if self.processes[rank.index()].lives == life {
                    self.command(rank.0, TimesliceCommand::Release { timeslice });
                }
            }
            self.end_late();
            (0..self.processes.len()).for_each(|rank| self.step(rank));
            let wakes = self.processes.iter().filter_map(|process| process.wake);
            let faults = self.faults.keys().next().map(|at| LocalNs(*at));
            let releases = self.releases.keys().next().map(|(at, _)| LocalNs(*at));
            let next = wakes.chain(faults).chain(releases).chain(self.fabric.next_arrival()).min();
            match next {
                Some(next) => self.fabric.advance(next.max(now + Nanos(50))),
                None => return,
            }
        }
    }

    fn step(&mut self, rank: usize) {
        let now = self.fabric.now();
        let process = &mut self.processes[rank];
        process.wake = None;
        let Some(driver) = &mut process.driver else { return };
        if process.sleeps_until > now.0 {
            process.wake = Some(LocalNs(process.sleeps_until));
            return;
        }
        if process.is_slow {
            process.sleeps_until = now.0 + 10_000;
        }
        let mut events = Vec::new();
        let is_narrow = process.narrow_until > now.0;
        let shown = SwarmProcess::shown(process.ahead, &mut process.shown, now);
        let most = if is_narrow { 1 } else { usize::MAX };
        let mut wire = FaultyWire { wire: self.fabric.wire(Rank(rank as u32)), now: shown, most };
        let progress = driver.step(&mut wire, &mut |event| events.push(event));
        process.wake =
            progress.next.map(|next| LocalNs(next.0.saturating_add_signed(-process.ahead)));
        if is_narrow {
            process.sleeps_until = now.0 + 1_000;
            process.wake = Some(LocalNs(process.sleeps_until));
        }
        events.into_iter().for_each(|event| self.handle_event(Rank(rank as u32), event));
    }

    fn handle_event(&mut self, rank: Rank, event: TimesliceEvent) {
        let process = &mut self.processes[rank.index()];
        match event {
            TimesliceEvent::Complete { timeslice, .. } => self.complete(rank, timeslice),
            TimesliceEvent::Void { timeslice } => {
                self.void.insert((rank, process.lives, timeslice));
            }
            TimesliceEvent::Ended => process.ended = true,
            TimesliceEvent::Free { timeslice } => {
                process.free = timeslice;
                self.give(rank.0);
            }
            TimesliceEvent::Joined { timeslice, .. } => {
                (process.out, process.ended) = (false, false);
                process.lives += 1;
                self.joined_at = self.fabric.now().0;
                if rank.0 < self.inputs {
                    self.feed(rank.0, timeslice);
                }
            }
            TimesliceEvent::Out => {
                process.out = true;
                if self.ends_late && self.plan == SwarmPlan::Returns {
                    let at = self.fabric.now().0 + self.stream.below(STRIKES);
                    self.faults.entry(at).or_default().push((rank.0, SwarmFault::Join));
                } else if process.persistent {
                    self.command(rank.0, TimesliceCommand::Join);
                }
            }
            // With delays nobody may decide for a while, but not for good.
            TimesliceEvent::Helpless => self.helpless |= self.plan == SwarmPlan::Faults,
            TimesliceEvent::Refused { missing, .. } => panic!("{missing}"),
            TimesliceEvent::TooLong { .. } | TimesliceEvent::Aborted { .. } => panic!("{event:?}"),
            _ => {}
        }
    }

    fn complete(&mut self, rank: Rank, timeslice: u64) {
        self.completed_at.push(self.fabric.now().0);
        let life = self.processes[rank.index()].lives;
        let mut with = BTreeSet::new();
        for place in 0..self.inputs as usize {
            let driver = self.processes[rank.index()].driver.as_mut().expect("it has just spoken");
            let Some(span) = driver.engine_mut().contribution(place, timeslice) else { continue };
            let region = self.fabric.wire(rank).region(span.region).expect("the rings are there");
            let bytes = &region[span.range_in(region.len()).expect("within the rings")];
            assert_eq!(
                bytes.len(),
                length(timeslice) as usize,
                "timeslice {timeslice}, input {place}"
            );
            let wrong = bytes
                .iter()
                .enumerate()
                .find(|(at, byte)| **byte != content(place, timeslice, *at));
            assert_eq!(wrong, None, "timeslice {timeslice}, input {place}");
            with.insert(place);
        }
        self.built.entry(timeslice).or_default().push(BuiltTimeslice { rank, life, with });
        let due = self.fabric.now().0 + self.stream.below(20_000);
        self.releases.insert((due, self.stream.below(u64::MAX)), (rank, life, timeslice));
    }

    /// Returns the journal of who has come furthest, after all others were found to be a part of
    /// it.
    fn journal(&mut self) -> Arc<Journal> {
        let engines = self.processes.iter_mut().filter_map(|process| process.driver.as_mut());
        let journals: Vec<Arc<Journal>> =
            engines.map(|driver| driver.engine_mut().journal().clone()).collect();
        let last =
            journals.iter().max_by_key(|journal| journal.epoch()).expect("somebody lives").clone();
        for journal in journals {
            for epoch in 1..=journal.epoch() {
                assert_eq!(journal.decision(epoch), last.decision(epoch), "epoch {epoch}");
            }
        }
        last
    }

    fn check(&mut self) {
        let last = self.journal();
        let mut journal = Journal::new(&self.layout);
        let mut ever_out: BTreeSet<RosterMember> = BTreeSet::new();
        // Of each builder and life that was ended: what it has built by decision.
        let mut lives: BTreeMap<RosterMember, u32> = BTreeMap::new();
        let mut settled: BTreeMap<(Rank, u32), BTreeSet<u64>> = BTreeMap::new();
        for epoch in 1..=last.epoch() {
            let decision = last.decision(epoch).expect("it was decided");
            match decision.change {
                Change::Remove { member, settled: count } => {
                    ever_out.insert(member);
                    if let Role::Builder(place) = journal.role(member) {
                        let all = (0..count)
                            .filter_map(|position| journal.nth(place, position))
                            .collect();
                        settled.insert(
                            (journal.rank(member), lives.get(&member).copied().unwrap_or(0)),
                            all,
                        );
                    }
                }
                Change::Join { member, .. } => *lives.entry(member).or_default() += 1,
                _ => {}
            }
            journal = journal.with(decision).expect("it was decided");
        }
        let counts = |built: &&BuiltTimeslice, timeslice: u64| {
            settled.get(&(built.rank, built.life)).is_none_or(|all| all.contains(&timeslice))
        };
        for timeslice in 0..self.timeslices {
            let all = self.built.get(&timeslice).map_or(&[][..], Vec::as_slice);
            let valid: Vec<&BuiltTimeslice> =
                all.iter().filter(|built| counts(built, timeslice)).collect();
            assert!(valid.len() <= 1, "timeslice {timeslice} was built twice: {valid:?}");
            if self.helpless {
                continue;
            }
            let holds = |place: &usize| {
                let member = journal.member(Role::Input(*place));
                !ever_out.contains(&member) && journal.range(*place).contains(&timeslice)
            };
            for place in (0..self.inputs as usize).filter(holds) {
                let built = valid
                    .first()
                    .unwrap_or_else(|| panic!("timeslice {timeslice} is lost: {all:?}"));
                assert!(
                    built.with.contains(&place),
                    "timeslice {timeslice} lacks input {place}: {built:?}"
                );
            }
        }
        assert!(!self.helpless, "somebody could decide nothing");
        assert!(self.is_over(), "it never ends");
    }

    /// Checks that work goes on behind the last join.
    fn check_pace(&self) {
        let after = self.completed_at.iter().copied().filter(|at| *at > self.joined_at);
        let all: Vec<u64> = [self.joined_at].into_iter().chain(after).collect();
        let gap = all.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
        assert!(gap <= GAP_MAX, "nothing was complete for {gap} ns after the last join");
        let took = all.last().map_or(0, |last| last - self.joined_at);
        let count = all.len() as u64 - 1;
        assert!(took <= count * EACH_MAX + GAP_MAX, "{count} took {took} ns after the last join");
    }
}

fn run(seed: u64, plan: SwarmPlan) {
    run_with(seed, plan, SwarmMemory::Alike);
}

fn run_with(seed: u64, plan: SwarmPlan, memory: SwarmMemory) {
    let mut trial = SwarmTrial::new(seed, plan, memory);
    let drawn =
        (trial.inputs, trial.builders, trial.policy, trial.timeslices, trial.faults.clone());
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        trial.run();
        trial.check();
        if (plan, memory) == (SwarmPlan::Restarts, SwarmMemory::Alike) {
            trial.check_pace();
        }
    }));
    if let Err(why) = caught {
        let what = why.downcast_ref::<std::string::String>().cloned();
        let what = what.or_else(|| Some((*why.downcast_ref::<&str>()?).into())).unwrap_or_default();
        let states: Vec<_> = trial
            .processes
            .iter()
            .map(|process| (process.driver.is_some(), process.ended, process.out))
            .collect();
        panic!(
            "seed {seed}, {plan:?}, {memory:?}, {drawn:?}, at {:?}, alive, ended, out: {states:?}: {what}",
            trial.fabric.now()
        );
    }
}

/// Returns the seeds to try: as many as `SWARM_SEEDS` says from `SWARM_FIRST` on, or `usual`.
fn seeds(usual: core::ops::Range<u64>) -> core::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    match (number("SWARM_FIRST"), number("SWARM_SEEDS")) {
        (None, None) => usual,
        (first, count) => {
            let first = first.unwrap_or(0);
            first..first + count.unwrap_or(usual.end - usual.start)
        }
    }
}

/// `SWARM_SEEDS=1000 cargo test -p clearway-proto --lib timeslice::swarm` takes some seconds, and
/// `SWARM_FIRST=7 SWARM_SEEDS=1` tries one seed.
#[test]
fn swarm__nothing_is_lost_or_built_twice() {
    seeds(0..48).for_each(|seed| run(seed, SwarmPlan::Faults));
}

/// At the end only a builder that had been relieved had timeslices left, under `dfs`.
#[test]
fn swarm__a_relieved_builder_may_be_the_last() {
    run(9600, SwarmPlan::Faults);
}

#[test]
fn swarm__who_retires_and_returns_holds_up_nobody() {
    seeds(0..48).for_each(|seed| run(seed, SwarmPlan::Returns));
}

/// Builders of these died while an input that had come back was further ahead than others had room
/// for: none of them sent what stood before the timeslices that the dead one left.
#[test]
fn swarm__an_input_that_came_back_goes_no_further_than_others_have_room_for() {
    [551, 1384, 1562, 1836, 2019, 2703, 3534]
        .into_iter()
        .for_each(|seed| run(seed, SwarmPlan::Returns));
}

/// Between what inputs that were out had begun and the first timeslice of one that joined nobody
/// had anything for the others; a later decision dealt anew before that first timeslice.
#[test]
fn swarm__timeslices_that_nobody_has_stop_no_builder() {
    [43, 2215].into_iter().for_each(|seed| run(seed, SwarmPlan::Returns));
}

#[test]
fn swarm__who_is_killed_and_returns_needs_little_memory() {
    seeds(0..24).for_each(|seed| run(seed, SwarmPlan::ScarceMemory));
}

#[test]
fn swarm__after_the_last_join_throughput_resumes() {
    seeds(16..20).for_each(|seed| run(seed, SwarmPlan::Restarts));
    // An input that had come back learned only after LAZY that it could go on.
    run(3201, SwarmPlan::Restarts);
}

/// Where some inputs held more than others, they went further ahead than these could hold besides
/// what a builder that died had left: then nobody could send any more.
#[test]
fn swarm__each_input_has_memory_and_each_builder_rings_of_its_own() {
    let plans = [SwarmPlan::Faults, SwarmPlan::Returns, SwarmPlan::Restarts];
    let plan = |seed: u64| plans[(seed % 3) as usize];
    seeds(0..24).for_each(|seed| run_with(seed, plan(seed), SwarmMemory::Own));
}
