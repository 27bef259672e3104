//! A node as a member: what it hears and says about who takes part, and what it does when that changes.

use super::*;

impl Node {
    pub(super) fn wish(&mut self, now: LocalNs, command: Command, out: &mut Out<Event>) -> More {
        let (Some(membership), Some(me)) = (&mut self.membership, self.journal.member_of(self.config.rank)) else {
            return More::No;
        };
        match command {
            Command::Join => membership.want_in(now),
            Command::Retire => membership.want(now, Wish::Retire(me)),
            Command::Weigh { weight } => {
                membership.want(now, Wish::Weigh { member: me, weight });
                if let Part::Builder(builder) = &mut self.part {
                    builder.weigh(weight);
                }
            }
            _ => {}
        }
        self.go_on(now, out)
    }

    /// A header about who takes part.
    pub(super) fn about_members(&mut self, now: LocalNs, from: Rank, head: &[u8], out: &mut Out<Event>) -> More {
        let (Some(frame), Some(from)) = (membership::Frame::parse(head), self.journal.member_of(from)) else {
            return More::No;
        };
        let Some(membership) = &mut self.membership else { return More::No };
        membership.arrival(now, from, frame, &mut stakes(&mut self.part, &self.journal));
        self.go_on(now, out)
    }

    /// Follows what was decided, and sends what members say to each other.
    pub(super) fn go_on(&mut self, now: LocalNs, out: &mut Out<Event>) -> More {
        let mut more = More::No;
        while let Some((decision, journal)) = self.membership.as_mut().and_then(|membership| membership.news()) {
            if self.follow(now, decision, journal, out) == More::Yes {
                more = More::Yes;
            }
            if let Some(membership) = &mut self.membership {
                membership.followed(now, &mut stakes(&mut self.part, &self.journal));
            }
        }
        let Some(membership) = &mut self.membership else { return more };
        if membership.is_helpless(now) {
            out.tell(Event::Helpless);
        }
        while out.room() > 0
            && let Some((to, frame)) = membership.next_frame()
        {
            let token = Label::Frame { place: to.0, kind: frame.kind() }.token();
            let to = Destination::One(self.journal.rank(to));
            let mut head = frame.encode();
            head.put(&self.config.run.to_le_bytes());
            out.send(to, self.config.control, head.bytes(), Span::EMPTY, Some(token));
        }
        more
    }

    /// The next epoch has come.
    fn follow(&mut self, now: LocalNs, decision: Decision, journal: Arc<Journal>, out: &mut Out<Event>) -> More {
        let me = journal.member_of(self.config.rank);
        let before = core::mem::replace(&mut self.journal, journal);
        let is_in = self.membership.as_ref().is_some_and(|membership| membership.is_in());
        let cx = &mut Context { now, config: &self.config, journal: &self.journal, out };
        match decision.change {
            Change::Remove { member, settled } if Some(member) == me => {
                if let Part::Builder(builder) = &self.part {
                    let void = builder.void(&before, settled);
                    void.into_iter().for_each(|timeslice| cx.out.tell(Event::Void { timeslice }));
                }
                if !matches!(self.part, Part::Idle) {
                    cx.out.tell(Event::Out);
                }
                self.part = Part::Idle;
                return More::No;
            }
            Change::Join { member, .. } if Some(member) == me && is_in => {
                cx.out.tell(Event::Joined { timeslice: decision.from });
                self.part = part(member, cx);
                if let Part::Input(input) = &mut self.part {
                    return input.boot(cx);
                }
                return More::No;
            }
            Change::Retire { member } if Some(member) == me => {
                cx.out.tell(Event::Retired { timeslice: decision.from });
            }
            Change::Remove { member, .. } => {
                let rank = self.journal.rank(member);
                cx.out.operate(Operation::Abandon { peer: rank });
                cx.out.tell(Event::Lost { rank });
            }
            _ => {}
        }
        match &mut self.part {
            Part::Input(input) => input.follow(cx, decision),
            Part::Builder(builder) => builder.follow(cx, decision),
            Part::Idle | Part::Aborted => More::No,
        }
    }

    /// An interval may have passed. Who is retired and done wants to go.
    pub(super) fn beat(&mut self, now: LocalNs, out: &mut Out<Event>) -> More {
        let Some(membership) = self.membership.as_mut().filter(|membership| membership.deadline() <= now) else {
            return More::No;
        };
        if let Some(me) = self.journal.member_of(self.config.rank)
            && membership.is_in()
            && self.journal.is_retired(me)
        {
            let done = match &self.part {
                Part::Input(input) => input.is_over(),
                Part::Builder(builder) => builder.is_through(&self.journal),
                Part::Idle | Part::Aborted => false,
            };
            if done {
                membership.want(now, Wish::Dismiss(me));
            }
        }
        match &mut self.part {
            Part::Input(input) => input.beat(),
            Part::Builder(builder) => {
                if let (Some(me), Some(weight)) =
                    (self.journal.member_of(self.config.rank), builder.beat(&self.journal))
                {
                    membership.want_idly(now, Wish::Weigh { member: me, weight });
                }
            }
            Part::Idle | Part::Aborted => {}
        }
        membership.tick(now, &mut stakes(&mut self.part, &self.journal));
        self.go_on(now, out)
    }
}

/// Says what `part` has at stake.
pub(super) fn stakes(part: &mut Part, journal: &Journal) -> impl FnMut(Member) -> Stake {
    move |target| match part {
        Part::Input(input) => input.stake(target),
        Part::Builder(builder) => builder.stake(journal, target),
        Part::Idle | Part::Aborted => Stake::default(),
    }
}
