//! A rank number that one process has after the other, while messages of the one before are still
//! under way.

use super::*;

/// The rank that stays, and the one that several processes have.
const SERVER: u32 = 0;
const SEAT: u32 = 1;

/// The origin of a message: the visit in which it was sent, and its number among those of its
/// sender.
type Name = (u8, u8);

/// What one end got and what ended there, in order.
#[derive(Default)]
struct EndObservation {
    messages: Vec<Name>,
    ended: Vec<(Name, Status)>,
}

struct Visits {
    job: ReliableJob,
    config: MemoryConfig,
    random: RandomStream,
    seen: [EndObservation; 2],
}

impl Visits {
    fn new(seed: u64) -> Self {
        let config = fault_injection(2, seed);
        let random = RandomKey::new(seed).purpose("reuse of a rank").stream();
        Self {
            job: ReliableJob::new(config, &StreamConfig::new(2)),
            config,
            random,
            seen: Default::default(),
        }
    }

    /// Replaces the process in the seat: another one gets the number, and all who knew the one
    /// before forget it.
    fn next(&mut self, visit: u8) {
        let wire = ReliableWire::new(
            self.job.fabric.take(Rank(SEAT)),
            self.config.ranks,
            &StreamConfig::new(2),
            visit.into(),
        );
        self.job.wires[SEAT as usize] = wire.expect("the memory wire has all that is needed");
        self.job.wire(SERVER).forget(Rank(SEAT), visit.into());
        self.job.wire(SEAT).forget(Rank(SERVER), visit.into());
        self.seen = Default::default();
    }

    /// Sends `count` messages of this visit from both.
    fn send(&mut self, visit: u8, count: u8) {
        let bodies = [SERVER, SEAT].map(|rank| self.job.memory(rank, &[visit; 4_000]));
        for number in 0..count {
            for (from, to) in [(SERVER, SEAT), (SEAT, SERVER)] {
                let length = self.random.below(4_000) as u32;
                let body = Span { region: bodies[from as usize], offset: 0, length };
                let token = Token(u64::from(visit) << 8 | u64::from(number));
                let answer =
                    self.job.send(from, to, Class::Bulk, &[visit, number], body, Some(token));
                assert_eq!(answer, PostOutcome::Posted);
            }
        }
    }

    /// Lets time pass, by `steps` of what happens next.
    fn run(&mut self, steps: u64) {
        for _ in 0..steps {
            self.job.pass(Nanos::from_micros(50));
            for rank in [SERVER, SEAT] {
                let seen = &mut self.seen[rank as usize];
                self.job.wire(rank).poll(64, &mut |arrival| match arrival {
                    Arrival::Datagram(message) => {
                        seen.messages.push((message.head[0], message.head[1]))
                    }
                    Arrival::Done { token, status, .. } => {
                        seen.ended.push((((token.0 >> 8) as u8, token.0 as u8), status));
                    }
                    _ => {}
                });
            }
        }
    }

    fn is_over(&self, count: u8) -> bool {
        self.seen.iter().all(|seen| {
            seen.ended.len() >= usize::from(count) && seen.messages.len() >= usize::from(count)
        })
    }
}

/// The last process in the seat and the server get all of each other's messages, once and in order,
/// and nothing of earlier visits.
fn trial(seed: u64) {
    const VISITS: u8 = 4;
    let mut visits = Visits::new(seed);
    for visit in 1..VISITS {
        let (count, steps) = (visits.random.below(30) as u8, visits.random.below(200));
        visits.next(visit);
        visits.send(visit, count);
        visits.run(steps);
        let of_others = visits
            .seen
            .iter()
            .flat_map(|seen| &seen.messages)
            .filter(|(of, _)| *of != visit)
            .count();
        assert_eq!(of_others, 0, "seed {seed}, visit {visit}");
    }
    let count = 40;
    visits.next(VISITS);
    visits.send(VISITS, count);
    let wanted: Vec<Name> = (0..count).map(|number| (VISITS, number)).collect();
    for _ in 0..10_000 {
        if visits.is_over(count) {
            break;
        }
        visits.run(20);
    }
    // Late copies of earlier visits are still under way.
    visits.run(500);
    for (rank, seen) in visits.seen.iter().enumerate() {
        assert_eq!(seen.messages, wanted, "seed {seed}, messages at rank {rank}");
        let ended: BTreeMap<Name, Status> =
            seen.ended.iter().filter(|((of, _), _)| *of == VISITS).copied().collect();
        assert!(
            ended.len() == wanted.len() && ended.values().all(|status| *status == Status::Complete),
            "seed {seed}"
        );
        assert!(
            seen.ended.iter().all(|((of, _), status)| *of == VISITS || *status == Status::Flushed),
            "seed {seed}"
        );
    }
}

#[test]
fn forget__a_newcomer_in_an_old_place_gets_and_ends_its_own_messages_only() {
    let seeds = if cfg!(debug_assertions) { 60 } else { 3_000 };
    (0..seeds).for_each(trial);
}
