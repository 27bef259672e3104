//! Tells an open wire that the process of a peer's rank is another one, at another address.
//!
//! # Model
//! The thread that learns of it need not hold the wire: a move waits in a queue that both share,
//! and the wire follows it before it looks for arrivals next. What the new process sends before
//! that is a stranger's.

use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use clearway_proto::base::Rank;

/// Where the process of a rank is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerMove {
    /// Whose.
    pub rank: Rank,
    /// On the first rail.
    pub address: SocketAddrV4,
    /// The epoch of its keys, and its card; on a wire with keys it is nobody without them.
    pub card: Option<(u32, Vec<u8>)>,
}

/// Carries moves to the wire that was opened with it.
#[derive(Clone, Debug, Default)]
pub struct PeerMoves(Arc<MoveQueue>);

#[derive(Debug, Default)]
struct MoveQueue {
    is_waiting: AtomicBool,
    moves: Mutex<Vec<PeerMove>>,
}

impl PeerMoves {
    /// Lets the wire follow `to`, after those that were announced before.
    pub fn announce(&self, to: PeerMove) {
        self.0.moves.lock().unwrap_or_else(PoisonError::into_inner).push(to);
        self.0.is_waiting.store(true, Ordering::Release);
    }

    /// Returns what was announced since it was asked last. Costs one look at a flag while nothing
    /// was.
    pub(super) fn take(&self) -> Vec<PeerMove> {
        if !self.0.is_waiting.load(Ordering::Relaxed)
            || !self.0.is_waiting.swap(false, Ordering::Acquire)
        {
            return Vec::new();
        }
        std::mem::take(&mut *self.0.moves.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
