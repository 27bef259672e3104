//! One end of one measurement of the UDP wire, or of the plain sockets that it is compared with.
//!
//! `wire_bench ROLE LOCAL PEER SECONDS`, both addresses as IP:PORT, ROLE one of `send`, `receive`
//! (goodput; `send-real` without segmentation offload), `ping`, `pong` (latency, spinning),
//! `bare-ping`, `bare-pong` (the same with `sendto` and `recv` only). A role of the wire that ends
//! in `-sealed` first agrees on keys over a TCP connection between the same addresses. `victim` and
//! `target` are a sleeping `ping` and `pong` of a job of three, whose third rank's address (the
//! victim's, one port further) a stranger has: `flood` from there sends datagrams that lack nothing
//! but the right keys. The target's port but two is one that nobody reads. The end that waits says
//! `ready` first; the result is one line of `name value` pairs. `cargo xtask bench wire` runs the
//! ends against each other.

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream, UdpSocket};

use clearway_proto::base::{Bytes, Class, LocalNs, Nanos, Rank};
use clearway_proto::wire::{
    Arrival, Destination, Operation, Out, PathId, PostOutcome, SHORT_HEAD, Span, Wire,
};
use clearway_runtime::clock;
use clearway_runtime::keys::{CARD_LENGTH, JobKeys, KeyScope, RankKeyPair};
use clearway_runtime::udp::{Placement, Protection, Segmentation, UdpConfig, UdpPort, UdpWire};
use clearway_runtime::waiting::{Waitable, Waiting};

/// Bytes of a datagram with the longest body.
const DATAGRAM: usize = 1_400;
/// Messages in one post: four segmented packets of the kernel's, in one system call.
const BATCH: usize = 4 * 46;
/// Messages under way at most: 736 of 1400 bytes fill less than half of the receive buffer of 4
/// MiB, so that goodput is what arrives without loss.
const WINDOW: u64 = 4 * BATCH as u64;
/// The receiver tells after this many messages how many came: half a window, so that telling costs
/// little and nobody waits.
const CREDIT: u64 = WINDOW / 2;
/// A sender that heard nothing for so long takes what is under way for lost.
const UNHEARD: Nanos = Nanos::from_millis(10);
/// Bytes of a latency message.
const PING: usize = 64;
/// The first round trips warm caches and neighbour tables.
const WARM_UP: usize = 1_000;
/// Marks the end of a stream.
const END: &[u8] = b"end";
/// A receiver gives up when nothing came for so long.
const SILENCE: Nanos = Nanos::from_secs(5);

/// Datagrams of a flood in one post: four segmented packets of the kernel's.
const FLOOD_BATCH: usize = 256;
/// Time between two posts of a flood: 10^6 datagrams a second, more than a rank gets in any test of
/// ours.
const FLOOD_GAP: Nanos = Nanos::from_micros(FLOOD_BATCH as u64);

/// The number of every run; runs do not overlap.
const SESSION: u64 = 1;

/// What an end that waits for the other says when it can be sent to.
const READY: &str = "ready";

type WireBenchResult = Result<(), Box<dyn Error>>;

fn main() -> WireBenchResult {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [role, local, peer, seconds] = arguments.as_slice() else {
        return Err("usage: wire_bench ROLE LOCAL PEER SECONDS".into());
    };
    let (role, sealing) = role
        .strip_suffix("-sealed")
        .map_or((role.as_str(), BenchSealing::Plain), |role| (role, BenchSealing::Sealed));
    let ends = WireBenchEnds { local: local.parse()?, peer: peer.parse()?, sealing };
    let length = Nanos::from_millis((seconds.parse::<f64>()? * 1e3) as u64);
    match role {
        "send" => send(&mut ends.open(Rank(0), Waiting::Sleep, Segmentation::Offload)?, length),
        "send-real" => {
            send(&mut ends.open(Rank(0), Waiting::Sleep, Segmentation::RealPackets)?, length)
        }
        "receive" => receive(&mut ends.open(Rank(1), Waiting::Adaptive, Segmentation::Offload)?),
        "ping" => ping(&mut ends.open(Rank(0), Waiting::Spin, Segmentation::Offload)?, length),
        "pong" => pong(&mut ends.open(Rank(1), Waiting::Spin, Segmentation::Offload)?),
        "victim" => ping(&mut ends.open(Rank(0), Waiting::Sleep, Segmentation::Offload)?, length),
        "target" => target(&ends),
        "flood" => flood(&ends, length),
        "bare-ping" => bare_ping(&ends.socket()?, ends.peer, length),
        "bare-pong" => bare_pong(&ends.socket()?, ends.peer),
        other => Err(format!("no role {other}").into()),
    }
}

/// Whether the ends have keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BenchSealing {
    Plain,
    Sealed,
}

fn identity(rank: Rank) -> Result<RankKeyPair, Box<dyn Error>> {
    Ok(RankKeyPair::new(rank, KeyScope { session: SESSION, epoch: 0, secret: None })?)
}

/// Returns an address on the same host, some ports further.
fn with_port_offset(address: SocketAddrV4, ports: u16) -> SocketAddrV4 {
    SocketAddrV4::new(*address.ip(), address.port() + ports)
}

struct WireBenchEnds {
    local: SocketAddrV4,
    peer: SocketAddrV4,
    sealing: BenchSealing,
}

impl WireBenchEnds {
    fn open(
        &self,
        rank: Rank,
        waiting: Waiting,
        segmentation: Segmentation,
    ) -> Result<UdpWire, Box<dyn Error>> {
        let [near, far] =
            if rank == Rank(0) { [self.local, self.peer] } else { [self.peer, self.local] };
        let peers = vec![near, far, with_port_offset(near, 1)];
        let mut config = UdpConfig::new(rank, SESSION, peers);
        config.placement = Placement::OneMachine;
        config.waiting = waiting;
        config.segmentation = segmentation;
        let port = UdpPort::bind(self.local)?;
        let listener = TcpListener::bind(self.local)?;
        if rank == Rank(1) {
            writeln!(io::stdout(), "{READY}")?;
        }
        if self.sealing == BenchSealing::Sealed {
            config.protection = Protection::Keys(self.agree(rank, &listener)?);
        }
        Ok(UdpWire::open([port], config)?)
    }

    /// Exchanges cards with the other end.
    fn agree(&self, rank: Rank, listener: &TcpListener) -> Result<JobKeys, Box<dyn Error>> {
        let identity = identity(rank)?;
        let mut cards = [identity.card(); 3];
        // Rank 2 never runs; its card is made by rank 0, so that its address is a member's.
        if rank == Rank(0) {
            cards[2] = self::identity(Rank(2))?.card();
            let mut stream = TcpStream::connect(self.peer)?;
            stream.write_all(&cards.concat())?;
            stream.read_exact(&mut cards[1])?;
        } else {
            let mut stream = listener.accept()?.0;
            let mut all = [0; 3 * CARD_LENGTH];
            stream.read_exact(&mut all)?;
            cards[0].copy_from_slice(&all[..CARD_LENGTH]);
            cards[2].copy_from_slice(&all[2 * CARD_LENGTH..]);
            stream.write_all(&identity.card())?;
        }
        Ok(identity.agree(&cards)?)
    }

    fn socket(&self) -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind(self.local)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }
}

fn to_other(class: Class, out: &mut Out<()>, head: &[u8], body: Span) -> Operation {
    to_rank(Rank(1), class, out, head, body)
}

fn to_rank(rank: Rank, class: Class, out: &mut Out<()>, head: &[u8], body: Span) -> Operation {
    let head = out.head(head);
    Operation::Send { to: Destination::One(rank), path: PathId(0), class, head, body, token: None }
}

/// Waits for a credit or for room; returns how many messages are settled: those that came, or all
/// `sent` after silence.
fn await_credit(wire: &mut UdpWire, sent: u64, settled: u64) -> u64 {
    let timeout = wire.now() + UNHEARD;
    while wire.now() < timeout {
        wire.wait(Some(timeout), &[]);
        let (mut credit, mut room) = (0, false);
        wire.poll(BATCH, &mut |arrival| match arrival {
            Arrival::Datagram(datagram) => {
                credit += datagram.head.try_into().map_or(0, u64::from_le_bytes)
            }
            Arrival::Room { .. } => room = true,
            _ => {}
        });
        if credit > 0 || room {
            return sent.min(settled + credit);
        }
    }
    sent
}

/// The longest body that is looked at.
fn length_max(wire: &UdpWire) -> usize {
    wire.capabilities().body_max_with_head(SHORT_HEAD)
}

/// The header that makes a datagram of [`DATAGRAM`] bytes with the longest body.
fn head(wire: &UdpWire) -> Vec<u8> {
    vec![0; DATAGRAM - wire.overhead().0 as usize - length_max(wire)]
}

fn send(wire: &mut UdpWire, length: Nanos) -> WireBenchResult {
    let length_max = length_max(wire);
    let head = head(wire);
    let region =
        wire.register(Bytes((BATCH * length_max) as u64)).map_err(|missing| missing.to_string())?;
    let mut out: Out<()> = Out::with_limit(BATCH + 1);
    let operations: Vec<Operation> = (0..BATCH)
        .map(|i| {
            let body = Span { region, offset: (i * length_max) as u64, length: length_max as u32 };
            to_other(Class::Bulk, &mut out, &head, body)
        })
        .collect();
    let mut answers = Vec::with_capacity(BATCH);
    let (begin, used) = (wire.now(), clock::processor());
    let (mut accepted, mut settled) = (0u64, 0u64);
    while wire.now().since(begin) < length {
        if accepted - settled + BATCH as u64 > WINDOW {
            settled = await_credit(wire, accepted, settled);
            continue;
        }
        answers.clear();
        wire.post(&operations, out.heads(), &mut answers);
        accepted += answers.iter().filter(|answer| **answer == PostOutcome::Done(0)).count() as u64;
        if answers.last() == Some(&PostOutcome::NoRoom) {
            settled = await_credit(wire, accepted, settled);
        }
    }
    let (wall, used) = (wire.now().since(begin), clock::processor() - used);
    let mut out: Out<()> = Out::with_limit(1);
    let end = to_other(Class::Control, &mut out, END, Span::EMPTY);
    // The last packets may still wait in queues, and any one message may be lost.
    for _ in 0..10 {
        wire.wait(Some(wire.now() + Nanos::from_millis(20)), &[]);
        wire.post(&[end], out.heads(), &mut answers);
    }
    writeln!(
        io::stdout(),
        "messages {accepted} bytes {} wall_ns {} cpu_ns {} segmentation {:?}",
        accepted * length_max as u64,
        wall.0,
        used.0,
        wire.segmentation()
    )?;
    Ok(())
}

fn receive(wire: &mut UdpWire) -> WireBenchResult {
    let head = head(wire);
    let (mut messages, mut bytes, mut polls, mut ended) = (0u64, 0u64, 0u64, false);
    let (mut begin, mut last, mut used) = (LocalNs(0), LocalNs(0), Nanos::ZERO);
    let (mut credited, mut out, mut answers) = (0u64, Out::<()>::with_limit(1), Vec::new());
    while !ended {
        let woken = wire.wait(Some(wire.now() + SILENCE), &[]);
        let before = messages;
        let count = wire.poll(64, &mut |arrival| {
            if let Arrival::Datagram(datagram) = arrival {
                ended |= datagram.head == END;
                if datagram.head.len() == head.len() {
                    messages += 1;
                    bytes += u64::from(datagram.body.length);
                }
            }
        });
        polls += 1;
        if messages - credited >= CREDIT {
            out.clear();
            let credit = (messages - credited).to_le_bytes();
            let operation = to_rank(Rank(0), Class::Control, &mut out, &credit, Span::EMPTY);
            wire.post(&[operation], out.heads(), &mut answers);
            answers.clear();
            credited = messages;
        }
        if messages > before {
            last = wire.now();
            if before == 0 {
                (begin, used) = (last, clock::processor());
            }
        }
        if !woken.wire && count == 0 && last != LocalNs(0) && wire.now().since(last) >= SILENCE {
            return Err("the sender fell silent".into());
        }
    }
    let used = clock::processor() - used;
    let counters = wire.counters();
    writeln!(
        io::stdout(),
        "messages {messages} bytes {bytes} wall_ns {} cpu_ns {} harvests {polls} overflow {} strangers {}",
        last.since(begin).0,
        used.0,
        counters.receive_overflow,
        counters.strangers
    )?;
    Ok(())
}

/// Sorts half round trips and prints their least and their median.
fn print_halves(mut halves: Vec<u64>) -> WireBenchResult {
    halves.sort_unstable();
    let (Some(least), Some(median)) = (halves.first(), halves.get(halves.len() / 2)) else {
        return Err("no round trip came back".into());
    };
    let p99 = halves[halves.len() * 99 / 100];
    writeln!(
        io::stdout(),
        "round_trips {} min_ns {least} p50_ns {median} p99_ns {p99}",
        halves.len()
    )?;
    Ok(())
}

fn ping(wire: &mut UdpWire, length: Nanos) -> WireBenchResult {
    let head = 8;
    let region =
        wire.register(Bytes((PING - head) as u64)).map_err(|missing| missing.to_string())?;
    let body = Span { region, offset: 0, length: (PING - head) as u32 };
    let (mut halves, mut answers) = (Vec::with_capacity(1 << 20), Vec::new());
    let begin = clock::now();
    let (mut trips, mut lost) = (0, 0);
    let mut out: Out<()> = Out::with_limit(1);
    while clock::now().since(begin) < length {
        out.clear();
        let sent = clock::now();
        let operation = to_other(Class::LowLatency, &mut out, &sent.0.to_le_bytes(), body);
        answers.clear();
        wire.post(&[operation], out.heads(), &mut answers);
        let mut back = false;
        while !back && clock::now().since(sent) < Nanos::from_millis(100) {
            wire.wait(Some(sent + Nanos::from_millis(100)), &[]);
            wire.poll(64, &mut |arrival| {
                back |= matches!(arrival, Arrival::Datagram(d) if d.head == sent.0.to_le_bytes());
            });
        }
        trips += 1;
        lost += usize::from(!back);
        if back && trips > WARM_UP {
            halves.push(clock::now().since(sent).0 / 2);
        }
    }
    out.clear();
    let end = to_other(Class::LowLatency, &mut out, END, Span::EMPTY);
    wire.post(&[end, end, end], out.heads(), &mut answers);
    write!(io::stdout(), "lost {lost} ")?;
    print_halves(halves)
}

fn pong(wire: &mut UdpWire) -> WireBenchResult {
    let (mut echoes, mut answers) = (Vec::new(), Vec::new());
    let mut out: Out<()> = Out::with_limit(64);
    let mut last = wire.now();
    let mut ended = false;
    while !ended {
        let woken = wire.wait(Some(last + SILENCE), &[]);
        wire.poll(64, &mut |arrival| {
            if let Arrival::Datagram(datagram) = arrival {
                ended |= datagram.head == END;
                let head = out.head(datagram.head);
                let (to, class, body) =
                    (Destination::One(Rank(0)), Class::LowLatency, datagram.body);
                echoes.push(Operation::Send {
                    to,
                    path: PathId(0),
                    class,
                    head,
                    body,
                    token: None,
                });
            }
        });
        wire.post(&echoes, out.heads(), &mut answers);
        echoes.clear();
        answers.clear();
        out.clear();
        if woken.wire {
            last = wire.now();
        } else if wire.now().since(last) >= SILENCE {
            return Err("the other end fell silent".into());
        }
    }
    Ok(())
}

/// Memory of this process in KiB.
fn memory() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

fn target(ends: &WireBenchEnds) -> WireBenchResult {
    let _unread = UdpSocket::bind(with_port_offset(ends.local, 2))?;
    let mut wire = ends.open(Rank(1), Waiting::Sleep, Segmentation::Offload)?;
    let before = memory()?;
    pong(&mut wire)?;
    let counters = wire.counters();
    writeln!(
        io::stdout(),
        "received {} strangers {} replayed {} overflow {} memory_before_kib {before} memory_kib {}",
        counters.received,
        counters.strangers,
        wire.replayed(),
        counters.receive_overflow,
        memory()?
    )?;
    Ok(())
}

/// Sends datagrams from a member's address to `peer`, sealed with keys of its own.
fn flood(ends: &WireBenchEnds, length: Nanos) -> WireBenchResult {
    let identities = (0..3).map(|rank| identity(Rank(rank))).collect::<Result<Vec<_>, _>>()?;
    let cards: Vec<_> = identities.iter().map(RankKeyPair::card).collect();
    let nobody = SocketAddrV4::new(*ends.peer.ip(), 1);
    let mut config = UdpConfig::new(Rank(2), SESSION, vec![nobody, ends.peer, ends.local]);
    let own = identities.into_iter().next_back().ok_or("no identity")?;
    config.protection = Protection::Keys(own.agree(&cards)?);
    let mut wire = UdpWire::open([UdpPort::bind(ends.local)?], config)?;
    let mut out: Out<()> = Out::with_limit(FLOOD_BATCH);
    let operations: Vec<_> = (0..FLOOD_BATCH)
        .map(|_| to_rank(Rank(1), Class::BestEffort, &mut out, &[7; 24], Span::EMPTY))
        .collect();
    let mut answers = Vec::with_capacity(FLOOD_BATCH);
    let begin = wire.now();
    let (mut sent, mut next) = (0, begin);
    while wire.now().since(begin) < length {
        answers.clear();
        wire.post(&operations, out.heads(), &mut answers);
        sent += answers.iter().filter(|answer| **answer == PostOutcome::Done(0)).count();
        next = wire.now().max(next + FLOOD_GAP);
        wire.wait(Some(next), &[]);
        wire.poll(BATCH, &mut |_| {});
    }
    writeln!(io::stdout(), "messages {sent} wall_ns {}", wire.now().since(begin).0)?;
    Ok(())
}

/// Reads one datagram, spinning; `None` after `timeout`.
fn spin(socket: &UdpSocket, bytes: &mut [u8], timeout: Nanos) -> Option<usize> {
    let begin = clock::now();
    loop {
        match socket.recv(bytes) {
            Ok(length) => return Some(length),
            Err(_) if clock::now().since(begin) >= timeout => return None,
            Err(_) => {}
        }
    }
}

fn bare_ping(socket: &UdpSocket, peer: SocketAddrV4, length: Nanos) -> WireBenchResult {
    let mut halves = Vec::with_capacity(1 << 20);
    let mut bytes = [0; 2_048];
    let begin = clock::now();
    let mut trips = 0;
    while clock::now().since(begin) < length {
        let sent = clock::now();
        // What is lost is not counted; the loop goes on.
        let _ = socket.send_to(&[7; PING], peer);
        trips += 1;
        if spin(socket, &mut bytes, Nanos::from_millis(100)).is_some() && trips > WARM_UP {
            halves.push(clock::now().since(sent).0 / 2);
        }
    }
    for _ in 0..3 {
        let _ = socket.send_to(END, peer);
    }
    print_halves(halves)
}

fn bare_pong(socket: &UdpSocket, peer: SocketAddrV4) -> WireBenchResult {
    writeln!(io::stdout(), "{READY}")?;
    let mut bytes = [0; 2_048];
    loop {
        let length = spin(socket, &mut bytes, SILENCE).ok_or("the other end fell silent")?;
        if &bytes[..length] == END {
            return Ok(());
        }
        let _ = socket.send_to(&bytes[..length], peer);
    }
}
