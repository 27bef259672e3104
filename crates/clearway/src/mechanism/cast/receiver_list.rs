//! Whom a cast is for, as people write it: `n[01-64]:/scratch`, `n1:/a,n2:/b`, `hosts.txt`,
//! `10.0.0.1:7000,10.0.0.2:7000:new`.
//!
//! # Model
//! Hosts as Slurm lists them, separated by commas, each with a port if it has one of its own. A
//! directory behind a host, after a colon, is that of the host and of those before it that have
//! none. A comma ends it: a directory with a comma is named with `--into`. A word without a colon
//! that is a file is a file of hosts, one a line.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail};
use clearway_runtime::launch::{hostfile, hostlist};

/// A receiver that somebody named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedReceiver {
    /// As ssh takes it.
    pub(super) name: String,
    pub(super) port: Option<u16>,
    /// The directory there.
    pub(super) into: Option<String>,
}

/// Reads the receivers of `words`.
///
/// # Errors
/// One sentence: a list that is none, a host that is named twice.
pub(super) fn read(words: &[String]) -> Result<Vec<NamedReceiver>> {
    let mut hosts = Vec::new();
    for word in words {
        match Path::new(word) {
            path if !word.contains(':') && path.is_file() => {
                let named = hostfile::read(path)?;
                hosts.extend(named.into_iter().map(|host| NamedReceiver {
                    name: host.name,
                    port: None,
                    into: None,
                }));
            }
            _ => hosts.extend(list(word).with_context(|| format!("--to {word}"))?),
        }
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = hosts.iter().find(|host| !seen.insert((&host.name, host.port, &host.into)))
    {
        bail!("{} is named twice", twice.shown());
    }
    if hosts.is_empty() {
        bail!("nobody is named to cast to");
    }
    Ok(hosts)
}

impl NamedReceiver {
    /// Returns the receiver for people.
    pub(super) fn shown(&self) -> String {
        self.port.map_or_else(|| self.name.clone(), |port| format!("{}:{port}", self.name))
    }
}

/// Returns the hosts of one list.
fn list(word: &str) -> Result<Vec<NamedReceiver>> {
    let mut hosts: Vec<NamedReceiver> = Vec::new();
    let mut rest = word;
    loop {
        let (name, after) = name(rest);
        let digits = after.strip_prefix(':').map(|after| {
            let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
            after.split_at(digits)
        });
        // Digits are a port if nothing but the next host, or the directory, comes behind them.
        let port = digits.filter(|(digits, behind)| {
            !digits.is_empty() && matches!(behind.chars().next(), None | Some(',' | ':'))
        });
        let (port, after) = match port {
            Some((digits, behind)) => {
                (Some(digits.parse().with_context(|| format!("{digits} is no port"))?), behind)
            }
            None => (None, after),
        };
        hosts.extend(hostlist::expand(name)?.into_iter().map(|name| NamedReceiver {
            name,
            port,
            into: None,
        }));
        let after = match after.strip_prefix(':') {
            None => after,
            Some(after) => {
                let (into, after) = after.split_at(after.find(',').unwrap_or(after.len()));
                if into.is_empty() {
                    bail!("a directory is missing behind the colon");
                }
                let without = hosts.iter_mut().filter(|host| host.into.is_none());
                without.for_each(|host| host.into = Some(into.to_owned()));
                after
            }
        };
        match after.strip_prefix(',') {
            Some(behind) => rest = behind,
            None => return complete(hosts),
        }
    }
}

/// Refuses a list of which some hosts have a directory and the last ones have none.
fn complete(hosts: Vec<NamedReceiver>) -> Result<Vec<NamedReceiver>> {
    let last = hosts
        .last()
        .filter(|last| last.into.is_none() && hosts.iter().any(|host| host.into.is_some()));
    match last {
        None => Ok(hosts),
        Some(last) => {
            let shown = last.shown();
            bail!(
                "{shown} has no directory, and hosts before it have one: say {shown}:DIRECTORY, or a second --to; a directory with a \
                 comma is named with --into"
            )
        }
    }
}

/// Returns the first host or bracketed list, and what comes behind it.
fn name(text: &str) -> (&str, &str) {
    let mut is_inside = false;
    let end = text.find(|c| {
        match c {
            '[' => is_inside = true,
            ']' => is_inside = false,
            _ => {}
        }
        !is_inside && matches!(c, ',' | ':')
    });
    text.split_at(end.unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(word: &str) -> String {
        let one = |host: NamedReceiver| {
            host.shown() + &host.into.map_or_else(String::new, |into| format!(" {into}"))
        };
        match list(word) {
            Ok(hosts) => hosts.into_iter().map(one).collect::<Vec<_>>().join("; "),
            Err(error) => format!("{error:#}"),
        }
    }

    #[test]
    fn list__hosts_ports_and_a_directory() {
        assert_eq!(shown("n[1-2,4]"), "n1; n2; n4");
        assert_eq!(shown("n[1-2]:/scratch/a,b:c"), "n1 /scratch/a; n2 /scratch/a; b c");
        assert_eq!(shown("n1:/a,n2:/b"), "n1 /a; n2 /b");
        assert_eq!(shown("n1,n[2-3]:/a,n4:7000:/b:c"), "n1 /a; n2 /a; n3 /a; n4:7000 /b:c");
        assert_eq!(shown("me@a,b:~/x"), "me@a ~/x; b ~/x");
        assert_eq!(shown("10.0.0.1:7000,10.0.0.2:7001"), "10.0.0.1:7000; 10.0.0.2:7001");
        assert_eq!(shown("h[1-2]:7000:new"), "h1:7000 new; h2:7000 new");
        assert_eq!(shown("h:7000x"), "h 7000x");
    }

    #[test]
    fn list__what_is_none_is_refused() {
        for word in [
            "",
            "a,,b",
            "n[1-",
            "a:",
            "a:99999",
            "-oProxyCommand=x",
            "a b",
            "a:,b:/c",
            "n1:/a,n2",
            "n1:/a,with a comma",
        ] {
            assert!(list(word).is_err(), "{word}: {}", shown(word));
        }
    }

    #[test]
    fn read__who_is_named_twice_is_told() {
        let error = read(&["n[1-3]".to_owned(), "n2".to_owned()]).expect_err("twice");
        assert_eq!(error.to_string(), "n2 is named twice");
        assert!(read(&["n1:7000,n1:7001".to_owned()]).is_ok());
    }
}
