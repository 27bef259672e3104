//! The rate of a drain as a part of the site's budget for its class.

use std::sync::OnceLock;

use clearway_fs::store::DrainAllowance;
use clearway_proto::base::BitsPerSec;
use clearway_runtime::launch::escaped;

use crate::policy::{BudgetClient, BudgetTerms};

/// Joins the budget with the first step of the drain, and demands something while there are steps.
pub(super) struct DrainBudget {
    terms: BudgetTerms,
    client: OnceLock<BudgetClient>,
}

impl DrainBudget {
    pub(super) fn new(terms: BudgetTerms) -> Self {
        Self { terms, client: OnceLock::new() }
    }

    fn join(&self) -> BudgetClient {
        let client = self.terms.clone().join(|sentence| {
            eprintln!("clearway: {}", escaped(sentence));
        });
        client.set_demand(BitsPerSec(u64::MAX));
        client.wait();
        client
    }
}

impl std::fmt::Debug for DrainBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DrainBudget").field("terms", &self.terms).finish_non_exhaustive()
    }
}

impl DrainAllowance for DrainBudget {
    fn take(&self, steps: usize) -> BitsPerSec {
        let client = self.client.get_or_init(|| self.join());
        client.set_demand(BitsPerSec(if steps > 0 { u64::MAX } else { 0 }));
        client.take()
    }
}
