//! A credential of munge in place of a key file: how a user of the site gets a secret to a server.
//!
//! # Model
//! ```text
//!   mount  --MAGIC--> server
//!   mount  <--MAGIC, refusal or 0, user of the server u32, nonce--  server
//!   mount  --length u16, credential (purpose, nonce, secret)--> server
//!   mount  <--refusal or 0--  server
//! ```
//! What follows is the proof of a key, and the key is the secret. munge encrypts the credential for
//! the user of the server, and tells the server whose it is.
//!
//! # Invariants
//! I1. A secret comes from the user that munge names, for this connection: the nonce is drawn for
//!     it, and no credential is opened twice.
//! I2. Only root's servers and the user's own are given a secret: any user could listen at the port
//!     of a server that has ended. A server that cannot open the credential gets no further.
//! I3. What is said in the clear never ends a working mount: somebody in between could have said it.
//!
//! # Not here
//! Root of a host. Munge names it as it names users, but it speaks for all of them.

use std::fmt;
use std::io::{self, Read, Write};

use anyhow::{Context, Result, anyhow, bail};
use clearway_fs::network::User;
use clearway_proto::base::ByteReader;
use clearway_runtime::keys;
use clearway_runtime::munge::{MungeError, MungeVerdict, OpenedCredential, PREFIX};

/// The first bytes of both ends, as long as those of the proof of a key.
pub(super) const MAGIC: [u8; 16] = *b"clearway munge 1";
/// What a credential is for: one that another program asked for is none of a mount.
const PURPOSE: &[u8] = b"clearway stage: the secret of a mount, 1\n";
const NONCE: usize = 32;
const SECRET: usize = 32;
/// The longest credential taken; those of mounts have some 300 bytes.
const CREDENTIAL_MAX: u16 = 4096;
/// The server's first words: magic, refusal, its user, nonce.
const HELLO: usize = MAGIC.len() + 1 + 4 + NONCE;
const ACCEPTED: u8 = 0;

/// Why a server takes no credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MungeRefusal {
    NotAccepted = 1,
    Silent = 2,
    OtherKey = 3,
    Expired = 4,
    Rewound = 5,
    Replayed = 6,
    OtherReader = 7,
    OtherConnection = 8,
    Root = 9,
    UnknownUser = 10,
    OtherUser = 11,
}

impl MungeRefusal {
    const ALL: [Self; 11] = [
        Self::NotAccepted,
        Self::Silent,
        Self::OtherKey,
        Self::Expired,
        Self::Rewound,
        Self::Replayed,
        Self::OtherReader,
        Self::OtherConnection,
        Self::Root,
        Self::UnknownUser,
        Self::OtherUser,
    ];

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|refusal| *refusal as u8 == code)
    }
}

impl fmt::Display for MungeRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAccepted => {
                "the server takes no credentials of munge; start it with --munge, or mount with --key FILE"
            }
            Self::Silent => {
                "no munged answers on the host of the server; start it there with `systemctl start munge`"
            }
            Self::OtherKey => {
                "munged on the host of the server cannot open the credential; give both hosts the same munge.key, or mount with --key FILE"
            }
            Self::Expired => {
                "the credential is too old for munged on the host of the server; set the clocks of both hosts"
            }
            Self::Rewound => {
                "the credential comes from the future for munged on the host of the server; set the clocks of both hosts"
            }
            Self::Replayed => "the credential was opened before; mount again",
            Self::OtherReader => {
                "the credential was made for another user than that of the server; mount again"
            }
            Self::OtherConnection => {
                "the credential was made for another connection or by another program; mount again"
            }
            Self::Root => {
                "a credential of munge is for users, and root of a host speaks for all of them; mount with a key of hosts (--key FILE)"
            }
            Self::UnknownUser => {
                "the host of the server does not know this user; mount with --key FILE, or create the user there"
            }
            Self::OtherUser => {
                "the server runs as another user, and serves with --munge that user only; mount a server of root, or with --key FILE"
            }
        })
    }
}

/// The user and the secret of a credential.
pub(super) struct MungePeer {
    pub(super) user: User,
    pub(super) secret: Vec<u8>,
}

/// Returns the user of a credential, and its secret.
fn check_credential(
    opened: &OpenedCredential,
    nonce: &[u8; NONCE],
) -> Result<(u32, Vec<u8>), MungeRefusal> {
    match opened.verdict {
        MungeVerdict::Valid => {}
        MungeVerdict::Replayed => return Err(MungeRefusal::Replayed),
        MungeVerdict::Expired => return Err(MungeRefusal::Expired),
        MungeVerdict::Rewound => return Err(MungeRefusal::Rewound),
        MungeVerdict::Unauthorized => return Err(MungeRefusal::OtherReader),
        _ => return Err(MungeRefusal::OtherKey),
    }
    let mut rest = ByteReader::new(&opened.data);
    let is_for_this =
        rest.run(PURPOSE.len()) == Some(PURPOSE) && rest.take::<NONCE>().as_ref() == Some(nonce);
    let secret = rest.take::<SECRET>().filter(|_| is_for_this && rest.is_empty());
    let secret = secret.ok_or(MungeRefusal::OtherConnection)?;
    if opened.user == 0 { Err(MungeRefusal::Root) } else { Ok((opened.user, secret.to_vec())) }
}

/// Refuses a peer that wants to be introduced by munge.
///
/// # Errors
/// Always: a sentence for the operator.
pub(super) fn refuse(peer: &mut impl Write) -> Result<MungePeer> {
    write(peer, &hello(MungeRefusal::NotAccepted as u8, 0, &[0; NONCE]))?;
    bail!("a mount asked for munge, which this server does not accept; start it with --munge")
}

/// Takes the credential of a peer; `own` is the user of this process, `open` asks munged, and
/// `find` looks up a user.
///
/// # Errors
/// One sentence for the operator; the peer got the code of the refusal.
pub(super) fn receive_credential(
    peer: &mut (impl Read + Write),
    own: u32,
    open: impl FnOnce(&[u8]) -> Result<OpenedCredential, MungeError>,
    find: impl FnOnce(u32) -> Result<User>,
) -> Result<MungePeer> {
    let nonce = keys::random::<NONCE>().context("the system has no randomness")?;
    write(peer, &hello(ACCEPTED, own, &nonce))?;
    let length = u16::from_le_bytes(read(peer)?);
    if length > CREDENTIAL_MAX {
        bail!("a credential of {length} bytes is none of a mount");
    }
    let mut credential = vec![0; length.into()];
    peer.read_exact(&mut credential).map_err(ended)?;
    let outcome = take(&credential, &nonce, open, own, find);
    let code = outcome.as_ref().err().map_or(ACCEPTED, |(refusal, _)| *refusal as u8);
    write(peer, &[code])?;
    outcome.map_err(|(_, why)| why)
}

fn take(
    credential: &[u8],
    nonce: &[u8; NONCE],
    open: impl FnOnce(&[u8]) -> Result<OpenedCredential, MungeError>,
    own: u32,
    find: impl FnOnce(u32) -> Result<User>,
) -> Result<MungePeer, (MungeRefusal, anyhow::Error)> {
    if !credential.starts_with(PREFIX) {
        return Err((MungeRefusal::OtherKey, anyhow!("a mount sent no credential of munge")));
    }
    let opened = open(credential).map_err(|why| (MungeRefusal::Silent, anyhow!(why)))?;
    let (uid, secret) =
        check_credential(&opened, nonce).map_err(|refusal| (refusal, anyhow!("{refusal}")))?;
    // Only root may act for others.
    if own != 0 && uid != own {
        let refusal = MungeRefusal::OtherUser;
        return Err((refusal, anyhow!("user {uid} wants to mount a server of user {own}")));
    }
    let user = find(uid).map_err(|why| (MungeRefusal::UnknownUser, why))?;
    Ok(MungePeer { user, secret })
}

/// Sends a server a new secret in a credential; `own` is the user of this process, and `seal` asks
/// munged for a credential that the user it is given can open.
///
/// # Errors
/// One sentence.
pub(super) fn send_credential(
    server: &mut (impl Read + Write),
    own: u32,
    seal: impl FnOnce(&[u8], u32) -> Result<Vec<u8>, MungeError>,
) -> Result<Vec<u8>> {
    write(server, &MAGIC)?;
    let hello: [u8; HELLO] = read(server)?;
    let (reader, nonce) = read_hello(&hello)?;
    if reader != 0 && reader != own {
        bail!(
            "it runs as user {reader}, and --munge trusts only servers of root and of your own user; mount with --key FILE"
        );
    }
    let secret = keys::random::<SECRET>().context("the system has no randomness")?;
    let credential = seal(&[PURPOSE, &nonce, &secret].concat(), reader)?;
    let length = u16::try_from(credential.len()).ok().filter(|length| *length <= CREDENTIAL_MAX);
    let length = length.context("munged made a credential that is too long for a mount")?;
    write(server, &[&length.to_le_bytes()[..], &credential].concat())?;
    let [code] = read(server)?;
    expect_accepted(code)?;
    Ok(secret.to_vec())
}

fn hello(code: u8, user: u32, nonce: &[u8; NONCE]) -> Vec<u8> {
    [&MAGIC[..], &[code], &user.to_le_bytes(), nonce].concat()
}

/// Returns the user of a server, and its nonce.
fn read_hello(hello: &[u8; HELLO]) -> Result<(u32, [u8; NONCE])> {
    let mut rest = ByteReader::new(hello);
    if rest.take() != Some(MAGIC) {
        return Err(other_release());
    }
    expect_accepted(rest.u8().unwrap_or_default())?;
    rest.u32().zip(rest.take()).ok_or_else(other_release)
}

fn expect_accepted(code: u8) -> Result<()> {
    match MungeRefusal::from_code(code) {
        _ if code == ACCEPTED => Ok(()),
        Some(refusal) => bail!("{refusal}"),
        None => Err(other_release()),
    }
}

fn other_release() -> anyhow::Error {
    anyhow!("it speaks another version of the protocol; put the same release on all hosts")
}

fn write(to: &mut impl Write, bytes: &[u8]) -> Result<()> {
    to.write_all(bytes).and_then(|()| to.flush()).map_err(ended)
}

fn read<const N: usize>(from: &mut impl Read) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes).map_err(ended)?;
    Ok(bytes)
}

fn ended(cause: io::Error) -> anyhow::Error {
    anyhow!(cause).context("the other end closed the connection")
}

#[cfg(test)]
mod tests;
