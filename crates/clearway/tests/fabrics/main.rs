//! Engines on simulated fabrics under random faults, a short part of what an environment variable
//! makes as long as one likes.
#![allow(non_snake_case)] // tests are named function__case

mod broadcast;
mod faulty_world;
mod staging;
mod timeslice;
mod timeslice_slow;
