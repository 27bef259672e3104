//! Reads the variables that launchers leave behind, from the process or from a test's list.

use std::collections::BTreeMap;
use std::env;

use super::{JoinFailure, JoinOptions};

/// By these a launcher tells a process which rank it is. A rank of a job inside such a rank must
/// not take them for its own.
pub(super) const OF_A_RANK: [&str; 9] = [
    "PMIX_NAMESPACE",
    "PMIX_RANK",
    "PMI_FD",
    "PMI_RANK",
    "PMI_SIZE",
    "OMPI_COMM_WORLD_SIZE",
    "SLURM_PROCID",
    "SLURM_STEP_NODELIST",
    "SLURM_STEP_NUM_TASKS",
];

/// Where variables are looked up.
#[derive(Debug)]
pub(super) struct Environment(Option<BTreeMap<String, String>>);

impl Environment {
    pub(super) fn new(options: &JoinOptions) -> Self {
        Self(options.variables.clone())
    }

    /// Returns whether it is the one that a launcher gave to this process.
    pub(super) fn is_of_process(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the value of `name`; a value that is no text counts as absent.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        match &self.0 {
            Some(fixed) => fixed.get(name).cloned(),
            None => env::var(name).ok(),
        }
    }

    /// Returns the number in `name`.
    pub(super) fn number(&self, name: &'static str) -> Result<u32, JoinFailure> {
        let text =
            self.get(name).ok_or_else(|| JoinFailure::Failed(format!("{name} is not set")))?;
        text.trim().parse().map_err(|_| JoinFailure::Failed(format!("{name} is no number")))
    }

    /// Returns how many ranks a launcher says that it started, whichever way they are to find each
    /// other.
    pub(super) fn ranks_started(&self) -> Option<u32> {
        ["PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"]
            .into_iter()
            .filter_map(|name| self.get(name)?.trim().parse().ok())
            .max()
    }
}
