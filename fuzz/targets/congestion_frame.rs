//! Headers of the congestion test: any bytes parse to what encodes to them, or are refused.

#![no_main]

use clearway_proto::congestion::CongestionFrame;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some((class, phase, frame)) = CongestionFrame::parse(bytes) {
        assert_eq!(frame.encode(class, phase).bytes(), bytes);
    }
});
