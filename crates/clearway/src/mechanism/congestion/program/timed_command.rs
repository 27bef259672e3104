//! A congestor command in the middle of a phase of Clearway's own victims.
//!
//! # Invariants
//! I1. It is asked to end when the load's window does, and nothing of it is left when the victims'
//!     isolated time goes on: the
//!     pause of the windows is longer than the time that its guard gives it.

use anyhow::{Result, bail};
use clearway_proto::base::Nanos;

use super::group::ProgramGroup;
use crate::mechanism::congestion::windows::Windows;

/// The command and when it runs.
pub(crate) struct TimedCommand {
    group: ProgramGroup,
    windows: Windows,
    act: CommandStep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommandStep {
    Waiting,
    Loading,
    Ending,
    Over,
}

impl TimedCommand {
    /// Creates the timed command that runs `group` in the load's window of `windows`.
    pub(crate) fn new(group: ProgramGroup, windows: Windows) -> Self {
        Self { group, windows, act: CommandStep::Waiting }
    }

    /// Does what is due `elapsed` after the phase's beginning.
    pub(crate) fn step(&mut self, elapsed: Nanos) -> Result<()> {
        let grid = self.windows.grid;
        let [from, until, after] =
            [self.windows.load.from, self.windows.load.until, self.windows.after.from]
                .map(|slice| grid.slices(slice));
        match self.act {
            CommandStep::Waiting if elapsed >= from => {
                self.group.run_repeatedly()?;
                self.act = CommandStep::Loading;
            }
            CommandStep::Loading if elapsed >= until => {
                self.group.ask_to_stop()?;
                self.act = CommandStep::Ending;
            }
            CommandStep::Loading => self.group.check()?,
            CommandStep::Ending if self.group.is_over()? => self.act = CommandStep::Over,
            CommandStep::Ending if elapsed >= after => {
                bail!(
                    "{} does not end within {} s of being asked to, so nothing can be said about the time after it; use a command that ends on SIGTERM, or a less busy machine",
                    self.group.unfinished(),
                    (after - until).as_secs_f64()
                )
            }
            CommandStep::Waiting | CommandStep::Ending | CommandStep::Over => {}
        }
        Ok(())
    }
}
