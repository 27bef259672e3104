//! What the sender says, as it comes, and whether it still says anything.
//!
//! # Model
//! A sender without anything to say says so every few seconds. Its silence is counted in looks that
//! each came after a time of quiet, not in time: a receiver that was stopped itself, for however
//! long, has looked once meanwhile.
//!
//! # Invariants
//! I1. Nobody waits for a sender that has said nothing for [`LOOKS`] looks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clearway_runtime::wake_signal::WakeSignal;

use super::link::MessageReceiver;
use super::message::ToReceiver;

/// Messages of the sender that wait.
const WAITING_MAX: usize = 4;
/// The time between two looks.
pub(super) const TICK: Duration = Duration::from_secs(5);
/// Looks at a silent sender until it counts as gone: half a minute, in which one that is there has
/// said so several times.
const LOOKS: u32 = 6;

/// What the sender says, as it comes.
pub(super) struct SenderMessages {
    messages: Receiver<Result<ToReceiver>>,
    pub(super) bell: Arc<WakeSignal>,
    /// Messages that came, those without contents included.
    received: Arc<AtomicU64>,
    /// The sender is gone.
    pub(super) is_gone: Arc<AtomicBool>,
    tick: Duration,
}

/// How often a sender was found silent.
#[derive(Debug, Default)]
pub(super) struct SilenceCount {
    received: u64,
    looks: u32,
}

/// What there is of the next message.
pub(super) enum PartialMessage {
    Message(ToReceiver),
    Nothing,
    Gone,
}

impl SilenceCount {
    /// Looks once more, when `received` messages have come; whether that was too often.
    pub(super) fn is_long(&mut self, received: u64) -> bool {
        self.looks = if received == self.received { self.looks + 1 } else { 0 };
        self.received = received;
        self.looks >= LOOKS
    }
}

impl SenderMessages {
    /// Starts to listen; the time between two looks is `tick`.
    ///
    /// # Errors
    /// No thread.
    pub(super) fn start(mut listener: MessageReceiver, tick: Duration) -> Result<Self> {
        let bell = Arc::new(WakeSignal::new().context("a way to wake a thread")?);
        let (to, messages) = sync_channel(WAITING_MAX);
        let received = Arc::new(AtomicU64::new(0));
        let is_gone = Arc::new(AtomicBool::new(false));
        let (ring, count, gone) = (bell.clone(), received.clone(), is_gone.clone());
        let listen = move || {
            while let Some(message) = listener.next().transpose() {
                count.fetch_add(1, Ordering::Relaxed);
                if matches!(message, Ok(ToReceiver::Alive)) {
                    continue;
                }
                let is_last = message.is_err();
                if to.send(message).is_err() || is_last {
                    break;
                }
                ring.raise();
            }
            gone.store(true, Ordering::Release);
            drop(to);
            ring.raise();
        };
        thread::Builder::new()
            .name("sender".to_owned())
            .spawn(listen)
            .context("a thread that listens")?;
        Ok(Self { messages, bell, received, is_gone, tick })
    }

    /// Returns the next message; `None` when the sender is gone.
    ///
    /// # Errors
    /// The connection broke, or the sender is silent.
    pub(super) fn next(&self) -> Result<Option<ToReceiver>> {
        let mut silence = SilenceCount::default();
        loop {
            match self.messages.recv_timeout(self.tick) {
                Ok(message) => return message.map(Some),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) if silence.is_long(self.received()) => {
                    bail!("the sender has said nothing for {} s", (TICK * LOOKS).as_secs());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Returns how many messages have come.
    pub(super) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Returns the next message if there is one.
    pub(super) fn waiting(&self) -> PartialMessage {
        match self.messages.try_recv() {
            Ok(Ok(message)) => PartialMessage::Message(message),
            Err(TryRecvError::Empty) => PartialMessage::Nothing,
            Ok(Err(_)) | Err(TryRecvError::Disconnected) => PartialMessage::Gone,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use clearway_runtime::door::StreamEnds;

    use super::*;
    use crate::mechanism::cast::link::{MessageSender, answer, call};
    use crate::mechanism::cast::message::ExtrasPolicy;
    use crate::mechanism::cast::outbox::{SendQueue, SharedMessage};

    const SECRET: &[u8] = b"sixteen bytes at least";

    /// Returns a sender's end, and a receiver's ear.
    fn connected() -> (MessageSender, SenderMessages) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let ends = |stream: UnixStream| -> StreamEnds {
            (Box::new(stream.try_clone().expect("two ends")), Box::new(stream))
        };
        let receiver = ends(theirs);
        let answers =
            thread::spawn(move || answer(receiver, SECRET).expect("agreed").expect("called").1);
        let (speaker, _) = call(ends(ours), 7, SECRET).expect("agreed");
        (
            speaker,
            SenderMessages::start(answers.join().expect("no panic"), Duration::from_millis(20))
                .expect("a thread"),
        )
    }

    #[test]
    fn next__a_sender_that_is_silent_is_not_waited_for() {
        let (mut speaker, inbox) = connected();
        speaker.send(&ToReceiver::Survey).expect("said");
        assert!(matches!(inbox.next(), Ok(Some(ToReceiver::Survey))));
        let error = inbox.next().expect_err("nothing more comes");
        assert_eq!(error.to_string(), "the sender has said nothing for 30 s");
        speaker.send(&ToReceiver::Finish(ExtrasPolicy::Keep)).expect("said");
        assert!(
            matches!(inbox.next(), Ok(Some(ToReceiver::Finish(ExtrasPolicy::Keep)))),
            "it may go on"
        );
    }

    #[test]
    fn is_gone__is_seen_by_one_that_waits_for_no_message() {
        let (speaker, inbox) = connected();
        let outbox = SendQueue::start(speaker, Duration::from_millis(1)).expect("a thread");
        let received = inbox.received();
        while inbox.received() == received {
            thread::yield_now();
        }
        assert!(!inbox.is_gone.load(Ordering::Acquire));
        drop(outbox);
        while !inbox.is_gone.load(Ordering::Acquire) {
            thread::yield_now();
        }
    }

    #[test]
    fn next__a_sender_that_is_busy_says_so() {
        let (speaker, inbox) = connected();
        let outbox = SendQueue::start(speaker, Duration::from_millis(1)).expect("a thread");
        let received = inbox.received();
        while inbox.received() < received + 50 {
            thread::yield_now();
        }
        outbox
            .put(
                &SharedMessage::from_message(&ToReceiver::Finish(ExtrasPolicy::Keep))
                    .expect("a letter"),
            )
            .expect("said");
        assert!(
            matches!(inbox.next(), Ok(Some(ToReceiver::Finish(ExtrasPolicy::Keep)))),
            "nothing else was to be read"
        );
    }

    #[test]
    fn is_long__own_absence_is_one_look() {
        let mut silence = SilenceCount::default();
        assert!((1..LOOKS).all(|_| !silence.is_long(0)) && silence.is_long(0));
        assert!(!silence.is_long(1), "it has spoken");
        assert!(!silence.is_long(1), "a look after a stop of an hour is one like others");
    }
}
