//! The flags of GPCNeT's own tests.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use clearway_proto::gpcnet::{CorrectedDefects, Defect, UnknownDefect};

use crate::scenario::Time;

/// Which of the original's two programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Suite {
    /// Eight tests of all nodes.
    Network,
    /// Three tests of a fifth of the nodes, alone and under four congestors on the others.
    Load,
}

/// A defect that is kept, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeptDefect {
    /// As published in everything.
    All,
    /// As published in this.
    One(Defect),
}

impl FromStr for KeptDefect {
    type Err = UnknownDefect;

    fn from_str(text: &str) -> Result<Self, UnknownDefect> {
        if text == "all" { Ok(Self::All) } else { text.parse().map(Self::One) }
    }
}

/// How the tests are made, wherever they run.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct GpcnetFlags {
    /// Start N ranks on each host; across a job the launcher decides it [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) ppn: Option<u16>,
    /// Keep these defects of GPCNeT: all, or some of shuffle, idle-turns, long-measurements,
    /// equal-steps, ring-extremes, rounded-impact, unscaled-broadcast, eager-incast, early-figures
    /// [default: none, all mended].
    #[arg(long, value_delimiter = ',', value_name = "DEFECT")]
    pub(crate) as_published: Vec<KeptDefect>,
    /// Print the wide table of the original's VERBOSE build, with the congestors' rows.
    #[arg(long)]
    pub(crate) verbose_table: bool,
    /// Compare with the output of GPCNeT in this file.
    #[arg(long = "beside", value_name = "FILE")]
    pub(crate) saved_run: Option<PathBuf>,
    /// Take N measurements of each test, if the limit allows [default: as GPCNeT, 10000, and 100000
    /// of the allreduce; in the simulator 1].
    #[arg(long, value_name = "N")]
    pub(crate) measurements: Option<u32>,
    /// Run N rings for each measurement [default: 30].
    #[arg(long, value_name = "N")]
    pub(crate) rings: Option<u32>,
    /// Begin nothing new in a test after this time, with its unit [default: 10s].
    #[arg(long)]
    pub(crate) limit: Option<Time>,
}

impl GpcnetFlags {
    /// Returns what is not as published.
    pub(super) fn mended(&self) -> CorrectedDefects {
        self.as_published.iter().fold(CorrectedDefects::ALL, |mended, kept| match kept {
            KeptDefect::All => CorrectedDefects::NONE,
            KeptDefect::One(defect) => mended.without(*defect),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mended__all_but_what_is_named() {
        let of = |names: &[&str]| {
            let as_published = names.iter().map(|name| name.parse().expect(name)).collect();
            GpcnetFlags { as_published, ..GpcnetFlags::default() }.mended()
        };
        assert_eq!(of(&[]), CorrectedDefects::ALL);
        assert_eq!(of(&["all"]), CorrectedDefects::NONE);
        assert_eq!(
            of(&["shuffle", "equal-steps"]),
            CorrectedDefects::ALL.without(Defect::Shuffle).without(Defect::EqualSteps)
        );
        assert!("every".parse::<KeptDefect>().is_err());
    }
}
