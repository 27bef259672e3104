//! What a simulated wire can do, read off the specification of its fabric.

use clearway_proto::base::{Class, SharedClock};
use clearway_proto::wire::{
    Capabilities, Delivery, Granted, OperationKind, OperationSet, StampSource,
};

use super::flight::HEAD_MAX;
use crate::spec::{ClassMap, FabricSpec, LinkRole, LossDomain};

/// The longest body of one message; longer ones are one-sided writes. The fabric cuts it into
/// packets.
pub(super) const BODY_MAX: usize = 1 << 20;

/// Returns the virtual lane on which `class` begins its way.
fn lane(classes: &ClassMap, class: Class) -> u8 {
    let level = classes.service_level[class.index()];
    classes.lane_of_level[usize::from(level & 15)]
}

/// Returns whether messages of each class can be dropped on the way.
pub(super) fn lossy(classes: &ClassMap) -> [bool; Class::ALL.len()] {
    Class::ALL.map(|class| {
        let lane = usize::from(lane(classes, class));
        matches!(classes.loss.get(lane), Some(LossDomain::Drops { .. }))
    })
}

fn granted(classes: &ClassMap) -> [Granted; Class::ALL.len()] {
    Class::ALL.map(|class| {
        let shared = Class::ALL
            .into_iter()
            .any(|other| other != class && lane(classes, other) == lane(classes, class));
        if shared { Granted::Marked } else { Granted::Separate }
    })
}

/// Returns what every end of a wire on `spec` can do.
///
/// One-sided operations are there on lossy classes too: the interface repeats what was lost, as
/// reliable connections do.
pub(super) fn capabilities(spec: &FabricSpec, lacks: &[OperationKind]) -> Capabilities {
    let has =
        OperationKind::ALL.into_iter().filter(|kind| !kind.is_of_driver() && !lacks.contains(kind));
    let operations: Vec<OperationKind> = has.collect();
    let rate = spec
        .link(LinkRole::Host)
        .and_then(|link| spec.links.get(usize::from(link)))
        .map(|link| link.rate);
    let reliable = lossy(&spec.classes) == [false; Class::ALL.len()];
    Capabilities {
        name: "sim",
        operations: OperationSet::from_kinds(&operations),
        delivery: if reliable { Delivery::Reliable } else { Delivery::Lossy },
        head_max: HEAD_MAX,
        body_max: BODY_MAX,
        message_max: HEAD_MAX + BODY_MAX,
        stamp: StampSource::Virtual,
        shared_clock: (spec.host.clock_ppm == 0).then(SharedClock::asserted_by_wire),
        classes: granted(&spec.classes),
        sends_follow_writes: false,
        adopts: true,
        any_local: false,
        groups_max: usize::MAX,
        paths: vec![rate; spec.host.rails.clamp(1, 256) as usize],
    }
}
