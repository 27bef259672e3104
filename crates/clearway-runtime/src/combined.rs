//! What wires made of two have in common: copies from one to the other, memory to pass bodies on,
//! and what both can do.

use clearway_proto::base::Bytes;
use clearway_proto::wire::{
    Capabilities, Delivery, Granted, RefusalReason, RegionId, Span, StampSource, Wire, bytes_of,
};

use crate::RuntimeError;

/// Copies bytes of one wire's memory into another's.
pub(crate) fn copy(
    source: &dyn Wire,
    from: Span,
    target: &mut dyn Wire,
    into: Span,
) -> Result<(), RefusalReason> {
    if let Ok(bytes) = bytes_of(source.region(from.region), from) {
        return target.copy_in(into, bytes);
    }
    // Adopted memory gives no reference.
    let mut bytes = vec![0; from.length as usize];
    source.copy_out(from, &mut bytes)?;
    target.copy_in(into, &bytes)
}

/// Registers memory of `wire` for bodies that lie in the other one's.
pub(crate) fn passage(wire: &mut dyn Wire, length: u64) -> Result<RegionId, RuntimeError> {
    let cause = std::io::ErrorKind::OutOfMemory;
    wire.register(Bytes(length))
        .map_err(|_| RuntimeError::System { what: "allocate memory", cause: cause.into() })
}

/// Returns what two wires can do together, as `name`: paths and operations are the far one's.
pub(crate) fn weaker(name: &'static str, near: &Capabilities, far: &Capabilities) -> Capabilities {
    let reliable = near.delivery == Delivery::Reliable && far.delivery == Delivery::Reliable;
    let mut classes = far.classes;
    for (class, near) in classes.iter_mut().zip(near.classes) {
        *class = weaker_grant(near, *class);
    }
    Capabilities {
        name,
        operations: far.operations,
        delivery: if reliable { Delivery::Reliable } else { Delivery::Lossy },
        head_max: near.head_max.min(far.head_max),
        body_max: near.body_max.min(far.body_max),
        message_max: near.message_max.min(far.message_max),
        stamp: if near.stamp == far.stamp { near.stamp } else { StampSource::Reading },
        shared_clock: near.shared_clock.and(far.shared_clock),
        classes,
        sends_follow_writes: near.sends_follow_writes && far.sends_follow_writes,
        adopts: far.adopts,
        any_local: far.any_local,
        groups_max: far.groups_max,
        paths: far.paths.clone(),
    }
}

/// Returns the weaker of two grants: a mark also keeps a class apart; being kept apart is no mark.
const fn weaker_grant(a: Granted, b: Granted) -> Granted {
    match (a, b) {
        (Granted::Ignored, _) | (_, Granted::Ignored) => Granted::Ignored,
        (Granted::Separate, _) | (_, Granted::Separate) => Granted::Separate,
        (Granted::Marked, Granted::Marked) => Granted::Marked,
    }
}
