//! Puts items into an archive on disk.
//!
//! # Model
//! The file is only ever appended to, so whatever stops this process leaves an archive with at most
//! its last item cut off. Every timeslice is handed to the kernel as soon as it is put, microslices
//! whenever a mebibyte of them has come together; [`ArchiveSink::finish`] waits for the disk. The
//! file has another name until it is finished, and goes if it never is ([`UnfinishedFile`]).
//!
//! # Invariants
//! I1. No file that exists is written over.
//! I2. An archive has its name once it is whole.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use clearway_proto::archive::{
    ArchiveKind, Component, Compression, Header, TimesliceDescriptor, Versions, Writer,
};
use clearway_proto::microslice::Microslice;
use nix::unistd::{Uid, User, gethostname};
use zstd::stream::write::Encoder;

use super::unfinished::UnfinishedFile;

/// How much is written at once.
const BUFFER: usize = 256 << 10;

/// How many bytes of microslices may be lost with this process.
const UNWRITTEN_MAX: u64 = 1 << 20;

/// The fastest level of zstd, which FLESnet uses as well.
const LEVEL: i32 = 1;

/// How an archive is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArchiveFormat {
    /// Versions of its classes.
    pub(crate) versions: Versions,
    /// How items are stored.
    pub(crate) compression: Compression,
}

/// An archive that is being written.
pub(crate) struct ArchiveSink {
    path: PathBuf,
    out: ArchiveOutput,
    writer: Writer,
    unwritten: u64,
    /// None where somebody else keeps it.
    unfinished: Option<UnfinishedFile>,
}

enum ArchiveOutput {
    Plain(BufWriter<File>),
    Zstd(Encoder<'static, BufWriter<File>>),
}

impl ArchiveOutput {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.write_all(bytes),
            Self::Zstd(stream) => stream.write_all(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.flush(),
            Self::Zstd(stream) => stream.flush(),
        }
    }

    fn finish(self) -> io::Result<()> {
        let file = match self {
            Self::Plain(file) => file,
            Self::Zstd(stream) => stream.finish()?,
        };
        file.into_inner()?.sync_all()
    }
}

impl ArchiveSink {
    /// Makes a new archive that is to be at `path`, with the names of this host and user and the
    /// time.
    ///
    /// # Errors
    /// When there is a file already, or none can be made.
    pub(crate) fn create(path: &Path, kind: ArchiveKind, form: ArchiveFormat) -> Result<Self> {
        let header = Header {
            versions: form.versions,
            kind,
            compression: form.compression,
            created_s: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |time| time.as_secs() as i64),
            host: gethostname().map(|name| name.into_encoded_bytes()).unwrap_or_default(),
            user: User::from_uid(Uid::effective())
                .ok()
                .flatten()
                .map(|user| user.name.into_bytes())
                .unwrap_or_default(),
        };
        let (unfinished, file) = UnfinishedFile::create(path)?;
        let mut file = BufWriter::with_capacity(BUFFER, file);
        let (writer, bytes) = Writer::new(&header);
        let out = file.write_all(&bytes).and_then(|()| file.flush()).and_then(|()| {
            match form.compression {
                Compression::None => Ok(ArchiveOutput::Plain(file)),
                Compression::Zstd => Encoder::new(file, LEVEL).and_then(|mut stream| {
                    // FLESnet writes none, and its decompressor looks at it where there is one.
                    stream.include_checksum(true)?;
                    Ok(ArchiveOutput::Zstd(stream))
                }),
            }
        });
        let out = out.with_context(|| format!("{} cannot be written", path.display()))?;
        Ok(Self { path: path.to_owned(), out, writer, unwritten: 0, unfinished: Some(unfinished) })
    }

    /// Leaves it to the caller to give the archive its name, once this sink is finished.
    pub(crate) fn detach(&mut self) -> Option<UnfinishedFile> {
        self.unfinished.take()
    }

    /// Appends a microslice.
    ///
    /// # Errors
    /// When the disk does not take it; the archive ends with a cut item then.
    pub(crate) fn microslice(&mut self, microslice: &Microslice<'_>) -> Result<()> {
        self.unwritten += microslice.content.len() as u64;
        let mut done = self.writer.microslice(microslice, &mut |bytes| self.out.put(bytes));
        if done.is_ok() && self.unwritten >= UNWRITTEN_MAX {
            self.unwritten = 0;
            done = self.out.flush();
        }
        done.with_context(|| format!("{} cannot be written", self.path.display()))
    }

    /// Appends a timeslice.
    ///
    /// # Errors
    /// When the disk does not take it; the archive ends with a cut item then.
    pub(crate) fn timeslice<'a>(
        &mut self,
        descriptor: &TimesliceDescriptor,
        components: impl ExactSizeIterator<Item = Component<'a>> + Clone,
    ) -> Result<()> {
        let done = self.writer.timeslice(descriptor, components, &mut |bytes| self.out.put(bytes));
        done.and_then(|()| self.out.flush())
            .with_context(|| format!("{} cannot be written", self.path.display()))
    }

    /// Closes the archive, waits until the disk has it, and gives it its name unless that was
    /// [detached](Self::detach).
    ///
    /// # Errors
    /// When the disk does not take it, or somebody else has taken the name.
    pub(crate) fn finish(self) -> Result<()> {
        self.out.finish().with_context(|| format!("{} cannot be written", self.path.display()))?;
        self.unfinished.map_or(Ok(()), UnfinishedFile::keep)
    }
}
