//! Accesses objects in the memory of far PEs: puts, gets and atomic operations.

use clearway_proto::base::Class;
use clearway_proto::queue::{
    AtomicStep, Element, PUT_MAX, Place as FarPlace, Ticket, WordChange, WordWidth,
};

use super::Far;
use crate::address::{Caller, Segment};
use crate::word::Plain;

/// Bytes that are copied without clearing memory for the longest element before. The shortest
/// messages that the engine uses carry them.
const SHORT: usize = 64;

/// The change that an atomic operation makes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<T> {
    Fetch,
    Set(T),
    Swap(T),
    CompareSwap { wanted: T, value: T },
    Add(T),
    And(T),
    Or(T),
    Xor(T),
}

impl<T: Plain> Change<T> {
    fn to_record(self) -> WordChange {
        let width = match size_of::<T>() {
            2 => WordWidth::Two,
            4 => WordWidth::Four,
            _ => WordWidth::Eight,
        };
        let new = |step, value: T| WordChange::new(step, width, bits(value));
        match self {
            Self::Fetch => WordChange::new(AtomicStep::Fetch, width, 0),
            Self::Set(value) | Self::Swap(value) => new(AtomicStep::Set, value),
            Self::Add(value) => new(AtomicStep::Add, value),
            Self::And(value) => new(AtomicStep::And, value),
            Self::Or(value) => new(AtomicStep::Or, value),
            Self::Xor(value) => new(AtomicStep::Xor, value),
            Self::CompareSwap { wanted, value } => {
                WordChange { compare: bits(wanted), ..new(AtomicStep::CompareSwap, value) }
            }
        }
    }
}

/// Returns a value of at most eight bytes as the low bytes of a word.
fn bits<T: Plain>(value: T) -> u64 {
    let mut word = [0u64];
    Caller::from_slice_mut(&mut word).write(0, value);
    u64::from_le(word[0])
}

/// An object in the memory of a far PE. Its range was checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FarObject {
    pub(super) far: &'static Far,
    pub(super) class: Class,
    pub(super) pe: u32,
    pub(super) segment: Segment,
    pub(super) offset: u64,
}

impl FarObject {
    fn pe(self) -> usize {
        self.pe as usize
    }

    fn at(self) -> FarPlace {
        FarPlace { segment: self.segment as u8, offset: self.offset }
    }

    /// Returns the object `bytes` bytes further on, within the range that was checked.
    #[inline]
    pub(crate) fn plus(self, bytes: usize) -> Self {
        Self { offset: self.offset + bytes as u64, ..self }
    }

    /// Returns the same object, accessed through the stream of another class.
    pub(crate) fn in_class(self, class: Class) -> Self {
        Self { class, ..self }
    }

    /// Copies `bytes` bytes to the object. `source` may be reused after the call.
    pub(crate) fn put(self, source: Caller, bytes: usize) {
        let width = match bytes {
            1 => Some((WordWidth::One, source.read::<u8>(0).into())),
            2 => Some((WordWidth::Two, source.read::<u16>(0).into())),
            4 => Some((WordWidth::Four, source.read::<u32>(0).into())),
            8 => Some((WordWidth::Eight, source.read::<u64>(0))),
            _ => None,
        };
        if let Some((width, value)) = width {
            let element = Element::Word { at: self.at(), width, value };
            self.far.push(self.pe(), self.class, element);
            return;
        }
        if bytes <= SHORT {
            let mut copy = [0; SHORT];
            return self.put_copied(source, &mut copy[..bytes]);
        }
        let mut copy = [0; PUT_MAX];
        let step = (self.far.limits.element as usize).min(copy.len());
        for begin in (0..bytes).step_by(step) {
            let length = step.min(bytes - begin);
            self.plus(begin).put_copied(source.plus(begin as isize), &mut copy[..length]);
        }
    }

    /// Copies as many bytes there as `copy` has, by way of it.
    #[inline]
    fn put_copied(self, source: Caller, copy: &mut [u8]) {
        source.copy_to(copy);
        if !copy.is_empty() {
            self.far.push(self.pe(), self.class, Element::Put { at: self.at(), bytes: copy });
        }
    }

    /// Fetches `bytes` bytes to `into` before it returns.
    pub(crate) fn get(self, into: Caller, bytes: usize) {
        if bytes <= self.far.limits.element as usize {
            if bytes > 0 {
                let ticket = self.request(into, bytes, true);
                self.far.wait_for(ticket);
            }
            return;
        }
        self.get_nbi(into, bytes);
        self.complete_gets();
    }

    fn request(self, into: Caller, bytes: usize, is_watched: bool) -> Ticket {
        let ticket = self.far.ticket(self.pe(), into, bytes, is_watched);
        let element = Element::Get { at: self.at(), length: bytes as u16, ticket };
        self.far.push(self.pe(), self.class, element);
        ticket
    }

    /// Fetches `bytes` bytes, which are in `into` after a quiet of the class.
    pub(crate) fn get_nbi(self, into: Caller, bytes: usize) {
        let step = self.far.limits.element as usize;
        for begin in (0..bytes).step_by(step) {
            let length = step.min(bytes - begin);
            self.plus(begin).request(into.plus(begin as isize), length, false);
        }
    }

    /// Waits until all gets of this class are complete.
    pub(crate) fn complete_gets(self) {
        self.far.quiet(self.class);
    }

    /// Fetches one value.
    pub(crate) fn load<T: Plain>(self) -> T {
        let mut value = [0u64; 4];
        let into = Caller::from_slice_mut(&mut value);
        self.get(into, size_of::<T>());
        into.read(0)
    }

    /// Adds to the word of `size` bytes there, four or eight. Returns how many elements were issued to
    /// the PE in the class.
    #[inline]
    pub(crate) fn add(self, size: usize, operand: u64) -> u64 {
        let width = if size == 4 { WordWidth::Four } else { WordWidth::Eight };
        let change = WordChange::new(AtomicStep::Add, width, operand);
        self.far.push(self.pe(), self.class, Element::Atomic { at: self.at(), change })
    }

    /// Changes the word.
    #[cold]
    #[inline(never)]
    pub(crate) fn change<T: Plain>(self, change: Change<T>) {
        let element = Element::Atomic { at: self.at(), change: change.to_record() };
        self.far.push(self.pe(), self.class, element);
    }

    /// Changes the word, and returns its old value.
    #[cold]
    #[inline(never)]
    pub(crate) fn fetch<T: Plain>(self, change: Change<T>) -> T {
        let mut value = [0u64];
        let into = Caller::from_slice_mut(&mut value);
        let ticket = self.request_change(change, into, true);
        self.far.wait_for(ticket);
        into.read(0)
    }

    /// Changes the word. Its old value is in `into` after a quiet of the class.
    #[cold]
    #[inline(never)]
    pub(crate) fn fetch_nbi<T: Plain>(self, change: Change<T>, into: Caller) {
        self.request_change(change, into, false);
    }

    fn request_change<T: Plain>(self, change: Change<T>, into: Caller, is_watched: bool) -> Ticket {
        let ticket = self.far.ticket(self.pe(), into, size_of::<T>(), is_watched);
        let element = Element::FetchAtomic { at: self.at(), change: change.to_record(), ticket };
        self.far.push(self.pe(), self.class, element);
        ticket
    }
}
