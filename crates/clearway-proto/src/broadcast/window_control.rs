//! How much may be under way, and how fast it leaves, where nobody knows what the network carries:
//! what the slowest member takes; and which member takes too little to be waited for.
//!
//! # Model
//! A *round* is over when all have received what had left at its beginning. The window doubles in
//! each round that used it, until the first loss; from then on it grows by a thirty-second. A loss
//! takes off the share that was lost, and a fifth at least, once in a round. Within the window
//! symbols leave at twice the rate at which they came in the last round, so that they fill no queue
//! at once. What is lost is never more than a window, and while it is repaired hardly anything else
//! leaves.
//!
//! A member is *below the floor* when it loses, most members do not, and less than a sixteenth of
//! what those take comes to it. What they take is the configured rate, or the highest at which most
//! lost nothing, and less than a rate at which most lost. A single report does not say which member
//! that is: one whose process did not run for a moment can be the slowest in it. So after [`TIMEOUT`]
//! the member is named that was the slowest for most of the time: the application decides whether the
//! others continue without it. Where most lose it is the network that is slow, and nobody is below.
//!
//! # Source
//! Slow start, additive increase and multiplicative decrease, and one reaction in a round (RFC 5681,
//! RFC 6582), with the factor of CUBIC, 0.8, because one reaction is to the worst of many receivers.
//! A window that was not used does not grow (RFC 7661). Pacing at twice the rate: Linux, `tcp_pacing_ss_ratio`.
//!
//! # Invariants
//! I1. The rate is never above the configured one, the window never above the configured one.

use alloc::collections::BTreeMap;

use super::frame::ProgressReport;
use super::rate_control::{LOST, MARKED};
use crate::base::{BitsPerSec, Bytes, LocalNs, Nanos};

/// The first window: two questions of the root.
const FIRST: u32 = 128;
/// The least: what leaves together.
const LEAST: u32 = 16;
/// The least rate: slower links carry no bulk data.
const LEAST_RATE: BitsPerSec = BitsPerSec::mega(1);
/// Part of the window that is added in a round.
const ADDED: u32 = 32;
/// A member to which less than this part comes of what most take is not waited for.
const FLOOR: u64 = 16;
/// How long a member may be below the floor: longer than a switch or an interface that recovers.
const TIMEOUT: Nanos = Nanos::from_secs(2);

/// Before the first loss, and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GrowthPhase {
    Doubling,
    Adding,
}

/// What is under way until all have received it.
#[derive(Clone, Copy, Debug, Default)]
struct PacingRound {
    began: LocalNs,
    /// All had received this when it began, and the other end had left.
    from: u64,
    until: u64,
    /// The window was made smaller in it.
    is_cut: bool,
}

/// Which members were the slowest since one is below the floor.
#[derive(Debug)]
struct BelowFloor {
    since: LocalNs,
    /// The slowest member in the latest report, and when that came.
    slowest: (u16, LocalNs),
    /// How long each member was the slowest.
    times: BTreeMap<u16, Nanos>,
}

impl BelowFloor {
    /// Adds the time since the report before to the member that was the slowest in it.
    fn count(&mut self, slowest: u16, now: LocalNs) {
        let (before, at) = core::mem::replace(&mut self.slowest, (slowest, now));
        let time = self.times.entry(before).or_insert(Nanos::ZERO);
        *time = Nanos(time.0.saturating_add(now.since(at).0));
    }

    /// Returns the member that was the slowest for most of the time.
    fn member(&self) -> u16 {
        let longest = self.times.iter().max_by_key(|(_, time)| **time);
        longest.map_or(self.slowest.0, |(place, _)| *place)
    }
}

/// The root's window and rate.
#[derive(Debug)]
pub(super) struct WindowControl {
    most: Option<BitsPerSec>,
    window_most: u32,
    rate: BitsPerSec,
    window: u32,
    phase: GrowthPhase,
    round: PacingRound,
    /// The highest rate at which most members lost nothing, and the lowest at which most lost.
    taken: u64,
    refused: u64,
    below: Option<BelowFloor>,
}

/// What a report tells, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacingReport<'r> {
    pub(super) merged: &'r ProgressReport,
    /// Below this everything has left.
    pub(super) edge: u64,
    /// A round trip.
    pub(super) trip: Nanos,
    /// What leaves for a symbol: a full packet, as often as it leaves.
    pub(super) packet: Bytes,
    /// How long what leaves now waits for the rate.
    pub(super) wait: Nanos,
    pub(super) now: LocalNs,
}

impl WindowControl {
    /// Creates a window of at most `window_most` symbols, which leave at `rate` in the beginning and
    /// never faster than `most`.
    pub(super) fn new(window_most: u32, rate: BitsPerSec, most: Option<BitsPerSec>) -> Self {
        Self {
            most,
            window_most,
            rate: most.map_or(rate, |most| rate.min(most)),
            window: FIRST.min(window_most),
            phase: GrowthPhase::Doubling,
            round: PacingRound::default(),
            taken: 0,
            refused: u64::MAX,
            below: None,
        }
    }

    pub(super) const fn window(&self) -> u32 {
        self.window
    }

    pub(super) const fn rate(&self) -> BitsPerSec {
        self.rate
    }

    /// Sets the most from now on, if there is one.
    pub(super) fn limit(&mut self, most: Option<BitsPerSec>) {
        self.most = most;
        self.rate = most.map_or(self.rate, |most| self.rate.min(most));
    }

    /// Takes a report of all.
    pub(super) fn reported(&mut self, report: &PacingReport<'_>) {
        let ProgressReport { lost, losing, marked, alive, received, slowest, .. } = *report.merged;
        if let Some(below) = &mut self.below {
            below.count(slowest, report.now);
        }
        let took = report.now.since(self.round.began);
        let is_over = received >= self.round.until && took >= report.trip;
        let is_bad = lost > LOST || marked > MARKED;
        let is_of_most = u64::from(losing) * 2 > u64::from(alive);
        if is_of_most {
            self.refused = self.refused.min(self.rate.0);
            self.below = None;
        }
        if is_bad && !self.round.is_cut {
            self.round.is_cut = true;
            self.phase = GrowthPhase::Adding;
            self.window = kept(self.window, lost).max(LEAST.min(self.window_most));
            if !is_of_most {
                self.taken = self.taken.max(self.rate.0);
            }
        }
        let PacingRound { began, from, until, is_cut } = self.round;
        // No more than had left can have come until now.
        let came_most = rate_of(until.saturating_sub(from), report.packet, took);
        if losing > 0 && !is_of_most && until > from && came_most < self.floor() {
            let slowest = (slowest, report.now);
            let begin = || BelowFloor { since: began, slowest, times: BTreeMap::new() };
            self.below.get_or_insert_with(begin);
        }
        if !is_over {
            return;
        }
        let is_used = until.saturating_sub(from) >= u64::from(self.window / 2);
        if is_used && !is_cut {
            self.window = match self.phase {
                GrowthPhase::Doubling => self.window.saturating_mul(2),
                GrowthPhase::Adding => self.window + (self.window / ADDED).max(1),
            }
            .min(self.window_most);
        }
        if is_used || report.wait > Nanos::ZERO {
            if !is_cut {
                self.taken = self.taken.max(self.rate.0);
            }
            let most = self.most.map_or(u64::MAX, |most| most.0);
            let came = rate_of(received.saturating_sub(from), report.packet, took);
            // While something is repaired less comes than could.
            let rate = came.saturating_mul(2).max(self.rate.0 / 2).max(LEAST_RATE.0);
            self.rate = BitsPerSec(rate.min(most));
            if came >= self.floor() {
                self.below = None;
            }
        }
        self.round =
            PacingRound { began: report.now, from: received, until: report.edge, is_cut: false };
    }

    /// Returns the least rate of a member that is waited for.
    fn floor(&self) -> u64 {
        self.most.map_or(self.taken, |most| most.0).min(self.refused) / FLOOR
    }

    /// Returns the member that has been below the floor for too long.
    pub(super) fn below_floor(&self, now: LocalNs) -> Option<u16> {
        let below = self.below.as_ref().filter(|below| now.since(below.since) > TIMEOUT);
        below.map(BelowFloor::member)
    }

    /// Begins anew from the present window, after the slowest member was named.
    pub(super) fn recover(&mut self) {
        (self.phase, self.below) = (GrowthPhase::Doubling, None);
    }
}

/// Returns what of `window` came through when `lost` millionths did not, and at most four fifths.
fn kept(window: u32, lost: u32) -> u32 {
    let came = u64::from(window) * u64::from(1_000_000 - lost.min(1_000_000)) / 1_000_000;
    (window / 5 * 4).min(came as u32)
}

/// Returns the rate of this many packets in this time.
fn rate_of(packets: u64, packet: Bytes, time: Nanos) -> u64 {
    let bits = u128::from(packets) * u128::from(packet.0) * 8;
    u64::try_from(bits * 1_000_000_000 / u128::from(time.0.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIP: Nanos = Nanos::from_micros(200);
    const NOTHING: ProgressReport = ProgressReport {
        received: 0,
        stable: 0,
        known: 0,
        slots: 0,
        places: 0,
        alive: 10,
        heard: 0,
        slowest: 3,
        lost: 0,
        losing: 0,
        marked: 0,
        settled: false,
    };

    fn begins(most: Option<u64>) -> WindowControl {
        WindowControl::new(1024, BitsPerSec::mega(100), most.map(BitsPerSec::mega))
    }

    /// A report after `at` microseconds, when `edge` packets of 1,000 bytes have left: some of ten
    /// members have lost, the worst of them this many millionths. Returns the window, and the rate in
    /// megabits a second.
    fn report(
        control: &mut WindowControl,
        (lost, losing): (u32, u32),
        (received, edge): (u64, u64),
        at: u64,
    ) -> (u32, u64) {
        let merged = ProgressReport { received, stable: received, lost, losing, ..NOTHING };
        take(control, &merged, edge, at);
        (control.window(), control.rate().0 / 1_000_000)
    }

    fn take(control: &mut WindowControl, merged: &ProgressReport, edge: u64, at: u64) {
        control.reported(&PacingReport {
            merged,
            edge,
            trip: TRIP,
            packet: Bytes(1_000),
            wait: Nanos::ZERO,
            now: LocalNs(at * 1_000),
        });
    }

    #[test]
    fn reported__the_window_doubles_in_a_round_until_a_loss_and_then_grows_slowly() {
        let mut control = begins(None);
        assert_eq!(report(&mut control, (0, 0), (0, 128), 1_000), (128, 100));
        assert_eq!(report(&mut control, (0, 0), (100, 228), 2_000), (128, 100), "not over");
        assert_eq!(report(&mut control, (0, 0), (128, 256), 3_000), (256, 1_024));
        assert_eq!(report(&mut control, (250_000, 1), (200, 456), 4_000), (192, 1_024));
        assert_eq!(report(&mut control, (250_000, 1), (210, 456), 5_000), (192, 1_024), "once");
        assert_eq!(report(&mut control, (0, 0), (456, 640), 6_000), (192, 1_749), "repaired");
        assert_eq!(report(&mut control, (0, 0), (640, 840), 7_000), (198, 2_944));
        assert_eq!(report(&mut control, (10_000, 1), (840, 900), 8_000).0, 204, "a link's own");
        assert_eq!(report(&mut control, (0, 0), (900, 910), 9_000).0, 204, "it was not used");
        assert_eq!(report(&mut control, (50_000, 1), (905, 910), 9_000).0, 160, "a fifth");
    }

    #[test]
    fn reported__never_below_the_least_or_above_the_most() {
        let mut control = begins(Some(400));
        for at in 1..40_u64 {
            let (window, rate) =
                report(&mut control, (0, 0), (1024 * at, 1024 * (at + 1)), at * 500);
            assert!(window <= 1024 && rate <= 400);
        }
        for at in 40..80_u64 {
            report(&mut control, (990_000, 9), (1024 * at, 1024 * (at + 1)), at * 90_000_000);
        }
        assert_eq!((control.window(), control.rate()), (LEAST, LEAST_RATE));
        control.limit(Some(BitsPerSec(500_000)));
        assert_eq!(control.rate(), BitsPerSec(500_000));
    }

    #[test]
    fn below_floor__one_that_loses_where_most_do_not_for_longer_than_the_timeout() {
        // Twenty packets in a round, and a loss in each: 1 Mb/s come.
        let slow = |losing, most| {
            let mut control = begins(most);
            for at in 0..60 {
                let (received, edge) = (at * 20, at * 20 + 20);
                report(&mut control, (0, losing), (received, edge), at * 160_000);
                report(&mut control, (500_000, losing), (received, edge), at * 160_000 + 1);
            }
            let named = control.below_floor(LocalNs(12_000_000_000));
            control.recover();
            (named, control.below_floor(LocalNs(22_000_000_000)))
        };
        assert_eq!(slow(1, None), (Some(3), None), "1 Mb/s where most took 100");
        assert_eq!(slow(6, None), (None, None), "where most lose it is the network");
        assert_eq!(slow(1, Some(10)), (None, None), "a tenth is slow, and waited for");
    }

    #[test]
    fn below_floor__is_the_member_that_was_the_slowest_for_most_of_the_time() {
        let mut control = begins(None);
        let mut tell = |slowest, at: u64| {
            let received = at / 160_000 * 20;
            let merged = ProgressReport { received, lost: 500_000, losing: 1, slowest, ..NOTHING };
            take(&mut control, &merged, received + 20, at);
            control.below_floor(LocalNs(at * 1_000))
        };
        // Member 1 is the slowest for a moment in each round, and when the time is over.
        let named = (0..40).flat_map(|round| {
            let at = round * 160_000;
            [tell(3, at), tell(1, at + 150_000)]
        });
        assert_eq!(named.flatten().next(), Some(3));
    }
}
