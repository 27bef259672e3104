//! Runs the engine of one job among the ranks of several.
//!
//! # Model
//! The ranks of a world belong to several jobs, one after the other. An engine knows the ranks of its
//! own job only: its numbers are translated on the way in and out. The job begins and ends at fixed
//! times: before, there is no engine; afterwards its processes are gone.

use clearway_proto::base::{LocalNs, Rank};
use clearway_proto::wire::{
    Arrival, Datagram, Destination, Effect, Engine, Input, More, Operation, Out, TimedOperation,
};

/// Effects of the engine in one step that find room without growth.
const EFFECTS: usize = 256;

/// An engine of one rank of a job.
#[derive(Debug)]
pub(super) struct JobRank<E: Engine> {
    engine: E,
    out: Out<E::Event>,
    /// The world's number of the job's first rank.
    first: u32,
    /// When its processes start, and when they end.
    lifetime: [LocalNs; 2],
    is_booted: bool,
    /// The command that the engine gets at its start.
    begin: Option<E::Command>,
}

impl<E: Engine> JobRank<E> {
    /// Creates the engine of a job whose first rank is `first`, which lives from `lifetime[0]` until
    /// `lifetime[1]` and gets `begin` at its start.
    pub(super) fn new(
        engine: E,
        first: u32,
        lifetime: [LocalNs; 2],
        begin: Option<E::Command>,
    ) -> Self {
        let out = Out::with_limit(EFFECTS);
        Self { engine, out, first, lifetime, is_booted: false, begin }
    }

    /// Returns the engine, to be asked what it did.
    pub(super) const fn engine_mut(&mut self) -> &mut E {
        &mut self.engine
    }

    /// Gives what happened at this rank to the engine and writes what it wants into `out`; `hear` gets
    /// its events.
    pub(super) fn input<C, V>(
        &mut self,
        now: LocalNs,
        input: &Input<'_, C>,
        out: &mut Out<V>,
        hear: &mut dyn FnMut(E::Event),
    ) -> More {
        if now < self.lifetime[0] || now >= self.lifetime[1] {
            return More::No;
        }
        let mut more = More::No;
        if !self.is_booted {
            self.is_booted = true;
            let _ = self.step(now, Input::Boot { incarnation: 0 }, out, hear);
            if let Some(command) = self.begin.take() {
                let _ = self.step(now, Input::Command(command), out, hear);
            }
            more = More::Yes;
        }
        let step = match input {
            Input::Tick => self.step(now, Input::Tick, out, hear),
            Input::Arrival(arrival) => {
                let arrival = self.inbound(*arrival);
                self.step(now, Input::Arrival(arrival), out, hear)
            }
            Input::Boot { .. } | Input::Command(_) => More::No,
        };
        match (more, step) {
            (More::No, More::No) => More::No,
            _ => More::Yes,
        }
    }

    /// Returns when the engine wants to run.
    pub(super) fn deadline(&self) -> Option<LocalNs> {
        let deadline = if self.is_booted { self.engine.deadline() } else { Some(self.lifetime[0]) };
        deadline.filter(|at| *at < self.lifetime[1])
    }

    fn step<V>(
        &mut self,
        now: LocalNs,
        input: Input<'_, E::Command>,
        out: &mut Out<V>,
        hear: &mut dyn FnMut(E::Event),
    ) -> More {
        let more = self.engine.input(now, input, &mut self.out);
        let first = self.first;
        let (effects, heads) = self.out.split();
        for effect in effects {
            match effect {
                Effect::Notify(event) => hear(event),
                Effect::Operate(TimedOperation { mut operation, not_before }) => {
                    outbound(&mut operation, first);
                    match &mut operation {
                        Operation::Send { head, .. } => {
                            *head = out.head(head.bytes_in(heads).unwrap_or_default());
                        }
                        Operation::Store { bytes, .. } => {
                            *bytes = out.bytes(bytes.bytes_in(heads).unwrap_or_default());
                        }
                        _ => {}
                    }
                    match not_before {
                        Some(at) => out.operate_at(at, operation),
                        None => out.operate(operation),
                    }
                }
            }
        }
        self.out.clear();
        more
    }

    fn inbound<'a>(&self, arrival: Arrival<'a>) -> Arrival<'a> {
        // A rank of another job sends nothing to this one.
        let local = |rank: Rank| Rank(rank.0.wrapping_sub(self.first));
        match arrival {
            Arrival::Datagram(datagram) => {
                Arrival::Datagram(Datagram { from: local(datagram.from), ..datagram })
            }
            Arrival::Landed { from, into, immediate, at } => {
                Arrival::Landed { from: local(from), into, immediate, at }
            }
            other => other,
        }
    }
}

/// Replaces the rank of a job in `operation` by that of the world.
const fn outbound(operation: &mut Operation, first: u32) {
    match operation {
        Operation::Send { to: Destination::One(peer), .. }
        | Operation::Write { to: peer, .. }
        | Operation::Read { peer, .. }
        | Operation::Atomic { to: peer, .. }
        | Operation::Abandon { peer } => peer.0 += first,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use clearway_proto::base::Class;
    use clearway_proto::wire::memory::{MemoryConfig, MemoryFabric};
    use clearway_proto::wire::{Driver, Span};

    use super::*;

    /// Sends its own rank to the next of a job of two at its start, and reports who sent what.
    struct Greeter(Rank);

    impl Engine for Greeter {
        type Command = ();
        type Event = (Rank, u8);

        fn input(&mut self, _: LocalNs, input: Input<'_, ()>, out: &mut Out<(Rank, u8)>) -> More {
            match input {
                Input::Boot { .. } => {
                    let to = Destination::One(Rank(1 - self.0.0));
                    out.send(to, Class::Bulk, &[self.0.0 as u8], Span::EMPTY, None);
                }
                Input::Arrival(Arrival::Datagram(datagram)) => {
                    out.notify((datagram.from, datagram.head[0]));
                }
                _ => {}
            }
            More::No
        }

        fn deadline(&self) -> Option<LocalNs> {
            None
        }
    }

    /// A rank of the world, and what its engine reported.
    struct Member(JobRank<Greeter>, Vec<(Rank, u8)>);

    impl Engine for Member {
        type Command = ();
        type Event = ();

        fn input(&mut self, now: LocalNs, input: Input<'_, ()>, out: &mut Out<()>) -> More {
            let Self(rank, heard) = self;
            rank.input(now, &input, out, &mut |event| heard.push(event))
        }

        fn deadline(&self) -> Option<LocalNs> {
            self.0.deadline()
        }
    }

    #[test]
    fn input__jobs_know_their_own_ranks_and_live_in_their_time() {
        let mut fabric = MemoryFabric::new(MemoryConfig::lossless(4));
        let lifetime = [LocalNs(1_000), LocalNs(50_000)];
        let mut drivers = [0, 1, 2, 3].map(|rank| {
            let job = JobRank::new(Greeter(Rank(rank % 2)), rank / 2 * 2, lifetime, None);
            Driver::boot(Member(job, Vec::new()), LocalNs(0), 0)
        });
        let mut heard_before = 0;
        for step in 0..100 {
            let now = LocalNs(step * 1_000);
            fabric.advance(now);
            for (rank, driver) in (0..).map(Rank).zip(&mut drivers) {
                let _ = driver.step(fabric.wire(rank), &mut |()| ());
            }
            if now < lifetime[0] {
                heard_before += drivers.iter_mut().map(|it| it.engine_mut().1.len()).sum::<usize>();
            }
        }
        assert_eq!(heard_before, 0);
        for (rank, driver) in (0..4).zip(&mut drivers) {
            let peer = 1 - rank % 2;
            assert_eq!(driver.engine_mut().1, [(Rank(peer), peer as u8)], "rank {rank}");
            assert_eq!(driver.engine_mut().deadline(), None);
        }
    }
}
