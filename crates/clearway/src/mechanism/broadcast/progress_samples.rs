//! How much of an object was here, at some hundred instants however long it takes.

use clearway_proto::base::{LocalNs, Nanos};

use super::messages::ProgressSample;

/// Samples that a page can show side by side.
const SAMPLES: usize = 160;
/// Between the first ones: a symbol and a half at 200 Mb/s.
const FIRST: Nanos = Nanos::from_micros(100);

/// Samples of one rank. When they are too many every second one is forgotten, and the next come
/// half as often.
pub(super) struct ProgressSamples {
    samples: Vec<ProgressSample>,
    every: Nanos,
    next: LocalNs,
}

impl Default for ProgressSamples {
    fn default() -> Self {
        Self { samples: Vec::new(), every: FIRST, next: LocalNs(0) }
    }
}

impl ProgressSamples {
    /// Takes a sample if one is due and anything has changed.
    pub(super) fn sample(&mut self, now: LocalNs, symbols: u64) {
        if now < self.next || self.samples.last().is_some_and(|last| last.symbols == symbols) {
            return;
        }
        self.next = now + self.every;
        self.samples.push(ProgressSample { at: now, symbols });
        if self.samples.len() == SAMPLES {
            let mut keep = false;
            self.samples.retain(|_| {
                keep = !keep;
                keep
            });
            self.every = Nanos(self.every.0 * 2);
        }
    }

    /// Takes the last sample: all of it is here.
    pub(super) fn end(&mut self, now: LocalNs, symbols: u64) {
        self.samples.push(ProgressSample { at: now, symbols });
    }

    /// Returns all samples.
    pub(super) fn take(&mut self) -> Vec<ProgressSample> {
        std::mem::take(&mut self.samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample__keeps_beginning_and_end_and_never_too_many() {
        let mut samples = ProgressSamples::default();
        for at in 0..10_000 {
            samples.sample(LocalNs(at * 1_000_000), at);
        }
        samples.end(LocalNs(10_000_000_000), 10_000);
        let samples = samples.take();
        assert!(samples.len() <= SAMPLES && samples.len() > SAMPLES / 4, "{}", samples.len());
        assert_eq!(
            (samples[0].symbols, samples.last().map(|last| last.symbols)),
            (0, Some(10_000))
        );
        assert!(
            samples
                .windows(2)
                .all(|pair| pair[0].at < pair[1].at && pair[0].symbols < pair[1].symbols)
        );
    }
}
