//! Opens logs, and says what is in them.
//!
//! Each line of standard input is a directory with a log in `log` and its store in `store`. The answer
//! is a line for each name: `entry`,
//! the number of its inode, its kind, mode, size, a digest of its bytes or target, and its path. Then
//! follows `end`, or `refused` and why the log cannot be opened.
//!
//! # Not here
//! What should be there: `xtask/src/crash`.

use std::error::Error;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, BufRead, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;

use clearway_fs::contents::{LoggedContent, LoggedEntry, read_log};
use clearway_fs::log_directory::LogSizes;
use clearway_fs::mount::Reporter;
use clearway_proto::base::Bytes;

/// The smallest log.
const SIZES: LogSizes = LogSizes { total: Bytes(64 << 20), inodes: 10_000 };

fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

fn line(entry: &LoggedEntry) -> String {
    let (kind, bytes) = match &entry.content {
        LoggedContent::Directory => ("directory", &[][..]),
        LoggedContent::File(Some(bytes)) => ("file", &bytes[..]),
        LoggedContent::File(None) => ("unreadable", &[][..]),
        LoggedContent::Symlink(target) => ("symlink", &target[..]),
        LoggedContent::Special => ("special", &[][..]),
    };
    let (path, length) = (String::from_utf8_lossy(&entry.path), bytes.len());
    format!("entry {} {kind} {:o} {length} {:x} {path}", entry.inode, entry.mode, digest(bytes))
}

fn main() -> Result<(), Box<dyn Error>> {
    let reporter: Reporter = Arc::new(|_| ());
    let mut out = BufWriter::new(io::stdout().lock());
    for directory in io::stdin().lock().lines() {
        let mut lines = Vec::new();
        let directory = PathBuf::from(directory?);
        let (log, store) = (directory.join("log"), directory.join("store"));
        let read = read_log(&log, &store, SIZES, &reporter, &mut |entry| {
            lines.push(line(&entry));
        });
        match read {
            Ok(()) => {
                lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
                writeln!(out, "end")?;
            }
            Err(why) => writeln!(out, "refused {why}")?,
        }
        out.flush()?;
    }
    Ok(())
}
