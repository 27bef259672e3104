//! Memory that several processes write: made, sealed, mapped and touched here, behind bounds that
//! every call checks.
//!
//! # Model
//! A *segment* is an anonymous file of fixed size. Its maker asks the system for all its pages at
//! once, so that a machine short of memory says so then and not in the middle of a run, and seals
//! its size before anybody else sees it. A process that maps a foreign one first looks that the
//! seal is there.
//!
//! Counters and flags are atomics. All other bytes are copied in and out; that they are whole is
//! the rings' protocol: who writes says so with a counter behind the bytes (release), and who reads
//! looks at the counter first (acquire). Where a peer breaks the protocol a copy brings some bytes,
//! never bytes from elsewhere.
//!
//! # Source
//! `memfd_create(2)`, `fcntl(2)` (seals), `mmap(2)`.
//!
//! # Invariants
//! I1. No access leaves the mapping: offsets come from this process's own layout, and each is
//!     asserted.
//! I2. Nothing can take pages away from under a mapping (`SIGBUS`): the file's size is sealed.
//!
//! # Not here
//! What the bytes mean (`ring`, `layout`), which of a peer's figures may be believed (`ring`,
//! `record`).

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};

/// A segment in this process's memory.
#[derive(Debug)]
pub(super) struct SegmentMapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is unmapped only when the value
// is dropped.
unsafe impl Send for SegmentMapping {}

// SAFETY: by a shared reference bytes are only copied and words changed atomically; the references
// that `bytes` gives are taken by wires alone, for memory that peers are asked not to touch
// meanwhile.
unsafe impl Sync for SegmentMapping {}

impl SegmentMapping {
    /// Makes a segment of `length` zeroed bytes, all of them allocated.
    ///
    /// # Errors
    /// What the system said; `ENOSPC` or `ENOMEM` when memory is short, `FileTooLarge` beyond this
    /// process's limit.
    pub(super) fn create(length: usize) -> io::Result<(OwnedFd, Self)> {
        if let Some(limit) = rustix::process::getrlimit(rustix::process::Resource::Fsize).current
            && length as u64 > limit
        {
            // The kernel would not refuse, it would end this process (SIGXFSZ of `setrlimit(2)`).
            let said =
                format!("no file of this process may be longer than {limit} bytes (ulimit -f)");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, said));
        }
        let file =
            rustix::fs::memfd_create("clearway", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, length as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let mapping = Self::map(file.as_fd(), length)?;
        Ok((file, mapping))
    }

    /// Maps `length` bytes of a segment that another process made.
    ///
    /// # Errors
    /// `InvalidData` for a file that is shorter or that could shrink; what the system said
    /// otherwise.
    pub(super) fn open(file: BorrowedFd<'_>, length: usize) -> io::Result<Self> {
        let sealed = rustix::fs::fcntl_get_seals(file)?.contains(SealFlags::SHRINK);
        let holds =
            usize::try_from(rustix::fs::fstat(file)?.st_size).is_ok_and(|size| size >= length);
        if !sealed || !holds {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Self::map(file, length)
    }

    fn map(file: BorrowedFd<'_>, length: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing; failure is
        // checked below.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { start, length })
    }

    /// Returns the place of `length` bytes from `offset` on.
    #[inline]
    fn place(&self, offset: usize, length: usize) -> *mut u8 {
        let fits = offset <= self.length && length <= self.length - offset;
        assert!(fits, "{length} bytes at {offset} leave a segment of {}", self.length);
        // SAFETY: the sum lies within the mapping, or one behind its end when `length` is zero.
        unsafe { self.start.as_ptr().add(offset) }
    }

    /// Returns the 64-bit word at `offset`, a multiple of 8.
    #[inline]
    pub(super) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8), "a word lies at a multiple of its size");
        // SAFETY: eight bytes inside a mapping that outlives the reference, aligned because
        // mappings begin on a page; all that touch a word do so atomically or, in regions, are
        // asked not to touch it while operations do.
        unsafe { AtomicU64::from_ptr(self.place(offset, 8).cast()) }
    }

    /// Returns `N` 64-bit words from `offset` on, a multiple of 8.
    #[inline]
    pub(super) fn words<const N: usize>(&self, offset: usize) -> &[AtomicU64; N] {
        assert!(offset.is_multiple_of(8), "a word lies at a multiple of its size");
        // SAFETY: as in `word`, N times; an atomic word has the size and alignment of a plain one
        // on 64-bit machines, and here offsets are multiples of 8 and mappings begin on a page.
        unsafe { &*self.place(offset, 8 * N).cast::<[AtomicU64; N]>() }
    }

    /// Returns the 32-bit word at `offset`, a multiple of 4.
    #[inline]
    pub(super) fn half(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4), "a word lies at a multiple of its size");
        // SAFETY: as in `word`, with four bytes.
        unsafe { AtomicU32::from_ptr(self.place(offset, 4).cast()) }
    }

    /// Returns `N` 32-bit words from `offset` on, a multiple of 4.
    #[inline]
    pub(super) fn halves<const N: usize>(&self, offset: usize) -> &[AtomicU32; N] {
        assert!(offset.is_multiple_of(4), "a word lies at a multiple of its size");
        // SAFETY: as in `words`, with four bytes each.
        unsafe { &*self.place(offset, 4 * N).cast::<[AtomicU32; N]>() }
    }

    /// Writes `word` at `offset`, a multiple of 8, and `parts` behind it, one after the other.
    #[inline]
    pub(super) fn put(&self, offset: usize, word: u64, [first, second]: [&[u8]; 2]) {
        assert!(offset.is_multiple_of(8), "a word lies at a multiple of its size");
        let into = self.place(offset, 8 + first.len() + second.len());
        // SAFETY: as in `word` and `write`; `place` looked at the whole length.
        unsafe {
            AtomicU64::from_ptr(into.cast()).store(word, Ordering::Relaxed);
            ptr::copy_nonoverlapping(first.as_ptr(), into.add(8), first.len());
            ptr::copy_nonoverlapping(second.as_ptr(), into.add(8 + first.len()), second.len());
        }
    }

    /// Copies `parts` out, which lie one after the other from `offset` on.
    #[inline]
    pub(super) fn take(&self, offset: usize, [first, second]: [&mut [u8]; 2]) {
        let from = self.place(offset, first.len() + second.len());
        // SAFETY: as in `read`; `place` looked at the whole length.
        unsafe {
            ptr::copy_nonoverlapping(from, first.as_mut_ptr(), first.len());
            ptr::copy_nonoverlapping(from.add(first.len()), second.as_mut_ptr(), second.len());
        }
    }

    /// Copies bytes out, one by one, each whole: where others write next to them.
    pub(super) fn read_each(&self, offset: usize, into: &mut [u8]) {
        for (index, byte) in into.iter_mut().enumerate() {
            *byte = self.byte(offset + index).load(Ordering::Relaxed);
        }
    }

    /// Copies bytes in, one by one, each whole: where others write next to them.
    pub(super) fn write_each(&self, offset: usize, from: &[u8]) {
        for (index, byte) in from.iter().enumerate() {
            self.byte(offset + index).store(*byte, Ordering::Relaxed);
        }
    }

    fn byte(&self, offset: usize) -> &AtomicU8 {
        // SAFETY: as in `word`, with one byte. A byte and the word it lies in are never touched at
        // once by one protocol.
        unsafe { AtomicU8::from_ptr(self.place(offset, 1)) }
    }

    /// Copies bytes out.
    #[inline]
    pub(super) fn read(&self, offset: usize, into: &mut [u8]) {
        let from = self.place(offset, into.len());
        // SAFETY: both have that many bytes, and a private buffer does not overlap a mapping. A
        // peer that keeps the protocol does not write them meanwhile; one that does not gives other
        // bytes, all of which are valid and read once.
        unsafe { ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) }
    }

    /// Copies bytes in. `from` is private memory or another mapping.
    #[inline]
    pub(super) fn write(&self, offset: usize, from: &[u8]) {
        let into = self.place(offset, from.len());
        // SAFETY: both have that many bytes. Another mapping has other addresses, even of the same
        // file, but then the bytes may be the same, and a copy of a segment's bytes onto
        // themselves, however torn, is still bytes.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), into, from.len()) }
    }

    /// Returns the first `length` bytes, to be looked at by the application whose region they are.
    ///
    /// As with a network adapter that writes into registered memory, peers can change them at any
    /// time; the contract says when they do not (before a peer has heard of the region, and between
    /// the notice of one write and the cause of the next). A caller that needs more copies first.
    pub(super) fn bytes(&self, length: usize) -> &[u8] {
        let start = self.place(0, length);
        // SAFETY: inside the mapping, initialised by the kernel, any value is a byte; changes by
        // peers as said above.
        unsafe { std::slice::from_raw_parts(start, length) }
    }

    /// Returns the first `length` bytes, to be filled by the application; see
    /// [`SegmentMapping::bytes`].
    pub(super) fn bytes_mut(&mut self, length: usize) -> &mut [u8] {
        let start = self.place(0, length);
        // SAFETY: as in `bytes`; the exclusive borrow keeps this process from having a second
        // reference.
        unsafe { std::slice::from_raw_parts_mut(start, length) }
    }
}

impl Drop for SegmentMapping {
    fn drop(&mut self) {
        // SAFETY: exactly what `mmap` gave, and no reference outlives the value. It cannot fail
        // with these arguments.
        let _ = unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: usize = 8_192;

    #[test]
    fn open__both_mappings_are_one_memory() {
        let (file, made) = SegmentMapping::create(LENGTH).expect("memory");
        let mut opened = SegmentMapping::open(file.as_fd(), LENGTH).expect("a sealed segment");
        made.word(8).store(7, Ordering::Release);
        assert_eq!(opened.word(8).load(Ordering::Acquire), 7);
        opened.bytes_mut(3).copy_from_slice(b"abc");
        made.write(LENGTH - 1, b"z");
        let mut seen = [0; 2];
        opened.read(LENGTH - 2, &mut seen);
        assert_eq!((made.bytes(3), seen), (&b"abc"[..], [0, b'z']));
    }

    #[test]
    fn create__the_size_can_never_change() {
        let (file, _made) = SegmentMapping::create(LENGTH).expect("memory");
        for size in [0, LENGTH as u64 / 2, LENGTH as u64 * 2] {
            assert_eq!(rustix::fs::ftruncate(&file, size), Err(rustix::io::Errno::PERM));
        }
    }

    #[test]
    fn open__a_file_that_could_shrink_or_is_too_short_is_refused() {
        let (file, _made) = SegmentMapping::create(LENGTH).expect("memory");
        assert!(SegmentMapping::open(file.as_fd(), LENGTH + 1).is_err());
        let open =
            rustix::fs::memfd_create("soft", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
                .expect("a file");
        rustix::fs::ftruncate(&open, LENGTH as u64).expect("longer");
        assert!(SegmentMapping::open(open.as_fd(), LENGTH).is_err());
    }

    #[test]
    #[should_panic(expected = "leave a segment")]
    fn word__outside_is_a_mistake_of_this_process() {
        let (_file, made) = SegmentMapping::create(LENGTH).expect("memory");
        made.word(LENGTH);
    }
}
