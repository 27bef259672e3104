//! Two virtual hosts, n1 and n2, for as long as one script runs: each has a network, a name and mounts
//! of its own, and a link joins them.
//!
//! # Model
//! Each has a `tmp` of its own in their directory: daemons of both keep files of one name there. The
//! first process of a process namespace is a shell on n1. Another process keeps the namespaces of
//! n2. When the shell ends, by itself or by `timeout`, the kernel ends everything in the namespace.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::prefix::{bounded, prefix};

/// Makes the hosts; `on_n2` then runs its words on the second one.
const HOSTS: &str = "\
set -e
cd {directory}
hostname n1
mount --bind hosts /etc/hosts
mount --bind run /run
mount --bind tmp-n1 tmp
ip link set lo up
unshare --net --uts --mount sh -c 'mount --bind tmp-n2 tmp && hostname n2 && exec sleep infinity' </dev/null >/dev/null 2>&1 &
keeper=$!
until [ \"$(nsenter -t $keeper -u hostname)\" = n2 ]; do sleep 0.1; done
ip link add eth0 type veth peer name eth0 netns $keeper
ip address add 192.0.2.1/24 dev eth0
ip link set eth0 up
on_n2() { nsenter -t $keeper --net --uts --mount \"$@\"; }
on_n2 ip link set lo up
on_n2 ip address add 192.0.2.2/24 dev eth0
on_n2 ip link set eth0 up
echo $keeper >keeper
";

/// What launchers take for `ssh`: it runs words on the host of a name.
const AGENT: &str = "\
#!/bin/sh
while case $1 in -*) true;; *) false;; esac; do case $1 in -o|-p|-l|-i) shift;; esac; shift; done
host=$1
shift
case $host in n1|192.0.2.1) exec sh -c \"$*\";; esac
exec nsenter -t $(cat {directory}/keeper) --net --uts --mount sh -c \"$*\"
";

/// Why there can be no hosts here, if so; `programs` are needed besides.
pub(crate) fn missing(programs: &[&str]) -> Option<String> {
    let is_there = |program: &&str| {
        let found =
            Command::new("sh").args(["-c", "command -v \"$0\" >/dev/null", program]).status();
        found.is_ok_and(|status| status.success())
    };
    let all = programs.iter().chain(&["unshare", "nsenter", "ip"]);
    if let Some(program) = all.copied().find(|program| !is_there(program)) {
        return Some(format!("{program} is not installed"));
    }
    let id = Command::new("id").arg("-u").output();
    let is_root = id.is_ok_and(|output| output.stdout == b"0\n");
    (!is_root).then(|| "only root can make hosts".to_owned())
}

/// The directory of the hosts called `name`, for files that both see.
pub(crate) fn directory(name: &str) -> PathBuf {
    prefix().join(name)
}

/// Runs `script` on n1 of the hosts called `name`, with these variables. `agent` in their directory
/// stands for `ssh`.
pub(crate) fn run(name: &str, script: &str, variables: &[(&str, &Path)]) -> Output {
    let directory = directory(name);
    for name in ["run", "tmp", "tmp-n1", "tmp-n2"] {
        fs::create_dir_all(directory.join(name)).expect("a directory");
    }
    let hosts = "127.0.0.1 localhost\n192.0.2.1 n1\n192.0.2.2 n2\n";
    fs::write(directory.join("hosts"), hosts).expect("written");
    let shown = directory.display().to_string();
    let agent = directory.join("agent");
    fs::write(&agent, AGENT.replace("{directory}", &shown)).expect("written");
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).expect("a program");
    bounded("unshare")
        .args(["--net", "--uts", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"])
        .args(["sh", "-c", &(HOSTS.to_owned() + script).replace("{directory}", &shown)])
        .env("SHMEM_SYMMETRIC_SIZE", "16m")
        .envs(variables.iter().copied())
        .output()
        .expect("unshare")
}
