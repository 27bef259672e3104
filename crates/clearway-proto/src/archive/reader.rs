//! Reads archives from bytes as they come, item by item.
//!
//! # Model
//! The reader always waits for one run of bytes whose length it knows, keeps the bytes of the item
//! so far, and takes from what it is given no more than that run. A whole item is lent out where it
//! lies; the next call forgets it.
//!
//! # Invariants
//! I1. Memory: one item and its list of components, each at most twice as large as it is, and no
//!     more than [`Limits`] allow.
//! I2. Every byte is looked at once; how the stream is cut into pieces changes nothing.
//! I3. The content of a microslice that is lent out is as long as its descriptor says.
//! I4. After an error nothing is read any more, and every call repeats it.

use core::ops::Range;

use alloc::vec::Vec;

use super::header::{HEADER_NEWEST, NAME_BYTES_MAX, SIGNATURE_BYTES, library_of};
use super::{
    ArchiveError, ArchiveFault, ArchiveKind, ComponentDescriptor, Compression, Header, Timeslice,
    TimesliceDescriptor, Versions,
};
use crate::microslice::{Microslice, MicrosliceDescriptor};

/// Length of a class: whether it is tracked, and its version.
const CLASS: usize = 5;

/// Length of the two numbers before the elements of a list: how many, and their version.
const LIST: usize = 12;

/// Equipment numbers have 16 bits, so no timeslice has more components.
const COMPONENTS_MAX: u64 = 1 << 16;

/// How much is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest item in bytes.
    pub item_bytes: u64,
}

/// What became whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// The header. Where it names a compression, all further bytes have to be given decompressed.
    Header,
    /// An item, which [`Reader::item`] lends out until more is read.
    Item,
}

/// One item of an archive.
#[derive(Debug)]
pub enum Item<'a> {
    /// Of a `.msa`.
    Microslice(Microslice<'a>),
    /// Of a `.tsa`.
    Timeslice(Timeslice<'a>),
}

/// What is left when the stream has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remainder {
    /// Nothing: it ended behind its header or an item.
    Nothing,
    /// The beginning of an item, this many bytes of it: the writer was stopped.
    CutItem(u64),
    /// The beginning of a header, this many bytes of it.
    CutHeader(u64),
}

/// What the reader waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReaderState {
    Signature,
    HeaderClass,
    /// Kind, compression, time, length of the host's name.
    HeaderFields,
    /// The host's name, length of the user's.
    Host,
    User,
    /// Classes, descriptor, length of the content.
    Microslice,
    Content,
    /// Classes of timeslice and descriptor.
    TimesliceClasses,
    /// Descriptor, class of the list, list of data.
    Timeslice,
    /// Length of a component's data, and how many components are still to come with it.
    DataLength(u64),
    Data(u64),
    /// Class of the list, list of descriptors.
    Components,
    ComponentClass(u64),
    ComponentDescriptors,
}

impl ReaderState {
    const fn is_header(self) -> bool {
        matches!(
            self,
            Self::Signature | Self::HeaderClass | Self::HeaderFields | Self::Host | Self::User
        )
    }
}

/// Reads one archive.
///
/// ```
/// use clearway_proto::archive::{Limits, Reader, Remainder};
/// let mut reader = Reader::new(Limits { item_bytes: 1 << 20 });
/// let mut bytes: &[u8] = b"\x16\0\0\0\0\0\0\0serialization::arch";
/// assert!(reader.feed(&mut bytes).unwrap().is_none());
/// assert_eq!(reader.rest(), Remainder::CutHeader(27));
/// ```
#[derive(Debug)]
pub struct Reader {
    limits: Limits,
    stage: ReaderState,
    /// The item so far.
    bytes: Vec<u8>,
    /// How many of `bytes` have been read.
    done: usize,
    /// How many bytes behind `done` the stage waits for.
    want: usize,
    /// Bytes of the stream before `bytes`.
    before: u64,
    /// `bytes` have been lent out.
    lent: bool,
    header: Header,
    /// The classes of items have been named.
    items_named: bool,
    /// The class of a component's descriptor has been named.
    components_named: bool,
    descriptor: TimesliceDescriptor,
    parts: Vec<Range<usize>>,
    components: Vec<ComponentDescriptor>,
    failed: Option<ArchiveError>,
}

impl Reader {
    /// Creates a reader at the beginning of an archive.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            stage: ReaderState::Signature,
            bytes: Vec::new(),
            done: 0,
            want: SIGNATURE_BYTES,
            before: 0,
            lent: false,
            header: Header {
                versions: Versions::NEWEST,
                kind: ArchiveKind::Timeslices,
                compression: Compression::None,
                created_s: 0,
                host: Vec::new(),
                user: Vec::new(),
            },
            items_named: false,
            components_named: false,
            descriptor: TimesliceDescriptor::default(),
            parts: Vec::new(),
            components: Vec::new(),
            failed: None,
        }
    }

    /// Takes bytes from the front of `input` until something is whole. `None` when all are taken
    /// and more are needed.
    ///
    /// # Errors
    /// [`ArchiveError`] when the bytes are no archive, or one that is not read here; also in all
    /// later calls.
    pub fn feed(&mut self, input: &mut &[u8]) -> Result<Option<Parsed>, ArchiveError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.forget_lent();
        while self.fill(input) {
            match self.step() {
                Ok(None) => {}
                Ok(whole) => return Ok(whole),
                Err(fault) => {
                    let error = ArchiveError { at: self.before + self.done as u64, fault };
                    self.failed = Some(error.clone());
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    /// Returns the header with the versions of what has been read so far; `None` until it is whole.
    pub fn header(&self) -> Option<&Header> {
        (self.lent || !self.stage.is_header()).then_some(&self.header)
    }

    /// Returns the item that the last call of [`Self::feed`] made whole, if it did.
    pub fn item(&self) -> Option<Item<'_>> {
        if !self.lent || self.stage.is_header() {
            return None;
        }
        Some(match self.header.kind {
            ArchiveKind::Microslices => {
                let (head, content) = self.bytes.split_at(self.done - self.want);
                let (_, descriptor) = head[..head.len() - 8].split_last_chunk()?;
                Item::Microslice(Microslice {
                    descriptor: MicrosliceDescriptor::from_bytes(descriptor),
                    content,
                })
            }
            ArchiveKind::Timeslices => Item::Timeslice(Timeslice {
                descriptor: self.descriptor,
                bytes: &self.bytes,
                parts: &self.parts,
                descriptors: &self.components,
            }),
        })
    }

    /// Returns what of an item has come without the rest of it; to be asked when the stream has
    /// ended.
    pub fn rest(&self) -> Remainder {
        let bytes = self.bytes.len() as u64;
        match self.stage {
            _ if self.lent => Remainder::Nothing,
            stage if stage.is_header() => Remainder::CutHeader(bytes),
            _ if bytes == 0 => Remainder::Nothing,
            _ => Remainder::CutItem(bytes),
        }
    }

    /// Goes on behind what was lent out.
    fn forget_lent(&mut self) {
        if !self.lent {
            return;
        }
        // Behind a header in the clear the compressed stream begins, which counts its own bytes.
        let restart = self.stage.is_header() && self.header.compression == Compression::Zstd;
        self.before = if restart { 0 } else { self.before + self.bytes.len() as u64 };
        self.bytes.clear();
        self.parts.clear();
        self.components.clear();
        (self.done, self.lent) = (0, false);
        let classes = if self.items_named { 0 } else { 2 * CLASS };
        (self.stage, self.want) = match self.header.kind {
            ArchiveKind::Microslices => {
                (ReaderState::Microslice, classes + MicrosliceDescriptor::BYTES + 8)
            }
            ArchiveKind::Timeslices if classes > 0 => (ReaderState::TimesliceClasses, classes),
            ArchiveKind::Timeslices => (ReaderState::Timeslice, self.timeslice_bytes() + LIST),
        };
    }

    /// Takes what the stage waits for, as far as `input` has it.
    fn fill(&mut self, input: &mut &[u8]) -> bool {
        let lacking = self.done + self.want - self.bytes.len();
        let (taken, left) = input.split_at(lacking.min(input.len()));
        self.bytes.extend_from_slice(taken);
        *input = left;
        taken.len() == lacking
    }

    /// Reads the run of bytes that the stage waited for, which is there.
    fn step(&mut self) -> Result<Option<Parsed>, ArchiveFault> {
        let run = self.done..self.done + self.want;
        match self.stage {
            ReaderState::Signature => {
                self.header.versions.library = library_of(&self.bytes[run])?;
                Ok(self.go_on(ReaderState::HeaderClass, CLASS))
            }
            ReaderState::HeaderClass => {
                let version = self.class(0, "ArchiveDescriptor", HEADER_NEWEST)?;
                self.header.versions.header = version;
                Ok(self.go_on(ReaderState::HeaderFields, 4 * version as usize + 16))
            }
            ReaderState::HeaderFields => self.header_fields(),
            ReaderState::Host => {
                let name = self.want - 8;
                self.header.host = self.bytes[run][..name].to_vec();
                let length = name_length(self.long(name))?;
                Ok(self.go_on(ReaderState::User, length))
            }
            ReaderState::User => {
                self.header.user = self.bytes[run].to_vec();
                Ok(self.whole(Parsed::Header))
            }
            ReaderState::Microslice => {
                if !self.items_named {
                    self.class(0, "StorableMicroslice", 0)?;
                    self.class(CLASS, "MicrosliceDescriptor", 0)?;
                    self.items_named = true;
                }
                let (stated, found) = (self.short(self.want - 20), self.long(self.want - 8));
                if u64::from(stated) != found {
                    return Err(ArchiveFault::Length { stated, found });
                }
                self.demand(ReaderState::Content, found)
            }
            ReaderState::Content => Ok(self.whole(Parsed::Item)),
            ReaderState::TimesliceClasses => {
                self.class(0, "StorableTimeslice", 0)?;
                self.header.versions.timeslice =
                    self.class(CLASS, "TimesliceDescriptor", TimesliceDescriptor::NEWEST)?;
                self.demand(ReaderState::Timeslice, (self.timeslice_bytes() + CLASS + LIST) as u64)
            }
            ReaderState::Timeslice => self.timeslice(),
            ReaderState::DataLength(left) => self.demand(ReaderState::Data(left), self.long(0)),
            ReaderState::Data(left) => {
                self.parts.push(run);
                self.data_from(left - 1)
            }
            ReaderState::Components => self.components(),
            ReaderState::ComponentClass(count) => {
                let version =
                    self.class(0, "TimesliceComponentDescriptor", ComponentDescriptor::NEWEST)?;
                if version != self.header.versions.component {
                    return Err(ArchiveFault::Elements(self.header.versions.component));
                }
                self.components_named = true;
                self.descriptors_of(count)
            }
            ReaderState::ComponentDescriptors => {
                let version = self.header.versions.component;
                let each = self.bytes[run].chunks_exact(self.component_bytes());
                self.components
                    .extend(each.map(|bytes| ComponentDescriptor::from_bytes(bytes, version)));
                Ok(self.whole(Parsed::Item))
            }
        }
    }

    fn header_fields(&mut self) -> Result<Option<Parsed>, ArchiveFault> {
        let version = self.header.versions.header;
        let kind = if version >= 1 { self.short(0) as i32 } else { 0 };
        let compression = if version >= 2 { self.short(4) as i32 } else { 0 };
        self.header.kind = ArchiveKind::from_number(kind)?;
        self.header.compression = Compression::from_number(compression)?;
        self.header.created_s = self.long(self.want - 16) as i64;
        let length = name_length(self.long(self.want - 8))?;
        Ok(self.go_on(ReaderState::Host, length + 8))
    }

    fn timeslice(&mut self) -> Result<Option<Parsed>, ArchiveFault> {
        let length = self.timeslice_bytes();
        let bytes = &self.bytes[self.done..self.done + length];
        self.descriptor = TimesliceDescriptor::from_bytes(bytes, self.header.versions.timeslice);
        let (count, version) = self.list(length, "vector of data")?;
        if version != 0 {
            return Err(ArchiveFault::Elements(version));
        }
        let stated = u64::from(self.descriptor.components);
        if stated != count {
            return Err(ArchiveFault::Count { stated, found: count });
        }
        self.data_from(count)
    }

    /// Goes on to the next of `left` components' data, or to the list of their descriptors.
    fn data_from(&mut self, left: u64) -> Result<Option<Parsed>, ArchiveFault> {
        match left {
            0 => self.demand(ReaderState::Components, (self.list_class() + LIST) as u64),
            _ => self.demand(ReaderState::DataLength(left), 8),
        }
    }

    fn components(&mut self) -> Result<Option<Parsed>, ArchiveFault> {
        let (count, version) = self.list(0, "vector of descriptors")?;
        let stated = self.parts.len() as u64;
        if stated != count {
            return Err(ArchiveFault::Count { stated, found: count });
        }
        // The list tells the version of its elements each time, their class only once.
        let known = self.items_named.then_some(self.header.versions.component);
        if version > ComponentDescriptor::NEWEST || known.is_some_and(|known| known != version) {
            return Err(ArchiveFault::Elements(version));
        }
        self.header.versions.component = version;
        // Both lists have been seen, so their classes are not named again.
        self.items_named = true;
        if count > 0 && !self.components_named {
            return self.demand(ReaderState::ComponentClass(count), CLASS as u64);
        }
        self.descriptors_of(count)
    }

    fn descriptors_of(&mut self, count: u64) -> Result<Option<Parsed>, ArchiveFault> {
        self.demand(ReaderState::ComponentDescriptors, count * self.component_bytes() as u64)
    }

    /// Ends the run that was read; next comes one of `want` bytes.
    fn go_on(&mut self, stage: ReaderState, want: usize) -> Option<Parsed> {
        self.done += self.want;
        (self.stage, self.want) = (stage, want);
        None
    }

    /// Returns the same, where the length of the next run is part of an item.
    fn demand(&mut self, stage: ReaderState, want: u64) -> Result<Option<Parsed>, ArchiveFault> {
        let bytes = (self.done as u64 + self.want as u64).saturating_add(want);
        let most = self.limits.item_bytes;
        match usize::try_from(want) {
            Ok(want) if bytes <= most => Ok(self.go_on(stage, want)),
            _ => Err(ArchiveFault::TooLong { bytes, most }),
        }
    }

    /// Ends the run that was read, with which something is whole.
    fn whole(&mut self, what: Parsed) -> Option<Parsed> {
        self.done += self.want;
        self.lent = true;
        Some(what)
    }

    /// Returns the number at `at` of the run, which is there.
    fn long(&self, at: usize) -> u64 {
        self.bytes[self.done + at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// Returns the same, of half the width.
    fn short(&self, at: usize) -> u32 {
        self.bytes[self.done + at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    /// Returns the version of `class`, which is named at `at` of the run.
    fn class(&self, at: usize, class: &'static str, newest: u32) -> Result<u32, ArchiveFault> {
        let version = self.short(at + 1);
        match self.bytes[self.done + at] {
            0 if version <= newest => Ok(version),
            0 => Err(ArchiveFault::Class { class, version, newest }),
            _ => Err(ArchiveFault::Tracked(class)),
        }
    }

    /// Returns how many elements the list at `at` of the run has, and their version.
    fn list(&self, at: usize, class: &'static str) -> Result<(u64, u32), ArchiveFault> {
        let named = self.list_class();
        if named > 0 {
            self.class(at, class, 0)?;
        }
        let count = self.long(at + named);
        let version = self.short(at + named + 8);
        if count > COMPONENTS_MAX {
            Err(ArchiveFault::TooMany(count))
        } else {
            Ok((count, version))
        }
    }

    /// Returns the length of the class before a list: only the first timeslice names it.
    fn list_class(&self) -> usize {
        if self.items_named { 0 } else { CLASS }
    }

    fn timeslice_bytes(&self) -> usize {
        TimesliceDescriptor::BYTES[self.header.versions.timeslice as usize]
    }

    fn component_bytes(&self) -> usize {
        ComponentDescriptor::BYTES[self.header.versions.component as usize]
    }
}

/// Returns a length that names of hosts and users have.
fn name_length(length: u64) -> Result<usize, ArchiveFault> {
    match length {
        0..=NAME_BYTES_MAX => Ok(length as usize),
        _ => Err(ArchiveFault::Name(length)),
    }
}
