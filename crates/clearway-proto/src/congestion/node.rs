//! One rank of the congestion test: gives every input to the part that it concerns.
//!
//! # Invariants
//! I1. A frame of another phase changes nothing but the count of foreign arrivals.
//! I2. A phase that ended is recorded once, also one that the next phase ended:
//!     [`CongestionNode::take_record`].
//!
//! # Not here
//! What the parts do: `probe` (ping, get), `exchange` (bandwidth, alltoall), `timed` (barrier,
//! allreduce, allgather), `load` (congestors).

use alloc::collections::VecDeque;

use crate::base::{LocalNs, Nanos, Rank, Schedule};
use crate::wire::{Arrival, Datagram, Engine, Input, More, Out, Queue, Span, Status};

use super::context::{CongestionConfig, CongestionContext, CongestionEvent};
use super::exchange::RepeatedExchange;
use super::frame::{CongestionFrame, SegmentPosition};
use super::load::{ActiveLoad, ReceivedLoad};
use super::probe::Probe;
use super::record::{Metric, PhaseRecord};
use super::task::{Phase, VictimKind, VictimTask};
use super::timed::TimedCollective;

/// An iteration that takes longer than this is stuck: forty first time-outs of a transfer.
const STUCK: Nanos = Nanos::from_secs(1);

/// The congestion test's engine.
#[derive(Debug)]
pub struct CongestionNode {
    config: CongestionConfig,
    running: Option<RunningPhase>,
    finished: VecDeque<PhaseRecord>,
}

/// A phase under way.
#[derive(Debug)]
struct RunningPhase {
    phase: Phase,
    victim: Victim,
    loads: alloc::vec::Vec<ActiveLoad>,
    received: ReceivedLoad,
    record: PhaseRecord,
}

/// The victim's part, by pattern.
#[derive(Debug)]
enum Victim {
    None,
    Probe(Probe),
    Exchange(RepeatedExchange),
    Timed(TimedCollective),
}

impl CongestionNode {
    /// Creates a node without a phase.
    pub const fn new(config: CongestionConfig) -> Self {
        Self { config, running: None, finished: VecDeque::new() }
    }

    /// Returns the record of the earliest phase that ended and was not taken yet. Take all before
    /// the next command: nothing bounds them.
    pub fn take_record(&mut self) -> Option<PhaseRecord> {
        self.finished.pop_front()
    }

    /// Returns the victim's part in the phase under way.
    pub fn victim(&self) -> Option<&VictimTask> {
        self.running.as_ref()?.phase.victim.as_ref()
    }

    /// Gives this node memory, as long as [`VictimTask::memory`] says and with the contents of
    /// [`VictimTask::fill`]. A victim that needs more than there is never ends an iteration. Call
    /// it before the phase begins, or, when it began with the last command, before the next step.
    pub const fn give_memory(&mut self, memory: Span) {
        self.config.memory = Some(memory);
    }

    fn begin(&mut self, phase: Phase) {
        let timed = |schedule, task| {
            Victim::Timed(TimedCollective::new(schedule, task, &phase, &self.config))
        };
        let victim = match &phase.victim {
            None => Victim::None,
            Some(task) => match task.kind {
                VictimKind::Ping | VictimKind::Get => {
                    Victim::Probe(Probe::new(task, &phase, &self.config))
                }
                VictimKind::BandwidthSync | VictimKind::Alltoall => {
                    Victim::Exchange(RepeatedExchange::new(task, &phase, &self.config))
                }
                VictimKind::Barrier => timed(Schedule::Barrier, task),
                VictimKind::Allreduce => timed(Schedule::Allreduce, task),
                VictimKind::Allgather => timed(Schedule::Allgather, task),
            },
        };
        let loads = phase
            .loads
            .iter()
            .enumerate()
            .map(|(i, task)| ActiveLoad::new(i, task, &phase, &self.config))
            .collect();
        let record = PhaseRecord { number: phase.number, ..PhaseRecord::default() };
        self.running =
            Some(RunningPhase { phase, victim, loads, received: ReceivedLoad::default(), record });
    }

    fn tick(&mut self, now: LocalNs, out: &mut Out<CongestionEvent>) -> More {
        let Some(running) = &mut self.running else { return More::No };
        let (mut cx, victim, loads, _) = running.context(now, &self.config, out);
        let mut more = match victim {
            Victim::None => More::No,
            Victim::Probe(probe) => probe.tick(&mut cx),
            Victim::Exchange(exchange) => exchange.tick(&mut cx),
            Victim::Timed(timed) => timed.tick(&mut cx),
        };
        for load in loads {
            if load.tick(&mut cx) == More::Yes {
                more = More::Yes;
            }
        }
        if now >= running.over_at() {
            self.finish(out);
            return More::No;
        }
        more
    }

    fn finish(&mut self, out: &mut Out<CongestionEvent>) {
        if let Some(mut running) = self.running.take() {
            running.count_stuck(self.config.rank);
            running.record.load = running.received.into_series();
            out.notify(CongestionEvent::PhaseOver { number: running.record.number });
            self.finished.push_back(running.record);
        }
    }

    fn datagram(&mut self, now: LocalNs, datagram: &Datagram<'_>, out: &mut Out<CongestionEvent>) {
        let Some(running) = &mut self.running else { return };
        let Some((asked, phase, frame)) = CongestionFrame::parse(datagram.head) else {
            running.record.foreign += 1;
            return;
        };
        if phase != running.phase.number {
            running.record.foreign += 1;
            return;
        }
        running.record.count_mark(asked, datagram.class);
        let (mut cx, victim, loads, received) = running.context(now, &self.config, out);
        match (frame, victim) {
            (CongestionFrame::Bulk { message, part }, _) => {
                received.bulk(&mut cx, asked, datagram, frame);
                if part == SegmentPosition::LastUnacknowledged {
                    loads.iter_mut().for_each(|load| load.answered(datagram.from, message));
                }
            }
            (CongestionFrame::GetRequest { message, bytes }, _) => {
                received.answer_get(&mut cx, asked, datagram.from, message, bytes);
            }
            (CongestionFrame::BulkAck { message }, _) => {
                loads.iter_mut().for_each(|load| load.acknowledged(message))
            }
            (CongestionFrame::Probe { .. }, Victim::Probe(probe)) => {
                probe.arrival(&mut cx, datagram, frame)
            }
            (_, Victim::Exchange(exchange)) => exchange.arrival(&mut cx, datagram.from, frame),
            (_, Victim::Timed(timed)) => {
                timed.arrival(&mut cx, datagram.from, datagram.body, frame)
            }
            _ => cx.record.foreign += 1,
        }
    }

    fn arrival(&mut self, now: LocalNs, arrival: Arrival<'_>, out: &mut Out<CongestionEvent>) {
        match arrival {
            Arrival::Datagram(datagram) => self.datagram(now, &datagram, out),
            Arrival::Done { token, status, value, .. } => {
                let Some(running) = &mut self.running else { return };
                let (mut cx, victim, loads, _) = running.context(now, &self.config, out);
                if let Victim::Timed(timed) = victim {
                    timed.done(&mut cx, token, status, value);
                }
                loads.iter_mut().for_each(|load| match status {
                    Status::Complete => load.left(token),
                    _ => load.refused(token, cx.record),
                });
            }
            Arrival::Room { queue: Queue::Path { class, .. } } => {
                if let Some(running) = &mut self.running {
                    running.loads.iter_mut().for_each(|load| load.room(class));
                }
            }
            _ => {}
        }
    }
}

impl RunningPhase {
    /// Counts an iteration that began long before the end and is still not over as one that never
    /// ends. One that began shortly before says nothing: its partners may have stopped in time.
    fn count_stuck(&mut self, me: Rank) {
        let begun = match &self.victim {
            Victim::None | Victim::Probe(_) => None,
            Victim::Exchange(exchange) => exchange.begun(),
            Victim::Timed(timed) => timed.begun(),
        };
        let end = self.phase.begin + self.phase.length;
        if let Some(begun) = begun.filter(|begun| end.since(*begun) >= STUCK) {
            let slice = begun.since(self.phase.begin).steps_of(self.phase.slice);
            self.record.never(Metric::Iteration, me, u32::try_from(slice).unwrap_or(u32::MAX));
        }
    }

    fn over_at(&self) -> LocalNs {
        self.phase.begin + self.phase.length + self.phase.drain
    }

    /// Splits the parts so that one of them can act while the others lend their fields.
    fn context<'a>(
        &'a mut self,
        now: LocalNs,
        config: &'a CongestionConfig,
        out: &'a mut Out<CongestionEvent>,
    ) -> (CongestionContext<'a>, &'a mut Victim, &'a mut [ActiveLoad], &'a mut ReceivedLoad) {
        let cx =
            CongestionContext { now, phase: &self.phase, config, out, record: &mut self.record };
        (cx, &mut self.victim, &mut self.loads, &mut self.received)
    }
}

impl Engine for CongestionNode {
    /// A phase to run. One that is still under way is ended at once.
    type Command = Phase;
    type Event = CongestionEvent;

    fn input(
        &mut self,
        now: LocalNs,
        input: Input<'_, Phase>,
        out: &mut Out<CongestionEvent>,
    ) -> More {
        match input {
            Input::Boot { .. } => More::No,
            Input::Tick => self.tick(now, out),
            Input::Arrival(arrival) => {
                self.arrival(now, arrival, out);
                More::No
            }
            Input::Command(phase) => {
                self.finish(out);
                self.begin(phase);
                More::No
            }
        }
    }

    fn deadline(&self) -> Option<LocalNs> {
        let running = self.running.as_ref()?;
        let victim = match &running.victim {
            Victim::None => None,
            Victim::Probe(probe) => probe.deadline(),
            Victim::Exchange(exchange) => exchange.deadline(),
            Victim::Timed(timed) => timed.deadline(),
        };
        let loads = running.loads.iter().filter_map(ActiveLoad::deadline).min();
        [victim, loads].into_iter().flatten().chain([running.over_at()]).min()
    }
}
