//! Which peers of this host have something to read: one word of each is looked at, and the rings
//! only of those whose word changed.
//!
//! # Invariants
//! I1. A peer that showed something is looked at again until all of it was read.
//! I2. Everybody is first in turn.
//!
//! # Not here
//! The rings (`ring`), and whether a peer is to be believed (`local_peers`).

use std::sync::atomic::Ordering;

use clearway_proto::base::Class;

use super::mapping::SegmentMapping;

/// Returns the places of a set, in order.
#[inline]
pub(super) fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(place)
    })
}

/// Whether a peer showed something new: one word of this rank's segment, and its value when it was
/// last looked at.
#[derive(Clone, Copy, Debug)]
struct PeerWatch {
    at: usize,
    seen: u32,
}

impl PeerWatch {
    #[inline]
    fn look(&self, own: &SegmentMapping) -> u32 {
        own.half(self.at).load(Ordering::SeqCst)
    }
}

/// Watches all peers.
#[derive(Debug)]
pub(super) struct PeerScanner {
    /// By place.
    watches: Vec<PeerWatch>,
    /// Peers whose rings were perhaps not read to the end, as bits.
    left: u64,
    /// The peer that is read first next time.
    turn: usize,
}

impl PeerScanner {
    /// Watches the words at `places` of this rank's segment, one for each peer.
    pub(super) fn new(places: impl Iterator<Item = usize>) -> Self {
        Self { watches: places.map(|at| PeerWatch { at, seen: 0 }).collect(), left: 0, turn: 0 }
    }

    /// Returns the peers that may have something to read, as bits; they are taken to be read now.
    #[inline]
    pub(super) fn peers_with_news(&mut self, own: &SegmentMapping) -> u64 {
        let mut spoke = std::mem::take(&mut self.left);
        for (place, watch) in self.watches.iter_mut().enumerate() {
            let shows = watch.look(own);
            spoke |= u64::from(shows != watch.seen) << place;
            watch.seen = shows;
        }
        spoke
    }

    /// Begins a scan of those that `spoke`, with the next peer first.
    pub(super) fn begin(&mut self, spoke: u64) -> ScanResult {
        let first = self.turn;
        self.turn = if first + 1 < self.watches.len() { first + 1 } else { 0 };
        ScanResult { first, spoke, places: [0; Class::ALL.len()] }
    }

    /// Says that not all of what `scan` found was read.
    pub(super) fn leave(&mut self, scan: &ScanResult) {
        self.left |= scan.spoke;
    }

    /// Returns whether somebody may have something to read.
    #[inline]
    pub(super) fn is_due(&self, own: &SegmentMapping) -> bool {
        self.left != 0 || self.watches.iter().any(|watch| watch.look(own) != watch.seen)
    }
}

/// Where there is something to read, found in one look at the counters of each peer that showed
/// something.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScanResult {
    first: usize,
    /// Those looked at, as bits.
    spoke: u64,
    /// By [`Class::index`], the places as bits.
    places: [u64; Class::ALL.len()],
}

impl ScanResult {
    /// Adds the peer in `place`, of which `ready` says for each class whether it sent something.
    #[inline]
    pub(super) fn add(&mut self, place: usize, ready: impl Iterator<Item = bool>) {
        for (places, ready) in self.places.iter_mut().zip(ready) {
            *places |= u64::from(ready) << place;
        }
    }

    /// Returns the places that have something of `class`; everybody is first in turn.
    #[inline]
    pub(super) fn places(&self, class: Class) -> impl Iterator<Item = usize> {
        let places = self.places[class.index()];
        let later = places & (u64::MAX << self.first);
        bits(later).chain(bits(places & !later))
    }
}
