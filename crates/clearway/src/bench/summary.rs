//! Writes what surrounds the figures of every run: scenario, parameters, machine, lab, warnings.

use std::collections::BTreeMap;
use std::fs;

use clearway_lab::Outcome as PortOutcome;

use super::Order;
use super::stage::Stage;
use crate::report::model::{Figure, Host, Real, Report, Scenario};

/// A report with everything that is known before the first packet.
pub(super) fn opened(order: &Order<'_>, stage: &Stage) -> Report {
    let scenario = Scenario { name: order.scenario.name.clone(), text: order.text.to_owned() };
    let mut report = Report::new(std::env::args().collect(), "lab", scenario, order.scenario.seed);
    report.parameters = order.scenario.parameters(order.text, &order.flags);
    report.host = host();
    let hosts = stage.lab().hosts().len();
    let up = Real::finite(stage.up.as_secs_f64());
    let source = "time from nothing to a lab that carries packets";
    report.figures.push(Figure::counted("lab_up_seconds", "s", up, 1, source).with("hosts", hosts.to_string()));
    report
}

/// Adds what is known only at the end.
pub(super) fn close(report: &mut Report, stage: &Stage) {
    report.host.load_after = load_averages();
    for (queue, test) in &stage.self_tests {
        let passed = test.ports.iter().filter(|port| port.outcome == PortOutcome::Pass).count();
        let fact = format!("{passed} of {} ports proven in {}", test.ports.len(), test.took);
        report.host.facts.insert(format!("self-test {queue}"), fact);
        let unclear = test.ports.iter().filter(|port| port.outcome == PortOutcome::Inconclusive).count();
        if unclear > 0 {
            report.warnings.push(format!("the machine was too busy to prove {unclear} ports of the {queue} queues"));
        }
    }
    if let Ok(offloads) = stage.lab().offloads() {
        let real = offloads.iter().all(|offload| offload.gso_segments == Some(1));
        let fact = if real { "off: every packet is real" } else { "on: queues hold joined packets" };
        report.host.facts.insert("segmentation offload in the lab".into(), fact.into());
    }
    if stage.strangers > 0 {
        let count = stage.strangers;
        report
            .warnings
            .push(format!("{count} datagrams that were not of this run arrived at its ranks and were ignored"));
    }
    if stage.receive_overflow > 0 {
        let lost = stage.receive_overflow;
        report.warnings.push(format!("{lost} messages were lost in receivers' own socket buffers, not in the network"));
    }
}

/// This machine.
fn host() -> Host {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let memory_kib = read("/proc/meminfo")
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    let under_hypervisor =
        read("/proc/cpuinfo").lines().any(|line| line.starts_with("flags") && line.contains(" hypervisor"));
    Host {
        kernel: read("/proc/sys/kernel/osrelease"),
        cpus: std::thread::available_parallelism().map_or(0, |n| n.get() as u32),
        memory_bytes: memory_kib.unwrap_or(0) * 1024,
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
