//! The benchmark of small operations during bulk traffic: it measures, and writes a report.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::prefix::{compile, oshrun, prefix, said};

#[test]
fn tail__each_victim_is_measured_under_each_congestor_in_both_classes() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/tail/shmem-tail.c");
    let flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"];
    let program = compile("oshcc", "example-tail", &source, &flags);
    let report = prefix().join("tail-report");
    let mut command = oshrun(4);
    // Half of the PEs are far for the others, so that classes mean something.
    command.envs([("SHMEM_NEAR", "2"), ("SHMEM_WIRE", "udp")]).arg(&program);
    command.args(["--victims", "fetch-add,put-wait", "--congestors", "both"]);
    command.args(["--messages", "20", "--gap-ms", "1", "--out"]).arg(&report);
    let output = command.output().expect("oshrun");
    assert!(output.status.success(), "{}", said(&output));

    let text = fs::read(report.join("report.json")).expect("a report");
    let report: Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!(report["schema"], "clearway-report/1");
    let figures = report["figures"].as_array().expect("figures");
    let impacts = figures.iter().filter(|figure| figure["name"] == "shmem_congestion_impact");
    let labels = impacts.map(|figure| {
        assert!(figure["value"].as_f64().is_some_and(|value| value > 0.0), "{figure}");
        let label = |name: &str| figure["labels"][name].as_str().unwrap_or_default().to_owned();
        (label("class"), label("pattern"))
    });
    let wanted = ["one class", "classes"].into_iter().flat_map(|class| {
        ["fetch-add", "put-wait"].map(|pattern| (class.to_owned(), pattern.to_owned()))
    });
    assert!(labels.eq(wanted), "{report}");
}

#[test]
fn tail__queues_and_queues_that_threads_share_are_measured_too() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/tail/shmem-tail.c");
    let flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"];
    let program = compile("oshcc", "example-tail-queues", &source, &flags);
    for way in ["queue", "shared"] {
        let report = prefix().join(format!("tail-report-{way}"));
        let mut command = oshrun(4);
        command.envs([("SHMEM_NEAR", "2"), ("SHMEM_WIRE", "udp")]).arg(&program);
        command.args(["--through", way, "--classes", "split", "--congestors", "alltoall"]);
        command.args(["--messages", "20", "--gap-ms", "1", "--block", "8", "--out"]).arg(&report);
        let output = command.output().expect("oshrun");
        assert!(output.status.success(), "{}", said(&output));

        let text = fs::read(report.join("report.json")).expect("a report");
        let report: Value = serde_json::from_slice(&text).expect("JSON");
        let figures = report["figures"].as_array().expect("figures");
        let values = |name: &str| {
            let all = figures.iter().filter(|figure| figure["name"] == name);
            all.filter_map(|figure| figure["value"].as_f64()).collect::<Vec<f64>>()
        };
        assert_eq!(values("shmem_congestion_impact").len(), 4, "{way}: each victim: {report}");
        assert!(values("shmem_message_rate")[0] > 0.0, "{way}: {report}");
        // Blocks of 8 bytes are gathered: a packet each would be a factor of 1.
        assert!(values("shmem_aggregation_factor")[0] > 2.0, "{way}: {report}");
    }
}

#[test]
fn tail__a_wrong_option_is_one_sentence() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/tail/shmem-tail.c");
    let program = compile("oshcc", "example-tail-refused", &source, &["-std=gnu11"]);
    for (option, value) in [
        ("--victims", "push"),
        ("--messages", "few"),
        ("--through", "queue,shared"),
        ("--nothing", "1"),
    ] {
        let output = oshrun(4).arg(&program).args([option, value]).output().expect("oshrun");
        let text = said(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert_eq!(text.matches("shmem-tail: ").count(), 1, "{text}");
    }
}
