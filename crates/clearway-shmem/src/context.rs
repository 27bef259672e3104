//! Keeps contexts: the team whose numbers an operation uses for PEs, and the options that the program
//! chose.
//!
//! # Model
//! A near operation is complete when its call returns, so a context has no streams and no lists of
//! its own: it is a number in a table, with the slot of its team and its options.
//!
//! # Source
//! OpenSHMEM 1.6, "Communication Management Routines".

use std::sync::atomic::{AtomicU32, Ordering};

use clearway_proto::base::Class;

use crate::constants::{CTX_CLASS_SHIFT, CTX_NOSTORE, CTX_PRIVATE, CTX_SERIALIZED};
use crate::fault::{Fault, Wrong};
use crate::job::{self, Job};
use crate::order;
use crate::queue::{ClassGrant, QueueClass};
use crate::session;
use crate::team::{Team, WORLD_SLOT};

/// Contexts that a PE can have at once.
const CONTEXTS_MAX: usize = 8_192;
/// Bits of an entry: in use, the options, above them the slot of the team, and above that the
/// number of its session's lane, 0 without.
const LIVE: u32 = 1 << 7;
const CLASS_MASK: u32 = 0b111;
const SLOT_SHIFT: u32 = 8;
const SLOT_MASK: u32 = 0xff;
const SESSION_SHIFT: u32 = 16;

/// A context of this PE, by its number in the table (`shmem_ctx_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Context(usize);

impl Context {
    /// `SHMEM_CTX_INVALID`.
    pub const INVALID: Self = Self(0);
    /// `SHMEM_CTX_DEFAULT`.
    pub const DEFAULT: Self = Self(1);

    /// The handle that the program has.
    #[inline]
    pub const fn from_raw(raw: usize) -> Self {
        Self(raw)
    }

    /// The handle for the program.
    #[inline]
    pub const fn raw(self) -> usize {
        self.0
    }
}

/// All contexts of this PE, by handle.
#[derive(Debug)]
pub(crate) struct ContextTable {
    entries: Box<[AtomicU32]>,
    /// The class of contexts that request none.
    class: Class,
}

impl ContextTable {
    /// The default one.
    pub(crate) fn new(class: Class) -> Self {
        let all: Box<[AtomicU32]> = (0..CONTEXTS_MAX).map(|_| AtomicU32::new(0)).collect();
        all[Context::DEFAULT.0].store(LIVE | (WORLD_SLOT as u32) << SLOT_SHIFT, Ordering::Relaxed);
        Self { entries: all, class }
    }

    /// The slot and the options of `context`.
    #[inline]
    pub(crate) fn get(&self, context: Context) -> Option<(usize, i64)> {
        let entry = self.entries.get(context.0)?.load(Ordering::Acquire);
        (entry & LIVE != 0).then_some((slot_of(entry), i64::from(entry & (LIVE - 1))))
    }

    /// The number of the lane of the session of `context`.
    #[inline]
    pub(crate) fn session(&self, context: Context) -> Option<usize> {
        let number = self.entries.get(context.0)?.load(Ordering::Acquire) >> SESSION_SHIFT;
        (number != 0).then_some(number as usize)
    }

    /// Gives `context` a session, or takes it away.
    pub(crate) fn set_session(&self, context: Context, number: Option<usize>) {
        if let Some(entry) = self.entries.get(context.0) {
            let without = entry.load(Ordering::Acquire) & ((1 << SESSION_SHIFT) - 1);
            let number = number.unwrap_or_default() as u32;
            entry.store(without | number << SESSION_SHIFT, Ordering::Release);
        }
    }

    /// The contexts of the team of `slot` that have a session.
    pub(crate) fn sessions_of(&self, slot: usize) -> impl Iterator<Item = Context> {
        let has_one = move |entry: &AtomicU32| {
            let entry = entry.load(Ordering::Acquire);
            entry >> SESSION_SHIFT != 0 && slot_of(entry) == slot
        };
        self.entries
            .iter()
            .enumerate()
            .filter(move |(_, entry)| has_one(entry))
            .map(|(at, _)| Context(at))
    }

    /// Returns the class in which operations of `context` travel between hosts.
    pub(crate) fn class(&self, context: Context) -> Class {
        let entry = self.entries.get(context.0).map_or(0, |entry| entry.load(Ordering::Acquire));
        class_of(entry).map_or(self.class, QueueClass::far)
    }

    fn create(&self, slot: usize, options: i64) -> Option<Context> {
        let value = LIVE | options as u32 | (slot as u32) << SLOT_SHIFT;
        let take = |entry: &AtomicU32| {
            entry.compare_exchange(0, value, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let free = self.entries.iter().skip(Context::DEFAULT.0 + 1).position(take)?;
        Some(Context(free + Context::DEFAULT.0 + 1))
    }

    /// Ends all contexts but the default one.
    pub(crate) fn clear(&self) {
        let all = self.entries.iter().skip(Context::DEFAULT.0 + 1);
        all.for_each(|one| one.store(0, Ordering::Release));
        self.set_session(Context::DEFAULT, None);
    }

    /// Ends all contexts of the team of `slot`.
    pub(crate) fn destroy_of(&self, slot: usize) {
        for entry in &self.entries {
            if slot_of(entry.load(Ordering::Acquire)) == slot && slot != WORLD_SLOT {
                entry.store(0, Ordering::Release);
            }
        }
    }
}

fn class_of(entry: u32) -> Option<QueueClass> {
    let number = (entry >> CTX_CLASS_SHIFT & CLASS_MASK) as usize;
    QueueClass::ALL.get(number.checked_sub(1)?).copied()
}

/// Returns whether a context can have these options.
fn are_options(options: i64) -> bool {
    let class = i64::from(CLASS_MASK) << CTX_CLASS_SHIFT;
    let is_known = options & !(CTX_PRIVATE | CTX_SERIALIZED | CTX_NOSTORE | class) == 0;
    is_known && (options & class == 0 || class_of(options as u32).is_some())
}

fn slot_of(entry: u32) -> usize {
    (entry >> SLOT_SHIFT & SLOT_MASK) as usize
}

/// Makes a context of the team of `slot`: 0, or a reason and no context.
pub(crate) fn create_in(job: &Job, slot: usize, options: i64) -> (i32, Context) {
    if !are_options(options) {
        return (-1, Context::INVALID);
    }
    job.contexts.create(slot, options).map_or((-1, Context::INVALID), |context| (0, context))
}

/// Creates a context of the world: 0 and the context, or -1 and none (`shmem_ctx_create`).
///
/// # Errors
/// The library is not initialised.
pub fn create(options: i64) -> Result<(i32, Context), Fault> {
    Ok(create_in(job::get()?, WORLD_SLOT, options))
}

/// Completes what the context did, and destroys it (`shmem_ctx_destroy`).
///
/// # Errors
/// The library is not initialised, or the context is the default one or none.
pub fn destroy(context: Context) -> Result<(), Fault> {
    let job = job::get()?;
    if context == Context::INVALID {
        return Ok(());
    }
    if context == Context::DEFAULT {
        return Err(Fault::value("ctx", context.0 as i64, "SHMEM_CTX_DEFAULT cannot be destroyed"));
    }
    session::end(job, context)?;
    order::quiet(context)?;
    match job.contexts.entries.get(context.0).map(|entry| entry.swap(0, Ordering::AcqRel)) {
        Some(entry) if entry & LIVE != 0 => Ok(()),
        _ => Err(Wrong::Context(context.0).into()),
    }
}

/// Returns 0 and the team of a context, or -1 and none (`shmem_ctx_get_team`).
///
/// # Errors
/// The library is not initialised.
pub fn team(context: Context) -> Result<(i32, Team), Fault> {
    let job = job::get()?;
    Ok(job.contexts.get(context).map_or((-1, Team::INVALID), |(slot, _)| (0, Team::of_slot(slot))))
}

/// Returns what became of the class of a context between the PEs of its team
/// (`shmemx_ctx_granted`); `None` for no context.
///
/// # Errors
/// The library is not initialised.
pub fn granted(context: Context) -> Result<Option<ClassGrant>, Fault> {
    let job = job::get()?;
    let Some((slot, _)) = job.contexts.get(context) else { return Ok(None) };
    let (team, _) = job.teams.get(Team::of_slot(slot))?;
    Ok(Some(job.grant(QueueClass::from_far(job.contexts.class(context)), team)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn create__handles_are_used_again_and_end_with_their_team() {
        let contexts = ContextTable::new(Class::BestEffort);
        assert_eq!(contexts.get(Context::DEFAULT), Some((WORLD_SLOT, 0)));
        assert_eq!(contexts.get(Context::INVALID), None);
        assert_eq!(contexts.get(Context(usize::MAX)), None);
        let first = contexts.create(7, CTX_NOSTORE).expect("room");
        let second = contexts.create(3, 0).expect("room");
        assert_eq!(contexts.get(first), Some((7, CTX_NOSTORE)));
        contexts.destroy_of(7);
        assert_eq!((contexts.get(first), contexts.get(second)), (None, Some((3, 0))));
        assert_eq!(contexts.create(4, CTX_PRIVATE), Some(first));
    }

    #[test]
    fn class__is_that_of_the_options_or_of_the_job() {
        let contexts = ContextTable::new(Class::Bulk);
        let classes = [Class::LowLatency, Class::BestEffort, Class::Bulk, Class::Scavenger];
        for (number, class) in (0..).zip(classes) {
            let options = (number + 1) << CTX_CLASS_SHIFT | CTX_NOSTORE;
            assert!(are_options(options));
            let context = contexts.create(0, options).expect("room");
            assert_eq!(contexts.class(context), class);
        }
        assert_eq!(contexts.class(Context::DEFAULT), Class::Bulk);
        assert!(![5 << CTX_CLASS_SHIFT, 1 << 3, 1 << 7].into_iter().any(are_options));
    }
}
