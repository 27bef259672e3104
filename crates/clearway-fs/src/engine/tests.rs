//! The log behind requests, without a kernel: what is answered when, what is there after a reopening,
//! and any operations against a model in memory.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{self, Receiver};

use clearway_proto::base::RandomKey;
use clearway_proto::staging::{LogShares, NodeKind};
use rustix::io::Errno;

use super::*;
use crate::bytes::SeekTarget;
use crate::names::{Attributes, Maker, NamePlace, RenameMode};
use crate::testing::{TestDirectory, open_log};
use clearway_proto::staging::InodeId;

const SIZES: LogSizes = LogSizes { total: Bytes(64 << 20), inodes: 1000 };
const MAKER: Maker = Maker { uid: 5, gid: 6, mode: 0o640 };
const MEMORY: u64 = 16 << 20;
/// Writes of a mebibyte that fit into a log of this size.
const LONG_WRITES: u64 = 32;

/// A log that is open.
struct Trial {
    engine: Arc<Engine>,
    thread: Option<JoinHandle<()>>,
}

impl Trial {
    fn open(path: &Path) -> Self {
        let log = open_log(path, SIZES).expect("a log");
        let (engine, thread) =
            Engine::open(log, SIZES, MEMORY, OrphanPolicy::Forget, Arc::new(|_: &str| ()))
                .expect("opened");
        Self { engine, thread: Some(thread) }
    }

    fn change<T: Send + 'static>(
        &self,
        attempt: impl FnMut(&mut Core) -> Result<T, Held> + Send + 'static,
    ) -> Result<T, Errno> {
        let (sender, receiver) = mpsc::channel();
        self.engine.change(
            ChangeSource::User(MAKER.uid),
            Box::new(move |made| {
                let _ = sender.send(made);
            }),
            attempt,
        );
        receiver.recv().expect("an answer")
    }

    fn make(&self, parent: InodeId, name: &str, node: NodeKind) -> Result<Attributes, Errno> {
        let place = place(parent, name);
        self.change(move |core| core.make(&place, node.clone(), MAKER))
    }

    fn write(&self, inode: InodeId, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let loan = Arc::new(self.engine.arena.fill(bytes).expect("memory"));
        let digest = clearway_proto::base::xxh3(bytes);
        self.change(move |core| core.write(inode, offset, &loan, digest))
    }

    fn read(&self, inode: InodeId, offset: u64, length: u32) -> Result<Vec<u8>, Errno> {
        let mut outcome = Err(Errno::IO);
        self.engine.read(inode, offset, length, |bytes| outcome = bytes.map(<[u8]>::to_vec));
        outcome
    }

    fn synced(&self, inode: InodeId) -> Receiver<Result<(), Errno>> {
        let (sender, receiver) = mpsc::channel();
        self.engine.wait(|core| {
            core.wait_for(
                inode,
                Box::new(move |done| {
                    let _ = sender.send(done);
                }),
            );
        });
        receiver
    }

    fn lookup(&self, parent: InodeId, name: &str) -> Result<Attributes, Errno> {
        self.engine.look(|core| core.lookup(&place(parent, name)))
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        self.engine.close();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn place(parent: InodeId, name: &str) -> NamePlace {
    NamePlace::new(parent, name.as_bytes()).expect("a name")
}

#[test]
fn open__what_was_written_is_there_again_and_orphans_are_not() {
    let directory = TestDirectory::new();
    let trial = Trial::open(directory.path());
    let file = trial.make(InodeId::ROOT, "file", NodeKind::File).expect("made").inode;
    let gone = trial.make(InodeId::ROOT, "gone", NodeKind::File).expect("made").inode;
    trial.write(file, 3, b"bytes").expect("written");
    trial.write(gone, 0, &[7; 100_000]).expect("written");
    let unlinked = place(InodeId::ROOT, "gone");
    trial.change(move |core| core.unlink(&unlinked)).expect("unlinked");
    assert_eq!(trial.read(gone, 99_999, 5), Ok(vec![7]), "a program still has it open");
    trial.synced(file).recv().expect("an answer").expect("durable");
    drop(trial);
    let trial = Trial::open(directory.path());
    let found = trial.lookup(InodeId::ROOT, "file").expect("there");
    assert_eq!((found.inode, found.size, found.uid, found.gid), (file, 8, 5, 6));
    assert_eq!(trial.read(file, 0, 100), Ok(b"\0\0\0bytes".to_vec()));
    assert_eq!(trial.lookup(InodeId::ROOT, "gone"), Err(Errno::NOENT));
    assert_eq!(trial.engine.look(|core| core.attributes(gone)), Err(Errno::NOENT), "forgotten");
}

#[test]
fn open__long_writes_are_read_again_without_a_rest_between_their_parts() {
    let directory = TestDirectory::new();
    let trial = Trial::open(directory.path());
    let file = trial.make(InodeId::ROOT, "file", NodeKind::File).expect("made").inode;
    let bytes = vec![7; 1 << 20];
    for mib in 0..LONG_WRITES {
        trial.write(file, mib << 20, &bytes).expect("written");
    }
    trial.synced(file).recv().expect("an answer").expect("synced");
    drop(trial);
    let (sender, opened) = mpsc::channel();
    std::thread::spawn(move || {
        let trial = Trial::open(directory.path());
        let _ = sender.send(trial.read(file, (LONG_WRITES - 1) << 20, 5));
    });
    // A rest for each 128 KiB would make it three times as much.
    let read = opened.recv_timeout(Duration::from_secs(15)).expect("a log that is open");
    assert_eq!(read, Ok(vec![7; 5]));
}

#[test]
fn counts__changes_bytes_stalls_and_times_until_they_are_durable() {
    let directory = TestDirectory::new();
    let trial = Trial::open(directory.path());
    let file = trial.make(InodeId::ROOT, "file", NodeKind::File).expect("made").inode;
    trial.write(file, 3, b"bytes").expect("written");
    trial.synced(file).recv().expect("an answer").expect("durable");
    let count = || trial.engine.look(|core| core.counts().0.clone());
    let before = count();
    assert_eq!((before.changes, before.written_bytes, before.stalls), (2, 5, 0));
    trial.synced(file).recv().expect("an answer").expect("durable");
    assert_eq!(count().syncs, before.syncs, "there was nothing to wait for");
    let (other, mut tries) = (place(InodeId::ROOT, "other"), 0);
    let second_try = trial.change(move |core| {
        tries += 1;
        if tries == 1 {
            core.make(&other, NodeKind::File, MAKER)?;
            return Err(Held::Lacks(Shortage::Common));
        }
        Ok(())
    });
    second_try.expect("it is tried again when something is durable");
    let after = count();
    assert_eq!((after.changes, after.stalls), (3, 1));
    assert_eq!(trial.engine.look(|core| core.counts().1), 0);
    let (last, (sender, receiver)) = (place(InodeId::ROOT, "last"), mpsc::channel());
    trial.engine.wait(|core| {
        core.make(&last, NodeKind::File, MAKER).expect("made");
        core.wait_for_all(Box::new(move |done| sender.send(done).expect("heard")));
    });
    receiver.recv().expect("an answer").expect("durable");
    assert_eq!(count().syncs.count(), after.syncs.count() + 1);
}

#[test]
fn wait_leading__every_one_of_many_is_answered_and_the_disk_is_left_to_its_threads() {
    let directory = TestDirectory::new();
    let trial = Trial::open(directory.path());
    let sync_leading = |inode| {
        let (sender, receiver) = mpsc::channel();
        trial.engine.wait_leading(|core| {
            core.wait_for(inode, Box::new(move |done| sender.send(done).expect("awaited")));
        });
        receiver.recv_timeout(Duration::from_secs(20)).expect("an answer").expect("durable");
    };
    std::thread::scope(|scope| {
        for name in ["a", "b", "c", "d", "e"] {
            let (trial, sync_leading) = (&trial, &sync_leading);
            scope.spawn(move || {
                let file = trial.make(InodeId::ROOT, name, NodeKind::File).expect("made").inode;
                for round in 0..50 {
                    trial.write(file, round, name.as_bytes()).expect("written");
                    // Some leave the disk to the thread that leads.
                    if name == "e" {
                        trial.synced(file).recv().expect("an answer").expect("durable");
                    } else {
                        sync_leading(file);
                    }
                }
            });
        }
    });
    let last = trial.make(InodeId::ROOT, "last", NodeKind::File).expect("made").inode;
    trial.synced(last).recv_timeout(Duration::from_secs(20)).expect("an answer").expect("durable");
}

#[test]
fn write__a_user_who_fills_the_log_leaves_space_for_another() {
    let directory = TestDirectory::new();
    let trial = Trial::open(directory.path());
    trial.engine.look(|core| core.shares = Some(LogShares::default()));
    let owned = |name: &str, uid| {
        let (place, maker) = (place(InodeId::ROOT, name), Maker { uid, ..MAKER });
        let made = trial.change(move |core| core.make(&place, NodeKind::File, maker));
        made.expect("made").inode
    };
    let bytes = vec![3; 1 << 20];
    // Writes until the log says no: how many MiB, and how it says it.
    let fill = |inode| {
        let mut written = 0;
        loop {
            match trial.write(inode, written << 20, &bytes) {
                Ok(()) => written += 1,
                Err(why) => return (written, why),
            }
            trial.synced(inode).recv().expect("an answer").expect("durable");
        }
    };
    let (alice, bob) = (owned("alice", 1), owned("bob", 2));
    let (taken, refused) = fill(alice);
    assert_eq!(refused, Errno::DQUOT);
    assert!((16..48).contains(&taken), "{taken} MiB of 64");
    let (others, refused) = fill(bob);
    assert!(others >= 10, "{others} MiB of a segment of 16 are left for another user");
    assert!(refused == Errno::DQUOT || refused == Errno::NOSPC, "{refused}");
    trial.write(owned("carol", 3), 0, &bytes[..4096]).expect("a third user has a part");
}

#[test]
fn make__a_user_who_takes_all_inodes_leaves_some_for_another() {
    let directory = TestDirectory::new();
    let trial = Trial::open(directory.path());
    trial.engine.look(|core| core.shares = Some(LogShares::default()));
    let make = |uid: u32, number: u32| {
        let place = place(InodeId::ROOT, &format!("{uid}-{number}"));
        trial.change(move |core| core.make(&place, NodeKind::File, Maker { uid, ..MAKER }))
    };
    let refused = |uid| (0..).find_map(|number| Some((number, make(uid, number).err()?)));
    let (alice, why) = refused(1).expect("refused");
    assert_eq!((alice, why), (SIZES.inodes * 7 / 8 - 1, Errno::DQUOT), "and the root directory");
    let (bob, why) = refused(2).expect("refused");
    assert!(bob > 50, "{bob} of the reserve");
    assert!(why == Errno::DQUOT || why == Errno::NOSPC, "{why}");
}

#[test]
fn link__names_of_a_file_count_as_inodes_do() {
    for shares in [None, Some(LogShares::default())] {
        let directory = TestDirectory::new();
        let trial = Trial::open(directory.path());
        trial.engine.look(|core| core.shares = shares);
        let make = |name: String| {
            let place = place(InodeId::ROOT, &name);
            trial.change(move |core| core.make(&place, NodeKind::File, Maker { uid: 1, ..MAKER }))
        };
        let file = make("file".to_owned()).expect("made").inode;
        let link = |number: u32| {
            let place = place(InodeId::ROOT, &format!("name-{number}"));
            trial.change(move |core| core.link(file, &place))
        };
        let refused = (0..).find_map(|number| Some((number, link(number).err()?)));
        let (names, why) = refused.expect("refused");
        let expected = match shares {
            // The root directory, and the file with its first name.
            None => (SIZES.inodes - 2, Errno::NOSPC),
            Some(_) => (SIZES.inodes * 7 / 8 - 2, Errno::DQUOT),
        };
        assert_eq!((names, why), expected);
        assert_eq!(make("other".to_owned()).err(), Some(why), "they are one bound");
        let gone = place(InodeId::ROOT, "name-0");
        trial.change(move |core| core.unlink(&gone)).expect("removed");
        link(names).expect("there is room for a name again");
    }
}

#[test]
fn forget__an_unlinked_file_goes_when_the_kernel_lets_go_of_it() {
    let directory = TestDirectory::new();
    let trial = Trial::open(directory.path());
    let file = trial.make(InodeId::ROOT, "file", NodeKind::File).expect("made").inode;
    let again = trial.lookup(InodeId::ROOT, "file").expect("there").inode;
    assert_eq!(file, again);
    let name = place(InodeId::ROOT, "file");
    trial.change(move |core| core.unlink(&name)).expect("unlinked");
    trial.engine.look(|core| core.forget(file, 1));
    assert!(trial.engine.look(|core| core.attributes(file)).is_ok(), "one reference is left");
    trial.engine.look(|core| core.forget(file, 1));
    assert_eq!(trial.engine.look(|core| core.attributes(file)), Err(Errno::NOENT));
}

#[test]
fn write__a_full_log_is_said_at_the_write_and_not_at_the_sync() {
    let directory = TestDirectory::new();
    let trial = Trial::open(directory.path());
    let file = trial.make(InodeId::ROOT, "file", NodeKind::File).expect("made").inode;
    let bytes = vec![3; 1 << 20];
    let taken = (0..100).take_while(|mib| trial.write(file, mib << 20, &bytes).is_ok()).count();
    assert!((20..60).contains(&taken), "{taken} MiB of 64");
    assert_eq!(trial.write(file, 0, &bytes), Err(Errno::NOSPC));
    assert_eq!(trial.synced(file).recv(), Ok(Ok(())));
    let last = (taken as u64 - 1) << 20;
    assert_eq!(trial.read(file, last, 5), Ok(vec![3; 5]));
    // Space comes back with what is removed.
    let name = place(InodeId::ROOT, "file");
    trial.change(move |core| core.unlink(&name)).expect("unlinked");
    trial.engine.look(|core| core.forget(file, 1));
    trial.engine.signal.raise();
    let other = loop {
        match trial.make(InodeId::ROOT, "other", NodeKind::File) {
            Ok(other) => break other.inode,
            Err(why) => assert_eq!(why, Errno::NOSPC),
        }
    };
    while trial.write(other, 0, &bytes).is_err() {}
    assert_eq!(trial.synced(other).recv(), Ok(Ok(())));
}

#[test]
fn write__small_files_that_stay_do_not_fill_the_log() {
    let directory = TestDirectory::new();
    let trial = Trial::open(directory.path());
    let root = InodeId::ROOT;
    let long = trial.make(root, "long", NodeKind::File).expect("made").inode;
    let mut kept = Vec::new();
    let mut plan = Vec::new();
    // Each write takes the place of the one before; three times the log in all.
    for round in 0..96 {
        let name = round.to_string();
        let small = trial.make(root, &name, NodeKind::File).expect("made").inode;
        trial.write(small, 0, &[round; 5000]).expect("written");
        let bytes = vec![round; 1 << 20];
        trial.write(long, 0, &bytes).expect("written");
        trial.write(long, 1 << 20, &bytes).expect("written");
        assert_eq!(trial.synced(long).recv(), Ok(Ok(())));
        kept.push(small);
        if round == 20 {
            plan = trial.engine.look(|core| core.plan_read(kept[0], 0, 5000)).expect("a plan");
        }
        let other = usize::from(round) * 7 % kept.len();
        assert_eq!(trial.read(kept[other], 4990, 20), Ok(vec![other as u8; 10]));
    }
    assert!(trial.engine.look(|core| core.moved_bytes()) > 0);
    // What a reader planned before holds no more, and it plans again.
    assert_eq!(trial.engine.fill(&plan), Ok(None));
    assert_eq!(trial.read(kept[0], 0, 6000), Ok(vec![0; 5000]));
    drop(trial);
    let trial = Trial::open(directory.path());
    for (round, small) in (0..).zip(kept) {
        assert_eq!(trial.read(small, 0, 6000), Ok(vec![round; 5000]));
    }
    assert_eq!(trial.read(long, 0, 10), Ok(vec![95; 10]));
}

#[test]
fn read__damaged_bytes_of_the_log_are_not_given_away() {
    let directory = TestDirectory::new();
    let trial = Trial::open(directory.path());
    let file = trial.make(InodeId::ROOT, "file", NodeKind::File).expect("made").inode;
    trial.write(file, 0, &[0x5a; 8192]).expect("written");
    drop(trial);
    let segment = directory.path().join("segments/00000000");
    let bytes = std::fs::read(&segment).expect("a segment");
    let at = bytes.windows(4096).position(|window| window == [0x5a; 4096]).expect("the body");
    let damaged = File::options().write(true).open(&segment).expect("a segment");
    damaged.write_all_at(&[0x5b], at as u64 + 100).expect("damaged");
    let said = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&said);
    let log = open_log(directory.path(), SIZES).expect("a log");
    let reporter: Reporter =
        Arc::new(move |sentence| kept.lock().expect("not poisoned").push(sentence.to_owned()));
    let (engine, thread) =
        Engine::open(log, SIZES, MEMORY, OrphanPolicy::Forget, reporter).expect("opened");
    let trial = Trial { engine, thread: Some(thread) };
    assert_eq!(trial.read(file, 0, 10), Err(Errno::IO));
    let said = said.lock().expect("not poisoned").concat();
    assert!(said.contains("file has damaged bytes in the log"), "{said}");
}

#[test]
fn rename__keeps_the_other_if_asked_and_makes_an_orphan_of_it_otherwise() {
    let directory = TestDirectory::new();
    let trial = Trial::open(directory.path());
    for name in ["one", "two"] {
        trial.make(InodeId::ROOT, name, NodeKind::File).expect("made");
    }
    let rename = |mode| {
        let (from, to) = (place(InodeId::ROOT, "one"), place(InodeId::ROOT, "two"));
        trial.change(move |core| core.rename(&from, &to, mode))
    };
    assert_eq!(rename(RenameMode::KeepOther), Err(Errno::EXIST));
    let two = trial.lookup(InodeId::ROOT, "two").expect("there").inode;
    assert_eq!(rename(RenameMode::Replace), Ok(()));
    assert_eq!(trial.engine.look(|core| core.attributes(two)).expect("open").links, 0);
    assert_eq!(trial.lookup(InodeId::ROOT, "one"), Err(Errno::NOENT));
}

#[test]
fn class_of__the_nearest_counts_and_is_there_after_a_reopening() {
    use clearway_proto::base::Class;
    let directory = TestDirectory::new();
    let trial = Trial::open(directory.path());
    let top = trial.make(InodeId::ROOT, "ckpt", NodeKind::Directory).expect("made").inode;
    let file = trial.make(top, "a", NodeKind::File).expect("made").inode;
    let class = |trial: &Trial, inode| trial.engine.look(|core| core.class_of(inode));
    assert_eq!(class(&trial, file), Class::BestEffort);
    trial.change(|core| core.set_class(InodeId::ROOT, Some(Class::LowLatency))).expect("set");
    assert_eq!(class(&trial, file), Class::LowLatency);
    let rules = ["/ckpt/*=bulk".parse().expect("a rule")];
    trial.change(move |core| core.set_rules(&rules)).expect("set");
    assert_eq!((class(&trial, file), class(&trial, top)), (Class::Bulk, Class::LowLatency));
    trial.change(move |core| core.set_class(file, Some(Class::Scavenger))).expect("set");
    drop(trial);
    let trial = Trial::open(directory.path());
    trial.engine.look(|core| core.load_rules());
    let file = trial.lookup(top, "a").expect("there").inode;
    assert_eq!(class(&trial, file), Class::Scavenger);
    trial.change(move |core| core.set_class(file, None)).expect("set");
    assert_eq!(class(&trial, file), Class::Bulk);
    let name = clearway_proto::staging::EntryName::new(b"user.clearway.class").expect("a name");
    let nonsense = trial.change(move |core| core.set_xattr(file, name.clone(), b"fast"));
    assert_eq!(nonsense, Err(Errno::INVAL));
    assert_eq!(class(&trial, file), Class::Bulk);
}

#[test]
fn class_of__a_limit_holds_for_attributes_rules_and_the_drain() {
    use clearway_proto::base::Class;
    let directory = TestDirectory::new();
    let trial = Trial::open(directory.path());
    let file = trial.make(InodeId::ROOT, "a", NodeKind::File).expect("made").inode;
    trial
        .change(|core| {
            core.limit_class(Some(Class::Bulk));
            core.set_class(InodeId::ROOT, Some(Class::Control))
        })
        .expect("set");
    let both = |trial: &Trial| {
        trial.engine.look(|core| {
            let of_requests = core.class_of(file);
            let rules = std::mem::take(&mut core.classes);
            let of_drain = rules.class_in(core.tree(), file);
            core.classes = rules;
            (of_requests, of_drain)
        })
    };
    assert_eq!(both(&trial), (Class::Bulk, Class::Bulk));
    let rules = ["/a=low-latency".parse().expect("a rule")];
    trial.change(move |core| core.set_rules(&rules)).expect("set");
    assert_eq!(both(&trial), (Class::Bulk, Class::Bulk), "rules that are read again");
    trial.change(move |core| core.set_class(file, Some(Class::Scavenger))).expect("set");
    assert_eq!(both(&trial), (Class::Scavenger, Class::Scavenger), "less urgent ones stay");
}

#[test]
fn wish__what_is_cancelled_or_explicit_stays_out_until_it_changes() {
    use crate::classes::wish;
    use clearway_proto::staging::{DrainWish, EntryName};
    let directory = TestDirectory::new();
    let trial = Trial::open(directory.path());
    let set = trial.make(InodeId::ROOT, "set", NodeKind::Directory).expect("made").inode;
    let file = trial.make(InodeId::ROOT, "a", NodeKind::File).expect("made").inode;
    let wish_of = |trial: &Trial| trial.engine.look(|core| wish(core.tree(), file));
    trial.write(file, 0, b"bytes").expect("written");
    assert_eq!(wish_of(&trial), DrainWish::All);
    trial.change(move |core| core.cancel(file)).expect("cancelled");
    assert_eq!(wish_of(&trial), DrainWish::Nothing);
    let name = |name: &str| EntryName::new(name.as_bytes()).expect("a name");
    let explicit = name("user.clearway.publish");
    let set_explicit = |inode, value: &'static [u8]| {
        let name = explicit.clone();
        trial.change(move |core| core.set_xattr(inode, name.clone(), value))
    };
    assert_eq!(set_explicit(file, b"explicit"), Err(Errno::INVAL), "for directories");
    assert_eq!(set_explicit(set, b"always"), Err(Errno::INVAL), "its only value");
    set_explicit(set, b"explicit").expect("set");
    let cancelled = name("user.clearway.cancelled");
    let by_hand = trial.change(move |core| core.set_xattr(file, cancelled.clone(), b"7"));
    assert_eq!(by_hand, Err(Errno::INVAL));
    drop(trial);
    let trial = Trial::open(directory.path());
    assert_eq!(wish_of(&trial), DrainWish::Nothing, "it is in the log");
    trial.write(file, 0, b"other").expect("written");
    assert_eq!(wish_of(&trial), DrainWish::All, "it changed");
    let (from, to) = (place(InodeId::ROOT, "a"), place(set, "a"));
    trial.change(move |core| core.rename(&from, &to, RenameMode::Replace)).expect("renamed");
    assert_eq!(wish_of(&trial), DrainWish::Unseen);
}

/// Files of a model: their bytes, and which of them were written.
#[derive(Clone, Default)]
struct ModelFile {
    bytes: Vec<u8>,
    is_written: Vec<bool>,
}

impl ModelFile {
    fn resize(&mut self, size: usize) {
        self.bytes.resize(size, 0);
        self.is_written.resize(size, false);
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.resize(self.bytes.len().max(offset + bytes.len()));
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.is_written[offset..offset + bytes.len()].fill(true);
    }

    /// Where `lseek(2)` would go.
    fn seek(&self, offset: usize, wanted: SeekTarget) -> Result<u64, Errno> {
        if offset >= self.bytes.len() {
            return Err(Errno::NXIO);
        }
        let is_wanted = |at: &usize| self.is_written[*at] == (wanted == SeekTarget::Written);
        match (offset..self.bytes.len()).find(is_wanted) {
            Some(at) => Ok(at as u64),
            None if wanted == SeekTarget::Hole => Ok(self.bytes.len() as u64),
            None => Err(Errno::NXIO),
        }
    }
}

#[test]
fn requests__any_writes_reads_and_cuts_are_those_of_a_model_across_reopenings() {
    for seed in 0..4 {
        let directory = TestDirectory::new();
        let mut stream = RandomKey::new(seed).purpose("requests of files").stream();
        let mut files: BTreeMap<InodeId, ModelFile> = BTreeMap::new();
        let mut trial = Trial::open(directory.path());
        for step in 0..400 {
            if files.len() < 3 {
                let made = trial.make(InodeId::ROOT, &format!("f{step}"), NodeKind::File);
                files.insert(made.expect("made").inode, ModelFile::default());
                continue;
            }
            let which = stream.below(files.len() as u64) as usize;
            let (inode, file) = files.iter_mut().nth(which).expect("a file");
            let (inode, offset) = (*inode, stream.below(60_000));
            match stream.below(10) {
                0..4 => {
                    let length = 1 + stream.below(20_000) as usize;
                    let bytes: Vec<u8> = (0..length).map(|i| (i as u64 + step) as u8).collect();
                    trial.write(inode, offset, &bytes).expect("written");
                    file.write(offset as usize, &bytes);
                }
                4 => {
                    trial.change(move |core| core.truncate(inode, offset)).expect("cut");
                    file.resize(offset as usize);
                }
                5 => assert_eq!(trial.synced(inode).recv(), Ok(Ok(()))),
                6 => {
                    let wanted = [SeekTarget::Written, SeekTarget::Hole][stream.below(2) as usize];
                    let found = trial.engine.look(|core| core.seek(inode, offset, wanted));
                    assert_eq!(found, file.seek(offset as usize, wanted), "seed {seed}, {step}");
                }
                7 if stream.below(10) == 0 => {
                    drop(trial);
                    trial = Trial::open(directory.path());
                }
                _ => {
                    let length = stream.below(40_000) as u32;
                    let rest = file.bytes.get(offset as usize..).unwrap_or_default();
                    let expected = &rest[..rest.len().min(length as usize)];
                    let found = trial.read(inode, offset, length).expect("read");
                    assert!(found == expected, "seed {seed}, step {step}: {offset} {length}");
                }
            }
        }
    }
}
