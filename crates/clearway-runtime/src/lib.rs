//! Runs engines on real machines: real clocks, the progress loop, the wires over UDP and over
//! shared memory.
//!
//! Rooms: [`udp`] (datagrams, multicast, classes), [`shm`] (ranks of one host), [`near`] (PEs of
//! one host in each other's memory), [`joined`] (`shm` and another wire as one), [`multipath`] (two
//! that both reach everybody), [`files`] (file operations over any wire), [`progress`] (one engine
//! over one wire), [`waiting`] (spin or sleep), [`clock`] (this node's time and the kernel's
//! receive stamps), [`noise`] (what this node's processors did to a measurement), [`awake`] (what
//! keeps them from it), [`wake_signal`] (wakes a thread that sleeps), `time_slice` (has it run
//! soon), [`fair_lock`] (a lock in turn), [`machine_memory`] (how much there is; what this process
//! gives back), [`door`] (lets in who knows a secret), [`launch`] (how the ranks of a job find each
//! other), [`keys`] (what only they know), [`munge`] (credentials of users of a site).

#![deny(unsafe_code)]
#![cfg_attr(test, allow(non_snake_case))]

pub mod attend;
pub mod awake;
pub mod clock;
pub mod clock_status;
mod combined;
pub mod door;
mod error;
pub mod fair_lock;
pub mod files;
pub mod joined;
pub mod keys;
pub mod launch;
pub mod machine_memory;
pub mod multipath;
pub mod munge;
pub mod near;
pub mod noise;
pub mod progress;
mod reliable;
pub mod shm;
mod time_slice;
pub mod udp;
pub mod waiting;
pub mod wake_signal;

pub use error::{JobMember, RuntimeError};
