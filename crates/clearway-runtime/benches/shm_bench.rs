//! Measures the shared-memory wire between two processes, for `cargo xtask bench shm`.
//!
//! # Model
//! `shm_bench near|far SESSION poll|wait`: both processes first exchange messages of 8 bytes in
//! turns (half a turn is the latency one way), then the near one sends messages of 64 bytes as fast
//! as they are taken, 64 in each post. `poll` polls until something comes; `wait` waits as a
//! progress loop does. The near one prints one line. The clock is read once for several turns: a
//! reading takes as long as a sixth of a turn.
//!
//! # Not here
//! The same two measurements over MPI: `xtask/src/bench/shm_peer.c`.

#![allow(missing_docs)]

use std::error::Error;
use std::io::Write;
use std::time::Instant;

use clearway_proto::base::{Class, Nanos, Rank};
use clearway_proto::wire::{Arrival, Destination, Operation, Out, PathId, PostOutcome, Span, Wire};
use clearway_runtime::shm::{ShmConfig, ShmWire};
use clearway_runtime::waiting::Waitable;

/// Turns that are timed together.
const GROUP: usize = 16;
/// Groups that do not count.
const WARM: usize = 100;
const GROUPS: usize = 10_000;
/// Messages in one post.
const WINDOW: usize = 64;
const MESSAGES: usize = 20_000 * WINDOW;
/// Longest wait for a message; a peer that ended ends this process.
const TIMEOUT: Nanos = Nanos::from_millis(10_000);

/// How a process waits for a message.
#[derive(Clone, Copy)]
enum WaitStyle {
    Poll,
    Wait,
}

struct ShmBenchEnd {
    wire: ShmWire,
    peer: Destination,
    looking: WaitStyle,
    answers: Vec<PostOutcome>,
}

impl ShmBenchEnd {
    /// Posts messages in order, again and again until all are taken.
    fn send(&mut self, sends: &[Operation], heads: &[u8]) {
        let mut left = sends;
        while !left.is_empty() {
            self.answers.clear();
            self.wire.post(left, heads, &mut self.answers);
            let taken =
                self.answers.iter().take_while(|answer| **answer == PostOutcome::Done(0)).count();
            left = &left[taken..];
            if !left.is_empty() {
                self.wire.poll(WINDOW, &mut |_| {});
            }
        }
    }

    /// Takes some messages, at least one; returns how many.
    fn receive(&mut self) -> usize {
        loop {
            if let WaitStyle::Wait = self.looking {
                self.wire.wait(Some(self.wire.now() + TIMEOUT), &[]);
            }
            let (mut messages, mut alone) = (0, false);
            self.wire.poll(WINDOW, &mut |arrival| match arrival {
                Arrival::Datagram(_) => messages += 1,
                Arrival::PathState { .. } => alone = true,
                _ => {}
            });
            assert!(!alone, "the other end is gone");
            if messages > 0 {
                return messages;
            }
        }
    }

    fn turns(&mut self, first: bool) -> Vec<u64> {
        let mut out: Out<()> = Out::with_limit(1);
        let head = out.head(&[0; 8]);
        let class = Class::LowLatency;
        let send = Operation::Send {
            to: self.peer,
            path: PathId(0),
            class,
            head,
            body: Span::EMPTY,
            token: None,
        };
        let mut took = Vec::with_capacity(GROUPS);
        for group in 0..WARM + GROUPS {
            let begin = Instant::now();
            for _ in 0..GROUP {
                if first {
                    self.send(&[send], out.heads());
                    self.receive();
                } else {
                    self.receive();
                    self.send(&[send], out.heads());
                }
            }
            if group >= WARM {
                took.push(begin.elapsed().as_nanos() as u64);
            }
        }
        took.sort_unstable();
        took
    }

    /// Sends all messages of the second part; returns how many a second the far end took.
    fn stream(&mut self) -> f64 {
        let mut out: Out<()> = Out::with_limit(WINDOW);
        let head = out.head(&[0; 64]);
        let class = Class::LowLatency;
        let send = Operation::Send {
            to: self.peer,
            path: PathId(0),
            class,
            head,
            body: Span::EMPTY,
            token: None,
        };
        let begin = Instant::now();
        for _ in 0..MESSAGES / WINDOW {
            self.send(&[send; WINDOW], out.heads());
        }
        self.receive();
        MESSAGES as f64 / begin.elapsed().as_secs_f64()
    }

    fn drain(&mut self) {
        let mut received = 0;
        while received < MESSAGES {
            received += self.receive();
        }
        let mut out: Out<()> = Out::with_limit(1);
        let head = out.head(&[0; 8]);
        let class = Class::LowLatency;
        let send = Operation::Send {
            to: self.peer,
            path: PathId(0),
            class,
            head,
            body: Span::EMPTY,
            token: None,
        };
        self.send(&[send], out.heads());
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [role, session, looking] = arguments.as_slice() else {
        return Err("usage: shm_bench near|far SESSION poll|wait".into());
    };
    let near = role == "near";
    let (rank, peer) = if near { (Rank(0), Rank(1)) } else { (Rank(1), Rank(0)) };
    let wire = ShmWire::open(ShmConfig::new(rank, session.parse()?, vec![Rank(0), Rank(1)]))?;
    let looking = if looking == "wait" { WaitStyle::Wait } else { WaitStyle::Poll };
    let mut end = ShmBenchEnd { wire, peer: Destination::One(peer), looking, answers: Vec::new() };
    let turns = end.turns(near);
    if !near {
        end.drain();
        return Ok(());
    }
    let rate = end.stream();
    let half = |nanos: u64| nanos as f64 / (2 * GROUP) as f64;
    let (least, typical) = (half(turns[0]), half(turns[turns.len() / 2]));
    writeln!(std::io::stdout(), "min_ns {least} p50_ns {typical} rate {rate:.0}")?;
    Ok(())
}
