//! Headers of GPCNeT's tests: any bytes parse to what encodes to them, or are refused.

#![no_main]

use clearway_proto::gpcnet::GpcnetFrame;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some((number, frame)) = GpcnetFrame::parse(bytes) {
        assert_eq!(frame.encode(number).bytes(), bytes);
    }
});
