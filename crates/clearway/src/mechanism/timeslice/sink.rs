//! Where timeslices go: nowhere after a look at all of them, into archives, or to a consumer.
//!
//! # Invariants
//! I1. What a sink has taken is where it belongs: with the kernel at least, on the disk when it is over.
//! I2. An archive has its name once those of all builders are whole: a run that fails leaves none that would be in its way again.

use std::path::Path;

use anyhow::{Result, bail};
use clearway_proto::archive::{ArchiveKind, Compression, Finding, Inspector, Versions};

use super::handover::Giver;
use super::outlet::Built;
use super::words::{Account, Shape, SinkKind};
use crate::mechanism::timeslice::archive::{Form, Sink, Unfinished, filled};

/// Stands for the number of a builder, each of which has a sink of its own.
pub(crate) const BUILDER: &str = "%b";

/// A sink at work; it may wait.
pub(super) trait Taker: Send {
    /// Takes one timeslice.
    ///
    /// # Errors
    /// One sentence: nothing more can be taken, and why.
    fn take(&mut self, built: &Built) -> Result<()>;

    /// There are no more.
    ///
    /// # Errors
    /// As above.
    fn finish(&mut self) -> Result<Account>;
}

/// The sink of `kind` of the builder at `place`, and the archive that it writes, if it writes one, to be kept when all is over.
///
/// # Errors
/// When it cannot be opened.
pub(super) fn open(kind: &SinkKind, place: u64, shape: Shape) -> Result<(Box<dyn Taker>, Option<Unfinished>)> {
    let taker = match kind {
        SinkKind::Discard => bail!("what is discarded unread needs no sink; this is a defect of the program"),
        SinkKind::Check => {
            Box::new(Check { shape, inspector: Inspector::default(), account: Account::default() }) as Box<dyn Taker>
        }
        SinkKind::Consumer(template) => Box::new(Giver::open(filled(template, BUILDER, place), shape)?),
        SinkKind::Archives(template) | SinkKind::Compressed(template) => {
            let path = filled(template, BUILDER, place);
            let is_compressed = matches!(kind, SinkKind::Compressed(_));
            let mut sink = new_archive(&path, if is_compressed { Compression::Zstd } else { Compression::None })?;
            let unfinished = sink.detach();
            let account = Account { written: vec![path.display().to_string()], ..Account::default() };
            return Ok((Box::new(Archive { shape, sink: Some(sink), account }), unfinished));
        }
    };
    Ok((taker, None))
}

/// A new archive of timeslices at `path`.
///
/// # Errors
/// When there is a file already, or none can be made.
pub(super) fn new_archive(path: &Path, compression: Compression) -> Result<Sink> {
    Sink::create(path, ArchiveKind::Timeslices, Form { versions: Versions::NEWEST, compression })
}

/// Adds `built` to `account`.
fn count(account: &mut Account, built: &Built, is_incomplete: bool) {
    account.take(built.timeslice);
    account.incomplete += u64::from(is_incomplete);
}

/// Looks at everything and keeps nothing.
struct Check {
    shape: Shape,
    inspector: Inspector,
    account: Account,
}

impl Taker for Check {
    fn take(&mut self, built: &Built) -> Result<()> {
        let (descriptor, components) = built.described(self.shape);
        count(&mut self.account, built, descriptor.flags.is_incomplete());
        self.inspector.look_at(&descriptor, components.into_iter());
        Ok(())
    }

    fn finish(&mut self) -> Result<Account> {
        let tally = self.inspector.tally();
        let mut account = std::mem::take(&mut self.account);
        account.checked = tally.microslices - tally.unchecked;
        let found = Finding::ALL.iter().map(|finding| (finding.sentence().to_owned(), tally.found(*finding).0));
        account.faults = found.filter(|(_, count)| *count > 0).collect();
        Ok(account)
    }
}

/// Writes an archive.
struct Archive {
    shape: Shape,
    /// None when it is closed.
    sink: Option<Sink>,
    account: Account,
}

impl Taker for Archive {
    fn take(&mut self, built: &Built) -> Result<()> {
        let (descriptor, components) = built.described(self.shape);
        count(&mut self.account, built, descriptor.flags.is_incomplete());
        match &mut self.sink {
            Some(sink) => sink.timeslice(&descriptor, components.into_iter()),
            None => bail!("the archive is closed; this is a defect of the program"),
        }
    }

    fn finish(&mut self) -> Result<Account> {
        self.sink.take().map_or(Ok(()), Sink::finish)?;
        Ok(std::mem::take(&mut self.account))
    }
}
