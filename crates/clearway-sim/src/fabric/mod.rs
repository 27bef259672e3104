//! Moves packets: posts go in, deliveries come out, everything between is a function of specification and seed.

mod order;

pub use order::{EventQueue, Events, Marked, Notice, Options, Order, Payload, Reports, Target, Trains};
