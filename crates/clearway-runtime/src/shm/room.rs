//! Whether the machine has memory for a segment, asked before the kernel is: it would rather end a
//! process than refuse.
//!
//! # Source
//! `MemAvailable` of `/proc/meminfo` (`proc(5)`): what can be had without swapping, shared memory
//! included. An anonymous file does not count against the size of `/dev/shm`.
//!
//! # Not here
//! A container's own limit, which the kernel enforces by ending somebody.

use clearway_proto::base::Bytes;

use crate::machine_memory::machine_memory;

/// Returns how much memory the machine could give, as far as it says.
pub(super) fn available() -> Option<Bytes> {
    machine_memory("MemAvailable")
}

/// Returns whether `length` bytes can be had; a machine that does not say is believed to have them.
pub(super) fn is_there(length: usize) -> bool {
    available().is_none_or(|available| length as u64 <= available.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_there__a_page_is_and_a_pebibyte_is_not() {
        assert!(is_there(4_096));
        assert!(!is_there(1 << 50) || available().is_none());
    }
}
