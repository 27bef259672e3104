//! What acts on a simulated host: a member of the cast, or a neighbour who wants to know how long
//! eight bytes take meanwhile.

use clearway_proto::base::{Class, LocalNs, Nanos, Rank};
use clearway_proto::broadcast::{BroadcastCommand, BroadcastEvent, BroadcastNode};
use clearway_proto::wire::{Arrival, Destination, Engine, Input, More, Out, Span};

/// Between two questions of one neighbour: longer than an idle round trip on the fabrics that are
/// shipped.
const INTERVAL: Nanos = Nanos::from_micros(10);

/// An engine of one host.
#[derive(Debug)]
pub(super) enum HostEngine {
    Member(Box<BroadcastNode>),
    Neighbour(PingPong),
}

/// Asks its partner again and again, or answers.
#[derive(Debug)]
pub(super) struct PingPong {
    partner: Rank,
    /// When it asks next; none where it only answers.
    due: Option<LocalNs>,
    /// Round trips since they were last taken.
    trips: Vec<Nanos>,
}

impl PingPong {
    /// Creates the side that asks `partner`.
    pub(super) const fn asking(partner: Rank) -> Self {
        Self { partner, due: Some(LocalNs(0)), trips: Vec::new() }
    }

    /// Creates the side that answers `partner`.
    pub(super) const fn answering(partner: Rank) -> Self {
        Self { partner, due: None, trips: Vec::new() }
    }

    /// Returns the round trips since the last call.
    pub(super) fn take_trips(&mut self) -> Vec<Nanos> {
        std::mem::take(&mut self.trips)
    }

    fn input(
        &mut self,
        now: LocalNs,
        input: &Input<'_, BroadcastCommand>,
        out: &mut Out<BroadcastEvent>,
    ) {
        let mut send = |stamp: LocalNs| {
            out.send(
                Destination::One(self.partner),
                Class::LowLatency,
                &stamp.0.to_le_bytes(),
                Span::EMPTY,
                None,
            );
        };
        match input {
            Input::Tick if self.due.is_some_and(|due| due <= now) => {
                self.due = Some(now + INTERVAL);
                send(now);
            }
            Input::Arrival(Arrival::Datagram(datagram)) => {
                let Ok(stamp) =
                    datagram.head.try_into().map(|bytes| LocalNs(u64::from_le_bytes(bytes)))
                else {
                    return;
                };
                match self.due {
                    None => send(stamp),
                    Some(_) => self.trips.push(now.since(stamp)),
                }
            }
            _ => {}
        }
    }
}

impl Engine for HostEngine {
    type Command = BroadcastCommand;
    type Event = BroadcastEvent;

    fn input(
        &mut self,
        now: LocalNs,
        input: Input<'_, BroadcastCommand>,
        out: &mut Out<BroadcastEvent>,
    ) -> More {
        match self {
            Self::Member(node) => node.input(now, input, out),
            Self::Neighbour(neighbour) => {
                neighbour.input(now, &input, out);
                More::No
            }
        }
    }

    fn deadline(&self) -> Option<LocalNs> {
        match self {
            Self::Member(node) => node.deadline(),
            Self::Neighbour(neighbour) => neighbour.due,
        }
    }
}
