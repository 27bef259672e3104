//! Teams that overlap cast at the same time, each on the channel that it agreed on, and every byte
//! is compared at every receiver.
//!
//! # Model
//! A rank runs the engine of channels and one for each broadcast over one end of the wire
//! in memory, which loses, doubles, delays and damages. A team that agreed on a channel listens
//! there, and its first member casts. When all is over one more team needs a channel, a team that
//! is idle gives its own up, and both cast, at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use clearway_proto::base::{Bytes, Class, GroupId, LocalNs, Nanos, Rank};
use clearway_proto::broadcast::{self, Algorithm, BroadcastConfig, Member, SlowReceivers};
use clearway_proto::channels::{self, Channel};
use clearway_proto::wire::memory::{FaultInjection, MemoryConfig, MemoryFabric};
use clearway_proto::wire::{Driver, EngineMux, MuxCommand, MuxEvent, RegionId, Span, Wire};

const FIRST: GroupId = GroupId(10);
const IDLE: Nanos = Nanos::from_millis(5);
const SILENCE: Nanos = Nanos::from_millis(200);
const SYMBOL: u32 = 100;
const SLOTS: u64 = 32;
/// Bytes of the objects of every broadcast.
const OBJECTS: [u32; 5] = [40, 30_000, 100, 1, 7_000];
/// Memory of a rank for one broadcast.
const ROOM: u64 = 40_000 + SLOTS * SYMBOL as u64;
/// Broadcasts that a rank has memory for.
const CASTS: u64 = 16;

type Engines = EngineMux<channels::ChannelsNode, broadcast::BroadcastNode>;

/// A broadcast at one of its members.
struct MemberBroadcast {
    number: usize,
    key: u32,
    team: u32,
    start: u64,
    placed: u64,
    received: u32,
    stable: u32,
}

/// One rank's application.
struct TeamsProcess {
    driver: Driver<Engines>,
    wake: Option<LocalNs>,
    region: RegionId,
    has: BTreeMap<u32, Channel>,
    casts: Vec<MemberBroadcast>,
}

struct TeamsWorld {
    fabric: MemoryFabric,
    teams: Vec<Vec<u32>>,
    processes: Vec<TeamsProcess>,
    /// Objects that came whole, by broadcast, rank and number.
    compared: BTreeSet<(u32, u32, u32)>,
    /// Broadcasts under way, and the most there were at once.
    open: BTreeSet<u32>,
    most: usize,
}

fn content(key: u32, object: u32, at: usize) -> u8 {
    (key as usize * 89 + object as usize * 131 + at * 7 + at / 251) as u8
}

impl TeamsWorld {
    fn new(ranks: u32, channels: u8, teams: &[&[u32]]) -> Self {
        let fault_injection = FaultInjection { doubled: 10_000, late: 10_000, damaged: 10_000 };
        let config = MemoryConfig {
            loss_per_million: 10_000,
            fault_injection,
            seed: 5,
            ..MemoryConfig::lossless(ranks)
        };
        let mut fabric = MemoryFabric::new(config);
        let process = |rank| {
            let region = fabric
                .wire(Rank(rank))
                .register(Bytes(CASTS * ROOM))
                .expect("a fresh end has room");
            fabric.wire(Rank(rank)).join(Channel::Shared.group(FIRST)).expect("there are groups");
            let config = channels::ChannelsConfig {
                rank: Rank(rank),
                channels,
                silence: SILENCE,
                idle: IDLE,
                retry: Nanos::from_micros(100),
                seed: 3,
                class: Class::Control,
            };
            let driver =
                Driver::boot(EngineMux::new(channels::ChannelsNode::new(config)), LocalNs(0), 0);
            TeamsProcess {
                driver,
                wake: Some(LocalNs(0)),
                region,
                has: BTreeMap::new(),
                casts: Vec::new(),
            }
        };
        let processes = (0..ranks).map(process).collect();
        let teams = teams.iter().map(|members| members.to_vec()).collect();
        Self { fabric, teams, processes, compared: BTreeSet::new(), open: BTreeSet::new(), most: 0 }
    }

    fn ask(
        &mut self,
        rank: u32,
        ask: MuxCommand<channels::ChannelsCommand, broadcast::BroadcastNode>,
    ) {
        let now = self.fabric.now();
        let process = &mut self.processes[rank as usize];
        process.driver.command(now, ask);
        process.wake = Some(now);
    }

    fn form(&mut self, team: u32) {
        let members: Arc<[Rank]> =
            self.teams[team as usize].iter().map(|rank| Rank(*rank)).collect();
        for rank in self.teams[team as usize].clone() {
            self.ask(
                rank,
                MuxCommand::One(channels::ChannelsCommand::Form { team, members: members.clone() }),
            );
        }
    }

    /// What all members of `team` received, if all received the same.
    fn has(&self, team: u32) -> Option<Channel> {
        let mut has: Vec<_> = self.teams[team as usize]
            .iter()
            .map(|rank| self.processes[*rank as usize].has.get(&team))
            .collect();
        has.dedup();
        if let [Some(channel)] = has[..] { Some(*channel) } else { None }
    }

    /// The first member of `team` casts all objects, on the channel that the team has.
    fn cast(&mut self, team: u32, key: u32) {
        let channel = self.has(team).expect("all members received it");
        let ranks = self.teams[team as usize].clone();
        let members: Arc<[Member]> =
            ranks.iter().map(|rank| Member { rank: Rank(*rank), leaf: 0 }).collect();
        self.open.insert(key);
        self.most = self.most.max(self.open.len());
        for rank in &ranks {
            let process = &mut self.processes[*rank as usize];
            let (number, region) = (process.casts.len(), process.region);
            let start = number as u64 * ROOM;
            process.casts.push(MemberBroadcast {
                number,
                key,
                team,
                start,
                placed: start,
                received: 0,
                stable: 0,
            });
            let node = broadcast::BroadcastNode::new(BroadcastConfig {
                rank: Rank(*rank),
                members: members.clone(),
                root: Rank(ranks[0]),
                group: Some(channel.group(FIRST)),
                key,
                symbol: SYMBOL,
                window: 256,
                history: 256,
                slots: Span {
                    region,
                    offset: start + ROOM - SLOTS * u64::from(SYMBOL),
                    length: SLOTS as u32 * SYMBOL,
                },
                rate: None,
                first_rate: None,
                sync_every: 4,
                silence: SILENCE,
                slow_receivers: SlowReceivers::Wait,
                algorithm: Algorithm::Multicast,
                class: Class::Bulk,
                control: Class::Control,
            });
            self.ask(*rank, MuxCommand::One(channels::ChannelsCommand::Begin { team }));
            self.ask(*rank, MuxCommand::Add(node));
        }
        self.cast_objects(ranks[0], key);
    }

    fn cast_objects(&mut self, root: u32, key: u32) {
        let process = &self.processes[root as usize];
        let cast = process.casts.last().expect("it was just added");
        let (number, region, mut offset) = (cast.number, process.region, cast.start);
        for (object, length) in (0..).zip(OBJECTS) {
            let from = Span { region, offset, length };
            let memory =
                self.fabric.wire(Rank(root)).region_mut(region).expect("it was registered");
            let range = from.range_in(memory.len()).expect("within its region");
            memory[range]
                .iter_mut()
                .enumerate()
                .for_each(|(at, byte)| *byte = content(key, object, at));
            self.ask(root, MuxCommand::Of(number, broadcast::BroadcastCommand::Cast { from }));
            offset += u64::from(length);
        }
        self.ask(root, MuxCommand::Of(number, broadcast::BroadcastCommand::Flush));
    }

    /// Runs until `is_over`.
    fn run(&mut self, is_over: impl Fn(&Self) -> bool) {
        while !is_over(self) {
            assert!(self.fabric.now() < LocalNs(60_000_000_000), "it never ends");
            let wakes = self.processes.iter().filter_map(|process| process.wake);
            let next = wakes.chain(self.fabric.next_arrival()).min();
            let now = self.fabric.now() + Nanos(100);
            self.fabric.advance(next.map_or(now + Nanos(100_000), |next| next.max(now)));
            (0..self.processes.len() as u32).for_each(|rank| self.step(rank));
        }
    }

    fn step(&mut self, rank: u32) {
        let process = &mut self.processes[rank as usize];
        let mut reported = Vec::new();
        process.wake = process
            .driver
            .step(self.fabric.wire(Rank(rank)), &mut |event| reported.push(event))
            .next;
        for event in reported {
            match event {
                MuxEvent::One(event) => self.hear_of_channel(rank, event),
                MuxEvent::Of(number, event) => self.hear_of_cast(rank, number, event),
            }
        }
    }

    fn hear_of_channel(&mut self, rank: u32, event: channels::ChannelsEvent) {
        match event {
            channels::ChannelsEvent::Join { channel, .. } => {
                let group = Channel::Own(channel).group(FIRST);
                self.fabric.wire(Rank(rank)).join(group).expect("there are groups");
            }
            channels::ChannelsEvent::Agreed { team, channel } => {
                self.processes[rank as usize].has.insert(team, channel);
            }
            other => panic!("{other:?}"),
        }
    }

    fn hear_of_cast(&mut self, rank: u32, number: usize, event: broadcast::BroadcastEvent) {
        let process = &mut self.processes[rank as usize];
        let region = process.region;
        let cast = &mut process.casts[number];
        match event {
            broadcast::BroadcastEvent::Announced { length, .. } => {
                let into = Span { region, offset: cast.placed, length: length as u32 };
                cast.placed += length;
                self.ask(rank, MuxCommand::Of(number, broadcast::BroadcastCommand::Place { into }));
            }
            broadcast::BroadcastEvent::Received { object, at } => {
                assert_eq!(cast.received, object, "in order, once");
                cast.received += 1;
                let key = cast.key;
                let region = self.fabric.wire(Rank(rank)).region(at.region).expect("it is there");
                let bytes = &region[at.range_in(region.len()).expect("within its region")];
                assert_eq!(bytes.len() as u32, OBJECTS[object as usize]);
                let is_right = (0..).zip(bytes).all(|(at, byte)| *byte == content(key, object, at));
                assert!(
                    is_right && self.compared.insert((key, rank, object)),
                    "object {object} of {key} at {rank}"
                );
                self.ask(
                    rank,
                    MuxCommand::Of(number, broadcast::BroadcastCommand::Release { object }),
                );
            }
            broadcast::BroadcastEvent::Stable { object, missing } => {
                assert_eq!((cast.stable, missing), (object, 0));
                cast.stable += 1;
                if cast.stable == OBJECTS.len() as u32 {
                    let (team, key) = (cast.team, cast.key);
                    self.open.remove(&key);
                    self.ask(rank, MuxCommand::One(channels::ChannelsCommand::End { team }));
                }
            }
            broadcast::BroadcastEvent::Ready | broadcast::BroadcastEvent::Switched { .. } => {}
            other => panic!("{other:?}"),
        }
    }

    /// Whether all members of all teams that cast know that all have everything.
    fn all_stable(&self) -> bool {
        let all = OBJECTS.len() as u32;
        self.processes.iter().flat_map(|process| &process.casts).all(|cast| cast.stable == all)
    }
}

#[test]
fn teams__that_overlap_cast_at_the_same_time_and_one_that_gave_its_channel_up_goes_on() {
    let teams: [&[u32]; 5] = [&[0, 1, 2, 3], &[3, 4, 5, 0], &[2, 5, 1], &[4, 0, 2], &[5, 3, 1, 2]];
    let mut world = TeamsWorld::new(6, 3, &teams);
    (0..4).for_each(|team| world.form(team));
    world.run(|world| (0..4).all(|team| world.has(team).is_some()));
    let had: Vec<_> = (0..4).filter_map(|team| world.has(team)).collect();
    let own = had.iter().filter(|channel| matches!(channel, Channel::Own(_))).count();
    assert_eq!(own, 3, "each team meets each, and one of four has no channel of its own: {had:?}");
    for team in 0..4 {
        world.cast(team, team);
    }
    world.run(TeamsWorld::all_stable);
    assert_eq!(world.most, 4, "at the same time");
    let receivers: usize = teams[..4].iter().map(|members| members.len() - 1).sum();
    assert_eq!(world.compared.len(), receivers * OBJECTS.len());

    // All channels are idle now, and the fifth team meets all others.
    let rested = world.fabric.now() + IDLE;
    world.run(|world| world.fabric.now() > rested);
    world.form(4);
    world.run(|world| world.has(4).is_some());
    assert!(matches!(world.has(4), Some(Channel::Own(_))), "{:?}", world.has(4));
    world.run(|world| (0..4).all(|team| world.has(team).is_some()));
    let moved: Vec<u32> =
        (0..4).filter(|team| world.has(*team) != had.get(*team as usize).copied()).collect();
    let [moved] = moved[..] else { panic!("one team gave its channel up: {moved:?}") };
    assert_eq!(world.has(moved), Some(Channel::Shared));
    for (team, key) in [(4, 10), (moved, 11)] {
        world.cast(team, key);
    }
    world.run(TeamsWorld::all_stable);
    let again = teams[4].len() - 1 + teams[moved as usize].len() - 1;
    assert_eq!(world.compared.len(), (receivers + again) * OBJECTS.len());
}
