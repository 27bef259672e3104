//! Plans are drawn, saved, resolved against a network, and shrunk.

use clearway_proto::base::BitsPerSec;

use super::{Disks, Fault, FaultKind, FaultPlan, FaultSite, shrink};
use crate::graph::DeviceId;
use crate::spec::{FabricSpec, Routing, Topology};
use crate::time::Picos;
use crate::topology;

/// Returns what is said about a plan whose one fault, in lines 2 to 6, has this target and kind.
fn sentence(target: &str, kind: &str) -> String {
    let text = format!(
        "format = 1\n[[fault]]\nat = \"1us\"\nuntil = \"2us\"\ntarget = \"{target}\"\nkind = {kind}\n"
    );
    let spec =
        FabricSpec::plain(Topology::Star { hosts: 4 }, Routing::Minimal, BitsPerSec::mega(1000));
    let graph = topology::build(&spec).unwrap().graph;
    let hosts = [DeviceId(0), DeviceId(2)];
    let site = FaultSite { spec: &spec, graph: &graph, hosts: &hosts, disks: Disks::Absent };
    let resolved = FaultPlan::parse("plan.toml", &text).and_then(|plan| plan.resolve(&site));
    resolved.map_or_else(
        |error| error.to_string(),
        |resolved| format!("{} faults", resolved.fabric.len() + resolved.nodes.len()),
    )
}

#[test]
fn resolve__what_is_there_is_found() {
    assert_eq!(
        sentence("n0 -- switch", "{ link-down = { packets = \"kept\", notice-after = \"0ns\" } }"),
        "2 faults"
    );
    assert_eq!(sentence("*", "\"crash\""), "2 faults");
    assert_eq!(sentence("n1", "{ interface-dead = { side = \"both\" } }"), "2 faults");
    assert_eq!(
        sentence("switch", "{ switch-slow = { percent = 50, latency = \"1us\" } }"),
        "8 faults"
    );
    let flaps = "{ link-flapping = { down = \"10ns\", period = \"300ns\", packets = \"lost\", notice-after = \"0ns\" } }";
    assert_eq!(sentence("n0 -> switch", flaps), "4 faults");
}

#[test]
fn resolve__what_is_not_there_is_named_with_its_line_and_what_there_is() {
    let loss = "{ loss = { odds = { each = 5 } } }";
    assert_eq!(
        sentence("n9 -> switch", loss),
        "plan.toml: line 2: loss: there is no host or switch `n9`; hosts are n0 to n3, switches begin with switch"
    );
    assert_eq!(
        sentence("n0 -> n1", loss),
        "plan.toml: line 2: loss: there is no link `n0 -> n1`; n0 has links to switch"
    );
    let cases = [
        ("n1", "\"crash\"", "no rank runs on n1; name a host that has one"),
        ("switch", "\"crash\"", "`switch` is not a host; name one"),
        ("n0", loss, "`n0` is not a link; name one"),
        (
            "n0",
            "{ pause-storm = { class = \"bulk\" } }",
            "storms need a fabric with `loss = \"pauses\"`",
        ),
        ("n0", "\"disk-full\"", "nodes of this run have no disks"),
        (
            "n0 -> switch",
            "{ wrong-lane = { class = \"bulk\", lane = 3 } }",
            "there is no virtual lane 3",
        ),
        (
            "n0 -> switch",
            "{ link-degraded = { percent = 101, latency = \"0ns\" } }",
            "give 1 to 100",
        ),
        (
            "n0 -> switch",
            "{ loss = { odds = { each = 0 } } }",
            "each = 0; odds are millionths, from 1 to 1000000",
        ),
        (
            "n0 -> switch",
            "{ loss = { odds = { each = 1000001 } } }",
            "each = 1000001; odds are millionths",
        ),
        ("n0 -> switch", "{ duplication = { odds = { nth = 0 } } }", "packets are numbered from 1"),
        (
            "n0 -> switch",
            "{ loss = { odds = { bursts = { begin = 1, end = 0, inside = 0 } } } }",
            "inside = 0; odds",
        ),
        ("n0", "{ spurious-wake = { every = \"0ps\" } }", "give at least 1ps"),
    ];
    for (target, kind, part) in cases {
        let sentence = sentence(target, kind);
        assert!(
            sentence.starts_with("plan.toml: line 2: ") && sentence.contains(part),
            "{sentence}"
        );
    }
}

#[test]
fn parse__a_kind_that_nobody_knows_is_refused_with_its_line() {
    let sentence = sentence("n0", "{ los = { odds = { each = 5 } } }");
    assert!(sentence.starts_with("plan.toml: line 6: unknown variant `los`"), "{sentence}");
    let error = FaultPlan::parse("plan.toml", "\nformat = 2\n").unwrap_err().to_string();
    assert_eq!(error, "plan.toml: line 2: format 2 is not known; this program reads 1");
}

#[test]
fn parse__what_is_written_wrongly_is_answered_with_what_would_work() {
    assert_eq!(
        sentence("n0 -> switch", "\"link-down\""),
        "plan.toml: line 6: this is not how `link-down` is written (invalid type: unit variant, expected struct variant); \
         `kind = { link-down = { packets = \"lost\", notice-after = \"1us\" } }` works"
    );
    let late = sentence("n0", "{ completions = { late = \"5us\" } }");
    assert!(
        late.contains("`kind = { completions = { end = { late = \"5us\" } } }` works"),
        "{late}"
    );
    let twice = FaultPlan::parse("plan.toml", "format = 1\nfault = []\n[[fault]]\nat = \"1us\"\n")
        .unwrap_err()
        .to_string();
    assert_eq!(
        twice,
        "plan.toml: line 3: `fault` stands here for the second time; keep one of them"
    );
    assert!(!FaultPlan::default().to_text().contains("fault"), "so that faults can be added");
}

#[test]
fn shrink__only_what_is_needed_remains_and_no_longer_than_needed() {
    let fault = |target: u32| Fault {
        at: Picos(1_000),
        until: Picos(1_000_000),
        target: format!("n{target}"),
        kind: FaultKind::Crash,
    };
    let plan = FaultPlan::new((0..9).map(fault).collect());
    let mut tries = 200;
    // It fails when n3 and n7 are down together at 50 ns.
    let small = shrink(&plan, &mut tries, &mut |plan| {
        let down =
            |name: &str| plan.faults.iter().any(|it| it.target == name && it.until > Picos(50_000));
        down("n3") && down("n7")
    });
    let left: Vec<&str> = small.faults.iter().map(|fault| fault.target.as_str()).collect();
    assert_eq!(left, ["n3", "n7"]);
    assert!(small.faults.iter().all(|fault| fault.until < Picos(100_000)));
    assert!(tries > 100);
}
