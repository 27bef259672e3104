//! The mechanisms that the program has: one line each.

use anyhow::{Result, anyhow};

use crate::mechanism::broadcast::Broadcasts;
use crate::mechanism::congestion::{ClassShares, CongestionTest};
use crate::mechanism::gpcnet::Gpcnet;
use crate::mechanism::timeslice::TimesliceBuilding;
use crate::report::present::Presenter;
use crate::run::Mechanism;
use crate::run::rank::Serve;
use crate::scenario::{Scenario, SectionKind};

/// All mechanisms, in the order in which a page shows them.
const MECHANISMS: &[&dyn Mechanism] = &[
    &TimesliceBuilding,
    &Broadcasts,
    &CongestionTest,
    &ClassShares,
    &Gpcnet,
    #[cfg(test)]
    &crate::mechanism::echo::EchoRing,
];

/// The rank's side of the mechanism whose ranks are called `name`.
pub(crate) fn serve(name: &str) -> Option<Serve> {
    MECHANISMS.iter().map(|it| it.rank()).find(|(known, _)| *known == name).map(|(_, serve)| serve)
}

/// The mechanism of `scenario`.
///
/// # Errors
/// None runs its section.
pub(crate) fn mechanism_of(scenario: &Scenario) -> Result<&'static dyn Mechanism> {
    let name = scenario.section_name();
    MECHANISMS.iter().copied().find(|it| it.name() == name).ok_or_else(|| anyhow!("no mechanism runs [{name}]"))
}

/// The tables of scenarios that mechanisms read.
pub(crate) fn section_kinds() -> Vec<SectionKind> {
    MECHANISMS.iter().filter_map(|it| it.section()).collect()
}

/// What shows the mechanisms in reports.
pub(crate) fn presenters() -> Vec<&'static dyn Presenter> {
    MECHANISMS.iter().map(|it| *it as &dyn Presenter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::{self, Report};
    use crate::run::Place;
    use crate::run::processes::RANK_OF_TEST;
    use crate::run::rank::{self, Bond};
    use crate::scenario::{read_text, shipped, shipped_names};

    #[test]
    fn section_kinds__read_every_shipped_scenario() {
        for name in shipped_names().split(", ") {
            let scenario = read_text(shipped(name).expect(name), &section_kinds());
            let scenario = scenario.unwrap_or_else(|why| panic!("{name}: {why}"));
            assert_eq!(scenario.name, name);
            assert!(!scenario.about.is_empty(), "{name} does not say what it is about");
        }
    }

    /// A scenario of `section` on a laboratory or a machine.
    fn scenario_of(section: &str, fabric: &str) -> Scenario {
        let fabric = match fabric {
            "topology" => "topology = { kind = \"star\", hosts = 8, rate = \"100Mb/s\" }",
            _ => "preset = \"edr\"\nnodes = 8",
        };
        let text = format!("name = \"cell\"\n[fabric]\n{fabric}\n[{section}]\n");
        read_text(&text, &section_kinds()).unwrap_or_else(|why| panic!("{section}: {why}"))
    }

    /// The table of `docs/scenarios.md`: what cannot run somewhere is refused with a sentence that says what works.
    #[test]
    fn refusal__each_cell_of_the_table_runs_or_says_what_works() {
        let cells = [
            ("congestion", "topology", [None, None, None]),
            ("congestion", "preset", [None, Some("--on sim"), Some("[fabric] topology")]),
            ("shares", "topology", [None, None, Some("only [congestion]")]),
            ("shares", "preset", [None, Some("--on sim"), Some("only [congestion]")]),
            ("timeslice", "topology", [None, None, Some("clearway timeslice compare --on cluster")]),
            ("timeslice", "preset", [None, Some("[lab.fabric]"), Some("clearway timeslice compare --on cluster")]),
            ("broadcast", "topology", [Some("--on lab"), None, Some("clearway broadcast --on cluster")]),
            ("broadcast", "preset", [None, Some("--on sim"), Some("clearway broadcast --on cluster")]),
            ("echo", "topology", [None, None, None]),
            ("echo", "preset", [None, Some("--on sim"), Some("[fabric] topology")]),
        ];
        for (section, fabric, expected) in cells {
            let scenario = scenario_of(section, fabric);
            let mechanism = mechanism_of(&scenario).expect("a mechanism");
            for (place, expected) in [Place::Sim, Place::Lab, Place::Cluster].into_iter().zip(expected) {
                let refusal = mechanism.refusal(&scenario, place);
                let is_right = match (&refusal, expected) {
                    (None, None) => true,
                    (Some(said), Some(works)) => said.contains(works),
                    _ => false,
                };
                assert!(is_right, "[{section}] of a {fabric} on {}: {refusal:?}", place.name());
            }
        }
    }

    /// A rank process of a test is this program with this test alone; see `run::processes`.
    #[test]
    fn serve__a_rank_process_of_a_test() {
        if std::env::var_os(RANK_OF_TEST).is_some() {
            rank::main(Bond::Input, serve).expect("a rank");
        }
    }

    #[test]
    fn presenters__add_nothing_to_a_report_that_holds_nothing_of_theirs() {
        let scenario = model::Scenario { name: String::new(), text: String::new() };
        let report = Report::new(Vec::new(), "lab", scenario, 0);
        for presenter in presenters() {
            assert_eq!(presenter.check(&report), Ok(()));
            assert!(presenter.tables(&report).concat().is_empty() && presenter.sections(&report, &[]).is_empty());
        }
    }
}
