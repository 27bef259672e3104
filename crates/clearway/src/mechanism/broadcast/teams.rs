//! One rank of several broadcasts at the same time: the teams agree on channels, then each team's
//! root casts, object after object.
//!
//! # Model
//! Every rank is in every team; team `n` begins with rank `n`, who is its root. One engine agrees
//! on channels, and next to it runs one for each broadcast. An object is *here* when that of every
//! root is.
//!
//! # Invariants
//! I1. No object counts as received whose bytes were not compared.

use std::ops::ControlFlow;
use std::os::fd::AsFd;

use anyhow::{Result, anyhow};
use clearway_proto::base::{Class, GroupId, LocalNs, Nanos, Rank};
use clearway_proto::broadcast;
use clearway_proto::channels::{self, CHANNELS_MAX, Channel};
use clearway_proto::wire::{Driver, EngineMux, MuxCommand, MuxEvent, OperationKind, Span, Wire};
use clearway_runtime::{clock, progress};

use super::fault_injection::FaultInjectingWire;
use super::member_host::{AfterCast, BroadcastMemory, SLOTS, member, symbol_of};
use super::messages::{
    BroadcastAssignment, BroadcastProtocol, BroadcastRequest, BroadcastResponse, BroadcastResult,
};
use super::pattern;
use crate::run::rank_process::{Incoming, Requests, respond};

/// The shared channel; those of the pool are behind it. Group zero is that of broadcasts without
/// teams.
const FIRST: GroupId = GroupId(1);
/// Nobody's channel is recalled while a cast lasts.
const IDLE: Nanos = Nanos::from_secs(3_600);
/// A round trip of a local network, and a processor that is shared.
const RETRY: Nanos = Nanos::from_millis(1);

type TeamEngines = EngineMux<channels::ChannelsNode, broadcast::BroadcastNode>;
type TeamCommand = MuxCommand<channels::ChannelsCommand, broadcast::BroadcastNode>;
type TeamEvent = MuxEvent<channels::ChannelsEvent, broadcast::BroadcastEvent>;

/// Takes part in the broadcasts of all roots of `assignment`.
pub(super) fn serve(
    wire: &mut FaultInjectingWire,
    assignment: &BroadcastAssignment,
    memory: &mut Option<BroadcastMemory>,
    orders: &mut Requests<BroadcastProtocol>,
) -> Result<AfterCast> {
    let symbol = symbol_of(wire)?;
    let slots = u64::from(SLOTS) * u64::from(symbol);
    let length = (assignment.length.0 + slots) * u64::from(assignment.roots);
    let region = BroadcastMemory::region(memory, wire, length)?;
    let has_multicast = wire.capabilities().operations.has(OperationKind::Multicast);
    if has_multicast {
        wire.join(Channel::Shared.group(FIRST))
            .map_err(|missing| anyhow!("the shared channel: {missing}"))?;
    }
    let me = wire.rank();
    let channels = channels::ChannelsNode::new(channels::ChannelsConfig {
        rank: me,
        channels: CHANNELS_MAX,
        silence: assignment.silence,
        idle: IDLE,
        retry: RETRY,
        seed: assignment.seed ^ u64::from(assignment.key),
        class: Class::Control,
    });
    let mut together = TeamBroadcasts {
        assignment,
        orders,
        me,
        has_multicast,
        seats: vec![TeamMembership::default(); assignment.roots as usize],
        teams: Vec::new(),
        memory: Span { region, offset: 0, length: symbol },
        account: BroadcastResult::default(),
        cast_at: Vec::new(),
        here_at: Vec::new(),
        is_asked: false,
        cast: 0,
        here: 0,
        asks: (0..assignment.roots).map(|team| form(assignment, team)).collect(),
        events: Vec::new(),
        is_done: false,
        next: None,
    };
    together.run(wire, channels)
}

/// Returns what all members of `team` ask: ranks in their order, from its root on.
fn form(assignment: &BroadcastAssignment, team: u32) -> TeamCommand {
    let members =
        (0..assignment.ranks).map(|place| Rank((team + place) % assignment.ranks)).collect();
    MuxCommand::One(channels::ChannelsCommand::Form { team: assignment.key + team, members })
}

/// One team at this rank.
#[derive(Clone, Copy, Debug, Default)]
struct TeamMembership {
    channel: Option<Channel>,
    /// Objects that are with everybody.
    stable: u32,
}

/// All broadcasts at this rank.
struct TeamBroadcasts<'a> {
    assignment: &'a BroadcastAssignment,
    orders: &'a mut Requests<BroadcastProtocol>,
    me: Rank,
    has_multicast: bool,
    /// By team.
    seats: Vec<TeamMembership>,
    /// The teams of the engines, by their numbers.
    teams: Vec<u32>,
    /// Where memory begins, and the bytes of a symbol: objects of all teams, then their slots.
    memory: Span,
    account: BroadcastResult,
    /// When this rank cast each of its objects, and when each of the others' was here, all of them.
    cast_at: Vec<LocalNs>,
    here_at: Vec<LocalNs>,
    /// The coordinator wants this rank to cast its next object; this many it has.
    is_asked: bool,
    cast: u32,
    /// Objects of other roots that are here, of the round under way.
    here: u32,
    asks: Vec<TeamCommand>,
    events: Vec<(LocalNs, TeamEvent)>,
    is_done: bool,
    next: Option<AfterCast>,
}

impl TeamBroadcasts<'_> {
    fn run(
        &mut self,
        wire: &mut FaultInjectingWire,
        channels: channels::ChannelsNode,
    ) -> Result<AfterCast> {
        let input = self.orders.source().try_clone_to_owned()?;
        let mut driver = Driver::boot(EngineMux::new(channels), clock::now(), 0);
        let mut host = TeamsHost { together: self };
        progress::run(&mut driver, wire, &[input.as_fd()], &mut host);
        Ok(self.next.take().unwrap_or(AfterCast::Gone))
    }

    fn respond(&mut self, what: BroadcastResponse) {
        if respond::<BroadcastProtocol>(what).is_err() {
            self.next = Some(AfterCast::Gone);
        }
    }

    fn is_root_of(&self, team: u32) -> bool {
        self.me == Rank(team)
    }

    /// Returns where the object of `team` lies: one after the other, each in the place of the one
    /// before.
    fn place(&self, team: u32) -> Span {
        let length = self.assignment.length.0;
        Span { offset: u64::from(team) * length, length: length as u32, ..self.memory }
    }

    fn is_short(&self) -> bool {
        self.assignment.length.0 <= u64::from(self.memory.length)
    }

    /// Returns what the object of `team` is made of.
    fn seed(&self, team: u32) -> u64 {
        self.assignment.seed ^ u64::from(team) << 32
    }

    fn node(&self, team: u32, channel: Channel) -> broadcast::BroadcastNode {
        let slots = SLOTS * self.memory.length;
        let offset = u64::from(self.assignment.roots) * self.assignment.length.0
            + u64::from(team) * u64::from(slots);
        let group = self.has_multicast.then(|| channel.group(FIRST));
        let slots = Span { offset, length: slots, ..self.memory };
        member(self.assignment, self.me, Rank(team), group, self.memory.length, slots)
    }

    fn handle_event(&mut self, event: TeamEvent, now: LocalNs, wire: &mut dyn Wire) {
        match event {
            MuxEvent::One(event) => self.handle_channel_event(event, wire),
            MuxEvent::Of(number, event) => {
                if let Some(team) = self.teams.get(number).copied() {
                    self.handle_cast_event(number, team, event, now, wire);
                }
            }
        }
    }

    fn handle_channel_event(&mut self, event: channels::ChannelsEvent, wire: &mut dyn Wire) {
        match event {
            channels::ChannelsEvent::Join { team, channel } => {
                self.join(wire, team, Channel::Own(channel))
            }
            channels::ChannelsEvent::Agreed { team, channel } => {
                let team = team - self.assignment.key;
                let Some(seat) =
                    self.seats.get_mut(team as usize).filter(|seat| seat.channel.is_none())
                else {
                    return;
                };
                seat.channel = Some(channel);
                let number = self.teams.len();
                self.teams.push(team);
                self.asks.push(MuxCommand::Add(self.node(team, channel)));
                if !self.is_root_of(team) && !self.is_short() {
                    self.asks.push(MuxCommand::Of(
                        number,
                        broadcast::BroadcastCommand::Place { into: self.place(team) },
                    ));
                }
                if self.seats.iter().all(|seat| seat.channel.is_some()) {
                    self.respond(BroadcastResponse::Taken);
                }
            }
            other => self.respond(BroadcastResponse::Failed(format!(
                "the teams cannot agree on channels: {other:?}"
            ))),
        }
    }

    /// Listens to what others of `team` send. Its root would get all of its own symbols back.
    fn join(&mut self, wire: &mut dyn Wire, team: u32, channel: Channel) {
        if !self.has_multicast || self.is_root_of(team - self.assignment.key) {
            return;
        }
        if let Err(missing) = wire.join(channel.group(FIRST)) {
            self.respond(BroadcastResponse::Failed(format!(
                "a channel cannot be joined: {missing}"
            )));
        }
    }

    fn handle_cast_event(
        &mut self,
        number: usize,
        team: u32,
        event: broadcast::BroadcastEvent,
        now: LocalNs,
        wire: &mut dyn Wire,
    ) {
        match event {
            broadcast::BroadcastEvent::Ready => self.respond(BroadcastResponse::Ready),
            broadcast::BroadcastEvent::Received { object, at } => {
                self.object_arrived(now);
                if self.is_short() {
                    self.compare(team, object, at, wire);
                    self.asks.push(MuxCommand::Of(
                        number,
                        broadcast::BroadcastCommand::Release { object },
                    ));
                }
            }
            broadcast::BroadcastEvent::Stable { object, .. } => {
                self.object_stable(number, team, object, wire)
            }
            broadcast::BroadcastEvent::Switched { way } => {
                self.respond(BroadcastResponse::Switched(way, now))
            }
            broadcast::BroadcastEvent::Aborted { .. }
            | broadcast::BroadcastEvent::Out
            | broadcast::BroadcastEvent::Helpless => {
                self.respond(BroadcastResponse::Failed(format!(
                    "the broadcast of rank {team} ended early: {event:?}"
                )));
            }
            broadcast::BroadcastEvent::Refused { missing } => self
                .respond(BroadcastResponse::Failed(format!("nothing can be cast here: {missing}"))),
            _ => {}
        }
    }

    /// Handles one more object of another root that is here.
    fn object_arrived(&mut self, now: LocalNs) {
        self.here += 1;
        let others = self.assignment.roots - u32::from(self.me.0 < self.assignment.roots);
        if self.here < others {
            return;
        }
        self.here = 0;
        self.here_at.push(now);
    }

    fn compare(&mut self, team: u32, object: u32, at: Span, wire: &dyn Wire) {
        let wrong = pattern::fault(wire, at, self.assignment.length, self.seed(team), object);
        self.account
            .faults
            .extend(wrong.map(|what| format!("object {object} of rank {team} {what}")));
    }

    /// Handles the object of one root that is with everybody.
    fn object_stable(&mut self, number: usize, team: u32, object: u32, wire: &dyn Wire) {
        if !self.is_root_of(team) && !self.is_short() {
            self.compare(team, object, self.place(team), wire);
            if object + 1 < self.assignment.objects {
                self.asks.push(MuxCommand::Of(
                    number,
                    broadcast::BroadcastCommand::Place { into: self.place(team) },
                ));
            }
        }
        if let Some(seat) = self.seats.get_mut(team as usize) {
            seat.stable = object + 1;
        }
        let stable = self.seats.iter().map(|seat| seat.stable).min().unwrap_or(0);
        if stable != object + 1 {
            return;
        }
        if self.me.0 < self.assignment.roots {
            self.asks.push(MuxCommand::One(channels::ChannelsCommand::End {
                team: self.assignment.key + self.me.0,
            }));
        }
        self.account.stable = stable;
        self.respond(BroadcastResponse::Has(object));
    }

    /// Tells the coordinator how it ended, once.
    fn conclude(&mut self, engines: &TeamEngines) {
        if self.is_done || self.account.stable < self.assignment.objects {
            return;
        }
        self.is_done = true;
        for record in
            (0..self.teams.len()).filter_map(|number| Some(engines.other(number)?.record()))
        {
            self.account.record.sent += record.sent;
            self.account.record.repairs += record.repairs;
        }
        let own = |channel| if let Channel::Own(number) = channel { Some(number) } else { None };
        self.account.channels = self.seats.iter().map(|seat| seat.channel.and_then(own)).collect();
        let times = (0..self.assignment.objects as usize).filter_map(|object| {
            let (cast, here) = (self.cast_at.get(object), self.here_at.get(object));
            Some([*cast.or(here)?, *here.or(cast)?])
        });
        self.account.times = times.collect();
        let account = std::mem::take(&mut self.account);
        self.respond(BroadcastResponse::Done(Box::new(account)));
    }

    /// Casts this rank's next object.
    fn cast(&mut self, wire: &mut dyn Wire) {
        let from = self.place(self.me.0);
        let Some(number) = self.teams.iter().position(|team| self.is_root_of(*team)) else {
            return;
        };
        pattern::make(wire, from, self.seed(self.me.0), self.cast);
        self.cast += 1;
        // The time to make the object is not that of its broadcast.
        self.cast_at.push(clock::now());
        self.asks.push(MuxCommand::One(channels::ChannelsCommand::Begin {
            team: self.assignment.key + self.me.0,
        }));
        self.asks.push(MuxCommand::Of(number, broadcast::BroadcastCommand::Cast { from }));
        self.asks.push(MuxCommand::Of(number, broadcast::BroadcastCommand::Flush));
    }
}

/// The rank's side of the progress loop.
struct TeamsHost<'a, 'b> {
    together: &'a mut TeamBroadcasts<'b>,
}

impl progress::EngineHost<TeamEngines> for TeamsHost<'_, '_> {
    fn event(&mut self, event: TeamEvent) {
        self.together.events.push((clock::now(), event));
    }

    fn control(&mut self, _which: usize, _now: LocalNs, _driver: &mut Driver<TeamEngines>) {
        let Some(orders) = self.together.orders.waiting() else {
            self.together.next = Some(AfterCast::Gone);
            return;
        };
        for order in orders {
            match order {
                Incoming::Request(BroadcastRequest::Take(assignment)) => {
                    self.together.next = Some(AfterCast::Cast(assignment))
                }
                Incoming::Request(BroadcastRequest::Cast) => self.together.is_asked = true,
                Incoming::Leave => self.together.next = Some(AfterCast::Leave),
                Incoming::Request(_) => {}
            }
        }
    }

    fn after_step(
        &mut self,
        now: LocalNs,
        driver: &mut Driver<TeamEngines>,
        wire: &mut dyn Wire,
    ) -> ControlFlow<(), Option<LocalNs>> {
        let together = &mut *self.together;
        for (at, event) in std::mem::take(&mut together.events) {
            together.handle_event(event, at, wire);
        }
        if std::mem::take(&mut together.is_asked) {
            together.cast(wire);
        }
        together.conclude(driver.engine_mut());
        if together.next.is_some() {
            return ControlFlow::Break(());
        }
        let has_asks = !together.asks.is_empty();
        together.asks.drain(..).for_each(|ask| driver.command(now, ask));
        ControlFlow::Continue(has_asks.then_some(now))
    }
}
