//! Files and directories that programs have open.
//!
//! # Invariants
//! I1. A handle whose file lost changes fails until it is closed; a later handle does not.

use std::collections::BTreeMap;
use std::sync::Arc;

use clearway_proto::staging::{EntryName, InodeId};

/// An entry of a directory, as it was when the directory was opened or begun again.
#[derive(Clone, Debug)]
pub(crate) struct ListedEntry {
    pub(crate) inode: InodeId,
    pub(crate) name: EntryName,
}

#[derive(Debug)]
enum OpenNode {
    File { inode: InodeId, has_failed: bool },
    Directory { entries: Arc<Vec<ListedEntry>> },
}

/// All of them, by number.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    open: BTreeMap<u64, OpenNode>,
    last: u64,
}

impl Handles {
    fn add(&mut self, node: OpenNode) -> u64 {
        self.last += 1;
        self.open.insert(self.last, node);
        self.last
    }

    /// Opens a file.
    pub(crate) fn open_file(&mut self, inode: InodeId) -> u64 {
        self.add(OpenNode::File { inode, has_failed: false })
    }

    /// Opens a directory.
    pub(crate) fn open_directory(&mut self) -> u64 {
        self.add(OpenNode::Directory { entries: Arc::default() })
    }

    /// Replaces what a directory lists.
    pub(crate) fn list(&mut self, handle: u64, entries: Arc<Vec<ListedEntry>>) {
        if let Some(OpenNode::Directory { entries: listed }) = self.open.get_mut(&handle) {
            *listed = entries;
        }
    }

    /// Returns what a directory lists.
    pub(crate) fn listed(&self, handle: u64) -> Option<Arc<Vec<ListedEntry>>> {
        match self.open.get(&handle)? {
            OpenNode::Directory { entries } => Some(Arc::clone(entries)),
            OpenNode::File { .. } => None,
        }
    }

    /// Closes a handle.
    pub(crate) fn close(&mut self, handle: u64) {
        self.open.remove(&handle);
    }

    /// Fails the handles of files that `is_lost`.
    pub(crate) fn fail(&mut self, is_lost: impl Fn(InodeId) -> bool) {
        for node in self.open.values_mut() {
            if let OpenNode::File { inode, has_failed } = node {
                *has_failed |= is_lost(*inode);
            }
        }
    }

    /// Returns whether a handle has failed.
    pub(crate) fn has_failed(&self, handle: u64) -> bool {
        matches!(self.open.get(&handle), Some(OpenNode::File { has_failed: true, .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fail__a_handle_fails_until_it_is_closed_and_a_later_one_does_not() {
        let mut handles = Handles::default();
        let (lost, other) = (handles.open_file(InodeId(2)), handles.open_file(InodeId(3)));
        handles.fail(|inode| inode == InodeId(2));
        let later = handles.open_file(InodeId(2));
        assert_eq!(
            [lost, other, later].map(|handle| handles.has_failed(handle)),
            [true, false, false]
        );
        handles.close(lost);
        assert!(!handles.has_failed(lost));
    }
}
