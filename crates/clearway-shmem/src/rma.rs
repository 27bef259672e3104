//! Copies to and from other PEs: `put`, `get`, single values, strided, and their non-blocking
//! forms.
//!
//! # Model
//! To a PE of this host each is one copy by the calling thread. The non-blocking forms do the same:
//! a copy into a neighbour's memory is as fast as any way to leave it for later. To a PE of another
//! host they are records ([`crate::far`]).
//!
//! # Source
//! OpenSHMEM 1.5, "Remote Memory Access Routines". Sizes are bytes here; the table of types
//! multiplies.

#![allow(clippy::too_many_arguments)] // the standard's functions have as many

use crate::address::{Caller, Symmetric};
use crate::context::Context;
use crate::fault::Fault;
use crate::job::{self, Reach};
use crate::word::Plain;

/// The names of arguments in sentences.
const DEST: &str = "dest";
const SOURCE: &str = "source";

/// `shmem_put`: copies `bytes` bytes to PE `pe`.
///
/// # Errors
/// No such PE, or `dest` leaves symmetric memory.
#[inline(always)]
pub fn put(
    context: Context,
    dest: Symmetric,
    source: Caller,
    bytes: usize,
    pe: i32,
) -> Result<(), Fault> {
    let target = job::get()?.target(context, dest, bytes, pe, DEST)?;
    if source.is_null() {
        return null(SOURCE, bytes);
    }
    match target {
        Reach::Near(place) => place.put(source, bytes),
        Reach::Far(object) => object.put(source, bytes),
        Reach::Nothing => {}
    }
    Ok(())
}

/// Refuses the null pointer, unless nothing is copied.
#[cold]
#[inline(never)]
fn null(argument: &'static str, bytes: usize) -> Result<(), Fault> {
    if bytes == 0 {
        Ok(())
    } else {
        Err(Fault::value(argument, 0, "the null pointer is no memory"))
    }
}

/// `shmem_get`: copies `bytes` bytes from PE `pe`.
///
/// # Errors
/// No such PE, or `source` leaves symmetric memory.
#[inline(always)]
pub fn get(
    context: Context,
    dest: Caller,
    source: Symmetric,
    bytes: usize,
    pe: i32,
) -> Result<(), Fault> {
    let target = job::get()?.target(context, source, bytes, pe, SOURCE)?;
    if dest.is_null() {
        return null(DEST, bytes);
    }
    match target {
        Reach::Near(place) => place.get(dest, bytes),
        Reach::Far(object) => object.get(dest, bytes),
        Reach::Nothing => {}
    }
    Ok(())
}

/// `shmem_put_nbi`.
///
/// # Errors
/// As [`put`].
#[inline(always)]
pub fn put_nbi(
    context: Context,
    dest: Symmetric,
    source: Caller,
    bytes: usize,
    pe: i32,
) -> Result<(), Fault> {
    put(context, dest, source, bytes, pe)
}

/// `shmem_get_nbi`.
///
/// # Errors
/// As [`get`].
#[inline(always)]
pub fn get_nbi(
    context: Context,
    dest: Caller,
    source: Symmetric,
    bytes: usize,
    pe: i32,
) -> Result<(), Fault> {
    let target = job::get()?.target(context, source, bytes, pe, SOURCE)?;
    if dest.is_null() {
        return null(DEST, bytes);
    }
    match target {
        Reach::Near(place) => place.get(dest, bytes),
        Reach::Far(object) => object.get_nbi(dest, bytes),
        Reach::Nothing => {}
    }
    Ok(())
}

/// `shmem_p`: stores one value on PE `pe`.
///
/// # Errors
/// As [`put`].
#[inline]
pub fn p<T: Plain>(context: Context, dest: Symmetric, value: T, pe: i32) -> Result<(), Fault> {
    match job::get()?.target(context, dest, size_of::<T>(), pe, DEST)? {
        Reach::Near(place) => place.store(value),
        Reach::Far(object) => object.put(Caller::from_slice(&[value]), size_of::<T>()),
        Reach::Nothing => {}
    }
    Ok(())
}

/// `shmem_g`: loads one value from PE `pe`.
///
/// # Errors
/// As [`get`].
#[inline]
pub fn g<T: Plain>(context: Context, source: Symmetric, pe: i32) -> Result<T, Fault> {
    match job::get()?.target(context, source, size_of::<T>(), pe, SOURCE)? {
        Reach::Near(place) => Ok(place.load()),
        Reach::Far(object) => Ok(object.load()),
        // No type of the table has no bytes.
        Reach::Nothing => Err(Fault::value(SOURCE, 0, "a value has at least one byte")),
    }
}

/// What a strided copy does, element by element.
#[derive(Clone, Copy)]
struct Strides {
    symmetric: isize,
    local: isize,
    count: usize,
    size: usize,
}

impl Strides {
    /// Bytes from the first element of the symmetric array to behind its last; `None` if no memory
    /// is so long.
    fn span(self) -> Option<usize> {
        let stride = usize::try_from(self.symmetric).ok().filter(|stride| *stride > 0)?;
        let steps = stride
            .checked_mul(self.count.saturating_sub(1))?
            .checked_add(usize::from(self.count > 0))?;
        steps.checked_mul(self.size)
    }

    /// Calls `each` for the elements, with the offset in the symmetric array and the local place.
    #[inline]
    fn walk(self, local: Caller, each: impl Fn(usize, Caller)) {
        let step = self.symmetric as usize * self.size;
        for index in 0..self.count {
            let local = local.plus(self.local * (index * self.size) as isize);
            each(index * step, local);
        }
    }
}

/// `shmem_iput`: copies `count` elements of `size` bytes, `dst` and `sst` elements apart.
///
/// # Errors
/// As [`put`], or a stride below 1.
#[inline]
pub fn iput(
    context: Context,
    dest: Symmetric,
    source: Caller,
    dst: isize,
    sst: isize,
    count: usize,
    size: usize,
    pe: i32,
) -> Result<(), Fault> {
    let strides = Strides { symmetric: dst, local: sst, count, size };
    let span = checked_span(strides, "dst", dst)?;
    match job::get()?.target(context, dest, span, pe, DEST)? {
        Reach::Near(place) => {
            strides.walk(source, |at, local| place.plus(at).put(local, size));
        }
        Reach::Far(object) => {
            strides.walk(source, |at, local| object.plus(at).put(local, size));
        }
        Reach::Nothing => {}
    }
    Ok(())
}

/// `shmem_iget`.
///
/// # Errors
/// As [`get`], or a stride below 1.
#[inline]
pub fn iget(
    context: Context,
    dest: Caller,
    source: Symmetric,
    dst: isize,
    sst: isize,
    count: usize,
    size: usize,
    pe: i32,
) -> Result<(), Fault> {
    let strides = Strides { symmetric: sst, local: dst, count, size };
    let span = checked_span(strides, "sst", sst)?;
    match job::get()?.target(context, source, span, pe, SOURCE)? {
        Reach::Near(place) => {
            strides.walk(dest, |at, local| place.plus(at).get(local, size));
        }
        Reach::Far(object) => {
            strides.walk(dest, |at, local| object.plus(at).get_nbi(local, size));
            object.complete_gets();
        }
        Reach::Nothing => {}
    }
    Ok(())
}

fn checked_span(strides: Strides, argument: &'static str, stride: isize) -> Result<usize, Fault> {
    strides
        .span()
        .ok_or_else(|| Fault::value(argument, stride as i64, "a stride is 1 or more elements"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span__counts_from_the_first_byte_to_behind_the_last() {
        let span = |symmetric, count, size| Strides { symmetric, local: 1, count, size }.span();
        assert_eq!(
            [span(1, 4, 8), span(3, 4, 8), span(3, 1, 8), span(3, 0, 8)],
            [Some(32), Some(80), Some(8), Some(0)]
        );
        assert_eq!([span(-1, 2, 8), span(isize::MAX, 3, 8)], [None, None]);
    }
}
