//! Decides which bytes may move, and when: rates, shares, places at a receiver, and deadlines.
//!
//! # Model
//! Four parts that know nothing of each other nor of what moves: a token bucket ([`TokenBucket`]),
//! reservations, shares and limits of several ([`TagScheduler`]), places that a receiver gives to
//! senders ([`Admission`]), and what is due first ([`DeadlineQueue`]). All count bytes and
//! nanoseconds in integers, so that what they decide is the same on every machine.
//!
//! # Not here
//! Measuring of delays: the loops that set rates.

mod admission;
mod bucket;
mod deadlines;
mod tags;

pub use admission::Admission;
pub use bucket::TokenBucket;
pub use deadlines::DeadlineQueue;
pub use tags::{ServiceChoice, ServiceShare, TagScheduler};
