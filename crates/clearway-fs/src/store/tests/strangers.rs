//! What else is in a store, what is not, and what cannot be done there.

use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};

use clearway_proto::staging::{LogId, NodeKind, SpecialKind, SpecialNode, StrangerFate};
use clearway_proto::wire::Fault;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::super::steps::{StepRunner, stranger_name};
use super::*;
use crate::store::{StoreOwner, StoreSharing};

const STAYS: StepEnd = StepEnd::DoneWithStranger(StrangerFate::Stays);

/// A store whose steps this process does.
struct NearStore {
    directory: TestDirectory,
    runner: StepRunner,
    log: TestLog,
}

impl NearStore {
    fn new() -> Self {
        let directory = TestDirectory::new();
        fs::create_dir(directory.path().join("store")).expect("a directory");
        let log = directory.path().join("log");
        let runner = StepRunner::new(&directory.path().join("store"), &log, None);
        let near = Self { directory, runner, log: TestLog::new(&log) };
        assert_eq!(near.carry_out(&StoreStep::Sweep { keeps: Vec::new() }), StepEnd::Done);
        near
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("store").join(name)
    }

    /// Carries a step out. A program that another test starts has the lock of a store that was open
    /// before until it begins: nobody else changes the store here.
    fn carry_out(&self, step: &StoreStep) -> StepEnd {
        loop {
            match self.runner.carry_out(step, &|| {}) {
                StepEnd::Stuck => std::thread::yield_now(),
                end => return end,
            }
        }
    }

    /// Makes an object of a file that has some bytes.
    fn file(&mut self, inode: u64, bytes: &[u8]) -> StepEnd {
        let pieces = vec![self.log.body(bytes, 0)];
        let (size, attributes) = (bytes.len() as u64, attributes(0o644, 1));
        let (inode, is_named, keep) = (InodeId(inode), false, 0);
        self.carry_out(&StoreStep::Copy { inode, is_named, keep, size, pieces, attributes })
    }

    fn link(&self, inode: u64, to: &str) -> StepEnd {
        self.carry_out(&StoreStep::Link { inode: InodeId(inode), to: path(to) })
    }
}

#[test]
fn link__what_is_in_the_way_is_kept_under_another_name() {
    let mut store = NearStore::new();
    assert_eq!(store.file(5, b"ours"), StepEnd::Done);
    let outside = store.directory.path().join("outside");
    fs::write(&outside, "theirs").expect("written");
    for name in ["file", "directory", "link", "pipe"] {
        let there = store.path(name);
        match name {
            "file" => fs::write(&there, "theirs").expect("written"),
            "link" => symlink(&outside, &there).expect("a link"),
            "pipe" => {
                let mode = rustix::fs::Mode::RUSR;
                rustix::fs::mkfifoat(rustix::fs::CWD, &there, mode).expect("a pipe");
            }
            _ => fs::create_dir_all(there.join("full")).expect("a directory"),
        }
        assert_eq!(
            store.link(5, name),
            StepEnd::DoneWithStranger(StrangerFate::Moved(1)),
            "{name}"
        );
        assert_eq!(store.link(5, name), StepEnd::Done, "{name}");
        assert_eq!(fs::read(&there).expect("a file"), b"ours");
        let kept = fs::symlink_metadata(store.path(&format!("{name}.stranger")));
        let kind = kept.expect("kept").file_type();
        let is_kept = [kind.is_file(), kind.is_dir(), kind.is_symlink(), kind.is_fifo()];
        let place = ["file", "directory", "link", "pipe"].iter().position(|other| *other == name);
        assert_eq!(is_kept.iter().position(|is| *is), place);
    }
    assert_eq!(fs::read(&outside).expect("a file"), b"theirs");
    // The next one gets another name, also where names are as long as they can be.
    let long = "x".repeat(255);
    for name in ["file", &long] {
        let first = if name == "file" { 2 } else { 1 };
        for number in first..first + 2 {
            fs::remove_file(store.path(name)).ok();
            fs::write(store.path(name), "more").expect("written");
            assert_eq!(store.link(5, name), StepEnd::DoneWithStranger(StrangerFate::Moved(number)));
            let moved = stranger_name(name.as_bytes(), number);
            assert!(store.path("").join(OsStr::from_bytes(&moved)).exists(), "{name} {number}");
        }
    }
    let names = fs::read_dir(store.path("")).expect("a directory");
    let is_kept = |name: &std::ffi::OsString| name.to_string_lossy().contains(".stranger");
    let kept = names.map(|entry| entry.expect("an entry").file_name()).filter(is_kept).count();
    assert_eq!(kept, 4 + 2 + 2);
}

#[test]
fn unlink__what_somebody_else_made_stays() {
    let store = NearStore::new();
    fs::write(store.path("file"), "theirs").expect("written");
    fs::create_dir_all(store.path("directory/full")).expect("a directory");
    // A file with several names is not ours for that.
    fs::hard_link(store.path("file"), store.path("other")).expect("a name");
    for name in ["file", "other", "directory"] {
        let unlink = StoreStep::Unlink { at: path(name) };
        assert_eq!(store.carry_out(&unlink), STAYS, "{name}");
        let remove = StoreStep::RemoveDirectory { at: path(name) };
        assert_eq!(store.carry_out(&remove), STAYS, "{name}");
        assert!(store.path(name).exists());
    }
}

/// Tries to leave a store through a link in the place of a directory.
fn leave(store: &mut NearStore) {
    let outside = store.directory.path().join("outside");
    fs::create_dir_all(outside.join("inner")).expect("a directory");
    fs::write(outside.join("name"), "theirs").expect("written");
    assert_eq!(store.file(5, b"ours"), StepEnd::Done);
    symlink("../outside", store.path("away")).expect("a link");
    let settle = StoreStep::Settle { at: path("away/name"), attributes: attributes(0o777, 1) };
    let directory = StoreStep::Settle { at: path("away"), attributes: attributes(0o700, 1) };
    let from = StoreStep::MoveDirectory { from: path("away/inner"), to: path("inner") };
    let to = StoreStep::MoveDirectory { from: path("real"), to: path("away/inner") };
    fs::create_dir_all(store.path("real")).expect("a directory");
    let make = StoreStep::MakeDirectory { at: path("away/new") };
    for step in [settle, to, make] {
        assert_eq!(store.carry_out(&step), StepEnd::Failed(Fault::Gone), "{step:?}");
    }
    assert_eq!(store.carry_out(&from), STAYS);
    assert_eq!(store.link(5, "away/name"), StepEnd::Failed(Fault::Gone));
    // The link itself has no permissions to set.
    let _ = store.carry_out(&directory);
    for step in [
        StoreStep::Unlink { at: path("away/name") },
        StoreStep::RemoveDirectory { at: path("away/inner") },
        StoreStep::SyncDirectories { at: vec![path("away/inner"), path("away")] },
    ] {
        assert_eq!(store.carry_out(&step), StepEnd::Done, "{step:?}");
    }
    assert_eq!(fs::read(outside.join("name")).expect("a file"), b"theirs");
    let mode = |path: &Path| fs::metadata(path).expect("there").mode() & 0o7777;
    assert_eq!((mode(&outside.join("name")), mode(&outside)), (0o644, 0o755));
    let mut names: Vec<_> = fs::read_dir(&outside).expect("a directory").collect();
    assert_eq!(names.len(), 2, "{names:?}");
    names.clear();
    // The link is in the way of a directory.
    let make = StoreStep::MakeDirectory { at: path("away") };
    assert_eq!(store.carry_out(&make), StepEnd::DoneWithStranger(StrangerFate::Moved(1)));
    assert_eq!(store.link(5, "away/name"), StepEnd::Done);
    fs::remove_dir_all(store.path("away")).expect("removed");
    fs::remove_file(store.path("away.stranger")).expect("removed");
}

#[test]
fn carry_out__no_path_leaves_the_store() {
    let mut store = NearStore::new();
    leave(&mut store);
    store.runner.place.open().expect("open").walk_names();
    leave(&mut store);
}

#[test]
fn carry_out__the_hidden_directory_has_no_name() {
    let mut store = NearStore::new();
    assert_eq!(store.file(5, b"ours"), StepEnd::Done);
    let inside = format!("{OBJECTS_NAME}/6");
    for name in [OBJECTS_NAME, &inside] {
        assert_eq!(store.link(5, name), StepEnd::Failed(Fault::Denied));
        let unlink = StoreStep::Unlink { at: path(name) };
        assert_eq!(store.carry_out(&unlink), StepEnd::Failed(Fault::Denied));
    }
    assert_eq!(fs::read(store.path(OBJECTS_NAME).join("5")).expect("a file"), b"ours");
}

#[test]
fn carry_out__a_store_that_is_gone_is_not_made_anew() {
    let mut store = NearStore::new();
    assert_eq!(store.file(5, b"ours"), StepEnd::Done);
    fs::remove_dir_all(store.path("")).expect("removed");
    let make = StoreStep::MakeDirectory { at: path("new") };
    for _ in 0..2 {
        assert_eq!(store.carry_out(&make), StepEnd::Absent);
        assert_eq!(store.file(5, b"ours"), StepEnd::Absent);
        // As when its file system is not mounted.
        fs::create_dir_all(store.path("")).expect("a directory");
    }
    assert_eq!(fs::read_dir(store.path("")).expect("a directory").count(), 0);
    assert_eq!(store.carry_out(&StoreStep::Sweep { keeps: Vec::new() }), StepEnd::Done);
    assert_eq!(store.carry_out(&make), StepEnd::Done);
    // Bytes that the log let go of are not made up.
    let attributes = attributes(0o644, 1);
    let (inode, is_named, keep, size, pieces) = (InodeId(5), false, 4, 9, Vec::new());
    let copy = StoreStep::Copy { inode, is_named, keep, size, pieces, attributes };
    assert_eq!(store.carry_out(&copy), StepEnd::Failed(Fault::Gone));
}

#[test]
fn carry_out__a_store_that_is_not_at_its_path_is_left_alone() {
    let mut store = NearStore::new();
    assert_eq!(store.file(5, b"ours"), StepEnd::Done);
    let (here, there) = (store.path(""), store.directory.path().join("there"));
    let make = StoreStep::MakeDirectory { at: path("new") };
    let check = StoreStep::SyncDirectories { at: Vec::new() };
    fs::rename(&here, &there).expect("moved");
    for step in [&make, &check] {
        assert_eq!(store.carry_out(step), StepEnd::Absent);
    }
    // As the place of a file system that was unmounted.
    fs::create_dir(&here).expect("made");
    assert_eq!(store.carry_out(&make), StepEnd::Absent);
    assert!(!there.join("new").exists() && !here.join("new").exists());
    fs::remove_dir(&here).expect("removed");
    fs::rename(&there, &here).expect("moved");
    assert_eq!((store.carry_out(&check), store.carry_out(&make)), (StepEnd::Done, StepEnd::Done));
    // A step that ends when the store is elsewhere did not do it there.
    let settle = StoreStep::Sweep { keeps: vec![InodeId(5)] };
    fs::write(store.path(OBJECTS_NAME).join("6"), "old").expect("written");
    let end = store.runner.carry_out(&settle, &|| fs::rename(&here, &there).expect("moved"));
    assert_eq!(end, StepEnd::Absent);
}

const fn alone(log: u128) -> StoreOwner {
    StoreOwner { log: LogId(log), sharing: StoreSharing::Alone }
}

#[test]
fn carry_out__logs_that_share_a_store_keep_the_objects_of_each_other() {
    let mut store = NearStore::new();
    let log = store.directory.path().join("log");
    let owners =
        [0x17, 0x18].map(|log| StoreOwner { log: LogId(log), sharing: StoreSharing::Shared });
    for (owner, bytes) in owners.iter().zip([b"one", b"two"]) {
        fs::write(store.path("").join(owner.mark_name()), owner.mark()).expect("written");
        store.runner = StepRunner::new(&store.path(""), &log, Some(*owner));
        assert_eq!(store.carry_out(&StoreStep::Sweep { keeps: Vec::new() }), StepEnd::Done);
        assert_eq!(store.file(5, bytes), StepEnd::Done);
    }
    // The first forgets all of its objects, and the second keeps those of the same numbers.
    store.runner = StepRunner::new(&store.path(""), &log, Some(owners[0]));
    assert_eq!(store.carry_out(&StoreStep::Sweep { keeps: Vec::new() }), StepEnd::Done);
    let has =
        |owner: StoreOwner| StoreReader::new(&store.path(""), Some(owner)).open_object(InodeId(5));
    assert!(has(owners[0]).is_err());
    let mut kept = String::new();
    has(owners[1]).expect("kept").read_to_string(&mut kept).expect("read");
    assert_eq!(kept, "two");
}

#[test]
fn carry_out__a_store_with_the_mark_of_another_log_is_left_alone() {
    let mut store = NearStore::new();
    let mark = store.path(".clearway-log");
    let owner = alone(0x17);
    let log = store.directory.path().join("log");
    store.runner = StepRunner::new(&store.path(""), &log, Some(owner));
    let sweep = StoreStep::Sweep { keeps: Vec::new() };
    assert_eq!(store.carry_out(&sweep), StepEnd::Absent, "it has none");
    fs::write(&mark, alone(0x18).mark()).expect("written");
    assert_eq!(store.carry_out(&sweep), StepEnd::Absent);
    fs::write(&mark, owner.mark()).expect("written");
    assert_eq!(store.carry_out(&sweep), StepEnd::Done);
    assert_eq!(store.file(5, b"ours"), StepEnd::Done);
    assert!(StoreReader::new(&store.path(""), Some(alone(1))).open_object(InodeId(5)).is_err());
    assert!(StoreReader::new(&store.path(""), Some(owner)).open_object(InodeId(5)).is_ok());
}

#[test]
fn sweep__what_another_program_made_among_the_objects_stays() {
    let mut store = NearStore::new();
    assert_eq!((store.file(5, b"ours"), store.file(6, b"old")), (StepEnd::Done, StepEnd::Done));
    let objects = store.path(OBJECTS_NAME);
    for name in ["thesis", "05", "new-x", "5.01", "link-"] {
        fs::write(objects.join(name), "theirs").expect("written");
    }
    // A name of such a file is not ours.
    fs::hard_link(objects.join("thesis"), store.path("name")).expect("a name");
    for name in ["new-7", "link-7", "7.1"] {
        fs::write(objects.join(name), "rest").expect("written");
    }
    fs::set_permissions(&objects, fs::Permissions::from_mode(0o777)).expect("set");
    let sweep = StoreStep::Sweep { keeps: vec![InodeId(5)] };
    assert_eq!(store.carry_out(&sweep), STAYS);
    let names = fs::read_dir(&objects).expect("a directory");
    let mut names: Vec<_> = names.map(|entry| entry.expect("an entry").file_name()).collect();
    names.sort();
    assert_eq!(names, ["05", "5", "5.01", "link-", "new-x", "thesis"]);
    assert_eq!(fs::metadata(&objects).expect("there").mode() & 0o7777, 0o700);
    let unlink = StoreStep::Unlink { at: path("name") };
    assert_eq!(store.carry_out(&unlink), STAYS);
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&objects, Some(65534), Some(65534)).expect("given");
        assert_eq!(store.carry_out(&sweep), STAYS);
        assert_eq!(fs::metadata(&objects).expect("there").uid(), 0);
    }
}

#[test]
fn copy__a_body_with_other_bytes_changes_no_name() {
    let mut store = NearStore::new();
    assert_eq!((store.file(5, b"first"), store.link(5, "name")), (StepEnd::Done, StepEnd::Done));
    let mut piece = store.log.body(b"other", 0);
    piece.digest ^= 1;
    let attributes = attributes(0o644, 1);
    let (inode, is_named, keep, size) = (InodeId(5), false, 5, 5);
    let pieces = vec![piece];
    let copy = StoreStep::Copy { inode, is_named, keep, size, pieces, attributes };
    assert_eq!(store.carry_out(&copy), StepEnd::Failed(Fault::Malformed));
    assert_eq!(fs::read(store.path("name")).expect("a file"), b"first");
    let objects = fs::read_dir(store.path(OBJECTS_NAME)).expect("a directory");
    assert_eq!(objects.count(), 1);
}

#[test]
fn copy__holes_stay_holes() {
    let mut store = NearStore::new();
    let size = 64 << 20;
    let pieces = vec![store.log.body(b"end", size - 3), store.log.body(b"middle", 10 << 20)];
    let attributes = attributes(0o644, 1);
    let (inode, is_named, keep) = (InodeId(5), false, 0);
    let first =
        StoreStep::Copy { inode, is_named, keep, size, pieces, attributes: attributes.clone() };
    assert_eq!((store.carry_out(&first), store.link(5, "name")), (StepEnd::Done, StepEnd::Done));
    let keep = size;
    let second = StoreStep::Copy { inode, is_named, keep, size, pieces: Vec::new(), attributes };
    assert_eq!(store.carry_out(&second), StepEnd::Done);
    let (old, new) = (store.path("name"), store.path(OBJECTS_NAME).join("5"));
    assert_ne!(inode_of(&old), inode_of(&new));
    assert!(fs::read(&old).expect("a file") == fs::read(&new).expect("a file"));
    for file in [old, new] {
        assert!(fs::metadata(file).expect("there").blocks() * 512 < 1 << 20);
    }
}

#[test]
fn make__devices_have_their_numbers() {
    let store = NearStore::new();
    for (inode, kind, device) in [
        (5, SpecialKind::Character, 0x0000_0103),
        (6, SpecialKind::Block, 0xabc1_2f34),
        (7, SpecialKind::Socket, 0),
    ] {
        let node = NodeKind::Special(SpecialNode { kind, device });
        let attributes = attributes(0o640, 1);
        let make = StoreStep::Make { inode: InodeId(inode), node, attributes };
        let end = store.carry_out(&make);
        if kind != SpecialKind::Socket && end == StepEnd::Failed(Fault::Denied) {
            println!("devices are not made: only root can");
            continue;
        }
        assert_eq!((end, store.carry_out(&make)), (StepEnd::Done, StepEnd::Done));
        let found = fs::metadata(store.path(OBJECTS_NAME).join(inode.to_string())).expect("there");
        let reader = StoreReader::new(&store.path(""), None);
        assert!(reader.open_object(InodeId(inode)).is_err());
        let (major, minor) = match device {
            0 => (0, 0),
            0x103 => (1, 3),
            // The minor number has the bits on both sides.
            _ => (0x12f, 0xabc34),
        };
        assert_eq!(found.rdev(), rustix::fs::makedev(major, minor));
    }
}

#[test]
fn carry_out__paths_may_be_longer_than_the_system_takes() {
    let mut store = NearStore::new();
    assert_eq!(store.file(5, b"ours"), StepEnd::Done);
    for walks in [false, true] {
        if walks {
            store.runner.place.open().expect("open").walk_names();
        }
        let mut at = path("");
        for depth in 0..30 {
            at.names.push(EntryName::new("d".repeat(200).as_bytes()).expect("a name"));
            let make = StoreStep::MakeDirectory { at: at.clone() };
            assert_eq!(store.carry_out(&make), StepEnd::Done, "{depth}");
        }
        let sync = StoreStep::SyncDirectories { at: vec![at.clone()] };
        at.names.push(EntryName::new(b"file").expect("a name"));
        let link = StoreStep::Link { inode: InodeId(5), to: at };
        assert_eq!(
            (store.carry_out(&link), store.carry_out(&sync)),
            (StepEnd::Done, StepEnd::Done)
        );
    }
    assert_eq!(fs::metadata(store.path(OBJECTS_NAME).join("5")).expect("there").nlink(), 2);
}

/// A small file system that goes away with its test.
struct SmallDisk(PathBuf);

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn copy__a_full_disk_is_no_damage() {
    let directory = TestDirectory::new();
    let root = directory.path().join("store");
    fs::create_dir(&root).expect("a directory");
    if let Err(why) = mount("small", &root, "tmpfs", MountFlags::empty(), Some(c"size=1m")) {
        println!("skipped: a small disk needs a privilege: {why}");
        return;
    }
    let disk = SmallDisk(root.clone());
    let log = directory.path().join("log");
    let runner = StepRunner::new(&root, &log, None);
    let mut store = NearStore { directory, runner, log: TestLog::new(&log) };
    // Before the directory that it is mounted on.
    let _disk = disk;
    assert_eq!(store.carry_out(&StoreStep::Sweep { keeps: Vec::new() }), StepEnd::Done);
    assert_eq!(store.file(5, &vec![7; 600_000]), StepEnd::Done);
    assert_eq!(store.link(5, "name"), StepEnd::Done);
    let other = vec![8; 600_000];
    assert_eq!(store.file(6, &other), StepEnd::Failed(Fault::NoSpace));
    // A new version of a named file is a copy, which has no room.
    assert_eq!(store.file(5, &other), StepEnd::Failed(Fault::NoSpace));
    assert!(fs::read(store.path("name")).expect("a file").iter().all(|byte| *byte == 7));
    assert_eq!(store.carry_out(&StoreStep::Unlink { at: path("name") }), StepEnd::Done);
    assert_eq!(store.carry_out(&StoreStep::Drop { inode: InodeId(5) }), StepEnd::Done);
    assert_eq!(store.file(6, &other), StepEnd::Done);
}

/// Returns a worker whose child has another user than root, and that user; none where it cannot be
/// had.
fn ordinary() -> Option<(TestStore, u32)> {
    let user = rustix::process::geteuid();
    if !user.is_root() {
        return Some((TestStore::new(|_| {}), user.as_raw()));
    }
    let own = std::env::current_exe().expect("the path of this program");
    let mut probe = std::process::Command::new("setpriv");
    probe.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&own).arg("--list");
    if !probe.output().is_ok_and(|output| output.status.success()) {
        return None;
    }
    let store = TestStore::new(|options| {
        options.program = "setpriv".into();
        let mut arguments: Vec<std::ffi::OsString> =
            ["--reuid=65534", "--regid=65534", "--clear-groups"].map(Into::into).into();
        arguments.push(own.into());
        arguments.append(&mut options.arguments);
        options.arguments = arguments;
        std::os::unix::fs::chown(&options.store, Some(65534), Some(65534)).expect("given");
    });
    Some((store, 65534))
}

#[test]
fn carry_out__an_ordinary_user_keeps_what_is_his() {
    let Some((mut store, user)) = ordinary() else {
        println!("skipped: another user needs setpriv, and a way to this program");
        return;
    };
    let ours = |mode| StoreAttributes { owner: (0, 0), ..attributes(mode, 1) };
    assert_eq!(store.carry_out(&StoreStep::Sweep { keeps: Vec::new() }), StepEnd::Done);
    // A file that its owner may not even read is brought up to date, and read, all the same.
    for (mode, bytes) in [(0o000, b"first"), (0o444, b"other"), (0o200, b"third")] {
        let pieces = vec![store.log.body(bytes, 0)];
        let (inode, keep, size, attributes) = (InodeId(5), 0, 5, ours(mode));
        let copy = StoreStep::Copy { inode, is_named: false, keep, size, pieces, attributes };
        assert_eq!(store.carry_out(&copy), StepEnd::Done, "{mode:o}");
        let link = StoreStep::Link { inode, to: path("name") };
        assert_eq!(store.carry_out(&link), StepEnd::Done);
        let found = fs::metadata(store.path("name")).expect("there");
        assert_eq!((found.mode() & 0o7777, found.uid()), (mode, user));
        let mut there = [0; 5];
        let file = store.worker.reader().open_object(inode);
        file.and_then(|mut file| file.read_exact(&mut there)).expect("read");
        assert_eq!(&there, bytes);
    }
    // So are the names in a directory that he may not change.
    let make = StoreStep::MakeDirectory { at: path("a") };
    let inner = StoreStep::MakeDirectory { at: path("a/b") };
    let closed = StoreStep::Settle { at: path("a"), attributes: ours(0o555) };
    let moved = StoreStep::MoveDirectory { from: path("a/b"), to: path("b") };
    let link = StoreStep::Link { inode: InodeId(5), to: path("a/name") };
    let sync = StoreStep::SyncDirectories { at: vec![path("a")] };
    for step in [make, inner, closed, moved, link.clone(), sync] {
        assert_eq!(store.carry_out(&step), StepEnd::Done, "{step:?}");
    }
    assert_eq!(fs::metadata(store.path("a")).expect("there").mode() & 0o7777, 0o555);
    assert!(store.path("a/name").exists() && store.path("b").exists());
    // What belongs to others does not become his.
    let theirs = store.path("theirs");
    fs::create_dir(&theirs).expect("a directory");
    fs::set_permissions(&theirs, fs::Permissions::from_mode(0o555)).expect("set");
    let into = StoreStep::Link { inode: InodeId(5), to: path("theirs/name") };
    if rustix::process::geteuid().is_root() {
        assert_eq!(store.carry_out(&into), StepEnd::Failed(Fault::Denied));
    }
    store.worker.close();
}
