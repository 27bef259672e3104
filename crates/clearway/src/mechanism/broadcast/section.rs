//! Broadcasts as a scenario describes them: one host casts to all others, by several ways, with and
//! without loss.

use clearway_proto::base::{BitsPerSec, Bytes};
use serde::{Deserialize, Serialize};
use toml::de::DeTable;

use super::{BroadcastPlan, CastMode, Millionths};
use crate::scenario::fabric::NodeMap;
use crate::scenario::{Fabric, Section, Time, check_queues, distinct, is_given, within};

/// Broadcasts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct BroadcastSection {
    /// The queue at every port.
    pub(crate) queue: String,
    /// Bytes of objects.
    pub(crate) bytes: Vec<Bytes>,
    /// Shares of what arrives that are lost, at every rank.
    pub(crate) loss: Vec<Millionths>,
    /// How objects reach all.
    pub(crate) modes: Vec<CastMode>,
    /// Longer objects are cast by the first mode only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) modes_up_to: Option<Bytes>,
    /// On a machine: how many ranks, the root included, one after the other; as many as it has
    /// nodes without it.
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

impl Default for BroadcastSection {
    fn default() -> Self {
        Self {
            queue: String::new(),
            bytes: vec![Bytes(4), Bytes(16 << 10), Bytes(1 << 20)],
            loss: vec![Millionths(0)],
            modes: vec![CastMode::Auto],
            modes_up_to: None,
            ranks: Vec::new(),
            also: Vec::new(),
            objects: None,
            silence: Time::millis(2_000),
        }
    }
}

/// The longest object: the length of a span has 32 bits, and all ranks of one machine need memory
/// for it.
const BYTES_MAX: Bytes = Bytes(2 << 30);

/// The most ranks on a machine: some hosts of 16-bit places are neighbours'.
pub(crate) const RANKS_MAX: u32 = 60_000;

impl Section for BroadcastSection {
    const NAME: &'static str = "broadcast";

    fn apply_defaults(&mut self, fabric: &mut Fabric, given: &DeTable<'_>) -> Result<(), String> {
        if !is_given(given, Self::NAME, "queue") {
            self.queue = fabric.usual_queue()?;
        }
        if let (Fabric::Machine(_), true) = (&*fabric, self.ranks.is_empty()) {
            self.ranks = vec![fabric.hosts()?];
        }
        // Ranks lie along the cables: what symbols cross then shows what the network copies.
        let Fabric::Machine(machine) = fabric else { return Ok(()) };
        if is_given(given, "fabric", "node-map") && machine.node_map != NodeMap::Linear {
            return Err("ranks of a broadcast lie along the cables: `node-map = \"linear\"` works"
                .to_owned());
        }
        machine.node_map = NodeMap::Linear;
        Ok(())
    }

    fn check(&self, fabric: &Fabric) -> Result<(), String> {
        match fabric {
            Fabric::Lab(_) if !self.ranks.is_empty() || !self.also.is_empty() => {
                return Err(
                    "`ranks` and `also` belong to a `preset`; a `topology` has `hosts`".into()
                );
            }
            Fabric::Lab(_) => {}
            Fabric::Machine(_) => {
                distinct("ranks", &self.ranks)?;
                self.ranks.iter().try_for_each(|ranks| within("ranks", *ranks, 2, RANKS_MAX))?;
                let check = |name: &String| Fabric::machine(name.clone(), None).check();
                self.also
                    .iter()
                    .try_for_each(|name| check(name).map_err(|why| format!("also: {why}")))?;
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

    fn on_job(&mut self, _: &Fabric) -> Result<(), String> {
        Err("a scenario of broadcasts does not run across a job; clearway broadcast --on cluster casts there".into())
    }
}

impl BroadcastSection {
    /// Returns the machines to cast on, and how many ranks on each; none in a laboratory.
    pub(crate) fn machines<'a>(&'a self, fabric: &'a Fabric) -> Vec<(&'a str, u32)> {
        let Fabric::Machine(machine) = fabric else { return Vec::new() };
        let all = [machine.preset.as_str()].into_iter().chain(self.also.iter().map(String::as_str));
        all.flat_map(|name| self.ranks.iter().map(move |ranks| (name, *ranks))).collect()
    }

    /// Returns what `ranks` ranks of `fabric` run, each on a link of this `rate` where that is
    /// known.
    pub(crate) fn plan(&self, ranks: u32, rate: Option<BitsPerSec>, seed: u64) -> BroadcastPlan {
        BroadcastPlan {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Scenario, SectionKind, read_text};

    fn read(text: &str) -> Result<Scenario, String> {
        read_text(text, &[SectionKind::new::<BroadcastSection>()])
    }

    fn refusal(text: &str) -> String {
        read(text).expect_err("it must be refused")
    }

    #[test]
    fn read__broadcasts_on_a_machine_have_ranks_and_those_of_a_laboratory_have_hosts() {
        let machine = |rest: &str| format!("name = \"x\"\n[fabric]\npreset = \"edr\"\n{rest}");
        let scenario = read(&machine("nodes = 64\n[broadcast]\nalso = [\"slingshot\"]\n"))
            .expect("it can run");
        let test = scenario.section::<BroadcastSection>().expect("a broadcast");
        assert_eq!(test.machines(&scenario.fabric), [("edr", 64), ("slingshot", 64)]);
        assert!(
            refusal(&machine("[broadcast]\nranks = [1]\n")).contains("ranks is 1; 2 to 60000 work")
        );
        assert!(refusal(&machine("[broadcast]\nalso = [\"edrr\"]\n")).contains("also: "));
        for other in ["random", "cyclic"] {
            assert!(
                refusal(&machine(&format!("node-map = \"{other}\"\n[broadcast]\n")))
                    .contains("`node-map = \"linear\"` works")
            );
        }
        let star = "name = \"x\"\n[fabric]\ntopology = { kind = \"star\", hosts = 8, rate = \"100Mb/s\" }\n[broadcast]\n";
        let mut scenario = read(star).expect("it can run");
        assert_eq!(
            scenario.section::<BroadcastSection>().map(|test| test.queue.as_str()),
            Some("fifo")
        );
        assert!(
            scenario
                .on_job(8, None)
                .expect_err("no stage")
                .contains("clearway broadcast --on cluster")
        );
        assert!(refusal(&format!("{star}ranks = [4]\n")).contains("a `topology` has `hosts`"));
    }
}
