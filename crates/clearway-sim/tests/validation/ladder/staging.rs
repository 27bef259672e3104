//! The data-staging study: its arbitration tables on adapters only, and on switches too.
//!
//! # Model
//! Fabric `qdr`. The application is level 0, staging levels 5, 6 and 7. At an *adapter* one host
//! sends on all four lanes, to four hosts. At an *incast* four hosts, each on its own lane, send to
//! one, so that only the switch can tell them apart.
//!
//! # Source
//! Rajachandrasekar et al., QoS-aware data-staging framework (CLUSTER 2012 talk), slide "Configuring
//! OpenSM"; the formula is InfiniBand's, as OpenSM's documentation describes it. Ports that nobody
//! set have the defaults of OpenSM (doc/qos-config.txt).

use std::fmt::Write as _;

use clearway_proto::base::Class;
use clearway_sim::Picos;
use clearway_sim::arbiter;
use clearway_sim::fabric::{Notice, NoticeSet, SendRequest, Target};
use clearway_sim::graph::DeviceId;
use clearway_sim::spec::{Arbiter, FabricSpec, presets};

use super::rig::{self, CheckedFigure, Flow};

/// The application and three kinds of staging, with their lanes.
const CLASSES: [(Class, u8); 4] =
    [(Class::LowLatency, 0), (Class::Scavenger, 5), (Class::Bulk, 6), (Class::BestEffort, 7)];
/// Whole packets only.
const MESSAGE: u64 = 64 << 10;

/// Where lanes fight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharedPoint {
    /// At the port of one host that sends on all lanes.
    Adapter,
    /// At the last switch, where hosts with a lane each send to one.
    Incast,
}

/// The study's fabric under one of its policies.
fn spec(policy: &str) -> FabricSpec {
    let mut spec = presets::load("qdr", Some(policy)).expect("a shipped fabric");
    // The cable is to be the narrow place, not the hosts' memory.
    spec.host.memory_rate = spec.links[0].rate;
    spec.host.memory_rate.0 *= 2;
    spec
}

/// Shares of the lanes of `classes` against the formula of the port where they fight.
pub(crate) fn shares(
    policy: &str,
    place: SharedPoint,
    classes: &[(Class, u8)],
) -> Vec<CheckedFigure> {
    let spec = spec(policy);
    let flow = |(class, lane): (Class, u8)| {
        let (from, to) = if place == SharedPoint::Adapter {
            (0, u32::from(lane) + 1)
        } else {
            (u32::from(lane) + 1, 0)
        };
        Flow { from, to, class, bytes: MESSAGE }
    };
    let flows: Vec<Flow> = classes.iter().map(|class| flow(*class)).collect();
    let until = Picos::from_micros(20_000);
    let measured =
        rig::shares(&rig::delivered(&spec, &flows, 96 << 20, Picos::from_micros(500), until));
    let rule = if place == SharedPoint::Adapter {
        &spec.arbitration.host
    } else {
        &spec.arbitration.switch
    };
    let expected = formula(rule, classes, (spec.packet.payload.0 + spec.packet.header.0) as u32);
    let figure = |i: usize| CheckedFigure {
        what: format!("{policy}, {place:?}, lane {}", classes[i].1),
        expected: expected[i],
        measured: measured[i],
    };
    (0..classes.len()).map(figure).collect()
}

fn formula(rule: &Arbiter, classes: &[(Class, u8)], packet: u32) -> Vec<f64> {
    let lanes = classes.iter().fold(0u32, |all, (_, lane)| all | 1 << lane);
    let by_lane = arbiter::shares(rule, lanes, packet);
    rig::shares(&classes.iter().map(|(_, lane)| by_lane[usize::from(*lane)]).collect::<Vec<_>>())
}

/// How long 4 MiB of the application take to a host to which three others stage without end, in
/// microseconds.
pub(crate) fn application(policy: &str) -> f64 {
    let mut fabric = rig::fabric(&spec(policy), 1);
    let order = |from: u32, class, bytes, tag| {
        let (from, to) = (DeviceId(from), Target::Host(DeviceId(0)));
        SendRequest { from, to, class, bytes, rail: 0, reports: NoticeSet::Delivery, tag }
    };
    for (class, lane) in &CLASSES[1..] {
        fabric.post(Picos::ZERO, order(u32::from(*lane) + 1, *class, 1 << 30, 0));
    }
    let posted = Picos::from_micros(500);
    fabric.post(posted, order(1, Class::LowLatency, 4 << 20, 1));
    let mut notices = Vec::new();
    loop {
        fabric.advance(Picos::NEVER, &mut notices);
        let done = notices.drain(..).find_map(|notice| match notice {
            Notice::Delivered { tag: 1, at, .. } => Some(at),
            _ => None,
        });
        if let Some(at) = done {
            return (at - posted).0 as f64 / 1e6;
        }
    }
}

/// The policies: everything in one lane, tables on adapters, tables everywhere.
const POLICIES: [&str; 3] = ["shared", "ca-only", "ca-and-switch"];

/// Shares and the application's time.
pub(crate) fn text() -> String {
    let mut text = format!("{:<34} {:>9} {:>9}\n", "share of the port", "formula", "measured");
    for (policy, place) in cases() {
        for figure in
            [shares(policy, place, &CLASSES), shares(policy, place, &CLASSES[1..])].concat()
        {
            let (expected, measured) = (100.0 * figure.expected, 100.0 * figure.measured);
            let _ = writeln!(text, "{:<34} {expected:>8.3}% {measured:>8.3}%", figure.what);
        }
    }
    let _ = writeln!(text, "\n4 MiB of the application into an incast of staging");
    for policy in POLICIES {
        let _ = writeln!(text, "{policy:<34} {:>8.1} us", application(policy));
    }
    text
}

/// The policies with tables at both places.
fn cases() -> impl Iterator<Item = (&'static str, SharedPoint)> {
    POLICIES[1..]
        .iter()
        .flat_map(|policy| [(*policy, SharedPoint::Adapter), (*policy, SharedPoint::Incast)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares__are_those_of_the_formula() {
        for (policy, place) in cases() {
            for classes in [&CLASSES[..], &CLASSES[1..]] {
                let figures = shares(policy, place, classes);
                let worst = rig::worst(&figures);
                assert!(worst.error() <= 0.02, "{worst:?}");
            }
        }
    }

    #[test]
    fn shares__a_limit_of_255_starves_staging() {
        for place in [SharedPoint::Adapter, SharedPoint::Incast] {
            let figures = shares("ca-and-switch", place, &CLASSES);
            assert_eq!(figures[0].measured, 1.0, "{figures:?}");
        }
    }

    #[test]
    fn application__tables_on_adapters_alone_do_not_help_at_an_incast() {
        let [shared, ca_only, everywhere] = POLICIES.map(application);
        // Alone it would take 4 MiB at 4 GB/s and a little for headers: about 1.07 ms.
        assert!(everywhere < 1_150.0, "{everywhere}");
        // By default a switch gives lane 0 one packet for each one of all others.
        assert!(ca_only > 1.8 * everywhere, "{ca_only}");
        assert!(shared > ca_only, "{shared}");
    }
}
