//! The wire on real libraries, over loopback: the contract's suite, classes on sockets, peers that
//! are gone.
//!
//! The system's libfabric is tested where there is one; further libraries are named, separated by
//! colons, in `CLEARWAY_TEST_LIBFABRIC`.

use std::any::Any;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clearway_proto::wire::conformance::{self, Fabric, Need};
use clearway_proto::wire::{AtomicKind, Destination, ForeignMemory, Out, RemoteSpan};
use rustix::fs::{MemfdFlags, SealFlags};

use super::peers::lane_of;
use super::*;
use crate::port::OfiConfig;
use crate::provider::{ProviderChoice, ProviderInterface, Reach};
use crate::trust::PROOF_LENGTH;

/// Sessions of this test process, so that tests running side by side are strangers to each other.
static SESSIONS: AtomicU64 = AtomicU64::new(1);

/// Returns the libraries to test; `None` is the system's.
fn libraries() -> Vec<Option<PathBuf>> {
    let named = std::env::var("CLEARWAY_TEST_LIBFABRIC").unwrap_or_default();
    std::iter::once(None)
        .chain(named.split(':').filter(|path| !path.is_empty()).map(|path| Some(path.into())))
        .collect()
}

/// Providers of the releases that plain Ethernet needs, and what each is tested for.
const PROVIDERS: [&str; 4] = ["tcp", "tcp;ofi_rxm", "net", "shm"];

fn config(library: Option<PathBuf>, provider: &str) -> OfiConfig {
    OfiConfig {
        library,
        wanted: ProviderChoice::Named(provider.into()),
        source: ProviderInterface::Address([127, 0, 0, 1].into()),
        reach: Reach::OneHost,
        placement: Placement::OneMachine,
        ..OfiConfig::default()
    }
}

struct Loopback {
    wires: Vec<OfiWire>,
    addresses: Vec<Vec<u8>>,
}

impl Loopback {
    fn new(ranks: u32, config: &OfiConfig) -> Result<Self, OfiError> {
        let session =
            u64::from(std::process::id()) << 32 | SESSIONS.fetch_add(1, Ordering::Relaxed);
        Self::trusting(ranks, config, &|_| Trust::Session(session))
    }

    fn trusting(
        ranks: u32,
        config: &OfiConfig,
        trust: &dyn Fn(u32) -> Trust,
    ) -> Result<Self, OfiError> {
        let ports: Vec<OfiPort> =
            (0..ranks).map(|_| OfiPort::open(config.clone())).collect::<Result<_, _>>()?;
        let peers: Vec<Vec<u8>> = ports.iter().map(OfiPort::address).collect();
        let open = |(rank, port)| OfiWire::open(port, Rank(rank), &trust(rank), &peers);
        Ok(Self {
            wires: (0..ranks).zip(ports).map(open).collect::<Result<_, _>>()?,
            addresses: peers,
        })
    }
}

impl Fabric for Loopback {
    fn wire(&mut self, rank: Rank) -> &mut dyn Wire {
        &mut self.wires[rank.index()]
    }

    fn foreign(&mut self, length: usize, _: MemoryAccess) -> Option<AdoptedMemory> {
        let file =
            rustix::fs::memfd_create("adopted", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
                .expect("a file");
        rustix::fs::ftruncate(&file, length as u64).expect("longer");
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).expect("sealed");
        Some(Arc::new(FileMemory { file, length: length as u64, changing: Mutex::new(()) }))
    }

    /// Lets every end work a little without taking arrivals away, then gives the processor to
    /// the test that wants it.
    fn pass_time(&mut self) {
        for _ in 0..100 {
            for wire in &mut self.wires {
                wire.look();
            }
            std::thread::yield_now();
        }
    }
}

/// Memory of a test: a file that the wire maps, and that the test reads and writes by system calls.
#[derive(Debug)]
struct FileMemory {
    file: OwnedFd,
    length: u64,
    changing: Mutex<()>,
}

impl FileMemory {
    fn check(&self, at: u64, length: usize) -> Result<(), RefusalReason> {
        let end = at.checked_add(length as u64).filter(|end| *end <= self.length);
        end.map(drop).ok_or(RefusalReason::Memory)
    }
}

impl ForeignMemory for FileMemory {
    fn length(&self) -> u64 {
        self.length
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), RefusalReason> {
        self.check(at, into.len())?;
        rustix::io::pread(&self.file, into, at).map(drop).map_err(|_| RefusalReason::Memory)
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<(), RefusalReason> {
        self.check(at, from.len())?;
        rustix::io::pwrite(&self.file, from, at).map(drop).map_err(|_| RefusalReason::Memory)
    }

    fn change(&self, at: u64, kind: AtomicKind) -> Result<u64, RefusalReason> {
        let _alone = self.changing.lock().expect("nobody panics");
        let mut word = [0; 8];
        self.read(at, &mut word)?;
        let old = u64::from_ne_bytes(word);
        self.write(at, &kind.next(old).to_ne_bytes())?;
        Ok(old)
    }

    fn file(&self) -> Option<&(dyn Any + Send + Sync)> {
        Some(&self.file)
    }
}

/// Returns what rank `from` shows rank `to`, under keys that the test makes up.
fn proof(from: u32, to: u32) -> [u8; PROOF_LENGTH] {
    std::array::from_fn(|i| (i as u32 * 31 + from * 7 + to * 3 + std::process::id()) as u8)
}

fn proofs(rank: u32, ranks: u32) -> Trust {
    Trust::Proofs((0..ranks).map(|peer| [proof(rank, peer), proof(peer, rank)]).collect())
}

/// Runs `test` with every library and provider that is there; prints what is not.
fn with_each(test: &dyn Fn(&OfiConfig, &str)) {
    for library in libraries() {
        let name = library
            .as_ref()
            .map_or("the system's libfabric".into(), |path| path.display().to_string());
        for provider in PROVIDERS {
            let config = config(library.clone(), provider);
            match OfiPort::open(config.clone()) {
                Ok(port) => {
                    test(&config, &format!("{} of {name} {}", provider, port.library().version))
                }
                Err(error @ (OfiError::NoLibrary { .. } | OfiError::NoProvider { .. })) => {
                    eprintln!("skipped: {provider} of {name}: {error}");
                }
                Err(error) => panic!("{provider} of {name}: {error}"),
            }
        }
    }
}

#[test]
fn conformance__on_every_library_and_provider() {
    with_each(&|config, name| {
        let trust = |rank| proofs(rank, conformance::RANKS);
        let open = || Loopback::trusting(conformance::RANKS, config, &trust).expect("open wires");
        let lacks =
            [Need::Operation(OperationKind::Multicast), Need::Operation(OperationKind::File)];
        let others = [Need::AnyLocal, Need::SendsFollowWrites];
        let outcomes =
            conformance::check(&format!("libfabric, {name}"), &[lacks, others].concat(), open);
        eprint!("{}", outcomes.expect("every promise is kept"));
    });
}

/// What a test sees of an arrival.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SeenArrival {
    Message(Rank, Vec<u8>, Vec<u8>),
    Landed(Rank, Span, u64),
    Done(Token, Status, u64),
    Room(Class),
}

/// How long a test waits for an arrival: connecting takes a while, and another program may have the
/// processor.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Turns at the wires until a test gives up.
fn turns() -> impl Iterator<Item = ()> {
    let until = Instant::now() + TIMEOUT;
    std::iter::from_fn(move || (Instant::now() < until).then_some(()))
}

impl Loopback {
    fn poll(&mut self, rank: usize, limit: usize) -> Vec<SeenArrival> {
        let wire = &mut self.wires[rank];
        let (mut seen, mut bodies) = (Vec::new(), Vec::new());
        wire.poll(limit, &mut |arrival| {
            bodies.push(if let Arrival::Datagram(d) = arrival { d.body } else { Span::EMPTY });
            seen.extend(match arrival {
                Arrival::Datagram(d) => {
                    Some(SeenArrival::Message(d.from, d.head.to_vec(), Vec::new()))
                }
                Arrival::Landed { from, into, immediate, .. } => {
                    Some(SeenArrival::Landed(from, into, immediate))
                }
                Arrival::Done { token, status, value, .. } => {
                    Some(SeenArrival::Done(token, status, value))
                }
                Arrival::Room { queue } => queue.class().map(SeenArrival::Room),
                _ => None,
            });
        });
        let memory = wire.region(RegionId::RECEIVE).expect("receive memory");
        for (seen, span) in seen.iter_mut().zip(bodies) {
            if let SeenArrival::Message(_, _, body) = seen {
                *body = memory[span.range_in(memory.len()).expect("inside")].to_vec();
            }
        }
        seen
    }

    /// Polls at `rank` until something came, while the others work.
    fn await_one(&mut self, rank: usize) -> SeenArrival {
        for () in turns() {
            for other in &mut self.wires {
                other.look();
            }
            if let Some(seen) = self.poll(rank, 1).pop() {
                return seen;
            }
            std::thread::yield_now();
        }
        panic!(
            "nothing came to wire {rank} of {:?}",
            self.wires.iter().map(Wire::counters).collect::<Vec<_>>()
        );
    }

    fn post(&mut self, rank: usize, operation: Operation, heads: &[u8]) -> PostOutcome {
        let mut answers = Vec::new();
        self.wires[rank].post(&[operation], heads, &mut answers);
        answers[0]
    }

    fn send(
        &mut self,
        from: usize,
        to: u32,
        class: Class,
        head: &[u8],
        token: Option<Token>,
    ) -> PostOutcome {
        let mut out: Out<()> = Out::with_limit(1);
        let head = out.head(head);
        let to = Destination::One(Rank(to));
        let send = Operation::Send { to, path: PathId(0), class, head, body: Span::EMPTY, token };
        self.post(from, send, out.heads())
    }

    fn region(&mut self, rank: usize, bytes: &[u8]) -> RegionId {
        let region = self.wires[rank].register(Bytes(bytes.len() as u64)).expect("room");
        self.wires[rank].region_mut(region).expect("registered").copy_from_slice(bytes);
        region
    }

    fn write(&mut self, from: Span, into: RemoteSpan, token: Token) -> PostOutcome {
        let (to, path, class) = (Rank(1), PathId(0), Class::Bulk);
        self.post(
            0,
            Operation::Write {
                to,
                path,
                class,
                from,
                into,
                immediate: Some(7),
                token: Some(token),
            },
            &[],
        )
    }
}

fn pair(config: &OfiConfig) -> Loopback {
    Loopback::new(2, config).expect("open wires")
}

#[test]
fn write__a_mebibyte_lands_whole_by_either_way_of_sending_its_word() {
    with_each(&|config, name| {
        for ordered in [true, false] {
            let mut job = pair(config);
            let by_tcp = job.wires[0].marking == Marking::Sockets;
            assert!(
                job.wires[0].ordered || !by_tcp,
                "{name}: one stream of TCP keeps messages behind writes"
            );
            job.wires[0].ordered &= ordered;
            let bytes: Vec<u8> = (0..1 << 20).map(|i: u32| (i % 251) as u8).collect();
            let (source, target) = (job.region(0, &bytes), job.region(1, &vec![0; (1 << 20) + 8]));
            let from = Span { region: source, offset: 0, length: 1 << 20 };
            let into = Span { region: target, offset: 8, length: 1 << 20 };
            job.write(from, RemoteSpan { region: target, offset: 8 }, Token(1));
            assert_eq!(job.await_one(1), SeenArrival::Landed(Rank(0), into, 7), "{name}");
            assert_eq!(
                job.wires[1].region(target).map(|memory| memory[8..] == bytes),
                Some(true),
                "{name}"
            );
            assert_eq!(
                job.await_one(0),
                SeenArrival::Done(Token(1), Status::Complete, 0),
                "{name}"
            );
        }
    });
}

#[test]
fn write__many_at_once_land_and_end_once_each() {
    const COUNT: usize = 48;
    const LENGTH: usize = 16 * 1024;
    with_each(&|config, name| {
        let mut job = pair(config);
        let bytes: Vec<u8> = (0..COUNT * LENGTH).map(|i| (i / LENGTH) as u8 + 1).collect();
        let (source, target) = (job.region(0, &bytes), job.region(1, &vec![0; COUNT * LENGTH]));
        for i in 0..COUNT {
            // One in eight has no bytes.
            let length = if i % 8 == 7 { 0 } else { LENGTH as u32 };
            let from = Span { region: source, offset: (i * LENGTH) as u64, length };
            let into = RemoteSpan { region: target, offset: from.offset };
            let (to, path, class, token) = (Rank(1), PathId(0), Class::Bulk, Some(Token(i as u64)));
            let write =
                Operation::Write { to, path, class, from, into, immediate: Some(i as u64), token };
            assert_eq!(job.post(0, write, &[]), PostOutcome::Posted, "{name}");
        }
        let (mut landed, mut done) = (Vec::new(), Vec::new());
        for () in turns() {
            for seen in job.poll(1, 16) {
                let SeenArrival::Landed(_, into, immediate) = seen else {
                    panic!("{name}: {seen:?}")
                };
                landed.push(immediate);
                let memory = job.wires[1].region(target).expect("registered");
                let there = &memory[into.range_in(memory.len()).expect("inside")];
                assert!(
                    there.iter().all(|byte| u64::from(*byte) == immediate + 1),
                    "{name}: {immediate} before its bytes"
                );
            }
            done.extend(job.poll(0, 16));
            if landed.len() >= COUNT && done.len() >= COUNT && job.wires[0].slots.pending() == 0 {
                break;
            }
            std::thread::yield_now();
        }
        landed.sort_unstable();
        assert_eq!(landed, (0..COUNT as u64).collect::<Vec<_>>(), "{name}");
        let all = (0..COUNT as u64).map(|i| SeenArrival::Done(Token(i), Status::Complete, 0));
        assert!(
            all.clone().all(|end| done.contains(&end)) && done.len() == COUNT,
            "{name}: {done:?}"
        );
        assert!(
            job.wires[0].spoken.iter().all(|spoken| *spoken == 0) && job.wires[0].waiting == 0,
            "{name}"
        );
    });
}

#[test]
fn write__that_nobody_answers_is_flushed_once_and_a_late_answer_changes_nothing() {
    with_each(&|config, name| {
        let mut job = pair(config);
        if !job.wires[0].is_answered() {
            return eprintln!("skipped: answers to words: the provider answers on {name}");
        }
        let (source, target) = (job.region(0, &[1; 64]), job.region(1, &[0; 64]));
        let from = Span { region: source, offset: 0, length: 64 };
        let into = RemoteSpan { region: target, offset: 0 };
        job.write(from, into, Token(1));
        assert_eq!(job.await_one(0), SeenArrival::Done(Token(1), Status::Complete, 0), "{name}");
        job.wires[0].timeout = Nanos(1);
        for i in 2..10 {
            job.write(from, into, Token(i));
        }
        let mut ended = Vec::new();
        while ended.len() < 8 {
            ended.extend(job.poll(0, 16));
        }
        assert!(
            (2..10).all(|i| ended.contains(&SeenArrival::Done(Token(i), Status::Flushed, 0))),
            "{name}: {ended:?}"
        );
        job.wires[0].timeout = Nanos::from_secs(30);
        job.write(from, into, Token(10));
        let mut ended = Vec::new();
        for () in turns() {
            job.poll(1, 16);
            ended.extend(job.poll(0, 16));
            if job.wires[0].slots.pending() == 0 {
                break;
            }
            std::thread::yield_now();
        }
        assert_eq!(
            ended,
            [SeenArrival::Done(Token(10), Status::Complete, 0)],
            "{name}: and nothing of the others"
        );
        assert_eq!(job.wires[0].waiting, 0, "{name}");
    });
}

#[test]
fn write__to_a_peer_that_is_gone_ends_when_its_connection_breaks() {
    with_each(&|config, name| {
        if config.wanted != ProviderChoice::Named("tcp".into()) {
            return eprintln!(
                "skipped: a peer that is gone: {name} does not bear it; see the sources in provider.rs"
            );
        }
        let mut job = pair(config);
        let (source, target) = (job.region(0, &[1; 64]), job.region(1, &[0; 64]));
        let from = Span { region: source, offset: 0, length: 64 };
        let into = RemoteSpan { region: target, offset: 0 };
        job.write(from, into, Token(1));
        assert_eq!(job.await_one(0), SeenArrival::Done(Token(1), Status::Complete, 0), "{name}");
        // One that its peer never answers, and then nobody is there who could.
        job.write(from, into, Token(2));
        for _ in 0..64 {
            assert_eq!(job.poll(0, 16), [], "{name}");
        }
        job.wires.pop();
        job.write(from, into, Token(3));
        let mut ended = Vec::new();
        for () in turns() {
            ended.extend(job.poll(0, 16));
            if job.wires[0].slots.pending() == 0 {
                break;
            }
            std::thread::yield_now();
        }
        let flushed = [2, 3].map(|i| SeenArrival::Done(Token(i), Status::Flushed, 0));
        assert!(
            flushed.iter().all(|end| ended.contains(end)) && ended.len() == 2,
            "{name}: {ended:?}"
        );
    });
}

#[test]
fn write__of_nothing_brings_its_word_and_completes() {
    with_each(&|config, name| {
        let mut job = pair(config);
        let (source, target) = (job.region(0, b"x"), job.region(1, b"y"));
        let from = Span { region: source, offset: 0, length: 0 };
        job.write(from, RemoteSpan { region: target, offset: 1 }, Token(1));
        let into = Span { region: target, offset: 1, length: 0 };
        assert_eq!(job.await_one(1), SeenArrival::Landed(Rank(0), into, 7), "{name}");
        assert_eq!(job.await_one(0), SeenArrival::Done(Token(1), Status::Complete, 0), "{name}");
    });
}

#[test]
fn write__into_a_region_that_comes_later_is_refused_before_and_done_after() {
    with_each(&|config, name| {
        let mut job = pair(config);
        let source = job.region(0, b"12345678");
        let from = Span { region: source, offset: 0, length: 8 };
        let into = RemoteSpan { region: RegionId(0), offset: 0 };
        let refused = Status::Refused(RefusalReason::Memory);
        assert_eq!(job.write(from, into, Token(1)), PostOutcome::Posted);
        assert_eq!(job.await_one(0), SeenArrival::Done(Token(1), refused, 0), "{name}");
        job.region(1, &[0; 8]);
        assert_eq!(job.write(from, into, Token(2)), PostOutcome::Posted);
        assert!(matches!(job.await_one(1), SeenArrival::Landed(..)), "{name}");
        assert_eq!(job.await_one(0), SeenArrival::Done(Token(2), Status::Complete, 0), "{name}");
        let beyond = RemoteSpan { region: RegionId(0), offset: 1 };
        assert_eq!(
            job.write(from, beyond, Token(3)),
            PostOutcome::Refused(RefusalReason::Memory),
            "known by now"
        );
    });
}

#[test]
fn atomic__the_peer_does_it_where_the_provider_does_not() {
    with_each(&|config, name| {
        let mut job = pair(config);
        job.wires[0].native_atomics = false;
        let word = job.region(1, &40u64.to_ne_bytes());
        let atomic = |offset, kind| Operation::Atomic {
            to: Rank(1),
            path: PathId(0),
            class: Class::LowLatency,
            kind,
            at: RemoteSpan { region: word, offset },
            token: Token(9),
        };
        job.post(0, atomic(0, AtomicKind::FetchAdd(2)), &[]);
        assert_eq!(job.await_one(0), SeenArrival::Done(Token(9), Status::Complete, 40), "{name}");
        assert_eq!(job.wires[1].region(word), Some(&42u64.to_ne_bytes()[..]), "{name}");
        job.post(0, atomic(8, AtomicKind::Swap(1)), &[]);
        assert_eq!(
            job.await_one(0),
            SeenArrival::Done(Token(9), Status::Refused(RefusalReason::Memory), 0),
            "{name}"
        );
        let unaligned = job.post(0, atomic(4, AtomicKind::Swap(1)), &[]);
        assert_eq!(unaligned, PostOutcome::Refused(RefusalReason::Memory), "{name}");
    });
}

#[test]
fn send__every_message_of_a_flood_arrives_in_order_whatever_its_size() {
    const COUNT: u32 = 5_000;
    with_each(&|config, name| {
        let mut job = pair(config);
        let body = job.region(0, &[0x5a; frame::BODY_MAX]);
        let (mut sent, mut received, mut full, mut rooms) = (0, 0, 0, 0);
        while received < COUNT {
            while sent < COUNT {
                let mut out: Out<()> = Out::with_limit(1);
                let head = out.head(&sent.to_le_bytes());
                let length = if sent % 7 == 0 { frame::BODY_MAX as u32 } else { sent % 200 };
                let to = Destination::One(Rank(1));
                let body = Span { region: body, offset: 0, length };
                let send = Operation::Send {
                    to,
                    path: PathId(0),
                    class: Class::Bulk,
                    head,
                    body,
                    token: None,
                };
                match job.post(0, send, out.heads()) {
                    PostOutcome::Done(_) => sent += 1,
                    answer => {
                        assert_eq!(answer, PostOutcome::NoRoom, "{name}");
                        full += 1;
                        break;
                    }
                }
            }
            rooms += job
                .poll(0, 64)
                .iter()
                .filter(|seen| matches!(seen, SeenArrival::Room(Class::Bulk)))
                .count();
            for seen in job.poll(1, 16) {
                let length =
                    if received % 7 == 0 { frame::BODY_MAX } else { (received % 200) as usize };
                let expected = SeenArrival::Message(
                    Rank(0),
                    received.to_le_bytes().to_vec(),
                    vec![0x5a; length],
                );
                assert!(seen == expected, "{name}: message {received} is another");
                received += 1;
            }
        }
        assert!(full == 0 || rooms > 0, "{name}: {full} times full, {rooms} times room again");
    });
}

#[test]
fn send__a_rank_can_write_to_itself() {
    with_each(&|config, name| {
        let mut job = Loopback::new(1, config).expect("an open wire");
        job.send(0, 0, Class::LowLatency, b"to myself", None);
        assert_eq!(
            job.await_one(0),
            SeenArrival::Message(Rank(0), b"to myself".to_vec(), Vec::new()),
            "{name}"
        );
    });
}

#[test]
fn send__sockets_carry_the_mark_before_the_first_message_leaves() {
    with_each(&|config, name| {
        let mut job = pair(config);
        if job.wires[0].marking != Marking::Sockets {
            eprintln!("skipped: marks on sockets: {name} has none");
            return;
        }
        assert_eq!(job.wires[0].capabilities().classes, [clearway_proto::wire::Granted::Marked; 5]);
        job.send(0, 1, Class::LowLatency, b"marked", None);
        job.await_one(1);
        let ports: Vec<u16> =
            job.wires.iter().filter_map(|wire| Some(wire.own_at[1]?.port())).collect();
        let mut marks = Vec::new();
        crate::sockets::for_each_connection(&mut |own, peer, socket| {
            let ours = ports.contains(&own.port()) || ports.contains(&peer.port());
            marks.extend(ours.then(|| (socket.tos_v4().ok(), socket.priority().ok())));
        });
        assert!(marks.len() >= 2, "{name}: {marks:?}");
        assert!(marks.iter().all(|mark| *mark == (Some(0xb8), Some(6))), "{name}: {marks:?}");
        assert!(
            job.wires[0].marked_sockets().0 > 0 && job.wires[0].marked_sockets().1 == 0,
            "{name}"
        );
    });
}

#[test]
fn rest__the_descriptor_wakes_for_a_message() {
    with_each(&|config, name| {
        let mut job = pair(config);
        job.send(0, 1, Class::LowLatency, b"first", None);
        job.await_one(1);
        for _ in 0..64 {
            job.wires[0].look();
            job.wires[1].look();
        }
        job.send(0, 1, Class::LowLatency, b"second", None);
        for () in turns() {
            if let Some(seen) = job.poll(1, 1).pop() {
                assert_eq!(
                    seen,
                    SeenArrival::Message(Rank(0), b"second".to_vec(), Vec::new()),
                    "{name}"
                );
                return;
            }
            if job.wires[1].rest() == Rest::Descriptor {
                let descriptor = job.wires[1].wake_descriptor().expect("a descriptor");
                let mut descriptors =
                    [rustix::event::PollFd::new(&descriptor, rustix::event::PollFlags::IN)];
                let limit = rustix::time::Timespec { tv_sec: 10, tv_nsec: 0 };
                let woken = rustix::event::poll(&mut descriptors, Some(&limit)).expect("poll");
                assert_eq!(woken, 1, "{name}: the descriptor slept through a message");
            }
        }
        panic!("{name}: nothing came");
    });
}

#[test]
fn expire__what_waits_for_a_silent_peer_is_given_up() {
    with_each(&|config, name| {
        let mut job = pair(&OfiConfig { timeout: Nanos(1), ..config.clone() });
        let gone = job.wires.pop();
        // The peer lives, but does nothing: neither greetings nor questions are answered.
        job.send(0, 1, Class::Bulk, b"hello?", Some(Token(1)));
        let kind = AtomicKind::FetchAdd(1);
        let at = RemoteSpan { region: RegionId(0), offset: 0 };
        let (path, class) = (PathId(0), Class::Bulk);
        job.post(0, Operation::Atomic { to: Rank(1), path, class, kind, at, token: Token(2) }, &[]);
        let mut ended = Vec::new();
        while ended.len() < 2 {
            if let SeenArrival::Done(token, status, _) = job.await_one(0) {
                ended.push((token, status));
            }
        }
        assert!(ended.contains(&(Token(2), Status::Flushed)), "{name}: {ended:?}");
        drop(gone);
    });
}

#[test]
fn abandon__what_is_under_way_to_a_silent_peer_ends_and_others_have_its_place() {
    with_each(&|config, name| {
        let mut job = Loopback::new(3, config).expect("open wires");
        let (source, target) = (job.region(0, &[1; 64]), job.region(2, &[0; 64]));
        let from = Span { region: source, offset: 0, length: 64 };
        let into = RemoteSpan { region: target, offset: 0 };
        let (path, class) = (PathId(0), Class::Bulk);
        let write = |to, token| Operation::Write {
            to,
            path,
            class,
            from,
            into,
            immediate: Some(0),
            token: Some(Token(token)),
        };
        // It lives, and never looks at its wire: questions after its memory are not answered.
        let mut posted = 0;
        while job.post(0, write(Rank(1), posted), &[]) != PostOutcome::NoRoom {
            posted += 1;
        }
        job.post(0, Operation::Abandon { peer: Rank(1) }, &[]);
        job.post(0, write(Rank(2), posted), &[]);
        let mut ended = Vec::new();
        for () in turns() {
            job.poll(2, 64);
            ended.extend(
                job.poll(0, 64).into_iter().filter(|seen| matches!(seen, SeenArrival::Done(..))),
            );
            if ended.len() as u64 > posted {
                break;
            }
            std::thread::yield_now();
        }
        let wanted = (0..posted).map(|token| SeenArrival::Done(Token(token), Status::Flushed, 0));
        let wanted: Vec<SeenArrival> =
            wanted.chain([SeenArrival::Done(Token(posted), Status::Complete, 0)]).collect();
        assert_eq!(ended, wanted, "{name}");
    });
}

#[test]
fn poll__messages_of_another_job_are_counted_and_dropped() {
    with_each(&|config, name| {
        let mut job =
            Loopback::trusting(2, config, &|rank| Trust::Session(rank.into())).expect("open wires");
        job.send(0, 1, Class::BestEffort, b"strange", None);
        for () in turns() {
            job.wires[0].look();
            assert_eq!(job.poll(1, 64), [], "{name}");
            if job.wires[1].counters().strangers > 0 {
                return;
            }
            std::thread::yield_now();
        }
        panic!("{name}: the stranger never arrived");
    });
}

/// Lets the others work until somebody was turned away from wire 1, which hears nobody.
fn await_refusal(job: &mut Loopback, name: &str) -> String {
    for () in turns() {
        for other in [0, job.wires.len() - 1] {
            job.wires[other].look();
        }
        assert_eq!(job.poll(1, 64), [], "{name}");
        if let Some(refusal) = job.wires[1].refusal() {
            return refusal.to_string();
        }
        std::thread::yield_now();
    }
    panic!("{name}: nobody was turned away");
}

const STRANGER: &str = "who greets as rank 0 does not hold the key of this job, or repeats a greeting, so it is not heard; \
                        start all ranks in one run";

#[test]
fn greet__a_rank_with_another_key_is_refused_in_one_sentence() {
    with_each(&|config, name| {
        // With another key all is wrong; who listened to the network knows the session number.
        for wrong_from in [0, 8] {
            let mut wrong = proof(0, 1);
            wrong[wrong_from..].iter_mut().for_each(|byte| *byte ^= 0x55);
            let trust = |rank| match rank {
                0 => Trust::Proofs(vec![[proof(0, 0); 2], [wrong, proof(1, 0)]]),
                _ => proofs(rank, 2),
            };
            let mut job = Loopback::trusting(2, config, &trust).expect("open wires");
            job.send(0, 1, Class::BestEffort, b"hear me", None);
            assert_eq!(await_refusal(&mut job, name), STRANGER, "{name}");
            // The message that followed the greeting is not taken either.
            for () in turns() {
                job.wires[0].look();
                assert_eq!(job.poll(1, 64), [], "{name}");
                if job.wires[1].counters().strangers == 2 {
                    break;
                }
                std::thread::yield_now();
            }
            assert_eq!(job.wires[1].counters().strangers, 2, "{name}");
        }
    });
}

#[test]
fn greet__a_proof_is_taken_once() {
    with_each(&|config, name| {
        let mut job = Loopback::trusting(2, config, &|rank| proofs(rank, 2)).expect("open wires");
        job.send(0, 1, Class::Control, b"first", None);
        assert_eq!(
            job.await_one(1),
            SeenArrival::Message(Rank(0), b"first".to_vec(), Vec::new()),
            "{name}"
        );
        assert!(
            job.wires[1].refusal().is_none() && job.wires[1].counters().strangers == 0,
            "{name}"
        );
        // Somebody who recorded all of that, at another address, begins with the same greeting.
        let port = OfiPort::open(config.clone()).expect("a port");
        let mut peers = vec![port.address(); 2];
        peers[1].clone_from(&job.addresses[1]);
        job.wires.push(OfiWire::open(port, Rank(0), &proofs(0, 2), &peers).expect("an open wire"));
        let impostor = job.wires.last_mut().expect("just opened");
        impostor.send_greeting(lane_of(Class::Control, impostor.lanes), Rank(1));
        assert_eq!(await_refusal(&mut job, name), STRANGER, "{name}");
        assert_eq!(job.wires[1].counters().strangers, 1, "{name}");
        job.send(0, 1, Class::Control, b"second", None);
        assert_eq!(
            job.await_one(1),
            SeenArrival::Message(Rank(0), b"second".to_vec(), Vec::new()),
            "{name}: still heard"
        );
    });
}

#[test]
fn open__lists_that_cannot_work_are_one_sentence() {
    let open = |peers: &dyn Fn(Vec<u8>) -> Vec<Vec<u8>>, rank| {
        let port = OfiPort::open(OfiConfig {
            source: ProviderInterface::Address([127, 0, 0, 1].into()),
            ..OfiConfig::default()
        });
        let port = port.map_err(|error| eprintln!("skipped: lists of peers: {error}")).ok()?;
        let address = port.address();
        Some(
            OfiWire::open(port, Rank(rank), &Trust::Session(1), &peers(address))
                .expect_err("cannot work")
                .to_string(),
        )
    };
    let Some(error) = open(&|own| vec![own], 1) else { return };
    assert_eq!(error, "rank 1 is not among the 1 peers; ranks are numbered from 0");
    let error = open(&|own| vec![own, b"10.0.0.1:80".to_vec()], 0).expect("as before");
    assert!(
        error.starts_with("the address published for rank 1 is none of the libfabric wire"),
        "{error}"
    );
    let other = |own: Vec<u8>| {
        let mut other = PublishedAddress::parse(&own).expect("an address");
        other.provider = "carrier pigeon".into();
        vec![own, other.bytes()]
    };
    let error = open(&other, 0).expect("as before");
    assert!(error.starts_with("rank 1 speaks carrier pigeon (protocol "), "{error}");
}

#[test]
fn send__what_goes_to_a_peer_that_is_gone_ends_and_others_are_still_reached() {
    with_each(&|config, name| {
        let timeout = Nanos::from_millis(500);
        if config.wanted != ProviderChoice::Named("tcp".into()) {
            eprintln!(
                "skipped: a peer that is gone: {name} does not bear it; see the sources in provider.rs"
            );
            return;
        }
        let mut job =
            Loopback::new(3, &OfiConfig { timeout, ..config.clone() }).expect("open wires");
        for to in [1, 2] {
            job.send(0, to, Class::Bulk, b"hello", None);
            job.await_one(to as usize);
        }
        job.wires.remove(1);
        for i in 0..20 {
            assert_ne!(
                job.send(0, 1, Class::Bulk, &[0; 80], Some(Token(i))),
                PostOutcome::NoRoom,
                "{name}"
            );
        }
        job.send(0, 2, Class::LowLatency, b"still there", None);
        assert_eq!(
            job.await_one(1),
            SeenArrival::Message(Rank(0), b"still there".to_vec(), Vec::new()),
            "{name}"
        );
        let mut pending = job.wires[0].slots.pending();
        for () in turns() {
            if pending == 0 {
                return;
            }
            job.poll(0, 64);
            pending = job.wires[0].slots.pending();
            std::thread::yield_now();
        }
        panic!("{name}: {pending} operations to a peer that is gone never ended");
    });
}
