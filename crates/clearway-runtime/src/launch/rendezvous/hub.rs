//! What the hub decides: who is known, when a round is complete, when the job is over.
//!
//! # Invariants
//! I1. A connection has a rank only after a frame sealed with that rank's key, and a rank has at
//!     most one connection.
//! I2. A job that is over stays over; every rank that is still there learns why.
//! I3. Memory: one contribution for each rank, one half-filled frame and `OUTBOX` bytes for each
//!     connection.
//! I4. A job that goes on without ranks that are gone ends well without them, and a round is
//!     complete when all others came.

use std::collections::BTreeMap;
use std::time::Duration;

use super::frame::{
    self, FRAME_MAX, FrameBuffer, FrameSeal, FrameSender, MemberKey, Nonce, ProtocolViolation,
    RendezvousFrame, STRANGER_MAX, ToHub, ToRank,
};
use super::{LOST, STRANGER_TIMEOUT};

/// Most connections of nobody known. Ranks come in bursts, and each needs its place for one round
/// trip.
const STRANGERS_MAX: usize = 256;

/// Bytes that wait for a connection before no more pieces are made: two of the longest.
const OUTBOX: usize = 2 * FRAME_MAX;

/// How long ranks have to take the news that the job is over.
const FAREWELL: Duration = Duration::from_secs(2);

/// Most ranks named in one sentence.
const NAMED_MAX: usize = 4;

/// The keys of a job's ranks.
#[derive(Debug)]
pub(in crate::launch) enum MemberKeys {
    /// All ranks have this one.
    Shared(MemberKey),
    /// Rank `i` has the `i`-th.
    Each(Vec<MemberKey>),
}

impl MemberKeys {
    fn key(&self, rank: u32) -> Option<&MemberKey> {
        match self {
            Self::Shared(key) => Some(key),
            Self::Each(keys) => keys.get(rank as usize),
        }
    }
}

/// How a job ended, when it did not end well: an exit code, and who or what was the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::launch) struct JobFailure {
    pub(in crate::launch) code: i32,
    pub(in crate::launch) sentence: String,
    /// The rank that is gone, when that is the reason.
    pub(in crate::launch) rank: Option<u32>,
    /// A rank asked for the end, and has said why on its standard error.
    pub(in crate::launch) was_said: bool,
}

/// The name of a connection; never used twice.
pub(in crate::launch) type ConnectionId = u64;

/// What somebody waits for in a round.
#[derive(Debug, PartialEq, Eq)]
enum RoundRequest {
    Give(Vec<u8>),
    Wait,
    Leave,
}

/// A rank that is known.
#[derive(Debug)]
struct HubMember {
    rank: u32,
    host: String,
    incoming: FrameSeal,
    outgoing: FrameSeal,
    wish: Option<RoundRequest>,
    /// The next piece to send.
    cursor: Option<usize>,
}

#[derive(Debug)]
enum ConnectionStage {
    Stranger {
        until: Duration,
    },
    Member(Box<HubMember>),
    /// What is in the outbox is sent, then the connection is closed.
    Closing,
}

#[derive(Debug)]
struct HubConnection {
    nonce: Nonce,
    stage: ConnectionStage,
    inbox: FrameBuffer,
    outbox: Vec<u8>,
}

/// The hub of one job.
#[derive(Debug)]
pub(in crate::launch) struct Hub {
    size: u32,
    keys: MemberKeys,
    timeout: Duration,
    now: Duration,
    connections: BTreeMap<ConnectionId, HubConnection>,
    /// By rank.
    seats: Vec<Option<ConnectionId>>,
    /// Ranks that came to the round, and how many there are.
    arrived: usize,
    expected: usize,
    /// A rank that is gone ends the job.
    needs_all: bool,
    round_until: Option<Duration>,
    pieces: Vec<Vec<u8>>,
    over: Option<JobOver>,
    closed: Vec<ConnectionId>,
    joined: Vec<u32>,
}

#[derive(Debug)]
struct JobOver {
    outcome: Result<(), JobFailure>,
    until: Duration,
}

impl Hub {
    /// Creates a hub for ranks `0..size`; a round lasts at most `timeout` from its first arrival.
    pub(in crate::launch) fn new(size: u32, keys: MemberKeys, timeout: Duration) -> Self {
        let seats = (0..size).map(|_| None).collect();
        Self {
            size,
            keys,
            timeout,
            now: Duration::ZERO,
            connections: BTreeMap::new(),
            seats,
            arrived: 0,
            expected: size as usize,
            needs_all: true,
            round_until: None,
            pieces: Vec::new(),
            over: None,
            closed: Vec::new(),
            joined: Vec::new(),
        }
    }

    /// Lets the job go on without ranks that are gone, from now on.
    pub(in crate::launch) fn go_on_without_lost(&mut self) {
        self.needs_all = false;
    }

    /// Accepts a connection from somebody; `nonce` is fresh.
    pub(in crate::launch) fn accept(&mut self, id: ConnectionId, nonce: Nonce) {
        if self.over.is_some() {
            return self.closed.push(id);
        }
        let strangers = || {
            self.connections
                .iter()
                .filter(|(_, one)| matches!(one.stage, ConnectionStage::Stranger { .. }))
        };
        if strangers().count() >= STRANGERS_MAX {
            let oldest = strangers().next().map(|(id, _)| *id);
            oldest.into_iter().for_each(|id| self.close(id));
        }
        let stage = ConnectionStage::Stranger { until: self.now + STRANGER_TIMEOUT };
        let outbox = frame::challenge(&nonce).to_vec();
        self.connections
            .insert(id, HubConnection { nonce, stage, inbox: FrameBuffer::default(), outbox });
    }

    /// Takes bytes that came.
    pub(in crate::launch) fn receive(&mut self, id: ConnectionId, bytes: &[u8]) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.inbox.push(bytes);
        while let Some(connection) = self.connections.get_mut(&id) {
            let limit = match connection.stage {
                ConnectionStage::Stranger { .. } => STRANGER_MAX,
                ConnectionStage::Member(_) => FRAME_MAX,
                ConnectionStage::Closing => return,
            };
            let step = match connection.inbox.next(limit) {
                Ok(None) => return,
                Ok(Some(frame)) => self.step(id, &frame),
                Err(rubbish) => Err(rubbish),
            };
            if step.is_err() {
                return self.rank_lost(id, "sent something else than a rank sends");
            }
        }
    }

    /// Notes that the connection broke, or that its rank closed it.
    pub(in crate::launch) fn connection_closed(&mut self, id: ConnectionId) {
        self.rank_lost(id, "ended before the job did");
    }

    /// Notes the passing of time: it is `now` for all that happens until the next call.
    pub(in crate::launch) fn tick(&mut self, now: Duration) {
        self.now = self.now.max(now);
        let is_late = |one: &HubConnection| matches!(one.stage, ConnectionStage::Stranger { until } if until <= now);
        let late: Vec<ConnectionId> =
            self.connections.iter().filter(|(_, one)| is_late(one)).map(|(id, _)| *id).collect();
        late.into_iter().for_each(|id| self.close(id));
        if self.round_until.is_some_and(|until| until <= now) {
            let sentence =
                format!("{} did not come within {} s", self.missing(), self.timeout.as_secs_f32());
            self.end(LOST, sentence);
        }
        if self.over.as_ref().is_some_and(|over| over.until <= now) {
            let rest: Vec<ConnectionId> = self.connections.keys().copied().collect();
            rest.into_iter().for_each(|id| self.close(id));
        }
    }

    /// Returns when [`tick`](Self::tick) is next needed.
    pub(in crate::launch) fn deadline(&self) -> Option<Duration> {
        let strangers = self.connections.values().filter_map(|one| match one.stage {
            ConnectionStage::Stranger { until } => Some(until),
            ConnectionStage::Member(_) | ConnectionStage::Closing => None,
        });
        strangers.chain(self.round_until).chain(self.over.as_ref().map(|over| over.until)).min()
    }

    /// Ends the job: every rank is notified, then the connections are closed.
    pub(in crate::launch) fn end(&mut self, code: i32, sentence: String) {
        self.end_for(None, code, sentence);
    }

    fn end_for(&mut self, rank: Option<u32>, code: i32, sentence: String) {
        let end = JobFailure { code, sentence: sentence.clone(), rank, was_said: false };
        self.finish(Err(end), &ToRank::Ended { code, sentence });
    }

    /// Returns the bytes that wait for this connection.
    pub(in crate::launch) fn output(&mut self, id: ConnectionId) -> &[u8] {
        let Some(connection) = self.connections.get_mut(&id) else { return &[] };
        if let ConnectionStage::Member(member) = &mut connection.stage {
            while connection.outbox.len() < OUTBOX
                && let Some(piece) = member.cursor.and_then(|at| self.pieces.get(at))
            {
                ToRank::Piece(piece.clone()).put(&mut member.outgoing, &mut connection.outbox);
                member.cursor = member.cursor.map(|at| at + 1).filter(|at| *at < self.pieces.len());
            }
        }
        &connection.outbox
    }

    /// Notes that the first `count` of the bytes that wait are sent.
    pub(in crate::launch) fn sent(&mut self, id: ConnectionId, count: usize) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.outbox.drain(..count);
        if connection.outbox.is_empty() && matches!(connection.stage, ConnectionStage::Closing) {
            self.close(id);
        }
    }

    /// Returns the connections that are to be closed now.
    pub(in crate::launch) fn take_closed(&mut self) -> Vec<ConnectionId> {
        std::mem::take(&mut self.closed)
    }

    /// Returns the ranks that have become known since the last call.
    pub(in crate::launch) fn take_joined(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.joined)
    }

    /// Returns how the job ended, once nobody is left to be notified.
    pub(in crate::launch) fn outcome(&self) -> Option<&Result<(), JobFailure>> {
        self.over.as_ref().filter(|_| self.connections.is_empty()).map(|over| &over.outcome)
    }

    fn step(&mut self, id: ConnectionId, frame: &RendezvousFrame) -> Result<(), ProtocolViolation> {
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        let member = match &mut connection.stage {
            ConnectionStage::Stranger { .. } => return self.handle_greeting(id, frame),
            ConnectionStage::Member(member) => member,
            ConnectionStage::Closing => return Ok(()),
        };
        if !member.incoming.is_next(frame) {
            return Err(ProtocolViolation);
        }
        let wish = match ToHub::read(frame)? {
            ToHub::Hello { .. } => return Err(ProtocolViolation),
            ToHub::Give(bytes) => RoundRequest::Give(bytes),
            ToHub::Wait => RoundRequest::Wait,
            ToHub::Leave => RoundRequest::Leave,
            ToHub::Abort { code, sentence } => {
                // The rank that says so knows it, and is on its way out.
                connection.stage = ConnectionStage::Closing;
                self.close(id);
                let end =
                    JobFailure { code, sentence: sentence.clone(), rank: None, was_said: true };
                self.finish(Err(end), &ToRank::Ended { code, sentence });
                return Ok(());
            }
        };
        if member.wish.replace(wish).is_some() {
            return Err(ProtocolViolation);
        }
        self.arrived += 1;
        self.round_until.get_or_insert(self.now + self.timeout);
        self.look_if_complete();
        Ok(())
    }

    fn look_if_complete(&mut self) {
        if self.arrived > 0 && self.arrived == self.expected {
            self.release();
        }
    }

    /// Handles the first frame of a stranger.
    fn handle_greeting(
        &mut self,
        id: ConnectionId,
        frame: &RendezvousFrame,
    ) -> Result<(), ProtocolViolation> {
        let ToHub::Hello { rank, nonce, host } = ToHub::read(frame)? else {
            return Err(ProtocolViolation);
        };
        let key = self.keys.key(rank).filter(|_| rank < self.size).ok_or(ProtocolViolation)?;
        let connection = self.connections.get_mut(&id).ok_or(ProtocolViolation)?;
        let direction = |side| FrameSeal::new(key, &connection.nonce, rank, &nonce, side);
        let (mut incoming, mut outgoing) =
            (direction(FrameSender::Rank), direction(FrameSender::Hub));
        let seat = &mut self.seats[rank as usize];
        if !incoming.is_next(frame) || seat.is_some() {
            return Err(ProtocolViolation);
        }
        *seat = Some(id);
        ToRank::Welcome.put(&mut outgoing, &mut connection.outbox);
        let member = HubMember { rank, host, incoming, outgoing, wish: None, cursor: None };
        connection.stage = ConnectionStage::Member(Box::new(member));
        self.joined.push(rank);
        Ok(())
    }

    /// Releases the round, to which everybody has come.
    fn release(&mut self) {
        (self.arrived, self.round_until) = (0, None);
        let mut wishes: Vec<(u32, RoundRequest)> =
            self.members().filter_map(|one| Some((one.rank, one.wish.take()?))).collect();
        wishes.sort_by_key(|(rank, _)| *rank);
        let mut pieces = Vec::with_capacity(wishes.len());
        let (mut waiting, mut leaving) = (0, 0);
        for (_, wish) in wishes {
            match wish {
                RoundRequest::Give(bytes) => pieces.push(bytes),
                RoundRequest::Wait => waiting += 1,
                RoundRequest::Leave => leaving += 1,
            }
        }
        match (pieces.len(), waiting, leaving) {
            (_, 0, 0) => {
                self.pieces = pieces;
                self.members().for_each(|one| one.cursor = Some(0));
            }
            (0, _, 0) => self.send_to_all(&ToRank::Go),
            (0, 0, _) => self.finish(Ok(()), &ToRank::Go),
            _ => self
                .end(LOST, "the ranks do not call the same exchanges in the same order".to_owned()),
        }
    }

    fn finish(&mut self, outcome: Result<(), JobFailure>, last: &ToRank) {
        if self.over.is_some() {
            return;
        }
        self.over = Some(JobOver { outcome, until: self.now + FAREWELL });
        self.round_until = None;
        self.send_to_all(last);
        let mut strangers = Vec::new();
        for (id, one) in &mut self.connections {
            match one.stage {
                ConnectionStage::Member(_) => one.stage = ConnectionStage::Closing,
                ConnectionStage::Stranger { .. } => strangers.push(*id),
                ConnectionStage::Closing => {}
            }
        }
        strangers.into_iter().for_each(|id| self.close(id));
    }

    fn send_to_all(&mut self, words: &ToRank) {
        for one in self.connections.values_mut() {
            if let ConnectionStage::Member(member) = &mut one.stage {
                words.put(&mut member.outgoing, &mut one.outbox);
            }
        }
    }

    fn members(&mut self) -> impl Iterator<Item = &mut HubMember> {
        self.connections.values_mut().filter_map(|one| match &mut one.stage {
            ConnectionStage::Member(member) => Some(&mut **member),
            ConnectionStage::Stranger { .. } | ConnectionStage::Closing => None,
        })
    }

    /// Gives up the connection, which is of no use any more; if it was a rank's, that is the end of
    /// the job, or the job goes on without it.
    fn rank_lost(&mut self, id: ConnectionId, how: &str) {
        let member = self.connections.get(&id).and_then(|one| match &one.stage {
            ConnectionStage::Member(member) => {
                let sentence = format!("rank {} on {} {how}", member.rank, member.host);
                Some((member.rank, member.wish.is_some(), sentence))
            }
            ConnectionStage::Stranger { .. } | ConnectionStage::Closing => None,
        });
        self.close(id);
        match member {
            Some((rank, _, sentence)) if self.needs_all => self.end_for(Some(rank), LOST, sentence),
            Some((_, had_come, _)) => {
                self.expected -= 1;
                self.arrived -= usize::from(had_come);
                self.look_if_complete();
            }
            None => {}
        }
    }

    fn close(&mut self, id: ConnectionId) {
        if self.connections.remove(&id).is_some() {
            self.closed.push(id);
        }
    }

    /// Returns the ranks that the round still waits for.
    fn missing(&self) -> String {
        let mut names = Vec::new();
        let mut more = 0;
        for (rank, seat) in self.seats.iter().enumerate() {
            let stage = seat.and_then(|id| self.connections.get(&id)).map(|one| &one.stage);
            let name = match stage {
                Some(ConnectionStage::Member(member)) if member.wish.is_some() => continue,
                Some(ConnectionStage::Member(member)) => format!("rank {rank} on {}", member.host),
                _ => format!("rank {rank}"),
            };
            if names.len() < NAMED_MAX { names.push(name) } else { more += 1 }
        }
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{}{rest}", names.join(", "))
    }
}

#[cfg(test)]
mod tests;
