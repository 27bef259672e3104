//! Durations and instants in nanoseconds; an instant belongs to one node's clock and cannot meet
//! another's.
//!
//! # Model
//! [`LocalNs`] is this node's monotonic clock. A stamp that arrives in a packet decodes to
//! [`PeerNs`], which has no comparison with `LocalNs`. Two roads lead from one to the other: a
//! clock estimate (offset, drift, error bound), or the proof that both nodes read the same clock,
//! which only a wire can give ([`SharedClock`]).
//!
//! # Invariants
//! I1. Arithmetic saturates: a stamp from outside can be wrong, it cannot overflow.
//!
//! # Not here
//! Reading a clock: `clearway-runtime`, or the simulator's virtual time.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

/// A length of time in nanoseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest length that can be written; stands for "never arrived" only inside statistics.
    pub const MAX: Self = Self(u64::MAX);

    /// Converts `us` microseconds, saturating.
    pub const fn from_micros(us: u64) -> Self {
        Self(us.saturating_mul(1_000))
    }

    /// Converts `ms` milliseconds, saturating.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// Converts `s` seconds, saturating.
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000_000))
    }

    /// Returns this length in microseconds, as a figure for a person.
    pub fn as_micros_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// Returns this length in seconds, as a figure for a person.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Returns `self * factor`, saturating.
    pub const fn times(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }

    /// Returns how many whole `step`s fit into this length; zero when `step` is zero.
    pub const fn steps_of(self, step: Self) -> u64 {
        match self.0.checked_div(step.0) {
            Some(n) => n,
            None => 0,
        }
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Nanos {
    type Output = Self;
    /// Saturates at zero.
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Nanos {
    /// Returns three significant digits in the largest unit that fits: `11.5 ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scale, unit) = match self.0 {
            0..1_000 => return write!(f, "{} ns", self.0),
            1_000..1_000_000 => (1e3, "us"),
            1_000_000..1_000_000_000 => (1e6, "ms"),
            _ => (1e9, "s"),
        };
        let value = self.0 as f64 / scale;
        let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
        write!(f, "{value:.digits$} {unit}")
    }
}

/// An instant on this node's monotonic clock, in nanoseconds since an origin of its own.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct LocalNs(pub u64);

impl LocalNs {
    /// Returns the time from `earlier` to `self`; zero when `earlier` is later.
    pub const fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Nanos> for LocalNs {
    type Output = Self;
    fn add(self, length: Nanos) -> Self {
        Self(self.0.saturating_add(length.0))
    }
}

impl AddAssign<Nanos> for LocalNs {
    fn add_assign(&mut self, length: Nanos) {
        *self = *self + length;
    }
}

/// An instant on some peer's clock, as it arrived in a packet. It compares with nothing.
///
/// ```compile_fail
/// use clearway_proto::base::{LocalNs, PeerNs};
/// let late = LocalNs(5) > PeerNs(3);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerNs(pub u64);

impl PeerNs {
    /// Returns this stamp as an instant of the local clock, given the proof that both nodes read
    /// the same one.
    pub const fn on(self, _proof: SharedClock) -> LocalNs {
        LocalNs(self.0)
    }
}

/// The proof that all ranks of a job read one clock: virtual hosts of one machine do, machines of a
/// cluster do not.
///
/// Only the author of a wire can say so; everyone else finds it in the wire's capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedClock(());

impl SharedClock {
    /// Asserts that every rank reads the same physical clock. For wires only.
    pub const fn asserted_by_wire() -> Self {
        Self(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn nanos__prints_three_digits_in_the_largest_unit() {
        let shown: alloc::vec::Vec<_> =
            [7, 1_500, 11_520_000, 115_000, 4_000_000_000].map(|n| Nanos(n).to_string()).into();
        assert_eq!(shown, ["7 ns", "1.50 us", "11.5 ms", "115 us", "4.00 s"]);
    }

    #[test]
    fn since__an_earlier_instant_that_is_later_gives_zero() {
        assert_eq!(LocalNs(5).since(LocalNs(9)), Nanos::ZERO);
        assert_eq!(LocalNs(9).since(LocalNs(5)), Nanos(4));
    }

    #[test]
    fn add__saturates_at_the_end_of_time() {
        assert_eq!(LocalNs(u64::MAX) + Nanos(1), LocalNs(u64::MAX));
        assert_eq!(Nanos::from_secs(u64::MAX), Nanos(u64::MAX));
    }
}
