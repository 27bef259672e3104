//! What the coordinator and the ranks of timeslice building say to each other.
//!
//! # Model
//! ```text
//!    coordinator            rank
//!    Look          ->             (input) are there microslices? Before anything is made
//!                  <-     Found
//!    Take          ->             be an input or a builder of this run: builders first
//!                  <-     Writes  (builder with an archive) it is called so until it is kept
//!                  <-     Taken   there is a node
//!                  <-     Ready   (input) all builders are there
//!    Begin         ->             contributions may leave
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
//!    Die           ->             kill yourself: somebody wants to see what becomes of the run
//!                  <-     Lost    another rank is out, by a decision of all
//!                  <-     Out     this rank is, and takes no further part unless it joins
//!                  <-     Helpless  others are silent, and nothing can be decided
//!    Tell          ->             what had those built that are out?
//!                  <-     Settled
//! ```

use clearway_proto::base::{Bytes, Nanos};
use clearway_proto::microslice::{MicrosliceDescriptor, SizeDistribution};
use clearway_proto::timeslice::{
    ContributionSizes as UnscheduledSizes, Dfs, Policy, TimesliceRecord, Window,
};
use clearway_wires::WireNeeds;
use serde::{Deserialize, Serialize};

use super::numbers::TimesliceNumbers;
use super::scheduled_change::ScheduledAction;
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
    /// Whether microslices can be had of these archives.
    Look(String),
    Take(Box<TimesliceAssignment>),
    /// Progress is reported this often.
    Begin(Nanos),
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
    Found,
    /// To this file, which has another name once it is kept.
    Writes(String),
    Kept,
    Taken,
    Ready,
    Progress(Box<TimesliceProgress>),
    /// This many timeslices were given.
    Over(u64),
    Done(Box<TimesliceResult>),
    /// This rank.
    Lost(u32),
    /// Because it was asked to go, or because it was silent for too long.
    Out {
        is_retired: bool,
    },
    Joined,
    Helpless,
    /// By rank; once for each time that it was out.
    Settled(Vec<(u32, TimesliceNumbers)>),
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
    pub(super) feed: BuildSpec,
}

/// What is built, out of what, and where it goes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BuildSpec {
    pub(crate) shape: TimesliceShape,
    pub(crate) source: SourceKind,
    pub(crate) sink: SinkKind,
    /// How many timeslices there are at most.
    pub(crate) timeslices: Option<u64>,
}

impl BuildSpec {
    /// Returns how many bytes one contribution has, where that is known: what unscheduled writes
    /// carry as well.
    pub(super) fn usual_contribution(&self) -> Bytes {
        match self.source {
            SourceKind::Memory(bytes) => bytes,
            SourceKind::Mixed(bytes) => Bytes(bytes.0 + UnscheduledSizes::BESIDE.0),
            SourceKind::Pattern { mean, .. } => {
                Bytes(self.shape.all() * (u64::from(mean) + MicrosliceDescriptor::BYTES as u64))
            }
            SourceKind::Archives(_) => Bytes(0),
        }
    }
}

/// Of how many microslices a timeslice is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TimesliceShape {
    /// Those that are of no other timeslice.
    pub(crate) core: u32,
    /// Those behind them, with which the next timeslice begins.
    pub(crate) overlap: u32,
}

impl TimesliceShape {
    /// Returns how many microslices a whole timeslice has.
    pub(crate) const fn all(self) -> u64 {
        self.core as u64 + self.overlap as u64
    }

    /// Returns the mean length of a microslice's content with which contributions are
    /// `contribution` long; `None` where that is too short for the descriptors.
    pub(crate) fn mean_length(self, contribution: Bytes) -> Option<u32> {
        let each = (contribution.0 / self.all()).checked_sub(MicrosliceDescriptor::BYTES as u64)?;
        Some(u32::try_from(each / 8 * 8).unwrap_or(u32::MAX / 8 * 8))
    }
}

/// Where microslices come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SourceKind {
    /// Nowhere: contributions of this length, always from the same memory, whose bytes nobody
    /// wrote.
    Memory(Bytes),
    /// The same with FLESnet's short messages beside each; only for what is unscheduled.
    Mixed(Bytes),
    /// They are made, with a mean length of the content.
    Pattern { sizes: SizeDistribution, mean: u32 },
    /// Archives of microslices, or what else can be read as one; `%i` stands for the number of the
    /// input.
    Archives(String),
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
    /// Builder: an input that its oldest timeslice waits for.
    pub(super) awaited: Option<u32>,
}

/// What a rank has done when all is over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TimesliceResult {
    /// Timeslices that the sink has taken.
    pub(super) taken: TimesliceNumbers,
    /// Timeslices that lack something.
    pub(super) incomplete: u64,
    /// Input: microslices that it gave.
    pub(super) microslices: u64,
    /// Input: bytes of their contents.
    pub(super) bytes: u64,
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
        self.microslices += other.microslices;
        self.bytes += other.bytes;
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
