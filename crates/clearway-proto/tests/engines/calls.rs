//! Calls over a network that loses, doubles and reorders, in all classes.

use std::collections::BTreeMap;

use clearway_proto::base::{BitsPerSec, Bytes, Class, Nanos, RandomKey, Rank};
use clearway_proto::calls::{
    CallClient, CallCommand, CallConfig, CallEvent, CallServer, ClientPace, DATA_MAX, HEADER_MAX,
    Parcel, ReceivedParcel, ServerCallCommand, ServerCallEvent, WINDOW_MIN, frame_memory,
};
use clearway_proto::reliable::{ReliableWire, StreamConfig};
use clearway_proto::wire::memory::{FaultInjection, MemoryConfig, MemoryFabric, MemoryWire};
use clearway_proto::wire::{Driver, Engine, RegionId, Span, Wire};

const SERVER: Rank = Rank(0);

/// Bytes that a call carries: a function of its number and direction.
fn bytes_of(number: u64, salt: u8, length: u32) -> Vec<u8> {
    (0..length).map(|at| (at as u8).wrapping_mul(31) ^ (number as u8) ^ salt).collect()
}

struct TrialCall {
    class: Class,
    request: (u32, u32),
    response: (u32, u32),
}

struct TrialEnd<E: Engine> {
    driver: Driver<E>,
    wire: ReliableWire<MemoryWire>,
    /// Memory of parcels: a slot of the longest for each number.
    parcels: RegionId,
}

const SLOT: u64 = (HEADER_MAX + DATA_MAX) as u64;

impl<E: Engine> TrialEnd<E> {
    fn bytes(&self, span: Span) -> Vec<u8> {
        let mut bytes = vec![0; span.length as usize];
        self.wire.copy_out(span, &mut bytes).expect("own memory");
        bytes
    }

    /// Checks that `parcel` has the bytes that belong to it; returns its lengths.
    fn check(&self, parcel: &ReceivedParcel, salt: u8) -> (u32, u32) {
        let header = self.bytes(parcel.header);
        let data: Vec<u8> = parcel.data.iter().flat_map(|span| self.bytes(*span)).collect();
        let lengths = (header.len() as u32, data.len() as u32);
        assert!(header == bytes_of(parcel.number, salt, lengths.0), "header {}", parcel.number);
        assert!(data == bytes_of(parcel.number, salt + 1, lengths.1), "data {}", parcel.number);
        lengths
    }

    fn parcel(
        &mut self,
        slot: u64,
        number: u64,
        class: Class,
        salt: u8,
        lengths: (u32, u32),
    ) -> Parcel {
        let header = Span { region: self.parcels, offset: slot * SLOT, length: lengths.0 };
        let offset = header.offset + u64::from(HEADER_MAX);
        let data = Span { region: self.parcels, offset, length: lengths.1 };
        self.wire.copy_in(header, &bytes_of(number, salt, lengths.0)).expect("own memory");
        self.wire.copy_in(data, &bytes_of(number, salt + 1, lengths.1)).expect("own memory");
        Parcel { number, class, header, data }
    }
}

/// Makes `count` drawn calls over a network that loses, doubles and reorders; the server answers in
/// drawn order.
fn run_trial(seed: u64, count: u64) {
    let mut random = RandomKey::new(seed).purpose("lengths").stream();
    let faults = FaultInjection { doubled: 10_000, late: 50_000, damaged: 0 };
    let config = MemoryConfig {
        loss_per_million: if seed.is_multiple_of(2) { 0 } else { 20_000 },
        fault_injection: faults,
        seed,
        ..MemoryConfig::lossless(2)
    };
    let mut fabric = MemoryFabric::new(config);
    let streams = StreamConfig { timeout: Nanos::from_secs(1000), ..StreamConfig::new(2) };
    let mut open = |rank| {
        let mut wire = ReliableWire::new(fabric.take(rank), 2, &streams, 0).expect("all is there");
        let frames = wire.register(frame_memory(2, WINDOW_MIN)).expect("memory");
        let parcels = wire.register(Bytes(count * SLOT)).expect("memory");
        (CallConfig::new(frames, WINDOW_MIN, wire.capabilities()), wire, parcels)
    };
    let (config, wire, parcels) = open(Rank(1));
    let driver = Driver::boot(CallClient::new(SERVER, &config), wire.now(), 0);
    let mut client = TrialEnd { driver, wire, parcels };
    let (config, wire, parcels) = open(SERVER);
    let driver = Driver::boot(CallServer::new(SERVER, 2, &config), wire.now(), 0);
    let mut server = TrialEnd { driver, wire, parcels };

    let mut draw_length = |most: u32| match random.below(4) {
        0 => 0,
        1 => 1 + random.below(200) as u32,
        2 => most,
        _ => random.below(u64::from(most)) as u32,
    };
    let calls: Vec<TrialCall> = (0..count)
        .map(|number| TrialCall {
            class: Class::ALL[(number * 7 % 5) as usize],
            request: (draw_length(HEADER_MAX), draw_length(DATA_MAX)),
            response: (draw_length(HEADER_MAX), draw_length(DATA_MAX)),
        })
        .collect();
    for (number, call) in (0..).zip(&calls) {
        let request = client.parcel(number, number, call.class, 3, call.request);
        let command = CallCommand::Call { request, response_max: call.response.1 };
        client.driver.command(client.wire.now(), command);
    }
    let mut random = RandomKey::new(seed).purpose("order").stream();
    let (mut called, mut returned, mut free) = (BTreeMap::new(), Vec::new(), Vec::new());
    let mut last_of_class = BTreeMap::new();
    let mut to_answer = Vec::new();
    let mut steps = 0;
    while returned.len() < calls.len() || free.len() < 2 * calls.len() {
        steps += 1;
        assert!(steps < 2_000_000, "{} of {} calls returned", returned.len(), calls.len());
        let (mut events, mut server_events) = (Vec::new(), Vec::new());
        let next = client.driver.step(&mut client.wire, &mut |event| events.push(event)).next;
        let progress = server.driver.step(&mut server.wire, &mut |event| server_events.push(event));
        for event in server_events {
            match event {
                ServerCallEvent::Called { client: from, request } => {
                    assert_eq!(from, Rank(1));
                    let lengths = server.check(&request, 3);
                    let call = &calls[request.number as usize];
                    assert_eq!((lengths, request.class), (call.request, call.class));
                    let last = last_of_class.insert(request.class, request.number);
                    assert!(last < Some(request.number), "order within a class");
                    assert_eq!(called.insert(request.number, ()), None, "once");
                    if random.below(2) == 0 {
                        let (client, number) = (Rank(1), request.number);
                        let release = ServerCallCommand::Release { client, number };
                        server.driver.command(server.wire.now(), release);
                    }
                    to_answer.push(request.number);
                }
                ServerCallEvent::Free { number, .. } => free.push(number),
                ServerCallEvent::Echoed { .. } | ServerCallEvent::FramesIdle => {}
                lost @ ServerCallEvent::Lost { .. } => panic!("{lost:?}"),
            }
        }
        if random.below(100) == 0 {
            // A pace changes when pieces leave, and nothing else.
            let rate = BitsPerSec::mega(100 << random.below(8));
            let pace = ClientPace { rate, piece: 1 << (10 + random.below(7)) };
            let pause = Nanos(random.below(100_000));
            let client = Rank(1);
            let now = server.wire.now();
            server.driver.command(now, ServerCallCommand::Pace { client, pace, pause });
            let class = Class::LowLatency;
            server.driver.command(now, ServerCallCommand::Probe { client, class });
        }
        if !to_answer.is_empty() && random.below(3) == 0 {
            let number = to_answer.swap_remove(random.below(to_answer.len() as u64) as usize);
            let call = &calls[number as usize];
            let response = server.parcel(number, number, call.class, 5, call.response);
            let answer = ServerCallCommand::Answer { client: Rank(1), response };
            server.driver.command(server.wire.now(), answer);
        }
        for event in events {
            match event {
                CallEvent::Returned(parcel) => {
                    let lengths = client.check(&parcel, 5);
                    assert_eq!(lengths, calls[parcel.number as usize].response);
                    let release = CallCommand::Release(parcel.number);
                    client.driver.command(client.wire.now(), release);
                    returned.push(parcel.number);
                }
                CallEvent::Free(number) => free.push(number),
                CallEvent::Lost => panic!("the server is lost"),
            }
        }
        let wakes = [next, progress.next, client.wire.deadline(), server.wire.deadline()];
        // The fabric has the ends while time passes.
        fabric.exchange(Rank(1), client.wire.below_mut());
        fabric.exchange(SERVER, server.wire.below_mut());
        let next = wakes.into_iter().flatten().chain(fabric.next_arrival()).min();
        let now = fabric.now();
        let wait = if to_answer.is_empty() { Nanos(200) } else { Nanos(20_000) };
        fabric.advance(next.unwrap_or(now).min(now + wait).max(now + Nanos(200)));
        fabric.exchange(Rank(1), client.wire.below_mut());
        fabric.exchange(SERVER, server.wire.below_mut());
    }
}

#[test]
fn calls__each_is_called_once_and_returns_its_own_bytes() {
    for seed in 0..4 {
        run_trial(seed, 16);
    }
}
