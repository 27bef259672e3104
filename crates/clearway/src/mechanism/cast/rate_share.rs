//! Which part of the rate that a user allows one cast has: all casts of the user on this host that
//! have a rate share it.
//!
//! # Model
//! Each of them holds the lock of a file in the user's private directory. It counts the files that
//! are locked, and takes its rate divided by their number. A process that ends, however it ends,
//! holds no lock any more: the process that finds its file removes it.
//!
//! # Invariants
//! I1. A file has the name that counts only while it is locked, so that nobody removes one that is
//!     about to be.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clearway_proto::base::BitsPerSec;
use nix::fcntl::OFlag;

use super::naming;

/// What names of files that count begin with, and those of files that do not yet.
const COUNTS: &str = "rate-";
const NEW: &str = "new-rate-";

/// This cast's part.
pub(super) struct RateShare {
    rate: BitsPerSec,
    directory: PathBuf,
    path: PathBuf,
    /// Locked as long as it is open.
    _lock: File,
    casts: u64,
}

impl RateShare {
    /// Begins to share `rate` with the other casts of this user on this host.
    ///
    /// # Errors
    /// There is no private directory to count them in.
    pub(super) fn join(rate: BitsPerSec) -> Result<Self> {
        let directory = naming::private_directory()
            .context("no private directory in which the casts that share a rate can be counted: set XDG_STATE_HOME or HOME")?;
        Self::join_in(&directory, rate)
            .with_context(|| format!("casts cannot be counted in {}", directory.display()))
    }

    fn join_in(directory: &Path, rate: BitsPerSec) -> Result<Self> {
        let own =
            format!("{}-{:016x}", std::process::id(), u64::from_le_bytes(super::sender::random()?));
        let (new, path) =
            (directory.join(format!("{NEW}{own}")), directory.join(format!("{COUNTS}{own}")));
        let file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
        file.lock()?;
        fs::rename(&new, &path)?;
        let mut share = Self { rate, directory: directory.to_owned(), path, _lock: file, casts: 1 };
        share.casts = share.count();
        Ok(share)
    }

    /// Returns how many casts share.
    pub(super) const fn casts(&self) -> u64 {
        self.casts
    }

    /// Returns this cast's part of the rate.
    pub(super) const fn part(&self) -> BitsPerSec {
        let part = self.rate.0 / self.casts;
        BitsPerSec(if part == 0 { 1 } else { part })
    }

    /// Counts the casts again; returns this one's part if it changed.
    pub(super) fn changed(&mut self) -> Option<BitsPerSec> {
        let casts = self.count();
        (std::mem::replace(&mut self.casts, casts) != casts).then(|| self.part())
    }

    fn count(&self) -> u64 {
        let others = fs::read_dir(&self.directory).into_iter().flatten().filter_map(Result::ok);
        let others = others.filter(|entry| {
            let path = entry.path();
            let counts = entry.file_name().to_string_lossy().starts_with(COUNTS);
            counts && path != self.path && is_held(&path)
        });
        1 + others.count() as u64
    }
}

impl Drop for RateShare {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns whether a process holds the lock of `path`, which is removed if none does.
fn is_held(path: &Path) -> bool {
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
    let Ok(file) = File::options().write(true).custom_flags(flags).open(path) else { return false };
    match file.try_lock() {
        Ok(()) => {
            let _ = fs::remove_file(path);
            false
        }
        Err(fs::TryLockError::WouldBlock) => true,
        Err(fs::TryLockError::Error(error)) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part__all_casts_of_a_user_share_and_one_that_ended_does_not_count() {
        let directory = std::env::temp_dir().join(format!("clearway-share-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).expect("a directory");
        fs::write(directory.join("names"), b"another file").expect("written");
        let rate = BitsPerSec::mega(90);
        let mut one = RateShare::join_in(&directory, rate).expect("the first");
        assert_eq!((one.part(), one.changed()), (rate, None));
        let other = RateShare::join_in(&directory, rate).expect("another");
        let third = RateShare::join_in(&directory, BitsPerSec::mega(300)).expect("a third");
        assert_eq!((other.casts(), third.part()), (2, BitsPerSec::mega(100)));
        assert_eq!((one.changed(), one.changed()), (Some(BitsPerSec::mega(30)), None));
        drop(third);
        // Of one that was killed the file stays, and nobody holds its lock.
        fs::write(directory.join("rate-1-left"), b"").expect("written");
        assert_eq!(one.changed(), Some(BitsPerSec::mega(45)));
        assert!(!directory.join("rate-1-left").exists());
        drop(other);
        assert_eq!(one.changed(), Some(rate));
        drop(one);
        assert_eq!(fs::read_dir(&directory).expect("there").count(), 1);
        fs::remove_dir_all(&directory).expect("removed");
    }
}
