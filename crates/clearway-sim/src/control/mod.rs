//! Congestion control: the parts of switches, receivers and senders as state machines that get the
//! time from their caller.
//!
//! # Model
//! ```text
//!    edge    last switch: EdgePort --EdgeNotice--> sender: Throttle      fan-in counted, pace set, packets still in the sender wait
//!    dcqcn   any switch: mark -> receiver: Notifier --> sender: Reaction                                  rate per flow
//!    pauses  receiver of a cable: Ingress --PauseSignal--> sender of the cable: stops and goes on              per lane
//! ```
//!
//! # Not here
//! Carrying notices and signals: the fabric delays them and calls.

pub(crate) mod dcqcn;
pub(crate) mod edge;
pub(crate) mod pauses;
pub(crate) mod throttle;

#[cfg(test)]
mod tests;
