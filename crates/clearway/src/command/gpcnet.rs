//! `clearway bench --gpcnet`: where GPCNeT's own tests run, and where what they print goes.

use std::fs;

use anyhow::{Context, Result, bail};
use clearway_proto::base::Class;

use super::results::claim;
use super::run::{JobFlags, across, topology_of};
use super::{BenchFlags, print};
use crate::mechanism::gpcnet;
use crate::mechanism::gpcnet::{GpcnetOrder, Suite};
use crate::run::Place;
use crate::run::exit::Exit;
use crate::run::job::Site;
use crate::scenario::Fabric;

/// What is printed, in the directory that --out names.
const TEXT_NAME: &str = "gpcnet.txt";

/// Runs `suite` on the fabric, in the laboratory or across the job that flags name.
pub(super) fn run(flags: &BenchFlags, suite: Suite) -> Result<Exit> {
    let usual = Class::BestEffort;
    let job = JobFlags::of(Some(&flags.job));
    let places = places(flags, &job)?;
    if let [_, second, ..] = &flags.queues[..] {
        bail!("GPCNeT's own tests run on one queue, and --queues names {second} as well; keep one of them");
    }
    let order = GpcnetOrder {
        fabric: match &flags.fabric {
            Some(fabric) => Fabric::machine(fabric.clone(), flags.nodes),
            None => Fabric::lab(topology_of(flags)),
        },
        queue: flags.queues.first().cloned(),
        places: &places,
        seed: flags.output.seed.unwrap_or(1),
        classes: [flags.victim_class.unwrap_or(usual), flags.congestor_class.unwrap_or(usual)],
        flags: &flags.gpcnet,
    };
    let run = |site: Option<&Site>| {
        let directory = flags.output.out.as_deref();
        // What cannot be written shall not be measured first.
        directory.map(|directory| claim(directory, TEXT_NAME, &flags.output)).transpose()?;
        let text = gpcnet::run(&order, suite, site)?;
        if let Some(directory) = directory {
            let path = directory.join(TEXT_NAME);
            fs::write(&path, &text).with_context(|| format!("{} cannot be written", path.display()))?;
        }
        print(&text)?;
        Ok(Exit::Good)
    };
    if places.contains(&Place::Cluster) { across(&job.order()?, |site| run(Some(site))) } else { run(None) }
}

/// Where it runs, the laboratory first: what it needs can be refused, and a refusal shall not cost the time of a simulation.
fn places(flags: &BenchFlags, job: &JobFlags<'_>) -> Result<Vec<Place>> {
    let usual = if flags.fabric.is_some() { Place::Sim } else { Place::Lab };
    let mut places = job.places(&flags.on)?;
    if places.is_empty() {
        places.push(usual);
    }
    places.sort_unstable();
    places.dedup();
    places.reverse();
    if !places.contains(&Place::Cluster) {
        return Ok(places);
    }
    if places.len() > 1 {
        bail!("--on cluster stands alone: its ranks are on other machines, with queues of their own");
    }
    let drawn = [
        ("--fabric", flags.fabric.is_some()),
        ("--hosts", flags.hosts.is_some()),
        ("--rate", flags.rate.is_some()),
        ("--trunk", flags.trunk.is_some()),
        ("--queues", !flags.queues.is_empty()),
        ("--ppn", flags.gpcnet.ppn.is_some()),
    ];
    match drawn.into_iter().find(|(_, given)| *given) {
        Some((flag, _)) => bail!("{flag} draws a network, and --on cluster measures the one between its ranks"),
        None => Ok(places),
    }
}
