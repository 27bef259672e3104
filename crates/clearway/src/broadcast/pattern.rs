//! What objects are made of: bytes that follow from seed and number, so that a receiver can know them without having seen them.

use clearway_proto::base::RandomKey;

/// Fills `bytes` with object `number` of a cast with `seed`.
pub(super) fn fill(bytes: &mut [u8], seed: u64, number: u32) {
    let mut words = stream(seed, number);
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&words.next_u64().to_le_bytes()[..chunk.len()]);
    }
}

/// Where `bytes` differ first from what [`fill`] makes.
pub(super) fn differs(bytes: &[u8], seed: u64, number: u32) -> Option<usize> {
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
