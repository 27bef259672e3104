//! The rate of a drain as others limit it: its part of the site's budget for its class, and the
//! agent of the node.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use clearway_fs::store::{DrainAllowance, DrainHeld};
use clearway_proto::base::BitsPerSec;
use clearway_runtime::clock;
use clearway_runtime::launch::escaped;

use crate::agent::{AgentPlace, SenderLimits};
use crate::policy::BudgetTerms;

/// The rate in a pause, and that without any limit.
const PAUSED: BitsPerSec = BitsPerSec(1);
const MOST: BitsPerSec = BitsPerSec(u64::MAX);

/// Asks both with the first step of the drain, and demands something while there are steps.
pub(super) struct DrainLimits {
    budget: Option<BudgetTerms>,
    agent: Option<AgentPlace>,
    limits: OnceLock<SenderLimits>,
}

impl DrainLimits {
    /// Creates the limits of a drain; none where nobody limits it.
    pub(super) fn new(budget: Option<BudgetTerms>, agent: Option<AgentPlace>) -> Option<Self> {
        let is_limited = budget.is_some() || agent.is_some();
        is_limited.then(|| Self { budget, agent, limits: OnceLock::new() })
    }

    fn join(&self) -> SenderLimits {
        let say = |sentence: &str| eprintln!("clearway: {}", escaped(sentence));
        let limits = SenderLimits::join(self.budget.clone(), self.agent.clone(), say);
        limits.set_demand(MOST);
        limits.wait();
        limits
    }
}

impl fmt::Debug for DrainLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("DrainLimits");
        shown.field("budget", &self.budget).field("agent", &self.agent).finish_non_exhaustive()
    }
}

impl DrainAllowance for DrainLimits {
    fn take(&self, steps: usize) -> BitsPerSec {
        let limits = self.limits.get_or_init(|| self.join());
        limits.set_demand(if steps > 0 { MOST } else { BitsPerSec(0) });
        let rate = limits.take(None).unwrap_or(MOST);
        limits.paused_until(clock::now()).map_or(rate, |_| PAUSED)
    }

    fn changes_in(&self) -> Option<Duration> {
        let now = clock::now();
        let at = self.limits.get()?.deadline(now)?;
        Some(Duration::from_nanos(at.since(now).0))
    }

    fn held_back(&self) -> Option<DrainHeld> {
        let held = self.limits.get()?.held()?;
        Some(DrainHeld {
            time_ns: held.time.0,
            mean_bits_per_second: held.mean().0,
            least_bits_per_second: held.least.0,
        })
    }
}
