//! The side of a scavenger: what it may send now, and what that costs it.

use super::AgentGrant;
use crate::base::{BitsPerSec, LocalNs, Nanos};

/// The longest time between two looks that counts as held back: one that looks less often does not
/// send.
const LOOK_MAX: Nanos = Nanos::from_secs(1);

/// For how long and how far an agent held a scavenger back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldBack {
    /// How long it could have sent faster.
    pub time: Nanos,
    /// Its least rate in this time.
    pub least: BitsPerSec,
    /// What it might send in this time, in bits times ns of a second.
    bits: u128,
}

impl HeldBack {
    /// Returns the mean rate in this time.
    pub fn mean(&self) -> BitsPerSec {
        BitsPerSec(u64::try_from(self.bits / u128::from(self.time.0.max(1))).unwrap_or(u64::MAX))
    }

    fn add(&mut self, time: Nanos, rate: BitsPerSec) {
        if time == Nanos::ZERO {
            return;
        }
        self.least = if self.time == Nanos::ZERO { rate } else { self.least.min(rate) };
        self.time = self.time + time;
        self.bits += u128::from(rate.0) * u128::from(time.0);
    }
}

/// Follows the agent of the node.
///
/// ```
/// use clearway_proto::base::{BitsPerSec, LocalNs, Nanos};
/// use clearway_proto::flow::{AgentFollower, AgentGrant};
/// let mut follower = AgentFollower::default();
/// assert_eq!(follower.take(LocalNs(0), None), None);
/// let (rate, lease, pause) = (BitsPerSec::mega(8), Nanos(100), Nanos(5));
/// let grant = AgentGrant { rate, is_held: true, lease, pause_at: LocalNs(20), pause };
/// follower.grant(LocalNs(10), grant);
/// assert_eq!(follower.take(LocalNs(20), None), Some(rate));
/// assert_eq!(follower.paused_until(LocalNs(20)), Some(LocalNs(25)));
/// assert_eq!((follower.paused_until(LocalNs(25)), follower.held().time), (None, Nanos(10)));
/// ```
#[derive(Clone, Debug, Default)]
pub struct AgentFollower {
    /// The last grant, and when its lease ends.
    grant: Option<(AgentGrant, LocalNs)>,
    /// Since when the rate holds that was taken last.
    since: Option<LocalNs>,
    held: HeldBack,
}

impl AgentFollower {
    /// Takes a grant of the agent.
    pub fn grant(&mut self, now: LocalNs, grant: AgentGrant) {
        self.since.get_or_insert(now);
        self.grant = Some((grant, now + grant.lease));
    }

    /// Forgets the agent, which ended in order or refused.
    pub const fn release(&mut self) {
        (self.grant, self.since) = (None, None);
    }

    /// Returns whether a grant holds.
    pub fn is_following(&self, now: LocalNs) -> bool {
        self.grant.is_some_and(|(_, until)| now < until)
    }

    /// Returns the rate of the last grant, if there was one; `others` is what everything else allows
    /// the scavenger. To be called as long as it sends.
    pub fn take(&mut self, now: LocalNs, others: Option<BitsPerSec>) -> Option<BitsPerSec> {
        let (grant, _) = self.grant?;
        let since = self.since.replace(now).unwrap_or(now);
        if grant.is_held && others.is_none_or(|others| grant.rate < others) {
            self.held.add(now.since(since).min(LOOK_MAX), grant.rate);
        }
        Some(grant.rate)
    }

    /// Takes note that the scavenger has nothing to send.
    pub const fn rest(&mut self, now: LocalNs) {
        if self.since.is_some() {
            self.since = Some(now);
        }
    }

    /// Returns the end of the pause that is now.
    pub fn paused_until(&self, now: LocalNs) -> Option<LocalNs> {
        let (grant, until) = self.grant?;
        let end = grant.pause_at + grant.pause;
        (now < until && now >= grant.pause_at && now < end).then_some(end)
    }

    /// Returns when a pause begins or ends next.
    pub fn deadline(&self, now: LocalNs) -> Option<LocalNs> {
        let (grant, until) = self.grant?;
        let edges = [grant.pause_at, grant.pause_at + grant.pause];
        edges.into_iter().find(|edge| *edge > now && now < until && grant.pause > Nanos::ZERO)
    }

    /// Returns the price so far.
    pub const fn held(&self) -> HeldBack {
        self.held
    }
}
