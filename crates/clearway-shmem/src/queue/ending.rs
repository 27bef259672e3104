//! The end of a data queue: all members are done, and nothing is on its way.
//!
//! # Model
//! A member that is done takes part in *rounds*. When it enters a round it sends all members its
//! *tally*: how many bytes it has pushed and popped so far. It enters the next round when it has the
//! tallies of all members in this one. So whatever is counted in a round was counted after everything of the
//! round before. Where as many bytes were pushed in a round as were popped in the round before,
//! nothing was on its way in between. Nobody pushes again then, because a member that is done
//! pushes only because of what it popped. All members find this in the same round.
//!
//! Rounds use two slots in turn. A member writes a slot again two rounds later, and enters that
//! round only when all members have read the slot.
//!
//! # Source
//! Four counters: F. Mattern, "Algorithms for distributed termination detection", 1987.
//!
//! # Invariants
//! I1. The end is found only when everything that was pushed is popped.
//! I2. When all members are done and nothing is on its way, the end is found after two more rounds.

/// Bytes that a member has pushed to all members, and popped from all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) pushed: u64,
    pub(super) popped: u64,
}

/// How far a queue is from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndingState {
    /// A member is not done, or its tally has not arrived.
    Working,
    /// All members are done, and something may be on its way.
    Endgame,
    /// Everything is popped, and nobody pushes any more.
    Complete,
}

/// How members exchange their tallies.
pub(super) trait TallyBoard {
    /// Sends all members the tally of this one in `round`.
    fn tell(&mut self, round: u64, tally: Tally);

    /// Returns the sum of the tallies of all members in `round`, if all have arrived.
    fn sum(&self, round: u64) -> Option<Tally>;
}

/// A member's state in finding the end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ending {
    /// The round that this member has entered; 0 for none.
    round: u64,
    /// Bytes that were popped by the round before.
    popped_before: Option<u64>,
    is_complete: bool,
}

/// Rounds that one call may finish: more come only of members that are alone.
const ROUNDS_MAX: usize = 2;

impl Ending {
    /// Returns whether the end was found.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Takes part as a member that is done, and has pushed and popped this much so far.
    pub(super) fn advance(&mut self, own: Tally, board: &mut impl TallyBoard) -> EndingState {
        if self.round == 0 {
            self.round = 1;
            board.tell(1, own);
        }
        for _ in 0..ROUNDS_MAX {
            let Some(sum) = board.sum(self.round).filter(|_| !self.is_complete) else { break };
            if self.popped_before == Some(sum.pushed) {
                self.is_complete = true;
                break;
            }
            self.popped_before = Some(sum.popped);
            self.round += 1;
            board.tell(self.round, own);
        }
        match (self.is_complete, self.round) {
            (true, _) => EndingState::Complete,
            (false, 1) => EndingState::Working,
            (false, _) => EndingState::Endgame,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// What one member sends another one, in order.
    #[derive(Clone, Copy, Debug)]
    enum SentWord {
        Element(u64),
        Tally(u64, Tally),
    }

    /// Members whose words to each other take any time, in order between two of them.
    struct Model {
        count: usize,
        /// By sender and receiver.
        ways: Vec<VecDeque<SentWord>>,
        /// By receiver and sender: the last two tallies.
        seen: Vec<[(u64, Tally); 2]>,
        /// Elements that arrived, by receiver.
        arrived: Vec<Vec<u64>>,
        tallies: Vec<Tally>,
        endings: Vec<Ending>,
        state: u64,
    }

    struct Seat<'a> {
        model: &'a mut Model,
        me: usize,
    }

    impl TallyBoard for Seat<'_> {
        fn tell(&mut self, round: u64, tally: Tally) {
            for other in 0..self.model.count {
                let way = self.me * self.model.count + other;
                self.model.ways[way].push_back(SentWord::Tally(round, tally));
            }
        }

        fn sum(&self, round: u64) -> Option<Tally> {
            let first = self.me * self.model.count;
            let seen = &self.model.seen[first..first + self.model.count];
            seen.iter().try_fold(Tally::default(), |sum, slots| {
                let (announced, tally) = slots[(round & 1) as usize];
                let sum =
                    Tally { pushed: sum.pushed + tally.pushed, popped: sum.popped + tally.popped };
                (announced == round).then_some(sum)
            })
        }
    }

    impl Model {
        fn new(count: usize, seed: u64) -> Self {
            Self {
                count,
                ways: vec![VecDeque::new(); count * count],
                seen: vec![[(0, Tally::default()); 2]; count * count],
                arrived: vec![Vec::new(); count],
                tallies: vec![Tally::default(); count],
                endings: vec![Ending::default(); count],
                state: seed,
            }
        }

        fn draw(&mut self, below: usize) -> usize {
            self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.state >> 33) as usize % below
        }

        fn push(&mut self, me: usize, generations: u64) {
            let way = me * self.count + self.draw(self.count);
            self.tallies[me].pushed += 1;
            self.ways[way].push_back(SentWord::Element(generations));
        }

        /// Pops an element, which has the member push two more unless it is of the last generation.
        fn pop(&mut self, me: usize) {
            if let Some(generations) = self.arrived[me].pop() {
                self.tallies[me].popped += 1;
                for _ in 0..generations.min(2) {
                    self.push(me, generations - 1);
                }
            }
        }

        /// Gives a member the next word from another one.
        fn deliver(&mut self) {
            let way = self.draw(self.ways.len());
            let (from, to) = (way / self.count, way % self.count);
            match self.ways[way].pop_front() {
                Some(SentWord::Element(generations)) => self.arrived[to].push(generations),
                Some(SentWord::Tally(round, tally)) => {
                    assert!(self.endings[to].round + 1 >= round, "written before it was read");
                    self.seen[to * self.count + from][(round & 1) as usize] = (round, tally);
                }
                None => {}
            }
        }

        fn advance(&mut self, me: usize) -> EndingState {
            let (mut ending, own) = (self.endings[me], self.tallies[me]);
            let state = ending.advance(own, &mut Seat { model: self, me });
            self.endings[me] = ending;
            if state == EndingState::Complete {
                assert!(self.arrived.iter().all(Vec::is_empty), "something is left to pop");
                let is_element = |word: &SentWord| matches!(word, SentWord::Element(_));
                assert!(!self.ways.iter().flatten().any(is_element), "something is on its way");
            }
            state
        }
    }

    #[test]
    fn advance__the_end_is_found_by_all_and_never_before_everything_is_popped() {
        for seed in 0..400 {
            let count = 1 + seed as usize % 5;
            let mut model = Model::new(count, seed);
            for member in 0..count {
                for _ in 0..model.draw(3) {
                    let generations = model.draw(5) as u64;
                    model.push(member, generations);
                }
            }
            let mut ended = vec![false; count];
            let mut steps = 0;
            while ended.contains(&false) {
                let me = model.draw(count);
                match model.draw(4) {
                    0 | 1 => model.deliver(),
                    2 => model.pop(me),
                    _ => ended[me] |= model.advance(me) == EndingState::Complete,
                }
                steps += 1;
                assert!(steps < 1_000_000, "seed {seed} has no end");
            }
        }
    }

    #[test]
    fn advance__a_member_that_is_alone_ends_at_once() {
        let mut model = Model::new(1, 0);
        assert_eq!(model.advance(0), EndingState::Working);
        model.deliver();
        assert_eq!(model.advance(0), EndingState::Endgame);
        model.deliver();
        assert_eq!(model.advance(0), EndingState::Complete);
        assert!(model.endings[0].is_complete());
    }
}
