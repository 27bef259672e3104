//! `clearway gpcnet`: where GPCNeT's own tests run, and where what they print goes.

use std::fs;

use anyhow::{Context, Result};
use clap::Args;
use clearway_proto::base::{BitsPerSec, Class};

use super::flagged::{FlagValues, parameters};
use super::results::{ReportDestination, ReportFlags};
use super::run::{JobFlags, across, topology_of};
use super::{JobArguments, print};
use crate::mechanism::gpcnet;
use crate::mechanism::gpcnet::{GpcnetFlags, GpcnetSpec, Suite};
use crate::report::{FigureFormat, NothingMore};
use crate::run::exit::{Exit, wrong_usage};
use crate::run::job::CoordinatedJob;
use crate::run::{VenueKind, notice};
use crate::scenario::Fabric;

/// What is printed, in the directory of the report.
const TEXT_NAME: &str = "gpcnet.txt";
/// Hosts of a lab without a trunk: as few as the load test takes.
const LAB_HOSTS: u32 = 10;

/// GPCNeT's own tests: `clearway gpcnet --fabric edr --nodes 64`.
#[derive(Clone, Debug, Args)]
pub(crate) struct GpcnetArguments {
    /// Run this one of the original's two programs.
    #[arg(value_enum, default_value = "load")]
    suite: Suite,
    /// Run at this place; with two places, side by side [default: lab, or sim with --fabric].
    #[arg(long, value_name = "PLACE", value_enum, value_delimiter = ',')]
    on: Vec<VenueKind>,
    /// Simulate this machine, a name or a fabric file.
    #[arg(long, conflicts_with_all = ["hosts", "rate", "trunk"])]
    fabric: Option<String>,
    /// Use N hosts of the machine [default: all].
    #[arg(long, value_name = "N", requires = "fabric")]
    nodes: Option<u32>,
    /// Make N hosts in the lab [default: 10, or 16 with --trunk].
    #[arg(long, value_name = "N")]
    hosts: Option<u32>,
    /// Set the rate of host links, with its unit [default: 100Mb/s, or 25Mb/s with --trunk].
    #[arg(long, value_name = "RATE")]
    rate: Option<BitsPerSec>,
    /// Use two switches with a trunk of this rate.
    #[arg(long, value_name = "RATE")]
    trunk: Option<BitsPerSec>,
    /// Use this queue at every port: fifo, strict, weighted, vlarb; or a policy of --fabric
    /// [default: the first].
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Send the victims' messages in this class: control, low-latency, best-effort, bulk, scavenger
    /// [default: best-effort].
    #[arg(long, value_name = "CLASS")]
    victim_class: Option<Class>,
    /// Send the congestors' messages in this class [default: best-effort].
    #[arg(long, value_name = "CLASS")]
    congestor_class: Option<Class>,
    #[command(flatten)]
    tests: GpcnetFlags,
    #[command(flatten)]
    job: JobArguments,
    /// Seed the draws, 32 bits; the original takes its clock [default: 1].
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    report: ReportFlags,
    #[command(flatten)]
    format: FigureFormat,
}

/// Runs a suite on the fabric, in the laboratory or across the job that flags name.
pub(super) fn command(flags: &GpcnetArguments) -> Result<Exit> {
    let usual = Class::BestEffort;
    let job = JobFlags::from_arguments(Some(&flags.job));
    let places = places(flags, &job)?;
    let order = GpcnetSpec {
        fabric: match &flags.fabric {
            Some(fabric) => Fabric::machine(fabric.clone(), flags.nodes),
            None => {
                let hosts = flags.hosts.or(flags.trunk.is_none().then_some(LAB_HOSTS));
                Fabric::lab(topology_of(hosts, flags.rate, flags.trunk))
            }
        },
        queue: flags.queue.clone(),
        places: &places,
        seed: flags.seed.unwrap_or(1),
        classes: [flags.victim_class.unwrap_or(usual), flags.congestor_class.unwrap_or(usual)],
        parameters: parameters(flags.values(), &std::env::args().collect::<Vec<_>>()),
        flags: &flags.tests,
    };
    let run = |site: Option<&CoordinatedJob>| {
        // What cannot be written must not be measured first.
        let results = ReportDestination::open(gpcnet::NAME, &flags.report)?;
        let (text, report) = gpcnet::run(&order, flags.suite, site)?;
        let directory = results.write(&report)?;
        let path = directory.join(TEXT_NAME);
        fs::write(&path, &text).with_context(|| format!("{} cannot be written", path.display()))?;
        print(&flags.format.text(&report.figures, &NothingMore {}, || text.clone())?)?;
        notice!("report: {}", directory.join("report.html").display());
        Ok(Exit::Good)
    };
    if places.contains(&VenueKind::Cluster) {
        across(&job.order()?, |site| run(Some(site)))
    } else {
        run(None)
    }
}

impl GpcnetArguments {
    /// Returns what is in force, by the names of flags.
    fn values(&self) -> FlagValues {
        let mut values = vec![("seed", self.seed.unwrap_or(1).to_string())];
        values.extend(self.fabric.clone().map(|fabric| ("fabric", fabric)));
        values.extend(self.queue.clone().map(|queue| ("queue", queue)));
        let numbers = [("nodes", self.nodes), ("hosts", self.hosts)];
        values.extend(
            numbers.into_iter().filter_map(|(name, number)| Some((name, number?.to_string()))),
        );
        let rates = [("rate", self.rate), ("trunk", self.trunk)];
        values.extend(rates.into_iter().filter_map(|(name, rate)| Some((name, rate?.to_string()))));
        let usual = Class::BestEffort;
        let classes =
            [("victim-class", self.victim_class), ("congestor-class", self.congestor_class)];
        values.extend(
            classes.into_iter().map(|(name, class)| (name, class.unwrap_or(usual).to_string())),
        );
        values
    }
}

/// Returns where it runs, the laboratory first: what it needs can be refused, and a refusal must
/// not cost the time of a simulation.
fn places(flags: &GpcnetArguments, job: &JobFlags<'_>) -> Result<Vec<VenueKind>> {
    let usual = if flags.fabric.is_some() { VenueKind::Sim } else { VenueKind::Lab };
    let mut places = job.places(&flags.on)?;
    if places.is_empty() {
        places.push(usual);
    }
    places.sort_unstable();
    places.dedup();
    places.reverse();
    if !places.contains(&VenueKind::Cluster) {
        return Ok(places);
    }
    if places.len() > 1 {
        wrong_usage!(
            "--on cluster stands alone: its ranks are on other machines, with queues of their own"
        );
    }
    let drawn = [
        ("--fabric", flags.fabric.is_some()),
        ("--hosts", flags.hosts.is_some()),
        ("--rate", flags.rate.is_some()),
        ("--trunk", flags.trunk.is_some()),
        ("--queue", flags.queue.is_some()),
        ("--ppn", flags.tests.ppn.is_some()),
    ];
    match drawn.into_iter().find(|(_, given)| *given) {
        Some((flag, _)) => {
            wrong_usage!(
                "{flag} draws a network, and --on cluster measures the one between its ranks"
            )
        }
        None => Ok(places),
    }
}
