//! The connection between two ends that show each other that they know a secret, and then speak in sealed messages.
//!
//! # Model
//! ```text
//! caller    magic, session u64, card
//! answerer  magic, card
//! both      length u32, sealed message; and so on
//! ```
//! Cards carry a proof made with the secret (see `keys`). A peer without it is not read any further.
//!
//! # Invariants
//! I1. A message that the other end did not seal, or not as its next one, ends the connection.
//! I2. A length from outside reserves no memory: it grows with the bytes that come.

use std::fmt;
use std::io::{Read, Write};

use clearway_proto::base::Rank;

use super::DoorError;
use crate::keys::{CARD_LENGTH, Identity, JobSecret, Opener, Scope, Sealer};

const CALLER: Rank = Rank(0);
const ANSWERER: Rank = Rank(1);

/// Tells one use of links from others.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// The first bytes of both ends: the name of the protocol and its version.
    pub magic: [u8; 16],
    /// The longest message, sealed, in bytes.
    pub message_max: u32,
}

/// Says messages to the other end.
pub struct Speaker {
    output: Box<dyn Write + Send>,
    sealer: Sealer,
    message_max: u32,
}

/// Hears messages of the other end.
pub struct Listener {
    input: Box<dyn Read + Send>,
    opener: Opener,
    message_max: u32,
}

impl fmt::Debug for Speaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Speaker").finish_non_exhaustive()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").finish_non_exhaustive()
    }
}

/// The ends of two pipes, or of one connection. A link writes to them as they are: a pipe whose reader is gone raises SIGPIPE, a
/// `TcpStream` does not.
pub type Ends = (Box<dyn Read + Send>, Box<dyn Write + Send>);

/// Begins as the caller, in the session of this number.
///
/// # Errors
/// The other end is gone, speaks another protocol, or has another key.
pub fn call(
    (mut input, mut output): Ends,
    protocol: &Protocol,
    session: u64,
    secret: &[u8],
) -> Result<(Speaker, Listener), DoorError> {
    let identity = Identity::new(CALLER, scope(session, secret)?)?;
    let own = identity.card();
    let hello = [&protocol.magic[..], &session.to_le_bytes(), &own].concat();
    output.write_all(&hello).and_then(|()| output.flush()).map_err(DoorError::Unheard)?;
    expect_magic(&mut *input, protocol)?;
    let card = read(&mut *input)?;
    agree(identity, [own, card], ANSWERER, protocol, (input, output))
}

/// Begins as the answerer; `None` when the other end leaves without a word.
///
/// # Errors
/// The other end is gone, speaks another protocol, or has another key.
pub fn answer(
    (mut input, mut output): Ends,
    protocol: &Protocol,
    secret: &[u8],
) -> Result<Option<(Speaker, Listener)>, DoorError> {
    let mut first = [0];
    if input.read(&mut first).map_err(DoorError::Unspoken)? == 0 {
        return Ok(None);
    }
    expect_magic(&mut first.chain(&mut *input), protocol)?;
    let session = u64::from_le_bytes(read(&mut *input)?);
    let card = read(&mut *input)?;
    let identity = Identity::new(ANSWERER, scope(session, secret)?)?;
    let own = identity.card();
    // It is told even if the caller's is wrong: then the caller knows why.
    let hello = [&protocol.magic[..], &own].concat();
    output.write_all(&hello).and_then(|()| output.flush()).map_err(DoorError::Unheard)?;
    agree(identity, [card, own], CALLER, protocol, (input, output)).map(Some)
}

fn scope(session: u64, secret: &[u8]) -> Result<Scope, DoorError> {
    Ok(Scope { session, epoch: 0, secret: Some(JobSecret::new(secret.to_vec())?) })
}

/// The next `N` bytes.
fn read<const N: usize>(input: &mut dyn Read) -> Result<[u8; N], DoorError> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes).map_err(DoorError::Unspoken)?;
    Ok(bytes)
}

fn expect_magic(input: &mut dyn Read, protocol: &Protocol) -> Result<(), DoorError> {
    if read(input)? == protocol.magic { Ok(()) } else { Err(DoorError::OtherProtocol) }
}

fn agree(
    identity: Identity,
    cards: [[u8; CARD_LENGTH]; 2],
    other: Rank,
    protocol: &Protocol,
    (input, output): Ends,
) -> Result<(Speaker, Listener), DoorError> {
    let keys = identity.agree(&cards).map_err(|_| DoorError::OtherKey)?;
    let (sealer, opener) = keys.stream(other)?;
    let message_max = protocol.message_max;
    Ok((Speaker { output, sealer, message_max }, Listener { input, opener, message_max }))
}

impl Speaker {
    /// Says `message`, which is sealed in place.
    ///
    /// # Errors
    /// It is too long, or the other end is gone.
    pub fn say(&mut self, mut message: Vec<u8>) -> Result<(), DoorError> {
        let too_long = DoorError::TooLong { length: message.len() };
        let Some(()) = self.sealer.seal(&mut message) else { return Err(too_long) };
        let length = u32::try_from(message.len()).ok().filter(|length| *length <= self.message_max);
        let length = length.ok_or(too_long)?.to_le_bytes();
        let said = self.output.write_all(&[&length[..], &message].concat());
        said.and_then(|()| self.output.flush()).map_err(DoorError::Unheard)
    }
}

impl Listener {
    /// Waits for the next message; `None` when the other end has closed the connection behind one.
    ///
    /// # Errors
    /// The connection broke, or the message is none of the other end.
    pub fn hear(&mut self) -> Result<Option<Vec<u8>>, DoorError> {
        let mut length = [0; 4];
        if self.input.read(&mut length[..1]).map_err(DoorError::Unspoken)? == 0 {
            return Ok(None);
        }
        self.input.read_exact(&mut length[1..]).map_err(DoorError::Unspoken)?;
        let length = u32::from_le_bytes(length);
        if length > self.message_max {
            return Err(DoorError::TooLong { length: length as usize });
        }
        let mut bytes = Vec::new();
        (&mut self.input).take(length.into()).read_to_end(&mut bytes).map_err(DoorError::Unspoken)?;
        let opened = self.opener.open(&mut bytes).ok_or(DoorError::Forged)?.len();
        bytes.truncate(opened);
        Ok(Some(bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    const PROTOCOL: Protocol = Protocol { magic: *b"a test of links\n", message_max: 1000 };
    const SECRET: &[u8] = b"sixteen bytes at least";

    fn ends(stream: UnixStream) -> Ends {
        (Box::new(stream.try_clone().expect("two ends")), Box::new(stream))
    }

    type End = Result<(Speaker, Listener), DoorError>;

    fn answered(ends: Ends, secret: &[u8]) -> End {
        answer(ends, &PROTOCOL, secret)?.ok_or(DoorError::Unspoken(io::ErrorKind::UnexpectedEof.into()))
    }

    fn meet(secrets: [&'static [u8]; 2]) -> (End, End) {
        let (a, b) = UnixStream::pair().expect("a pair");
        let other = thread::spawn(move || answered(ends(b), secrets[1]));
        (call(ends(a), &PROTOCOL, 7, secrets[0]), other.join().expect("no panic"))
    }

    #[test]
    fn say__the_other_end_hears_it_in_both_directions() {
        let (caller, answerer) = meet([SECRET; 2]);
        let (mut caller, mut answerer) = (caller.expect("agreed"), answerer.expect("agreed"));
        caller.0.say(vec![1, 2, 3]).expect("said");
        answerer.0.say(b"four".to_vec()).expect("said");
        assert_eq!(answerer.1.hear().expect("heard"), Some(vec![1, 2, 3]));
        assert_eq!(caller.1.hear().expect("heard"), Some(b"four".to_vec()));
        assert!(matches!(caller.0.say(vec![0; 1000]), Err(DoorError::TooLong { length: 1000 })));
        drop(caller);
        assert_eq!(answerer.1.hear().expect("an end in order"), None);
    }

    #[test]
    fn call__another_key_is_noticed_by_both() {
        let (caller, answerer) = meet([SECRET, b"another sixteen bytes"]);
        for end in [caller.err(), answerer.err()] {
            assert!(matches!(end, Some(DoorError::OtherKey)), "{end:?}");
        }
    }

    #[test]
    fn answer__strangers_are_refused() {
        for rubbish in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[0xff; 200], &PROTOCOL.magic] {
            let (mut a, b) = UnixStream::pair().expect("a pair");
            a.write_all(rubbish).expect("sent");
            a.shutdown(std::net::Shutdown::Write).expect("closed");
            assert!(answered(ends(b), SECRET).is_err());
        }
    }

    #[test]
    fn hear__what_was_not_sealed_ends_the_connection() {
        for rubbish in [&[5, 0, 0, 0, 1, 2, 3, 4, 5][..], &[0xff; 9], &[20, 0, 0, 0, 1], &[0, 0, 0, 0]] {
            let (a, b) = UnixStream::pair().expect("a pair");
            let mut raw = a.try_clone().expect("the same");
            let other = thread::spawn(move || answered(ends(b), SECRET));
            call(ends(a), &PROTOCOL, 7, SECRET).expect("agreed");
            let mut answerer = other.join().expect("no panic").expect("agreed");
            raw.write_all(rubbish).expect("sent");
            raw.shutdown(std::net::Shutdown::Write).expect("closed");
            assert!(answerer.1.hear().is_err());
        }
    }
}
