//! Finds lanes that wait while their port sends others.
//!
//! # Model
//! Looked at from time to time: a lane that had packets at both of two looks, sent none in between
//! although its port sent others, and was not there before, waited at least as long as the looks
//! are apart.

use crate::fabric::Fabric;
use crate::graph::ChannelId;

/// What was seen at the last look.
#[derive(Debug, Default)]
pub(super) struct StarvationDetector {
    /// By channel: lanes that waited, and packets that each lane had sent.
    before: Vec<(u32, Vec<u64>)>,
}

impl StarvationDetector {
    /// Returns the lanes of `fabric` that starved since the last look, by channel and lane.
    pub(super) fn look(&mut self, fabric: &Fabric) -> Vec<(ChannelId, u32)> {
        let channels = (0..fabric.graph().channels().len() as u32).map(ChannelId);
        let now: Vec<(u32, Vec<u64>)> = channels
            .map(|channel| {
                let sent = fabric.lane_statistics(channel).iter().map(|lane| lane.packets);
                (fabric.waiting(channel), sent.collect())
            })
            .collect();
        let mut starved = Vec::new();
        for (channel, ((before, sent_before), (waiting, sent))) in
            (0u32..).zip(self.before.iter().zip(&now))
        {
            let idle = |lane: usize| sent[lane] == sent_before[lane];
            if before & waiting == 0 || (0..sent.len()).all(idle) {
                continue;
            }
            let lanes =
                (0..sent.len()).filter(|lane| before & waiting & 1 << lane != 0 && idle(*lane));
            starved.extend(lanes.map(|lane| (ChannelId(channel), lane as u32)));
        }
        self.before = now;
        starved
    }
}
