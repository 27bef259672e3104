//! What a command prints: figures as JSON, and standard output, whose reader may have seen enough.

use std::io::{self, Write};

use anyhow::{Context, Result};
use serde::Serialize;

use super::erase_line;

/// Writes `value` as lines of JSON.
///
/// # Errors
/// JSON cannot hold it: a key of a map is no text.
pub(crate) fn json_text(value: &(impl Serialize + ?Sized)) -> Result<String> {
    Ok(serde_json::to_string_pretty(value).context("a result that JSON cannot hold")? + "\n")
}

/// Prints `text`. A reader that closed its end has seen enough.
pub(crate) fn print(text: &str) -> Result<()> {
    erase_line();
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot print"),
    }
}
