//! A Slurm of one node in namespaces of its own, for as long as one script runs.
//!
//! # Model
//! The first process of a process namespace is a shell. It starts the daemons, waits until the node
//! is idle and runs `srun`. When it ends, by itself or by `timeout`, the kernel ends everything in
//! the namespace. In its network namespace the daemons meet no other Slurm of this machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use crate::prefix::{bounded, prefix};

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
SlurmdPidFile={directory}/slurmd.pid
SlurmdSpoolDir={directory}/spool
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd.log
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
PartitionName=all Nodes=ALL Default=YES State=UP
";

/// Starts the daemons, and runs what stands behind it.
const DAEMONS: &str = "\
set -e
cd {directory}
hostname n1
mount --bind hosts /etc/hosts
mount --bind run /run
ip link set lo up
# The resolver finds no address for daemons where there are only those of 127.0.0.0/8.
ip address add 192.0.2.1/32 dev lo
munged --foreground --force --key-file={directory}/munge/key --socket={directory}/munge/socket \
    --pid-file={directory}/munge/pid --log-file={directory}/munge/log --seed-file={directory}/munge/seed \
    </dev/null >munged.out 2>&1 &
slurmctld -D -c </dev/null >slurmctld.out 2>&1 &
slurmd -D -N n1 </dev/null >slurmd.out 2>&1 &
until [ \"$(sinfo -h -o %T 2>/dev/null)\" = idle ]; do sleep 0.1; done
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

/// Runs `script` with `srun` and a node of eight processors.
pub(crate) fn run(script: &str) -> Output {
    let directory = prefix().join("slurm");
    for name in ["state", "spool", "run", "munge"] {
        fs::create_dir_all(directory.join(name)).expect("a directory");
    }
    let shown = directory.display().to_string();
    let key = directory.join("munge/key");
    let random = fs::read("/proc/sys/kernel/random/uuid").expect("random");
    fs::write(&key, random.repeat(2)).expect("written");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("private");
    fs::write(directory.join("hosts"), "127.0.0.1 localhost\n192.0.2.1 n1\n").expect("written");
    fs::write(directory.join("cgroup.conf"), "CgroupPlugin=cgroup/v1\n").expect("written");
    let configuration = directory.join("slurm.conf");
    fs::write(&configuration, CONFIGURATION.replace("{directory}", &shown)).expect("written");
    let whole = DAEMONS.replace("{directory}", &shown) + script;
    bounded("unshare")
        .args(["--net", "--uts", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"])
        .args(["sh", "-c", &whole])
        .env("SLURM_CONF", configuration)
        .env("SHMEM_SYMMETRIC_SIZE", "16m")
        .output()
        .expect("unshare")
}
