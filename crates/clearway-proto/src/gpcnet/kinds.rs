//! The published tests and congestors: names, sizes, loop counts, and what a duration becomes as a
//! figure.
//!
//! # Source
//! GPCNeT v1.3: its defaults, which "official" runs may not change.

use alloc::format;
use alloc::string::String;

use serde::{Deserialize, Serialize};

use super::defects::{CorrectedDefects, Defect};
use crate::base::{Bytes, Nanos};
use crate::wire::OperationKind;

/// Messages to each neighbour that a bandwidth test keeps under way.
pub(super) const OUTSTANDING: u32 = 8;
/// Ranks up to which an alltoall test makes its full number of iterations.
const ALLTOALL_RANKS: u64 = 64;
/// Ranks up to which a congestor makes its full number of iterations.
const CONGESTOR_RANKS: u64 = 32;
/// One MiB, as a figure.
const MIB: f64 = 1_048_576.0;

/// What a figure is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Microseconds: less is better.
    Usec,
    /// MiB a second and rank, of what it sends: more is better.
    Rate,
}

impl Unit {
    /// Returns the name as the table prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Usec => "usec",
            Self::Rate => "MiB/s/rank",
        }
    }
}

/// How often a test does what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Measurements, if the time suffices.
    pub measurements: u32,
    /// Rings of one measurement; 1 where there are none.
    pub rings: u32,
    /// Timed iterations on each ring.
    pub iterations: u32,
    /// Untimed iterations before them.
    pub warm_up: u32,
}

/// A test whose figures stand in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Test {
    /// 8 bytes to and from both neighbours of a random ring.
    Latency,
    /// 8 bytes read from both neighbours of a random ring.
    GetLatency,
    /// 8 messages of 128 KiB to and from both neighbours of a random ring.
    Bandwidth,
    /// 8 writes of 128 KiB to both neighbours of a random ring.
    PutBandwidth,
    /// As `Bandwidth`, then a barrier.
    BandwidthSync,
    /// As `Bandwidth`, on the ring of ranks in their order.
    NaturalBandwidth,
    /// A sum of 8 bytes over a slice of the nodes.
    Allreduce,
    /// 4 KiB from each to each in a slice of the nodes.
    Alltoall,
}

impl Test {
    /// Those of the network test, in its order.
    pub const NETWORK: [Self; 8] = [
        Self::Latency,
        Self::GetLatency,
        Self::Bandwidth,
        Self::PutBandwidth,
        Self::BandwidthSync,
        Self::NaturalBandwidth,
        Self::Allreduce,
        Self::Alltoall,
    ];
    /// Those of the network load test, in its order.
    pub const LOAD: [Self; 3] = [Self::Latency, Self::BandwidthSync, Self::Allreduce];

    /// Returns the name without the size, as in the titles of long tables.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Latency => "RR Two-sided Lat",
            Self::GetLatency => "RR Get Lat",
            Self::Bandwidth => "RR Two-sided BW",
            Self::PutBandwidth => "RR Put BW",
            Self::BandwidthSync => "RR Two-sided BW+Sync",
            Self::NaturalBandwidth => "Nat Two-sided BW",
            Self::Allreduce => "Multiple Allreduce",
            Self::Alltoall => "Multiple Alltoall",
        }
    }

    /// Returns the name in the rows of tables.
    pub fn name(self) -> String {
        format!("{} ({} B)", self.title(), self.message().0)
    }

    /// Returns the bytes of one message.
    pub const fn message(self) -> Bytes {
        match self {
            Self::Latency | Self::GetLatency | Self::Allreduce => Bytes(8),
            Self::Alltoall => Bytes(4096),
            _ => Bytes(131_072),
        }
    }

    /// Returns what its figures are counted in.
    pub const fn unit(self) -> Unit {
        match self {
            Self::Latency | Self::GetLatency | Self::Allreduce => Unit::Usec,
            _ => Unit::Rate,
        }
    }

    /// Returns the loop counts among `ranks` of one slice.
    pub const fn counts(self, ranks: usize) -> Counts {
        let (measurements, rings, iterations, warm_up) = match self {
            Self::Latency | Self::GetLatency => (10_000, 30, 200, 200),
            Self::Allreduce => (100_000, 1, 200, 1),
            Self::Alltoall => (10_000, 1, scaled(64, ALLTOALL_RANKS, ranks), 1),
            _ => (10_000, 30, 8, 1),
        };
        Counts { measurements, rings, iterations, warm_up }
    }

    /// Returns the one-sided operation without which a wire cannot carry it.
    pub const fn needs(self) -> Option<OperationKind> {
        match self {
            Self::GetLatency => Some(OperationKind::Read),
            Self::PutBandwidth => Some(OperationKind::Write),
            _ => None,
        }
    }

    /// Returns whether neighbours are drawn, by [`super::Layout`]'s random rings.
    pub(super) const fn has_rings(self) -> bool {
        !matches!(self, Self::Allreduce | Self::Alltoall)
    }

    /// Returns the figure of one iteration that took `time` among `ranks` of a slice.
    pub(super) fn figure(self, time: f64, ranks: usize) -> f64 {
        let sent = |messages: u64| (messages * self.message().0) as f64 / MIB / (time / 1e9);
        match self {
            // Two messages at the same time: half of it.
            Self::Latency | Self::GetLatency => time / 2e3,
            Self::Allreduce => time / 1e3,
            Self::Alltoall => sent(ranks as u64 - 1),
            _ => sent(2 * u64::from(OUTSTANDING)),
        }
    }
}

/// Returns `full` iterations up to `base` ranks, fewer in proportion beyond, but one.
const fn scaled(full: u64, base: u64, ranks: usize) -> u32 {
    let ranks = ranks as u64;
    if ranks <= base {
        return full as u32;
    }
    let fewer = full * base / ranks;
    if fewer == 0 { 1 } else { fewer as u32 }
}

/// A pattern that loads the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Congestor {
    /// Each exchanges 4 KiB with each, one after the other.
    Alltoall,
    /// All send 4 KiB to the first.
    Incast,
    /// All write 4 KiB into the memory of the first.
    PutIncast,
    /// All read the same 4 KiB of the first.
    GetBroadcast,
}

impl Congestor {
    /// All of them; the remainder of a shuffled number by four is a place in this list.
    pub const ALL: [Self; 4] = [Self::Alltoall, Self::Incast, Self::PutIncast, Self::GetBroadcast];
    /// Passes until a congestor begins anew.
    pub const MEASUREMENTS: u32 = 256;

    /// Returns the name in the rows of tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alltoall => "Alltoall (4096 B)",
            Self::Incast => "Two-sided Incast (4096 B)",
            Self::PutIncast => "Put Incast (4096 B)",
            Self::GetBroadcast => "Get Bcast (4096 B)",
        }
    }

    /// Returns the bytes of one message.
    pub const fn message(self) -> Bytes {
        Bytes(4096)
    }

    /// Iterations of one pass among `ranks` of a group.
    pub const fn iterations(self, ranks: usize, mended: CorrectedDefects) -> u32 {
        match self {
            Self::GetBroadcast if !mended.has(Defect::UnscaledBroadcast) => 512,
            _ => scaled(512, CONGESTOR_RANKS, ranks),
        }
    }

    /// Returns the one-sided operation without which a wire cannot carry it.
    pub const fn needs(self) -> Option<OperationKind> {
        match self {
            Self::PutIncast => Some(OperationKind::Write),
            Self::GetBroadcast => Some(OperationKind::Read),
            Self::Alltoall | Self::Incast => None,
        }
    }

    /// Returns MiB a second and rank when one iteration among `ranks` took `time` nanoseconds.
    pub(super) fn figure(self, time: f64, ranks: usize) -> f64 {
        let messages = if self == Self::Alltoall { ranks as u64 - 1 } else { 1 };
        (messages * self.message().0) as f64 / MIB / (time / 1e9)
    }
}

/// How long a test may go on before it is ended (GPCNeT: 10 s).
pub const LIMIT: Nanos = Nanos::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name__is_as_printed_by_the_original() {
        let names = Test::NETWORK.map(Test::name);
        let printed = [
            "RR Two-sided Lat (8 B)",
            "RR Get Lat (8 B)",
            "RR Two-sided BW (131072 B)",
            "RR Put BW (131072 B)",
            "RR Two-sided BW+Sync (131072 B)",
            "Nat Two-sided BW (131072 B)",
            "Multiple Allreduce (8 B)",
            "Multiple Alltoall (4096 B)",
        ];
        assert_eq!(names, printed);
    }

    #[test]
    fn counts__shrink_beyond_the_base_and_end_at_one() {
        let iterations = |ranks| Test::Alltoall.counts(ranks).iterations;
        assert_eq!([2, 64, 65, 128, 4096, 10_000].map(iterations), [64, 64, 63, 32, 1, 1]);
        let passes = |ranks| Congestor::Incast.iterations(ranks, CorrectedDefects::NONE);
        assert_eq!([2, 32, 33, 64, 20_000].map(passes), [512, 512, 496, 256, 1]);
    }

    #[test]
    fn iterations__of_the_get_broadcast_shrink_only_when_mended() {
        assert_eq!(Congestor::GetBroadcast.iterations(64, CorrectedDefects::NONE), 512);
        assert_eq!(Congestor::GetBroadcast.iterations(64, CorrectedDefects::ALL), 256);
    }

    #[test]
    fn figure__of_known_durations() {
        assert_eq!(Test::Latency.figure(5_000.0, 4), 2.5);
        assert_eq!(Test::Allreduce.figure(5_000.0, 4), 5.0);
        // Sixteen messages of 128 KiB are 2 MiB; in a millisecond, 2000 MiB/s.
        assert_eq!(Test::Bandwidth.figure(1e6, 4), 2000.0);
        // Three messages of 4 KiB are 12 KiB.
        assert_eq!(Test::Alltoall.figure(1e9 / 1024.0, 4), 12.0);
        assert_eq!(Congestor::PutIncast.figure(1e9 / 1024.0, 4), 4.0);
    }
}
