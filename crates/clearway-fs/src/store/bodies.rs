//! Reads bodies (blocks of data with a digest) from the log for a worker.
//!
//! # Invariants
//! I1. No byte of a body with a wrong digest leaves this module.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use clearway_proto::base::xxh3;
use clearway_proto::staging::{BODY_MAX, CopyPiece};
use rustix::io::Errno;

use crate::log_directory::segment_name;

/// The segments of a log, opened when they are wanted, to be read alone.
#[derive(Debug)]
pub(super) struct LogBodies {
    log: PathBuf,
    segments: Mutex<BTreeMap<u32, Arc<File>>>,
}

impl LogBodies {
    pub(super) fn new(log: &Path) -> Self {
        Self { log: log.to_owned(), segments: Mutex::new(BTreeMap::new()) }
    }

    fn segment(&self, number: u32) -> Result<Arc<File>, Errno> {
        let mut segments = self.segments.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = segments.get(&number) {
            return Ok(Arc::clone(file));
        }
        let file = File::open(self.log.join(segment_name(u64::from(number)))).map_err(errno)?;
        Ok(Arc::clone(segments.entry(number).or_insert(Arc::new(file))))
    }

    /// Returns the stretch of a body that a piece names; `body` is room for the whole.
    ///
    /// # Errors
    /// [`Errno::BADMSG`] when other bytes are in its place.
    pub(super) fn read<'a>(
        &self,
        piece: &CopyPiece,
        body: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], Errno> {
        if piece.length > BODY_MAX {
            return Err(Errno::INVAL);
        }
        let segment = self.segment(piece.place.segment)?;
        body.resize(piece.length as usize, 0);
        segment.read_exact_at(body, piece.place.offset()).map_err(errno)?;
        if xxh3(body) != piece.digest {
            return Err(Errno::BADMSG);
        }
        let stretch = (piece.skip as usize).checked_add(piece.bytes as usize);
        let stretch = stretch.and_then(|end| body.get(piece.skip as usize..end));
        stretch.ok_or(Errno::INVAL)
    }
}

/// Returns the number of an error of the system.
pub(super) fn errno(why: std::io::Error) -> Errno {
    Errno::from_io_error(&why).unwrap_or(Errno::IO)
}
