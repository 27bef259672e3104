//! One archive on disk, read as a stream and decompressed as one.
//!
//! # Model
//! A compressed archive can hold far more than its file. That costs time, not memory: at any moment
//! there are one item, two buffers and the window of the decompressor, which refuses windows of
//! more than 128 MiB.
//!
//! # Invariants
//! I1. A stream that ends too early is no error: [`ArchiveFile::cut`] tells of it. One that is
//!     closed too early is.

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;

use clearway_proto::archive::{Compression, Header, Item, Limits, Parsed, Reader, Remainder};
use zstd::stream::read::Decoder;

use super::locator::TCP;
use crate::run::reached;

/// How much is read at once: large against a system call, small against an item.
const BUFFER: usize = 256 << 10;

/// The longest item that is read unless more is asked for. Timeslices of an experiment are below.
pub(crate) const ITEM_BYTES_MAX: u64 = 1 << 30;

/// Why reading cannot go on.
#[derive(Debug)]
pub(crate) enum ArchiveReadError {
    /// The disk fails, or there is no file.
    Disk(io::Error),
    /// What is in the file is no archive, or is broken.
    Broken(String),
}

impl fmt::Display for ArchiveReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk(error) => write!(f, "cannot be read: {error}"),
            Self::Broken(sentence) => f.write_str(sentence),
        }
    }
}

impl std::error::Error for ArchiveReadError {}

impl From<io::Error> for ArchiveReadError {
    fn from(error: io::Error) -> Self {
        Self::Disk(error)
    }
}

/// Reading stopped early, as after a crash of the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truncation {
    /// This many bytes of the last item are there.
    Item(u64),
    /// All items that are there are whole, but the compressed stream is not closed.
    Stream,
}

/// How much has been read of files that belong together, for the forecast of the command.
#[derive(Clone, Debug)]
pub(crate) struct ReadProgress {
    done: Rc<Cell<u64>>,
    all: u64,
}

impl ReadProgress {
    /// Begins with nothing of `all` bytes.
    pub(crate) fn new(all: u64) -> Self {
        Self { done: Rc::default(), all }
    }
}

/// Notes how much of a file has been read.
pub(super) struct WatchedStream {
    pub(super) stream: Box<dyn Read>,
    pub(super) progress: ReadProgress,
}

impl Read for WatchedStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.stream.read(bytes)?;
        let ReadProgress { done, all } = &self.progress;
        done.set(done.get() + count as u64);
        reached(done.get().min(*all), *all);
        Ok(count)
    }
}

/// An open archive.
pub(crate) struct ArchiveFile {
    stream: Box<dyn BufRead>,
    reader: Reader,
    /// The compressed stream has ended before its end.
    unclosed: bool,
}

impl ArchiveFile {
    /// Opens the archive at `path` and reads its header.
    ///
    /// # Errors
    /// When the file cannot be read, or does not begin as an archive.
    pub(crate) fn open(path: &Path, limits: Limits) -> Result<Self, ArchiveReadError> {
        Self::read(stream_of(path)?, limits)
    }

    /// Opens it as [`Self::open`] does, and notes in `progress` what is read.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(super) fn open_watched(
        path: &Path,
        limits: Limits,
        progress: ReadProgress,
    ) -> Result<Self, ArchiveReadError> {
        let stream = stream_of(path)?;
        Self::read(Box::new(WatchedStream { stream, progress }), limits)
    }

    /// Creates the archive that `stream` gives, its header read.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(super) fn read(stream: Box<dyn Read>, limits: Limits) -> Result<Self, ArchiveReadError> {
        let mut plain = BufReader::with_capacity(BUFFER, stream);
        let mut reader = Reader::new(limits);
        if pump(&mut plain, &mut reader)?.is_none() {
            let empty = reader.rest() == Remainder::CutHeader(0);
            return Err(ArchiveReadError::Broken(
                if empty { "the file is empty" } else { "the file ends within its header" }
                    .to_owned(),
            ));
        }
        let compressed =
            reader.header().is_some_and(|header| header.compression == Compression::Zstd);
        let stream: Box<dyn BufRead> = match compressed {
            true => Box::new(BufReader::with_capacity(BUFFER, Decoder::with_buffer(plain)?)),
            false => Box::new(plain),
        };
        Ok(Self { stream, reader, unclosed: false })
    }

    /// Goes on to the next item, which [`Self::item`] then lends out; false at the end.
    ///
    /// # Errors
    /// When the disk fails, or nobody can know what follows.
    pub(crate) fn advance(&mut self) -> Result<bool, ArchiveReadError> {
        match pump(&mut *self.stream, &mut self.reader) {
            Ok(Some(_)) => Ok(true),
            Ok(None) => match self.reader.rest() {
                // A writer that was killed closes no stream.
                Remainder::CutItem(bytes) if self.header().compression == Compression::Zstd => {
                    Err(ArchiveReadError::Broken(format!(
                        "the compressed stream is closed within an item, of which {bytes} bytes are there"
                    )))
                }
                _ => Ok(false),
            },
            // The decompressor's errors and those of the disk come in one type; only the disk's
            // have a number.
            Err(ArchiveReadError::Disk(error)) if error.raw_os_error().is_none() => {
                self.unclosed = error.kind() == io::ErrorKind::UnexpectedEof;
                if self.unclosed {
                    Ok(false)
                } else {
                    Err(ArchiveReadError::Broken(format!(
                        "the compressed stream is broken: {error}"
                    )))
                }
            }
            Err(stop) => Err(stop),
        }
    }

    /// Returns the header, with the versions of what has been read.
    pub(crate) fn header(&self) -> &Header {
        self.reader.header().expect("opening has read it")
    }

    /// Returns the item that [`Self::advance`] went to.
    pub(crate) fn item(&self) -> Option<Item<'_>> {
        self.reader.item()
    }

    /// Returns what the file lacks, after the last item.
    pub(crate) fn cut(&self) -> Option<Truncation> {
        match self.reader.rest() {
            Remainder::CutItem(bytes) => Some(Truncation::Item(bytes)),
            _ if self.unclosed => Some(Truncation::Stream),
            _ => None,
        }
    }
}

/// Returns whether what is at `path` is sent by somebody, once, and does not lie there.
pub(crate) fn is_sent(path: &Path) -> bool {
    let lies_there = |metadata: std::fs::Metadata| metadata.is_file() || metadata.is_dir();
    path.to_string_lossy().starts_with(TCP)
        || path.metadata().is_ok_and(|metadata| !lies_there(metadata))
}

/// Opens the bytes at `path`: of a file or a pipe, or what is sent by the process that listens at a
/// socket, or at the port that it names.
pub(super) fn stream_of(path: &Path) -> io::Result<Box<dyn Read>> {
    use std::os::unix::fs::FileTypeExt;
    if let Some(port) = path.to_str().and_then(|text| text.strip_prefix(TCP)) {
        return Ok(Box::new(TcpStream::connect(port)?));
    }
    let is_socket = path.metadata().is_ok_and(|metadata| metadata.file_type().is_socket());
    Ok(if is_socket { Box::new(UnixStream::connect(path)?) } else { Box::new(File::open(path)?) })
}

/// Reads from `stream` until something is whole; `None` at its end.
fn pump(stream: &mut dyn BufRead, reader: &mut Reader) -> Result<Option<Parsed>, ArchiveReadError> {
    loop {
        let bytes = match stream.fill_buf() {
            Ok([]) => return Ok(None),
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        let mut rest = bytes;
        let whole =
            reader.feed(&mut rest).map_err(|error| ArchiveReadError::Broken(error.to_string()))?;
        let taken = bytes.len() - rest.len();
        stream.consume(taken);
        if whole.is_some() {
            return Ok(whole);
        }
    }
}
