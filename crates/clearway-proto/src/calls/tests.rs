//! Clients that break the rules, and which calls are started first.

use alloc::vec;
use alloc::vec::Vec;

use super::frame::{ParcelKind, PieceFrame};
use super::pace::PaceFrame;
use super::*;
use crate::base::{BitsPerSec, LocalNs, Nanos, Rank};
use crate::wire::{Arrival, Destination, Effect, Engine, Input, Operation, Out, PathId, Stamp};

const SERVER: Rank = Rank(0);

/// A server with frames for one client.
fn lone_server() -> CallServer {
    server_that_keeps_frames(None)
}

/// The same, which reports frames that were idle for `idle_max`.
fn server_that_keeps_frames(idle_max: Option<Nanos>) -> CallServer {
    let config = CallConfig { frames: RegionId(3), window: WINDOW_MIN, piece_max: FRAME, idle_max };
    CallServer::new(SERVER, 2, &config)
}

/// Gives a piece to `server`; returns what it reports.
fn give(server: &mut CallServer, head: &[u8], body: u32) -> Vec<ServerCallEvent> {
    give_at(LocalNs(0), server, head, body)
}

fn give_at(now: LocalNs, server: &mut CallServer, head: &[u8], body: u32) -> Vec<ServerCallEvent> {
    let datagram = crate::wire::Datagram {
        from: Rank(1),
        path: PathId(0),
        class: None,
        congestion_marked: false,
        at: Stamp::Taken(now),
        head,
        body: Span { region: RegionId::RECEIVE, offset: 0, length: body },
    };
    reported(server, now, Input::Arrival(Arrival::Datagram(datagram)))
}

/// Returns what a server reports of an input.
fn reported(
    server: &mut CallServer,
    now: LocalNs,
    input: Input<'_, ServerCallCommand>,
) -> Vec<ServerCallEvent> {
    let mut out = Out::with_limit(64);
    let _ = server.input(now, input, &mut out);
    let (effects, _) = out.split();
    effects
        .filter_map(|effect| match effect {
            Effect::Notify(event) => Some(event),
            Effect::Operate(_) => None,
        })
        .collect()
}

fn piece(number: u64, header: u32, data: u32, at: u32) -> PieceFrame {
    PieceFrame { kind: ParcelKind::Request, class: Class::Bulk, number, header, data, at }
}

fn is_violation(events: &[ServerCallEvent]) -> bool {
    let lost = ServerCallEvent::Lost { client: Rank(1), cause: LossCause::Violation };
    events == [lost]
}

#[test]
fn violation__a_client_that_breaks_a_rule_is_lost_and_stays_so() {
    type Pieces = Vec<(PieceFrame, u32)>;
    let response = PieceFrame { kind: ParcelKind::Response, ..piece(1, 8, 0, 0) };
    let cases: [(&str, Pieces); 8] = [
        ("a response", vec![(response, 8)]),
        ("not from the beginning", vec![(piece(1, 8, 100, 8), 100)]),
        ("a gap", vec![(piece(1, 8, 100, 0), 8), (piece(1, 8, 100, 10), 98)]),
        ("another parcel between", vec![(piece(1, 8, 100, 0), 8), (piece(2, 8, 0, 0), 8)]),
        ("more than it said", vec![(piece(1, 8, 0, 0), 9)]),
        ("over the end of the header", vec![(piece(1, 8, 100, 0), 20)]),
        ("an empty piece", vec![(piece(1, 8, 100, 0), 0)]),
        ("a number twice", vec![(piece(1, 8, 0, 0), 8), (piece(1, 8, 0, 0), 8)]),
    ];
    for (what, pieces) in cases {
        let mut server = lone_server();
        let mut last = Vec::new();
        for (frame, body) in pieces {
            last = give(&mut server, frame.encode().bytes(), body);
        }
        assert!(is_violation(&last), "{what}: {last:?}");
        assert_eq!(give(&mut server, piece(9, 8, 0, 0).encode().bytes(), 8), [], "{what}");
    }
    for head in [&b""[..], &[0x63; 24], &[0; 24], &[0x63; 60]] {
        assert!(is_violation(&give(&mut lone_server(), head, 8)), "{head:?}");
    }
}

#[test]
fn violation__a_client_gets_as_many_frames_as_its_window_has() {
    let mut server = lone_server();
    for number in 0..u64::from(WINDOW_MIN) {
        let events = give(&mut server, piece(number, 8, 0, 0).encode().bytes(), 8);
        assert!(matches!(events[..], [ServerCallEvent::Called { .. }]), "{number}: {events:?}");
    }
    assert!(is_violation(&give(&mut server, piece(1000, 8, 0, 0).encode().bytes(), 8)));
}

#[test]
fn idle__frames_that_nothing_has_used_for_a_time_are_reported_once() {
    let idle_max = Nanos(100);
    let mut server = server_that_keeps_frames(Some(idle_max));
    assert_eq!(server.deadline(), None, "nothing has used a frame yet");
    // A parcel whose rest is on its way.
    assert_eq!(give_at(LocalNs(5), &mut server, piece(1, 8, 100, 0).encode().bytes(), 8), []);
    assert_eq!(server.deadline(), None, "a frame is in use");
    assert!(!server.are_frames_free());
    let whole = give_at(LocalNs(50), &mut server, piece(1, 8, 100, 8).encode().bytes(), 100);
    assert!(matches!(whole[..], [ServerCallEvent::Called { .. }]), "{whole:?}");
    assert_eq!(server.deadline(), None, "the application has the request");
    let release = ServerCallCommand::Release { client: Rank(1), number: 1 };
    assert_eq!(reported(&mut server, LocalNs(60), Input::Command(release)), []);
    assert_eq!(server.deadline(), Some(LocalNs(160)), "a request held long is no idle frame");
    assert_eq!(reported(&mut server, LocalNs(159), Input::Tick), []);
    assert_eq!(reported(&mut server, LocalNs(160), Input::Tick), [ServerCallEvent::FramesIdle]);
    assert_eq!((server.deadline(), server.are_frames_free()), (None, true));
    assert_eq!(reported(&mut server, LocalNs(999), Input::Tick), [], "once");
    // A client that is back uses frames again.
    let whole = give_at(LocalNs(1000), &mut server, piece(2, 8, 0, 0).encode().bytes(), 8);
    assert!(matches!(whole[..], [ServerCallEvent::Called { .. }]), "{whole:?}");
    let release = ServerCallCommand::Release { client: Rank(1), number: 2 };
    reported(&mut server, LocalNs(1000), Input::Command(release));
    assert_eq!(server.deadline(), Some(LocalNs(1100)));
}

#[test]
fn start__bulk_leaves_frames_to_urgent_calls() {
    let config =
        CallConfig { frames: RegionId(3), window: WINDOW_MIN, piece_max: FRAME, idle_max: None };
    let mut client = CallClient::new(SERVER, &config);
    let mut out = Out::with_limit(1000);
    let span = |length| Span { region: RegionId(5), offset: 0, length };
    let mut call = |number, class, data| {
        let request = Parcel { number, class, header: span(8), data: span(data) };
        let command = CallCommand::Call { request, response_max: 0 };
        let _ = client.input(LocalNs(0), Input::Command(command), &mut out);
    };
    (0..10).for_each(|number| call(number, Class::Bulk, DATA_MAX));
    call(10, Class::BestEffort, 0);
    let sent: Vec<u64> = out
        .effects()
        .iter()
        .filter_map(|effect| match effect {
            Effect::Operate(timed) => match timed.operation {
                Operation::Send { to: Destination::One(SERVER), head, .. } => {
                    let head = head.bytes_in(out.heads()).expect("its own");
                    PieceFrame::decode(head).filter(|frame| frame.at == 0)
                }
                _ => None,
            },
            Effect::Notify(_) => None,
        })
        .map(|frame| frame.number)
        .collect();
    // Three of the four parcels that fit, of which the pieces under way are bounded, and the urgent
    // call.
    assert!(sent.contains(&10), "{sent:?}");
    assert!(sent.iter().all(|number| *number < 3 || *number == 10), "{sent:?}");
}

/// Gives a frame of a pace to `client`; returns what it sends.
fn tell(client: &mut CallClient, now: LocalNs, frame: PaceFrame, out: &mut Out<CallEvent>) {
    let head = frame.encode();
    let datagram = crate::wire::Datagram {
        from: SERVER,
        path: PathId(0),
        class: None,
        congestion_marked: false,
        at: Stamp::Taken(now),
        head: head.bytes(),
        body: Span::EMPTY,
    };
    let _ = client.input(now, Input::Arrival(Arrival::Datagram(datagram)), out);
}

/// Takes what was sent out of `out`: heads, and lengths of bodies.
fn sent(out: &mut Out<CallEvent>) -> Vec<(Vec<u8>, u32, Option<crate::wire::Token>)> {
    let (effects, heads) = out.split();
    let heads = heads.to_vec();
    effects
        .filter_map(|effect| match effect {
            Effect::Operate(timed) => match timed.operation {
                Operation::Send { head, body, token, .. } => {
                    Some((head.bytes_in(&heads).expect("its own").to_vec(), body.length, token))
                }
                _ => None,
            },
            Effect::Notify(_) => None,
        })
        .collect()
}

#[test]
fn pace__a_client_answers_probes_at_once_and_sends_at_its_pace_after_the_pause() {
    let config =
        CallConfig { frames: RegionId(3), window: WINDOW_MIN, piece_max: FRAME, idle_max: None };
    let mut client = CallClient::new(SERVER, &config);
    let mut out = Out::with_limit(1000);
    let now = LocalNs(1_000_000);
    let (class, sent_at) = (Class::LowLatency, LocalNs(77));
    tell(&mut client, now, PaceFrame::Probe { class, sent_at }, &mut out);
    let echo = PaceFrame::Echo { class, sent_at, delay: Nanos::ZERO };
    assert_eq!(PaceFrame::decode(&sent(&mut out)[0].0), Some(echo));

    // One kilobyte takes a millisecond.
    let pace = ClientPace { rate: BitsPerSec(8_192_000), piece: 1024 };
    tell(&mut client, now, PaceFrame::Pace { pace, pause: Nanos::from_millis(3) }, &mut out);
    let data = Span { region: RegionId(5), offset: 0, length: DATA_MAX };
    for (number, class) in [(1, Class::Bulk), (2, Class::BestEffort)] {
        let request = Parcel { number, class, header: Span { length: 8, ..data }, data };
        let command = CallCommand::Call { request, response_max: 0 };
        let _ = client.input(now, Input::Command(command), &mut out);
    }
    let first = sent(&mut out);
    assert!(first.iter().all(|(_, length, _)| *length == FRAME || *length == 8), "{first:?}");
    assert_eq!(first.len(), 1 + (DATA_MAX / FRAME) as usize, "only the one that nobody paces");
    let end = now + Nanos::from_millis(3);
    assert_eq!(client.deadline(), Some(end));

    let mut bytes = 0;
    let mut at = end;
    while let Some(next) = client.deadline().filter(|next| *next <= end + Nanos::from_millis(50)) {
        at = at.max(next);
        let _ = client.input(at, Input::Tick, &mut out);
        for (_, length, token) in sent(&mut out) {
            bytes += length;
            assert!(length <= 1024);
            let (token, value) = (token.expect("the end of a piece is awaited"), 0);
            let status = crate::wire::Status::Complete;
            let done = Arrival::Done { token, status, value, at };
            let _ = client.input(at, Input::Arrival(done), &mut out);
        }
    }
    assert!((50 << 10..=52 << 10).contains(&bytes), "{bytes}");
}

#[test]
fn pace__no_more_is_under_way_than_the_pace_carries_in_two_milliseconds() {
    let config =
        CallConfig { frames: RegionId(3), window: WINDOW_MIN, piece_max: FRAME, idle_max: None };
    let mut client = CallClient::new(SERVER, &config);
    let mut out = Out::with_limit(1000);
    let pace = ClientPace { rate: BitsPerSec::mega(40), piece: 1024 };
    tell(&mut client, LocalNs(0), PaceFrame::Pace { pace, pause: Nanos::ZERO }, &mut out);
    let data = Span { region: RegionId(5), offset: 0, length: DATA_MAX };
    let request =
        Parcel { number: 1, class: Class::Bulk, header: Span { length: 8, ..data }, data };
    let command = CallCommand::Call { request, response_max: 0 };
    let _ = client.input(LocalNs(0), Input::Command(command), &mut out);
    let (mut bytes, mut now) = (0, LocalNs(0));
    loop {
        bytes += sent(&mut out).iter().map(|(_, length, _)| length).sum::<u32>();
        let Some(next) = client.deadline() else { break };
        now = now.max(next);
        let _ = client.input(now, Input::Tick, &mut out);
    }
    assert!((9_000..=10_000).contains(&bytes), "{bytes} of 10 KB in 2 ms");
}

#[test]
fn pace__an_echo_is_reported_without_the_time_in_the_client() {
    let mut server = lone_server();
    let (class, sent_at, delay) = (Class::LowLatency, LocalNs(0), Nanos(0));
    let echo = PaceFrame::Echo { class, sent_at, delay };
    let give_echo = |server: &mut CallServer| give(server, echo.encode().bytes(), 0);
    assert_eq!(give_echo(&mut server), [], "nobody asked");
    let mut out = Out::with_limit(64);
    let command = ServerCallCommand::Probe { client: Rank(1), class };
    let _ = server.input(sent_at, Input::Command(command), &mut out);
    let echoed = ServerCallEvent::Echoed { client: Rank(1), sent_at, latency: Nanos::ZERO };
    assert_eq!(give_echo(&mut server), [echoed]);
    assert_eq!(give_echo(&mut server), [], "once");
    let probe = PaceFrame::Probe { class, sent_at };
    assert!(is_violation(&give(&mut server, probe.encode().bytes(), 0)), "a client does not probe");
}
