//! What records do to the application's memory: one decoder for the library and for model heaps.
//!
//! # Invariants
//! I1. Elements take effect one after the other, in the order of the records. The first one that is
//!     malformed, or outside a segment, has no effect, and none behind it has.

use super::record::{ElementSink, read_records};
use super::{AtomicRun, Element, OpenBuffer, PUT_MAX, Place, Push, Ticket, WordChange};
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

    /// Changes the words of a run one after the other, each as [`HeapAccess::atomic`] does, until one
    /// fails.
    ///
    /// # Errors
    /// [`Fault::Malformed`] at the first word that is none; those before it are changed.
    #[inline]
    fn atomics(&mut self, run: AtomicRun<'_>) -> Result<(), Fault> {
        let (segment, change) = (run.segment(), run.change);
        run.offsets()
            .try_for_each(|offset| self.atomic(Place { segment, offset }, change).map(|_| ()))
    }

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
    let mut applied = AppliedRecords { heap, from, answer, answers: OpenBuffer::with_answers(0) };
    read_records(records, &mut applied)?;
    let AppliedRecords { answer, mut answers, .. } = applied;
    Ok(answers.end_run(answer))
}

/// Records that take effect as they are read.
struct AppliedRecords<'a, H: ?Sized> {
    heap: &'a mut H,
    from: Rank,
    answer: &'a mut [u8],
    answers: OpenBuffer,
}

impl<H: HeapAccess + ?Sized> ElementSink<'_> for AppliedRecords<'_, H> {
    #[inline]
    fn element(&mut self, element: Element<'_>) -> Result<(), Fault> {
        let Self { heap, from, answer, answers } = self;
        match element {
            Element::Word { at, width, value } => {
                heap.put(at, &value.to_le_bytes()[..width.bytes()])
            }
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
                push(answers, answer, ticket, &old[..change.width.bytes()])
            }
            // Most gets are of a word: they do not pay for clearing the longest one's bytes.
            Element::Get { at, length, ticket } if length <= 8 => {
                let mut word = [0; 8];
                let bytes = &mut word[..usize::from(length)];
                heap.get(at, bytes)?;
                push(answers, answer, ticket, bytes)
            }
            Element::Get { at, length, ticket } => {
                let mut bytes = [0; PUT_MAX];
                let bytes = bytes.get_mut(..usize::from(length)).ok_or(Fault::Malformed)?;
                heap.get(at, bytes)?;
                push(answers, answer, ticket, bytes)
            }
            Element::Data { queue, bytes } => heap.data(*from, queue, bytes),
            Element::Value { ticket, bytes } => heap.fetched(*from, ticket, bytes),
        }
    }

    #[inline]
    fn atomics(&mut self, run: AtomicRun<'_>) -> Result<(), Fault> {
        self.heap.atomics(run)
    }
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
