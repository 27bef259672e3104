//! One rank of several broadcasts at the same time: the teams agree on channels, then each team's root casts, object after object.
//!
//! # Model
//! Every rank is in every team; team `n` begins with rank `n`, who is its root. One engine agrees on channels, and beside it runs one for each
//! broadcast. An object is *here* when that of every root is.
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

use super::pattern;
use super::rank::{Memory, Next, SLOTS, member, symbol_of};
use super::rough::RoughWire;
use super::words::{Account, Asked, Assignment, Casts, Said};
use crate::run::rank::{Incoming, Requests, respond};

/// The shared channel; those of the pool are behind it. Group zero is that of broadcasts without teams.
const FIRST: GroupId = GroupId(1);
/// Nobody's channel is recalled while a cast lasts.
const IDLE: Nanos = Nanos::from_secs(3_600);
/// A round trip of a local network, and a processor that is shared.
const RETRY: Nanos = Nanos::from_millis(1);

type Engines = EngineMux<channels::ChannelsNode, broadcast::BroadcastNode>;
type Asks = MuxCommand<channels::ChannelsCommand, broadcast::BroadcastNode>;
type Events = MuxEvent<channels::ChannelsEvent, broadcast::BroadcastEvent>;

/// Takes part in the broadcasts of all roots of `assignment`.
pub(super) fn serve(
    wire: &mut RoughWire,
    assignment: &Assignment,
    memory: &mut Option<Memory>,
    orders: &mut Requests<Casts>,
) -> Result<Next> {
    let symbol = symbol_of(wire)?;
    let slots = u64::from(SLOTS) * u64::from(symbol);
    let length = (assignment.length.0 + slots) * u64::from(assignment.roots);
    let region = Memory::of(memory, wire, length)?;
    let has_multicast = wire.capabilities().operations.has(OperationKind::Multicast);
    if has_multicast {
        wire.join(Channel::Shared.group(FIRST)).map_err(|missing| anyhow!("the shared channel: {missing}"))?;
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
    let mut together = Together {
        assignment,
        orders,
        me,
        has_multicast,
        seats: vec![Seat::default(); assignment.roots as usize],
        teams: Vec::new(),
        memory: Span { region, offset: 0, length: symbol },
        account: Account::default(),
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

/// What all members of `team` ask: ranks in their order, from its root on.
fn form(assignment: &Assignment, team: u32) -> Asks {
    let members = (0..assignment.ranks).map(|place| Rank((team + place) % assignment.ranks)).collect();
    MuxCommand::One(channels::ChannelsCommand::Form { team: assignment.key + team, members })
}

/// One team at this rank.
#[derive(Clone, Copy, Debug, Default)]
struct Seat {
    channel: Option<Channel>,
    /// Objects that are with everybody.
    stable: u32,
}

/// All broadcasts at this rank.
struct Together<'a> {
    assignment: &'a Assignment,
    orders: &'a mut Requests<Casts>,
    me: Rank,
    has_multicast: bool,
    /// By team.
    seats: Vec<Seat>,
    /// The teams of the engines, by their numbers.
    teams: Vec<u32>,
    /// Where memory begins, and the bytes of a symbol: objects of all teams, then their slots.
    memory: Span,
    account: Account,
    /// When this rank cast each of its objects, and when each of the others' was here, all of them.
    cast_at: Vec<LocalNs>,
    here_at: Vec<LocalNs>,
    /// The conductor wants this rank to cast its next object; so many it has.
    is_asked: bool,
    cast: u32,
    /// Objects of other roots that are here, of the round under way.
    here: u32,
    asks: Vec<Asks>,
    events: Vec<(LocalNs, Events)>,
    is_done: bool,
    next: Option<Next>,
}

impl Together<'_> {
    fn run(&mut self, wire: &mut RoughWire, channels: channels::ChannelsNode) -> Result<Next> {
        let input = self.orders.source().try_clone_to_owned()?;
        let mut driver = Driver::boot(EngineMux::new(channels), clock::now(), 0);
        let mut host = Host { together: self };
        progress::run(&mut driver, wire, &[input.as_fd()], &mut host);
        Ok(self.next.take().unwrap_or(Next::Gone))
    }

    fn say(&mut self, what: Said) {
        if respond::<Casts>(what).is_err() {
            self.next = Some(Next::Gone);
        }
    }

    fn is_root_of(&self, team: u32) -> bool {
        self.me == Rank(team)
    }

    /// Where the object of `team` lies: one after the other, each in the place of the one before.
    fn place(&self, team: u32) -> Span {
        let length = self.assignment.length.0;
        Span { offset: u64::from(team) * length, length: length as u32, ..self.memory }
    }

    fn is_short(&self) -> bool {
        self.assignment.length.0 <= u64::from(self.memory.length)
    }

    /// What the object of `team` is made of.
    fn seed(&self, team: u32) -> u64 {
        self.assignment.seed ^ u64::from(team) << 32
    }

    fn node(&self, team: u32, channel: Channel) -> broadcast::BroadcastNode {
        let slots = SLOTS * self.memory.length;
        let offset = u64::from(self.assignment.roots) * self.assignment.length.0 + u64::from(team) * u64::from(slots);
        let group = self.has_multicast.then(|| channel.group(FIRST));
        let slots = Span { offset, length: slots, ..self.memory };
        member(self.assignment, self.me, Rank(team), group, self.memory.length, slots)
    }

    fn heed(&mut self, event: Events, now: LocalNs, wire: &mut dyn Wire) {
        match event {
            MuxEvent::One(event) => self.heed_channel(event, wire),
            MuxEvent::Of(number, event) => {
                if let Some(team) = self.teams.get(number).copied() {
                    self.heed_cast(number, team, event, now, wire);
                }
            }
        }
    }

    fn heed_channel(&mut self, event: channels::ChannelsEvent, wire: &mut dyn Wire) {
        match event {
            channels::ChannelsEvent::Join { team, channel } => self.join(wire, team, Channel::Own(channel)),
            channels::ChannelsEvent::Agreed { team, channel } => {
                let team = team - self.assignment.key;
                let Some(seat) = self.seats.get_mut(team as usize).filter(|seat| seat.channel.is_none()) else {
                    return;
                };
                seat.channel = Some(channel);
                let number = self.teams.len();
                self.teams.push(team);
                self.asks.push(MuxCommand::Add(self.node(team, channel)));
                if !self.is_root_of(team) && !self.is_short() {
                    self.asks
                        .push(MuxCommand::Of(number, broadcast::BroadcastCommand::Place { into: self.place(team) }));
                }
                if self.seats.iter().all(|seat| seat.channel.is_some()) {
                    self.say(Said::Taken);
                }
            }
            other => self.say(Said::Failed(format!("the teams cannot agree on channels: {other:?}"))),
        }
    }

    /// Listens to what others of `team` send. Its root would get all of its own symbols back.
    fn join(&mut self, wire: &mut dyn Wire, team: u32, channel: Channel) {
        if !self.has_multicast || self.is_root_of(team - self.assignment.key) {
            return;
        }
        if let Err(missing) = wire.join(channel.group(FIRST)) {
            self.say(Said::Failed(format!("a channel cannot be joined: {missing}")));
        }
    }

    fn heed_cast(
        &mut self,
        number: usize,
        team: u32,
        event: broadcast::BroadcastEvent,
        now: LocalNs,
        wire: &mut dyn Wire,
    ) {
        match event {
            broadcast::BroadcastEvent::Ready => self.say(Said::Ready),
            broadcast::BroadcastEvent::Received { object, at } => {
                self.came(now);
                if self.is_short() {
                    self.compare(team, object, at, wire);
                    self.asks.push(MuxCommand::Of(number, broadcast::BroadcastCommand::Release { object }));
                }
            }
            broadcast::BroadcastEvent::Stable { object, .. } => self.settle(number, team, object, wire),
            broadcast::BroadcastEvent::Switched { way } => self.say(Said::Switched(way, now)),
            broadcast::BroadcastEvent::Aborted { .. }
            | broadcast::BroadcastEvent::Out
            | broadcast::BroadcastEvent::Helpless => {
                self.say(Said::Failed(format!("the broadcast of rank {team} ended early: {event:?}")));
            }
            broadcast::BroadcastEvent::Refused { missing } => {
                self.say(Said::Failed(format!("nothing can be cast here: {missing}")))
            }
            _ => {}
        }
    }

    /// One more object of another root is here.
    fn came(&mut self, now: LocalNs) {
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
        self.account.faults.extend(wrong.map(|what| format!("object {object} of rank {team} {what}")));
    }

    /// The object of one root is with everybody.
    fn settle(&mut self, number: usize, team: u32, object: u32, wire: &dyn Wire) {
        if !self.is_root_of(team) && !self.is_short() {
            self.compare(team, object, self.place(team), wire);
            if object + 1 < self.assignment.objects {
                self.asks.push(MuxCommand::Of(number, broadcast::BroadcastCommand::Place { into: self.place(team) }));
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
            self.asks.push(MuxCommand::One(channels::ChannelsCommand::End { team: self.assignment.key + self.me.0 }));
        }
        self.account.stable = stable;
        self.say(Said::Has(object));
    }

    /// Tells the conductor how it ended, once.
    fn conclude(&mut self, engines: &Engines) {
        if self.is_done || self.account.stable < self.assignment.objects {
            return;
        }
        self.is_done = true;
        for record in (0..self.teams.len()).filter_map(|number| Some(engines.other(number)?.record())) {
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
        self.say(Said::Done(Box::new(account)));
    }

    /// Casts this rank's next object.
    fn cast(&mut self, wire: &mut dyn Wire) {
        let from = self.place(self.me.0);
        let Some(number) = self.teams.iter().position(|team| self.is_root_of(*team)) else { return };
        pattern::make(wire, from, self.seed(self.me.0), self.cast);
        self.cast += 1;
        // The time to make the object is not that of its broadcast.
        self.cast_at.push(clock::now());
        self.asks.push(MuxCommand::One(channels::ChannelsCommand::Begin { team: self.assignment.key + self.me.0 }));
        self.asks.push(MuxCommand::Of(number, broadcast::BroadcastCommand::Cast { from }));
        self.asks.push(MuxCommand::Of(number, broadcast::BroadcastCommand::Flush));
    }
}

/// The rank's side of the progress loop.
struct Host<'a, 'b> {
    together: &'a mut Together<'b>,
}

impl progress::Host<Engines> for Host<'_, '_> {
    fn told(&mut self, event: Events) {
        self.together.events.push((clock::now(), event));
    }

    fn control(&mut self, _which: usize, _now: LocalNs, _driver: &mut Driver<Engines>) {
        let Some(orders) = self.together.orders.waiting() else {
            self.together.next = Some(Next::Gone);
            return;
        };
        for order in orders {
            match order {
                Incoming::Request(Asked::Take(assignment)) => self.together.next = Some(Next::Cast(assignment)),
                Incoming::Request(Asked::Cast) => self.together.is_asked = true,
                Incoming::Leave => self.together.next = Some(Next::Leave),
                Incoming::Request(_) => {}
            }
        }
    }

    fn after_step(
        &mut self,
        now: LocalNs,
        driver: &mut Driver<Engines>,
        wire: &mut dyn Wire,
    ) -> ControlFlow<(), Option<LocalNs>> {
        let together = &mut *self.together;
        for (at, event) in std::mem::take(&mut together.events) {
            together.heed(event, at, wire);
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
