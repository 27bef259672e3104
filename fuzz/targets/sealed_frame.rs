//! Frames of sealed datagrams: any bytes read as what is written as them, or are refused; head and
//! tag lie within the datagram.

#![no_main]

use clearway_runtime::udp::frame::{SEALED_LENGTH, SEALED_OVERHEAD, SealedFrame};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The session number is the datagram's own, so that the fuzzer need not guess eight bytes to
    // get further.
    let session =
        bytes.get(8..16).and_then(|number| number.try_into().ok()).map_or(0, u64::from_le_bytes);
    if let Some(sealed) = SealedFrame::parse(bytes, session) {
        assert_eq!(sealed.write(session), bytes[..SEALED_LENGTH]);
        assert!(bytes.len() >= SEALED_OVERHEAD + usize::from(sealed.head_length));
    }
});
