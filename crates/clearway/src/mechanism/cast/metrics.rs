//! The figures of a cast as metrics: of a sender those of its display and its summary, of a receiver
//! that serves those that it tells its senders.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clearway_proto::broadcast::BroadcastRecord;
use clearway_proto::wire::Counters;

use super::message::{ReceiverOutcome, TargetAccess};
use super::peers::CastReceiver;
use super::summary::ReceiverState;
use crate::report::numerals::size;
use crate::run::metrics::{MetricLabels, MetricSheet, MetricSource, MetricTitle, MetricUnit};

const RECEIVERS: MetricTitle = MetricTitle {
    name: "cast_receivers",
    help: "Receivers by state; active are those that have not ended, parked those that get the rest later.",
    unit: MetricUnit::Number,
};
const RECEIVED: MetricTitle = MetricTitle {
    name: "cast_received",
    help: "Bytes that a receiver has taken.",
    unit: MetricUnit::Bytes,
};
const EXPECTED: MetricTitle = MetricTitle {
    name: "cast_expected",
    help: "Bytes that somebody lacks; 0 when nobody knows.",
    unit: MetricUnit::Bytes,
};
const SYMBOLS: MetricTitle = MetricTitle {
    name: "cast_symbols_sent",
    help: "Symbols that this host sent, those that it sent again among them.",
    unit: MetricUnit::Number,
};
const REPAIRS: MetricTitle = MetricTitle {
    name: "cast_symbols_repaired",
    help: "Symbols that this host sent because they were asked for again.",
    unit: MetricUnit::Number,
};
const DATAGRAMS: MetricTitle = MetricTitle {
    name: "cast_datagrams",
    help: "Datagrams of this host by what became of them: sent, received, dropped by its own queues or sockets, not of this cast.",
    unit: MetricUnit::Number,
};
const STALLS: MetricTitle = MetricTitle {
    name: "cast_send_stalls",
    help: "Sends that found no room in a queue of this host.",
    unit: MetricUnit::Number,
};
const ERRORS: MetricTitle = MetricTitle {
    name: "cast_network_errors",
    help: "System calls on the network that failed.",
    unit: MetricUnit::Number,
};
const SERVED: MetricTitle = MetricTitle {
    name: "cast_serve_casts",
    help: "Casts that came to this receiver, by how they ended.",
    unit: MetricUnit::Number,
};
const ACTIVE: MetricTitle = MetricTitle {
    name: "cast_serve_active_casts",
    help: "Casts that are under way at this receiver.",
    unit: MetricUnit::Number,
};
const TAKEN: MetricTitle = MetricTitle {
    name: "cast_serve_received",
    help: "Bytes that this receiver has taken.",
    unit: MetricUnit::Bytes,
};
const FILES: MetricTitle = MetricTitle {
    name: "cast_serve_files",
    help: "Files of casts that ended: complete, or failed.",
    unit: MetricUnit::Number,
};
const REFUSED: MetricTitle = MetricTitle {
    name: "cast_serve_refused_visitors",
    help: "Peers that did not show the key.",
    unit: MetricUnit::Number,
};

fn label(name: &'static str, value: &str) -> MetricLabels {
    vec![(name, value.to_owned())]
}

/// The figures of a sender; clones are the same figures.
#[derive(Clone, Debug, Default)]
pub(crate) struct CastMetrics(Arc<Mutex<CastSums>>);

#[derive(Debug, Default)]
struct CastSums {
    /// Name, state and bytes.
    receivers: Vec<(String, &'static str, u64)>,
    expected: u64,
    /// Of rounds that are over, and of the one that is under way.
    symbols: [BroadcastRecord; 2],
    datagrams: [Counters; 2],
}

impl CastMetrics {
    fn lock(&self) -> MutexGuard<'_, CastSums> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how receivers are.
    pub(super) fn note_receivers(&self, peers: &[CastReceiver]) {
        let one = |peer: &CastReceiver| {
            let state = ReceiverState::from_end(peer)
                .map_or(if peer.is_parked { "parked" } else { "active" }, ReceiverState::word);
            (peer.name.clone(), state, peer.bytes())
        };
        let receivers = peers.iter().map(one).collect();
        self.lock().receivers = receivers;
    }

    /// Notes how many bytes receivers will have.
    pub(super) fn note_expected(&self, bytes: u64) {
        self.lock().expected = bytes;
    }

    /// Notes what a round has counted so far.
    pub(super) fn note_traffic(&self, symbols: BroadcastRecord, datagrams: Counters) {
        let mut sums = self.lock();
        (sums.symbols[1], sums.datagrams[1]) = (symbols, datagrams);
    }

    /// Notes that a round is over: the next one counts from zero.
    pub(super) fn end_round(&self) {
        let mut sums = self.lock();
        let [before, last] = std::mem::take(&mut sums.symbols);
        sums.symbols[0].sent = before.sent + last.sent;
        sums.symbols[0].repairs = before.repairs + last.repairs;
        let [before, last] = std::mem::take(&mut sums.datagrams);
        sums.datagrams[0] = before + last;
    }
}

impl MetricSource for CastMetrics {
    fn write(&self, sheet: &mut MetricSheet<'_>) -> fmt::Result {
        let sums = self.lock();
        let mut states: BTreeMap<&str, u64> = BTreeMap::new();
        states.extend(["active", "parked"].map(|state| (state, 0)));
        states.extend(ReceiverState::ALL.map(|state| (state.word(), 0)));
        sums.receivers.iter().for_each(|(_, state, _)| *states.entry(state).or_default() += 1);
        sheet.gauges(
            &RECEIVERS,
            states.into_iter().map(|(state, count)| (label("state", state), count)),
        )?;
        let received = sums.receivers.iter();
        sheet.counters(
            &RECEIVED,
            received.map(|(name, _, bytes)| (label("receiver", name), *bytes)),
        )?;
        sheet.gauge(&EXPECTED, sums.expected)?;
        sheet.counter(&SYMBOLS, sums.symbols.iter().map(|record| record.sent).sum())?;
        sheet.counter(&REPAIRS, sums.symbols.iter().map(|record| record.repairs).sum())?;
        let [before, last] = sums.datagrams;
        let datagrams = before + last;
        let fates = [
            ("sent", datagrams.sent),
            ("received", datagrams.received),
            ("receive-dropped", datagrams.receive_overflow),
            ("transmit-dropped", datagrams.transmit_dropped),
            ("stranger", datagrams.strangers),
        ];
        sheet.counters(&DATAGRAMS, fates.map(|(fate, count)| (label("fate", fate), count)))?;
        sheet.counter(&STALLS, datagrams.no_room)?;
        sheet.counter(&ERRORS, datagrams.errors)
    }
}

/// What a receiver has done in one cast, while it lasts and when it is over.
#[derive(Debug, Default)]
pub(super) struct ReceiverFigures {
    /// Bytes that were taken.
    pub(super) taken: Arc<AtomicU64>,
    /// Nothing may be changed.
    looks: AtomicBool,
    outcome: Mutex<Option<ReceiverOutcome>>,
}

impl ReceiverFigures {
    /// Notes what the cast may do to the target.
    pub(super) fn begin(&self, access: TargetAccess) {
        self.looks.store(access == TargetAccess::Look, Ordering::Relaxed);
    }

    /// Returns how it ended, for a person; or that it did not.
    pub(super) fn sentence(&self) -> String {
        let bytes = size(self.taken.load(Ordering::Relaxed));
        match &*self.outcome.lock().unwrap_or_else(PoisonError::into_inner) {
            None => format!("broken off, {bytes}"),
            Some(_) if self.looks.load(Ordering::Relaxed) => "nothing changed, dry run".to_owned(),
            Some(outcome) => {
                let how = if outcome.is_complete() { "complete" } else { "incomplete" };
                let ReceiverOutcome { files, failed, removed, .. } = outcome;
                format!("{how}, {bytes}, files {files}, removed {removed}, failed {failed}")
            }
        }
    }

    /// Notes how it ended.
    pub(super) fn end(&self, outcome: &ReceiverOutcome) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome.clone());
    }
}

/// The figures of a receiver that serves; clones are the same figures.
#[derive(Clone, Debug, Default)]
pub(super) struct ServeMetrics(Arc<Mutex<ServeSums>>);

#[derive(Debug, Default)]
struct ServeSums {
    active: Vec<Arc<ReceiverFigures>>,
    complete: u64,
    incomplete: u64,
    broken: u64,
    taken: u64,
    files: u64,
    files_failed: u64,
    refused: u64,
}

impl ServeMetrics {
    fn lock(&self) -> MutexGuard<'_, ServeSums> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a peer without the key.
    pub(super) fn refuse(&self) {
        self.lock().refused += 1;
    }

    /// Notes that a cast begins; its figures are to be kept in what this returns.
    pub(super) fn begin(&self) -> Arc<ReceiverFigures> {
        let figures = Arc::new(ReceiverFigures::default());
        self.lock().active.push(Arc::clone(&figures));
        figures
    }

    /// Notes that the cast with these figures is over.
    pub(super) fn end(&self, figures: &Arc<ReceiverFigures>) {
        let mut sums = self.lock();
        sums.active.retain(|active| !Arc::ptr_eq(active, figures));
        sums.taken += figures.taken.load(Ordering::Relaxed);
        match &*figures.outcome.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(outcome) => {
                sums.files += outcome.files;
                sums.files_failed += outcome.failed;
                *(if outcome.is_complete() { &mut sums.complete } else { &mut sums.incomplete }) +=
                    1;
            }
            None => sums.broken += 1,
        }
    }
}

impl MetricSource for ServeMetrics {
    fn write(&self, sheet: &mut MetricSheet<'_>) -> fmt::Result {
        let sums = self.lock();
        let casts = [
            ("complete", sums.complete),
            ("incomplete", sums.incomplete),
            ("broken-off", sums.broken),
        ];
        sheet.counters(&SERVED, casts.map(|(end, count)| (label("end", end), count)))?;
        sheet.gauge(&ACTIVE, sums.active.len() as u64)?;
        let active = sums.active.iter().map(|figures| figures.taken.load(Ordering::Relaxed));
        sheet.counter(&TAKEN, sums.taken + active.sum::<u64>())?;
        let files = [("complete", sums.files), ("failed", sums.files_failed)];
        sheet.counters(&FILES, files.map(|(end, count)| (label("end", end), count)))?;
        sheet.counter(&REFUSED, sums.refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_round__what_the_next_round_counts_comes_on_top() {
        let metrics = CastMetrics::default();
        let symbols =
            |sent, repairs| BroadcastRecord { sent, repairs, ..BroadcastRecord::default() };
        let datagrams = |sent| Counters { sent, ..Counters::default() };
        metrics.note_traffic(symbols(5, 1), datagrams(7));
        metrics.note_traffic(symbols(50, 10), datagrams(70));
        metrics.end_round();
        metrics.note_traffic(symbols(3, 2), datagrams(4));
        let sums = metrics.lock();
        let [before, now] = sums.symbols;
        assert_eq!((before.sent + now.sent, before.repairs + now.repairs), (53, 12));
        assert_eq!((sums.datagrams[0] + sums.datagrams[1]).sent, 74);
    }

    #[test]
    fn end__a_cast_counts_by_how_it_ended_and_its_bytes_stay() {
        let metrics = ServeMetrics::default();
        // The third is of a sender that was interrupted.
        let ends = [Some([0, 0]), Some([2, 0]), Some([0, 1]), None];
        for (bytes, end) in (10..).zip(ends) {
            let figures = metrics.begin();
            figures.taken.store(bytes, Ordering::Relaxed);
            if let Some([failed, unsent]) = end {
                let outcome =
                    ReceiverOutcome { files: 1, failed, unsent, ..ReceiverOutcome::default() };
                figures.end(&outcome);
                assert_eq!(figures.sentence().starts_with("complete"), failed + unsent == 0);
            }
            metrics.end(&figures);
        }
        let sums = metrics.lock();
        assert_eq!((sums.complete, sums.incomplete, sums.broken), (1, 2, 1));
        assert_eq!((sums.taken, sums.files, sums.files_failed), (46, 3, 2));
        assert!(sums.active.is_empty());
    }
}
