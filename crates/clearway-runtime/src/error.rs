//! What can go wrong when a wire is opened, each as one sentence for a person.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use clearway_proto::base::{Bytes, Nanos, Rank};
use thiserror::Error;

/// Why the runtime could not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// The address is not free or not of this host: choose another.
    #[error(
        "cannot open UDP port {address}: {cause}; use an address of this host and a free port, or port 0 for any"
    )]
    Bind {
        /// The address asked for.
        address: SocketAddrV4,
        /// What the system said.
        cause: io::Error,
    },
    /// The system refused something every wire needs: report it with the kernel's version.
    #[error("the system refused to {what}: {cause}")]
    System {
        /// What was asked of it.
        what: &'static str,
        /// What it said.
        cause: io::Error,
    },
    /// Processors cannot be kept awake without using up what this process is allowed: lift the
    /// limit, or go on without.
    #[error(
        "this process may use {processors} processors, and the time of {granted}; what keeps processors awake would use it up"
    )]
    ProcessorTime {
        /// Processors' worth of time.
        granted: usize,
        /// Processors.
        processors: usize,
    },
    /// The rank is not in the list of peers: correct the list.
    #[error("rank {rank} is not among the {ranks} peers; ranks are numbered from 0")]
    RankOutside {
        /// This end's rank.
        rank: Rank,
        /// Entries in the list.
        ranks: usize,
    },
    /// Two ends of different ranks cannot be one: join those of one rank.
    #[error(
        "a wire of rank {near} and one of rank {far} cannot be joined; both must be of one rank"
    )]
    OtherRank {
        /// The rank whose end shares memory.
        near: Rank,
        /// The rank of the other end.
        far: Rank,
    },
    /// The list of peers names another address for this rank than the one that was bound: correct
    /// the list.
    #[error("rank {rank} is listed as {listed} but is bound to {bound}; publish the bound address")]
    OwnAddress {
        /// This end's rank.
        rank: Rank,
        /// What the list says.
        listed: SocketAddrV4,
        /// What the port says.
        bound: SocketAddrV4,
    },
    /// Addresses and ports do not make this many rails: give each rank as many of both.
    #[error(
        "{rails} rails and {ports} ports do not fit; every rank needs an address and a port on each of at most {most} rails"
    )]
    Rails {
        /// Rails for which there are addresses.
        rails: usize,
        /// Ports given.
        ports: usize,
        /// Rails that a wire can have.
        most: usize,
    },
    /// Two ranks share an address: correct the list.
    #[error(
        "ranks {first} and {second} are both listed as {address}; every rank needs a port of its own on every rail"
    )]
    SharedAddress {
        /// The lower rank.
        first: Rank,
        /// The higher rank.
        second: Rank,
        /// The address of both.
        address: SocketAddrV4,
    },
    /// A peer's card does not fit this job: start all ranks of one job with the same program and
    /// secret.
    #[error("the key card of rank {rank} {fault}")]
    Card {
        /// Whose card.
        rank: Rank,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// The job secret could be guessed: give a longer one.
    #[error("the job secret has {length} bytes; give at least {least} random ones")]
    ShortSecret {
        /// Bytes given.
        length: usize,
        /// Bytes needed.
        least: usize,
    },
    /// The sealed group key is none: it was changed, meant for another rank, or is older than the
    /// one in use.
    #[error("what rank {from} sealed is no newer group key for this rank; seal a new one for it")]
    GroupKey {
        /// The rank that is said to have sealed it.
        from: Rank,
    },
    /// Packets would leave this machine without protection: agree on keys, or ask for an insecure
    /// wire.
    #[error(
        "rank {rank} at {address} is on another machine, and there are no keys; agree on keys through the launcher, or \
         ask for an insecure wire"
    )]
    Unprotected {
        /// The first such peer.
        rank: Rank,
        /// Its address.
        address: SocketAddrV4,
    },
    /// The keys are those of another rank, job or list of peers: agree for this one.
    #[error(
        "the keys are those of {keys}, but the wire is {wire}; agree with the cards of this job"
    )]
    ForeignKeys {
        /// Whom the keys were made for.
        keys: JobMember,
        /// The rank that opens the wire.
        wire: JobMember,
    },
    /// The wire has no keys: open it with keys.
    #[error("this wire has no keys, so its groups need none")]
    NoKeys,
    /// The multicast base leaves no room for groups, or the port is bound to no particular
    /// interface.
    #[error(
        "cannot multicast to {base} from {interface}; bind to one interface's address and use a base of 239.0.0.0/8 \
         below 239.255.0.0"
    )]
    Multicast {
        /// The base address asked for.
        base: Ipv4Addr,
        /// The address that was bound.
        interface: Ipv4Addr,
    },
    /// The list of local ranks makes no sense: correct it.
    #[error(
        "rank {rank} cannot share memory with a list of {ranks} ranks; list at most {most} ranks of this host in \
         ascending order, this one included"
    )]
    ShmRanks {
        /// This end's rank.
        rank: Rank,
        /// Entries in the list.
        ranks: usize,
        /// The longest list.
        most: usize,
    },
    /// The length of rings makes no sense: choose another.
    #[error("a ring of {ring} bytes cannot be used; choose a power of two from {least} to {most} bytes", ring = ring.0, least = least.0, most = most.0)]
    ShmRing {
        /// What was asked for.
        ring: Bytes,
        /// The shortest.
        least: Bytes,
        /// The longest.
        most: Bytes,
    },
    /// The machine has not enough memory for the rings: free some, or use fewer ranks or shorter
    /// rings.
    #[error(
        "shared memory for {ranks} ranks takes {} MiB for each rank and {} MiB are free; use fewer ranks on this \
         host or shorter rings", needed.0.div_ceil(1 << 20), available.0 >> 20
    )]
    ShmMemory {
        /// Ranks of this host.
        ranks: usize,
        /// Bytes of one rank's part.
        needed: Bytes,
        /// Bytes that the machine could give.
        available: Bytes,
    },
    /// Another process is this rank already: use another session number, or end it.
    #[error(
        "another process of this host is rank {rank} of session {session:016x} already; every job needs its own"
    )]
    ShmTaken {
        /// This end's rank.
        rank: Rank,
        /// The job's number.
        session: u64,
    },
    /// Ranks did not come: they did not start, or are on another host.
    #[error(
        "rank {first} and {others} others did not come to this host's shared memory within {} ms; only ranks of one host \
         and one network namespace can share memory", within.0 / 1_000_000
    )]
    ShmAbsent {
        /// The first that is missing.
        first: Rank,
        /// How many more are missing.
        others: usize,
        /// How long this rank waited.
        within: Nanos,
    },
    /// The user of the wire is gone: nothing is to be done.
    #[error("this rank's run ended while it waited for the other ranks of its host")]
    ShmForsaken,
    /// More PEs on this host than can be near: start fewer.
    #[error("{places} PEs were started on one host; at most {most} can share its memory")]
    NearPlaces {
        /// PEs of this host.
        places: usize,
        /// The most that can be.
        most: usize,
    },
    /// More PEs in a job than a host has lines for, or fewer than are near: start fewer.
    #[error("a job of {owners} PEs was started; start at most {most}")]
    NearOwners {
        /// PEs of the job.
        owners: usize,
        /// The most that can be.
        most: usize,
    },
    /// No address space holds such heaps: ask for less.
    #[error(
        "{places} symmetric heaps of {heap} bytes do not fit into an address space; ask for smaller ones"
    )]
    NearHeap {
        /// PEs of this host.
        places: usize,
        /// Bytes of a heap.
        heap: usize,
    },
    /// A PE did not come: find out why it ended.
    #[error("PE {place} of this host did not come to share memory within {} s", within.as_secs())]
    NearAbsent {
        /// Its place among those of the host.
        place: usize,
        /// How long this one waited.
        within: std::time::Duration,
    },
    /// A PE has a heap of another size: configure all PEs alike.
    #[error(
        "PE {place} of this host has a symmetric heap of another size; set the same SHMEM_SYMMETRIC_SIZE for all"
    )]
    NearShape {
        /// Its place among those of the host.
        place: usize,
    },
    /// A rank has other rings or another number of ranks: configure all alike.
    #[error(
        "rank {rank} shares memory with other lengths of rings or another list of ranks; configure all ranks alike"
    )]
    ShmShape {
        /// The other rank.
        rank: Rank,
    },
}

impl RuntimeError {
    /// Names what was asked of the system when it refused.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::System { what, cause }
    }
}

/// One rank's place in a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobMember {
    /// Its rank.
    pub rank: Rank,
    /// Ranks in the job.
    pub ranks: usize,
    /// The job's number.
    pub session: u64,
}

impl fmt::Display for JobMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {} in session {}", self.rank, self.ranks, self.session)
    }
}
