//! A builder's way out: complete timeslices go to a sink in the builder's order, and their room is
//! given back afterwards.
//!
//! # Model
//! A sink that may wait, for a disk or for a consumer, has a thread of its own. A timeslice is copied
//! for it, and released only when the sink has it: until then its inputs can be asked for it again.
//! A few are under way to the sink; all others wait in the rings, and full rings hold the inputs
//! back. So a slow sink slows its builder's inputs down, and loses nothing. A sink that never waits
//! looks at timeslices where they lie, which costs no more than that copy.
//!
//! A builder's order is that of numbers, but for what it inherited of builders that are out: so of
//! a builder that is out itself as many timeslices count as the decision says, and those are the
//! first that its sink took.
//!
//! # Invariants
//! I1. A timeslice is released once the sink has taken it, never before.
//! I2. One that is complete waits for those before it in the builder's order that are not.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;

use anyhow::{Context, Result};
use clearway_proto::base::{LocalNs, Nanos};
use clearway_proto::microslice::SliceRule;

use super::described::{DescribedTimeslice, TimeslicePlace};
use super::messages::{SinkKind, TimesliceResult};
use super::sink::{self, TimesliceSink};
use crate::mechanism::timeslice::archive::UnfinishedFile;

/// Timeslices under way to a sink: one that it works on, one that waits, so that neither waits for
/// the other.
const UNDER_WAY_MAX: usize = 2;

/// What comes from the sink.
pub(super) enum SinkEvent {
    /// The sink has this timeslice, which can be released.
    Taken(u64),
    /// All is where it must be.
    Over(Box<TimesliceResult>),
    /// It cannot go on, and why.
    Failed(String),
}

/// A builder's way out.
pub(super) struct BuilderOutput {
    slices: SliceRule,
    outlet: Outlet,
    /// Complete, and not under way: by position in the builder's order.
    complete: BTreeMap<u64, u64>,
    /// Timeslices that the sink has taken.
    taken: u64,
    position: u64,
    /// When somebody looked last, and how long complete timeslices waited for the sink since the
    /// last report.
    looked: LocalNs,
    behind: Nanos,
    was_behind: bool,
    /// The archive, where the sink writes one that nobody has kept; without an order to keep it
    /// goes with this.
    unfinished: Option<UnfinishedFile>,
}

/// Where the sink works.
enum Outlet {
    /// On a thread of its own, because it may wait.
    Thread(SinkThread),
    /// Here; `None` when there will be no more timeslices.
    Here { sink: Option<Box<dyn TimesliceSink>>, events: VecDeque<SinkEvent> },
}

impl BuilderOutput {
    /// Opens the way to the sink of `kind` of the builder at `place`.
    ///
    /// # Errors
    /// When the sink cannot be opened.
    pub(super) fn open(kind: &SinkKind, place: u64, slices: SliceRule) -> Result<Self> {
        let (sink, unfinished) = sink::open(kind, place)?;
        let outlet = match kind {
            SinkKind::Check => Outlet::Here { sink: Some(sink), events: VecDeque::new() },
            _ => Outlet::Thread(SinkThread::spawn(sink, slices)?),
        };
        Ok(Self {
            slices,
            outlet,
            complete: BTreeMap::new(),
            taken: 0,
            position: 0,
            looked: LocalNs(0),
            behind: Nanos::ZERO,
            was_behind: false,
            unfinished,
        })
    }

    /// Returns what the archive is called that is not kept yet.
    pub(super) fn unfinished(&self) -> Option<String> {
        self.unfinished.as_ref().map(|unfinished| unfinished.name().display().to_string())
    }

    /// Gives the archive, if there is one, its final name.
    ///
    /// # Errors
    /// As [`UnfinishedFile::keep`].
    pub(super) fn keep(&mut self) -> Result<()> {
        self.unfinished.take().map_or(Ok(()), UnfinishedFile::keep)
    }

    /// Returns what can be read when there may be more to do, where a thread says so.
    pub(super) const fn wake_signal(&self) -> Option<&UnixStream> {
        match &self.outlet {
            Outlet::Thread(thread) => Some(&thread.wake_signal),
            Outlet::Here { .. } => None,
        }
    }

    /// Returns how many timeslices the sink has taken.
    pub(super) const fn taken(&self) -> u64 {
        self.taken
    }

    /// Notes at `now` whether complete timeslices wait for the sink.
    pub(super) fn look(&mut self, now: LocalNs) {
        if self.was_behind {
            self.behind = self.behind + now.since(self.looked);
        }
        (self.looked, self.was_behind) = (now, !self.takes_more() && !self.complete.is_empty());
    }

    /// Returns how long complete timeslices waited for the sink since the last call.
    pub(super) fn take_behind(&mut self) -> Nanos {
        std::mem::take(&mut self.behind)
    }

    /// Handles `timeslice`, which stands at `position` and is complete.
    pub(super) fn complete(&mut self, position: u64, timeslice: u64) {
        self.complete.insert(position, timeslice);
    }

    /// Returns whether the sink takes a timeslice at once.
    fn takes_more(&self) -> bool {
        match &self.outlet {
            Outlet::Thread(thread) => thread.under_way < UNDER_WAY_MAX,
            Outlet::Here { sink, events } => sink.is_some() && events.is_empty(),
        }
    }

    /// Returns the next timeslice that is to leave, all before the position `row` being complete.
    pub(super) fn next(&mut self, row: u64) -> Option<u64> {
        if !self.takes_more() {
            return None;
        }
        Some(self.complete.first_entry().filter(|first| *first.key() < row)?.remove())
    }

    /// Lets `timeslice` leave, of which each input gave one of `parts`.
    pub(super) fn hand_over<'a>(&mut self, timeslice: u64, parts: impl Iterator<Item = &'a [u8]>) {
        let place = TimeslicePlace { timeslice, position: self.position };
        self.position += 1;
        match &mut self.outlet {
            Outlet::Thread(thread) => thread.give(place, parts),
            Outlet::Here { sink: Some(sink), events } => {
                let taken = sink.take(DescribedTimeslice::new(place, parts, self.slices));
                events.push_back(taken.map_or_else(
                    |error| SinkEvent::Failed(format!("{error:#}")),
                    |()| SinkEvent::Taken(timeslice),
                ));
            }
            Outlet::Here { sink: None, .. } => {}
        }
    }

    /// Ends the output: there will be no more timeslices.
    pub(super) fn end(&mut self) {
        match &mut self.outlet {
            Outlet::Thread(thread) => thread.work = None,
            Outlet::Here { sink, events } => {
                if let Some(mut sink) = sink.take() {
                    events.push_back(over(&mut *sink));
                }
            }
        }
    }

    /// Returns what the sink says, without waiting.
    pub(super) fn next_event(&mut self) -> Option<SinkEvent> {
        let event = match &mut self.outlet {
            Outlet::Thread(thread) => thread.next_event(),
            Outlet::Here { events, .. } => events.pop_front(),
        };
        self.taken += u64::from(matches!(event, Some(SinkEvent::Taken(_))));
        event
    }
}

/// A timeslice as it leaves its builder: what each input gave lies one behind the other.
#[derive(Debug, Default)]
pub(super) struct OutgoingTimeslice {
    place: TimeslicePlace,
    bytes: Vec<u8>,
    /// The end of each input's part; as long as the one before where there is none.
    ends: Vec<usize>,
}

impl OutgoingTimeslice {
    /// Adds one more input's contribution.
    pub(super) fn push(&mut self, contribution: &[u8]) {
        self.bytes.extend_from_slice(contribution);
        self.ends.push(self.bytes.len());
    }

    /// Returns what each input gave.
    fn contributions(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        let parts = begins.zip(self.ends.iter().copied());
        parts.map(|(begin, end)| self.bytes.get(begin..end).unwrap_or_default())
    }

    /// Returns it as an archive has it.
    pub(super) fn described(&self, slices: SliceRule) -> DescribedTimeslice<'_> {
        DescribedTimeslice::new(self.place, self.contributions(), slices)
    }
}

/// What the thread says.
enum ThreadEvent {
    /// The sink has it; its memory can be used again.
    Taken(OutgoingTimeslice),
    /// The sink is at its end.
    Last(SinkEvent),
}

/// A sink on a thread of its own.
struct SinkThread {
    /// None when there will be no more.
    work: Option<Sender<OutgoingTimeslice>>,
    reported: Receiver<ThreadEvent>,
    wake_signal: UnixStream,
    /// Held, so that the signal is silent and not at its end when the thread is over.
    _waker: UnixStream,
    under_way: usize,
    /// Memory of timeslices that are over.
    spare: Vec<OutgoingTimeslice>,
}

impl SinkThread {
    /// Starts the thread that serves `sink`.
    fn spawn(mut sink: Box<dyn TimesliceSink>, slices: SliceRule) -> Result<Self> {
        let (work, given) = channel::<OutgoingTimeslice>();
        let (sender, reported) = channel();
        let (wake_signal, waker) = UnixStream::pair().context("a way to wake this rank")?;
        wake_signal
            .set_nonblocking(true)
            .and_then(|()| waker.set_nonblocking(true))
            .context("a way to wake this rank")?;
        let own = waker.try_clone().context("a way to wake this rank")?;
        thread::Builder::new()
            .name("sink".into())
            .spawn(move || {
                let say = |what: ThreadEvent| {
                    let is_heard = sender.send(what).is_ok();
                    // A socket that is full wakes the rank as well.
                    let _ = (&waker).write(&[1]);
                    is_heard
                };
                let last =
                    serve(&mut *sink, slices, &given, &|built| say(ThreadEvent::Taken(built)));
                say(ThreadEvent::Last(last));
            })
            .context("a thread for the sink")?;
        let (work, spare) = (Some(work), Vec::new());
        Ok(Self { work, reported, wake_signal, _waker: own, under_way: 0, spare })
    }

    /// Gives the sink the timeslice at `place`.
    fn give<'a>(&mut self, place: TimeslicePlace, parts: impl Iterator<Item = &'a [u8]>) {
        let mut built = self.spare.pop().unwrap_or_default();
        built.place = place;
        built.bytes.clear();
        built.ends.clear();
        parts.for_each(|part| built.push(part));
        self.under_way += 1;
        if let Some(work) = &self.work {
            // A thread that has ended said why.
            let _ = work.send(built);
        }
    }

    fn next_event(&mut self) -> Option<SinkEvent> {
        match self.reported.try_recv() {
            Ok(ThreadEvent::Taken(built)) => {
                self.under_way -= 1;
                let timeslice = built.place.timeslice;
                self.spare.push(built);
                Some(SinkEvent::Taken(timeslice))
            }
            Ok(ThreadEvent::Last(event)) => Some(event),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => None,
        }
    }
}

/// Gives `sink` everything that is given, and says so, until there is no more; what it says last.
fn serve(
    sink: &mut dyn TimesliceSink,
    slices: SliceRule,
    given: &Receiver<OutgoingTimeslice>,
    taken: &dyn Fn(OutgoingTimeslice) -> bool,
) -> SinkEvent {
    for built in given {
        if let Err(error) = sink.take(built.described(slices)) {
            return SinkEvent::Failed(format!("{error:#}"));
        }
        if !taken(built) {
            break;
        }
    }
    over(sink)
}

/// Finishes `sink`; what it says of that.
fn over(sink: &mut dyn TimesliceSink) -> SinkEvent {
    match sink.finish() {
        Ok(result) => SinkEvent::Over(Box::new(result)),
        Err(error) => SinkEvent::Failed(format!("{error:#}")),
    }
}
