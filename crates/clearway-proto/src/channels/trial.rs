//! Teams of small applications on the wire in memory, and what must hold at every instant: what
//! every test of this engine runs.

use alloc::sync::Arc;
use alloc::vec::Vec;
use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::base::{Class, LocalNs, Nanos, Rank};
use crate::wire::Driver;
use crate::wire::memory::{FaultInjection, MemoryConfig, MemoryFabric};

pub(super) const SILENCE: u64 = 20_000_000;
pub(super) const IDLE: u64 = 2_000_000;

/// What happens at a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChannelsAction {
    Form(u32),
    Begin(u32),
    End(u32),
    Disband(u32),
    /// It never runs again.
    Kill,
    /// It does not run for so long.
    Pause(u64),
    /// Those who live are notified that it died.
    Notified,
}

/// What a trial is of.
#[derive(Clone, Debug)]
pub(super) struct ChannelsPlan {
    pub(super) ranks: u32,
    pub(super) channels: u8,
    /// The members of each team, by its number.
    pub(super) teams: Vec<Vec<u32>>,
    pub(super) loss: u32,
    pub(super) fault_injection: FaultInjection,
    pub(super) seed: u64,
}

impl ChannelsPlan {
    pub(super) fn new(ranks: u32, channels: u8, teams: &[&[u32]]) -> Self {
        let teams = teams.iter().map(|members| members.to_vec()).collect();
        Self {
            ranks,
            channels,
            teams,
            loss: 0,
            fault_injection: FaultInjection::default(),
            seed: 0,
        }
    }
}

/// One rank's application.
pub(super) struct ChannelsProcess {
    pub(super) driver: Option<Driver<ChannelsNode>>,
    sleeps_until: u64,
    postponed: Vec<ChannelsAction>,
    wake: Option<LocalNs>,
    formed: BTreeSet<u32>,
    /// Where each team casts, as it was notified last.
    pub(super) has: BTreeMap<u32, Channel>,
    /// Channels of broadcasts that have begun and are not over.
    uses: BTreeMap<u32, Channel>,
    /// Teams that its application does not need any more, and those that are over.
    left: BTreeSet<u32>,
    pub(super) over: BTreeSet<u32>,
    pub(super) events: Vec<ChannelsEvent>,
}

pub(super) struct ChannelsTrial {
    pub(super) plan: ChannelsPlan,
    pub(super) fabric: MemoryFabric,
    pub(super) processes: Vec<ChannelsProcess>,
    pub(super) acts: BTreeMap<u64, Vec<(u32, ChannelsAction)>>,
}

impl ChannelsTrial {
    pub(super) fn new(plan: ChannelsPlan) -> Self {
        let config = MemoryConfig {
            loss_per_million: plan.loss,
            fault_injection: plan.fault_injection,
            seed: plan.seed,
            ..MemoryConfig::lossless(plan.ranks)
        };
        let process = |rank| {
            let node = ChannelsNode::new(ChannelsConfig {
                rank: Rank(rank),
                channels: plan.channels,
                silence: Nanos(SILENCE),
                idle: Nanos(IDLE),
                retry: Nanos::from_micros(100),
                seed: plan.seed,
                class: Class::Control,
            });
            ChannelsProcess {
                driver: Some(Driver::boot(node, LocalNs(0), 0)),
                sleeps_until: 0,
                postponed: Vec::new(),
                wake: None,
                formed: BTreeSet::new(),
                has: BTreeMap::new(),
                uses: BTreeMap::new(),
                left: BTreeSet::new(),
                over: BTreeSet::new(),
                events: Vec::new(),
            }
        };
        let processes = (0..plan.ranks).map(process).collect();
        Self { fabric: MemoryFabric::new(config), processes, acts: BTreeMap::new(), plan }
    }

    pub(super) fn put(&mut self, at: u64, rank: u32, act: ChannelsAction) {
        self.acts.entry(at).or_default().push((rank, act));
    }

    /// Does the same at all members of a team at once.
    pub(super) fn put_all(&mut self, at: u64, team: u32, act: ChannelsAction) {
        for rank in self.plan.teams[team as usize].clone() {
            self.put(at, rank, act);
        }
    }

    /// Runs until nothing is left to do.
    pub(super) fn run(&mut self) {
        while !self.is_over() {
            assert!(self.fabric.now() < LocalNs(60_000_000_000), "it never ends");
            self.turn();
        }
        self.check_end();
    }

    /// Runs until `at`, whatever is left then.
    pub(super) fn run_until(&mut self, at: u64) {
        while self.fabric.now() < LocalNs(at) {
            self.turn();
        }
    }

    fn is_over(&mut self) -> bool {
        let rests = |process: &ChannelsProcess| process.driver.is_none() || process.wake.is_none();
        self.acts.is_empty()
            && self.fabric.next_arrival().is_none()
            && self.processes.iter().all(rests)
    }

    fn turn(&mut self) {
        let wakes = self.processes.iter().filter_map(|process| process.wake);
        let acts = self.acts.keys().next().map(|at| LocalNs(*at));
        let next = wakes.chain(acts).chain(self.fabric.next_arrival()).min();
        let now = self.fabric.now() + Nanos(100);
        self.fabric.advance(next.map_or(now + Nanos(100_000), |next| next.max(now)));
        let now = self.fabric.now();
        (0..self.processes.len()).for_each(|rank| self.step(rank));
        for rank in 0..self.plan.ranks {
            if self.processes[rank as usize].sleeps_until <= now.0 {
                let postponed = core::mem::take(&mut self.processes[rank as usize].postponed);
                postponed.into_iter().for_each(|act| self.act(rank, act));
            }
        }
        while let Some(entry) = self.acts.first_entry().filter(|entry| *entry.key() <= now.0) {
            entry.remove().into_iter().for_each(|(rank, act)| self.act(rank, act));
        }
        self.check();
    }

    fn act(&mut self, rank: u32, act: ChannelsAction) {
        let now = self.fabric.now();
        let process = &mut self.processes[rank as usize];
        // An application that does not run asks for nothing.
        if process.sleeps_until > now.0
            && !matches!(
                act,
                ChannelsAction::Kill | ChannelsAction::Pause(_) | ChannelsAction::Notified
            )
        {
            return process.postponed.push(act);
        }
        let command = match act {
            ChannelsAction::Kill => {
                process.driver = None;
                return;
            }
            ChannelsAction::Pause(length) => {
                process.sleeps_until = process.sleeps_until.max(now.0 + length);
                process.wake = Some(LocalNs(process.sleeps_until));
                return;
            }
            ChannelsAction::Notified => {
                let dead = ChannelsCommand::Dead { rank: Rank(rank) };
                (0..self.plan.ranks).for_each(|other| self.command(other, dead.clone()));
                return;
            }
            ChannelsAction::Form(team) => {
                process.formed.insert(team);
                let members: Arc<[Rank]> =
                    self.plan.teams[team as usize].iter().map(|rank| Rank(*rank)).collect();
                ChannelsCommand::Form { team, members }
            }
            ChannelsAction::Begin(team) => {
                let Some(channel) =
                    process.has.get(&team).filter(|_| !process.left.contains(&team))
                else {
                    return;
                };
                process.uses.insert(team, *channel);
                ChannelsCommand::Begin { team }
            }
            ChannelsAction::End(team) => {
                process.uses.remove(&team);
                ChannelsCommand::End { team }
            }
            ChannelsAction::Disband(team) => {
                process.uses.remove(&team);
                process.left.insert(team);
                ChannelsCommand::Disband { team }
            }
        };
        self.command(rank, command);
        // It hears all events before it asks for the next.
        self.step(rank as usize);
    }

    fn command(&mut self, rank: u32, command: ChannelsCommand) {
        let now = self.fabric.now();
        let process = &mut self.processes[rank as usize];
        if let Some(driver) = &mut process.driver {
            driver.command(now, command);
            process.wake = Some(now);
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
        let mut events = Vec::new();
        process.wake =
            driver.step(self.fabric.wire(Rank(rank as u32)), &mut |event| events.push(event)).next;
        for event in events {
            match event {
                // It was notified before it asked, and has not looked.
                ChannelsEvent::Agreed { team, .. } if process.left.contains(&team) => {}
                ChannelsEvent::Agreed { team, channel } => {
                    assert!(process.formed.contains(&team), "{event:?}");
                    assert_ne!(process.has.insert(team, channel), Some(channel), "reported twice");
                }
                ChannelsEvent::Disbanded { team } => {
                    assert!(process.left.contains(&team) && process.over.insert(team), "{event:?}");
                }
                ChannelsEvent::Join { .. } => {}
                ChannelsEvent::Refused { team } => panic!("team {team} is refused"),
            }
            process.events.push(event);
        }
    }

    /// Channels of its own on which a living member casts or may begin to, by team.
    fn in_use(&self, team: u32) -> BTreeSet<u8> {
        let living =
            self.plan.teams[team as usize].iter().map(|rank| &self.processes[*rank as usize]);
        let used = living.filter(|process| process.driver.is_some()).flat_map(|process| {
            let has = process.has.get(&team).filter(|_| !process.left.contains(&team));
            has.into_iter().chain(process.uses.get(&team))
        });
        used.filter_map(
            |channel| if let Channel::Own(number) = channel { Some(*number) } else { None },
        )
        .collect()
    }

    /// Checks that no two teams with a living member in common have one channel.
    fn check(&self) {
        let lives = |rank: &u32| self.processes[*rank as usize].driver.is_some();
        let used: Vec<_> =
            (0..self.plan.teams.len() as u32).map(|team| self.in_use(team)).collect();
        for (a, of_a) in self.plan.teams.iter().enumerate() {
            for (b, of_b) in self.plan.teams.iter().enumerate().skip(a + 1) {
                let meet = of_a.iter().any(|rank| lives(rank) && of_b.contains(rank));
                let both: Vec<_> = used[a].intersection(&used[b]).collect();
                assert!(!meet || both.is_empty(), "teams {a} and {b} meet on {both:?}");
            }
        }
        assert!(
            used.iter().flatten().all(|channel| *channel < self.plan.channels),
            "there is no such channel"
        );
    }

    /// Checks that every agreement has ended, and with the same for all who live.
    fn check_end(&self) {
        for (team, members) in (0..).zip(&self.plan.teams) {
            let living = members.iter().map(|rank| &self.processes[*rank as usize]);
            let living: Vec<_> = living
                .filter(|process| process.driver.is_some() && process.formed.contains(&team))
                .collect();
            let stays = living.iter().filter(|process| !process.left.contains(&team));
            let mut has: Vec<_> = stays.map(|process| process.has.get(&team)).collect();
            has.dedup();
            assert!(has.len() < 2 && has.first() != Some(&None), "team {team} has {has:?}");
            let left = living.iter().filter(|process| process.left.contains(&team)).count();
            let over = living.iter().filter(|process| process.over.contains(&team)).count();
            assert_eq!(
                over,
                if left == living.len() { left } else { 0 },
                "team {team} is over for some"
            );
        }
    }

    /// Returns the channel that the first living member of `team` was last notified of.
    pub(super) fn has(&self, team: u32) -> Option<Channel> {
        let living =
            self.plan.teams[team as usize].iter().map(|rank| &self.processes[*rank as usize]);
        living
            .filter(|process| process.driver.is_some())
            .find_map(|process| process.has.get(&team).copied())
    }
}
