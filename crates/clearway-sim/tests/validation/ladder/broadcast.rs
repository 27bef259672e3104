//! Quadrics' hardware broadcast: 64 bytes to eight nodes.
//!
//! # Model
//! Fabric `elan3`. A broadcast goes up to the switch that has all receivers below it and down to
//! all of them, all branches at once. What a program sees is the sender's processor, the fabric
//! until the last receiver has it, and that receiver's processor.
//!
//! # Source
//! Yu, Sur, Panda, Aulwes, Graham, "High performance broadcast support in LA-MPI over Quadrics"
//! (slides): raw hardware broadcast 3.3 us. Which size and how many nodes is not said at that
//! figure; 64 bytes and 8 nodes are taken.

use std::fmt::Write as _;

use clearway_proto::base::Class;
use clearway_sim::Picos;
use clearway_sim::fabric::{Notice, NoticeSet, SendRequest, Target};
use clearway_sim::graph::DeviceId;
use clearway_sim::spec::presets;

use super::rig;

/// Published, in nanoseconds.
const PUBLISHED_NS: f64 = 3_300.0;

/// From the program that sends `bytes` to the last of `nodes` programs that has them, in
/// nanoseconds; how many had them.
pub(crate) fn latency(bytes: u64, nodes: u32) -> (f64, usize) {
    let spec = presets::load("elan3", None).expect("a shipped fabric");
    let mut fabric = rig::fabric(&spec, 1);
    let to = Target::Range(DeviceId(0), DeviceId(nodes - 1));
    let (from, class, rail) = (DeviceId(0), Class::Bulk, 0);
    let posted = Picos::from_micros(100);
    fabric.post(
        posted,
        SendRequest { from, to, class, bytes, rail, reports: NoticeSet::Delivery, tag: 0 },
    );
    let mut notices = Vec::new();
    while fabric.next().is_some() {
        fabric.advance(Picos::NEVER, &mut notices);
    }
    let arrived = notices.iter().filter_map(|notice| match notice {
        Notice::Delivered { at, .. } => Some(*at),
        _ => None,
    });
    let (last, count) =
        arrived.fold((Picos::ZERO, 0), |(last, count), at| (last.max(at), count + 1));
    let processors = spec.host.effect_cost + spec.host.input_cost;
    ((last - posted + processors).0 as f64 / 1e3, count)
}

/// Sizes and numbers of nodes.
pub(crate) fn text() -> String {
    let mut text = format!("{:<28} {:>10} {:>10}\n", "broadcast", "ns", "receivers");
    for (bytes, nodes) in [(8, 8), (64, 2), (64, 4), (64, 8), (64, 16), (320, 8), (4096, 8)] {
        let (ns, count) = latency(bytes, nodes);
        let _ = writeln!(
            text,
            "{:<28} {ns:>10.1} {count:>10}",
            format!("{bytes} B among {nodes} nodes")
        );
    }
    let _ = writeln!(text, "\npublished, raw broadcast     {PUBLISHED_NS:>10.1}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcast__takes_as_long_as_published() {
        let (ns, receivers) = latency(64, 8);
        assert_eq!(receivers, 7);
        assert!((ns / PUBLISHED_NS - 1.0).abs() <= 0.1, "{ns}");
    }
}
