//! What a report holds of a simulated network: its devices and cables, and what its ports did under
//! each queue.

use serde::{Deserialize, Serialize};

use super::Labels;
use super::real::write_rounded;

/// A simulated network. Devices are numbered: hosts from 0, switches behind them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReportFabric {
    /// Its name: `edr`.
    pub(crate) name: String,
    /// Its kind for a person: `a fat tree`.
    pub(crate) kind: String,
    /// How a picture arranges the switches.
    pub(crate) shape: SwitchArrangement,
    /// Cables, hosts' included.
    pub(crate) cables: u32,
    /// Names of the hosts.
    pub(crate) hosts: Vec<String>,
    pub(crate) switches: Vec<Switch>,
    /// Which devices are joined.
    pub(crate) links: Vec<FabricLink>,
    /// One for each queue: its last phase.
    pub(crate) loads: Vec<PhaseLoad>,
}

/// How a picture arranges switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SwitchArrangement {
    /// Row above row, hosts below.
    Rows,
    /// Groups in a ring; in a group, switches of several rows in a grid, others in a ring.
    Groups,
}

/// A switch and where a picture has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Switch {
    pub(crate) name: String,
    pub(crate) group: u32,
    /// Level of a tree, hosts' side first; row of a group.
    pub(crate) row: u32,
}

/// All parallel cables of two devices.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FabricLink {
    /// Their numbers, the lower first.
    pub(crate) ends: [u32; 2],
    pub(crate) cables: u32,
    /// Of one cable, each way.
    #[serde(serialize_with = "write_rounded")]
    pub(crate) gbps: f64,
}

/// What ports did in the congested window of one phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PhaseLoad {
    /// Queue.
    #[serde(default)]
    pub(crate) labels: Labels,
    /// Which phase it was.
    pub(crate) phase: String,
    /// Length of the window.
    #[serde(serialize_with = "write_rounded")]
    pub(crate) window_ms: f64,
    /// The classes of each virtual lane.
    pub(crate) lanes: Vec<String>,
    /// For each link, percent of the rate of its cables: from its first end, from its second.
    pub(crate) links: Vec<[f64; 2]>,
    /// The ports that carried most of their rate, busiest first.
    pub(crate) busiest: Vec<PortLoad>,
    /// The ports that stood still longest with something to send, longest first.
    pub(crate) stalled: Vec<PortLoad>,
}

/// One direction of one cable, at its sender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PortLoad {
    /// Sender and receiver, by number.
    pub(crate) ends: [u32; 2],
    /// Which of the sender's ports it is.
    pub(crate) port: u32,
    /// Bytes sent, in percent of the rate.
    #[serde(serialize_with = "write_rounded")]
    pub(crate) load: f64,
    /// Percent of them on each virtual lane.
    pub(crate) lanes: Vec<f64>,
    /// Percent of the window without credit, paused, or held up by a slow host, with something to
    /// send.
    #[serde(serialize_with = "write_rounded")]
    pub(crate) stalled: f64,
    /// The most that ever waited for it in this phase.
    pub(crate) queue_bytes: u64,
    /// Packets dropped.
    pub(crate) drops: u64,
}

impl ReportFabric {
    /// Returns how large it is, in words.
    pub(crate) fn size(&self) -> String {
        let switches = match self.switches.len() {
            1 => "1 switch".to_owned(),
            n => format!("{n} switches"),
        };
        format!("{} hosts, {switches}, {} cables", self.hosts.len(), self.cables)
    }

    /// Returns the name of a device, hosts first.
    pub(crate) fn device(&self, number: u32) -> &str {
        let number = number as usize;
        let switch =
            || self.switches.get(number.checked_sub(self.hosts.len())?).map(|it| it.name.as_str());
        self.hosts.get(number).map(String::as_str).or_else(switch).unwrap_or("?")
    }

    /// Returns `port` for a person; with its number where cables are parallel.
    pub(crate) fn label(&self, port: &PortLoad) -> String {
        let [from, to] = port.ends;
        let same = |link: &&FabricLink| link.ends == [from.min(to), from.max(to)];
        let parallel = self.links.iter().find(same).is_some_and(|link| link.cables > 1);
        let number = if parallel { format!(" (port {})", port.port) } else { String::new() };
        format!("{} \u{2192} {}{number}", self.device(from), self.device(to))
    }
}
