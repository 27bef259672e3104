//! Timeslice building as a scenario describes it: half of the hosts are inputs, half of them
//! builders, under several schedules.

use clearway_proto::base::{BitsPerSec, Bytes, Nanos};
use clearway_proto::microslice::{SizeDistribution, SliceRule};
use clearway_proto::timeslice::{Dfs, Policy, SpeedUp, Window};
use serde::{Deserialize, Serialize};
use toml::de::DeTable;

use super::{
    BuildSpec, HostConditions, InitialRings, MadeMicroslices, Neighbourhoods, SinkKind, Slowdown,
    SourceKind, TimeslicePlan, TimesliceTask, UnscheduledMessages, mean_length,
};
use crate::scenario::{Fabric, Section, Time, check_queues, distinct, is_given, within};

/// Timeslice building.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct TimesliceSection {
    /// The fabric's queue.
    pub(crate) queue: String,
    /// Ranks with contributions; the other hosts build.
    pub(crate) inputs: u32,
    /// Schedules to compare, in addition to `raw`.
    pub(crate) policies: Vec<Policy>,
    /// Bytes of one contribution.
    pub(crate) contribution: Bytes,
    /// Bytes of the ring of each connection.
    pub(crate) ring: Bytes,
    /// How far rings are at the beginning.
    pub(crate) rings: InitialRings,
    /// Contributions that a builder of `token` lets in at a time: a number, or the bounds of what
    /// it finds.
    pub(crate) window: String,
    /// Timeslices of an interval of `dfs`.
    pub(crate) interval: u64,
    /// Intervals that `dfs` looks back.
    pub(crate) history: usize,
    /// How much less than the median `dfs` proposes while inputs keep up, in percent.
    pub(crate) speed_up_percent: u32,
    /// Inputs begin within this time of each other.
    pub(crate) start_skew: Time,
    /// Nothing is counted before.
    pub(crate) warm_up: Time,
    /// How long everything is counted.
    pub(crate) measured: Time,
    /// Runs, each with a seed of its own.
    pub(crate) seeds: u32,
    /// At what hosts' interfaces fetch and place; as in the fabric file without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node_rate: Option<BitsPerSec>,
    /// Inputs are by up to this many thousandths slower, each by its own part.
    pub(crate) rate_spread_per_mille: u32,
    /// Mean time between interruptions of a host's processor; as in the fabric file without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) interruption_period: Option<Time>,
    /// How long each takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) interruption_length: Option<Time>,
    /// Payload of a packet; as in the fabric file without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) packet: Option<Bytes>,
    /// By how much inputs are slower for a while, in percent.
    pub(crate) drop_percent: u32,
    /// From when on, behind the warm-up.
    pub(crate) drop_from: Time,
    /// For how long.
    pub(crate) drop_length: Time,
}

impl Default for TimesliceSection {
    fn default() -> Self {
        let Dfs { interval, history, speed_up, .. } = Dfs::default();
        Self {
            queue: String::new(),
            inputs: 0,
            policies: vec![Policy::BestEffort, Policy::Offset, Policy::Dfs, Policy::Token],
            contribution: Bytes(64 << 10),
            ring: Bytes(32 << 20),
            rings: InitialRings::Empty,
            window: "2-64".to_owned(),
            interval,
            history,
            speed_up_percent: speed_up.map_or(0, |speed_up| speed_up.step),
            start_skew: Time::millis(5),
            warm_up: Time::millis(40),
            measured: Time::millis(10),
            seeds: 1,
            node_rate: None,
            rate_spread_per_mille: 0,
            interruption_period: None,
            interruption_length: None,
            packet: None,
            drop_percent: 0,
            drop_from: Time::default(),
            drop_length: Time::default(),
        }
    }
}

/// The longest simulated time: hours of a processor. Longer ones are mistyped units.
const TIME_MAX: Time = Time::millis(100_000);
/// The longest contribution and packet: some milliseconds of a fast link.
const BYTES_MAX: Bytes = Bytes(64 << 20);
/// The longest ring: with five thousand inputs, offsets stay far below 64 bits.
const RING_MAX: Bytes = Bytes(1 << 40);

impl Section for TimesliceSection {
    const NAME: &'static str = "timeslice";

    fn apply_defaults(&mut self, fabric: &mut Fabric, given: &DeTable<'_>) -> Result<(), String> {
        let is_given = |key| is_given(given, Self::NAME, key);
        if !is_given("queue") {
            self.queue = fabric.usual_queue()?;
        }
        if !is_given("inputs") {
            self.inputs = fabric.hosts()? / 2;
        }
        let Fabric::Lab(_) = fabric else { return Ok(()) };
        let usual = ProcessDefaults::LAB;
        self.warm_up = if is_given("warm-up") { self.warm_up } else { usual.warm_up };
        self.measured = if is_given("measured") { self.measured } else { usual.measured };
        self.contribution =
            if is_given("contribution") { self.contribution } else { usual.contribution };
        self.ring = if is_given("ring") { self.ring } else { usual.ring };
        self.interval = if is_given("interval") { self.interval } else { usual.interval };
        self.history = if is_given("history") { self.history } else { usual.history };
        Ok(())
    }

    fn check(&self, fabric: &Fabric) -> Result<(), String> {
        if let Fabric::Lab(_) = fabric
            && let Some(key) = self.only_simulated()
        {
            return Err(format!(
                "{key} is for a simulated machine: hosts and links of a lab are what they are"
            ));
        }
        check_queues(fabric, std::slice::from_ref(&self.queue))?;
        distinct("policies", &self.policies)?;
        let hosts = fabric.hosts()?;
        within("inputs", self.inputs, 1, hosts.saturating_sub(1))?;
        within("contribution", self.contribution, Bytes(1), BYTES_MAX)?;
        within("ring", self.ring, self.contribution, RING_MAX)?;
        self.window.parse::<Window>().map_err(|why| format!("window: {why}"))?;
        within("interval", self.interval, 1, u64::from(u32::MAX))?;
        within("history", self.history, 1, 100_000)?;
        within("speed-up-percent", self.speed_up_percent, 0, 50)?;
        within("seeds", self.seeds, 1, 100)?;
        within("rate-spread-per-mille", self.rate_spread_per_mille, 0, 500)?;
        within("drop-percent", self.drop_percent, 0, 99)?;
        if let Some(packet) = self.packet {
            within("packet", packet, Bytes(64), BYTES_MAX)?;
        }
        if let Some(rate) = self.node_rate {
            within("node-rate", rate, BitsPerSec::mega(1), BitsPerSec::mega(100_000_000))?;
        }
        if self.interruption_period.is_some() != self.interruption_length.is_some() {
            return Err("interruption-period and interruption-length belong together".into());
        }
        let nothing = Time::default();
        within("start-skew", self.start_skew, nothing, TIME_MAX)?;
        within("warm-up", self.warm_up, nothing, TIME_MAX)?;
        within("measured", self.measured, Time::micros(1), TIME_MAX)?;
        within("drop-from", self.drop_from, nothing, self.measured)?;
        within("drop-length", self.drop_length, nothing, self.measured)?;
        if self.drop_percent > 0 && (self.drop_length == nothing || self.drop_from == nothing) {
            return Err(
                "drop-percent needs drop-from, so that there is a time before, and drop-length"
                    .into(),
            );
        }
        Ok(())
    }
}

/// What is usual where ranks are processes: of links of 50 Mb/s, on a machine whose processors are
/// shared.
struct ProcessDefaults {
    contribution: Bytes,
    ring: Bytes,
    interval: u64,
    history: usize,
    warm_up: Time,
    measured: Time,
}

impl ProcessDefaults {
    /// Ten rounds of four builders, a tenth of a second at 50 Mb/s: some dozens of intervals in a
    /// run.
    const LAB: Self = Self {
        contribution: Bytes(16 << 10),
        ring: Bytes(512 << 10),
        interval: 40,
        history: 10,
        warm_up: Time::millis(2_000),
        measured: Time::millis(4_000),
    };
}

/// Three of them without a beat are too many: a header that TCP sends again twice is late by 0.6 s
/// (its shortest time-out is 0.2 s, then 0.4 s), and a rank that waits for a processor on a busy
/// machine by less.
const HEARTBEAT: Nanos = Nanos::from_millis(250);

impl TimesliceSection {
    /// Returns a key that only a simulated machine has.
    fn only_simulated(&self) -> Option<&'static str> {
        let given = [
            ("node-rate", self.node_rate.is_some()),
            ("rate-spread-per-mille", self.rate_spread_per_mille > 0),
            ("interruption-period", self.interruption_period.is_some()),
            ("packet", self.packet.is_some()),
            ("drop-percent", self.drop_percent > 0),
            ("rings", self.rings == InitialRings::Full),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(key, _)| key)
    }

    /// Returns what rank processes run, who watch each other, and what they are given.
    ///
    /// # Errors
    /// Contributions are too short for a descriptor.
    pub(crate) fn task(
        &self,
        hosts: u32,
        seed: u64,
    ) -> Result<(TimeslicePlan, TimesliceTask), String> {
        let plan = TimeslicePlan { heartbeat: Some(HEARTBEAT), ..self.plan(hosts, seed) };
        let slices = SliceRule::ByIndex { core: 1, overlap: 0 };
        let mean = mean_length(slices, plan.contribution).ok_or_else(|| {
            format!(
                "contribution is {}, too few for the descriptor of a microslice",
                plan.contribution
            )
        })?;
        let source =
            SourceKind::Pattern(MadeMicroslices::unpaced(SizeDistribution::Constant, mean));
        let feed = BuildSpec { slices, source, sink: SinkKind::Check, timeslices: None };
        let memory =
            Bytes(plan.ring.0.saturating_mul(u64::from(plan.builders)).clamp(1 << 20, 256 << 20));
        let task = TimesliceTask { feed, memory, job: std::process::id().to_string() };
        Ok((plan, task))
    }

    /// Returns what runs on `hosts` hosts with seeds from `seed` on.
    pub(crate) fn plan(&self, hosts: u32, seed: u64) -> TimeslicePlan {
        let speed_up =
            Dfs::default().speed_up.map(|usual| SpeedUp { step: self.speed_up_percent, ..usual });
        let interruptions = self.interruption_period.zip(self.interruption_length);
        TimeslicePlan {
            inputs: self.inputs,
            builders: hosts.saturating_sub(self.inputs),
            weights: Vec::new(),
            neighbourhoods: Neighbourhoods::default(),
            policies: self.policies.clone(),
            contribution: self.contribution,
            messages: UnscheduledMessages::Alone,
            ring: self.ring,
            window: self.window.parse().unwrap_or(Window { least: 2, most: 64 }),
            dfs: Dfs {
                interval: self.interval,
                history: self.history,
                speed_up: speed_up.filter(|speed_up| speed_up.step > 0),
                ..Dfs::default()
            },
            start_skew: self.start_skew.0,
            warm_up: self.warm_up.0,
            measured: self.measured.0,
            seeds: (0..u64::from(self.seeds)).map(|n| seed.wrapping_add(n)).collect(),
            rings: self.rings,
            hosts: HostConditions {
                rate: self.node_rate,
                spread: self.rate_spread_per_mille,
                interruptions: interruptions.map(|(period, length)| (period.0, length.0)),
                packet: self.packet,
            },
            changes: Vec::new(),
            heartbeat: None,
            grant: None,
            slowdown: (self.drop_percent > 0).then_some(Slowdown {
                percent: self.drop_percent,
                from: self.drop_from.0,
                length: self.drop_length.0,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Scenario, SectionKind, read_text};

    fn read(text: &str) -> Result<Scenario, String> {
        read_text(text, &[SectionKind::new::<TimesliceSection>()])
    }

    fn refusal(text: &str) -> String {
        read(text).expect_err("it must be refused")
    }

    const TIMESLICES: &str =
        "name = \"t\"\n[fabric]\npreset = \"aries\"\nnodes = 64\n[timeslice]\n";

    #[test]
    fn read__timeslices_are_built_by_half_of_the_hosts_unless_it_says_otherwise() {
        let scenario = read(TIMESLICES).expect("defaults work");
        let test = scenario.section::<TimesliceSection>().expect("one table");
        let plan = test.plan(64, 7);
        assert_eq!(
            (plan.inputs, plan.builders, plan.seeds, test.queue.as_str()),
            (32, 32, vec![7], "shared")
        );
        assert!(scenario.text().expect("it can be written").contains("\nring = \"32 MiB\"\n"));
        let scenario = read(&format!(
            "{TIMESLICES}inputs = 60\nseeds = 3\ndrop-percent = 25\ndrop-from = \"1ms\"\ndrop-length = \"2ms\"\n"
        ));
        let scenario = scenario.expect("it can run");
        let plan = scenario.section::<TimesliceSection>().expect("one table").plan(64, 1);
        assert_eq!(
            (plan.inputs, plan.builders, plan.seeds, plan.slowdown.map(|slow| slow.percent)),
            (60, 4, vec![1, 2, 3], Some(25))
        );
    }

    #[test]
    fn read__impossible_timeslices_are_refused_with_what_works() {
        for (line, said) in [
            ("inputs = 64", "inputs is 64; 1 to 63 work"),
            ("ring = \"1KiB\"", "ring is 1 KiB; 64 KiB to"),
            ("window = \"9-3\"", "2-64"),
            ("policies = [\"token\", \"token\"]", "names something twice"),
            ("queue = \"fast\"", "no queue of this fabric"),
            ("drop-percent = 25", "drop-percent needs drop-from"),
            ("interruption-length = \"1ms\"", "belong together"),
            ("measured = \"0s\"", "measured is 0s"),
            ("contributon = \"1MiB\"", "did you mean `contribution`"),
        ] {
            let sentence = refusal(&format!("{TIMESLICES}{line}\n"));
            assert!(sentence.contains(said), "{line}: {sentence}");
        }
        let lab = "name = \"t\"\n[fabric]\ntopology = { kind = \"star\", hosts = 8, rate = \"100Mb/s\" }\n[timeslice]\n";
        assert!(read(lab).is_ok());
        assert!(
            refusal(&format!("{lab}packet = \"4KiB\"\n"))
                .contains("packet is for a simulated machine")
        );
    }
}
