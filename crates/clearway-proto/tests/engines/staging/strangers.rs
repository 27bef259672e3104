//! What can lie on the disk of a log: thousands of strings, from which
//! `fuzz/targets/staging_log.rs` begins too.

use clearway_proto::base::RandomKey;

use super::feed;
use super::machine::{Machine, blank};
use clearway_proto::staging::{LogId, LogOrigin};

#[test]
fn feed__any_bytes_are_a_log_or_none() {
    let mut stream = RandomKey::new(3).purpose("staging strangers").stream();
    for length in 0..6_000_u64 {
        let bytes: Vec<u8> =
            (0..length % 400).map(|_| (stream.next_u64() >> stream.below(60)) as u8).collect();
        feed::run(&bytes);
    }
}

#[test]
fn feed__a_state_with_a_changed_byte_is_a_state_or_none() {
    let machine = Machine::open(blank(), LogOrigin::New(LogId(1)), None).expect("a new log");
    let state = machine.state().encode();
    for byte in 0..state.len() {
        for bit in 0..8 {
            let mut bytes = [&[0][..], &state].concat();
            bytes[1 + byte] ^= 1 << bit;
            feed::run(&bytes);
        }
    }
}
