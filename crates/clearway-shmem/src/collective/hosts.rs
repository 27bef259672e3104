//! Runs collectives of a team on several hosts: data crosses between hosts only once.
//!
//! # Model
//! ```text
//!   members of a host      their leader       leaders of other hosts
//!        | line: arrived       |                     |
//!        |-------------------->| all of host arrived |
//!        |                     |<== dissemination ==>|  a step, or the lines of all (Bruck)
//!        |<--------------------| all arrived         |
//! ```
//! A *leader* is the first member on a host. Members of a host synchronise in shared memory; only
//! leaders send lines to other hosts, `ceil(log2 hosts)` messages each for a step.
//!
//! Long data is divided among the members of a host: the `i`-th member exchanges its part with the
//! `i`-th members of other hosts, and its neighbours copy the result from its memory.
//!
//! | collective | on each host |
//! |---|---|
//! | broadcast | the leader fetches all, along a binomial tree of hosts |
//! | collection | the members share the blocks of other hosts |
//! | reduction | the members share the elements; each adds those of its host, then exchanges parts of its part with the other hosts' members of its number, who give each other what they computed |
//!
//! # Source
//! Reduction: the reduce-scatter and allgather of Thakur, Rabenseifner, Gropp (2005), §4.5, with
//! pairwise exchanges instead of a ring: these move as many bytes without a chain of waits.
//!
//! # Invariants
//! I1. A part of a reduction is computed by one PE, so that all have equal results.

use std::sync::Arc;

use clearway_proto::base::{Participant, Schedule};
use clearway_runtime::near::{Line, PeerLocation};

use super::Together;
use super::sync::{ALL_CAME, Gathering};
use crate::address::{Caller, Symmetric};
use crate::far::Far;
use crate::fault::Fault;
use crate::job::Reach;
use crate::operand::{Operand, ReduceOp, combine_all};
use crate::team::Members;

/// Bytes that are fetched from all other hosts and then combined.
const CHUNK: usize = 256 << 10;

/// The members of a team by host.
#[derive(Debug)]
pub(crate) struct HostPlan {
    /// The numbers of the members on each host, hosts in the order of their first members.
    hosts: Vec<Vec<usize>>,
    /// This PE's host among them, and its place there.
    own: usize,
    place: usize,
}

impl HostPlan {
    /// Sorts `members` by host, as member `me` sees them.
    pub(crate) fn new(members: Members, me: usize, far: &Far) -> Self {
        let host_of = |index: usize| far.leader_of(members.pe(index));
        let mut hosts: Vec<Vec<usize>> = Vec::new();
        for index in 0..members.size as usize {
            match hosts.iter_mut().find(|host| host_of(host[0]) == host_of(index)) {
                Some(host) => host.push(index),
                None => hosts.push(vec![index]),
            }
        }
        let own = hosts.iter().position(|host| host.contains(&me)).unwrap_or_default();
        let place = hosts[own].iter().position(|index| *index == me).unwrap_or_default();
        Self { hosts, own, place }
    }

    fn near(&self) -> &[usize] {
        &self.hosts[self.own]
    }

    fn is_near(&self, index: usize) -> bool {
        self.near().contains(&index)
    }

    /// Returns the hosts from `first` on, `count` of them.
    fn round(&self, first: usize, count: u32) -> impl Iterator<Item = &[usize]> {
        (0..count as usize).map(move |at| &*self.hosts[(first + at) % self.hosts.len()])
    }

    /// Returns how many parts a host shares out: each has a member on every host.
    fn parts(&self) -> usize {
        self.hosts.iter().map(Vec::len).min().unwrap_or(1)
    }
}

/// What leaders give each other in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepContents {
    /// That all came.
    Nothing,
    /// The lines of all members.
    Lines,
}

impl Gathering<'_> {
    /// Does the step `epoch` of members on several hosts; this PE's line shows that it arrived.
    pub(super) fn step_between_hosts(&self, far: &Far, epoch: u32, given: StepContents) {
        let plan = self.plan(far);
        far.close_open();
        let near_line = |line: &Line| {
            line.wait(epoch, &self.job.wait_policy, || PeerLocation::Unknown);
        };
        let all_came = self.numbered(plan.near()[0], ALL_CAME);
        if plan.place > 0 {
            return near_line(all_came);
        }
        for index in &plan.near()[1..] {
            near_line(self.line(*index, epoch));
        }
        self.meet_leaders(far, &plan, epoch, given);
        all_came.reach(epoch, self.job.near.waking());
    }

    fn meet_leaders(&self, far: &Far, plan: &HostPlan, epoch: u32, given: StepContents) {
        let leaders = Participant { rank: plan.own as u32, ranks: plan.hosts.len() as u32 };
        let schedule = match given {
            StepContents::Nothing => Schedule::Barrier,
            StepContents::Lines => Schedule::Allgather,
        };
        // A leader's line is enough to show that it arrived.
        let those_of = |host: usize, blocks: u32| -> Vec<usize> {
            match given {
                StepContents::Nothing => vec![plan.hosts[host][0]],
                StepContents::Lines => plan.round(host, blocks).flatten().copied().collect(),
            }
        };
        for number in 0..leaders.steps(schedule) {
            let step = leaders.step(schedule, number);
            if let Some(to) = step.to {
                let sent = those_of(plan.own, step.blocks);
                let lines =
                    sent.iter().map(|index| (self.members.pe(*index), self.line(*index, epoch)));
                let leader = self.members.pe(plan.hosts[to as usize][0]);
                far.send_lines(leader, self.slot, (epoch & 1) as usize, lines);
            }
            for index in step.from.map_or(Vec::new(), |from| those_of(from as usize, step.blocks)) {
                let line = self.line(index, epoch);
                self.job.wait(|| line.has_reached(epoch));
            }
        }
    }

    /// Returns the members by host.
    fn plan(&self, far: &Far) -> Arc<HostPlan> {
        self.entry.plan(|| HostPlan::new(self.members, self.me(), far))
    }
}

impl Together<'_> {
    /// Returns the members by host, if they are on several.
    pub(super) fn plan(&self) -> Option<Arc<HostPlan>> {
        let far = self.job.far.as_ref().filter(|_| self.all.spans_hosts())?;
        Some(self.all.plan(far))
    }

    /// Copies `bytes` bytes at `from` of a near member to the same place of this PE's `dest`.
    fn copy_near(
        &self,
        index: usize,
        from: Symmetric,
        dest: Symmetric,
        bytes: usize,
    ) -> Result<(), Fault> {
        let into = self.own(dest, bytes, "dest")?;
        self.fetch(into, self.member(index, from, bytes, "dest")?, bytes);
        Ok(())
    }

    /// Copies the root's `source` to the `dest` of all others.
    pub(super) fn broadcast_to_hosts(
        &self,
        plan: &HostPlan,
        dest: Symmetric,
        source: Symmetric,
        bytes: usize,
        root: usize,
    ) -> Result<(), Fault> {
        let hosts = plan.hosts.len();
        let first = plan.hosts.iter().position(|host| host.contains(&root)).unwrap_or_default();
        let distance = (plan.own + hosts - first) % hosts;
        self.wait();
        for level in 0..hosts.next_power_of_two().ilog2() {
            let reached = 1usize << level;
            if plan.place == 0 && (reached..2 * reached).contains(&distance) {
                let from = distance - reached;
                let (index, at) = match from {
                    0 => (root, source),
                    _ => (plan.hosts[(first + from) % hosts][0], dest),
                };
                let into = self.own(dest, bytes, "dest")?;
                self.fetch(into, self.member(index, at, bytes, "source")?, bytes);
                self.complete();
            }
            self.wait();
        }
        let me = self.all.me();
        if distance == 0 && me != root {
            self.copy_near(root, source, dest, bytes)?;
        } else if distance > 0 && plan.place > 0 {
            self.copy_near(plan.near()[0], dest, dest, bytes)?;
        }
        self.wait();
        Ok(())
    }

    /// Puts the `blocks` of all members, each a place in `dest` and a length, where they belong.
    pub(super) fn gather_blocks(
        &self,
        plan: &HostPlan,
        dest: Symmetric,
        source: Symmetric,
        blocks: &[(usize, usize)],
    ) -> Result<(), Fault> {
        let shares = plan.near().len();
        for index in self.rotated() {
            let (at, bytes) = blocks[index];
            if plan.is_near(index) || index % shares == plan.place {
                let into = self.own(dest.plus(at), bytes, "dest")?;
                self.fetch(into, self.member(index, source, bytes, "source")?, bytes);
            }
        }
        self.finish();
        for (index, (at, bytes)) in blocks.iter().enumerate() {
            if !plan.is_near(index) && index % shares != plan.place {
                let at = dest.plus(*at);
                self.copy_near(plan.near()[index % shares], at, at, *bytes)?;
            }
        }
        self.wait();
        Ok(())
    }

    /// Combines the elements of all members.
    pub(super) fn reduce_between_hosts<T: Operand>(
        &self,
        plan: &HostPlan,
        op: ReduceOp,
        dest: Symmetric,
        source: Symmetric,
        count: usize,
    ) -> Result<(), Fault> {
        let parts = plan.parts();
        let part = |number: usize| part_of(0..count, number, parts);
        self.wait();
        if plan.place < parts {
            for chunk in chunks_of::<T>(part(plan.place)) {
                let result = self.combined::<T>(
                    plan.near().iter().copied(),
                    op,
                    source,
                    chunk.start,
                    chunk.len(),
                )?;
                let (at, bytes) = extent::<T>(&chunk);
                self.own(dest.plus(at), bytes, "dest")?.put(Caller::from_slice(&result), bytes);
            }
        }
        self.wait();
        if plan.place < parts {
            let own = part_of(part(plan.place), plan.own, plan.hosts.len());
            for chunk in chunks_of::<T>(own) {
                self.exchange_chunk::<T>(plan, op, dest, chunk)?;
            }
        }
        self.finish();
        for number in (0..parts).filter(|number| *number != plan.place) {
            let (at, bytes) = extent::<T>(&part(number));
            self.copy_near(plan.near()[number], dest.plus(at), dest.plus(at), bytes)?;
        }
        self.wait();
        Ok(())
    }

    /// Combines what the hosts have of a chunk, and gives it to this PE's counterparts.
    fn exchange_chunk<T: Operand>(
        &self,
        plan: &HostPlan,
        op: ReduceOp,
        dest: Symmetric,
        chunk: std::ops::Range<usize>,
    ) -> Result<(), Fault> {
        let (at, bytes) = extent::<T>(&chunk);
        let dest = dest.plus(at);
        let reach = |host: &Vec<usize>| self.member(host[plan.place], dest, bytes, "dest");
        let mut copies = vec![vec![0u64; bytes.div_ceil(size_of::<u64>())]; plan.hosts.len()];
        for (host, copy) in plan.hosts.iter().zip(&mut copies) {
            match reach(host)? {
                Reach::Near(place) => place.get(Caller::from_slice_mut(copy), bytes),
                Reach::Far(object) => object.get_nbi(Caller::from_slice_mut(copy), bytes),
                Reach::Nothing => {}
            }
        }
        self.complete();
        let mut result: Vec<T> = Vec::new();
        for (host, copy) in copies.iter().enumerate() {
            let elements = Caller::from_slice(copy);
            match host {
                0 => result.extend((0..chunk.len()).map(|at| elements.read::<T>(at))),
                _ => combine_all(op, &mut result, elements),
            }
        }
        for host in &plan.hosts {
            match reach(host)? {
                Reach::Near(place) => place.put(Caller::from_slice(&result), bytes),
                Reach::Far(object) => object.put(Caller::from_slice(&result), bytes),
                Reach::Nothing => {}
            }
        }
        Ok(())
    }
}

/// Returns the part `number` of `parts` nearly equal ones of `all`.
fn part_of(all: std::ops::Range<usize>, number: usize, parts: usize) -> std::ops::Range<usize> {
    let cut = |number: usize| all.start + all.len() * number / parts;
    cut(number)..cut(number + 1)
}

/// Returns the pieces of `all` of at most [`CHUNK`] bytes.
fn chunks_of<T>(all: std::ops::Range<usize>) -> impl Iterator<Item = std::ops::Range<usize>> {
    let step = CHUNK / size_of::<T>();
    all.clone().step_by(step).map(move |begin| begin..all.end.min(begin + step))
}

/// Returns where a range of elements begins, and how long it is, in bytes.
fn extent<T>(elements: &std::ops::Range<usize>) -> (usize, usize) {
    (elements.start * size_of::<T>(), elements.len() * size_of::<T>())
}
