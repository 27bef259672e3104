//! When something goes wrong in a fabric: faults begin, become known, end and are forgotten, and
//! how often each did something.
//!
//! # Model
//! Faults are named before anything is posted. Each begins and ends as an event of its own, the
//! last of its instant. A fault that something can be done about (a link or a switch that is gone)
//! is also known, and forgotten, some time later.
//!
//! # Invariants
//! I1. A fabric without faults computes what it would compute without this module.
//! I2. With faults every packet travels alone and every arrival is an event, so that
//!     [`super::FabricOptions`] still change nothing.
//!
//! # Not here
//! What faults make of ports and devices (`condition`) and of packets (`fate`). Names, files and
//! drawing ([`crate::fault`]); what befalls nodes, clocks and disks.

mod condition;
mod fate;
mod kind;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use clearway_proto::base::RandomKey;

use super::{Fabric, FabricEventKind, Trains};
use crate::arbiter::ArbiterState;
use crate::time::Pace;

pub use kind::{DownPolicy, FabricFault, FabricFaultKind, FaultOdds, PacketFault, PacketSort};

/// What a fault event is about, in the order of the bits of its argument.
const BEGINS: u32 = 0;
const ENDS: u32 = 1;
const NOTICED: u32 = 2;
const FORGOTTEN: u32 = 3;

/// One fault and how far it has come.
#[derive(Debug)]
struct ActiveFault {
    fault: FabricFault,
    active: bool,
    /// Routing knows.
    noticed: bool,
    /// Packets that passed.
    passed: u64,
    in_burst: bool,
    key: RandomKey,
    /// Bytes that it took, to be given back.
    taken: u32,
}

/// All faults of a fabric.
#[derive(Debug)]
pub(super) struct ActiveFaults {
    cases: Vec<ActiveFault>,
    /// Those that strike packets, by channel and in their order.
    risks: BTreeMap<u32, Vec<u32>>,
    /// How often each fault of the plan did something.
    struck: BTreeMap<u32, u64>,
    /// As specified, by port: pace and delay.
    sound: Vec<(Pace, u64)>,
    /// The sound tables and arbiters of channels that have, or had, wrong ones.
    tables: BTreeMap<u32, u8>,
    arbiters: BTreeMap<u32, ArbiterState>,
    /// Channels on which everything is lost now.
    dark: Vec<bool>,
    /// Devices that are dead now.
    dead: Vec<bool>,
    /// In percent of the link's rate, by host.
    slow: BTreeMap<u32, u32>,
    /// Packets under way that will not arrive.
    doomed: BTreeSet<u32>,
    /// Arrivals to come on channels where packets are late, so that no two are at once.
    arrivals: BTreeMap<u32, BTreeSet<u64>>,
    /// Credits that a lane owes to a fault, by lane.
    debt: BTreeMap<u32, u32>,
    /// Multicasts that arrive damaged: message and host.
    spoilt: BTreeSet<(u32, u32)>,
}

impl Fabric {
    /// Lets `faults` happen. `key` decides which packets are struck. No faults, no change.
    ///
    /// # Panics
    /// When something was posted before, faults were named before, or one of them names what is not
    /// there: mistakes of the caller.
    pub fn afflict(&mut self, faults: Vec<FabricFault>, key: RandomKey) {
        if faults.is_empty() {
            return;
        }
        assert!(
            self.now == 0 && self.events.next_at().is_none() && self.faults.is_none(),
            "faults come first, and once"
        );
        self.options.trains = Trains::Off;
        for (number, fault) in (0u32..).zip(&faults) {
            self.schedule(fault.at.0, FabricEventKind::Fault, number, BEGINS);
            self.schedule(fault.until.0, FabricEventKind::Fault, number, ENDS);
            if let FabricFaultKind::Down { notice_after, .. }
            | FabricFaultKind::Dead { notice_after, .. } = fault.what
                && fault.at + notice_after < fault.until
            {
                self.schedule((fault.at + notice_after).0, FabricEventKind::Fault, number, NOTICED);
                self.schedule(
                    (fault.until + notice_after).0,
                    FabricEventKind::Fault,
                    number,
                    FORGOTTEN,
                );
            }
        }
        let (ports, devices) = (self.ports.len(), self.network.graph.devices() as usize);
        let case = |(number, fault): (u64, FabricFault)| ActiveFault {
            active: false,
            noticed: false,
            passed: 0,
            in_burst: false,
            key: key.node(u64::from(fault.plan)).node(number),
            taken: 0,
            fault,
        };
        let mut risks: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (number, fault) in (0..).zip(&faults) {
            if let FabricFaultKind::Packets { channel, .. } = fault.what {
                risks.entry(channel.0).or_default().push(number);
            }
        }
        self.faults = Some(Box::new(ActiveFaults {
            risks,
            cases: (0u64..).zip(faults).map(case).collect(),
            struck: BTreeMap::new(),
            sound: self.ports.iter().map(|port| (port.pace, port.delay)).collect(),
            tables: BTreeMap::new(),
            arbiters: BTreeMap::new(),
            dark: vec![false; ports],
            dead: vec![false; devices],
            slow: BTreeMap::new(),
            doomed: BTreeSet::new(),
            arrivals: BTreeMap::new(),
            debt: BTreeMap::new(),
            spoilt: BTreeSet::new(),
        }));
    }

    /// Returns how often the fault with the caller's number `plan` did something.
    pub fn strikes(&self, plan: u32) -> u64 {
        self.faults.as_ref().and_then(|faults| faults.struck.get(&plan).copied()).unwrap_or(0)
    }

    /// Handles a fault that begins, ends, or becomes known.
    pub(super) fn fault_event(&mut self, number: u32, what: u32) {
        let Some(mut faults) = self.faults.take() else { return };
        let case = &mut faults.cases[number as usize];
        match what {
            BEGINS | ENDS => case.active = what == BEGINS,
            _ => case.noticed = what == NOTICED,
        }
        let (trouble, plan) = (case.fault.what.clone(), case.fault.plan);
        if what == BEGINS && !matches!(trouble, FabricFaultKind::Packets { .. }) {
            *faults.struck.entry(plan).or_default() += 1;
        }
        self.faults = Some(faults);
        match trouble {
            FabricFaultKind::Packets { .. } => {}
            FabricFaultKind::LostCredit { channel, lane, bytes } => {
                self.steal(number, channel.0, lane, bytes, what)
            }
            FabricFaultKind::WrongLane { channel, .. } => self.relabel(channel.0),
            FabricFaultKind::WrongArbitration { channel, .. } => self.misrule(channel.0),
            FabricFaultKind::SlowHost { .. } => self.derive_devices(),
            FabricFaultKind::Down { channel, .. }
            | FabricFaultKind::Degraded { channel, .. }
            | FabricFaultKind::StuckLane { channel, .. } => {
                self.derive(channel.0);
            }
            FabricFaultKind::Dead { device, .. } => {
                self.derive_devices();
                if what == BEGINS {
                    self.sweep(device);
                }
                self.ports_into(device).for_each(|port| self.derive(port));
            }
        }
    }
}
