//! An input that follows proposals, with four builders that release what the test says.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::*;
use crate::base::{Bytes, Rank};
use crate::timeslice::connection::{
    BuilderConnection, CAPACITY_UNLIMITED, ConnectionState, Connections, UnreleasedContribution,
};
use crate::timeslice::layout::TimesliceLayout;
use crate::timeslice::membership::{Change, Decision, Journal, RosterMember};
use crate::timeslice::ring::Ring;
use crate::timeslice::supply::Supply;
use crate::timeslice::{ContributionSizes, ContributionSource, Policy, WriteSlots};
use crate::wire::{RegionId, Span};

const BYTES: u64 = 8;

/// The scheduler with its connections: intervals of five rounds of four timeslices.
struct SchedulerBench {
    paced: Paced,
    connections: Connections,
}

impl SchedulerBench {
    /// Creates a pace whose barrier was passed at 1,000 ns.
    fn new() -> Self {
        let layout = TimesliceLayout::new([Rank(0)].to_vec(), (1..5).map(Rank).collect(), &[])
            .expect("a sound layout");
        let open = |rank| BuilderConnection {
            ring: Ring::new(1 << 10),
            ..BuilderConnection::new(Rank(rank), ConnectionState::Open, 0)
        };
        let memory = Span { region: RegionId(0), offset: 0, length: BYTES as u32 };
        let mut connections = Connections {
            all: (1..5).map(open).collect(),
            journal: Arc::new(Journal::new(&Arc::new(layout))),
            range: 0..0,
            horizon: None,
            unreleased: None,
            least_capacity: CAPACITY_UNLIMITED,
            bounded_from: None,
            supply: Supply::new(
                ContributionSource::Endless(memory, ContributionSizes::Constant(Bytes(BYTES))),
                0,
            ),
            policy: Policy::Dfs,
            slots: WriteSlots::from_policy(Policy::Dfs),
        };
        connections.look_up_all(0);
        let mut paced = Paced::new(Dfs { interval: 20, ..Dfs::default() }, 0);
        paced.redealt(LocalNs(0), &connections);
        paced.began(LocalNs(1_000));
        Self { paced, connections }
    }

    /// Sends what may be sent; says which timeslices.
    fn send(&mut self, now: u64) -> Vec<u64> {
        let mut timeslices = Vec::new();
        while let Choice::Post(place) = self.paced.choose(LocalNs(now), &self.connections) {
            let connection = &mut self.connections.all[place];
            let (timeslice, turn, position) =
                (connection.next.expect("it is next"), connection.turn, connection.position);
            let at = connection.ring.place(BYTES).expect("there is room");
            connection.ring.take(at);
            connection.sent.push_back(UnreleasedContribution {
                timeslice,
                turn,
                position,
                place: at,
            });
            connection.position += 1;
            self.connections.look_up(place);
            self.paced.posted(LocalNs(now), turn);
            timeslices.push(timeslice);
        }
        timeslices
    }

    fn release(&mut self, now: u64, timeslices: impl IntoIterator<Item = u64>) {
        for timeslice in timeslices {
            let mut all = self.connections.all.iter_mut().enumerate();
            let found = all.find(|(_, connection)| {
                connection.sent.front().is_some_and(|sent| sent.timeslice == timeslice)
            });
            let (place, sent) = found
                .and_then(|(place, connection)| Some((place, connection.sent.pop_front()?)))
                .expect("it is the oldest one");
            self.paced.released(LocalNs(now), place, sent.turn);
        }
    }

    /// Loses the first builder; its first `settled` timeslices are built, and all from `from` on
    /// are dealt anew.
    fn lose_first(&mut self, now: u64, settled: u64, from: u64) {
        let change = Change::Remove { member: RosterMember(1), settled };
        self.connections.all[0].sent.clear();
        let journal =
            self.connections.journal.with(Decision { change, from }).expect("it is permitted");
        self.connections.journal = Arc::new(journal);
        self.connections.look_up_all(0);
        self.paced.redealt(LocalNs(now), &self.connections);
    }

    fn propose(&mut self, proposal: Proposal) {
        let current = self.paced.current.as_mut().expect("something was dealt");
        current.proposed = Some(proposal);
    }

    fn extent(&self) -> IntervalExtent {
        self.paced.current.expect("something was dealt").extent
    }

    fn reports(&mut self) -> Vec<IntervalReport> {
        core::iter::from_fn(|| self.paced.report()).collect()
    }
}

fn proposal(interval: u32, rounds: u32, start: u64, duration: u64) -> Proposal {
    Proposal { interval, rounds, start: Nanos(start), duration: Nanos(duration) }
}

fn sorted(mut timeslices: Vec<u64>) -> Vec<u64> {
    timeslices.sort_unstable();
    timeslices
}

/// An interval of five rounds of four timeslices, proposed for 2,000 ns after the barrier and to
/// take 1,000 ns: a round each 200 ns, from 3,000 ns on.
#[test]
fn limit__rounds_are_let_go_one_after_the_other() {
    let mut bench = SchedulerBench::new();
    bench.propose(proposal(0, 5, 2_000, 1_000));
    let limits = [
        (2_999, (0, Some(3_000))),
        (3_000, (4, Some(3_200))),
        (3_199, (4, Some(3_200))),
        (3_200, (8, Some(3_400))),
        (3_650, (16, Some(3_800))),
        (3_800, (20, None)),
        (9_000, (20, None)),
    ];
    for (now, (limit, next)) in limits {
        assert_eq!(bench.paced.limit(LocalNs(now)), (limit, next.map(LocalNs)), "at {now}");
    }
}

/// The reference's clock shows 500,000 since its barrier where this one shows 10,000, and later
/// 40,000 more than that.
#[test]
fn limit__goes_by_the_clock_of_the_reference_also_when_it_jumps() {
    let mut bench = SchedulerBench::new();
    bench.propose(proposal(0, 5, 502_000, 1_000));
    let answer = |asked, shown| ClockExchange {
        sent: LocalNs(asked),
        received: PeerNs(shown),
        replied: PeerNs(shown),
        returned: LocalNs(asked),
    };
    assert_eq!(bench.paced.asks(), Some(REFERENCE));
    bench.paced.answered(REFERENCE + 1, answer(10_000, 7));
    bench.paced.answered(REFERENCE, answer(10_000, 500_000));
    let begins =
        |bench: &SchedulerBench| bench.paced.limit(LocalNs(11_000)).1.expect("it is to begin").0;
    assert!(begins(&bench).abs_diff(12_000) <= 1, "{}", begins(&bench));
    bench.paced.answered(REFERENCE, answer(10_500, 460_500));
    assert!(begins(&bench).abs_diff(52_000) <= 5, "{}", begins(&bench));
    assert_eq!(bench.send(52_010), [0, 1, 2, 3]);
    assert_eq!(sorted(bench.send(52_990)), (4..20).collect::<Vec<u64>>());
    bench.release(53_010, 0..20);
    let [report] = bench.reports()[..] else { panic!("the interval is over") };
    assert!(report.start.0.abs_diff(502_010) <= 5, "{report:?}");
    assert_eq!(
        (bench.paced.asks(), report.duration),
        (None, Nanos(1_000)),
        "it asks when the next one opens"
    );
    bench.paced.open_next(&bench.connections);
    assert_eq!(bench.paced.asks(), Some(REFERENCE));
}

/// The builder whose clock all go by has another process, whose clock begins anew at 10,000: what
/// was proposed by the clock of the one before lies far ahead.
#[test]
fn choose__a_proposal_that_no_sound_clock_could_make_is_not_waited_for() {
    let begun_anew = ClockExchange {
        sent: LocalNs(10_000),
        received: PeerNs(0),
        replied: PeerNs(0),
        returned: LocalNs(10_000),
    };
    for (start, sent) in [(2_000, 0), (2_004, 20)] {
        let mut bench = SchedulerBench::new();
        bench.propose(proposal(0, 5, start, 1_000));
        bench.paced.answered(REFERENCE, begun_anew);
        assert_eq!(bench.send(10_000).len(), sent, "{start}");
    }
    let mut bench = SchedulerBench::new();
    bench.propose(proposal(0, 5, 500_000, 1_000));
    bench.paced.answered(REFERENCE, begun_anew);
    assert_eq!(bench.send(10_100).len(), 20, "all at once");
    bench.release(10_500, 0..20);
    bench.paced.open_next(&bench.connections);
    let proposed = bench.paced.current.and_then(|current| current.proposed);
    assert_eq!(proposed, None, "nothing follows from it");
}

#[test]
fn open_next__waits_for_the_gate_and_takes_the_first_proposal() {
    let mut bench = SchedulerBench::new();
    bench.paced.parameters.gate = 700;
    assert_eq!(bench.send(1_100).len(), 20, "nobody proposed anything");
    bench.release(1_500, 0..13);
    assert_eq!(bench.send(1_500), [0_u64; 0], "13 of 20 are less than 70 %");
    bench.release(1_600, [13]);
    bench.paced.proposed(proposal(2, 3, 5_000, 900));
    bench.paced.proposed(proposal(2, 3, 5_000, 100));
    assert_eq!(sorted(bench.send(2_000)), (20..40).collect::<Vec<u64>>());
    assert_eq!((bench.extent().index, bench.extent().first), (1, 20));
    bench.release(2_500, 14..19);
    bench.release(2_500, [20, 21, 22]);
    bench.release(2_600, [19]);
    bench.release(2_600, 23..40);
    bench.paced.open_next(&bench.connections);
    assert_eq!(bench.extent(), IntervalExtent { index: 2, first: 40, end: 60, round: 4 });
    assert_eq!(
        bench.paced.current.and_then(|current| current.proposed),
        Some(proposal(2, 3, 5_000, 900))
    );
    let report = |interval, start, duration| IntervalReport {
        interval,
        rounds: 5,
        start: Nanos(start),
        duration: Nanos(duration),
    };
    assert_eq!(bench.reports(), [report(0, 100, 1_500), report(1, 1_000, 600)]);
}

#[test]
fn open_next__not_while_the_interval_before_is_not_acknowledged() {
    let mut bench = SchedulerBench::new();
    bench.paced.parameters.gate = 700;
    bench.send(1_100);
    bench.release(1_500, 0..19);
    bench.send(2_000);
    bench.release(2_500, (20..40).filter(|timeslice| timeslice % 4 != 3));
    assert_eq!(
        (bench.send(2_500), bench.extent().index),
        (Vec::new(), 1),
        "timeslice 19 is not acknowledged"
    );
    bench.release(2_600, [19]);
    assert_eq!((bench.send(2_600).len(), bench.extent().index), (20, 2));
}

#[test]
fn open_next__without_a_proposal_the_last_one_is_copied_behind_itself() {
    let mut bench = SchedulerBench::new();
    bench.propose(proposal(0, 5, 500, 300));
    bench.send(2_000);
    bench.release(2_500, 0..20);
    bench.paced.open_next(&bench.connections);
    assert_eq!(
        bench.paced.current.and_then(|current| current.proposed),
        Some(proposal(0, 5, 800, 300))
    );
}

/// The first builder had 0 4 8 12 16 20 and has settled two of them. Timeslices are dealt anew from
/// 23 on: interval 1 ends there, with what is inherited, and interval 2 has six rounds of three, of
/// which one may leave each 100 ns.
#[test]
fn redealt__pacing_goes_on_with_rounds_of_those_who_are_left() {
    let mut bench = SchedulerBench::new();
    bench.send(1_100);
    bench.release(1_500, (0..20).filter(|timeslice| timeslice % 4 != 0));
    assert_eq!(bench.send(1_600), [0_u64; 0], "the dead one acknowledges nothing");
    bench.lose_first(3_000, 2, 23);
    let [report] = bench.reports()[..] else { panic!("nobody waits for the dead one") };
    assert_eq!((report.interval, report.rounds, report.duration), (0, 5, DISTURBED));
    bench.paced.proposed(proposal(2, 6, 4_000, 600));
    assert_eq!(sorted(bench.send(3_100)), [8, 12, 16, 20, 21, 22]);
    assert_eq!(bench.extent(), IntervalExtent { index: 1, first: 20, end: 23, round: 4 });
    bench.release(3_200, [21, 22]);
    bench.release(3_300, [8, 12, 16, 20]);
    assert_eq!(bench.send(4_999), [0_u64; 0], "interval 2 has not begun");
    assert_eq!(bench.extent(), IntervalExtent { index: 2, first: 23, end: 41, round: 3 });
    assert_eq!(
        (sorted(bench.send(5_000)), sorted(bench.send(5_099))),
        ([23, 24, 25].to_vec(), Vec::new())
    );
    assert_eq!(sorted(bench.send(5_200)), [26, 27, 28, 29, 30, 31]);
}

/// Builders with half of the turns have one in every other round.
/// The first builder has been relieved, so that it counts in no interval, and has no room.
#[test]
fn open_next__ends_where_only_a_relieved_builder_has_something_left() {
    let mut bench = SchedulerBench::new();
    let change = Change::Weigh { member: RosterMember(1), weight: 8 };
    let journal = bench.connections.journal.with(Decision { change, from: 0 });
    bench.connections.journal = Arc::new(journal.expect("it is permitted"));
    bench.connections.supply.finish(100);
    bench.connections.look_up_all(0);
    bench.paced.redealt(LocalNs(1_000), &bench.connections);
    bench.connections.all[0].ring = Ring::new(0);
    let mut sent = Vec::new();
    while let timeslices @ [_, ..] = &bench.send(2_000)[..] {
        sent.extend_from_slice(timeslices);
        bench.release(2_000, timeslices.to_vec());
    }
    let others = (0..100).filter(|timeslice| bench.connections.journal.turn_of(*timeslice) != 0);
    assert_eq!(sorted(sent.clone()), others.collect::<Vec<_>>());
    bench.connections.all[0].ring = Ring::new(1 << 10);
    sent.extend(bench.send(3_000));
    assert_eq!(sorted(sent), (0..100).collect::<Vec<_>>(), "what is left leaves without a pace");
}

#[test]
fn extent__follows_from_the_deals() {
    let bench = SchedulerBench::new();
    let change = Change::Weigh { member: RosterMember(2), weight: 8 };
    let journal =
        bench.connections.journal.with(Decision { change, from: 50 }).expect("it is permitted");
    let of = |timeslice| IntervalExtent::new(journal.deals(), 20, timeslice);
    assert_eq!(of(39), IntervalExtent { index: 1, first: 20, end: 40, round: 4 });
    assert_eq!(of(49), IntervalExtent { index: 2, first: 40, end: 50, round: 4 });
    assert_eq!(of(50), IntervalExtent { index: 3, first: 50, end: 70, round: 4 });
    let change = Change::Remove { member: RosterMember(4), settled: 0 };
    let journal = journal.with(Decision { change, from: 71 }).expect("it is permitted");
    let of = |timeslice| IntervalExtent::new(journal.deals(), 20, timeslice);
    assert_eq!(of(70), IntervalExtent { index: 4, first: 70, end: 71, round: 4 });
    assert_eq!(of(71), IntervalExtent { index: 5, first: 71, end: 89, round: 3 });
    assert_eq!((journal.round_of(70), journal.round_of(71), journal.round_of(74)), (18, 19, 20));
    assert_eq!((of(71).rounds(), of(70).rounds()), (6, 1));
}
