//! The five traffic classes and their marks.
//!
//! # Model
//! A class says what traffic is *for*; wires and the lab map it to what their network understands.
//! A class asked for is not a class granted: what a network really does with it is measured, never
//! assumed.
//!
//! # Source
//! DSCP values: RFC 4594 (CS6, EF, CS1), RFC 8622 (LE).
//!
//! # Invariants
//! I1. Every class has its own DSCP.
//!
//! # Not here
//! Setting the mark on a packet (`clearway-runtime`), queues that honour it (`clearway-lab`).

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// What a message is for, from the most urgent to the least.
///
/// ```
/// use clearway_proto::base::{Class, Dscp};
/// assert_eq!(Class::LowLatency.dscp(), Dscp(46));
/// assert_eq!(Class::from_dscp(Dscp(8)), Some(Class::Bulk));
/// assert_eq!("bulk".parse(), Ok(Class::Bulk));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Credits, acknowledgements, schedules: without them nothing else moves.
    Control,
    /// Small messages that an application waits for.
    LowLatency,
    /// Everything that asked for nothing.
    BestEffort,
    /// Large transfers whose end matters, not each packet: timeslices, broadcasts, checkpoints.
    Bulk,
    /// What may starve without harm: drains, warm-ups.
    Scavenger,
}

impl Class {
    /// All classes, most urgent first; `ALL[c.index()] == c`.
    pub const ALL: [Self; 5] =
        [Self::Control, Self::LowLatency, Self::BestEffort, Self::Bulk, Self::Scavenger];

    /// Returns the place of this class in [`Class::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the name used in scenarios, reports and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::LowLatency => "low-latency",
            Self::BestEffort => "best-effort",
            Self::Bulk => "bulk",
            Self::Scavenger => "scavenger",
        }
    }

    /// Returns the code point that IP packets of this class carry.
    pub const fn dscp(self) -> Dscp {
        match self {
            Self::Control => Dscp(48),
            Self::LowLatency => Dscp(46),
            Self::BestEffort => Dscp(0),
            Self::Bulk => Dscp(8),
            Self::Scavenger => Dscp(1),
        }
    }

    /// Returns the priority of this class's packets in a Linux host's own queues (`SO_PRIORITY`,
    /// `socket(7)`): `pfifo_fast` sends 6 first, 0 next, 1 and 2 last (`tc-pfifo_fast(8)`). Up to 6
    /// no privilege is needed.
    pub const fn host_priority(self) -> u32 {
        match self {
            Self::Control | Self::LowLatency => 6,
            Self::BestEffort => 0,
            Self::Bulk => 2,
            Self::Scavenger => 1,
        }
    }

    /// Creates the class whose packets carry `dscp`, if there is one.
    pub fn from_dscp(dscp: Dscp) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.dscp() == dscp)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Class {
    type Err = UnknownClass;
    fn from_str(name: &str) -> Result<Self, UnknownClass> {
        Self::ALL.into_iter().find(|class| class.name() == name).ok_or(UnknownClass)
    }
}

/// The text names no traffic class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownClass;

impl fmt::Display for UnknownClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a traffic class; the classes are ")?;
        for (i, class) in Class::ALL.into_iter().enumerate() {
            write!(f, "{}{class}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownClass {}

/// A differentiated-services code point, `0..=63`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dscp(pub u8);

impl Dscp {
    /// Returns the whole IPv4 TOS (IPv6 traffic class) byte with this code point and no congestion
    /// mark.
    pub const fn tos(self) -> u8 {
        self.0 << 2
    }

    /// Creates the code point in a TOS byte; the two congestion bits are dropped.
    pub const fn from_tos(tos: u8) -> Self {
        Self(tos >> 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::string::ToString;

    #[test]
    fn marks__are_distinct_and_invertible() {
        let marks: BTreeSet<_> = Class::ALL.map(Class::dscp).into();
        assert_eq!(marks.len(), Class::ALL.len());
        for (i, class) in Class::ALL.into_iter().enumerate() {
            assert_eq!(class.index(), i);
            assert_eq!(Class::from_dscp(Dscp::from_tos(class.dscp().tos() | 0b11)), Some(class));
            assert_eq!(class.name().parse(), Ok(class));
        }
    }

    #[test]
    fn low_latency__is_expedited_forwarding_on_the_wire() {
        assert_eq!(Class::LowLatency.dscp().tos(), 0xb8);
        assert_eq!(Class::Bulk.dscp().tos(), 0x20);
        assert_eq!(Class::from_dscp(Dscp(63)), None);
    }

    #[test]
    fn parse__an_unknown_name_is_answered_with_the_known_ones() {
        let sentence = "lowlatency".parse::<Class>().unwrap_err().to_string();
        assert!(
            sentence.ends_with("control, low-latency, best-effort, bulk, scavenger"),
            "{sentence}"
        );
    }
}
