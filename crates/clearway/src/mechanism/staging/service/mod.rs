//! Servers of staged files, and their clients: how a mount and its server open a wire.
//!
//! # Model
//! ```text
//!   mount  --TCP: a secret in a credential of munge, unless both have a key--> server
//!   mount  --proof of the key or secret, sealed from then on--> server
//!   mount  <-Welcome (log, user)--  server
//!   mount  --Join (name, keys, place of its wire)--> server
//!   mount  <-Joined (place)------   server
//!   mount  <===== wire of two ranks =====> server    (UDP: sealed; libfabric: not)
//! ```
//! The TCP connection stays open and idle: its end tells each side that the other has ended. The
//! wire is a job of two ranks, with keys of its own.

mod connect;
mod message;
mod munge;
mod serve;

pub(crate) use connect::{MountConnector, MountProof, RemoteTree, ServerAddress};
pub(super) use serve::{AcceptedClients, Service, error_reporter};
pub(crate) use serve::{ServeFlags, serve};
