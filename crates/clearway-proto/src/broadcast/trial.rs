//! A cast between small applications on the wire in memory: what every test of the engine runs,
//! with whatever goes wrong.

use alloc::sync::Arc;
use alloc::vec::Vec;
use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::base::{
    BitsPerSec, Bytes, Class, GroupId, LocalNs, Nanos, RandomKey, RandomStream, Rank,
};
use crate::wire::memory::{FaultInjection, MemoryConfig, MemoryFabric};
use crate::wire::{Driver, RegionId, Span, Wire};

pub(super) const GROUP: GroupId = GroupId(3);
pub(super) const SYMBOL: u32 = 100;

/// What goes wrong with a member, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberFault {
    /// It never runs again.
    Kill,
    /// It does not run for so long.
    Pause(u64),
    /// It runs once in so long from now on.
    Slow(u64),
    /// Those who live are notified that it died.
    Notified,
    /// Its application wants the cast to end.
    Abort,
}

/// What a trial is of.
#[derive(Clone, Debug)]
pub(super) struct BroadcastPlan {
    pub(super) ranks: u32,
    pub(super) leaf: u32,
    /// The group's messages stay within a leaf.
    pub(super) is_confined: bool,
    pub(super) root: u32,
    pub(super) algorithm: Algorithm,
    pub(super) group: Option<GroupId>,
    /// Bytes of each object.
    pub(super) lengths: Vec<u32>,
    pub(super) loss: u32,
    pub(super) fault_injection: FaultInjection,
    pub(super) seed: u64,
    pub(super) rate: Option<BitsPerSec>,
    pub(super) first_rate: Option<BitsPerSec>,
    pub(super) window: u32,
    pub(super) silence: Nanos,
    pub(super) laggards: SlowReceivers,
    pub(super) slots: u32,
    pub(super) room: usize,
    /// How long an application keeps a message, at most.
    pub(super) keep: u64,
    /// Places are given in the beginning, not when they are asked for.
    pub(super) places_first: Option<u32>,
    pub(super) until: LocalNs,
}

impl BroadcastPlan {
    pub(super) fn new(ranks: u32, lengths: &[u32]) -> Self {
        Self {
            ranks,
            leaf: ranks,
            is_confined: false,
            root: 0,
            algorithm: Algorithm::Multicast,
            group: Some(GROUP),
            lengths: lengths.to_vec(),
            loss: 0,
            fault_injection: FaultInjection::default(),
            seed: 0,
            rate: None,
            first_rate: None,
            window: 256,
            silence: Nanos::from_millis(200),
            laggards: SlowReceivers::Wait,
            slots: 64,
            room: 4096,
            keep: 0,
            places_first: None,
            until: LocalNs(20_000_000_000),
        }
    }
}

/// One member's application.
pub(super) struct BroadcastProcess {
    pub(super) driver: Option<Driver<BroadcastNode>>,
    sleeps_until: u64,
    period: u64,
    wake: Option<LocalNs>,
    region: RegionId,
    /// Where the next long object goes.
    place_at: u64,
    slots: Span,
    pub(super) received: Vec<u32>,
    pub(super) stable: Vec<u32>,
    pub(super) aborted: Option<u32>,
    pub(super) out: bool,
    pub(super) events: Vec<BroadcastEvent>,
    /// Places by object, for a look at the end.
    at: BTreeMap<u32, Span>,
}

pub(super) struct BroadcastTrial {
    pub(super) plan: BroadcastPlan,
    pub(super) fabric: MemoryFabric,
    pub(super) processes: Vec<BroadcastProcess>,
    pub(super) faults: BTreeMap<u64, Vec<(u32, MemberFault)>>,
    releases: BTreeSet<(u64, u32, u32)>,
    stream: RandomStream,
    cast: usize,
}

pub(super) fn content(object: u32, at: usize) -> u8 {
    (object as usize * 131 + at * 7 + at / 251) as u8
}

impl BroadcastTrial {
    pub(super) fn new(plan: BroadcastPlan) -> Self {
        let config = MemoryConfig {
            latency: Nanos::from_micros(10),
            room: plan.room,
            loss_per_million: plan.loss,
            fault_injection: plan.fault_injection,
            seed: plan.seed,
            ..MemoryConfig::lossless(plan.ranks)
        };
        let mut trial = Self {
            fabric: MemoryFabric::new(config),
            processes: Vec::new(),
            faults: BTreeMap::new(),
            releases: BTreeSet::new(),
            stream: RandomKey::new(plan.seed).purpose("broadcast trial").stream(),
            cast: 0,
            plan,
        };
        if trial.plan.is_confined {
            trial.fabric.limit_multicast_to_leaf(trial.plan.leaf);
        }
        let members: Arc<[Member]> = (0..trial.plan.ranks)
            .map(|rank| Member { rank: Rank(rank), leaf: rank / trial.plan.leaf })
            .collect();
        (0..trial.plan.ranks).for_each(|rank| trial.boot(rank, &members));
        trial
    }

    fn boot(&mut self, rank: u32, members: &Arc<[Member]>) {
        let plan = &self.plan;
        let total: u64 = plan.lengths.iter().map(|length| u64::from(*length)).sum();
        let wire = self.fabric.wire(Rank(rank));
        let slots_length = plan.slots * SYMBOL;
        let region = wire.register(Bytes(total + u64::from(slots_length))).expect("there is room");
        if plan.group.is_some() {
            wire.join(GROUP).expect("groups are there");
        }
        let slots = Span { region, offset: total, length: slots_length };
        let node = BroadcastNode::new(BroadcastConfig {
            rank: Rank(rank),
            members: members.clone(),
            root: Rank(plan.root),
            group: plan.group,
            key: 77,
            symbol: SYMBOL,
            window: plan.window,
            history: plan.window * 2,
            slots,
            rate: plan.rate,
            first_rate: plan.first_rate,
            sync_every: 16,
            silence: plan.silence,
            slow_receivers: plan.laggards,
            algorithm: plan.algorithm,
            class: Class::Bulk,
            control: Class::Control,
        });
        let driver = Driver::boot(node, self.fabric.now(), 0);
        self.processes.push(BroadcastProcess {
            driver: Some(driver),
            sleeps_until: 0,
            period: 0,
            wake: Some(LocalNs(0)),
            region,
            place_at: 0,
            slots,
            received: Vec::new(),
            stable: Vec::new(),
            aborted: None,
            out: false,
            events: Vec::new(),
            at: BTreeMap::new(),
        });
        if rank == self.plan.root {
            self.fill(rank);
        } else if let Some(places) = self.plan.places_first {
            let longs = self
                .plan
                .lengths
                .clone()
                .into_iter()
                .filter(|length| *length > SYMBOL)
                .take(places as usize);
            longs.for_each(|length| self.place(rank, u64::from(length)));
        }
    }

    fn fill(&mut self, rank: u32) {
        let region = self.processes[rank as usize].region;
        let lengths = self.plan.lengths.clone();
        let bytes = self.fabric.wire(Rank(rank)).region_mut(region).expect("it was registered");
        let mut offset = 0;
        for (object, length) in lengths.iter().enumerate() {
            for at in 0..*length as usize {
                bytes[offset + at] = content(object as u32, at);
            }
            offset += *length as usize;
        }
    }

    pub(super) fn command(&mut self, rank: u32, command: BroadcastCommand) {
        let now = self.fabric.now();
        let process = &mut self.processes[rank as usize];
        if let Some(driver) = &mut process.driver {
            driver.command(now, command);
            process.wake = Some(LocalNs(0));
        }
    }

    /// Casts the next `count` objects.
    pub(super) fn cast(&mut self, count: usize) {
        for _ in 0..count {
            let region = self.processes[self.plan.root as usize].region;
            let offset =
                self.plan.lengths[..self.cast].iter().map(|length| u64::from(*length)).sum();
            let from = Span { region, offset, length: self.plan.lengths[self.cast] };
            self.cast += 1;
            self.command(self.plan.root, BroadcastCommand::Cast { from });
        }
    }

    pub(super) fn place(&mut self, rank: u32, length: u64) {
        let process = &mut self.processes[rank as usize];
        let into = Span { region: process.region, offset: process.place_at, length: length as u32 };
        process.place_at += length;
        self.command(rank, BroadcastCommand::Place { into });
    }

    /// Runs until nobody has anything left to do, everything is over, or it is too late.
    pub(super) fn run(&mut self) {
        while self.fabric.now() < self.plan.until && !self.is_over() {
            self.turn();
        }
    }

    /// Moves time to the next event and handles that.
    pub(super) fn turn(&mut self) {
        let wakes = self.processes.iter().filter_map(|process| process.wake);
        let faults = self.faults.keys().next().map(|at| LocalNs(*at));
        let releases = self.releases.first().map(|first| LocalNs(first.0));
        let next = wakes.chain(faults).chain(releases).chain(self.fabric.next_arrival()).min();
        let next = next.unwrap_or(self.plan.until);
        self.fabric.advance(next.max(self.fabric.now() + Nanos(100)));
        let now = self.fabric.now();
        while let Some(entry) = self.faults.first_entry().filter(|entry| *entry.key() <= now.0) {
            entry.remove().into_iter().for_each(|(rank, fault)| self.strike(rank, fault));
        }
        while let Some(first) = self.releases.first().copied().filter(|first| first.0 <= now.0) {
            self.releases.remove(&first);
            self.command(first.1, BroadcastCommand::Release { object: first.2 });
        }
        (0..self.processes.len()).for_each(|rank| self.step(rank));
    }

    /// Returns whether every member that takes part knows the end of every object.
    pub(super) fn is_over(&self) -> bool {
        let all = self.plan.lengths.len() as u32;
        let over = |process: &BroadcastProcess| {
            process.driver.is_none()
                || process.out
                || process.stable.len() as u32 == all
                || process.aborted.is_some_and(|aborted| process.stable.len() as u32 >= aborted)
        };
        self.faults.is_empty() && self.processes.iter().all(over)
    }

    fn strike(&mut self, rank: u32, fault: MemberFault) {
        let now = self.fabric.now().0;
        let process = &mut self.processes[rank as usize];
        match fault {
            MemberFault::Kill => process.driver = None,
            MemberFault::Pause(length) => process.sleeps_until = now + length,
            MemberFault::Slow(period) => process.period = period,
            MemberFault::Abort => self.command(rank, BroadcastCommand::Abort),
            MemberFault::Notified => {
                let living: Vec<u32> = (0..self.plan.ranks)
                    .filter(|rank| self.processes[*rank as usize].driver.is_some())
                    .collect();
                living.into_iter().for_each(|other| {
                    self.command(other, BroadcastCommand::Dead { rank: Rank(rank) })
                });
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
        process.sleeps_until = now.0 + process.period;
        let mut events = Vec::new();
        let progress =
            driver.step(self.fabric.wire(Rank(rank as u32)), &mut |event| events.push(event));
        process.wake = progress.next;
        events.into_iter().for_each(|event| self.handle_event(rank as u32, event));
    }

    fn handle_event(&mut self, rank: u32, event: BroadcastEvent) {
        let now = self.fabric.now().0;
        let process = &mut self.processes[rank as usize];
        process.events.push(event);
        match event {
            BroadcastEvent::Announced { length, .. } => self.place(rank, length),
            BroadcastEvent::Received { object, at } => {
                assert_eq!(process.received.len() as u32, object, "in order, once");
                process.received.push(object);
                process.at.insert(object, at);
                self.check(rank, object, at);
                if self.plan.lengths[object as usize] <= SYMBOL {
                    let keep = self.stream.below(self.plan.keep + 1);
                    self.releases.insert((now + keep, rank, object));
                }
            }
            BroadcastEvent::Stable { object, .. } => {
                let is_root = rank == self.plan.root;
                assert_eq!(process.stable.len() as u32, object, "in order, once");
                assert!(
                    is_root || process.received.contains(&object),
                    "{rank} is notified of {object} that it has not"
                );
                process.stable.push(object);
                // A long object's memory was not touched by anything until everybody had it.
                if let Some(at) = process.at.get(&object).copied().filter(|at| {
                    at.region != process.slots.region || at.offset < process.slots.offset
                }) {
                    self.check(rank, object, at);
                    self.spoil(rank, at);
                }
            }
            BroadcastEvent::Aborted { object } => {
                assert_eq!(process.aborted, None);
                assert!(process.stable.len() as u32 <= object);
                process.aborted = Some(object);
            }
            BroadcastEvent::Out => process.out = true,
            BroadcastEvent::Refused { missing } => panic!("{missing}"),
            BroadcastEvent::TryAgain { .. } => panic!("{event:?}"),
            _ => {}
        }
    }

    fn check(&mut self, rank: u32, object: u32, at: Span) {
        let region = self.fabric.wire(Rank(rank)).region(at.region).expect("it is there");
        let bytes = &region[at.range_in(region.len()).expect("within its region")];
        assert_eq!(bytes.len() as u32, self.plan.lengths[object as usize]);
        let wrong = bytes.iter().enumerate().find(|(at, byte)| **byte != content(object, *at));
        assert_eq!(wrong, None, "object {object} at rank {rank}");
    }

    /// Overwrites the memory: it is the application's again, which does what it wants with it.
    fn spoil(&mut self, rank: u32, at: Span) {
        let region = self.fabric.wire(Rank(rank)).region_mut(at.region).expect("it is there");
        let range = at.range_in(region.len()).expect("within its region");
        region[range].fill(0xee);
    }

    /// Checks that every survivor was notified of the same: how many objects are stable, and where
    /// the cast ended.
    pub(super) fn check_outcome(&self) -> (usize, Option<u32>) {
        let all = self.plan.lengths.len() as u32;
        let survivors =
            self.processes.iter().filter(|process| process.driver.is_some() && !process.out);
        let mut outcomes: Vec<_> = survivors
            .map(|process| (process.stable.len(), process.aborted.filter(|end| *end < all)))
            .collect();
        let first = outcomes[0];
        outcomes.dedup();
        assert_eq!(outcomes, [first], "one outcome for all");
        first
    }

    pub(super) fn record(&mut self, rank: u32) -> BroadcastRecord {
        self.processes[rank as usize].driver.as_mut().expect("it lives").engine_mut().record()
    }
}
