//! What one pass that writes bytes and one that computes their CRC-32C take: the least that made and
//! checked contents cost. Prints `fill` and `crc` with their seconds of a processor per GB, the medians of some
//! passes.

use std::hint::black_box;
use std::io::Write;

use clearway_proto::base::crc32c;
use clearway_runtime::clock;

/// More than any cache.
const BYTES: usize = 256 << 20;
const PASSES: usize = 7;

fn main() {
    let mut bytes = vec![1_u8; BYTES];
    let (mut fills, mut crcs) = (Vec::new(), Vec::new());
    for pass in 0..PASSES as u64 {
        fills.push(seconds(|| {
            for (word, at) in bytes.chunks_exact_mut(8).zip((0_u64..).step_by(8)) {
                word.copy_from_slice(&(pass << 48 | at).to_le_bytes());
            }
            black_box(&bytes);
        }));
        crcs.push(seconds(|| {
            black_box(crc32c(&bytes));
        }));
    }
    for (name, mut passes) in [("fill", fills), ("crc", crcs)] {
        passes.sort_by(f64::total_cmp);
        let seconds = passes[PASSES / 2] / (BYTES as f64 / 1e9);
        writeln!(std::io::stdout(), "{name} {seconds}").expect("standard output");
    }
}

fn seconds(pass: impl FnOnce()) -> f64 {
    let begun = clock::processor();
    pass();
    (clock::processor() - begun).0 as f64 / 1e9
}
