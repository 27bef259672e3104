//! How much an end has of everything, and where in its two pieces of own memory it lies.
//!
//! # Model
//! Each lane has [`SLOTS`] slots for what is under way, each with memory for one message, and
//! [`BUFFERS`] receive buffers of [`BUFFER_LENGTH`] bytes that take many messages each. Keys of the
//! device number the slots of all lanes first, then the buffers.

use crate::device::LocalBytes;
use crate::frame::MESSAGE_MAX;

/// The piece of memory that messages arrive in.
pub(crate) const RECEIVE: usize = 0;
/// The piece of memory that messages leave from.
pub(crate) const STAGING: usize = 1;
/// Pieces before the first region of the user's.
pub(crate) const OWN_PIECES: usize = 2;

/// What one lane can have under way: with messages of 8 KiB half a MiB, more than a link of 100
/// Gb/s holds in 10 us.
pub(crate) const SLOTS: usize = 64;
/// Slots of these that engines' operations leave to the wire's own notes.
pub(crate) const RESERVE: usize = 8;
/// Receive buffers of a lane: while one is read and one is half full, two are empty.
pub(crate) const BUFFERS: usize = 4;
/// Bytes of a receive buffer: at most a twelfth of it is lost at its end, where no longest message
/// fits any more.
pub(crate) const BUFFER_LENGTH: usize = 128 * 1024;

/// Returns the place of a slot's memory.
pub(crate) fn staging(slot: usize, length: usize) -> LocalBytes {
    LocalBytes { piece: STAGING, offset: slot * MESSAGE_MAX, length }
}

/// Returns the place of a receive buffer; buffers are numbered through all lanes.
pub(crate) fn buffer(number: usize) -> LocalBytes {
    LocalBytes { piece: RECEIVE, offset: number * BUFFER_LENGTH, length: BUFFER_LENGTH }
}

/// Returns the length of the receive memory in bytes.
pub(crate) fn receive_length(lanes: usize) -> usize {
    lanes * BUFFERS * BUFFER_LENGTH
}

/// Returns the length of the staging memory in bytes.
pub(crate) fn staging_length(lanes: usize) -> usize {
    lanes * SLOTS * MESSAGE_MAX
}

/// Returns how many keys the device needs.
pub(crate) fn keys(lanes: usize) -> usize {
    lanes * (SLOTS + BUFFERS)
}
