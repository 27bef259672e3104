//! A bounded number of buffers in which bytes travel between memory and files. Buffers are
//! page-aligned, as files that were opened with `O_DIRECT` need them.

use clearway_proto::wire::regions::Pages;

/// Buffers of one operation. Together they are at least as long as it.
#[derive(Debug, Default)]
pub(super) struct OperationBuffers {
    list: Vec<Pages>,
    /// Bytes of each.
    each: usize,
}

impl OperationBuffers {
    /// Returns the first `length` bytes, buffer by buffer.
    pub(super) fn parts(&self, length: usize) -> impl Iterator<Item = &[u8]> {
        let each = self.each;
        self.list.iter().enumerate().map(move |(i, buffer)| {
            let count = length.saturating_sub(i * each).min(each);
            &buffer.as_ref()[..count]
        })
    }

    /// Returns the same, to be written.
    pub(super) fn parts_mut(&mut self, length: usize) -> impl Iterator<Item = &mut [u8]> {
        let each = self.each;
        self.list.iter_mut().enumerate().map(move |(i, buffer)| {
            let count = length.saturating_sub(i * each).min(each);
            &mut buffer.as_mut()[..count]
        })
    }
}

/// The buffers of one target.
#[derive(Debug)]
pub(super) struct TargetBuffers {
    free: Vec<Pages>,
    /// Buffers that exist.
    made: usize,
    most: usize,
    each: usize,
}

impl TargetBuffers {
    /// Creates a pool of at most `most` buffers of `each` bytes, rounded up to pages.
    pub(super) fn new(most: usize, each: usize) -> Self {
        Self {
            free: Vec::new(),
            made: 0,
            most,
            each: each.max(1).next_multiple_of(Pages::ALIGNMENT),
        }
    }

    /// Returns how many buffers `length` bytes take; `None` when the pool never has that number.
    pub(super) fn needed(&self, length: usize) -> Option<usize> {
        let needed = length.div_ceil(self.each);
        (needed <= self.most).then_some(needed)
    }

    /// Returns whether `count` buffers can be taken.
    pub(super) fn has(&self, count: usize) -> bool {
        self.free.len() + (self.most - self.made) >= count
    }

    /// Takes `count` buffers, which [`TargetBuffers::has`].
    ///
    /// # Panics
    /// When no process has as many bytes as one buffer.
    pub(super) fn take(&mut self, count: usize) -> OperationBuffers {
        let mut list = self.free.split_off(self.free.len().saturating_sub(count));
        let new = count - list.len();
        self.made += new;
        list.extend(
            (0..new).map(|_| Pages::new(self.each).expect("as many bytes as a process can have")),
        );
        OperationBuffers { list, each: self.each }
    }

    /// Takes buffers back.
    pub(super) fn give_back(&mut self, buffers: OperationBuffers) {
        self.free.extend(buffers.list);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = Pages::ALIGNMENT;

    #[test]
    fn take__buffers_are_aligned_bounded_and_used_again() {
        let mut pool = TargetBuffers::new(3, PAGE + 1);
        assert_eq!(
            (pool.needed(0), pool.needed(1), pool.needed(2 * PAGE + 1)),
            (Some(0), Some(1), Some(2))
        );
        assert_eq!((pool.needed(6 * PAGE), pool.needed(6 * PAGE + 1)), (Some(3), None));
        let (two, one) = (pool.take(2), pool.take(1));
        assert!(!pool.has(1) && pool.has(0));
        let all: Vec<&[u8]> = two.parts(4 * PAGE).chain(one.parts(1)).collect();
        assert_eq!(all.iter().map(|part| part.len()).collect::<Vec<_>>(), [2 * PAGE, 2 * PAGE, 1]);
        assert!(all.iter().all(|part| part.as_ptr().addr() % PAGE == 0));
        pool.give_back(two);
        assert!(pool.has(2) && !pool.has(3));
        assert_eq!(pool.take(2).list.len(), 2);
        assert_eq!(pool.made, 3);
    }
}
