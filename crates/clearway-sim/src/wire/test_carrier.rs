//! A carrier without queues or switches: each host sends one message after another at one rate,
//! each arrives one latency later. Tests use it where the fabric's own behaviour would be in the
//! way.

use std::collections::{BTreeMap, BTreeSet};

use clearway_proto::base::GroupId;

use super::Carrier;
use crate::fabric::{EcnMark, Notice, NoticeSet, Payload, SendRequest, Target};
use crate::graph::DeviceId;
use crate::time::{Pace, Picos};

/// The carrier.
#[derive(Debug)]
pub(crate) struct TestCarrier {
    now: Picos,
    pace: Pace,
    latency: Picos,
    busy: Vec<Picos>,
    events: BTreeMap<(Picos, u64), Notice>,
    count: u64,
    orders: u64,
    groups: BTreeMap<GroupId, BTreeSet<DeviceId>>,
    /// One order in this many is lost.
    pub(crate) lose: u64,
    /// One order in this many is damaged.
    pub(crate) damage: u64,
}

impl TestCarrier {
    /// Hosts that send at `pace`, `latency` apart.
    pub(crate) fn new(hosts: u32, pace: Pace, latency: Picos) -> Self {
        Self {
            now: Picos::ZERO,
            pace,
            latency,
            busy: vec![Picos::ZERO; hosts as usize],
            events: BTreeMap::new(),
            count: 0,
            orders: 0,
            groups: BTreeMap::new(),
            lose: u64::MAX,
            damage: u64::MAX,
        }
    }

    fn put(&mut self, at: Picos, notice: Notice) {
        self.events.insert((at, self.count), notice);
        self.count += 1;
    }
}

impl Carrier for TestCarrier {
    fn now(&self) -> Picos {
        self.now
    }

    fn post(&mut self, at: Picos, order: SendRequest) {
        assert!(at >= self.now, "{at:?} is before {:?}", self.now);
        self.orders += 1;
        let SendRequest { from, to, bytes, reports, tag, .. } = order;
        let left = self.busy[from.index()].max(at) + self.pace.time(bytes as u32).max(Picos(1));
        self.busy[from.index()] = left;
        if reports != NoticeSet::Delivery {
            self.put(left, Notice::Sent { tag, from, at: left });
        }
        let targets: Vec<DeviceId> = match to {
            Target::Host(host) => vec![host],
            Target::Group(group) => {
                self.groups[&group].iter().copied().filter(|host| *host != from).collect()
            }
            Target::Range(first, last) => {
                (first.0..=last.0).map(DeviceId).filter(|host| *host != from).collect()
            }
        };
        let (marked, there) = (EcnMark::No, left + self.latency);
        if self.orders.is_multiple_of(self.lose) {
            targets.iter().for_each(|to| self.put(there, Notice::Lost { tag, to: *to, at: there }));
            return;
        }
        let payload = if self.orders.is_multiple_of(self.damage) {
            Payload::Corrupt
        } else {
            Payload::Intact
        };
        targets.iter().for_each(|to| {
            self.put(there, Notice::Delivered { tag, to: *to, at: there, marked, payload })
        });
        if reports == NoticeSet::All {
            let back = there + self.latency;
            self.put(back, Notice::Acknowledged { tag, from, at: back });
        }
    }

    fn next(&self) -> Option<Picos> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    fn advance(&mut self, until: Picos, notices: &mut Vec<Notice>) -> Picos {
        self.now = self.next().map_or(until, |next| next.min(until)).max(self.now);
        while let Some(entry) = self.events.first_entry()
            && entry.key().0 <= self.now
        {
            notices.push(entry.remove());
        }
        self.now
    }

    fn join(&mut self, group: GroupId, host: DeviceId) {
        self.groups.entry(group).or_default().insert(host);
    }

    fn digest(&self) -> u128 {
        u128::from(self.orders) << 64 | u128::from(self.now.0)
    }
}
