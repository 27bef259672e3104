//! Archives of made-up microslices and timeslices.
//!
//! # Model
//! Timeslice `k` has the microslices from `k * core` on of every channel, `core` of them and then `overlap` more, which the next
//! timeslice begins with.

use std::path::Path;

use anyhow::{Result, bail};
use clearway_proto::archive::{Component, ComponentDescriptor, Kind, TimesliceDescriptor};
use clearway_proto::base::Nanos;
use clearway_proto::microslice::{Generator, GeneratorPlan, Microslice, MicrosliceDescriptor};

use super::{Form, Sink};

/// What an archive shall be made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recipe {
    /// The first channel; the others have the numbers after it.
    pub(crate) plan: GeneratorPlan,
    /// Microslices in an archive of them, timeslices in the other.
    pub(crate) items: u64,
    pub(crate) shape: Shape,
}

/// Of what kind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    Microslices,
    Timeslices { channels: u16, core: u32, overlap: u32 },
}

/// Makes the archive.
///
/// # Errors
/// When it cannot be written, or there are no such channels.
pub(crate) fn make(path: &Path, form: Form, recipe: &Recipe) -> Result<()> {
    match recipe.shape {
        Shape::Microslices => microslices(path, form, recipe),
        Shape::Timeslices { channels, core, overlap } => {
            let Some(last) = recipe.plan.channel.checked_add(channels.saturating_sub(1)) else {
                bail!("{channels} channels from {} on go beyond channel 65535", recipe.plan.channel);
            };
            let plans = (recipe.plan.channel..=last).map(|channel| GeneratorPlan { channel, ..recipe.plan });
            let generators: Vec<Generator> = plans.map(Generator::new).collect();
            timeslices(path, form, recipe, &generators, [core, overlap])
        }
    }
}

fn microslices(path: &Path, form: Form, recipe: &Recipe) -> Result<()> {
    let generator = Generator::new(recipe.plan);
    let mut sink = Sink::create(path, Kind::Microslices, form)?;
    let (mut content, mut offset) = (Vec::new(), 0);
    for number in 0..recipe.items {
        let descriptor = MicrosliceDescriptor { offset, ..generator.microslice(number, &mut content) };
        sink.microslice(&Microslice { descriptor, content: &content })?;
        offset += u64::from(descriptor.size);
    }
    sink.finish()
}

fn timeslices(
    path: &Path,
    form: Form,
    recipe: &Recipe,
    channels: &[Generator],
    [core, overlap]: [u32; 2],
) -> Result<()> {
    let mut sink = Sink::create(path, Kind::Timeslices, form)?;
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
    }
    sink.finish()
}

/// Writes `count` microslices from number `first` on into `data`: their descriptors, then their contents.
fn component(channel: &Generator, first: u64, count: u32, data: &mut Vec<u8>) {
    data.clear();
    data.resize(count as usize * MicrosliceDescriptor::BYTES, 0);
    let (mut content, mut offset) = (Vec::new(), 0);
    for place in 0..count {
        let number = first.saturating_add(u64::from(place));
        let descriptor = MicrosliceDescriptor { offset, ..channel.microslice(number, &mut content) };
        let at = place as usize * MicrosliceDescriptor::BYTES;
        data[at..at + MicrosliceDescriptor::BYTES].copy_from_slice(&descriptor.to_bytes());
        data.extend_from_slice(&content);
        offset += u64::from(descriptor.size);
    }
}
