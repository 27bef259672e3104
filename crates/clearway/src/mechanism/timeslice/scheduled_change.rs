//! Ranks that go and come in a run, on purpose or not, and how soon the others know.

use std::collections::BTreeMap;

use clearway_proto::base::{Nanos, Rank};

use crate::scenario::RankAt;

/// What somebody wants of a rank while a run is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScheduledAction {
    /// Its process is killed.
    Death,
    /// Nothing more is dealt to it, and it goes when what it has is done.
    Retirement,
    /// It takes part again.
    Return,
}

impl ScheduledAction {
    /// Returns what it is to do, as the end of a sentence.
    pub(super) const fn sentence(self) -> &'static str {
        match self {
            Self::Death => "die",
            Self::Retirement => "retire",
            Self::Return => "join again",
        }
    }
}

/// A rank that goes or comes, and when that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScheduledChange {
    pub(crate) when: RankAt,
    pub(crate) wanted: ScheduledAction,
}

impl ScheduledChange {
    /// Creates the changes of `kill`, `retire` and `join`, by time.
    pub(crate) fn by_time(kill: &[RankAt], retire: &[RankAt], join: &[RankAt]) -> Vec<Self> {
        let all = [
            (kill, ScheduledAction::Death),
            (retire, ScheduledAction::Retirement),
            (join, ScheduledAction::Return),
        ];
        let mut changes: Vec<Self> = all
            .iter()
            .flat_map(|(all, wanted)| all.iter().map(|when| Self { when: *when, wanted: *wanted }))
            .collect();
        changes.sort_by_key(|change| change.when.at);
        changes
    }
}

/// A rank that is out, and when the others knew of it; times since counting began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DetectionTimes {
    /// When it died, as far as is known, or was asked to go.
    pub(super) died: Nanos,
    /// When the first of them knew, and the last one: from then on everything that it had is dealt
    /// to others.
    pub(super) by: Option<[Nanos; 2]>,
}

impl DetectionTimes {
    /// Creates the times of a rank that dies at `died`.
    pub(super) const fn from_death(died: Nanos) -> Self {
        Self { died, by: None }
    }

    /// Notes that one more knows, `at`.
    pub(super) fn and(&mut self, at: Nanos) {
        self.by = Some(self.by.map_or([at; 2], |[first, last]| [first.min(at), last.max(at)]));
    }

    /// Returns the times from the death until the first knew, and the last one, in ms; endless when
    /// nobody did.
    pub(super) fn after_ms(&self) -> [f64; 2] {
        let since = |at: Nanos| at.0.saturating_sub(self.died.0) as f64 / 1e6;
        self.by.map_or([f64::INFINITY; 2], |by| by.map(since))
    }
}

/// Returns the slowest of `losses`, as [`DetectionTimes::after_ms`]; nothing where nobody died.
pub(super) fn slowest(losses: &BTreeMap<Rank, DetectionTimes>) -> Option<[f64; 2]> {
    let all = losses.values().map(DetectionTimes::after_ms);
    all.reduce(|a, b| [a[0].max(b[0]), a[1].max(b[1])])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change__those_of_all_kinds_come_by_time() {
        let at = |rank, at| RankAt { rank, at: Nanos(at) };
        let changes = ScheduledChange::by_time(&[at(1, 5)], &[at(2, 3)], &[at(2, 9)]);
        assert_eq!(
            changes.iter().map(|change| change.wanted).collect::<Vec<_>>(),
            [ScheduledAction::Retirement, ScheduledAction::Death, ScheduledAction::Return]
        );
    }

    #[test]
    fn slowest__is_the_last_to_know_of_any() {
        assert_eq!(slowest(&BTreeMap::new()), None);
        let mut losses = BTreeMap::from([
            (Rank(1), DetectionTimes::from_death(Nanos(1_000_000))),
            (Rank(2), DetectionTimes::from_death(Nanos(0))),
        ]);
        assert_eq!(slowest(&losses), Some([f64::INFINITY; 2]), "nobody knows yet");
        for (rank, at) in [(1, 5), (1, 3), (1, 4), (2, 3)] {
            losses.get_mut(&Rank(rank)).expect("it died").and(Nanos(at * 1_000_000));
        }
        assert_eq!(slowest(&losses), Some([3.0, 4.0]));
    }
}
