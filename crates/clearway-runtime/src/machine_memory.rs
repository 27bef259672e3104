//! Reads how much memory the machine has, and sets how this process gives back its own.

use std::fs;

use clearway_proto::base::Bytes;

/// Reads a figure of `/proc/meminfo`, such as `MemTotal`; none where the system has no such file.
pub fn machine_memory(figure: &str) -> Option<Bytes> {
    figure_in(&fs::read_to_string("/proc/meminfo").ok()?, figure)
}

/// The size from which on glibc maps a block by itself, and unmaps it when it is freed.
#[cfg(target_env = "gnu")]
const LARGE_BLOCK: libc::c_int = 128 << 10;

/// Has each freed block of 128 KiB and more returned to the system.
///
/// glibc begins with this threshold, and raises it to the size of each larger block that is freed, up
/// to 32 MiB. A process with many threads then keeps its peak of memory.
///
/// # Source
/// mallopt(3), `M_MMAP_THRESHOLD`.
#[allow(unsafe_code)]
pub fn return_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes two numbers, and locks the allocator while it sets one.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BLOCK);
    }
}

fn figure_in(text: &str, figure: &str) -> Option<Bytes> {
    let value = text.lines().find_map(|line| line.strip_prefix(figure)?.strip_prefix(':'));
    let kib: u64 = value?.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024).map(Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_in__is_in_kibibytes_and_whole_names_count() {
        let text = "MemTotalX: 1 kB\nMemTotal:       24 kB\nHugePages:  7\n";
        assert_eq!(figure_in(text, "MemTotal"), Some(Bytes(24 << 10)));
        assert_eq!(figure_in(text, "HugePages"), None);
        assert_eq!(figure_in(text, "Mem"), None);
        assert_eq!(figure_in(&format!("Mem: {} kB", u64::MAX), "Mem"), None);
        let text = "MemTotal:        8 kB\nMemAvailable:       3 kB\n";
        assert_eq!(figure_in(text, "MemAvailable"), Some(Bytes(3_072)));
        assert_eq!(figure_in("MemTotal: 8 kB\n", "MemAvailable"), None);
        let text = "MemAvailable: 99999999999999999999 kB\n";
        assert_eq!(figure_in(text, "MemAvailable"), None);
    }
}
