//! Standard output, whose reader may have seen enough.

use std::io::{self, Write};

use anyhow::{Context, Result};

/// Prints `text`. A reader that closed its end has seen enough.
pub(crate) fn print(text: &str) -> Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot print"),
    }
}
