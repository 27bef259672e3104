//! PEs of one host in each other's memory: heaps and statics mapped, lines to agree over, and word
//! of who is gone.
//!
//! # Model
//! The PEs that can share memory (one machine, one network namespace, one user) have *places*, 0
//! for the leader. They meet once ([`Near::open`]) and map one file with everybody's heap.
//! Operations are then loads, stores and copies by whoever asks: there is no ring, no record, no
//! thread on their way. A PE's heap exists as address space only; its owner allocates pages as its
//! allocations grow ([`Near::commit`]).
//!
//! For barriers and collectives each PE has [`SLOTS`] slots of [`LINES`] lines that only it writes
//! ([`Line`]). Others read them, and sleep on them ([`Line::wait`]). PEs of other hosts have lines
//! here too: a PE of this host writes them when it receives what they say.
//!
//! Memory beside the heaps: 64 KiB for each PE of the job and one page, so 16 MiB at 256 PEs. A PE
//! that gathers updates for another one allocates a ring of 36 KiB in front of it ([`Near::ring`]); a
//! PE that shares memory with some PEs only takes it from its pool ([`Near::pool`]).
//!
//! # Invariants
//! I1. What a neighbour had mapped stays mapped here until this process ends, whatever becomes of
//!     the neighbour.
//! I2. PEs whose network namespaces differ never meet.
//!
//! # Not here
//! What lies in a heap, a ring or a pool, who uses which slot (`clearway-shmem`). PEs of other hosts.

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
pub use memory::{Board, LINES, Line, RING_LENGTH, SLOTS};
pub use wait_policy::{WaitPolicy, Whereabouts, processor};
pub(crate) use wait_policy::{YIELD_TO_NOBODY, sleep_after};

use memory::{HostLayout, HostMemory};

use crate::RuntimeError;

/// PEs of one host that can be near: more than the processors of common machines, and what bounds
/// the memory for lines.
pub const PLACES_MAX: usize = 256;

/// PEs of a job, on all hosts: their lines take 256 MiB of each host then.
const OWNERS_MAX: usize = 4_096;

/// A part of memory that is mapped in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedPart {
    /// Its address here.
    pub start: usize,
    /// Its bytes.
    pub length: usize,
}

/// This process's statics, which it made shareable.
#[derive(Debug)]
pub struct StaticsFile {
    /// The file that is mapped where they lie; its size is sealed.
    pub file: OwnedFd,
    /// Its bytes.
    pub length: usize,
}

impl StaticsFile {
    /// Makes a file of `length` bytes that read as zero, without any page.
    ///
    /// # Errors
    /// What the system said.
    pub fn new(length: usize) -> std::io::Result<Self> {
        Ok(Self { file: memory::sealed_file("clearway-statics", length, |_| Ok(()))?, length })
    }
}

/// What a PE must know to meet the others.
#[derive(Debug)]
pub struct NearConfig {
    /// This PE's place.
    pub place: usize,
    /// How many there are.
    pub places: usize,
    /// How many PEs the job has on all hosts: each has lines here, which for those of other hosts
    /// the PEs of this host write as they hear of them.
    pub owners: usize,
    /// Bytes of each heap, the same for all.
    pub heap: usize,
    /// This PE's statics, if they can be shared.
    pub statics: Option<StaticsFile>,
    /// How long to wait for the others.
    pub patience: Duration,
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
    /// Meets the others. `leader` is the name of the entrance of the PE at place 0, `entrance` this
    /// PE's own.
    ///
    /// # Errors
    /// More PEs or longer heaps than can be, who did not come, or what the system refused.
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

    /// Returns how many PEs there are.
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
    /// What the system said: `ENOSPC` or `ENOMEM` when memory is short.
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

    /// Returns the board of the host.
    pub fn board(&self) -> &Board {
        self.memory.board()
    }

    /// Returns how the PEs keep from missing each other.
    #[inline]
    pub fn waking(&self) -> Waking {
        self.waking
    }

    /// Keeps what this process writes from now on from all others: for a child that `fork` made,
    /// which is no PE. It allocates nothing.
    ///
    /// # Errors
    /// What the system said.
    pub fn set_apart(&self) -> std::io::Result<()> {
        self.memory.set_apart()
    }

    /// Has `gone` called from now on, by a thread of its own, with the place of each PE that is
    /// gone: all others at the leader, the leader at all others. Whether it left or died is not to
    /// be seen here.
    ///
    /// # Errors
    /// The system has no room for another thread.
    pub fn watch(&self, gone: impl Fn(usize) + Send + 'static) -> Result<(), RuntimeError> {
        let lives =
            self.lives.lock().map(|mut lives| std::mem::take(&mut *lives)).unwrap_or_default();
        life::watch(lives, gone).map_err(RuntimeError::system("start a thread"))
    }
}

#[cfg(test)]
mod tests;
