//! Rank processes under one conductor, wherever they run: what each shall do, and what they saw of it.
//!
//! # Invariants
//! I1. A phase or a test is over when every rank that was told of it has answered for it, and for no other.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use clearway_proto::base::{Bytes, LocalNs, Nanos, Rank};
use clearway_proto::congestion::Phase;
use clearway_proto::gpcnet;
use clearway_runtime::clock;

use super::{Backdrop, Interrupt, Plan, Sighting};
use crate::mechanism::{broadcast, timeslice};
use crate::run::fleet::{Fleet, Word};
use crate::run::message::{FromRank, RankRecord, Ready, Seen, ToRank, Waited};

/// Time between telling the ranks and the phase's beginning: orders to 16 ranks take about 1 ms on an idle machine, to a
/// thousand some 50 ms; on a busy one each rank may wait some scheduler slices.
pub(crate) const LEAD: Nanos = Nanos::from_millis(250);
/// The longest frame where nobody raised it (IEEE 802.3: 1500 bytes and a header of 14).
pub(crate) const FRAME_MAX: Bytes = Bytes(1514);
/// How often a wait looks for the user's interrupt.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What a phase may take beyond its length before its ranks count as stuck.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a rank that answers for something else is.
const ANSWER: &str = "a rank answered for another phase; this is a defect of the program";

/// The ranks of a run.
pub(crate) struct Ranks {
    fleet: Fleet,
    interrupt: Interrupt,
    phases: u32,
    /// What each rank said last of messages that were none of its own.
    losses: BTreeMap<Rank, Losses>,
}

/// How long a rank waited in a phase that began at `local` of its clock and `begin` of this process's, by the latter.
fn waits(answer: &RankRecord, local: LocalNs, begin: LocalNs) -> impl Iterator<Item = Waited> {
    let of_phase = answer.waits.iter().filter(move |wait| wait.at > local);
    of_phase.map(move |wait| Waited { at: begin + wait.at.since(local), ..*wait })
}

/// Messages that reached a rank and did not count, since its wire opened.
#[derive(Clone, Copy, Default)]
struct Losses {
    /// Dropped at its socket.
    overflow: u64,
    /// Not of this run.
    strangers: u64,
}

impl Losses {
    fn of(answer: &RankRecord) -> Self {
        Self { overflow: answer.receive_overflow, strangers: answer.strangers }
    }
}

impl Ranks {
    pub(crate) fn new(fleet: Fleet, interrupt: Interrupt) -> Self {
        Self { fleet, interrupt, phases: 0, losses: BTreeMap::new() }
    }

    /// The names of the hosts, by rank.
    pub(crate) fn hosts(&self) -> Vec<String> {
        self.fleet.hosts()
    }

    /// What they talk over, for a person, by name.
    pub(crate) fn wires(&self) -> &BTreeMap<String, String> {
        self.fleet.wires()
    }

    /// What all their wires can do.
    pub(crate) fn wire(&self) -> &Ready {
        self.fleet.facts()
    }

    /// An error when the user wants an end.
    pub(crate) fn check(&self) -> Result<()> {
        self.interrupt.check()
    }

    /// Runs `plan` from `begin` on, of this process's clock; `local` says when that is by the clock of a rank.
    pub(crate) fn phase(
        &mut self,
        plan: &Plan<'_>,
        begin: LocalNs,
        mut local: impl FnMut(&mut Fleet, Rank) -> Result<LocalNs>,
    ) -> Result<Sighting> {
        self.check()?;
        self.phases += 1;
        let overhead = Bytes(self.fleet.facts().overhead);
        let mut begins = Vec::new();
        for rank in self.fleet.ranks() {
            let local = local(&mut self.fleet, rank)?;
            self.fleet.tell(rank, &ToRank::Phase(plan.orders(rank, self.phases, local, overhead)))?;
            begins.push(local);
        }
        let length = begin.since(clock::now()) + plan.windows.length() + plan.windows.grid.drain;
        let all: Vec<Rank> = self.fleet.ranks().collect();
        let answers = self.answers(&all, Duration::from_nanos(length.0) + PATIENCE, &mut |now| match plan
            .beside
            .filter(|_| now >= begin)
        {
            Some(beside) => beside.borrow_mut().step(now.since(begin)),
            None => Ok(()),
        })?;
        let number = self.phases;
        let waits = answers.iter().zip(begins).flat_map(|(answer, local)| waits(answer, local, begin)).collect();
        let record = |seen| if let Seen::Phase(record) = seen { Some(record) } else { None };
        let records = answers.into_iter().map(|it| record(it.seen).filter(|record| record.number == number));
        let records = records.collect::<Option<Vec<_>>>().context(ANSWER)?;
        Ok(Sighting { records, waits, begin, number })
    }

    /// Runs one of GPCNeT's tests, which is stuck when it takes longer than `patience`: the record of each rank with a task, and how
    /// long it waited for a processor since its record before.
    pub(crate) fn test(
        &mut self,
        tasks: &BTreeMap<Rank, gpcnet::Task>,
        patience: Duration,
    ) -> Result<BTreeMap<Rank, (gpcnet::Record, Vec<Waited>)>> {
        self.check()?;
        for (rank, task) in tasks {
            self.fleet.tell(*rank, &ToRank::Test(Box::new(task.clone())))?;
        }
        let ranks: Vec<Rank> = tasks.keys().copied().collect();
        let answers = self.answers(&ranks, patience, &mut |_| Ok(()))?;
        let record = |(rank, answer): (Rank, RankRecord)| match answer.seen {
            Seen::Test(record) if Some(record.number) == tasks.get(&rank).map(|task| task.number) => {
                Some((rank, (record, answer.waits)))
            }
            _ => None,
        };
        ranks.into_iter().zip(answers).map(record).collect::<Option<_>>().context(ANSWER)
    }

    /// Asks `rank` something of timeslice building, if it is there.
    pub(crate) fn ask(&mut self, rank: Rank, asked: timeslice::Asked) -> Result<()> {
        self.fleet.try_to_tell(rank, &ToRank::Timeslice(asked))
    }

    /// Asks `rank` something of broadcasts, if it is there.
    pub(crate) fn ask_of_broadcast(&mut self, rank: Rank, asked: broadcast::Asked) -> Result<()> {
        self.fleet.try_to_tell(rank, &ToRank::Broadcast(asked))
    }

    /// The next that a rank says of it, if one does so within `patience`; or how it ended, once.
    pub(crate) fn hear(&mut self, patience: Duration) -> Result<Option<(Rank, Result<timeslice::Said, String>)>> {
        self.hear_as(patience, |message| if let FromRank::Timeslice(said) = message { Some(said) } else { None })
    }

    /// The same of broadcasts.
    pub(crate) fn hear_of_broadcast(
        &mut self,
        patience: Duration,
    ) -> Result<Option<(Rank, Result<broadcast::Said, String>)>> {
        self.hear_as(patience, |message| if let FromRank::Broadcast(said) = message { Some(said) } else { None })
    }

    fn hear_as<S>(
        &mut self,
        patience: Duration,
        of: impl Fn(FromRank) -> Option<S>,
    ) -> Result<Option<(Rank, Result<S, String>)>> {
        let interrupt = &self.interrupt;
        match self.fleet.hear_or_miss(patience, &mut || interrupt.check())? {
            Some((rank, Word::Said(message))) => Ok(Some((rank, Ok(of(message).context(ANSWER)?)))),
            Some((rank, Word::Gone(how))) => Ok(Some((rank, Err(how)))),
            None => Ok(None),
        }
    }

    /// Ends them, and goes on with others that `gather` brings, which hears of the user's interrupt.
    pub(crate) fn replace(&mut self, gather: impl FnOnce(&Interrupt) -> Result<Fleet>) -> Result<()> {
        self.fleet.end();
        self.fleet = gather(&self.interrupt)?;
        Ok(())
    }

    /// Ends those that are processes of this one.
    pub(crate) fn end(&mut self) {
        self.fleet.end();
    }

    /// A rank for a person.
    pub(crate) fn name(&self, rank: Rank) -> String {
        self.fleet.name(rank)
    }

    /// The name of its host.
    pub(crate) fn host(&self, rank: Rank) -> &str {
        self.fleet.host(rank)
    }

    /// What `ranks` answer; `watch` is called some twenty times a second.
    fn answers(
        &mut self,
        ranks: &[Rank],
        patience: Duration,
        watch: &mut dyn FnMut(LocalNs) -> Result<()>,
    ) -> Result<Vec<RankRecord>> {
        let interrupt = &self.interrupt;
        let answers = self.fleet.records(ranks, patience, &mut || {
            watch(clock::now())?;
            interrupt.check()
        })?;
        self.losses.extend(ranks.iter().copied().zip(answers.iter().map(Losses::of)));
        Ok(answers)
    }

    /// Does `work` before `backdrop`, which begins at `begin` as a phase does. It is ended by the next phase, which is empty.
    pub(crate) fn before(
        &mut self,
        backdrop: &Backdrop<'_>,
        begin: LocalNs,
        mut local: impl FnMut(&mut Fleet, Rank) -> Result<LocalNs>,
        work: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Sighting> {
        self.check()?;
        let [loaded, empty] = [self.phases + 1, self.phases + 2];
        self.phases = empty;
        let overhead = Bytes(self.fleet.facts().overhead);
        let all: Vec<Rank> = self.fleet.ranks().collect();
        for rank in &all {
            let local = local(&mut self.fleet, *rank)?;
            self.fleet.tell(*rank, &ToRank::Phase(backdrop.orders(*rank, loaded, local, overhead)))?;
        }
        while clock::now() < begin + backdrop.ramp {
            self.check()?;
            thread::sleep(LOOK_EVERY);
        }
        work()?;
        for rank in &all {
            let phase = Phase {
                length: Nanos::ZERO,
                drain: Nanos::ZERO,
                loads: Vec::new(),
                // Long ago: it is over when it begins.
                ..backdrop.orders(*rank, empty, LocalNs(0), overhead)
            };
            self.fleet.tell(*rank, &ToRank::Phase(phase))?;
        }
        let interrupt = &self.interrupt;
        let mut records = Vec::new();
        let take = &mut |answer: RankRecord| match answer.seen {
            Seen::Phase(ref record) if record.number == empty => Some(answer),
            Seen::Phase(record) => {
                records.push(record);
                None
            }
            Seen::Test(_) => None,
        };
        let answers = self.fleet.records_that(&all, PATIENCE, &mut || interrupt.check(), take)?;
        self.losses.extend(all.into_iter().zip(answers.iter().map(Losses::of)));
        Ok(Sighting { records, waits: Vec::new(), begin, number: loaded })
    }

    /// What reached the ranks and was not theirs, or was lost in them, a sentence each.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let total = |count: fn(&Losses) -> u64| self.losses.values().map(count).sum::<u64>();
        let (strangers, lost) = (total(|losses| losses.strangers), total(|losses| losses.overflow));
        let mut warnings = Vec::new();
        if strangers > 0 {
            warnings
                .push(format!("{strangers} datagrams that were not of this run arrived at its ranks and were ignored"));
        }
        if lost > 0 {
            warnings.push(format!("{lost} messages were lost in receivers' own socket buffers, not in the network"));
        }
        warnings
    }
}
