//! One end of one transfer over libfabric and UDP at once, one for the other when it fails.
//!
//! Through a TCP connection between the same addresses the ends tell each other where they are on
//! libfabric.

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddrV4, TcpListener, TcpStream};

use clearway_ofi::{OfiConfig, OfiPort, OfiWire, ProviderInterface, Trust};
use clearway_proto::base::{Class, Rank};
use clearway_proto::reliable::{ReliableWire, StreamConfig};
use clearway_runtime::multipath::MultipathWire;
use clearway_runtime::udp::{Placement, UdpConfig, UdpPort, UdpWire};
use clearway_runtime::waiting::Waiting;
use clearway_wires::Libfabric;

use super::say_ready;
use super::transfer::{self, TransferResult};

/// The number of every run; runs do not overlap.
const SESSION: u64 = 4;

type BenchEnd = ReliableWire<MultipathWire<Libfabric>>;

/// Sends `count` writes from `local` to `peer`.
pub(super) fn send(local: SocketAddrV4, peer: SocketAddrV4, count: u64) -> TransferResult {
    let mut stream = TcpStream::connect(peer)?;
    let mut end = open(0, [local, peer], &mut stream)?;
    // The receiver has its memory.
    stream.read_exact(&mut [0])?;
    transfer::send(&mut end, Class::Bulk, count)
}

/// Receives `count` writes at `local` from `peer`.
pub(super) fn receive(local: SocketAddrV4, peer: SocketAddrV4, count: u64) -> TransferResult {
    let listener = TcpListener::bind(local)?;
    say_ready()?;
    let mut stream = listener.accept()?.0;
    let mut end = open(1, [peer, local], &mut stream)?;
    transfer::receive(&mut end, count, || stream.write_all(&[1]))
}

/// Tells the peer `own` address on libfabric; the peer's.
fn exchange(stream: &mut TcpStream, own: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(&(own.len() as u32).to_le_bytes())?;
    stream.write_all(own)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut theirs = Vec::new();
    stream.take(u32::from_le_bytes(length).into()).read_to_end(&mut theirs)?;
    Ok(theirs)
}

/// The end of `rank`; `addresses` are those of both by rank, and the peer is at the other end of
/// `stream`.
fn open(
    rank: u32,
    addresses: [SocketAddrV4; 2],
    stream: &mut TcpStream,
) -> Result<BenchEnd, Box<dyn Error>> {
    let own = addresses[rank as usize];
    let datagrams = UdpPort::bind(own)?;
    let fabric = OfiPort::open(OfiConfig {
        source: ProviderInterface::Address(IpAddr::V4(*own.ip())),
        placement: clearway_ofi::Placement::OneMachine,
        ..OfiConfig::default()
    })?;
    let theirs = exchange(stream, &fabric.address())?;
    let both = if rank == 0 { [fabric.address(), theirs] } else { [theirs, fabric.address()] };
    let fabric = OfiWire::open(fabric, Rank(rank), &Trust::Session(SESSION), &both)?;
    let mut config = UdpConfig::new(Rank(rank), SESSION, addresses.to_vec());
    config.placement = Placement::OneMachine;
    config.waiting = Waiting::Sleep;
    let fabric = Libfabric::new(fabric, Waiting::Sleep);
    let wire = MultipathWire::new(fabric, UdpWire::open([datagrams], config)?, Waiting::Sleep)?;
    Ok(ReliableWire::new(wire, 2, &StreamConfig::new(2), 0)
        .map_err(|missing| missing.to_string())?)
}
