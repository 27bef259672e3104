//! Divides the processors of a machine between the ranks and the commands of a lab.
//!
//! # Model
//! Hosts of a network have processors of their own; virtual hosts share those of one machine. A
//! message that waits for a processor on which a command runs would look as if it waited in the
//! network. So ranks have one half of the cores, and commands have the other. A process has the
//! processors of the thread that starts it.
//!
//! # Source
//! `sched_setaffinity(2)`; `Documentation/admin-guide/cputopology.rst`: processors of one core.

use std::fs;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// What runs on one half of the processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessorHalf {
    Ranks,
    Commands,
}

/// The processors of this thread are these again when it ends.
struct RestoredAffinity(CpuSet);

impl Drop for RestoredAffinity {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.0);
    }
}

impl ProcessorHalf {
    /// Runs `start` on this half: what it starts stays there. Changes nothing where this thread has
    /// one core only, or the kernel refuses.
    pub(crate) fn run<T>(self, start: impl FnOnce() -> T) -> T {
        let all = sched_getaffinity(None).unwrap_or_default();
        let _restored = self
            .processors_of(&all, first_of_core)
            .filter(|half| sched_setaffinity(None, half).is_ok())
            .map(|_| RestoredAffinity(all));
        start()
    }

    /// Returns this half of `all`, by whole cores: `core` names that of a processor. The half of
    /// ranks has one more where the number is odd. `None` for fewer than two cores.
    fn processors_of(self, all: &CpuSet, core: impl Fn(usize) -> usize) -> Option<CpuSet> {
        let numbers = (0..CpuSet::MAX_CPU).filter(|number| all.is_set(*number));
        let mut by_core: Vec<(usize, usize)> =
            numbers.map(|number| (core(number), number)).collect();
        by_core.sort_unstable();
        let cores: Vec<&[(usize, usize)]> = by_core.chunk_by(|a, b| a.0 == b.0).collect();
        let (ranks, commands) = cores.split_at(cores.len().div_ceil(2));
        let chosen = match self {
            Self::Ranks => ranks,
            Self::Commands => commands,
        };
        let mut half = CpuSet::new();
        chosen.iter().copied().flatten().for_each(|(_, number)| half.set(*number));
        (cores.len() > 1).then_some(half)
    }
}

/// Returns the first processor of the core of processor `number`; the processor itself where the
/// kernel does not say.
fn first_of_core(number: usize) -> usize {
    let path = format!("/sys/devices/system/cpu/cpu{number}/topology/core_cpus_list");
    let list = fs::read_to_string(path).unwrap_or_default();
    list.split([',', '-']).next().and_then(|first| first.trim().parse().ok()).unwrap_or(number)
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
        let halves = |all: &[usize], core: fn(usize) -> usize| {
            [ProcessorHalf::Ranks, ProcessorHalf::Commands]
                .map(|half| half.processors_of(&set(all), core))
        };
        let own = |number| number;
        assert_eq!(halves(&[3], own), [None, None]);
        assert_eq!(halves(&[1, 3], own), [Some(set(&[1])), Some(set(&[3]))]);
        assert_eq!(halves(&[0, 2, 4, 6, 8], own), [Some(set(&[0, 2, 4])), Some(set(&[6, 8]))]);
        // Linux numbers the second threads of all cores behind the first ones.
        let threads = halves(&[0, 1, 2, 3, 4, 5, 6, 7], |number| number % 4);
        assert_eq!(threads, [Some(set(&[0, 1, 4, 5])), Some(set(&[2, 3, 6, 7]))]);
        assert_eq!(halves(&[0, 4], |number| number % 4), [None, None], "one core");
    }

    #[test]
    fn run__what_is_started_has_the_half_and_this_thread_has_all_again() {
        let of_thread = || sched_getaffinity(None).expect("the processors of this thread");
        let before = of_thread();
        let Some(half) = ProcessorHalf::Commands.processors_of(&before, first_of_core) else {
            return eprintln!("skipped: this machine has one core");
        };
        let started = ProcessorHalf::Commands.run(|| {
            let processor = std::thread::spawn(of_thread);
            processor.join().expect("it does not panic")
        });
        assert_eq!([started, of_thread()], [half, before]);
    }
}
