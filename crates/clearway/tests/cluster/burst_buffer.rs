//! `examples/slurm/burst_buffer.lua` in a Slurm of two nodes: a job whose files are there before it
//! starts and in the backing directory after it, and directives that are refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::directory::{self, ClusterDirectory};
use super::launcher::program;
use super::slurm::SlurmCluster;
use super::staging::can_stage;
use crate::waiting::comes;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/slurm/burst_buffer.lua");

/// A mount that the daemons of the cluster have, too, until they are gone.
struct StagedTree(PathBuf);

impl StagedTree {
    /// Mounts in the directory of `site`, and writes the script for it.
    fn mount(site: &ClusterDirectory) -> Self {
        let directory = site.path("tree");
        fs::create_dir(&directory).expect("a directory");
        let places = format!("{}:{}", site.path("log").display(), site.path("store").display());
        let mut command = Command::new(site.path("clearway"));
        command.args(["mount", "--local", &places]).arg(&directory).args(["--size", "128MiB"]);
        let output = command.output().expect("the program");
        assert!(output.status.success(), "{}", directory::text(&output));
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(&directory, all).expect("set");
        let mut script = fs::read_to_string(SCRIPT).expect("the script");
        let own = |name: &str| site.path(name).display().to_string();
        for (name, value) in [
            ("/usr/local/bin/clearway", own("clearway")),
            ("/ck", own("tree")),
            ("/lustre/scratch", own("store")),
            ("/run/clearway-jobs/%j", own("tree")),
        ] {
            let quoted = format!("\"{name}\"");
            assert_eq!(script.matches(&quoted).count(), 1, "{name}");
            script = script.replace(&quoted, &format!("\"{value}\""));
        }
        fs::write(site.path("burst_buffer.lua"), script).expect("written");
        Self(directory)
    }
}

impl Drop for StagedTree {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(&self.0, nix::mount::MntFlags::MNT_DETACH);
    }
}

/// A cluster whose jobs are staged.
struct StagedCluster<'a> {
    site: &'a ClusterDirectory,
    slurm: SlurmCluster,
}

impl StagedCluster<'_> {
    fn run(&self, name: &str, words: &[&str]) -> Output {
        let mut command = Command::new(program(name).expect("a program of Slurm"));
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.slurm.spawn(command).wait_with_output().expect("an end")
    }

    /// Submits a job of these lines, of a user: root can have no burst buffer.
    fn submit(&self, lines: &str) -> Output {
        let script = self.site.path("job.sh");
        fs::write(&script, format!("#!/bin/sh\n{lines}")).expect("written");
        let script = script.display().to_string();
        let words = ["--parsable", "--uid=nobody", "-D", "/", "-N", "1", "-o", "/dev/null"];
        self.run("sbatch", &[&words[..], &[&script]].concat())
    }

    fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) {
        if !comes(is_so) {
            let shown = directory::text(&self.run("scontrol", &["show", "job"]));
            let log = fs::read_to_string(self.site.path("ctl.log")).unwrap_or_default();
            panic!("not so: {what}: {shown}{log}");
        }
    }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a directory")).expect("made");
    fs::write(path, text).expect("written");
}

#[test]
fn slurm__a_job_finds_what_was_staged_in_and_leaves_what_is_staged_out() {
    let site = ClusterDirectory::new("burst-buffer");
    if !SlurmCluster::has_plugin("burst_buffer_lua.so") || !can_stage(&site) {
        return;
    }
    let tree = StagedTree::mount(&site);
    let more = "BurstBufferType=burst_buffer/lua\n";
    let Some(slurm) = SlurmCluster::start_with(&site, more) else { return };
    let cluster = StagedCluster { site: &site, slurm };
    let shown = site.directory().display();
    write(&site.path("in put/file"), "staged in\n");
    let job = cluster.submit(&format!(
        "#BB_LUA stage_in source=\"{shown}/in put\" destination=me/in\n\
         #BB_LUA stage_out source=me/out destination={shown}/store/results/run class=bulk\n\
         mkdir $CLEARWAY_STAGE/me/out && tr a-z A-Z <$CLEARWAY_STAGE/me/in/file >$CLEARWAY_STAGE/me/out/file\n"
    ));
    assert!(job.status.success(), "{}", directory::text(&job));
    let result = site.path("store/results/run/file");
    cluster.wait_until("the result is in the store", || result.exists());
    assert_eq!(fs::read_to_string(&result).expect("read"), "STAGED IN\n");
    assert_eq!(fs::read_to_string(site.path("tree/me/in/file")).expect("read"), "staged in\n");
    assert!(!site.path("tree/me/out").exists(), "it was moved");

    let refused = cluster.submit("#BB_LUA stage_in source=input destination=me/in\n");
    let said = directory::text(&refused);
    assert!(!refused.status.success(), "{said}");
    assert!(said.contains("line 2: stage_in source= is not a full path"), "{said}");

    let missing =
        cluster.submit(&format!("#BB_LUA stage_in source={shown}/nothing destination=me/in\n"));
    let job = directory::text(&missing);
    let job = job.trim();
    assert!(missing.status.success(), "{job}");
    let reason = || directory::text(&cluster.run("scontrol", &["show", "job", job]));
    cluster.wait_until("the job says why it waits", || reason().contains("stage_in: no source "));
    cluster.run("scancel", &[job]);
    let status = cluster.run("scontrol", &["show", "bbstat"]);
    assert!(directory::text(&status).contains("store"), "{}", directory::text(&status));
    drop(cluster);
    drop(tree);
}
