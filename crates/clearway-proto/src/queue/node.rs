//! The engine of far operations of one rank.

use super::{QueueCommand, QueueConfig, QueueEvent};
use crate::base::LocalNs;
use crate::wire::{Engine, Input, More, Out};

/// One rank's far operations.
#[derive(Debug)]
pub struct QueueNode {
    config: QueueConfig,
}

impl QueueNode {
    /// Creates the engine; nothing is under way.
    pub fn new(config: QueueConfig) -> Self {
        Self { config }
    }
}

impl Engine for QueueNode {
    type Command = QueueCommand;
    type Event = QueueEvent;

    fn input(
        &mut self,
        _now: LocalNs,
        _input: Input<'_, QueueCommand>,
        _out: &mut Out<QueueEvent>,
    ) -> More {
        let _ = &self.config;
        More::No
    }

    fn deadline(&self) -> Option<LocalNs> {
        None
    }
}
