//! A rank that dies in a simulated run, and how soon the others go on without it.

use std::str::FromStr;

use clearway_proto::base::Nanos;

use crate::scenario::Time;

/// A rank's death while a run is counted, written `RANK@TIME`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kill {
    pub(crate) rank: u32,
    /// After counting began.
    pub(crate) at: Nanos,
}

impl FromStr for Kill {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text} names no death; 40@2ms works: rank 40 dies 2 ms after counting began");
        let (rank, at) = text.split_once('@').ok_or_else(wrong)?;
        let at: Time = at.parse().map_err(|_| wrong())?;
        Ok(Self { rank: rank.parse().map_err(|_| wrong())?, at: at.0 })
    }
}

/// When the others knew of a death, since counting began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// The first of them.
    pub(super) first: Nanos,
    /// The last one: from then on everything that the dead rank had is dealt to others.
    pub(super) last: Nanos,
}

impl Known {
    /// One more knows, `at`.
    pub(super) fn and(known: Option<Self>, at: Nanos) -> Self {
        Self { first: known.map_or(at, |known| known.first.min(at)), last: at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kill__is_a_rank_and_a_time() {
        assert_eq!("40@2ms".parse(), Ok(Kill { rank: 40, at: Nanos(2_000_000) }));
        for text in ["40", "@2ms", "40@", "x@2ms", "40@2", "40@2ms@"] {
            assert!(text.parse::<Kill>().is_err(), "{text}");
        }
    }
}
