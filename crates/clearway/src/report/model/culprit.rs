//! What a report holds of the port at which victims wait, and of the hosts that fill it.

use serde::{Deserialize, Serialize};

use super::Labels;

/// Where the victims of a congested cell wait, and for whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Culprit {
    /// Queue, victim, congestor.
    #[serde(default)]
    pub(crate) labels: Labels,
    /// The sending end of a link and the other: `leaf0 -> n3`.
    pub(crate) port: String,
    /// Names of the congestors whose messages pass it.
    pub(crate) senders: Vec<String>,
    /// How it is known, half a sentence.
    pub(crate) because: String,
}
