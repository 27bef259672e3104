//! `clearway qos`: a plan of levels, lanes and weights, the settings that make it, and what is wrong
//! with the present ones. Nothing is changed.

use std::io::{IsTerminal, stdout};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use clearway_proto::base::{Bytes, UnitError};
use clearway_runtime::launch::escaped;
use clearway_sim::spec::file::{FabricFile, FileOptions};
use clearway_sim::spec::import::SourceText;
use clearway_sim::spec::qos::{
    LowShares, PortAddress, PresentTables, QosPlan, check, check_payload, check_policy,
    is_level_free, ports, present,
};

use super::topo::{CONF_MAX, NETWORK_MAX, read};
use super::{SENTENCE_COLUMNS, counted, folded, print};
use crate::qos::{
    AnswerSource, EmitTarget, InterfaceName, devices, differences, emit, page, path_differences,
};
use crate::run::exit::Exit;

/// Classes on a network's own queues.
#[derive(Debug, Subcommand)]
pub(crate) enum QosCommand {
    /// Show the tables that separate the classes on an InfiniBand network, and the share of a link
    /// that each class gets.
    Plan {
        /// Read the switches from this output of ibnetdiscover, and show which lines of opensm.conf
        /// apply to each [default: show the plan alone].
        #[arg(long, value_name = "FILE")]
        switches: Option<PathBuf>,
        /// Read the lanes of ports from this directory, which `verify --record` filled, and name
        /// ports with too few.
        #[arg(long, value_name = "DIR", requires = "switches")]
        recorded: Option<PathBuf>,
        #[command(flatten)]
        network: QosNetwork,
    },
    /// Print the settings of the plan for a program that applies them.
    Emit {
        /// Print the settings for this program.
        #[arg(long = "for", value_name = "PROGRAM")]
        target: EmitTarget,
        /// Name this interface in the commands of tc, dcb and mlnx_qos: 1 to 15 letters, digits and
        /// _-.@+.
        #[arg(long, value_name = "NAME", default_value = "eth0")]
        interface: InterfaceName,
        #[command(flatten)]
        network: QosNetwork,
    },
    /// Read the tables of every connected port, and compare them with the plan.
    ///
    /// Run it on a host with an InfiniBand port, after `ibnetdiscover > net.txt`; it needs smpquery
    /// of infiniband-diags. Exit status 3: there are differences.
    Verify {
        /// Read switches and adapters from this output of ibnetdiscover.
        #[arg(long, value_name = "FILE")]
        switches: PathBuf,
        /// Compare the answers in this directory, which --record filled; ask no port.
        #[arg(long, value_name = "DIR", conflicts_with_all = ["record", "ibsim"])]
        recorded: Option<PathBuf>,
        /// Write the answers of smpquery and saquery into this directory, and make it if it is
        /// missing [default: keep none].
        #[arg(long, value_name = "DIR")]
        record: Option<PathBuf>,
        /// Leave out the high limit, which ibsim does not simulate.
        #[arg(long, conflicts_with = "record")]
        ibsim: bool,
        /// Compare also the levels of all paths from and to the adapter with this local identifier.
        /// It needs saquery, and OpenSM must use the policy of `emit --for policy`.
        #[arg(long, value_name = "LID")]
        paths_from: Option<u16>,
        #[command(flatten)]
        network: QosNetwork,
    },
    /// Check an opensm.conf, and print a sentence for each fault, or nothing. Exit status 3: there
    /// are faults.
    Check {
        /// Check this opensm.conf, a regular file of at most 4 MiB; `opensm -c FILE` writes one
        /// with the default of every option.
        #[arg(value_name = "FILE")]
        conf: PathBuf,
        /// Set the MTU of the network in bytes: 256B, 512B, 1KiB, 2KiB or 4KiB.
        #[arg(long, value_name = "BYTES", default_value = "4KiB", value_parser = payload)]
        payload: Bytes,
        /// Check also this QoS policy of the same network (qos-policy.conf).
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
        /// Check the P_Keys of the policy against the partitions in this file (partitions.conf).
        #[arg(long, value_name = "FILE", requires = "policy")]
        partitions: Option<PathBuf>,
    },
}

/// The network that a plan is for.
#[derive(Debug, Args)]
pub(crate) struct QosNetwork {
    /// Take the MTU from this fabric file or shipped fabric; `clearway topo list` names them
    /// [default: that of --payload].
    #[arg(long, value_name = "FILE", conflicts_with = "conf")]
    pub(crate) fabric: Option<String>,
    /// Read the present opensm.conf. The command fails if its routing engine uses service levels
    /// [default: read none].
    #[arg(long, value_name = "FILE")]
    pub(crate) conf: Option<PathBuf>,
    /// Set the MTU of the network in bytes, without --fabric: 256B, 512B, 1KiB, 2KiB or 4KiB.
    #[arg(long, value_name = "BYTES", default_value = "4KiB", value_parser = payload, conflicts_with = "fabric")]
    pub(crate) payload: Bytes,
    /// Give best effort, bulk and scavenger the shares of the site policy in FILE [default: 4, 2 and 1
    /// parts].
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
}

impl QosNetwork {
    /// Returns the shares of classes.
    fn shares(&self) -> Result<LowShares> {
        let policy = self.policy.as_deref().map(crate::policy::read).transpose()?;
        Ok(policy.and_then(|policy| policy.shares()).unwrap_or(LowShares::USUAL))
    }
}

/// Reads the MTU of an InfiniBand network.
fn payload(text: &str) -> Result<Bytes, String> {
    let payload = text.parse().map_err(|why: UnitError| why.to_string())?;
    check_payload(payload).map(|()| payload)
}

/// Does what `command` says.
pub(crate) fn command(command: QosCommand) -> Result<Exit> {
    match command {
        QosCommand::Plan { switches, recorded, network } => {
            let plan = plan(&network)?;
            let mut text = page(&plan, present_tables(&network, plan.payload)?.as_ref());
            if let Some(switches) = switches {
                let answers = recorded.map(AnswerSource::Recorded);
                text.push_str(&devices(&plan, &ports_of(&switches)?, answers.as_ref())?);
            }
            print(&text)?;
        }
        QosCommand::Emit { target, interface, network } => {
            print(&emit(target, (&plan(&network)?, network.shares()?), &interface))?
        }
        QosCommand::Verify { switches, recorded, record, ibsim, paths_from, network } => {
            let source = match recorded {
                Some(directory) => AnswerSource::Recorded(directory),
                None if ibsim => AnswerSource::Simulated,
                None => AnswerSource::Live(record),
            };
            return verify(&plan(&network)?, &ports_of(&switches)?, paths_from, &source);
        }
        QosCommand::Check { conf, payload, policy, partitions } => {
            let mut found = faults(&conf, payload)?;
            if let Some(policy) = policy {
                found.extend(policy_faults(&conf, &policy, partitions.as_deref())?);
            }
            // A program that reads it finds a sentence in a line.
            let columns = if stdout().is_terminal() { SENTENCE_COLUMNS } else { usize::MAX };
            let lines = found.iter().map(|fault| folded(fault, columns, "\n  ") + "\n");
            print(&lines.collect::<String>())?;
            return Ok(if found.is_empty() { Exit::Good } else { Exit::Findings });
        }
    }
    Ok(Exit::Good)
}

/// Returns the plan for a network whose routing leaves service levels free.
fn plan(network: &QosNetwork) -> Result<QosPlan> {
    let payload = match &network.fabric {
        Some(fabric) => FabricFile::open(fabric, FileOptions::default())?.spec.packet.payload,
        None => network.payload,
    };
    if let Some(conf) = &network.conf {
        let (shown, text) = (conf.display().to_string(), read(conf, CONF_MAX)?);
        is_level_free(SourceText { file: &shown, text: &text })?;
    }
    QosPlan::with_shares(payload, network.shares()?).map_err(|why| match &network.fabric {
        Some(fabric) => anyhow!("fabric {fabric}: {why}"),
        None => anyhow!(why),
    })
}

/// Returns what the ports of a network have at present, if its opensm.conf is given.
fn present_tables(network: &QosNetwork, payload: Bytes) -> Result<Option<PresentTables>> {
    let Some(conf) = &network.conf else { return Ok(None) };
    let (shown, text) = (conf.display().to_string(), read(conf, CONF_MAX)?);
    Ok(Some(present(SourceText { file: &shown, text: &text }, payload)?))
}

/// Returns the ports in ibnetdiscover's text.
fn ports_of(switches: &Path) -> Result<Vec<PortAddress>> {
    let (shown, text) = (switches.display().to_string(), read(switches, NETWORK_MAX)?);
    let ports = ports(SourceText { file: &shown, text: &text })?;
    if ports.is_empty() {
        bail!(
            "{shown} tells no local identifier of a port: take it from a network that has a subnet manager"
        );
    }
    Ok(ports)
}

/// Prints what ports and paths have that was not planned, and what cannot be known here.
fn verify(
    plan: &QosPlan,
    ports: &[PortAddress],
    paths_from: Option<u16>,
    source: &AnswerSource,
) -> Result<Exit> {
    let mut found = differences(plan, ports, source)?;
    let mut asked = counted(ports.len() as u64, "port");
    if let Some(from) = paths_from {
        let is_adapter = |port: &PortAddress| !port.is_switch && port.lid == from;
        if !ports.iter().any(is_adapter) {
            bail!("no adapter has the local identifier {from}");
        }
        let (paths, other) = path_differences(plan, ports, from, source)?;
        found.extend(other);
        asked.push_str(&format!(", {}", counted(paths as u64, "path")));
    }
    let mut page: String = found.iter().map(|difference| format!("{difference}\n")).collect();
    if matches!(source, AnswerSource::Simulated) {
        page.push_str("not verifiable here: the high limit, which ibsim does not keep\n");
    }
    if !ports.iter().any(|port| port.is_switch && port.number == 0) {
        page.push_str("not verifiable here: qos_sw0_, as no switch has an enhanced port 0\n");
    }
    let differ = if found.is_empty() {
        "all as planned".to_owned()
    } else {
        counted(found.len() as u64, "difference")
    };
    page.push_str(&format!("{asked}: {differ}\n"));
    print(&page)?;
    Ok(if found.is_empty() { Exit::Good } else { Exit::Findings })
}

/// Returns the faults of an opensm.conf, each with the name of the file.
fn faults(conf: &Path, payload: Bytes) -> Result<Vec<String>> {
    let (shown, text) = (conf.display().to_string(), read(conf, CONF_MAX)?);
    let found = check(SourceText { file: &shown, text: &text }, payload);
    Ok(named(&shown, &found.context("it cannot be checked")?))
}

/// Returns the faults of a QoS policy, each with the name of the file.
fn policy_faults(conf: &Path, policy: &Path, partitions: Option<&Path>) -> Result<Vec<String>> {
    let source =
        |path: &Path| Ok::<_, anyhow::Error>((path.display().to_string(), read(path, CONF_MAX)?));
    let (conf, policy) = (source(conf)?, source(policy)?);
    let partitions = partitions.map(source).transpose()?;
    fn text((file, text): &(String, String)) -> SourceText<'_> {
        SourceText { file, text }
    }
    if clearway_sim::spec::qos::is_opensm(&conf.1) && present(text(&conf), Bytes(2048)).is_err() {
        let sentence = format!("it is not checked before {} is right", conf.0);
        return Ok(named(&policy.0, &[sentence]));
    }
    let found = check_policy(text(&conf), text(&policy), partitions.as_ref().map(text));
    Ok(named(&policy.0, &found.context("it cannot be checked")?))
}

/// Returns sentences with the name of their file.
fn named(file: &str, faults: &[String]) -> Vec<String> {
    faults.iter().map(|fault| format!("{}: {}", escaped(file), escaped(fault))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan__is_for_the_packets_of_a_fabric_and_refused_where_routing_owns_the_levels() {
        let network = |fabric: Option<&str>, conf, payload| QosNetwork {
            fabric: fabric.map(str::to_owned),
            conf,
            payload: Bytes(payload),
            policy: None,
        };
        let payload = |network: &QosNetwork| plan(network).expect("a payload of ports").payload;
        assert_eq!(payload(&network(Some("edr"), None, 1)), Bytes(4096), "the fabric's");
        assert_eq!(payload(&network(None, None, 2048)), Bytes(2048));
        let sentence = plan(&network(None, None, 1500)).expect_err("Ethernet's").to_string();
        assert!(sentence.contains("no InfiniBand port carries"), "{sentence}");
        let conf = std::env::temp_dir().join(format!("clearway-qos-{}", std::process::id()));
        std::fs::write(&conf, "routing_engine torus-2QoS\n").expect("written");
        let sentence =
            plan(&network(None, Some(conf.clone()), 2048)).expect_err("owned").to_string();
        std::fs::remove_file(&conf).expect("removed");
        assert!(sentence.contains("line 1") && sentence.contains("torus-2QoS"), "{sentence}");
    }

    #[test]
    fn check__a_status_for_faults_and_another_for_what_is_no_opensm_conf() {
        let conf = std::env::temp_dir().join(format!("clearway-faults-{}", std::process::id()));
        for (text, exit) in [
            ("qos TRUE\n", Some(Exit::Good)),
            ("qos TRUE\nqos_ca_sl2vl 0,15\n", Some(Exit::Findings)),
            ("qos TRUE\nqos_vlarb_low 0:300\n", Some(Exit::Findings)),
            ("root:x:0:0\n", None),
        ] {
            std::fs::write(&conf, text).expect("written");
            let (conf, payload) = (conf.clone(), Bytes(2048));
            let check = QosCommand::Check { conf, payload, policy: None, partitions: None };
            assert_eq!(command(check).ok(), exit, "{text}");
        }
        std::fs::remove_file(&conf).expect("removed");
    }

    #[test]
    fn payload__is_one_of_five_mtus() {
        for (text, expected) in [("256B", 256), ("1024B", 1024), ("4KiB", 4096)] {
            assert_eq!(payload(text), Ok(Bytes(expected)));
        }
        for text in ["0B", "255B", "257B", "1500B", "3KiB", "8KiB", "4096", "big"] {
            assert!(payload(text).is_err(), "{text}");
        }
    }
}
