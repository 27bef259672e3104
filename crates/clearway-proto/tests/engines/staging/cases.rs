//! What a log does in single cases: how many operations a call costs, what a full log takes, what a
//! failed disk leads to, and the sentences of all that.

use clearway_proto::base::{Bytes, Class, LocalNs, Nanos, crc32c, xxh3};
use clearway_proto::staging::{
    ByteSource, ClientId, EntryName, GroupNumber, InodeId, LogCommand, LogError, LogEvent, LogId,
    LogOrigin, NodeKind, TreeChange, TreeError, WallNs,
};
use clearway_proto::wire::{Fault, FileId, FileKind, Span};

use super::disk::{CrashKind, TrialDisk};
use super::machine::{
    ARENA, Machine, SEGMENT_SIZE, SNAPSHOTS, SUPERBLOCK, blank, config, segment_files,
};

const CLIENT: ClientId = ClientId(4);

fn name(text: &str) -> EntryName {
    EntryName::new(text.as_bytes()).expect("a name")
}

fn create(inode: u64, text: &str) -> TreeChange {
    let (parent, node) = (InodeId::ROOT, NodeKind::File);
    TreeChange::Create {
        inode: InodeId(inode),
        parent,
        name: name(text),
        node,
        mode: 0o644,
        uid: 0,
        gid: 0,
    }
}

/// A new log on a blank disk.
fn log() -> Machine {
    Machine::open(blank(), LogOrigin::New(LogId(3)), None).expect("a new log")
}

/// Makes a change that nobody waits for.
fn append_only(machine: &mut Machine, number: u64, change: TreeChange, body: Span) {
    let (client, class) = (CLIENT, Class::Bulk);
    machine.command(LogCommand::Append { client, number, class, change, body });
}

fn append(machine: &mut Machine, number: u64, change: TreeChange) {
    append_only(machine, number, change, Span::EMPTY);
    machine.command(LogCommand::Commit);
}

/// Writes `length` bytes at the beginning of a file, from the beginning of the arena.
fn write(machine: &mut Machine, number: u64, inode: u64, length: u32) {
    let digest = xxh3(&machine.arena[..length as usize]);
    let change = TreeChange::Write { inode: InodeId(inode), offset: 0, length, digest };
    append_only(machine, number, change, Span { region: ARENA, offset: 0, length });
    machine.command(LogCommand::Commit);
}

fn end_all(machine: &mut Machine) {
    while !machine.disk.pending.is_empty() {
        machine.end(0, None).expect("a good end");
    }
}

/// Takes what the machine said, without what could be drained.
fn said(machine: &mut Machine) -> Vec<LogEvent> {
    let events = machine.events.drain(..);
    events.filter(|event| !matches!(event, LogEvent::Drainable { .. })).collect()
}

const fn durable(number: u64) -> LogEvent {
    LogEvent::Durable { client: CLIENT, number }
}

const fn applied(number: u64) -> LogEvent {
    LogEvent::Applied { client: CLIENT, number }
}

/// Why the log on `disk` is not opened.
fn refusal(disk: TrialDisk) -> LogError {
    let mut machine = Machine::boot(disk, LogOrigin::Existing, None);
    end_all(&mut machine);
    match machine.events.pop_front() {
        Some(LogEvent::NotOpened(why)) => why,
        other => panic!("it is {other:?}"),
    }
}

#[test]
fn append__a_lone_call_costs_one_write_and_one_sync() {
    let mut machine = log();
    append(&mut machine, 1, create(2, "a"));
    assert_eq!(said(&mut machine), [applied(1)]);
    let kinds = |machine: &Machine| machine.disk.pending.iter().map(|p| p.kind).collect::<Vec<_>>();
    assert_eq!(kinds(&machine), [FileKind::Write]);
    machine.end(0, None).expect("a write");
    assert_eq!(kinds(&machine), [FileKind::Sync]);
    machine.end(0, None).expect("a sync");
    assert_eq!((said(&mut machine), kinds(&machine)), ([durable(1)].to_vec(), [].to_vec()));
}

#[test]
fn append__calls_during_a_sync_become_durable_with_one_more() {
    let mut machine = log();
    append(&mut machine, 1, create(2, "a"));
    machine.end(0, None).expect("a write");
    for number in 2..60 {
        append(&mut machine, number, create(number + 1, &number.to_string()));
    }
    let applied: Vec<_> = (1..60).map(applied).collect();
    assert_eq!(said(&mut machine), applied);
    machine.end(0, None).expect("a sync");
    assert_eq!(said(&mut machine), [durable(1)]);
    let mut operations = 0;
    while !machine.disk.pending.is_empty() {
        operations += 1;
        machine.end(0, None).expect("a good end");
    }
    assert_eq!((operations, said(&mut machine)), (2, [durable(59)].to_vec()));
}

#[test]
fn append__calls_that_nobody_waits_for_share_the_sync_of_one_that_is_awaited() {
    let mut machine = log();
    append_only(&mut machine, 1, create(2, "a"), Span::EMPTY);
    append_only(&mut machine, 2, create(3, "b"), Span::EMPTY);
    assert!(machine.disk.pending.is_empty(), "nobody waits");
    machine.command(LogCommand::Commit);
    machine.end(0, None).expect("a write");
    append_only(&mut machine, 3, create(4, "c"), Span::EMPTY);
    machine.end(0, None).expect("a sync");
    let expected = [applied(1), applied(2), applied(3), durable(2)];
    assert_eq!((said(&mut machine), machine.disk.pending.len()), (expected.to_vec(), 0));
    machine.command(LogCommand::Finish);
    end_all(&mut machine);
    assert_eq!(said(&mut machine), [durable(3), LogEvent::Finished], "an end waits for nobody");
}

#[test]
fn append__a_call_that_nobody_waits_for_becomes_durable_soon() {
    let mut machine = log();
    append_only(&mut machine, 1, create(2, "a"), Span::EMPTY);
    let linger = config(LogOrigin::Existing).linger;
    let due = machine.now + linger;
    machine.now = LocalNs(due.0 - 1);
    machine.tick();
    append_only(&mut machine, 2, create(3, "b"), Span::EMPTY);
    assert_eq!((machine.log.deadline(), machine.disk.pending.len()), (Some(due), 0));
    machine.now = due;
    machine.tick();
    end_all(&mut machine);
    assert_eq!(said(&mut machine), [applied(1), applied(2), durable(2)]);
}

#[test]
fn append__a_change_that_cannot_be_made_is_refused_and_not_logged() {
    let mut machine = log();
    append(&mut machine, 1, TreeChange::Unlink { parent: InodeId::ROOT, name: name("a") });
    let why = LogError::Tree(TreeError::NotFound);
    assert_eq!(said(&mut machine), [LogEvent::Refused { client: CLIENT, number: 1, why }]);
    assert!(machine.disk.pending.is_empty());
    append(&mut machine, 1, create(2, "a"));
    machine.command(LogCommand::Append {
        client: CLIENT,
        number: 2,
        class: Class::Bulk,
        change: TreeChange::Write { inode: InodeId(2), offset: 0, length: 10, digest: 0 },
        body: Span { region: ARENA, offset: 512, length: 10 },
    });
    let why = LogError::BadBody;
    let refused = LogEvent::Refused { client: CLIENT, number: 2, why };
    assert_eq!(said(&mut machine), [applied(1), refused]);
}

#[test]
fn append__a_full_log_takes_what_frees_space_and_has_space_again() {
    let mut machine = log();
    append(&mut machine, 1, create(2, "a"));
    append(&mut machine, 2, create(3, "b"));
    write(&mut machine, 3, 3, 20 << 10);
    end_all(&mut machine);
    let mut number = 4;
    // Each write replaces the one before, but one in eight stays.
    let full = loop {
        let inode = if number % 8 == 0 { 3 } else { 2 };
        let change = TreeChange::Write {
            inode: InodeId(inode),
            offset: number << 20,
            length: 16 << 10,
            digest: 0,
        };
        let body = Span { region: ARENA, offset: 0, length: 16 << 10 };
        append_only(&mut machine, number, change, body);
        machine.command(LogCommand::Commit);
        end_all(&mut machine);
        match said(&mut machine).iter().find(|event| matches!(event, LogEvent::Refused { .. })) {
            Some(refused) => break refused.clone(),
            None => number += 1,
        }
    };
    assert_eq!(full, LogEvent::Refused { client: CLIENT, number, why: LogError::Full });
    for inode in [2, 3] {
        let content = machine.state().tree().content(InodeId(inode)).expect("a file");
        let (version, size) = (content.version(), content.size());
        append(&mut machine, number, TreeChange::Drained { inode: InodeId(inode), version, size });
        number += 1;
    }
    end_all(&mut machine);
    write(&mut machine, number, 2, 16 << 10);
    assert_eq!(said(&mut machine).last(), Some(&applied(number)));
}

#[test]
fn fail__a_failed_sync_retires_the_segment_and_nothing_is_lost() {
    let mut machine = log();
    append(&mut machine, 1, create(2, "a"));
    machine.end(0, None).expect("a write");
    let first = machine.disk.pending[0].file;
    machine.end(0, Some(Fault::Io)).expect("a sync that fails");
    let retired = LogError::Retired { segment: 0, fault: Fault::Io };
    assert_eq!(said(&mut machine), [applied(1), LogEvent::Notice(retired)]);
    assert_eq!(
        retired.to_string(),
        "segment 0 is not used any more: the device reported an error; nothing durable was lost"
    );
    assert!(machine.disk.pending.iter().all(|pending| pending.file != first), "elsewhere");
    end_all(&mut machine);
    assert_eq!(said(&mut machine), [durable(1)]);
    let lost = machine.disk.crashed(CrashKind::Power(clearway_proto::base::RandomKey::new(1)));
    let found = Machine::open(lost, LogOrigin::Existing, None).expect("the log");
    assert_eq!(found.state().highest(CLIENT), 1);
}

#[test]
fn fail__a_second_failure_stops_the_log() {
    let mut machine = log();
    append(&mut machine, 1, create(2, "a"));
    for _ in 0..2 {
        machine.end(0, None).expect("a write");
        machine.end(0, Some(Fault::Io)).expect("a sync that fails");
    }
    let stopped = LogError::Stopped(Fault::Io);
    assert_eq!(said(&mut machine).last(), Some(&LogEvent::Stopped(stopped)));
    append(&mut machine, 2, create(3, "b"));
    let refused = LogEvent::Refused { client: CLIENT, number: 2, why: stopped };
    assert_eq!(said(&mut machine), [refused]);
    end_all(&mut machine);
    assert_eq!(said(&mut machine), []);
}

#[test]
fn set_clock__times_stand_still_until_the_clock_has_caught_up() {
    let mut machine = log();
    machine.command(LogCommand::SetClock(WallNs(5_000)));
    append(&mut machine, 1, create(2, "a"));
    machine.command(LogCommand::SetClock(WallNs(1_000)));
    append(&mut machine, 2, create(3, "b"));
    let back = LogError::ClockBack(Nanos(4_000));
    assert_eq!(said(&mut machine), [applied(1), LogEvent::Notice(back), applied(2)]);
    assert_eq!(back.to_string(), "the clock stepped back by 4.00 us; times of files stand still");
    let mtime = |inode| machine.state().tree().inode(InodeId(inode)).expect("a file").mtime;
    assert_eq!((mtime(2), mtime(3)), (WallNs(5_000), WallNs(5_000)));
}

#[test]
fn deadline__a_log_that_is_quiet_for_a_second_notes_what_is_durable() {
    let mut machine = log();
    append(&mut machine, 1, create(2, "a"));
    end_all(&mut machine);
    assert_eq!(machine.log.deadline(), Some(LocalNs(1_000_000_000)));
    machine.now = LocalNs(999_999_999);
    machine.tick();
    assert!(machine.disk.pending.is_empty());
    machine.now = LocalNs(1_000_000_000);
    machine.tick();
    let note = (machine.disk.pending[0].file, machine.disk.pending[0].kind);
    assert_eq!(note, (SUPERBLOCK, FileKind::Write));
    end_all(&mut machine);
    assert_eq!(machine.log.deadline(), None);
    // The only group is the last one, and only the note says that it was durable.
    let mut disk = machine.disk.clone();
    disk.flip(segment_files()[0], 150, 3);
    let why = refusal(disk);
    assert_eq!(
        why.to_string(),
        "group 1 was durable and is damaged in segment 0 at byte 0; nothing behind it is used"
    );
}

#[test]
fn open__files_that_are_no_log_are_refused_in_a_sentence() {
    assert_eq!(refusal(blank()), LogError::WrongMagic);
    assert_eq!(
        LogError::WrongMagic.to_string(),
        "the superblock is not that of a staging log; name the directory of a log or make a new one"
    );
    let disk = log().disk;
    // One copy is enough.
    let mut one = disk.clone();
    one.sync_all();
    one.flip(SUPERBLOCK, 20, 0);
    assert!(Machine::open(one.clone(), LogOrigin::Existing, None).is_ok());
    one.flip(SUPERBLOCK, 4096 + 20, 0);
    assert_eq!(refusal(one), LogError::SuperblockDamaged);
    let mut fewer = disk;
    fewer.sync_all();
    for copy in [0, 4096] {
        // Format 7 with a digest that fits.
        fewer.flip(SUPERBLOCK, copy + 8, 2);
        fewer.fit_superblock(SUPERBLOCK, copy);
    }
    assert_eq!(refusal(fewer), LogError::Version(7));
    assert_eq!(
        LogError::Version(7).to_string(),
        "the log has format 7, which this release does not read"
    );
}

#[test]
fn open__a_log_of_the_version_before_opens_and_has_this_version_then() {
    let mut machine = log();
    append(&mut machine, 1, create(2, "a"));
    end_all(&mut machine);
    let mut disk = machine.disk.crashed(CrashKind::Kill);
    disk.sync_all();
    for copy in [0, 4096] {
        assert_eq!(disk.read(SUPERBLOCK, copy + 8, 4), [3, 0, 0, 0]);
        disk.flip(SUPERBLOCK, copy + 8, 0);
        disk.fit_superblock(SUPERBLOCK, copy);
    }
    let opened = Machine::open(disk, LogOrigin::Existing, None).expect("a log of version 2");
    assert_eq!(opened.state().highest(CLIENT), 1);
    let versions = [0, 4096].map(|copy| opened.disk.read(SUPERBLOCK, copy + 8, 1)[0]);
    assert_eq!(versions, [3, 3]);
}

/// An application may put a CRC behind each of its blocks: then all blocks have the same CRC.
#[test]
fn open__an_old_block_with_the_same_crc_is_not_taken_for_a_body_that_never_arrived() {
    let with_crc = |first: u8| {
        let mut bytes = vec![first; 4092];
        let check = crc32c(&bytes);
        bytes.extend(check.to_le_bytes());
        bytes
    };
    let mut machine = log();
    append(&mut machine, 1, create(2, "a"));
    machine.arena[..4096].copy_from_slice(&with_crc(1));
    write(&mut machine, 2, 2, 4096);
    end_all(&mut machine);
    assert_eq!(said(&mut machine).last(), Some(&durable(2)));
    machine.arena[..4096].copy_from_slice(&with_crc(2));
    write(&mut machine, 3, 2, 4096);
    // The front of the group reaches the disk, its body does not; an older block lies there.
    machine.end(0, None).expect("the front is written");
    let body = machine.disk.pending.pop().expect("the write of the body");
    machine.disk.put(body.file, body.at, &with_crc(3));
    let found = Machine::open(machine.disk.crashed(CrashKind::Kill), LogOrigin::Existing, None);
    let found = found.expect("the log");
    assert_eq!(found.state().highest(CLIENT), 2, "the call that is not durable is not there");
    let content = found.state().tree().content(InodeId(2)).expect("the file");
    let (length, source) = content.sources(0, content.size())[0];
    assert_eq!(found.body(source, length as usize), Ok(with_crc(1)));
}

#[test]
fn open__a_torn_group_stays_torn_when_a_later_life_writes_its_bytes_again() {
    let write_only = |machine: &mut Machine| {
        let (inode, offset, length) = (InodeId(2), 0, 4096);
        machine.arena[..4096].fill(5);
        let digest = xxh3(&machine.arena[..4096]);
        let body = Span { region: ARENA, offset, length };
        append_only(machine, 2, TreeChange::Write { inode, offset, length, digest }, body);
    };
    let mut machine = log();
    append(&mut machine, 1, create(2, "a"));
    end_all(&mut machine);
    write_only(&mut machine);
    append(&mut machine, 3, create(3, "b"));
    // The front reaches the disk, and the body does not.
    machine.end(0, None).expect("the front is written");
    machine.disk.pending.clear();
    let disk = machine.disk.crashed(CrashKind::Kill);
    let mut machine = Machine::open(disk, LogOrigin::Existing, None).expect("the log");
    assert_eq!(machine.state().highest(CLIENT), 1);
    // Now the body does, at the same place, and the front does not.
    write_only(&mut machine);
    machine.command(LogCommand::Commit);
    machine.end(1, None).expect("the body is written");
    machine.disk.pending.clear();
    let disk = machine.disk.crashed(CrashKind::Kill);
    let found = Machine::open(disk, LogOrigin::Existing, None).expect("the log");
    assert_eq!(found.state().highest(CLIENT), 1, "nobody wrote the third change since");
}

#[test]
fn open__a_damaged_body_puts_its_file_into_quarantine() {
    let mut machine = log();
    machine.arena[..9000].fill(7);
    append(&mut machine, 1, create(2, "good"));
    append(&mut machine, 2, create(3, "bad"));
    end_all(&mut machine);
    write(&mut machine, 3, 2, 5000);
    end_all(&mut machine);
    write(&mut machine, 4, 3, 9000);
    end_all(&mut machine);
    append(&mut machine, 5, create(4, "later"));
    end_all(&mut machine);
    machine.command(LogCommand::Finish);
    end_all(&mut machine);
    let (_, source) =
        machine.state().tree().content(InodeId(3)).expect("a file").sources(0, 9000)[0];
    let ByteSource::Log { body, .. } = source else { panic!("no body") };
    let place = *machine.state().body(body).expect("a place");
    let mut disk = machine.disk.clone();
    disk.sync_all();
    disk.flip(
        segment_files()[place.place.segment as usize],
        place.place.offset() as usize + 8999,
        0,
    );
    let mut machine = Machine::boot(disk, LogOrigin::Existing, None);
    end_all(&mut machine);
    let Some(LogEvent::Opened(report)) = machine.events.pop_front() else { panic!("not open") };
    let damaged: Vec<_> = report.damaged.iter().map(|file| file.path.clone()).collect();
    assert_eq!(damaged, [Some(b"bad".to_vec())]);
    assert_eq!(machine.state().highest(CLIENT), 5);
    assert!(machine.body(source, 9000).is_err(), "it is not served");
    // A new write heals it.
    machine.arena[..9000].fill(8);
    write(&mut machine, 6, 3, 9000);
    end_all(&mut machine);
    assert_eq!(machine.state().damaged_files().count(), 0);
}

#[test]
fn open__a_damaged_first_header_of_durable_groups_is_no_torn_tail() {
    let mut machine = log();
    for (number, text) in [(1, "one"), (2, "two"), (3, "three")] {
        append(&mut machine, number, create(number + 1, text));
        end_all(&mut machine);
    }
    let mut disk = machine.disk.clone();
    disk.sync_all();
    let used = segment_files().into_iter().find(|file| disk.read(*file, 0, 8) != [0; 8]);
    let used = used.expect("a segment with groups");
    disk.flip(used, 20, 0);
    let why = refusal(disk);
    assert!(matches!(why, LogError::GroupDamaged { group: GroupNumber(1), .. }), "{why}");
}

#[test]
fn open__zeros_in_place_of_the_first_headers_of_durable_groups_are_no_torn_tail() {
    let mut machine = log();
    for number in 1..=20 {
        append(&mut machine, number, create(number + 1, &number.to_string()));
        end_all(&mut machine);
    }
    for blocks in [1, 2, 3, 8] {
        let mut disk = machine.disk.clone();
        disk.sync_all();
        disk.put(segment_files()[0], 0, &vec![0; blocks * 4096]);
        let why = refusal(disk);
        assert!(matches!(why, LogError::GroupDamaged { group: GroupNumber(1), .. }), "{why}");
    }
}

/// Nothing says that it was durable, and so it may also be torn.
#[test]
fn open__zeros_in_place_of_the_header_of_the_only_group_are_reported() {
    let mut machine = log();
    machine.arena.fill(7);
    append_only(&mut machine, 1, create(2, "a"), Span::EMPTY);
    write(&mut machine, 2, 2, 9000);
    end_all(&mut machine);
    let mut disk = machine.disk.clone();
    disk.sync_all();
    disk.put(segment_files()[0], 0, &[0; 4096]);
    let mut opened = Machine::boot(disk, LogOrigin::Existing, None);
    end_all(&mut opened);
    let Some(LogEvent::Opened(report)) = opened.events.pop_front() else { panic!("not open") };
    assert!(report.has_unknown_tail, "{report:?}");
}

#[test]
fn open__a_segment_in_the_place_of_another_is_refused() {
    let mut machine = log();
    append(&mut machine, 1, create(2, "a"));
    end_all(&mut machine);
    let mut disk = machine.disk.clone();
    disk.sync_all();
    let [first, second, ..] = segment_files()[..] else { panic!("two segments") };
    let bytes = disk.read(first, 0, SEGMENT_SIZE);
    disk.put(first, 0, &vec![0; SEGMENT_SIZE]);
    disk.put(second, 0, &bytes);
    let why = refusal(disk);
    assert_eq!(why, LogError::Misplaced { segment: 1, from: 0 });
    assert_eq!(
        why.to_string(),
        "segment 1 has what was written to segment 0; put the files of the segments back in their order"
    );
}

/// Ends all operations; those on snapshots with a fault.
fn end_without_snapshots(machine: &mut Machine) {
    while let Some(pending) = machine.disk.pending.first() {
        let fault = SNAPSHOTS.contains(&pending.file).then_some(Fault::NoSpace);
        machine.end(0, fault).expect("an end");
    }
}

#[test]
fn checkpoint__a_full_log_tries_a_snapshot_again_that_failed() {
    let mut machine = log();
    append(&mut machine, 1, create(2, "a"));
    let mut number = 2;
    let mut notices = 0;
    loop {
        write(&mut machine, number, 2, 16 << 10);
        end_without_snapshots(&mut machine);
        let events = said(&mut machine);
        let failed = LogEvent::Notice(LogError::SnapshotFailed(Fault::NoSpace));
        notices += events.iter().filter(|event| **event == failed).count();
        if events.iter().any(|event| matches!(event, LogEvent::Refused { .. })) {
            break;
        }
        number += 1;
    }
    assert_eq!((notices, machine.log.snapshot_failed()), (1, Some(Fault::NoSpace)));
    machine.now = machine.log.deadline().expect("another attempt");
    machine.tick();
    end_without_snapshots(&mut machine);
    assert_eq!(said(&mut machine), [], "the same failure is reported once");
    write(&mut machine, number, 2, 16 << 10);
    let refused = LogEvent::Refused { client: CLIENT, number, why: LogError::Full };
    assert_eq!(said(&mut machine), [refused]);
    machine.now = machine.log.deadline().expect("another attempt");
    machine.tick();
    end_all(&mut machine);
    assert_eq!(machine.log.snapshot_failed(), None);
    write(&mut machine, number, 2, 16 << 10);
    assert_eq!(said(&mut machine), [applied(number)]);
}

#[test]
fn check__logs_that_cannot_work_are_refused() {
    let mut config = config(LogOrigin::Existing);
    assert_eq!(config.check(), Ok(()));
    config.segment_size = Bytes(100_000);
    assert_eq!(config.check(), Err(LogError::Configuration));
    config = super::machine::config(LogOrigin::Existing);
    config.segments = [10, 11].map(FileId).to_vec();
    assert_eq!(config.check(), Err(LogError::Configuration));
}
