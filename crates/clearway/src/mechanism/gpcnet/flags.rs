//! The flags of GPCNeT's own tests.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use clearway_proto::gpcnet::{Defect, Mended, UnknownDefect};

use crate::scenario::Time;

/// Which of the original's two programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Suite {
    /// Eight tests of all nodes.
    Network,
    /// Three tests of a fifth of the nodes, alone and beside four congestors on the others.
    Load,
}

/// A defect that is kept, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// As published in everything.
    All,
    /// As published in this.
    One(Defect),
}

impl FromStr for Kept {
    type Err = UnknownDefect;

    fn from_str(text: &str) -> Result<Self, UnknownDefect> {
        if text == "all" { Ok(Self::All) } else { text.parse().map(Self::One) }
    }
}

/// Flags of the congestion test that say nothing about these.
const OF_THE_OTHER: [&str; 11] = [
    "victims",
    "congestors",
    "intensity",
    "victim_hosts",
    "congestor_hosts",
    "congestor_groups",
    "draws",
    "time",
    "print_scenario",
    "victim_cmd",
    "congestor_cmd",
];

/// GPCNeT's own tests: `clearway bench --gpcnet --fabric edr --nodes 64`.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "GPCNeT's own tests")]
pub(crate) struct GpcnetFlags {
    /// Run GPCNeT's own tests and print its tables: `network` (eight tests) or `load` (three of them, alone and beside four
    /// congestors) [default: load].
    #[arg(long, value_enum, num_args = 0..=1, default_missing_value = "load", conflicts_with_all = OF_THE_OTHER)]
    pub(crate) gpcnet: Option<Suite>,
    /// Ranks on each host; across a job its launcher says it [default: 1].
    #[arg(long, requires = "gpcnet", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) ppn: Option<u16>,
    /// What GPCNeT does wrong and shall be done as published: all, or some of shuffle, idle-turns, long-measurements, equal-steps,
    /// ring-extremes, rounded-impact, unscaled-broadcast, eager-incast, early-figures [default: none, all mended].
    #[arg(long, requires = "gpcnet", value_delimiter = ',', value_name = "DEFECT")]
    pub(crate) as_published: Vec<Kept>,
    /// The wide table of the original's VERBOSE build, with the congestors' rows.
    #[arg(long, requires = "gpcnet")]
    pub(crate) verbose_table: bool,
    /// What GPCNeT printed elsewhere: its figures are laid beside those of this run.
    #[arg(long, requires = "gpcnet", value_name = "FILE")]
    pub(crate) beside: Option<PathBuf>,
    /// Measurements of each test, if the limit allows [default: as GPCNeT, 10000, and 100000 of the allreduce; in the simulator 1].
    #[arg(long, requires = "gpcnet")]
    pub(crate) measurements: Option<u32>,
    /// Rings of each measurement [default: 30].
    #[arg(long, requires = "gpcnet")]
    pub(crate) rings: Option<u32>,
    /// Time after which a test begins nothing new, with its unit [default: 10s].
    #[arg(long, requires = "gpcnet")]
    pub(crate) limit: Option<Time>,
}

impl GpcnetFlags {
    /// What is not as published.
    pub(super) fn mended(&self) -> Mended {
        self.as_published.iter().fold(Mended::ALL, |mended, kept| match kept {
            Kept::All => Mended::NONE,
            Kept::One(defect) => mended.without(*defect),
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
        assert_eq!(of(&[]), Mended::ALL);
        assert_eq!(of(&["all"]), Mended::NONE);
        assert_eq!(of(&["shuffle", "equal-steps"]), Mended::ALL.without(Defect::Shuffle).without(Defect::EqualSteps));
        assert!("every".parse::<Kept>().is_err());
    }
}
