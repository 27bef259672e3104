//! What an end knows of the others: their addresses by lane, how their connections stand, where
//! their memory is.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use clearway_proto::base::{Class, Rank};
use clearway_proto::wire::RegionId;

use crate::frame::{HELLO_LENGTH, RegionHandle};
use crate::trust::SessionProof;

/// Regions that one end can register.
pub(super) const REGIONS_MAX: usize = 64;

/// How a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionState {
    /// Nothing was sent, and it must be greeted before anything is.
    Fresh,
    /// The greeting is under way.
    Greeting,
    /// Marked, or nothing to mark.
    Ready,
}

/// Whether ranks prove themselves before they are heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProofPolicy {
    /// On each lane.
    Needed,
    /// A session number is enough.
    Needless,
}

/// One lane to one peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerLane {
    /// The provider's number for the peer's address.
    pub(super) address: u64,
    /// How the connection stands.
    pub(super) standing: ConnectionState,
    /// Slots that wait for the provider to take them; while there are any, later ones wait behind
    /// them.
    pub(super) queued: u32,
    /// Messages sent without a completion since the last one with.
    pub(super) injected: u8,
    /// The peer may be heard: it showed its proof, or needs none.
    pub(super) proven: bool,
    /// The round of flushing in which the provider had no room for this peer.
    pub(super) full_in: u64,
}

/// Words for a peer on a lane: of writes that the provider has.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingWords {
    /// The tickets of the writes whose words are yet to be sent, in their order.
    pub(super) tickets: Vec<u64>,
    /// Bytes of these writes.
    pub(super) bytes: u64,
    /// Words that were sent and not answered.
    pub(super) unanswered: usize,
}

/// What is known of a peer's region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RegionKnowledge {
    /// Nothing.
    #[default]
    Not,
    /// The peer was asked.
    Asked,
    /// Everything. A region never moves and never goes away.
    There(RegionHandle),
}

/// All peers, this end included.
#[derive(Debug)]
pub(super) struct Peers {
    lanes: usize,
    links: Vec<PeerLane>,
    /// What is shown to each rank, and what it shows.
    passes: Vec<[SessionProof; 2]>,
    words: Vec<PendingWords>,
    regions: Vec<BTreeMap<RegionId, RegionKnowledge>>,
    /// The socket address of each lane of each peer, where they have one: how sockets are
    /// recognised.
    pub(super) lane_at: BTreeMap<SocketAddr, usize>,
}

impl Peers {
    pub(super) fn new(lanes: usize) -> Self {
        Self {
            lanes,
            links: Vec::new(),
            passes: Vec::new(),
            words: Vec::new(),
            regions: Vec::new(),
            lane_at: BTreeMap::new(),
        }
    }

    /// Adds the next rank's lanes; `passes` are what is shown to it and what it shows, if that is a
    /// `proof`.
    pub(super) fn add(
        &mut self,
        addresses: impl Iterator<Item = (u64, ConnectionState)>,
        passes: [SessionProof; 2],
        proof: ProofPolicy,
    ) {
        let proven = proof == ProofPolicy::Needless;
        let link = |(address, standing)| PeerLane {
            address,
            standing,
            queued: 0,
            injected: 0,
            proven,
            full_in: 0,
        };
        self.passes.push(passes);
        self.links.extend(addresses.map(link));
        self.words.resize(self.links.len(), PendingWords::default());
        self.regions.push(BTreeMap::new());
    }

    /// Returns whether there is such a rank.
    pub(super) fn has(&self, rank: Rank) -> bool {
        rank.index() < self.regions.len()
    }

    /// Returns the session number in messages from a rank, if there is such a rank.
    pub(super) fn session_from(&self, rank: Rank) -> Option<u64> {
        self.passes.get(rank.index()).map(|[_, theirs]| theirs.session)
    }

    /// Returns the session number in messages to a rank.
    pub(super) fn session_to(&self, rank: Rank) -> u64 {
        self.passes[rank.index()][0].session
    }

    /// Returns the proof to show a rank first on a lane.
    pub(super) fn proof_for(&self, rank: Rank, lane: usize) -> [u8; HELLO_LENGTH] {
        self.passes[rank.index()][0].hello[lane]
    }

    /// Takes the `proof` that a rank showed on a lane and returns whether the rank is heard there
    /// from now on. A proof is taken once.
    pub(super) fn admit(&mut self, rank: Rank, lane: usize, proof: [u8; HELLO_LENGTH]) -> bool {
        let [_, theirs] = self.passes[rank.index()];
        let link = self.link(rank, lane);
        let admitted = !link.proven && theirs.is_proved_by(lane, proof);
        link.proven |= admitted;
        admitted
    }

    pub(super) fn link(&mut self, rank: Rank, lane: usize) -> &mut PeerLane {
        &mut self.links[rank.index() * self.lanes + lane]
    }

    pub(super) fn words(&mut self, rank: Rank, lane: usize) -> &mut PendingWords {
        &mut self.words[rank.index() * self.lanes + lane]
    }

    /// Returns what is known of a peer's region.
    pub(super) fn region(&self, rank: Rank, region: RegionId) -> RegionKnowledge {
        self.regions[rank.index()].get(&region).copied().unwrap_or_default()
    }

    /// Remembers what was learnt. Only of regions that were asked for, so a peer cannot fill this
    /// memory.
    pub(super) fn learn(&mut self, rank: Rank, region: RegionId, known: RegionKnowledge) {
        self.regions[rank.index()].insert(region, known);
    }
}

/// Returns the lane that carries a class.
pub(super) const fn lane_of(class: Class, lanes: usize) -> usize {
    if lanes == 1 { 0 } else { class.index() }
}
