//! The engines of Clearway and the contract they keep with every wire.
//!
//! Nothing in this crate opens a socket, reads a clock or starts a thread: time and randomness are
//! arguments, memory is allocated in constructors, results are values. The same code therefore runs
//! on sockets, on libfabric and inside a simulated fabric, and any step of it can be replayed.
//!
//! Rooms, lowest first: [`base`] (time, ranks, classes, units, randomness); [`stats`] (histograms,
//! quantiles, intervals), [`clock`] (a peer's clock, estimated), [`wire`] (the contract),
//! [`flow`] (rates, shares and deadlines), [`microslice`] and [`archive`] (a detector's data and their files); the engines: [`broadcast`], [`calls`],
//! [`channels`], [`congestion`], [`gpcnet`], [`queue`], [`reliable`], [`staging`] and
//! [`timeslice`].

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(non_snake_case))]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod archive;
pub mod base;
pub mod broadcast;
pub mod calls;
pub mod channels;
pub mod clock;
pub mod congestion;
pub mod flow;
pub mod gpcnet;
pub mod microslice;
pub mod queue;
pub mod reliable;
pub mod staging;
pub mod stats;
pub mod timeslice;
pub mod wire;
