//! `clearway qos`: a plan of levels, lanes and weights, the settings that make it, and what is wrong
//! with the present ones. Nothing is changed.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use clearway_proto::base::Bytes;
use clearway_runtime::launch::escaped;
use clearway_sim::spec::file::{FabricFile, FileError, FileOptions};
use clearway_sim::spec::import::SourceText;
use clearway_sim::spec::qos::{QosPlan, check, is_level_free, ports};

use super::print;
use super::topo::read;
use crate::qos::{AnswerSource, EmitTarget, differences, emit, page};
use crate::run::exit::Exit;

/// Classes on a network's own queues.
#[derive(Debug, Subcommand)]
pub(crate) enum QosCommand {
    /// Show the tables that keep the classes of an InfiniBand network apart, and the shares that
    /// they give.
    Plan(QosNetwork),
    /// Print the settings of that plan for a program that sets them.
    Emit {
        /// Which program.
        #[arg(long = "for", value_name = "PROGRAM")]
        target: EmitTarget,
        /// The interface that is named in the text.
        #[arg(long, default_value = "eth0")]
        interface: String,
        #[command(flatten)]
        network: QosNetwork,
    },
    /// Ask every port of the network whether it has what is planned; the status is 3 when one has
    /// something else. `ibnetdiscover > net.txt` first.
    Verify {
        /// The text that ibnetdiscover prints.
        #[arg(long)]
        switches: PathBuf,
        /// Read what smpquery said before from files in this directory.
        #[arg(long, value_name = "DIR", conflicts_with_all = ["record", "ibsim"])]
        recorded: Option<PathBuf>,
        /// Keep what it says in this directory.
        #[arg(long, value_name = "DIR")]
        record: Option<PathBuf>,
        /// The network is one of ibsim, which does not keep the high limit.
        #[arg(long, conflicts_with = "record")]
        ibsim: bool,
        #[command(flatten)]
        network: QosNetwork,
    },
    /// Tell what is wrong with an opensm.conf, a sentence for each fault; the status is then 3.
    Check {
        /// The options of OpenSM.
        conf: PathBuf,
        /// What packets carry.
        #[arg(long, value_name = "BYTES", default_value = "2KiB")]
        payload: Bytes,
    },
}

/// The network that a plan is for.
#[derive(Debug, Args)]
pub(crate) struct QosNetwork {
    /// A shipped fabric by its name, or a file, whose packets it is for.
    #[arg(long, conflicts_with = "conf")]
    pub(crate) fabric: Option<String>,
    /// The present options of OpenSM: whether service levels are free under its routing.
    #[arg(long)]
    pub(crate) conf: Option<PathBuf>,
    /// What packets carry, where no fabric says it.
    #[arg(long, value_name = "BYTES", default_value = "4KiB", conflicts_with = "fabric")]
    pub(crate) payload: Bytes,
}

/// Does what `command` says.
pub(crate) fn command(command: QosCommand) -> Result<Exit> {
    match command {
        QosCommand::Plan(network) => print(&page(&plan(&network)?))?,
        QosCommand::Emit { target, interface, network } => {
            print(&emit(target, &plan(&network)?, &interface))?
        }
        QosCommand::Verify { switches, recorded, record, ibsim, network } => {
            let source = match recorded {
                Some(directory) => AnswerSource::Recorded(directory),
                None if ibsim => AnswerSource::Simulated,
                None => AnswerSource::Live(record),
            };
            return verify(&plan(&network)?, &switches, &source);
        }
        QosCommand::Check { conf, payload } => return faults(&conf, payload),
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
        let (shown, text) = (conf.display().to_string(), read(conf)?);
        is_level_free(SourceText { file: &shown, text: &text })?;
    }
    QosPlan::new(payload).map_err(|why| anyhow!(why))
}

/// Prints what ports have that was not planned.
fn verify(plan: &QosPlan, switches: &Path, source: &AnswerSource) -> Result<Exit> {
    let (shown, text) = (switches.display().to_string(), read(switches)?);
    let ports = ports(SourceText { file: &shown, text: &text })?;
    if ports.is_empty() {
        bail!(
            "{shown} tells no local identifier of a port: take it from a network that has a subnet manager"
        );
    }
    let found = differences(plan, &ports, source)?;
    let mut page: String = found.iter().map(|difference| format!("{difference}\n")).collect();
    let limit = match source {
        AnswerSource::Simulated => "; the high limit cannot be verified on ibsim",
        _ => "",
    };
    let differ = if found.is_empty() {
        "all as planned".to_owned()
    } else {
        format!("{} differences", found.len())
    };
    page.push_str(&format!("{} ports: {differ}{limit}\n", ports.len()));
    print(&page)?;
    Ok(if found.is_empty() { Exit::Good } else { Exit::Congested })
}

/// Prints the faults of an opensm.conf.
fn faults(conf: &Path, payload: Bytes) -> Result<Exit> {
    if payload.0 == 0 {
        bail!("packets that carry nothing; ports carry 256B to 4KiB");
    }
    let (shown, text) = (conf.display().to_string(), read(conf)?);
    let found = match check(SourceText { file: &shown, text: &text }, payload) {
        Ok(found) => found,
        // An option that OpenSM would bend is a fault; a file of something else is a mistake.
        Err(FileError::Wrong { line, why, .. }) if clearway_sim::spec::qos::is_opensm(&text) => {
            vec![format!("line {line}: {why}")]
        }
        Err(error) => return Err(error).context("it cannot be checked"),
    };
    let page: String =
        found.iter().map(|fault| format!("{}: {}\n", escaped(&shown), escaped(fault))).collect();
    print(&page)?;
    Ok(if found.is_empty() { Exit::Good } else { Exit::Congested })
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
        };
        let payload = |network: &QosNetwork| plan(network).expect("a payload of ports").payload;
        assert_eq!(payload(&network(Some("edr"), None, 1)), Bytes(4096), "the fabric's");
        assert_eq!(payload(&network(None, None, 2048)), Bytes(2048));
        let sentence = plan(&network(None, None, 1500)).expect_err("Ethernet's").to_string();
        assert!(sentence.contains("no port carries"), "{sentence}");
        let conf = std::env::temp_dir().join(format!("clearway-qos-{}", std::process::id()));
        std::fs::write(&conf, "routing_engine torus-2QoS\n").expect("written");
        let sentence =
            plan(&network(None, Some(conf.clone()), 2048)).expect_err("owned").to_string();
        std::fs::remove_file(&conf).expect("removed");
        assert!(sentence.contains("line 1") && sentence.contains("torus-2QoS"), "{sentence}");
    }

    #[test]
    fn faults__a_status_for_faults_and_another_for_what_is_no_opensm_conf() {
        let conf = std::env::temp_dir().join(format!("clearway-faults-{}", std::process::id()));
        for (text, exit) in [
            ("qos TRUE\n", Some(Exit::Good)),
            ("qos TRUE\nqos_ca_sl2vl 0,15\n", Some(Exit::Congested)),
            ("qos TRUE\nqos_vlarb_low 0:300\n", Some(Exit::Congested)),
            ("root:x:0:0\n", None),
        ] {
            std::fs::write(&conf, text).expect("written");
            assert_eq!(faults(&conf, Bytes(2048)).ok(), exit, "{text}");
        }
        std::fs::remove_file(&conf).expect("removed");
    }
}
