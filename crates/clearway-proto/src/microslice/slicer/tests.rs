//! Checks components at boundaries and with losses, and against a sort of all microslices by time.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::base::RandomKey;
use proptest::prelude::*;

const RULE: TimeRule = TimeRule {
    duration: Nanos(100),
    before: Nanos(0),
    after: Nanos(0),
    max_gap: Nanos(10_000),
    silence: None,
    step: None,
};

fn slicer(rule: TimeRule, origin: u64) -> Slicer {
    let mut slicer = Slicer::new(SliceRule::ByTime(rule));
    slicer.set_origin(LocalNs(0), origin);
    slicer
}

/// Offers `starts` at time zero and returns what can be cut then.
fn cut(slicer: &mut Slicer, starts: impl IntoIterator<Item = u64>) -> Vec<SliceCut> {
    for start in starts {
        slicer.offer(LocalNs(0), start);
    }
    drain(slicer, 0)
}

fn drain(slicer: &mut Slicer, padding: u64) -> Vec<SliceCut> {
    core::iter::from_fn(|| {
        let cut = slicer.peek(padding)?;
        slicer.advance();
        Some(cut)
    })
    .collect()
}

/// The first number of each cut and the one behind its last.
fn numbers(cuts: &[SliceCut]) -> Vec<[u64; 2]> {
    cuts.iter().map(|cut| [cut.microslices.start, cut.microslices.end]).collect()
}

#[test]
fn peek__a_start_on_the_boundary_is_of_the_later_timeslice() {
    let mut slicer = slicer(RULE, 7);
    let cuts = cut(&mut slicer, [700, 750, 799, 800, 899, 900]);
    assert_eq!(numbers(&cuts), [[0, 3], [3, 5]]);
}

#[test]
fn peek__overlaps_are_of_both_timeslices_and_the_core_of_one() {
    let rule = TimeRule { before: Nanos(10), after: Nanos(20), ..RULE };
    let mut slicer = slicer(rule, 0);
    // Timeslice 1 is from 90 to 219.
    let cuts = cut(&mut slicer, [0, 89, 90, 100, 199, 200, 219, 220, 300, 320]);
    assert_eq!(numbers(&cuts), [[0, 4], [2, 7], [4, 9]]);
    let cores: Vec<_> = cuts.iter().map(|cut| cut.core.clone()).collect();
    assert_eq!(cores, [0..3, 3..5, 5..8]);
}

#[test]
fn peek__a_component_is_cut_when_a_younger_microslice_is_seen() {
    let mut slicer = slicer(RULE, 0);
    assert_eq!(cut(&mut slicer, [0, 99]), []);
    slicer.announce(99);
    assert_eq!(slicer.peek(0), None, "a microslice that starts before the end is not younger");
    slicer.announce(100);
    assert_eq!(slicer.peek(0).map(|cut| cut.microslices), Some(0..2));
    slicer.advance();
    assert_eq!(cut(&mut slicer, [100]), []);
    slicer.finish();
    assert_eq!(numbers(&drain(&mut slicer, 0)), [[2, 3]]);
    let padding = drain(&mut slicer, 4);
    assert_eq!(numbers(&padding), [[3, 3], [3, 3]], "empty ones as far as they are asked for");
    assert!(padding.iter().all(|cut| cut.faults.has(CutFaults::MISSING)));
}

#[test]
fn peek__what_the_source_lacks_is_counted_where_it_would_be() {
    let mut slicer = slicer(TimeRule { step: Some(Nanos(20)), ..RULE }, 0);
    // Of 0, 20, .. 460, those at 80, 100, 120 and 260 are lacking, and all before 40.
    let there = (2..24).filter(|number| ![4, 5, 6, 13].contains(number));
    let mut cuts = cut(&mut slicer, there.map(|number| number * 20));
    slicer.finish();
    cuts.extend(drain(&mut slicer, 0));
    let missing: Vec<_> = cuts.iter().map(|cut| cut.missing).collect();
    assert_eq!(missing, [3, 2, 1, 0, 1], "the last one ends at 460 with 480 lacking");
    let flags: Vec<_> = cuts.iter().map(|cut| cut.faults.has(CutFaults::MISSING)).collect();
    assert_eq!(flags, [true, true, true, false, true]);
}

#[test]
fn is_short__where_only_an_overlap_lacks_microslices() {
    let rule = TimeRule { before: Nanos(30), after: Nanos(30), ..RULE };
    let mut slicer = slicer(TimeRule { step: Some(Nanos(10)), ..rule }, 5);
    // From 500 to 790 without 610: of timeslices 5 and 6, in the core of the second.
    let there = (50..80).map(|number| 10 * number).filter(|start| *start != 610);
    let mut cuts = cut(&mut slicer, there);
    slicer.finish();
    cuts.extend(drain(&mut slicer, 0));
    let is_marked = cuts.iter().map(|cut| cut.faults.has(CutFaults::MISSING));
    assert_eq!(is_marked.collect::<Vec<_>>(), [true, true, true], "nothing lacks before 500");
    assert_eq!(cuts.iter().map(SliceCut::is_short).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(cuts.iter().map(|cut| cut.missing).collect::<Vec<_>>(), [0, 1, 0]);
}

#[test]
fn dropped__what_the_source_dropped_is_not_missing_at_it() {
    let mut slicer = slicer(TimeRule { step: Some(Nanos(20)), ..RULE }, 0);
    cut(&mut slicer, [0, 20]);
    slicer.dropped(2);
    let cuts = cut(&mut slicer, [120, 200]);
    // 40 and 60 were dropped, 80 and 100 are missing; behind 120, those up to 180.
    let missing: Vec<_> = cuts.iter().map(|cut| cut.missing).collect();
    assert_eq!(missing, [1, 4]);
    assert!(cuts[0].faults.has(CutFaults::MISSING), "dropped ones are not there either");
}

#[test]
fn offer__repeated_late_and_damaged_ones_are_not_kept_and_mark_their_timeslice() {
    let mut slicer = slicer(RULE, 1);
    let offered: Vec<_> = [100, 120, 120, 100, 110, 160, 20_000, 99, 220]
        .iter()
        .map(|start| slicer.offer(LocalNs(0), *start))
        .collect();
    use Offered::{Damaged, Kept, Late, Repeated};
    assert_eq!(offered, [Kept, Kept, Repeated, Repeated, Late, Kept, Damaged, Late, Kept]);
    let cuts = drain(&mut slicer, 0);
    assert_eq!(numbers(&cuts), [[0, 3]]);
    assert!(cuts[0].faults.has(CutFaults::LATE) && cuts[0].faults.has(CutFaults::REPEATED));
}

#[test]
fn idle__a_silent_source_loses_components_as_its_time_goes_on() {
    let rule = TimeRule { silence: Some(Nanos(1_000)), ..RULE };
    let mut slicer = slicer(rule, 0);
    slicer.offer(LocalNs(5_000), 30);
    assert_eq!(slicer.deadline(), Some(LocalNs(6_070)));
    slicer.idle(LocalNs(6_069));
    assert_eq!(slicer.peek(0), None);
    slicer.idle(LocalNs(6_070));
    let cuts = drain(&mut slicer, 0);
    assert_eq!((numbers(&cuts), cuts[0].timeslice), (vec![[0, 1]], 0));
    assert_eq!(slicer.deadline(), Some(LocalNs(6_170)), "the next one has its own time");
    assert_eq!(slicer.offer(LocalNs(6_100), 90), Offered::Late, "its timeslice was given up");
    assert_eq!(slicer.offer(LocalNs(6_100), 110), Offered::Kept);
    assert_eq!(slicer.deadline(), Some(LocalNs(7_190)), "it counts from the newest one");
}

#[test]
fn idle__a_source_that_never_gave_anything_does_not_hold_others_back() {
    let rule = TimeRule { silence: Some(Nanos(1_000)), ..RULE };
    let mut slicer = Slicer::new(SliceRule::ByTime(rule));
    slicer.idle(LocalNs(50_000));
    assert_eq!(slicer.peek(0), None, "nobody knows when the first timeslice is");
    slicer.set_origin(LocalNs(50_000), 9);
    assert_eq!(slicer.deadline(), Some(LocalNs(51_100)));
    slicer.idle(LocalNs(51_100));
    assert_eq!(numbers(&drain(&mut slicer, 0)), [[0, 0]]);
}

#[test]
fn join__earlier_timeslices_are_passed_over() {
    let mut slicer = slicer(RULE, 0);
    assert_eq!(numbers(&cut(&mut slicer, [0, 50, 100])), [[0, 2]]);
    slicer.join(3);
    assert_eq!(slicer.offer(LocalNs(0), 250), Offered::Passed);
    assert_eq!(slicer.offer(LocalNs(0), 310), Offered::Kept);
    let number = slicer.end() - 1;
    assert_eq!(slicer.first(), number, "nothing before it is needed");
    slicer.finish();
    assert_eq!(numbers(&drain(&mut slicer, 0)), [[number, number + 1]]);
}

#[test]
fn by_index__the_last_timeslice_may_be_short() {
    let mut slicer = Slicer::new(SliceRule::ByIndex { core: 2, overlap: 1 });
    let mut cuts = cut(&mut slicer, [5; 5]);
    assert_eq!(numbers(&cuts), [[0, 3], [2, 5]], "starts do not matter");
    slicer.finish();
    cuts = drain(&mut slicer, 4);
    assert_eq!(numbers(&cuts), [[4, 5], [5, 5]]);
    assert_eq!(cuts.iter().map(|cut| cut.missing).collect::<Vec<_>>(), [1, 2]);
    slicer.free(2);
    assert_eq!(slicer.first(), 4);
    slicer.join(9);
    assert_eq!(slicer.offer(LocalNs(0), 0), Offered::Passed, "it came while it took no part");
}

/// What a source gives: starts in order, some repeated, some lacking.
#[derive(Clone, Debug)]
struct DrawnStream {
    step: u64,
    offset: u64,
    given: Vec<u64>,
    /// Those that it should have given, between its first and its last one.
    lacking: BTreeSet<u64>,
}

fn draw(seed: u64, loss_percent: u64) -> DrawnStream {
    let mut random = RandomKey::new(seed).purpose("slices").stream();
    let (step, offset) = (1 + random.below(40), random.below(300));
    let (mut given, mut lacking, mut gap) = (Vec::new(), BTreeSet::new(), 0);
    for number in 0..400 {
        let start = offset + number * step;
        gap = if random.below(80) == 0 { random.below(30) } else { gap };
        if gap > 0 || random.below(100) < loss_percent {
            lacking.insert(start);
            gap = u64::saturating_sub(gap, 1);
            continue;
        }
        given.push(start);
        if random.below(20) == 0 {
            let behind = given.len() - 1 - random.below(given.len().min(5) as u64) as usize;
            given.push(given[behind]);
        }
    }
    let (first, last) = (given[0], given.iter().copied().max().unwrap_or(0));
    lacking.retain(|start| (first..last).contains(start));
    DrawnStream { step, offset, given, lacking }
}

#[test]
fn learn__the_step_is_found_although_a_quarter_is_lost() {
    for seed in 0..200 {
        let source = draw(seed, 25);
        let mut step = MicrosliceStep::new(None);
        let starts: BTreeSet<u64> = source.given.iter().copied().collect();
        let starts: Vec<u64> = starts.into_iter().collect();
        let behind = starts.get(16).copied().unwrap_or(0);
        let steps = starts.windows(2).map(|pair| step.lacking(pair[1] - pair[0]));
        let lacking: u64 = steps.skip(16).sum();
        assert_eq!(step.get(), Some(source.step), "seed {seed}");
        let known = source.lacking.range(behind..).count() as u64;
        assert!((known - 5..=known).contains(&lacking), "seed {seed}: {lacking} of {known}");
    }
}

proptest! {
    #[test]
    fn offer__timeslices_are_those_of_a_sort_by_time(
        seed in any::<u64>(),
        loss in 0_u64..40,
        duration in 1_u64..300,
        before in 0_u64..80,
        after in 0_u64..80,
        hold in 1_usize..60,
    ) {
        let source = draw(seed, loss);
        let origin = source.given[0] / duration;
        let rule = TimeRule {
            duration: Nanos(duration),
            before: Nanos(before),
            after: Nanos(after),
            step: Some(Nanos(source.step)),
            ..RULE
        };
        // The reference knows all at once.
        let all: BTreeSet<u64> = source.given.iter().copied().collect();
        let newest = *all.last().unwrap_or(&0);
        let mut expected = BTreeMap::new();
        for stretch in origin..=newest / duration {
            let span = (stretch * duration).saturating_sub(before)..(stretch + 1) * duration + after;
            let core = stretch * duration..(stretch + 1) * duration;
            let inside: Vec<u64> = all.range(span.clone()).copied().collect();
            let grid = |time: &u64| *time >= source.offset && (time - source.offset).is_multiple_of(source.step);
            let inner = source.given[0]..newest;
            let lacks = |range: &Range<u64>| range
                .clone()
                .filter(|time| inner.contains(time) && grid(time) && !all.contains(time))
                .count() as u64;
            prop_assert_eq!(lacks(&core), source.lacking.range(core.clone()).count() as u64);
            expected.insert(stretch - origin, (inside, lacks(&core), lacks(&span) > 0));
        }
        let (mut slicer, mut kept, mut given) = (slicer(rule, origin), BTreeMap::new(), 0);
        let mut cuts = Vec::new();
        for (number, start) in source.given.iter().enumerate() {
            if slicer.offer(LocalNs(0), *start) == Offered::Kept {
                kept.insert(slicer.end() - 1, *start);
            }
            // Cut late now and then, and free late.
            if number % hold == 0 {
                cuts.extend(drain(&mut slicer, 0));
                slicer.free(given);
                given = slicer.next.saturating_sub(3);
            }
        }
        slicer.finish();
        cuts.extend(drain(&mut slicer, 0));
        prop_assert_eq!(cuts.len(), expected.len());
        let mut in_cores = 0;
        for cut in cuts {
            let (inside, lacking, is_short) = &expected[&cut.timeslice];
            let starts: Vec<u64> = cut.microslices.clone().map(|number| kept[&number]).collect();
            prop_assert_eq!(&starts, inside, "timeslice {}", cut.timeslice);
            let stretch = origin + cut.timeslice;
            let is_inner = stretch * duration >= source.given[0] + before
                && (stretch + 1) * duration + after <= newest;
            if is_inner {
                prop_assert_eq!(cut.missing, *lacking, "timeslice {}", cut.timeslice);
                let is_missing = *is_short || inside.is_empty();
                prop_assert_eq!(cut.faults.has(CutFaults::MISSING), is_missing);
            }
            in_cores += cut.core.end - cut.core.start;
        }
        prop_assert_eq!(in_cores, all.len() as u64, "each one is in one core");
    }

    #[test]
    fn offer__any_starts_and_any_rule_are_cut_without_a_panic(
        starts in prop::collection::vec(any::<u64>(), 0..60),
        duration in 1_u64..u64::MAX,
        overlap in any::<u64>(),
        origin in any::<u64>(),
    ) {
        let rule = TimeRule {
            duration: Nanos(duration),
            before: Nanos(overlap),
            after: Nanos(overlap),
            max_gap: Nanos(u64::MAX),
            silence: Some(Nanos(0)),
            step: None,
        };
        let mut slicer = slicer(rule, origin);
        for (at, start) in starts.iter().enumerate() {
            slicer.offer(LocalNs(at as u64), *start);
            slicer.dropped(*start);
            slicer.idle(LocalNs(at as u64 * 3));
            if slicer.peek(0).is_some() {
                slicer.advance();
            }
            slicer.free(slicer.next);
        }
        slicer.finish();
        let _ = (slicer.peek(u64::MAX), slicer.deadline());
    }
}
