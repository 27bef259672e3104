//! Limits the memory of heaps. It checks in advance, because the kernel kills processes instead of
//! refusing an allocation.
//!
//! # Source
//! `/proc/meminfo` (`proc(5)`).
//!
//! # Not here
//! The limit of a container, which the kernel enforces by killing a process.

use std::fs;

/// The heap of a PE without a requested size: what most programs of the test suites and
/// benchmarks fit into.
const DEFAULT: usize = 1 << 30;
/// The least that is offered, however little there is.
const LEAST: usize = 16 << 20;
/// Heaps are multiples of it by default.
const UNIT: usize = 2 << 20;

/// The machine's memory in bytes, and what could be had now.
fn memory() -> Option<(u64, u64)> {
    parse(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse(text: &str) -> Option<(u64, u64)> {
    let of = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
    };
    Some((of("MemTotal:")?, of("MemAvailable:")?))
}

/// What all heaps of this host may take together without a requested size.
pub(crate) fn room_for_heaps() -> u64 {
    memory().map_or(u64::MAX, |(_, available)| available / 2)
}

/// The heap of each of `pes` PEs that have `room` bytes together, without a requested size.
pub(crate) fn default_heap(room: u64, pes: usize) -> usize {
    let share = usize::try_from(room / pes.max(1) as u64).unwrap_or(usize::MAX);
    share.clamp(LEAST, DEFAULT) / UNIT * UNIT
}

/// Refuses heaps that the machine could never hold.
pub(crate) fn check_heap(heap: usize, pes: usize) -> Result<(), String> {
    let Some((total, available)) = memory() else { return Ok(()) };
    let needed = (heap as u64).saturating_mul(pes as u64);
    if needed <= total {
        return Ok(());
    }
    let mib = |bytes: u64| bytes >> 20;
    Err(format!(
        "symmetric heaps of {} MiB for {pes} PEs take {} MiB, and this host has {} MiB, of which {} are free; set \
         SHMEM_SYMMETRIC_SIZE to at most {}m",
        mib(heap as u64),
        mib(needed),
        mib(total),
        mib(available),
        mib(available / pes as u64)
    ))
}

/// Returns whether this many bytes may be more than there are. Small amounts are left to the
/// kernel: a look takes as long as getting them.
pub(crate) const fn is_worth_a_look(bytes: usize) -> bool {
    bytes > 8 << 20
}

/// Refuses `bytes` more for each of `pes` PEs when there are fewer left.
pub(crate) fn check_room(bytes: usize, pes: usize) -> Result<(), String> {
    let needed = (bytes as u64).saturating_mul(pes as u64);
    match memory() {
        Some((_, available)) if needed > available => Err(format!(
            "the symmetric heaps of {pes} PEs need {} MiB more, and this host has {} MiB free",
            needed >> 20,
            available >> 20
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse__finds_both_lines_and_counts_in_kib() {
        let text = "MemTotal:        8 kB\nMemFree: 1 kB\nMemAvailable:       3 kB\n";
        assert_eq!(parse(text), Some((8_192, 3_072)));
        assert_eq!(parse("MemTotal: 8 kB\n"), None);
    }

    #[test]
    fn check_heap__says_how_much_is_there() {
        assert_eq!(check_heap(1 << 20, 2), Ok(()));
        let sentence = check_heap(1 << 50, 2).unwrap_err();
        assert!(
            sentence.starts_with("symmetric heaps of 1073741824 MiB for 2 PEs")
                && sentence.contains("are free")
        );
        assert!(check_room(1 << 50, 1).is_err());
        assert!((LEAST..=DEFAULT).contains(&default_heap(room_for_heaps(), 256)));
        assert_eq!([default_heap(0, 0), default_heap(u64::MAX, 2)], [LEAST, DEFAULT]);
    }
}
