//! The mechanisms that the program has: one line each.

use anyhow::{Result, anyhow};

use crate::mechanism::broadcast::Broadcasts;
use crate::mechanism::congestion::{ClassShares, CongestionTest};
use crate::mechanism::gpcnet::Gpcnet;
use crate::mechanism::timeslice::TimesliceBuilding;
use crate::run::Mechanism;
use crate::run::rank::Serve;
use crate::scenario::Scenario;

/// All mechanisms.
const MECHANISMS: [&dyn Mechanism; 5] = [&TimesliceBuilding, &Broadcasts, &CongestionTest, &ClassShares, &Gpcnet];

/// The rank's side of the mechanism whose ranks are called `name`.
pub(crate) fn serve(name: &str) -> Option<Serve> {
    MECHANISMS.into_iter().map(Mechanism::rank).find(|(known, _)| *known == name).map(|(_, serve)| serve)
}

/// The mechanism of `scenario`.
///
/// # Errors
/// The scenario has none, or several.
pub(crate) fn mechanism_of(scenario: &Scenario) -> Result<&'static dyn Mechanism> {
    let name = scenario.mechanism().map_err(|why| anyhow!(why))?.name();
    MECHANISMS.into_iter().find(|it| it.name() == name).ok_or_else(|| anyhow!("no mechanism runs [{name}]"))
}
