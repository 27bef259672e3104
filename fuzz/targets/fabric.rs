//! Fabric files: any text is a fabric, or is refused, and no number in it asks for more memory than
//! there is.

#![no_main]

use clearway_sim::spec::file::{FabricFile, FileOptions};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = FabricFile::parse("a file", text, FileOptions::default());
});
