//! Owns the log of a mount: opens it, lets requests change it, and has a thread that drives it.
//!
//! # Model
//! ```text
//!   request --lock, change, unlock--> answer at once, or later when the change is durable
//!   thread  --wait for the disk--> lock, step the log, unlock --> send the answers that are due
//! ```
//! What has to wait is kept, and answered by the thread that finds it durable. The lock is held for
//! the time of a change of the tree, and while the log hands a group to the threads of the disk.
//!
//! One thread at a time leads: it does short operations of the disk itself until what is awaited is
//! durable, since the changes of threads would take longer than they do. The thread of a request of
//! the kernel leads where no other does, and the thread of the log otherwise. So a disk that hangs
//! takes at most one of the threads that take requests.
//!
//! # Invariants
//! I1. No file of the log is read, written or synced under the lock.
//! I2. Answers are sent without the lock.
//! I3. A leader leaves no operation to the threads of the disk without waking them.

mod core;
mod draining;
mod due;
mod life;
mod local_wire;
mod parked;
mod sentence_limit;
mod store_space;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clearway_proto::base::{Bytes, LocalNs, Nanos};
use clearway_proto::staging::{
    LogCommand, LogConfig, LogEvent, LogId, LogOrigin, RecoveryReport, StagingLog, WallNs,
};
use clearway_proto::wire::{Driver, RegionId, Wire};
use clearway_runtime::clock;
use clearway_runtime::files::{FileConfig, FileWire, TargetId, TargetRunner};
use clearway_runtime::waiting::{REST_MAX, Rest, Wake};
use clearway_runtime::wake_signal::WakeSignal;
use rustix::io::Errno;

pub(crate) use self::core::{Answer, CallStamp, Core, CoreCounts, Held, OrphanPolicy, errno_of};
pub(crate) use self::draining::DrainCondition;
use self::local_wire::LocalWire;
pub(crate) use self::parked::{ChangeSource, Shortage};
use crate::FsError;
use crate::arena::Arena;
use crate::backing::StoreReads;
use crate::log_directory::{LogDirectory, LogSizes};
use crate::store::{StoreOptions, StoreReader, StoreWorker};

/// Bytes of bodies in a group: the longest that there is, so that one sync covers the most.
const BODIES_MAX: Bytes = Bytes(4 << 20);
/// Bytes of groups between snapshots: recovery reads as many, a quarter of a second of a common disk.
const SNAPSHOT_EVERY: Bytes = Bytes(256 << 20);
/// How long changes that nobody waits for may wait for others. The thread of the log looks after at
/// most `REST_MAX`.
const LINGER: Nanos = Nanos::from_millis(10);
/// All files of the log are on one device.
const DISK: TargetId = TargetId(0);
/// How often the log is given the time of day: adjustments of the clock are slower than this.
const CLOCK_EVERY: Nanos = Nanos::from_secs(10);

/// How many times in a row a leader makes durable what others await: to give the log to another
/// thread takes longer than a sync of a fast disk.
const LEAD_ROUNDS: u32 = 1000;

/// Receives sentences for an operator.
pub type Reporter = Arc<dyn Fn(&str) + Send + Sync>;

/// What requests and the thread of the log share.
pub(crate) struct Engine {
    core: Mutex<Core>,
    signal: Arc<WakeSignal>,
    /// Does operations of the disk, for a leader.
    runner: TargetRunner,
    pub(crate) arena: Arc<Arena>,
    /// The segments, for readers.
    pub(crate) segments: Vec<File>,
    /// Inodes that there can be.
    pub(crate) inodes_max: u64,
    pub(crate) bodies_read: Mutex<crate::bytes::BodyCache>,
    /// Bytes that readers were given.
    pub(crate) bytes_read: AtomicU64,
    /// Opens objects of the store, once there is a drain.
    pub(crate) reader: OnceLock<StoreReader>,
    pub(crate) store_reads: StoreReads,
    /// Wakes the thread of the drain for what its worker ended, and at the end.
    drain_signal: Arc<WakeSignal>,
    /// Wakes it for news of the log, of which there can be many.
    drain_news: WakeSignal,
    is_drain_over: AtomicBool,
    drain_thread: Mutex<Option<JoinHandle<()>>>,
    /// Rounds of the drain.
    progress: Mutex<u64>,
    progressed: Condvar,
    report: Reporter,
    is_over: Mutex<bool>,
    over: Condvar,
    /// Locked until the log is closed.
    directory: Mutex<Option<LogDirectory>>,
}

/// Returns the time of day.
pub(crate) fn wall_now() -> WallNs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    WallNs(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Draws a name for a new log.
fn draw_log_id() -> Result<LogId, FsError> {
    let mut bytes = [0; 16];
    let source = std::path::Path::new("/dev/urandom");
    let read =
        File::open(source).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes));
    read.map_err(FsError::at("cannot read", source))?;
    Ok(LogId(u128::from_ne_bytes(bytes)))
}

/// Separates what a change lacks from its outcome.
fn without_shortage<T>(attempted: Result<T, Held>) -> Result<Result<T, Errno>, Shortage> {
    match attempted {
        Ok(made) => Ok(Ok(made)),
        Err(Held::Errno(errno)) => Ok(Err(errno)),
        Err(Held::Lacks(shortage)) => Err(shortage),
    }
}

impl Engine {
    /// Opens the log in `directory`, and starts its thread. It keeps up to `memory` bytes of writes.
    ///
    /// # Errors
    /// [`FsError`].
    pub(crate) fn open(
        directory: LogDirectory,
        sizes: LogSizes,
        memory: u64,
        orphans: OrphanPolicy,
        report: Reporter,
    ) -> Result<(Arc<Self>, JoinHandle<()>), FsError> {
        let signal = WakeSignal::new().map_err(FsError::system("make an event counter"))?;
        let signal = Arc::new(signal);
        let mut wire = FileWire::new(LocalWire::new(Arc::clone(&signal)), FileConfig::default())?;
        let memory_missing = |_| FsError::Option("there is no memory for the log".into());
        let scratch = wire.register(Bytes(LogConfig::SCRATCH)).map_err(memory_missing)?;
        let arena = Arc::new(Arena::new(memory as usize));
        let adopted = Arc::clone(&arena);
        let region = wire.adopt(adopted).map_err(memory_missing)?;
        let config = log_config(&mut wire, &directory, sizes, scratch)?;
        let segments = directory
            .segments
            .files
            .iter()
            .map(|file| directory.reopen(file))
            .collect::<Result<_, _>>()?;
        let mut driver = Driver::boot(StagingLog::new(config), wire.now(), 0);
        let recovered = opened(&mut driver, &mut wire);
        let found = recovered.map_err(|why| FsError::Log { path: directory.path.clone(), why })?;
        report_recovery(&found, &report);
        // The log's files were opened there.
        let runner = wire.runner(DISK).ok_or(FsError::Option("the log has no files".into()))?;
        let core = Core::new(driver, wire, Arc::clone(&arena), region, memory, orphans);
        let engine = Arc::new(Self {
            core: Mutex::new(core),
            signal,
            runner,
            arena,
            segments,
            inodes_max: u64::from(sizes.inodes),
            bodies_read: Mutex::default(),
            bytes_read: AtomicU64::new(0),
            reader: OnceLock::new(),
            store_reads: StoreReads::default(),
            drain_signal: Arc::new(
                WakeSignal::new().map_err(FsError::system("make an event counter"))?,
            ),
            drain_news: WakeSignal::new().map_err(FsError::system("make an event counter"))?,
            is_drain_over: AtomicBool::new(false),
            drain_thread: Mutex::new(None),
            progress: Mutex::new(0),
            progressed: Condvar::new(),
            report,
            is_over: Mutex::new(false),
            over: Condvar::new(),
            directory: Mutex::new(Some(directory)),
        });
        engine.lock().forget_orphans();
        let shared = Arc::clone(&engine);
        let thread =
            std::thread::Builder::new().name("staging-log".into()).spawn(move || shared.run());
        let thread = thread.map_err(FsError::system("start a thread"))?;
        Ok((engine, thread))
    }

    /// Begins to drain the log into a store.
    ///
    /// # Errors
    /// The system has no room for a thread.
    pub(crate) fn drain_into(self: &Arc<Self>, options: StoreOptions) -> Result<(), FsError> {
        self.drain_by(StoreWorker::new(options, Arc::clone(&self.drain_signal))?);
        let shared = Arc::clone(self);
        let thread = std::thread::Builder::new().name("staging-drain".into());
        let thread = thread.spawn(move || shared.run_drain());
        let thread = thread.map_err(FsError::system("start a thread"))?;
        *self.drain_thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    /// Takes the lock.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what `look` finds.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut Core) -> T) -> T {
        look(&mut self.lock())
    }

    /// Makes a change of `source` by `attempt`, and sends what it returns; later, if the log cannot
    /// take it now.
    pub(crate) fn change<T: Send + 'static>(
        &self,
        source: ChangeSource,
        answer: Answer<T>,
        mut attempt: impl FnMut(&mut Core) -> Result<T, Held> + Send + 'static,
    ) {
        let mut core = self.lock();
        let mut shortage = None;
        if !core.must_wait(source) {
            match without_shortage(attempt(&mut core)) {
                Ok(outcome) => {
                    let has_operations = core.driver.has_operations();
                    self.send(core);
                    answer(outcome);
                    if has_operations {
                        // Not before the answer: to wake a thread of the disk takes longer.
                        let mut core = self.lock();
                        core.pump();
                        self.send(core);
                    }
                    return;
                }
                Err(lacks) => shortage = Some(lacks),
            }
        }
        let mut answer = Some(answer);
        let change = Box::new(move |core: &mut Core| {
            let outcome = without_shortage(attempt(core))?;
            if let Some(answer) = answer.take() {
                core.push_due(Box::new(move || answer(outcome)));
            }
            Ok(())
        });
        core.park(source, shortage, change);
        drop(core);
        self.signal.raise();
    }

    /// Lets `request` note what it waits for, and sends what is due already.
    pub(crate) fn wait(&self, request: impl FnOnce(&mut Core)) {
        let mut core = self.lock();
        request(&mut core);
        core.step();
        self.send(core);
    }

    /// Does the same, and leads until that is durable.
    pub(crate) fn wait_leading(&self, request: impl FnOnce(&mut Core)) {
        let mut core = self.lock();
        request(&mut core);
        self.lead(core);
    }

    /// Steps the log until all that is awaited is durable, or only threads of the disk can bring it
    /// nearer, or [`LEAD_ROUNDS`] are over; once if another thread leads. Sends what is due. Returns
    /// when to step again.
    fn lead<'a>(&'a self, mut core: MutexGuard<'a, Core>) -> Option<LocalNs> {
        let Some(mut awaited) = core.begin_lead() else {
            let next = core.step();
            self.send(core);
            return next;
        };
        let (mut is_over, mut rounds) = (false, 0);
        loop {
            let next = core.step();
            if core.has_durable(awaited) {
                rounds += 1;
                match core.last_awaited().filter(|_| rounds < LEAD_ROUNDS) {
                    Some(later) => awaited = later,
                    None => is_over = true,
                }
            }
            if is_over {
                core.end_lead();
            }
            self.send(core);
            if is_over {
                return next;
            }
            // Not under the lock: a disk may hang. Without an operation here the threads of the disk
            // have what is left.
            is_over = self.runner.work() == 0;
            core = self.lock();
        }
    }

    /// Lets the lock go, and sends sentences and answers.
    fn send(&self, mut core: MutexGuard<'_, Core>) {
        let (due, sentences) = (core.take_due(), core.take_sentences());
        let has_drain_news = core.take_drain_news();
        let is_finished = core.is_finished;
        drop(core);
        if is_finished {
            // The thread of the log ends, also if another one found it finished.
            self.signal.raise();
        }
        if has_drain_news {
            self.drain_news.raise();
        }
        self.report_all(&sentences);
        due.into_iter().for_each(|answer| answer());
    }

    /// Reports sentences. An answer must not overtake its reason, which the caller may look for at
    /// once.
    fn report_all(&self, sentences: &[String]) {
        sentences.iter().for_each(|sentence| (self.report)(sentence));
    }

    /// Reports a sentence. Not under the lock.
    pub(crate) fn say(&self, sentence: &str) {
        (self.report)(sentence);
    }

    /// Drives the log until it is closed.
    fn run(&self) {
        let descriptors = self.lock().wire.wake_descriptors();
        let Ok(Some(descriptors)) = descriptors else {
            (self.report)("the system gives no descriptor to wait on; the mount stops");
            return self.end();
        };
        let mut clock_at = clock::now();
        loop {
            let mut core = self.lock();
            if clock::now().since(clock_at) > CLOCK_EVERY {
                clock_at = clock::now();
                core.command(LogCommand::SetClock(wall_now()));
            }
            let next = self.lead(core);
            let (rest, is_finished) = self.look(|core| (core.rest(), core.is_finished));
            if is_finished {
                return self.end();
            }
            if rest != Rest::Again {
                let now = clock::now();
                let timeout = next.map_or(REST_MAX, |next| next.since(now)).min(REST_MAX);
                descriptors.sleep(timeout, &[]);
            }
        }
    }

    fn end(&self) {
        *self.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.over.notify_all();
    }

    /// Has the thread of the log look at changes that wait.
    pub(crate) fn wake(&self) {
        self.signal.raise();
    }

    /// Makes everything durable, and ends the thread of the log. Waits for both; a log that is stopped
    /// ends at once.
    pub(crate) fn close(&self) {
        self.is_drain_over.store(true, Ordering::Release);
        self.drain_signal.raise();
        let drain = self.drain_thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(drain) = drain {
            let _ = drain.join();
        }
        {
            let mut core = self.lock();
            if core.stopped().is_some() {
                core.is_finished = true;
            } else {
                core.command(LogCommand::Finish);
            }
        }
        self.signal.raise();
        let over = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = self.over.wait_while(over, |is_over| !*is_over);
        drop(ended);
        // Another process, or this one, may open it from now on.
        drop(self.directory.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Returns the configuration of the log in `directory`, with its files open on `wire`.
fn log_config(
    wire: &mut FileWire<LocalWire>,
    directory: &LogDirectory,
    sizes: LogSizes,
    scratch: RegionId,
) -> Result<LogConfig, FsError> {
    let mut open = |file: &File| Ok::<_, FsError>(wire.open(directory.reopen(file)?, DISK)?);
    let origin =
        if directory.is_new { LogOrigin::New(draw_log_id()?) } else { LogOrigin::Existing };
    let [one, other] = &directory.snapshots;
    let [superblock, one, other] = [open(&directory.superblock)?, open(one)?, open(other)?];
    let mut segments = Vec::new();
    for (number, file) in (0..).zip(&directory.segments.files) {
        let direct = directory.open_direct(number);
        segments.push(wire.open_combining(directory.reopen(file)?, direct, DISK)?);
    }
    Ok(LogConfig {
        origin,
        superblock,
        snapshots: [one, other],
        snapshot_size: Bytes(LogDirectory::snapshot_bytes(sizes.inodes)),
        segments,
        segment_size: Bytes(directory.segments.size),
        bodies_max: BODIES_MAX,
        scratch,
        inodes_max: sizes.inodes,
        snapshot_every: SNAPSHOT_EVERY,
        linger: LINGER,
        wall_at_zero: WallNs(wall_now().0.saturating_sub(clock::now().0)),
    })
}

/// Steps until the log is open or refused.
fn opened(
    driver: &mut Driver<StagingLog>,
    wire: &mut FileWire<LocalWire>,
) -> Result<RecoveryReport, clearway_proto::staging::LogError> {
    let mut outcome = None;
    let descriptors = wire.wake_descriptors().ok().flatten();
    loop {
        let progress = driver.step(wire, &mut |event| match event {
            LogEvent::Opened(report) => outcome = Some(Ok(report)),
            LogEvent::NotOpened(why) => outcome = Some(Err(why)),
            _ => {}
        });
        if let Some(outcome) = outcome.take() {
            return outcome;
        }
        // A step that had its share of rounds asks for the next one at once.
        let timeout = progress.next.map_or(REST_MAX, |next| next.since(wire.now())).min(REST_MAX);
        if wire.rest() != Rest::Again && timeout > Nanos::ZERO {
            match &descriptors {
                Some(descriptors) => {
                    descriptors.sleep(timeout, &[]);
                }
                None => std::thread::yield_now(),
            }
        }
    }
}

/// Reports damage that recovery found.
fn report_recovery(found: &RecoveryReport, report: &Reporter) {
    if found.has_torn_tail {
        report(
            "the last group of the log was not written whole, and is dropped; no call acknowledged it",
        );
    }
    if found.superblocks_damaged > 0 {
        report("a copy of the superblock of the log was damaged; it is written again");
    }
    if found.snapshots_damaged > 0 {
        report("a snapshot of the log was not whole; the groups that it covers were read instead");
    }
    if found.has_unknown_tail {
        report(
            "the bytes behind the last group of the log are no group: a crash left them, or a last group was damaged",
        );
    }
    for file in &found.damaged {
        let name = match &file.path {
            Some(path) => String::from_utf8_lossy(path).into_owned(),
            None => format!("the file without a name with inode {}", file.inode.0),
        };
        report(&format!("{name} has damaged bytes in the log; reads of them fail"));
    }
}
