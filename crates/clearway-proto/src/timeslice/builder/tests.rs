//! A builder alone, told by hand what inputs and the others say.

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

#[test]
fn welcome__says_again_what_was_granted_before_the_input_knew_that_it_is_in() {
    let layout =
        TimesliceLayout::new(vec![Rank(0), Rank(1)], vec![Rank(2)], &[]).expect("a sound layout");
    let layout = Arc::new(layout);
    let region = Span { region: RegionId(0), offset: 0, length: 8192 };
    let config = TimesliceConfig {
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
    };
    let member = RosterMember(1);
    let first = Arc::new(Journal::new(&layout));
    let change = |journal: &Journal, change, from| {
        Arc::new(journal.with(Decision { change, from }).expect("allowed"))
    };
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
    let told = frames.iter().rev().find_map(|frame| match frame {
        TimesliceFrame::Credit { granted, .. } => Some(*granted),
        _ => None,
    });
    assert_eq!(told, Some(builder.lines[1].granted), "{frames:?}");
}
