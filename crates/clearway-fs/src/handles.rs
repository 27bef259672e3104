//! Files and directories that programs have open.
//!
//! # Invariants
//! I1. A handle whose file lost changes fails until it is closed; a later handle does not.

use std::collections::BTreeMap;
use std::sync::Arc;

use clearway_proto::staging::{EntryName, InodeId};
use serde::{Deserialize, Serialize};

/// An entry of a directory, as it was when the directory was opened or begun again.
#[derive(Clone, Debug)]
pub(crate) struct ListedEntry {
    pub(crate) inode: InodeId,
    pub(crate) name: EntryName,
}

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum OpenUsage {
    Read,
    Write,
}

impl OpenUsage {
    /// Returns what flags of `open(2)` ask for.
    pub(crate) const fn from_flags(flags: i32) -> Self {
        // O_ACCMODE, whose zero is O_RDONLY.
        if flags & 3 == 0 { Self::Read } else { Self::Write }
    }
}

#[derive(Debug)]
enum OpenNode {
    File { inode: InodeId, usage: OpenUsage, has_failed: bool },
    Directory { entries: Arc<Vec<ListedEntry>> },
}

/// All of them, by number.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    open: BTreeMap<u64, OpenNode>,
    /// Handles of files that are open for writing.
    writers: BTreeMap<InodeId, u32>,
    last: u64,
}

impl Handles {
    fn add(&mut self, node: OpenNode) -> u64 {
        self.last += 1;
        self.open.insert(self.last, node);
        self.last
    }

    /// Opens a file.
    pub(crate) fn open_file(&mut self, inode: InodeId, usage: OpenUsage) -> u64 {
        if usage == OpenUsage::Write {
            *self.writers.entry(inode).or_default() += 1;
        }
        self.add(OpenNode::File { inode, usage, has_failed: false })
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

    /// Closes a handle; returns the file that nobody writes to any more by that.
    pub(crate) fn close(&mut self, handle: u64) -> Option<InodeId> {
        let Some(OpenNode::File { inode, usage: OpenUsage::Write, .. }) = self.open.remove(&handle)
        else {
            return None;
        };
        let writers = self.writers.get_mut(&inode)?;
        *writers -= 1;
        if *writers > 0 {
            return None;
        }
        self.writers.remove(&inode);
        Some(inode)
    }

    /// Fails the handles of files that `is_lost`.
    pub(crate) fn fail(&mut self, is_lost: impl Fn(InodeId) -> bool) {
        for node in self.open.values_mut() {
            if let OpenNode::File { inode, has_failed, .. } = node {
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
        let open =
            |handles: &mut Handles, inode| handles.open_file(InodeId(inode), OpenUsage::Write);
        let (lost, other) = (open(&mut handles, 2), open(&mut handles, 3));
        handles.fail(|inode| inode == InodeId(2));
        let later = open(&mut handles, 2);
        assert_eq!(
            [lost, other, later].map(|handle| handles.has_failed(handle)),
            [true, false, false]
        );
        assert_eq!(handles.close(lost), None, "another handle writes to it");
        assert!(!handles.has_failed(lost));
        assert_eq!(handles.close(later), Some(InodeId(2)));
    }
}
