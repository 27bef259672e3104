//! A node as a member: what it hears and says about who takes part, and what it does when that
//! changes.

use super::*;

impl TimesliceNode {
    pub(super) fn wish(
        &mut self,
        now: LocalNs,
        command: TimesliceCommand,
        out: &mut Out<TimesliceEvent>,
    ) -> More {
        let (Some(membership), Some(me)) =
            (&mut self.membership, self.journal.member_of(self.config.rank))
        else {
            return More::No;
        };
        match command {
            TimesliceCommand::Join => membership.want_in(now),
            TimesliceCommand::Retire => membership.want(now, ProposedDecision::Retire(me)),
            TimesliceCommand::Weigh { weight } => {
                membership.want(now, ProposedDecision::Weigh { member: me, weight });
                if let NodeRole::Builder(builder) = &mut self.part {
                    builder.weigh(weight);
                }
            }
            _ => {}
        }
        self.go_on(now, out)
    }

    /// Returns a header about who takes part.
    pub(super) fn about_members(
        &mut self,
        now: LocalNs,
        from: Rank,
        head: &[u8],
        out: &mut Out<TimesliceEvent>,
    ) -> More {
        let (Some(frame), Some(from)) =
            (membership::MembershipFrame::parse(head), self.journal.member_of(from))
        else {
            return More::No;
        };
        let Some(membership) = &mut self.membership else { return More::No };
        membership.arrival(now, from, frame, &mut stakes(&mut self.part, &self.journal));
        self.go_on(now, out)
    }

    /// Follows what was decided, and sends what members say to each other.
    pub(super) fn go_on(&mut self, now: LocalNs, out: &mut Out<TimesliceEvent>) -> More {
        let mut more = More::No;
        while let Some((decision, journal)) =
            self.membership.as_mut().and_then(|membership| membership.news())
        {
            if self.follow(now, decision, journal, out) == More::Yes {
                more = More::Yes;
            }
            if let Some(membership) = &mut self.membership {
                membership.followed(now, &mut stakes(&mut self.part, &self.journal));
            }
        }
        let Some(membership) = &mut self.membership else { return more };
        if membership.is_helpless(now) {
            out.notify(TimesliceEvent::Helpless);
        }
        while out.room() > 0
            && let Some((to, frame)) = membership.next_frame()
        {
            let token = TimesliceLabel::Frame { place: to.0, kind: frame.kind() }.token();
            let to = Destination::One(self.journal.rank(to));
            let mut head = frame.encode();
            head.put(&self.config.run.to_le_bytes());
            out.send(to, self.config.control, head.bytes(), Span::EMPTY, Some(token));
        }
        more
    }

    /// Follows into the next epoch, which has come.
    fn follow(
        &mut self,
        now: LocalNs,
        decision: Decision,
        journal: Arc<Journal>,
        out: &mut Out<TimesliceEvent>,
    ) -> More {
        let me = journal.member_of(self.config.rank);
        let before = core::mem::replace(&mut self.journal, journal);
        let is_in = self.membership.as_ref().is_some_and(|membership| membership.is_in());
        let cx = &mut TimesliceContext { now, config: &self.config, journal: &self.journal, out };
        match decision.change {
            Change::Remove { member, settled } if Some(member) == me => {
                if let NodeRole::Builder(builder) = &self.part {
                    let void = builder.void(&before, settled);
                    void.into_iter()
                        .for_each(|timeslice| cx.out.notify(TimesliceEvent::Void { timeslice }));
                }
                if !matches!(self.part, NodeRole::Idle) {
                    cx.out.notify(TimesliceEvent::Out);
                }
                self.part = NodeRole::Idle;
                return More::No;
            }
            Change::Join { member, .. } if Some(member) == me && is_in => {
                let epoch = self.journal.epoch();
                cx.out.notify(TimesliceEvent::Joined { timeslice: decision.from, epoch });
                self.part = part(member, cx);
                if let NodeRole::Input(input) = &mut self.part {
                    return input.boot(cx);
                }
                return More::No;
            }
            Change::Retire { member } if Some(member) == me => {
                cx.out.notify(TimesliceEvent::Retired { timeslice: decision.from });
            }
            Change::Remove { member, .. } => {
                let rank = self.journal.rank(member);
                cx.out.operate(Operation::Abandon { peer: rank });
                cx.out.notify(TimesliceEvent::Lost { rank, epoch: self.journal.epoch() });
            }
            _ => {}
        }
        match &mut self.part {
            NodeRole::Input(input) => input.follow(cx, decision),
            NodeRole::Builder(builder) => builder.follow(cx, decision),
            NodeRole::Idle | NodeRole::Aborted => More::No,
        }
    }

    /// Handles the time, as an interval may have passed. A rank that is retired and done wants to
    /// go.
    pub(super) fn beat(&mut self, now: LocalNs, out: &mut Out<TimesliceEvent>) -> More {
        let Some(membership) =
            self.membership.as_mut().filter(|membership| membership.deadline() <= now)
        else {
            return More::No;
        };
        if let Some(me) = self.journal.member_of(self.config.rank)
            && membership.is_in()
            && self.journal.is_retired(me)
        {
            let done = match &self.part {
                NodeRole::Input(input) => input.is_over(),
                NodeRole::Builder(builder) => builder.is_through(&self.journal),
                NodeRole::Idle | NodeRole::Aborted => false,
            };
            if done {
                membership.want(now, ProposedDecision::Dismiss(me));
            }
        }
        match &mut self.part {
            NodeRole::Input(input) => input.beat(),
            NodeRole::Builder(builder) => {
                if let (Some(me), Some(weight)) =
                    (self.journal.member_of(self.config.rank), builder.beat(&self.journal))
                {
                    membership.want_idly(now, ProposedDecision::Weigh { member: me, weight });
                }
            }
            NodeRole::Idle | NodeRole::Aborted => {}
        }
        membership.tick(now, &mut stakes(&mut self.part, &self.journal));
        self.go_on(now, out)
    }
}

/// Says what `part` has at stake.
pub(super) fn stakes(part: &mut NodeRole, journal: &Journal) -> impl FnMut(RosterMember) -> Stake {
    move |target| match part {
        NodeRole::Input(input) => input.stake(target),
        NodeRole::Builder(builder) => builder.stake(journal, target),
        NodeRole::Idle | NodeRole::Aborted => Stake::default(),
    }
}
