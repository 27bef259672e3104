//! A staging file system on one machine: the log of staged files as a directory that programs write
//! to.
//!
//! Rooms: [`control`] (what a mount is asked and answers over its control socket).

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(non_snake_case))]

pub mod control;
