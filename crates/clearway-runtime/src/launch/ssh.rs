//! A rank that [`start_over_ssh`](super::start_over_ssh) or [`start_here`](super::start_here)
//! started: reads its secret, finds the hub, ends with its coordinator, the process that started
//! it.
//!
//! # Model
//! The environment says which rank it is, where the hub may be, and which inherited descriptor has
//! the secrets. Their line, the rank's own secret and that of the job, is the first that the rank
//! reads from the descriptor. After it the descriptor stays open and silent as long as the
//! coordinator lives: its end means that the coordinator or its ssh ended, and the rank ends too.
//!
//! # Invariants
//! I1. A secret stands in no command line, no environment and no file.
//! I2. Standard input belongs to the program: it is neither read nor closed here.
//! I3. No program that this process starts inherits the descriptor. A program that held it could
//!     read the secrets.
//!
//! # Not here
//! The coordinator's side (`start`, `here`).

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use super::environment::Environment;
use super::rendezvous::LOST;
use super::rendezvous::frame::MemberKey;
use super::rendezvous::hub::JobFailure;
use super::rendezvous::member::{EndSource, JoinClaim, MemberLink};
use super::slurm::{host_name, resolve};
use super::{
    JobEndAction, JoinFailure, JoinMethod, JoinOptions, JoinedJob, LaunchError, RANKS_MAX,
};
use super::{calls, job};

/// The variables: rank, number of ranks, `HOST:PORT` of the hub, several separated by commas, and
/// the number of the descriptor that has the secrets.
pub(super) const RANK: &str = "CLEARWAY_RANK";
pub(super) const SIZE: &str = "CLEARWAY_SIZE";
pub(super) const MEET: &str = "CLEARWAY_MEET";
pub(super) const SECRET_FD: &str = "CLEARWAY_SECRET_FD";

/// Is set where the coordinator runs on this host.
pub(super) const HERE: &str = "CLEARWAY_HERE";

/// Bytes of a secret.
pub(super) const SECRET: usize = 32;

/// Hexadecimal digits of two secrets.
const DIGITS: usize = 4 * SECRET;

/// Most places that a hub may be at.
pub(super) const PLACES_MAX: usize = 16;

/// Has the descriptor of the secrets closed in programs that this process starts, the stand-in
/// among them, before any starts.
pub(super) fn keep_secret(environment: &Environment) {
    // `join` reports a descriptor that is wrong.
    let _ = environment.number(SECRET_FD).map(calls::close_on_exec);
}

/// Joins when the variables are there.
pub(super) fn join(
    environment: &Environment,
    options: &JoinOptions,
) -> Result<JoinedJob, JoinFailure> {
    if environment.get(RANK).is_none() {
        return Err(JoinFailure::Absent("no CLEARWAY_RANK in the environment"));
    }
    let begun = Instant::now();
    let source = calls::adopt(environment.number(SECRET_FD)?);
    let source = File::from(source.map_err(LaunchError::system(format!(
        "take over the descriptor that {SECRET_FD} names"
    )))?);
    let (rank, size) = (environment.number(RANK)?, environment.number(SIZE)?);
    if rank >= size || size > RANKS_MAX {
        return Err(JoinFailure::Failed(format!(
            "{RANK} {rank} of {SIZE} {size} is no rank of a job"
        )));
    }
    let meet =
        environment.get(MEET).ok_or_else(|| JoinFailure::Failed(format!("{MEET} is not set")))?;
    let (method, seen_from_here, lost) = match environment.get(HERE) {
        // There the connection is that of the user, whose machine has no part in the job.
        Some(_) => (JoinMethod::Here, None, "the process that started this job ended"),
        None => (
            JoinMethod::Ssh,
            environment.get("SSH_CONNECTION"),
            "the coordinator of this job, or its ssh, ended",
        ),
    };
    let places = places(&meet, seen_from_here.as_deref()).map_err(JoinFailure::Failed)?;
    let RankSecrets { own: key, job: secret } = read_secrets(source, options, lost)?;
    let rest = || options.timeout.saturating_sub(begun.elapsed());
    let addresses = addresses(&places, rest())?;
    let claim = JoinClaim { rank, size, host: host_name(), key };
    // What the hub tells, the coordinator says for all.
    let ending = options.ending;
    let on_end = move |end: &JobFailure, source| {
        job::end_process(
            ending,
            end.code,
            (source == EndSource::Silence).then_some(end.sentence.as_str()),
        )
    };
    let member = MemberLink::join(&claim, &addresses, rest(), Box::new(on_end))?;
    Ok(JoinedJob { method, rank, size, secret: Some(secret), link: Box::new(member) })
}

/// Returns where the hub may be, best first: where the ssh connection came from, then what the
/// coordinator calls itself.
fn places(meet: &str, ssh_connection: Option<&str>) -> Result<Vec<(String, u16)>, String> {
    let wrong = || format!("{MEET} is no list of HOST:PORT");
    let mut places: Vec<(String, u16)> = Vec::new();
    for place in meet.split(',').take(PLACES_MAX) {
        let (host, port) = place.rsplit_once(':').ok_or_else(wrong)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        places.push((host.to_owned(), port.parse().map_err(|_| wrong())?));
    }
    let port = places.first().map(|(_, port)| *port).ok_or_else(wrong)?;
    let client = ssh_connection
        .and_then(|words| words.split(' ').next())
        .filter(|client| !client.is_empty());
    if let Some(client) = client {
        places.insert(0, (client.to_owned(), port));
    }
    Ok(places)
}

/// Returns the addresses of `places`, without those whose name nobody knows.
fn addresses(places: &[(String, u16)], timeout: Duration) -> Result<Vec<SocketAddr>, LaunchError> {
    let mut addresses = Vec::new();
    let mut last = None;
    for (host, port) in places {
        match resolve(vec![host.clone()], vec![*port], timeout) {
            Ok(mut found) => addresses.append(&mut found),
            Err(error) => last = Some(error),
        }
    }
    match last {
        Some(error) if addresses.is_empty() => Err(error),
        _ => Ok(addresses),
    }
}

/// The secrets that the coordinator gives a rank.
struct RankSecrets {
    /// Known to this rank and the coordinator.
    own: MemberKey,
    /// Known to all ranks.
    job: MemberKey,
}

fn read_secret_line(line: &str) -> Option<RankSecrets> {
    let digits = line.trim_end();
    let value = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(value).collect();
    let bytes = Zeroizing::new(bytes?);
    let (own, job) = bytes.split_at_checked(SECRET)?;
    (digits.len() == DIGITS)
        .then(|| RankSecrets { own: MemberKey::new(own), job: MemberKey::new(job) })
}

/// Takes the secrets from `source`, and leaves a thread there that ends this process with its
/// coordinator.
fn read_secrets(
    source: File,
    options: &JoinOptions,
    lost: &'static str,
) -> Result<RankSecrets, LaunchError> {
    let (ending, timeout) = (options.ending, options.timeout);
    let (found, secrets) = channel();
    let life = move || watch(source, &found, ending, lost);
    thread::Builder::new()
        .name("coordinator".to_owned())
        .spawn(life)
        .map_err(LaunchError::system("start a thread"))?;
    match secrets.recv_timeout(timeout) {
        Ok(Some(secrets)) => Ok(secrets),
        Ok(None) => {
            let what = format!(
                "the descriptor that {SECRET_FD} names does not begin with the coordinator's secret"
            );
            Err(LaunchError::Launcher { method: "ssh", what })
        }
        Err(_) => {
            Err(LaunchError::TimedOut { what: "the arrival of the coordinator's secret", timeout })
        }
    }
}

fn watch(source: File, found: &Sender<Option<RankSecrets>>, ending: JobEndAction, lost: &str) {
    let mut input = BufReader::new(source);
    let mut line = Zeroizing::new(Vec::new());
    let is_read = input.by_ref().take(DIGITS as u64 + 1).read_until(b'\n', &mut line).is_ok();
    let secrets = str::from_utf8(&line).ok().filter(|_| is_read).and_then(read_secret_line);
    let is_ours = secrets.is_some();
    if found.send(secrets).is_err() || !is_ours {
        return;
    }
    let mut rest = [0; 512];
    loop {
        match input.read(&mut rest) {
            Ok(1..) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // A connection that breaks is an end too.
            Ok(0) | Err(_) => job::end_process(ending, LOST, Some(lost)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::remote::secret_line;
    use super::*;

    #[test]
    fn secret__is_one_line_that_only_its_reader_takes() {
        let line = secret_line(&[[0xa5; SECRET], [0x0f; SECRET]].concat());
        assert_eq!(line, format!("{}{}\n", "a5".repeat(SECRET), "0f".repeat(SECRET)));
        let secrets = read_secret_line(&line).unwrap();
        assert_eq!(
            (secrets.own.bytes(), secrets.job.bytes()),
            (&[0xa5; SECRET][..], &[0x0f; SECRET][..])
        );
        for wrong in ["a5", "g5a5", "a5a5a5", "a\u{e9}a"].map(|word| word.repeat(SECRET)) {
            assert!(read_secret_line(&wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn places__where_ssh_came_from_is_asked_first() {
        let found =
            places("login:4000,[fe80::1]:4000", Some("10.0.0.7 51000 10.0.0.9 22")).unwrap();
        let hosts: Vec<_> = found.iter().map(|(host, _)| host.as_str()).collect();
        assert_eq!(hosts, ["10.0.0.7", "login", "fe80::1"]);
        assert!(found.iter().all(|(_, port)| *port == 4000));
        assert!(places("login", None).is_err());
        assert!(places("login:99999", None).is_err());
    }
}
