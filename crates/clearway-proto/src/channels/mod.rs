//! Which teams of ranks have which of a job's few multicast channels: agreed on, tried again, taken
//! back, and shared when none is left.
//!
//! # Model
//! Group addresses of a network, MLIDs of a fabric and entries of a switch are scarce, so a job has
//! a pool of at most [`CHANNELS_MAX`] *channels*, each a multicast group, and one more that all
//! share. A *team* is ranks that broadcast among themselves; teams overlap. The first member leads:
//!
//! ```text
//!   leader                                     members
//!     |-- ASK (attempt) ------------------------->|   promises of older attempts are void
//!     |<--------------- HAVE (busy, idle since) --|   or-ed: busy at any is busy
//!     |-- PROPOSE (lowest that is free) --------->|
//!     |<--------------------------- VOTE (y/n) ---|   who says yes promises it to nobody else
//!     |-- STAMP (version, channel) -------------->|   all said yes; after a no: ASK, a random while, PROPOSE
//!     |<--------------------- HOLD (version) -----|
//!     |-- STAMP (settled) ----------------------->|   all hold it: the team is notified
//! ```
//!
//! Where nothing is free, the members who hold the channel that was idle longest ask its team to
//! give it up (RECALL). The channel of a team is in a *stamp*: version, author, channel. The
//! greater one counts, and who sees an older one sends its own. To go to the shared channel needs
//! nobody's consent, so any doubt ends there: a team loses its channel by a greater stamp of
//! the member that is asked, or of the first member that misses a silent author. Members free the
//! old channel when the author knows that every living one has taken the new stamp, and is not in
//! the middle of a broadcast.
//!
//! # Source
//! LA-MPI's pool of broadcast buffers (an or of busy bits and a vote, then no second attempt), with
//! what it lacked: retry, recall, a channel for all.
//!
//! # Invariants
//! I1. A rank holds or promises a channel for one team at a time.
//! I2. No team has a channel of its own while a living member of another team that shares a member
//!     with it still has it.
//! I3. When nothing is lost any more all living members of a team come to the same stamp.
//!
//! # Not here
//! The broadcast itself, whose receivers drop what is of another team; joining the wire's groups:
//! the application's.

mod formation;
mod frame;
mod node;
mod pool;
mod team;

#[cfg(test)]
mod swarm;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod trial;

pub use node::ChannelsNode;

use alloc::sync::Arc;

use crate::base::{Class, GroupId, Nanos, Rank};

/// Channels of a pool: the sets that LA-MPI had. As many bits say which are busy.
pub const CHANNELS_MAX: u8 = 8;

/// What a team casts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// One that no team has which shares a member with this one.
    Own(u8),
    /// The one of all: a listener drops what is of other teams.
    Shared,
}

impl Channel {
    /// Returns the wire's group, where the pool's groups begin at `first` with the shared one.
    pub const fn group(self, first: GroupId) -> GroupId {
        match self {
            Self::Shared => first,
            Self::Own(number) => GroupId(first.0.wrapping_add(1 + number as u16)),
        }
    }
}

/// What a [`ChannelsNode`] is made for. All but `rank` are the same on all ranks.
#[derive(Clone, Copy, Debug)]
pub struct ChannelsConfig {
    /// This rank.
    pub rank: Rank,
    /// Channels of the pool; more than [`CHANNELS_MAX`] are not used.
    pub channels: u8,
    /// How long a member may be silent until an agreement ends without it, on the shared channel.
    pub silence: Nanos,
    /// How long a team has not cast until its channel may go to another.
    pub idle: Nanos,
    /// A round trip and more: how long an answer is waited for at first, and the unit of the random
    /// wait after a no.
    pub retry: Nanos,
    /// Decides how long ranks wait that wanted the same channel.
    pub seed: u64,
    /// The class of all messages.
    pub class: Class,
}

/// What the application may ask, when it has heard all events.
#[derive(Clone, Debug)]
pub enum ChannelsCommand {
    /// A team that this rank is in needs a channel. All its members ask the same.
    Form {
        /// Tells it from others; never used twice in a job.
        team: u32,
        /// Its ranks, each once, at most 65,535, in the same order everywhere.
        members: Arc<[Rank]>,
    },
    /// A broadcast of the team begins here: its channel is not given up before
    /// [`ChannelsCommand::End`].
    Begin {
        /// Which.
        team: u32,
    },
    /// It is over.
    End {
        /// Which.
        team: u32,
    },
    /// This rank needs the team no more. All its members ask the same, and then its channel is
    /// free.
    Disband {
        /// Which.
        team: u32,
    },
    /// Somebody who knows says that this rank has died.
    Dead {
        /// Who.
        rank: Rank,
    },
}

/// Events for the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChannelsEvent {
    /// Listen to this channel: the team is about to have it.
    Join {
        /// Which team.
        team: u32,
        /// Its channel, perhaps.
        channel: u8,
    },
    /// The team casts here from now on. The first one ends the agreement; another one follows when
    /// the team had to give its channel up.
    Agreed {
        /// Which team.
        team: u32,
        /// Where.
        channel: Channel,
    },
    /// All members have disbanded the team, and it has no channel any more.
    Disbanded {
        /// Which team.
        team: u32,
    },
    /// This is no team: its members are not what [`ChannelsCommand::Form`] asks for, or its number
    /// is taken.
    Refused {
        /// Which team.
        team: u32,
    },
}
