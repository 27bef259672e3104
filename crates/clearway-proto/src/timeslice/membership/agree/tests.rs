//! Every order in which messages of three and of four members can arrive or not, with ballots that
//! cross each other.

use alloc::sync::Arc;
use std::collections::BTreeSet as Set;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::vec::Vec;

use super::*;
use crate::base::{RandomKey, Rank};
use crate::timeslice::layout::TimesliceLayout;

/// Orders that are drawn where there are too many to go through all of them in a second.
const WALKS: u64 = 3_000;

/// An input's credits from the builder in question and what it has sent, in small numbers.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct InputDeals {
    sent: u64,
    horizon: Option<u64>,
    /// Positions that each builder has released, as far as this input has taken notice.
    released: BTreeMap<RosterMember, u64>,
    frozen: Set<RosterMember>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct AgreementWorld {
    members: Vec<(Agreement, InputDeals)>,
    /// From, to, what. A member that is dead or unlucky never gets it: no move is forced.
    under_way: Set<(RosterMember, RosterMember, AgreementMessage)>,
    ballots: u32,
    decided: Set<Decision>,
}

impl AgreementWorld {
    /// Answers that nobody waits for any more change nothing, and only multiply states.
    fn forget_the_stale(&mut self) {
        let members = &self.members;
        self.under_way.retain(|(from, to, message)| {
            let waits = members[to.index()].0.unanswered(*from);
            match (message, waits) {
                (
                    AgreementMessage::Promise { ballot, .. },
                    Some(AgreementMessage::Prepare { ballot: asked, .. }),
                )
                | (
                    AgreementMessage::Accepted { ballot },
                    Some(AgreementMessage::Accept { ballot: asked, .. }),
                ) => *ballot == asked,
                (AgreementMessage::Promise { .. } | AgreementMessage::Accepted { .. }, _) => false,
                _ => true,
            }
        });
    }
}

struct Explorer {
    journal: Journal,
    wishes: Vec<ProposedDecision>,
    /// Of each ballot: who may lead it.
    leaders: Vec<Vec<usize>>,
    /// An input sends so much and a builder releases so much.
    most: u64,
    seen: Set<u64>,
    decided: Set<Decision>,
}

impl Explorer {
    fn new(
        [inputs, builders]: [u32; 2],
        leaders: &[&[usize]],
        most: u64,
        wishes: &[ProposedDecision],
    ) -> Self {
        let ranks = |range: core::ops::Range<u32>| range.map(Rank).collect();
        let layout = TimesliceLayout::new(ranks(0..inputs), ranks(inputs..inputs + builders), &[])
            .expect("a sound layout");
        let journal = Journal::new(&Arc::new(layout));
        Self {
            journal,
            wishes: wishes.to_vec(),
            leaders: leaders.iter().map(|all| all.to_vec()).collect(),
            most,
            seen: Set::new(),
            decided: Set::new(),
        }
    }

    fn beginning(&self) -> AgreementWorld {
        let members = (0..self.journal.roster() as u32)
            .map(|member| (Agreement::new(RosterMember(member)), InputDeals::default()));
        AgreementWorld {
            members: members.collect(),
            under_way: Set::new(),
            ballots: 0,
            decided: Set::new(),
        }
    }

    fn explore(&mut self) {
        let mut open = std::vec![self.beginning()];
        while let Some(world) = open.pop() {
            let mut hasher = DefaultHasher::new();
            world.hash(&mut hasher);
            if !self.seen.insert(hasher.finish()) {
                continue;
            }
            self.check(&world);
            self.moves(&world, &mut open);
        }
    }

    /// Draws `walks` of the orders that `explore` goes through.
    fn sample(&mut self, walks: u64) {
        let mut stream = RandomKey::new(1).purpose("orders of arrival").stream();
        for _ in 0..walks {
            let mut open = std::vec![self.beginning()];
            while !open.is_empty() {
                let world = open.swap_remove(stream.below(open.len() as u64) as usize);
                self.check(&world);
                open.clear();
                self.moves(&world, &mut open);
            }
        }
    }

    fn is_input(&self, member: usize) -> bool {
        matches!(self.journal.role(RosterMember(member as u32)), Role::Input(_))
    }

    fn check(&mut self, world: &AgreementWorld) {
        assert!(world.decided.len() <= 1, "two decisions in one epoch: {:?}", world.decided);
        self.decided.extend(&world.decided);
        let Some(decision) = world.decided.first() else { return };
        let inputs = (0..world.members.len()).filter(|member| self.is_input(*member));
        for (input, dealings) in
            inputs.map(|member| (RosterMember(member as u32), &world.members[member].1))
        {
            match decision.change {
                // Deeds of a removed input no longer count.
                Change::Remove { member, .. } if self.is_input(member.index()) => {}
                Change::Remove { member, settled } => {
                    let released = dealings.released.get(&member).copied().unwrap_or(0);
                    assert!(released <= settled, "{input:?} has freed {released}, {decision:?}");
                    assert!(
                        dealings.sent <= decision.from,
                        "{input:?} has sent {}, {decision:?}",
                        dealings.sent
                    );
                }
                Change::Nothing => {}
                _ => assert!(
                    dealings.sent <= decision.from,
                    "{input:?} has sent {}, {decision:?}",
                    dealings.sent
                ),
            }
        }
    }

    fn moves(&self, world: &AgreementWorld, open: &mut Vec<AgreementWorld>) {
        for message in &world.under_way {
            let mut next = world.clone();
            next.under_way.remove(message);
            self.deliver(&mut next, *message);
            next.forget_the_stale();
            open.push(next);
        }
        if let Some(leaders) = self.leaders.get(world.ballots as usize) {
            for member in leaders.iter().copied() {
                for wish in self.wishes.iter().filter(|wish| wish.target().index() != member) {
                    let mut next = world.clone();
                    next.ballots += 1;
                    let message = next.members[member].0.lead(*wish);
                    self.ask(&mut next, RosterMember(member as u32), message);
                    next.forget_the_stale();
                    open.push(next);
                }
            }
        }
        // An input continues with its work only until the first decision: later it is bound by
        // nothing that was checked here.
        for member in (0..world.members.len()).filter(|member| self.is_input(*member)) {
            let dealings = &world.members[member].1;
            if dealings.sent < dealings.horizon.unwrap_or(self.most).min(self.most) {
                let mut next = world.clone();
                next.members[member].1.sent += 1;
                open.push(next);
            }
            for builder in self
                .wishes
                .iter()
                .map(|wish| wish.target())
                .filter(|target| !self.is_input(target.index()))
            {
                let released = dealings.released.get(&builder).copied().unwrap_or(0);
                if released < dealings.sent && !dealings.frozen.contains(&builder) {
                    let mut next = world.clone();
                    next.members[member].1.released.insert(builder, released + 1);
                    open.push(next);
                }
            }
        }
    }

    /// Asks everybody; what a member says to itself it hears at once.
    fn ask(&self, world: &mut AgreementWorld, from: RosterMember, message: AgreementMessage) {
        let others = (0..world.members.len() as u32).map(RosterMember).filter(|to| *to != from);
        world.under_way.extend(others.map(|to| (from, to, message)));
        self.deliver(world, (from, from, message));
    }

    fn deliver(
        &self,
        world: &mut AgreementWorld,
        (from, to, message): (RosterMember, RosterMember, AgreementMessage),
    ) {
        let (agree, dealings) = &mut world.members[to.index()];
        let answer = match message {
            AgreementMessage::Prepare { ballot, target } => agree.prepared(ballot, || {
                dealings.frozen.insert(target);
                let horizon = *dealings.horizon.get_or_insert(dealings.sent);
                Stake { horizon, released: dealings.released.get(&target).copied().unwrap_or(0) }
            }),
            AgreementMessage::Accept { ballot, decision } => agree.proposed(ballot, decision),
            AgreementMessage::Promise { ballot, stake, accepted } => {
                let proposal = agree.promised(&self.journal, from, ballot, (stake, accepted));
                // To wait for more answers is an order of arrivals like others.
                let proposal = proposal.or_else(|| agree.waited(&self.journal));
                return proposal.into_iter().for_each(|message| self.ask(world, to, message));
            }
            AgreementMessage::Accepted { ballot } => {
                return world.decided.extend(agree.accepted(&self.journal, from, ballot));
            }
            AgreementMessage::Refused { promised } => return agree.refused(promised),
        };
        // A member that is refused gives up, as if it had heard nothing more: that is among the
        // moves already.
        if matches!(answer, AgreementMessage::Refused { .. }) {
            return;
        }
        if from == to {
            self.deliver(world, (to, from, answer));
        } else {
            world.under_way.insert((to, from, answer));
        }
    }
}

#[test]
fn agree__three_members_decide_once_and_never_against_an_input() {
    // One input and two builders: one that is suspected and may answer, one that wants no more.
    let wishes =
        [ProposedDecision::Suspect(RosterMember(2)), ProposedDecision::Retire(RosterMember(1))];
    let mut explorer = Explorer::new([1, 2], &[&[0, 1, 2], &[0, 1, 2]], 1, &wishes);
    explorer.explore();
    let removed = |decision: &&Decision| matches!(decision.change, Change::Remove { .. });
    assert!(explorer.decided.iter().any(|decision| decision.change == Change::Nothing));
    assert!(explorer.decided.iter().filter(removed).count() > 1, "{:?}", explorer.decided);
}

/// Creates three ballots, each with a leader of its own, two of which want what excludes the other.
fn three_ballots() -> Explorer {
    Explorer::new(
        [1, 2],
        &[&[0], &[1], &[2]],
        0,
        &[ProposedDecision::Retire(RosterMember(2)), ProposedDecision::Retire(RosterMember(1))],
    )
}

#[test]
fn agree__three_ballots_cross_and_the_highest_accepted_stands() {
    let mut explorer = three_ballots();
    explorer.sample(WALKS);
    assert_eq!(explorer.decided.len(), 2, "{:?}", explorer.decided);
}

#[test]
fn agree__three_ballots_cross_in_every_order() {
    if cfg!(debug_assertions) {
        return std::eprintln!("skipped: takes seconds; `cargo xtask swarm` runs it");
    }
    let mut explorer = three_ballots();
    explorer.explore();
    assert_eq!(explorer.decided.len(), 2, "{:?}", explorer.decided);
}

#[test]
fn agree__a_builder_is_removed_only_by_what_all_inputs_say() {
    let mut explorer =
        Explorer::new([2, 2], &[&[0]], 1, &[ProposedDecision::Suspect(RosterMember(3))]);
    explorer.explore();
    let settled =
        |decision: &Decision| matches!(decision.change, Change::Remove { settled: 1, .. });
    assert!(explorer.decided.iter().any(settled), "{:?}", explorer.decided);
}

#[test]
fn agree__a_builder_that_asked_to_go_says_what_it_has_built() {
    let gone = RosterMember(2);
    let journal = Explorer::new([1, 2], &[], 0, &[]).journal;
    let mut leader = Agreement::new(RosterMember(0));
    let AgreementMessage::Prepare { ballot, .. } = leader.lead(ProposedDecision::Dismiss(gone))
    else {
        panic!("a ballot begins with a question");
    };
    let stake = |released| (Stake { horizon: 5, released }, None);
    // The input has not heard of the last two releases.
    assert_eq!(leader.promised(&journal, RosterMember(0), ballot, stake(3)), None);
    assert_eq!(leader.promised(&journal, RosterMember(1), ballot, stake(0)), None);
    let change = Change::Remove { member: gone, settled: 5 };
    assert_eq!(
        leader.promised(&journal, gone, ballot, stake(5)),
        Some(AgreementMessage::Accept { ballot, decision: Decision { change, from: 5 } })
    );
}
