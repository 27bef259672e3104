//! Runs across real processes that a launcher starts: that they find each other, and that the death
//! of any of them ends all.
#![allow(non_snake_case)] // tests are named function__case

mod burst_buffer;
mod directory;
mod launcher;
#[path = "../commands/processes.rs"]
mod processes;
mod slurm;
mod staging;
#[path = "../commands/waiting.rs"]
mod waiting;

use std::fs;

use nix::sys::signal::{Signal, kill};
use serde_json::Value;

use directory::{ClusterDirectory, LONG, SHORT};
use launcher::{ClusterLauncher, RANKS};
use slurm::SlurmCluster;

/// A run from its start to its report.
fn measure(site: &ClusterDirectory, launcher: &ClusterLauncher<'_>) {
    let output = launcher.start(site, SHORT).wait_with_output().expect("an end");
    // On a busy machine any verdict may be right; that there is one is the point.
    let code = output.status.code().expect("no signal");
    assert!([0, 3, 4].contains(&code), "{}: {code}: {}", launcher.name, directory::text(&output));
    let report = fs::read(site.path("out/report.json")).expect("a report");
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    let method = report["host"]["facts"]["launched by"].as_str().expect("a fact");
    assert!(method.starts_with(launcher.method), "{}: {method}", launcher.name);
    assert!(
        launcher.cluster.is_none() || method.ends_with(", munge"),
        "{}: {method}",
        launcher.name
    );
    let marks = |queue: &str, class: &str| {
        let shares = report["shares"].as_array().expect("classes");
        let row =
            shares.iter().find(|row| row["labels"]["queue"] == queue && row["class"] == class);
        row.unwrap_or_else(|| panic!("no {class} on {queue}"))["granted"].clone()
    };
    assert_eq!(marks("classes", "low-latency"), "46 seen");
    assert_eq!(marks("classes", "bulk"), "8 seen");
    assert_eq!(marks("one-class", "best-effort"), "0 seen");
    site.expect_nothing_left();
}

/// Runs that lose one process each: a rank in the middle of the run, what the launcher started for
/// a rank, and the coordinator.
fn lose_one_each(site: &ClusterDirectory, launcher: &ClusterLauncher<'_>) {
    let run = launcher.start(site, LONG);
    let measuring = site.wait_for("rank --with-parent", 4);
    kill(measuring[3], Signal::SIGKILL).expect("killed");
    let said = end_badly(site, launcher, run);
    assert!(
        said.contains("was killed by signal 9 in the middle of the run"),
        "{}: {said}",
        launcher.name
    );
    assert!(
        said.contains("clearway: rank ") && said.contains(" on host "),
        "{}: {said}",
        launcher.name
    );

    for rank in [3, 0] {
        let run = launcher.start(site, LONG);
        site.wait_for("rank --with-parent", 4);
        kill(site.wait_for_rank(rank), Signal::SIGKILL).expect("killed");
        end_badly(site, launcher, run);
    }
}

/// A run that loses a rank before the ranks know each other.
fn lose_one_early(site: &ClusterDirectory, launcher: &ClusterLauncher<'_>) {
    let run = launcher.start_without_first(site);
    if launcher.cluster.is_some() {
        // Slurm does not end the step by itself; who makes it has to be there.
        site.wait_for_stand_in(3);
    }
    kill(site.wait_for_rank(3), Signal::SIGKILL).expect("killed");
    let said = end_badly(site, launcher, run);
    // Other launchers say it in their own words.
    assert!(
        launcher.cluster.is_none() || said.contains("clearway: rank 3 on host n2 is gone"),
        "{}: {said}",
        launcher.name
    );
}

/// A file that is cast to the ranks of `hosts`, once to each host, and once to each rank.
fn cast(site: &ClusterDirectory, launcher: &ClusterLauncher<'_>, hosts: &[&str]) {
    let model: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 5) as u8).collect();
    fs::write(site.path("model"), &model).expect("written");
    let ranks: u32 = RANKS.parse().expect("a number");
    let of_hosts: Vec<String> = hosts.iter().map(|host| format!("to-{host}")).collect();
    let of_ranks: Vec<String> = (0..ranks).map(|rank| format!("to-{rank}")).collect();
    for (into, directories) in [("to-%h", of_hosts), ("to-%r", of_ranks)] {
        let output = launcher.start_cast(site, "model", into).wait_with_output().expect("an end");
        let said = directory::text(&output);
        let count = directories.len();
        let all = format!("{count} of {count} have everything");
        assert!(output.status.success() && said.contains(&all), "{}: {said}", launcher.name);
        for directory in directories {
            let there = fs::read(site.path(&directory).join("model"));
            assert!(
                there.is_ok_and(|there| there == model),
                "{}: {directory}: {said}",
                launcher.name
            );
            fs::remove_dir_all(site.path(&directory)).expect("removed");
        }
        site.expect_nothing_left();
    }
    let output = launcher.start_cast(site, "nothing", "to").wait_with_output().expect("an end");
    let said = directory::text(&output);
    assert!(
        !output.status.success() && said.contains("nothing is not there"),
        "{}: {said}",
        launcher.name
    );
    site.expect_nothing_left();
}

/// The same where all ranks are on this machine.
fn cast_here(site: &ClusterDirectory, launcher: &ClusterLauncher<'_>) {
    let host = nix::unistd::gethostname().expect("a name");
    cast(site, launcher, &[&host.to_string_lossy()]);
}

/// Waits for the end of a run that lost a process: what it said.
fn end_badly(
    site: &ClusterDirectory,
    launcher: &ClusterLauncher<'_>,
    run: std::process::Child,
) -> String {
    let output = run.wait_with_output().expect("an end");
    let said = directory::text(&output);
    assert!(!output.status.success(), "{}: {said}", launcher.name);
    assert!(!site.path("out/report.json").exists(), "{}: a report of half a run", launcher.name);
    site.expect_nothing_left();
    said
}

/// A test with a launcher that starts everything on this machine.
fn local(name: &str, test: fn(&ClusterDirectory, &ClusterLauncher<'_>)) {
    let Some(launcher) = ClusterLauncher::local(name) else { return };
    test(&ClusterDirectory::new(name), &launcher);
}

#[test]
fn hydra__ranks_measure_their_network_with_one_class_and_with_several() {
    local("mpiexec.hydra", measure);
}

#[test]
fn hydra__a_cast_brings_one_copy_to_each_host_or_rank() {
    local("mpiexec.hydra", cast_here);
}

#[test]
fn openmpi__a_cast_brings_one_copy_to_each_host_or_rank() {
    local("mpirun.openmpi", cast_here);
}

#[test]
fn prterun__a_cast_brings_one_copy_to_each_host_or_rank() {
    local("prterun", cast_here);
}

#[test]
fn hydra__whichever_process_dies_all_end() {
    local("mpiexec.hydra", lose_one_each);
}

#[test]
fn hydra__a_rank_that_dies_while_ranks_join_ends_all() {
    local("mpiexec.hydra", lose_one_early);
}

#[test]
fn openmpi__ranks_measure_their_network_with_one_class_and_with_several() {
    local("mpirun.openmpi", measure);
}

#[test]
fn openmpi__whichever_process_dies_all_end() {
    local("mpirun.openmpi", lose_one_each);
}

#[test]
fn prterun__ranks_measure_their_network_with_one_class_and_with_several() {
    local("prterun", measure);
}

#[test]
fn prterun__whichever_process_dies_all_end() {
    local("prterun", lose_one_each);
}

#[test]
fn slurm__ranks_on_two_nodes_cast_measure_and_end_together_each_way() {
    let site = ClusterDirectory::new("slurm");
    let Some(slurm) = SlurmCluster::start(&site) else { return };
    for (way, method) in [("pmi2", "PMI-1"), ("none", "Slurm environment"), ("pmix", "PMIx")] {
        let Some(launcher) = slurm.launcher(way, method) else { continue };
        cast(&site, &launcher, &["n1", "n2"]);
        measure(&site, &launcher);
        fs::remove_dir_all(site.path("out")).expect("removed");
        lose_one_each(&site, &launcher);
        lose_one_early(&site, &launcher);
    }
}

/// What a run that builds timeslices reported, in which the last two of five ranks died; read as
/// far as it goes.
fn survived(launcher: &ClusterLauncher<'_>, reported: &mut dyn std::io::Read) {
    let reported = serde_json::Deserializer::from_reader(reported).into_iter::<Value>().next();
    let reported = reported
        .unwrap_or_else(|| panic!("{}: nothing was reported", launcher.name))
        .expect("JSON");
    assert_eq!(
        [&reported["timeslices"], &reported["lost"], &reported["duplicated"]],
        [20_000, 0, 0],
        "{}: {reported}",
        launcher.name
    );
    let mut dead: Vec<_> = reported["out"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["rank"].as_u64())
        .collect();
    dead.sort_unstable();
    assert_eq!(dead, [Some(3), Some(4)], "{}: {reported}", launcher.name);
}

#[test]
fn slurm__timeslices_go_on_without_the_ranks_of_a_node_that_are_killed() {
    let site = ClusterDirectory::new("slurm-building");
    let Some(slurm) = SlurmCluster::start(&site) else { return };
    for (way, method) in [("pmi2", "PMI-1"), ("none", "Slurm environment"), ("pmix", "PMIx")] {
        let Some(launcher) = slurm.launcher(way, method) else { continue };
        let run = launcher.start_building(&site, &[]);
        let dying = site.wait_for_building(4);
        let group = nix::unistd::getpgid(Some(dying)).expect("a group");
        nix::sys::signal::killpg(group, Signal::SIGKILL).expect("killed");
        let output = run.wait_with_output().expect("an end");
        // Slurm calls a step failed in which somebody was killed.
        assert_eq!(
            output.status.code(),
            Some(137),
            "{}: {}",
            launcher.name,
            directory::text(&output)
        );
        survived(&launcher, &mut &output.stdout[..]);
        site.expect_nothing_left();
        // Ranks 3 and 4, the last two builders, are dead.
        for name in ["ts_0.tsa", "ts_1.tsa.unfinished", "ts_2.tsa.unfinished"] {
            fs::remove_file(site.path(name)).expect("removed");
        }
    }
}

#[test]
fn slurm__timeslices_go_on_without_a_node_that_is_gone() {
    let site = ClusterDirectory::new("slurm-node");
    let Some(mut slurm) = SlurmCluster::start(&site) else { return };
    let Some(launcher) = slurm.launcher("none", "Slurm environment") else { return };
    let mut run = launcher.start_building(&site, &["--no-kill"]);
    site.wait_for_building(4);
    let mut reported = run.stdout.take().expect("piped");
    let launcher = ClusterLauncher { cluster: None, ..launcher };
    slurm.fell();
    survived(&launcher, &mut reported);
    // It would wait for the node until the controller believes it to be down.
    run.kill().expect("killed");
    run.wait().expect("an end");
}

#[test]
fn slurm__turns_of_timeslices_alternate_between_the_switches_that_slurm_names() {
    let site = ClusterDirectory::new("slurm-topology");
    let tree = "SwitchName=s1 Nodes=n1\nSwitchName=s2 Nodes=n2\nSwitchName=top Switches=s[1-2]\n";
    fs::write(site.path("topology.conf"), tree).expect("written");
    let more = "TopologyPlugin=topology/tree\n";
    let Some(slurm) = SlurmCluster::start_with(&site, more) else { return };
    let Some(launcher) = slurm.launcher("none", "Slurm environment") else { return };
    let file = site.path("topology.conf").display().to_string();
    for topology in ["auto", &file] {
        let mut command = launcher.command();
        command.arg(site.path("clearway")).args(["timeslice", "build", "--on", "cluster"]);
        command.args([
            "--wire",
            "udp",
            "--inputs",
            "2",
            "--timeslices",
            "20",
            "--contribution",
            "4KiB",
        ]);
        command.args(["--topology", topology, "--overwrite", "--out"]).arg(site.path("built"));
        let output = launcher.spawn(command).wait_with_output().expect("an end");
        let said = directory::text(&output);
        assert!(output.status.success() && said.contains("s1 (3), s2 (2)\n"), "{topology}: {said}");
    }
    site.expect_nothing_left();
}
