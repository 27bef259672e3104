//! What records do to the application's memory: one decoder for the library and for model heaps.
//!
//! # Invariants
//! I1. Elements take effect one after the other, in the order of the records. The first one that is
//!     malformed, or outside a segment, has no effect, and none behind it has.

use super::{Element, OpenBuffer, PUT_MAX, Place, Push, Ticket, WordChange, read_elements};
use crate::base::Rank;
use crate::wire::Fault;

/// The application's memory, as elements of peers change it.
///
/// Every method fails with [`Fault::Malformed`], and changes nothing, where the place leaves its
/// segment or there is no such segment, queue or request.
pub trait HeapAccess {
    /// Copies `bytes` to `at`. Aligned words of one, two, four and eight bytes are stored whole.
    ///
    /// # Errors
    /// [`Fault::Malformed`].
    fn put(&mut self, at: Place, bytes: &[u8]) -> Result<(), Fault>;

    /// Copies the bytes at `at` out. Aligned words are read whole.
    ///
    /// # Errors
    /// [`Fault::Malformed`].
    fn get(&mut self, at: Place, into: &mut [u8]) -> Result<(), Fault>;

    /// Changes the word at `at` in one atomic step among all threads; returns the old one. What was
    /// applied before is visible to a thread that sees the new word.
    ///
    /// # Errors
    /// [`Fault::Malformed`], also where the place is not aligned.
    fn atomic(&mut self, at: Place, change: WordChange) -> Result<u64, Fault>;

    /// Takes an element of a data queue.
    ///
    /// # Errors
    /// [`Fault::Malformed`].
    fn data(&mut self, from: Rank, queue: u32, bytes: &[u8]) -> Result<(), Fault>;

    /// Takes the answer to a request that was sent to `from`.
    ///
    /// # Errors
    /// [`Fault::Malformed`].
    fn fetched(&mut self, from: Rank, ticket: Ticket, bytes: &[u8]) -> Result<(), Fault>;
}

/// Applies `records` of rank `from` to `heap` and writes the answers to requests into `answer`;
/// returns their bytes. What an [`Applier`](crate::wire::Applier) does.
///
/// # Errors
/// [`Fault::Malformed`] at the first element that is none, that `heap` refuses, or whose answer has
/// no room.
pub fn apply<H: HeapAccess + ?Sized>(
    heap: &mut H,
    from: Rank,
    records: &[u8],
    answer: &mut [u8],
) -> Result<usize, Fault> {
    let mut answers = OpenBuffer::with_answers(0);
    read_elements(records, &mut |element| match element {
        Element::Word { at, width, value } => heap.put(at, &value.to_le_bytes()[..width.bytes()]),
        Element::Put { at, bytes } => heap.put(at, bytes),
        Element::Strided { at, width, stride, words } => {
            let mut at = at;
            for word in words.chunks_exact(width.bytes()) {
                heap.put(at, word)?;
                at.offset = at.offset.wrapping_add_signed(stride);
            }
            Ok(())
        }
        Element::Atomic { at, change } => heap.atomic(at, change).map(|_| ()),
        Element::FetchAtomic { at, change, ticket } => {
            let old = heap.atomic(at, change)?.to_le_bytes();
            push(&mut answers, answer, ticket, &old[..change.width.bytes()])
        }
        // Most gets are of a word: they do not pay for clearing the longest one's bytes.
        Element::Get { at, length, ticket } if length <= 8 => {
            let mut word = [0; 8];
            let bytes = &mut word[..usize::from(length)];
            heap.get(at, bytes)?;
            push(&mut answers, answer, ticket, bytes)
        }
        Element::Get { at, length, ticket } => {
            let mut bytes = [0; PUT_MAX];
            let bytes = bytes.get_mut(..usize::from(length)).ok_or(Fault::Malformed)?;
            heap.get(at, bytes)?;
            push(&mut answers, answer, ticket, bytes)
        }
        Element::Data { queue, bytes } => heap.data(from, queue, bytes),
        Element::Value { ticket, bytes } => heap.fetched(from, ticket, bytes),
    })?;
    Ok(answers.end_run(answer))
}

fn push(
    answers: &mut OpenBuffer,
    answer: &mut [u8],
    ticket: Ticket,
    bytes: &[u8],
) -> Result<(), Fault> {
    match answers.push(answer, Element::Value { ticket, bytes }) {
        Push::Kept => Ok(()),
        Push::Full => Err(Fault::Malformed),
    }
}
