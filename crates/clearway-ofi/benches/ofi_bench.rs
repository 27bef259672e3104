//! Measures the libfabric wire between two processes, for `cargo xtask bench ofi`.
//!
//! # Model
//! `ofi_bench ping|pong|write|target LOCAL PEER SECONDS SIZE`, both addresses as IP: messages of
//! SIZE bytes in turns (half a turn is the latency), or one-sided writes of SIZE bytes, some under
//! way at a time. Both ends poll. They meet over a TCP connection between the same addresses; the
//! end that accepts it says `ready` first. The near one prints one line.
//!
//! # Not here
//! The same over libfabric alone: `fi_pingpong`, and `xtask/src/bench/ofi_peer.c`.

#![allow(missing_docs)]

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};

use clearway_ofi::{OfiConfig, OfiPort, OfiWire, Placement, ProviderInterface, Trust, WakeMethod};
use clearway_proto::base::{Bytes, Class, LocalNs, Nanos, Rank};
use clearway_proto::wire::{
    Arrival, Destination, Operation, Out, PathId, PostOutcome, RegionId, RemoteSpan, Span, Status,
    Token, Wire,
};
use rustix::time::{ClockId, clock_gettime};

/// The port at which both ends meet.
const RENDEZVOUS: u16 = 7_071;
/// Turns that do not count: connections come up, marks are set.
const WARM: usize = 200;
/// Writes under way at a time, as in the other program.
const WINDOW: usize = 16;
/// The time before writes count.
const WARM_UP: Nanos = Nanos::from_millis(200);
/// Bytes of a message's header.
const HEAD: usize = 8;
/// The word of the last write.
const END: u64 = u64::MAX;
/// A peer that is silent for so long has ended.
const SILENCE: Nanos = Nanos::from_secs(5);

type OfiBenchResult<T> = Result<T, Box<dyn Error>>;

fn main() -> OfiBenchResult<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [role, local, peer, seconds, size] = arguments.as_slice() else {
        return Err("usage: ofi_bench ping|pong|write|target LOCAL PEER SECONDS SIZE".into());
    };
    let near = matches!(role.as_str(), "ping" | "write");
    let length = Nanos::from_millis((seconds.parse::<f64>()? * 1e3) as u64);
    let (mut wire, size) = (open(near, local.parse()?, peer.parse()?)?, size.parse()?);
    match role.as_str() {
        "ping" => ping(&mut wire, length, size),
        "pong" => pong(&mut wire, size),
        "write" => write(&mut wire, length, size),
        "target" => target(&mut wire, size),
        other => Err(format!("no role {other}").into()),
    }
}

fn open(near: bool, local: IpAddr, peer: IpAddr) -> OfiBenchResult<OfiWire> {
    let config = OfiConfig {
        source: ProviderInterface::Address(local),
        placement: Placement::OneMachine,
        waking: WakeMethod::Polled,
        ..OfiConfig::default()
    };
    let port = OfiPort::open(config)?;
    let mut stream = if near {
        TcpStream::connect((peer, RENDEZVOUS))?
    } else {
        let listener = TcpListener::bind((local, RENDEZVOUS))?;
        writeln!(io::stdout(), "ready")?;
        listener.accept()?.0
    };
    let own = port.address();
    stream.write_all(&(own.len() as u64).to_le_bytes())?;
    stream.write_all(&own)?;
    let mut length = [0; 8];
    stream.read_exact(&mut length)?;
    let mut theirs = vec![0; usize::try_from(u64::from_le_bytes(length))?];
    stream.read_exact(&mut theirs)?;
    let (rank, peers) = if near { (Rank(0), [own, theirs]) } else { (Rank(1), [theirs, own]) };
    Ok(OfiWire::open(port, rank, &Trust::Session(1), &peers)?)
}

fn processor_time() -> u64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}

/// Posts; returns whether there was room.
fn post(wire: &mut OfiWire, operation: Operation, heads: &[u8]) -> bool {
    let mut answers = Vec::with_capacity(1);
    wire.post(&[operation], heads, &mut answers);
    answers.first() != Some(&PostOutcome::NoRoom)
}

/// A message of `size` bytes, or of a header alone.
fn message(
    wire: &mut OfiWire,
    to: Rank,
    size: usize,
    head: &[u8],
    out: &mut Out<()>,
) -> OfiBenchResult<Operation> {
    let region = wire.register(Bytes(size as u64)).map_err(|missing| missing.to_string())?;
    let body = Span { region, offset: 0, length: size.saturating_sub(head.len()) as u32 };
    let (to, head) = (Destination::One(to), out.head(head));
    Ok(Operation::Send { to, path: PathId(0), class: Class::LowLatency, head, body, token: None })
}

/// Polls until messages come; returns whether one of them said the end.
fn receive(wire: &mut OfiWire) -> OfiBenchResult<bool> {
    let (mut ended, mut count, mut polls) = (false, 0, 0u32);
    let mut until = None;
    while count == 0 {
        wire.poll(64, &mut |arrival| {
            if let Arrival::Datagram(datagram) = arrival {
                count += 1;
                ended |= datagram.head == END.to_le_bytes();
            }
        });
        polls += 1;
        if polls.is_multiple_of(1 << 16) {
            let now = wire.now();
            if *until.get_or_insert(now + SILENCE) < now {
                return Err("the other end fell silent".into());
            }
        }
    }
    Ok(ended)
}

fn ping(wire: &mut OfiWire, length: Nanos, size: usize) -> OfiBenchResult<()> {
    let mut out: Out<()> = Out::with_limit(2);
    let send = message(wire, Rank(1), size, &[0; HEAD], &mut out)?;
    let end = message(wire, Rank(1), HEAD, &END.to_le_bytes(), &mut out)?;
    let mut halves = Vec::with_capacity(1 << 20);
    let mut begin = LocalNs(0);
    for turn in 0.. {
        let sent = wire.now();
        if turn == WARM {
            begin = sent;
        }
        post(wire, send, out.heads());
        receive(wire)?;
        let now = wire.now();
        if turn >= WARM {
            halves.push(now.since(sent).0 / 2);
            if now.since(begin) >= length {
                break;
            }
        }
    }
    let mean = wire.now().since(begin).0 as f64 / (2 * halves.len()) as f64;
    post(wire, end, out.heads());
    linger(wire);
    halves.sort_unstable();
    let (least, median) = (halves[0], halves[halves.len() / 2]);
    writeln!(
        io::stdout(),
        "round_trips {} min_ns {least} p50_ns {median} mean_ns {mean:.0}",
        halves.len()
    )?;
    Ok(())
}

fn pong(wire: &mut OfiWire, size: usize) -> OfiBenchResult<()> {
    let mut out: Out<()> = Out::with_limit(1);
    let send = message(wire, Rank(0), size, &[0; HEAD], &mut out)?;
    while !receive(wire)? {
        post(wire, send, out.heads());
    }
    Ok(())
}

/// Lets what was posted leave.
fn linger(wire: &mut OfiWire) {
    let until = wire.now() + WARM_UP;
    while wire.now() < until {
        wire.poll(64, &mut |_| {});
    }
}

fn write(wire: &mut OfiWire, length: Nanos, size: usize) -> OfiBenchResult<()> {
    let region =
        wire.register(Bytes((WINDOW * size) as u64)).map_err(|missing| missing.to_string())?;
    let (mut posted, mut done, mut failed) = (0usize, 0usize, false);
    let (mut begin, mut used, mut before) = (wire.now(), 0, 0);
    let mut warm = true;
    let of = |number: usize, immediate| {
        let offset = (number % WINDOW * size) as u64;
        let from = Span { region, offset, length: size as u32 };
        let into = RemoteSpan { region: RegionId(0), offset };
        let (to, path, class, token) =
            (Rank(1), PathId(0), Class::Bulk, Some(Token(number as u64)));
        Operation::Write { to, path, class, from, into, immediate: Some(immediate), token }
    };
    loop {
        let now = wire.now();
        if warm && now.since(begin) >= WARM_UP {
            (warm, begin, used, before) = (false, now, processor_time(), done);
        } else if !warm && now.since(begin) >= length {
            break;
        }
        while posted - done < WINDOW && post(wire, of(posted, 0), &[]) {
            posted += 1;
        }
        wire.poll(64, &mut |arrival| {
            if let Arrival::Done { status, .. } = arrival {
                done += 1;
                failed |= status != Status::Complete;
            }
        });
        if failed {
            return Err("a write failed".into());
        }
    }
    let (wall, used) = (wire.now().since(begin).0, processor_time() - used);
    let messages = done - before;
    post(wire, of(0, END), &[]);
    linger(wire);
    writeln!(
        io::stdout(),
        "messages {messages} bytes {} wall_ns {wall} cpu_ns {used}",
        messages * size
    )?;
    Ok(())
}

fn target(wire: &mut OfiWire, size: usize) -> OfiBenchResult<()> {
    wire.register(Bytes((WINDOW * size) as u64)).map_err(|missing| missing.to_string())?;
    let (mut ended, mut last) = (false, wire.now());
    while !ended {
        let mut landed = false;
        wire.poll(64, &mut |arrival| {
            if let Arrival::Landed { immediate, .. } = arrival {
                landed = true;
                ended |= immediate == END;
            }
        });
        let now = wire.now();
        last = if landed { now } else { last };
        if now.since(last) > SILENCE {
            return Err("the other end fell silent".into());
        }
    }
    Ok(())
}
