//! Datagrams of the UDP wire: any bytes are a message of some rank of this job, or are refused.

#![no_main]

use clearway_runtime::udp::frame;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The session number is the datagram's own, so that the fuzzer need not guess eight bytes to
    // get further.
    let session =
        bytes.get(8..16).and_then(|number| number.try_into().ok()).map_or(0, u64::from_le_bytes);
    if let Some(frame) = frame::parse(bytes, session) {
        assert!(bytes.get(frame.body_start..).is_some());
    }
});
