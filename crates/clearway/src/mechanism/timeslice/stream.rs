//! Microslices for an input, from wherever they come, made or read by a thread of their own.
//!
//! # Model
//! Whoever makes or reads may wait: for a disk, or for what feeds a pipe. The rank itself must not, so a thread does, and gives
//! microslices in *batches*. Two batches wait at most; while they do, the next one grows, so that batches are small where the rank
//! keeps up and large where it does not. A byte through a socket wakes a rank that sleeps.
//!
//! # Invariants
//! I1. What the rank has no room for stays here, then in the source: nothing is dropped.

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, TrySendError, channel, sync_channel};
use std::thread;

use anyhow::{Context, Result, bail};
use clearway_proto::archive::{ArchiveKind, Item, Limits};
use clearway_proto::base::Nanos;
use clearway_proto::microslice::{Checksum, Generator, GeneratorPlan, MicrosliceDescriptor};

use super::words::{Feed, SourceKind};
use crate::mechanism::timeslice::archive::{INPUT, ITEM_BYTES_MAX, Locator, Source, filled, is_sent};

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
pub(super) struct Batch {
    pub(super) descriptors: Vec<MicrosliceDescriptor>,
    pub(super) contents: Vec<u8>,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.contents.len() >= BATCH || self.descriptors.len() >= BATCH_ITEMS
    }

    fn clear(&mut self) {
        self.descriptors.clear();
        self.contents.clear();
    }
}

/// Gives microslices until there are no more; how many archives ended with a cut item.
type Work = Box<dyn FnOnce(&mut Pump) -> Result<u64> + Send>;

/// What comes out of a stream.
#[derive(Debug)]
pub(super) enum Drawn {
    Some(Batch),
    /// Nothing yet.
    Nothing,
    /// There are no more; so many archives ended with a cut item.
    Over(u64),
    /// It cannot go on, and why.
    Failed(String),
}

/// The rank's end.
#[derive(Debug)]
pub(super) struct Stream {
    batches: Receiver<Drawn>,
    used: Sender<Batch>,
    bell: UnixStream,
    /// Held, so that the bell is silent and not at its end when the thread is over.
    _ringer: UnixStream,
}

impl Stream {
    /// The stream of input `place` in `feed`, which draws made microslices with `seed`; none where there are no microslices.
    pub(super) fn open(feed: &Feed, place: u64, seed: u64) -> Result<Option<Self>> {
        let most = feed.timeslices.map(|count| count.saturating_mul(u64::from(feed.shape.core)));
        let most = most.map(|count| count.saturating_add(u64::from(feed.shape.overlap)));
        let source = feed.source.clone();
        let work: Work = match source {
            SourceKind::Memory(_) | SourceKind::Mixed(_) => return Ok(None),
            SourceKind::Pattern { sizes, mean } => {
                let channel = u16::try_from(place).context("more inputs than there are channels, 65,536")?;
                let plan =
                    GeneratorPlan { channel, seed, sizes, mean_bytes: mean, period: STEP, checksum: Checksum::Crc32c };
                Box::new(move |pump| made(&Generator::new(plan), most, pump))
            }
            SourceKind::Archives(template) => {
                let template = filled(&template, INPUT, place).to_string_lossy().into_owned();
                Box::new(move |pump| read(&template, most, pump))
            }
        };
        let (sender, batches) = sync_channel(WAITING_MAX);
        let (used, returned) = channel();
        let (bell, ringer) = UnixStream::pair().context("a way to wake this rank")?;
        bell.set_nonblocking(true).and_then(|()| ringer.set_nonblocking(true)).context("a way to wake this rank")?;
        let own = ringer.try_clone().context("a way to wake this rank")?;
        let mut pump = Pump { batch: Batch::default(), sender, returned, ringer };
        thread::Builder::new()
            .name("source".into())
            .spawn(move || {
                let last = match work(&mut pump).and_then(|cut| pump.flush().map(|()| cut)) {
                    Ok(cut) => Drawn::Over(cut),
                    Err(error) => Drawn::Failed(format!("{error:#}")),
                };
                let _ = pump.sender.send(last);
                pump.ring();
            })
            .context("a thread for the source")?;
        Ok(Some(Self { batches, used, bell, _ringer: own }))
    }

    /// The next batch, without waiting.
    pub(super) fn draw(&mut self) -> Drawn {
        match self.batches.try_recv() {
            Ok(drawn) => drawn,
            Err(TryRecvError::Empty) => Drawn::Nothing,
            Err(TryRecvError::Disconnected) => Drawn::Failed("the source's thread ended".to_owned()),
        }
    }

    /// Gives a batch back, so that its memory is used again.
    pub(super) fn done_with(&self, mut batch: Batch) {
        batch.clear();
        let _ = self.used.send(batch);
    }

    /// What can be read when there may be another batch.
    pub(super) fn bell(&self) -> &UnixStream {
        &self.bell
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// The rank is gone, or has turned to another run.
#[derive(Debug)]
struct Unwanted;

impl std::fmt::Display for Unwanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("nobody wants more microslices")
    }
}

impl std::error::Error for Unwanted {}

/// The thread's end.
struct Pump {
    /// What has not left.
    batch: Batch,
    sender: SyncSender<Drawn>,
    returned: Receiver<Batch>,
    ringer: UnixStream,
}

impl Pump {
    /// One more microslice was put into the batch: it leaves if there is room, and is waited for when it is full.
    fn next(&mut self) -> Result<()> {
        if self.batch.is_full() {
            return self.flush();
        }
        match self.sender.try_send(Drawn::Some(std::mem::take(&mut self.batch))) {
            Ok(()) => {
                self.batch = self.returned.try_recv().unwrap_or_default();
                self.ring();
            }
            Err(TrySendError::Full(Drawn::Some(batch))) => self.batch = batch,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => return Err(Unwanted.into()),
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if !self.batch.descriptors.is_empty() {
            let following = self.returned.try_recv().unwrap_or_default();
            self.sender.send(Drawn::Some(std::mem::replace(&mut self.batch, following))).map_err(|_| Unwanted)?;
            self.ring();
        }
        Ok(())
    }

    fn ring(&self) {
        // A socket that is full wakes whoever sleeps as well.
        let _ = (&self.ringer).write(&[1]);
    }
}

/// Makes `most` microslices, or for ever.
fn made(generator: &Generator, most: Option<u64>, pump: &mut Pump) -> Result<u64> {
    let mut content = Vec::new();
    for number in 0..most.unwrap_or(u64::MAX) {
        let descriptor = generator.microslice(number, &mut content);
        pump.batch.descriptors.push(descriptor);
        pump.batch.contents.extend_from_slice(&content);
        pump.next()?;
    }
    Ok(0)
}

/// Looks whether microslices can be had of the archives that `template` names, without taking any: what is sent can be had once.
///
/// # Errors
/// When one of them is not there, cannot be read, or holds no microslices.
pub(super) fn look(template: &str) -> Result<()> {
    let locator: Locator = template.parse().map_err(anyhow::Error::msg)?;
    for path in locator.paths().filter(|path| !is_sent(path)) {
        let locator = Locator::of(&path);
        let source = Source::open(locator, Limits { item_bytes: ITEM_BYTES_MAX })?;
        demand_microslices(&source, &path.to_string_lossy())?;
    }
    Ok(())
}

fn demand_microslices(source: &Source, name: &str) -> Result<()> {
    match source.header().kind {
        ArchiveKind::Microslices => Ok(()),
        ArchiveKind::Timeslices => bail!("{name}: holds timeslices; inputs read microslices (.msa)"),
    }
}

/// Reads `most` microslices of the archives that `template` names, or all.
fn read(template: &str, most: Option<u64>, pump: &mut Pump) -> Result<u64> {
    let locator: Locator = template.parse().map_err(anyhow::Error::msg)?;
    let mut source = Source::open(locator, Limits { item_bytes: ITEM_BYTES_MAX })?;
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
