//! Flags of commands whose server sets the pace of its mounts.

use anyhow::{Result, bail};
use clap::Args;
use clearway_proto::base::BitsPerSec;
use clearway_proto::calls::PacerConfig;

use super::log_flags::positive_rate;

/// Whether mounts yield to small messages.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct YieldFlags {
    /// Slow writes of the classes bulk and scavenger down while they delay small messages; the
    /// default class does not yield. RATE, as in 10Gb/s, is that of the server's link, and bounds
    /// all mounts together [default: no limit].
    #[arg(long = "yield", value_name = "RATE", allow_hyphen_values = true, value_parser = positive_rate)]
    link: Option<BitsPerSec>,
    /// With --yield, let these writes have RATE together in any case [default: 1 % of the link].
    #[arg(
        long = "yield-floor",
        value_name = "RATE",
        allow_hyphen_values = true,
        requires = "link"
    )]
    floor: Option<BitsPerSec>,
}

impl YieldFlags {
    /// Returns the pace of mounts, if there is one.
    ///
    /// # Errors
    /// One sentence: a floor above the link.
    pub(super) fn pace(&self) -> Result<Option<PacerConfig>> {
        let Some(link) = self.link else { return Ok(None) };
        let floor = self.floor.unwrap_or(BitsPerSec(0));
        if floor.0 > link.0 {
            bail!("--yield-floor {floor} is more than the link of --yield carries, {link}");
        }
        Ok(Some(PacerConfig { link, floor }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pace__a_floor_above_the_link_is_refused() {
        let pace = |link, floor| YieldFlags { link, floor }.pace();
        assert_eq!(pace(None, None).expect("none"), None);
        let config = PacerConfig { link: BitsPerSec(100), floor: BitsPerSec(100) };
        assert_eq!(pace(Some(config.link), Some(config.floor)).expect("a pace"), Some(config));
        assert!(pace(Some(BitsPerSec(100)), Some(BitsPerSec(101))).is_err());
    }
}
