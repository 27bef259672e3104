//! The way into a job that runs: a process that knows the job's credential asks for the place of a
//! rank that died, and becomes that rank.
//!
//! # Model
//! ```text
//! candidate     proves that it knows the key of the credential (`door`)
//!              its version, host, and which rank it wants to be        sealed
//! coordinator  which rank it is and the job's secret, or why not       sealed
//! ```
//! From then on the connection is that of any rank: a process obeys it, and what is left of the
//! candidate waits for that process.
//!
//! # Not here
//! Which rank has no process: the coordinator of the run decides that. How other ranks hear of the
//! candidate: `processes`.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clearway_proto::base::Rank;
use clearway_runtime::door::{
    self, AcceptedPeer, DoorError, HandshakeLabels, KeyedListener, Limits, PeerPlace, SealedSender,
    StreamEnds,
};
use serde::{Deserialize, Serialize};

use super::follower::{CoordinatorConnection, FollowerEnd};
use super::host_description::{HostDescription, VERSION};
use super::listener::{random_word, tune};
use crate::run::exit::{Exit, UsageError};
use crate::run::processes::ending;

const PROTOCOL: HandshakeLabels =
    HandshakeLabels { magic: *b"clearway join 1\n", message_max: 64 << 10 };
/// A key of a job is used for nothing else, so that one number does for its sessions.
const SESSION: u64 = 0;
/// Few processes join a run, and few know its key.
const LIMITS: Limits =
    Limits { strangers: 16, each: 4, authenticated: 16, greeting: Duration::from_secs(5) };
/// How long a host may take to answer, and a coordinator that is between two runs.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What a process needs to ask a job for a place. A process that has it can be a rank of the job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JobCredential {
    version: String,
    /// The process that coordinates the job.
    pub(crate) process: u32,
    /// Its host, for a person.
    host: String,
    addresses: Vec<Ipv4Addr>,
    port: u16,
    key: String,
}

/// What a candidate wants.
#[derive(Debug, Serialize, Deserialize)]
struct JoinRequest {
    rank: Option<Rank>,
    description: HostDescription,
}

/// What it gets.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum JoinReply {
    Welcome {
        rank: Rank,
        job_secret: String,
    },
    /// There is no such rank.
    NoRank(String),
    Refused(String),
}

/// Why a candidate gets no place, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JoinRefusal {
    /// What it asks for cannot be in this job at any time.
    Never(String),
    /// It cannot be now.
    Now(String),
}

/// A process that has shown the key of a job, and waits for an answer.
pub(crate) struct JoinCandidate {
    request: JoinRequest,
    from: Ipv4Addr,
    connection: TcpStream,
    reply: SealedSender,
    _place: PeerPlace,
}

/// Where candidates of a job come in.
pub(super) struct AdmissionDoor {
    credential: JobCredential,
    candidates: Receiver<JoinCandidate>,
}

impl AdmissionDoor {
    /// Opens the door of the job that the process with `own` description coordinates, whose ranks
    /// are all on its machine if it is `alone`.
    pub(super) fn open(own: &HostDescription, alone: bool) -> Result<Self> {
        let listener = KeyedListener::open((Ipv4Addr::UNSPECIFIED, 0), LIMITS)
            .context("a port for ranks that join later")?;
        let key = random_word()?;
        let credential = JobCredential {
            version: VERSION.to_owned(),
            process: std::process::id(),
            host: own.host.clone(),
            addresses: own.reachable(alone),
            port: listener.address().context("the port that was bound")?.port(),
            key: key.clone(),
        };
        let (sender, candidates) = sync_channel(LIMITS.authenticated);
        let serve = move || {
            listener.serve(move |peer| {
                // A stranger, or one that left, gets no answer.
                let _ = receive(peer, &key, &sender);
            })
        };
        thread::Builder::new()
            .name("candidates".to_owned())
            .spawn(serve)
            .context("a thread for ranks that join later")?;
        Ok(Self { credential, candidates })
    }

    pub(super) fn credential(&self) -> &JobCredential {
        &self.credential
    }

    /// Returns the next that came, if one did.
    pub(super) fn next(&self) -> Option<JoinCandidate> {
        self.candidates.try_recv().ok()
    }
}

/// Lets `peer` show the key and say what it wants.
fn receive(
    peer: AcceptedPeer,
    key: &str,
    sender: &SyncSender<JoinCandidate>,
) -> Result<(), DoorError> {
    let receive_failed = DoorError::ReceiveFailed;
    let SocketAddr::V4(from) = peer.from() else { return Ok(()) };
    let connection = peer.stream().try_clone().map_err(receive_failed)?;
    tune(&connection).map_err(receive_failed)?;
    let Some((reply, mut receiver, place)) = peer.answer(&PROTOCOL, key.as_bytes())? else {
        return Ok(());
    };
    connection.set_read_timeout(Some(LIMITS.greeting)).map_err(receive_failed)?;
    let message = receiver.receive()?.unwrap_or_default();
    connection.set_read_timeout(None).map_err(receive_failed)?;
    let Ok(request) = serde_json::from_slice::<JoinRequest>(&message) else {
        return Err(DoorError::OtherProtocol);
    };
    let candidate = JoinCandidate { request, from: *from.ip(), connection, reply, _place: place };
    if let Err(TrySendError::Full(candidate)) = sender.try_send(candidate) {
        candidate.refuse(JoinRefusal::Now("too many ask for a place at once".to_owned()));
    }
    Ok(())
}

impl JoinCandidate {
    /// Returns which rank it wants to be, if it matters to it.
    pub(crate) fn wanted(&self) -> Option<Rank> {
        self.request.rank
    }

    /// Returns its host.
    pub(super) fn description(&self) -> &HostDescription {
        &self.request.description
    }

    /// Returns its address as seen from here.
    pub(super) fn from(&self) -> Ipv4Addr {
        self.from
    }

    /// Turns it away.
    pub(crate) fn refuse(mut self, why: JoinRefusal) {
        // One that is gone does not want to know.
        drop(self.say(&match why {
            JoinRefusal::Never(sentence) => JoinReply::NoRank(sentence),
            JoinRefusal::Now(sentence) => JoinReply::Refused(sentence),
        }));
    }

    /// Makes it `rank` of the job with this secret; returns its connection.
    ///
    /// # Errors
    /// It is gone.
    pub(super) fn welcome(mut self, rank: Rank, job_secret: String) -> Result<TcpStream> {
        self.say(&JoinReply::Welcome { rank, job_secret })?;
        Ok(self.connection)
    }

    fn say(&mut self, reply: &JoinReply) -> Result<()> {
        Ok(self.reply.send(&serde_json::to_vec(reply)?)?)
    }
}

/// Joins the job of `credential`, which is called `job`, as `wanted` or as any rank that died, and
/// is that rank until the run is over. `welcomed` is called when it has a place.
///
/// # Errors
/// One sentence: why there is no place, or how the rank ended.
pub(crate) fn join(
    job: &str,
    credential: &JobCredential,
    wanted: Option<Rank>,
    welcomed: impl FnOnce(Rank),
) -> Result<Exit> {
    let JobCredential { version, host, .. } = credential;
    if version != VERSION {
        bail!(
            "run `{job}` on host {host} runs version {} of this program and this one is {VERSION}: put the same on all",
            crate::report::numerals::printable(version)
        );
    }
    let connection = connect(job, credential)?;
    let reply = ask(&connection, credential, wanted)
        .map_err(|error| in_words(job, host, error))?
        .with_context(|| format!("run `{job}` on host {host} ended before it answered"))?;
    let (rank, job_secret) = match serde_json::from_slice(&reply) {
        Ok(JoinReply::Welcome { rank, job_secret }) => (rank, job_secret),
        Ok(JoinReply::NoRank(sentence)) => bail!(UsageError::new(sentence)),
        Ok(JoinReply::Refused(sentence)) => bail!("{sentence}"),
        Err(_) => return Err(in_words(job, host, DoorError::OtherProtocol)),
    };
    welcomed(rank);
    let name = format!("run `{job}` on host {host}");
    let coordinator = CoordinatorConnection { name, connection, job_secret };
    let status = coordinator.follow_rank()?;
    if status.success() {
        return Ok(Exit::Good);
    }
    if status.code() == Some(Exit::NoPart as i32) {
        coordinator.give_back();
        return Ok(Exit::Failed);
    }
    match coordinator.wait_for_the_end(status) {
        FollowerEnd::Ordered => bail!("rank {rank} {}", ending(status)),
        FollowerEnd::Lost => {
            bail!("rank {rank} {}, and {} is gone", ending(status), coordinator.name)
        }
    }
}

/// Connects to the first address of `credential` where somebody listens.
fn connect(job: &str, credential: &JobCredential) -> Result<TcpStream> {
    let JobCredential { host, addresses, port, .. } = credential;
    let each = TIMEOUT / addresses.len().max(1) as u32;
    let mut refused = Vec::new();
    for address in addresses {
        match TcpStream::connect_timeout(&SocketAddr::from((*address, *port)), each) {
            Ok(connection) => {
                tune(&connection).context("a connection that notices the end of its host")?;
                return Ok(connection);
            }
            Err(error) => refused.push(format!("{address}: {error}")),
        }
    }
    bail!(
        "run `{job}` cannot be reached at TCP port {port} of host {host} ({}); it may be over",
        refused.join("; ")
    )
}

/// Shows the key, and returns the answer to what is wanted; `None` when the other end closes the
/// connection instead.
fn ask(
    connection: &TcpStream,
    credential: &JobCredential,
    rank: Option<Rank>,
) -> Result<Option<Vec<u8>>, DoorError> {
    let clone = || connection.try_clone().map_err(DoorError::ReceiveFailed);
    connection.set_read_timeout(Some(TIMEOUT)).map_err(DoorError::ReceiveFailed)?;
    let ends: StreamEnds = (Box::new(clone()?), Box::new(clone()?));
    let (mut sender, mut receiver) =
        door::call(ends, &PROTOCOL, SESSION, credential.key.as_bytes())?;
    let own = HostDescription::own(None)
        .map_err(|error| DoorError::SendFailed(std::io::Error::other(format!("{error:#}"))))?;
    let request = JoinRequest { rank, description: own };
    let request = serde_json::to_vec(&request).unwrap_or_default();
    sender.send(&request)?;
    let reply = receiver.receive()?;
    connection.set_read_timeout(None).map_err(DoorError::ReceiveFailed)?;
    Ok(reply)
}

/// Returns what `error` means to somebody who wants to join.
fn in_words(job: &str, host: &str, error: DoorError) -> anyhow::Error {
    match error {
        DoorError::OtherKey => anyhow::anyhow!(
            "the credential of run `{job}` has another key than what listens on host {host}: it is of an earlier run, or was changed"
        ),
        DoorError::OtherProtocol => anyhow::anyhow!(
            "what listens for run `{job}` on host {host} is another version of this program: put the same on all"
        ),
        error => anyhow::Error::new(error)
            .context(format!("run `{job}` on host {host} gives no answer; it may be over")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn door() -> AdmissionDoor {
        AdmissionDoor::open(&HostDescription::own(None).expect("a card"), true).expect("a door")
    }

    /// Answers the next candidate with what `answer` says.
    fn next(door: &AdmissionDoor) -> JoinCandidate {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(candidate) = door.next() {
                return candidate;
            }
            assert!(Instant::now() < until, "nobody came");
            thread::yield_now();
        }
    }

    fn refused(credential: &JobCredential) -> anyhow::Error {
        join("j", credential, None, |_| panic!("no place")).expect_err("refused")
    }

    #[test]
    fn join__another_key_another_version_and_a_closed_port_have_a_sentence_each() {
        let door = door();
        let credential = door.credential().clone();
        let other = JobCredential { key: "0123456789abcdef".to_owned(), ..credential.clone() };
        let sentence = refused(&other).to_string();
        assert!(sentence.starts_with("the credential of run `j` has another key"), "{sentence}");
        let other = JobCredential { version: "0.0.1\n".to_owned(), ..credential.clone() };
        let sentence = refused(&other).to_string();
        assert!(sentence.contains("runs version 0.0.1") && !sentence.contains('\n'), "{sentence}");
        let free = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = free.local_addr().expect("bound").port();
        drop(free);
        let sentence = refused(&JobCredential { port, ..credential }).to_string();
        assert!(sentence.contains("it may be over"), "{sentence}");
        assert!(door.next().is_none(), "nobody was let in");
    }

    #[test]
    fn join__a_refusal_says_what_the_coordinator_says_and_whether_it_is_for_ever() {
        let door = door();
        for (refusal, exit) in [
            (JoinRefusal::Now("not now".to_owned()), Exit::Failed),
            (JoinRefusal::Never("not ever".to_owned()), Exit::WrongUsage),
        ] {
            let credential = door.credential().clone();
            let joins = thread::spawn(move || {
                join("j", &credential, Some(Rank(3)), |_| panic!("no place")).expect_err("refused")
            });
            let candidate = next(&door);
            assert_eq!(candidate.wanted(), Some(Rank(3)));
            candidate.refuse(refusal.clone());
            let error = joins.join().expect("no panic");
            let (JoinRefusal::Now(sentence) | JoinRefusal::Never(sentence)) = refusal;
            assert_eq!((error.to_string(), crate::run::exit::exit_of(&error)), (sentence, exit));
        }
    }
}
