//! What a command prints: figures as JSON, and standard output, whose reader may have seen enough.

use std::io::{self, IsTerminal, Write};

use anyhow::{Context, Result};
use serde::Serialize;

use super::erase_line;
use crate::report::numerals::fold;
use crate::report::terminal::WIDTH;

/// Writes `value` as lines of JSON.
///
/// # Errors
/// JSON cannot hold it: a key of a map is no text.
pub(crate) fn json_text(value: &(impl Serialize + ?Sized)) -> Result<String> {
    Ok(serde_json::to_string_pretty(value).context("a result that JSON cannot hold")? + "\n")
}

/// Returns `page` for standard output: on a terminal folded to [`WIDTH`] characters, elsewhere
/// unchanged, because programs search it line by line.
pub(crate) fn for_output(page: &str) -> String {
    if io::stdout().is_terminal() { fold(page, WIDTH) } else { page.to_owned() }
}

/// Prints `text`. A reader that closed its end has seen enough.
pub(crate) fn print(text: &str) -> Result<()> {
    erase_line();
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot print"),
    }
}
