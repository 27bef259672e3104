//! Timeslices handed over to another process through memory that both have.
//!
//! # Model
//! A builder listens at a Unix socket and has an anonymous file in memory. It writes one timeslice
//! into the file, as an archive of its own, and says where the file is, a line; the consumer reads
//! it there and answers with a line when it has done with it. Then comes the next. A consumer may
//! come late: the builder waits. One that goes before it has answered has not taken its timeslice,
//! and the next consumer gets it.
//!
//! # Invariants
//! I1. A timeslice is taken when a consumer says so.
//! I2. Nothing is left behind but a socket's name, which the next builder takes over.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clearway_proto::archive::{
    ArchiveKind, Compression, Header, Inspector, Item, Limits, Versions, Writer,
};
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::described::DescribedTimeslice;
use super::messages::TimesliceResult;
use super::sink::{self, TimesliceSink};
use crate::mechanism::timeslice::archive::{ArchiveSource, ITEM_BYTES_MAX, Locator};

/// The longest line of a builder: the path of a file below `/proc`.
const LINE_MAX: u64 = 256;

/// The builder's side.
pub(super) struct ConsumerSink {
    path: PathBuf,
    listener: UnixListener,
    consumer: Option<BufReader<UnixStream>>,
    memory: File,
    account: TimesliceResult,
}

impl ConsumerSink {
    /// Listens at `path`.
    pub(super) fn open(path: PathBuf) -> Result<Self> {
        let shown = path.display().to_string();
        let listener = match UnixListener::bind(&path) {
            // A builder that was killed left its name here, unless somebody answers.
            Err(error)
                if error.kind() == ErrorKind::AddrInUse && UnixStream::connect(&path).is_err() =>
            {
                fs::remove_file(&path).and_then(|()| UnixListener::bind(&path))
            }
            other => other,
        };
        let listener = listener.with_context(|| format!("no consumer could come in at {shown}"))?;
        let memory = memfd_create(c"clearway-timeslice", MFdFlags::MFD_CLOEXEC)
            .context("memory for a consumer")?;
        Ok(Self {
            path,
            listener,
            consumer: None,
            memory: memory.into(),
            account: TimesliceResult::default(),
        })
    }

    /// Puts `built` into the memory.
    fn write(&mut self, built: &DescribedTimeslice<'_>) -> io::Result<()> {
        let header = Header {
            versions: Versions::NEWEST,
            kind: ArchiveKind::Timeslices,
            compression: Compression::None,
            created_s: 0,
            host: Vec::new(),
            user: Vec::new(),
        };
        let (mut writer, head) = Writer::new(&header);
        self.memory.rewind()?;
        let mut out = BufWriter::new(&self.memory);
        out.write_all(&head)?;
        let components = built.components.iter().copied();
        writer.timeslice(&built.descriptor, components, &mut |bytes| out.write_all(bytes))?;
        out.flush()?;
        drop(out);
        let end = self.memory.stream_position()?;
        self.memory.set_len(end)
    }

    /// Offers what is in the memory to the consumer that is there, or the next one; whether it took
    /// it.
    fn offer(&mut self) -> io::Result<bool> {
        if self.consumer.is_none() {
            self.consumer = Some(BufReader::new(self.listener.accept()?.0));
        }
        let Some(consumer) = &mut self.consumer else { return Ok(false) };
        let line = format!("/proc/{}/fd/{}\n", std::process::id(), self.memory.as_raw_fd());
        let mut answer = String::new();
        let heard = consumer
            .get_mut()
            .write_all(line.as_bytes())
            .and_then(|()| io::Read::take(consumer, LINE_MAX).read_line(&mut answer));
        let is_taken = matches!(heard, Ok(count) if count > 0);
        if !is_taken {
            self.consumer = None;
        }
        Ok(is_taken)
    }
}

impl TimesliceSink for ConsumerSink {
    fn take(&mut self, built: DescribedTimeslice<'_>) -> Result<()> {
        self.write(&built).context("memory for a consumer")?;
        while !self.offer().context("the way to a consumer")? {}
        sink::count(&mut self.account, &built);
        Ok(())
    }

    fn finish(&mut self) -> Result<TimesliceResult> {
        self.consumer = None;
        Ok(std::mem::take(&mut self.account))
    }
}

impl Drop for ConsumerSink {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Takes timeslices from the builder that listens at `path` until there are no more, and looks at
/// them or puts them `into` an archive; what there was.
///
/// # Errors
/// When nobody listens, the builder dies, or the archive cannot be written.
pub(crate) fn consume(path: &Path, into: Option<&Path>) -> Result<String> {
    let shown = path.display();
    let builder = UnixStream::connect(path)
        .with_context(|| format!("no builder hands timeslices over at {shown}"))?;
    let mut lines = BufReader::new(builder);
    let mut archive = into.map(|path| sink::new_archive(path, Compression::None)).transpose()?;
    let (mut inspector, mut count) = (Inspector::default(), 0_u64);
    loop {
        let mut line = String::new();
        io::Read::take(&mut lines, LINE_MAX)
            .read_line(&mut line)
            .context("what the builder says")?;
        if line.is_empty() {
            break;
        }
        let locator: Locator = line.trim_end().parse().map_err(anyhow::Error::msg)?;
        let mut memory = ArchiveSource::open(locator, Limits { item_bytes: ITEM_BYTES_MAX })?;
        if !memory.advance()? {
            bail!("the builder at {shown} handed nothing over");
        }
        match (memory.item(), &mut archive) {
            (Some(Item::Timeslice(timeslice)), Some(archive)) => {
                archive.timeslice(&timeslice.descriptor, timeslice.components())?;
            }
            (Some(Item::Timeslice(timeslice)), None) => {
                inspector.look_at(&timeslice.descriptor, timeslice.components())
            }
            _ => bail!("the builder at {shown} handed something else over than a timeslice"),
        }
        lines.get_mut().write_all(b"taken\n").context("the builder is gone")?;
        count += 1;
    }
    archive.map_or(Ok(()), crate::mechanism::timeslice::archive::ArchiveSink::finish)?;
    let tally = inspector.tally();
    Ok(format!(
        "{count} timeslices taken, {} microslices looked at, {} faults\n",
        tally.microslices,
        tally.faults()
    ))
}
