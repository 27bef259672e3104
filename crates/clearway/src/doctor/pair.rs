//! Two ends of the UDP wire in this process, one sending to the other, on loopback or between two
//! hosts of a lab.

use std::net::{Ipv4Addr, SocketAddrV4};

use anyhow::{Context, Result};
use clearway_lab::Lab;
use clearway_proto::base::{Bytes, Class, LocalNs, Nanos, Rank};
use clearway_proto::wire::{Arrival, Destination, Operation, Out, PathId, PostOutcome, Span, Wire};
use clearway_runtime::clock;
use clearway_runtime::udp::{Placement, SocketBuffers, UdpConfig, UdpPort, UdpWire, frame};
use clearway_runtime::waiting::{Waitable, Waiting};

/// The ends of a lab have namespaces of their own, where every port is free.
const LAB_PORT: u16 = 7_470;
/// Longer than a message takes anywhere in a lab of 100 Mb/s, even when its receiver waits for a
/// processor.
const TIMEOUT: Nanos = Nanos::from_millis(100);
/// Every message is a header of the greatest length that the wire takes, and no body.
const HEAD: [u8; frame::HEAD_MAX] = [0x43; frame::HEAD_MAX];

/// A message as it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ArrivedMessage {
    /// The class of its mark.
    pub(super) class: Option<Class>,
    /// Its receive stamp.
    pub(super) at: LocalNs,
}

/// Two ends of one job.
#[derive(Debug)]
pub(super) struct TestPair {
    /// Rank 0.
    pub(super) sender: UdpWire,
    /// Rank 1.
    pub(super) receiver: UdpWire,
}

impl TestPair {
    /// Creates both ends on this host's loopback, with the buffers that every wire asks for.
    pub(super) fn on_loopback() -> Result<Self> {
        Self::with_receive_buffer(SocketBuffers::default().receive)
    }

    /// Creates the same with receive buffers of `receive`.
    pub(super) fn with_receive_buffer(receive: Bytes) -> Result<Self> {
        let port = || UdpPort::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
        let [first, second] = [port()?, port()?];
        let peers = [first.address(), second.address()];
        Ok(Self {
            sender: open(Rank(0), first, peers, receive)?,
            receiver: open(Rank(1), second, peers, receive)?,
        })
    }

    /// Creates one end in each of the first two hosts of `lab`.
    pub(super) fn in_lab(lab: &Lab) -> Result<Self> {
        let [from, to, ..] = lab.hosts() else { anyhow::bail!("a lab with fewer than two hosts") };
        let peers = [from, to].map(|host| SocketAddrV4::new(host.address, LAB_PORT));
        let end = |rank: Rank| -> Result<UdpWire> {
            let open = || {
                open(
                    rank,
                    UdpPort::bind(peers[rank.index()])?,
                    peers,
                    SocketBuffers::default().receive,
                )
            };
            lab.in_host(rank, open).context("a host of the lab cannot be entered")?
        };
        Ok(Self { sender: end(Rank(0))?, receiver: end(Rank(1))? })
    }

    /// Sends `count` messages of `class` in one call; returns how many the wire took.
    pub(super) fn send(&mut self, class: Class, count: usize) -> usize {
        let mut out: Out<()> = Out::with_limit(1);
        let head = out.head(&HEAD);
        let to = Destination::One(Rank(1));
        let send =
            Operation::Send { to, path: PathId(0), class, head, body: Span::EMPTY, token: None };
        let mut answers = Vec::with_capacity(count);
        self.sender.post(&vec![send; count], out.heads(), &mut answers);
        answers.iter().filter(|answer| matches!(answer, PostOutcome::Done(_))).count()
    }

    /// Receives what arrives until there are `count` messages, or until nothing came for
    /// [`TIMEOUT`].
    pub(super) fn receive(&mut self, count: usize) -> Vec<ArrivedMessage> {
        let mut arrived = Vec::new();
        let mut until = clock::now() + TIMEOUT;
        while arrived.len() < count {
            self.receiver.wait(Some(until), &[]);
            let before = arrived.len();
            self.receiver.poll(count, &mut |arrival| {
                if let Arrival::Datagram(datagram) = arrival {
                    arrived
                        .push(ArrivedMessage { class: datagram.class, at: datagram.at.instant() });
                }
            });
            let now = clock::now();
            if arrived.len() > before {
                until = now + TIMEOUT;
            } else if now >= until {
                break;
            }
        }
        arrived
    }
}

fn open(rank: Rank, port: UdpPort, peers: [SocketAddrV4; 2], receive: Bytes) -> Result<UdpWire> {
    // The process id keeps two examinations at the same time apart.
    let mut config = UdpConfig::new(rank, u64::from(std::process::id()), peers.to_vec());
    config.buffers.receive = receive;
    config.placement = Placement::OneMachine;
    config.waiting = Waiting::Sleep;
    Ok(UdpWire::open([port], config)?)
}
