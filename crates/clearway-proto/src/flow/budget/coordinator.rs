//! The side of the coordinator: who gets how much of a budget.
//!
//! # Invariants
//! I1. A grant is at most the budget without all that the others may use, or the floor.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{
    BudgetGrant, BudgetRefusal, BudgetRequest, HeldGrant, LEASE_COUNTED, MEMBERS_MAX, budget_floor,
};
use crate::base::{BitsPerSec, LocalNs};
use crate::flow::division::max_min;

/// Part of the budget by which a grant must grow to be sent without a request.
const RAISE: u64 = 64;

/// What is used of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetUse {
    /// The whole.
    pub budget: BitsPerSec,
    /// What members may use together.
    pub granted: BitsPerSec,
    /// How many members there are.
    pub members: usize,
}

/// What a member may use until an instant.
#[derive(Clone, Copy, Debug)]
struct Lease {
    rate: u64,
    until: LocalNs,
}

#[derive(Clone, Copy, Debug)]
struct MemberGrant {
    demand: u64,
    /// What it is to get.
    target: u64,
    /// The stamp of its newest request, and how long its grants hold.
    answers: LocalNs,
    until: LocalNs,
    /// What it uses, as far as is known.
    confirmed: Lease,
    /// What it may use if it got grants since then: the highest of them.
    sent: Option<Lease>,
    /// The newest grant.
    newest: u64,
    newest_rate: u64,
    needs_answer: bool,
}

impl MemberGrant {
    /// Returns the most that it may use at `now`.
    fn reserved(&self, now: LocalNs, floor: u64) -> u64 {
        let leases = [Some(self.confirmed), self.sent].into_iter().flatten();
        leases.filter(|lease| now < lease.until).map(|lease| lease.rate).fold(floor, u64::max)
    }
}

/// Divides the budget of a class.
#[derive(Clone, Debug)]
pub struct BudgetCoordinator {
    budget: u64,
    floor: u64,
    incarnation: u64,
    /// When all leases of a predecessor are over.
    free_from: LocalNs,
    numbers: u64,
    members: BTreeMap<u64, MemberGrant>,
}

impl BudgetCoordinator {
    /// Creates a coordinator; `incarnation` is one that no earlier one had.
    pub fn new(now: LocalNs, incarnation: u64, budget: BitsPerSec) -> Self {
        Self {
            budget: budget.0,
            floor: budget_floor(budget).0,
            incarnation,
            free_from: now + LEASE_COUNTED,
            numbers: 0,
            members: BTreeMap::new(),
        }
    }

    /// Returns what members may use at `now`.
    pub fn usage(&self, now: LocalNs) -> BudgetUse {
        BudgetUse {
            budget: BitsPerSec(self.budget),
            granted: BitsPerSec(self.reserved(now)),
            members: self.members.len(),
        }
    }

    fn reserved(&self, now: LocalNs) -> u64 {
        let each = self.members.values().map(|member| member.reserved(now, self.floor));
        each.fold(0, u64::saturating_add)
    }

    /// Takes a request; what follows from it is what [`Self::poll`] returns.
    ///
    /// # Errors
    /// [`BudgetRefusal::Full`].
    pub fn request(&mut self, now: LocalNs, request: &BudgetRequest) -> Result<(), BudgetRefusal> {
        self.expire(now);
        let name = request.member;
        if request.is_leaving {
            self.members.remove(&name);
            self.divide();
            return Ok(());
        }
        if !self.members.contains_key(&name) {
            if self.members.len() >= MEMBERS_MAX {
                return Err(BudgetRefusal::Full);
            }
            let new = self.enter(now, request);
            self.members.insert(name, new);
        }
        let Some(member) = self.members.get_mut(&name) else { return Ok(()) };
        if request.sent_at < member.answers {
            return Ok(());
        }
        let confirms = request.held.filter(|held| held.incarnation == self.incarnation);
        if confirms.is_some_and(|held| held.number == member.newest) {
            let until = member.sent.map_or(member.confirmed.until, |sent| sent.until);
            member.confirmed = Lease { rate: member.newest_rate, until };
            member.sent = None;
        }
        member.demand = request.demand.0;
        (member.answers, member.until) = (request.sent_at, now + LEASE_COUNTED);
        member.needs_answer = true;
        self.divide();
        Ok(())
    }

    /// Returns a member that is new here, with what it holds of a predecessor.
    fn enter(&self, now: LocalNs, request: &BudgetRequest) -> MemberGrant {
        let is_early = now < self.free_from;
        let of_before =
            request.held.filter(|held| is_early && held.incarnation != self.incarnation);
        let room = self.budget.saturating_sub(self.reserved(now));
        let rate = of_before.map_or(0, |held| held.rate.0.min(room)).max(self.floor);
        let until = now + LEASE_COUNTED;
        MemberGrant {
            demand: 0,
            target: self.floor,
            answers: LocalNs(0),
            until,
            confirmed: Lease { rate, until },
            sent: None,
            newest: 0,
            newest_rate: rate,
            needs_answer: true,
        }
    }

    fn expire(&mut self, now: LocalNs) {
        let before = self.members.len();
        self.members.retain(|_, member| now < member.until);
        if self.members.len() < before {
            self.divide();
        }
    }

    /// Divides the budget: each gets its demand or an equal part of what smaller demands leave.
    fn divide(&mut self) {
        let demands: Vec<(u64, u64)> =
            self.members.iter().map(|(name, member)| (member.demand, *name)).collect();
        for (name, part) in max_min(demands, self.budget, self.floor) {
            if let Some(member) = self.members.get_mut(&name) {
                member.target = part;
            }
        }
    }

    /// Returns the next grant and the member that it is for; call it until there is none.
    pub fn poll(&mut self, now: LocalNs) -> Option<(u64, BudgetGrant)> {
        self.expire(now);
        let all = self.reserved(now);
        let (budget, floor, is_early) = (self.budget, self.floor, now < self.free_from);
        let rate_of = |member: &MemberGrant| {
            let others = all.saturating_sub(member.reserved(now, floor));
            match is_early {
                true => member.newest_rate,
                false => member.target.min(budget.saturating_sub(others)).max(floor),
            }
        };
        let (name, member) = self.members.iter_mut().find(|(_, member)| {
            let rate = rate_of(member);
            let raise = rate.saturating_sub(member.newest_rate);
            member.needs_answer || rate < member.newest_rate || raise > budget / RAISE
        })?;
        let rate = rate_of(member);
        self.numbers += 1;
        let until = member.until;
        let most = member.sent.map_or(rate, |sent| sent.rate.max(rate));
        member.sent = Some(Lease { rate: most, until });
        (member.newest, member.newest_rate, member.needs_answer) = (self.numbers, rate, false);
        let grant = BudgetGrant {
            answers: member.answers,
            grant: HeldGrant {
                incarnation: self.incarnation,
                number: self.numbers,
                rate: BitsPerSec(rate),
            },
            floor: BitsPerSec(floor),
            budget: BitsPerSec(budget),
        };
        Some((*name, grant))
    }
}
