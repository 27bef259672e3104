//! Does the steps of a drain in the directory of a store, beside the process's other work.
//!
//! # Model
//! ```text
//!   begin --> queue --> threads, each with a step --> ends --> poll
//! ```
//! Nobody waits: `begin` notes a step, and the signal is raised when an end can be polled.
//!
//! # Not here
//! Which step comes when (`proto::staging::StoreDrain`).

mod attributes;
mod bodies;
mod copy;
mod crew;
mod place;
mod steps;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use clearway_proto::staging::{InodeId, StepEnd, StoreTask};
use clearway_runtime::wake_signal::WakeSignal;
use rustix::fs::OFlags;
use rustix::io::Errno;

pub(crate) use self::place::OBJECTS_NAME;

use self::crew::Crew;
use self::place::{StorePlace, look, object_name};
use crate::FsError;

/// What a worker works on, and how.
#[derive(Clone, Debug)]
pub(crate) struct StoreOptions {
    /// The directory of the store.
    pub(crate) store: PathBuf,
    /// The directory of the log.
    pub(crate) log: PathBuf,
    /// Steps that are done at a time.
    pub(crate) steps: usize,
}

impl StoreOptions {
    /// Creates the options of a worker with the usual bounds.
    pub(crate) fn new(store: PathBuf, log: PathBuf) -> Self {
        Self { store, log, steps: STEPS }
    }
}

/// Steps that are done at a time.
const STEPS: usize = 8;

/// Does steps in a store.
pub(crate) struct StoreWorker {
    crew: Crew,
    place: Arc<StorePlace>,
}

impl StoreWorker {
    /// Starts a worker; `signal` is raised when an end can be polled.
    ///
    /// # Errors
    /// The system has no room for its threads.
    pub(crate) fn new(options: StoreOptions, signal: Arc<WakeSignal>) -> Result<Self, FsError> {
        let place = Arc::new(StorePlace::new(&options.store));
        let crew = Crew::new(&options, signal).map_err(FsError::system("start a thread"))?;
        Ok(Self { crew, place })
    }

    /// Begins a step. Never waits.
    pub(crate) fn begin(&mut self, task: StoreTask) {
        self.crew.begin(task);
    }

    /// Returns the number of a task that ended, and how.
    pub(crate) fn poll(&mut self) -> Option<(u64, StepEnd)> {
        self.crew.poll()
    }

    /// Returns what opens objects for readers.
    pub(crate) fn reader(&self) -> StoreReader {
        StoreReader(Arc::clone(&self.place))
    }

    /// Ends the worker; what is under way is done or not.
    pub(crate) fn close(self) {
        self.crew.close();
    }
}

/// Opens objects of a store for readers. Its calls wait for the store, so they are made without any
/// lock.
#[derive(Clone)]
pub(crate) struct StoreReader(Arc<StorePlace>);

impl StoreReader {
    /// Opens the object of a file, to be read.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn open_object(&self, inode: InodeId) -> io::Result<File> {
        let store = self.0.open()?;
        let object = object_name(inode);
        let found = look(&store.objects, object.as_bytes())?.ok_or(Errno::NOENT)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOATIME;
        Ok(copy::open_as_owner(&store, &object, &found, flags)?.into())
    }
}
