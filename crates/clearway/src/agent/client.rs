//! The side of a scavenger: connects to the agent of the node, and keeps to its grants.
//!
//! # Invariants
//! I1. Without an agent nothing stops: what it allowed last stays, or nothing is limited, and one
//!     sentence says so.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use clap::Args;
use clearway_proto::base::{BitsPerSec, LocalNs, Nanos};
use clearway_proto::flow::{
    AGENT_MESSAGE_BYTES, AgentAnswer, AgentDemand, AgentFollower, HeldBack, SCAVENGERS_MAX,
};
use clearway_runtime::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
    connect, recv, send, shutdown, socket_with,
};

use super::scavengers::USER_MAX;

/// Where the agent of a node listens.
pub(super) const SOCKET: &str = "/run/clearway/agent.socket";
/// Between two attempts to connect.
const CONNECT_AGAIN: Duration = Duration::from_secs(1);
/// How often a connection is looked at that brings nothing: whether the lease is over, and whether
/// a demand could not be sent.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
/// Between two demands: a drain of small files has something to send and nothing by turns.
const DEMAND_EVERY: Nanos = Nanos::from_millis(50);
/// How long a sender waits for the first grant.
const FIRST_GRANT: Duration = Duration::from_millis(500);

/// The agent that a command follows.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct AgentFlags {
    /// Limit the rate to what the agent of this node grants, which listens at SOCKET [default:
    /// /run/clearway/agent.socket if it exists, for drains and for casts in the class scavenger].
    #[arg(long, value_name = "SOCKET")]
    agent: Option<PathBuf>,
}

/// Where an agent listens.
#[derive(Clone, Debug)]
pub(crate) struct AgentPlace(PathBuf);

impl AgentFlags {
    /// Returns the agent that is named.
    pub(crate) fn named(&self) -> Option<AgentPlace> {
        self.agent.clone().map(AgentPlace)
    }

    /// Returns the agent that is named, else that of the node if there is one.
    pub(crate) fn in_force(&self) -> Option<AgentPlace> {
        let usual = Path::new(SOCKET);
        let is_there = || usual.symlink_metadata().is_ok();
        self.named().or_else(|| is_there().then(|| AgentPlace(usual.to_owned())))
    }
}

/// What an agent answers to one that asks and demands nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeAgentState {
    /// Scavengers may send less than the link carries.
    Limits,
    /// They may use the whole link.
    LimitsNothing,
    /// It accepts no further scavenger.
    Full,
}

/// Asks the agent of this node how it is; nothing where there is none.
///
/// # Errors
/// It does not answer in time, or is another program.
pub(crate) fn ask_agent() -> io::Result<Option<NodeAgentState>> {
    let usual = Path::new(SOCKET);
    usual.symlink_metadata().is_ok().then(|| ask(usual)).transpose()
}

/// Asks the agent at `path`, as a scavenger that leaves at once.
fn ask(path: &Path) -> io::Result<NodeAgentState> {
    let socket = dial(path)?;
    send(&socket, &AgentDemand(BitsPerSec(0)).encode(), SendFlags::NOSIGNAL)?;
    let mut waiting = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
    let timeout = Timespec { tv_sec: 0, tv_nsec: FIRST_GRANT.subsec_nanos().into() };
    if poll(&mut waiting, Some(&timeout))? == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    match receive_answer(&socket)? {
        AgentAnswer::Granted(grant) if grant.is_held => Ok(NodeAgentState::Limits),
        AgentAnswer::Granted(_) => Ok(NodeAgentState::LimitsNothing),
        AgentAnswer::Full => Ok(NodeAgentState::Full),
        AgentAnswer::Ends => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

/// Receives a message of the agent, without waiting.
fn receive_answer(socket: &OwnedFd) -> io::Result<AgentAnswer> {
    // A longer message is cut, and has another length.
    let mut bytes = [0; AGENT_MESSAGE_BYTES + 1];
    let (length, _) = recv(socket, &mut bytes, RecvFlags::DONTWAIT)?;
    if length == 0 {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended the connection"));
    }
    let answer = bytes.get(..length).and_then(AgentAnswer::decode);
    answer.ok_or_else(|| io::Error::other("it is another program or version"))
}

/// Connects; fails at once where the agent accepts nobody, as when it is stopped.
fn dial(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// What a scavenger knows of its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AgentStatus {
    New,
    Following,
    Full,
    Ended,
    Absent,
}

struct FollowState {
    follower: AgentFollower,
    demand: BitsPerSec,
    /// The demand that the agent knows, since when, and the connection to it.
    sent: Option<BitsPerSec>,
    sent_at: LocalNs,
    socket: Option<Arc<OwnedFd>>,
    status: AgentStatus,
    is_closing: bool,
}

struct FollowShared {
    path: PathBuf,
    state: Mutex<FollowState>,
    changed: Condvar,
    say: Box<dyn Fn(&str) + Send + Sync>,
}

/// A scavenger of the node, until this is dropped.
pub(super) struct AgentClient {
    shared: Arc<FollowShared>,
    thread: Option<JoinHandle<()>>,
}

impl AgentClient {
    /// Connects to the agent from now on. `say` gets a sentence when it is absent, refuses, or is
    /// there again.
    pub(super) fn join(place: AgentPlace, say: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let state = FollowState {
            follower: AgentFollower::default(),
            demand: BitsPerSec(0),
            sent: None,
            sent_at: LocalNs(0),
            socket: None,
            status: AgentStatus::New,
            is_closing: false,
        };
        let shared = Arc::new(FollowShared {
            path: place.0,
            state: Mutex::new(state),
            changed: Condvar::new(),
            say: Box::new(say),
        });
        let own = Arc::clone(&shared);
        let thread = Builder::new().name("agent".to_owned()).spawn(move || own.run());
        if let Err(why) = &thread {
            shared.set_status(AgentStatus::Absent, &format!("no thread: {why}"));
        }
        Self { shared, thread: thread.ok() }
    }

    /// Says what could be sent.
    pub(super) fn set_demand(&self, demand: BitsPerSec) {
        let (mut state, now) = (self.shared.lock(), clock::now());
        state.demand = demand;
        if demand == BitsPerSec(0) {
            // Perhaps it is not for long; the thread says it.
            state.follower.rest(now);
        } else if now.since(state.sent_at) >= DEMAND_EVERY {
            state.send();
        }
    }

    /// Returns what the agent allows, if there is one; `others` is what everything else does.
    pub(super) fn take(&self, others: Option<BitsPerSec>) -> Option<BitsPerSec> {
        self.shared.lock().follower.take(clock::now(), others)
    }

    /// Returns the end of the pause that is now.
    pub(super) fn paused_until(&self, now: LocalNs) -> Option<LocalNs> {
        self.shared.lock().follower.paused_until(now)
    }

    /// Returns when a pause begins or ends next.
    pub(super) fn deadline(&self, now: LocalNs) -> Option<LocalNs> {
        self.shared.lock().follower.deadline(now)
    }

    /// Returns the price so far.
    pub(super) fn held(&self) -> HeldBack {
        self.shared.lock().follower.held()
    }

    /// Waits for the first grant, or the sentence that there is none, for half a second at most.
    pub(super) fn wait(&self) {
        let is_new = |state: &mut FollowState| state.status == AgentStatus::New;
        let state = self.shared.lock();
        drop(self.shared.changed.wait_timeout_while(state, FIRST_GRANT, is_new));
    }
}

impl Drop for AgentClient {
    fn drop(&mut self) {
        {
            let mut state = self.shared.lock();
            state.is_closing = true;
            // Wakes the thread.
            if let Some(socket) = &state.socket {
                let _ = shutdown(socket, Shutdown::Both);
            }
        }
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl FollowState {
    /// Sends the demand if the agent does not know it; the first one is something, so that the first
    /// grant answers it. What finds no room is sent later.
    fn send(&mut self) {
        let known = self.sent.unwrap_or(BitsPerSec(0));
        let (Some(socket), false) = (&self.socket, known == self.demand) else { return };
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        if send(socket, &AgentDemand(self.demand).encode(), flags).is_ok() {
            (self.sent, self.sent_at) = (Some(self.demand), clock::now());
        }
    }
}

impl FollowShared {
    fn lock(&self) -> MutexGuard<'_, FollowState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of how it stands with the agent, and says what changed.
    fn set_status(&self, status: AgentStatus, cause: &str) {
        let (before, kept) = {
            let (mut state, now) = (self.lock(), clock::now());
            let before = std::mem::replace(&mut state.status, status);
            (before, state.follower.clone().take(now, None))
        };
        self.changed.notify_all();
        if before == status {
            return;
        }
        let path = self.path.display();
        let stays = || match kept {
            Some(rate) => format!("{rate}, which it allowed last, is the limit until it does"),
            None => "nothing is limited until it does".to_owned(),
        };
        match (before, status) {
            (_, AgentStatus::Absent) => {
                (self.say)(&format!("the agent at {path} does not answer ({cause}); {}", stays()));
            }
            (_, AgentStatus::Full) => (self.say)(&format!(
                "the agent at {path} accepts no further scavenger ({SCAVENGERS_MAX} in all, {USER_MAX} of each user but root); nothing is limited until it does"
            )),
            (_, AgentStatus::Ended) => {
                (self.say)(&format!("the agent at {path} has ended; nothing is limited"));
            }
            (AgentStatus::New, _) | (_, AgentStatus::New) => {}
            (_, AgentStatus::Following) => {
                (self.say)(&format!("the agent at {path} answers again"))
            }
        }
    }

    /// Follows until the end.
    fn run(&self) {
        loop {
            let cause = match dial(&self.path) {
                Ok(socket) => self.follow(&Arc::new(socket)),
                Err(why) => why.to_string(),
            };
            let state = self.lock();
            if state.is_closing {
                return;
            }
            let is_out = !matches!(state.status, AgentStatus::Full | AgentStatus::Ended);
            // An agent that starts again in time is not missed.
            let is_over = is_out && !state.follower.is_following(clock::now());
            drop(state);
            if is_over {
                self.set_status(AgentStatus::Absent, &cause);
            }
            let is_open = |state: &mut FollowState| !state.is_closing;
            drop(self.changed.wait_timeout_while(self.lock(), CONNECT_AGAIN, is_open));
        }
    }

    /// Follows over a connection; returns why it ended.
    fn follow(&self, socket: &Arc<OwnedFd>) -> String {
        {
            let mut state = self.lock();
            if state.is_closing {
                // The end came before there was a connection to end.
                return String::new();
            }
            (state.socket, state.sent) = (Some(Arc::clone(socket)), None);
            state.send();
        }
        let ended = self.listen(socket);
        self.lock().socket = None;
        ended
    }

    fn listen(&self, socket: &OwnedFd) -> String {
        loop {
            let mut waiting = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
            match poll(&mut waiting, Some(&LOOK)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {
                    let mut state = self.lock();
                    state.send();
                    let is_late = state.status == AgentStatus::Following
                        && !state.follower.is_following(clock::now());
                    drop(state);
                    if is_late {
                        self.set_status(AgentStatus::Absent, "no grant within its lease");
                    }
                    continue;
                }
                Ok(_) => {}
                Err(why) => return why.to_string(),
            }
            let answer = match receive_answer(socket) {
                Ok(answer) => answer,
                Err(why) => match why.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => continue,
                    _ => return why.to_string(),
                },
            };
            let status = {
                let (mut state, now) = (self.lock(), clock::now());
                match answer {
                    AgentAnswer::Granted(grant) => {
                        state.follower.grant(now, grant);
                        AgentStatus::Following
                    }
                    AgentAnswer::Ends => {
                        state.follower.release();
                        AgentStatus::Ended
                    }
                    AgentAnswer::Full => {
                        state.follower.release();
                        AgentStatus::Full
                    }
                }
            };
            self.set_status(status, "");
        }
    }
}

#[cfg(test)]
mod tests {
    use clearway_proto::flow::AgentGrant;
    use rustix::net::{accept, bind, listen};

    use super::*;

    /// Returns what `ask` makes of an agent that sends `answer`.
    fn asked(name: &str, answer: Option<&[u8]>) -> io::Result<NodeAgentState> {
        let name = format!("clearway-agent-asked-{name}-{}.socket", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        let flags = SocketFlags::empty();
        let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        bind(&listener, &SocketAddrUnix::new(&path)?)?;
        listen(&listener, 1)?;
        let found = std::thread::scope(|scope| {
            scope.spawn(|| {
                let socket = accept(&listener).expect("it connects");
                let mut bytes = [0; AGENT_MESSAGE_BYTES + 1];
                let (length, _) = recv(&socket, &mut bytes, RecvFlags::empty()).expect("a demand");
                assert_eq!(AgentDemand::decode(&bytes[..length]), Some(AgentDemand(BitsPerSec(0))));
                answer.map(|answer| send(&socket, answer, SendFlags::NOSIGNAL));
            });
            ask(&path)
        });
        std::fs::remove_file(path)?;
        found
    }

    #[test]
    fn ask__the_answer_of_an_agent_says_how_it_is() {
        let grant = |is_held| {
            let (rate, lease) = (BitsPerSec(9), Nanos::from_secs(2));
            let grant =
                AgentGrant { rate, is_held, lease, pause_at: LocalNs(0), pause: Nanos::ZERO };
            AgentAnswer::Granted(grant).encode()
        };
        let held = asked("held", Some(&grant(true)));
        assert_eq!(held.expect("an answer"), NodeAgentState::Limits);
        let free = asked("free", Some(&grant(false)));
        assert_eq!(free.expect("an answer"), NodeAgentState::LimitsNothing);
        let full = asked("full", Some(&AgentAnswer::Full.encode()));
        assert_eq!(full.expect("an answer"), NodeAgentState::Full);
        assert!(asked("other", Some(b"HTTP")).is_err() && asked("ended", None).is_err());
        assert_eq!(
            ask(Path::new("/no/such/agent")).expect_err("none").kind(),
            io::ErrorKind::NotFound
        );
    }

    #[test]
    fn join__an_agent_that_accepts_nobody_does_not_keep_a_scavenger_from_its_end() {
        let name = format!("clearway-agent-stopped-{}.socket", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        let socket = || {
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::NONBLOCK, None)
                .expect("a socket")
        };
        let (listener, address) = (socket(), SocketAddrUnix::new(&path).expect("a path"));
        bind(&listener, &address).expect("bound");
        listen(&listener, 1).expect("it listens");
        // A stopped agent accepts nobody, and its queue is full after a while.
        let mut waiting = Vec::new();
        loop {
            let one = socket();
            if connect(&one, &address).is_err() {
                break;
            }
            waiting.push(one);
        }
        let client = AgentClient::join(AgentPlace(path.clone()), |_| ());
        client.set_demand(BitsPerSec(1_000_000));
        client.wait();
        assert_eq!(client.take(None), None);
        drop(client);
        std::fs::remove_file(path).expect("removed");
    }
}
