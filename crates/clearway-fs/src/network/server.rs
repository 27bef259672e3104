//! A server: a log and its store for mounts of other hosts.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use clearway_proto::base::Class;
use clearway_proto::calls::PacerConfig;
use clearway_runtime::waiting::Waitable;

use super::pacing::MountPacing;
use super::session::{Session, SessionEnd, SessionFiles};
use super::{ClientName, User, WINDOW};
use crate::FsError;
use crate::engine::{Engine, OrphanPolicy, Reporter};
use crate::mount::{LogOptions, MountNames, absolute, open_log};
use crate::server::{ControlRequests, ControlServer, StatusReader};

/// How long files that a client had open stay after it is lost, and after a restart of the server:
/// longer than a mount needs to connect again.
pub const GRACE: Duration = Duration::from_secs(60);

/// A log and its store that clients can use.
pub struct StagingServer {
    shared: Arc<ServiceShared>,
    control: ControlServer,
    thread: JoinHandle<()>,
    report: Reporter,
}

/// Accepts clients of a [`StagingServer`] from other threads.
#[derive(Clone)]
pub struct ClientAcceptor {
    shared: Arc<ServiceShared>,
    control: ControlRequests,
    report: Reporter,
}

struct ServiceShared {
    engine: Arc<Engine>,
    /// Sessions of each client, those included whose files are kept.
    sessions: Mutex<BTreeMap<ClientName, u32>>,
    is_ending: Mutex<bool>,
    ends: Condvar,
    pacing: Option<Arc<MountPacing>>,
}

impl StagingServer {
    /// Opens the log in `options`, and begins to drain it. With `pace` it sets the pace of its
    /// clients.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn open(
        options: &LogOptions,
        pace: Option<PacerConfig>,
        reporter: &Reporter,
    ) -> Result<Self, FsError> {
        let (engine, thread) = open_log(options, None, OrphanPolicy::Keep, reporter)?;
        let names = MountNames {
            log: absolute(&options.log),
            store: absolute(&options.store),
            directory: absolute(&options.log),
        };
        let pacing = pace.map(|config| Arc::new(MountPacing::new(config)));
        let control = ControlServer::open(&engine, names, pacing.clone())?;
        let shared = Arc::new(ServiceShared {
            engine,
            sessions: Mutex::default(),
            is_ending: Mutex::new(false),
            ends: Condvar::new(),
            pacing,
        });
        let waiting = Arc::clone(&shared);
        // Files without a name that clients of the server before had open: their clients open them
        // again within the grace.
        let orphans = std::thread::Builder::new().name("orphans".into()).spawn(move || {
            waiting.wait(GRACE);
            waiting.engine.wait(crate::engine::Core::forget_all_orphans);
        });
        orphans.map_err(FsError::system("start a thread"))?;
        Ok(Self { shared, control, thread, report: Arc::clone(reporter) })
    }

    /// Returns the name of the log.
    pub fn log(&self) -> u128 {
        self.shared.engine.look(|core| core.log_id()).0
    }

    /// Returns what reads how the log is.
    pub fn status_reader(&self) -> StatusReader {
        self.control.status_reader()
    }

    /// Returns what accepts clients.
    pub fn acceptor(&self) -> ClientAcceptor {
        let control = self.control.requests();
        let (shared, report) = (Arc::clone(&self.shared), Arc::clone(&self.report));
        ClientAcceptor { shared, control, report }
    }

    /// Makes everything durable that was received, and ends.
    ///
    /// # Errors
    /// The log was stopped: what was not durable is lost.
    pub fn close(self) -> Result<(), FsError> {
        *self.shared.is_ending.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.ends.notify_all();
        self.shared.engine.close();
        let _ = self.thread.join();
        let stopped = self.shared.engine.look(|core| core.stopped());
        self.control.close();
        stopped.map_or(Ok(()), |why| Err(FsError::Refused(why.to_string())))
    }
}

impl ServiceShared {
    fn sessions(&self) -> MutexGuard<'_, BTreeMap<ClientName, u32>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for some time, or until the server ends.
    fn wait(&self, time: Duration) {
        let ending = self.is_ending.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.ends.wait_timeout_while(ending, time, |is_ending| !*is_ending);
        drop(waited);
    }
}

/// What a client that left has open, until it is forgotten.
#[must_use = "forget them in the end"]
pub struct ClientRemains {
    shared: Arc<ServiceShared>,
    client: ClientName,
    files: Arc<SessionFiles>,
}

impl ClientRemains {
    /// Waits for [`GRACE`], or until the server ends, and closes the files: the client may connect
    /// again, and wants to find those without a name. Without open files it returns at once.
    pub fn forget(self) {
        if !self.files.is_empty() {
            self.shared.wait(GRACE);
        }
    }
}

impl Drop for ClientRemains {
    fn drop(&mut self) {
        Session::close_files(&self.shared.engine, &self.files);
        let mut sessions = self.shared.sessions();
        if let Some(count) = sessions.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                sessions.remove(&self.client);
            }
        }
    }
}

impl ClientAcceptor {
    /// Returns whether no client has, or had, a name: calls of a new client must not be taken for
    /// those of another.
    pub fn is_free(&self, client: ClientName) -> bool {
        let is_unused = |core: &mut crate::engine::Core| {
            Class::ALL.iter().all(|class| core.state().highest(client.of_class(*class)) == 0)
        };
        !self.shared.sessions().contains_key(&client) && self.shared.engine.look(is_unused)
    }

    /// Returns how many clients there are, those included whose files are kept.
    pub fn connected(&self) -> u64 {
        self.shared.sessions().len() as u64
    }

    /// Serves a client over a wire until it leaves or is lost; `link` is readable when it closes
    /// its connection. An earlier connection of the same client ends by itself.
    ///
    /// # Errors
    /// The wire lacks something.
    pub fn serve(
        &self,
        client: ClientName,
        user: User,
        wire: Box<dyn Waitable + Send>,
        link: OwnedFd,
    ) -> Result<ClientRemains, FsError> {
        let files = Arc::new(SessionFiles::default());
        let session = Session {
            engine: Arc::clone(&self.shared.engine),
            control: self.control.clone(),
            user: Arc::new(user),
            client,
            files: Arc::clone(&files),
            pacing: self.shared.pacing.clone(),
        };
        *self.shared.sessions().entry(client).or_insert(0) += 1;
        let remains = ClientRemains { shared: Arc::clone(&self.shared), client, files };
        let ended = session.run(wire, link, WINDOW);
        if let SessionEnd::Lost(cause) = ended? {
            (self.report)(&format!("client {:x} is lost: {cause}", client.number()));
        }
        Ok(remains)
    }
}
