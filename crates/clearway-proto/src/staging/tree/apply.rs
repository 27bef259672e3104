//! Makes changes of the tree, whole or not at all.

use alloc::vec::Vec;

use super::content::MovedBytes;
use super::usage::{inode_charge, log_charge};
use super::{
    AttributeSet, BodyId, DroppedBytes, EntryName, FileContent, Inode, InodeKind, LINKS_MAX,
    MODE_BITS, MovingDirectory, NodeKind, SIZE_MAX, TARGET_MAX, Tree, TreeChange, TreeError,
    TreePlace, VALUE_MAX, XATTRS_MAX,
};
use crate::staging::{GroupNumber, InodeId, WallNs};
use alloc::collections::BTreeMap;

/// When a change is made: the time that it leaves, and the group that records it.
#[derive(Clone, Copy, Debug)]
struct ChangeMark {
    time: WallNs,
    group: GroupNumber,
}

/// Returns the inode that a change may make or remove, or whose bytes in the log, owner or number of
/// names it may change.
fn counted_inode(tree: &Tree, change: &TreeChange) -> Option<InodeId> {
    match change {
        TreeChange::Unlink { parent, name } => tree.lookup(*parent, name).ok(),
        // What had the new name.
        TreeChange::Rename { to, new_name, .. } => tree.lookup(*to, new_name).ok(),
        TreeChange::Link { inode, .. }
        | TreeChange::Create { inode, .. }
        | TreeChange::Write { inode, .. }
        | TreeChange::Truncate { inode, .. }
        | TreeChange::Drained { inode, .. }
        | TreeChange::Attributes { inode, .. }
        | TreeChange::Forget { inode } => Some(*inode),
        _ => None,
    }
}

impl Tree {
    /// Makes `change` at `time`; `body` holds the bytes of a write. Bytes of bodies that no file
    /// has any more are added to `dropped`.
    ///
    /// # Errors
    /// Why it cannot be made; the tree is as before.
    pub fn apply(
        &mut self,
        change: &TreeChange,
        body: BodyId,
        time: WallNs,
        dropped: &mut Vec<DroppedBytes>,
    ) -> Result<(), TreeError> {
        let counted = counted_inode(self, change);
        let charges_of = |tree: &Self| {
            let inode = counted.and_then(|inode| tree.inode(inode));
            (inode.and_then(log_charge), inode.map(inode_charge))
        };
        let before = charges_of(self);
        let outcome = self.apply_uncounted(change, body, time, dropped);
        let after = charges_of(self);
        self.usage.change(before.0, after.0);
        self.inode_usage.change(before.1, after.1);
        outcome
    }

    fn apply_uncounted(
        &mut self,
        change: &TreeChange,
        body: BodyId,
        time: WallNs,
        dropped: &mut Vec<DroppedBytes>,
    ) -> Result<(), TreeError> {
        let mark = ChangeMark { time, group: body.group };
        match change {
            TreeChange::Write { inode, offset, length, .. } => {
                let end = offset.checked_add(u64::from(*length)).filter(|end| *end <= SIZE_MAX);
                end.ok_or(TreeError::TooLarge)?;
                self.content_mut(*inode, mark)?.write(*offset, *length, body, dropped);
                Ok(())
            }
            TreeChange::Relocate { inode, offset, length, body: from, skip, .. } => {
                let (offset, length, skip) = (*offset, *length, *skip);
                let moved = MovedBytes { offset, length, body: *from, skip, to: body };
                let InodeKind::File(content) = &mut self.inode_mut(*inode)?.kind else {
                    return Err(TreeError::Invalid);
                };
                content.relocate(moved, dropped);
                Ok(())
            }
            TreeChange::Create { .. } => self.create(change, mark),
            TreeChange::Link { inode, parent, name } => self.link(*inode, *parent, name, mark),
            TreeChange::Unlink { parent, name } => self.unlink(*parent, name, mark),
            TreeChange::RemoveDirectory { parent, name } => {
                self.remove_directory(*parent, name, mark)
            }
            TreeChange::Rename { from, name, to, new_name } => {
                self.rename((*from, name), (*to, new_name), mark)
            }
            TreeChange::Attributes { inode, set } => self.set(*inode, *set, mark),
            TreeChange::SetXattr { inode: id, name, value } => {
                let inode = self.inode_mut(*id)?;
                if value.len() > VALUE_MAX {
                    return Err(TreeError::NameTooLong);
                }
                if inode.xattrs.len() >= XATTRS_MAX && !inode.xattrs.contains_key(name) {
                    return Err(TreeError::Full);
                }
                inode.xattrs.insert(name.clone(), value.clone());
                inode.ctime = mark.time;
                self.lag.touch_node(*id, mark.group);
                Ok(())
            }
            TreeChange::UnsetXattr { inode: id, name } => {
                let inode = self.inode_mut(*id)?;
                inode.xattrs.remove(name).ok_or(TreeError::NoAttribute)?;
                inode.ctime = mark.time;
                self.lag.touch_node(*id, mark.group);
                Ok(())
            }
            TreeChange::Truncate { inode, size } => {
                if *size > SIZE_MAX {
                    return Err(TreeError::TooLarge);
                }
                self.content_mut(*inode, mark)?.truncate(*size, dropped);
                Ok(())
            }
            TreeChange::Forget { inode } => self.forget(*inode, dropped, mark),
            other => self.apply_to_lag(other, mark, dropped),
        }
    }

    /// Makes a change of what the backing store lacks.
    fn apply_to_lag(
        &mut self,
        change: &TreeChange,
        mark: ChangeMark,
        dropped: &mut Vec<DroppedBytes>,
    ) -> Result<(), TreeError> {
        match change {
            TreeChange::Drained { inode, version, size } => {
                let InodeKind::File(content) = &mut self.inode_mut(*inode)?.kind else {
                    return Err(TreeError::Invalid);
                };
                content.drain(*version, *size, dropped)?;
                self.note_drained(*inode, mark.group);
                Ok(())
            }
            TreeChange::Stored { place, inode } => {
                self.note_stored(place, *inode, mark.group);
                Ok(())
            }
            TreeChange::Moving { inode, to } => {
                let (inode, to) = (*inode, to.clone());
                self.note_moving(MovingDirectory { inode, to, group: mark.group })
            }
            TreeChange::Settled { inode, group } => self.note_settled(*inode, *group),
            TreeChange::Dropped { inode } => self.note_dropped(*inode),
            TreeChange::Hold { inode, set } => self.hold(*inode, *set),
            TreeChange::Published { set } => self.publish(*set, mark.group),
            TreeChange::Release { set } => self.release_set(*set, mark.group),
            _ => Err(TreeError::Invalid),
        }
    }

    fn inode_mut(&mut self, inode: InodeId) -> Result<&mut Inode, TreeError> {
        self.inodes.get_mut(&inode).ok_or(TreeError::NotFound)
    }

    /// Returns the content of a file that changes at `time`.
    fn content_mut(
        &mut self,
        id: InodeId,
        mark: ChangeMark,
    ) -> Result<&mut FileContent, TreeError> {
        let inode = self.inodes.get_mut(&id).ok_or(TreeError::NotFound)?;
        match &mut inode.kind {
            InodeKind::File(content) => {
                (inode.mtime, inode.ctime) = (mark.time, mark.time);
                self.lag.touch_node(id, mark.group);
                Ok(content)
            }
            InodeKind::Directory { .. } => Err(TreeError::IsDirectory),
            InodeKind::Symlink(_) | InodeKind::Special(_) => Err(TreeError::Invalid),
        }
    }

    /// Gives an entry of a directory to `inode`, or removes it.
    fn set_entry(
        &mut self,
        parent: InodeId,
        name: &EntryName,
        inode: Option<InodeId>,
        mark: ChangeMark,
    ) {
        let Some(directory) = self.inodes.get_mut(&parent) else { return };
        let InodeKind::Directory { entries, .. } = &mut directory.kind else { return };
        let before = match inode {
            Some(inode) => entries.insert(name.clone(), inode),
            None => entries.remove(name),
        };
        (directory.mtime, directory.ctime) = (mark.time, mark.time);
        self.lag.touch_node(parent, mark.group);
        let place = TreePlace { directory: parent, name: name.clone() };
        self.move_place(&place, before, inode, mark.group);
    }

    /// Changes the number of links of `inode` by `by`.
    fn relink(&mut self, inode: InodeId, by: i32, mark: ChangeMark) {
        if let Some(inode) = self.inodes.get_mut(&inode) {
            inode.links = inode.links.saturating_add_signed(by);
            inode.ctime = mark.time;
        }
    }

    /// Checks that `parent` is a directory that can get an entry of this name.
    fn check_free(&self, parent: InodeId, name: &EntryName) -> Result<(), TreeError> {
        match self.lookup(parent, name) {
            Ok(_) => Err(TreeError::Exists),
            // Nothing is made in a directory that has no name any more.
            Err(TreeError::NotFound) if self.inode(parent).is_some_and(|at| at.links > 0) => Ok(()),
            Err(why) => Err(why),
        }
    }

    fn is_directory(&self, inode: InodeId) -> bool {
        self.inode(inode).is_some_and(|inode| matches!(inode.kind, InodeKind::Directory { .. }))
    }

    fn create(&mut self, change: &TreeChange, mark: ChangeMark) -> Result<(), TreeError> {
        let TreeChange::Create { inode, parent, name, node, mode, uid, gid } = change else {
            return Err(TreeError::Invalid);
        };
        self.check_free(*parent, name)?;
        if *inode < self.next_inode || inode.0 == u64::MAX {
            return Err(TreeError::Invalid);
        }
        if self.inodes.len() >= self.inodes_max as usize {
            return Err(TreeError::Full);
        }
        let (kind, links) = match node {
            NodeKind::File => (InodeKind::File(FileContent::default()), 1),
            NodeKind::Directory => {
                (InodeKind::Directory { parent: *parent, entries: BTreeMap::new() }, 2)
            }
            NodeKind::Symlink(target) if target.len() <= TARGET_MAX => {
                (InodeKind::Symlink(target.clone()), 1)
            }
            NodeKind::Symlink(_) => return Err(TreeError::NameTooLong),
            NodeKind::Special(special) => (InodeKind::Special(*special), 1),
        };
        let made = Inode {
            kind,
            mode: mode & MODE_BITS,
            uid: *uid,
            gid: *gid,
            links,
            atime: mark.time,
            mtime: mark.time,
            ctime: mark.time,
            xattrs: BTreeMap::new(),
            has_object: false,
        };
        self.inodes.insert(*inode, made);
        self.lag.touch_node(*inode, mark.group);
        self.next_inode = InodeId(inode.0 + 1);
        self.set_entry(*parent, name, Some(*inode), mark);
        if *node == NodeKind::Directory {
            self.relink(*parent, 1, mark);
        }
        Ok(())
    }

    fn link(
        &mut self,
        inode: InodeId,
        parent: InodeId,
        name: &EntryName,
        mark: ChangeMark,
    ) -> Result<(), TreeError> {
        self.check_free(parent, name)?;
        let linked = self.inode(inode).ok_or(TreeError::NotFound)?;
        match linked.kind {
            InodeKind::Directory { .. } => return Err(TreeError::IsDirectory),
            // What has no name any more gets none again.
            _ if linked.links == 0 => return Err(TreeError::NotFound),
            _ if linked.links >= LINKS_MAX => return Err(TreeError::TooManyLinks),
            _ => {}
        }
        self.relink(inode, 1, mark);
        self.set_entry(parent, name, Some(inode), mark);
        Ok(())
    }

    fn unlink(
        &mut self,
        parent: InodeId,
        name: &EntryName,
        mark: ChangeMark,
    ) -> Result<(), TreeError> {
        let inode = self.lookup(parent, name)?;
        if self.is_directory(inode) {
            return Err(TreeError::IsDirectory);
        }
        self.set_entry(parent, name, None, mark);
        self.relink(inode, -1, mark);
        Ok(())
    }

    fn remove_directory(
        &mut self,
        parent: InodeId,
        name: &EntryName,
        mark: ChangeMark,
    ) -> Result<(), TreeError> {
        let inode = self.lookup(parent, name)?;
        if !self.entries(inode)?.is_empty() {
            return Err(TreeError::NotEmpty);
        }
        self.set_entry(parent, name, None, mark);
        self.relink(parent, -1, mark);
        self.relink(inode, -2, mark);
        Ok(())
    }

    fn rename(
        &mut self,
        (from, name): (InodeId, &EntryName),
        (to, new_name): (InodeId, &EntryName),
        mark: ChangeMark,
    ) -> Result<(), TreeError> {
        let moved = self.lookup(from, name)?;
        let is_directory = self.is_directory(moved);
        if is_directory && self.is_inside(to, moved) {
            return Err(TreeError::Invalid);
        }
        match self.lookup(to, new_name) {
            // Two names of one file: POSIX asks for nothing to be done.
            Ok(same) if same == moved => return Ok(()),
            Ok(replaced) => match (is_directory, self.is_directory(replaced)) {
                (true, false) => return Err(TreeError::NotDirectory),
                (false, true) => return Err(TreeError::IsDirectory),
                (true, true) => self.remove_directory(to, new_name, mark)?,
                (false, false) => self.unlink(to, new_name, mark)?,
            },
            Err(TreeError::NotFound) => self.check_free(to, new_name)?,
            Err(why) => return Err(why),
        }
        self.set_entry(from, name, None, mark);
        self.set_entry(to, new_name, Some(moved), mark);
        self.relink(moved, 0, mark);
        if is_directory && from != to {
            self.relink(from, -1, mark);
            self.relink(to, 1, mark);
            if let Some(Inode { kind: InodeKind::Directory { parent, .. }, .. }) =
                self.inodes.get_mut(&moved)
            {
                *parent = to;
            }
        }
        Ok(())
    }

    /// Returns whether `inode` is `directory` or lies in it, at whatever depth.
    fn is_inside(&self, inode: InodeId, directory: InodeId) -> bool {
        let mut at = inode;
        // No path is longer than there are inodes.
        for _ in 0..self.inodes.len() {
            if at == directory {
                return true;
            }
            match self.inode(at).map(|inode| &inode.kind) {
                Some(InodeKind::Directory { parent, .. }) if *parent != at => at = *parent,
                _ => return false,
            }
        }
        false
    }

    fn set(&mut self, id: InodeId, set: AttributeSet, mark: ChangeMark) -> Result<(), TreeError> {
        let inode = self.inode_mut(id)?;
        if let Some(mode) = set.mode {
            inode.mode = mode & MODE_BITS;
        }
        if let Some((uid, gid)) = set.owner {
            (inode.uid, inode.gid) = (uid, gid);
        }
        if let Some(mtime) = set.mtime {
            inode.mtime = mtime;
        }
        if let Some(atime) = set.atime {
            inode.atime = atime;
        }
        inode.ctime = mark.time;
        self.lag.touch_node(id, mark.group);
        Ok(())
    }

    fn forget(
        &mut self,
        inode: InodeId,
        dropped: &mut Vec<DroppedBytes>,
        mark: ChangeMark,
    ) -> Result<(), TreeError> {
        if self.inode(inode).ok_or(TreeError::NotFound)?.links > 0 {
            return Err(TreeError::Exists);
        }
        self.forget_lag(inode, mark.group);
        if let Some(Inode { kind: InodeKind::File(mut content), .. }) = self.inodes.remove(&inode) {
            content.clear(dropped);
        }
        Ok(())
    }
}
