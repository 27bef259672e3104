//! Directories that the kernel reads from servers.
//!
//! # Model
//! A directory is read whole when it is read from its beginning, and kept until it is closed, so
//! that its entries have fixed places. The mounted directory of several servers has the names of all
//! of them, each once: that of its home, if the home has it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clearway_proto::staging::InodeId;
use rustix::io::Errno;

use crate::names::Attributes;
use crate::network::{FileRequest, FileResponse, RespondedEntry, ServedTree, ServedTrees};

type TakeListing = Box<dyn FnOnce(Result<RemoteListing, Errno>) + Send>;

/// Directories that are open, by handle.
#[derive(Default)]
pub(super) struct RemoteListings {
    open: Mutex<BTreeMap<u64, Arc<RemoteListing>>>,
    last: AtomicU64,
}

/// What a directory had when it was read from its beginning.
pub(super) struct RemoteListing {
    /// The numbers of the directory and of the one above.
    directory: InodeId,
    parent: InodeId,
    entries: Vec<(Arc<ServedTree>, RespondedEntry)>,
}

/// An entry of a directory, as the kernel gets it.
pub(super) struct RemoteEntry<'a> {
    pub(super) name: &'a [u8],
    pub(super) attributes: Attributes,
    /// How long the kernel may believe the attributes.
    pub(super) ttl: Duration,
}

impl RemoteListings {
    fn open(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Arc<RemoteListing>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a handle for a directory.
    pub(super) fn opened(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Forgets a directory.
    pub(super) fn close(&self, handle: u64) {
        self.open().remove(&handle);
    }

    /// Gives the directory with a number, for a read at `offset`, to `use_it`.
    pub(super) fn with(
        self: &Arc<Self>,
        trees: &ServedTrees,
        number: u64,
        (handle, offset): (u64, u64),
        use_it: impl FnOnce(Result<Arc<RemoteListing>, Errno>) + Send + 'static,
    ) {
        if offset > 0 {
            let known = self.open().get(&handle).cloned();
            return use_it(known.ok_or(Errno::BADF));
        }
        let listings = Arc::clone(self);
        let keep: TakeListing = Box::new(move |listing| {
            use_it(listing.map(|listing| {
                let listing = Arc::new(listing);
                listings.open().insert(handle, Arc::clone(&listing));
                listing
            }));
        });
        if trees.is_shared(number) {
            let all: Vec<_> = trees.all().cloned().collect();
            return list_all(trees.clone(), all.into_iter(), Vec::new(), keep);
        }
        let (tree, inode) = trees.locate(number);
        list(tree, inode, Vec::new(), keep);
    }
}

impl RemoteListing {
    /// Returns the entry at `offset`.
    pub(super) fn at(&self, offset: usize, ttl: Duration) -> Option<RemoteEntry<'_>> {
        // Of the directory and the one above, the kernel keeps no attributes from here.
        let directory = |name, inode| {
            let attributes = Attributes::of_directory(inode);
            Some(RemoteEntry { name, attributes, ttl: Duration::ZERO })
        };
        match offset {
            0 => directory(b".".as_slice(), self.directory),
            1 => directory(b"..".as_slice(), self.parent),
            _ => {
                let (tree, entry) = self.entries.get(offset - 2)?;
                let attributes = tree.shown(entry.attributes);
                Some(RemoteEntry { name: &entry.name, attributes, ttl })
            }
        }
    }
}

/// Lists a directory of a server from its beginning, page by page, and gives all of it to `use_it`.
fn list(
    tree: &Arc<ServedTree>,
    directory: InodeId,
    mut entries: Vec<(Arc<ServedTree>, RespondedEntry)>,
    use_it: TakeListing,
) {
    let after = entries.last().map(|(_, entry)| entry.name.clone());
    let request = FileRequest::List { directory: directory.0, after };
    let answer = Box::new(move |tree: &Arc<ServedTree>, page| match page {
        Ok(FileResponse::Entries { entries: page, parent, is_last }) => {
            let is_empty = page.is_empty();
            entries.extend(page.into_iter().map(|entry| (Arc::clone(tree), entry)));
            if is_last || is_empty {
                let (directory, parent) = (tree.number(directory), tree.number(InodeId(parent)));
                use_it(Ok(RemoteListing { directory, parent, entries }));
            } else {
                list(tree, directory, entries, use_it);
            }
        }
        Ok(_) => use_it(Err(Errno::IO)),
        Err(why) => use_it(Err(why)),
    });
    tree.request(&request, answer);
}

/// Lists the mounted directory of all servers.
fn list_all(
    trees: ServedTrees,
    mut left: std::vec::IntoIter<Arc<ServedTree>>,
    mut found: Vec<RemoteListing>,
    use_it: TakeListing,
) {
    let Some(tree) = left.next() else { return use_it(Ok(merged(&trees, found))) };
    let root = tree.root;
    let next: TakeListing = Box::new(move |listing| match listing {
        Ok(listing) => {
            found.push(listing);
            list_all(trees, left, found, use_it);
        }
        Err(why) => use_it(Err(why)),
    });
    list(&tree, root, Vec::new(), next);
}

/// Puts the listings of all servers together.
fn merged(trees: &ServedTrees, listings: Vec<RemoteListing>) -> RemoteListing {
    let mut by_name: BTreeMap<Vec<u8>, (Arc<ServedTree>, RespondedEntry)> = BTreeMap::new();
    for (tree, entry) in listings.into_iter().flat_map(|listing| listing.entries) {
        let is_hidden = by_name.get(&entry.name).is_some_and(|(other, _)| {
            let holders = trees.holders(InodeId::ROOT.0, &entry.name);
            let first = holders.iter().find(|it| Arc::ptr_eq(it, other) || Arc::ptr_eq(it, &tree));
            first.is_some_and(|first| Arc::ptr_eq(first, other))
        });
        if !is_hidden {
            by_name.insert(entry.name.clone(), (tree, entry));
        }
    }
    let entries = by_name.into_values().collect();
    RemoteListing { directory: InodeId::ROOT, parent: InodeId::ROOT, entries }
}
