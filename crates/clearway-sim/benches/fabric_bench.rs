//! Runs one pattern on one fabric and says what it cost: packets, events, processor time, the most
//! memory.
//!
//! `fabric_bench tree 64|384 BYTES in-turn|at-once packets|trains` (shifted all-to-all, every
//! packet on a way of its own), `fabric_bench xc 1|26 LOAD_PERCENT minimal|adaptive` (groups of 384
//! hosts, messages of one packet to anyone). The result is one line of `name value` pairs. `cargo
//! xtask bench fabric` runs the cases on this and other simulators.

use std::error::Error;

use clearway_proto::base::{BitsPerSec, Class, RandomKey};
use clearway_sim::Picos;
use clearway_sim::fabric::{EventSet, Fabric, FabricOptions, Trains};
use clearway_sim::spec::{FabricSpec, LinkRole, Routing, Service, Topology};
use clearway_sim::topology;
use clearway_sim::traffic::{self, Arrivals, PostingRule, Timed, TrafficOutcome, TrafficSource};
use rustix::time::{ClockId, clock_gettime};

/// The seed of everything; another one changes no figure by more than noise.
const SEED: u64 = 1;
/// A run is repeated until it took so long, so that the clock's grain and a cold start do not show.
const LEAST_NS: u64 = 300_000_000;
/// What a host of a Cray XC offers at full load: 10 GB/s, WP-Aries01-1112.
const XC_HOST: BitsPerSec = BitsPerSec::mega(80_000);
/// Bytes of a message on the Cray XC: one packet.
const XC_BYTES: u64 = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["tree", hosts, bytes, posting, unit] => tree(hosts, bytes.parse()?, posting, unit),
        ["xc", groups, load, routing] => cray(groups.parse()?, load.parse()?, routing),
        _ => {
            Err("usage: fabric_bench tree HOSTS BYTES POSTING UNIT | xc GROUPS LOAD ROUTING".into())
        }
    }
}

fn tree(hosts: &str, bytes: u64, posting: &str, unit: &str) -> Result<(), Box<dyn Error>> {
    let (leaf, leaves) = match hosts {
        "64" => (8, 8),
        "384" => (16, 24),
        other => return Err(format!("no tree of {other} hosts").into()),
    };
    let posting = match posting {
        "in-turn" => PostingRule::InTurn,
        "at-once" => PostingRule::AtOnce,
        other => return Err(format!("no posting {other}").into()),
    };
    let trains = match unit {
        "packets" => Trains::Off,
        "trains" => Trains::On,
        other => return Err(format!("no unit {other}").into()),
    };
    // Full bisection: as many spines as a leaf has hosts.
    let shape = Topology::FatTree {
        children: vec![leaf, leaves],
        parents: vec![1, leaf],
        cables: vec![1, 1],
    };
    let mut spec = FabricSpec::plain(shape, Routing::DestinationModulo, BitsPerSec::mega(100_000));
    if posting == PostingRule::AtOnce {
        spec.host.service = Service::InOrder;
    }
    measure(&spec, FabricOptions { trains, ..FabricOptions::default() }, |fabric| {
        traffic::shifted_all_to_all(fabric, bytes, posting)
    })
}

fn cray(groups: u32, load_percent: u64, routing: &str) -> Result<(), Box<dyn Error>> {
    let routing = match routing {
        "minimal" => Routing::Minimal,
        "adaptive" => Routing::Adaptive { minimal: 2, detour: 2, bias: 8192 },
        other => return Err(format!("no routing {other}").into()),
    };
    let spec = cray_spec(groups, routing);
    // As many packets in either size: 200 us of one group, 20 us of 26.
    let until = Picos::from_micros(if groups == 1 { 200 } else { 20 });
    let serial_ps = XC_BYTES * 8_000_000 / (XC_HOST.0 / 1_000_000);
    let source = |from| TrafficSource {
        from,
        to: None,
        class: Class::Bulk,
        bytes: XC_BYTES,
        interval: Picos(serial_ps * 100 / load_percent.max(1)),
        arrivals: Arrivals::Poisson,
        timed: Timed::From(Picos::ZERO),
    };
    let sources: Vec<TrafficSource> = (0..groups * 384).map(source).collect();
    measure(&spec, FabricOptions { trains: Trains::Off, ..FabricOptions::default() }, |fabric| {
        traffic::open(fabric, &sources, until, Picos::from_micros(2_000), RandomKey::new(SEED))
    })
}

/// Groups of a Cray XC: 96 routers of 4 hosts each. Rates and cables as in `fabrics/aries.toml`,
/// buffers ample.
fn cray_spec(groups: u32, routing: Routing) -> FabricSpec {
    let shape = Topology::DragonflyXc {
        groups,
        columns: 16,
        rows: 6,
        hosts_per_router: 4,
        black_cables: 3,
        blue_cables: 36,
    };
    let mut spec = FabricSpec::plain(shape, routing, BitsPerSec::mega(42_000));
    for link in &mut spec.links {
        match link.role {
            LinkRole::Host => link.rate = XC_HOST,
            LinkRole::Black => link.delay = Picos::from_nanos(15),
            LinkRole::Blue => {
                (link.rate, link.delay) = (BitsPerSec::mega(37_500), Picos::from_nanos(75))
            }
            _ => {}
        }
    }
    spec
}

/// Processor time of this process in ns.
fn processor_ns() -> u64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}

/// The most memory this process ever had, in KiB.
fn memory_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches("kB").trim_end().parse().ok()
}

/// Runs `pattern` on fresh fabrics of `spec` until the figures are steady, and prints them for one
/// run.
fn measure(
    spec: &FabricSpec,
    options: FabricOptions,
    mut pattern: impl FnMut(&mut Fabric) -> TrafficOutcome,
) -> Result<(), Box<dyn Error>> {
    debug_assert_eq!(options.events, EventSet::Lazy, "as users run it");
    let (mut building, mut running, mut runs) = (0, 0, 0);
    loop {
        let begin = processor_ns();
        let mut fabric = Fabric::new(spec, topology::build(spec)?, SEED, options);
        let built = processor_ns();
        let outcome = pattern(&mut fabric);
        building += built - begin;
        running += processor_ns() - built;
        runs += 1;
        if running < LEAST_NS {
            continue;
        }
        fabric.settle();
        let totals = fabric.totals();
        let kib = memory_kib().ok_or("no VmHWM in /proc/self/status")?;
        println!(
            "packets {} events {} cpu_ns {} build_ns {} runs {runs} memory_kib {kib} injected {} delivered {} end_ps {} digest {:032x}",
            totals.packets,
            totals.events,
            running / runs,
            building / runs,
            outcome.injected,
            outcome.delivered,
            outcome.end.0,
            fabric.digest(),
        );
        return Ok(());
    }
}
