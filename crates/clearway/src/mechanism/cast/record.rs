//! What one object of the broadcast holds: blocks of files and their ends, one behind the other.
//!
//! # Model
//! ```text
//! kind u8, file u32, block u32, length u32, bytes ..   a block
//! kind u8, file u32, block u32, length u32             a block of zeros
//! kind u8, file u32, size u64, root [u8; 32]           a file ends
//! kind u8, file u32                                    a file cannot be read any further
//! ```
//!
//! # Invariants
//! I1. Any bytes are read without fault: what is no record ends the object with an error.

use clearway_proto::base::ByteReader;

use super::plan::{BLOCK, BlockHash};

const BLOCK_KIND: u8 = 1;
const ZEROS_KIND: u8 = 2;
const END_KIND: u8 = 3;
const BROKEN_KIND: u8 = 4;
/// Bytes in front of a block.
const HEAD: usize = 13;
/// Bytes of an object, at most: four blocks, so that memory stays small and disks see long writes.
pub(super) const OBJECT_MAX: usize = 4 * (BLOCK as usize + HEAD) + 4096;

/// Part of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectPart<'b> {
    Block {
        file: u32,
        block: u32,
        bytes: &'b [u8],
    },
    Zeros {
        file: u32,
        block: u32,
        length: u32,
    },
    /// All that there is of a file has come.
    End {
        file: u32,
        size: u64,
        root: BlockHash,
    },
    /// The file changed or cannot be read: what came of it is worth nothing.
    Broken {
        file: u32,
    },
}

impl ObjectPart<'_> {
    /// Returns how many bytes it has in an object.
    pub(super) const fn length(&self) -> usize {
        match self {
            Self::Block { bytes, .. } => HEAD + bytes.len(),
            Self::Zeros { .. } => HEAD,
            Self::End { .. } => 1 + 4 + 8 + 32,
            Self::Broken { .. } => 1 + 4,
        }
    }

    /// Adds it to `object`.
    pub(super) fn write(&self, object: &mut Vec<u8>) {
        let mut head = |kind: u8, file: u32| {
            object.push(kind);
            object.extend(file.to_le_bytes());
        };
        match *self {
            Self::Block { file, block, bytes } => {
                head(BLOCK_KIND, file);
                object.extend(block.to_le_bytes());
                object.extend((bytes.len() as u32).to_le_bytes());
                object.extend_from_slice(bytes);
            }
            Self::Zeros { file, block, length } => {
                head(ZEROS_KIND, file);
                object.extend(block.to_le_bytes());
                object.extend(length.to_le_bytes());
            }
            Self::End { file, size, root } => {
                head(END_KIND, file);
                object.extend(size.to_le_bytes());
                object.extend(root);
            }
            Self::Broken { file } => head(BROKEN_KIND, file),
        }
    }
}

/// The records of an object; after what is none, an error and nothing more.
pub(super) struct ObjectParts<'b> {
    rest: ByteReader<'b>,
}

/// What follows is no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MalformedPart;

impl<'b> ObjectParts<'b> {
    pub(super) const fn from_object(object: &'b [u8]) -> Self {
        Self { rest: ByteReader::new(object) }
    }

    fn read(&mut self) -> Option<ObjectPart<'b>> {
        let rest = &mut self.rest;
        let (kind, file) = (rest.u8()?, rest.u32()?);
        match kind {
            BLOCK_KIND | ZEROS_KIND => {
                let (block, length) = (rest.u32()?, rest.u32()?);
                if length == 0 || u64::from(length) > BLOCK {
                    return None;
                }
                if kind == ZEROS_KIND {
                    return Some(ObjectPart::Zeros { file, block, length });
                }
                Some(ObjectPart::Block { file, block, bytes: rest.run(length as usize)? })
            }
            END_KIND => Some(ObjectPart::End { file, size: rest.u64()?, root: rest.take()? }),
            BROKEN_KIND => Some(ObjectPart::Broken { file }),
            _ => None,
        }
    }
}

impl<'b> Iterator for ObjectParts<'b> {
    type Item = Result<ObjectPart<'b>, MalformedPart>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let record = self.read().ok_or(MalformedPart);
        if record.is_err() {
            self.rest = ByteReader::new(&[]);
        }
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records__are_what_was_written() {
        let records = [
            ObjectPart::Block { file: 7, block: 3, bytes: b"bytes" },
            ObjectPart::Zeros { file: 7, block: 4, length: BLOCK as u32 },
            ObjectPart::End { file: 7, size: 1 << 40, root: [9; 32] },
            ObjectPart::Broken { file: u32::MAX },
        ];
        let mut object = Vec::new();
        records.iter().for_each(|record| record.write(&mut object));
        assert_eq!(object.len(), records.iter().map(ObjectPart::length).sum::<usize>());
        let read: Vec<_> =
            ObjectParts::from_object(&object).collect::<Result<_, _>>().expect("records");
        assert_eq!(read, records);
        for end in 1..object.len() {
            let read: Vec<_> = ObjectParts::from_object(&object[..end]).collect();
            let whole = read.iter().take_while(|record| record.is_ok()).count();
            assert!(read.len() <= whole + 1 && whole <= records.len(), "{end}");
        }
    }

    #[test]
    fn records__what_is_none_ends_the_object() {
        let block = |length: u32| {
            let mut object = vec![BLOCK_KIND, 0, 0, 0, 0, 0, 0, 0, 0];
            object.extend(length.to_le_bytes());
            object.extend([1; 8]);
            object
        };
        assert_eq!(ObjectParts::from_object(&block(8)).filter(Result::is_ok).count(), 1);
        for none in
            [vec![0; 20], vec![9], block(0), block(9), block(u32::MAX), block(BLOCK as u32 + 1)]
        {
            let read: Vec<_> = ObjectParts::from_object(&none).collect();
            assert_eq!(read.last(), Some(&Err(MalformedPart)), "{none:?}");
        }
    }
}
