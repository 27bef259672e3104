//! Which senders a receiver lets send, so that together they never send more than it has room for.
//!
//! # Model
//! The receiver has a number of places. A sender asks for as many as it has chunks; it gets one at
//! a time, in turn with the others, and no more than its share at once. Senders that begin together
//! do not meet in the receiver's link, and one that asks for a thousand does not keep
//! another waiting for more than a turn.
//!
//! # Invariants
//! I1. Places that are out, and those that are free, are always the same number together.
//! I2. A sender that asks waits at most for one place of each other sender.

use alloc::collections::{BTreeMap, VecDeque};

#[derive(Clone, Copy, Debug, Default)]
struct AdmittedSender {
    wants: u32,
    has: u32,
}

/// Places of a receiver.
#[derive(Clone, Debug)]
pub struct Admission<K> {
    free: u32,
    /// Places of one sender at most.
    share: u32,
    senders: BTreeMap<K, AdmittedSender>,
    /// Senders that want a place and can have one, in turn.
    turns: VecDeque<K>,
}

impl<K: Ord + Copy> Admission<K> {
    /// Creates `places` free places, of which each sender has at most `share` at a time.
    pub const fn new(places: u32, share: u32) -> Self {
        Self { free: places, share, senders: BTreeMap::new(), turns: VecDeque::new() }
    }

    /// Notes that `sender` wants `more` places.
    pub fn want(&mut self, sender: K, more: u32) {
        let entry = self.senders.entry(sender).or_default();
        let waits = entry.wants > 0 && entry.has < self.share;
        entry.wants = entry.wants.saturating_add(more);
        if more > 0 && !waits && entry.has < self.share {
            self.turns.push_back(sender);
        }
    }

    /// Gives a place to the sender whose turn it is.
    pub fn grant(&mut self) -> Option<K> {
        if self.free == 0 {
            return None;
        }
        let sender = self.turns.pop_front()?;
        let entry = self.senders.get_mut(&sender)?;
        self.free -= 1;
        entry.wants -= 1;
        entry.has += 1;
        if entry.wants > 0 && entry.has < self.share {
            self.turns.push_back(sender);
        }
        Some(sender)
    }

    /// Takes a place of `sender` back: its chunk is safe.
    pub fn give_back(&mut self, sender: K) {
        let Some(entry) = self.senders.get_mut(&sender).filter(|entry| entry.has > 0) else {
            return;
        };
        if entry.wants > 0 && entry.has == self.share {
            self.turns.push_back(sender);
        }
        entry.has -= 1;
        self.free += 1;
    }

    /// Forgets a sender that is gone, with all its places and wishes.
    pub fn forget(&mut self, sender: K) {
        if let Some(entry) = self.senders.remove(&sender) {
            self.free += entry.has;
            self.turns.retain(|other| *other != sender);
        }
    }

    /// Returns the free places.
    pub const fn free(&self) -> u32 {
        self.free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn grant__senders_take_turns_and_one_has_its_share_at_most() {
        let mut admission = Admission::new(5, 3);
        admission.want('a', 100);
        admission.want('b', 1);
        admission.want('c', 2);
        let granted: Vec<_> = core::iter::from_fn(|| admission.grant()).collect();
        assert_eq!((granted, admission.free()), (['a', 'b', 'c', 'a', 'c'].to_vec(), 0));
        admission.give_back('b');
        admission.want('b', 1);
        assert_eq!((admission.grant(), admission.grant()), (Some('a'), None));
        admission.give_back('c');
        assert_eq!(admission.grant(), Some('b'));
        admission.give_back('c');
        // The first one has its share.
        assert_eq!(admission.grant(), None);
        admission.forget('a');
        assert_eq!((admission.grant(), admission.free()), (None, 4));
    }

    proptest! {
        #[test]
        fn grant__places_are_neither_lost_nor_made(steps in prop::collection::vec((0_u8..4, 0_u8..4, 1_u32..4), 0..200)) {
            let mut admission = Admission::new(6, 2);
            let mut has = [0_u32; 4];
            let mut wants = [0_u32; 4];
            for (what, sender, count) in steps {
                let place = usize::from(sender);
                match what {
                    0 => {
                        admission.want(sender, count);
                        wants[place] += count;
                    }
                    1 if has[place] > 0 => {
                        admission.give_back(sender);
                        has[place] -= 1;
                    }
                    2 => {
                        let before = admission.free();
                        match admission.grant() {
                            Some(granted) => {
                                has[usize::from(granted)] += 1;
                                wants[usize::from(granted)] -= 1;
                            }
                            None => {
                                let waits = (0..4).any(|s| wants[s] > 0 && has[s] < 2);
                                prop_assert!(before == 0 || !waits, "somebody waits for nothing");
                            }
                        }
                    }
                    3 if count == 3 => {
                        admission.forget(sender);
                        (has[place], wants[place]) = (0, 0);
                    }
                    _ => {}
                }
                prop_assert_eq!(admission.free() + has.iter().sum::<u32>(), 6);
                prop_assert!(has.iter().all(|has| *has <= 2));
            }
        }
    }
}
