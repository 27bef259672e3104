//! One archive on disk, read as a stream and decompressed as one.
//!
//! # Model
//! A compressed archive can hold far more than its file. That costs time, not memory: at any moment there are one item, two buffers
//! and the window of the decompressor, which refuses windows of more than 128 MiB.
//!
//! # Invariants
//! I1. A stream that ends too early is no error: [`ArchiveFile::cut`] tells of it.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result};
use clearway_proto::archive::{Compression, Header, Item, Limits, Reader, Rest, Whole};
use zstd::stream::read::Decoder;

/// How much is read at once: large against a system call, small against an item.
const BUFFER: usize = 256 << 10;

/// The longest item that is read unless more is asked for. Timeslices of an experiment are below.
pub(crate) const ITEM_BYTES_MAX: u64 = 1 << 30;

/// What is in the file cannot be read: it is no archive, or broken.
#[derive(Clone, Debug)]
pub(crate) struct Broken(pub(crate) String);

/// Reading stopped early, as after a crash of the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// So many bytes of the last item are there.
    Item(u64),
    /// All items that are there are whole, but the compressed stream is not closed.
    Stream,
}

/// An open archive.
pub(crate) struct ArchiveFile {
    stream: Box<dyn BufRead>,
    reader: Reader,
    /// The compressed stream has ended before its end.
    unclosed: bool,
}

impl ArchiveFile {
    /// Opens the archive at `path` and reads its header. What is no archive is `Ok(Err(_))`.
    ///
    /// # Errors
    /// When the file cannot be opened or read.
    pub(crate) fn open(path: &Path, limits: Limits) -> Result<Result<Self, Broken>> {
        let file = File::open(path).with_context(|| format!("{} cannot be read", path.display()))?;
        let mut plain = BufReader::with_capacity(BUFFER, file);
        let mut reader = Reader::new(limits);
        match pump(&mut plain, &mut reader) {
            Ok(Some(_)) => {}
            Ok(None) => {
                return Ok(Err(Broken(match reader.rest() {
                    Rest::CutHeader(0) => "the file is empty".to_owned(),
                    _ => "the file ends within its header".to_owned(),
                })));
            }
            Err(Stop::Broken(broken)) => return Ok(Err(broken)),
            Err(Stop::Io(error)) => return Err(error).with_context(|| format!("{} cannot be read", path.display())),
        }
        let compressed = reader.header().is_some_and(|header| header.compression == Compression::Zstd);
        let stream: Box<dyn BufRead> = if compressed {
            Box::new(BufReader::with_capacity(BUFFER, Decoder::with_buffer(plain)?))
        } else {
            Box::new(plain)
        };
        Ok(Ok(Self { stream, reader, unclosed: false }))
    }

    /// Goes on to the next item, which [`Self::item`] then lends out; false at the end. What cannot be read is `Ok(Err(_))`.
    ///
    /// # Errors
    /// When the disk fails.
    pub(crate) fn advance(&mut self) -> Result<Result<bool, Broken>> {
        match pump(&mut *self.stream, &mut self.reader) {
            Ok(whole) => Ok(Ok(whole.is_some())),
            Err(Stop::Broken(broken)) => Ok(Err(broken)),
            Err(Stop::Io(error)) if self.header().compression == Compression::None => Err(error.into()),
            Err(Stop::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.unclosed = true;
                Ok(Ok(false))
            }
            // The decompressor's errors and those of the disk come in one type; only the disk's have a number.
            Err(Stop::Io(error)) if error.raw_os_error().is_some() => Err(error.into()),
            Err(Stop::Io(error)) => Ok(Err(Broken(format!("the compressed stream is broken: {error}")))),
        }
    }

    /// The header, with the versions of what has been read.
    pub(crate) fn header(&self) -> &Header {
        self.reader.header().expect("opening has read it")
    }

    /// The item that [`Self::advance`] went to.
    pub(crate) fn item(&self) -> Option<Item<'_>> {
        self.reader.item()
    }

    /// After the last item: what the file lacks.
    pub(crate) fn cut(&self) -> Option<Cut> {
        match self.reader.rest() {
            Rest::CutItem(bytes) => Some(Cut::Item(bytes)),
            _ if self.unclosed => Some(Cut::Stream),
            _ => None,
        }
    }
}

enum Stop {
    Io(io::Error),
    Broken(Broken),
}

/// Reads from `stream` until something is whole; `None` at its end.
fn pump(stream: &mut dyn BufRead, reader: &mut Reader) -> Result<Option<Whole>, Stop> {
    loop {
        let bytes = match stream.fill_buf() {
            Ok([]) => return Ok(None),
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Stop::Io(error)),
        };
        let mut rest = bytes;
        let whole = reader.feed(&mut rest).map_err(|error| Stop::Broken(Broken(error.to_string())))?;
        let taken = bytes.len() - rest.len();
        stream.consume(taken);
        if whole.is_some() {
            return Ok(whole);
        }
    }
}
