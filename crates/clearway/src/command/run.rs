//! Commands that run something or read what a run left.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use clearway_lab::Topology;
use clearway_proto::congestion::{CongestorKind, Placement};

use super::{BenchFlags, Output, print};
use crate::bench::{self, Order, Place};
use crate::exit::Exit;
use crate::report::model::{Outcome, Report};
use crate::report::terminal::Paint;
use crate::report::{diff, store, terminal};
use crate::scenario::{self, Congestion, Scenario};

/// The tour.
pub(crate) fn demo(output: &Output) -> Result<Exit> {
    eprintln!(
        "A lab of 8 virtual hosts on one switch: two of them ping each other while three others send to one of the two at\n\
         once, first through one FIFO queue per port, then with a queue for each traffic class. Less than a minute."
    );
    let text = scenario::shipped("demo").context("the program was built without its tour")?;
    let scenario = scenario::read_text(text).map_err(|why| anyhow!("{why}"))?;
    conduct(scenario, text, &[], BTreeSet::new(), output)
}

/// A scenario from a file or from those that are shipped.
pub(crate) fn scenario(path: &Path, on: &[Place], output: &Output) -> Result<Exit> {
    let (scenario, text) = scenario::read_file(path)?;
    conduct(scenario, &text, on, BTreeSet::new(), output)
}

/// A congestion test made of flags.
pub(crate) fn bench(flags: &BenchFlags) -> Result<Exit> {
    let (scenario, set) = scenario_of(flags);
    let text = toml::to_string(&scenario).context("the flags make no scenario")?;
    scenario.check().map_err(|why| anyhow!("{why}"))?;
    if flags.print_scenario {
        print(&text)?;
        return Ok(Exit::Good);
    }
    conduct(scenario, &text, &[], set, &flags.output)
}

/// Runs, reports, and says how it went.
fn conduct(
    mut scenario: Scenario,
    text: &str,
    on: &[Place],
    mut flags: BTreeSet<String>,
    output: &Output,
) -> Result<Exit> {
    if let Some(seed) = output.seed {
        scenario.seed = seed;
        flags.insert("seed".to_owned());
    }
    let directory = output.out.clone().unwrap_or_else(|| PathBuf::from("out").join(&scenario.name));
    // What cannot be written shall not be measured first.
    try_writing(&directory)?;
    let report = bench::run(&Order { scenario: &scenario, text, flags }, on.first().copied().unwrap_or(Place::Lab))?;
    store::write(&directory, &report)?;
    show(&report, &directory)?;
    Ok(exit_of(&report))
}

/// Makes `directory` and tries whether files can be made in it.
fn try_writing(directory: &Path) -> Result<()> {
    let shown = directory.display();
    fs::create_dir_all(directory).with_context(|| format!("the report's directory {shown} cannot be made"))?;
    let trial = directory.join(format!(".try-{}", std::process::id()));
    fs::write(&trial, b"").with_context(|| format!("no report can be written to {shown}"))?;
    fs::remove_file(&trial).with_context(|| format!("{}: cannot be removed", trial.display()))
}

/// Colours for a person who wants them (<https://no-color.org>).
fn paint() -> Paint {
    let wanted = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    if wanted { Paint::Colour } else { Paint::Plain }
}

/// Prints the tables of `report` and where its page is.
fn show(report: &Report, directory: &Path) -> Result<()> {
    print(&format!("{}{}\n", terminal::render(report, paint()), directory.join("report.html").display()))
}

fn exit_of(report: &Report) -> Exit {
    match report.verdict.as_ref().map(|verdict| verdict.outcome) {
        None | Some(Outcome::Contained) => Exit::Good,
        Some(Outcome::Congested) => Exit::Congested,
        Some(Outcome::Invalid) => Exit::Invalid,
    }
}

/// Makes pages again and prints their tables.
pub(crate) fn report(directories: &[PathBuf]) -> Result<Exit> {
    for directory in directories {
        let report = store::render_again(directory)?;
        show(&report, directory)?;
    }
    Ok(Exit::Good)
}

/// Compares two runs.
pub(crate) fn diff(a: &Path, b: &Path) -> Result<Exit> {
    let (a, b) = (store::read(a)?, store::read(b)?);
    let comparison = diff::compare(&a, &b);
    print(&diff::render(&comparison, paint()))?;
    Ok(match comparison.result {
        diff::DiffResult::SameOrBetter => Exit::Good,
        diff::DiffResult::Worse => Exit::Congested,
    })
}

/// The scenario that `flags` make, and which parameters they set.
fn scenario_of(flags: &BenchFlags) -> (Scenario, BTreeSet<String>) {
    let mut set = BTreeSet::new();
    let mut test = Congestion::default();
    if flags.trunk.is_some() {
        // Victims and congestors meet on the trunk, so they need not share hosts.
        test.placement = Placement::Disjoint;
        test.victim_hosts = 4;
        test.congestor_hosts = 6;
        test.congestor_groups = 2;
        test.congestors = vec![CongestorKind::Alltoall];
        test.intensity_percent = vec![100];
        test.victim_interval = scenario::Time::micros(2000);
    }
    let mut list = |name: &str, given: bool| {
        if given {
            set.insert(format!("congestion.{name}"));
        }
        given
    };
    if list("queues", !flags.queues.is_empty()) {
        test.queues.clone_from(&flags.queues);
    }
    if list("victims", !flags.victims.is_empty()) {
        test.victims.clone_from(&flags.victims);
    }
    if list("congestors", !flags.congestors.is_empty()) {
        test.congestors.clone_from(&flags.congestors);
    }
    if list("intensity-percent", !flags.intensity.is_empty()) {
        test.intensity_percent.clone_from(&flags.intensity);
    }
    fn take<T: Copy>(into: &mut T, value: Option<T>) -> bool {
        value.inspect(|value| *into = *value).is_some()
    }
    list("victim-class", take(&mut test.victim_class, flags.victim_class));
    list("congestor-class", take(&mut test.congestor_class, flags.congestor_class));
    list("victim-hosts", take(&mut test.victim_hosts, flags.victim_hosts));
    list("congestor-hosts", take(&mut test.congestor_hosts, flags.congestor_hosts));
    list("congestor-groups", take(&mut test.congestor_groups, flags.congestor_groups));
    list("draws", take(&mut test.draws, flags.draws));
    let length = flags.seconds.map(|seconds| scenario::Time::millis(seconds.saturating_mul(1000)));
    list("isolated", take(&mut test.isolated, length));
    list("congested", take(&mut test.congested, length));
    let (scenario, more) = on_fabric(flags, test);
    set.extend(more);
    (scenario, set)
}

/// Puts `test` on the fabric that `flags` name.
fn on_fabric(flags: &BenchFlags, test: Congestion) -> (Scenario, Vec<String>) {
    let mut set = Vec::new();
    let mut name = |given: bool, key: &str| {
        if given {
            set.push(format!("fabric.topology.{key}"));
        }
    };
    name(flags.hosts.is_some(), "hosts");
    name(flags.rate.is_some(), "rate");
    name(flags.trunk.is_some(), "trunk");
    let mega = clearway_proto::base::BitsPerSec::mega;
    let topology = match flags.trunk {
        None => Topology::Star { hosts: flags.hosts.unwrap_or(8), rate: flags.rate.unwrap_or(mega(100)) },
        Some(trunk) => {
            Topology::TwoSwitch { hosts: flags.hosts.unwrap_or(16), rate: flags.rate.unwrap_or(mega(25)), trunk }
        }
    };
    let fabric = scenario::Fabric::lab(topology);
    let scenario = Scenario {
        name: "bench".to_owned(),
        about: "A congestion test made of flags.".to_owned(),
        seed: 1,
        fabric,
        congestion: Some(test),
        shares: None,
        verdict: clearway_proto::congestion::Rules::default(),
    };
    (scenario, set)
}
