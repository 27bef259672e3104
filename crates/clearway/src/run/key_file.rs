//! Files with a secret that both ends of a connection know.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Lengths of a key: as many random bytes as the keys that it protects, and what nobody mistakes
/// for one.
const KEY_MIN: usize = 16;
const KEY_MAX: u64 = 4096;

/// Reads the key in the file at `path`.
///
/// # Errors
/// One sentence: it cannot be read, others can read it, or it is too short.
pub(crate) fn key(path: &Path) -> Result<Vec<u8>> {
    use std::os::unix::fs::MetadataExt;
    let mut file = std::fs::File::open(path)
        .with_context(|| format!("the key {} cannot be read", path.display()))?;
    let mode = file.metadata().map(|found| found.mode()).unwrap_or_default();
    if mode & 0o077 != 0 {
        bail!("the key {0} can be read by others: chmod 600 {0}", path.display());
    }
    let mut key = Vec::new();
    (&mut file)
        .take(KEY_MAX + 1)
        .read_to_end(&mut key)
        .with_context(|| format!("the key {}", path.display()))?;
    if key.len() < KEY_MIN || key.len() as u64 > KEY_MAX {
        bail!(
            "the key {} has {} bytes; head -c 32 /dev/urandom makes one",
            path.display(),
            key.len()
        );
    }
    Ok(key)
}
