//! The mechanisms that the program has: one line each.

use anyhow::{Result, anyhow};

use crate::mechanism::broadcast::BroadcastMechanism;
use crate::mechanism::congestion::{ClassShares, CongestionTest};
use crate::mechanism::gpcnet::Gpcnet;
use crate::mechanism::shmem::ShmemClasses;
use crate::mechanism::staging::StagingNoise;
use crate::mechanism::timeslice::TimesliceBuilding;
use crate::report::present::Presenter;
use crate::run::Mechanism;
use crate::run::rank_process::ServeRank;
use crate::scenario::{Scenario, SectionKind};
use crate::together::Together;

/// All mechanisms, in the order in which a page shows them.
const MECHANISMS: &[&dyn Mechanism] = &[
    &TimesliceBuilding,
    &BroadcastMechanism,
    &CongestionTest,
    &ClassShares,
    &Gpcnet,
    &ShmemClasses,
    &StagingNoise,
    &Together,
    #[cfg(test)]
    &crate::mechanism::echo::EchoRing,
];

/// Returns the rank's side of the mechanism whose ranks are called `name`.
pub(crate) fn serve(name: &str) -> Option<ServeRank> {
    MECHANISMS.iter().map(|it| it.rank()).find(|(known, _)| *known == name).map(|(_, serve)| serve)
}

/// Returns the mechanism of `scenario`.
///
/// # Errors
/// None runs its section.
pub(crate) fn mechanism_of(scenario: &Scenario) -> Result<&'static dyn Mechanism> {
    let name = scenario.section_name();
    MECHANISMS
        .iter()
        .copied()
        .find(|it| it.name() == name)
        .ok_or_else(|| anyhow!("no mechanism runs [{name}]"))
}

/// Returns the tables of scenarios that mechanisms read.
pub(crate) fn section_kinds() -> Vec<SectionKind> {
    MECHANISMS.iter().filter_map(|it| it.section()).collect()
}

/// Returns what shows the mechanisms in reports.
pub(crate) fn presenters() -> Vec<&'static dyn Presenter> {
    MECHANISMS.iter().map(|it| *it as &dyn Presenter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::{self, Report};
    use crate::run::VenueKind;
    use crate::run::processes::RANK_OF_TEST;
    use crate::run::rank_process::{self, RankLifetime};
    use crate::scenario::{read_text, shipped, shipped_names};
    use clearway_proto::base::{RandomKey, RandomStream};

    #[test]
    fn section_kinds__read_every_shipped_scenario() {
        for name in shipped_names().split(", ") {
            let scenario = read_text(shipped(name).expect(name), &section_kinds());
            let scenario = scenario.unwrap_or_else(|why| panic!("{name}: {why}"));
            assert_eq!(scenario.name, name);
            assert!(!scenario.about.is_empty(), "{name} does not say what it is about");
        }
    }

    /// Returns a scenario of `section` on a laboratory or a machine.
    fn scenario_of(section: &str, fabric: &str) -> Scenario {
        let fabric = match fabric {
            "topology" => "topology = { kind = \"star\", hosts = 8, rate = \"100Mb/s\" }",
            _ => "preset = \"edr\"\nnodes = 8",
        };
        let text = format!("name = \"cell\"\n[fabric]\n{fabric}\n[{section}]\n");
        read_text(&text, &section_kinds()).unwrap_or_else(|why| panic!("{section}: {why}"))
    }

    #[test]
    fn section_kinds__no_number_of_a_scenario_is_too_large_or_too_small_to_be_refused() {
        let numbers = [
            "0",
            "1",
            "-1",
            "9223372036854775807",
            "18446744073709551615",
            "4294967295",
            "1e308",
            "-0.0",
            "nan",
        ];
        let units = [
            "0",
            "18446744073709551615",
            "18446744073709551615h",
            "1ns",
            "16EiB",
            "18446744073709551615B",
            "1Tb/s",
            "1b/s",
        ];
        let of = |value: &str| [value.to_owned(), format!("[{value}]"), format!("[{value}, 1]")];
        let values: Vec<String> = numbers
            .iter()
            .flat_map(|number| of(number))
            .chain(units.iter().flat_map(|text| of(&format!("\"{text}\""))))
            .collect();
        let machine = "preset = \"edr\"\nnodes = 64";
        let lab = "topology = { kind = \"star\", hosts = 8, rate = \"100Mb/s\" }";
        let mut texts = Vec::new();
        for kind in section_kinds() {
            let (name, keys) = kind.table();
            for (key, value) in
                keys.iter().flat_map(|key| values.iter().map(move |value| (key, value)))
            {
                for fabric in [machine, lab] {
                    texts.push(format!(
                        "name = \"cell\"\n[fabric]\n{fabric}\n[{name}]\n{key} = {value}\n"
                    ));
                }
            }
        }
        for value in &values {
            for fabric in ["preset = \"edr\"\nnodes =", &format!("{lab}\nqueue-packets =")] {
                texts.push(format!(
                    "name = \"cell\"\nseed = 1\n[fabric]\n{fabric} {value}\n[timeslice]\n"
                ));
            }
            let star =
                format!("topology = {{ kind = \"star\", hosts = {value}, rate = \"100Mb/s\" }}");
            let rate = format!("topology = {{ kind = \"star\", hosts = 8, rate = {value} }}");
            let trunk = format!(
                "topology = {{ kind = \"trunk\", left = {value}, right = {value}, rate = \"1Gb/s\", trunk = {value} }}"
            );
            for fabric in [star, rate, trunk] {
                texts.push(format!("name = \"cell\"\n[fabric]\n{fabric}\n[congestion]\n"));
            }
        }
        for kind in section_kinds() {
            let (name, keys) = kind.table();
            let large = |key: &str| format!("{key} = 18446744073709551615\n");
            for (at, one) in keys.iter().enumerate() {
                for other in &keys[at + 1..] {
                    let both = large(one) + &large(other);
                    texts.push(format!("name = \"cell\"\n[fabric]\n{machine}\n[{name}]\n{both}"));
                }
            }
        }
        for text in &texts {
            let read = std::panic::catch_unwind(|| {
                if let Ok(mut scenario) = read_text(text, &section_kinds()) {
                    let _ =
                        (scenario.layout().map(drop), scenario.text(), scenario.on_job(8, None));
                }
            });
            assert!(read.is_ok(), "{text}");
        }
    }

    /// Damages a scenario: takes lines away, doubles or moves them, and changes characters, most of
    /// them digits.
    fn damage(text: &str, stream: &mut RandomStream) -> String {
        let mut below = |bound: usize| stream.below(bound.max(1) as u64) as usize;
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for _ in 0..1 + below(4) {
            let (one, other) = (below(lines.len()), below(lines.len()));
            match below(4) {
                0 if lines.len() > 1 => drop(lines.remove(one)),
                1 => lines.insert(one, lines[other].clone()),
                2 => lines.swap(one, other),
                _ => {
                    let mut letters: Vec<char> = lines[one].chars().collect();
                    let digits: Vec<usize> =
                        (0..letters.len()).filter(|at| letters[*at].is_ascii_digit()).collect();
                    match digits.get(below(digits.len())) {
                        Some(at) => drop(letters.splice(at..=at, "99999".chars().take(below(6)))),
                        None => letters.insert(
                            below(letters.len()),
                            ['"', '[', ']', '=', '{', '\u{0}', '-', '\u{10ffff}'][below(8)],
                        ),
                    }
                    lines[one] = letters.into_iter().collect();
                }
            }
        }
        lines.join("\n")
    }

    #[test]
    fn section_kinds__damaged_scenarios_are_read_or_refused() {
        let texts: Vec<&str> = shipped_names().split(", ").filter_map(shipped).collect();
        let seeds = std::env::var("SWARM_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
        for seed in 0..seeds.unwrap_or(1500) {
            let mut stream = RandomKey::new(seed).purpose("damaged scenarios").stream();
            let text = damage(texts[seed as usize % texts.len()], &mut stream);
            let read = std::panic::catch_unwind(|| match read_text(&text, &section_kinds()) {
                Ok(scenario) => drop((scenario.layout().map(drop), scenario.text())),
                Err(sentence) => assert!(!sentence.is_empty()),
            });
            assert!(read.is_ok(), "{seed}: {text}");
        }
    }

    /// The table of `docs/scenarios.md`: what cannot run somewhere is refused with a sentence that
    /// says what works.
    #[test]
    fn refusal__each_cell_of_the_table_runs_or_says_what_works() {
        let cells = [
            ("congestion", "topology", [None, None, None]),
            ("congestion", "preset", [None, Some("--on sim"), Some("[fabric] topology")]),
            ("shares", "topology", [None, None, Some("only [congestion]")]),
            ("shares", "preset", [None, Some("--on sim"), Some("only [congestion]")]),
            (
                "timeslice",
                "topology",
                [None, None, Some("clearway timeslice compare --on cluster")],
            ),
            (
                "timeslice",
                "preset",
                [None, Some("[lab.fabric]"), Some("clearway timeslice compare --on cluster")],
            ),
            (
                "broadcast",
                "topology",
                [Some("--on lab"), None, Some("clearway broadcast --on cluster")],
            ),
            (
                "broadcast",
                "preset",
                [None, Some("--on sim"), Some("clearway broadcast --on cluster")],
            ),
            ("shmem", "topology", [Some("`preset`"), Some("--on sim"), Some("--on sim")]),
            ("shmem", "preset", [None, Some("--on sim"), Some("--on sim")]),
            ("staging", "topology", [Some("`preset`"), Some("--on sim"), Some("--on sim")]),
            ("staging", "preset", [None, Some("--on sim"), Some("--on sim")]),
            ("together", "topology", [Some("`preset`"), None, Some("--on lab")]),
            ("together", "preset", [None, Some("[lab.fabric]"), Some("--on lab")]),
            ("echo", "topology", [None, None, None]),
            ("echo", "preset", [None, Some("--on sim"), Some("[fabric] topology")]),
        ];
        for (section, fabric, expected) in cells {
            let scenario = scenario_of(section, fabric);
            let mechanism = mechanism_of(&scenario).expect("a mechanism");
            for (place, expected) in
                [VenueKind::Sim, VenueKind::Lab, VenueKind::Cluster].into_iter().zip(expected)
            {
                let refusal = mechanism.refusal(&scenario, place);
                let is_right = match (&refusal, expected) {
                    (None, None) => true,
                    (Some(said), Some(works)) => said.contains(works),
                    _ => false,
                };
                assert!(is_right, "[{section}] of a {fabric} on {}: {refusal:?}", place.name());
            }
        }
    }

    /// A rank process of a test is this program with this test alone; see `run::processes`.
    #[test]
    fn serve__a_rank_process_of_a_test() {
        if std::env::var_os(RANK_OF_TEST).is_some() {
            rank_process::main(RankLifetime::Input, serve).expect("a rank");
        }
    }

    #[test]
    fn presenters__add_nothing_to_a_report_that_holds_nothing_of_theirs() {
        let scenario = model::ReportScenario { name: String::new(), text: String::new() };
        let report = Report::new(Vec::new(), "lab", scenario, 0);
        for presenter in presenters() {
            assert_eq!(presenter.check(&report), Ok(()));
            assert!(
                presenter.tables(&report).concat().is_empty()
                    && presenter.sections(&report, &[]).is_empty()
            );
        }
    }
}
