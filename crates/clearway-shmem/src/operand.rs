//! What reductions do with two elements of each type.

use crate::address::Caller;
use crate::word::Plain;

/// The operations of reductions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReduceOp {
    /// Bit by bit.
    And,
    /// Bit by bit.
    Or,
    /// Bit by bit.
    Xor,
    /// The smaller one.
    Min,
    /// The larger one.
    Max,
    /// Integers wrap around.
    Sum,
    /// Integers wrap around.
    Prod,
}

/// An element of a reduction. Operations that the standard does not have for a type give the first
/// operand.
pub trait Operand: Plain {
    /// Applies `op` to two elements.
    fn combine(op: ReduceOp, a: Self, b: Self) -> Self;
}

macro_rules! integers {
    ($($t:ty),*) => { $(
        impl Operand for $t {
            #[inline]
            fn combine(op: ReduceOp, a: Self, b: Self) -> Self {
                match op {
                    ReduceOp::And => a & b,
                    ReduceOp::Or => a | b,
                    ReduceOp::Xor => a ^ b,
                    ReduceOp::Min => a.min(b),
                    ReduceOp::Max => a.max(b),
                    ReduceOp::Sum => a.wrapping_add(b),
                    ReduceOp::Prod => a.wrapping_mul(b),
                }
            }
        }
    )* };
}

integers!(i8, u8, i16, u16, i32, u32, i64, u64);

macro_rules! floats {
    ($($t:ty),*) => { $(
        impl Operand for $t {
            #[inline]
            fn combine(op: ReduceOp, a: Self, b: Self) -> Self {
                match op {
                    ReduceOp::Min => a.min(b),
                    ReduceOp::Max => a.max(b),
                    ReduceOp::Sum => a + b,
                    ReduceOp::Prod => a * b,
                    ReduceOp::And | ReduceOp::Or | ReduceOp::Xor => a,
                }
            }
        }
    )* };
}

floats!(f32, f64);

/// A complex number: real part first, as in C.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Complex<T> {
    /// The real part.
    pub re: T,
    /// The imaginary part.
    pub im: T,
}

/// `float _Complex`.
pub type ComplexFloat = Complex<f32>;
/// `double _Complex`.
pub type ComplexDouble = Complex<f64>;

macro_rules! complexes {
    ($($t:ty),*) => { $(
        impl Operand for Complex<$t> {
            #[inline]
            fn combine(op: ReduceOp, a: Self, b: Self) -> Self {
                match op {
                    ReduceOp::Sum => Self { re: a.re + b.re, im: a.im + b.im },
                    ReduceOp::Prod => Self { re: a.re * b.re - a.im * b.im, im: a.re * b.im + a.im * b.re },
                    _ => a,
                }
            }
        }
    )* };
}

complexes!(f32, f64);

/// Applies `op` to each of `all` and the element of `others` at the same place.
#[inline]
pub(crate) fn combine_all<T: Operand>(op: ReduceOp, all: &mut [T], others: Caller) {
    #[inline(always)]
    fn each<T: Operand>(op: ReduceOp, all: &mut [T], others: Caller) {
        all.iter_mut()
            .enumerate()
            .for_each(|(index, one)| *one = T::combine(op, *one, others.read(index)));
    }
    // One loop for each operation, so that each can use the processor's vectors.
    match op {
        ReduceOp::And => each(ReduceOp::And, all, others),
        ReduceOp::Or => each(ReduceOp::Or, all, others),
        ReduceOp::Xor => each(ReduceOp::Xor, all, others),
        ReduceOp::Min => each(ReduceOp::Min, all, others),
        ReduceOp::Max => each(ReduceOp::Max, all, others),
        ReduceOp::Sum => each(ReduceOp::Sum, all, others),
        ReduceOp::Prod => each(ReduceOp::Prod, all, others),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combine__integers_wrap_and_complex_numbers_multiply() {
        assert_eq!(i8::combine(ReduceOp::Sum, 127, 1), -128);
        assert_eq!(u16::combine(ReduceOp::Prod, 256, 257), 256);
        assert_eq!(f64::combine(ReduceOp::Min, 1.5, -2.0), -2.0);
        let (a, b) = (Complex { re: 1.0, im: 2.0 }, Complex { re: 3.0, im: -1.0 });
        assert_eq!(ComplexDouble::combine(ReduceOp::Prod, a, b), Complex { re: 5.0, im: 5.0 });
        let mut all = [1u32, 6, 7];
        combine_all(ReduceOp::Xor, &mut all, Caller::from_slice(&[3, 3, 3]));
        assert_eq!(all, [2, 5, 4]);
    }
}
