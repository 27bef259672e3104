//! How much a receiver asks for at a time: neighbours have no rate, and what all of them send must
//! not be more than its link takes.
//!
//! # Model
//! Symbols that were asked for and have not come are under way. They may be as many as the
//! allowance, which grows by one with each that comes, and after the first loss by one with all of
//! them that come. When what was asked for has to be asked for again, the allowance is half, and
//! the time until the next such question doubles until something comes.
//!
//! # Source
//! The congestion window of RFC 5681, kept where the losses are, because a receiver has many
//! sources and each of them many receivers.

use super::receive_window::BLOCK;
use crate::base::Nanos;

/// The first allowance: a block, which the smallest buffers of switches hold.
const FIRST: u32 = BLOCK as u32;
const LEAST: u32 = 2;
/// What the messages of one question can name.
const MOST: u32 = 40 * BLOCK as u32;
/// Doublings of the timeout: 64 times.
const DOUBLINGS: u32 = 6;

/// How many symbols may be asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct RepairAllowance {
    most: u32,
    /// Symbols that came since it last grew by one; none as long as it grows with each.
    came: Option<u32>,
    again: u32,
}

impl RepairAllowance {
    pub(super) const fn new() -> Self {
        Self { most: FIRST, came: None, again: 0 }
    }

    /// Returns how many more may be asked for while `under_way` are.
    pub(super) const fn room(&self, under_way: u32) -> u32 {
        self.most.saturating_sub(under_way)
    }

    /// Returns `timeout`, longer each time that nothing came.
    pub(super) fn timeout(&self, timeout: Nanos) -> Nanos {
        timeout.times(1 << self.again)
    }

    /// Records that a symbol came that was asked for.
    pub(super) fn came(&mut self) {
        self.again = 0;
        let grows = match &mut self.came {
            None => true,
            Some(came) => {
                *came += 1;
                *came >= self.most
            }
        };
        if grows {
            self.most = (self.most + 1).min(MOST);
            self.came = self.came.map(|_| 0);
        }
    }

    /// Records that `missing` symbols that were asked for did not come.
    pub(super) fn lost(&mut self, missing: u32) {
        self.again = (self.again + 1).min(DOUBLINGS);
        self.most = (self.most.min(missing.max(LEAST)) / 2).max(LEAST);
        self.came = Some(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowance__doubles_until_something_is_lost_and_then_grows_slowly() {
        let mut allowance = RepairAllowance::new();
        assert_eq!((allowance.room(0), allowance.room(70)), (64, 0));
        (0..64).for_each(|_| allowance.came());
        assert_eq!(allowance.room(0), 128);
        allowance.lost(100);
        assert_eq!(allowance.room(0), 50);
        (0..50).for_each(|_| allowance.came());
        assert_eq!(allowance.room(0), 51);
        (0..20).for_each(|_| allowance.lost(1));
        assert_eq!(allowance.room(0), LEAST);
    }

    #[test]
    fn timeout__doubles_as_long_as_nothing_comes() {
        let mut allowance = RepairAllowance::new();
        let trip = Nanos::from_micros(100);
        let timeout: alloc::vec::Vec<u64> = (0..9)
            .map(|_| {
                let now = allowance.timeout(trip).0 / 1_000;
                allowance.lost(9);
                now
            })
            .collect();
        assert_eq!(timeout, [100, 200, 400, 800, 1_600, 3_200, 6_400, 6_400, 6_400]);
        allowance.came();
        assert_eq!(allowance.timeout(trip), trip);
    }
}
