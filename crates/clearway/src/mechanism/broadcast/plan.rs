//! What one run of broadcasts is: ways, lengths, losses, and what goes wrong on purpose.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use clearway_proto::base::{BitsPerSec, Bytes, Nanos};
use clearway_proto::broadcast::{Algorithm, Costs, MulticastReach, NetworkConditions};
use serde::{Deserialize, Serialize};

use crate::scenario::RankAt;

/// How an object reaches all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CastMode {
    /// By multicast where the wire has it, else by what costs less.
    Auto,
    Multicast,
    Chain,
    Tree,
    /// Multicast within each leaf, a chain from leaf to leaf.
    Segments,
}

impl CastMode {
    /// Returns the name used on the command line and in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Multicast => "multicast",
            Self::Chain => "chain",
            Self::Tree => "tree",
            Self::Segments => "segments",
        }
    }

    /// Returns how symbols leave at first, under `circumstances`.
    pub(super) fn way(
        self,
        circumstances: &NetworkConditions,
        multicast: MulticastReach,
    ) -> Algorithm {
        match self {
            // Multicast loads the network least, and whether it reaches all is found out on the
            // way.
            Self::Auto if multicast == MulticastReach::All => Algorithm::Multicast,
            Self::Auto => Costs::new(circumstances, MulticastReach::Some).best(),
            Self::Multicast => Algorithm::Multicast,
            Self::Chain => Algorithm::Chain,
            Self::Tree => Algorithm::Tree,
            Self::Segments => Algorithm::Segments,
        }
    }
}

/// A share in millionths, written as a fraction: 0.001.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub(crate) struct Millionths(pub(crate) u32);

/// Above this nothing of use arrives.
const SHARE_MAX: f64 = 0.5;

impl TryFrom<f64> for Millionths {
    type Error = String;

    fn try_from(share: f64) -> Result<Self, String> {
        match share {
            _ if (0.0..=SHARE_MAX).contains(&share) => Ok(Self((share * 1e6).round() as u32)),
            _ => Err(format!("`{share}` is no share; 0 to {SHARE_MAX} work, as in 0.001")),
        }
    }
}

impl FromStr for Millionths {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let share: f64 = text.parse().map_err(|_| format!("`{text}` is no share; 0.001 works"))?;
        Self::try_from(share)
    }
}

impl From<Millionths> for f64 {
    fn from(share: Millionths) -> Self {
        Self::from(share.0) / 1e6
    }
}

impl fmt::Display for Millionths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f64::from(*self))
    }
}

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct BroadcastPlan {
    pub(crate) ranks: u32,
    /// Leaves of the network that ranks hang at, as many at each; a simulated fabric has its own.
    pub(crate) leaves: u32,
    pub(crate) modes: Vec<CastMode>,
    /// Longer objects are cast by the first mode only.
    pub(crate) modes_up_to: Option<Bytes>,
    /// Bytes of objects.
    pub(crate) lengths: Vec<Bytes>,
    /// Shares of what arrives that are lost, at every rank.
    pub(crate) losses: Vec<Millionths>,
    /// Objects of each length; by their length without it.
    pub(crate) objects: Option<u32>,
    /// Of every rank's link.
    pub(crate) rate: Option<BitsPerSec>,
    /// How long somebody may be silent.
    pub(crate) silence: Nanos,
    /// Ranks that die, after the first object was cast.
    pub(crate) kills: Vec<RankAt>,
    /// Ranks that stand still after the first object was cast, and for how long.
    pub(crate) stops: Vec<(RankAt, Nanos)>,
    /// So long after the first object was cast the network filters the group.
    pub(crate) filter: Option<Nanos>,
    pub(crate) seed: u64,
}

/// How long objects of one length are cast one by one.
const LONG_TIME: Nanos = Nanos::from_secs(4);
/// Long objects that are enough for a median and a p99 that means something to a person.
const LONG_MAX: u64 = 200;
/// Short ones.
pub(super) const SHORT: u32 = 1000;
/// What is assumed where nobody knows the rate of links.
const RATE: BitsPerSec = BitsPerSec::mega(1_000);

impl BroadcastPlan {
    /// Returns the modes by which objects of `length` are cast.
    pub(super) fn modes_of(&self, length: Bytes) -> &[CastMode] {
        let is_for_all = self.modes_up_to.is_none_or(|most| length <= most);
        self.modes.get(..if is_for_all { self.modes.len() } else { 1 }).unwrap_or(&self.modes)
    }

    /// Returns how many ranks there are at each leaf.
    pub(super) const fn per_leaf(&self) -> u32 {
        self.ranks.div_ceil(self.leaves)
    }

    /// Returns how many objects of `length` are cast one by one.
    pub(super) fn objects_of(&self, length: Bytes) -> u32 {
        let each = self.rate.unwrap_or(RATE).time_for(length).0.max(1);
        self.objects.unwrap_or((LONG_TIME.0 / each).clamp(1, LONG_MAX) as u32)
    }

    /// Returns what the cost of ways depends on.
    pub(super) fn circumstances(
        &self,
        length: Bytes,
        symbol: Bytes,
        latency: Nanos,
        loss: Millionths,
    ) -> NetworkConditions {
        NetworkConditions {
            receivers: self.ranks.saturating_sub(1),
            length,
            symbol,
            rate: self.rate.unwrap_or(RATE),
            latency,
            lost: loss.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share__is_a_fraction_up_to_a_half() {
        assert_eq!("0.001".parse(), Ok(Millionths(1000)));
        assert_eq!(Millionths(1000).to_string(), "0.001");
        for text in ["-0.1", "0.6", "1 %", "NaN", ""] {
            assert!(text.parse::<Millionths>().is_err(), "{text}");
        }
    }
}
