//! What must be known to open a shared-memory wire, and the checks that it makes sense.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use clearway_proto::base::{Bytes, Nanos, Rank};

use super::layout::{RING_MAX, RING_MIN, SegmentLayout};
use crate::RuntimeError;
use crate::waiting::Waiting;

/// Local ranks of one job: a set of them is a u64. Each has rings from every other one, so that
/// memory grows with the square of their number.
pub const LOCAL_RANKS_MAX: usize = 64;

/// The default length of a ring for bulk between few ranks: stays in the second-level cache (see
/// `layout` for the measurement).
const RING: Bytes = Bytes(256 << 10);
/// What all default rings of a host may take before they are made shorter: the kernel clears each
/// page when the job starts. With 40 MiB for 16 ranks their start took 190 ms of processor time,
/// with 128 MiB 207 (medians of 8, turn by turn).
const HOST_MEMORY: Bytes = Bytes(32 << 20);

/// How long ranks wait for each other: as long as a launcher takes to start processes on a busy
/// host, several times over.
const TIMEOUT: Nanos = Nanos::from_millis(20_000);

/// One rank's part in a job over shared memory.
#[derive(Clone, Debug)]
pub struct ShmConfig {
    /// This end's rank.
    pub rank: Rank,
    /// The job's number: ranks of another one are not met. It keeps jobs apart; other users are
    /// kept out by the kernel's word for who they are.
    pub session: u64,
    /// The ranks of this host in ascending order, this one included.
    pub local: Vec<Rank>,
    /// Bytes of a ring for bulk, a power of two from 32 KiB to 1 GiB; rings of other classes have a
    /// quarter of it, and at least 32 KiB. The same for all ranks.
    pub ring: Bytes,
    /// How to wait.
    pub waiting: Waiting,
    /// How long to wait for the other ranks when opening.
    pub timeout: Nanos,
    /// Nobody waits for this rank any more when this can be read or was closed by its other end:
    /// opening ends then.
    pub while_silent: Option<Arc<OwnedFd>>,
}

/// Returns the longest ring, up to [`RING`], with which the rings of `ranks` take no more than
/// [`HOST_MEMORY`]; [`RING_MIN`] where none does.
fn default_ring(ranks: usize) -> Bytes {
    let fits = |ring: &Bytes| {
        ranks.saturating_mul(SegmentLayout::new(ranks, *ring).segment_length()) as u64
            <= HOST_MEMORY.0
    };
    let halves = std::iter::successors(Some(RING), |ring| Some(Bytes(ring.0 / 2)));
    halves.take_while(|ring| *ring > RING_MIN).find(fits).unwrap_or(RING_MIN)
}

impl ShmConfig {
    /// Creates the configuration of a job with default rings, which are shorter where ranks are
    /// many, and adaptive waiting.
    pub fn new(rank: Rank, session: u64, local: Vec<Rank>) -> Self {
        let ring = default_ring(local.len());
        Self {
            rank,
            session,
            local,
            ring,
            waiting: Waiting::Adaptive,
            timeout: TIMEOUT,
            while_silent: None,
        }
    }

    /// Finds what cannot work, before anything is made; this rank's place among the local ones
    /// otherwise.
    pub(super) fn check(&self) -> Result<usize, RuntimeError> {
        let in_order = self.local.windows(2).all(|pair| pair[0] < pair[1]);
        let place = self.local.iter().position(|rank| *rank == self.rank);
        match place {
            Some(place) if in_order && self.local.len() <= LOCAL_RANKS_MAX => {
                if self.ring < RING_MIN || self.ring > RING_MAX || !self.ring.0.is_power_of_two() {
                    return Err(RuntimeError::ShmRing {
                        ring: self.ring,
                        least: RING_MIN,
                        most: RING_MAX,
                    });
                }
                Ok(place)
            }
            _ => {
                let (rank, ranks) = (self.rank, self.local.len());
                Err(RuntimeError::ShmRanks { rank, ranks, most: LOCAL_RANKS_MAX })
            }
        }
    }

    pub(super) fn layout(&self) -> SegmentLayout {
        SegmentLayout::new(self.local.len(), self.ring)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: impl FnOnce(&mut ShmConfig)) -> String {
        let mut config = ShmConfig::new(Rank(5), 7, vec![Rank(4), Rank(5)]);
        assert_eq!(config.check().ok(), Some(1));
        change(&mut config);
        config.check().expect_err("cannot work").to_string()
    }

    #[test]
    fn check__says_what_is_wrong_and_what_would_work() {
        let sentence = "rank 5 cannot share memory with a list of 2 ranks; \
                        list at most 64 ranks of this host in ascending order, this one included";
        assert_eq!(refusal(|c| c.local = vec![Rank(5), Rank(4)]), sentence);
        assert_eq!(refusal(|c| c.local = vec![Rank(5), Rank(5)]), sentence);
        assert_eq!(refusal(|c| c.local = vec![Rank(4), Rank(6)]), sentence);
        assert!(refusal(|c| c.local = (0..65).map(Rank).collect()).contains("a list of 65 ranks"));
        let sentence = "a ring of 100 bytes cannot be used; choose a power of two from 32768 to 1073741824 bytes";
        assert_eq!(refusal(|c| c.ring = Bytes(100)), sentence);
        assert!(refusal(|c| c.ring = Bytes(2 << 30)).starts_with("a ring of 2147483648 bytes"));
    }
}
