//! What the sender has: a manifest made of its files, and their blocks.
//!
//! # Model
//! `a/b` goes to `b` of a target, `dir` to `dir` with everything below it, and what is in `dir/` to
//! the target itself. Links are sent as links. What is no file, directory or link is left out, and
//! said. What cannot be read is named, and the rest is cast.
//!
//! Everything is opened below a descriptor of the directory that was named, and no symbolic link on
//! the way is followed: others may swap what lies in it at any time.
//!
//! # Invariants
//! I1. A block is of the file that the manifest lists: one that was replaced, or changed since, is
//!     found out at its end at the latest.
//! I2. Nothing is read of what the survey did not see: each file and directory has the numbers,
//!     owner and mode that it had there.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, open, openat, openat2, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::unistd::{Whence, lseek};
use rustix::fs::{Dir, FileType};

use super::exclusion::{ExcludePattern, NameKind, is_excluded, is_name_excluded};
use super::message::RemovalTask;
use super::path::{PathText, RelativePath, is_unfinished};
use super::plan::{
    BLOCK, BlockHash, ENTRIES_MAX, EntryKind, ManifestEntry, Modified, hash_of, length_of,
};
use super::target::{kind_of, reason};

/// What a file system counts in (`stat(2)`).
const SECTOR: u64 = 512;

/// Letters of a path that is too long.
const SHOWN: usize = 60;

/// What is to be cast.
#[derive(Debug, Default)]
pub(super) struct CastSource {
    pub(super) entries: Vec<ManifestEntry>,
    /// Where each of them is here.
    origins: Vec<EntryOrigin>,
    bases: Vec<BaseDirectory>,
    /// What was left out, a sentence each.
    pub(super) notes: Vec<String>,
    /// What cannot be read, and why.
    pub(super) unread: Vec<SkippedPath>,
    /// Where a stream comes from.
    pub(super) stream: StreamSource,
    exclude: Vec<ExcludePattern>,
    /// Names that a pattern excludes; what is in a directory of these is not counted.
    pub(super) excluded: usize,
    /// Directories at receivers that get what is in a directory here.
    roots: Vec<RelativePath>,
    /// What is here and is not cast, as it would be called at receivers.
    left_out: Vec<RelativePath>,
    /// Files with several names, and what has attributes that do not travel.
    linked: usize,
    attributed: usize,
}

/// Where a stream comes from, and what is known of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StreamSource {
    /// A line for the shell whose output it is; else it is standard input.
    pub(super) program: Option<String>,
    /// Its length.
    pub(super) bytes: Option<u64>,
}

/// A directory below which entries are.
#[derive(Debug)]
struct BaseDirectory {
    directory: OwnedFd,
    /// As it was named.
    path: PathBuf,
    /// The name of the only entry, where that is not its name in the directory.
    alias: Option<PathBuf>,
}

/// Where an entry is here.
#[derive(Debug)]
struct EntryOrigin {
    base: usize,
    /// The path below that.
    inside: PathBuf,
    identity: FileIdentity,
}

/// What a file is, whatever name it has: device, number, owner and mode. Another one that looks
/// alike has another number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FileIdentity(u64, u64, u32, u32);

impl FileIdentity {
    const fn from_stat(found: &FileStat) -> Self {
        Self(found.st_dev, found.st_ino, found.st_uid, found.st_mode)
    }
}

/// The path of something here that receivers do not get, as people can read it, and why they do
/// not.
pub(super) type SkippedPath = (String, String);

impl CastSource {
    /// Surveys everything at `paths` that no pattern of `exclude` matches.
    ///
    /// # Errors
    /// One sentence: what is not there, or would be at one place twice; or there is nothing that
    /// can be read.
    pub(super) fn survey(paths: &[PathBuf], exclude: Vec<ExcludePattern>) -> Result<Self> {
        let mut source = Self { exclude, ..Self::default() };
        for path in paths {
            source.add_argument(path)?;
        }
        if let ([], [(path, why), ..]) = (&source.entries[..], &source.unread[..]) {
            bail!("{path} cannot be read: {why}");
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = source.entries.iter().find(|entry| !seen.insert(&entry.path)) {
            bail!(
                "{} would be there twice; cast one after the other, or into different directories",
                twice.path
            );
        }
        if source.linked > 0 {
            let count = source.linked;
            source.notes.push(format!(
                "not carried: hard links ({count} names of files that have others arrive as files of their own)"
            ));
        }
        if source.attributed > 0 {
            let count = source.attributed;
            source.notes.push(format!(
                "not carried: ACLs and extended attributes ({count} files or directories have some)"
            ));
        }
        Ok(source)
    }

    /// Creates the source of what comes as `stream`, under the name `name`.
    ///
    /// # Errors
    /// A name that is none.
    pub(super) fn stream(name: &str, stream: StreamSource) -> Result<Self> {
        let path = RelativePath::read(name).filter(|path| path.split().is_some());
        let path = path.with_context(|| format!("`{name}` is no name below a directory"))?;
        let entry = ManifestEntry { path, kind: EntryKind::Stream, mode: 0o644, modified: now() };
        let nowhere =
            EntryOrigin { base: 0, inside: PathBuf::new(), identity: FileIdentity::default() };
        Ok(Self { entries: vec![entry], origins: vec![nowhere], stream, ..Self::default() })
    }

    /// Returns what receivers remove to have nothing else below the directories of this source;
    /// `None` when there is no directory.
    pub(super) fn removal(&self) -> Option<RemovalTask> {
        let exclude = self.exclude.iter().map(|pattern| pattern.text().to_owned()).collect();
        let (below, kept) = (self.roots.clone(), self.left_out.clone());
        (!below.is_empty()).then_some(RemovalTask { below, exclude, kept })
    }

    /// Returns whether it can be read only once.
    pub(super) fn is_stream(&self) -> bool {
        self.entries.iter().any(|entry| entry.kind == EntryKind::Stream)
    }

    fn add_argument(&mut self, path: &Path) -> Result<()> {
        let ends_with_slash = path.as_os_str().as_bytes().ends_with(b"/");
        // A link that is named is what it leads to.
        let found = match fs::metadata(path) {
            // Nobody means what is not there; that is said before anybody is called.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                bail!("{} is not there", shown(path))
            }
            Err(error) => {
                self.miss(path, &error);
                return Ok(());
            }
            Ok(found) => found,
        };
        if !found.is_file() && !found.is_dir() {
            bail!(
                "{} is no file or directory; `-` casts what comes on standard input",
                shown(path)
            );
        }
        let kind = NameKind::from_directory(found.is_dir());
        let is_contents = found.is_dir() && (ends_with_slash || path.file_name().is_none());
        let below = match path.file_name() {
            _ if is_contents => RelativePath::default(),
            None => bail!("{} has no name", shown(path)),
            Some(name) if is_name_excluded(&self.exclude, name, kind) => {
                self.excluded += 1;
                return Ok(());
            }
            Some(name) => {
                let below = RelativePath::default().join(name.as_bytes());
                below.with_context(|| format!("{} has a name that cannot be cast", shown(path)))?
            }
        };
        let added = if found.is_dir() {
            self.add_directory(below, path)
        } else {
            self.add_file(below, path)
        };
        added.unwrap_or_else(|error| {
            self.miss(path, &error);
            Ok(())
        })
    }

    /// Adds the directory at `path`, which is `below` at receivers, and what is in it. The outer
    /// error is that of the argument itself.
    fn add_directory(&mut self, below: RelativePath, path: &Path) -> io::Result<Result<()>> {
        let base = self.base(path, path)?;
        let directory = self.bases[base].directory.try_clone()?;
        let found = fstat(&directory)?;
        if below.split().is_some()
            && let Err(error) =
                self.push(below.clone(), EntryKind::Directory, (base, PathBuf::new()), &found)
        {
            return Ok(Err(error));
        }
        self.roots.push(below.clone());
        Ok(self.add_inside(&below, (base, Path::new("")), directory.as_fd()))
    }

    /// Adds the file at `path`; a link that is named is what it leads to.
    fn add_file(&mut self, below: RelativePath, path: &Path) -> io::Result<Result<()>> {
        let is_link = fs::symlink_metadata(path)?.is_symlink();
        let real = if is_link { path.canonicalize()? } else { path.to_owned() };
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(io::ErrorKind::InvalidFilename.into());
        };
        let at = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let base =
            match self.bases.iter().rposition(|base| base.path == parent && base.alias.is_none()) {
                Some(base) if !is_link => base,
                _ => self.base(at, parent)?,
            };
        self.bases[base].alias = is_link.then(|| path.to_owned());
        let directory = self.bases[base].directory.try_clone()?;
        let found = fstatat(&directory, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
        Ok(self.add(below, (base, PathBuf::from(name)), directory.as_fd(), &found))
    }

    /// Adds one more base: the directory at `path`, which people know as `named`.
    fn base(&mut self, path: &Path, named: &Path) -> io::Result<usize> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let directory = open(path, flags, Mode::empty())?;
        self.bases.push(BaseDirectory { directory, path: named.to_owned(), alias: None });
        Ok(self.bases.len() - 1)
    }

    /// Adds what is in `directory`, which is `at` here.
    fn add_inside(
        &mut self,
        below: &RelativePath,
        at: (usize, &Path),
        directory: BorrowedFd<'_>,
    ) -> Result<()> {
        let (base, path) = at;
        let mut names = Vec::new();
        match Dir::read_from(directory) {
            Err(error) => self.miss(&self.bases[base].path.join(path), &error.into()),
            Ok(listed) => {
                for one in listed {
                    match one {
                        Ok(one) if matches!(one.file_name().to_bytes(), b"." | b"..") => {}
                        Ok(one) => names.push((one.file_name().to_owned(), one.file_type())),
                        Err(error) => {
                            self.miss(&self.bases[base].path.join(path), &error.into());
                            break;
                        }
                    }
                }
            }
        }
        names.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (name, listed) in names {
            let name = OsStr::from_bytes(name.as_bytes());
            let inside = path.join(name);
            let found = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW);
            if self.leaves_out(&inside, found.as_ref().ok(), listed) {
                continue;
            }
            if is_unfinished(name.as_bytes()) {
                let shown = shown(&self.bases[base].path.join(inside));
                self.notes.push(format!(
                    "{shown} is left out: it has the name of what another cast has not finished"
                ));
                continue;
            }
            match (found, below.join(name.as_bytes())) {
                (Ok(found), Some(below)) => self.add(below, (base, inside), directory, &found)?,
                // It went before it was listed.
                (Err(Errno::ENOENT), _) => {}
                (Err(error), _) => self.miss(&self.bases[base].path.join(inside), &error.into()),
                (_, None) => self.miss(
                    &self.bases[base].path.join(inside),
                    &io::ErrorKind::InvalidFilename.into(),
                ),
            }
        }
        Ok(())
    }

    /// Returns whether a pattern excludes what is at `path` below its base: it was `found` there,
    /// or cannot be looked at and was `listed`.
    fn leaves_out(&mut self, path: &Path, found: Option<&FileStat>, listed: FileType) -> bool {
        let is_directory = match found {
            Some(found) => kind_of(found) == SFlag::S_IFDIR,
            None => listed == FileType::Directory,
        };
        let is_out = is_excluded(&self.exclude, path, NameKind::from_directory(is_directory));
        self.excluded += usize::from(is_out);
        is_out
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

    /// Adds what is `at` here, its last name being one in `directory`.
    fn add(
        &mut self,
        below: RelativePath,
        at: (usize, PathBuf),
        directory: BorrowedFd<'_>,
        found: &FileStat,
    ) -> Result<()> {
        let path = self.bases[at.0].path.join(&at.1);
        let name = at.1.file_name().unwrap_or_default();
        let kind = match kind_of(found) {
            SFlag::S_IFREG => {
                let size = found.st_size.unsigned_abs();
                EntryKind::File { size, sparse: found.st_blocks.unsigned_abs() * SECTOR < size }
            }
            SFlag::S_IFDIR => EntryKind::Directory,
            SFlag::S_IFLNK => match readlinkat(directory, name) {
                Ok(to) => EntryKind::Link { to: PathText(to.as_bytes().to_vec()) },
                Err(error) => {
                    self.miss(&path, &error.into());
                    return Ok(());
                }
            },
            _ => {
                self.notes.push(format!(
                    "{} is left out: it is no file, directory or link",
                    shown(&path)
                ));
                self.left_out.push(below);
                return Ok(());
            }
        };
        let is_file = matches!(kind, EntryKind::File { .. });
        self.linked += usize::from(is_file && found.st_nlink > 1);
        self.attributed += usize::from(
            (is_file || kind == EntryKind::Directory) && has_attributes(directory, name),
        );
        if kind != EntryKind::Directory {
            return self.push(below, kind, at, found);
        }
        self.push(below.clone(), kind, (at.0, at.1.clone()), found)?;
        match open_inner(directory, name, found) {
            Ok(inner) => self.add_inside(&below, (at.0, &at.1), inner.as_fd()),
            Err(error) => {
                self.miss(&path, &error);
                Ok(())
            }
        }
    }

    fn push(
        &mut self,
        path: RelativePath,
        kind: EntryKind,
        at: (usize, PathBuf),
        found: &FileStat,
    ) -> Result<()> {
        let entry =
            ManifestEntry { path, kind, mode: found.st_mode & 0o777, modified: modified(found) };
        let (base, inside) = at;
        if !entry.is_sound() || self.entries.len() == ENTRIES_MAX {
            bail!("{} is more than one cast takes", shown(&self.bases[base].path.join(inside)));
        }
        self.entries.push(entry);
        self.origins.push(EntryOrigin { base, inside, identity: FileIdentity::from_stat(found) });
        Ok(())
    }

    /// Opens the file of entry `number`.
    pub(super) fn open(&self, number: u32) -> io::Result<SourceFile> {
        let place = self.entries.get(number as usize).zip(self.origins.get(number as usize));
        let (entry, origin) = place.ok_or(io::ErrorKind::NotFound)?;
        let base = self.bases.get(origin.base).ok_or(io::ErrorKind::NotFound)?;
        let EntryKind::File { size, sparse } = entry.kind else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let file =
            open_below(base.directory.as_fd(), &origin.inside).map_err(|error| match error {
                // A link, or a file where a directory was.
                Errno::ELOOP | Errno::ENOTDIR | Errno::EXDEV => changed(),
                other => other.into(),
            })?;
        let (modified, identity) = (entry.modified, origin.identity);
        let contents =
            SourceFile { file: file.into(), size, sparse, modified, identity, hole: 0..0 };
        contents.check()?;
        Ok(contents)
    }

    /// Returns the hashes of all blocks of entry `number`; `is_wanted` is asked at each.
    pub(super) fn hashes(
        &self,
        number: u32,
        is_wanted: &mut dyn FnMut() -> bool,
    ) -> io::Result<Vec<BlockHash>> {
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

    /// Returns the path here of entry `number`, for people.
    pub(super) fn name(&self, number: u32) -> String {
        let place = self
            .origins
            .get(number as usize)
            .and_then(|origin| Some((origin, self.bases.get(origin.base)?)));
        let stream = || self.entries.first().map(|entry| entry.path.to_string());
        place.map_or_else(
            || stream().unwrap_or_default(),
            |(origin, base)| shown(base.alias.as_ref().unwrap_or(&base.path.join(&origin.inside))),
        )
    }
}

/// An open file of the manifest.
pub(super) struct SourceFile {
    file: File,
    size: u64,
    sparse: bool,
    modified: Modified,
    identity: FileIdentity,
    /// Where nothing is, as far as was asked.
    hole: std::ops::Range<u64>,
}

/// A block that was read.
pub(super) enum SourceBlock<'b> {
    Bytes(&'b [u8]),
    /// This many zeros.
    Zeros(u32),
}

impl SourceFile {
    /// Reads block `block` into `buffer`, which is a block long.
    pub(super) fn block<'b>(
        &mut self,
        block: u32,
        buffer: &'b mut [u8],
    ) -> io::Result<SourceBlock<'b>> {
        let (at, length) = (u64::from(block) * BLOCK, length_of(block, self.size));
        if self.sparse && self.is_hole(at, length) {
            return Ok(SourceBlock::Zeros(length as u32));
        }
        let bytes = &mut buffer[..length as usize];
        self.file.read_exact_at(bytes, at).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => changed(),
            _ => error,
        })?;
        Ok(SourceBlock::from_bytes(bytes))
    }

    /// Returns whether the file system has nothing there.
    fn is_hole(&mut self, at: u64, length: u64) -> bool {
        if at >= self.hole.end {
            let data = lseek(&self.file, at as i64, Whence::SeekData);
            // Behind the last data there is none.
            self.hole = at..data.map_or(self.size, |data| (data as u64).min(self.size));
        }
        self.hole.contains(&at) && at + length <= self.hole.end
    }

    /// Checks that it still is what the manifest lists.
    pub(super) fn check(&self) -> io::Result<()> {
        let found = fstat(&self.file)?;
        let is_same = FileIdentity::from_stat(&found) == self.identity
            && found.st_size.unsigned_abs() == self.size;
        if is_same && modified(&found) == self.modified { Ok(()) } else { Err(changed()) }
    }
}

/// Returns whether what has `name` in `directory` has an ACL, or attributes of users.
fn has_attributes(directory: BorrowedFd<'_>, name: &OsStr) -> bool {
    let path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name);
    let mut names = [0; 4096];
    match rustix::fs::llistxattr(path, &mut names) {
        Ok(length) => {
            let names = names.get(..length).unwrap_or_default().split(|byte| *byte == 0);
            let kinds = [&b"user."[..], b"system.posix_acl_", b"security.capability"];
            names.into_iter().any(|name| kinds.iter().any(|kind| name.starts_with(kind)))
        }
        Err(error) => error == rustix::io::Errno::RANGE,
    }
}

/// Opens the directory `name` in `directory`, which was `found` there.
fn open_inner(directory: BorrowedFd<'_>, name: &OsStr, found: &FileStat) -> io::Result<OwnedFd> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let inner = match openat(directory, name, flags, Mode::empty()) {
        Err(Errno::ELOOP | Errno::ENOTDIR) => return Err(changed()),
        other => other?,
    };
    if FileIdentity::from_stat(&fstat(&inner)?) == FileIdentity::from_stat(found) {
        Ok(inner)
    } else {
        Err(changed())
    }
}

/// Opens the file at `path` below `directory`; no name on the way is a link.
fn open_below(directory: BorrowedFd<'_>, path: &Path) -> nix::Result<OwnedFd> {
    // A pipe in its place would be waited for.
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    match openat2(directory, path, OpenHow::new().flags(flags).resolve(resolve)) {
        // A kernel before 5.6, or a filter of system calls that does not know it.
        Err(Errno::ENOSYS | Errno::EPERM) => walk_below(directory, path, flags),
        other => other,
    }
}

/// Opens the same name by name.
fn walk_below(directory: BorrowedFd<'_>, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    let mut at = None;
    if let Some(parent) = path.parent() {
        for name in parent {
            let from = at.as_ref().map_or(directory, OwnedFd::as_fd);
            let way = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_PATH | OFlag::O_CLOEXEC;
            at = Some(openat(from, name, way, Mode::empty())?);
        }
    }
    let name = path.file_name().ok_or(Errno::EINVAL)?;
    openat(at.as_ref().map_or(directory, OwnedFd::as_fd), name, flags, Mode::empty())
}

impl<'b> SourceBlock<'b> {
    /// Returns what these bytes are.
    pub(super) fn from_bytes(bytes: &'b [u8]) -> Self {
        // A block of data shows that in its first bytes, mostly.
        let is_zero = bytes.iter().all(|byte| *byte == 0);
        if is_zero { Self::Zeros(bytes.len() as u32) } else { Self::Bytes(bytes) }
    }

    pub(super) fn hash(&self) -> BlockHash {
        match self {
            Self::Bytes(bytes) => hash_of(bytes),
            Self::Zeros(length) => zeros(*length),
        }
    }
}

/// Returns the hash of this many zeros.
fn zeros(length: u32) -> BlockHash {
    static BLOCK_OF_ZEROS: std::sync::OnceLock<BlockHash> = std::sync::OnceLock::new();
    let of = || hash_of(&vec![0; length as usize]);
    if u64::from(length) == BLOCK { *BLOCK_OF_ZEROS.get_or_init(of) } else { of() }
}

/// Returns a path as it disturbs no terminal.
fn shown(path: &Path) -> String {
    PathText(path.as_os_str().as_bytes().to_vec()).to_string()
}

fn changed() -> io::Error {
    io::Error::other("it changed while it was sent")
}

fn modified(found: &FileStat) -> Modified {
    Modified { seconds: found.st_mtime, nanos: found.st_mtime_nsec as u32 }
}

fn now() -> Modified {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    Modified { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn open_below__names_that_are_links_are_not_followed_in_either_way() {
        let directory = std::env::temp_dir().join(format!("clearway-below-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(directory.join("a/b")).expect("made");
        fs::write(directory.join("a/b/file"), b"seen").expect("written");
        symlink("a", directory.join("link")).expect("a link");
        symlink("file", directory.join("a/b/last")).expect("a link");
        let base = File::open(&directory).expect("opened");
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW;
        for (path, is_there) in
            [("a/b/file", true), ("link/b/file", false), ("a/b/last", false), ("a/gone", false)]
        {
            let path = Path::new(path);
            assert_eq!(open_below(base.as_fd(), path).is_ok(), is_there, "{}", path.display());
            assert_eq!(
                walk_below(base.as_fd(), path, flags).is_ok(),
                is_there,
                "{}",
                path.display()
            );
        }
        fs::remove_dir_all(directory).expect("removed");
    }
}
