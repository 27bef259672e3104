//! A builder alone, to which a test says what inputs and the others do.

use alloc::sync::Arc;
use alloc::vec;

use super::*;
use crate::base::{Bytes, Class};
use crate::timeslice::policy::Dfs;
use crate::timeslice::{
    ContributionSizes, ContributionSource, Policy, TimesliceConfig, TimesliceLayout, Window,
    WriteSlots,
};
use crate::wire::{Destination, Effect, Operation, Out, RegionId, TimedOperation};

/// Returns the frames that `place` is sent when each leaves at once.
fn sent(builder: &mut Builder, cx: &mut TimesliceContext<'_>, place: usize) -> Vec<TimesliceFrame> {
    let mut frames = Vec::new();
    loop {
        let (effects, heads) = cx.out.split();
        let to = builder.lines[place].peer;
        let heads = heads.to_vec();
        let effects: Vec<Effect<TimesliceEvent>> = effects.collect();
        cx.out.clear();
        let mut left = vec![];
        for effect in effects {
            if let Effect::Operate(TimedOperation {
                operation: Operation::Send { to: peer, head, .. },
                ..
            }) = effect
            {
                // The run stands behind each frame.
                let frame = head
                    .bytes_in(&heads)
                    .and_then(|head| head.split_last_chunk::<2>())
                    .and_then(|(head, _)| TimesliceFrame::parse(head));
                frames.extend(frame.filter(|_| peer == Destination::One(to)));
                left.extend(
                    builder.lines.iter().position(|line| peer == Destination::One(line.peer)),
                );
            }
        }
        if left.is_empty() {
            return frames;
        }
        left.into_iter().for_each(|place| builder.outbox.done(place, Status::Complete));
        let _ = builder.go_on(cx);
    }
}

fn layout() -> Arc<TimesliceLayout> {
    let layout =
        TimesliceLayout::new(vec![Rank(0), Rank(1)], vec![Rank(2)], &[]).expect("a sound layout");
    Arc::new(layout)
}

/// Returns what the builder of two inputs is made of.
fn config(layout: &Arc<TimesliceLayout>) -> TimesliceConfig {
    let region = Span { region: RegionId(0), offset: 0, length: 8192 };
    TimesliceConfig {
        rank: Rank(2),
        run: 0,
        layout: layout.clone(),
        policy: Policy::Token,
        window: Window::fixed(4),
        dfs: Dfs::default(),
        source: ContributionSource::Endless(region, ContributionSizes::Constant(Bytes(10))),
        slots: WriteSlots::from_policy(Policy::Token),
        rings: region,
        ring: Bytes(4096),
        release: ReleasePolicy::AtOnce,
        heartbeat: None,
        class: Class::Bulk,
        control: Class::Control,
    }
}

fn change(journal: &Journal, change: Change, from: u64) -> Arc<Journal> {
    Arc::new(journal.with(Decision { change, from }).expect("allowed"))
}

/// A write of input 0 comes before the decision after which that input sent it.
#[test]
fn landed__what_an_input_sends_that_knows_more_is_not_complete_without_one_that_has_joined() {
    let (layout, member) = (layout(), RosterMember(1));
    let config = config(&layout);
    let (remove, join) =
        (Change::Remove { member, settled: 0 }, Change::Join { member, incarnation: 1 });
    let without = change(&Journal::new(&layout), remove, 0);
    let again = change(&without, join, 1);
    let mut out = Out::with_limit(64);
    let mut cx =
        TimesliceContext { now: LocalNs(0), config: &config, journal: &without, out: &mut out };
    let mut builder = Builder::new(0, &cx);
    let _ = builder.arrival(&mut cx, 0, TimesliceFrame::Hello { life: 0 });
    let write = |builder: &mut Builder, cx: &mut TimesliceContext<'_>, place: usize, marks| {
        let [timeslice, epoch, life] = marks;
        let mark = WriteImmediate::new(timeslice, timeslice, 1, [epoch as u32, life as u32, 0]);
        let into = Span { region: RegionId(0), offset: 4096 * place as u64, length: 10 };
        let _ = builder.landed(cx, place, into, mark.word(), LocalNs(0));
    };
    write(&mut builder, &mut cx, 0, [0, 1, 0]);
    assert_eq!(builder.row(), 1, "nobody else is expected");
    write(&mut builder, &mut cx, 0, [1, 2, 0]);
    assert_eq!(builder.row(), 1, "somebody may be");
    cx.journal = &again;
    let _ = builder.follow(&mut cx, Decision { change: join, from: 1 });
    assert_eq!((builder.row(), builder.awaited()), (1, Some(1)));
    let life = again.life(member);
    let _ = builder.arrival(&mut cx, 1, TimesliceFrame::Hello { life });
    write(&mut builder, &mut cx, 1, [1, 2, u64::from(life)]);
    assert_eq!(builder.row(), 2);
}

/// An input is taken for dead that has sent further than the others, and joins again before that.
#[test]
fn follow__an_input_that_joins_again_gives_anew_what_it_had_sent_beyond_the_others() {
    let (layout, member) = (layout(), RosterMember(1));
    let config = config(&layout);
    let (remove, join) =
        (Change::Remove { member, settled: 0 }, Change::Join { member, incarnation: 1 });
    let first = Arc::new(Journal::new(&layout));
    let without = change(&first, remove, 0);
    let again = change(&without, join, 1);
    let mut out = Out::with_limit(64);
    let mut cx =
        TimesliceContext { now: LocalNs(0), config: &config, journal: &first, out: &mut out };
    let mut builder = Builder::new(0, &cx);
    for place in [0, 1] {
        let _ = builder.arrival(&mut cx, place, TimesliceFrame::Hello { life: 0 });
    }
    let into = Span { region: RegionId(0), offset: 0, length: 10 };
    for timeslice in [0, 1, 2] {
        let mark = WriteImmediate::new(timeslice, timeslice, 1, [0; 3]);
        let _ = builder.landed(&mut cx, 1, into, mark.word(), LocalNs(0));
    }
    cx.journal = &without;
    let _ = builder.follow(&mut cx, Decision { change: remove, from: 0 });
    cx.journal = &again;
    let _ = builder.follow(&mut cx, Decision { change: join, from: 1 });
    assert_eq!(builder.assemblies.open(), 1, "only what the input does not give again");
    let mark = WriteImmediate::new(0, 0, 1, [2, 0, 0]);
    let _ = builder.landed(&mut cx, 0, into, mark.word(), LocalNs(0));
    let mark = WriteImmediate::new(1, 1, 1, [2, 0, 0]);
    let _ = builder.landed(&mut cx, 0, into, mark.word(), LocalNs(0));
    assert_eq!((builder.row(), builder.awaited()), (1, Some(1)));
    assert_eq!(builder.lines[1].fill, 0);
}

/// An input that retires follows the decision before the builder does, and says where its stream
/// ends.
#[test]
fn follow__keeps_where_an_input_said_that_its_stream_ends() {
    let (layout, member) = (layout(), RosterMember(1));
    let config = config(&layout);
    let first = Arc::new(Journal::new(&layout));
    let retire = Change::Retire { member };
    let retired = change(&first, retire, 9);
    let mut out = Out::with_limit(64);
    let mut cx =
        TimesliceContext { now: LocalNs(0), config: &config, journal: &first, out: &mut out };
    let mut builder = Builder::new(0, &cx);
    for place in [0, 1] {
        let _ = builder.arrival(&mut cx, place, TimesliceFrame::Hello { life: 0 });
        let _ = builder.arrival(&mut cx, place, TimesliceFrame::Last { life: 0, timeslices: 5 });
    }
    cx.journal = &retired;
    let _ = builder.follow(&mut cx, Decision { change: retire, from: 9 });
    let into = Span { region: RegionId(0), offset: 0, length: 10 };
    let mark = WriteImmediate::new(6, 6, 1, [1, 0, 0]);
    let _ = builder.landed(&mut cx, 0, into, mark.word(), LocalNs(0));
    assert_eq!(builder.awaited(), None, "nobody else has anything for it");
}

#[test]
fn welcome__says_again_what_was_granted_before_the_input_knew_that_it_is_in() {
    let layout = layout();
    let config = config(&layout);
    let member = RosterMember(1);
    let first = Arc::new(Journal::new(&layout));
    let (remove, join) =
        (Change::Remove { member, settled: 0 }, Change::Join { member, incarnation: 1 });
    let without = change(&first, remove, 1);
    let again = change(&without, join, 1);
    let mut out = Out::with_limit(64);
    let mut cx =
        TimesliceContext { now: LocalNs(0), config: &config, journal: &first, out: &mut out };
    let mut builder = Builder::new(0, &cx);
    for place in [0, 1] {
        let _ = builder.arrival(&mut cx, place, TimesliceFrame::Hello { life: 0 });
    }
    cx.journal = &without;
    let _ = builder.follow(&mut cx, Decision { change: remove, from: 1 });
    cx.journal = &again;
    let _ = builder.follow(&mut cx, Decision { change: join, from: 1 });
    // The input is nobody's yet, so that all of this is lost.
    let _ = sent(&mut builder, &mut cx, 1);
    let granted = builder.lines[1].granted;
    assert!(granted > 0, "a place in the window is kept for it");
    let life = again.life(member);
    let _ = builder.arrival(&mut cx, 1, TimesliceFrame::Hello { life });
    let frames = sent(&mut builder, &mut cx, 1);
    assert!(matches!(frames[0], TimesliceFrame::Welcome { .. }), "{frames:?}");
    let granted = frames.iter().rev().find_map(|frame| match frame {
        TimesliceFrame::Credit { granted, .. } => Some(*granted),
        _ => None,
    });
    assert_eq!(granted, Some(builder.lines[1].granted), "{frames:?}");
}
