//! Looks for what is wrong in items that could be read, counts it, and remembers where it was first.
//!
//! # Model
//! A CRC is asked for where the flag says that it is there; the ramp where the descriptor says that the content is one, and with
//! it the checksum of its generator where there is no CRC. Within a component the channel of a ramp stays the same; in an archive of
//! microslices it does so all along. Times of microslices increase within a component, numbers of timeslices within an archive.
//!
//! # Not here
//! What cannot be read at all: [`super::Fault`].

use super::{Component, ComponentDescriptor, Item, TimesliceDescriptor, Versions};
use crate::base::crc32c;
use crate::microslice::{Microslice, MicrosliceDescriptor, MicrosliceFlags, Pattern, fold, pattern_of, ramp_channel};

/// One kind of thing that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The descriptor is not that of a microslice.
    Descriptor,
    /// The stated size is not that of the content or the data.
    Size,
    /// A content lies outside the data, or data hold fewer descriptors than stated.
    Outside,
    /// The content does not have the CRC-32C of its descriptor.
    Crc,
    /// The ramp does not have the checksum of its descriptor.
    Checksum,
    /// The content is no ramp, or that of another channel.
    Ramp,
    /// A microslice begins no later than the one before it.
    Order,
    /// A timeslice has no larger number than the one before it.
    TimesliceOrder,
}

impl Finding {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Descriptor,
        Self::Size,
        Self::Outside,
        Self::Crc,
        Self::Checksum,
        Self::Ramp,
        Self::Order,
        Self::TimesliceOrder,
    ];

    /// A short name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Descriptor => "descriptor",
            Self::Size => "size",
            Self::Outside => "outside",
            Self::Crc => "crc",
            Self::Checksum => "checksum",
            Self::Ramp => "ramp",
            Self::Order => "order",
            Self::TimesliceOrder => "timeslice-order",
        }
    }

    /// What is wrong, in a sentence.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Descriptor => "a microslice is not described as microslices are",
            Self::Size => "the size is another one than stated",
            Self::Outside => "a microslice lies outside the data of its component",
            Self::Crc => "the content does not have the CRC-32C of its descriptor",
            Self::Checksum => "the ramp does not have the checksum of its descriptor",
            Self::Ramp => "the content is not the ramp of its channel",
            Self::Order => "a microslice begins no later than the one before it",
            Self::TimesliceOrder => "a timeslice has no larger number than the one before it",
        }
    }
}

/// Where something is, all counted from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The item in the archive.
    pub item: u64,
    /// The component of the timeslice; `None` in archives of microslices and for the timeslice itself.
    pub component: Option<u32>,
    /// The microslice of the component.
    pub microslice: Option<u32>,
}

/// What was looked at, and what was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Items.
    pub items: u64,
    /// Components of timeslices.
    pub components: u64,
    /// Microslices.
    pub microslices: u64,
    /// Length of all contents in bytes.
    pub content_bytes: u64,
    /// Contents whose CRC-32C was computed.
    pub crcs: u64,
    /// Contents that were compared with the ramp.
    pub ramps: u64,
    /// Contents that neither was done for: nothing is known of them.
    pub unchecked: u64,
    /// Microslices that their readout or detector marks as cut off or wrong.
    pub marked: u64,
    /// Timeslices or components of them that are marked as incomplete.
    pub incomplete: u64,
    found: [(u64, Option<Place>); Finding::ALL.len()],
}

impl Tally {
    /// How often `finding` was found, and where first.
    pub fn found(&self, finding: Finding) -> (u64, Option<Place>) {
        self.found[finding as usize]
    }

    /// How much is wrong in all.
    pub fn faults(&self) -> u64 {
        self.found.iter().map(|(count, _)| count).sum()
    }

    fn note(&mut self, finding: Finding, place: Place) {
        let (count, first) = &mut self.found[finding as usize];
        *count += 1;
        first.get_or_insert(place);
    }
}

/// Looks at the items of one archive in their order.
#[derive(Clone, Debug, Default)]
pub struct Inspector {
    tally: Tally,
    /// Number of the timeslice before.
    timeslice: Option<u64>,
    /// The microslices before, in an archive of them.
    stream: Stream,
}

/// What is known of the microslices before in the same stream.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    index: Option<u64>,
    channel: Option<u16>,
}

impl Inspector {
    /// Looks at the next item, of an archive with these versions.
    pub fn look(&mut self, item: &Item<'_>, versions: Versions) {
        let place = Place { item: self.tally.items, component: None, microslice: None };
        match item {
            Item::Microslice(microslice) => {
                let mut stream = self.stream;
                self.microslice(microslice, &mut stream, place);
                self.stream = stream;
            }
            Item::Timeslice(timeslice) => {
                self.timeslice(&timeslice.descriptor, timeslice.components(), versions, place);
            }
        }
        self.tally.items += 1;
    }

    /// Looks at a timeslice of no archive: in whatever order they come.
    pub fn look_at<'a>(&mut self, descriptor: &TimesliceDescriptor, components: impl Iterator<Item = Component<'a>>) {
        let place = Place { item: self.tally.items, component: None, microslice: None };
        self.timeslice = None;
        self.timeslice(descriptor, components, Versions::NEWEST, place);
        self.tally.items += 1;
    }

    /// What was found so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    fn timeslice<'a>(
        &mut self,
        descriptor: &TimesliceDescriptor,
        components: impl Iterator<Item = Component<'a>>,
        versions: Versions,
        place: Place,
    ) {
        let index = descriptor.index;
        // Before version 1 timeslices have no number.
        if versions.timeslice >= 1 && self.timeslice.is_some_and(|before| index <= before) {
            self.tally.note(Finding::TimesliceOrder, place);
        }
        self.timeslice = Some(index);
        self.tally.incomplete += u64::from(descriptor.flags.is_incomplete());
        for (component, number) in components.zip(0..) {
            self.component(&component, Place { component: Some(number), ..place });
        }
    }

    fn component(&mut self, component: &Component<'_>, place: Place) {
        let ComponentDescriptor { size, microslices, flags, .. } = component.descriptor;
        self.tally.components += 1;
        self.tally.incomplete += u64::from(flags.is_incomplete());
        if size != component.data.len() as u64 {
            self.tally.note(Finding::Size, place);
        }
        let mut stream = Stream::default();
        let mut seen = 0;
        for (microslice, number) in component.microslices().zip(0..) {
            let place = Place { microslice: Some(number), ..place };
            seen += 1;
            match microslice {
                Ok(microslice) => self.microslice(&microslice, &mut stream, place),
                Err(descriptor) => {
                    self.tally.microslices += 1;
                    self.descriptor(&descriptor, &mut stream, place);
                    self.tally.note(Finding::Outside, place);
                }
            }
        }
        if seen < microslices {
            self.tally.note(Finding::Outside, place);
        }
    }

    fn microslice(&mut self, microslice: &Microslice<'_>, stream: &mut Stream, place: Place) {
        let Microslice { descriptor, content } = microslice;
        self.tally.microslices += 1;
        self.tally.content_bytes += content.len() as u64;
        self.descriptor(descriptor, stream, place);
        if u64::from(descriptor.size) != content.len() as u64 {
            self.tally.note(Finding::Size, place);
        }
        let has_crc = descriptor.flags.has(MicrosliceFlags::CRC_VALID);
        if has_crc {
            self.tally.crcs += 1;
            if crc32c(content) != descriptor.crc {
                self.tally.note(Finding::Crc, place);
            }
        }
        match pattern_of(descriptor) {
            Pattern::Ramp => {
                self.tally.ramps += 1;
                match ramp_channel(microslice, stream.channel) {
                    None => self.tally.note(Finding::Ramp, place),
                    Some(_) if content.is_empty() => {}
                    channel => stream.channel = channel,
                }
                if !has_crc && fold(content) != descriptor.crc {
                    self.tally.note(Finding::Checksum, place);
                }
            }
            Pattern::Uninitialised | Pattern::Foreign => self.tally.unchecked += u64::from(!has_crc),
        }
    }

    fn descriptor(&mut self, descriptor: &MicrosliceDescriptor, stream: &mut Stream, place: Place) {
        let known = (MicrosliceDescriptor::FORMAT, MicrosliceDescriptor::VERSION);
        if (descriptor.format, descriptor.version) != known {
            self.tally.note(Finding::Descriptor, place);
        }
        let marks =
            MicrosliceFlags::OVERFLOW_READOUT.0 | MicrosliceFlags::OVERFLOW_USER.0 | MicrosliceFlags::DATA_ERROR.0;
        self.tally.marked += u64::from(descriptor.flags.0 & marks != 0);
        if stream.index.is_some_and(|before| descriptor.index <= before) {
            self.tally.note(Finding::Order, place);
        }
        stream.index = Some(descriptor.index);
    }
}
