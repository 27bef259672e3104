//! Randomness as a function of (seed, node, purpose, counter): the same everywhere, and free of
//! order.
//!
//! # Model
//! A stream is `mix(key + counter * golden)`: SplitMix64 started at a key. Two streams with
//! different keys do not share state, so asking one more question in one place changes no answer in
//! another.
//!
//! # Source
//! Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014), the mixing
//! function's constants included. Bounded draws: Lemire, "Fast random integer generation in an
//! interval" (2019).
//!
//! # Not here
//! Anything secret: this generator can be predicted by design.

use serde::{Deserialize, Serialize};

/// The increment of SplitMix64: 2^64 divided by the golden ratio, made odd.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the finaliser of SplitMix64.
const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Names one stream of random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RandomKey(u64);

impl RandomKey {
    /// Creates the root key of a run.
    pub const fn new(seed: u64) -> Self {
        Self(mix(seed.wrapping_add(GOLDEN)))
    }

    /// Returns a key of its own for node (or draw, or group) `n` below this key.
    pub const fn node(self, n: u64) -> Self {
        Self(mix(self.0 ^ mix(n.wrapping_add(GOLDEN))))
    }

    /// Returns a key of its own for `purpose` below this key.
    pub fn purpose(self, purpose: &str) -> Self {
        purpose.bytes().fold(Self(self.0 ^ GOLDEN), |key, byte| key.node(u64::from(byte)))
    }

    /// Returns the stream that this key names, at its beginning.
    pub const fn stream(self) -> RandomStream {
        RandomStream { state: self.0 }
    }
}

/// A reproducible stream of random numbers.
///
/// ```
/// use clearway_proto::base::RandomKey;
/// let mut a = RandomKey::new(7).purpose("draw").stream();
/// let mut b = RandomKey::new(7).purpose("draw").stream();
/// assert_eq!(a.next_u64(), b.next_u64());
/// ```
#[derive(Clone, Debug)]
pub struct RandomStream {
    state: u64,
}

impl RandomStream {
    /// Returns 64 uniform bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        mix(self.state)
    }

    /// Returns a uniform number below `bound`, without bias; zero when `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        // Lemire's method: the low half decides whether this draw would be one of the few biased
        // ones.
        let reject_below = if bound == 0 { 0 } else { bound.wrapping_neg() % bound };
        loop {
            let wide = u128::from(self.next_u64()) * u128::from(bound);
            if wide as u64 >= reject_below {
                return (wide >> 64) as u64;
            }
        }
    }

    /// Puts `items` into a uniformly random order (Fisher-Yates: every permutation is possible,
    /// fixed points too).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let j = self.below(i as u64 + 1) as usize;
            items.swap(i, j);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;

    #[test]
    fn streams__first_outputs_are_frozen() {
        // Reports quote seeds; a change here would make every one of them mean another draw.
        let mut stream = RandomKey::new(1).node(2).purpose("draw").stream();
        let first: Vec<u64> = (0..3).map(|_| stream.next_u64()).collect();
        assert_eq!(first, FROZEN);
    }

    const FROZEN: [u64; 3] =
        [1_986_069_223_138_201_759, 12_655_253_115_904_197_640, 13_426_998_740_336_815_754];

    #[test]
    fn shuffle__reaches_every_permutation_about_equally_often() {
        let mut seen: BTreeMap<[u8; 4], u32> = BTreeMap::new();
        let mut stream = RandomKey::new(11).stream();
        for _ in 0..24_000 {
            let mut items = [0u8, 1, 2, 3];
            stream.shuffle(&mut items);
            *seen.entry(items).or_default() += 1;
        }
        assert_eq!(seen.len(), 24);
        // 1000 expected each, standard deviation 31: six of them either way.
        assert!(seen.values().all(|n| (810..1190).contains(n)), "{seen:?}");
    }

    #[test]
    fn below__bound_zero_is_zero_and_bound_one_is_zero() {
        let mut stream = RandomKey::new(3).stream();
        assert_eq!((stream.below(0), stream.below(1)), (0, 0));
    }

    #[test]
    fn keys__do_not_collide_for_neighbouring_nodes_and_purposes() {
        let root = RandomKey::new(5);
        let mut keys: Vec<u64> = (0..1000).map(|n| root.node(n).0).collect();
        keys.extend(["a", "b", "ab", "ba", ""].map(|p| root.purpose(p).0));
        let count = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), count);
    }
}
