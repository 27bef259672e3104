//! Reads fields off the front of bytes, one after the other, and never beyond their end.
//!
//! # Model
//! The reader of a frame, a record or a card takes its fields in the order in which they were
//! written, and looks at the end whether anything is left. All numbers are little-endian;
//! [`ByteReader::take`] gives the bytes of any other.
//!
//! # Invariants
//! I1. Any bytes give an answer. A value that is not there whole is `None`, and nothing is taken
//!     then.

/// What has not been read of some bytes.
///
/// ```
/// use clearway_proto::base::ByteReader;
/// let mut rest = ByteReader::new(&[1, 2, 0, 3, 4, 5]);
/// assert_eq!((rest.u8(), rest.u16(), rest.u32()), (Some(1), Some(2), None));
/// assert_eq!((rest.run(2), rest.remaining()), (Some(&[3, 4][..]), &[5][..]));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ByteReader<'a>(&'a [u8]);

impl<'a> ByteReader<'a> {
    /// Begins at the first of `bytes`.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Takes the next `N` bytes.
    #[inline]
    pub fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    /// Takes the next `length` bytes where they lie.
    #[inline]
    pub fn run(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// Takes a byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        self.take().map(|[byte]| byte)
    }

    /// Takes a number of two bytes.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    /// Takes a number of four bytes.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    /// Takes a number of eight bytes.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// Takes a number of sixteen bytes.
    #[inline]
    pub fn u128(&mut self) -> Option<u128> {
        self.take().map(u128::from_le_bytes)
    }

    /// Returns everything that has not been taken.
    #[inline]
    pub const fn remaining(&self) -> &'a [u8] {
        self.0
    }

    /// Returns whether everything has been taken.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take__each_width_reads_its_bytes_and_no_more() {
        let bytes: [u8; 31] = core::array::from_fn(|i| i as u8 + 1);
        let mut rest = ByteReader::new(&bytes);
        assert_eq!((rest.u8(), rest.u16(), rest.u32()), (Some(1), Some(0x0302), Some(0x0706_0504)));
        assert_eq!(rest.u64(), Some(0x0f0e_0d0c_0b0a_0908));
        assert_eq!(rest.u128(), Some(0x1f1e_1d1c_1b1a_1918_1716_1514_1312_1110));
        assert!(rest.is_empty() && rest.u8().is_none() && rest.take::<0>().is_some());
    }

    #[test]
    fn take__what_is_cut_short_takes_nothing() {
        let mut rest = ByteReader::new(&[1, 2, 3]);
        assert_eq!((rest.u32(), rest.u64(), rest.u128(), rest.run(4)), (None, None, None, None));
        assert_eq!((rest.run(usize::MAX), rest.remaining()), (None, &[1, 2, 3][..]));
        assert_eq!(
            (rest.run(0), rest.run(3), rest.run(1)),
            (Some(&[][..]), Some(&[1, 2, 3][..]), None)
        );
    }
}
