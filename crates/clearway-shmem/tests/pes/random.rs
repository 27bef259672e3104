//! Random programs against a model: what all PEs do is drawn from a seed, and every PE knows what
//! all memories must hold afterwards.
//!
//! # Model
//! A program is a sequence of phases. In a phase each drawn operation has an actor; an operation
//! that could race with one of another actor is left out, but sums commute. All PEs apply all
//! operations to a model of all memories, and each does its own. Behind a barrier each compares its
//! memory with the model. Between phases there is a random collective of a random team.

use std::env;

use clearway_shmem::constants::{CMP_EQ, SIGNAL_ADD};
use clearway_shmem::context::Context;
use clearway_shmem::operand::ReduceOp;
use clearway_shmem::team::{self, Team};
use clearway_shmem::{amo, collective, heap, order, rma, signal, wait};

use super::local::{at, from, get, into, put};
use super::memory::{barrier, who};

const DEFAULT: Context = Context::DEFAULT;
/// Words of each PE.
const WORDS: usize = 192;
/// Phases of a program, and operations drawn for each.
const PHASES: usize = 6;
const DRAWS: usize = 60;
/// Seeds of the short run.
const SHORT: u64 = 100;

/// Numbers from a seed (SplitMix64).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// The PE that may touch a word in this phase.
#[derive(Clone, Copy, PartialEq)]
enum Claim {
    Free,
    Actor(usize),
    /// Anybody may add.
    Sums,
}

/// One operation.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Put,
    Get,
    P,
    G,
    Iput,
    Add,
    FetchAdd,
    Swap,
    CompareSwap,
    Xor,
    Signal,
}

const KINDS: [Kind; 11] = [
    Kind::Put,
    Kind::Get,
    Kind::P,
    Kind::G,
    Kind::Iput,
    Kind::Add,
    Kind::FetchAdd,
    Kind::Swap,
    Kind::CompareSwap,
    Kind::Xor,
    Kind::Signal,
];

struct World {
    me: usize,
    pes: usize,
    base: *mut u8,
    memories: Vec<Vec<u64>>,
    claims: Vec<Vec<Claim>>,
    teams: Vec<(Team, Vec<usize>)>,
}

/// The words `at`, `at + stride`, ... of a PE.
struct Target {
    pe: usize,
    at: usize,
    count: usize,
    stride: usize,
}

impl Target {
    fn words(&self) -> impl Iterator<Item = usize> + use<> {
        (self.at..).step_by(self.stride).take(self.count)
    }
}

impl World {
    /// Takes the words for `claim`, if nobody else may be at them.
    fn claim(&mut self, target: &Target, claim: Claim) -> bool {
        let row = &mut self.claims[target.pe];
        let fits = target.words().all(|word| [Claim::Free, claim].contains(&row[word]));
        if fits {
            target.words().for_each(|word| row[word] = claim);
        }
        fits
    }

    fn address(&self, word: usize) -> clearway_shmem::address::Symmetric {
        at(self.base, 8 * word)
    }

    /// Draws one operation, applies it to the model, and does it if this PE is the actor.
    fn operate(&mut self, draw: &mut Draw) {
        let kind = KINDS[draw.below(KINDS.len())];
        let actor = draw.below(self.pes);
        let (count, stride) = match kind {
            Kind::Put | Kind::Get => (1 + draw.below(20), 1),
            Kind::Iput => (1 + draw.below(8), 1 + draw.below(3)),
            Kind::Signal => (1 + draw.below(9), 1),
            _ => (1, 1),
        };
        let target = Target { pe: draw.below(self.pes), at: draw.below(WORDS - 30), count, stride };
        let value = draw.next();
        let is_sum = matches!(kind, Kind::Add);
        if !self.claim(&target, if is_sum { Claim::Sums } else { Claim::Actor(actor) }) {
            return;
        }
        let before: Vec<u64> = target.words().map(|word| self.memories[target.pe][word]).collect();
        let after = model(kind, &before, value);
        target
            .words()
            .zip(&after)
            .for_each(|(word, value)| self.memories[target.pe][word] = *value);
        if actor == self.me {
            self.act(kind, &target, value, &before, &after);
            order::fence(DEFAULT).expect("began");
        }
    }

    fn act(&self, kind: Kind, target: &Target, value: u64, before: &[u64], after: &[u64]) {
        let (to, pe) = (self.address(target.at), target.pe as i32);
        match kind {
            Kind::Put => put(to, after, target.pe),
            Kind::Get => assert_eq!(get::<u64>(to, target.count, target.pe), before, "get"),
            Kind::P => rma::p(DEFAULT, to, value, pe).expect("p"),
            Kind::G => assert_eq!(rma::g::<u64>(DEFAULT, to, pe).expect("g"), before[0], "g"),
            Kind::Iput => {
                let stride = target.stride as isize;
                rma::iput(DEFAULT, to, from(after), stride, 1, target.count, 8, pe).expect("iput");
            }
            Kind::Add => amo::add(DEFAULT, to, value, pe).expect("add"),
            Kind::FetchAdd => {
                let mut fetched = [0];
                amo::fetch_add_nbi(DEFAULT, into(&mut fetched), to, value, pe).expect("add");
                order::quiet(DEFAULT).expect("began");
                assert_eq!(fetched, before, "fetch_add");
            }
            Kind::Swap => {
                assert_eq!(amo::swap(DEFAULT, to, value, pe).expect("swap"), before[0], "swap")
            }
            Kind::CompareSwap => {
                let wanted = if value.is_multiple_of(3) { !before[0] } else { before[0] };
                assert_eq!(
                    amo::compare_swap(DEFAULT, to, wanted, value, pe).expect("swap"),
                    before[0],
                    "cswap"
                );
            }
            Kind::Xor => {
                assert_eq!(amo::fetch_xor(DEFAULT, to, value, pe).expect("xor"), before[0], "xor")
            }
            Kind::Signal => self.send(target, after),
        }
    }

    /// Puts all words but the last, which is the signal.
    fn send(&self, target: &Target, after: &[u64]) {
        let last = target.count - 1;
        let (to, flag) = (self.address(target.at), self.address(target.at + last));
        let bytes = 8 * last;
        signal::put(DEFAULT, to, from(after), bytes, flag, 1, SIGNAL_ADD, target.pe as i32)
            .expect("put_signal");
    }

    fn compare(&self, seed: u64, phase: usize) {
        let own = get::<u64>(self.address(0), WORDS, self.me);
        if let Some(word) = (0..WORDS).find(|word| own[*word] != self.memories[self.me][*word]) {
            let (found, expected) = (own[word], self.memories[self.me][word]);
            panic!(
                "seed {seed}, phase {phase}: word {word} of PE {} is {found:#x}, not {expected:#x}",
                self.me
            );
        }
    }

    /// A collective of a team, from one part of the memory to another.
    fn gather(&mut self, draw: &mut Draw) {
        let (choice, kind) = (draw.below(self.teams.len()), draw.below(5));
        let members = self.teams[choice].1.clone();
        let count = 1 + draw.below(WORDS / 3 / members.len());
        let root = draw.below(members.len());
        let (source, dest) = (0, WORDS / 2);
        let sources: Vec<Vec<u64>> = members
            .iter()
            .map(|pe| self.memories[*pe][source..source + WORDS / 3].to_vec())
            .collect();
        for (index, pe) in members.iter().enumerate() {
            let result: Vec<u64> = match kind {
                0 => sources[root][..count].to_vec(),
                1 => sources.iter().flat_map(|words| words[..count].to_vec()).collect(),
                2 => sources
                    .iter()
                    .flat_map(|words| words[index * count..(index + 1) * count].to_vec())
                    .collect(),
                3 => (0..count)
                    .map(|at| sources.iter().fold(0u64, |sum, words| sum.wrapping_add(words[at])))
                    .collect(),
                _ => (0..count)
                    .map(|at| sources.iter().map(|words| words[at]).max().unwrap_or(0))
                    .collect(),
            };
            self.memories[*pe][dest..dest + result.len()].copy_from_slice(&result);
        }
        if !members.contains(&self.me) {
            return;
        }
        let (team, to, at) = (self.teams[choice].0, self.address(dest), self.address(source));
        let done = match kind {
            0 => collective::broadcast(team, to, at, 8 * count, root as i32),
            1 => collective::collect(team, to, at, 8 * count),
            2 => collective::alltoall(team, to, at, 8 * count),
            3 => collective::reduce::<u64>(team, ReduceOp::Sum, to, at, count),
            _ => collective::reduce::<u64>(team, ReduceOp::Max, to, at, count),
        };
        assert_eq!(done.expect("a collective"), 0);
    }

    fn run(&mut self, seed: u64) {
        let mut draw = Draw(seed);
        for phase in 0..PHASES {
            self.claims = vec![vec![Claim::Free; WORDS]; self.pes];
            for _ in 0..DRAWS {
                self.operate(&mut draw);
            }
            barrier();
            self.compare(seed, phase);
            barrier();
            self.gather(&mut draw);
            barrier();
            self.compare(seed, phase);
            barrier();
        }
    }
}

/// What an operation makes of words.
fn model(kind: Kind, before: &[u64], value: u64) -> Vec<u64> {
    let first = before[0];
    match kind {
        Kind::Put | Kind::Iput => {
            (0..before.len() as u64).map(|index| value.wrapping_mul(index | 1)).collect()
        }
        Kind::Signal => {
            let mut after: Vec<u64> = (0..before.len() as u64).map(|index| value ^ index).collect();
            after[before.len() - 1] = before[before.len() - 1].wrapping_add(1);
            after
        }
        Kind::Get | Kind::G => before.to_vec(),
        Kind::P | Kind::Swap => vec![value],
        Kind::CompareSwap => {
            vec![if value.is_multiple_of(3) && first != !first { first } else { value }]
        }
        Kind::Add | Kind::FetchAdd => vec![first.wrapping_add(value)],
        Kind::Xor => vec![first ^ value],
    }
}

/// The teams that collectives use: all, every other PE, all in reverse.
fn teams(pes: usize) -> Vec<(Team, Vec<usize>)> {
    let mut teams = vec![(Team::WORLD, (0..pes).collect())];
    let splits: [(i32, i32, Vec<usize>); 2] =
        [(0, 2, (0..pes).step_by(2).collect()), (pes as i32 - 1, -1, (0..pes).rev().collect())];
    for (start, stride, members) in splits {
        let split = team::split_strided(Team::WORLD, start, stride, members.len() as i32, 0)
            .expect("began");
        teams.push((split.1, members));
    }
    teams
}

fn programs(seeds: impl Iterator<Item = u64>) {
    let (me, _, pes) = who();
    let base = heap::calloc(WORDS, 8).expect("began");
    let (memories, claims) = (vec![vec![0; WORDS]; pes], Vec::new());
    let mut world = World { me, pes, base, memories, claims, teams: teams(pes) };
    for seed in seeds {
        world.run(seed);
    }
    wait::until(at(base, 0), CMP_EQ, world.memories[me][0]).expect("it is there");
}

/// A short run, or the seeds that the program was asked for: the first, and how many.
pub(crate) fn short() {
    let asked: Vec<u64> = env::args().skip(2).filter_map(|word| word.parse().ok()).collect();
    match asked[..] {
        [first, count] => programs(first..first + count),
        _ => programs(0..SHORT),
    }
}

/// A run with one operation that the model does not know.
pub(crate) fn faulty() {
    let (me, _, pes) = who();
    let base = heap::calloc(WORDS, 8).expect("began");
    let memories = vec![vec![0; WORDS]; pes];
    let mut world = World { me, pes, base, memories, claims: Vec::new(), teams: teams(pes) };
    if me == 0 {
        amo::add(DEFAULT, at(base, 8 * (WORDS - 1)), 1u64, pes as i32 - 1).expect("add");
    }
    world.run(1);
}
