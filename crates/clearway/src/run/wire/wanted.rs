//! What the user wants ranks to talk over: the words of `--wire`.

use anyhow::{Result, bail};
use clap::ValueEnum;

use super::Far;
use crate::run::engine::Measure;

/// A word of `--wire`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WireName {
    /// Shared memory within a host; between hosts libfabric if it has a fabric of its own, else sealed UDP.
    Auto,
    /// UDP between all ranks, also those of one host.
    Udp,
    /// Shared memory between ranks of one host; name udp, ofi or both as well for those of several.
    Shm,
    /// libfabric between all ranks, also those of one host; with udp beside it, messages take either, and one goes on when the other fails.
    Ofi,
}

/// Whether ranks of one host share memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Near {
    Never,
    WherePossible,
    Always,
}

/// What the user wants ranks to talk over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) near: Near,
    pub(crate) far: Far,
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
        if names.is_empty() || names == [Auto] {
            return Ok(Self::AUTO);
        }
        let count = |name| names.iter().filter(|given| **given == name).count();
        let far = match [Auto, Udp, Ofi, Shm].map(count) {
            [0, 0, 0, 1] => Far::Nothing,
            [0, 1, 0, 0 | 1] => Far::Udp,
            [0, 0, 1, 0 | 1] => Far::Ofi,
            [0, 1, 1, 0 | 1] => Far::Both,
            _ => bail!(
                "--wire takes auto, or some of shm, udp and ofi: shm,ofi for memory within a host and libfabric between hosts, \
                 ofi,udp for both between hosts, one of which goes on when the other fails"
            ),
        };
        Ok(Self { near: if count(Shm) == 1 { Near::Always } else { Near::Never }, far })
    }

    /// What ranks of a laboratory talk over for `measure`: UDP, whose packets queues see one by one; where one-sided writes are needed
    /// libfabric, unless UDP is wanted, which then becomes reliable.
    ///
    /// # Errors
    /// Shared memory is wanted, and each rank has a host of its own.
    pub(crate) fn in_lab(self, measure: Measure) -> Result<Far> {
        match (self.far, measure) {
            (Far::Nothing, _) => bail!("hosts of a lab share no memory; --wire takes udp or ofi there"),
            (Far::Udp, _) | (Far::Best, Measure::Broadcast) | (_, Measure::Congestion | Measure::Gpcnet) => {
                Ok(Far::Udp)
            }
            (Far::Ofi | Far::Best, Measure::Timeslice) | (Far::Ofi, Measure::Broadcast) => Ok(Far::Ofi),
            (Far::Both, Measure::Timeslice | Measure::Broadcast) => Ok(Far::Both),
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
        assert_eq!(Wanted::of(&[Udp, Ofi]).ok(), Some(Wanted { near: Near::Never, far: Far::Both }));
        assert_eq!(Wanted::of(&[Ofi, Shm, Udp]).ok(), Some(Wanted { near: Near::Always, far: Far::Both }));
        for names in [&[Auto, Shm][..], &[Shm, Shm], &[Udp, Udp], &[Ofi, Udp, Ofi]] {
            let said = Wanted::of(names).expect_err("no meaning").to_string();
            assert!(said.contains("ofi,udp for both between hosts"), "{said}");
        }
    }
}
