//! Names of streams, and tokens that say what an operation of ours was for.

use crate::base::{Class, Rank};
use crate::wire::Token;

/// Bits of a token: fragment, rank, class, what for.
const NUMBER_BITS: u32 = 32;
const RANK_BITS: u32 = 24;

/// Which stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) peer: u32,
    pub(super) class: Class,
}

impl Key {
    pub(super) const fn rank(self) -> Rank {
        Rank(self.peer)
    }
}

/// What an operation of ours was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The digest of a fragment that is to leave.
    Read,
    /// A fragment that left.
    Send,
    /// The digest of a fragment that came.
    Check,
}

/// The token of an operation for fragment `number`.
pub(super) fn token(purpose: Purpose, key: Key, number: u64) -> Token {
    let low = number & ((1 << NUMBER_BITS) - 1);
    let class = key.class.index() as u64;
    Token(((purpose as u64) << 4 | class) << (NUMBER_BITS + RANK_BITS) | u64::from(key.peer) << NUMBER_BITS | low)
}

/// What a token of ours says; the fragment by its low bits.
pub(super) fn meaning(token: Token) -> Option<(Purpose, Key, u32)> {
    let top = token.0 >> (NUMBER_BITS + RANK_BITS);
    let purpose = match top >> 4 {
        0 => Purpose::Read,
        1 => Purpose::Send,
        2 => Purpose::Check,
        _ => return None,
    };
    let class = *Class::ALL.get((top & 15) as usize)?;
    let peer = (token.0 >> NUMBER_BITS) as u32 & ((1 << RANK_BITS) - 1);
    Some((purpose, Key { peer, class }, token.0 as u32))
}
