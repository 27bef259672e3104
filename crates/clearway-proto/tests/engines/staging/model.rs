//! What files and directories are, as simply as can be said: the reference that the tree is held
//! against.
//!
//! # Model
//! Names are one list for all directories, bytes of files are bytes, and numbers of links are
//! counted when somebody asks.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use clearway_proto::staging::{
    ByteSource, InodeId, InodeKind, LogState, NodeKind, OwnerUsage, SpecialNode, TreeChange,
};

#[derive(Clone, Debug, PartialEq, Eq)]
enum ModelKind {
    File(Rc<Vec<u8>>),
    Directory,
    Symlink(Vec<u8>),
    Special(SpecialNode),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ModelNode {
    kind: ModelKind,
    mode: u32,
    owner: (u32, u32),
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Files, directories and links.
#[derive(Clone, Debug)]
pub(super) struct ModelTree {
    nodes: BTreeMap<u64, ModelNode>,
    /// By directory and name.
    names: BTreeMap<(u64, Vec<u8>), u64>,
}

type Outcome = Result<(), &'static str>;

fn check(is_good: bool, why: &'static str) -> Outcome {
    if is_good { Ok(()) } else { Err(why) }
}

impl ModelTree {
    pub(super) fn new() -> Self {
        let kind = ModelKind::Directory;
        let root = ModelNode { kind, mode: 0o755, owner: (0, 0), xattrs: BTreeMap::new() };
        Self { nodes: BTreeMap::from([(1, root)]), names: BTreeMap::new() }
    }

    pub(super) fn inodes(&self) -> Vec<u64> {
        self.nodes.keys().copied().collect()
    }

    pub(super) fn directories(&self) -> Vec<u64> {
        let named = |inode: &u64| self.is_directory(*inode) && self.named(*inode) > 0;
        self.inodes().into_iter().filter(named).collect()
    }

    pub(super) fn names(&self) -> Vec<(u64, Vec<u8>)> {
        self.names.keys().cloned().collect()
    }

    pub(super) fn nameless(&self) -> Vec<u64> {
        self.inodes().into_iter().filter(|inode| *inode != 1 && self.links(*inode) == 0).collect()
    }

    pub(super) fn bytes(&self, inode: u64) -> Option<Rc<Vec<u8>>> {
        match &self.nodes.get(&inode)?.kind {
            ModelKind::File(bytes) => Some(Rc::clone(bytes)),
            _ => None,
        }
    }

    fn is_directory(&self, inode: u64) -> bool {
        self.nodes.get(&inode).is_some_and(|node| node.kind == ModelKind::Directory)
    }

    fn has_entries(&self, inode: u64) -> bool {
        self.names.keys().any(|(parent, _)| *parent == inode)
    }

    /// Names of an inode, and one for the root.
    fn named(&self, inode: u64) -> usize {
        self.names.values().filter(|other| **other == inode).count() + usize::from(inode == 1)
    }

    fn links(&self, inode: u64) -> u32 {
        if !self.is_directory(inode) {
            return self.named(inode) as u32;
        }
        if self.named(inode) == 0 {
            return 0;
        }
        let inside = self.names.iter().filter(|((parent, _), _)| *parent == inode);
        2 + inside.filter(|(_, entry)| self.is_directory(**entry)).count() as u32
    }

    fn can_add(&self, parent: u64, name: &[u8]) -> Outcome {
        check(self.is_directory(parent) && self.named(parent) > 0, "no directory")?;
        check(!self.names.contains_key(&(parent, name.into())), "the name is taken")
    }

    fn entry(&self, parent: u64, name: &[u8]) -> Result<u64, &'static str> {
        self.names.get(&(parent, name.into())).copied().ok_or("no such name")
    }

    fn is_inside(&self, inode: u64, directory: u64) -> bool {
        let up = |at| self.names.iter().find(|(_, entry)| **entry == at).map(|((up, _), _)| *up);
        std::iter::successors(Some(inode), |at| up(*at)).any(|at| at == directory)
    }

    fn node(&mut self, inode: InodeId) -> Result<&mut ModelNode, &'static str> {
        self.nodes.get_mut(&inode.0).ok_or("no such inode")
    }

    fn file(&mut self, inode: InodeId) -> Result<&mut Vec<u8>, &'static str> {
        match &mut self.node(inode)?.kind {
            ModelKind::File(bytes) => Ok(Rc::make_mut(bytes)),
            _ => Err("no file"),
        }
    }

    /// Makes a change; `body` has the bytes of a write.
    pub(super) fn apply(&mut self, change: &TreeChange, body: &[u8]) -> Outcome {
        match change {
            TreeChange::Write { inode, offset, .. } => {
                let (file, from) = (self.file(*inode)?, *offset as usize);
                file.resize(file.len().max(from + body.len()), 0);
                file[from..from + body.len()].copy_from_slice(body);
                Ok(())
            }
            // Where bytes lie is not seen.
            TreeChange::Relocate { .. } => Ok(()),
            TreeChange::Create { inode, parent, name, node, mode, uid, gid } => {
                self.can_add(parent.0, name.bytes())?;
                let kind = match node {
                    NodeKind::File => ModelKind::File(Rc::default()),
                    NodeKind::Directory => ModelKind::Directory,
                    NodeKind::Symlink(target) => ModelKind::Symlink(target.to_vec()),
                    NodeKind::Special(special) => ModelKind::Special(*special),
                };
                let owner = (*uid, *gid);
                let made = ModelNode { kind, mode: *mode, owner, xattrs: BTreeMap::new() };
                self.nodes.insert(inode.0, made);
                self.names.insert((parent.0, name.bytes().into()), inode.0);
                Ok(())
            }
            TreeChange::Link { inode, parent, name } => {
                self.can_add(parent.0, name.bytes())?;
                let can = !self.is_directory(inode.0) && self.named(inode.0) > 0;
                check(can, "no file with a name")?;
                self.names.insert((parent.0, name.bytes().into()), inode.0);
                Ok(())
            }
            TreeChange::Unlink { parent, name } => {
                let inode = self.entry(parent.0, name.bytes())?;
                check(!self.is_directory(inode), "a directory")?;
                self.names.remove(&(parent.0, name.bytes().into()));
                Ok(())
            }
            TreeChange::RemoveDirectory { parent, name } => {
                let inode = self.entry(parent.0, name.bytes())?;
                check(self.is_directory(inode) && !self.has_entries(inode), "no empty directory")?;
                self.names.remove(&(parent.0, name.bytes().into()));
                Ok(())
            }
            TreeChange::Rename { from, name, to, new_name } => {
                self.rename((from.0, name.bytes()), (to.0, new_name.bytes()))
            }
            TreeChange::Attributes { inode, set } => {
                let node = self.node(*inode)?;
                node.mode = set.mode.unwrap_or(node.mode);
                node.owner = set.owner.unwrap_or(node.owner);
                Ok(())
            }
            TreeChange::SetXattr { inode, name, value } => {
                self.node(*inode)?.xattrs.insert(name.bytes().into(), value.to_vec());
                Ok(())
            }
            TreeChange::UnsetXattr { inode, name } => {
                self.node(*inode)?.xattrs.remove(name.bytes()).map(|_| ()).ok_or("not set")
            }
            TreeChange::Truncate { inode, size } => {
                self.file(*inode)?.resize(*size as usize, 0);
                Ok(())
            }
            TreeChange::Forget { inode } => {
                let can = self.nodes.contains_key(&inode.0) && self.named(inode.0) == 0;
                check(can, "it has a name")?;
                self.nodes.remove(&inode.0);
                Ok(())
            }
            // To a reader it does not matter where the bytes lie.
            TreeChange::Drained { inode, .. } => self.file(*inode).map(|_| ()),
            TreeChange::Settled { inode, .. } => self.node(*inode).map(|_| ()),
            TreeChange::Stored { .. }
            | TreeChange::Moving { .. }
            | TreeChange::Dropped { .. }
            | TreeChange::Hold { .. }
            | TreeChange::Published { .. }
            | TreeChange::Release { .. } => Ok(()),
        }
    }

    fn rename(&mut self, (from, name): (u64, &[u8]), (to, new_name): (u64, &[u8])) -> Outcome {
        let moved = self.entry(from, name)?;
        check(self.is_directory(to) && self.named(to) > 0, "no directory")?;
        let is_directory = self.is_directory(moved);
        check(!is_directory || !self.is_inside(to, moved), "inside itself")?;
        if let Ok(replaced) = self.entry(to, new_name) {
            if replaced == moved {
                return Ok(());
            }
            check(self.is_directory(replaced) == is_directory, "of another kind")?;
            check(!self.has_entries(replaced), "not empty")?;
        }
        self.names.remove(&(from, name.into()));
        self.names.insert((to, new_name.into()), moved);
        Ok(())
    }

    /// Compares with the tree of a log, whose bodies `body` reads and whose backing store `backing`
    /// is.
    pub(super) fn compare(
        &self,
        state: &LogState,
        body: &dyn Fn(ByteSource, usize) -> Result<Vec<u8>, String>,
        backing: &BTreeMap<u64, Rc<Vec<u8>>>,
    ) -> Result<(), String> {
        let ours: BTreeSet<u64> = self.nodes.keys().copied().collect();
        let theirs: BTreeSet<u64> = state.tree().inodes().map(|(id, _)| id.0).collect();
        if ours != theirs {
            return Err(format!("inodes {theirs:?} in place of {ours:?}"));
        }
        let (mut names, mut logged) = (BTreeMap::new(), BTreeMap::new());
        for (id, inode) in state.tree().inodes() {
            let node = &self.nodes[&id.0];
            let xattrs: BTreeMap<Vec<u8>, Vec<u8>> = inode
                .xattrs
                .iter()
                .map(|(name, value)| (name.bytes().to_vec(), value.to_vec()))
                .collect();
            let found = (inode.mode, (inode.uid, inode.gid), inode.links, &xattrs);
            let expected = (node.mode, node.owner, self.links(id.0), &node.xattrs);
            if found != expected {
                return Err(format!("inode {} has {found:?} in place of {expected:?}", id.0));
            }
            match (&inode.kind, &node.kind) {
                (InodeKind::Directory { entries, .. }, ModelKind::Directory) => {
                    names.extend(entries.iter().map(|(n, e)| ((id.0, n.bytes().to_vec()), e.0)));
                }
                (InodeKind::Symlink(found), ModelKind::Symlink(target)) if **found == **target => {}
                (InodeKind::Special(found), ModelKind::Special(made)) if found == made => {}
                (InodeKind::File(content), ModelKind::File(bytes)) => {
                    let sources = content.sources(0, content.size());
                    let in_log = |source| matches!(source, ByteSource::Log { .. });
                    let in_log = sources.iter().filter(|(_, source)| in_log(*source));
                    *logged.entry(node.owner.0).or_insert(0) += in_log.map(|(n, _)| n).sum::<u64>();
                    let found = read(&sources, backing.get(&id.0), body)?;
                    if found != **bytes {
                        let at = found.iter().zip(bytes.iter()).position(|(a, b)| a != b);
                        let lengths = (found.len(), bytes.len());
                        return Err(format!("inode {} differs at {at:?}, {lengths:?}", id.0));
                    }
                }
                _ => return Err(format!("inode {} is something else", id.0)),
            }
        }
        let usage = state.tree().log_usage();
        if *usage != OwnerUsage::from_owners(logged) {
            return Err(format!("users have {usage:?} in the log"));
        }
        let mut owned = BTreeMap::new();
        for (_, inode) in state.tree().inodes() {
            let is_directory = matches!(inode.kind, InodeKind::Directory { .. });
            let names = if is_directory { 1 } else { inode.links.max(1) };
            *owned.entry(inode.uid).or_insert(0) += u64::from(names);
        }
        let usage = state.tree().inode_usage();
        if *usage != OwnerUsage::from_owners(owned) {
            return Err(format!("users have {usage:?} inodes"));
        }
        if names == self.names { Ok(()) } else { Err(format!("names are {names:?}")) }
    }
}

/// Puts the bytes of a file together.
fn read(
    sources: &[(u64, ByteSource)],
    backing: Option<&Rc<Vec<u8>>>,
    body: &dyn Fn(ByteSource, usize) -> Result<Vec<u8>, String>,
) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for (length, source) in sources {
        let (length, at) = (*length as usize, bytes.len());
        match source {
            ByteSource::Zeros => bytes.resize(at + length, 0),
            ByteSource::Backing => {
                let whole = backing.ok_or("nothing is in the backing store")?;
                let part = whole.get(at..at + length).ok_or("the backing store has too little")?;
                bytes.extend(part);
            }
            ByteSource::Log { .. } => bytes.extend(body(*source, length)?),
        }
    }
    Ok(bytes)
}
