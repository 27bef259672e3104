//! Anonymous network namespaces: made on a worker thread, held as file descriptors, entered by
//! threads of their own.
//!
//! # Invariants
//! I1. The calling thread never changes its namespace: only threads made here do, and they end
//!     there.
//! I2. A namespace has no name anywhere; it lives exactly as long as a descriptor, a socket or a
//!     process of it.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};

use crate::LabError;
use crate::netlink::RouteSocket;

/// A kernel setting of one namespace: path below `/proc/sys/net`, and value.
pub(crate) type KernelSetting = (&'static str, &'static str);

/// What to do when a setting cannot be written (a container's `/proc/sys` may be read-only).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteRequirement {
    /// The lab would be wrong without it.
    Required,
    /// The lab works without it; the setting is missing from the kernel or protected.
    Wanted,
}

/// One network namespace.
#[derive(Debug)]
pub(crate) struct Netns {
    file: File,
    inode: u64,
    route: Mutex<RouteSocket>,
    /// Settings that were wanted and could not be written.
    refused: Vec<String>,
}

impl Netns {
    /// Makes a namespace for each list of settings.
    pub(crate) fn create_all(
        settings: &[Vec<(WriteRequirement, KernelSetting)>],
    ) -> Result<Vec<Self>, LabError> {
        on_thread(|| settings.iter().map(|list| Self::create_here(list)).collect())
            .map_err(|error| LabError::kernel("start a thread", error))?
    }

    /// Moves the calling thread, which must be one of ours, into a new namespace and keeps hold of
    /// it.
    fn create_here(settings: &[(WriteRequirement, KernelSetting)]) -> Result<Self, LabError> {
        unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| match errno {
            nix::errno::Errno::EPERM => LabError::Permission(crate::permission::advice()),
            nix::errno::Errno::ENOSPC => LabError::Kernel {
                doing: "make a network namespace".into(),
                cause: errno.into(),
                hint: "; raise user.max_net_namespaces with sysctl as root".into(),
            },
            other => LabError::kernel("make a network namespace", other.into()),
        })?;
        let mut refused = Vec::new();
        for (need, (key, value)) in settings {
            match (fs::write(format!("/proc/sys/net/{key}"), value), need) {
                (Ok(()), _) => {}
                (Err(error), WriteRequirement::Required) => {
                    return Err(LabError::kernel(format!("set net/{key} to {value}"), error));
                }
                // A kernel without IPv6 has no settings of it, and needs none.
                (Err(error), WriteRequirement::Wanted)
                    if error.kind() == io::ErrorKind::NotFound => {}
                (Err(error), WriteRequirement::Wanted) => {
                    refused.push(format!("net/{key} = {value}: {error}"))
                }
            }
        }
        let held = Self::hold(File::open("/proc/thread-self/ns/net"));
        held.map(|netns| Self { refused, ..netns })
            .map_err(|error| LabError::kernel("hold a namespace", error))
    }

    /// Takes hold of the namespace behind a file (`/proc/<pid>/fd/<n>`).
    pub(crate) fn attach(file: File) -> io::Result<Self> {
        on_thread(|| {
            setns(&file, CloneFlags::CLONE_NEWNET)?;
            Self::hold(Ok(file))
        })?
    }

    fn hold(file: io::Result<File>) -> io::Result<Self> {
        let file = file?;
        let inode = file.metadata()?.ino();
        Ok(Self { file, inode, route: Mutex::new(RouteSocket::open()?), refused: Vec::new() })
    }

    /// Returns the inode number by which `/proc/<pid>/ns/net` shows who lives here.
    pub(crate) fn inode(&self) -> u64 {
        self.inode
    }

    /// Returns the descriptor, as the kernel and `/proc/<pid>/fd` number it.
    pub(crate) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Returns the settings that were wanted and could not be written.
    pub(crate) fn refused(&self) -> &[String] {
        &self.refused
    }

    /// Returns the configuration socket.
    pub(crate) fn route(&self) -> MutexGuard<'_, RouteSocket> {
        self.route.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` on a thread inside this namespace and waits for it.
    ///
    /// # Errors
    /// The kernel does not let a thread in: the namespace belongs to another user namespace.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        on_thread(|| {
            setns(&self.file, CloneFlags::CLONE_NEWNET)?;
            Ok(work())
        })?
    }
}

/// Runs `work` on a thread of its own, which takes whatever it did to itself with it.
fn on_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("lab".into()).spawn_scoped(scope, work)?;
        thread.join().map_or_else(|panic| std::panic::resume_unwind(panic), Ok)
    })
}
