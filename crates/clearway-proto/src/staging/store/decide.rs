//! Which differences can be ended now, and by which step.
//!
//! # Model
//! Each function looks at the tree and the lag as they are, and answers with a step, a record, or
//! nothing. What is under way is left alone, so nothing that is decided here is undone.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::super::drain::{DrainEnd, DrainJob};
use super::super::tree::{
    BodyId, Extent, FileContent, Inode, InodeKind, MovingDirectory, NameLag, NodeKind, StorePath,
    Tree, TreePlace,
};
use super::super::{GroupNumber, InodeId, LogState, TreeChange};
use super::due::{DueFile, has_news};
use super::scan::LagScan;
use super::{
    BATCH, CopyPiece, DrainPolicy, DrainWish, Flight, FlightKind, STORE, StoreAttributes,
    StoreDrain, StoreStep,
};
use crate::base::LocalNs;

/// Extended attributes that are for this service and not for the store.
const OWN_XATTRS: &[u8] = b"user.clearway.";

/// What a decision looks at.
pub(super) struct StoreView<'a> {
    pub(super) now: LocalNs,
    pub(super) state: &'a LogState,
    pub(super) tree: &'a Tree,
    pub(super) durable: GroupNumber,
}

/// What can be done about a place.
enum PlaceAction {
    Wait,
    Record(TreeChange),
    /// Bytes of a file come first.
    Content(InodeId),
    Step(StoreStep, TreeChange, Option<InodeId>),
}

/// Returns the step that looks at the objects.
pub(super) fn sweep(view: &StoreView<'_>) -> StoreStep {
    let objects = view.tree.inodes().filter(|(_, inode)| inode.has_object).map(|(id, _)| id);
    let lag = &view.tree.lag;
    let waiting = lag.names.iter().filter(|(place, _)| place.is_object());
    let waiting = waiting.filter_map(|(_, name)| name.stored);
    let moving = lag.moving.iter().map(|moving| moving.inode);
    let mut keeps: Vec<InodeId> =
        objects.chain(lag.dead.keys().copied()).chain(waiting).chain(moving).collect();
    keeps.sort_unstable();
    keeps.dedup();
    StoreStep::Sweep { keeps }
}

impl StoreView<'_> {
    fn attributes(&self, inode: InodeId) -> Option<StoreAttributes> {
        let Inode { mode, uid, gid, atime, mtime, xattrs, .. } = self.tree.inode(inode)?;
        let foreign = xattrs.iter().filter(|(name, _)| !name.bytes().starts_with(OWN_XATTRS));
        let xattrs = foreign.map(|(name, value)| (name.clone(), value.clone())).collect();
        let (atime, mtime) = (*atime, *mtime);
        Some(StoreAttributes { mode: *mode, owner: (*uid, *gid), atime, mtime, xattrs })
    }

    fn is_held(&self, inode: InodeId) -> bool {
        let is_open = |group: GroupNumber| group <= self.durable;
        self.tree.member(inode).is_some_and(|member| !member.published.is_some_and(is_open))
    }

    /// Returns whether the set of a member is published: it appears with the bytes that the store
    /// has.
    fn is_published(&self, inode: InodeId) -> bool {
        self.tree.member(inode).is_some_and(|member| member.published.is_some())
    }

    /// Returns whether a move changes what is at a place, or its path.
    fn is_moved_by(&self, place: &TreePlace, moving: &MovingDirectory) -> bool {
        let is_end = *place == moving.to
            || self.tree.wanted(place) == Some(moving.inode)
            || self.tree.stored_places(moving.inode).any(|from| from == place);
        is_end || self.tree.is_stored_below(place.directory, moving.inode)
    }

    /// Returns whether a place is to have something and nothing but its bytes is missing for that.
    fn is_open_to(&self, place: &TreePlace, inode: InodeId) -> bool {
        self.tree.name_lag(place).is_some_and(|name| {
            let has_directory =
                name.stored.is_some_and(|there| self.tree.is_store_directory(there));
            name.changed <= self.durable && !has_directory && !self.is_held(inode)
        })
    }
}

impl StoreDrain {
    fn may_have_something(&self, place: &TreePlace) -> bool {
        self.former.contains_key(place) || self.unsure.contains_key(place)
    }

    fn is_busy(&self, place: &TreePlace) -> bool {
        self.busy_places.contains(place) || self.retry_places.contains_key(place)
    }

    fn is_busy_inode(&self, inode: InodeId) -> bool {
        self.busy_inodes.contains(&inode) || self.retry_inodes.contains_key(&inode)
    }

    /// Returns whether a directory is in the store where the tree has it, and so are those above it.
    pub(super) fn is_settled(&self, tree: &Tree, directory: InodeId) -> bool {
        let mut at = directory;
        // No path has more steps than there are directories.
        for _ in 0..tree.count() {
            if at == InodeId::ROOT {
                return true;
            }
            let Some(place) = tree.places(at).next() else { return false };
            if tree.name_lag(place).is_some() || self.busy_places.contains(place) {
                return false;
            }
            at = place.directory;
        }
        false
    }

    /// Looks at the next differences of a pass, and makes steps and records ready. Returns the pass
    /// if it is not over.
    pub(super) fn look(
        &mut self,
        view: &StoreView<'_>,
        policy: &dyn Fn(&Tree, InodeId) -> DrainPolicy,
        mut scan: LagScan,
    ) -> Option<LagScan> {
        if scan.is_at_start() {
            self.publish_ready(view);
        }
        self.look_at_directories(view, policy, &mut scan);
        self.look_at_attributes(view, &mut scan);
        self.queue_copies(view, policy, &mut scan);
        self.look_at_objects(view, &mut scan);
        (!scan.is_over()).then_some(scan)
    }

    /// Looks for a directory that moves, and at names as far as that lets them.
    fn look_at_directories(
        &mut self,
        view: &StoreView<'_>,
        policy: &dyn Fn(&Tree, InodeId) -> DrainPolicy,
        scan: &mut LagScan,
    ) {
        if let Some(moving) = &view.tree.lag.moving {
            self.carry_on(view, moving);
            if self.retry_places.contains_key(&moving.to) {
                // It may fail for ever.
                self.look_at_names(view, policy, Some(moving), scan);
            } else {
                scan.names.end();
            }
        } else if self.moving.is_some() {
            // Until that is durable, paths can be the old ones again.
            scan.names.end();
        } else if let Some((from, inode, to)) = self.next_move(view, scan) {
            // Nothing else begins until it can move.
            scan.names.end();
            self.wanted_move = (self.naming > 0).then_some(from);
            if self.wanted_move.is_none() {
                let record = Flight {
                    place: Some(to.clone()),
                    inode: Some(inode),
                    uses_path: true,
                    ..Flight::new(FlightKind::MoveRecord)
                };
                self.hold(&record);
                self.record(TreeChange::Moving { inode, to }, Some(record));
            }
        } else {
            self.wanted_move = None;
            self.look_at_names(view, policy, None, scan);
        }
    }

    /// Records that sets are published whose members are all in objects.
    fn publish_ready(&mut self, view: &StoreView<'_>) {
        let mut sets: BTreeMap<u64, bool> = BTreeMap::new();
        for (inode, member) in view.tree.members().filter(|(_, member)| member.published.is_none())
        {
            let is_ready = sets.entry(member.set).or_insert(true);
            *is_ready = *is_ready && self.is_member_ready(view, inode);
        }
        sets.retain(|set, is_ready| *is_ready && !self.gathering.contains(set));
        for set in sets.into_keys() {
            let change = TreeChange::Published { set };
            if !self.records.iter().any(|record| record.change == change) {
                self.record(change, None);
            }
        }
    }

    fn is_member_ready(&self, view: &StoreView<'_>, inode: InodeId) -> bool {
        let has_names = view
            .tree
            .places(inode)
            .all(|place| view.tree.name_lag(place).is_none_or(|name| name.changed <= view.durable));
        let is_nameless = view.tree.inode(inode).is_none_or(|inode| inode.links == 0);
        is_nameless || (has_names && self.is_whole(view, inode))
    }

    /// Returns whether the store has the newest bytes of an inode and its attributes.
    fn is_whole(&self, view: &StoreView<'_>, inode: InodeId) -> bool {
        view.tree.inode(inode).is_some_and(|found| found.has_object)
            && view.tree.content(inode).is_none_or(|file| file.drained() == file.version())
            && view.tree.node_lag(inode).is_none()
            && !self.is_busy_inode(inode)
    }

    /// Returns where a directory is that has to move, and where to.
    fn next_move(
        &self,
        view: &StoreView<'_>,
        scan: &LagScan,
    ) -> Option<(TreePlace, InodeId, TreePlace)> {
        let names = &view.tree.lag.names;
        let wanted = self.wanted_move.iter().filter_map(|place| names.get_key_value(place));
        let mut places = wanted.chain(scan.names.part(names, self.config.look));
        places.find_map(|(place, name)| {
            let (inode, to) = self.move_from(view, place, name)?;
            Some((place.clone(), inode, to))
        })
    }

    /// Returns the directory that has to leave a place, and where to.
    fn move_from(
        &self,
        view: &StoreView<'_>,
        place: &TreePlace,
        name: &NameLag,
    ) -> Option<(InodeId, TreePlace)> {
        let inode = name.stored?;
        let found = view.tree.inode(inode)?;
        let is_directory = matches!(found.kind, InodeKind::Directory { .. });
        let can = is_directory
            && found.links > 0
            && name.changed <= view.durable
            && view.tree.wanted(place) != name.stored
            && !self.is_busy(place)
            && !self.is_busy_inode(inode);
        let wanted = view.tree.places(inode).next().filter(|_| can)?;
        let is_free = view.is_open_to(wanted, inode)
            && !self.is_busy(wanted)
            && self.is_settled(view.tree, wanted.directory);
        if is_free {
            return Some((inode, wanted.clone()));
        }
        let aside = TreePlace::object(inode);
        (!place.is_object() && !self.is_busy(&aside)).then_some((inode, aside))
    }

    /// Moves the directory that a record says to move.
    fn carry_on(&mut self, view: &StoreView<'_>, moving: &MovingDirectory) {
        let MovingDirectory { inode, to, group } = moving;
        if *group > view.durable || self.is_busy(to) || self.is_busy_inode(*inode) {
            return;
        }
        let from = view.tree.stored_places(*inode).next();
        let Some((from, path)) = from.and_then(|from| Some((from, view.tree.store_path(from)?)))
        else {
            return;
        };
        let Some(to_path) = view.tree.store_path(to) else { return };
        let directories = Vec::from([from.directory, to.directory]);
        let change = TreeChange::Stored { place: to.clone(), inode: Some(*inode) };
        let step = StoreStep::MoveDirectory { from: path, to: to_path };
        self.moving = Some(*inode);
        let (place, inode) = (Some(to.clone()), Some(*inode));
        let kind = FlightKind::Name { change, directories, leaves: None };
        self.make_ready(step, Flight { kind, uses_path: true, place, inode });
    }

    fn make_ready(&mut self, step: StoreStep, flight: Flight) {
        self.hold(&flight);
        self.ready.push_back((step, flight));
    }

    /// Looks at names: first what comes, then what goes, so that a file keeps a name if it can. While
    /// a directory is perhaps moved and perhaps not, only those that do not lie in it.
    fn look_at_names(
        &mut self,
        view: &StoreView<'_>,
        policy: &dyn Fn(&Tree, InodeId) -> DrainPolicy,
        moving: Option<&MovingDirectory>,
        scan: &mut LagScan,
    ) {
        let mut wanted_bytes = Vec::new();
        let names = &view.tree.lag.names;
        for has_something in [true, false] {
            for (place, name) in scan.names.part(names, self.config.look) {
                if self.ready.len() + self.records.len() >= BATCH {
                    return self.queue_all(view, policy, wanted_bytes);
                }
                let wanted = view.tree.wanted(place);
                // A copy that is under way relies on the names that its object has.
                let is_copied = name.stored.is_some_and(|stored| self.is_busy_inode(stored));
                let is_uncertain = moving.is_some_and(|moving| view.is_moved_by(place, moving));
                let is_blocked =
                    name.changed > view.durable || self.is_busy(place) || is_copied || is_uncertain;
                // A directory leaves before something else comes.
                let comes = wanted.filter(|wanted| {
                    let is_directory = |stored| view.tree.is_store_directory(stored);
                    name.stored == Some(*wanted) || !name.stored.is_some_and(is_directory)
                });
                if is_blocked || comes.is_some() != has_something {
                    continue;
                }
                let action = match comes {
                    Some(inode) => self.put(view, place, inode, policy),
                    None => self.take_away(view, place, *name),
                };
                let place = Some(place.clone());
                match action {
                    PlaceAction::Wait => {}
                    PlaceAction::Content(inode) => wanted_bytes.push(inode),
                    PlaceAction::Record(change) => {
                        let flight = Flight { place, ..Flight::new(FlightKind::Record) };
                        self.hold(&flight);
                        self.record(change, Some(flight));
                    }
                    PlaceAction::Step(step, change, inode) => {
                        place.iter().for_each(|place| {
                            self.former
                                .entry(place.clone())
                                .and_modify(|is_acted_on| *is_acted_on = true);
                        });
                        let directories = place.iter().map(|place| place.directory).collect();
                        let kind = FlightKind::Name { change, directories, leaves: name.stored };
                        self.make_ready(step, Flight { kind, uses_path: true, place, inode });
                    }
                }
            }
        }
        scan.names.advance(names, self.config.look);
        self.queue_all(view, policy, wanted_bytes);
    }

    /// Decides how `inode` comes to a place.
    fn put(
        &self,
        view: &StoreView<'_>,
        place: &TreePlace,
        inode: InodeId,
        policy: &dyn Fn(&Tree, InodeId) -> DrainPolicy,
    ) -> PlaceAction {
        let Some(found) = view.tree.inode(inode) else { return PlaceAction::Wait };
        let is_directory = matches!(found.kind, InodeKind::Directory { .. });
        let is_published = view.is_published(inode);
        if !is_directory && !is_published && !self.is_whole(view, inode) {
            return PlaceAction::Content(inode);
        }
        let is_blocked = view.is_held(inode)
            || self.is_busy_inode(inode)
            || !self.is_settled(view.tree, place.directory)
            || (self.open.contains(&inode) && !is_published)
            || (is_directory && view.tree.stored_places(inode).any(|other| other != place));
        let Some(to) = view.tree.store_path(place).filter(|_| !is_blocked) else {
            return PlaceAction::Wait;
        };
        let is_hidden = !is_directory
            && !is_published
            && view.tree.stored_places(inode).next().is_none()
            && policy(view.tree, inode).wish != DrainWish::All;
        if is_hidden {
            return self.keep_hidden(view, place, to);
        }
        let step = match is_directory {
            true => StoreStep::MakeDirectory { at: to },
            false => StoreStep::Link { inode, to },
        };
        let stored = TreeChange::Stored { place: place.clone(), inode: Some(inode) };
        PlaceAction::Step(step, stored, Some(inode))
    }

    /// Decides what becomes of a place whose file is not to be seen yet.
    fn keep_hidden(&self, view: &StoreView<'_>, place: &TreePlace, at: StorePath) -> PlaceAction {
        let is_empty = view.tree.name_lag(place).is_some_and(|name| name.stored.is_none());
        if !is_empty || !self.may_have_something(place) {
            return PlaceAction::Wait;
        }
        // It was to be seen in an earlier life, and may have been put there.
        let change = TreeChange::Stored { place: place.clone(), inode: None };
        PlaceAction::Step(StoreStep::Unlink { at }, change, None)
    }

    /// Decides how a place becomes empty.
    fn take_away(&self, view: &StoreView<'_>, place: &TreePlace, name: NameLag) -> PlaceAction {
        let change = TreeChange::Stored { place: place.clone(), inode: None };
        let path = view.tree.store_path(place);
        let Some(at) = path.filter(|_| name.stored.is_some() || self.may_have_something(place))
        else {
            return PlaceAction::Record(change);
        };
        let Some(stored) = name.stored else {
            return PlaceAction::Step(StoreStep::Unlink { at }, change, None);
        };
        let is_alive = view.tree.inode(stored).is_some_and(|inode| inode.links > 0);
        if view.tree.is_store_directory(stored) {
            if is_alive || !view.tree.has_all_names(stored) {
                return PlaceAction::Wait;
            }
            return PlaceAction::Step(StoreStep::RemoveDirectory { at }, change, Some(stored));
        }
        // It keeps this name until it has another one.
        let comes = view.tree.places(stored).any(|other| {
            view.is_open_to(other, stored) && self.is_settled(view.tree, other.directory)
        });
        if comes {
            return PlaceAction::Wait;
        }
        PlaceAction::Step(StoreStep::Unlink { at }, change, None)
    }

    fn look_at_attributes(&mut self, view: &StoreView<'_>, scan: &mut LagScan) {
        let nodes = &view.tree.lag.nodes;
        for (inode, group) in scan.nodes.part(nodes, self.config.look) {
            if self.ready.len() >= BATCH {
                return;
            }
            if *group <= view.durable
                && !self.is_busy_inode(*inode)
                && let Some((step, uses_path)) = self.settle(view, *inode)
            {
                let kind = FlightKind::Settle { group: *group };
                let inode = Some(*inode);
                self.make_ready(step, Flight { kind, uses_path, place: None, inode });
            }
        }
        scan.nodes.advance(nodes, self.config.look);
    }

    fn settle(&self, view: &StoreView<'_>, inode: InodeId) -> Option<(StoreStep, bool)> {
        let found = view.tree.inode(inode).filter(|found| found.links > 0)?;
        let attributes = view.attributes(inode)?;
        let node = match &found.kind {
            InodeKind::Directory { .. } => {
                let is_quiet = self.is_settled(view.tree, inode)
                    && view.tree.has_all_names(inode)
                    && view.tree.lag.moving.is_none()
                    && self.moving.is_none()
                    && self.wanted_move.is_none();
                let at = view.tree.directory_path(inode).filter(|_| is_quiet)?;
                return Some((StoreStep::Settle { at, attributes }, true));
            }
            // A copy sets them too.
            InodeKind::File(content) if content.drained() != content.version() => return None,
            InodeKind::File(_) if !found.has_object => return None,
            InodeKind::File(_) => None,
            InodeKind::Symlink(target) => Some(NodeKind::Symlink(target.clone())),
            InodeKind::Special(special) => Some(NodeKind::Special(*special)),
        };
        let step = match node.filter(|_| !found.has_object) {
            Some(node) => StoreStep::Make { inode, node, attributes },
            None => {
                let at = view.tree.store_path(&TreePlace::object(inode))?;
                StoreStep::Settle { at, attributes }
            }
        };
        Some((step, false))
    }

    /// Puts files that can be copied into the order.
    fn queue_copies(
        &mut self,
        view: &StoreView<'_>,
        policy: &dyn Fn(&Tree, InodeId) -> DrainPolicy,
        scan: &mut LagScan,
    ) {
        let waiting = scan.copies.part_of(&self.unqueued, self.config.look);
        scan.copies.advance_to(waiting.last(), waiting.len(), self.config.look);
        self.queue_all(view, policy, waiting);
    }

    fn queue_all(
        &mut self,
        view: &StoreView<'_>,
        policy: &dyn Fn(&Tree, InodeId) -> DrainPolicy,
        inodes: Vec<InodeId>,
    ) {
        for inode in inodes {
            if self.fresh.contains(inode) {
                self.unqueued.remove(&inode);
                continue;
            }
            self.unqueued.insert(inode);
            self.note_left_out(inode, None);
            let Some(content) = view.tree.content(inode) else {
                self.unqueued.remove(&inode);
                self.versions.remove(&inode);
                continue;
            };
            if !has_news(view.tree, inode) {
                self.unqueued.remove(&inode);
                self.versions.remove(&inode);
                continue;
            }
            if self.queued.contains(&inode) || self.copy_version(view, inode).is_none() {
                continue;
            }
            let DrainPolicy { class, deadline, due, wish } = policy(view.tree, inode);
            if wish == DrainWish::Nothing {
                self.note_left_out(inode, view.tree.log_charge(inode));
                continue;
            }
            self.unqueued.remove(&inode);
            self.queued.insert(inode);
            let (version, left) = (content.version(), content.logged());
            match due {
                Some(at) => self.due.insert(inode, DueFile { at, left }),
                None => self.due.remove(&inode),
            };
            let size = left.min(self.config.pass.0);
            let owner = view.tree.inode(inode).map_or(0, |inode| inode.uid);
            let job = DrainJob { inode, version, size, owner, class, deadline };
            self.order.push(view.now, STORE, job);
        }
    }

    /// Notes what a file takes of the log that is left out; nothing, if it is not left out.
    fn note_left_out(&mut self, inode: InodeId, charge: Option<(u32, u64)>) {
        let before = match charge {
            Some(charge) => self.left_out.insert(inode, charge),
            None => self.left_out.remove(&inode),
        };
        self.left_out_usage.change(before, charge);
    }

    /// Returns the version that a file can be copied in, and its size.
    fn copy_version(&self, view: &StoreView<'_>, inode: InodeId) -> Option<(u64, u64)> {
        let content = view.tree.content(inode)?;
        let found = view.tree.inode(inode)?;
        // A name of it that goes makes it look unnamed before that is durable.
        let is_going = || view.tree.stored_places(inode).any(|place| self.is_busy(place));
        let is_blocked =
            self.is_busy_inode(inode) || view.is_published(inode) || found.links == 0 || is_going();
        if is_blocked {
            return None;
        }
        let (version, size) = match view.tree.node_lag(inode) {
            Some(group) if group > view.durable => *self.versions.get(&inode)?,
            _ => (content.version(), content.size()),
        };
        let is_news = content.drained() < version || (version == 0 && !found.has_object);
        let is_sound = version >= content.shortened() && size <= content.size();
        (is_news && is_sound).then_some((version, size))
    }

    /// Gives the next copy.
    pub(super) fn next_copy(&mut self, view: &StoreView<'_>) -> Option<(StoreStep, Flight)> {
        for _ in 0..self.queued.len() {
            let (_, job) = self.order.begin(view.now)?;
            self.queued.remove(&job.inode);
            if let Some((step, flight)) = self.copy(view, job) {
                self.hold(&flight);
                return Some((step, flight));
            }
            self.order.end(view.now, job.inode, DrainEnd::Superseded);
            self.unqueued.insert(job.inode);
        }
        None
    }

    fn copy(&mut self, view: &StoreView<'_>, job: DrainJob) -> Option<(StoreStep, Flight)> {
        let inode = job.inode;
        let (version, size) = self.copy_version(view, inode)?;
        let content = view.tree.content(inode)?;
        let limit = self.config.pass.0;
        let (version, size, pieces, bodies) = pass(view, content, version, size, limit)?;
        let is_whole = version == content.version();
        let lag = view.tree.node_lag(inode);
        let settles = lag.filter(|group| is_whole && *group <= view.durable);
        let (attributes, keep) = (view.attributes(inode)?, content.backed().min(size));
        let kind = FlightKind::Copy { job, version, size, settles, bodies };
        let flight = Flight { inode: Some(inode), ..Flight::new(kind) };
        if view.tree.stored_places(inode).next().is_some() || self.may_be_somewhere(inode) {
            self.old.insert(inode);
        }
        let is_named = self.was_tried(inode);
        Some((StoreStep::Copy { inode, is_named, keep, size, pieces, attributes }, flight))
    }

    /// Drops objects that have no names any more.
    fn look_at_objects(&mut self, view: &StoreView<'_>, scan: &mut LagScan) {
        let look = self.config.look;
        let is_durable =
            |(inode, group): (&InodeId, &GroupNumber)| (*group <= view.durable).then_some(*inode);
        let known = &view.tree.lag.dead;
        let is_unknown =
            |inode: &&InodeId| view.tree.inode(**inode).is_none() && !known.contains_key(inode);
        let unknown = self.unrecorded.iter().filter(is_unknown).copied();
        let mut gone: Vec<InodeId> =
            scan.dead.part(known, look).filter_map(is_durable).chain(unknown).collect();
        gone.sort_unstable();
        let mut old = scan.old.part_of(&self.old, look);
        scan.old.advance_to(old.last(), old.len(), look);
        let is_gone = |inode: &InodeId| {
            is_unknown(&inode) && self.unrecorded.contains(inode)
                || known.get_key_value(inode).and_then(is_durable).is_some()
        };
        old.retain(|inode| !is_gone(inode));
        scan.dead.advance(known, look);
        for inode in gone {
            if view.tree.stored_places(inode).next().is_none() {
                self.drop_object(StoreStep::Drop { inode }, inode, FlightKind::Drop);
            }
        }
        for inode in old {
            // A copy that no record knows of may have made another one old.
            let is_done = view.tree.content(inode).is_none_or(|c| c.drained() == c.version());
            if is_done
                && !view.tree.lag.has_lagging_names(inode)
                && self.drop_object(StoreStep::DropOld { inode }, inode, FlightKind::DropOld)
            {
                self.old.remove(&inode);
            }
        }
    }

    fn drop_object(&mut self, step: StoreStep, inode: InodeId, kind: FlightKind) -> bool {
        let can =
            self.ready.len() < BATCH && !self.is_busy_inode(inode) && !self.may_be_somewhere(inode);
        if can {
            self.make_ready(step, Flight { inode: Some(inode), ..Flight::new(kind) });
        }
        can
    }

    /// Gives the sync of what was done to names, when nothing else is to do or much was done.
    pub(super) fn next_sync(&mut self, view: &StoreView<'_>) -> Option<(StoreStep, Flight)> {
        let is_due = self.ready.is_empty() || self.unsynced.len() >= BATCH;
        if self.unsynced.is_empty() || self.is_syncing || !is_due {
            return None;
        }
        self.is_syncing = true;
        let flights = core::mem::take(&mut self.unsynced);
        let mut directories: Vec<InodeId> = Vec::new();
        for flight in &flights {
            if let FlightKind::Name { directories: of_flight, .. } = &flight.kind {
                directories.extend(of_flight);
            }
        }
        directories.sort_unstable();
        directories.dedup();
        let path = |directory| view.tree.directory_path(directory);
        let at = directories.into_iter().filter_map(path).collect();
        Some((StoreStep::SyncDirectories { at }, Flight::new(FlightKind::Sync(flights))))
    }
}

/// Chooses what one pass writes: extents up to `version` in the order in which they were made, up
/// to `limit` bytes. Returns the version and size that the store then has, what is written, and the
/// bodies that have it.
fn pass(
    view: &StoreView<'_>,
    content: &FileContent,
    version: u64,
    size: u64,
    limit: u64,
) -> Option<(u64, u64, Vec<CopyPiece>, Vec<BodyId>)> {
    let extents = content.extents().filter(|(_, extent)| extent.version <= version);
    let mut extents: Vec<(u64, Extent)> = extents.collect();
    extents.sort_unstable_by_key(|(_, extent)| extent.version);
    let (mut bytes, mut last, mut end) = (0, 0, content.backed());
    let (mut pieces, mut bodies) = (Vec::new(), Vec::new());
    for (start, extent) in extents {
        let is_enough = bytes >= limit && extent.version != last && last >= content.shortened();
        if is_enough {
            return Some((last, end.min(content.size()), pieces, bodies));
        }
        let (id, skip) = view.state.readable(extent.body, extent.skip);
        let body = view.state.body(id)?;
        bodies.push(id);
        (last, end) = (extent.version, end.max(extent.end));
        bytes += extent.end - start;
        pieces.push(CopyPiece {
            place: body.place,
            length: body.record.length,
            digest: body.record.digest,
            skip,
            offset: start,
            bytes: (extent.end - start) as u32,
        });
    }
    Some((version, size, pieces, bodies))
}
