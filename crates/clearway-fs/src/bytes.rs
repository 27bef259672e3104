//! Bytes of files: where they lie, and how a reader gets them.
//!
//! # Model
//! A read first makes a *plan* under the lock: stretches that are zeros, in memory, in the log or in
//! the store. Then
//! it fills its buffer without the lock. A body of the log is read as a whole and believed only with
//! its digest; bodies that were read are kept for a while, because a reader comes for the next part
//! soon. Where a body changed its place meanwhile the plan is made again: the log takes no care of
//! readers when it uses a segment again.
//!
//! # Invariants
//! I1. No byte of a body is given away whose digest is wrong.

use std::collections::VecDeque;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use clearway_proto::base::xxh3;
use clearway_proto::staging::{BodyCondition, BodyId, ByteSource, InodeId, TreeChange};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::arena::Loan;
use crate::engine::{Core, Engine, Held};

/// Bytes of bodies that were read and are kept.
const KEPT_BYTES: usize = 32 << 20;
/// Plans of one read: a body that has another digest each time is damaged.
const PLANS_MAX: usize = 3;

/// Where a stretch of a read comes from.
enum PartSource {
    Zeros,
    Memory { loan: Arc<Loan>, skip: usize },
    Disk { body: BodyId, segment: u32, at: u64, length: usize, digest: u64, skip: usize },
    Store { inode: InodeId, drained: u64, at: u64 },
    Damaged,
}

pub(crate) struct ReadPart {
    length: usize,
    source: PartSource,
}

/// Bodies that were read lately.
#[derive(Default)]
pub(crate) struct BodyCache {
    kept: VecDeque<(BodyId, Arc<Vec<u8>>)>,
    bytes: usize,
}

impl BodyCache {
    fn get(&self, body: BodyId) -> Option<Arc<Vec<u8>>> {
        self.kept.iter().find(|(kept, _)| *kept == body).map(|(_, bytes)| Arc::clone(bytes))
    }

    fn keep(&mut self, body: BodyId, bytes: &Arc<Vec<u8>>) {
        self.bytes += bytes.len();
        self.kept.push_back((body, Arc::clone(bytes)));
        while self.bytes > KEPT_BYTES
            && let Some((_, dropped)) = self.kept.pop_front()
        {
            self.bytes -= dropped.len();
        }
    }
}

impl Core {
    /// Says where up to `length` bytes from `offset` on lie.
    pub(crate) fn plan_read(
        &mut self,
        inode: InodeId,
        offset: u64,
        length: u64,
    ) -> Result<Vec<ReadPart>, Errno> {
        let (sources, drained) = match self.tree().content(inode) {
            Some(content) => (content.sources(offset, length), content.drained()),
            None => return Err(Errno::INVAL),
        };
        let mut at = offset;
        let parts = sources.into_iter().map(|(length, source)| {
            let source = match source {
                ByteSource::Zeros => PartSource::Zeros,
                ByteSource::Backing => PartSource::Store { inode, drained, at },
                ByteSource::Log { body, skip } => self.plan_body(body, skip),
            };
            at += length;
            ReadPart { length: length as usize, source }
        });
        Ok(parts.collect())
    }

    /// Returns whether some of these bytes are in the store alone.
    pub(crate) fn needs_store(&mut self, inode: InodeId, offset: u64, length: u64) -> bool {
        let content = self.tree().content(inode).filter(|content| content.drained() > 0);
        content.is_some_and(|content| {
            let sources = content.sources(offset, length);
            sources.iter().any(|(_, source)| *source == ByteSource::Backing)
        })
    }

    fn plan_body(&mut self, body: BodyId, skip: u32) -> PartSource {
        let (body, skip) = self.state().readable(body, skip);
        let skip = skip as usize;
        if let Some(loan) = self.body_in_memory(body) {
            return PartSource::Memory { loan: Arc::clone(loan), skip };
        }
        match self.state().body(body) {
            Some(place) if place.condition == BodyCondition::Sound => PartSource::Disk {
                body,
                segment: place.place.segment,
                at: place.place.offset(),
                length: place.record.length as usize,
                digest: place.record.digest,
                skip,
            },
            _ => PartSource::Damaged,
        }
    }

    /// Makes a file `size` bytes long.
    pub(crate) fn truncate(&mut self, inode: InodeId, size: u64) -> Result<(), Held> {
        self.append(TreeChange::Truncate { inode, size }, &[inode])
    }

    /// Makes a file at least `end` bytes long. Bytes are not reserved: a write takes new space of a log
    /// in any case, so the space only has to be there now.
    pub(crate) fn allocate(&mut self, inode: InodeId, end: u64, length: u64) -> Result<(), Held> {
        let size = self.tree().content(inode).ok_or(Errno::BADF)?.size();
        let space = self.space();
        if length > space.free.0 && (length > space.total.0 || !self.may_get_space()) {
            return Err(Held::Errno(Errno::NOSPC));
        }
        if end > size { self.truncate(inode, end) } else { Ok(()) }
    }

    /// Returns where the next byte that was written, or the next hole, is from `offset` on.
    pub(crate) fn seek(
        &mut self,
        inode: InodeId,
        offset: u64,
        wanted: SeekTarget,
    ) -> Result<u64, Errno> {
        let content = self.tree().content(inode).ok_or(Errno::INVAL)?;
        let size = content.size();
        if offset >= size {
            return Err(Errno::NXIO);
        }
        let mut at = offset;
        for (length, source) in content.sources(offset, size - offset) {
            let found =
                if source == ByteSource::Zeros { SeekTarget::Hole } else { SeekTarget::Written };
            if found == wanted {
                return Ok(at);
            }
            at += length;
        }
        match wanted {
            // There is a hole behind every file.
            SeekTarget::Hole => Ok(size),
            SeekTarget::Written => Err(Errno::NXIO),
        }
    }
}

/// What a seek looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SeekTarget {
    Written,
    Hole,
}

impl Engine {
    /// Gives the bytes from `offset` on, at most `length` of them, to `use_them`.
    pub(crate) fn read(
        &self,
        inode: InodeId,
        offset: u64,
        length: u32,
        use_them: impl FnOnce(Result<&[u8], Errno>),
    ) {
        for _ in 0..PLANS_MAX {
            let parts = match self.look(|core| core.plan_read(inode, offset, u64::from(length))) {
                Ok(parts) => parts,
                Err(why) => return use_them(Err(why)),
            };
            // The usual case: one write, one read.
            if let [ReadPart { length, source: PartSource::Memory { loan, skip } }] = &parts[..] {
                let bytes = loan.bytes().get(*skip..*skip + *length);
                self.count_read(*length);
                return use_them(bytes.ok_or(Errno::IO));
            }
            match self.fill(&parts) {
                Ok(Some(bytes)) => {
                    self.count_read(bytes.len());
                    return use_them(Ok(&bytes));
                }
                Ok(None) => {}
                Err(why) => return use_them(Err(why)),
            }
        }
        if self.look(|core| core.needs_store(inode, offset, u64::from(length))) {
            self.say_unreadable(inode, "its object is shorter than it was");
        }
        use_them(Err(Errno::IO));
    }

    fn count_read(&self, length: usize) {
        self.bytes_read.fetch_add(length as u64, Ordering::Relaxed);
    }

    /// Returns the bytes of `parts`; `None` when a body is not there any more.
    pub(crate) fn fill(&self, parts: &[ReadPart]) -> Result<Option<Vec<u8>>, Errno> {
        let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.length).sum());
        for ReadPart { length, source } in parts {
            match source {
                PartSource::Zeros => bytes.resize(bytes.len() + length, 0),
                PartSource::Memory { loan, skip } => {
                    bytes.extend(loan.bytes().get(*skip..skip + length).ok_or(Errno::IO)?);
                }
                PartSource::Disk { body, segment, at, length: whole, digest, skip } => {
                    let Some(found) = self.body(*body, *segment, *at, *whole, *digest)? else {
                        return Ok(None);
                    };
                    bytes.extend(found.get(*skip..skip + length).ok_or(Errno::IO)?);
                }
                PartSource::Store { inode, drained, at } => {
                    let begin = bytes.len();
                    bytes.resize(begin + length, 0);
                    let rest = bytes.get_mut(begin..).unwrap_or_default();
                    match self.read_store(*inode, *drained, *at, rest) {
                        Ok(true) => {}
                        // It was cut meanwhile, and the next plan knows it, or somebody else cut it.
                        Ok(false) => return Ok(None),
                        Err(why) => {
                            self.say_unreadable(*inode, &why.to_string());
                            return Err(Errno::IO);
                        }
                    }
                }
                PartSource::Damaged => return Err(Errno::IO),
            }
        }
        Ok(Some(bytes))
    }

    /// Reads a body; `None` when other bytes are in its place.
    fn body(
        &self,
        body: BodyId,
        segment: u32,
        at: u64,
        length: usize,
        digest: u64,
    ) -> Result<Option<Arc<Vec<u8>>>, Errno> {
        let cache = || self.bodies_read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = cache().get(body) {
            return Ok(Some(bytes));
        }
        let file = self.segments.get(segment as usize).ok_or(Errno::IO)?;
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, at).map_err(|_| Errno::IO)?;
        if xxh3(&bytes) != digest {
            return Ok(None);
        }
        let bytes = Arc::new(bytes);
        cache().keep(body, &bytes);
        Ok(Some(bytes))
    }
}
