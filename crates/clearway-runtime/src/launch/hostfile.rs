//! Reads files of hosts as Open MPI and MPICH write them: one host a line, with the number of its
//! ranks.
//!
//! # Model
//! `host`, `host slots=4` or `host:4`; a host may be a list in brackets, as in `n[01-16] slots=2`.
//! `#` begins a comment. Ranks are numbered in the order of the lines, host by host.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::{LaunchError, RANKS_MAX, hostlist};

/// Longest file: room for sixteen times the hosts of the largest machine.
const FILE_MAX: u64 = 1 << 24;

/// A host, and how many ranks it gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEntry {
    /// Its name, as ssh takes it.
    pub name: String,
    /// Ranks on it.
    pub slots: u32,
}

/// Reads the hosts of the file at `path`, in its order.
///
/// # Errors
/// The file cannot be read, or a line of it: then with its number.
pub fn read(path: &Path) -> Result<Vec<HostEntry>, LaunchError> {
    let refused = || LaunchError::system(format!("read {}", path.display()));
    let mut bytes = Vec::new();
    File::open(path)
        .map_err(refused())?
        .take(FILE_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(refused())?;
    parse(&bytes).map_err(|(line, what)| LaunchError::HostFile {
        path: path.to_owned(),
        line,
        what,
    })
}

/// Reads the bytes of a file of hosts.
///
/// # Errors
/// The line, from 1, and what is wrong with it.
pub fn parse(bytes: &[u8]) -> Result<Vec<HostEntry>, (usize, String)> {
    if bytes.len() as u64 > FILE_MAX {
        return Err((1, format!("the file is longer than {FILE_MAX} bytes")));
    }
    let mut entries = Vec::new();
    let mut ranks = 0_u64;
    for (line, text) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        let text = str::from_utf8(text).map_err(|_| (line, "this is no text".to_owned()))?;
        let text = text.split('#').next().unwrap_or_default();
        let (names, slots) = host(text).map_err(|what| (line, what))?;
        ranks += names.len() as u64 * u64::from(slots);
        if ranks > u64::from(RANKS_MAX) {
            return Err((
                line,
                format!("up to here the file asks for more than {RANKS_MAX} ranks"),
            ));
        }
        entries.extend(names.into_iter().map(|name| HostEntry { name, slots }));
    }
    if entries.is_empty() {
        return Err((1, "the file names no host".to_owned()));
    }
    Ok(entries)
}

/// Returns the hosts of one line, and the ranks of each.
fn host(line: &str) -> Result<(Vec<String>, u32), String> {
    let mut words = line.split_whitespace();
    let Some(first) = words.next() else { return Ok((Vec::new(), 0)) };
    let (list, mut slots) = match first.rsplit_once(':') {
        Some((list, count)) => (list, Some(number(count)?)),
        None => (first, None),
    };
    for word in words {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        match name {
            "slots" if slots.is_none() => slots = Some(number(value)?),
            "slots" => return Err("the number of ranks is said twice".to_owned()),
            // Open MPI's bound for oversubscription; the ranks started are the slots.
            "max_slots" | "max-slots" => drop(number(value)?),
            _ => {
                let shown: String = word.chars().take(40).collect();
                return Err(format!(
                    "`{}` is unknown; write `host`, `host slots=4` or `host:4`",
                    shown.escape_default()
                ));
            }
        }
    }
    let names = hostlist::expand(list).map_err(|error| error.to_string())?;
    Ok((names, slots.unwrap_or(1)))
}

fn number(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=RANKS_MAX).contains(number));
    let shown: String = text.chars().take(40).collect();
    number.ok_or_else(|| {
        format!("`{}` is no number of ranks from 1 to {RANKS_MAX}", shown.escape_default())
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(name: &str, slots: u32) -> HostEntry {
        HostEntry { name: name.to_owned(), slots }
    }

    #[test]
    fn parse__both_styles_comments_and_lists() {
        let text = b"# our machine\n\nn1 slots=4 max_slots=8 # first\nn2:3\nn[3-4]:2\n  n5\r\nme@n6 slots=1";
        let expected = [
            entry("n1", 4),
            entry("n2", 3),
            entry("n3", 2),
            entry("n4", 2),
            entry("n5", 1),
            entry("me@n6", 1),
        ];
        assert_eq!(parse(text).unwrap(), expected);
    }

    #[test]
    fn parse__a_mistake_is_named_with_its_line() {
        for (text, line) in [
            (&b"n1\nn2 slots=0\n"[..], 2),
            (b"n1 slot=4", 1),
            (b"n1\n\n-oProxyCommand=rm", 3),
            (b"n1:4 slots=4", 1),
            (b"n1:x", 1),
            (b"n1\n\xff\n", 2),
            (b"# nothing\n", 1),
            (b"n[1-1024]:1024\nn1", 2),
        ] {
            assert_eq!(parse(text).unwrap_err().0, line, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn read__a_missing_file_is_named() {
        assert!(
            read(Path::new("/nowhere/hosts")).unwrap_err().to_string().contains("/nowhere/hosts")
        );
    }

    proptest! {
        #[test]
        fn parse__any_bytes_are_hosts_or_a_line(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Err((line, _)) = parse(&bytes) {
                prop_assert!(line >= 1);
            }
        }
    }
}
