//! Classes of queues and contexts, and what the wire to PEs of other hosts makes of them.
//!
//! # Model
//! A program requests a class, and the wire grants one. A wire that cannot mark a class carries it as
//! best effort: then `High` becomes `Medium`. A class below best effort keeps its class, because its
//! streams come behind the others in each host; its packets have the mark of best effort.
//!
//! # Invariants
//! I1. No class is granted that is above the requested one.

use clearway_proto::base::{Class, Nanos};
use clearway_proto::wire::Granted;

/// The service that a queue requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueueClass {
    /// The highest of the system.
    High,
    /// Best effort.
    Medium,
    /// Below others.
    Low,
    /// What others leave.
    Scavenger,
}

impl QueueClass {
    /// All classes by their number in C.
    pub const ALL: [Self; 4] = [Self::High, Self::Medium, Self::Low, Self::Scavenger];

    /// Returns the class of packets between hosts.
    pub(crate) fn far(self) -> Class {
        match self {
            Self::High => Class::LowLatency,
            Self::Medium => Class::BestEffort,
            Self::Low => Class::Bulk,
            Self::Scavenger => Class::Scavenger,
        }
    }

    /// Returns the class whose packets are of this one.
    pub(crate) fn from_far(class: Class) -> Self {
        Self::ALL.into_iter().find(|one| one.far() == class).unwrap_or(Self::Medium)
    }

    /// Returns how long an element waits at most where the program gives no time.
    pub(super) fn deadline(self) -> Nanos {
        match self {
            Self::High => Nanos::from_micros(20),
            Self::Medium => Nanos::from_micros(50),
            Self::Low | Self::Scavenger => Nanos::from_millis(1),
        }
    }

    /// Returns what the class becomes on a wire that makes `wire` of it; `None` for PEs that need
    /// no wire.
    pub(crate) fn grant(self, wire: Option<Granted>) -> ClassGrant {
        let best_effort = Class::BestEffort.dscp().0.into();
        let (granted, mark) = match wire {
            None => (self, -1),
            Some(Granted::Marked) => (self, self.far().dscp().0.into()),
            Some(Granted::Separate) => (self, best_effort),
            Some(Granted::Ignored) => (self.max(Self::Medium), best_effort),
        };
        ClassGrant { asked: self as i32, granted: granted as i32, mark, reserved: [0; 5] }
    }
}

/// The requested and the granted class: `shmemx_grant_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ClassGrant {
    /// The requested class.
    pub asked: i32,
    /// The class that the traffic has.
    pub granted: i32,
    /// The DSCP of its packets, -1 where it sends none.
    pub mark: i32,
    /// No meaning yet.
    pub reserved: [i32; 5],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grant__a_class_is_demoted_where_the_wire_ignores_it_and_never_promoted() {
        let of = |class: QueueClass, wire| {
            let grant = class.grant(wire);
            (grant.granted, grant.mark)
        };
        let all = |wire| QueueClass::ALL.map(|class| of(class, wire));
        assert_eq!(all(None), [(0, -1), (1, -1), (2, -1), (3, -1)]);
        assert_eq!(all(Some(Granted::Marked)), [(0, 46), (1, 0), (2, 8), (3, 1)]);
        assert_eq!(all(Some(Granted::Separate)), [(0, 0), (1, 0), (2, 0), (3, 0)]);
        assert_eq!(all(Some(Granted::Ignored)), [(1, 0), (1, 0), (2, 0), (3, 0)]);
        for class in QueueClass::ALL {
            assert_eq!(QueueClass::from_far(class.far()), class);
        }
    }
}
