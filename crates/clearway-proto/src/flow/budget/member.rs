//! The side of a member: what it may use now, and when it asks again.
//!
//! # Invariants
//! I1. A lease ends [`LEASE`] after its request left, so a late grant is worth less.

use super::{BudgetGrant, BudgetRequest, HeldGrant, LEASE, RENEW_EVERY};
use crate::base::{BitsPerSec, Class, LocalNs, Nanos};

/// Between two requests, also where there is a reason to ask at once.
const ASK_AGAIN: Nanos = Nanos::from_millis(5);
/// Between two requests of a member that was refused.
const REFUSED_FOR: Nanos = Nanos::from_secs(1);

/// A member of a budget.
///
/// ```
/// use clearway_proto::base::{BitsPerSec, Class, LocalNs};
/// use clearway_proto::flow::{BudgetCoordinator, BudgetMember, budget_floor};
/// let (budget, now) = (BitsPerSec::mega(1_000), LocalNs(10_000_000_000));
/// let mut coordinator = BudgetCoordinator::new(LocalNs(0), 1, budget);
/// let mut member = BudgetMember::new(now, Class::Bulk, 7, budget_floor(budget));
/// assert_eq!(member.take(now), BitsPerSec::mega(1));
/// member.set_demand(now, BitsPerSec::mega(300));
/// let request = member.poll(now).expect("it asks at once");
/// coordinator.request(now, &request).expect("there is room");
/// let (_, grant) = coordinator.poll(now).expect("an answer");
/// member.granted(now, &grant);
/// assert_eq!(member.take(now), BitsPerSec::mega(300));
/// ```
#[derive(Clone, Debug)]
pub struct BudgetMember {
    class: Class,
    name: u64,
    floor: BitsPerSec,
    demand: BitsPerSec,
    /// The newest grant, and when its lease is over.
    held: Option<HeldGrant>,
    pub(super) until: LocalNs,
    /// The same of the grant that is in use.
    used: Option<(HeldGrant, LocalNs)>,
    sent_at: Option<LocalNs>,
    due: LocalNs,
}

impl BudgetMember {
    /// Creates a member with a name that no other has, which demands nothing. It asks at once.
    pub const fn new(now: LocalNs, class: Class, name: u64, floor: BitsPerSec) -> Self {
        Self {
            class,
            name,
            floor,
            demand: BitsPerSec(0),
            held: None,
            until: now,
            used: None,
            sent_at: None,
            due: now,
        }
    }

    /// Returns what may be used from `now` on, to be called every [`super::TAKE_EVERY`]. A request
    /// says it, and others wait for that when it is less than before.
    pub fn take(&mut self, now: LocalNs) -> BitsPerSec {
        let rate_of = |held: HeldGrant| held.rate.max(self.floor);
        let before = self.used(now).map_or(self.floor, rate_of);
        self.used = self.held.filter(|_| now < self.until).map(|held| (held, self.until));
        let rate = self.used(now).map_or(self.floor, rate_of);
        if rate < before {
            self.renew_soon(now);
        }
        rate
    }

    /// Returns the grant that is in use, if its lease is not over.
    pub fn used(&self, now: LocalNs) -> Option<HeldGrant> {
        self.used.filter(|(_, until)| now < *until).map(|(held, _)| held)
    }

    /// Changes what the member could use.
    pub fn set_demand(&mut self, now: LocalNs, demand: BitsPerSec) {
        if demand != self.demand {
            self.demand = demand;
            self.renew_soon(now);
        }
    }

    /// Asks again as soon as possible, as over a new connection.
    pub fn renew_soon(&mut self, now: LocalNs) {
        self.due = self.sent_at.map_or(now, |sent_at| now.max(sent_at + ASK_AGAIN));
    }

    /// Returns when [`Self::poll`] has a request.
    pub const fn deadline(&self) -> LocalNs {
        self.due
    }

    /// Returns the request that is due, to be sent now.
    pub fn poll(&mut self, now: LocalNs) -> Option<BudgetRequest> {
        if now < self.due {
            return None;
        }
        // Stamps tell requests apart, so none is used twice.
        let sent_at = self.sent_at.map_or(now, |last| now.max(last + Nanos(1)));
        self.sent_at = Some(sent_at);
        self.due = now + RENEW_EVERY;
        Some(self.request(sent_at, now))
    }

    /// Returns the request that gives everything back; the member must use nothing any more.
    pub fn leave(mut self, now: LocalNs) -> BudgetRequest {
        let sent_at = self.sent_at.map_or(now, |last| now.max(last + Nanos(1)));
        self.demand = BitsPerSec(0);
        BudgetRequest { is_leaving: true, ..self.request(sent_at, now) }
    }

    fn request(&self, sent_at: LocalNs, now: LocalNs) -> BudgetRequest {
        let Self { class, name, demand, .. } = *self;
        BudgetRequest {
            class,
            member: name,
            sent_at,
            demand,
            held: self.used(now),
            is_leaving: false,
        }
    }

    /// Takes a grant.
    pub fn granted(&mut self, now: LocalNs, grant: &BudgetGrant) {
        let BudgetGrant { answers, grant: new, floor, .. } = *grant;
        let is_known = self.sent_at.is_some_and(|sent_at| answers <= sent_at);
        let is_old = self.held.is_some_and(|held| {
            let is_number_old = held.incarnation == new.incarnation && held.number >= new.number;
            // Also of another life: what it answers was said before the last grant.
            is_number_old || answers + LEASE < self.until
        });
        if !is_known || is_old || now >= answers + LEASE {
            return;
        }
        // Two policies with different budgets: the lower one counts.
        self.floor = self.floor.min(floor);
        (self.held, self.until) = (Some(new), answers + LEASE);
    }

    /// Takes a refusal: the floor is what is left.
    pub fn refused(&mut self, now: LocalNs) {
        self.held = None;
        self.due = now + REFUSED_FOR;
    }
}
