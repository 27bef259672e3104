//! Draws what strikes which ranks of a trial, and when.

use super::*;

/// Faults of one trial, by when they strike.
fn faults(
    stream: &mut RandomStream,
    [inputs, builders]: [u32; 2],
    absent: &[Rank],
) -> FaultsByTime {
    let mut below = |bound: u64| stream.below(bound);
    let ranks = inputs + builders;
    let members = ranks - absent.len() as u32;
    let mut faults = FaultsByTime::new();
    // Fewer than half are struck by what can put them out, so that the others can always decide;
    // one input and one builder never are.
    let mut safe =
        [below(u64::from(inputs)) as u32, inputs + 1 + below(u64::from(builders) - 1) as u32]
            .to_vec();
    safe.extend(absent.iter().map(|rank| rank.0));
    let mut strikes = (members - 1) / 2;
    for _ in 0..below(6) {
        // Nobody misses a rank that was never heard: it may be starting.
        let (at, rank) = (below(STRIKES).max(1), below(u64::from(ranks)) as u32);
        let fault = match below(10) {
            0 => SwarmFault::Kill,
            1 => SwarmFault::Restart(1 + below(400_000)),
            2 | 3 => SwarmFault::Pause(10_000 + below(600_000)),
            4 => SwarmFault::Jump(below(1_000_000)),
            5 => SwarmFault::Slow,
            6 => SwarmFault::Retire,
            7 => SwarmFault::SetBack(below(400_000)),
            8 => SwarmFault::Drop(below(400_000)),
            _ => SwarmFault::Weigh(1 + below(40) as u32),
        };
        if matches!(
            fault,
            SwarmFault::Kill | SwarmFault::Restart(_) | SwarmFault::Pause(_) | SwarmFault::Retire
        ) {
            if strikes == 0 || safe.contains(&rank) {
                continue;
            }
            strikes -= 1;
            safe.push(rank);
        }
        faults.entry(at).or_default().push((rank, fault));
    }
    absent.iter().for_each(|rank| {
        faults.entry(below(STRIKES)).or_default().push((rank.0, SwarmFault::Join))
    });
    faults
}

/// Retirements of some ranks, of which one input and one builder stay; they join again later.
fn retirements(stream: &mut RandomStream, [inputs, builders]: [u32; 2]) -> FaultsByTime {
    let mut below = |bound: u64| stream.below(bound);
    let stay = [below(u64::from(inputs)) as u32, inputs + below(u64::from(builders)) as u32];
    let mut faults = FaultsByTime::new();
    for rank in (0..inputs + builders).filter(|rank| !stay.contains(rank)) {
        if below(3) > 0 {
            faults.entry(below(STRIKES / 4)).or_default().push((rank, SwarmFault::Retire));
        }
        if below(4) == 0 {
            let pause = SwarmFault::Pause(below(80_000));
            faults.entry(below(STRIKES)).or_default().push((rank, pause));
        }
    }
    // One at most is away for so long that the others do without it.
    let rank = below(u64::from(inputs + builders)) as u32;
    if !stay.contains(&rank) {
        let pause = SwarmFault::Pause(100_000 + below(600_000));
        faults.entry(below(STRIKES)).or_default().push((rank, pause));
    }
    faults
}

/// Two kills of different ranks, each of which starts anew later.
fn restarts(stream: &mut RandomStream, ranks: u32) -> FaultsByTime {
    let mut below = |bound: u64| stream.below(bound);
    let first = below(u64::from(ranks)) as u32;
    let second = (first + 1 + below(u64::from(ranks) - 1) as u32) % ranks;
    let mut faults = FaultsByTime::new();
    for rank in [first, second] {
        let (at, after) = (STRIKES / 4 + below(STRIKES), 1 + below(400_000));
        faults.entry(at).or_default().push((rank, SwarmFault::Restart(after)));
    }
    faults
}

/// Draws the faults of `plan`, and says which of `absent` are absent at the beginning.
pub(super) fn strikes_of(
    plan: SwarmPlan,
    stream: &mut RandomStream,
    parts: [u32; 2],
    absent: Vec<Rank>,
) -> (Vec<Rank>, FaultsByTime) {
    match plan {
        SwarmPlan::Faults => {
            let faults = faults(stream, parts, &absent);
            (absent, faults)
        }
        SwarmPlan::Returns => (Vec::new(), retirements(stream, parts)),
        SwarmPlan::Restarts | SwarmPlan::ScarceMemory => {
            (Vec::new(), restarts(stream, parts.iter().sum()))
        }
    }
}
