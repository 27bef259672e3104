//! What the backing store does not have yet of the tree.
//!
//! # Model
//! The tree says what should be at each *place* (a directory and a name); the store has what was put
//! there. Only the difference is kept: a place that is not in [`StoreLag`] is the same in both. A
//! change of the tree adds its place, with what the store has there; a `STORED` record says what was
//! put there since, and ends the difference where both agree.
//!
//! Everything that is no directory is an *object* of the store: a file in its hidden directory, named
//! by the number of the inode ([`InodeId::OBJECTS`]). Its names are further hard links to it. So the
//! bytes of a file are found at one path, whatever becomes of its names, and a name is taken away
//! without a thought of the bytes. A directory has one place; while it moves, a `MOVING` record says
//! where to, so that it is found after a crash.
//!
//! # Invariants
//! I1. The lag is a function of the records, like the tree.
//! I2. A place leaves the lag only by a record that says what the store has there.
//! I3. At most one directory moves.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;

use super::{EntryName, Inode, InodeKind, Tree, TreeError};
use crate::staging::{GroupNumber, InodeId};

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TreePlace {
    /// The directory.
    pub directory: InodeId,
    /// The name.
    pub name: EntryName,
}

impl TreePlace {
    /// Returns the place of the object of `inode`, or of a directory that has no other place now.
    pub(crate) fn object(inode: InodeId) -> Self {
        let name = EntryName(format!("{}", inode.0).into_bytes().into());
        Self { directory: InodeId::OBJECTS, name }
    }

    pub(crate) fn is_object(&self) -> bool {
        self.directory == InodeId::OBJECTS
    }
}

/// How the store differs at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameLag {
    /// What the store has there; of a file perhaps older bytes.
    pub stored: Option<InodeId>,
    /// The group of the last change there.
    pub changed: GroupNumber,
}

/// A directory that moves in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovingDirectory {
    /// The directory.
    pub inode: InodeId,
    /// Where to.
    pub to: TreePlace,
    /// The group of the record.
    pub group: GroupNumber,
}

/// Names from the root of the store to something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StorePath {
    /// Where they begin.
    pub base: StoreBase,
    /// The names.
    pub names: Vec<EntryName>,
}

/// Where a [`StorePath`] begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StoreBase {
    /// At the root of the store.
    Root,
    /// In its hidden directory of objects.
    Objects,
}

/// A member of a set that is published as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetMember {
    /// The set.
    pub set: u64,
    /// The group of the record that publishes the set: once it is durable, the member may appear.
    pub published: Option<GroupNumber>,
}

/// The difference between the tree and the backing store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreLag {
    pub(crate) names: BTreeMap<TreePlace, NameLag>,
    /// Inodes whose bytes or attributes the store does not have, by the group of the last change.
    pub(crate) nodes: BTreeMap<InodeId, GroupNumber>,
    pub(crate) members: BTreeMap<InodeId, SetMember>,
    /// Objects of inodes that the tree has not any more, by the group in which each was forgotten.
    pub(crate) dead: BTreeMap<InodeId, GroupNumber>,
    pub(crate) moving: Option<MovingDirectory>,
    /// Places of `names` by what the store has there.
    stored_at: BTreeMap<InodeId, BTreeSet<TreePlace>>,
}

impl StoreLag {
    /// Notes that an inode changed.
    pub(super) fn touch_node(&mut self, inode: InodeId, group: GroupNumber) {
        // The root of the store belongs to its owner.
        if inode != InodeId::ROOT {
            self.nodes.insert(inode, group);
        }
    }

    /// Returns whether the store has `inode` at a place where it differs.
    pub(crate) fn has_lagging_names(&self, inode: InodeId) -> bool {
        self.stored_at.contains_key(&inode)
    }

    /// Adds a difference.
    pub(crate) fn insert(&mut self, place: TreePlace, name: NameLag) {
        self.remove(&place);
        if let Some(inode) = name.stored {
            self.stored_at.entry(inode).or_default().insert(place.clone());
        }
        self.names.insert(place, name);
    }

    fn remove(&mut self, place: &TreePlace) -> Option<NameLag> {
        let name = self.names.remove(place)?;
        if let Some(inode) = name.stored
            && let Some(places) = self.stored_at.get_mut(&inode)
        {
            places.remove(place);
            if places.is_empty() {
                self.stored_at.remove(&inode);
            }
        }
        Some(name)
    }
}

/// Changes of the lag.
impl Tree {
    /// Notes that a place has `now` in place of `before`.
    pub(super) fn move_place(
        &mut self,
        place: &TreePlace,
        before: Option<InodeId>,
        now: Option<InodeId>,
        group: GroupNumber,
    ) {
        if let Some(before) = before
            && let Some(places) = self.places.get_mut(&before)
        {
            places.remove(place);
            if places.is_empty() {
                self.places.remove(&before);
            }
        }
        if let Some(now) = now {
            self.places.entry(now).or_default().insert(place.clone());
        }
        let stored = self.lag.remove(place).map_or(before, |name| name.stored);
        self.lag.insert(place.clone(), NameLag { stored, changed: group });
        let Some(before) = before else { return };
        self.end_membership(before);
        // What becomes of it at other places depends on this change too.
        let lag = &mut self.lag;
        for place in lag.stored_at.get(&before).into_iter().flatten() {
            if let Some(name) = lag.names.get_mut(place) {
                name.changed = group;
            }
        }
    }

    /// Notes that the object of `inode` has new bytes, so what its names have is old.
    pub(super) fn note_drained(&mut self, inode: InodeId, group: GroupNumber) {
        if let Some(found) = self.inodes.get_mut(&inode) {
            found.has_object = true;
        }
        let same = self.places(inode).filter(|place| !self.lag.names.contains_key(*place));
        for place in same.cloned().collect::<Vec<_>>() {
            self.lag.insert(place, NameLag { stored: Some(inode), changed: group });
        }
    }

    /// Notes what the store has at `place`.
    pub(super) fn note_stored(
        &mut self,
        place: &TreePlace,
        inode: Option<InodeId>,
        group: GroupNumber,
    ) {
        if let Some(moved) = self.lag.moving.take_if(|moving| moving.to == *place) {
            let from = self.stored_places(moved.inode).next().cloned();
            if let Some(from) = from.filter(|_| Some(moved.inode) == inode) {
                self.set_stored(&from, None, group);
            }
        }
        self.set_stored(place, inode, group);
        if let Some(inode) = inode {
            self.end_membership(inode);
        }
    }

    /// Ends the membership of what appeared wholly.
    fn end_membership(&mut self, inode: InodeId) {
        let is_placed = self.places(inode).all(|place| !self.lag.names.contains_key(place));
        if is_placed && self.member(inode).is_some_and(|member| member.published.is_some()) {
            self.lag.members.remove(&inode);
        }
    }

    fn set_stored(&mut self, place: &TreePlace, inode: Option<InodeId>, group: GroupNumber) {
        let changed = self.lag.remove(place).map_or(group, |name| name.changed);
        if self.wanted(place) != inode {
            self.lag.insert(place.clone(), NameLag { stored: inode, changed });
        }
        // The store gave the directory another time.
        if self.inodes.contains_key(&place.directory) {
            self.lag.touch_node(place.directory, group);
        }
    }

    /// Notes that the store has the attributes of `inode` as of `group`.
    pub(super) fn note_settled(
        &mut self,
        inode: InodeId,
        group: GroupNumber,
    ) -> Result<(), TreeError> {
        let found = self.inodes.get_mut(&inode).ok_or(TreeError::NotFound)?;
        found.has_object = !matches!(found.kind, InodeKind::Directory { .. });
        if self.lag.nodes.get(&inode).is_some_and(|changed| *changed <= group) {
            self.lag.nodes.remove(&inode);
        }
        Ok(())
    }

    /// Keeps of an inode that is about to be removed what the store needs.
    pub(super) fn forget_lag(&mut self, inode: InodeId, group: GroupNumber) {
        if self.inode(inode).is_some_and(|inode| inode.has_object) {
            self.lag.dead.insert(inode, group);
        }
        self.lag.nodes.remove(&inode);
        self.lag.members.remove(&inode);
    }

    /// Notes that the object of an inode that is gone is gone too.
    pub(super) fn note_dropped(&mut self, inode: InodeId) -> Result<(), TreeError> {
        self.lag.dead.remove(&inode).map(|_| ()).ok_or(TreeError::NotFound)
    }

    pub(super) fn note_moving(&mut self, moving: MovingDirectory) -> Result<(), TreeError> {
        if self.lag.moving.is_some() {
            return Err(TreeError::Exists);
        }
        self.lag.moving = Some(moving);
        Ok(())
    }

    pub(super) fn hold(&mut self, inode: InodeId, set: u64) -> Result<(), TreeError> {
        match self.inode(inode).ok_or(TreeError::NotFound)? {
            Inode { links: 0, .. } => return Err(TreeError::NotFound),
            Inode { kind: InodeKind::Directory { .. }, .. } => return Err(TreeError::IsDirectory),
            _ => {}
        }
        if self.lag.members.contains_key(&inode) || self.stored_places(inode).next().is_some() {
            return Err(TreeError::Exists);
        }
        self.lag.members.insert(inode, SetMember { set, published: None });
        Ok(())
    }

    pub(super) fn publish(&mut self, set: u64, group: GroupNumber) -> Result<(), TreeError> {
        let members = self.lag.members.values_mut().filter(|member| member.set == set);
        let count = members.map(|member| member.published.get_or_insert(group)).count();
        if count > 0 { Ok(()) } else { Err(TreeError::NotFound) }
    }

    pub(super) fn release_set(&mut self, set: u64, group: GroupNumber) -> Result<(), TreeError> {
        let is_held = |(inode, member): (&InodeId, &SetMember)| {
            (member.set == set && member.published.is_none()).then_some(*inode)
        };
        let held: Vec<InodeId> = self.lag.members.iter().filter_map(is_held).collect();
        for inode in &held {
            self.lag.members.remove(inode);
            // They appear when this is durable.
            let places: Vec<TreePlace> = self.places(*inode).cloned().collect();
            for place in places {
                if let Some(name) = self.lag.names.get_mut(&place) {
                    name.changed = group;
                }
            }
        }
        if held.is_empty() { Err(TreeError::NotFound) } else { Ok(()) }
    }
}

/// What the lag says.
impl Tree {
    /// Returns what should be at `place`.
    pub(crate) fn wanted(&self, place: &TreePlace) -> Option<InodeId> {
        self.lookup(place.directory, &place.name).ok()
    }

    /// Returns all places where the store has `inode`.
    pub fn stored_places(&self, inode: InodeId) -> impl Iterator<Item = &TreePlace> {
        let same = self.places(inode).filter(|place| !self.lag.names.contains_key(*place));
        self.lag.stored_at.get(&inode).into_iter().flatten().chain(same)
    }

    /// Returns the names from the root of the store to `place`, as the store has them now. `None`
    /// when its directory is not there.
    pub(crate) fn store_path(&self, place: &TreePlace) -> Option<StorePath> {
        let mut path = self.directory_path(place.directory)?;
        path.names.push(place.name.clone());
        Some(path)
    }

    /// Returns the path of a directory in the store.
    pub(crate) fn directory_path(&self, directory: InodeId) -> Option<StorePath> {
        let (mut names, mut at) = (Vec::new(), directory);
        while at != InodeId::ROOT && at != InodeId::OBJECTS {
            // No path has more steps than there are directories.
            if names.len() > self.inodes.len() + self.lag.names.len() {
                return None;
            }
            let above = self.stored_places(at).next()?;
            names.push(above.name.clone());
            at = above.directory;
        }
        names.reverse();
        let base = if at == InodeId::ROOT { StoreBase::Root } else { StoreBase::Objects };
        Some(StorePath { base, names })
    }

    /// Returns whether a directory is `above`, or lies below it in the store.
    pub(crate) fn is_stored_below(&self, directory: InodeId, above: InodeId) -> bool {
        let mut at = directory;
        // No path has more steps than there are directories.
        for _ in 0..=self.inodes.len() + self.lag.names.len() {
            if at == above {
                return true;
            }
            let Some(place) = self.stored_places(at).next() else { return false };
            at = place.directory;
        }
        false
    }

    /// Returns whether the store has `inode` as a directory, or had it when it was removed.
    pub(crate) fn is_store_directory(&self, inode: InodeId) -> bool {
        match self.inode(inode) {
            Some(found) => matches!(found.kind, InodeKind::Directory { .. }),
            None => !self.lag.dead.contains_key(&inode),
        }
    }

    /// Returns the set that `inode` is a member of.
    pub fn member(&self, inode: InodeId) -> Option<SetMember> {
        self.lag.members.get(&inode).copied()
    }

    /// Returns the members of all sets.
    pub fn members(&self) -> impl Iterator<Item = (InodeId, SetMember)> {
        self.lag.members.iter().map(|(inode, member)| (*inode, *member))
    }

    /// Returns the group of the last change of `inode` whose attributes or bytes the store does not
    /// have; `None` when it has them.
    pub(crate) fn node_lag(&self, inode: InodeId) -> Option<GroupNumber> {
        self.lag.nodes.get(&inode).copied()
    }

    /// Returns the difference at `place`, if there is one.
    pub(crate) fn name_lag(&self, place: &TreePlace) -> Option<NameLag> {
        self.lag.names.get(place).copied()
    }

    /// Returns whether the store has the same names in a directory.
    pub(crate) fn has_all_names(&self, directory: InodeId) -> bool {
        let first = TreePlace { directory, name: EntryName([].into()) };
        let next = self.lag.names.range(first..).next();
        next.is_none_or(|(place, _)| place.directory != directory)
    }

    /// Returns how many names, objects and attributes the store does not have as the tree has them.
    pub fn store_lag(&self) -> usize {
        let StoreLag { names, nodes, dead, moving, .. } = &self.lag;
        names.len() + nodes.len() + dead.len() + usize::from(moving.is_some())
    }
}
