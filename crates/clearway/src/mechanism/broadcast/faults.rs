//! Casts while everything goes wrong, one after the other, for some time: what is lost, doubled,
//! damaged or late, who dies and who stands still follow from the seed.
//!
//! # Invariants
//! I1. Every cast ends with identical and right bytes at all survivors, or with the same end
//!     at all of them; else this is an error.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clearway_proto::base::{Bytes, Nanos, RandomKey, RandomStream};
use clearway_proto::broadcast::BroadcastRecord;

use super::coordinator::BroadcastCoordinator;
use super::fault_injection::ArrivalFaults;
use super::outcome::{CastParameters, CastResult};
use super::plan::{BroadcastPlan, CastMode, Millionths};
use crate::run::VenueKind;
use crate::run::venue::ProcessVenue;
use crate::scenario::RankAt;

const MODES: [CastMode; 4] = [CastMode::Auto, CastMode::Multicast, CastMode::Chain, CastMode::Tree];
/// The most of what arrives that suffers each fault, in millionths.
const SHARE_MAX: u64 = 30_000;
/// The longest object has twice as many bytes as two to this.
const LENGTH_BITS: u64 = 21;
/// Objects of one cast.
const OBJECTS_MAX: u64 = 6;
/// One cast in this many has a death, and one a rank that stands still.
const SELDOM: u64 = 4;
/// When that is, and how long one stands still at most: longer than a rank may be silent.
const WITHIN: u64 = 300_000_000;
const STOP_MAX: u64 = 3_000_000_000;

/// What became of all casts.
#[derive(Debug, Default)]
struct FaultTally {
    casts: u32,
    objects: u64,
    aborted: u32,
    deaths: u32,
    stops: u32,
    switches: u32,
    record: BroadcastRecord,
}

impl FaultTally {
    fn add(&mut self, plan: &BroadcastPlan, outcome: &CastResult) {
        let stable = outcome.accounts.values().map(|account| account.stable).max().unwrap_or(0);
        let record = outcome.record();
        self.casts += 1;
        self.objects += u64::from(stable);
        self.aborted += u32::from(stable < outcome.cast.objects);
        self.deaths += outcome.dead_ranks.len() as u32;
        self.stops += plan.stops.len() as u32;
        self.switches += outcome.ways.len() as u32;
        self.record.repairs += record.repairs;
        self.record.doubled += record.doubled;
        self.record.damaged += record.damaged;
    }
}

/// Casts on `ranks`, a lab, for `time`; what happened, for a person.
///
/// # Errors
/// The first cast that ended otherwise than it may, and its number.
pub(crate) fn run_with_faults(
    ranks: &mut dyn ProcessVenue,
    plan: &BroadcastPlan,
    time: Nanos,
) -> Result<String> {
    let end = Instant::now() + Duration::from_nanos(time.0);
    let mut dice = RandomKey::new(plan.seed).purpose("faults").stream();
    let mut tally = FaultTally::default();
    let mut dead_ranks = BTreeSet::new();
    while Instant::now() < end {
        let plan = drawn(plan, &mut dice);
        let key = tally.casts;
        let mut coordinator = BroadcastCoordinator {
            venue: ranks,
            plan: &plan,
            place: VenueKind::Lab,
            key,
            dead_ranks,
        };
        let cast = cast(&coordinator, &mut dice);
        let outcome =
            coordinator.run(&cast).with_context(|| format!("cast {key} of seed {}", plan.seed))?;
        tally.add(&plan, &outcome);
        dead_ranks = coordinator.dead_ranks;
    }
    let FaultTally { casts, objects, aborted, deaths, stops, switches, record } = tally;
    Ok(format!(
        "{casts} casts in {time}, seed {}: {objects} objects with all survivors, every byte right;\n\
         {aborted} casts ended early, with the same end reported to all survivors;\n\
         {deaths} ranks were killed, {stops} stood still, {switches} changes of the way;\n\
         {} symbols sent again, {} came twice, {} were damaged and found out\n",
        plan.seed, record.repairs, record.doubled, record.damaged
    ))
}

/// Draws who dies and who stands still.
fn drawn(plan: &BroadcastPlan, dice: &mut RandomStream) -> BroadcastPlan {
    let mut stroke = |seldom| {
        let kill = RankAt {
            rank: dice.below(u64::from(plan.ranks)) as u32,
            at: Nanos(dice.below(WITHIN)),
        };
        let length = Nanos(dice.below(STOP_MAX));
        (dice.below(seldom) == 0).then_some((kill, length))
    };
    let (kill, stop) = (stroke(SELDOM), stroke(SELDOM));
    let kills = kill.into_iter().map(|(kill, _)| kill).collect();
    BroadcastPlan { kills, stops: stop.into_iter().collect(), seed: plan.seed, ..plan.clone() }
}

/// Returns what is cast, and what its packets suffer.
fn cast(coordinator: &BroadcastCoordinator<'_>, dice: &mut RandomStream) -> CastParameters {
    let mut share = || dice.below(SHARE_MAX) as u32;
    let (lost, faults) =
        (share(), ArrivalFaults { lost: 0, doubled: share(), damaged: share(), late: share() });
    let length = 1_u64 << dice.below(LENGTH_BITS + 1);
    let length = Bytes(length + dice.below(length));
    let mode = MODES[dice.below(MODES.len() as u64) as usize];
    let objects = 1 + dice.below(OBJECTS_MAX) as u32;
    let rhythm = coordinator.rhythms(length)[0].0;
    CastParameters { mode, length, loss: Millionths(lost), faults, rhythm, objects }
}
