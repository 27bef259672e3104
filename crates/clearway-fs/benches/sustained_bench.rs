//! Writes a file in pieces of 1 MiB, and syncs it: into a file system that does nothing, or anywhere.
//!
//! `sustained_bench null DIRECTORY MIB` mounts that file system on an empty directory;
//! `sustained_bench write FILE MIB` writes a file that is there already or not. Both print the seconds
//! from the first write to the end of the sync, and those that processors spent in this program.
//!
//! # Not here
//! Rounds, medians and ratios: `xtask/src/bench/sustained.rs`.

use std::error::Error;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

#[path = "null/mod.rs"]
mod null;

/// Bytes of a write.
const PIECE: u64 = 1 << 20;

/// Returns the seconds that processors spent in this process.
fn processor() -> f64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

fn write(path: &Path, mib: u64) -> Result<(), Box<dyn Error>> {
    let bytes: Vec<u8> = (0..PIECE).map(|at| (at * 7 % 251) as u8).collect();
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    let (began, before) = (Instant::now(), processor());
    for number in 0..mib {
        file.write_all_at(&bytes, number * PIECE)?;
    }
    file.sync_data()?;
    println!("seconds {} processor {}", began.elapsed().as_secs_f64(), processor() - before);
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["null", directory, mib] => {
            let session = null::mount(Path::new(directory))?;
            let written = write(&Path::new(directory).join("file"), mib.parse()?);
            session.umount_and_join()?;
            written
        }
        ["write", file, mib] => write(Path::new(file), mib.parse()?),
        // Cargo runs benches without words of ours.
        _ => {
            println!(
                "sustained_bench null DIRECTORY MIB, or write FILE MIB; see `cargo xtask bench sustained`"
            );
            Ok(())
        }
    }
}
