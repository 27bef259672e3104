//! Drawn steps on a real directory and on the store that the engine's tests are proved with: both end
//! the same way and are the same afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use clearway_proto::base::{RandomKey, RandomStream};
use clearway_proto::staging::{
    CopyPiece, EntryName, InodeId, NodeKind, SpecialKind, SpecialNode, StepEnd, StoreAttributes,
    StoreBase, StorePath, StoreStep, WallNs,
};
use clearway_proto::wire::Fault;

use self::disk::CrashKind;
use self::store::{OBJECTS, ROOT, StoreKind, StoreNode, TrialStore};
use super::super::OBJECTS_NAME;
use super::super::steps::StepRunner;
use super::{TestLog, path_of};
use crate::testing::TestDirectory;

mod disk {
    /// What the model's crashes are.
    #[derive(Clone, Copy, Debug)]
    pub(super) enum CrashKind {
        Kill,
        Power(clearway_proto::base::RandomKey),
    }
}
#[path = "../../../../clearway-proto/tests/engines/staging/store.rs"]
mod store;

/// Files, links and pipes that there are.
const INODES: u64 = 8;
/// The first number of a directory that waits among the objects.
const ASIDE: u64 = 100;

/// How a step is done, and how much of what is there must be the same.
pub(super) enum Doing<'a> {
    /// Once, to its end.
    Once(&'a StepRunner),
    /// It may have been begun any number of times before: old objects are as many as these made.
    Again(&'a mut dyn FnMut(&StoreStep) -> StepEnd),
}

impl Doing<'_> {
    fn carry_out(&mut self, step: &StoreStep) -> StepEnd {
        match self {
            Self::Once(runner) => runner.carry_out(step, &|| {}),
            Self::Again(carry_out) => carry_out(step),
        }
    }
}

/// Both stores.
pub(super) struct ModelTrial {
    stream: RandomStream,
    model: TrialStore,
    pub(super) directory: TestDirectory,
    log: TestLog,
    strangers: u64,
    pub(super) ends: BTreeMap<&'static str, u64>,
}

impl ModelTrial {
    pub(super) fn new(seed: u64, directory: TestDirectory) -> Self {
        let log = TestLog::new(&directory.path().join("log"));
        fs::create_dir(directory.path().join("store")).expect("a directory");
        fs::write(directory.path().join("outside"), "untouched").expect("written");
        let stream = RandomKey::new(seed).purpose("steps of a store").stream();
        let (model, ends) = (TrialStore::new(), BTreeMap::new());
        Self { stream, model, directory, log, strangers: 1 << 40, ends }
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("store")
    }

    pub(super) fn run(&mut self, steps: u32, mut doing: Doing<'_>) {
        assert_eq!(doing.carry_out(&StoreStep::Sweep { keeps: Vec::new() }), StepEnd::Done);
        for _ in 0..steps {
            if self.stream.below(6) == 0 {
                self.add_stranger();
            }
            let Some(step) = self.draw() else { continue };
            self.fail_first(&step, &mut doing);
            for _ in 0..1 + self.stream.below(2) {
                self.both(&step, &mut doing);
            }
        }
        let outside = fs::read(self.directory.path().join("outside")).expect("a file");
        assert_eq!(outside, b"untouched");
    }

    /// Does a step in both, and compares.
    fn both(&mut self, step: &StoreStep, doing: &mut Doing<'_>) {
        let log = &self.log;
        let ours = self.model.carry_out(step, &|piece| Ok(log.read(piece))).expect("a step");
        // A death of the process loses nothing.
        self.model = self.model.crashed(CrashKind::Kill);
        let theirs = doing.carry_out(step);
        let is_again = matches!(doing, Doing::Again(_));
        let is_done = |end| matches!(end, StepEnd::Done | StepEnd::DoneWithStranger(_));
        // What was begun before has found the stranger then.
        let is_same = ours == theirs || (is_again && is_done(ours) && is_done(theirs));
        assert!(is_same, "{step:?} ended {theirs:?} in place of {ours:?}");
        *self.ends.entry(name_of(step, theirs)).or_default() += 1;
        self.remove_strangers();
        self.compare(step, is_again);
    }

    /// Lets a copy fail at a body that is not there, before it is done.
    fn fail_first(&mut self, step: &StoreStep, doing: &mut Doing<'_>) {
        let mut broken = step.clone();
        let StoreStep::Copy { pieces, .. } = &mut broken else { return };
        if self.stream.below(3) > 0 || pieces.is_empty() {
            return;
        }
        let index = self.stream.below(pieces.len() as u64) as usize;
        pieces[index].digest ^= 1;
        assert_eq!(doing.carry_out(&broken), StepEnd::Failed(Fault::Malformed));
        let log = &self.log;
        let _ = self.model.write(step, &|piece| Ok(log.read(piece)), index);
    }

    fn directories(&self) -> Vec<StorePath> {
        let root = StorePath { base: StoreBase::Root, names: Vec::new() };
        let objects = StorePath { base: StoreBase::Objects, names: Vec::new() };
        let (mut found, mut next) = (Vec::new(), vec![(root, ROOT), (objects, OBJECTS)]);
        while let Some((path, node)) = next.pop() {
            for ((_, name), below) in
                self.model.names.range((node, Vec::new())..(node + 1, Vec::new()))
            {
                if self.model.nodes[below].kind == StoreKind::Directory {
                    next.push((below_path(&path, name), *below));
                }
            }
            found.push(path);
        }
        found
    }

    /// Draws a directory of the tree that is not among the objects itself.
    fn draw_directory(&mut self) -> StorePath {
        let all = self.directories();
        let inner = all.into_iter().filter(|path| *path != objects_path()).collect::<Vec<_>>();
        inner[self.stream.below(inner.len() as u64) as usize].clone()
    }

    fn draw_place(&mut self) -> StorePath {
        let directory = self.draw_directory();
        let name = format!("n{}", self.stream.below(5));
        below_path(&directory, name.as_bytes())
    }

    fn draw_inode(&mut self) -> InodeId {
        InodeId(2 + self.stream.below(INODES))
    }

    fn draw_attributes(&mut self) -> StoreAttributes {
        let user = rustix::process::geteuid();
        let group = rustix::process::getegid();
        let owner = match user.is_root() {
            true => (self.stream.below(9) as u32, self.stream.below(9) as u32),
            false => (user.as_raw(), group.as_raw()),
        };
        // Only root enters a directory without the permission to execute.
        let enters = if user.is_root() { 0 } else { 0o100 };
        let mode = (0o600 + self.stream.below(0o200) as u32 + 1) | enters;
        let xattr = |number: u64| {
            let name = EntryName::new(format!("user.x{number}").as_bytes()).expect("a name");
            (name, vec![number as u8; number as usize].into())
        };
        let xattrs = (0..self.stream.below(3)).map(xattr).collect();
        let (atime, mtime) =
            (WallNs(self.stream.below(1 << 60)), WallNs(self.stream.below(1 << 60)));
        StoreAttributes { mode, owner, atime, mtime, xattrs }
    }

    /// Returns whether an inode is that of a file.
    const fn is_file(inode: InodeId) -> bool {
        !inode.0.is_multiple_of(4)
    }

    fn draw(&mut self) -> Option<StoreStep> {
        let inode = self.draw_inode();
        Some(match self.stream.below(16) {
            0..4 if Self::is_file(inode) => self.draw_copy(inode),
            0..4 => {
                let mut attributes = self.draw_attributes();
                attributes.xattrs.clear();
                let node = match inode.0 {
                    4 => NodeKind::Symlink(b"../outside"[..].into()),
                    _ => NodeKind::Special(SpecialNode { kind: SpecialKind::Pipe, device: 0 }),
                };
                StoreStep::Make { inode, node, attributes }
            }
            4..8 => {
                self.model.object(inode)?;
                StoreStep::Link { inode, to: self.draw_place() }
            }
            8 | 9 => StoreStep::MakeDirectory { at: self.draw_place() },
            10 => return self.draw_move(),
            11 => StoreStep::Unlink { at: self.draw_place() },
            12 => StoreStep::RemoveDirectory { at: self.draw_place() },
            13 => {
                let at = self.draw_directory();
                if at.names.is_empty() {
                    let object = self.model.object(inode).filter(|_| Self::is_file(inode));
                    object?;
                    let at = below_path(&objects_path(), inode.0.to_string().as_bytes());
                    return Some(StoreStep::Settle { at, attributes: self.draw_attributes() });
                }
                StoreStep::Settle { at, attributes: self.draw_attributes() }
            }
            14 => match self.stream.below(3) {
                0 => StoreStep::DropOld { inode },
                1 => StoreStep::Drop { inode },
                _ => StoreStep::SyncDirectories { at: self.directories() },
            },
            _ => {
                let all = (2..2 + INODES).filter(|_| self.stream.below(3) > 0);
                let all = all.chain(ASIDE..ASIDE + 5);
                StoreStep::Sweep { keeps: all.map(InodeId).collect() }
            }
        })
    }

    fn draw_copy(&mut self, inode: InodeId) -> StoreStep {
        let there = self.model.bytes(inode).map_or(0, |bytes| bytes.len() as u64);
        let keep = self.stream.below(there + 1);
        let size = self.stream.below(40_000).max(keep);
        let (mut pieces, mut at) = (Vec::new(), 0);
        for _ in 0..self.stream.below(4) {
            let offset = at + self.stream.below(9000);
            let bytes = 1 + self.stream.below(9000);
            if offset + bytes > size {
                break;
            }
            let front = self.stream.below(3) * 7;
            let byte = self.stream.below(256) as u8;
            let body = vec![byte; (front + bytes + self.stream.below(2)) as usize];
            let whole = self.log.body(&body, offset);
            pieces.push(CopyPiece { skip: front as u32, bytes: bytes as u32, ..whole });
            at = offset + bytes;
        }
        let is_named = self.stream.below(4) == 0;
        let attributes = self.draw_attributes();
        StoreStep::Copy { inode, is_named, keep, size, pieces, attributes }
    }

    fn draw_move(&mut self) -> Option<StoreStep> {
        let from = self.draw_directory();
        let aside =
            below_path(&objects_path(), (ASIDE + self.stream.below(5)).to_string().as_bytes());
        let to = if self.stream.below(4) == 0 { aside } else { self.draw_place() };
        let is_below = to.base == from.base && to.names.starts_with(&from.names);
        let is_taken = to.base == StoreBase::Objects && self.model.find(&to).is_some();
        if from.names.is_empty() || is_below || is_taken {
            return None;
        }
        Some(StoreStep::MoveDirectory { from, to })
    }

    /// Lets somebody else put something where nothing is.
    fn add_stranger(&mut self) {
        let at = self.draw_place();
        if self.model.find(&at).is_some() {
            return;
        }
        let real = path_of(&self.root(), &at);
        let kind = match self.stream.below(4) {
            0 => {
                fs::write(&real, "theirs").expect("a file");
                let bytes = Rc::new(b"theirs".to_vec());
                StoreKind::File { safe: Rc::clone(&bytes), bytes }
            }
            1 => {
                let outside = self.directory.path().join("outside");
                std::os::unix::fs::symlink(&outside, &real).expect("a link");
                StoreKind::Bare(NodeKind::Symlink(outside.as_os_str().as_bytes().into()))
            }
            2 => {
                let mode = rustix::fs::Mode::RUSR;
                rustix::fs::mkfifoat(rustix::fs::CWD, &real, mode).expect("a pipe");
                StoreKind::Bare(NodeKind::Special(SpecialNode {
                    kind: SpecialKind::Pipe,
                    device: 0,
                }))
            }
            _ => {
                fs::create_dir(&real).expect("a directory");
                StoreKind::Directory
            }
        };
        let directory = self.insert(&at, kind.clone());
        if kind == StoreKind::Directory {
            fs::write(real.join("full"), "theirs").expect("a file");
            let bytes = Rc::new(b"theirs".to_vec());
            let file = StoreKind::File { safe: Rc::clone(&bytes), bytes };
            let number = self.insert_node(file);
            self.model.names.insert((directory, b"full".to_vec()), number);
        }
    }

    fn insert_node(&mut self, kind: StoreKind) -> u64 {
        self.strangers += 1;
        // The mode says that nobody compares attributes.
        let node =
            StoreNode { kind, mode: 0o600, owner: (0, 0), times: (0, 0), xattrs: BTreeMap::new() };
        self.model.nodes.insert(self.strangers, node);
        self.strangers
    }

    fn insert(&mut self, at: &StorePath, kind: StoreKind) -> u64 {
        let number = self.insert_node(kind);
        let (last, above) = at.names.split_last().expect("a name");
        let above = StorePath { names: above.to_vec(), base: at.base };
        let parent = self.model.find(&above).expect("a directory");
        self.model.names.insert((parent, last.bytes().to_vec()), number);
        number
    }

    /// Removes renamed files of strangers: the model has one name for them.
    fn remove_strangers(&mut self) {
        for directory in self.directories() {
            // It may have gone with the one above.
            let Some(node) = self.model.find(&directory) else { continue };
            let names = self.model.names.range((node, Vec::new())..(node + 1, Vec::new()));
            let is_kept = |(_, name): &(u64, Vec<u8>)| name.ends_with(b".stranger");
            let kept: Vec<_> = names.map(|(name, _)| name.clone()).filter(is_kept).collect();
            for name in kept {
                let real = path_of(&self.root(), &below_path(&directory, &name.1));
                let is_directory = fs::symlink_metadata(&real).expect("kept").is_dir();
                let removed =
                    if is_directory { fs::remove_dir_all(&real) } else { fs::remove_file(&real) };
                removed.expect("removed");
                self.forget_names(name);
            }
        }
    }

    /// Removes a name, and all names below it.
    fn forget_names(&mut self, name: (u64, Vec<u8>)) {
        let Some(node) = self.model.names.remove(&name) else { return };
        if self.model.nodes[&node].kind == StoreKind::Directory {
            let below = self.model.names.range((node, Vec::new())..(node + 1, Vec::new()));
            let below: Vec<_> = below.map(|(name, _)| name.clone()).collect();
            below.into_iter().for_each(|name| self.forget_names(name));
        }
    }

    fn compare(&self, step: &StoreStep, is_again: bool) {
        let is_left = |name: &[u8]| {
            let text = String::from_utf8_lossy(name);
            is_again
                && (text.contains('.') || text.starts_with("new-") || text.starts_with("link-"))
        };
        for directory in self.directories() {
            let node = self.model.find(&directory).expect("a directory");
            let names = self.model.names.range((node, Vec::new())..(node + 1, Vec::new()));
            let mut ours: BTreeSet<Vec<u8>> = names.map(|((_, name), _)| name.clone()).collect();
            let real = path_of(&self.root(), &directory);
            let entries =
                fs::read_dir(&real).expect("a directory").map(|entry| entry.expect("an entry"));
            let mut theirs: BTreeSet<Vec<u8>> =
                entries.map(|entry| entry.file_name().as_bytes().to_vec()).collect();
            theirs.remove(OBJECTS_NAME.as_bytes());
            if directory == objects_path() {
                ours.retain(|name| !is_left(name));
                theirs.retain(|name| !is_left(name));
            }
            assert_eq!(ours, theirs, "in {directory:?} after {step:?}");
            for name in ours {
                let node = self.model.names[&(node, name.clone())];
                compare_node(
                    &real.join(std::ffi::OsStr::from_bytes(&name)),
                    &self.model.nodes[&node],
                    step,
                );
            }
        }
        self.compare_links(step);
    }

    /// Compares which names have the same file.
    fn compare_links(&self, step: &StoreStep) {
        let mut numbers: BTreeMap<u64, u64> = BTreeMap::new();
        for directory in self.directories() {
            let node = self.model.find(&directory).expect("a directory");
            for ((_, name), below) in
                self.model.names.range((node, Vec::new())..(node + 1, Vec::new()))
            {
                let real = path_of(&self.root(), &below_path(&directory, name));
                // What is left of steps that were begun has other names.
                let Ok(found) = fs::symlink_metadata(&real) else { continue };
                if directory == objects_path() && name.contains(&b'.') {
                    continue;
                }
                let number = *numbers.entry(*below).or_insert(found.ino());
                assert_eq!(number, found.ino(), "{real:?} is another file after {step:?}");
            }
        }
    }
}

fn objects_path() -> StorePath {
    StorePath { base: StoreBase::Objects, names: Vec::new() }
}

fn below_path(directory: &StorePath, name: &[u8]) -> StorePath {
    let mut path = directory.clone();
    path.names.push(EntryName::new(name).expect("a name"));
    path
}

fn name_of(step: &StoreStep, end: StepEnd) -> &'static str {
    match (step, end) {
        (_, StepEnd::DoneWithStranger(_)) => "stranger",
        (_, StepEnd::Failed(_) | StepEnd::Stuck | StepEnd::Absent) => "failed",
        (StoreStep::Copy { keep: 1.., .. }, _) => "based",
        (StoreStep::Copy { .. }, _) => "copy",
        (StoreStep::Make { .. }, _) => "make",
        (StoreStep::Link { .. }, _) => "link",
        (StoreStep::MoveDirectory { .. }, _) => "move",
        (StoreStep::Settle { .. }, _) => "settle",
        (StoreStep::Sweep { .. }, _) => "sweep",
        _ => "others",
    }
}

fn compare_node(real: &Path, node: &StoreNode, step: &StoreStep) {
    let found = fs::symlink_metadata(real).expect("an entry");
    let kind = found.file_type();
    let is_same = match &node.kind {
        StoreKind::Directory => kind.is_dir(),
        StoreKind::Bare(NodeKind::Symlink(target)) => {
            kind.is_symlink()
                && fs::read_link(real).is_ok_and(|found| found.as_os_str().as_bytes() == &**target)
        }
        StoreKind::Bare(_) => kind.is_fifo(),
        StoreKind::File { bytes, .. } => {
            // A look is no access: times are compared.
            let flags = rustix::fs::OFlags::NOATIME.bits() as i32;
            let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(real);
            let is_refused =
                |why: &std::io::Error| why.kind() == std::io::ErrorKind::PermissionDenied;
            if !rustix::process::geteuid().is_root() && file.as_ref().is_err_and(is_refused) {
                // Only root reads an object whose mode is not set yet.
                return;
            }
            let mut there = Vec::new();
            file.and_then(|mut file| file.read_to_end(&mut there)).expect("read");
            there == **bytes
        }
    };
    assert!(is_same, "{real:?} is another thing, or has other bytes, after {step:?}");
    // Nobody set attributes yet.
    if node.mode == 0o600 {
        return;
    }
    let theirs = (found.mode() & 0o7777, (found.uid(), found.gid()));
    let is_link = kind.is_symlink();
    let mode = if is_link { 0o777 } else { node.mode };
    assert_eq!(theirs, (mode, node.owner), "{real:?} after {step:?}");
    if kind.is_dir() {
        return;
    }
    let nanos = |seconds: i64, nanos: i64| seconds as u64 * 1_000_000_000 + nanos as u64;
    assert_eq!(nanos(found.mtime(), found.mtime_nsec()), node.times.1, "{real:?} after {step:?}");
    if kind.is_file() {
        assert_eq!(
            nanos(found.atime(), found.atime_nsec()),
            node.times.0,
            "{real:?} after {step:?}"
        );
        assert_eq!(xattrs(real), node.xattrs, "{real:?} after {step:?}");
    }
}

fn xattrs(real: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = Vec::with_capacity(1 << 16);
    rustix::fs::listxattr(real, rustix::buffer::spare_capacity(&mut names)).expect("names");
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let read = |name: &[u8]| {
        let mut value = Vec::with_capacity(1 << 16);
        rustix::fs::getxattr(real, name, rustix::buffer::spare_capacity(&mut value))
            .expect("a value");
        (name.to_vec(), value)
    };
    names.map(read).collect()
}

#[test]
fn carry_out__drawn_steps_end_as_in_the_model_of_the_proofs() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: an ordinary user may not take all steps of the model");
    }
    let mut ends: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..8 {
        let on_disk = seed % 6 == 0;
        let directory = if on_disk { TestDirectory::new() } else { TestDirectory::in_memory() };
        let mut trial = ModelTrial::new(seed, directory);
        let path = trial.directory.path().to_owned();
        let runner = StepRunner::new(&path.join("store"), &path.join("log"), None);
        let first = StoreStep::Sweep { keeps: Vec::new() };
        assert_eq!(runner.carry_out(&first, &|| {}), StepEnd::Done);
        if seed % 2 == 0 {
            runner.place.open().expect("open").walk_names();
        }
        trial.run(if on_disk { 30 } else { 120 }, Doing::Once(&runner));
        for (name, count) in trial.ends {
            *ends.entry(name).or_default() += count;
        }
    }
    for name in ["stranger", "based", "copy", "make", "link", "move", "settle", "sweep", "others"] {
        assert!(ends.get(name).is_some_and(|count| *count > 9), "{name} is rare: {ends:?}");
    }
}

#[test]
fn crashed__what_is_synced_stays_when_the_power_fails() {
    let mut trial = ModelTrial::new(3, TestDirectory::in_memory());
    let path = trial.directory.path().to_owned();
    let runner = StepRunner::new(&path.join("store"), &path.join("log"), None);
    trial.run(60, Doing::Once(&runner));
    // It makes all names durable, and what was copied is.
    let step = StoreStep::Sweep { keeps: (0..200).map(InodeId).collect() };
    trial.both(&step, &mut Doing::Once(&runner));
    let power = CrashKind::Power(RandomKey::new(5));
    let synced = trial.model.crashed(power);
    // What is not synced does not stay, so the comparison says something.
    let copied = |inode: &u64| trial.model.bytes(InodeId(*inode)).is_some_and(|b| b.len() > 999);
    let inode = InodeId((2..2 + INODES).find(copied).expect("a file"));
    let attributes = trial.draw_attributes();
    let (is_named, keep, size, pieces) = (false, 0, 0, Vec::new());
    let copy = StoreStep::Copy { inode, is_named, keep, size, pieces, attributes };
    trial.model.forget_sync(&copy);
    assert_ne!(trial.model.crashed(power).bytes(inode), synced.bytes(inode));
    for inode in (2..2 + INODES).map(InodeId) {
        let Some(bytes) = synced.bytes(inode) else { continue };
        let there = fs::read(path.join("store").join(OBJECTS_NAME).join(inode.0.to_string()));
        assert!(there.is_ok_and(|there| there == **bytes), "{inode:?} has other bytes");
    }
}
