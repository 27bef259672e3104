//! Shipped fabrics against what is published of their machines: small latencies, and the rate of a
//! pattern without conflicts.
//!
//! # Model
//! What a program sees is the sender's processor, the fabric, and the receiver's processor; what an
//! interface sees is the fabric alone. Published figures of MPI have the library's work in them,
//! which a put of this fabric has not.
//!
//! # Source
//! At each figure. The talk on GPCNeT is Chunduri et al., "GPCNeT: designing a benchmark suite for
//! inducing and measuring contention in HPC networks" (SC19); its "about 1 us" is read as 0.75 to
//! 1.25 us.

use std::fmt::Write as _;

use clearway_sim::Picos;
use clearway_sim::spec::file::{FabricFile, FileOptions};
use clearway_sim::spec::presets;
use clearway_sim::spec::{FabricSpec, LinkRole, Topology};
use clearway_sim::traffic::{self, PostingRule};

use super::rig;

/// Hosts of the small machine that exchanges all with all.
const SMALL: u32 = 32;
/// What each pair exchanges.
const BLOCK: u64 = 64 << 10;

/// From where to where 8 bytes are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    /// Between the programs of two neighbours.
    Programs,
    /// Between the interfaces of two neighbours.
    Interfaces,
    /// Between programs, from one host to each other one in turn, on average.
    Average,
}

/// A published latency of small messages.
pub(crate) struct Published {
    /// The shipped fabric.
    pub(crate) fabric: &'static str,
    pub(crate) span: Span,
    /// At least and at most, in nanoseconds.
    pub(crate) ns: (f64, f64),
    /// The source that says so.
    pub(crate) source: &'static str,
}

/// What is published.
pub(crate) const PUBLISHED: [Published; 6] = [
    Published {
        fabric: "aries",
        span: Span::Programs,
        ns: (750.0, 1_250.0),
        source: "GPCNeT talk: ping-pong on two nodes about 1 us",
    },
    Published {
        fabric: "edr",
        span: Span::Programs,
        ns: (750.0, 1_250.0),
        source: "GPCNeT talk: ping-pong on two nodes about 1 us",
    },
    Published {
        fabric: "aries",
        span: Span::Average,
        ns: (1_000.0, 3_000.0),
        source: "GPCNeT talk: random ring, average 1 to 3 us",
    },
    Published {
        fabric: "edr",
        span: Span::Average,
        ns: (1_000.0, 3_000.0),
        source: "GPCNeT talk: random ring, average 1 to 3 us",
    },
    Published {
        fabric: "qdr",
        span: Span::Programs,
        ns: (1_400.0, 1_900.0),
        source: "Open MPI developers' list, August 2007: ConnectX, 1.4 us (MVAPICH), 1.9 us (Open MPI)",
    },
    Published {
        fabric: "elan3",
        span: Span::Interfaces,
        ns: (1_800.0, 2_200.0),
        source: "LANL page on Quadrics: 2 us, read as within 10 %",
    },
];

/// What the shipped fabric does in nanoseconds where `published` was measured.
fn ours(published: &Published) -> f64 {
    let spec = presets::load(published.fabric, None).expect("a shipped fabric");
    let processors = spec.host.effect_cost + spec.host.input_cost;
    let time = match published.span {
        Span::Programs => rig::alone(&spec, 0, 1, 8) + processors,
        Span::Interfaces => rig::alone(&spec, 0, 1, 8),
        Span::Average => Picos(rig::one_by_one(&spec, 0, 8)) + processors,
    };
    time.0 as f64 / 1e3
}

/// Latencies of one fabric in picoseconds, and how well it exchanges all with all.
pub(crate) struct Machine {
    pub(crate) name: &'static str,
    pub(crate) policy: String,
    /// 8 bytes between the first two hosts, without processors.
    pub(crate) near: Picos,
    /// 8 bytes between the first and the last host.
    pub(crate) far: Picos,
    /// 4 KiB between the first two hosts.
    pub(crate) page: Picos,
    /// Both processors.
    pub(crate) processors: Picos,
    /// Payload of each host in shifted all-to-all on a small machine, as a part of its cable or
    /// memory, whichever is slower.
    pub(crate) exchange: f64,
    /// Messages of it that arrived.
    pub(crate) delivered: f64,
}

/// The same kind of network with about 32 hosts. Dragonflies grow by groups, so a group is made
/// small.
fn small(name: &str, policy: &str) -> FabricSpec {
    let wanted = FileOptions { policy: Some(policy), hosts: Some(SMALL) };
    let mut spec = FabricFile::open(name, wanted).expect("a shipped fabric").spec;
    match &mut spec.topology {
        Topology::DragonflyXc { columns, rows, .. } => (*columns, *rows) = (4, 2),
        Topology::Dragonfly { groups, switches, hosts_per_switch, .. } => {
            (*groups, *switches, *hosts_per_switch) = (2, 2, 8);
        }
        _ => {}
    }
    spec
}

/// Measures the shipped fabric `name` under `policy`.
pub(crate) fn machine(name: &'static str, policy: String) -> Machine {
    let spec = presets::load(name, Some(&policy)).expect("a shipped fabric");
    let last = rig::fabric(&spec, 1).graph().hosts() - 1;
    let small = small(name, &policy);
    let mut fabric = rig::fabric(&small, 1);
    let hosts = u64::from(fabric.graph().hosts());
    let outcome = traffic::shifted_all_to_all(&mut fabric, BLOCK, PostingRule::InTurn);
    let cable = small.links.iter().map(|link| link.rate.0).max().expect("links");
    let host =
        small.link(LinkRole::Host).map_or(cable, |link| small.links[usize::from(link)].rate.0);
    let nominal = host.min(small.host.memory_rate.0) as f64;
    let bits = (hosts - 1) as f64 * BLOCK as f64 * 8.0;
    Machine {
        name,
        near: rig::alone(&spec, 0, 1, 8),
        far: rig::alone(&spec, 0, last, 8),
        page: rig::alone(&spec, 0, 1, 4096),
        processors: spec.host.effect_cost + spec.host.input_cost,
        exchange: bits / outcome.end.as_secs_f64() / nominal,
        delivered: outcome.delivered as f64 / outcome.injected as f64,
        policy,
    }
}

/// All shipped fabrics under all their policies.
pub(crate) fn text() -> String {
    let mut text = format!(
        "{:<22} {:>9} {:>9} {:>9} {:>10} {:>9} {:>9}\n",
        "times in ns", "8 B near", "8 B far", "4 KiB", "processors", "exchange", "delivered"
    );
    let ns = |time: Picos| format!("{:.1}", time.0 as f64 / 1e3);
    for name in presets::names() {
        for policy in presets::policies(name).expect("a shipped fabric") {
            let it = machine(name, policy);
            let _ = writeln!(
                text,
                "{:<22} {:>9} {:>9} {:>9} {:>10} {:>8.1}% {:>8.1}%",
                format!("{} {}", it.name, it.policy),
                ns(it.near),
                ns(it.far),
                ns(it.page),
                ns(it.processors),
                100.0 * it.exchange,
                100.0 * it.delivered,
            );
        }
    }
    let _ = writeln!(text, "\n{:<22} {:>9} {:>15}  source", "8 B, ns", "ours", "published");
    for published in PUBLISHED {
        let name = format!("{} {:?}", published.fabric, published.span).to_lowercase();
        let band = format!("{} to {}", published.ns.0, published.ns.1);
        let _ =
            writeln!(text, "{name:<22} {:>9.1} {band:>15}  {}", ours(&published), published.source);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency__of_small_messages_is_as_published() {
        for published in PUBLISHED {
            let (ours, (low, high)) = (ours(&published), published.ns);
            let Published { fabric, span, source, .. } = published;
            assert!((low..=high).contains(&ours), "{fabric}, {span:?}: {ours} ns ({source})");
        }
    }

    #[test]
    fn exchange__lossless_fabrics_lose_nothing_and_trees_by_target_have_no_conflicts() {
        for name in ["edr", "hdr100", "qdr"] {
            let it = machine(name, "shared".to_owned());
            assert_eq!(it.delivered, 1.0, "{name}");
            assert!(it.exchange > 0.9, "{name}: {}", it.exchange);
        }
    }
}
