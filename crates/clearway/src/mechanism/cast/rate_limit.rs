//! The rate of a cast's sender: its part of what the user allows, and of the budget of the site, and
//! the grants of the agent of the node.
//!
//! # Model
//! A cast demands as much as it gets. One that used less than three quarters of its part in each of
//! the last four half seconds, as its receivers or its disk allow no more, demands a third more than
//! the most of them: others use the rest. A pause of one half second changes nothing.

use clearway_proto::base::{BitsPerSec, LocalNs, Nanos};

use super::rate_share::RateShare;
use crate::agent::SenderLimits;

/// How long it is measured what a cast uses.
const MEASURED_FOR: Nanos = Nanos::from_millis(500);
/// How many such times a demand is from.
const MEASURED: usize = 4;
/// What is demanded of one that uses all it gets.
const MOST: BitsPerSec = BitsPerSec(u64::MAX);

/// What limits a round of a cast.
pub(super) struct RateLimit<'b> {
    share: Option<RateShare>,
    limits: &'b SenderLimits,
    last: Option<BitsPerSec>,
    used: UsedRate,
}

/// What a cast uses of its rate.
#[derive(Debug, Default)]
struct UsedRate {
    /// When the measurement began, and the bytes that had left then.
    began: Option<(LocalNs, u64)>,
    /// The least rate since then.
    rate: u64,
    /// What the last measurements would demand, by turns.
    demands: [Option<BitsPerSec>; MEASURED],
    turn: usize,
}

impl UsedRate {
    /// Takes the bytes that have left, and the rate from now on; returns the demand once it is known.
    /// At the floor only some packets leave in the time of a measurement, which then says nothing.
    fn demand(
        &mut self,
        now: LocalNs,
        bytes: u64,
        (rate, floor): (BitsPerSec, BitsPerSec),
    ) -> Option<BitsPerSec> {
        let Some((began, before)) = self.began else {
            // What comes before the first bytes says nothing.
            (self.began, self.rate) = ((bytes > 0).then_some((now, bytes)), rate.0);
            return None;
        };
        let took = now.since(began);
        if took < MEASURED_FOR {
            self.rate = self.rate.min(rate.0);
            return None;
        }
        let bits = u128::from(bytes.saturating_sub(before)) * 8 * 1_000_000_000;
        let used = u64::try_from(bits / u128::from(took.0)).unwrap_or(u64::MAX);
        let is_all = used >= self.rate / 4 * 3 || self.rate <= floor.0;
        (self.began, self.rate) = (Some((now, bytes)), rate.0);
        let demand = if is_all { MOST } else { BitsPerSec(used.saturating_add(used / 3)) };
        self.demands[self.turn % MEASURED] = Some(demand);
        self.turn += 1;
        let known: Option<Vec<BitsPerSec>> = self.demands.iter().copied().collect();
        known.and_then(|demands| demands.into_iter().max())
    }
}

impl<'b> RateLimit<'b> {
    /// Begins to send under these limits.
    pub(super) fn new(share: Option<RateShare>, limits: &'b SenderLimits) -> Self {
        let last = share.as_ref().map(RateShare::part);
        limits.set_demand(last.unwrap_or(MOST));
        limits.wait();
        Self { share, limits, last, used: UsedRate::default() }
    }

    /// Returns whether other casts have to notice this one.
    pub(super) fn is_shared(&self) -> bool {
        self.share.as_ref().is_some_and(|share| share.casts() > 1)
    }

    /// Returns the rate from now on if it changed, which may be that there is none; to be called every
    /// 100 ms, with the bytes that have left.
    pub(super) fn changed(&mut self, now: LocalNs, bytes: u64) -> Option<Option<BitsPerSec>> {
        let part = self.share.as_mut().map(|share| share.changed().unwrap_or_else(|| share.part()));
        let rate = self.limits.take(part);
        // Pauses take a third of the time at most.
        let whole = |rate: BitsPerSec| BitsPerSec(rate.0 / 3 * 2);
        let usable = rate.map(|rate| if self.limits.has_pauses() { whole(rate) } else { rate });
        if let Some(usable) = usable
            && let Some(demand) = self.used.demand(now, bytes, (usable, self.limits.floor()))
        {
            // What the cast may not use is for others.
            self.limits.set_demand(part.map_or(demand, |part| part.min(demand)));
        }
        (std::mem::replace(&mut self.last, rate) != rate).then_some(rate)
    }

    /// Returns the end of the pause of the node's scavengers that is now.
    pub(super) fn paused_until(&self, now: LocalNs) -> Option<LocalNs> {
        self.limits.paused_until(now)
    }

    /// Returns when to look again: in `usually`, or when a pause begins or ends before.
    pub(super) fn look_again(&self, now: LocalNs, usually: Nanos) -> LocalNs {
        let usual = now + usually;
        self.limits.deadline(now).map_or(usual, |at| at.min(usual))
    }
}

impl Drop for RateLimit<'_> {
    fn drop(&mut self) {
        self.limits.set_demand(BitsPerSec(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOOR: BitsPerSec = BitsPerSec(8_000);

    /// Measures a cast that sends these kB in each half second; the demand after the last one.
    fn demand(rate: BitsPerSec, kilobytes: &[u64]) -> Option<BitsPerSec> {
        let mut used = UsedRate::default();
        assert_eq!(used.demand(LocalNs(0), 0, (rate, FLOOR)), None, "nothing has left");
        let (mut now, mut bytes) = (LocalNs(1), 1);
        assert_eq!(used.demand(now, bytes, (rate, FLOOR)), None);
        let measured = kilobytes.iter().map(|more| {
            now += MEASURED_FOR;
            bytes += more * 1_000;
            assert_eq!(used.demand(LocalNs(now.0 - 1), bytes, (rate, FLOOR)), None);
            used.demand(now, bytes, (rate, FLOOR))
        });
        measured.last().flatten()
    }

    #[test]
    fn demand__one_that_uses_less_than_its_part_for_long_demands_a_third_more_than_that() {
        let rate = BitsPerSec(8_000_000);
        // 360 kB in 500 ms are 5.76 Mb/s, and 375 are three quarters of the rate.
        assert_eq!(demand(rate, &[360, 0, 180]), None, "not yet");
        assert_eq!(demand(rate, &[0, 360, 0, 180]), Some(BitsPerSec(7_680_000)));
        assert_eq!(demand(rate, &[0, 375, 0, 180]), Some(MOST));
        assert_eq!(demand(rate, &[375, 0, 90, 45, 30]), Some(BitsPerSec(1_920_000)));
        assert_eq!(demand(FLOOR, &[0, 0, 0, 0]), Some(MOST), "nothing is known at the floor");
    }

    #[test]
    fn demand__a_part_that_was_raised_meanwhile_was_used_whole() {
        let mut used = UsedRate::default();
        let at = |millis| LocalNs(0) + Nanos::from_millis(millis);
        for half in 0..5 {
            let (began, bytes) = (half * 500, half * 187_500 + 1);
            let demand = used.demand(at(began), bytes, (BitsPerSec(4_000_000), FLOOR));
            assert_eq!(demand, (half > 3).then_some(MOST));
            let raised = (BitsPerSec(8_000_000), FLOOR);
            assert_eq!(used.demand(at(began + 400), bytes, raised), None);
        }
    }
}
