//! Reliable wires on a fabric that loses, doubles, delays, damages and cuts.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::base::{RandomKey, RandomStream};
use crate::wire::conformance::{self, Fabric, Need};
use crate::wire::memory::{FaultInjection, MemoryConfig, MemoryFabric, MemoryWire};
use crate::wire::{
    Arrival, Destination, Operation, OperationKind, Out, PathId, PostOutcome, RefusalReason, Wire,
};

mod bottleneck;
mod live;
mod rails;
mod reuse;

/// Wires of all ranks, and the fabric between them.
struct ReliableJob {
    fabric: MemoryFabric,
    wires: Vec<ReliableWire<MemoryWire>>,
}

impl ReliableJob {
    fn new(config: MemoryConfig, streams: &StreamConfig) -> Self {
        let mut fabric = MemoryFabric::new(config);
        let wires = (0..config.ranks).map(|rank| {
            let wire = ReliableWire::new(fabric.take(Rank(rank)), config.ranks, streams, 0);
            wire.expect("the memory wire has all that is needed")
        });
        let wires = wires.collect();
        Self { fabric, wires }
    }

    fn lend(&mut self) {
        for (rank, wire) in self.wires.iter_mut().enumerate() {
            self.fabric.exchange(Rank(rank as u32), wire.below_mut());
        }
    }

    /// Moves time to the next instant at which something can happen, by `most` if nothing does.
    /// `false` when nothing ever will.
    fn pass(&mut self, most: Nanos) -> bool {
        let now = self.fabric.now();
        let deadline = self.wires.iter().filter_map(Wire::deadline).min();
        self.lend();
        let next = [self.fabric.next_arrival(), deadline].into_iter().flatten().min();
        let to = next.unwrap_or(now + most).clamp(now + Nanos(1), now + most);
        self.fabric.advance(to);
        self.lend();
        next.is_some()
    }

    fn wire(&mut self, rank: u32) -> &mut ReliableWire<MemoryWire> {
        &mut self.wires[rank as usize]
    }

    fn post(&mut self, rank: u32, operation: Operation, heads: &[u8]) -> PostOutcome {
        let mut answers = Vec::new();
        self.wire(rank).post(&[operation], heads, &mut answers);
        answers[0]
    }

    fn send(
        &mut self,
        from: u32,
        to: u32,
        class: Class,
        head: &[u8],
        body: Span,
        token: Option<Token>,
    ) -> PostOutcome {
        let mut out: Out<()> = Out::with_limit(1);
        let head = out.head(head);
        let to = Destination::One(Rank(to));
        self.post(
            from,
            Operation::Send { to, path: PathId(0), class, head, body, token },
            out.heads(),
        )
    }

    fn memory(&mut self, rank: u32, bytes: &[u8]) -> RegionId {
        let wire = self.wire(rank);
        let region = wire.register(Bytes(bytes.len() as u64)).expect("room");
        wire.region_mut(region).expect("registered").copy_from_slice(bytes);
        region
    }
}

impl Fabric for ReliableJob {
    fn wire(&mut self, rank: Rank) -> &mut dyn Wire {
        &mut self.wires[rank.index()]
    }

    fn pass_time(&mut self) {
        // As long as ranks of a real job would have been driven meanwhile.
        let end = self.fabric.now() + Nanos::from_millis(1);
        while self.fabric.now() < end {
            self.pass(Nanos::from_micros(50));
            for wire in &mut self.wires {
                wire.poll(0, &mut |_| {});
            }
        }
    }
}

fn fault_injection(ranks: u32, seed: u64) -> MemoryConfig {
    let fault_injection = FaultInjection { doubled: 20_000, late: 30_000, damaged: 20_000 };
    MemoryConfig {
        loss_per_million: 50_000,
        fault_injection,
        seed,
        ..MemoryConfig::lossless(ranks)
    }
}

#[test]
fn conformance__a_smooth_and_a_rough_fabric_keep_all_promises() {
    use OperationKind::{Atomic, File, Multicast, Read};
    let lacks = [Multicast, Read, Atomic, File].map(Need::Operation);
    for (wire, config) in [
        ("reliable over memory", MemoryConfig::lossless(conformance::RANKS)),
        ("reliable over rough memory", fault_injection(conformance::RANKS, 5)),
    ] {
        let outcomes = conformance::check(wire, &lacks, || {
            ReliableJob::new(config, &StreamConfig::new(config.ranks))
        });
        std::eprint!("{}", outcomes.expect("every promise is kept"));
    }
}

/// From whom, to whom, in which class.
type StreamId = (u32, u32, Class);

/// Header and body.
type SentMessage = (Vec<u8>, Vec<u8>);

/// Word, place and bytes.
type WrittenWord = (u64, RemoteSpan, Vec<u8>);

/// What streams are to bring, and have brought.
#[derive(Default)]
struct Expected {
    messages: BTreeMap<StreamId, VecDeque<SentMessage>>,
    landings: BTreeMap<StreamId, VecDeque<WrittenWord>>,
    tokens: BTreeMap<(u32, u64), u32>,
}

/// Random traffic among all ranks of a job.
struct Traffic {
    job: ReliableJob,
    random: RandomStream,
    sources: Vec<RegionId>,
    targets: Vec<RegionId>,
    expected: Expected,
    posted: u64,
}

const SOURCE: u64 = 1 << 17;

impl Traffic {
    fn new(config: MemoryConfig) -> Self {
        // Half of the seeds let acknowledgements wait for data that carry them.
        let answer_soon = Nanos::from_micros(200 * (config.seed % 2));
        let streams = StreamConfig::new(config.ranks);
        let streams = StreamConfig { inbox: Bytes(16 << 10), answer_soon, ..streams };
        let mut job = ReliableJob::new(config, &streams);
        let bytes: Vec<u8> = (0..SOURCE).map(|i| (i ^ i >> 7) as u8).collect();
        let sources = (0..config.ranks).map(|rank| job.memory(rank, &bytes)).collect();
        let targets =
            (0..config.ranks).map(|rank| job.memory(rank, &vec![0; SOURCE as usize])).collect();
        let random = RandomKey::new(config.seed).purpose("traffic").stream();
        Self { job, random, sources, targets, expected: Expected::default(), posted: 0 }
    }

    fn bytes(&self, rank: u32, span: Span) -> Vec<u8> {
        let region = self.job.wires[rank as usize].region(span.region).expect("a region");
        region[span.range_in(region.len()).expect("inside")].to_vec()
    }

    /// Posts something from somewhere to somewhere.
    fn post(&mut self) {
        let ranks = self.job.wires.len() as u64;
        let (from, to) = (self.random.below(ranks) as u32, self.random.below(ranks) as u32);
        let class = Class::ALL[self.random.below(5) as usize];
        let long = self.random.below(4) == 0;
        let length = self.random.below(if long { 8_000 } else { 200 });
        let offset = self.random.below(SOURCE - length);
        let body = Span { region: self.sources[from as usize], offset, length: length as u32 };
        let bytes = self.bytes(from, body);
        let token = (self.random.below(3) > 0).then_some(Token(self.posted));
        let key = (from, to, class);
        let answer = if self.random.below(2) == 0 {
            let head: Vec<u8> = (0..self.random.below(1 + HEAD_MAX as u64))
                .map(|i| i as u8 ^ self.posted as u8)
                .collect();
            let answer = self.job.send(from, to, class, &head, body, token);
            if answer == PostOutcome::Posted {
                self.expected.messages.entry(key).or_default().push_back((head, bytes));
            }
            answer
        } else {
            // Parts of memory of their own for each writer and class: writes of several streams
            // have no order.
            let part = SOURCE / (ranks * 5);
            let length = length.min(part / 4);
            let start = (u64::from(from) * 5 + class.index() as u64) * part
                + self.random.below(part - length);
            let into = RemoteSpan { region: self.targets[to as usize], offset: start };
            let (from_span, bytes) =
                (Span { length: length as u32, ..body }, bytes[..length as usize].to_vec());
            let (path, immediate) = (PathId(0), self.posted);
            let write = Operation::Write {
                to: Rank(to),
                path,
                class,
                from: from_span,
                into,
                immediate: Some(immediate),
                token,
            };
            let answer = self.job.post(from, write, &[]);
            if answer == PostOutcome::Posted {
                self.expected.landings.entry(key).or_default().push_back((immediate, into, bytes));
            }
            answer
        };
        assert!(matches!(answer, PostOutcome::Posted | PostOutcome::NoRoom), "{answer:?}");
        if let (Some(token), PostOutcome::Posted) = (token, answer) {
            self.expected.tokens.insert((from, token.0), 0);
        }
        self.posted += 1;
    }

    /// Polls everywhere and compares with what was expected.
    fn poll(&mut self) {
        for rank in 0..self.job.wires.len() as u32 {
            let mut seen = Vec::new();
            self.job.wire(rank).poll(64, &mut |arrival| match arrival {
                Arrival::Datagram(d) => {
                    seen.push((d.from, d.class, Some(d.head.to_vec()), d.body, 0))
                }
                Arrival::Landed { from, into, immediate, .. } => {
                    seen.push((from, None, None, into, immediate))
                }
                Arrival::Done { token, status, .. } => {
                    assert_eq!(status, Status::Complete);
                    *self.expected.tokens.get_mut(&(rank, token.0)).expect("a token of ours") += 1;
                }
                Arrival::Room { .. } => {}
                other => panic!("{other:?}"),
            });
            for (from, class, head, body, immediate) in seen {
                match (head, class) {
                    (Some(head), Some(class)) => {
                        let bytes = self.bytes(rank, body);
                        let next = self
                            .expected
                            .messages
                            .get_mut(&(from.0, rank, class))
                            .and_then(VecDeque::pop_front);
                        assert_eq!((head, bytes), next.expect("a message that was sent"));
                    }
                    _ => self.landed(from.0, rank, body, immediate),
                }
            }
        }
    }

    /// Handles a write of some class of `from` that has landed: the next of one of them.
    fn landed(&mut self, from: u32, rank: u32, into: Span, immediate: u64) {
        let streams = self
            .expected
            .landings
            .iter_mut()
            .filter(|((writer, at, _), _)| (*writer, *at) == (from, rank));
        let next = streams
            .filter_map(|(_, queue)| queue.pop_front_if(|(word, _, _)| *word == immediate))
            .next();
        let (_, place, bytes) = next.expect("the first of its stream");
        assert_eq!(
            (into.region, into.offset, into.length as usize),
            (place.region, place.offset, bytes.len())
        );
    }

    fn is_over(&self) -> bool {
        let Expected { messages, landings, tokens } = &self.expected;
        messages.values().all(VecDeque::is_empty)
            && landings.values().all(VecDeque::is_empty)
            && tokens.values().all(|count| *count == 1)
    }

    fn run(mut self, posts: u64) {
        let mut rounds = 0;
        while self.posted < posts || !self.is_over() {
            if self.posted < posts {
                (0..1 + self.random.below(4)).for_each(|_| self.post());
            }
            self.poll();
            self.job.pass(Nanos::from_millis(70));
            rounds += 1;
            assert!(rounds < 400_000, "it does not come to an end");
        }
        assert!(self.expected.tokens.values().all(|count| *count == 1));
    }
}

#[test]
fn traffic__everything_arrives_once_in_order_and_as_it_was() {
    for seed in 0..8 {
        Traffic::new(fault_injection(3, seed)).run(600);
    }
}

#[test]
fn traffic__over_two_paths_of_which_one_fails_and_comes_back() {
    for seed in 0..4 {
        let mut traffic = Traffic::new(MemoryConfig {
            paths: 2,
            loss_per_million: 5_000,
            seed,
            ..MemoryConfig::lossless(3)
        });
        for round in 0..400 {
            match round {
                100 => traffic.job.fabric.cut_path(PathId((seed % 2) as u8)),
                300 => traffic.job.fabric.restore_path(PathId((seed % 2) as u8)),
                _ => {}
            }
            traffic.post();
            traffic.poll();
            traffic.job.pass(Nanos::from_millis(70));
        }
        traffic.run(800);
    }
}

/// Makes a long write from rank 0 to rank 1; returns how long it takes until the token is back, and
/// what became of it. A path may be cut when that many datagrams have left.
fn write(job: &mut ReliableJob, length: u32, cut: Option<(PathId, u64)>) -> (Nanos, Status) {
    let bytes: Vec<u8> = (0..length).map(|i| (i ^ i >> 9) as u8).collect();
    let source = job.memory(0, &bytes);
    let target = job.memory(1, &vec![0; length as usize]);
    let from = Span { region: source, offset: 0, length };
    let (path, class, into) = (PathId(0), Class::Bulk, RemoteSpan { region: target, offset: 0 });
    let begin = job.fabric.now();
    let write = Operation::Write {
        to: Rank(1),
        path,
        class,
        from,
        into,
        immediate: Some(1),
        token: Some(Token(9)),
    };
    assert_eq!(job.post(0, write, &[]), PostOutcome::Posted);
    let mut ended = None;
    while ended.is_none() {
        if let Some((path, _)) = cut.filter(|(_, after)| job.wires[0].counters().sent >= *after) {
            job.fabric.cut_path(path);
        }
        job.pass(Nanos::from_millis(70));
        job.wire(1).poll(64, &mut |_| {});
        job.wire(0).poll(64, &mut |arrival| {
            if let Arrival::Done { token: Token(9), status, .. } = arrival {
                ended = Some(status);
            }
        });
        assert!(job.fabric.now().since(begin) < Nanos::from_secs(60), "it does not come to an end");
    }
    if ended == Some(Status::Complete) {
        assert!(job.wire(1).region(target).is_some_and(|there| there == bytes));
    }
    (job.fabric.now().since(begin), ended.unwrap_or(Status::Flushed))
}

#[test]
fn cut__a_transfer_goes_on_over_the_other_path_where_it_was() {
    const LENGTH: u32 = 4 << 20;
    let config = MemoryConfig { paths: 2, room: 100_000, ..MemoryConfig::lossless(2) };
    let fragments = u64::from(LENGTH) / 1_432 + 1;
    let (usual, _) = write(&mut ReliableJob::new(config, &StreamConfig::new(2)), LENGTH, None);
    let mut job = ReliableJob::new(config, &StreamConfig::new(2));
    let (took, status) = write(&mut job, LENGTH, Some((PathId(1), fragments / 3)));
    assert_eq!(status, Status::Complete);
    assert!(took < usual + usual + Nanos::from_millis(50), "{took:?} instead of {usual:?}");
    // What was under way there, twice, and some that tried the path again.
    let sent = job.wire(0).counters().sent;
    assert!(
        sent < fragments + u64::from(WINDOW) + 20,
        "{sent} datagrams for {fragments} fragments"
    );
}

#[test]
fn silence__ranks_that_were_all_stopped_for_longer_go_on() {
    let streams = StreamConfig { timeout: Nanos::from_millis(300), ..StreamConfig::new(2) };
    let mut job = ReliableJob::new(MemoryConfig::lossless(2), &streams);
    job.send(0, 1, Class::Bulk, b"a", Span::EMPTY, Some(Token(7)));
    // Nobody polls for a second, and then rank 0 before rank 1.
    job.lend();
    let later = job.fabric.now() + Nanos::from_secs(1);
    job.fabric.advance(later);
    job.lend();
    let mut ended = Vec::new();
    for _ in 0..1_000 {
        for rank in [0, 1] {
            job.wire(rank).poll(64, &mut |arrival| {
                if let Arrival::Done { token, status, .. } = arrival {
                    ended.push((rank, token, status));
                }
            });
        }
        job.pass(Nanos::from_micros(50));
    }
    assert_eq!(ended, [(0, Token(7), Status::Complete)]);
}

#[test]
fn silence__a_peer_that_never_answers_is_given_up() {
    let config = MemoryConfig { loss_per_million: 1_000_000, ..MemoryConfig::lossless(2) };
    let mut job = ReliableJob::new(
        config,
        &StreamConfig { timeout: Nanos::from_millis(300), ..StreamConfig::new(2) },
    );
    let (took, status) = write(&mut job, 100_000, None);
    assert_eq!(status, Status::Flushed);
    assert!(took >= Nanos::from_millis(300) && took < Nanos::from_millis(600), "{took:?}");
    let sent = job.wire(0).counters().sent;
    assert!(sent < 100, "{sent} datagrams into the dark");
}

#[test]
fn abandon__what_is_for_a_rank_that_is_out_ends_at_once_and_others_get_theirs() {
    let mut job = ReliableJob::new(MemoryConfig::lossless(3), &StreamConfig::new(3));
    let source = job.memory(0, &[3; 4_000]);
    let body = Span { region: source, offset: 0, length: 4_000 };
    job.send(0, 1, Class::Bulk, b"lost", body, Some(Token(1)));
    job.send(0, 2, Class::Bulk, b"heard", body, Some(Token(2)));
    job.post(0, Operation::Abandon { peer: Rank(1) }, &[]);
    let mut ended = BTreeMap::new();
    job.wire(0).poll(64, &mut |arrival| {
        if let Arrival::Done { token, status, .. } = arrival {
            ended.insert(token, status);
        }
    });
    assert_eq!(ended, BTreeMap::from([(Token(1), Status::Flushed)]));
    while ended.len() < 2 {
        assert!(job.pass(Nanos::from_millis(1)), "the other rank is never served");
        (1..3).for_each(|rank| _ = job.wire(rank).poll(64, &mut |_| {}));
        job.wire(0).poll(64, &mut |arrival| {
            if let Arrival::Done { token, status, .. } = arrival {
                ended.insert(token, status);
            }
        });
    }
    assert_eq!(ended[&Token(2)], Status::Complete);
}

#[test]
fn sleep__a_peer_that_was_away_gets_little_of_what_it_has_again() {
    let config = MemoryConfig { room: 100_000, ..MemoryConfig::lossless(2) };
    let mut job = ReliableJob::new(config, &StreamConfig::new(2));
    let source = job.memory(0, &[5; 40_000]);
    let body = Span { region: source, offset: 0, length: 40_000 };
    job.send(0, 1, Class::Bulk, b"long", body, Some(Token(1)));
    let away_until = job.fabric.now() + Nanos::from_millis(300);
    let mut is_done = false;
    while !is_done {
        job.pass(Nanos::from_millis(10));
        if job.fabric.now() >= away_until {
            job.wire(1).poll(64, &mut |_| {});
        }
        job.wire(0).poll(64, &mut |arrival| is_done |= matches!(arrival, Arrival::Done { .. }));
    }
    let fragments = 40_000 / 1_432 + 1;
    let sent = job.wire(0).counters().sent;
    assert!(sent <= fragments + 15, "{sent} datagrams for {fragments} fragments");
}

#[test]
fn dialogue__acknowledgements_travel_with_the_next_message_and_end_what_they_answer() {
    let streams = StreamConfig { answer_soon: Nanos::from_micros(100), ..StreamConfig::new(2) };
    let mut job = ReliableJob::new(MemoryConfig::lossless(2), &streams);
    let (mut turn, mut ended) = (0, 0);
    for number in 0..100 {
        let posted =
            job.send(turn, 1 - turn, Class::BestEffort, b"", Span::EMPTY, Some(Token(number)));
        assert_eq!(posted, PostOutcome::Posted);
        turn = 1 - turn;
        let mut has_come = false;
        while !has_come {
            job.pass(Nanos::from_micros(10));
            for rank in [0, 1] {
                job.wire(rank).poll(8, &mut |arrival| match arrival {
                    Arrival::Datagram(_) => has_come = true,
                    Arrival::Done { status, .. } => {
                        assert_eq!(status, Status::Complete);
                        ended += 1;
                    }
                    _ => {}
                });
            }
        }
        assert_eq!(ended, number, "the one before was acknowledged by this one");
    }
    let sent: u64 = (0..2).map(|rank| job.wire(rank).below().counters().sent).sum();
    assert_eq!(sent, 100, "nothing but the messages");
}

#[test]
fn late_application__holds_its_sender_back_and_makes_nobody_send_twice() {
    let config = MemoryConfig { room: 100_000, ..MemoryConfig::lossless(2) };
    let streams = StreamConfig { inbox: Bytes(8 << 10), ..StreamConfig::new(2) };
    let mut job = ReliableJob::new(config, &streams);
    let source = job.memory(0, &[7; 1_000]);
    let body = Span { region: source, offset: 0, length: 1_000 };
    for number in 0..100 {
        assert_eq!(
            job.send(0, 1, Class::Bulk, b"x", body, Some(Token(number))),
            PostOutcome::Posted
        );
    }
    for _ in 0..200 {
        job.pass(Nanos::from_millis(70));
        job.wire(0).poll(64, &mut |_| {});
        // It takes part, and reads nothing.
        job.wire(1).poll(0, &mut |_| {});
    }
    // Eight messages, and then it asks whether there is room now and then.
    let (held, asked) =
        (job.wire(0).counters().sent, job.fabric.now().since(LocalNs(0)).0 / 64_000_000);
    assert!(held <= 8 + 10 + asked, "{held} datagrams for an inbox of eight messages");
    let mut messages = 0;
    while messages < 100 {
        assert!(job.pass(Nanos::from_millis(70)), "{messages} messages and nothing left to do");
        job.wire(0).poll(64, &mut |_| {});
        job.wire(1)
            .poll(1, &mut |arrival| messages += u32::from(matches!(arrival, Arrival::Datagram(_))));
    }
}

#[test]
fn post__what_cannot_be_is_refused_by_name() {
    let mut job = ReliableJob::new(MemoryConfig::lossless(2), &StreamConfig::new(2));
    let own = job.memory(0, &[0; 64]);
    let from = Span { region: own, offset: 0, length: 64 };
    let (path, class) = (PathId(0), Class::Bulk);
    let mut write = |to, from, into| {
        job.post(
            0,
            Operation::Write {
                to,
                path,
                class,
                from,
                into,
                immediate: Some(0),
                token: Some(Token(0)),
            },
            &[],
        )
    };
    let beyond = RemoteSpan { region: own, offset: u64::MAX - 3 };
    assert_eq!(write(Rank(1), from, beyond), PostOutcome::Refused(RefusalReason::Memory));
    let inbox = RemoteSpan { region: RegionId(0), offset: 0 };
    assert_eq!(
        write(Rank(1), from, inbox),
        PostOutcome::Refused(RefusalReason::Memory),
        "inboxes are ours"
    );
    let there = RemoteSpan { region: own, offset: 0 };
    assert_eq!(write(Rank(2), from, there), PostOutcome::Refused(RefusalReason::Rank));
    let ours = Span { region: RegionId(1), ..from };
    assert_eq!(write(Rank(1), ours, there), PostOutcome::Refused(RefusalReason::Memory));
    assert_eq!(write(Rank(1), from, there), PostOutcome::Posted);
}

#[test]
fn restart__a_rank_that_begins_anew_is_heard_and_its_old_life_is_not() {
    let config = MemoryConfig { latency: Nanos::from_micros(10), ..MemoryConfig::lossless(2) };
    let mut job = ReliableJob::new(config, &StreamConfig::new(2));
    let mut heard: Vec<String> = Vec::new();
    let go = |job: &mut ReliableJob, heard: &mut Vec<String>| {
        for _ in 0..50 {
            job.pass(Nanos::from_millis(1));
            job.wire(0).poll(64, &mut |_| {});
            job.wire(1).poll(64, &mut |arrival| {
                if let Arrival::Datagram(d) = arrival {
                    heard.push(String::from_utf8(d.head.to_vec()).expect("a word"));
                }
            });
        }
    };
    job.send(0, 1, Class::Bulk, b"one", Span::EMPTY, None);
    go(&mut job, &mut heard);
    job.send(0, 1, Class::Bulk, b"of the old life", Span::EMPTY, None);
    job.lend();
    let end = job.fabric.take(Rank(0));
    let fresh = ReliableWire::new(end, 2, &StreamConfig::new(2), 1).expect("all that is needed");
    job.lend();
    job.wires[0] = fresh;
    job.send(0, 1, Class::Bulk, b"two", Span::EMPTY, None);
    go(&mut job, &mut heard);
    job.send(0, 1, Class::Bulk, b"three", Span::EMPTY, None);
    go(&mut job, &mut heard);
    assert!(
        heard.starts_with(&["one".into()]) && heard.ends_with(&["two".into(), "three".into()]),
        "{heard:?}"
    );
}

mod strangers {
    //! A peer that says anything at all.

    use proptest::prelude::*;

    use super::super::frame::{
        Acknowledgement, BITMAP_WORDS, BodyPlacement, CarriedAnswer, FRAME_MAX, FragmentHeader,
        INBOX, MessageTrailer, ReliableFrame, ReliableFrameKind,
    };
    use super::*;
    use crate::base::LocalNs;
    use crate::wire::{Datagram, Effect, Engine, Input, Stamp};

    const INBOX_LENGTH: u64 = 8 << 10;
    const INBOXES: RegionId = RegionId(0);

    fn numbers() -> impl Strategy<Value = u32> {
        prop_oneof![0u32..40, any::<u32>(), Just(WINDOW), Just(u32::MAX)]
    }

    fn offsets() -> impl Strategy<Value = u64> {
        prop_oneof![0u64..20_000, 0u64..1 << 48, Just((1 << 48) - 1)]
    }

    fn tails() -> impl Strategy<Value = Option<MessageTrailer>> {
        let message = (any::<u32>(), 0usize..HEAD_MAX).prop_map(|(length, head)| {
            Some(MessageTrailer::Message {
                length: length % 5_000,
                head: Head::from_bytes(&vec![1; head]).expect("short"),
            })
        });
        let landed = any::<(u32, Option<u64>)>()
            .prop_map(|(length, immediate)| Some(MessageTrailer::Landed { length, immediate }));
        prop_oneof![Just(None), message, landed]
    }

    fn kinds() -> impl Strategy<Value = ReliableFrameKind> {
        let regions = prop_oneof![Just(INBOX), Just(INBOXES), any::<u16>().prop_map(RegionId)];
        let flags = (any::<bool>(), any::<bool>(), any::<bool>());
        let data = (flags, any::<u32>(), regions, offsets(), tails())
            .prop_map(|(flags, digest, region, offset, tail)| {
                let (is_open, is_skipped, at_once) = flags;
                ReliableFrameKind::Data(FragmentHeader {
                    is_open,
                    is_skipped,
                    at_once,
                    digest,
                    place: BodyPlacement { region, offset },
                    carried: None,
                    tail,
                })
            })
            .boxed();
        let bitmap = prop::array::uniform12(prop_oneof![Just(0u64), any::<u64>()]);
        let answer = (offsets(), any::<u8>(), numbers(), bitmap)
            .prop_map(|(freed, path, newest, bitmap)| {
                let bitmap: [u64; BITMAP_WORDS] = bitmap;
                ReliableFrameKind::Acknowledgement(Acknowledgement {
                    is_marked: true,
                    is_answer: newest % 2 == 0,
                    freed,
                    path: PathId(path),
                    newest,
                    waited_ns: newest,
                    bitmap,
                })
            })
            .boxed();
        let others = prop_oneof![
            Just(ReliableFrameKind::Damaged),
            Just(ReliableFrameKind::Refused),
            Just(ReliableFrameKind::Unknown),
            Just(ReliableFrameKind::Question)
        ];
        let carried = (data.clone(), any::<u16>(), answer.clone()).prop_map(
            |(mut kind, generation, answer)| {
                if let (ReliableFrameKind::Data(data), ReliableFrameKind::Acknowledgement(answer)) =
                    (&mut kind, answer)
                {
                    let acknowledgement = Acknowledgement { bitmap: [0; BITMAP_WORDS], ..answer };
                    let (generation, number) = (generation % 3, answer.newest);
                    data.carried = CarriedAnswer::new(generation, number, &acknowledgement);
                    // One that is too long was never made.
                    data.carried = data.carried.filter(|_| data.length() <= FRAME_MAX);
                }
                kind
            },
        );
        prop_oneof![4 => data, 2 => carried, 3 => answer, 2 => others]
    }

    fn frames() -> impl Strategy<Value = (ReliableFrame, u32)> {
        (0u16..3, numbers(), kinds(), prop_oneof![0u32..1_456, Just(u32::MAX)]).prop_map(
            |(generation, number, kind, body)| {
                (ReliableFrame { class: Class::Bulk, generation, number, kind }, body)
            },
        )
    }

    proptest! {
        /// Whatever a peer says, nothing is written but to regions that exist for it, and what it
        /// may make us keep is bounded.
        #[test]
        fn input__any_frames_of_a_peer_touch_no_memory_of_ours(said in prop::collection::vec(frames(), 1..60)) {
            let below = MemoryFabric::new(MemoryConfig::lossless(2)).wire(Rank(0)).capabilities().clone();
            let streams = StreamConfig { inbox: Bytes(INBOX_LENGTH), ..StreamConfig::new(2) };
            let mut node = ReliableNode::new(ReliableConfig { ranks: 2, below, streams, inboxes: INBOXES, kept: RegionId(1) });
            let mut out: Out<ReliableEvent> = Out::with_limit(1024);
            let _ = node.input(LocalNs(0), Input::Boot { incarnation: 0 }, &mut out);
            let body = Span { region: RegionId(5), offset: 0, length: 40_000 };
            let ticket = MessageCompletion { token: Some(Token(1)), kept: None };
            let target = MessageTarget::Inbox { head: Head::from_bytes(b"ours").expect("short") };
            let message = Message { target, body, ticket };
            let own = ReliableCommand::Send { to: Rank(1), class: Class::Bulk, message };
            let _ = node.input(LocalNs(0), Input::Command(own), &mut out);
            let mut over = 0;
            for (place, (frame, body)) in said.iter().enumerate() {
                let now = LocalNs(place as u64 * 100_000);
                let head = frame.encode();
                let datagram = Datagram {
                    from: Rank(1),
                    path: PathId(0),
                    class: Some(Class::Bulk),
                    congestion_marked: false,
                    at: Stamp::Taken(now),
                    head: head.bytes(),
                    body: Span { region: RegionId::RECEIVE, offset: 0, length: *body },
                };
                let _ = node.input(now, Input::Arrival(Arrival::Datagram(datagram)), &mut out);
                let _ = node.input(now, Input::Tick, &mut out);
                let effects: Vec<Effect<ReliableEvent>> = out.effects().to_vec();
                out.clear();
                prop_assert!(effects.len() <= 2 * WINDOW as usize);
                for effect in effects {
                    match effect {
                        Effect::Operate(timed) => match timed.operation {
                            Operation::Copy { into, .. } if into.region == INBOXES => {
                                // Peer 1, class bulk: the inbox number 1 * 5 + 3.
                                let start = 8 * INBOX_LENGTH;
                                prop_assert!(into.offset >= start && into.offset + u64::from(into.length) <= start + INBOX_LENGTH);
                            }
                            Operation::Digest { token, of } => {
                                // As memory would answer: places of others do not exist, ours reads
                                // as zeros.
                                let status = if of.region == RegionId(5) || of.region == INBOXES { Status::Complete } else { Status::Refused(RefusalReason::Memory) };
                                let done = Arrival::Done { token, status, value: 0, at: now };
                                let _ = node.input(now, Input::Arrival(done), &mut out);
                            }
                            _ => {}
                        },
                        Effect::Notify(ReliableEvent::Done { .. }) => over += 1,
                        Effect::Notify(_) => {}
                    }
                }
            }
            prop_assert!(over <= 1, "a message ends once");
        }
    }
}
