//! Broadcasts on a simulated fabric, for as many ranks as one likes: time, what the links carry,
//! and what neighbours feel.
//!
//! # Model
//! Ranks lie on hosts in the order of the fabric, the root first; some hosts in between belong to
//! neighbours who ask each other for eight bytes all the time. Each way, length and loss is a run
//! of its own. Memory is extents in place of bytes: which byte of the root lies where is known and
//! compared, as digests, and no byte is kept. Packets are lost on the last cable to each rank,
//! singly.
//!
//! # Not here
//! Faults other than loss: `tests/fabrics/broadcast.rs`.

mod host_engine;
mod page;

use std::collections::VecDeque;
use std::sync::Arc;

use anyhow::{Result, bail};
use clearway_proto::base::{BitsPerSec, Bytes, Class, GroupId, Nanos, RandomKey, Rank};
use clearway_proto::broadcast::{
    Algorithm, BroadcastCommand, BroadcastConfig, BroadcastEvent, BroadcastNode, BroadcastRecord,
    Member, MulticastReach, NetworkConditions, SlowReceivers,
};
use clearway_proto::wire::{Span, Wire};
use clearway_sim::Picos;
use clearway_sim::fabric::{
    Fabric, FabricFault, FabricFaultKind, FabricOptions, FaultOdds, PacketFault, PacketSort,
};
use clearway_sim::graph::{ChannelId, DeviceId};
use clearway_sim::spec::file::{FabricFile, FileOptions};
use clearway_sim::wire::{ContentModel, SimWire};
use clearway_sim::world::{World, WorldEvent};

use super::plan::{BroadcastPlan, CastMode, Millionths};
use crate::run::reached;
use crate::run::venue::SimMachine;
use host_engine::{HostEngine, PingPong};
pub(super) use page::{FABRIC, RANKS};
pub(crate) use page::{explained, figures, on_machine, table};

const GROUP: GroupId = GroupId(1);
/// Symbols under way: 4 MiB of 4 KiB packets, many round trips at 100 Gb/s.
const WINDOW: u32 = 1024;
/// Short messages that find a slot.
const SLOTS: u32 = 64;
/// What a symbol's header needs of a packet, and to a multiple of which a symbol is cut: a cache
/// line.
const HEAD: u64 = 64;
/// Neighbours: one for this many ranks, and how many at most.
const RANKS_PER_NEIGHBOUR: u32 = 8;
const NEIGHBOURS_MAX: u32 = 32;
/// How long neighbours ask while nothing is cast.
const ALONE: Picos = Picos::from_micros(400);
/// How often the world is looked at.
const LOOK: Picos = Picos::from_micros(5);
/// Simulated time after which a cast that is not over never will be.
const LIMIT: Picos = Picos::from_micros(60_000_000);

/// A fabric, and the ranks and neighbours on it.
pub(crate) struct BroadcastTestBed {
    /// Members first, then neighbours.
    machine: SimMachine,
    ranks: u32,
}

/// What one run showed.
#[derive(Clone, Debug)]
pub(crate) struct SimulatedResult {
    pub(super) mode: CastMode,
    pub(super) way: Algorithm,
    pub(super) length: Bytes,
    pub(super) loss: Millionths,
    /// From each order to cast until the last receiver has the object, and until the root knows
    /// that.
    pub(super) received: Vec<Nanos>,
    pub(super) known: Vec<Nanos>,
    /// Counted meanwhile, of the root and of all.
    pub(super) root: BroadcastRecord,
    pub(super) all: BroadcastRecord,
    /// Bytes that left hosts, that reached them, and between switches, headers included.
    pub(super) links: [u64; 3],
    /// Round trips of neighbours before and during.
    pub(super) alone: Vec<Nanos>,
    pub(super) loaded: Vec<Nanos>,
}

impl BroadcastTestBed {
    /// Opens `ranks` of the fabric `name` under `policy`; packets carry `packet` bytes in place of
    /// what its file says.
    pub(crate) fn open(
        name: &str,
        policy: Option<&str>,
        ranks: u32,
        packet: Option<Bytes>,
    ) -> Result<Self> {
        let neighbours = ((ranks / RANKS_PER_NEIGHBOUR).clamp(2, NEIGHBOURS_MAX)) & !1;
        let wanted = FileOptions { policy, hosts: Some(ranks + neighbours) };
        let mut spec = FabricFile::open(name, wanted)?.spec;
        if let Some(payload) = packet {
            // Buffers that hold a few packets keep a cable busy, whatever the grain.
            let few = Bytes(4 * (payload.0 + spec.packet.header.0));
            spec.packet.payload = payload;
            spec.links.iter_mut().for_each(|link| link.buffer = link.buffer.max(few));
        }
        if spec.packet.payload.0 <= 2 * HEAD {
            bail!(
                "packets of {} have no room for a symbol; more than {}B work",
                spec.packet.payload,
                2 * HEAD
            );
        }
        let every = (ranks + neighbours) / neighbours;
        let is_neighbour = |host: &u32| host % every == every - 1 && host / every < neighbours;
        let (between, members): (Vec<u32>, Vec<u32>) =
            (0..ranks + neighbours).partition(is_neighbour);
        let hosts = members.into_iter().chain(between).map(DeviceId).collect();
        Ok(Self { machine: SimMachine::build(spec, hosts)?, ranks })
    }

    /// Returns the name of the fabric.
    pub(crate) fn name(&self) -> &str {
        &self.machine.spec.name
    }

    /// Returns the rate of a host's link.
    pub(crate) fn rate(&self) -> BitsPerSec {
        self.machine.host_rate()
    }

    /// Returns the switch at which `host` hangs.
    fn leaf(&self, host: DeviceId) -> u32 {
        let graph = &self.machine.network.graph;
        graph.channel(ChannelId(graph.ports(host).start)).to.0
    }

    fn symbol(&self) -> u32 {
        // What one datagram of the engine can say of its length.
        let most = (self.machine.spec.packet.payload.0 - HEAD).min(u64::from(u16::MAX));
        (most / HEAD * HEAD) as u32
    }

    /// Returns the time from one rank's program to another's over an idle network, roughly: its
    /// hosts' part and one switch.
    fn latency(&self) -> Nanos {
        let host = &self.machine.spec.host;
        let all = host.transmit_delay
            + host.receive_delay
            + host.input_cost
            + host.effect_cost
            + self.machine.spec.switch.delay;
        all.nanos()
    }

    /// Returns how many links between switches separate messages to all receivers cross together,
    /// on shortest ways.
    pub(super) fn unicast_crossings(&self) -> u64 {
        let graph = &self.machine.network.graph;
        let mut distance = vec![None; graph.devices() as usize];
        let mut next = VecDeque::new();
        let Some(root) = self.machine.hosts.first().map(|host| DeviceId(self.leaf(*host))) else {
            return 0;
        };
        distance[root.0 as usize] = Some(0);
        next.push_back(root);
        while let Some(at) = next.pop_front() {
            for port in graph.ports(at) {
                let to = graph.channel(ChannelId(port)).to;
                if distance[to.0 as usize].is_none() && !graph.is_host(to) {
                    distance[to.0 as usize] = distance[at.0 as usize].map(|hops: u64| hops + 1);
                    next.push_back(to);
                }
            }
        }
        let receivers = self.machine.hosts.iter().take(self.ranks as usize).skip(1);
        receivers.filter_map(|host| distance[self.leaf(*host) as usize]).sum()
    }

    /// Runs every way, length and loss of `plan`.
    pub(crate) fn run(&self, plan: &BroadcastPlan) -> Result<Vec<SimulatedResult>> {
        let mut outcomes = Vec::new();
        let work = |length: Bytes| {
            length.0.max(u64::from(self.symbol())) * u64::from(self.objects(plan, length))
        };
        let casts = |length| (plan.modes_of(length).len() * plan.losses.len()) as u64;
        let all: u64 = plan.lengths.iter().map(|it| work(*it) * casts(*it)).sum();
        let mut done = 0;
        for length in &plan.lengths {
            for mode in plan.modes_of(*length) {
                for loss in &plan.losses {
                    outcomes.push(self.cast(plan, *mode, *length, *loss)?);
                    done += work(*length);
                    reached(done, all);
                }
            }
        }
        Ok(outcomes)
    }

    /// Returns what ways cost here.
    pub(super) fn circumstances(&self, length: Bytes, loss: Millionths) -> NetworkConditions {
        NetworkConditions {
            receivers: self.ranks.saturating_sub(1),
            length,
            symbol: Bytes(u64::from(self.symbol())),
            rate: self.rate(),
            latency: self.latency(),
            lost: loss.0,
        }
    }

    fn carrier(&self, loss: Millionths, key: RandomKey) -> Fabric {
        let mut carrier = self.machine.carrier(key, FabricOptions::default());
        let graph = &self.machine.network.graph;
        let lost = self.machine.hosts.iter().take(self.ranks as usize).filter(|_| loss.0 > 0).map(
            |host| {
                let channel = graph.channel(ChannelId(graph.ports(*host).start)).reverse;
                let odds = FaultOdds::Each(loss.0);
                let what = FabricFaultKind::Packets {
                    channel,
                    harm: PacketFault::Lost,
                    odds,
                    level: None,
                    sort: PacketSort::Any,
                };
                FabricFault { at: Picos::ZERO, until: LIMIT + LIMIT, what, plan: host.0 }
            },
        );
        carrier.afflict(lost.collect(), key.purpose("loss"));
        carrier
    }

    /// Returns how many objects of `length` are cast.
    fn objects(&self, plan: &BroadcastPlan, length: Bytes) -> u32 {
        let usual = if length.0 <= u64::from(self.symbol()) { 16 } else { 1 };
        plan.objects.unwrap_or(usual)
    }

    fn cast(
        &self,
        plan: &BroadcastPlan,
        mode: CastMode,
        length: Bytes,
        loss: Millionths,
    ) -> Result<SimulatedResult> {
        let key = RandomKey::new(plan.seed);
        let way = mode.way(&self.circumstances(length, loss), MulticastReach::All);
        let members: Arc<[Member]> = (0..)
            .zip(&self.machine.hosts[..self.ranks as usize])
            .map(|(rank, host)| Member { rank: Rank(rank), leaf: self.leaf(*host) })
            .collect();
        let mut from = Span::EMPTY;
        let world =
            self.machine.world(self.carrier(loss, key), ContentModel::Phantom, key, |wire| {
                self.actor(wire, plan, way, length, &members, &mut from)
            });
        let mut run = SimulatedCast { test_bed: self, world, from, length };
        run.warm_up()?;
        let alone = run.trips();
        let (before, root_before, links) = (run.record(), run.root(), run.links());
        let (mut received, mut known) = (Vec::new(), Vec::new());
        for object in 0..self.objects(plan, length) {
            let times = run.object(object)?;
            received.push(times.0);
            known.push(times.1);
        }
        let (all, root) = (since(run.record(), before), since(run.root(), root_before));
        let links = run.links().iter().zip(links).map(|(now, then)| now - then).collect::<Vec<_>>();
        let links = [links[0], links[1], links[2]];
        let loaded = run.trips();
        Ok(SimulatedResult {
            mode,
            way,
            length,
            loss,
            received,
            known,
            root,
            all,
            links,
            alone,
            loaded,
        })
    }

    fn actor(
        &self,
        wire: &mut SimWire,
        plan: &BroadcastPlan,
        way: Algorithm,
        length: Bytes,
        members: &Arc<[Member]>,
        from: &mut Span,
    ) -> HostEngine {
        let rank = wire.rank();
        if let Some(place) = rank.0.checked_sub(self.ranks) {
            // The first half asks the second, which hangs far from it.
            let half = (self.machine.hosts.len() as u32 - self.ranks) / 2;
            let partner = |place| Rank(self.ranks + place);
            return HostEngine::Neighbour(match place < half {
                true => PingPong::asking(partner(place + half)),
                false => PingPong::answering(partner(place - half)),
            });
        }
        let slots = u64::from(SLOTS * self.symbol());
        let region =
            wire.register(Bytes(length.0 + slots)).expect("a fresh end has room for a region");
        let leaf = members.get(rank.index()).map_or(0, |member| member.leaf);
        let group = match way {
            Algorithm::Multicast => Some(GROUP),
            // Each leaf has its own, behind that of all.
            Algorithm::Segments => {
                Some(GroupId(u16::try_from(leaf).unwrap_or(u16::MAX).max(GROUP.0 + 1)))
            }
            Algorithm::Chain | Algorithm::Tree => None,
        };
        if let Some(group) = group {
            wire.join(group).expect("there are groups");
        }
        if rank == Rank(0) {
            *from = Span { region, offset: 0, length: length.0 as u32 };
        }
        HostEngine::Member(Box::new(BroadcastNode::new(BroadcastConfig {
            rank,
            members: members.clone(),
            root: Rank(0),
            group,
            key: 1,
            symbol: self.symbol(),
            window: WINDOW,
            history: WINDOW * 2,
            slots: Span { region, offset: length.0, length: slots as u32 },
            rate: Some(plan.rate.unwrap_or(self.rate())),
            first_rate: None,
            sync_every: 16,
            silence: plan.silence,
            slow_receivers: SlowReceivers::Wait,
            algorithm: way,
            class: Class::Bulk,
            control: Class::Control,
        })))
    }
}

/// One cast under way.
struct SimulatedCast<'a> {
    test_bed: &'a BroadcastTestBed,
    world: World<HostEngine, Fabric>,
    from: Span,
    length: Bytes,
}

impl SimulatedCast<'_> {
    /// Runs until the root has heard everybody, and neighbours have asked for a while.
    fn warm_up(&mut self) -> Result<()> {
        let mut ready = None;
        let enough = |now: Picos, ready: Option<Picos>| ready.is_some_and(|at| now >= at + ALONE);
        while !enough(self.world.now(), ready) {
            let until = self.world.now() + LOOK;
            let mut refused = None;
            self.world.run_until(until, &mut |reported: WorldEvent<'_, HostEngine>| match reported
                .event
            {
                BroadcastEvent::Ready => ready = Some(reported.at),
                BroadcastEvent::Refused { missing } => refused = Some(missing),
                _ => {}
            });
            if let Some(missing) = refused {
                bail!("nothing can be cast on this fabric: {missing}");
            }
            if self.world.now() > LIMIT {
                bail!("not every rank was heard within {LIMIT}");
            }
        }
        Ok(())
    }

    /// Casts one object; until the last receiver has it, and until the root knows.
    fn object(&mut self, object: u32) -> Result<(Nanos, Nanos)> {
        let begin = self.world.now() + LOOK;
        let ranks = self.test_bed.ranks;
        let is_long = self.length.0 > u64::from(self.test_bed.symbol());
        for rank in (1..ranks).filter(|_| is_long) {
            self.world.command(
                self.world.now(),
                Rank(rank),
                BroadcastCommand::Place { into: self.from },
            );
        }
        self.world.command(begin, Rank(0), BroadcastCommand::Cast { from: self.from });
        self.world.command(begin, Rank(0), BroadcastCommand::Flush);
        let (mut have, mut last, mut known) = (1, begin, None);
        let mut lost = None;
        while have < ranks || known.is_none() {
            let until = self.world.now() + LOOK;
            let mut taken = Vec::new();
            self.world.run_until(until, &mut |reported: WorldEvent<'_, HostEngine>| match reported
                .event
            {
                BroadcastEvent::Received { object: it, .. } if it == object => {
                    (have, last) = (have + 1, last.max(reported.at));
                    taken.push(reported.rank);
                }
                BroadcastEvent::Stable { object: it, .. }
                    if it == object && reported.rank == Rank(0) =>
                {
                    known = Some(reported.at)
                }
                BroadcastEvent::Lost { rank } => lost = Some(rank),
                _ => {}
            });
            let now = self.world.now();
            taken.into_iter().for_each(|rank| {
                self.world.command(now, rank, BroadcastCommand::Release { object })
            });
            if let Some(rank) = lost {
                bail!("rank {rank} was silent for too long and put out; a longer --silence works");
            }
            if now > begin + LIMIT {
                bail!(
                    "object {object} of {} has reached {have} of {ranks} ranks within {LIMIT}",
                    self.length
                );
            }
        }
        let time = |at: Picos| (at - begin).nanos();
        Ok((time(last), time(known.unwrap_or(last))))
    }

    fn root(&mut self) -> BroadcastRecord {
        self.record_of(0)
    }

    fn record_of(&mut self, rank: u32) -> BroadcastRecord {
        match self.world.engine_mut(Rank(rank)) {
            Some(HostEngine::Member(node)) => node.record(),
            _ => BroadcastRecord::default(),
        }
    }

    fn record(&mut self) -> BroadcastRecord {
        let mut sum = BroadcastRecord::default();
        for rank in 0..self.test_bed.ranks {
            let of = self.record_of(rank);
            sum.sent += of.sent;
            sum.repairs += of.repairs;
            sum.received += of.received;
            sum.doubled += of.doubled;
        }
        sum
    }

    fn links(&self) -> [u64; 3] {
        let graph = &self.test_bed.machine.network.graph;
        let mut sums = [0; 3];
        for (channel, id) in graph.channels().iter().zip((0..).map(ChannelId)) {
            let bytes = self
                .world
                .network()
                .carrier()
                .lane_statistics(id)
                .iter()
                .map(|lane| lane.bytes)
                .sum::<u64>();
            let which = if graph.is_host(channel.from) {
                0
            } else {
                2 - usize::from(graph.is_host(channel.to))
            };
            sums[which] += bytes;
        }
        sums
    }

    /// Returns the round trips of neighbours since the last call.
    fn trips(&mut self) -> Vec<Nanos> {
        let mut trips = Vec::new();
        for rank in self.test_bed.ranks..self.test_bed.machine.hosts.len() as u32 {
            if let Some(HostEngine::Neighbour(neighbour)) = self.world.engine_mut(Rank(rank)) {
                trips.append(&mut neighbour.take_trips());
            }
        }
        trips.sort_unstable();
        trips
    }
}

fn since(now: BroadcastRecord, then: BroadcastRecord) -> BroadcastRecord {
    BroadcastRecord {
        sent: now.sent - then.sent,
        repairs: now.repairs - then.repairs,
        received: now.received - then.received,
        doubled: now.doubled - then.doubled,
        reports: now.reports - then.reports,
        polls: now.polls - then.polls,
        ..BroadcastRecord::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(modes: &[CastMode], lengths: &[u64], losses: &[u32]) -> BroadcastPlan {
        BroadcastPlan {
            ranks: 24,
            leaves: 1,
            modes: modes.to_vec(),
            modes_up_to: None,
            lengths: lengths.iter().map(|length| Bytes(*length)).collect(),
            losses: losses.iter().map(|loss| Millionths(*loss)).collect(),
            objects: None,
            rate: None,
            silence: Nanos::from_secs(1),
            kills: Vec::new(),
            stops: Vec::new(),
            filter: None,
            seed: 1,
        }
    }

    #[test]
    fn run__without_loss_every_rank_gets_each_symbol_once() {
        let test_bed = BroadcastTestBed::open("edr", None, 24, None).unwrap();
        let modes = [CastMode::Multicast, CastMode::Chain, CastMode::Tree];
        for outcome in test_bed.run(&plan(&modes, &[100_000], &[0])).unwrap() {
            let symbols = 100_000_u64.div_ceil(u64::from(test_bed.symbol()));
            assert_eq!(outcome.all.received, 23 * symbols, "{:?}", outcome.mode);
            let sent = if outcome.mode == CastMode::Multicast { symbols } else { 23 * symbols };
            assert!(
                outcome.all.sent >= sent && outcome.links[1] >= 23 * 100_000,
                "{:?}",
                outcome.mode
            );
            assert!(!outcome.alone.is_empty(), "neighbours ask from the beginning");
        }
    }

    #[test]
    fn unicast_crossings__are_none_at_one_switch_and_two_or_more_for_each_receiver_elsewhere() {
        let test_bed = |ranks| BroadcastTestBed::open("edr", None, ranks, None).unwrap();
        assert_eq!(test_bed(8).unicast_crossings(), 0);
        let wide = test_bed(200);
        let elsewhere = wide.machine.hosts[..200]
            .iter()
            .filter(|host| wide.leaf(**host) != wide.leaf(wide.machine.hosts[0]))
            .count();
        assert!(elsewhere > 0 && wide.unicast_crossings() >= 2 * elsewhere as u64);
    }

    #[test]
    fn run__longer_objects_than_all_modes_are_for_go_by_the_first() {
        let test_bed = BroadcastTestBed::open("edr", None, 8, None).unwrap();
        let plan = BroadcastPlan {
            modes_up_to: Some(Bytes(4)),
            ..plan(&[CastMode::Multicast, CastMode::Tree], &[4, 20_000], &[0])
        };
        let casts = test_bed.run(&BroadcastPlan { ranks: 8, ..plan }).unwrap();
        let casts: Vec<(u64, CastMode)> = casts.iter().map(|it| (it.length.0, it.mode)).collect();
        assert_eq!(
            casts,
            [(4, CastMode::Multicast), (4, CastMode::Tree), (20_000, CastMode::Multicast)]
        );
    }

    #[test]
    fn run__the_same_seed_is_the_same_run_and_loss_is_repaired() {
        let test_bed = BroadcastTestBed::open("edr", None, 24, None).unwrap();
        let times = || {
            let outcomes =
                test_bed.run(&plan(&[CastMode::Auto], &[4, 300_000], &[10_000])).unwrap();
            outcomes.iter().map(|it| (it.received.clone(), it.all)).collect::<Vec<_>>()
        };
        let first = times();
        assert!(first[1].1.repairs > 0);
        assert_eq!(first, times());
    }
}
