//! Maps the memory that the PEs of one host share: one file without a name, which each PE maps as a
//! whole and never unmaps.
//!
//! # Model
//! The leader makes the file, sparse and with its size sealed; all PEs map it. It holds
//!
//! | part | bytes | allocated |
//! |---|---|---|
//! | board | one page | at once |
//! | lines of each PE of the job | 64 KiB | at once |
//! | heap of each PE of this host | as configured | by its owner, as its allocations grow |
//! | rings to each PE of this host, one from each | 36 KiB | by the PE that fills it |
//! | pool of each PE of this host | 256 MiB | by its owner |
//!
//! Statics are in separate files, because a process makes its statics shareable before it knows the
//! other PEs.
//!
//! A mapping lasts as long as the process: another thread may copy while a PE ends, and a program may
//! hold an address in it.
//!
//! # Source
//! `memfd_create(2)`, `fallocate(2)`, `mmap(2)`.
//!
//! # Invariants
//! I1. No reference leaves the mapping: indices are asserted against the layout.
//! I2. The pages of a mapping cannot be removed: sizes are sealed.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};

/// A page, on all supported machines; larger pages are multiples.
const PAGE: usize = 4_096;
/// Heaps begin at multiples of this: a huge page of x86, and a multiple of every other page.
const HEAP_UNIT: usize = 2 << 20;
/// Slots of each PE for synchronisation; a team uses one.
pub const SLOTS: usize = 256;
/// Lines of a slot.
pub const LINES: usize = 4;
/// Bytes of the lines of one PE.
const LINES_LENGTH: usize = SLOTS * LINES * size_of::<Line>();
/// Bytes of the ring from one PE to another: a page for its counters, and eight slots of a page.
/// Eight, so that a sender continues while a receiver is descheduled for a moment.
pub const RING_LENGTH: usize = 9 * PAGE;
/// Address space from which a PE allocates memory that it shares with some PEs only: the channels
/// of its data queues.
const POOL_LENGTH: usize = 256 << 20;
/// The preferred address of the first PE's heap: far from the addresses that the loader and `mmap`
/// use on 47-bit machines, so that all processes are likely to get it.
const WISHED: usize = 0x2000_0000_0000;

/// One cache line: the epoch that a PE has reached, and up to 56 bytes of payload.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Line {
    /// Counts up, and wraps. Other PEs wait for a value.
    pub epoch: AtomicU32,
    /// Threads that sleep until `epoch` changes.
    pub sleepers: AtomicU32,
    /// Data of the epoch, written before it.
    pub payload: [AtomicU64; 7],
}

/// Words that all PEs of the host share and rarely read.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct JobStatusWords {
    /// The PE that sets it first reports why the job ends.
    pub spoken: AtomicU32,
    /// The status with which it ends.
    pub status: AtomicU32,
    /// How often PEs of this host reached the end of the program, in sum.
    pub leaving: AtomicU32,
}

/// A part of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FilePart {
    start: usize,
    length: usize,
}

/// The offsets of all parts in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostLayout {
    pub(super) places: usize,
    owners: usize,
    pub(super) heap: usize,
    stride: usize,
    heaps: usize,
    rings: usize,
    pools: usize,
}

impl HostLayout {
    /// Creates the layout for `places` PEs with heaps of `heap` bytes, and lines of `owners` PEs;
    /// `None` if no address space could hold them.
    pub(super) fn new(places: usize, owners: usize, heap: usize) -> Option<Self> {
        let heap = heap.max(1).checked_next_multiple_of(PAGE)?;
        let stride = heap.checked_next_multiple_of(HEAP_UNIT)?;
        let heaps = PAGE
            .checked_add(owners.checked_mul(LINES_LENGTH)?)?
            .checked_next_multiple_of(HEAP_UNIT)?;
        let rings = places.checked_mul(stride)?.checked_add(heaps)?;
        let pools = places.checked_mul(places)?.checked_mul(RING_LENGTH)?.checked_add(rings)?;
        let layout = Self { places, owners, heap, stride, heaps, rings, pools };
        let total = places.checked_mul(POOL_LENGTH)?.checked_add(pools)?;
        (total <= isize::MAX as usize / 2).then_some(layout)
    }

    pub(super) const fn length(&self) -> usize {
        self.pools + self.places * POOL_LENGTH
    }

    /// Returns where the ring to `target` that `source` fills lies.
    pub(super) fn ring(&self, target: usize, source: usize) -> FilePart {
        assert!(target < self.places && source < self.places, "no such ring");
        FilePart {
            start: self.rings + (target * self.places + source) * RING_LENGTH,
            length: RING_LENGTH,
        }
    }

    /// Returns where the pool of the PE at `place` lies.
    pub(super) fn pool(&self, place: usize) -> FilePart {
        assert!(place < self.places, "no PE at place {place}");
        FilePart { start: self.pools + place * POOL_LENGTH, length: POOL_LENGTH }
    }

    const fn heap_at(&self, place: usize) -> usize {
        self.heaps + place * self.stride
    }
}

/// A mapping that stays until the process ends.
#[derive(Clone, Copy, Debug)]
struct Mapped {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: it belongs to the process, not to a thread, and is never unmapped.
unsafe impl Send for Mapped {}

// SAFETY: by a shared reference only addresses and atomics are given out.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps `length` bytes of `file`, at `wished` if that is free.
    fn new(file: BorrowedFd<'_>, length: usize, wished: Option<usize>) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let at = |address: usize, flags| {
            let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | flags;
            let address = ptr::without_provenance_mut(address);
            // SAFETY: the kernel chooses the address, or refuses one that is in use
            // (`MAP_FIXED_NOREPLACE`), so the mapping replaces nothing; failure is checked below.
            unsafe { libc::mmap(address, length, protection, flags, file.as_raw_fd(), 0) }
        };
        let mut start =
            wished.map_or(libc::MAP_FAILED, |address| at(address, libc::MAP_FIXED_NOREPLACE));
        if start == libc::MAP_FAILED {
            start = at(0, 0);
        }
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { start, length })
    }
}

/// The host's file, mapped.
#[derive(Debug)]
pub(super) struct HostMemory {
    mapped: Mapped,
    layout: HostLayout,
    file: OwnedFd,
}

impl HostMemory {
    /// Makes the file and maps it for the PE at `place`.
    pub(super) fn create(layout: HostLayout, place: usize) -> io::Result<Self> {
        let length = layout.length();
        let file = sealed_file("clearway-near", length, |file| {
            rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, layout.heaps as u64)
        })?;
        Self::map(file, layout, place)
    }

    /// Maps the file that the leader made.
    pub(super) fn open(file: OwnedFd, layout: HostLayout, place: usize) -> io::Result<Self> {
        check(file.as_fd(), layout.length())?;
        Self::map(file, layout, place)
    }

    fn map(file: OwnedFd, layout: HostLayout, place: usize) -> io::Result<Self> {
        // Each PE's own heap at one address, so that pointers into it mean the same to all.
        let wished = WISHED.checked_sub(layout.heap_at(place));
        let mapped = Mapped::new(file.as_fd(), layout.length(), wished)?;
        Ok(Self { mapped, layout, file })
    }

    /// Maps the file again at the same addresses as a private mapping: later writes of this process
    /// are its own. Pages that it does not write stay those of the PEs.
    pub(super) fn set_apart(&self) -> io::Result<()> {
        let (start, length) = (self.mapped.start.as_ptr().cast(), self.mapped.length);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: exactly the pages of this mapping are replaced, by the same bytes of the same
        // file at the same addresses, with the same rights.
        let mapped =
            unsafe { libc::mmap(start, length, protection, flags, self.file.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(super) fn layout(&self) -> &HostLayout {
        &self.layout
    }

    /// Returns where the heap of the PE at `place` is mapped.
    pub(super) fn heap(&self, place: usize) -> usize {
        assert!(place < self.layout.places, "no PE at place {place}");
        self.mapped.start.as_ptr().addr() + self.layout.heap_at(place)
    }

    /// Allocates the bytes of a heap that begin at `from` and end at `to`.
    pub(super) fn commit(&self, place: usize, from: usize, to: usize) -> io::Result<()> {
        assert!(from <= to && to <= self.layout.heap, "a heap has {} bytes", self.layout.heap);
        let at = self.layout.heap_at(place) + from;
        self.allocate(FilePart { start: at, length: to - from })
    }

    /// Allocates the bytes of `part` that begin at `from` and end at `to`.
    pub(super) fn commit_part(&self, part: FilePart, from: usize, to: usize) -> io::Result<()> {
        assert!(from <= to && to <= part.length, "the part has {} bytes", part.length);
        self.allocate(FilePart { start: part.start + from, length: to - from })
    }

    fn allocate(&self, part: FilePart) -> io::Result<()> {
        let (at, length) = (part.start as u64, part.length as u64);
        Ok(rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, at, length)?)
    }

    /// Returns where `part` is mapped.
    pub(super) fn mapped(&self, part: FilePart) -> super::MappedPart {
        let start = self.mapped.start.as_ptr().addr() + part.start;
        super::MappedPart { start, length: part.length }
    }

    /// Returns line `line` of `slot` of PE `owner` of the job.
    #[inline]
    pub(super) fn line(&self, owner: usize, slot: usize, line: usize) -> &Line {
        assert!(owner < self.layout.owners && slot < SLOTS && line < LINES, "no such line");
        let offset = PAGE + owner * LINES_LENGTH + (slot * LINES + line) * size_of::<Line>();
        // SAFETY: inside the mapping by the assertion and the layout, aligned because the mapping
        // begins on a page and all terms are multiples of a line; any bytes are a `Line`, which is
        // all atomics, and it is never unmapped.
        unsafe { &*self.mapped.start.as_ptr().add(offset).cast::<Line>() }
    }

    /// Returns the board.
    pub(super) fn status_words(&self) -> &JobStatusWords {
        // SAFETY: as in `line`; they are shorter than its page.
        unsafe { &*self.mapped.start.as_ptr().cast::<JobStatusWords>() }
    }
}

/// The statics of another PE, mapped.
#[derive(Clone, Copy, Debug)]
pub(super) struct ForeignStatics(Mapped);

impl ForeignStatics {
    pub(super) fn open(file: BorrowedFd<'_>, length: usize) -> io::Result<Self> {
        check(file, length)?;
        Ok(Self(Mapped::new(file, length, None)?))
    }

    pub(super) fn part(self) -> super::MappedPart {
        super::MappedPart { start: self.0.start.as_ptr().addr(), length: self.0.length }
    }
}

/// Makes a file of `length` bytes with no page allocated, lets `fill` allocate pages, and seals its
/// size.
pub(super) fn sealed_file(
    name: &str,
    length: usize,
    fill: impl FnOnce(&OwnedFd) -> rustix::io::Result<()>,
) -> io::Result<OwnedFd> {
    if let Some(limit) = rustix::process::getrlimit(rustix::process::Resource::Fsize).current
        && length as u64 > limit
    {
        // The kernel would not refuse, it would end this process (SIGXFSZ of `setrlimit(2)`).
        let said = format!(
            "a file of {length} bytes exceeds the limit of {limit}; raise it with ulimit -f"
        );
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, said));
    }
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, length as u64)?;
    fill(&file)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// Refuses a file that is shorter than `length` or that could shrink.
fn check(file: BorrowedFd<'_>, length: usize) -> io::Result<()> {
    let sealed = rustix::fs::fcntl_get_seals(file)?.contains(SealFlags::SHRINK);
    let holds = usize::try_from(rustix::fs::fstat(file)?.st_size).is_ok_and(|size| size >= length);
    if sealed && holds { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn open__two_mappings_are_one_memory_and_only_the_lines_are_allocated() {
        let layout = HostLayout::new(2, 2, 64 << 20).expect("fits");
        let made = HostMemory::create(layout, 0).expect("memory");
        let opened = HostMemory::open(made.file.try_clone().expect("a descriptor"), layout, 1)
            .expect("sealed");
        made.line(1, SLOTS - 1, LINES - 1).epoch.store(7, Ordering::Release);
        assert_eq!(opened.line(1, SLOTS - 1, LINES - 1).epoch.load(Ordering::Acquire), 7);
        let allocated = || rustix::fs::fstat(&made.file).expect("a file").st_blocks * 512;
        assert!(allocated() <= 2 << 20, "{}", allocated());
        opened.commit(1, 0, 4 << 20).expect("memory");
        assert!((4 << 20..=6 << 20).contains(&allocated()), "{}", allocated());
        assert!(
            HostMemory::open(
                made.file.try_clone().expect("a descriptor"),
                HostLayout::new(3, 3, 64 << 20).expect("fits"),
                0
            )
            .is_err()
        );
    }

    #[test]
    fn layout__what_no_address_space_holds_is_refused() {
        assert!(HostLayout::new(256, 256, usize::MAX).is_none());
        assert!(HostLayout::new(256, 256, 1 << 55).is_none());
        let layout = HostLayout::new(256, 256, 1 << 30).expect("fits");
        assert_eq!(layout.heaps, 18 << 20, "a page, and 64 KiB for each PE");
    }

    #[test]
    #[should_panic(expected = "no such line")]
    fn line__outside_is_a_mistake_of_this_process() {
        let made =
            HostMemory::create(HostLayout::new(1, 1, 4_096).expect("fits"), 0).expect("memory");
        made.line(1, 0, 0);
    }
}
