//! Shared memory of the PEs of one host: mapped heaps and statics, cache lines for synchronisation,
//! and notice of PEs that end.
//!
//! # Model
//! The PEs that can share memory (one machine, one network namespace, one user) have *places*, 0
//! for the leader. They meet once ([`Near::open`]) and map one file with everybody's heap.
//! Operations are then loads, stores and copies by the calling thread, without a queue or a helper
//! thread. A PE's heap is reserved address space; its owner allocates pages as its allocations grow
//! ([`Near::commit`]).
//!
//! For barriers and collectives each PE has [`SLOTS`] slots of [`LINES`] lines that only it writes
//! ([`Line`]). Others read them, and sleep on them ([`Line::wait`]). PEs of other hosts have lines
//! here too: a PE of this host writes them when it receives their messages.
//!
//! Memory in addition to the heaps: 64 KiB for each PE of the job and one page, so 16 MiB at 256 PEs. A PE
//! that gathers updates for another one allocates a ring of 36 KiB in front of it ([`Near::ring`]); a
//! PE that shares memory with some PEs only takes it from its pool ([`Near::pool`]).
//!
//! # Invariants
//! I1. A neighbour's memory stays mapped here until this process ends, even if the neighbour ends
//!     first.
//! I2. PEs whose network namespaces differ never meet.
//!
//! # Not here
//! Contents of heaps, rings and pools, and the use of slots (`clearway-shmem`). PEs of other hosts.

mod gate;
mod life;
mod meet;
mod memory;
mod wait_policy;

use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::time::Duration;

pub use gate::{Waking, sleep_while, wake};
pub use meet::Entrance;
pub use memory::{JobStatusWords, LINES, Line, RING_LENGTH, SLOTS};
pub use wait_policy::{PeerLocation, WaitPolicy, processor};
pub(crate) use wait_policy::{YIELD_LONG, YIELD_TO_NOBODY, sleep_after};

use memory::{HostLayout, HostMemory};

use crate::RuntimeError;

/// The most PEs of one host that can share memory: more than common machines have processors. It
/// bounds the memory for lines.
pub const PLACES_MAX: usize = 256;

/// The most PEs of a job, on all hosts: their lines then take 256 MiB of each host.
const OWNERS_MAX: usize = 4_096;

/// A part of memory that is mapped in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedPart {
    /// Its address here.
    pub start: usize,
    /// Its bytes.
    pub length: usize,
}

/// The statics (global and static variables) of this process, as a file that other PEs map.
#[derive(Debug)]
pub struct StaticsFile {
    /// The file that is mapped in their place; its size is sealed.
    pub file: OwnedFd,
    /// Its bytes.
    pub length: usize,
}

impl StaticsFile {
    /// Makes a file of `length` bytes that read as zero, with no page allocated.
    ///
    /// # Errors
    /// The system's error.
    pub fn new(length: usize) -> std::io::Result<Self> {
        Ok(Self { file: memory::sealed_file("clearway-statics", length, |_| Ok(()))?, length })
    }
}

/// What a PE must know to meet the others.
#[derive(Debug)]
pub struct NearConfig {
    /// This PE's place.
    pub place: usize,
    /// PEs of this host that share memory.
    pub places: usize,
    /// PEs of the job on all hosts. Each has lines here; a PE of this host writes those of a PE of
    /// another host.
    pub owners: usize,
    /// Bytes of each heap, the same for all.
    pub heap: usize,
    /// This PE's statics, if they can be shared.
    pub statics: Option<StaticsFile>,
    /// The longest time to wait for the other PEs.
    pub timeout: Duration,
}

/// The PEs of this host, seen from one of them. It is kept until the process ends.
#[derive(Debug)]
pub struct Near {
    place: usize,
    memory: HostMemory,
    statics: Vec<Option<MappedPart>>,
    lives: Mutex<Vec<(usize, OwnedFd)>>,
    waking: Waking,
}

impl Near {
    /// Meets the other PEs and maps their memory. `leader` is the name of the entrance of the PE at
    /// place 0, `entrance` this PE's own.
    ///
    /// # Errors
    /// There are too many PEs or too large heaps, a PE did not come, or the system refused a call.
    pub fn open(
        entrance: Entrance,
        leader: u64,
        config: &NearConfig,
    ) -> Result<Self, RuntimeError> {
        if config.places > PLACES_MAX || config.place >= config.places {
            return Err(RuntimeError::NearPlaces { places: config.places, most: PLACES_MAX });
        }
        if !(config.places..=OWNERS_MAX).contains(&config.owners) {
            return Err(RuntimeError::NearOwners { owners: config.owners, most: OWNERS_MAX });
        }
        let layout = HostLayout::new(config.places, config.owners, config.heap);
        let layout =
            layout.ok_or(RuntimeError::NearHeap { places: config.places, heap: config.heap })?;
        let waking = if gate::register() { Waking::SleeperFences } else { Waking::BothFence };
        let met = if config.place == 0 {
            meet::lead(entrance, config, layout)
        } else {
            meet::follow(leader, config, layout)
        }?;
        let meet::MetNeighbours { memory, statics, lives } = met;
        Ok(Self { place: config.place, memory, statics, lives: Mutex::new(lives), waking })
    }

    /// Returns how many PEs share this memory.
    pub fn places(&self) -> usize {
        self.memory.layout().places
    }

    /// Returns the heap of the PE at `place`.
    pub fn heap(&self, place: usize) -> MappedPart {
        MappedPart { start: self.memory.heap(place), length: self.memory.layout().heap }
    }

    /// Returns the statics of another PE, if it shares any.
    pub fn statics(&self, place: usize) -> Option<MappedPart> {
        self.statics.get(place).copied().flatten()
    }

    /// Allocates the bytes of this PE's heap from `from` to `to`. They read as zero if they were
    /// never used.
    ///
    /// # Errors
    /// The system's error: `ENOSPC` or `ENOMEM` when memory is short.
    pub fn commit(&self, from: usize, to: usize) -> std::io::Result<()> {
        self.memory.commit(self.place, from, to)
    }

    /// Returns the ring to the PE at `target` that the one at `source` fills. Nobody may touch it
    /// before [`Near::commit_ring`].
    pub fn ring(&self, target: usize, source: usize) -> MappedPart {
        self.memory.mapped(self.memory.layout().ring(target, source))
    }

    /// Allocates the ring to the PE at `target` that this PE fills. Its bytes read as zero.
    ///
    /// # Errors
    /// As [`Near::commit`].
    pub fn commit_ring(&self, target: usize) -> std::io::Result<()> {
        let ring = self.memory.layout().ring(target, self.place);
        self.memory.commit_part(ring, 0, RING_LENGTH)
    }

    /// Returns the pool of the PE at `place`, of which its owner allocates parts.
    pub fn pool(&self, place: usize) -> MappedPart {
        self.memory.mapped(self.memory.layout().pool(place))
    }

    /// Allocates the bytes of this PE's pool from `from` to `to`.
    ///
    /// # Errors
    /// As [`Near::commit`].
    pub fn commit_pool(&self, from: usize, to: usize) -> std::io::Result<()> {
        self.memory.commit_part(self.memory.layout().pool(self.place), from, to)
    }

    /// Returns a line of PE `owner` of the job.
    #[inline]
    pub fn line(&self, owner: usize, slot: usize, line: usize) -> &Line {
        self.memory.line(owner, slot, line)
    }

    /// Returns the words that all PEs of the host share.
    pub fn status_words(&self) -> &JobStatusWords {
        self.memory.status_words()
    }

    /// Returns how sleepers and wakers avoid lost wake-ups.
    #[inline]
    pub fn waking(&self) -> Waking {
        self.waking
    }

    /// Makes later writes of this process private: for a child of `fork`, which is no PE. It
    /// allocates no memory.
    ///
    /// # Errors
    /// The system's error.
    pub fn set_apart(&self) -> std::io::Result<()> {
        self.memory.set_apart()
    }

    /// Starts a thread that calls `gone` with the place of each PE that ended. The leader watches all
    /// other PEs, and these watch the leader. A PE that left and one that died look alike.
    ///
    /// # Errors
    /// The system cannot start another thread.
    pub fn watch(&self, gone: impl Fn(usize) + Send + 'static) -> Result<(), RuntimeError> {
        let lives =
            self.lives.lock().map(|mut lives| std::mem::take(&mut *lives)).unwrap_or_default();
        life::watch(lives, gone).map_err(RuntimeError::system("start a thread"))
    }
}

#[cfg(test)]
mod tests;
