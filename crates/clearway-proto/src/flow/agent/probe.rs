//! The packet of a probe, and of its answer, which is as long.
//!
//! ```text
//!   "CWap"  version  kind (1 probe, 2 answer)  0 0  nonce (8, little-endian)
//! ```

use crate::base::{ByteReader, Head};

/// The length of both packets.
pub const PROBE_BYTES: usize = 16;
const MAGIC: [u8; 4] = *b"CWap";
const VERSION: u8 = 1;
const KINDS: [u8; 2] = [1, 2];

/// A probe, or the answer to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbePacket {
    /// A question; the nonce is random, so that only who received it can answer.
    Probe {
        /// The nonce.
        nonce: u64,
    },
    /// The answer.
    Answer {
        /// That of the question.
        nonce: u64,
    },
}

/// Why a packet is no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeFault {
    /// Its bytes are no packet of agents.
    Malformed,
    /// It answers nothing that this agent asked this peer, or asked lately.
    Unsolicited,
}

impl ProbePacket {
    /// Returns its bytes.
    pub fn encode(&self) -> [u8; PROBE_BYTES] {
        let (kind, nonce) = match self {
            Self::Probe { nonce } => (KINDS[0], nonce),
            Self::Answer { nonce } => (KINDS[1], nonce),
        };
        let mut head: Head<PROBE_BYTES> = Head::new();
        head.put(&MAGIC).put(&[VERSION, kind, 0, 0]).put(&nonce.to_le_bytes());
        let mut bytes = [0; PROBE_BYTES];
        bytes.copy_from_slice(head.bytes());
        bytes
    }

    /// Reads a packet.
    ///
    /// # Errors
    /// [`ProbeFault::Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Self, ProbeFault> {
        let read = || {
            let mut rest = ByteReader::new(bytes);
            let is_magic = rest.take()? == MAGIC;
            let [version, kind, zeros @ ..]: [u8; 4] = rest.take()?;
            let nonce = rest.u64()?;
            let is_form = is_magic && version == VERSION && zeros == [0; 2] && rest.is_empty();
            match kind {
                1 if is_form => Some(Self::Probe { nonce }),
                2 if is_form => Some(Self::Answer { nonce }),
                _ => None,
            }
        };
        read().ok_or(ProbeFault::Malformed)
    }
}
