//! How far a pass over all differences has come: each look goes through some of them.
//!
//! # Model
//! Each kind of differences is in the order of its keys. A cursor has the key up to which a pass has
//! come; what is added before a cursor is seen by the next pass, which its news begins.
//!
//! # Invariants
//! I1. A look goes through a bounded number of differences of each kind.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Bound;

use super::super::InodeId;
use super::super::tree::TreePlace;

/// Where a list is continued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ScanCursor<K> {
    Start,
    /// Behind this key.
    Behind(K),
    End,
}

impl<K: Clone + Ord> ScanCursor<K> {
    /// Returns whether all was looked at.
    pub(super) const fn is_at_end(&self) -> bool {
        matches!(self, Self::End)
    }

    /// Ends the pass over the list.
    pub(super) fn end(&mut self) {
        *self = Self::End;
    }

    fn bounds(&self) -> Option<(Bound<&K>, Bound<&K>)> {
        match self {
            Self::Start => Some((Bound::Unbounded, Bound::Unbounded)),
            Self::Behind(key) => Some((Bound::Excluded(key), Bound::Unbounded)),
            Self::End => None,
        }
    }

    /// Returns the next entries of a list, at most `most`.
    pub(super) fn part<'a, V>(
        &self,
        list: &'a BTreeMap<K, V>,
        most: usize,
    ) -> impl Iterator<Item = (&'a K, &'a V)> + use<'a, K, V> {
        let bounds = self.bounds();
        bounds.map(|bounds| list.range::<K, _>(bounds).take(most)).into_iter().flatten()
    }

    /// Returns the next keys of a list, at most `most`.
    pub(super) fn part_of(&self, list: &BTreeSet<K>, most: usize) -> Vec<K> {
        let bounds = self.bounds();
        bounds.map_or(Vec::new(), |bounds| list.range::<K, _>(bounds).take(most).cloned().collect())
    }

    /// Moves behind what [`ScanCursor::part`] gave.
    pub(super) fn advance<V>(&mut self, list: &BTreeMap<K, V>, most: usize) {
        let (count, last) =
            self.part(list, most).fold((0, None), |(n, _), (key, _)| (n + 1, Some(key)));
        self.advance_to(last, count, most);
    }

    /// Moves behind `last` of `count` keys; fewer than `most` were the rest.
    pub(super) fn advance_to(&mut self, last: Option<&K>, count: usize, most: usize) {
        *self = match last {
            Some(last) if count >= most => Self::Behind(last.clone()),
            _ => Self::End,
        };
    }
}

/// A pass over all differences.
#[derive(Debug)]
pub(super) struct LagScan {
    pub(super) names: ScanCursor<TreePlace>,
    pub(super) nodes: ScanCursor<InodeId>,
    pub(super) copies: ScanCursor<InodeId>,
    pub(super) dead: ScanCursor<InodeId>,
    pub(super) old: ScanCursor<InodeId>,
}

impl LagScan {
    /// Creates a pass that is at its begin.
    pub(super) const fn new() -> Self {
        Self {
            names: ScanCursor::Start,
            nodes: ScanCursor::Start,
            copies: ScanCursor::Start,
            dead: ScanCursor::Start,
            old: ScanCursor::Start,
        }
    }

    /// Returns whether nothing was looked at.
    pub(super) const fn is_at_start(&self) -> bool {
        matches!(self.names, ScanCursor::Start) && matches!(self.nodes, ScanCursor::Start)
    }

    /// Returns whether it went through everything.
    pub(super) const fn is_over(&self) -> bool {
        self.names.is_at_end()
            && self.nodes.is_at_end()
            && self.copies.is_at_end()
            && self.dead.is_at_end()
            && self.old.is_at_end()
    }
}
