//! A staging file system on one machine: the log of staged files as a directory that programs write
//! to.
//!
//! Rooms: [`control`] (what a mount is asked and answers over its control socket), [`client`] (who
//! asks), `server` (who answers), [`mount`] (a mount from its options to its end), `kernel` (requests of
//! the kernel), `names`, `bytes` and [`classes`] (what they ask for), `engine` (the log, and who waits
//! for it), `arena` (memory of writes), `handles` (what is open), [`log_directory`] (the files of a log).

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(non_snake_case))]

mod arena;
mod bytes;
pub mod classes;
pub mod client;
pub mod control;
mod engine;
mod error;
mod handles;
mod kernel;
pub mod log_directory;
pub mod mount;
mod names;
mod server;
pub mod store;
#[cfg(test)]
mod testing;

pub use error::FsError;
