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
use clearway_proto::microslice::{MicrosliceDescriptor, MicrosliceFlags};

use super::messages::{SinkKind, TimesliceResult, TimesliceShape};
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

impl OutgoingTimeslice {
    /// Adds one more input's contribution.
    pub(super) fn push(&mut self, contribution: &[u8]) {
        // A byte is what an input gives that has no microslices left.
        if contribution.len() > 1 {
            self.bytes.extend_from_slice(contribution);
        }
        self.ends.push(self.bytes.len());
    }

    /// Returns it as an archive has it.
    pub(super) fn described(
        &self,
        shape: TimesliceShape,
    ) -> (TimesliceDescriptor, Vec<Component<'_>>) {
        let mut flags = TimesliceFlags::default();
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        let mut times: Option<(u64, u64)> = None;
        let component = |(begin, end): (usize, usize)| {
            let data = self.bytes.get(begin..end).unwrap_or_default();
            let microslices = count(data, shape);
            let short = microslices < shape.all();
            let mut own =
                if short { TimesliceFlags::MISSING_MICROSLICES } else { TimesliceFlags::default() };
            own.0 |=
                if is_cut_off(data, microslices) { TimesliceFlags::OVERFLOW_READOUT.0 } else { 0 };
            flags.0 |=
                own.0 | if microslices == 0 { TimesliceFlags::MISSING_COMPONENTS.0 } else { 0 };
            times = times.or_else(|| time_of(data, microslices, shape));
            let (timeslice, size) = (self.timeslice, data.len() as u64);
            Component {
                descriptor: ComponentDescriptor {
                    timeslice,
                    offset: 0,
                    size,
                    microslices,
                    flags: own,
                },
                data,
            }
        };
        let components: Vec<_> = begins.zip(self.ends.iter().copied()).map(component).collect();
        let (start_ns, duration_ns) = times.unwrap_or_default();
        let descriptor = TimesliceDescriptor {
            index: self.timeslice,
            start_ns,
            duration_ns,
            flags,
            position: self.position,
            core_microslices: shape.core,
            components: components.len() as u32,
        };
        (descriptor, components)
    }
}

/// Returns how many microslices `data` are: descriptors, and behind them as many bytes as these
/// say. None where they do not fit: then it is no contribution.
fn count(data: &[u8], shape: TimesliceShape) -> u64 {
    let (descriptors, _) = data.as_chunks::<{ MicrosliceDescriptor::BYTES }>();
    let mut length = 0;
    for (descriptor, number) in descriptors.iter().zip(1..=shape.all()) {
        length += MicrosliceDescriptor::BYTES as u64
            + u64::from(MicrosliceDescriptor::from_bytes(descriptor).size);
        if length == data.len() as u64 {
            return number;
        }
        if length > data.len() as u64 {
            break;
        }
    }
    0
}

/// Returns whether the readout cut a content of the microslices off that `data` begin with.
fn is_cut_off(data: &[u8], microslices: u64) -> bool {
    let (descriptors, _) = data.as_chunks::<{ MicrosliceDescriptor::BYTES }>();
    let mut descriptors =
        descriptors.iter().take(microslices as usize).map(MicrosliceDescriptor::from_bytes);
    descriptors.any(|descriptor| descriptor.flags.has(MicrosliceFlags::OVERFLOW_READOUT))
}

/// Returns when the microslices that `data` begin with start, and how long those take that are no
/// overlap, as far as they tell.
fn time_of(data: &[u8], microslices: u64, shape: TimesliceShape) -> Option<(u64, u64)> {
    let (descriptors, _) = data.as_chunks::<{ MicrosliceDescriptor::BYTES }>();
    let index = |number: u64| {
        let descriptor = descriptors.get(number as usize).filter(|_| number < microslices)?;
        Some(MicrosliceDescriptor::from_bytes(descriptor).index)
    };
    let (start, core) = (index(0)?, u64::from(shape.core));
    let step = |last: u64| Some(index(last)?.wrapping_sub(index(last.checked_sub(1)?)?));
    let length = match index(core) {
        Some(end) => end.wrapping_sub(start),
        // The time from the last microslice to the next one is that from the one before it.
        None => index(core - 1)
            .zip(step(core - 1))
            .map_or(0, |(last, step)| last.wrapping_sub(start).wrapping_add(step)),
    };
    Some((start, length))
}

/// What the thread says.
enum OutletEvent {
    /// The sink has it; its memory can be used again.
    Taken(OutgoingTimeslice),
    /// All is done.
    Over(TimesliceResult),
    Failed(String),
}

/// A builder's way out.
pub(super) struct BuilderOutput {
    /// None when there will be no more.
    work: Option<Sender<OutgoingTimeslice>>,
    told: Receiver<OutletEvent>,
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
    /// The archive, where the sink writes one that nobody has kept; without an order to keep it
    /// goes with this.
    unfinished: Option<UnfinishedFile>,
}

/// What came back from the sink.
pub(super) enum SinkReturn {
    /// A timeslice can be released.
    Release(u64),
    /// All is where it must be.
    Over(TimesliceResult),
    /// It cannot go on, and why.
    Failed(String),
    Nothing,
}

impl BuilderOutput {
    /// Opens the way to the sink of `kind` of the builder at `place`.
    ///
    /// # Errors
    /// When the sink cannot be opened.
    pub(super) fn open(kind: &SinkKind, place: u64, shape: TimesliceShape) -> Result<Self> {
        let (mut taker, unfinished) = sink::open(kind, place, shape)?;
        let (work, given) = channel::<OutgoingTimeslice>();
        let (sender, told) = channel();
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
            told,
            wake_signal,
            _waker: own,
            complete,
            under_way: 0,
            spare,
            taken: 0,
            position: 0,
            unfinished,
        })
    }

    /// Returns what the archive is called that is not kept yet.
    pub(super) fn unfinished(&self) -> Option<String> {
        self.unfinished.as_ref().map(|unfinished| unfinished.name().display().to_string())
    }

    /// Gives the archive, if there is one, the name that it shall have.
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

    /// Handles `timeslice`, which stands at `position` and is complete.
    pub(super) fn complete(&mut self, position: u64, timeslice: u64) {
        self.complete.insert(position, timeslice);
    }

    /// Returns the next timeslice that shall leave, all before the position `row` being complete,
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
        match self.told.try_recv() {
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
    taker.finish().map_or_else(|error| OutletEvent::Failed(format!("{error:#}")), OutletEvent::Over)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns `sizes` as a contribution whose microslices begin at 100, 110, ...
    fn contribution(sizes: &[u32]) -> Vec<u8> {
        let head = |(size, number): (&u32, u64)| MicrosliceDescriptor {
            size: *size,
            index: 100 + 10 * number,
            ..MicrosliceDescriptor::from_bytes(&[0; MicrosliceDescriptor::BYTES])
        };
        let heads = sizes.iter().zip(0..).flat_map(|size| head(size).to_bytes());
        heads.chain(std::iter::repeat_n(7, sizes.iter().sum::<u32>() as usize)).collect()
    }

    #[test]
    fn count__is_found_from_the_sizes_alone() {
        let shape = TimesliceShape { core: 3, overlap: 1 };
        for sizes in [&[5, 0, 9, 1][..], &[64], &[0, 0]] {
            assert_eq!(count(&contribution(sizes), shape), sizes.len() as u64);
        }
        let whole = contribution(&[5, 6]);
        assert_eq!(count(&whole[..whole.len() - 1], shape), 0, "cut");
        assert_eq!(count(&contribution(&[1; 5]), shape), 0, "more than there can be");
        assert_eq!(count(&[], shape), 0);
    }

    #[test]
    fn described__what_an_input_lacks_is_marked() {
        let shape = TimesliceShape { core: 2, overlap: 1 };
        let mut built =
            OutgoingTimeslice { timeslice: 4, position: 1, ..OutgoingTimeslice::default() };
        [contribution(&[8, 8, 8]), contribution(&[8]), vec![0]]
            .iter()
            .for_each(|part| built.push(part));
        let (descriptor, components) = built.described(shape);
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
    fn described__what_the_readout_cut_off_is_marked() {
        let shape = TimesliceShape { core: 2, overlap: 0 };
        let mut cut = contribution(&[8, 8]);
        cut[MicrosliceDescriptor::BYTES + 4] = MicrosliceFlags::OVERFLOW_READOUT.0 as u8;
        let mut built =
            OutgoingTimeslice { timeslice: 4, position: 1, ..OutgoingTimeslice::default() };
        [contribution(&[8, 8]), cut].iter().for_each(|part| built.push(part));
        let (descriptor, components) = built.described(shape);
        let flags = components.iter().map(|it| it.descriptor.flags.0);
        assert_eq!((descriptor.flags.0, flags.collect::<Vec<_>>()), (2, vec![0, 2]));
    }
}
