//! A log of staged data, and whatever lies on its disk: it never panics, always comes to an end,
//! and a state that was read is written as the same state.
//! `crates/clearway-proto/tests/engines/staging` has strings to begin with.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/clearway-proto/tests/engines/staging/feed.rs"]
mod feed;

fuzz_target!(|bytes: &[u8]| feed::run(bytes));
