//! The table `[together]` of a scenario.

use clearway_proto::base::Bytes;
use serde::{Deserialize, Serialize};
use toml::de::DeTable;

use crate::mechanism::congestion::windows::{Grid, Windows};
use crate::scenario::{
    Fabric, Section, Time, check_queues, check_slice, check_window, is_given, within,
};

/// An application and all bulk transfers on the same hosts and links.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct TogetherSection {
    /// Two queues: that of a network where all traffic has one class, and that with classes.
    pub(super) queues: Vec<String>,
    /// Mean time between two pings of a host to one neighbour, and the least time between two
    /// allreduces.
    pub(super) application_interval: Time,
    /// Bytes of a contribution to a timeslice.
    pub(super) contribution: Bytes,
    /// Contributions that the ring of one input at one builder holds.
    pub(super) ring_contributions: u32,
    /// Bytes of a put of the OpenSHMEM program.
    pub(super) put: Bytes,
    /// Puts that each of its processes keeps under way.
    pub(super) put_window: u32,
    /// Hosts for each staging server, the server included.
    pub(super) staging_group: u32,
    /// Whether an MPI program runs in a lab; by the processors of the machine where nothing is said.
    pub(super) mpi: Option<bool>,
    /// Length of a slice.
    pub(super) slice: Time,
    /// Time measured without transfers, half before and half after them.
    pub(super) isolated: Time,
    /// Time measured with all transfers.
    pub(super) congested: Time,
}

/// The fewest hosts: a quarter of them has two.
pub(super) const HOSTS_MIN: u32 = 8;
/// The most hosts of a simulated machine: each has up to three ranks.
const HOSTS_MAX: u32 = 4096;
/// Keys that only simulated machines have.
const OF_MACHINES: [&str; 5] =
    ["contribution", "ring-contributions", "put", "put-window", "staging-group"];
/// Slices measured with and without transfers on a machine, unless a scenario says otherwise.
const SLICES: u64 = 20;

impl Default for TogetherSection {
    fn default() -> Self {
        Self {
            queues: ["fifo", "strict"].map(str::to_owned).into(),
            application_interval: Time::millis(5),
            contribution: Bytes(64 << 10),
            ring_contributions: 8,
            put: Bytes(64 << 10),
            put_window: 2,
            staging_group: 8,
            mpi: None,
            slice: Time::millis(100),
            isolated: Time::millis(4000),
            congested: Time::millis(4000),
        }
    }
}

impl TogetherSection {
    /// Returns when transfers run, and what counts.
    pub(super) fn windows(&self, fabric: &Fabric) -> Windows {
        let grid = Grid::new(fabric, self.slice);
        let windows = match fabric {
            Fabric::Machine(_) => Windows::new,
            // Commands take their time to start and to end.
            Fabric::Lab(_) | Fabric::Site(_) => Windows::around_program,
        };
        windows(grid, self.isolated.0, self.congested.0)
    }
}

impl Section for TogetherSection {
    const NAME: &'static str = "together";

    fn apply_defaults(&mut self, fabric: &mut Fabric, given: &DeTable<'_>) -> Result<(), String> {
        let Fabric::Machine(_) = fabric else {
            // Commands of a lab have sizes of their own.
            let given = OF_MACHINES.iter().find(|key| is_given(given, Self::NAME, key));
            return given.map_or(Ok(()), |key| {
                Err(format!(
                    "{key} is for a simulated machine: commands of a lab have sizes of their own; leave it out, or put [lab.together] \
                     behind the table"
                ))
            });
        };
        let missing = |key: &str| !is_given(given, Self::NAME, key);
        if !missing("mpi") {
            return Err(
                "mpi is for a lab: a simulated machine runs no MPI program; leave it out, or put it into [lab.together]"
                    .to_owned(),
            );
        }
        if missing("queues") {
            self.queues = fabric.queues()?.into_iter().take(2).collect();
        }
        if missing("slice") {
            self.slice = fabric.slice()?;
        }
        let slices = |count| Time(self.slice.0.times(count));
        if missing("application-interval") {
            self.application_interval = slices(2);
        }
        self.isolated = if missing("isolated") { slices(SLICES) } else { self.isolated };
        self.congested = if missing("congested") { slices(SLICES) } else { self.congested };
        Ok(())
    }

    fn check(&self, fabric: &Fabric) -> Result<(), String> {
        check_queues(fabric, &self.queues)?;
        if self.queues.len() != 2 {
            return Err(format!(
                "queues has {}; two work: the queue without classes, then that with classes",
                self.queues.len()
            ));
        }
        check_slice(fabric, self.slice)?;
        let slice = self.slice.0.0;
        let least = Time(clearway_proto::base::Nanos(slice / 1000));
        let most = Time(clearway_proto::base::Nanos(slice.saturating_mul(10)));
        within("application-interval", self.application_interval, least, most)?;
        within("contribution", self.contribution, Bytes(64), Bytes(1 << 20))?;
        within("ring-contributions", self.ring_contributions, 2, 4096)?;
        within("put", self.put, Bytes(8), Bytes(1 << 20))?;
        within("put-window", self.put_window, 1, 1024)?;
        within("staging-group", self.staging_group, 2, 256)?;
        check_window("isolated", self.isolated, self.slice)?;
        check_window("congested", self.congested, self.slice)?;
        within("hosts", fabric.hosts()?, HOSTS_MIN, HOSTS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{SectionKind, read_text};

    fn mpi(fabric: &str, value: &str) -> Result<Option<bool>, String> {
        let text = format!("name = \"t\"\n[fabric]\n{fabric}\n[together]\nmpi = {value}\n");
        let scenario = read_text(&text, &[SectionKind::new::<TogetherSection>()])?;
        Ok(scenario.section::<TogetherSection>().and_then(|section| section.mpi))
    }

    #[test]
    fn apply_defaults__an_mpi_program_runs_in_a_lab_only() {
        let lab = "topology = { kind = \"star\", hosts = 8, rate = \"25Mb/s\" }";
        assert_eq!(mpi(lab, "true"), Ok(Some(true)));
        assert_eq!(mpi(lab, "false"), Ok(Some(false)));
        let machine = "preset = \"clos-400ge\"\nnodes = 64";
        for value in ["true", "false"] {
            let why = mpi(machine, value).expect_err("it must be refused");
            assert!(why.contains("mpi is for a lab") && why.contains("[lab.together]"), "{why}");
        }
    }
}
