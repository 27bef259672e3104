//! Accounts for every microslice that a source offered, by input.
//!
//! # Model
//! Each offered microslice is counted in one account:
//! ```text
//!   built        in the core of a timeslice that a sink got
//!   undelivered  given to a timeslice that no living builder reports: it died, or none built it;
//!                or in a contribution that came to its builder with other bytes
//!   unused       kept, and not given when the run ended
//!   passed       of timeslices in which the input took no part
//!   repeated, late, damaged    not kept: see `microslice::Slicer`
//!   overflowed   dropped by the source, because the input had no room
//! ```
//! *Missing* microslices are in no account: the source did not offer them, but there is a gap where
//! they would start. An input that died tells nothing: its entry has only what builders counted.
//!
//! Each timeslice that is marked as incomplete has a count that says why: `missing`, `overflowed`,
//! `late`, `absent`, `corrupt`, or `short`, which counts contributions that lack microslices outside
//! of the core alone.
//!
//! The thread of the source counts the microslices that it offers, the input counts their outcomes,
//! and builders count those that their sinks got. If the sums of an entry differ, the program has a
//! fault.
//!
//! # Invariants
//! I1. The accounts of an entry without a fault add up to the microslices that its source offered.

use std::collections::BTreeMap;

use clearway_proto::microslice::Offered;
use serde::{Deserialize, Serialize};

/// What an input counted of the microslices of its source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SourceCounts {
    /// Taken from the source, or dropped by it.
    pub(crate) offered: u64,
    /// Given to timeslices, each counted in the core of one.
    pub(crate) given: u64,
    /// Bytes of their contents.
    pub(crate) bytes: u64,
    /// Not offered, although there is a gap where they would start.
    pub(crate) missing: u64,
    /// Contributions marked as incomplete whose core lacks nothing that can be counted.
    pub(crate) short: u64,
    /// Of timeslices in which the input took no part.
    pub(crate) passed: u64,
    /// With the start of one before.
    pub(crate) repeated: u64,
    /// Behind a younger one, or of a timeslice that was given up.
    pub(crate) late: u64,
    /// With a start too far from the one before.
    pub(crate) damaged: u64,
    /// Dropped by the source for want of room.
    pub(crate) overflowed: u64,
    /// Those of them that were dropped because a builder held the input's memory, by its rank.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) held_back: BTreeMap<u32, u64>,
    /// What is there and was not given, at the end.
    pub(crate) unused: u64,
}

impl SourceCounts {
    /// Counts a microslice that was offered; one that is kept is unused until it is given.
    pub(super) const fn offer(&mut self, offered: Offered) {
        self.offered += 1;
        let count = match offered {
            Offered::Kept => &mut self.unused,
            Offered::Passed => &mut self.passed,
            Offered::Repeated => &mut self.repeated,
            Offered::Late => &mut self.late,
            Offered::Damaged => &mut self.damaged,
        };
        *count += 1;
    }

    /// Counts microslices that the source dropped, because `builder` held the input's memory where
    /// there is one.
    pub(super) fn overflow(&mut self, count: u64, builder: Option<u32>) {
        self.offered += count;
        self.overflowed += count;
        if let Some(builder) = builder {
            *self.held_back.entry(builder).or_default() += count;
        }
    }

    /// Returns how many were offered and given to no timeslice, although the input took part.
    const fn lost(&self) -> u64 {
        self.repeated + self.late + self.damaged + self.overflowed
    }

    /// Returns how many are in no timeslice although the input took part.
    pub(super) const fn lacking(&self) -> u64 {
        self.missing + self.lost()
    }

    /// Returns the builder that held back most, and how many microslices.
    pub(super) fn most_held_back(&self) -> Option<(u32, u64)> {
        let most = self.held_back.iter().max_by_key(|(_, count)| **count);
        most.map(|(builder, count)| (*builder, *count))
    }

    /// Adds `other`.
    pub(super) fn add(&mut self, other: &Self) {
        self.offered += other.offered;
        self.given += other.given;
        self.bytes += other.bytes;
        self.missing += other.missing;
        self.short += other.short;
        self.passed += other.passed;
        self.repeated += other.repeated;
        self.late += other.late;
        self.damaged += other.damaged;
        self.overflowed += other.overflowed;
        for (builder, count) in &other.held_back {
            *self.held_back.entry(*builder).or_default() += count;
        }
        self.unused += other.unused;
    }

    /// Counts a contribution.
    pub(super) const fn give(&mut self, cut: &Self) {
        self.given += cut.given;
        self.bytes += cut.bytes;
        self.missing += cut.missing;
        self.short += cut.short;
        self.unused -= cut.given;
    }

    /// Takes back what a contribution added that counts no more.
    pub(super) const fn take_back(&mut self, cut: &Self) {
        self.given -= cut.given;
        self.bytes -= cut.bytes;
        self.missing -= cut.missing;
        self.short -= cut.short;
        self.passed += cut.given;
    }

    /// Keeps what was taken back, because it will be given again.
    pub(super) const fn keep_again(&mut self, cut: &Self) {
        self.passed -= cut.given;
        self.unused += cut.given;
    }
}

/// What a sink has of one input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BuiltCounts {
    /// Microslices, each in the core of one timeslice.
    pub(crate) microslices: u64,
    /// Timeslices for which the input gave nothing, because it was out.
    pub(crate) absent: u64,
    /// Contributions that made no sense.
    pub(crate) corrupt: u64,
}

impl BuiltCounts {
    /// Adds `other`.
    pub(super) const fn add(&mut self, other: Self) {
        self.microslices += other.microslices;
        self.absent += other.absent;
        self.corrupt += other.corrupt;
    }
}

/// The accounts of a builder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct BuilderEntry {
    /// The rank of the builder.
    pub(crate) builder: u32,
    /// Whether the builder died.
    pub(crate) is_dead: bool,
    /// Microslices, each in the core of one timeslice; unknown if it died, or looks at nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) built: Option<u64>,
    /// Microslices that sources dropped while this builder held the memory of their inputs.
    pub(crate) held_back: u64,
    /// Its connections on which something is lacking.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) links: Vec<LinkEntry>,
}

/// What a builder lacks of one input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct LinkEntry {
    /// The rank of the input.
    pub(crate) input: u32,
    /// Timeslices without the input.
    pub(crate) absent: u64,
    /// Contributions that made no sense.
    pub(crate) corrupt: u64,
    /// Microslices that the source of the input dropped while the builder held its memory.
    pub(crate) held_back: u64,
}

impl BuilderEntry {
    /// Creates the entry of `builder` from what its sink has of each input, unless it is out, and
    /// what `inputs` say.
    pub(super) fn new(builder: u32, built: Option<&[BuiltCounts]>, inputs: &[LedgerEntry]) -> Self {
        let link = |entry: &LedgerEntry| {
            let source = entry.source.as_ref();
            let held_back = source.and_then(|source| source.held_back.get(&builder)).copied();
            let counts = built.and_then(|built| built.get(entry.input as usize)).copied();
            let BuiltCounts { absent, corrupt, .. } = counts.unwrap_or_default();
            LinkEntry { input: entry.input, absent, corrupt, held_back: held_back.unwrap_or(0) }
        };
        let links: Vec<LinkEntry> = inputs.iter().map(link).collect();
        let is_lacking = |link: &&LinkEntry| link.absent + link.corrupt + link.held_back > 0;
        Self {
            builder,
            is_dead: built.is_none(),
            built: built
                .filter(|built| !built.is_empty())
                .map(|built| built.iter().map(|counts| counts.microslices).sum()),
            held_back: links.iter().map(|link| link.held_back).sum(),
            links: links.iter().filter(is_lacking).copied().collect(),
        }
    }
}

/// Adds what two sinks have, by input.
pub(super) fn add_built(all: &mut Vec<BuiltCounts>, other: &[BuiltCounts]) {
    if all.len() < other.len() {
        all.resize(other.len(), BuiltCounts::default());
    }
    all.iter_mut().zip(other).for_each(|(sum, one)| sum.add(*one));
}

/// How far a ledger can be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BuilderReports {
    /// Builders look at nothing.
    None,
    /// A builder that had built something is gone.
    Some,
    /// All builders say what they have.
    All,
}

/// The accounts of an input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct LedgerEntry {
    /// The rank of the input.
    pub(crate) input: u32,
    /// Whether the input died.
    pub(crate) is_dead: bool,
    /// What the input says; nothing if it died.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<SourceCounts>,
    pub(crate) built: u64,
    /// Unknown if the input died.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) undelivered: Option<u64>,
    /// Timeslices without the input.
    pub(crate) absent: u64,
    /// Contributions that made no sense.
    pub(crate) corrupt: u64,
    /// Why the sums are wrong, if they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fault: Option<String>,
}

impl LedgerEntry {
    /// Creates the entry of `input` from what it says itself, unless it died, and what builders say
    /// of it.
    pub(super) fn new(
        input: u32,
        source: Option<&SourceCounts>,
        built: BuiltCounts,
        reports: BuilderReports,
    ) -> Self {
        let BuiltCounts { microslices, absent, corrupt } = built;
        let Some(source) = source else {
            let built = microslices;
            return Self { input, is_dead: true, built, absent, corrupt, ..Self::default() };
        };
        let known = if reports == BuilderReports::None { source.given } else { microslices };
        let undelivered = source.given.saturating_sub(known);
        let mut entry = Self {
            input,
            is_dead: false,
            source: Some(source.clone()),
            built: known,
            undelivered: Some(undelivered),
            absent,
            corrupt,
            fault: None,
        };
        let ends = known + undelivered + source.lost() + source.passed + source.unused;
        // What a contribution had that makes no sense, only its input knows.
        let is_explained = corrupt > 0 || reports != BuilderReports::All;
        entry.fault = if known > source.given || undelivered > 0 && !is_explained {
            Some(format!(
                "input {input} gave {} microslices and builders have {known} of it",
                source.given
            ))
        } else if source.held_back.values().sum::<u64>() > source.overflowed {
            Some(format!(
                "the source of input {input} dropped {} microslices and builders held back more",
                source.overflowed
            ))
        } else if ends != source.offered {
            Some(format!(
                "the source of input {input} offered {} microslices and {ends} are accounted for",
                source.offered
            ))
        } else {
            None
        };
        entry
    }

    /// Returns whether all that the source should have offered was built.
    pub(crate) fn is_whole(&self) -> bool {
        let others = self.undelivered.unwrap_or(0) + self.absent + self.corrupt;
        let own = self.source.as_ref().map(|source| source.lacking() + source.short);
        own == Some(0) && others == 0 && self.fault.is_none()
    }

    /// Returns the accounts that are no zero, by name.
    pub(crate) fn accounts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let none = SourceCounts::default();
        let source = self.source.as_ref().unwrap_or(&none);
        let all = [
            ("built", self.built),
            ("missing", source.missing),
            ("repeated", source.repeated),
            ("late", source.late),
            ("damaged", source.damaged),
            ("overflowed", source.overflowed),
            ("passed", source.passed),
            ("unused", source.unused),
            ("undelivered", self.undelivered.unwrap_or(0)),
            ("corrupt contributions", self.corrupt),
            ("timeslices without it", self.absent),
            ("short timeslices", source.short),
        ];
        all.into_iter().filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts() -> SourceCounts {
        SourceCounts {
            offered: 100,
            given: 80,
            repeated: 3,
            late: 2,
            damaged: 1,
            overflowed: 4,
            passed: 5,
            unused: 5,
            missing: 9,
            ..SourceCounts::default()
        }
    }

    fn built(microslices: u64) -> BuiltCounts {
        BuiltCounts { microslices, ..BuiltCounts::default() }
    }

    #[test]
    fn new__sums_that_agree_are_no_fault() {
        let entry = LedgerEntry::new(2, Some(&counts()), built(80), BuilderReports::All);
        assert_eq!(
            (entry.fault.as_deref(), entry.undelivered, entry.is_whole()),
            (None, Some(0), false)
        );
        let entry = LedgerEntry::new(2, Some(&counts()), built(0), BuilderReports::None);
        assert_eq!((entry.fault.as_deref(), entry.built), (None, 80));
        let entry = LedgerEntry::new(2, Some(&counts()), built(70), BuilderReports::Some);
        assert_eq!((entry.fault.as_deref(), entry.undelivered), (None, Some(10)));
    }

    #[test]
    fn new__what_was_in_a_corrupt_contribution_is_undelivered() {
        let lacking = BuiltCounts { microslices: 76, absent: 0, corrupt: 1 };
        let entry = LedgerEntry::new(2, Some(&counts()), lacking, BuilderReports::All);
        assert_eq!((entry.fault.as_deref(), entry.undelivered), (None, Some(4)));
        let lacking = BuiltCounts { microslices: 81, ..lacking };
        let entry = LedgerEntry::new(2, Some(&counts()), lacking, BuilderReports::All);
        assert!(entry.fault.is_some(), "more than was given");
    }

    #[test]
    fn new__a_miscount_of_one_is_found_at_either_end() {
        for microslices in [79, 81] {
            let entry =
                LedgerEntry::new(2, Some(&counts()), built(microslices), BuilderReports::All);
            let sentence =
                format!("input 2 gave 80 microslices and builders have {microslices} of it");
            assert_eq!(entry.fault, Some(sentence));
        }
        let mut more = counts();
        more.held_back.insert(9, 5);
        let entry = LedgerEntry::new(2, Some(&more), built(80), BuilderReports::All);
        let sentence = "the source of input 2 dropped 4 microslices and builders held back more";
        assert_eq!(entry.fault.as_deref(), Some(sentence));
        for planted in 0..7 {
            let mut counts = counts();
            let account = [
                &mut counts.offered,
                &mut counts.repeated,
                &mut counts.late,
                &mut counts.damaged,
                &mut counts.overflowed,
                &mut counts.passed,
                &mut counts.unused,
            ];
            *account.into_iter().nth(planted).expect("an account") += 1;
            let entry = LedgerEntry::new(2, Some(&counts), built(80), BuilderReports::All);
            assert!(entry.fault.is_some(), "account {planted}");
        }
    }

    #[test]
    fn new__a_builder_has_a_row_for_each_link_that_lacks_something() {
        let source = SourceCounts {
            overflowed: 9,
            held_back: [(8, 4), (9, 5)].into_iter().collect(),
            ..SourceCounts::default()
        };
        let inputs = [
            LedgerEntry::new(0, None, built(3), BuilderReports::All),
            LedgerEntry { input: 1, source: Some(source), ..LedgerEntry::default() },
            LedgerEntry::new(2, Some(&counts()), built(80), BuilderReports::All),
        ];
        let lacking = BuiltCounts { microslices: 3, absent: 6, corrupt: 1 };
        let entry = BuilderEntry::new(9, Some(&[lacking, built(20), built(40)]), &inputs);
        let expected = [
            LinkEntry { input: 0, absent: 6, corrupt: 1, held_back: 0 },
            LinkEntry { input: 1, absent: 0, corrupt: 0, held_back: 5 },
        ];
        assert_eq!((entry.built, entry.held_back, &entry.links[..]), (Some(63), 5, &expected[..]));
        let dead = BuilderEntry::new(8, None, &inputs);
        assert_eq!((dead.is_dead, dead.built, dead.held_back), (true, None, 4));
    }

    #[test]
    fn new__what_a_dead_input_was_offered_is_not_known() {
        let built = BuiltCounts { microslices: 7, absent: 3, corrupt: 0 };
        let entry = LedgerEntry::new(1, None, built, BuilderReports::All);
        assert!(entry.is_dead && entry.fault.is_none() && !entry.is_whole());
        let accounts: Vec<_> = entry.accounts().collect();
        assert_eq!(accounts, [("built", 7), ("timeslices without it", 3)]);
        let row = serde_json::to_value(&entry).expect("JSON");
        let expected = serde_json::json!(
            {"input": 1, "is_dead": true, "built": 7, "absent": 3, "corrupt": 0}
        );
        assert_eq!(row, expected, "no number that nobody knows");
    }
}
