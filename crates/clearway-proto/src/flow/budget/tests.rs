//! Bytes of messages, and a world of members with clocks of their own, a network that loses and
//! delays, and a coordinator that ends and begins anew.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use proptest::prelude::*;

use super::*;
use crate::base::{RandomKey, RandomStream};

const BUDGET: BitsPerSec = BitsPerSec(1_000_000_000);
const MOST: BitsPerSec = BitsPerSec(u64::MAX);
/// Within five percent of the budget.
const USED: RangeInclusive<u64> = BUDGET.0 / 100 * 95..=BUDGET.0 / 100 * 105;

/// A message on its way.
enum BudgetLetter {
    Request(BudgetRequest),
    Grant(u64, BudgetGrant),
}

/// A member, and its clock: an offset, and how many nanoseconds it shows of a million.
struct ClockedMember {
    engine: BudgetMember,
    offset: u64,
    pace: u64,
    /// What it sends, and when it looks again.
    used: u64,
    look_at: LocalNs,
}

struct BudgetWorld {
    now: u64,
    random: RandomStream,
    coordinator: Option<BudgetCoordinator>,
    lives: u64,
    members: BTreeMap<u64, ClockedMember>,
    names: u64,
    letters: Vec<(u64, BudgetLetter)>,
    /// Of a thousand messages.
    lost: u64,
    /// The longest way, in ns.
    delay: u64,
}

impl BudgetWorld {
    fn new(seed: u64, lost: u64, delay: u64) -> Self {
        let random = RandomKey::new(seed).purpose("budget").stream();
        let mut world = Self {
            now: 1_000_000_000,
            random,
            coordinator: None,
            lives: 0,
            members: BTreeMap::new(),
            names: 0,
            letters: Vec::new(),
            lost,
            delay,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        self.lives += 1;
        self.coordinator = Some(BudgetCoordinator::new(LocalNs(self.now), self.lives, BUDGET));
    }

    /// Ends the coordinator, and all that is on its way to and from it.
    fn kill(&mut self) {
        self.coordinator = None;
        self.letters.clear();
    }

    fn join(&mut self, demand: BitsPerSec) -> u64 {
        self.names += 1;
        let (offset, pace) = (self.random.below(1 << 40), 975_000 + self.random.below(50_000));
        let mut member = ClockedMember {
            engine: BudgetMember::new(LocalNs(0), Class::Bulk, self.names, budget_floor(BUDGET)),
            offset,
            pace,
            used: 0,
            look_at: LocalNs(0),
        };
        let now = member.now(self.now);
        member.engine = BudgetMember::new(now, Class::Bulk, self.names, budget_floor(BUDGET));
        member.engine.set_demand(now, demand);
        self.members.insert(self.names, member);
        self.names
    }

    fn leave(&mut self, name: u64) {
        let Some(member) = self.members.remove(&name) else { return };
        let now = member.now(self.now);
        self.post(BudgetLetter::Request(member.engine.leave(now)));
    }

    fn post(&mut self, letter: BudgetLetter) {
        if self.random.below(1_000) >= self.lost {
            let at = self.now + self.random.below(self.delay + 1);
            self.letters.push((at, letter));
        }
    }

    /// Passes a millisecond; the sum of what members may use.
    fn step(&mut self) -> u64 {
        self.now += 1_000_000;
        let now = self.now;
        let due: Vec<_> = self.letters.extract_if(.., |(at, _)| *at <= now).collect();
        for (_, letter) in due {
            match (letter, &mut self.coordinator) {
                (BudgetLetter::Request(request), Some(coordinator)) => {
                    let request = BudgetRequest::decode(&request.encode()).expect("a request");
                    coordinator.request(LocalNs(now), &request).expect("there is room");
                }
                (BudgetLetter::Grant(name, grant), _) => {
                    if let Some(member) = self.members.get_mut(&name) {
                        member.engine.granted(member.now(now), &grant);
                    }
                }
                _ => {}
            }
        }
        while let Some((name, grant)) =
            self.coordinator.as_mut().and_then(|coordinator| coordinator.poll(LocalNs(now)))
        {
            self.post(BudgetLetter::Grant(name, grant));
        }
        let mut requests = Vec::new();
        for member in self.members.values_mut() {
            let now = member.now(now);
            if now >= member.look_at {
                member.used = member.engine.take(now).0;
                member.look_at = now + Nanos(self.random.below(TAKE_EVERY.0));
            }
            requests.extend(member.engine.poll(now));
        }
        requests.into_iter().for_each(|request| self.post(BudgetLetter::Request(request)));
        let sum = self.sum();
        assert!(sum <= BUDGET.0 / 10 * 11, "{sum} at {now}");
        sum
    }

    fn sum(&self) -> u64 {
        self.members.values().map(|member| member.used).sum()
    }

    /// Passes time; the mean of what members may use in the last second of it.
    fn pass(&mut self, millis: u64) -> u64 {
        let sums: Vec<u64> = (0..millis).map(|_| self.step()).collect();
        let last = &sums[sums.len().saturating_sub(1_000)..];
        last.iter().sum::<u64>() / last.len() as u64
    }

    fn rate(&self, name: u64) -> u64 {
        self.members[&name].used
    }
}

impl ClockedMember {
    fn now(&self, at: u64) -> LocalNs {
        LocalNs(self.offset + (u128::from(at) * u128::from(self.pace) / 1_000_000) as u64)
    }
}

#[test]
fn encode__the_bytes_of_a_request_and_of_answers() {
    let held = HeldGrant { incarnation: 3, number: 4, rate: BitsPerSec(5) };
    let request = BudgetRequest {
        class: Class::Bulk,
        member: 1,
        sent_at: LocalNs(2),
        demand: BitsPerSec(6),
        held: Some(held),
        is_leaving: false,
    };
    let mut bytes = [0; REQUEST_BYTES];
    for (at, byte) in [(0, 1), (1, 3), (3, 1), (11, 2), (19, 6), (27, 3), (35, 4), (43, 5)] {
        bytes[at] = byte;
    }
    assert_eq!(request.encode(), bytes);
    let grant = BudgetGrant {
        answers: LocalNs(2),
        grant: held,
        floor: BitsPerSec(7),
        budget: BitsPerSec(8),
    };
    let mut bytes = [0; ANSWER_BYTES];
    for (at, byte) in [(0, 1), (3, 2), (11, 7), (19, 8), (27, 3), (35, 4), (43, 5)] {
        bytes[at] = byte;
    }
    assert_eq!(BudgetAnswer::Granted(grant).encode(), bytes);
    for answer in [
        BudgetAnswer::Granted(grant),
        BudgetAnswer::Refused(BudgetRefusal::Full),
        BudgetAnswer::Refused(BudgetRefusal::NoBudget),
    ] {
        assert_eq!(BudgetAnswer::decode(&answer.encode()), Some(answer));
    }
}

#[test]
fn decode__other_versions_classes_and_lengths_are_refused() {
    let mut request = [0; REQUEST_BYTES];
    request[0] = VERSION;
    assert!(BudgetRequest::decode(&request).is_some());
    for (at, byte) in [(0, 2), (1, 5), (2, 2)] {
        let mut other = request;
        other[at] = byte;
        assert_eq!(BudgetRequest::decode(&other), None);
    }
    assert_eq!(BudgetRequest::decode(&request[1..]), None);
    let mut answer = BudgetAnswer::Refused(BudgetRefusal::Full).encode();
    assert!(BudgetAnswer::decode(&answer).is_some());
    for (at, byte) in [(0, 2), (1, 3), (1, 0), (2, 1), (50, 1)] {
        let mut other = answer;
        other[at] = byte;
        assert_eq!(BudgetAnswer::decode(&other), None, "{at}");
    }
    answer[1] = 9;
    assert_eq!(BudgetAnswer::decode(&answer), None);
}

#[test]
fn divide__small_demands_are_met_and_the_others_share_what_is_left() {
    let mut world = BudgetWorld::new(1, 0, 1_000_000);
    let demands = [MOST, BitsPerSec::mega(100), MOST, BitsPerSec(0)];
    let names = demands.map(|demand| world.join(demand));
    world.pass(4_000);
    let floor = budget_floor(BUDGET).0;
    let share = (BUDGET.0 - 100_000_000 - floor) / 2;
    assert_eq!(names.map(|name| world.rate(name)), [share, 100_000_000, share, floor]);
}

#[test]
fn rate__a_lease_ends_at_its_time_and_the_floor_stays() {
    let mut world = BudgetWorld::new(1, 0, 0);
    world.pass(2_400);
    let name = world.join(MOST);
    world.pass(5);
    let member = &mut world.members.get_mut(&name).expect("it joined").engine;
    let until = member.until;
    assert_eq!(member.take(LocalNs(until.0 - 1)), BUDGET);
    assert_eq!(member.used(until), None);
    assert_eq!(member.take(until), budget_floor(BUDGET));
}

#[test]
fn request__the_member_behind_the_last_is_refused_and_has_room_when_one_leaves() {
    let mut coordinator = BudgetCoordinator::new(LocalNs(0), 1, BUDGET);
    let now = LocalNs(5_000_000_000);
    let ask = |name| BudgetMember::new(now, Class::Bulk, name, BitsPerSec(1)).poll(now);
    for name in 0..MEMBERS_MAX as u64 {
        assert_eq!(coordinator.request(now, &ask(name).expect("at once")), Ok(()));
    }
    let late = ask(MEMBERS_MAX as u64).expect("at once");
    assert_eq!(coordinator.request(now, &late), Err(BudgetRefusal::Full));
    let leaves = BudgetMember::new(now, Class::Bulk, 3, BitsPerSec(1)).leave(now);
    assert_eq!(coordinator.request(now, &leaves), Ok(()));
    assert_eq!(coordinator.request(now, &late), Ok(()));
    assert_eq!(coordinator.usage(now).members, MEMBERS_MAX);
}

#[test]
fn refused__the_floor_is_what_is_left_and_the_member_asks_again_later() {
    let now = LocalNs(7);
    let mut member = BudgetMember::new(now, Class::Bulk, 1, BitsPerSec(9));
    assert!(member.poll(now).is_some());
    member.refused(now);
    let again = member.deadline();
    assert_eq!((member.take(now), member.poll(LocalNs(again.0 - 1))), (BitsPerSec(9), None));
    assert!(member.poll(again).is_some());
}

#[test]
fn enter__after_an_outage_shorter_than_a_lease_no_rate_changes() {
    let mut world = BudgetWorld::new(2, 0, 1_000_000);
    let names = [MOST; 4].map(|demand| world.join(demand));
    world.pass(4_000);
    let before = names.map(|name| world.rate(name));
    world.kill();
    world.pass(1_200);
    world.begin();
    for _ in 0..3_000 {
        world.step();
        assert_eq!(names.map(|name| world.rate(name)), before);
    }
}

#[test]
fn step__eight_hosts_join_and_leave_and_each_second_window_uses_the_budget() {
    let mut world = BudgetWorld::new(3, 0, 500_000);
    world.pass(2_400);
    let mut names: Vec<u64> = Vec::new();
    for change in 0..24 {
        if names.len() < 8 && change % 3 != 2 {
            names.push(world.join(MOST));
        } else {
            world.leave(names.remove(change % names.len()));
        }
        // The window of the change, and the next one.
        world.pass(1_000);
        let mean = world.pass(1_000);
        assert!(USED.contains(&mean), "{mean}");
    }
    world.kill();
    let mut most = 0;
    for second in 0..5 {
        if second == 1 || second == 3 {
            world.join(MOST);
        }
        most = most.max((0..1_000).map(|_| world.step()).max().unwrap_or_default());
    }
    assert!(most <= BUDGET.0 + 2 * budget_floor(BUDGET).0, "{most}");
    world.begin();
    world.pass(3_000);
    assert!(world.pass(1_000) >= BUDGET.0 / 100 * 95);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn step__never_more_than_eleven_tenths_and_the_budget_again_in_quiet_times(
        seed: u64,
        lost in 0_u64..400,
        delay_ms in 0_u64..60,
        events in prop::collection::vec((0_u8..6, 1_u64..900, 1_u64..1_500), 1..24),
    ) {
        let mut world = BudgetWorld::new(seed, lost, delay_ms * 1_000_000);
        for (event, demand, millis) in events {
            let first = world.members.keys().next().copied();
            match event {
                0 | 1 => drop(world.join(BitsPerSec::mega(demand))),
                2 => first.into_iter().for_each(|name| world.leave(name)),
                // It ends without a word.
                3 => {
                    first.and_then(|name| world.members.remove(&name));
                }
                4 if world.coordinator.is_some() => world.kill(),
                4 => world.begin(),
                _ => {
                    if let Some(member) = world.members.values_mut().next() {
                        let now = member.now(world.now);
                        member.engine.set_demand(now, BitsPerSec::mega(demand));
                    }
                }
            }
            // Sums are asserted at each step.
            world.pass(millis);
        }
        world.kill();
        world.begin();
        (world.lost, world.delay) = (0, 1_000_000);
        world.join(MOST);
        world.pass(4_000);
        let mean = world.pass(1_000);
        prop_assert!(USED.contains(&mean), "{}", mean);
    }

    #[test]
    fn decode__any_bytes_are_a_message_or_none(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        if let Some(request) = BudgetRequest::decode(&bytes) {
            prop_assert_eq!(&request.encode()[..], &bytes[..]);
        }
        if let Some(answer) = BudgetAnswer::decode(&bytes) {
            prop_assert_eq!(&answer.encode()[..], &bytes[..]);
        }
    }
}
