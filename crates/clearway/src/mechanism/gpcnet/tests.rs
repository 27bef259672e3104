//! Whole runs in the simulator, small.

use clearway_lab::Topology;
use clearway_proto::base::{BitsPerSec, Class};

use super::*;

fn text(suite: Suite, fabric: Fabric, flags: &GpcnetFlags) -> Result<String> {
    let classes = [Class::BestEffort; 2];
    let order = GpcnetSpec {
        fabric,
        queue: None,
        places: &[VenueKind::Sim],
        seed: 7,
        classes,
        parameters: Vec::new(),
        flags,
    };
    let (text, report) = run(&order, suite, None)?;
    assert!(report.figures.iter().any(|figure| figure.label("bytes") == Some("8")));
    Ok(text)
}

fn quick() -> GpcnetFlags {
    GpcnetFlags { rings: Some(1), measurements: Some(1), ..GpcnetFlags::default() }
}

fn rows(text: &str) -> Vec<clearway_proto::gpcnet::PrintedRow> {
    PrintedRun::parse(text).expect("a run").rows
}

#[test]
fn run__the_network_test_on_a_machine_has_eight_rows_of_figures() {
    let fabric = || Fabric::machine("edr".to_owned(), Some(4));
    let first = text(Suite::Network, fabric(), &quick()).expect("a run");
    let rows = rows(&first);
    assert_eq!(rows.len(), 8, "{first}");
    assert!(rows.iter().all(|row| row.figure("Avg").is_some_and(|avg| avg > 0.0)), "{first}");
    assert!(first.contains("as published: nothing"), "{first}");
    assert_eq!(text(Suite::Network, fabric(), &quick()).expect("a run"), first, "the same again");
}

#[test]
fn run__the_load_test_on_a_machine_prints_impacts() {
    let printed =
        text(Suite::Load, Fabric::machine("edr".to_owned(), Some(20)), &quick()).expect("a run");
    let rows = rows(&printed);
    assert_eq!(rows.len(), 9, "{printed}");
    assert!(rows.iter().all(|row| row.figure("Avg").is_some()), "{printed}");
    assert!(
        printed.contains("congestors during RR Two-sided Lat, MiB/s/rank: Alltoall (4096 B) "),
        "{printed}"
    );
}

#[test]
fn run__too_few_nodes_and_ranks_that_nobody_started_are_refused_in_a_sentence() {
    let star = || Fabric::lab(Topology::Star { hosts: 4, rate: BitsPerSec::mega(100) });
    let refused = text(Suite::Load, star(), &quick()).expect_err("four nodes");
    assert_eq!(refused.to_string(), "this test takes at least 10 nodes, and there are 4");
    let flags = quick();
    let classes = [Class::BestEffort; 2];
    let places = [VenueKind::Cluster];
    let order = GpcnetSpec {
        fabric: star(),
        queue: None,
        places: &places,
        seed: 7,
        classes,
        parameters: Vec::new(),
        flags: &flags,
    };
    let refused = run(&order, Suite::Network, None).expect_err("no launcher");
    assert_eq!(refused.to_string(), "no launcher started this process as a rank of a job");
}
