//! Gives an input microslices that a separate thread waits for and reads.
//!
//! # Model
//! The thread may wait: for a disk, or for the writer of a pipe.
//! The rank itself must not. The thread adds to a *batch*, and the rank takes the batch when it has
//! room. Batches are small while the rank keeps up, and large while it does not. While the batch is
//! full, the thread waits. A byte through a socket wakes a rank that found no batch.
//!
//! # Invariants
//! I1. Microslices that the rank has no room for stay here, then in the source. Only a detector
//!     drops microslices, and counts them.
//! I2. The rank can take every microslice that the source gave, even while the source waits.

use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clearway_proto::archive::{ArchiveKind, Item, Limits};
use clearway_proto::base::Nanos;
use clearway_proto::microslice::{Generator, MicrosliceDescriptor};

use crate::mechanism::timeslice::archive::{ArchiveSource, ITEM_BYTES_MAX, Locator, is_sent};

/// Bytes of a batch that makes its source wait: two of them stay in a second-level cache of today.
const BATCH: usize = 256 << 10;
/// Microslices of such a batch.
const BATCH_ITEMS: usize = 1 << 13;

/// Some microslices: their contents lie one behind the other.
#[derive(Debug, Default)]
pub(super) struct MicrosliceBatch {
    pub(super) descriptors: Vec<MicrosliceDescriptor>,
    pub(super) contents: Vec<u8>,
    /// How many the source dropped before the microslice at a place, or at the end.
    pub(super) dropped: VecDeque<(usize, u64)>,
}

impl MicrosliceBatch {
    /// Returns how many microslices there are from number `items` on, and how many were dropped of
    /// those of which it was not noted yet.
    pub(super) fn count_from(&self, items: usize) -> (u64, u64) {
        let dropped = self.dropped.iter().map(|(_, count)| count).sum();
        (self.descriptors.len().saturating_sub(items) as u64, dropped)
    }

    fn is_empty(&self) -> bool {
        self.descriptors.is_empty() && self.dropped.is_empty()
    }

    fn is_full(&self) -> bool {
        self.contents.len() >= BATCH || self.descriptors.len() >= BATCH_ITEMS
    }

    fn clear(&mut self) {
        self.descriptors.clear();
        self.contents.clear();
        self.dropped.clear();
    }
}

/// Gives microslices until there are no more; how many archives ended with a cut item.
type StreamProducer = Box<dyn FnOnce(&mut StreamSender) -> Result<u64> + Send>;

/// What comes out of a stream.
#[derive(Debug)]
pub(super) enum StreamItem {
    Some(MicrosliceBatch),
    /// Nothing yet.
    Nothing,
    /// There are no more.
    Over {
        /// Archives that ended with a cut item.
        cut: u64,
        /// Microslices that there were, dropped ones too.
        offered: u64,
    },
    /// It cannot go on, and why.
    Failed(String),
}

/// What both ends see.
#[derive(Debug, Default)]
struct StreamState {
    batch: MicrosliceBatch,
    /// Microslices that there were, dropped ones too.
    offered: u64,
    /// How the source ended; taken behind the last batch.
    last: Option<StreamItem>,
    /// The rank found nothing, and wants to know when there is something.
    is_awaited: bool,
    /// The time of a detector goes on.
    has_begun: bool,
    /// The rank is gone, or has turned to another run.
    is_closed: bool,
}

#[derive(Debug)]
struct SharedStream {
    state: Mutex<StreamState>,
    /// The batch was taken, the time of a detector begins, or the rank is gone.
    changed: Condvar,
    waker: UnixStream,
}

impl SharedStream {
    fn lock(&self) -> MutexGuard<'_, StreamState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go, and wakes the rank if it waits for something that is there now.
    fn unlock(&self, mut state: MutexGuard<'_, StreamState>) {
        let wakes = std::mem::take(&mut state.is_awaited);
        drop(state);
        if wakes {
            // A socket that is full wakes a rank as well.
            let _ = (&self.waker).write(&[1]);
        }
    }
}

/// The rank's end.
#[derive(Debug)]
pub(super) struct SourceStream {
    shared: Arc<SharedStream>,
    wake_signal: UnixStream,
    is_live: bool,
    /// Memory for the next batch.
    spare: MicrosliceBatch,
}

impl SourceStream {
    /// Begins to give what a detector makes with `generator`, `most` microslices at most.
    ///
    /// # Errors
    /// When there is no thread for it.
    pub(super) fn from_detector(
        generator: Generator,
        most: Option<u64>,
        pace: Pace,
    ) -> Result<Self> {
        Self::spawn(true, Box::new(move |sender| detect(&generator, most, pace, sender)))
    }

    /// Begins to read the archives that `template` names, `most` microslices of them at most.
    ///
    /// # Errors
    /// When they have no name that can be read, or there is no thread for it.
    pub(super) fn from_archives(template: String, most: Option<u64>) -> Result<Self> {
        let is_live = is_sent_in(&template)?;
        Self::spawn(is_live, Box::new(move |sender| read(&template, most, sender)))
    }

    /// Starts the thread that does `work`.
    fn spawn(is_live: bool, work: StreamProducer) -> Result<Self> {
        let (mut sender, stream) = Self::pair_for(is_live)?;
        thread::Builder::new()
            .name("source".into())
            .spawn(move || {
                let outcome = work(&mut sender);
                sender.end(outcome);
            })
            .context("a thread for the source")?;
        Ok(stream)
    }

    /// Returns both ends of a stream.
    fn pair_for(is_live: bool) -> Result<(StreamSender, Self)> {
        let (wake_signal, waker) = UnixStream::pair().context("a way to wake this rank")?;
        wake_signal
            .set_nonblocking(true)
            .and_then(|()| waker.set_nonblocking(true))
            .context("a way to wake this rank")?;
        let shared =
            Arc::new(SharedStream { state: Mutex::default(), changed: Condvar::new(), waker });
        let spare = MicrosliceBatch::default();
        Ok((StreamSender(Arc::clone(&shared)), Self { shared, wake_signal, is_live, spare }))
    }

    /// Returns both ends of the stream of a detector, for tests whose time is virtual.
    #[cfg(test)]
    pub(super) fn pair() -> Result<(StreamSender, Self)> {
        Self::pair_for(true)
    }

    /// Lets the time of a detector begin.
    pub(super) fn begin(&self) {
        self.shared.lock().has_begun = true;
        self.shared.changed.notify_all();
    }

    /// Returns whether microslices come as they are taken, so that a silence of the source is one
    /// of the experiment.
    pub(super) const fn is_live(&self) -> bool {
        self.is_live
    }

    /// Returns how many microslices wait to be drawn, and how many were dropped since the last
    /// draw.
    pub(super) fn waiting(&self) -> (u64, u64) {
        self.shared.lock().batch.count_from(0)
    }

    /// Returns the next batch, without waiting.
    pub(super) fn draw(&mut self) -> StreamItem {
        let mut state = self.shared.lock();
        if state.batch.is_empty() {
            return state.last.take().unwrap_or_else(|| {
                state.is_awaited = true;
                StreamItem::Nothing
            });
        }
        let batch = std::mem::replace(&mut state.batch, std::mem::take(&mut self.spare));
        drop(state);
        self.shared.changed.notify_all();
        StreamItem::Some(batch)
    }

    /// Gives a batch back, so that its memory is used again.
    pub(super) fn done_with(&mut self, mut batch: MicrosliceBatch) {
        batch.clear();
        self.spare = batch;
    }

    /// Returns what can be read when there may be another batch.
    pub(super) const fn wake_signal(&self) -> &UnixStream {
        &self.wake_signal
    }
}

impl Drop for SourceStream {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.changed.notify_all();
    }
}

impl AsFd for SourceStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake_signal.as_fd()
    }
}

/// The rank is gone, or has turned to another run.
#[derive(Debug)]
struct StreamClosed;

impl std::fmt::Display for StreamClosed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("nobody wants more microslices")
    }
}

impl std::error::Error for StreamClosed {}

/// The thread's end.
pub(super) struct StreamSender(Arc<SharedStream>);

impl StreamSender {
    /// Waits until `is_so`.
    fn wait(
        &self,
        is_so: impl Fn(&StreamState) -> bool,
    ) -> Result<MutexGuard<'_, StreamState>, StreamClosed> {
        let state = self.0.lock();
        let waits = |state: &mut StreamState| !state.is_closed && !is_so(state);
        let state = self.0.changed.wait_while(state, waits);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        if state.is_closed { Err(StreamClosed) } else { Ok(state) }
    }

    /// Ends the stream.
    pub(super) fn end(&self, outcome: Result<u64>) {
        let mut state = self.0.lock();
        state.last = Some(match outcome {
            Ok(cut) => StreamItem::Over { cut, offered: state.offered },
            Err(error) => StreamItem::Failed(format!("{error:#}")),
        });
        self.0.unlock(state);
    }

    /// Gives a microslice, when there is room.
    fn push(&self, descriptor: MicrosliceDescriptor, content: &[u8]) -> Result<()> {
        let mut state = self.wait(|state| !state.batch.is_full())?;
        state.push(descriptor, content);
        self.0.unlock(state);
        Ok(())
    }

    /// Gives a microslice unless `buffer` bytes have no room for it; then it is dropped.
    pub(super) fn push_or_drop(
        &self,
        descriptor: MicrosliceDescriptor,
        content: &[u8],
        buffer: usize,
    ) -> Result<()> {
        let mut state = self.wait(|_| true)?;
        if state.batch.contents.len() + content.len() > buffer {
            state.drop_one();
        } else {
            state.push(descriptor, content);
        }
        self.0.unlock(state);
        Ok(())
    }
}

impl StreamState {
    fn push(&mut self, descriptor: MicrosliceDescriptor, content: &[u8]) {
        self.batch.descriptors.push(descriptor);
        self.batch.contents.extend_from_slice(content);
        self.offered += 1;
    }

    fn drop_one(&mut self) {
        self.offered += 1;
        let place = self.batch.descriptors.len();
        match self.batch.dropped.back_mut() {
            Some((at, count)) if *at == place => *count += 1,
            _ => self.batch.dropped.push_back((place, 1)),
        }
    }
}

/// Returns whether what `template` names is sent, and no file.
fn is_sent_in(template: &str) -> Result<bool> {
    let locator: Locator = template.parse().map_err(anyhow::Error::msg)?;
    Ok(locator.paths().any(|path| is_sent(&path)))
}

/// How a detector gives microslices.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    /// Time from one to the next.
    pub(super) step: Nanos,
    /// Bytes that it can hold.
    pub(super) buffer: usize,
}

/// The shortest sleep of a detector: what is due meanwhile comes at once.
const NAP: Duration = Duration::from_micros(500);

/// Makes `most` microslices, or for ever, each when it is due. Those that come while its buffer is
/// full are dropped.
fn detect(
    generator: &Generator,
    most: Option<u64>,
    pace: Pace,
    sender: &mut StreamSender,
) -> Result<u64> {
    let (mut content, mut begun) = (Vec::new(), None);
    for number in 0..most.unwrap_or(u64::MAX) {
        // The first one says when the experiment begins, and comes at once.
        if number == 1 {
            drop(sender.wait(|state| state.has_begun)?);
            begun = Some(Instant::now());
        }
        let due = Duration::from_nanos(pace.step.0.saturating_mul(number));
        while let Some(early) = begun.and_then(|begun| due.checked_sub(begun.elapsed())) {
            thread::sleep(early.max(NAP));
        }
        let descriptor = generator.microslice(number, &mut content);
        sender.push_or_drop(descriptor, &content, pace.buffer)?;
    }
    Ok(0)
}

/// Looks whether microslices can be had of the archives that `template` names, without taking any:
/// what is sent can be had once.
///
/// # Errors
/// When one of them is not there, cannot be read, or holds no microslices.
pub(super) fn look(template: &str) -> Result<()> {
    let locator: Locator = template.parse().map_err(anyhow::Error::msg)?;
    for path in locator.paths().filter(|path| !is_sent(path)) {
        let locator = Locator::from_path(&path);
        let source = ArchiveSource::open(locator, Limits { item_bytes: ITEM_BYTES_MAX })?;
        demand_microslices(&source, &path.to_string_lossy())?;
    }
    Ok(())
}

fn demand_microslices(source: &ArchiveSource, name: &str) -> Result<()> {
    match source.header().kind {
        ArchiveKind::Microslices => Ok(()),
        ArchiveKind::Timeslices => {
            bail!("{name}: holds timeslices; inputs read microslices (.msa)")
        }
    }
}

/// Reads `most` microslices of the archives that `template` names, or all.
fn read(template: &str, most: Option<u64>, sender: &mut StreamSender) -> Result<u64> {
    let locator: Locator = template.parse().map_err(anyhow::Error::msg)?;
    let mut source = ArchiveSource::open(locator, Limits { item_bytes: ITEM_BYTES_MAX })?;
    demand_microslices(&source, template)?;
    for _ in 0..most.unwrap_or(u64::MAX) {
        if !source.advance()? {
            break;
        }
        let Some(Item::Microslice(microslice)) = source.item() else { break };
        sender.push(microslice.descriptor, microslice.content)?;
    }
    Ok(source.cut_files)
}
