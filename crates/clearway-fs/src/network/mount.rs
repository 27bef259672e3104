//! A mount of a server's files, from its options to its end.

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use clearway_proto::base::Class;
use clearway_proto::staging::InodeId;
use rustix::io::Errno;

use super::client::{RemoteCounts, RemoteFiles};
use super::connection::{ConnectError, ServerConnector, keep_connected};
use super::relay::ControlRelay;
use super::request::{FileRequest, FileResponse, RequestPlace};
use crate::FsError;
use crate::kernel::KernelSession;
use crate::mount::{Reporter, Unmounter, absolute, check_memory, check_mount_point};
use crate::names::Attributes;

/// What to mount, and how.
#[derive(Clone, Debug)]
pub struct RemoteMountOptions {
    /// The server, as the user named it.
    pub server: String,
    /// The directory of the server's tree, from its root.
    pub tree: String,
    /// The mount point.
    pub directory: PathBuf,
    /// Bytes of writes that may wait for the server.
    pub memory: u64,
    /// How long requests wait for a server that is away; for ever without one.
    pub timeout: Option<Duration>,
}

/// A mount of a server's files.
pub struct RemoteMounted {
    files: Arc<RemoteFiles>,
    thread: JoinHandle<()>,
    session: KernelSession,
    relay: ControlRelay,
}

/// Reads the counts of a mount from another thread.
#[derive(Clone)]
pub struct RemoteStatusReader(Arc<RemoteFiles>);

impl RemoteStatusReader {
    /// Returns what was counted.
    pub fn counts(&self) -> RemoteCounts {
        self.0.counts()
    }
}

impl RemoteMounted {
    /// Connects and mounts. `reporter` gets sentences for an operator.
    ///
    /// # Errors
    /// [`FsError`]: nothing is mounted.
    pub fn open(
        options: &RemoteMountOptions,
        mut connector: Box<dyn ServerConnector>,
        reporter: &Reporter,
    ) -> Result<Self, FsError> {
        check_memory(options.memory)?;
        check_mount_point(&options.directory, reporter)?;
        let first = connector.connect().map_err(|why| match why {
            ConnectError::Later(why) | ConnectError::Never(why) => FsError::Refused(why),
        })?;
        let files = RemoteFiles::new(options.memory, Arc::clone(reporter))?;
        let kept = Arc::clone(&files);
        let thread = std::thread::Builder::new().name("staging-server".into());
        let timeout = options.timeout;
        let thread = thread.spawn(move || keep_connected(&kept, connector, first, timeout));
        let thread = thread.map_err(FsError::system("start a thread"))?;
        let outcome = root_of(&files, &options.tree).and_then(|root| {
            let directory = absolute(&options.directory);
            let relay = ControlRelay::open(&files, &directory, &options.server, &options.tree)?;
            let source = format!("{}:/{}", options.server, options.tree.trim_matches('/'));
            let session = KernelSession::mount_remote(
                Arc::clone(&files),
                root,
                &options.directory,
                relay.path(),
                &source,
            );
            let path = options.directory.clone();
            Ok((relay, session.map_err(|why| FsError::Mount { path, why })?))
        });
        match outcome {
            Ok((relay, session)) => Ok(Self { files, thread, session, relay }),
            Err(why) => {
                files.finish();
                let _ = thread.join();
                Err(why)
            }
        }
    }

    /// Returns what unmounts it.
    pub fn unmounter(&mut self) -> Unmounter {
        Unmounter::new(self.session.unmounter())
    }

    /// Returns a place for a file with errors and warnings, which only this user can read.
    pub fn journal(&self) -> PathBuf {
        self.relay.path().with_extension("log")
    }

    /// Returns what reads its counts.
    pub fn status_reader(&self) -> RemoteStatusReader {
        RemoteStatusReader(Arc::clone(&self.files))
    }

    /// Takes requests until it is unmounted, and then waits until the server has everything.
    ///
    /// # Errors
    /// Requests ended for another reason.
    pub fn run(self) -> Result<(), FsError> {
        let journal = self.journal();
        let ended = self.session.run();
        self.files.finish();
        let _ = self.thread.join();
        if std::fs::metadata(&journal).is_ok_and(|found| found.len() == 0) {
            let _ = std::fs::remove_file(&journal);
        }
        drop(self.relay);
        ended.map_err(FsError::Control)
    }
}

/// Finds the directory of a path in the server's tree.
fn root_of(files: &Arc<RemoteFiles>, tree: &str) -> Result<InodeId, FsError> {
    let mut inode = InodeId::ROOT;
    for name in tree.split('/').filter(|name| !name.is_empty()) {
        let (sender, receiver) = mpsc::channel();
        let request = FileRequest::Lookup(RequestPlace::new(inode, name.as_bytes()));
        let answer = Box::new(move |found: Result<(FileResponse, Vec<u8>), Errno>| {
            let _ = sender.send(found);
        });
        files.request(Class::BestEffort, &request, 0, answer);
        let found = receiver.recv().unwrap_or(Err(Errno::IO));
        let found = found.and_then(|(response, _)| response.outcome());
        inode = match found {
            Ok(FileResponse::Attributes(found)) => Attributes::from(found).inode,
            Ok(_) => {
                return Err(FsError::Refused("the server does not answer as it should".into()));
            }
            Err(why) => {
                let why = std::io::Error::from(why);
                return Err(FsError::at("the server has no directory", Path::new(tree))(why));
            }
        };
    }
    Ok(inode)
}
