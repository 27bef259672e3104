//! Does steps of a drain on a real store.
//!
//! # Model
//! Each step first reads the present state, so it can be repeated after it was done, or partly
//! done. If an entry that is not ours (`place.rs`) has the name that a step needs, the step moves
//! the entry to a free name in the same directory.
//!
//! # Invariants
//! I1. No entry that another program made is removed, followed or written to.
//! I2. A name of ours that gets another object has the old or the new object at any time.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use clearway_proto::staging::{
    InodeId, NodeKind, SpecialKind, SpecialNode, StepEnd, StoreAttributes, StorePath, StoreStep,
    StrangerFate,
};
use clearway_proto::wire::Fault;
use rustix::fs::{self, AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use super::access::widen;
use super::attributes;
use super::bodies::LogBodies;
use super::copy::FileCopy;
use super::drain_pace::DrainPace;
use super::owner::StoreOwner;
use super::place::{
    NO_STORE, OpenStore, StorePlace, StoreUsage, file_type, is_own, look, object_name,
    parse_object, parse_old, sync_directory,
};

/// The most names tried for what is in the way, and the most tries of a step.
const TRIES_MAX: u32 = 10_000;
/// How often a step is tried that has no permission: another one may end and take it back.
const ACCESS_MAX: u32 = 3;
/// Bytes of a name.
const NAME_MAX: usize = 255;
/// What another program made stays where it is.
const STAYS: StepEnd = StepEnd::DoneWithStranger(StrangerFate::Stays);

/// A store and the log that is drained into it.
#[derive(Debug)]
pub(super) struct StepRunner {
    pub(super) place: StorePlace,
    bodies: LogBodies,
    /// Bounds the rate of copies.
    pub(super) pace: Option<DrainPace>,
}

/// What is at the place of a name that comes.
enum Way {
    /// Nothing.
    Free,
    /// A name of an object.
    Ours,
}

impl StepRunner {
    /// Creates one for the steps of the log in `log`, whose mark the store has if it has an `owner`.
    pub(super) fn new(store: &Path, log: &Path, owner: Option<StoreOwner>) -> Self {
        let place = StorePlace::new(store, owner, StoreUsage::Change);
        Self { place, bodies: LogBodies::new(log), pace: None }
    }

    /// Does a step. `progress` is called between parts of it.
    pub(super) fn carry_out(&self, step: &StoreStep, progress: &dyn Fn()) -> StepEnd {
        let opened = match step {
            StoreStep::Sweep { .. } => self.place.prepare(),
            _ => self.place.open(),
        };
        let store = match opened {
            Ok(store) => store,
            Err(why) => return end_of(why),
        };
        let end = self.carry_out_in(&store, step, progress);
        // A store that was moved meanwhile has what was done, but not at its path.
        if matches!(end, StepEnd::Done | StepEnd::DoneWithStranger(_))
            && !self.place.is_at_path(&store)
        {
            return StepEnd::Absent;
        }
        end
    }

    fn carry_out_in(&self, store: &OpenStore, step: &StoreStep, progress: &dyn Fn()) -> StepEnd {
        let mut outcome = self.change(store, step, progress);
        for _ in 0..ACCESS_MAX {
            if outcome != Err(Errno::ACCESS) {
                break;
            }
            let wide = widen(store, step);
            outcome = self.change(store, step, progress);
            drop(wide);
        }
        if outcome.is_err() {
            store.lock().forget();
        }
        outcome.into_end()
    }

    fn change(
        &self,
        store: &OpenStore,
        step: &StoreStep,
        progress: &dyn Fn(),
    ) -> Result<StepEnd, Errno> {
        let done = match step {
            StoreStep::Sweep { keeps } => return sweep(store, keeps, progress),
            StoreStep::Copy { inode, is_named, keep, size, pieces, attributes } => {
                let (inode, is_named, keep, size) = (*inode, *is_named, *keep, *size);
                let pace = self.pace.as_ref();
                let copy = FileCopy { inode, is_named, keep, size, pieces, attributes, pace };
                copy.carry_out(store, &self.bodies, progress)
            }
            StoreStep::Make { inode, node, attributes } => make(store, *inode, node, attributes),
            StoreStep::Settle { at, attributes } => settle(store, at, attributes),
            StoreStep::Link { inode, to } => return link(store, *inode, to),
            StoreStep::MakeDirectory { at } => return make_directory(store, at),
            StoreStep::MoveDirectory { from, to } => return move_directory(store, from, to),
            StoreStep::Unlink { at } => return take_away(store, at, Target::Any),
            StoreStep::RemoveDirectory { at } => return take_away(store, at, Target::Directory),
            StoreStep::DropOld { inode } => drop_old(store, *inode),
            StoreStep::Drop { inode } => drop_old(store, *inode)
                .and_then(|()| store.lock().remove(store, &object_name(*inode))),
            StoreStep::SyncDirectories { at } => at.iter().try_for_each(|path| {
                progress();
                match store.directory(path) {
                    // A directory that is gone has no names.
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
                    directory => sync_directory(directory?),
                }
            }),
        };
        done.map(|()| StepEnd::Done)
    }
}

/// Turns what the system says into the end of a step.
trait IntoEnd {
    fn into_end(self) -> StepEnd;
}

impl IntoEnd for Result<StepEnd, Errno> {
    fn into_end(self) -> StepEnd {
        self.unwrap_or_else(end_of)
    }
}

fn end_of(why: Errno) -> StepEnd {
    match why {
        // Another process changes the store, and does not end.
        Errno::AGAIN => StepEnd::Stuck,
        NO_STORE => StepEnd::Absent,
        why => StepEnd::Failed(fault(why)),
    }
}

/// Returns the fault that an error of the system is.
fn fault(why: Errno) -> Fault {
    match why {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::MLINK => Fault::NoSpace,
        Errno::ACCESS | Errno::PERM | Errno::ROFS => Fault::Denied,
        Errno::NOENT | Errno::STALE | Errno::NOTDIR | Errno::LOOP | Errno::NODEV => Fault::Gone,
        Errno::BADMSG => Fault::Malformed,
        _ => Fault::Io,
    }
}

/// Removes objects that do not stay. Entries that have no name of an object are another program's,
/// and stay.
fn sweep(store: &OpenStore, keeps: &[InodeId], progress: &dyn Fn()) -> Result<StepEnd, Errno> {
    let keeps: BTreeSet<InodeId> = keeps.iter().copied().collect();
    let mut end = StepEnd::Done;
    // Read whole first: a directory that changes meanwhile may list a name twice or not at all.
    let mut names = Vec::new();
    for entry in Dir::read_from(&store.objects)? {
        let name = entry?.file_name().to_owned();
        let is_kept = parse_object(name.to_bytes()).is_some_and(|inode| keeps.contains(&inode));
        if is_kept || matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if is_own(name.to_bytes()) {
            names.push(name);
        } else {
            end = STAYS;
        }
    }
    for name in names {
        progress();
        let Some(found) = look(&store.objects, name.to_bytes())? else { continue };
        if file_type(&found) == FileType::Directory {
            match fs::unlinkat(&store.objects, &name, AtFlags::REMOVEDIR) {
                Err(Errno::NOTEMPTY | Errno::EXIST) => end = STAYS,
                removed => removed?,
            }
            continue;
        }
        let mut index = store.index()?;
        // Names that it has elsewhere are known to be ours by it.
        let has_names = found.st_nlink > u64::from(index.entries(found.st_ino)) as _;
        if has_names && parse_old(name.to_bytes()).is_some() {
            continue;
        }
        match name.to_str() {
            Ok(name) => index.remove(store, name)?,
            Err(_) => fs::unlinkat(&store.objects, &name, AtFlags::empty())?,
        }
    }
    Ok(end)
}

/// Makes an object of what has no bytes.
fn make(
    store: &OpenStore,
    inode: InodeId,
    node: &NodeKind,
    attributes: &StoreAttributes,
) -> Result<(), Errno> {
    let (new, object) = (format!("new-{}", inode.0), object_name(inode));
    {
        let mut index = store.lock();
        index.remove(store, &new)?;
        match node {
            NodeKind::Symlink(target) => fs::symlinkat(&**target, &store.objects, &new)?,
            NodeKind::Special(special) => make_special(store, &new, *special)?,
            NodeKind::File | NodeKind::Directory => return Err(Errno::INVAL),
        }
        let found = look(&store.objects, new.as_bytes())?.ok_or(Errno::NOENT)?;
        index.added(&new, found.st_ino);
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = fs::openat(&store.objects, &new, flags, Mode::empty())?;
    attributes::set(handle.as_fd(), attributes)?;
    store.lock().replace(store, &new, &object)?;
    sync_directory(&store.objects)
}

fn make_special(store: &OpenStore, name: &str, special: SpecialNode) -> Result<(), Errno> {
    let kind = match special.kind {
        SpecialKind::Pipe => FileType::Fifo,
        SpecialKind::Socket => FileType::Socket,
        SpecialKind::Block => FileType::BlockDevice,
        SpecialKind::Character => FileType::CharacterDevice,
    };
    // The kernel writes twelve bits of the major number between two parts of the minor one.
    let (major, minor) = (
        (special.device >> 8) & 0xfff,
        (special.device & 0xff) | ((special.device >> 12) & 0xf_ff00),
    );
    fs::mknodat(&store.objects, name, kind, Mode::RUSR | Mode::WUSR, fs::makedev(major, minor))
}

/// Sets attributes of an object or a directory, and makes them durable.
fn settle(store: &OpenStore, at: &StorePath, attributes: &StoreAttributes) -> Result<(), Errno> {
    let handle = store.handle(at)?;
    let kind = file_type(&fs::fstat(&handle)?);
    let can_open = matches!(kind, FileType::RegularFile | FileType::Directory);
    // Opened before the permissions change.
    let link = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = if can_open { fs::openat(CWD, &*link, flags, Mode::empty()).ok() } else { None };
    attributes::set(handle.as_fd(), attributes)?;
    match file {
        Some(file) => fs::fsync(file),
        // Nothing else reaches what cannot be opened.
        None => fs::syncfs(&store.objects),
    }
}

/// Gives an object a name.
fn link(store: &OpenStore, inode: InodeId, to: &StorePath) -> Result<StepEnd, Errno> {
    let (directory, name) = store.parent(to)?;
    let object = object_name(inode);
    let wanted = look(&store.objects, object.as_bytes())?.ok_or(Errno::NOENT)?;
    let mut end = StepEnd::Done;
    for _ in 0..TRIES_MAX {
        let there = look(&directory, name)?;
        if there.as_ref().is_some_and(|there| is_same(there, &wanted)) {
            return Ok(end);
        }
        if let Way::Ours = make_way(store, &directory, name, there, &mut end)? {
            let link = format!("link-{}", inode.0);
            let mut index = store.lock();
            index.remove(store, &link)?;
            fs::linkat(&store.objects, &object, &store.objects, &link, AtFlags::empty())?;
            fs::renameat(&store.objects, &link, &directory, name)?;
            return Ok(end);
        }
        match fs::linkat(&store.objects, &object, &directory, name, AtFlags::empty()) {
            // Something came meanwhile.
            Err(Errno::EXIST) => {}
            outcome => return outcome.map(|()| end),
        }
    }
    Err(Errno::EXIST)
}

fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

fn make_directory(store: &OpenStore, at: &StorePath) -> Result<StepEnd, Errno> {
    let (directory, name) = store.parent(at)?;
    let mut end = StepEnd::Done;
    for _ in 0..TRIES_MAX {
        let there = look(&directory, name)?;
        if there.as_ref().is_some_and(|there| file_type(there) == FileType::Directory) {
            return Ok(end);
        }
        if let Way::Ours = make_way(store, &directory, name, there, &mut end)? {
            fs::unlinkat(&directory, name, AtFlags::empty())?;
        }
        // Users reach it when it has the permissions that it should have.
        match fs::mkdirat(&directory, name, Mode::RWXU) {
            Err(Errno::EXIST) => {}
            outcome => return outcome.map(|()| end),
        }
    }
    Err(Errno::EXIST)
}

fn move_directory(store: &OpenStore, from: &StorePath, to: &StorePath) -> Result<StepEnd, Errno> {
    let (new, new_name) = store.parent(to)?;
    let (old, old_name) = match store.parent(from) {
        // Somebody took away where it was. To fail for that would keep all other names waiting.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(STAYS),
        parent => parent?,
    };
    let Some(moved) = look(&old, old_name)? else { return Ok(StepEnd::Done) };
    if file_type(&moved) != FileType::Directory {
        return Ok(STAYS);
    }
    let mut end = StepEnd::Done;
    let there = look(&new, new_name)?;
    if let Way::Ours = make_way(store, &new, new_name, there, &mut end)? {
        fs::unlinkat(&new, new_name, AtFlags::empty())?;
    }
    fs::renameat(&old, old_name, &new, new_name)?;
    Ok(end)
}

/// What a step takes away.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Any,
    Directory,
}

fn take_away(store: &OpenStore, at: &StorePath, target: Target) -> Result<StepEnd, Errno> {
    let (directory, name) = match store.parent(at) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(StepEnd::Done),
        parent => parent?,
    };
    let Some(there) = look(&directory, name)? else { return Ok(StepEnd::Done) };
    let removed = if file_type(&there) == FileType::Directory {
        fs::unlinkat(&directory, name, AtFlags::REMOVEDIR)
    } else if target == Target::Any && store.is_object(&there)? {
        fs::unlinkat(&directory, name, AtFlags::empty())
    } else {
        return Ok(STAYS);
    };
    match removed {
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(STAYS),
        Err(Errno::NOENT) => Ok(StepEnd::Done),
        outcome => outcome.map(|()| StepEnd::Done),
    }
}

fn drop_old(store: &OpenStore, inode: InodeId) -> Result<(), Errno> {
    let mut index = store.index()?;
    index.old_names(inode).iter().try_for_each(|name| index.remove(store, name))
}

/// Looks at what is in the way, and renames it if it is not ours.
fn make_way(
    store: &OpenStore,
    directory: &OwnedFd,
    name: &[u8],
    there: Option<Stat>,
    end: &mut StepEnd,
) -> Result<Way, Errno> {
    let Some(there) = there else { return Ok(Way::Free) };
    if file_type(&there) == FileType::Directory {
        match fs::unlinkat(directory, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            removed => return removed.map(|()| Way::Free),
        }
    } else if store.is_object(&there)? {
        return Ok(Way::Ours);
    }
    let suffix = rename_stranger(directory, name)?;
    *end = StepEnd::DoneWithStranger(StrangerFate::Moved(suffix));
    Ok(Way::Free)
}

/// Returns the name that an entry with `name` gets when it is moved out of the way.
pub(crate) fn stranger_name(name: &[u8], number: u32) -> Vec<u8> {
    let suffix = match number {
        1 => ".stranger".to_owned(),
        _ => format!(".stranger-{number}"),
    };
    let kept = name.get(..NAME_MAX - suffix.len()).unwrap_or(name);
    [kept, suffix.as_bytes()].concat()
}

/// Renames what is at a name to a free name; returns the number of its suffix.
fn rename_stranger(directory: &OwnedFd, name: &[u8]) -> Result<u32, Errno> {
    for number in 1..TRIES_MAX {
        let new_name = stranger_name(name, number);
        match fs::renameat_with(directory, name, directory, &*new_name, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => continue,
            // A file system that cannot promise it.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            outcome => return outcome.map(|()| number),
        }
        if look(directory, &new_name)?.is_none() {
            return fs::renameat(directory, name, directory, &*new_name).map(|()| number);
        }
    }
    Err(Errno::EXIST)
}
