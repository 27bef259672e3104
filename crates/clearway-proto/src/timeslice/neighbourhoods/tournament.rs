//! Which hosts measure with each other in which round.
//!
//! # Source
//! The circle method of round-robin tournaments: in round r hosts whose numbers add up to r, modulo
//! an odd number, are partners; who would be its own is the partner of the one host that is left
//! over, or rests.
//!
//! # Invariants
//! I1. A host has at most one partner in a round.
//! I2. With all rounds each pair meets once.

use alloc::vec::Vec;

use crate::base::RandomKey;

/// Rounds in which all hosts measure with one partner each.
#[derive(Clone, Debug)]
pub struct Tournament {
    hosts: u32,
    rounds: Vec<u32>,
}

impl Tournament {
    /// Creates all rounds of `hosts`, or `rounds_max` of them that `key` draws.
    pub fn new(hosts: u32, rounds_max: usize, key: RandomKey) -> Self {
        let mut rounds: Vec<u32> = if hosts < 2 { Vec::new() } else { (0..odd(hosts)).collect() };
        if rounds.len() > rounds_max {
            key.purpose("rounds").stream().shuffle(&mut rounds);
            rounds.truncate(rounds_max);
            rounds.sort_unstable();
        }
        Self { hosts, rounds }
    }

    /// Returns how many rounds there are.
    pub fn rounds(&self) -> usize {
        self.rounds.len()
    }

    /// Returns whether some pairs never meet.
    pub fn is_sampled(&self) -> bool {
        self.hosts > 1 && self.rounds.len() < odd(self.hosts) as usize
    }

    /// Returns the partner of `host` in the round with this place; `None` if it rests.
    pub fn partner(&self, place: usize, host: u32) -> Option<u32> {
        let round = u64::from(*self.rounds.get(place)?);
        let modulus = u64::from(odd(self.hosts));
        // Twice this one is the round.
        let alone = round * modulus.div_ceil(2) % modulus;
        let left_over = self.hosts.is_multiple_of(2).then_some(modulus);
        let host = u64::from(host);
        let partner = match host {
            host if Some(host) == left_over => Some(alone),
            host if host == alone => left_over,
            host if host < modulus => Some((round + modulus - host) % modulus),
            _ => None,
        };
        partner.map(|partner| partner as u32)
    }
}

/// Returns the number of hosts, without the last one where it is even.
const fn odd(hosts: u32) -> u32 {
    if hosts.is_multiple_of(2) { hosts.saturating_sub(1) } else { hosts }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    #[test]
    fn partner__each_pair_meets_once_and_nobody_has_two() {
        for hosts in 2..18 {
            let tournament = Tournament::new(hosts, usize::MAX, RandomKey::new(1));
            let mut pairs = BTreeSet::new();
            for round in 0..tournament.rounds() {
                for host in 0..hosts {
                    let Some(partner) = tournament.partner(round, host) else { continue };
                    assert!(partner != host && partner < hosts);
                    assert_eq!(tournament.partner(round, partner), Some(host));
                    if host < partner {
                        assert!(pairs.insert((host, partner)), "{host} and {partner} again");
                    }
                }
            }
            assert_eq!(pairs.len() as u32, hosts * (hosts - 1) / 2);
            assert!(!tournament.is_sampled());
        }
    }

    #[test]
    fn new__draws_as_many_rounds_as_there_may_be() {
        let tournament = Tournament::new(100, 7, RandomKey::new(1));
        assert!(tournament.rounds() == 7 && tournament.is_sampled());
        assert_eq!(tournament.partner(7, 0), None);
        for hosts in [0, 1] {
            let none = Tournament::new(hosts, 7, RandomKey::new(1));
            assert!(none.rounds() == 0 && !none.is_sampled());
            assert_eq!(none.partner(0, 0), None);
        }
    }
}
