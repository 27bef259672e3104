//! Hubs with ranks and strangers in memory.

use super::*;

const TIMEOUT: Duration = Duration::from_secs(10);

fn key(rank: u32) -> MemberKey {
    MemberKey::new(&[rank as u8; 32])
}

fn hub(size: u32) -> Hub {
    Hub::new(size, MemberKeys::Each((0..size).map(key).collect()), TIMEOUT)
}

/// A rank's end without a socket.
struct TestMember {
    id: ConnectionId,
    outgoing: FrameSeal,
    incoming: FrameSeal,
    inbox: FrameBuffer,
}

impl TestMember {
    /// Connects as `rank`, with the key `of`.
    fn connect(hub: &mut Hub, id: ConnectionId, rank: u32, of: &MemberKey) -> Self {
        let nonce = [id as u8; 16];
        hub.accept(id, nonce);
        let challenge = hub.output(id).to_vec();
        hub.sent(id, challenge.len());
        let got = frame::read_challenge(challenge.first_chunk().unwrap()).unwrap();
        let own = [99; 16];
        let direction = |side| FrameSeal::new(of, &got, rank, &own, side);
        let mut peer = Self {
            id,
            outgoing: direction(FrameSender::Rank),
            incoming: direction(FrameSender::Hub),
            inbox: FrameBuffer::default(),
        };
        peer.send_message(hub, &ToHub::Hello { rank, nonce: own, host: format!("n{rank}") });
        peer
    }

    fn send_message(&mut self, hub: &mut Hub, words: &ToHub) {
        let mut bytes = Vec::new();
        words.put(&mut self.outgoing, &mut bytes);
        hub.receive(self.id, &bytes);
    }

    /// Takes everything that the hub has for it.
    fn receive_messages(&mut self, hub: &mut Hub) -> Vec<ToRank> {
        loop {
            let bytes = hub.output(self.id).to_vec();
            if bytes.is_empty() {
                break;
            }
            self.inbox.push(&bytes);
            hub.sent(self.id, bytes.len());
        }
        let mut heard = Vec::new();
        while let Some(frame) = self.inbox.next(FRAME_MAX).unwrap() {
            assert!(self.incoming.is_next(&frame));
            heard.push(ToRank::read(&frame).unwrap());
        }
        heard
    }
}

/// Returns a hub and its ranks, all welcomed, in an order that is not theirs.
fn joined_hub(size: u32) -> (Hub, Vec<TestMember>) {
    let mut hub = hub(size);
    let mut peers: Vec<TestMember> = (0..size)
        .rev()
        .map(|rank| TestMember::connect(&mut hub, u64::from(100 - rank), rank, &key(rank)))
        .collect();
    peers.reverse();
    for peer in &mut peers {
        assert_eq!(peer.receive_messages(&mut hub), [ToRank::Welcome]);
    }
    (hub, peers)
}

#[test]
fn round__everybody_gets_everybodys_bytes_by_rank() {
    let (mut hub, mut peers) = joined_hub(3);
    for (rank, peer) in peers.iter_mut().enumerate() {
        assert_eq!(peer.receive_messages(&mut hub), []);
        peer.send_message(&mut hub, &ToHub::Give(vec![rank as u8; rank]));
    }
    for peer in &mut peers {
        assert_eq!(
            peer.receive_messages(&mut hub),
            [0, 1, 2].map(|rank| ToRank::Piece(vec![rank as u8; rank]))
        );
    }
}

#[test]
fn round__leaving_together_is_a_good_end() {
    let (mut hub, mut peers) = joined_hub(2);
    peers.iter_mut().for_each(|peer| peer.send_message(&mut hub, &ToHub::Wait));
    peers.iter_mut().for_each(|peer| assert_eq!(peer.receive_messages(&mut hub), [ToRank::Go]));
    peers.iter_mut().for_each(|peer| peer.send_message(&mut hub, &ToHub::Leave));
    assert_eq!(hub.outcome(), None);
    peers.iter_mut().for_each(|peer| assert_eq!(peer.receive_messages(&mut hub), [ToRank::Go]));
    assert_eq!(hub.outcome(), Some(&Ok(())));
}

#[test]
fn round__pieces_are_made_as_the_connection_takes_them() {
    let (mut hub, mut peers) = joined_hub(8);
    for peer in &mut peers {
        peer.send_message(&mut hub, &ToHub::Give(vec![1; crate::launch::EXCHANGE_MAX]));
    }
    assert!(hub.output(peers[0].id).len() <= OUTBOX + FRAME_MAX + 4);
    assert_eq!(peers[0].receive_messages(&mut hub).len(), 8);
}

#[test]
fn round__different_calls_end_the_job() {
    let (mut hub, mut peers) = joined_hub(2);
    peers[0].send_message(&mut hub, &ToHub::Wait);
    peers[1].send_message(&mut hub, &ToHub::Leave);
    assert!(matches!(&peers[0].receive_messages(&mut hub)[..], [ToRank::Ended { code: LOST, .. }]));
}

#[test]
fn connection_closed__the_others_hear_who_it_was() {
    let (mut hub, mut peers) = joined_hub(3);
    peers[0].send_message(&mut hub, &ToHub::Wait);
    hub.connection_closed(peers[1].id);
    let sentence = "rank 1 on n1 ended before the job did".to_owned();
    for at in [0, 2] {
        assert_eq!(
            peers[at].receive_messages(&mut hub),
            [ToRank::Ended { code: LOST, sentence: sentence.clone() }]
        );
    }
    assert_eq!(
        hub.outcome(),
        Some(&Err(JobFailure { code: LOST, sentence, rank: Some(1), was_said: false }))
    );
}

#[test]
fn connection_closed__a_job_that_goes_on_without_is_complete_when_the_others_came() {
    let (mut hub, mut peers) = joined_hub(4);
    hub.go_on_without_lost();
    hub.connection_closed(peers[1].id);
    peers[2].send_message(&mut hub, &ToHub::Wait);
    // One that had come and is gone now is not counted.
    hub.connection_closed(peers[2].id);
    peers[0].send_message(&mut hub, &ToHub::Wait);
    assert_eq!(peers[0].receive_messages(&mut hub), []);
    peers[3].send_message(&mut hub, &ToHub::Wait);
    assert_eq!(
        (peers[0].receive_messages(&mut hub), peers[3].receive_messages(&mut hub)),
        (vec![ToRank::Go], vec![ToRank::Go])
    );
    peers[3].send_message(&mut hub, &ToHub::Leave);
    hub.connection_closed(peers[3].id);
    peers[0].send_message(&mut hub, &ToHub::Leave);
    assert_eq!(peers[0].receive_messages(&mut hub), [ToRank::Go]);
    hub.sent(peers[0].id, 0);
    assert_eq!(hub.outcome(), Some(&Ok(())));
}

#[test]
fn abort__the_others_hear_the_code_and_the_sentence() {
    let (mut hub, mut peers) = joined_hub(2);
    peers[1].send_message(&mut hub, &ToHub::Abort { code: 7, sentence: "no libfabric".to_owned() });
    assert_eq!(
        peers[0].receive_messages(&mut hub),
        [ToRank::Ended { code: 7, sentence: "no libfabric".to_owned() }]
    );
}

#[test]
fn handle_greeting__a_wrong_key_or_a_taken_rank_is_closed_and_the_job_goes_on() {
    let (mut hub, mut peers) = joined_hub(2);
    hub.take_closed();
    TestMember::connect(&mut hub, 200, 1, &key(0));
    TestMember::connect(&mut hub, 201, 1, &key(1));
    TestMember::connect(&mut hub, 202, 9, &key(9));
    hub.accept(203, [3; 16]);
    hub.receive(203, b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(hub.take_closed(), [200, 201, 202, 203]);
    peers.iter_mut().for_each(|peer| peer.send_message(&mut hub, &ToHub::Wait));
    peers.iter_mut().for_each(|peer| assert_eq!(peer.receive_messages(&mut hub), [ToRank::Go]));
}

#[test]
fn accept__silent_strangers_run_out_of_time_and_of_places() {
    let mut hub = hub(1);
    (0..300).for_each(|id| hub.accept(id, [0; 16]));
    assert_eq!(hub.take_closed(), (0..300 - STRANGERS_MAX as u64).collect::<Vec<_>>());
    TestMember::connect(&mut hub, 1000, 0, &key(0));
    assert_eq!(hub.take_joined(), [0]);
    hub.take_closed();
    assert_eq!(hub.deadline(), Some(STRANGER_TIMEOUT));
    hub.tick(STRANGER_TIMEOUT);
    assert_eq!(hub.take_closed().len(), STRANGERS_MAX - 1);
    assert_eq!(hub.deadline(), None);
}

#[test]
fn tick__a_rank_that_does_not_come_is_named() {
    let mut hub = hub(3);
    let mut first = TestMember::connect(&mut hub, 1, 0, &key(0));
    TestMember::connect(&mut hub, 2, 1, &key(1));
    first.send_message(&mut hub, &ToHub::Wait);
    assert_eq!(hub.deadline(), Some(TIMEOUT));
    hub.tick(TIMEOUT);
    let sentence = "rank 1 on n1, rank 2 did not come within 10 s".to_owned();
    assert_eq!(
        first.receive_messages(&mut hub),
        [ToRank::Welcome, ToRank::Ended { code: LOST, sentence }]
    );
}

#[test]
fn end__a_rank_that_does_not_listen_is_not_waited_for_long() {
    let (mut hub, _peers) = joined_hub(2);
    hub.end(1, "enough".to_owned());
    assert_eq!(hub.outcome(), None);
    hub.accept(500, [0; 16]);
    assert_eq!(hub.take_closed(), [500]);
    hub.tick(FAREWELL);
    assert!(hub.outcome().is_some());
}
