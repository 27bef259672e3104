//! A staging file system on one machine: the log of staged files as a directory that programs write
//! to.
//!
//! Rooms: [`control`] (what a mount is asked and answers over its control socket), [`client`] (who
//! asks), `server` (who answers), [`mount`] (a mount from its options to its end), `kernel` (requests of
//! the kernel), `names`, `bytes` and [`classes`] (what they ask for), `engine` (the log, its drain,
//! and who waits for them), `stored` (what is asked about the store), `arena` (memory of writes),
//! `backing` (bytes that the store has), `handles` (what is open), [`log_directory`] (the files of a
//! log), [`inspect`] (a log that is not mounted), [`contents`] (one that is opened without a mount).

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(non_snake_case))]

mod arena;
mod backing;
mod bytes;
pub mod classes;
pub mod client;
pub mod contents;
pub mod control;
mod engine;
mod error;
mod handles;
pub mod inspect;

mod kernel;
pub mod log_directory;
pub mod mount;
mod names;
pub mod network;
mod server;
pub mod store;
mod stored;
#[cfg(test)]
mod testing;

pub use error::FsError;
