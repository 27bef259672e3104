//! The engine of a process, which has one of two kinds.

use clearway_proto::base::{Bytes, LocalNs};
use clearway_proto::wire::{Engine, Input, More, Out, RegionId, Wire};

use super::engine::{ProcessEngine, ProcessRecord, ProcessRole};
use super::storage::StorageEngine;

/// One process.
#[derive(Debug)]
pub(super) enum NodeProcess {
    /// Of an application, a writer, or one that waits.
    Messages(Box<ProcessEngine>),
    /// Of a checkpoint.
    Storage(Box<StorageEngine>),
}

impl NodeProcess {
    /// Creates a process of `ranks` that plays `role` with the memory that it needs on `wire`; no
    /// message of an application has more than `longest` bytes.
    pub(super) fn new(role: ProcessRole, ranks: u32, longest: Bytes, wire: &mut dyn Wire) -> Self {
        if let ProcessRole::Storage(part) = &role {
            return Self::Storage(Box::new(StorageEngine::new(part, ranks, wire)));
        }
        let memory = wire.register(longest).unwrap_or(RegionId::RECEIVE);
        Self::Messages(Box::new(ProcessEngine::new(role, memory)))
    }

    /// Returns whether nobody waits for it.
    pub(super) fn is_over(&self, storage: StorageEnd) -> bool {
        match (self, storage) {
            (Self::Messages(engine), _) => engine.is_over(),
            (Self::Storage(_), StorageEnd::Ignored) => true,
            (Self::Storage(engine), StorageEnd::Awaited) => !engine.is_writing(),
        }
    }

    /// Returns whether a part of a checkpoint is still on its way from here.
    pub(super) fn has_unwritten(&self) -> bool {
        match self {
            Self::Messages(_) => false,
            Self::Storage(engine) => engine.has_unwritten(),
        }
    }

    /// Returns what was counted.
    ///
    /// # Errors
    /// One sentence: what went wrong.
    pub(super) fn record(&self) -> Result<ProcessRecord, String> {
        match self {
            Self::Messages(engine) => engine.record().cloned(),
            Self::Storage(engine) => {
                let wrote_for = engine.wrote_for()?;
                Ok(ProcessRecord { wrote_for, ..ProcessRecord::default() })
            }
        }
    }
}

/// Whether a world runs until a checkpoint is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StorageEnd {
    Awaited,
    Ignored,
}

impl Engine for NodeProcess {
    type Command = ();
    type Event = ();

    fn input(&mut self, now: LocalNs, input: Input<'_, ()>, out: &mut Out<()>) -> More {
        match self {
            Self::Messages(engine) => engine.input(now, input, out),
            Self::Storage(engine) => engine.input(now, input, out),
        }
    }

    fn deadline(&self) -> Option<LocalNs> {
        match self {
            Self::Messages(engine) => engine.deadline(),
            Self::Storage(engine) => engine.deadline(),
        }
    }
}
