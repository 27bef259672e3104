//! One member of a cast: gives every input to the root or the receiver that it is.
//!
//! # Invariants
//! I1. A message that is of another cast, damaged, from nobody who takes part, or of another view
//!     changes nothing but a count.
//! I2. Symbols are taken for what they are only in the view of this node.

use alloc::boxed::Box;

use super::child_reports::ChildReports;
use super::context::{
    BroadcastCommand, BroadcastConfig, BroadcastEvent, BroadcastRecord, SlowReceivers,
};
use super::frame::{Algorithm, BroadcastFrame, Preamble};
use super::objects::Objects;
use super::receive_window::ReceiveWindow;
use super::receiver::{Receiver, Sender};
use super::root::Root;
use super::state::{BroadcastLabel, MemberState, NEVER};
use super::transmit_queues::TransmitQueues;
use super::tree::{TreeLinks, View};
use super::view_monitor::ViewMonitor;
use crate::base::{LocalNs, Rank};
use crate::wire::{Arrival, Datagram, Engine, Input, More, Out, Status};

/// The engine of reliable broadcast.
#[derive(Debug)]
pub struct BroadcastNode {
    pub(super) state: MemberState,
    /// Of who sends. A successor root is a receiver as well.
    pub(super) root: Option<Box<Root>>,
    pub(super) receiver: Option<Box<Receiver>>,
    pub(super) watch: ViewMonitor,
    /// Put out, or never in.
    pub(super) is_out: bool,
}

impl BroadcastNode {
    /// Creates a member as `config` says. A rank that is no member, and a root that is none, take
    /// no part.
    pub fn new(config: BroadcastConfig) -> Self {
        let place = |rank: Rank| config.members.iter().position(|member| member.rank == rank);
        let (me, root) = (place(config.rank), place(config.root));
        let view = View::first(config.members.len(), root.unwrap_or_default() as u16);
        let timeout = match config.slow_receivers {
            SlowReceivers::Park(timeout) => Some(timeout),
            SlowReceivers::Wait | SlowReceivers::Evict(_) => None,
        };
        let history = config.history.max(config.window);
        let is_root = me.is_some() && me == root;
        let first_rate = config.first_rate.filter(|_| is_root).into_iter().chain(config.rate).min();
        let state = MemberState {
            me: me.unwrap_or_default() as u16,
            base: view.clone(),
            view,
            is_formed: true,
            links: TreeLinks::default(),
            algorithm: match config.algorithm {
                Algorithm::Multicast | Algorithm::Segments if config.group.is_none() => {
                    Algorithm::Chain
                }
                way => way,
            },
            since: 0,
            holding: ReceiveWindow::new(history),
            objects: Objects::new(config.symbol.max(1)),
            outgoing: TransmitQueues::new(first_rate),
            reports: ChildReports::new(timeout),
            polls: None,
            edge: 0,
            aborted: NEVER,
            end_reported: false,
            shorts_stable: 0,
            to_group: 0,
            record: BroadcastRecord::default(),
            config,
        };
        let is_out = me.is_none() || root.is_none();
        let sender = (!is_out && is_root).then(|| Box::new(Root::new(&state)));
        let receiver = (!is_out && !is_root).then(|| Box::new(Receiver::new(&state, LocalNs(0))));
        Self { state, root: sender, receiver, watch: ViewMonitor::new(), is_out }
    }

    /// Returns what was counted since the beginning.
    pub const fn record(&self) -> BroadcastRecord {
        self.state.record
    }

    /// Root: the member that has the least of what has left, by the last reports; nobody while
    /// nothing is under way.
    pub fn slowest(&self) -> Option<Rank> {
        let place = self.root.as_ref()?.slowest(&self.state)?;
        self.state.config.members.get(usize::from(place)).map(|member| member.rank)
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

    fn command(&mut self, now: LocalNs, command: BroadcastCommand, out: &mut Out<BroadcastEvent>) {
        let state = &mut self.state;
        match (command, &mut self.root, &mut self.receiver) {
            (BroadcastCommand::Cast { from }, Some(root), _) => root.cast(state, from, now, out),
            (BroadcastCommand::Flush, Some(root), _) => root.flush(state, now, out),
            (BroadcastCommand::Limit { rate }, Some(root), _) => root.limit(state, rate),
            (BroadcastCommand::Pause { until }, Some(_), _) => state.outgoing.pause(until),
            (BroadcastCommand::Place { into }, _, Some(receiver)) => {
                receiver.place(state, now, into, out)
            }
            (BroadcastCommand::Release { object }, _, Some(receiver)) => {
                receiver.release(state, now, object)
            }
            (BroadcastCommand::Abort, Some(root), _) => root.abort(state, NEVER, now, out),
            (BroadcastCommand::Abort, None, Some(receiver)) => receiver.abort(state, out),
            (BroadcastCommand::Dead { rank }, ..) => {
                if let Some(place) = state.place_of(rank) {
                    self.known_dead(place, now, out);
                }
            }
            _ => {}
        }
    }

    fn arrival(&mut self, now: LocalNs, arrival: &Arrival<'_>, out: &mut Out<BroadcastEvent>) {
        match *arrival {
            Arrival::Datagram(datagram) => self.datagram(now, &datagram, out),
            Arrival::Done { token, status, value, .. } => {
                match BroadcastLabel::from_token(token, self.state.holding.floor()) {
                    Some(BroadcastLabel::Digest { sequence }) => {
                        self.digested(now, sequence, status, value as u32, out)
                    }
                    Some(BroadcastLabel::Sent { line, sequence }) => {
                        self.state.sent(line, sequence, status)
                    }
                    None => {}
                }
            }
            Arrival::Room { queue } if queue.class() == Some(self.state.config.class) => {
                self.state.outgoing.set_room()
            }
            _ => {}
        }
    }

    fn digested(
        &mut self,
        now: LocalNs,
        sequence: u64,
        status: Status,
        crc: u32,
        out: &mut Out<BroadcastEvent>,
    ) {
        if let Status::Refused(missing) = status {
            out.notify(BroadcastEvent::Refused { missing });
            self.is_out = true;
        }
        match (&mut self.receiver, &mut self.root) {
            (Some(receiver), root) => {
                receiver.digested(&mut self.state, now, sequence, crc, out);
                if let Some(root) = root {
                    root.symbol_arrived(&self.state, now);
                }
            }
            (None, Some(root)) => root.digested(&mut self.state, sequence, crc),
            (None, None) => {}
        }
    }

    fn datagram(&mut self, now: LocalNs, datagram: &Datagram<'_>, out: &mut Out<BroadcastEvent>) {
        let Some((preamble, frame)) = BroadcastFrame::parse(datagram.head) else { return };
        let Some(place) = self.state.place_of(datagram.from) else { return };
        // A network may bring its own messages back to a member of the group that sends to it.
        if preamble.key != self.state.config.key || place == self.state.me {
            return;
        }
        if (BroadcastFrame::Suspect { place }) == frame {
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
            receiver.packet_received(preamble.to_group, datagram.congestion_marked, now);
        }
        match (&mut self.root, &mut self.receiver) {
            (Some(root), _)
                if !matches!(frame, BroadcastFrame::Data(_) | BroadcastFrame::Announce(_)) =>
            {
                Self::at_root(root, &mut self.state, now, &from, &frame, out);
                if let BroadcastFrame::Suspect { place } = frame {
                    self.remove(&[place], now, out);
                }
            }
            (_, Some(receiver)) => receiver.frame(&mut self.state, now, &from, &frame, out),
            _ => {}
        }
    }

    /// Notifies members that still count on this member that it is out.
    fn is_asked_though_out(
        &mut self,
        now: LocalNs,
        datagram: &Datagram<'_>,
        out: &mut Out<BroadcastEvent>,
    ) {
        let Some((preamble, frame)) = BroadcastFrame::parse(datagram.head) else { return };
        let says_the_same = matches!(frame, BroadcastFrame::Suspect { .. });
        if preamble.key == self.state.config.key
            && !says_the_same
            && let Some(place) = self.state.place_of(datagram.from)
        {
            self.answer(place, &BroadcastFrame::Suspect { place: self.state.me }, now, out);
        }
    }

    /// Handles something of another view: joins a view that counts, and notifies a member that is
    /// in another one.
    fn other_view(
        &mut self,
        now: LocalNs,
        place: u16,
        from: &Preamble,
        frame: &BroadcastFrame,
        out: &mut Out<BroadcastEvent>,
    ) {
        if let BroadcastFrame::View(removed) = frame
            && let Some(view) = View::parse(from.view, *removed, self.state.config.members.len())
            && self.joins(&view, from.formed)
        {
            self.handle_view(view, from.formed, now, out);
        } else if !matches!(frame, BroadcastFrame::Data(_) | BroadcastFrame::Announce(_)) {
            self.differs(place, now, out);
        }
    }

    fn at_root(
        root: &mut Root,
        state: &mut MemberState,
        now: LocalNs,
        from: &Sender<'_>,
        frame: &BroadcastFrame,
        out: &mut Out<BroadcastEvent>,
    ) {
        match frame {
            BroadcastFrame::Status(report) => {
                state.record.reports += 1;
                if state.reports.take(from.place, from.preamble.poll, *report, now) {
                    root.reported(state, now, out);
                }
            }
            BroadcastFrame::Need(needs) => root.needed(state, from.place, needs, now),
            BroadcastFrame::Have { block, held } => {
                root.have(state, from.place, *block, *held, out)
            }
            BroadcastFrame::Abort { object } => root.abort(state, *object, now, out),
            _ => {}
        }
    }

    /// Lets leave what may after an input.
    fn go_on(&mut self, now: LocalNs, out: &mut Out<BroadcastEvent>) -> More {
        if let Some(root) = &mut self.root {
            root.prepare(&mut self.state, out);
            root.alone(&mut self.state, now, out);
        }
        self.state.pump(now, out)
    }
}

impl Engine for BroadcastNode {
    type Command = BroadcastCommand;
    type Event = BroadcastEvent;

    fn input(
        &mut self,
        now: LocalNs,
        input: Input<'_, BroadcastCommand>,
        out: &mut Out<BroadcastEvent>,
    ) -> More {
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
