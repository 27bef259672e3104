//! A Slurm of its own: a controller and two nodes in the hosts of a lab, with a munge of their own,
//! gone with the value.
//!
//! # Model
//! Each daemon is in a process namespace whose first process reads from a pipe of this test. When
//! the test drops its end, or dies, that process ends and the kernel ends everything in the
//! namespace.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use clearway_lab::{Lab, LabSpec, Topology, permission};
use clearway_proto::base::{BitsPerSec, Rank};

use super::directory::ClusterDirectory;
use super::launcher::{ClusterLauncher, program};
use crate::waiting::comes;

/// One at a time: ranks that measure, and ranks that are missed when they are silent, need the
/// processors.
static ONE: Mutex<()> = Mutex::new(());

/// Where Debian and others keep Slurm's plug-ins.
const PLUGINS: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/slurm-wlm",
    "/usr/lib/aarch64-linux-gnu/slurm-wlm",
    "/usr/lib64/slurm",
];

/// The configuration. Nothing of the machine is used that another Slurm on it could use as well,
/// and no cgroup.
const CONFIGURATION: &str = "\
ClusterName=clearway
SlurmctldHost=ctl({controller})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/run/munge/munge.socket.2
CredType=cred/munge
StateSaveLocation={directory}/state
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/%n.pid
SlurmdSpoolDir={directory}/%n
SlurmctldLogFile={directory}/ctl.log
SlurmdLogFile={directory}/%n.log
TmpFS={directory}/tmp
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
ReturnToService=2
KillWait=2
MpiDefault=none
NodeName=n1 NodeAddr={n1} CPUs=8 State=UNKNOWN
NodeName=n2 NodeAddr={n2} CPUs=8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
";

/// A running cluster.
pub(crate) struct SlurmCluster {
    lab: Lab,
    srun: PathBuf,
    configuration: PathBuf,
    daemons: Vec<Child>,
    /// Its turn; the last field, because it ends last.
    _turn: MutexGuard<'static, ()>,
}

impl SlurmCluster {
    /// Starts it in the directory of `ground`; nothing, and the reason printed, where that cannot
    /// be done.
    pub(crate) fn start(site: &ClusterDirectory) -> Option<Self> {
        Self::start_with(site, "")
    }

    /// The same, with `more` lines in its configuration.
    pub(crate) fn start_with(site: &ClusterDirectory, more: &str) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: a Slurm of two nodes needs root");
            return None;
        }
        let [srun, sinfo, controller, node, munge] =
            ["srun", "sinfo", "slurmctld", "slurmd", "munged"].map(program);
        let (srun, sinfo, controller, node, munge) = (srun?, sinfo?, controller?, node?, munge?);
        let turn = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let lab = lab()?;
        let configuration = write_files(site.directory(), &lab, more);
        let mut slurm = Self { lab, srun, configuration, daemons: Vec::new(), _turn: turn };
        let munge = format!("{} {}", munge.display(), munge_arguments(site.directory()));
        let controller = format!("{munge} & {} -D -c", controller.display());
        slurm.serve(site.directory(), Rank(0), "ctl", &controller);
        for (rank, name) in [(Rank(1), "n1"), (Rank(2), "n2")] {
            slurm.serve(site.directory(), rank, name, &format!("{} -D -N {name}", node.display()));
        }
        slurm.wait_for_nodes(&sinfo, site.directory());
        Some(slurm)
    }

    /// Whether Slurm came with a plug-in; says so where it did not.
    pub(crate) fn has_plugin(name: &str) -> bool {
        let is_there = PLUGINS.iter().any(|place| Path::new(place).join(name).exists());
        if !is_there {
            eprintln!("skipped: this Slurm has no {name}");
        }
        is_there
    }

    /// `srun` with the plug-in `way`, on both nodes; nothing, and the reason printed, where Slurm
    /// came without it.
    pub(crate) fn launcher(&self, way: &str, method: &'static str) -> Option<ClusterLauncher<'_>> {
        let plugin = format!("mpi_{way}.so");
        if !Self::has_plugin(&plugin) {
            return None;
        }
        if way == "pmix"
            && !PLUGINS.iter().any(|place| Path::new(place).with_file_name("libpmix.so").exists())
        {
            eprintln!(
                "skipped: Slurm's {plugin} loads libpmix.so by that name, which libpmix-dev has"
            );
            return None;
        }
        let arguments =
            ["-N", "2", "--overcommit", &format!("--mpi={way}")].map(str::to_owned).to_vec();
        let name = format!("srun --mpi={way}");
        Some(ClusterLauncher {
            name,
            method,
            program: self.srun.clone(),
            arguments,
            cluster: Some(self),
        })
    }

    /// Starts `command` on the controller's host.
    pub(crate) fn spawn(&self, mut command: Command) -> Child {
        command.env("SLURM_CONF", &self.configuration);
        self.lab.spawn(Rank(0), command).expect("a process in the lab")
    }

    /// Ends everything on the second node at once, its daemon as well.
    pub(crate) fn fell(&mut self) {
        if let Some(mut daemon) = self.daemons.pop() {
            drop(daemon.stdin.take());
            daemon.wait().expect("an end");
        }
    }

    /// Runs `daemon` on a host of the lab that calls itself `name`.
    fn serve(&mut self, directory: &Path, host: Rank, name: &str, daemon: &str) {
        let own = directory.join(name);
        let shown = directory.display();
        let script = format!(
            "hostname {name} && mount --bind {shown}/hosts /etc/hosts && mount --bind {shown}/{name}/tmp {shown}/tmp \
             && mount --bind {shown}/run /run && {{ {daemon} >{shown}/{name}.out 2>&1 </dev/null & cat; }}"
        );
        fs::create_dir_all(own.join("tmp")).expect("a directory");
        let mut command = Command::new("unshare");
        command.args(["--uts", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", &script]);
        command.env("SLURM_CONF", &self.configuration).stdin(Stdio::piped()).stdout(Stdio::null());
        self.daemons.push(self.lab.spawn(host, command).expect("a process in the lab"));
    }

    fn wait_for_nodes(&self, sinfo: &Path, directory: &Path) {
        let are_idle = || {
            let mut command = Command::new(sinfo);
            command
                .args(["-h", "-o", "%T %D"])
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            let output = self.spawn(command).wait_with_output().expect("an end");
            String::from_utf8_lossy(&output.stdout).trim() == "idle 2"
        };
        assert!(comes(are_idle), "no nodes: {}", said(directory));
    }
}

impl Drop for SlurmCluster {
    fn drop(&mut self) {
        self.daemons.iter_mut().for_each(|daemon| drop(daemon.stdin.take()));
        for daemon in &mut self.daemons {
            let _ = daemon.wait();
        }
    }
}

/// Three hosts.
fn lab() -> Option<Lab> {
    let spec = LabSpec::new(Topology::Star { hosts: 3, rate: BitsPerSec::mega(1_000) });
    let lab = permission::acquire().and_then(|_| Lab::up(&"slurm".parse().expect("a name"), &spec));
    lab.inspect_err(|why| eprintln!("skipped: a Slurm needs a lab: {why}")).ok()
}

/// Writes what the daemons read; the path of the configuration.
fn write_files(directory: &Path, lab: &Lab, more: &str) -> PathBuf {
    for name in ["state", "tmp", "run/munge"] {
        fs::create_dir_all(directory.join(name)).expect("a directory");
    }
    let key: Vec<u8> = fs::read("/proc/sys/kernel/random/uuid").expect("random").repeat(2);
    let key_path = directory.join("run/munge/key");
    fs::write(&key_path, key).expect("written");
    fs::set_permissions(&key_path, std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .expect("private");
    let mut hosts = "127.0.0.1 localhost\n".to_owned();
    let mut text =
        format!("{CONFIGURATION}{more}").replace("{directory}", &directory.display().to_string());
    for (name, place, host) in [("ctl", "{controller}", 0), ("n1", "{n1}", 1), ("n2", "{n2}", 2)] {
        let address = lab.hosts()[host].address.to_string();
        writeln!(hosts, "{address} {name}").expect("written");
        text = text.replace(place, &address);
    }
    fs::write(directory.join("hosts"), hosts).expect("written");
    fs::write(directory.join("cgroup.conf"), "CgroupPlugin=cgroup/v1\n").expect("written");
    let path = directory.join("slurm.conf");
    fs::write(&path, text).expect("written");
    path
}

fn munge_arguments(directory: &Path) -> String {
    let own = |name: &str| directory.join("run/munge").join(name).display().to_string();
    let [key, socket, pid, log, seed] = ["key", "munge.socket.2", "pid", "log", "seed"].map(own);
    format!(
        "--foreground --force --key-file={key} --socket={socket} --pid-file={pid} --log-file={log} --seed-file={seed} \
         </dev/null >/dev/null 2>&1"
    )
}

/// What the daemons said, which tells why they did not come up.
fn said(directory: &Path) -> String {
    let names = ["ctl.out", "n1.out", "n2.out", "ctl.log", "n1.log", "n2.log"];
    names.map(|name| fs::read_to_string(directory.join(name)).unwrap_or_default()).concat()
}
