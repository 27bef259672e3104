//! Coordinates ranks through casts, and notices which of them end.
//!
//! # Model
//! Objects that are longer than a packet are cast one at a time: the next one when every rank has
//! compared the last. Short ones the root casts by itself, once far apart, so that each finds an
//! idle network, and once in batches that share their synchronisation.
//!
//! # Invariants
//! I1. What was seen is reported only if every byte was right and all survivors received the same
//!     end.

use std::collections::BTreeSet;
use std::iter;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clearway_lab::OFFLOAD_MAX;
use clearway_proto::base::{BitsPerSec, Bytes, Nanos, Rank};
use clearway_proto::broadcast::{Algorithm, MulticastReach};

use super::fault_injection::ArrivalFaults;
use super::messages::{
    BroadcastAssignment, BroadcastProtocol, BroadcastRequest, BroadcastResponse, CastTiming,
};
use super::outcome::{CastParameters, CastResult};
use super::plan::{BroadcastPlan, CastMode, Millionths, SHORT};
use crate::run::session::Session;
use crate::run::venue::ProcessVenue;
use crate::run::{RemainingTime, VenueKind, detail, notice};
use crate::scenario::RankAt;

/// How long ranks may take for what takes no time but that of a busy machine.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
/// Nothing at all moves for longer than any repair, view or silence takes.
pub(super) const STUCK: Duration = Duration::from_secs(60);
/// How often a wait looks around.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Between short objects: longer than one takes on an idle network, and than the machine takes to
/// come to rest.
const APART: Nanos = Nanos::from_millis(1);
/// Objects of a batch: as many short ones as share a synchronisation.
const BATCH: u32 = 16;
/// The longest that are cast in batches: a longer one keeps the link busy for many round trips, and
/// nothing is shared.
const BATCHED_MAX: Bytes = Bytes(64 << 10);
/// Batches, and bare exchanges.
const BATCHES: u32 = 100;
const ROUNDS: u32 = 500;
/// A hop of a network that nobody has measured yet.
const LATENCY: Nanos = Nanos::from_micros(100);

/// In a laboratory, long objects are cast between hosts with segmentation offload, as most real
/// ones have it. A rested port lets one packet pass at once, so a packet is at most this share of
/// an object: what no rate held back is less than a hundredth of its time.
const PACKETS_OF_OBJECT: u64 = 128;
/// A frame of Ethernet, without what only the cable sees.
const FRAME: u64 = 1514;

/// Runs every cast of `plan` on `ranks`, which is a `place`.
///
/// # Errors
/// One sentence: which rank cannot go on, what was wrong with an object, or who does not answer.
pub(crate) fn coordinate(
    ranks: &mut dyn ProcessVenue,
    plan: &BroadcastPlan,
    place: VenueKind,
) -> Result<Vec<CastResult>> {
    let mut coordinator =
        BroadcastCoordinator { venue: ranks, plan, place, key: 0, dead_ranks: BTreeSet::new() };
    let casts = casts(&coordinator, plan);
    let seconds = casts.iter().map(|cast| seconds(plan, cast)).collect();
    let planned = plan.rate.map(|_| Duration::from_secs(1));
    let remaining = RemainingTime::begin("cast", seconds, planned);
    let run = |cast: &CastParameters| {
        remaining.part(format!("{} by {}", cast.length, describe(cast)));
        coordinator.run(cast)
    };
    casts.iter().map(run).collect()
}

/// Returns all casts of `plan`, in their order.
fn casts(coordinator: &BroadcastCoordinator<'_>, plan: &BroadcastPlan) -> Vec<CastParameters> {
    let faults = ArrivalFaults::default();
    let mut casts = Vec::new();
    for loss in &plan.losses {
        casts.push(CastParameters {
            mode: CastMode::Auto,
            length: Bytes(4),
            loss: *loss,
            faults,
            rhythm: CastTiming::Bare,
            objects: ROUNDS,
        });
        for length in &plan.lengths {
            for mode in plan.modes_of(*length) {
                for (rhythm, objects) in coordinator.rhythms(*length) {
                    casts.push(CastParameters {
                        mode: *mode,
                        length: *length,
                        loss: *loss,
                        faults,
                        rhythm,
                        objects,
                    });
                }
            }
        }
    }
    casts
}

/// Returns how long `cast` takes at its rate, to the order of magnitude: what is lost, and ways that
/// send it several times, are left out.
fn seconds(plan: &BroadcastPlan, cast: &CastParameters) -> f64 {
    let rate = plan.rate.unwrap_or(BitsPerSec::mega(1000));
    rate.time_for(cast.length).max(APART).as_secs_f64() * f64::from(cast.objects)
}

/// Returns how many bytes of a body one message carries with an engine's usual header.
fn symbol(ranks: &dyn ProcessVenue) -> Bytes {
    Bytes(u64::from(ranks.processes().facts().body_max))
}

/// Returns how symbols leave at first where objects of this length are cast by this mode under this
/// loss.
pub(super) fn way_of(
    ranks: &dyn ProcessVenue,
    plan: &BroadcastPlan,
    (mode, length, loss): (CastMode, Bytes, Millionths),
) -> Algorithm {
    let multicast =
        if ranks.facts().has_multicast { MulticastReach::All } else { MulticastReach::Some };
    mode.way(&plan.circumstances(length, symbol(ranks), LATENCY, loss), multicast)
}

/// Coordinates casts.
pub(super) struct BroadcastCoordinator<'a> {
    pub(super) venue: &'a mut dyn ProcessVenue,
    pub(super) plan: &'a BroadcastPlan,
    pub(super) place: VenueKind,
    pub(super) key: u32,
    /// Ranks whose processes have ended.
    pub(super) dead_ranks: BTreeSet<Rank>,
}

impl BroadcastCoordinator<'_> {
    fn name(&self, rank: Rank) -> String {
        self.venue.processes().name(rank)
    }

    fn session(&mut self) -> Session<'_, BroadcastProtocol> {
        self.venue.processes_mut().session()
    }

    pub(super) fn rhythms(&self, length: Bytes) -> Vec<(CastTiming, u32)> {
        let alone = match length > symbol(self.venue) {
            true => (CastTiming::Ordered, self.plan.objects_of(length)),
            false => (CastTiming::Apart(APART), self.plan.objects.unwrap_or(SHORT)),
        };
        let batches = self.plan.objects.map_or(BATCHES, |objects| objects.div_ceil(BATCH));
        let together =
            (length <= BATCHED_MAX).then_some((CastTiming::Batches(BATCH), batches * BATCH));
        iter::once(alone).chain(together).collect()
    }

    /// Runs one cast.
    pub(super) fn run(&mut self, cast: &CastParameters) -> Result<CastResult> {
        if !self.dead_ranks.is_empty() && self.venue.renew()? {
            self.dead_ranks.clear();
        }
        let CastParameters { mode, length, loss, .. } = *cast;
        detail!("{} of {length} by {}, {loss} lost", cast.objects, describe(cast));
        let way = way_of(self.venue, self.plan, (mode, length, loss));
        let ranks: Vec<Rank> = self.living();
        self.venue.offload(frames_of_packet(length))?;
        self.begin(cast, way, &ranks)?;
        let mut outcome = CastResult {
            cast: *cast,
            way,
            ways: Vec::new(),
            accounts: Default::default(),
            dead_ranks: Default::default(),
            out: BTreeSet::new(),
            is_one_clock: self.place == VenueKind::Lab,
        };
        let mut cast_progress = CastProgress::new(self.plan, cast.rhythm);
        self.go_on(cast, &outcome, &mut cast_progress)?;
        while self.unfinished(&outcome).next().is_some()
            || !cast_progress.struck.is_subset(&self.dead_ranks)
        {
            self.inject_due_faults(&mut cast_progress)?;
            match self.session().poll(cast_progress.timeout(LOOK_EVERY))? {
                Some((rank, Ok(said))) => {
                    cast_progress.heard = Instant::now();
                    self.handle_response(&mut cast_progress, &mut outcome, rank, said)?;
                }
                Some((rank, Err(how))) => {
                    cast_progress.heard = Instant::now();
                    self.rank_died(&mut outcome, rank, how)?;
                }
                None if cast_progress.heard.elapsed() > STUCK + expected(self.plan, cast) => {
                    bail!("{}", self.describe_stall(&outcome, &cast_progress))
                }
                None => {}
            }
            self.go_on(cast, &outcome, &mut cast_progress)?;
        }
        outcome
            .dead_ranks
            .iter()
            .for_each(|(rank, how)| notice!("{} {how}: {}", self.name(*rank), outcome.ending()));
        match outcome.broken() {
            Some(why) => bail!("{}: {why}; this is a defect of the program", describe(cast)),
            None => Ok(outcome),
        }
    }

    /// Returns the ranks that have not come to an end.
    fn unfinished<'o>(&self, outcome: &'o CastResult) -> impl Iterator<Item = Rank> + use<'o> {
        // A rank that only answers does so until it gets another order.
        let last = if outcome.cast.rhythm == CastTiming::Bare { 0 } else { self.plan.ranks - 1 };
        let is_there = move |rank: &Rank| {
            rank.0 <= last && !outcome.accounts.contains_key(rank) && !outcome.out.contains(rank)
        };
        self.living().into_iter().filter(is_there)
    }

    fn living(&self) -> Vec<Rank> {
        (0..self.plan.ranks).map(Rank).filter(|rank| !self.dead_ranks.contains(rank)).collect()
    }

    /// Gives all ranks their part and waits until the root has heard everybody.
    fn begin(&mut self, cast: &CastParameters, way: Algorithm, ranks: &[Rank]) -> Result<()> {
        self.key += 1;
        let assignment = BroadcastAssignment {
            key: self.key,
            ranks: self.plan.ranks,
            per_leaf: self.plan.per_leaf(),
            roots: 0,
            way,
            rhythm: cast.rhythm,
            length: cast.length,
            objects: cast.objects,
            rate: self.plan.rate,
            silence: self.plan.silence,
            seed: self.plan.seed,
            faults: ArrivalFaults { lost: cast.loss.0, ..cast.faults },
            sampled_object: cast.sampled_object(),
        };
        for rank in ranks {
            self.session()
                .try_request(*rank, BroadcastRequest::Take(Box::new(assignment.clone())))?;
        }
        let (mut taken, mut is_ready) = (BTreeSet::new(), false);
        let deadline = Instant::now() + TIMEOUT;
        while taken.len() < ranks.len() || !is_ready {
            match self.session().poll(LOOK_EVERY)? {
                Some((rank, Ok(BroadcastResponse::Taken))) => drop(taken.insert(rank)),
                Some((_, Ok(BroadcastResponse::Ready))) => is_ready = true,
                Some((rank, Ok(BroadcastResponse::Failed(sentence)))) => {
                    bail!("{}: {sentence}", self.name(rank))
                }
                Some((rank, Err(how))) => {
                    bail!("{} {how} before the cast began; run again", self.name(rank))
                }
                // Of the cast before.
                Some(_) => {}
                None if Instant::now() > deadline => {
                    bail!("the ranks did not hear each other within {TIMEOUT:?}")
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Tells the root to cast what is next.
    fn go_on(
        &mut self,
        cast: &CastParameters,
        outcome: &CastResult,
        cast_progress: &mut CastProgress,
    ) -> Result<()> {
        let root = Rank(0);
        if self.dead_ranks.contains(&root)
            || outcome.accounts.contains_key(&root)
            || outcome.out.contains(&root)
        {
            return Ok(());
        }
        let order = match cast.rhythm {
            CastTiming::Ordered if cast_progress.next < cast.objects => {
                let last = cast_progress.next.checked_sub(1);
                let all_have = |last: u32| {
                    let there =
                        self.living().into_iter().filter(|rank| !outcome.out.contains(rank));
                    cast_progress
                        .has
                        .get(last as usize)
                        .is_some_and(|has| there.into_iter().all(|rank| has.contains(&rank)))
                };
                if !last.is_none_or(all_have) {
                    return Ok(());
                }
                cast_progress.has.push(BTreeSet::new());
                BroadcastRequest::Cast
            }
            CastTiming::Ordered => return Ok(()),
            _ if cast_progress.next > 0 => return Ok(()),
            _ => BroadcastRequest::Begin,
        };
        cast_progress.next += 1;
        self.session().try_request(root, order)
    }

    /// Ends ranks whose time has come.
    fn inject_due_faults(&mut self, cast_progress: &mut CastProgress) -> Result<()> {
        while cast_progress.strokes.first().is_some_and(|stroke| stroke.at <= Instant::now()) {
            let RankFault { rank, asked, .. } = cast_progress.strokes.remove(0);
            if matches!(asked, BroadcastRequest::Die) {
                cast_progress.struck.insert(rank);
            }
            self.session().try_request(rank, asked)?;
        }
        Ok(())
    }

    fn handle_response(
        &mut self,
        cast_progress: &mut CastProgress,
        outcome: &mut CastResult,
        rank: Rank,
        said: BroadcastResponse,
    ) -> Result<()> {
        match said {
            BroadcastResponse::Has(object) => {
                if let Some(has) = cast_progress.has.get_mut(object as usize) {
                    has.insert(rank);
                }
            }
            BroadcastResponse::Done(account) => drop(outcome.accounts.insert(rank, *account)),
            BroadcastResponse::Switched(way, at) => {
                notice!("the way changes to {}", way.name());
                outcome.ways.push((way, at));
            }
            BroadcastResponse::Lost(_) => {}
            BroadcastResponse::Out => {
                notice!(
                    "{} was silent for {}: the others go on without it",
                    self.name(rank),
                    self.plan.silence
                );
                outcome.out.insert(rank);
            }
            // Those whom it does not hear may speak again.
            BroadcastResponse::Helpless => drop(cast_progress.helpless.insert(rank)),
            BroadcastResponse::Failed(sentence) => bail!("{}: {sentence}", self.name(rank)),
            BroadcastResponse::Taken | BroadcastResponse::Ready => {
                bail!("{} is confused", self.name(rank))
            }
        }
        Ok(())
    }

    /// Tells the others that the process of `rank` has ended.
    fn rank_died(&mut self, outcome: &mut CastResult, rank: Rank, how: String) -> Result<()> {
        if self.plan.kills.iter().all(|kill| kill.rank != rank.0) {
            bail!("{} {how} in the middle of the cast; run again", self.name(rank));
        }
        self.dead_ranks.insert(rank);
        outcome.accounts.remove(&rank);
        outcome.dead_ranks.insert(rank, how);
        for other in self.living() {
            self.session().try_request(other, BroadcastRequest::Dead(rank.0))?;
        }
        Ok(())
    }

    /// Returns who has not come to an end, and who hears too few of the others.
    fn describe_stall(&self, outcome: &CastResult, cast_progress: &CastProgress) -> String {
        let names: Vec<String> = self.unfinished(outcome).map(|rank| self.name(rank)).collect();
        let what = describe(&outcome.cast);
        let mut sentence =
            format!("nothing moves any more in {what}; not at the end: {}", names.join(", "));
        if let Some(rank) = cast_progress.helpless.first() {
            sentence += &format!(
                "; {} hears too few of the others to go on without them",
                self.name(*rank)
            );
        }
        sentence
    }
}

/// How far a cast is.
struct CastProgress {
    /// Of each long object that was cast, who has it and knows that all do.
    has: Vec<BTreeSet<Rank>>,
    /// The next object to cast.
    next: u32,
    /// When somebody said something last.
    heard: Instant,
    strokes: Vec<RankFault>,
    /// The ranks that got the order to die.
    struck: BTreeSet<Rank>,
    /// The ranks that once heard too few of the others to go on without them.
    helpless: BTreeSet<Rank>,
}

/// Something that is done to a rank.
#[derive(Clone, Debug)]
struct RankFault {
    at: Instant,
    rank: Rank,
    asked: BroadcastRequest,
}

impl CastProgress {
    /// Creates the progress of a cast in which ranks that `plan` kills or stops die or stand still;
    /// the bare exchange knows no deaths.
    fn new(plan: &BroadcastPlan, rhythm: CastTiming) -> Self {
        let heard = Instant::now();
        let stroke = |kill: &RankAt, asked| RankFault {
            at: heard + Duration::from_nanos(kill.at.0),
            rank: Rank(kill.rank),
            asked,
        };
        let kills = plan.kills.iter().map(|kill| stroke(kill, BroadcastRequest::Die));
        let stops =
            plan.stops.iter().map(|(kill, length)| stroke(kill, BroadcastRequest::Stop(*length)));
        let filter =
            plan.filter.map(|at| stroke(&RankAt { rank: 0, at }, BroadcastRequest::Filter));
        let mut strokes: Vec<RankFault> = kills.chain(stops).chain(filter).collect();
        strokes.retain(|_| rhythm != CastTiming::Bare);
        strokes.sort_by_key(|stroke| stroke.at);
        Self {
            has: Vec::new(),
            next: 0,
            heard,
            strokes,
            struck: BTreeSet::new(),
            helpless: BTreeSet::new(),
        }
    }

    /// Returns how long to listen before somebody has to be killed.
    fn timeout(&self, most: Duration) -> Duration {
        let until = |stroke: &RankFault| stroke.at.saturating_duration_since(Instant::now());
        self.strokes.first().map_or(most, |first| until(first).min(most))
    }
}

/// Returns of how many frames the packets of a laboratory may be while objects of `length` are
/// cast.
fn frames_of_packet(length: Bytes) -> u32 {
    u32::try_from(length.0 / PACKETS_OF_OBJECT / FRAME).unwrap_or(OFFLOAD_MAX).clamp(1, OFFLOAD_MAX)
}

/// Returns what a cast is, for a person.
fn describe(cast: &CastParameters) -> String {
    match cast.rhythm {
        CastTiming::Bare => "a bare datagram to all and an answer of each".to_owned(),
        CastTiming::Ordered => cast.mode.name().to_owned(),
        CastTiming::Apart(gap) => format!("{}, {gap} apart", cast.mode.name()),
        CastTiming::Batches(count) => format!("{}, {count} at a time", cast.mode.name()),
    }
}

/// Returns how long one object takes by the slowest way, and twice that.
fn expected(plan: &BroadcastPlan, cast: &CastParameters) -> Duration {
    let each = plan.rate.map_or(0, |rate| rate.time_for(cast.length).0);
    Duration::from_nanos(each.saturating_mul(2 * u64::from(plan.ranks)))
}
