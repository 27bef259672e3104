//! A small engine that does everything a wire offers and checks what it gets: parcels with
//! acknowledgements, one-sided operations, groups, files.
//!
//! # Model
//! Every parcel has a number and is sent again until it is acknowledged; the rank that gets it
//! accepts it once. Everything else is posted once, and every token is awaited. Heads carry a
//! checksum.
//!
//! # Invariants
//! I1. It is quiet when everything it posted has been answered and every parcel acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use clearway_proto::base::{Class, GroupId, LocalNs, Nanos, RandomKey, RandomStream, Rank};
use clearway_proto::wire::{
    Arrival, AtomicKind, Datagram, Destination, Engine, FileId, FileKind, Input, More, Operation,
    Out, PathId, RefusalReason, RemoteSpan, Span, Status, Token,
};

use super::coverage::State;
use super::memory::{BOX, Layout, REGION};

/// After so long, and up to twice as long each time, a parcel is sent again: some round trips of a
/// small network under load.
const RESEND_AFTER: Nanos = Nanos::from_micros(100);
/// The time doubles so often at most: then what queues drop every time they are full gets through
/// some day.
const DOUBLINGS_MAX: u32 = 6;
/// Parcels sent again at once at most.
const RESENDS_MAX: usize = 8;
/// The group that everyone joins.
pub(super) const GROUP: GroupId = GroupId(1);
/// The file that every node has open.
pub(super) const FILE: FileId = FileId(1);
/// Bytes of a head: kind, incarnation, number, attempt, checksum.
const HEAD: usize = 1 + 4 + 4 + 4 + 8;

/// What the checkers hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckEvent {
    /// Something happened that is worth counting.
    Reached(State),
    /// A parcel was accepted.
    Accepted { from: Rank, incarnation: u32, number: u32 },
    /// A token came back that is not awaited.
    Stranger(Token),
    /// An operation ended in a way in which this kind never does.
    Wrong(Token, Status),
}

impl fmt::Display for CheckEvent {
    /// Returns what the rank does, without its name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Reached(state) => write!(f, "{}", state.sentence()),
            Self::Accepted { from, incarnation: 0, number } => {
                write!(f, "accepts parcel {number} of rank {}", from.0)
            }
            Self::Accepted { from, incarnation, number } => {
                write!(
                    f,
                    "accepts parcel {number} of rank {}, started {incarnation} times again",
                    from.0
                )
            }
            Self::Stranger(token) => {
                write!(f, "hears of token {:#x}, which it does not await", token.0)
            }
            Self::Wrong(token, status) => {
                write!(f, "hears that token {:#x} ended as {status:?}", token.0)
            }
        }
    }
}

/// What a node does in one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload {
    pub(super) ranks: u32,
    /// Operations.
    pub(super) count: u32,
    /// Time between them, at most.
    pub(super) gap: Nanos,
}

/// What a token stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingOp {
    Send,
    OneSided(State),
    /// A write outside all regions: it must be refused.
    Outside,
    File,
}

#[derive(Clone, Copy, Debug)]
struct CheckedMessage {
    to: Rank,
    class: Class,
    length: u32,
    attempts: u32,
    /// When it is sent again.
    again: LocalNs,
}

/// The engine.
#[derive(Debug)]
pub(super) struct CheckedEngine {
    me: Rank,
    workload: Workload,
    layout: Layout,
    stream: RandomStream,
    incarnation: u32,
    left: u32,
    next_post: LocalNs,
    tokens: u64,
    awaited: BTreeMap<u64, PendingOp>,
    messages: BTreeMap<u32, CheckedMessage>,
    numbers: u32,
    /// Parcels accepted, and copies seen, by sender and incarnation.
    accepted: BTreeSet<(u32, u32, u32)>,
    seen: BTreeSet<(u32, u32, u32, u32)>,
    newest: BTreeMap<u32, u32>,
    refused: bool,
}

impl CheckedEngine {
    pub(super) fn new(me: Rank, workload: Workload, key: RandomKey) -> Self {
        Self {
            me,
            layout: Layout { ranks: workload.ranks },
            stream: key.node(u64::from(me.0)).purpose("courier").stream(),
            incarnation: 0,
            left: workload.count,
            workload,
            next_post: LocalNs(0),
            tokens: 0,
            awaited: BTreeMap::new(),
            messages: BTreeMap::new(),
            numbers: 0,
            accepted: BTreeSet::new(),
            seen: BTreeSet::new(),
            newest: BTreeMap::new(),
            refused: false,
        }
    }

    /// Returns how often its node was started again.
    pub(super) const fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// Operations whose end it still awaits, as a person would list them.
    pub(super) fn awaited(&self) -> Vec<String> {
        self.awaited.iter().map(|(token, job)| format!("{job:?} with token {token:#x}")).collect()
    }

    /// Parcels that were not acknowledged.
    pub(super) fn unacknowledged(&self) -> usize {
        self.messages.len() + self.left as usize
    }

    fn token(&mut self, job: PendingOp) -> Token {
        let token = u64::from(self.incarnation) << 40 | self.tokens;
        self.tokens += 1;
        self.awaited.insert(token, job);
        Token(token)
    }

    fn peer(&mut self) -> Rank {
        let others = u64::from(self.workload.ranks - 1);
        Rank((self.me.0 + 1 + self.stream.below(others) as u32) % self.workload.ranks)
    }

    fn length(&mut self) -> u32 {
        [0, 1, 64, 2000, 5000, BOX][self.stream.below(6) as usize]
    }

    fn head(&self, kind: u8, incarnation: u32, number: u32, attempt: u32) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[0] = kind;
        head[1..5].copy_from_slice(&incarnation.to_le_bytes());
        head[5..9].copy_from_slice(&number.to_le_bytes());
        head[9..13].copy_from_slice(&attempt.to_le_bytes());
        let sum = checksum(self.me, &head[..13]);
        head[13..].copy_from_slice(&sum.to_le_bytes());
        head
    }

    /// Posts the next operation of the errand.
    fn post(&mut self, now: LocalNs, out: &mut Out<CheckEvent>) {
        self.left -= 1;
        self.next_post = now + Nanos(1 + self.stream.below(self.workload.gap.0));
        let (to, path, class) = (self.peer(), PathId(0), Class::ALL[self.stream.below(5) as usize]);
        let length = self.length();
        let from = self.layout.pattern(length);
        match self.stream.below(13) {
            0..=3 => {
                let number = self.numbers;
                self.numbers += 1;
                self.messages
                    .insert(number, CheckedMessage { to, class, length, attempts: 0, again: now });
                self.send_parcel(now, number, out);
            }
            4 => {
                let head = self.head(b'g', self.incarnation, self.numbers, 0);
                let token = self.token(PendingOp::Send);
                out.send(Destination::Group(GROUP), class, &head, from, Some(token));
            }
            5..=6 => {
                let into = self.layout.inbox(self.me, 0);
                let token = self.token(PendingOp::OneSided(State::Written));
                let into = RemoteSpan { region: REGION, offset: into.offset };
                out.operate(Operation::Write {
                    to,
                    path,
                    class,
                    from,
                    into,
                    immediate: Some(1),
                    token: Some(token),
                });
            }
            7 => {
                let into = RemoteSpan {
                    region: REGION,
                    offset: self.layout.size() - u64::from(length) / 2,
                };
                let from = self.layout.pattern(length.max(2));
                let token = self.token(PendingOp::Outside);
                out.operate(Operation::Write {
                    to,
                    path,
                    class,
                    from,
                    into,
                    immediate: Some(2),
                    token: Some(token),
                });
            }
            8 => {
                let (from, into) = (self.layout.pattern(length), self.layout.inbox(to, length));
                let from = RemoteSpan { region: REGION, offset: from.offset };
                let token = self.token(PendingOp::OneSided(State::Fetched));
                out.operate(Operation::Read { peer: to, path, class, from, into, token });
            }
            9..=10 => {
                let (kind, at) = (AtomicKind::FetchAdd(1), self.layout.word(self.me));
                let token = self.token(PendingOp::OneSided(State::Counted));
                out.operate(Operation::Atomic { to, path, class, kind, at, token });
            }
            n => {
                let kinds = [FileKind::Write, FileKind::Sync, FileKind::Read];
                let kind = kinds[self.stream.below(3) as usize];
                let memory = if n == 11 || kind != FileKind::Read {
                    from
                } else {
                    self.layout.inbox(self.me, length)
                };
                let kind = if n == 11 { FileKind::Write } else { kind };
                let token = self.token(PendingOp::File);
                out.operate(Operation::File { kind, file: FILE, at: 0, memory, class, token });
            }
        }
    }

    fn send_parcel(&mut self, now: LocalNs, number: u32, out: &mut Out<CheckEvent>) {
        let Some(parcel) = self.messages.get_mut(&number) else { return };
        parcel.attempts += 1;
        let after = RESEND_AFTER.0 << (parcel.attempts - 1).min(DOUBLINGS_MAX);
        parcel.again = now + Nanos(after + self.stream.below(after));
        let CheckedMessage { to, class, length, attempts, .. } = *parcel;
        if attempts > 1 {
            out.notify(CheckEvent::Reached(State::SentAgain));
        }
        let head = self.head(b'p', self.incarnation, number, attempts);
        let token = self.token(PendingOp::Send);
        out.send(Destination::One(to), class, &head, self.layout.pattern(length), Some(token));
    }

    fn resend(&mut self, now: LocalNs, out: &mut Out<CheckEvent>) {
        let due = self.messages.iter().filter(|(_, parcel)| parcel.again <= now);
        let due: Vec<u32> = due.map(|(number, _)| *number).take(RESENDS_MAX).collect();
        for number in due {
            self.send_parcel(now, number, out);
        }
    }

    fn datagram(&mut self, datagram: &Datagram<'_>, out: &mut Out<CheckEvent>) {
        let from = datagram.from;
        let Some((kind, incarnation, number, attempt)) = read(from, datagram.head) else {
            return out.notify(CheckEvent::Reached(State::DamageSeen));
        };
        match kind {
            b'a' => {
                if incarnation == self.incarnation {
                    self.messages.remove(&number);
                } else {
                    out.notify(CheckEvent::Reached(State::StaleHeard));
                }
            }
            b'g' => out.notify(CheckEvent::Reached(State::GroupHeard)),
            _ => self.parcel(datagram, incarnation, number, attempt, out),
        }
    }

    fn parcel(
        &mut self,
        datagram: &Datagram<'_>,
        incarnation: u32,
        number: u32,
        attempt: u32,
        out: &mut Out<CheckEvent>,
    ) {
        let from = datagram.from;
        let newest = self.newest.entry(from.0).or_insert(incarnation);
        if incarnation < *newest {
            out.notify(CheckEvent::Reached(State::StaleHeard));
        } else if incarnation > *newest {
            out.notify(CheckEvent::Reached(State::PeerRestarted));
        }
        *newest = incarnation.max(*newest);
        if !self.seen.insert((from.0, incarnation, number, attempt)) {
            out.notify(CheckEvent::Reached(State::CopySeen));
        }
        if self.accepted.insert((from.0, incarnation, number)) {
            out.notify(CheckEvent::Accepted { from, incarnation, number });
        } else {
            out.notify(CheckEvent::Reached(State::RepeatIgnored));
        }
        let length = datagram.body.length;
        if length > 0 {
            out.operate(Operation::Copy {
                from: datagram.body,
                into: self.layout.inbox(from, length),
            });
        }
        let head = self.head(b'a', incarnation, number, attempt);
        let token = self.token(PendingOp::Send);
        out.send(Destination::One(from), Class::Control, &head, Span::EMPTY, Some(token));
    }

    fn done(&mut self, token: Token, status: Status, out: &mut Out<CheckEvent>) {
        let Some(job) = self.awaited.remove(&token.0) else {
            return out.notify(CheckEvent::Stranger(token));
        };
        let reached = match (job, status) {
            (_, Status::NoRoom) => {
                self.refused = true;
                State::NoRoom
            }
            (PendingOp::File, Status::Failed(_)) => State::FileFailed,
            (_, Status::Flushed) => State::Flushed,
            (PendingOp::Outside, Status::Refused(RefusalReason::Memory)) => State::OutsideRefused,
            // Memory of a node that was started again is not the memory that was meant.
            (PendingOp::OneSided(_), Status::Refused(RefusalReason::Memory)) => State::StaleRefused,
            (PendingOp::OneSided(state), Status::Complete) => state,
            (PendingOp::File, Status::Complete) => State::Filed,
            (PendingOp::Send, Status::Complete) => State::Sent,
            _ => return out.notify(CheckEvent::Wrong(token, status)),
        };
        out.notify(CheckEvent::Reached(reached));
    }
}

impl Engine for CheckedEngine {
    type Command = ();
    type Event = CheckEvent;

    fn input(&mut self, now: LocalNs, input: Input<'_, ()>, out: &mut Out<CheckEvent>) -> More {
        match input {
            Input::Boot { incarnation } => {
                self.incarnation = incarnation;
                self.next_post = now + Nanos(1 + self.stream.below(self.workload.gap.0));
                if incarnation > 0 {
                    out.notify(CheckEvent::Reached(State::Restarted));
                }
            }
            Input::Tick => {
                if self.left > 0 && self.next_post <= now {
                    self.post(now, out);
                }
                self.resend(now, out);
            }
            Input::Arrival(Arrival::Datagram(datagram)) => self.datagram(&datagram, out),
            Input::Arrival(Arrival::Done { token, status, .. }) => self.done(token, status, out),
            Input::Arrival(Arrival::Landed { .. }) => {
                out.notify(CheckEvent::Reached(State::Landed))
            }
            Input::Arrival(Arrival::Room { .. }) => {
                if std::mem::take(&mut self.refused) {
                    out.notify(CheckEvent::Reached(State::RoomAgain));
                }
            }
            Input::Arrival(_) | Input::Command(()) => {}
        }
        More::No
    }

    fn deadline(&self) -> Option<LocalNs> {
        let post = (self.left > 0).then_some(self.next_post);
        let resend = self.messages.values().map(|parcel| parcel.again).min();
        [post, resend].into_iter().flatten().min()
    }
}

/// Returns what a head says, if nobody changed it.
fn read(from: Rank, head: &[u8]) -> Option<(u8, u32, u32, u32)> {
    let head: &[u8; HEAD] = head.try_into().ok()?;
    let word = |at: usize| head[at..at + 4].try_into().map(u32::from_le_bytes).ok();
    let sum = head[13..].try_into().map(u64::from_le_bytes).ok()?;
    (sum == checksum(from, &head[..13])).then_some((head[0], word(1)?, word(5)?, word(9)?))
}

/// Computes FNV-1a (Fowler, Noll, Vo) over who says it and what: one flipped bit always changes it.
fn checksum(from: Rank, bytes: &[u8]) -> u64 {
    let all = from.0.to_le_bytes().into_iter().chain(bytes.iter().copied());
    all.fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}
