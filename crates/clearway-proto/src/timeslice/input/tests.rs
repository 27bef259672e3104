//! An input alone, to which a test says what builders and the others do.

use alloc::sync::Arc;
use alloc::vec;

use super::*;
use crate::base::{Bytes, Class};
use crate::timeslice::membership::{Change, Decision, Journal, RosterMember};
use crate::timeslice::policy::Dfs;
use crate::timeslice::{
    ContributionSource, ReleasePolicy, TimesliceConfig, TimesliceLayout, Window, WriteSlots,
};
use crate::wire::{Effect, Operation, Out, RegionId, Span, TimedOperation, Token};

/// Returns the tokens of the writes that leave, and forgets them.
fn writes(out: &mut Out<TimesliceEvent>) -> Vec<Token> {
    let (effects, _) = out.split();
    let tokens = effects.filter_map(|effect| match effect {
        Effect::Operate(TimedOperation { operation: Operation::Write { token, .. }, .. }) => token,
        _ => None,
    });
    let tokens = tokens.collect();
    out.clear();
    tokens
}

const CONTRIBUTION: Span = Span { region: RegionId(0), offset: 0, length: 64 };

/// Returns what the only input of a job with two builders is made with.
fn config(heartbeat: Option<Nanos>) -> TimesliceConfig {
    let ranks = (vec![Rank(0)], vec![Rank(1), Rank(2)]);
    let layout = TimesliceLayout::new(ranks.0, ranks.1, &[]).expect("a sound layout");
    TimesliceConfig {
        rank: Rank(0),
        run: 0,
        layout: Arc::new(layout),
        policy: Policy::BestEffort,
        window: Window::fixed(4),
        dfs: Dfs::default(),
        source: ContributionSource::Given,
        slots: WriteSlots::from_policy(Policy::BestEffort),
        rings: CONTRIBUTION,
        ring: Bytes(4096),
        release: ReleasePolicy::AtOnce,
        heartbeat,
        class: Class::Bulk,
        control: Class::Control,
    }
}

fn welcome(life: u32) -> TimesliceFrame {
    let ring = RemoteSpan { region: RegionId(0), offset: 0 };
    TimesliceFrame::Welcome { life, ring, length: 4096 }
}

#[test]
fn give__no_more_leaves_than_every_input_can_hold() {
    let leaves = |heartbeat| {
        let config = config(heartbeat);
        let journal = Arc::new(Journal::new(&config.layout));
        let mut out = Out::with_limit(64);
        let cx = &mut TimesliceContext {
            now: LocalNs(0),
            config: &config,
            journal: &journal,
            out: &mut out,
        };
        let mut input = InputNode::new(0, cx);
        (0..2).for_each(|place| {
            let _ = input.arrival(cx, place, welcome(0));
        });
        let _ = input.begin(cx);
        for _ in 0..8 {
            let _ =
                input.give(cx, ContributionSpans::new([CONTRIBUTION]).expect("it is not empty"));
        }
        let mut counts = vec![writes(cx.out).len()];
        for frame in [
            TimesliceFrame::Capacity { life: 0, epoch: 0, contributions: 3 },
            TimesliceFrame::Credit { life: 0, released: 1, granted: 0 },
        ] {
            let _ = input.arrival(cx, 0, frame);
            counts.push(writes(cx.out).len());
        }
        counts
    };
    assert_eq!(leaves(Some(Nanos(1_000))), [1, 2, 1]);
    assert_eq!(leaves(None), [8, 0, 0], "nobody is ever missed");
}

#[test]
fn written__what_is_left_of_a_builder_that_was_out_says_nothing_of_its_next_connection() {
    let config = config(None);
    let member = RosterMember(2);
    let first = Arc::new(Journal::new(&config.layout));
    let [remove, join] =
        [Change::Remove { member, settled: 0 }, Change::Join { member, incarnation: 1 }]
            .map(|change| Decision { change, from: 2 });
    let without = Arc::new(first.with(remove).expect("allowed"));
    let again = Arc::new(without.with(join).expect("allowed"));
    let mut out = Out::with_limit(64);
    let mut cx =
        TimesliceContext { now: LocalNs(0), config: &config, journal: &first, out: &mut out };
    let mut input = InputNode::new(0, &cx);
    let _ = input.arrival(&mut cx, 0, welcome(0));
    let _ = input.arrival(&mut cx, 1, welcome(0));
    let _ = input.begin(&mut cx);
    for _ in 0..2 {
        let _ = input.give(&mut cx, ContributionSpans::new([CONTRIBUTION]).expect("bytes"));
    }
    let tokens = writes(cx.out);
    assert_eq!((tokens.len(), input.writes), (2, 2), "one for each builder");
    cx.journal = &without;
    let _ = input.follow(&mut cx, remove);
    cx.journal = &again;
    let _ = input.follow(&mut cx, join);
    let _ = input.arrival(&mut cx, 1, welcome(again.life(member)));
    let under_way = input.writes;
    let (token, at) = (tokens[1], LocalNs(0));
    for status in [Status::NoRoom, Status::Flushed] {
        let _ = input.other(&mut cx, &Arrival::Done { token, status, value: 0, at });
        assert_eq!((input.writes, input.again.len()), (under_way, 0), "{status:?}");
    }
    let token = tokens[0];
    let _ = input.other(&mut cx, &Arrival::Done { token, status: Status::Complete, value: 0, at });
    assert_eq!(input.writes, under_way - 1, "the other builder was there all the time");
}
