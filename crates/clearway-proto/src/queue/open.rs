//! An open buffer: records that a thread writes one behind the other, without the engine.
//!
//! # Model
//! The buffer's bytes are an argument: they lie in memory of the wire, and the state here lies
//! in memory of the thread. An element that continues the run before it costs its distance and its
//! operand; the run's length is written when the run ends. A run begins with its operand in the
//! header, because programs mostly add ones, and holds one for each element where that did not pay.
//!
//! # Invariants
//! I1. An element is kept whole or not at all; what was kept before stays readable.
//! I2. The answers to all requests of a buffer fit in the place that an answer has.

use super::record::{
    ATOMIC, CONSTANT, DATA, FETCHING, GET, GETS, PUT, PUT_MAX, STRIDED, VALUE, VALUES, WORD, flags,
};
use super::{Batch, Element, Place, QueueLimits, Ticket, WordChange, WordWidth};
use crate::wire::Span;

/// What became of a pushed element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Push {
    /// The buffer has it.
    Kept,
    /// It has not: close this buffer and push into another one. An element that a fresh buffer does
    /// not keep is longer than [`QueueLimits::element`].
    Full,
}

/// Elements of a run with a constant operand that pay its header.
const CONSTANT_PAYS: u16 = 4;
/// Bytes of an answer's header.
const ANSWER_HEADER: u32 = 8;

/// The run that the last element belongs to.
#[derive(Clone, Copy, Debug)]
struct OpenRun {
    /// Where its header lies.
    header: usize,
    kind: u8,
    flags: u8,
    count: u16,
    base: u64,
    ticket: u32,
    compare: u64,
    operand: u64,
}

/// What a run element writes.
struct RunElement {
    kind: u8,
    flags: u8,
    at: Option<Place>,
    ticket: Option<Ticket>,
    width: WordWidth,
    compare: u64,
    operand: u64,
    /// Words that it has as operands: 0 to 2.
    operands: usize,
}

/// The state of an open buffer.
#[derive(Clone, Debug)]
pub struct OpenBuffer {
    answer_max: u32,
    length: usize,
    elements: u32,
    requests: u32,
    answer: u32,
    run: Option<OpenRun>,
}

impl OpenBuffer {
    /// Creates the state of an empty buffer.
    pub const fn new(limits: &QueueLimits) -> Self {
        Self::with_answers(limits.answer)
    }

    pub(super) const fn with_answers(answer_max: u32) -> Self {
        Self { answer_max, length: 0, elements: 0, requests: 0, answer: 0, run: None }
    }

    /// Returns whether nothing was pushed since it was empty.
    pub const fn is_empty(&self) -> bool {
        self.elements == 0
    }

    /// Returns the elements that it holds.
    pub const fn elements(&self) -> u32 {
        self.elements
    }

    /// Returns the bytes that are used.
    pub const fn length(&self) -> usize {
        self.length
    }

    /// Appends `element` to what `buffer` holds; the same bytes at every call. Cost: a few
    /// nanoseconds.
    #[inline]
    pub fn push(&mut self, buffer: &mut [u8], element: Element<'_>) -> Push {
        let kept = match element {
            Element::Word { at, width, value } => {
                self.push_run(buffer, &RunElement::word(at, width, value))
            }
            Element::Atomic { at, change } => {
                self.push_run(buffer, &RunElement::atomic(ATOMIC, at, change))
            }
            Element::FetchAtomic { at, change, ticket } => {
                let run =
                    RunElement { ticket: Some(ticket), ..RunElement::atomic(FETCHING, at, change) };
                self.push_run(buffer, &run)
            }
            Element::Get { at, length, ticket } => match width_of(usize::from(length)) {
                Some(width) => self.push_run(buffer, &RunElement::get(at, width, ticket)),
                None => self.push_block(buffer, element),
            },
            Element::Value { ticket, bytes } => match width_of(bytes.len()) {
                Some(width) => self.push_run(buffer, &RunElement::value(ticket, width, bytes)),
                None => self.push_block(buffer, element),
            },
            Element::Put { .. } | Element::Strided { .. } | Element::Data { .. } => {
                self.push_block(buffer, element)
            }
        };
        if kept.is_some() {
            self.elements += 1;
            return Push::Kept;
        }
        Push::Full
    }

    /// Ends the last run, and empties the state for another buffer. `span` is where `buffer` lies;
    /// the batch is the part of it that is used.
    pub fn close(&mut self, buffer: &mut [u8], span: Span) -> Batch {
        self.end_run(buffer);
        let batch = Batch {
            buffer: Span { length: self.length as u32, ..span },
            elements: self.elements,
            requests: self.requests,
        };
        *self = Self::with_answers(self.answer_max);
        batch
    }

    /// Ends the last run; how many bytes there are now.
    pub(super) fn end_run(&mut self, buffer: &mut [u8]) -> usize {
        if let Some(run) = self.run.take()
            && let Some(count) = buffer.get_mut(run.header + 2..run.header + 4)
        {
            count.copy_from_slice(&run.count.to_le_bytes());
        }
        self.length
    }

    #[inline]
    fn push_run(&mut self, buffer: &mut [u8], element: &RunElement) -> Option<()> {
        let Some(run) = self.run.as_ref().filter(|run| run.continues(element)) else {
            return self.begin_run(buffer, element);
        };
        let is_constant = run.flags & CONSTANT != 0;
        let distance = element.at.map(|at| at.offset.wrapping_sub(run.base) as i32);
        let answer = self.answer_of(element, 0)?;
        let end = write_element(buffer, self.length, distance, element, is_constant)?;
        self.keep(end, answer, element);
        if let Some(run) = &mut self.run {
            run.count += 1;
        }
        Some(())
    }

    /// Returns the bytes of all answers, with that to `element` behind a header of `header` bytes.
    #[inline]
    fn answer_of(&self, element: &RunElement, header: u32) -> Option<u32> {
        if element.ticket.is_none() || element.at.is_none() {
            return Some(self.answer);
        }
        let answer = self.answer + header + element.width.bytes() as u32;
        (answer <= self.answer_max).then_some(answer)
    }

    #[inline]
    fn keep(&mut self, end: usize, answer: u32, element: &RunElement) {
        self.length = end;
        self.answer = answer;
        self.requests += u32::from(element.ticket.is_some());
    }

    fn begin_run(&mut self, buffer: &mut [u8], element: &RunElement) -> Option<()> {
        let is_constant = self.pays_constant(element);
        let answer = self.answer_of(element, ANSWER_HEADER)?;
        let header = self.length;
        let flags = element.flags | if is_constant { CONSTANT } else { 0 };
        let mut end = put(buffer, header, &[element.kind, flags, 0, 0])?;
        if let Some(at) = element.at {
            end = put(buffer, end, &at.offset.to_le_bytes())?;
        }
        if let Some(ticket) = element.ticket {
            end = put(buffer, end, &ticket.0.to_le_bytes())?;
        }
        if is_constant {
            end = write_operands(buffer, end, element)?;
        }
        let end = write_element(buffer, end, element.at.map(|_| 0), element, is_constant)?;
        self.end_run(buffer);
        self.keep(end, answer, element);
        self.run = Some(OpenRun {
            header,
            kind: element.kind,
            flags,
            count: 1,
            base: element.at.map_or(0, |at| at.offset),
            ticket: element.ticket.map_or(0, |ticket| ticket.0),
            compare: element.compare,
            operand: element.operand,
        });
        Some(())
    }

    /// Returns whether a run that begins with `element` has its operand in the header.
    fn pays_constant(&self, element: &RunElement) -> bool {
        if element.operands == 0 || element.kind == WORD || element.kind == VALUES {
            return false;
        }
        let before = self
            .run
            .filter(|run| run.kind == element.kind && run.flags & !CONSTANT == element.flags);
        before.is_none_or(|run| run.flags & CONSTANT != 0 && run.count >= CONSTANT_PAYS)
    }

    fn push_block(&mut self, buffer: &mut [u8], element: Element<'_>) -> Option<()> {
        let mut answer = self.answer;
        let header = |kind, flags, count: usize| {
            let [low, high] = (count as u16).to_le_bytes();
            [kind, flags, low, high]
        };
        let end = match element {
            Element::Put { at, bytes } if bytes.len() <= PUT_MAX => {
                let end = put(
                    buffer,
                    self.length,
                    &header(PUT, flags(WordWidth::One, at.segment), bytes.len()),
                )?;
                let end = put(buffer, end, &at.offset.to_le_bytes())?;
                put(buffer, end, bytes)?
            }
            Element::Strided { at, width, stride, words } if words.len() <= PUT_MAX => {
                let count = words.len() / width.bytes();
                let end =
                    put(buffer, self.length, &header(STRIDED, flags(width, at.segment), count))?;
                let end = put(buffer, end, &at.offset.to_le_bytes())?;
                let end = put(buffer, end, &stride.to_le_bytes())?;
                put(buffer, end, &words[..count * width.bytes()])?
            }
            Element::Get { at, length, ticket } if usize::from(length) <= PUT_MAX => {
                answer += ANSWER_HEADER + u32::from(length);
                let end = put(
                    buffer,
                    self.length,
                    &header(GET, flags(WordWidth::One, at.segment), usize::from(length)),
                )?;
                let end = put(buffer, end, &at.offset.to_le_bytes())?;
                put(buffer, end, &ticket.0.to_le_bytes())?
            }
            Element::Data { queue, bytes } if bytes.len() <= PUT_MAX => {
                let end = put(buffer, self.length, &header(DATA, 0, bytes.len()))?;
                let end = put(buffer, end, &queue.to_le_bytes())?;
                put(buffer, end, bytes)?
            }
            Element::Value { ticket, bytes } if bytes.len() <= PUT_MAX => {
                let end = put(buffer, self.length, &header(VALUE, 0, bytes.len()))?;
                let end = put(buffer, end, &ticket.0.to_le_bytes())?;
                put(buffer, end, bytes)?
            }
            _ => return None,
        };
        if answer > self.answer_max {
            return None;
        }
        self.end_run(buffer);
        self.requests += u32::from(answer > self.answer);
        (self.length, self.answer) = (end, answer);
        Some(())
    }
}

impl OpenRun {
    /// Returns whether `element` is the next one of this run.
    #[inline]
    fn continues(&self, element: &RunElement) -> bool {
        let is_alike = self.kind == element.kind && self.flags & !CONSTANT == element.flags;
        let has_operand = self.flags & CONSTANT == 0
            || (self.operand == element.operand && self.compare == element.compare);
        let is_near = element.at.is_none_or(|at| {
            let distance = at.offset.wrapping_sub(self.base) as i64;
            i32::try_from(distance).is_ok()
        });
        let is_next = element
            .ticket
            .is_none_or(|ticket| ticket.0 == self.ticket.wrapping_add(u32::from(self.count)));
        is_alike && has_operand && is_near && is_next && self.count < u16::MAX
    }
}

impl RunElement {
    const fn word(at: Place, width: WordWidth, value: u64) -> Self {
        Self {
            kind: WORD,
            flags: flags(width, at.segment),
            at: Some(at),
            ticket: None,
            width,
            compare: 0,
            operand: value,
            operands: 1,
        }
    }

    const fn atomic(kind: u8, at: Place, change: WordChange) -> Self {
        let (compare, operand) =
            (change.width.cut(change.compare), change.width.cut(change.operand));
        Self {
            kind: kind | change.step as u8,
            flags: flags(change.width, at.segment),
            at: Some(at),
            ticket: None,
            width: change.width,
            compare,
            operand,
            operands: change.step.operands(),
        }
    }

    const fn get(at: Place, width: WordWidth, ticket: Ticket) -> Self {
        Self { kind: GETS, ticket: Some(ticket), operands: 0, ..Self::word(at, width, 0) }
    }

    fn value(ticket: Ticket, width: WordWidth, bytes: &[u8]) -> Self {
        let mut word = [0; 8];
        word.iter_mut().zip(bytes).for_each(|(byte, from)| *byte = *from);
        Self {
            kind: VALUES,
            flags: flags(width, 0),
            at: None,
            ticket: Some(ticket),
            width,
            compare: 0,
            operand: u64::from_le_bytes(word),
            operands: 1,
        }
    }
}

/// Returns the width of a word of `length` bytes.
#[inline]
const fn width_of(length: usize) -> Option<WordWidth> {
    match length {
        1 => Some(WordWidth::One),
        2 => Some(WordWidth::Two),
        4 => Some(WordWidth::Four),
        8 => Some(WordWidth::Eight),
        _ => None,
    }
}

/// Writes `bytes` at `at`; where they end.
#[inline]
fn put(buffer: &mut [u8], at: usize, bytes: &[u8]) -> Option<usize> {
    let end = at + bytes.len();
    buffer.get_mut(at..end)?.copy_from_slice(bytes);
    Some(end)
}

#[inline]
fn write_operands(buffer: &mut [u8], at: usize, element: &RunElement) -> Option<usize> {
    let mut end = at;
    if element.operands > 1 {
        end = write_word(buffer, end, element.width, element.compare)?;
    }
    if element.operands > 0 {
        end = write_word(buffer, end, element.width, element.operand)?;
    }
    Some(end)
}

#[inline]
fn write_word(buffer: &mut [u8], at: usize, width: WordWidth, word: u64) -> Option<usize> {
    match width {
        WordWidth::One => put(buffer, at, &(word as u8).to_le_bytes()),
        WordWidth::Two => put(buffer, at, &(word as u16).to_le_bytes()),
        WordWidth::Four => put(buffer, at, &(word as u32).to_le_bytes()),
        WordWidth::Eight => put(buffer, at, &word.to_le_bytes()),
    }
}

#[inline]
fn write_element(
    buffer: &mut [u8],
    at: usize,
    distance: Option<i32>,
    element: &RunElement,
    is_constant: bool,
) -> Option<usize> {
    let mut end = at;
    if let Some(distance) = distance {
        end = put(buffer, end, &distance.to_le_bytes())?;
    }
    if is_constant { Some(end) } else { write_operands(buffer, end, element) }
}
