//! One rank of a job: gives every input to the role that it has.
//!
//! # Invariants
//! I1. A message from a rank without a part in the job, or one that makes no sense, changes nothing
//!     but a count.
//! I2. After an abort nothing leaves any more.

mod follow;

use alloc::boxed::Box;

use alloc::sync::Arc;

use super::builder::Builder;
use super::context::{TimesliceConfig, TimesliceContext, TimesliceEvent, TimesliceLabel};
use super::frame::{TimesliceFrame, from_run};
use super::input::InputNode;
use super::layout::Role;
use super::membership::{
    self, Change, Decision, FIRST_KIND, Journal, Membership, ProposedDecision, RosterMember, Stake,
};
use super::record::TimesliceRecord;
use super::supply::ContributionSpans;
use crate::base::{LocalNs, Rank};
use crate::wire::{Arrival, Destination, Engine, More, Operation, Out, Span};

/// What the application may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimesliceCommand {
    /// Input: contributions may leave as soon as every builder is there.
    Begin,
    /// Input: the contribution to the next timeslice, for [`super::ContributionSource::Given`].
    Give(ContributionSpans),
    /// Input: the stream ends before this timeslice, or where it has come to if that is later. All
    /// inputs must receive the same end: what only some contribute to is never complete.
    Finish {
        /// The first timeslice that is not built.
        timeslice: u64,
    },
    /// Builder: a complete timeslice is no longer needed.
    Release {
        /// Which.
        timeslice: u64,
    },
    /// A rank that is out wants to take part, from some timeslice on that
    /// [`TimesliceEvent::Joined`] tells.
    Join,
    /// A rank wants nothing more to be dealt to it; [`TimesliceEvent::Retired`] tells from when on.
    Retire,
    /// A builder gets this many sixteenths of the turns of an equal one.
    Weigh {
        /// From 1 on; an equal one has 16.
        weight: u32,
    },
    /// The job ends now, everywhere.
    Abort,
}

/// A timeslice that a builder had built before a decision removed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettledTimeslice {
    /// The builder.
    pub rank: Rank,
    /// How many decisions there were with that one: a builder that came back is removed by another.
    pub epoch: u32,
    /// Which.
    pub timeslice: u64,
}

#[derive(Debug)]
enum NodeRole {
    Input(Box<InputNode>),
    Builder(Box<Builder>),
    /// No part in the job, for now.
    Idle,
    /// The job was aborted.
    Aborted,
}

/// The engine of timeslice building.
#[derive(Debug)]
pub struct TimesliceNode {
    config: TimesliceConfig,
    part: NodeRole,
    journal: Arc<Journal>,
    /// None where nobody is watched.
    membership: Option<Box<Membership>>,
}

impl TimesliceNode {
    /// Creates a rank of a job, as `config` says.
    pub fn new(config: TimesliceConfig) -> Self {
        let mut out = Out::with_limit(0);
        let journal = Arc::new(Journal::new(&config.layout));
        let me = journal.member_of(config.rank);
        let cx =
            TimesliceContext { now: LocalNs(0), config: &config, journal: &journal, out: &mut out };
        let part =
            me.filter(|me| journal.takes_part(*me)).map_or(NodeRole::Idle, |me| part(me, &cx));
        let beats = me.zip(config.heartbeat);
        let membership =
            beats.map(|(me, interval)| Box::new(Membership::new(me, journal.clone(), interval)));
        Self { config, part, journal, membership }
    }

    /// Returns what was counted since the last call, up to `now`.
    pub fn take_record(&mut self, now: LocalNs) -> Option<TimesliceRecord> {
        match &mut self.part {
            NodeRole::Input(input) => Some(TimesliceRecord::Input(input.take_record(now))),
            NodeRole::Builder(builder) => Some(TimesliceRecord::Builder(builder.take_record())),
            NodeRole::Idle | NodeRole::Aborted => None,
        }
    }

    /// Returns, at a builder, where the contribution of the input at `place` to `timeslice` lies,
    /// from completion to release.
    pub fn contribution(&self, place: usize, timeslice: u64) -> Option<Span> {
        match &self.part {
            NodeRole::Builder(builder) => builder.contribution(place, timeslice, self.config.rings),
            _ => None,
        }
    }

    /// Returns, at a builder, the position of the first timeslice of its order that is not
    /// complete.
    pub fn row(&self) -> Option<u64> {
        match &self.part {
            NodeRole::Builder(builder) => Some(builder.row()),
            _ => None,
        }
    }

    /// Returns the timeslices that removed builders have built, by decision, in their order; as far
    /// as this node knows. Everything else that such a builder has reported as complete is built by
    /// others. O(1) for each.
    pub fn settled(&self) -> impl Iterator<Item = SettledTimeslice> + '_ {
        let one = |(epoch, member, timeslice)| SettledTimeslice {
            rank: self.journal.rank(member),
            epoch,
            timeslice,
        };
        self.journal.settled().map(one)
    }

    /// Returns, at a builder, the first input whose contribution to the oldest timeslice in the
    /// making is missing.
    pub fn awaited(&self) -> Option<Rank> {
        match &self.part {
            NodeRole::Builder(builder) => {
                self.config.layout.inputs().get(builder.awaited()?).copied()
            }
            _ => None,
        }
    }

    /// Returns, at an input, the builder that has not released its contribution to `timeslice`, or
    /// that gets it next. O(1) for the oldest contribution at a builder, else O(contributions that
    /// are not released).
    pub fn holder(&self, timeslice: u64) -> Option<Rank> {
        match &self.part {
            NodeRole::Input(input) => {
                self.config.layout.builders().get(input.holder(timeslice)?).copied()
            }
            _ => None,
        }
    }

    /// Returns, at a builder, how many contributions of the input at `place` have landed, modulo
    /// 2^32.
    pub fn landed(&self, place: usize) -> Option<u32> {
        match &self.part {
            NodeRole::Builder(builder) => builder.landed_of(place),
            _ => None,
        }
    }

    /// Returns, at an input, the first timeslice behind all those to which something was posted. A
    /// stream can end there or later.
    pub fn reached(&self) -> Option<u64> {
        match &self.part {
            NodeRole::Input(input) => Some(input.reached()),
            _ => None,
        }
    }

    /// Returns what was decided, as far as this node knows.
    #[cfg(test)]
    pub(super) const fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    fn command(
        &mut self,
        now: LocalNs,
        command: TimesliceCommand,
        out: &mut Out<TimesliceEvent>,
    ) -> More {
        let cx = &mut TimesliceContext { now, config: &self.config, journal: &self.journal, out };
        match (command, &mut self.part) {
            (TimesliceCommand::Begin, NodeRole::Input(input)) => input.begin(cx),
            (TimesliceCommand::Give(pieces), NodeRole::Input(input)) => input.give(cx, pieces),
            (TimesliceCommand::Finish { timeslice }, NodeRole::Input(input)) => {
                input.finish(cx, timeslice)
            }
            (TimesliceCommand::Release { timeslice }, NodeRole::Builder(builder)) => {
                builder.release(cx, timeslice)
            }
            (TimesliceCommand::Abort, _) => {
                self.abort(self.config.rank, out);
                More::No
            }
            (
                TimesliceCommand::Join | TimesliceCommand::Retire | TimesliceCommand::Weigh { .. },
                _,
            ) => self.wish(now, command, out),
            _ => More::No,
        }
    }

    /// Tells every peer and stops.
    fn abort(&mut self, by: Rank, out: &mut Out<TimesliceEvent>) {
        let peers = match &self.part {
            NodeRole::Input(_) => self.config.layout.builders(),
            NodeRole::Builder(_) => self.config.layout.inputs(),
            NodeRole::Idle | NodeRole::Aborted => return,
        };
        let cx = &mut TimesliceContext {
            now: LocalNs(0),
            config: &self.config,
            journal: &self.journal,
            out,
        };
        peers
            .iter()
            .enumerate()
            .for_each(|(place, peer)| cx.send(*peer, place, TimesliceFrame::Abort));
        self.part = NodeRole::Aborted;
        self.membership = None;
        out.notify(TimesliceEvent::Aborted { by });
    }

    fn datagram(
        &mut self,
        now: LocalNs,
        from: Rank,
        head: &[u8],
        body: Span,
        out: &mut Out<TimesliceEvent>,
    ) -> More {
        let Some(head) = from_run(head, self.config.run) else { return More::No };
        if head.first().is_some_and(|kind| *kind >= FIRST_KIND) {
            return self.about_members(now, from, head, out);
        }
        let (Some(frame), Some(role)) =
            (TimesliceFrame::parse(head), self.config.layout.role(from))
        else {
            return More::No;
        };
        if frame == TimesliceFrame::Abort {
            self.abort(from, out);
            return More::No;
        }
        let cx = &mut TimesliceContext { now, config: &self.config, journal: &self.journal, out };
        match (&mut self.part, role) {
            (NodeRole::Input(input), Role::Builder(place)) => input.arrival(cx, place, frame),
            (NodeRole::Builder(builder), Role::Input(place)) => match frame {
                TimesliceFrame::Put { into, from, length } => {
                    builder.put(cx, place, (into, from, length), body)
                }
                frame => builder.arrival(cx, place, frame),
            },
            _ => More::No,
        }
    }

    fn arrival(
        &mut self,
        now: LocalNs,
        arrival: &Arrival<'_>,
        out: &mut Out<TimesliceEvent>,
    ) -> More {
        match *arrival {
            Arrival::Datagram(datagram) => {
                return self.datagram(now, datagram.from, datagram.head, datagram.body, out);
            }
            Arrival::Landed { from, into, immediate, at } => {
                let at = at.instant();
                let cx = &mut TimesliceContext {
                    now,
                    config: &self.config,
                    journal: &self.journal,
                    out,
                };
                if let (NodeRole::Builder(builder), Some(Role::Input(place))) =
                    (&mut self.part, self.config.layout.role(from))
                {
                    return builder.landed(cx, place, into, immediate, at);
                }
            }
            Arrival::Done { token, status, .. }
                if let Some(TimesliceLabel::Frame { place, kind: kind @ FIRST_KIND.. }) =
                    TimesliceLabel::from_token(token) =>
            {
                if let Some(membership) = &mut self.membership {
                    membership.done(RosterMember(place), kind, status);
                }
                return self.go_on(now, out);
            }
            _ => {
                let cx = &mut TimesliceContext {
                    now,
                    config: &self.config,
                    journal: &self.journal,
                    out,
                };
                let more = match &mut self.part {
                    NodeRole::Input(input) => input.other(cx, arrival),
                    NodeRole::Builder(builder) => builder.other(cx, arrival),
                    NodeRole::Idle | NodeRole::Aborted => More::No,
                };
                return if self.has_room(arrival) && self.go_on(now, out) == More::Yes {
                    More::Yes
                } else {
                    more
                };
            }
        }
        More::No
    }

    /// Returns whether headers that wait can leave now.
    fn has_room(&mut self, arrival: &Arrival<'_>) -> bool {
        let Some(membership) = &mut self.membership else { return false };
        let has = matches!(arrival, Arrival::Room { queue } if queue.class() == Some(self.config.control));
        if has {
            membership.room();
        }
        has
    }

    fn boot(&mut self, now: LocalNs, incarnation: u32, out: &mut Out<TimesliceEvent>) -> More {
        if let Some(membership) = &mut self.membership {
            membership.boot(now, incarnation);
            // A rank that was restarted has lost what it had, and is another one.
            if !membership.is_in() {
                self.part = NodeRole::Idle;
            }
        }
        let cx = &mut TimesliceContext { now, config: &self.config, journal: &self.journal, out };
        match &mut self.part {
            NodeRole::Input(part) => part.boot(cx),
            _ => More::No,
        }
    }
}

/// Returns the part of `me`, who takes part.
fn part(me: RosterMember, cx: &TimesliceContext<'_>) -> NodeRole {
    match cx.journal.role(me) {
        Role::Input(place) => NodeRole::Input(Box::new(InputNode::new(place, cx))),
        Role::Builder(place) => NodeRole::Builder(Box::new(Builder::new(place, cx))),
    }
}

impl Engine for TimesliceNode {
    type Command = TimesliceCommand;
    type Event = TimesliceEvent;

    fn input(
        &mut self,
        now: LocalNs,
        input: crate::wire::Input<'_, TimesliceCommand>,
        out: &mut Out<TimesliceEvent>,
    ) -> More {
        use crate::wire::Input as Given;
        match input {
            Given::Arrival(arrival) => self.arrival(now, &arrival, out),
            Given::Command(command) => self.command(now, command, out),
            Given::Boot { incarnation } => self.boot(now, incarnation, out),
            Given::Tick => {
                let beat = self.beat(now, out);
                let cx = &mut TimesliceContext {
                    now,
                    config: &self.config,
                    journal: &self.journal,
                    out,
                };
                let more = match &mut self.part {
                    NodeRole::Input(part) => part.tick(cx),
                    NodeRole::Builder(part) => part.tick(cx),
                    NodeRole::Idle | NodeRole::Aborted => More::No,
                };
                if beat == More::Yes { beat } else { more }
            }
        }
    }

    fn deadline(&self) -> Option<LocalNs> {
        let part = match &self.part {
            NodeRole::Input(part) => part.deadline(),
            NodeRole::Builder(part) => part.deadline(),
            NodeRole::Idle | NodeRole::Aborted => None,
        };
        let beat = self.membership.as_ref().map(|membership| membership.deadline());
        [part, beat].into_iter().flatten().min()
    }
}
