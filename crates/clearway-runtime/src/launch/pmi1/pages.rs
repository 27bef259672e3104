//! Cuts bytes into values short enough for PMI-1, and puts them together again.
//!
//! # Model
//! The text of some bytes is their length in decimal, a colon, and two hexadecimal digits for each;
//! it is cut into pages of equal length, but for the last. The first page tells how many there are.
//!
//! # Invariants
//! I1. What a page claims never makes room for more than the limit that the reader gives.

use clearway_proto::base::ByteReader;

use super::super::LaunchError;
use super::text::refused;

/// Returns the pages of `bytes`, of at most `room` characters each; at least one.
pub(super) fn cut(bytes: &[u8], room: usize) -> Vec<String> {
    assert!(room >= ROOM_MIN, "a page holds its own heading");
    let mut pages = vec![format!("{}:", bytes.len())];
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            if pages.last().is_some_and(|page| page.len() == room) {
                pages.push(String::with_capacity(room));
            }
            pages
                .last_mut()
                .expect("there is a first page")
                .push(char::from(b"0123456789abcdef"[usize::from(digit)]));
        }
    }
    pages
}

/// Least characters of a page: a length of twenty digits, the colon, and something behind it.
pub(super) const ROOM_MIN: usize = 32;

/// Bytes being put together.
#[derive(Debug)]
pub(super) struct PageAssembly {
    length: usize,
    digits: Vec<u8>,
}

impl PageAssembly {
    /// Begins with the first page of something that is at most `limit` bytes long.
    pub(super) fn begin(first: &str, limit: usize) -> Result<Self, LaunchError> {
        let (length, digits) =
            first.split_once(':').ok_or_else(|| refused("a value is not ours".to_owned()))?;
        let length = length.parse().ok().filter(|length| *length <= limit);
        let length =
            length.ok_or_else(|| refused(format!("a value claims more than {limit} bytes")))?;
        let mut pasting = Self { length, digits: Vec::with_capacity(2 * length) };
        pasting.push(digits)?;
        Ok(pasting)
    }

    /// Returns whether another page is needed.
    pub(super) fn is_open(&self) -> bool {
        self.digits.len() < 2 * self.length
    }

    /// Adds the next page, which is not empty.
    pub(super) fn add(&mut self, page: &str) -> Result<(), LaunchError> {
        if page.is_empty() {
            return Err(misfit());
        }
        self.push(page)
    }

    fn push(&mut self, digits: &str) -> Result<(), LaunchError> {
        if self.digits.len() + digits.len() > 2 * self.length {
            return Err(misfit());
        }
        self.digits.extend_from_slice(digits.as_bytes());
        Ok(())
    }

    /// Returns the bytes, when all pages are there.
    pub(super) fn finish(self) -> Result<Vec<u8>, LaunchError> {
        let nibble = |digit: &u8| char::from(*digit).to_digit(16).map(|value| value as u8);
        let bytes: Option<Vec<u8>> = self
            .digits
            .chunks_exact(2)
            .map(|pair| Some(nibble(&pair[0])? << 4 | nibble(&pair[1])?))
            .collect();
        bytes
            .filter(|bytes| bytes.len() == self.length)
            .ok_or_else(|| refused("a value is damaged".to_owned()))
    }
}

fn misfit() -> LaunchError {
    refused("the pages of a value do not fit together".to_owned())
}

/// Returns one text of many contributions: each with its length in front.
pub(super) fn bind(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut bound = Vec::with_capacity(parts.iter().map(|part| part.len() + 4).sum());
    for part in parts {
        bound.extend_from_slice(
            &u32::try_from(part.len()).expect("a contribution is short").to_le_bytes(),
        );
        bound.extend_from_slice(part);
    }
    bound
}

/// Returns the `count` contributions that [`bind`] joined.
pub(super) fn unbind(bound: &[u8], count: u32) -> Result<Vec<Vec<u8>>, LaunchError> {
    let mut rest = ByteReader::new(bound);
    let mut part = || rest.u32().and_then(|length| rest.run(length as usize)).map(<[u8]>::to_vec);
    (0..count)
        .map(|_| part().ok_or_else(|| refused("the gathered values are damaged".to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn paste(pages: &[String], limit: usize) -> Result<Vec<u8>, LaunchError> {
        let mut pasting = PageAssembly::begin(&pages[0], limit)?;
        for page in &pages[1..] {
            assert!(pasting.is_open());
            pasting.add(page)?;
        }
        assert!(!pasting.is_open());
        pasting.finish()
    }

    #[test]
    fn cut__a_page_is_never_longer_than_the_room() {
        let pages = cut(&[0xab; 100], 64);
        assert!(pages.iter().all(|page| page.len() <= 64));
        assert_eq!(pages.len(), (4 + 200usize).div_ceil(64));
        assert!(pages[0].starts_with("100:abab"));
        assert_eq!(cut(&[], 64), ["0:"]);
    }

    #[test]
    fn pasting__a_claim_beyond_the_limit_is_refused() {
        assert!(PageAssembly::begin("18446744073709551615:00", 100).is_err());
        assert!(PageAssembly::begin("101:00", 100).is_err());
        assert!(PageAssembly::begin("abc", 100).is_err());
        assert!(PageAssembly::begin("1:0000", 100).is_err());
        assert!(PageAssembly::begin("1:zz", 100).unwrap().finish().is_err());
    }

    proptest! {
        #[test]
        fn cut__pasted_again_is_the_same(bytes in proptest::collection::vec(any::<u8>(), 0..500), room in ROOM_MIN..200) {
            prop_assert_eq!(paste(&cut(&bytes, room), 500).unwrap(), bytes);
        }

        #[test]
        fn bind__taken_apart_is_the_same(parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 0..20)) {
            prop_assert_eq!(unbind(&bind(&parts), parts.len() as u32).unwrap(), parts);
        }

        #[test]
        fn unbind__any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100), count in any::<u32>()) {
            let _ = unbind(&bytes, count);
        }

        #[test]
        fn pasting__any_text_is_read_or_refused(first in ".{0,60}", second in ".{0,60}") {
            if let Ok(mut pasting) = PageAssembly::begin(&first, 40) {
                let _ = pasting.add(&second);
                let _ = pasting.finish();
            }
        }
    }
}
