//! Staging over a network: a server that has the log, and mounts on other hosts.
//!
//! # Model
//! ```text
//!   kernel -> RemoteFiles --calls--> Session -> Engine (tree, log, drain)
//!             (memory of writes)     (one thread and one wire for each client)
//! ```
//! A mount keeps the bytes of writes until the server has them in its log, and answers the writer
//! before that. Changes of names are answered when they are in the log. When the connection breaks,
//! the mount connects again and makes all calls again that were not answered; the log tells the
//! server which of them it has.
//!
//! Rooms: `request` (what is asked and answered), `execute` and `access` (the server does it, for a
//! user), `session`, `pacing` and [`server`] (clients of a server), `client`, [`connection`],
//! `trees`, [`mount`] and `relay` (a mount of one or several servers).

mod access;
mod client;
pub mod connection;
mod execute;
pub mod mount;
mod pacing;
mod relay;
mod request;
pub mod server;
mod session;
#[cfg(test)]
mod tests;
mod trees;

pub use access::User;
pub(crate) use client::{CacheState, FileAge};
pub(crate) use pacing::MountPacing;
pub(crate) use request::{
    FileRequest, FileResponse, RequestCaller, RequestNode, RequestPlace, RequestedAttributes,
    RequestedTime, RespondedAttributes, RespondedEntry,
};
pub(crate) use trees::{
    AllAnswer, ServedTree, ServedTrees, TreeAnswer, TreeRename, TreeResponse, check_free,
    request_first,
};

use clearway_proto::base::{Class, Rank};
use clearway_proto::staging::ClientId;

/// The ranks of the wire between a server and a client.
pub const SERVER_RANK: Rank = Rank(0);
/// The client's.
pub const CLIENT_RANK: Rank = Rank(1);
/// Frames of calls in each direction: 16 MiB.
pub const WINDOW: u32 = 256;

/// Names a mount over all its connections. It holds the number of its user, so that no user can
/// take the place of another's client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientName(u64);

impl ClientName {
    /// Bits of it that are drawn.
    const DRAWN: u32 = 29;

    /// Makes a name for a client of a user from 29 random bits.
    pub const fn new(uid: u32, drawn: u32) -> Self {
        let drawn = (drawn & ((1 << Self::DRAWN) - 1)) | 1;
        Self((uid as u64) << 32 | (drawn as u64) << 3)
    }

    /// Reads a name; `None` when it is not one of a client of this user.
    pub const fn parse(name: u64, uid: u32) -> Option<Self> {
        let is_good = name >> 32 == uid as u64 && name & 7 == 0 && name & 0xffff_fff8 != 0;
        if is_good { Some(Self(name)) } else { None }
    }

    /// Returns it as a number.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Returns the client of the log for calls of a class.
    const fn of_class(self, class: Class) -> ClientId {
        ClientId(self.0 | class.index() as u64)
    }
}
