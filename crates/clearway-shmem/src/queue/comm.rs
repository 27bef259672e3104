//! What a communication queue does with an element: gathers it, or does it at once.
//!
//! # Model
//! An update of a word that gives nothing back is gathered for each PE of this host, this one
//! included: where targets are random, telling it from others costs more than its way through a
//! buffer (`lane`). Everything else is as fast at once: puts and gets are copies, and a
//! value that is fetched has to come back. What goes to far PEs their streams gather.

use std::sync::atomic::Ordering;

use super::element::{WordStep, WordUpdate};
use super::lane::Push;
use super::{Admission, COMM, EAGAIN, Queue, find, refuse};
use crate::address::{Caller, Place, Segment, Symmetric};
use crate::constants::{SIGNAL_ADD, SIGNAL_SET};
use crate::context::Context;
use crate::far::{Change, FarObject};
use crate::fault::Fault;
use crate::job::{self, Job, Reach};
use crate::rma;
use crate::word::Integer;

/// The operations of the proposal, then those that it leaves open.
pub const OP_PUT: u64 = 0;
/// Copies from the PE.
pub const OP_GET: u64 = 1;
/// Adds.
pub const OP_ADD: u64 = 2;
/// Adds one.
pub const OP_INC: u64 = 3;
/// Bit by bit.
pub const OP_AND: u64 = 16;
/// Bit by bit.
pub const OP_OR: u64 = 17;
/// Bit by bit.
pub const OP_XOR: u64 = 18;
/// Replaces.
pub const OP_SET: u64 = 19;
/// Reads.
pub const OP_FETCH: u64 = 20;
/// Adds, and gives what was there.
pub const OP_FETCH_ADD: u64 = 21;
/// Replaces what is as expected, and gives what was there.
pub const OP_CSWAP: u64 = 22;
/// Replaces, and gives what was there.
pub const OP_SWAP: u64 = 23;
/// Copies elements that lie apart to the PE.
pub const OP_IPUT: u64 = 24;
/// Copies elements that lie apart from the PE.
pub const OP_IGET: u64 = 25;

/// Which operations the type of an element has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementClass {
    /// A word that is counted with.
    Integer = 0,
    /// A word that is set, swapped and fetched.
    Float = 1,
    /// Bytes, which are copied.
    Plain = 2,
}

/// The elements of a call.
#[derive(Clone, Copy, Debug)]
pub struct Elements {
    size: usize,
    class: ElementClass,
    count: usize,
}

impl Elements {
    /// Creates `count` elements of `size` bytes. Only words of 4 and 8 bytes are more than bytes.
    #[inline]
    pub const fn new(size: usize, class: ElementClass, count: usize) -> Self {
        let class = if matches!(size, 4 | 8) { class } else { ElementClass::Plain };
        Self { size, class, count }
    }

    /// Packs size and class above the bits of an operation.
    #[inline(always)]
    const fn kind(self) -> u64 {
        (self.size as u64) << 16 | (self.class as u64) << 8
    }

    #[inline(always)]
    const fn size_of_kind(kind: u64) -> usize {
        (kind >> 16) as usize
    }

    #[inline(always)]
    const fn class_of(kind: u64) -> ElementClass {
        match kind >> 8 & 0xff {
            0 => ElementClass::Integer,
            1 => ElementClass::Float,
            _ => ElementClass::Plain,
        }
    }

    const fn from_kind(kind: u64, count: usize) -> Self {
        Self { size: Self::size_of_kind(kind), class: Self::class_of(kind), count }
    }

    pub(super) const fn size(self) -> usize {
        self.size
    }

    pub(super) const fn bytes(self) -> usize {
        self.count.saturating_mul(self.size)
    }

    /// Returns the update that `op` is for these, if it is one.
    #[inline]
    fn step(self, op: u64) -> Option<WordStep> {
        match (op, self.class) {
            (OP_ADD | OP_INC, ElementClass::Integer) => Some(WordStep::Add),
            (OP_AND, ElementClass::Integer) => Some(WordStep::And),
            (OP_OR, ElementClass::Integer) => Some(WordStep::Or),
            (OP_XOR, ElementClass::Integer) => Some(WordStep::Xor),
            (OP_SET, ElementClass::Integer | ElementClass::Float) => Some(WordStep::Set),
            _ => None,
        }
    }

    /// Returns whether `op` fetches a word of these.
    fn fetches(self, op: u64) -> bool {
        match op {
            OP_FETCH | OP_SWAP => self.class != ElementClass::Plain,
            OP_FETCH_ADD | OP_CSWAP => self.class == ElementClass::Integer,
            _ => false,
        }
    }
}

/// The two pointers of a call. Which of them is symmetric depends on the operation.
#[derive(Clone, Copy, Debug)]
pub struct QueueEnds {
    /// `dest`.
    pub dest: Caller,
    /// `source`.
    pub source: Caller,
}

/// Pushes elements (`shmemx_queue_push`): 0, [`EAGAIN`] where the queue is full,
/// [`EINVAL`](super::EINVAL) where the operation cannot be. The source is copied, but for elements
/// that come from the PE.
///
/// # Errors
/// A PE sent this one what is no update.
#[inline(always)]
pub fn push(
    handle: usize,
    ends: QueueEnds,
    elements: Elements,
    pe: i32,
    op: u64,
) -> Result<i32, Fault> {
    let kind = op.min(OP_MAX) | elements.kind();
    push_packed(handle, ends, elements.count, pe, kind).map(|answer| answer as i32)
}

/// More than any operation has.
const OP_MAX: u64 = 0xff;

/// Does the same, with operation and elements in one word: everything is in registers, and so is
/// what it returns. One addition is most of what programs push, and is done here.
#[inline(never)]
fn push_packed(
    handle: usize,
    ends: QueueEnds,
    count: usize,
    pe: i32,
    kind: u64,
) -> Result<i64, Fault> {
    let op = kind & OP_MAX;
    if count == 1 && op == OP_PUT {
        if let Some(answer) = put_word(handle, ends, pe, Elements::size_of_kind(kind))? {
            return Ok(answer);
        }
    } else if count == 1
        && matches!(op, OP_ADD | OP_INC)
        && Elements::class_of(kind) == ElementClass::Integer
        && let Some(addition) = Addition::new(handle, ends, pe, kind)?
        && let Some(answer) = addition.push()?
    {
        return Ok(answer);
    }
    let elements = Elements::from_kind(kind, count);
    push_any(handle, ends, elements, pe, op).map(i64::from)
}

/// Puts one element of `size` bytes where the queue has no limit to check, and returns the result
/// of the call; `None` where it is another operation.
#[inline(always)]
fn put_word(handle: usize, ends: QueueEnds, pe: i32, size: usize) -> Result<Option<i64>, Fault> {
    let job = job::get()?;
    if ends.source.is_null() || size > LONGEST_WORD {
        return Ok(None);
    }
    let Some(queue) = job.queues.find(handle).filter(|queue| queue.is_quick()) else {
        return Ok(None);
    };
    let Some(target) = queue.world_pe(pe) else { return Ok(None) };
    let dest = ends.dest.as_symmetric();
    if let Some(place) = job.segments.place(dest, size, target) {
        place.put(ends.source, size);
    } else {
        let at = job.segments.locate(dest, size).filter(|_| !job.segments.is_near(target));
        let Some((far, (segment, offset))) = job.far.as_ref().zip(at) else { return Ok(None) };
        far.object(queue.far_class(), target, segment, offset).put(ends.source, size);
        queue.count_far(job, target, 1);
    }
    queue.count_direct(1);
    Ok(Some(0))
}

/// Bytes of the longest element that is a word.
const LONGEST_WORD: usize = 8;

/// An addition to one word, by a queue that has no limit to check.
struct Addition {
    job: &'static Job,
    queue: &'static Queue,
    target: usize,
    dest: Symmetric,
    /// Segment and offset of the word.
    at: (u8, usize),
    size: usize,
    update: WordUpdate,
    operand: u64,
}

impl Addition {
    /// Finds what it needs; `None` where it is another operation.
    #[inline(always)]
    fn new(handle: usize, ends: QueueEnds, pe: i32, kind: u64) -> Result<Option<Self>, Fault> {
        let job = job::get()?;
        let size = Elements::size_of_kind(kind);
        // Far elements count where there is a bound.
        let is_quick = |queue: &&Queue| queue.is_quick() || queue.gathers() && job.far.is_none();
        let Some(queue) = job.queues.find(handle).filter(is_quick) else { return Ok(None) };
        let operand = match (kind & OP_MAX, size) {
            (OP_INC, _) => 1,
            _ if ends.source.is_null() => return Ok(None),
            (_, 4) => u64::from(ends.source.read::<u32>(0)),
            _ => ends.source.read::<u64>(0),
        };
        let dest = ends.dest.as_symmetric();
        let Some(at) = job.segments.offset_in(dest, size) else { return Ok(None) };
        let update = WordUpdate::new(WordStep::Add, size, at, operand);
        let parts = queue.world_pe(pe).zip(update);
        Ok(parts.map(|(target, update)| Self {
            job,
            queue,
            target,
            dest,
            at,
            size,
            update,
            operand,
        }))
    }

    /// Pushes it to its PE, and returns the result of the call; `None` where it is another operation.
    #[inline(always)]
    fn push(self) -> Result<Option<i64>, Fault> {
        let Self { job, queue, target, .. } = self;
        if !job.segments.is_near(target) {
            return Ok(self.push_far());
        }
        if !queue.gathers() {
            return Ok(self.apply());
        }
        Ok(Some(match queue.lane.push(job, target, self.update)? {
            Push::Kept => 0,
            Push::Full => EAGAIN.into(),
        }))
    }

    /// Changes the word of a near PE.
    #[inline(always)]
    fn apply(self) -> Option<i64> {
        let place = self.job.segments.place(self.dest, self.size, self.target)?;
        change(place, WordStep::Add, self.size, self.operand);
        self.queue.count_direct(1);
        Some(0)
    }

    /// Pushes it to the stream of a far PE.
    #[inline(always)]
    fn push_far(self) -> Option<i64> {
        let Self { job, queue, target, at: (segment, offset), size, operand, .. } = self;
        let (far, segment) = (job.far.as_ref()?, Segment::from_number(segment)?);
        let class = queue.far_class();
        let issued = far.object(class, target, segment, offset).add(size, operand);
        queue.count_issued(job, far, (target, class), 1, issued);
        queue.count_direct(1);
        Some(0)
    }
}

#[inline(never)]
fn push_any(
    handle: usize,
    ends: QueueEnds,
    elements: Elements,
    pe: i32,
    op: u64,
) -> Result<i32, Fault> {
    let job = job::get()?;
    let queue = find!(job, handle, COMM);
    let Some(target) = queue.world_pe(pe) else {
        return refuse(job, || format!("PE {pe} is not in the queue's team"));
    };
    if let Some(answer) = refuse_beyond(job, queue, target, elements.count)? {
        return Ok(answer);
    }
    let Some(step) = elements.step(op) else {
        let done = match op {
            OP_PUT => queue.put(job, target, ends, elements),
            OP_GET => queue.get(job, target, ends, elements),
            _ => {
                return refuse(job, || {
                    format!(
                        "`op` is {op}, which elements of this type do not have; arithmetic needs integers of 4 or 8 bytes"
                    )
                });
            }
        };
        queue.count_direct(elements.count);
        return answer(job, done);
    };
    let is_inc = op == OP_INC;
    if !is_inc && ends.source.is_null() && elements.count > 0 {
        return refuse(job, || "`source` is the null pointer".to_owned());
    }
    let operand = |index: usize| match elements.size {
        _ if is_inc => 1,
        4 => u64::from(ends.source.read::<u32>(index)),
        _ => ends.source.read::<u64>(index),
    };
    let updates = Updates { target, step, dest: ends.dest.as_symmetric(), elements };
    if !job.segments.is_near(target) {
        return updates.push_far(job, queue, operand);
    }
    updates.push_all(job, queue, operand)
}

/// Returns the result of a call that pushes `count` elements for a far PE where they have no room.
fn refuse_beyond(
    job: &'static Job,
    queue: &Queue,
    target: usize,
    count: usize,
) -> Result<Option<i32>, Fault> {
    if job.segments.is_near(target) {
        return Ok(None);
    }
    answer_of(job, queue.admit(job, count)?, count)
}

/// Returns the result of a call whose `count` elements have no room.
fn answer_of(job: &Job, admission: Admission, count: usize) -> Result<Option<i32>, Fault> {
    match admission {
        Admission::Room => Ok(None),
        Admission::Full => Ok(Some(EAGAIN)),
        Admission::Never => {
            refuse(job, || format!("{count} elements are more than `max_elems`")).map(Some)
        }
    }
}

impl Queue {
    /// Copies to PE `target`.
    fn put(
        &self,
        job: &'static Job,
        target: usize,
        ends: QueueEnds,
        elements: Elements,
    ) -> Result<(), Fault> {
        let bytes = elements.bytes();
        let to =
            job.target(Context::DEFAULT, ends.dest.as_symmetric(), bytes, target as i32, "dest")?;
        if bytes > 0 {
            needs(ends.source, "source")?;
        }
        match to {
            Reach::Near(place) => place.put(ends.source, bytes),
            Reach::Far(object) => {
                object.in_class(self.far_class()).put(ends.source, bytes);
                self.count_far(job, target, elements.count);
            }
            Reach::Nothing => {}
        }
        Ok(())
    }

    /// Copies from PE `target`.
    fn get(
        &self,
        job: &'static Job,
        target: usize,
        ends: QueueEnds,
        elements: Elements,
    ) -> Result<(), Fault> {
        let bytes = elements.bytes();
        let from = job.target(
            Context::DEFAULT,
            ends.source.as_symmetric(),
            bytes,
            target as i32,
            "source",
        )?;
        if bytes > 0 {
            needs(ends.dest, "dest")?;
        }
        match from {
            Reach::Near(place) => place.get(ends.dest, bytes),
            Reach::Far(object) => {
                object.in_class(self.far_class()).get_nbi(ends.dest, bytes);
                self.count_far(job, target, elements.count);
            }
            Reach::Nothing => {}
        }
        Ok(())
    }

    /// Returns whether it takes operations without a limit to check.
    #[inline]
    fn is_quick(&self) -> bool {
        self.lane.is_plain() && COMM.iter().any(|one| self.is_used_for(*one))
    }

    #[inline]
    fn gathers(&self) -> bool {
        self.gathers.load(Ordering::Relaxed)
    }
}

/// Updates of words that lie one behind the other.
struct Updates {
    target: usize,
    step: WordStep,
    dest: Symmetric,
    elements: Elements,
}

impl Updates {
    #[cold]
    fn no_words(&self) -> String {
        let (address, Elements { size, count, .. }) = (self.dest.raw(), self.elements);
        format!(
            "`dest` is {address:#x}: there are no {count} aligned symmetric words of {size} bytes"
        )
    }

    /// Pushes the updates to the stream of a far PE in the queue's class, which aggregates them.
    #[inline(never)]
    fn push_far(
        &self,
        job: &'static Job,
        queue: &Queue,
        operand: impl Fn(usize) -> u64,
    ) -> Result<i32, Fault> {
        let Elements { size, count, .. } = self.elements;
        let bytes = self.elements.bytes();
        let target = job.target(Context::DEFAULT, self.dest, bytes, self.target as i32, "dest");
        let object = match target {
            Ok(Reach::Far(object)) if self.dest.raw().is_multiple_of(size) => object,
            Ok(Reach::Nothing) => return Ok(0),
            _ => return refuse(job, || self.no_words()),
        };
        let object = object.in_class(queue.far_class());
        for index in 0..count {
            let word = object.plus(index * size);
            match size {
                4 => word.change(far_change(self.step, operand(index) as u32)),
                _ => word.change(far_change(self.step, operand(index))),
            }
        }
        queue.count_far(job, self.target, count);
        queue.count_direct(count);
        Ok(0)
    }

    #[inline(never)]
    fn push_all(
        &self,
        job: &'static Job,
        queue: &Queue,
        operand: impl Fn(usize) -> u64,
    ) -> Result<i32, Fault> {
        let Elements { size, count, .. } = self.elements;
        let place = job.segments.place(self.dest, self.elements.bytes(), self.target);
        let Some(place) = place.filter(|place| count == 0 || place.pointer().addr() % size == 0)
        else {
            return refuse(job, || self.no_words());
        };
        let gathers = queue.gathers();
        if gathers && let Some(answer) = answer_of(job, queue.admit(job, count)?, count)? {
            return Ok(answer);
        }
        for index in 0..count {
            let at = job.segments.offset_in(self.dest.plus(index * size), size);
            let update = at.and_then(|at| WordUpdate::new(self.step, size, at, operand(index)));
            match update.filter(|_| gathers) {
                Some(update) => {
                    // There is room, but where another thread was faster.
                    while queue.lane.push(job, self.target, update)? == Push::Full {}
                }
                None => {
                    change(place.plus(index * size), self.step, size, operand(index));
                    queue.count_direct(1);
                }
            }
        }
        Ok(0)
    }
}

fn far_change<T>(step: WordStep, operand: T) -> Change<T> {
    match step {
        WordStep::Set => Change::Set(operand),
        WordStep::Add => Change::Add(operand),
        WordStep::And => Change::And(operand),
        WordStep::Or => Change::Or(operand),
        WordStep::Xor => Change::Xor(operand),
    }
}

fn needs(memory: Caller, name: &'static str) -> Result<(), Fault> {
    match memory.is_null() {
        true => Err(Fault::value(name, 0, "the null pointer is no memory")),
        false => Ok(()),
    }
}

/// Changes the word of `size` bytes at `place`, which is aligned.
pub(crate) fn change(place: Place, step: WordStep, size: usize, operand: u64) {
    fn apply<T: Integer>(place: Place, step: WordStep, operand: T) {
        let Some(word) = place.word::<T>() else { return };
        match step {
            WordStep::Set => T::store(word, operand, Ordering::Release),
            WordStep::Add => drop(T::fetch_add(word, operand)),
            WordStep::And => drop(T::fetch_and(word, operand)),
            WordStep::Or => drop(T::fetch_or(word, operand)),
            WordStep::Xor => drop(T::fetch_xor(word, operand)),
        }
    }
    if size == 4 { apply(place, step, operand as u32) } else { apply(place, step, operand) }
}

/// Returns the result of a call whose operation ended so.
fn answer(job: &Job, done: Result<(), Fault>) -> Result<i32, Fault> {
    match done {
        Ok(()) => Ok(0),
        Err(fault) => refuse(job, || fault.sentence()),
    }
}

/// An operation with more than two pointers: `shmemx_qop_t`.
#[derive(Clone, Copy, Debug)]
pub struct QueueOperation {
    /// Which operation.
    pub op: u64,
    /// At which PE.
    pub pe: i32,
    /// Which elements.
    pub elements: Elements,
    /// Where to and where from.
    pub ends: QueueEnds,
    /// Elements from one to the next at both ends, of strided operations.
    pub strides: (isize, isize),
    /// What compare-and-swaps expect.
    pub expected: Caller,
    /// Where fetched values go.
    pub fetch: Caller,
    /// The signal behind everything that was pushed to the PE; null for none.
    pub signal: Symmetric,
    /// Its value.
    pub signal_value: u64,
    /// `SHMEM_SIGNAL_SET` or `SHMEM_SIGNAL_ADD`.
    pub signal_op: i32,
}

/// Pushes an operation with more than two pointers (`shmemx_queue_push_op`).
///
/// # Errors
/// As [`push`].
pub fn push_operation(handle: usize, operation: &QueueOperation) -> Result<i32, Fault> {
    let job = job::get()?;
    let queue = find!(job, handle, COMM);
    let QueueOperation { op, pe, elements, ends, .. } = *operation;
    let Some(target) = queue.world_pe(pe) else {
        return refuse(job, || format!("PE {pe} is not in the queue's team"));
    };
    let has_signal = operation.signal.raw() != 0;
    // Nothing is done where the signal cannot be.
    if has_signal && let Some(sentence) = operation.wrong_signal(job, target) {
        return refuse(job, || sentence);
    }
    let done = match op {
        OP_IPUT | OP_IGET => {
            let done = operation.strided(target as i32);
            if let Some(far) = job.far.as_ref().filter(|_| !job.segments.is_near(target)) {
                // They travel in the class of the default context, and the queue's has no order
                // with it.
                far.quiet(job.contexts.class(Context::DEFAULT));
            }
            answer(job, done)?
        }
        _ if elements.fetches(op) => {
            if let Some(answer) = refuse_beyond(job, queue, target, elements.count)? {
                return Ok(answer);
            }
            let done = match elements.size {
                4 => operation.fetching::<u32>(queue, target as i32),
                _ => operation.fetching::<u64>(queue, target as i32),
            };
            if !job.segments.is_near(target) {
                queue.count_far(job, target, elements.count);
            }
            queue.count_direct(elements.count);
            answer(job, done)?
        }
        _ => push(handle, ends, elements, pe, op)?,
    };
    if done != 0 || !has_signal {
        return Ok(done);
    }
    queue.lane.flush(job)?;
    let (at, value) = (operation.signal, operation.signal_value);
    match job.word::<u64>(Context::DEFAULT, at, target as i32, "sig_addr") {
        Ok(Reach::Near(word)) if operation.signal_op == SIGNAL_SET => {
            word.store(value, Ordering::Release);
        }
        Ok(Reach::Near(word)) => {
            word.fetch_add(value, Ordering::AcqRel);
        }
        // What a far PE gets in one class it applies in order.
        Ok(Reach::Far(object)) => {
            let change = match operation.signal_op {
                SIGNAL_SET => Change::Set(value),
                _ => Change::Add(value),
            };
            object.in_class(queue.far_class()).change(change);
            queue.count_far(job, target, 1);
        }
        Ok(Reach::Nothing) => {}
        Err(fault) => return refuse(job, || fault.sentence()),
    }
    Ok(0)
}

impl QueueOperation {
    /// Returns what is wrong with the signal, if anything is.
    fn wrong_signal(&self, job: &'static Job, target: usize) -> Option<String> {
        let word = job.word::<u64>(Context::DEFAULT, self.signal, target as i32, "sig_addr");
        let how = self.signal_op;
        let is_known = matches!(how, SIGNAL_SET | SIGNAL_ADD);
        let unknown = || format!("`sig_op` is {how}; use SHMEM_SIGNAL_SET or SHMEM_SIGNAL_ADD");
        word.err().map(|fault| fault.sentence()).or_else(|| (!is_known).then(unknown))
    }

    fn strided(&self, target: i32) -> Result<(), Fault> {
        let (dst, sst) = self.strides;
        let Elements { size, count, .. } = self.elements;
        let QueueEnds { dest, source } = self.ends;
        match self.op {
            OP_IPUT => rma::iput(
                Context::DEFAULT,
                dest.as_symmetric(),
                source,
                dst,
                sst,
                count,
                size,
                target,
            ),
            _ => rma::iget(
                Context::DEFAULT,
                dest,
                source.as_symmetric(),
                dst,
                sst,
                count,
                size,
                target,
            ),
        }
    }

    /// Fetches a word of a far PE; it is there when the queue is flushed.
    fn fetch_far<T: Integer>(&self, object: FarObject, index: usize) {
        let value = || self.ends.source.read::<T>(index);
        let change = match self.op {
            OP_FETCH => Change::Fetch,
            OP_FETCH_ADD => Change::Add(value()),
            OP_CSWAP => Change::CompareSwap { wanted: self.expected.read(index), value: value() },
            _ => Change::Swap(value()),
        };
        object.fetch_nbi(change, self.fetch.plus((index * size_of::<T>()) as isize));
    }

    fn fetching<T: Integer>(&self, queue: &Queue, target: i32) -> Result<(), Fault> {
        let at = if self.op == OP_FETCH { self.ends.source } else { self.ends.dest };
        let (at, count) = (at.as_symmetric(), self.elements.count);
        needs(self.fetch, "fetch")?;
        if self.op != OP_FETCH {
            needs(self.ends.source, "source")?;
        }
        if self.op == OP_CSWAP {
            needs(self.expected, "cond")?;
        }
        // All words are looked up before any is changed.
        let words = (0..count).map(|index| {
            job::get()?.word::<T>(Context::DEFAULT, at.plus(index * size_of::<T>()), target, "dest")
        });
        for (index, word) in words.collect::<Result<Vec<_>, _>>()?.into_iter().enumerate() {
            let word = match word {
                Reach::Near(word) => word,
                Reach::Far(object) => {
                    self.fetch_far::<T>(object.in_class(queue.far_class()), index);
                    continue;
                }
                Reach::Nothing => continue,
            };
            let operand = || self.ends.source.read::<T>(index);
            let found = match self.op {
                OP_FETCH => T::load(word, Ordering::Acquire),
                OP_FETCH_ADD => T::fetch_add(word, operand()),
                OP_CSWAP => T::compare_swap(word, self.expected.read(index), operand()),
                _ => T::swap(word, operand()),
            };
            self.fetch.write(index, found);
        }
        Ok(())
    }
}
