//! Measures barrier, allreduce and allgather among ranks of this host, for `cargo xtask bench collectives`.
//!
//! `collective_bench shm|udp RANK RANKS SESSION`, one process for each rank: over shared memory, or over reliable messages on UDP sockets of
//! the loopback network, whose ports follow from the session. Rank 0 prints one line for each operation.
//!
//! # Not here
//! The same by MPI: `xtask/src/bench/collective_peer.c`.

use std::error::Error;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Instant;

use clearway_proto::base::{Bytes, Class, Nanos, Rank};
use clearway_proto::collective::{self, Command, Event, Node, Numbers, Reduction};
use clearway_proto::reliable::{Config, Reliable};
use clearway_proto::wire::{Driver, RegionId, Span};
use clearway_runtime::shm::{ShmConfig, ShmWire};
use clearway_runtime::udp::{UdpConfig, UdpPort, UdpWire};
use clearway_runtime::waiting::Waitable;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Operations that do not count, and that do.
const WARM: usize = 200;
const COUNT: usize = 2_000;
/// Bytes of a rank's block.
const BLOCK: u32 = 64;
/// The first port; sessions are told apart by the next thousands.
const PORT: u64 = 20_000;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [way, numbers @ ..] = arguments.as_slice() else { return Err("usage: collective_bench WAY RANK ..".into()) };
    let numbers: Vec<u64> = numbers.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    let [rank, ranks, session] = numbers[..] else {
        return Err("usage: collective_bench shm|udp RANK RANKS SESSION".into());
    };
    let (rank, ranks) = (Rank(rank as u32), ranks as u32);
    match way.as_str() {
        "shm" => run(ShmWire::open(ShmConfig::new(rank, session, (0..ranks).map(Rank).collect()))?, ranks),
        "udp" => {
            let port = |rank: u64| (PORT + session % 40 * 1_000 + rank) as u16;
            let peer = |rank| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port(rank));
            let peers: Vec<SocketAddrV4> = (0..u64::from(ranks)).map(peer).collect();
            let own = UdpPort::bind(peers[rank.index()])?;
            let wire = UdpWire::open([own], UdpConfig::new(rank, session, peers))?;
            run(Reliable::new(wire, ranks, &Config::of(ranks), 0).map_err(|missing| missing.to_string())?, ranks)
        }
        other => Err(format!("no way {other}").into()),
    }
}

/// A member of the group, and what it needs to take part.
struct Member<W> {
    wire: W,
    driver: Driver<Node>,
    own: RegionId,
    blocks: RegionId,
}

fn run<W: Waitable>(mut wire: W, ranks: u32) -> Outcome<()> {
    let rank = wire.rank();
    let mut config = collective::Config { rank, ranks, class: Class::LowLatency, block: BLOCK, blocks: None };
    let mut register = |length| wire.register(Bytes(length)).map_err(|missing| missing.to_string());
    let (own, blocks) = (register(u64::from(BLOCK))?, register(config.memory())?);
    config.blocks = Some(blocks);
    wire.region_mut(own).ok_or("registered")?.fill(rank.0 as u8);
    let driver = Driver::boot(Node::new(config).ok_or("no such rank")?, wire.now(), 0);
    let mut member = Member { wire, driver, own, blocks };
    let numbers = Numbers::of(&[u64::from(rank.0) + 1]).ok_or("few")?;
    let sum = u64::from(ranks) * (u64::from(ranks) + 1) / 2;
    let block = Span { region: member.own, offset: 0, length: BLOCK };
    let reduction = Reduction::SumU64;
    for (name, command) in [
        ("barrier", Command::Barrier),
        ("allreduce", Command::Allreduce { reduction, numbers }),
        ("allgather", Command::Allgather { own: block }),
    ] {
        let mut took = Vec::with_capacity(COUNT);
        for number in 0..WARM + COUNT {
            let begin = Instant::now();
            let result = member.operate(command)?;
            if number >= WARM {
                took.push(begin.elapsed().as_nanos() as u64);
            }
            if result.words().iter().any(|word| *word != sum) {
                return Err("a wrong sum".into());
            }
        }
        if name == "allgather" && !member.has_all(ranks) {
            return Err("a wrong block".into());
        }
        if rank == Rank(0) {
            took.sort_unstable();
            let (p50, p99, mean) = (took[COUNT / 2], took[COUNT * 99 / 100], took.iter().sum::<u64>() / COUNT as u64);
            writeln!(std::io::stdout(), "{name} p50_ns {p50} p99_ns {p99} mean_ns {mean}")?;
        }
    }
    // Answers of the last operation may still be asked for.
    let end = Instant::now();
    while end.elapsed().as_millis() < 200 {
        let until = Some(member.wire.now() + Nanos::from_millis(10));
        member.wire.wait(until, &[]);
        member.driver.step(&mut member.wire, &mut |_| {});
    }
    Ok(())
}

impl<W: Waitable> Member<W> {
    fn operate(&mut self, command: Command) -> Outcome<Numbers> {
        self.driver.command(self.wire.now(), command);
        loop {
            let mut told = None;
            let progress = self.driver.step(&mut self.wire, &mut |event| told = Some(event));
            match told {
                Some(Event::Complete(numbers)) => return Ok(numbers),
                Some(Event::Failed(failure)) => return Err(format!("{failure:?}").into()),
                None => {
                    self.wire.wait(progress.next, &[]);
                }
            }
        }
    }

    /// Whether every rank's block is here.
    fn has_all(&mut self, ranks: u32) -> bool {
        (0..ranks).all(|rank| {
            let span = self.driver.engine_mut().block_of(Rank(rank));
            let bytes = self.wire.region(self.blocks).zip(span);
            let block = bytes.and_then(|(bytes, span)| bytes.get(span.range_in(bytes.len())?));
            block.is_some_and(|block| block == [rank as u8; BLOCK as usize])
        })
    }
}
