//! A member of a budget: asks the coordinator of the site what this process may send of a class.
//!
//! # Model
//! One thread for each member calls the coordinator, asks, and listens on a second thread. The
//! thread that sends takes the rate every [`TAKE_EVERY`].
//!
//! # Invariants
//! I1. Without a coordinator nothing stops: the floor of the budget stays, and one sentence says so.
//! I2. The end of a member gives its part back, if there is a connection.
//!
//! # Not here
//! Who gets how much ([`clearway_proto::flow::BudgetCoordinator`]).

use std::fmt;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clearway_proto::base::{BitsPerSec, Class, LocalNs, Nanos};
use clearway_proto::flow::{
    ANSWER_BYTES, BudgetAnswer, BudgetMember, BudgetRefusal, BudgetRequest, LEASE, MEMBERS_MAX,
    TAKE_EVERY, budget_floor,
};
use clearway_runtime::door::{self, HandshakeLabels, SealedReceiver, SealedSender};
use clearway_runtime::{clock, keys};

use crate::run::job::tune;
use crate::run::key_file::key;

/// Where coordinators listen: a port that IANA gave to nobody, next to that of `stage serve`.
pub(super) const PORT: u16 = 27184;
/// The conversation of members with a coordinator.
pub(super) const PROTOCOL: HandshakeLabels =
    HandshakeLabels { magic: *b"clearway grant1\n", message_max: ANSWER_BYTES as u32 };
/// The secret of coordinators without a key: everybody may know it.
pub(super) const OPEN_SECRET: &[u8] = b"clearway: a coordinator without a key";
/// How long the coordinator may take to answer a call.
const CALL: Duration = Duration::from_secs(1);
/// How long a sender waits for its first grant before it begins with the floor.
const FIRST_ANSWER: Duration = Duration::from_millis(500);
/// Between two calls.
const CALL_AGAIN: Duration = Duration::from_millis(250);
/// How often a member looks at its demand.
const LOOK: Duration = Duration::from_millis(50);
/// A sender that did not take the rate for so long does not send.
const IDLE: Nanos = TAKE_EVERY.times(3);

/// Where the coordinator of a site listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CoordinatorPlace {
    host: String,
    port: u16,
    /// The file with its key; none where it has none.
    pub(super) key: Option<PathBuf>,
}

impl fmt::Display for CoordinatorPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl FromStr for CoordinatorPlace {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WHY: &str = "no place of a coordinator; HOST or HOST:PORT is one";
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, port.parse().map_err(|_| WHY)?),
            None => (text, PORT),
        };
        let is_host = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if host.is_empty() || port == 0 || !host.chars().all(is_host) {
            return Err(WHY);
        }
        Ok(Self { host: host.to_owned(), port, key: None })
    }
}

/// The budget of a class over all hosts, and who divides it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BudgetTerms {
    pub(super) class: Class,
    pub(super) budget: BitsPerSec,
    pub(super) place: CoordinatorPlace,
}

impl fmt::Display for BudgetTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.budget.fmt(f)
    }
}

/// What the coordinator last answered to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MembershipStatus {
    New,
    Granted,
    Refused(BudgetRefusal),
    Absent,
}

struct ClientState {
    member: BudgetMember,
    /// When the sender took the rate last.
    taken_at: LocalNs,
    heard_at: LocalNs,
    status: MembershipStatus,
    is_connected: bool,
    is_closing: bool,
}

struct ClientShared {
    terms: BudgetTerms,
    state: Mutex<ClientState>,
    changed: Condvar,
    say: Box<dyn Fn(&str) + Send + Sync>,
}

/// A member of a budget, which leaves it when this is dropped.
pub(crate) struct BudgetClient {
    shared: Arc<ClientShared>,
    thread: Option<JoinHandle<()>>,
}

impl BudgetTerms {
    /// Asks for a part of the budget from now on. `say` gets a sentence when the coordinator is
    /// absent, refuses, or is there again.
    pub(crate) fn join(self, say: impl Fn(&str) + Send + Sync + 'static) -> BudgetClient {
        let now = clock::now();
        // A name that two members have would let each give away the part of the other.
        let name = keys::random().map_or(u64::from(std::process::id()), u64::from_le_bytes);
        let member = BudgetMember::new(now, self.class, name, budget_floor(self.budget));
        let state = ClientState {
            member,
            taken_at: now,
            heard_at: now,
            status: MembershipStatus::New,
            is_connected: false,
            is_closing: false,
        };
        let shared = Arc::new(ClientShared {
            terms: self,
            state: Mutex::new(state),
            changed: Condvar::new(),
            say: Box::new(say),
        });
        let own = Arc::clone(&shared);
        let thread = Builder::new().name("budget".to_owned()).spawn(move || own.run());
        if let Err(why) = &thread {
            shared.set_status(MembershipStatus::Absent, &format!("no thread: {why}"));
        }
        BudgetClient { shared, thread: thread.ok() }
    }

    /// Returns where the coordinator listens.
    pub(crate) fn place(&self) -> String {
        self.place.to_string()
    }

    /// Calls the coordinator.
    ///
    /// # Errors
    /// One sentence: it cannot be reached, or has another key.
    pub(crate) fn call(&self) -> Result<(SealedSender, SealedReceiver, TcpStream)> {
        let CoordinatorPlace { host, port, key: file } = &self.place;
        let secret = file.as_deref().map_or_else(|| Ok(OPEN_SECRET.to_vec()), key)?;
        let addresses = (host.as_str(), *port).to_socket_addrs().context("no such host")?;
        let mut failed = anyhow!("its host has no address");
        for address in addresses {
            match TcpStream::connect_timeout(&address, CALL) {
                Ok(stream) => {
                    tune(&stream)?;
                    stream.set_read_timeout(Some(CALL))?;
                    stream.set_write_timeout(Some(CALL))?;
                    let ends =
                        (Box::new(stream.try_clone()?) as _, Box::new(stream.try_clone()?) as _);
                    let (sender, receiver) = door::call(ends, &PROTOCOL, 0, &secret)?;
                    return Ok((sender, receiver, stream));
                }
                Err(why) => failed = why.into(),
            }
        }
        Err(failed)
    }
}

impl BudgetClient {
    /// Returns what may be sent from now on; to be called every 100 ms.
    pub(crate) fn take(&self) -> BitsPerSec {
        let (mut state, now) = (self.shared.lock(), clock::now());
        state.taken_at = now;
        let rate = state.member.take(now);
        if state.member.deadline() <= now {
            self.shared.changed.notify_all();
        }
        rate
    }

    /// Returns what may be sent without the coordinator.
    pub(crate) fn floor(&self) -> BitsPerSec {
        budget_floor(self.shared.terms.budget)
    }

    /// Says what could be sent: more than any link has while there is something to send, else
    /// nothing.
    pub(crate) fn set_demand(&self, demand: BitsPerSec) {
        self.shared.lock().member.set_demand(clock::now(), demand);
        self.shared.changed.notify_all();
    }

    /// Waits for the first answer, or for the sentence that there is none, for half a second at most.
    pub(crate) fn wait(&self) {
        self.wait_for(FIRST_ANSWER);
    }

    fn wait_for(&self, most: Duration) {
        let is_new = |state: &mut ClientState| state.status == MembershipStatus::New;
        let state = self.shared.lock();
        drop(self.shared.changed.wait_timeout_while(state, most, is_new));
    }
}

impl Drop for BudgetClient {
    fn drop(&mut self) {
        let is_connected = {
            let mut state = self.shared.lock();
            state.is_closing = true;
            state.is_connected
        };
        self.shared.changed.notify_all();
        // A thread that still calls gives nothing back, and can wait for long.
        if let Some(thread) = self.thread.take().filter(|_| is_connected) {
            let _ = thread.join();
        }
    }
}

impl ClientShared {
    fn lock(&self) -> MutexGuard<'_, ClientState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the status of the member, and reports a change.
    fn set_status(&self, status: MembershipStatus, cause: &str) {
        let before = std::mem::replace(&mut self.lock().status, status);
        self.changed.notify_all();
        if before == status {
            return;
        }
        let BudgetTerms { class, budget, place } = &self.terms;
        let floor = budget_floor(*budget);
        match (before, status) {
            (_, MembershipStatus::Absent) => (self.say)(&format!(
                "the coordinator {place} does not answer ({cause}); {class} is sent at up to {floor} until it does"
            )),
            (_, MembershipStatus::Refused(BudgetRefusal::Full)) => (self.say)(&format!(
                "the coordinator {place} has {MEMBERS_MAX} members, the most of a budget; {class} is sent at up to {floor}"
            )),
            (_, MembershipStatus::Refused(BudgetRefusal::NoBudget)) => (self.say)(&format!(
                "the coordinator {place} has no budget for {class}, which is sent at up to {floor}; give all hosts the same policy"
            )),
            (MembershipStatus::New, _) | (_, MembershipStatus::New) => {}
            (_, MembershipStatus::Granted) => {
                (self.say)(&format!("the coordinator {place} answers again"));
            }
        }
    }

    /// Asks until the end.
    fn run(self: Arc<Self>) {
        loop {
            let cause = match self.terms.call() {
                Ok(link) => self.ask(link),
                Err(why) => Some(format!("{why:#}")),
            };
            let Some(cause) = cause else { return };
            // A coordinator that starts again in time is not missed.
            if self.lock().member.used(clock::now()).is_none() {
                self.set_status(MembershipStatus::Absent, &cause);
            }
            let is_open = |state: &mut ClientState| !state.is_closing;
            let waited = self.changed.wait_timeout_while(self.lock(), CALL_AGAIN, is_open);
            if waited.is_ok_and(|(state, _)| state.is_closing) {
                return;
            }
        }
    }

    /// Asks over a connection; returns why it ended, or nothing when the member has left.
    fn ask(
        self: &Arc<Self>,
        (mut sender, receiver, stream): (SealedSender, SealedReceiver, TcpStream),
    ) -> Option<String> {
        let ended = stream.set_read_timeout(None).map_err(|why| why.to_string()).err();
        {
            let (mut state, now) = (self.lock(), clock::now());
            (state.is_connected, state.heard_at) = (ended.is_none(), now);
            state.member.renew_soon(now);
        }
        let own = Arc::clone(self);
        let listener =
            Builder::new().name("budget-answers".to_owned()).spawn(move || own.listen(receiver));
        let cause = match (&listener, ended) {
            (Ok(_), None) => self.talk(&mut sender),
            (Err(why), _) => Some(format!("no thread: {why}")),
            (_, ended) => ended,
        };
        self.lock().is_connected = false;
        let _ = stream.shutdown(std::net::Shutdown::Both);
        if let Ok(listener) = listener {
            let _ = listener.join();
        }
        cause
    }

    fn talk(&self, sender: &mut SealedSender) -> Option<String> {
        let mut state = self.lock();
        loop {
            let now = clock::now();
            if now.since(state.taken_at) > IDLE {
                // Others must not wait for one that sends nothing.
                state.member.take(now);
            }
            if state.is_closing {
                let _ = sender.send(&state.member.clone().leave(now).encode());
                return None;
            }
            if !state.is_connected {
                return Some("the connection ended".to_owned());
            }
            if now.since(state.heard_at) > LEASE {
                return Some("no answer".to_owned());
            }
            if let Some(request) = state.member.poll(now) {
                drop(state);
                if let Err(why) = self.send(sender, &request) {
                    return Some(why);
                }
                state = self.lock();
                continue;
            }
            let next = Duration::from_nanos(state.member.deadline().since(now).0).min(LOOK);
            let waited = self.changed.wait_timeout(state, next);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn send(&self, sender: &mut SealedSender, request: &BudgetRequest) -> Result<(), String> {
        sender.send(&request.encode()).map_err(|why| why.to_string())
    }

    /// Takes answers until the connection ends.
    fn listen(&self, mut receiver: SealedReceiver) {
        while let Ok(Some(bytes)) = receiver.receive()
            && let Some(answer) = BudgetAnswer::decode(&bytes)
        {
            let status = {
                let (mut state, now) = (self.lock(), clock::now());
                state.heard_at = now;
                match answer {
                    BudgetAnswer::Granted(grant) => {
                        state.member.granted(now, &grant);
                        MembershipStatus::Granted
                    }
                    BudgetAnswer::Refused(why) => {
                        state.member.refused(now);
                        MembershipStatus::Refused(why)
                    }
                }
            };
            self.set_status(status, "");
        }
        self.lock().is_connected = false;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};
    use std::thread;

    use clearway_runtime::door::{KeyedListener, Limits};

    use super::super::coordinator::BudgetServer;
    use super::*;

    const BUDGET: BitsPerSec = BitsPerSec::mega(1_000);
    const MOST: BitsPerSec = BitsPerSec(u64::MAX);
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Returns a coordinator of bulk data that is old enough to grant, and the terms of a member.
    fn coordinator(class: Class) -> (Arc<BudgetServer>, BudgetTerms) {
        let limits =
            Limits { strangers: 4, each: 4, authenticated: 4, greeting: Duration::from_secs(60) };
        let listener = KeyedListener::open("127.0.0.1:0", limits).expect("a port");
        let port = listener.address().expect("bound").port();
        let desk = Arc::new(BudgetServer::default());
        desk.begin(LocalNs(0), Class::Bulk, 1, BUDGET);
        let door = Arc::clone(&desk);
        // The thread ends with the tests: a listener has no end.
        thread::spawn(move || listener.serve(move |peer| door.receive(peer, OPEN_SECRET)));
        (desk, terms(class, port))
    }

    fn terms(class: Class, port: u16) -> BudgetTerms {
        let place = CoordinatorPlace { host: "127.0.0.1".to_owned(), port, key: None };
        BudgetTerms { class, budget: BUDGET, place }
    }

    fn join(terms: BudgetTerms) -> (BudgetClient, Receiver<String>) {
        let (said, hear) = channel();
        let say = Mutex::new(said);
        let client = terms.join(move |sentence| {
            let _ = say.lock().expect("no fault").send(sentence.to_owned());
        });
        (client, hear)
    }

    /// Takes the rate until it is `rate`.
    fn take_until(client: &BudgetClient, rate: BitsPerSec) {
        while client.take() != rate {
            thread::yield_now();
        }
    }

    #[test]
    fn take__members_share_and_one_that_leaves_gives_its_part_back() {
        let (desk, terms) = coordinator(Class::Bulk);
        let (one, _said) = join(terms.clone());
        one.set_demand(MOST);
        take_until(&one, BUDGET);
        let (other, _said) = join(terms);
        other.set_demand(MOST);
        let both = thread::spawn(move || {
            take_until(&other, BitsPerSec(BUDGET.0 / 2));
            other
        });
        take_until(&one, BitsPerSec(BUDGET.0 / 2));
        while !both.is_finished() {
            one.take();
        }
        assert_eq!(desk.usage()[0].1.members, 2);
        drop(both.join().expect("no panic"));
        take_until(&one, BUDGET);
        assert_eq!(desk.usage()[0].1.members, 1);
    }

    #[test]
    fn join__a_coordinator_without_this_budget_or_none_at_all_leaves_the_floor() {
        let (_desk, terms) = coordinator(Class::Scavenger);
        let (client, said) = join(terms);
        client.set_demand(MOST);
        let sentence = said.recv_timeout(PATIENCE).expect("a sentence");
        assert!(sentence.contains("has no budget for scavenger"), "{sentence}");
        assert_eq!(client.take(), budget_floor(BUDGET));
        // Nobody listens at a port that was just closed.
        let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr();
        let (client, said) = join(self::terms(Class::Bulk, port.expect("bound").port()));
        client.wait_for(PATIENCE);
        assert_eq!(client.take(), budget_floor(BUDGET));
        let sentence = said.recv_timeout(PATIENCE).expect("a sentence");
        assert!(sentence.contains("does not answer (Connection refused"), "{sentence}");
        assert!(sentence.ends_with("bulk is sent at up to 1 Mb/s until it does"), "{sentence}");
    }

    #[test]
    fn from_str__a_place_is_a_host_with_or_without_a_port() {
        let place = |text: &str| text.parse::<CoordinatorPlace>().map(|place| place.to_string());
        assert_eq!(place("mgmt"), Ok("mgmt:27184".to_owned()));
        assert_eq!(place("10.0.0.7:5"), Ok("10.0.0.7:5".to_owned()));
        for wrong in ["", ":5", "a:0", "a:70000", "a b", "a:b:5", "\u{1b}[2J"] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }
}
