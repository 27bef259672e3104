//! Whether the servers of a job reach one directory: a file that the first host makes there is one
//! that the others must see.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clearway_runtime::keys;
use clearway_wires::hexadecimal::digits_of;

/// A file in the store that no other job has, until it is dropped.
pub(super) struct StoreProbe {
    path: PathBuf,
    /// Its name, which is also what is in it.
    pub(super) name: String,
}

impl StoreProbe {
    /// Makes one.
    ///
    /// # Errors
    /// One sentence: nothing can be made there.
    pub(super) fn new(store: &Path) -> Result<Self> {
        let drawn = keys::random::<16>().context("the system has no randomness")?;
        let name = format!(".clearway-probe-{}", digits_of(&drawn));
        let path = store.join(&name);
        let written = File::create_new(&path).and_then(|mut file| {
            file.write_all(name.as_bytes())?;
            file.sync_all()
        });
        let probe = Self { path, name };
        written.with_context(|| format!("cannot make {}", probe.path.display()))?;
        Ok(probe)
    }
}

impl Drop for StoreProbe {
    fn drop(&mut self) {
        // The store may be gone.
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns whether a store has the file of a probe.
///
/// # Errors
/// One sentence: the store cannot be read.
pub(super) fn has_probe(store: &Path, name: &str) -> Result<bool> {
    match fs::read(store.join(name)) {
        Ok(found) => Ok(found == name.as_bytes()),
        // Without the directory there is an error of its own.
        Err(why) if why.kind() == io::ErrorKind::NotFound && store.is_dir() => Ok(false),
        Err(why) => Err(why).with_context(|| format!("cannot read {}", store.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_probe__in_the_same_directory_only_and_the_probe_leaves_nothing() {
        let root = std::env::temp_dir().join(format!("clearway-probe-{}", std::process::id()));
        let [store, other] = ["store", "other"].map(|name| root.join(name));
        for directory in [&store, &other] {
            fs::create_dir_all(directory).expect("made");
        }
        std::os::unix::fs::symlink(&store, root.join("link")).expect("made");
        let probe = StoreProbe::new(&store).expect("made");
        let sees = |directory: &Path| has_probe(directory, &probe.name).map_err(drop);
        assert_eq!(sees(&root.join("link")), Ok(true), "another path to it");
        assert_eq!((sees(&other), sees(&root.join("missing"))), (Ok(false), Err(())));
        drop(probe);
        assert_eq!(fs::read_dir(&store).expect("there").count(), 0);
        assert!(StoreProbe::new(&root.join("missing")).is_err());
        fs::remove_dir_all(&root).expect("removed");
    }
}
