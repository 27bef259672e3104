//! A worker on a real directory.

mod against_model;
mod child;
mod strangers;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clearway_proto::base::{BitsPerSec, Class, xxh3};
use clearway_proto::staging::{
    CopyPiece, EntryName, InodeId, LogPlace, StepEnd, StoreAttributes, StoreBase, StorePath,
    StoreStep, StoreTask, WallNs,
};
use clearway_runtime::wake_signal::WakeSignal;
use rustix::event::{PollFd, PollFlags};

use super::{DrainAllowance, OBJECTS_NAME, StoreOptions, StoreReader, StoreWorker};
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

/// Returns where a path of a store is.
fn path_of(store: &Path, path: &StorePath) -> PathBuf {
    let mut real = store.to_owned();
    if path.base == StoreBase::Objects {
        real.push(OBJECTS_NAME);
    }
    real.extend(path.names.iter().map(|name| OsStr::from_bytes(name.bytes())));
    real
}

/// A log that has one body after the other.
struct TestLog {
    segment: File,
    blocks: u32,
}

impl TestLog {
    fn new(log: &Path) -> Self {
        fs::create_dir_all(log.join("segments")).expect("a directory");
        let mut options = fs::OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let segment = options.open(log.join("segments/00000000")).expect("a segment");
        Self { segment, blocks: 0 }
    }

    /// Writes a body; returns the piece that has all of it.
    fn body(&mut self, bytes: &[u8], offset: u64) -> CopyPiece {
        let place = LogPlace { segment: 0, block: self.blocks };
        self.segment.write_all_at(bytes, place.offset()).expect("written");
        self.blocks += (bytes.len() as u32).div_ceil(4096);
        let (length, digest) = (bytes.len() as u32, xxh3(bytes));
        CopyPiece { place, length, digest, skip: 0, offset, bytes: length }
    }

    fn read(&self, piece: &CopyPiece) -> Vec<u8> {
        let mut bytes = vec![0; piece.length as usize];
        self.segment.read_exact_at(&mut bytes, piece.place.offset()).expect("read");
        bytes
    }
}

/// A log, a store, and a worker.
struct TestStore {
    directory: PathBuf,
    /// Goes away with this.
    kept: Option<TestDirectory>,
    worker: StoreWorker,
    signal: Arc<WakeSignal>,
    log: TestLog,
    number: u64,
}

impl TestStore {
    fn new(change: impl FnOnce(&mut StoreOptions)) -> Self {
        let directory = TestDirectory::new();
        fs::create_dir(directory.path().join("store")).expect("a directory");
        let mut store = Self::at(directory.path(), change);
        store.kept = Some(directory);
        store
    }

    /// Opens a worker on the store below a directory.
    fn at(directory: &Path, change: impl FnOnce(&mut StoreOptions)) -> Self {
        let (store, log) = (directory.join("store"), directory.join("log"));
        let signal = Arc::new(WakeSignal::new().expect("a counter"));
        let test_log = TestLog::new(&log);
        let mut options = StoreOptions::new(store, log);
        change(&mut options);
        let worker = StoreWorker::new(options, Arc::clone(&signal)).expect("a worker");
        let (directory, kept) = (directory.to_owned(), None);
        Self { directory, kept, worker, signal, log: test_log, number: 0 }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join("store").join(name)
    }

    fn object(&self, name: &str) -> PathBuf {
        self.path(OBJECTS_NAME).join(name)
    }

    fn begin(&mut self, step: &StoreStep) -> u64 {
        self.number += 1;
        let step = step.clone();
        self.worker.begin(StoreTask { number: self.number, class: Class::Bulk, step });
        self.number
    }

    /// Waits for the end of the next step that ends.
    fn wait(&mut self) -> (u64, StepEnd) {
        loop {
            if let Some(end) = self.worker.poll() {
                return end;
            }
            let mut fds = [PollFd::new(&*self.signal, PollFlags::IN)];
            rustix::event::poll(&mut fds, None).expect("poll");
            self.signal.clear();
        }
    }

    fn carry_out(&mut self, step: &StoreStep) -> StepEnd {
        let number = self.begin(step);
        let (ended, end) = self.wait();
        assert_eq!(ended, number);
        end
    }

    fn copy(&mut self, inode: u64, keep: u64, size: u64, pieces: Vec<CopyPiece>) -> StepEnd {
        let (inode, attributes) = (InodeId(inode), attributes(0o640, 5_000_000_009));
        self.carry_out(&StoreStep::Copy { inode, is_named: false, keep, size, pieces, attributes })
    }
}

fn inode_of(path: &Path) -> u64 {
    fs::symlink_metadata(path).expect("there").ino()
}

#[test]
fn begin__a_file_is_copied_linked_and_copied_again() {
    let mut store = TestStore::new(|_| {});
    assert_eq!(store.carry_out(&StoreStep::Sweep { keeps: Vec::new() }), StepEnd::Done);
    let piece = store.log.body(b"first", 3);
    assert_eq!(store.copy(9, 0, 10, vec![piece]), StepEnd::Done);
    assert_eq!(fs::read(store.object("9")).expect("an object"), b"\0\0\0first\0\0");
    let link = StoreStep::Link { inode: InodeId(9), to: path("name") };
    assert_eq!(store.carry_out(&link), StepEnd::Done);
    assert_eq!(inode_of(&store.path("name")), inode_of(&store.object("9")));
    let found = fs::metadata(store.path("name")).expect("there");
    assert_eq!((found.mode() & 0o7777, found.mtime(), found.mtime_nsec()), (0o640, 5, 9));
    // The name keeps the old bytes until it gets the new ones.
    let piece = store.log.body(b"second", 4);
    assert_eq!(store.copy(9, 6, 10, vec![piece]), StepEnd::Done);
    assert_eq!(fs::read(store.path("name")).expect("a file"), b"\0\0\0first\0\0");
    assert_eq!(fs::read(store.object("9")).expect("an object"), b"\0\0\0fsecond");
    assert_eq!(store.carry_out(&link), StepEnd::Done);
    assert_eq!(fs::read(store.path("name")).expect("a file"), b"\0\0\0fsecond");
    assert_eq!(store.carry_out(&StoreStep::DropOld { inode: InodeId(9) }), StepEnd::Done);
    assert!(!store.object("9.1").exists());
    let mut bytes = Vec::new();
    let file = store.worker.reader().open_object(InodeId(9));
    file.and_then(|mut file| file.read_to_end(&mut bytes)).expect("read");
    assert_eq!(bytes, b"\0\0\0fsecond");
    store.worker.close();
}

#[test]
fn copy__a_rate_bounds_what_goes_to_the_store() {
    let mut store = TestStore::new(|options| options.rate = Some(BitsPerSec::mega(160)));
    assert_eq!(store.carry_out(&StoreStep::Sweep { keeps: Vec::new() }), StepEnd::Done);
    let bytes = vec![7; 1 << 20];
    let pieces: Vec<CopyPiece> = (0..5).map(|at| store.log.body(&bytes, at << 20)).collect();
    let begun = clearway_runtime::clock::now();
    assert_eq!(store.copy(9, 0, 5 << 20, pieces), StepEnd::Done);
    // A megabyte leaves at once.
    let took = clearway_runtime::clock::now().since(begun);
    assert!(took.0 >= (4 << 20) * 8_000 / 160, "{took}");
    assert_eq!(fs::read(store.object("9")).expect("an object"), vec![7; 5 << 20]);
    store.worker.close();
}

/// Gives little until it was asked some times, and then more than any disk takes.
#[derive(Debug, Default)]
struct GrowingAllowance(Mutex<Vec<usize>>);

impl DrainAllowance for GrowingAllowance {
    fn take(&self, steps: usize) -> BitsPerSec {
        let mut asked = self.0.lock().expect("no fault");
        asked.push(steps);
        BitsPerSec(if asked.len() < 4 { 1 } else { 1 << 40 })
    }
}

#[test]
fn copy__an_allowance_that_grows_reaches_a_copy_under_way() {
    let allowance = Arc::new(GrowingAllowance::default());
    let given: Arc<dyn DrainAllowance> = allowance.clone();
    let mut store = TestStore::new(|options| options.allowance = Some(given.clone()));
    let bytes = vec![7; 1 << 20];
    let pieces: Vec<CopyPiece> = (0..3).map(|at| store.log.body(&bytes, at << 20)).collect();
    assert_eq!(store.carry_out(&StoreStep::Sweep { keeps: Vec::new() }), StepEnd::Done);
    // At the first rate two megabytes would take months.
    assert_eq!(store.copy(9, 0, 3 << 20, pieces), StepEnd::Done);
    store.worker.close();
    let asked = allowance.0.lock().expect("no fault");
    assert!(asked.contains(&1), "{asked:?}");
}

/// The program of children: this one, started for this test alone.
#[test]
fn serve__as_a_child() {
    if std::env::args().any(|argument| argument == "--exact") {
        // By hand it has no such input, and there is nothing to do.
        let _ = super::serve();
    }
}
