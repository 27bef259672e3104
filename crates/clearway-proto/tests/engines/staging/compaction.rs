//! Compaction: files that stay do not fill a log, and nothing is lost while their bytes move.

use std::collections::BTreeMap;

use clearway_proto::base::{Bytes, Class, Nanos, RandomKey, xxh3};
use clearway_proto::staging::{
    ByteSource, ClientId, CopyPiece, DrainNotice, DrainPolicy, DrainWish, EntryName, GroupNumber,
    InodeId, LogCommand, LogError, LogEvent, LogFile, LogId, LogLayout, LogOrigin, LogPlace,
    NodeKind, StepEnd, StoreDrain, StoreDrainConfig, StoreStep, StoreTask, TreeChange, WallNs,
    inspect_log,
};
use clearway_proto::wire::{Fault, FileKind, Span};

use super::disk::CrashKind;
use super::machine::{
    ARENA, Machine, SEGMENT_SIZE, SEGMENTS, SLOT, SLOTS, SNAPSHOT_SIZE, SNAPSHOTS, SUPERBLOCK,
    blank, segment_files,
};

const CLIENT: ClientId = ClientId(4);

/// A log with files that stay.
struct KeptLog {
    machine: Machine,
    last: u64,
    /// Their bytes, all of them durable.
    kept: BTreeMap<InodeId, Vec<u8>>,
    /// Looks at crashes after each operation of the disk.
    crashes: Option<RandomKey>,
}

impl KeptLog {
    fn new() -> Self {
        let machine = Machine::open(blank(), LogOrigin::New(LogId(3)), None).expect("a new log");
        Self { machine, last: 0, kept: BTreeMap::new(), crashes: None }
    }

    fn append(&mut self, change: TreeChange, body: Span) -> Result<(), LogError> {
        let (client, number, class) = (CLIENT, self.last + 1, Class::Bulk);
        let call = change.clone();
        self.machine.command(LogCommand::Append { client, number, class, change: call, body });
        let refused = self.machine.events.drain(..).find_map(|event| match event {
            LogEvent::Refused { why, .. } => Some(why),
            _ => None,
        });
        self.machine.command(LogCommand::Commit);
        if refused == Some(LogError::Full) && !self.machine.disk.pending.is_empty() {
            // Space may come without a further call.
            self.settle();
            return self.append(change, body);
        }
        self.last += u64::from(refused.is_none());
        refused.map_or(Ok(()), Err)
    }

    fn change(&mut self, change: TreeChange) -> Result<(), LogError> {
        self.append(change, Span::EMPTY)
    }

    fn write(&mut self, inode: InodeId, offset: u64, bytes: &[u8]) -> Result<(), LogError> {
        let slot = self.last as usize % SLOTS * SLOT;
        self.machine.arena[slot..slot + bytes.len()].copy_from_slice(bytes);
        let (length, digest) = (bytes.len() as u32, xxh3(bytes));
        let body = Span { region: ARENA, offset: slot as u64, length };
        self.append(TreeChange::Write { inode, offset, length, digest }, body)
    }

    fn create(&mut self) -> Result<InodeId, LogError> {
        let inode = self.machine.state().tree().next_inode();
        let (parent, name, node) = (InodeId::ROOT, name(inode), NodeKind::File);
        self.change(TreeChange::Create { inode, parent, name, node, mode: 0o600, uid: 1, gid: 1 })?;
        Ok(inode)
    }

    /// Makes a file that stays.
    fn keep(&mut self, length: usize) -> Result<InodeId, LogError> {
        let inode = self.create()?;
        let bytes: Vec<u8> =
            (0..length).map(|at| (inode.0 as usize * 31 + at / 100) as u8).collect();
        self.write(inode, 0, &bytes)?;
        self.settle();
        self.kept.insert(inode, bytes);
        Ok(inode)
    }

    fn remove(&mut self, inode: InodeId) -> Result<(), LogError> {
        self.kept.remove(&inode);
        self.change(TreeChange::Unlink { parent: InodeId::ROOT, name: name(inode) })?;
        self.change(TreeChange::Forget { inode })
    }

    /// Makes a file that goes again.
    fn pass(&mut self) -> Result<(), LogError> {
        let inode = self.create()?;
        self.write(inode, 0, &[7; 16 << 10])?;
        self.settle();
        self.remove(inode)?;
        self.settle();
        Ok(())
    }

    /// Makes a small file that stays in each segment, while others come and go.
    fn spread(&mut self, files: usize, length: usize) {
        for _ in 0..files {
            self.keep(length).expect("space");
            (0..5).for_each(|_| self.pass().expect("space"));
        }
    }

    /// Ends everything.
    fn settle(&mut self) {
        while !self.machine.disk.pending.is_empty() {
            self.end_one();
        }
    }

    /// Ends an operation. All kept files can be read then, and after a crash.
    fn end_one(&mut self) {
        self.machine.end(0, None).expect("a good end");
        self.machine.events.clear();
        let Some(key) = self.crashes else { return };
        self.check(&self.machine);
        let key = key.node(1);
        self.crashes = Some(key);
        for kind in [CrashKind::Kill, CrashKind::Power(key), CrashKind::Power(key.node(2))] {
            let disk = self.machine.disk.crashed(kind);
            let opened = Machine::open(disk, LogOrigin::Existing, None);
            self.check(&opened.unwrap_or_else(|why| panic!("after {kind:?}: {why}")));
        }
    }

    fn check(&self, opened: &Machine) {
        for (inode, bytes) in &self.kept {
            let found = read(opened, *inode).unwrap_or_else(|why| panic!("{inode:?}: {why}"));
            assert!(found == *bytes, "{inode:?} has other bytes");
        }
    }

    /// Returns where the first bytes of a file lie.
    fn place(&self, inode: InodeId) -> LogPlace {
        let state = self.machine.state();
        let sources = state.tree().content(inode).expect("a file").sources(0, 1);
        let [(_, ByteSource::Log { body, skip })] = sources[..] else { panic!("{sources:?}") };
        state.body(state.readable(body, skip).0).expect("a place").place
    }

    /// Returns the kept file with a body that compaction reads now.
    fn being_read(&self) -> Option<InodeId> {
        let pending = &self.machine.disk.pending;
        let reads = pending.iter().filter(|pending| pending.kind == FileKind::Read);
        let places: Vec<_> = reads.map(|read| (read.file, read.at as u64)).collect();
        self.kept.keys().copied().find(|inode| {
            let place = self.place(*inode);
            places.contains(&(segment_files()[place.segment as usize], place.offset()))
        })
    }
}

fn name(inode: InodeId) -> EntryName {
    EntryName::new(inode.0.to_string().as_bytes()).expect("a name")
}

fn read(machine: &Machine, inode: InodeId) -> Result<Vec<u8>, String> {
    let content = machine.state().tree().content(inode).ok_or("no file")?;
    let mut bytes = Vec::new();
    for (length, source) in content.sources(0, content.size()) {
        match source {
            ByteSource::Zeros => bytes.resize(bytes.len() + length as usize, 0),
            source => bytes.extend(machine.body(source, length as usize)?),
        }
    }
    Ok(bytes)
}

#[test]
fn compact__small_files_that_stay_do_not_fill_a_log() {
    let mut log = KeptLog::new();
    log.spread(20, 4000);
    assert!(log.machine.log.moved() > 0);
    log.check(&log.machine);
    // They are in few segments: compaction has an end.
    let segments: Vec<u32> = log.kept.keys().map(|inode| log.place(*inode).segment).collect();
    let used = (0..SEGMENTS).filter(|segment| segments.contains(segment)).count();
    assert!(used < SEGMENTS as usize, "{segments:?}");
}

#[test]
fn compact__a_full_log_refuses_takes_removals_and_has_space_again() {
    let mut log = KeptLog::new();
    let full = loop {
        if let Err(why) = log.keep(16 << 10) {
            break why;
        }
    };
    assert_eq!(full, LogError::Full);
    log.settle();
    assert!(log.kept.len() >= 14, "{} files", log.kept.len());
    log.check(&log.machine);
    assert_eq!(log.machine.log.moved(), 0, "nothing would become free");
    // One of three stays, in every segment.
    let removed: Vec<InodeId> = log.kept.keys().copied().filter(|inode| inode.0 % 3 > 0).collect();
    for inode in removed {
        log.remove(inode).expect("a full log takes removals");
        log.settle();
    }
    for _ in 0..60 {
        log.pass().expect("space");
    }
    assert!(log.machine.log.moved() > 0);
    log.check(&log.machine);
}

#[test]
fn compact__all_bytes_are_there_after_each_operation_of_the_disk() {
    let mut log = KeptLog::new();
    log.spread(6, 9000);
    let before = log.machine.log.moved();
    log.crashes = Some(RandomKey::new(5));
    log.spread(4, 3000);
    assert!(log.machine.log.moved() > before + 20_000);
    // A later life continues.
    let disk = log.machine.disk.crashed(CrashKind::Kill);
    log.machine = Machine::open(disk, LogOrigin::Existing, None).expect("the log");
    log.spread(2, 3000);
}

#[test]
fn compact__a_file_that_changes_while_its_bytes_move_keeps_the_change() {
    for change in 0..5 {
        let mut log = KeptLog::new();
        log.spread(3, 9000);
        let inode = 'read: loop {
            let temporary = log.create().expect("space");
            log.write(temporary, 0, &[7; 16 << 10]).expect("space");
            log.remove(temporary).expect("a removal");
            while !log.machine.disk.pending.is_empty() {
                if let Some(inode) = log.being_read() {
                    break 'read inode;
                }
                log.end_one();
            }
        };
        let mut bytes = log.kept.remove(&inode).expect("a kept file");
        match change {
            0 | 1 => {
                let at = [0, 1000][change];
                bytes[at..at + 100].fill(9);
                log.write(inode, at as u64, &[9; 100]).expect("space");
            }
            2 => {
                bytes.truncate(700);
                log.change(TreeChange::Truncate { inode, size: 700 }).expect("space");
            }
            3 => {
                bytes.truncate(4096);
                bytes.resize(9000, 0);
                log.change(TreeChange::Truncate { inode, size: 4096 }).expect("space");
                log.change(TreeChange::Truncate { inode, size: 9000 }).expect("space");
            }
            _ => log.remove(inode).expect("a removal"),
        }
        log.settle();
        if change < 4 {
            log.kept.insert(inode, bytes);
        }
        log.crashes = Some(RandomKey::new(change as u64));
        log.pass().expect("space");
    }
}

#[test]
fn compact__damaged_bytes_stay_where_they_are_and_are_not_given_away() {
    let mut log = KeptLog::new();
    let damaged = log.keep(5000).expect("space");
    let place = log.place(damaged);
    let file = segment_files()[place.segment as usize];
    log.machine.disk.flip(file, place.offset() as usize + 4999, 2);
    let (mut was_read, mut others) = (false, 0);
    while others < 12 {
        let temporary = log.create().expect("space");
        log.write(temporary, 0, &[7; 16 << 10]).expect("space");
        log.remove(temporary).expect("a removal");
        while !log.machine.disk.pending.is_empty() {
            was_read |= log.being_read() == Some(damaged);
            log.end_one();
        }
        log.keep(3000).expect("space");
        others += 1;
    }
    assert!(was_read, "nobody looked at it");
    assert_eq!(log.place(damaged), place);
    assert!(read(&log.machine, damaged).is_err());
    log.kept.remove(&damaged);
    log.check(&log.machine);
}

#[test]
fn compact__an_inspection_finds_all_bytes_after_it() {
    let mut log = KeptLog::new();
    log.spread(8, 9000);
    log.machine.command(LogCommand::Finish);
    log.settle();
    assert!(log.machine.log.moved() > 0);
    let mut disk = log.machine.disk.clone();
    disk.sync_all();
    let layout = LogLayout {
        segments: SEGMENTS,
        segment_size: Bytes(SEGMENT_SIZE as u64),
        snapshot_size: Bytes(SNAPSHOT_SIZE as u64),
    };
    let found = inspect_log(layout, &mut |file, at, buffer| {
        let file = match file {
            LogFile::Superblock => SUPERBLOCK,
            LogFile::Snapshot(slot) => SNAPSHOTS[slot],
            LogFile::Segment(segment) => segment_files()[segment as usize],
        };
        let bytes = disk.read(file, at as usize, buffer.len());
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    });
    let found = found.expect("a log");
    assert_eq!((found.report.damaged.len(), found.report.has_torn_tail), (0, false));
    assert_eq!(found.state.encode(), log.machine.state().encode());
}

/// Returns the copy of `inode` that the drain wants next.
fn next_copy(drain: &mut StoreDrain, log: &KeptLog, inode: InodeId) -> (StoreTask, CopyPiece) {
    let policy = |_: &_, _| {
        let (class, deadline, wish) = (Class::Bulk, WallNs(0), DrainWish::All);
        DrainPolicy { class, deadline, due: None, wish }
    };
    let (now, state) = (log.machine.now, log.machine.state());
    let durable = GroupNumber(log.machine.log.durable());
    for _ in 0..100 {
        let Some(task) = drain.next_task(now, state, durable, &policy) else {
            drain.stir();
            continue;
        };
        match &task.step {
            StoreStep::Copy { inode: of, pieces, .. } if *of == inode => {
                let piece = pieces[0];
                return (task, piece);
            }
            _ => drop(drain.end(now, state, task.number, StepEnd::Done)),
        }
    }
    panic!("no copy of {inode:?}")
}

#[test]
fn compact__a_copy_to_the_store_of_bytes_that_moved_is_begun_again_and_nobody_hears_of_it() {
    let mut log = KeptLog::new();
    let inode = log.keep(9000).expect("space");
    let config = StoreDrainConfig {
        files: 1,
        names: 1,
        pass: Bytes(64 << 10),
        pause: Nanos::from_secs(1),
        delay: Nanos::ZERO,
        look: 100,
        weights: vec![(Class::Bulk, 1)],
        recorded: 0,
    };
    let mut drain = StoreDrain::new(config, log.machine.state().tree());
    let (task, old) = next_copy(&mut drain, &log, inode);
    assert_eq!(old.place, log.place(inode));
    while log.place(inode) == old.place {
        log.pass().expect("space");
    }
    let (now, end) = (log.machine.now, StepEnd::Failed(Fault::Malformed));
    let has_failed = drain.end(now, log.machine.state(), task.number, end);
    assert_eq!((has_failed, drain.take_notice()), (false, None));
    let (task, new) = next_copy(&mut drain, &log, inode);
    assert_eq!((new.place, new.bytes), (log.place(inode), 9000));
    // The bytes are where the log says that they are: the disk or the store is to blame.
    assert!(drain.end(now, log.machine.state(), task.number, end));
    assert!(matches!(
        drain.take_notice(),
        Some(DrainNotice::Failed { fault: Fault::Malformed, .. })
    ));
}
