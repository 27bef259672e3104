//! The interface of a store to the engine of a mount: a worker for steps, and a reader for bytes.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use clearway_proto::base::BitsPerSec;
use clearway_proto::staging::{InodeId, StepEnd, StoreTask};
use clearway_runtime::wake_signal::WakeSignal;
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use super::copy::open_as_owner;
use super::drain_pace::{DrainAllowance, DrainHeld};
use super::owner::StoreOwner;
use super::place::{StorePlace, StoreUsage, file_type, look, object_name};
use super::supervisor::{Supervisor, SupervisorDesk};
use crate::FsError;

/// Steps that are done at a time.
const STEPS: usize = 8;
/// How long a step may make no progress: a disk that is busy with other writers needs some seconds
/// for a sync.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What a worker works on, and how.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The directory of the store.
    pub store: PathBuf,
    /// The directory of the log.
    pub log: PathBuf,
    /// Steps that are done at a time.
    pub steps: usize,
    /// How long a step may make no progress.
    pub timeout: Duration,
    /// The program that calls [`super::serve`].
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The log whose mark the store has. Steps change nothing in a directory with another mark, or
    /// without one. `None`: the store has no mark.
    pub owner: Option<StoreOwner>,
    /// The rate of copies; none without a bound.
    pub rate: Option<BitsPerSec>,
    /// A rate of copies that changes; the lower of both counts.
    pub allowance: Option<Arc<dyn DrainAllowance>>,
}

impl StoreOptions {
    /// Creates the options of a worker with the usual bounds, in a process of this program.
    pub fn new(store: PathBuf, log: PathBuf) -> Self {
        // The child may be started from another directory.
        let [store, log] = [store, log].map(|path| std::path::absolute(&path).unwrap_or(path));
        // Unlike its path, this is the same program after an upgrade too.
        let program = "/proc/self/exe".into();
        let arguments = ARGUMENTS.iter().map(OsString::from).collect();
        let (steps, timeout, owner) = (STEPS, TIMEOUT, None);
        Self { store, log, steps, timeout, program, arguments, owner, rate: None, allowance: None }
    }
}

/// The arguments by which this program is a child.
#[cfg(not(test))]
const ARGUMENTS: &[&str] = &["store-worker"];
#[cfg(test)]
const ARGUMENTS: &[&str] = &["store::tests::serve__as_a_child", "--exact"];

/// Does steps in a store.
pub struct StoreWorker {
    desk: Arc<SupervisorDesk>,
    thread: JoinHandle<()>,
    reader: StoreReader,
    store: PathBuf,
    allowance: Option<Arc<dyn DrainAllowance>>,
}

impl StoreWorker {
    /// Starts a worker; `signal` is raised when an end can be polled.
    ///
    /// # Errors
    /// The system has no room for its thread.
    pub fn new(options: StoreOptions, signal: Arc<WakeSignal>) -> Result<Self, FsError> {
        let reader = StoreReader::new(&options.store, options.owner);
        let (store, allowance) = (options.store.clone(), options.allowance.clone());
        let desk = SupervisorDesk::new(signal).map_err(FsError::system("make an event counter"))?;
        let desk = Arc::new(desk);
        let supervisor = Supervisor::new(options, Arc::clone(&desk));
        let thread = std::thread::Builder::new().name("staging-store".into());
        let thread = thread.spawn(move || supervisor.run());
        let thread = thread.map_err(FsError::system("start a thread"))?;
        Ok(Self { desk, thread, reader, store, allowance })
    }

    /// Begins a step. Never waits.
    pub fn begin(&mut self, task: StoreTask) {
        self.desk.begin(task);
    }

    /// Returns the number of a task that ended, and how.
    pub fn poll(&mut self) -> Option<(u64, StepEnd)> {
        self.desk.poll()
    }

    /// Returns the next line that a child wrote to its standard error; usually it is a bug.
    pub fn take_line(&mut self) -> Option<String> {
        self.desk.take_line()
    }

    /// Returns the directory of the store.
    pub fn store(&self) -> &Path {
        &self.store
    }

    /// Returns the process that does steps now, or does not end.
    pub fn process(&self) -> Option<u32> {
        self.desk.process()
    }

    /// Returns for how long and how far the agent of the node held copies back, if it did.
    pub fn held_back(&self) -> Option<DrainHeld> {
        self.allowance.as_ref().and_then(|allowance| allowance.held_back())
    }

    /// Returns what opens objects for readers.
    pub fn reader(&self) -> StoreReader {
        self.reader.clone()
    }

    /// Ends the worker; what is under way is done or not. Waits some seconds at most.
    pub fn close(self) {
        self.desk.close();
        let _ = self.thread.join();
    }
}

/// Opens objects of a store for readers. Its calls wait for the store, so they are made without any
/// lock.
#[derive(Clone)]
pub struct StoreReader(Arc<StorePlace>);

impl StoreReader {
    /// Creates one for the store in a directory, which the log `owner` is drained into.
    pub fn new(store: &Path, owner: Option<StoreOwner>) -> Self {
        Self(Arc::new(StorePlace::new(store, owner, StoreUsage::Read)))
    }

    /// Opens the object of a file, to be read.
    ///
    /// # Errors
    /// The system's.
    pub fn open_object(&self, inode: InodeId) -> io::Result<File> {
        let store = self.0.open()?;
        let object = object_name(inode);
        let found = look(&store.objects, object.as_bytes())?.ok_or(Errno::NOENT)?;
        // A pipe would wait for a writer.
        if file_type(&found) != FileType::RegularFile {
            return Err(Errno::INVAL.into());
        }
        Ok(open_as_owner(&store, &object, &found, OFlags::RDONLY)?.into())
    }
}
