//! Who may send what when: the part of timeslice building in which schedulers differ.
//!
//! # Model
//! Two small traits, one for each side of a connection. An input's policy is shown all its connections and chooses whose next
//! contribution is posted ([`Sending`]). A builder's policy says which input it lets in next ([`Admitting`]); where it never
//! does, inputs go as far as their rings have room. A policy knows what its own node knows and nothing else.
//!
//! | policy | an input sends | a builder |
//! |---|---|---|
//! | best effort | in the order of timeslices; a full ring stops everything | lets everybody |
//! | offset | in turn from the builder at its own place on, leaving out full rings | lets everybody |
//! | token | what was granted, in the order of grants | lets in K at a time, in an order shifted by its own place |
//! | raw | in turn, without rings: the achievable rate to compare with | never releases |
//!
//! # Source
//! FLESnet (best effort, offset); ALICE's tokens and LHCb's shift (token), made receiver-driven and per contribution.

mod in_turn;
mod token;
mod window;

use alloc::boxed::Box;
use core::fmt::Debug;

use serde::{Deserialize, Serialize};

use super::input::Connections;
use crate::base::LocalNs;

pub(super) use in_turn::{InOrder, InTurn};
pub(super) use token::{Granted, Token};
pub use window::Window;

/// A scheduler of contributions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// In the order of timeslices, with head-of-line blocking: FLESnet's original.
    BestEffort,
    /// In turn, each input beginning at another builder: FLESnet's later pattern without its scheduler.
    Offset,
    /// Receiver-driven grants in shifted order.
    Token,
    /// In turn and without credits: what the network carries when nobody waits for anybody.
    Raw,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::BestEffort, Self::Offset, Self::Token, Self::Raw];

    /// The name in scenarios and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BestEffort => "best-effort",
            Self::Offset => "offset",
            Self::Token => "token",
            Self::Raw => "raw",
        }
    }

    /// The policy of the input at `place`, of `inputs`.
    pub(super) fn sending(self, place: usize) -> Box<dyn Sending> {
        match self {
            Self::BestEffort => Box::new(InOrder::default()),
            Self::Offset | Self::Raw => Box::new(InTurn::from(place)),
            Self::Token => Box::new(Granted::default()),
        }
    }

    /// The policy of the builder at `place`, which has `inputs`.
    pub(super) fn admitting(self, place: usize, inputs: usize, window: Window) -> Option<Box<dyn Admitting>> {
        match self {
            Self::Token => Some(Box::new(Token::new(place, inputs, window))),
            Self::BestEffort | Self::Offset | Self::Raw => None,
        }
    }

    /// Whether timeslices are built at all.
    pub(super) const fn is_building(self) -> bool {
        !matches!(self, Self::Raw)
    }

    /// Whether an input waits for grants, beside room in its ring.
    pub(super) const fn grants(self) -> bool {
        matches!(self, Self::Token)
    }
}

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
    pub const ALL: [Self; 4] = [Self::NoMicroslices, Self::NoCredit, Self::NoTransmitSlot, Self::Paced];

    /// The name in reports.
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
    /// What to do now.
    fn choose(&mut self, connections: &Connections) -> Choice;

    /// What was chosen last was posted.
    fn posted(&mut self);

    /// The builder at `place` lets in `count` more contributions.
    fn granted(&mut self, _place: usize, _count: u32) {}
}

/// A builder's side of a policy that grants.
pub(super) trait Admitting: Debug {
    /// The input that is let in next, by place; `None` while nobody is. `oldest` is the row that is complete next: of this
    /// builder's timeslices, counted from zero, the first one that still misses a contribution.
    fn grant(&mut self, now: LocalNs, oldest: u64) -> Option<usize>;

    /// A contribution of the input at `place` has landed.
    fn landed(&mut self, now: LocalNs, place: usize, bytes: u64);

    /// When [`Admitting::grant`] may let in somebody although nothing landed.
    fn deadline(&self) -> Option<LocalNs>;

    /// Contributions that are let in at a time.
    fn window(&self) -> u32;
}
