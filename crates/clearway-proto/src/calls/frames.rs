//! Frames for one peer: which are free.

use alloc::vec::Vec;

use super::FRAME;
use crate::wire::{RegionId, Span};

#[derive(Debug)]
pub(super) struct FramePool {
    region: RegionId,
    /// The offset of the first frame.
    base: u64,
    free: Vec<u32>,
}

impl FramePool {
    /// Creates the frames of the peer that is the `place`-th.
    pub(super) fn new(region: RegionId, place: u32, window: u32) -> Self {
        let base = u64::from(place) * u64::from(window) * u64::from(FRAME);
        Self { region, base, free: (0..window).rev().collect() }
    }

    pub(super) fn take(&mut self) -> Option<u32> {
        self.free.pop()
    }

    pub(super) fn give_back(&mut self, frames: impl IntoIterator<Item = u32>) {
        self.free.extend(frames);
    }

    /// Returns `length` bytes from `at` on in a frame.
    pub(super) fn span(&self, frame: u32, at: u32, length: u32) -> Span {
        let offset = self.base + u64::from(frame) * u64::from(FRAME) + u64::from(at);
        Span { region: self.region, offset, length }
    }
}
