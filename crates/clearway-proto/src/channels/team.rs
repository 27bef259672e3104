//! One team at one of its members: what it has, who has taken it, and what a silence means.
//!
//! # Model
//! ```text
//!   forming --stamp--> unsettled --all have taken it--> settled --greater stamp--> unsettled ..
//!      \---leader silent---^  \--author silent: the next member's stamp--^
//! ```
//! Until a stamp is settled its author sends it to those who have not taken it, and the others ask
//! the author now and then, by which they notice that it is silent. A member in the middle of a
//! broadcast follows a stamp that takes its channel away, but says so only at the end.
//!
//! # Invariants
//! I1. The knowledge that a member has of a team never gets older.
//! I2. A channel that the team had is free here only when its author has heard all living members.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use super::formation::Formation;
use super::frame::{
    ChannelAssignment, ChannelsFrame, HoldStatus, Holdings, Version, VersionedAssignment,
};
use super::pool::ChannelPool;
use super::{CHANNELS_MAX, Channel, ChannelsConfig, ChannelsEvent};
use crate::base::{LocalNs, Nanos, RandomStream, Rank};
use crate::wire::{Destination, Out, Span};

/// The longest time between two questions to one that does not answer: some hundredths of a usual
/// silence.
const GAP_MAX: Nanos = Nanos::from_millis(50);

/// What all teams of a rank share, and what a step writes into.
pub(super) struct TeamContext<'a> {
    pub(super) config: &'a ChannelsConfig,
    pub(super) pool: &'a mut ChannelPool,
    pub(super) dead: &'a BTreeSet<Rank>,
    pub(super) stream: &'a mut RandomStream,
    pub(super) now: LocalNs,
    /// What this rank holds for other teams.
    pub(super) holdings: Holdings,
    /// The channel that this team asks another one to give up.
    pub(super) recall: Option<u8>,
    pub(super) out: &'a mut Out<ChannelsEvent>,
}

/// One team.
#[derive(Debug)]
pub(super) struct Team {
    pub(super) key: u32,
    pub(super) members: Arc<[Rank]>,
    pub(super) me: u16,
    pub(super) version: Version,
    target: ChannelAssignment,
    pub(super) is_settled: bool,
    /// This member goes along with the stamp.
    has_taken: bool,
    /// Author: who does.
    taken: Vec<bool>,
    /// Since when the stamp is what it is, or the team forms.
    since: LocalNs,
    last_heard: Vec<LocalNs>,
    notified: Option<Channel>,
    is_casting: bool,
    used_at: LocalNs,
    is_disbanded: bool,
    pub(super) is_gone: bool,
    pub(super) forming: Formation,
    gap: Nanos,
    next: LocalNs,
}

impl Team {
    /// Creates a team; `None` when `members` are no team of `config.rank`.
    pub(super) fn new(
        key: u32,
        members: Arc<[Rank]>,
        config: &ChannelsConfig,
        now: LocalNs,
    ) -> Option<Self> {
        let me = u16::try_from(members.iter().position(|rank| *rank == config.rank)?).ok()?;
        let distinct: BTreeSet<Rank> = members.iter().copied().collect();
        let count = members.len();
        (distinct.len() == count && count <= usize::from(u16::MAX)).then(|| Self {
            key,
            members,
            me,
            version: Version::default(),
            target: ChannelAssignment::Shared,
            is_settled: false,
            has_taken: false,
            taken: vec![false; count],
            since: now,
            last_heard: vec![now; count],
            notified: None,
            is_casting: false,
            used_at: now,
            is_disbanded: false,
            is_gone: false,
            forming: Formation::new(count),
            gap: config.retry,
            next: now + config.retry,
        })
    }

    /// Returns the place of `rank` in this team.
    pub(super) fn place_of(&self, rank: Rank) -> Option<u16> {
        self.members.iter().position(|member| *member == rank).map(|place| place as u16)
    }

    /// Returns whether this member is to lead the agreement, which is not over.
    pub(super) fn leads(&self) -> bool {
        self.me == 0 && self.version.number == 0
    }

    pub(super) fn is_living(&self, place: u16, bench: &TeamContext<'_>) -> bool {
        self.members.get(usize::from(place)).is_some_and(|rank| !bench.dead.contains(rank))
    }

    /// Returns the other members that live.
    pub(super) fn others(&self, bench: &TeamContext<'_>) -> Vec<u16> {
        (0..self.members.len() as u16)
            .filter(|place| *place != self.me && self.is_living(*place, bench))
            .collect()
    }

    fn first_living(&self, bench: &TeamContext<'_>) -> u16 {
        (0..self.me).find(|place| self.is_living(*place, bench)).unwrap_or(self.me)
    }

    pub(super) fn send(&self, place: u16, frame: &ChannelsFrame, bench: &mut TeamContext<'_>) {
        if let Some(rank) = self.members.get(usize::from(place)) {
            let head = frame.encode(self.key);
            bench.out.send(
                Destination::One(*rank),
                bench.config.class,
                head.bytes(),
                Span::EMPTY,
                None,
            );
        }
    }

    fn stamp(&self) -> ChannelsFrame {
        ChannelsFrame::Stamp(VersionedAssignment {
            version: self.version,
            target: self.target,
            settled: self.is_settled,
        })
    }

    /// Waits anew: what is asked is asked again soon.
    pub(super) fn wait_anew(&mut self, bench: &TeamContext<'_>) {
        self.gap = bench.config.retry;
        self.next = bench.now + self.gap;
    }

    /// Records that a member wrote.
    pub(super) fn mark_alive(&mut self, place: u16, now: LocalNs) {
        if let Some(heard) = self.last_heard.get_mut(usize::from(place)) {
            *heard = now;
        }
    }

    /// Returns whether nothing came from `place` for `times` the silence, nor was asked before.
    pub(super) fn is_silent(&self, place: u16, times: u64, bench: &TeamContext<'_>) -> bool {
        let heard = self.last_heard.get(usize::from(place)).copied().unwrap_or(self.since);
        bench.now.since(heard.max(self.since)) >= bench.config.silence.times(times)
    }

    /// Sets the channel that the team has from now on to `target`, whatever it had.
    pub(super) fn declare(&mut self, target: ChannelAssignment, bench: &mut TeamContext<'_>) {
        // A number that only somebody's nonsense can reach: nothing is greater.
        let Some(number) = self.version.number.checked_add(1) else { return };
        self.taken.fill(false);
        self.follow(Version { number, author: self.me }, target, bench);
        let stamp = self.stamp();
        self.others(bench).into_iter().for_each(|place| self.send(place, &stamp, bench));
    }

    fn follow(&mut self, version: Version, target: ChannelAssignment, bench: &mut TeamContext<'_>) {
        (self.version, self.target, self.is_settled, self.has_taken) =
            (version, target, false, false);
        self.since = bench.now;
        match target {
            ChannelAssignment::Own(channel) => {
                bench.out.notify(ChannelsEvent::Join { team: self.key, channel })
            }
            // The member that closes the team has not waited for this member.
            ChannelAssignment::Closed if self.notified.is_some() => {}
            ChannelAssignment::Shared | ChannelAssignment::Closed => {
                self.notify(Channel::Shared, bench)
            }
        }
        self.wait_anew(bench);
        self.take(bench);
    }

    fn notify(&mut self, channel: Channel, bench: &mut TeamContext<'_>) {
        if self.notified != Some(channel) && !self.is_disbanded {
            self.notified = Some(channel);
            bench.out.notify(ChannelsEvent::Agreed { team: self.key, channel });
        }
    }

    /// Goes along with the stamp, if nothing here stands against it.
    fn take(&mut self, bench: &mut TeamContext<'_>) {
        let may = match self.target {
            ChannelAssignment::Own(_) => true,
            ChannelAssignment::Shared => !self.is_casting,
            ChannelAssignment::Closed => self.is_disbanded,
        };
        if self.version.number == 0 || self.has_taken || !may {
            return;
        }
        self.has_taken = true;
        self.say_taken(bench);
    }

    fn say_taken(&mut self, bench: &mut TeamContext<'_>) {
        let (version, author) = (self.version, self.version.author);
        match author == self.me {
            true => self.note_taken(author),
            false => self.send(
                author,
                &ChannelsFrame::Hold(HoldStatus { version, asks: false, taken: true }),
                bench,
            ),
        }
    }

    fn note_taken(&mut self, place: u16) {
        if let Some(taken) = self.taken.get_mut(usize::from(place)) {
            *taken = true;
        }
    }

    /// Handles a stamp.
    pub(super) fn stamped(
        &mut self,
        from: u16,
        stamp: &VersionedAssignment,
        bench: &mut TeamContext<'_>,
    ) {
        let VersionedAssignment { version, target, settled } = *stamp;
        if usize::from(version.author) >= self.members.len() || version.number == 0 {
            return;
        }
        if version < self.version {
            return self.send(from, &self.stamp(), bench);
        }
        if version > self.version {
            // It was promised, or nobody would have made this stamp.
            if let ChannelAssignment::Own(channel) = target
                && !bench.pool.hold(channel, self.key)
            {
                return;
            }
            self.follow(version, target, bench);
        } else if self.has_taken && !settled && version.author != self.me {
            self.say_taken(bench);
        }
        if settled && !self.is_settled && version.author != self.me && target == self.target {
            self.settle(bench);
        }
    }

    /// Handles a member's word how far it is.
    pub(super) fn held(&mut self, from: u16, hold: &HoldStatus, bench: &mut TeamContext<'_>) {
        let HoldStatus { version, asks, taken } = *hold;
        if version > self.version {
            let (version, taken) = (self.version, self.has_taken);
            return self.send(
                from,
                &ChannelsFrame::Hold(HoldStatus { version, asks: true, taken }),
                bench,
            );
        }
        if version < self.version {
            return self.send(from, &self.stamp(), bench);
        }
        if version.number == 0 {
            if asks && self.leads() {
                self.ask_again(from, bench);
            }
            return;
        }
        if taken && version.author == self.me {
            self.note_taken(from);
        }
        if asks {
            self.send(from, &self.stamp(), bench);
        }
    }

    /// Ends the team for the author of what was taken.
    pub(super) fn peer_left(&mut self, from: u16, bench: &mut TeamContext<'_>) {
        if self.target == ChannelAssignment::Closed && self.has_taken && self.version.author == from
        {
            self.settle(bench);
        }
    }

    fn settle(&mut self, bench: &mut TeamContext<'_>) {
        self.is_settled = true;
        match self.target {
            ChannelAssignment::Own(channel) => {
                bench.pool.free(self.key, Some(channel));
                self.used_at = bench.now;
                self.notify(Channel::Own(channel), bench);
            }
            ChannelAssignment::Shared => bench.pool.free(self.key, None),
            ChannelAssignment::Closed => {
                bench.pool.free(self.key, None);
                self.is_gone = true;
                bench.out.notify(ChannelsEvent::Disbanded { team: self.key });
            }
        }
    }

    /// Records that a broadcast begins.
    pub(super) fn begin(&mut self) {
        self.is_casting = !self.is_disbanded;
    }

    /// Records that a broadcast is over.
    pub(super) fn end(&mut self, bench: &mut TeamContext<'_>) {
        (self.is_casting, self.used_at) = (false, bench.now);
        self.take(bench);
    }

    /// Disbands the team: the application needs it no more.
    pub(super) fn disband(&mut self, bench: &mut TeamContext<'_>) {
        (self.is_disbanded, self.is_casting) = (true, false);
        self.take(bench);
        self.close(bench);
    }

    /// Ends a team that is not needed: one member says so for all.
    fn close(&mut self, bench: &mut TeamContext<'_>) {
        let is_mine = self.first_living(bench) == self.me
            || self.version.number > 0 && self.version.author == self.me;
        if self.is_disbanded && is_mine && self.target != ChannelAssignment::Closed {
            self.declare(ChannelAssignment::Closed, bench);
        }
    }

    /// Returns what this team is to others that look for a channel.
    pub(super) fn idle(&self, channel: u8, bench: &TeamContext<'_>) -> u16 {
        let is_over = bench.now.since(self.used_at) >= bench.config.idle;
        let has = self.is_settled
            && self.target == ChannelAssignment::Own(channel)
            && !self.is_casting
            && !self.is_disbanded;
        let ms = bench.now.since(self.used_at).0 / 1_000_000;
        if has && is_over { ms.clamp(1, u64::from(u16::MAX)) as u16 } else { 0 }
    }

    /// Passes on that some team has need of `channel`: notifies the first member of this one, if it
    /// is idle.
    pub(super) fn pass_recall(&mut self, channel: u8, bench: &mut TeamContext<'_>) {
        let first = self.first_living(bench);
        if first == self.me {
            self.recalled(channel, bench);
        } else if self.idle(channel, bench) > 0 {
            self.send(first, &ChannelsFrame::Recall { channel }, bench);
        }
    }

    /// Handles the demand that the team give `channel` up.
    pub(super) fn recalled(&mut self, channel: u8, bench: &mut TeamContext<'_>) {
        if self.idle(channel, bench) > 0 {
            self.declare(ChannelAssignment::Shared, bench);
        }
    }

    /// Handles a death: a rank that waits for the dead one begins to wait from now.
    pub(super) fn died(&mut self, rank: Rank, bench: &mut TeamContext<'_>) {
        if let Some(place) = self.place_of(rank) {
            self.mark_alive(place, bench.now);
            self.close(bench);
        }
    }

    /// Asks those again that are waited for, if it is time.
    pub(super) fn tick(&mut self, bench: &mut TeamContext<'_>) {
        if self.is_settled || self.next > bench.now {
            return;
        }
        self.gap = (self.gap + self.gap).min(GAP_MAX);
        self.next = bench.now + self.gap;
        if self.leads() {
            return self.ask_all_again(bench);
        }
        if self.version.number > 0 && self.version.author == self.me {
            let stamp = self.stamp();
            return self
                .lacking(bench)
                .into_iter()
                .for_each(|place| self.send(place, &stamp, bench));
        }
        let (version, author, taken) = (self.version, self.version.author, self.has_taken);
        self.send(author, &ChannelsFrame::Hold(HoldStatus { version, asks: true, taken }), bench);
    }

    /// Returns the members that have not taken this member's stamp.
    fn lacking(&self, bench: &TeamContext<'_>) -> Vec<u16> {
        let lacks = |place: &u16| !self.taken.get(usize::from(*place)).is_some_and(|taken| *taken);
        self.others(bench).into_iter().filter(lacks).collect()
    }

    /// Goes as far as it can.
    pub(super) fn progress(&mut self, bench: &mut TeamContext<'_>) {
        if self.is_settled {
            return;
        }
        if self.leads() {
            self.lead(bench);
        }
        if self.version.number == 0 || self.version.author != self.me {
            return self.watch(bench);
        }
        let lacking = self.lacking(bench);
        if lacking.is_empty() && self.has_taken {
            self.settle(bench);
            let stamp = self.stamp();
            self.others(bench).into_iter().for_each(|place| self.send(place, &stamp, bench));
        } else if matches!(self.target, ChannelAssignment::Own(_))
            && lacking.iter().any(|place| self.is_silent(*place, 1, bench))
        {
            self.declare(ChannelAssignment::Shared, bench);
            self.progress(bench);
        }
    }

    /// Takes the part of an author that is silent or dead: members one after the other.
    fn watch(&mut self, bench: &mut TeamContext<'_>) {
        let author = self.version.author;
        if author == self.me {
            return;
        }
        let before = (0..self.me)
            .filter(|place| *place != author && self.is_living(*place, bench))
            .count() as u64;
        let silences = before + u64::from(self.is_living(author, bench));
        if !self.is_silent(author, silences, bench) {
            return;
        }
        let target = match self.target {
            ChannelAssignment::Closed => ChannelAssignment::Closed,
            _ if self.is_disbanded => ChannelAssignment::Closed,
            _ => ChannelAssignment::Shared,
        };
        self.declare(target, bench);
        self.progress(bench);
    }

    /// Returns when this team wants to be looked at. The silences of others are looked at as often
    /// as they are asked.
    pub(super) fn deadline(&self) -> Option<LocalNs> {
        let waits = self.leads().then(|| self.forming.not_before()).flatten();
        (!self.is_settled).then(|| waits.map_or(self.next, |at| at.min(self.next)))
    }
}

impl Holdings {
    /// Merges what `other` holds as well: busy at any is busy, and idle as long as at all who hold
    /// it.
    pub(super) fn merge(&mut self, other: &Self) {
        for channel in 0..CHANNELS_MAX {
            let (bit, place) = (1 << channel, usize::from(channel));
            let (Some(own), Some(others)) = (self.idle.get_mut(place), other.idle.get(place))
            else {
                continue;
            };
            *own = match (self.busy & bit != 0, other.busy & bit != 0) {
                (true, true) => (*own).min(*others),
                (false, true) => *others,
                _ => *own,
            };
        }
        self.busy |= other.busy;
    }

    /// Returns the lowest channel that is free.
    pub(super) fn free(&self) -> Option<u8> {
        let free = self.busy.trailing_ones() as u8;
        (free < CHANNELS_MAX).then_some(free)
    }

    /// Returns the channel that was idle longest, without those in `but`.
    pub(super) fn idlest(&self, but: u8) -> Option<u8> {
        let may = |channel: &u8| but & 1 << channel == 0 && self.idle_of(*channel) > 0;
        (0..CHANNELS_MAX).rev().filter(may).max_by_key(|channel| self.idle_of(*channel))
    }

    fn idle_of(&self, channel: u8) -> u16 {
        let is_busy = self.busy & 1 << channel != 0;
        self.idle.get(usize::from(channel)).copied().filter(|_| is_busy).unwrap_or(0)
    }
}
