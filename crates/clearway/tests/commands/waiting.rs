//! Waiting for what another process does, where only looking shows it.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// The longest that anything may take on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The pause between two looks. Without one, a test that waits takes the processor from the
/// processes that it waits for.
const PAUSE: Duration = Duration::from_millis(10);

/// Looks until `look` is true; returns whether it becomes true in time.
pub(crate) fn comes(mut look: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + TIMEOUT;
    while !look() {
        if Instant::now() >= until {
            return false;
        }
        thread::sleep(PAUSE);
    }
    true
}

/// Returns whether `file` is there and has at least `bytes` bytes.
pub(crate) fn has_bytes(file: &Path, bytes: u64) -> bool {
    fs::metadata(file).is_ok_and(|file| file.len() >= bytes)
}

/// Looks until `look` is true.
///
/// # Panics
/// `what` is not so in time.
pub(crate) fn wait_until(what: &str, look: impl FnMut() -> bool) {
    assert!(comes(look), "not so: {what}");
}
