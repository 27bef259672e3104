//! Placeholder that tells the machine's abilities.
use crate::command::Exit;
use anyhow::Result;

/// x
pub(crate) fn command() -> Result<Exit> {
    Ok(Exit::Good)
}
