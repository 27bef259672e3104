//! Sealed records in both directions of a stream between two ranks: each opens once, in order, and
//! at the other end only.
//!
//! # Invariants
//! I1. No number is used twice for sealing: it counts from 0 and a stream that reached the last one
//!     seals no more.

use clearway_proto::base::Rank;

use super::cipher::{Cipher, NONCE_LENGTH};
use super::{DuplexKeys, JobKeys};
use crate::RuntimeError;

/// Seals what this end says.
#[derive(Debug)]
pub struct Sealer {
    cipher: Cipher,
    next: u64,
}

/// Opens what the other end says.
#[derive(Debug)]
pub struct Opener {
    cipher: Cipher,
    next: u64,
}

impl JobKeys {
    /// Returns both directions of a stream to `peer`. To be taken once: the numbers of records
    /// begin anew.
    ///
    /// # Errors
    /// [`RuntimeError::RankOutside`].
    pub fn stream(&self, peer: Rank) -> Result<(Sealer, Opener), RuntimeError> {
        let pair = self.pairs.get(peer.index());
        let pair = pair.ok_or(RuntimeError::RankOutside { rank: peer, ranks: self.pairs.len() })?;
        let DuplexKeys { out, into } = self.duplex(peer, pair, b"clearway stream");
        Ok((Sealer { cipher: out, next: 0 }, Opener { cipher: into, next: 0 }))
    }
}

fn nonce(number: u64) -> [u8; NONCE_LENGTH] {
    let mut nonce = [0; NONCE_LENGTH];
    nonce[..8].copy_from_slice(&number.to_le_bytes());
    nonce
}

impl Sealer {
    /// Turns `bytes` into a record, a tag longer; `None` when they are more than a cipher takes, or
    /// the stream is too old.
    pub fn seal(&mut self, bytes: &mut Vec<u8>) -> Option<()> {
        let tag = self.cipher.seal(nonce(self.next), &[], bytes)?;
        self.next = self.next.checked_add(1)?;
        bytes.extend(tag);
        Some(())
    }
}

impl Opener {
    /// Returns what was sealed as `record`, the next one; `None` when it is none, or another one.
    pub fn open<'r>(&mut self, record: &'r mut [u8]) -> Option<&'r [u8]> {
        let opened = self.cipher.open(nonce(self.next), &[], record)?;
        self.next = self.next.checked_add(1)?;
        Some(opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{JobSecret, KeyScope, RankKeyPair};

    fn pair(secrets: [u8; 2]) -> Result<[(Sealer, Opener); 2], RuntimeError> {
        let identity = |rank: u32| {
            let secret = JobSecret::new(vec![secrets[rank as usize]; 16]).map(Some)?;
            RankKeyPair::new(Rank(rank), KeyScope { session: 7, epoch: 0, secret })
        };
        let identities = [identity(0)?, identity(1)?];
        let cards = identities.each_ref().map(RankKeyPair::card);
        let [a, b] = identities.map(|identity| identity.agree(&cards));
        Ok([a?.stream(Rank(1))?, b?.stream(Rank(0))?])
    }

    #[test]
    fn open__takes_records_in_order_and_once() {
        let [(mut to, _), (mut back, mut from)] = pair([1, 1]).expect("a stream");
        let mut seal = |text: &[u8]| {
            let mut record = text.to_vec();
            to.seal(&mut record).expect("short");
            record
        };
        let (first, second) = (seal(b"one"), seal(b"two"));
        assert_eq!(from.open(&mut second.clone()), None, "the first one is missing");
        assert_eq!(from.open(&mut first.clone()), Some(&b"one"[..]));
        assert_eq!(from.open(&mut first.clone()), None, "once");
        let mut reflected = b"two".to_vec();
        back.seal(&mut reflected).expect("short");
        assert_eq!(from.open(&mut reflected), None, "its own direction");
        assert_eq!(from.open(&mut second.clone()), Some(&b"two"[..]));
    }

    #[test]
    fn stream__there_is_none_between_different_secrets() {
        assert!(pair([1, 2]).is_err());
    }
}
