//! A backing store that forgets what was not synced: directories, names and files, and the worker's
//! steps on them.
//!
//! # Model
//! A rename, link or removal is a change of one or two names that happens whole or not at all. A
//! sync of a directory makes its changes safe, and those of other directories that they rest on. A
//! crash keeps drawn others, but never a change of a name without the earlier ones of that name. Of
//! a file it keeps what was synced, or what was written, or a mixture.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use clearway_proto::base::{RandomKey, xxh3};
use clearway_proto::staging::{
    CopyPiece, InodeId, NodeKind, StepEnd, StoreAttributes, StoreBase, StorePath, StoreStep,
    StrangerFate,
};
use clearway_proto::wire::Fault;

use super::disk::CrashKind;

pub(super) const ROOT: u64 = 1;
pub(super) const OBJECTS: u64 = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StoreKind {
    File {
        bytes: Rc<Vec<u8>>,
        safe: Rc<Vec<u8>>,
    },
    Directory,
    /// A symbolic link or a special file.
    Bare(NodeKind),
}

#[derive(Clone, Debug)]
pub(super) struct StoreNode {
    pub(super) kind: StoreKind,
    pub(super) mode: u32,
    pub(super) owner: (u32, u32),
    pub(super) times: (u64, u64),
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

pub(super) type StoreName = (u64, Vec<u8>);
type NameChange = Vec<(StoreName, Option<u64>)>;

#[derive(Clone, Debug)]
pub(super) struct TrialStore {
    pub(super) nodes: BTreeMap<u64, StoreNode>,
    pub(super) names: BTreeMap<StoreName, u64>,
    safe: BTreeMap<StoreName, u64>,
    unsynced: Vec<NameChange>,
    next: u64,
    clock: u64,
}

/// Reads a piece from the log.
pub(super) type ReadPiece<'a> = &'a dyn Fn(&CopyPiece) -> Result<Vec<u8>, String>;

impl TrialStore {
    pub(super) fn new() -> Self {
        let node = StoreNode {
            kind: StoreKind::Directory,
            mode: 0o755,
            owner: (0, 0),
            times: (0, 0),
            xattrs: BTreeMap::new(),
        };
        let nodes = BTreeMap::from([(ROOT, node.clone()), (OBJECTS, node)]);
        let (names, safe, unsynced) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        Self { nodes, names, safe, unsynced, next: 3, clock: 1 << 50 }
    }

    pub(super) fn find(&self, path: &StorePath) -> Option<u64> {
        let mut at = if path.base == StoreBase::Objects { OBJECTS } else { ROOT };
        for name in &path.names {
            at = *self.names.get(&(at, name.bytes().to_vec()))?;
        }
        Some(at)
    }

    fn name(&self, path: &StorePath) -> Option<StoreName> {
        let (last, above) = path.names.split_last()?;
        let above = StorePath { names: above.to_vec(), ..path.clone() };
        Some((self.find(&above)?, last.bytes().to_vec()))
    }

    pub(super) fn object(&self, inode: InodeId) -> Option<u64> {
        self.names.get(&object_name(inode)).copied()
    }

    pub(super) fn bytes(&self, inode: InodeId) -> Option<Rc<Vec<u8>>> {
        match &self.nodes.get(&self.object(inode)?)?.kind {
            StoreKind::File { bytes, .. } => Some(Rc::clone(bytes)),
            _ => None,
        }
    }

    fn change(&mut self, change: NameChange) {
        for (name, node) in &change {
            match node {
                Some(node) => drop(self.names.insert(name.clone(), *node)),
                None => drop(self.names.remove(name)),
            }
        }
        self.unsynced.push(change);
    }

    fn sync(&mut self, directory: u64) {
        let mut marked: BTreeSet<usize> = BTreeSet::new();
        let mut names: BTreeSet<StoreName> = BTreeSet::new();
        for (index, change) in self.unsynced.iter().enumerate().rev() {
            let touches = |(name, _): &(StoreName, _)| name.0 == directory || names.contains(name);
            if change.iter().any(touches) {
                marked.insert(index);
                names.extend(change.iter().map(|(name, _)| name.clone()));
            }
        }
        for (index, change) in std::mem::take(&mut self.unsynced).into_iter().enumerate() {
            if marked.contains(&index) {
                keep(&mut self.safe, &change);
            } else {
                self.unsynced.push(change);
            }
        }
    }

    fn is_empty(&self, directory: u64) -> bool {
        !self.names.keys().any(|(parent, _)| *parent == directory)
    }

    fn is_directory(&self, node: u64) -> bool {
        self.nodes[&node].kind == StoreKind::Directory
    }

    fn is_object(&self, node: u64) -> bool {
        self.names.iter().any(|(name, other)| name.0 == OBJECTS && *other == node)
    }

    fn links(&self, node: u64) -> usize {
        self.names.values().filter(|other| **other == node).count()
    }

    /// Returns whether what is at a name is nothing, a name of an object or an empty directory; what
    /// is a stranger's is kept under another name.
    fn make_way(&mut self, name: &StoreName) -> StepEnd {
        let Some(there) = self.names.get(name).copied() else { return StepEnd::Done };
        if self.is_object(there) || (self.is_directory(there) && self.is_empty(there)) {
            return StepEnd::Done;
        }
        let renamed = (name.0, [&name.1[..], b".stranger"].concat());
        self.change(vec![(name.clone(), None), (renamed, Some(there))]);
        StepEnd::DoneWithStranger(StrangerFate::Moved(1))
    }

    fn set(&mut self, node: u64, attributes: &StoreAttributes) {
        let Some(found) = self.nodes.get_mut(&node) else { return };
        found.mode = attributes.mode;
        found.owner = attributes.owner;
        found.times = (attributes.atime.0, attributes.mtime.0);
        let xattrs = attributes.xattrs.iter();
        found.xattrs = xattrs.map(|(n, v)| (n.bytes().to_vec(), v.to_vec())).collect();
    }

    fn add(&mut self, kind: StoreKind) -> u64 {
        let node = self.next;
        (self.next, self.clock) = (self.next + 1, self.clock + 1);
        let (owner, times, xattrs) = ((0, 0), (self.clock, self.clock), BTreeMap::new());
        self.nodes.insert(node, StoreNode { kind, mode: 0o600, owner, times, xattrs });
        node
    }

    /// Writes some pieces of a copy and does not sync it. Returns its node, which has no name when the
    /// object is not changed in its place.
    pub(super) fn write(
        &mut self,
        step: &StoreStep,
        read: ReadPiece<'_>,
        pieces_done: usize,
    ) -> Result<Option<u64>, String> {
        let StoreStep::Copy { inode, is_named, keep, size, pieces, .. } = step else {
            return Ok(None);
        };
        let object = self.object(*inode);
        let node = match object.filter(|object| self.links(*object) == 1 && !is_named) {
            Some(object) => object,
            None => {
                let bytes = self.bytes(*inode).unwrap_or_default();
                self.add(StoreKind::File { bytes, safe: Rc::default() })
            }
        };
        let StoreKind::File { bytes, .. } = &mut self.nodes.get_mut(&node).expect("a node").kind
        else {
            return Err(format!("{inode:?} is no file"));
        };
        if *keep as usize > bytes.len() {
            return Err(format!("{inode:?} has less than {keep} bytes"));
        }
        let bytes = Rc::make_mut(bytes);
        bytes.truncate(*keep as usize);
        bytes.resize(*size as usize, 0);
        for piece in &pieces[..pieces_done.min(pieces.len())] {
            let body = read(piece)?;
            if xxh3(&body) != piece.digest {
                return Err(format!("a body that is copied is not there: {piece:?}"));
            }
            let stretch = &body[piece.skip as usize..][..piece.bytes as usize];
            let at = piece.offset as usize;
            let Some(place) = bytes.get_mut(at..at + stretch.len()) else {
                return Err(format!("a piece beyond the size {size}: {piece:?}"));
            };
            place.copy_from_slice(stretch);
        }
        Ok(Some(node))
    }

    fn copy(&mut self, step: &StoreStep, read: ReadPiece<'_>) -> Result<StepEnd, String> {
        let StoreStep::Copy { inode, pieces, attributes, .. } = step else {
            return Ok(StepEnd::Done);
        };
        for piece in pieces {
            if xxh3(&read(piece)?) != piece.digest {
                return Ok(StepEnd::Failed(Fault::Malformed));
            }
        }
        let Some(node) = self.write(step, read, pieces.len())? else { return Ok(StepEnd::Done) };
        self.set(node, attributes);
        if let StoreKind::File { bytes, safe } =
            &mut self.nodes.get_mut(&node).expect("a node").kind
        {
            *safe = Rc::clone(bytes);
        }
        let object = self.object(*inode);
        if object != Some(node) {
            if let Some(old) = object {
                let names = (1..).map(|number| old_name(*inode, number));
                let mut free = names.filter(|name| !self.names.contains_key(name));
                let name = free.next().expect("a free name");
                self.change(vec![(name, Some(old))]);
                self.sync(OBJECTS);
            }
            self.change(vec![(object_name(*inode), Some(node))]);
        }
        self.sync(OBJECTS);
        Ok(StepEnd::Done)
    }

    /// Does a step.
    pub(super) fn carry_out(
        &mut self,
        step: &StoreStep,
        read: ReadPiece<'_>,
    ) -> Result<StepEnd, String> {
        if let StoreStep::Copy { .. } = step {
            return self.copy(step, read);
        }
        Ok(self.change_names(step).unwrap_or(StepEnd::Failed(Fault::Gone)))
    }

    fn drop_old(&mut self, inode: InodeId) {
        let is_old = |name: &&StoreName| {
            name.0 == OBJECTS && name.1.starts_with(format!("{}.", inode.0).as_bytes())
        };
        let names: Vec<_> = self.names.keys().filter(is_old).cloned().collect();
        names.into_iter().for_each(|name| self.change(vec![(name, None)]));
    }

    /// Does a step that is no copy; none when something that it needs is not there.
    fn change_names(&mut self, step: &StoreStep) -> Option<StepEnd> {
        let mut end = StepEnd::Done;
        match step {
            StoreStep::Copy { .. } => {}
            StoreStep::Sweep { keeps } => {
                let changes = std::mem::take(&mut self.unsynced);
                changes.iter().for_each(|change| keep(&mut self.safe, change));
                let names = self.names.keys().filter(|name| name.0 == OBJECTS).cloned();
                let is_kept = |name: &StoreName| {
                    let is_old = name.1.contains(&b'.');
                    let has_names = self.links(self.names[name]) > 1;
                    keeps.iter().any(|inode| object_name(*inode) == *name) || (is_old && has_names)
                };
                let removed: Vec<_> = names.filter(|name| !is_kept(name)).collect();
                removed.into_iter().for_each(|name| self.change(vec![(name, None)]));
            }
            StoreStep::Make { inode, node, attributes } => {
                let node = self.add(StoreKind::Bare(node.clone()));
                self.set(node, attributes);
                self.change(vec![(object_name(*inode), Some(node))]);
                self.sync(OBJECTS);
            }
            StoreStep::Settle { at, attributes } => self.set(self.find(at)?, attributes),
            StoreStep::Link { inode, to } => {
                let (to, object) = (self.name(to)?, self.object(*inode)?);
                if self.names.get(&to) != Some(&object) {
                    end = self.make_way(&to);
                    self.change(vec![(to, Some(object))]);
                }
            }
            StoreStep::MakeDirectory { at } => {
                let name = self.name(at)?;
                if !self.names.get(&name).is_some_and(|there| self.is_directory(*there)) {
                    end = self.make_way(&name);
                    let node = self.add(StoreKind::Directory);
                    self.change(vec![(name, Some(node))]);
                }
            }
            StoreStep::MoveDirectory { from, to } => {
                let (from, to) = (self.name(from)?, self.name(to)?);
                if let Some(node) = self.names.get(&from).copied() {
                    end = self.make_way(&to);
                    self.change(vec![(from, None), (to, Some(node))]);
                }
            }
            StoreStep::Unlink { at } => {
                let Some(name) = self.name(at) else { return Some(end) };
                match self.names.get(&name) {
                    None => {}
                    Some(there) if self.is_object(*there) => self.change(vec![(name, None)]),
                    Some(there) if self.is_directory(*there) && self.is_empty(*there) => {
                        self.change(vec![(name, None)]);
                    }
                    Some(_) => end = StepEnd::DoneWithStranger(StrangerFate::Stays),
                }
            }
            StoreStep::RemoveDirectory { at } => {
                let Some(name) = self.name(at) else { return Some(end) };
                match self.names.get(&name) {
                    Some(there) if self.is_directory(*there) && self.is_empty(*there) => {
                        self.change(vec![(name, None)]);
                    }
                    Some(_) => end = StepEnd::DoneWithStranger(StrangerFate::Stays),
                    None => {}
                }
            }
            StoreStep::DropOld { inode } => self.drop_old(*inode),
            StoreStep::Drop { inode } => {
                self.drop_old(*inode);
                if self.object(*inode).is_some() {
                    self.change(vec![(object_name(*inode), None)]);
                }
            }
            StoreStep::SyncDirectories { at } => {
                let found: Vec<u64> = at.iter().filter_map(|path| self.find(path)).collect();
                found.into_iter().for_each(|directory| self.sync(directory));
            }
        }
        Some(end)
    }

    /// Makes what a copy wrote unsafe again.
    pub(super) fn forget_sync(&mut self, step: &StoreStep) {
        let StoreStep::Copy { inode, .. } = step else { return };
        let node = self.object(*inode);
        if let Some(StoreKind::File { safe, .. }) =
            node.and_then(|node| self.nodes.get_mut(&node)).map(|node| &mut node.kind)
        {
            *safe = Rc::default();
        }
    }

    /// Returns the store as a crash leaves it.
    pub(super) fn crashed(&self, kind: CrashKind) -> Self {
        let mut left = self.clone();
        let CrashKind::Power(key) = kind else { return left };
        left.names = left.safe.clone();
        let mut blocked: BTreeSet<&StoreName> = BTreeSet::new();
        for (number, change) in (0..).zip(&self.unsynced) {
            let is_free = !change.iter().any(|(name, _)| blocked.contains(name));
            if is_free && draws(key, number, 2) {
                keep(&mut left.names, change);
            } else {
                blocked.extend(change.iter().map(|(name, _)| name));
            }
        }
        left.safe = left.names.clone();
        left.unsynced.clear();
        for (id, node) in &mut left.nodes {
            if let StoreKind::File { bytes, safe } = &mut node.kind
                && bytes != safe
            {
                *bytes = mixed(key.node(1 << 32).node(*id), bytes, safe);
                *safe = Rc::clone(bytes);
            }
        }
        left
    }
}

fn object_name(inode: InodeId) -> StoreName {
    (OBJECTS, inode.0.to_string().into_bytes())
}

fn old_name(inode: InodeId, number: u32) -> StoreName {
    (OBJECTS, format!("{}.{number}", inode.0).into_bytes())
}

fn draws(key: RandomKey, number: u64, of: u64) -> bool {
    key.node(number).stream().below(of) == 0
}

fn keep(names: &mut BTreeMap<StoreName, u64>, change: &NameChange) {
    for (name, node) in change {
        match node {
            Some(node) => drop(names.insert(name.clone(), *node)),
            None => drop(names.remove(name)),
        }
    }
}

/// Returns bytes of which drawn blocks were written.
fn mixed(key: RandomKey, new: &[u8], old: &[u8]) -> Rc<Vec<u8>> {
    let mut stream = key.stream();
    let length = if stream.below(2) == 0 { new.len() } else { old.len() };
    let mut bytes = vec![0; length];
    for (index, byte) in bytes.iter_mut().enumerate() {
        if index % 512 == 0 {
            stream.below(1 << 20);
        }
        let from = if draws(key, (index / 512) as u64, 2) { new } else { old };
        *byte = from.get(index).copied().unwrap_or(0);
    }
    Rc::new(bytes)
}
