//! What a report holds of the slowest messages of a simulated run: which they were, and what held
//! each of them up.

use serde::{Deserialize, Serialize};

use super::Labels;
use super::real::write_rounded;

/// The slowest messages of the victims in one phase, the slowest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Slowest {
    /// Queue, victim, congestor.
    #[serde(default)]
    pub(crate) labels: Labels,
    /// Which phase it was.
    pub(crate) phase: String,
    pub(crate) messages: Vec<SlowMessage>,
    /// Why some were not followed; absent when all were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SlowMessage {
    /// As `clearway sim explain --message` takes it.
    pub(crate) id: String,
    /// Names of the sender and the receiver.
    pub(crate) ends: [String; 2],
    pub(crate) bytes: u64,
    /// From the beginning of its phase.
    #[serde(serialize_with = "write_rounded")]
    pub(crate) posted_us: f64,
    #[serde(serialize_with = "write_rounded")]
    pub(crate) latency_us: f64,
    /// What it waited for most; absent where it was not followed or never waited.
    #[serde(default)]
    pub(crate) wait: Option<LongestWait>,
}

/// The longest wait of a message: at one port, for one kind of cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LongestWait {
    /// For what, for a person: `room in the next buffer`.
    pub(crate) cause: String,
    /// Where it stood: `leaf0 -> spine3`.
    pub(crate) port: String,
    #[serde(serialize_with = "write_rounded")]
    pub(crate) us: f64,
    /// The port that was the reason; the same where the packets ahead were.
    pub(crate) root: String,
    /// Why that port was: `busy with packets of 12 hosts`.
    pub(crate) because: String,
}
