//! One end of one transfer: reliable messages over UDP, or the kernel's TCP that they are compared
//! with.
//!
//! `reliable_bench ROLE LOCAL PEER MIB`, both addresses as IP:PORT, several with commas between
//! them for as many rails; ROLE one of `send`, `receive` (writes of 64 KiB over a reliable wire, in
//! class bulk; `send-scavenger` in class scavenger; `send-unchecked`, `receive-unchecked` without looking at the bytes) `send-two-wires`,
//! `receive-two-wires` over libfabric and UDP at once; and `tcp-send`, `tcp-send-cubic`,
//! `tcp-receive`. The end that receives says `ready` first; each result is one line of `name value`
//! pairs: seconds from the first byte sent to the last one known to be there, seconds of this end's
//! processor time, datagrams sent, the longest time in seconds between two writes that landed.

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::BorrowedFd;

use clearway_proto::base::{Class, LocalNs, Nanos, Rank};
use clearway_proto::reliable::{ReliableWire, StreamConfig};
use clearway_proto::wire::{Operation, PostOutcome, Wire, forward_wire};
use clearway_runtime::clock;
use clearway_runtime::udp::{Placement, UdpConfig, UdpPort, UdpWire};
use clearway_runtime::waiting::{Rest, Waitable, Waiting, Wake, WakeDescriptors, WakeReason};
use socket2::SockRef;

use self::transfer::{MESSAGE, TransferResult, receive, send, summarize};

mod transfer;
mod two_wires;

/// The number of every run; runs do not overlap.
const SESSION: u64 = 2;

fn main() -> TransferResult {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [role, local, peer, mib] = arguments.as_slice() else {
        return Err("usage: reliable_bench ROLE LOCAL PEER MIB".into());
    };
    let ends = RailAddresses { local: addresses(local)?, peer: addresses(peer)? };
    let count = (mib.parse::<u64>()? << 20) / u64::from(MESSAGE);
    match role.as_str() {
        "send" => send(&mut open(0, &ends, |wire| wire)?, Class::Bulk, count),
        "send-scavenger" => send(&mut open(0, &ends, |wire| wire)?, Class::Scavenger, count),
        "receive" => receive(&mut open(1, &ends, |wire| wire)?, count, say_ready),
        "send-unchecked" => send(&mut open(0, &ends, UncheckedWire)?, Class::Bulk, count),
        "receive-unchecked" => receive(&mut open(1, &ends, UncheckedWire)?, count, say_ready),
        "tcp-send" => tcp_send(ends.peer[0], count, None),
        "tcp-send-cubic" => tcp_send(ends.peer[0], count, Some(b"cubic")),
        "tcp-receive" => tcp_receive(ends.local[0]),
        "send-two-wires" => two_wires::send(ends.local[0], ends.peer[0], count),
        "receive-two-wires" => two_wires::receive(ends.local[0], ends.peer[0], count),
        other => Err(format!("no role {other}").into()),
    }
}

/// The addresses of both ends, by rail.
struct RailAddresses {
    local: Vec<SocketAddrV4>,
    peer: Vec<SocketAddrV4>,
}

fn addresses(text: &str) -> Result<Vec<SocketAddrV4>, Box<dyn Error>> {
    Ok(text.split(',').map(str::parse).collect::<Result<_, _>>()?)
}

fn open<W: Wire>(
    rank: u32,
    ends: &RailAddresses,
    make: impl Fn(UdpWire) -> W,
) -> Result<ReliableWire<W>, Box<dyn Error>> {
    let rails = ends.local.iter().zip(&ends.peer);
    let rails = rails
        .map(|(local, peer)| if rank == 0 { vec![*local, *peer] } else { vec![*peer, *local] });
    let mut config = UdpConfig::new(Rank(rank), SESSION, Vec::new());
    config.rails = rails.collect();
    config.placement = Placement::OneMachine;
    config.waiting = Waiting::Sleep;
    let ports =
        ends.local.iter().map(|local| UdpPort::bind(*local)).collect::<Result<Vec<_>, _>>()?;
    let wire = make(UdpWire::open(ports, config)?);
    Ok(ReliableWire::new(wire, 2, &StreamConfig::new(2), 0)
        .map_err(|missing| missing.to_string())?)
}

fn say_ready() -> io::Result<()> {
    writeln!(io::stdout(), "ready")
}

fn tcp_send(peer: SocketAddrV4, count: u64, congestion: Option<&[u8]>) -> TransferResult {
    let mut stream = TcpStream::connect(peer)?;
    congestion.map_or(Ok(()), |name| SockRef::from(&stream).set_tcp_congestion(name))?;
    let bytes = vec![0x5a; MESSAGE as usize];
    let (begin, used) = (clock::now(), clock::processor());
    (0..count).try_for_each(|_| stream.write_all(&bytes))?;
    stream.shutdown(std::net::Shutdown::Write)?;
    stream.read_exact(&mut [0])?;
    summarize(begin, clock::processor() - used, 0, Nanos::ZERO)
}

fn tcp_receive(local: SocketAddrV4) -> TransferResult {
    let listener = TcpListener::bind(local)?;
    say_ready()?;
    let mut stream = listener.accept()?.0;
    let (begin, used) = (clock::now(), clock::processor());
    let mut bytes = vec![0; MESSAGE as usize];
    while stream.read(&mut bytes)? > 0 {}
    stream.write_all(&[1])?;
    summarize(begin, clock::processor() - used, 0, Nanos::ZERO)
}

/// A wire that says that all bytes are alike: what checking costs is the difference.
struct UncheckedWire(UdpWire);

impl Wire for UncheckedWire {
    forward_wire!(
        0: rank, capabilities, now, memory, groups, poll, deadline, counters
    );

    fn post(&mut self, operations: &[Operation], heads: &[u8], answers: &mut Vec<PostOutcome>) {
        let is_digest = |operation: &Operation| matches!(operation, Operation::Digest { .. });
        // What is posted together leaves together.
        for alike in operations.chunk_by(|a, b| is_digest(a) == is_digest(b)) {
            match alike.first().is_some_and(is_digest) {
                true => answers.extend(alike.iter().map(|_| PostOutcome::Done(0))),
                false => self.0.post(alike, heads, answers),
            }
        }
    }
}

impl Wake for UncheckedWire {
    fn wake_descriptors(&mut self) -> io::Result<Option<WakeDescriptors>> {
        self.0.wake_descriptors()
    }

    fn rest(&mut self) -> Rest {
        self.0.rest()
    }
}

impl Waitable for UncheckedWire {
    fn wait(&mut self, until: Option<LocalNs>, extra: &[BorrowedFd<'_>]) -> WakeReason {
        self.0.wait(until, extra)
    }
}
