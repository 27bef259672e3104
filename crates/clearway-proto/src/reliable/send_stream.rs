//! The sending half of a stream: messages of one class to one peer, cut into fragments, until the
//! peer has them.
//!
//! # Model
//! ```text
//!   push -> waiting -cut-> Unread -digest-> Ready -leave-> Away -answer-> Here
//!                                     ^--- overtaken, damaged, late ---'
//! ```
//! A fragment keeps number and bytes however often it leaves.
//!
//! # Invariants
//! I1. A message ends once: complete when every fragment of it was answered, refused, or given up.
//! I2. No more than [`super::WINDOW`] fragments lie between the first that was not answered and the
//!     next new one.
//!
//! # Not here
//! How messages are cut (`segmentation`); which path a fragment takes (`paths`), and how much may
//! be under way there (`stream_path`); frames (`node`).

use alloc::collections::{BTreeSet, VecDeque};

use super::frame::{Acknowledgement, BodyPlacement, FragmentHeader, whole};
use super::paths::StreamPaths;
use super::segmentation::{SegmentationLimits, SegmentationQueue, SegmentedMessage};
use super::stream_path::{ProbeReply, StreamPath, TIMEOUT_MOST};
use super::{ANSWER_MAX, Message, MessageCompletion, WINDOW};
use crate::base::{Class, LocalNs, Nanos};
use crate::wire::{PathId, RefusalReason, Span, Status};

/// Where a fragment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FragmentState {
    /// Its digest is not known yet.
    Unread,
    /// It is to leave.
    Ready,
    /// It left as `number` of `path`.
    Away { path: PathId, number: u64, at: LocalNs },
    /// The peer has it.
    Here,
}

/// What has been under way for the longest time: since when, and as which of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct OldestInFlight {
    at: LocalNs,
    path: PathId,
    number: u64,
}

#[derive(Clone, Copy, Debug)]
struct Fragment {
    body: Span,
    place: BodyPlacement,
    digest: u32,
    state: FragmentState,
    /// Left more than once: the answer says nothing about the round trip.
    is_repeated: bool,
    is_skipped: bool,
}

/// How an acknowledgement came.
#[derive(Clone, Copy, Debug)]
pub(super) struct AcknowledgementArrival {
    /// When the network gave it to this host. How long the host took to look at it is no delay of the
    /// network: measured as one, it would make the windows of busy hosts small.
    pub(super) at: LocalNs,
    pub(super) path: PathId,
}

/// The next thing to do.
#[derive(Clone, Copy, Debug)]
pub(super) enum SendAction {
    /// Ask for the digest of a fragment's body.
    Read { number: u64, body: Span },
    /// Send a fragment.
    Send { number: u64, path: PathId, data: FragmentHeader, body: Span },
    /// Ask for an acknowledgement of everything below `number`.
    Ask { number: u64, path: PathId },
}

/// The sending half of a stream.
#[derive(Debug)]
pub(super) struct SendStream {
    pub(super) generation: u16,
    class: Class,
    paths: StreamPaths,
    cutting: SegmentationQueue,
    fragments: VecDeque<Fragment>,
    /// The number of the first fragment in `fragments`.
    base: u64,
    cut: VecDeque<SegmentedMessage>,
    ready: BTreeSet<u64>,
    unread: u32,
    is_known: bool,
    /// When something was last heard, or began to be waited for.
    last_heard: LocalNs,
    /// When to look whether something is late; kept although it is answered meanwhile, and looked
    /// at then.
    timer: Option<LocalNs>,
    /// When somebody will look at the timer.
    pub(super) armed: Option<LocalNs>,
    /// When something was last found late.
    probed: LocalNs,
    /// Questions in a row.
    questions: u32,
    at_once: bool,
}

impl SendStream {
    pub(super) fn new(
        generation: u16,
        class: Class,
        measures: SegmentationLimits,
        paths: usize,
    ) -> Self {
        Self {
            generation,
            class,
            paths: StreamPaths::new(class, paths),
            cutting: SegmentationQueue::new(measures),
            fragments: VecDeque::new(),
            base: 0,
            cut: VecDeque::new(),
            ready: BTreeSet::new(),
            unread: 0,
            is_known: false,
            last_heard: LocalNs(0),
            timer: None,
            armed: None,
            probed: LocalNs(0),
            questions: 0,
            at_once: false,
        }
    }

    /// Returns the messages that are not cut to the end.
    pub(super) fn backlog(&self) -> usize {
        self.cutting.waiting.len()
    }

    /// Returns whether nothing waits for an answer, and nothing to leave.
    pub(super) fn is_idle(&self) -> bool {
        self.cutting.waiting.is_empty() && self.fragments.is_empty()
    }

    /// Takes a message.
    pub(super) fn push(&mut self, now: LocalNs, message: Message) {
        if self.is_idle() {
            self.last_heard = now;
            self.timer = self.timer.or(Some(now + self.paths.reply_timeout()));
        }
        self.cutting.waiting.push_back(message);
    }

    /// Returns the next thing that can be done now.
    pub(super) fn next(&mut self, now: LocalNs) -> Option<SendAction> {
        let room = self.paths.room(now);
        if room > 0
            && let Some(number) = self.ready.pop_first()
        {
            return Some(self.leave(now, number));
        }
        // Behind what leaves again: where a buffer holds one datagram, a question must not take its
        // place. A peer that does not know the stream would answer that.
        if self.is_known
            && !self.is_idle()
            && let Some(path) = self.paths.next_question(now)
        {
            return Some(SendAction::Ask { number: self.base, path });
        }
        if self.unread >= room {
            return None;
        }
        let number = self.cut_one()?;
        let body = self.fragments.back()?.body;
        if body.length == 0 {
            // Nothing to read: the digest of no bytes is known.
            self.read(number, 0);
            self.ready.remove(&number);
            return Some(self.leave(now, number));
        }
        Some(SendAction::Read { number, body })
    }

    fn leave(&mut self, now: LocalNs, number: u64) -> SendAction {
        let path = self.paths.choose(now);
        let lane = self.paths.path_mut(path);
        let (on_path, wants_answer) = (lane.leave(now), lane.wants_answer());
        let at_once = core::mem::take(&mut self.at_once) || wants_answer;
        let is_open = !self.is_known;
        let tail = self
            .cut
            .binary_search_by_key(&number, |cut| cut.last)
            .ok()
            .map(|which| self.cut[which].tail);
        let place = (number - self.base) as usize;
        let fragment = &mut self.fragments[place];
        fragment.state = FragmentState::Away { path, number: on_path, at: now };
        let body = if fragment.is_skipped { Span::EMPTY } else { fragment.body };
        let Fragment { digest, place, is_skipped, .. } = *fragment;
        let digest = if is_skipped { 0 } else { digest };
        SendAction::Send {
            number,
            path,
            data: FragmentHeader {
                is_open,
                is_skipped,
                at_once,
                digest,
                place,
                carried: None,
                tail,
            },
            body,
        }
    }

    /// Cuts the next fragment; its number.
    fn cut_one(&mut self) -> Option<u64> {
        if self.fragments.len() >= WINDOW as usize {
            return None;
        }
        let number = self.base + self.fragments.len() as u64;
        let (body, place, last) = self.cutting.next(number)?;
        let state = FragmentState::Unread;
        self.fragments.push_back(Fragment {
            body,
            place,
            digest: 0,
            state,
            is_repeated: false,
            is_skipped: false,
        });
        self.unread += 1;
        self.cut.extend(last);
        Some(number)
    }

    /// Handles the digest of a fragment's body.
    pub(super) fn read(&mut self, number: u64, digest: u32) {
        if let Some(fragment) = self.fragment(number)
            && fragment.state == FragmentState::Unread
        {
            (fragment.digest, fragment.state) = (digest, FragmentState::Ready);
            self.unread -= 1;
            self.ready.insert(number);
        }
    }

    fn fragment(&mut self, number: u64) -> Option<&mut Fragment> {
        self.fragments.get_mut(usize::try_from(number.checked_sub(self.base)?).ok()?)
    }

    /// Returns the whole number that ends in `low`.
    pub(super) const fn whole(&self, low: u32) -> u64 {
        whole(self.base, low)
    }

    /// Records that the send of fragment `number` on a path came to nothing, and that it is still
    /// to leave unless it left on another one meanwhile; returns the path whose queue is full, if
    /// that is why.
    pub(super) fn posted(
        &mut self,
        now: LocalNs,
        number: u64,
        on: PathId,
        status: Status,
    ) -> Option<PathId> {
        let fragment = self.fragment(number)?;
        let FragmentState::Away { path, .. } = fragment.state else { return None };
        if path != on {
            return None;
        }
        fragment.state = FragmentState::Ready;
        self.ready.insert(number);
        let lane = self.paths.path_mut(path);
        lane.forget();
        if status == Status::NoRoom {
            lane.is_blocked = true;
            return Some(path);
        }
        lane.go_down(now);
        None
    }

    /// Continues: the transmit queue of `path` takes messages again.
    pub(super) fn unblock(&mut self, path: PathId) {
        self.paths.path_mut(path).is_blocked = false;
    }

    /// Takes `path` out of use: it carries nothing any more, and what is under way there leaves on
    /// others.
    pub(super) fn path_down(&mut self, now: LocalNs, path: PathId) {
        self.paths.path_mut(path).go_down(now);
        self.withdraw(
            |state, _| matches!(state, FragmentState::Away { path: on, .. } if on == path),
        );
    }

    /// Takes in what the peer has, as it says in an acknowledgement that `arrived`; `done` hears of
    /// messages that are over.
    pub(super) fn acknowledged(
        &mut self,
        now: LocalNs,
        arrived: AcknowledgementArrival,
        number: u32,
        acknowledgement: &Acknowledgement,
        allowance: Nanos,
        done: &mut dyn FnMut(MessageCompletion, Status),
    ) {
        let below = self.whole(number);
        if below > self.base + self.fragments.len() as u64 {
            return;
        }
        if self.cutting.free(acknowledgement.freed) || below > self.base {
            self.questions = 0;
        }
        (self.last_heard, self.is_known) = (now, true);
        self.paths.reply_received(
            now,
            arrived.path,
            if acknowledgement.is_answer { ProbeReply::Yes } else { ProbeReply::No },
        );
        self.measure(arrived.at, acknowledgement);
        while self.base < below {
            self.here(now, self.base);
            self.fragments.pop_front();
            self.base += 1;
        }
        for (word, bits) in acknowledgement.bitmap.iter().enumerate() {
            let mut bits = *bits;
            while bits != 0 {
                self.here(now, below + 1 + 64 * word as u64 + u64::from(bits.trailing_zeros()));
                bits &= bits - 1;
            }
        }
        if acknowledgement.bitmap.iter().any(|word| *word != 0)
            || acknowledgement.is_answer
            || self.paths.count() > 1
        {
            self.withdraw(
                |state, lane| matches!(state, FragmentState::Away { number, .. } if lane.is_overtaken(number)),
            );
        }
        for lane in self.paths.iter_mut() {
            if acknowledgement.is_marked {
                lane.mark();
            }
            lane.adapt(now, allowance);
        }
        self.end_messages(done);
    }

    /// Measures the round trip of the newest fragment that the peer had, if it left once; the
    /// acknowledgement arrived at `arrived`.
    fn measure(&mut self, arrived: LocalNs, acknowledgement: &Acknowledgement) {
        let number = self.whole(acknowledgement.newest);
        if let Some(&mut Fragment {
            state: FragmentState::Away { path, at, .. },
            is_repeated: false,
            ..
        }) = self.fragment(number)
            && path == acknowledgement.path
        {
            let waited = u64::from(acknowledgement.waited_ns);
            let trip = Nanos(arrived.since(at).0.saturating_sub(waited));
            self.paths.path_mut(path).measure(arrived, trip);
        }
    }

    /// Records that the peer has fragment `number`.
    fn here(&mut self, now: LocalNs, number: u64) {
        let Some(fragment) = self.fragment(number) else { return };
        let is_repeated = fragment.is_repeated;
        match core::mem::replace(&mut fragment.state, FragmentState::Here) {
            FragmentState::Away { path, .. } if is_repeated => {
                self.paths.path_mut(path).answer_repeated()
            }
            FragmentState::Away { path, number, .. } => {
                self.paths.path_mut(path).answer(now, number)
            }
            FragmentState::Ready => {
                self.ready.remove(&number);
            }
            // A peer that acknowledges what never left: its word for it.
            FragmentState::Unread => self.unread -= 1,
            FragmentState::Here => {}
        }
    }

    /// Lets all fragments whose state is `lost` leave again.
    fn withdraw(&mut self, is_lost: impl Fn(FragmentState, &StreamPath) -> bool) {
        for (number, fragment) in (self.base..).zip(&mut self.fragments) {
            let FragmentState::Away { path, .. } = fragment.state else { continue };
            if self.paths.get(path).is_some_and(|lane| is_lost(fragment.state, lane)) {
                (fragment.state, fragment.is_repeated) = (FragmentState::Ready, true);
                self.ready.insert(number);
                self.paths.path_mut(path).packet_lost();
            }
        }
    }

    /// Handles a fragment `number` that arrived as something else than it was.
    pub(super) fn damaged(&mut self, number: u32) {
        let number = self.whole(number);
        if let Some(fragment) = self.fragment(number)
            && let FragmentState::Away { path, .. } = fragment.state
        {
            (fragment.state, fragment.is_repeated) = (FragmentState::Ready, true);
            self.ready.insert(number);
            self.paths.path_mut(path).packet_lost();
        }
    }

    /// Handles a fragment `number` whose place does not exist: its message goes on without bytes,
    /// and ends as refused.
    pub(super) fn refused(&mut self, number: u32) {
        let number = self.whole(number);
        if self.fragment(number).is_none() {
            return;
        }
        let (first, last) =
            match self.cut.iter_mut().find(|cut| cut.first <= number && number <= cut.last) {
                Some(cut) => {
                    cut.is_refused = true;
                    (cut.first, cut.last)
                }
                // Of a message that is not cut to its end: the fragments that follow say the rest.
                None => (number, number),
            };
        for number in first.max(self.base)..=last {
            if let Some(fragment) = self.fragment(number) {
                fragment.is_skipped = true;
            }
        }
        self.damaged(number as u32);
    }

    /// Tells of messages all of whose fragments were answered.
    fn end_messages(&mut self, done: &mut dyn FnMut(MessageCompletion, Status)) {
        while self.cut.front().is_some_and(|cut| cut.last < self.base) {
            let Some(cut) = self.cut.pop_front() else { break };
            let status = if cut.is_refused {
                Status::Refused(RefusalReason::Memory)
            } else {
                Status::Complete
            };
            done(cut.ticket, status);
        }
    }

    /// Returns when to be asked for what is late.
    pub(super) const fn deadline(&self) -> Option<LocalNs> {
        self.timer
    }

    /// Handles the passing of time. A fragment that was waited for in vain leaves again and asks
    /// for an answer; where nothing is under way and nothing can leave, the peer is asked whether
    /// its inbox has room: what it said of it may be lost.
    pub(super) fn tick(&mut self, now: LocalNs) {
        if self.timer.is_none_or(|at| at > now) {
            return;
        }
        if self.is_idle() {
            self.timer = None;
            return;
        }
        match self.oldest() {
            Some(oldest) if self.late_at(oldest) <= now => {
                self.probed = now;
                self.late(now, oldest);
            }
            Some(_) => {}
            None => {
                if self.ready.is_empty() || self.paths.are_all_down() {
                    self.paths.ask_all();
                }
                self.questions += 1;
            }
        }
        let late = self.oldest().map(|oldest| self.late_at(oldest));
        let again = Nanos(self.paths.reply_timeout().0.saturating_mul(1 << self.questions.min(8)))
            .min(TIMEOUT_MOST);
        self.timer = Some(late.unwrap_or(now + again).max(now + Nanos(1)));
    }

    /// Returns when the oldest fragment under way is late. After one that was, the next has its
    /// time as well: else all of them would leave again at once.
    fn late_at(&mut self, oldest: OldestInFlight) -> LocalNs {
        oldest.at.max(self.probed) + self.paths.path_mut(oldest.path).reply_timeout(ANSWER_MAX)
    }

    /// Sends again what left for the longest time and was waited for in vain. It alone leaves
    /// again, unless the path is down: answers to questions tell what became of the others.
    fn late(&mut self, now: LocalNs, OldestInFlight { at, path, number }: OldestInFlight) {
        self.at_once = true;
        self.paths.ask_all();
        if self.paths.time_out(now, path, at) {
            self.withdraw(
                |state, _| matches!(state, FragmentState::Away { path: on, .. } if on == path),
            );
        } else {
            let is_it = |state| matches!(state, FragmentState::Away { path: on, number: own, .. } if on == path && own == number);
            self.withdraw(|state, _| is_it(state));
        }
    }

    /// Returns the fragment that has been under way for the longest time.
    fn oldest(&self) -> Option<OldestInFlight> {
        let away = self.fragments.iter().filter_map(|fragment| match fragment.state {
            FragmentState::Away { path, number, at } => Some(OldestInFlight { at, path, number }),
            _ => None,
        });
        away.min()
    }

    /// Returns how long nothing has been heard although something is waited for.
    pub(super) fn silence(&self, now: LocalNs) -> Nanos {
        if self.is_idle() { Nanos::ZERO } else { now.since(self.last_heard) }
    }

    /// Subtracts `late`, the delay of this end's own timer, from the peer's silence: a process that
    /// was stopped could not receive.
    pub(super) fn excuse(&mut self, late: Nanos) {
        self.last_heard += late;
    }

    /// Gives everything up, and begins a new stream.
    pub(super) fn give_up(&mut self, done: &mut dyn FnMut(MessageCompletion, Status)) {
        let next = Self::new(
            self.generation.wrapping_add(1),
            self.class,
            self.cutting.measures,
            self.paths.count(),
        );
        let old = core::mem::replace(self, Self { armed: self.armed, ..next });
        old.cut.into_iter().for_each(|cut| done(cut.ticket, Status::Flushed));
        old.cutting.waiting.into_iter().for_each(|message| done(message.ticket, Status::Flushed));
    }
}

#[cfg(test)]
mod tests {
    use super::super::MessageTarget;
    use super::*;
    use crate::base::Rank;
    use crate::wire::memory::{MemoryConfig, MemoryFabric};
    use crate::wire::{RegionId, Wire};

    const A: PathId = PathId(0);
    const B: PathId = PathId(1);

    fn sent(next: Option<SendAction>) -> (u64, PathId) {
        match next {
            Some(SendAction::Send { number, path, .. }) => (number, path),
            other => panic!("nothing left: {other:?}"),
        }
    }

    /// Creates a stream of `paths` paths, with a message without bytes to send.
    fn stream(now: LocalNs, paths: usize) -> SendStream {
        let mut fabric = MemoryFabric::new(MemoryConfig::lossless(1));
        let measures = SegmentationLimits::new(fabric.wire(Rank(0)).capabilities(), 64 << 10);
        let mut stream = SendStream::new(0, Class::Bulk, measures, paths);
        let target = MessageTarget::Inbox { head: crate::base::Head::new() };
        let body = Span { region: RegionId(0), offset: 0, length: 0 };
        let ticket = MessageCompletion { token: None, kept: None };
        stream.push(now, Message { target, body, ticket });
        stream
    }

    #[test]
    fn acknowledged__what_waited_in_this_host_was_no_delay_of_the_network() {
        let (left, arrived) = (LocalNs(5), LocalNs(5) + Nanos::from_micros(80));
        let mut stream = stream(left, 1);
        assert_eq!(sent(stream.next(left)), (0, A));
        let acknowledgement = Acknowledgement {
            is_marked: false,
            is_answer: false,
            freed: 0,
            path: A,
            newest: 0,
            waited_ns: 30_000,
            bitmap: [0; super::super::frame::BITMAP_WORDS],
        };
        let (looked_at, came) =
            (arrived + Nanos::from_millis(5), AcknowledgementArrival { at: arrived, path: A });
        stream.acknowledged(looked_at, came, 1, &acknowledgement, Nanos::ZERO, &mut |_, _| {});
        assert!(stream.is_idle());
        assert_eq!(stream.paths.path_mut(A).expected_delay(), Nanos(50_000 / 10));
    }

    /// A wire that keeps messages for a peer that it does not reach may say so when they left on
    /// another path long ago.
    #[test]
    fn posted__what_fails_late_on_one_path_says_nothing_of_another() {
        let now = LocalNs(5);
        let mut stream = stream(now, 2);
        assert_eq!(sent(stream.next(now)), (0, A));
        stream.path_down(now, A);
        assert_eq!(sent(stream.next(now)), (0, B));
        assert_eq!(stream.posted(now, 0, A, Status::Flushed), None);
        assert!(stream.next(now).is_none(), "it is under way");
        assert!(!stream.paths.path_mut(B).is_down());
        assert_eq!(stream.posted(now, 0, B, Status::NoRoom), Some(B));
    }
}
