//! Paths that fail and come back while a stream is busy.

use super::*;

const LENGTH: u32 = 64 << 10;

/// What a stream of writes of 64 KiB saw.
struct RailObservation {
    took: Nanos,
    /// The longest time between two that landed.
    gap: Nanos,
    sent: u64,
}

/// Sends `count` writes from rank 0 to rank 1 over two paths; `act` gets how many have landed and
/// does something to the paths.
fn stream(
    count: u64,
    config: MemoryConfig,
    mut act: impl FnMut(&mut MemoryFabric, u64),
) -> RailObservation {
    let mut job =
        ReliableJob::new(MemoryConfig { paths: 2, room: 100_000, ..config }, &StreamConfig::new(2));
    let source = job.memory(0, &[7; LENGTH as usize]);
    job.memory(1, &[0; LENGTH as usize]);
    let from = Span { region: source, offset: 0, length: LENGTH };
    let (path, class, into) = (PathId(0), Class::Bulk, RemoteSpan { region: source, offset: 0 });
    let (mut posted, mut landed, mut last, mut gap) = (0, 0, job.fabric.now(), Nanos::ZERO);
    while landed < count {
        while posted < count && posted < landed + 32 {
            let (immediate, token) = (posted, Some(Token(posted)));
            let write = Operation::Write {
                to: Rank(1),
                path,
                class,
                from,
                into,
                immediate: Some(immediate),
                token,
            };
            if job.post(0, write, &[]) != PostOutcome::Posted {
                break;
            }
            posted += 1;
        }
        act(&mut job.fabric, landed);
        job.pass(Nanos::from_millis(70));
        job.wire(0).poll(64, &mut |_| {});
        let before = landed;
        job.wire(1).poll(64, &mut |arrival| {
            landed += u64::from(matches!(arrival, Arrival::Landed { .. }))
        });
        let now = job.fabric.now();
        if landed > before {
            (gap, last) = (gap.max(now.since(last)), now);
        }
        assert!(now < LocalNs(0) + Nanos::from_secs(60), "it does not come to an end");
    }
    RailObservation { took: last.since(LocalNs(0)), gap, sent: job.wire(0).counters().sent }
}

fn far(latency_us: u64) -> MemoryConfig {
    MemoryConfig { latency: Nanos::from_micros(latency_us), ..MemoryConfig::lossless(2) }
}

#[test]
fn cut__the_longest_gap_is_some_time_outs_and_nothing_begins_anew() {
    for path in [0, 1] {
        let seen = stream(400, far(500), |fabric, landed| {
            if landed == 100 {
                fabric.cut_path(PathId(path));
            }
        });
        assert!(seen.gap < Nanos::from_millis(20), "path {path}: {:?}", seen.gap);
        let needed = 400 * u64::from(LENGTH) / 1_400;
        assert!(
            seen.sent < needed + 2 * u64::from(WINDOW),
            "path {path}: {} datagrams for {needed}",
            seen.sent
        );
    }
}

#[test]
fn cut__a_path_that_stays_away_costs_questions_and_no_more_gaps() {
    let (mut longest, mut last) = (0, 0);
    let seen = stream(3_000, far(2_000), |fabric, landed| {
        if landed == 100 {
            fabric.cut_path(PathId(1));
        }
        if landed > 1_000 {
            longest = longest.max(fabric.now().0 - last);
        }
        last = fabric.now().0;
    });
    assert!(seen.took > Nanos::from_millis(250), "the path was tried: {:?}", seen.took);
    assert!(longest < 8_000_000, "a gap of {longest} ns long after the cut");
}

#[test]
fn mend__a_path_that_came_back_is_used() {
    let seen = stream(2_000, far(2_000), |fabric, landed| match landed {
        100..200 => fabric.cut_path(PathId(1)),
        200..1_500 => fabric.restore_path(PathId(1)),
        // The path that was left alone must carry all of the rest.
        1_500.. => fabric.cut_path(PathId(0)),
        _ => {}
    });
    assert!(
        seen.took > Nanos::from_millis(200) && seen.gap < Nanos::from_millis(50),
        "{:?}, gap {:?}",
        seen.took,
        seen.gap
    );
}

#[test]
fn cut__of_all_paths_for_a_moment_costs_that_moment_and_some_time_outs() {
    let mut mended_at = None;
    let seen = stream(400, far(500), |fabric, landed| {
        if landed == 100 && mended_at.is_none() {
            (0..2).for_each(|path| fabric.cut_path(PathId(path)));
            mended_at = Some(fabric.now() + Nanos::from_millis(20));
        }
        if mended_at.is_some_and(|at| fabric.now() >= at) {
            (0..2).for_each(|path| fabric.restore_path(PathId(path)));
        }
    });
    // Everything that was under way is lost; its loss is proved at once, not one fragment after the
    // other.
    assert!(seen.gap < Nanos::from_millis(150), "{:?}", seen.gap);
}
