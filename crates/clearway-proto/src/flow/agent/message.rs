//! Messages between a scavenger and the agent of its node: one datagram of a fixed length each.
//!
//! ```text
//!   a scavenger   "CWsc"  version  0 0 0  demand (8)  zeros
//!   the agent     "CWsc"  version  kind  held (0, 1)  0  rate (8)  lease (8)  pause at (8)  pause (8)
//! ```
//! Numbers are little-endian; rates in bits a second, times in ns, instants on the monotonic clock of
//! the node, which both read. The first message of a scavenger is its greeting.

use super::PROBE_PAUSE_MAX;
use crate::base::{BitsPerSec, ByteReader, Head, LocalNs, Nanos};

/// The length of each message.
pub const AGENT_MESSAGE_BYTES: usize = 40;
const MAGIC: [u8; 4] = *b"CWsc";
const VERSION: u8 = 1;
/// The longest lease that is believed: a grant that never ends would outlive its agent.
const LEASE_MAX: Nanos = Nanos::from_secs(60);

/// The bytes of a message.
pub type AgentMessage = [u8; AGENT_MESSAGE_BYTES];

/// What a scavenger says: how fast it could send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentDemand(pub BitsPerSec);

/// What the agent allows a scavenger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentGrant {
    /// The rate from now on.
    pub rate: BitsPerSec,
    /// Whether all scavengers together may send less than the link carries.
    pub is_held: bool,
    /// How long this holds.
    pub lease: Nanos,
    /// When the next pause begins; it has no length where there is none.
    pub pause_at: LocalNs,
    /// How long it lasts.
    pub pause: Nanos,
}

/// What the agent says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentAnswer {
    /// It allows something.
    Granted(AgentGrant),
    /// It ends in order, and limits nothing any more.
    Ends,
    /// It has as many scavengers as it may.
    Full,
}

impl AgentDemand {
    /// Returns the bytes of the message.
    pub fn encode(&self) -> AgentMessage {
        let mut head: Head<AGENT_MESSAGE_BYTES> = Head::new();
        head.put(&MAGIC).put(&[VERSION, 0, 0, 0]).put(&self.0.0.to_le_bytes());
        filled(&head)
    }

    /// Reads a message; `None` where the bytes are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = ByteReader::new(bytes);
        let is_begin = rest.take()? == MAGIC && rest.take()? == [VERSION, 0, 0, 0];
        let demand = rest.u64()?;
        let is_end = rest.take()? == [0; 24] && rest.is_empty();
        (is_begin && is_end).then_some(Self(BitsPerSec(demand)))
    }
}

impl AgentAnswer {
    /// Returns the bytes of the message.
    pub fn encode(&self) -> AgentMessage {
        let mut head: Head<AGENT_MESSAGE_BYTES> = Head::new();
        head.put(&MAGIC);
        match self {
            Self::Granted(grant) => {
                head.put(&[VERSION, 1, u8::from(grant.is_held), 0]);
                for field in [grant.rate.0, grant.lease.0, grant.pause_at.0, grant.pause.0] {
                    head.put(&field.to_le_bytes());
                }
            }
            Self::Ends => drop(head.put(&[VERSION, 2, 0, 0])),
            Self::Full => drop(head.put(&[VERSION, 3, 0, 0])),
        }
        filled(&head)
    }

    /// Reads a message; `None` where the bytes are none, or would stop the scavenger.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = ByteReader::new(bytes);
        (rest.take()? == MAGIC).then_some(())?;
        let [version, kind, held, zero] = rest.take()?;
        let (rate, lease) = (rest.u64()?, rest.u64()?);
        let (pause_at, pause) = (rest.u64()?, rest.u64()?);
        (version == VERSION && held <= 1 && zero == 0 && rest.is_empty()).then_some(())?;
        let (lease, pause) = (Nanos(lease), Nanos(pause));
        let is_bounded = rate > 0 && pause <= PROBE_PAUSE_MAX && lease <= LEASE_MAX;
        let is_empty = (rate, lease, pause_at, pause, held) == (0, Nanos::ZERO, 0, Nanos::ZERO, 0);
        match kind {
            1 if is_bounded => Some(Self::Granted(AgentGrant {
                rate: BitsPerSec(rate),
                is_held: held == 1,
                lease,
                pause_at: LocalNs(pause_at),
                pause,
            })),
            2 if is_empty => Some(Self::Ends),
            3 if is_empty => Some(Self::Full),
            _ => None,
        }
    }
}

/// Returns the bytes of a head, and zeros up to the length of a message.
fn filled(head: &Head<AGENT_MESSAGE_BYTES>) -> AgentMessage {
    let mut bytes = [0; AGENT_MESSAGE_BYTES];
    bytes.iter_mut().zip(head.bytes()).for_each(|(to, from)| *to = *from);
    bytes
}
