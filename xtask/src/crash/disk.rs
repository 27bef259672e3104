//! What a disk with a file system holds: as programs see it, and as a loss of power may leave it.
//!
//! # Model
//! Every change is kept in a journal. A sync of a file makes its bytes and its length durable, a sync of
//! a directory its names; nothing else does, not even the sync of a new file for its own name. Of what
//! is not durable any part may survive: single sectors of a write, and single names. A rename is whole
//! or not there. A rename between two directories that is durable takes along the names before it in
//! both.
//!
//! # Invariants
//! I1. What was synced survives.
//! I2. A sector has one of the contents that were ever written to it, and none older than its last sync.
//!
//! # Not here
//! Modes, owners and extended attributes: they count as durable at once.

use std::collections::{BTreeMap, BTreeSet, hash_map::DefaultHasher};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use crate::swarm::Draws;

/// Names a file or directory of a disk.
pub(super) type NodeNumber = u64;
/// The root directory, by FUSE's number.
pub(super) const ROOT: NodeNumber = 1;
/// Bytes that are kept as one piece.
const PAGE: usize = 4096;
/// Bytes that a disk writes as one piece, at least.
const SECTOR: usize = 512;

/// What is at a node.
#[derive(Clone, Debug)]
pub(super) enum DiskContent {
    File {
        size: u64,
        pages: BTreeMap<u64, Arc<DiskPage>>,
    },
    Directory(BTreeMap<Vec<u8>, NodeNumber>),
    Symlink(Vec<u8>),
    /// A pipe, socket or device, with the bits of its kind.
    Special(u32),
}

impl DiskContent {
    /// An empty file.
    pub(super) const EMPTY: Self = Self::File { size: 0, pages: BTreeMap::new() };
}

/// A piece of a file.
#[derive(Clone, Debug)]
pub(super) struct DiskPage {
    bytes: Box<[u8]>,
    digest: OnceLock<u64>,
}

impl DiskPage {
    fn digest(&self) -> u64 {
        *self.digest.get_or_init(|| digest_of(&self.bytes))
    }
}

fn digest_of(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// A file, directory or other thing.
#[derive(Clone, Debug)]
pub(super) struct DiskNode {
    pub(super) content: DiskContent,
    pub(super) mode: u32,
    pub(super) owner: (u32, u32),
    pub(super) links: u32,
}

/// One change of a disk.
#[derive(Clone, Debug)]
pub(super) enum DiskChange {
    Make {
        node: NodeNumber,
        content: DiskContent,
        mode: u32,
        owner: (u32, u32),
    },
    Write {
        node: NodeNumber,
        at: u64,
        bytes: Arc<[u8]>,
    },
    Resize {
        node: NodeNumber,
        size: u64,
    },
    Own {
        node: NodeNumber,
        mode: u32,
        owner: (u32, u32),
    },
    Enter {
        directory: NodeNumber,
        name: Vec<u8>,
        node: NodeNumber,
    },
    Leave {
        directory: NodeNumber,
        name: Vec<u8>,
    },
    Move {
        from: (NodeNumber, Vec<u8>),
        to: (NodeNumber, Vec<u8>),
    },
    Sync {
        node: NodeNumber,
    },
    /// What a planted fault left out.
    Nothing,
}

impl DiskChange {
    /// Returns the nodes whose sync makes it durable.
    fn places(&self) -> Vec<NodeNumber> {
        match self {
            Self::Write { node, .. } | Self::Resize { node, .. } => vec![*node],
            Self::Enter { directory, .. } | Self::Leave { directory, .. } => vec![*directory],
            Self::Move { from, to } => vec![from.0, to.0],
            Self::Make { .. } | Self::Own { .. } | Self::Sync { .. } | Self::Nothing => Vec::new(),
        }
    }
}

/// Everything on a disk.
#[derive(Clone, Debug)]
pub(super) struct DiskImage {
    nodes: BTreeMap<NodeNumber, Arc<DiskNode>>,
}

impl DiskImage {
    /// A disk with nothing but a root directory.
    pub(super) fn new() -> Self {
        let root = DiskNode {
            content: DiskContent::Directory(BTreeMap::new()),
            mode: 0o755,
            owner: (0, 0),
            links: 1,
        };
        Self { nodes: BTreeMap::from([(ROOT, Arc::new(root))]) }
    }

    pub(super) fn node(&self, node: NodeNumber) -> Option<&DiskNode> {
        self.nodes.get(&node).map(|node| &**node)
    }

    fn node_mut(&mut self, node: NodeNumber) -> Option<&mut DiskNode> {
        self.nodes.get_mut(&node).map(Arc::make_mut)
    }

    pub(super) fn entries(&self, directory: NodeNumber) -> Option<&BTreeMap<Vec<u8>, NodeNumber>> {
        match &self.node(directory)?.content {
            DiskContent::Directory(entries) => Some(entries),
            _ => None,
        }
    }

    fn entries_mut(&mut self, node: NodeNumber) -> Option<&mut BTreeMap<Vec<u8>, NodeNumber>> {
        match &mut self.node_mut(node)?.content {
            DiskContent::Directory(entries) => Some(entries),
            _ => None,
        }
    }

    /// Finds a path below the root.
    pub(super) fn find(&self, path: &str) -> Option<NodeNumber> {
        path.split('/').try_fold(ROOT, |at, name| self.entries(at)?.get(name.as_bytes()).copied())
    }

    /// Makes a change that `survives`; of a write only the sectors for which it says so.
    pub(super) fn apply(&mut self, change: &DiskChange, mut survives: impl FnMut() -> bool) {
        match change {
            DiskChange::Make { node, content, mode, owner } => {
                let made =
                    DiskNode { content: content.clone(), mode: *mode, owner: *owner, links: 0 };
                self.nodes.insert(*node, Arc::new(made));
            }
            DiskChange::Own { node, mode, owner } => {
                if let Some(node) = self.node_mut(*node) {
                    (node.mode, node.owner) = (*mode, *owner);
                }
            }
            DiskChange::Write { node, at, bytes } => {
                if let Some(node) = self.node_mut(*node) {
                    write(node, *at, bytes, survives);
                }
            }
            DiskChange::Sync { .. } | DiskChange::Nothing => {}
            _ if !survives() => {}
            DiskChange::Resize { node, size } => {
                if let Some(node) = self.node_mut(*node) {
                    resize(node, *size);
                }
            }
            DiskChange::Enter { directory, name, node } => self.enter(*directory, name, *node),
            DiskChange::Leave { directory, name } => {
                self.leave(*directory, name);
            }
            // A name that did not survive cannot move.
            DiskChange::Move { from, to } => {
                if let Some(node) = self.leave(from.0, &from.1) {
                    self.enter(to.0, &to.1, node);
                }
            }
        }
    }

    fn enter(&mut self, directory: NodeNumber, name: &[u8], node: NodeNumber) {
        let Some(entries) = self.entries_mut(directory) else { return };
        if let Some(old) = entries.insert(name.to_vec(), node) {
            self.count_links(old, -1);
        }
        self.count_links(node, 1);
    }

    fn leave(&mut self, directory: NodeNumber, name: &[u8]) -> Option<NodeNumber> {
        let node = self.entries_mut(directory)?.remove(name)?;
        self.count_links(node, -1);
        Some(node)
    }

    fn count_links(&mut self, node: NodeNumber, more: i32) {
        if let Some(node) = self.node_mut(node) {
            node.links = node.links.saturating_add_signed(more);
        }
    }

    /// Reads bytes of a file; fewer where it ends.
    pub(super) fn read(&self, node: NodeNumber, at: u64, length: u64) -> Vec<u8> {
        let Some(DiskNode { content: DiskContent::File { size, pages }, .. }) = self.node(node)
        else {
            return Vec::new();
        };
        let end = at.saturating_add(length).min(*size);
        let mut bytes = vec![0; end.saturating_sub(at) as usize];
        for (number, page) in pages.range(at / PAGE as u64..end.div_ceil(PAGE as u64)) {
            let begin = number * PAGE as u64;
            let (from, to) = (begin.max(at), (begin + PAGE as u64).min(end));
            if from < to {
                let part = &page.bytes[(from - begin) as usize..(to - begin) as usize];
                bytes[(from - at) as usize..(to - at) as usize].copy_from_slice(part);
            }
        }
        bytes
    }

    /// Returns what tells apart what can be reached below `directory`.
    pub(super) fn digest(&self, directory: NodeNumber) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (name, node) in self.entries(directory).into_iter().flatten() {
            name.hash(&mut hasher);
            match self.node(*node).map(|node| &node.content) {
                Some(DiskContent::File { size, pages }) => {
                    (*node, size).hash(&mut hasher);
                    for (at, page) in pages {
                        (at, page.digest()).hash(&mut hasher);
                    }
                }
                Some(DiskContent::Directory(_)) => self.digest(*node).hash(&mut hasher),
                Some(DiskContent::Symlink(target)) => target.hash(&mut hasher),
                Some(DiskContent::Special(kind)) => kind.hash(&mut hasher),
                None => {}
            }
        }
        hasher.finish()
    }

    /// Gives each run of bytes of a file that are not zeros.
    pub(super) fn runs(&self, node: NodeNumber) -> Vec<(u64, Vec<u8>)> {
        let Some(DiskNode { content: DiskContent::File { pages, .. }, .. }) = self.node(node)
        else {
            return Vec::new();
        };
        let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
        for (number, page) in pages {
            let at = number * PAGE as u64;
            match runs.last_mut() {
                Some((begin, bytes)) if *begin + bytes.len() as u64 == at => {
                    bytes.extend(&page.bytes);
                }
                _ => runs.push((at, page.bytes.to_vec())),
            }
        }
        runs
    }
}

fn write(node: &mut DiskNode, at: u64, bytes: &[u8], mut survives: impl FnMut() -> bool) {
    let DiskContent::File { size, pages } = &mut node.content else { return };
    let mut done = 0;
    while done < bytes.len() {
        let place = at + done as u64;
        let length = (SECTOR - place as usize % SECTOR).min(bytes.len() - done);
        let part = &bytes[done..done + length];
        done += length;
        if !survives() {
            continue;
        }
        *size = (*size).max(place + length as u64);
        let number = place / PAGE as u64;
        let is_zeros = part.iter().all(|byte| *byte == 0);
        if is_zeros && !pages.contains_key(&number) {
            continue;
        }
        let page = pages.entry(number).or_insert_with(|| {
            Arc::new(DiskPage { bytes: vec![0; PAGE].into(), digest: OnceLock::new() })
        });
        let page = Arc::make_mut(page);
        let begin = place as usize % PAGE;
        page.bytes[begin..begin + length].copy_from_slice(part);
        page.digest = OnceLock::new();
    }
}

fn resize(node: &mut DiskNode, to: u64) {
    let DiskContent::File { size, pages } = &mut node.content else { return };
    if to < *size {
        pages.split_off(&to.div_ceil(PAGE as u64));
        let inside = to as usize % PAGE;
        if let Some(page) = pages.get_mut(&(to / PAGE as u64)).filter(|_| inside > 0) {
            let page = Arc::make_mut(page);
            page.bytes[inside..].fill(0);
            page.digest = OnceLock::new();
        }
    }
    *size = to;
}

/// What a loss of power leaves of changes that are not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Survival {
    /// All of them: a process was killed, and the system lives.
    All,
    /// None of them.
    Nothing,
    /// Sectors and names that are drawn from this seed.
    Drawn(u64),
}

/// A disk, with what is not durable kept apart.
#[derive(Clone, Debug)]
pub(super) struct UnsyncedDisk {
    durable: DiskImage,
    pending: Vec<DiskChange>,
}

impl UnsyncedDisk {
    /// A disk on which everything is durable.
    pub(super) fn new(durable: DiskImage) -> Self {
        Self { durable, pending: Vec::new() }
    }

    /// Takes the next change.
    pub(super) fn take(&mut self, change: &DiskChange) {
        match change {
            DiskChange::Sync { node } => self.sync(*node),
            DiskChange::Make { .. } | DiskChange::Own { .. } => {
                self.durable.apply(change, || true);
            }
            DiskChange::Nothing => {}
            change => self.pending.push(change.clone()),
        }
    }

    fn sync(&mut self, node: NodeNumber) {
        let mut nodes = BTreeSet::from([node]);
        loop {
            let known = nodes.len();
            for change in &self.pending {
                let places = change.places();
                if places.iter().any(|place| nodes.contains(place)) {
                    nodes.extend(places);
                }
            }
            if nodes.len() == known {
                break;
            }
        }
        let is_in = |change: &DiskChange| change.places().iter().any(|at| nodes.contains(at));
        let (synced, pending) = std::mem::take(&mut self.pending).into_iter().partition(is_in);
        let synced: Vec<DiskChange> = synced;
        synced.iter().for_each(|change| self.durable.apply(change, || true));
        self.pending = pending;
    }

    /// Returns whether a loss of power loses anything.
    pub(super) fn has_unsynced(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Returns what is on the disk after a loss of power now.
    pub(super) fn after_loss(&self, survival: Survival) -> DiskImage {
        let mut image = self.durable.clone();
        match survival {
            Survival::Nothing => {}
            Survival::All => self.pending.iter().for_each(|change| image.apply(change, || true)),
            Survival::Drawn(seed) => {
                let mut draws = Draws::new(seed);
                // Much, half or little of it.
                let eighths = [1, 4, 7][draws.below(3) as usize];
                for change in &self.pending {
                    image.apply(change, || draws.below(8) < eighths);
                }
            }
        }
        image
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: NodeNumber = 5;

    fn make(node: NodeNumber, content: DiskContent) -> DiskChange {
        DiskChange::Make { node, content, mode: 0o600, owner: (0, 0) }
    }

    fn enter(name: &str) -> DiskChange {
        DiskChange::Enter { directory: ROOT, name: name.into(), node: FILE }
    }

    fn write(at: u64, length: usize, fill: u8) -> DiskChange {
        DiskChange::Write { node: FILE, at, bytes: vec![fill; length].into() }
    }

    fn disk(changes: &[DiskChange]) -> UnsyncedDisk {
        let mut disk = UnsyncedDisk::new(DiskImage::new());
        changes.iter().for_each(|change| disk.take(change));
        disk
    }

    #[test]
    fn after_loss__a_sync_of_a_file_keeps_its_bytes_and_not_its_name() {
        let [file, directory] = [FILE, ROOT].map(|node| DiskChange::Sync { node });
        let begin = [make(FILE, DiskContent::EMPTY), enter("a"), write(0, 5000, 7)];
        let synced = disk(&[&begin[..], &[file.clone(), write(100, 10, 8)]].concat());
        assert!(synced.has_unsynced());
        let lost = synced.after_loss(Survival::Nothing);
        assert_eq!((lost.find("a"), lost.read(FILE, 0, 9000)), (None, vec![7; 5000]));
        let whole = synced.after_loss(Survival::All);
        assert_eq!((whole.find("a"), whole.read(FILE, 99, 3)), (Some(FILE), vec![7, 8, 8]));
        let named = disk(&[&begin[..], &[directory, file]].concat());
        assert!(!named.has_unsynced());
        let lost = named.after_loss(Survival::Nothing);
        assert_eq!(lost.find("a"), Some(FILE));
        assert_eq!(lost.digest(ROOT), named.after_loss(Survival::Drawn(3)).digest(ROOT));
    }

    #[test]
    fn after_loss__sectors_survive_one_by_one_and_never_older_ones() {
        let sync = DiskChange::Sync { node: FILE };
        let disk = disk(&[
            make(FILE, DiskContent::EMPTY),
            write(0, 8192, 1),
            sync,
            write(0, 8192, 2),
            write(0, 8192, 3),
        ]);
        let mut seen = BTreeSet::new();
        for seed in 0..20 {
            let bytes = disk.after_loss(Survival::Drawn(seed)).read(FILE, 0, 8192);
            for sector in bytes.chunks(SECTOR) {
                assert!(sector.iter().all(|byte| *byte == sector[0]), "a torn sector");
                seen.insert(sector[0]);
            }
        }
        assert_eq!(seen, BTreeSet::from([1, 2, 3]));
    }

    #[test]
    fn sync__a_rename_to_another_directory_takes_the_names_before_it_along() {
        let disk = disk(&[
            make(9, DiskContent::Directory(BTreeMap::new())),
            DiskChange::Enter { directory: ROOT, name: b"d".to_vec(), node: 9 },
            DiskChange::Sync { node: ROOT },
            make(FILE, DiskContent::EMPTY),
            enter("a"),
            DiskChange::Move { from: (ROOT, b"a".to_vec()), to: (9, b"b".to_vec()) },
            enter("late"),
            DiskChange::Sync { node: 9 },
        ]);
        let lost = disk.after_loss(Survival::Nothing);
        assert_eq!((lost.find("a"), lost.find("d/b")), (None, Some(FILE)));
        assert_eq!(lost.node(FILE).map(|node| node.links), Some(2), "and late");
    }

    #[test]
    fn apply__a_file_that_is_cut_and_grows_again_has_zeros() {
        let mut image = DiskImage::new();
        let resize = |size| DiskChange::Resize { node: FILE, size };
        for change in [
            make(FILE, DiskContent::EMPTY),
            write(4000, 5000, 9),
            resize(4100),
            resize(9000),
            write(8999, 2, 0),
        ] {
            image.apply(&change, || true);
        }
        let bytes = image.read(FILE, 0, 20_000);
        assert_eq!((bytes.len(), bytes[4099], bytes[4100], bytes[8999]), (9001, 9, 0, 0));
        assert_eq!(image.runs(FILE).len(), 1);
    }
}
