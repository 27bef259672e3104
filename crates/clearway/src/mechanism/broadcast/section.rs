//! Broadcasts as a scenario describes them: one host casts to all others, by several ways, with and without loss.

use clearway_proto::base::{BitsPerSec, Bytes};
use serde::{Deserialize, Serialize};

use crate::mechanism::broadcast::{Mode, Plan, Share};
pub(crate) use crate::scenario::fabric::{Fabric, NodeMap};
use crate::scenario::time::Time;
use crate::scenario::{check_queues, distinct, within};

/// Broadcasts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Broadcast {
    /// The queue at every port.
    pub(crate) queue: String,
    /// Bytes of objects.
    pub(crate) bytes: Vec<Bytes>,
    /// Shares of what arrives that are lost, at every rank.
    pub(crate) loss: Vec<Share>,
    /// How objects reach all.
    pub(crate) modes: Vec<Mode>,
    /// Longer objects are cast by the first mode only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) modes_up_to: Option<Bytes>,
    /// On a machine: how many ranks, the root included, one after the other; as many as it has nodes without it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) ranks: Vec<u32>,
    /// Other machines on which the same is cast.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) also: Vec<String>,
    /// Objects of each length; by their length without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) objects: Option<u32>,
    /// How long a rank may be silent.
    pub(crate) silence: Time,
}

impl Default for Broadcast {
    fn default() -> Self {
        Self {
            queue: String::new(),
            bytes: vec![Bytes(4), Bytes(16 << 10), Bytes(1 << 20)],
            loss: vec![Share(0)],
            modes: vec![Mode::Auto],
            modes_up_to: None,
            ranks: Vec::new(),
            also: Vec::new(),
            objects: None,
            silence: Time::millis(2_000),
        }
    }
}

/// The longest object: the length of a span has 32 bits, and all ranks of one machine need memory for it.
const BYTES_MAX: Bytes = Bytes(2 << 30);

/// The most ranks on a machine: some hosts of 16-bit places are neighbours'.
pub(crate) const RANKS_MAX: u32 = 60_000;

impl Broadcast {
    /// Takes what is usual on `fabric` for the keys that `given` does not have.
    pub(crate) fn settle(&mut self, fabric: &Fabric, given: &toml::Table) -> Result<(), String> {
        if !given.contains_key("queue") {
            self.queue = fabric.queues()?.into_iter().next().unwrap_or_default();
        }
        if let (Fabric::Machine(_), true) = (fabric, self.ranks.is_empty()) {
            self.ranks = vec![fabric.hosts()?];
        }
        Ok(())
    }

    /// Lays ranks along the cables of `fabric`, which was `given` so: what symbols cross then shows what the network copies.
    pub(crate) fn settle_map(&self, fabric: &mut Fabric, given: &toml::Table) -> Result<(), String> {
        let Fabric::Machine(machine) = fabric else { return Ok(()) };
        if given.contains_key("node-map") && machine.node_map == NodeMap::Random {
            return Err("ranks of a broadcast lie along the cables: `node-map = \"linear\"` works".to_owned());
        }
        machine.node_map = NodeMap::Linear;
        Ok(())
    }

    /// The machines to cast on, and how many ranks on each; none in a laboratory.
    pub(crate) fn machines<'a>(&'a self, fabric: &'a Fabric) -> Vec<(&'a str, u32)> {
        let Fabric::Machine(machine) = fabric else { return Vec::new() };
        let all = [machine.preset.as_str()].into_iter().chain(self.also.iter().map(String::as_str));
        all.flat_map(|name| self.ranks.iter().map(move |ranks| (name, *ranks))).collect()
    }

    pub(crate) fn check(&self, fabric: &Fabric) -> Result<(), String> {
        match fabric {
            Fabric::Lab(_) if !self.ranks.is_empty() || !self.also.is_empty() => {
                return Err("`ranks` and `also` belong to a `preset`; a `topology` has `hosts`".into());
            }
            Fabric::Lab(_) => {}
            Fabric::Machine(_) => {
                distinct("ranks", &self.ranks)?;
                self.ranks.iter().try_for_each(|ranks| within("ranks", *ranks, 2, RANKS_MAX))?;
                let check = |name: &String| Fabric::machine(name.clone(), None).check();
                self.also.iter().try_for_each(|name| check(name).map_err(|why| format!("also: {why}")))?;
            }
            Fabric::Site(_) => {
                return Err(
                    "it runs in a laboratory or on a machine; clearway broadcast --on cluster casts there".into()
                );
            }
        }
        check_queues(fabric, std::slice::from_ref(&self.queue))?;
        distinct("bytes", &self.bytes)?;
        distinct("loss", &self.loss)?;
        distinct("modes", &self.modes)?;
        self.bytes.iter().try_for_each(|bytes| within("bytes", *bytes, Bytes(1), BYTES_MAX))?;
        within("objects", self.objects.unwrap_or(1), 1, 1_000_000)?;
        within("silence", self.silence, Time::millis(10), Time::millis(600_000))
    }

    /// What `ranks` ranks of `fabric` run, each on a link of this `rate` where that is known.
    pub(crate) fn plan(&self, ranks: u32, rate: Option<BitsPerSec>, seed: u64) -> Plan {
        Plan {
            ranks,
            leaves: 1,
            modes: self.modes.clone(),
            modes_up_to: self.modes_up_to,
            lengths: self.bytes.clone(),
            losses: self.loss.clone(),
            objects: self.objects,
            rate,
            silence: self.silence.0,
            kills: Vec::new(),
            stops: Vec::new(),
            filter: None,
            seed,
        }
    }
}
