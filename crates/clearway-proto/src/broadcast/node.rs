//! One member of a cast: gives every input to the root or the receiver that it is.
//!
//! # Invariants
//! I1. What is of another cast, damaged, from nobody who takes part, or of another view changes nothing but a count.
//! I2. Symbols are taken for what they are only in the view of this node.

use alloc::boxed::Box;

use super::context::{Command, Event, Laggards, NodeConfig, Record};
use super::frame::{Frame, Preamble, Way};
use super::holding::Holding;
use super::objects::Objects;
use super::outgoing::Outgoing;
use super::receiver::{Receiver, Sender};
use super::reports::Reports;
use super::root::Root;
use super::state::{Label, NEVER, State};
use super::tree::{Links, View};
use super::views::Watch;
use crate::base::{LocalNs, Rank};
use crate::wire::{Arrival, Datagram, Engine, Input, More, Out, Status};

/// The engine of reliable broadcast.
#[derive(Debug)]
pub struct Node {
    pub(super) state: State,
    /// Of who sends. An heir is a receiver as well.
    pub(super) root: Option<Box<Root>>,
    pub(super) receiver: Option<Box<Receiver>>,
    pub(super) watch: Watch,
    /// Put out, or never in.
    pub(super) is_out: bool,
}

impl Node {
    /// A member as `config` says. A rank that is no member, and a root that is none, take no part.
    pub fn new(config: NodeConfig) -> Self {
        let place = |rank: Rank| config.members.iter().position(|member| member.rank == rank);
        let (me, root) = (place(config.rank), place(config.root));
        let view = View::first(config.members.len(), root.unwrap_or_default() as u16);
        let patience = match config.laggards {
            Laggards::Park(patience) => Some(patience),
            Laggards::Wait | Laggards::Evict(_) => None,
        };
        let history = config.history.max(config.window);
        let state = State {
            me: me.unwrap_or_default() as u16,
            base: view.clone(),
            view,
            is_formed: true,
            links: Links::default(),
            way: match config.way {
                Way::Multicast | Way::Segments if config.group.is_none() => Way::Chain,
                way => way,
            },
            since: 0,
            holding: Holding::new(history),
            objects: Objects::new(config.symbol.max(1)),
            outgoing: Outgoing::new(config.rate),
            reports: Reports::new(patience),
            polls: None,
            edge: 0,
            aborted: NEVER,
            end_told: false,
            shorts_stable: 0,
            to_group: 0,
            record: Record::default(),
            config,
        };
        let is_root = me.is_some() && me == root;
        let is_out = me.is_none() || root.is_none();
        let sender = (!is_out && is_root).then(|| Box::new(Root::new(&state)));
        let receiver = (!is_out && !is_root).then(|| Box::new(Receiver::new(&state, LocalNs(0))));
        Self { state, root: sender, receiver, watch: Watch::new(), is_out }
    }

    /// What was counted since the beginning.
    pub const fn record(&self) -> Record {
        self.state.record
    }

    fn boot(&mut self, now: LocalNs) {
        self.state.rewire(now);
        if self.root.is_some() {
            self.state.ask_from(now);
        }
        if let Some(receiver) = &mut self.receiver {
            receiver.root_heard = now;
        }
    }

    fn command(&mut self, now: LocalNs, command: Command, out: &mut Out<Event>) {
        let state = &mut self.state;
        match (command, &mut self.root, &mut self.receiver) {
            (Command::Cast { from }, Some(root), _) => root.cast(state, from, now, out),
            (Command::Flush, Some(root), _) => root.flush(state, now, out),
            (Command::Place { into }, _, Some(receiver)) => receiver.place(state, now, into, out),
            (Command::Release { object }, _, Some(receiver)) => receiver.release(state, now, object),
            (Command::Abort, Some(root), _) => root.abort(state, NEVER, now, out),
            (Command::Abort, None, Some(receiver)) => receiver.abort(state, out),
            (Command::Dead { rank }, ..) => {
                if let Some(place) = state.place_of(rank) {
                    self.known_dead(place, now, out);
                }
            }
            _ => {}
        }
    }

    fn arrival(&mut self, now: LocalNs, arrival: &Arrival<'_>, out: &mut Out<Event>) {
        match *arrival {
            Arrival::Datagram(datagram) => self.datagram(now, &datagram, out),
            Arrival::Done { token, status, value, .. } => match Label::of(token, self.state.holding.floor()) {
                Some(Label::Digest { sequence }) => self.digested(now, sequence, status, value as u32, out),
                Some(Label::Sent { line, sequence }) => self.state.sent(line, sequence, status),
                None => {}
            },
            Arrival::Room { queue } if queue.class() == Some(self.state.config.class) => self.state.outgoing.set_room(),
            _ => {}
        }
    }

    fn digested(&mut self, now: LocalNs, sequence: u64, status: Status, crc: u32, out: &mut Out<Event>) {
        if let Status::Refused(missing) = status {
            out.tell(Event::Refused { missing });
            self.is_out = true;
        }
        match (&mut self.receiver, &mut self.root) {
            (Some(receiver), root) => {
                receiver.digested(&mut self.state, now, sequence, crc, out);
                if let Some(root) = root {
                    root.came(&self.state, now);
                }
            }
            (None, Some(root)) => root.digested(&mut self.state, sequence, crc),
            (None, None) => {}
        }
    }

    fn datagram(&mut self, now: LocalNs, datagram: &Datagram<'_>, out: &mut Out<Event>) {
        let Some((preamble, frame)) = Frame::parse(datagram.head) else { return };
        let Some(place) = self.state.place_of(datagram.from) else { return };
        // A network may bring its own messages back to a member of the group that sends to it.
        if preamble.key != self.state.config.key || place == self.state.me {
            return;
        }
        if (Frame::Suspect { place }) == frame {
            return self.known_dead(place, now, out);
        }
        if preamble.view != self.state.view.word() {
            return self.other_view(now, place, &preamble, &frame, out);
        }
        if !self.state.view.is_in(place) {
            return;
        }
        if preamble.formed {
            self.state.formed();
        }
        self.state.reports.alive(place, now);
        let from = Sender { place, preamble: &preamble, body: datagram.body };
        if let Some(receiver) = self.receiver.as_mut().filter(|_| place == self.state.view.root()) {
            receiver.heard(preamble.to_group, datagram.congestion_marked, now);
        }
        match (&mut self.root, &mut self.receiver) {
            (Some(root), _) if !matches!(frame, Frame::Data(_) | Frame::Announce(_)) => {
                Self::at_root(root, &mut self.state, now, &from, &frame, out);
                if let Frame::Suspect { place } = frame {
                    self.remove(&[place], now, out);
                }
            }
            (_, Some(receiver)) => receiver.frame(&mut self.state, now, &from, &frame, out),
            _ => {}
        }
    }

    /// Whoever still counts on this member is told that it is out.
    fn is_asked_though_out(&mut self, now: LocalNs, datagram: &Datagram<'_>, out: &mut Out<Event>) {
        let Some((preamble, frame)) = Frame::parse(datagram.head) else { return };
        let says_the_same = matches!(frame, Frame::Suspect { .. });
        if preamble.key == self.state.config.key
            && !says_the_same
            && let Some(place) = self.state.place_of(datagram.from)
        {
            self.answer(place, &Frame::Suspect { place: self.state.me }, now, out);
        }
    }

    /// Something of another view: one that counts is joined, and who is in another one is told.
    fn other_view(&mut self, now: LocalNs, place: u16, from: &Preamble, frame: &Frame, out: &mut Out<Event>) {
        if let Frame::View(removed) = frame
            && let Some(view) = View::of(from.view, *removed, self.state.config.members.len())
            && self.joins(&view, from.formed)
        {
            self.told(view, from.formed, now, out);
        } else if !matches!(frame, Frame::Data(_) | Frame::Announce(_)) {
            self.differs(place, now, out);
        }
    }

    fn at_root(
        root: &mut Root,
        state: &mut State,
        now: LocalNs,
        from: &Sender<'_>,
        frame: &Frame,
        out: &mut Out<Event>,
    ) {
        match frame {
            Frame::Status(report) => {
                state.record.reports += 1;
                if state.reports.take(from.place, from.preamble.poll, *report, now) {
                    root.reported(state, now, out);
                }
            }
            Frame::Need(needs) => root.needed(state, from.place, needs, now),
            Frame::Have { block, held } => root.have(state, from.place, *block, *held, out),
            Frame::Abort { object } => root.abort(state, *object, now, out),
            _ => {}
        }
    }

    /// Lets leave what may after an input.
    fn go_on(&mut self, now: LocalNs, out: &mut Out<Event>) -> More {
        if let Some(root) = &mut self.root {
            root.prepare(&mut self.state, out);
            root.alone(&mut self.state, now, out);
        }
        self.state.pump(now, out)
    }
}

impl Engine for Node {
    type Command = Command;
    type Event = Event;

    fn input(&mut self, now: LocalNs, input: Input<'_, Command>, out: &mut Out<Event>) -> More {
        if self.is_out {
            if let Input::Arrival(Arrival::Datagram(datagram)) = input {
                self.is_asked_though_out(now, &datagram, out);
            }
            return More::No;
        }
        self.note(now);
        match input {
            Input::Boot { .. } => self.boot(now),
            Input::Arrival(arrival) => self.arrival(now, &arrival, out),
            Input::Command(command) => self.command(now, command, out),
            Input::Tick => {
                if let Some(root) = &mut self.root {
                    root.tick(&mut self.state, now, out);
                }
                if let Some(receiver) = &mut self.receiver {
                    receiver.tick(&mut self.state, now, out);
                }
                self.look(now, out);
            }
        }
        if self.is_out { More::No } else { self.go_on(now, out) }
    }

    fn deadline(&self) -> Option<LocalNs> {
        if self.is_out {
            return None;
        }
        let root = self.root.as_ref().and_then(|root| root.deadline(&self.state));
        let receiver = self.receiver.as_ref().and_then(|receiver| receiver.deadline());
        let watch = Some(self.watch.deadline());
        [root, receiver, watch, self.state.outgoing.deadline()].into_iter().flatten().min()
    }
}
