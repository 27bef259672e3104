//! Does the steps of a drain in the directory of a store, in a child process.
//!
//! # Model
//! ```text
//!   mount                                        child
//!   begin --> queue --> supervisor --frames--> threads, each with a step --> the store
//!   poll  <-- ends  <------+       <--frames------+                      <-- the log
//! ```
//! A call to a store can block for ever: when a server is gone, a thread that waits in the kernel
//! cannot be killed, nor can its process. So a child makes the calls, and the mount gives the child
//! up when a step makes no progress. The mount itself can then still end, and release the lock of
//! the log. No thread of the mount waits for a step: `begin` queues a step, and a signal is raised
//! when an end can be polled.
//!
//! Rooms: `worker` (the interface to the engine), `supervisor` (starts and gives up the child),
//! `frame` (the bytes between them), `child` (the child process), `steps`, `copy`, `read_back`,
//! `drain_pace`, `attributes` and `access` (the steps), `owner` (whose the store is), `place` (the
//! directory, and paths in it), `bodies` (reads the log for a child).
//!
//! # Not here
//! The order of steps (`proto::staging::StoreDrain`).

mod access;
mod attributes;
mod bodies;
mod child;
mod copy;
mod drain_pace;
mod frame;
mod owner;
mod place;
mod read_back;
mod steps;
mod supervisor;
#[cfg(test)]
mod tests;
mod worker;

pub use self::child::serve;

pub use self::drain_pace::{DrainAllowance, DrainHeld};
pub use self::owner::{StoreOwner, StoreSharing};
pub(crate) use self::owner::{is_reserved, is_shared};
pub use self::place::OBJECTS_NAME;
pub(crate) use self::steps::stranger_name;
pub use self::worker::{StoreOptions, StoreReader, StoreWorker};
