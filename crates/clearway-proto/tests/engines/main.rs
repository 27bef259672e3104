//! Engines as their users see them, in virtual time: over networks that lose, double and delay, and
//! among strangers.
#![allow(non_snake_case)] // tests are named function__case

mod calls;
mod queue;
mod staging;
mod teams;
mod timeslice_node;
mod yielding;
