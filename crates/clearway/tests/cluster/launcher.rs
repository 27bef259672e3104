//! The launchers that this machine has, and how each starts five ranks.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::directory::{ClusterDirectory, LONG};
use super::slurm::SlurmCluster;

/// Five ranks: two victims and the congestors' target and senders, sharing hosts with them.
pub(crate) const RANKS: &str = "5";

/// A way to start ranks.
pub(crate) struct ClusterLauncher<'a> {
    pub(crate) name: String,
    /// The beginning of how ranks must report that they found each other.
    pub(crate) method: &'static str,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    /// The cluster to be on, if it is not this machine.
    pub(crate) cluster: Option<&'a SlurmCluster>,
}

impl ClusterLauncher<'static> {
    /// The launcher `name` for ranks on this machine; nothing, and the reason printed, where it is
    /// not installed.
    pub(crate) fn local(name: &str) -> Option<Self> {
        let (method, arguments): (_, &[&str]) = match name {
            "mpiexec.hydra" => ("PMI-1", &[]),
            "mpirun.openmpi" => ("PMIx", &["--oversubscribe"]),
            "prterun" => ("PMIx", &["--map-by", ":OVERSUBSCRIBE"]),
            other => panic!("no such launcher: {other}"),
        };
        let program = program(name)?;
        let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
        Some(Self { name: name.to_owned(), method, program, arguments, cluster: None })
    }
}

impl ClusterLauncher<'_> {
    /// Starts a run of a scenario of `ground`.
    pub(crate) fn start(&self, site: &ClusterDirectory, scenario: &str) -> Child {
        self.start_by(&[], site, scenario)
    }

    /// Starts a run whose first rank does not come, so that the others wait for it.
    pub(crate) fn start_without_first(&self, site: &ClusterDirectory) -> Child {
        let script =
            "[ ${SLURM_PROCID:-${PMIX_RANK:-$PMI_RANK}} = 0 ] && kill -STOP $$; exec \"$@\"";
        self.start_by(&["sh", "-c", script, "sh"], site, LONG)
    }

    /// Starts a cast of the file `name` of `ground`; receivers write into `into`.
    pub(crate) fn start_cast(&self, site: &ClusterDirectory, name: &str, into: &str) -> Child {
        let mut command = self.command();
        command
            .arg(site.path("clearway"))
            .arg("cast")
            .arg(site.path(name))
            .arg("--into")
            .arg(site.path(into));
        self.spawn(command)
    }

    /// Starts a run that builds timeslices at the last three ranks, with these `words` for the
    /// launcher.
    pub(crate) fn start_building(&self, site: &ClusterDirectory, words: &[&str]) -> Child {
        let mut command = self.command();
        command.args(words).arg(site.path("clearway")).args([
            "timeslice",
            "build",
            "--on",
            "cluster",
            "--wire",
            "udp",
            "--inputs",
            "2",
        ]);
        command.args(
            "--timeslices 20000 --contribution 4KiB --ring 64KiB --heartbeat 250ms --json"
                .split(' '),
        );
        command
            .arg("--sink")
            .arg(site.path("ts_%b.tsa"))
            .arg("--overwrite")
            .arg("--out")
            .arg(site.path("built"));
        self.spawn(command)
    }

    /// Starts a run where `words` begin the command line of each rank.
    fn start_by(&self, words: &[&str], site: &ClusterDirectory, scenario: &str) -> Child {
        let mut command = self.command();
        command.args(words).arg(site.path("clearway")).arg("run").arg(site.path(scenario));
        command
            .args(["--on", "cluster", "--wire", "udp", "--overwrite", "--out"])
            .arg(site.path("out"));
        self.spawn(command)
    }

    /// The launcher, of all ranks; what they run comes behind it.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).args(["-n", RANKS]);
        command
    }

    pub(crate) fn spawn(&self, mut command: Command) -> Child {
        // Without these Open MPI and PRRTE refuse to run for root.
        for family in ["OMPI", "PRTE"] {
            command.env(format!("{family}_ALLOW_RUN_AS_ROOT"), "1");
            command.env(format!("{family}_ALLOW_RUN_AS_ROOT_CONFIRM"), "1");
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        match self.cluster {
            Some(cluster) => cluster.spawn(command),
            None => command.spawn().expect("the launcher"),
        }
    }
}

/// The program `name` where the system keeps programs; nothing, and the reason printed, where it is
/// not installed.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let found = places.map(|place| place.join(name)).find(|program| program.is_file());
    if found.is_none() {
        eprintln!("skipped: {name} is not installed");
    }
    found
}
