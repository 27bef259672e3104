//! Sets the delays of simulated hosts so that a small message takes as long as it does on a real
//! network.
//!
//! # Model
//! What a small message takes on an idle network is `fixed + delay + tail`: cables, switches and
//! processors, what the receiving host adds to each message, and what it adds when its processors
//! slept, which is exponential with mean `m`.
//! ```text
//!    p50 = fixed + delay + m ln 2        p99 = fixed + delay + m ln 100
//! ```
//! The real host's way down is not distinguished from its way up: `delay` stands for both. Where
//! the fabric file has given cables, switches and processors more than half of the real messages
//! take in all, the tail begins there and meets p99; p50 then is larger than it was measured.
//!
//! # Invariants
//! I1. Cables, rates and queues stay what they were: only the hosts change.

use clearway_proto::base::Class;

use crate::fabric::{Fabric, FabricOptions, Notice, NoticeSet, SendRequest, Target};
use crate::graph::DeviceId;
use crate::spec::FabricSpec;
use crate::time::Picos;
use crate::topology::RoutedGraph;

/// ln 2 in millionths.
const LN_2: u64 = 693_147;
/// ln 100 in millionths.
const LN_100: u64 = 4_605_170;
const MILLION: u64 = 1_000_000;

/// What messages of a few bytes take on an idle network, one way, from the sender's stamp to the
/// receiver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallMessage {
    /// Half of them take no longer.
    pub p50: Picos,
    /// 99 of 100 take no longer.
    pub p99: Picos,
}

/// Gives the hosts of `spec`, whose network is `network`, the delays with which messages of `bytes`
/// take what `real` says.
///
/// # Cost
/// Sends one message.
pub fn hosts(spec: &mut FabricSpec, network: &RoutedGraph, bytes: u64, real: SmallMessage) {
    let host = &mut spec.host;
    (host.transmit_delay, host.receive_delay, host.receive_tail) =
        (Picos(1), Picos(1), Picos::ZERO);
    let stamped = host.input_cost.0 + host.effect_cost.0;
    let last = DeviceId(spec.topology.hosts().saturating_sub(1));
    let fixed = stamped + alone(spec, network.clone(), [DeviceId(0), last], bytes).0;
    let tail = real.p99.0.saturating_sub(real.p50.0) * MILLION / (LN_100 - LN_2);
    let delay = real.p50.0.checked_sub(fixed + tail * LN_2 / MILLION);
    let tail = match delay {
        Some(_) => tail,
        None => real.p99.0.saturating_sub(fixed) * MILLION / LN_100,
    };
    (spec.host.receive_delay, spec.host.receive_tail) =
        (Picos(delay.unwrap_or(0).max(1)), Picos(tail));
}

/// Returns how long `bytes` take on the network of `spec`, from the first host's post to the
/// second's memory, when nobody else sends.
///
/// # Panics
/// When one of the hosts is not there: a mistake of the caller.
pub fn alone(
    spec: &FabricSpec,
    network: RoutedGraph,
    [from, to]: [DeviceId; 2],
    bytes: u64,
) -> Picos {
    let mut fabric = Fabric::new(spec, network, 1, FabricOptions::default());
    // Not at time zero: an interface that was idle before must not differ from one that never
    // worked.
    let posted = Picos::from_micros(100);
    let (class, rail, reports) = (Class::LowLatency, 0, NoticeSet::Delivery);
    fabric.post(
        posted,
        SendRequest { from, to: Target::Host(to), class, bytes, rail, reports, tag: 0 },
    );
    let mut notices = Vec::new();
    fabric.advance(Picos::NEVER, &mut notices);
    let delivered = notices.iter().find_map(|notice| match notice {
        Notice::Delivered { at, .. } => Some(*at),
        _ => None,
    });
    delivered.expect("an idle network delivers") - posted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::presets;
    use crate::topology;

    /// Measures p50 and p99 of messages of 8 bytes, far apart, on a network whose hosts were
    /// calibrated with `real`.
    fn measured(real: SmallMessage) -> [f64; 2] {
        let mut spec = presets::load("lab", None).unwrap();
        let network = topology::build(&spec).unwrap();
        hosts(&mut spec, &network, 8, real);
        let stamped = (spec.host.input_cost + spec.host.effect_cost).0;
        let mut fabric = Fabric::new(&spec, network, 7, FabricOptions::default());
        let (class, rail, reports, from) = (Class::LowLatency, 0, NoticeSet::Delivery, DeviceId(0));
        let count = 20_000;
        let mut times = Vec::new();
        for i in 0..count {
            let posted = Picos::from_micros(1_000 * (1 + i));
            fabric.post(
                posted,
                SendRequest {
                    from,
                    to: Target::Host(DeviceId(1)),
                    class,
                    bytes: 8,
                    rail,
                    reports,
                    tag: i,
                },
            );
            let mut notices = Vec::new();
            times.push((fabric.advance(Picos::NEVER, &mut notices) - posted).0 + stamped);
        }
        times.sort_unstable();
        [count / 2, count * 99 / 100].map(|place| times[place as usize] as f64 / 1e6)
    }

    fn near(value: f64, expected: f64) -> bool {
        (value / expected - 1.0).abs() < 0.05
    }

    #[test]
    fn hosts__small_messages_take_what_they_were_measured_to_take() {
        let real = SmallMessage { p50: Picos::from_micros(20), p99: Picos::from_micros(60) };
        let [p50, p99] = measured(real);
        assert!(near(p50, 20.0) && near(p99, 60.0), "{p50} {p99}");
    }

    #[test]
    fn hosts__p99_is_met_where_the_network_alone_takes_longer_than_half_of_the_messages() {
        let real = SmallMessage { p50: Picos::from_micros(5), p99: Picos::from_micros(33) };
        let [p50, p99] = measured(real);
        assert!(p50 > 5.0 && near(p99, 33.0), "{p50} {p99}");
    }

    #[test]
    fn hosts__what_cannot_be_met_is_met_as_nearly_as_the_network_allows() {
        for real in [
            SmallMessage { p50: Picos::from_nanos(10), p99: Picos::from_nanos(20) },
            SmallMessage { p50: Picos::from_micros(50), p99: Picos::from_micros(40) },
            SmallMessage { p50: Picos::ZERO, p99: Picos::ZERO },
        ] {
            let [p50, p99] = measured(real);
            assert!(p50 <= p99 && p99 <= 51.0, "{real:?}: {p50} {p99}");
        }
    }
}
