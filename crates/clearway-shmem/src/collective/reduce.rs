//! Reduces values: every member gets a bitwise equal result, because it is computed once or by all in
//! the same order.
//!
//! # Model
//! Up to 56 bytes are exchanged in one step, and every member computes. Up to [`SHORT`] bytes every
//! member reads all sources after a step, and writes its result after a second one, so that `dest` may
//! be `source`. Longer reductions are divided: each member computes its part of the elements and
//! writes it to all; no other member reads that part of a source.

use super::sync::WORDS;
use super::{SMALL, Together};
use crate::address::{Caller, Symmetric};
use crate::fault::Fault;
use crate::job::Reach;
use crate::operand::{Operand, ReduceOp, combine_all};

/// Bytes up to which everybody computes everything: where a part would be less than a page for each
/// of a few members.
const SHORT: usize = 4 << 10;
/// Bytes that are computed before they are written: they stay in the first-level cache.
const BLOCK: usize = 8 << 10;

impl Together<'_> {
    pub(crate) fn reduce<T: Operand>(
        &self,
        op: ReduceOp,
        dest: Symmetric,
        source: Symmetric,
        count: usize,
    ) -> Result<(), Fault> {
        let bytes = count.saturating_mul(size_of::<T>());
        self.expect_same("reduce", [bytes as u64, op as u64])?;
        let into = self.own(dest, bytes, "dest")?;
        let own = self.own(source, bytes, "source")?;
        self.expect_apart((dest, bytes), (source, bytes))?;
        if bytes <= SMALL {
            let mut room = [0u64; WORDS];
            let result = Caller::from_slice_mut(&mut room);
            self.tell(own, bytes, |index, words| {
                for at in 0..count {
                    let value = words.read::<T>(at);
                    result.write(
                        at,
                        match index {
                            0 => value,
                            _ => T::combine(op, result.read(at), value),
                        },
                    );
                }
            });
            into.put(result, bytes);
            return Ok(());
        }
        if let Some(plan) = self.plan() {
            return self.reduce_between_hosts::<T>(&plan, op, dest, source, count);
        }
        if bytes <= SHORT {
            self.wait();
            let result = self.combined::<T>(0..self.all.size(), op, source, 0, count)?;
            self.wait();
            into.put(Caller::from_slice(&result), bytes);
            return Ok(());
        }
        self.share::<T>(op, dest, source, count)
    }

    /// The result of `members` for `count` elements from element `first` on.
    pub(super) fn combined<T: Operand>(
        &self,
        members: impl Iterator<Item = usize>,
        op: ReduceOp,
        source: Symmetric,
        first: usize,
        count: usize,
    ) -> Result<Vec<T>, Fault> {
        let (at, bytes) = (first * size_of::<T>(), count * size_of::<T>());
        let mut copy = Vec::new();
        let mut result: Vec<T> = Vec::new();
        for (place, member) in members.enumerate() {
            let elements = self.elements(member, source.plus(at), bytes, &mut copy)?;
            let Some(elements) = elements else { continue };
            match place {
                0 => result.extend((0..count).map(|index| elements.read::<T>(index))),
                _ => combine_all(op, &mut result, elements),
            }
        }
        Ok(result)
    }

    /// Each member computes a part and gives it to all.
    fn share<T: Operand>(
        &self,
        op: ReduceOp,
        dest: Symmetric,
        source: Symmetric,
        count: usize,
    ) -> Result<(), Fault> {
        self.wait();
        let (size, me) = (self.all.size(), self.all.me());
        let part = count.div_ceil(size);
        let (mut first, end) = ((me * part).min(count), ((me + 1) * part).min(count));
        while first < end {
            let length = (end - first).min(BLOCK / size_of::<T>());
            let result = self.combined::<T>(0..size, op, source, first, length)?;
            let (at, bytes) = (first * size_of::<T>(), length * size_of::<T>());
            for member in 0..size {
                match self.member(member, dest.plus(at), bytes, "dest")? {
                    Reach::Near(place) => place.put(Caller::from_slice(&result), bytes),
                    Reach::Far(object) => object.put(Caller::from_slice(&result), bytes),
                    Reach::Nothing => {}
                }
            }
            first += length;
        }
        self.finish();
        Ok(())
    }
}
