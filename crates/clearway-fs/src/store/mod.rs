//! Does the steps of a drain in the directory of a store, in a child process.
//!
//! # Model
//! ```text
//!   mount                                        child
//!   begin --> queue --> supervisor --frames--> threads, each with a step --> the store
//!   poll  <-- ends  <------+       <--frames------+                      <-- the log
//! ```
//! A call to a store can wait for ever: a server is gone, and a thread in the kernel cannot be ended,
//! nor can its process. So the calls are made by a child, which is given up when a step makes no
//! progress; the mount itself stays free to end, and with it the lock of the log. Nobody waits in the
//! mount: `begin` notes a step, and a signal is raised when an end can be polled.
//!
//! Rooms: `worker` (what the engine has of this), `supervisor` (the child, as the mount has it),
//! `frame` (what both say), `child` (the child), `steps`, `copy`, `read_back`, `attributes` and `access` (what is done),
//! `place` (the directory, and paths in it), `bodies` (the log, as a child reads it).
//!
//! # Not here
//! Which step comes when (`proto::staging::StoreDrain`).

mod access;
mod attributes;
mod bodies;
mod child;
mod copy;
mod frame;
mod place;
mod read_back;
mod steps;
mod supervisor;
#[cfg(test)]
mod tests;
mod worker;

pub use self::child::serve;

pub use self::place::OBJECTS_NAME;
pub use self::worker::{StoreOptions, StoreReader, StoreWorker};
