//! `clearway stage warm`: reads files that only the store has, so that later reads find their bytes in
//! the memory of this machine.
//!
//! # Model
//! The reads go through the mount, and the kernel keeps the pages that it read: the page cache is the
//! only copy. So nothing is changed, nothing has to be kept equal, and what the kernel needs for other
//! purposes it takes back. Files that lie in the log wholly are left out, because reads of them
//! are fast. Files are cut into pieces, which a few threads read, those of the largest file first: a
//! large file at the end would leave threads without work.
//!
//! For other nodes one node reads the store, and casts the files into a directory of each: what it has
//! read lies in its memory then.
//!
//! # Invariants
//! I1. No more than the limit is read: a file that does not fit into what is left of it is not read at
//! all.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use clap::Args;
use clearway_fs::client::ControlClient;
use clearway_fs::control::{ControlPath, ControlRequest, ControlResponse, FileKindName, PATHS_MAX};
use clearway_proto::base::Bytes;
use clearway_runtime::machine_memory::machine_memory;

use super::mount_lookup::find_mount;
use super::print;
use crate::mechanism::cast::{CastRequest, cast};
use crate::run::exit::Exit;
use crate::run::notice;

/// Threads that read: half of those that a mount reads a store with, so that programs have the rest.
const READERS: usize = 8;
/// Bytes of a piece: long enough for the read-ahead of a store, short enough for all threads to end at
/// about the same time.
const PIECE: u64 = 8 << 20;
/// Bytes of one read: the longest that the kernel asks a mount for.
const READ: usize = 1 << 20;
/// How often the command says how far it is.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// What is read, and how much of it.
#[derive(Debug, Args)]
pub(crate) struct WarmFlags {
    /// Read at most this many bytes, the largest files first, and skip a file that exceeds the
    /// rest [default: half of the available memory].
    #[arg(long, value_name = "BYTES")]
    limit: Option<Bytes>,
    #[command(flatten)]
    targets: WarmTargets,
    /// Read these files, and everything below these directories.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

/// Other nodes that get the files.
#[derive(Debug, Args)]
struct WarmTargets {
    /// Then cast all PATHS to these hosts, named as for `clearway cast --to`, so that one node reads
    /// the store for all of them; files that --limit skipped, too. Needs --into.
    #[arg(long, value_name = "HOSTS", requires = "into")]
    to: Vec<String>,
    /// With --to: write copies into this directory at each host; %h is its name. In /dev/shm they
    /// take memory until they are removed.
    #[arg(long, value_name = "DIR", requires = "to")]
    into: Option<String>,
    /// With --to: send to hosts that run `clearway cast serve` with the key in this file [default:
    /// start receivers over ssh].
    #[arg(long, value_name = "FILE", requires = "to")]
    key: Option<PathBuf>,
}

/// A file with bytes that only the store has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct StoredFile {
    bytes: u64,
    path: PathBuf,
}

/// Files, and how many bytes they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FileSum {
    files: u64,
    bytes: u64,
}

impl FileSum {
    fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
    }
}

/// Reads files, prints what was read, and casts the files to other hosts if that is asked for.
pub(super) fn warm(flags: &WarmFlags) -> Result<Exit> {
    let limit = match flags.limit {
        Some(limit) => limit,
        None => Bytes(available()?.0 / 2),
    };
    let (files, in_log) = find(&flags.paths)?;
    let (chosen, left) = choose(files, limit);
    let begun = Instant::now();
    let read = read_all(&chosen, begun)?;
    let mut lines = format!("read     {} of {} files", Bytes(read), chosen.len());
    lines += &format!(" in {:.1} s\n", begun.elapsed().as_secs_f64());
    if in_log.files > 0 {
        lines += &format!("in log   {} of {} files\n", Bytes(in_log.bytes), in_log.files);
    }
    if left.files > 0 {
        lines += &format!("left out {} of {} files", Bytes(left.bytes), left.files);
        lines += &format!(", which exceed the limit of {limit}\n");
    }
    print(&lines)?;
    let WarmTargets { to, into, key } = &flags.targets;
    if to.is_empty() {
        return Ok(Exit::Good);
    }
    let (into, key) = (into.clone(), key.clone());
    cast(&CastRequest { into, key, ..CastRequest::new(flags.paths.clone(), to.clone()) })
}

/// Returns the memory that the machine could give.
fn available() -> Result<Bytes> {
    machine_memory("MemAvailable")
        .ok_or_else(|| anyhow!("/proc/meminfo does not say which memory is available; set --limit"))
}

/// Finds the files below paths that the log does not have wholly, and counts the others.
fn find(paths: &[PathBuf]) -> Result<(Vec<StoredFile>, FileSum)> {
    let (mut files, mut in_log) = (Vec::new(), FileSum::default());
    for path in paths {
        // A link that a user names stands for what it leads to.
        let path =
            path.canonicalize().with_context(|| format!("cannot find {}", path.display()))?;
        let (mount, path) = find_mount(&path)?;
        let mut next = vec![path];
        while !next.is_empty() {
            let some = next.split_off(next.len().saturating_sub(PATHS_MAX));
            mount.ask(&ControlRequest::Ls { paths: some }, |response| {
                let ControlResponse::File(found) = response else { return };
                match found.what {
                    FileKindName::Directory => next.push(found.path),
                    FileKindName::File if found.log_bytes >= found.size => in_log.add(found.size),
                    FileKindName::File => {
                        files.extend(stored_file(&mount, &found.path, found.size));
                    }
                    FileKindName::Symlink | FileKindName::Special => {}
                }
            })?;
        }
    }
    Ok((files, in_log))
}

fn stored_file(mount: &ControlClient, path: &ControlPath, bytes: u64) -> Option<StoredFile> {
    let inside = std::ffi::OsString::from_vec(path.to_bytes()?);
    Some(StoredFile { bytes, path: mount.mounted_on.join(inside) })
}

/// Returns the files that fit into a limit, the largest first, and counts the others.
fn choose(mut files: Vec<StoredFile>, limit: Bytes) -> (Vec<StoredFile>, FileSum) {
    files.sort_unstable_by(|one, other| other.cmp(one));
    files.dedup();
    let (mut rest, mut left) = (limit.0, FileSum::default());
    files.retain(|file| match rest.checked_sub(file.bytes) {
        Some(behind) => {
            rest = behind;
            true
        }
        None => {
            left.add(file.bytes);
            false
        }
    });
    (files, left)
}

/// Reads files, and returns how many bytes they had.
fn read_all(files: &[StoredFile], begun: Instant) -> Result<u64> {
    let total = files.iter().map(|file| file.bytes).sum();
    let pieces = files
        .iter()
        .flat_map(|file| (0..file.bytes.div_ceil(PIECE)).map(move |piece| (file, piece * PIECE)));
    let (pieces, read) = (Mutex::new(pieces), AtomicU64::new(0));
    let (ends, ended) = channel();
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            let ends = ends.clone();
            let (pieces, read) = (&pieces, &read);
            scope.spawn(move || {
                let mut buffer = vec![0; READ];
                let next = || pieces.lock().ok()?.next();
                let mut outcome = Ok(());
                while let Some((file, offset)) = next() {
                    // A file that cannot be read is no reason not to read the others.
                    outcome = outcome.and(read_piece(file, offset, &mut buffer, read));
                }
                // The command waits for each thread.
                let _ = ends.send(outcome);
            });
        }
        drop(ends);
        wait(&ended, &read, total, begun)
    })?;
    Ok(read.into_inner())
}

/// Reads a piece of a file, as far as there is one.
fn read_piece(file: &StoredFile, offset: u64, buffer: &mut [u8], read: &AtomicU64) -> Result<()> {
    let wrong = || format!("cannot read {}", file.path.display());
    let open = match File::open(&file.path) {
        // It was removed meanwhile.
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.with_context(wrong)?,
    };
    let (mut at, end) = (offset, (offset + PIECE).min(file.bytes));
    while at < end {
        let length = buffer.len().min((end - at) as usize);
        let Some(part) = buffer.get_mut(..length) else { break };
        match open.read_at(part, at).with_context(wrong)? {
            0 => break,
            got => {
                at += got as u64;
                read.fetch_add(got as u64, Ordering::Relaxed);
            }
        }
    }
    Ok(())
}

/// Waits for the end of all threads, and says meanwhile how far they are.
fn wait(ended: &Receiver<Result<()>>, read: &AtomicU64, total: u64, begun: Instant) -> Result<()> {
    let mut outcome = Ok(());
    loop {
        match ended.recv_timeout(SAY_EVERY) {
            Ok(end) => outcome = outcome.and(end),
            Err(RecvTimeoutError::Disconnected) => return outcome,
            Err(RecvTimeoutError::Timeout) => {
                let (read, seconds) = (read.load(Ordering::Relaxed), begun.elapsed().as_secs());
                let (read, total) = (Bytes(read), Bytes(total));
                notice!("clearway: read {read} of {total} in {seconds} s");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Which files are read.

    use super::*;

    #[test]
    fn choose__the_largest_files_that_fit_are_read_first() {
        let file = |bytes| StoredFile { bytes, path: format!("{bytes}").into() };
        let files = [3, 50, 7, 20, 7].map(file).to_vec();
        let sizes = |limit| {
            let (chosen, left) = choose(files.clone(), Bytes(limit));
            (chosen.into_iter().map(|file| file.bytes).collect::<Vec<_>>(), left)
        };
        assert_eq!(sizes(80), (vec![50, 20, 7, 3], FileSum::default()));
        assert_eq!(sizes(30), (vec![20, 7, 3], FileSum { files: 1, bytes: 50 }));
        assert_eq!(sizes(22), (vec![20], FileSum { files: 3, bytes: 60 }));
    }
}
