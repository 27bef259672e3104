//! The server's end: calls of all other ranks.

use alloc::collections::BTreeMap;

use super::frame::{ParcelKind, PieceFrame};
use super::inbox::{ParcelInbox, Violation};
use super::outbox::{ParcelOutbox, PieceEnd};
use super::{CallConfig, Parcel, ReceivedParcel};
use crate::base::{LocalNs, Rank};
use crate::wire::{Arrival, Engine, Input, More, Operation, Out, Span};

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
            outbox: ParcelOutbox::new(ParcelKind::Response, config),
            lost: BTreeMap::new(),
            unreported: BTreeMap::new(),
        }
    }

    fn lose(&mut self, client: Rank, cause: LossCause) {
        if self.lost.insert(client, cause).is_none() {
            self.unreported.insert(client, cause);
            self.outbox.drop_peer(client);
            self.inboxes.remove(&client);
        }
    }

    fn datagram(
        &mut self,
        from: Rank,
        head: &[u8],
        body: Span,
        out: &mut Out<ServerCallEvent>,
    ) -> Result<(), Violation> {
        if from == self.own || from.0 >= self.peers || self.lost.contains_key(&from) {
            return Ok(());
        }
        let frame = PieceFrame::decode(head).ok_or(Violation)?;
        if frame.kind != ParcelKind::Request {
            return Err(Violation);
        }
        let inbox =
            self.inboxes.entry(from).or_insert_with(|| ParcelInbox::new(&self.config, from.0));
        if let Some(request) = inbox.take(frame, body, out)? {
            out.notify(ServerCallEvent::Called { client: from, request });
        }
        Ok(())
    }

    fn release(&mut self, client: Rank, number: u64) {
        if let Some(inbox) = self.inboxes.get_mut(&client) {
            inbox.release(number);
        }
    }

    fn command(&mut self, command: ServerCallCommand) {
        match command {
            ServerCallCommand::Release { client, number } => self.release(client, number),
            ServerCallCommand::Answer { client, response } => {
                // The client believes that these frames are free when it has the response.
                self.release(client, response.number);
                if !self.lost.contains_key(&client) {
                    self.outbox.push(client, response);
                }
            }
        }
    }

    fn arrival(&mut self, arrival: Arrival<'_>, out: &mut Out<ServerCallEvent>) {
        match arrival {
            Arrival::Datagram(datagram) => {
                let from = datagram.from;
                if self.datagram(from, datagram.head, datagram.body, out).is_err() {
                    self.lose(from, LossCause::Violation);
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
        _now: LocalNs,
        input: Input<'_, ServerCallCommand>,
        out: &mut Out<ServerCallEvent>,
    ) -> More {
        match input {
            Input::Boot { .. } | Input::Tick => {}
            Input::Arrival(arrival) => self.arrival(arrival, out),
            Input::Command(command) => self.command(command),
        }
        while let Some((client, cause)) = self.unreported.pop_first() {
            out.operate(Operation::Abandon { peer: client });
            out.notify(ServerCallEvent::Lost { client, cause });
        }
        if self.outbox.flush(out) { More::Yes } else { More::No }
    }

    fn deadline(&self) -> Option<LocalNs> {
        None
    }
}
