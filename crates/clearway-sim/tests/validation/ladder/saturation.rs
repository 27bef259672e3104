//! Tree saturation: 96 hosts send to one, and small messages that never go there stand still.
//!
//! # Model
//! 384 hosts, 10 or 100 Gb/s networks of two shapes. A random quarter of the odd places sends
//! without end to one host. Victims are the even places: each sends 64 bytes to a random other
//! victim every 2.5 us on average. Both kinds sit on hosts at random, as on a machine that has run
//! for months, except where *structured* is said: then a place is its host's number. 300 us, of
//! which the first 50 us are not counted. Percentiles are over what was injected.
//!
//! # Source
//! Pfister, Norton, "Hot spot contention and combining in multistage interconnection networks"
//! (IEEE ToC 1985): a saturated tree of buffers grows from a hot spot until it stops everybody. The
//! tests ask for the kind of the effect, not for its size.

use std::fmt::Write as _;
use std::sync::LazyLock;

use clearway_proto::base::{BitsPerSec, Bytes, Class, RandomKey};
use clearway_proto::stats::{Histogram, Quantile, QuantileValue};
use clearway_sim::Picos;
use clearway_sim::fabric::{Notice, NoticeSet, SendRequest, Target};
use clearway_sim::graph::DeviceId;
use clearway_sim::spec::{FabricSpec, LinkRole, Routing, Topology};
use clearway_sim::topology;

use super::rig::{self, gigabits};

const HOSTS: u32 = 384;
/// Senders of the incast.
const HOGS: usize = 96;
/// What no buffer of the run ever holds.
const INFINITE: Bytes = Bytes(4 << 30);

/// What is different from one case to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneSetup {
    /// All on one.
    Shared,
    /// Victims on their own, in turn with the other.
    Apart,
}

/// Where hogs and victims sit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Places {
    /// Anywhere.
    Random,
    /// Victims on even hosts, the rest on odd ones.
    Structured,
}

/// What became of the victims.
#[derive(Clone, Debug)]
pub(crate) struct Victims {
    /// Delivered, of those injected.
    pub(crate) delivered: f64,
    /// The 99th percentile in nanoseconds.
    pub p99: QuantileValue,
}

/// One network with and without the incast.
#[derive(Clone, Debug)]
pub(crate) struct SaturationCase {
    /// For a person.
    pub(crate) name: &'static str,
    /// Nobody else sends.
    pub(crate) quiet: Victims,
    /// With the incast.
    pub(crate) incast: Victims,
}

/// 24 leaves of 16 hosts and 16 spines, 100 Gb/s.
fn tree(routing: Routing) -> FabricSpec {
    let topology =
        Topology::FatTree { children: vec![16, 24], parents: vec![1, 16], cables: vec![1, 1] };
    FabricSpec::plain(topology, routing, gigabits(100))
}

/// One Cray XC group: 6 x 16 routers of 4 hosts; hosts' cables of 10 GB/s, others of 5.25 GB/s.
fn group(routing: Routing) -> FabricSpec {
    let (columns, rows) = (16, 6);
    let topology = Topology::DragonflyXc {
        groups: 1,
        columns,
        rows,
        hosts_per_router: 4,
        black_cables: 3,
        blue_cables: 1,
    };
    let mut spec = FabricSpec::plain(topology, routing, BitsPerSec::mega(42_000));
    for link in spec.links.iter_mut().filter(|link| link.role == LinkRole::Host) {
        link.rate = BitsPerSec::mega(80_000);
    }
    spec
}

fn with(mut spec: FabricSpec, buffer: Bytes, lanes: LaneSetup) -> FabricSpec {
    for link in &mut spec.links {
        link.buffer = buffer;
    }
    if lanes == LaneSetup::Apart {
        spec.classes.virtual_lanes = 2;
        spec.classes.lane_of_level[1] = 1;
        spec.classes.service_level[Class::LowLatency.index()] = 1;
    }
    spec
}

const TREE: Routing = Routing::Adaptive { minimal: 2, detour: 0, bias: 0 };
const UGAL: Routing = Routing::Adaptive { minimal: 2, detour: 2, bias: 8192 };
const BUFFER: Bytes = Bytes(32 << 10);

/// All cases, run once for all who ask.
pub(crate) fn cases() -> &'static [SaturationCase] {
    static CASES: LazyLock<Vec<SaturationCase>> = LazyLock::new(run_all);
    &CASES
}

fn run_all() -> Vec<SaturationCase> {
    use {LaneSetup::*, Places::*};
    let case = |name, spec, buffer, lanes, places| {
        let spec = with(spec, buffer, lanes);
        SaturationCase { name, quiet: run(&spec, places, 0), incast: run(&spec, places, HOGS) }
    };
    vec![
        case("tree, adaptive", tree(TREE), BUFFER, Shared, Random),
        case("tree, adaptive, no end of buffers", tree(TREE), INFINITE, Shared, Random),
        case("tree, adaptive, lane for victims", tree(TREE), BUFFER, Apart, Random),
        case(
            "tree, by target, structured",
            tree(Routing::DestinationModulo),
            BUFFER,
            Shared,
            Structured,
        ),
        case(
            "tree, by target, random places",
            tree(Routing::DestinationModulo),
            BUFFER,
            Shared,
            Random,
        ),
        case("group, minimal", group(Routing::Minimal), BUFFER, Shared, Random),
        case(
            "group, minimal, no end of buffers",
            group(Routing::Minimal),
            INFINITE,
            Shared,
            Random,
        ),
        case("group, UGAL", group(UGAL), BUFFER, Shared, Random),
        case("group, UGAL, no end of buffers", group(UGAL), INFINITE, Shared, Random),
        case("group, UGAL, lane for victims", group(UGAL), BUFFER, Apart, Random),
    ]
}

/// When messages begin to count, when the last one that counts is posted, and when the run ends.
const COUNTED: core::ops::Range<u64> = 50_000_000..290_000_000;
const END: Picos = Picos::from_micros(300);

/// Returns the seats of the victims, and of the others.
fn seats(places: Places) -> (Vec<u32>, Vec<u32>) {
    let hosts: Vec<u32> = match places {
        Places::Random => {
            topology::node_map(HOSTS, HOSTS, RandomKey::new(11)).iter().map(|host| host.0).collect()
        }
        Places::Structured => (0..HOSTS).collect(),
    };
    let side = |first: usize| hosts.iter().skip(first).step_by(2).copied().collect();
    (side(0), side(1))
}

/// Posts of the victims in the order of time: when, from, to.
fn schedule(victims: &[u32]) -> Vec<(u64, u32, u32)> {
    let key = RandomKey::new(7).purpose("victims");
    let count = victims.len() as u64;
    let mut posts = Vec::new();
    for (place, from) in (0..count).zip(victims) {
        let mut stream = key.node(place).stream();
        let mut at = stream.below(2_500_000);
        while at < COUNTED.end {
            let to = (place + 1 + stream.below(count - 1)) % count;
            posts.push((at, *from, victims[to as usize]));
            at += 1_250_000 + stream.below(2_500_000);
        }
    }
    posts.sort_unstable();
    posts
}

fn run(spec: &FabricSpec, places: Places, hogs: usize) -> Victims {
    let (victims, others) = seats(places);
    let mut fabric = rig::fabric(spec, 1);
    let order = |from, to, class, bytes, tag| {
        let (from, to) = (DeviceId(from), Target::Host(DeviceId(to)));
        SendRequest { from, to, class, bytes, rail: 0, reports: NoticeSet::Delivery, tag }
    };
    for hog in &others[1..=hogs] {
        fabric.post(Picos::ZERO, order(*hog, others[0], Class::Bulk, 1 << 30, u64::MAX));
    }
    let posts = schedule(&victims);
    for (tag, (at, from, to)) in posts.iter().enumerate() {
        fabric.post(Picos(*at), order(*from, *to, Class::LowLatency, 64, tag as u64));
    }
    let counted: u64 = posts.iter().map(|(at, ..)| u64::from(*at >= COUNTED.start)).sum();
    let mut latency = Histogram::new();
    let mut notices = Vec::new();
    while fabric.advance(END, &mut notices) < END {
        for notice in notices.drain(..) {
            let Notice::Delivered { tag, at, .. } = notice else { continue };
            if let Some((posted, ..)) = posts.get(tag as usize)
                && *posted >= COUNTED.start
            {
                latency.record((at.0 - posted) / 1_000);
            }
        }
    }
    let delivered = latency.count();
    latency.record_infinite(counted - delivered);
    Victims { delivered: delivered as f64 / counted as f64, p99: latency.quantile(Quantile::P99) }
}

/// The table of all cases.
pub(crate) fn text() -> String {
    let mut text =
        format!("{:<36} {:>12} {:>10} {:>12}\n", "96 to 1", "p99 quiet ns", "delivered", "p99 ns");
    for SaturationCase { name, quiet, incast } in cases() {
        let delivered = 100.0 * incast.delivered;
        let _ = writeln!(
            text,
            "{name:<36} {:>12} {delivered:>9.1}% {:>12}",
            shown(quiet.p99),
            shown(incast.p99)
        );
    }
    text
}

fn shown(reading: QuantileValue) -> String {
    match reading {
        QuantileValue::Finite(ns) => ns.to_string(),
        QuantileValue::Infinite => "never".to_owned(),
        QuantileValue::Empty => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(reading: QuantileValue) -> f64 {
        match reading {
            QuantileValue::Finite(ns) => ns as f64,
            _ => f64::INFINITY,
        }
    }

    #[test]
    fn incast__a_tree_of_full_buffers_stops_those_who_never_go_there() {
        let cases = cases();
        let of = |name: &str| cases.iter().find(|case| case.name == name).expect("a case");
        let slower = |case: &SaturationCase| nanos(case.incast.p99) / nanos(case.quiet.p99);
        assert!(cases.iter().all(|case| case.quiet.delivered == 1.0));
        // Adaptive ways spread the hot spot over all spines: most victims stand still. Buffers
        // without end let pass all but those who go to the leaf of the hot spot (one of 24).
        assert!(of("tree, adaptive").incast.delivered < 0.7);
        assert!(of("tree, adaptive, no end of buffers").incast.delivered > 0.95);
        // A lane of one's own is enough; it need not go first.
        assert!(slower(of("tree, adaptive, lane for victims")) < 1.1);
        assert!(slower(of("group, UGAL, lane for victims")) < 2.0);
        assert_eq!(of("group, UGAL, lane for victims").incast.delivered, 1.0);
        // Ways by the target's number with places in order never meet: the same network looks
        // harmless.
        let structured = of("tree, by target, structured");
        assert_eq!(structured.incast.p99, structured.quiet.p99);
        assert!(of("tree, by target, random places").incast.delivered < 0.99);
        // In the group detours spread the harm.
        let (minimal, detours) = (of("group, minimal"), of("group, UGAL"));
        assert!(slower(minimal) > 10.0 && minimal.incast.delivered > 0.95);
        assert!(slower(detours) > 10.0 && detours.incast.delivered < 0.9);
        assert!(of("group, minimal, no end of buffers").incast.delivered > 0.99);
        assert!(of("group, UGAL, no end of buffers").incast.delivered > 0.99);
    }
}
