//! Files that the store has to have at a time.

use super::StoreDrain;
use crate::staging::{InodeId, Tree, WallNs};

/// A file that the store lacks and has to have at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueFile {
    /// When.
    pub at: WallNs,
    /// Bytes of it that were in the log when it was put into the order.
    pub left: u64,
}

/// Returns whether the store lacks bytes of a file, or the file.
pub(super) fn has_news(tree: &Tree, inode: InodeId) -> bool {
    let is_stored = tree.inode(inode).is_some_and(|inode| inode.has_object);
    tree.content(inode).is_some_and(|content| content.drained() < content.version() || !is_stored)
}

impl StoreDrain {
    /// Returns whether the store has to have a file at a time.
    pub fn is_due(&self, inode: InodeId) -> bool {
        self.due.contains_key(&inode)
    }

    /// Returns the files that the store lacks and has to have at a time. Cost: all of them.
    pub fn due(&mut self, tree: &Tree) -> impl Iterator<Item = &DueFile> {
        self.due.retain(|inode, _| has_news(tree, *inode));
        self.due.values()
    }
}
