//! A builder's way out: complete timeslices go to a sink in the builder's order, and their room is
//! given back afterwards.
//!
//! # Model
//! A sink may wait, for a disk or for a consumer, so a thread of its own serves it. A timeslice is
//! copied for it, and released only when the sink has it: until then its inputs can be asked for it
//! again. A few are under way to the sink; all others wait in the rings, and full rings hold the
//! inputs back. So a slow sink slows its builder's inputs down, and loses nothing.
//!
//! A builder's order is that of numbers, but for what it inherited of builders that are out: so of
//! a builder that is out itself as many timeslices count as the decision says, and those are the
//! first that its sink took.
//!
//! # Invariants
//! I1. A timeslice is released once the sink has taken it, never before.
//! I2. One that is complete waits for those before it in the builder's order that are not.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;

use anyhow::{Context, Result};
use clearway_proto::archive::{
    Component, ComponentDescriptor, TimesliceDescriptor, TimesliceFlags,
};
use clearway_proto::base::{LocalNs, Nanos};
use clearway_proto::microslice::{CutFaults, MicrosliceDescriptor, MicrosliceFlags, SliceRule};

use super::contribution::ContributionHead;
use super::ledger::BuiltCounts;
use super::messages::{SinkKind, TimesliceResult};
use super::sink::{self, TimesliceSink};
use crate::mechanism::timeslice::archive::UnfinishedFile;

/// Timeslices under way to a sink: one that it works on, one that waits, so that neither waits for
/// the other.
const UNDER_WAY_MAX: usize = 2;

/// A timeslice as it leaves its builder: what each input gave lies one behind the other.
#[derive(Debug, Default)]
pub(super) struct OutgoingTimeslice {
    pub(super) timeslice: u64,
    /// How many its builder gave before it.
    pub(super) position: u64,
    bytes: Vec<u8>,
    /// The end of each input's part; as long as the one before where there is none.
    ends: Vec<usize>,
}

/// A timeslice as an archive has it, and what there is of each input.
#[derive(Debug)]
pub(super) struct DescribedTimeslice<'a> {
    pub(super) descriptor: TimesliceDescriptor,
    pub(super) components: Vec<Component<'a>>,
    pub(super) inputs: Vec<BuiltCounts>,
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
        let mut flags = TimesliceFlags::default();
        let (mut times, mut core_microslices) = (None, None);
        let mut inputs = Vec::with_capacity(self.ends.len());
        let component = |bytes| {
            let contribution = ContributionHead::parse(bytes);
            let (head, data) = contribution.unwrap_or((ContributionHead::NONE, &[][..]));
            inputs.push(BuiltCounts {
                microslices: u64::from(head.core),
                absent: u64::from(bytes.is_empty()),
                corrupt: u64::from(contribution.is_none() && !bytes.is_empty()),
            });
            let own = flags_of(head, data);
            flags.0 |= own.0;
            if head.microslices == 0 {
                flags.0 |= TimesliceFlags::MISSING_COMPONENTS.0;
            } else {
                core_microslices.get_or_insert(head.core);
            }
            times = times.or_else(|| time_of(head, data, slices));
            let descriptor = ComponentDescriptor {
                timeslice: self.timeslice,
                offset: 0,
                size: data.len() as u64,
                microslices: u64::from(head.microslices),
                flags: own,
            };
            Component { descriptor, data }
        };
        let components: Vec<_> = self.contributions().map(component).collect();
        let (start_ns, duration_ns) = times.unwrap_or_default();
        let core_microslices = match slices {
            SliceRule::ByIndex { core, .. } => core,
            SliceRule::ByTime(_) => core_microslices.unwrap_or(0),
        };
        let descriptor = TimesliceDescriptor {
            index: self.timeslice,
            start_ns,
            duration_ns,
            flags,
            position: self.position,
            core_microslices,
            components: components.len() as u32,
        };
        DescribedTimeslice { descriptor, components, inputs }
    }
}

/// Returns what a component lacks.
fn flags_of(head: ContributionHead, data: &[u8]) -> TimesliceFlags {
    let (descriptors, _) = data.as_chunks::<{ MicrosliceDescriptor::BYTES }>();
    let mut descriptors =
        descriptors.iter().take(head.microslices as usize).map(MicrosliceDescriptor::from_bytes);
    let is_cut_off =
        descriptors.any(|descriptor| descriptor.flags.has(MicrosliceFlags::OVERFLOW_READOUT));
    let found = [
        (head.faults.has(CutFaults::MISSING), TimesliceFlags::MISSING_MICROSLICES),
        (head.faults.has(CutFaults::REPEATED), TimesliceFlags::REPEATED_MICROSLICES),
        (head.faults.has(CutFaults::LATE), TimesliceFlags::LATE_MICROSLICES),
        (is_cut_off, TimesliceFlags::OVERFLOW_READOUT),
    ];
    let found = found.iter().filter(|(is_found, _)| *is_found);
    TimesliceFlags(found.fold(0, |all, (_, flag)| all | flag.0))
}

/// Returns when a timeslice starts and how long it is, as far as this contribution tells. By index
/// that is the time of the microslices that are no overlap.
fn time_of(head: ContributionHead, data: &[u8], slices: SliceRule) -> Option<(u64, u64)> {
    if let SliceRule::ByTime(times) = slices {
        return Some((head.start?, times.duration.0));
    }
    let (descriptors, _) = data.as_chunks::<{ MicrosliceDescriptor::BYTES }>();
    let descriptors = descriptors.get(..head.microslices as usize)?;
    let start_of =
        |number: usize| Some(MicrosliceDescriptor::from_bytes(descriptors.get(number)?).index);
    let core = head.core as usize;
    let (start, last) = (start_of(0)?, start_of(core.checked_sub(1)?)?);
    let length = match start_of(core) {
        Some(end) => end.wrapping_sub(start),
        // The time from the last microslice to the next one is that from the one before it.
        None => {
            let before = core.checked_sub(2).and_then(start_of).unwrap_or(last);
            last.wrapping_sub(start).wrapping_add(last.wrapping_sub(before))
        }
    };
    Some((start, length))
}

/// What the thread says.
enum OutletEvent {
    /// The sink has it; its memory can be used again.
    Taken(OutgoingTimeslice),
    /// All is done.
    Over(Box<TimesliceResult>),
    Failed(String),
}

/// A builder's way out.
pub(super) struct BuilderOutput {
    /// None when there will be no more.
    work: Option<Sender<OutgoingTimeslice>>,
    reported: Receiver<OutletEvent>,
    wake_signal: UnixStream,
    /// Held, so that the signal is silent and not at its end when the thread is over.
    _waker: UnixStream,
    /// Complete, and not under way: by position in the builder's order.
    complete: BTreeMap<u64, u64>,
    under_way: usize,
    /// Memory of timeslices that are over.
    spare: Vec<OutgoingTimeslice>,
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

/// What came back from the sink.
pub(super) enum SinkReturn {
    /// A timeslice can be released.
    Release(u64),
    /// All is where it must be.
    Over(Box<TimesliceResult>),
    /// It cannot go on, and why.
    Failed(String),
    Nothing,
}

impl BuilderOutput {
    /// Opens the way to the sink of `kind` of the builder at `place`.
    ///
    /// # Errors
    /// When the sink cannot be opened.
    pub(super) fn open(kind: &SinkKind, place: u64, slices: SliceRule) -> Result<Self> {
        let (mut taker, unfinished) = sink::open(kind, place, slices)?;
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
                let say = |what: OutletEvent| {
                    let is_heard = sender.send(what).is_ok();
                    // A socket that is full wakes whoever sleeps as well.
                    let _ = (&waker).write(&[1]);
                    is_heard
                };
                say(serve(&mut *taker, &given, &|built| say(OutletEvent::Taken(built))));
            })
            .context("a thread for the sink")?;
        let (complete, spare) = (BTreeMap::new(), Vec::new());
        let work = Some(work);
        Ok(Self {
            work,
            reported,
            wake_signal,
            _waker: own,
            complete,
            under_way: 0,
            spare,
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

    /// Returns what can be read when there may be more to do.
    pub(super) const fn wake_signal(&self) -> &UnixStream {
        &self.wake_signal
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
        (self.looked, self.was_behind) =
            (now, self.under_way == UNDER_WAY_MAX && !self.complete.is_empty());
    }

    /// Returns how long complete timeslices waited for the sink since the last call.
    pub(super) fn take_behind(&mut self) -> Nanos {
        std::mem::take(&mut self.behind)
    }

    /// Handles `timeslice`, which stands at `position` and is complete.
    pub(super) fn complete(&mut self, position: u64, timeslice: u64) {
        self.complete.insert(position, timeslice);
    }

    /// Returns the next timeslice that is to leave, all before the position `row` being complete,
    /// and memory for it.
    pub(super) fn next(&mut self, row: u64) -> Option<OutgoingTimeslice> {
        if self.under_way == UNDER_WAY_MAX {
            return None;
        }
        let timeslice = self.complete.first_entry().filter(|first| *first.key() < row)?.remove();
        let mut built = self.spare.pop().unwrap_or_default();
        (built.timeslice, built.position) = (timeslice, self.position);
        self.position += 1;
        built.bytes.clear();
        built.ends.clear();
        Some(built)
    }

    /// Lets `built` leave.
    pub(super) fn hand_over(&mut self, built: OutgoingTimeslice) {
        self.under_way += 1;
        if let Some(work) = &self.work {
            // A thread that has ended said why.
            let _ = work.send(built);
        }
    }

    /// Ends the output: there will be no more timeslices.
    pub(super) fn end(&mut self) {
        self.work = None;
    }

    /// Returns what the sink says, without waiting.
    pub(super) fn next_event(&mut self) -> SinkReturn {
        match self.reported.try_recv() {
            Ok(OutletEvent::Taken(built)) => {
                self.under_way -= 1;
                self.taken += 1;
                let timeslice = built.timeslice;
                self.spare.push(built);
                SinkReturn::Release(timeslice)
            }
            Ok(OutletEvent::Over(account)) => SinkReturn::Over(account),
            Ok(OutletEvent::Failed(sentence)) => SinkReturn::Failed(sentence),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => SinkReturn::Nothing,
        }
    }
}

/// Gives `taker` everything that is given, and says so, until there is no more.
fn serve(
    taker: &mut dyn TimesliceSink,
    given: &Receiver<OutgoingTimeslice>,
    taken: &dyn Fn(OutgoingTimeslice) -> bool,
) -> OutletEvent {
    for built in given {
        if let Err(error) = taker.take(&built) {
            return OutletEvent::Failed(format!("{error:#}"));
        }
        if !taken(built) {
            break;
        }
    }
    match taker.finish() {
        Ok(account) => OutletEvent::Over(Box::new(account)),
        Err(error) => OutletEvent::Failed(format!("{error:#}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::contribution::tests::contribution;
    use super::*;
    use clearway_proto::microslice::TimeRule;

    fn built(parts: &[Vec<u8>]) -> OutgoingTimeslice {
        let mut built =
            OutgoingTimeslice { timeslice: 4, position: 1, ..OutgoingTimeslice::default() };
        parts.iter().for_each(|part| built.push(part));
        built
    }

    fn with_faults(mut contribution: Vec<u8>, faults: CutFaults) -> Vec<u8> {
        contribution[16] = faults.0 as u8;
        contribution
    }

    #[test]
    fn described__what_an_input_lacks_is_marked() {
        let short = with_faults(contribution(&[8], 0), CutFaults::MISSING);
        let built = built(&[contribution(&[8, 8, 8], 1), short, Vec::new()]);
        let slices = SliceRule::ByIndex { core: 2, overlap: 1 };
        let DescribedTimeslice { descriptor, components, inputs } = built.described(slices);
        assert_eq!(inputs.iter().map(|it| it.microslices).collect::<Vec<_>>(), [2, 1, 0]);
        assert_eq!(inputs.iter().map(|it| it.absent).collect::<Vec<_>>(), [0, 0, 1]);
        assert_eq!(
            components.iter().map(|it| it.descriptor.microslices).collect::<Vec<_>>(),
            [3, 1, 0]
        );
        assert_eq!((descriptor.start_ns, descriptor.duration_ns), (100, 20));
        assert_eq!(descriptor.flags.0, 1 | 4);
        let incomplete = components.iter().map(|it| it.descriptor.flags.is_incomplete());
        assert_eq!(incomplete.collect::<Vec<_>>(), [false, true, true]);
    }

    #[test]
    fn described__by_index_a_short_last_timeslice_says_how_long_it_is() {
        let time = |sizes: &[u32], core| {
            let short = with_faults(contribution(sizes, 0), CutFaults::MISSING);
            let built = built(&[short]);
            let descriptor = built.described(SliceRule::ByIndex { core, overlap: 0 }).descriptor;
            (descriptor.start_ns, descriptor.duration_ns)
        };
        assert_eq!(time(&[8, 8, 8], 5), (100, 30));
        assert_eq!(time(&[8], 5), (100, 0), "one microslice alone tells no time");
    }

    #[test]
    fn described__by_time_the_stretch_is_that_of_the_rule_even_where_all_is_missing() {
        let head = ContributionHead { start: Some(500), ..ContributionHead::NONE };
        let built = built(&[Vec::new(), head.to_bytes().to_vec()]);
        let times = TimeRule {
            duration: Nanos(100),
            before: Nanos(0),
            after: Nanos(0),
            max_gap: Nanos(0),
            silence: None,
            step: None,
        };
        let DescribedTimeslice { descriptor, components, .. } =
            built.described(SliceRule::ByTime(times));
        assert_eq!((descriptor.start_ns, descriptor.duration_ns), (500, 100));
        assert!(components.iter().all(|it| it.descriptor.flags.is_incomplete()));
    }

    #[test]
    fn described__what_the_readout_cut_off_is_marked() {
        let mut cut = contribution(&[8, 8], 0);
        cut[ContributionHead::BYTES + MicrosliceDescriptor::BYTES + 4] =
            MicrosliceFlags::OVERFLOW_READOUT.0 as u8;
        let built = built(&[contribution(&[8, 8], 0), cut]);
        let DescribedTimeslice { descriptor, components, .. } =
            built.described(SliceRule::ByIndex { core: 2, overlap: 0 });
        let flags = components.iter().map(|it| it.descriptor.flags.0);
        assert_eq!((descriptor.flags.0, flags.collect::<Vec<_>>()), (2, vec![0, 2]));
    }
}
