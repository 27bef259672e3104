//! Control at the edge: the last switch before a host counts who sends to it and tells each of them
//! its pace.
//!
//! # Model
//! ```text
//!    idle --queue a quarter full--> watching --queue full, enough sources--> active --too few sources--> idle
//! ```
//! A port that is idle only counts bytes. Watching, it also remembers who sends. Active, it keeps
//! one number for all of them, the *divisor*: each source may use one such part of the port. It
//! begins as the number of sources and follows it as they come and go. Once in an *epoch* (three
//! packets of each source, at least four notice delays) it is corrected: upward by what came in
//! excess while something waits, downward by half of what the port was idle, so that sources which
//! want less than their part leave it to others. A source is notified when it appears, when the
//! divisor has moved by a sixteenth, and before its last notice runs out.
//!
//! # Source
//! The shape (last switch, fan-in, pace at the source, notices that run out, packets under 128
//! bytes left alone) is that of the congestion control in sst-elements' merlin (`portControl`,
//! `linkControl`), which stands for published descriptions of Slingshot. The correction is that of
//! Dukkipati, "Rate Control Protocol" (2007): one rate for all, from spare capacity and queue.
//!
//! # Invariants
//! I1. The divisor is at least [`ONE`], and beyond the number of sources by at most an eighth.
//! I2. `sources` is sorted and holds nobody who has been silent for an epoch when one ends.

use crate::time::{Pace, Picos};

/// A divisor of one: the whole port. Divisors have eight binary digits behind the point.
pub(crate) const ONE: u32 = 256;
/// Shorter packets are not counted and need no pace: merlin's limit.
pub(crate) const BULK_BYTES: u32 = 128;
/// What is left free of the port, as a right shift: a queue that has formed goes away again. A
/// thirty-second costs little of the goodput and is more than the clocks and roundings in the way.
const SLACK_SHIFT: u32 = 5;

/// What a port goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EdgeRules {
    /// Bytes that wait before sources are slowed down.
    pub threshold: u64,
    /// Distinct sources at least.
    pub sources: usize,
    /// Time of a notice to its source.
    pub notice_delay: Picos,
    /// The pace of the port.
    pub pace: Pace,
    /// A whole packet, header included.
    pub packet: u32,
}

/// A notice for a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EdgeNotice {
    /// Who.
    pub source: u32,
    /// Its part of the port is the whole over this, in 256ths.
    pub divisor: u32,
    /// Its place among the sources: as many packets of the port it waits, so that not all begin at
    /// once.
    pub slot: u32,
    /// How long it holds.
    pub life: Picos,
}

/// One who sends to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EdgeSource {
    id: u32,
    /// When a packet of it last came or went.
    seen: Picos,
    /// The divisor of its last notice, zero before the first, and when that was.
    reported: u32,
    reported_at: Picos,
}

/// What a port is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Idle,
    Watching,
    Active,
}

/// One port before a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EdgePort {
    mode: Mode,
    queued: u64,
    sources: Vec<EdgeSource>,
    divisor: u32,
    epoch_start: Picos,
    epoch_end: Picos,
    /// Bytes that came and bytes that left in this epoch.
    came: u64,
    sent: u64,
}

impl EdgePort {
    /// Records that a packet from `source` begins to wait for the port. Every rank that must be
    /// notified is appended to `notices`. O(log sources), and O(sources) once an epoch.
    pub(crate) fn arrived(
        &mut self,
        rules: &EdgeRules,
        now: Picos,
        source: u32,
        bytes: u32,
        notices: &mut Vec<EdgeNotice>,
    ) {
        self.queued += u64::from(bytes);
        self.came += u64::from(bytes);
        if self.mode == Mode::Idle {
            if self.queued * 4 < rules.threshold {
                return;
            }
            self.mode = Mode::Watching;
            self.begin_epoch(rules, now);
        }
        if bytes >= BULK_BYTES {
            self.meet(now, source);
        }
        match self.mode {
            Mode::Watching
                if self.queued >= rules.threshold && self.sources.len() >= rules.sources =>
            {
                self.mode = Mode::Active;
                self.divisor = whole(self.sources.len());
                self.begin_epoch(rules, now);
                self.notify(rules, now, notices);
            }
            Mode::Active => self.notify_newcomer(rules, now, source, notices),
            _ => {}
        }
        if now >= self.epoch_end {
            self.end_epoch(rules, now, notices);
        }
    }

    /// Records that a packet of `source` has left by the port.
    pub(crate) fn left(&mut self, now: Picos, source: u32, bytes: u32) {
        self.queued = self.queued.saturating_sub(u64::from(bytes));
        self.sent += u64::from(bytes);
        if self.mode != Mode::Idle
            && let Ok(place) = self.place(source)
        {
            self.sources[place].seen = now;
        }
    }

    /// Returns the bytes that wait.
    #[cfg(test)]
    pub(crate) fn queued(&self) -> u64 {
        self.queued
    }

    fn place(&self, source: u32) -> Result<usize, usize> {
        self.sources.binary_search_by_key(&source, |known| known.id)
    }

    /// Remembers that `source` is one of them. A newcomer takes its part from the others.
    fn meet(&mut self, now: Picos, source: u32) {
        match self.place(source) {
            Ok(place) => self.sources[place].seen = now,
            Err(place) => {
                self.sources.insert(
                    place,
                    EdgeSource { id: source, seen: now, reported: 0, reported_at: now },
                );
                self.resize(self.sources.len() - 1);
            }
        }
    }

    /// Fits the divisor to a number of sources that was `before`.
    fn resize(&mut self, before: usize) {
        let now = self.sources.len() as u64;
        self.divisor =
            (u64::from(self.divisor) * now / before.max(1) as u64).max(u64::from(ONE)) as u32;
    }

    fn notify_newcomer(
        &mut self,
        rules: &EdgeRules,
        now: Picos,
        source: u32,
        notices: &mut Vec<EdgeNotice>,
    ) {
        let Ok(place) = self.place(source) else { return };
        if self.sources[place].reported == 0 {
            notices.push(self.notice(rules, now, place));
        }
    }

    /// Tells everyone whose last notice is no longer near enough or runs out.
    fn notify(&mut self, rules: &EdgeRules, now: Picos, notices: &mut Vec<EdgeNotice>) {
        let life = self.life(rules);
        for place in 0..self.sources.len() {
            let EdgeSource { reported, reported_at, .. } = self.sources[place];
            if reported.abs_diff(self.divisor) > self.divisor / 16
                || (now - reported_at).0 >= life.0 / 2
            {
                notices.push(self.notice(rules, now, place));
            }
        }
    }

    fn notice(&mut self, rules: &EdgeRules, now: Picos, place: usize) -> EdgeNotice {
        let life = self.life(rules);
        let (divisor, slot) = (self.divisor, place as u32);
        let source = &mut self.sources[place];
        (source.reported, source.reported_at) = (divisor, now);
        EdgeNotice { source: source.id, divisor, slot, life }
    }

    /// Notices outlive four epochs, so that a source that gets every other one does not speed up in
    /// between.
    fn life(&self, rules: &EdgeRules) -> Picos {
        Picos(4 * epoch(rules, self.sources.len()).0) + rules.notice_delay
    }

    fn begin_epoch(&mut self, rules: &EdgeRules, now: Picos) {
        self.epoch_start = now;
        self.epoch_end = now + epoch(rules, self.sources.len());
        (self.came, self.sent) = (0, 0);
    }

    /// Forgets the silent, corrects the divisor, tells whom it concerns.
    fn end_epoch(&mut self, rules: &EdgeRules, now: Picos, notices: &mut Vec<EdgeNotice>) {
        let before = self.sources.len();
        let silent_since = now - epoch(rules, before);
        self.sources.retain(|source| source.seen >= silent_since);
        match self.mode {
            Mode::Active if self.sources.len() >= rules.sources => {
                self.resize(before);
                self.correct(rules, now);
                self.notify(rules, now, notices);
            }
            Mode::Watching if self.queued * 4 >= rules.threshold => {}
            _ => {
                self.mode = Mode::Idle;
                self.sources.clear();
            }
        }
        self.begin_epoch(rules, now);
    }

    /// Corrects the rate upward by what came beyond what can leave, half of what waits included;
    /// downward by half of what the port was idle.
    fn correct(&mut self, rules: &EdgeRules, now: Picos) {
        let capacity = bytes_in(rules.pace, now - self.epoch_start);
        let wanted = (capacity - (capacity >> SLACK_SHIFT)).max(1);
        let waiting = self.queued.saturating_sub(rules.threshold / 4);
        let load = self.came + waiting / 2;
        let divisor = u64::from(self.divisor);
        let whole = u64::from(whole(self.sources.len()));
        let (next, most) = if waiting == 0 {
            (divisor - divisor * wanted.saturating_sub(self.sent) / (2 * wanted), whole)
        } else {
            (divisor * load.clamp(wanted, 2 * wanted) / wanted, whole + whole / 8)
        };
        self.divisor = next.clamp(u64::from(ONE), most) as u32;
    }
}

/// Returns the divisor of `sources` that share the port, but for the slack, evenly.
fn whole(sources: usize) -> u32 {
    let even = (sources as u32).saturating_mul(ONE);
    even + (even >> SLACK_SHIFT)
}

/// Returns three packets of each source, and time for notices to be seen to work.
fn epoch(rules: &EdgeRules, sources: usize) -> Picos {
    let round = rules.pace.time(rules.packet).0.saturating_mul(3 * sources as u64);
    Picos(round.max(4 * rules.notice_delay.0))
}

/// Returns the bytes that fit into `length`, from the time of a mebibyte: exact enough for a
/// correction.
fn bytes_in(pace: Pace, length: Picos) -> u64 {
    let mebibyte = u128::from(pace.time(1 << 20).0.max(1));
    (u128::from(length.0) * (1 << 20) / mebibyte) as u64
}
