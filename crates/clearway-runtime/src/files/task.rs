//! Does one operation on a file, and gives its error a name.
//!
//! # Source
//! `pread(2)`, `pwrite(2)`, `fdatasync(2)`. Linux reports a failed write-back once for each open
//! file, so a second `fdatasync` that succeeds proves nothing (Rebello et al., "Can Applications
//! Recover from fsync Failures?", USENIX ATC 2020).
//!
//! # Invariants
//! I1. An interrupted call is made again; a failed one never is.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use clearway_proto::wire::{Fault, FileKind, HeldBytes, Span, Token};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::TargetId;
use super::pool::OperationBuffers;

/// The largest offset of a file on Linux (`loff_t`).
const OFFSET_MAX: u64 = i64::MAX as u64;

/// Calls on an open file.
pub(super) trait FileDevice: Send + Sync {
    /// Reads at most all of `bytes`; none at the end.
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize>;

    /// Writes at most all of `bytes`.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize>;

    /// Makes durable what was written.
    fn sync(&self) -> io::Result<()>;

    /// Returns whether it was opened for this.
    fn allows(&self, kind: FileKind) -> bool;
}

impl FileDevice for File {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        FileExt::read_at(self, bytes, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn allows(&self, kind: FileKind) -> bool {
        let Ok(flags) = rustix::fs::fcntl_getfl(self) else { return true };
        match kind {
            FileKind::Read => flags & OFlags::ACCMODE != OFlags::WRONLY,
            FileKind::Write => flags & OFlags::ACCMODE != OFlags::RDONLY,
            FileKind::Sync => true,
        }
    }
}

/// An open file.
pub(super) struct OpenFile {
    device: Box<dyn FileDevice>,
    is_closed: AtomicBool,
}

impl OpenFile {
    pub(super) fn new(device: Box<dyn FileDevice>) -> Self {
        Self { device, is_closed: AtomicBool::new(false) }
    }

    /// Fails what no worker has begun.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenFile").field("is_closed", &self.is_closed).finish_non_exhaustive()
    }
}

/// One file operation.
#[derive(Debug)]
pub(super) struct FileTask {
    pub(super) kind: FileKind,
    pub(super) at: u64,
    pub(super) length: u32,
    pub(super) buffers: OperationBuffers,
    /// The bytes of a write, if they are not in the buffers.
    pub(super) held: Option<HeldBytes>,
    /// Where a read goes in the end.
    pub(super) memory: Span,
    pub(super) token: Token,
    pub(super) target: TargetId,
}

impl FileTask {
    /// Does it; returns the bytes moved.
    pub(super) fn run(&mut self, opened: &OpenFile) -> Result<u64, Fault> {
        if opened.is_closed.load(Ordering::Relaxed) {
            return Err(Fault::Gone);
        }
        let device = &*opened.device;
        let moved = match self.kind {
            FileKind::Read => self.read(device),
            FileKind::Write => self.write(device),
            FileKind::Sync => device.sync().map(|()| 0),
        };
        moved.map_err(|error| fault_of(&error, device.allows(self.kind)))
    }

    fn read(&mut self, device: &dyn FileDevice) -> io::Result<u64> {
        let mut moved = 0;
        for part in self.buffers.parts_mut(self.length as usize) {
            let count = read_all(device, part, self.at.saturating_add(moved))?;
            moved += count as u64;
            if count < part.len() {
                break;
            }
        }
        Ok(moved)
    }

    fn write(&self, device: &dyn FileDevice) -> io::Result<u64> {
        if let Some(held) = &self.held {
            write_all(device, held.bytes(), self.at)?;
            return Ok(held.bytes().len() as u64);
        }
        let mut moved = 0;
        for part in self.buffers.parts(self.length as usize) {
            write_all(device, part, self.at.saturating_add(moved))?;
            moved += part.len() as u64;
        }
        Ok(moved)
    }
}

/// Reads until `bytes` are full or the file ends.
fn read_all(device: &dyn FileDevice, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() && is_possible(at, bytes.len()) {
        match device.read_at(&mut bytes[done..], at + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Writes all of `bytes`.
pub(super) fn write_all(device: &dyn FileDevice, bytes: &[u8], at: u64) -> io::Result<()> {
    if !is_possible(at, bytes.len()) {
        return Err(Errno::FBIG.into());
    }
    let mut done = 0;
    while done < bytes.len() {
        match device.write_at(&bytes[done..], at + done as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns whether a file can have bytes there: the kernel calls other offsets an invalid argument,
/// here they lie behind every end.
fn is_possible(at: u64, length: usize) -> bool {
    at.checked_add(length as u64).is_some_and(|end| end <= OFFSET_MAX)
}

/// Names `error` for an engine. A descriptor that is bad though it is open was not opened for this.
fn fault_of(error: &io::Error, allowed: bool) -> Fault {
    match Errno::from_io_error(error) {
        Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => Fault::NoSpace,
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Fault::Denied,
        Some(Errno::BADF) if !allowed => Fault::Denied,
        Some(Errno::BADF | Errno::NOENT | Errno::STALE) => Fault::Gone,
        _ => Fault::Io,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::Mutex;

    use super::*;
    use crate::files::pool::TargetBuffers;

    #[test]
    fn fault_of__every_error_has_one_name() {
        let named = |errno: Errno| fault_of(&errno.into(), true);
        assert_eq!([Errno::NOSPC, Errno::DQUOT, Errno::FBIG].map(named), [Fault::NoSpace; 3]);
        assert_eq!([Errno::ACCESS, Errno::PERM, Errno::ROFS].map(named), [Fault::Denied; 3]);
        assert_eq!([Errno::BADF, Errno::NOENT, Errno::STALE].map(named), [Fault::Gone; 3]);
        assert_eq!([Errno::IO, Errno::INVAL, Errno::NODEV].map(named), [Fault::Io; 3]);
        assert_eq!(fault_of(&Errno::BADF.into(), false), Fault::Denied);
        assert_eq!(fault_of(&io::ErrorKind::WriteZero.into(), true), Fault::Io);
    }

    /// A device that moves three bytes at a time, is interrupted before each call, and fails from
    /// one offset on.
    struct FaultyDevice {
        bytes: Mutex<Vec<u8>>,
        calls: Mutex<usize>,
        fails_at: usize,
        syncs: Mutex<usize>,
    }

    impl FaultyDevice {
        fn new(length: usize, fails_at: usize) -> Self {
            let bytes = (0..length).map(|i| i as u8).collect();
            Self {
                bytes: Mutex::new(bytes),
                calls: Mutex::default(),
                fails_at,
                syncs: Mutex::default(),
            }
        }

        fn step(&self, at: u64) -> io::Result<()> {
            let mut calls = self.calls.lock().expect("not poisoned");
            *calls += 1;
            if *calls % 2 == 1 {
                return Err(Errno::INTR.into());
            }
            if at as usize >= self.fails_at { Err(Errno::NOSPC.into()) } else { Ok(()) }
        }
    }

    impl FileDevice for &'static FaultyDevice {
        fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
            self.step(at)?;
            let file = self.bytes.lock().expect("not poisoned");
            let rest = file.get(at as usize..).unwrap_or_default();
            let count = rest.len().min(bytes.len()).min(3);
            bytes[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        }

        fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
            self.step(at)?;
            let count = bytes.len().min(3);
            self.bytes.lock().expect("not poisoned")[at as usize..][..count]
                .copy_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn sync(&self) -> io::Result<()> {
            *self.syncs.lock().expect("not poisoned") += 1;
            Err(Errno::IO.into())
        }

        fn allows(&self, _kind: FileKind) -> bool {
            true
        }
    }

    fn run(
        device: &'static FaultyDevice,
        kind: FileKind,
        at: u64,
        bytes: &[u8],
    ) -> (Result<u64, Fault>, Vec<u8>) {
        let length = bytes.len() as u32;
        let pool = RefCell::new(TargetBuffers::new(4, 1));
        let mut buffers = pool.borrow_mut().take(bytes.len().div_ceil(4096));
        let mut rest = bytes;
        for part in buffers.parts_mut(bytes.len()) {
            let (now, later) = rest.split_at(part.len());
            part.copy_from_slice(now);
            rest = later;
        }
        let (memory, token, target) = (Span::EMPTY, Token(0), TargetId(0));
        let mut task = FileTask { kind, at, length, buffers, held: None, memory, token, target };
        let outcome = task.run(&OpenFile::new(Box::new(device)));
        let left = task.buffers.parts(bytes.len()).flatten().copied().collect();
        (outcome, left)
    }

    fn rough(length: usize, fails_at: usize) -> &'static FaultyDevice {
        Box::leak(Box::new(FaultyDevice::new(length, fails_at)))
    }

    #[test]
    fn run__short_and_interrupted_calls_go_on_until_all_is_done() {
        let device = rough(10_000, usize::MAX);
        let bytes = vec![0xee; 5_000];
        assert_eq!(run(device, FileKind::Write, 100, &bytes).0, Ok(5_000));
        let (outcome, read) = run(device, FileKind::Read, 99, &[0; 5_002]);
        assert_eq!(outcome, Ok(5_002));
        assert!(read[1..5_001] == bytes && (read[0], read[5_001]) == (99, 5_100u32 as u8));
        assert_eq!(run(device, FileKind::Read, 9_000, &[0; 4_999]).0, Ok(1_000), "the end");
        assert_eq!(run(device, FileKind::Read, u64::MAX, &[0; 2]).0, Ok(0), "behind every end");
        assert_eq!(run(device, FileKind::Write, u64::MAX, &[0; 2]).0, Err(Fault::NoSpace));
    }

    #[test]
    fn run__a_write_that_fails_in_the_middle_fails() {
        let device = rough(10_000, 4_100);
        assert_eq!(run(device, FileKind::Write, 0, &[1; 5_000]).0, Err(Fault::NoSpace));
        assert_eq!(run(device, FileKind::Read, 4_200, &[1; 2]).0, Err(Fault::NoSpace));
    }

    #[test]
    fn run__a_failed_sync_is_not_repeated() {
        let device = rough(0, 0);
        assert_eq!(run(device, FileKind::Sync, 0, &[]).0, Err(Fault::Io));
        assert_eq!(*device.syncs.lock().expect("not poisoned"), 1);
    }

    #[test]
    fn run__a_closed_file_is_gone() {
        let opened = OpenFile::new(Box::new(rough(10, 10)));
        opened.close();
        let buffers = TargetBuffers::new(1, 1).take(1);
        let (kind, memory, token, target) = (FileKind::Read, Span::EMPTY, Token(0), TargetId(0));
        let mut task =
            FileTask { kind, at: 0, length: 1, buffers, held: None, memory, token, target };
        assert_eq!(task.run(&opened), Err(Fault::Gone));
    }
}
