//! Round trips of one word around a ring of ranks: the smallest mechanism there is, as an example
//! of how one is made.
//!
//! # Model
//! A mechanism is a folder here with its `mod` line, and a line of the registry
//! (`command::registry`). It has
//!
//! 1. a [`Section`] of scenario files ([`section::EchoTest`]),
//! 2. an engine, which decides and does no I/O ([`engine::EchoEngine`]); a real one lives in
//!    `clearway-proto`,
//! 3. a [`Protocol`] between its coordinator and its rank processes ([`EchoProtocol`]),
//! 4. the rank's side of it ([`serve`]), here that of any engine that runs one task at a time,
//! 5. a [`Mechanism`]: what the runner asks of it, with a run on a simulated machine and one on
//!    processes,
//! 6. a [`Presenter`], where figures alone do not show what it measured.
//!
//! It exists in tests only, which run it in the simulator and in a lab.

mod engine;
mod section;

use std::time::Duration;

use anyhow::{Context, Result};
use clearway_proto::base::Rank;
use clearway_proto::wire::Wire;
use clearway_sim::Picos;
use clearway_sim::fabric::FabricOptions;
use clearway_sim::wire::ContentModel;
use clearway_wires::WireNeeds;

use self::engine::{EchoEngine, EchoTask};
use self::section::EchoTest;
use crate::report::model::{ExtendedReal, Figure, Report};
use crate::report::present::Presenter;
use crate::run::exit::Exit;
use crate::run::rank_process::{RankContext, ServeRank};
use crate::run::session::Protocol;
use crate::run::task::{self, RankRecord, TaskEngine, TaskStatus};
use crate::run::venue::{LaunchSpec, ProcessVenue, SimVenue, Venue, VenueRanks};
use crate::run::{Mechanism, RunSpec, VenueKind};
use crate::scenario::{Scenario, SectionKind};

/// Half of the round trips take no longer, in us.
const ROUND_TRIP: &str = "echo_round_trip";
/// How long a task may take: a lost word is sent again after a tenth of a second.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The mechanism.
pub(crate) struct EchoRing;

impl Presenter for EchoRing {}

impl Mechanism for EchoRing {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn section(&self) -> Option<SectionKind> {
        Some(SectionKind::new::<EchoTest>())
    }

    fn rank(&self) -> (&'static str, ServeRank) {
        (EchoProtocol::MECHANISM, serve)
    }

    fn launch(&self, scenario: &Scenario) -> LaunchSpec {
        LaunchSpec::new::<EchoProtocol>(scenario.seed)
    }

    fn refusal(&self, scenario: &Scenario, place: VenueKind) -> Option<String> {
        match place {
            VenueKind::Sim => None,
            VenueKind::Lab => scenario.fabric.as_lab().err(),
            VenueKind::Cluster => scenario.fabric.wiring().err(),
        }
    }

    fn run(&self, order: &RunSpec<'_>, venue: &mut dyn Venue, report: &mut Report) -> Result<()> {
        let test = order.scenario.section::<EchoTest>().context("no [echo]")?;
        venue.arm(&test.queue)?;
        let mut trips = match venue.ranks() {
            VenueRanks::Simulated(venue) => simulated(venue, test)?,
            VenueRanks::Processes(ranks) => on_processes(ranks, test)?,
        };
        trips.sort_unstable();
        let middle = trips.get(trips.len() / 2).context("nobody answered")?;
        let (median, count) = (ExtendedReal::finite(*middle as f64 / 1e3), trips.len() as u64);
        report.figures.push(Figure::counted(
            ROUND_TRIP,
            "us",
            median,
            count,
            "median over all ranks",
        ));
        Ok(())
    }
}

/// The conversation between the coordinator and its ranks.
enum EchoProtocol {}

impl Protocol for EchoProtocol {
    const MECHANISM: &'static str = "echo";
    const NEED: WireNeeds = WireNeeds::Packets;
    type Request = EchoTask;
    type Response = RankRecord<Vec<u64>>;
}

/// Serves a rank.
fn serve(end: RankContext) -> Result<Exit> {
    task::serve::<EchoProtocol, _>(end, |wire, _seed| Ok(EchoEngine::new(wire.rank())))
}

impl TaskEngine for EchoEngine {
    type Record = Vec<u64>;

    fn handle(_: engine::EchoDone) -> TaskStatus {
        TaskStatus::Over
    }

    fn take_record(&mut self) -> Option<Vec<u64>> {
        Self::take_record(self)
    }
}

/// Returns the round trips of all ranks of a simulated machine, in ns.
fn simulated(venue: &SimVenue, test: &EchoTest) -> Result<Vec<u64>> {
    let (machine, key) = (venue.machine()?, venue.key());
    let carrier = machine.carrier(key, FabricOptions::default());
    let mut world =
        machine.world(carrier, ContentModel::Phantom, key, |wire| EchoEngine::new(wire.rank()));
    let ranks = machine.hosts.len() as u32;
    for rank in (0..ranks).map(Rank) {
        world.command(Picos::ZERO, rank, EchoTask { ranks, count: test.count });
    }
    let mut trips = Vec::new();
    let until = Picos::from(clearway_proto::base::Nanos::from_secs(TIMEOUT.as_secs()));
    world.run_until(until, &mut |reported| {
        trips.extend(reported.engine.take_record().into_iter().flatten())
    });
    Ok(trips)
}

/// Returns the round trips of all rank processes, in ns.
fn on_processes(ranks: &mut dyn ProcessVenue, test: &EchoTest) -> Result<Vec<u64>> {
    let all: Vec<Rank> = ranks.processes().ranks().collect();
    let mut session = ranks.processes_mut().session::<EchoProtocol>();
    for rank in &all {
        session.request(*rank, EchoTask { ranks: all.len() as u32, count: test.count })?;
    }
    let records =
        session.responses(&all, TIMEOUT, &mut || Ok(()), |_, answer| Ok(Some(answer.record)))?;
    Ok(records.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;
    use crate::report::store;
    use crate::run::exit::refuses_permission;
    use crate::run::{CompletedParts, run};
    use crate::scenario;

    const ECHOES: &str = "name = \"echoes\"\n[fabric]\ntopology = { kind = \"star\", hosts = 3, rate = \"100Mb/s\" }\n[echo]\ncount = 5\n";

    /// Runs in `place` and returns the report, written and read again; nothing where the system
    /// refuses a lab.
    fn reported(place: VenueKind) -> Option<Report> {
        let scenario =
            scenario::read_text(ECHOES, &[SectionKind::new::<EchoTest>()]).expect("a scenario");
        let order = RunSpec {
            scenario: &scenario,
            text: ECHOES,
            flags: BTreeSet::new(),
            complete: CompletedParts::default(),
        };
        let report = match run(&order, &EchoRing, place) {
            Err(error) if refuses_permission(&error) => {
                eprintln!("skipped: {error:#}");
                return None;
            }
            report => report.unwrap_or_else(|error| panic!("{error:#}")),
        };
        let directory = std::env::temp_dir().join(format!(
            "clearway-echo-{}-{}",
            std::process::id(),
            place.name()
        ));
        store::write(&directory, &report, &[&EchoRing]).expect("to write");
        assert!(directory.join("report.html").exists());
        let back = store::read(&directory, &[&EchoRing]).expect("to read");
        fs::remove_dir_all(directory).expect("to remove it");
        Some(back)
    }

    fn figure(report: &Report) -> &Figure {
        report.figures.iter().find(|figure| figure.name == ROUND_TRIP).expect("the figure")
    }

    #[test]
    fn run__on_the_simulator_gives_the_same_report_each_time() {
        let [a, b] = [(); 2].map(|()| reported(VenueKind::Sim).expect("a report"));
        assert_eq!((figure(&a).samples, figure(&a)), (15, figure(&b)));
        assert_eq!((a.place.as_str(), a.scenario.name.as_str()), ("sim", "echoes"));
    }

    #[test]
    fn run__in_a_lab_every_rank_process_answers() {
        let Some(report) = reported(VenueKind::Lab) else { return };
        assert_eq!((report.place.as_str(), figure(&report).samples), ("lab", 15));
        assert!(figure(&report).value.get() > 0.0 && report.host.facts.contains_key("wires"));
    }
}
