//! Archives of made-up microslices and timeslices.
//!
//! # Model
//! Timeslice `k` has the microslices from `k * core` on of every channel, `core` of them and then
//! `overlap` more, which the next timeslice begins with. The same channels in archives of their
//! own, one for each input, are what timeslices are built from.

use std::path::Path;

use anyhow::{Result, bail};
use clearway_proto::archive::{ArchiveKind, Component, ComponentDescriptor, TimesliceDescriptor};
use clearway_proto::base::Nanos;
use clearway_proto::microslice::{Generator, GeneratorPlan, Microslice, MicrosliceDescriptor};
use clearway_runtime::launch::escaped;

use super::locator::{INPUT, filled};
use super::{ArchiveFormat, ArchiveSink};
use crate::run::{RemainingTime, reached};

/// What an archive is to be made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArchiveRecipe {
    /// The first channel; the others have the numbers after it.
    pub(crate) plan: GeneratorPlan,
    pub(crate) channels: u16,
    /// Microslices in an archive of them, timeslices in the other.
    pub(crate) items: u64,
    pub(crate) shape: ArchiveShape,
}

/// Of what kind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ArchiveShape {
    /// One archive for each channel, [`INPUT`] in its name replaced by the channel's place.
    Microslices,
    /// One archive.
    Timeslices { core: u32, overlap: u32 },
}

/// Makes the archives.
///
/// # Errors
/// When they cannot be written, or there are no such channels.
pub(crate) fn make(to: &str, form: ArchiveFormat, recipe: &ArchiveRecipe) -> Result<()> {
    let GeneratorPlan { channel: first, .. } = recipe.plan;
    let Some(last) = first.checked_add(recipe.channels.saturating_sub(1)) else {
        bail!("{} channels from {first} on go beyond channel 65535", recipe.channels);
    };
    let channels: Vec<Generator> = (first..=last)
        .map(|channel| Generator::new(GeneratorPlan { channel, ..recipe.plan }))
        .collect();
    let files = match recipe.shape {
        ArchiveShape::Timeslices { .. } => 1,
        ArchiveShape::Microslices => channels.len(),
    };
    let remaining = RemainingTime::begin("file", vec![1.0; files], None);
    match recipe.shape {
        ArchiveShape::Timeslices { core, overlap } => {
            remaining.part(escaped(to));
            timeslices(Path::new(to), form, recipe, &channels, [core, overlap])
        }
        ArchiveShape::Microslices => {
            let mut inputs = channels.iter().zip(0u64..);
            inputs.try_for_each(|(channel, input)| {
                let path = filled(to, INPUT, input);
                remaining.part(escaped(&path.display().to_string()));
                microslices(&path, form, recipe, channel)
            })
        }
    }
}

fn microslices(
    path: &Path,
    form: ArchiveFormat,
    recipe: &ArchiveRecipe,
    generator: &Generator,
) -> Result<()> {
    let mut sink = ArchiveSink::create(path, ArchiveKind::Microslices, form)?;
    let (mut content, mut offset) = (Vec::new(), 0);
    for number in 0..recipe.items {
        let descriptor =
            MicrosliceDescriptor { offset, ..generator.microslice(number, &mut content) };
        sink.microslice(&Microslice { descriptor, content: &content })?;
        offset += u64::from(descriptor.size);
        reached(number, recipe.items);
    }
    sink.finish()
}

fn timeslices(
    path: &Path,
    form: ArchiveFormat,
    recipe: &ArchiveRecipe,
    channels: &[Generator],
    [core, overlap]: [u32; 2],
) -> Result<()> {
    let mut sink = ArchiveSink::create(path, ArchiveKind::Timeslices, form)?;
    let Nanos(period) = recipe.plan.period;
    let duration_ns = u64::from(core).saturating_mul(period);
    let mut data: Vec<Vec<u8>> = vec![Vec::new(); channels.len()];
    for index in 0..recipe.items {
        let first = index.saturating_mul(u64::from(core));
        for (channel, data) in channels.iter().zip(&mut data) {
            component(channel, first, core.saturating_add(overlap), data);
        }
        let descriptor = TimesliceDescriptor {
            index,
            start_ns: index.saturating_mul(duration_ns),
            duration_ns,
            position: index,
            core_microslices: core,
            components: channels.len() as u32,
            ..TimesliceDescriptor::default()
        };
        let components = data.iter().map(|data| Component {
            descriptor: ComponentDescriptor {
                timeslice: index,
                size: data.len() as u64,
                microslices: u64::from(core.saturating_add(overlap)),
                ..ComponentDescriptor::default()
            },
            data,
        });
        sink.timeslice(&descriptor, components)?;
        reached(index, recipe.items);
    }
    sink.finish()
}

/// Writes `count` microslices from number `first` on into `data`: their descriptors, then their
/// contents.
fn component(channel: &Generator, first: u64, count: u32, data: &mut Vec<u8>) {
    data.clear();
    data.resize(count as usize * MicrosliceDescriptor::BYTES, 0);
    let (mut content, mut offset) = (Vec::new(), 0);
    for place in 0..count {
        let number = first.saturating_add(u64::from(place));
        let descriptor =
            MicrosliceDescriptor { offset, ..channel.microslice(number, &mut content) };
        let at = place as usize * MicrosliceDescriptor::BYTES;
        data[at..at + MicrosliceDescriptor::BYTES].copy_from_slice(&descriptor.to_bytes());
        data.extend_from_slice(&content);
        offset += u64::from(descriptor.size);
    }
}
