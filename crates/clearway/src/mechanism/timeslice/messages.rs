//! What the coordinator and the ranks of timeslice building say to each other.
//!
//! # Model
//! ```text
//!    coordinator            rank
//!    Ping          ->             measure the network, before the run
//!                  <-     Pinged  the least round trips
//!    Look          ->             (input) are there microslices? Before anything is made
//!                  <-     Found
//!    Take          ->             be an input or a builder of this run: builders first
//!                  <-     Writes  (builder with an archive) it is called so until it is kept
//!                  <-     Taken   there is a node
//!                  <-     Ready   (input) all builders are there
//!                  <-     First   (input that cuts by time) its first microslice starts then
//!    Begin         ->             contributions may leave, from this time on
//!                  <-     Progress, Progress, ...
//!    Hold          ->             (input) give no more
//!                  <-     Over    (input) this many timeslices were given: the source is held or over
//!    Pad           ->             (input whose source is over) others have more: yours are empty
//!    End           ->             (input) the stream of all ends before this timeslice
//!                  <-     Done    everything was built, and is in its place
//!    Keep          ->             (builder with an archive) all have: give it its name
//!                  <-     Kept
//!
//!    Retire        ->             go when what you have is done, and do nothing until Join or End
//!    Join          ->             (out) take part again
//!                  <-     Joined  it does; an input gives nothing before it hears Begin
//!
//!    Take          ->             (process started in the place of one that was killed) be it again
//!                  <-     Taken   and wait for Join
//!
//!    Die           ->             kill yourself: somebody wants to see what becomes of the run
//!                  <-     Lost    another rank is out, by a decision of all; which tells this from
//!                                 what was before it joined again, in whatever order they come
//!                  <-     Out     this rank is, and takes no further part unless it joins
//!                  <-     Helpless  others are silent, and nothing can be decided
//!    Tell          ->             what had those built that are out?
//!                  <-     Settled
//! ```

use clearway_proto::base::{Bytes, Class, Nanos};
use clearway_proto::microslice::{Checksum, MicrosliceDescriptor, SizeDistribution, SliceRule};
use clearway_proto::timeslice::{
    ContributionSizes as UnscheduledSizes, Dfs, Policy, TimesliceRecord, Window,
};
use clearway_wires::WireNeeds;
use serde::{Deserialize, Serialize};

use super::ledger::{BuiltCounts, SourceCounts, add_built};
use super::losses::BuilderWait;
use super::measured::{PingOrder, PingResult};
use super::numbers::TimesliceNumbers;
use super::scheduled_change::ScheduledAction;
use super::settled::SettledWork;
use crate::run::session::Protocol;

/// The conversation of timeslice building.
pub(crate) enum TimesliceProtocol {}

impl Protocol for TimesliceProtocol {
    const MECHANISM: &'static str = "timeslice";
    const NEED: WireNeeds = WireNeeds::Writes;
    type Request = TimesliceRequest;
    type Response = TimesliceResponse;
}

/// To a rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TimesliceRequest {
    Ping(Box<PingOrder>),
    /// Whether microslices can be had of these archives.
    Look(String),
    Take(Box<TimesliceAssignment>),
    Begin {
        /// Progress is reported this often.
        every: Nanos,
        /// The stretch of time of the first timeslice, where they are cut by time.
        origin: Option<u64>,
        /// Progress that others had reported before.
        reported: u64,
    },
    Hold,
    /// Up to this timeslice.
    Pad(u64),
    /// Before this timeslice.
    End(u64),
    Die,
    Retire,
    Join,
    Tell,
    Keep,
}

impl TimesliceRequest {
    /// Returns what brings about what is `wanted`.
    pub(super) const fn from_action(wanted: ScheduledAction) -> Self {
        match wanted {
            ScheduledAction::Death => Self::Die,
            ScheduledAction::Retirement => Self::Retire,
            ScheduledAction::Return => Self::Join,
        }
    }
}

/// From a rank.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TimesliceResponse {
    Pinged(Vec<PingResult>),
    Found,
    /// To this file, which has another name once it is kept.
    Writes(String),
    Kept,
    Taken,
    Ready,
    /// None where the source is over without one.
    First(Option<u64>),
    Progress(Box<TimesliceProgress>),
    /// This many timeslices were given.
    Over(u64),
    Done(Box<TimesliceResult>),
    /// By this decision.
    Lost {
        rank: u32,
        epoch: u32,
    },
    /// Because it was asked to go, or because it was silent for too long.
    Out {
        is_retired: bool,
    },
    /// By this decision.
    Joined {
        epoch: u32,
    },
    Helpless,
    Settled(Vec<SettledWork>),
    /// It cannot go on; one sentence.
    Failed(String),
}

/// One run of one policy, as every rank learns of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TimesliceAssignment {
    /// From zero; peers tell runs apart by it.
    pub(super) number: u32,
    /// Ranks with contributions; they come first.
    pub(super) inputs: u32,
    pub(super) builders: u32,
    /// How many turns each builder has; empty where all have one.
    pub(super) weights: Vec<u32>,
    /// The part of the network that each rank is in, as the coordinator knows it: what ranks know
    /// themselves does not count. Empty where turns are in the order of ranks.
    pub(super) neighbourhoods: Vec<u32>,
    pub(super) policy: Policy,
    pub(super) window: Window,
    pub(super) dfs: Dfs,
    /// Bytes of the ring of each connection.
    pub(super) ring: Bytes,
    /// Bytes that an input holds until they are released.
    pub(super) memory: Bytes,
    /// Inputs begin within this time of each other.
    pub(super) start_skew: Nanos,
    pub(super) seed: u64,
    /// How often ranks say that they are there; none where nobody is watched.
    pub(super) heartbeat: Option<Nanos>,
    /// Of contributions; what agrees on them is control.
    pub(super) class: Class,
    pub(super) feed: BuildSpec,
    /// For a process that takes the place of one that ended in the middle of the run.
    pub(super) restart: Option<RankRestart>,
}

/// What a process must know that takes the place of another in a run: it is out until it is asked to
/// join.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct RankRestart {
    /// From one on.
    pub(super) incarnation: u32,
    /// The stretch of time of the first timeslice, where they are cut by time.
    pub(super) origin: Option<u64>,
    /// The run goes on without it where it cannot take part, so that it says itself why.
    pub(super) is_alone: bool,
}

/// What is built, out of what, and where it goes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BuildSpec {
    pub(crate) slices: SliceRule,
    pub(crate) source: SourceKind,
    pub(crate) sink: SinkKind,
    /// How many timeslices there are at most.
    pub(crate) timeslices: Option<u64>,
}

impl BuildSpec {
    /// Returns whether inputs have microslices, and not only bytes.
    pub(super) const fn has_microslices(&self) -> bool {
        matches!(self.source, SourceKind::Pattern(_) | SourceKind::Archives(_))
    }

    /// Returns how many bytes one contribution has, where that is known: what unscheduled writes
    /// carry as well.
    pub(super) fn usual_contribution(&self) -> Bytes {
        match self.source {
            SourceKind::Memory(bytes) => bytes,
            SourceKind::Mixed(bytes) => Bytes(bytes.0 + UnscheduledSizes::SHORT_MESSAGES_BYTES.0),
            SourceKind::Pattern(made) => {
                let each = u64::from(made.mean) + MicrosliceDescriptor::BYTES as u64;
                Bytes(usual_microslices(self.slices, made.step).saturating_mul(each))
            }
            SourceKind::Archives(_) => Bytes(0),
        }
    }
}

/// The usual experiment time from one made microslice to the next.
pub(super) const MADE_STEP: Nanos = Nanos::from_micros(100);

/// Returns how many microslices a contribution usually has; by time, of microslices that start
/// `step` apart.
pub(crate) fn usual_microslices(rule: SliceRule, step: Nanos) -> u64 {
    match rule {
        SliceRule::ByIndex { core, overlap } => u64::from(core) + u64::from(overlap),
        SliceRule::ByTime(times) => {
            let span = times.duration.0.saturating_add(times.before.0);
            span.saturating_add(times.after.0).div_ceil(step.0.max(1))
        }
    }
}

/// Returns the mean length of a made microslice's content with which contributions are
/// `contribution` long; `None` where that is too short for the descriptors.
pub(crate) fn mean_length(rule: SliceRule, contribution: Bytes) -> Option<u32> {
    let each = (contribution.0 / usual_microslices(rule, MADE_STEP).max(1))
        .checked_sub(MicrosliceDescriptor::BYTES as u64)?;
    Some(u32::try_from(each / 8 * 8).unwrap_or(u32::MAX / 8 * 8))
}

/// Where microslices come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SourceKind {
    /// Nowhere: contributions of this length, always from the same memory, whose bytes nobody
    /// wrote.
    Memory(Bytes),
    /// The same, each with FLESnet's short messages; only for what is unscheduled.
    Mixed(Bytes),
    /// They are made.
    Pattern(MadeMicroslices),
    /// Archives of microslices, or what else can be read as one; `%i` stands for the number of the
    /// input.
    Archives(String),
}

/// How microslices are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MadeMicroslices {
    /// The law of the lengths of contents.
    pub(crate) sizes: SizeDistribution,
    /// The mean length in bytes.
    pub(crate) mean: u32,
    /// Experiment time from one to the next.
    pub(crate) step: Nanos,
    /// As a detector gives them: experiment time goes on as time does, and microslices are dropped
    /// for which this many bytes have no room. Without it, as fast as they are taken.
    pub(crate) buffer: Option<Bytes>,
}

impl MadeMicroslices {
    /// Returns microslices that are made as fast as they are taken.
    pub(crate) const fn unpaced(sizes: SizeDistribution, mean: u32) -> Self {
        Self { sizes, mean, step: MADE_STEP, buffer: None }
    }
}

/// Where timeslices go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SinkKind {
    /// Nowhere, unread.
    Discard,
    /// Nowhere, after every microslice was looked at.
    Check,
    /// To a consumer that comes in at a socket; `%b` stands for the number of the builder.
    Consumer(String),
    /// Archives of timeslices; `%b` stands for the number of the builder.
    Archives(String),
    /// The same, compressed.
    Compressed(String),
}

impl SinkKind {
    /// Returns the checksum of microslices that are made for this sink. FLESnet's analyser asks
    /// made ones for its own, so what leaves has that.
    pub(super) const fn checksum(&self) -> Checksum {
        match self {
            Self::Discard | Self::Check => Checksum::Crc32c,
            Self::Consumer(_) | Self::Archives(_) | Self::Compressed(_) => Checksum::Fold,
        }
    }
}

/// How far a rank is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TimesliceProgress {
    /// From 1: how many there were.
    pub(super) number: u64,
    /// What was counted since the one before.
    pub(super) record: TimesliceRecord,
    /// How long that took.
    pub(super) span: Nanos,
    /// Input: timeslices given so far. Builder: timeslices that its sink has taken so far.
    pub(super) timeslices: u64,
    /// Processor time of the rank so far.
    pub(super) processor: Nanos,
    /// Input: what became of the microslices of its source so far.
    pub(super) source: Option<SourceCounts>,
    /// Builder: what it waits for.
    pub(super) waits: BuilderWait,
}

/// What a rank has done when all is over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TimesliceResult {
    /// Timeslices that the sink has taken.
    pub(super) taken: TimesliceNumbers,
    /// Timeslices that lack something.
    pub(super) incomplete: u64,
    /// Input: what became of the microslices of its source.
    pub(super) source: SourceCounts,
    /// Builder with a sink: what it has of each input.
    pub(super) built: Vec<BuiltCounts>,
    /// Contents that were compared with what is known of them: CRC or pattern.
    pub(super) checked: u64,
    /// What was wrong, a sentence each, and how often.
    pub(super) faults: Vec<(String, u64)>,
    /// Input: archives that ended with a cut item.
    pub(super) cut: u64,
    /// Where they are.
    pub(super) written: Vec<String>,
}

impl TimesliceResult {
    /// Notes that a timeslice was taken.
    pub(super) fn take(&mut self, timeslice: u64) {
        self.taken.push(timeslice);
    }

    /// Returns both together, but for which timeslices they were.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.incomplete += other.incomplete;
        self.source.add(&other.source);
        add_built(&mut self.built, &other.built);
        self.checked += other.checked;
        self.cut += other.cut;
        self.written.extend(other.written);
        for (sentence, count) in other.faults {
            match self.faults.iter_mut().find(|(known, _)| *known == sentence) {
                Some((_, sum)) => *sum += count,
                None => self.faults.push((sentence, count)),
            }
        }
        self
    }
}
