//! What every part of a node needs to act: the time, the way out, what the node was made with, how
//! operations are labelled.

use alloc::sync::Arc;

use super::frame::{SEQUENCE_MASK, TimesliceFrame};
use super::layout::TimesliceLayout;
use super::membership::Journal;
use super::policy::{Dfs, Policy, Window};
use super::supply::ContributionSource;
use crate::base::{Bytes, Class, LocalNs, Nanos, Rank};
use crate::wire::{Destination, Out, RefusalReason, Span, Token};

/// Writes that an input may have under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteSlots {
    /// To one builder.
    pub for_one: u32,
    /// To all.
    pub in_all: u32,
}

impl WriteSlots {
    /// Returns what `policy` was published with, or was measured to need.
    pub const fn from_policy(policy: Policy) -> Self {
        match policy {
            // FLESnet: a third of 495 send requests for each connection, as a contribution took
            // three.
            Policy::BestEffort | Policy::Offset | Policy::Dfs => {
                Self { for_one: 164, in_all: u32::MAX }
            }
            // Two for each builder: nobody waits for a builder that is slow, and no transmit queue
            // is full of its writes.
            Policy::Raw | Policy::Put => Self { for_one: 2, in_all: u32::MAX },
            // Grants are the limit. With two in all, 32 inputs and 32 builders on `aries` carry
            // 0.83 of unscheduled writes, with no limit 1.11 (windows of four): whose write is held
            // up must not hold up those to other builders.
            Policy::Token => Self { for_one: u32::MAX, in_all: u32::MAX },
        }
    }
}

/// When the room of a timeslice at its builder is free again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleasePolicy {
    /// As soon as it is complete: nobody looks at it.
    AtOnce,
    /// When the application says so, by [`super::TimesliceCommand::Release`].
    ByCommand,
}

/// What a node knows from its beginning.
#[derive(Clone, Debug)]
pub struct TimesliceConfig {
    /// This rank.
    pub rank: Rank,
    /// Tells jobs apart that the same ranks do one after the other; a number other than those of
    /// the few before.
    pub run: u16,
    /// The role of each rank.
    pub layout: Arc<TimesliceLayout>,
    /// The rule by which contributions are sent.
    pub policy: Policy,
    /// Bounds of a builder's window, where the policy grants.
    pub window: Window,
    /// Constants of the Data-Flow Scheduler, where it is the policy.
    pub dfs: Dfs,
    /// An input's contributions.
    pub source: ContributionSource,
    /// Writes that an input has under way.
    pub slots: WriteSlots,
    /// A builder's memory: one ring after the other, in the order of the inputs.
    pub rings: Span,
    /// The length of one ring.
    pub ring: Bytes,
    /// When a builder's rings get their room back.
    pub release: ReleasePolicy,
    /// How often a node says that it is there. None: nobody is watched, and who dies is waited for.
    pub heartbeat: Option<Nanos>,
    /// The class of contributions.
    pub class: Class,
    /// The class of everything else.
    pub control: Class,
}

/// Events for the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimesliceEvent {
    /// All peers are there; contributions can leave.
    Ready,
    /// An input's memory of all timeslices below this one is free.
    Free {
        /// The first one that is not.
        timeslice: u64,
    },
    /// A timeslice is complete; its contributions lie in the rings until they are released.
    Complete {
        /// Which.
        timeslice: u64,
        /// How many stand before it in this builder's order: what was inherited of others may be
        /// older than what was built.
        position: u64,
        /// Inputs whose contribution will not come.
        missing: u32,
    },
    /// The stream is over: everything that this rank has to do with was sent, built and released.
    Ended,
    /// This rank takes part from now on: an input has something for this timeslice and later ones.
    Joined {
        /// The first one that is dealt with it in mind.
        timeslice: u64,
        /// By which decision.
        epoch: u32,
    },
    /// Nothing from this timeslice on is dealt to this rank any more, as it wished. Everything
    /// before it is still to be done.
    Retired {
        /// The first one that is dealt without it.
        timeslice: u64,
    },
    /// This rank is out: retired and done, or by a decision of the others. It can ask to join.
    Out,
    /// Builder, in addition to [`TimesliceEvent::Out`]: another builder builds a timeslice that this
    /// one had reported as complete; the copy of this one is to be thrown away.
    Void {
        /// Which.
        timeslice: u64,
    },
    /// Another rank is out.
    Lost {
        /// Which.
        rank: Rank,
        /// By which decision: earlier ones are smaller, those to join included.
        epoch: u32,
    },
    /// Ranks are silent and nothing can be decided: fewer than half of all can be reached, or no
    /// input or no builder is left.
    Helpless,
    /// A rank ended the job early.
    Aborted {
        /// Which.
        by: Rank,
    },
    /// A contribution is longer than its ring at a builder and can never be sent.
    TooLong {
        /// Its bytes.
        bytes: u64,
        /// Bytes of the ring.
        ring: u64,
    },
    /// The wire cannot carry what this engine needs.
    Refused {
        /// To whom.
        peer: Rank,
        /// What it lacks.
        missing: RefusalReason,
    },
}

/// How operations are recognised when they end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimesliceLabel {
    /// A header of a kind to the peer at a place.
    Frame { place: u32, kind: u8 },
    /// A write of a contribution, or a put: builder, number (its low bits), piece, life of the
    /// connection (its low bits). A builder's fetch: input, number.
    Write { place: u32, sequence: u32, piece: u8, life: u32 },
}

/// Bits of a place: more than there are ranks in any job.
const PLACE_BITS: u32 = 24;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;

impl TimesliceLabel {
    /// Encodes it as a token: bits 0 to 23 the number, 24 to 47 the place, 48 to 55 the kind,
    /// or the piece (2 bits) and the life; 56 whether it is a write.
    pub(super) const fn token(self) -> Token {
        match self {
            Self::Frame { place, kind } => {
                Token((place as u64 & PLACE_MASK) << 24 | (kind as u64) << 48)
            }
            Self::Write { place, sequence, piece, life } => {
                let number = (sequence & SEQUENCE_MASK) as u64;
                let piece = (piece & 3 | Self::life(life) << 2) as u64;
                Token(number | (place as u64 & PLACE_MASK) << 24 | piece << 48 | 1 << 56)
            }
        }
    }

    /// Returns as much of a connection's `life` as a token tells.
    pub(super) const fn life(life: u32) -> u8 {
        life as u8 & 0x3f
    }

    /// Returns what was issued with `token`.
    pub(super) const fn from_token(token: Token) -> Option<Self> {
        let place = (token.0 >> 24 & PLACE_MASK) as u32;
        let kind = (token.0 >> 48) as u8;
        match token.0 >> 56 {
            0 => Some(Self::Frame { place, kind }),
            1 => {
                let (piece, life) = (kind & 3, (kind >> 2) as u32);
                let sequence = token.0 as u32 & SEQUENCE_MASK;
                Some(Self::Write { place, sequence, piece, life })
            }
            _ => None,
        }
    }
}

/// What a part needs to act.
pub(super) struct TimesliceContext<'a> {
    pub(super) now: LocalNs,
    pub(super) config: &'a TimesliceConfig,
    /// What is decided so far.
    pub(super) journal: &'a Arc<Journal>,
    pub(super) out: &'a mut Out<TimesliceEvent>,
}

impl TimesliceContext<'_> {
    /// Sends a header to the peer at `place`.
    pub(super) fn send(&mut self, to: Rank, place: usize, frame: TimesliceFrame) {
        let token = TimesliceLabel::Frame { place: place as u32, kind: frame.kind() }.token();
        let mut head = frame.encode();
        head.put(&self.config.run.to_le_bytes());
        self.out.send(
            Destination::One(to),
            self.config.control,
            head.bytes(),
            Span::EMPTY,
            Some(token),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label__comes_back_from_its_token() {
        for label in [
            TimesliceLabel::Frame { place: 9_999, kind: 5 },
            TimesliceLabel::Write { place: 4_095, sequence: 0xff_fffe, piece: 3, life: 0x2a },
        ] {
            assert_eq!(TimesliceLabel::from_token(label.token()), Some(label));
        }
        assert_eq!(TimesliceLabel::from_token(Token(u64::MAX)), None);
    }
}
