//! The known defects of the published benchmark, each of which can be mended or kept.
//!
//! # Model
//! A set of defects that are mended; what is not in it happens as published. Every run prints the
//! set, so that no figure stands without saying how it came about.
//!
//! # Source
//! GPCNeT v1.3, read and run; what each defect does to a figure stands in `docs/gpcnet.md`.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// Something in the published benchmark that misleads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// The shuffle makes one cycle, so that many orders never come.
    Shuffle,
    /// After its time is over a test goes on agreeing, once for each measurement that it will not
    /// make.
    IdleTurns,
    /// The time is looked at between measurements of 30 rings only.
    LongMeasurements,
    /// Quantiles are read from 100,000 equal steps between the extremes, so that one outlier blurs
    /// all of them.
    EqualSteps,
    /// Min and Max are those of means over rings, so that quantiles can lie outside them.
    RingExtremes,
    /// Impact factors are ratios of figures that were rounded for print.
    RoundedImpact,
    /// Large groups make less passes of every congestor but the get broadcast.
    UnscaledBroadcast,
    /// A sender of the two-sided incast is timed until its own side took the message, not until it
    /// arrived.
    EagerIncast,
    /// Congestors are measured before the victims begin, never next to them.
    EarlyFigures,
}

impl Defect {
    /// All of them, in the order of the documentation.
    pub const ALL: [Self; 9] = [
        Self::Shuffle,
        Self::IdleTurns,
        Self::LongMeasurements,
        Self::EqualSteps,
        Self::RingExtremes,
        Self::RoundedImpact,
        Self::UnscaledBroadcast,
        Self::EagerIncast,
        Self::EarlyFigures,
    ];

    /// Returns the name on the command line and under the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shuffle => "shuffle",
            Self::IdleTurns => "idle-turns",
            Self::LongMeasurements => "long-measurements",
            Self::EqualSteps => "equal-steps",
            Self::RingExtremes => "ring-extremes",
            Self::RoundedImpact => "rounded-impact",
            Self::UnscaledBroadcast => "unscaled-broadcast",
            Self::EagerIncast => "eager-incast",
            Self::EarlyFigures => "early-figures",
        }
    }
}

/// No defect has this name; prints as a sentence that lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownDefect;

impl fmt::Display for UnknownDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = Defect::ALL.map(Defect::name).into();
        write!(f, "not a known defect; there are {}", names.join(", "))
    }
}

impl core::error::Error for UnknownDefect {}

impl FromStr for Defect {
    type Err = UnknownDefect;

    fn from_str(text: &str) -> Result<Self, UnknownDefect> {
        Self::ALL.into_iter().find(|defect| defect.name() == text).ok_or(UnknownDefect)
    }
}

/// The defects that are mended in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CorrectedDefects(u16);

impl CorrectedDefects {
    /// As published.
    pub const NONE: Self = Self(0);
    /// As it should be.
    pub const ALL: Self = Self((1 << Defect::ALL.len()) - 1);

    /// Returns this set without `defect`, which then happens as published.
    #[must_use]
    pub const fn without(self, defect: Defect) -> Self {
        Self(self.0 & !(1 << defect as u16))
    }

    /// Returns whether `defect` is mended.
    pub const fn has(self, defect: Defect) -> bool {
        self.0 & (1 << defect as u16) != 0
    }
}

impl fmt::Display for CorrectedDefects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |mended: bool| -> String {
            let names: Vec<&str> = Defect::ALL
                .into_iter()
                .filter(|defect| self.has(*defect) == mended)
                .map(Defect::name)
                .collect();
            if names.is_empty() { "nothing".into() } else { names.join(", ") }
        };
        write!(f, "mended: {}; as published: {}", names(true), names(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn mended__says_what_is_and_what_is_not() {
        assert!(
            CorrectedDefects::NONE
                .to_string()
                .starts_with("mended: nothing; as published: shuffle, idle-turns")
        );
        let one_kept = CorrectedDefects::ALL.without(Defect::EqualSteps);
        assert!(one_kept.to_string().ends_with("as published: equal-steps"));
        assert!(
            Defect::ALL
                .into_iter()
                .all(|defect| CorrectedDefects::ALL.has(defect)
                    && !CorrectedDefects::NONE.has(defect))
        );
    }

    #[test]
    fn defect__is_known_by_its_name_only() {
        for defect in Defect::ALL {
            assert_eq!(defect.name().parse(), Ok(defect));
        }
        assert_eq!("typo".parse::<Defect>(), Err(UnknownDefect));
        assert!(UnknownDefect.to_string().contains("eager-incast"));
    }
}
