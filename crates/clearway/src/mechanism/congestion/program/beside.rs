//! A congestor command in the middle of a phase of Clearway's own victims.
//!
//! # Invariants
//! I1. It is asked to end when the load's window does, and nothing of it is left when the victims' isolated time goes on: the
//!     pause of the windows is longer than the time that its guard gives it.

use anyhow::{Result, bail};
use clearway_proto::base::Nanos;

use super::troupe::Troupe;
use crate::mechanism::congestion::windows::Windows;

/// The command and when it runs.
pub(crate) struct Beside {
    troupe: Troupe,
    windows: Windows,
    act: Act,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Waiting,
    Loading,
    Ending,
    Over,
}

impl Beside {
    /// `troupe` in the load's window of `windows`.
    pub(crate) fn new(troupe: Troupe, windows: Windows) -> Self {
        Self { troupe, windows, act: Act::Waiting }
    }

    /// Does what is due `elapsed` after the phase's beginning.
    pub(crate) fn step(&mut self, elapsed: Nanos) -> Result<()> {
        let grid = self.windows.grid;
        let [from, until, after] =
            [self.windows.load.from, self.windows.load.until, self.windows.after.from].map(|slice| grid.slices(slice));
        match self.act {
            Act::Waiting if elapsed >= from => {
                self.troupe.keep_up()?;
                self.act = Act::Loading;
            }
            Act::Loading if elapsed >= until => {
                self.troupe.ask_to_stop()?;
                self.act = Act::Ending;
            }
            Act::Loading => self.troupe.check()?,
            Act::Ending if self.troupe.is_over()? => self.act = Act::Over,
            Act::Ending if elapsed >= after => {
                bail!(
                    "the congestor command does not end when it is told to, so nothing can be said about the time after it"
                )
            }
            Act::Waiting | Act::Ending | Act::Over => {}
        }
        Ok(())
    }
}
