//! The symmetric heap: the same allocations at the same offsets on all PEs.
//!
//! # Model
//! All PEs make the same calls in the same order, and each gives them to the same allocator, so
//! nothing has to be agreed but whether every PE had the memory: an allocation ends with one
//! exchange that is also its barrier. If one could not, all take it back.
//!
//! The allocator keeps its books outside the heap, where a program cannot overwrite them: free
//! blocks by place and by size, the smallest that fits is taken, the lowest of these. Blocks are
//! multiples of a cache line. Pages are allocated when the highest end of all blocks rises.
//!
//! # Source
//! OpenSHMEM 1.5, "Memory Management Routines".

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use crate::address::Symmetric;
use crate::collective::sync::Gathering;
use crate::fault::{Fault, Wrong};
use crate::job::{self, Job};
use crate::team::Team;

/// Blocks begin and end at multiples of a cache line.
const UNIT: usize = 64;
/// Pages are asked for in pieces of at least this: a system call for each megabyte.
const PIECE: usize = 1 << 20;

/// Which parts of a heap are used. Offsets only.
#[derive(Debug)]
pub(crate) struct Books {
    length: usize,
    /// Length by offset.
    free: BTreeMap<usize, usize>,
    by_length: BTreeSet<(usize, usize)>,
    used: BTreeMap<usize, usize>,
}

impl Books {
    /// An empty heap.
    pub(crate) fn new(length: usize) -> Self {
        let length = length / UNIT * UNIT;
        let mut books = Self {
            length,
            free: BTreeMap::new(),
            by_length: BTreeSet::new(),
            used: BTreeMap::new(),
        };
        books.add_free(0, length);
        books
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

    /// Takes `bytes` bytes at a multiple of `align`, a power of two; the offset.
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

    /// Gives the block at `offset` back; its length, or `None` if there is none.
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

    /// The length of the block at `offset`.
    pub(crate) fn length_of(&self, offset: usize) -> Option<usize> {
        self.used.get(&offset).copied()
    }

    /// Bytes that are free in all, and in one piece.
    pub(crate) fn room(&self) -> (usize, usize) {
        (self.free.values().sum(), self.by_length.last().map_or(0, |(length, _)| *length))
    }
}

/// This PE's heap.
#[derive(Debug)]
pub(crate) struct Heap {
    books: Books,
    /// Pages below are allocated.
    committed: usize,
}

impl Heap {
    pub(crate) fn new(length: usize) -> Self {
        Self { books: Books::new(length), committed: 0 }
    }

    /// Frees all blocks; pages stay allocated.
    pub(crate) fn clear(&mut self) {
        self.books = Books::new(self.books.length);
    }

    /// Takes a block and allocates its pages; what was short otherwise.
    fn take(&mut self, job: &Job, bytes: usize, align: usize) -> Result<usize, String> {
        let Some(offset) = self.books.take(bytes, align) else {
            let (all, piece) = self.books.room();
            return Err(format!(
                "{bytes} bytes do not fit into the symmetric heap of {}: {all} are free, {piece} in one piece; set \
                 SHMEM_SYMMETRIC_SIZE",
                self.books.length
            ));
        };
        let end = offset + self.books.length_of(offset).unwrap_or_default();
        if end > self.committed {
            let to = end.next_multiple_of(PIECE).min(job.heap_length());
            if let Err(error) = job.commit(self.committed, to) {
                self.books.give(offset);
                return Err(error);
            }
            self.committed = to;
        }
        Ok(offset)
    }
}

/// Ends an allocation on all PEs: whether all had the memory. Also its barrier.
fn agree(job: &Job, bytes: usize, had: Result<usize, String>) -> Result<*mut u8, Fault> {
    let (mut all_had, mut same) = (true, true);
    let told = [bytes as u64, u64::from(had.is_ok())];
    Gathering::new(job, Team::WORLD)?.exchange(&told, |_, words| {
        same &= words[0].load(Ordering::Relaxed) == bytes as u64;
        all_had &= words[1].load(Ordering::Relaxed) == 1;
    });
    if !same && job.debug {
        return Err(Wrong::Failed(format!(
            "the PEs asked for different sizes, this one for {bytes} bytes"
        ))
        .into());
    }
    match had {
        Ok(offset) if all_had => Ok(job.segments.own_heap(offset)),
        Ok(offset) => {
            job.heap().books.give(offset);
            Ok(std::ptr::null_mut())
        }
        Err(sentence) => {
            if job.debug {
                job.say(&sentence);
            }
            Ok(std::ptr::null_mut())
        }
    }
}

/// `shmem_malloc`: null for no bytes, without a barrier, and where a PE had no room.
///
/// # Errors
/// The library is not initialised; with `SHMEM_DEBUG`, PEs that ask for different sizes.
pub fn malloc(bytes: usize) -> Result<*mut u8, Fault> {
    align(UNIT, bytes)
}

/// `shmem_malloc_with_hints`.
///
/// # Errors
/// As [`malloc`].
pub fn malloc_with_hints(bytes: usize, _hints: i64) -> Result<*mut u8, Fault> {
    malloc(bytes)
}

/// `shmem_align`: null for an alignment that is no power of two.
///
/// # Errors
/// As [`malloc`].
pub fn align(alignment: usize, bytes: usize) -> Result<*mut u8, Fault> {
    let job = job::get()?;
    if bytes == 0 || !alignment.is_power_of_two() {
        return Ok(std::ptr::null_mut());
    }
    let had = job.heap().take(job, bytes, alignment.max(UNIT));
    agree(job, bytes, had)
}

/// `shmem_calloc`.
///
/// # Errors
/// As [`malloc`].
pub fn calloc(count: usize, size: usize) -> Result<*mut u8, Fault> {
    let job = job::get()?;
    let bytes = count.saturating_mul(size);
    if bytes == 0 {
        return Ok(std::ptr::null_mut());
    }
    let had = job.heap().take(job, bytes, UNIT);
    if let Ok(offset) = had {
        job.segments.clear_own_heap(offset, bytes);
    }
    agree(job, bytes, had)
}

/// `shmem_free`. Null is nothing.
///
/// # Errors
/// The library is not initialised, or no block begins there.
pub fn free(block: Symmetric) -> Result<(), Fault> {
    let job = job::get()?;
    if block.raw() == 0 {
        return Ok(());
    }
    Gathering::new(job, Team::WORLD)?.wait();
    let offset = job.segments.heap_offset(block);
    match offset.and_then(|offset| job.heap().books.give(offset)) {
        Some(_) => Ok(()),
        None => Err(no_block(block)),
    }
}

fn no_block(block: Symmetric) -> Fault {
    Fault::value(
        "ptr",
        block.raw() as i64,
        "give an address that shmem_malloc gave and that was not freed",
    )
}

/// `shmem_realloc`: as `malloc` for null, as `free` for no bytes.
///
/// # Errors
/// As [`malloc`] and [`free()`].
pub fn realloc(block: Symmetric, bytes: usize) -> Result<*mut u8, Fault> {
    let job = job::get()?;
    if block.raw() == 0 {
        return malloc(bytes);
    }
    if bytes == 0 {
        return free(block).map(|()| std::ptr::null_mut());
    }
    Gathering::new(job, Team::WORLD)?.wait();
    let offset = job.segments.heap_offset(block);
    let length = offset
        .and_then(|offset| job.heap().books.length_of(offset))
        .ok_or_else(|| no_block(block))?;
    if bytes <= length && length - bytes < length / 2 {
        // It stays where it is, on all PEs.
        return agree_to_keep(job, block);
    }
    let had = job.heap().take(job, bytes, UNIT);
    if let Ok(to) = had {
        job.segments.copy_own_heap(offset.unwrap_or_default(), to, bytes.min(length));
    }
    let moved = agree(job, bytes, had)?;
    if !moved.is_null() {
        // Nobody reaches the old block: the agreement came behind all copies.
        job.heap().books.give(offset.unwrap_or_default());
    }
    Ok(moved)
}

fn agree_to_keep(job: &Job, block: Symmetric) -> Result<*mut u8, Fault> {
    Gathering::new(job, Team::WORLD)?.wait();
    Ok(job.segments.own_heap(job.segments.heap_offset(block).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take__the_smallest_that_fits_and_neighbours_become_one() {
        let mut books = Books::new(10 * UNIT);
        let blocks: Vec<usize> =
            [1, 65, 64, 128].iter().map(|bytes| books.take(*bytes, UNIT).expect("room")).collect();
        assert_eq!(blocks, [0, 64, 192, 256]);
        assert_eq!(books.give(64), Some(128));
        assert_eq!(books.give(64), None);
        assert_eq!(books.take(100, UNIT), Some(64), "the hole fits better than the rest");
        assert_eq!(books.take(64, 256), Some(512));
        assert_eq!(books.take(129, UNIT), None);
        for block in [0, 192, 64, 512, 256] {
            assert!(books.give(block).is_some());
        }
        assert_eq!(books.room(), (640, 640));
        assert_eq!(books.take(usize::MAX, UNIT), None);
    }

    #[test]
    fn take__random_calls_never_overlap_and_nothing_gets_lost() {
        let (mut books, mut blocks) = (Books::new(1 << 16), Vec::<(usize, usize)>::new());
        let mut state = 7u64;
        let mut draw = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % below
        };
        for _ in 0..4_000 {
            if draw(2) == 0 && !blocks.is_empty() {
                let (offset, length) = blocks.swap_remove(draw(blocks.len()));
                assert_eq!(books.give(offset), Some(length));
            } else {
                let align = UNIT << draw(4);
                if let Some(offset) = books.take(1 + draw(3_000), align) {
                    let length = books.length_of(offset).expect("taken");
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
            assert_eq!(books.room().0 + used, 1 << 16);
        }
    }
}
