//! Engines that run one task at a time and leave a record of it: the rank's side, and what the
//! coordinator keeps of all records.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::fd::AsFd;

use anyhow::Result;
use clearway_proto::base::{LocalNs, Nanos, Rank};
use clearway_proto::wire::{Driver, Engine, Wire};
use clearway_runtime::noise::{ProcessorWait, WaitSampler};
use clearway_runtime::{clock, progress};
use serde::{Deserialize, Serialize};

use super::exit::Exit;
use super::rank_process::{Incoming, RankContext, Requests};
use super::session::Protocol;

/// An engine whose commands are tasks.
pub(crate) trait TaskEngine: Engine {
    /// What it leaves of a task.
    type Record;

    /// Gets from the wire what the last command needs, before it needs it.
    fn prepare(&mut self, _wire: &mut dyn Wire) -> Result<()> {
        Ok(())
    }

    /// Does what `event` asks for.
    fn handle(event: Self::Event) -> TaskStatus;

    /// Returns the record of the earliest task that is over, once.
    fn take_record(&mut self) -> Option<Self::Record>;
}

/// What an event means for the rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskStatus {
    /// The task goes on.
    GoOn,
    /// A record waits.
    Over,
}

/// What one rank recorded of a task, and what happened to it meanwhile.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RankRecord<R> {
    pub(crate) record: R,
    /// Messages that reached this rank's socket and were dropped there, since it opened.
    pub(crate) receive_overflow: u64,
    /// Datagrams that were not of this job, since it opened.
    pub(crate) strangers: u64,
    /// How long it waited for a processor since the record before, by its own clock.
    pub(crate) waits: Vec<RankWait>,
}

/// How long a rank was ready to run and had no processor, in one stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RankWait {
    /// When the stretch ended.
    pub(crate) at: LocalNs,
    /// How long it was.
    pub(crate) length: Nanos,
    /// What part of it the rank waited.
    pub(crate) waited: Nanos,
}

impl From<ProcessorWait> for RankWait {
    fn from(ProcessorWait { at, length, waited }: ProcessorWait) -> Self {
        Self { at, length, waited }
    }
}

impl RankWait {
    /// Returns the share of the stretch, in hundredths. A wait is reported when it is over, so what
    /// began before the stretch may be in it.
    pub(crate) fn percent(self) -> f64 {
        (self.waited.0 as f64 * 100.0 / (self.length.0 as f64).max(1.0)).min(100.0)
    }
}

/// Messages that reached the ranks and did not count, since their wires opened.
#[derive(Debug, Default)]
pub(crate) struct LossCounts {
    /// Dropped at its socket, and not of this run, by rank: counts of the last record.
    counts: BTreeMap<Rank, [u64; 2]>,
}

impl LossCounts {
    /// Takes the counts of a record of `rank`.
    pub(crate) fn count<R>(&mut self, rank: Rank, record: &RankRecord<R>) {
        self.counts.insert(rank, [record.receive_overflow, record.strangers]);
    }

    /// Returns a sentence for each kind that there was.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let [lost, strangers] = self.counts.values().fold([0, 0], |[a, b], [c, d]| [a + c, b + d]);
        let mut warnings = Vec::new();
        if strangers > 0 {
            warnings
                .push(format!("{strangers} datagrams that were not of this run arrived at its ranks and were ignored"));
        }
        if lost > 0 {
            warnings.push(format!(
                "{lost} messages were lost in receivers' own socket buffers, not in the network"
            ));
        }
        warnings
    }
}

/// Runs tasks with the engine that `make` gives, until the coordinator is done.
///
/// # Errors
/// The engine cannot be made, or cannot get what a task needs; or the coordinator is gone.
pub(crate) fn serve<P, E>(
    end: RankContext,
    make: impl FnOnce(&mut dyn Wire, u64) -> Result<E>,
) -> Result<Exit>
where
    E: TaskEngine,
    P: Protocol<Request = E::Command, Response = RankRecord<E::Record>>,
{
    let mut end = end;
    let node = make(&mut *end.wire, end.seed)?;
    let (mut wire, requests) = end.begin::<P>()?;
    let input = requests.source().try_clone_to_owned()?;
    let mut driver = Driver::boot(node, clock::now(), 0);
    let noise = WaitSampler::new(clock::now());
    let mut host = TaskHost {
        requests,
        over: false,
        is_dismissed: false,
        noise,
        waits: Vec::new(),
        has_task: false,
        refused: None,
    };
    loop {
        progress::run(&mut driver, &mut *wire, &[input.as_fd()], &mut host);
        if let Some(why) = host.refused.take() {
            return Err(why);
        }
        let Some(first) = driver.engine_mut().take_record() else { return Ok(host.end()) };
        host.over = false;
        let counters = wire.counters();
        let (receive_overflow, strangers) = (counters.receive_overflow, counters.strangers);
        // A task that the next one ended may be over in the same instant as that one.
        for record in
            std::iter::once(first).chain(std::iter::from_fn(|| driver.engine_mut().take_record()))
        {
            let waits = std::mem::take(&mut host.waits);
            if host
                .requests
                .respond(RankRecord { record, receive_overflow, strangers, waits })
                .is_err()
            {
                return Ok(host.end());
            }
        }
    }
}

/// The rank's side of the progress loop.
struct TaskHost<P> {
    requests: Requests<P>,
    /// The loop ends: a record waits, or standard input closed.
    over: bool,
    /// The coordinator said that the run is over.
    is_dismissed: bool,
    noise: WaitSampler,
    /// Waits since the last record.
    waits: Vec<RankWait>,
    /// The engine was given a task that the wire may have to be prepared for; and why it could not
    /// be.
    has_task: bool,
    refused: Option<anyhow::Error>,
}

impl<P> TaskHost<P> {
    /// Returns how this process ends: well, if it was asked to.
    fn end(&self) -> Exit {
        if self.is_dismissed { Exit::Good } else { Exit::Failed }
    }
}

impl<P, E> progress::EngineHost<E> for TaskHost<P>
where
    E: TaskEngine,
    P: Protocol<Request = E::Command>,
{
    fn event(&mut self, event: E::Event) {
        self.over |= E::handle(event) == TaskStatus::Over;
    }

    fn control(&mut self, _which: usize, now: LocalNs, driver: &mut Driver<E>) {
        // A coordinator that is gone, or says what is none of its requests, is one no longer.
        let Some(incoming) = self.requests.waiting() else {
            self.over = true;
            return;
        };
        for incoming in incoming {
            match incoming {
                Incoming::Leave => (self.over, self.is_dismissed) = (true, true),
                Incoming::Request(task) => {
                    driver.command(now, task);
                    self.has_task = true;
                }
            }
        }
    }

    fn after_step(
        &mut self,
        now: LocalNs,
        driver: &mut Driver<E>,
        wire: &mut dyn Wire,
    ) -> ControlFlow<(), Option<LocalNs>> {
        if std::mem::take(&mut self.has_task) {
            self.refused = driver.engine_mut().prepare(wire).err();
            self.over |= self.refused.is_some();
        }
        self.waits.extend(self.noise.sample(now).map(RankWait::from));
        if self.over { ControlFlow::Break(()) } else { ControlFlow::Continue(None) }
    }
}
