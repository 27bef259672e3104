//! Memory of writes: bytes that the log has not made durable yet, and those kept for readers.
//!
//! # Model
//! Each write has a *loan* of pages, filled by the thread that took the request. It is *lent* to the
//! log under an offset that no other loan ever had, until it is durable; readers share it. Pages of
//! loans that nobody has any more are used again, by size, so that a stream of writes takes no new
//! memory from the system. They are kept while all pages together are no more than a bound.
//!
//! # Invariants
//! I1. Lent pages are never written to.
//! I2. A span that is not inside one lent loan is refused.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use clearway_proto::wire::regions::Pages;
use clearway_proto::wire::{AtomicKind, ForeignMemory, HeldBytes, RefusalReason};

/// Sizes of pages that are kept for use: 4 KiB to 1 MiB, by powers of two.
const SIZES: usize = 9;
/// The length that the log sees: offsets count up and never come again.
const LENGTH: u64 = 1 << 62;

/// Bytes of one write.
#[derive(Debug)]
pub(crate) struct Loan {
    pages: Option<Pages>,
    length: usize,
    pool: Arc<PagePool>,
}

impl Loan {
    /// Returns the bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.pages.as_ref().map_or(&[], |pages| &pages.as_ref()[..self.length])
    }
}

/// The bytes and those behind them, to the end of the page.
impl AsRef<[u8]> for Loan {
    fn as_ref(&self) -> &[u8] {
        self.pages
            .as_ref()
            .map_or(&[], |pages| &pages.as_ref()[..self.length.next_multiple_of(Pages::ALIGNMENT)])
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(pages) = self.pages.take() {
            self.pool.put(pages);
        }
    }
}

/// All pages of an arena: those in loans, and those that nobody has.
#[derive(Debug)]
struct PagePool {
    state: Mutex<PoolState>,
    /// Bytes up to which free pages are kept; loans may have more.
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct PoolState {
    /// Free pages, by size.
    free: [Vec<Pages>; SIZES],
    /// Bytes of all pages, free and in loans.
    bytes: usize,
}

impl PoolState {
    /// Removes free pages, the largest first, until the pool has at most `bytes_max` bytes.
    fn take_surplus(&mut self, bytes_max: usize) -> Vec<Pages> {
        let mut surplus = Vec::new();
        for free in self.free.iter_mut().rev() {
            while self.bytes > bytes_max
                && let Some(pages) = free.pop()
            {
                self.bytes -= pages.as_ref().len();
                surplus.push(pages);
            }
        }
        surplus
    }
}

/// Returns the place of the smallest size for `length` bytes.
fn size_index(length: usize) -> usize {
    let pages = length.div_ceil(Pages::ALIGNMENT).max(1).next_power_of_two();
    (pages.trailing_zeros() as usize).min(SIZES - 1)
}

impl PagePool {
    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, length: usize) -> Option<Pages> {
        let index = size_index(length);
        let length = (Pages::ALIGNMENT << index).max(length);
        let mut state = self.state();
        if length == Pages::ALIGNMENT << index
            && let Some(pages) = state.free[index].pop()
        {
            return Some(pages);
        }
        state.bytes += length;
        let surplus = state.take_surplus(self.bytes_max);
        drop(state);
        // Without the lock: the system takes them back.
        drop(surplus);
        let made = Pages::new(length);
        if made.is_none() {
            self.state().bytes -= length;
        }
        made
    }

    fn put(&self, pages: Pages) {
        let length = pages.as_ref().len();
        let index = size_index(length);
        let mut state = self.state();
        if length == Pages::ALIGNMENT << index && state.bytes <= self.bytes_max {
            return state.free[index].push(pages);
        }
        state.bytes -= length;
    }
}

/// All loans that the log reads.
#[derive(Debug)]
pub(crate) struct Arena {
    lent: RwLock<(BTreeMap<u64, Arc<Loan>>, u64)>,
    pool: Arc<PagePool>,
}

impl Arena {
    /// Creates an arena that keeps pages for later writes while all of its pages, those of loans
    /// included, have at most `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        let pool = Arc::new(PagePool { state: Mutex::default(), bytes_max });
        Self { lent: RwLock::default(), pool }
    }

    /// Gives the memory that no loan has back to the system.
    pub(crate) fn release_free(&self) {
        // Dropped without the lock.
        let surplus = self.pool.state().take_surplus(0);
        drop(surplus);
    }

    /// Copies `bytes` into a loan; `None` when no process has that much memory.
    pub(crate) fn fill(&self, bytes: &[u8]) -> Option<Loan> {
        let mut pages = self.pool.take(bytes.len())?;
        pages.as_mut()[..bytes.len()].copy_from_slice(bytes);
        let pool = Arc::clone(&self.pool);
        Some(Loan { pages: Some(pages), length: bytes.len(), pool })
    }

    /// Makes a loan of `length` bytes and lets `fill` write them; `None` when there is no memory.
    ///
    /// # Errors
    /// What `fill` says.
    pub(crate) fn fill_with<E>(
        &self,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Option<Loan>, E> {
        let Some(mut pages) = self.pool.take(length) else { return Ok(None) };
        fill(&mut pages.as_mut()[..length])?;
        Ok(Some(Loan { pages: Some(pages), length, pool: Arc::clone(&self.pool) }))
    }

    /// Lends a loan to the log; returns its offset.
    pub(crate) fn lend(&self, loan: Arc<Loan>) -> u64 {
        let mut lent = self.lent.write().unwrap_or_else(PoisonError::into_inner);
        let offset = lent.1;
        lent.1 += loan.length.next_multiple_of(Pages::ALIGNMENT) as u64;
        lent.0.insert(offset, loan);
        offset
    }

    /// Takes a loan back from the log.
    pub(crate) fn take_back(&self, offset: u64) {
        self.lent.write().unwrap_or_else(PoisonError::into_inner).0.remove(&offset);
    }

    /// Returns the loan with `length` lent bytes from `at` on, if it has them all.
    fn lent(&self, at: u64, length: usize) -> Option<HeldBytes> {
        let lent = self.lent.read().unwrap_or_else(PoisonError::into_inner);
        let (offset, loan) = lent.0.range(..=at).next_back()?;
        let from = usize::try_from(at - offset).ok()?;
        HeldBytes::new(Arc::<Loan>::clone(loan), from..from.checked_add(length)?)
    }
}

impl ForeignMemory for Arena {
    fn length(&self) -> u64 {
        LENGTH
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), RefusalReason> {
        let lent = self.lent(at, into.len()).ok_or(RefusalReason::Memory)?;
        into.copy_from_slice(lent.bytes());
        Ok(())
    }

    fn hold(&self, at: u64, length: u32) -> Option<HeldBytes> {
        self.lent(at, length as usize)
    }

    fn write(&self, _at: u64, _from: &[u8]) -> Result<(), RefusalReason> {
        Err(RefusalReason::Memory)
    }

    fn change(&self, _at: u64, _kind: AtomicKind) -> Result<u64, RefusalReason> {
        Err(RefusalReason::Memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read__only_what_is_lent_and_not_beyond_a_loan() {
        let arena = Arena::new(1 << 20);
        let one = Arc::new(arena.fill(&[1; 5000]).expect("memory"));
        let other = Arc::new(arena.fill(&[2; 10]).expect("memory"));
        let (one, other) = (arena.lend(one), arena.lend(other));
        assert_eq!((one, other), (0, 8192));
        let mut bytes = [9; 10];
        assert_eq!(arena.read(4990, &mut bytes), Ok(()));
        assert_eq!(bytes, [1; 10]);
        assert_eq!(arena.read(other, &mut bytes), Ok(()));
        assert_eq!(bytes, [2; 10]);
        assert!(arena.read(8190, &mut bytes).is_err(), "two loans");
        assert_eq!(arena.read(other, &mut [0; 4096]), Ok(()), "to the end of the page");
        assert!(arena.read(other, &mut [0; 4097]).is_err());
        assert!(arena.read(u64::MAX, &mut bytes).is_err());
        arena.take_back(one);
        assert!(arena.read(one, &mut bytes).is_err(), "taken back");
        assert!(
            arena.write(other, &[1]).is_err()
                && arena.change(other, AtomicKind::FetchAdd(1)).is_err()
        );
    }

    #[test]
    fn fill__pages_are_used_again_when_the_last_reader_lets_go() {
        let arena = Arena::new(1 << 20);
        let first = Arc::new(arena.fill(&[7; 100_000]).expect("memory"));
        let place = first.bytes().as_ptr();
        let reader = Arc::clone(&first);
        drop(first);
        assert_ne!(arena.fill(&[8; 100_000]).expect("memory").bytes().as_ptr(), place);
        assert_eq!(reader.bytes(), [7; 100_000]);
        drop(reader);
        let again = arena.fill(&[9; 70_000]).expect("memory");
        assert_eq!((again.bytes().as_ptr(), again.bytes().len()), (place, 70_000));
    }

    #[test]
    fn fill__pages_of_all_sizes_together_are_bounded() {
        let arena = Arena::new(1 << 20);
        let total = || arena.pool.state().bytes;
        // A loan that is larger than the bound is possible, and is not kept.
        drop(arena.fill(&vec![1; 3 << 20]).expect("memory"));
        assert_eq!(total(), 0);
        for length in [1 << 20, 512 << 10, 256 << 10, 4096] {
            let loans: Vec<_> =
                (0..3).map(|_| arena.fill(&vec![1; length]).expect("memory")).collect();
            assert!(total() >= 3 * length);
            drop(loans);
            assert!(total() <= 1 << 20, "{length}");
        }
        let small = arena.fill(&[1; 4096]).expect("memory");
        let place = small.bytes().as_ptr();
        drop(small);
        assert_eq!(arena.fill(&[1; 4096]).expect("memory").bytes().as_ptr(), place);
    }
}
