//! Keys of a job: what ranks publish through their launcher, and what every pair of them then
//! shares.
//!
//! # Model
//! Each rank makes an [`RankKeyPair`] and publishes its *card*: the public half of an X25519 key
//! and a proof. The launcher carries cards, as bytes, from all ranks to all ranks. From the cards
//! each rank derives a secret for each peer, and from that a key for each direction and purpose:
//!
//! ```text
//! shared = X25519(own private half, peer's public half)
//! pair   = HKDF-SHA256(salt = job secret, shared, "clearway pair 1" + session + epoch + ranks + public halves)
//! key    = HKDF-SHA256(pair, purpose + sender + receiver)
//! proof  = HMAC-SHA256(job secret, "clearway card 1" + session + epoch + rank + public half)
//! ```
//!
//! An attacker who only listens to the launcher's exchange learns nothing. One who can *change* it
//! could put own cards in place of the ranks' and sit between them, unless there is a job secret:
//! it is mixed into every key and into the proofs, and comes another way (ssh's standard input, a
//! wrapping of cards in credentials of the site). Without it the exchange itself must be
//! trustworthy.
//!
//! A change of the membership of a job is a new *epoch*. Either every rank makes a new identity,
//! and all keys are new; or one rank has another process, whose card is of a later epoch than that
//! of the process before it: then each other rank makes new keys with that rank alone. The epoch of
//! a pair is the later one of its two cards. The key of a multicast group is random, made by one
//! rank and sealed for each member; a new member or one less is a new key.
//!
//! ```
//! # use clearway_proto::base::Rank;
//! # use clearway_runtime::keys::{RankKeyPair, KeyScope};
//! let scope = || KeyScope { session: 7, epoch: 0, secret: None };
//! let identities = [RankKeyPair::new(Rank(0), scope())?, RankKeyPair::new(Rank(1), scope())?];
//! let cards = identities.each_ref().map(RankKeyPair::card); // each rank's own, exchanged by the launcher
//! let [keys, _of_rank_1] = identities.map(|identity| identity.agree(&cards));
//! keys?; // for `Protection::Keys` of a wire
//! # Ok::<(), clearway_runtime::RuntimeError>(())
//! ```
//!
//! # Source
//! X25519: RFC 7748. HKDF: RFC 5869. One direction, one key: as in TLS 1.3 (RFC 8446, 7.3).
//!
//! # Invariants
//! I1. An identity agrees once, and with a rank again only about a card of a later epoch: deriving
//!     the same keys again would begin their packet numbers anew.
//! I2. No key is used in both directions or for two purposes, that of a group apart, where the
//!     nonce names the sender.
//! I3. Secrets are wiped when they are dropped, and nothing prints them.
//!
//! # Not here
//! How cards travel (launch), how datagrams are sealed (`udp`).

mod cipher;
mod stream;

use std::fmt;

use clearway_proto::base::{GroupId, Rank};
use zeroize::Zeroizing;

pub use self::cipher::random;
pub(crate) use self::cipher::{Cipher, NONCE_LENGTH, TAG_LENGTH};
use self::cipher::{DerivationSecret, KeyExchange, PUBLIC_LENGTH};
pub use self::stream::{Opener, Sealer};
use crate::{JobMember, RuntimeError};

/// Bytes of a card: version, public half, proof.
pub const CARD_LENGTH: usize = 1 + PUBLIC_LENGTH + TAG_LENGTH;
/// The form of cards and the way keys are derived.
const CARD_VERSION: u8 = 1;
/// The purpose of the keys for datagrams.
const DATAGRAMS: &[u8] = b"clearway udp";
/// The shortest job secret: as many bytes as the keys that it protects.
const SECRET_LENGTH_MIN: usize = 16;
/// Bytes of a sealed group key: nonce, group and epoch next to it, the key, the tag.
const SEALED_GROUP_LENGTH: usize =
    NONCE_LENGTH + GROUP_CONTEXT_LENGTH + GROUP_SECRET_LENGTH + TAG_LENGTH;
const GROUP_CONTEXT_LENGTH: usize = 2 + 4;
const GROUP_SECRET_LENGTH: usize = 32;

/// A secret that all ranks of a job know and nobody else. Wiped when dropped.
pub struct JobSecret(Zeroizing<Vec<u8>>);

impl JobSecret {
    /// Takes at least 16 random bytes. A password is no such secret: cards let an attacker try
    /// guesses.
    ///
    /// # Errors
    /// [`RuntimeError::ShortSecret`].
    pub fn new(bytes: Vec<u8>) -> Result<Self, RuntimeError> {
        let secret = Self(Zeroizing::new(bytes));
        let length = secret.0.len();
        if length < SECRET_LENGTH_MIN {
            return Err(RuntimeError::ShortSecret { length, least: SECRET_LENGTH_MIN });
        }
        Ok(secret)
    }

    /// Returns a number that names the secret and tells nothing about it.
    pub fn identifier(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] =
            cipher::prove(&self.0, &[b"clearway name of a secret 1"]);
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

/// What keys are made for: what all ranks of a job know before they agree.
#[derive(Debug)]
pub struct KeyScope {
    /// The job's number.
    pub session: u64,
    /// Counts changes of the membership, from 0.
    pub epoch: u32,
    /// Mixed into all keys, if there is one.
    pub secret: Option<JobSecret>,
}

impl KeyScope {
    fn salt(&self) -> &[u8] {
        self.secret.as_ref().map_or(&[], |secret| &secret.0)
    }

    fn proof(&self, rank: Rank, epoch: u32, public: &[u8]) -> [u8; TAG_LENGTH] {
        let (session, epoch) = (self.session.to_le_bytes(), epoch.to_le_bytes());
        cipher::prove(
            self.salt(),
            &[b"clearway card 1", &session, &epoch, &rank.0.to_le_bytes(), public],
        )
    }

    /// Checks that `card` was made for this by `rank` in `epoch`; a process that collects cards can
    /// so tell whose is wrong before all ranks refuse it.
    ///
    /// # Errors
    /// [`RuntimeError::Card`].
    pub fn check(&self, rank: Rank, epoch: u32, card: &[u8]) -> Result<(), RuntimeError> {
        self.read(rank, epoch, card).map(drop)
    }

    /// Returns the public half on the card of `rank`, which was made in `epoch`.
    fn read<'c>(&self, rank: Rank, epoch: u32, card: &'c [u8]) -> Result<&'c [u8], RuntimeError> {
        let refuse = |fault| Err(RuntimeError::Card { rank, fault });
        let Some((&version, rest)) = card.split_first() else { return refuse("is empty") };
        if version != CARD_VERSION {
            return refuse("is of another version; start all ranks with the same program");
        }
        let Some((public, proof)) =
            rest.split_at_checked(PUBLIC_LENGTH).filter(|(_, p)| p.len() == TAG_LENGTH)
        else {
            return refuse("has another length than the launcher was given");
        };
        // The proof is public, so comparing it need not take constant time.
        if self.proof(rank, epoch, public) != proof {
            return refuse(
                "was not made for this job: another secret, session, epoch or rank, or changed on its way",
            );
        }
        Ok(public)
    }
}

/// One rank's key pair before it knows the others'. Used up by agreeing.
pub struct RankKeyPair {
    rank: Rank,
    scope: KeyScope,
    exchange: KeyExchange,
}

impl RankKeyPair {
    /// Creates a new key pair from the system's randomness.
    ///
    /// # Errors
    /// [`RuntimeError::System`] on a system without randomness.
    pub fn new(rank: Rank, scope: KeyScope) -> Result<Self, RuntimeError> {
        let mut scalar = Zeroizing::new([0; 32]);
        cipher::fill_random(&mut *scalar)?;
        Ok(Self { rank, scope, exchange: KeyExchange::new(&scalar)? })
    }

    /// Returns what this rank publishes.
    pub fn card(&self) -> [u8; CARD_LENGTH] {
        let mut card = [CARD_VERSION; CARD_LENGTH];
        let public = self.exchange.public();
        card[1..=PUBLIC_LENGTH].copy_from_slice(public);
        card[1 + PUBLIC_LENGTH..].copy_from_slice(&self.scope.proof(
            self.rank,
            self.scope.epoch,
            public,
        ));
        card
    }

    /// Derives the keys with all ranks from their cards, by rank, this one's included, all of them
    /// made in this one's epoch. About 50 us a peer.
    ///
    /// # Errors
    /// [`RuntimeError::RankOutside`] when there are too few cards, [`RuntimeError::Card`] for one
    /// that is wrong.
    pub fn agree<C: AsRef<[u8]>>(self, cards: &[C]) -> Result<JobKeys, RuntimeError> {
        let epoch = self.scope.epoch;
        let cards: Vec<_> = cards.iter().map(|card| (card.as_ref(), epoch)).collect();
        self.agree_across(&cards)
    }

    /// Derives the keys as [`RankKeyPair::agree`] does, from cards of several epochs: each card with
    /// the epoch in which it was made.
    ///
    /// # Errors
    /// As for [`RankKeyPair::agree`].
    pub fn agree_across(self, cards: &[(&[u8], u32)]) -> Result<JobKeys, RuntimeError> {
        let (rank, ranks) = (self.rank, cards.len());
        let (own, _) = cards.get(rank.index()).ok_or(RuntimeError::RankOutside { rank, ranks })?;
        if *own != self.card() {
            return Err(RuntimeError::Card {
                rank,
                fault: "came back changed from the launcher's exchange",
            });
        }
        let pair =
            |(peer, (card, epoch)): (Rank, &(&[u8], u32))| self.read_pair(peer, *epoch, card);
        let pairs = (0..).map(Rank).zip(cards).map(pair).collect::<Result<_, _>>()?;
        let epochs = cards.iter().map(|(_, epoch)| *epoch).collect();
        Ok(JobKeys { own: self, pairs, epochs })
    }

    /// Returns what this rank shares with `peer`, whose card was made in `epoch`.
    fn read_pair(
        &self,
        peer: Rank,
        epoch: u32,
        card: &[u8],
    ) -> Result<DerivationSecret, RuntimeError> {
        let public = self.scope.read(peer, epoch, card)?;
        self.pair(peer, epoch, public)
            .ok_or(RuntimeError::Card { rank: peer, fault: "holds no usable key" })
    }

    fn pair(&self, peer: Rank, epoch: u32, public: &[u8]) -> Option<DerivationSecret> {
        let own = (self.rank, &self.exchange.public()[..]);
        let (low, high) =
            if peer < self.rank { ((peer, public), own) } else { (own, (peer, public)) };
        let epoch = self.scope.epoch.max(epoch).to_le_bytes();
        let session = self.scope.session.to_le_bytes();
        let ranks = [low.0.0.to_le_bytes(), high.0.0.to_le_bytes()].concat();
        let transcript = [b"clearway pair 1", &session[..], &epoch, &ranks, low.1, high.1];
        self.exchange.agree(public, self.scope.salt(), &transcript)
    }
}

/// What one rank shares with each other. Belongs to one wire, which counts the packets of each key.
pub struct JobKeys {
    own: RankKeyPair,
    /// By rank, this one's with itself included.
    pairs: Vec<DerivationSecret>,
    /// In which each rank's card was made.
    epochs: Vec<u32>,
}

/// The two directions between this rank and a peer, for one purpose.
#[derive(Debug)]
pub(crate) struct DuplexKeys {
    pub(crate) out: Cipher,
    pub(crate) into: Cipher,
}

/// A group's key.
#[derive(Debug)]
pub(crate) struct GroupKey {
    pub(crate) group: GroupId,
    /// Counts the keys of the group.
    pub(crate) epoch: u32,
    pub(crate) cipher: Cipher,
}

impl JobKeys {
    /// Returns the member that they were made for.
    pub(crate) fn member(&self) -> JobMember {
        JobMember { rank: self.own.rank, ranks: self.pairs.len(), session: self.own.scope.session }
    }

    /// Agrees anew with `peer`, which is another process now and made `card` in `epoch`; returns the
    /// keys for datagrams to and from it.
    ///
    /// # Errors
    /// [`RuntimeError::Card`]: it is wrong, or of no later epoch than the one before.
    pub(crate) fn renew(
        &mut self,
        peer: Rank,
        epoch: u32,
        card: &[u8],
    ) -> Result<DuplexKeys, RuntimeError> {
        let ranks = self.pairs.len();
        let outside = RuntimeError::RankOutside { rank: peer, ranks };
        let (Some(pair), Some(last)) =
            (self.pairs.get_mut(peer.index()), self.epochs.get_mut(peer.index()))
        else {
            return Err(outside);
        };
        if epoch <= *last {
            let fault = "is of no later epoch than the one before";
            return Err(RuntimeError::Card { rank: peer, fault });
        }
        *pair = self.own.read_pair(peer, epoch, card)?;
        *last = epoch;
        Ok(self.duplex(peer, &self.pairs[peer.index()], DATAGRAMS))
    }

    /// Returns the keys for datagrams to and from each rank.
    pub(crate) fn datagrams(&self) -> impl Iterator<Item = DuplexKeys> {
        (0..).map(Rank).zip(&self.pairs).map(|(peer, pair)| self.duplex(peer, pair, DATAGRAMS))
    }

    /// Returns the bytes with which this rank and each other prove themselves over a fabric: what
    /// this one shows, and what the other does. A party that is not one of the two cannot tell them
    /// from random ones.
    pub fn proofs<const N: usize>(&self) -> Vec<[[u8; N]; 2]> {
        let pairs = (0..).map(Rank).zip(&self.pairs);
        pairs
            .map(|(peer, pair)| self.directions(peer).map(|of| pair.bytes(&[b"clearway ofi", &of])))
            .collect()
    }

    /// Returns the directions from this rank to a peer, and back.
    fn directions(&self, peer: Rank) -> [[u8; 8]; 2] {
        [(self.own.rank, peer), (peer, self.own.rank)]
            .map(|(from, to)| (u64::from(to.0) << 32 | u64::from(from.0)).to_le_bytes())
    }

    fn duplex(&self, peer: Rank, pair: &DerivationSecret, purpose: &[u8]) -> DuplexKeys {
        let [out, into] =
            self.directions(peer).map(|direction| pair.cipher(&[purpose, &direction]));
        DuplexKeys { out, into }
    }

    fn group_duplex(&self, peer: Rank) -> Result<DuplexKeys, RuntimeError> {
        let pair = self.pairs.get(peer.index());
        let pair = pair.ok_or(RuntimeError::RankOutside { rank: peer, ranks: self.pairs.len() })?;
        Ok(self.duplex(peer, pair, b"clearway group"))
    }

    /// Makes a new random key for `group`; returns it and what to send to each of `members`, in
    /// their order.
    ///
    /// # Errors
    /// [`RuntimeError::RankOutside`]; [`RuntimeError::System`] on a system without randomness.
    pub(crate) fn make_group(
        &self,
        group: GroupId,
        epoch: u32,
        members: &[Rank],
    ) -> Result<(GroupKey, Vec<Vec<u8>>), RuntimeError> {
        let mut secret = Zeroizing::new([0; GROUP_SECRET_LENGTH]);
        cipher::fill_random(&mut *secret)?;
        let seal = |member: &Rank| {
            let mut nonce = [0; NONCE_LENGTH];
            cipher::fill_random(&mut nonce)?;
            let context = [&group.0.to_le_bytes()[..], &epoch.to_le_bytes()].concat();
            let mut bytes = Zeroizing::new(*secret);
            let tag = self
                .group_duplex(*member)?
                .out
                .seal(nonce, &context, &mut *bytes)
                .expect("32 bytes");
            Ok([&nonce[..], &context, &*bytes, &tag].concat())
        };
        let sealed = members.iter().map(seal).collect::<Result<_, RuntimeError>>()?;
        Ok((group_key(group, epoch, &secret), sealed))
    }

    /// Opens what `from` sealed for this rank; `None` when it is nothing of the kind.
    pub(crate) fn open_group(&self, from: Rank, sealed: &[u8]) -> Option<GroupKey> {
        let sealed: &[u8; SEALED_GROUP_LENGTH] = sealed.try_into().ok()?;
        let (nonce, rest) = sealed.split_first_chunk::<NONCE_LENGTH>()?;
        let (context, secret) = rest.split_first_chunk::<GROUP_CONTEXT_LENGTH>()?;
        let [g0, g1, epoch @ ..] = *context;
        let mut bytes = Zeroizing::new(secret.to_vec());
        let secret = self.group_duplex(from).ok()?.into.open(*nonce, context, &mut bytes)?;
        let secret: &[u8; GROUP_SECRET_LENGTH] = (&*secret).try_into().ok()?;
        Some(group_key(GroupId(u16::from_le_bytes([g0, g1])), u32::from_le_bytes(epoch), secret))
    }
}

fn group_key(group: GroupId, epoch: u32, secret: &[u8; GROUP_SECRET_LENGTH]) -> GroupKey {
    let context = [&b"clearway group datagrams"[..], &group.0.to_le_bytes(), &epoch.to_le_bytes()];
    GroupKey { group, epoch, cipher: DerivationSecret::new(secret).cipher(&context) }
}

impl fmt::Debug for JobSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobSecret(..)")
    }
}

impl fmt::Debug for RankKeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RankKeyPair({} of {:?})", self.rank, self.scope)
    }
}

impl fmt::Debug for JobKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobKeys({} of {} ranks)", self.own.rank, self.pairs.len())
    }
}

#[cfg(test)]
mod tests;
