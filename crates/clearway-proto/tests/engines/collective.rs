//! Collectives over reliable messages on a fabric that loses, doubles and delays, in virtual time: results, early birds, deaths, mistakes.

use clearway_proto::base::{Bytes, Class, Nanos, RandomKey, RandomStream, Rank};
use clearway_proto::collective::{Command, Config, Event, Failure, Node, Numbers, Reduction};
use clearway_proto::reliable::{self, Reliable};
use clearway_proto::wire::memory::{MemoryConfig, MemoryFabric, MemoryWire, Rough};
use clearway_proto::wire::{Driver, Operation, RegionId, Span, Wire};

const BLOCK: u32 = 100;

struct Member {
    wire: Reliable<MemoryWire>,
    driver: Driver<Node>,
    own: RegionId,
    blocks: RegionId,
    told: Vec<Event>,
    is_dead: bool,
}

struct Group {
    fabric: MemoryFabric,
    members: Vec<Member>,
}

impl Group {
    fn new(ranks: u32, seed: u64) -> Self {
        let rough = Rough { doubled: 20_000, late: 30_000, damaged: 10_000 };
        let config = MemoryConfig { loss_per_million: 30_000, rough, seed, ..MemoryConfig::lossless(ranks) };
        let mut fabric = MemoryFabric::new(config);
        let streams = reliable::Config { patience: Nanos::from_secs(3), ..reliable::Config::of(ranks) };
        let members = (0..ranks).map(|rank| {
            let mut wire = Reliable::new(fabric.take(Rank(rank)), ranks, &streams, 0).expect("a reliable wire");
            let own = wire.register(Bytes(u64::from(BLOCK))).expect("memory");
            let mut config = Config { rank: Rank(rank), ranks, class: Class::Control, block: BLOCK, blocks: None };
            let blocks = wire.register(Bytes(config.memory())).expect("memory");
            config.blocks = Some(blocks);
            let driver = Driver::boot(Node::new(config).expect("a member"), wire.now(), 0);
            Member { wire, driver, own, blocks, told: Vec::new(), is_dead: false }
        });
        Self { members: members.collect(), fabric }
    }

    fn command(&mut self, rank: usize, command: Command) {
        let member = &mut self.members[rank];
        member.driver.command(member.wire.now(), command);
    }

    /// Lets all living members act, and time go on to the next instant at which one can.
    fn pass(&mut self) {
        let now = self.fabric.now();
        let mut next = now + Nanos::from_millis(50);
        for member in self.members.iter_mut().filter(|member| !member.is_dead) {
            let told = &mut member.told;
            let progress = member.driver.step(&mut member.wire, &mut |event| told.push(event));
            next = [progress.next, member.wire.deadline()].into_iter().flatten().fold(next, Ord::min);
        }
        self.lend();
        let next = self.fabric.next_arrival().map_or(next, |at| at.min(next));
        self.fabric.advance(next.max(now + Nanos(1)));
        self.lend();
    }

    /// Gives all wires to the fabric, or takes them back.
    fn lend(&mut self) {
        for (rank, member) in (0..).zip(&mut self.members) {
            self.fabric.exchange(Rank(rank), member.wire.below_mut());
        }
    }

    /// Until every living member has been told so many things.
    fn pass_until(&mut self, told: usize) {
        let end = self.fabric.now() + Nanos::from_secs(60);
        while self.members.iter().any(|member| !member.is_dead && member.told.len() < told) {
            self.pass();
            assert!(self.fabric.now() < end, "it does not come to an end");
        }
    }
}

fn numbers(words: &[u64]) -> Numbers {
    Numbers::of(words).expect("few")
}

/// What rank `rank` says in operation `operation`.
fn said(rank: usize, operation: u64) -> u64 {
    RandomKey::new(operation).purpose("said").node(rank as u64).stream().below(1 << 50)
}

#[test]
fn allreduce__all_ranks_have_the_same_to_the_bit_whatever_their_number() {
    for ranks in [1, 2, 3, 5, 8, 13] {
        let mut group = Group::new(ranks, u64::from(ranks));
        for (operation, reduction) in (0..).zip(Reduction::ALL) {
            let value = |rank: usize| match reduction {
                Reduction::SumF64 | Reduction::MinF64 | Reduction::MaxF64 => {
                    (1.0 / (1 + said(rank, operation)) as f64 - 1e-17).to_bits()
                }
                _ => said(rank, operation),
            };
            for rank in 0..ranks as usize {
                let numbers = numbers(&[value(rank), rank as u64]);
                group.command(rank, Command::Allreduce { reduction, numbers });
            }
            group.pass_until(operation as usize + 1);
            let told: Vec<Event> = group.members.iter().map(|member| member.told[operation as usize]).collect();
            assert!(told.iter().all(|event| *event == told[0]), "{reduction:?} among {ranks}: {told:?}");
            let Event::Complete(result) = told[0] else { panic!("{told:?}") };
            let values = || (0..ranks as usize).map(value);
            let floats = || values().map(f64::from_bits);
            let got = result.words()[0];
            match reduction {
                Reduction::SumU64 => assert_eq!(got, values().sum()),
                Reduction::MinU64 => assert_eq!(Some(got), values().min()),
                Reduction::MaxU64 => assert_eq!(Some(got), values().max()),
                Reduction::SumF64 => assert!((f64::from_bits(got) - floats().sum::<f64>()).abs() < 1e-12),
                Reduction::MinF64 => assert_eq!(f64::from_bits(got), floats().fold(f64::INFINITY, f64::min)),
                Reduction::MaxF64 => assert_eq!(f64::from_bits(got), floats().fold(f64::NEG_INFINITY, f64::max)),
            }
        }
    }
}

#[test]
fn allgather__every_rank_has_every_block() {
    for ranks in [1, 2, 3, 6, 8, 11] {
        let mut group = Group::new(ranks, 7);
        for operation in 0..5 {
            for rank in 0..ranks as usize {
                let member = &mut group.members[rank];
                member.wire.region_mut(member.own).expect("ours").fill((rank * 16 + operation) as u8);
                let own = Span { region: member.own, offset: 0, length: BLOCK };
                group.command(rank, Command::Allgather { own });
            }
            group.pass_until(operation + 1);
            for member in &mut group.members {
                assert_eq!(member.told[operation], Event::Complete(Numbers::default()));
                for from in 0..ranks {
                    let span = member.driver.engine_mut().block_of(Rank(from)).expect("a block");
                    let all = member.wire.region(member.blocks).expect("ours");
                    let block = &all[span.range_in(all.len()).expect("inside")];
                    assert_eq!(block, [(from as usize * 16 + operation) as u8; BLOCK as usize]);
                }
                assert_eq!(member.driver.engine_mut().block_of(Rank(ranks)), None);
            }
        }
    }
}

/// Ranks ask at random times; whoever is through goes on at once.
#[test]
fn barrier__nobody_goes_on_before_all_are_there() {
    const ROUNDS: usize = 30;
    for seed in 0..4 {
        let mut group = Group::new(6, seed);
        let mut random: RandomStream = RandomKey::new(seed).purpose("when").stream();
        let mut asked = [0; 6];
        while group.members.iter().any(|member| member.told.len() < ROUNDS) {
            for (rank, asked) in asked.iter_mut().enumerate() {
                if *asked == group.members[rank].told.len() && *asked < ROUNDS && random.below(3) == 0 {
                    *asked += 1;
                    group.command(rank, Command::Barrier);
                }
            }
            group.pass();
            let begun_by_all = asked.iter().min().copied().unwrap_or(0);
            assert!(group.members.iter().all(|member| member.told.len() <= begun_by_all));
        }
        assert!(group.members.iter().all(|member| member.told.iter().all(|e| matches!(e, Event::Complete(_)))));
    }
}

#[test]
fn death__every_survivor_hears_who_is_lost_and_nothing_completes_any_more() {
    for (ranks, dead, kind) in [(5, 2, 0), (8, 0, 1), (7, 6, 2), (2, 1, 0)] {
        let mut group = Group::new(ranks, 3);
        let ask = |group: &mut Group, rank: usize| {
            let own = Span { region: group.members[rank].own, offset: 0, length: BLOCK };
            let reduction = Reduction::SumU64;
            let all = [
                Command::Barrier,
                Command::Allreduce { reduction, numbers: numbers(&[1]) },
                Command::Allgather { own },
            ];
            group.command(rank, all[kind]);
        };
        (0..ranks as usize).for_each(|rank| ask(&mut group, rank));
        group.pass_until(1);
        group.members[dead].is_dead = true;
        for rank in (0..ranks as usize).filter(|rank| *rank != dead) {
            ask(&mut group, rank);
        }
        group.pass_until(2);
        for rank in (0..ranks as usize).filter(|rank| *rank != dead) {
            assert_eq!(group.members[rank].told[1..], [Event::Failed(Failure::Lost(Rank(dead as u32)))], "of {ranks}");
            ask(&mut group, rank);
        }
        group.pass_until(3);
        let again = |member: &Member| member.is_dead || matches!(member.told[2], Event::Failed(Failure::Lost(_)));
        assert!(group.members.iter().all(again));
    }
}

#[test]
fn mistakes__another_operation_in_the_same_place_is_told_to_all() {
    let mut group = Group::new(4, 1);
    for rank in 0..3 {
        group.command(rank, Command::Barrier);
    }
    group.command(3, Command::Allreduce { reduction: Reduction::SumU64, numbers: numbers(&[1]) });
    group.pass_until(1);
    assert!(group.members.iter().all(|member| matches!(member.told[0], Event::Failed(_))));
    let is_named = |member: &Member| matches!(member.told[0], Event::Failed(Failure::Differs(_)));
    assert!(group.members.iter().any(is_named));
}

#[test]
fn mistakes__a_second_operation_at_once_and_a_block_of_another_length_are_refused() {
    let mut group = Group::new(2, 1);
    let own = Span { region: group.members[0].own, offset: 0, length: BLOCK - 1 };
    group.command(0, Command::Allgather { own });
    group.command(0, Command::Barrier);
    group.command(0, Command::Barrier);
    group.command(1, Command::Barrier);
    group.pass_until(1);
    while group.members[0].told.len() < 3 {
        group.pass();
    }
    let refused = Event::Failed(Failure::Refused);
    assert_eq!(group.members[0].told, [refused, refused, Event::Complete(Numbers::default())]);
    assert_eq!(group.members[1].told, [Event::Complete(Numbers::default())]);
    assert_eq!(group.members[0].driver.engine_mut().strangers(), 0);
}

/// What is no message of a group changes nothing.
#[test]
fn strangers__are_counted() {
    let mut group = Group::new(2, 1);
    let mut out: clearway_proto::wire::Out<()> = clearway_proto::wire::Out::with_limit(4);
    let heads = [&b"x"[..], &[0; 12], &[0, 9, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], &[3, 0, 9, 0, 1, 0, 0, 0, 0, 0, 0, 0]];
    let to = clearway_proto::wire::Destination::One(Rank(1));
    let sends: Vec<Operation> = heads
        .map(|head| {
            let (path, class, head) = (clearway_proto::wire::PathId(0), Class::Control, out.head(head));
            Operation::Send { to, path, class, head, body: Span::EMPTY, token: None }
        })
        .to_vec();
    group.members[0].wire.post(&sends, out.heads(), &mut Vec::new());
    for rank in 0..2 {
        group.command(rank, Command::Barrier);
    }
    group.pass_until(1);
    assert_eq!(group.members[1].driver.engine_mut().strangers(), heads.len() as u64);
}
