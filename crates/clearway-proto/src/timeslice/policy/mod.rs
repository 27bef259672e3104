//! Policies, which say which rank may send what when: the part of timeslice building in which
//! schedulers differ.
//!
//! # Model
//! Two small traits, one for each side of a connection. An input's policy is shown what is due
//! to each builder ([`TurnView`]) and chooses whose next contribution is posted ([`Sending`]). A builder's policy says
//! which input it lets in next, or when intervals are to begin ([`Directing`]); where it does
//! neither, inputs go as far as their rings have room. A policy knows what its own node knows and
//! nothing else.
//!
//! | policy | an input sends | a builder |
//! |---|---|---|
//! | best effort | in the order of timeslices; a full ring stops everything | lets everybody |
//! | offset | in turn from the builder at its own place on, leaving out full rings | lets everybody |
//! | dfs | in turn, a round at a time at the pace that builders propose | proposes when intervals begin and how long they take |
//! | token | what was granted, in the order of grants | lets in K at a time, in an order shifted by its own place |
//! | raw | in turn, without rings: the achievable rate to compare with | never releases |
//! | put | as raw, by messages that the other side takes in: what a put is where MPI makes one of two-sided messages | copies or fetches, and says so |
//!
//! # Source
//! FLESnet (best effort, offset); its Data-Flow Scheduler (dfs); ALICE's tokens and LHCb's shift
//! (token), made receiver-driven and per contribution.

mod dfs;
mod round_robin;
mod slack;
mod token;
mod view;
mod window;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt::{self, Debug};
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::base::{LocalNs, Nanos};
use crate::clock::ClockExchange;
use crate::timeslice::membership::Deal;

pub use dfs::{Dfs, SpeedUp};
pub(super) use dfs::{Director, IntervalReport, Paced, Proposal};

pub(super) use round_robin::{InOrder, RoundRobin};
pub(super) use token::{TokenBuilder, TokenInput};
pub(super) use view::TurnView;
pub use window::Window;

/// A scheduler of contributions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// In the order of timeslices, with head-of-line blocking: FLESnet's original.
    BestEffort,
    /// In turn, each input beginning at another builder: FLESnet's later pattern without its
    /// scheduler.
    Offset,
    /// Paced by intervals that builders propose: the Data-Flow Scheduler.
    Dfs,
    /// Receiver-driven grants in shifted order.
    Token,
    /// In turn and without credits: what the network carries when nobody waits for anybody.
    Raw,
    /// The same by messages, whose receiver copies what came with them, or fetches what is long,
    /// and acknowledges it.
    Put,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::BestEffort, Self::Offset, Self::Dfs, Self::Token, Self::Raw, Self::Put];

    /// Returns the name in scenarios and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BestEffort => "best-effort",
            Self::Offset => "offset",
            Self::Dfs => "dfs",
            Self::Token => "token",
            Self::Raw => "raw",
            Self::Put => "put",
        }
    }

    /// Returns the policy of the input at `place` of `inputs`.
    pub(super) fn sending(self, place: usize, inputs: usize, dfs: Dfs) -> Box<dyn Sending> {
        match self {
            Self::BestEffort => Box::new(InOrder::default()),
            Self::Offset | Self::Raw | Self::Put => Box::new(RoundRobin::from(place)),
            Self::Dfs => Box::new(Paced::new(dfs, place)),
            Self::Token => Box::new(TokenInput::new(place, inputs)),
        }
    }

    /// Returns the policy of the builder at `place`, with this many `inputs` and timeslices in a
    /// `round`; none where builders let everybody in.
    pub(super) fn directing(
        self,
        place: usize,
        inputs: usize,
        round: u64,
        window: Window,
        dfs: Dfs,
    ) -> Option<Box<dyn Directing>> {
        match self {
            Self::Dfs => Some(Box::new(Director::new(dfs, inputs, round))),
            Self::Token => Some(Box::new(TokenBuilder::new(place, inputs, window))),
            Self::BestEffort | Self::Offset | Self::Raw | Self::Put => None,
        }
    }

    /// Returns whether timeslices are built at all.
    pub const fn is_building(self) -> bool {
        !matches!(self, Self::Raw | Self::Put)
    }

    /// Returns whether an input waits for grants as well as for room in its ring.
    pub(super) const fn grants(self) -> bool {
        matches!(self, Self::Token)
    }
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        Self::ALL.into_iter().find(|policy| policy.name() == name).ok_or(UnknownPolicy)
    }
}

/// The text names no policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPolicy;

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no policy of this name; there are")?;
        let mut names = Policy::ALL.iter().map(|policy| policy.name());
        names.try_for_each(|name| write!(f, " {name}"))
    }
}

impl core::error::Error for UnknownPolicy {}

/// Why an input sends nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The source has nothing to send.
    NoMicroslices,
    /// A builder has no room, or has not let this input in.
    NoCredit,
    /// As many writes are under way as may be.
    NoTransmitSlot,
    /// The schedule says: not yet.
    Paced,
}

impl Cause {
    /// All of them, by place.
    pub const ALL: [Self; 4] =
        [Self::NoMicroslices, Self::NoCredit, Self::NoTransmitSlot, Self::Paced];

    /// Returns the name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoMicroslices => "no-microslices",
            Self::NoCredit => "no-credit",
            Self::NoTransmitSlot => "no-transmit-slot",
            Self::Paced => "paced",
        }
    }
}

/// What an input's policy wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Post the next contribution for the builder at this place.
    Post(usize),
    /// Nothing can be sent before something arrives.
    Blocked(Cause),
}

/// An input's side of a policy.
pub(super) trait Sending: Debug {
    /// Records that the barrier has been passed.
    fn began(&mut self, _now: LocalNs) {}

    /// Returns what to do now.
    fn choose(&mut self, now: LocalNs, view: &dyn TurnView) -> Choice;

    /// Records that what was chosen last was posted; it was due as of timeslice `turn`.
    fn posted(&mut self, now: LocalNs, turn: u64);

    /// Records that the builder at `place` has released a contribution that was due as of timeslice
    /// `turn`.
    fn released(&mut self, _now: LocalNs, _place: usize, _turn: u64) {}

    /// Handles a builder's proposal of an interval.
    fn proposed(&mut self, _proposal: Proposal) {}

    /// Returns what all builders are to know, once.
    fn report(&mut self) -> Option<IntervalReport> {
        None
    }

    /// Returns the builder whose clock is to be asked for, by place, once.
    fn asks(&mut self) -> Option<usize> {
        None
    }

    /// Returns what the builder at `place` answered. Its clock counts from its barrier.
    fn answered(&mut self, _place: usize, _exchange: ClockExchange) {}

    /// Returns when [`Sending::choose`] may choose otherwise although nothing arrived.
    fn deadline(&self) -> Option<LocalNs> {
        None
    }

    /// Records that the builder at `place` lets in `count` more contributions.
    fn granted(&mut self, _place: usize, _count: u32) {}

    /// Records that the builder at `place` is out; nothing that it granted counts.
    fn builder_left(&mut self, _place: usize) {}

    /// Timeslices are dealt as `view` shows now: for the first time, or anew, so that
    /// builders may have earlier ones behind later ones.
    fn redealt(&mut self, _now: LocalNs, _view: &dyn TurnView) {}
}

/// Intervals that are kept until somebody takes them.
pub(super) const INTERVALS_MAX: usize = 4096;

/// What was made of an interval, where the policy has intervals. Times count from the barrier
/// before the first contribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntervalRecord {
    /// Which.
    pub interval: u32,
    /// The middle between the first and the last input's beginning.
    pub start: Nanos,
    /// The time between these two.
    pub spread: Nanos,
    /// The median of what inputs took.
    pub duration: Nanos,
    /// Start and duration that were proposed; none for the first intervals.
    pub proposed: Option<(Nanos, Nanos)>,
}

/// A builder's side of a policy.
pub(super) trait Directing: Debug {
    /// Returns the input that is let in next, by place; `None` while nobody is. `oldest` is the row
    /// that is complete next: of this builder's timeslices, counted from zero, the first one that
    /// still misses a contribution.
    fn grant(&mut self, _now: LocalNs, _oldest: u64) -> Option<usize> {
        None
    }

    /// Records that a contribution of the input at `place` has landed.
    fn landed(&mut self, _now: LocalNs, _place: usize, _bytes: u32) {}

    /// Timeslices are dealt anew, as the last of `deals` says.
    fn redealt(&mut self, _deals: &[Deal]) {}

    /// Records that the input at `place` is out: nothing of it will land.
    fn input_left(&mut self, _place: usize) {}

    /// Records that the input at `place` takes part from `row` on.
    fn input_joined(&mut self, _place: usize, _row: u64) {}

    /// Handles the report of an interval by the input at `place`.
    fn reported(&mut self, _place: usize, _report: IntervalReport) {}

    /// Intervals that all inputs have reported since the last call.
    fn take_intervals(&mut self) -> Vec<IntervalRecord> {
        Vec::new()
    }

    /// Returns the latest proposal.
    fn proposal(&self) -> Option<Proposal> {
        None
    }

    /// Returns when [`Directing::grant`] may let in somebody although nothing landed.
    fn deadline(&self) -> Option<LocalNs> {
        None
    }

    /// Contributions that are let in at a time; none where everybody is.
    fn window(&self) -> Option<u32> {
        None
    }
}
