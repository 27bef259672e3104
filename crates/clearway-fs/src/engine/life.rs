//! Keeps what the tree does not know of inodes: references of the kernel, and the number of the last
//! change.
//!
//! # Invariants
//! I1. An inode is known while the kernel refers to it or its last change is not durable.

use std::collections::{BTreeMap, BTreeSet};

use clearway_proto::base::Class;
use clearway_proto::staging::{EntryName, InodeId};

/// One inode.
#[derive(Debug, Default)]
pub(crate) struct NodeLife {
    /// References of the kernel.
    lookups: u64,
    /// The number of the last change that concerns it.
    last: u64,
    /// Where it was found or put last.
    pub(crate) home: Option<(InodeId, EntryName)>,
    /// Its class, once it was asked for.
    pub(crate) class: Option<Class>,
}

/// All inodes that somebody has.
#[derive(Debug, Default)]
pub(crate) struct Lives {
    nodes: BTreeMap<InodeId, NodeLife>,
    /// Inodes by the number of their last change, while that is not durable.
    recent: BTreeMap<u64, Vec<InodeId>>,
}

impl Lives {
    /// Returns what is known of an inode, to be changed.
    pub(crate) fn node(&mut self, inode: InodeId) -> &mut NodeLife {
        self.nodes.entry(inode).or_default()
    }

    /// Returns where an inode was found last.
    pub(crate) fn home(&self, inode: InodeId) -> Option<&(InodeId, EntryName)> {
        self.nodes.get(&inode)?.home.as_ref()
    }

    /// Notes that the kernel was given an inode under a name.
    pub(crate) fn found(&mut self, inode: InodeId, parent: InodeId, name: EntryName) {
        let node = self.node(inode);
        node.lookups += 1;
        let home = Some((parent, name));
        if node.home != home {
            // It may be under another rule now.
            (node.home, node.class) = (home, None);
        }
    }

    /// Notes that a client holds an inode, which is found under a name unless it has none.
    pub(super) fn hold(&mut self, inode: InodeId, home: Option<(InodeId, EntryName)>) {
        let node = self.node(inode);
        node.lookups += 1;
        if node.home.is_none() {
            node.home = home;
        }
    }

    /// Notes a change.
    pub(super) fn changed(&mut self, inode: InodeId, number: u64) {
        self.node(inode).last = number;
        self.recent.entry(number).or_default().push(inode);
    }

    /// Returns the number of the last change, zero when it is long durable.
    pub(super) fn last_change(&self, inode: InodeId) -> u64 {
        self.nodes.get(&inode).map_or(0, |node| node.last)
    }

    /// Returns the inodes whose last change is behind `number`.
    pub(super) fn changed_after(&self, number: u64) -> BTreeSet<InodeId> {
        self.recent.range(number + 1..).flat_map(|(_, inodes)| inodes.iter().copied()).collect()
    }

    /// Takes references away; says whether none is left.
    pub(super) fn forget(&mut self, inode: InodeId, count: u64, durable: u64) -> bool {
        let Some(node) = self.nodes.get_mut(&inode) else { return true };
        node.lookups = node.lookups.saturating_sub(count);
        let is_free = node.lookups == 0;
        if is_free && node.last <= durable {
            self.nodes.remove(&inode);
        }
        is_free
    }

    /// Returns whether the kernel refers to an inode.
    pub(super) fn is_held(&self, inode: InodeId) -> bool {
        self.nodes.get(&inode).is_some_and(|node| node.lookups > 0)
    }

    /// Returns whether anything is known of an inode.
    pub(crate) fn is_known(&self, inode: InodeId) -> bool {
        self.nodes.contains_key(&inode)
    }

    /// Removes an inode that is no more, or that nobody has.
    pub(crate) fn remove(&mut self, inode: InodeId) {
        self.nodes.remove(&inode);
    }

    /// Notes that changes up to `durable` are durable.
    pub(super) fn settle(&mut self, durable: u64) {
        let later = self.recent.split_off(&(durable + 1));
        for inode in std::mem::replace(&mut self.recent, later).into_values().flatten() {
            let is_idle = |node: &NodeLife| node.lookups == 0 && node.last <= durable;
            if self.nodes.get(&inode).is_some_and(is_idle) {
                self.nodes.remove(&inode);
            }
        }
    }

    /// Forgets the classes that were found: one that they came from has changed.
    pub(crate) fn forget_classes(&mut self) {
        self.nodes.values_mut().for_each(|node| node.class = None);
    }
}
