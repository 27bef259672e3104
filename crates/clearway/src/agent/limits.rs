//! What others let a sender send: the coordinator of a budget, and the agent of its
//! node. The lower rate counts.

use std::sync::{Mutex, MutexGuard, PoisonError};

use clearway_proto::base::{BitsPerSec, LocalNs, Nanos};
use clearway_proto::flow::HeldBack;

use super::client::{AgentClient, AgentPlace};
use crate::policy::{BudgetClient, BudgetTerms};

/// The rates that both gave last.
#[derive(Clone, Copy, Debug, Default)]
struct LastRates {
    budget: Option<BitsPerSec>,
    agent: Option<BitsPerSec>,
}

/// A member of a budget, a scavenger of an agent, or both.
pub(crate) struct SenderLimits {
    budget: Option<BudgetClient>,
    agent: Option<AgentClient>,
    last: Mutex<LastRates>,
}

impl SenderLimits {
    /// Asks both from now on. `say` gets sentences about them.
    pub(crate) fn join(
        budget: Option<BudgetTerms>,
        agent: Option<AgentPlace>,
        say: impl Fn(&str) + Clone + Send + Sync + 'static,
    ) -> Self {
        let budget = budget.map(|terms| terms.join(say.clone()));
        let agent = agent.map(|place| AgentClient::join(place, say));
        Self { budget, agent, last: Mutex::default() }
    }

    fn last(&self) -> MutexGuard<'_, LastRates> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the rate that the sender could use. The budget and the agent each receive at most twice
    /// what the other one allows, so that the rate can grow.
    pub(crate) fn set_demand(&self, demand: BitsPerSec) {
        let LastRates { budget, agent } = *self.last();
        let within = |other: Option<BitsPerSec>| {
            demand.min(other.map_or(demand, |rate| BitsPerSec(rate.0.saturating_mul(2))))
        };
        self.budget.iter().for_each(|client| client.set_demand(within(agent)));
        self.agent.iter().for_each(|client| client.set_demand(within(budget)));
    }

    /// Waits for the first answers, for half a second each at most.
    pub(crate) fn wait(&self) {
        self.budget.iter().for_each(BudgetClient::wait);
        self.agent.iter().for_each(AgentClient::wait);
    }

    /// Returns what may be sent from now on, which is also at most `others`; to be called every
    /// 100 ms.
    pub(crate) fn take(&self, others: Option<BitsPerSec>) -> Option<BitsPerSec> {
        let budget = self.budget.as_ref().map(BudgetClient::take);
        let least = others.into_iter().chain(budget).min();
        let agent = self.agent.as_ref().and_then(|agent| agent.take(least));
        *self.last() = LastRates { budget, agent };
        least.into_iter().chain(agent).min()
    }

    /// Returns what may be sent without a coordinator of budgets.
    pub(crate) fn floor(&self) -> BitsPerSec {
        self.budget.as_ref().map_or(BitsPerSec(0), BudgetClient::floor)
    }

    /// Returns whether an agent limits the sender, which then pauses for a part of the time.
    pub(crate) fn has_pauses(&self) -> bool {
        self.last().agent.is_some()
    }

    /// Returns the end of the pause that is now.
    pub(crate) fn paused_until(&self, now: LocalNs) -> Option<LocalNs> {
        self.agent.as_ref()?.paused_until(now)
    }

    /// Returns when a pause begins or ends next.
    pub(crate) fn deadline(&self, now: LocalNs) -> Option<LocalNs> {
        self.agent.as_ref()?.deadline(now)
    }

    /// Returns for how long and how far the agent held the sender back; none where it never did.
    pub(crate) fn held(&self) -> Option<HeldBack> {
        self.agent.as_ref().map(AgentClient::held).filter(|held| held.time > Nanos::ZERO)
    }
}
