//! The trees by which members report and hand on: pure functions of the members, their leaves, who
//! is out and the root.
//!
//! # Model
//! Members stand in an order that begins with the root: leaf by leaf from the root's on, within a
//! leaf in the order of the list.
//! - *Reports* climb a tree. The first of each leaf is its leader; members report to their leader
//!   and leaders to the root's, in heaps of fan-out 8 each, so that nobody hears more than 16. In
//!   one single leaf it is one heap of fan-out 16.
//! - A *chain* follows the order. It crosses each link between leaves once.
//! - *Segments* are leaves within which the network copies: the first of each, its *head*, sends to
//!   the group, the last hands on along the chain. So each member sends everything once at most,
//!   and each link between leaves carries it once.
//! - A *hand-on tree* is 4-nomial over the order ([`children`]). Rounds of unequal length make it
//!   faster than a 4-ary heap.
//!
//! # Invariants
//! I1. Everybody but the root has exactly one parent in each of the three, and it is alive.
//! I2. Any root gives a tree without new agreement: the order only turns.

use alloc::vec::Vec;

use super::frame::{REMOVED_MAX, RemovedMembers};
use crate::base::{Rank, children, parent};

/// The most children of one member: 16 reports can be awaited and merged in some microseconds;
/// three levels reach 4,000.
const FAN_OUT: usize = 16;
/// The same in each of two heaps that share members.
const HALF: usize = FAN_OUT / 2;

/// One of those that a cast is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its rank.
    pub rank: Rank,
    /// Which leaf of the network it hangs at: members of one leaf reach each other without crossing
    /// others' links.
    pub leaf: u32,
}

/// The members that take part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct View {
    root: u16,
    removed: RemovedMembers,
    /// In the list, removed or not.
    members: u32,
}

impl View {
    /// Creates everybody, with the member at place `root` sending.
    pub(super) fn first(members: usize, root: u16) -> Self {
        Self { root, removed: RemovedMembers::NONE, members: members as u32 }
    }

    /// Creates a view as another member announced it; `None` when it makes no sense.
    pub(super) fn parse(word: u32, removed: RemovedMembers, members: usize) -> Option<Self> {
        let view = Self { root: word as u16, removed, members: members as u32 };
        let out = removed.as_slice();
        let distinct = (1..out.len()).all(|at| !out[..at].contains(&out[at]));
        let known = out.iter().all(|place| usize::from(*place) < members);
        (view.word() == word && view.is_in(view.root) && distinct && known).then_some(view)
    }

    /// Returns the number that stands in every header. Of two views the one with the greater number
    /// is the later one.
    pub(super) fn word(&self) -> u32 {
        (self.removed.as_slice().len() as u32) << 16 | u32::from(self.root)
    }

    pub(super) const fn root(&self) -> u16 {
        self.root
    }

    pub(super) const fn removed(&self) -> &RemovedMembers {
        &self.removed
    }

    pub(super) fn is_in(&self, place: u16) -> bool {
        u32::from(place) < self.members && !self.removed.as_slice().contains(&place)
    }

    /// Returns how many take part.
    pub(super) fn count(&self) -> u32 {
        self.members - self.removed.as_slice().len() as u32
    }

    /// Returns all places that take part, in the order of the list.
    pub(super) fn places(&self) -> impl Iterator<Item = u16> + '_ {
        (0..self.members as u16).filter(|place| self.is_in(*place))
    }

    /// Returns this view without `place`, and with another root if the root goes; `None` when no
    /// header could tell, or nobody is left.
    pub(super) fn without(&self, place: u16, root: u16) -> Option<Self> {
        let mut next = self.clone();
        if !self.is_in(place) || self.removed.as_slice().len() == REMOVED_MAX {
            return None;
        }
        next.removed.push(place).then_some(())?;
        next.root = root;
        next.is_in(root).then_some(next)
    }

    /// Returns whether this came of `before`, by others that went.
    pub(super) fn follows(&self, before: &Self) -> bool {
        self.removed.as_slice().starts_with(before.removed.as_slice())
    }

    /// Returns whether this may follow `before` on silence alone: more than half of it is left, or
    /// half of it with its root. Of two such views that differ somebody is in both, and joins only
    /// one.
    pub(super) fn may_follow(&self, before: &Self) -> bool {
        let (left, of) = (self.count() * 2, before.count());
        left > of || left == of && self.is_in(before.root)
    }
}

/// The neighbours of a member in the trees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TreeLinks {
    /// To whom it reports.
    pub(super) parent: Option<u16>,
    /// The members that report to it.
    pub(super) children: Vec<u16>,
    /// From whom the chain comes, and where it goes on.
    pub(super) before: Option<u16>,
    pub(super) after: Option<u16>,
    /// The same in the hand-on tree.
    pub(super) elder: Option<u16>,
    pub(super) juniors: Vec<u16>,
    /// Next to it at the same leaf.
    pub(super) near: Option<u16>,
    /// Its place in its leaf's segment.
    pub(super) is_head: bool,
    pub(super) is_last: bool,
}

impl TreeLinks {
    /// Creates the `TreeLinks` of the member at place `me`. O(n log n).
    pub(super) fn new(members: &[Member], view: &View, me: u16) -> Self {
        let order = order(members, view);
        let Some(at) = order.iter().position(|place| *place == me) else { return Self::default() };
        let mut links = Self {
            before: at.checked_sub(1).map(|before| order[before]),
            after: order.get(at + 1).copied(),
            elder: parent(at).map(|elder| order[elder]),
            juniors: children(at, order.len()).map(|junior| order[junior]).collect(),
            ..Self::default()
        };
        let leaf = |place: &u16| members[usize::from(*place)].leaf;
        let leaves: Vec<&[u16]> = order.chunk_by(|a, b| leaf(a) == leaf(b)).collect();
        let fan_out = if leaves.len() == 1 { FAN_OUT } else { HALF };
        let own = leaves.iter().position(|leaf| leaf.contains(&me)).unwrap_or_default();
        let within = leaves[own].iter().position(|place| *place == me).unwrap_or_default();
        links.parent = match (within, own) {
            (0, 0) => None,
            (0, own) => Some(leaves[(own - 1) / fan_out][0]),
            (within, own) => Some(leaves[own][(within - 1) / fan_out]),
        };
        let root = view.root;
        let neighbours = within.checked_sub(1).into_iter().chain([within + 1]);
        links.near =
            neighbours.filter_map(|at| leaves[own].get(at).copied()).find(|place| *place != root);
        links.is_head = within == 0;
        links.is_last = within + 1 == leaves[own].len();
        links.children.extend(
            heap_children(within, fan_out, leaves[own].len()).map(|child| leaves[own][child]),
        );
        if within == 0 {
            links
                .children
                .extend(heap_children(own, fan_out, leaves.len()).map(|leaf| leaves[leaf][0]));
        }
        links
    }
}

/// Returns all that take part, from the root on. O(n) where the list is in the order of leaves:
/// then only its halves change places.
fn order(members: &[Member], view: &View) -> Vec<u16> {
    let root = usize::from(view.root);
    let first = members.get(root).map_or(0, |root| root.leaf);
    let turned = (root..members.len()).chain(0..root).map(|place| place as u16);
    let mut order: Vec<u16> = turned.filter(|place| view.is_in(*place)).collect();
    order.sort_by_key(|place| members[usize::from(*place)].leaf.wrapping_sub(first));
    order
}

fn heap_children(at: usize, fan_out: usize, length: usize) -> core::ops::Range<usize> {
    let first = (at * fan_out + 1).min(length);
    first..(first + fan_out).min(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    fn members(count: u32, leaf: u32) -> Vec<Member> {
        (0..count).map(|rank| Member { rank: Rank(rank), leaf: rank / leaf }).collect()
    }

    fn depth(links: &[TreeLinks], mut place: u16, up: fn(&TreeLinks) -> Option<u16>) -> usize {
        let mut depth = 0;
        while let Some(next) = up(&links[usize::from(place)]) {
            place = next;
            depth += 1;
            assert!(depth <= links.len(), "a ring at {place}");
        }
        depth
    }

    #[test]
    fn links__everybody_is_reached_once_from_any_root() {
        for (count, leaf, root) in
            [(1, 4, 0), (2, 4, 1), (17, 100, 5), (18, 100, 0), (64, 8, 63), (300, 7, 123)]
        {
            let members = members(count, leaf);
            let view = View::first(count as usize, root);
            let links: Vec<TreeLinks> =
                (0..count as u16).map(|me| TreeLinks::new(&members, &view, me)).collect();
            for (get, up) in [
                (
                    (|l: &TreeLinks| l.children.clone()) as fn(&TreeLinks) -> Vec<u16>,
                    (|l: &TreeLinks| l.parent) as fn(&TreeLinks) -> _,
                ),
                (|l| l.after.into_iter().collect(), |l| l.before),
                (|l| l.juniors.clone(), |l| l.elder),
            ] {
                let below: Vec<(u16, u16)> = (0..count as u16)
                    .flat_map(|me| get(&links[usize::from(me)]).into_iter().map(move |c| (me, c)))
                    .collect();
                let reached: BTreeSet<u16> = below.iter().map(|(_, child)| *child).collect();
                assert_eq!(
                    (below.len(), reached.len()),
                    (count as usize - 1, count as usize - 1),
                    "{count} {root}"
                );
                assert!(
                    below.iter().all(|(me, child)| up(&links[usize::from(*child)]) == Some(*me))
                );
                assert!((0..count as u16).all(|me| depth(&links, me, up) < count as usize));
                assert_eq!(up(&links[usize::from(root)]), None);
            }
            assert!(links.iter().all(|links| links.children.len() <= FAN_OUT), "{count} {leaf}");
        }
    }

    #[test]
    fn links__who_is_out_is_nobodys_neighbour() {
        let members = members(9, 3);
        let view = View::first(9, 4)
            .without(3, 4)
            .and_then(|view| view.without(4, 5))
            .expect("two are out");
        let all: Vec<TreeLinks> = (0..9).map(|me| TreeLinks::new(&members, &view, me)).collect();
        assert_eq!((all[3].clone(), all[4].clone()), (TreeLinks::default(), TreeLinks::default()));
        let mut heard: Vec<u16> = all.iter().flat_map(|links| links.children.clone()).collect();
        heard.sort_unstable();
        assert_eq!(heard, [0, 1, 2, 6, 7, 8], "5 is the root");
        assert_eq!(all[8].after, Some(0), "the chain turns with the root");
    }

    #[test]
    fn links__ten_thousand_members_have_a_low_tree() {
        let members = members(10_000, 32);
        let view = View::first(10_000, 0);
        let place = |me| TreeLinks::new(&members, &view, me);
        let mut hops = 0;
        let mut at = 9_999;
        while let Some(parent) = place(at).parent {
            at = parent;
            hops += 1;
        }
        assert!(hops <= 5, "{hops}");
        assert!(place(0).children.len() <= FAN_OUT);
    }

    #[test]
    fn view__comes_back_from_what_is_reported_and_nonsense_does_not() {
        let view = View::first(5, 2).without(2, 0).expect("four are left");
        assert_eq!(View::parse(view.word(), *view.removed(), 5), Some(view.clone()));
        assert_eq!(View::parse(view.word() + 1, *view.removed(), 2), None, "place 2 of 2");
        assert_eq!(View::parse(0x0001_0002, *view.removed(), 5), None, "the root is out");
        assert_eq!(
            View::parse(0x0002_0000, *view.removed(), 5),
            None,
            "another number of removed ones"
        );
        assert_eq!(view.without(2, 0), None);
    }

    #[test]
    fn may_follow__no_two_views_that_differ() {
        let four = View::first(4, 0);
        let with_root =
            four.without(2, 0).and_then(|view| view.without(3, 0)).expect("two are left");
        let without_root =
            four.without(0, 2).and_then(|view| view.without(1, 2)).expect("two are left");
        assert!(with_root.may_follow(&four) && !without_root.may_follow(&four));
        assert!(four.without(0, 1).expect("three are left").may_follow(&four));
    }
}
