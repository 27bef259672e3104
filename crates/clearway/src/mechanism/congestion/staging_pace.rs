//! The pace of staging clients, set by their server from the delay that they cause.
//!
//! # Model
//! The server probes its clients in turns. An answer before which data arrived since its probe left
//! met staging on its way; one before which none arrived since then met the network without it. Both
//! kinds go to the controller, whose rate the clients share, and who pauses all clients at once: one
//! alone does not empty the queue of the others.
//! ```text
//!   0xf1 probe, 0xf2 answer   when it left (u64), by the server's clock
//!   0xf3 pace                 bits a second of a client (u64), length of a pause from now on in ns (u64)
//! ```
//!
//! # Invariants
//! I1. A client without a pace sends as fast as its lane.

use clearway_proto::base::{BitsPerSec, ByteReader, Bytes, Class, Head, LocalNs, Nanos, Rank};
use clearway_proto::flow::{ProbeMoment, TokenBucket, YieldController};
use clearway_proto::wire::{Destination, Out, PathId, Queue, Span};

/// Between two probes: 64 bytes at this pace are less than 1 Mb/s.
const PROBE_EVERY: Nanos = Nanos::from_millis(1);
/// Between two pauses.
const PAUSE_EVERY: Nanos = Nanos::from_millis(50);
/// The length of a pause: an eighteenth of the time, and three probes long.
const PAUSE: Nanos = Nanos::from_millis(3);
/// By how many thousandths probes may become slower. A probe alone waits for a frame in service, which
/// in a laboratory is a fifth of its time.
const EXCESS: u32 = 500;
/// What a client may send at once: some frames of Ethernet.
const BURST: Bytes = Bytes(8 << 10);

const PROBE: u8 = 0xf1;
const ANSWER: u8 = 0xf2;
const PACE: u8 = 0xf3;

/// A message of this module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PaceFrame {
    Probe { left: u64 },
    Answer { left: u64 },
    Pace { rate: u64, pause: u64 },
}

impl PaceFrame {
    /// Reads a header; any bytes are a message or none.
    pub(super) fn parse(head: &[u8]) -> Option<Self> {
        let mut rest = ByteReader::new(head);
        let [kind] = rest.take()?;
        let first = rest.u64()?;
        let frame = match kind {
            PROBE => Self::Probe { left: first },
            ANSWER => Self::Answer { left: first },
            PACE => Self::Pace { rate: first, pause: rest.u64()? },
            _ => return None,
        };
        rest.is_empty().then_some(frame)
    }

    fn encode(self) -> Head<17> {
        let mut head = Head::new();
        match self {
            Self::Probe { left } => head.put(&[PROBE]).put(&left.to_le_bytes()),
            Self::Answer { left } => head.put(&[ANSWER]).put(&left.to_le_bytes()),
            Self::Pace { rate, pause } => {
                head.put(&[PACE]).put(&rate.to_le_bytes()).put(&pause.to_le_bytes())
            }
        };
        head
    }

    /// Sends it to `to`.
    pub(super) fn send<E>(self, to: Rank, class: Class, out: &mut Out<E>) {
        out.send(Destination::One(to), class, self.encode().bytes(), Span::EMPTY, None);
    }
}

/// The server's side.
#[derive(Debug)]
pub(super) struct ServerPace {
    controller: YieldController,
    class: Class,
    clients: Vec<Rank>,
    turn: usize,
    probe_at: LocalNs,
    pause_at: LocalNs,
    last_data: LocalNs,
}

impl ServerPace {
    /// Creates it for a link of this rate; probes have `class`.
    pub(super) fn new(now: LocalNs, link: BitsPerSec, class: Class) -> Self {
        Self {
            controller: YieldController::new(now, link, EXCESS),
            class,
            clients: Vec::new(),
            turn: 0,
            probe_at: now,
            pause_at: now + PAUSE_EVERY,
            last_data: LocalNs(0),
        }
    }

    /// Takes note of data from `client`.
    pub(super) fn data(&mut self, client: Rank, at: LocalNs) {
        self.last_data = self.last_data.max(at);
        if !self.clients.contains(&client) {
            self.clients.push(client);
        }
    }

    /// Takes the answer to the probe that left at `left`.
    pub(super) fn answer(&mut self, now: LocalNs, left: u64) {
        let left = LocalNs(left);
        let moment = if self.last_data < left { ProbeMoment::Paused } else { ProbeMoment::Sending };
        self.controller.sample(moment, now.since(left));
    }

    pub(super) fn deadline(&self) -> LocalNs {
        self.probe_at.min(self.pause_at).min(self.controller.deadline())
    }

    /// Probes, decides and pauses.
    pub(super) fn tick<E>(&mut self, now: LocalNs, out: &mut Out<E>) {
        let _ = self.controller.tick(now);
        if now >= self.probe_at {
            self.probe_at = now + PROBE_EVERY;
            self.turn += 1;
            if let Some(client) = self.clients.get(self.turn % self.clients.len().max(1)) {
                PaceFrame::Probe { left: now.0 }.send(*client, self.class, out);
            }
        }
        if now >= self.pause_at {
            self.pause_at = now + PAUSE_EVERY;
            let rate = self.controller.rate().0 / (self.clients.len() as u64).max(1);
            for client in &self.clients {
                PaceFrame::Pace { rate, pause: PAUSE.0 }.send(*client, self.class, out);
            }
        }
    }
}

/// The client's side: a lane that is held back.
#[derive(Clone, Debug)]
pub(super) struct ClientPace {
    bucket: TokenBucket,
    paused_until: LocalNs,
    /// The queue that was refused, and when it has room again.
    pub(super) refused: Option<(Queue, LocalNs)>,
}

impl ClientPace {
    pub(super) fn new(now: LocalNs, rate: BitsPerSec) -> Self {
        let bucket = TokenBucket::new(rate, BURST, now);
        Self { bucket, paused_until: now, refused: None }
    }

    /// Takes a pace from the server.
    pub(super) fn set(&mut self, now: LocalNs, rate: BitsPerSec, pause: Nanos) {
        self.bucket.set_rate(now, rate);
        // A pause that a server names in error ends with the next pace.
        self.paused_until = now + pause.min(PAUSE_EVERY);
    }

    /// Returns whether a fragment of this length may leave now; if not, its queue has room later.
    pub(super) fn lets(&mut self, now: LocalNs, path: PathId, class: Class, bytes: Bytes) -> bool {
        let until = if now < self.paused_until {
            Err(self.paused_until)
        } else {
            self.bucket.take(now, bytes)
        };
        self.refused =
            until.err().map(|until| (Queue::Path { path, class }, until)).or(self.refused);
        until.is_ok()
    }

    /// Returns the queue that has room again.
    pub(super) fn room(&mut self, now: LocalNs) -> Option<Queue> {
        let (queue, _) = self.refused.take_if(|(_, until)| *until <= now)?;
        Some(queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse__what_is_written_is_read_and_other_bytes_are_nothing() {
        for frame in [
            PaceFrame::Probe { left: 7 },
            PaceFrame::Answer { left: u64::MAX },
            PaceFrame::Pace { rate: 9, pause: 3 },
        ] {
            let head = frame.encode();
            assert_eq!(PaceFrame::parse(head.bytes()), Some(frame));
            assert_eq!(PaceFrame::parse(&head.bytes()[1..]), None);
        }
        assert_eq!(PaceFrame::parse(&[PROBE; 10]), None);
    }

    #[test]
    fn lets__nothing_leaves_in_a_pause_and_the_rate_holds_behind_it() {
        let mut pace = ClientPace::new(LocalNs(0), BitsPerSec(8_000_000));
        pace.set(LocalNs(0), BitsPerSec(8_000_000), Nanos(1_000));
        let mut ask = |now, bytes| {
            let lets = pace.lets(LocalNs(now), PathId(0), Class::Bulk, Bytes(bytes));
            (lets, pace.refused.map(|(_, until)| until.0))
        };
        assert_eq!(ask(999, 1), (false, Some(1_000)));
        assert!(ask(1_000, BURST.0).0);
        assert_eq!(ask(1_000, 1_000), (false, Some(1_001_000)));
        assert_eq!(pace.room(LocalNs(1_000_999)), None);
        assert!(pace.room(LocalNs(1_001_000)).is_some());
    }

    #[test]
    fn answer__a_probe_that_met_data_slows_clients_down() {
        let link = BitsPerSec::mega(100);
        let mut pace = ServerPace::new(LocalNs(0), link, Class::LowLatency);
        let mut out: Out<()> = Out::with_limit(64);
        for at in (0..60_u64).map(|turn| turn * 1_000_000 + 1) {
            let is_paused = at % 50_000_000 > 44_000_000;
            if !is_paused {
                pace.data(Rank(1), LocalNs(at + 10));
            }
            let took = if is_paused { 100_000 } else { 900_000 };
            pace.answer(LocalNs(at + took), at);
            pace.tick(LocalNs(at + took), &mut out);
        }
        assert_eq!(pace.controller.rate().0, link.0 / 2);
    }
}
