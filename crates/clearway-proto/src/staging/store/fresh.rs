//! Files that changed not long ago: they are left alone for a while, because many change again or go.
//!
//! # Model
//! A file comes here by its first change that the store does not have, and leaves when its delay is
//! over, so a file that changes all the time is copied once in each delay. All delays are equal:
//! files become due in the order in which they came.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::super::InodeId;
use crate::base::LocalNs;

/// Files that are left alone, and until when.
#[derive(Debug, Default)]
pub(super) struct FreshFiles {
    due: BTreeMap<InodeId, LocalNs>,
    /// In order. What does not agree with `due` left before its time.
    order: VecDeque<(LocalNs, InodeId)>,
}

impl FreshFiles {
    pub(super) fn contains(&self, inode: InodeId) -> bool {
        self.due.contains_key(&inode)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// Adds a file until `due`; one that is here stays for as long as before.
    pub(super) fn add(&mut self, inode: InodeId, due: LocalNs) {
        if !self.contains(inode) {
            self.due.insert(inode, due);
            self.order.push_back((due, inode));
        }
    }

    /// Removes a file before it is due; whether it was here.
    pub(super) fn remove(&mut self, inode: InodeId) -> bool {
        self.due.remove(&inode).is_some()
    }

    /// Removes all files.
    pub(super) fn take_all(&mut self) -> Vec<InodeId> {
        self.order.clear();
        core::mem::take(&mut self.due).into_keys().collect()
    }

    /// Removes the files that are due.
    pub(super) fn take_due(&mut self, now: LocalNs) -> Vec<InodeId> {
        let mut taken = Vec::new();
        while let Some((due, inode)) = self.order.front().copied().filter(|(due, _)| *due <= now) {
            self.order.pop_front();
            if self.due.get(&inode) == Some(&due) {
                self.due.remove(&inode);
                taken.push(inode);
            }
        }
        taken
    }

    /// Returns when to look again.
    pub(super) fn next_due(&self) -> Option<LocalNs> {
        self.order.front().filter(|_| !self.is_empty()).map(|(due, _)| *due)
    }
}
