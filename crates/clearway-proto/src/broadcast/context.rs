//! What a node of a cast is made with, what it may be asked, and what it tells.

use alloc::sync::Arc;

use serde::{Deserialize, Serialize};

use super::frame::{Algorithm, DATA_HEAD, LONGEST};
use super::tree::Member;
use crate::base::{BitsPerSec, Class, GroupId, LocalNs, Nanos, Rank};
use crate::wire::{Capabilities, OperationKind, RefusalReason, Span};

/// What happens when a member is far behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowReceivers {
    /// Everybody waits for it.
    Wait,
    /// After so long the others go on; it is served from what they keep, and an object still ends
    /// only when it has it too.
    Park(Nanos),
    /// After so long it is put out.
    Evict(Nanos),
}

/// What a node knows from its beginning. All members are made with the same, but for `rank`,
/// `slots` and `rate`.
#[derive(Clone, Debug)]
pub struct BroadcastConfig {
    /// This rank.
    pub rank: Rank,
    /// All that take part, at most 65,535, in the order of the network: neighbours in the list are
    /// near each other.
    pub members: Arc<[Member]>,
    /// The rank that sends.
    pub root: Rank,
    /// The multicast group that all have joined, if the wire has any.
    pub group: Option<GroupId>,
    /// Tells this cast from others, on a shared group and in time.
    pub key: u32,
    /// Bytes of a symbol: see [`BroadcastConfig::symbol_max`].
    pub symbol: u32,
    /// Symbols that may be under way to the slowest member.
    pub window: u32,
    /// Symbols that are remembered until all have them: at least the window; more lets parked
    /// members be further behind.
    pub history: u32,
    /// Where short messages arrive: as many slots of one symbol each as fit.
    pub slots: Span,
    /// The most that leaves here, link headers included; without it only windows hold back.
    pub rate: Option<BitsPerSec>,
    /// The rate at which a root begins that has to find out what the network carries: window and
    /// rate grow up to `window` and `rate`, and follow what the slowest member takes. Without it
    /// they are what the configuration says, and only losses make the rate less.
    pub first_rate: Option<BitsPerSec>,
    /// Short messages between two synchronisations.
    pub sync_every: u32,
    /// How long somebody may be silent.
    pub silence: Nanos,
    /// What happens to members that are far behind.
    pub slow_receivers: SlowReceivers,
    /// How symbols leave at first.
    pub algorithm: Algorithm,
    /// The class of symbols.
    pub class: Class,
    /// The class of everything else.
    pub control: Class,
}

impl BroadcastConfig {
    /// Returns the longest symbol that fits a wire's messages; `None` when the wire lacks something
    /// that a cast needs.
    pub fn symbol_max(wire: &Capabilities) -> Option<u32> {
        let needs = [OperationKind::Send, OperationKind::Copy, OperationKind::Digest];
        let has_all =
            needs.iter().all(|kind| wire.operations.has(*kind)) && wire.head_max >= LONGEST;
        let symbol = wire.body_max_with_head(DATA_HEAD).min(usize::from(u16::MAX));
        (has_all && symbol > 0).then_some(symbol as u32)
    }
}

/// What the application may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BroadcastCommand {
    /// Root: sends these bytes to all, behind everything before. They must not change until
    /// [`BroadcastEvent::Stable`].
    Cast {
        /// What.
        from: Span,
    },
    /// Root: synchronises as soon as everything has left, instead of with messages to come.
    Flush,
    /// Root with a first rate: nothing leaves faster than this from now on.
    Limit {
        /// The most; none means [`BroadcastConfig::rate`].
        rate: Option<BitsPerSec>,
    },
    /// Root: nothing leaves until then, but what the network has already taken.
    Pause {
        /// The end of the pause.
        until: LocalNs,
    },
    /// Receiver: the next long object goes here. May be given before it is announced.
    Place {
        /// Where to; at least as long as the object.
        into: Span,
    },
    /// Receiver: the slots of this short message and all before are free again.
    Release {
        /// The number of the object.
        object: u32,
    },
    /// The cast ends without what is not yet with everybody.
    Abort,
    /// Somebody who knows says that this rank has died, or is to take part no more.
    Dead {
        /// Who.
        rank: Rank,
    },
}

/// Events for the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BroadcastEvent {
    /// Root: every member has been heard.
    Ready,
    /// Receiver: a long object begins, and no place was given for it. It waits for one.
    Announced {
        /// The number of the object.
        object: u32,
        /// In bytes.
        length: u64,
    },
    /// Receiver: an object is here, whole and checked, and all before it were. It may be read; it
    /// must not be changed until it is stable, because others may still be served from it.
    Received {
        /// The number of the object.
        object: u32,
        /// Where it lies.
        at: Span,
    },
    /// An object is with every member that takes part, and its memory is the application's. All
    /// members get the same event.
    Stable {
        /// The number of the object.
        object: u32,
        /// Members that do not take part any more.
        missing: u32,
    },
    /// The cast is over: this object and those behind it are not with everybody. All members get
    /// the same event.
    Aborted {
        /// The first one.
        object: u32,
    },
    /// The queue of objects is full; this one was not taken, and may be cast again when one is
    /// stable.
    TryAgain {
        /// What was to be sent.
        from: Span,
    },
    /// Root: some member is so far behind that the others go on without waiting for it.
    Parked {
        /// Who.
        rank: Rank,
    },
    /// Root: nobody is parked any more.
    CaughtUp,
    /// Root: this member loses, and takes less than a sixteenth of what most members take, for
    /// seconds. The others wait for it as long as it takes part ([`BroadcastCommand::Dead`]).
    BelowFloor {
        /// Who.
        rank: Rank,
    },
    /// A member does not take part any more.
    Lost {
        /// Who.
        rank: Rank,
    },
    /// This rank does not take part any more: the others have put it out.
    Out,
    /// Too few members are left to go on without those that are silent at once. The cast waits for
    /// the silent ones, and goes on when they speak again, or when it is known that they are dead
    /// ([`BroadcastCommand::Dead`]).
    Helpless,
    /// Root: symbols take another way from here on.
    Switched {
        /// Which.
        way: Algorithm,
    },
    /// The wire lacks something; nothing can be cast here.
    Refused {
        /// What.
        missing: RefusalReason,
    },
    /// Receiver: the place given for this object is too short; the cast is aborted.
    TooLong {
        /// The number of the object.
        object: u32,
        /// In bytes.
        length: u64,
    },
}

/// What was counted, since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BroadcastRecord {
    /// Symbols that left for the first time or were handed on, and those that left again.
    pub sent: u64,
    /// Of them, those that were asked for.
    pub repairs: u64,
    /// Symbols that came and were new.
    pub received: u64,
    /// Symbols that came and were here already.
    pub doubled: u64,
    /// Symbols that were not what the sender's memory held.
    pub damaged: u64,
    /// Symbols that came before it was known where they belong.
    pub early: u64,
    /// Reports heard.
    pub reports: u64,
    /// Polls asked.
    pub polls: u64,
}
