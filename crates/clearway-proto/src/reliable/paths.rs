//! Which path a fragment takes: the one on which it would arrive first, as far as is known, and
//! none that is silent.
//!
//! # Model
//! Each path has its own window ([`StreamPath`]). When something was waited for in vain, the peer
//! is asked on every path what it has; it answers on the path on which it is asked, so that one
//! that fails hides neither what arrived on others nor which it is. A path on which nothing was
//! heard while others were is *down*: what was under way there leaves on others, and nothing but
//! questions goes there, ten a second, until one is answered on it. Where all are down, as when
//! sends are refused everywhere, all are used.
//!
//! # Invariants
//! I1. Data does not wait for a path that is down while another is not.

use alloc::vec::Vec;

use super::ANSWER_MAX;
use super::stream_path::{ProbeReply, StreamPath};
use crate::base::{Class, LocalNs, Nanos};
use crate::wire::PathId;

/// The paths of a stream; at least one.
#[derive(Debug)]
pub(super) struct StreamPaths(Vec<StreamPath>);

impl StreamPaths {
    pub(super) fn new(class: Class, count: usize) -> Self {
        Self((0..count.max(1)).map(|_| StreamPath::new(class)).collect())
    }

    pub(super) const fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns a path that a fragment of ours left on.
    pub(super) fn path_mut(&mut self, path: PathId) -> &mut StreamPath {
        let last = self.0.len() - 1;
        &mut self.0[usize::from(path.0).min(last)]
    }

    pub(super) fn get(&self, path: PathId) -> Option<&StreamPath> {
        self.0.get(usize::from(path.0))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut StreamPath> {
        self.0.iter_mut()
    }

    pub(super) fn are_all_down(&self) -> bool {
        self.0.iter().all(StreamPath::is_down)
    }

    /// Returns those that data may take.
    fn usable(&self) -> impl Iterator<Item = (PathId, &StreamPath)> {
        let are_all_down = self.are_all_down();
        let paths = (0..).map(PathId).zip(&self.0);
        paths.filter(move |(_, lane)| are_all_down || !lane.is_down())
    }

    /// Returns how many fragments may leave now.
    pub(super) fn room(&self, now: LocalNs) -> u32 {
        self.usable().map(|(_, lane)| lane.room(now)).sum()
    }

    /// Returns the path with the shortest wait that has room; one that let something time out only
    /// after all others.
    pub(super) fn choose(&self, now: LocalNs) -> PathId {
        let with_room = self.usable().filter(|(_, lane)| lane.room(now) > 0);
        let best = with_room.min_by_key(|(_, lane)| (lane.is_suspect(), lane.expected_delay()));
        best.map_or(PathId(0), |(path, _)| path)
    }

    /// Wants a question on every path.
    pub(super) fn ask_all(&mut self) {
        self.0.iter_mut().for_each(StreamPath::want_question);
    }

    /// Returns a path that a question is to leave on now, which counts as asked: one is wanted
    /// there, or it is down while others are not.
    pub(super) fn next_question(&mut self, now: LocalNs) -> Option<PathId> {
        let are_all_down = self.are_all_down();
        let mut paths = (0..).map(PathId).zip(&mut self.0);
        let (path, lane) = paths.find(|(_, lane)| lane.wants_question(now, are_all_down))?;
        lane.ask(now);
        Some(path)
    }

    /// Records that an acknowledgement came on `path`.
    pub(super) fn reply_received(&mut self, now: LocalNs, path: PathId, is_answer: ProbeReply) {
        let are_all_down = self.are_all_down();
        if let Some(lane) = self.0.get_mut(usize::from(path.0)) {
            // Where all paths are down no question leaves, and data take its part.
            lane.reply_received(now, if are_all_down { ProbeReply::Yes } else { is_answer });
        }
    }

    /// Returns the longest timeout of those in use, with what an answer may wait at the peer.
    pub(super) fn reply_timeout(&self) -> Nanos {
        self.usable().map(|(_, lane)| lane.reply_timeout(ANSWER_MAX)).max().unwrap_or(ANSWER_MAX)
    }

    /// Records that what left on `path` at `at` was waited for in vain; returns whether the path is
    /// down for that.
    pub(super) fn time_out(&mut self, now: LocalNs, path: PathId, at: LocalNs) -> bool {
        let mut others = (0..)
            .map(PathId)
            .zip(&self.0)
            .filter(|(other, lane)| *other != path && !lane.is_down());
        let are_heard = others.any(|(_, lane)| lane.was_alive_since(at));
        let lane = self.path_mut(path);
        lane.time_out();
        if are_heard && lane.is_silent() {
            lane.go_down(now);
        }
        lane.is_down()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: PathId = PathId(0);
    const B: PathId = PathId(1);

    #[test]
    fn time_out__a_few_lost_ones_are_chance_until_it_happens_again_and_others_are_heard() {
        let mut paths = StreamPaths::new(Class::Bulk, 2);
        let _ = [0; 2].map(|_| paths.path_mut(A).leave(LocalNs(10)));
        assert!(
            (0..9).all(|_| !paths.time_out(LocalNs(60), A, LocalNs(10))),
            "the peer may stand still"
        );
        paths.reply_received(LocalNs(61), A, ProbeReply::Yes);
        assert!(!paths.time_out(LocalNs(62), A, LocalNs(10)));
        paths.reply_received(LocalNs(63), B, ProbeReply::Yes);
        assert!(paths.time_out(LocalNs(64), A, LocalNs(10)));
        assert!(
            (0..9).all(|_| !paths.time_out(LocalNs(90), B, LocalNs(10))),
            "the last one is never left"
        );
    }

    #[test]
    fn next_question__one_leaves_on_every_path_when_asked_for() {
        let mut paths = StreamPaths::new(Class::Bulk, 2);
        assert_eq!(paths.next_question(LocalNs(1)), None);
        paths.ask_all();
        let asked = [0; 3].map(|_| paths.next_question(LocalNs(1)));
        assert_eq!(asked, [Some(A), Some(B), None]);
    }

    #[test]
    fn choose__a_path_that_is_down_gets_questions_until_one_is_answered_on_it() {
        let mut paths = StreamPaths::new(Class::Bulk, 2);
        paths.path_mut(A).go_down(LocalNs(0));
        let soon = LocalNs(0) + Nanos::from_millis(1);
        let later = LocalNs(0) + Nanos::from_millis(200);
        assert_eq!((paths.choose(later), paths.next_question(soon)), (B, None));
        paths.reply_received(soon, A, ProbeReply::No);
        assert!(paths.path_mut(A).is_down(), "what came late on its way");
        assert_eq!((paths.next_question(later), paths.next_question(later)), (Some(A), None));
        assert_eq!(paths.choose(later), B);
        paths.reply_received(later, A, ProbeReply::Yes);
        assert_eq!(paths.choose(later), A);
    }

    #[test]
    fn room__where_all_are_down_all_are_used() {
        let mut paths = StreamPaths::new(Class::Bulk, 2);
        for path in [A, B] {
            paths.path_mut(path).go_down(LocalNs(0));
        }
        let later = LocalNs(0) + Nanos::from_millis(200);
        assert_eq!((paths.room(later), paths.next_question(later)), (2, None));
    }
}
