//! Which messages took longest from their post to their delivery.
//!
//! # Invariants
//! I1. Of equally slow messages those with the lower names come first, so every run gives the same
//!     list.

use clearway_proto::base::Class;

use super::{MessageId, TraceMode};
use crate::fabric::Fabric;
use crate::fabric::parts::Message;
use crate::graph::DeviceId;
use crate::time::Picos;

/// Messages on the list: what a person reads.
const LIST_MAX: usize = 10;

/// Among which messages the slowest are looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageSelection {
    /// Of this class only.
    pub class: Option<Class>,
    /// Between these hosts only, in order; between all when there are none.
    pub hosts: Vec<DeviceId>,
}

/// A slow message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankedMessage {
    /// Which.
    pub id: MessageId,
    /// The device that got it.
    pub to: DeviceId,
    /// Its length without headers.
    pub bytes: u64,
    /// When it was posted.
    pub posted: Picos,
    /// From post to delivery.
    pub latency: Picos,
}

/// The slowest so far.
#[derive(Debug)]
pub(in crate::fabric) struct Ranking {
    among: MessageSelection,
    /// By the fabric's record of a message.
    posted: Vec<u64>,
    list: Vec<RankedMessage>,
}

impl Ranking {
    pub(super) fn posted(&mut self, message: u32, at: u64) {
        if self.posted.len() <= message as usize {
            self.posted.resize(message as usize + 1, 0);
        }
        self.posted[message as usize] = at;
    }

    pub(super) fn delivered(
        &mut self,
        place: u32,
        message: &Message,
        class: u8,
        to: u32,
        now: u64,
    ) {
        let MessageSelection { class: wanted, hosts } = &self.among;
        let among = |host: u32| hosts.is_empty() || hosts.binary_search(&DeviceId(host)).is_ok();
        if wanted.is_some_and(|wanted| wanted.index() != usize::from(class))
            || !among(message.from)
            || !among(to)
        {
            return;
        }
        let Some(posted) = self.posted.get(place as usize) else { return };
        let (id, to, posted) = (MessageId::from_key(message.id), DeviceId(to), Picos(*posted));
        let slow =
            RankedMessage { id, to, bytes: message.bytes, posted, latency: Picos(now) - posted };
        let behind = |other: &RankedMessage| {
            (other.latency, std::cmp::Reverse(other.id)) > (slow.latency, std::cmp::Reverse(id))
        };
        let at = self.list.partition_point(behind);
        if at < LIST_MAX {
            self.list.truncate(LIST_MAX - 1);
            self.list.insert(at, slow);
        }
    }
}

impl Fabric {
    /// Lists the slowest messages posted from now on. A message that was watched before is
    /// forgotten.
    pub fn rank_slowest(&mut self, among: MessageSelection) {
        self.watch =
            TraceMode::Slowest(Box::new(Ranking { among, posted: Vec::new(), list: Vec::new() }));
    }

    /// Returns the slowest messages that were delivered so far, the slowest first.
    pub fn slowest(&self) -> &[RankedMessage] {
        if let TraceMode::Slowest(ranking) = &self.watch { &ranking.list } else { &[] }
    }
}
