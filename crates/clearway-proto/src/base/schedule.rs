//! Schedules that say which rank sends to which in each step of an operation of all ranks: a
//! barrier, a reduction, a block of each for all.
//!
//! # Model
//! A schedule follows from its kind, a rank's place and the number of ranks alone, and needs each
//! rank to send and to get at most one message a step. A rank takes a step when it has sent its
//! message and got the one that it waits for.
//!
//! # Source
//! Barrier: dissemination (Hensgen, Finkel, Manber 1988). Blocks: Bruck et al. 1997. Both take the
//! least steps that are possible, `ceil(log2 n)`. Reduction: recursive doubling, with the ranks
//! above the largest power of two folded in before and given the result after, as in Thakur,
//! Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH" (2005),
//! §4.5; that is one step more where `n` is no power of two, and all ranks combine in one order,
//! which sums of floats need.
//!
//! # Invariants
//! I1. In each step, what one rank sends another one waits for, in the same step.
//! I2. Nobody takes the last step of any of these before all ranks have begun the first.

/// Steps of the longest schedule: a reduction among 2^24 ranks, for rank numbers have 24 bits in
/// tokens of wires.
pub const STEPS_MAX: usize = 26;

/// Which schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Nobody is through before all have come: in step `s` each tells who is `2^s` places ahead.
    Barrier,
    /// Everyone gets what the values of all make together.
    Allreduce,
    /// Everyone gets the blocks of all: after step `s` a rank has its own and those of the `2^(s+1)
    /// - 1` places ahead, in this order.
    Allgather,
}

/// What a rank does in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Place of the rank that gets a message of this one.
    pub to: Option<u32>,
    /// Place of the rank whose message this one waits for.
    pub from: Option<u32>,
    /// Blocks that travel: the first ones that the sender has, which the receiver puts behind those
    /// it has.
    pub blocks: u32,
}

/// One rank among those who act together. Its methods panic where `ranks` is 0.
#[derive(Clone, Copy, Debug)]
pub struct Participant {
    /// Below `ranks`.
    pub rank: u32,
    /// At least 1.
    pub ranks: u32,
}

impl Participant {
    /// Doublings until `ranks` are reached.
    const fn doublings(self) -> u32 {
        self.ranks.next_power_of_two().ilog2()
    }

    /// Returns the ranks that take part in doublings of a reduction.
    const fn core(self) -> u32 {
        1 << self.ranks.ilog2()
    }

    /// Steps of `schedule`, the same for all ranks. The first and the last of a reduction are empty
    /// where nobody is folded in.
    pub const fn steps(self, schedule: Schedule) -> u32 {
        match schedule {
            Schedule::Barrier | Schedule::Allgather => self.doublings(),
            Schedule::Allreduce if self.ranks == 1 => 0,
            Schedule::Allreduce => self.ranks.ilog2() + 2,
        }
    }

    /// Returns what this rank does in `step`, which is below [`Participant::steps`]. Of a reduction
    /// it sends what it has so far, and what it gets in the last step is the result.
    pub fn step(self, schedule: Schedule, step: u32) -> Step {
        let Self { rank, ranks } = self;
        let distance = 1u32 << step.min(31);
        let (ahead, behind) =
            (Some((rank + distance) % ranks), Some((rank + ranks - distance % ranks) % ranks));
        match schedule {
            Schedule::Barrier => Step { to: ahead, from: behind, blocks: 0 },
            Schedule::Allgather => {
                Step { to: behind, from: ahead, blocks: distance.min(ranks - distance) }
            }
            Schedule::Allreduce => self.reduce(step),
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
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    const ALL: [Schedule; 3] = [Schedule::Barrier, Schedule::Allreduce, Schedule::Allgather];

    /// Every number of ranks that tests try: all shapes of folding, and both sides of six powers of
    /// two.
    const COUNTS: core::ops::RangeInclusive<u32> = 1..=70;

    fn places(ranks: u32) -> impl Iterator<Item = Participant> {
        (0..ranks).map(move |rank| Participant { rank, ranks })
    }

    /// Returns what each rank has after all steps, if it has `own` before and `take` makes of its
    /// own, of a message and of the step what it has then.
    fn run<T: Clone>(
        schedule: Schedule,
        ranks: u32,
        own: impl Fn(u32) -> T,
        take: impl Fn(&mut T, &T, Step, u32),
    ) -> Vec<T> {
        let mut all: Vec<T> = (0..ranks).map(own).collect();
        for step in 0..(Participant { rank: 0, ranks }).steps(schedule) {
            let before = all.clone();
            for place in places(ranks) {
                let todo = place.step(schedule, step);
                if let Some(from) = todo.from {
                    take(&mut all[place.rank as usize], &before[from as usize], todo, step);
                }
            }
        }
        all
    }

    #[test]
    fn step__what_one_sends_one_other_waits_for_and_nothing_else() {
        for (ranks, schedule) in COUNTS.flat_map(|ranks| ALL.map(|schedule| (ranks, schedule))) {
            for step in 0..(Participant { rank: 0, ranks }).steps(schedule) {
                let steps: Vec<Step> =
                    places(ranks).map(|place| place.step(schedule, step)).collect();
                let sent = steps
                    .iter()
                    .zip(0..)
                    .filter_map(|(own, rank)| Some((rank, own.to?, own.blocks)));
                let awaited = steps
                    .iter()
                    .zip(0..)
                    .filter_map(|(own, rank)| Some((own.from?, rank, own.blocks)));
                let (sent, awaited): (BTreeSet<_>, BTreeSet<_>) =
                    (sent.collect(), awaited.collect());
                assert_eq!(sent, awaited, "{schedule:?} of {ranks}, step {step}");
                let receivers: BTreeSet<u32> = sent.iter().map(|(_, to, _)| *to).collect();
                assert_eq!(receivers.len(), sent.len(), "{schedule:?} of {ranks}, step {step}");
                assert!(
                    sent.iter().all(|(from, to, _)| from != to),
                    "{schedule:?} of {ranks}, step {step}"
                );
            }
        }
    }

    #[test]
    fn steps__are_the_least_and_a_reduction_folds_in_one_more() {
        for ranks in COUNTS {
            let least = (0..).find(|doublings| 1 << doublings >= ranks).expect("few");
            let place = Participant { rank: 0, ranks };
            // A rank that has heard of `k` ranks can have heard of `2k` one step later, and not of
            // more.
            assert_eq!(place.steps(Schedule::Barrier), least);
            assert_eq!(place.steps(Schedule::Allgather), least);
            let busy = |step: &u32| {
                places(ranks).any(|place| place.step(Schedule::Allreduce, *step).to.is_some())
            };
            let busy = (0..place.steps(Schedule::Allreduce)).filter(busy).count() as u32;
            assert_eq!(busy, least + u32::from(!ranks.is_power_of_two()), "{ranks}");
        }
    }

    #[test]
    fn steps__the_longest_fits() {
        let steps =
            ALL.map(|schedule| Participant { rank: 0, ranks: 1 << 24 }.steps(schedule) as usize);
        assert_eq!(steps.into_iter().max(), Some(STEPS_MAX));
    }

    #[test]
    fn barrier__nobody_is_through_before_all_have_come() {
        for (ranks, schedule) in COUNTS.flat_map(|ranks| ALL.map(|schedule| (ranks, schedule))) {
            // Of whom each has heard, itself included; one that has not begun sends nothing.
            let heard =
                run(schedule, ranks, |rank| 1u128 << rank, |own, other, _, _| *own |= other);
            assert_eq!(
                heard,
                vec![u128::MAX >> (128 - ranks); ranks as usize],
                "{schedule:?} of {ranks}"
            );
        }
    }

    #[test]
    fn allreduce__all_combine_each_value_once_and_alike() {
        for ranks in COUNTS {
            let last =
                (Participant { rank: 0, ranks }).steps(Schedule::Allreduce).saturating_sub(1);
            let results = run(
                Schedule::Allreduce,
                ranks,
                |rank| vec![rank],
                |own, other, _, step| {
                    if step == last {
                        own.clone_from(other);
                    } else if other[0] < own[0] {
                        *own = [&other[..], &own[..]].concat();
                    } else {
                        own.extend_from_slice(other);
                    }
                },
            );
            assert!(
                results.iter().all(|result| *result == results[0]),
                "{ranks}: another order is another sum of floats"
            );
            let each: BTreeSet<u32> = results[0].iter().copied().collect();
            assert_eq!((each.len(), results[0].len()), (ranks as usize, ranks as usize));
        }
    }

    #[test]
    fn allgather__every_block_is_at_its_place() {
        for ranks in COUNTS {
            let gathered = run(
                Schedule::Allgather,
                ranks,
                |rank| vec![rank],
                |own, other, todo, step| {
                    assert_eq!(own.len(), 1 << step, "{ranks}");
                    own.extend_from_slice(&other[..todo.blocks as usize]);
                },
            );
            for (rank, blocks) in (0..ranks).zip(gathered) {
                let expected: Vec<u32> = (0..ranks).map(|place| (rank + place) % ranks).collect();
                assert_eq!(blocks, expected, "{rank} of {ranks}");
            }
        }
    }
}
