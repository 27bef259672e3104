//! A staging file system on one machine: the log of staged files as a directory that programs write
//! to.
//!
//! Rooms: [`control`] (requests and responses of the control socket), [`client`] (sends requests),
//! `server` (answers them), [`mount`] (a mount from its options to its end), `kernel` (requests of the
//! kernel), `names`, `bytes` and [`classes`] (their effects), `engine` (the log, its drain, and answers
//! that wait), `stored` (waits for the store, and publishes sets), `arena` (memory of writes),
//! `backing` (bytes that only the store has), `handles` (open files), [`log_directory`] (the files of a
//! log), [`inspect`] (reads a log that is not mounted), [`contents`] (opens a log without a mount).

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(non_snake_case))]

mod arena;
mod backing;
mod bytes;
pub mod classes;
pub mod client;
pub mod contents;
pub mod control;
mod control_socket;
mod engine;
mod error;
mod handles;
pub mod inspect;

mod kernel;
pub mod log_directory;
pub mod mount;
pub mod mount_table;
mod names;
pub mod network;
mod server;
pub mod store;
mod stored;
#[cfg(test)]
mod testing;

pub use error::FsError;
