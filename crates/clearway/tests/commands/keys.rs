//! Runs one of whose ranks has another key than the job: it is refused by name, whatever the
//! launcher and the wire.
//!
//! All ranks are in one host of a lab, and believe to be on two machines: their messages are
//! sealed. The process of one of them gets another secret than the launcher's exchange carried.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use clearway_lab::{Lab, LabSpec, Topology, permission};
use clearway_proto::base::{BitsPerSec, Rank};
use nix::unistd::Pid;

use crate::processes::{self, FoundProcess};

/// A launcher that speaks PMI-1.
const LAUNCHER: &str = "mpiexec.hydra";

/// Starts a rank: three on one machine, the others on another. What rank 3 starts is another
/// program than itself.
const MACHINE: &str = r#"#!/bin/sh
exec unshare --mount sh -c '
    rank=${CLEARWAY_RANK:-$PMI_RANK}
    echo "machine $((rank / 3))" >"$0/boot.$rank"
    mount --bind "$0/boot.$rank" /proc/sys/kernel/random/boot_id
    [ "$rank" = 3 ] || exec "$0/clearway" "$@"
    exec 9<"$0/clearway"
    mount --bind "$0/impostor" "$0/clearway"
    exec /proc/self/fd/9 "$@"' "${0%/*}" "$@"
"#;

/// That other program: the same with another secret.
const IMPOSTOR: &str = "#!/bin/sh\nCLEARWAY_JOB_SECRET=00112233445566778899aabbccddeeff exec \"${0%/*}/copy\" \"$@\"\n";

/// An ssh that stays here.
const SSH: &str = "#!/bin/sh\nwhile [ $# -gt 2 ]; do shift; done\nexec sh -c \"$2\"\n";

/// A directory with these programs, and a lab.
struct KeysTestBed {
    directory: PathBuf,
    lab: Lab,
}

impl KeysTestBed {
    /// Nothing, and the reason printed, where there can be none.
    fn new(name: &str) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: a host that seems to be two machines needs root");
            return None;
        }
        let spec = LabSpec::new(Topology::Star { hosts: 2, rate: BitsPerSec::mega(1_000) });
        let lab =
            permission::acquire().and_then(|_| Lab::up(&name.parse().expect("a name"), &spec));
        let lab = lab.inspect_err(|why| eprintln!("skipped: no lab: {why}")).ok()?;
        let directory =
            std::env::temp_dir().join(format!("clearway-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        for copy in ["clearway", "copy"] {
            fs::copy(env!("CARGO_BIN_EXE_clearway"), directory.join(copy))
                .expect("a copy of the program");
        }
        for (name, text) in [("machine", MACHINE), ("impostor", IMPOSTOR), ("ssh", SSH)] {
            fs::write(directory.join(name), text).expect("written");
            fs::set_permissions(directory.join(name), fs::Permissions::from_mode(0o755))
                .expect("a program");
        }
        Some(Self { directory, lab })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// What `command` came to on a host of the lab, given what a run over `wire` gets.
    fn run(&self, mut command: Command, wire: &[&str]) -> Output {
        command.args(["--on", "cluster", "--overwrite", "--out"]).arg(self.path("out")).args(wire);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.lab
            .spawn(Rank(0), command)
            .expect("a process in the lab")
            .wait_with_output()
            .expect("an end")
    }

    fn launched(&self) -> Command {
        let mut command = Command::new(LAUNCHER);
        command.args(["-n", "5"]).arg(self.path("machine")).args(["run", "incast"]);
        command
    }

    fn over_ssh(&self) -> Command {
        fs::write(self.path("hosts"), "n1 slots=5\n").expect("written");
        let mut command = Command::new(self.path("clearway"));
        command.args(["run", "incast", "--hostfile"]).arg(self.path("hosts"));
        command.arg("--remote-program").arg(self.path("machine"));
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.directory.display()));
        command
    }

    fn expect_nothing_left(&self) {
        let directory = self.directory.display().to_string();
        let is_left = |process: &FoundProcess| {
            process.pid != Pid::this() && process.line.contains(&directory)
        };
        let left = || processes::all().filter(is_left).collect();
        processes::wait_until("nothing is left", left, <[FoundProcess]>::is_empty);
    }
}

impl Drop for KeysTestBed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Each wire that has keys, on runs that `command` starts.
fn refuse(test_bed: &KeysTestBed, command: impl Fn(&KeysTestBed) -> Command) {
    for wire in [&["--wire", "udp"][..], &["--wire", "shm,udp"], &["--wire", "ofi", "--insecure"]] {
        let output = test_bed.run(command(test_bed), wire);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if said.contains("no libfabric") {
            eprintln!("skipped: {said}");
            continue;
        }
        assert_eq!(output.status.code(), Some(1), "{wire:?}: {said}");
        let sentence =
            said.lines().filter(|line| line.contains("cannot take part")).collect::<Vec<_>>();
        let [sentence] = sentence[..] else { panic!("{wire:?}: not one sentence: {said}") };
        assert!(
            sentence.contains("rank 3 on host ") && sentence.contains("was not made for this job"),
            "{sentence}"
        );
        assert!(!test_bed.path("out/report.json").exists(), "{wire:?}: a report");
        test_bed.expect_nothing_left();
    }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&path).any(|directory| Path::new(&directory).join(program).is_file());
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

#[test]
fn keys__a_launched_rank_with_another_key_is_refused_by_name() {
    let Some(test_bed) = is_installed(LAUNCHER).then(|| KeysTestBed::new("keys-pmi")).flatten()
    else {
        return;
    };
    refuse(&test_bed, KeysTestBed::launched);
}

#[test]
fn keys__a_rank_over_ssh_with_another_key_is_refused_by_name() {
    let Some(test_bed) = KeysTestBed::new("keys-ssh") else { return };
    refuse(&test_bed, KeysTestBed::over_ssh);
}
