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
const MECHANISMS: &[&dyn Mechanism] = &[&TimesliceBuilding, &Broadcasts, &CongestionTest, &ClassShares, &Gpcnet];

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
