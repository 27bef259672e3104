//! Where ranks meet over TCP when no launcher carries their bytes: a hub that everybody connects
//! to.
//!
//! # Model
//! Each rank keeps one connection to the hub. In a *round* every rank arrives with the same wish
//! (give bytes, wait, or leave); when the last one has come the hub answers all of them. So an
//! exchange is one round whatever the number of ranks, and the hub sends each of them everybody's
//! bytes, frame by frame as the connection takes them. The connections also tell who is alive: when
//! one breaks before its rank has left, the hub ends the job and tells every other rank who it was
//! and where.
//!
//! [`frame`] has the bytes, [`hub`] what the hub decides; both know no socket. [`hub_server`] gives
//! the hub a listening socket and a thread, [`member`] is a rank's end.
//!
//! # Invariants
//! I1. Frames are authenticated, both ways, with a key of the connection that comes from the job's
//!     key and from random
//!     numbers of both ends: nothing can be forged, replayed, left out or changed. They are not secret: what is exchanged is
//!     public, addresses and public keys.
//! I2. That is worth what the key is worth. Over ssh each rank has a secret of its own. In a Slurm
//!     step without PMI there is
//!     nothing that the ranks know and others do not: the key is made of the numbers of job and step, so that neighbours
//!     cannot meet by mistake, and is no protection from somebody who wants to.
//! I3. A stranger costs one short-lived connection. Strangers are limited in number, in bytes and
//!     in time, and the oldest
//!     makes room for the next.

pub(super) mod frame;
pub(super) mod hub;
pub(super) mod hub_server;
pub(super) mod member;

use std::time::Duration;

/// The longest time from connecting to being known. A handshake is one round trip; the rest is a
/// slow machine.
pub(super) const STRANGER_TIMEOUT: Duration = Duration::from_secs(5);

/// The exit code of a rank whose job ended under it: the general failure of a command.
pub(super) const LOST: i32 = 1;
