//! When congestors send: all the time, or in bursts.
//!
//! # Source
//! Published sweeps over bursty congestors vary the length of a burst, the pause behind it and the
//! rate within it (arXiv 2604.11432). The rate is the test's intensity.

use std::fmt;
use std::str::FromStr;

use clearway_proto::congestion::Burst;
use serde::{Deserialize, Serialize};

use crate::scenario::Time;

/// Bursts as a scenario writes them: `10ms/90ms`, or `steady`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum Bursts {
    /// None but those of the pattern `burst`.
    #[default]
    Steady,
    /// This long, and then a pause.
    Of { length: Time, pause: Time },
}

impl Bursts {
    /// Returns them as an engine has them.
    pub(crate) fn engine(self) -> Option<Burst> {
        match self {
            Self::Steady => None,
            Self::Of { length, pause } => Some(Burst { on: length.0, period: length.0 + pause.0 }),
        }
    }
}

impl FromStr for Bursts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "steady" {
            return Ok(Self::Steady);
        }
        let refuse = || {
            format!(
                "`{text}` are no bursts: steady works, or the length of a burst and the pause behind it, as in 10ms/90ms"
            )
        };
        let (length, pause) = text.split_once('/').ok_or_else(refuse)?;
        let [length, pause] = [length, pause].map(|time| time.parse::<Time>().ok());
        let (length, pause) = length.zip(pause).ok_or_else(refuse)?;
        let fits = length.0.0 > 0 && pause.0.0 > 0;
        let sum = length.0.0.checked_add(pause.0.0);
        if fits && sum.is_some() { Ok(Self::Of { length, pause }) } else { Err(refuse()) }
    }
}

impl TryFrom<String> for Bursts {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Bursts> for String {
    fn from(bursts: Bursts) -> Self {
        bursts.to_string()
    }
}

impl fmt::Display for Bursts {
    /// Writes what reads back the same.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steady => f.write_str("steady"),
            Self::Of { length, pause } => write!(f, "{length}/{pause}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use clearway_proto::base::Nanos;

    use super::*;

    #[test]
    fn bursts__read_what_they_write_and_nothing_else() {
        for text in ["steady", "10ms/90ms", "20us/1500ns", "2s/1s"] {
            assert_eq!(text.parse::<Bursts>().expect(text).to_string(), text);
        }
        let burst = "10ms/90ms".parse::<Bursts>().expect("bursts").engine().expect("no load");
        assert_eq!((burst.on, burst.period), (Nanos::from_millis(10), Nanos::from_millis(100)));
        let most = format!("{0}ns/{0}ns", u64::MAX);
        for text in ["", "10ms", "10ms/", "0ms/90ms", "10ms/0s", "10/90", "1ms/2ms/3ms", &most] {
            let why = text.parse::<Bursts>().expect_err(text);
            assert!(why.contains("10ms/90ms"), "{why}");
        }
    }
}
