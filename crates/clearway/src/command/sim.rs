//! `clearway sim`: looks into runs of the simulator after the fact, by repeating them.

mod explain;
mod replay;

use anyhow::Result;

use super::SimCommand;
use crate::run::exit::Exit;

/// Does what `command` says.
pub(crate) fn command(command: SimCommand) -> Result<Exit> {
    match command {
        SimCommand::Explain { run, message } => explain::explain(&run, message.as_deref()),
        SimCommand::Replay { failure, until } => replay::replay(&failure, until),
    }
}
