//! Half round trips of 64 bytes by plain sockets between two virtual hosts: the floor below any
//! library over the same link, in the same run.
//!
//! # Model
//! One end sends and polls for the answer, the other polls and answers; neither sleeps. The far end
//! writes a line when its socket is there, and the near end is started behind it. The figures are
//! the tenth and the median of half round trips.
//!
//! # Not here
//! The link: module `link`.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// The port of the far end, for either protocol.
const PORT: u16 = 7801;
/// Bytes of a message.
const LENGTH: usize = 64;
/// Turns of a run, which takes less than a second.
const TURNS: usize = 10_000;
/// Longest wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What the far end writes when its socket is there.
pub(super) const READY: &str = "ready";

/// The socket of a ping-pong.
enum Plain {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

impl Plain {
    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes)?,
            Self::Udp(socket) => drop(socket.send(bytes)?),
        }
        Ok(())
    }

    /// Polls for a whole message.
    fn receive(&mut self, bytes: &mut [u8; LENGTH]) -> Result<()> {
        let begun = Instant::now();
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let got = match self {
                Self::Tcp(stream) => stream.read(rest),
                Self::Udp(socket) => socket.recv(rest),
            };
            match got {
                Ok(0) => break,
                Ok(some) => filled += some,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    ensure!(begun.elapsed() < TIMEOUT, "no answer");
                }
                Err(error) => return Err(error.into()),
            }
        }
        ensure!(filled == LENGTH, "the other end closed");
        Ok(())
    }
}

/// Answers a run of turns that the near end makes over `wire`, `tcp` or `udp`. Writes [`READY`] when
/// the near end can begin.
pub(super) fn answer(wire: &str, at: IpAddr) -> Result<()> {
    let mut plain = if wire == "tcp" {
        let listener = TcpListener::bind((at, PORT))?;
        println!("{READY}");
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Plain::Tcp(stream)
    } else {
        let socket = UdpSocket::bind((at, PORT))?;
        println!("{READY}");
        socket.set_read_timeout(Some(TIMEOUT))?;
        let (_, from) = socket.peek_from(&mut [0; LENGTH])?;
        socket.connect(from)?;
        socket.set_nonblocking(true)?;
        Plain::Udp(socket)
    };
    let mut bytes = [0; LENGTH];
    for _ in 0..TURNS {
        plain.receive(&mut bytes)?;
        plain.send(&bytes)?;
    }
    Ok(())
}

/// Measures half round trips over `wire` to `to`: the tenth and the median, in ns.
pub(super) fn ask(wire: &str, from: IpAddr, to: IpAddr) -> Result<[f64; 2]> {
    let mut plain = if wire == "tcp" {
        let stream = TcpStream::connect((to, PORT))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Plain::Tcp(stream)
    } else {
        let socket = UdpSocket::bind((from, 0))?;
        socket.connect((to, PORT))?;
        socket.set_nonblocking(true)?;
        Plain::Udp(socket)
    };
    let mut bytes = [7; LENGTH];
    let mut halves = Vec::with_capacity(TURNS);
    for _ in 0..TURNS {
        let begun = Instant::now();
        plain.send(&bytes)?;
        plain.receive(&mut bytes)?;
        halves.push(begun.elapsed().as_nanos() as f64 / 2.0);
    }
    halves.sort_by(f64::total_cmp);
    let at = |index: usize| halves.get(index).copied().context("no turns");
    Ok([at(TURNS / 10)?, at(TURNS / 2)?])
}
