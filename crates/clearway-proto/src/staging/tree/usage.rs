//! How much of the log each user's files take.
//!
//! # Invariants
//! I1. The usage is a function of the tree: a file counts for its present owner.

use alloc::collections::BTreeMap;

use super::{Inode, InodeKind};
use crate::base::Bytes;
use crate::staging::InodeId;

/// Bytes of files that lie in the log, by owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogUsage(BTreeMap<u32, u64>);

impl LogUsage {
    /// Creates the usage of these owners.
    pub fn from_owners(owners: impl IntoIterator<Item = (u32, u64)>) -> Self {
        Self(owners.into_iter().filter(|(_, bytes)| *bytes > 0).collect())
    }

    /// Counts the bytes of all `inodes`.
    pub(crate) fn count(inodes: &BTreeMap<InodeId, Inode>) -> Self {
        let mut usage = Self::default();
        inodes.values().for_each(|inode| usage.change(None, charge(inode)));
        usage
    }

    /// Returns the bytes of the files of this owner.
    pub fn bytes_by(&self, uid: u32) -> Bytes {
        Bytes(self.0.get(&uid).copied().unwrap_or(0))
    }

    /// Returns the owners of files with bytes in the log, and these bytes.
    pub fn owners(&self) -> impl Iterator<Item = (u32, Bytes)> {
        self.0.iter().map(|(uid, bytes)| (*uid, Bytes(*bytes)))
    }

    /// Returns how many owners have bytes in the log.
    pub fn owner_count(&self) -> usize {
        self.0.len()
    }

    /// Replaces what an inode counted for by what it counts for now.
    pub(crate) fn change(&mut self, before: Option<(u32, u64)>, after: Option<(u32, u64)>) {
        if before == after {
            return;
        }
        if let Some((uid, bytes)) = after {
            *self.0.entry(uid).or_insert(0) += bytes;
        }
        if let Some((uid, bytes)) = before
            && let Some(counted) = self.0.get_mut(&uid)
        {
            *counted -= bytes;
            if *counted == 0 {
                self.0.remove(&uid);
            }
        }
    }
}

/// Returns owner and bytes in the log of a file that has some there.
pub(super) fn charge(inode: &Inode) -> Option<(u32, u64)> {
    match &inode.kind {
        InodeKind::File(content) if content.logged() > 0 => Some((inode.uid, content.logged())),
        _ => None,
    }
}
