//! Who has what at the end: a table for people, a document for programs, and whether anybody lacks anything.

use std::time::Instant;

use serde::Serialize;

use super::message::TOLD_MAX;
use super::peers::Peer;
use super::progress::size;
use super::source::Source;

/// How a cast ended.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    /// Entries of the manifest.
    entries: usize,
    /// Bytes that left, once for all.
    cast: u64,
    seconds: f64,
    receivers: Vec<Row>,
    /// Files that could not be sent, and why.
    unsent: Vec<(String, String)>,
    /// What was left out.
    notes: Vec<String>,
}

/// A receiver at the end.
#[derive(Debug, Serialize)]
struct Row {
    host: String,
    state: State,
    /// Of what was cast, those that it lacked.
    written: u64,
    files: u64,
    seconds: f64,
    failed: u64,
    /// Why, of some.
    why: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    /// It has everything, and some of it is new.
    Complete,
    /// It had everything.
    Unchanged,
    /// Something failed.
    Incomplete,
    /// It never took part, or did not to the end.
    Lost,
}

impl State {
    const fn word(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Unchanged => "unchanged",
            Self::Incomplete => "incomplete",
            Self::Lost => "lost",
        }
    }
}

impl Summary {
    pub(super) fn of(
        source: &Source,
        peers: Vec<Peer>,
        unsent: Vec<(String, String)>,
        begun: Instant,
        cast: u64,
    ) -> Self {
        let receivers: Vec<Row> = peers.into_iter().map(|peer| Row::of(source, peer, begun)).collect();
        // Of streams nobody knew the length before.
        let cast = receivers.iter().map(|row| row.written).max().unwrap_or_default().max(cast);
        Self {
            entries: source.entries.len(),
            cast,
            seconds: begun.elapsed().as_secs_f64(),
            receivers,
            unsent,
            notes: source.notes.clone(),
        }
    }

    /// Whether all have everything.
    pub(super) fn is_complete(&self) -> bool {
        let whole = |row: &Row| matches!(row.state, State::Complete | State::Unchanged);
        self.unsent.is_empty() && self.receivers.iter().all(whole)
    }

    /// For a person.
    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        let width = self.receivers.iter().map(|row| row.host.len()).max().unwrap_or_default().max(8);
        text.push_str(&format!("{:width$}  {:10}  {:>11}  {:>9}\n", "receiver", "state", "written", "took"));
        for row in &self.receivers {
            let took = format!("{:.2} s", row.seconds);
            let (state, written) = (row.state.word(), size(row.written));
            text.push_str(&format!("{:width$}  {state:10}  {written:>11}  {took:>9}\n", row.host));
            row.why.iter().for_each(|why| text.push_str(&format!("{:width$}  {why}\n", "")));
            let more = row.failed.saturating_sub(row.why.len() as u64);
            if more > 0 && row.state == State::Incomplete {
                text.push_str(&format!("{:width$}  and {more} more\n", ""));
            }
        }
        for (path, why) in self.unsent.iter().take(TOLD_MAX) {
            text.push_str(&format!("not sent: {path}: {why}\n"));
        }
        if self.unsent.len() > TOLD_MAX {
            text.push_str(&format!("not sent: {} more\n", self.unsent.len() - TOLD_MAX));
        }
        self.notes.iter().for_each(|note| text.push_str(&format!("{note}\n")));
        let whole = self.receivers.iter().filter(|row| matches!(row.state, State::Complete | State::Unchanged)).count();
        let of = self.receivers.len();
        let rate = size((self.cast as f64 / self.seconds.max(0.001)) as u64);
        let cast = size(self.cast);
        text.push_str(&format!("{whole} of {of} have everything; {cast} cast in {:.2} s, {rate}/s\n", self.seconds));
        text
    }
}

impl Row {
    fn of(source: &Source, peer: Peer, begun: Instant) -> Self {
        let seconds = peer.ended.map_or(0.0, |ended| ended.duration_since(begun).as_secs_f64());
        let at_first = peer.why.iter().filter_map(|(number, why)| {
            let entry = source.entries.get(*number as usize)?;
            Some(format!("{}: {why}", entry.path))
        });
        let host = peer.name;
        let outcome = match (peer.lost, peer.outcome) {
            (None, Some(outcome)) => outcome,
            (lost, _) => {
                let why = lost.unwrap_or_else(|| "it did not tell how it ended".to_owned());
                let why = std::iter::once(why).chain(at_first).collect();
                return Self { host, state: State::Lost, written: peer.taken, files: 0, seconds, failed: 0, why };
            }
        };
        let state = match outcome {
            _ if outcome.failed > 0 => State::Incomplete,
            _ if outcome.files > 0 => State::Complete,
            _ => State::Unchanged,
        };
        let why = outcome.why.iter().map(|(path, why)| format!("{path}: {why}")).collect();
        Self { host, state, written: outcome.written, files: outcome.files, seconds, failed: outcome.failed, why }
    }
}
