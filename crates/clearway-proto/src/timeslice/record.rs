//! What a node counted: taken by the application at the end of a window, or read while it runs.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::policy::{Cause, IntervalRecord};
use crate::base::{LocalNs, Nanos};
use crate::stats::Histogram;

/// What an input counted since its record was begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputRecord {
    /// Contributions posted.
    pub contributions: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Contributions whose room at the builder is free again.
    pub released: u64,
    /// How long nothing could be posted, by [`Cause::ALL`].
    pub blocked: [Nanos; Cause::ALL.len()],
    /// Messages that made no sense and changed nothing.
    pub strangers: u64,
}

/// What a builder counted since its record was begun.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BuilderRecord {
    /// Timeslices complete, those without some input included.
    pub timeslices: u64,
    /// Contributions landed.
    pub contributions: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Contributions that came twice and were dropped.
    pub doubled: u64,
    /// From the first to the last contribution of a timeslice, in ns.
    pub completion: Box<Histogram>,
    /// Bytes in the ring of a connection, in millionths of its length: all connections at the end
    /// of each timeslice.
    pub fill: Box<Histogram>,
    /// Contributions let in at a time, at the end; none where the policy does not grant.
    pub window: Option<u32>,
    /// Intervals that every input has reported, at most the first 4096 since the last call; empty
    /// where the policy has none.
    pub intervals: Vec<IntervalRecord>,
    /// Messages that made no sense and changed nothing.
    pub strangers: u64,
}

/// What a rank counted.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimesliceRecord {
    /// It is an input.
    Input(InputRecord),
    /// It is a builder.
    Builder(BuilderRecord),
}

/// Adds up for how long which cause held an input.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BlockedTimes {
    since: Option<(LocalNs, Cause)>,
    sums: [Nanos; Cause::ALL.len()],
}

impl BlockedTimes {
    /// Records that from `now` on `cause` holds it, or nothing does.
    pub(super) fn turn(&mut self, now: LocalNs, cause: Option<Cause>) {
        if let Some((since, cause)) = self.since {
            let sum = &mut self.sums[cause as usize];
            *sum = *sum + now.since(since);
        }
        self.since = cause.map(|cause| (now, cause));
    }

    /// Returns the sums up to `now`, which begin anew.
    pub(super) fn take(&mut self, now: LocalNs) -> [Nanos; Cause::ALL.len()] {
        self.turn(now, self.since.map(|(_, cause)| cause));
        core::mem::take(&mut self.sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocked__adds_up_by_cause() {
        let mut blocked = BlockedTimes::default();
        blocked.turn(LocalNs(10), Some(Cause::NoCredit));
        blocked.turn(LocalNs(15), None);
        blocked.turn(LocalNs(20), Some(Cause::NoMicroslices));
        blocked.turn(LocalNs(22), Some(Cause::NoCredit));
        assert_eq!(blocked.take(LocalNs(30)), [Nanos(2), Nanos(13), Nanos(0), Nanos(0)]);
        assert_eq!(blocked.take(LocalNs(31))[Cause::NoCredit as usize], Nanos(1));
    }
}
