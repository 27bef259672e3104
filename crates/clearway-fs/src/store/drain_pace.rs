//! The rate at which bytes go to a store, of all steps of a child together.
//!
//! # Model
//! A file system takes writes into memory and sends them when it likes, or all at once at a sync. So
//! what is written at a pace is also synced in parts.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use clearway_proto::base::{BitsPerSec, Bytes};
use clearway_proto::flow::TokenBucket;
use clearway_runtime::clock;
use rustix::fs;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Bytes that may leave at once, and the least that are synced at a time.
const SYNC_BYTES: u64 = 1 << 20;
/// Syncs in a second at the full rate.
const SYNCS_A_SECOND: u64 = 4;
/// The longest time without a sign of progress: much less than any timeout, and less than a pause
/// of an agent, after which the rate is another.
const WAIT_MAX: Duration = Duration::from_millis(20);
/// Bytes of a turn: a long piece must not wait until short ones leave it a full bucket.
const TURN_BYTES: u64 = 64 << 10;

/// A rate of a drain that changes while it runs.
pub trait DrainAllowance: fmt::Debug + Send + Sync {
    /// Returns the rate from now on, for a drain with this many steps that wait or are under way. It
    /// is asked every 100 ms while there are steps, and once when there are none.
    fn take(&self, steps: usize) -> BitsPerSec;

    /// Returns after how long at most the next rate is taken, where that is less than usual.
    fn changes_in(&self) -> Option<Duration> {
        None
    }

    /// Returns for how long and how far the agent of the node held the drain back; none where it
    /// never did.
    fn held_back(&self) -> Option<DrainHeld> {
        None
    }
}

/// For how long and how far the agent of the node held a drain back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainHeld {
    /// How long it could have been faster, in ns.
    pub time_ns: u64,
    /// Its mean rate in this time, in bits a second.
    pub mean_bits_per_second: u64,
    /// The least rate.
    pub least_bits_per_second: u64,
}

/// Holds writes back.
#[derive(Debug)]
pub(super) struct DrainPace {
    bucket: Mutex<TokenBucket>,
    sync_bytes: AtomicU64,
}

/// Returns how much is written between two syncs.
fn sync_bytes(rate: BitsPerSec) -> u64 {
    (rate.0 / 8 / SYNCS_A_SECOND).max(SYNC_BYTES)
}

impl DrainPace {
    pub(super) fn new(rate: BitsPerSec) -> Self {
        let bucket = TokenBucket::new(rate, Bytes(SYNC_BYTES), clock::now());
        Self { bucket: Mutex::new(bucket), sync_bytes: AtomicU64::new(sync_bytes(rate)) }
    }

    /// Changes the rate.
    pub(super) fn set_rate(&self, rate: BitsPerSec) {
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        bucket.set_rate(clock::now(), rate);
        self.sync_bytes.store(sync_bytes(rate), Ordering::Relaxed);
    }

    /// Waits until this many bytes may be written. `progress` is called meanwhile.
    pub(super) fn wait(&self, bytes: u64, progress: &dyn Fn()) {
        let mut rest = bytes;
        while rest > 0 {
            let turn = rest.min(TURN_BYTES);
            let now = clock::now();
            let taken =
                self.bucket.lock().unwrap_or_else(PoisonError::into_inner).take(now, Bytes(turn));
            match taken {
                Ok(()) => rest -= turn,
                Err(until) => {
                    sleep(Duration::from_nanos(until.since(now).0).min(WAIT_MAX));
                    progress();
                }
            }
        }
    }

    /// Syncs a file when enough of it was written since the last time.
    pub(super) fn written(
        &self,
        file: &OwnedFd,
        bytes: u64,
        unsynced: &mut u64,
    ) -> Result<(), Errno> {
        *unsynced += bytes;
        if *unsynced >= self.sync_bytes.load(Ordering::Relaxed) {
            *unsynced = 0;
            fs::fdatasync(file)?;
        }
        Ok(())
    }
}
