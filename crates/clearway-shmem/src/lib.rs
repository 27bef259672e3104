//! OpenSHMEM as a C library: a symmetric heap, one-sided operations on it, teams, contexts and
//! collectives.
//!
//! # Model
//! The PEs of a host map each other's memory when they start ([`clearway_runtime::near`]). From then
//! on an operation between them is a copy or an instruction of the processor: no thread, no message,
//! no lock. PEs of other hosts apply records that reach them over a wire (`far`). What a C program
//! hands in is checked where it is used: the symmetric address against the segments, the PE against
//! its team.
//!
//! Rooms: `job` (begin and end; the only process globals), `address` (from a pointer to a place in
//! a PE's memory), `heap`, `statics`, `rma`, `amo`, `signal`, `order`, `wait`, `context`, `team`,
//! `lock`, `collective`, `blocks`, `session` and `queue` (what is gathered), `far` (PEs of other
//! hosts). The C functions are made from one table of types and operations.
//!
//! # Not here
//! Fortran, which the standard dropped.

#![deny(unsafe_code)]
#![cfg_attr(test, allow(non_snake_case))] // tests are named function__case

mod abi;
pub mod address;
pub mod amo;
pub mod blocks;
mod calls;
mod card;
pub mod collective;
pub mod constants;
pub mod context;
mod far;
pub mod fault;
pub mod header;
pub mod heap;
pub mod job;
pub mod lock;
mod memory;
pub mod operand;
pub mod order;
pub mod queue;
pub mod rma;
pub mod session;
mod settings;
pub mod signal;
mod statics;
pub mod table;
pub mod team;
mod thunks;
pub mod wait;
pub mod word;
