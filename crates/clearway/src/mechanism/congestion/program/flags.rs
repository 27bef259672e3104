//! The flags of programs of the user's own.

use clap::{Args, ValueEnum};
use clearway_proto::base::Nanos;
use clearway_proto::congestion::Figure;

use crate::scenario::Time;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FigureFlag {
    /// How long the command runs.
    Wall,
    /// The last number of its last line: the less the better.
    Time,
    /// The last number of its last line: the more the better.
    Rate,
}

/// Programs of the user's own: `clearway bench --victim-cmd 'mpirun -n 4 osu_allreduce'
/// --congestor-cmd 'iperf3 -c n7'`.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Programs of your own")]
pub(crate) struct ProgramFlags {
    /// Run this command line alone and under load, again and again, and judge how much
    /// slower it gets. The load is Clearway's congestors in a lab or on a cluster, or
    /// --congestor-cmd on this machine or with --on lab.
    #[arg(long, value_name = "CMD", conflicts_with_all = ["victims", "victim_class", "time", "fabric", "groups", "null_runs", "loaded_runs"])]
    pub(crate) victim_cmd: Option<String>,
    /// Load the network with this command line, started anew whenever it ends, instead of
    /// Clearway's congestors.
    #[arg(
        long,
        value_name = "CMD",
        conflicts_with_all = ["congestors", "congestor_class", "intensity", "bursts", "fabric"]
    )]
    pub(crate) congestor_cmd: Option<String>,
    /// Take this figure from the victim's command [default: wall].
    #[arg(long, value_enum, requires = "victim_cmd")]
    pub(crate) victim_figure: Option<FigureFlag>,
    /// Measure N pairs for each draw, at least 6: one run alone and one under load [default:
    /// 10].
    #[arg(long, value_name = "N", requires = "victim_cmd", value_parser = clap::value_parser!(u32).range(6..=1000))]
    pub(crate) pairs: Option<u32>,
    /// End a run that takes longer: alone that is an error, under load it counts as
    /// infinitely slow [default: 5min].
    #[arg(long, requires = "victim_cmd")]
    pub(crate) victim_limit: Option<Time>,
    /// Set the largest slowdown that counts as contained [default: 1.1].
    #[arg(long, requires = "victim_cmd")]
    pub(crate) slowdown_max: Option<f64>,
}

/// Programs and how they are compared.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Programs {
    pub(crate) victim: Option<String>,
    pub(crate) congestor: Option<String>,
    pub(crate) figure: Figure,
    pub(crate) pairs: u32,
    pub(crate) limit: Nanos,
}

/// Ten pairs leave out the two most extreme slowdowns, one on each side; the run stays short.
const PAIRS: u32 = 10;
/// Longer than a test program runs that is worth repeating twenty times.
const LIMIT: Nanos = Nanos::from_secs(300);

impl Programs {
    /// Returns what `flags` ask for; nothing without a command.
    pub(crate) fn from_flags(flags: &ProgramFlags) -> Option<Self> {
        let ProgramFlags { victim_cmd: victim, congestor_cmd: congestor, .. } = flags.clone();
        if victim.is_none() && congestor.is_none() {
            return None;
        }
        let figure = match flags.victim_figure {
            None | Some(FigureFlag::Wall) => Figure::Wall,
            Some(FigureFlag::Time) => Figure::Time,
            Some(FigureFlag::Rate) => Figure::Rate,
        };
        let limit = flags.victim_limit.map_or(LIMIT, |limit| limit.0);
        Some(Self { victim, congestor, figure, pairs: flags.pairs.unwrap_or(PAIRS), limit })
    }
}
