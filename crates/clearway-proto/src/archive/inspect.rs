//! Looks for what is wrong in items that could be read, counts it, and remembers where it was
//! first.
//!
//! # Model
//! A CRC is asked for where the flag says that it is there; the ramp where the descriptor says that
//! the content is one, and with it the checksum of its generator where there is no CRC. Within a
//! component the channel of a ramp stays the same; in an archive of microslices it does so all
//! along. Microslices of a component begin at equal distances, and all components of a timeslice
//! less than such a distance apart, where no flag says that microslices are missing. Numbers of timeslices increase within an archive. Equipment, subsystem and its format
//! stay the same in an archive of microslices, and in all components at one place of an archive of
//! timeslices.
//!
//! The descriptors of a component account for all of its data: contents follow each other in order,
//! and less than a descriptor's length is left over before and behind each. So none can hide there.
//!
//! Data that are missing or cut off are a fault where the flags do not say so.
//!
//! # Source
//! The rules of FLESnet's analysers of microslices and timeslices, which `mstool -a` and `tsclient
//! -a` apply; sizes, layout, order and numbers of timeslices, and the flags, are added here.
//!
//! # Not here
//! What cannot be read at all: [`super::Fault`].

use alloc::vec::Vec;

use super::{Component, ComponentDescriptor, Item, TimesliceDescriptor, Versions};
use crate::base::crc32c;
use crate::microslice::{
    ContentPattern, Microslice, MicrosliceDescriptor, MicrosliceFlags, fold, pattern_of,
    ramp_channel,
};

/// One kind of thing that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The descriptor is not that of a microslice.
    Descriptor,
    /// The stated size is not that of the data.
    Size,
    /// A content lies outside the data, or data hold fewer descriptors than stated.
    Outside,
    /// Contents overlap, or data are left over.
    Layout,
    /// The content does not have the CRC-32C of its descriptor.
    Crc,
    /// The ramp does not have the checksum of its descriptor.
    Checksum,
    /// The content is no ramp, or that of another channel.
    Ramp,
    /// A microslice begins no later than the one before it.
    Order,
    /// A microslice begins later after the one before it than the second after the first, or
    /// sooner.
    Spacing,
    /// Another equipment, subsystem or format than before.
    Origin,
    /// A component begins at another time than the first of its timeslice, by a microslice or more.
    Start,
    /// There are no components or no microslices, and no flag says so.
    Missing,
    /// The readout cut a content off, and no flag of the component says so.
    Overflow,
    /// A component is of another timeslice.
    Number,
    /// A timeslice has no larger number than the one before it.
    TimesliceOrder,
}

impl Finding {
    /// All kinds.
    pub const ALL: [Self; 15] = [
        Self::Descriptor,
        Self::Size,
        Self::Outside,
        Self::Layout,
        Self::Crc,
        Self::Checksum,
        Self::Ramp,
        Self::Order,
        Self::Spacing,
        Self::Origin,
        Self::Start,
        Self::Missing,
        Self::Overflow,
        Self::Number,
        Self::TimesliceOrder,
    ];

    /// Returns a short name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Descriptor => "descriptor",
            Self::Size => "size",
            Self::Outside => "outside",
            Self::Crc => "crc",
            Self::Checksum => "checksum",
            Self::Ramp => "ramp",
            Self::Order => "order",
            Self::Layout => "layout",
            Self::Spacing => "spacing",
            Self::Origin => "origin",
            Self::Start => "start",
            Self::Missing => "missing",
            Self::Overflow => "overflow",
            Self::Number => "number",
            Self::TimesliceOrder => "timeslice-order",
        }
    }

    /// Returns what is wrong, in a sentence.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Descriptor => "a microslice is not described as microslices are",
            Self::Size => "the size is another one than stated",
            Self::Outside => "a microslice lies outside the data of its component",
            Self::Crc => "the content does not have the CRC-32C of its descriptor",
            Self::Checksum => "the ramp does not have the checksum of its descriptor",
            Self::Ramp => "the content is not the ramp of its channel",
            Self::Layout => "contents overlap, or data of a component belong to no microslice",
            Self::Order => "a microslice begins no later than the one before it",
            Self::Spacing => "microslices do not begin at equal distances",
            Self::Origin => {
                "a microslice has another equipment, subsystem or format than those before it"
            }
            Self::Start => {
                "a component begins at another time than the first of its timeslice, by a microslice or more"
            }
            Self::Missing => {
                "a timeslice has no components or a component no microslices, and no flag says so"
            }
            Self::Overflow => "the readout cut a content off, and no flag of the component says so",
            Self::Number => "a component has the number of another timeslice",
            Self::TimesliceOrder => "a timeslice has no larger number than the one before it",
        }
    }
}

/// Where something is, all counted from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchivePosition {
    /// The item in the archive.
    pub item: u64,
    /// The component of the timeslice; `None` in archives of microslices and for the timeslice
    /// itself.
    pub component: Option<u32>,
    /// The microslice of the component.
    pub microslice: Option<u32>,
}

/// What was looked at, and what was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InspectionSummary {
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
    found: [(u64, Option<ArchivePosition>); Finding::ALL.len()],
}

impl InspectionSummary {
    /// Returns how often `finding` was found, and where first.
    pub fn found(&self, finding: Finding) -> (u64, Option<ArchivePosition>) {
        self.found[finding as usize]
    }

    /// Returns how much is wrong in all.
    pub fn faults(&self) -> u64 {
        self.found.iter().map(|(count, _)| count).sum()
    }

    fn note(&mut self, finding: Finding, place: ArchivePosition) {
        let (count, first) = &mut self.found[finding as usize];
        *count += 1;
        first.get_or_insert(place);
    }
}

/// Looks at the items of one archive in their order.
#[derive(Clone, Debug, Default)]
pub struct Inspector {
    tally: InspectionSummary,
    /// Number of the timeslice before.
    timeslice: Option<u64>,
    /// The microslices before, in an archive of them.
    stream: MicrosliceStream,
    /// By place of a component: where its first microslice in the archive is from.
    origins: Vec<Option<StreamFormat>>,
}

/// Equipment, subsystem and its format.
type StreamFormat = (u16, u8, u8);

/// What is known of the microslices before in the same stream.
#[derive(Clone, Copy, Debug, Default)]
struct MicrosliceStream {
    first: Option<u64>,
    index: Option<u64>,
    /// From the first microslice to the second.
    step: Option<u64>,
    channel: Option<u16>,
    origin: Option<StreamFormat>,
    /// A flag says that microslices are missing.
    has_gaps: bool,
}

/// Bytes before and behind contents that can be padding, at most: no descriptor fits in there.
const PADDING_MAX: u64 = MicrosliceDescriptor::BYTES as u64 - 1;

impl Inspector {
    /// Looks at the next item, of an archive with these versions.
    pub fn look(&mut self, item: &Item<'_>, versions: Versions) {
        let place = ArchivePosition { item: self.tally.items, component: None, microslice: None };
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
    pub fn look_at<'a>(
        &mut self,
        descriptor: &TimesliceDescriptor,
        components: impl Iterator<Item = Component<'a>>,
    ) {
        let place = ArchivePosition { item: self.tally.items, component: None, microslice: None };
        self.timeslice = None;
        self.timeslice(descriptor, components, Versions::NEWEST, place);
        self.tally.items += 1;
    }

    /// Returns what was found so far.
    pub fn tally(&self) -> &InspectionSummary {
        &self.tally
    }

    fn timeslice<'a>(
        &mut self,
        descriptor: &TimesliceDescriptor,
        components: impl Iterator<Item = Component<'a>>,
        versions: Versions,
        place: ArchivePosition,
    ) {
        let index = descriptor.index;
        // Before version 1 timeslices have no number.
        let is_numbered = versions.timeslice >= 1;
        if is_numbered && self.timeslice.is_some_and(|before| index <= before) {
            self.tally.note(Finding::TimesliceOrder, place);
        }
        self.timeslice = Some(index);
        self.tally.incomplete += u64::from(descriptor.flags.is_incomplete());
        let (mut start, mut count) = (None, 0);
        for component in components {
            let place = ArchivePosition { component: Some(count), ..place };
            count += 1;
            let begin = self.component(&component, place);
            if let Some((begin, step)) =
                begin.filter(|_| !component.descriptor.flags.is_incomplete())
            {
                let first = *start.get_or_insert(begin);
                if first.abs_diff(begin) >= step.unwrap_or(1).max(1) {
                    self.tally.note(Finding::Start, place);
                }
            }
            if is_numbered && component.descriptor.timeslice != index {
                self.tally.note(Finding::Number, place);
            }
        }
        if count == 0 && !descriptor.flags.is_incomplete() {
            self.tally.note(Finding::Missing, place);
        }
    }

    /// Looks at the component at `place`; when it begins, and the time to its second microslice.
    fn component(
        &mut self,
        component: &Component<'_>,
        place: ArchivePosition,
    ) -> Option<(u64, Option<u64>)> {
        let ComponentDescriptor { size, microslices, flags, .. } = component.descriptor;
        let number = place.component.unwrap_or(0) as usize;
        if self.origins.len() <= number {
            self.origins.resize(number + 1, None);
        }
        self.tally.components += 1;
        self.tally.incomplete += u64::from(flags.is_incomplete());
        if size != component.data.len() as u64 {
            self.tally.note(Finding::Size, place);
        }
        if microslices == 0 && !flags.is_incomplete() {
            self.tally.note(Finding::Missing, place);
        }
        let mut stream = MicrosliceStream {
            origin: self.origins[number],
            has_gaps: flags.is_incomplete(),
            ..MicrosliceStream::default()
        };
        let (mut seen, mut end) = (0, 0);
        for microslice in component.microslices() {
            let place = ArchivePosition { microslice: Some(seen), ..place };
            seen += 1;
            let descriptor = match &microslice {
                Ok(microslice) => {
                    self.microslice(microslice, &mut stream, place);
                    microslice.descriptor
                }
                Err(descriptor) => {
                    self.tally.microslices += 1;
                    self.descriptor(descriptor, &mut stream, place);
                    self.tally.note(Finding::Outside, place);
                    *descriptor
                }
            };
            if descriptor.flags.has(MicrosliceFlags::OVERFLOW_READOUT) && !flags.is_incomplete() {
                self.tally.note(Finding::Overflow, place);
            }
            if let Ok(Microslice { content, .. }) = microslice {
                let begin = component.begin_of(&descriptor);
                if begin < end || begin - end > PADDING_MAX {
                    self.tally.note(Finding::Layout, place);
                }
                end = begin + content.len() as u64;
            }
        }
        if u64::from(seen) < microslices {
            self.tally.note(Finding::Outside, place);
        } else if component.contents_bytes().saturating_sub(end) > PADDING_MAX {
            self.tally.note(Finding::Layout, place);
        }
        self.origins[number] = stream.origin;
        stream.first.map(|first| (first, stream.step))
    }

    fn microslice(
        &mut self,
        microslice: &Microslice<'_>,
        stream: &mut MicrosliceStream,
        place: ArchivePosition,
    ) {
        let Microslice { descriptor, content } = microslice;
        self.tally.microslices += 1;
        self.tally.content_bytes += content.len() as u64;
        self.descriptor(descriptor, stream, place);
        let has_crc = descriptor.flags.has(MicrosliceFlags::CRC_VALID);
        if has_crc {
            self.tally.crcs += 1;
            if crc32c(content) != descriptor.crc {
                self.tally.note(Finding::Crc, place);
            }
        }
        match pattern_of(descriptor) {
            ContentPattern::Ramp => {
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
            ContentPattern::Uninitialised | ContentPattern::Foreign => {
                self.tally.unchecked += u64::from(!has_crc)
            }
        }
    }

    fn descriptor(
        &mut self,
        descriptor: &MicrosliceDescriptor,
        stream: &mut MicrosliceStream,
        place: ArchivePosition,
    ) {
        let known = (MicrosliceDescriptor::FORMAT, MicrosliceDescriptor::VERSION);
        if (descriptor.format, descriptor.version) != known {
            self.tally.note(Finding::Descriptor, place);
        }
        let marks = MicrosliceFlags::OVERFLOW_READOUT.0
            | MicrosliceFlags::OVERFLOW_USER.0
            | MicrosliceFlags::DATA_ERROR.0;
        self.tally.marked += u64::from(descriptor.flags.0 & marks != 0);
        let origin = (descriptor.equipment, descriptor.subsystem, descriptor.subsystem_format);
        if *stream.origin.get_or_insert(origin) != origin {
            self.tally.note(Finding::Origin, place);
        }
        match stream.index.map(|before| descriptor.index.checked_sub(before)) {
            Some(None | Some(0)) => self.tally.note(Finding::Order, place),
            Some(Some(step)) if *stream.step.get_or_insert(step) != step && !stream.has_gaps => {
                self.tally.note(Finding::Spacing, place)
            }
            _ => {}
        }
        stream.first.get_or_insert(descriptor.index);
        stream.index = Some(descriptor.index);
    }
}
