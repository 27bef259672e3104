//! Which receiver has what at the end: a table for people, a document for programs, and whether
//! anybody lacks anything.

use std::time::Instant;

use clearway_proto::base::{BitsPerSec, Nanos};
use clearway_proto::flow::HeldBack;
use serde::Serialize;

use super::message::{ExtraNames, PlannedChanges, REPORTED_MAX, RemovalTask};
use super::peers::CastReceiver;
use super::preview::{CastPlan, MissingSum};
use super::source::{CastSource, SkippedPath};
use crate::policy::Grant;
use crate::report::model::{ExtendedReal, Figure};
use crate::report::numerals::size;

/// What is said of a receiver that the others did not wait for.
const PARKED: &str =
    "it took less than a sixteenth of what most take, and got the rest when they had everything";

/// How a cast ended.
#[derive(Debug, Serialize)]
pub(super) struct CastSummary {
    /// Entries of the manifest.
    entries: usize,
    /// Bytes that left, once for all.
    cast: u64,
    seconds: f64,
    receivers: Vec<ReceiverRow>,
    /// What could not be read or changed meanwhile, and why.
    unsent: Vec<SkippedPath>,
    /// Names that `--exclude` left out.
    excluded: usize,
    /// What was left out.
    notes: Vec<String>,
    /// The receiver for which the others waited most of the time.
    slowest: Option<String>,
    /// The class that the policy of the site granted, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<Grant>,
    /// For how long and how far the agent of the node limited the cast, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<HeldCast>,
    /// What would be cast, where nothing was.
    #[serde(skip_serializing_if = "Option::is_none")]
    dry_run: Option<CastPlan>,
    /// All that there was to cast could not be read to its end.
    #[serde(skip)]
    is_nothing_sent: bool,
}

/// What an agent costs a cast: seconds, and bits a second in them.
#[derive(Clone, Copy, Debug, Serialize)]
struct HeldCast {
    seconds: f64,
    mean_bits_per_second: u64,
    least_bits_per_second: u64,
}

impl HeldCast {
    /// Returns the price for a person, with the end of the line.
    fn line(self) -> String {
        let whole = |rate| BitsPerSec(if rate < 1_000_000 { rate } else { rate / 1_000 * 1_000 });
        let time = Nanos((self.seconds * 1e9) as u64);
        let (mean, least) = (whole(self.mean_bits_per_second), whole(self.least_bits_per_second));
        format!(
            "the agent of this node limited the cast for {time}: mean {mean}, minimum {least}\n"
        )
    }
}

/// A receiver at the end.
#[derive(Debug, Serialize)]
struct ReceiverRow {
    host: String,
    state: ReceiverState,
    /// Of what was cast, those that it lacked.
    written: u64,
    files: u64,
    seconds: f64,
    failed: u64,
    /// Names that were removed.
    removed: u64,
    /// Those that would be, where nothing was.
    #[serde(skip_serializing_if = "Option::is_none")]
    extras: Option<ExtraNames>,
    /// Changes that would be made other than of contents, where nothing was.
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<PlannedChanges>,
    /// What it would be sent, where nothing was.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<MissingSum>,
    /// Why, of some.
    why: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ReceiverState {
    /// It has everything, and some of it is new.
    Complete,
    /// It had everything.
    Unchanged,
    /// It would be sent something, and nothing is cast.
    Differs,
    /// Something failed.
    Incomplete,
    /// It refused what was asked of it before anything was cast.
    Refused,
    /// It never took part, or did not to the end.
    Lost,
}

impl ReceiverState {
    pub(super) const ALL: [Self; 5] =
        [Self::Complete, Self::Unchanged, Self::Incomplete, Self::Refused, Self::Lost];

    /// Returns how `peer` has ended; none while it has not.
    pub(super) fn from_end(peer: &CastReceiver) -> Option<Self> {
        match (&peer.lost, &peer.outcome) {
            (None, Some(outcome)) if outcome.failed > 0 => Some(Self::Incomplete),
            (None, Some(outcome)) if outcome.files + outcome.removed > 0 => Some(Self::Complete),
            (None, Some(_)) => Some(Self::Unchanged),
            (None, None) => None,
            (Some(_), _) if peer.has_refused => Some(Self::Refused),
            (Some(_), _) => Some(Self::Lost),
        }
    }

    const fn is_whole(self) -> bool {
        matches!(self, Self::Complete | Self::Unchanged)
    }

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Unchanged => "unchanged",
            Self::Differs => "differs",
            Self::Incomplete => "incomplete",
            Self::Refused => "refused",
            Self::Lost => "lost",
        }
    }
}

impl CastSummary {
    /// Creates the summary of a cast of this many bytes that began then; the others waited for
    /// `slowest`.
    pub(super) fn new(
        source: &CastSource,
        peers: Vec<CastReceiver>,
        unsent: Vec<SkippedPath>,
        (begun, cast): (Instant, u64),
        slowest: Option<String>,
    ) -> Self {
        let receivers: Vec<ReceiverRow> =
            peers.into_iter().map(|peer| ReceiverRow::new(source, peer, begun)).collect();
        // Of streams nobody knew the length before.
        let cast = receivers.iter().map(|row| row.written).max().unwrap_or_default().max(cast);
        let is_nothing_sent = source.is_stream() && !unsent.is_empty();
        Self {
            entries: source.entries.len(),
            is_nothing_sent,
            cast,
            seconds: begun.elapsed().as_secs_f64(),
            receivers,
            unsent: source.unread.iter().cloned().chain(unsent).collect(),
            excluded: source.excluded,
            notes: source.notes.clone(),
            slowest,
            policy: None,
            held: None,
            dry_run: None,
        }
    }

    /// Returns the summary with what the policy of the site granted.
    pub(super) fn granted(self, policy: Option<Grant>) -> Self {
        Self { policy, ..self }
    }

    /// Returns the summary with what the agent of the node cost.
    pub(super) fn held(self, held: Option<HeldBack>) -> Self {
        let held = held.map(|held| HeldCast {
            seconds: held.time.as_secs_f64(),
            mean_bits_per_second: held.mean().0,
            least_bits_per_second: held.least.0,
        });
        Self { held, ..self }
    }

    /// Returns the summary with a note when nothing was removed though there was this `task`.
    pub(super) fn removing(mut self, task: Option<&RemovalTask>) -> Self {
        if task.is_some() && !self.unsent.is_empty() {
            self.notes.push("nothing was removed, because not everything could be read".to_owned());
        }
        self
    }

    /// Returns the summary of a cast that would send this, and did not.
    pub(super) fn planned(self, plan: CastPlan) -> Self {
        Self { dry_run: Some(plan), ..self }
    }

    /// Returns whether all have everything, or would have.
    pub(super) fn is_complete(&self) -> bool {
        let whole = |row: &ReceiverRow| row.state.is_whole() || row.state == ReceiverState::Differs;
        self.unsent.is_empty() && self.receivers.iter().all(whole)
    }

    /// Returns the figures of the cast, and of each receiver.
    pub(super) fn figures(&self) -> Vec<Figure> {
        let figure = |name: &str, unit: &str, value: f64| {
            Figure::counted(
                name,
                unit,
                ExtendedReal::or_infinite(value),
                1,
                "at the end of the cast",
            )
        };
        let mut figures = vec![
            figure("cast_seconds", "s", self.seconds),
            figure("cast_bytes", "B", self.cast as f64),
            figure("cast_entries", "", self.entries as f64),
            figure("cast_unsent", "", self.unsent.len() as f64),
            figure("cast_excluded", "", self.excluded as f64),
        ];
        if let Some(held) = self.held {
            figures.push(figure("cast_held_seconds", "s", held.seconds));
            figures.push(figure("cast_held_rate", "b/s", held.mean_bits_per_second as f64));
        }
        for row in &self.receivers {
            let of = [
                figure("cast_receiver_seconds", "s", row.seconds),
                figure("cast_receiver_bytes", "B", row.written as f64),
                figure("cast_receiver_files", "", row.files as f64),
                figure("cast_receiver_failed", "", row.failed as f64),
                figure("cast_receiver_removed", "", row.removed as f64),
            ];
            let labelled = |figure: Figure| {
                figure.with("receiver", row.host.as_str()).with("state", row.state.word())
            };
            figures.extend(of.into_iter().map(labelled));
        }
        figures
    }

    /// Returns what was not as it should be, a sentence each.
    pub(super) fn warnings(&self) -> Vec<String> {
        let unsent = self.unsent.iter().map(|(path, why)| format!("not sent: {path}: {why}"));
        let of = |row: &ReceiverRow| -> Vec<String> {
            row.why.iter().map(|why| format!("{}: {why}", row.host)).collect()
        };
        let receivers = self.receivers.iter().flat_map(of);
        unsent.chain(receivers).chain(self.notes.iter().cloned()).collect()
    }

    /// Returns the summary for a person.
    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        let width =
            self.receivers.iter().map(|row| row.host.len()).max().unwrap_or_default().max(8);
        text.push_str(&format!(
            "{:width$}  {:10}  {:>11}  {:>9}\n",
            "receiver",
            "state",
            if self.dry_run.is_some() { "missing" } else { "written" },
            "took"
        ));
        for row in &self.receivers {
            let took = format!("{:.2} s", row.seconds);
            let (state, written) =
                (row.state.word(), size(row.missing.map_or(row.written, |missing| missing.bytes)));
            text.push_str(&format!("{:width$}  {state:10}  {written:>11}  {took:>9}\n", row.host));
            row.why.iter().for_each(|why| text.push_str(&format!("{:width$}  {why}\n", "")));
            row.removals(&mut text, width);
            let more = row.failed.saturating_sub(REPORTED_MAX as u64);
            if more > 0 && row.state == ReceiverState::Incomplete {
                text.push_str(&format!("{:width$}  and {more} more\n", ""));
            }
        }
        let unsent = self.unsent.iter().map(|(path, why)| format!("not sent: {path}: {why}"));
        list(&mut text, unsent, "not sent");
        if self.excluded > 0 {
            text.push_str(&format!("left out by --exclude: {}\n", self.excluded));
        }
        list(&mut text, self.notes.iter().cloned(), "left out");
        let of = self.receivers.len();
        if let Some(plan) = &self.dry_run {
            text.push_str(&plan.lines(of));
        }
        if let Some(slowest) = &self.slowest {
            text.push_str(&format!("the others waited for {slowest} most of the time\n"));
        }
        if let Some(grant) = &self.policy {
            text.push_str(&format!("{}\n", grant.sentence()));
        }
        text.push_str(&self.held.map(HeldCast::line).unwrap_or_default());
        let whole = self.receivers.iter().filter(|row| row.state.is_whole()).count();
        let rate = size((self.cast as f64 / self.seconds.max(0.001)) as u64);
        let cast = size(self.cast);
        if self.is_nothing_sent {
            text.push_str(&format!(
                "0 of {of} have it; receivers keep the file that they had under this name\n"
            ));
            return text;
        }
        if let Some(plan) = &self.dry_run {
            text.push_str(&format!("{whole} of {of} have everything; {}", plan.sentence()));
            return text;
        }
        let everything = match self.unsent.len() {
            0 => "everything".to_owned(),
            1 => "everything but what was not sent".to_owned(),
            more => format!("everything but the {more} that were not sent"),
        };
        text.push_str(&format!(
            "{whole} of {of} have {everything}; {cast} cast in {:.2} s, {rate}/s\n",
            self.seconds
        ));
        text
    }
}

/// Adds some of `lines` to `text`, and how many more there are of what is called `name`.
fn list(text: &mut String, lines: impl ExactSizeIterator<Item = String>, name: &str) {
    let more = lines.len().saturating_sub(REPORTED_MAX);
    lines.take(REPORTED_MAX).for_each(|line| text.push_str(&format!("{line}\n")));
    if more > 0 {
        text.push_str(&format!("{name}: {more} more\n"));
    }
}

impl ReceiverRow {
    /// Adds to `text` what was removed, or would be, and what else would change.
    fn removals(&self, text: &mut String, width: usize) {
        if self.removed > 0 {
            text.push_str(&format!("{:width$}  removed: {}\n", "", self.removed));
        }
        let PlannedChanges { links, permissions } = self.changes.unwrap_or_default();
        for (what, count) in [("symbolic links", links), ("permissions", permissions)] {
            if count > 0 {
                text.push_str(&format!("{:width$}  {what} that would change: {count}\n", ""));
            }
        }
        let Some(ExtraNames { count, paths }) = &self.extras else { return };
        for path in paths.iter().take(REPORTED_MAX) {
            text.push_str(&format!("{:width$}  would be removed: {path}\n", ""));
        }
        let more = count.saturating_sub(REPORTED_MAX as u64);
        if more > 0 {
            text.push_str(&format!("{:width$}  would be removed: {more} more\n", ""));
        }
    }

    fn new(source: &CastSource, peer: CastReceiver, begun: Instant) -> Self {
        let seconds = peer.ended.map_or(0.0, |ended| ended.duration_since(begun).as_secs_f64());
        let at_first = peer.why.iter().filter_map(|(number, why)| {
            let entry = source.entries.get(*number as usize)?;
            Some(format!("{}: {why}", entry.path))
        });
        let state = ReceiverState::from_end(&peer);
        let missing = peer.missing;
        let others = peer.outcome.as_ref().map_or(0, |outcome| {
            let PlannedChanges { links, permissions } = outcome.changes;
            outcome.extras.count.saturating_add(links).saturating_add(permissions)
        });
        let lacks_some = missing.is_some_and(|missing| missing.files > 0 || others > 0);
        let state = state.map(|state| match state {
            ReceiverState::Unchanged if lacks_some => ReceiverState::Differs,
            other => other,
        });
        let host = peer.name;
        let outcome = match (peer.lost, peer.outcome) {
            (None, Some(outcome)) => outcome,
            (lost, _) => {
                let why = lost.unwrap_or_else(|| "it did not say how it ended".to_owned());
                let why = std::iter::once(why).chain(at_first).collect();
                return Self {
                    host,
                    state: state.unwrap_or(ReceiverState::Lost),
                    written: peer.taken,
                    files: 0,
                    seconds,
                    failed: 0,
                    removed: 0,
                    extras: None,
                    changes: None,
                    missing,
                    why,
                };
            }
        };
        let why = outcome.why.iter().map(|(path, why)| format!("{path}: {why}"));
        let parked = peer.was_parked.then(|| PARKED.to_owned());
        let why = why.chain(outcome.notes).chain(parked).collect();
        Self {
            host,
            state: state.unwrap_or(ReceiverState::Lost),
            written: outcome.written,
            files: outcome.files,
            seconds,
            failed: outcome.failed,
            removed: outcome.removed,
            extras: missing.map(|_| outcome.extras),
            changes: missing.map(|_| outcome.changes),
            missing,
            why,
        }
    }
}
