//! One line on standard error that says how far the slowest receiver is.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use clearway_proto::base::Bytes;
use clearway_proto::broadcast::Way;

use super::peers::Peer;

/// How often the line is written: on a terminal as fast as it can be read, into a file so that it stays short.
const EVERY: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(5)];

/// Whether somebody wants to see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Silent,
    Shown,
}

/// The line.
pub(super) struct Display {
    wish: Wish,
    is_terminal: bool,
    total: u64,
    begun: Instant,
    last: Option<Instant>,
    way: Option<Way>,
}

impl Display {
    pub(super) fn new(wish: Wish) -> Self {
        let is_terminal = stderr().is_terminal();
        Self { wish, is_terminal, total: 0, begun: Instant::now(), last: None, way: None }
    }

    /// Something begins that has no measure.
    pub(super) fn phase(&mut self, what: &str) {
        if self.is_terminal {
            self.write(what);
        }
    }

    /// So many bytes begin to leave; 0 when nobody knows.
    pub(super) fn begin(&mut self, total: u64) {
        (self.total, self.begun) = (total, Instant::now());
    }

    /// Symbols take another way.
    pub(super) fn switched(&mut self, way: Way) {
        self.way = Some(way);
    }

    /// How far receivers are, from time to time.
    pub(super) fn show(&mut self, peers: &[Peer]) {
        let every = EVERY[usize::from(!self.is_terminal)];
        let seated = peers.iter().filter(|peer| peer.rank.is_some() && peer.is_here());
        let slowest = seated.min_by_key(|peer| peer.taken);
        let (Some(slowest), true) = (slowest, self.last.is_none_or(|last| last.elapsed() >= every)) else { return };
        self.last = Some(Instant::now());
        let line = line(slowest, self.total, self.begun.elapsed(), self.way);
        self.write(&line);
    }

    fn write(&self, line: &str) {
        if self.wish == Wish::Silent {
            return;
        }
        let written = match self.is_terminal {
            true => write!(stderr(), "\r\x1b[K{line}"),
            false => writeln!(stderr(), "{line}"),
        };
        // A line that nobody can read is no reason to stop.
        let _ = written.and_then(|()| stderr().flush());
    }

    /// The line makes place for what comes.
    pub(super) fn end(&self) {
        if self.is_terminal {
            self.write("");
        }
    }
}

fn line(slowest: &Peer, total: u64, took: Duration, way: Option<Way>) -> String {
    let (taken, seconds) = (slowest.taken, took.as_secs_f64().max(0.001));
    let rate = taken as f64 / seconds;
    let far = match total {
        0 => size(taken),
        total => {
            let left = total.saturating_sub(taken) as f64 / rate.max(1.0);
            let left = if taken > 0 { format!(", {left:.0} s left") } else { String::new() };
            let percent = taken.min(total) * 100 / total.max(1);
            format!("{} of {} ({percent} %){left}", size(taken), size(total))
        }
    };
    let way = match way {
        None => "",
        Some(Way::Multicast) => ", by multicast again",
        Some(_) => ", without multicast",
    };
    format!("{far}, {}/s, slowest {}{way}", size(rate as u64), slowest.name)
}

/// Bytes for a person.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64 / 1024.0;
    if bytes < 1024 {
        return Bytes(bytes).to_string();
    }
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    format!("{value:.1} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size__has_the_unit_that_people_use() {
        assert_eq!([0, 1023].map(size), ["0 B", "1023 B"]);
        assert_eq!([1024, 1 << 20, 3 << 29, u64::MAX].map(size), ["1.0 KiB", "1.0 MiB", "1.5 GiB", "16384.0 PiB"]);
    }
}
