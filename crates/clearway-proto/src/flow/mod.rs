//! Decides which bytes may move, and when: rates, shares, places at a receiver, and deadlines.
//!
//! # Model
//! Parts that know nothing of what moves: a token bucket ([`TokenBucket`]), reservations, shares and
//! limits of several ([`TagScheduler`]), places that a receiver gives to senders ([`Admission`]),
//! what is due first ([`DeadlineQueue`]), the class that keeps deadlines ([`ClassPromotion`]), the
//! rate that spares an application ([`YieldController`]), one budget for many hosts
//! ([`BudgetCoordinator`], [`BudgetMember`]), and the scavengers of a node ([`NodeAgent`],
//! [`AgentFollower`]). All count bytes and nanoseconds in
//! integers, so that what they decide is the same on every machine.
//!
//! # Not here
//! Measuring: the owner says what was carried, and how long a probe took.

mod admission;
mod agent;
mod bucket;
mod budget;
mod deadlines;
mod division;
mod promotion;
mod tags;
mod yielding;

pub use admission::Admission;
pub use agent::{
    AGENT_MESSAGE_BYTES, AgentAnswer, AgentDemand, AgentFigures, AgentFollower, AgentGrant,
    AgentMessage, GRANT_LEASE, HeldBack, NodeAgent, PROBE_BYTES, PROBE_PAUSE_MAX, ProbeFault,
    ProbePacket, SCAVENGERS_MAX,
};
pub use bucket::TokenBucket;
pub use budget::{
    ANSWER_BYTES, BudgetAnswer, BudgetCoordinator, BudgetGrant, BudgetMember, BudgetRefusal,
    BudgetRequest, BudgetUse, HeldGrant, LEASE, MEMBERS_MAX, RENEW_EVERY, REQUEST_BYTES,
    TAKE_EVERY, budget_floor,
};
pub use deadlines::DeadlineQueue;
pub use promotion::{ClassChange, ClassPromotion};
pub use tags::{ServiceChoice, ServiceShare, TagScheduler};
pub use yielding::{ExcessCause, ProbeMoment, YieldController, YieldReport};
