//! Credentials of munge around what ranks exchange: only processes of the same user can make them,
//! and only those can read them.
//!
//! # Model
//! Sites with Slurm run `munged` on every host, with one key for all. A process gives it bytes and
//! gets a *credential*, text that only a `munged` with the same key opens, and only for the user
//! that the credential names. It tells who made it: the kernel says so to the daemon. One question
//! is one connection to the daemon's socket: a header, a body, and the same back.
//!
//! Asked over the socket, not through `libmunge` or its programs: no library to load, no process
//! for each question.
//!
//! # Source
//! Version 4 of the daemon's protocol, as munge 0.5.15 speaks it.
//!
//! # Invariants
//! I1. Where this host has munge, what comes without a credential of this user is refused; where it
//!     has none, so is what comes with
//!     one.
//!
//! # Not here
//! The order of credentials in time. A credential that was opened before on this host is taken: all
//! ranks of a host open all.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use clearway_proto::base::ByteReader;

use super::LaunchError;
use super::send::send_all;

/// Where `munged` listens, as it is built everywhere.
const SOCKET: &str = "/run/munge/munge.socket.2";
/// What credentials begin with.
const PREFIX: &[u8] = b"MUNGE:";
/// The longest wait for the daemon; it answers within milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest answer taken: the longest that the daemon itself takes.
const ANSWER_MAX: usize = 1 << 20;

/// The header: magic number, version, kind, number of the attempt, length of the body, all
/// big-endian.
const HEADER: usize = 4 + 1 + 1 + 1 + 4;
const MAGIC: u32 = 0x0060_6d4b;
const VERSION: u8 = 4;
/// Kinds of messages.
const ENCODE: u8 = 2;
const ENCODED: u8 = 3;
const DECODE: u8 = 4;
const DECODED: u8 = 5;
/// The daemon's own choice, of cipher, digest and compression.
const ITS_CHOICE: u8 = 1;
/// A group that need not be.
const ANY: u32 = u32::MAX;
/// The daemon opened this credential before; what is in it is still told.
const REPLAYED: u8 = 17;

/// The daemon of this host.
#[derive(Debug)]
pub(super) struct MungeDaemon {
    socket: PathBuf,
}

impl MungeDaemon {
    /// Finds the daemon, if it answers.
    pub(super) fn find() -> Option<Self> {
        let found = Self { socket: PathBuf::from(SOCKET) };
        UnixStream::connect(&found.socket).ok().map(|_| found)
    }

    /// Returns a credential that holds `bytes` of `rank`, for processes of this user.
    pub(super) fn seal(&self, rank: u32, bytes: &[u8]) -> Result<Vec<u8>, LaunchError> {
        let data = [&rank.to_be_bytes()[..], bytes].concat();
        let mut body = vec![ITS_CHOICE, ITS_CHOICE, ITS_CHOICE, 0];
        for number in [0, own_user(), ANY, data.len() as u32] {
            body.extend_from_slice(&number.to_be_bytes());
        }
        body.extend_from_slice(&data);
        let answer = self.request(ENCODE, &body, ENCODED)?;
        match encoded(&answer).ok_or_else(garbled)? {
            (0, _, credential) => Ok(credential.to_vec()),
            (_, why, _) => Err(refused(format!("munge makes no credential: {why}"))),
        }
    }

    /// Returns what `rank` put into `credential`.
    pub(super) fn open(&self, rank: u32, credential: &[u8]) -> Result<Vec<u8>, LaunchError> {
        if !credential.starts_with(PREFIX) {
            let what = format!(
                "rank {rank} took part without a credential of munge, which this host has; run munged on all hosts of the job \
                 or on none"
            );
            return Err(refused(what));
        }
        let body = [&(credential.len() as u32).to_be_bytes()[..], credential].concat();
        let answer = self.request(DECODE, &body, DECODED)?;
        decoded(&answer).ok_or_else(garbled)?.check(rank, own_user())
    }

    /// Sends one question and returns its answer.
    fn request(&self, kind: u8, body: &[u8], expected: u8) -> Result<Vec<u8>, LaunchError> {
        let talk = || {
            let daemon = UnixStream::connect(&self.socket)?;
            daemon.set_read_timeout(Some(PATIENCE))?;
            daemon.set_write_timeout(Some(PATIENCE))?;
            send_all(&daemon, &[&header(kind, body.len())[..], body].concat())?;
            let mut answer = Vec::new();
            daemon.take((HEADER + ANSWER_MAX) as u64).read_to_end(&mut answer)?;
            Ok(answer)
        };
        let answer = talk().map_err(LaunchError::system("ask munged"))?;
        let body = answer.split_first_chunk::<HEADER>();
        let body = body
            .filter(|(head, body)| **head == header(expected, body.len()))
            .map(|(_, body)| body.to_vec());
        body.ok_or_else(garbled)
    }
}

/// Refuses what is in a credential, on a host that cannot open it.
pub(super) fn expect_plain(rank: u32, bytes: &[u8]) -> Result<(), LaunchError> {
    if !bytes.starts_with(PREFIX) {
        return Ok(());
    }
    let what = format!(
        "rank {rank} took part with a credential of munge, and no munged answers on this host; run it on all hosts of the job \
         or on none"
    );
    Err(refused(what))
}

/// Returns the user for whom the kernel vouches to the daemon.
fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn header(kind: u8, length: usize) -> [u8; HEADER] {
    let ([a, b, c, d], [w, x, y, z]) = (MAGIC.to_be_bytes(), (length as u32).to_be_bytes());
    [a, b, c, d, VERSION, kind, 0, w, x, y, z]
}

fn refused(what: String) -> LaunchError {
    LaunchError::Launcher { method: "keys", what }
}

fn garbled() -> LaunchError {
    refused("munged of this host gave an answer of another version of its protocol".to_owned())
}

/// An opened credential.
#[derive(Debug, PartialEq, Eq)]
struct OpenedCredential<'a> {
    code: u8,
    why: String,
    user: u32,
    data: &'a [u8],
}

impl OpenedCredential<'_> {
    /// Returns the bytes of `rank`, if it runs for `user`.
    fn check(&self, rank: u32, user: u32) -> Result<Vec<u8>, LaunchError> {
        if ![0, REPLAYED].contains(&self.code) {
            return Err(refused(format!(
                "munge refuses the credential of rank {rank}: {}",
                self.why
            )));
        }
        if self.user != user {
            return Err(refused(format!(
                "the credential of rank {rank} was made for user {}, not for user {user}",
                self.user
            )));
        }
        match self.data.split_first_chunk::<4>() {
            Some((owner, bytes)) if *owner == rank.to_be_bytes() => Ok(bytes.to_vec()),
            _ => Err(refused(format!(
                "the credential of rank {rank} was made by another rank or another program"
            ))),
        }
    }
}

fn number(rest: &mut ByteReader<'_>) -> Option<u32> {
    rest.take().map(u32::from_be_bytes)
}

/// Returns a field of at most 255 bytes.
fn short<'a>(rest: &mut ByteReader<'a>) -> Option<&'a [u8]> {
    let length = rest.u8()?;
    rest.run(length.into())
}

/// Reads a code, a sentence, and behind what `between` skips a field of any length, which is the
/// last.
fn opened<'a>(
    bytes: &'a [u8],
    between: impl FnOnce(&mut ByteReader<'a>) -> Option<u32>,
) -> Option<OpenedCredential<'a>> {
    let mut rest = ByteReader::new(bytes);
    let code = rest.u8()?;
    let why = String::from_utf8_lossy(short(&mut rest)?).trim_end_matches('\0').to_owned();
    let user = between(&mut rest)?;
    let length = number(&mut rest)?;
    let data = rest.run(length as usize)?;
    rest.is_empty().then_some(OpenedCredential { code, why, user, data })
}

fn encoded(bytes: &[u8]) -> Option<(u8, String, &[u8])> {
    let OpenedCredential { code, why, data, .. } = opened(bytes, |_| Some(ANY))?;
    // The text ends with a zero, which is none of it.
    Some((code, why, data.strip_suffix(b"\0").unwrap_or(data)))
}

fn decoded(bytes: &[u8]) -> Option<OpenedCredential<'_>> {
    opened(bytes, |rest| {
        rest.run(3)?; // cipher, digest, compression
        short(rest)?; // realm
        number(rest)?; // seconds to live
        short(rest)?; // address of the host
        rest.run(4 + 4)?; // when it was made, and opened
        let user = number(rest)?;
        rest.run(4 + 4 + 4)?; // its group, and for whom it is
        Some(user)
    })
}

#[cfg(test)]
mod tests;
