//! Writes and reads the lines of PMI-1.
//!
//! # Invariants
//! I1. Any bytes give a reply or an error, never a panic, in memory proportional to one line.

use super::super::LaunchError;
use super::METHOD;

/// Longest line taken from a launcher: four times what it says that it sends (1024), the rest is
/// not PMI.
pub(super) const LINE_MAX: usize = 4096;

/// An answer of the launcher.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pmi1Reply<'a> {
    command: &'a str,
    line: &'a str,
}

impl<'a> Pmi1Reply<'a> {
    /// Reads a line, with or without its end.
    pub(super) fn parse(line: &'a [u8]) -> Result<Self, LaunchError> {
        let text = std::str::from_utf8(line).ok().filter(|text| text.len() <= LINE_MAX);
        let reply = text.and_then(|text| {
            let line = text.trim_end_matches(['\n', '\r', '\0', ' ']);
            Some(Self { command: field(line, "cmd")?, line })
        });
        reply.ok_or_else(|| {
            refused(format!("the launcher sent a line without `cmd=`: {}", shown(line)))
        })
    }

    /// Returns this reply, if it answers with `command` and reports no failure.
    pub(super) fn expect(self, command: &'static str) -> Result<Self, LaunchError> {
        let code = self.field("rc").unwrap_or("0");
        if self.command != command || code != "0" {
            return Err(refused(format!(
                "expected `{command}`, but the launcher sent {}",
                shown(self.line.as_bytes())
            )));
        }
        Ok(self)
    }

    /// Returns the value of `name`.
    pub(super) fn field(&self, name: &str) -> Option<&'a str> {
        field(self.line, name)
    }

    /// Returns the value of `name`, which must be there.
    pub(super) fn needed(&self, name: &'static str) -> Result<&'a str, LaunchError> {
        self.field(name).ok_or_else(|| {
            refused(format!("`{name}` is missing in {}", shown(self.line.as_bytes())))
        })
    }

    /// Returns the number in `name`, which must be there.
    pub(super) fn number(&self, name: &'static str) -> Result<usize, LaunchError> {
        let text = self.needed(name)?;
        text.parse()
            .map_err(|_| refused(format!("`{name}={}` is no number", shown(text.as_bytes()))))
    }
}

/// Returns a line that asks for `command` with `fields`; no value holds a space or an end of line.
pub(super) fn request(command: &str, fields: &[(&str, &str)]) -> String {
    let mut line = format!("cmd={command}");
    for (name, value) in fields {
        assert!(!value.contains([' ', '\n', '\r']), "PMI-1 has no way to quote");
        line.push(' ');
        line.push_str(name);
        line.push('=');
        line.push_str(value);
    }
    line.push('\n');
    line
}

/// Returns an error in the name of this method.
pub(super) fn refused(what: String) -> LaunchError {
    LaunchError::Launcher { method: METHOD, what }
}

fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// Returns the beginning of a line, for a person.
fn shown(line: &[u8]) -> String {
    let start = line.get(..80).unwrap_or(line);
    format!("`{}`", start.escape_ascii())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn request__is_one_line_of_pairs() {
        assert_eq!(
            request("init", &[("pmi_version", "1"), ("pmi_subversion", "1")]),
            "cmd=init pmi_version=1 pmi_subversion=1\n"
        );
        assert_eq!(request("barrier_in", &[]), "cmd=barrier_in\n");
    }

    #[test]
    fn reply__fields_are_found_by_their_whole_name() {
        let reply =
            Pmi1Reply::parse(b"cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n").unwrap();
        let reply = reply.expect("maxes").unwrap();
        assert_eq!(reply.number("vallen_max").unwrap(), 1024);
        assert_eq!(reply.field("max"), None);
        assert!(reply.needed("rc").is_err());
    }

    #[test]
    fn reply__an_error_code_or_another_command_is_refused() {
        let parse = |line: &'static [u8]| Pmi1Reply::parse(line).unwrap();
        assert!(
            parse(b"cmd=get_result rc=-1 msg=key_not_found value=unknown\n")
                .expect("get_result")
                .is_err()
        );
        assert!(parse(b"cmd=put_result rc=0 msg=success\n").expect("get_result").is_err());
        assert!(parse(b"cmd=put_result rc=0 msg=success\n").expect("put_result").is_ok());
        assert!(parse(b"cmd=barrier_out\n").expect("barrier_out").is_ok());
        assert!(Pmi1Reply::parse(b"hello\n").is_err());
    }

    proptest! {
        #[test]
        fn reply__any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(reply) = Pmi1Reply::parse(&bytes) {
                let _ = (reply.number("rc"), reply.expect("maxes"));
            }
        }
    }
}
