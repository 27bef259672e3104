//! How long a message takes on an empty network: virtual cut-through and store-and-forward, equal
//! and unequal rates.
//!
//! # Model
//! A message of `m` equal packets, each `L` bytes with its header, over cables with paces `p_i`
//! (time per byte); `D` is the sum of all cables, switches and interfaces.
//! ```text
//!    cut-through         D + L (p_1 + sum(max(0, p_i - p_(i-1)))) + (m - 1) L max(p_i)
//!    store-and-forward   D + L sum(p_i)                           + (m - 1) L max(p_i)
//! ```
//! A switch that would send faster than it receives starts late enough not to run dry, and what it
//! has sent fast takes its whole time again on a slower cable. With equal rates the first line is
//! `D + m L p`.
//!
//! # Source
//! Kermani, Kleinrock, "Virtual cut-through" (Computer Networks 1979), with the slowest cable as
//! the one that all packets wait for.

use clearway_proto::base::{BitsPerSec, Bytes};
use clearway_sim::Picos;
use clearway_sim::spec::{FabricSpec, Switching};

use super::rig::{self, CheckedFigure, gigabits};

const PAYLOAD: u64 = 4096;
const HEADER: u64 = 64;

/// Rates of six cables; shorter chains have the first of them.
const RATES: [(&str, [u64; 6]); 5] = [
    ("equal rates", [100; 6]),
    ("slower and slower", [400, 200, 100, 50, 25, 10]),
    ("faster and faster", [10, 25, 50, 100, 200, 400]),
    ("slow in the middle", [100, 100, 25, 100, 100, 100]),
    ("fast in the middle", [40, 200, 400, 200, 100, 40]),
];

fn formula(spec: &FabricSpec, rates: &[BitsPerSec], bytes: u64) -> f64 {
    let packets = bytes.div_ceil(PAYLOAD) as f64;
    let length = (bytes.min(PAYLOAD) + HEADER) as f64;
    let cables: f64 = spec.links.iter().map(|link| link.delay.0 as f64).sum();
    let switches = (rates.len() - 1) as f64 * spec.switch.delay.0 as f64;
    let fixed = cables + switches + (spec.host.transmit_delay.0 + spec.host.receive_delay.0) as f64;
    let paces: Vec<f64> = rates.iter().map(|rate| rig::pace(*rate)).collect();
    let slowest = paces.iter().copied().fold(0.0, f64::max);
    let first = match spec.switch.switching {
        Switching::CutThrough => {
            paces[0] + paces.windows(2).map(|pair| f64::max(0.0, pair[1] - pair[0])).sum::<f64>()
        }
        Switching::StoreAndForward => paces.iter().sum(),
        // Not part of this rung: a packet is through at once.
        Switching::TokenBucket => 0.0,
    };
    fixed + length * first + (packets - 1.0) * length * slowest
}

/// Messages of 8 bytes to 1 MiB over one to five switches.
pub(crate) fn figures(switching: Switching) -> Vec<CheckedFigure> {
    let mut figures = Vec::new();
    for (name, rates) in RATES {
        for cables in 2..=6 {
            let rates: Vec<BitsPerSec> =
                rates[..cables].iter().map(|rate| gigabits(*rate)).collect();
            let mut spec = rig::chain(&rates).spec();
            spec.packet.payload = Bytes(PAYLOAD);
            spec.packet.header = Bytes(HEADER);
            spec.switch.switching = switching;
            spec.host.transmit_delay = Picos::from_nanos(400);
            spec.host.receive_delay = Picos::from_nanos(250);
            for bytes in (3..=20).map(|power| 1u64 << power) {
                figures.push(CheckedFigure {
                    what: format!("{bytes} B over {} switches, {name}", cables - 1),
                    expected: formula(&spec, &rates, bytes),
                    measured: rig::alone(&spec, 0, 1, bytes).0 as f64,
                });
            }
        }
    }
    figures
}

/// Hosts whose memory is slower than their cable: `D + m L q`, where `q` is the pace of memory:
/// placing begins with a packet's first byte.
pub(crate) fn slow_hosts() -> Vec<CheckedFigure> {
    let (cable, memory) = (gigabits(100), gigabits(30));
    let mut spec = rig::chain(&[cable, cable]).spec();
    spec.host.memory_rate = memory;
    let fixed = 10_000.0 + spec.switch.delay.0 as f64;
    let messages = (12..=20).map(|power| 1u64 << power);
    let figure = |bytes: u64| CheckedFigure {
        what: format!("{bytes} B between hosts with slow memory"),
        expected: fixed + bytes as f64 * rig::pace(memory),
        measured: rig::alone(&spec, 0, 1, bytes).0 as f64,
    };
    messages.map(figure).collect()
}
