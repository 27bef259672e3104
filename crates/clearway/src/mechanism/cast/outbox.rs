//! What is on its way to one receiver, written by a thread of its own: a receiver that takes
//! nothing makes nobody else wait.
//!
//! # Invariants
//! I1. To put something in never waits for the receiver.
//! I2. A message to many is in memory once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;

use super::link::{MessageSender, plain};
use super::message::ToReceiver;

/// A message that several receivers get.
#[derive(Clone)]
pub(super) struct SharedMessage(Arc<Vec<u8>>);

impl SharedMessage {
    /// Creates a letter that says `message`.
    ///
    /// # Errors
    /// It cannot be written down.
    pub(super) fn from_message(message: &impl Serialize) -> Result<Self> {
        plain(message).map(|bytes| Self(Arc::new(bytes)))
    }
}

/// Letters to one receiver that are not written yet.
pub(super) struct SendQueue {
    letters: Sender<SharedMessage>,
    /// Their bytes.
    waiting: Arc<AtomicUsize>,
    /// Closed when the thread has ended.
    end: Receiver<()>,
}

impl SendQueue {
    /// Starts the thread that says letters with `speaker`, and that the sender is there when there
    /// is none for `alive_every`.
    ///
    /// # Errors
    /// No thread.
    pub(super) fn start(mut speaker: MessageSender, alive_every: Duration) -> Result<Self> {
        let (letters, to_say) = channel::<SharedMessage>();
        let (ended, end) = channel::<()>();
        let waiting = Arc::new(AtomicUsize::new(0));
        let left = waiting.clone();
        let write = move || {
            loop {
                let said = match to_say.recv_timeout(alive_every) {
                    Ok(SharedMessage(letter)) => {
                        let said = speaker.say_plain(&letter);
                        left.fetch_sub(letter.len(), Ordering::Relaxed);
                        said
                    }
                    Err(RecvTimeoutError::Timeout) => speaker.say(&ToReceiver::Alive),
                    Err(RecvTimeoutError::Disconnected) => break,
                };
                if said.is_err() {
                    break;
                }
            }
            drop(ended);
        };
        thread::Builder::new()
            .name("outbox".to_owned())
            .spawn(write)
            .context("a thread that writes to a receiver")?;
        Ok(Self { letters, waiting, end })
    }

    /// Lets `letter` leave behind those before it.
    ///
    /// # Errors
    /// The connection broke.
    pub(super) fn put(&self, letter: &SharedMessage) -> Result<()> {
        self.waiting.fetch_add(letter.0.len(), Ordering::Relaxed);
        self.letters.send(letter.clone()).map_err(|_| anyhow::anyhow!("its connection broke"))
    }

    /// Returns how many bytes of letters the receiver has not taken.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Waits until all letters are written, no longer than to `until`; nothing more is said.
    pub(super) fn close(self, until: Instant) {
        drop(self.letters);
        let _ = self.end.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}
