//! A mount of servers' files, from its options to its end.

use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use clearway_proto::base::Class;
use clearway_proto::staging::InodeId;
use rustix::io::Errno;

use super::client::{RemoteCounts, RemoteFiles};
use super::connection::{ConnectError, ServerConnector, keep_connected};
use super::relay::ControlRelay;
use super::request::{FileRequest, FileResponse, RequestPlace, RespondedAttributes};
use super::trees::{SERVERS_MAX, ServedTree, ServedTrees};
use crate::FsError;
use crate::kernel::KernelSession;
use crate::mount::{Reporter, Unmounter, absolute, check_memory, check_mount_point};
use crate::names::Attributes;

/// What to mount, and how.
#[derive(Clone, Debug)]
pub struct RemoteMountOptions {
    /// The directory of each server's tree, from its root.
    pub tree: String,
    /// The mount point.
    pub directory: PathBuf,
    /// Bytes of writes that may wait for the servers.
    pub memory: u64,
    /// How long requests wait for a server that is away; for ever without one.
    pub timeout: Option<Duration>,
}

/// A server of a mount.
pub struct RemoteServer {
    /// The server, as the user named it.
    pub name: String,
    /// Connects to it.
    pub connector: Box<dyn ServerConnector>,
}

/// A mount of servers' files.
pub struct RemoteMounted {
    trees: ServedTrees,
    connections: Vec<Connection>,
    session: KernelSession,
    relay: ControlRelay,
}

/// Reads the counts of a mount from another thread.
#[derive(Clone)]
pub struct RemoteStatusReader(ServedTrees);

impl RemoteStatusReader {
    /// Returns what was counted, of all servers.
    pub fn counts(&self) -> RemoteCounts {
        let counts = self.0.all().map(|tree| tree.files.counts());
        counts.reduce(RemoteCounts::plus).unwrap_or_default()
    }
}

/// Gives up the servers of a mount from another thread.
pub struct ServersAbandoner(ServedTrees);

impl ServersAbandoner {
    /// Fails all requests from now on, so that the mount can end; writes that the servers lack are
    /// lost.
    pub fn abandon(&self) {
        self.0.abandon();
    }
}

/// A server that is connected, and the thread that keeps it so.
struct Connection {
    name: String,
    log: u128,
    files: Arc<RemoteFiles>,
    thread: JoinHandle<()>,
}

impl Connection {
    /// Connects to a server.
    fn open(
        server: RemoteServer,
        options: &RemoteMountOptions,
        memory: u64,
        reporter: &Reporter,
    ) -> Result<Self, FsError> {
        let RemoteServer { name, mut connector } = server;
        let first = connector.connect().map_err(|why| match why {
            ConnectError::Later(why) | ConnectError::Never(why) => FsError::Refused(why),
        })?;
        let log = first.log;
        let files = RemoteFiles::new(memory, Arc::clone(reporter))?;
        let (kept, timeout) = (Arc::clone(&files), options.timeout);
        let thread = std::thread::Builder::new().name("staging-server".into());
        let thread = thread.spawn(move || keep_connected(&kept, connector, first, timeout));
        let thread = thread.map_err(FsError::system("start a thread"))?;
        Ok(Self { name, log, files, thread })
    }

    /// Ends the connection when the server has answered everything.
    fn close(self) {
        self.files.finish();
        let _ = self.thread.join();
    }
}

impl RemoteMounted {
    /// Connects to all servers and mounts. `reporter` gets sentences for an operator.
    ///
    /// # Errors
    /// [`FsError`]: nothing is mounted.
    pub fn open(
        options: &RemoteMountOptions,
        servers: Vec<RemoteServer>,
        reporter: &Reporter,
    ) -> Result<Self, FsError> {
        check_memory(options.memory)?;
        check_mount_point(&options.directory, reporter)?;
        let count = servers.len();
        if count == 0 || count > SERVERS_MAX {
            let why = format!("a mount has 1 to {SERVERS_MAX} servers; {count} are named");
            return Err(FsError::Option(why));
        }
        let memory = options.memory / count as u64;
        let mut connections: Vec<Connection> = Vec::with_capacity(count);
        for server in servers {
            let reporter = if count == 1 { Arc::clone(reporter) } else { named(&server, reporter) };
            let opened = Connection::open(server, options, memory, &reporter);
            let opened = opened.and_then(|opened| match same_log(&connections, &opened) {
                None => Ok(opened),
                Some(why) => {
                    opened.close();
                    Err(why)
                }
            });
            match opened {
                Ok(opened) => connections.push(opened),
                Err(why) => {
                    connections.into_iter().for_each(Connection::close);
                    return Err(why);
                }
            }
        }
        let outcome = trees_of(&connections, &options.tree).and_then(|trees| {
            let directory = absolute(&options.directory);
            let relay = ControlRelay::open(&trees, &directory, &options.tree)?;
            let names: Vec<&str> = connections.iter().map(|it| it.name.as_str()).collect();
            let source = format!("{}:/{}", names.join("+"), options.tree.trim_matches('/'));
            let session = KernelSession::mount_remote(
                trees.clone(),
                &options.directory,
                relay.path(),
                &source,
            );
            let path = options.directory.clone();
            Ok((trees, relay, session.map_err(|why| FsError::Mount { path, why })?))
        });
        match outcome {
            Ok((trees, relay, session)) => Ok(Self { trees, connections, session, relay }),
            Err(why) => {
                connections.into_iter().for_each(Connection::close);
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
        RemoteStatusReader(self.trees.clone())
    }

    /// Returns what gives up its servers.
    pub fn abandoner(&self) -> ServersAbandoner {
        ServersAbandoner(self.trees.clone())
    }

    /// Takes requests until it is unmounted, and then waits until the servers have everything.
    ///
    /// # Errors
    /// Requests ended for another reason.
    pub fn run(self) -> Result<(), FsError> {
        let ended = self.session.run();
        self.connections.into_iter().for_each(Connection::close);
        drop(self.relay);
        ended.map_err(FsError::Control)
    }
}

/// Returns a reporter whose sentences name the server.
fn named(server: &RemoteServer, reporter: &Reporter) -> Reporter {
    let (name, reporter) = (server.name.clone(), Arc::clone(reporter));
    Arc::new(move |sentence| reporter(&format!("server {name}: {sentence}")))
}

/// Returns why a server cannot be one more of a mount, if it has the log of another.
fn same_log(connections: &[Connection], next: &Connection) -> Option<FsError> {
    let other = connections.iter().find(|other| other.log == next.log)?;
    Some(FsError::Option(format!(
        "{} and {} are one server; name each server once",
        other.name, next.name
    )))
}

/// Finds the directory of a path in the trees of all servers.
fn trees_of(connections: &[Connection], path: &str) -> Result<ServedTrees, FsError> {
    let mut trees = Vec::with_capacity(connections.len());
    for (place, connection) in connections.iter().enumerate() {
        let Connection { name, log, files, .. } = connection;
        let root = root_of(name, files, path)?;
        trees.push(ServedTree::new(name.clone(), Arc::clone(files), root, *log, place));
    }
    let mut trees = trees.into_iter();
    let first = trees.next().ok_or_else(|| FsError::Option("no server is named".to_owned()))?;
    Ok(ServedTrees::new(first, trees.collect()))
}

/// Finds the directory of a path in the server's tree.
fn root_of(
    server: &str,
    files: &Arc<RemoteFiles>,
    tree: &str,
) -> Result<RespondedAttributes, FsError> {
    let ask = |request: &FileRequest| {
        let (sender, receiver) = mpsc::channel();
        let answer = Box::new(move |found: Result<(FileResponse, Vec<u8>), Errno>| {
            let _ = sender.send(found);
        });
        // A request would wait for a server that does not come back.
        files.probe(Class::BestEffort, request, answer);
        let found = receiver.recv().unwrap_or(Err(Errno::IO));
        match found.and_then(|(response, _)| response.outcome()) {
            Ok(FileResponse::Attributes(found)) => Ok(found),
            Err(Errno::NOTCONN) => Err(FsError::Refused(format!(
                "the server {server} closed the connection; mount again when it runs"
            ))),
            Ok(_) => Err(FsError::Refused(format!("{server} does not answer as it should"))),
            Err(why) => {
                let why = std::io::Error::from(why);
                Err(FsError::Refused(format!(
                    "the server {server} has no directory {tree}: {why}; make it there, or mount the root of the tree"
                )))
            }
        }
    };
    let mut root = ask(&FileRequest::Attributes { inode: InodeId::ROOT.0 })?;
    for name in tree.split('/').filter(|name| !name.is_empty()) {
        let above = Attributes::from(root).inode;
        root = ask(&FileRequest::Lookup(RequestPlace::new(above, name.as_bytes())))?;
    }
    Ok(root)
}
