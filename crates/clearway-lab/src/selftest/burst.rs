//! Sends one burst of marked packets over one link and sees in which order and when they arrive.
//!
//! # Model
//! Two sockets, one in the namespace at each end. The sender puts the burst into its port far
//! faster than the link drains it, in batches that the port must cut into frames (a queue that
//! counted a batch as one packet would be found far too deep); the receiver notes each packet's
//! class and the time of the last. Times can only be too late, never too early: whatever disturbs
//! the machine makes a burst or a drain longer.
//!
//! # Invariants
//! I1. A packet of another burst, or of anyone else, is not counted.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use clearway_proto::base::{BitsPerSec, Bytes, Class, Nanos};
use nix::sys::socket::{setsockopt, sockopt};

use crate::netns::Netns;

/// UDP payload of a test packet: 1442 bytes with UDP, IP and Ethernet headers, the frame of the
/// reference measurements.
const PAYLOAD: usize = 1400;
/// What the queues count for one test packet.
pub(super) const FRAME: Bytes = Bytes(PAYLOAD as u64 + 8 + 20 + 14);
/// Asked for in both directions; the kernel grants up to `net.core.rmem_max` and `wmem_max`,
/// doubled.
const SOCKET_BUFFER: usize = 4 << 20;
/// Packets of one class handed to the kernel in one call, which are 56 kB of the 64 kB that one
/// call may have.
const BATCH: usize = 40;
/// The last packets of a burst go one by one: a batch is queued at one instant, and what leaves
/// meanwhile would be counted wrongly.
pub(super) const TAIL: usize = 10;
/// One sender socket carries about 180 queued packets with the default limit before it blocks; stay
/// well below.
const PACKETS_PER_SOCKET: usize = 150;
/// A receiver that hears nothing for so long, beyond eight frames' time, has heard the last packet.
const SILENCE: Duration = Duration::from_millis(15);

/// The two ends of a link under test.
pub(super) struct TestLink<'a> {
    pub(super) near: &'a Netns,
    pub(super) far: &'a Netns,
    pub(super) far_address: Ipv4Addr,
    pub(super) rate: BitsPerSec,
}

/// What one burst did.
#[derive(Clone, Debug, Default)]
pub(super) struct BurstResult {
    /// The class of every packet, in the order of arrival.
    pub(super) arrived: Vec<Class>,
    /// From just before the first packet was sent until just after the last one was.
    pub(super) sending: Nanos,
    /// From just before the first packet was sent until the last one arrived.
    pub(super) draining: Nanos,
    /// How long the two threads waited for a processor meanwhile.
    pub(super) noise: Nanos,
}

impl TestLink<'_> {
    /// Sends `burst` in its order and listens until the link is silent.
    pub(super) fn run(&self, burst: &[Class], round: u32) -> io::Result<BurstResult> {
        let receiver = self.far.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))??;
        let target = SocketAddr::from((self.far_address, receiver.local_addr()?.port()));
        let senders = self.senders(burst, target)?;
        // A buffer below what was asked for makes a round fail at worst, and rounds are repeated.
        let _ = setsockopt(&receiver, sockopt::RcvBuf, &SOCKET_BUFFER);
        let silence = SILENCE + Duration::from_nanos(self.rate.time_for(Bytes(8 * FRAME.0)).0);
        receiver.set_read_timeout(Some(silence))?;
        thread::scope(|scope| {
            let listening = scope.spawn(|| listen(&receiver, burst.len(), round));
            let begun = Instant::now();
            let ended = send(&senders, burst, round)?;
            let heard =
                listening.join().map_err(|_| io::Error::other("the receiver panicked"))??;
            let since =
                |end: Instant| Nanos(end.saturating_duration_since(begun).as_nanos() as u64);
            Ok(BurstResult {
                arrived: heard.arrived,
                sending: since(ended.0),
                draining: heard.last.map_or(Nanos::ZERO, since),
                noise: heard.waited + ended.1,
            })
        })
    }

    /// Opens for each class enough sockets for its part of the burst.
    fn senders(&self, burst: &[Class], target: SocketAddr) -> io::Result<Vec<Vec<MarkedSender>>> {
        let of = |class: Class| {
            let packets = burst.iter().filter(|c| **c == class).count();
            (0..packets.div_ceil(PACKETS_PER_SOCKET))
                .map(|_| MarkedSender::new(class, target))
                .collect()
        };
        self.near.run(|| Class::ALL.into_iter().map(of).collect())?
    }
}

/// A socket that marks what it sends.
struct MarkedSender {
    socket: UdpSocket,
    /// Packets that one call takes.
    batch: usize,
}

impl MarkedSender {
    fn new(class: Class, target: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let _ = setsockopt(&socket, sockopt::SndBuf, &SOCKET_BUFFER);
        setsockopt(&socket, sockopt::Ipv4Tos, &i32::from(class.dscp().tos()))?;
        // Kernels before 4.18 know no batches; the burst takes longer there, and fast links are
        // left undecided.
        let batches = setsockopt(&socket, sockopt::UdpGsoSegment, &(PAYLOAD as i32)).is_ok();
        socket.connect(target)?;
        Ok(Self { socket, batch: if batches { BATCH } else { 1 } })
    }
}

/// Sends the burst; gives the time of its end and what this thread waited for a processor.
fn send(
    senders: &[Vec<MarkedSender>],
    burst: &[Class],
    round: u32,
) -> io::Result<(Instant, Nanos)> {
    let before = waited();
    let mut packets = vec![0u8; BATCH * PAYLOAD];
    let (mut turn, mut left) = (0, burst.len());
    for same in burst.chunk_by(|a, b| a == b) {
        let class = same[0].index();
        for packet in packets.chunks_exact_mut(PAYLOAD) {
            packet[..4].copy_from_slice(&round.to_ne_bytes());
            packet[4] = class as u8;
        }
        let after = left - same.len();
        while left > after {
            turn += 1;
            let sender = &senders[class][turn % senders[class].len()];
            let batch = sender.batch.min(left.saturating_sub(TAIL).max(1)).min(left - after);
            sender.socket.send(&packets[..batch * PAYLOAD])?;
            left -= batch;
        }
    }
    Ok((Instant::now(), waited() - before))
}

struct ReceivedCounts {
    arrived: Vec<Class>,
    last: Option<Instant>,
    waited: Nanos,
}

fn listen(receiver: &UdpSocket, most: usize, round: u32) -> io::Result<ReceivedCounts> {
    let mut heard =
        ReceivedCounts { arrived: Vec::with_capacity(most), last: None, waited: Nanos::ZERO };
    let mut packet = [0u8; PAYLOAD + 1];
    // The sender may be late on a busy machine: the first packets get several periods of silence.
    let mut timeout = 20;
    while heard.arrived.len() < most {
        let length = match receiver.recv(&mut packet) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error)
                if [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut].contains(&error.kind()) =>
            {
                timeout -= 1;
                if heard.last.is_some() || timeout == 0 {
                    break;
                }
                continue;
            }
            Err(error) => return Err(error),
        };
        let class = Class::ALL.get(usize::from(packet[4]));
        if let (PAYLOAD, true, Some(class)) = (length, packet[..4] == round.to_ne_bytes(), class) {
            heard.arrived.push(*class);
            heard.last = Some(Instant::now());
        }
    }
    heard.waited = waited();
    Ok(heard)
}

/// Returns how long the calling thread has waited for a processor in its life; zero where the
/// kernel does not count it.
fn waited() -> Nanos {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Nanos(text.split_whitespace().nth(1).and_then(|field| field.parse().ok()).unwrap_or(0))
}
