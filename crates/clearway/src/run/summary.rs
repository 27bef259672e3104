//! Writes what surrounds the figures of every run: scenario, parameters, machine, lab, warnings.

use std::collections::BTreeMap;
use std::fs;

use clearway_runtime::machine_memory::machine_memory;

use super::RunSpec;
use super::parameters::parameters;
use crate::report::model::{Report, ReportHost, ReportScenario};

/// Returns a report of `order` at `place`, with everything that is known before the first packet.
pub(crate) fn begun(order: &RunSpec<'_>, place: &str) -> Report {
    let scenario =
        ReportScenario { name: order.scenario.name.clone(), text: order.text.to_owned() };
    let mut report = begun_without_scenario(scenario, order.scenario.seed, place);
    report.parameters = parameters(order.scenario, order.text, &order.flags);
    report
}

/// Returns a report at `place` of what flags describe, `scenario` being a name only; without
/// parameters.
pub(crate) fn begun_without_scenario(scenario: ReportScenario, seed: u64, place: &str) -> Report {
    let mut report = Report::new(std::env::args().collect(), place, scenario, seed);
    report.host = host();
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    report.host.facts.insert("build".into(), build.into());
    report
}

/// Adds what is known of this machine only at the end.
pub(crate) fn ended(report: &mut Report) {
    report.host.load_after = load_averages();
}

/// Describes this machine.
fn host() -> ReportHost {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let under_hypervisor = read("/proc/cpuinfo")
        .lines()
        .any(|line| line.starts_with("flags") && line.contains(" hypervisor"));
    ReportHost {
        kernel: read("/proc/sys/kernel/osrelease"),
        cpus: std::thread::available_parallelism().map_or(0, |n| n.get() as u32),
        memory_bytes: machine_memory("MemTotal").map_or(0, |bytes| bytes.0),
        load_before: load_averages(),
        load_after: None,
        hypervisor: under_hypervisor.then(|| "yes".to_owned()),
        facts: BTreeMap::new(),
    }
}

fn load_averages() -> Option<[f64; 3]> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    let mut numbers = text.split_whitespace().map_while(|word| word.parse().ok());
    Some([numbers.next()?, numbers.next()?, numbers.next()?])
}
