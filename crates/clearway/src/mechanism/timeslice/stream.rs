//! Microslices for an input, from wherever they come, made or read by a thread of their own.
//!
//! # Model
//! Whoever makes or reads may wait: for a disk, or for what feeds a pipe. The rank itself must not,
//! so a thread does, and gives microslices in *batches*. Two batches wait at most; while they do,
//! the next one grows, so that batches are small where the rank keeps up and large where it does
//! not. A byte through a socket wakes a rank that sleeps.
//!
//! # Invariants
//! I1. What the rank has no room for stays here, then in the source: nothing is dropped.

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{
    Receiver, Sender, SyncSender, TryRecvError, TrySendError, channel, sync_channel,
};
use std::thread;

use anyhow::{Context, Result, bail};
use clearway_proto::archive::{ArchiveKind, Item, Limits};
use clearway_proto::base::Nanos;
use clearway_proto::microslice::{Checksum, Generator, GeneratorPlan, MicrosliceDescriptor};

use super::messages::{BuildSpec, SourceKind};
use crate::mechanism::timeslice::archive::{
    ArchiveSource, INPUT, ITEM_BYTES_MAX, Locator, filled, is_sent,
};

/// Batches that wait.
const WAITING_MAX: usize = 2;
/// Bytes of a batch that waits for its turn: four of them stay in a second-level cache of today.
const BATCH: usize = 256 << 10;
/// Microslices of a batch.
const BATCH_ITEMS: usize = 1 << 12;
/// Experiment time from one made microslice to the next.
const STEP: Nanos = Nanos::from_micros(100);

/// Some microslices: their contents lie one behind the other.
#[derive(Debug, Default)]
pub(super) struct MicrosliceBatch {
    pub(super) descriptors: Vec<MicrosliceDescriptor>,
    pub(super) contents: Vec<u8>,
}

impl MicrosliceBatch {
    fn is_full(&self) -> bool {
        self.contents.len() >= BATCH || self.descriptors.len() >= BATCH_ITEMS
    }

    fn clear(&mut self) {
        self.descriptors.clear();
        self.contents.clear();
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
    /// There are no more; this many archives ended with a cut item.
    Over(u64),
    /// It cannot go on, and why.
    Failed(String),
}

/// The rank's end.
#[derive(Debug)]
pub(super) struct SourceStream {
    batches: Receiver<StreamItem>,
    used: Sender<MicrosliceBatch>,
    wake_signal: UnixStream,
    /// Held, so that the signal is silent and not at its end when the thread is over.
    _waker: UnixStream,
}

impl SourceStream {
    /// Creates the stream of input `place` in `feed`, which draws made microslices with `seed`;
    /// none where there are no microslices.
    pub(super) fn open(feed: &BuildSpec, place: u64, seed: u64) -> Result<Option<Self>> {
        let most = feed.timeslices.map(|count| count.saturating_mul(u64::from(feed.shape.core)));
        let most = most.map(|count| count.saturating_add(u64::from(feed.shape.overlap)));
        let source = feed.source.clone();
        let work: StreamProducer = match source {
            SourceKind::Memory(_) | SourceKind::Mixed(_) => return Ok(None),
            SourceKind::Pattern { sizes, mean } => {
                let channel =
                    u16::try_from(place).context("more inputs than there are channels, 65,536")?;
                let plan = GeneratorPlan {
                    channel,
                    seed,
                    sizes,
                    mean_bytes: mean,
                    period: STEP,
                    checksum: Checksum::Crc32c,
                };
                Box::new(move |pump| made(&Generator::new(plan), most, pump))
            }
            SourceKind::Archives(template) => {
                let template = filled(&template, INPUT, place).to_string_lossy().into_owned();
                Box::new(move |pump| read(&template, most, pump))
            }
        };
        let (sender, batches) = sync_channel(WAITING_MAX);
        let (used, returned) = channel();
        let (wake_signal, waker) = UnixStream::pair().context("a way to wake this rank")?;
        wake_signal
            .set_nonblocking(true)
            .and_then(|()| waker.set_nonblocking(true))
            .context("a way to wake this rank")?;
        let own = waker.try_clone().context("a way to wake this rank")?;
        let mut pump = StreamSender { batch: MicrosliceBatch::default(), sender, returned, waker };
        thread::Builder::new()
            .name("source".into())
            .spawn(move || {
                let last = match work(&mut pump).and_then(|cut| pump.flush().map(|()| cut)) {
                    Ok(cut) => StreamItem::Over(cut),
                    Err(error) => StreamItem::Failed(format!("{error:#}")),
                };
                let _ = pump.sender.send(last);
                pump.wake();
            })
            .context("a thread for the source")?;
        Ok(Some(Self { batches, used, wake_signal, _waker: own }))
    }

    /// Returns the next batch, without waiting.
    pub(super) fn draw(&mut self) -> StreamItem {
        match self.batches.try_recv() {
            Ok(drawn) => drawn,
            Err(TryRecvError::Empty) => StreamItem::Nothing,
            Err(TryRecvError::Disconnected) => {
                StreamItem::Failed("the source's thread ended".to_owned())
            }
        }
    }

    /// Gives a batch back, so that its memory is used again.
    pub(super) fn done_with(&self, mut batch: MicrosliceBatch) {
        batch.clear();
        let _ = self.used.send(batch);
    }

    /// Returns what can be read when there may be another batch.
    pub(super) fn wake_signal(&self) -> &UnixStream {
        &self.wake_signal
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
struct StreamSender {
    /// What has not left.
    batch: MicrosliceBatch,
    sender: SyncSender<StreamItem>,
    returned: Receiver<MicrosliceBatch>,
    waker: UnixStream,
}

impl StreamSender {
    /// Handles one more microslice in the batch, which leaves if there is room, and is waited for
    /// when it is full.
    fn next(&mut self) -> Result<()> {
        if self.batch.is_full() {
            return self.flush();
        }
        match self.sender.try_send(StreamItem::Some(std::mem::take(&mut self.batch))) {
            Ok(()) => {
                self.batch = self.returned.try_recv().unwrap_or_default();
                self.wake();
            }
            Err(TrySendError::Full(StreamItem::Some(batch))) => self.batch = batch,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                return Err(StreamClosed.into());
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if !self.batch.descriptors.is_empty() {
            let following = self.returned.try_recv().unwrap_or_default();
            self.sender
                .send(StreamItem::Some(std::mem::replace(&mut self.batch, following)))
                .map_err(|_| StreamClosed)?;
            self.wake();
        }
        Ok(())
    }

    fn wake(&self) {
        // A socket that is full wakes whoever sleeps as well.
        let _ = (&self.waker).write(&[1]);
    }
}

/// Makes `most` microslices, or for ever.
fn made(generator: &Generator, most: Option<u64>, pump: &mut StreamSender) -> Result<u64> {
    let mut content = Vec::new();
    for number in 0..most.unwrap_or(u64::MAX) {
        let descriptor = generator.microslice(number, &mut content);
        pump.batch.descriptors.push(descriptor);
        pump.batch.contents.extend_from_slice(&content);
        pump.next()?;
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
fn read(template: &str, most: Option<u64>, pump: &mut StreamSender) -> Result<u64> {
    let locator: Locator = template.parse().map_err(anyhow::Error::msg)?;
    let mut source = ArchiveSource::open(locator, Limits { item_bytes: ITEM_BYTES_MAX })?;
    demand_microslices(&source, template)?;
    for _ in 0..most.unwrap_or(u64::MAX) {
        if !source.advance()? {
            break;
        }
        let Some(Item::Microslice(microslice)) = source.item() else { break };
        pump.batch.descriptors.push(microslice.descriptor);
        pump.batch.contents.extend_from_slice(microslice.content);
        pump.next()?;
    }
    Ok(source.cut_files)
}
