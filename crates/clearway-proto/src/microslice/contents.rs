//! What can be checked of a microslice's content: its CRC, and the ramp of FLESnet's pattern
//! generator.
//!
//! # Model
//! The ramp is made of 64-bit words: the one that begins at byte `i` is `channel << 48 | i`. Its
//! generator does not set the CRC flag and writes another checksum into that field: the exclusive
//! or of all 32-bit halves, [`fold`].

use super::{Microslice, MicrosliceDescriptor};

/// The subsystem of FLESnet's own generators.
pub(super) const FLES: u8 = 0xf0;

/// How a subsystem of [`FLES`] calls the ramp.
pub(super) const RAMP: u8 = 0x81;

/// How a subsystem of [`FLES`] calls content that nobody wrote.
const UNINITIALISED: u8 = 0x80;

/// Bytes that are compared before a check whether any of them differed: few enough for a part of a
/// first-level cache, and enough for a processor to compare several words at a time.
const BLOCK: usize = 4096;

/// Returns the checksum of FLESnet's generator: all 32-bit words of `content` under exclusive or;
/// bytes after the last whole 64-bit word do not count.
pub fn fold(content: &[u8]) -> u32 {
    let words = content.chunks_exact(8).map(word).fold(0, |sum, word| sum ^ word);
    (words ^ (words >> 32)) as u32
}

/// What is known of the content by its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentPattern {
    /// The ramp.
    Ramp,
    /// Nothing was written there.
    Uninitialised,
    /// A detector's data, or a pattern of its hardware.
    Foreign,
}

/// Returns what the descriptor says that the content is.
pub const fn pattern_of(descriptor: &MicrosliceDescriptor) -> ContentPattern {
    match (descriptor.subsystem, descriptor.subsystem_format) {
        (FLES, RAMP) => ContentPattern::Ramp,
        (FLES, UNINITIALISED) => ContentPattern::Uninitialised,
        _ => ContentPattern::Foreign,
    }
}

/// Returns the channel of the ramp in `microslice`, or `None` where it is not that of one channel.
/// An empty ramp belongs to `expected`, or to channel 0.
pub fn ramp_channel(microslice: &Microslice<'_>, expected: Option<u16>) -> Option<u16> {
    let first =
        microslice.content.first_chunk().map(|first| (u64::from_le_bytes(*first) >> 48) as u16);
    let channel = expected.or(first).unwrap_or(0);
    is_ramp(channel, microslice.content).then_some(channel)
}

/// Returns whether all whole words of `content` are those of the ramp of `channel`.
fn is_ramp(channel: u16, content: &[u8]) -> bool {
    let starts = (0u64..).step_by(BLOCK);
    content.chunks(BLOCK).zip(starts).all(|(block, at)| {
        let mut expected = ramp_word(channel, at);
        let (words, _) = block.as_chunks();
        let differences = words.iter().fold(0, |differences, word| {
            let difference = u64::from_le_bytes(*word) ^ expected;
            expected += 8;
            differences | difference
        });
        differences == 0
    })
}

/// Writes the ramp of `channel`; bytes after the last whole word become zero.
pub(super) fn write_ramp(channel: u16, content: &mut [u8]) {
    let (words, rest) = content.as_chunks_mut();
    for (word, number) in words.iter_mut().zip(0..) {
        *word = ramp_word(channel, 8 * number).to_le_bytes();
    }
    rest.fill(0);
}

const fn ramp_word(channel: u16, at: u64) -> u64 {
    (channel as u64) << 48 | at
}

fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::microslice::MicrosliceFlags;

    fn microslice(content: &[u8]) -> Microslice<'_> {
        let descriptor = MicrosliceDescriptor {
            flags: MicrosliceFlags(0),
            ..MicrosliceDescriptor::from_bytes(&[0; 32])
        };
        Microslice { descriptor, content }
    }

    #[test]
    fn fold__takes_both_halves_of_whole_words() {
        let content = [1, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0x80, 99];
        assert_eq!(fold(&content), 1 ^ 2 ^ 4 ^ 0x8000_0000);
    }

    #[test]
    fn ramp_channel__tells_the_ramp_from_anything_else() {
        let mut content = [0; 24];
        write_ramp(0x0102, &mut content);
        assert_eq!(content[8..16], [8, 0, 0, 0, 0, 0, 2, 1]);
        assert_eq!(ramp_channel(&microslice(&content), None), Some(0x0102));
        assert_eq!(ramp_channel(&microslice(&content), Some(0x0102)), Some(0x0102));
        assert_eq!(ramp_channel(&microslice(&content), Some(3)), None);
        content[17] ^= 1;
        assert_eq!(ramp_channel(&microslice(&content), None), None);
        // One bit in any word of several blocks.
        let mut long = std::vec![0; 2 * BLOCK + 24];
        write_ramp(7, &mut long);
        assert_eq!(ramp_channel(&microslice(&long), None), Some(7));
        for at in [0, 8, BLOCK - 1, BLOCK, BLOCK + 9, 2 * BLOCK + 23] {
            long[at] ^= 0x10;
            assert_eq!(ramp_channel(&microslice(&long), Some(7)), None, "byte {at}");
            long[at] ^= 0x10;
        }
        assert_eq!(ramp_channel(&microslice(&[]), Some(3)), Some(3));
        assert_eq!(ramp_channel(&microslice(&[1, 2, 3]), None), Some(0));
    }
}
