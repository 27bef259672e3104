//! Reservations, shares and limits of several streams on one resource.
//!
//! # Model
//! Each stream has a weight, a rate that it gets at least (reservation), whatever its weight, and a
//! rate that it does not exceed (limit). The request at the head of a stream has three tags: when
//! the reservation has paid for it, when the limit allows it, and its turn by weight.
//! ```text
//!   R = max(arrival, R' + cost / reservation)      L = max(arrival, L' + cost / limit)
//!   W = max(virtual time, W' + cost / weight)
//! ```
//! Served is the smallest R that is due; else, of the streams whose L is due, the smallest W. What is
//! served by weight is not charged to the reservation: R' stays. In R the arrival counts only where
//! nothing waited before: a stream that is served late, behind a long request, is not late for ever.
//!
//! # Source
//! Gulati, Merchant, Varman, "mClock: handling throughput variability for hypervisor IO scheduling"
//! (OSDI 2010). Tags here are integers, costs are bytes.
//!
//! # Invariants
//! I1. While streams wait and a limit allows one of them, one is served.
//! I2. A stream that was idle saves nothing: its tags begin at its arrival and at the virtual time.

use alloc::collections::{BTreeMap, VecDeque};

use crate::base::{BitsPerSec, Bytes, LocalNs};

/// What a stream is entitled to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceShare {
    /// What it gets at least; zero for nothing.
    pub reservation: BitsPerSec,
    /// Its part, in proportion to others; at least 1.
    pub weight: u32,
    /// What it does not exceed.
    pub limit: Option<BitsPerSec>,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceChoice<K> {
    /// Serves the head of this stream.
    Serve(K),
    /// Waits: until then a limit forbids everything that is there.
    Wait(LocalNs),
    /// Nothing is there.
    Idle,
}

#[derive(Clone, Debug)]
struct Stream {
    share: ServiceShare,
    waiting: VecDeque<WaitingRequest>,
    /// Tags of what was served last.
    served: StreamTags,
    /// Tags of the head.
    head: StreamTags,
}

#[derive(Clone, Copy, Debug)]
struct WaitingRequest {
    arrival: LocalNs,
    /// From when on the reservation pays for it: its arrival, if nothing waited before it. A stream
    /// that always had something keeps what its reservation owes it.
    reserved_from: LocalNs,
    cost: Bytes,
}

#[derive(Clone, Copy, Debug, Default)]
struct StreamTags {
    reservation: u128,
    limit: u128,
    turn: u128,
}

/// Chooses among streams.
#[derive(Clone, Debug)]
pub struct TagScheduler<K> {
    streams: BTreeMap<K, Stream>,
    /// The turn of what was served last.
    virtual_time: u128,
}

impl<K> Default for TagScheduler<K> {
    fn default() -> Self {
        Self { streams: BTreeMap::new(), virtual_time: 0 }
    }
}

/// Bits behind the point of all tags: the time of a byte is no whole number of nanoseconds.
const TAG_BITS: u32 = 32;

/// Returns an instant as a tag.
const fn tag(at: LocalNs) -> u128 {
    (at.0 as u128) << TAG_BITS
}

/// The greatest cost of a request; more would not fit in a tag.
const COST_MAX: u64 = 1 << 56;

/// Returns the time of `cost` at `rate` as a tag; without a rate, the end of time.
fn tag_time(cost: Bytes, rate: BitsPerSec) -> u128 {
    let bits_ns = u128::from(cost.0) * 8_000_000_000;
    (bits_ns << TAG_BITS).checked_div(u128::from(rate.0)).unwrap_or(u128::MAX)
}

impl<K: Ord + Copy> TagScheduler<K> {
    /// Adds a stream, or changes its share from the next head on.
    pub fn set_share(&mut self, key: K, share: ServiceShare) {
        let share = ServiceShare { weight: share.weight.max(1), ..share };
        let entry = self.streams.entry(key).or_insert_with(|| Stream {
            share,
            waiting: VecDeque::new(),
            served: StreamTags::default(),
            head: StreamTags::default(),
        });
        entry.share = share;
    }

    /// Removes a stream and what waits in it.
    pub fn remove(&mut self, key: K) {
        self.streams.remove(&key);
    }

    /// Adds a request of `cost` to a stream that has a share; others have none and do not wait.
    pub fn request(&mut self, now: LocalNs, key: K, cost: Bytes) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        let reserved_from = if stream.waiting.is_empty() { now } else { LocalNs(0) };
        let cost = Bytes(cost.0.min(COST_MAX));
        stream.waiting.push_back(WaitingRequest { arrival: now, reserved_from, cost });
        if stream.waiting.len() == 1 {
            stream.tag_head(self.virtual_time);
        }
    }

    /// Removes the newest request of a stream. The caller decides which of its requests a turn
    /// serves, so only their number and costs count.
    pub fn withdraw(&mut self, key: K) {
        if let Some(stream) = self.streams.get_mut(&key) {
            stream.waiting.pop_back();
        }
    }

    /// Removes all requests. The streams keep the tags of what was served.
    pub fn withdraw_all(&mut self) {
        self.streams.values_mut().for_each(|stream| stream.waiting.clear());
    }

    /// Chooses what is served at `now`; the head of the stream is taken with it.
    pub fn choose(&mut self, now: LocalNs) -> ServiceChoice<K> {
        let reserved = self
            .waiting()
            .filter(|(_, stream)| stream.head.reservation <= tag(now))
            .min_by_key(|(_, stream)| stream.head.reservation);
        if let Some((key, _)) = reserved {
            return self.serve(key, ServicePhase::Reserved);
        }
        let allowed = self.waiting().filter(|(_, stream)| stream.head.limit <= tag(now));
        if let Some((key, _)) = allowed.min_by_key(|(_, stream)| stream.head.turn) {
            return self.serve(key, ServicePhase::Weighted);
        }
        let next = self.waiting().map(|(_, stream)| stream.head.limit.min(stream.head.reservation));
        next.min().map_or(ServiceChoice::Idle, |at| {
            let at = at.div_ceil(1 << TAG_BITS);
            ServiceChoice::Wait(LocalNs(u64::try_from(at).unwrap_or(u64::MAX)))
        })
    }

    fn waiting(&self) -> impl Iterator<Item = (K, &Stream)> {
        let streams = self.streams.iter().map(|(key, stream)| (*key, stream));
        streams.filter(|(_, stream)| !stream.waiting.is_empty())
    }

    fn serve(&mut self, key: K, phase: ServicePhase) -> ServiceChoice<K> {
        let Some(stream) = self.streams.get_mut(&key) else { return ServiceChoice::Idle };
        stream.waiting.pop_front();
        let paid = stream.served.reservation;
        stream.served = stream.head;
        if phase == ServicePhase::Weighted {
            stream.served.reservation = paid;
            self.virtual_time = self.virtual_time.max(stream.head.turn);
        }
        if !stream.waiting.is_empty() {
            stream.tag_head(self.virtual_time);
        }
        ServiceChoice::Serve(key)
    }
}

/// By what a request was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServicePhase {
    Reserved,
    Weighted,
}

impl Stream {
    /// Computes the tags of the head.
    fn tag_head(&mut self, virtual_time: u128) {
        let Some(request) = self.waiting.front() else { return };
        let WaitingRequest { arrival, reserved_from, cost } = *request;
        let ServiceShare { reservation, weight, limit } = self.share;
        let behind = |from: LocalNs, before: u128, rate| {
            tag(from).max(before.saturating_add(tag_time(cost, rate)))
        };
        let part = (u128::from(cost.0) << TAG_BITS) / u128::from(weight);
        // Without a rate of its own a reservation never pays; without a limit nothing forbids.
        self.head = StreamTags {
            reservation: behind(reserved_from, self.served.reservation, reservation),
            limit: limit.map_or(0, |limit| behind(arrival, self.served.limit, limit)),
            turn: virtual_time.max(self.served.turn).saturating_add(part),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const RATE: u64 = 8_000_000_000;

    fn share(reservation: u64, weight: u32, limit: Option<u64>) -> ServiceShare {
        let percent = |percent| BitsPerSec(RATE / 100 * percent);
        ServiceShare { reservation: percent(reservation), weight, limit: limit.map(percent) }
    }

    /// Serves streams that always have something, on a resource of a byte a nanosecond; bytes of
    /// each.
    fn served(shares: &[ServiceShare], costs: &[u64], until: u64) -> Vec<u64> {
        let mut tags = TagScheduler::default();
        let mut bytes: Vec<u64> = shares.iter().map(|_| 0).collect();
        for (stream, share) in shares.iter().enumerate() {
            tags.set_share(stream, *share);
            (0..2).for_each(|_| tags.request(LocalNs(0), stream, Bytes(costs[stream])));
        }
        let mut now = 0;
        while now < until {
            match tags.choose(LocalNs(now)) {
                ServiceChoice::Serve(stream) => {
                    now += costs[stream];
                    bytes[stream] += costs[stream];
                    tags.request(LocalNs(now), stream, Bytes(costs[stream]));
                }
                ServiceChoice::Wait(at) => now = at.0,
                ServiceChoice::Idle => break,
            }
        }
        bytes
    }

    /// Percents of a million nanoseconds, rounded.
    fn percents(shares: &[ServiceShare], costs: &[u64]) -> Vec<u64> {
        served(shares, costs, 1_000_000).iter().map(|bytes| (bytes + 5_000) / 10_000).collect()
    }

    #[test]
    fn choose__what_is_left_goes_by_weight() {
        let shares = [share(0, 1, None), share(0, 2, None), share(0, 5, None)];
        // Whatever the requests cost.
        assert_eq!(percents(&shares, &[100, 1000, 300]), [13, 25, 63]);
    }

    #[test]
    fn choose__a_reservation_is_what_a_stream_gets_at_least() {
        // Its weight gives it more, or too little.
        assert_eq!(percents(&[share(30, 1, None), share(0, 1, None)], &[100, 100]), [50, 50]);
        assert_eq!(percents(&[share(30, 1, None), share(0, 1000, None)], &[100, 100]), [30, 70]);
    }

    #[test]
    fn choose__a_limit_holds_and_leaves_the_rest_to_others() {
        let shares = [share(0, 9, Some(20)), share(0, 1, None)];
        assert_eq!(percents(&shares, &[100, 100]), [20, 80]);
        // Where nobody else is, the resource waits.
        assert_eq!(percents(&shares[..1], &[100]), [20]);
    }

    #[test]
    fn request__who_was_idle_gets_its_share_and_no_more() {
        let mut tags = TagScheduler::default();
        tags.set_share('a', share(0, 1, None));
        tags.set_share('b', share(0, 1, None));
        for _ in 0..1_000 {
            tags.request(LocalNs(0), 'a', Bytes(100));
            assert_eq!(tags.choose(LocalNs(0)), ServiceChoice::Serve('a'));
        }
        (0..20).for_each(|_| tags.request(LocalNs(9), 'a', Bytes(100)));
        (0..20).for_each(|_| tags.request(LocalNs(9), 'b', Bytes(100)));
        let first: Vec<_> = (0..10).map(|_| tags.choose(LocalNs(9))).collect();
        let of_b = first.iter().filter(|choice| **choice == ServiceChoice::Serve('b')).count();
        assert_eq!(of_b, 5);
        tags.remove('a');
        tags.request(LocalNs(9), 'a', Bytes(1));
        (0..15).for_each(|_| assert_eq!(tags.choose(LocalNs(9)), ServiceChoice::Serve('b')));
        assert_eq!(tags.choose(LocalNs(9)), ServiceChoice::Idle);
    }

    #[test]
    fn choose__a_reservation_holds_against_long_requests() {
        let shares = [share(0, 2, None), share(0, 1, None), share(0, 3, None), share(16, 1, None)];
        let bytes = served(&shares, &[50, 50, 1_415, 50], 1_000_000);
        assert!(bytes[3] >= 158_000, "{bytes:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn choose__reservations_and_limits_hold(streams in prop::collection::vec((0_u64..20, 1_u32..9, prop::option::of(20_u64..60), 50_u64..2_000), 1..5)) {
            let shares: Vec<_> = streams.iter().map(|(r, w, l, _)| share(*r, *w, *l)).collect();
            let costs: Vec<_> = streams.iter().map(|(_, _, _, cost)| *cost).collect();
            let until = 1_000_000;
            let bytes = served(&shares, &costs, until);
            // A request more or less, of each stream.
            let slack = 2 * costs.iter().sum::<u64>();
            for ((reservation, _, limit, _), bytes) in streams.iter().zip(&bytes) {
                prop_assert!(bytes + slack >= until / 100 * reservation, "{} reserved", bytes);
                prop_assert!(*bytes <= until / 100 * limit.unwrap_or(100) + slack, "{} limited", bytes);
            }
            if streams.iter().any(|(_, _, limit, _)| limit.is_none()) {
                prop_assert!(bytes.iter().sum::<u64>() + slack >= until, "it was idle");
            }
        }
    }
}
