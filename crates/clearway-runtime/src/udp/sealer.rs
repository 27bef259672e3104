//! Seals every datagram for whom it is meant, and opens only what a member of the job sealed for
//! this end, once.
//!
//! # Model
//! Each pair of ranks has one key for each direction, each multicast group one key. A sender counts
//! its messages for each key, class and rail; rank, class, rail and number are the nonce, travel in
//! the clear, and are covered by the tag together with the rest of the frame. A datagram is sealed
//! on its own, so that a run of them can leave as one segmented packet and any of them can be lost.
//!
//! # Source
//! AES-GCM needs nonces that never repeat (NIST SP 800-38D, 8). Its advantage against
//! distinguishing grows with the square of the blocks under one key: [`NUMBERS_MAX`] of five
//! classes on four rails with 92 blocks each are below 2^46 blocks, and 2^92 / 2^129 is below the
//! 2^-32 that the standard asks for.
//!
//! # Invariants
//! I1. A number is used once: what found no room in a socket is sealed again under a new one.
//! I2. Nothing in a datagram is believed before its tag fits; until then only its frame is looked
//!     at.
//! I3. What was sent on one rail is taken on that rail only.
//! I4. Packets under one key have numbers of their own; with new keys they begin anew.
//! I5. Memory is set by the numbers of ranks and groups. Strangers cannot make it grow.

use std::collections::BTreeMap;
use std::ops::Range;

use clearway_proto::base::{Class, GroupId, Rank};
use clearway_proto::wire::{Destination, OperationKind, PathId, RefusalReason};

use super::frame::{self, SealedFrame};
use super::receive::SocketOrigin;
use super::window::ReplayWindow;
use crate::keys::{Cipher, DuplexKeys, GroupKey, JobKeys, NONCE_LENGTH, TAG_LENGTH};
use crate::{JobMember, RuntimeError};

/// Messages of one class and rail under one key: 50 TB of full datagrams; then a wire refuses to
/// send, and a new epoch is due.
const NUMBERS_MAX: u64 = 1 << 35;

/// Datagrams that are copied together and then sealed together. A cipher begins by waiting until
/// the processor's earlier stores are done, which right behind a copy takes 40 ns (measured); 16
/// full ones still lie in its first-level cache then.
const STAGED_MAX: usize = 16;

/// Classes have numbers and windows of their own, by [`Class::index`].
type ByClass<T> = [T; Class::ALL.len()];

/// The numbers of one key's messages on one rail.
#[derive(Debug, Default)]
struct SequenceNumbers(ByClass<u64>);

impl SequenceNumbers {
    /// Returns the next number of `class`; `None` when the key is used up.
    fn next(&mut self, class: Class) -> Option<u64> {
        let next = &mut self.0[class.index()];
        let number = *next;
        (number < NUMBERS_MAX).then(|| {
            *next += 1;
            number
        })
    }
}

/// A peer's keys, and what was sent and received under them on each rail: rails overtake each other
/// as classes do.
#[derive(Debug)]
struct PairState {
    keys: DuplexKeys,
    rails: Box<[(SequenceNumbers, ByClass<ReplayWindow>)]>,
}

impl PairState {
    fn new(keys: DuplexKeys, rails: usize) -> Self {
        Self { keys, rails: (0..rails).map(|_| Default::default()).collect() }
    }
}

/// A group's key, own numbers, and windows by rank of the sender.
#[derive(Debug)]
struct GroupState {
    key: GroupKey,
    numbers: SequenceNumbers,
    windows: Vec<ByClass<ReplayWindow>>,
}

impl GroupState {
    fn new(key: GroupKey, ranks: usize) -> Self {
        Self { key, numbers: SequenceNumbers::default(), windows: vec![ByClass::default(); ranks] }
    }
}

/// A datagram that lies in the staging bytes as it is.
#[derive(Debug)]
struct StagedDatagram {
    to: Destination,
    nonce: [u8; NONCE_LENGTH],
    place: Range<usize>,
}

/// The keys of a wire, and what was sent and received under them.
#[derive(Debug)]
pub(super) struct DatagramSealer {
    keys: JobKeys,
    pairs: Vec<PairState>,
    groups: BTreeMap<GroupId, GroupState>,
    /// Not sealed yet.
    staged: Vec<StagedDatagram>,
    /// Genuine datagrams that came before: repeated by the network or by an attacker.
    pub(super) replayed: u64,
}

impl DatagramSealer {
    pub(super) fn new(keys: JobKeys, rails: usize) -> Self {
        let pairs = keys.datagrams().map(|keys| PairState::new(keys, rails)).collect();
        Self {
            pairs,
            keys,
            groups: BTreeMap::new(),
            staged: Vec::with_capacity(STAGED_MAX),
            replayed: 0,
        }
    }

    /// Puts a datagram that is to be sealed behind what is in `staging`: the frame, `head` and
    /// `body` as they are, room for the tag. Its number is used up.
    pub(super) fn stage(
        &mut self,
        to: Destination,
        path: PathId,
        class: Class,
        [head, body]: [&[u8]; 2],
        staging: &mut Vec<u8>,
    ) -> Result<(), RefusalReason> {
        let (numbers, kind) = match to {
            Destination::One(rank) => {
                let pair = self.pairs.get_mut(rank.index()).ok_or(RefusalReason::Rank)?;
                (
                    &mut pair.rails.get_mut(usize::from(path.0)).ok_or(RefusalReason::Path)?.0,
                    OperationKind::Send,
                )
            }
            Destination::Group(group) => (
                &mut self.groups.get_mut(&group).ok_or(RefusalReason::Group)?.numbers,
                OperationKind::Multicast,
            ),
        };
        let head_length = u8::try_from(head.len()).map_err(|_| RefusalReason::Length)?;
        let number = numbers.next(class).ok_or(RefusalReason::Operation(kind))?;
        let JobMember { rank, session, .. } = self.keys.member();
        let frame = SealedFrame { from: rank, head_length, class, rail: path, number };
        let start = staging.len();
        staging.reserve(frame::SEALED_OVERHEAD + head.len() + body.len());
        staging.extend_from_slice(&frame.write(session));
        staging.extend_from_slice(head);
        staging.extend_from_slice(body);
        staging.extend_from_slice(&[0; TAG_LENGTH]);
        self.staged.push(StagedDatagram { to, nonce: frame.nonce(), place: start..staging.len() });
        if self.staged.len() == STAGED_MAX {
            self.seal(staging);
        }
        Ok(())
    }

    /// Seals what was staged since, in its place. Nothing leaves before.
    ///
    /// # Panics
    /// Never: what was staged has a key and the length of a packet.
    pub(super) fn seal(&mut self, staging: &mut [u8]) {
        for StagedDatagram { to, nonce, place } in self.staged.drain(..) {
            let cipher = match to {
                Destination::One(rank) => self.pairs.get(rank.index()).map(|pair| &pair.keys.out),
                Destination::Group(group) => self.groups.get(&group).map(|group| &group.key.cipher),
            };
            let (header, rest) = staging[place].split_at_mut(frame::SEALED_LENGTH);
            let (bytes, tag) = rest.split_at_mut(rest.len() - TAG_LENGTH);
            let made = cipher.and_then(|cipher| cipher.seal(nonce, header, bytes));
            tag.copy_from_slice(&made.expect("a staged datagram can be sealed"));
        }
    }

    /// Opens a datagram in place, whose frame says `sealed`; `None` when no member sealed it for
    /// this end, or it came before.
    pub(super) fn open(
        &mut self,
        sealed: &SealedFrame,
        datagram: &mut [u8],
        origin: SocketOrigin,
    ) -> Option<()> {
        if sealed.rail != origin.path() {
            return None;
        }
        let (cipher, windows) = self.receiving(sealed.from, origin)?;
        let window = &mut windows[sealed.class.index()];
        let fresh = window.is_fresh(sealed.number);
        let (header, bytes) = datagram.split_at_mut_checked(frame::SEALED_LENGTH)?;
        // A replay is opened as well, so that only genuine ones are counted as such.
        cipher.open(sealed.nonce(), header, bytes)?;
        if fresh {
            window.mark(sealed.number);
        } else {
            self.replayed += 1;
        }
        fresh.then_some(())
    }

    fn receiving(
        &mut self,
        from: Rank,
        origin: SocketOrigin,
    ) -> Option<(&Cipher, &mut ByClass<ReplayWindow>)> {
        match origin {
            SocketOrigin::Port(rail) => {
                let pair = self.pairs.get_mut(from.index())?;
                Some((&pair.keys.into, &mut pair.rails.get_mut(usize::from(rail.0))?.1))
            }
            SocketOrigin::Group(group) => {
                let group = self.groups.get_mut(&group)?;
                Some((&group.key.cipher, group.windows.get_mut(from.index())?))
            }
        }
    }

    /// Makes new keys with `peer`, which is another process now and made `card` in `epoch`.
    pub(super) fn renew_peer(
        &mut self,
        peer: Rank,
        epoch: u32,
        card: &[u8],
    ) -> Result<(), RuntimeError> {
        let keys = self.keys.renew(peer, epoch, card)?;
        if let Some(pair) = self.pairs.get_mut(peer.index()) {
            *pair = PairState::new(keys, pair.rails.len());
        }
        Ok(())
    }

    /// Gives `group` a new random key, and returns what to send to each of `members`, in their
    /// order.
    pub(super) fn renew_group(
        &mut self,
        group: GroupId,
        members: &[Rank],
    ) -> Result<Vec<Vec<u8>>, RuntimeError> {
        let epoch = self.groups.get(&group).map_or(0, |old| old.key.epoch.saturating_add(1));
        let (key, sealed) = self.keys.make_group(group, epoch, members)?;
        self.groups.insert(group, GroupState::new(key, self.pairs.len()));
        Ok(sealed)
    }

    /// Takes the key that `from` sealed for this end.
    pub(super) fn accept_group(
        &mut self,
        from: Rank,
        sealed: &[u8],
    ) -> Result<GroupId, RuntimeError> {
        let key = self.keys.open_group(from, sealed);
        let is_newer = |key: &GroupKey| {
            self.groups.get(&key.group).is_none_or(|old| old.key.epoch < key.epoch)
        };
        let key = key.filter(is_newer).ok_or(RuntimeError::GroupKey { from })?;
        let group = key.group;
        self.groups.insert(group, GroupState::new(key, self.pairs.len()));
        Ok(group)
    }
}

#[cfg(test)]
mod tests;
