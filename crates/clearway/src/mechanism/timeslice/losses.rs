//! Where microslices were lost: by input, builder, and second.
//!
//! # Model
//! Inputs report their counts from time to time. What a count has grown by since the report before
//! belongs to the second of the report.
//!
//! A detector drops microslices because its input has no memory for them: the oldest contribution
//! is at a builder that has not released it. The input says which builder that was
//! ([`SourceCounts::held_back`]). That builder says what it waits for: its sink, or another input.
//! A drop is explained by the builder's next report and the two before.
//! So a drop has one of these causes:
//! ```text
//!   sink of builder b     b has complete timeslices that its sink has not taken
//!   input i               b has not all contributions, and the first one that it lacks is that of i
//!   the input itself      it had memory, and did not take the microslices in time
//! ```
//!
//! # Invariants
//! I1. The rows of an input add up to its counts.
//! I2. There are at most [`ROWS_MAX`] rows, or one for each input: where there were more, a row
//!     stands for twice the time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ledger::SourceCounts;

/// Rows that are kept: an hour of losses at one input, in seconds.
const ROWS_MAX: usize = 4_096;

/// What a builder waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum BuilderWait {
    /// For nothing that anybody knows of.
    #[default]
    Nothing,
    /// It has complete timeslices that its sink has not taken.
    Sink,
    /// The contribution of this input to its oldest timeslice.
    Input(u32),
}

/// Why microslices were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DropCause {
    /// The sink of the builder with this rank took timeslices too slowly.
    Sink(u32),
    /// The input with this rank gave too slowly what this builder waited for.
    Input(u32),
    /// The builder with this rank released too slowly, and nobody knows why.
    Builder(u32),
    /// The input had memory and took nothing.
    Itself,
}

impl DropCause {
    /// Returns the cause as the end of a sentence.
    pub(crate) fn sentence(self) -> String {
        match self {
            Self::Sink(rank) => format!("held back by the sink of rank {rank}"),
            Self::Input(rank) => format!("held back by input {rank}"),
            Self::Builder(rank) => format!("held back by rank {rank}"),
            Self::Itself => "not taken in time by the input itself".to_owned(),
        }
    }
}

/// What one input lost in some seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct LossRow {
    /// The first second since the run began.
    pub(crate) second: u64,
    pub(crate) input: u32,
    /// What each account has grown by; an account may shrink when an input retires.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) missing: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) repeated: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) late: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) damaged: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) overflowed: i64,
    /// Why the source overflowed, and how many microslices each cause made it drop.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) causes: Vec<(DropCause, u64)>,
}

/// serde asks for a reference.
#[expect(clippy::trivially_copy_pass_by_ref)]
const fn is_zero(count: &i64) -> bool {
    *count == 0
}

impl LossRow {
    fn add(&mut self, other: &Self) {
        self.missing += other.missing;
        self.repeated += other.repeated;
        self.late += other.late;
        self.damaged += other.damaged;
        self.overflowed += other.overflowed;
        for (cause, count) in &other.causes {
            self.blame(*cause, *count);
        }
    }

    fn blame(&mut self, cause: DropCause, count: u64) {
        match self.causes.iter_mut().find(|(known, _)| *known == cause) {
            Some((_, sum)) => *sum += count,
            None => self.causes.push((cause, count)),
        }
    }

    const fn is_empty(&self) -> bool {
        self.missing == 0
            && self.repeated == 0
            && self.late == 0
            && self.damaged == 0
            && self.overflowed == 0
            && self.causes.is_empty()
    }
}

/// All losses of a run.
#[derive(Clone, Debug)]
pub(super) struct LossTimeline {
    /// Seconds of one row.
    step: u64,
    rows: BTreeMap<(u64, u32), LossRow>,
    last: BTreeMap<u32, SourceCounts>,
    /// What each builder waits for, and what it waited for at the two reports before.
    waits: BTreeMap<u32, [BuilderWait; 3]>,
    /// What each builder held back since its last report: second, input, microslices.
    pending: BTreeMap<u32, Vec<(u64, u32, u64)>>,
}

impl Default for LossTimeline {
    fn default() -> Self {
        Self {
            step: 1,
            rows: BTreeMap::new(),
            last: BTreeMap::new(),
            waits: BTreeMap::new(),
            pending: BTreeMap::new(),
        }
    }
}

impl LossTimeline {
    /// Notes what the builder with rank `builder` waits for now.
    pub(super) fn waits(&mut self, builder: u32, wait: BuilderWait) {
        let waits = self.waits.entry(builder).or_default();
        *waits = [wait, waits[0], waits[1]];
        self.explain(builder);
    }

    /// Begins the counts of `input` anew: another process counts from zero.
    pub(super) fn restart(&mut self, input: u32) {
        self.last.remove(&input);
    }

    /// Adds what `input` has counted in all up to `second`.
    pub(super) fn add(&mut self, second: u64, input: u32, counts: &SourceCounts) {
        let last = self.last.insert(input, counts.clone()).unwrap_or_default();
        let grown = |now: u64, before: u64| now.wrapping_sub(before) as i64;
        let mut row = LossRow {
            missing: grown(counts.missing, last.missing),
            repeated: grown(counts.repeated, last.repeated),
            late: grown(counts.late, last.late),
            damaged: grown(counts.damaged, last.damaged),
            overflowed: grown(counts.overflowed, last.overflowed),
            ..LossRow::default()
        };
        let mut own = u64::try_from(row.overflowed).unwrap_or(0);
        for (builder, count) in &counts.held_back {
            let count = count - last.held_back.get(builder).copied().unwrap_or(0).min(*count);
            if count > 0 {
                self.pending.entry(*builder).or_default().push((second, input, count));
                own = own.saturating_sub(count);
            }
        }
        if own > 0 {
            row.blame(DropCause::Itself, own);
        }
        if !row.is_empty() {
            self.put(second, input, &row);
        }
    }

    /// Returns why `builder` holds contributions.
    fn cause_at(&self, builder: u32) -> DropCause {
        let waits = self.waits.get(&builder).copied().unwrap_or_default();
        // Every builder waits for some input nearly always: a sink that was behind says more.
        if waits.contains(&BuilderWait::Sink) {
            return DropCause::Sink(builder);
        }
        // Memory lasts for a while: the cause is older than the drop.
        let inputs = waits.iter().rev().filter_map(|wait| match wait {
            BuilderWait::Input(input) => Some(DropCause::Input(*input)),
            BuilderWait::Nothing | BuilderWait::Sink => None,
        });
        { inputs }.next().unwrap_or(DropCause::Builder(builder))
    }

    /// Explains what `builder` held back.
    fn explain(&mut self, builder: u32) {
        let cause = self.cause_at(builder);
        for (second, input, count) in self.pending.remove(&builder).unwrap_or_default() {
            let causes = vec![(cause, count)];
            self.put(second, input, &LossRow { causes, ..LossRow::default() });
        }
    }

    fn put(&mut self, second: u64, input: u32, row: &LossRow) {
        self.merge(second, input, row);
        while self.rows.len() > ROWS_MAX.max(self.last.len()) {
            self.step *= 2;
            for ((second, input), row) in std::mem::take(&mut self.rows) {
                self.merge(second, input, &row);
            }
        }
    }

    fn merge(&mut self, second: u64, input: u32, row: &LossRow) {
        let second = second / self.step * self.step;
        let all = self.rows.entry((second, input)).or_default();
        (all.second, all.input) = (second, input);
        all.add(row);
    }

    /// Returns how many seconds a row stands for.
    pub(super) const fn step(&self) -> u64 {
        self.step
    }

    /// Ends the run: there are no more reports. Returns all rows, by second and input.
    pub(super) fn finish(&mut self) -> Vec<LossRow> {
        let builders: Vec<u32> = self.pending.keys().copied().collect();
        builders.into_iter().for_each(|builder| self.explain(builder));
        self.rows.values().cloned().collect()
    }
}

/// Adds up the causes of `rows`, the largest first: each input, cause, and count, and the first and
/// the last second.
pub(super) fn by_cause(rows: &[LossRow]) -> Vec<(u32, DropCause, u64, [u64; 2])> {
    let mut sums: BTreeMap<(u32, DropCause), (u64, [u64; 2])> = BTreeMap::new();
    for row in rows {
        for (cause, count) in &row.causes {
            let sum = sums.entry((row.input, *cause)).or_insert((0, [row.second; 2]));
            (sum.0, sum.1[1]) = (sum.0 + count, row.second);
        }
    }
    let mut all: Vec<_> = sums
        .into_iter()
        .map(|((input, cause), (count, seconds))| (input, cause, count, seconds))
        .collect();
    all.sort_by_key(|(_, _, count, _)| std::cmp::Reverse(*count));
    all
}

#[cfg(test)]
mod attribution;
#[cfg(test)]
mod machine;
#[cfg(test)]
mod swarm;
#[cfg(test)]
mod tests {
    use super::*;

    fn counts(overflowed: u64, held_back: &[(u32, u64)]) -> SourceCounts {
        let held_back = held_back.iter().copied().collect();
        SourceCounts { overflowed, held_back, ..SourceCounts::default() }
    }

    #[test]
    fn add__a_drop_has_the_cause_that_its_builder_had_then() {
        let mut losses = LossTimeline::default();
        losses.add(4, 0, &counts(10, &[(7, 8)]));
        losses.waits(7, BuilderWait::Input(3));
        losses.waits(7, BuilderWait::Input(4));
        losses.waits(7, BuilderWait::Sink);
        losses.add(5, 0, &counts(30, &[(7, 28)]));
        losses.add(6, 0, &counts(30, &[(7, 28)]));
        losses.waits(7, BuilderWait::Input(2));
        let rows = losses.finish();
        assert_eq!(rows.len(), 2, "nothing was lost in second 6");
        assert_eq!((rows[0].second, rows[0].overflowed, rows[1].overflowed), (4, 10, 20));
        assert_eq!(rows[0].causes, [(DropCause::Itself, 2), (DropCause::Input(3), 8)]);
        assert_eq!(rows[1].causes, [(DropCause::Sink(7), 20)]);
        let causes = by_cause(&rows);
        assert_eq!(causes[0], (0, DropCause::Sink(7), 20, [5, 5]));
    }

    #[test]
    fn add__rows_have_a_bound_and_add_up() {
        let mut losses = LossTimeline::default();
        for second in 0..3 * ROWS_MAX as u64 {
            let late = second + 1;
            losses.add(second, 2, &SourceCounts { late, ..SourceCounts::default() });
        }
        let rows = losses.finish();
        assert!(rows.len() <= ROWS_MAX && losses.step() == 4, "{}", rows.len());
        assert_eq!(rows.iter().map(|row| row.late).sum::<i64>(), 3 * ROWS_MAX as i64);
    }
}
