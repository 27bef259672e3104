//! Bounds the sentences about what programs do: a program repeats a mistake as often as it likes.
//!
//! # Invariants
//! I1. In each [`SENTENCE_PERIOD`] that begins with a sentence there are at most [`SENTENCES_MAX`].

use clearway_proto::base::{LocalNs, Nanos};

/// How long a sentence counts: an operator who looks at the log now and then sees the latest ones.
const SENTENCE_PERIOD: Nanos = Nanos::from_secs(10);
/// Sentences in a period: a program's mistakes in several attributes are all there.
const SENTENCES_MAX: u32 = 8;

/// How many sentences there were lately.
#[derive(Clone, Debug, Default)]
pub(super) struct SentenceLimit {
    /// When the period began; none before the first sentence.
    since: Option<LocalNs>,
    count: u32,
    /// Sentences that were left out since the last one.
    left_out: u64,
}

impl SentenceLimit {
    /// Returns what to write at `now` for a sentence; none when there were too many.
    pub(super) fn take(&mut self, now: LocalNs, sentence: String) -> Option<String> {
        if self.since.is_none_or(|since| now.since(since) >= SENTENCE_PERIOD) {
            (self.since, self.count) = (Some(now), 0);
        }
        if self.count == SENTENCES_MAX {
            self.left_out += 1;
            return None;
        }
        self.count += 1;
        Some(match std::mem::take(&mut self.left_out) {
            0 => sentence,
            others => format!("{sentence}; {others} such sentences before it are left out"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take__a_flood_leaves_some_sentences_a_period_and_their_number() {
        let mut limit = SentenceLimit::default();
        let begin = LocalNs(5);
        let taken = (0..1000).filter_map(|_| limit.take(begin, "no class".to_owned())).count();
        assert_eq!(taken, SENTENCES_MAX as usize);
        let end = LocalNs(begin.0 + SENTENCE_PERIOD.0);
        assert_eq!(limit.take(LocalNs(end.0 - 1), "no class".to_owned()), None);
        let left_out = 1000 - u64::from(SENTENCES_MAX) + 1;
        let expected = format!("a rule; {left_out} such sentences before it are left out");
        assert_eq!(limit.take(end, "a rule".to_owned()), Some(expected));
        assert_eq!(limit.take(end, "a rule".to_owned()).as_deref(), Some("a rule"));
    }
}
