//! Collectives of small things: a barrier, a sum or an extreme of a few numbers, a block of each rank for all.
//!
//! # Model
//! Ranks ask for the same operations in the same order; each operation is a schedule of steps (`base`) that follows from rank, number
//! of ranks and kind alone, and a step is at most one message to one rank and one from another. A rank may be one operation ahead
//! of another and never two, for none of these ends anywhere before all ranks have begun it; so what comes early is kept in one of two places.
//!
//! The wire below loses nothing (a reliable one, shared memory, libfabric). What it cannot bring it says: a rank for which a message ends as
//! flushed is *lost*, and then this engine tells its neighbours, they tell theirs, and every operation fails from then on.
//!
//! # Source
//! Of the schedules: `base`. For a few numbers and short blocks the number of steps is what counts; they take the least that is possible, reductions
//! among no power of two one more.
//!
//! # Invariants
//! I1. All ranks that complete an operation have the same result, to the bit: numbers are combined in an order that only the number of ranks sets.
//! I2. Whoever waits for a rank that is lost hears of it; after [`Event::Failed`] no operation completes any more.
//!
//! # Not here
//! Long vectors (they want other schedules); who is in the group; going on without the lost (a new group).

mod frame;
mod node;

pub use node::Node;

use crate::base::{Class, Rank};
use crate::wire::{RegionId, Span};

/// Ranks of a group: their numbers have 24 bits in tokens of wires.
pub const RANKS_MAX: u32 = 1 << 24;
/// Numbers of one reduction.
pub const NUMBERS_MAX: usize = 8;

/// How numbers are combined. Extremes of floats follow IEEE 754's total order; sums of integers wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Sum of integers.
    SumU64,
    /// Least integer.
    MinU64,
    /// Greatest integer.
    MaxU64,
    /// Sum of floats, given by their bits.
    SumF64,
    /// Least float.
    MinF64,
    /// Greatest float.
    MaxF64,
}

impl Reduction {
    /// In the order of their numbers on the wire.
    pub const ALL: [Self; 6] = [Self::SumU64, Self::MinU64, Self::MaxU64, Self::SumF64, Self::MinF64, Self::MaxF64];

    /// `lower` and `upper`, of which the first stands for lower ranks.
    pub(crate) fn combine(self, lower: u64, upper: u64) -> u64 {
        let (a, b) = (f64::from_bits(lower), f64::from_bits(upper));
        let pick = |is_lower: bool| if is_lower { lower } else { upper };
        match self {
            Self::SumU64 => lower.wrapping_add(upper),
            Self::MinU64 => lower.min(upper),
            Self::MaxU64 => lower.max(upper),
            Self::SumF64 => (a + b).to_bits(),
            Self::MinF64 => pick(a.total_cmp(&b).is_le()),
            Self::MaxF64 => pick(a.total_cmp(&b).is_ge()),
        }
    }
}

/// A few numbers: integers, or the bits of floats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    count: usize,
    words: [u64; NUMBERS_MAX],
}

impl Numbers {
    /// `None` when there are more than [`NUMBERS_MAX`].
    pub fn of(numbers: &[u64]) -> Option<Self> {
        let mut words = [0; NUMBERS_MAX];
        words.get_mut(..numbers.len())?.copy_from_slice(numbers);
        Some(Self { count: numbers.len(), words })
    }

    /// The numbers.
    pub fn words(&self) -> &[u64] {
        &self.words[..self.count]
    }

    fn combine(&mut self, reduction: Reduction, other: &Self, is_other_lower: Lower) {
        for (own, other) in self.words.iter_mut().zip(&other.words) {
            *own = match is_other_lower {
                Lower::Other => reduction.combine(*other, *own),
                Lower::Own => reduction.combine(*own, *other),
            };
        }
    }
}

/// Whose numbers are those of lower ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lower {
    Own,
    Other,
}

/// What all ranks do together.
#[derive(Clone, Copy, Debug)]
pub enum Command {
    /// Nobody goes on before all are here.
    Barrier,
    /// Numbers of all ranks are combined, place by place.
    Allreduce {
        /// How.
        reduction: Reduction,
        /// This rank's.
        numbers: Numbers,
    },
    /// Each rank's block comes to all.
    Allgather {
        /// This rank's block, [`Config::block`] bytes long; it is copied at once.
        own: Span,
    },
}

/// Why operations fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// This rank is out of reach.
    Lost(Rank),
    /// This rank does another operation in the place of ours: a mistake of the program.
    Differs(Rank),
    /// The last operation is not over yet, or needs memory that this node was not given: a mistake of the program.
    Refused,
}

/// What is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The operation is over. Numbers of a reduction; none otherwise. Gathered blocks lie where [`Node::block_of`] says until the next operation
    /// is asked for.
    Complete(Numbers),
    /// It is not, and no other will be, unless it was [`Failure::Refused`].
    Failed(Failure),
}

/// What a [`Node`] is made for; all but `rank` are the same on all ranks.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// This rank.
    pub rank: Rank,
    /// How many there are.
    pub ranks: u32,
    /// The class of all messages.
    pub class: Class,
    /// Bytes of a block.
    pub block: u32,
    /// Memory for blocks, of [`Config::memory`] bytes; none where no blocks are gathered.
    pub blocks: Option<RegionId>,
}

impl Config {
    /// Bytes that gathering takes: blocks of all ranks, twice.
    pub fn memory(&self) -> u64 {
        2 * u64::from(self.ranks) * u64::from(self.block)
    }
}
