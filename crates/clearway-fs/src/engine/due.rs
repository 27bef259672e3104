//! Files that the store must have at a time: raises their class when the drain is too slow for them,
//! and counts those that are late.
//!
//! # Model
//! Every second the rate that all deadlines need is compared with the rate at which such files
//! reached the store ([`ClassPromotion`]). Their least class rises from scavenger to bulk and best
//! effort, never above, and falls again when half of the rate is enough.

use std::collections::BTreeMap;

use clearway_proto::base::{BitsPerSec, Bytes, Class, LocalNs, Nanos};
use clearway_proto::flow::{ClassChange, ClassPromotion, DeadlineQueue};
use clearway_proto::staging::{DueFile, WallNs};

const SECOND: u64 = 1_000_000_000;
/// The time between reviews.
const REVIEW: Nanos = Nanos::from_secs(1);
/// How long nothing may arrive in the store until that counts as a rate of zero: a pass of a slow
/// store takes some seconds.
const SILENCE_MAX: Nanos = Nanos::from_secs(10);

/// The deadlines of a drain.
#[derive(Debug)]
pub(super) struct DueFiles {
    promotion: ClassPromotion,
    /// The last review; none while no file has a deadline.
    reviewed: Option<LocalNs>,
    /// Since when `copied` counts.
    measured: LocalNs,
    /// Bytes of files with deadlines that reached the store.
    copied: u64,
    late: u64,
    is_late_reported: bool,
}

impl Default for DueFiles {
    fn default() -> Self {
        Self {
            promotion: ClassPromotion::new(Class::Scavenger),
            reviewed: None,
            measured: LocalNs(0),
            copied: 0,
            late: 0,
            is_late_reported: false,
        }
    }
}

impl DueFiles {
    /// Returns the class of a file with a deadline.
    pub(super) fn class(&self, requested: Class) -> Class {
        requested.min(self.promotion.class())
    }

    /// Returns how many files are late.
    pub(super) const fn late(&self) -> u64 {
        self.late
    }

    /// Notes bytes of a file with a deadline that reached the store.
    pub(super) const fn copied(&mut self, bytes: u64) {
        self.copied += bytes;
    }

    /// Returns when to review again; none while no file has a deadline.
    pub(super) fn next_review(&self) -> Option<LocalNs> {
        self.reviewed.map(|at| at + REVIEW)
    }

    /// Reviews the files with deadlines, if it is time: returns a change of their class.
    pub(super) fn review<'a>(
        &mut self,
        now: LocalNs,
        wall: WallNs,
        due: impl Iterator<Item = &'a DueFile>,
    ) -> Option<ClassChange> {
        if self.next_review().is_some_and(|at| at > now) {
            return None;
        }
        // Files of one second are one item: there can be a million.
        let mut seconds: BTreeMap<u64, u64> = BTreeMap::new();
        self.late = 0;
        for DueFile { at, left } in due {
            self.late += u64::from(*at < wall);
            *seconds.entry(at.0 / SECOND).or_default() += left;
        }
        let mut queue = DeadlineQueue::default();
        seconds.into_iter().for_each(|(at, left)| queue.push(at * SECOND, Bytes(left), ()));
        if queue.is_empty() {
            *self = Self { is_late_reported: self.is_late_reported, ..Self::default() };
            return None;
        }
        if self.reviewed.replace(now).is_none() {
            (self.measured, self.copied) = (now, 0);
        }
        let elapsed = now.since(self.measured);
        let is_silent = self.copied == 0 && elapsed < SILENCE_MAX;
        let carried = (elapsed.0 > 0 && !is_silent).then(|| {
            let bits = u128::from(self.copied) * 8_000_000_000 / u128::from(elapsed.0);
            (self.measured, self.copied) = (now, 0);
            BitsPerSec(u64::try_from(bits).unwrap_or(u64::MAX))
        });
        self.promotion.review(wall.0, &queue, carried)
    }

    /// Returns a sentence when the first file is late, and when none is any more.
    pub(super) fn sentence(&mut self) -> Option<String> {
        if (self.late > 0) == self.is_late_reported {
            return None;
        }
        self.is_late_reported = self.late > 0;
        Some(match self.late {
            0 => "the store has all files that had passed their deadline".to_owned(),
            1 => "the store lacks 1 file that has passed its deadline".to_owned(),
            late => format!("the store lacks {late} files that have passed their deadline"),
        })
    }
}

/// Returns the sentence about a change of the class.
pub(super) fn change_sentence(change: &ClassChange) -> String {
    let ClassChange { from, to, needed, carried } = change;
    let carried = carried.map_or("a rate that was not measured".to_owned(), |it| it.to_string());
    match to < from {
        true if needed.0 == u64::MAX => {
            format!("files with a deadline are drained as {to}: the deadline of one has come")
        }
        true => format!(
            "files with a deadline are drained as {to}: they need {needed}, and {from} carried {carried}"
        ),
        false => format!("files with a deadline are drained in the class {to} again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(at: u64, left: u64) -> DueFile {
        DueFile { at: WallNs(at * SECOND), left }
    }

    fn review(files: &mut DueFiles, second: u64, due: &[DueFile]) -> Option<ClassChange> {
        files.review(LocalNs(second * SECOND), WallNs(second * SECOND), due.iter())
    }

    #[test]
    fn review__files_that_come_too_late_at_the_present_rate_rise_by_one_class_a_second() {
        let mut files = DueFiles::default();
        let due = [file(100, 100 << 20)];
        assert_eq!(review(&mut files, 1, &due), None);
        let mut classes = Vec::new();
        for second in 2..5 {
            // 1 MiB a second; just more is needed.
            files.copied(1 << 20);
            classes.extend(review(&mut files, second, &due).map(|change| change.to));
        }
        assert_eq!(classes, [Class::Bulk, Class::BestEffort]);
        assert_eq!(files.class(Class::Scavenger), Class::BestEffort);
        assert_eq!(files.class(Class::LowLatency), Class::LowLatency, "a requested class stays");
    }

    #[test]
    fn review__a_silent_store_counts_as_slow_after_ten_seconds_only() {
        let mut files = DueFiles::default();
        let due = [file(1000, 1 << 20)];
        let changed: Vec<u64> =
            (1..14).filter(|second| review(&mut files, *second, &due).is_some()).collect();
        assert_eq!(changed, [11]);
    }

    #[test]
    fn review__late_files_are_counted_and_said_once() {
        let mut files = DueFiles::default();
        let due = [file(5, 1), file(50, 1)];
        review(&mut files, 1, &due);
        assert_eq!((files.late(), files.sentence()), (0, None));
        let change = review(&mut files, 6, &due).expect("urgent");
        assert_eq!(change.to, Class::BestEffort);
        assert_eq!(files.late(), 1);
        assert!(files.sentence().is_some_and(|said| said.contains("lacks 1 file that")));
        assert_eq!(files.sentence(), None);
        review(&mut files, 7, &[]);
        assert!(files.sentence().is_some_and(|said| said.contains("has all files")));
    }

    #[test]
    fn review__without_deadlines_nothing_is_raised_or_reviewed() {
        let mut files = DueFiles::default();
        assert_eq!((review(&mut files, 1, &[]), files.next_review()), (None, None));
        review(&mut files, 2, &[file(3, 1 << 30)]);
        assert_eq!(files.next_review(), Some(LocalNs(3 * SECOND)));
        review(&mut files, 3, &[]);
        assert_eq!((files.class(Class::Scavenger), files.next_review()), (Class::Scavenger, None));
    }
}
