//! The records of a batch: how elements are written one behind the other, and read again.
//!
//! # Model
//! All numbers are little-endian. A record is a header and what its kind asks for. Elements of one
//! kind, width and segment are a *run*: the place of the first one stands in the header, and each
//! element is its distance from there and its operand; an operand that all have stands in the
//! header, once. Tickets of a run follow each other, so that the first one is enough.
//!
//! ```text
//!   0      kind: WORD 1, PUT 2, STRIDED 3, GET 4, GETS 5, DATA 6, VALUE 7, VALUES 8,
//!          ATOMIC 0x10 | step, FETCHING 0x20 | step
//!   1      width 0..3 (1 << width bytes) | segment << 2 | constant operand << 4
//!   2      elements of a run, or bytes of PUT, GET, DATA, VALUE (u16)
//!   4      offset of the (first) place (u64): all but DATA, VALUE, VALUES
//!   then   stride in bytes (i64): STRIDED
//!          ticket of the first (u32): GET, GETS, FETCHING, VALUE, VALUES; queue (u32): DATA
//!          operand: where it is constant; compare and operand of a compare-and-swap
//!   then   bytes; or for each element its distance from the first (i32, not in STRIDED and VALUES)
//!          and, where it is not constant, its operand
//! ```
//!
//! # Invariants
//! I1. Any bytes are read to their end or to the first record that is none, without a panic and
//!     without memory.
//!
//! # Not here
//! What an element does to memory: [`super::HeapAccess`].

use super::Ticket;
use crate::base::ByteReader;
use crate::wire::Fault;

/// Bytes of the longest put, get and data element.
pub const PUT_MAX: usize = 4 << 10;
/// Segments of symmetric memory that a place can name: heap, statics, the library's own, a spare.
pub(super) const SEGMENTS: usize = 4;
/// The longest header of an element with bytes: that of a strided put.
pub(super) const BLOCK_HEADER_MAX: usize = 20;

pub(super) const WORD: u8 = 1;
pub(super) const PUT: u8 = 2;
pub(super) const STRIDED: u8 = 3;
pub(super) const GET: u8 = 4;
pub(super) const GETS: u8 = 5;
pub(super) const DATA: u8 = 6;
pub(super) const VALUE: u8 = 7;
pub(super) const VALUES: u8 = 8;
pub(super) const ATOMIC: u8 = 0x10;
pub(super) const FETCHING: u8 = 0x20;
/// The bit of a run whose operand stands in its header.
pub(super) const CONSTANT: u8 = 1 << 4;
const SEGMENT_SHIFT: u8 = 2;
const STEP_MASK: u8 = 0xf;
/// Bytes of an element's distance.
const DISTANCE: usize = 4;

/// A byte of a peer's symmetric memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Which segment, 0 to 3.
    pub segment: u8,
    /// Bytes from its beginning.
    pub offset: u64,
}

/// The width of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WordWidth {
    /// One byte.
    One,
    /// Two bytes.
    Two,
    /// Four bytes.
    Four,
    /// Eight bytes.
    Eight,
}

impl WordWidth {
    /// All widths; `ALL[width as usize]` is the width.
    pub const ALL: [Self; 4] = [Self::One, Self::Two, Self::Four, Self::Eight];

    /// Returns the bytes of a word.
    #[inline]
    pub const fn bytes(self) -> usize {
        1 << self as usize
    }

    /// Returns `word` without what is beyond this width.
    #[inline]
    pub const fn cut(self, word: u64) -> u64 {
        word & (u64::MAX >> (64 - 8 * self.bytes()))
    }
}

/// What an atomic operation makes of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AtomicStep {
    /// Leaves it.
    Fetch,
    /// Replaces it; a swap where the old word is fetched.
    Set,
    /// Adds and wraps around.
    Add,
    /// Bit by bit.
    And,
    /// Bit by bit.
    Or,
    /// Bit by bit.
    Xor,
    /// Replaces it if it is as expected.
    CompareSwap,
}

impl AtomicStep {
    /// All steps; `ALL[step as usize]` is the step.
    pub const ALL: [Self; 7] =
        [Self::Fetch, Self::Set, Self::Add, Self::And, Self::Or, Self::Xor, Self::CompareSwap];

    /// Returns the operands that an element has.
    #[inline]
    pub(super) const fn operands(self) -> usize {
        match self {
            Self::Fetch => 0,
            Self::CompareSwap => 2,
            _ => 1,
        }
    }
}

/// An atomic change of a word of four or eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WordChange {
    /// What is done.
    pub step: AtomicStep,
    /// The width of the word.
    pub width: WordWidth,
    /// The operand, in the lowest bytes; not used by a fetch.
    pub operand: u64,
    /// What a compare-and-swap expects; not used by others.
    pub compare: u64,
}

impl WordChange {
    /// Creates the change `step` with one operand.
    pub const fn new(step: AtomicStep, width: WordWidth, operand: u64) -> Self {
        Self { step, width, operand, compare: 0 }
    }

    /// Returns what the word becomes that was `old`.
    #[inline]
    pub const fn next(self, old: u64) -> u64 {
        let new = match self.step {
            AtomicStep::Fetch => old,
            AtomicStep::Set => self.operand,
            AtomicStep::Add => old.wrapping_add(self.operand),
            AtomicStep::And => old & self.operand,
            AtomicStep::Or => old | self.operand,
            AtomicStep::Xor => old ^ self.operand,
            AtomicStep::CompareSwap => {
                if self.width.cut(old) == self.width.cut(self.compare) {
                    self.operand
                } else {
                    old
                }
            }
        };
        self.width.cut(new)
    }
}

/// One small operation, or one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element<'a> {
    /// Stores one word, whole.
    Word {
        /// Where.
        at: Place,
        /// How wide.
        width: WordWidth,
        /// The word, in the lowest bytes.
        value: u64,
    },
    /// Copies at most [`PUT_MAX`] bytes.
    Put {
        /// Where.
        at: Place,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Stores words at a constant distance; at most [`PUT_MAX`] bytes.
    Strided {
        /// The first one.
        at: Place,
        /// How wide each is.
        width: WordWidth,
        /// Bytes from one to the next.
        stride: i64,
        /// The words, one behind the other.
        words: &'a [u8],
    },
    /// Changes a word. A signal is the change `Set` or `Add` of eight bytes.
    Atomic {
        /// Which word.
        at: Place,
        /// How.
        change: WordChange,
    },
    /// Changes a word and answers with the old one.
    FetchAtomic {
        /// Which word.
        at: Place,
        /// How.
        change: WordChange,
        /// Comes back with the word.
        ticket: Ticket,
    },
    /// Answers with at most [`PUT_MAX`] bytes. One, two, four and eight bytes are a word, whole.
    Get {
        /// Where they lie.
        at: Place,
        /// How many.
        length: u16,
        /// Comes back with them.
        ticket: Ticket,
    },
    /// Gives at most [`PUT_MAX`] bytes to a queue of the peer.
    Data {
        /// Which queue.
        queue: u32,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// The answer to a request.
    Value {
        /// Which request.
        ticket: Ticket,
        /// The old word or the bytes.
        bytes: &'a [u8],
    },
}

/// Changes of words by one operand, as one record has them: what counts is mostly additions of one,
/// and a target does them without a look at each one's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicRun<'a> {
    /// How each is changed.
    pub change: WordChange,
    /// The place from which all others are counted.
    base: Place,
    /// How far each is from there.
    distances: &'a [[u8; 4]],
}

impl AtomicRun<'_> {
    /// Returns the segment of all words.
    #[inline]
    pub const fn segment(&self) -> u8 {
        self.base.segment
    }

    /// Returns the offsets of the words, in order.
    #[inline]
    pub fn offsets(&self) -> impl Iterator<Item = u64> {
        self.distances.iter().map(|distance| {
            self.base.offset.wrapping_add_signed(i64::from(i32::from_le_bytes(*distance)))
        })
    }
}

/// What is done with the elements of a batch.
pub(super) trait ElementSink<'a> {
    fn element(&mut self, element: Element<'a>) -> Result<(), Fault>;

    /// Takes several elements, until one fails.
    #[inline]
    fn atomics(&mut self, run: AtomicRun<'a>) -> Result<(), Fault> {
        let (segment, change) = (run.segment(), run.change);
        run.offsets().try_for_each(|offset| {
            self.element(Element::Atomic { at: Place { segment, offset }, change })
        })
    }
}

impl<'a, F: FnMut(Element<'a>) -> Result<(), Fault>> ElementSink<'a> for F {
    #[inline]
    fn element(&mut self, element: Element<'a>) -> Result<(), Fault> {
        self(element)
    }
}

/// Reads `records` and gives each element to `sink`, in order, until it fails.
///
/// # Errors
/// [`Fault::Malformed`] at the first record that is none; else that of `sink`.
#[inline]
pub fn read_elements<'a>(
    records: &'a [u8],
    sink: &mut impl FnMut(Element<'a>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    read_records(records, sink)
}

/// Reads `records` as [`read_elements`] does.
#[inline]
pub(super) fn read_records<'a>(
    records: &'a [u8],
    sink: &mut impl ElementSink<'a>,
) -> Result<(), Fault> {
    let mut rest = ByteReader::new(records);
    while !rest.is_empty() {
        read_record(&mut rest, sink)?;
    }
    Ok(())
}

/// What all records begin with.
#[derive(Clone, Copy)]
struct RecordHeader {
    kind: u8,
    width: WordWidth,
    segment: u8,
    is_constant: bool,
    count: u16,
}

impl RecordHeader {
    #[inline]
    fn read(rest: &mut ByteReader<'_>) -> Option<Self> {
        let (kind, flags, count) = (rest.u8()?, rest.u8()?, rest.u16()?);
        if flags >> 5 != 0 {
            return None;
        }
        Some(Self {
            kind,
            width: WordWidth::ALL[usize::from(flags & 3)],
            segment: flags >> SEGMENT_SHIFT & 3,
            is_constant: flags & CONSTANT != 0,
            count,
        })
    }

    /// Returns the place `distance` bytes behind `offset`.
    #[inline]
    const fn place(self, offset: u64, distance: i64) -> Place {
        Place { segment: self.segment, offset: offset.wrapping_add_signed(distance) }
    }
}

/// Returns the second byte of a header.
#[inline]
pub(super) const fn flags(width: WordWidth, segment: u8) -> u8 {
    width as u8 | (segment & 3) << SEGMENT_SHIFT
}

#[inline]
fn word(rest: &mut ByteReader<'_>, width: WordWidth) -> Option<u64> {
    match width {
        WordWidth::One => rest.u8().map(u64::from),
        WordWidth::Two => rest.u16().map(u64::from),
        WordWidth::Four => rest.u32().map(u64::from),
        WordWidth::Eight => rest.u64(),
    }
}

#[inline]
fn read_record<'a>(
    rest: &mut ByteReader<'a>,
    sink: &mut impl ElementSink<'a>,
) -> Result<(), Fault> {
    let header = RecordHeader::read(rest).ok_or(Fault::Malformed)?;
    match header.kind {
        WORD => read_words(header, rest, sink),
        GETS => read_gets(header, rest, sink),
        VALUES => read_values(header, rest, sink),
        PUT | STRIDED | GET | DATA | VALUE => {
            sink.element(read_block(header, rest).ok_or(Fault::Malformed)?)
        }
        kind => {
            let step =
                *AtomicStep::ALL.get(usize::from(kind & STEP_MASK)).ok_or(Fault::Malformed)?;
            let is_narrow = header.width < WordWidth::Four;
            match kind & !STEP_MASK {
                _ if is_narrow => Err(Fault::Malformed),
                ATOMIC if !matches!(step, AtomicStep::Fetch | AtomicStep::CompareSwap) => {
                    read_atomics(header, step, rest, sink)
                }
                FETCHING => read_fetching(header, step, rest, sink),
                _ => Err(Fault::Malformed),
            }
        }
    }
}

fn read_block<'a>(header: RecordHeader, rest: &mut ByteReader<'a>) -> Option<Element<'a>> {
    let length = usize::from(header.count);
    let bytes = |rest: &mut ByteReader<'a>| rest.run(length).filter(|_| length <= PUT_MAX);
    Some(match header.kind {
        PUT => {
            let at = header.place(rest.u64()?, 0);
            Element::Put { at, bytes: bytes(rest)? }
        }
        STRIDED => {
            let (at, stride) = (header.place(rest.u64()?, 0), i64::from_le_bytes(rest.take()?));
            let length = length * header.width.bytes();
            let words = rest.run(length).filter(|_| length <= PUT_MAX)?;
            Element::Strided { at, width: header.width, stride, words }
        }
        GET => {
            let (at, ticket) = (header.place(rest.u64()?, 0), Ticket(rest.u32()?));
            (length <= PUT_MAX).then_some(Element::Get { at, length: header.count, ticket })?
        }
        DATA => {
            let queue = rest.u32()?;
            Element::Data { queue, bytes: bytes(rest)? }
        }
        _ => {
            let ticket = Ticket(rest.u32()?);
            Element::Value { ticket, bytes: bytes(rest)? }
        }
    })
}

#[inline]
fn read_words<'a>(
    header: RecordHeader,
    rest: &mut ByteReader<'a>,
    sink: &mut impl ElementSink<'a>,
) -> Result<(), Fault> {
    let base = rest.u64().filter(|_| !header.is_constant).ok_or(Fault::Malformed)?;
    for _ in 0..header.count {
        let distance = distance(rest)?;
        let value = word(rest, header.width).ok_or(Fault::Malformed)?;
        sink.element(Element::Word {
            at: header.place(base, distance),
            width: header.width,
            value,
        })?;
    }
    Ok(())
}

#[inline]
fn distance(rest: &mut ByteReader<'_>) -> Result<i64, Fault> {
    rest.take().map(|bytes| i64::from(i32::from_le_bytes(bytes))).ok_or(Fault::Malformed)
}

fn read_gets<'a>(
    header: RecordHeader,
    rest: &mut ByteReader<'a>,
    sink: &mut impl ElementSink<'a>,
) -> Result<(), Fault> {
    let base = rest.u64().ok_or(Fault::Malformed)?;
    let first = rest.u32().ok_or(Fault::Malformed)?;
    for index in 0..u32::from(header.count) {
        let at = header.place(base, distance(rest)?);
        let (length, ticket) = (header.width.bytes() as u16, Ticket(first.wrapping_add(index)));
        sink.element(Element::Get { at, length, ticket })?;
    }
    Ok(())
}

fn read_values<'a>(
    header: RecordHeader,
    rest: &mut ByteReader<'a>,
    sink: &mut impl ElementSink<'a>,
) -> Result<(), Fault> {
    let first = rest.u32().ok_or(Fault::Malformed)?;
    for index in 0..u32::from(header.count) {
        let bytes = rest.run(header.width.bytes()).ok_or(Fault::Malformed)?;
        sink.element(Element::Value { ticket: Ticket(first.wrapping_add(index)), bytes })?;
    }
    Ok(())
}

/// Reads the operands of a change into `change`.
#[inline]
fn operands(rest: &mut ByteReader<'_>, change: &mut WordChange) -> Result<(), Fault> {
    if change.step.operands() > 1 {
        change.compare = word(rest, change.width).ok_or(Fault::Malformed)?;
    }
    if change.step.operands() > 0 {
        change.operand = word(rest, change.width).ok_or(Fault::Malformed)?;
    }
    Ok(())
}

#[inline]
fn read_atomics<'a>(
    header: RecordHeader,
    step: AtomicStep,
    rest: &mut ByteReader<'a>,
    sink: &mut impl ElementSink<'a>,
) -> Result<(), Fault> {
    let base = rest.u64().ok_or(Fault::Malformed)?;
    let mut change = WordChange::new(step, header.width, 0);
    if header.is_constant {
        operands(rest, &mut change)?;
        // Those that are there take effect, as in other runs, where some are missing.
        let wanted = usize::from(header.count) * DISTANCE;
        let there = wanted.min(rest.remaining().len());
        let (distances, _) = rest.run(there).unwrap_or_default().as_chunks();
        sink.atomics(AtomicRun { change, base: header.place(base, 0), distances })?;
        return if there == wanted { Ok(()) } else { Err(Fault::Malformed) };
    }
    for _ in 0..header.count {
        let at = header.place(base, distance(rest)?);
        operands(rest, &mut change)?;
        sink.element(Element::Atomic { at, change })?;
    }
    Ok(())
}

#[inline]
fn read_fetching<'a>(
    header: RecordHeader,
    step: AtomicStep,
    rest: &mut ByteReader<'a>,
    sink: &mut impl ElementSink<'a>,
) -> Result<(), Fault> {
    let base = rest.u64().ok_or(Fault::Malformed)?;
    let first = rest.u32().ok_or(Fault::Malformed)?;
    let mut change = WordChange::new(step, header.width, 0);
    if header.is_constant {
        operands(rest, &mut change)?;
    }
    for index in 0..u32::from(header.count) {
        let at = header.place(base, distance(rest)?);
        if !header.is_constant {
            operands(rest, &mut change)?;
        }
        sink.element(Element::FetchAtomic {
            at,
            change,
            ticket: Ticket(first.wrapping_add(index)),
        })?;
    }
    Ok(())
}
