//! Wires, waiting and launch on the real machine: its sockets, shared memory, processes and
//! launchers.
#![allow(non_snake_case)] // tests are named function__case

mod full_queues;
mod launch;
mod progress;
mod reliable;
mod shm_processes;
