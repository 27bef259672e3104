//! A mount, from its options to its end.
//!
//! # Model
//! ```text
//!   open the log --> recover --> mount --> take requests .. unmounted --> make all durable --> close
//! ```
//! A mount point whose process was killed is left behind by the kernel: every access to it fails. The
//! next mount there takes it away first.
//!
//! # Invariants
//! I1. A log is open in one process.
//! I2. [`Mounted::run`] returns when everything is durable, or the log is stopped.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use clearway_proto::base::{BitsPerSec, Class};
use clearway_proto::staging::{AttributeSet, InodeId, LogShares};
use clearway_runtime::machine_memory::machine_memory;
use rustix::io::Errno;

use crate::FsError;
use crate::classes::ClassRule;
use crate::engine::{Core, Engine, Held, OrphanPolicy};
use crate::kernel::{KernelSession, KernelUnmounter};
use crate::log_directory::{LogDirectory, LogSizes, reserve};
use crate::names::STORE_MARK;
use crate::server::ControlServer;
use crate::store::{
    DrainAllowance, OBJECTS_NAME, StoreOptions, StoreOwner, StoreSharing, is_shared,
};
use crate::stored;

pub use crate::engine::Reporter;
pub use crate::server::StatusReader;

/// Bytes of writes in memory, at least: some of the longest groups.
const MEMORY_MIN: u64 = 16 << 20;

/// Mounts on top of each other that are taken away.
const LEFT_MAX: u32 = 8;

/// How often it is tried to unmount what is busy, and how long after each other.
const BUSY_LOOKS: u32 = 100;
const BUSY_LOOK_EVERY: Duration = Duration::from_millis(20);

/// How long calls go on waiting after a signal asked the mount to end.
const WAITS_GRACE: Duration = Duration::from_secs(5);

/// What to mount, and how.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The log and its store.
    pub log: LogOptions,
    /// The mount point.
    pub directory: PathBuf,
}

/// A log and its store.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// The directory of the log.
    pub log: PathBuf,
    /// The directory of the store.
    pub store: PathBuf,
    /// Whether other logs may have the same store.
    pub sharing: StoreSharing,
    /// The sizes of a log that is made.
    pub sizes: LogSizes,
    /// Bytes of writes that are kept in memory: half of them at most are not durable.
    pub memory: u64,
    /// The class of files that have none; kept in the log.
    pub class: Option<Class>,
    /// Rules of classes, in place of those that the log has.
    pub rules: Vec<ClassRule>,
    /// How long files may take to the store that have no deadline of their own; kept in the log.
    pub deadline: Option<Duration>,
    /// The most urgent class that any file has, whatever its attributes and rules say; none where
    /// nobody limits it.
    pub class_limit: Option<Class>,
    /// How long a step in the store may make no progress.
    pub store_timeout: Duration,
    /// The rate at which bytes go to the store; none without a bound.
    pub drain_rate: Option<BitsPerSec>,
    /// A rate of the drain that changes; the lower of both counts.
    pub drain_allowance: Option<Arc<dyn DrainAllowance>>,
    /// How users share the log; none where one user may take all of it.
    pub shares: Option<LogShares>,
}

/// What a mount is called.
#[derive(Clone, Debug)]
pub(crate) struct MountNames {
    pub(crate) log: PathBuf,
    pub(crate) store: PathBuf,
    pub(crate) directory: PathBuf,
}

/// A mount.
pub struct Mounted {
    engine: Arc<Engine>,
    thread: JoinHandle<()>,
    session: KernelSession,
    control: ControlServer,
}

/// Unmounts a [`Mounted`] from another thread.
#[derive(Clone)]
pub struct Unmounter(Arc<Mutex<KernelUnmounter>>);

impl Unmounter {
    /// Creates it.
    pub(crate) fn new(unmounter: KernelUnmounter) -> Self {
        Self(Arc::new(Mutex::new(unmounter)))
    }

    /// Unmounts; [`Mounted::run`] then comes to its end.
    ///
    /// # Errors
    /// The system's; the mount stays.
    pub fn unmount(&self) -> io::Result<()> {
        self.lock().unmount()
    }

    /// Unmounts because a signal asks for it. Where calls of programs wait for the log or a server,
    /// they have five seconds; then they get errors, so that their programs can end, and
    /// `is_cut_short` is set.
    ///
    /// # Errors
    /// The system's; the mount stays, and calls wait again.
    pub fn unmount_for_signal(&self, is_cut_short: &AtomicBool) -> io::Result<()> {
        let mut unmounter = self.lock();
        match unmounter.unmount() {
            Err(why) if why.kind() == io::ErrorKind::ResourceBusy && unmounter.has_waits() => {}
            outcome => return outcome,
        }
        thread::sleep(WAITS_GRACE);
        // Before the unmount, behind which the mount ends.
        is_cut_short.store(true, Ordering::SeqCst);
        let outcome = unmounter.unmount_impatiently();
        is_cut_short.store(outcome.is_ok(), Ordering::SeqCst);
        outcome
    }

    fn lock(&self) -> MutexGuard<'_, KernelUnmounter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mounted {
    /// Opens the log and mounts it. `reporter` gets sentences for an operator.
    ///
    /// # Errors
    /// [`FsError`]: nothing is mounted.
    pub fn open(options: &MountOptions, reporter: &Reporter) -> Result<Self, FsError> {
        let MountOptions { log: options, directory } = options;
        check_memory(options.memory)?;
        check_mount_point(directory, reporter)?;
        let (engine, thread) = open_log(options, Some(directory), OrphanPolicy::Forget, reporter)?;
        let names = MountNames {
            log: absolute(&options.log),
            store: absolute(&options.store),
            directory: absolute(directory),
        };
        let outcome = ControlServer::open(&engine, names, None).and_then(|control| {
            let source = format!("{}:{}", options.log.display(), options.store.display());
            let session =
                KernelSession::mount(Arc::clone(&engine), directory, control.path(), &source);
            let path = directory.clone();
            Ok((control, session.map_err(|why| FsError::Mount { path, why })?))
        });
        match outcome {
            Ok((control, session)) => Ok(Self { engine, thread, session, control }),
            Err(why) => {
                engine.close();
                let _ = thread.join();
                Err(why)
            }
        }
    }

    /// Returns what unmounts it.
    pub fn unmounter(&mut self) -> Unmounter {
        Unmounter::new(self.session.unmounter())
    }

    /// Returns what reads how it is.
    pub fn status_reader(&self) -> StatusReader {
        self.control.status_reader()
    }

    /// Takes requests until it is unmounted, and then makes everything durable.
    ///
    /// # Errors
    /// Requests ended for another reason, or the log was stopped: what was not durable is lost.
    pub fn run(self) -> Result<(), FsError> {
        let ended = self.session.run();
        self.engine.close();
        let _ = self.thread.join();
        let stopped = self.engine.look(|core| core.stopped());
        self.control.close();
        if let Some(why) = stopped {
            return Err(FsError::Refused(why.to_string()));
        }
        ended.map_err(FsError::system("take requests of the kernel"))
    }
}

/// Opens a log, and begins to drain it. It is not to be mounted on a `directory` that lies in log or
/// store.
pub(crate) fn open_log(
    options: &LogOptions,
    directory: Option<&Path>,
    orphans: OrphanPolicy,
    reporter: &Reporter,
) -> Result<(Arc<Engine>, JoinHandle<()>), FsError> {
    check_memory(options.memory)?;
    check_store(&options.store)?;
    check_apart(options, directory)?;
    if LogDirectory::is_makeable(&options.log) {
        check_free(&options.store, options.sharing)?;
    }
    let log = LogDirectory::open(&options.log, options.sizes)?;
    let (is_new, size, short) = (log.is_new, log.segments.size, log.segments.short.clone());
    let (engine, thread) =
        Engine::open(log, options.sizes, options.memory, orphans, Arc::clone(reporter))?;
    for (number, length) in short {
        reporter(&format!(
            "segment {number} of the log had {length} of {size} bytes, and gets them again; bytes that it lost are damaged"
        ));
        // Without room on the disk, a write there fails later.
        let _ = engine.segments.get(number).map(|segment| reserve(segment, size));
    }
    engine.look(|core| core.shares = options.shares);
    let drained = mark_store(&engine, options).and_then(|owner| {
        let (store, log) = (absolute(&options.store), absolute(&options.log));
        let owner = Some(owner);
        let timeout = options.store_timeout;
        let (rate, allowance) = (options.drain_rate, options.drain_allowance.clone());
        let usual = StoreOptions::new(store, log);
        engine.drain_into(StoreOptions { owner, timeout, rate, allowance, ..usual })
    });
    match drained.and_then(|()| prepare(&engine, options, is_new)) {
        Ok(()) => Ok((engine, thread)),
        Err(why) => {
            engine.close();
            let _ = thread.join();
            Err(why)
        }
    }
}

/// Checks that `memory` is enough for writes, and not more than the machine has.
pub(crate) fn check_memory(memory: u64) -> Result<(), FsError> {
    let machine = machine_memory("MemTotal").map_or(u64::MAX, |bytes| bytes.0);
    let limit = if memory < MEMORY_MIN {
        format!("at least {} MiB", MEMORY_MIN >> 20)
    } else if memory > machine {
        format!("at most {} MiB, the memory of this machine", machine >> 20)
    } else {
        return Ok(());
    };
    Err(FsError::Option(format!("--memory is {limit}")))
}

/// Checks that a directory can be mounted on; a mount that was left behind there is removed.
pub(crate) fn check_mount_point(directory: &Path, reporter: &Reporter) -> Result<(), FsError> {
    if clean_mount_point(directory)? {
        reporter(&format!(
            "{} was left behind by a mount whose process ended without unmounting; that mount is removed",
            directory.display()
        ));
    }
    let metadata = fs::metadata(directory).map_err(FsError::at("cannot mount on", directory))?;
    if metadata.is_dir() {
        return Ok(());
    }
    let why = io::Error::from(io::ErrorKind::NotADirectory);
    Err(FsError::at("cannot mount on", directory)(why))
}

/// Sets what the options say about the tree.
fn prepare(engine: &Engine, options: &LogOptions, is_new: bool) -> Result<(), FsError> {
    let options = options.clone();
    let outcome = stored::change(engine, move |core| {
        if is_new {
            let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
            let now = Some(core.now());
            let set = AttributeSet { mode: None, owner: Some(owner), mtime: now, atime: now };
            core.set(InodeId::ROOT, None, set)?;
        }
        set_classes(core, &options)
    });
    outcome.map_err(|why| {
        FsError::Refused(match why {
            Errno::NOSPC => "the log is full, and the store takes no files; mount without --class and --rule, and remove files".to_owned(),
            why => format!("the log cannot record the options of the mount: {why}"),
        })
    })
}

/// Sees that the store is that of the log, or gives it to the log if it is nobody's, or of logs that
/// share it. What one log drains into the objects of another would be lost.
fn mark_store(engine: &Engine, options: &LogOptions) -> Result<StoreOwner, FsError> {
    let store = &options.store;
    let (log, has_objects) = engine
        .look(|core| (core.log_id(), core.tree().inodes().any(|(_, inode)| inode.has_object)));
    let shared = StoreOwner { log, sharing: StoreSharing::Shared };
    let owner = match store.join(shared.mark_name()).exists() {
        // It shares the store since it was made.
        true => shared,
        false => StoreOwner { log, sharing: options.sharing },
    };
    let alone = store.join(STORE_MARK);
    if owner == shared && fs::read_to_string(alone).is_ok_and(|found| found == owner.mark()) {
        return Err(FsError::Refused(format!(
            "{} belongs to this log alone since it was made; leave --shared-store out",
            store.display()
        )));
    }
    let mark = store.join(owner.mark_name());
    let objects = store.join(owner.objects_name());
    let objects_found = find_objects(&objects)?;
    match fs::read_to_string(&mark) {
        Ok(found) if found == owner.mark() => Ok(owner),
        Ok(_) => Err(store_of_another(store)),
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            check_free(store, owner.sharing)?;
            if has_objects {
                return Err(FsError::Refused(format!(
                    "{} is not the store of this log, which has files only in its store; is its file system mounted?",
                    store.display()
                )));
            }
            if objects_found == ObjectsFound::Full {
                return Err(FsError::Refused(format!(
                    "{} has entries that no mount of this log made, and no {}; move it away, or name another store",
                    objects.display(),
                    owner.mark_name().display()
                )));
            }
            write_mark(store, &mark, &owner.mark()).map_err(FsError::at("cannot write", &mark))?;
            Ok(owner)
        }
        Err(why) => Err(FsError::at("cannot read", &mark)(why)),
    }
}

/// Checks that a log which has no mark in the store may have it.
fn check_free(store: &Path, sharing: StoreSharing) -> Result<(), FsError> {
    let is_shared = is_shared(store).map_err(FsError::at("cannot read", store))?;
    match sharing {
        _ if store.join(STORE_MARK).exists() => Err(store_of_another(store)),
        StoreSharing::Alone if is_shared => Err(FsError::Refused(format!(
            "{} is the store of other logs that share it; add --shared-store to share it with them, or name an empty directory",
            store.display()
        ))),
        _ => Ok(()),
    }
}

fn store_of_another(store: &Path) -> FsError {
    FsError::Refused(format!(
        "{} is the store of another log; name the store of this log, or an empty directory, or remove {STORE_MARK} and {OBJECTS_NAME} there if the other log is gone",
        store.display()
    ))
}

/// What is at the place of the objects of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObjectsFound {
    /// Nothing, or an empty directory.
    Empty,
    /// A directory with entries.
    Full,
}

/// Looks at the directory of objects, which the drain makes if it is not there.
///
/// # Errors
/// Something else is in its place, or it belongs to a user that this one cannot take it from.
fn find_objects(objects: &Path) -> Result<ObjectsFound, FsError> {
    let found = match fs::symlink_metadata(objects) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(ObjectsFound::Empty),
        found => found.map_err(FsError::at("cannot look at", objects))?,
    };
    if !found.is_dir() {
        return Err(FsError::Refused(format!(
            "{} is no directory; move it away, because the store needs a directory there",
            objects.display()
        )));
    }
    let user = rustix::process::geteuid();
    if !user.is_root() && found.uid() != user.as_raw() {
        return Err(FsError::Refused(format!(
            "{} belongs to another user; mount as that user, or move it away",
            objects.display()
        )));
    }
    let mut entries = fs::read_dir(objects).map_err(FsError::at("cannot read", objects))?;
    Ok(if entries.next().is_none() { ObjectsFound::Empty } else { ObjectsFound::Full })
}

/// Writes the mark of a store, whole or not at all.
fn write_mark(store: &Path, mark: &Path, log: &str) -> io::Result<()> {
    let mut part = mark.as_os_str().to_owned();
    part.push("-new");
    // Not through a link of another user.
    match fs::remove_file(&part) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
        _ => {}
    }
    let mut file = fs::File::create_new(&part)?;
    file.write_all(log.as_bytes())?;
    file.sync_all()?;
    fs::rename(&part, mark)?;
    fs::File::open(store)?.sync_all()
}

fn set_classes(core: &mut Core, options: &LogOptions) -> Result<(), Held> {
    core.limit_class(options.class_limit);
    core.load_rules();
    if let Some(class) = options.class
        && core.own_class(InodeId::ROOT) != Some(class)
    {
        core.set_class(InodeId::ROOT, Some(class))?;
    }
    if !options.rules.is_empty() {
        core.set_rules(&options.rules)?;
    }
    if let Some(within) = options.deadline {
        core.set_deadline(within)?;
    }
    Ok(())
}

/// Checks that the store is a directory.
fn check_store(store: &Path) -> Result<(), FsError> {
    let found = fs::metadata(store).map_err(FsError::at("cannot use the store", store))?;
    if found.is_dir() {
        return Ok(());
    }
    let why = io::Error::from(io::ErrorKind::NotADirectory);
    Err(FsError::at("cannot use the store", store)(why))
}

/// Checks that neither of log, store and mount point lies in another one: a drain would write into the
/// log, or into itself.
fn check_apart(options: &LogOptions, directory: Option<&Path>) -> Result<(), FsError> {
    // A log that is made has a directory above it.
    let log = match (options.log.parent(), options.log.file_name()) {
        (Some(above), Some(name)) if !options.log.exists() => {
            let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
            absolute(above).join(name)
        }
        _ => absolute(&options.log),
    };
    let places: Vec<PathBuf> =
        [log, absolute(&options.store)].into_iter().chain(directory.map(absolute)).collect();
    for (number, one) in places.iter().enumerate() {
        for other in places.iter().skip(number + 1) {
            if one.starts_with(other) || other.starts_with(one) {
                return Err(FsError::Option(format!(
                    "{} and {} lie in each other; log, store and mount point need directories apart",
                    one.display(),
                    other.display()
                )));
            }
        }
    }
    Ok(())
}

/// Returns the path from the root, links resolved where that is possible.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Takes mounts away whose process is gone; says whether there was one.
fn clean_mount_point(path: &Path) -> Result<bool, FsError> {
    let mut taken = 0;
    while is_left_behind(path) && taken < LEFT_MAX {
        detach(path).map_err(FsError::at("cannot take away the mount left behind on", path))?;
        taken += 1;
    }
    Ok(taken > 0)
}

/// Returns whether `path` lies on a mount whose process is gone. Attributes are still in a cache of the
/// kernel then; the space of a file system is not.
pub fn is_left_behind(path: &Path) -> bool {
    matches!(rustix::fs::statvfs(path), Err(Errno::NOTCONN | Errno::CONNABORTED))
}

/// Unmounts what is mounted on `path`, at the latest when nobody uses it any more.
///
/// # Errors
/// The system's.
pub fn detach(path: &Path) -> io::Result<()> {
    unmount_with(path, rustix::mount::UnmountFlags::DETACH, "-uz")
}

/// Unmounts what is mounted on `path`, unless somebody uses it. Tries again for up to two seconds: a
/// process that is just being started has the open files of its parent until it executes its
/// program.
///
/// # Errors
/// The system's: [`io::ErrorKind::ResourceBusy`] when somebody uses it.
pub fn unmount(path: &Path) -> io::Result<()> {
    let unmount = || unmount_with(path, rustix::mount::UnmountFlags::empty(), "-u");
    retry_busy(BUSY_LOOKS, || thread::sleep(BUSY_LOOK_EVERY), unmount)
}

/// Tries at most `tries` times, as long as something is busy; waits between two tries.
fn retry_busy(
    tries: u32,
    mut wait: impl FnMut(),
    mut attempt: impl FnMut() -> io::Result<()>,
) -> io::Result<()> {
    for _ in 1..tries {
        match attempt() {
            Err(why) if why.kind() == io::ErrorKind::ResourceBusy => wait(),
            outcome => return outcome,
        }
    }
    attempt()
}

fn unmount_with(path: &Path, flags: rustix::mount::UnmountFlags, flag: &str) -> io::Result<()> {
    match rustix::mount::unmount(path, flags) {
        // Without the privilege, the program that also mounted it has it.
        Err(Errno::PERM) => {
            let output = Command::new("fusermount3").arg(flag).arg("--").arg(path).output()?;
            if output.status.success() {
                return Ok(());
            }
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let is_busy = said.ends_with("busy");
            let kind = if is_busy { io::ErrorKind::ResourceBusy } else { io::ErrorKind::Other };
            Err(io::Error::new(kind, said))
        }
        other => other.map_err(io::Error::from),
    }
}

#[cfg(test)]
mod tests {
    //! The end of a mount.

    use super::*;

    #[test]
    fn retry_busy__what_is_busy_for_a_moment_is_tried_again_and_not_longer() {
        let run = |busy: u32, then: fn() -> io::Result<()>| {
            let (mut attempts, mut waits) = (0, 0);
            let attempt = || {
                attempts += 1;
                if attempts <= busy { Err(Errno::BUSY.into()) } else { then() }
            };
            let outcome = retry_busy(3, || waits += 1, attempt);
            (outcome.map_err(|why| why.kind()), attempts, waits)
        };
        assert_eq!(run(2, || Ok(())), (Ok(()), 3, 2));
        assert_eq!(run(3, || Ok(())), (Err(io::ErrorKind::ResourceBusy), 3, 2));
        let other = run(1, || Err(Errno::INVAL.into()));
        assert_eq!(other, (Err(io::ErrorKind::InvalidInput), 2, 1));
    }
}
