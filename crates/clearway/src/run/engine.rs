//! The engines that a rank can run: how orders become their commands, and what they saw a record.

use anyhow::{Result, anyhow};
use clearway_proto::base::{Bytes, RandomKey};
use clearway_proto::wire::{Engine, RegionId, SHORT_HEAD, Span, Wire};
use clearway_proto::{congestion, gpcnet};
use clearway_runtime::clock;
use clearway_wires::Need;
use serde::{Deserialize, Serialize};

use super::message::{Seen, ToRank};
use crate::mechanism::congestion::with_cast::TestWithCast;

/// What the ranks of a run measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Measure {
    /// The congestion test, phase by phase.
    Congestion,
    /// GPCNeT's own tests, one by one.
    Gpcnet,
    /// Timeslices: one schedule after the other.
    Timeslice,
    /// Broadcasts: one way and length after the other.
    Broadcast,
}

impl Measure {
    /// What its engine needs of the wire.
    pub(crate) const fn need(self) -> Need {
        match self {
            Self::Congestion | Self::Gpcnet => Need::Packets,
            Self::Timeslice => Need::Writes,
            Self::Broadcast => Need::Datagrams,
        }
    }
}

/// An engine as its rank sees it.
pub(super) trait Measuring: Engine {
    /// What `order` asks of it, if it is one for this engine.
    fn command(order: ToRank) -> Option<Self::Command>;

    /// Gets from the wire what the last command needs, before it needs it.
    fn prepare(&mut self, _wire: &mut dyn Wire) -> Result<()> {
        Ok(())
    }

    /// Does what `event` asks for.
    fn hear(event: Self::Event) -> Heard;

    /// What it saw, once.
    fn seen(&mut self) -> Option<Seen>;
}

/// What an event means for the rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It goes on.
    GoOn,
    /// A record waits.
    Over,
}

/// The congestion test on `wire`.
pub(super) fn congestion(wire: &mut dyn Wire, seed: u64) -> Result<TestWithCast> {
    let body_max = wire.capabilities().body_beside(SHORT_HEAD) as u32;
    TestWithCast::new(wire, body_max, RandomKey::new(seed))
}

/// GPCNeT's tests on `wire`.
pub(super) fn gpcnet(wire: &mut dyn Wire) -> Result<gpcnet::Node> {
    let region = register(wire, gpcnet::MEMORY)?;
    let memory = Span { region, offset: 0, length: gpcnet::MEMORY.0 as u32 };
    Ok(gpcnet::Node::new(gpcnet::NodeConfig::new(wire.rank(), memory, wire.capabilities())))
}

fn register(wire: &mut dyn Wire, length: Bytes) -> Result<RegionId> {
    wire.register(length).map_err(|missing| anyhow!("{missing}"))
}

impl Measuring for TestWithCast {
    fn command(order: ToRank) -> Option<congestion::Phase> {
        if let ToRank::Phase(phase) = order { Some(phase) } else { None }
    }

    fn hear(event: congestion::Event) -> Heard {
        match event {
            congestion::Event::PhaseOver { .. } => Heard::Over,
            congestion::Event::Burn(length) => {
                let until = clock::now() + length;
                while clock::now() < until {
                    std::hint::spin_loop();
                }
                Heard::GoOn
            }
        }
    }

    fn prepare(&mut self, wire: &mut dyn Wire) -> Result<()> {
        self.prepare_phase(wire)
    }

    fn seen(&mut self) -> Option<Seen> {
        self.take_record().map(Seen::Phase)
    }
}

impl Measuring for gpcnet::Node {
    fn command(order: ToRank) -> Option<gpcnet::Task> {
        if let ToRank::Test(task) = order { Some(*task) } else { None }
    }

    fn hear(event: gpcnet::Event) -> Heard {
        let gpcnet::Event::Over { .. } = event;
        Heard::Over
    }

    fn seen(&mut self) -> Option<Seen> {
        self.take_record().map(Seen::Test)
    }
}
