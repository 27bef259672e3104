//! The objects of a cast that are not yet with everybody: where each lies in memory and in the
//! sequence.
//!
//! # Invariants
//! I1. Objects end in the order of their numbers.
//! I2. A symbol's span lies within its object's memory.

use alloc::vec;
use alloc::vec::Vec;

use crate::wire::Span;

/// Objects that can be open: as many short messages as fit between two synchronisations, several
/// times.
pub(super) const OPEN_MAX: u32 = 256;

/// Where an object goes at a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// One symbol, into the slot with this number.
    Short(u32),
    /// Into a place that the application gives, with this number.
    Long(u32),
}

/// One object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) number: u32,
    /// The sequence of its first symbol.
    pub(super) first: u64,
    /// In bytes.
    pub(super) length: u64,
    pub(super) size: Size,
    /// Where it lies, or is to lie.
    pub(super) at: Option<Span>,
}

impl Object {
    /// Returns the first sequence behind it. An object without bytes has one empty symbol.
    pub(super) fn end(&self, symbol: u32) -> u64 {
        self.first.saturating_add(self.length.div_ceil(u64::from(symbol)).max(1))
    }

    /// Returns where the symbol with `sequence` lies; `None` when it is not of this object, or
    /// there is no place yet.
    pub(super) fn span(&self, sequence: u64, symbol: u32) -> Option<Span> {
        if sequence >= self.end(symbol) {
            return None;
        }
        let at = self.at?;
        let offset = sequence.checked_sub(self.first)? * u64::from(symbol);
        let length = (self.length - offset).min(u64::from(symbol)) as u32;
        Some(Span { region: at.region, offset: at.offset.checked_add(offset)?, length })
    }
}

/// All that are open.
#[derive(Debug)]
pub(super) struct Objects {
    open: Vec<Option<Object>>,
    symbol: u32,
    /// The first one that is not with everybody.
    first: u32,
    known: u32,
}

impl Objects {
    /// Creates an empty list of objects with symbols of `symbol` bytes.
    pub(super) fn new(symbol: u32) -> Self {
        Self { open: vec![None; OPEN_MAX as usize], symbol, first: 0, known: 0 }
    }

    /// Returns the first one that is not with everybody.
    pub(super) const fn first(&self) -> u32 {
        self.first
    }

    /// Returns the number below which all are known.
    pub(super) const fn known(&self) -> u32 {
        self.known
    }

    pub(super) fn get(&self, number: u32) -> Option<&Object> {
        self.open[(number % OPEN_MAX) as usize].as_ref().filter(|object| object.number == number)
    }

    /// Returns whether an object of this number can be taken in, or is there.
    pub(super) const fn covers(&self, number: u32) -> bool {
        number >= self.first && number - self.first < OPEN_MAX
    }

    /// Takes `object` in, if it is new and there is room; says whether it is there now.
    pub(super) fn insert(&mut self, object: Object) -> bool {
        if !self.covers(object.number) {
            return false;
        }
        let entry = &mut self.open[(object.number % OPEN_MAX) as usize];
        let kept = entry.get_or_insert(object);
        if kept.first != object.first
            || kept.length != object.length
            || kept.number != object.number
        {
            return false;
        }
        while self.known - self.first < OPEN_MAX && self.get(self.known).is_some() {
            self.known += 1;
        }
        true
    }

    /// Gives a place to the long object with this number among the long ones that has none yet;
    /// says which.
    pub(super) fn give_place(&mut self, long: u32, at: Span) -> Option<Object> {
        let waits = |object: &&mut Object| object.size == Size::Long(long) && object.at.is_none();
        let object = self.open.iter_mut().flatten().find(waits)?;
        if u64::from(at.length) < object.length {
            return None;
        }
        object.at = Some(at);
        Some(*object)
    }

    pub(super) fn span(&self, number: u32, sequence: u64) -> Option<Span> {
        self.get(number)?.span(sequence, self.symbol)
    }

    /// Takes the first object out, if it ends at or before `sequence`.
    pub(super) fn take_first(&mut self, sequence: u64) -> Option<Object> {
        let object = *self.get(self.first)?;
        if object.end(self.symbol) > sequence {
            return None;
        }
        self.open[(self.first % OPEN_MAX) as usize] = None;
        self.first += 1;
        Some(object)
    }

    /// Returns all that are open, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = &Object> {
        self.open.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::RegionId;

    fn object(number: u32, first: u64, length: u64) -> Object {
        let at = Some(Span { region: RegionId(1), offset: 1000, length: length as u32 });
        Object { number, first, length, size: Size::Long(number), at }
    }

    #[test]
    fn span__of_the_last_symbol_is_the_rest() {
        let object = object(0, 10, 250);
        assert_eq!(object.end(100), 13);
        assert_eq!(
            object.span(12, 100),
            Some(Span { region: RegionId(1), offset: 1200, length: 50 })
        );
        assert_eq!((object.span(9, 100), object.span(13, 100)), (None, None));
    }

    #[test]
    fn insert__in_any_order_and_known_without_gaps() {
        let mut objects = Objects::new(100);
        assert!(objects.insert(object(1, 3, 1)));
        assert_eq!(objects.known(), 0);
        assert!(objects.insert(object(0, 0, 250)));
        assert_eq!(objects.known(), 2);
        assert!(objects.insert(object(1, 3, 1)), "once more is no harm");
        assert!(!objects.insert(object(1, 4, 1)), "another one of that number");
        assert!(!objects.insert(object(OPEN_MAX, 4, 1)), "no room yet");
        assert_eq!(objects.take_first(2), None);
        assert_eq!(objects.take_first(3).map(|object| object.number), Some(0));
        assert!(objects.insert(object(OPEN_MAX, 9, 1)));
        assert!(!objects.insert(object(0, 0, 250)), "that one is over");
    }

    #[test]
    fn give_place__one_too_short_is_refused() {
        let mut objects = Objects::new(100);
        assert!(objects.insert(Object { at: None, ..object(0, 0, 250) }));
        let place = |length| Span { region: RegionId(1), offset: 0, length };
        assert_eq!(objects.give_place(0, place(249)), None);
        assert_eq!(objects.give_place(1, place(250)), None);
        assert!(objects.give_place(0, place(250)).is_some());
        assert_eq!(objects.give_place(0, place(250)), None, "it has one");
    }
}
