//! One rank of a job: gives every input to the role that it has.
//!
//! # Invariants
//! I1. What comes from a rank without a part in the job, or makes no sense, changes nothing but a count.
//! I2. After an abort nothing leaves any more.

mod follow;

use alloc::boxed::Box;

use alloc::sync::Arc;

use super::builder::Builder;
use super::context::{Context, Event, Label, NodeConfig};
use super::frame::{Frame, of_run};
use super::input::Input;
use super::layout::Role;
use super::membership::{self, Change, Decision, FIRST_KIND, Journal, Member, Membership, Stake, Wish};
use super::record::Record;
use super::supply::Pieces;
use crate::base::{LocalNs, Rank};
use crate::wire::{Arrival, Destination, Engine, More, Operation, Out, Span};

/// What the application may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Input: contributions may leave as soon as every builder is there.
    Begin,
    /// Input: the contribution to the next timeslice, for [`super::Source::Given`].
    Give(Pieces),
    /// Input: the stream ends before this timeslice, or where it has come to if that is later. All inputs must be told of the
    /// same end: what only some contribute to is never complete.
    Finish {
        /// The first timeslice that is not built.
        timeslice: u64,
    },
    /// Builder: a complete timeslice is no longer needed.
    Release {
        /// Which.
        timeslice: u64,
    },
    /// A rank that is out wants to take part, from some timeslice on that [`Event::Joined`] tells.
    Join,
    /// A rank wants nothing more to be dealt to it; [`Event::Retired`] tells from when on.
    Retire,
    /// A builder shall have so many sixteenths of the turns of an equal one.
    Weigh {
        /// From 1 on; an equal one has 16.
        weight: u32,
    },
    /// The job ends now, everywhere.
    Abort,
}

#[derive(Debug)]
enum Part {
    Input(Box<Input>),
    Builder(Box<Builder>),
    /// No part in the job, for now.
    Idle,
    /// The job was aborted.
    Aborted,
}

/// The engine of timeslice building.
#[derive(Debug)]
pub struct Node {
    config: NodeConfig,
    part: Part,
    journal: Arc<Journal>,
    /// None where nobody is watched.
    membership: Option<Box<Membership>>,
}

impl Node {
    /// A rank of a job, as `config` says.
    pub fn new(config: NodeConfig) -> Self {
        let mut out = Out::with_limit(0);
        let journal = Arc::new(Journal::new(&config.layout));
        let me = journal.member_of(config.rank);
        let cx = Context { now: LocalNs(0), config: &config, journal: &journal, out: &mut out };
        let part = me.filter(|me| journal.takes_part(*me)).map_or(Part::Idle, |me| part(me, &cx));
        let beats = me.zip(config.heartbeat);
        let membership = beats.map(|(me, interval)| Box::new(Membership::new(me, journal.clone(), interval)));
        Self { config, part, journal, membership }
    }

    /// What was counted since the last call, up to `now`.
    pub fn take_record(&mut self, now: LocalNs) -> Option<Record> {
        match &mut self.part {
            Part::Input(input) => Some(Record::Input(input.take_record(now))),
            Part::Builder(builder) => Some(Record::Builder(builder.take_record())),
            Part::Idle | Part::Aborted => None,
        }
    }

    /// Builder: where the contribution of the input at `place` to `timeslice` lies, from completion to release.
    pub fn contribution(&self, place: usize, timeslice: u64) -> Option<Span> {
        match &self.part {
            Part::Builder(builder) => builder.contribution(place, timeslice, self.config.rings),
            _ => None,
        }
    }

    /// Builder: the position of the first timeslice of its order that is not complete.
    pub fn row(&self) -> Option<u64> {
        match &self.part {
            Part::Builder(builder) => Some(builder.row()),
            _ => None,
        }
    }

    /// The timeslices that removed builders have built, by decision, in their order; as far as this node knows. What else such a builder
    /// has told to be complete is built by others. O(1) for each.
    pub fn settled(&self) -> impl Iterator<Item = (Rank, u64)> + '_ {
        self.journal.settled().map(|(member, timeslice)| (self.journal.rank(member), timeslice))
    }

    /// Builder: the first input whose contribution to the oldest timeslice in the making is missing.
    pub fn awaited(&self) -> Option<Rank> {
        match &self.part {
            Part::Builder(builder) => self.config.layout.inputs().get(builder.awaited()?).copied(),
            _ => None,
        }
    }

    /// Builder: how many contributions of the input at `place` have landed, modulo 2^32.
    pub fn landed(&self, place: usize) -> Option<u32> {
        match &self.part {
            Part::Builder(builder) => builder.landed_of(place),
            _ => None,
        }
    }

    /// Input: the first timeslice behind all those to which something was posted. A stream can end there or later.
    pub fn reached(&self) -> Option<u64> {
        match &self.part {
            Part::Input(input) => Some(input.reached()),
            _ => None,
        }
    }

    /// What was decided, as far as this node knows.
    #[cfg(test)]
    pub(super) const fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    fn command(&mut self, now: LocalNs, command: Command, out: &mut Out<Event>) -> More {
        let cx = &mut Context { now, config: &self.config, journal: &self.journal, out };
        match (command, &mut self.part) {
            (Command::Begin, Part::Input(input)) => input.begin(cx),
            (Command::Give(pieces), Part::Input(input)) => input.give(cx, pieces),
            (Command::Finish { timeslice }, Part::Input(input)) => input.finish(cx, timeslice),
            (Command::Release { timeslice }, Part::Builder(builder)) => builder.release(cx, timeslice),
            (Command::Abort, _) => {
                self.abort(self.config.rank, out);
                More::No
            }
            (Command::Join | Command::Retire | Command::Weigh { .. }, _) => self.wish(now, command, out),
            _ => More::No,
        }
    }

    /// Tells every peer and stops.
    fn abort(&mut self, by: Rank, out: &mut Out<Event>) {
        let peers = match &self.part {
            Part::Input(_) => self.config.layout.builders(),
            Part::Builder(_) => self.config.layout.inputs(),
            Part::Idle | Part::Aborted => return,
        };
        let cx = &mut Context { now: LocalNs(0), config: &self.config, journal: &self.journal, out };
        peers.iter().enumerate().for_each(|(place, peer)| cx.send(*peer, place, Frame::Abort));
        self.part = Part::Aborted;
        self.membership = None;
        out.tell(Event::Aborted { by });
    }

    fn datagram(&mut self, now: LocalNs, from: Rank, head: &[u8], body: Span, out: &mut Out<Event>) -> More {
        let Some(head) = of_run(head, self.config.run) else { return More::No };
        if head.first().is_some_and(|kind| *kind >= FIRST_KIND) {
            return self.about_members(now, from, head, out);
        }
        let (Some(frame), Some(role)) = (Frame::parse(head), self.config.layout.role(from)) else { return More::No };
        if frame == Frame::Abort {
            self.abort(from, out);
            return More::No;
        }
        let cx = &mut Context { now, config: &self.config, journal: &self.journal, out };
        match (&mut self.part, role) {
            (Part::Input(input), Role::Builder(place)) => input.arrival(cx, place, frame),
            (Part::Builder(builder), Role::Input(place)) => match frame {
                Frame::Put { into, from, length } => builder.put(cx, place, (into, from, length), body),
                frame => builder.arrival(cx, place, frame),
            },
            _ => More::No,
        }
    }

    fn arrival(&mut self, now: LocalNs, arrival: &Arrival<'_>, out: &mut Out<Event>) -> More {
        match *arrival {
            Arrival::Datagram(datagram) => {
                return self.datagram(now, datagram.from, datagram.head, datagram.body, out);
            }
            Arrival::Landed { from, into, immediate, at } => {
                let at = at.instant();
                let cx = &mut Context { now, config: &self.config, journal: &self.journal, out };
                if let (Part::Builder(builder), Some(Role::Input(place))) =
                    (&mut self.part, self.config.layout.role(from))
                {
                    return builder.landed(cx, place, into, immediate, at);
                }
            }
            Arrival::Done { token, status, .. }
                if let Some(Label::Frame { place, kind: kind @ FIRST_KIND.. }) = Label::of(token) =>
            {
                if let Some(membership) = &mut self.membership {
                    membership.done(Member(place), kind, status);
                }
                return self.go_on(now, out);
            }
            _ => {
                let cx = &mut Context { now, config: &self.config, journal: &self.journal, out };
                let more = match &mut self.part {
                    Part::Input(input) => input.other(cx, arrival),
                    Part::Builder(builder) => builder.other(cx, arrival),
                    Part::Idle | Part::Aborted => More::No,
                };
                return if self.has_room(arrival) && self.go_on(now, out) == More::Yes { More::Yes } else { more };
            }
        }
        More::No
    }

    /// Whether headers that wait can leave now.
    fn has_room(&mut self, arrival: &Arrival<'_>) -> bool {
        let Some(membership) = &mut self.membership else { return false };
        let has = matches!(arrival, Arrival::Room { queue } if queue.class() == Some(self.config.control));
        if has {
            membership.room();
        }
        has
    }

    fn boot(&mut self, now: LocalNs, incarnation: u32, out: &mut Out<Event>) -> More {
        if let Some(membership) = &mut self.membership {
            membership.boot(now, incarnation);
            // Who was restarted has lost what it had, and is another one.
            if !membership.is_in() {
                self.part = Part::Idle;
            }
        }
        let cx = &mut Context { now, config: &self.config, journal: &self.journal, out };
        match &mut self.part {
            Part::Input(part) => part.boot(cx),
            _ => More::No,
        }
    }
}

/// The part of `me`, who takes part.
fn part(me: Member, cx: &Context<'_>) -> Part {
    match cx.journal.role(me) {
        Role::Input(place) => Part::Input(Box::new(Input::new(place, cx))),
        Role::Builder(place) => Part::Builder(Box::new(Builder::new(place, cx))),
    }
}

impl Engine for Node {
    type Command = Command;
    type Event = Event;

    fn input(&mut self, now: LocalNs, input: crate::wire::Input<'_, Command>, out: &mut Out<Event>) -> More {
        use crate::wire::Input as Given;
        match input {
            Given::Arrival(arrival) => self.arrival(now, &arrival, out),
            Given::Command(command) => self.command(now, command, out),
            Given::Boot { incarnation } => self.boot(now, incarnation, out),
            Given::Tick => {
                let beat = self.beat(now, out);
                let cx = &mut Context { now, config: &self.config, journal: &self.journal, out };
                let more = match &mut self.part {
                    Part::Input(part) => part.tick(cx),
                    Part::Builder(part) => part.tick(cx),
                    Part::Idle | Part::Aborted => More::No,
                };
                if beat == More::Yes { beat } else { more }
            }
        }
    }

    fn deadline(&self) -> Option<LocalNs> {
        let part = match &self.part {
            Part::Input(part) => part.deadline(),
            Part::Builder(part) => part.deadline(),
            Part::Idle | Part::Aborted => None,
        };
        let beat = self.membership.as_ref().map(|membership| membership.deadline());
        [part, beat].into_iter().flatten().min()
    }
}
