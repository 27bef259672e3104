//! The parking lot: hosts along a chain of switches all send to its end, and those far away get
//! less.
//!
//! # Model
//! At each switch a host joins those who came from further away. An output that takes from its
//! *inputs in turn* gives the newcomer as much as all of them together: 1/2, 1/4, 1/8, ... An
//! output that serves in *order of arrival* gives each input what part of the arrivals it has; with
//! buffers that never push back those are the rates at which they send.
//!
//! # Source
//! Dally, Towles, "Principles and practices of interconnection networks" (2004), 15.4.1.

use clearway_proto::base::{BitsPerSec, Bytes, Class};
use clearway_sim::Picos;
use clearway_sim::spec::{FabricSpec, Queueing};

use super::rig::{self, Cabling, CheckedFigure, Flow, gigabits};

/// `hosts` senders along as many switches; the sink is the last host, at the last switch.
fn lot(hosts: u32, host: BitsPerSec, queueing: Queueing, buffer: u64) -> FabricSpec {
    let mut cabling = Cabling::new(hosts + 1, hosts);
    for place in 0..hosts {
        let switch = format!("s{place}");
        cabling.cable(&format!("h{place}"), &switch, host);
        if place > 0 {
            cabling.cable(&format!("s{}", place - 1), &switch, gigabits(100));
        }
    }
    cabling.cable(&format!("s{}", hosts - 1), &format!("h{hosts}"), gigabits(100));
    let mut spec = cabling.spec();
    spec.switch.queueing = queueing;
    for link in &mut spec.links {
        link.buffer = Bytes(buffer);
    }
    spec
}

/// Figures of all hosts, the farthest first.
fn figures(name: &str, spec: &FabricSpec, expected: &[f64]) -> Vec<CheckedFigure> {
    let sink = expected.len() as u32;
    let flow = |from: u32| Flow { from, to: sink, class: Class::Bulk, bytes: 4096 };
    let flows: Vec<Flow> = (0..sink).map(flow).collect();
    let (from, until) = (Picos::from_micros(1_000), Picos::from_micros(7_000));
    // All that the sink can take, and as much again for what lies in buffers.
    let measured = rig::shares(&rig::delivered(spec, &flows, 160 << 20, from, until));
    let figure = |place: usize| CheckedFigure {
        what: format!("{name}: host {place} of {sink}"),
        expected: expected[place],
        measured: measured[place],
    };
    (0..expected.len()).map(figure).collect()
}

/// Everybody sends at full rate, inputs take turns.
pub(crate) fn turns() -> Vec<CheckedFigure> {
    let spec = lot(5, gigabits(100), Queueing::VirtualOutput, 64 << 10);
    figures("turns, full rate", &spec, &[1.0 / 16.0, 1.0 / 16.0, 1.0 / 8.0, 1.0 / 4.0, 1.0 / 2.0])
}

/// Everybody sends at most 0.4 of a cable, inputs take turns: the last host has its 0.4, and of the
/// 0.6 that are left the host before has half.
pub(crate) fn turns_of_slow_hosts() -> Vec<CheckedFigure> {
    let spec = lot(4, gigabits(40), Queueing::VirtualOutput, 64 << 10);
    figures("turns, 0.4 of the rate", &spec, &[0.15, 0.15, 0.3, 0.4])
}

/// The same in order of arrival: three hosts share the third cable alike, 1.2 into 1; its 1 meets
/// the last host's 0.4.
pub(crate) fn arrivals_of_slow_hosts() -> Vec<CheckedFigure> {
    let spec = lot(4, gigabits(40), Queueing::OutputFifo, 4 << 30);
    let far = 1.0 / 1.4 / 3.0;
    figures("arrival, 0.4 of the rate", &spec, &[far, far, far, 0.4 / 1.4])
}
