//! Memory that several owners change at once and that a wire adopts: a segment whose file wires map
//! again for peers and adapters.
//!
//! # Invariants
//! I1. Whole words at multiples of 8 are read and written whole, whichever process touches them
//! too.

use std::any::Any;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use clearway_proto::wire::{AtomicKind, ForeignMemory, RefusalReason};

use super::mapping::SegmentMapping;
use super::region::segment_length;

/// Bytes of a word.
const WORD: usize = 8;

/// Memory in a file that exists in memory only, mapped by this process and by the process that gets
/// the file.
#[derive(Debug)]
pub struct SharedMemory {
    mapping: SegmentMapping,
    file: OwnedFd,
    length: usize,
}

impl SharedMemory {
    /// Allocates `length` zeroed bytes.
    ///
    /// # Errors
    /// What the system said: `ENOSPC` or `ENOMEM` when memory is short.
    pub fn new(length: usize) -> io::Result<Self> {
        let size = segment_length(length).ok_or(io::ErrorKind::OutOfMemory)?;
        let (file, mapping) = SegmentMapping::create(size)?;
        Ok(Self { mapping, file, length })
    }

    /// Returns the 64-bit word at `at`, a multiple of 8.
    ///
    /// # Errors
    /// [`RefusalReason::Memory`] outside.
    pub fn word(&self, at: u64) -> Result<&AtomicU64, RefusalReason> {
        let at = self.place(at, WORD)?;
        if at.is_multiple_of(WORD) { Ok(self.mapping.word(at)) } else { Err(RefusalReason::Memory) }
    }

    /// Returns where `length` bytes from `at` on lie.
    fn place(&self, at: u64, length: usize) -> Result<usize, RefusalReason> {
        let start = usize::try_from(at).map_err(|_| RefusalReason::Memory)?;
        let end = start.checked_add(length).ok_or(RefusalReason::Memory)?;
        if end <= self.length { Ok(start) } else { Err(RefusalReason::Memory) }
    }

    /// Returns the bytes before the first whole word of `length` bytes at `start`, and the bytes of
    /// whole words behind them.
    fn whole_words(start: usize, length: usize) -> (usize, usize) {
        let before = (start.next_multiple_of(WORD) - start).min(length);
        (before, (length - before) / WORD * WORD)
    }
}

impl ForeignMemory for SharedMemory {
    fn length(&self) -> u64 {
        self.length as u64
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), RefusalReason> {
        let start = self.place(at, into.len())?;
        let (before, whole) = Self::whole_words(start, into.len());
        let (head, rest) = into.split_at_mut(before);
        let (words, tail) = rest.split_at_mut(whole);
        self.mapping.read_each(start, head);
        for (index, word) in words.chunks_exact_mut(WORD).enumerate() {
            let value = self.mapping.word(start + before + index * WORD).load(Ordering::Relaxed);
            word.copy_from_slice(&value.to_ne_bytes());
        }
        self.mapping.read_each(start + before + whole, tail);
        Ok(())
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<(), RefusalReason> {
        let start = self.place(at, from.len())?;
        let (before, whole) = Self::whole_words(start, from.len());
        let (head, rest) = from.split_at(before);
        let (words, tail) = rest.split_at(whole);
        self.mapping.write_each(start, head);
        for (index, word) in words.chunks_exact(WORD).enumerate() {
            let value = word.try_into().map_or(0, u64::from_ne_bytes);
            self.mapping.word(start + before + index * WORD).store(value, Ordering::Relaxed);
        }
        self.mapping.write_each(start + before + whole, tail);
        Ok(())
    }

    fn change(&self, at: u64, kind: AtomicKind) -> Result<u64, RefusalReason> {
        self.word(at).map(|word| kind.apply(word))
    }

    fn file(&self) -> Option<&(dyn Any + Send + Sync)> {
        Some(&self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write__bytes_are_where_they_belong_and_no_others_change() {
        let memory = SharedMemory::new(40).expect("memory");
        let bytes: Vec<u8> = (1..=40).collect();
        for (at, length) in (0..16).flat_map(|at| (0..24).map(move |length| (at, length))) {
            memory.write(0, &[0; 40]).expect("inside");
            memory.write(at as u64, &bytes[..length]).expect("inside");
            let mut read = [9; 40];
            memory.read(0, &mut read).expect("inside");
            let mut wanted = [0; 40];
            wanted[at..at + length].copy_from_slice(&bytes[..length]);
            assert_eq!(read, wanted, "{length} bytes at {at}");
            assert_eq!(
                memory.digest(at as u64, length as u32),
                Ok(crc_fast::crc32_iscsi(&bytes[..length]))
            );
        }
    }

    #[test]
    fn read__what_leaves_the_memory_is_refused_although_its_page_continues() {
        let memory = SharedMemory::new(16).expect("memory");
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
    }
}
