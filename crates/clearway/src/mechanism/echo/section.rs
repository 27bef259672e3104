//! The table `[echo]` of a scenario.

use serde::{Deserialize, Serialize};
use toml::de::DeTable;

use super::engine::COUNT_MAX;
use crate::scenario::{Fabric, Section, check_queues, is_given, within};

/// Round trips around all hosts of the fabric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct EchoTest {
    /// The queue at every port.
    pub(super) queue: String,
    /// Round trips of each rank.
    pub(super) count: u32,
}

impl Default for EchoTest {
    fn default() -> Self {
        Self { queue: String::new(), count: 10 }
    }
}

impl Section for EchoTest {
    const NAME: &'static str = "echo";

    fn apply_defaults(&mut self, fabric: &mut Fabric, given: &DeTable<'_>) -> Result<(), String> {
        if !is_given(given, Self::NAME, "queue") {
            self.queue = fabric.usual_queue()?;
        }
        Ok(())
    }

    fn check(&self, fabric: &Fabric) -> Result<(), String> {
        check_queues(fabric, std::slice::from_ref(&self.queue))?;
        within("count", self.count, 1, COUNT_MAX)
    }
}
