//! Holds the small writes to a file until the sync behind them, and makes both with one call.
//!
//! # Model
//! ```text
//!   small writes, one behind the other --copy--> buffer --sync--> one write past the page cache that
//!                                                                 makes its own bytes durable
//!   other writes ------------------------------> page cache --sync--> fdatasync
//! ```
//! A write of two blocks and `fdatasync` are three calls, and the page cache takes its part of each. On
//! ext4 one direct write with `RWF_DSYNC` takes about two thirds of that time. Where bytes wait in the
//! page cache too, or the file has no direct descriptor, a sync writes the buffer there and calls
//! `fdatasync`.
//!
//! # Source
//! `pwritev2(2)`: `RWF_DSYNC` makes durable what this call writes, and nothing else. `open(2)`:
//! `O_DIRECT` needs aligned memory, offsets and lengths.
//!
//! # Invariants
//! I1. Bytes whose write returned are found by a read, wherever they are.
//! I2. A sync that returns well covers all writes that returned before it began, except those of an
//!     earlier sync that failed: their bytes are lost, as those of a failed `fdatasync` are.
//! I3. Two calls never write the same bytes at once.

use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use clearway_proto::wire::FileKind;
use rustix::io::{Errno, ReadWriteFlags, pwritev2};

use super::task::{FileDevice, write_all};

/// The alignment of direct writes: that of a page, which every device allows.
const ALIGNMENT: usize = 4096;
/// Bytes of writes that are held, and of the longest one.
const HELD_MAX: usize = 256 << 10;
const WRITE_MAX: usize = 64 << 10;

/// Aligned memory for writes that follow each other.
#[derive(Debug)]
struct HeldWrites {
    memory: Vec<u8>,
    /// Where the aligned part begins.
    begin: usize,
    /// Where the bytes belong in the file.
    at: u64,
    length: usize,
}

impl HeldWrites {
    fn new() -> Self {
        let memory = vec![0; HELD_MAX + ALIGNMENT];
        let begin = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { memory, begin, at: 0, length: 0 }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.begin..self.begin + self.length]
    }

    fn range(&self) -> Range<u64> {
        self.at..self.at + self.length as u64
    }

    /// Takes a write, if it is small and lies behind the others.
    fn take(&mut self, bytes: &[u8], at: u64) -> bool {
        let is_aligned = at.is_multiple_of(ALIGNMENT as u64)
            && bytes.len().is_multiple_of(ALIGNMENT)
            && (1..=WRITE_MAX).contains(&bytes.len());
        let is_behind = self.length == 0 || at == self.range().end;
        if !is_aligned || !is_behind || self.length + bytes.len() > HELD_MAX {
            return false;
        }
        if self.length == 0 {
            self.at = at;
        }
        let begin = self.begin + self.length;
        self.memory[begin..begin + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
        true
    }
}

#[derive(Debug)]
struct CombinedState {
    held: HeldWrites,
    /// Another one of these, while it is not written.
    spare: Option<HeldWrites>,
    /// Whether there may be writes in the page cache that no sync has covered.
    is_dirty: bool,
    /// What a sync is writing.
    writing: Range<u64>,
    /// Threads that wait for that.
    waiting: u32,
}

/// A file whose small writes wait for a sync.
#[derive(Debug)]
pub(super) struct CombiningFile {
    file: File,
    /// Past the page cache.
    direct: Option<File>,
    state: Mutex<CombinedState>,
    /// A sync has written.
    written: Condvar,
    /// Held by the one sync that is under way.
    turn: Mutex<()>,
}

/// Returns whether two ranges share a byte; an empty one shares none.
fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start.max(other.start) < one.end.min(other.end)
}

impl CombiningFile {
    /// Creates it of `file` and of the same file opened with `O_DIRECT`, if its file system makes
    /// direct writes durable by `RWF_DSYNC`.
    pub(super) fn new(file: File, direct: Option<File>) -> Self {
        let state = CombinedState {
            held: HeldWrites::new(),
            spare: Some(HeldWrites::new()),
            // An earlier process may have left some.
            is_dirty: true,
            writing: 0..0,
            waiting: 0,
        };
        Self {
            file,
            direct,
            state: Mutex::new(state),
            written: Condvar::new(),
            turn: Mutex::new(()),
        }
    }

    fn state(&self) -> MutexGuard<'_, CombinedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no sync writes any of `range`.
    fn settled<'a>(
        &self,
        mut state: MutexGuard<'a, CombinedState>,
        range: &Range<u64>,
    ) -> MutexGuard<'a, CombinedState> {
        while overlap(&state.writing, range) {
            state.waiting += 1;
            state = self.written.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        state
    }

    /// Writes what is held to the page cache, behind a sync that writes the same place.
    fn flush<'a>(
        &'a self,
        mut state: MutexGuard<'a, CombinedState>,
    ) -> io::Result<MutexGuard<'a, CombinedState>> {
        // Others may change it while this waits.
        while overlap(&state.writing, &state.held.range()) {
            let held = state.held.range();
            state = self.settled(state, &held);
        }
        if state.held.length > 0 {
            state.is_dirty = true;
            write_all(&self.file, state.held.bytes(), state.held.at)?;
            state.held.length = 0;
        }
        Ok(state)
    }

    /// Makes `held` durable, and what the page cache has, if it may have something.
    fn sync_held(&self, held: &HeldWrites, is_dirty: bool) -> io::Result<()> {
        if let Some(direct) = self.direct.as_ref().filter(|_| !is_dirty && held.length > 0) {
            match write_durably(direct, held.bytes(), held.at) {
                // The page cache may take what this way does not.
                Err(why) if is_of_the_way(&why) => {}
                outcome => return outcome,
            }
        }
        write_all(&self.file, held.bytes(), held.at)?;
        self.file.sync_data()
    }
}

/// Returns whether an error is one of direct writes, and says nothing about the disk: another
/// alignment, a call that the system does not have, no memory for it.
fn is_of_the_way(why: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(why),
        Some(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOMEM | Errno::AGAIN)
    )
}

/// Writes all of `bytes` so that they are durable when it returns.
fn write_durably(direct: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        let part = [IoSlice::new(&bytes[done..])];
        match pwritev2(direct, &part, at + done as u64, ReadWriteFlags::DSYNC) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(why) => return Err(why.into()),
        }
    }
    Ok(())
}

impl FileDevice for CombiningFile {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        let range = at..at.saturating_add(bytes.len() as u64);
        let mut state = self.settled(self.state(), &range);
        while overlap(&state.held.range(), &range) {
            state = self.settled(self.flush(state)?, &range);
        }
        drop(state);
        FileExt::read_at(&self.file, bytes, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        let range = at..at.saturating_add(bytes.len() as u64);
        let mut state = self.settled(self.state(), &range);
        loop {
            if state.held.take(bytes, at) {
                return Ok(bytes.len());
            }
            if state.held.length == 0 {
                break;
            }
            state = self.settled(self.flush(state)?, &range);
        }
        drop(state);
        let written = FileExt::write_at(&self.file, bytes, at);
        // Not before: a sync that is under way does not cover it.
        self.state().is_dirty = true;
        written
    }

    fn sync(&self) -> io::Result<()> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        let next = state.spare.take().unwrap_or_else(HeldWrites::new);
        let mut held = std::mem::replace(&mut state.held, next);
        let is_dirty = std::mem::take(&mut state.is_dirty);
        state.writing = held.range();
        drop(state);
        let outcome = self.sync_held(&held, is_dirty);
        held.length = 0;
        let mut state = self.state();
        state.writing = 0..0;
        state.spare = Some(held);
        state.is_dirty |= outcome.is_err();
        // To wake nobody would be a call of the system all the same.
        if state.waiting > 0 {
            self.written.notify_all();
        }
        drop(state);
        drop(turn);
        outcome
    }

    fn allows(&self, kind: FileKind) -> bool {
        self.file.allows(kind)
    }
}

#[cfg(test)]
mod tests {
    //! Reads, syncs and both ways to the disk.

    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU64, Ordering};

    use clearway_proto::base::RandomKey;
    use rustix::fs::OFlags;

    use super::*;

    static NUMBERS: AtomicU64 = AtomicU64::new(0);

    struct TestFile(PathBuf);

    impl TestFile {
        fn new() -> Self {
            let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
            let name = format!("clearway-combining-{}-{number}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }

        fn open(&self, flags: OFlags) -> io::Result<File> {
            use std::os::unix::fs::OpenOptionsExt;
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false);
            options.custom_flags(flags.bits() as i32).open(&self.0)
        }
    }

    impl Drop for TestFile {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    /// A file with and without a direct descriptor, where the file system has those.
    fn combining(name: &TestFile) -> Vec<CombiningFile> {
        let with = |direct| CombiningFile::new(name.open(OFlags::empty()).expect("opened"), direct);
        let direct = name.open(OFlags::DIRECT).ok();
        [None, direct].into_iter().map(with).collect()
    }

    #[test]
    fn write_at__what_a_read_of_another_descriptor_lacks_it_has_after_a_sync() {
        let name = TestFile::new();
        let (one, other) = ([1; 8192], [2; 4096]);
        for file in combining(&name) {
            std::fs::write(&name.0, [0; 16384]).expect("written");
            assert!(file.sync().is_ok(), "of an earlier process");
            assert_eq!(file.write_at(&one, 0).expect("held"), 8192);
            assert_eq!(file.write_at(&other, 8192).expect("held"), 4096);
            let other_descriptor = || std::fs::read(&name.0).expect("read");
            assert_eq!(other_descriptor(), [0; 16384], "two writes wait for their sync");
            file.sync().expect("synced");
            let expected = [&one[..], &other, &[0; 4096]].concat();
            assert!(other_descriptor() == expected);
            file.write_at(&other, 0).expect("held");
            let mut bytes = [0; 4096];
            assert_eq!(file.read_at(&mut bytes, 0).expect("read"), 4096);
            assert_eq!(bytes, other);
        }
    }

    /// All that is written is read, by the same file at once and by others after a sync.
    #[test]
    fn write_at__any_order_of_writes_reads_and_syncs_is_that_of_a_file() {
        const LENGTH: usize = 1 << 20;
        let name = TestFile::new();
        for (number, file) in (0..).zip(combining(&name)) {
            let mut model = vec![0; LENGTH];
            std::fs::write(&name.0, &model).expect("written");
            let mut stream = RandomKey::new(number).purpose("combining file").stream();
            let mut below = |bound: u64| stream.below(bound) as usize;
            let mut at = 0;
            for step in 0..600_u32 {
                let length = [4096, 8192, 20_480, 65_536, 81_920, 1000][below(6)];
                // Most writes lie behind the one before, as those of a log.
                at = if below(4) > 0 && at + length <= LENGTH { at } else { below(200) * 4096 };
                match below(8) {
                    0 => file.sync().expect("synced"),
                    1 => {
                        let mut bytes = vec![0; length];
                        assert_eq!(file.read_at(&mut bytes, at as u64).expect("read"), length);
                        assert!(bytes == model[at..at + length], "step {step}");
                    }
                    _ => {
                        let bytes = vec![step as u8; length];
                        write_all(&file, &bytes, at as u64).expect("written");
                        model[at..at + length].copy_from_slice(&bytes);
                        at += length;
                    }
                }
            }
            file.sync().expect("synced");
            assert!(std::fs::read(&name.0).expect("read") == model);
        }
    }

    /// A sync still writes the earlier bytes of a place when the later ones leave the buffer.
    #[test]
    fn write_at__later_bytes_of_a_place_are_not_overtaken_by_a_sync_of_earlier_ones() {
        let name = TestFile::new();
        for file in combining(&name) {
            std::fs::write(&name.0, vec![0; 1 << 20]).expect("written");
            let is_over = std::sync::atomic::AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        file.sync().expect("synced");
                    }
                });
                for value in 0..300_u32 {
                    write_all(&file, &[value as u8; 4096], 0).expect("written");
                    // It lies elsewhere, so the first one is not held any more.
                    write_all(&file, &[value as u8; 4096], 65_536).expect("written");
                    let mut bytes = [0; 4096];
                    file.read_at(&mut bytes, 0).expect("read");
                    assert_eq!(bytes, [value as u8; 4096], "{value}");
                }
                is_over.store(true, Ordering::Relaxed);
            });
        }
    }

    #[test]
    fn sync__two_at_once_and_writes_between_them_lose_nothing() {
        let name = TestFile::new();
        for file in combining(&name) {
            std::fs::write(&name.0, vec![0; 4 << 20]).expect("written");
            std::thread::scope(|scope| {
                for thread in 0..4_u64 {
                    let file = &file;
                    scope.spawn(move || {
                        for block in 0..200 {
                            let at = (thread * 200 + block) * 4096;
                            write_all(file, &[thread as u8 + 1; 4096], at).expect("written");
                            file.sync().expect("synced");
                        }
                    });
                }
            });
            let bytes = std::fs::read(&name.0).expect("read");
            let all = bytes.chunks(4096).take(800).enumerate();
            all.for_each(|(at, block)| {
                assert!(*block == [(at / 200) as u8 + 1; 4096], "block {at}")
            });
        }
    }
}
