//! Measures an allreduce over the shared-memory wire among more ranks than processors, for `cargo xtask bench crowd`.
//!
//! # Model
//! `shm_allreduce RANK RANKS SESSION`, one process for each rank, a power of two of them: sums of 8 bytes by recursive
//! doubling. In each of log2(RANKS) rounds a rank exchanges its sum with the one whose number differs in one bit.
//! Each rank waits as a progress loop does. Rank 0 prints one line.
//!
//! # Not here
//! `MPI_Allreduce` in the same circumstances: `xtask/src/bench/allreduce_peer.c`.

#![allow(missing_docs)]

use std::error::Error;
use std::io::Write;
use std::time::Instant;

use clearway_proto::base::{Class, Nanos, Rank};
use clearway_proto::wire::{Answer, Arrival, Destination, Operation, Out, PathId, Span, Wire};
use clearway_runtime::shm::{ShmConfig, ShmWire};
use clearway_runtime::waiting::Waitable;

/// Allreduces that do not count, and that do.
const WARM: u64 = 200;
const COUNT: u64 = 5_000;
/// Longest wait for a message; a peer that ended ends this process.
const PATIENCE: Nanos = Nanos::from_secs(10);

struct End {
    wire: ShmWire,
    rank: u64,
    /// Sums that came, by round of the running allreduce and of the next: a peer may be one ahead.
    came: Vec<[Option<u64>; 2]>,
    answers: Vec<Answer>,
}

impl End {
    fn send(&mut self, to: u64, number: u64, round: usize, sum: u64) -> Result<(), Box<dyn Error>> {
        let mut out: Out<()> = Out::with_limit(1);
        let mut head = [0; 10];
        head[..8].copy_from_slice(&sum.to_le_bytes());
        head[8..].copy_from_slice(&[round as u8, (number % 2) as u8]);
        let (to, class, head) = (Destination::One(Rank(to as u32)), Class::LowLatency, out.head(&head));
        let send = Operation::Send { to, path: PathId(0), class, head, body: Span::EMPTY, token: None };
        self.answers.clear();
        self.wire.post(&[send], out.heads(), &mut self.answers);
        if self.answers == [Answer::Done(0)] { Ok(()) } else { Err(format!("{:?}", self.answers).into()) }
    }

    /// Waits for the sum of `round` of allreduce `number`.
    fn receive(&mut self, number: u64, round: usize) -> Result<u64, Box<dyn Error>> {
        let until = self.wire.now() + PATIENCE;
        let mut alone = false;
        loop {
            if let Some(sum) = self.came[round][(number % 2) as usize].take() {
                return Ok(sum);
            }
            // Peers that are done may be gone already; what they sent is here.
            if alone {
                return Err("the other ranks are gone".into());
            }
            let came = &mut self.came;
            let given = self.wire.harvest(64, &mut |arrival| match arrival {
                Arrival::Datagram(datagram) => {
                    if let ([sum @ .., round, parity], 10) = (datagram.head, datagram.head.len())
                        && let Ok(sum) = sum.try_into()
                    {
                        came[usize::from(*round)][usize::from(*parity)] = Some(u64::from_le_bytes(sum));
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
        let mut sum = own;
        for round in 0..self.came.len() {
            self.send(self.rank ^ 1 << round, number, round, sum)?;
            sum += self.receive(number, round)?;
        }
        Ok(sum)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<u64> = std::env::args().skip(1).map(|text| text.parse()).collect::<Result<_, _>>()?;
    let [rank, ranks, session] = arguments[..] else { return Err("usage: shm_allreduce RANK RANKS SESSION".into()) };
    if !ranks.is_power_of_two() || ranks > 64 {
        return Err("RANKS is a power of two, at most 64".into());
    }
    let wire = ShmWire::open(ShmConfig::new(Rank(rank as u32), session, (0..ranks as u32).map(Rank).collect()))?;
    let came = vec![[None; 2]; ranks.trailing_zeros() as usize];
    let mut end = End { wire, rank, came, answers: Vec::new() };
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
