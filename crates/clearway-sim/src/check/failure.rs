//! A failure as a file: everything that is needed to see it again, and what to look for.
//!
//! # Model
//! The file holds the network itself, the plan and the load, not only the seed that drew them: it
//! still means the same when the code that draws has changed. The commit and the trail of digests
//! tell how far a replay is the same run.
//!
//! # Invariants
//! I1. A written file reads back as the same trial.

use serde::{Deserialize, Serialize};
use toml::Spanned;

use clearway_proto::base::Nanos;

use super::trial::{Listener, Symptom, Trial, TrialOutcome, Violation};
use crate::fault::{Fault, FaultPlan, line_of, wrong};
use crate::spec::figure::picos;
use crate::spec::file::{FabricFile, FileError, FileOptions};
use crate::time::Picos;

/// The only format there is.
const FORMAT: u32 = 1;
/// Operations of a rank: trials have at most some dozens, and a replay of a thousand times that
/// ends in seconds.
const OPERATIONS_MAX: u32 = 10_000;

/// A trial that violates a check.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The trial.
    pub trial: Trial,
    /// What it violates.
    pub violation: Violation,
    /// Where the code stood; for people.
    pub commit: String,
    /// Digests at each look.
    pub trail: Vec<u128>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ParsedFailure {
    format: Spanned<u32>,
    commit: String,
    seed: u64,
    ranks: u32,
    operations: Spanned<u32>,
    gap_ns: u64,
    symptom: Symptom,
    sentence: String,
    #[serde(with = "picos")]
    at: Picos,
    trail: Spanned<Vec<String>>,
    fabric: Spanned<String>,
    #[serde(default)]
    fault: Vec<Spanned<Fault>>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct SerializedFailure<'a> {
    format: u32,
    commit: &'a str,
    seed: u64,
    ranks: u32,
    operations: u32,
    gap_ns: u64,
    symptom: Symptom,
    sentence: &'a str,
    #[serde(with = "picos")]
    at: Picos,
    trail: Vec<String>,
    fabric: String,
    #[serde(skip_serializing_if = "<[Fault]>::is_empty")]
    fault: &'a [Fault],
}

/// Only this much of a file of another format is understood.
#[derive(Deserialize)]
struct FormatVersion {
    format: Spanned<u32>,
}

impl Failure {
    /// Reads `text`, which is the file `file` for messages.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line.
    pub fn parse(file: &str, text: &str) -> Result<Self, FileError> {
        let at = |span: core::ops::Range<usize>, why: String| FileError::Wrong {
            file: file.to_owned(),
            line: line_of(text, span.start),
            why,
        };
        let version: FormatVersion =
            toml::from_str(text).map_err(|error| wrong(file, text, &error))?;
        if *version.format.get_ref() != FORMAT {
            let found = version.format.get_ref();
            let why = format!(
                "format {found} is not known, this program replays {FORMAT}; run the swarm of this version again, or the program that wrote the file"
            );
            return Err(at(version.format.span(), why));
        }
        let read: ParsedFailure =
            toml::from_str(text).map_err(|error| wrong(file, text, &error))?;
        let fabric = read.fabric.get_ref();
        let inside = fabric.contains('\n');
        let spec = if inside {
            FabricFile::parse(&format!("{file}, fabric"), fabric, FileOptions::default())
        } else {
            FabricFile::open(fabric, FileOptions::default())
        };
        let spec = spec?.spec;
        let hosts = spec.topology.hosts();
        if !(2..=hosts).contains(&read.ranks) {
            return Err(at(
                read.format.span(),
                format!("ranks = {}, but this fabric has hosts for 2 to {hosts}", read.ranks),
            ));
        }
        let digest = |text: &String| u128::from_str_radix(text, 16).ok();
        let trail: Option<Vec<u128>> = read.trail.get_ref().iter().map(digest).collect();
        let trail = trail.ok_or_else(|| {
            at(read.trail.span(), "a digest is up to 32 hexadecimal digits".to_owned())
        })?;
        let plan = FaultPlan::placed(file, text, read.fault);
        let operations = *read.operations.get_ref();
        if operations > OPERATIONS_MAX {
            let why = format!(
                "operations = {operations}; a rank has at most {OPERATIONS_MAX} in a trial"
            );
            return Err(at(read.operations.span(), why));
        }
        let (ranks, gap) = (read.ranks, Nanos(read.gap_ns.max(1)));
        Ok(Self {
            trial: Trial { seed: read.seed, spec, plan, ranks, operations, gap },
            violation: Violation { symptom: read.symptom, at: read.at, sentence: read.sentence },
            commit: read.commit,
            trail,
        })
    }

    /// Writes it as a file. The seed of a file has to fit 63 bits, as every number of TOML.
    pub fn to_text(&self) -> String {
        let Trial { seed, spec, plan, ranks, operations, gap } = &self.trial;
        let written = SerializedFailure {
            format: FORMAT,
            commit: &self.commit,
            seed: *seed,
            ranks: *ranks,
            operations: *operations,
            gap_ns: gap.0,
            symptom: self.violation.symptom,
            sentence: &self.violation.sentence,
            at: self.violation.at,
            trail: self.trail.iter().map(|digest| format!("{digest:032x}")).collect(),
            fabric: spec.to_text(),
            fault: &plan.faults,
        };
        toml::to_string(&written).unwrap_or_default()
    }

    /// Runs the trial again; `listen` hears everything that happens.
    ///
    /// # Errors
    /// As [`Trial::run`].
    pub fn replay(&self, listen: Listener<'_>) -> Result<TrialOutcome, FileError> {
        let outcome = self.trial.run(listen)?;
        if self.violation.symptom == Symptom::Differs {
            self.trial.run_both_ways()
        } else {
            Ok(outcome)
        }
    }

    /// Returns how many looks of `trail` are those of this failure: all of them when a replay is
    /// the same run.
    pub fn agrees_for(&self, trail: &[u128]) -> usize {
        self.trail.iter().zip(trail).take_while(|(a, b)| a == b).count()
    }
}
