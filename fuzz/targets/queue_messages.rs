//! A rank with far one-sided operations: whatever strangers send as records or headers, it never
//! panics, and nothing outside its heap changes. `crates/clearway-proto/tests/engines/queue` has
//! the corpus to begin with.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/clearway-proto/tests/engines/queue/feed.rs"]
mod feed;

fuzz_target!(|bytes: &[u8]| feed::run(bytes));
