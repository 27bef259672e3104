//! A Slurm of two nodes on virtual hosts (`two_hosts`), for as long as one script runs.
//!
//! # Model
//! The script starts the daemons, waits until both nodes are idle and runs `srun`. In their network
//! namespaces the daemons meet no other Slurm of this machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use crate::two_hosts;

const CONFIGURATION: &str = "\
ClusterName=clearway
SlurmctldHost=n1(192.0.2.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge/socket
CredType=cred/munge
StateSaveLocation={directory}/state
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/%n.pid
SlurmdSpoolDir={directory}/spool-%n
SlurmctldLogFile={directory}/slurmctld.log
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
NodeName=n1 NodeAddr=192.0.2.1 CPUs=8 State=UNKNOWN
NodeName=n2 NodeAddr=192.0.2.2 CPUs=8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
";

/// Starts the daemons, and runs what stands behind it.
const DAEMONS: &str = "\
munged --foreground --force --key-file={directory}/munge/key --socket={directory}/munge/socket \
    --pid-file={directory}/munge/pid --log-file={directory}/munge/log --seed-file={directory}/munge/seed \
    </dev/null >munged.out 2>&1 &
slurmctld -D -c </dev/null >slurmctld.out 2>&1 &
slurmd -D -N n1 </dev/null >n1.out 2>&1 &
on_n2 slurmd -D -N n2 </dev/null >n2.out 2>&1 &
until [ \"$(sinfo -h -o '%T %D' 2>/dev/null)\" = 'idle 2' ]; do sleep 0.1; done
";

/// Where Debian and others keep Slurm's plug-ins.
const PLUGINS: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/slurm-wlm",
    "/usr/lib/aarch64-linux-gnu/slurm-wlm",
    "/usr/lib64/slurm",
];

/// Returns whether this Slurm can start processes with the plug-in `way`.
pub(crate) fn has_plugin(way: &str) -> bool {
    PLUGINS.iter().map(Path::new).any(|place| {
        place.join(format!("mpi_{way}.so")).exists()
            // That plug-in loads the library by the name that only developers have.
            && (way != "pmix" || place.with_file_name("libpmix.so").exists())
    })
}

/// Runs `script` with `srun` and two nodes of eight processors.
pub(crate) fn run(script: &str) -> Output {
    let directory = two_hosts::directory("slurm");
    for name in ["state", "spool-n1", "spool-n2", "munge"] {
        fs::create_dir_all(directory.join(name)).expect("a directory");
    }
    let shown = directory.display().to_string();
    let key = directory.join("munge/key");
    let random = fs::read("/proc/sys/kernel/random/uuid").expect("random");
    fs::write(&key, random.repeat(2)).expect("written");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("private");
    fs::write(directory.join("cgroup.conf"), "CgroupPlugin=cgroup/v1\n").expect("written");
    let configuration = directory.join("slurm.conf");
    fs::write(&configuration, CONFIGURATION.replace("{directory}", &shown)).expect("written");
    two_hosts::run("slurm", &(DAEMONS.to_owned() + script), &[("SLURM_CONF", &configuration)])
}
