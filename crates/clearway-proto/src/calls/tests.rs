//! Clients that break the rules, and which calls are started first.

use alloc::vec;
use alloc::vec::Vec;

use super::frame::{ParcelKind, PieceFrame};
use super::*;
use crate::base::{LocalNs, Rank};
use crate::wire::{Arrival, Destination, Effect, Engine, Input, Operation, Out, PathId, Stamp};

const SERVER: Rank = Rank(0);

/// A server with frames for one client.
fn lone_server() -> CallServer {
    let config = CallConfig { frames: RegionId(3), window: WINDOW_MIN, piece_max: FRAME };
    CallServer::new(SERVER, 2, &config)
}

/// Gives a piece to `server`; returns what it reports.
fn give(server: &mut CallServer, head: &[u8], body: u32) -> Vec<ServerCallEvent> {
    let datagram = crate::wire::Datagram {
        from: Rank(1),
        path: PathId(0),
        class: None,
        congestion_marked: false,
        at: Stamp::Taken(LocalNs(0)),
        head,
        body: Span { region: RegionId::RECEIVE, offset: 0, length: body },
    };
    let mut out = Out::with_limit(64);
    let _ = server.input(LocalNs(0), Input::Arrival(Arrival::Datagram(datagram)), &mut out);
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
fn start__bulk_leaves_frames_to_urgent_calls() {
    let config = CallConfig { frames: RegionId(3), window: WINDOW_MIN, piece_max: FRAME };
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
