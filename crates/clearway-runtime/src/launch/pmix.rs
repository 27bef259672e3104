//! Joins through PMIx, the library of Open MPI's launchers and of Slurm's `pmix` plug-in.
//!
//! # Model
//! An exchange is a put, a collecting fence, and one local get for each rank.
//!
//! Calls into the library block, and with a server of another release some never return. So they
//! are all made by one thread that does nothing else; the job asks it over a channel and waits no
//! longer than its timeout. A thread that does not come back is left behind and never asked again:
//! a probe in a forked child instead would connect to the server under this rank's name a second
//! time, and its end would count as this rank's.
//!
//! An abort is reported only to Slurm, which otherwise lets a step go on whose rank failed.
//! `mpirun` and `prterun` end a job by themselves when a rank exits without having left; asked to
//! abort, `mpirun` of Open MPI 4.1.4 crashed once in 40 runs and hung once in 100.
//!
//! # Source
//! PMIx Standard 4; run with OpenPMIx 4.2.2 and 5.0.11.
//!
//! # Invariants
//! I1. After the first time-out nothing is asked any more.

use std::ffi::{CStr, CString};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use super::calls::{FenceCollection, PmixIdentity, PmixLibrary, PmixStatus};
use super::environment::Environment;
use super::job::{HandOver, JobLink, ProgramShare};
use super::{
    EXCHANGE_MAX, JoinFailure, JoinMethod, JoinOptions, JoinedJob, LaunchError, RANKS_MAX,
};

/// The name in errors.
const METHOD: &str = "PMIx";

/// Releases whose structs are those that `calls` declares.
const MAJORS: std::ops::RangeInclusive<u32> = 4..=5;

/// The longest wait for the launcher to take an abort: this process ends anyway.
const ABORT_TIMEOUT: Duration = Duration::from_secs(2);

/// Variables for a program that connects as the same rank as this process: the library's store in
/// shared memory has one reader for each rank (4.2.2: `MPI_Init` does not find the local rank), so the
/// values come by messages.
const OF_PROGRAM: [(&str, &str); 1] = [("PMIX_GDS_MODULE", "hash")];

/// Joins when `PMIX_NAMESPACE` and `PMIX_RANK` are there.
pub(super) fn join(
    environment: &Environment,
    options: &JoinOptions,
) -> Result<JoinedJob, JoinFailure> {
    let Some(namespace) = environment.get("PMIX_NAMESPACE") else {
        return Err(JoinFailure::Absent("no PMIX_NAMESPACE in the environment"));
    };
    let rank = environment.number("PMIX_RANK")?;
    let (questions, asked) = channel();
    let (answer, answers) = channel();
    let library = options.pmix_library.clone();
    thread::Builder::new()
        .name("pmix".to_owned())
        .spawn(move || serve(library, &asked, &answer))
        .map_err(LaunchError::system("start a thread"))?;
    let mut desk = PmixLink {
        questions: Some(questions),
        answers,
        timeout: options.timeout,
        abort: abort_path(&namespace),
    };
    let PmixResponse::Joined(found) =
        desk.next_response("joining through PMIx", options.timeout)?
    else {
        return Err(JoinFailure::Failed("the library was asked for nothing".to_owned()));
    };
    let is_expected = found.namespace == namespace && found.rank == rank;
    if !is_expected || found.size > RANKS_MAX || rank >= found.size {
        let JoinedNamespace { namespace, rank, size, .. } = found;
        return Err(JoinFailure::Failed(format!(
            "the library takes this process for rank {rank} of {size} of `{namespace}`"
        )));
    }
    let link = Box::new(desk);
    Ok(JoinedJob {
        method: JoinMethod::Pmix { version: found.version },
        rank,
        size: found.size,
        secret: None,
        link,
    })
}

/// What the thread is asked to do.
enum PmixRequest {
    Exchange(Vec<u8>),
    Barrier,
    Finish,
    Abort(i32, CString),
}

/// What it says.
enum PmixResponse {
    Joined(JoinedNamespace),
    Everybody(Vec<Vec<u8>>),
    Done,
}

/// What joining found.
struct JoinedNamespace {
    version: String,
    namespace: String,
    rank: u32,
    size: u32,
}

/// Where the job asks and hears.
#[derive(Debug)]
struct PmixLink {
    /// Gone after a time-out (I1).
    questions: Option<Sender<PmixRequest>>,
    answers: Receiver<Result<PmixResponse, String>>,
    timeout: Duration,
    abort: AbortPath,
}

/// What a launcher needs when a rank gives up.
#[derive(Clone, Copy, Debug)]
enum AbortPath {
    /// To be notified.
    Notified,
    /// To see the rank's exit.
    Seen,
}

/// Returns what the launcher of this job needs: Slurm's plug-in names jobs `slurm.pmix.JOB.STEP`.
fn abort_path(namespace: &str) -> AbortPath {
    if is_of_slurm(namespace) { AbortPath::Notified } else { AbortPath::Seen }
}

/// Returns whether `namespace` is a job of Slurm's own plug-in.
pub(super) fn is_of_slurm(namespace: &str) -> bool {
    namespace.starts_with("slurm.")
}

impl PmixLink {
    fn request(
        &mut self,
        question: PmixRequest,
        what: &'static str,
    ) -> Result<PmixResponse, LaunchError> {
        let sent =
            self.questions.as_ref().is_some_and(|questions| questions.send(question).is_ok());
        if !sent {
            return Err(refused("the library does not answer any more".to_owned()));
        }
        self.next_response(what, self.timeout)
    }

    fn next_response(
        &mut self,
        what: &'static str,
        timeout: Duration,
    ) -> Result<PmixResponse, LaunchError> {
        match self.answers.recv_timeout(timeout) {
            Ok(answer) => answer.map_err(refused),
            Err(RecvTimeoutError::Timeout) => {
                self.questions = None;
                Err(LaunchError::TimedOut { what, timeout })
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(refused("the library's thread ended".to_owned()))
            }
        }
    }
}

impl JobLink for PmixLink {
    fn exchange(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, LaunchError> {
        match self.request(PmixRequest::Exchange(own.to_vec()), "an exchange with all ranks")? {
            PmixResponse::Everybody(all) => Ok(all),
            PmixResponse::Joined(_) | PmixResponse::Done => {
                Err(refused("the library's thread gave another answer".to_owned()))
            }
        }
    }

    fn barrier(&mut self) -> Result<(), LaunchError> {
        self.request(PmixRequest::Barrier, "a barrier of all ranks").map(drop)
    }

    fn hand_over(&mut self) -> Result<HandOver, LaunchError> {
        // The server takes the program for a part of this rank, as long as this process stays.
        let share = ProgramShare { variables: &OF_PROGRAM, descriptor: None };
        Ok(HandOver { has_barriers: false, share })
    }

    fn finish(mut self: Box<Self>) -> Result<(), LaunchError> {
        self.request(PmixRequest::Finish, "leaving through PMIx").map(drop)
    }

    fn abort(&mut self, code: i32, sentence: &str) {
        if matches!(self.abort, AbortPath::Seen) {
            return;
        }
        let sentence = CString::new(sentence.replace('\0', " ")).unwrap_or_default();
        self.timeout = ABORT_TIMEOUT;
        // Whatever comes of it, this process ends, and the launcher sees that too.
        let _ = self.request(PmixRequest::Abort(code, sentence), "an abort");
    }
}

fn refused(what: String) -> LaunchError {
    LaunchError::Launcher { method: METHOD, what }
}

/// Joins, then answers until nobody asks: the thread's life.
fn serve(
    library: Option<PathBuf>,
    questions: &Receiver<PmixRequest>,
    answers: &Sender<Result<PmixResponse, String>>,
) {
    let (mut client, found) = match PmixClient::start(library) {
        Ok(started) => started,
        Err(why) => return drop(answers.send(Err(why))),
    };
    if answers.send(Ok(PmixResponse::Joined(found))).is_err() {
        return client.leave();
    }
    for question in questions {
        let answer = match question {
            PmixRequest::Exchange(own) => client.exchange(&own).map(PmixResponse::Everybody),
            PmixRequest::Barrier => {
                client.library.fence(FenceCollection::Plain).map(|()| PmixResponse::Done)
            }
            PmixRequest::Finish => client.library.finalize().map(|()| PmixResponse::Done),
            PmixRequest::Abort(code, sentence) => {
                client.library.abort(code, &sentence).map(|()| PmixResponse::Done)
            }
        };
        let answer =
            answer.map_err(|status| format!("the library says {}", client.library.name(status)));
        if answers.send(answer).is_err() {
            return;
        }
    }
}

/// The library, connected.
struct PmixClient {
    library: PmixLibrary,
    identity: PmixIdentity,
    size: u32,
    exchanges: u32,
}

impl PmixClient {
    fn start(path: Option<PathBuf>) -> Result<(Self, JoinedNamespace), String> {
        let library = PmixLibrary::open(path.as_deref())?;
        let version = library.version();
        let release =
            release(&version).ok_or_else(|| format!("the library calls itself `{version}`"))?;
        if !MAJORS.contains(&release.1) {
            return Err(format!(
                "release {} is not one of {} to {}",
                release.0,
                MAJORS.start(),
                MAJORS.end()
            ));
        }
        let failed = |what: &str, status| {
            format!("{what} of release {} says {}", release.0, library.name(status))
        };
        let identity = library.init().map_err(|status| failed("PMIx_Init", status))?;
        let mut client = Self { library, identity, size: 0, exchanges: 0 };
        match library.number_of_job(&client.identity, c"pmix.job.size") {
            Ok(size) => client.size = size,
            Err(status) => {
                client.leave();
                return Err(failed("the job's size", status));
            }
        }
        let (namespace, rank) = (client.identity.namespace(), client.identity.rank());
        let found = JoinedNamespace { version: release.0, namespace, rank, size: client.size };
        Ok((client, found))
    }

    fn exchange(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, PmixStatus> {
        let key = format!("clearway.{}\0", self.exchanges);
        let key = CStr::from_bytes_with_nul(key.as_bytes()).expect("the only zero is the last");
        self.exchanges += 1;
        self.library.put(key, own)?;
        self.library.commit()?;
        self.library.fence(FenceCollection::Collecting)?;
        (0..self.size)
            .map(|rank| self.library.get(&self.identity, rank, key, EXCHANGE_MAX))
            .collect()
    }

    /// Leaves the server after a start that came to nothing, so that it does not take this process
    /// for a dead rank.
    fn leave(&self) {
        // There is nothing else that could be done.
        let _ = self.library.finalize();
    }
}

/// Returns the release in a library's name of itself, and its first number: `OpenPMIx 4.2.2 (PMIx
/// Standard: 4.2)`.
fn release(version: &str) -> Option<(String, u32)> {
    let word =
        version.split([' ', ',']).find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    let major = word.split('.').next()?.parse().ok()?;
    Some((word.chars().take(32).collect(), major))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release__is_the_first_word_that_begins_with_a_digit() {
        let found =
            release("OpenPMIx 4.2.2 (PMIx Standard: 4.2, Stable ABI: 0.0, Provisional ABI: 0.0)");
        assert_eq!(found, Some(("4.2.2".to_owned(), 4)));
        assert_eq!(release("OpenPMIx 5.0.11a1, repo rev: v5").unwrap().0, "5.0.11a1");
        assert_eq!(release("something"), None);
    }

    #[test]
    fn desk__nothing_is_asked_after_a_time_out() {
        let (questions, asked) = channel();
        let (_answer, answers) = channel();
        let mut desk = PmixLink {
            questions: Some(questions),
            answers,
            timeout: Duration::ZERO,
            abort: AbortPath::Seen,
        };
        assert!(matches!(desk.barrier(), Err(LaunchError::TimedOut { .. })));
        assert!(matches!(desk.barrier(), Err(LaunchError::Launcher { .. })));
        assert_eq!(asked.iter().count(), 1);
    }
}
