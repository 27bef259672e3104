//! Decides where the application and the writers of each test run.
//!
//! # Model
//! Nodes are numbered as the scenario places them. The last of every `nodes / servers` nodes is a
//! staging node, and those before it are its clients. Applications lie on the first clients, one
//! process on a node; their nodes write, too. In the incast the application's second process is on the
//! first staging node, and all clients of that node write; once as hosts are, and once with memory of
//! twice the cable's rate, so that the port of the switch is the narrow place and not the host.
//!
//! The last client is the store of checkpoints, and all other clients write them. At each rate of the
//! store they write once to the store and once to their servers, and at the rate of the scenario also
//! to servers whose logs hold a quarter of it.

use clearway_proto::base::{BitsPerSec, Bytes, Rank};
use clearway_sim::spec::{Arbiter, FabricSpec};

use super::pattern::ApplicationPattern;
use super::section::{StagingSection, StagingTest};
use super::simulated::NoiseKind;
use super::{PROCESSES, engine};

/// What the time of an iteration means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IterationMeaning {
    /// There and back.
    RoundTrip,
    /// These bytes one way.
    Window(u64),
    /// All of it.
    Whole,
}

/// One measurement: quiet, and with writers.
#[derive(Clone, Debug)]
pub(super) struct StagingCase {
    pub(super) test: StagingTest,
    /// The size, or the weights; empty where there is but one.
    pub(super) what: String,
    pub(super) pattern: ApplicationPattern,
    pub(super) meaning: IterationMeaning,
    /// Iterations before any is measured, and those that are.
    pub(super) iterations: [u32; 2],
    /// Nodes whose writers write.
    pub(super) writing: Vec<u32>,
    /// Other service levels of the application and of what is written than the policy's.
    pub(super) levels: Option<[u8; 2]>,
    /// What hosts fetch and place at.
    pub(super) host: HostPace,
    /// Under what it is measured.
    pub(super) noises: Vec<NoiseKind>,
    /// The store and the logs, where there are some.
    pub(super) storage: Option<StorageRates>,
}

/// The store of a case, and the logs of its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StorageRates {
    pub(super) store: BitsPerSec,
    pub(super) log: BitsPerSec,
    /// Bytes that a log holds.
    pub(super) room: Bytes,
}

/// What hosts fetch and place at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostPace {
    /// What the fabric file says.
    Own,
    /// Twice the rate of their cables.
    AboveCable,
}

/// Where processes are.
#[derive(Clone, Debug)]
pub(super) struct StagingPlaces {
    nodes: u32,
    servers: u32,
}

impl StagingPlaces {
    pub(super) fn new(test: &StagingSection, nodes: u32) -> Self {
        Self { nodes, servers: test.servers.clamp(1, nodes.max(1)) }
    }

    fn group(&self) -> u32 {
        (self.nodes / self.servers).max(2)
    }

    /// Returns the staging node of `node`.
    pub(super) fn server(&self, node: u32) -> u32 {
        let group = (node / self.group()).min(self.servers - 1);
        (group + 1) * self.group() - 1
    }

    /// Returns the staging nodes.
    pub(super) fn servers(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.nodes).filter(|node| !self.is_client(*node))
    }

    /// Returns the node that is the store of checkpoints.
    pub(super) fn store(&self) -> u32 {
        self.clients().last().unwrap_or(0)
    }

    fn is_client(&self, node: u32) -> bool {
        self.server(node) != node
    }

    fn clients(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.nodes).filter(|node| self.is_client(*node))
    }

    /// Returns the process of an application on `node`.
    pub(super) fn application(node: u32) -> Rank {
        Rank(node * u32::from(PROCESSES))
    }

    /// Returns the writer or server on `node`.
    pub(super) fn staging(node: u32) -> Rank {
        Rank(node * u32::from(PROCESSES) + 1)
    }
}

/// Returns the cases of `test` on the machine of `spec` with `nodes` nodes.
pub(super) fn cases(test: &StagingSection, spec: &FabricSpec, nodes: u32) -> Vec<StagingCase> {
    let places = StagingPlaces::new(test, nodes);
    let clients: Vec<u32> = places.clients().take(test.ranks as usize).collect();
    let of_kind = |kind: &StagingTest| {
        CaseMaker { kind: *kind, test, places: &places, clients: &clients }.cases(spec)
    };
    test.tests.iter().flat_map(of_kind).collect()
}

/// Makes the cases of one test.
struct CaseMaker<'a> {
    kind: StagingTest,
    test: &'a StagingSection,
    places: &'a StagingPlaces,
    /// Nodes on which an application lies.
    clients: &'a [u32],
}

impl CaseMaker<'_> {
    fn cases(&self, spec: &FabricSpec) -> Vec<StagingCase> {
        let StagingSection { small, block, iterations, pattern_iterations, .. } = *self.test;
        let ranks: Vec<Rank> =
            self.clients.iter().copied().map(StagingPlaces::application).collect();
        let (two, patterns) = (&self.clients[..2], [1, pattern_iterations]);
        match self.kind {
            StagingTest::Latency => self.trips([two[0], two[1]], two).into(),
            StagingTest::Bandwidth => vec![self.window(two)],
            StagingTest::Alltoall => {
                let scattered = ApplicationPattern::scattered(&ranks, small.0 as u32);
                let turns = ApplicationPattern::turns(&ranks, block.0 as u32);
                vec![
                    self.whole(small.to_string(), scattered, [1, iterations]),
                    self.whole(block.to_string(), turns, patterns),
                ]
            }
            StagingTest::Incast => self.incast(two[0]),
            StagingTest::Weights => {
                let [_, trip] = self.trips([two[0], two[1]], two);
                swept(spec, &[trip, self.window(two)])
            }
            StagingTest::Cg => {
                vec![self.whole(String::new(), ApplicationPattern::cg(&ranks), patterns)]
            }
            StagingTest::AwpOdc => {
                vec![self.whole(String::new(), ApplicationPattern::awp_odc(&ranks), patterns)]
            }
            StagingTest::Checkpoint => self.checkpoints(),
            StagingTest::Overlap => [
                ("cg", ApplicationPattern::cg(&ranks)),
                ("awp-odc", ApplicationPattern::awp_odc(&ranks)),
            ]
            .map(|(what, pattern)| self.overlap(self.whole(what.to_owned(), pattern, patterns)))
            .into(),
        }
    }

    /// Returns short and long messages there and back between two nodes.
    fn trips(&self, pair: [u32; 2], writing: &[u32]) -> [StagingCase; 2] {
        let pair = pair.map(StagingPlaces::application);
        let StagingSection { small, large, short_iterations, iterations, .. } = *self.test;
        [(small, [10, short_iterations]), (large, [1, iterations])].map(|(bytes, iterations)| {
            StagingCase {
                test: self.kind,
                what: bytes.to_string(),
                pattern: ApplicationPattern::round_trip(pair, bytes.0 as u32),
                meaning: IterationMeaning::RoundTrip,
                iterations,
                writing: writing.to_vec(),
                levels: None,
                host: HostPace::Own,
                noises: NoiseKind::QUIET_AND_WRITERS.to_vec(),
                storage: None,
            }
        })
    }

    /// Returns windows of long messages between two nodes.
    fn window(&self, two: &[u32]) -> StagingCase {
        let pair = [two[0], two[1]].map(StagingPlaces::application);
        let StagingSection { large, window, pattern_iterations, .. } = *self.test;
        StagingCase {
            test: self.kind,
            what: large.to_string(),
            pattern: ApplicationPattern::window(pair, large.0 as u32, window),
            meaning: IterationMeaning::Window(u64::from(window) * large.0),
            iterations: [1, pattern_iterations],
            writing: two.to_vec(),
            levels: None,
            host: HostPace::Own,
            noises: NoiseKind::QUIET_AND_WRITERS.to_vec(),
            storage: None,
        }
    }

    /// Returns a pattern of all processes of the application, with writers on all its nodes.
    fn whole(
        &self,
        what: String,
        pattern: ApplicationPattern,
        iterations: [u32; 2],
    ) -> StagingCase {
        StagingCase {
            test: self.kind,
            what,
            pattern,
            meaning: IterationMeaning::Whole,
            iterations,
            writing: self.clients.to_vec(),
            levels: None,
            host: HostPace::Own,
            noises: NoiseKind::QUIET_AND_WRITERS.to_vec(),
            storage: None,
        }
    }

    /// Returns `case` while a checkpoint is drained, and while it is written and drained.
    fn overlap(&self, case: StagingCase) -> StagingCase {
        StagingCase {
            writing: self.writers_of_checkpoints(),
            noises: vec![NoiseKind::Quiet, NoiseKind::Drain, NoiseKind::Mounts],
            storage: Some(self.storage(100)),
            ..case
        }
    }

    /// Returns checkpoints at each rate of the store.
    fn checkpoints(&self) -> Vec<StagingCase> {
        let idle = ApplicationPattern { processes: Vec::new() };
        let writing = self.writers_of_checkpoints();
        let case = |what: String, storage, noises: &[NoiseKind]| StagingCase {
            writing: writing.clone(),
            noises: noises.to_vec(),
            storage: Some(storage),
            ..self.whole(what, idle.clone(), [0, 0])
        };
        let mut cases: Vec<StagingCase> = [50, 100, 200]
            .map(|percent| self.storage(percent))
            .map(|rates| case(stored_at(rates), rates, &[NoiseKind::Direct, NoiseKind::Staged]))
            .into();
        let rates = self.storage(100);
        let clients = writing.len() as u64 / u64::from(self.places.servers);
        let room = Bytes((clients * self.test.checkpoint.0 / 4).max(1 << 20)).min(rates.room);
        let what = format!("{}, small log", stored_at(rates));
        cases.push(case(what, StorageRates { room, ..rates }, &[NoiseKind::Staged]));
        cases
    }

    /// Returns the nodes that write checkpoints.
    fn writers_of_checkpoints(&self) -> Vec<u32> {
        let store = self.places.store();
        self.places.clients().filter(|node| *node != store).collect()
    }

    /// Returns the storage with this part of the store's rate.
    fn storage(&self, percent: u32) -> StorageRates {
        let StagingSection { store_rate, log_rate, log, .. } = *self.test;
        StorageRates { store: store_rate.percent(percent), log: log_rate, room: log }
    }

    /// Returns messages between `node` and its staging node, to which all clients of that write.
    fn incast(&self, node: u32) -> Vec<StagingCase> {
        let server = self.places.server(node);
        let clients: Vec<u32> =
            self.places.clients().filter(|node| self.places.server(*node) == server).collect();
        let own = self.trips([node, server], &clients);
        let above = own.clone().map(|case| {
            let what = format!("{} fast hosts", case.what);
            StagingCase { what, host: HostPace::AboveCable, ..case }
        });
        own.into_iter().chain(above).collect()
    }
}

/// Returns what a checkpoint with this store is called.
fn stored_at(rates: StorageRates) -> String {
    format!("{} MB/s", rates.store.0 as f64 / 8e6)
}

/// Returns `cases` for each lane of the low table: with the writers on it and the application on its
/// own lane, then with the application on it and the writers on the first lane. Returns nothing where
/// adapters have no tables of such lanes.
fn swept(spec: &FabricSpec, cases: &[StagingCase]) -> Vec<StagingCase> {
    let Arbiter::Tables(tables) = &spec.arbitration.host else { return Vec::new() };
    let map = &spec.classes;
    let own = map.service_level[engine::APPLICATION.index()];
    let level = |lane: u8| (0..16).find(|level| map.lane_of_level[usize::from(*level)] == lane);
    let low: Vec<(u8, u8)> = tables
        .low
        .iter()
        .filter(|(_, weight)| *weight > 0)
        .filter_map(|(lane, weight)| Some((level(*lane)?, *weight)))
        .collect();
    let Some((first, least)) = low.first().copied().filter(|_| low.len() > 2) else {
        return Vec::new();
    };
    let on_own_lane = low.iter().map(|(level, weight)| ([own, *level], format!("high:{weight}")));
    let in_table = low.iter().map(|(level, weight)| ([*level, first], format!("{weight}:{least}")));
    let levels: Vec<([u8; 2], String)> = on_own_lane.chain(in_table).collect();
    let with = |case: &StagingCase, (levels, weights): &([u8; 2], String)| {
        let kind = match case.meaning {
            IterationMeaning::Window(_) => "bandwidth",
            _ => "latency",
        };
        let what = format!("{kind} {weights}");
        // Weights are of two that send.
        let noises = vec![NoiseKind::Writers];
        StagingCase { what, levels: Some(*levels), noises, ..case.clone() }
    };
    cases.iter().flat_map(|case| levels.iter().map(move |levels| with(case, levels))).collect()
}

#[cfg(test)]
mod tests {
    use clearway_sim::spec::presets;

    use super::*;

    #[test]
    fn server__clients_are_the_nodes_before_it() {
        let places = StagingPlaces { nodes: 160, servers: 8 };
        assert_eq!([0, 18, 19, 20, 159].map(|node| places.server(node)), [19, 19, 19, 39, 159]);
        assert_eq!(places.clients().count(), 152);
        let uneven = StagingPlaces { nodes: 11, servers: 3 };
        assert_eq!([0, 2, 8, 9, 10].map(|node| uneven.server(node)), [2, 2, 8, 8, 8]);
        assert_eq!(uneven.clients().count(), 8);
    }

    #[test]
    fn cases__weights_are_swept_where_adapters_have_tables_of_many_lanes() {
        let test =
            StagingSection { tests: vec![StagingTest::Weights], ..StagingSection::default() };
        let spec = |policy| presets::load("qdr", Some(policy)).expect("a shipped fabric");
        assert!(cases(&test, &spec("shared"), 160).is_empty());
        assert!(cases(&test, &spec("lanes"), 160).is_empty());
        let swept = cases(&test, &spec("ca-only"), 160);
        let names: Vec<&str> = swept.iter().map(|case| case.what.as_str()).collect();
        assert_eq!(names.len(), 28);
        assert_eq!(names[..2], ["latency high:2", "latency high:4"]);
        assert_eq!(names[27], "bandwidth 128:2");
        assert_eq!(swept[27].levels, Some([7, 1]));
    }
}
