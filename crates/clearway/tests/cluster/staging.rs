//! `clearway stage job` under launchers: one mount for each node, a launcher that is left to the
//! program, and an end of all where a mount ends.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Child, Command};

use nix::sys::signal::{Signal, kill};

use super::directory::{self, ClusterDirectory};
use super::launcher::{ClusterLauncher, RANKS};
use super::slurm::SlurmCluster;

/// The rank of a program, whichever launcher it has.
const RANK: &str = "${SLURM_PROCID:-${PMIX_RANK:-$PMI_RANK}}";

/// Makes what a job needs; `false`, and says why, where nothing can be mounted.
pub(crate) fn can_stage(site: &ClusterDirectory) -> bool {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: a mount needs root");
        return false;
    }
    if let Err(why) = fs::File::options().read(true).write(true).open("/dev/fuse") {
        eprintln!("skipped: /dev/fuse cannot be opened: {why}");
        return false;
    }
    for name in ["store", "tmp"] {
        fs::create_dir_all(site.path(name)).expect("a directory");
    }
    true
}

impl ClusterLauncher<'_> {
    /// Starts a job with `program` at all ranks.
    fn start_staging(&self, site: &ClusterDirectory, program: &[&str]) -> Child {
        let mut command: Command = self.command();
        command.arg(site.path("clearway")).args(["stage", "job", "--size", "128MiB"]);
        command.arg("--data").arg(site.path("log")).arg("--backing").arg(site.path("store"));
        command.arg("--").args(program).env("TMPDIR", site.path("tmp"));
        self.spawn(command)
    }

    /// Runs a command at each rank; returns what it printed.
    fn answers(&self, site: &ClusterDirectory, script: &str) -> String {
        let mut command = self.command();
        command.args(["sh", "-c", script]).env("TMPDIR", site.path("tmp"));
        let output = self.spawn(command).wait_with_output().expect("an end");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// Runs jobs on `hosts` hosts.
fn stage(site: &ClusterDirectory, launcher: &ClusterLauncher<'_>, hosts: usize) {
    let script = format!(
        "cd \"$CLEARWAY_STAGE\" && pwd >where-{RANK} && head -c 300000 /dev/urandom >bytes-{RANK}"
    );
    let run = launcher.start_staging(site, &["sh", "-c", &script]);
    let output = run.wait_with_output().expect("an end");
    let said = directory::text(&output);
    // Of a launcher's own words, `srun` says when a job waits for the one before it.
    let is_own = |line: &str| line.starts_with("clearway: ");
    assert!(output.status.success(), "{}: {said}", launcher.name);
    assert!(!said.lines().any(is_own), "{}: {said}", launcher.name);
    let ranks: u32 = RANKS.parse().expect("a number");
    let read = |name: String| {
        let bytes = fs::read(site.path("store").join(&name));
        bytes.unwrap_or_else(|why| panic!("{}: {name}: {why}", launcher.name))
    };
    let mounts: BTreeSet<_> = (0..ranks).map(|rank| read(format!("where-{rank}"))).collect();
    assert_eq!(mounts.len(), hosts, "{}: one mount for each host", launcher.name);
    assert!((0..ranks).all(|rank| read(format!("bytes-{rank}")).len() == 300_000));
    expect_nothing_left(site, launcher);

    // A program that meets its ranks by the launcher's own ways, as MPI does.
    let program = site.path("clearway").display().to_string();
    let run = launcher.start_staging(site, &[&program, "gather"]);
    let output = run.wait_with_output().expect("an end");
    let said = directory::text(&output);
    assert!(output.status.success(), "{}: {said}", launcher.name);
    assert!(said.contains("wires: "), "{}: {said}", launcher.name);
    expect_nothing_left(site, launcher);
}

/// A job one of whose mounts is killed.
fn lose_a_mount(site: &ClusterDirectory, launcher: &ClusterLauncher<'_>, hosts: usize) {
    let run = launcher.start_staging(site, &["sh", "-c", "sleep 1000 & wait"]);
    let ranks: usize = RANKS.parse().expect("a number");
    let mounts = site.wait_for("job-mount", hosts);
    site.wait_for(" stage job ", ranks);
    kill(*mounts.last().expect("a mount"), Signal::SIGKILL).expect("killed");
    let output = run.wait_with_output().expect("an end");
    let said = directory::text(&output);
    assert!(!output.status.success(), "{}: {said}", launcher.name);
    let sentences = said.matches("clearway: host ").count();
    assert_eq!(sentences, 1, "{}: {said}", launcher.name);
    assert!(said.contains("the process of the mount"), "{}: {said}", launcher.name);
    expect_nothing_left(site, launcher);
}

/// A job one of whose tasks is killed, with the program of that task and the mount of its node.
fn lose_a_task(site: &ClusterDirectory, launcher: &ClusterLauncher<'_>, hosts: usize) {
    for rank in [3, 0] {
        let run = launcher.start_staging(site, &["sh", "-c", "sleep 1000 & wait"]);
        site.wait_for("job-mount", hosts);
        kill(site.wait_for_one(" stage job ", rank), Signal::SIGKILL).expect("killed");
        let output = run.wait_with_output().expect("an end");
        let said = directory::text(&output);
        assert!(!output.status.success(), "{}: {said}", launcher.name);
        expect_nothing_left(site, launcher);
    }
}

/// A job with a server on each of two nodes, whose logs lie apart, as if on disks of their own.
fn stage_on_two_servers(site: &ClusterDirectory, launcher: &ClusterLauncher<'_>) {
    let start_with = |script: &str, log: &str, backing: &str| {
        let line = format!(
            "exec \"$0\" stage job --size 128MiB --servers 2 --data \"$1-$SLURM_NODEID\" \
                --backing \"$2{backing}\" -- sh -c \"$3\""
        );
        let mut command: Command = launcher.command();
        command.args(["sh", "-c", &line]).args(["clearway", log, "shared"].map(|it| site.path(it)));
        command.arg(script).env("TMPDIR", site.path("tmp"));
        launcher.spawn(command)
    };
    let start = |script: &str| start_with(script, "log", "");
    for name in ["shared", "shared-0", "shared-1"] {
        fs::create_dir_all(site.path(name)).expect("a directory");
    }
    // As if each node had a directory of its own there.
    let output = start_with("true", "apart", "-$SLURM_NODEID").wait_with_output().expect("an end");
    let said = directory::text(&output);
    assert!(!output.status.success(), "{}: {said}", launcher.name);
    let sentences = said.matches("is not one directory for all servers: host ").count();
    assert_eq!(sentences, 1, "{}: {said}", launcher.name);
    expect_nothing_left(site, launcher);
    for name in ["shared-0", "shared-1"] {
        let left = fs::read_dir(site.path(name)).expect("there").flatten();
        let is_probe = |name: &std::ffi::OsStr| name.to_string_lossy().contains("probe");
        assert!(!left.into_iter().any(|entry| is_probe(&entry.file_name())));
    }
    let write = format!(
        "cd \"$CLEARWAY_STAGE\" && for n in 1 2 3 4 5 6 7 8; do echo {RANK} >made-{RANK}-$n; done"
    );
    for script in [&write[..], "[ $(cat \"$CLEARWAY_STAGE\"/made-* | wc -l) = 40 ]"] {
        let output = start(script).wait_with_output().expect("an end");
        assert!(output.status.success(), "{}: {}", launcher.name, directory::text(&output));
        expect_nothing_left(site, launcher);
    }
    for rank in 0..RANKS.parse().expect("a number") {
        let name = |n: u32| site.path("shared").join(format!("made-{rank}-{n}"));
        assert!(
            (1..=8).all(|n| fs::read(name(n)).is_ok_and(|it| it == format!("{rank}\n").as_bytes()))
        );
    }
    for log in ["log-0", "log-1"] {
        let mut fsck = Command::new(site.path("clearway"));
        let output = fsck.args(["stage", "fsck"]).arg(site.path(log)).output().expect("fsck");
        let said = String::from_utf8_lossy(&output.stdout);
        let inodes = said.lines().find_map(|line| line.strip_prefix("inodes")?.trim().parse().ok());
        assert!(inodes.is_some_and(|inodes: u32| inodes > 5), "{log} has names: {said}");
    }
    // The server of the second node dies with its task.
    let run = start("sleep 1000 & wait");
    site.wait_for("job-mount", 2);
    kill(site.wait_for_one(" stage job ", 3), Signal::SIGKILL).expect("killed");
    let output = run.wait_with_output().expect("an end");
    assert!(!output.status.success(), "{}", directory::text(&output));
    expect_nothing_left(site, launcher);
}

fn expect_nothing_left(site: &ClusterDirectory, launcher: &ClusterLauncher<'_>) {
    site.expect_nothing_left();
    let look = "grep \"$TMPDIR/clearway-stage-\" /proc/self/mounts; \
        ls \"$TMPDIR\" | grep clearway-stage-; exit 0";
    let left = launcher.answers(site, look);
    assert!(left.is_empty(), "{}: {left}", launcher.name);
}

fn stage_here(launcher: &str) {
    let Some(launcher) = ClusterLauncher::local(launcher) else { return };
    let site = ClusterDirectory::new(&format!("stage-{}", launcher.name));
    if can_stage(&site) {
        stage(&site, &launcher, 1);
        lose_a_mount(&site, &launcher, 1);
        lose_a_task(&site, &launcher, 1);
    }
}

#[test]
fn hydra__a_job_has_a_mount_and_its_launcher() {
    stage_here("mpiexec.hydra");
}

#[test]
fn openmpi__a_job_has_a_mount_and_its_launcher() {
    stage_here("mpirun.openmpi");
}

#[test]
fn slurm__a_job_has_a_mount_on_each_node_and_its_launcher() {
    let site = ClusterDirectory::new("stage-slurm");
    if !can_stage(&site) {
        return;
    }
    let Some(slurm) = SlurmCluster::start(&site) else { return };
    for (way, method) in [("pmi2", "PMI-1"), ("none", "Slurm environment"), ("pmix", "PMIx")] {
        let Some(launcher) = slurm.launcher(way, method) else { continue };
        stage(&site, &launcher, 2);
        stage_on_two_servers(&site, &launcher);
        lose_a_mount(&site, &launcher, 2);
        lose_a_task(&site, &launcher, 2);
    }
}
