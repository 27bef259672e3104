//! The places in which a scenario can run.

use clap::ValueEnum;

/// Where a scenario runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum VenueKind {
    /// Simulated, on virtual time: any network, the same result on every machine.
    Sim,
    /// Virtual hosts on this machine: real packets through the kernel's queues.
    Lab,
    /// The ranks that a launcher started with this command: mpirun, mpiexec, srun or --hostfile.
    Cluster,
}

impl VenueKind {
    /// Returns the name used on the command line and in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Lab => "lab",
            Self::Cluster => "cluster",
        }
    }
}
