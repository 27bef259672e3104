//! The UDP socket of an agent: probes and answers in the class low-latency.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, SocketAddrV4, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use anyhow::{Context, Result, anyhow};
use clearway_proto::base::BitsPerSec;
use clearway_proto::base::{Bytes, Class, LocalNs, Nanos};
use clearway_proto::flow::{NodeAgent, PROBE_BYTES, ProbeFault, ProbePacket, TokenBucket};
use clearway_runtime::clock;
use clearway_runtime::launch::escaped;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use rustix::time::{ClockId, clock_gettime};

/// Where agents listen: a port that IANA gave to nobody, next to that of the coordinator.
pub(super) const PORT: u16 = 27185;
/// Datagrams that are taken before something else is looked at.
const TAKEN_AT_ONCE: usize = 32;
/// Answers in a second to peers together and to all others: each peer asks at most some hundred
/// times, and strangers need none.
const PEER_ANSWERS: u64 = 5_000;
const OTHER_ANSWERS: u64 = 200;
/// A datagram waits at most this long for a processor; a difference of clocks beyond is a step of the
/// wall clock.
const WAITED_MAX: Nanos = Nanos::from_millis(100);

/// What is counted of probes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProbeCounts {
    /// Packets that are none of agents.
    pub(super) malformed: u64,
    /// Answers that nobody asked for.
    pub(super) unsolicited: u64,
    /// Probes above the rate that is answered.
    pub(super) refused: u64,
}

/// The socket, and who are the peers.
pub(super) struct ProbeSocket {
    socket: UdpSocket,
    peers: Vec<SocketAddrV4>,
    /// Answers that peers and others may still get.
    answers: [TokenBucket; 2],
    pub(super) counts: ProbeCounts,
    space: Vec<u8>,
}

/// Reads the peers of an agent, `HOST` or `HOST:PORT` each.
///
/// # Errors
/// One sentence: which has no address.
pub(super) fn resolve(names: &[String]) -> Result<Vec<SocketAddrV4>> {
    let of = |name: &String| {
        let (host, port) = match name.split_once(':') {
            Some((host, port)) => (host, port.parse().ok().filter(|port| *port > 0)),
            None => (name.as_str(), Some(PORT)),
        };
        let shown = escaped(name);
        let port = port.with_context(|| {
            format!("--peers {shown}: no port from 1 to 65535 behind the colon; give HOST or HOST:PORT, without IPv6")
        })?;
        let found = (host, port).to_socket_addrs();
        let found = found.with_context(|| format!("--peers {shown}: no such host is known"))?;
        let is_v4 = |address| match address {
            SocketAddr::V4(address) => Some(address),
            SocketAddr::V6(_) => None,
        };
        found.filter_map(is_v4).next().ok_or_else(|| {
            anyhow!("--peers {shown}: the host has no IPv4 address; give one that has")
        })
    };
    let mut peers = names.iter().map(of).collect::<Result<Vec<SocketAddrV4>>>()?;
    peers.sort_unstable();
    peers.dedup();
    Ok(peers)
}

impl ProbeSocket {
    /// Opens the socket at `address`.
    ///
    /// # Errors
    /// One sentence: the address is in use or not of this host.
    pub(super) fn open(address: SocketAddrV4, peers: Vec<SocketAddrV4>) -> Result<Self> {
        let socket = UdpSocket::bind(address).with_context(|| {
            format!("probes cannot be received at {address}; give a free port of this host with --listen")
        })?;
        let set = || -> io::Result<()> {
            socket.set_nonblocking(true)?;
            let class = Class::LowLatency;
            setsockopt(&socket, sockopt::Ipv4Tos, &i32::from(class.dscp().tos()))?;
            // Behind the mark, which sets a priority too.
            setsockopt(&socket, sockopt::Priority, &(class.host_priority() as i32))?;
            setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
            Ok(())
        };
        set().context("packets cannot be given the class low-latency")?;
        let now = clock::now();
        // A token is an answer.
        let bucket =
            |answers: u64| TokenBucket::new(BitsPerSec(answers * 8), Bytes(answers / 10), now);
        Ok(Self {
            socket,
            peers,
            answers: [bucket(PEER_ANSWERS), bucket(OTHER_ANSWERS)],
            counts: ProbeCounts::default(),
            space: nix::cmsg_space!(TimeSpec),
        })
    }

    /// Returns where it listens.
    pub(super) fn address(&self) -> Result<SocketAddr> {
        self.socket.local_addr().context("the port that was bound has no address")
    }

    pub(super) fn peers(&self) -> usize {
        self.peers.len()
    }

    /// Sends a probe. One that cannot leave is one that is lost.
    pub(super) fn send(&self, peer: usize, packet: &ProbePacket) {
        if let Some(to) = self.peers.get(peer) {
            let _ = self.socket.send_to(&packet.encode(), to);
        }
    }

    /// Takes what has arrived: answers probes, and gives answers to the agent.
    pub(super) fn receive(&mut self, agent: &mut NodeAgent) {
        for _ in 0..TAKEN_AT_ONCE {
            // A longer datagram is cut, and has another length.
            let mut bytes = [0; PROBE_BYTES + 1];
            let Some((length, from, at)) = self.next(&mut bytes) else { return };
            let packet = ProbePacket::decode(bytes.get(..length).unwrap_or_default());
            let peer = self.peers.binary_search(&from).ok();
            match packet {
                Ok(ProbePacket::Probe { nonce }) => self.answer(peer, from, nonce),
                Ok(ProbePacket::Answer { nonce }) => {
                    let known = peer.ok_or(ProbeFault::Unsolicited);
                    if known.and_then(|peer| agent.answer(at, peer, nonce)).is_err() {
                        self.counts.unsolicited += 1;
                    }
                }
                Err(_) => self.counts.malformed += 1,
            }
        }
    }

    /// Returns the next datagram: its length, source, and when the kernel had it.
    fn next(&mut self, bytes: &mut [u8]) -> Option<(usize, SocketAddrV4, LocalNs)> {
        loop {
            let mut parts = [IoSliceMut::new(bytes)];
            let fd = self.socket.as_raw_fd();
            let flags = MsgFlags::MSG_DONTWAIT;
            let received = recvmsg::<SockaddrIn>(fd, &mut parts, Some(&mut self.space), flags);
            let received = match received {
                Ok(received) => received,
                // A peer without an agent answers by ICMP, which is no news.
                Err(nix::errno::Errno::ECONNREFUSED | nix::errno::Errno::EINTR) => continue,
                Err(_) => return None,
            };
            let stamp = received.cmsgs().ok().and_then(|mut all| {
                all.find_map(|one| match one {
                    ControlMessageOwned::ScmTimestampns(at) => Some(at),
                    _ => None,
                })
            });
            let from = received.address.map(SocketAddrV4::from);
            let (length, now) = (received.bytes, clock::now());
            let waited = stamp.map_or(Nanos::ZERO, waited);
            let at = LocalNs(now.0.saturating_sub(waited.0));
            if let Some(from) = from {
                return Some((length, from, at));
            }
        }
    }

    fn answer(&mut self, peer: Option<usize>, to: SocketAddrV4, nonce: u64) {
        let [peers, others] = &mut self.answers;
        let bucket = if peer.is_some() { peers } else { others };
        if bucket.take(clock::now(), Bytes(1)).is_err() {
            self.counts.refused += 1;
            return;
        }
        let _ = self.socket.send_to(&ProbePacket::Answer { nonce }.encode(), to);
    }
}

/// Returns how long a datagram with this stamp of the wall clock has waited.
fn waited(stamp: TimeSpec) -> Nanos {
    let nanos = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
    let wall = clock_gettime(ClockId::Realtime);
    let waited = nanos(wall.tv_sec, wall.tv_nsec) - nanos(stamp.tv_sec(), stamp.tv_nsec());
    let waited = u64::try_from(waited).unwrap_or(0);
    if waited > WAITED_MAX.0 { Nanos::ZERO } else { Nanos(waited) }
}

impl AsFd for ProbeSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
