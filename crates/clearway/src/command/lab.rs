//! `clearway lab`: virtual clusters that stay up for programs of the user's own.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clearway_lab::{
    CheckOutcome, HOST_VARIABLE, LAB_VARIABLE, LabName, LabSpec, QueueKind, Topology, keeper,
    permission,
};

use super::LabCommand;
use crate::run::exit::{Exit, wrong_usage};
use crate::run::notice;

/// The variable in which a keeper finds its specification.
const SPEC_VARIABLE: &str = "CLEARWAY_LAB_SPEC";

/// Does what `command` says.
pub(crate) fn command(command: LabCommand) -> Result<Exit> {
    match command {
        LabCommand::Exec { name, share_mounts, host, program } => {
            keeper::enter(&name, &host)?;
            if !share_mounts && let Err(why) = keeper::name_hosts(&name) {
                notice!("clearway: names of hosts are not known here: {why}");
            }
            exec(&name, &host, &program)
        }
        LabCommand::Status { name: Some(name) } => status(&name),
        LabCommand::Status { name: None } => list(),
        LabCommand::Down { name } => down(&name),
        LabCommand::Up { .. } => up(command),
    }
}

fn up(command: LabCommand) -> Result<Exit> {
    let LabCommand::Up {
        name,
        hosts,
        rate,
        rails,
        trunk,
        leaves,
        spines,
        uplink,
        queue,
        queue_packets,
        skip_self_test,
        offload,
    } = command
    else {
        bail!("not a request to make a lab");
    };
    let topology = match (leaves, spines, trunk) {
        (Some(leaves), Some(spines), _) => {
            if leaves == 0 || !hosts.is_multiple_of(leaves) {
                wrong_usage!(
                    "--hosts is {hosts}, which does not split evenly over {leaves} leaves; 2 leaves and a multiple of hosts work"
                );
            }
            Topology::LeafSpine {
                leaves,
                hosts_per_leaf: hosts / leaves,
                spines,
                rate,
                uplink: uplink.unwrap_or(rate),
            }
        }
        (_, _, Some(trunk)) => Topology::TwoSwitch { hosts, rate, trunk },
        _ => Topology::Star { hosts, rate },
    };
    let spec = LabSpec { rails, queue, queue_packets, ..LabSpec::new(topology) };
    spec.check()?;
    spec.check_offload(offload)?;
    let mut keeper = Command::new(std::env::current_exe().context("the path of this program")?);
    keeper.arg("lab-keeper").arg(name.as_str()).env(SPEC_VARIABLE, serde_json::to_string(&spec)?);
    keeper::start(keeper)?;
    if !skip_self_test {
        prove(&name, queue)?;
    }
    if offload != 1
        && let Err(error) = keeper::attach(&name)?.offload(offload)
    {
        keeper::down(&name)?;
        return Err(error.into());
    }
    let named = if name.as_str() == "lab" { String::new() } else { format!("--name {name} ") };
    println!(
        "lab {name} is up: {hosts} hosts, {queue} queues; try `clearway lab exec {named}h0 -- ip address`"
    );
    Ok(Exit::Good)
}

/// Tests every port of a lab that has just come up; one that is wrong takes the lab down again.
fn prove(name: &LabName, queue: QueueKind) -> Result<()> {
    let mut lab = keeper::attach(name)?;
    let test = lab.self_test().context("the lab's ports cannot be tested")?;
    // The user's counters begin at zero, without the test's own packets and drops.
    lab.rearm(queue)?;
    match test.outcome() {
        CheckOutcome::Pass => Ok(()),
        CheckOutcome::Inconclusive => {
            notice!(
                "clearway: the machine is too busy to prove every port of the lab; figures may mislead"
            );
            Ok(())
        }
        CheckOutcome::Fail => {
            keeper::down(name)?;
            let failed = test.failed().next().context("no port failed")?;
            let wrong = failed.checks.iter().find(|check| check.outcome == CheckOutcome::Fail);
            let wrong = wrong.context("no check failed")?;
            bail!(
                "the {} of port {} is {:.1} {} where {:.1} are right; the lab was taken down, run again if this machine was busy",
                wrong.name,
                failed.port,
                wrong.measured.unwrap_or(f64::NAN),
                wrong.unit,
                wrong.expected
            );
        }
    }
}

/// Runs the keeper process of a lab; returns only with an error.
pub(crate) fn keep(name: &LabName) -> Result<Exit> {
    let spec = std::env::var(SPEC_VARIABLE)
        .context("this command is for the program itself; use `clearway lab up`")?;
    let spec: LabSpec = serde_json::from_str(&spec).context("the lab's specification")?;
    if let Err(error) = permission::acquire() {
        let _ = writeln!(io::stdout(), "{error}");
        return Err(error.into());
    }
    match keeper::run(name, &spec, io::stdout())? {}
}

/// Becomes the user's program inside a host, which was entered.
fn exec(name: &LabName, host: &str, program: &[String]) -> Result<Exit> {
    let Some((first, rest)) = program.split_first() else { bail!("name a program after --") };
    let error = Command::new(first)
        .args(rest)
        .env(LAB_VARIABLE, name.as_str())
        .env(HOST_VARIABLE, host)
        .exec();
    Err(error).with_context(|| format!("{first}: cannot be run"))
}

fn status(name: &LabName) -> Result<Exit> {
    let status = keeper::status(name)?;
    if !status.up {
        let remedy = format!("`clearway lab down --name {name}` removes it");
        super::print(&format!("lab {name} is gone; its state file is left, {remedy}\n"))?;
        return Ok(Exit::Failed);
    }
    let (hosts, queue) = (&status.state.hosts, status.state.spec.queue);
    let mut lines = vec![format!(
        "lab {name}: {} hosts, {queue} queues, {} programs",
        hosts.len(),
        status.inhabitants.len()
    )];
    lines.extend(hosts.iter().map(|host| {
        let further: String = host.further.iter().map(|address| format!(", {address}")).collect();
        format!("  {:5} {:15} on {}{further}", host.name, host.address, host.switch)
    }));
    let lab = keeper::attach(name)?;
    let row = |cells: [&str; 6]| {
        let [port, class, packets, bytes, dropped, waiting] = cells;
        format!("  {port:16} {class:12} {packets:>10} {bytes:>13} {dropped:>8} {waiting:>8}")
    };
    lines.push(row(["port", "class", "packets", "bytes", "dropped", "waiting"]));
    let counters = lab.port_counters().context("the lab's counters cannot be read")?;
    for port in counters.iter().filter(|port| port.packets > 0) {
        let class = port.class.map_or("all", clearway_proto::base::Class::name);
        let numbers = [port.packets, port.bytes, port.drops, port.backlog_packets]
            .map(|number| number.to_string());
        let [packets, bytes, dropped, waiting] = &numbers;
        lines.push(row([&port.port, class, packets, bytes, dropped, waiting]));
    }
    super::print(&(lines.join("\n") + "\n"))?;
    Ok(Exit::Good)
}

fn list() -> Result<Exit> {
    let mut text = String::new();
    for lab in keeper::list()? {
        let (name, hosts, programs) =
            (&lab.state.name, lab.state.hosts.len(), lab.inhabitants.len());
        let state = if lab.up { "up" } else { "gone" };
        text += &format!("{name:16} {state:5} {hosts} hosts, {programs} programs\n");
    }
    super::print(if text.is_empty() { "no labs; `clearway lab up` makes one\n" } else { &text })?;
    Ok(Exit::Good)
}

fn down(name: &LabName) -> Result<Exit> {
    let down = keeper::down(name)?;
    println!("lab {name} is down, {} programs ended", down.ended.len());
    for pid in down.left {
        notice!(
            "clearway: process {pid} is in the lab's network but not marked as its own; it was left alone"
        );
    }
    Ok(Exit::Good)
}
