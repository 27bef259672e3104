//! Flags of commands whose server sets the pace of its mounts.

use anyhow::{Result, bail};
use clap::Args;
use clearway_proto::base::BitsPerSec;
use clearway_proto::calls::PacerConfig;

use super::log_flags::positive_rate;

/// Whether mounts yield to small messages.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct YieldFlags {
    /// Slow mounts down while what they write in the classes bulk and scavenger delays small
    /// messages. RATE is that of the slowest link between them and the server, as in 10Gb/s
    /// [default: mounts write as fast as they can].
    #[arg(long = "yield", value_name = "RATE", value_parser = positive_rate)]
    link: Option<BitsPerSec>,
    /// With --yield, let all mounts together write at RATE in any case [default: 1 % of the link].
    #[arg(long = "yield-floor", value_name = "RATE", requires = "link")]
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
