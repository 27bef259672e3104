//! What the user wants ranks to talk over: the words of `--wire`.

use anyhow::{Result, bail};
use clap::ValueEnum;

use super::Far;
use crate::bench::engine::Measure;

/// A word of `--wire`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WireName {
    /// Shared memory within a host; between hosts libfabric if it has a fabric of its own, else sealed UDP.
    Auto,
    /// UDP between all ranks, also those of one host.
    Udp,
    /// Shared memory between ranks of one host; name udp or ofi as well for those of several.
    Shm,
    /// libfabric between all ranks, also those of one host.
    Ofi,
}

/// Whether ranks of one host share memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Near {
    Never,
    WherePossible,
    Always,
}

/// What the user wants ranks to talk over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(super) near: Near,
    pub(super) far: Far,
}

impl Wanted {
    /// What suits.
    pub(crate) const AUTO: Self = Self { near: Near::WherePossible, far: Far::Best };

    /// What `names` mean together; none means `auto`.
    ///
    /// # Errors
    /// Words that do not go together.
    pub(crate) fn of(names: &[WireName]) -> Result<Self> {
        use WireName::{Auto, Ofi, Shm, Udp};
        let (near, far) = match names {
            [] | [Auto] => return Ok(Self::AUTO),
            [Udp] => (Near::Never, Far::Udp),
            [Ofi] => (Near::Never, Far::Ofi),
            [Shm] => (Near::Always, Far::Nothing),
            [Shm, Udp] | [Udp, Shm] => (Near::Always, Far::Udp),
            [Shm, Ofi] | [Ofi, Shm] => (Near::Always, Far::Ofi),
            _ => bail!("--wire takes one of auto, udp, shm and ofi, or shm with udp or ofi, as in --wire shm,ofi"),
        };
        Ok(Self { near, far })
    }

    /// What ranks of a laboratory talk over for `measure`: UDP, whose packets queues see one by one; where one-sided writes are needed
    /// libfabric, unless UDP is wanted, which then becomes reliable.
    ///
    /// # Errors
    /// Shared memory is wanted, and each rank has a host of its own.
    pub(in crate::bench) fn in_lab(self, measure: Measure) -> Result<Far> {
        match (self.far, measure) {
            (Far::Nothing, _) => bail!("hosts of a lab share no memory; --wire takes udp or ofi there"),
            (Far::Udp, _) | (Far::Best, Measure::Broadcast) | (_, Measure::Congestion | Measure::Gpcnet) => {
                Ok(Far::Udp)
            }
            (Far::Ofi | Far::Best, Measure::Timeslice) | (Far::Ofi, Measure::Broadcast) => Ok(Far::Ofi),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of__words_that_do_not_go_together_are_refused() {
        use WireName::{Auto, Ofi, Shm, Udp};
        assert_eq!(Wanted::of(&[]).ok(), Wanted::of(&[Auto]).ok());
        assert_eq!(Wanted::of(&[Shm, Ofi]).ok(), Some(Wanted { near: Near::Always, far: Far::Ofi }));
        for names in [&[Udp, Ofi][..], &[Auto, Shm], &[Shm, Shm], &[Shm, Udp, Ofi]] {
            let said = Wanted::of(names).expect_err("no meaning").to_string();
            assert!(said.contains("as in --wire shm,ofi"), "{said}");
        }
    }
}
