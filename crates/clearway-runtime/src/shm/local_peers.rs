//! The other ranks of this host as one sees them from here: their memory, the rings to and from
//! them, whether they live.
//!
//! # Model
//! A peer is *alive*, has *ended* (its socket hung up: the kernel does that however a process
//! ends), or is *broken* (it wrote what no wire writes). What an ended peer had shown before its
//! end still counts and is read. Nothing is read from a broken one, its socket is closed, and so it
//! hears of it. In both cases whatever is for it ends as flushed, and classes that waited for room
//! in its rings learn that they may try.
//!
//! # Invariants
//! I1. A class that found a peer's ring full is refused there until its `Room` was given (messages
//!     keep their order).
//! I2. Nothing that a peer does makes a loop here longer than what its ring holds or one look at
//!     its socket.
//!
//! # Not here
//! Spans of this rank's memory (`memory`), who has something to read (`scan`), how this rank sleeps
//! (`sleep`), answers and arrivals (`mod`).

mod sleep;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use clearway_proto::base::{Bytes, Class, GroupId, Rank};
use clearway_proto::wire::regions::REGIONS_MAX;
use clearway_proto::wire::{RefusalReason, RegionId, RemoteSpan, Status, Token};

use super::discovery::{self, ConnectedPeer, RegionAnnouncement, SocketMessage};
use super::layout::{SegmentLayout, group_bit};
use super::mapping::SegmentMapping;
use super::notify::{Notifier, Sleeper};
use super::record::{HEAD_MAX, RecordHeader};
use super::region::{ShmRegion, segment_length};
use super::ring::{CorruptRing, RingReader, RingRoom, RingWriter};
use super::scan::{PeerScanner, ScanResult, bits};

/// Words written into one ring before the reader is shown them in the middle of a batch: 16 KiB, so
/// that it starts early and its look at the tail costs little (measured on such a ring).
const BATCH_WORDS: u32 = 2_048;
/// Cards of one peer that are heard in one look at its socket.
const CARDS_MAX: usize = 2 * REGIONS_MAX;

/// Whether a peer can be talked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerState {
    Alive,
    Ended,
    Broken,
}

/// What became of something meant for a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PutOutcome {
    /// It is in the ring.
    Taken,
    /// The ring of this class is full.
    Full,
    /// The peer is gone.
    Gone,
}

/// Something to tell the engine that no ring brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerEvent {
    Done {
        token: Token,
        status: Status,
    },
    Room {
        class: Class,
    },
    /// No other rank of this host is left.
    Alone,
}

/// One rank of this host, this one included.
#[derive(Debug)]
struct ShmPeer {
    rank: Rank,
    life: PeerState,
    /// None for this rank itself.
    socket: Option<OwnedFd>,
    segment: SegmentMapping,
    notifier: Notifier,
    /// By [`Class::index`], into the peer's segment.
    writers: [RingWriter; Class::ALL.len()],
    /// By [`Class::index`], out of this rank's segment.
    readers: [RingReader; Class::ALL.len()],
    /// Where the tails of the latter lie.
    tails: usize,
    /// Classes into whose rings something was put that the peer was not shown, as bits.
    hidden: u32,
    /// Times that the peer was shown something.
    shows: u32,
    /// Where the peer sees how often.
    shows_at: usize,
    /// Classes that found the peer's ring full, as bits; the peer sees a copy.
    full: u32,
    /// Where.
    full_at: usize,
    regions: Vec<Option<ShmRegion>>,
}

/// All ranks of this host.
#[derive(Debug)]
pub(super) struct LocalPeers {
    own: SegmentMapping,
    layout: SegmentLayout,
    me: usize,
    sleeper: Sleeper,
    peers: Vec<ShmPeer>,
    lookout: PeerScanner,
    /// Peers with a ring that was found full, as bits.
    full: u64,
    news: VecDeque<PeerEvent>,
    /// Peers into whose rings something was put that they were not shown, as bits.
    put: u64,
    /// Peers out of whose rings something was taken that they were not shown, as bits.
    taken: u64,
    /// Where the peer that was asked for last was found.
    last: usize,
    broken: u64,
    /// Watches what ends a sleep, if somebody asked for a descriptor.
    wake: Option<OwnedFd>,
}

impl ShmPeer {
    fn new(
        layout: SegmentLayout,
        me: usize,
        place: usize,
        met: ConnectedPeer,
        regions: usize,
    ) -> Self {
        Self {
            rank: met.rank,
            life: PeerState::Alive,
            socket: (place != me).then_some(met.socket),
            segment: met.segment,
            notifier: Notifier::new(met.counter),
            writers: Class::ALL.map(|class| RingWriter::new(layout.place(me, class), class)),
            readers: Class::ALL.map(|class| RingReader::new(layout.place(place, class), class)),
            tails: layout.tails(place),
            hidden: 0,
            shows: 0,
            shows_at: layout.shown(me),
            full: 0,
            full_at: layout.full(me),
            regions: (0..regions).map(|_| None).collect(),
        }
    }

    #[inline]
    fn put(
        &mut self,
        class: Class,
        opening: RecordHeader,
        head: &[u8],
        body: &[u8],
    ) -> Result<PutOutcome, CorruptRing> {
        if self.life != PeerState::Alive {
            return Ok(PutOutcome::Gone);
        }
        let writer = &mut self.writers[class.index()];
        if self.full & 1 << class.index() == 0
            && writer.put(&self.segment, opening, head, body)? == RingRoom::Enough
        {
            self.hidden |= 1 << class.index();
            if writer.hidden() >= BATCH_WORDS {
                self.show();
                fence(Ordering::SeqCst);
                self.notify();
            }
            return Ok(PutOutcome::Taken);
        }
        self.set_full(self.full | 1 << class.index());
        Ok(PutOutcome::Full)
    }

    /// Returns for each class whether the peer sent something, in one look at its counters in this
    /// rank's segment.
    #[inline]
    fn ready(&self, own: &SegmentMapping) -> impl Iterator<Item = bool> {
        let tails = own.halves::<{ Class::ALL.len() }>(self.tails);
        self.readers
            .iter()
            .zip(tails)
            .map(|(reader, tail)| reader.is_ready(tail.load(Ordering::SeqCst)))
    }

    /// Shows the peer everything written. Behind a fence [`ShmPeer::notify`] must follow; see
    /// `notify`.
    #[inline]
    fn show(&mut self) {
        if self.hidden == 0 {
            return;
        }
        while self.hidden != 0 {
            self.writers[self.hidden.trailing_zeros() as usize].show(&self.segment);
            self.hidden &= self.hidden - 1;
        }
        self.shows = self.shows.wrapping_add(1);
        self.segment.half(self.shows_at).store(self.shows, Ordering::Release);
    }

    /// Wakes the peer if it sleeps.
    #[inline]
    fn notify(&mut self) {
        self.notifier.notify(&self.segment);
    }

    fn set_full(&mut self, full: u32) {
        self.full = full;
        self.segment.half(self.full_at).store(full, Ordering::SeqCst);
    }

    /// Returns the full classes that have room again, as bits.
    fn room_returned(&mut self) -> Result<u32, CorruptRing> {
        let mut relieved = 0;
        for class in Class::ALL.into_iter().filter(|class| self.full & 1 << class.index() != 0) {
            relieved |=
                u32::from(self.writers[class.index()].has_room(&self.segment)?) << class.index();
        }
        Ok(relieved)
    }

    fn learn_region(&mut self, card: RegionAnnouncement) -> Result<(), CorruptRing> {
        let place = self.regions.get_mut(usize::from(card.region)).ok_or(CorruptRing)?;
        let length = usize::try_from(card.length).map_err(|_| CorruptRing)?;
        let size = segment_length(length).ok_or(CorruptRing)?;
        if place.is_some() {
            return Err(CorruptRing);
        }
        let segment = SegmentMapping::open(card.file.as_fd(), size).map_err(|_| CorruptRing)?;
        *place = Some(ShmRegion { segment, length });
        Ok(())
    }
}

impl LocalPeers {
    /// Creates the local peers out of everybody that `met`, in order, this rank itself at place
    /// `me`.
    pub(super) fn new(
        own: SegmentMapping,
        layout: SegmentLayout,
        me: usize,
        sleeper: Sleeper,
        met: Vec<ConnectedPeer>,
    ) -> Self {
        let lookout = PeerScanner::new((0..met.len()).map(|place| layout.shown(place)));
        let peers = met
            .into_iter()
            .enumerate()
            .map(|(place, met)| ShmPeer::new(layout, me, place, met, REGIONS_MAX));
        Self {
            own,
            layout,
            me,
            sleeper,
            peers: peers.collect(),
            lookout,
            full: 0,
            news: VecDeque::new(),
            put: 0,
            taken: 0,
            last: 0,
            broken: 0,
            wake: None,
        }
    }

    /// Returns the place of `rank` among the local ones.
    #[inline]
    pub(super) fn place(&mut self, rank: Rank) -> Result<usize, RefusalReason> {
        if self.peers[self.last].rank != rank {
            self.last = self
                .peers
                .binary_search_by_key(&rank, |peer| peer.rank)
                .map_err(|_| RefusalReason::Rank)?;
        }
        Ok(self.last)
    }

    pub(super) fn rank(&self, place: usize) -> Rank {
        self.peers[place].rank
    }

    /// Returns the ranks whose process ended, or whose memory cannot be believed.
    pub(super) fn dead_peers(&self) -> impl Iterator<Item = Rank> + '_ {
        self.peers.iter().filter(|peer| peer.life != PeerState::Alive).map(|peer| peer.rank)
    }

    /// Returns how many peers wrote what no wire writes.
    pub(super) fn broken(&self) -> u64 {
        self.broken
    }

    /// Puts a record into the ring of `class` at the rank in `place`; it is seen after
    /// [`LocalPeers::show`].
    #[inline]
    pub(super) fn put(
        &mut self,
        place: usize,
        class: Class,
        opening: RecordHeader,
        head: &[u8],
        body: &[u8],
    ) -> PutOutcome {
        match self.peers[place].put(class, opening, head, body) {
            Ok(PutOutcome::Taken) => {
                self.put |= 1 << place;
                PutOutcome::Taken
            }
            Ok(PutOutcome::Full) => {
                self.full |= 1 << place;
                PutOutcome::Full
            }
            Ok(PutOutcome::Gone) => PutOutcome::Gone,
            Err(CorruptRing) => {
                self.peer_died(place, PeerState::Broken);
                PutOutcome::Gone
            }
        }
    }

    /// Returns whether a record of `opening`'s length would be taken now; if not, the class counts
    /// as having found it full.
    pub(super) fn reserve(
        &mut self,
        place: usize,
        class: Class,
        opening: RecordHeader,
    ) -> PutOutcome {
        let peer = &mut self.peers[place];
        if peer.life != PeerState::Alive {
            return PutOutcome::Gone;
        }
        match peer.writers[class.index()].fits(&peer.segment, opening.words()) {
            Ok(RingRoom::Enough) if peer.full & 1 << class.index() == 0 => PutOutcome::Taken,
            Ok(_) => {
                peer.set_full(peer.full | 1 << class.index());
                self.full |= 1 << place;
                PutOutcome::Full
            }
            Err(CorruptRing) => {
                self.peer_died(place, PeerState::Broken);
                PutOutcome::Gone
            }
        }
    }

    /// Shows everybody what was put for them, and wakes who sleeps. One fence for all: it takes as
    /// long as a short message.
    #[inline]
    pub(super) fn show(&mut self) {
        let put = std::mem::take(&mut self.put);
        if put == 0 {
            return;
        }
        bits(put).for_each(|place| self.peers[place].show());
        fence(Ordering::SeqCst);
        bits(put).for_each(|place| self.peers[place].notify());
    }

    /// Tells the engine something with the next poll.
    pub(super) fn queue_event(&mut self, news: PeerEvent) {
        self.news.push_back(news);
    }

    /// Returns the next event to be reported.
    pub(super) fn next_event(&mut self) -> Option<PeerEvent> {
        self.news.pop_front()
    }

    /// Returns a region of the rank in `place` and where `length` bytes from `at` on lie in it;
    /// `Ok(None)` when the rank is gone.
    pub(super) fn remote(
        &mut self,
        place: usize,
        at: RemoteSpan,
        length: usize,
    ) -> Result<Option<(&SegmentMapping, usize)>, RefusalReason> {
        let id = usize::from(at.region.0);
        let is_known = |peer: &ShmPeer| peer.regions.get(id).is_some_and(Option::is_some);
        if !is_known(&self.peers[place]) {
            // A rank that knows of the region heard it after its card was sent, so the card is
            // here, perhaps not yet read.
            self.receive_announcements(place);
        }
        if self.peers[place].life != PeerState::Alive {
            return Ok(None);
        }
        let region = self.peers[place]
            .regions
            .get(id)
            .and_then(Option::as_ref)
            .ok_or(RefusalReason::Memory)?;
        Ok(Some((&region.segment, region.offset(at.offset, length)?)))
    }

    /// Makes a region of this rank known to all: `file` holds its `length` bytes.
    pub(super) fn announce(
        &mut self,
        region: RegionId,
        length: Bytes,
        file: BorrowedFd<'_>,
    ) -> Result<(), RefusalReason> {
        for peer in &mut self.peers {
            match &peer.socket {
                Some(socket) => {
                    // A peer that cannot be notified is gone or about to be noticed; its writes
                    // would be refused.
                    let _ = discovery::announce_region(socket.as_fd(), region.0, length.0, file);
                }
                None if peer.life == PeerState::Alive => {
                    let file = file.try_clone_to_owned().map_err(|_| RefusalReason::Memory)?;
                    let card = RegionAnnouncement { region: region.0, length: length.0, file };
                    peer.learn_region(card).map_err(|CorruptRing| RefusalReason::Memory)?;
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Puts this rank into a group.
    pub(super) fn join(&self, group: GroupId) {
        let (at, bit) = group_bit(group.0);
        self.own.half(at).fetch_or(bit, Ordering::Release);
    }

    /// Takes this rank out of a group; `None` when it is not in it.
    pub(super) fn leave_group(&self, group: GroupId) -> Option<()> {
        let (at, bit) = group_bit(group.0);
        (self.own.half(at).fetch_and(!bit, Ordering::Release) & bit != 0).then_some(())
    }

    /// Returns the places of a group's living members but this rank, as bits.
    pub(super) fn members(&self, group: GroupId) -> u64 {
        let (at, bit) = group_bit(group.0);
        let is_member = |peer: &ShmPeer| {
            peer.life == PeerState::Alive
                && peer.segment.half(at).load(Ordering::Acquire) & bit != 0
        };
        let members = self
            .peers
            .iter()
            .enumerate()
            .filter(|(place, peer)| *place != self.me && is_member(peer));
        members.fold(0, |set, (place, _)| set | 1 << place)
    }

    /// Returns where there is something to read; `None` when nobody showed anything new. What is
    /// found is read in this poll, and what is not is said to [`LocalPeers::leave`].
    #[inline]
    pub(super) fn scan(&mut self) -> Option<ScanResult> {
        let spoke = self.lookout.peers_with_news(&self.own);
        (spoke != 0).then(|| self.scan_those(spoke))
    }

    fn scan_those(&mut self, spoke: u64) -> ScanResult {
        let mut scan = self.lookout.begin(spoke);
        for place in bits(spoke).filter(|place| self.peers[*place].life != PeerState::Broken) {
            scan.add(place, self.peers[place].ready(&self.own));
        }
        scan
    }

    /// Says that not all of what `scan` found was read.
    pub(super) fn leave(&mut self, scan: &ScanResult) {
        self.lookout.leave(scan);
    }

    /// Takes the next record of `class` from the rank in `place`: header into `head`, body into
    /// `into`.
    #[inline]
    pub(super) fn take(
        &mut self,
        place: usize,
        class: Class,
        head: &mut [u8; HEAD_MAX],
        into: &mut [u8],
    ) -> Option<RecordHeader> {
        let peer = &mut self.peers[place];
        if peer.life == PeerState::Broken {
            return None;
        }
        match peer.readers[class.index()].take(&self.own, head, into) {
            Ok(taken) => {
                self.taken |= u64::from(taken.is_some()) << place;
                taken
            }
            Err(CorruptRing) => {
                self.peer_died(place, PeerState::Broken);
                None
            }
        }
    }

    /// Believes nothing more of the rank in `place`.
    pub(super) fn discard(&mut self, place: usize) {
        self.peer_died(place, PeerState::Broken);
    }

    /// Shows everybody what was taken from them, and wakes who waits for room and has it.
    #[inline]
    pub(super) fn show_taken(&mut self) {
        for place in bits(std::mem::take(&mut self.taken)) {
            let peer = &mut self.peers[place];
            let mut shown = false;
            for reader in &mut peer.readers {
                shown |= reader.show(&self.own);
            }
            if !shown {
                continue;
            }
            let full = self.own.half(self.layout.full(place)).load(Ordering::SeqCst);
            let waits = |class: &Class| full & 1 << class.index() != 0;
            if full != 0
                && Class::ALL
                    .iter()
                    .any(|class| waits(class) && peer.readers[class.index()].has_room(&self.own))
            {
                peer.notifier.notify(&peer.segment);
            }
        }
    }

    /// Finds classes that have room again.
    #[inline]
    pub(super) fn find_room(&mut self) {
        for place in bits(self.full) {
            let peer = &mut self.peers[place];
            match peer.room_returned() {
                Ok(0) => {}
                Ok(relieved) => {
                    peer.set_full(peer.full & !relieved);
                    self.full &= !(u64::from(peer.full == 0) << place);
                    self.notify_room(relieved);
                }
                Err(CorruptRing) => self.peer_died(place, PeerState::Broken),
            }
        }
    }

    fn notify_room(&mut self, classes: u32) {
        let relieved = Class::ALL.into_iter().filter(|class| classes & 1 << class.index() != 0);
        self.news.extend(relieved.map(|class| PeerEvent::Room { class }));
    }

    /// Looks at all sockets: new regions, and who is gone.
    pub(super) fn check_connections(&mut self) {
        for place in 0..self.peers.len() {
            self.receive_announcements(place);
        }
    }

    fn receive_announcements(&mut self, place: usize) {
        for _ in 0..CARDS_MAX {
            let peer = &mut self.peers[place];
            let Some(socket) = &peer.socket else { return };
            match discovery::receive_message(socket.as_fd()) {
                SocketMessage::Silence => return,
                SocketMessage::HungUp => return self.peer_died(place, PeerState::Ended),
                SocketMessage::Card(card) => {
                    if peer.learn_region(card).is_err() {
                        return self.peer_died(place, PeerState::Broken);
                    }
                }
                SocketMessage::Noise => return self.peer_died(place, PeerState::Broken),
            }
        }
    }

    /// Gives a peer up.
    fn peer_died(&mut self, place: usize, life: PeerState) {
        let peer = &mut self.peers[place];
        if peer.life == PeerState::Broken {
            return;
        }
        let was_alive = peer.life == PeerState::Alive;
        peer.life = life;
        peer.socket = None;
        peer.regions.iter_mut().for_each(|region| *region = None);
        let waited = std::mem::take(&mut peer.full);
        self.full &= !(1 << place);
        self.broken += u64::from(life == PeerState::Broken);
        self.notify_room(waited);
        let is_left =
            |(other, peer): (usize, &ShmPeer)| other != self.me && peer.life == PeerState::Alive;
        if was_alive && !self.peers.iter().enumerate().any(is_left) {
            self.news.push_back(PeerEvent::Alone);
        }
    }

    /// Returns whether there is anything to poll.
    #[inline]
    fn has_something(&mut self) -> bool {
        self.lookout.is_due(&self.own)
            || !self.news.is_empty()
            // A counter that cannot be believed is something to be found out.
            || bits(self.full).any(|place| self.peers[place].room_returned() != Ok(0))
    }

    /// Puts `value` into this rank's segment at `offset`, as a bad peer might.
    #[cfg(test)]
    pub(super) fn overwrite_own(&mut self, offset: usize, value: u32) {
        self.own.half(offset).store(value, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(super) fn layout(&self) -> SegmentLayout {
        self.layout
    }
}
