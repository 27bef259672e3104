//! Ranks in one process, each with its own mappings: the contract's suite, classes apart, the ends
//! of peers, bad peers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use clearway_proto::base::Nanos;
use clearway_proto::wire::Out;
use clearway_proto::wire::conformance::{self, Fabric, Need};
use clearway_proto::wire::foreign_memory::WordMemory;

use super::layout::RING_MIN;
use super::*;
use crate::waiting::Waiting;
use crate::waiting::asleep::assert_wakes;

/// Sessions of this test process, so that tests running side by side do not meet.
static SESSIONS: AtomicU64 = AtomicU64::new(0);

/// Longest wait for what is expected; nothing is asserted about how long it took.
const TIMEOUT: Nanos = Nanos::from_millis(20_000);

fn session() -> u64 {
    u64::from(std::process::id()) << 32 | SESSIONS.fetch_add(1, Ordering::Relaxed)
}

struct ShmHost {
    wires: Vec<ShmWire>,
}

impl ShmHost {
    fn new(ranks: u32, change: impl Fn(&mut ShmConfig) + Sync) -> Self {
        let (session, change) = (session(), &change);
        let open = |rank| {
            let mut config = ShmConfig::new(Rank(rank), session, (0..ranks).map(Rank).collect());
            config.waiting = Waiting::Sleep;
            change(&mut config);
            ShmWire::open(config).expect("an open wire")
        };
        let wires = thread::scope(|scope| {
            let opening: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || open(rank))).collect();
            opening.into_iter().map(|opening| opening.join().expect("opened")).collect()
        });
        Self { wires }
    }

    fn post(&mut self, from: usize, operation: Operation) -> PostOutcome {
        let mut answers = Vec::new();
        self.wires[from].post(&[operation], &[], &mut answers);
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
        send(&mut self.wires[from], to, class, head, token)
    }

    fn heads(&mut self, rank: usize) -> Vec<(Option<Class>, Vec<u8>)> {
        let mut seen = Vec::new();
        while self.wires[rank].poll(64, &mut |arrival| {
            if let Arrival::Datagram(d) = arrival {
                seen.push((d.class, d.head.to_vec()));
            }
        }) > 0
        {}
        seen
    }
}

fn send(
    wire: &mut ShmWire,
    to: u32,
    class: Class,
    head: &[u8],
    token: Option<Token>,
) -> PostOutcome {
    let mut out: Out<()> = Out::with_limit(1);
    let head = out.head(head);
    let to = Destination::One(Rank(to));
    let send = Operation::Send { to, path: PathId(0), class, head, body: Span::EMPTY, token };
    let mut answers = Vec::new();
    wire.post(&[send], out.heads(), &mut answers);
    answers[0]
}

/// Waits and polls until something other than messages came; gives that.
fn await_event(wire: &mut ShmWire) -> Vec<String> {
    let until = clock::now() + TIMEOUT;
    let mut news = Vec::new();
    while news.is_empty() && clock::now() < until {
        wire.wait(Some(until), &[]);
        wire.poll(64, &mut |arrival| match arrival {
            Arrival::Datagram(_) => {}
            Arrival::Done { token, status, .. } => news.push(format!("{token:?} {status:?}")),
            Arrival::Room { queue } => {
                news.push(format!("room {}", queue.class().expect("a class")))
            }
            Arrival::PathState { rate, .. } => news.push(format!("path {rate:?}")),
            other => news.push(format!("{other:?}")),
        });
    }
    news
}

impl Fabric for ShmHost {
    fn wire(&mut self, rank: Rank) -> &mut dyn Wire {
        &mut self.wires[rank.index()]
    }

    fn foreign(&mut self, length: usize, reach: MemoryAccess) -> Option<AdoptedMemory> {
        Some(match reach {
            MemoryAccess::Peers => Arc::new(SharedMemory::new(length).expect("memory")),
            MemoryAccess::Local => Arc::new(WordMemory::new(length, reach)),
        })
    }

    /// Memory has no latency: what was posted is there.
    fn pass_time(&mut self) {}
}

#[test]
fn conformance__the_shared_memory_wire_keeps_the_contract() {
    for ring in [RING_MIN, Bytes(1 << 20)] {
        let make = || ShmHost::new(conformance::RANKS, |config| config.ring = ring);
        let lacks = [Need::Operation(OperationKind::File)];
        let outcomes = conformance::check(&format!("shared memory, rings of {ring}"), &lacks, make);
        eprint!("{}", outcomes.expect("every promise is kept"));
    }
}

#[test]
fn classes__a_full_ring_of_bulk_delays_and_refuses_nobody_else() {
    let mut host = ShmHost::new(2, |_| {});
    while host.send(0, 1, Class::Bulk, b"bulk", None) == PostOutcome::Done(0) {}
    for class in [Class::Scavenger, Class::BestEffort, Class::LowLatency, Class::Control] {
        assert_eq!(
            host.send(0, 1, class, class.name().as_bytes(), None),
            PostOutcome::Done(0),
            "{class}"
        );
    }
    let seen = host.heads(1);
    let order: Vec<Class> = seen.iter().filter_map(|(class, _)| *class).collect();
    assert!(order.len() > 1_000 && order.is_sorted(), "the most urgent first: {:?}", &order[..5]);
}

#[test]
fn post__a_class_that_was_refused_stays_refused_until_room_was_given() {
    let mut host = ShmHost::new(2, |_| {});
    while host.send(0, 1, Class::Bulk, b"bulk", None) == PostOutcome::Done(0) {}
    host.heads(1);
    assert_eq!(host.send(0, 1, Class::Bulk, b"overtakes", None), PostOutcome::NoRoom);
    assert_eq!(await_event(&mut host.wires[0]), ["room bulk"]);
    assert_eq!(host.send(0, 1, Class::Bulk, b"bulk", None), PostOutcome::Done(0));
    assert!(host.wires[0].counters().no_room >= 2);
}

#[test]
fn send__a_rank_can_use_every_operation_on_itself() {
    let mut host = ShmHost::new(1, |_| {});
    assert_eq!(host.send(0, 0, Class::LowLatency, b"to myself", None), PostOutcome::Done(0));
    assert_eq!(host.heads(0), [(Some(Class::LowLatency), b"to myself".to_vec())]);
    let region = host.wires[0].register(Bytes(16)).expect("room");
    let at = RemoteSpan { region, offset: 8 };
    let (to, path, class, token) = (Rank(0), PathId(0), Class::Control, Token(1));
    let change = Operation::Atomic { to, path, class, kind: AtomicKind::FetchAdd(3), at, token };
    assert_eq!(
        [host.post(0, change), host.post(0, change)],
        [PostOutcome::Done(0), PostOutcome::Done(3)]
    );
    assert_eq!(host.wires[0].region(region).expect("registered")[8], 6);
}

#[test]
fn change__an_unaligned_or_unknown_word_is_refused() {
    let mut host = ShmHost::new(2, |_| {});
    let region = host.wires[1].register(Bytes(12)).expect("room");
    let (to, path, class, token) = (Rank(1), PathId(0), Class::Control, Token(1));
    for (region, offset) in
        [(region, 4), (region, 8), (region, u64::MAX - 7), (RegionId(7), 0), (RegionId::RECEIVE, 0)]
    {
        let at = RemoteSpan { region, offset };
        let change = Operation::Atomic { to, path, class, kind: AtomicKind::Swap(3), at, token };
        assert_eq!(host.post(0, change), PostOutcome::Refused(RefusalReason::Memory), "{at:?}");
    }
}

#[test]
fn wait__sleepers_are_woken_by_each_message_and_by_room() {
    const TURNS: u32 = 5_000;
    let mut host = ShmHost::new(2, |config| config.ring = RING_MIN);
    let mut far = host.wires.pop().expect("two wires");
    let near = &mut host.wires[0];
    // Bulk of one line, far more than the ring holds, in both directions: each side sleeps for
    // records and for room.
    let play = |wire: &mut ShmWire, peer: u32| {
        let (mut sent, mut next, mut blocked) = (0u32, 0u32, false);
        let until = clock::now() + TIMEOUT;
        loop {
            while sent < TURNS && !blocked {
                match send(wire, peer, Class::Bulk, &sent.to_le_bytes(), None) {
                    PostOutcome::Done(_) => sent += 1,
                    answer => {
                        assert_eq!(answer, PostOutcome::NoRoom);
                        blocked = true;
                    }
                }
            }
            if sent == TURNS && next == TURNS {
                break;
            }
            wire.wait(Some(until), &[]);
            assert!(clock::now() < until, "a wake-up was lost");
            wire.poll(64, &mut |arrival| match arrival {
                Arrival::Datagram(d) => {
                    assert_eq!(d.head, next.to_le_bytes());
                    next += 1;
                }
                Arrival::Room { .. } => blocked = false,
                other => panic!("{other:?}"),
            });
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| play(&mut far, 0));
        play(near, 1);
    });
}

#[test]
fn dead_peers__what_was_shown_before_the_end_arrives_and_what_is_asked_after_it_is_flushed() {
    let mut host = ShmHost::new(3, |_| {});
    let regions = [1, 2].map(|rank: usize| host.wires[rank].register(Bytes(64)).expect("room"));
    while host.send(0, 1, Class::Scavenger, b"fills", None) == PostOutcome::Done(0) {}
    let mut last = host.wires.pop().expect("three wires");
    let mut middle = host.wires.pop().expect("three wires");
    assert_eq!(send(&mut middle, 0, Class::Control, b"last words", None), PostOutcome::Done(0));
    drop(middle);
    assert_eq!(
        await_event(&mut host.wires[0]),
        ["room scavenger"],
        "may try, to learn that the rank is gone"
    );
    assert_eq!(host.wires[0].dead_peers().collect::<Vec<_>>(), [Rank(1)]);
    let (path, class, region) = (PathId(0), Class::Bulk, regions[0]);
    let own = host.wires[0].register(Bytes(8)).expect("room");
    let (from, at) = (Span { region: own, offset: 0, length: 8 }, RemoteSpan { region, offset: 0 });
    let write = |token| Operation::Write {
        to: Rank(1),
        path,
        class,
        from,
        into: at,
        immediate: Some(0),
        token: Some(Token(token)),
    };
    let kind = AtomicKind::Swap(1);
    let asked = [
        write(1),
        Operation::Read { peer: Rank(1), path, class, from: at, into: from, token: Token(2) },
        Operation::Atomic { to: Rank(1), path, class, kind, at, token: Token(3) },
    ];
    for operation in asked {
        assert_eq!(host.post(0, operation), PostOutcome::Posted);
    }
    assert_eq!(host.send(0, 1, class, b"anyone?", Some(Token(4))), PostOutcome::Posted);
    let flushed = [1, 2, 3, 4].map(|token| format!("{:?} Flushed", Token(token)));
    assert_eq!(await_event(&mut host.wires[0]), flushed);
    assert_eq!(send(&mut last, 0, class, b"here", None), PostOutcome::Done(0));
    assert_eq!(host.send(0, 2, class, b"still here", None), PostOutcome::Done(0));
    drop(last);
    assert_eq!(await_event(&mut host.wires[0]), ["path None"], "nobody is left");
}

#[test]
fn poll__a_peer_that_writes_nonsense_is_given_up_and_others_go_on() {
    let mut host = ShmHost::new(3, |_| {});
    let place = host.wires[0].neighbours.place(Rank(1)).expect("a neighbour");
    // The bad peer's own rings lie in the victim's memory; nonsense is put there as it would do it.
    let layout = host.wires[0].neighbours.layout();
    host.wires[0].neighbours.overwrite_own(layout.place(place, Class::Bulk).tail, u32::MAX);
    host.wires[0].neighbours.overwrite_own(layout.shown(place), 1);
    assert_eq!(host.send(2, 0, Class::Bulk, b"good", None), PostOutcome::Done(0));
    assert_eq!(host.heads(0), [(Some(Class::Bulk), b"good".to_vec())]);
    assert_eq!(host.wires[0].counters().strangers, 1);
    assert_eq!(host.wires[0].dead_peers().collect::<Vec<_>>(), [Rank(1)]);
    await_dead_peer(&mut host.wires[1], Rank(0));
}

/// Waits until `rank` is gone for `wire`.
fn await_dead_peer(wire: &mut ShmWire, rank: Rank) {
    let until = clock::now() + TIMEOUT;
    while !wire.dead_peers().any(|gone| gone == rank) {
        assert!(clock::now() < until, "rank {rank} is not noticed");
        wire.wait(Some(until), &[]);
        wire.poll(64, &mut |_| {});
    }
}

#[test]
fn poll__a_notice_of_a_write_to_nowhere_gives_its_writer_up() {
    let mut host = ShmHost::new(2, |_| {});
    let landed = record::landed(Span { region: RegionId(0), offset: 0, length: 1 }, 0);
    let opening = RecordHeader { kind: RecordKind::Landed, head: LANDED_LENGTH, body: 0 };
    let place = host.wires[1].neighbours.place(Rank(0)).expect("a neighbour");
    assert_eq!(
        host.wires[1].neighbours.put(place, Class::Bulk, opening, &landed, &[]),
        PutOutcome::Taken
    );
    host.wires[1].neighbours.show();
    let mut landings = 0;
    host.wires[0].poll(64, &mut |arrival| {
        landings += usize::from(matches!(arrival, Arrival::Landed { .. }))
    });
    assert_eq!((landings, host.wires[0].counters().strangers), (0, 1));
}

fn opening_fails(config: ShmConfig) -> String {
    ShmWire::open(config).expect_err("cannot open").to_string()
}

#[test]
fn open__says_who_did_not_come() {
    let mut config = ShmConfig::new(Rank(1), session(), vec![Rank(0), Rank(1), Rank(7)]);
    config.timeout = Nanos::from_millis(5);
    let sentence = "rank 0 and 1 others did not come to this host's shared memory within 5 ms; \
                    only ranks of one host and one network namespace can share memory";
    assert_eq!(opening_fails(config), sentence);
}

#[test]
fn open__memory_that_the_machine_does_not_have_is_one_sentence() {
    let mut config = ShmConfig::new(Rank(0), session(), (0..64).map(Rank).collect());
    config.ring = layout::RING_MAX;
    let sentence = opening_fails(config);
    assert!(
        sentence.starts_with("shared memory for 64 ranks takes 131073 MiB for each rank and "),
        "{sentence}"
    );
    assert!(
        sentence.ends_with(" MiB are free; use fewer ranks on this host or shorter rings"),
        "{sentence}"
    );
}

#[test]
fn open__two_processes_of_one_rank_and_other_rings_are_refused() {
    let session = session();
    let config = |rank: u32| ShmConfig::new(Rank(rank), session, vec![Rank(0), Rank(1)]);
    let [first, second] = [config(0), config(0)];
    let mut other = config(1);
    other.ring = RING_MIN;
    let (say, hear) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let open = |config| {
            let say = say.clone();
            scope.spawn(move || say.send(opening_fails(config)))
        };
        open(first);
        open(second);
        let taken = hear.recv().expect("one of the two");
        assert!(taken.starts_with("another process of this host is rank 0 of session "), "{taken}");
        open(other);
        let shape = "shares memory with other lengths of rings or another list of ranks; configure all ranks alike";
        for _ in 0..2 {
            let sentence = hear.recv().expect("both");
            assert!(sentence.ends_with(shape), "{sentence}");
        }
    });
}

#[test]
fn rest__a_thread_sleeps_without_the_wire_and_wakes_for_each_message() {
    let mut host = ShmHost::new(2, |_| {});
    let receiver = host.wires.pop().expect("two");
    assert_wakes(&mut host.wires[0], receiver);
}
