//! A rank that builds timeslices: whatever it is notified by strangers, about contributions or about
//! who takes part, it never panics. `crates/clearway-proto/tests/engines/timeslice_node` has the
//! corpus to begin with.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/clearway-proto/tests/engines/timeslice_node/feed.rs"]
mod feed;

fuzz_target!(|bytes: &[u8]| feed::run(bytes));
