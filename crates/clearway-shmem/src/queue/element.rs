//! Updates of single words, gathered: how they are written one behind the other, and what they do.
//!
//! # Model
//! An update changes one aligned word of 4 or 8 bytes in one atomic step and gives nothing back.
//! Updates of the same step, width and segment are a *run* of 32-bit words:
//!
//! ```text
//!   0      step | width << 8 | segment << 16 | kind << 24 (1 constant, 2 varied)
//!   1      elements
//!   2, 3   operand, low word first: constant runs
//!   then   for each element its index in words of that width from the segment's beginning,
//!          and, in a varied run, its operand: one word, or two
//! ```
//! Programs mostly add ones, so a run begins as a constant one, and an update costs four bytes. One
//! whose operand differs soon begins a varied run.
//!
//! # Invariants
//! I1. Any words are read to their end or to the first run that is none, without a panic. A run
//!     with an element outside its segment changes nothing.

use crate::address::{PREFETCH_AHEAD, Place, Segments};
use crate::word::{Integer, Word};

/// How an update changes a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum WordStep {
    /// Replaces it.
    Set = 1,
    /// Adds, and wraps around.
    Add = 2,
    /// Bit by bit.
    And = 3,
    /// Bit by bit.
    Or = 4,
    /// Bit by bit.
    Xor = 5,
}

impl WordStep {
    const ALL: [Self; 5] = [Self::Set, Self::Add, Self::And, Self::Or, Self::Xor];
}

/// An update of one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WordUpdate {
    /// Step, width and segment, as a run's header has them.
    key: u32,
    index: u32,
    operand: u64,
}

impl WordUpdate {
    /// Creates the update of the word of `width` bytes, 4 or 8, at `offset` of a segment; `None`
    /// where an index has too few bits for it, or the word is not aligned.
    #[inline]
    pub(crate) fn new(
        step: WordStep,
        width: usize,
        (segment, offset): (u8, usize),
        operand: u64,
    ) -> Option<Self> {
        // Not divisions, which take longer than all the rest.
        if offset & (width - 1) != 0 {
            return None;
        }
        let index = u32::try_from(offset >> width.trailing_zeros()).ok()?;
        let key = step as u32 | (width as u32) << 8 | u32::from(segment) << 16;
        Some(Self { key, index, operand })
    }

    fn width(self) -> usize {
        (self.key >> 8 & 0xff) as usize
    }
}

/// Words of a run's header.
const HEADER: usize = 4;
const CONSTANT: u32 = 1 << 24;
const VARIED: u32 = 2 << 24;
/// Elements of a constant run that pay its header.
const CONSTANT_PAYS: usize = 4;
/// Words in which any update has room.
pub(crate) const UPDATE_WORDS_MAX: usize = HEADER + 3;

/// Words where runs are written: those of an open buffer.
pub(crate) trait RunWords {
    /// Returns how many words may be written.
    fn limit(&self) -> usize;
    /// Returns how many words are written.
    fn used(&self) -> usize;
    /// Writes a word behind those that are written.
    fn append(&self, word: u32);
    /// Writes a word again.
    fn rewrite(&self, at: usize, word: u32);
}

/// The run that the last update belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenRun {
    /// The header's first word; 0 for none.
    pub(crate) key: u32,
    pub(crate) operand: u64,
    pub(crate) header: u32,
}

impl OpenRun {
    /// Returns whether `update` adds nothing to this run but its index.
    #[inline]
    pub(crate) fn continues(self, update: WordUpdate) -> bool {
        self.key == update.key | CONSTANT && self.operand == update.operand
    }

    /// Returns the elements so far, where `used` words are written.
    pub(crate) fn elements(self, used: usize) -> usize {
        let words = used - self.header as usize - HEADER;
        words / stride(self.key >> 24 << 24 == CONSTANT, (self.key >> 8 & 0xff) as usize)
    }

    /// Ends the run; how many elements it has.
    pub(crate) fn end(&mut self, words: &impl RunWords) -> usize {
        if self.key == 0 {
            return 0;
        }
        let elements = self.elements(words.used());
        words.rewrite(self.header as usize + 1, elements as u32);
        self.key = 0;
        elements
    }

    /// Writes `update`; `None` if it has no room, and how many elements a run had that it ended.
    pub(crate) fn write(
        &mut self,
        words: &impl RunWords,
        update: WordUpdate,
    ) -> (Option<()>, usize) {
        let varied = [update.operand as u32, (update.operand >> 32) as u32];
        let operands = &varied[..update.width() / 4];
        if self.key == update.key | VARIED {
            if words.used() + 1 + operands.len() > words.limit() {
                return (None, 0);
            }
            words.append(update.index);
            operands.iter().for_each(|word| words.append(*word));
            return (Some(()), 0);
        }
        let did_not_pay =
            self.key == update.key | CONSTANT && self.elements(words.used()) < CONSTANT_PAYS;
        let ended = self.end(words);
        if words.used() + UPDATE_WORDS_MAX > words.limit() {
            return (None, ended);
        }
        let kind = if did_not_pay { VARIED } else { CONSTANT };
        *self =
            Self { key: update.key | kind, operand: update.operand, header: words.used() as u32 };
        words.append(self.key);
        words.append(0);
        varied.iter().for_each(|word| words.append(*word));
        words.append(update.index);
        if did_not_pay {
            operands.iter().for_each(|word| words.append(*word));
        }
        (Some(()), ended)
    }

    /// Returns what an update appends that continues a run.
    #[inline]
    pub(crate) fn index_of(update: WordUpdate) -> u32 {
        update.index
    }
}

/// Returns the words of an element.
const fn stride(is_constant: bool, width: usize) -> usize {
    if is_constant { 1 } else { 1 + width / 4 }
}

/// A peer sent what is no run, or leaves its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Applies runs to the segments of PE `pe`; the elements that they had.
///
/// # Errors
/// At the first run that is none, or that leaves its segment.
pub(crate) fn apply(segments: &Segments, pe: usize, words: &[u32]) -> Result<u64, Malformed> {
    let mut rest = words;
    let mut applied = 0;
    while let [key, count, low, high, behind @ ..] = rest {
        let [step, width, segment, kind] = key.to_le_bytes();
        let step = WordStep::ALL.into_iter().find(|known| *known as u8 == step).ok_or(Malformed)?;
        if !matches!(width, 4 | 8) || !matches!(kind, 1 | 2) {
            return Err(Malformed);
        }
        let operand = (kind == 1).then_some(u64::from(*low) | u64::from(*high) << 32);
        let stride = stride(kind == 1, usize::from(width));
        let length = (*count as usize).checked_mul(stride).ok_or(Malformed)?;
        let (elements, behind) = behind.split_at_checked(length).ok_or(Malformed)?;
        let segment = segments.segment(segment, pe).ok_or(Malformed)?;
        let run = Run { elements, stride, operand, segment };
        match width {
            4 => run.apply_steps::<u32>(step, |operand| operand as u32),
            _ => run.apply_steps::<u64>(step, |operand| operand),
        }?;
        applied += u64::from(*count);
        rest = behind;
    }
    if rest.is_empty() { Ok(applied) } else { Err(Malformed) }
}

/// The elements of one run.
struct Run<'a> {
    elements: &'a [u32],
    stride: usize,
    /// Where all have the same.
    operand: Option<u64>,
    segment: (Place, usize),
}

impl Run<'_> {
    fn apply_steps<T: Integer>(
        &self,
        step: WordStep,
        cut: impl Fn(u64) -> T,
    ) -> Result<(), Malformed> {
        let last = match self.operand {
            // By itself: a loop without a stride is much faster.
            Some(_) => self.elements.iter().max(),
            None => self.elements.iter().step_by(self.stride).max(),
        };
        let last = last.copied().unwrap_or_default();
        let is_empty = self.elements.is_empty();
        if !is_empty && (last as usize + 1) * size_of::<T>() > self.segment.1 {
            return Err(Malformed);
        }
        // One loop for each step.
        match step {
            WordStep::Set => self.each(cut, |word, value| {
                T::swap(word, value);
            }),
            WordStep::Add => self.each(cut, |word, value| {
                T::fetch_add(word, value);
            }),
            WordStep::And => self.each(cut, |word, value| {
                T::fetch_and(word, value);
            }),
            WordStep::Or => self.each(cut, |word, value| {
                T::fetch_or(word, value);
            }),
            WordStep::Xor => self.each(cut, |word, value| {
                T::fetch_xor(word, value);
            }),
        }
    }

    #[inline(always)]
    fn each<T: Word>(
        &self,
        cut: impl Fn(u64) -> T,
        update: impl Fn(&T::Atomic, T),
    ) -> Result<(), Malformed> {
        let place = |index: u32| self.segment.0.plus(index as usize * size_of::<T>());
        let word = |index: u32| place(index).word::<T>().ok_or(Malformed);
        match self.operand {
            Some(operand) => {
                let operand = cut(operand);
                let mut later = self.elements.iter().skip(PREFETCH_AHEAD);
                self.elements.iter().try_for_each(|index| {
                    if let Some(later) = later.next() {
                        place(*later).prefetch();
                    }
                    update(word(*index)?, operand);
                    Ok(())
                })
            }
            None => self.elements.chunks_exact(self.stride).try_for_each(|element| {
                let operand =
                    element[1..].iter().rev().fold(0, |all, word| all << 32 | u64::from(*word));
                update(word(element[0])?, cut(operand));
                Ok(())
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use clearway_runtime::near::{Entrance, Near, NearConfig};

    use super::*;

    struct PlainWords(RefCell<Vec<u32>>, Cell<usize>);

    impl RunWords for PlainWords {
        fn limit(&self) -> usize {
            self.1.get()
        }
        fn used(&self) -> usize {
            self.0.borrow().len()
        }
        fn append(&self, word: u32) {
            self.0.borrow_mut().push(word);
        }
        fn rewrite(&self, at: usize, word: u32) {
            self.0.borrow_mut()[at] = word;
        }
    }

    fn update(step: WordStep, width: usize, offset: usize, operand: u64) -> WordUpdate {
        WordUpdate::new(step, width, (0, offset), operand).expect("aligned")
    }

    /// Writes updates; their words, and how many had room.
    fn written(limit: usize, updates: &[WordUpdate]) -> (Vec<u32>, usize) {
        let words = PlainWords(RefCell::default(), Cell::new(limit));
        let mut run = OpenRun::default();
        let mut kept = 0;
        for update in updates {
            if run.continues(*update) && words.used() < limit {
                words.append(OpenRun::index_of(*update));
            } else if run.write(&words, *update).0.is_none() {
                break;
            }
            kept += 1;
        }
        run.end(&words);
        (words.0.into_inner(), kept)
    }

    #[test]
    fn write__equal_operands_cost_a_word_and_others_begin_a_varied_run() {
        let ones: Vec<_> = (0..5).map(|at| update(WordStep::Add, 8, 8 * at, 1)).collect();
        let header = 2 | 8 << 8 | CONSTANT;
        assert_eq!(written(100, &ones), (vec![header, 5, 1, 0, 0, 1, 2, 3, 4], 5));
        let others: Vec<_> = (0..3).map(|at| update(WordStep::Xor, 4, 4 * at, 7 << at)).collect();
        let (constant, varied) = (5 | 4 << 8 | CONSTANT, 5 | 4 << 8 | VARIED);
        let expected = vec![constant, 1, 7, 0, 0, varied, 2, 14, 0, 1, 14, 2, 28];
        assert_eq!(written(100, &others), (expected, 3));
    }

    #[test]
    fn write__what_has_no_room_changes_nothing() {
        let ones: Vec<_> = (0..50).map(|at| update(WordStep::Add, 8, 8 * at, 1)).collect();
        let (words, kept) = written(20, &ones);
        assert_eq!((words.len(), words[1], kept), (20, 16, 16));
        let wide: Vec<_> = (0..50).map(|at| update(WordStep::Set, 8, 0, at)).collect();
        let (words, kept) = written(20, &wide);
        assert_eq!((words.len(), kept), (18, 4), "a constant run of 1 and a varied one of 3");
    }

    /// Makes the segments of a PE that is alone, with a heap of a page.
    fn segments() -> Segments {
        let entrance = Entrance::open().expect("room");
        let leader = entrance.name();
        let timeout = std::time::Duration::ZERO;
        let config =
            NearConfig { place: 0, places: 1, owners: 1, heap: 4_096, statics: None, timeout };
        let near = Box::leak(Box::new(Near::open(entrance, leader, &config).expect("alone")));
        near.commit(0, 4_096).expect("memory");
        Segments::new(near, 0, &[Some(0)], None)
    }

    #[test]
    fn apply__a_run_that_is_none_or_leaves_its_segment_changes_nothing() {
        let segments = segments();
        let (heap, _) = segments.segment(0, 0).expect("a heap");
        let add = 2 | 8 << 8 | CONSTANT;
        assert_eq!(apply(&segments, 0, &[add, 3, 5, 0, 0, 511, 0]), Ok(3));
        let varied = [5 | 4 << 8 | VARIED, 2, 0, 0, 4, 1, 5, 2];
        assert_eq!(apply(&segments, 0, &varied), Ok(2));
        let seen = || [0, 16, 20, 4_088].map(|at| heap.plus(at).load::<u32>());
        let before = seen();
        assert_eq!(before, [10, 1, 2, 5]);
        for malformed in [
            &[add, 2, 5, 0, 0, 512][..],
            &[add, 3, 5, 0, 0, 1],
            &[add, u32::MAX, 5, 0, 0],
            &[9 | 8 << 8 | CONSTANT, 1, 5, 0, 0],
            &[2 | 3 << 8 | CONSTANT, 1, 5, 0, 0],
            &[add | 7 << 16, 1, 5, 0, 0],
            &[add | VARIED, 1, 5, 0, 0],
            &[add, 1, 5],
        ] {
            assert_eq!(apply(&segments, 0, malformed), Err(Malformed), "{malformed:?}");
        }
        assert_eq!(seen(), before);
    }

    #[test]
    fn new__words_are_aligned_and_their_index_has_32_bits() {
        assert!(WordUpdate::new(WordStep::Set, 8, (0, 12), 0).is_none());
        assert!(WordUpdate::new(WordStep::Set, 4, (0, 12), 0).is_some());
        assert!(WordUpdate::new(WordStep::Set, 4, (0, 4 << 32), 0).is_none());
        assert!(WordUpdate::new(WordStep::Set, 8, (0, 4 << 32), 0).is_some());
    }
}
