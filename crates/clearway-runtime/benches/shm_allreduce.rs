//! Measures an allreduce over the shared-memory wire among more ranks than processors, for `cargo
//! xtask bench crowd`.
//!
//! # Model
//! `shm_allreduce RANK RANKS SESSION`, one process for each rank: sums of 8 bytes in one round, in
//! which each rank sends its number to all others in one post. Where ranks share processors every
//! round that depends on another costs a turn of all of them, and a turn costs more than the
//! messages: recursive doubling, with three rounds among eight ranks on two processors, took 1.6
//! times as long (means, median of nine runs while compilers ran). Each rank waits as a progress
//! loop does. Rank 0 prints one line.
//!
//! # Not here
//! `MPI_Allreduce` in the same circumstances: `xtask/src/bench/allreduce_peer.c`.

#![allow(missing_docs)]

use std::error::Error;
use std::io::Write;
use std::time::Instant;

use clearway_proto::base::{Class, Nanos, Rank};
use clearway_proto::wire::{Arrival, Destination, Operation, Out, PathId, PostOutcome, Span, Wire};
use clearway_runtime::shm::{ShmConfig, ShmWire};
use clearway_runtime::waiting::Waitable;

/// Allreduces that do not count, and that do.
const WARM: u64 = 200;
const COUNT: u64 = 5_000;
/// Longest wait for a message; a peer that ended ends this process.
const TIMEOUT: Nanos = Nanos::from_secs(10);

struct AllreduceEnd {
    wire: ShmWire,
    rank: u64,
    /// Numbers that came, by rank, of the running allreduce and of the next: a peer may be one
    /// ahead.
    came: Vec<[Option<u64>; 2]>,
    out: Out<()>,
    sends: Vec<Operation>,
    answers: Vec<PostOutcome>,
}

impl AllreduceEnd {
    fn new(wire: ShmWire, rank: u64, ranks: u64) -> Self {
        let out = Out::with_limit(1);
        Self {
            wire,
            rank,
            came: vec![[None; 2]; ranks as usize],
            out,
            sends: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// Sends this rank's number to all others.
    fn send(&mut self, number: u64, own: u64) -> Result<(), Box<dyn Error>> {
        let mut head = [0; 9];
        head[..8].copy_from_slice(&own.to_le_bytes());
        head[8] = (number % 2) as u8;
        self.out.clear();
        let (path, class, head) = (PathId(0), Class::LowLatency, self.out.head(&head));
        let others = (0..self.came.len() as u64).filter(|rank| *rank != self.rank);
        self.sends.clear();
        self.sends.extend(others.map(|rank| {
            let to = Destination::One(Rank(rank as u32));
            Operation::Send { to, path, class, head, body: Span::EMPTY, token: None }
        }));
        self.answers.clear();
        self.wire.post(&self.sends, self.out.heads(), &mut self.answers);
        let taken = self.answers.iter().all(|answer| *answer == PostOutcome::Done(0));
        if taken { Ok(()) } else { Err(format!("{:?}", self.answers).into()) }
    }

    /// Waits for the others' numbers of allreduce `number`; returns their sum.
    fn receive(&mut self, number: u64) -> Result<u64, Box<dyn Error>> {
        let until = self.wire.now() + TIMEOUT;
        let (mut sum, mut missing, mut alone) = (0, self.came.len() - 1, false);
        let parity = (number % 2) as usize;
        loop {
            for came in &mut self.came {
                if let Some(number) = came[parity].take() {
                    (sum, missing) = (sum + number, missing - 1);
                }
            }
            // Peers that are done may be gone already; what they sent is here.
            if missing == 0 {
                return Ok(sum);
            }
            if alone {
                return Err("the other ranks are gone".into());
            }
            let came = &mut self.came;
            let given = self.wire.poll(64, &mut |arrival| match arrival {
                Arrival::Datagram(datagram) => {
                    if let ([number @ .., parity], 9) = (datagram.head, datagram.head.len())
                        && let Ok(number) = number.try_into()
                    {
                        came[datagram.from.index()][usize::from(*parity)] =
                            Some(u64::from_le_bytes(number));
                    }
                }
                Arrival::PathState { .. } => alone = true,
                _ => {}
            });
            // A wait may end early, with nothing there.
            if given == 0 && !self.wire.wait(Some(until), &[]).any() && self.wire.now() >= until {
                return Err("a rank is silent".into());
            }
        }
    }

    fn allreduce(&mut self, number: u64, own: u64) -> Result<u64, Box<dyn Error>> {
        self.send(number, own)?;
        Ok(own + self.receive(number)?)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<u64> =
        std::env::args().skip(1).map(|text| text.parse()).collect::<Result<_, _>>()?;
    let [rank, ranks, session] = arguments[..] else {
        return Err("usage: shm_allreduce RANK RANKS SESSION".into());
    };
    let wire = ShmWire::open(ShmConfig::new(
        Rank(rank as u32),
        session,
        (0..ranks as u32).map(Rank).collect(),
    ))?;
    let mut end = AllreduceEnd::new(wire, rank, ranks);
    let expected = ranks * (ranks + 1) / 2;
    let mut took = Vec::with_capacity(COUNT as usize);
    for number in 0..WARM + COUNT {
        let begin = Instant::now();
        if end.allreduce(number, rank + 1)? != expected {
            return Err("a wrong sum".into());
        }
        if number >= WARM {
            took.push(begin.elapsed().as_nanos() as u64);
        }
    }
    took.sort_unstable();
    if rank == 0 {
        let (p50, p99) = (took[took.len() / 2], took[took.len() * 99 / 100]);
        let mean = took.iter().sum::<u64>() / COUNT;
        writeln!(std::io::stdout(), "p50_ns {p50} p99_ns {p99} mean_ns {mean}")?;
    }
    Ok(())
}
