//! Uniform load on one switch: one queue for each input saturates at 2 - sqrt(2) of the ports, a
//! queue for each output at nearly all.
//!
//! # Model
//! Every host of a star always has packets of one length to send, each to another host drawn at
//! random, and its interface serves them in order: every input of the switch is full. What all
//! outputs carry in a window, over what they could, is the figure.
//!
//! An input with one queue offers one packet at a time. With many ports the first packets that want
//! one output are an M/D/1 system; there is one of them for each port, so `rho + rho^2 / (2 (1 -
//! rho)) = 1`, hence `rho = 2 - sqrt(2)`. With `n` ports it is more by a term in `1 / n`.
//!
//! # Source
//! Karol, Hluchyj, Morgan, "Input versus output queueing on a space-division packet switch" (IEEE
//! ToC 1987): table I, 0.6184 with 8 ports, 0.5858 with infinitely many.
//!
//! # Not here
//! Matching of inputs and outputs: an input of ours with a queue for each output may feed several
//! outputs at once.

use std::f64::consts::SQRT_2;
use std::fmt::Write as _;

use clearway_proto::base::{Class, RandomKey};
use clearway_sim::Picos;
use clearway_sim::fabric::{Notice, NoticeSet, SendRequest, Target};
use clearway_sim::graph::DeviceId;
use clearway_sim::spec::{FabricSpec, Queueing, Service};

use super::rig::{self, gigabits};

/// Ports of the switches that are tried.
const PORTS: [u32; 4] = [8, 16, 32, 64];
/// What infinitely many ports carry of their rate, each input one queue.
pub(crate) const KAROL: f64 = 2.0 - SQRT_2;
/// A packet: 327.68 ns at the ports' rate.
const PACKET: u64 = 4096;
/// Packets that a port could carry before the window, until the inputs are full, and in it.
const SLOTS: [u64; 2] = [500, 3_000];

fn star(ports: u32, queueing: Queueing) -> FabricSpec {
    let mut spec = rig::star(&vec![gigabits(100); ports as usize]).spec();
    spec.switch.queueing = queueing;
    spec.host.service = Service::InOrder;
    spec
}

/// What all outputs together carry in the window, as a fraction of what they could.
pub(crate) fn carried(ports: u32, queueing: Queueing) -> f64 {
    let spec = star(ports, queueing);
    let mut fabric = rig::fabric(&spec, 1);
    let slot = rig::pace(gigabits(100)) * PACKET as f64;
    let [from, until] =
        [SLOTS[0], SLOTS[0] + SLOTS[1]].map(|slots| Picos((slots as f64 * slot) as u64));
    for host in 0..ports {
        let mut stream = RandomKey::new(1987).purpose("uniform").node(u64::from(host)).stream();
        // No cable carries more until the end of the window.
        for _ in 0..SLOTS[0] + SLOTS[1] {
            let to = (host + 1 + stream.below(u64::from(ports) - 1) as u32) % ports;
            let (from, to, class) = (DeviceId(host), Target::Host(DeviceId(to)), Class::Bulk);
            fabric.post(
                Picos::ZERO,
                SendRequest {
                    from,
                    to,
                    class,
                    bytes: PACKET,
                    rail: 0,
                    reports: NoticeSet::Delivery,
                    tag: 0,
                },
            );
        }
    }
    let (mut packets, mut notices) = (0u64, Vec::new());
    while fabric.advance(until, &mut notices) < until {
        let delivered = notices
            .drain(..)
            .filter(|notice| matches!(notice, Notice::Delivered { at, .. } if *at >= from));
        packets += delivered.count() as u64;
    }
    packets as f64 / (SLOTS[1] * u64::from(ports)) as f64
}

/// Both kinds of input at every size.
pub(crate) fn text() -> String {
    let mut text = format!(
        "{:<28} {:>10} {:>16}\n",
        "carried under uniform load", "input-fifo", "virtual-output"
    );
    for ports in PORTS {
        let [fifo, virtual_output] =
            [Queueing::InputFifo, Queueing::VirtualOutput].map(|kind| carried(ports, kind));
        let _ =
            writeln!(text, "{:<28} {fifo:>10.4} {virtual_output:>16.4}", format!("{ports} ports"));
    }
    let _ = writeln!(text, "{:<28} {KAROL:>10.4}", "infinitely many, formula");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carried__an_input_with_one_queue_loses_what_karol_says() {
        let figures = PORTS.map(|ports| carried(ports, Queueing::InputFifo));
        assert!(figures.is_sorted_by(|a, b| a > b), "{figures:?}");
        let last = figures[PORTS.len() - 1];
        assert!((last - KAROL).abs() <= 0.01 * KAROL, "{last}");
    }

    #[test]
    fn carried__an_input_with_a_queue_for_each_output_loses_nearly_nothing() {
        for ports in PORTS {
            let carried = carried(ports, Queueing::VirtualOutput);
            assert!(carried >= 0.98, "{ports} ports: {carried}");
        }
    }
}
