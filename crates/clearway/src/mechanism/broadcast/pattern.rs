//! What objects are made of: bytes that follow from seed and number, so that a receiver can know them without having seen them.

use clearway_proto::base::{Bytes, RandomKey};
use clearway_proto::wire::{Span, Wire, bytes_of};

/// Makes object `number` of a cast with `seed` in the memory at `at`, if there is any.
pub(super) fn make(wire: &mut dyn Wire, at: Span, seed: u64, number: u32) {
    let memory = wire.region_mut(at.region).and_then(|memory| {
        let range = at.range_in(memory.len())?;
        memory.get_mut(range)
    });
    if let Some(memory) = memory {
        fill(memory, seed, number);
    }
}

/// What is wrong with the bytes at `at`, which are to be object `number` of `length` bytes of a cast with `seed`.
pub(super) fn fault(wire: &dyn Wire, at: Span, length: Bytes, seed: u64, number: u32) -> Option<String> {
    let bytes = bytes_of(wire.region(at.region), at).unwrap_or_default();
    match bytes.len() as u64 == length.0 {
        true => differs(bytes, seed, number).map(|at| format!("is wrong at byte {at}")),
        false => Some(format!("has {} bytes", bytes.len())),
    }
}

/// Fills `bytes` with object `number` of a cast with `seed`.
fn fill(bytes: &mut [u8], seed: u64, number: u32) {
    let mut words = stream(seed, number);
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&words.next_u64().to_le_bytes()[..chunk.len()]);
    }
}

/// Where `bytes` differ first from what [`fill`] makes.
fn differs(bytes: &[u8], seed: u64, number: u32) -> Option<usize> {
    let mut words = stream(seed, number);
    let wrong = |chunk: &[u8]| words.next_u64().to_le_bytes()[..chunk.len()] != *chunk;
    bytes.chunks(8).position(wrong).map(|chunk| chunk * 8)
}

fn stream(seed: u64, number: u32) -> clearway_proto::base::RandomStream {
    RandomKey::new(seed).purpose("broadcast object").node(u64::from(number)).stream()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differs__finds_the_place_of_one_wrong_byte() {
        let mut bytes = [0; 21];
        fill(&mut bytes, 7, 3);
        assert_eq!(differs(&bytes, 7, 3), None);
        assert_eq!(differs(&bytes, 7, 4), Some(0), "another object is other bytes");
        bytes[20] ^= 1;
        assert_eq!(differs(&bytes, 7, 3), Some(16));
    }
}
