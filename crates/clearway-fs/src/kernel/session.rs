//! A mounted file system, local or of a server: how it is mounted, and how its requests are taken.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fuser::{Config, InitFlags, KernelConfig, MountOption, Session, SessionACL, SessionUnmounter};

use rustix::io::Errno;

use super::KernelAdaptor;
use super::remote::RemoteAdaptor;
use super::waits::Waits;
use crate::engine::Engine;
use crate::mount::absolute;
use crate::network::ServedTrees;

/// Bytes of the longest write and read: 256 pages, what the kernel sends without a changed limit.
const WRITE_MAX: u32 = 1 << 20;
/// Threads that take requests: two for each processor up to this.
const THREADS_MAX: usize = 8;

/// Asks the kernel for what makes requests fewer and longer.
pub(super) fn configure(config: &mut KernelConfig) {
    let wanted = [
        InitFlags::FUSE_PARALLEL_DIROPS,
        InitFlags::FUSE_DO_READDIRPLUS,
        InitFlags::FUSE_READDIRPLUS_AUTO,
        InitFlags::FUSE_ASYNC_DIO,
        InitFlags::FUSE_CACHE_SYMLINKS,
        // Else the kernel asks for an attribute of the file before each write.
        InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    ];
    // What a kernel does not have it does without.
    for flag in wanted {
        let _ = config.add_capabilities(flag);
    }
    let _ = config.set_max_write(WRITE_MAX);
    let _ = config.set_max_readahead(WRITE_MAX);
    let _ = config.set_max_background(64);
}

/// Returns how a session is made; `source` is what the table of mounts says.
fn session_config(source: &str) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        // A comma would end the option.
        MountOption::FSName(source.replace(',', "_")),
        MountOption::Subtype("clearway".into()),
        MountOption::DefaultPermissions,
        MountOption::NoAtime,
    ];
    if rustix::process::geteuid().is_root() {
        config.acl = SessionACL::All;
        config.mount_options.extend([MountOption::Dev, MountOption::Suid]);
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    config.n_threads = Some((2 * processors).clamp(2, THREADS_MAX));
    config.clone_fd = true;
    config
}

/// A mounted file system whose requests nobody takes yet.
pub(crate) struct KernelSession {
    kind: MountedKind,
    directory: PathBuf,
    waits: Arc<Waits>,
}

enum MountedKind {
    Local(Session<KernelAdaptor>),
    Remote(Session<RemoteAdaptor>),
}

/// Unmounts from another thread.
pub(crate) struct KernelUnmounter {
    session: SessionUnmounter,
    directory: PathBuf,
    /// The session gave up.
    was_busy: bool,
    waits: Arc<Waits>,
}

impl KernelUnmounter {
    /// Unmounts; requests end, and then [`KernelSession::run`].
    ///
    /// # Errors
    /// The system's: the mount stays.
    pub(crate) fn unmount(&mut self) -> io::Result<()> {
        if !self.was_busy {
            match self.session.unmount() {
                // From now on the session does nothing, and reports that it did.
                Err(why) if why.kind() == io::ErrorKind::ResourceBusy => self.was_busy = true,
                outcome => return outcome,
            }
        }
        crate::mount::unmount(&self.directory)
    }

    /// Unmounts while calls get an error instead of waiting.
    ///
    /// # Errors
    /// The system's: the mount stays, and calls wait again.
    pub(crate) fn unmount_impatiently(&mut self) -> io::Result<()> {
        self.waits.refuse_all();
        let outcome = self.unmount();
        if outcome.is_err() {
            self.waits.wait_again();
        }
        outcome
    }

    /// Returns whether a call waits.
    pub(crate) fn has_waits(&self) -> bool {
        self.waits.has_any()
    }
}

impl KernelSession {
    /// Mounts `engine` on `directory`; `source` is what the table of mounts says.
    pub(crate) fn mount(
        engine: Arc<Engine>,
        directory: &Path,
        control: &Path,
        source: &str,
    ) -> io::Result<Self> {
        let woken = Arc::clone(&engine);
        // Nothing of a call that is answered early is in the log, which has no space for it; the call
        // is still in the queue of its source.
        let waits = Arc::new(Waits::start(Errno::NOSPC, move || woken.wake())?);
        let adaptor = KernelAdaptor::new(engine, control, Arc::clone(&waits));
        // Not later: nobody answers questions about the mounted directory yet.
        let directory = absolute(directory);
        let session = Session::new(adaptor, &directory, &session_config(source))?;
        Ok(Self { kind: MountedKind::Local(session), directory, waits })
    }

    /// Mounts the trees of servers on `directory`.
    pub(crate) fn mount_remote(
        trees: ServedTrees,
        directory: &Path,
        control: &Path,
        source: &str,
    ) -> io::Result<Self> {
        // Nobody knows here how far the server is.
        let waits = Arc::new(Waits::start(Errno::IO, || ())?);
        let adaptor = RemoteAdaptor::new(trees, control, Arc::clone(&waits));
        // Not later: nobody answers questions about the mounted directory yet.
        let directory = absolute(directory);
        let session = Session::new(adaptor, &directory, &session_config(source))?;
        Ok(Self { kind: MountedKind::Remote(session), directory, waits })
    }

    /// Returns what unmounts it.
    pub(crate) fn unmounter(&mut self) -> KernelUnmounter {
        let session = match &mut self.kind {
            MountedKind::Local(session) => session.unmount_callable(),
            MountedKind::Remote(session) => session.unmount_callable(),
        };
        let (directory, waits) = (self.directory.clone(), Arc::clone(&self.waits));
        KernelUnmounter { session, directory, was_busy: false, waits }
    }

    /// Takes requests until it is unmounted.
    pub(crate) fn run(self) -> io::Result<()> {
        match self.kind {
            MountedKind::Local(session) => session.run(),
            MountedKind::Remote(session) => session.run(),
        }
    }
}
