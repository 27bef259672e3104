//! Which Rust types stand for the types of C, and what the processor can do with them in one step.
//!
//! # Model
//! Types of C differ in name only: `long` and `int64_t` are one 64-bit number. So there are few
//! kernels, and the table of C types says which of them a function uses.

#![allow(unsafe_code)]

use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::atomic::{
    AtomicI16, AtomicI32, AtomicI64, AtomicU16, AtomicU32, AtomicU64, Ordering,
};

/// Objects that are nothing but bytes.
///
/// # Safety
/// The type has no padding, and any bytes are a value of it.
pub unsafe trait Plain: Copy + Send + Sync + 'static {}

macro_rules! plain {
    ($($t:ty),*) => { $(
        // SAFETY: numbers, and arrays and pairs of them: no padding, any bytes are a value.
        unsafe impl Plain for $t {}
    )* };
}

// SAFETY: two numbers one behind the other, of a size that leaves no gap.
unsafe impl Plain for crate::operand::ComplexFloat {}
// SAFETY: as above.
unsafe impl Plain for crate::operand::ComplexDouble {}

plain!(i8, u8, i16, u16, i32, u32, i64, u64, usize, f32, f64, [u64; 2]);

/// An object that the processor reads, writes and swaps in one step.
pub trait Word: Plain + PartialEq {
    /// The atomic of the same size.
    type Atomic: 'static;
    /// Its bits, in the lowest ones.
    fn bits(self) -> u64;
    /// Reads it.
    fn load(at: &Self::Atomic, order: Ordering) -> Self;
    /// Writes it.
    fn store(at: &Self::Atomic, value: Self, order: Ordering);
    /// Writes it and gives what was there.
    fn swap(at: &Self::Atomic, value: Self) -> Self;
    /// Writes `value` if `wanted` is there, bit by bit, and gives what was there.
    fn compare_swap(at: &Self::Atomic, wanted: Self, value: Self) -> Self;
}

/// A number that the processor counts with in one step.
pub trait Integer: Word + PartialOrd {
    /// Adds, and gives what was there.
    fn fetch_add(at: &Self::Atomic, value: Self) -> Self;
    /// Changes it by *and*, and gives what was there.
    fn fetch_and(at: &Self::Atomic, value: Self) -> Self;
    /// Changes it by *or*, and gives what was there.
    fn fetch_or(at: &Self::Atomic, value: Self) -> Self;
    /// Changes it by *exclusive or*, and gives what was there.
    fn fetch_xor(at: &Self::Atomic, value: Self) -> Self;
}

macro_rules! integer {
    ($($t:ty, $atomic:ty);*) => { $(
        impl Word for $t {
            type Atomic = $atomic;
            #[inline]
            fn bits(self) -> u64 {
                self as u64
            }
            #[inline]
            fn load(at: &$atomic, order: Ordering) -> Self {
                at.load(order)
            }
            #[inline]
            fn store(at: &$atomic, value: Self, order: Ordering) {
                at.store(value, order);
            }
            #[inline]
            fn swap(at: &$atomic, value: Self) -> Self {
                at.swap(value, AcqRel)
            }
            #[inline]
            fn compare_swap(at: &$atomic, wanted: Self, value: Self) -> Self {
                at.compare_exchange(wanted, value, AcqRel, Acquire).unwrap_or_else(|found| found)
            }
        }
        impl Integer for $t {
            #[inline]
            fn fetch_add(at: &$atomic, value: Self) -> Self {
                at.fetch_add(value, AcqRel)
            }
            #[inline]
            fn fetch_and(at: &$atomic, value: Self) -> Self {
                at.fetch_and(value, AcqRel)
            }
            #[inline]
            fn fetch_or(at: &$atomic, value: Self) -> Self {
                at.fetch_or(value, AcqRel)
            }
            #[inline]
            fn fetch_xor(at: &$atomic, value: Self) -> Self {
                at.fetch_xor(value, AcqRel)
            }
        }
    )* };
}

integer!(i16, AtomicI16; u16, AtomicU16; i32, AtomicI32; u32, AtomicU32; i64, AtomicI64; u64, AtomicU64);

macro_rules! float {
    ($($t:ty, $atomic:ty);*) => { $(
        impl Word for $t {
            type Atomic = $atomic;
            #[inline]
            fn bits(self) -> u64 {
                self.to_bits().into()
            }
            #[inline]
            fn load(at: &$atomic, order: Ordering) -> Self {
                Self::from_bits(at.load(order))
            }
            #[inline]
            fn store(at: &$atomic, value: Self, order: Ordering) {
                at.store(value.to_bits(), order);
            }
            #[inline]
            fn swap(at: &$atomic, value: Self) -> Self {
                Self::from_bits(at.swap(value.to_bits(), AcqRel))
            }
            #[inline]
            fn compare_swap(at: &$atomic, wanted: Self, value: Self) -> Self {
                let done = at.compare_exchange(wanted.to_bits(), value.to_bits(), AcqRel, Acquire);
                Self::from_bits(done.unwrap_or_else(|found| found))
            }
        }
    )* };
}

float!(f32, AtomicU32; f64, AtomicU64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compare_swap__writes_only_what_it_wanted_and_gives_what_was_there() {
        let word = AtomicI32::new(5);
        assert_eq!(i32::compare_swap(&word, 4, 9), 5);
        assert_eq!(i32::compare_swap(&word, 5, 9), 5);
        assert_eq!(i32::fetch_add(&word, -10), 9);
        assert_eq!(i32::load(&word, Acquire), -1);
        let word = AtomicU64::new(1.5f64.to_bits());
        assert_eq!(f64::swap(&word, -2.0), 1.5);
        assert_eq!(f64::compare_swap(&word, -2.0, 3.0), -2.0);
        assert_eq!(f64::load(&word, Acquire), 3.0);
    }

    #[test]
    fn fetch_xor__all_operations_give_what_was_there() {
        let word = AtomicU32::new(0b1100);
        assert_eq!(u32::fetch_and(&word, 0b0110), 0b1100);
        assert_eq!(u32::fetch_or(&word, 0b0001), 0b0100);
        assert_eq!(u32::fetch_xor(&word, 0b0101), 0b0101);
        assert_eq!(u32::swap(&word, 7), 0);
        assert_eq!(u32::fetch_add(&word, u32::MAX), 7);
        assert_eq!(u32::load(&word, Acquire), 6);
    }
}
