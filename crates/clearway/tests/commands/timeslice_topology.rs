//! Turns of a job that alternate between the parts of its network: which builder has which
//! timeslice shows the order, and archives do not.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use clearway_proto::archive::{Item, Limits, Reader};

use crate::timeslice_ranks::{directory, text};

const LAUNCHER: &str = "mpiexec.hydra";
const PROGRAM: &str = env!("CARGO_BIN_EXE_clearway");
const BUILDERS: u32 = 4;

/// Three inputs and four builders with `words`, each rank in the environment that `own` makes for
/// it; nothing where there is no launcher.
fn build(directory: &Path, own: &str, words: &str) -> Option<Output> {
    let line = format!(
        "{own} exec {PROGRAM} timeslice build --on cluster --inputs 3 --builders {BUILDERS} --timeslices 24 --timeslice-size 2 \
         --contribution 2KiB --sizes skewed --json {words}"
    );
    let mut command = Command::new(LAUNCHER);
    command.args(["-n", "7", "sh", "-c", &line]).current_dir(directory);
    command.output().inspect_err(|error| eprintln!("skipped: {LAUNCHER}: {error}")).ok()
}

/// The timeslices of each builder, and what each timeslice has of each input.
type Archives = (Vec<Vec<u64>>, BTreeMap<u64, Vec<Vec<u8>>>);

/// Reads all archives, and removes them.
fn take_archives(directory: &Path) -> Archives {
    let mut contents = BTreeMap::new();
    let of_builder = |builder| {
        let path = directory.join(format!("ts_{builder}.tsa"));
        let bytes = fs::read(&path).expect("an archive");
        fs::remove_file(path).expect("removed");
        let mut reader = Reader::new(Limits { item_bytes: 1 << 20 });
        let (mut rest, mut numbers) = (&bytes[..], Vec::new());
        while reader.feed(&mut rest).expect("an archive").is_some() {
            let Some(Item::Timeslice(timeslice)) = reader.item() else { continue };
            let parts = timeslice.components().map(|component| component.data.to_vec());
            numbers.push(timeslice.descriptor.index);
            let before = contents.insert(timeslice.descriptor.index, parts.collect());
            assert!(before.is_none(), "built twice");
        }
        numbers
    };
    ((0..BUILDERS).map(of_builder).collect(), contents)
}

/// The timeslices of builders whose turns come in this order.
fn dealt(order: [usize; BUILDERS as usize]) -> Vec<Vec<u64>> {
    let mut dealt = vec![Vec::new(); order.len()];
    (0..24).for_each(|timeslice| dealt[order[timeslice as usize % order.len()]].push(timeslice));
    dealt
}

#[test]
fn build__turns_alternate_between_switches_and_archives_are_the_same() {
    let directory = directory("ts-topology");
    // Inputs below s1, s1 and s2; builders below s1, s1, s1 and s2.
    let slurm = "case $PMI_RANK in 2|6) s=s2;; *) s=s1;; esac; export SLURM_TOPOLOGY_ADDR=top.$s.n$PMI_RANK \
                 SLURM_TOPOLOGY_ADDR_PATTERN=switch.switch.node;";
    let Some(output) = build(&directory, slurm, "--sink ts_%b.tsa --topology none") else { return };
    let said = text(&output);
    assert!(output.status.success() && !said.contains("alternate"), "{said}");
    let (in_order, contents) = take_archives(&directory);
    assert_eq!(in_order, dealt([0, 1, 2, 3]), "by rank");
    assert!(contents.len() == 24 && contents.values().all(|parts| parts.len() == 3));
    assert!(contents.values().all(|parts| parts[0] != parts[1] && parts[1] != parts[2]));

    let output = build(&directory, slurm, "--sink ts_%b.tsa").expect("as before");
    let said = text(&output);
    assert!(output.status.success() && said.contains("(ranks): s1 (5), s2 (2)\n"), "{said}");
    let (alternating, same) = take_archives(&directory);
    assert_eq!(alternating, dealt([0, 1, 3, 2]), "a builder of s2 after two of s1");
    assert!(same == contents, "each input is its own component, whatever its turn");

    // Ranks that disagree about what the network is like, or know nothing.
    let confused = "case $PMI_RANK in 0) a=x.n0 p=switch.node;; 3) a=top.s1.n3 p=nonsense;; 4) a=. p=.;; *) a= p=;; esac; \
                    export SLURM_TOPOLOGY_ADDR=$a SLURM_TOPOLOGY_ADDR_PATTERN=$p;";
    let output = build(&directory, confused, "--sink ts_%b.tsa").expect("as before");
    let said = text(&output);
    assert!(output.status.success() && said.contains("x (1), other hosts (6)\n"), "{said}");
    assert!(take_archives(&directory).1 == contents, "all follow what the coordinator knows");
    fs::remove_dir_all(directory).expect("removed");
}

#[test]
fn build__a_file_of_switches_is_read_by_the_coordinator_alone() {
    let directory = directory("ts-switches");
    fs::write(directory.join("topology.conf"), "SwitchName=s1 Nodes=elsewhere[1-4]\n").expect("it");
    fs::write(directory.join("bad.conf"), "SwitchName=s1 Nodes=n1\nSwitchName=s2 Nodes=n1\n")
        .expect("a file");
    let elsewhere = "[ $PMI_RANK = 0 ] || cd /;";
    let words = "--topology topology.conf --sink check";
    let Some(output) = build(&directory, elsewhere, words) else { return };
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches("topology.conf does not name 1 of the hosts").count(), 1, "{said}");

    let output =
        build(&directory, elsewhere, "--topology bad.conf --sink check").expect("as before");
    let said = text(&output);
    assert!(!output.status.success(), "{said}");
    assert_eq!(said.matches("bad.conf, line 2: node n1 is below s1 already").count(), 1, "{said}");
    fs::remove_dir_all(directory).expect("removed");
}

#[test]
fn build__hosts_that_are_too_few_measure_nothing_and_the_run_goes_on() {
    let directory = directory("ts-measured");
    let Some(output) = build(&directory, "", "--topology measured --sink ts_%b.tsa") else {
        return;
    };
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    let sentence = "did not measure the network: it takes 6 hosts to show parts";
    assert_eq!(said.matches(sentence).count(), 1, "{said}");
    assert_eq!(take_archives(&directory).0, dealt([0, 1, 2, 3]), "by rank");
    fs::remove_dir_all(directory).expect("removed");
}

#[test]
fn build__hosts_of_a_lab_measure_their_network_before_they_build() {
    let directory = directory("ts-measured-lab");
    let words = "timeslice build --on lab --wire udp --inputs 3 --builders 3 --timeslices 12 --timeslice-size 2 \
                 --contribution 2KiB --topology measured --trunk 25Mb/s --sink check";
    let mut command = Command::new(PROGRAM);
    let output = command.args(words.split_whitespace()).current_dir(&directory).output();
    let output = output.expect("the program");
    let said = text(&output);
    if output.status.code() == Some(5) {
        eprintln!("skipped: {said}");
        return;
    }
    assert!(output.status.success() && said.contains("6 hosts measure the network"), "{said}");
    // What a busy machine measures is not asked; that each host has answered is.
    assert!(said.contains("parts of the network") && said.contains("round trips of "), "{said}");
    assert!(!said.contains("pairs were measured"), "{said}");
    fs::remove_dir_all(directory).expect("removed");
}
