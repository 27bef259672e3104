//! Runs one rank of the congestion test phase after phase: its own engine and those of the
//! broadcasts and the staging that load the network.

use anyhow::Result;
use clearway_proto::base::RandomKey;
use clearway_proto::congestion::{CongestionEvent, Phase, PhaseRecord};
use clearway_proto::wire::{SHORT_HEAD, Wire};
use clearway_runtime::clock;
use clearway_wires::WireNeeds;

use super::staging_load::TestWithStaging;
use crate::run::exit::Exit;
use crate::run::rank_process::RankContext;
use crate::run::session::Protocol;
use crate::run::task::{self, RankRecord, TaskEngine, TaskStatus};

/// The conversation of the congestion test: a phase at a time.
pub(crate) enum CongestionProtocol {}

impl Protocol for CongestionProtocol {
    const MECHANISM: &'static str = "congestion";
    const NEED: WireNeeds = WireNeeds::Packets;
    type Request = Phase;
    type Response = RankRecord<PhaseRecord>;
}

/// Runs phases until the coordinator is done.
pub(crate) fn serve(end: RankContext) -> Result<Exit> {
    task::serve::<CongestionProtocol, _>(end, |wire, seed| {
        let body_max = wire.capabilities().body_max_with_head(SHORT_HEAD) as u32;
        TestWithStaging::new(wire, body_max, RandomKey::new(seed))
    })
}

impl TaskEngine for TestWithStaging {
    type Record = PhaseRecord;

    fn prepare(&mut self, wire: &mut dyn Wire) -> Result<()> {
        self.prepare_phase(wire)
    }

    fn handle(event: CongestionEvent) -> TaskStatus {
        match event {
            CongestionEvent::PhaseOver { .. } => TaskStatus::Over,
            CongestionEvent::Burn(length) => {
                let until = clock::now() + length;
                while clock::now() < until {
                    std::hint::spin_loop();
                }
                TaskStatus::GoOn
            }
        }
    }

    fn take_record(&mut self) -> Option<PhaseRecord> {
        Self::take_record(self)
    }
}
