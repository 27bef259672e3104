//! A worker on a real directory.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use clearway_proto::base::{Class, xxh3};
use clearway_proto::staging::{
    CopyPiece, EntryName, InodeId, LogPlace, StepEnd, StoreAttributes, StoreBase, StorePath,
    StoreStep, StoreTask, WallNs,
};
use clearway_runtime::wake_signal::WakeSignal;
use rustix::event::{PollFd, PollFlags};

use super::{OBJECTS_NAME, StoreOptions, StoreWorker};
use crate::testing::TestDirectory;

/// Attributes of a file of this process's user.
fn attributes(mode: u32, mtime: u64) -> StoreAttributes {
    let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    StoreAttributes { mode, owner, atime: WallNs(7), mtime: WallNs(mtime), xattrs: Vec::new() }
}

fn path(text: &str) -> StorePath {
    let names = text.split('/').filter(|name| !name.is_empty());
    let names = names.map(|name| EntryName::new(name.as_bytes()).expect("a name")).collect();
    StorePath { base: StoreBase::Root, names }
}

/// A log that has one body after the other, a store, and a worker.
struct TestStore {
    directory: TestDirectory,
    worker: StoreWorker,
    signal: Arc<WakeSignal>,
    blocks: u32,
    number: u64,
}

impl TestStore {
    fn new() -> Self {
        let directory = TestDirectory::new();
        for name in ["log/segments", "store"] {
            fs::create_dir_all(directory.path().join(name)).expect("a directory");
        }
        let (store, log) = (directory.path().join("store"), directory.path().join("log"));
        let signal = Arc::new(WakeSignal::new().expect("a counter"));
        let options = StoreOptions::new(store, log);
        let worker = StoreWorker::new(options, Arc::clone(&signal)).expect("a worker");
        Self { directory, worker, signal, blocks: 0, number: 0 }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join("store").join(name)
    }

    fn object(&self, name: &str) -> std::path::PathBuf {
        self.path(OBJECTS_NAME).join(name)
    }

    /// Writes a body into the log; returns the piece that has all of it.
    fn body(&mut self, bytes: &[u8], offset: u64) -> CopyPiece {
        let segment = self.directory.path().join("log/segments/00000000");
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).open(segment);
        let place = LogPlace { segment: 0, block: self.blocks };
        file.and_then(|file| file.write_all_at(bytes, place.offset())).expect("written");
        self.blocks += (bytes.len() as u32).div_ceil(4096);
        let (length, digest) = (bytes.len() as u32, xxh3(bytes));
        CopyPiece { place, length, digest, skip: 0, offset, bytes: length }
    }

    fn carry_out(&mut self, step: StoreStep) -> StepEnd {
        self.number += 1;
        let number = self.number;
        self.worker.begin(StoreTask { number, class: Class::Bulk, step });
        loop {
            if let Some((ended, end)) = self.worker.poll() {
                assert_eq!(ended, number);
                return end;
            }
            let mut fds = [PollFd::new(&*self.signal, PollFlags::IN)];
            rustix::event::poll(&mut fds, None).expect("poll");
            self.signal.clear();
        }
    }

    fn copy(&mut self, inode: u64, keep: u64, size: u64, pieces: Vec<CopyPiece>) -> StepEnd {
        let (inode, attributes) = (InodeId(inode), attributes(0o640, 5_000_000_009));
        self.carry_out(StoreStep::Copy { inode, is_named: false, keep, size, pieces, attributes })
    }
}

fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).expect("there").ino()
}

#[test]
fn begin__a_file_is_copied_linked_and_copied_again() {
    let mut store = TestStore::new();
    assert_eq!(store.carry_out(StoreStep::Sweep { keeps: Vec::new() }), StepEnd::Done);
    let piece = store.body(b"first", 3);
    assert_eq!(store.copy(9, 0, 10, vec![piece]), StepEnd::Done);
    assert_eq!(fs::read(store.object("9")).expect("an object"), b"\0\0\0first\0\0");
    let link = StoreStep::Link { inode: InodeId(9), to: path("name") };
    assert_eq!(store.carry_out(link.clone()), StepEnd::Done);
    assert_eq!(inode(&store.path("name")), inode(&store.object("9")));
    let found = fs::metadata(store.path("name")).expect("there");
    assert_eq!((found.mode() & 0o7777, found.mtime(), found.mtime_nsec()), (0o640, 5, 9));
    // The name keeps the old bytes until it gets the new ones.
    let piece = store.body(b"second", 4);
    assert_eq!(store.copy(9, 6, 10, vec![piece]), StepEnd::Done);
    assert_eq!(fs::read(store.path("name")).expect("a file"), b"\0\0\0first\0\0");
    assert_eq!(fs::read(store.object("9")).expect("an object"), b"\0\0\0fsecond");
    assert_eq!(store.carry_out(link), StepEnd::Done);
    assert_eq!(fs::read(store.path("name")).expect("a file"), b"\0\0\0fsecond");
    assert_eq!(store.carry_out(StoreStep::DropOld { inode: InodeId(9) }), StepEnd::Done);
    assert!(!store.object("9.1").exists());
    let mut bytes = Vec::new();
    let file = store.worker.reader().open_object(InodeId(9));
    file.and_then(|mut file| file.read_to_end(&mut bytes)).expect("read");
    assert_eq!(bytes, b"\0\0\0fsecond");
    store.worker.close();
}

/// The program of children: this one, started for this test alone.
#[test]
fn serve__as_a_child() {
    if std::env::args().any(|argument| argument == "--exact") {
        // By hand it has no such input, and there is nothing to do.
        let _ = super::serve();
    }
}
