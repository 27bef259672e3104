//! Changes that the log cannot take yet, in turns by source.
//!
//! # Model
//! Each source has a queue. The queues take turns, one change a turn. A change that finds the log
//! full keeps its turn: a large write must not wait for ever behind small ones. One that exceeds the
//! share of its user passes its turn on, so only its own source waits for it.
//!
//! # Invariants
//! I1. Changes of one source are made in the order in which they came.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use super::core::Core;

/// Names the source of a change; changes of one source keep their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ChangeSource {
    /// A command of `clearway stage`.
    Operator,
    /// A user.
    User(u32),
    /// A mount that root of a host made for its users, by its number.
    Host(u64),
}

/// Names the resource that a change waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// Space of the log or memory, which all share.
    Common,
    /// A part of the log that its user may still take.
    Share,
}

/// Makes the change, or returns the resource that it waits for.
pub(super) type ParkedChange = Box<dyn FnMut(&mut Core) -> Result<(), Shortage> + Send>;

/// All changes that wait.
#[derive(Default)]
pub(super) struct ParkedChanges {
    queues: BTreeMap<ChangeSource, VecDeque<ParkedChange>>,
    /// The source that had the last turn.
    last: Option<ChangeSource>,
    /// The source whose turn it is until there is space for all.
    blocked: Option<ChangeSource>,
}

impl ParkedChanges {
    /// Returns whether a new change of `source` must wait for others.
    pub(super) fn must_wait(&self, source: ChangeSource) -> bool {
        self.blocked.is_some() || self.queues.contains_key(&source)
    }

    /// Returns how many changes wait.
    pub(super) fn count(&self) -> usize {
        self.queues.values().map(VecDeque::len).sum()
    }

    /// Returns how many sources have changes that wait.
    pub(super) fn source_count(&self) -> usize {
        self.queues.len()
    }

    /// Adds a change. `shortage` is what it lacked, if it was tried.
    pub(super) fn push(
        &mut self,
        source: ChangeSource,
        shortage: Option<Shortage>,
        change: ParkedChange,
    ) {
        self.queues.entry(source).or_default().push_back(change);
        if shortage == Some(Shortage::Common) {
            self.blocked.get_or_insert(source);
        }
    }

    /// Takes the change whose turn it is.
    pub(super) fn take(&mut self) -> Option<(ChangeSource, ParkedChange)> {
        let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.queues.range((after, Bound::Unbounded)).next().map(|(source, _)| *source);
        let source = self.blocked.take().or(next).or_else(|| self.queues.keys().next().copied())?;
        let queue = self.queues.get_mut(&source)?;
        let change = queue.pop_front()?;
        if queue.is_empty() {
            self.queues.remove(&source);
        }
        self.last = Some(source);
        Some((source, change))
    }

    /// Puts back a change that was taken and lacks something.
    pub(super) fn put_back(
        &mut self,
        source: ChangeSource,
        change: ParkedChange,
        shortage: Shortage,
    ) {
        self.queues.entry(source).or_default().push_front(change);
        if shortage == Shortage::Common {
            self.blocked = Some(source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: ChangeSource = ChangeSource::User(1);
    const BOB: ChangeSource = ChangeSource::User(2);

    fn parked(sources: &[(ChangeSource, Option<Shortage>)]) -> ParkedChanges {
        let mut parked = ParkedChanges::default();
        for (source, shortage) in sources {
            parked.push(*source, *shortage, Box::new(|_| Ok(())));
        }
        parked
    }

    fn taken(parked: &mut ParkedChanges) -> Vec<ChangeSource> {
        std::iter::from_fn(|| parked.take().map(|(source, _)| source)).collect()
    }

    #[test]
    fn take__sources_have_turns() {
        let mut parked = parked(&[(ALICE, None), (ALICE, None), (ALICE, None), (BOB, None)]);
        assert_eq!((parked.count(), parked.source_count()), (4, 2));
        assert_eq!(taken(&mut parked), [ALICE, BOB, ALICE, ALICE]);
        assert!(!parked.must_wait(ALICE), "nothing waits");
    }

    #[test]
    fn must_wait__a_user_beyond_its_share_holds_up_nobody_else() {
        let mut parked = parked(&[(ALICE, Some(Shortage::Share))]);
        assert!(parked.must_wait(ALICE) && !parked.must_wait(BOB));
        let (source, change) = parked.take().expect("one");
        parked.put_back(source, change, Shortage::Share);
        assert!(parked.must_wait(ALICE) && !parked.must_wait(BOB));
    }

    #[test]
    fn take__a_change_that_lacks_what_all_share_keeps_its_turn() {
        let mut parked = parked(&[(BOB, Some(Shortage::Common)), (ALICE, None)]);
        assert!(parked.must_wait(ChangeSource::Host(1)), "small ones must not overtake it");
        let (source, change) = parked.take().expect("one");
        assert_eq!(source, BOB);
        parked.put_back(source, change, Shortage::Common);
        assert_eq!(taken(&mut parked), [BOB, ALICE]);
    }
}
