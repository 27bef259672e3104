//! The connection between two ends that show each other that they know a secret, and then speak in
//! sealed messages.
//!
//! # Model
//! ```text
//! caller    magic, session u64, card
//! answerer  magic, card
//! caller    a sealed record without contents
//! answerer  a sealed record: 1 for welcome, 0 for full
//! both      length u32, sealed part of a message: 1 if it is the last part, else 0, and bytes; and so on
//! ```
//! Cards carry a proof made with the secret (see `keys`), and random bytes: the public half of a
//! key of this connection. So a card is a challenge, and the sealed record the response to it: who
//! sends a recorded card again cannot make it. A peer without it is not read any further.
//!
//! # Invariants
//! I1. A message that the other end did not seal, or not as its next one, ends the connection.
//! I2. Nothing is kept of what was not opened but one part, of [`PART_MAX`] bytes.

use std::fmt;
use std::io::{Read, Write};

use clearway_proto::base::Rank;

use super::DoorError;
use crate::keys::{self, CARD_LENGTH, JobSecret, KeyScope, Opener, RankKeyPair, Sealer};

const CALLER: Rank = Rank(0);
const ANSWERER: Rank = Rank(1);
/// Bytes of a message that are sealed at once: a few datagrams, and short enough that nobody makes
/// much room for what is not genuine.
const PART_MAX: usize = 64 << 10;
/// What the cipher adds (AES-GCM).
const TAG: usize = 16;
/// Says in front of a part whether it is the last one.
const MORE: u8 = 0;
const LAST: u8 = 1;
/// The answerer's word to a caller that it knows.
const WELCOME: u8 = 1;
const FULL: u8 = 0;

/// Tells one use of links from others.
#[derive(Clone, Copy, Debug)]
pub struct HandshakeLabels {
    /// The first bytes of both ends: the name of the protocol and its version.
    pub magic: [u8; 16],
    /// The longest message, sealed, in bytes.
    pub message_max: u32,
}

/// Says messages to the other end.
pub struct SealedSender {
    output: Box<dyn Write + Send>,
    sealer: Sealer,
    message_max: u32,
}

/// Hears messages of the other end.
pub struct SealedReceiver {
    input: Box<dyn Read + Send>,
    opener: Opener,
    message_max: u32,
}

impl fmt::Debug for SealedSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Speaker").finish_non_exhaustive()
    }
}

impl fmt::Debug for SealedReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").finish_non_exhaustive()
    }
}

/// The ends of two pipes, or of one connection. A link writes to them as they are: a pipe whose
/// reader is gone raises SIGPIPE, a `TcpStream` does not.
pub type StreamEnds = (Box<dyn Read + Send>, Box<dyn Write + Send>);

/// Begins as the caller, in the session of this number.
///
/// # Errors
/// The other end is gone, speaks another protocol, or has another key.
pub fn call(
    (mut input, mut output): StreamEnds,
    protocol: &HandshakeLabels,
    session: u64,
    secret: &[u8],
) -> Result<(SealedSender, SealedReceiver), DoorError> {
    let identity = RankKeyPair::new(CALLER, scope(session, secret)?)?;
    let own = identity.card();
    let hello = [&protocol.magic[..], &session.to_le_bytes(), &own].concat();
    output.write_all(&hello).and_then(|()| output.flush()).map_err(DoorError::SendFailed)?;
    expect_magic(&mut *input, protocol)?;
    let card = read(&mut *input)?;
    let (mut speaker, mut listener) =
        agree(identity, [own, card], ANSWERER, protocol, (input, output))?;
    speaker.record(Vec::new())?;
    match listener.record::<{ 1 + TAG }>()?[..] {
        [WELCOME] => Ok((speaker, listener)),
        [FULL] => Err(DoorError::Full),
        _ => Err(DoorError::Forged),
    }
}

/// Begins as the answerer; `None` when the other end leaves without a word.
///
/// # Errors
/// The other end is gone, speaks another protocol, or has another key.
pub fn answer(
    ends: StreamEnds,
    protocol: &HandshakeLabels,
    secret: &[u8],
) -> Result<Option<(SealedSender, SealedReceiver)>, DoorError> {
    answer_if(ends, protocol, |_| Some(secret.to_vec()), || Ok(()))
}

/// Does the same as `answer`, with the secret that belongs to the session's number; a caller that has
/// shown its proof comes in if `admit` lets it.
pub(super) fn answer_if(
    (mut input, mut output): StreamEnds,
    protocol: &HandshakeLabels,
    secret_of: impl FnOnce(u64) -> Option<Vec<u8>>,
    admit: impl FnOnce() -> Result<(), DoorError>,
) -> Result<Option<(SealedSender, SealedReceiver)>, DoorError> {
    let mut first = [0];
    if input.read(&mut first).map_err(DoorError::ReceiveFailed)? == 0 {
        return Ok(None);
    }
    expect_magic(&mut first.chain(&mut *input), protocol)?;
    let session = u64::from_le_bytes(read(&mut *input)?);
    let card = read(&mut *input)?;
    let secret = match secret_of(session) {
        Some(secret) => secret,
        // The caller learns from a card of any other secret that its own is unknown.
        None => keys::random::<32>().map_err(DoorError::ReceiveFailed)?.to_vec(),
    };
    let identity = RankKeyPair::new(ANSWERER, scope(session, &secret)?)?;
    let own = identity.card();
    // This side's card is sent even if the caller's is wrong: then the caller knows why.
    let hello = [&protocol.magic[..], &own].concat();
    output.write_all(&hello).and_then(|()| output.flush()).map_err(DoorError::SendFailed)?;
    let (mut speaker, mut listener) =
        agree(identity, [card, own], CALLER, protocol, (input, output))?;
    listener.record::<TAG>()?;
    let admitted = admit();
    speaker.record(vec![if admitted.is_ok() { WELCOME } else { FULL }])?;
    admitted.map(|()| Some((speaker, listener)))
}

fn scope(session: u64, secret: &[u8]) -> Result<KeyScope, DoorError> {
    Ok(KeyScope { session, epoch: 0, secret: Some(JobSecret::new(secret.to_vec())?) })
}

/// Reads the next `N` bytes.
fn read<const N: usize>(input: &mut dyn Read) -> Result<[u8; N], DoorError> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes).map_err(DoorError::ReceiveFailed)?;
    Ok(bytes)
}

fn expect_magic(input: &mut dyn Read, protocol: &HandshakeLabels) -> Result<(), DoorError> {
    if read(input)? == protocol.magic { Ok(()) } else { Err(DoorError::OtherProtocol) }
}

fn agree(
    identity: RankKeyPair,
    cards: [[u8; CARD_LENGTH]; 2],
    other: Rank,
    protocol: &HandshakeLabels,
    (input, output): StreamEnds,
) -> Result<(SealedSender, SealedReceiver), DoorError> {
    let keys = identity.agree(&cards).map_err(|_| DoorError::OtherKey)?;
    let (sealer, opener) = keys.stream(other)?;
    let message_max = protocol.message_max;
    Ok((
        SealedSender { output, sealer, message_max },
        SealedReceiver { input, opener, message_max },
    ))
}

impl SealedSender {
    /// Says `message`.
    ///
    /// # Errors
    /// It is too long, or the other end is gone.
    pub fn send(&mut self, message: &[u8]) -> Result<(), DoorError> {
        if message.len() > self.message_max as usize {
            return Err(DoorError::TooLong { length: message.len() });
        }
        let mut rest = message;
        loop {
            let (part, behind) = rest.split_at(rest.len().min(PART_MAX));
            let mark = if behind.is_empty() { LAST } else { MORE };
            let length = (1 + part.len() + TAG) as u32;
            let mut sealed = Vec::with_capacity(length as usize);
            sealed.push(mark);
            sealed.extend_from_slice(part);
            self.output.write_all(&length.to_le_bytes()).map_err(DoorError::SendFailed)?;
            self.record(sealed)?;
            if behind.is_empty() {
                return Ok(());
            }
            rest = behind;
        }
    }

    /// Writes `bytes`, sealed, without their length.
    fn record(&mut self, mut bytes: Vec<u8>) -> Result<(), DoorError> {
        let too_long = DoorError::TooLong { length: bytes.len() };
        self.sealer.seal(&mut bytes).ok_or(too_long)?;
        self.output
            .write_all(&bytes)
            .and_then(|()| self.output.flush())
            .map_err(DoorError::SendFailed)
    }
}

impl SealedReceiver {
    /// Waits for the next message; `None` when the other end has closed the connection behind one.
    ///
    /// # Errors
    /// The connection broke, or the message is none of the other end.
    pub fn receive(&mut self) -> Result<Option<Vec<u8>>, DoorError> {
        let mut message = Vec::new();
        let mut length = [0; 4];
        if self.input.read(&mut length[..1]).map_err(DoorError::ReceiveFailed)? == 0 {
            return Ok(None);
        }
        let mut begun = 1;
        loop {
            self.input.read_exact(&mut length[begun..]).map_err(DoorError::ReceiveFailed)?;
            begun = 0;
            let length = u32::from_le_bytes(length) as usize;
            if length > 1 + PART_MAX + TAG
                || message.len() + length > self.message_max as usize + 1 + TAG
            {
                return Err(DoorError::TooLong { length: message.len() + length });
            }
            let mut bytes = vec![0; length];
            self.input.read_exact(&mut bytes).map_err(DoorError::ReceiveFailed)?;
            let part = self.opener.open(&mut bytes).ok_or(DoorError::Forged)?;
            let (mark, part) = part.split_first().ok_or(DoorError::Forged)?;
            message.extend_from_slice(part);
            match *mark {
                LAST => return Ok(Some(message)),
                MORE => {}
                _ => return Err(DoorError::Forged),
            }
        }
    }

    /// Reads a sealed record of `N` bytes.
    fn record<const N: usize>(&mut self) -> Result<Vec<u8>, DoorError> {
        let mut bytes: [u8; N] = read(&mut *self.input)?;
        self.opener.open(&mut bytes).map(|opened| opened.to_vec()).ok_or(DoorError::Forged)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    const PROTOCOL: HandshakeLabels =
        HandshakeLabels { magic: *b"a test of links\n", message_max: 1000 };
    const SECRET: &[u8] = b"sixteen bytes at least";

    fn ends(stream: UnixStream) -> StreamEnds {
        (Box::new(stream.try_clone().expect("two ends")), Box::new(stream))
    }

    type End = Result<(SealedSender, SealedReceiver), DoorError>;

    fn answered(ends: StreamEnds, secret: &[u8]) -> End {
        answer(ends, &PROTOCOL, secret)?
            .ok_or(DoorError::ReceiveFailed(io::ErrorKind::UnexpectedEof.into()))
    }

    fn meet(secrets: [&'static [u8]; 2]) -> (End, End) {
        let (a, b) = UnixStream::pair().expect("a pair");
        let other = thread::spawn(move || answered(ends(b), secrets[1]));
        (call(ends(a), &PROTOCOL, 7, secrets[0]), other.join().expect("no panic"))
    }

    #[test]
    fn send__messages_arrive_in_both_directions() {
        let (caller, answerer) = meet([SECRET; 2]);
        let (mut caller, mut answerer) = (caller.expect("agreed"), answerer.expect("agreed"));
        caller.0.send(&[1, 2, 3]).expect("said");
        answerer.0.send(b"four").expect("said");
        assert_eq!(answerer.1.receive().expect("heard"), Some(vec![1, 2, 3]));
        assert_eq!(caller.1.receive().expect("heard"), Some(b"four".to_vec()));
        assert!(matches!(caller.0.send(&[0; 1001]), Err(DoorError::TooLong { length: 1001 })));
        drop(caller);
        assert_eq!(answerer.1.receive().expect("an end in order"), None);
    }

    #[test]
    fn send__a_message_of_any_length_is_one() {
        let protocol = HandshakeLabels { message_max: 3 * PART_MAX as u32, ..PROTOCOL };
        let (a, b) = UnixStream::pair().expect("a pair");
        let other = thread::spawn(move || answer(ends(b), &protocol, SECRET));
        let mut caller = call(ends(a), &protocol, 7, SECRET).expect("agreed");
        let mut answerer = other.join().expect("no panic").expect("agreed").expect("called");
        for length in [0, 1, PART_MAX - 1, PART_MAX, PART_MAX + 1, 3 * PART_MAX] {
            let message: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let said = message.clone();
            let says = thread::spawn(move || caller.0.send(&said).map(|()| caller));
            assert!(answerer.1.receive().expect("heard") == Some(message), "{length}");
            caller = says.join().expect("no panic").expect("said");
        }
    }

    #[test]
    fn answer__a_recorded_hello_proves_nothing() {
        let (a, b) = UnixStream::pair().expect("a pair");
        let mut heard = b.try_clone().expect("the same");
        thread::spawn(move || call(ends(a), &PROTOCOL, 7, SECRET));
        let mut hello = [0; 16 + 8 + CARD_LENGTH];
        heard.read_exact(&mut hello).expect("a hello");
        for more in [&b""[..], &[0; TAG], &[0xff; 300]] {
            let (mut again, b) = UnixStream::pair().expect("a pair");
            again.write_all(&hello).and_then(|()| again.write_all(more)).expect("sent");
            again.shutdown(std::net::Shutdown::Write).expect("closed");
            let answered = answered(ends(b), SECRET);
            assert!(
                matches!(answered, Err(DoorError::ReceiveFailed(_) | DoorError::Forged)),
                "{answered:?}"
            );
        }
    }

    #[test]
    fn answer__a_caller_for_whom_there_is_no_room_is_refused() {
        let (a, b) = UnixStream::pair().expect("a pair");
        let other = thread::spawn(move || {
            answer_if(ends(b), &PROTOCOL, |_| Some(SECRET.to_vec()), || Err(DoorError::Full))
        });
        assert!(matches!(call(ends(a), &PROTOCOL, 7, SECRET), Err(DoorError::Full)));
        assert!(matches!(other.join().expect("no panic"), Err(DoorError::Full)));
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
        for rubbish in
            [&[5, 0, 0, 0, 1, 2, 3, 4, 5][..], &[0xff; 9], &[20, 0, 0, 0, 1], &[0, 0, 0, 0]]
        {
            let (a, b) = UnixStream::pair().expect("a pair");
            let mut raw = a.try_clone().expect("the same");
            let other = thread::spawn(move || answered(ends(b), SECRET));
            call(ends(a), &PROTOCOL, 7, SECRET).expect("agreed");
            let mut answerer = other.join().expect("no panic").expect("agreed");
            raw.write_all(rubbish).expect("sent");
            raw.shutdown(std::net::Shutdown::Write).expect("closed");
            assert!(answerer.1.receive().is_err());
        }
    }
}
