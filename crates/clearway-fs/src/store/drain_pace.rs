//! The rate at which bytes go to a store, of all steps of a child together.
//!
//! # Model
//! A file system takes writes into memory and sends them when it likes, or all at once at a sync. So
//! what is written at a pace is also synced in parts.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use clearway_proto::base::{BitsPerSec, Bytes};
use clearway_proto::flow::TokenBucket;
use clearway_runtime::clock;
use rustix::fs;
use rustix::io::Errno;

/// Bytes that may leave at once, and the least that are synced at a time.
const SYNC_BYTES: u64 = 1 << 20;
/// Syncs in a second at the full rate.
const SYNCS_A_SECOND: u64 = 4;
/// The longest time without a sign of progress: much less than any timeout.
const WAIT_MAX: Duration = Duration::from_millis(50);
/// Bytes of a turn: a long piece must not wait until short ones leave it a full bucket.
const TURN_BYTES: u64 = 64 << 10;

/// Holds writes back.
#[derive(Debug)]
pub(super) struct DrainPace {
    bucket: Mutex<TokenBucket>,
    sync_bytes: u64,
}

impl DrainPace {
    pub(super) fn new(rate: BitsPerSec) -> Self {
        let bucket = TokenBucket::new(rate, Bytes(SYNC_BYTES), clock::now());
        let sync_bytes = (rate.0 / 8 / SYNCS_A_SECOND).max(SYNC_BYTES);
        Self { bucket: Mutex::new(bucket), sync_bytes }
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
        if *unsynced >= self.sync_bytes {
            *unsynced = 0;
            fs::fdatasync(file)?;
        }
        Ok(())
    }
}
