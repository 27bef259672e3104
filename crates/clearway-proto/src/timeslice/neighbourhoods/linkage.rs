//! Joins hosts to clusters by average linkage, where some distances are not known.
//!
//! # Invariants
//! I1. Heights never descend: where missing distances would let one, it takes the height of the one
//!     before.
//! I2. Equal distances are joined in the order of their clusters' numbers: the same distances give
//!     the same joints on every machine.

use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::base::Nanos;

/// Units of a height in a nanosecond: means of whole nanoseconds lie between them.
pub(super) const SCALE: u64 = 1_000;

/// A distance between two hosts.
pub(super) struct PairDistance {
    pub(super) hosts: [u32; 2],
    pub(super) distance: Nanos,
}

/// The known distances between the hosts of two clusters.
#[derive(Clone, Copy, Debug, Default)]
struct DistanceSum {
    sum: u128,
    count: u64,
}

impl DistanceSum {
    fn and(self, other: Self) -> Self {
        Self { sum: self.sum.saturating_add(other.sum), count: self.count + other.count }
    }

    /// Returns the mean in units of [`SCALE`].
    fn mean(self) -> u64 {
        let mean = self.sum.saturating_mul(u128::from(SCALE)) / u128::from(self.count.max(1));
        u64::try_from(mean).unwrap_or(u64::MAX)
    }
}

/// Two clusters become one.
#[derive(Clone, Copy, Debug)]
struct ClusterJoint {
    /// A host of each.
    hosts: [u32; 2],
    height: u64,
}

/// All joints, the lowest first.
#[derive(Debug)]
pub(super) struct Dendrogram {
    hosts: u32,
    joints: Vec<ClusterJoint>,
}

/// Clusters that are not joined yet. Their numbers ascend with every joint; those of hosts come
/// first.
struct OpenClusters {
    /// By number: the distances to the others, while it is open.
    near: Vec<BTreeMap<usize, DistanceSum>>,
    /// By number: its first host.
    first: Vec<u32>,
    /// The nearest pairs come first. A pair of which one is joined has no distance any more.
    queue: BinaryHeap<Reverse<(u64, usize, usize)>>,
}

impl Dendrogram {
    /// Joins `hosts` by their distances.
    pub(super) fn new(hosts: u32, known: impl Iterator<Item = PairDistance>) -> Self {
        let mut open = OpenClusters::new(hosts, known);
        let mut joints: Vec<ClusterJoint> = Vec::new();
        while let Some(Reverse((mean, a, b))) = open.queue.pop() {
            let Some(sum) = open.near.get(a).and_then(|near| near.get(&b)) else { continue };
            debug_assert_eq!(sum.mean(), mean, "a cluster never changes");
            let height = joints.last().map_or(mean, |below| below.height.max(mean));
            joints.push(ClusterJoint { hosts: [open.first[a], open.first[b]], height });
            open.join(a, b);
        }
        Self { hosts, joints }
    }

    /// Returns how many joints there are.
    pub(super) fn joints(&self) -> usize {
        self.joints.len()
    }

    /// Returns the height of joint `number`, in units of [`SCALE`].
    pub(super) fn height(&self, number: usize) -> Option<u64> {
        self.joints.get(number).map(|joint| joint.height)
    }

    /// Returns the first host of each host's cluster after this many joints.
    pub(super) fn cut(&self, joints: usize) -> Vec<u32> {
        let mut first: Vec<u32> = (0..self.hosts).collect();
        for ClusterJoint { hosts, .. } in self.joints.iter().take(joints) {
            let [a, b] = hosts.map(|host| root(&first, host));
            if let Some(upper) = first.get_mut(a.max(b) as usize) {
                *upper = a.min(b);
            }
        }
        (0..self.hosts).map(|host| root(&first, host)).collect()
    }

    /// Returns which hosts are in the largest cluster after all joints; of equal ones in the first.
    pub(super) fn largest(&self) -> Vec<bool> {
        let of_host = self.cut(self.joints.len());
        let mut sizes: BTreeMap<u32, usize> = BTreeMap::new();
        of_host.iter().for_each(|first| *sizes.entry(*first).or_default() += 1);
        let largest = sizes.iter().max_by_key(|(first, size)| (**size, Reverse(**first)));
        let largest = largest.map_or(0, |(first, _)| *first);
        of_host.iter().map(|first| *first == largest).collect()
    }
}

/// Returns the first host of the cluster of `host`.
fn root(first: &[u32], mut host: u32) -> u32 {
    while let Some(next) = first.get(host as usize).filter(|next| **next != host) {
        host = *next;
    }
    host
}

impl OpenClusters {
    fn new(hosts: u32, known: impl Iterator<Item = PairDistance>) -> Self {
        let mut near = vec![BTreeMap::<usize, DistanceSum>::new(); hosts as usize];
        let mut queue = BinaryHeap::new();
        for PairDistance { hosts: [a, b], distance } in known {
            let (a, b) = (a.min(b) as usize, a.max(b) as usize);
            let one = DistanceSum { sum: u128::from(distance.0), count: 1 };
            near[a].insert(b, one);
            near[b].insert(a, one);
            queue.push(Reverse((one.mean(), a, b)));
        }
        Self { near, first: (0..hosts).collect(), queue }
    }

    /// Makes one cluster of `a` and `b`.
    fn join(&mut self, a: usize, b: usize) {
        let new = self.near.len();
        let mut near = core::mem::take(&mut self.near[a]);
        for (other, sum) in core::mem::take(&mut self.near[b]) {
            near.entry(other).and_modify(|known| *known = known.and(sum)).or_insert(sum);
        }
        near.remove(&a);
        near.remove(&b);
        for (other, sum) in &near {
            let of_other = &mut self.near[*other];
            of_other.remove(&a);
            of_other.remove(&b);
            of_other.insert(new, *sum);
            self.queue.push(Reverse((sum.mean(), *other, new)));
        }
        self.near.push(near);
        self.first.push(self.first[a].min(self.first[b]));
    }
}
