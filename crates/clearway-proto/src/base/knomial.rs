//! The 4-nomial tree over places in a list: each hands on to those whose number differs from its
//! own in one base-4 digit, below its lowest one that is not zero.
//!
//! # Model
//! `0 -> 4, 8, 12, 1, 2, 3` and `4 -> 5, 6, 7` of sixteen. The depth is the number of base-4
//! digits, and place 0 makes three copies for each: between a binomial tree, which is deeper, and a
//! flat one, which makes more copies.

use alloc::vec::Vec;

/// The base of the tree's numbers: measured peers use 3 and 4.
pub const NOMIAL_BASE: usize = 4;

/// Returns the place from which place `at` gets: `at` without its lowest digit that is not zero;
/// none for place 0.
pub fn parent(at: usize) -> Option<usize> {
    let mut unit = 1;
    while at != 0 && (at / unit).is_multiple_of(NOMIAL_BASE) {
        unit *= NOMIAL_BASE;
    }
    (at != 0).then(|| at - at / unit % NOMIAL_BASE * unit)
}

/// Returns the places to which place `at` of `length` hands on, the farthest first: they have the
/// most to hand on to.
pub fn children(at: usize, length: usize) -> impl Iterator<Item = usize> {
    let mut units = Vec::new();
    let mut unit = 1;
    while unit < length && (at / unit).is_multiple_of(NOMIAL_BASE) {
        units.push(unit);
        unit *= NOMIAL_BASE;
    }
    units
        .into_iter()
        .rev()
        .flat_map(move |unit| (1..NOMIAL_BASE).map(move |digit| at + digit * unit))
        .filter(move |place| *place < length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn juniors__of_sixteen_are_a_base_four_tree() {
        assert_eq!(children(0, 16).collect::<Vec<_>>(), [4, 8, 12, 1, 2, 3]);
        assert_eq!(children(4, 16).collect::<Vec<_>>(), [5, 6, 7]);
    }

    #[test]
    fn juniors__every_place_but_the_first_has_one_elder() {
        for length in [1, 2, 4, 5, 16, 17, 64, 100] {
            let pairs = (0..length)
                .flat_map(|place| children(place, length).map(move |junior| (junior, place)));
            let mut pairs: Vec<_> = pairs.collect();
            pairs.sort_unstable();
            let expected: Vec<_> =
                (1..length).filter_map(|place| Some((place, parent(place)?))).collect();
            assert_eq!(pairs, expected);
        }
        assert_eq!((parent(7), parent(12), parent(0)), (Some(4), Some(0), None));
    }
}
