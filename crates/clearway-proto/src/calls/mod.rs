//! Calls of clients to a server: numbered requests and their responses, each with up to 1 MiB of
//! data, in any class.
//!
//! # Model
//! ```text
//!   client: Call ----pieces----> frames of the server --Called--> application
//!   client: Returned <--pieces-- frames of the client <--Answer-- application
//! ```
//! A request or a response is a *parcel*: a header that the application encodes, and data. It is cut
//! into *pieces*, one message each. The receiver copies pieces into *frames*, memory that it keeps
//! for this peer, and gives the parcel to its application when it is whole.
//!
//! Flow control is by frames. Both ends know how many frames each has for the other. A client starts
//! a call only if the frames for its request and for the longest response to it are free; the ends
//! never have to ask each other. A server answers late when it is busy, so its speed holds its clients
//! back. Less urgent classes leave a quarter of the frames to the more urgent ones.
//!
//! Requests of one class arrive in the order in which they were made. There is no order between
//! classes, and none between responses.
//!
//! A server can set the [pace](ClientPace) of a client, from what a [`ClientPacer`] decides.
//!
//! # Invariants
//! I1. A peer that breaks a rule of the protocol is given up; it costs nobody else anything.
//! I2. What a peer can make this end keep is bounded by the frames for it.
//!
//! # Not here
//! Executing a request once: a client that lost its server makes its calls again, with the same
//! numbers, and the server's application recognises them. Reliable delivery is the wire's.

mod client;
mod frame;
mod frames;
mod inbox;
mod outbox;
mod pace;
mod pacer;
mod server;
#[cfg(test)]
mod tests;

pub use client::{CallClient, CallCommand, CallEvent};
pub use pace::ClientPace;
pub use pacer::{ClientPacer, PaceOrder, PacerConfig};
pub use server::{CallServer, LossCause, ServerCallCommand, ServerCallEvent};

use alloc::vec::Vec;

use crate::base::{Bytes, Class, Nanos};
use crate::wire::{Capabilities, RegionId, Span};

/// Bytes of a frame.
pub const FRAME: u32 = 64 << 10;
/// Bytes of the longest header of a parcel.
pub const HEADER_MAX: u32 = FRAME;
/// Bytes of the longest data of a parcel.
pub const DATA_MAX: u32 = 1 << 20;
/// The least frames for a peer: four of the longest parcels.
pub const WINDOW_MIN: u32 = 4 * (1 + DATA_MAX / FRAME);

/// Returns the frames that the header of a parcel takes: an empty parcel has one, too.
const fn header_frames(header: u32, data: u32) -> u32 {
    if header == 0 && data > 0 { 0 } else { 1 }
}

/// Returns the frames that a parcel takes.
const fn frames_of(header: u32, data: u32) -> u32 {
    header_frames(header, data) + data.div_ceil(FRAME)
}

/// Returns the memory that frames for `peers` peers take.
pub const fn frame_memory(peers: u32, window: u32) -> Bytes {
    Bytes(peers as u64 * window as u64 * FRAME as u64)
}

/// What one end of calls is made for.
#[derive(Clone, Debug)]
pub struct CallConfig {
    /// Memory for frames, as [`frame_memory`] says.
    pub frames: RegionId,
    /// Frames for each peer, here and at the other end.
    pub window: u32,
    /// Bytes of the longest piece: a power of two, at most [`FRAME`].
    pub piece_max: u32,
    /// How long a server keeps the memory of frames that clients have used; for ever without one.
    pub idle_max: Option<Nanos>,
}

impl CallConfig {
    /// Creates the configuration for a wire with these capabilities.
    pub fn new(frames: RegionId, window: u32, wire: &Capabilities) -> Self {
        let room = wire.message_max.saturating_sub(frame::HEAD).min(wire.body_max);
        let piece_max = room.clamp(1, FRAME as usize) as u32;
        let window = window.max(WINDOW_MIN);
        Self { frames, window, piece_max: 1 << piece_max.ilog2(), idle_max: None }
    }
}

/// A request or a response that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedParcel {
    /// The number of the call.
    pub number: u64,
    /// Its class.
    pub class: Class,
    /// Its header.
    pub header: Span,
    /// Its data, in order.
    pub data: Vec<Span>,
}

/// A request or a response that is to be sent. Its bytes stay as they are until they are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parcel {
    /// The number of the call: higher than all before it on this client.
    pub number: u64,
    /// Its class.
    pub class: Class,
    /// Its header, at most [`HEADER_MAX`].
    pub header: Span,
    /// Its data, at most [`DATA_MAX`].
    pub data: Span,
}
