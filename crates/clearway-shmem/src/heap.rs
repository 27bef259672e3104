//! Allocates the symmetric heap: the same allocations at the same offsets on all PEs.
//!
//! # Model
//! All PEs make the same calls in the same order, and run the same deterministic allocator. So they
//! only have to agree whether every PE had the memory: an allocation ends with one exchange that is
//! also its barrier. If a PE had none, all PEs undo the allocation. Where a heap needs more pages,
//! further exchanges follow. All PEs derive their number from the first exchange, so that it is the
//! same even if a program requests different sizes.
//!
//! The allocator keeps its state outside the heap, where a program cannot overwrite it. It uses best
//! fit: the smallest free block that fits, at the lowest offset. Blocks are multiples of a cache line.
//! Pages are allocated when the highest end of all blocks rises.
//!
//! # Source
//! OpenSHMEM 1.6, "Memory Management Routines".

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use crate::address::Symmetric;
use crate::collective::sync::Gathering;
use crate::fault::{Fault, Wrong};
use crate::job::{self, Job};
use crate::memory;
use crate::queue;
use crate::team::Team;

/// Blocks begin and end at multiples of a cache line.
const UNIT: usize = 64;
/// Pages are allocated in pieces of at least this: a system call for each megabyte.
const PIECE: usize = 1 << 20;

/// The used and free blocks of a heap, by offset.
#[derive(Debug)]
pub(crate) struct HeapLedger {
    length: usize,
    /// Length by offset.
    free: BTreeMap<usize, usize>,
    by_length: BTreeSet<(usize, usize)>,
    used: BTreeMap<usize, usize>,
}

impl HeapLedger {
    /// Creates the state of an empty heap.
    pub(crate) fn new(length: usize) -> Self {
        let length = length / UNIT * UNIT;
        let mut ledger = Self {
            length,
            free: BTreeMap::new(),
            by_length: BTreeSet::new(),
            used: BTreeMap::new(),
        };
        ledger.add_free(0, length);
        ledger
    }

    fn add_free(&mut self, offset: usize, length: usize) {
        if length > 0 {
            self.free.insert(offset, length);
            self.by_length.insert((length, offset));
        }
    }

    fn remove_free(&mut self, offset: usize) -> Option<usize> {
        let length = self.free.remove(&offset)?;
        self.by_length.remove(&(length, offset));
        Some(length)
    }

    /// Allocates `bytes` bytes at a multiple of `align`, a power of two. Returns the offset.
    pub(crate) fn take(&mut self, bytes: usize, align: usize) -> Option<usize> {
        let length = bytes.max(1).checked_next_multiple_of(UNIT)?;
        let fits = |(free, offset): &(usize, usize)| {
            let begin = offset.checked_next_multiple_of(align)?;
            (begin - offset)
                .checked_add(length)
                .filter(|need| need <= free)
                .map(|_| (*offset, begin))
        };
        let (offset, begin) = self.by_length.range((length, 0)..).find_map(fits)?;
        let free = self.remove_free(offset)?;
        self.add_free(offset, begin - offset);
        self.add_free(begin + length, offset + free - begin - length);
        self.used.insert(begin, length);
        Some(begin)
    }

    /// Frees the block at `offset`. Returns its length, or `None` if there is none.
    pub(crate) fn give(&mut self, offset: usize) -> Option<usize> {
        let given = self.used.remove(&offset)?;
        let (mut begin, mut length) = (offset, given);
        if let Some((before, size)) =
            self.free.range(..offset).next_back().map(|(at, size)| (*at, *size))
            && before + size == offset
        {
            self.remove_free(before);
            (begin, length) = (before, length + size);
        }
        if let Some(size) = self.remove_free(offset + given) {
            length += size;
        }
        self.add_free(begin, length);
        Some(given)
    }

    /// Returns the length of the block at `offset`.
    pub(crate) fn length_of(&self, offset: usize) -> Option<usize> {
        self.used.get(&offset).copied()
    }

    /// Returns the length of the heap.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Returns the free bytes, and those of the largest free block.
    pub(crate) fn room(&self) -> (usize, usize) {
        (self.free.values().sum(), self.by_length.last().map_or(0, |(length, _)| *length))
    }
}

/// This PE's heap.
#[derive(Debug)]
pub(crate) struct Heap {
    ledger: HeapLedger,
    /// Pages below are allocated.
    committed: usize,
}

impl Heap {
    pub(crate) fn new(length: usize) -> Self {
        Self { ledger: HeapLedger::new(length), committed: 0 }
    }

    /// Frees all blocks; pages stay allocated.
    pub(crate) fn clear(&mut self) {
        self.ledger = HeapLedger::new(self.ledger.length);
    }

    /// Allocates a block. Fails with a sentence that names what was short.
    fn take(&mut self, bytes: usize, align: usize) -> Result<Block, String> {
        let Some(offset) = self.ledger.take(bytes, align) else {
            let (all, piece) = self.ledger.room();
            return Err(format!(
                "{bytes} bytes do not fit into the symmetric heap of {}: {all} are free, {piece} in one piece; set \
                 SHMEM_SYMMETRIC_SIZE",
                self.ledger.length
            ));
        };
        let end = offset + self.ledger.length_of(offset).unwrap_or_default();
        Ok(Block { offset, end })
    }

    /// Returns the end of the pages that `block` needs, if more are needed.
    fn end_of_pages(&self, block: &Block, length: usize) -> Option<usize> {
        let to = block.end.next_multiple_of(PIECE).min(length);
        (to > self.committed).then_some(to)
    }
}

/// A block of this PE's heap.
struct Block {
    offset: usize,
    end: usize,
}

/// Allocates a block of `bytes` bytes on all PEs. Returns its offset, or none if a PE had no room.
/// `fill` writes its initial contents. The last exchange is the barrier.
fn allocate(
    job: &Job,
    bytes: usize,
    align: usize,
    fill: impl Fn(usize),
) -> Result<Option<usize>, Fault> {
    let taken = job.heap().take(bytes, align);
    let end = |block| job.heap().end_of_pages(block, job.heap_length());
    let end = taken.as_ref().ok().and_then(end);
    if let (Ok(block), None) = (&taken, end) {
        fill(block.offset);
    }
    let missing = end.map_or(0, |end| end - job.heap().committed);
    let (mut all_had, mut most) = (true, 0);
    let shared = [u64::from(taken.is_ok()), missing as u64];
    Gathering::new(job, Team::WORLD)?.exchange(&shared, |_, words| {
        all_had &= words[0].load(Ordering::Relaxed) == 1;
        most = most.max(words[1].load(Ordering::Relaxed) as usize);
    });
    let mut short = taken.as_ref().err().cloned();
    if all_had && most > 0 {
        let grown = grow(job, end, most)?;
        if let (Ok(block), Ok(()), Some(_)) = (&taken, &grown, end) {
            fill(block.offset);
        }
        all_had = agree(job, grown.is_ok())?;
        short = grown.err();
    }
    if let Some(sentence) = short.filter(|_| job.debug) {
        job.say(&sentence);
    }
    match taken {
        Ok(block) if all_had => Ok(Some(block.offset)),
        Ok(block) => {
            job.heap().ledger.give(block.offset);
            Ok(None)
        }
        Err(_) => Ok(None),
    }
}

/// Allocates this PE's pages up to `end`, if there is one. Fails with the reason. `most` is the
/// largest need of a PE, in bytes.
fn grow(job: &Job, end: Option<usize>, most: usize) -> Result<Result<(), String>, Fault> {
    if memory::is_worth_a_look(most) {
        // No PE allocates pages before all PEs checked that theirs fit.
        let room = job.check_room(most);
        if !agree(job, room.is_ok())? {
            return Ok(room.and_then(|()| Err("another PE saw no room for its pages".to_owned())));
        }
    }
    let Some(end) = end else { return Ok(Ok(())) };
    let mut heap = job.heap();
    let grown = job.commit(heap.committed, end);
    if grown.is_ok() {
        heap.committed = end;
    }
    Ok(grown)
}

/// Returns whether it is true on all PEs.
fn agree(job: &Job, is_so: bool) -> Result<bool, Fault> {
    let mut all = true;
    Gathering::new(job, Team::WORLD)?.exchange(&[u64::from(is_so)], |_, words| {
        all &= words[0].load(Ordering::Relaxed) == 1;
    });
    Ok(all)
}

/// Refuses, with `SHMEM_DEBUG`, an allocation whose arguments differ between PEs.
fn expect_same(job: &Job, argument: &str, asked: usize) -> Result<(), Fault> {
    if !job.debug {
        return Ok(());
    }
    let mut other = None;
    Gathering::new(job, Team::WORLD)?.exchange(&[asked as u64], |index, words| {
        let theirs = words[0].load(Ordering::Relaxed);
        other = other.or((theirs != asked as u64).then_some((index, theirs)));
    });
    let Some((pe, theirs)) = other else { return Ok(()) };
    let sentence = format!(
        "`{argument}` is {asked} on this PE and {theirs} on PE {pe}; use the same on all PEs"
    );
    Err(Wrong::Failed(sentence).into())
}

/// Returns the address of an offset, or null for none.
fn address(job: &Job, offset: Option<usize>) -> *mut u8 {
    offset.map_or(std::ptr::null_mut(), |offset| job.segments.own_heap(offset))
}

/// Allocates a block on all PEs (`shmem_malloc`). Returns null if a PE had no room. Returns null for
/// zero bytes, without a barrier.
///
/// # Errors
/// The library is not initialised; with `SHMEM_DEBUG`: sizes differ between PEs.
pub fn malloc(bytes: usize) -> Result<*mut u8, Fault> {
    align(UNIT, bytes)
}

/// Allocates a block on all PEs, and ignores the hints (`shmem_malloc_with_hints`).
///
/// # Errors
/// As [`malloc`].
pub fn malloc_with_hints(bytes: usize, _hints: i64) -> Result<*mut u8, Fault> {
    malloc(bytes)
}

/// Allocates a block at a multiple of `alignment` on all PEs (`shmem_align`). Returns null for an
/// alignment that is no power of two.
///
/// # Errors
/// As [`malloc`].
pub fn align(alignment: usize, bytes: usize) -> Result<*mut u8, Fault> {
    let job = job::get()?;
    expect_same(job, "size", bytes)?;
    if bytes == 0 || !alignment.is_power_of_two() {
        return Ok(std::ptr::null_mut());
    }
    Ok(address(job, allocate(job, bytes, alignment.max(UNIT), |_| ())?))
}

/// Allocates a block on all PEs and sets it to zero (`shmem_calloc`).
///
/// # Errors
/// As [`malloc`].
pub fn calloc(count: usize, size: usize) -> Result<*mut u8, Fault> {
    let job = job::get()?;
    let bytes = count.saturating_mul(size);
    expect_same(job, "size", bytes)?;
    if bytes == 0 {
        return Ok(std::ptr::null_mut());
    }
    let clear = |offset| job.segments.clear_own_heap(offset, bytes);
    Ok(address(job, allocate(job, bytes, UNIT, clear)?))
}

/// Frees a block on all PEs (`shmem_free`). Does nothing for null.
///
/// # Errors
/// The library is not initialised, or no block begins there.
pub fn free(block: Symmetric) -> Result<(), Fault> {
    let job = job::get()?;
    if block.raw() == 0 {
        return Ok(());
    }
    queue::finish(job)?;
    Gathering::new(job, Team::WORLD)?.wait();
    let offset = job.segments.heap_offset(block);
    match offset.and_then(|offset| job.heap().ledger.give(offset)) {
        Some(_) => Ok(()),
        None => Err(no_block(block)),
    }
}

fn no_block(block: Symmetric) -> Fault {
    Wrong::Block(block.raw()).into()
}

/// Changes the length of a block on all PEs (`shmem_realloc`): as [`malloc`] for null, as [`free()`]
/// for zero bytes.
///
/// # Errors
/// As [`malloc`] and [`free()`].
pub fn realloc(block: Symmetric, bytes: usize) -> Result<*mut u8, Fault> {
    let job = job::get()?;
    expect_same(job, "size", bytes)?;
    if block.raw() == 0 {
        return malloc(bytes);
    }
    if bytes == 0 {
        return free(block).map(|()| std::ptr::null_mut());
    }
    let offset = job.segments.heap_offset(block);
    let length = offset
        .and_then(|offset| job.heap().ledger.length_of(offset))
        .ok_or_else(|| no_block(block))?;
    let is_kept = bytes <= length && length - bytes < length / 2;
    if agree(job, is_kept)? {
        return Ok(address(job, offset));
    }
    let from = offset.unwrap_or_default();
    let copy = |to| job.segments.copy_own_heap(from, to, bytes.min(length));
    let moved = allocate(job, bytes, UNIT, copy)?;
    if moved.is_some() {
        // No PE uses the old block any more: the last exchange follows all copies.
        job.heap().ledger.give(from);
    }
    Ok(address(job, moved))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take__the_smallest_that_fits_and_neighbours_become_one() {
        let mut ledger = HeapLedger::new(10 * UNIT);
        let blocks: Vec<usize> =
            [1, 65, 64, 128].iter().map(|bytes| ledger.take(*bytes, UNIT).expect("room")).collect();
        assert_eq!(blocks, [0, 64, 192, 256]);
        assert_eq!(ledger.give(64), Some(128));
        assert_eq!(ledger.give(64), None);
        assert_eq!(ledger.take(100, UNIT), Some(64), "the hole fits better than the rest");
        assert_eq!(ledger.take(64, 256), Some(512));
        assert_eq!(ledger.take(129, UNIT), None);
        for block in [0, 192, 64, 512, 256] {
            assert!(ledger.give(block).is_some());
        }
        assert_eq!(ledger.room(), (640, 640));
        assert_eq!(ledger.take(usize::MAX, UNIT), None);
    }

    #[test]
    fn take__random_calls_never_overlap_and_nothing_gets_lost() {
        let (mut ledger, mut blocks) = (HeapLedger::new(1 << 16), Vec::<(usize, usize)>::new());
        let mut state = 7u64;
        let mut draw = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % below
        };
        for _ in 0..4_000 {
            if draw(2) == 0 && !blocks.is_empty() {
                let (offset, length) = blocks.swap_remove(draw(blocks.len()));
                assert_eq!(ledger.give(offset), Some(length));
            } else {
                let align = UNIT << draw(4);
                if let Some(offset) = ledger.take(1 + draw(3_000), align) {
                    let length = ledger.length_of(offset).expect("taken");
                    assert!(offset % align == 0 && offset + length <= 1 << 16);
                    assert!(
                        blocks
                            .iter()
                            .all(|(at, size)| at + size <= offset || offset + length <= *at)
                    );
                    blocks.push((offset, length));
                }
            }
            let used: usize = blocks.iter().map(|(_, length)| length).sum();
            assert_eq!(ledger.room().0 + used, 1 << 16);
        }
    }
}
