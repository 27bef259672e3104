//! What drives the drain, with one planted fault.

use clearway_proto::staging::{GroupNumber, NodeKind, StepEnd, StoreStep, StoreTask, TreeChange};

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DriverFault {
    /// An object is not synced.
    SkipsCopySync,
    /// A piece of a copy is not written.
    SkipsPiece,
    /// A piece is written a byte too early.
    ShiftsPiece,
    /// Directories are not synced.
    SkipsDirectorySync,
    /// Only the first directory is synced.
    SyncsOneDirectory,
    /// Everything in the log counts as durable.
    BelievesApplied,
    /// A step that failed counts as done.
    IgnoresFailures,
    /// A directory that moves is made anew.
    MakesMovedAnew,
    /// Nothing is removed.
    NeverRemoves,
    /// Attributes are not set.
    NeverSettles,
    /// All objects are swept away.
    SweepsAll,
    /// A copy begins with nothing.
    ForgetsBase,
    /// A name that comes has no record.
    ForgetsName,
    /// An object is dropped with its old ones.
    DropsEarly,
    /// A set is published when it is held.
    PublishesEarly,
    /// After a crash the first names are not touched again.
    SkipsRedo,
    /// A record says a byte too little of a copy.
    DrainsTooLittle,
    /// A record says a version that was not copied.
    DrainsNextVersion,
    /// Symbolic links name something else.
    BreaksLinks,
    /// Objects are made with another mode.
    LosesModes,
}

impl DriverFault {
    pub(super) const ALL: [Self; 20] = [
        Self::SkipsCopySync,
        Self::SkipsPiece,
        Self::ShiftsPiece,
        Self::SkipsDirectorySync,
        Self::SyncsOneDirectory,
        Self::BelievesApplied,
        Self::IgnoresFailures,
        Self::MakesMovedAnew,
        Self::NeverRemoves,
        Self::NeverSettles,
        Self::SweepsAll,
        Self::ForgetsBase,
        Self::ForgetsName,
        Self::DropsEarly,
        Self::PublishesEarly,
        Self::SkipsRedo,
        Self::DrainsTooLittle,
        Self::DrainsNextVersion,
        Self::BreaksLinks,
        Self::LosesModes,
    ];
}

#[derive(Debug)]
pub(super) struct CarelessDriver {
    fault: Option<DriverFault>,
    skips: u32,
}

impl CarelessDriver {
    pub(super) fn new(fault: Option<DriverFault>) -> Self {
        Self { fault, skips: 0 }
    }

    fn has(&self, fault: DriverFault) -> bool {
        self.fault == Some(fault)
    }

    pub(super) fn is_reborn(&mut self) {
        self.skips = if self.has(DriverFault::SkipsRedo) { 3 } else { 0 };
    }

    pub(super) fn durable(&self, durable: GroupNumber) -> GroupNumber {
        if self.has(DriverFault::BelievesApplied) { GroupNumber(u64::MAX) } else { durable }
    }

    /// Returns the step that is done in place of `step`; none when nothing is.
    pub(super) fn change_step(&self, step: &StoreStep) -> Option<StoreStep> {
        let mut step = step.clone();
        let Some(fault) = self.fault else { return Some(step) };
        match (fault, &mut step) {
            (DriverFault::SkipsPiece, StoreStep::Copy { pieces, .. }) => drop(pieces.pop()),
            (DriverFault::ShiftsPiece, StoreStep::Copy { pieces, .. }) => {
                pieces.iter_mut().for_each(|piece| {
                    piece.offset = piece.offset.saturating_sub(1);
                });
            }
            (DriverFault::ForgetsBase, StoreStep::Copy { keep, .. }) => *keep = 0,
            (DriverFault::DropsEarly, StoreStep::DropOld { inode }) => {
                return Some(StoreStep::Drop { inode: *inode });
            }
            (DriverFault::SweepsAll, StoreStep::Sweep { keeps }) => keeps.clear(),
            (DriverFault::SkipsDirectorySync, StoreStep::SyncDirectories { .. })
            | (DriverFault::NeverRemoves, StoreStep::Unlink { .. })
            | (DriverFault::NeverSettles, StoreStep::Settle { .. }) => return None,
            (DriverFault::SyncsOneDirectory, StoreStep::SyncDirectories { at }) => at.truncate(1),
            (DriverFault::MakesMovedAnew, StoreStep::MoveDirectory { to, .. }) => {
                return Some(StoreStep::MakeDirectory { at: to.clone() });
            }
            (DriverFault::BreaksLinks, StoreStep::Make { node: NodeKind::Symlink(target), .. }) => {
                *target = b"elsewhere"[..].into();
            }
            (
                DriverFault::LosesModes,
                StoreStep::Make { attributes, .. } | StoreStep::Copy { attributes, .. },
            ) => {
                attributes.mode ^= 1;
            }
            _ => {}
        }
        Some(step)
    }

    pub(super) fn change_task(&mut self, task: StoreTask) -> StoreTask {
        let is_name = matches!(
            task.step,
            StoreStep::MoveDirectory { .. }
                | StoreStep::Link { .. }
                | StoreStep::MakeDirectory { .. }
        );
        if self.skips > 0 && is_name {
            self.skips -= 1;
            let step = StoreStep::SyncDirectories { at: Vec::new() };
            return StoreTask { step, ..task };
        }
        task
    }

    pub(super) fn publishes_early(&self) -> bool {
        self.has(DriverFault::PublishesEarly)
    }

    pub(super) fn skips_copy_sync(&self) -> bool {
        self.has(DriverFault::SkipsCopySync)
    }

    pub(super) fn change_end(&self, end: StepEnd) -> StepEnd {
        match end {
            StepEnd::Failed(_) if self.has(DriverFault::IgnoresFailures) => StepEnd::Done,
            end => end,
        }
    }

    /// Returns the record that is appended; none when it is not.
    pub(super) fn change_record(&self, change: TreeChange) -> Option<TreeChange> {
        let Some(fault) = self.fault else { return Some(change) };
        match (fault, change) {
            (DriverFault::ForgetsName, TreeChange::Stored { inode: Some(_), .. }) => None,
            (DriverFault::DrainsTooLittle, TreeChange::Drained { inode, version, size }) => {
                Some(TreeChange::Drained { inode, version, size: size.saturating_sub(1) })
            }
            (DriverFault::DrainsNextVersion, TreeChange::Drained { inode, version, size }) => {
                Some(TreeChange::Drained { inode, version: version + 1, size })
            }
            (_, change) => Some(change),
        }
    }
}
