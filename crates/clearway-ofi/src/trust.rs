//! What ranks show each other before they are heard.
//!
//! # Model
//! From keys that two ranks share, a holder derives [`PROOF_LENGTH`] bytes for each
//! direction, which look random to everybody else. The first 8 are the session number in all
//! messages of that direction, the others one proof for each lane. A rank sends the proof as its
//! first message on each lane, and nothing else from it is taken before; a proof is taken once.
//! Keys live for one run, so what was recorded in another is worth nothing.
//!
//! # Not here
//! The keys (who opens the wire has them); what this protects and what not: `docs/security.md`.

use clearway_proto::base::Class;

use crate::frame::HELLO_LENGTH;

/// Bytes of what a rank proves itself with to one other: a session number, and a proof for each
/// class.
pub const PROOF_LENGTH: usize = SESSION_LENGTH + Class::ALL.len() * HELLO_LENGTH;
const SESSION_LENGTH: usize = size_of::<u64>();

/// Whom to hear.
#[derive(Clone)]
pub enum Trust {
    /// Everybody who knows this number.
    Session(u64),
    /// Ranks that prove themselves: what this rank shows each other, by rank, and what the other
    /// shows it.
    Proofs(Vec<[[u8; PROOF_LENGTH]; 2]>),
}

/// What is shown in one direction.
#[derive(Clone, Copy)]
pub(crate) struct SessionProof {
    /// In every message.
    pub(crate) session: u64,
    /// Shown first, by lane.
    pub(crate) hello: [[u8; HELLO_LENGTH]; Class::ALL.len()],
}

impl SessionProof {
    /// Creates a value that proves nothing.
    pub(crate) fn from_session(session: u64) -> Self {
        Self { session, hello: [[0; HELLO_LENGTH]; Class::ALL.len()] }
    }

    /// Creates a proof out of derived bytes.
    pub(crate) fn from_proof(bytes: &[u8; PROOF_LENGTH]) -> Self {
        let (session, proofs) = bytes.split_first_chunk().expect("it begins with a session number");
        let mut pass = Self::from_session(u64::from_le_bytes(*session));
        pass.hello.as_flattened_mut().copy_from_slice(proofs);
        pass
    }

    /// Returns whether `proof` is the one for `lane`, in a time that does not tell how much of it
    /// is.
    pub(crate) fn is_proved_by(&self, lane: usize, proof: [u8; HELLO_LENGTH]) -> bool {
        let differing =
            self.hello[lane].iter().zip(proof).fold(0, |differing, (a, b)| differing | (a ^ b));
        differing == 0
    }
}

impl std::fmt::Debug for SessionProof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionProof(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_proof__session_first_and_then_a_proof_for_each_lane() {
        let bytes = std::array::from_fn(|i| i as u8);
        let pass = SessionProof::from_proof(&bytes);
        assert_eq!(pass.session, 0x0706_0504_0302_0100);
        let of_lane_2: [u8; HELLO_LENGTH] =
            std::array::from_fn(|i| (8 + 2 * HELLO_LENGTH + i) as u8);
        assert!(pass.is_proved_by(2, of_lane_2));
        assert!(!pass.is_proved_by(1, of_lane_2), "the proof of another lane");
        for i in 0..HELLO_LENGTH {
            let mut wrong = of_lane_2;
            wrong[i] ^= 0x80;
            assert!(!pass.is_proved_by(2, wrong), "byte {i}");
        }
    }
}
