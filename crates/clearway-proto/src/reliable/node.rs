//! All streams of a rank: which datagram and which command concerns which, what is sent and asked
//! of memory for it, and when.
//!
//! # Model
//! Peers get their state when the first message comes or goes. A stream does what it wants to do
//! while the buffer of effects has room; streams that are left wait in a queue for the next call.
//! Time-outs lie in one ordered set for all streams.
//!
//! # Invariants
//! I1. A frame that is damaged, of a stranger, or of an older life of its sender changes nothing.
//! I2. Work in one call is bounded by the room in its buffer.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::frame::{
    Acknowledgement, CARRIED_LENGTH, CarriedAnswer, FragmentHeader, HEAD_MAX, INBOX,
    MessageTrailer, ReliableFrame, ReliableFrameKind,
};
use super::key::{StreamKey, TokenPurpose, meaning, token};
use super::receive_stream::{FragmentAction, FragmentArrival, ReceiveStream};
use super::segmentation::SegmentationLimits;
use super::send_stream::{AcknowledgementArrival, SendAction, SendStream};
use super::stream_path::ProbeReply;
use super::{ANSWER_MAX, DigestPolicy, Receipt, ReliableCommand, ReliableConfig, ReliableEvent};
use crate::base::{Class, LocalNs, Nanos, Rank};
use crate::wire::{
    Arrival, Datagram, Destination, Engine, Input, More, Operation, Out, PathId, Queue, RegionId,
    Span, Status, Token,
};

/// Effects that one thing to do needs at most.
const EFFECTS: usize = 4;
/// One peer's streams, by [`Class::index`].
#[derive(Debug, Default)]
struct Peer {
    /// The oldest generation that counts, and the first of this end's streams; none before the rank
    /// was given to another process.
    oldest: Option<u16>,
    outgoing: [Option<Box<SendStream>>; Class::ALL.len()],
    incoming: [Option<Box<ReceiveStream>>; Class::ALL.len()],
}

/// A half of a stream and when it wants to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum StreamHalf {
    Outgoing,
    Incoming,
}

/// The protocol of reliable messages for one rank.
#[derive(Debug)]
pub struct ReliableNode {
    config: ReliableConfig,
    measures: SegmentationLimits,
    generation: u16,
    peers: Vec<Option<Box<Peer>>>,
    /// When halves want to be looked at; each has one entry at most, and knows it.
    timers: BTreeSet<(LocalNs, StreamHalf, StreamKey)>,
    /// Streams that could do something when the buffer was full.
    eager: VecDeque<StreamKey>,
    /// By class: streams that wait for room in the transmit queue of a path.
    blocked: [BTreeSet<(PathId, StreamKey)>; Class::ALL.len()],
    /// Classes of which a stream was full.
    full: [bool; Class::ALL.len()],
    /// Frames that were refused: damaged, of nobody, of an older life.
    strange: u64,
    /// Fragments that arrived as something else than they were.
    damaged: u64,
}

impl ReliableNode {
    /// Creates a rank that has sent nothing yet.
    pub fn new(config: ReliableConfig) -> Self {
        let measures = SegmentationLimits::new(&config.below, config.streams.inbox.0);
        Self {
            measures,
            generation: 0,
            peers: (0..config.ranks).map(|_| None).collect(),
            timers: BTreeSet::new(),
            eager: VecDeque::new(),
            blocked: Default::default(),
            full: [false; Class::ALL.len()],
            strange: 0,
            damaged: 0,
            config,
        }
    }

    /// Returns whether the stream to `to` takes another message now. [`ReliableEvent::Room`]
    /// follows on a refusal.
    pub fn has_room(&mut self, to: Rank, class: Class) -> bool {
        let backlog = self
            .peers
            .get(to.index())
            .and_then(|peer| peer.as_deref())
            .and_then(|peer| peer.outgoing[class.index()].as_deref().map(SendStream::backlog));
        let has = backlog.is_none_or(|backlog| backlog < self.config.streams.backlog);
        self.full[class.index()] |= !has;
        has
    }

    /// Frames that counted for nothing: damaged, of nobody, or of an older life of their sender.
    pub fn strangers(&self) -> u64 {
        self.strange
    }

    /// Fragments whose bytes arrived as something else than they were.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    fn peer(&mut self, rank: Rank) -> Option<&mut Peer> {
        Some(self.peers.get_mut(rank.index())?.get_or_insert_with(Box::default))
    }

    fn outgoing(&mut self, key: StreamKey) -> Option<&mut SendStream> {
        self.peers.get_mut(key.peer as usize)?.as_mut()?.outgoing[key.class.index()].as_deref_mut()
    }

    fn incoming(&mut self, key: StreamKey) -> Option<&mut ReceiveStream> {
        self.peers.get_mut(key.peer as usize)?.as_mut()?.incoming[key.class.index()].as_deref_mut()
    }

    /// Returns this rank's memory for messages of `key`.
    fn inbox(&self, key: StreamKey) -> Span {
        let length = self.config.streams.inbox.0;
        let which = u64::from(key.peer) * Class::ALL.len() as u64 + key.class.index() as u64;
        Span { region: self.config.inboxes, offset: which * length, length: length as u32 }
    }

    fn command(&mut self, now: LocalNs, command: ReliableCommand, out: &mut Out<ReliableEvent>) {
        match command {
            ReliableCommand::Send { to, class, message } => {
                let key = StreamKey { peer: to.0, class };
                let (usual, measures, paths) =
                    (self.generation, self.measures, self.config.below.paths.len());
                let Some(peer) = self.peer(to) else {
                    let status = Status::Flushed;
                    return out.notify(ReliableEvent::Done { ticket: message.ticket, status });
                };
                let generation = peer.oldest.unwrap_or(usual);
                let stream = peer.outgoing[class.index()].get_or_insert_with(|| {
                    Box::new(SendStream::new(generation, class, measures, paths.max(1)))
                });
                stream.push(now, message);
                self.pump(now, key, out);
            }
            ReliableCommand::Abandon(peer) => {
                for key in Class::ALL.map(|class| StreamKey { peer: peer.0, class }) {
                    if let Some(stream) = self.outgoing(key) {
                        stream.give_up(&mut |ticket, status| {
                            out.notify(ReliableEvent::Done { ticket, status })
                        });
                        self.notify_room(key, out);
                    }
                }
            }
            ReliableCommand::Forget { peer, incarnation } => {
                self.forget(peer, generation_of(incarnation), out)
            }
            ReliableCommand::Free(Receipt { from, class, generation, position }) => {
                let key = StreamKey { peer: from.0, class };
                if let Some(stream) =
                    self.incoming(key).filter(|stream| stream.generation == generation)
                {
                    stream.free(now, position);
                    self.arm_incoming(key);
                }
            }
        }
    }

    /// Drops all streams with `rank`; only those of `oldest` and later count from now on.
    fn forget(&mut self, rank: Rank, oldest: u16, out: &mut Out<ReliableEvent>) {
        for key in Class::ALL.map(|class| StreamKey { peer: rank.0, class }) {
            if let Some(stream) = self.outgoing(key) {
                stream.give_up(&mut |ticket, status| {
                    out.notify(ReliableEvent::Done { ticket, status })
                });
                self.notify_room(key, out);
            }
        }
        if let Some(peer) = self.peer(rank) {
            *peer = Peer { oldest: Some(oldest), ..Peer::default() };
        }
    }

    /// Returns whether a stream of `key` with `generation` may be of the process that has the rank
    /// now.
    fn is_of_this_life(&self, key: StreamKey, generation: u16) -> bool {
        let peer = self.peers.get(key.peer as usize).and_then(|peer| peer.as_deref());
        peer.and_then(|peer| peer.oldest).is_none_or(|oldest| !is_newer(oldest, generation))
    }

    /// Does what the outgoing stream of `key` can do now.
    fn pump(&mut self, now: LocalNs, key: StreamKey, out: &mut Out<ReliableEvent>) {
        loop {
            if out.room() < EFFECTS {
                self.eager.push_back(key);
                break;
            }
            let Some(stream) = self.outgoing(key) else { return };
            let Some(next) = stream.next(now) else { break };
            let generation = stream.generation;
            match next {
                SendAction::Read { number, body } => {
                    out.operate(Operation::Digest {
                        of: body,
                        token: token(TokenPurpose::Read, key, number),
                    });
                }
                SendAction::Send { number, path, mut data, body } => {
                    data.carried = self.carried(now, key, number, &data, body.length);
                    let token = token(TokenPurpose::Send(path), key, number);
                    send(
                        out,
                        key,
                        generation,
                        number,
                        ReliableFrameKind::Data(data),
                        path,
                        body,
                        Some(token),
                    );
                }
                SendAction::Ask { number, path } => {
                    send(
                        out,
                        key,
                        generation,
                        number,
                        ReliableFrameKind::Question,
                        path,
                        Span::EMPTY,
                        None,
                    );
                }
            }
        }
        self.arm_outgoing(key);
        self.notify_room(key, out);
    }

    /// Returns what has arrived of `key` the other way, if acknowledgements may wait for a fragment
    /// that carries them and fragment `number` has room for it.
    fn carried(
        &mut self,
        now: LocalNs,
        key: StreamKey,
        number: u64,
        data: &FragmentHeader,
        body: u32,
    ) -> Option<CarriedAnswer> {
        if self.config.streams.answer_soon == Nanos::ZERO
            || !self.measures.has_room(data.length() + CARRIED_LENGTH, body)
        {
            return None;
        }
        self.incoming(key)?.carried_answer(now, number)
    }

    /// Says that `key` has room again, if somebody found it full.
    fn notify_room(&mut self, key: StreamKey, out: &mut Out<ReliableEvent>) {
        let half = self.config.streams.backlog / 2;
        if self.full[key.class.index()]
            && self.outgoing(key).is_some_and(|stream| stream.backlog() <= half)
        {
            self.full[key.class.index()] = false;
            out.notify(ReliableEvent::Room { class: key.class });
        }
    }

    fn arm_outgoing(&mut self, key: StreamKey) {
        let Some(stream) = self.outgoing(key) else { return };
        if let Some(at) =
            stream.deadline().filter(|at| stream.armed.is_none_or(|armed| *at < armed))
        {
            let before = stream.armed.replace(at);
            self.arm(before, at, StreamHalf::Outgoing, key);
        }
    }

    fn arm_incoming(&mut self, key: StreamKey) {
        let Some(stream) = self.incoming(key) else { return };
        if let Some(at) = stream.due.filter(|at| stream.armed.is_none_or(|armed| *at < armed)) {
            let before = stream.armed.replace(at);
            self.arm(before, at, StreamHalf::Incoming, key);
        }
    }

    fn arm(&mut self, before: Option<LocalNs>, at: LocalNs, half: StreamHalf, key: StreamKey) {
        if let Some(before) = before {
            self.timers.remove(&(before, half, key));
        }
        self.timers.insert((at, half, key));
    }

    fn datagram(&mut self, now: LocalNs, datagram: Datagram<'_>, out: &mut Out<ReliableEvent>) {
        let Some(frame) = ReliableFrame::parse(datagram.head) else {
            self.strange += 1;
            return;
        };
        let key = StreamKey { peer: datagram.from.0, class: frame.class };
        if matches!(frame.kind, ReliableFrameKind::Data(_) | ReliableFrameKind::Question)
            && !self.is_of_this_life(key, frame.generation)
        {
            self.strange += 1;
            return;
        }
        let arrival = || AcknowledgementArrival { at: datagram.at.instant(), path: datagram.path };
        match frame.kind {
            ReliableFrameKind::Data(data) => {
                if let Some(carried) = data.carried {
                    let CarriedAnswer { generation, number, .. } = carried;
                    let answer = carried.acknowledgement();
                    let frame = ReliableFrame { generation, number, ..frame };
                    self.acknowledged(now, key, arrival(), frame, answer, out);
                }
                self.data(now, key, frame, data, datagram, out);
            }
            ReliableFrameKind::Question => {
                if self.is_current(key, frame, datagram.path, out)
                    && self.incoming(key).is_some_and(|stream| stream.question(datagram.path))
                {
                    self.answer(now, key, datagram.path, ProbeReply::Yes, out);
                }
            }
            ReliableFrameKind::Acknowledgement(acknowledgement) => {
                self.acknowledged(now, key, arrival(), frame, acknowledgement, out);
            }
            ReliableFrameKind::Damaged
            | ReliableFrameKind::Refused
            | ReliableFrameKind::Unknown => {
                let Some(stream) = self.own(key, frame.generation) else { return };
                match frame.kind {
                    ReliableFrameKind::Damaged => stream.damaged(frame.number),
                    ReliableFrameKind::Refused => stream.refused(frame.number),
                    _ => stream.give_up(&mut |ticket, status| {
                        out.notify(ReliableEvent::Done { ticket, status })
                    }),
                }
                self.pump(now, key, out);
            }
        }
    }

    /// Returns the outgoing stream of `key`, if an answer to `generation` concerns it.
    fn own(&mut self, key: StreamKey, generation: u16) -> Option<&mut SendStream> {
        let current = self.outgoing(key).is_some_and(|stream| stream.generation == generation);
        self.strange += u64::from(!current);
        self.outgoing(key).filter(|_| current)
    }

    /// Returns whether `frame` belongs to the incoming stream that is known; tells its sender when
    /// it does not know better.
    fn is_current(
        &mut self,
        key: StreamKey,
        frame: ReliableFrame,
        over: PathId,
        out: &mut Out<ReliableEvent>,
    ) -> bool {
        let known = self.incoming(key).map(|stream| stream.generation);
        if known == Some(frame.generation) {
            return true;
        }
        self.strange += 1;
        if known.is_none_or(|known| is_newer(frame.generation, known)) {
            send(
                out,
                key,
                frame.generation,
                0,
                ReliableFrameKind::Unknown,
                over,
                Span::EMPTY,
                None,
            );
        }
        false
    }

    fn data(
        &mut self,
        now: LocalNs,
        key: StreamKey,
        frame: ReliableFrame,
        data: FragmentHeader,
        datagram: Datagram<'_>,
        out: &mut Out<ReliableEvent>,
    ) {
        let known = self.incoming(key).map(|stream| stream.generation);
        if data.is_open && known.is_none_or(|known| is_newer(frame.generation, known)) {
            let (inbox, soon) = (self.inbox(key), self.config.streams.answer_soon.min(ANSWER_MAX));
            let Some(peer) = self.peer(key.rank()) else { return };
            peer.incoming[key.class.index()] =
                Some(Box::new(ReceiveStream::new(frame.generation, inbox, soon)));
        } else if !self.is_current(key, frame, datagram.path, out) {
            return;
        }
        let (inboxes, kept) = (self.config.inboxes, self.config.kept);
        let body = if data.is_skipped { 0 } else { datagram.body.length };
        let coming = FragmentArrival {
            number: frame.number,
            body,
            path: datagram.path,
            is_marked: datagram.congestion_marked,
            at: datagram.at.instant(),
        };
        let Some(stream) = self.incoming(key) else { return };
        let verdict = match stream.fragment_arrived(now, coming, &data) {
            // Inboxes are written by messages only, other memory of this end and of its process by
            // this end.
            FragmentAction::Take { into, .. }
                if data.place.region != INBOX
                    && [inboxes, kept, RegionId::PROCESS].contains(&into.region) =>
            {
                FragmentAction::Refuse
            }
            verdict => verdict,
        };
        match verdict {
            FragmentAction::Take { into, number }
                if into.length > 0 && self.config.streams.check == DigestPolicy::Arrived =>
            {
                let (from, digest, token) =
                    (datagram.body, data.digest, token(TokenPurpose::Check, key, number));
                out.operate(Operation::CopyChecked { from, into, digest, token });
            }
            FragmentAction::Take { into, number } => {
                if into.length > 0 {
                    out.operate(Operation::Copy { from: datagram.body, into });
                }
                out.operate(Operation::Digest {
                    of: into,
                    token: token(TokenPurpose::Check, key, number),
                });
            }
            FragmentAction::Taken => self.notify(key, out),
            FragmentAction::Refuse => {
                send(
                    out,
                    key,
                    frame.generation,
                    u64::from(frame.number),
                    ReliableFrameKind::Refused,
                    datagram.path,
                    Span::EMPTY,
                    None,
                );
            }
            FragmentAction::Ignore | FragmentAction::Damaged => {}
        }
        self.arm_incoming(key);
    }

    /// Tells what has arrived of `key` in order.
    fn notify(&mut self, key: StreamKey, out: &mut Out<ReliableEvent>) {
        while let Some((generation, arrived)) = self
            .incoming(key)
            .and_then(|stream| Some((stream.generation, stream.next_delivered()?)))
        {
            if arrived.is_skipped {
                continue;
            }
            let (from, class, at, body) = (key.rank(), key.class, arrived.at, arrived.body);
            match arrived.tail {
                MessageTrailer::Message { head, .. } => {
                    let receipt = Receipt { from, class, generation, position: arrived.end };
                    out.notify(ReliableEvent::Message { from, class, head, body, at, receipt });
                }
                MessageTrailer::Landed { immediate: Some(immediate), .. } => {
                    out.notify(ReliableEvent::Landed { from, into: body, immediate, at });
                }
                MessageTrailer::Landed { immediate: None, .. } => {}
            }
        }
    }

    fn acknowledged(
        &mut self,
        now: LocalNs,
        key: StreamKey,
        arrived: AcknowledgementArrival,
        frame: ReliableFrame,
        acknowledgement: Acknowledgement,
        out: &mut Out<ReliableEvent>,
    ) {
        let allowance = self.config.streams.allowance[key.class.index()];
        let Some(stream) = self.own(key, frame.generation) else { return };
        stream.acknowledged(
            now,
            arrived,
            frame.number,
            &acknowledgement,
            allowance,
            &mut |ticket, status| {
                out.notify(ReliableEvent::Done { ticket, status });
            },
        );
        self.pump(now, key, out);
    }

    /// Handles the end of an operation of ours.
    fn done(
        &mut self,
        now: LocalNs,
        ended: Token,
        status: Status,
        value: u64,
        out: &mut Out<ReliableEvent>,
    ) {
        let Some((purpose, key, low)) = meaning(ended) else { return };
        match purpose {
            TokenPurpose::Read | TokenPurpose::Send(_) => {
                let Some(stream) = self.outgoing(key) else { return };
                let number = stream.whole(low);
                match (purpose, status) {
                    (TokenPurpose::Send(_), Status::Complete) => return,
                    (TokenPurpose::Send(path), status) => {
                        if let Some(path) = stream.posted(now, number, path, status) {
                            self.blocked[key.class.index()].insert((path, key));
                        }
                        // The acknowledgement that it may have had with it did not leave either.
                        if let Some(stream) = self.incoming(key) {
                            stream.not_carried(now, number);
                            self.arm_incoming(key);
                        }
                    }
                    // Bytes that cannot be read cannot be sent; what is sent instead will not pass
                    // as them.
                    (_, status) => stream
                        .read(number, if status == Status::Complete { value as u32 } else { !0 }),
                }
                self.pump(now, key, out);
            }
            TokenPurpose::Check => {
                self.checked(
                    now,
                    key,
                    low,
                    (status == Status::Complete).then_some(value as u32),
                    out,
                );
                if let Some(path) = self.incoming(key).and_then(ReceiveStream::question_due) {
                    self.answer(now, key, path, ProbeReply::Yes, out);
                }
            }
        }
    }

    fn checked(
        &mut self,
        now: LocalNs,
        key: StreamKey,
        low: u32,
        digest: Option<u32>,
        out: &mut Out<ReliableEvent>,
    ) {
        let Some(stream) = self.incoming(key) else { return };
        let (generation, number, path) = (stream.generation, stream.whole(low), stream.path());
        let kind = match stream.checked(now, number, digest) {
            FragmentAction::Taken => {
                self.notify(key, out);
                self.arm_incoming(key);
                return;
            }
            FragmentAction::Damaged => {
                self.damaged += 1;
                ReliableFrameKind::Damaged
            }
            FragmentAction::Refuse => ReliableFrameKind::Refused,
            FragmentAction::Ignore | FragmentAction::Take { .. } => return,
        };
        send(out, key, generation, number, kind, path, Span::EMPTY, None);
    }

    fn answer(
        &mut self,
        now: LocalNs,
        key: StreamKey,
        path: PathId,
        is_answer: ProbeReply,
        out: &mut Out<ReliableEvent>,
    ) {
        let Some(stream) = self.incoming(key) else { return };
        let generation = stream.generation;
        let (number, mut acknowledgement) = stream.answer(now);
        acknowledgement.is_answer = is_answer == ProbeReply::Yes;
        send(
            out,
            key,
            generation,
            number,
            ReliableFrameKind::Acknowledgement(acknowledgement),
            path,
            Span::EMPTY,
            None,
        );
    }

    /// Looks at halves whose time has come, and at streams that were left; whether some had to be
    /// left again.
    fn tick(&mut self, now: LocalNs, out: &mut Out<ReliableEvent>) -> More {
        while let Some(&(at, half, key)) = self.timers.first()
            && at <= now
        {
            if out.room() < EFFECTS {
                return More::Yes;
            }
            self.timers.pop_first();
            match half {
                StreamHalf::Incoming => self.tick_incoming(now, at, key, out),
                StreamHalf::Outgoing => self.tick_outgoing(now, at, key, out),
            }
        }
        for _ in 0..self.eager.len() {
            if out.room() < EFFECTS {
                return More::Yes;
            }
            if let Some(key) = self.eager.pop_front() {
                self.pump(now, key, out);
            }
        }
        if self.eager.is_empty() { More::No } else { More::Yes }
    }

    fn tick_incoming(
        &mut self,
        now: LocalNs,
        at: LocalNs,
        key: StreamKey,
        out: &mut Out<ReliableEvent>,
    ) {
        let Some(stream) = self.incoming(key).filter(|stream| stream.armed == Some(at)) else {
            return;
        };
        stream.armed = None;
        let path = stream.path();
        if stream.due.is_some_and(|due| due <= now) {
            self.answer(now, key, path, ProbeReply::No, out);
        }
        self.arm_incoming(key);
    }

    fn tick_outgoing(
        &mut self,
        now: LocalNs,
        at: LocalNs,
        key: StreamKey,
        out: &mut Out<ReliableEvent>,
    ) {
        let timeout = self.config.streams.timeout;
        let Some(stream) = self.outgoing(key).filter(|stream| stream.armed == Some(at)) else {
            return;
        };
        stream.armed = None;
        stream.excuse(now.since(at));
        if stream.silence(now) > timeout {
            stream
                .give_up(&mut |ticket, status| out.notify(ReliableEvent::Done { ticket, status }));
        }
        stream.tick(now);
        self.pump(now, key, out);
    }

    /// Continues: the transmit queue of `path` and `class` takes messages again.
    fn unblock(&mut self, now: LocalNs, path: PathId, class: Class, out: &mut Out<ReliableEvent>) {
        let waiting = &mut self.blocked[class.index()];
        let mine = waiting.split_off(&(path, StreamKey { peer: 0, class }));
        let (mine, others): (BTreeSet<_>, BTreeSet<_>) =
            mine.into_iter().partition(|(on, _)| *on == path);
        waiting.extend(others);
        for (_, key) in mine {
            if let Some(stream) = self.outgoing(key) {
                stream.unblock(path);
                self.pump(now, key, out);
            }
        }
    }

    /// Takes `path` out of use: it carries nothing any more. O(ranks): paths seldom fail.
    fn path_down(&mut self, now: LocalNs, path: PathId, out: &mut Out<ReliableEvent>) {
        for peer in 0..self.config.ranks {
            for key in Class::ALL.map(|class| StreamKey { peer, class }) {
                if let Some(stream) = self.outgoing(key) {
                    stream.path_down(now, path);
                    self.pump(now, key, out);
                }
            }
        }
    }
}

/// Returns the first generation of an incarnation. Streams that are given up count on from it, 256
/// of them until the next incarnation.
const fn generation_of(incarnation: u32) -> u16 {
    (incarnation as u16) << 8
}

/// Returns whether generation `a` came after `b`.
const fn is_newer(a: u16, b: u16) -> bool {
    a != b && a.wrapping_sub(b) < 1 << 15
}

/// Sends a frame of the stream `key`: data in its class and questions behind it, everything else
/// before all data.
#[expect(clippy::too_many_arguments, reason = "what a frame is made of")]
fn send(
    out: &mut Out<ReliableEvent>,
    key: StreamKey,
    generation: u16,
    number: u64,
    kind: ReliableFrameKind,
    path: PathId,
    body: Span,
    token: Option<Token>,
) {
    let class = if matches!(kind, ReliableFrameKind::Data(_) | ReliableFrameKind::Question) {
        key.class
    } else {
        Class::Control
    };
    let frame = ReliableFrame { class: key.class, generation, number: number as u32, kind };
    let head = out.head(frame.encode().bytes());
    let to = Destination::One(key.rank());
    out.operate(Operation::Send { to, path, class, head, body, token });
}

impl Engine for ReliableNode {
    type Command = ReliableCommand;
    type Event = ReliableEvent;

    fn input(
        &mut self,
        now: LocalNs,
        input: Input<'_, ReliableCommand>,
        out: &mut Out<ReliableEvent>,
    ) -> More {
        match input {
            Input::Boot { incarnation } => self.generation = generation_of(incarnation),
            Input::Tick => return self.tick(now, out),
            Input::Command(command) => self.command(now, command, out),
            Input::Arrival(arrival) => match arrival {
                Arrival::Datagram(datagram) => self.datagram(now, datagram, out),
                Arrival::Done { token, status, value, .. } => {
                    self.done(now, token, status, value, out)
                }
                Arrival::Room { queue: Queue::Path { path, class } } => {
                    self.unblock(now, path, class, out)
                }
                Arrival::PathState { path, rate: None } => self.path_down(now, path, out),
                _ => {}
            },
        }
        if self.eager.is_empty() { More::No } else { More::Yes }
    }

    fn deadline(&self) -> Option<LocalNs> {
        self.timers.first().map(|(at, _, _)| *at)
    }
}

const _: () = assert!(HEAD_MAX >= 62, "the longest header of an engine above");
