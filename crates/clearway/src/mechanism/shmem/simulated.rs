//! The benchmark on a simulated machine: draws the roles, runs every phase in a world of its own.
//!
//! # Model
//! PEs are victims or congestors by one draw of the seed, and so are the pairs of victims, their
//! schedules and the target of the incast. A phase without congestors and one with each pattern is
//! run with one class for everything, and again with classes: victims in `low-latency`, congestors
//! in `bulk`.
//!
//! # Invariants
//! I1. Phases differ in what congestors do and in classes, in nothing else.
//! I2. Every fetch-and-add that ended was done once.

use std::cell::RefCell;
use std::rc::Rc;

use anyhow::{Context, Result, anyhow, bail};
use clearway_proto::base::{Bytes, Class, LocalNs, RandomKey, Rank};
use clearway_proto::queue::{QueueConfig, QueueLimits, QueueNode};
use clearway_proto::stats::Histogram;
use clearway_proto::wire::{Span, Wire};
use clearway_sim::Picos;
use clearway_sim::fabric::FabricOptions;
use clearway_sim::wire::{ContentModel, SimWire};

use super::program::{
    BATCH, PeEngine, PeHeap, PeMemory, PeOperation, PeRole, SharedHeap, WORDS, schedule,
};
use super::section::{ShmemPattern, ShmemSection};
use crate::run::venue::{SimVenue, stretches};
use crate::run::{RemainingTime, detail, reached};

/// The longest answer: to one get of a word, and its header.
const ANSWER: u32 = 64;

/// Which classes a phase has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PhaseClasses {
    /// Everything is best effort.
    One,
    /// Victims are low latency, congestors bulk.
    Several,
}

impl PhaseClasses {
    pub(super) const ALL: [Self; 2] = [Self::One, Self::Several];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::One => "one class",
            Self::Several => "classes",
        }
    }

    const fn victims(self) -> Class {
        match self {
            Self::One => Class::BestEffort,
            Self::Several => Class::LowLatency,
        }
    }

    const fn congestors(self) -> Class {
        match self {
            Self::One => Class::BestEffort,
            Self::Several => Class::Bulk,
        }
    }
}

/// What a phase showed.
#[derive(Clone, Debug)]
pub(super) struct ShmemPhase {
    pub(super) classes: PhaseClasses,
    /// What congestors did; nothing in the isolated phase.
    pub(super) pattern: Option<ShmemPattern>,
    pub(super) latency: [Histogram; WORDS],
    pub(super) bulk_bytes: u64,
}

impl ShmemPhase {
    fn new(classes: PhaseClasses, pattern: Option<ShmemPattern>) -> Self {
        let latency = std::array::from_fn(|_| Histogram::new());
        Self { classes, pattern, latency, bulk_bytes: 0 }
    }
}

/// What PEs are, the same in all phases.
struct PeDraw {
    victims: Vec<Rank>,
    congestors: Vec<Rank>,
    /// Where the incast goes.
    target: Rank,
}

impl PeDraw {
    fn new(pes: u32, victims_percent: u32, key: RandomKey) -> Self {
        let mut all: Vec<Rank> = (0..pes).map(Rank).collect();
        key.purpose("roles").stream().shuffle(&mut all);
        // Victims are pairs.
        let count = (pes * victims_percent / 100).clamp(2, pes - 2) as usize & !1;
        let congestors = all.split_off(count);
        Self { target: congestors[0], victims: all, congestors }
    }

    /// Returns what `rank` does.
    fn role(
        &self,
        rank: Rank,
        test: &ShmemSection,
        classes: PhaseClasses,
        pattern: Option<ShmemPattern>,
        key: RandomKey,
    ) -> PeRole {
        if let Some(place) = self.victims.iter().position(|victim| *victim == rank) {
            // The first of a pair is asked by the second, and the other way round.
            let peer = self.victims[place ^ 1];
            let mut stream = key.purpose("schedule").node(u64::from(rank.0)).stream();
            let whole = test.warm_up.0.0 + test.measured.0.0;
            let (interval, count) = (test.interval.0, whole / test.interval.0.0.max(1));
            let mut jitter = |bound| stream.below(bound);
            let wanted = schedule(LocalNs(0), interval, count, &mut jitter);
            return PeRole::Victim { peer, class: classes.victims(), wanted };
        }
        let Some(pattern) = pattern.filter(|_| rank != self.target) else { return PeRole::Idle };
        let place = self.congestors.iter().position(|congestor| *congestor == rank);
        let place = place.unwrap_or_default();
        let does_incast = match pattern {
            ShmemPattern::Incast => true,
            ShmemPattern::Alltoall => false,
            ShmemPattern::Both => place % 2 == 0,
        };
        let targets = if does_incast {
            vec![self.target]
        } else {
            // From its own place on, so that not all begin with the same.
            let around = self.congestors.iter().cycle().skip(place + 1);
            around.take(self.congestors.len() - 1).copied().collect()
        };
        let (class, window) = (classes.congestors(), test.window);
        PeRole::Congestor { targets, class, window, bytes: test.put.0 as u32 }
    }
}

/// Runs all phases of `test` on the machine of `venue`.
///
/// # Errors
/// One sentence: the fabric cannot carry it, or something was done twice or not at all.
pub(super) fn run(venue: &mut SimVenue, test: &ShmemSection) -> Result<Vec<ShmemPhase>> {
    let count = PhaseClasses::ALL.len() * (test.congestors.len() + 1);
    let remaining = RemainingTime::begin("phase", vec![1.0; count], None);
    let mut phases = Vec::new();
    for classes in PhaseClasses::ALL {
        let patterns = test.congestors.iter().copied().map(Some);
        for pattern in std::iter::once(None).chain(patterns) {
            let what = pattern.map_or("no congestors", ShmemPattern::name);
            detail!("{}: {what}", classes.name());
            remaining.part(format!("{}: {what}", classes.name()));
            phases.push(phase(venue, test, classes, pattern)?);
        }
    }
    Ok(phases)
}

fn phase(
    venue: &mut SimVenue,
    test: &ShmemSection,
    classes: PhaseClasses,
    pattern: Option<ShmemPattern>,
) -> Result<ShmemPhase> {
    let started = std::time::Instant::now();
    let (machine, key) = (venue.machine()?, venue.key());
    if !machine.spec.holds_back() {
        bail!("{} drops messages; a fabric with credits or pause frames works", machine.spec.name);
    }
    let pes = machine.hosts.len() as u32;
    let draw = PeDraw::new(pes, test.victims_percent, key);
    let begin = LocalNs(test.warm_up.0.0);
    let measured = [begin, begin + test.measured.0];
    let carrier = machine.carrier(key, FabricOptions::default());
    let mut world = machine.world(carrier, ContentModel::Real, key, |wire| {
        let role = draw.role(wire.rank(), test, classes, pattern, key);
        let rank = wire.rank();
        engine(wire, [rank.0, pes], test.put, role, measured).expect("a lossless fabric carries it")
    });
    let heaps: Vec<Rc<RefCell<PeHeap>>> = (0..pes).map(|_| Rc::default()).collect();
    for (rank, heap) in (0..).map(Rank).zip(&heaps) {
        world.set_applier(rank, Box::new(SharedHeap(heap.clone())));
    }
    let whole = test.warm_up.0 + test.measured.0;
    for stretch in stretches(Picos::ZERO, Picos::from(whole)) {
        world.run_until(stretch, &mut |_| ());
        reached(stretch.0, Picos::from(whole).0);
    }
    let (mut seen, mut added) = (ShmemPhase::new(classes, pattern), 0);
    for rank in (0..pes).map(Rank) {
        let engine = world.engine_mut(rank).context("a PE is down")?;
        let record =
            engine.finish(LocalNs(whole.0)).map_err(|why| anyhow!("PE {}: {why}", rank.0))?;
        seen.latency.iter_mut().zip(&record.latency).for_each(|(all, own)| all.merge(own));
        seen.bulk_bytes += record.bulk_bytes;
        added += record.added;
    }
    let done: u64 = heaps.iter().map(|heap| heap.borrow().word(PeOperation::FetchAdd)).sum();
    if !(added..=added + u64::from(pes)).contains(&done) {
        bail!("{added} fetch-and-adds ended and {done} were done; this is a defect of the program");
    }
    venue.count(&world, whole, started);
    Ok(seen)
}

/// Returns the PE `me` of `pes` at the end of `wire`, which keeps `window` puts of `put` bytes to all
/// others in turn under way until `until`; nothing where the wire is none for it.
pub(crate) fn putter(
    wire: &mut SimWire,
    [me, pes]: [u32; 2],
    put: Bytes,
    (class, window): (Class, u32),
    until: LocalNs,
) -> Option<PeEngine> {
    // From its own place on, so that not all begin with the same.
    let targets = (1..pes).map(|step| Rank((me + step) % pes)).collect();
    let role = PeRole::Congestor { targets, class, window, bytes: put.0 as u32 };
    engine(wire, [me, pes], put, role, [LocalNs(0), until])
}

/// Returns the PE `me` of `pes` at the end of `wire`; nothing where the wire is none for it.
fn engine(
    wire: &mut SimWire,
    [me, pes]: [u32; 2],
    put: Bytes,
    role: PeRole,
    measured: [LocalNs; 2],
) -> Option<PeEngine> {
    let mut limits = QueueLimits::new(pes, wire.capabilities()).ok()?;
    limits.answer = ANSWER;
    let answers = wire.register(limits.answer_memory(pes)).ok()?;
    let batch = wire.register(Bytes(u64::from(BATCH))).ok()?;
    let [source, target] = [wire.register(put).ok()?, wire.register(put).ok()?];
    let segments = [Some(target), None, None, None];
    let capabilities = wire.capabilities().clone();
    let config = QueueConfig::new(Rank(me), pes, &capabilities, answers, segments).ok()?;
    let memory = PeMemory {
        batch: Span { region: batch, offset: 0, length: BATCH },
        source: Span { region: source, offset: 0, length: put.0 as u32 },
        target,
    };
    let node = QueueNode::new(QueueConfig { limits, ..config });
    Some(PeEngine::new(node, limits, memory, role, measured))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn new__victims_are_pairs_and_the_others_congestors() {
        for (pes, percent) in [(8, 1), (9, 50), (640, 25), (10, 99)] {
            let draw = PeDraw::new(pes, percent, RandomKey::new(3));
            let all: BTreeSet<Rank> =
                draw.victims.iter().chain(&draw.congestors).copied().collect();
            assert_eq!(all.len(), pes as usize);
            assert!(draw.victims.len() >= 2 && draw.victims.len().is_multiple_of(2));
            assert!(draw.congestors.contains(&draw.target));
        }
    }

    #[test]
    fn role__schedules_are_the_same_in_all_phases() {
        let (test, key) = (ShmemSection::default(), RandomKey::new(3));
        let draw = PeDraw::new(64, 25, key);
        let role = |classes, pattern| draw.role(draw.victims[1], &test, classes, pattern, key);
        let alone = role(PhaseClasses::One, None);
        let loaded = role(PhaseClasses::Several, Some(ShmemPattern::Both));
        let PeRole::Victim { peer, class, wanted } = alone else { panic!("{alone:?}") };
        assert_eq!((peer, class), (draw.victims[0], Class::BestEffort));
        assert_eq!(wanted.len(), 25);
        let PeRole::Victim { peer, class, wanted: also } = loaded else { panic!("{loaded:?}") };
        assert_eq!((peer, class, also), (draw.victims[0], Class::LowLatency, wanted));
        let idle = draw.role(draw.congestors[1], &test, PhaseClasses::One, None, key);
        assert!(matches!(idle, PeRole::Idle));
    }
}
