//! Copies to and from other PEs: `put`, `get`, single values, strided and non-blocking forms.
//!
//! # Model
//! For a PE of this host each is one copy by the calling thread. The non-blocking forms do the same,
//! because no deferred copy would be faster. For a PE of another host they are records (`far`).
//!
//! # Source
//! OpenSHMEM 1.6, "Remote Memory Access Routines". Sizes are bytes here; the table of types
//! multiplies.

#![allow(clippy::too_many_arguments)] // the standard's functions have as many

use crate::address::{Caller, Symmetric};
use crate::context::Context;
use crate::far::FarObject;
use crate::fault::Fault;
use crate::job::{self, Reach};
use crate::word::Plain;

/// The names of arguments in sentences.
const DEST: &str = "dest";
const SOURCE: &str = "source";

/// Finds what this process has not mapped; none if nothing is to be copied.
#[cold]
#[inline(never)]
fn far(
    context: Context,
    at: Symmetric,
    bytes: usize,
    pe: i32,
    argument: &'static str,
) -> Result<Option<FarObject>, Fault> {
    match job::get()?.target(context, at, bytes, pe, argument)? {
        Reach::Far(object) => Ok(Some(object)),
        Reach::Near(_) | Reach::Nothing => Ok(None),
    }
}

/// Refuses the null pointer, unless nothing is copied.
#[cold]
#[inline(never)]
fn null(argument: &'static str, bytes: usize) -> Result<(), Fault> {
    if bytes == 0 { Ok(()) } else { Err(Fault::value(argument, 0, "give an address of memory")) }
}

/// Copies `bytes` bytes to PE `pe` (`shmem_put`).
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
    if source.is_null() {
        return null(SOURCE, bytes);
    }
    match job::get()?.near(context, dest, bytes, pe) {
        Some(place) => place.put(source, bytes),
        None => put_far(context, dest, source, bytes, pe)?,
    }
    Ok(())
}

#[cold]
#[inline(never)]
fn put_far(
    context: Context,
    dest: Symmetric,
    source: Caller,
    bytes: usize,
    pe: i32,
) -> Result<(), Fault> {
    if let Some(object) = far(context, dest, bytes, pe, DEST)? {
        object.put(source, bytes);
    }
    Ok(())
}

/// Copies `bytes` bytes from PE `pe` (`shmem_get`).
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
    if dest.is_null() {
        return null(DEST, bytes);
    }
    match job::get()?.near(context, source, bytes, pe) {
        Some(place) => place.get(dest, bytes),
        None => get_far(context, dest, source, bytes, pe)?,
    }
    Ok(())
}

#[cold]
#[inline(never)]
fn get_far(
    context: Context,
    dest: Caller,
    source: Symmetric,
    bytes: usize,
    pe: i32,
) -> Result<(), Fault> {
    if let Some(object) = far(context, source, bytes, pe, SOURCE)? {
        object.get(dest, bytes);
    }
    Ok(())
}

/// Copies `bytes` bytes to PE `pe`, complete after a quiet (`shmem_put_nbi`).
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

/// Copies `bytes` bytes from PE `pe`, complete after a quiet (`shmem_get_nbi`).
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
    if dest.is_null() {
        return null(DEST, bytes);
    }
    match job::get()?.near(context, source, bytes, pe) {
        Some(place) => place.get(dest, bytes),
        None => get_nbi_far(context, dest, source, bytes, pe)?,
    }
    Ok(())
}

#[cold]
#[inline(never)]
fn get_nbi_far(
    context: Context,
    dest: Caller,
    source: Symmetric,
    bytes: usize,
    pe: i32,
) -> Result<(), Fault> {
    if let Some(object) = far(context, source, bytes, pe, SOURCE)? {
        object.get_nbi(dest, bytes);
    }
    Ok(())
}

/// Stores one value on PE `pe` (`shmem_p`).
///
/// # Errors
/// As [`put`].
#[inline(always)]
pub fn p<T: Plain>(context: Context, dest: Symmetric, value: T, pe: i32) -> Result<(), Fault> {
    match job::get()?.near(context, dest, size_of::<T>(), pe) {
        Some(place) => place.store(value),
        None => p_far(context, dest, value, pe)?,
    }
    Ok(())
}

#[cold]
#[inline(never)]
fn p_far<T: Plain>(context: Context, dest: Symmetric, value: T, pe: i32) -> Result<(), Fault> {
    put_far(context, dest, Caller::from_slice(&[value]), size_of::<T>(), pe)
}

/// Loads one value from PE `pe` (`shmem_g`).
///
/// # Errors
/// As [`get`].
#[inline(always)]
pub fn g<T: Plain>(context: Context, source: Symmetric, pe: i32) -> Result<T, Fault> {
    match job::get()?.near(context, source, size_of::<T>(), pe) {
        Some(place) => Ok(place.load()),
        None => g_far(context, source, pe),
    }
}

#[cold]
#[inline(never)]
fn g_far<T: Plain>(context: Context, source: Symmetric, pe: i32) -> Result<T, Fault> {
    let object = far(context, source, size_of::<T>(), pe, SOURCE)?;
    object.map(FarObject::load).ok_or_else(nothing)
}

/// The fault of a value without bytes, which no type of the table has.
fn nothing() -> Fault {
    Fault::value(SOURCE, 0, "give a value of at least one byte")
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
    /// Bytes from the first element of the symmetric array to the end of its last; `None` if no memory
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

/// Copies `count` elements of `size` bytes, `dst` and `sst` elements apart, to PE `pe`
/// (`shmem_iput`).
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

/// Copies `count` elements of `size` bytes, `dst` and `sst` elements apart, from PE `pe`
/// (`shmem_iget`).
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
        .ok_or_else(|| Fault::value(argument, stride as i64, "use a stride of at least 1 element"))
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
