//! The promises, one function each.

mod adopted;
mod files;

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::{Fabric, Need};
use crate::base::{Bytes, Class, GroupId, LocalNs, Rank};
use crate::wire::{
    Arrival, AtomicKind, Destination, FileId, FileKind, Operation, OperationKind, Out, PathId,
    PostOutcome, RefusalReason, RegionId, RemoteSpan, Span, Status, Token,
};

/// One promise.
pub(super) struct Case {
    /// What is promised.
    pub(super) name: &'static str,
    /// What it needs.
    pub(super) needs: &'static [Need],
    /// Whether it is kept.
    pub(super) run: fn(&mut dyn Fabric) -> Result<(), String>,
}

const SEND: Need = Need::Operation(OperationKind::Send);
const COPY: Need = Need::Operation(OperationKind::Copy);
const DIGEST: Need = Need::Operation(OperationKind::Digest);
const MULTICAST: Need = Need::Operation(OperationKind::Multicast);
const WRITE: Need = Need::Operation(OperationKind::Write);
const READ: Need = Need::Operation(OperationKind::Read);
const ATOMIC: Need = Need::Operation(OperationKind::Atomic);
const FILE: Need = Need::Operation(OperationKind::File);

const fn case(
    name: &'static str,
    needs: &'static [Need],
    run: fn(&mut dyn Fabric) -> Result<(), String>,
) -> Case {
    Case { name, needs, run }
}

pub(super) const ALL: &[Case] = &[
    case("a message arrives once, whole, with sender, class and stamp", &[SEND, COPY], message),
    case("every class keeps its mark", &[SEND], classes),
    case("messages of one batch keep their order", &[SEND], order),
    case("empty and longest messages arrive whole", &[SEND], lengths),
    case("what is too long is refused by name", &[SEND], too_long),
    case("unknown ranks, paths and memory are refused by name", &[SEND], unknown),
    case("a full queue says so and then says when it has room", &[SEND], room),
    case("a group's members get a message once, others and its sender never", &[MULTICAST], group),
    case("a write lands whole, with its word, and completes once", &[WRITE], write),
    case(
        "a silent write lands whole, completes once, and tells the peer nothing",
        &[WRITE],
        silent,
    ),
    case("a write outside the peer's memory is refused, not applied", &[WRITE], write_outside),
    case("a read brings the peer's bytes", &[READ], read),
    case("fetch-add, swap and compare-swap change one word and return the old", &[ATOMIC], atomic),
    case("a digest is that of the bytes, of copied ones too", &[DIGEST, COPY], digest),
    case("what is for a peer that is given up ends once, others go on", &[SEND], abandon),
    case("regions begin at multiples of 4096", &[], pages),
    case("a group's member that left gets nothing more", &[MULTICAST], leave),
    case(
        "a message behind a write is given when the write is there",
        &[SEND, WRITE, Need::SendsFollowWrites],
        write_then_send,
    ),
    case(
        "adopted memory is sent from, copied to and digested, and gives no reference",
        &[SEND, COPY, DIGEST, Need::Adoption],
        adopted::local,
    ),
    case(
        "peers write into adopted memory, and read it",
        &[WRITE, Need::Adoption],
        adopted::by_peers,
    ),
    case(
        "words of adopted memory are changed as one step",
        &[ATOMIC, Need::Adoption],
        adopted::words,
    ),
    case(
        "memory of the process is named by this rank alone",
        &[SEND, COPY, Need::AnyLocal],
        adopted::process,
    ),
    case("what is not in the capabilities is refused by name", &[], missing),
    case("what is written to a file is read back, with its length", &[FILE], files::round_trip),
    case("a read at the end of a file brings what is there", &[FILE], files::end),
    case("a sync covers a write that is done, and completes once", &[FILE], files::sync),
    case("an unknown file and unknown memory are refused by name", &[FILE], files::unknown),
];

/// Rounds of waiting before the suite gives up on an arrival.
const TIMEOUT: usize = 200;

/// An arrival with its bytes copied out.
#[derive(Debug, PartialEq, Eq)]
enum ReceivedMessage {
    Message { from: Rank, class: Option<Class>, at: LocalNs, head: Vec<u8>, body: Vec<u8> },
    Landed { from: Rank, into: Span, immediate: u64 },
    Done { token: Token, status: Status, value: u64 },
    Room,
    Other,
}

/// Polls once at `rank`.
fn look(fabric: &mut dyn Fabric, rank: Rank) -> Vec<ReceivedMessage> {
    let wire = fabric.wire(rank);
    let mut seen = Vec::new();
    let mut bodies = Vec::new();
    wire.poll(64, &mut |arrival| {
        let mut body_span = Span::EMPTY;
        seen.push(match arrival {
            Arrival::Datagram(d) => {
                body_span = d.body;
                ReceivedMessage::Message {
                    from: d.from,
                    class: d.class,
                    at: d.at.instant(),
                    head: d.head.to_vec(),
                    body: Vec::new(),
                }
            }
            Arrival::Landed { from, into, immediate, .. } => {
                ReceivedMessage::Landed { from, into, immediate }
            }
            Arrival::Done { token, status, value, .. } => {
                ReceivedMessage::Done { token, status, value }
            }
            Arrival::Room { .. } => ReceivedMessage::Room,
            Arrival::PathState { .. } | Arrival::Shown { .. } => ReceivedMessage::Other,
        });
        bodies.push(body_span);
    });
    let receive = wire.region(RegionId::RECEIVE).unwrap_or_default();
    for (seen, span) in seen.iter_mut().zip(bodies) {
        if let ReceivedMessage::Message { body, .. } = seen
            && let Some(range) = span.range_in(receive.len())
        {
            *body = receive[range].to_vec();
        }
    }
    seen
}

/// Waits until `count` arrivals are there at `rank`, and one moment longer to catch surplus ones.
fn await_arrivals(
    fabric: &mut dyn Fabric,
    rank: Rank,
    count: usize,
) -> Result<Vec<ReceivedMessage>, String> {
    let mut seen = look(fabric, rank);
    for _ in 0..TIMEOUT {
        if seen.len() >= count {
            break;
        }
        fabric.pass_time();
        seen.extend(look(fabric, rank));
    }
    fabric.pass_time();
    seen.extend(look(fabric, rank));
    if seen.len() == count {
        Ok(seen)
    } else {
        Err(format!("rank {rank} got {} arrivals, not {count}: {seen:?}", seen.len()))
    }
}

fn post(fabric: &mut dyn Fabric, rank: Rank, operation: Operation, heads: &[u8]) -> PostOutcome {
    let mut answers = Vec::new();
    fabric.wire(rank).post(&[operation], heads, &mut answers);
    answers.pop().unwrap_or(PostOutcome::Refused(RefusalReason::Memory))
}

/// Returns a send from rank 0 with `head` and `body`, and the heads it refers to.
fn send_to(
    to: Destination,
    class: Class,
    head: &[u8],
    body: Span,
    token: Option<Token>,
) -> (Operation, Vec<u8>) {
    let mut out: Out<()> = Out::with_limit(1);
    let head = out.head(head);
    (Operation::Send { to, path: PathId(0), class, head, body, token }, out.heads().to_vec())
}

/// Registers `bytes` at `rank`.
fn memory(fabric: &mut dyn Fabric, rank: Rank, bytes: &[u8]) -> Result<RegionId, String> {
    let wire = fabric.wire(rank);
    let region = wire
        .register(Bytes(bytes.len() as u64))
        .map_err(|missing| format!("register: {missing}"))?;
    let place = wire.region_mut(region).ok_or("a registered region has no bytes")?;
    if place.iter().any(|byte| *byte != 0) {
        return Err("a fresh region is not zeroed".into());
    }
    place.copy_from_slice(bytes);
    Ok(region)
}

fn expect<T: PartialEq + core::fmt::Debug>(what: &str, got: &T, want: &T) -> Result<(), String> {
    if got == want { Ok(()) } else { Err(format!("{what}: {got:?}, not {want:?}")) }
}

fn one(seen: Vec<ReceivedMessage>) -> Result<ReceivedMessage, String> {
    seen.into_iter().next().ok_or_else(|| "nothing arrived".into())
}

/// Returns how the operation of rank 0 with `token` ends that was answered with `answer`: at once,
/// or with a completion.
fn ending(
    fabric: &mut dyn Fabric,
    answer: PostOutcome,
    token: Token,
) -> Result<(Status, u64), String> {
    match answer {
        PostOutcome::Done(value) => Ok((Status::Complete, value)),
        PostOutcome::Refused(missing) => Ok((Status::Refused(missing), 0)),
        PostOutcome::NoRoom => Err("there is no room".into()),
        PostOutcome::Posted => match one(await_arrivals(fabric, Rank(0), 1)?)? {
            ReceivedMessage::Done { token: done, status, value } if done == token => {
                Ok((status, value))
            }
            other => Err(format!("{other:?} instead of the end of {token:?}")),
        },
    }
}

/// How an operation ends that is complete and has no value.
const DONE: (Status, u64) = (Status::Complete, 0);

/// How an operation ends that names memory that is not there.
const NO_MEMORY: (Status, u64) = (Status::Refused(RefusalReason::Memory), 0);

const TO_1: Destination = Destination::One(Rank(1));

fn message(fabric: &mut dyn Fabric) -> Result<(), String> {
    let region = memory(fabric, Rank(0), b"..the body")?;
    let body = Span { region, offset: 2, length: 8 };
    let before = fabric.wire(Rank(0)).now();
    let (send, heads) = send_to(TO_1, Class::LowLatency, b"head", body, Some(Token(7)));
    let answer = post(fabric, Rank(0), send, &heads);
    expect("end", &ending(fabric, answer, Token(7))?, &DONE)?;
    let ReceivedMessage::Message { from, at, head, body, .. } =
        one(await_arrivals(fabric, Rank(1), 1)?)?
    else {
        return Err("something else than a message arrived".into());
    };
    expect("sender", &from, &Rank(0))?;
    expect("head", &head, &b"head".to_vec())?;
    expect("body", &body, &b"the body".to_vec())?;
    let after = fabric.wire(Rank(1)).now();
    let shared = fabric.wire(Rank(0)).capabilities().shared_clock.is_some();
    if shared && !(before <= at && at <= after) {
        return Err(format!("stamp {at:?} is outside {before:?}..{after:?}"));
    }
    Ok(())
}

fn classes(fabric: &mut dyn Fabric) -> Result<(), String> {
    for class in Class::ALL {
        let (send, heads) = send_to(TO_1, class, class.name().as_bytes(), Span::EMPTY, None);
        post(fabric, Rank(0), send, &heads);
        let ReceivedMessage::Message { class: got, head, .. } =
            one(await_arrivals(fabric, Rank(1), 1)?)?
        else {
            return Err("something else than a message arrived".into());
        };
        expect("head", &head, &class.name().as_bytes().to_vec())?;
        expect("class on arrival", &got, &Some(class))?;
    }
    Ok(())
}

fn order(fabric: &mut dyn Fabric) -> Result<(), String> {
    const COUNT: u8 = 32;
    let mut out: Out<()> = Out::with_limit(usize::from(COUNT));
    let sends: Vec<Operation> = (0..COUNT)
        .map(|i| {
            let head = out.head(&[i]);
            Operation::Send {
                to: TO_1,
                path: PathId(0),
                class: Class::Bulk,
                head,
                body: Span::EMPTY,
                token: None,
            }
        })
        .collect();
    let mut answers = Vec::new();
    fabric.wire(Rank(0)).post(&sends, out.heads(), &mut answers);
    expect("answers", &answers.len(), &sends.len())?;
    let heads: Vec<Vec<u8>> = await_arrivals(fabric, Rank(1), usize::from(COUNT))?
        .into_iter()
        .filter_map(|seen| {
            if let ReceivedMessage::Message { head, .. } = seen { Some(head) } else { None }
        })
        .collect();
    expect("order", &heads, &(0..COUNT).map(|i| vec![i]).collect())
}

fn lengths(fabric: &mut dyn Fabric) -> Result<(), String> {
    let capabilities = fabric.wire(Rank(0)).capabilities().clone();
    let pattern: Vec<u8> = (0..capabilities.body_max).map(|i| (i % 251) as u8).collect();
    let region = memory(fabric, Rank(0), &pattern)?;
    let longest = capabilities.body_max_with_head(capabilities.head_max);
    for (head, length) in
        [(0, 0), (0, 1), (capabilities.head_max, longest), (0, capabilities.body_max)]
    {
        let head = vec![0xa5; head];
        let (send, heads) = send_to(
            TO_1,
            Class::Bulk,
            &head,
            Span { region, offset: 0, length: length as u32 },
            None,
        );
        post(fabric, Rank(0), send, &heads);
        let ReceivedMessage::Message { head: got_head, body, .. } =
            one(await_arrivals(fabric, Rank(1), 1)?)?
        else {
            return Err("something else than a message arrived".into());
        };
        expect("head", &got_head, &head)?;
        expect("body length", &body.len(), &length)?;
        expect("body is as sent", &(body == pattern[..length]), &true)?;
    }
    Ok(())
}

fn too_long(fabric: &mut dyn Fabric) -> Result<(), String> {
    let capabilities = fabric.wire(Rank(0)).capabilities().clone();
    let region = memory(fabric, Rank(0), &vec![0; capabilities.body_max + 1])?;
    let body = Span { region, offset: 0, length: capabilities.body_max as u32 + 1 };
    let (send, heads) = send_to(TO_1, Class::Bulk, b"", body, None);
    expect(
        "long body",
        &post(fabric, Rank(0), send, &heads),
        &PostOutcome::Refused(RefusalReason::Length),
    )?;
    let (send, heads) =
        send_to(TO_1, Class::Bulk, &vec![0; capabilities.head_max + 1], Span::EMPTY, None);
    expect(
        "long head",
        &post(fabric, Rank(0), send, &heads),
        &PostOutcome::Refused(RefusalReason::Length),
    )?;
    let body =
        Span { length: capabilities.body_max_with_head(capabilities.head_max) as u32 + 1, ..body };
    if body.length as usize + capabilities.head_max > capabilities.message_max {
        let (send, heads) = send_to(TO_1, Class::Bulk, &vec![0; capabilities.head_max], body, None);
        expect(
            "long together",
            &post(fabric, Rank(0), send, &heads),
            &PostOutcome::Refused(RefusalReason::Length),
        )?;
    }
    await_arrivals(fabric, Rank(1), 0).map(drop)
}

fn unknown(fabric: &mut dyn Fabric) -> Result<(), String> {
    let region = memory(fabric, Rank(0), &[0; 16])?;
    let outside = Span { region, offset: 9, length: 8 };
    let (send, heads) = send_to(TO_1, Class::Bulk, b"", outside, None);
    expect(
        "span outside",
        &post(fabric, Rank(0), send, &heads),
        &PostOutcome::Refused(RefusalReason::Memory),
    )?;
    let nowhere = Span { region: RegionId(999), offset: 0, length: 8 };
    let (send, heads) = send_to(TO_1, Class::Bulk, b"", nowhere, None);
    expect(
        "unknown region",
        &post(fabric, Rank(0), send, &heads),
        &PostOutcome::Refused(RefusalReason::Memory),
    )?;
    let (send, heads) =
        send_to(Destination::One(Rank(99_999)), Class::Bulk, b"", Span::EMPTY, None);
    expect(
        "unknown rank",
        &post(fabric, Rank(0), send, &heads),
        &PostOutcome::Refused(RefusalReason::Rank),
    )?;
    let (send, heads) = send_to(TO_1, Class::Bulk, b"head", Span::EMPTY, None);
    let Operation::Send { to, class, head, body, token, .. } = send else { return Ok(()) };
    let send = Operation::Send { to, path: PathId(200), class, head, body, token };
    expect(
        "unknown path",
        &post(fabric, Rank(0), send, &heads),
        &PostOutcome::Refused(RefusalReason::Path),
    )?;
    await_arrivals(fabric, Rank(1), 0).map(drop)
}

fn room(fabric: &mut dyn Fabric) -> Result<(), String> {
    // A wire may take everything at once and never be full; then there is nothing to promise.
    const FLOOD: usize = 20_000;
    let (send, heads) = send_to(TO_1, Class::Bulk, b"flood", Span::EMPTY, None);
    let full = (0..FLOOD).any(|_| post(fabric, Rank(0), send, &heads) == PostOutcome::NoRoom);
    if !full {
        return Ok(());
    }
    for _ in 0..TIMEOUT {
        fabric.pass_time();
        look(fabric, Rank(1));
        if look(fabric, Rank(0)).contains(&ReceivedMessage::Room) {
            let again = post(fabric, Rank(0), send, &heads);
            return if matches!(again, PostOutcome::NoRoom | PostOutcome::Refused(_)) {
                Err(format!("after `Room` the queue answers {again:?}"))
            } else {
                Ok(())
            };
        }
    }
    Err("the queue was full and never said that it has room again".into())
}

fn group(fabric: &mut dyn Fabric) -> Result<(), String> {
    let group = GroupId(3);
    for rank in [Rank(0), Rank(1)] {
        fabric.wire(rank).join(group).map_err(|missing| format!("join: {missing}"))?;
    }
    fabric.pass_time();
    let (send, heads) = send_to(Destination::Group(group), Class::Bulk, b"all", Span::EMPTY, None);
    let answer = post(fabric, Rank(0), send, &heads);
    expect("answer", &matches!(answer, PostOutcome::Done(_) | PostOutcome::Posted), &true)?;
    let ReceivedMessage::Message { from, head, .. } = one(await_arrivals(fabric, Rank(1), 1)?)?
    else {
        return Err("something else than a message arrived".into());
    };
    expect("sender and head", &(from, head), &(Rank(0), b"all".to_vec()))?;
    await_arrivals(fabric, Rank(2), 0)?;
    await_arrivals(fabric, Rank(0), 0).map(drop)
}

fn write_of(region: RegionId, into: RemoteSpan, length: u32) -> Operation {
    let from = Span { region, offset: 0, length };
    Operation::Write {
        to: Rank(1),
        path: PathId(0),
        class: Class::Bulk,
        from,
        into,
        immediate: Some(42),
        token: Some(Token(1)),
    }
}

fn write(fabric: &mut dyn Fabric) -> Result<(), String> {
    let source = memory(fabric, Rank(0), b"one-sided")?;
    let target = memory(fabric, Rank(1), &[0; 32])?;
    let answer =
        post(fabric, Rank(0), write_of(source, RemoteSpan { region: target, offset: 5 }, 9), &[]);
    let into = Span { region: target, offset: 5, length: 9 };
    let landed = one(await_arrivals(fabric, Rank(1), 1)?)?;
    expect(
        "at the target",
        &landed,
        &ReceivedMessage::Landed { from: Rank(0), into, immediate: 42 },
    )?;
    expect("end", &ending(fabric, answer, Token(1))?, &DONE)?;
    let bytes = fabric.wire(Rank(1)).region(target).unwrap_or_default();
    expect("memory", &bytes.get(4..15), &Some(&b"\0one-sided\0"[..]))
}

fn silent(fabric: &mut dyn Fabric) -> Result<(), String> {
    let source = memory(fabric, Rank(0), b"one-sided")?;
    let target = memory(fabric, Rank(1), &[0; 32])?;
    for (offset, length, token) in [(5, 9, 1), (20, 0, 2)] {
        let into = RemoteSpan { region: target, offset };
        let Operation::Write { to, path, class, from, .. } = write_of(source, into, length) else {
            return Ok(());
        };
        let token = Some(Token(token));
        let write = Operation::Write { to, path, class, from, into, immediate: None, token };
        if post(fabric, Rank(0), write, &[]) == PostOutcome::Posted {
            completion_alone(fabric, token)?;
        }
    }
    await_arrivals(fabric, Rank(1), 0)?;
    let bytes = fabric.wire(Rank(1)).region(target).unwrap_or_default();
    expect("memory", &bytes.get(4..15), &Some(&b"\0one-sided\0"[..]))
}

/// Waits until `token` completes at rank 0, while rank 1 makes progress and gets nothing.
fn completion_alone(fabric: &mut dyn Fabric, token: Option<Token>) -> Result<(), String> {
    for _ in 0..TIMEOUT {
        let arrivals = look(fabric, Rank(1));
        expect("arrivals at the target", &arrivals, &Vec::new())?;
        if let Some(seen) = look(fabric, Rank(0)).into_iter().next() {
            let token = token.unwrap_or(Token(0));
            return expect(
                "completion",
                &seen,
                &ReceivedMessage::Done { token, status: Status::Complete, value: 0 },
            );
        }
        fabric.pass_time();
    }
    Err("the write never completed".into())
}

fn write_outside(fabric: &mut dyn Fabric) -> Result<(), String> {
    let source = memory(fabric, Rank(0), &[0xff; 16])?;
    let target = memory(fabric, Rank(1), &[0; 32])?;
    for offset in [17, u64::MAX] {
        let into = RemoteSpan { region: target, offset };
        let answer = post(fabric, Rank(0), write_of(source, into, 16), &[]);
        expect("end", &ending(fabric, answer, Token(1))?, &NO_MEMORY)?;
    }
    await_arrivals(fabric, Rank(1), 0)?;
    let touched =
        fabric.wire(Rank(1)).region(target).unwrap_or_default().iter().any(|byte| *byte != 0);
    expect("memory was touched", &touched, &false)
}

fn read(fabric: &mut dyn Fabric) -> Result<(), String> {
    let source = memory(fabric, Rank(1), b"far away")?;
    let target = memory(fabric, Rank(0), &[0; 8])?;
    let into = Span { region: target, offset: 1, length: 3 };
    let from = RemoteSpan { region: source, offset: 4 };
    let (path, class, token) = (PathId(0), Class::Bulk, Token(5));
    let answer = post(
        fabric,
        Rank(0),
        Operation::Read { peer: Rank(1), path, class, from, into, token },
        &[],
    );
    expect("answer", &answer, &PostOutcome::Posted)?;
    expect("end", &ending(fabric, answer, token)?, &DONE)?;
    let bytes = fabric.wire(Rank(0)).region(target).unwrap_or_default().to_vec();
    expect("memory", &bytes, &b"\0awa\0\0\0\0".to_vec())
}

fn atomic(fabric: &mut dyn Fabric) -> Result<(), String> {
    let region = memory(fabric, Rank(1), &[0; 16])?;
    let at = RemoteSpan { region, offset: 8 };
    let steps = [
        (AtomicKind::FetchAdd(5), 0),
        (AtomicKind::CompareSwap { expected: 4, desired: 9 }, 5),
        (AtomicKind::CompareSwap { expected: 5, desired: 9 }, 5),
        (AtomicKind::Swap(1), 9),
        (AtomicKind::FetchAdd(u64::MAX), 1),
    ];
    for (i, (kind, old)) in steps.into_iter().enumerate() {
        let token = Token(i as u64);
        let operation = Operation::Atomic {
            to: Rank(1),
            path: PathId(0),
            class: Class::Control,
            kind,
            at,
            token,
        };
        let answer = post(fabric, Rank(0), operation, &[]);
        expect("old value", &ending(fabric, answer, token)?, &(Status::Complete, old))?;
    }
    let bytes = fabric.wire(Rank(1)).region(region).unwrap_or_default().to_vec();
    expect("both words", &bytes, &vec![0; 16])
}

fn digest(fabric: &mut dyn Fabric) -> Result<(), String> {
    // RFC 3720, appendix B.4: 32 bytes, of zeros and of ones.
    let region = memory(fabric, Rank(0), &[[0xff; 32], [0; 32]].concat())?;
    let half = |offset| Span { region, offset, length: 32 };
    let of = |of, token| Operation::Digest { of, token: Token(token) };
    let outside = Span { region, offset: 33, length: 32 };
    let operations = [
        of(half(32), 1),
        Operation::Copy { from: half(0), into: half(32) },
        of(half(32), 2),
        of(outside, 3),
    ];
    let mut answers = Vec::new();
    fabric.wire(Rank(0)).post(&operations, &[], &mut answers);
    let wanted = [
        PostOutcome::Done(0x8a91_36aa),
        PostOutcome::Done(0),
        PostOutcome::Done(0x62a8_ab43),
        PostOutcome::Refused(RefusalReason::Memory),
    ];
    expect("answers", &answers.as_slice(), &wanted.as_slice())
}

fn abandon(fabric: &mut dyn Fabric) -> Result<(), String> {
    const COUNT: u64 = 20;
    let mut open = alloc::collections::BTreeSet::new();
    for number in 0..COUNT {
        let to = Destination::One(Rank(1 + (number % 2) as u32));
        let (send, heads) = send_to(to, Class::Bulk, b"given up", Span::EMPTY, Some(Token(number)));
        if post(fabric, Rank(0), send, &heads) == PostOutcome::Posted {
            open.insert(Token(number));
        }
    }
    let answer = post(fabric, Rank(0), Operation::Abandon { peer: Rank(1) }, &[]);
    expect("answer", &answer, &PostOutcome::Done(0))?;
    let mut heard = 0;
    for _ in 0..TIMEOUT {
        for seen in look(fabric, Rank(0)) {
            let ReceivedMessage::Done { token, status, .. } = seen else { continue };
            if !matches!(status, Status::Complete | Status::Flushed) || !open.remove(&token) {
                return Err(format!("{token:?} ended with {status:?}, or twice"));
            }
        }
        look(fabric, Rank(1));
        heard += look(fabric, Rank(2)).len() as u64;
        if open.is_empty() && heard == COUNT / 2 {
            return Ok(());
        }
        fabric.pass_time();
    }
    Err(format!(
        "{} operations never ended, and another rank got {heard} of {} messages",
        open.len(),
        COUNT / 2
    ))
}

fn pages(fabric: &mut dyn Fabric) -> Result<(), String> {
    for length in [1, 5_000, 100_000] {
        let region = memory(fabric, Rank(0), &vec![0; length])?;
        let Some(bytes) = fabric.wire(Rank(0)).region(region) else { return Ok(()) };
        expect("bytes behind a multiple of 4096", &(bytes.as_ptr().addr() % 4096), &0)?;
    }
    Ok(())
}

fn leave(fabric: &mut dyn Fabric) -> Result<(), String> {
    let group = GroupId(4);
    for rank in [Rank(0), Rank(1), Rank(2)] {
        fabric.wire(rank).join(group).map_err(|missing| format!("join: {missing}"))?;
    }
    fabric.pass_time();
    fabric.wire(Rank(1)).leave(group).map_err(|missing| format!("leave: {missing}"))?;
    fabric.pass_time();
    let (send, heads) = send_to(Destination::Group(group), Class::Bulk, b"all", Span::EMPTY, None);
    post(fabric, Rank(0), send, &heads);
    await_arrivals(fabric, Rank(2), 1)?;
    await_arrivals(fabric, Rank(1), 0)?;
    expect("leaving again", &fabric.wire(Rank(1)).leave(group), &Err(RefusalReason::Group))
}

fn write_then_send(fabric: &mut dyn Fabric) -> Result<(), String> {
    const LENGTH: u32 = 200_000;
    let source = memory(fabric, Rank(0), &vec![7; LENGTH as usize])?;
    let target = memory(fabric, Rank(1), &vec![0; LENGTH as usize])?;
    let into = RemoteSpan { region: target, offset: 0 };
    let Operation::Write { to, path, class, from, .. } = write_of(source, into, LENGTH) else {
        return Ok(());
    };
    let write =
        Operation::Write { to, path, class, from, into, immediate: None, token: Some(Token(1)) };
    post(fabric, Rank(0), write, &[]);
    let (send, heads) = send_to(TO_1, class, b"behind", Span::EMPTY, None);
    post(fabric, Rank(0), send, &heads);
    for _ in 0..TIMEOUT {
        look(fabric, Rank(0));
        if !look(fabric, Rank(1)).is_empty() {
            let bytes = fabric.wire(Rank(1)).region(target).unwrap_or_default();
            return expect(
                "bytes that are there",
                &bytes.iter().filter(|byte| **byte == 7).count(),
                &(LENGTH as usize),
            );
        }
        fabric.pass_time();
    }
    Err("the message never arrived".into())
}

fn missing(fabric: &mut dyn Fabric) -> Result<(), String> {
    let region = memory(fabric, Rank(0), &[0; 16])?;
    let span = Span { region, offset: 0, length: 8 };
    let at = RemoteSpan { region, offset: 0 };
    let (path, class, token) = (PathId(0), Class::Bulk, Token(0));
    let (multicast, heads) = send_to(Destination::Group(GroupId(1)), class, b"", Span::EMPTY, None);
    let kind = AtomicKind::Swap(0);
    let all = [
        multicast,
        write_of(region, at, 8),
        Operation::Read { peer: Rank(1), path, class, from: at, into: span, token },
        Operation::Atomic { to: Rank(1), path, class, kind, at, token },
        Operation::File {
            kind: FileKind::Sync,
            file: FileId(0),
            at: 0,
            memory: span,
            class,
            token,
        },
    ];
    let operations = fabric.wire(Rank(0)).capabilities().operations;
    for operation in all.into_iter().filter(|operation| !operations.has(operation.kind())) {
        let answer = post(fabric, Rank(0), operation, &heads);
        expect(
            "answer",
            &answer,
            &PostOutcome::Refused(RefusalReason::Operation(operation.kind())),
        )?;
    }
    Ok(())
}
