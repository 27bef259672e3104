//! A running 128-bit digest of what a node saw and did.
//!
//! # Model
//! Each word is added to the state, which is multiplied by a 128-bit constant and turned by half
//! its width, so that high digits reach low ones. Order matters within a node;
//! [`NodeDigest::folded`] makes a summand in which order between nodes does not.
//!
//! # Source
//! The multiplier of PCG's 128-bit generator (O'Neill, 2014).

use crate::time::Picos;

/// The multiplier.
const MULTIPLIER: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;

/// What was seen and done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeDigest(u128);

impl NodeDigest {
    /// Takes in one word.
    pub(crate) const fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ (word as u128 | 1 << 64)).wrapping_mul(MULTIPLIER).rotate_left(64);
    }

    /// Takes in what happened and when.
    pub(crate) const fn event(&mut self, at: Picos, kind: u64, word: u64) {
        self.word(at.0);
        self.word(kind);
        self.word(word);
    }

    /// Takes in bytes and how many they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.word(word.try_into().map_or(0, u64::from_le_bytes));
        }
        let mut last = [0; 8];
        let rest = words.remainder();
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last));
    }

    /// Returns this node's summand in a digest of all nodes; `rank` keeps equal nodes apart.
    pub(crate) const fn folded(mut self, rank: u64) -> u128 {
        self.word(rank);
        self.word(!rank);
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest_words(words: &[u64]) -> u128 {
        let mut digest = NodeDigest::default();
        words.iter().for_each(|word| digest.word(*word));
        digest.folded(0)
    }

    #[test]
    fn word__order_number_and_each_bit_matter() {
        assert_ne!(digest_words(&[1, 2]), digest_words(&[2, 1]));
        assert_ne!(digest_words(&[0]), digest_words(&[0, 0]));
        let mut seen: Vec<u128> = (0..64).map(|bit| digest_words(&[1 << bit])).collect();
        // Half of 128 digits change, eight standard deviations either way.
        let base = digest_words(&[0]);
        assert!(seen.iter().all(|digest| (19..109).contains(&(digest ^ base).count_ones())));
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 64);
    }

    #[test]
    fn bytes__a_zero_at_the_end_is_not_lost() {
        let of = |bytes: &[u8]| {
            let mut digest = NodeDigest::default();
            digest.bytes(bytes);
            digest
        };
        assert_ne!(of(&[1]), of(&[1, 0]));
        assert_ne!(of(&[0; 8]), of(&[0; 16]));
        assert_eq!(of(b"the same bytes"), of(b"the same bytes"));
    }
}
