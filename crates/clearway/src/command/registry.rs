//! The mechanisms that the program has: one line each.

use anyhow::{Result, anyhow};

use crate::mechanism::broadcast::{Broadcast, Broadcasts};
use crate::mechanism::congestion::{ClassShares, Congestion, CongestionTest, Shares};
use crate::mechanism::gpcnet::Gpcnet;
use crate::mechanism::timeslice::{Timeslice, TimesliceBuilding};
use crate::run::Mechanism;
use crate::run::rank::Serve;
use crate::scenario::{Scenario, SectionKind};

/// All mechanisms.
const MECHANISMS: [&dyn Mechanism; 5] = [&TimesliceBuilding, &Broadcasts, &CongestionTest, &ClassShares, &Gpcnet];

/// The rank's side of the mechanism whose ranks are called `name`.
pub(crate) fn serve(name: &str) -> Option<Serve> {
    MECHANISMS.into_iter().map(Mechanism::rank).find(|(known, _)| *known == name).map(|(_, serve)| serve)
}

/// The mechanism of `scenario`.
///
/// # Errors
/// None runs its section.
pub(crate) fn mechanism_of(scenario: &Scenario) -> Result<&'static dyn Mechanism> {
    let name = scenario.section_name();
    MECHANISMS.into_iter().find(|it| it.name() == name).ok_or_else(|| anyhow!("no mechanism runs [{name}]"))
}

/// The tables of scenarios that mechanisms read.
pub(crate) const fn section_kinds() -> [SectionKind; 4] {
    [
        SectionKind::of::<Congestion>(),
        SectionKind::of::<Shares>(),
        SectionKind::of::<Timeslice>(),
        SectionKind::of::<Broadcast>(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
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
}
