//! The table `[staging]` of a scenario.

use clearway_proto::base::{BitsPerSec, Bytes};
use serde::{Deserialize, Serialize};
use toml::de::DeTable;

use crate::scenario::{Fabric, Section, Time, check_queues, distinct, is_given, within};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum StagingTest {
    /// Two processes answer each other, short and long messages.
    Latency,
    /// One process sends windows of long messages.
    Bandwidth,
    /// All processes exchange blocks, short and long.
    Alltoall,
    /// Latency and bandwidth of long messages for all weights of the low table.
    Weights,
    /// The application sends to a staging node, to which all of its clients write.
    Incast,
    /// The messages of NPB's CG.
    Cg,
    /// The messages of AWP-ODC.
    AwpOdc,
    /// All clients write a checkpoint, to the store and to the servers.
    Checkpoint,
    /// The messages of both applications while a checkpoint is drained, and while it is written.
    Overlap,
}

impl StagingTest {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Bandwidth => "bandwidth",
            Self::Alltoall => "alltoall",
            Self::Weights => "weights",
            Self::Incast => "incast",
            Self::Cg => "cg",
            Self::AwpOdc => "awp-odc",
            Self::Checkpoint => "checkpoint",
            Self::Overlap => "overlap",
        }
    }

    /// Returns whether it is the messages of an application.
    const fn is_pattern(self) -> bool {
        matches!(self, Self::Cg | Self::AwpOdc | Self::Overlap)
    }

    /// Returns whether a client serves as the store.
    const fn has_store(self) -> bool {
        matches!(self, Self::Checkpoint | Self::Overlap)
    }
}

/// An application with writers of a staging file system, on several queues.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct StagingSection {
    /// The queues to compare, policies of the fabric file; the first is what there is without
    /// settings.
    pub(super) queues: Vec<String>,
    /// What is measured.
    pub(super) tests: Vec<StagingTest>,
    /// Staging nodes; the others are their clients, each the next ones of its own.
    pub(super) servers: u32,
    /// Processes of the application where more than two take part.
    pub(super) ranks: u32,
    /// Bytes of short messages.
    pub(super) small: Bytes,
    /// Bytes of long messages.
    pub(super) large: Bytes,
    /// Bytes of long blocks that all exchange with all.
    pub(super) block: Bytes,
    /// Long messages in a window of the bandwidth test.
    pub(super) window: u32,
    /// Iterations measured with short messages.
    pub(super) short_iterations: u32,
    /// Iterations measured with long messages.
    pub(super) iterations: u32,
    /// Iterations of an application's pattern that are measured.
    pub(super) pattern_iterations: u32,
    /// Bytes of a writer's request.
    pub(super) request: Bytes,
    /// Requests that a writer keeps under way.
    pub(super) depth: u32,
    /// Writers of a node.
    pub(super) writers: u32,
    /// What a writer takes from an answer to its next request, outside the network.
    pub(super) pause: Time,
    /// Bytes of a client's part of a checkpoint.
    pub(super) checkpoint: Bytes,
    /// What the store takes in all; the test also has half of it, and twice as much.
    pub(super) store_rate: BitsPerSec,
    /// What the log of a server takes.
    pub(super) log_rate: BitsPerSec,
    /// What the log of a server holds.
    pub(super) log: Bytes,
    /// Time before the application begins.
    pub(super) warm_up: Time,
    /// A test that is not over by then is given up.
    pub(super) limit: Time,
}

impl Default for StagingSection {
    fn default() -> Self {
        use StagingTest::*;
        Self {
            queues: Vec::new(),
            tests: vec![Latency, Bandwidth, Alltoall, Weights, Incast, Cg, AwpOdc],
            servers: 1,
            ranks: 64,
            small: Bytes(8),
            large: Bytes(4 << 20),
            block: Bytes(64 << 10),
            window: 64,
            short_iterations: 1000,
            iterations: 10,
            pattern_iterations: 3,
            request: Bytes(128 << 10),
            depth: 1,
            writers: 1,
            pause: Time::micros(95),
            checkpoint: Bytes(64 << 20),
            store_rate: BitsPerSec::mega(2_400),
            log_rate: BitsPerSec::mega(5_760),
            log: Bytes(300_000_000_000),
            warm_up: Time::millis(1),
            limit: Time::millis(60_000),
        }
    }
}

impl StagingSection {
    /// Returns whether the messages of applications fit as many processes: a square and a cube, of a
    /// power of two.
    const fn has_patterns(&self) -> bool {
        self.ranks.is_power_of_two()
            && self.ranks > 1
            && self.ranks.trailing_zeros().is_multiple_of(6)
    }
}

/// The least and the greatest part of a checkpoint: a call, and what a long run gets rid of.
const CHECKPOINT: [Bytes; 2] = [Bytes(1 << 20), Bytes(16 << 30)];
/// The longest message.
const MESSAGE_MAX: Bytes = Bytes(16 << 20);
/// Messages that a process has under way: what an end of the simulated wire takes in one class, less
/// some.
const UNDER_WAY: u32 = 100;

impl Section for StagingSection {
    const NAME: &'static str = "staging";

    fn apply_defaults(&mut self, fabric: &mut Fabric, given: &DeTable<'_>) -> Result<(), String> {
        if !is_given(given, Self::NAME, "queues") {
            self.queues = vec![fabric.usual_queue()?];
        }
        let nodes = fabric.hosts()?;
        if !is_given(given, Self::NAME, "ranks") {
            self.ranks = self.ranks.min(nodes.saturating_sub(self.servers)).max(2);
        }
        if !is_given(given, Self::NAME, "tests") && !self.has_patterns() {
            self.tests.retain(|test| !test.is_pattern());
        }
        Ok(())
    }

    fn check(&self, fabric: &Fabric) -> Result<(), String> {
        check_queues(fabric, &self.queues)?;
        distinct("tests", &self.tests)?;
        let nodes = fabric.hosts()?;
        within("hosts", nodes, 4, 4096)?;
        within("servers", self.servers, 1, nodes / 3)?;
        within("ranks", self.ranks, 2, (nodes - self.servers).min(UNDER_WAY))?;
        if self.tests.iter().any(|test| test.is_pattern()) && !self.has_patterns() {
            return Err("`cg` and `awp-odc` need 64 `ranks`: a square and a cube".to_owned());
        }
        let sizes = [("small", self.small), ("large", self.large), ("block", self.block)];
        for (key, bytes) in sizes.into_iter().chain([("request", self.request)]) {
            within(key, bytes, Bytes(1), MESSAGE_MAX)?;
        }
        within("window", self.window, 1, UNDER_WAY)?;
        within("short-iterations", self.short_iterations, 1, 100_000)?;
        within("iterations", self.iterations, 1, 1000)?;
        within("pattern-iterations", self.pattern_iterations, 1, 1000)?;
        if self.tests.iter().any(|test| test.has_store()) {
            within("servers", self.servers, 1, nodes.saturating_sub(self.ranks + 1))?;
            within("checkpoint", self.checkpoint, CHECKPOINT[0], CHECKPOINT[1])?;
            within("log", self.log, CHECKPOINT[0], Bytes(1 << 50))?;
            let group = u64::from(nodes.div_ceil(self.servers)).saturating_mul(self.checkpoint.0);
            if self.tests.contains(&StagingTest::Overlap) && self.log.0 < group {
                return Err(format!(
                    "log is {}; `overlap` needs room for what the clients of a server write, {}",
                    self.log,
                    Bytes(group)
                ));
            }
            let rates = [("store-rate", self.store_rate), ("log-rate", self.log_rate)];
            for (key, rate) in rates {
                within(key, rate, BitsPerSec::mega(8), BitsPerSec::mega(1_000_000))?;
            }
        }
        within("depth", self.depth, 1, UNDER_WAY)?;
        within("writers times depth", self.writers.saturating_mul(self.depth), 1, UNDER_WAY)?;
        within("pause", self.pause, Time::micros(0), Time::millis(1000))?;
        within("warm-up", self.warm_up, Time::micros(1), Time::millis(1000))?;
        within("limit", self.limit, self.warm_up, Time::millis(600_000))
    }
}
