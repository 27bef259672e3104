//! Translates a pointer of the program to a place in a PE's memory, and checks every access of this
//! library to symmetric memory.
//!
//! # Model
//! A symmetric object has the same offset in a segment of each PE. Its address on this PE gives
//! segment and offset, and the PE's number the base where that PE's segment is mapped here.
//! `Segments::place` does both with two compares, and returns a `Place`, bytes that exist, or none for
//! an address outside.
//!
//! | type | meaning | trusted |
//! |---|---|---|
//! | [`Symmetric`] | an address of symmetric memory, as the program gave it | no: a number until it is looked up |
//! | [`Caller`] | memory of the C caller | yes: C has no way to prove it |
//! | `Place` | bytes in a segment of a PE | yes: it was checked |
//!
//! Other PEs change these bytes at any time, so Rust references to them exist only for atomics.
//! Objects of up to eight bytes are stored by one instruction, because a program may poll them.
//!
//! # Invariants
//! I1. No access through a `Place` leaves its segment.
//! I2. A place stays valid until the process ends: segments are never unmapped.
//!
//! # Not here
//! The PEs of a context (`context`), the types of C (the table).

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use clearway_runtime::near::{MappedPart, Near};

use crate::fault::{Fault, Wrong};
use crate::word::{Plain, Word};

/// An address of a symmetric object on this PE, as the program gave it. It is looked up at each
/// use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Symmetric(usize);

impl Symmetric {
    /// Takes what the program gave.
    #[inline]
    pub fn new<T>(address: *const T) -> Self {
        Self(address.addr())
    }

    /// The number.
    #[inline]
    pub const fn raw(self) -> usize {
        self.0
    }

    /// The address `bytes` further on.
    #[inline]
    pub(crate) const fn plus(self, bytes: usize) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

/// Memory of the C caller: a buffer on its stack, in its heap, or symmetric memory.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Caller(*mut u8);

impl Caller {
    /// No memory, where a function allows a null pointer.
    pub const NONE: Self = Self(ptr::null_mut());

    /// Trusts the caller.
    ///
    /// # Safety
    /// The memory holds what the function that gets it reads, and may be written where that
    /// function writes, until the operation is complete.
    #[inline]
    pub const unsafe fn new(memory: *const c_void) -> Self {
        Self(memory.cast_mut().cast())
    }

    /// The elements of a slice. It must not be used longer than they live.
    #[inline]
    pub(crate) fn from_slice<T: Plain>(slice: &[T]) -> Self {
        Self(slice.as_ptr().cast_mut().cast())
    }

    /// Takes the elements of a slice, to be written. It must not be used longer than they live.
    #[inline]
    pub(crate) fn from_slice_mut<T: Plain>(slice: &mut [T]) -> Self {
        Self(slice.as_mut_ptr().cast())
    }

    /// Returns its address, to be looked up as one of symmetric memory.
    #[inline]
    pub(crate) fn as_symmetric(self) -> Symmetric {
        Symmetric::new(self.0)
    }

    /// Returns whether it is the null pointer.
    #[inline]
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The memory `bytes` further on.
    #[inline]
    pub(crate) fn plus(self, bytes: isize) -> Self {
        Self(self.0.wrapping_offset(bytes))
    }

    /// Copies all of `bytes` in.
    #[inline]
    pub(crate) fn fill(self, bytes: &[u8]) {
        // SAFETY: the maker of the value promised memory that may be written; the bytes are this
        // library's, so they do not overlap.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.0, bytes.len()) }
    }

    /// Copies bytes out, as many as `into` has.
    #[inline]
    pub(crate) fn copy_to(self, into: &mut [u8]) {
        // SAFETY: as in `fill`, for reading.
        unsafe { ptr::copy_nonoverlapping(self.0, into.as_mut_ptr(), into.len()) }
    }

    /// Reads element `index` of an array.
    #[inline]
    pub(crate) fn read<T: Plain>(self, index: usize) -> T {
        // SAFETY: the maker of the value promised memory for what the function reads; `Plain`
        // allows any bytes.
        unsafe { self.0.cast::<T>().wrapping_add(index).read_unaligned() }
    }

    /// Writes element `index` of an array.
    #[inline]
    pub(crate) fn write<T: Plain>(self, index: usize, value: T) {
        // SAFETY: as in `read`, for writing.
        unsafe { self.0.cast::<T>().wrapping_add(index).write_unaligned(value) }
    }
}

/// A place for a [`Caller`] that threads hand to each other.
#[derive(Debug)]
pub(crate) struct CallerCell(AtomicPtr<u8>);

impl CallerCell {
    /// Holds no memory.
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Keeps `memory`.
    pub(crate) fn set(&self, memory: Caller) {
        self.0.store(memory.0, Ordering::Release);
    }

    /// Returns what was kept.
    pub(crate) fn get(&self) -> Caller {
        Caller(self.0.load(Ordering::Acquire))
    }
}

/// What PEs have at the same offsets. The numbers are those of records between hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Segment {
    /// The symmetric heap.
    Heap = 0,
    /// The variables of the executable.
    Statics = 1,
    /// The lines by which PEs wait for each other.
    Lines = 2,
    /// The pool of channels.
    Pool = 3,
}

impl Segment {
    /// Reads the number of a record.
    pub(crate) const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Heap),
            1 => Some(Self::Statics),
            2 => Some(Self::Lines),
            3 => Some(Self::Pool),
            _ => None,
        }
    }
}

/// One segment of this PE.
#[derive(Clone, Copy, Debug, Default)]
struct Extent {
    start: usize,
    length: usize,
}

impl Extent {
    /// The offset of `address`, if `bytes` bytes from there lie inside.
    #[inline]
    const fn offset(self, address: usize, bytes: usize) -> Option<usize> {
        let offset = address.wrapping_sub(self.start);
        if offset < self.length && bytes <= self.length - offset { Some(offset) } else { None }
    }
}

/// Where a PE's segments are mapped in this process; 0 for one that is not.
#[derive(Clone, Copy, Debug)]
struct Bases {
    heap: usize,
    statics: usize,
}

/// The segments of this PE and where those of all PEs are.
#[derive(Debug)]
pub(crate) struct Segments {
    heap: Extent,
    statics: Extent,
    /// What is shared with some PEs only.
    pool: Extent,
    peers: Box<[Bases]>,
}

impl Segments {
    /// Creates those of the PE at `place` in `near`, whose statics lie at `statics` with this many
    /// bytes. `places` has the place of each PE of the job, `None` for those that are far.
    pub(crate) fn new(
        near: &'static Near,
        place: usize,
        places: &[Option<usize>],
        statics: Option<(usize, usize)>,
    ) -> Self {
        let start = |part: Option<MappedPart>| part.map_or(0, |part| part.start);
        let (own, pool) = (near.heap(place), near.pool(place));
        let (at, length) = statics.unwrap_or_default();
        let bases = |other: &Option<usize>| match *other {
            None => Bases { heap: 0, statics: 0 },
            Some(other) => Bases {
                heap: near.heap(other).start,
                statics: if other == place {
                    at
                } else {
                    start(near.statics(other).filter(|part| part.length >= length))
                },
            },
        };
        Self {
            heap: Extent { start: own.start, length: own.length },
            statics: Extent { start: at, length },
            pool: Extent { start: pool.start, length: pool.length },
            peers: places.iter().map(bases).collect(),
        }
    }

    /// Returns whether PE `pe` shares memory with this one.
    #[inline]
    pub(crate) fn is_near(&self, pe: usize) -> bool {
        self.peers.get(pe).is_some_and(|bases| bases.heap != 0)
    }

    /// Returns the segment and the offset of the `bytes` bytes at `address`: what far PEs are given
    /// in place of an address.
    pub(crate) fn locate(&self, address: Symmetric, bytes: usize) -> Option<(Segment, usize)> {
        let within = |extent: Extent, segment| Some((segment, extent.offset(address.0, bytes)?));
        within(self.heap, Segment::Heap).or_else(|| within(self.statics, Segment::Statics))
    }

    /// Returns the place of `bytes` bytes at `offset` of a segment of this PE, which a far PE
    /// named.
    pub(crate) fn own_place(&self, segment: Segment, offset: u64, bytes: usize) -> Option<Place> {
        let part = self.own_part(segment)?;
        Place::in_part(part, usize::try_from(offset).ok()?, bytes)
    }

    /// Returns a segment of this PE, for several places that a far PE named.
    pub(crate) fn own_part(&self, segment: Segment) -> Option<MappedPart> {
        let Extent { start, length } = match segment {
            Segment::Heap => self.heap,
            Segment::Statics => self.statics,
            Segment::Pool => self.pool,
            Segment::Lines => return None,
        };
        Some(MappedPart { start, length })
    }

    /// How many PEs there are.
    #[inline]
    pub(crate) fn pes(&self) -> usize {
        self.peers.len()
    }

    /// The place of the `bytes` bytes at `address` on PE `pe`, if there are that many.
    #[inline(always)]
    pub(crate) fn place(&self, address: Symmetric, bytes: usize, pe: usize) -> Option<Place> {
        let bases = self.peers.get(pe)?;
        let (base, offset) = match self.heap.offset(address.0, bytes) {
            Some(offset) => (bases.heap, offset),
            None => (bases.statics, self.statics.offset(address.0, bytes)?),
        };
        (base != 0).then(|| Place((base + offset) as *mut u8))
    }

    /// A place for no bytes.
    pub(crate) fn nowhere(&self) -> Place {
        Place(self.heap.start as *mut u8)
    }

    /// The offset of an object in its segment, the same on all PEs.
    pub(crate) fn offset(&self, address: Symmetric) -> usize {
        let inside = |extent: Extent| extent.offset(address.0, 0);
        inside(self.heap).or_else(|| inside(self.statics)).unwrap_or_default()
    }

    /// The number of the segment in which the `bytes` bytes at `address` lie, and the offset there.
    #[inline]
    pub(crate) fn offset_in(&self, address: Symmetric, bytes: usize) -> Option<(u8, usize)> {
        match self.heap.offset(address.0, bytes) {
            Some(offset) => Some((0, offset)),
            None => Some((1, self.statics.offset(address.0, bytes)?)),
        }
    }

    /// Segment `number` of PE `pe`: the place of all its bytes, and how many they are.
    pub(crate) fn segment(&self, number: u8, pe: usize) -> Option<(Place, usize)> {
        let bases = self.peers.get(pe)?;
        let (base, length) = match number {
            0 => (bases.heap, self.heap.length),
            1 => (bases.statics, self.statics.length),
            _ => return None,
        };
        (base != 0).then_some((Place(base as *mut u8), length))
    }

    /// The offset of `address` in this PE's heap.
    pub(crate) fn heap_offset(&self, address: Symmetric) -> Option<usize> {
        self.heap.offset(address.0, 0)
    }

    /// The address of `offset` in this PE's heap.
    pub(crate) fn own_heap(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.heap.length, "{offset} is behind the heap");
        (self.heap.start + offset) as *mut u8
    }

    /// Sets bytes of this PE's heap to zero.
    pub(crate) fn clear_own_heap(&self, offset: usize, bytes: usize) {
        assert!(bytes <= self.heap.length - offset, "{bytes} bytes at {offset} leave the heap");
        // SAFETY: inside this PE's heap, which is mapped for good; nobody knows of the
        // block yet.
        unsafe { ptr::write_bytes(self.own_heap(offset), 0, bytes) }
    }

    /// Copies bytes within this PE's heap.
    pub(crate) fn copy_own_heap(&self, from: usize, to: usize, bytes: usize) {
        assert!(bytes <= self.heap.length - from.max(to), "{bytes} bytes leave the heap");
        // SAFETY: both lie inside this PE's heap, which is mapped for good; they may overlap.
        unsafe { ptr::copy(self.own_heap(from), self.own_heap(to), bytes) }
    }

    /// Why there is no such place.
    #[cold]
    pub(crate) fn refuse(
        &self,
        argument: &'static str,
        address: Symmetric,
        bytes: usize,
        pe: usize,
    ) -> Fault {
        if pe >= self.peers.len() {
            return Wrong::Pe { pe: pe as i32, pes: self.peers.len() }.into();
        }
        Wrong::Outside { argument, address: address.0, bytes, segments: self.to_string() }.into()
    }
}

impl std::fmt::Display for Segments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Extent { start, length } = self.heap;
        write!(f, "heap {start:#x} to {:#x}", start + length)?;
        match self.statics {
            Extent { length: 0, .. } => f.write_str(", no symmetric statics"),
            Extent { start, length } => write!(f, ", statics {start:#x} to {:#x}", start + length),
        }
    }
}

/// How many changes ahead memory is fetched: a change takes 5 ns, memory under 100.
pub(crate) const PREFETCH_AHEAD: usize = 16;

/// Bytes in a segment of a PE that were found to exist.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place(*mut u8);

impl Place {
    /// The place of `bytes` bytes of a part of near memory.
    #[inline]
    pub(crate) fn in_part(part: MappedPart, offset: usize, bytes: usize) -> Option<Self> {
        let is_inside = bytes <= part.length && offset <= part.length - bytes;
        is_inside.then(|| Self((part.start + offset) as *mut u8))
    }

    /// Where it is mapped in this process.
    #[inline]
    pub(crate) fn pointer(self) -> *mut u8 {
        self.0
    }

    /// Copies `bytes` bytes in, no more than the place was asked for. The sizes of most numbers are
    /// a store in the caller's own code.
    #[inline(always)]
    pub(crate) fn put(self, source: Caller, bytes: usize) {
        match bytes {
            8 => self.store(source.read::<u64>(0)),
            4 => self.store(source.read::<u32>(0)),
            _ => self.put_other(source, bytes),
        }
    }

    #[inline(never)]
    fn put_other(self, source: Caller, bytes: usize) {
        match bytes {
            2 => self.store(source.read::<u16>(0)),
            1 => self.store(source.read::<u8>(0)),
            // SAFETY: the place has the bytes, and the caller promised its own. They may overlap.
            _ => unsafe { ptr::copy(source.0, self.0, bytes) },
        }
    }

    /// Copies `bytes` bytes out, no more than the place was asked for.
    #[inline(always)]
    pub(crate) fn get(self, dest: Caller, bytes: usize) {
        match bytes {
            8 => dest.write(0, self.load::<u64>()),
            4 => dest.write(0, self.load::<u32>()),
            _ => self.get_other(dest, bytes),
        }
    }

    #[inline(never)]
    fn get_other(self, dest: Caller, bytes: usize) {
        match bytes {
            2 => dest.write(0, self.load::<u16>()),
            1 => dest.write(0, self.load::<u8>()),
            // SAFETY: as in `put_other`, the other way round.
            _ => unsafe { ptr::copy(self.0, dest.0, bytes) },
        }
    }

    /// Copies `bytes` bytes from another place, no more than both were asked for.
    #[inline]
    pub(crate) fn copy(self, source: Self, bytes: usize) {
        self.put(Caller(source.0), bytes);
    }

    /// The place as memory of this process, to be read and written while no other PE does.
    #[inline]
    pub(crate) fn as_caller(self) -> Caller {
        Caller(self.0)
    }

    /// The place `bytes` further on, within what it was asked for.
    #[inline]
    pub(crate) fn plus(self, bytes: usize) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// Stores one object, whole if it is aligned and has up to eight bytes.
    #[inline]
    pub(crate) fn store<T: Plain>(self, value: T) {
        let at = self.0;
        if !at.addr().is_multiple_of(size_of::<T>()) {
            // SAFETY: the place has the bytes of a `T`.
            return unsafe { at.cast::<T>().write_unaligned(value) };
        }
        // SAFETY: the place has the bytes of a `T`, lies at a multiple of their number, and stays
        // mapped. `Plain` has no padding, so its bytes can be copied into a number of the same
        // size.
        unsafe {
            match size_of::<T>() {
                1 => AtomicU8::from_ptr(at).store(bits(value), Ordering::Relaxed),
                2 => AtomicU16::from_ptr(at.cast()).store(bits(value), Ordering::Relaxed),
                4 => AtomicU32::from_ptr(at.cast()).store(bits(value), Ordering::Relaxed),
                8 => AtomicU64::from_ptr(at.cast()).store(bits(value), Ordering::Relaxed),
                _ => at.cast::<T>().write_unaligned(value),
            }
        }
    }

    /// Loads one object, whole if it is aligned and has up to eight bytes.
    #[inline]
    pub(crate) fn load<T: Plain>(self) -> T {
        let at = self.0;
        if !at.addr().is_multiple_of(size_of::<T>()) {
            // SAFETY: the place has the bytes of a `T`, and any bytes are one.
            return unsafe { at.cast::<T>().read_unaligned() };
        }
        // SAFETY: as in `store`, and any bytes are a `T`.
        unsafe {
            match size_of::<T>() {
                1 => bits(AtomicU8::from_ptr(at).load(Ordering::Relaxed)),
                2 => bits(AtomicU16::from_ptr(at.cast()).load(Ordering::Relaxed)),
                4 => bits(AtomicU32::from_ptr(at.cast()).load(Ordering::Relaxed)),
                8 => bits(AtomicU64::from_ptr(at.cast()).load(Ordering::Relaxed)),
                _ => at.cast::<T>().read_unaligned(),
            }
        }
    }

    /// Has the processor fetch what lies there, because it is changed soon: changes in one step do
    /// not overlap, and so each would wait for memory by itself. Nothing depends on it.
    #[inline(always)]
    pub(crate) fn prefetch(self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch is a hint: it gives nothing back and fails nowhere.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(self.0.cast());
        }
    }

    /// The word there, for operations of the processor that others see whole; `None` if it is not
    /// aligned.
    #[inline]
    pub(crate) fn word<T: Word>(self) -> Option<&'static T::Atomic> {
        if !self.0.addr().is_multiple_of(size_of::<T>()) {
            return None;
        }
        // SAFETY: the place has the bytes, is aligned as an atomic of that size must be, and stays
        // mapped until the process ends. Others may touch the word with plain stores, as with any
        // memory that C shares; on the processor these are whole as well.
        Some(unsafe { &*self.0.cast::<T::Atomic>() })
    }
}

/// Takes the bytes of a value as a value of another type of the same size.
#[inline]
fn bits<A: Plain, B: Plain>(value: A) -> B {
    debug_assert_eq!(size_of::<A>(), size_of::<B>());
    // SAFETY: both are plain bytes without padding, for which any value is allowed; the sizes are
    // equal in the branches that call this, and the others are never run.
    unsafe { std::mem::transmute_copy::<A, B>(&value) }
}
