//! The messages between the sender and one receiver: JSON over a sealed link.
//!
//! # Not here
//! Their proofs, and the sealing ([`clearway_runtime::door`]).

use anyhow::{Context, Result, anyhow};
use clearway_runtime::door::{
    self, AcceptedPeer, DoorError, HandshakeLabels, PeerPlace, StreamEnds,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A cast of this form. The longest message: 4096 entries with the longest paths would be 50 MiB,
/// as they are in practice some 0.5.
const PROTOCOL: HandshakeLabels =
    HandshakeLabels { magic: *b"clearway cast 5\n", message_max: 64 << 20 };

/// The direction from here.
pub(super) struct MessageSender(door::SealedSender);

/// The direction to here.
pub(super) struct MessageReceiver(door::SealedReceiver);

/// Begins as the sender.
///
/// # Errors
/// One sentence: the other end is no receiver, or has another key.
pub(super) fn call(
    ends: StreamEnds,
    session: u64,
    secret: &[u8],
) -> Result<(MessageSender, MessageReceiver)> {
    let agreed = door::call(ends, &PROTOCOL, session, secret);
    let (speaker, listener) = agreed
        .map_err(|error| sentence(error, "nobody listens", "no receiver of a cast answers"))?;
    Ok((MessageSender(speaker), MessageReceiver(listener)))
}

/// Begins as a receiver; `None` when the other end leaves without a word.
///
/// # Errors
/// One sentence: the other end is no sender, or has another key.
pub(super) fn answer(
    ends: StreamEnds,
    secret: &[u8],
) -> Result<Option<(MessageSender, MessageReceiver)>> {
    answered(door::answer(ends, &PROTOCOL, secret))
}

/// Begins as a receiver with a peer of its listener.
///
/// # Errors
/// As for [`answer`]; it takes too long.
pub(super) fn admit(
    peer: AcceptedPeer,
    secret: &[u8],
) -> Result<Option<(MessageSender, MessageReceiver, PeerPlace)>> {
    match peer.answer(&PROTOCOL, secret) {
        Ok(None) => Ok(None),
        Ok(Some((speaker, listener, stay))) => {
            Ok(Some((MessageSender(speaker), MessageReceiver(listener), stay)))
        }
        Err(error) => answered(Err(error)).map(|_| None),
    }
}

fn answered(
    agreed: std::result::Result<Option<(door::SealedSender, door::SealedReceiver)>, DoorError>,
) -> Result<Option<(MessageSender, MessageReceiver)>> {
    let agreed = agreed
        .map_err(|error| sentence(error, "the sender is gone", "no sender of a cast calls"))?;
    Ok(agreed.map(|(speaker, listener)| (MessageSender(speaker), MessageReceiver(listener))))
}

/// Returns the sentence for people: `gone` for an end that takes nothing, `silent` for one that
/// sends nothing of a cast.
fn sentence(error: DoorError, gone: &'static str, silent: &'static str) -> anyhow::Error {
    match error {
        DoorError::SendFailed(cause) => anyhow!(cause).context(gone),
        DoorError::ReceiveFailed(cause) => anyhow!(cause).context(silent),
        DoorError::OtherProtocol => anyhow!(
            "what came is not `clearway cast 5`: put the same version of this program on all hosts"
        )
        .context(silent),
        other => anyhow!(other),
    }
}

/// Returns a message as it is before it is sealed.
///
/// # Errors
/// None of ours: all of them can be written in JSON.
pub(super) fn plain(message: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(message).context("a message that JSON cannot hold")
}

impl MessageSender {
    /// Says `message`.
    ///
    /// # Errors
    /// The other end is gone.
    pub(super) fn send(&mut self, message: &impl Serialize) -> Result<()> {
        self.send_plain(&plain(message)?)
    }

    /// Says a message that is written down already, see [`plain`].
    ///
    /// # Errors
    /// The other end is gone.
    pub(super) fn send_plain(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.send(bytes).map_err(broken)
    }
}

impl MessageReceiver {
    /// Returns the next message; `None` when the other end has closed the connection behind one.
    ///
    /// # Errors
    /// It broke, or what came is not what the other end said.
    pub(super) fn next<M: DeserializeOwned>(&mut self) -> Result<Option<M>> {
        let Some(bytes) = self.0.receive().map_err(broken)? else { return Ok(None) };
        Ok(Some(serde_json::from_slice(&bytes).context("a message that is none")?))
    }
}

/// Returns why a link that was agreed on carries no more, for people: the system's reason where it
/// has one.
fn broken(error: DoorError) -> anyhow::Error {
    match error {
        DoorError::SendFailed(cause) | DoorError::ReceiveFailed(cause) => anyhow!(cause),
        other => anyhow!(other),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    fn ends(stream: UnixStream) -> StreamEnds {
        (Box::new(stream.try_clone().expect("two ends")), Box::new(stream))
    }

    type End = Result<(MessageSender, MessageReceiver)>;

    fn meet(secrets: [&'static [u8]; 2]) -> (End, End) {
        let (a, b) = UnixStream::pair().expect("a pair");
        let other = thread::spawn(move || answer(ends(b), secrets[1])?.context("nobody called"));
        (call(ends(a), 7, secrets[0]), other.join().expect("no panic"))
    }

    #[test]
    fn send__messages_arrive_in_both_directions() {
        let (sender, receiver) = meet([b"sixteen bytes at least"; 2]);
        let (mut sender, mut receiver) = (sender.expect("agreed"), receiver.expect("agreed"));
        sender.0.send(&vec![1, 2, 3]).expect("said");
        receiver.0.send(&"four").expect("said");
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
    fn answer__a_stranger_and_an_older_sender_are_refused() {
        let older = [&b"clearway cast 3\n"[..], &[0; 64]].concat();
        for hello in [&b"GET / HTTP/1.1\r\n\r\n"[..], &older] {
            let (mut a, b) = UnixStream::pair().expect("a pair");
            a.write_all(hello).expect("sent");
            let error = answer(ends(b), b"sixteen bytes at least").err().expect("refused");
            let said = format!("{error:#}");
            assert!(
                said.starts_with("no sender of a cast calls: what came is not `clearway cast 5`"),
                "{said}"
            );
        }
    }
}
