//! Asks the host's `munged` for credentials: it vouches for the user of a process to processes on all
//! hosts of its site.
//!
//! # Model
//! Sites with Slurm run `munged` on every host, with one key for all. A process gives it bytes and
//! gets a *credential*, text that only a `munged` with the same key opens, and only for the user
//! that the credential names. It tells who made it: the kernel says so to the daemon. One question
//! is one connection to the daemon's socket: a header, a body, and the same back.
//!
//! Asked over the socket, not through `libmunge` or its programs: no library to load, no process
//! for each question, and no secret on a command line.
//!
//! # Source
//! Version 4 of the daemon's protocol, as munge 0.5.15 speaks it.
//!
//! # Not here
//! Which credentials are taken: a daemon tells its verdict, and remembers for some minutes what was
//! opened on its own host, and on no other.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clearway_proto::base::ByteReader;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use thiserror::Error;

use crate::launch::send_all;

/// Where `munged` listens, as it is built everywhere.
pub const SOCKET: &str = "/run/munge/munge.socket.2";
/// What credentials begin with.
pub const PREFIX: &[u8] = b"MUNGE:";
/// The longest wait for the daemon; it answers within milliseconds.
const TIMEOUT: Duration = Duration::from_secs(10);
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
/// The daemon's codes for what is wrong with a credential; of the first three it still tells the
/// contents.
const EXPIRED: u8 = 15;
const REWOUND: u8 = 16;
const REPLAYED: u8 = 17;
const UNAUTHORIZED: u8 = 18;

/// Why a daemon gave no answer, or no credential.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MungeError {
    /// No daemon listens there, or it says nothing: start it.
    #[error("no munged answers at {socket}: {cause}; start it with `systemctl start munge`")]
    Silent {
        /// Its socket.
        socket: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// The answer has another form: use another release of munge.
    #[error("munged at {socket} gave an answer of another version of its protocol; use munge 0.5")]
    OtherVersion {
        /// Its socket.
        socket: PathBuf,
    },
    /// The daemon makes no credential: look into its log.
    #[error("munge makes no credential: {why}")]
    Refused {
        /// What it said.
        why: String,
    },
}

/// What a daemon says of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MungeVerdict {
    /// It was made with the same key, not long ago, for this user.
    Valid,
    /// It was opened on this host before.
    Replayed,
    /// It is too old, or the clocks of both hosts are too far apart.
    Expired,
    /// It was made in the future: the clocks of both hosts are too far apart.
    Rewound,
    /// It was made for another user than the one who asks.
    Unauthorized,
    /// It was made with another key, was changed, or is none.
    Invalid,
}

impl MungeVerdict {
    const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Valid,
            EXPIRED => Self::Expired,
            REWOUND => Self::Rewound,
            REPLAYED => Self::Replayed,
            UNAUTHORIZED => Self::Unauthorized,
            _ => Self::Invalid,
        }
    }
}

/// A credential that a daemon looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedCredential {
    /// Whether to take it.
    pub verdict: MungeVerdict,
    /// The verdict in the daemon's words.
    pub why: String,
    /// The user who made it.
    pub user: u32,
    /// What is in it.
    pub data: Vec<u8>,
}

/// The daemon of this host.
#[derive(Clone, Debug)]
pub struct MungeDaemon {
    socket: PathBuf,
}

impl MungeDaemon {
    /// Finds the daemon at the socket of all sites, if it answers.
    pub(crate) fn find() -> Option<Self> {
        Self::at(Path::new(SOCKET)).ok()
    }

    /// Finds the daemon at a socket.
    ///
    /// # Errors
    /// [`MungeError::Silent`].
    pub fn at(socket: &Path) -> Result<Self, MungeError> {
        let found = Self { socket: socket.to_owned() };
        found.connect().map_err(|cause| found.silent(cause))?;
        Ok(found)
    }

    /// Returns a credential of this user that holds `bytes`, for processes of the user `reader`.
    ///
    /// # Errors
    /// [`MungeError`].
    pub fn seal(&self, bytes: &[u8], reader: u32) -> Result<Vec<u8>, MungeError> {
        let mut body = vec![ITS_CHOICE, ITS_CHOICE, ITS_CHOICE, 0];
        for number in [0, reader, ANY, bytes.len() as u32] {
            body.extend_from_slice(&number.to_be_bytes());
        }
        body.extend_from_slice(bytes);
        let answer = self.request(ENCODE, &body, ENCODED)?;
        match encoded(&answer).ok_or_else(|| self.garbled())? {
            (0, _, credential) => Ok(credential.to_vec()),
            (_, why, _) => Err(MungeError::Refused { why }),
        }
    }

    /// Opens a credential, as far as it is one and meant for this user.
    ///
    /// # Errors
    /// [`MungeError::Silent`] and [`MungeError::OtherVersion`].
    pub fn open(&self, credential: &[u8]) -> Result<OpenedCredential, MungeError> {
        let body = [&(credential.len() as u32).to_be_bytes()[..], credential].concat();
        let answer = self.request(DECODE, &body, DECODED)?;
        decoded(&answer).ok_or_else(|| self.garbled())
    }

    /// Connects to the daemon. A daemon that hangs has a full backlog, where a connection that may
    /// wait would wait for ever.
    fn connect(&self) -> io::Result<UnixStream> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(&self.socket)?)?;
        let stream = UnixStream::from(socket);
        stream.set_nonblocking(false)?;
        Ok(stream)
    }

    /// Sends one question and returns its answer.
    fn request(&self, kind: u8, body: &[u8], expected: u8) -> Result<Vec<u8>, MungeError> {
        let talk = || {
            let until = Instant::now() + TIMEOUT;
            let daemon = self.connect()?;
            daemon.set_write_timeout(Some(TIMEOUT))?;
            send_all(&daemon, &[&header(kind, body.len())[..], body].concat())?;
            let (mut answer, mut part) = (Vec::new(), [0; 4096]);
            while answer.len() < HEADER + ANSWER_MAX {
                let left = until.saturating_duration_since(Instant::now());
                daemon.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
                match (&daemon).read(&mut part)? {
                    0 => break,
                    length => answer.extend_from_slice(part.get(..length).unwrap_or_default()),
                }
            }
            Ok(answer)
        };
        let answer = talk().map_err(|cause| self.silent(cause))?;
        let body = answer.split_first_chunk::<HEADER>();
        let body = body
            .filter(|(head, body)| **head == header(expected, body.len()))
            .map(|(_, body)| body.to_vec());
        body.ok_or_else(|| self.garbled())
    }

    fn silent(&self, cause: io::Error) -> MungeError {
        MungeError::Silent { socket: self.socket.clone(), cause }
    }

    fn garbled(&self) -> MungeError {
        MungeError::OtherVersion { socket: self.socket.clone() }
    }
}

fn header(kind: u8, length: usize) -> [u8; HEADER] {
    let ([a, b, c, d], [w, x, y, z]) = (MAGIC.to_be_bytes(), (length as u32).to_be_bytes());
    [a, b, c, d, VERSION, kind, 0, w, x, y, z]
}

/// The fields of an answer that are used.
struct RawCredential<'a> {
    code: u8,
    why: String,
    user: u32,
    data: &'a [u8],
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
) -> Option<RawCredential<'a>> {
    let mut rest = ByteReader::new(bytes);
    let code = rest.u8()?;
    let why = String::from_utf8_lossy(short(&mut rest)?).trim_end_matches('\0').to_owned();
    let user = between(&mut rest)?;
    let length = number(&mut rest)?;
    let data = rest.run(length as usize)?;
    rest.is_empty().then_some(RawCredential { code, why, user, data })
}

fn encoded(bytes: &[u8]) -> Option<(u8, String, &[u8])> {
    let RawCredential { code, why, data, .. } = opened(bytes, |_| Some(ANY))?;
    // The text ends with a zero, which is none of it.
    Some((code, why, data.strip_suffix(b"\0").unwrap_or(data)))
}

fn decoded(bytes: &[u8]) -> Option<OpenedCredential> {
    let RawCredential { code, why, user, data } = opened(bytes, |rest| {
        rest.run(3)?; // cipher, digest, compression
        short(rest)?; // realm
        number(rest)?; // seconds to live
        short(rest)?; // address of the host
        rest.run(4 + 4)?; // when it was made, and opened
        let user = number(rest)?;
        rest.run(4 + 4 + 4)?; // its group, and for whom it is
        Some(user)
    })?;
    let verdict = MungeVerdict::from_code(code);
    Some(OpenedCredential { verdict, why, user, data: data.to_vec() })
}

#[cfg(test)]
mod tests;
