//! The agent of a node: probes its peers all along, and limits the rate of the scavengers of the
//! node.
//!
//! # Model
//! While a scavenger demands something, time has rounds of [`ROUND`]. All scavengers of a node pause
//! once in a round, at an instant that they know before. Agents begin pauses at multiples of a round
//! on the wall clock, so those of several nodes pause together, as far as their clocks agree.
//! ```text
//!   | probes: sending                 | pause: silent | probes: paused | silent | decision
//! ```
//! In the first half of a pause the queues become empty. If more than a quarter of the probes of the
//! second half take longer than this half, the pause was too short: nothing is decided, and the next
//! one is twice as long, up to the longest, after which the agent decides in any case. After a pause
//! that was long enough the next is half as long.
//!
//! A sample is a round trip as a multiple of the shortest of its peer in the last minute, so that
//! peers near and far are one series. A probe without an answer counts with the time that it has
//! waited, unless its peer did not answer the last three: such a peer does not count. A
//! [`super::YieldController`] decides from the samples what scavengers may send together. Users share
//! it max-min fairly, and the scavengers of a user that user's part. An agent to which no peer answers
//! sees nothing, and limits nothing.
//!
//! While no scavenger demands anything, the agent sends three probes a second, for its figures and the
//! shortest round trips; else about 48.
//!
//! # Invariants
//! I1. Scavengers get rates whose sum is at most what is allowed.
//! I2. Changes of demands renew all grants once in a tenth of a second at most.
//! I3. A scavenger never stops: a grant allows something, its pause is bounded, and after its lease
//!     the last rate stays, without pauses.
//!
//! # Not here
//! Sockets and names. Queues of ports that no peer's probe crosses: nobody sees those.

mod engine;
mod follower;
mod message;
mod pauses;
mod peer;
mod probe;
#[cfg(test)]
mod tests;

use crate::base::Nanos;

pub use engine::{AgentFigures, NodeAgent};
pub use follower::{AgentFollower, HeldBack};
pub use message::{AGENT_MESSAGE_BYTES, AgentAnswer, AgentDemand, AgentGrant, AgentMessage};
pub use probe::{PROBE_BYTES, ProbeFault, ProbePacket};

/// Between the beginnings of two pauses: the least pause costs a twelfth of it.
const ROUND: Nanos = Nanos::from_millis(500);
/// The shortest pause: a scavenger may notice it some milliseconds late.
const PAUSE_MIN: Nanos = Nanos::from_millis(40);
/// The longest pause: all are silent for at most a third of the time.
pub const PROBE_PAUSE_MAX: Nanos = Nanos::from_millis(160);
/// How long a grant holds: four rounds, so that one lost grant changes nothing.
pub const GRANT_LEASE: Nanos = Nanos::from_secs(2);
/// The most scavengers of a node.
pub const SCAVENGERS_MAX: usize = 64;
