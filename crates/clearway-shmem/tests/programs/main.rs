//! The library as C and C++ programs meet it: names, headers, tools, and programs that run as PEs
//! under every launcher that is there.
//!
//! One program for all of them, because each program is linked by itself. A module's name chooses
//! its tests: `cargo test -p clearway-shmem --test programs headers::`.
#![cfg(target_os = "linux")]
#![allow(non_snake_case)] // tests are named function__case

mod examples;
mod failures;
mod gaps;
mod headers;
mod launchers;
mod names;
mod pes;
mod prefix;
mod python;
mod queues;
mod slurm;
mod tail;
mod two_hosts;
