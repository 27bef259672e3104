//! The C library's `rand`, bit for bit, and the two ways of shuffling with it.
//!
//! # Model
//! An additive feedback generator over 31 words, `x(i) = x(i-3) + x(i-31)` modulo 2^32, of which
//! all but the lowest bit are given out. The words come from `x(i) = 16807 x(i-1)` modulo 2^31 - 1;
//! the first 310 results are thrown away.
//!
//! # Source
//! GNU C Library manual, "ISO C Random Number Functions" and "BSD Random Number Functions": `rand`
//! is `random` with 128 bytes of state. The numbers in the tests were printed by a C program on
//! that library. GPCNeT draws with it, so equal draws need it.
//!
//! # Not here
//! Randomness of our own choosing: [`crate::base::RandomKey`].

use super::defects::{CorrectedDefects, Defect};

/// Words of state.
const WORDS: usize = 31;
/// How far the front runs ahead of the rear.
const SEPARATION: usize = 3;
/// Results that are thrown away after seeding: ten for each word.
const DISCARDED: usize = 10 * WORDS;
/// 2^31 - 1.
const MODULUS: i64 = 2_147_483_647;

/// The generator of one process.
#[derive(Clone, Debug)]
pub(super) struct LibcRandom {
    words: [u32; WORDS],
    front: usize,
}

impl LibcRandom {
    /// Creates a `LibcRandom` as after `srand(seed)`.
    pub(super) fn seeded(seed: u32) -> Self {
        // The library takes the seed as a signed number, and zero as one.
        let mut word = i64::from(seed.max(1) as i32);
        let mut words = [word as u32; WORDS];
        for slot in &mut words[1..] {
            word = word * 16_807 % MODULUS;
            if word < 0 {
                word += MODULUS;
            }
            *slot = word as u32;
        }
        let mut random = Self { words, front: SEPARATION };
        for _ in 0..DISCARDED {
            random.next_u31();
        }
        random
    }

    /// Returns what `rand()` returns: 31 bits.
    pub(super) fn next_u31(&mut self) -> u32 {
        let rear = (self.front + WORDS - SEPARATION) % WORDS;
        let sum = self.words[self.front].wrapping_add(self.words[rear]);
        self.words[self.front] = sum;
        self.front = (self.front + 1) % WORDS;
        sum >> 1
    }

    /// Puts `list` into random order: as published one cycle through all places (no element stays
    /// where it was), mended any order, all equally likely but for the bias of a remainder.
    pub(super) fn shuffle<T>(&mut self, list: &mut [T], mended: CorrectedDefects) {
        let inclusive = usize::from(mended.has(Defect::Shuffle));
        for i in (1..list.len()).rev() {
            let j = self.next_u31() as usize % (i + inclusive);
            list.swap(i, j);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn first_and_thousandth(seed: u32) -> ([u32; 6], u32) {
        let mut random = LibcRandom::seeded(seed);
        let first = core::array::from_fn(|_| random.next_u31());
        let thousandth = (6..=1000).map(|_| random.next_u31()).last().unwrap_or_default();
        (first, thousandth)
    }

    #[test]
    fn next_u31__gives_what_the_c_library_gives() {
        let one =
            ([1804289383, 846930886, 1681692777, 1714636915, 1957747793, 424238335], 981914693);
        assert_eq!(first_and_thousandth(0), one);
        assert_eq!(first_and_thousandth(1), one);
        let gpcnet =
            ([1538043900, 16744920, 1648894683, 54958541, 383309599, 300578653], 1012898046);
        assert_eq!(first_and_thousandth(8_675_309), gpcnet);
        let clock = ([280491303, 626398474, 65378190, 821524244, 1465218044, 821971775], 134050301);
        assert_eq!(first_and_thousandth(1_700_000_000), clock);
        let negative =
            ([2058147116, 854483408, 922419988, 286396165, 2068523933, 1172167191], 1047066348);
        assert_eq!(first_and_thousandth(3_000_000_000), negative);
    }

    #[test]
    fn shuffle__as_published_gives_the_orders_of_the_c_program() {
        let mut random = LibcRandom::seeded(8_675_309);
        let mut order = || {
            let mut list: Vec<u32> = (0..8).collect();
            random.shuffle(&mut list, CorrectedDefects::NONE);
            list
        };
        assert_eq!(order(), [2, 6, 5, 4, 7, 3, 0, 1]);
        assert_eq!(order(), [5, 4, 0, 6, 7, 1, 2, 3]);
        assert_eq!(order(), [7, 4, 0, 6, 2, 3, 1, 5]);
    }

    #[test]
    fn shuffle__only_the_mended_one_ever_leaves_an_element_in_place() {
        let stays = |mended| {
            let mut random = LibcRandom::seeded(5);
            (0..200).any(|_| {
                let mut list = [0, 1, 2, 3];
                random.shuffle(&mut list, mended);
                list.iter().enumerate().any(|(i, n)| i == *n)
            })
        };
        assert!(!stays(CorrectedDefects::NONE));
        assert!(stays(CorrectedDefects::ALL));
    }
}
