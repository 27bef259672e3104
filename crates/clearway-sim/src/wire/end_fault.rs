//! What is wrong with one rank's end of the wire at the moment, and how the end behaves then.

use serde::{Deserialize, Serialize};

use crate::spec::figure::picos;
use crate::time::Picos;

/// How an interface reports the end of operations that ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Completion {
    /// As failed.
    Error,
    /// Late.
    Late(#[serde(with = "picos")] Picos),
    /// Not at all.
    Never,
}

/// What is wrong with an end now; sound by default.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EndFault {
    /// How operations end.
    pub(crate) completions: Option<Completion>,
    /// Messages that a transmit queue holds; none when it takes nothing.
    pub(crate) queue_messages: Option<u32>,
    /// How late the driver is woken.
    pub(crate) late: Picos,
}
