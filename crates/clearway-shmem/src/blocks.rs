//! Copies strided blocks of elements: `ibput` and `ibget`.
//!
//! # Model
//! These are strided copies ([`crate::rma::iput`]) of blocks of several elements. Strides
//! count elements and are at least a block, so that blocks never overlap.
//!
//! # Source
//! OpenSHMEM 1.6, "shmem_ibput" and "shmem_ibget".

use crate::address::{Caller, Symmetric};
use crate::context::Context;
use crate::fault::Fault;
use crate::job::{self, Reach};
use crate::word::Plain;

/// Which blocks a copy moves.
#[derive(Clone, Copy, Debug)]
pub struct Blocks {
    dst: isize,
    sst: isize,
    /// Elements of a block.
    length: usize,
    count: usize,
    /// Bytes of an element.
    size: usize,
}

impl Blocks {
    /// Creates the pattern of `count` blocks of `length` elements each. In the destination the
    /// blocks begin `dst` elements apart, in the source `sst`.
    #[inline]
    pub fn new<T: Plain>(dst: isize, sst: isize, length: usize, count: usize) -> Self {
        Self { dst, sst, length, count, size: size_of::<T>() }
    }

    /// Checks both strides: in elements, and at least a block.
    fn strides(self) -> Result<(usize, usize), Fault> {
        let checked = |argument, stride: isize| match usize::try_from(stride) {
            Ok(elements) if elements >= self.length.max(1) => Ok(elements),
            _ => Err(Fault::value(
                argument,
                stride as i64,
                "use a stride of at least `bsize` and at least 1",
            )),
        };
        Ok((checked("dst", self.dst)?, checked("sst", self.sst)?))
    }

    /// Bytes of a block.
    fn bytes(self) -> usize {
        self.length.saturating_mul(self.size)
    }

    /// Bytes from the first element to behind the last; more than any memory has where that is no
    /// number.
    fn span(self, stride: usize) -> usize {
        if self.count == 0 || self.length == 0 {
            return 0;
        }
        let last = stride.saturating_mul(self.count - 1);
        last.saturating_add(self.length).saturating_mul(self.size)
    }
}

/// Copies blocks to PE `pe` (`shmem_ibput`).
///
/// # Errors
/// No such PE, `dest` leaves symmetric memory, or a stride is less than a block.
pub fn ibput(
    context: Context,
    dest: Symmetric,
    source: Caller,
    blocks: Blocks,
    pe: i32,
) -> Result<(), Fault> {
    let (dst, sst) = blocks.strides()?;
    let span = blocks.span(dst);
    let target = job::get()?.target(context, dest, span, pe, "dest")?;
    for block in (0..blocks.count).filter(|_| span > 0) {
        let from = source.plus((block * sst * blocks.size) as isize);
        match target.plus(block * dst * blocks.size) {
            Reach::Near(place) => place.put(from, blocks.bytes()),
            Reach::Far(object) => object.put(from, blocks.bytes()),
            Reach::Nothing => {}
        }
    }
    Ok(())
}

/// Copies blocks from PE `pe` (`shmem_ibget`).
///
/// # Errors
/// No such PE, `source` leaves symmetric memory, or a stride is less than a block.
pub fn ibget(
    context: Context,
    dest: Caller,
    source: Symmetric,
    blocks: Blocks,
    pe: i32,
) -> Result<(), Fault> {
    let (dst, sst) = blocks.strides()?;
    let span = blocks.span(sst);
    let target = job::get()?.target(context, source, span, pe, "source")?;
    for block in (0..blocks.count).filter(|_| span > 0) {
        let into = dest.plus((block * dst * blocks.size) as isize);
        match target.plus(block * sst * blocks.size) {
            Reach::Near(place) => place.get(into, blocks.bytes()),
            Reach::Far(object) => object.get_nbi(into, blocks.bytes()),
            Reach::Nothing => {}
        }
    }
    if let Reach::Far(object) = target {
        object.complete_gets();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span__ends_behind_the_last_block() {
        let span = |stride: isize, length, count| {
            Blocks::new::<u64>(stride, stride, length, count).span(stride as usize)
        };
        assert_eq!([span(3, 3, 2), span(5, 3, 2), span(5, 3, 0), span(5, 0, 2)], [48, 64, 0, 0]);
        assert_eq!(span(isize::MAX, 3, 5), usize::MAX);
    }

    #[test]
    fn strides__are_at_least_a_block() {
        let strides = |dst, sst, length| Blocks::new::<u8>(dst, sst, length, 2).strides();
        assert_eq!(strides(4, 5, 4).ok(), Some((4, 5)));
        for (dst, sst, length) in [(3, 4, 4), (4, 3, 4), (-4, 4, 4), (0, 1, 0)] {
            assert!(strides(dst, sst, length).is_err(), "{dst} {sst} {length}");
        }
    }
}
