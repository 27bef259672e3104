//! One rank of a run: the congestion engine over UDP inside a virtual host, obeying lines on standard input.
//!
//! # Invariants
//! I1. When standard input closes, the rank ends: no rank outlives its conductor.

use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::os::fd::AsFd;

use anyhow::{Context, Result, bail};
use clearway_proto::base::{Bytes, LocalNs, RandomKey};
use clearway_proto::congestion::{Event, Node, NodeConfig};
use clearway_proto::wire::{Driver, Span, Wire};
use clearway_runtime::udp::frame::FRAME_LENGTH;
use clearway_runtime::udp::{Placement, Segmentation, UdpConfig, UdpPort, UdpWire};
use clearway_runtime::waiting::Waiting;
use clearway_runtime::{clock, progress};

use super::message::{FromRank, RankRecord, Ready, Setup, ToRank};
use crate::exit::Exit;

/// The longest line a conductor sends: a phase of a thousand ranks with all their flows takes a tenth of this.
const LINE_MAX: usize = 1 << 20;
/// Bytes that Ethernet (14), IPv4 (20) and UDP (8) add, as a shaped link counts them.
const NETWORK_OVERHEAD: u64 = 14 + 20 + 8;

/// Runs until standard input closes.
pub(crate) fn main() -> Result<Exit> {
    let mut lines = Lines::default();
    let input = File::from(io::stdin().as_fd().try_clone_to_owned().context("standard input")?);
    let setup = loop {
        if let Some(line) = lines.next() {
            match serde_json::from_str(&line).context("the first line")? {
                ToRank::Open(setup) => break setup,
                ToRank::Phase(_) => bail!("a phase came before the setup"),
            }
        }
        if lines.fill(&input)? == 0 {
            return Ok(Exit::Good);
        }
    };
    match open(&setup) {
        Ok((wire, node)) => serve(wire, node, lines, &input),
        Err(error) => say(&FromRank::Failed(format!("{error:#}")))?,
    }
    Ok(Exit::Good)
}

fn open(setup: &Setup) -> Result<(UdpWire, Node)> {
    let address = *setup.peers.get(setup.rank.index()).context("this rank has no address")?;
    let mut config = UdpConfig::new(setup.rank, setup.session, setup.peers.clone());
    config.placement = Placement::OneMachine;
    // Many hosts share this machine's processors: one that spins would take them from the others.
    config.waiting = Waiting::Sleep;
    // A queue must see the packets that a real network would see.
    config.segmentation = Segmentation::RealPackets;
    let mut wire = UdpWire::open(UdpPort::bind(address)?, config)?;
    let body_max = wire.capabilities().body_max as u32;
    let region = wire.register(Bytes(u64::from(body_max))).map_err(|missing| anyhow::anyhow!("{missing}"))?;
    let node = Node::new(NodeConfig {
        rank: setup.rank,
        payload: Span { region, offset: 0, length: body_max },
        body_max,
        shared_clock: wire.capabilities().shared_clock,
        key: RandomKey::new(setup.seed),
    });
    say(&FromRank::Ready(Ready { body_max, overhead: NETWORK_OVERHEAD + FRAME_LENGTH as u64 }))?;
    Ok((wire, node))
}

fn serve(mut wire: UdpWire, node: Node, lines: Lines, input: &File) {
    let mut driver = Driver::boot(node, clock::now(), 0);
    let mut host = Host { lines, input, over: false };
    loop {
        progress::run(&mut driver, &mut wire, &[input.as_fd()], &mut host);
        let Some(record) = driver.engine_mut().take_record() else { return };
        host.over = false;
        let counters = wire.counters();
        let (receive_overflow, strangers) = (counters.receive_overflow, counters.strangers);
        if say(&FromRank::Record(Box::new(RankRecord { record, receive_overflow, strangers }))).is_err() {
            return;
        }
    }
}

/// Writes one line to the conductor.
fn say(message: &FromRank) -> Result<()> {
    let mut line = serde_json::to_vec(message).context("a message that JSON cannot hold")?;
    line.push(b'\n');
    let mut output = io::stdout().lock();
    output.write_all(&line).and_then(|()| output.flush()).context("the conductor is gone")
}

/// The rank's side of the progress loop.
struct Host<'a> {
    lines: Lines,
    input: &'a File,
    /// The loop shall end: a record waits, or standard input closed.
    over: bool,
}

impl progress::Host<Node> for Host<'_> {
    fn told(&mut self, event: Event) {
        match event {
            Event::PhaseOver { .. } => self.over = true,
            Event::Burn(length) => {
                let until = clock::now() + length;
                while clock::now() < until {
                    std::hint::spin_loop();
                }
            }
        }
    }

    fn control(&mut self, _which: usize, now: LocalNs, driver: &mut Driver<Node>) {
        match self.lines.fill(self.input) {
            Ok(n) if n > 0 => {
                while let Some(line) = self.lines.next() {
                    if let Ok(ToRank::Phase(phase)) = serde_json::from_str(&line) {
                        driver.command(now, phase);
                    }
                }
            }
            _ => self.over = true,
        }
    }

    fn after_step(&mut self, _now: LocalNs, _driver: &mut Driver<Node>) -> ControlFlow<(), Option<LocalNs>> {
        if self.over { ControlFlow::Break(()) } else { ControlFlow::Continue(None) }
    }
}

/// Bytes from a pipe, handed out line by line.
#[derive(Debug, Default)]
struct Lines {
    bytes: Vec<u8>,
}

impl Lines {
    /// Reads once; returns how much came, zero at the end.
    fn fill(&mut self, mut input: &File) -> Result<usize> {
        let mut chunk = [0; 16 << 10];
        let count = input.read(&mut chunk)?;
        if self.bytes.len() + count > LINE_MAX {
            bail!("a line longer than {LINE_MAX} bytes");
        }
        self.bytes.extend_from_slice(&chunk[..count]);
        Ok(count)
    }

    /// The next whole line, if there is one.
    fn next(&mut self) -> Option<String> {
        let end = self.bytes.iter().position(|byte| *byte == b'\n')?;
        let line = self.bytes.drain(..=end).take(end).collect();
        String::from_utf8(line).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines__come_whole_and_in_order() {
        let mut lines = Lines { bytes: b"one\ntwo\nthr".to_vec() };
        assert_eq!(lines.next().as_deref(), Some("one"));
        assert_eq!(lines.next().as_deref(), Some("two"));
        assert_eq!(lines.next(), None);
        lines.bytes.extend_from_slice(b"ee\n");
        assert_eq!(lines.next().as_deref(), Some("three"));
    }
}
