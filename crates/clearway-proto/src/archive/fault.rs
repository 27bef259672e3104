//! Why bytes are no archive, in one sentence each, with the place.

use core::fmt;

/// Reading stops here: from this place on nobody can know what the bytes mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveError {
    /// Where the offending field begins, in bytes from the beginning of the stream; behind the
    /// header of a compressed archive, in bytes of the decompressed stream.
    pub at: u64,
    /// What is wrong there.
    pub fault: ArchiveFault,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArchiveFault {
    /// It does not begin as an archive does.
    Signature,
    /// Written by a version of the Boost library that is not known here.
    Library(u16),
    /// Written by a machine with other numbers.
    Machine([u8; 8]),
    /// A class in a version that is not known here.
    Class {
        /// The class.
        class: &'static str,
        /// Its version in the file.
        version: u32,
        /// The newest known.
        newest: u32,
    },
    /// An object that Boost would look for elsewhere in the archive, which FLESnet never writes.
    Tracked(&'static str),
    /// Neither microslices nor timeslices.
    Kind(i32),
    /// A compression that is not known here.
    Compression(i32),
    /// A host or user whose name is longer than names are.
    Name(u64),
    /// An item that is longer than the reader was asked to accept.
    TooLong {
        /// The least number of bytes that it has.
        bytes: u64,
        /// The greatest number that is accepted.
        most: u64,
    },
    /// A microslice whose content has another length than its descriptor says: one of the two is
    /// wrong, so nobody knows where it ends.
    Length {
        /// By its descriptor.
        stated: u32,
        /// By the number before the content.
        found: u64,
    },
    /// More components than there are equipment numbers.
    TooMany(u64),
    /// A timeslice that does not agree with itself on how many components it has.
    Count {
        /// By its descriptor, or its data.
        stated: u64,
        /// By what follows.
        found: u64,
    },
    /// The elements of a list in a version that is not known here, or not that of their class.
    Elements(u32),
}

impl fmt::Display for ArchiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.at, self.fault)
    }
}

impl core::error::Error for ArchiveError {}

impl fmt::Display for ArchiveFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signature => f.write_str("this is no Boost archive"),
            Self::Library(version) => {
                write!(f, "version {version} of Boost's archives is not known here; 10 to 20 are")
            }
            Self::Machine(widths) => write!(
                f,
                "the archive was written on a machine with other numbers ({widths:?}); 64-bit little-endian is read here"
            ),
            Self::Class { class, version, newest } => {
                write!(f, "{class} has version {version}, of which the newest known here is {newest}")
            }
            Self::Tracked(class) => write!(f, "{class} is marked as tracked, which no archive of this kind is"),
            Self::Kind(2) => {
                f.write_str("the archive holds reconstruction results; microslices and timeslices are read here")
            }
            Self::Kind(3) => f.write_str("the archive holds quality data; microslices and timeslices are read here"),
            Self::Kind(kind) => write!(f, "the archive holds items of the unknown kind {kind}"),
            Self::Compression(number) => {
                write!(f, "the unknown compression {number}; none (0) and zstd (1) are read here")
            }
            Self::Name(bytes) => write!(f, "the name of a host or user of {bytes} bytes"),
            Self::TooLong { bytes, most } => {
                write!(f, "an item of at least {bytes} bytes, of which {most} are accepted")
            }
            Self::Length { stated, found } => {
                write!(f, "a microslice has {stated} bytes by its descriptor and {found} by the length of its content")
            }
            Self::TooMany(count) => write!(f, "a timeslice of {count} components; equipment numbers have 16 bits"),
            Self::Count { stated, found } => {
                write!(f, "the timeslice is said to have {stated} components, and {found} follow")
            }
            Self::Elements(version) => {
                write!(f, "a list of elements in version {version}, which is unknown here or not that of the others")
            }
        }
    }
}
