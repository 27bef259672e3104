//! Names of streams, and tokens that say what an operation of ours was for.

use crate::base::{Class, Rank};
use crate::wire::{PathId, Token};

/// Bits of a token: fragment, rank, class, what for.
const NUMBER_BITS: u32 = 32;
const RANK_BITS: u32 = 24;

/// Which stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StreamKey {
    pub(super) peer: u32,
    pub(super) class: Class,
}

impl StreamKey {
    pub(super) const fn rank(self) -> Rank {
        Rank(self.peer)
    }
}

/// Paths that a token can tell apart; those behind them count as the last of these.
const PATHS_TOLD: u8 = 14;

/// What an operation of ours was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenPurpose {
    /// The digest of a fragment that is to leave.
    Read,
    /// The digest of a fragment that came.
    Check,
    /// A fragment that left on a path.
    Send(PathId),
}

impl TokenPurpose {
    const fn code(self) -> u64 {
        match self {
            Self::Read => 0,
            Self::Check => 1,
            Self::Send(PathId(path)) => {
                2 + if path < PATHS_TOLD { path } else { PATHS_TOLD - 1 } as u64
            }
        }
    }
}

/// Returns the token of an operation for fragment `number`.
pub(super) fn token(purpose: TokenPurpose, key: StreamKey, number: u64) -> Token {
    let low = number & ((1 << NUMBER_BITS) - 1);
    let class = key.class.index() as u64;
    Token(
        (purpose.code() << 4 | class) << (NUMBER_BITS + RANK_BITS)
            | u64::from(key.peer) << NUMBER_BITS
            | low,
    )
}

/// Returns what a token of ours says; the fragment by its low bits.
pub(super) fn meaning(token: Token) -> Option<(TokenPurpose, StreamKey, u32)> {
    let top = token.0 >> (NUMBER_BITS + RANK_BITS);
    let purpose = match top >> 4 {
        0 => TokenPurpose::Read,
        1 => TokenPurpose::Check,
        path @ 2..16 => TokenPurpose::Send(PathId(path as u8 - 2)),
        _ => return None,
    };
    let class = *Class::ALL.get((top & 15) as usize)?;
    let peer = (token.0 >> NUMBER_BITS) as u32 & ((1 << RANK_BITS) - 1);
    Some((purpose, StreamKey { peer, class }, token.0 as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meaning__is_what_the_token_was_made_of() {
        let key = StreamKey { peer: (1 << RANK_BITS) - 1, class: Class::Bulk };
        for purpose in [
            TokenPurpose::Read,
            TokenPurpose::Check,
            TokenPurpose::Send(PathId(0)),
            TokenPurpose::Send(PathId(13)),
        ] {
            assert_eq!(meaning(token(purpose, key, 7 << NUMBER_BITS | 9)), Some((purpose, key, 9)));
        }
        assert_eq!(
            meaning(token(TokenPurpose::Send(PathId(200)), key, 0)),
            Some((TokenPurpose::Send(PathId(13)), key, 0))
        );
        assert_eq!(meaning(Token(u64::MAX)), None);
    }
}
