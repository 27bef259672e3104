//! What was counted, at some hundred instants of a cast however long it takes.

use clearway_proto::base::{LocalNs, Nanos};
use clearway_proto::broadcast::Record;

use super::words::Sample;

/// Samples that a page can show beside each other.
const SAMPLES: usize = 400;
/// Between the first ones.
const FIRST: Nanos = Nanos::from_millis(1);

/// Samples of one rank. When they are too many every second one is forgotten, and the next come half as often.
pub(super) struct Film {
    samples: Vec<Sample>,
    every: Nanos,
    next: LocalNs,
}

impl Default for Film {
    fn default() -> Self {
        Self { samples: Vec::new(), every: FIRST, next: LocalNs(0) }
    }
}

impl Film {
    /// Takes a sample if one is due and anything has changed.
    pub(super) fn look(&mut self, now: LocalNs, record: impl FnOnce() -> Record) {
        if now < self.next {
            return;
        }
        self.next = now + self.every;
        let record = record();
        if self.samples.last().is_some_and(|last| last.record == record) {
            return;
        }
        self.samples.push(Sample { at: now, record });
        if self.samples.len() == SAMPLES {
            let mut keep = false;
            self.samples.retain(|_| {
                keep = !keep;
                keep
            });
            self.every = Nanos(self.every.0 * 2);
        }
    }

    /// All samples, and the last state.
    pub(super) fn take(&mut self, now: LocalNs, record: Record) -> Vec<Sample> {
        let mut samples = std::mem::take(&mut self.samples);
        samples.push(Sample { at: now, record });
        samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look__keeps_the_beginning_and_never_too_many() {
        let mut film = Film::default();
        for at in 0..10_000 {
            film.look(LocalNs(at * 1_000_000), || Record { sent: at, ..Record::default() });
        }
        let samples = film.take(LocalNs(10_000_000_000), Record::default());
        assert!(samples.len() <= SAMPLES && samples.len() > SAMPLES / 4, "{}", samples.len());
        assert_eq!(samples[0].record.sent, 0);
        assert!(samples.windows(2).all(|pair| pair[0].at < pair[1].at));
    }
}
