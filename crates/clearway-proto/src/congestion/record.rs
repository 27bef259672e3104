//! What one rank saw in one phase: samples and bytes by peer and time slice.
//!
//! # Invariants
//! I1. Slices are numbered from the phase's beginning and ascend within a series.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::base::{Bytes, Class, Nanos, Rank};
use crate::stats::Histogram;

/// What a histogram of times measures, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// From the stamp at the send to the arrival stamp. The peer is the sender.
    OneWay,
    /// From the intended request to the arrival of the reply. The peer is the answerer.
    RoundTrip,
    /// From the beginning to the end of an iteration. The peer is the rank itself.
    Iteration,
    /// From the intended to the real send: the processor's share. The peer is the addressee.
    SendLag,
}

/// Times of one metric with one peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// What is measured.
    pub metric: Metric,
    /// With whom.
    pub peer: Rank,
    /// Histograms of the slices that have samples, by slice of the *intended* send (or the
    /// iteration's beginning).
    pub slices: Vec<(u32, Histogram)>,
}

/// How many timed messages went to one peer, by slice of the intended send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentSeries {
    /// To whom.
    pub peer: Rank,
    /// Messages in each slice that has any.
    pub slices: Vec<(u32, u64)>,
}

/// What arrived in one slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceBytes {
    /// Which slice.
    pub slice: u32,
    /// Messages.
    pub messages: u64,
    /// Bytes of their bodies.
    pub body: u64,
    /// Bytes on the link, all headers included.
    pub link: u64,
}

/// Load that arrived at this rank from one peer in one class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadSeries {
    /// From whom.
    pub peer: Rank,
    /// The class the sender asked for.
    pub class: Class,
    /// By slice of the arrival.
    pub slices: Vec<SliceBytes>,
    /// The longest time between two arrivals.
    pub longest_gap: Nanos,
}

/// How often a message of class `asked` arrived with which mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkCount {
    /// What the sender asked for.
    pub asked: Class,
    /// What the packet said on arrival; `None` is a mark that belongs to no class.
    pub arrived: Option<Class>,
    /// Messages.
    pub messages: u64,
}

/// Everything that one rank recorded in one phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseRecord {
    /// The phase.
    pub number: u32,
    /// Times.
    pub series: Vec<Series>,
    /// Timed messages sent.
    pub sent: Vec<SentSeries>,
    /// Load received.
    pub load: Vec<LoadSeries>,
    /// Marks on arrival.
    pub marks: Vec<MarkCount>,
    /// Link bytes of load that the schedule asked for.
    pub offered: Bytes,
    /// Link bytes of load that this rank's own transmit queue refused.
    pub refused: Bytes,
    /// Link bytes of load that were due while the processor was elsewhere for too long, and were
    /// left out.
    pub skipped: Bytes,
    /// Messages sent again because they seemed lost.
    pub resent: u64,
    /// Arrivals that were no frame of this phase.
    pub foreign: u64,
}

impl PhaseRecord {
    /// Adds a time.
    pub(super) fn time(&mut self, metric: Metric, peer: Rank, slice: u32, value: Nanos) {
        self.times(metric, peer, slice).record(value.0);
    }

    /// Adds something that began and did not end while anyone listened.
    pub(super) fn never(&mut self, metric: Metric, peer: Rank, slice: u32) {
        self.times(metric, peer, slice).record_infinite(1);
    }

    fn times(&mut self, metric: Metric, peer: Rank, slice: u32) -> &mut Histogram {
        let place =
            self.series.iter().position(|s| s.metric == metric && s.peer == peer).unwrap_or_else(
                || {
                    self.series.push(Series { metric, peer, slices: Vec::new() });
                    self.series.len() - 1
                },
            );
        slot(&mut self.series[place].slices, slice)
    }

    /// Counts a timed message to `peer`.
    pub(super) fn count_sent(&mut self, peer: Rank, slice: u32) {
        let slices = match self.sent.iter_mut().find(|s| s.peer == peer) {
            Some(series) => &mut series.slices,
            None => {
                self.sent.push(SentSeries { peer, slices: Vec::new() });
                &mut self.sent.last_mut().expect("just pushed").slices
            }
        };
        *slot(slices, slice) += 1;
    }

    /// Counts a mark.
    pub(super) fn count_mark(&mut self, asked: Class, arrived: Option<Class>) {
        match self.marks.iter_mut().find(|m| m.asked == asked && m.arrived == arrived) {
            Some(mark) => mark.messages += 1,
            None => self.marks.push(MarkCount { asked, arrived, messages: 1 }),
        }
    }
}

/// Returns the entry for `slice` in an ascending list, made if missing. Cheap when `slice` is among
/// the last.
fn slot<T: Default>(slices: &mut Vec<(u32, T)>, slice: u32) -> &mut T {
    let mut at = slices.len();
    while at > 0 && slices[at - 1].0 > slice {
        at -= 1;
    }
    if at == 0 || slices[at - 1].0 != slice {
        slices.insert(at, (slice, T::default()));
    } else {
        at -= 1;
    }
    &mut slices[at].1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot__late_slices_find_their_place() {
        let mut slices: Vec<(u32, u64)> = Vec::new();
        for slice in [5, 3, 5, 9, 4, 3] {
            *slot(&mut slices, slice) += 1;
        }
        assert_eq!(slices, [(3, 2), (4, 1), (5, 2), (9, 1)]);
    }
}
