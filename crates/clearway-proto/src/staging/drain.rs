//! In which order versions of files leave for the backing store.
//!
//! # Model
//! A backing store has *targets* that fail and fill by themselves: a directory, a server. Of each
//! target the owners of files get equal shares, of an owner's share the classes get theirs
//! ([`TagScheduler`]), and inside a class what is due first leaves first ([`DeadlineQueue`]). So a
//! class that a user gives to its files takes nothing from other users. A version takes the place of an older one of its file that has
//! not begun, and keeps the older one's deadline: a file that changes all the time is drained all
//! the same.
//!
//! A target that makes no progress is *parked*: its files wait, those of others leave. It is tried
//! again after a pause, with one file, until one is through.
//!
//! # Invariants
//! I1. One version of a file is under way at a time.
//! I2. Nothing waits behind a file of another target.
//! I3. A version leaves, or a later one of its file.
//!
//! # Not here
//! The copy itself, and rates: the application moves bytes as fast as they may go.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{InodeId, WallNs};
use crate::base::{BitsPerSec, Bytes, Class, LocalNs, Nanos};
use crate::flow::{DeadlineQueue, ServiceChoice, ServiceShare, TagScheduler};

/// Returns the share of this weight.
const fn share(weight: u32) -> ServiceShare {
    ServiceShare { reservation: BitsPerSec(0), weight, limit: None }
}

/// A part of the backing store that fails by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DrainTarget(pub u32);

/// A version of a file that can be drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainJob {
    /// The file.
    pub inode: InodeId,
    /// The version.
    pub version: u64,
    /// Bytes that its turn copies: at most those of one pass.
    pub size: u64,
    /// The user whose share it takes.
    pub owner: u32,
    /// The class of the traffic.
    pub class: Class,
    /// Its place among the files of its class: the earliest begins first.
    pub deadline: WallNs,
}

/// How a copy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainEnd {
    /// The version is durable in the backing store.
    Durable,
    /// The file was changed meanwhile: its new version was or will be reported.
    Superseded,
    /// The target made no progress.
    Stuck,
}

/// How a target is drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainLimits {
    /// Files under way at a time.
    pub files: u32,
    /// How long a target that is stuck is left alone.
    pub pause: Nanos,
}

/// Files of one owner that wait.
#[derive(Debug, Default)]
struct OwnerQueue {
    tags: TagScheduler<Class>,
    waiting: BTreeMap<Class, DeadlineQueue<InodeId>>,
}

#[derive(Debug)]
struct TargetQueue {
    limits: DrainLimits,
    weights: Vec<(Class, u32)>,
    owner_tags: TagScheduler<u32>,
    /// The owners of files that wait or waited.
    owners: BTreeMap<u32, OwnerQueue>,
    /// Files under way.
    under_way: BTreeMap<InodeId, DrainJob>,
    /// Until when it is left alone; none while it works.
    parked: Option<LocalNs>,
}

/// The jobs of all targets.
#[derive(Debug, Default)]
pub struct DrainOrder {
    targets: BTreeMap<DrainTarget, TargetQueue>,
    /// The newest job of each file that has not begun, and its target.
    jobs: BTreeMap<InodeId, (DrainTarget, DrainJob)>,
}

impl DrainOrder {
    /// Adds a target, with the weights of the classes; a class without one is not drained to it.
    pub fn add_target(
        &mut self,
        target: DrainTarget,
        limits: DrainLimits,
        weights: &[(Class, u32)],
    ) {
        let queue = TargetQueue {
            limits,
            weights: weights.to_vec(),
            owner_tags: TagScheduler::default(),
            owners: BTreeMap::new(),
            under_way: BTreeMap::new(),
            parked: None,
        };
        self.targets.insert(target, queue);
    }

    /// Notes that a version can be drained to `target`.
    pub fn push(&mut self, now: LocalNs, target: DrainTarget, job: DrainJob) {
        let Some(queue) = self.targets.get_mut(&target) else { return };
        match self.jobs.get_mut(&job.inode) {
            Some((_, waiting)) => {
                // Its place in the order stays, so that it is not put off for ever.
                let DrainJob { owner, class, deadline, .. } = *waiting;
                *waiting = DrainJob { owner, class, deadline, ..job };
            }
            None => {
                self.jobs.insert(job.inode, (target, job));
                // Behind a version that is under way it is put into the order when that one ends.
                if !queue.under_way.contains_key(&job.inode) {
                    queue.enqueue(now, &job);
                }
            }
        }
    }

    /// Forgets a file that is gone.
    pub fn forget(&mut self, inode: InodeId) {
        if let Some((target, job)) = self.jobs.remove(&inode)
            && let Some(queue) = self.targets.get_mut(&target)
            && let Some(owner) = queue.owners.get_mut(&job.owner)
            && let Some(waiting) = owner.waiting.get_mut(&job.class)
        {
            waiting.retain(|other| *other != inode);
            owner.tags.withdraw(job.class);
            queue.owner_tags.withdraw(job.owner);
        }
    }

    /// Forgets all jobs that have not begun.
    pub fn forget_waiting(&mut self) {
        self.jobs.clear();
        self.targets.values_mut().for_each(TargetQueue::clear);
    }

    /// Takes the job that begins next at `now`, of any target that takes one.
    pub fn begin(&mut self, now: LocalNs) -> Option<(DrainTarget, DrainJob)> {
        for (target, queue) in &mut self.targets {
            if let Some(inode) = queue.begin(now) {
                let (_, job) = self.jobs.remove(&inode)?;
                queue.under_way.insert(inode, job);
                return Some((*target, job));
            }
        }
        None
    }

    /// Takes the end of a job that was begun.
    pub fn end(&mut self, now: LocalNs, inode: InodeId, end: DrainEnd) {
        let queue = self.targets.iter_mut().find(|(_, q)| q.under_way.contains_key(&inode));
        let Some((target, queue)) = queue else { return };
        let (target, Some(job)) = (*target, queue.under_way.remove(&inode)) else { return };
        queue.parked = (end == DrainEnd::Stuck).then(|| now + queue.limits.pause);
        match self.jobs.get(&inode) {
            Some((_, later)) => queue.enqueue(now, later),
            None if end == DrainEnd::Stuck => {
                self.jobs.insert(inode, (target, job));
                queue.enqueue(now, &job);
            }
            None => {}
        }
    }

    /// Returns when a parked target is tried again.
    pub fn deadline(&self) -> Option<LocalNs> {
        let parked = self.targets.values().filter(|queue| queue.under_way.is_empty());
        parked.filter_map(|queue| queue.parked).min()
    }

    /// Returns the targets that are left alone: somebody should look at them.
    pub fn parked(&self) -> impl Iterator<Item = DrainTarget> {
        self.targets.iter().filter(|(_, queue)| queue.parked.is_some()).map(|(target, _)| *target)
    }
}

impl TargetQueue {
    /// Forgets the files that wait. What was served counts.
    fn clear(&mut self) {
        self.owner_tags.withdraw_all();
        for owner in self.owners.values_mut() {
            owner.tags.withdraw_all();
            owner.waiting.clear();
        }
    }

    fn enqueue(&mut self, now: LocalNs, job: &DrainJob) {
        if !self.owners.contains_key(&job.owner) {
            let mut queue = OwnerQueue::default();
            for (class, weight) in &self.weights {
                queue.tags.set_share(*class, share(*weight));
            }
            self.owners.insert(job.owner, queue);
            self.owner_tags.set_share(job.owner, share(1));
        }
        let Some(queue) = self.owners.get_mut(&job.owner) else { return };
        let size = Bytes(job.size);
        queue.waiting.entry(job.class).or_default().push(job.deadline.0, size, job.inode);
        // A file without bytes costs its names all the same.
        let cost = size.max(Bytes(4096));
        queue.tags.request(now, job.class, cost);
        self.owner_tags.request(now, job.owner, cost);
    }

    /// Takes the file that begins next.
    fn begin(&mut self, now: LocalNs) -> Option<InodeId> {
        let files = match self.parked {
            Some(until) if until > now => 0,
            Some(_) => 1,
            None => self.limits.files,
        };
        while (self.under_way.len() as u32) < files {
            let ServiceChoice::Serve(owner) = self.owner_tags.choose(now) else { return None };
            if let Some(inode) = self.owners.get_mut(&owner).and_then(|queue| queue.begin(now)) {
                return Some(inode);
            }
        }
        None
    }
}

impl OwnerQueue {
    /// Takes the file of this owner that begins next.
    fn begin(&mut self, now: LocalNs) -> Option<InodeId> {
        let ServiceChoice::Serve(class) = self.tags.choose(now) else { return None };
        let waiting = self.waiting.get_mut(&class)?;
        waiting.pop_first(|_| true).map(|(_, inode)| inode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::RandomKey;
    use alloc::collections::BTreeSet;

    const HERE: DrainTarget = DrainTarget(0);
    const THERE: DrainTarget = DrainTarget(1);

    fn order() -> DrainOrder {
        let mut order = DrainOrder::default();
        let limits = DrainLimits { files: 2, pause: Nanos(100) };
        let weights = [(Class::Bulk, 3), (Class::Scavenger, 1)];
        [HERE, THERE].into_iter().for_each(|target| order.add_target(target, limits, &weights));
        order
    }

    fn job(inode: u64, version: u64, deadline: u64) -> DrainJob {
        let (class, size) = (Class::Bulk, 1 << 20);
        let (inode, deadline) = (InodeId(inode), WallNs(deadline));
        DrainJob { inode, version, size, owner: 0, class, deadline }
    }

    fn begun(order: &mut DrainOrder, now: u64) -> Vec<(u32, u64, u64)> {
        let begun = core::iter::from_fn(|| order.begin(LocalNs(now)));
        begun.map(|(target, job)| (target.0, job.inode.0, job.version)).collect()
    }

    #[test]
    fn begin__what_is_due_first_leaves_first_and_a_later_version_in_its_place() {
        let mut order = order();
        for (inode, version, deadline) in [(2, 1, 30), (3, 1, 10), (4, 1, 20), (3, 2, 99)] {
            order.push(LocalNs(0), HERE, job(inode, version, deadline));
        }
        assert_eq!(begun(&mut order, 0), [(0, 3, 2), (0, 4, 1)]);
        // A version of a file that is under way waits for its end.
        order.push(LocalNs(0), HERE, job(4, 2, 5));
        order.end(LocalNs(1), InodeId(3), DrainEnd::Durable);
        assert_eq!(begun(&mut order, 1), [(0, 2, 1)]);
        order.end(LocalNs(2), InodeId(4), DrainEnd::Superseded);
        assert_eq!(begun(&mut order, 2), [(0, 4, 2)]);
        order.push(LocalNs(0), HERE, job(9, 1, 5));
        order.forget(InodeId(9));
        for inode in [2, 4] {
            order.end(LocalNs(3), InodeId(inode), DrainEnd::Durable);
        }
        assert_eq!(begun(&mut order, 3), []);
    }

    #[test]
    fn begin__owners_take_turns_by_bytes_whatever_class_one_of_them_chooses() {
        let mut order = order();
        let mib = 1 << 20;
        for inode in 0..8 {
            let large = DrainJob { size: 4 * mib, owner: 1, ..job(10 + inode, 1, inode) };
            order.push(LocalNs(0), HERE, large);
            let class = Class::Scavenger;
            order.push(LocalNs(0), HERE, DrainJob { owner: 2, class, ..job(20 + inode, 1, 99) });
        }
        let mut owners = Vec::new();
        while let Some((_, job)) = order.begin(LocalNs(0)) {
            owners.push(job.owner);
            order.end(LocalNs(0), job.inode, DrainEnd::Durable);
        }
        // Eight small files are as many bytes as two large ones.
        let behind = owners.iter().rposition(|owner| *owner == 2).expect("drained");
        assert_eq!(owners[..behind].iter().filter(|owner| **owner == 1).count(), 2, "{owners:?}");
        assert_eq!(owners.len(), 16);
    }

    #[test]
    fn begin__a_file_that_goes_before_its_turn_costs_its_owner_nothing() {
        let mut order = order();
        let owned = |owner, inode, size| DrainJob { size, owner, ..job(inode, 1, inode) };
        order.push(LocalNs(0), HERE, owned(2, 20, 1 << 40));
        order.forget(InodeId(20));
        for inode in 0..4 {
            order.push(LocalNs(0), HERE, owned(1, 30 + inode, 1 << 20));
            order.push(LocalNs(0), HERE, owned(2, 40 + inode, 1 << 20));
        }
        assert_eq!(begun(&mut order, 0), [(0, 30, 1), (0, 40, 1)]);
    }

    #[test]
    fn begin__a_stuck_target_is_parked_and_tried_with_one_file() {
        let mut order = order();
        for inode in 2..6 {
            order.push(LocalNs(0), HERE, job(inode, 1, inode));
            order.push(LocalNs(0), THERE, job(inode + 10, 1, inode));
        }
        assert_eq!(begun(&mut order, 0), [(0, 2, 1), (0, 3, 1), (1, 12, 1), (1, 13, 1)]);
        for inode in [2, 3] {
            order.end(LocalNs(10), InodeId(inode), DrainEnd::Stuck);
        }
        for inode in [12, 13] {
            order.end(LocalNs(10), InodeId(inode), DrainEnd::Durable);
        }
        assert_eq!(order.parked().collect::<Vec<_>>(), [HERE]);
        // The other one continues.
        assert_eq!(begun(&mut order, 11), [(1, 14, 1), (1, 15, 1)]);
        assert_eq!(order.deadline(), Some(LocalNs(110)));
        assert_eq!(begun(&mut order, 110), [(0, 2, 1)]);
        order.end(LocalNs(120), InodeId(2), DrainEnd::Durable);
        assert_eq!(begun(&mut order, 120), [(0, 3, 1), (0, 4, 1)]);
        assert_eq!(order.parked().count(), 0);
    }

    #[test]
    fn begin__whatever_happens_the_last_version_of_each_file_is_drained() {
        for seed in 0..200 {
            let mut stream = RandomKey::new(seed).purpose("drain order").stream();
            let mut order = order();
            let (mut last, mut drained) = (BTreeMap::new(), BTreeMap::new());
            let (mut under_way, mut now) = (BTreeMap::new(), 0);
            for step in 0..2_000 {
                now += stream.below(30);
                let inode = 2 + stream.below(9);
                if step < 500 && stream.below(3) == 0 {
                    let version = last.get(&inode).map_or(1, |version| version + 1);
                    last.insert(inode, version);
                    let class = [Class::Bulk, Class::Scavenger][stream.below(2) as usize];
                    let target = DrainTarget(inode as u32 % 2);
                    let job = job(inode, version, now + stream.below(1_000));
                    let owner = stream.below(3) as u32;
                    order.push(LocalNs(now), target, DrainJob { owner, class, ..job });
                }
                if let Some((target, job)) = order.begin(LocalNs(now)) {
                    let before = under_way.insert(job.inode.0, (target, job));
                    assert!(before.is_none(), "seed {seed}: two versions of a file under way");
                    let of_target = under_way.values().filter(|(other, _)| *other == target);
                    assert!(of_target.count() <= 2, "seed {seed}");
                }
                let inodes: BTreeSet<u64> = under_way.keys().copied().collect();
                for inode in inodes {
                    if stream.below(3) > 0 {
                        continue;
                    }
                    let Some((_, job)) = under_way.remove(&inode) else { continue };
                    let end = match stream.below(8) {
                        0 if step < 1_000 => DrainEnd::Stuck,
                        _ if last[&inode] > job.version => DrainEnd::Superseded,
                        _ => DrainEnd::Durable,
                    };
                    if end == DrainEnd::Durable {
                        drained.insert(inode, job.version);
                    }
                    order.end(LocalNs(now), InodeId(inode), end);
                }
            }
            assert_eq!(drained, last, "seed {seed}");
        }
    }
}
