//! A budget for a class over many hosts: what a coordinator grants to each, and what a member may
//! use.
//!
//! # Model
//! A member asks again every [`RENEW_EVERY`], with its demand. A grant is a lease: it holds for
//! [`LEASE`] from the instant at which its request left, on the member's clock; the coordinator
//! counts from the arrival, and an eighth longer. So the member stops first, whatever clocks show,
//! as long as they differ by less than a twentieth and the member looks every [`TAKE_EVERY`]. A
//! request says which grant is in use, so a rate that nobody has taken yet is not taken for used.
//! ```text
//!   budget >= sum of what members may use, where each may use the highest rate of its leases
//!   floor  =  budget / 10 / MEMBERS_MAX, which a member keeps without a lease
//! ```
//! The demands are met as far as possible, and the least of them first (max-min fair). A member gets
//! less at once. It gets more when the others have confirmed that they use less, or their leases are
//! over.
//!
//! A coordinator remembers nothing of a predecessor. In its first lease time it renews what members
//! still hold, and raises nothing: the predecessor granted no more than the budget.
//!
//! # Source
//! Leases: Gray and Cheriton, "Leases: an efficient fault-tolerant mechanism for distributed file
//! cache consistency" (1989). Max-min fairness: Bertsekas and Gallager, "Data Networks" (1992), 6.5.
//!
//! # Invariants
//! I1. Rates of up to [`MEMBERS_MAX`] members are together at most 1.1 times the budget, at any
//!     instant, whatever the network loses or delays and however often the coordinator begins anew.
//!     The tenth is that of the floors.
//! I2. No member stops: each may use the floor.
//!
//! # Not here
//! How messages travel, and what keeps the rate ([`super::TokenBucket`]).

mod coordinator;
mod member;
#[cfg(test)]
mod tests;

use crate::base::{BitsPerSec, ByteReader, Class, Head, LocalNs, Nanos};

pub use coordinator::{BudgetCoordinator, BudgetUse};
pub use member::BudgetMember;

/// How long a grant holds: a coordinator that starts again in this time is not missed.
pub const LEASE: Nanos = Nanos::from_secs(2);
/// How long the coordinator counts with it: a twentieth for clocks, and the time of a look.
const LEASE_COUNTED: Nanos = Nanos(LEASE.0 + LEASE.0 / 8);
/// How often a sender takes the rate: [`BudgetMember::take`].
pub const TAKE_EVERY: Nanos = Nanos::from_millis(100);
/// Between two requests of a member: eight in a lease.
pub const RENEW_EVERY: Nanos = Nanos::from_millis(250);
/// The most members of a budget. Others keep the floor too, but beyond the bound.
pub const MEMBERS_MAX: usize = 100;
/// Part of a budget that all floors together are.
const FLOOR_DIVISOR: u64 = 10;

/// Bytes of a request.
pub const REQUEST_BYTES: usize = 51;
/// Bytes of an answer.
pub const ANSWER_BYTES: usize = 51;
/// The first byte of both: the version of their form.
const VERSION: u8 = 1;

/// Returns the rate that a member of a budget has without a lease.
pub const fn budget_floor(budget: BitsPerSec) -> BitsPerSec {
    let floor = budget.0 / FLOOR_DIVISOR / MEMBERS_MAX as u64;
    BitsPerSec(if floor == 0 { 1 } else { floor })
}

/// A grant that a member has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldGrant {
    /// Which life of the coordinator gave it.
    pub incarnation: u64,
    /// Its number in that life, from 1.
    pub number: u64,
    /// The rate.
    pub rate: BitsPerSec,
}

/// What a member says to the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetRequest {
    /// The class whose budget it is.
    pub class: Class,
    /// The member's name, drawn at random.
    pub member: u64,
    /// When it left, on the member's clock; later ones are larger.
    pub sent_at: LocalNs,
    /// The rate that the member could use.
    pub demand: BitsPerSec,
    /// The grant that is in use, if its lease is not over.
    pub held: Option<HeldGrant>,
    /// Whether the member uses nothing any more.
    pub is_leaving: bool,
}

/// Why a member gets no grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetRefusal {
    /// The budget has as many members as it may.
    Full,
    /// The policy has no budget for the class.
    NoBudget,
}

/// A grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetGrant {
    /// When the request left that it answers, on the member's clock.
    pub answers: LocalNs,
    /// The grant.
    pub grant: HeldGrant,
    /// What the member keeps without a lease.
    pub floor: BitsPerSec,
    /// The whole budget.
    pub budget: BitsPerSec,
}

/// What the coordinator says to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetAnswer {
    /// It grants.
    Granted(BudgetGrant),
    /// It refuses.
    Refused(BudgetRefusal),
}

impl BudgetRequest {
    /// Returns the bytes of the request.
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let held = self.held.unwrap_or(HeldGrant { incarnation: 0, number: 0, rate: NO_RATE });
        let mut head: Head<REQUEST_BYTES> = Head::new();
        head.put(&[VERSION, self.class.index() as u8, u8::from(self.is_leaving)]);
        for field in [self.member, self.sent_at.0, self.demand.0] {
            head.put(&field.to_le_bytes());
        }
        put_held(&mut head, held);
        filled(&head)
    }

    /// Reads a request; `None` where the bytes are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = ByteReader::new(bytes);
        let [version, class, is_leaving] = rest.take()?;
        let (member, sent_at, demand) = (rest.u64()?, rest.u64()?, rest.u64()?);
        let held = held(&mut rest)?;
        let is_none = held.number == 0;
        let is_held = !is_none || (held.incarnation, held.rate.0) == (0, 0);
        let is_form = version == VERSION && is_leaving <= 1 && is_held && rest.is_empty();
        is_form.then_some(())?;
        Some(Self {
            class: *Class::ALL.get(usize::from(class))?,
            member,
            sent_at: LocalNs(sent_at),
            demand: BitsPerSec(demand),
            held: Some(held).filter(|_| !is_none),
            is_leaving: is_leaving == 1,
        })
    }
}

impl BudgetAnswer {
    /// Returns the bytes of the answer.
    pub fn encode(&self) -> [u8; ANSWER_BYTES] {
        let mut head: Head<ANSWER_BYTES> = Head::new();
        match self {
            Self::Granted(BudgetGrant { answers, grant, floor, budget }) => {
                head.put(&[VERSION, 0, 0]);
                for field in [answers.0, floor.0, budget.0] {
                    head.put(&field.to_le_bytes());
                }
                put_held(&mut head, *grant);
            }
            Self::Refused(why) => {
                let kind = if *why == BudgetRefusal::Full { 1 } else { 2 };
                head.put(&[VERSION, kind, 0]);
            }
        }
        filled(&head)
    }

    /// Reads an answer; `None` where the bytes are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = ByteReader::new(bytes);
        let [version, kind, zero] = rest.take()?;
        let (answers, floor, budget) = (rest.u64()?, rest.u64()?, rest.u64()?);
        let grant = held(&mut rest)?;
        (version == VERSION && zero == 0 && rest.is_empty()).then_some(())?;
        let fields = [answers, floor, budget, grant.incarnation, grant.number, grant.rate.0];
        match kind {
            0 if grant.number > 0 => {
                let (floor, budget) = (BitsPerSec(floor), BitsPerSec(budget));
                let answers = LocalNs(answers);
                Some(Self::Granted(BudgetGrant { answers, grant, floor, budget }))
            }
            1 if fields == [0; 6] => Some(Self::Refused(BudgetRefusal::Full)),
            2 if fields == [0; 6] => Some(Self::Refused(BudgetRefusal::NoBudget)),
            _ => None,
        }
    }
}

/// No rate.
const NO_RATE: BitsPerSec = BitsPerSec(0);

fn put_held<const N: usize>(head: &mut Head<N>, held: HeldGrant) {
    for field in [held.incarnation, held.number, held.rate.0] {
        head.put(&field.to_le_bytes());
    }
}

fn held(rest: &mut ByteReader<'_>) -> Option<HeldGrant> {
    let (incarnation, number, rate) = (rest.u64()?, rest.u64()?, rest.u64()?);
    Some(HeldGrant { incarnation, number, rate: BitsPerSec(rate) })
}

/// Returns the bytes of a head, and zeros up to the length of its frame.
fn filled<const N: usize>(head: &Head<N>) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.iter_mut().zip(head.bytes()).for_each(|(to, from)| *to = *from);
    bytes
}
