//! The server's end: calls of all other ranks.

use alloc::collections::{BTreeMap, VecDeque};

use super::frame::{ParcelKind, PieceFrame};
use super::inbox::{ParcelInbox, Violation};
use super::outbox::{ParcelOutbox, PieceEnd};
use super::pace::{LanePace, PaceFrame};
use super::{CallConfig, ClientPace, PaceOrder, Parcel, ReceivedParcel};
use crate::base::{Class, LocalNs, Nanos, Rank};
use crate::wire::{Arrival, Datagram, Destination, Engine, Input, More, Operation, Out, Span};

/// Probes of a client without an echo: more than there are in 50 ms.
const PROBES_MAX: usize = 256;

/// What the application may ask of a [`CallServer`].
#[derive(Clone, Copy, Debug)]
pub enum ServerCallCommand {
    /// Says that the application is done with a request.
    Release {
        /// The client.
        client: Rank,
        /// The number of the call.
        number: u64,
    },
    /// Responds to a call, whose request is released by that. [`ServerCallEvent::Free`] follows.
    Answer {
        /// The client.
        client: Rank,
        /// The response, with the number of the call.
        response: Parcel,
    },
    /// Sends a probe. [`ServerCallEvent::Echoed`] follows, unless the wire has no room for it.
    Probe {
        /// The client.
        client: Rank,
        /// In this class.
        class: Class,
    },
    /// Sets the pace of a client, and pauses it.
    Pace {
        /// The client.
        client: Rank,
        /// The pace.
        pace: ClientPace,
        /// The length of the pause, at most 50 ms.
        pause: Nanos,
    },
}

impl ServerCallCommand {
    /// Creates the command that sends `order` to a client, with probes in `class`.
    pub const fn from_order(order: PaceOrder, client: Rank, class: Class) -> Self {
        match order {
            PaceOrder::Probe => Self::Probe { client, class },
            PaceOrder::Pace { pace, pause } => Self::Pace { client, pace, pause },
        }
    }
}

/// What a [`CallServer`] reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerCallEvent {
    /// A call has arrived; its request stays in its frames until it is released.
    Called {
        /// The client.
        client: Rank,
        /// The request.
        request: ReceivedParcel,
    },
    /// The memory of a response is free.
    Free {
        /// The client.
        client: Rank,
        /// The number of the call.
        number: u64,
    },
    /// The echo of a probe has arrived.
    Echoed {
        /// The client.
        client: Rank,
        /// When the probe left.
        sent_at: LocalNs,
        /// How long it and its echo took, without the time in the client.
        latency: Nanos,
    },
    /// Nothing has used frames for [`CallConfig::idle_max`]. Their memory can be given back while
    /// [`CallServer::are_frames_free`].
    FramesIdle,
    /// A client cannot be reached, or it broke a rule of the protocol. Responses to it are dropped.
    Lost {
        /// The client.
        client: Rank,
        /// Which of both.
        cause: LossCause,
    },
}

/// Why a client is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossCause {
    /// It does not acknowledge what is sent to it.
    Unreachable,
    /// It broke a rule of the protocol.
    Violation,
}

impl core::fmt::Display for LossCause {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Unreachable => "it cannot be reached",
            Self::Violation => "it broke a rule of the protocol",
        })
    }
}

/// The server's end of calls.
#[derive(Debug)]
pub struct CallServer {
    config: CallConfig,
    own: Rank,
    peers: u32,
    inboxes: BTreeMap<Rank, ParcelInbox>,
    /// When the last piece of each client arrived in a class that a pace holds back.
    newest: BTreeMap<Rank, LocalNs>,
    /// When the probes left that have no echo yet.
    probes: BTreeMap<Rank, VecDeque<LocalNs>>,
    /// When frames were used last; none once that was reported.
    used: Option<LocalNs>,
    outbox: ParcelOutbox,
    lost: BTreeMap<Rank, LossCause>,
    unreported: BTreeMap<Rank, LossCause>,
}

impl CallServer {
    /// Creates the server `own` among `ranks` ranks, for which there are frames by their number.
    pub fn new(own: Rank, ranks: u32, config: &CallConfig) -> Self {
        Self {
            config: config.clone(),
            own,
            peers: ranks,
            inboxes: BTreeMap::new(),
            newest: BTreeMap::new(),
            probes: BTreeMap::new(),
            used: None,
            outbox: ParcelOutbox::new(ParcelKind::Response, config),
            lost: BTreeMap::new(),
            unreported: BTreeMap::new(),
        }
    }

    /// Returns when the last piece of each client arrived in a class that a pace holds back.
    pub fn newest_data(&self) -> impl Iterator<Item = (Rank, LocalNs)> + '_ {
        self.newest.iter().map(|(client, at)| (*client, *at))
    }

    /// Returns whether no frame has anything in it.
    pub fn are_frames_free(&self) -> bool {
        self.inboxes.values().all(ParcelInbox::is_empty)
    }

    /// Returns when frames are idle, if they are free until then.
    fn idle_at(&self) -> Option<LocalNs> {
        let (used, idle_max) = (self.used?, self.config.idle_max?);
        self.are_frames_free().then_some(used + idle_max)
    }

    fn lose(&mut self, client: Rank, cause: LossCause) {
        if self.lost.insert(client, cause).is_none() {
            self.unreported.insert(client, cause);
            self.outbox.drop_peer(client);
            self.inboxes.remove(&client);
            self.newest.remove(&client);
            self.probes.remove(&client);
        }
    }

    fn datagram(
        &mut self,
        datagram: &Datagram<'_>,
        out: &mut Out<ServerCallEvent>,
    ) -> Result<(), Violation> {
        let &Datagram { from, head, body, .. } = datagram;
        if from == self.own || from.0 >= self.peers || self.lost.contains_key(&from) {
            return Ok(());
        }
        let at = datagram.at.instant();
        match PaceFrame::decode(head) {
            None => {}
            Some(PaceFrame::Echo { sent_at, delay, .. }) => {
                // An echo of no probe would be a sample of the client's choice.
                if self.is_awaited(from, sent_at) {
                    let latency = Nanos(at.since(sent_at).0.saturating_sub(delay.0));
                    out.notify(ServerCallEvent::Echoed { client: from, sent_at, latency });
                }
                return Ok(());
            }
            Some(_) => return Err(Violation),
        }
        let frame = PieceFrame::decode(head).ok_or(Violation)?;
        if LanePace::holds(frame.class) {
            self.newest.insert(from, at);
        }
        if frame.kind != ParcelKind::Request {
            return Err(Violation);
        }
        let inbox =
            self.inboxes.entry(from).or_insert_with(|| ParcelInbox::new(&self.config, from.0));
        self.used = self.used.max(Some(at));
        if let Some(request) = inbox.take(frame, body, out)? {
            out.notify(ServerCallEvent::Called { client: from, request });
        }
        Ok(())
    }

    fn release(&mut self, now: LocalNs, client: Rank, number: u64) {
        if let Some(inbox) = self.inboxes.get_mut(&client) {
            inbox.release(number);
            self.used = self.used.max(Some(now));
        }
    }

    fn command(
        &mut self,
        now: LocalNs,
        command: ServerCallCommand,
        out: &mut Out<ServerCallEvent>,
    ) {
        match command {
            ServerCallCommand::Release { client, number } => self.release(now, client, number),
            ServerCallCommand::Answer { client, response } => {
                // The client believes that these frames are free when it has the response.
                self.release(now, client, response.number);
                if !self.lost.contains_key(&client) {
                    self.outbox.push(client, response);
                }
            }
            ServerCallCommand::Probe { client, class } => {
                let probes = self.probes.entry(client).or_default();
                if probes.len() >= PROBES_MAX {
                    probes.pop_front();
                }
                probes.push_back(now);
                self.send_pace(client, PaceFrame::Probe { class, sent_at: now }, out);
            }
            ServerCallCommand::Pace { client, pace, pause } => {
                self.send_pace(client, PaceFrame::Pace { pace, pause }, out);
            }
        }
    }

    /// Returns whether a probe that left then has no echo yet; later ones have none before it.
    fn is_awaited(&mut self, client: Rank, sent_at: LocalNs) -> bool {
        let Some(probes) = self.probes.get_mut(&client) else { return false };
        while let Some(first) = probes.pop_front() {
            if first >= sent_at {
                if first > sent_at {
                    probes.push_front(first);
                }
                return first == sent_at;
            }
        }
        false
    }

    fn send_pace(&self, client: Rank, frame: PaceFrame, out: &mut Out<ServerCallEvent>) {
        if !self.lost.contains_key(&client) {
            let (to, head) = (Destination::One(client), frame.encode());
            out.send(to, frame.class(), head.bytes(), Span::EMPTY, None);
        }
    }

    fn arrival(&mut self, arrival: Arrival<'_>, out: &mut Out<ServerCallEvent>) {
        match arrival {
            Arrival::Datagram(datagram) => {
                let taken = self.datagram(&datagram, out);
                if taken.is_err() {
                    self.lose(datagram.from, LossCause::Violation);
                }
            }
            Arrival::Done { token, status, .. } => match self.outbox.end(token, status) {
                PieceEnd::Nothing => {}
                PieceEnd::Free(client, number) => {
                    out.notify(ServerCallEvent::Free { client, number });
                }
                PieceEnd::Lost(client) => self.lose(client, LossCause::Unreachable),
            },
            Arrival::Room { queue } => {
                queue.class().into_iter().for_each(|class| self.outbox.room(class));
            }
            _ => {}
        }
    }
}

impl Engine for CallServer {
    type Command = ServerCallCommand;
    type Event = ServerCallEvent;

    fn input(
        &mut self,
        now: LocalNs,
        input: Input<'_, ServerCallCommand>,
        out: &mut Out<ServerCallEvent>,
    ) -> More {
        match input {
            Input::Boot { .. } | Input::Tick => {}
            Input::Arrival(arrival) => self.arrival(arrival, out),
            Input::Command(command) => self.command(now, command, out),
        }
        while let Some((client, cause)) = self.unreported.pop_first() {
            out.operate(Operation::Abandon { peer: client });
            out.notify(ServerCallEvent::Lost { client, cause });
        }
        if self.idle_at().is_some_and(|at| at <= now) {
            self.used = None;
            out.notify(ServerCallEvent::FramesIdle);
        }
        if self.outbox.flush(now, out) { More::Yes } else { More::No }
    }

    fn deadline(&self) -> Option<LocalNs> {
        self.idle_at()
    }
}
