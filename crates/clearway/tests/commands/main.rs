//! The commands as a user runs them: what appears, what is refused, what is left behind. Each test
//! runs the program itself.
//!
//! One program for all of them, because each program is linked by itself. A module's name chooses
//! its tests: `cargo test -p clearway --test commands cast::`.
#![cfg(target_os = "linux")]
#![allow(non_snake_case)] // tests are named function__case

mod agent;
mod archives;
mod broadcast;
mod cast;
mod closed_output;
mod collectives;
mod explain;
mod gpcnet;
mod hostfile;
mod interrupt;
mod keys;
mod marks;
mod places;
mod policy;
mod processes;
mod programs;
mod qos;
mod scraped;
mod setup_node;
mod staging;
mod surface;
mod timeslice;
mod timeslice_joins;
mod timeslice_ranks;
mod timeslice_restarts;
mod timeslice_slices;
mod timeslice_topology;
mod together;
mod virtual_hosts;
mod waiting;
mod wires;
