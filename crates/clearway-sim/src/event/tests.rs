//! Both queues side by side: any interleaving of pushes and pops, then one order.

use clearway_proto::base::RandomKey;
use proptest::prelude::*;

use super::*;

/// A step of a test: what to do with both queues.
#[derive(Clone, Debug)]
enum QueueStep {
    /// Push at the last popped instant plus a delay.
    Push {
        delay: u64,
        key: u32,
        arg: u32,
    },
    /// Push at an instant of its own, perhaps one that has passed.
    PushAt {
        at: u64,
        key: u32,
    },
    Pop,
    Look,
    /// Pop everything up to a delay after the last popped instant.
    PopUntil {
        delay: u64,
    },
}

/// Delays as in a network: ties, serialisation and hops, timers, far future.
fn delay() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => Just(0u64),
        2 => 1u64..50,
        6 => 1_000u64..2_000_000,
        3 => Just(327_680u64),
        2 => 2_000_000u64..2_000_000_000,
        1 => Just(u64::MAX / 2),
        1 => any::<u64>(),
    ]
}

fn step() -> impl Strategy<Value = QueueStep> {
    prop_oneof![
        5 => (delay(), 0u32..4, 0u32..2).prop_map(|(delay, key, arg)| QueueStep::Push { delay, key, arg }),
        1 => (prop_oneof![0u64..100_000, any::<u64>()], any::<u32>()).prop_map(|(at, key)| QueueStep::PushAt { at, key }),
        3 => Just(QueueStep::Pop),
        2 => Just(QueueStep::Look),
        1 => delay().prop_map(|delay| QueueStep::PopUntil { delay }),
    ]
}

/// Does `steps` with both queues and compares every answer.
fn compare(steps: impl IntoIterator<Item = QueueStep>) {
    let (mut heap, mut wheel) =
        (PendingEvents::new(EventQueueKind::Heap), PendingEvents::new(EventQueueKind::Wheel));
    let mut now = Picos::ZERO;
    let push = |heap: &mut PendingEvents, wheel: &mut PendingEvents, event| {
        heap.push(event);
        wheel.push(event);
    };
    for step in steps {
        match step {
            QueueStep::Push { delay, key, arg } => {
                push(&mut heap, &mut wheel, Event { at: now + Picos(delay), key, arg });
            }
            QueueStep::PushAt { at, key } => {
                push(&mut heap, &mut wheel, Event { at: Picos(at), key, arg: 0 })
            }
            QueueStep::Look => assert_eq!(heap.next_at(), wheel.next_at()),
            QueueStep::Pop => {
                let (want, got) = (heap.pop(), wheel.pop());
                assert_eq!(want, got);
                now = want.map_or(now, |event| event.at);
            }
            QueueStep::PopUntil { delay } => loop {
                let until = now + Picos(delay);
                let (want, got) = (heap.pop_until(until), wheel.pop_until(until));
                assert_eq!(want, got);
                let Some(event) = want else { break };
                now = event.at;
            },
        }
        assert_eq!(heap.len(), wheel.len());
    }
    while let Some(want) = heap.pop() {
        assert_eq!(Some(want), wheel.pop());
    }
    assert_eq!((wheel.pop(), wheel.len()), (None, 0));
}

proptest! {
    #[test]
    fn wheel__gives_the_order_of_the_heap(steps in proptest::collection::vec(step(), 0..600)) {
        compare(steps);
    }
}

/// Returns as many steps as make the wheel tune itself several times, at rates that change a
/// thousandfold.
fn long_run(seed: u64, pending: usize) -> Vec<QueueStep> {
    let mut stream = RandomKey::new(seed).stream();
    let mut steps = Vec::new();
    for round in 0..60_000 {
        let scale = if round / 15_000 % 2 == 0 { 300_000 } else { 300 };
        let delay = match stream.below(20) {
            0 => 0,
            1 => stream.below(scale * 1_000),
            _ => stream.below(scale),
        };
        let key = stream.below(1 << 20) as u32;
        steps.push(QueueStep::Push { delay, key, arg: 0 });
        if round >= pending {
            steps.push(QueueStep::Pop);
        }
    }
    steps
}

#[test]
fn wheel__gives_the_order_of_the_heap_over_tunings() {
    for (seed, pending) in [(1, 10), (2, 1_000), (3, 20_000)] {
        compare(long_run(seed, pending));
    }
}

#[test]
fn wheel__a_burst_at_one_instant_that_grows_while_it_is_taken() {
    let burst = (0..20_000u32).map(|n| QueueStep::Push {
        delay: 0,
        key: n.wrapping_mul(7_919) % 20_011,
        arg: 0,
    });
    let growth = (0..20_000u32).flat_map(|n| {
        [QueueStep::Pop, QueueStep::Push { delay: u64::from(n % 3), key: 20_011 + n, arg: n }]
    });
    compare(burst.chain(growth));
}

#[test]
fn wheel__fits_its_buckets_to_the_rate() {
    let mut wheel = TimingWheel::default();
    let mut stream = RandomKey::new(9).stream();
    for _ in 0..50_000 {
        wheel.push(Event::new(Picos(stream.below(1_000_000_000)), 1, 0, 0));
    }
    for _ in 0..400_000 {
        let event = wheel.pop().expect("pending");
        wheel.push(Event { at: event.at + Picos(1 + stream.below(1_000_000_000)), ..event });
    }
    // 50,000 events in a mean delay of half a millisecond: one in 10 ns, so eight in 80 ns, about
    // 2^16 ps.
    assert!((15..=17).contains(&wheel.width_log()), "{}", wheel.width_log());
    assert!(wheel.far_len() * 2 < wheel.len(), "{} of {}", wheel.far_len(), wheel.len());
}

#[test]
fn event__names_kind_and_entity_and_is_two_words() {
    let event = Event::new(Picos(5), 15, (1 << 28) - 1, 7);
    assert_eq!((event.kind(), event.entity(), event.key), (15, (1 << 28) - 1, u32::MAX));
    assert_eq!(size_of::<Event>(), 16);
    assert!(Event::new(Picos(1), 2, 0, 0) > Event::new(Picos(1), 1, 9, 9));
}
