//! The share of a link that each class gets in a short run of the simulated fabric, and what the
//! arbiter's formula says.
//!
//! # Model
//! One switch. At an *adapter* one host sends a packet of each busy class in turn to as many others,
//! without end; at a *switch* as many hosts send to one, each in its own class. Either place has the
//! tables of the plan, and the port where the classes meet is the only narrow one.

use clearway_proto::base::{BitsPerSec, Bytes, Class};
use clearway_sim::Picos;
use clearway_sim::fabric::{Fabric, FabricOptions, Notice, NoticeSet, SendRequest, Target};
use clearway_sim::graph::DeviceId;
use clearway_sim::spec::qos::{PLAN_LANES, QosPlan};
use clearway_sim::spec::{Arbiter, FabricSpec, PacketSpec, Routing, Topology};
use clearway_sim::topology;

/// Packets that the port sends in a run; a fifth of them come before anything is counted.
const PACKETS: u64 = 1_000;
/// The rate of all links: shares do not depend on it.
const RATE: BitsPerSec = BitsPerSec::mega(100_000);
/// The lane on which ports drop.
const DROPPED: u8 = 15;

/// Where the classes meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MeetingPoint {
    /// The port of one host.
    Adapter,
    /// The last switch before one host.
    Switch,
}

/// Returns the share of the port that each class gets, in thousandths by [`Class::index`], while
/// those of `busy` always have full packets to send.
pub(super) fn simulated(
    plan: &QosPlan,
    busy: &[Class],
    place: MeetingPoint,
) -> [u64; Class::ALL.len()] {
    let busy: Vec<Class> =
        busy.iter().copied().filter(|class| plan.lane(*class) != DROPPED).collect();
    let spec = spec(plan, busy.len() as u32);
    let Ok(network) = topology::build(&spec) else { return [0; Class::ALL.len()] };
    let mut fabric = Fabric::new(&spec, network, 1, FabricOptions::default());
    let target = |host: u32| (DeviceId(host), Target::Host(DeviceId(host)));
    for (other, class) in (1..).zip(&busy) {
        let ((from, _), (_, to)) = match place {
            MeetingPoint::Adapter => (target(0), target(other)),
            MeetingPoint::Switch => (target(other), target(0)),
        };
        let (bytes, tag) = (plan.payload.0, class.index() as u64);
        let reports = NoticeSet::Delivery;
        for _ in 0..PACKETS {
            fabric.post(
                Picos::ZERO,
                SendRequest { from, to, class: *class, bytes, rail: 0, reports, tag },
            );
        }
    }
    let packet = Picos(plan.packet() * 8 * 1_000_000_000_000 / RATE.0);
    let [begin, end] = [PACKETS / 5, PACKETS].map(|packets| Picos(packet.0 * packets));
    let (mut counts, mut notices) = ([0u64; Class::ALL.len()], Vec::new());
    while fabric.advance(end, &mut notices) < end {
        for notice in notices.drain(..) {
            if let Notice::Delivered { tag, at, .. } = notice
                && at >= begin
                && let Some(count) = counts.get_mut(tag as usize)
            {
                *count += 1;
            }
        }
        if fabric.next().is_none() {
            break;
        }
    }
    let all = counts.iter().sum::<u64>().max(1);
    counts.map(|count| count * 1000 / all)
}

/// Returns one switch with the tables of `plan` everywhere, and a host more than classes.
fn spec(plan: &QosPlan, classes: u32) -> FabricSpec {
    let mut spec = FabricSpec::plain(Topology::Star { hosts: classes + 1 }, Routing::Minimal, RATE);
    spec.packet = PacketSpec {
        payload: plan.payload,
        header: Bytes(plan.packet().saturating_sub(plan.payload.0)),
    };
    spec.classes.virtual_lanes = PLAN_LANES;
    spec.classes.service_level = plan.levels;
    spec.classes.lane_of_level = plan.lane_of_level;
    spec.arbitration.host = Arbiter::Tables(plan.tables.clone());
    spec.arbitration.switch = Arbiter::Tables(plan.tables.clone());
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated__shares_are_those_of_the_formula_at_both_places() {
        for payload in [256, 4096] {
            let plan = QosPlan::new(Bytes(payload)).expect("a payload of ports");
            for busy in [&Class::ALL[..], &[Class::LowLatency, Class::Bulk], &Class::ALL[2..]] {
                let formula = plan.shares(busy);
                for place in [MeetingPoint::Adapter, MeetingPoint::Switch] {
                    let seen = simulated(&plan, busy, place);
                    let is_near = |(a, b): (&u64, &u64)| a.abs_diff(*b) <= 10;
                    assert!(
                        formula.iter().zip(&seen).all(is_near),
                        "{payload}, {place:?}: {formula:?} {seen:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn simulated__dropped_classes_send_nothing() {
        let mut plan = QosPlan::new(Bytes(2048)).expect("a payload of ports");
        plan.lane_of_level[3] = DROPPED;
        let seen = simulated(&plan, &[Class::BestEffort, Class::Bulk], MeetingPoint::Adapter);
        assert_eq!(seen, [0, 0, 1000, 0, 0]);
    }
}
