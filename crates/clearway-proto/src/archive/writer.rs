//! Writes archives item by item.

use alloc::vec::Vec;

use super::{Component, Header, TimesliceDescriptor, Versions};
use crate::microslice::Microslice;

/// Puts items behind a header. Bytes are handed out in pieces as they are, without a copy; what
/// takes them may fail, and then the archive ends with a cut item.
///
/// ```
/// use clearway_proto::archive::{Compression, Header, ArchiveKind, Versions, Writer};
/// let (host, user) = (b"h".to_vec(), b"u".to_vec());
/// let header = Header { versions: Versions::NEWEST, kind: ArchiveKind::Timeslices, compression: Compression::None, created_s: 0, host, user };
/// let (_writer, bytes) = Writer::new(&header);
/// assert_eq!(bytes.len(), 40 + 5 + 4 + 4 + 8 + 9 + 9);
/// ```
#[derive(Clone, Debug)]
pub struct Writer {
    versions: Versions,
    /// Whether the classes of an item have been named.
    named: NamedClasses,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NamedClasses {
    Nothing,
    /// All but the descriptor of a component, of which there was none yet.
    Items,
    Components,
}

/// Returns the two numbers of a list before its elements: how many, and the version of their class.
fn list(count: usize, version: u32) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&(count as u64).to_le_bytes());
    bytes[8..].copy_from_slice(&version.to_le_bytes());
    bytes
}

fn class(version: u32) -> [u8; 5] {
    let mut bytes = [0; 5];
    bytes[1..].copy_from_slice(&version.to_le_bytes());
    bytes
}

impl Writer {
    /// Creates a writer, and the bytes that the archive begins with. Where the header says that the
    /// items are compressed, what is written from then on belongs into the compressed stream.
    pub fn new(header: &Header) -> (Self, Vec<u8>) {
        (Self { versions: header.versions, named: NamedClasses::Nothing }, header.to_bytes())
    }

    /// Writes a microslice; its descriptor's size should be that of the content.
    ///
    /// # Errors
    /// What `put` returns.
    pub fn microslice<E>(
        &mut self,
        microslice: &Microslice<'_>,
        put: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.named == NamedClasses::Nothing {
            put(&class(0))?;
            put(&class(0))?;
            self.named = NamedClasses::Items;
        }
        put(&microslice.descriptor.to_bytes())?;
        put(&(microslice.content.len() as u64).to_le_bytes())?;
        put(microslice.content)
    }

    /// Writes a timeslice of as many components as there are, whatever its descriptor says; the
    /// size in a component's descriptor should be that of its data.
    ///
    /// # Errors
    /// What `put` returns.
    pub fn timeslice<'a, E>(
        &mut self,
        descriptor: &TimesliceDescriptor,
        components: impl ExactSizeIterator<Item = Component<'a>> + Clone,
        put: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let first = self.named == NamedClasses::Nothing;
        if first {
            put(&class(0))?;
            put(&class(self.versions.timeslice))?;
            self.named = NamedClasses::Items;
        }
        let count = components.len();
        let descriptor = TimesliceDescriptor { components: count as u32, ..*descriptor };
        put(descriptor.to_bytes(self.versions.timeslice).bytes())?;
        if first {
            put(&class(0))?;
        }
        put(&list(count, 0))?;
        for component in components.clone() {
            put(&(component.data.len() as u64).to_le_bytes())?;
            put(component.data)?;
        }
        if first {
            put(&class(0))?;
        }
        put(&list(count, self.versions.component))?;
        for component in components {
            self.component(&component, put)?;
        }
        Ok(())
    }

    fn component<E>(
        &mut self,
        component: &Component<'_>,
        put: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.named != NamedClasses::Components {
            put(&class(self.versions.component))?;
            self.named = NamedClasses::Components;
        }
        put(component.descriptor.to_bytes(self.versions.component).bytes())
    }
}
