//! Whom a cast is for, as people write it: `n[01-64]:/scratch`, `n1:/a,n2:/b`, `hosts.txt`,
//! `10.0.0.1:7000,10.0.0.2:7000:new`.
//!
//! # Model
//! Hosts as Slurm lists them, separated by commas, each with a port if it has one of its own. A
//! directory behind a host, after a colon, is that of the host and of those before it that have
//! none. A comma ends it: a directory with a comma is named with `--into`. A word that is a file, or
//! a file and a directory behind a colon, is a file of hosts, one a line.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail};
use clearway_runtime::launch::hostfile::{self, HostEntry};
use clearway_runtime::launch::hostlist;

/// A receiver that somebody named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedReceiver {
    /// As ssh takes it.
    pub(super) name: String,
    pub(super) port: Option<u16>,
    /// The directory there.
    pub(super) into: Option<String>,
}

/// How receivers are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContactMode {
    /// They run `clearway cast serve` and listen at a port.
    Listening,
    /// ssh starts them.
    Ssh,
}

/// Reads the receivers of `words`.
///
/// # Errors
/// One sentence: a list that is none, a host that is named twice, a port for ssh.
pub(super) fn read(words: &[String], contact: ContactMode) -> Result<Vec<NamedReceiver>> {
    let mut hosts = Vec::new();
    for word in words {
        let (path, into) = match word.split_once(':') {
            Some((path, into)) => (path, Some(into)),
            None => (word.as_str(), None),
        };
        let named = match Path::new(path).is_file() {
            true => hosts_of_file(Path::new(path), into, contact),
            false => list(word),
        };
        hosts.extend(named.with_context(|| format!("--to {word}"))?);
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = hosts.iter().find(|host| !seen.insert((&host.name, host.port, &host.into)))
    {
        bail!("{} is named twice", twice.shown());
    }
    if hosts.is_empty() {
        bail!("no receiver is named");
    }
    let with_port = hosts.iter().find(|host| host.port.is_some());
    if let (ContactMode::Ssh, Some(host)) = (contact, with_port) {
        bail!(
            "{} has a port: ports are for receivers that listen (--key); the port of ssh is set in ~/.ssh/config",
            host.shown()
        );
    }
    Ok(hosts)
}

/// Reads a file of hosts, each with the directory `into`.
fn hosts_of_file(
    path: &Path,
    into: Option<&str>,
    contact: ContactMode,
) -> Result<Vec<NamedReceiver>> {
    if into.is_some_and(|into| into.is_empty() || into.bytes().all(|byte| byte.is_ascii_digit())) {
        bail!("a directory belongs behind the colon of a file of hosts; --port sets their port");
    }
    let named = hostfile::read(path)?;
    if let (ContactMode::Listening, Some(host)) =
        (contact, named.iter().find(|host| host.slots > 1))
    {
        let HostEntry { name, slots } = host;
        bail!(
            "{} gives {name} the number {slots}, which is a count of ranks and no port; --port sets the port of all, --to {name}:{slots} \
             that of one",
            path.display()
        );
    }
    let receiver = |host: HostEntry| NamedReceiver {
        name: host.name,
        port: None,
        into: into.map(str::to_owned),
    };
    Ok(named.into_iter().map(receiver).collect())
}

/// Checks the directories of `hosts`, and the one for all: each `%` must be one of `%h`, `%r` and
/// `%%`.
///
/// # Errors
/// One sentence with the directory.
pub(super) fn check_directories(hosts: &[NamedReceiver], into: Option<&str>) -> Result<()> {
    for directory in hosts.iter().filter_map(|host| host.into.as_deref()).chain(into) {
        let behind = directory.replace("%%", "");
        let unknown = behind.split('%').skip(1).find(|rest| !rest.starts_with(['h', 'r']));
        if let Some(rest) = unknown {
            let letter: String = rest.chars().take(1).collect();
            bail!(
                "`%{letter}` in the directory `{directory}` is unknown: %h is the host, %r its number, %% a percent sign"
            );
        }
    }
    Ok(())
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
        hosts.extend(hostlist::expand(name.trim())?.into_iter().map(|name| NamedReceiver {
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
    fn read__a_host_that_is_named_twice_is_refused() {
        let hosts = ["n[1-3]".to_owned(), "n2".to_owned()];
        let error = read(&hosts, ContactMode::Ssh).expect_err("twice");
        assert_eq!(error.to_string(), "n2 is named twice");
        assert!(read(&["n1:7000,n1:7001".to_owned()], ContactMode::Listening).is_ok());
    }

    #[test]
    fn read__a_port_is_refused_over_ssh() {
        let error = read(&["n1:7000".to_owned()], ContactMode::Ssh).expect_err("a port");
        assert!(error.to_string().starts_with("n1:7000 has a port"), "{error}");
    }

    #[test]
    fn list__white_space_around_hosts_is_ignored() {
        assert_eq!(shown("n1, n2 ,n3"), "n1; n2; n3");
    }

    #[test]
    fn read__a_file_of_hosts_takes_a_directory_and_no_port() {
        let directory = std::env::temp_dir().join(format!("hosts-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let file = directory.join("hosts.txt");
        std::fs::write(&file, "n1\nn2:27182\n").expect("written");
        let read = |into: &str, contact| {
            let hosts = read(&[format!("{}{into}", file.display())], contact);
            let shown = |host: NamedReceiver| format!("{} {:?}", host.shown(), host.into);
            hosts.map(|hosts| hosts.into_iter().map(shown).collect::<Vec<_>>())
        };
        let hosts = read(":sub", ContactMode::Ssh).expect("two hosts");
        assert_eq!(hosts, ["n1 Some(\"sub\")", "n2 Some(\"sub\")"]);
        for (into, contact, part) in [
            ("", ContactMode::Listening, "gives n2 the number 27182, which is a count of ranks"),
            (":7000", ContactMode::Ssh, "a directory belongs behind the colon"),
            (":", ContactMode::Ssh, "a directory belongs behind the colon"),
        ] {
            let error = format!("{:#}", read(into, contact).expect_err(part));
            assert!(error.contains(part), "{error}");
        }
        std::fs::remove_dir_all(directory).expect("removed");
    }

    #[test]
    fn check_directories__an_unknown_letter_is_named() {
        let check = |into| check_directories(&[], Some(into)).map_err(|error| error.to_string());
        assert!(check("/a/%h/%r/100%%").is_ok());
        let error = check("/a/%%%z").expect_err("unknown");
        assert!(error.starts_with("`%z` in the directory `/a/%%%z` is unknown"), "{error}");
        assert!(check("/a%").is_err());
    }
}
