//! The libfabric wire: one rank's end, with a lane for each class where a class can have an effect.
//!
//! # Model
//! A *lane* is an endpoint of the provider's with slots and receive buffers of its own, so that no
//! class waits behind another inside this host. Where classes have no effect one lane carries them
//! all.
//!
//! Messages are copied into a slot when they are posted and leave from there; small ones are handed
//! over at once and without a completion, but every [`INJECTED_MAX`]th to a peer has one, so that
//! slots bound what waits in the provider. What the provider has no room for stays in its slot and
//! is offered again with each poll, in order for each peer. A lane is full when its slots are in
//! use.
//!
//! Bodies that arrive stay where the provider put them, in a few large receive buffers; a used-up
//! buffer is posted again with the poll after the one that gave out its last message.
//!
//! One-sided operations need the peer's key and, with some providers, addresses of its memory. The
//! first one that names a region asks the peer for them; regions never move, so the answer is kept.
//! Bounds are checked here: a provider that is asked to write outside a region may close the
//! connection. A write's word travels in a message behind it, because what a provider can carry
//! with a write (`FI_REMOTE_CQ_DATA`, 4 or 8 bytes) cannot say from whom, where and which word.
//! Where the provider keeps messages behind writes (`FI_ORDER_SAW`), both are posted at once;
//! elsewhere the message follows when the write is complete at the peer. Over TCP each message
//! costs both processors as much as 10 KiB of a write, so there one carries the words of several
//! writes, and the peer's answer to it ends them (`words`). Atomics are the provider's own where it
//! has all that are needed on 64-bit words, else the peer does them when it polls. Which way is
//! chosen once for the wire, so that two kinds of atomics never meet on one word.
//!
//! # Source
//! `fi_msg(3)`, `fi_rma(3)`, `fi_cq(3)` on multi-receive buffers, ordering and completion levels.
//!
//! # Invariants
//! I1. A body given in one poll is not overwritten before the next.
//! I2. After `Room` the lane takes at least one more operation.
//! I3. No allocation on the path of a message, but for the peers that a walk of marking names and
//!     the first words for a peer.
//!
//! # Not here
//! Reliability (the provider has it); waiting (the caller's, with [`OfiWire::rest`]).

mod immediate_words;
mod incoming;
pub(crate) mod layout;
mod outgoing;
mod peers;
mod queue_polls;
mod remote;
mod slots;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use clearway_proto::base::{Bytes, Class, GroupId, LocalNs, Nanos, Rank, SharedClock, crc32c};
use clearway_proto::wire::{
    AdoptedMemory, Arrival, Capabilities, Counters, Delivery, MemoryAccess, Operation,
    OperationKind, OperationSet, PathId, PostOutcome, RefusalReason, RegionId, Span, StampSource,
    Status, Token, Wire, bytes_of,
};
use rustix::time::{ClockId, clock_gettime};

use self::layout::{BUFFERS, OWN_PIECES, RECEIVE, SLOTS};
use self::peers::{ConnectionState, Peers, ProofPolicy, REGIONS_MAX};
use self::queue_polls::QueuePolls;
use self::slots::Slots;
use crate::abi::{FI_MR_ENDPOINT, FI_ORDER_SAW};
use crate::address::PublishedAddress;
use crate::device::{BATCH, Completion, Device, LocalBytes};
use crate::error::OfiError;
use crate::frame::{self, ControlMessage, HeaderSender};
use crate::library::socket_address;
use crate::port::{OfiPort, Placement};
use crate::provider::Marking;
use crate::sockets::MarkedSockets;
use crate::trust::{SessionProof, Trust};

/// Messages to one peer that leave without a completion between two that have one: bounds what a
/// slow peer leaves in the provider to this many times [`SLOTS`], at the price of one completion
/// for as many messages.
const INJECTED_MAX: u8 = 31;
/// Notes of the wire's own that wait for a slot of a lane; an honest peer has at most one question
/// in each of its slots.
const NOTES_MAX: usize = 1024;

/// Arrivals that are taken from the provider before a poll asks for them.
const LISTED_MAX: usize = 1024;

/// How the caller may rest until the wire has something to poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Until the descriptor can be read ([`OfiWire::wake_descriptor`]).
    Descriptor,
    /// Not now: something is there already.
    Again,
    /// Not at all: poll again soon.
    Poll,
}

/// What lies ready for the next poll.
#[derive(Clone, Debug)]
enum ReadyItem {
    /// A message in the receive memory: its engine's header, and the body behind it up to `end`.
    Message { from: Rank, class: Class, at: LocalNs, head: Range<usize>, end: usize },
    /// A peer's write.
    Landed { from: Rank, into: Span, immediate: u64, at: LocalNs },
    /// The end of an operation.
    Done { token: Token, status: Status, value: u64, at: LocalNs },
    /// No arrival: a receive buffer, all of whose messages stand before this.
    Released(usize),
}

/// One rank's end of a job over libfabric.
#[derive(Debug)]
pub struct OfiWire {
    device: Device,
    rank: Rank,
    proof: ProofPolicy,
    capabilities: Capabilities,
    lanes: usize,
    marking: Marking,
    own_at: Vec<Option<SocketAddr>>,
    peers: Peers,
    slots: Slots,
    /// Slots that wait for the provider, by lane.
    backlog: Vec<VecDeque<usize>>,
    /// The current round of flushing.
    round: u64,
    /// Notes that wait for a slot, by lane.
    notes: Vec<VecDeque<(Rank, ControlMessage)>>,
    /// Messages of words that hold a slot, by lane.
    spoken: Vec<usize>,
    /// Lanes to peers whose words found no slot.
    mute: Vec<(usize, Rank)>,
    listed: VecDeque<ReadyItem>,
    looks: QueuePolls,
    /// The completions of one look, to be used again.
    completions: Vec<Completion>,
    /// The last look found something.
    found: bool,
    /// Receive buffers to post again with the next poll.
    released: Vec<usize>,
    /// Lanes that answered `NoRoom`, with the class that was refused.
    no_room: [bool; Class::ALL.len()],
    /// Connections whose greeting has left.
    greeted: Vec<(Rank, usize)>,
    /// The rank that was the first to greet without a valid proof.
    refused: Option<Rank>,
    /// Connections may have come up since the last walk.
    unmarked: bool,
    marked: MarkedSockets,
    /// Slots that wait for a peer's answer.
    waiting: usize,
    looked: LocalNs,
    timeout: Nanos,
    ordered: bool,
    /// Messages up to this length leave without a completion.
    inject_max: usize,
    native_atomics: bool,
    /// Memory is reached through the first lane only.
    memory_on_first_lane: bool,
    counters: Counters,
    /// Memory that is not the device's own, by region.
    adopted: BTreeMap<RegionId, AdoptedMemory>,
}

/// Returns this node's time.
fn now() -> LocalNs {
    let at = clock_gettime(ClockId::Monotonic);
    LocalNs((at.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(at.tv_nsec as u64))
}

impl OfiWire {
    /// Opens rank `rank`'s end on `port`; `peers` are the addresses of all ranks by number, this
    /// one's included. What does not show what `trust` demands is dropped.
    ///
    /// # Errors
    /// A list that cannot work, or a provider that refuses an address or memory.
    pub fn open(
        port: OfiPort,
        rank: Rank,
        trust: &Trust,
        peers: &[Vec<u8>],
    ) -> Result<Self, OfiError> {
        let OfiPort { mut device, rule, published, config, .. } = port;
        let marking = rule.marking;
        if rank.index() >= peers.len() {
            return Err(OfiError::RankOutside { rank, ranks: peers.len() });
        }
        let lanes = published.lanes.len();
        let format = device.facts().address_format;
        let known = insert_peers(&mut device, marking, &published, peers, trust)?;
        let native_atomics = device.has_atomics();
        let facts = device.facts();
        let ordered = facts.order & FI_ORDER_SAW != 0;
        let mut wire = Self {
            rank,
            proof: proof_of(trust),
            capabilities: capabilities(marking, config.placement),
            lanes,
            marking,
            own_at: published.lanes.iter().map(|lane| socket_address(format, lane)).collect(),
            peers: known,
            slots: Slots::new(lanes),
            backlog: (0..lanes).map(|_| VecDeque::with_capacity(SLOTS)).collect(),
            round: 0,
            notes: (0..lanes).map(|_| VecDeque::with_capacity(SLOTS)).collect(),
            spoken: vec![0; lanes],
            mute: Vec::new(),
            listed: VecDeque::with_capacity(LISTED_MAX + BATCH * frame::WORDS_MAX + lanes * SLOTS),
            looks: QueuePolls::new(device.queues()),
            completions: Vec::with_capacity(BATCH),
            found: false,
            released: (0..lanes * BUFFERS).collect(),
            no_room: [false; Class::ALL.len()],
            greeted: Vec::new(),
            refused: None,
            unmarked: false,
            marked: MarkedSockets::default(),
            waiting: 0,
            looked: now(),
            timeout: config.timeout,
            ordered,
            inject_max: facts.inject_size,
            native_atomics,
            memory_on_first_lane: facts.mr_mode & FI_MR_ENDPOINT != 0,
            counters: Counters::default(),
            adopted: BTreeMap::new(),
            device,
        };
        wire.post_buffers();
        Ok(wire)
    }

    /// Works a little: takes what arrived, offers what waits. True when there is something to poll.
    pub fn look(&mut self) -> bool {
        if self.listed.is_empty() {
            self.progress();
        }
        !self.listed.is_empty() || self.room_is_due()
    }

    /// Returns how the caller may rest until there is something to poll. Call it after a poll that
    /// gave nothing, or after [`OfiWire::look`] found nothing. The next look is at all queues.
    pub fn rest(&mut self) -> Rest {
        self.looks.all();
        let idle = self.listed.is_empty()
            && self.released.is_empty()
            && self.notes.iter().all(VecDeque::is_empty)
            && self.mute.is_empty()
            && !self.unmarked
            && self.greeted.is_empty()
            && self.backlog.iter().all(VecDeque::is_empty);
        if !idle || self.device.wake_descriptor().is_none() {
            return Rest::Poll;
        }
        // Not every provider says of itself that its queue is not empty: `net` of 1.17 lets
        // everybody wait.
        if self.found || !self.device.may_wait() {
            return Rest::Again;
        }
        Rest::Descriptor
    }

    /// Returns the provider's descriptor, which can be read when there may be something to poll;
    /// not every provider has one.
    pub fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.device.wake_descriptor()
    }

    /// Returns how many sockets of the provider's carry their class's mark, and how many refused
    /// it, summed over all walks.
    pub fn marked_sockets(&self) -> (u64, u64) {
        (self.marked.sockets, self.marked.refused)
    }

    /// Returns whether remote atomics are the provider's own, not done by the peer when it polls.
    pub fn has_native_atomics(&self) -> bool {
        self.native_atomics
    }

    /// Returns the error that somebody greeted this end who may not be heard, if somebody did.
    pub fn refusal(&self) -> Option<OfiError> {
        self.refused.map(|rank| OfiError::Stranger { rank })
    }

    fn sender(&self, to: Rank) -> HeaderSender {
        HeaderSender { rank: self.rank, session: self.peers.session_to(to) }
    }

    fn lane_of(&self, class: Class) -> usize {
        peers::lane_of(class, self.lanes)
    }

    /// Returns a span of this end's memory as the device names it.
    fn place(&self, span: Span) -> Result<LocalBytes, RefusalReason> {
        let piece = match span.region {
            RegionId::RECEIVE => RECEIVE,
            RegionId(id) if usize::from(id) < REGIONS_MAX => usize::from(id) + OWN_PIECES,
            _ => return Err(RefusalReason::Memory),
        };
        let length = self.device.length(piece).ok_or(RefusalReason::Memory)?;
        let range = span.range_in(length).ok_or(RefusalReason::Memory)?;
        Ok(LocalBytes { piece, offset: range.start, length: range.len() })
    }

    /// Returns the same as `place`, but an empty span names no memory, whatever region it says.
    fn place_of_body(&self, span: Span) -> Result<LocalBytes, RefusalReason> {
        if span.length == 0 {
            Ok(LocalBytes { piece: RECEIVE, offset: 0, length: 0 })
        } else {
            self.place(span)
        }
    }

    fn copy(&mut self, from: Span, into: Span) -> Result<PostOutcome, RefusalReason> {
        if from.length != into.length || into.region == RegionId::RECEIVE {
            return Err(RefusalReason::Memory);
        }
        let (from, into) = (self.place_of_body(from)?, self.place_of_body(into)?);
        if from.length > 0 {
            self.device.copy(from, into).ok_or(RefusalReason::Memory)?;
        }
        Ok(PostOutcome::Done(0))
    }

    fn start(&mut self, operation: &Operation, heads: &[u8]) -> Result<PostOutcome, RefusalReason> {
        match *operation {
            Operation::Copy { from, into } => self.copy(from, into),
            Operation::Digest { of, .. } => {
                self.digest(of).map(|digest| PostOutcome::Done(u64::from(digest)))
            }
            Operation::Send { to, path, class, head, body, token } => {
                self.check_path(path)?;
                self.start_send(to, class, head.bytes_in(heads), body, token)
            }
            Operation::Write { to, path, class, from, into, immediate, token } => {
                self.check_peer(path, to)?;
                self.start_write(
                    to,
                    class,
                    slots::SlotWork::Write { from, into, immediate, token },
                    from,
                )
            }
            Operation::Read { peer, path, class, from, into, token } => {
                self.check_peer(path, peer)?;
                self.start_read(peer, class, slots::SlotWork::Read { from, into, token }, into)
            }
            Operation::Atomic { to, path, class, kind, at, token } => {
                self.check_peer(path, to)?;
                self.start_atomic(to, class, kind, at, token)
            }
            Operation::Abandon { peer } => {
                self.leave(peer);
                Ok(PostOutcome::Done(0))
            }
            _ => Err(RefusalReason::Operation(operation.kind())),
        }
    }

    /// Returns the number of the next region, for `length` bytes.
    fn next_region(&self, length: u64) -> Result<(RegionId, usize), RefusalReason> {
        let length = usize::try_from(length).map_err(|_| RefusalReason::Memory)?;
        let next = self.device.pieces() - OWN_PIECES;
        let is_possible = next < REGIONS_MAX && isize::try_from(length).is_ok();
        if is_possible { Ok((RegionId(next as u16), length)) } else { Err(RefusalReason::Memory) }
    }

    fn check_path(&self, path: PathId) -> Result<(), RefusalReason> {
        if path == PathId(0) { Ok(()) } else { Err(RefusalReason::Path) }
    }

    fn check_peer(&self, path: PathId, peer: Rank) -> Result<(), RefusalReason> {
        self.check_path(path)?;
        if self.peers.has(peer) { Ok(()) } else { Err(RefusalReason::Rank) }
    }

    fn no_room(&mut self, class: Class) -> PostOutcome {
        self.no_room[class.index()] = true;
        self.counters.no_room += 1;
        PostOutcome::NoRoom
    }
}

/// Inserts every rank's lanes into the provider's table.
fn insert_peers(
    device: &mut Device,
    marking: Marking,
    own: &PublishedAddress,
    addresses: &[Vec<u8>],
    trust: &Trust,
) -> Result<Peers, OfiError> {
    if let Trust::Proofs(proofs) = trust
        && proofs.len() != addresses.len()
    {
        return Err(OfiError::Proofs { proofs: proofs.len(), ranks: addresses.len() });
    }
    let proof = proof_of(trust);
    let format = device.facts().address_format;
    let mut peers = Peers::new(own.lanes.len());
    for (rank, bytes) in (0..).map(Rank).zip(addresses) {
        let theirs =
            PublishedAddress::parse(bytes).map_err(|why| OfiError::Address { rank, why })?;
        if !own.fits(&theirs) {
            return Err(OfiError::OtherProvider {
                rank,
                theirs: theirs.speaks(),
                ours: own.speaks(),
            });
        }
        let mut links = Vec::new();
        for (lane, name) in theirs.lanes.iter().enumerate() {
            // Best effort carries no mark, so without a proof its connections need no greeting.
            let marked = marking == Marking::Sockets && lane != Class::BestEffort.index();
            let fresh = marked || proof == ProofPolicy::Needed;
            links.push((
                device.insert(name)?,
                if fresh { ConnectionState::Fresh } else { ConnectionState::Ready },
            ));
            peers.lane_at.extend(socket_address(format, name).map(|address| (address, lane)));
        }
        let passes = match trust {
            Trust::Session(session) => [SessionProof::from_session(*session); 2],
            Trust::Proofs(proofs) => proofs[rank.index()].each_ref().map(SessionProof::from_proof),
        };
        peers.add(links.into_iter(), passes, proof);
    }
    Ok(peers)
}

const fn proof_of(trust: &Trust) -> ProofPolicy {
    match trust {
        Trust::Session(_) => ProofPolicy::Needless,
        Trust::Proofs(_) => ProofPolicy::Needed,
    }
}

fn capabilities(marking: Marking, placement: Placement) -> Capabilities {
    let operations = [
        OperationKind::Send,
        OperationKind::Write,
        OperationKind::Read,
        OperationKind::Atomic,
        OperationKind::Copy,
        OperationKind::Digest,
    ];
    Capabilities {
        name: "ofi",
        operations: OperationSet::from_kinds(&operations),
        delivery: Delivery::Reliable,
        head_max: frame::HEAD_MAX,
        body_max: frame::BODY_MAX,
        message_max: frame::HEAD_MAX + frame::BODY_MAX,
        stamp: StampSource::Reading,
        shared_clock: match placement {
            Placement::OneMachine => Some(SharedClock::asserted_by_wire()),
            Placement::ManyMachines => None,
        },
        classes: marking.granted(),
        // The first write to a region waits until the peer has said where that is; a message does
        // not.
        sends_follow_writes: false,
        adopts: true,
        any_local: false,
        groups_max: 0,
        paths: vec![None],
    }
}

impl Wire for OfiWire {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn now(&self) -> LocalNs {
        now()
    }

    fn register(&mut self, length: Bytes) -> Result<RegionId, RefusalReason> {
        let (next, length) = self.next_region(length.0)?;
        self.device.add_memory(length).map_err(|_| RefusalReason::Memory)?;
        Ok(next)
    }

    fn adopt(&mut self, memory: AdoptedMemory) -> Result<RegionId, RefusalReason> {
        let (next, length) = self.next_region(memory.length())?;
        let file = memory.file().and_then(|file| file.downcast_ref::<OwnedFd>());
        // The provider reads and writes memory by itself.
        let file =
            file.filter(|_| memory.reach() == MemoryAccess::Peers).ok_or(RefusalReason::Memory)?;
        self.device.add_file(file.as_fd(), length).map_err(|_| RefusalReason::Memory)?;
        self.adopted.insert(next, memory);
        Ok(next)
    }

    fn copy_out(&self, from: Span, into: &mut [u8]) -> Result<(), RefusalReason> {
        if from.length as usize != into.len() {
            return Err(RefusalReason::Memory);
        }
        match self.adopted.get(&from.region).filter(|_| from.length > 0) {
            Some(memory) => memory.read(from.offset, into),
            None => {
                bytes_of(self.region(from.region), from).map(|bytes| into.copy_from_slice(bytes))
            }
        }
    }

    fn copy_in(&mut self, into: Span, from: &[u8]) -> Result<(), RefusalReason> {
        if into.length as usize != from.len() {
            return Err(RefusalReason::Memory);
        }
        if let Some(memory) = self.adopted.get(&into.region).filter(|_| into.length > 0) {
            return memory.write(into.offset, from);
        }
        let place = self.place_of_body(into)?;
        if place.length == 0 {
            return Ok(());
        }
        let bytes = self.device.bytes_mut(place.piece).filter(|_| into.region != RegionId::RECEIVE);
        let bytes =
            bytes.and_then(|bytes| bytes.get_mut(place.offset..place.offset + place.length));
        bytes.ok_or(RefusalReason::Memory).map(|bytes| bytes.copy_from_slice(from))
    }

    fn digest(&self, of: Span) -> Result<u32, RefusalReason> {
        match self.adopted.get(&of.region).filter(|_| of.length > 0) {
            Some(memory) => memory.digest(of.offset, of.length),
            None => bytes_of(self.region(of.region), of).map(crc32c),
        }
    }

    fn region(&self, region: RegionId) -> Option<&[u8]> {
        match region {
            RegionId::RECEIVE => self.device.bytes(RECEIVE),
            RegionId(id) => self.device.bytes(usize::from(id) + OWN_PIECES),
        }
    }

    fn region_mut(&mut self, region: RegionId) -> Option<&mut [u8]> {
        match region {
            RegionId::RECEIVE => None,
            RegionId(id) => self.device.bytes_mut(usize::from(id) + OWN_PIECES),
        }
    }

    fn join(&mut self, _group: GroupId) -> Result<(), RefusalReason> {
        Err(RefusalReason::Operation(OperationKind::Multicast))
    }

    fn post(&mut self, operations: &[Operation], heads: &[u8], answers: &mut Vec<PostOutcome>) {
        for operation in operations {
            answers.push(self.start(operation, heads).unwrap_or_else(PostOutcome::Refused));
        }
    }

    fn poll(&mut self, limit: usize, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        self.post_buffers();
        if self.listed.len() < limit {
            self.progress();
        }
        let given = self.give(limit, sink);
        given + self.give_room(sink)
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

#[cfg(test)]
mod tests;
