//! How much of the log each user's files take, and how many inodes each has.
//!
//! # Invariants
//! I1. The usage is a function of the tree: an inode counts for its present owner.

use alloc::collections::BTreeMap;

use super::{Inode, InodeKind};
use crate::staging::InodeId;

/// Bytes of files that lie in the log, or inodes, by owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerUsage(BTreeMap<u32, u64>);

impl OwnerUsage {
    /// Creates the usage of these owners.
    pub fn from_owners(owners: impl IntoIterator<Item = (u32, u64)>) -> Self {
        Self(owners.into_iter().filter(|(_, amount)| *amount > 0).collect())
    }

    /// Counts the bytes of all `inodes` in the log.
    pub(crate) fn of_bytes(inodes: &BTreeMap<InodeId, Inode>) -> Self {
        let mut usage = Self::default();
        inodes.values().for_each(|inode| usage.change(None, log_charge(inode)));
        usage
    }

    /// Counts all `inodes`, and their names beyond the first.
    pub(crate) fn of_inodes(inodes: &BTreeMap<InodeId, Inode>) -> Self {
        let mut usage = Self::default();
        inodes.values().for_each(|inode| usage.change(None, Some(inode_charge(inode))));
        usage
    }

    /// Returns what all owners have.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Returns what this owner has.
    pub fn amount_by(&self, uid: u32) -> u64 {
        self.0.get(&uid).copied().unwrap_or(0)
    }

    /// Returns the owners that have something, and how much.
    pub fn owners(&self) -> impl Iterator<Item = (u32, u64)> {
        self.0.iter().map(|(uid, amount)| (*uid, *amount))
    }

    /// Returns how many owners have something.
    pub fn owner_count(&self) -> usize {
        self.0.len()
    }

    /// Replaces what an inode counted for by what it counts for now.
    pub(crate) fn change(&mut self, before: Option<(u32, u64)>, after: Option<(u32, u64)>) {
        if before == after {
            return;
        }
        if let Some((uid, amount)) = after {
            *self.0.entry(uid).or_insert(0) += amount;
        }
        if let Some((uid, amount)) = before
            && let Some(counted) = self.0.get_mut(&uid)
        {
            *counted -= amount;
            if *counted == 0 {
                self.0.remove(&uid);
            }
        }
    }
}

/// Returns owner of an inode, and what it counts for: each name takes memory, as an inode does.
pub(super) fn inode_charge(inode: &Inode) -> (u32, u64) {
    let names = match inode.kind {
        // Its links are those of the directories inside.
        InodeKind::Directory { .. } => 1,
        _ => inode.links.max(1),
    };
    (inode.uid, u64::from(names))
}

/// Returns owner and bytes in the log of a file that has some there.
pub(super) fn log_charge(inode: &Inode) -> Option<(u32, u64)> {
    match &inode.kind {
        InodeKind::File(content) if content.logged() > 0 => Some((inode.uid, content.logged())),
        _ => None,
    }
}
