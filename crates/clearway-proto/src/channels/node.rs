//! One rank's part in all its teams: gives every input to the team that it is about.
//!
//! # Invariants
//! I1. A message that is damaged, of no team of this rank, or from nobody who is in it changes
//!     nothing.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use super::frame::{
    ChannelAssignment, ChannelsFrame, HoldStatus, Holdings, Version, VersionedAssignment,
};
use super::pool::ChannelPool;
use super::team::{Team, TeamContext};
use super::{CHANNELS_MAX, ChannelsCommand, ChannelsConfig, ChannelsEvent};
use crate::base::{LocalNs, RandomKey, RandomStream, Rank};
use crate::wire::{Arrival, Destination, Engine, Input, More, Out, Span};

/// Disbanded teams that are remembered: more than end in the few silences in which some member may
/// still ask about one.
const GONE_MAX: usize = 1024;

/// The engine by which a rank's teams agree on channels.
#[derive(Debug)]
pub struct ChannelsNode {
    config: ChannelsConfig,
    teams: BTreeMap<u32, Team>,
    /// Teams that are over, the last ones.
    disbanded: VecDeque<u32>,
    pool: ChannelPool,
    dead: BTreeSet<Rank>,
    stream: RandomStream,
    deadline: Option<LocalNs>,
}

impl ChannelsNode {
    /// Creates a rank without teams.
    pub fn new(config: ChannelsConfig) -> Self {
        let key = RandomKey::new(config.seed).purpose("channels").node(u64::from(config.rank.0));
        Self {
            config,
            teams: BTreeMap::new(),
            disbanded: VecDeque::new(),
            pool: ChannelPool::new(config.channels),
            dead: BTreeSet::new(),
            stream: key.stream(),
            deadline: None,
        }
    }

    /// Lets `act` happen to a team, and what follows from it.
    fn with(
        &mut self,
        now: LocalNs,
        key: u32,
        out: &mut Out<ChannelsEvent>,
        act: impl FnOnce(&mut Team, &mut TeamContext<'_>),
    ) -> Option<()> {
        let holdings = self.holdings(key, now, out);
        let Self { config, pool, dead, stream, teams, .. } = self;
        let team = teams.get_mut(&key)?;
        let mut bench =
            TeamContext { config, pool, dead, stream, now, holdings, recall: None, out };
        act(team, &mut bench);
        team.progress(&mut bench);
        let recall = bench.recall;
        if team.is_gone {
            teams.remove(&key);
            self.disbanded.truncate(GONE_MAX - 1);
            self.disbanded.push_front(key);
        }
        self.recall(now, key, recall, out);
        Some(())
    }

    /// Returns what this rank holds for others than `key`.
    fn holdings(&mut self, key: u32, now: LocalNs, out: &mut Out<ChannelsEvent>) -> Holdings {
        let Self { config, pool, dead, stream, teams, .. } = self;
        let mut holdings = Holdings { busy: pool.busy_for(key), ..Holdings::default() };
        let holders: [Option<u32>; CHANNELS_MAX as usize] =
            core::array::from_fn(|channel| pool.holder(channel as u8));
        let bench = TeamContext { config, pool, dead, stream, now, holdings, recall: None, out };
        for (channel, (idle, holder)) in (0..).zip(holdings.idle.iter_mut().zip(holders)) {
            let team = holder.filter(|holder| *holder != key).and_then(|holder| teams.get(&holder));
            *idle = team.map_or(0, |team| team.idle(channel, &bench));
        }
        holdings
    }

    /// Tells the team that holds `channel` that `wanted_by` has need of it.
    fn recall(
        &mut self,
        now: LocalNs,
        wanted_by: u32,
        channel: Option<u8>,
        out: &mut Out<ChannelsEvent>,
    ) {
        if let Some(channel) = channel
            && let Some(holder) = self.pool.holder(channel).filter(|holder| *holder != wanted_by)
        {
            self.with(now, holder, out, |team, bench| team.pass_recall(channel, bench));
        }
    }

    fn command(&mut self, now: LocalNs, command: ChannelsCommand, out: &mut Out<ChannelsEvent>) {
        match command {
            ChannelsCommand::Form { team, members } => {
                let formed = Team::new(team, members, &self.config, now);
                match formed.filter(|_| !self.teams.contains_key(&team)) {
                    Some(formed) => {
                        self.teams.insert(team, formed);
                        self.with(now, team, out, |_, _| {});
                    }
                    None => out.notify(ChannelsEvent::Refused { team }),
                }
            }
            ChannelsCommand::Begin { team } => {
                let _ = self.with(now, team, out, |team, _| team.begin());
            }
            ChannelsCommand::End { team } => drop(self.with(now, team, out, Team::end)),
            ChannelsCommand::Disband { team } => drop(self.with(now, team, out, Team::disband)),
            ChannelsCommand::Dead { rank } => {
                if self.dead.insert(rank) {
                    self.for_all(now, out, |team, bench| team.died(rank, bench));
                }
            }
        }
    }

    fn for_all(
        &mut self,
        now: LocalNs,
        out: &mut Out<ChannelsEvent>,
        mut act: impl FnMut(&mut Team, &mut TeamContext<'_>),
    ) {
        let mut next = self.teams.keys().next().copied();
        while let Some(key) = next {
            self.with(now, key, out, &mut act);
            next = self
                .teams
                .range(key.saturating_add(1)..)
                .next()
                .map(|(key, _)| *key)
                .filter(|after| *after > key);
        }
    }

    fn datagram(&mut self, now: LocalNs, from: Rank, head: &[u8], out: &mut Out<ChannelsEvent>) {
        let Some((key, frame)) = ChannelsFrame::parse(head) else { return };
        let Some(team) = self.teams.get(&key) else { return self.stranger(from, key, &frame, out) };
        let Some(place) = team.place_of(from) else { return };
        if self.dead.contains(&from) {
            return;
        }
        if let ChannelsFrame::Ask { recall, .. } = frame {
            self.recall(now, key, recall, out);
        }
        self.with(now, key, out, |team, bench| {
            team.mark_alive(place, now);
            match frame {
                ChannelsFrame::Ask { .. } | ChannelsFrame::Propose { .. }
                    if team.version.number > 0 =>
                {
                    team.held(
                        place,
                        &HoldStatus { version: Version::default(), asks: true, taken: false },
                        bench,
                    );
                }
                ChannelsFrame::Ask { attempt, .. } => team.asked(place, attempt, bench),
                ChannelsFrame::Have { attempt, holdings } => team.had(place, attempt, &holdings),
                ChannelsFrame::Propose { attempt, channel } => {
                    team.proposed(place, attempt, channel, bench)
                }
                ChannelsFrame::Vote { attempt, vote } => team.voted(place, attempt, vote, bench),
                ChannelsFrame::Stamp(stamp) => team.stamped(place, &stamp, bench),
                ChannelsFrame::Hold(hold) => team.held(place, &hold, bench),
                ChannelsFrame::Gone => team.peer_left(place, bench),
                ChannelsFrame::Recall { channel } => team.recalled(channel, bench),
            }
        });
    }

    /// Answers a rank that speaks of a team that this rank has not formed yet, or that is over
    /// here.
    fn stranger(&self, from: Rank, key: u32, frame: &ChannelsFrame, out: &mut Out<ChannelsEvent>) {
        let answer = match *frame {
            _ if !self.disbanded.contains(&key) => return,
            ChannelsFrame::Hold(_) => ChannelsFrame::Gone,
            ChannelsFrame::Stamp(VersionedAssignment {
                version,
                target: ChannelAssignment::Closed,
                settled: false,
            }) => ChannelsFrame::Hold(HoldStatus { version, asks: false, taken: true }),
            _ => return,
        };
        out.send(
            Destination::One(from),
            self.config.class,
            answer.encode(key).bytes(),
            Span::EMPTY,
            None,
        );
    }
}

impl Engine for ChannelsNode {
    type Command = ChannelsCommand;
    type Event = ChannelsEvent;

    fn input(
        &mut self,
        now: LocalNs,
        input: Input<'_, ChannelsCommand>,
        out: &mut Out<ChannelsEvent>,
    ) -> More {
        match input {
            Input::Command(command) => self.command(now, command, out),
            Input::Arrival(Arrival::Datagram(datagram)) => {
                self.datagram(now, datagram.from, datagram.head, out)
            }
            Input::Tick => self.for_all(now, out, Team::tick),
            _ => return More::No,
        }
        self.deadline = self.teams.values().filter_map(Team::deadline).min();
        More::No
    }

    fn deadline(&self) -> Option<LocalNs> {
        self.deadline
    }
}
