//! The pace of all clients of a server, decided from the delay that they cause.
//!
//! # Model
//! The server probes clients that send, in turns, as an application on their hosts sends. All
//! clients pause at once: one alone does not empty the queue of the others. A probe that left in a
//! pause, and behind which no data arrived before its echo, met the network without them; one that
//! left between pauses met it as the application does. Both kinds of samples go to a
//! [`YieldController`], whose rate the sending clients share.
//!
//! A pause in which data still arrived behind every probe was too short to empty the queues: the
//! next one is twice as long. After one that was long enough the next is half as long.
//!
//! Nobody is probed, and nothing is decided, while no client sends. The next one begins at the last
//! rate.
//!
//! # Invariants
//! I1. Clients that send get rates whose sum is at most that of the controller.
//! I2. A client gets its pace when it joins, before its first data.
//!
//! # Not here
//! Frames and engines: the caller passes times and sends the orders. Responses of a server are not
//! paced.

use alloc::collections::BTreeMap;

use super::ClientPace;
use crate::base::{BitsPerSec, LocalNs, Nanos};
use crate::flow::{ExcessCause, ProbeMoment, YieldController, YieldReport};

/// Between two probes, of all clients together; half of it in pauses, which are short.
const PROBE_EVERY: Nanos = Nanos::from_millis(1);
/// Between two pauses.
const PAUSE_EVERY: Nanos = Nanos::from_millis(50);
/// The length of a pause: six probes, and half of the time between pauses at most.
const PAUSE_MIN: Nanos = Nanos::from_millis(3);
const PAUSE_MAX: Nanos = Nanos::from_millis(24);
/// A client sends while its last data is younger than this.
const SENDS_FOR: Nanos = Nanos::from_millis(200);
/// By how many thousandths probes may become slower: a message that takes twice as long as on a quiet
/// network waits for one or two packets of others on its way.
const EXCESS: u32 = 1_000;

/// What a server's clients may do to its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacerConfig {
    /// The rate of the link.
    pub link: BitsPerSec,
    /// A rate that clients keep together, whatever they do to others.
    pub floor: BitsPerSec,
}

/// A message for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaceOrder {
    /// A probe.
    Probe,
    /// A pace.
    Pace {
        /// Which.
        pace: ClientPace,
        /// The length of a pause that begins at once.
        pause: Nanos,
    },
}

#[derive(Clone, Copy, Debug)]
struct PacedClient {
    last_data: LocalNs,
    probe_at: LocalNs,
    /// The number of the last pause that was announced to it.
    announced: Option<u64>,
}

impl PacedClient {
    const fn new(at: LocalNs) -> Self {
        Self { last_data: at, probe_at: at, announced: None }
    }
}

/// What the probes of a pause met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PauseSamples {
    None,
    /// Data of clients, all of them.
    Data,
    /// A network without them, one at least.
    Quiet,
}

/// Decides the pace of clients of a server; `K` names a client.
#[derive(Clone, Debug)]
pub struct ClientPacer<K> {
    config: PacerConfig,
    controller: YieldController,
    clients: BTreeMap<K, PacedClient>,
    began: LocalNs,
    /// The number of the last pause, its length, and what its probes met.
    number: u64,
    pause: Nanos,
    seen: PauseSamples,
    last_data: LocalNs,
    report: YieldReport,
}

impl<K: Ord + Copy> ClientPacer<K> {
    /// Creates it for a server without clients.
    pub fn new(now: LocalNs, config: PacerConfig) -> Self {
        let mut controller = YieldController::new_slow(now, config.link, EXCESS);
        controller.set_floor(config.floor);
        let report = YieldReport {
            excess_permille: 0,
            cause: ExcessCause::Unknown,
            rate: controller.rate(),
            for_deadline: BitsPerSec(0),
        };
        Self {
            config,
            controller,
            clients: BTreeMap::new(),
            began: now,
            number: 0,
            pause: PAUSE_MIN,
            seen: PauseSamples::None,
            last_data: LocalNs(0),
            report,
        }
    }

    /// Takes note of data of a client that arrived at `at`.
    pub fn data(&mut self, now: LocalNs, client: K, at: LocalNs) {
        if now.since(at) >= SENDS_FOR {
            return;
        }
        self.last_data = self.last_data.max(at);
        let known = self.clients.entry(client).or_insert(PacedClient::new(at));
        known.last_data = known.last_data.max(at);
    }

    /// Takes note of a client that connected, and may send soon.
    pub fn join(&mut self, now: LocalNs, client: K) {
        self.clients.insert(client, PacedClient::new(now));
    }

    /// Forgets a client that left.
    pub fn leave(&mut self, client: K) {
        self.clients.remove(&client);
    }

    /// Takes the echo of the probe that left at `sent_at`.
    pub fn echo(&mut self, sent_at: LocalNs, latency: Nanos) {
        if self.number_at(sent_at) != self.number {
            return;
        }
        if !self.is_pause(sent_at) {
            self.controller.sample(ProbeMoment::Sending, latency);
        } else if self.last_data < sent_at {
            self.seen = PauseSamples::Quiet;
            self.controller.sample(ProbeMoment::Paused, latency);
        } else if self.seen == PauseSamples::None {
            // What clients sent before the pause was still on its way.
            self.seen = PauseSamples::Data;
        }
    }

    /// Returns when [`Self::poll`] has something for a client that sends.
    pub fn deadline(&self, client: K) -> Option<LocalNs> {
        let paced = self.clients.get(&client)?;
        let Some(announced) = paced.announced else { return Some(paced.last_data) };
        let pause = self.began + PAUSE_EVERY.times(announced + 1);
        Some(pause.min(paced.probe_at))
    }

    fn number_at(&self, at: LocalNs) -> u64 {
        at.since(self.began).0 / PAUSE_EVERY.0
    }

    fn is_pause(&self, at: LocalNs) -> bool {
        at.since(self.began).0 % PAUSE_EVERY.0 < self.pause.0
    }

    /// Begins the pause of this number.
    fn begin_pause(&mut self, number: u64) {
        self.pause = match self.seen {
            PauseSamples::None => self.pause,
            PauseSamples::Data => self.pause.times(2).min(PAUSE_MAX),
            PauseSamples::Quiet => Nanos(self.pause.0 / 2).max(PAUSE_MIN),
        };
        (self.number, self.seen) = (number, PauseSamples::None);
    }

    /// Returns the next order for a client; call it until there is none.
    pub fn poll(&mut self, now: LocalNs, client: K) -> Option<PaceOrder> {
        if let Some(report) = self.controller.tick(now) {
            self.report = match report.cause {
                // Too few samples say nothing about the last ones.
                ExcessCause::Unknown => {
                    let YieldReport { rate, for_deadline, .. } = report;
                    YieldReport { rate, for_deadline, ..self.report }
                }
                _ => report,
            };
            self.clients.retain(|_, paced| now.since(paced.last_data) < SENDS_FOR);
        }
        let number = self.number_at(now);
        // The threads of clients have times of different age.
        if number > self.number {
            self.begin_pause(number);
        }
        let count = (self.clients.len() as u64).max(1);
        let is_pause = self.is_pause(now);
        let paced = self.clients.get_mut(&client)?;
        if paced.announced != Some(number) {
            paced.announced = Some(number);
            let end = self.began + PAUSE_EVERY.times(number) + self.pause;
            let rate = BitsPerSec((self.controller.rate().0 / count).max(1));
            let pace = ClientPace::new(rate, self.config.link);
            return Some(PaceOrder::Pace { pace, pause: end.since(now) });
        }
        if now >= paced.probe_at {
            let halves = if is_pause { 1 } else { 2 };
            paced.probe_at = now + Nanos(PROBE_EVERY.0 / 2).times(count * halves);
            return Some(PaceOrder::Probe);
        }
        None
    }

    /// Returns how many clients send.
    pub fn senders(&self, now: LocalNs) -> u64 {
        let sends = |paced: &&PacedClient| now.since(paced.last_data) < SENDS_FOR;
        self.clients.values().filter(sends).count() as u64
    }

    /// Returns the rate, and what the last decision with enough samples found.
    pub const fn report(&self) -> YieldReport {
        self.report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const LINK: BitsPerSec = BitsPerSec(200_000_000);

    fn pacer(floor: BitsPerSec) -> ClientPacer<u32> {
        ClientPacer::new(LocalNs(0), PacerConfig { link: LINK, floor })
    }

    /// Runs clients that send always but in pauses, for milliseconds; echoes take as long as `took`
    /// says of a rate. The paces of the last 50 ms.
    fn run(
        pacer: &mut ClientPacer<u32>,
        clients: u32,
        millis: u64,
        took: impl Fn(BitsPerSec) -> u64,
    ) -> Vec<(u32, ClientPace)> {
        let mut paces = Vec::new();
        let mut paused = LocalNs(0);
        for now in (0..millis * 10).map(|tenth| LocalNs(tenth * 100_000)) {
            for client in 0..clients {
                if now >= paused {
                    pacer.data(now, client, now);
                }
                while let Some(order) = pacer.poll(now, client) {
                    match order {
                        PaceOrder::Pace { pace, pause } => {
                            paused = paused.max(now + pause);
                            paces.push((client, pace));
                        }
                        PaceOrder::Probe => {
                            let is_quiet = now < paused;
                            let rate = if is_quiet { BitsPerSec(0) } else { pacer.report().rate };
                            let latency = Nanos(took(rate));
                            if !is_quiet {
                                pacer.data(now, client, now + Nanos(1));
                            }
                            pacer.echo(now, latency);
                        }
                    }
                }
            }
        }
        paces.split_off(paces.len() - clients as usize)
    }

    #[test]
    fn poll__clients_share_what_delays_nobody() {
        let mut pacer = pacer(BitsPerSec(0));
        // Above a quarter of the link messages wait.
        let took = |rate: BitsPerSec| 100_000 + rate.0.saturating_sub(LINK.0 / 4) / 100;
        let paces = run(&mut pacer, 4, 3_000, took);
        assert_eq!(paces.iter().map(|(client, _)| *client).collect::<Vec<_>>(), [0, 1, 2, 3]);
        let sum: u64 = paces.iter().map(|(_, pace)| pace.rate.0).sum();
        assert!((LINK.0 / 8..LINK.0 / 2).contains(&sum), "{sum}");
        assert!(pacer.report().excess_permille > 0);
    }

    #[test]
    fn poll__a_pause_that_does_not_empty_the_queues_is_made_longer_and_short_again() {
        let mut pacer = pacer(BitsPerSec(0));
        let mut pauses = Vec::new();
        // Each pause is followed by data that was on its way, for 10 ms, and later no more.
        for now in (0..8_000).map(|tenth| LocalNs(tenth * 100_000)) {
            let backlog = if now < LocalNs(400_000_000) { 10_000_000 } else { 1_000_000 };
            let is_arriving = now.0 % PAUSE_EVERY.0 < backlog || now.0 % PAUSE_EVERY.0 > 24_000_000;
            if now.0 == 0 || is_arriving {
                pacer.data(now, 1, now);
            }
            while let Some(order) = pacer.poll(now, 1) {
                match order {
                    PaceOrder::Pace { pause, .. } => pauses.push(pause.0 / 1_000_000),
                    PaceOrder::Probe => {
                        if is_arriving {
                            pacer.data(now, 1, now + Nanos(1));
                        }
                        pacer.echo(now, Nanos(100_000));
                    }
                }
            }
        }
        assert_eq!(pauses[..4], [3, 6, 12, 6]);
        assert_eq!(pauses.last(), Some(&3));
    }

    #[test]
    fn poll__the_floor_stays_and_its_price_is_reported() {
        let mut pacer = pacer(BitsPerSec(LINK.0 / 2));
        let paces = run(&mut pacer, 1, 3_000, |rate| 100_000 + rate.0);
        assert_eq!(paces[0].1.rate.0, LINK.0 / 2);
        assert!(pacer.report().for_deadline.0 > 0);
    }

    #[test]
    fn poll__a_client_that_begins_gets_a_pace_at_once_and_one_that_ends_none() {
        let mut pacer = pacer(BitsPerSec(0));
        let begin = LocalNs(70_000_000);
        assert_eq!(pacer.deadline(7), None);
        pacer.join(begin, 7);
        assert!(pacer.deadline(7) <= Some(begin));
        let order = pacer.poll(begin, 7);
        let pace = ClientPace::new(BitsPerSec(LINK.0 / 100), LINK);
        assert_eq!(order, Some(PaceOrder::Pace { pace, pause: Nanos::ZERO }));
        assert_eq!(pacer.poll(begin, 7), Some(PaceOrder::Probe));
        assert_eq!(pacer.poll(begin, 7), None);
        // Data that is old says nothing, and the client is forgotten.
        let end = begin + SENDS_FOR;
        pacer.data(end, 7, begin);
        assert_eq!((pacer.poll(end, 7), pacer.deadline(7)), (None, None));
    }
}
