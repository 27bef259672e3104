//! Names files that are not whole yet: nobody else knows such a name before it is used, and the
//! same user finds it again.
//!
//! # Model
//! A name is a keyed hash (BLAKE3) of the directory's number, the file's name and the number of the
//! attempt. The key is 32 random bytes in a file that only its user can read
//! (`$XDG_STATE_HOME/clearway/cast`, by default `~/.local/state`). A user who has no such place
//! gets a key for the life of this process, and what was begun is not found again.
//!
//! # Invariants
//! I1. A key that somebody else could have written or read is not used.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use clearway_runtime::keys;
use nix::fcntl::OFlag;
use nix::unistd::geteuid;

use super::path::{DIGITS, UNFINISHED};

/// Bytes of a key, as BLAKE3 takes it.
const KEY: usize = 32;
/// The file of the key, in its directory.
const FILE: &str = "names";

/// Gives names to files that are not whole.
#[derive(Clone, Copy)]
pub(super) struct TemporaryNames {
    key: [u8; KEY],
}

/// Those of this process, once something was to be written.
static KEPT: OnceLock<TemporaryNames> = OnceLock::new();

impl TemporaryNames {
    /// Creates names with the key of this user, or without a private place with one of this
    /// process.
    pub(super) fn open() -> Self {
        *KEPT.get_or_init(|| {
            let kept =
                if cfg!(test) { None } else { place().and_then(|place| key_in(&place).ok()) };
            // A system without randomness has no sealed connections either, so nothing is received
            // there.
            Self { key: kept.or_else(|| keys::random().ok()).unwrap_or_default() }
        })
    }

    /// Creates names with the key of this user if there is one, and makes none: else they are those
    /// of no file.
    pub(super) fn look() -> Self {
        let kept = || place().and_then(|place| read(&place.join(FILE)).ok());
        let key = || kept().or_else(|| keys::random().ok()).unwrap_or_default();
        KEPT.get().copied().unwrap_or_else(|| Self { key: key() })
    }

    /// Returns the name of the file `name` in the directory with the number `directory`, while it
    /// is not whole.
    pub(super) fn name(&self, directory: u64, name: &OsStr, attempt: u32) -> OsString {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher
            .update(&directory.to_le_bytes())
            .update(&attempt.to_le_bytes())
            .update(name.as_bytes());
        let hash = hasher.finalize();
        let digits: String =
            hash.as_bytes().iter().take(DIGITS / 2).map(|byte| format!("{byte:02x}")).collect();
        OsString::from(format!("{UNFINISHED}{digits}"))
    }
}

/// Returns where the key of this user lies.
fn place() -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    Some(state?.join("clearway/cast"))
}

/// Returns a directory of this user into which nobody else may look.
///
/// # Errors
/// There is none, or others may.
pub(super) fn private_directory() -> io::Result<PathBuf> {
    let place = place().ok_or(io::ErrorKind::NotFound)?;
    make_private(&place).map(|()| place)
}

fn make_private(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let found = fs::symlink_metadata(directory)?;
    if !found.is_dir() || !is_private(&found) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(())
}

/// Returns the key in `directory`, which is made if there is none.
fn key_in(directory: &Path) -> io::Result<[u8; KEY]> {
    make_private(directory)?;
    let path = directory.join(FILE);
    match read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    let key: [u8; KEY] = keys::random()?;
    let new = directory.join(format!("{FILE}-{}", std::process::id()));
    let _ = fs::remove_file(&new);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(&key)?;
    // Of two processes that begin at the same time one is first, and its key holds for both.
    let linked = fs::hard_link(&new, &path);
    fs::remove_file(&new)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => read(&path),
    }
}

fn read(path: &Path) -> io::Result<[u8; KEY]> {
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
    let mut file = File::options().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || !is_private(&found) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut key = [0; KEY];
    file.read_exact(&mut key)?;
    Ok(key)
}

fn is_private(found: &fs::Metadata) -> bool {
    found.uid() == geteuid().as_raw() && found.mode() & 0o077 == 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn key_in__is_the_same_again_and_not_taken_from_what_others_can_read() {
        let directory = env::temp_dir().join(format!("clearway-naming-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        let key = key_in(&directory).expect("made");
        assert_eq!(key_in(&directory).expect("there"), key);
        assert_eq!(fs::read_dir(&directory).expect("a directory").count(), 1);
        let file = directory.join(FILE);
        fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).expect("set");
        assert!(key_in(&directory).is_err());
        fs::remove_file(&file).expect("removed");
        symlink("/dev/zero", &file).expect("a link");
        assert!(key_in(&directory).is_err());
        fs::remove_dir_all(&directory).expect("removed");
    }

    #[test]
    fn name__depends_on_everything() {
        let [one, other] = [1, 2].map(|byte| TemporaryNames { key: [byte; KEY] });
        let names = [
            one.name(1, OsStr::new("a"), 0),
            one.name(2, OsStr::new("a"), 0),
            one.name(1, OsStr::new("b"), 0),
            one.name(1, OsStr::new("a"), 1),
            other.name(1, OsStr::new("a"), 0),
        ];
        assert!((1..5).all(|at| !names[..at].contains(&names[at])), "{names:?}");
        assert_eq!(names[0], one.name(1, OsStr::new("a"), 0));
    }
}
