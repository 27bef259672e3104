//! What the sender has: a manifest made of its files, and their blocks.
//!
//! # Model
//! `a/b` goes to `b` of a target, `dir` to `dir` with everything below it, and what is in `dir/` to the target itself. Links are sent as
//! links. What is no file, directory or link is left out, and said. What cannot be read is named, and the rest is cast.
//!
//! # Invariants
//! I1. A block is of the file that the manifest lists: one that was replaced, or changed since, is found out at its end at the latest.

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::fcntl::OFlag;
use nix::unistd::{Whence, lseek};

use super::path::{Below, Text, is_unfinished};
use super::plan::{BLOCK, ENTRIES_MAX, Entry, Hash, Kind, Modified, hash_of, length_of};
use super::target::reason;

/// What a file system counts in (`stat(2)`).
const SECTOR: u64 = 512;

/// Letters of a path that is too long.
const SHOWN: usize = 60;

/// What is to be cast.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) entries: Vec<Entry>,
    /// Where each of them is here.
    paths: Vec<PathBuf>,
    /// What was left out, a sentence each.
    pub(super) notes: Vec<String>,
    /// What cannot be read, and why.
    pub(super) unread: Vec<Unsent>,
}

/// The path of something here that receivers do not get, as people can read it, and why they do not.
pub(super) type Unsent = (String, String);

impl Source {
    /// Everything at `paths`.
    ///
    /// # Errors
    /// One sentence: what is not there, or would be at one place twice; or there is nothing that can be read.
    pub(super) fn survey(paths: &[PathBuf]) -> Result<Self> {
        let mut source = Self::default();
        for path in paths {
            source.add_argument(path)?;
        }
        if let ([], [(path, why), ..]) = (&source.entries[..], &source.unread[..]) {
            bail!("{path} cannot be read: {why}");
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = source.entries.iter().find(|entry| !seen.insert(&entry.path)) {
            bail!("{} would be there twice; cast one after the other, or into different directories", twice.path);
        }
        Ok(source)
    }

    /// What comes on standard input, as `name`.
    ///
    /// # Errors
    /// A name that is none.
    pub(super) fn stream(name: &str) -> Result<Self> {
        let path = Below::read(name).filter(|path| path.split().is_some());
        let path = path.with_context(|| format!("`{name}` is no name below a directory"))?;
        let entry = Entry { path, kind: Kind::Stream, mode: 0o644, modified: now() };
        Ok(Self { entries: vec![entry], paths: vec![PathBuf::from("-")], ..Self::default() })
    }

    fn add_argument(&mut self, path: &Path) -> Result<()> {
        let ends_with_slash = path.as_os_str().as_bytes().ends_with(b"/");
        // A link that is named is what it leads to.
        let found = match fs::metadata(path) {
            // Nobody means what is not there; that is said before anybody is called.
            Err(error) if error.kind() == io::ErrorKind::NotFound => bail!("{} is not there", shown(path)),
            Err(error) => {
                self.miss(path, &error);
                return Ok(());
            }
            Ok(found) => found,
        };
        if found.is_dir() && (ends_with_slash || path.file_name().is_none()) {
            return self.add_inside(&Below::default(), path);
        }
        if !found.is_file() && !found.is_dir() {
            bail!("{} is no file or directory; `-` casts what comes on standard input", shown(path));
        }
        let name = path.file_name().with_context(|| format!("{} has no name", shown(path)))?;
        let below = Below::default().join(name.as_bytes());
        let below = below.with_context(|| format!("{} has a name that cannot be cast", shown(path)))?;
        self.add(below, path.to_owned(), &found)
    }

    fn add_inside(&mut self, below: &Below, directory: &Path) -> Result<()> {
        let mut inside = Vec::new();
        match fs::read_dir(directory) {
            Err(error) => self.miss(directory, &error),
            Ok(listed) => {
                for one in listed {
                    match one {
                        Ok(one) => inside.push(one),
                        Err(error) => {
                            self.miss(directory, &error);
                            break;
                        }
                    }
                }
            }
        }
        inside.sort_by_key(fs::DirEntry::file_name);
        for one in inside {
            let name = one.file_name();
            // What another cast has begun here.
            if is_unfinished(name.as_bytes()) {
                continue;
            }
            match (one.metadata(), below.join(name.as_bytes())) {
                (Ok(found), Some(below)) => self.add(below, one.path(), &found)?,
                // It went before it was listed.
                (Err(error), _) if error.kind() == io::ErrorKind::NotFound => {}
                (Err(error), _) => self.miss(&one.path(), &error),
                (_, None) => self.miss(&one.path(), &io::ErrorKind::InvalidFilename.into()),
            }
        }
        Ok(())
    }

    /// Says that what is at `path` cannot be cast.
    fn miss(&mut self, path: &Path, error: &io::Error) {
        let path = shown(path);
        self.unread.push(match error.kind() {
            io::ErrorKind::InvalidFilename => {
                let begin: String = path.chars().take(SHOWN).collect();
                (format!("{begin}..."), "its path is too long".to_owned())
            }
            _ => (path, reason(error)),
        });
    }

    fn add(&mut self, below: Below, path: PathBuf, found: &Metadata) -> Result<()> {
        let kind = match found.file_type() {
            kind if kind.is_file() => Kind::File { size: found.len(), sparse: found.blocks() * SECTOR < found.len() },
            kind if kind.is_dir() => Kind::Directory,
            kind if kind.is_symlink() => match fs::read_link(&path) {
                Ok(to) => Kind::Link { to: Text(to.as_os_str().as_bytes().to_vec()) },
                Err(error) => {
                    self.miss(&path, &error);
                    return Ok(());
                }
            },
            _ => {
                self.notes.push(format!("{} is left out: it is no file, directory or link", shown(&path)));
                return Ok(());
            }
        };
        let is_directory = kind == Kind::Directory;
        let entry = Entry { path: below.clone(), kind, mode: found.mode() & 0o777, modified: modified(found) };
        if !entry.is_sound() || self.entries.len() == ENTRIES_MAX {
            bail!("{} is more than one cast takes", shown(&path));
        }
        self.entries.push(entry);
        self.paths.push(path.clone());
        if is_directory { self.add_inside(&below, &path) } else { Ok(()) }
    }

    /// Opens the file of entry `number`.
    pub(super) fn open(&self, number: u32) -> io::Result<Contents> {
        let place = self.entries.get(number as usize).zip(self.paths.get(number as usize));
        let (entry, path) = place.ok_or(io::ErrorKind::NotFound)?;
        let flags = (OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).bits();
        let file = File::options().read(true).custom_flags(flags).open(path)?;
        let Kind::File { size, sparse } = entry.kind else { return Err(io::ErrorKind::InvalidInput.into()) };
        let contents = Contents { file, size, sparse, modified: entry.modified, hole: 0..0 };
        contents.check()?;
        Ok(contents)
    }

    /// The hashes of all blocks of entry `number`; `is_wanted` is asked at each.
    pub(super) fn hashes(&self, number: u32, is_wanted: &mut dyn FnMut() -> bool) -> io::Result<Vec<Hash>> {
        let mut contents = self.open(number)?;
        let blocks = self.entries[number as usize].blocks().unwrap_or_default();
        let mut buffer = vec![0; BLOCK as usize];
        let hashes = (0..blocks).map(|block| match is_wanted() {
            true => contents.block(block, &mut buffer).map(|read| read.hash()),
            false => Err(io::ErrorKind::Interrupted.into()),
        });
        let hashes = hashes.collect::<io::Result<_>>()?;
        contents.check()?;
        Ok(hashes)
    }

    /// The path here of entry `number`, for people.
    pub(super) fn name(&self, number: u32) -> String {
        self.paths.get(number as usize).map_or_else(String::new, |path| shown(path))
    }
}

/// An open file of the manifest.
pub(super) struct Contents {
    file: File,
    size: u64,
    sparse: bool,
    modified: Modified,
    /// Where nothing is, as far as was asked.
    hole: std::ops::Range<u64>,
}

/// A block that was read.
pub(super) enum Block<'b> {
    Bytes(&'b [u8]),
    /// So many zeros.
    Zeros(u32),
}

impl Contents {
    /// Block `block`, read into `buffer`, which is a block long.
    pub(super) fn block<'b>(&mut self, block: u32, buffer: &'b mut [u8]) -> io::Result<Block<'b>> {
        let (at, length) = (u64::from(block) * BLOCK, length_of(block, self.size));
        if self.sparse && self.is_hole(at, length) {
            return Ok(Block::Zeros(length as u32));
        }
        let bytes = &mut buffer[..length as usize];
        self.file.read_exact_at(bytes, at).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => changed(),
            _ => error,
        })?;
        Ok(Block::of(bytes))
    }

    /// Whether the file system has nothing there.
    fn is_hole(&mut self, at: u64, length: u64) -> bool {
        if at >= self.hole.end {
            let data = lseek(&self.file, at as i64, Whence::SeekData);
            // Behind the last data there is none.
            self.hole = at..data.map_or(self.size, |data| (data as u64).min(self.size));
        }
        self.hole.contains(&at) && at + length <= self.hole.end
    }

    /// Whether it still is what the manifest lists.
    pub(super) fn check(&self) -> io::Result<()> {
        let found = self.file.metadata()?;
        if !found.is_file() || found.len() != self.size || modified(&found) != self.modified {
            return Err(changed());
        }
        Ok(())
    }
}

impl<'b> Block<'b> {
    /// What these bytes are.
    pub(super) fn of(bytes: &'b [u8]) -> Self {
        // A block of data shows that in its first bytes, mostly.
        let is_zero = bytes.iter().all(|byte| *byte == 0);
        if is_zero { Self::Zeros(bytes.len() as u32) } else { Self::Bytes(bytes) }
    }

    pub(super) fn hash(&self) -> Hash {
        match self {
            Self::Bytes(bytes) => hash_of(bytes),
            Self::Zeros(length) => zeros(*length),
        }
    }
}

/// The hash of so many zeros.
fn zeros(length: u32) -> Hash {
    static BLOCK_OF_ZEROS: std::sync::OnceLock<Hash> = std::sync::OnceLock::new();
    let of = || hash_of(&vec![0; length as usize]);
    if u64::from(length) == BLOCK { *BLOCK_OF_ZEROS.get_or_init(of) } else { of() }
}

/// A path as it disturbs no terminal.
fn shown(path: &Path) -> String {
    Text(path.as_os_str().as_bytes().to_vec()).to_string()
}

fn changed() -> io::Error {
    io::Error::other("it changed while it was sent")
}

fn modified(found: &Metadata) -> Modified {
    Modified { seconds: found.mtime(), nanos: found.mtime_nsec() as u32 }
}

fn now() -> Modified {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    Modified { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() }
}
