//! The connection between the sender and one receiver: both show that they know the secret, and then speak in sealed messages.
//!
//! # Model
//! ```text
//! sender    "clearway cast 1\n", session u64, card
//! receiver  "clearway cast 1\n", card
//! both      length u32, sealed message; and so on
//! ```
//! Cards carry a proof made with the secret (see `keys`): who does not know it is not listened to any further.
//!
//! # Invariants
//! I1. What was not sealed by the other end, or not as the next message, ends the connection.
//! I2. A length from outside reserves no memory: it grows with the bytes that come.

use std::io::{Read, Write};

use anyhow::{Context, Result, bail};
use clearway_proto::base::Rank;
use clearway_runtime::keys::{CARD_LENGTH, Identity, JobSecret, Opener, Scope, Sealer};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What a cast of this form begins with.
const MAGIC: [u8; 16] = *b"clearway cast 1\n";
/// The longest message: 4096 entries with the longest paths would be 50 MiB, as they are in practice some 0.5.
const MESSAGE_MAX: u32 = 64 << 20;
const SENDER: Rank = Rank(0);
const RECEIVER: Rank = Rank(1);

/// The direction from here.
pub(super) struct Speaker {
    output: Box<dyn Write + Send>,
    sealer: Sealer,
}

/// The direction to here.
pub(super) struct Listener {
    input: Box<dyn Read + Send>,
    opener: Opener,
}

/// The ends of two pipes, or of one connection.
pub(super) type Ends = (Box<dyn Read + Send>, Box<dyn Write + Send>);

/// Begins as the sender.
///
/// # Errors
/// One sentence: the other end is no receiver, or has another key.
pub(super) fn call((mut input, mut output): Ends, session: u64, secret: &[u8]) -> Result<(Speaker, Listener)> {
    let identity = Identity::new(SENDER, scope(session, secret)?)?;
    let own = identity.card();
    let hello = [&MAGIC[..], &session.to_le_bytes(), &own].concat();
    output.write_all(&hello).and_then(|()| output.flush()).context("nobody listens")?;
    let card = card(&mut *input).context("no receiver of a cast answers")?;
    agree(identity, [own, card], RECEIVER, (input, output))
}

/// Begins as a receiver; `None` when the other end leaves without a word.
///
/// # Errors
/// One sentence: the other end is no sender, or has another key.
pub(super) fn answer((mut input, mut output): Ends, secret: &[u8]) -> Result<Option<(Speaker, Listener)>> {
    let mut first = [0];
    if input.read(&mut first).context("no sender of a cast calls")? == 0 {
        return Ok(None);
    }
    let mut session = [0; 8];
    let mut card = [0; CARD_LENGTH];
    let mut hear = || {
        magic(&mut first.chain(&mut *input))?;
        input.read_exact(&mut session)?;
        Ok::<_, anyhow::Error>(input.read_exact(&mut card)?)
    };
    hear().context("no sender of a cast calls")?;
    let identity = Identity::new(RECEIVER, scope(u64::from_le_bytes(session), secret)?)?;
    let own = identity.card();
    // It is told even if the sender's is wrong: then the sender knows why.
    output.write_all(&[&MAGIC[..], &own].concat()).and_then(|()| output.flush()).context("the sender is gone")?;
    agree(identity, [card, own], SENDER, (input, output)).map(Some)
}

fn scope(session: u64, secret: &[u8]) -> Result<Scope> {
    Ok(Scope { session, epoch: 0, secret: Some(JobSecret::new(secret.to_vec())?) })
}

fn magic(input: &mut dyn Read) -> Result<()> {
    let mut magic = [0; MAGIC.len()];
    input.read_exact(&mut magic)?;
    if magic != MAGIC {
        bail!("what came is not `clearway cast 1`: put the same version of this program on all hosts");
    }
    Ok(())
}

fn card(input: &mut dyn Read) -> Result<[u8; CARD_LENGTH]> {
    magic(input)?;
    let mut card = [0; CARD_LENGTH];
    input.read_exact(&mut card)?;
    Ok(card)
}

fn agree(
    identity: Identity,
    cards: [[u8; CARD_LENGTH]; 2],
    other: Rank,
    (input, output): Ends,
) -> Result<(Speaker, Listener)> {
    let keys = identity.agree(&cards).map_err(|_| anyhow::anyhow!("the other end has another key"))?;
    let (sealer, opener) = keys.stream(other)?;
    Ok((Speaker { output, sealer }, Listener { input, opener }))
}

/// A message as it is before it is sealed.
///
/// # Errors
/// None of ours: all of them can be written in JSON.
pub(super) fn plain(message: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(message).context("a message that JSON cannot hold")
}

impl Speaker {
    /// Says `message`.
    ///
    /// # Errors
    /// The other end is gone.
    pub(super) fn say(&mut self, message: &impl Serialize) -> Result<()> {
        self.say_plain(plain(message)?)
    }

    /// Says a message that is written down already, see [`plain`].
    ///
    /// # Errors
    /// The other end is gone.
    pub(super) fn say_plain(&mut self, mut bytes: Vec<u8>) -> Result<()> {
        self.sealer.seal(&mut bytes).context("a message too long")?;
        let length = u32::try_from(bytes.len()).ok().filter(|length| *length <= MESSAGE_MAX);
        let length = length.context("a message too long")?.to_le_bytes();
        self.output.write_all(&[&length[..], &bytes].concat())?;
        Ok(self.output.flush()?)
    }
}

impl Listener {
    /// The next message; `None` when the other end has closed the connection behind one.
    ///
    /// # Errors
    /// It broke, or what came is not what the other end said.
    pub(super) fn next<M: DeserializeOwned>(&mut self) -> Result<Option<M>> {
        let mut length = [0; 4];
        if self.input.read(&mut length[..1])? == 0 {
            return Ok(None);
        }
        self.input.read_exact(&mut length[1..])?;
        let length = u32::from_le_bytes(length);
        if length > MESSAGE_MAX {
            bail!("a message of {length} bytes");
        }
        let mut bytes = Vec::new();
        (&mut self.input).take(length.into()).read_to_end(&mut bytes)?;
        let opened = self.opener.open(&mut bytes).context("a message that the other end did not say")?;
        Ok(Some(serde_json::from_slice(opened).context("a message that is none")?))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    fn ends(stream: UnixStream) -> Ends {
        (Box::new(stream.try_clone().expect("two ends")), Box::new(stream))
    }

    type End = Result<(Speaker, Listener)>;

    fn answered(ends: Ends, secret: &[u8]) -> End {
        answer(ends, secret)?.context("nobody called")
    }

    fn meet(secrets: [&'static [u8]; 2]) -> (End, End) {
        let (a, b) = UnixStream::pair().expect("a pair");
        let other = thread::spawn(move || answered(ends(b), secrets[1]));
        (call(ends(a), 7, secrets[0]), other.join().expect("no panic"))
    }

    #[test]
    fn say__the_other_end_hears_it_in_both_directions() {
        let (sender, receiver) = meet([b"sixteen bytes at least"; 2]);
        let (mut sender, mut receiver) = (sender.expect("agreed"), receiver.expect("agreed"));
        sender.0.say(&vec![1, 2, 3]).expect("said");
        receiver.0.say(&"four").expect("said");
        assert_eq!(receiver.1.next::<Vec<u8>>().expect("heard"), Some(vec![1, 2, 3]));
        assert_eq!(sender.1.next::<String>().expect("heard").as_deref(), Some("four"));
        drop(sender);
        assert_eq!(receiver.1.next::<String>().expect("an end in order"), None);
    }

    #[test]
    fn call__another_key_is_said_by_both() {
        let (sender, receiver) = meet([b"sixteen bytes at least", b"another sixteen bytes"]);
        for end in [sender.err(), receiver.err()] {
            assert_eq!(end.expect("refused").to_string(), "the other end has another key");
        }
    }

    #[test]
    fn answer__strangers_are_refused() {
        for rubbish in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[0xff; 200], &MAGIC] {
            let (mut a, b) = UnixStream::pair().expect("a pair");
            a.write_all(rubbish).expect("sent");
            a.shutdown(std::net::Shutdown::Write).expect("closed");
            assert!(answered(ends(b), b"sixteen bytes at least").is_err());
        }
    }

    #[test]
    fn next__what_was_not_sealed_ends_the_connection() {
        for rubbish in [&[5, 0, 0, 0, 1, 2, 3, 4, 5][..], &[0xff; 9], &[20, 0, 0, 0, 1], &[0, 0, 0, 0]] {
            let (a, b) = UnixStream::pair().expect("a pair");
            let mut raw = a.try_clone().expect("the same");
            let other = thread::spawn(move || answered(ends(b), b"sixteen bytes at least"));
            call(ends(a), 7, b"sixteen bytes at least").expect("agreed");
            let mut receiver = other.join().expect("no panic").expect("agreed");
            raw.write_all(rubbish).expect("sent");
            raw.shutdown(std::net::Shutdown::Write).expect("closed");
            assert!(receiver.1.next::<String>().is_err());
        }
    }
}
