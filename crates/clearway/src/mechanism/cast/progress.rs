//! One line on standard error that says how far the slowest receiver is.

use std::collections::VecDeque;
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use clearway_proto::broadcast::Algorithm;

use super::peers::CastReceiver;
use crate::report::numerals::size;

/// How often the line is written: on a terminal as fast as it can be read, into a file so that it
/// stays short.
const EVERY: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(5)];

/// What the rate is taken over: some objects of a slow network, and short enough that a standstill
/// shows.
const LATELY: Duration = Duration::from_secs(10);
/// When nothing moves for so long, that is said in place of a rate.
const STANDSTILL: Duration = Duration::from_secs(3);

/// Takes back what stands in the line; what does not fit into it is cut off, not continued in the
/// next (ECMA-48, DECAWM).
const LINE_BEGINS: &str = "\r\x1b[K\x1b[?7l";
const LINE_ENDS: &str = "\x1b[?7h";

/// Whether somebody wants to see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgressMode {
    Silent,
    Shown,
}

/// The line.
pub(super) struct ProgressLine {
    wish: ProgressMode,
    is_terminal: bool,
    total: u64,
    begun: Instant,
    last: Option<Instant>,
    way: Option<Algorithm>,
    pace: RecentRate,
}

/// How fast bytes came lately.
#[derive(Debug, Default)]
struct RecentRate {
    /// When how many had come, the oldest first: as far back as a rate is taken.
    marks: VecDeque<(Duration, u64)>,
    /// When they last became more.
    moved: Duration,
}

impl RecentRate {
    /// Returns the rate in bytes a second when `bytes` have come at `at`; nothing when none come.
    fn rate(&mut self, at: Duration, bytes: u64) -> Option<f64> {
        if self.marks.back().is_none_or(|(_, before)| *before != bytes) {
            self.moved = at;
        }
        while self.marks.get(1).is_some_and(|(then, _)| at.saturating_sub(*then) >= LATELY) {
            self.marks.pop_front();
        }
        self.marks.push_back((at, bytes));
        let (then, before) = self.marks.front()?;
        let took = at.saturating_sub(*then).as_secs_f64().max(0.001);
        (at.saturating_sub(self.moved) < STANDSTILL)
            .then(|| bytes.saturating_sub(*before) as f64 / took)
    }
}

impl ProgressLine {
    pub(super) fn new(wish: ProgressMode) -> Self {
        let is_terminal = stderr().is_terminal();
        Self {
            wish,
            is_terminal,
            total: 0,
            begun: Instant::now(),
            last: None,
            way: None,
            pace: RecentRate::default(),
        }
    }

    /// Begins something that has no measure.
    pub(super) fn phase(&mut self, what: &str) {
        self.last = Some(Instant::now());
        if self.is_terminal {
            self.write(what);
        }
    }

    /// Shows from time to time who is waited for in something that has no measure.
    pub(super) fn waiting<'p>(
        &mut self,
        what: &str,
        mut whom: impl Iterator<Item = &'p CastReceiver>,
    ) {
        if !self.is_due() {
            return;
        }
        let Some(first) = whom.next() else { return };
        let more = match whom.count() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        self.write(&format!("{what}: {}{more}", first.name));
    }

    /// Notes that `total` bytes begin to leave; 0 when nobody knows.
    pub(super) fn begin(&mut self, total: u64) {
        (self.total, self.begun, self.last) = (total, Instant::now(), None);
    }

    /// Notes that symbols take another way.
    pub(super) fn switched(&mut self, way: Algorithm) {
        self.way = Some(way);
    }

    /// Shows from time to time how far receivers are; the others wait for the one with the rank
    /// `last`, if for anybody.
    pub(super) fn show(&mut self, peers: &[CastReceiver], last: Option<u32>) {
        let seated = || {
            let takes_part = |peer: &&CastReceiver| peer.rank.is_some() && !peer.is_parked;
            peers.iter().filter(takes_part).filter(|peer| peer.is_here())
        };
        let Some(slowest) = seated().min_by_key(|peer| peer.taken) else { return };
        if !self.is_due() {
            return;
        }
        let last = seated()
            .find(|peer| last.is_some() && peer.rank == last)
            .filter(|_| seated().count() > 1);
        let name = last.map_or("", |peer| &peer.name[..]);
        let at = self.begun.elapsed();
        let rate =
            self.pace.rate(at, slowest.taken).ok_or_else(|| at.saturating_sub(self.pace.moved));
        let mut line = line(slowest.taken, self.total, rate, name, self.way);
        let parked = peers.iter().filter(|peer| peer.is_parked && peer.is_here());
        parked.for_each(|peer| line.push_str(&format!(", parked {}", peer.name)));
        self.write(&line);
    }

    /// Returns whether it is time for another line.
    fn is_due(&mut self) -> bool {
        let every = EVERY[usize::from(!self.is_terminal)];
        let is_due = self.last.is_none_or(|last| last.elapsed() >= every);
        if is_due {
            self.last = Some(Instant::now());
        }
        is_due
    }

    fn write(&self, line: &str) {
        if self.wish == ProgressMode::Silent {
            return;
        }
        let text = match self.is_terminal {
            true => format!("{LINE_BEGINS}{line}{LINE_ENDS}"),
            false => format!("{line}\n"),
        };
        // A line that nobody can read is no reason to stop.
        let _ = stderr().write_all(text.as_bytes()).and_then(|()| stderr().flush());
    }

    /// Lets the line make place for what comes.
    pub(super) fn end(&self) {
        if self.is_terminal {
            self.write("");
        }
    }
}

/// Returns a line: `taken` bytes of `total` at `rate`, or for how long none came; `slowest` is who
/// has the fewest, if there are several. It comes last: names may be long.
fn line(
    taken: u64,
    total: u64,
    rate: Result<f64, Duration>,
    slowest: &str,
    way: Option<Algorithm>,
) -> String {
    let mut line = match total {
        0 => size(taken),
        total => format!("{} % of {}", taken.min(total) * 100 / total, size(total)),
    };
    match rate {
        _ if total > 0 && taken >= total => line.push_str(", finishing"),
        Ok(rate) => {
            line.push_str(&format!(" at {}/s", size(rate as u64)));
            if total > 0 && rate > 0.0 {
                line.push_str(&format!(
                    ", {} left",
                    time(total.saturating_sub(taken) as f64 / rate)
                ));
            }
        }
        Err(still) => line.push_str(&format!(", nothing for {}", time(still.as_secs_f64()))),
    }
    line.push_str(match way {
        None | Some(Algorithm::Multicast) => "",
        Some(_) => ", no multicast",
    });
    if !slowest.is_empty() {
        line.push_str(&format!(", slowest {slowest}"));
    }
    line
}

/// Returns the seconds for a person.
fn time(seconds: f64) -> String {
    match seconds.ceil() as u64 {
        seconds @ 0..100 => format!("{seconds} s"),
        seconds @ 100..6000 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate__is_that_of_the_last_seconds_and_none_in_a_standstill() {
        let mut pace = RecentRate::default();
        let at = Duration::from_secs;
        assert_eq!(pace.rate(at(0), 0), Some(0.0));
        assert_eq!(pace.rate(at(5), 50), Some(10.0));
        assert_eq!(pace.rate(at(10), 100), Some(10.0));
        assert_eq!(pace.rate(at(15), 600), Some(55.0), "since 5 s");
        assert_eq!(pace.rate(at(17), 600), Some(550.0 / 12.0));
        assert_eq!((pace.rate(at(18), 600), pace.moved), (None, at(15)));
        assert_eq!(pace.rate(at(60), 601), Some(1.0 / 42.0));
    }

    #[test]
    fn line__says_what_there_is_to_say_in_80_columns() {
        let slowest = "10.100.200.100";
        let said = line(56 << 20, 150 << 20, Ok(2e7), slowest, Some(Algorithm::Chain));
        assert_eq!(
            said,
            "37 % of 150.0 MiB at 19.1 MiB/s, 5 s left, no multicast, slowest 10.100.200.100"
        );
        let said = line(56 << 20, 150 << 20, Err(Duration::from_secs(12)), slowest, None);
        assert_eq!(said, "37 % of 150.0 MiB, nothing for 12 s, slowest 10.100.200.100");
        assert_eq!(line(7, 0, Ok(3.0), "", None), "7 B at 3 B/s");
        assert_eq!(line(7, 7, Ok(3.0), "", None), "100 % of 7 B, finishing");
    }

    #[test]
    fn time__has_the_unit_that_people_use() {
        assert_eq!(
            [0.0, 0.2, 99.0, 99.5, 7265.0].map(time),
            ["0 s", "1 s", "99 s", "1 min 40 s", "2 h 1 min"]
        );
    }
}
