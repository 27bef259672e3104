//! Tests real files over the wire in memory and over sockets: the contract's suite, faults, targets
//! that hang, wake-ups, an engine.

use std::fs::OpenOptions;
use std::io::{self, PipeReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};

use clearway_proto::base::{Class, Rank};
use clearway_proto::wire::conformance::{self, Fabric};
use clearway_proto::wire::foreign_memory::WordMemory;
use clearway_proto::wire::memory::{MemoryConfig, MemoryFabric, MemoryWire};
use clearway_proto::wire::{
    AtomicKind, Driver, Engine, Fault, ForeignMemory, HeldBytes, Input, MemoryAccess, More, Out,
};

use super::*;
use crate::clock;
use crate::progress::{self, EngineHost};
use crate::udp::{Placement, UdpConfig, UdpPort, UdpWire};
use crate::waiting;

/// Directories and sessions of this test process.
static NUMBERS: AtomicU64 = AtomicU64::new(0);
/// Longest wait for what is expected; nothing is asserted about how long it took.
const TIMEOUT: Nanos = Nanos::from_millis(20_000);
const DISK: TargetId = TargetId(1);
const HUNG: TargetId = TargetId(2);

/// A directory that goes away with its test.
struct TestDirectory(PathBuf);

impl TestDirectory {
    fn new() -> Self {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("clearway-files-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("a new directory");
        Self(path)
    }

    fn create(&self, name: &str) -> File {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).open(self.0.join(name)).expect("a new file")
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Ends of the wire in memory with files.
struct FileEnds {
    fabric: MemoryFabric,
    wires: Vec<FileWire<MemoryWire>>,
    directory: TestDirectory,
    files: u32,
}

impl FileEnds {
    fn new() -> Self {
        let mut fabric = MemoryFabric::new(MemoryConfig::lossless(conformance::RANKS));
        let wires = (0..conformance::RANKS).map(|rank| memory_wire(&mut fabric, rank)).collect();
        Self { fabric, wires, directory: TestDirectory::new(), files: 0 }
    }

    /// Exchanges the ends that the adaptors own for those that the fabric has.
    fn exchange(&mut self) {
        for (rank, wire) in (0..).zip(&mut self.wires) {
            self.fabric.exchange(Rank(rank), wire.below_mut());
        }
    }
}

fn memory_wire(fabric: &mut MemoryFabric, rank: u32) -> FileWire<MemoryWire> {
    FileWire::new(fabric.take(Rank(rank)), FileConfig::default()).expect("an event counter")
}

impl Fabric for FileEnds {
    fn wire(&mut self, rank: Rank) -> &mut dyn Wire {
        &mut self.wires[rank.index()]
    }

    /// Waits one latency, and at most 2 ms for a worker of rank 0.
    fn pass_time(&mut self) {
        self.exchange();
        let at =
            self.fabric.next_arrival().unwrap_or_else(|| self.fabric.now() + Nanos::from_micros(1));
        self.fabric.advance(at);
        self.exchange();
        waiting::ready(
            Some(self.wires[0].files.finished.signal()),
            Some(Nanos::from_millis(2)),
            &[],
        );
    }

    fn open_file(&mut self, rank: Rank) -> Option<FileId> {
        self.files += 1;
        let file = self.directory.create(&self.files.to_string());
        self.wires[rank.index()].open(file, TargetId(self.files % 2)).ok()
    }
}

#[test]
fn conformance__over_the_wire_in_memory() {
    let outcomes = conformance::check("files and memory", &[], FileEnds::new);
    eprint!("{}", outcomes.expect("every promise is kept"));
}

/// One end of a wire in memory, with a region.
struct SingleEnd {
    wire: FileWire<MemoryWire>,
    region: RegionId,
}

impl SingleEnd {
    fn new(config: FileConfig) -> Self {
        let mut fabric = MemoryFabric::new(MemoryConfig::lossless(1));
        let mut wire = FileWire::new(fabric.take(Rank(0)), config).expect("an event counter");
        let region = wire.register(Bytes(1 << 16)).expect("room");
        Self { wire, region }
    }

    fn span(&self, offset: u64, length: u32) -> Span {
        Span { region: self.region, offset, length }
    }

    fn post(&mut self, kind: FileKind, file: FileId, memory: Span, token: u64) -> PostOutcome {
        let operation =
            Operation::File { kind, file, at: 0, memory, class: Class::Bulk, token: Token(token) };
        let mut answers = Vec::new();
        self.wire.post(&[operation], &[], &mut answers);
        answers[0]
    }

    /// Waits for `count` arrivals: completions, and `None` for room.
    fn await_ends(&mut self, count: usize) -> Vec<Option<(u64, Status, u64)>> {
        let until = clock::now() + TIMEOUT;
        let mut seen = Vec::new();
        while seen.len() < count {
            assert!(clock::now() < until, "only {seen:?}");
            if !self.wire.files.is_ready() {
                waiting::ready([self.wire.files.finished.signal()], Some(TIMEOUT), &[]);
            }
            self.wire.poll(1, &mut |arrival| {
                seen.push(match arrival {
                    Arrival::Done { token, status, value, .. } => Some((token.0, status, value)),
                    _ => None,
                });
            });
        }
        seen
    }

    /// Does one operation; returns its status and value.
    fn run(&mut self, kind: FileKind, file: FileId, memory: Span) -> (Status, u64) {
        assert_eq!(self.post(kind, file, memory, 7), PostOutcome::Posted);
        let ended = self.await_ends(1);
        let Some((7, status, value)) = ended[0] else { panic!("{ended:?}") };
        (status, value)
    }
}

fn failed(fault: Fault) -> (Status, u64) {
    (Status::Failed(fault), 0)
}

#[test]
fn run__failures_have_names() {
    let directory = TestDirectory::new();
    let mut alone = SingleEnd::new(FileConfig::default());
    let (four, none) = (alone.span(0, 4), Span::EMPTY);
    let open = |path: &Path, write| {
        OpenOptions::new().read(true).write(write).open(path).expect("it is there")
    };
    let full = alone.wire.open(open(Path::new("/dev/full"), true), DISK).expect("a thread");
    assert_eq!(alone.run(FileKind::Write, full, four), failed(Fault::NoSpace));
    drop(directory.create("old"));
    let read_only = alone.wire.open(open(&directory.0.join("old"), false), DISK).expect("open");
    assert_eq!(alone.run(FileKind::Write, read_only, four), failed(Fault::Denied));
    assert_eq!(alone.run(FileKind::Read, read_only, four), (Status::Complete, 0));
    assert_eq!(alone.run(FileKind::Sync, read_only, none), (Status::Complete, 0));
    let names =
        alone.wire.open(File::open(&directory.0).expect("a directory"), DISK).expect("open");
    assert_eq!(alone.run(FileKind::Sync, names, none), (Status::Complete, 0));
    assert_eq!(alone.run(FileKind::Read, names, four), failed(Fault::Io));
    alone.wire.close(names);
    assert_eq!(
        alone.post(FileKind::Sync, names, none, 1),
        PostOutcome::Refused(RefusalReason::Memory)
    );
}

#[test]
fn run__longer_than_one_buffer_and_never_longer_than_all() {
    let directory = TestDirectory::new();
    let config = FileConfig { buffer: Bytes(4096), buffers: 4, ..FileConfig::default() };
    let mut alone = SingleEnd::new(config);
    let file = alone.wire.open(directory.create("long"), DISK).expect("a thread");
    let region = alone.region;
    let bytes: Vec<u8> = (0..16_384u32).map(|i| (i % 251) as u8).collect();
    alone.wire.region_mut(region).expect("registered")[..16_384].copy_from_slice(&bytes);
    let (long, place) = (alone.span(0, 16_384), alone.span(20_000, 16_384));
    assert_eq!(alone.run(FileKind::Write, file, long), (Status::Complete, 16_384));
    assert_eq!(alone.run(FileKind::Read, file, place), (Status::Complete, 16_384));
    assert!(alone.wire.region(region).expect("registered")[20_000..36_384] == bytes);
    let longer = alone.span(0, 16_385);
    assert_eq!(
        alone.post(FileKind::Write, file, longer, 1),
        PostOutcome::Refused(RefusalReason::Length)
    );
    assert!(std::fs::read(directory.0.join("long")).expect("written") == bytes);
}

/// A device whose calls wait until its pipe is written or closed.
struct HangingDevice(Mutex<PipeReader>);

impl HangingDevice {
    fn hang(&self) -> io::Result<usize> {
        self.0.lock().expect("not poisoned").read(&mut [0])
    }
}

impl FileDevice for HangingDevice {
    fn read_at(&self, _bytes: &mut [u8], _at: u64) -> io::Result<usize> {
        self.hang().map(|_| 0)
    }

    fn write_at(&self, bytes: &[u8], _at: u64) -> io::Result<usize> {
        self.hang().map(|_| bytes.len())
    }

    fn sync(&self) -> io::Result<()> {
        self.hang().map(drop)
    }

    fn allows(&self, _kind: FileKind) -> bool {
        true
    }
}

#[test]
fn post__a_target_that_hangs_holds_up_no_other_and_its_queue_says_when_it_has_room() {
    let directory = TestDirectory::new();
    let (reader, mut writer) = io::pipe().expect("a pipe");
    let mut alone = SingleEnd::new(FileConfig { depth: 3, buffers: 2, ..FileConfig::default() });
    let hung =
        alone.wire.files.open(Box::new(HangingDevice(Mutex::new(reader))), HUNG).expect("threads");
    let file = alone.wire.open(directory.create("live"), DISK).expect("threads");
    let memory = alone.span(0, 4);
    assert_eq!(
        [0, 1].map(|token| alone.post(FileKind::Write, hung, memory, token)),
        [PostOutcome::Posted; 2]
    );
    assert_eq!(alone.post(FileKind::Write, hung, memory, 2), PostOutcome::NoRoom, "no buffer");
    assert_eq!(alone.post(FileKind::Sync, hung, Span::EMPTY, 3), PostOutcome::Posted);
    assert_eq!(
        alone.post(FileKind::Sync, hung, Span::EMPTY, 4),
        PostOutcome::NoRoom,
        "the queue is full"
    );
    assert_eq!(alone.wire.counters().no_room, 2);
    for _ in 0..20 {
        assert_eq!(alone.run(FileKind::Write, file, memory), (Status::Complete, 4));
    }
    writer.write_all(b"x").expect("the pipe is open");
    let first = alone.await_ends(2);
    assert!(matches!(first[..], [Some((_, Status::Complete, _)), None]), "{first:?}");
    assert_eq!(alone.post(FileKind::Sync, hung, Span::EMPTY, 5), PostOutcome::Posted);
    // A file that is closed: what no thread has begun is gone, and the rest ends as it ends.
    alone.wire.close(hung);
    drop(writer);
    let rest = alone.await_ends(3);
    let gone = |end: &&Option<(u64, Status, u64)>| {
        matches!(end, Some((_, Status::Failed(Fault::Gone), 0)))
    };
    assert!(rest.iter().filter(gone).count() >= 1, "{rest:?}");
}

#[test]
fn drop__waits_for_no_target_that_hangs() {
    let (reader, writer) = io::pipe().expect("a pipe");
    let mut alone = SingleEnd::new(FileConfig { threads: 1, ..FileConfig::default() });
    let hung =
        alone.wire.files.open(Box::new(HangingDevice(Mutex::new(reader))), HUNG).expect("a thread");
    let memory = alone.span(0, 4);
    for token in 0..3 {
        assert_eq!(alone.post(FileKind::Write, hung, memory, token), PostOutcome::Posted);
    }
    // Returns although the pipe is empty. The thread then ends and closes the pipe, which the
    // writer sees.
    drop(alone);
    let mut writer = writer;
    while writer.write_all(b"x").is_ok() {
        std::thread::yield_now();
    }
}

fn udp_wire() -> FileWire<UdpWire> {
    let port = UdpPort::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let session =
        u64::from(std::process::id()) << 32 | NUMBERS.fetch_add(1, Ordering::Relaxed) | 1 << 24;
    let mut config = UdpConfig::new(Rank(0), session, vec![port.address()]);
    config.placement = Placement::OneMachine;
    config.waiting = waiting::Waiting::Sleep;
    FileWire::new(UdpWire::open([port], config).expect("an open wire"), FileConfig::default())
        .expect("a counter")
}

#[test]
fn wait__who_sleeps_is_woken_by_every_completion_and_by_others() {
    let directory = TestDirectory::new();
    let mut wire = udp_wire();
    let file = wire.open(directory.create("woken"), DISK).expect("threads");
    let region = wire.register(Bytes(8)).expect("room");
    let memory = Span { region, offset: 0, length: 8 };
    let until = clock::now() + TIMEOUT;
    for turn in 0..2_000 {
        let kind = [FileKind::Write, FileKind::Read][turn % 2];
        let token = Token(turn as u64);
        let operation = Operation::File { kind, file, at: 0, memory, class: Class::Bulk, token };
        wire.post(&[operation], &[], &mut Vec::new());
        let mut ended = 0;
        while ended == 0 {
            wire.wait(Some(until), &[]);
            assert!(clock::now() < until, "a wake-up was lost in turn {turn}");
            wire.poll(64, &mut |arrival| {
                assert!(
                    matches!(arrival, Arrival::Done { status: Status::Complete, value: 8, .. }),
                    "{arrival:?}"
                );
                ended += 1;
            });
        }
    }
    let (silent, closed) = (io::pipe().expect("a pipe"), io::pipe().expect("a pipe"));
    drop(closed.1);
    let both = [silent.0.as_fd(), closed.0.as_fd()];
    let woken = wire.poll_ready(Some(TIMEOUT), &both);
    assert!(woken.extra(1) && !woken.extra(0), "descriptors keep their places: {woken:?}");
}

/// Writes, syncs when the write is done, reads back, and tells the digest of what it read.
struct ReadBackEngine {
    file: FileId,
    region: RegionId,
}

impl Engine for ReadBackEngine {
    type Command = ();
    type Event = Result<u64, Status>;

    fn input(&mut self, _now: LocalNs, input: Input<'_, ()>, out: &mut Out<Self::Event>) -> More {
        let (file, at, class) = (self.file, 3, Class::Scavenger);
        let span = |offset| Span { region: self.region, offset, length: 6 };
        let job = |kind, memory, token| Operation::File {
            kind,
            file,
            at,
            memory,
            class,
            token: Token(token),
        };
        match input {
            Input::Boot { .. } => out.operate(job(FileKind::Write, span(0), 0)),
            Input::Arrival(Arrival::Done { token, status: Status::Complete, value, .. }) => {
                match token.0 {
                    0 => out.operate(job(FileKind::Sync, Span::EMPTY, 1)),
                    1 => out.operate(job(FileKind::Read, span(8), 2)),
                    2 => out.operate(Operation::Digest { of: span(8), token: Token(3) }),
                    _ => out.notify(Ok(value)),
                }
            }
            Input::Arrival(Arrival::Done { status, .. }) => out.notify(Err(status)),
            _ => {}
        }
        More::No
    }

    fn deadline(&self) -> Option<LocalNs> {
        None
    }
}

/// Breaks at the first event.
struct StopAtFirstEvent(Option<Result<u64, Status>>);

impl EngineHost<ReadBackEngine> for StopAtFirstEvent {
    fn event(&mut self, event: Result<u64, Status>) {
        self.0 = Some(event);
    }

    fn control(&mut self, _which: usize, _now: LocalNs, _driver: &mut Driver<ReadBackEngine>) {}

    fn after_step(
        &mut self,
        _now: LocalNs,
        _driver: &mut Driver<ReadBackEngine>,
        _wire: &mut dyn Wire,
    ) -> ControlFlow<(), Option<LocalNs>> {
        if self.0.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(None) }
    }
}

#[test]
fn driver__an_engine_keeps_bytes_and_reads_them_again() {
    let directory = TestDirectory::new();
    let mut wire = udp_wire();
    let region = wire.register(Bytes(16)).expect("room");
    wire.region_mut(region).expect("registered")[..6].copy_from_slice(b"record");
    let file = wire.open(directory.create("log"), DISK).expect("threads");
    let mut driver = Driver::boot(ReadBackEngine { file, region }, wire.now(), 0);
    let mut host = StopAtFirstEvent(None);
    progress::run(&mut driver, &mut wire, &[], &mut host);
    assert_eq!(host.0, Some(Ok(u64::from(clearway_proto::base::crc32c(b"record")))));
    assert_eq!(std::fs::read(directory.0.join("log")).expect("written"), b"\0\0\0record");
}

/// Memory whose first bytes are lent to somebody.
#[derive(Debug)]
struct PartlyLentMemory(WordMemory);

impl ForeignMemory for PartlyLentMemory {
    fn length(&self) -> u64 {
        self.0.length()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), RefusalReason> {
        if at < 8 { Err(RefusalReason::Memory) } else { self.0.read(at, into) }
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<(), RefusalReason> {
        self.0.write(at, from)
    }

    fn change(&self, at: u64, kind: AtomicKind) -> Result<u64, RefusalReason> {
        self.0.change(at, kind)
    }
}

#[test]
fn post__memory_that_is_lent_is_refused_and_keeps_no_place_in_the_queue() {
    let directory = TestDirectory::new();
    let mut alone = SingleEnd::new(FileConfig { depth: 1, ..FileConfig::default() });
    let file = alone.wire.open(directory.create("file"), DISK).expect("a thread");
    let lent = alone
        .wire
        .adopt(Arc::new(PartlyLentMemory(WordMemory::new(64, MemoryAccess::Peers))))
        .expect("adopted");
    for _ in 0..3 {
        let memory = Span { region: lent, offset: 0, length: 64 };
        assert_eq!(
            alone.post(FileKind::Write, file, memory, 1),
            PostOutcome::Refused(RefusalReason::Memory)
        );
    }
    assert_eq!(
        alone.run(FileKind::Write, file, Span { region: lent, offset: 8, length: 56 }),
        (Status::Complete, 56)
    );
    assert_eq!(
        alone.run(FileKind::Read, file, Span { region: lent, offset: 0, length: 64 }),
        (Status::Complete, 56)
    );
}

#[test]
fn wake__when_every_end_was_taken_the_event_counter_is_silent() {
    let directory = TestDirectory::new();
    let mut alone = SingleEnd::new(FileConfig::default());
    let file = alone.wire.open(directory.create("file"), DISK).expect("a thread");
    let span = alone.span(0, 1);
    for _ in 0..500 {
        // Two at a time: one may end while the other is taken.
        let posted = [1, 2].map(|token| alone.post(FileKind::Write, file, span, token));
        assert_eq!(posted, [PostOutcome::Posted; 2]);
        alone.await_ends(2);
        let woken = waiting::ready([alone.wire.files.finished.signal()], Some(Nanos::ZERO), &[]);
        assert!(!woken.any(), "a wake-up for nothing");
    }
}

/// A device whose sync begins and ends when another thread is at the barrier too.
struct BarrierDevice(Arc<Barrier>);

impl FileDevice for BarrierDevice {
    fn read_at(&self, _bytes: &mut [u8], _at: u64) -> io::Result<usize> {
        Ok(0)
    }

    fn write_at(&self, bytes: &[u8], _at: u64) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.wait();
        self.0.wait();
        Ok(())
    }

    fn allows(&self, _kind: FileKind) -> bool {
        true
    }
}

#[test]
fn runner__operations_end_on_its_thread_and_wake_nobody() {
    let mut alone = SingleEnd::new(FileConfig { threads: 1, ..FileConfig::default() });
    assert!(alone.wire.runner(DISK).is_none(), "the target has no files");
    let barrier = Arc::new(Barrier::new(2));
    let device = Box::new(BarrierDevice(Arc::clone(&barrier)));
    let file = alone.wire.files.open(device, DISK).expect("a thread");
    let runner = alone.wire.runner(DISK).expect("it has files");
    assert_eq!(alone.post(FileKind::Sync, file, Span::EMPTY, 9), PostOutcome::Posted);
    // The only thread is busy from now on.
    barrier.wait();
    alone.wire.begin_inline(DISK);
    let span = alone.span(0, 1);
    for _ in 0..3 {
        let posted = [1, 2].map(|token| alone.post(FileKind::Write, file, span, token));
        assert_eq!(posted, [PostOutcome::Posted; 2]);
        assert_eq!(runner.work(), 2);
        let woken = waiting::ready([alone.wire.files.finished.signal()], Some(Nanos::ZERO), &[]);
        assert!(!woken.any(), "the runner polls by itself");
        let ends = [1, 2].map(|token| Some((token, Status::Complete, 1)));
        assert_eq!(alone.await_ends(2), ends);
        assert_eq!(runner.work(), 0);
    }
    barrier.wait();
    assert_eq!(alone.await_ends(1), [Some((9, Status::Complete, 0))]);
}

#[test]
fn runner__what_it_leaves_and_what_is_long_is_done_by_the_threads() {
    let directory = TestDirectory::new();
    let mut alone = SingleEnd::new(FileConfig::default());
    let file = alone.wire.open(directory.create("file"), DISK).expect("a thread");
    let (short, region) = (alone.span(0, 1), alone.wire.register(Bytes(1 << 20)).expect("room"));
    for token in 0..100 {
        alone.wire.begin_inline(DISK);
        assert_eq!(alone.post(FileKind::Write, file, short, token), PostOutcome::Posted);
        alone.wire.end_inline(DISK);
        alone.await_ends(1);
    }
    alone.wire.begin_inline(DISK);
    let long = Span { region, offset: 0, length: 1 << 20 };
    assert_eq!(alone.run(FileKind::Write, file, long), (Status::Complete, 1 << 20));
}

/// Memory that lets its bytes be held, and not copied.
#[derive(Debug)]
struct ConstantMemory(Arc<Vec<u8>>);

impl ForeignMemory for ConstantMemory {
    fn length(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), RefusalReason> {
        // The last byte shows whether all are there.
        let last = self.0.get(at as usize).filter(|_| into.len() == 1);
        into.fill(*last.ok_or(RefusalReason::Memory)?);
        Ok(())
    }

    fn write(&self, _at: u64, _from: &[u8]) -> Result<(), RefusalReason> {
        Err(RefusalReason::Memory)
    }

    fn change(&self, _at: u64, _kind: AtomicKind) -> Result<u64, RefusalReason> {
        Err(RefusalReason::Memory)
    }

    fn hold(&self, at: u64, length: u32) -> Option<HeldBytes> {
        HeldBytes::new(Arc::<Vec<u8>>::clone(&self.0), at as usize..at as usize + length as usize)
    }
}

#[test]
fn run__bytes_that_are_held_are_written_without_a_copy_or_a_buffer() {
    let directory = TestDirectory::new();
    let config = FileConfig { buffer: Bytes(4096), buffers: 1, ..FileConfig::default() };
    let mut alone = SingleEnd::new(config);
    let file = alone.wire.open(directory.create("held"), DISK).expect("a thread");
    let bytes: Arc<Vec<u8>> = Arc::new((0..30_000u32).map(|i| (i % 251) as u8).collect());
    let memory = Arc::new(ConstantMemory(Arc::clone(&bytes)));
    let region = alone.wire.adopt(memory).expect("adopted");
    let all = Span { region, offset: 5, length: 29_995 };
    assert_eq!(alone.run(FileKind::Write, file, all), (Status::Complete, 29_995));
    assert!(std::fs::read(directory.0.join("held")).expect("written") == bytes[5..]);
    let longer = Span { region, offset: 6, length: 29_995 };
    let refused = PostOutcome::Refused(RefusalReason::Memory);
    assert_eq!(alone.post(FileKind::Write, file, longer, 1), refused);
    assert_eq!(Arc::strong_count(&bytes), 2, "nothing is held any more");
}
