//! Tells how many bytes a file takes in log and store: holes take none.
//!
//! # Model
//! The tree knows which bytes of a file lie in the log, and of those in the store only where they end.
//! What a file takes in the store is known when it was drained, or opened there, since the mount
//! began; otherwise all bytes up to the end count.

use std::collections::BTreeMap;

use clearway_proto::staging::{FileContent, InodeId};

use super::core::Core;

/// Bytes that files with holes take in the store.
#[derive(Clone, Debug, Default)]
pub(super) struct StoreSpace(BTreeMap<InodeId, u64>);

impl StoreSpace {
    /// Returns the bytes that a file takes in log and store.
    fn taken(&self, inode: InodeId, content: &FileContent) -> u64 {
        let most = content.stored();
        self.0.get(&inode).map_or(most, |known| (known + content.logged()).min(most))
    }

    /// Takes note of the bytes that a file takes in log and store.
    fn set(&mut self, inode: InodeId, content: &FileContent, taken: u64) {
        if taken < content.stored() {
            self.0.insert(inode, taken.saturating_sub(content.logged()));
        } else {
            self.0.remove(&inode);
        }
    }

    pub(super) fn remove(&mut self, inode: InodeId) {
        self.0.remove(&inode);
    }
}

impl Core {
    /// Returns the bytes that a file takes in log and store, without its holes as far as they are
    /// known.
    pub(crate) fn taken_bytes(&mut self, inode: InodeId) -> u64 {
        let (state, space) = self.state_and_space();
        state.tree().content(inode).map_or(0, |content| space.taken(inode, content))
    }

    /// Takes note of the bytes that a file took in log and store before it was drained.
    pub(super) fn note_drained(&mut self, inode: InodeId, taken: u64) {
        let (state, space) = self.state_and_space();
        if let Some(content) = state.tree().content(inode) {
            space.set(inode, content, taken);
        }
    }

    /// Takes note of the bytes that the object of a version of a file takes.
    pub(crate) fn note_object(&mut self, inode: InodeId, drained: u64, bytes: u64) {
        let (state, space) = self.state_and_space();
        if let Some(content) = state.tree().content(inode).filter(|it| it.drained() == drained) {
            // Programs take a file without any for one hole, and do not read it.
            space.set(inode, content, bytes.max(1).saturating_add(content.logged()));
        }
    }
}
