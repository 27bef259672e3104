//! The send queue of one receiver, written by a thread of its own: a receiver that reads nothing
//! delays no other.
//!
//! # Invariants
//! I1. Putting a message never waits for the receiver.
//! I2. A message to several receivers is in memory once.

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
    /// Encodes `message`.
    ///
    /// # Errors
    /// It cannot be encoded.
    pub(super) fn from_message(message: &impl Serialize) -> Result<Self> {
        plain(message).map(|bytes| Self(Arc::new(bytes)))
    }
}

/// Messages to one receiver that are not written yet.
pub(super) struct SendQueue {
    messages: Sender<SharedMessage>,
    /// Their bytes.
    waiting: Arc<AtomicUsize>,
    /// Closed when the thread has ended.
    end: Receiver<()>,
}

impl SendQueue {
    /// Starts the thread that writes messages with `speaker`, and a keep-alive when there is none
    /// for `alive_every`.
    ///
    /// # Errors
    /// No thread.
    pub(super) fn start(mut speaker: MessageSender, alive_every: Duration) -> Result<Self> {
        let (messages, to_say) = channel::<SharedMessage>();
        let (ended, end) = channel::<()>();
        let waiting = Arc::new(AtomicUsize::new(0));
        let left = waiting.clone();
        let write = move || {
            loop {
                let said = match to_say.recv_timeout(alive_every) {
                    Ok(SharedMessage(message)) => {
                        let said = speaker.send_plain(&message);
                        left.fetch_sub(message.len(), Ordering::Relaxed);
                        said
                    }
                    Err(RecvTimeoutError::Timeout) => speaker.send(&ToReceiver::Alive),
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
        Ok(Self { messages, waiting, end })
    }

    /// Puts `message` behind those before it.
    ///
    /// # Errors
    /// The connection broke.
    pub(super) fn put(&self, message: &SharedMessage) -> Result<()> {
        self.waiting.fetch_add(message.0.len(), Ordering::Relaxed);
        self.messages.send(message.clone()).map_err(|_| anyhow::anyhow!("its connection broke"))
    }

    /// Returns how many bytes of messages the receiver has not taken.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Waits until all messages are written, no longer than to `until`; nothing more is said.
    pub(super) fn close(self, until: Instant) {
        drop(self.messages);
        let _ = self.end.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}
