//! A file under another name until it is whole.
//!
//! # Model
//! `ts.tsa` is `ts.tsa.unfinished` while it is written, and gets its name when it is whole. Until
//! then it goes with its holder. What nobody can remove, because the process was killed, has that
//! other name: it stands in nobody's way, since the next one is called `ts.tsa.unfinished-2`, and
//! nobody takes it for a finished one.
//!
//! # Invariants
//! I1. No file that exists is written over, and none that another process made is removed.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};

use super::locator::exists;

/// Stands behind the name of a file that is not whole.
const SUFFIX: &str = ".unfinished";

/// Returns whether `path` is the name of a file that is not whole.
pub(super) fn is_unfinished(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let after = name.rsplit_once(SUFFIX).map(|(_, after)| after.strip_prefix('-').unwrap_or(after));
    after.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The file; removed when it is dropped.
#[derive(Debug)]
pub(crate) struct UnfinishedFile {
    path: PathBuf,
    own: PathBuf,
    /// Device and number, so that no other file is removed.
    identity: (u64, u64),
}

impl UnfinishedFile {
    /// Makes the file that is to be at `path`.
    ///
    /// # Errors
    /// When there is one already, or none can be made.
    pub(super) fn create(path: &Path) -> Result<(Self, File)> {
        if exists(path) {
            return Err(is_there(path));
        }
        let cannot = || format!("{} cannot be made", path.display());
        for number in 1_u64.. {
            let mut own = path.as_os_str().to_owned();
            own.push(SUFFIX);
            if number > 1 {
                own.push(format!("-{number}"));
            }
            let own = PathBuf::from(own);
            match OpenOptions::new().write(true).create_new(true).open(&own) {
                Ok(file) => {
                    let identity = identity(&file.metadata().with_context(cannot)?);
                    return Ok((Self { path: path.to_owned(), own, identity }, file));
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).with_context(cannot),
            }
        }
        Err(anyhow!("{}: all other names are taken", path.display()))
    }

    /// Returns the name that it has.
    pub(crate) fn name(&self) -> &Path {
        &self.own
    }

    /// Gives the file its final name.
    ///
    /// # Errors
    /// When somebody else has taken that, or the disk fails; the file is removed then.
    pub(crate) fn keep(self) -> Result<()> {
        let link = match fs::hard_link(&self.own, &self.path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(is_there(&self.path));
            }
            other => other,
        };
        // A file system without links: the moment between look and name is what is left to chance.
        let named = match link {
            Err(_) if exists(&self.path) => return Err(is_there(&self.path)),
            Err(_) => fs::rename(&self.own, &self.path),
            Ok(()) => Ok(()),
        };
        named.with_context(|| format!("{} cannot be named", self.path.display()))?;
        let directory = self
            .path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        // Where the disk does not wait for names, one is lost with the machine alone.
        let _ = File::open(directory).and_then(|directory| directory.sync_all());
        Ok(())
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.own).is_ok_and(|found| identity(&found) == self.identity) {
            let _ = fs::remove_file(&self.own);
        }
    }
}

fn identity(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

fn is_there(path: &Path) -> anyhow::Error {
    anyhow!("{} is there already, and is not written over", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_unfinished__only_by_its_end() {
        for name in ["a/ts.tsa.unfinished", "ts.tsa.unfinished-2", ".unfinished"] {
            assert!(is_unfinished(Path::new(name)), "{name}");
        }
        for name in ["ts.tsa", "ts.unfinished.tsa", "a.unfinished/ts.tsa", "ts.unfinished-b"] {
            assert!(!is_unfinished(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn create__what_is_left_of_others_is_neither_in_the_way_nor_touched() {
        let directory =
            std::env::temp_dir().join(format!("clearway-unfinished-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("a.msa");
        fs::write(directory.join("a.msa.unfinished"), b"left").unwrap();
        let names = || {
            let mut names: Vec<_> =
                fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let (dropped, _) = UnfinishedFile::create(&path).unwrap();
        assert_eq!(dropped.name(), directory.join("a.msa.unfinished-2"));
        drop(dropped);
        assert_eq!(names(), ["a.msa.unfinished"]);
        let [(first, _), (second, _)] = [(), ()].map(|()| UnfinishedFile::create(&path).unwrap());
        first.keep().unwrap();
        let sentence = format!("{} is there already, and is not written over", path.display());
        assert_eq!(second.keep().unwrap_err().to_string(), sentence);
        assert_eq!(UnfinishedFile::create(&path).unwrap_err().to_string(), sentence);
        assert_eq!(names(), ["a.msa", "a.msa.unfinished"]);
        fs::remove_dir_all(&directory).unwrap();
    }
}
