//! Whole runs on the simulated fabric: they need no permission and give the same figures
//! everywhere.

use std::collections::BTreeSet;

use super::names;
use super::{ClassShares, CongestionSection, CongestionTest, SharesSection};
use crate::report::html;
use crate::report::model::Report;
use crate::report::model::{Figure, RunOutcome, labels};
use crate::report::present::Presenter;
use crate::report::terminal::{self, ColourMode};
use crate::run::{CompletedParts, Mechanism, RunSpec, VenueKind, run};
use crate::scenario::{self, SectionKind};

fn simulated(text: &str) -> Report {
    let scenario = scenario::read_text(
        text,
        &[SectionKind::new::<CongestionSection>(), SectionKind::new::<SharesSection>()],
    )
    .unwrap_or_else(|why| panic!("{why}"));
    let order = RunSpec {
        scenario: &scenario,
        text,
        flags: BTreeSet::new(),
        complete: CompletedParts::default(),
    };
    let mechanism: &dyn Mechanism =
        if scenario.section::<SharesSection>().is_some() { &ClassShares } else { &CongestionTest };
    run(&order, mechanism, VenueKind::Sim).unwrap_or_else(|error| panic!("{error:#}"))
}

/// Returns the figures that time of this machine has no part in.
fn timeless(report: &Report) -> Vec<&Figure> {
    report.figures.iter().filter(|figure| !figure.name.contains("wall")).collect()
}

fn figure(report: &Report, name: &str, queue: &str) -> f64 {
    let of_p99 =
        |figure: &&Figure| figure.label(labels::QUANTILE).is_none_or(|quantile| quantile == "p99");
    let mut found = report.figures.iter().filter(|figure| figure.name == name);
    let found = found.find(|figure| figure.label(labels::QUEUE) == Some(queue) && of_p99(figure));
    found.unwrap_or_else(|| panic!("no {name} of {queue}")).value.get()
}

#[test]
fn run__an_incast_of_the_lab_congests_a_fifo_and_not_classes() {
    let text = scenario::shipped("incast").expect("it is shipped").replace("\"6s\"", "\"1200ms\"");
    let report = simulated(&text);
    let parts = report.verdict.expect("a verdict").parts;
    assert_eq!(
        parts.iter().map(|part| part.outcome).collect::<Vec<_>>(),
        [RunOutcome::Congested, RunOutcome::Contained]
    );
    let [culprit] = &report.culprits[..] else { panic!("{:?}", report.culprits) };
    assert_eq!(culprit.labels[labels::QUEUE], "fifo");
    assert!(culprit.port.starts_with("switch -> n") && culprit.senders.len() == 3, "{culprit:?}");
    assert!(
        culprit.because.starts_with("measured: the slowest messages waited here"),
        "{culprit:?}"
    );
    // A queue of 100 packets of 1514 bytes at 100 Mb/s.
    let wait = report.figures.iter().find(|figure| {
        let is = |key: &str, value: &str| figure.label(key) == Some(value);
        figure.name == names::LATENCY
            && is(labels::QUEUE, "fifo")
            && is(labels::CONGESTOR, "incast")
            && is(labels::PHASE, labels::CONGESTED)
            && is(labels::QUANTILE, "p99")
    });
    let wait = wait.expect("the latency in the full queue").value.get();
    assert!((11_500.0..13_000.0).contains(&wait), "{wait} us");
}

#[test]
fn run__shares_of_the_lab_are_those_of_the_weights() {
    let text = scenario::shipped("shares").expect("it is shipped").replace("\"6s\"", "\"1200ms\"");
    let report = simulated(&text);
    let shares: Vec<f64> = report
        .figures
        .iter()
        .filter(|figure| figure.name == names::CLASS_SHARE)
        .map(|f| f.value.get())
        .collect();
    for (share, weight) in shares.iter().zip([8.0, 4.0, 2.0, 1.0]) {
        assert!((share - weight / 15.0).abs() < 0.01, "{shares:?}");
    }
    assert!(figure(&report, "port_use", "weighted") > 99.0);
}

/// A part of a Cray XC40, for a fifth of a millisecond.
const MACHINE: &str = r#"
name = "machine"
[fabric]
preset = "aries"
nodes = 72
[congestion]
queues = ["shared", "lanes"]
victim-hosts = 16
victim-interval = "20us"
congestors = ["gpcnet"]
congestor-hosts = 14
congestor-groups = 4
processes-per-host = 16
intensity-percent = [1000]
placement = "disjoint"
slice = "20us"
isolated = "240us"
congested = "240us"
null-control = "skip"
"#;

#[test]
fn run__a_machine_spreads_congestion_and_a_lane_contains_it() {
    let report = simulated(MACHINE);
    let [shared, lanes] = ["shared", "lanes"].map(|queue| figure(&report, names::CIF, queue));
    assert!(shared > 3.0 && lanes < 1.5, "{shared} {lanes}");
    assert_eq!(report.place, "sim");
    let [slowest] = &report.slowest[..] else { panic!("{:?}", report.slowest) };
    assert_eq!((slowest.labels[labels::QUEUE].as_str(), slowest.note.as_deref()), ("shared", None));
    let mut least = f64::INFINITY;
    for message in &slowest.messages {
        let wait = message.wait.as_ref().expect("what took so long waited");
        assert!(message.latency_us <= least && wait.us <= message.latency_us, "{message:?}");
        // Packets of other victims are few: full buffers are what held it up, for most of the time.
        assert!(wait.us * 4.0 > message.latency_us && wait.cause.contains("room"), "{message:?}");
        least = message.latency_us;
    }
    let fabric = report.fabric.expect("a simulated run shows its fabric");
    assert_eq!(
        fabric.loads.iter().map(|load| load.labels[labels::QUEUE].as_str()).collect::<Vec<_>>(),
        ["shared", "lanes"]
    );
    for load in &fabric.loads {
        // An incast fills its receiver's port, and full buffers hold up those before it.
        assert!(load.busiest[0].load > 90.0 && load.busiest[0].load <= 100.0, "{:?}", load.busiest);
        assert!(
            load.stalled[0].stalled > 10.0 && load.stalled[0].stalled <= 100.0,
            "{:?}",
            load.stalled
        );
        assert_eq!(load.links.len(), fabric.links.len());
        assert!(load.links.iter().flatten().all(|percent| (0.0..=100.0).contains(percent)));
    }
}

#[test]
fn run__collectives_of_a_machine_end_with_the_right_results() {
    let victims = "victims = [\"barrier\", \"allreduce\", \"allgather\"]\nvictim-hosts = 13";
    let report =
        simulated(&MACHINE.replace("victim-hosts = 16", victims).replace("\"shared\", ", ""));
    for victim in ["barrier", "allreduce", "allgather"] {
        let alone = |quantile: &str| {
            let wanted = [
                (labels::VICTIM, victim),
                (labels::QUANTILE, quantile),
                (labels::PHASE, labels::ISOLATED),
            ];
            let is_wanted = |figure: &&Figure| {
                wanted.iter().all(|(key, value)| figure.label(key) == Some(value))
            };
            report
                .figures
                .iter()
                .filter(|figure| figure.name == names::LATENCY)
                .find(is_wanted)
                .expect("a figure")
        };
        // One iteration in each interval; a wrong result takes for ever.
        assert!(alone("p99").samples >= 13 * 11, "{victim}: {}", alone("p99").samples);
        assert!(alone("p99").value.get().is_finite(), "{victim}");
        // Thirteen ranks need four steps, and a reduction one more; a message alone takes about one
        // microsecond.
        let median = alone("p50").value.get();
        assert!((3.0..9.0).contains(&median), "{victim}: {median} us");
    }
}

#[test]
fn run__the_same_scenario_gives_the_same_figures_and_another_seed_others() {
    let [a, b] = [simulated(MACHINE), simulated(MACHINE)];
    assert_eq!(timeless(&a), timeless(&b));
    let other = simulated(&format!("seed = 2\n{MACHINE}"));
    assert_ne!(timeless(&a), timeless(&other));
}

#[test]
fn run__the_defaults_of_small_machines_are_enough_for_a_verdict() {
    let cases = [
        ("qdr", 16, RunOutcome::Congested),
        ("clos-25ge", 8, RunOutcome::Congested),
        ("lab", 8, RunOutcome::Congested),
        ("slingshot", 8, RunOutcome::Contained),
    ];
    for (preset, nodes, outcome) in cases {
        let report = simulated(&format!(
            "name = \"small\"\n[fabric]\npreset = \"{preset}\"\nnodes = {nodes}\n[congestion]\nnull-control = \"skip\"\n"
        ));
        let verdict = report.verdict.expect("a verdict");
        assert_eq!(verdict.outcome, outcome, "{preset}: {}", verdict.sentence);
    }
}

#[test]
fn run__broadcasts_load_what_they_say_by_every_way_and_the_same_each_time() {
    let text = r#"
name = "casts"
[fabric]
topology = { kind = "star", hosts = 8, rate = "100Mb/s" }
[congestion]
queues = ["fifo"]
congestors = ["cast", "cast-chain", "cast-tree"]
isolated = "1200ms"
congested = "1200ms"
null-control = "skip"
"#;
    let [report, again] = [simulated(text), simulated(text)];
    assert_eq!(timeless(&report), timeless(&again));
    let shares: Vec<f64> = report
        .figures
        .iter()
        .filter(|figure| figure.name == names::GOODPUT_SHARE)
        .map(|f| f.value.get())
        .collect();
    assert!(
        shares.len() == 3 && shares.iter().all(|share| (90.0..=101.0).contains(share)),
        "{shares:?}"
    );
    assert_eq!(report.verdict.expect("a verdict").outcome, RunOutcome::Congested);
}

#[test]
fn run__one_root_casts_to_several_groups_and_each_gets_its_own() {
    let text = r#"
name = "groups"
[fabric]
topology = { kind = "star", hosts = 8, rate = "100Mb/s" }
[congestion]
queues = ["fifo"]
congestors = ["cast", "cast-chain"]
congestor-hosts = 3
congestor-groups = 3
intensity-percent = [50]
draws = 2
isolated = "1200ms"
congested = "1200ms"
null-control = "skip"
"#;
    let report = simulated(text);
    let shares: Vec<f64> = report
        .figures
        .iter()
        .filter(|figure| figure.name == names::GOODPUT_SHARE)
        .map(|f| f.value.get())
        .collect();
    // Three chains from one host send some symbols twice, which counts once.
    assert!(
        shares.len() == 2 && shares.iter().all(|share| (60.0..=101.0).contains(share)),
        "{shares:?}"
    );
}

#[test]
fn run__a_sweep_over_bursts_has_a_row_for_each_and_judges_what_happens_within_them() {
    let text = r#"
name = "bursts"
[fabric]
topology = { kind = "star", hosts = 8, rate = "100Mb/s" }
[congestion]
queues = ["fifo"]
bursts = ["steady", "40ms/160ms", "2ms/98ms"]
isolated = "1200ms"
congested = "1200ms"
null-control = "skip"
"#;
    let [report, again] = [simulated(text), simulated(text)];
    assert_eq!(timeless(&report), timeless(&again));
    let of = |name: &str, bursts: &str, quantile: Option<&str>| {
        let is = |figure: &&Figure| {
            figure.name == name
                && figure.label(labels::BURSTS) == Some(bursts)
                && figure.label(labels::PHASE) != Some(labels::ISOLATED)
                && figure.label(labels::QUANTILE) == quantile
        };
        report
            .figures
            .iter()
            .find(is)
            .unwrap_or_else(|| panic!("no {name} of {bursts}"))
            .value
            .get()
    };
    let p99 = |bursts: &str| of(names::LATENCY, bursts, Some("p99"));
    // 100 packets of 1514 bytes wait 12 ms; in 2 ms at half as much again as the port carries
    // gather 8 packets.
    assert!(p99("steady") > 11_500.0 && p99("40ms/160ms") > 11_000.0, "{}", p99("40ms/160ms"));
    assert!((600.0..2000.0).contains(&p99("2ms/98ms")), "{}", p99("2ms/98ms"));
    let p50 = |bursts: &str| of(names::LATENCY, bursts, Some("p50"));
    assert!(p50("steady") > 11_000.0 && p50("40ms/160ms") < 100.0, "{}", p50("40ms/160ms"));
    // What buffers keep of a burst arrives in the pause.
    let share = |bursts: &str| of(names::GOODPUT_SHARE, bursts, None);
    assert!((97.0..101.0).contains(&share("steady")) && share("40ms/160ms") > 100.0);
    // A cell has one name, wherever it stands.
    let name = "ping under incast, bursts 40ms/160ms";
    let presenters: [&dyn Presenter; 1] = [&CongestionTest];
    let page = html::render(&report, &presenters);
    let terminal = terminal::render(&report, &presenters, ColourMode::Plain);
    for text in [page, terminal] {
        assert!(text.contains(name) && !text.contains("bursts of"), "{text}");
    }
    let parts = report.verdict.expect("a verdict").parts;
    assert_eq!(parts.len(), 3);
    assert!(parts.iter().all(|part| part.outcome == RunOutcome::Congested), "{parts:?}");
    // The pattern `burst` is an incast in bursts of its own.
    let burst = text
        .replace("bursts = [\"steady\", \"40ms/160ms\", \"2ms/98ms\"]", "congestors = [\"burst\"]");
    let burst = simulated(&burst);
    assert_eq!(burst.verdict.expect("a verdict").outcome, RunOutcome::Congested);
}

#[test]
fn run__a_group_grows_until_victims_suffer_or_there_is_no_larger_one() {
    let text = r#"
name = "growing"
[fabric]
topology = { kind = "star", hosts = 12, rate = "100Mb/s" }
[congestion]
queues = ["fifo", "strict"]
groups = "growing"
congestor-hosts = 11
isolated = "1200ms"
congested = "1200ms"
null-control = "skip"
"#;
    let report = simulated(text);
    let sizes = |queue: &str| -> Vec<String> {
        let of_queue = |figure: &&Figure| {
            figure.name == names::GOODPUT_SHARE && figure.label(labels::QUEUE) == Some(queue)
        };
        let members = |figure: &Figure| figure.label(labels::MEMBERS).map(str::to_owned);
        report.figures.iter().filter(of_queue).filter_map(members).collect()
    };
    // One sender fills the port of the victim, and the victims' own messages are one too many.
    assert_eq!(sizes("fifo"), ["2"]);
    assert_eq!(sizes("strict"), ["2", "4", "8", "11"]);
    let verdict = report.verdict.expect("a verdict");
    let parts: Vec<_> = verdict
        .parts
        .iter()
        .map(|part| (part.labels[labels::MEMBERS].as_str(), part.outcome))
        .collect();
    assert_eq!(parts, [("2", RunOutcome::Congested), ("11", RunOutcome::Contained)]);
    let said = &verdict.parts[1].sentence;
    let before = "groups of 11 hosts; before: CONTAINED of 2, CONTAINED of 4, CONTAINED of 8";
    assert!(said.ends_with(before), "{said}");
    assert!(verdict.sentence.contains("incast of 11 hosts moves"), "{}", verdict.sentence);
}

#[test]
fn run__two_hosts_meet_at_their_own_ports() {
    let text = r#"
name = "two"
[fabric]
topology = { kind = "star", hosts = 2, rate = "100Mb/s" }
[congestion]
queues = ["fifo", "strict"]
congestors = ["alltoall"]
congestor-hosts = 2
placement = "on-victims"
isolated = "1200ms"
congested = "1200ms"
null-control = "skip"
"#;
    let parts = simulated(text).verdict.expect("a verdict").parts;
    let outcomes: Vec<_> = parts.iter().map(|part| part.outcome).collect();
    assert_eq!(outcomes, [RunOutcome::Congested, RunOutcome::Contained], "{parts:?}");
}

/// A port of a small laboratory, offered 1.2 times its rate.
const OVERLOAD: &str = r#"
name = "alarms"
[fabric]
topology = { kind = "star", hosts = 5, rate = "100Mb/s" }
[congestion]
queues = ["fifo"]
intensity-percent = [120]
isolated = "1200ms"
congested = "1200ms"
null-control = "skip"
"#;

#[test]
fn run__of_a_network_without_congestors_no_verdict_is_false_and_an_overload_is_found() {
    let runs = simulated(&format!("{OVERLOAD}null-runs = 6\nloaded-runs = 4\n"));
    let count = |congestor: &str, outcome: &str| {
        let wanted = [(labels::CONGESTOR, congestor), (names::OUTCOME, outcome)];
        let is = |figure: &&Figure| {
            figure.name == names::SINGLE_RUNS
                && wanted.iter().all(|(key, value)| figure.label(key) == Some(value))
        };
        runs.figures.iter().find(is).expect("a count").value.get()
    };
    assert_eq!((count("none", "contained"), count("none", "congested")), (6.0, 0.0));
    assert_eq!((count("incast", "congested"), count("incast", "contained")), (4.0, 0.0));
    assert_eq!(figure(&runs, names::FALSE_ALARMS, "fifo"), 0.0);
    assert_eq!(figure(&runs, names::FOUND, "fifo"), 100.0);
    assert_eq!(runs.digests.len(), 1 + 6 + 4);
    let distinct: BTreeSet<&String> = runs.digests.iter().collect();
    assert_eq!(distinct.len(), runs.digests.len(), "every run is another one");
    // The cell itself is judged and shown as without them.
    let plain = simulated(OVERLOAD);
    assert_eq!((&runs.verdict, &runs.digests[0]), (&plain.verdict, &plain.digests[0]));
    assert_eq!(runs.fabric, plain.fabric);
    assert_eq!(runs.slowest, plain.slowest);
}
