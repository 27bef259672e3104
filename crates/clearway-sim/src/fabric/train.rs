//! Trains: equal packets of one message that nothing comes between travel as one, and are parted
//! when something does.
//!
//! # Model
//! A port that is idle, with a single queue and credit for all of them, may send `count` equal
//! packets in one event: the i-th starts `i * gap` later. That window is remembered. When anything
//! else reaches the port while packets of the window have not started, those are *taken back*: they
//! will arrive at this port one by one, as they would have without the train, and what was promised
//! for them further on (credits, windows of later ports) is taken back too. Nothing of what is
//! taken back can have been seen by anyone, since nothing travels in no time.
//!
//! # Invariants
//! I1. With and without trains every packet is delivered at the same picosecond.
//! I2. A train's last part, its *piece*, is one packet record; parts before it are single packets.

use super::parts::{Packet, PacketTrain, TrainEnd, TrainOrigin};
use super::pool::NONE;
use super::{Fabric, FabricEventKind};
use crate::arbiter::Choice;
use crate::event::Event;
use crate::time::Picos;

impl Fabric {
    /// Returns whether the packets of `packet`, whose turn it is on `lane` of `port`, can leave as
    /// one.
    pub(super) fn fits_as_train(&mut self, port: u32, lane: u32, packet: u32) -> bool {
        let Packet { count, bytes, gap, .. } = self.packets[packet];
        let spaced = gap >= self.ports[port as usize].pace.time(bytes).0;
        self.absorb(lane);
        let room = u64::from(self.lanes[lane as usize].free) >= u64::from(bytes) * u64::from(count);
        self.alone(port) && spaced && room
    }

    /// Sends a whole train that waits alone until `port` is free at `start` on from there, if it
    /// can be; otherwise it is parted. Whether anything was sent.
    ///
    /// Its packets come as fast as they leave, so each of them waits as long as the first.
    pub(super) fn follow(&mut self, port: u32, start: u64) -> bool {
        let it = &self.ports[port as usize];
        let packet = it.whole;
        if packet == NONE {
            return false;
        }
        let lane = it.first_lane + it.occupied.trailing_zeros();
        let Packet { bytes, gap, .. } = self.packets[packet];
        if gap == it.pace.time(bytes).0
            && self.fits_as_train(port, lane, packet)
            && let Some((choice, _)) = self.choose(port, self.ports[port as usize].occupied)
        {
            self.forward(port, lane, choice, start);
            return true;
        }
        self.peel(packet);
        false
    }

    /// Parts `packet`, a train in the instant in which it queues: its first packet stays, the
    /// others come behind.
    pub(super) fn peel(&mut self, packet: u32) {
        let first = self.packets[packet];
        if self.ports[first.out as usize].whole == packet {
            self.ports[first.out as usize].whole = NONE;
        }
        if first.count < 2 {
            return;
        }
        let rest = Packet {
            count: first.count - 1,
            number: first.number + 1,
            tail_at: first.tail_at + first.gap,
            ..self.unrouted(first)
        };
        self.packets[packet].count = 1;
        let at = self.head_at(&rest);
        let rest = self.packets.put(rest);
        self.schedule(at, FabricEventKind::Arrive, first.in_channel, rest);
        if let Some((train, _)) = self.train_on(first.in_channel)
            && self.trains[train].piece == packet
        {
            self.trains[train].piece = rest;
            self.trains[train].base += 1;
            self.trains[train].next = TrainEnd::Pending;
        }
    }

    /// Returns `packet` as it was before it was routed here.
    fn unrouted(&self, packet: Packet) -> Packet {
        Packet { hops: packet.hops - 1, step: self.step_on_arrival(&packet), ..packet }
    }

    /// Steps are set by routing at each switch from the step of the channel before, which is the
    /// packet's input lane.
    fn step_on_arrival(&self, packet: &Packet) -> u8 {
        packet.in_lane % self.steps
    }

    /// Returns when the head of an arriving `packet` is where it can be routed.
    fn head_at(&self, packet: &Packet) -> u64 {
        let it = &self.ports[packet.in_channel as usize];
        if it.store_and_forward {
            packet.tail_at
        } else {
            packet.tail_at - it.pace.time(packet.bytes).0
        }
    }

    /// Returns the train whose window `channel` carries, with its serial number.
    fn train_on(&self, channel: u32) -> Option<(u32, u64)> {
        let train = self.ports[channel as usize].train;
        (train != NONE).then(|| (train, self.trains[train].serial))
    }

    /// Remembers that `packet`, a train, leaves on `port` from `start` on. `credit` are the credits
    /// it gives back.
    pub(super) fn start_train(
        &mut self,
        port: u32,
        lane: u32,
        packet: u32,
        credit: u32,
        choice: Choice,
        start: u64,
    ) {
        let it = self.packets[packet];
        let before =
            self.train_on(it.in_channel).filter(|(train, _)| self.trains[*train].piece == packet);
        self.remember(port, lane, packet, credit, TrainOrigin::Arrived(it, before), choice, start);
        if let Some((train, _)) = before {
            self.trains[train].next =
                TrainEnd::Train(self.ports[port as usize].train, self.train_serial);
        }
    }

    /// Makes the record of a train that leaves on `port` from `start` on.
    #[expect(clippy::too_many_arguments, reason = "the record's own fields")]
    pub(super) fn remember(
        &mut self,
        port: u32,
        lane: u32,
        packet: u32,
        credit: u32,
        origin: TrainOrigin,
        choice: Choice,
        start: u64,
    ) {
        self.train_serial += 1;
        let Packet { gap, count, bytes, .. } = self.packets[packet];
        self.ports[port as usize].train = self.trains.put(PacketTrain {
            serial: self.train_serial,
            start,
            gap,
            count,
            bytes,
            port,
            lane,
            credit,
            piece: packet,
            base: 0,
            choice: Some(choice),
            next: TrainEnd::Pending,
            origin,
        });
    }

    /// Settles the first packet of the train of `port`, which has started: the arbiter learns of
    /// it, and the longest queue.
    fn settle_train(&mut self, port: u32) {
        let train = self.ports[port as usize].train;
        if train == NONE {
            return;
        }
        if let Some(choice) = self.trains[train].choice.take() {
            let PacketTrain { start, gap, bytes, lane, origin, .. } = self.trains[train];
            self.grant(port, lane, choice);
            if let TrainOrigin::Arrived(first, _) = origin {
                let ready = self.ready_at(&first);
                let waiting = (start - ready) / gap.max(1) + 1;
                self.ports[port as usize].statistics.queued(waiting as u32 * bytes);
            }
        }
    }

    /// Returns when an arriving packet that was routed here can queue.
    fn ready_at(&self, packet: &Packet) -> u64 {
        self.head_at(packet) + self.deferral(packet.in_channel, packet.out, packet.bytes)
    }

    /// Ends the window of the train of `port`, if there is one: nothing of it can change any more.
    #[inline]
    pub(super) fn end_train(&mut self, port: u32) {
        // This runs for every packet, and most ports have no train.
        if self.ports[port as usize].train != NONE {
            self.settle_train(port);
            self.drop_train(port);
        }
    }

    /// Forgets the train of `port`.
    fn drop_train(&mut self, port: u32) {
        let train = std::mem::replace(&mut self.ports[port as usize].train, NONE);
        if train != NONE {
            if matches!(self.trains[train].next, TrainEnd::Host(_)) {
                self.packets.free(self.trains[train].piece);
            }
            self.trains.free(train);
        }
    }

    /// Disturbs `port`, which something else reaches now: packets of its train that have not
    /// started are taken back.
    #[inline]
    pub(super) fn disturb(&mut self, port: u32) {
        if self.ports[port as usize].train != NONE {
            self.take_back_from(port, self.now);
        }
    }

    /// Parts all trains: what is counted is then what has started by now, and statistics and digest
    /// are those of a run without trains. Results do not change.
    pub fn settle(&mut self) {
        self.current = u32::MAX;
        for port in 0..self.ports.len() as u32 {
            self.take_back_from(port, self.now + 1);
            let train = self.ports[port as usize].train;
            if train != NONE && self.trains[train].start <= self.now {
                self.settle_train(port);
            }
        }
        self.arbitrate_dirty();
    }

    /// Takes back the packets of the train of `port` that start at `from` or later.
    fn take_back_from(&mut self, port: u32, from: u64) {
        let Some((train, _)) = self.train_on(port) else { return };
        let PacketTrain { start, gap, count, origin, .. } = self.trains[train];
        let elapsed = from.saturating_sub(start);
        let started = elapsed.div_ceil(gap.max(1)).min(u64::from(count)) as u32;
        if started == count {
            return;
        }
        if started > 0 {
            self.settle_train(port);
        }
        self.cut(train, started);
        if started == 0 {
            self.drop_train(port);
        }
        let taken = count - started;
        match origin {
            TrainOrigin::Message(message) => self.take_back(message, port, taken),
            TrainOrigin::Arrived(first, before) => self.arrive_again(first, before, started, taken),
        }
    }

    /// Shortens `train` to its first `keep` packets, here and wherever else it was promised.
    fn cut(&mut self, train: u32, keep: u32) {
        let it = self.trains[train];
        let taken = it.count - keep;
        self.trains[train].count = keep;
        self.lanes[it.lane as usize].free += taken * it.bytes;
        self.statistics.take_back(it.lane, it.bytes, taken);
        if it.credit != NONE {
            self.credits[it.credit].left -= taken;
        }
        let serial = self.ports[it.port as usize].pace.time(it.bytes).0;
        // Without any packet the port is as busy as it was when the train began to wait for it.
        let end = keep
            .checked_sub(1)
            .map_or(it.start, |last| it.start + u64::from(last) * it.gap + serial);
        self.ports[it.port as usize].busy_until = end;
        if self.options.events == super::EventSet::Eager {
            let at = self.ports[it.port as usize].busy_until;
            self.wake(it.port, at.max(self.now));
        }
        // The first `base` packets went on alone; of the piece behind them this many are left.
        let of_piece = keep.saturating_sub(it.base);
        match it.next {
            // The record of the piece belongs to the train that it is now.
            TrainEnd::Train(next, serial) => {
                if self.trains[next].serial == serial {
                    self.cut(next, of_piece);
                }
                return;
            }
            TrainEnd::Host(credit) | TrainEnd::SlowHost(credit) if credit != NONE => {
                self.credits[credit].left -= taken
            }
            _ => {}
        }
        if self.ports[it.port as usize].to_host {
            self.withdraw_delivery(it.port, it.piece, of_piece);
            if matches!(it.next, TrainEnd::Host(_)) {
                let message = &mut self.messages[self.packets[it.piece].message];
                message.resolved -= taken;
                message.deliver_at = u64::MAX;
            }
        }
        self.packets[it.piece].count = of_piece;
    }

    /// Puts the last `taken` packets of a train that was sent from here, from the packet `started`
    /// on, where they would be without it: those that came already wait, the others come again.
    fn arrive_again(
        &mut self,
        first: Packet,
        before: Option<(u32, u64)>,
        started: u32,
        taken: u32,
    ) {
        let ready = self.ready_at(&first);
        let wait = self.deferral(first.in_channel, first.out, first.bytes);
        let kind = if wait == 0 { FabricEventKind::Arrive } else { FabricEventKind::Ready };
        // In this very instant it may have come before what disturbs it, or not.
        let key = Event::new(Picos(self.now), kind as u8, first.in_channel, 0).key;
        let mut at = started;
        while at < started + taken {
            let due = ready + u64::from(at) * first.gap;
            if due > self.now || due == self.now && key >= self.current {
                break;
            }
            let single = self.packets.put(self.part(&first, at, 1));
            let lane = self.lane_of(first.out, first.level, first.step);
            self.join_queue(single, lane);
            at += 1;
        }
        let left = started + taken - at;
        let due = ready + u64::from(at) * first.gap;
        let rest = self.part(&first, at, left);
        let rest = if kind == FabricEventKind::Arrive { self.unrouted(rest) } else { rest };
        let place = if left > 0 { self.packets.put(rest) } else { NONE };
        if let Some((train, serial)) = before
            && self.trains[train].serial == serial
        {
            self.trains[train].piece = place;
            self.trains[train].base += at;
            self.trains[train].next = TrainEnd::Pending;
        }
        if left > 0 {
            self.schedule(due, kind, first.in_channel, place);
        }
    }

    /// Returns `count` packets of the train that begins with `first`, from the packet `from` on.
    fn part(&self, first: &Packet, from: u32, count: u32) -> Packet {
        let tail_at = first.tail_at + u64::from(from) * first.gap;
        Packet { count, number: first.number + from, tail_at, next: NONE, ..*first }
    }
}
