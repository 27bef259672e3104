//! A mechanism that exists in tests only: it knocks at a queue.

use serde::{Deserialize, Serialize};
use toml::de::DeTable;

use super::{Fabric, Section, Time, check_queues, is_given, within};

/// Its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct SampleSection {
    pub(crate) queue: String,
    pub(crate) times: u64,
    pub(crate) each_takes: Time,
}

impl Default for SampleSection {
    fn default() -> Self {
        Self { queue: String::new(), times: 3, each_takes: Time::millis(1) }
    }
}

impl Section for SampleSection {
    const NAME: &'static str = "knock";

    fn apply_defaults(&mut self, fabric: &mut Fabric, given: &DeTable<'_>) -> Result<(), String> {
        if !is_given(given, Self::NAME, "queue") {
            self.queue = fabric.usual_queue()?;
        }
        Ok(())
    }

    fn check(&self, fabric: &Fabric) -> Result<(), String> {
        check_queues(fabric, std::slice::from_ref(&self.queue))?;
        within("times", self.times, 1, 100)
    }
}

/// A scenario of it in a laboratory.
pub(crate) const KNOCKS: &str = "\
name = \"knocks\"
seed = 7

[fabric]
queue-packets = 100

[fabric.topology]
kind = \"star\"
hosts = 8
rate = \"100Mb/s\"

[knock]
times = 5
";
