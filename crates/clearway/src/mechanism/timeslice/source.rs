//! Where an input has its microslices from: a thread that may wait for them, or a generator that
//! writes them where they are needed.
//!
//! # Model
//! Archives and detectors wait, for a disk or for a time, so a thread of their own serves them and
//! their contents are copied. Made microslices wait for nothing: the rank writes them into its
//! memory itself, which costs no more than that copy.

use std::os::unix::net::UnixStream;

use anyhow::{Context, Result};
use clearway_proto::microslice::{Generator, GeneratorPlan, MicrosliceDescriptor, SliceRule};

use super::archive::{INPUT, filled};
use super::messages::{BuildSpec, MadeMicroslices, SourceKind};
use super::stream::{Pace, SourceStream};

/// Gives an input its microslices.
#[derive(Debug)]
pub(super) enum MicrosliceSource {
    /// On a thread of its own.
    Stream(SourceStream),
    /// Here and now.
    Generated(GeneratedMicroslices),
}

impl MicrosliceSource {
    /// Opens the source of input `place` in `feed`, which draws made microslices with `seed`; none
    /// where there are no microslices.
    ///
    /// # Errors
    /// When its archives have no name that can be read, or there is no thread for it.
    pub(super) fn open(feed: &BuildSpec, place: u64, seed: u64) -> Result<Option<Self>> {
        let most = feed.timeslices.and_then(|count| microslices_of(count, feed));
        let stream = match &feed.source {
            SourceKind::Memory(_) | SourceKind::Mixed(_) => return Ok(None),
            SourceKind::Pattern(made) => {
                let generator = generator(made, feed, place, seed)?;
                let Some(buffer) = made.buffer else {
                    return Ok(Some(Self::Generated(GeneratedMicroslices::new(generator, most))));
                };
                SourceStream::from_detector(
                    generator,
                    most,
                    Pace { step: made.step, buffer: buffer.0 as usize },
                )
            }
            SourceKind::Archives(template) => {
                let name = filled(template, INPUT, place).to_string_lossy().into_owned();
                SourceStream::from_archives(name, most)
            }
        };
        Ok(Some(Self::Stream(stream?)))
    }

    /// Lets the time of a detector begin.
    pub(super) fn begin(&self) {
        if let Self::Stream(stream) = self {
            stream.begin();
        }
    }

    /// Returns whether microslices come as they are taken, so that a silence of the source is one of
    /// the experiment.
    pub(super) const fn is_live(&self) -> bool {
        match self {
            Self::Stream(stream) => stream.is_live(),
            Self::Generated(_) => false,
        }
    }

    /// Returns how many microslices wait to be drawn, and how many were dropped since the last draw.
    pub(super) fn waiting(&self) -> (u64, u64) {
        match self {
            Self::Stream(stream) => stream.waiting(),
            Self::Generated(_) => (0, 0),
        }
    }

    /// Returns what can be read when there may be more microslices, where they come by themselves.
    pub(super) const fn wake_signal(&self) -> Option<&UnixStream> {
        match self {
            Self::Stream(stream) => Some(stream.wake_signal()),
            Self::Generated(_) => None,
        }
    }
}

/// Makes microslices, one after the other.
#[derive(Debug)]
pub(super) struct GeneratedMicroslices {
    generator: Generator,
    /// The next one.
    number: u64,
    /// Its length, once it was asked for.
    size: Option<u32>,
    most: u64,
}

impl GeneratedMicroslices {
    /// Makes `most` microslices with `generator`, or as many as are wanted.
    pub(super) fn new(generator: Generator, most: Option<u64>) -> Self {
        Self { generator, number: 0, size: None, most: most.unwrap_or(u64::MAX) }
    }

    /// Returns how many were made or passed over.
    pub(super) const fn count(&self) -> u64 {
        self.number
    }

    /// Returns when the next one starts and its length; none where there are no more.
    pub(super) fn peek(&mut self) -> Option<(u64, u32)> {
        let generator = &self.generator;
        let size = (self.number < self.most)
            .then(|| *self.size.get_or_insert_with(|| generator.size(self.number)))?;
        Some((self.generator.start(self.number), size))
    }

    /// Passes the next one over.
    pub(super) fn advance(&mut self) {
        (self.number, self.size) = (self.number + 1, None);
    }

    /// Writes the next one over `content`, which has its length.
    pub(super) fn fill(&mut self, content: &mut [u8]) -> MicrosliceDescriptor {
        let descriptor = self.generator.fill(self.number, content);
        self.advance();
        descriptor
    }
}

/// Returns what makes the microslices of input `place`.
fn generator(made: &MadeMicroslices, feed: &BuildSpec, place: u64, seed: u64) -> Result<Generator> {
    let channel = u16::try_from(place).context("more inputs than there are channels, 65,536")?;
    Ok(Generator::new(GeneratorPlan {
        channel,
        seed,
        sizes: made.sizes,
        mean_bytes: made.mean,
        period: made.step,
        checksum: feed.sink.checksum(),
    }))
}

/// Returns how many microslices `count` timeslices need, where that is known.
fn microslices_of(count: u64, feed: &BuildSpec) -> Option<u64> {
    match feed.slices {
        SliceRule::ByIndex { core, overlap } => {
            Some(count.saturating_mul(u64::from(core)).saturating_add(u64::from(overlap)))
        }
        SliceRule::ByTime(times) => {
            let SourceKind::Pattern(made) = &feed.source else { return None };
            let end = times.start_of(count).saturating_add(times.after.0);
            Some(end.div_ceil(made.step.0.max(1)))
        }
    }
}
