//! Directories and logs of tests.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::FsError;
use crate::log_directory::{LogDirectory, LogSizes};

static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// A directory that goes away with its test.
pub(crate) struct TestDirectory(PathBuf);

impl TestDirectory {
    pub(crate) fn new() -> Self {
        Self::below(&std::env::temp_dir())
    }

    /// Makes one in memory, where a sync costs nothing, if there is a file system for it that has
    /// extended attributes.
    pub(crate) fn in_memory() -> Self {
        let made = Path::new("/dev/shm");
        if std::fs::metadata(made).is_err() {
            return Self::new();
        }
        let directory = Self::below(made);
        let flags = rustix::fs::XattrFlags::empty();
        match rustix::fs::setxattr(directory.path(), "user.probe", b"", flags) {
            Ok(()) => directory,
            Err(_) => Self::new(),
        }
    }

    fn below(above: &Path) -> Self {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("clearway-fs-{}-{number}", std::process::id());
        let path = above.join(name);
        std::fs::create_dir(&path).expect("a new directory");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Opens a log that may just have been closed: a child that another test starts has its lock until it
/// executes its program.
pub(crate) fn open_log(path: &Path, sizes: LogSizes) -> Result<LogDirectory, FsError> {
    loop {
        match LogDirectory::open(path, sizes) {
            Err(FsError::InUse { .. }) => std::thread::yield_now(),
            outcome => return outcome,
        }
    }
}
