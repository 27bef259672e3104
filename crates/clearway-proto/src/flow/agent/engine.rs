//! Decides which peer is probed when, and what scavengers may send.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::mem;

use super::pauses::{RoundPart, RoundPause};
use super::peer::ProbedPeer;
use super::{
    AgentAnswer, AgentGrant, GRANT_LEASE, PAUSE_MIN, ProbeFault, ProbePacket, ROUND, SCAVENGERS_MAX,
};
use crate::base::{BitsPerSec, LocalNs, Nanos};
use crate::flow::division::max_min;
use crate::flow::{ProbeMoment, YieldController};
use crate::stats::Histogram;

/// Between two probes, of all peers together, while no scavenger demands anything: a probe and its
/// answer cost up to 0.3 ms of processors (measured), and an agent at rest a thousandth of one.
const IDLE_INTERVAL: Nanos = Nanos::from_millis(330);
/// The same while scavengers send: a round has 11 to 18 of them, and a decision needs ten.
const ACTIVE_INTERVAL: Nanos = Nanos::from_millis(24);
/// Probes in a pause: more than a decision needs.
const PAUSED_PROBES: u64 = 5;
/// How long an answer is waited for at all.
const ANSWER_MAX: Nanos = Nanos::from_secs(1);
/// By how many thousandths probes may become slower, as where a server paces its clients.
const EXCESS: u32 = 1_000;
/// The part of what is allowed that is kept for a scavenger that demands nothing, so that it may
/// begin: a quarter for all.
const IDLE_DIVISOR: u64 = 4 * SCAVENGERS_MAX as u64;
/// How long rounds continue when nothing is demanded any more: a drain has something to send and
/// nothing by turns.
const LINGER: Nanos = Nanos::from_secs(2);
/// The least time between two renewals of all grants because demands changed: as long as a sender
/// takes to look at its grant again, so that one that comes and goes costs ten renewals a second.
const RENEW_MIN: Nanos = Nanos::from_millis(100);
/// Half of the time of which figures are: at least 90 probes.
const INTERVAL: Nanos = Nanos::from_secs(30);

/// A probe that has no answer yet.
#[derive(Clone, Copy, Debug)]
struct OutstandingProbe {
    nonce: u64,
    peer: usize,
    sent_at: LocalNs,
    /// The round in which it counts, and how.
    counts: Option<(u64, ProbeMoment)>,
}

#[derive(Clone, Copy, Debug)]
struct NodeScavenger {
    user: u32,
    demand: u64,
    /// The rate to be granted.
    due: Option<u64>,
}

/// What an agent knows, for people.
#[derive(Clone, Debug)]
pub struct AgentFigures {
    /// Round trips of the last 30 to 60 s, in ns.
    pub round_trips: Histogram,
    /// By how many thousandths round trips were longer while scavengers send, at the last decision.
    pub excess_permille: u32,
    /// Scavengers that are connected.
    pub scavengers: usize,
    /// Those that demand something.
    pub demanding: usize,
    /// What they may send together.
    pub allowed: BitsPerSec,
    /// Peers, and those that answer.
    pub peers: usize,
    /// Peers that answer.
    pub peers_reachable: usize,
    /// Probes since the beginning.
    pub probes: u64,
    /// Those that had no answer within a second.
    pub unanswered: u64,
}

/// Watches the peers of a node, and divides what its scavengers may send.
#[derive(Clone, Debug)]
pub struct NodeAgent {
    link: BitsPerSec,
    peers: Vec<ProbedPeer>,
    /// The peer after the one that was probed last.
    turn: usize,
    probe_at: LocalNs,
    asked: VecDeque<OutstandingProbe>,
    scavengers: BTreeMap<u64, NodeScavenger>,
    /// None while no peer answers.
    controller: Option<YieldController>,
    /// When something was demanded last.
    active_at: LocalNs,
    excess_permille: u32,
    /// A multiple of a round on the wall clock.
    origin: LocalNs,
    round: Option<RoundPause>,
    number: u64,
    pause: Nanos,
    sending: Vec<Nanos>,
    paused: Vec<Nanos>,
    /// Probes of the pause that met a queue.
    late: usize,
    renew_at: LocalNs,
    /// When demands that changed count; none while none did.
    change_at: Option<LocalNs>,
    renewed_at: Option<LocalNs>,
    /// Round trips of this interval and the one before.
    round_trips: [Histogram; 2],
    interval_ends: LocalNs,
    probes: u64,
    unanswered: u64,
}

impl NodeAgent {
    /// Creates the agent of a node with this link, which has this many peers.
    pub fn new(now: LocalNs, link: BitsPerSec, peers: usize) -> Self {
        Self {
            link,
            peers: core::iter::repeat_n(ProbedPeer::new(now), peers).collect(),
            turn: 0,
            probe_at: now,
            asked: VecDeque::new(),
            scavengers: BTreeMap::new(),
            controller: None,
            active_at: now,
            excess_permille: 0,
            origin: LocalNs(0),
            round: None,
            number: 0,
            pause: PAUSE_MIN,
            sending: Vec::new(),
            paused: Vec::new(),
            late: 0,
            renew_at: now,
            change_at: None,
            renewed_at: None,
            round_trips: [Histogram::new(), Histogram::new()],
            interval_ends: now + INTERVAL,
            probes: 0,
            unanswered: 0,
        }
    }

    /// Sets an instant at which the wall clock showed a multiple of half a second: pauses begin
    /// then. To be called now and again, as clocks drift.
    pub const fn align(&mut self, origin: LocalNs) {
        self.origin = origin;
    }

    /// Takes the demand of the scavenger `name` of a user; the first one is its greeting. Renews all
    /// grants at once, or 100 ms after they were renewed last.
    ///
    /// # Errors
    /// [`AgentAnswer::Full`]: there is no place for another scavenger.
    pub fn demand(
        &mut self,
        now: LocalNs,
        name: u64,
        user: u32,
        demand: BitsPerSec,
    ) -> Result<(), AgentAnswer> {
        if !self.scavengers.contains_key(&name) && self.scavengers.len() >= SCAVENGERS_MAX {
            return Err(AgentAnswer::Full);
        }
        self.note_activity(now);
        let due = self.scavengers.get(&name).and_then(|before| before.due);
        self.scavengers.insert(name, NodeScavenger { user, demand: demand.0, due });
        self.changed(now);
        Ok(())
    }

    /// Forgets a scavenger that left.
    pub fn leave(&mut self, now: LocalNs, name: u64) {
        self.note_activity(now);
        if self.scavengers.remove(&name).is_some() {
            self.changed(now);
        }
    }

    /// Takes note of whether something was demanded up to now.
    fn note_activity(&mut self, now: LocalNs) {
        if self.is_active() {
            self.active_at = now;
        }
    }

    /// Begins rounds when something is demanded, and renews all grants now or when it is time.
    fn changed(&mut self, now: LocalNs) {
        if self.is_active() && self.round.is_none() {
            self.see(now);
            self.begin_round(now);
            self.probe_at = self.probe_at.min(now);
        }
        match self.renewed_at.map(|at| at + RENEW_MIN).filter(|at| *at > now) {
            Some(at) => self.change_at = Some(at),
            None => self.renew(now),
        }
    }

    fn is_active(&self) -> bool {
        self.scavengers.values().any(|scavenger| scavenger.demand > 0)
    }

    fn renew(&mut self, now: LocalNs) {
        for (name, part) in self.parts() {
            if let Some(scavenger) = self.scavengers.get_mut(&name) {
                scavenger.due = Some(part);
            }
        }
        (self.renew_at, self.change_at, self.renewed_at) = (now + ROUND, None, Some(now));
    }

    fn begin_round(&mut self, now: LocalNs) {
        self.number += 1;
        self.round = Some(RoundPause::new(now, self.origin, self.pause));
        self.sending.clear();
        self.paused.clear();
        self.late = 0;
    }

    /// Takes note of whether any peer answers: what nobody sees nobody limits.
    fn see(&mut self, now: LocalNs) {
        if self.peers.iter().any(|peer| peer.is_reachable()) {
            let new = || YieldController::new_slow(now, self.link, EXCESS);
            self.controller.get_or_insert_with(new);
        } else {
            (self.controller, self.excess_permille) = (None, 0);
        }
    }

    /// Returns what scavengers may send together.
    pub fn allowed(&self) -> BitsPerSec {
        self.controller.as_ref().map_or(self.link, YieldController::rate)
    }

    /// Returns when [`Self::advance`] or [`Self::probe`] has something to do.
    pub fn deadline(&self) -> LocalNs {
        let round = self.round.map_or(self.renew_at, |round| round.over_at());
        let probe = if self.peers.is_empty() { round } else { self.probe_at };
        round.min(probe).min(self.interval_ends).min(self.change_at.unwrap_or(LocalNs(u64::MAX)))
    }

    /// Passes time: decides when a round is over, and renews grants.
    pub fn advance(&mut self, now: LocalNs) {
        while let Some(first) = self.asked.front()
            && now.since(first.sent_at) >= ANSWER_MAX
        {
            if let Some(peer) = self.peers.get_mut(first.peer) {
                peer.missed();
            }
            self.asked.pop_front();
            self.unanswered += 1;
        }
        if now >= self.interval_ends {
            self.round_trips.swap(0, 1);
            self.round_trips[0] = Histogram::new();
            self.interval_ends = now + INTERVAL;
        }
        if let Some(round) = self.round.filter(|round| round.part(now) == RoundPart::Over) {
            self.see(now);
            self.note_activity(now);
            self.decide(now, round);
            self.round = None;
            if now.since(self.active_at) < LINGER {
                self.begin_round(now);
            }
            self.renew(now);
        } else if self.round.is_none() && now >= self.renew_at {
            self.see(now);
            self.renew(now);
        } else if self.change_at.is_some_and(|at| now >= at) {
            self.renew(now);
        }
    }

    /// Decides the rate from the samples of a round.
    fn decide(&mut self, now: LocalNs, round: RoundPause) {
        let silent: Vec<OutstandingProbe> = self.asked.iter().copied().collect();
        for asked in silent {
            if self.peers.get(asked.peer).is_some_and(|peer| peer.is_reachable()) {
                self.count(&asked, now.since(asked.sent_at));
            }
        }
        let was_short = self.late * 4 > self.paused.len();
        if let Some(longer) = round.longer().filter(|_| was_short) {
            self.pause = longer;
            return;
        }
        self.pause = if was_short { round.length } else { round.shorter() };
        let Some(controller) = &mut self.controller else { return };
        let sending = mem::take(&mut self.sending);
        sending.into_iter().for_each(|took| controller.sample(ProbeMoment::Sending, took));
        let paused = mem::take(&mut self.paused);
        paused.into_iter().for_each(|took| controller.sample(ProbeMoment::Paused, took));
        if let Some(report) = controller.tick(now) {
            self.excess_permille = report.excess_permille;
        }
    }

    /// Adds a round trip to the samples of this round, if it is one.
    fn count(&mut self, asked: &OutstandingProbe, took: Nanos) {
        let (Some((number, moment)), Some(round)) = (asked.counts, self.round) else { return };
        let Some(peer) = self.peers.get(asked.peer).filter(|_| number == self.number) else {
            return;
        };
        let sample = peer.sample(took);
        match moment {
            ProbeMoment::Sending => self.sending.push(sample),
            ProbeMoment::Paused => {
                self.late += usize::from(took > round.half());
                self.paused.push(sample);
            }
        }
    }

    /// Returns the probe that is due, and the place of the peer that it is for; `nonce` is random.
    pub fn probe(&mut self, now: LocalNs, nonce: u64) -> Option<(usize, ProbePacket)> {
        if now < self.probe_at || self.peers.is_empty() {
            return None;
        }
        let (next, moment) = match self.round {
            None => (now + IDLE_INTERVAL, None),
            Some(round) => match round.part(now) {
                RoundPart::Sending => {
                    ((now + ACTIVE_INTERVAL).min(round.paused_from()), Some(ProbeMoment::Sending))
                }
                RoundPart::Paused => {
                    let next = now + Nanos(round.half().0 / PAUSED_PROBES);
                    (next, Some(ProbeMoment::Paused))
                }
                RoundPart::Emptying => {
                    self.probe_at = round.paused_from();
                    return None;
                }
                RoundPart::Ending | RoundPart::Over => {
                    self.probe_at = round.over_at().max(now + Nanos(1));
                    return None;
                }
            },
        };
        self.probe_at = next;
        let count = self.peers.len();
        let mut places = (0..count).map(|step| (self.turn + step) % count);
        let peer = places.find(|place| self.peers.get(*place).is_some_and(|it| it.is_due(now)))?;
        self.turn = peer + 1;
        self.peers.get_mut(peer)?.probed(now);
        self.probes += 1;
        let counts = moment.map(|moment| (self.number, moment));
        self.asked.push_back(OutstandingProbe { nonce, peer, sent_at: now, counts });
        Some((peer, ProbePacket::Probe { nonce }))
    }

    /// Takes an answer of a peer that arrived at `at`.
    ///
    /// # Errors
    /// [`ProbeFault::Unsolicited`].
    pub fn answer(&mut self, at: LocalNs, peer: usize, nonce: u64) -> Result<(), ProbeFault> {
        let is_it = |asked: &OutstandingProbe| asked.nonce == nonce && asked.peer == peer;
        let place = self.asked.iter().position(is_it).ok_or(ProbeFault::Unsolicited)?;
        let asked = self.asked.remove(place).ok_or(ProbeFault::Unsolicited)?;
        let took = at.since(asked.sent_at);
        self.round_trips[0].record(took.0);
        if let Some(peer) = self.peers.get_mut(asked.peer) {
            peer.answered(at, took);
        }
        self.count(&asked, took);
        Ok(())
    }

    /// Returns the next grant and the scavenger that it is for; call it until there is none.
    pub fn grant(&mut self, now: LocalNs) -> Option<(u64, AgentGrant)> {
        let due = |(name, it): (&u64, &mut NodeScavenger)| it.due.take().map(|rate| (*name, rate));
        let (name, rate) = self.scavengers.iter_mut().find_map(due)?;
        let pause = self.round.filter(|round| self.controller.is_some() && now < round.at);
        Some((
            name,
            AgentGrant {
                rate: BitsPerSec(rate),
                is_held: self.allowed() < self.link,
                lease: GRANT_LEASE,
                pause_at: pause.map_or(LocalNs(0), |pause| pause.at),
                pause: pause.map_or(Nanos::ZERO, |pause| pause.length),
            },
        ))
    }

    /// Returns the part of each scavenger: users divide what is allowed, and each user's connections
    /// what it gets.
    fn parts(&self) -> Vec<(u64, u64)> {
        let allowed = self.allowed().0;
        let idle = (allowed / IDLE_DIVISOR).max(1);
        let mut of_users: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
        for (name, it) in &self.scavengers {
            of_users.entry(it.user).or_default().push((it.demand.max(idle), *name));
        }
        let together = |demands: &[(u64, u64)]| {
            demands.iter().fold(0, |sum: u64, (demand, _)| sum.saturating_add(*demand))
        };
        let users = of_users.iter().map(|(user, demands)| (together(demands), *user)).collect();
        max_min(users, allowed, 1)
            .flat_map(|(user, part)| max_min(of_users.remove(&user).unwrap_or_default(), part, 1))
            .collect()
    }

    /// Returns the figures.
    pub fn figures(&self) -> AgentFigures {
        AgentFigures {
            round_trips: Histogram::merged(&self.round_trips),
            excess_permille: if self.round.is_some() { self.excess_permille } else { 0 },
            scavengers: self.scavengers.len(),
            demanding: self.scavengers.values().filter(|it| it.demand > 0).count(),
            allowed: self.allowed(),
            peers: self.peers.len(),
            peers_reachable: self.peers.iter().filter(|peer| peer.is_reachable()).count(),
            probes: self.probes,
            unanswered: self.unanswered,
        }
    }
}
