//! How users share the space and the inodes of a log.
//!
//! # Model
//! An eighth of the segments is a reserve. Outside it every user writes as much as there is space.
//! Into the reserve a user writes only while its files take less than its part: the log, divided
//! by the users with bytes in it and one more. So a user who fills the log leaves space for those
//! who have little there, and what the drain frees goes to them first. Inodes are shared by the same
//! rule.
//!
//! # Invariants
//! I1. A user with nothing in the log is refused only when the log has no space, or no inode, at all.

use super::commit::RESERVED;
use super::log::LogSpace;
use super::tree::OwnerUsage;
use crate::base::Bytes;

/// Part of the segments, and of the inodes, that is the reserve.
const RESERVE_PART: u64 = 8;

/// Limits of each user of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogShares {
    /// The most that the files of one user may take of the log, whatever is free.
    pub quota: Option<Bytes>,
}

/// Bytes that a user wants to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserWrite {
    /// The owner of the file.
    pub uid: u32,
    /// How many bytes.
    pub length: u64,
    /// Bytes of writes that were accepted and may have no place in a segment yet.
    pub unplaced: u64,
}

impl LogShares {
    /// Returns whether a write keeps to the user's share; the log itself may have no space for it.
    pub fn allow(&self, space: &LogSpace, usage: &OwnerUsage, write: UserWrite) -> bool {
        let taken = usage.amount_by(write.uid);
        let would_take = taken.saturating_add(write.length);
        if self.quota.is_some_and(|quota| would_take > quota.0) {
            return false;
        }
        let segment = space.total.0 / space.segments.max(1);
        let reserve = (space.segments / RESERVE_PART).max(1) + RESERVED as u64;
        let free = space.free.0.saturating_sub(write.unplaced);
        if free >= (segment * reserve).saturating_add(write.length) {
            return true;
        }
        would_take <= part(space.total.0, usage, write.uid)
    }

    /// Returns whether a user may make an inode, of which there may be `inodes_max`; the log itself may
    /// have none left.
    pub fn allow_inode(inodes_max: u64, usage: &OwnerUsage, uid: u32) -> bool {
        let free = inodes_max.saturating_sub(usage.owners().map(|(_, inodes)| inodes).sum());
        let part = part(inodes_max, usage, uid).max(1);
        free > 0 && (free > inodes_max / RESERVE_PART || usage.amount_by(uid) < part)
    }
}

/// Returns the part of `total` of a user: it is divided by the users that have something, this one
/// included, and one more.
fn part(total: u64, usage: &OwnerUsage, uid: u32) -> u64 {
    let owners = usage.owner_count() as u64 + u64::from(usage.amount_by(uid) == 0);
    total / (owners + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A log of 64 segments of 16 MiB with this many MiB free.
    fn space(free: u64) -> LogSpace {
        LogSpace {
            total: Bytes(1024 * MIB),
            free: Bytes(free * MIB),
            segments: 64,
            segments_free: free / 16,
            segments_retired: 0,
            snapshot_failed: None,
        }
    }

    fn allows(shares: LogShares, free: u64, usage: &[(u32, u64)], uid: u32) -> bool {
        let usage = OwnerUsage::from_owners(usage.iter().map(|(uid, mib)| (*uid, mib * MIB)));
        let write = UserWrite { uid, length: MIB, unplaced: 0 };
        shares.allow(&space(free), &usage, write)
    }

    #[test]
    fn allow__a_user_alone_fills_all_but_the_reserve() {
        let none = LogShares::default();
        assert!(allows(none, 1024, &[], 7));
        assert!(allows(none, 145, &[(7, 879)], 7));
        assert!(!allows(none, 144, &[(7, 880)], 7), "the reserve and the segment of the log");
    }

    #[test]
    fn allow__into_the_reserve_a_user_writes_up_to_its_part() {
        let none = LogShares::default();
        let usage = [(7, 880), (8, 340)];
        assert!(allows(none, 17, &usage, 8), "a third of the log");
        assert!(!allows(none, 17, &[(7, 880), (8, 341)], 8));
        assert!(allows(none, 1, &usage, 9), "a user with nothing there");
        assert!(!allows(none, 100, &usage, 7));
    }

    #[test]
    fn allow__what_has_no_place_yet_counts_as_taken() {
        let (space, usage) = (space(200), OwnerUsage::from_owners([(7, 800 * MIB)]));
        let write = |unplaced| UserWrite { uid: 7, length: MIB, unplaced };
        assert!(LogShares::default().allow(&space, &usage, write(55 * MIB)));
        assert!(!LogShares::default().allow(&space, &usage, write(56 * MIB)));
    }

    #[test]
    fn allow_inode__a_user_alone_fills_all_but_the_reserve_which_others_have() {
        let allows = |usage: &[(u32, u64)], uid| {
            LogShares::allow_inode(800, &OwnerUsage::from_owners(usage.iter().copied()), uid)
        };
        assert!(allows(&[(0, 1), (7, 698)], 7));
        assert!(!allows(&[(0, 1), (7, 699)], 7), "a hundred are the reserve");
        assert!(allows(&[(0, 1), (7, 699)], 8), "a user with nothing there");
        assert!(allows(&[(0, 1), (7, 500), (8, 199)], 8), "less than a quarter");
        assert!(!allows(&[(0, 1), (7, 500), (8, 200)], 8));
        let usage: alloc::vec::Vec<_> = (0..800).map(|uid| (uid, 1)).collect();
        assert!(!allows(&usage, 900), "none is left");
        assert!(allows(&usage[1..], 900), "the last one, for a user with none");
        let root = OwnerUsage::from_owners([(0, 1)]);
        assert!(LogShares::allow_inode(2, &root, 0), "the smallest log has no reserve");
    }

    #[test]
    fn allow__a_quota_holds_whatever_is_free() {
        let quota = LogShares { quota: Some(Bytes(100 * MIB)) };
        assert!(allows(quota, 1024, &[(7, 99)], 7));
        assert!(!allows(quota, 1024, &[(7, 100)], 7));
        assert!(allows(quota, 1024, &[(7, 100)], 8));
    }
}
