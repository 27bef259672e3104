//! Journals against orders that are written out one timeslice at a time.

use std::collections::BTreeMap;

use super::*;
use crate::base::{RandomKey, RandomStream};

fn journal(inputs: u32, builders: u32, absent: &[u32]) -> Journal {
    let ranks = |range: Range<u32>| range.map(Rank).collect();
    let absent: Vec<Rank> = absent.iter().copied().map(Rank).collect();
    let layout = TimesliceLayout::new(ranks(0..inputs), ranks(inputs..inputs + builders), &[]);
    let layout = layout.and_then(|layout| layout.without(&absent)).expect("a sound layout");
    Journal::new(&Arc::new(layout))
}

fn decide(journal: &Journal, change: Change, from: u64) -> Journal {
    journal.with(Decision { change, from }).expect("it is permitted")
}

/// Returns the timeslices below `until` of the builder at `place`, in its order.
fn listed(journal: &Journal, place: usize, until: u64) -> Vec<u64> {
    let all = (0..).map_while(|position| journal.nth(place, position));
    all.take_while(|timeslice| *timeslice < until).collect()
}

#[test]
fn nth__what_a_dead_builder_left_goes_to_the_others_in_turn() {
    let journal = journal(1, 3, &[]);
    let after = decide(&journal, Change::Remove { member: RosterMember(2), settled: 2 }, 12);
    // The dead one had 1 4 7 10, of which 1 and 4 are settled.
    assert_eq!(listed(&after, 0, 17), [0, 3, 6, 9, 7, 12, 14, 16]);
    assert_eq!(listed(&after, 2, 17), [2, 5, 8, 11, 10, 13, 15]);
    assert_eq!(after.nth(1, 0), None);
    assert_eq!(
        (after.epoch(), after.takes_part(RosterMember(2)), after.turn_of(13)),
        (1, false, 2)
    );
    let after = decide(&after, Change::Remove { member: RosterMember(1), settled: 5 }, 20);
    let settled: Vec<_> =
        after.settled().map(|(epoch, member, timeslice)| (epoch, member.0, timeslice)).collect();
    let earlier = [1, 4].map(|timeslice| (1, 2, timeslice));
    let later = [0, 3, 6, 9, 7].map(|timeslice| (2, 1, timeslice));
    assert_eq!(settled, [&earlier[..], &later].concat());
}

#[test]
fn next__leaves_out_what_an_input_has_nothing_for() {
    let journal =
        decide(&journal(1, 2, &[]), Change::Remove { member: RosterMember(1), settled: 1 }, 8);
    // Builder 1 builds 1 3 5 7, then the inherited 2 4 6, then 8 9 ...
    let all = |range: Range<u64>| {
        let mut position = 0;
        let mut found = Vec::new();
        while let Some((at, timeslice)) = journal.next(1, position, &range) {
            found.push(timeslice);
            position = at + 1;
        }
        found
    };
    assert_eq!(all(0..10), [1, 3, 5, 7, 2, 4, 6, 8, 9]);
    assert_eq!(all(4..6), [5, 4]);
    assert_eq!(all(0..4), [1, 3, 2]);
    assert_eq!(journal.next(1, 0, &(9..u64::MAX)), Some((8, 9)));
}

#[test]
fn earliest__looks_among_what_is_dealt_and_what_is_inherited() {
    let journal =
        decide(&journal(1, 2, &[]), Change::Remove { member: RosterMember(1), settled: 1 }, 8);
    // Builder 1 builds 1 3 5 7, then the inherited 2 4 6, then 8 9 ...
    let earliest = |position, end| journal.earliest(1, position, end);
    assert_eq!(earliest(0, u64::MAX), Some(1));
    assert_eq!(earliest(1, u64::MAX), Some(2), "it stands behind 3, 5 and 7");
    assert_eq!(earliest(6, u64::MAX), Some(6));
    assert_eq!((earliest(7, 9), earliest(7, 8)), (Some(8), None));
    assert_eq!(earliest(0, 0), None);
}

#[test]
fn with__refuses_what_cannot_be_decided() {
    let journal = journal(2, 2, &[3]);
    let refused = |change| assert!(!journal.permits(change), "{change:?}");
    refused(Change::Remove { member: RosterMember(2), settled: 0 });
    refused(Change::Remove { member: RosterMember(3), settled: 0 });
    refused(Change::Remove { member: RosterMember(4), settled: 0 });
    refused(Change::Join { member: RosterMember(0), incarnation: 1 });
    refused(Change::Join { member: RosterMember(9), incarnation: 1 });
    let join = |incarnation| Change::Join { member: RosterMember(0), incarnation };
    let remove = Change::Remove { member: RosterMember(0), settled: 0 };
    let out_again =
        [remove, join(1), remove].iter().fold(journal.clone(), |all, one| decide(&all, *one, 0));
    assert!(!out_again.permits(join(1)), "it was granted before");
    assert!(out_again.permits(join(2)));
    refused(Change::Retire { member: RosterMember(2) });
    refused(Change::Weigh { member: RosterMember(0), weight: 3 });
    refused(Change::Weigh { member: RosterMember(2), weight: 0 });
    refused(Change::Weigh { member: RosterMember(2), weight: u32::MAX });
    let far = Decision { change: Change::Nothing, from: u64::MAX };
    assert!(journal.with(far).is_none());
    let alone = decide(&journal, Change::Remove { member: RosterMember(1), settled: 0 }, 0);
    assert!(!alone.permits(Change::Remove { member: RosterMember(0), settled: 0 }));
    assert!(!alone.permits(Change::Retire { member: RosterMember(0) }));
}

#[test]
fn is_quorum__two_halves_never_decide_both() {
    let journal = journal(2, 2, &[]);
    for votes in 0..16_u32 {
        let says = |votes: u32| move |member: RosterMember| votes >> member.0 & 1 == 1;
        assert!(!(journal.is_quorum(says(votes)) && journal.is_quorum(says(!votes))), "{votes:b}");
    }
    assert!(journal.is_quorum(|member| member.0 < 2) && !journal.is_quorum(|member| member.0 > 1));
}

/// The same orders, written out.
struct ExplicitOrders {
    orders: BTreeMap<usize, Vec<u64>>,
    settled: Vec<u64>,
    /// Timeslices below this one are dealt.
    dealt: u64,
}

impl ExplicitOrders {
    fn deal(&mut self, journal: &Journal, until: u64) {
        for timeslice in self.dealt..until {
            self.orders.entry(journal.turn_of(timeslice)).or_default().push(timeslice);
        }
        self.dealt = self.dealt.max(until);
    }

    fn remove(&mut self, place: usize, settled: u64, heirs: &Turns) {
        let mut order = self.orders.remove(&place).unwrap_or_default();
        let left = order.split_off((settled as usize).min(order.len()));
        self.settled.extend(order);
        for (number, timeslice) in left.into_iter().enumerate() {
            self.orders.entry(heirs.builder_of(number as u64)).or_default().push(timeslice);
        }
    }
}

/// Returns one change that may or may not be permitted.
fn any_change(stream: &mut RandomStream, journal: &Journal, written: &ExplicitOrders) -> Change {
    let member = RosterMember(stream.below(journal.roster() as u64) as u32);
    let length = match journal.role(member) {
        Role::Builder(place) => written.orders.get(&place).map_or(0, Vec::len) as u64,
        Role::Input(_) => 0,
    };
    match stream.below(6) {
        0 | 1 => Change::Remove { member, settled: stream.below(length + 1) },
        2 | 3 => Change::Join { member, incarnation: 1 + journal.incarnation(member) },
        4 => Change::Retire { member },
        _ => Change::Weigh { member, weight: 1 + stream.below(40) as u32 },
    }
}

#[test]
fn journal__every_timeslice_has_one_owner_or_is_settled() {
    for seed in 0..300 {
        let mut stream = RandomKey::new(seed).purpose("journal").stream();
        let (inputs, builders) = (1 + stream.below(3) as u32, 1 + stream.below(5) as u32);
        let absent: &[u32] = if builders > 2 { &[inputs + 1] } else { &[] };
        let mut journal = journal(inputs, builders, absent);
        let mut written = ExplicitOrders { orders: BTreeMap::new(), settled: Vec::new(), dealt: 0 };
        for _ in 0..12 {
            // `from` of a change that deals anew: nothing at or behind it was sent.
            let from = written.dealt.max(journal.from()) + stream.below(30);
            let before = journal.clone();
            written.deal(&before, from);
            let change = any_change(&mut stream, &journal, &written);
            let Some(next) = journal.with(Decision { change, from }) else { continue };
            journal = next;
            if let Change::Remove { member, settled } = change
                && let Role::Builder(place) = journal.role(member)
            {
                written.remove(place, settled, &journal.turns);
            }
        }
        written.deal(&journal, written.dealt + 50);
        for place in 0..builders as usize {
            let order = written.orders.get(&place).cloned().unwrap_or_default();
            let computed: Vec<u64> = (0..order.len() as u64)
                .filter_map(|position| journal.nth(place, position))
                .collect();
            assert_eq!(computed, order, "seed {seed}, builder {place}");
            let next = journal.nth(place, order.len() as u64);
            assert!(
                next.is_none_or(|next| next >= written.dealt),
                "seed {seed}, builder {place}: {next:?}"
            );
        }
        let mut all: Vec<u64> =
            written.orders.into_values().flatten().chain(written.settled).collect();
        all.sort_unstable();
        assert!(all.iter().copied().eq(0..written.dealt), "seed {seed}");
    }
}
