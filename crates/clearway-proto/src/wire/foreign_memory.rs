//! Memory that a wire did not allocate: the heap and the statics of a program, an arena that other
//! threads fill.
//!
//! # Model
//! Other threads, processes and disks change such memory at any time, so no reference to its bytes
//! is given out: a wire copies bytes in and out, changes words, and takes digests, by the methods of
//! [`ForeignMemory`]. An owner that knows bytes to be constant can let them be held ([`HeldBytes`]). Each of them may refuse, for example while the owner has lent a
//! part of the memory to a thread. The author of an implementation answers for the soundness of its
//! accesses; this crate has no address in any interface.
//!
//! # Invariants
//! I1. A 64-bit word that lies whole within one access, at a multiple of 8, is read and written
//!     whole.
//!
//! # Not here
//! How a wire names such memory ([`Wire::adopt`](super::Wire::adopt)). Memory that processes map
//! together (`clearway-runtime`).

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::any::Any;
use core::fmt::{self, Debug};
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use super::{AtomicKind, RefusalReason};
use crate::base::Crc32c;

/// The ranks that may name foreign memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryAccess {
    /// This rank's operations and those of its peers. Peers name it by the number of its region.
    Peers,
    /// This rank's operations only. A wire has one such memory at most,
    /// [`RegionId::PROCESS`](super::RegionId::PROCESS).
    Local,
}

/// Bytes that nobody changes, and that stay until the last holder drops them.
#[derive(Clone)]
pub struct HeldBytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
}

impl HeldBytes {
    /// Holds a part of the bytes of `owner`, which are always the same; `None` when they have no such
    /// part.
    pub fn new(owner: Arc<dyn AsRef<[u8]> + Send + Sync>, range: Range<usize>) -> Option<Self> {
        let is_there = owner.as_ref().as_ref().get(range.clone()).is_some();
        is_there.then_some(Self { owner, range })
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        self.owner.as_ref().as_ref().get(self.range.clone()).unwrap_or_default()
    }
}

impl Debug for HeldBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HeldBytes").field(&self.range).finish()
    }
}

/// Memory that a wire did not allocate, and that others change meanwhile.
///
/// All offsets count bytes from the beginning. The beginning lies at a multiple of 4096. Every
/// method fails with [`RefusalReason::Memory`] when the bytes leave the memory or their owner does
/// not let them be touched now; nothing is changed then.
pub trait ForeignMemory: Debug + Send + Sync {
    /// Returns the bytes in all; constant.
    fn length(&self) -> u64;

    /// Returns which ranks may name it; constant.
    fn reach(&self) -> MemoryAccess {
        MemoryAccess::Peers
    }

    /// Copies bytes from `at` on into `into`.
    ///
    /// # Errors
    /// [`RefusalReason::Memory`].
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), RefusalReason>;

    /// Copies `from` to the bytes from `at` on.
    ///
    /// # Errors
    /// [`RefusalReason::Memory`].
    fn write(&self, at: u64, from: &[u8]) -> Result<(), RefusalReason>;

    /// Changes the 64-bit word at `at`, a multiple of 8, as one atomic step among all threads;
    /// returns its old value.
    ///
    /// # Errors
    /// [`RefusalReason::Memory`], also when `at` is no multiple of 8.
    fn change(&self, at: u64, kind: AtomicKind) -> Result<u64, RefusalReason>;

    /// Holds `length` bytes from `at` on, so that another thread reads them without a copy; `None`
    /// where they may change.
    fn hold(&self, _at: u64, _length: u32) -> Option<HeldBytes> {
        None
    }

    /// Computes the CRC-32C of `length` bytes from `at` on.
    ///
    /// # Errors
    /// [`RefusalReason::Memory`].
    fn digest(&self, at: u64, length: u32) -> Result<u32, RefusalReason> {
        let (mut piece, mut crc) = ([0; PIECE], Crc32c::new());
        let mut done = 0;
        while done < length {
            let part = &mut piece[..(length - done).min(PIECE as u32) as usize];
            self.read(at.checked_add(u64::from(done)).ok_or(RefusalReason::Memory)?, part)?;
            crc.update(part);
            done += part.len() as u32;
        }
        Ok(crc.value())
    }

    /// Returns a handle by which a system can map the same memory again, from its beginning:
    /// `std::os::fd::OwnedFd` of a file that cannot become shorter. A wire on which peers or
    /// adapters reach memory by themselves adopts only memory that has one.
    fn file(&self) -> Option<&(dyn Any + Send + Sync)> {
        None
    }
}

/// Foreign memory as a wire keeps it.
pub type AdoptedMemory = Arc<dyn ForeignMemory>;

/// Bytes that are copied at a time where memory is copied in pieces: whole words.
pub(super) const PIECE: usize = 1 << 12;

/// Foreign memory made of 64-bit words: for tests and for simulated programs.
#[derive(Debug)]
pub struct WordMemory {
    words: Box<[AtomicU64]>,
    reach: MemoryAccess,
}

/// Bytes of a word.
const WORD: u64 = 8;

impl WordMemory {
    /// Creates `length` zeroed bytes, rounded up to whole words.
    pub fn new(length: usize, reach: MemoryAccess) -> Self {
        Self {
            words: (0..length.div_ceil(WORD as usize)).map(|_| AtomicU64::new(0)).collect(),
            reach,
        }
    }

    /// Returns the word at `at`, a multiple of 8.
    ///
    /// # Errors
    /// [`RefusalReason::Memory`].
    pub fn word(&self, at: u64) -> Result<&AtomicU64, RefusalReason> {
        let index = usize::try_from(at / WORD).map_err(|_| RefusalReason::Memory)?;
        if at.is_multiple_of(WORD) {
            self.words.get(index).ok_or(RefusalReason::Memory)
        } else {
            Err(RefusalReason::Memory)
        }
    }

    /// Gives each word that `length` bytes from `at` on touch: the word, its first byte of them,
    /// how many, and where these stand among all.
    fn each(
        &self,
        at: u64,
        length: usize,
        mut visit: impl FnMut(&AtomicU64, usize, usize, usize),
    ) -> Result<(), RefusalReason> {
        let end = at.checked_add(length as u64).ok_or(RefusalReason::Memory)?;
        if end > self.length() {
            return Err(RefusalReason::Memory);
        }
        let mut done = 0;
        while done < length {
            let place = at + done as u64;
            let first = (place % WORD) as usize;
            let count = (WORD as usize - first).min(length - done);
            visit(&self.words[(place / WORD) as usize], first, count, done);
            done += count;
        }
        Ok(())
    }
}

impl ForeignMemory for WordMemory {
    fn length(&self) -> u64 {
        self.words.len() as u64 * WORD
    }

    fn reach(&self) -> MemoryAccess {
        self.reach
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), RefusalReason> {
        let length = into.len();
        self.each(at, length, |word, first, count, done| {
            let bytes = word.load(Ordering::Relaxed).to_le_bytes();
            into[done..done + count].copy_from_slice(&bytes[first..first + count]);
        })
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<(), RefusalReason> {
        self.each(at, from.len(), |word, first, count, done| {
            let part = &from[done..done + count];
            match <[u8; 8]>::try_from(part) {
                Ok(whole) => word.store(u64::from_le_bytes(whole), Ordering::Relaxed),
                // Another thread may change the other bytes of this word meanwhile.
                Err(_) => {
                    let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| {
                        let mut bytes = old.to_le_bytes();
                        bytes[first..first + count].copy_from_slice(part);
                        Some(u64::from_le_bytes(bytes))
                    });
                }
            }
        })
    }

    fn change(&self, at: u64, kind: AtomicKind) -> Result<u64, RefusalReason> {
        self.word(at).map(|word| kind.apply(word))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::base::crc32c;

    #[test]
    fn words__bytes_are_where_they_were_written_and_no_others_change() {
        let memory = WordMemory::new(40, MemoryAccess::Peers);
        let bytes: Vec<u8> = (1..=40).collect();
        for at in 0..16 {
            for length in 0..24 {
                memory.write(0, &[0; 40]).expect("inside");
                memory.write(at, &bytes[..length]).expect("inside");
                let mut read = [9; 40];
                memory.read(0, &mut read).expect("inside");
                let (begin, end) = (at as usize, at as usize + length);
                assert_eq!(&read[begin..end], &bytes[..length], "{length} bytes at {at}");
                assert!(
                    read[..begin].iter().chain(&read[end..]).all(|byte| *byte == 0),
                    "{length} bytes at {at}"
                );
                assert_eq!(memory.digest(at, length as u32), Ok(crc32c(&bytes[..length])));
            }
        }
    }

    #[test]
    fn words__what_leaves_the_memory_is_refused() {
        let memory = WordMemory::new(16, MemoryAccess::Peers);
        for (at, length) in [(9, 8), (17, 0), (u64::MAX, 1), (0, 17)] {
            assert_eq!(
                memory.write(at, &[1; 32][..length]),
                Err(RefusalReason::Memory),
                "{length} at {at}"
            );
            assert_eq!(
                memory.read(at, &mut [0; 32][..length]),
                Err(RefusalReason::Memory),
                "{length} at {at}"
            );
        }
        for at in [4, 16, u64::MAX] {
            assert_eq!(memory.change(at, AtomicKind::FetchAdd(1)), Err(RefusalReason::Memory));
        }
        assert_eq!(memory.digest(9, 8), Err(RefusalReason::Memory));
        assert_eq!(memory.digest(0, 16), Ok(crc32c(&[0; 16])));
    }
}
