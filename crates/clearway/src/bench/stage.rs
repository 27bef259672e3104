//! Where a run takes place: the lab, its ranks, the clock of the machine's noise, and the user's wish to stop.
//!
//! # Invariants
//! I1. An interrupt is noticed within a tenth of a second and ends everything in order.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clearway_lab::{Lab, LabName, QueueKind, SelfTest};
use clearway_proto::base::{Bytes, LocalNs, Nanos, RandomKey, Rank};
use clearway_proto::congestion::{LoadTask, Phase, PhaseRecord, VictimTask};
use clearway_runtime::clock;
use clearway_runtime::noise::{NoiseSample, NoiseSampler};

use super::fleet::Fleet;
use super::message::{RankRecord, ToRank};
use super::windows::{SLICE, Windows};
use crate::scenario::Scenario;

/// The user pressed Ctrl-C, or the system asked this process to end.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted; the lab is gone and no report was written")
    }
}

impl std::error::Error for Interrupted {}

/// Time between telling the ranks and the phase's beginning: orders to 16 ranks take about 1 ms on an idle machine; on a busy
/// one each rank may wait some scheduler slices.
const LEAD: Nanos = Nanos::from_millis(250);
/// How long ranks listen for stragglers: several full queues of 100 packets at 25 Mb/s.
const DRAIN: Nanos = Nanos::from_millis(250);
/// What a phase may take beyond its length before its ranks count as stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// A phase as all ranks saw it.
pub(super) struct Sighting {
    /// By rank.
    pub(super) records: Vec<PhaseRecord>,
    /// The machine's noise during the phase.
    pub(super) noise: Vec<NoiseSample>,
    /// When the phase began.
    pub(super) begin: LocalNs,
}

/// The place of a run.
pub(super) struct Stage {
    lab: Lab,
    fleet: Fleet,
    interrupted: Arc<AtomicBool>,
    phases: u32,
    /// Time that the lab took to come up.
    pub(super) up: Duration,
    /// Self-tests, one for each queue that was armed.
    pub(super) self_tests: Vec<(QueueKind, SelfTest)>,
    /// Messages that arrived at a rank's socket and were dropped there, so far.
    pub(super) receive_overflow: u64,
    /// Datagrams that arrived at a rank and were not of this run, so far.
    pub(super) strangers: u64,
}

impl Stage {
    /// Makes the lab of `scenario` and starts its ranks.
    pub(super) fn open(scenario: &Scenario) -> Result<Self> {
        clearway_lab::permission::acquire()?;
        let interrupted = Arc::new(AtomicBool::new(false));
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, interrupted.clone()).context("cannot listen for signals")?;
        }
        let name: LabName = format!("run-{}", std::process::id()).parse()?;
        let started = Instant::now();
        let lab = Lab::up(&name, &scenario.lab(QueueKind::Fifo))?;
        let up = started.elapsed();
        // Runs of one machine never meet, but a number of their own costs nothing.
        let session = RandomKey::new(scenario.seed).node(u64::from(std::process::id())).stream().next_u64();
        let fleet = Fleet::start(&lab, session, scenario.seed, &mut || check(&interrupted))?;
        let (phases, self_tests, receive_overflow, strangers) = (0, Vec::new(), 0, 0);
        Ok(Self { lab, fleet, interrupted, phases, up, self_tests, receive_overflow, strangers })
    }

    /// The lab.
    pub(super) fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Bytes that wire and network add to each message.
    pub(super) fn overhead(&self) -> Bytes {
        Bytes(self.fleet.facts().overhead)
    }

    /// Puts `queue` on every port and proves with packets that it is there.
    pub(super) fn arm(&mut self, queue: QueueKind) -> Result<()> {
        self.lab.rearm(queue)?;
        check(&self.interrupted)?;
        let test = self.lab.self_test()?;
        if let Some(wrong) = test.failed().next() {
            let check = wrong.checks.iter().find(|check| check.outcome == clearway_lab::Outcome::Fail);
            let what = check.map_or("its queue", |check| check.name);
            bail!("port {} of the lab does not keep {what} of a {queue} queue, so nothing was measured", wrong.port);
        }
        self.self_tests.push((queue, test));
        // Counters and queues begin empty after the test's own packets.
        self.lab.rearm(queue)?;
        Ok(())
    }

    /// Runs one phase: `victim` and `loads` say what each rank does.
    pub(super) fn phase(
        &mut self,
        windows: &Windows,
        victim: impl Fn(Rank) -> Option<VictimTask>,
        loads: impl Fn(Rank) -> Vec<LoadTask>,
    ) -> Result<Sighting> {
        check(&self.interrupted)?;
        self.phases += 1;
        let begin = clock::now() + LEAD;
        for host in 0..self.lab.hosts().len() as u32 {
            let rank = Rank(host);
            let phase = Phase {
                number: self.phases,
                begin,
                length: windows.length(),
                drain: DRAIN,
                slice: SLICE,
                overhead: self.overhead(),
                victim: victim(rank),
                loads: loads(rank),
            };
            self.fleet.tell(rank, &ToRank::Phase(phase))?;
        }
        let mut noise = Vec::new();
        let mut sampler = NoiseSampler::new(clock::now());
        let interrupted = self.interrupted.clone();
        let patience = Duration::from_nanos((windows.length() + LEAD + DRAIN).0) + PATIENCE;
        let answers = self.fleet.records(patience, &mut || {
            noise.extend(sampler.sample(clock::now()));
            check(&interrupted)
        })?;
        self.sighting(answers, noise, begin)
    }

    fn sighting(&mut self, answers: Vec<RankRecord>, noise: Vec<NoiseSample>, begin: LocalNs) -> Result<Sighting> {
        self.receive_overflow = answers.iter().map(|answer| answer.receive_overflow).sum();
        self.strangers = answers.iter().map(|answer| answer.strangers).sum();
        let records: Vec<PhaseRecord> = answers.into_iter().map(|answer| answer.record).collect();
        if records.iter().any(|record| record.number != self.phases) {
            return Err(anyhow!("a rank answered for another phase; this is a defect of the program"));
        }
        Ok(Sighting { records, noise, begin })
    }
}

fn check(interrupted: &AtomicBool) -> Result<()> {
    if interrupted.load(Ordering::Relaxed) { Err(Interrupted.into()) } else { Ok(()) }
}
