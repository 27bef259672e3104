//! The bytes between a rank and the hub: a challenge, and sealed frames.
//!
//! # Model
//! The hub begins with eight fixed bytes and its random number. Everything after that is frames:
//! length (u32), kind (u8), body, tag (16 bytes of HMAC-SHA-256), all little-endian; the length
//! counts what follows it. The first frame of a rank tells its number and its own random number in
//! the clear; from then on both have the connection's key. The tag covers direction, number of the
//! frame, kind and body.
//!
//! # Invariants
//! I1. Any bytes give frames or an error, never a panic, and never room for more than the reader's
//!     limit.

use aws_lc_rs::{constant_time, hmac};
use clearway_proto::base::ByteReader;
use zeroize::Zeroizing;

use super::super::{EXCHANGE_MAX, LaunchError};
use crate::keys;

/// What a hub says first, and the version of everything after it.
const MAGIC: [u8; 8] = *b"clwymeet";

/// Bytes of a challenge.
pub(in crate::launch) const CHALLENGE: usize = MAGIC.len() + NONCE;

/// Bytes of a random number.
const NONCE: usize = 16;

/// Bytes of a tag: half of what the hash gives, the least that RFC 2104 advises.
const TAG: usize = 16;

/// Longest frame taken from somebody who is not known yet: a rank, a random number and a host's
/// name.
pub(in crate::launch) const STRANGER_MAX: usize = 1 + 4 + NONCE + HOST_MAX + TAG;

/// Longest frame: a contribution, or a sentence.
pub(in crate::launch) const FRAME_MAX: usize = 1 + EXCHANGE_MAX + TAG;

/// Longest name of a host: that of DNS.
const HOST_MAX: usize = 255;

/// Longest sentence about an end.
const SENTENCE_MAX: usize = 1024;

/// A random number, used once.
pub(in crate::launch) type Nonce = [u8; NONCE];

/// A key that a rank and the hub share. Wiped when dropped, and never printed.
#[derive(Clone)]
pub(in crate::launch) struct MemberKey(Zeroizing<Vec<u8>>);

impl MemberKey {
    pub(in crate::launch) fn new(secret: &[u8]) -> Self {
        Self(Zeroizing::new(secret.to_vec()))
    }

    /// Returns what the key was made of.
    pub(in crate::launch) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the key of one connection.
    fn connection_key(&self, hub: &Nonce, rank: u32, own: &Nonce) -> hmac::Key {
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &self.0));
        for part in [&MAGIC[..], hub, &rank.to_le_bytes(), own] {
            context.update(part);
        }
        hmac::Key::new(hmac::HMAC_SHA256, context.sign().as_ref())
    }
}

impl std::fmt::Debug for MemberKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MemberKey")
    }
}

/// Returns random bytes of the system.
///
/// # Errors
/// The system has none.
pub(in crate::launch) fn random<const N: usize>() -> Result<[u8; N], LaunchError> {
    keys::random().map_err(LaunchError::system("give random numbers"))
}

/// Returns the challenge that holds `nonce`.
pub(in crate::launch) fn challenge(nonce: &Nonce) -> [u8; CHALLENGE] {
    let mut bytes = [0; CHALLENGE];
    bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
    bytes[MAGIC.len()..].copy_from_slice(nonce);
    bytes
}

/// Returns the random number of a challenge; nothing when it is none.
pub(in crate::launch) fn read_challenge(bytes: &[u8; CHALLENGE]) -> Option<Nonce> {
    bytes.strip_prefix(&MAGIC)?.try_into().ok()
}

/// The side that sends.
#[derive(Clone, Copy, Debug)]
pub(in crate::launch) enum FrameSender {
    Hub,
    Rank,
}

/// One direction of a connection: seals what is sent, or opens what comes.
#[derive(Debug)]
pub(in crate::launch) struct FrameSeal {
    key: hmac::Key,
    sender: u8,
    count: u64,
}

impl FrameSeal {
    /// Creates the direction in which `sender` sends.
    pub(in crate::launch) fn new(
        key: &MemberKey,
        hub: &Nonce,
        rank: u32,
        own: &Nonce,
        sender: FrameSender,
    ) -> Self {
        let sender = match sender {
            FrameSender::Hub => 0,
            FrameSender::Rank => 1,
        };
        Self { key: key.connection_key(hub, rank, own), sender, count: 0 }
    }

    fn tag(&mut self, kind: u8, body: &[u8]) -> [u8; TAG] {
        let mut context = hmac::Context::with_key(&self.key);
        for part in [&[self.sender][..], &self.count.to_le_bytes(), &[kind], body] {
            context.update(part);
        }
        self.count += 1;
        *context.sign().as_ref().first_chunk().expect("the hash is longer than a tag")
    }

    /// Appends a sealed frame to `out`.
    pub(in crate::launch) fn put(&mut self, kind: u8, body: &[u8], out: &mut Vec<u8>) {
        let length = u32::try_from(1 + body.len() + TAG).expect("frames are short");
        out.extend_from_slice(&length.to_le_bytes());
        out.push(kind);
        out.extend_from_slice(body);
        out.extend_from_slice(&self.tag(kind, body));
    }

    /// Returns whether `frame` is the next one of the sender.
    pub(in crate::launch) fn is_next(&mut self, frame: &RendezvousFrame) -> bool {
        let tag = self.tag(frame.kind, &frame.body);
        constant_time::verify_slices_are_equal(&tag, &frame.tag).is_ok()
    }
}

/// A frame as it came, not yet checked.
#[derive(Debug)]
pub(in crate::launch) struct RendezvousFrame {
    kind: u8,
    body: Vec<u8>,
    tag: [u8; TAG],
}

/// Bytes that came and are no whole frame yet.
#[derive(Debug, Default)]
pub(in crate::launch) struct FrameBuffer(Vec<u8>);

/// The other side does not speak this protocol.
#[derive(Debug)]
pub(in crate::launch) struct ProtocolViolation;

impl FrameBuffer {
    pub(in crate::launch) fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Returns the next whole frame, if there is one, of at most `limit` bytes behind its length.
    pub(in crate::launch) fn next(
        &mut self,
        limit: usize,
    ) -> Result<Option<RendezvousFrame>, ProtocolViolation> {
        let Some((length, rest)) = self.0.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if !(1 + TAG..=limit).contains(&length) {
            return Err(ProtocolViolation);
        }
        let Some((frame, _)) = rest.split_at_checked(length) else { return Ok(None) };
        let (body, tag) = frame.split_last_chunk::<TAG>().ok_or(ProtocolViolation)?;
        let (kind, body) = body.split_first().ok_or(ProtocolViolation)?;
        let frame = RendezvousFrame { kind: *kind, body: body.to_vec(), tag: *tag };
        self.0.drain(..4 + length);
        Ok(Some(frame))
    }
}

/// What a rank says.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::launch) enum ToHub {
    /// First of all: who it is, its random number, and the name of its host.
    Hello { rank: u32, nonce: Nonce, host: String },
    /// It takes part in an exchange, with these bytes.
    Give(Vec<u8>),
    /// It waits for the others.
    Wait,
    /// It has nothing more to do.
    Leave,
    /// The job failed.
    Abort { code: i32, sentence: String },
}

impl ToHub {
    pub(in crate::launch) fn put(&self, seal: &mut FrameSeal, out: &mut Vec<u8>) {
        match self {
            Self::Hello { rank, nonce, host } => {
                let host = cut(host, HOST_MAX).as_bytes();
                seal.put(1, &[&rank.to_le_bytes()[..], nonce, host].concat(), out);
            }
            Self::Give(bytes) => seal.put(2, bytes, out),
            Self::Wait => seal.put(3, &[], out),
            Self::Leave => seal.put(4, &[], out),
            Self::Abort { code, sentence } => seal.put(5, &end_body(*code, sentence), out),
        }
    }

    pub(in crate::launch) fn read(frame: &RendezvousFrame) -> Result<Self, ProtocolViolation> {
        match frame.kind {
            1 => {
                let mut rest = ByteReader::new(&frame.body);
                let (rank, nonce) =
                    (rest.u32().ok_or(ProtocolViolation)?, rest.take().ok_or(ProtocolViolation)?);
                Ok(Self::Hello { rank, nonce, host: printable(rest.remaining()) })
            }
            2 => Ok(Self::Give(frame.body.clone())),
            3 => Ok(Self::Wait),
            4 => Ok(Self::Leave),
            5 => read_end(&frame.body).map(|(code, sentence)| Self::Abort { code, sentence }),
            _ => Err(ProtocolViolation),
        }
    }
}

/// What the hub says.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::launch) enum ToRank {
    /// The rank is known now, and knows that this is its hub.
    Welcome,
    /// What the next rank gave, from rank 0 on.
    Piece(Vec<u8>),
    /// Everybody has come.
    Go,
    /// The job is over, and how.
    Ended { code: i32, sentence: String },
}

impl ToRank {
    pub(in crate::launch) fn put(&self, seal: &mut FrameSeal, out: &mut Vec<u8>) {
        match self {
            Self::Welcome => seal.put(65, &[], out),
            Self::Piece(bytes) => seal.put(66, bytes, out),
            Self::Go => seal.put(67, &[], out),
            Self::Ended { code, sentence } => seal.put(68, &end_body(*code, sentence), out),
        }
    }

    pub(in crate::launch) fn read(frame: &RendezvousFrame) -> Result<Self, ProtocolViolation> {
        match frame.kind {
            65 => Ok(Self::Welcome),
            66 => Ok(Self::Piece(frame.body.clone())),
            67 => Ok(Self::Go),
            68 => read_end(&frame.body).map(|(code, sentence)| Self::Ended { code, sentence }),
            _ => Err(ProtocolViolation),
        }
    }
}

fn end_body(code: i32, sentence: &str) -> Vec<u8> {
    [&code.to_le_bytes()[..], cut(sentence, SENTENCE_MAX).as_bytes()].concat()
}

fn read_end(body: &[u8]) -> Result<(i32, String), ProtocolViolation> {
    let (code, sentence) = body.split_first_chunk::<4>().ok_or(ProtocolViolation)?;
    Ok((i32::from_le_bytes(*code), printable(sentence.get(..SENTENCE_MAX).unwrap_or(sentence))))
}

/// Returns the text of a peer without what a terminal would obey.
fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Returns the beginning of `text`, at most `limit` bytes of it.
fn cut(text: &str, limit: usize) -> &str {
    let end = (0..=limit.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seal(secret: &[u8], sender: FrameSender) -> FrameSeal {
        FrameSeal::new(&MemberKey::new(secret), &[1; 16], 7, &[2; 16], sender)
    }

    fn hello() -> ToHub {
        ToHub::Hello { rank: 7, nonce: [2; 16], host: "n7".to_owned() }
    }

    /// Returns two frames of a rank with this secret.
    fn two(secret: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut seal = seal(secret, FrameSender::Rank);
        hello().put(&mut seal, &mut out);
        ToHub::Give(b"abc".to_vec()).put(&mut seal, &mut out);
        out
    }

    #[test]
    fn frames__arrive_in_order_whatever_the_pieces() {
        let mut inbox = FrameBuffer::default();
        let mut opening = seal(b"k", FrameSender::Rank);
        let mut got = Vec::new();
        for byte in two(b"k") {
            inbox.push(&[byte]);
            while let Some(frame) = inbox.next(FRAME_MAX).unwrap() {
                assert!(opening.is_next(&frame));
                got.push(ToHub::read(&frame).unwrap());
            }
        }
        assert_eq!(got, [hello(), ToHub::Give(b"abc".to_vec())]);
    }

    #[test]
    fn seal__another_key_direction_or_order_is_noticed() {
        let mut inbox = FrameBuffer::default();
        inbox.push(&two(b"k"));
        let first = inbox.next(FRAME_MAX).unwrap().unwrap();
        let second = inbox.next(FRAME_MAX).unwrap().unwrap();
        assert!(seal(b"k", FrameSender::Rank).is_next(&first));
        assert!(!seal(b"other", FrameSender::Rank).is_next(&first));
        assert!(!seal(b"k", FrameSender::Hub).is_next(&first));
        assert!(!seal(b"k", FrameSender::Rank).is_next(&second));
        let changed = RendezvousFrame { body: b"abd".to_vec(), ..second };
        let mut opening = seal(b"k", FrameSender::Rank);
        assert!(opening.is_next(&first) && !opening.is_next(&changed));
    }

    #[test]
    fn inbox__a_frame_beyond_the_limit_is_rubbish_before_it_came() {
        let mut inbox = FrameBuffer::default();
        inbox.push(&u32::try_from(STRANGER_MAX + 1).unwrap().to_le_bytes());
        assert!(inbox.next(STRANGER_MAX).is_err());
        let mut inbox = FrameBuffer::default();
        inbox.push(&[0, 0, 0, 0]);
        assert!(inbox.next(STRANGER_MAX).is_err());
    }

    #[test]
    fn challenge__only_ours_is_read() {
        assert_eq!(read_challenge(&challenge(&[9; 16])), Some([9; 16]));
        assert_eq!(read_challenge(b"HTTP/1.1 400 Bad Request"), None);
    }

    #[test]
    fn printable__a_peer_cannot_drive_the_terminal() {
        let frame =
            RendezvousFrame { kind: 5, body: b"\x03\0\0\0a\x1b[2Jb\n".to_vec(), tag: [0; TAG] };
        assert_eq!(
            ToHub::read(&frame).unwrap(),
            ToHub::Abort { code: 3, sentence: "a [2Jb ".to_owned() }
        );
    }

    #[test]
    fn cut__stays_between_characters() {
        assert_eq!(cut("aäb", 2), "a");
        assert_eq!(cut("abc", 9), "abc");
    }

    proptest! {
        #[test]
        fn inbox__any_bytes_are_frames_or_rubbish(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut inbox = FrameBuffer::default();
            inbox.push(&bytes);
            while let Ok(Some(frame)) = inbox.next(200) {
                let _ = (ToHub::read(&frame), ToRank::read(&frame));
            }
        }
    }
}
