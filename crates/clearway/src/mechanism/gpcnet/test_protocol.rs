//! One rank of GPCNeT's own tests, test after test.

use anyhow::{Result, anyhow};
use clearway_proto::gpcnet::{GpcnetConfig, GpcnetEvent, GpcnetNode, GpcnetRecord, MEMORY, Task};
use clearway_proto::wire::{Span, Wire};
use clearway_wires::WireNeeds;

use crate::run::exit::Exit;
use crate::run::rank_process::RankContext;
use crate::run::session::Protocol;
use crate::run::task::{self, RankRecord, TaskEngine, TaskStatus};

/// The conversation of GPCNeT's own tests: one at a time.
pub(crate) enum GpcnetProtocol {}

impl Protocol for GpcnetProtocol {
    const MECHANISM: &'static str = "gpcnet";
    const NEED: WireNeeds = WireNeeds::Packets;
    type Request = Task;
    type Response = RankRecord<GpcnetRecord>;
}

/// Runs tests until the coordinator is done.
pub(crate) fn serve(end: RankContext) -> Result<Exit> {
    task::serve::<GpcnetProtocol, _>(end, |wire, _seed| node(wire))
}

/// Returns the engine at the end of `wire`.
pub(super) fn node(wire: &mut dyn Wire) -> Result<GpcnetNode> {
    let region = wire.register(MEMORY).map_err(|missing| anyhow!("{missing}"))?;
    let memory = Span { region, offset: 0, length: MEMORY.0 as u32 };
    Ok(GpcnetNode::new(GpcnetConfig::new(wire.rank(), memory, wire.capabilities())))
}

impl TaskEngine for GpcnetNode {
    type Record = GpcnetRecord;

    fn handle(event: GpcnetEvent) -> TaskStatus {
        let GpcnetEvent::Over { .. } = event;
        TaskStatus::Over
    }

    fn take_record(&mut self) -> Option<GpcnetRecord> {
        Self::take_record(self)
    }
}
