//! What a cable carries when its far buffer is smaller than what is under way: one buffer for each
//! round trip.
//!
//! # Model
//! A packet's place is taken when it starts and is free for the next one when its tail has left the
//! far switch and the credit has come back. So the round trip is cable + switch + packet + cable,
//! and `k` whole packets fit into the buffer:
//! ```text
//!    rate = min(cable, k L / round trip)
//! ```
//!
//! # Source
//! Kung, Blackwell, Chapman, "Credit-based flow control for ATM networks" (SIGCOMM 1994): buffer =
//! rate x round trip.

use clearway_proto::base::Bytes;
use clearway_sim::Picos;

use super::rig::{self, CheckedFigure, gigabits};

const PACKET: u64 = 4096;

/// Buffers of one packet to more than a round trip, whole packets and half a packet more.
pub(crate) fn figures() -> Vec<CheckedFigure> {
    let mut figures = Vec::new();
    for cable_ns in [100, 1_000, 5_000] {
        for fitting in [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48] {
            figures.push(figure(cable_ns, fitting * PACKET));
            figures.push(figure(cable_ns, fitting * PACKET + PACKET / 2));
        }
    }
    figures
}

fn figure(cable_ns: u64, buffer: u64) -> CheckedFigure {
    let rate = gigabits(100);
    let mut spec = rig::chain(&[rate; 3]).spec();
    spec.links[1].delay = Picos::from_nanos(cable_ns);
    spec.links[1].buffer = Bytes(buffer);
    let packet = PACKET as f64 * rig::pace(rate);
    let round_trip = (2 * cable_ns * 1_000 + spec.switch.delay.0) as f64 + packet;
    let fitting = buffer / PACKET;
    // The difference between two messages has no beginning and no end in it.
    let message = |rounds: u64| rig::alone(&spec, 0, 1, rounds * fitting * PACKET).0 as f64;
    let gigabits_in = |time: f64| 50.0 * (fitting * PACKET * 8) as f64 * 1e3 / time;
    CheckedFigure {
        what: format!("{buffer} B behind {cable_ns} ns of cable, Gb/s"),
        expected: f64::min(100.0, (fitting * PACKET * 8) as f64 * 1e3 / round_trip),
        measured: gigabits_in(message(60) - message(10)),
    }
}
