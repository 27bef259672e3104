//! One end of a long run of reliable messages over a network that does its worst: every byte as it
//! was, once and in order, or a failure.
//!
//! `reliable_faults send|receive LOCAL PEER SECONDS SEED`, addresses as IP:PORT, several with
//! commas between them for as many rails. The sender posts messages and writes of random lengths in
//! all classes; what each must be follows from the seed and its number, so the receiver knows it.
//! The end that receives says `ready` first; the result of each is one line of `name value` pairs.
//! The receiver ends with a failure if anything was not as it should be.
//!
//! # Not here
//! The worst: `xtask/src/bench/faults.rs`.

use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddrV4;

use clearway_proto::base::{Bytes, Class, LocalNs, Nanos, RandomKey, Rank};
use clearway_proto::reliable::{ReliableWire, StreamConfig};
use clearway_proto::wire::{
    Arrival, Destination, Operation, Out, PathId, PostOutcome, RegionId, RemoteSpan, Span, Status,
    Token, Wire,
};
use clearway_runtime::clock;
use clearway_runtime::udp::{Placement, Segmentation, UdpConfig, UdpPort, UdpWire};
use clearway_runtime::waiting::{Waitable, Waiting};

type FaultyEnd = ReliableWire<UdpWire>;
type FaultRunResult = Result<(), Box<dyn Error>>;

/// The number of every run; runs do not overlap.
const SESSION: u64 = 3;
/// The longest body; that of a message is half an inbox.
const LONGEST: u64 = 64 << 10;
/// Operations of a class that are under way; a place in the receiver's memory is used again after
/// four times as many.
const WINDOW: u64 = 16;
const PLACES: u64 = 4 * WINDOW;
/// Bytes that bodies are taken from; the same at both ends.
const SOURCE: u64 = 1 << 20;
/// The word of the last message of a class.
const LAST: u8 = 1;
/// How long the receiver answers when all is over: its last answer may be lost.
const LINGER: Nanos = Nanos::from_secs(2);

fn main() -> FaultRunResult {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [role, local, peer, seconds, seed] = arguments.as_slice() else {
        return Err("usage: reliable_faults send|receive LOCAL PEER SECONDS SEED".into());
    };
    let addresses =
        |text: &str| text.split(',').map(str::parse).collect::<Result<Vec<SocketAddrV4>, _>>();
    let (local, peer, seed) = (addresses(local)?, addresses(peer)?, seed.parse()?);
    match role.as_str() {
        "send" => send(&mut open(0, &local, &peer)?, seed, Nanos::from_secs(seconds.parse()?)),
        "receive" => receive(&mut open(1, &local, &peer)?, seed),
        other => Err(format!("no role {other}").into()),
    }
}

fn open(
    rank: u32,
    local: &[SocketAddrV4],
    peer: &[SocketAddrV4],
) -> Result<FaultyEnd, Box<dyn Error>> {
    let rails = local.iter().zip(peer);
    let rails = rails
        .map(|(local, peer)| if rank == 0 { vec![*local, *peer] } else { vec![*peer, *local] });
    let mut config = UdpConfig::new(Rank(rank), SESSION, Vec::new());
    config.rails = rails.collect();
    config.placement = Placement::OneMachine;
    config.waiting = Waiting::Sleep;
    config.segmentation = Segmentation::RealPackets;
    let ports = local.iter().map(|local| UdpPort::bind(*local)).collect::<Result<Vec<_>, _>>()?;
    // Patient: a stopped peer is not a dead one.
    let streams = StreamConfig { timeout: Nanos::from_secs(30), ..StreamConfig::new(2) };
    Ok(ReliableWire::new(UdpWire::open(ports, config)?, 2, &streams, 0)
        .map_err(|missing| missing.to_string())?)
}

/// Memory of both ends: bodies, and places of writes.
fn memory(wire: &mut FaultyEnd, seed: u64) -> Result<[RegionId; 2], Box<dyn Error>> {
    let places = Class::ALL.len() as u64 * PLACES * LONGEST;
    let mut register = |length| wire.register(Bytes(length)).map_err(|missing| missing.to_string());
    let regions = [register(SOURCE)?, register(places)?];
    let mut random = RandomKey::new(seed).purpose("bytes").stream();
    wire.region_mut(regions[0]).ok_or("registered")?.fill_with(|| random.below(256) as u8);
    Ok(regions)
}

/// What operation `number` of a class is: a write or a message, of which bytes.
struct PlannedOperation {
    is_write: bool,
    body: Span,
}

fn planned(
    seed: u64,
    class: Class,
    number: u64,
    source: RegionId,
    message_max: u64,
) -> PlannedOperation {
    let mut random = RandomKey::new(seed).purpose(class.name()).node(number).stream();
    let is_write = random.below(2) == 0;
    let longest = if is_write { LONGEST } else { message_max.min(LONGEST) };
    let longest = if random.below(4) == 0 { longest } else { 3_000 };
    let length = random.below(longest + 1);
    let body =
        Span { region: source, offset: random.below(SOURCE - length + 1), length: length as u32 };
    PlannedOperation { is_write, body }
}

/// Where the writes of a class go, in turns.
fn place(class: Class, number: u64) -> u64 {
    (class.index() as u64 * PLACES + number % PLACES) * LONGEST
}

fn send(wire: &mut FaultyEnd, seed: u64, seconds: Nanos) -> FaultRunResult {
    let [source, target] = memory(wire, seed)?;
    let message_max = wire.capabilities().body_max as u64;
    let (begin, mut bytes) = (clock::now(), 0);
    let (mut posted, mut done, mut is_over) = ([0u64; 5], [0u64; 5], [false; 5]);
    let mut out: Out<()> = Out::with_limit(1);
    while posted != done || is_over.contains(&false) {
        for class in Class::ALL {
            let i = class.index();
            while !is_over[i] && posted[i] < done[i] + WINDOW {
                let is_last = clock::now().since(begin) >= seconds;
                let PlannedOperation { is_write, body } =
                    planned(seed, class, posted[i], source, message_max);
                let (path, token) = (PathId(0), Some(Token((i as u64) << 56 | posted[i])));
                let operation = if is_write && !is_last {
                    let into = RemoteSpan { region: target, offset: place(class, posted[i]) };
                    let immediate = (i as u64) << 56 | posted[i];
                    Operation::Write {
                        to: Rank(1),
                        path,
                        class,
                        from: body,
                        into,
                        immediate: Some(immediate),
                        token,
                    }
                } else {
                    out.clear();
                    let number = posted[i].to_le_bytes();
                    let head = out.head(&[&number[..], &[u8::from(is_last) * LAST]].concat());
                    let body = if is_last { Span::EMPTY } else { body };
                    Operation::Send {
                        to: Destination::One(Rank(1)),
                        path,
                        class,
                        head,
                        body,
                        token,
                    }
                };
                let mut answers = Vec::new();
                wire.post(&[operation], out.heads(), &mut answers);
                if answers != [PostOutcome::Posted] {
                    break;
                }
                bytes += if is_last { 0 } else { u64::from(body.length) };
                (posted[i], is_over[i]) = (posted[i] + 1, is_last);
            }
        }
        wire.wait(Some(clock::now() + Nanos::from_millis(20)), &[]);
        let mut failed = None;
        wire.poll(64, &mut |arrival| {
            if let Arrival::Done { token, status, .. } = arrival {
                done[(token.0 >> 56) as usize] += 1;
                failed = (status != Status::Complete).then_some(status).or(failed);
            }
        });
        if let Some(status) = failed {
            return Err(format!("an operation ended as {status:?}").into());
        }
    }
    let (count, seconds) = (posted.iter().sum::<u64>(), clock::now().since(begin).as_secs_f64());
    let datagrams = wire.counters().sent;
    Ok(writeln!(
        io::stdout(),
        "operations {count} bytes {bytes} seconds {seconds} datagrams {datagrams}"
    )?)
}

/// What the receiver found.
#[derive(Default)]
struct ReceiverFindings {
    operations: u64,
    bytes: u64,
    wrong: u64,
    out_of_order: u64,
    gap: Nanos,
}

/// An arrival: class, number, whether it was the last of its class, and where the bytes lie.
type ReceivedOperation = (Class, u64, bool, Span);

fn receive(wire: &mut FaultyEnd, seed: u64) -> FaultRunResult {
    let [source, _] = memory(wire, seed)?;
    let message_max = wire.capabilities().body_max as u64;
    writeln!(io::stdout(), "ready")?;
    let (mut next, mut over, mut found) = ([0u64; 5], 0, ReceiverFindings::default());
    let mut heard: Option<LocalNs> = None;
    while over < Class::ALL.len() {
        wire.wait(Some(clock::now() + Nanos::from_millis(20)), &[]);
        let mut came: Vec<ReceivedOperation> = Vec::new();
        wire.poll(64, &mut |arrival| came.extend(read(&arrival)));
        if !came.is_empty() {
            let now = clock::now();
            found.gap = heard.map_or(found.gap, |heard| found.gap.max(now.since(heard)));
            heard = Some(now);
        }
        for (class, number, is_last, span) in came {
            found.out_of_order += u64::from(number != next[class.index()]);
            next[class.index()] = number + 1;
            over += usize::from(is_last);
            let body = if is_last {
                Span::EMPTY
            } else {
                planned(seed, class, number, source, message_max).body
            };
            found.operations += 1;
            found.bytes += u64::from(body.length);
            found.wrong += u64::from(bytes(wire, span) != bytes(wire, body));
        }
    }
    let ReceiverFindings { operations, bytes, wrong, out_of_order, gap } = found;
    let gap = gap.as_secs_f64();
    writeln!(
        io::stdout(),
        "operations {operations} bytes {bytes} wrong {wrong} out-of-order {out_of_order} gap {gap}"
    )?;
    let end = clock::now() + LINGER;
    while clock::now() < end {
        wire.wait(Some(clock::now() + Nanos::from_millis(20)), &[]);
        wire.poll(64, &mut |_| {});
    }
    if wrong + out_of_order > 0 { Err("not every byte is what it was".into()) } else { Ok(()) }
}

fn read(arrival: &Arrival<'_>) -> Option<ReceivedOperation> {
    match arrival {
        Arrival::Landed { into, immediate, .. } => {
            let class = *Class::ALL.get((immediate >> 56) as usize)?;
            Some((class, immediate & ((1 << 56) - 1), false, *into))
        }
        Arrival::Datagram(datagram) => {
            let (number, last) = datagram.head.split_first_chunk()?;
            Some((datagram.class?, u64::from_le_bytes(*number), last == [LAST], datagram.body))
        }
        _ => None,
    }
}

fn bytes(wire: &FaultyEnd, span: Span) -> Option<&[u8]> {
    if span.length == 0 {
        return Some(&[]);
    }
    let region = wire.region(span.region)?;
    Some(&region[span.range_in(region.len())?])
}
