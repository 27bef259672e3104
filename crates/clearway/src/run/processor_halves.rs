//! Divides the processors of a machine between the ranks and the commands of a lab.
//!
//! # Model
//! Hosts of a network have processors of their own; virtual hosts share those of one machine. A
//! message that waits for a processor on which a command runs would look as if it waited in the
//! network. So ranks have one half of the processors, and commands have the other. A process has
//! the processors of the thread that starts it.
//!
//! # Source
//! `sched_setaffinity(2)`.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// What runs on one half of the processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessorHalf {
    Ranks,
    Commands,
}

impl ProcessorHalf {
    /// Runs `start` on this half: what it starts stays there. Changes nothing where this thread has
    /// one processor only, or the kernel refuses.
    pub(crate) fn run<T>(self, start: impl FnOnce() -> T) -> T {
        let all = sched_getaffinity(None).unwrap_or_default();
        let is_changed =
            self.processors_of(&all).is_some_and(|half| sched_setaffinity(None, &half).is_ok());
        let started = start();
        if is_changed {
            let _ = sched_setaffinity(None, &all);
        }
        started
    }

    /// Returns this half of `all`; the ranks' has the odd one. `None` for fewer than two.
    fn processors_of(self, all: &CpuSet) -> Option<CpuSet> {
        let count = all.count() as usize;
        let first = count.div_ceil(2);
        let [from, until] = match self {
            Self::Ranks => [0, first],
            Self::Commands => [first, count],
        };
        let mut half = CpuSet::new();
        let numbers = (0..CpuSet::MAX_CPU).filter(|number| all.is_set(*number));
        numbers.skip(from).take(until - from).for_each(|number| half.set(number));
        (count > 1).then_some(half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(numbers: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        numbers.iter().for_each(|number| set.set(*number));
        set
    }

    #[test]
    fn processors_of__both_halves_have_all_processors_once() {
        let of = |all: &[usize]| {
            [ProcessorHalf::Ranks, ProcessorHalf::Commands]
                .map(|half| half.processors_of(&set(all)))
        };
        assert_eq!(of(&[3]), [None, None]);
        assert_eq!(of(&[1, 3]), [Some(set(&[1])), Some(set(&[3]))]);
        assert_eq!(of(&[0, 2, 4, 6, 8]), [Some(set(&[0, 2, 4])), Some(set(&[6, 8]))]);
    }

    #[test]
    fn run__what_is_started_has_the_half_and_this_thread_has_all_again() {
        let of_thread = || sched_getaffinity(None).expect("the processors of this thread");
        let before = of_thread();
        let Some(half) = ProcessorHalf::Commands.processors_of(&before) else {
            return eprintln!("skipped: this machine has one processor");
        };
        let started = ProcessorHalf::Commands.run(|| {
            let processor = std::thread::spawn(of_thread);
            processor.join().expect("it does not panic")
        });
        assert_eq!([started, of_thread()], [half, before]);
    }
}
