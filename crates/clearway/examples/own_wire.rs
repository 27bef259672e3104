//! A wire of one's own: it passes everything on to another wire and counts the messages of each
//! class. The conformance suite says whether it keeps the contract.
//!
//! `cargo run --example own_wire`
#![cfg_attr(test, allow(non_snake_case))]

use clearway_proto::base::{Class, Rank};
use clearway_proto::wire::conformance::{self, Fabric, Need};
use clearway_proto::wire::memory::{MemoryConfig, MemoryFabric, MemoryWire};
use clearway_proto::wire::{Operation, OperationKind, PostOutcome, Wire, forward_wire};

/// A wire that counts what it sends.
struct CountingWire {
    inner: MemoryWire,
    sent: [u64; Class::ALL.len()],
}

impl Wire for CountingWire {
    forward_wire!(inner: rank, capabilities, now, memory, groups, poll, deadline, counters);

    fn post(&mut self, operations: &[Operation], heads: &[u8], answers: &mut Vec<PostOutcome>) {
        let first = answers.len();
        self.inner.post(operations, heads, answers);
        for (operation, answer) in operations.iter().zip(&answers[first..]) {
            let is_taken = matches!(answer, PostOutcome::Done(_) | PostOutcome::Posted);
            if let (Operation::Send { class, .. }, true) = (operation, is_taken) {
                self.sent[*class as usize] += 1;
            }
        }
    }
}

/// The ends of a job, for the suite.
struct CountingWires {
    fabric: MemoryFabric,
    wires: Vec<CountingWire>,
}

impl CountingWires {
    fn new() -> Self {
        let mut fabric = MemoryFabric::new(MemoryConfig::lossless(conformance::RANKS));
        let inner = (0..conformance::RANKS).map(|rank| fabric.take(Rank(rank))).collect::<Vec<_>>();
        let wires =
            inner.into_iter().map(|inner| CountingWire { inner, sent: [0; Class::ALL.len()] });
        Self { fabric, wires: wires.collect() }
    }

    /// Lends the inner ends to the fabric, or takes them back.
    fn exchange(&mut self) {
        for (rank, wire) in (0..).map(Rank).zip(&mut self.wires) {
            self.fabric.exchange(rank, &mut wire.inner);
        }
    }
}

impl Fabric for CountingWires {
    fn wire(&mut self, rank: Rank) -> &mut dyn Wire {
        &mut self.wires[rank.index()]
    }

    fn pass_time(&mut self) {
        self.exchange();
        if let Some(at) = self.fabric.next_arrival() {
            self.fabric.advance(at);
        }
        self.exchange();
    }
}

fn main() -> Result<(), String> {
    // A test names what its wire lacks; the suite fails when the list is not exact.
    let lacks = [Need::Operation(OperationKind::File)];
    print!("{}", conformance::check("counting wire", &lacks, CountingWires::new)?);
    Ok(())
}

#[cfg(test)]
#[test]
fn main__the_wire_keeps_the_contract() {
    assert_eq!(main(), Ok(()));
}
