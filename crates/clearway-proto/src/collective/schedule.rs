//! Who sends to whom in which step of an operation.
//!
//! # Invariants
//! I1. In each step, what one rank sends another one waits for, in the same step.

/// Ranks of a group: their numbers have 24 bits in tokens of wires.
pub const RANKS_MAX: u32 = 1 << 24;
/// Steps of the longest schedule: a reduction among [`RANKS_MAX`].
pub(super) const STEPS_MAX: usize = 26;

/// Which schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Barrier,
    Allreduce,
    Allgather,
}

/// What a rank does in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) to: Option<u32>,
    pub(super) from: Option<u32>,
    /// Blocks that travel.
    pub(super) blocks: u32,
}

/// The group, as one of its ranks sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) rank: u32,
    pub(super) ranks: u32,
}

impl Place {
    /// Doublings until `ranks` are reached.
    const fn doublings(self) -> u32 {
        self.ranks.next_power_of_two().ilog2()
    }

    /// Ranks that take part in doublings of a reduction.
    const fn core(self) -> u32 {
        1 << self.ranks.ilog2()
    }

    pub(super) const fn steps(self, shape: Shape) -> u32 {
        match shape {
            Shape::Barrier | Shape::Allgather => self.doublings(),
            Shape::Allreduce if self.ranks == 1 => 0,
            Shape::Allreduce => self.ranks.ilog2() + 2,
        }
    }

    pub(super) fn step(self, shape: Shape, step: u32) -> Step {
        let Self { rank, ranks } = self;
        let distance = 1u32 << step.min(31);
        let (ahead, behind) = (Some((rank + distance) % ranks), Some((rank + ranks - distance % ranks) % ranks));
        match shape {
            Shape::Barrier => Step { to: ahead, from: behind, blocks: 0 },
            Shape::Allgather => Step { to: behind, from: ahead, blocks: distance.min(ranks - distance) },
            Shape::Allreduce => self.reduce(step),
        }
    }

    fn reduce(self, step: u32) -> Step {
        let (rank, core) = (self.rank, self.core());
        let folded = (rank + core < self.ranks).then_some(rank + core);
        let (to, from) = if rank >= core {
            let into = Some(rank - core);
            if step == 0 {
                (into, None)
            } else if step == self.ranks.ilog2() + 1 {
                (None, into)
            } else {
                (None, None)
            }
        } else if step == 0 {
            (None, folded)
        } else if step == self.ranks.ilog2() + 1 {
            (folded, None)
        } else {
            let partner = Some(rank ^ 1 << (step - 1));
            (partner, partner)
        };
        Step { to, from, blocks: 0 }
    }

    /// Those to whom a failure is told: who hears tells on, until all know.
    pub(super) fn neighbours(self) -> impl Iterator<Item = u32> {
        (0..self.doublings()).filter_map(move |step| self.step(Shape::Barrier, step).to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step__what_one_sends_another_waits_for() {
        for ranks in 1..40 {
            for shape in [Shape::Barrier, Shape::Allreduce, Shape::Allgather] {
                let place = |rank| Place { rank, ranks };
                let steps = place(0).steps(shape);
                assert!(steps as usize <= STEPS_MAX);
                for step in 0..steps {
                    for rank in 0..ranks {
                        let own = place(rank).step(shape, step);
                        assert!(own.to != Some(rank) && own.from != Some(rank), "{shape:?} {rank} of {ranks}");
                        for (other, blocks) in [(own.to, own.blocks)].into_iter().filter_map(|(to, b)| Some((to?, b))) {
                            let there = place(other).step(shape, step);
                            assert_eq!((there.from, there.blocks), (Some(rank), blocks), "{shape:?} {rank} of {ranks}");
                        }
                        let sender = own.from.map(|from| place(from).step(shape, step).to);
                        assert!(sender.is_none_or(|to| to == Some(rank)), "{shape:?} {rank} of {ranks}");
                    }
                }
            }
        }
    }

    #[test]
    fn steps__the_longest_fits() {
        assert_eq!(Place { rank: 0, ranks: RANKS_MAX }.steps(Shape::Allreduce) as usize, STEPS_MAX);
    }

    #[test]
    fn neighbours__word_of_mouth_reaches_all() {
        for ranks in 1..40 {
            let mut told = alloc::collections::BTreeSet::from([ranks - 1]);
            let mut fresh = alloc::vec![ranks - 1];
            while let Some(rank) = fresh.pop() {
                fresh.extend(Place { rank, ranks }.neighbours().filter(|to| told.insert(*to)));
            }
            assert_eq!(told.len(), ranks as usize);
        }
    }
}
