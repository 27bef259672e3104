//! Packets in switches: arrive, find their way, wait, leave.

use super::parts::{CreditReturn, Packet};
use super::pool::NONE;
use super::{EventSet, Fabric, FabricEventKind};
use crate::arbiter::Choice;
use crate::graph::{ChannelId, DeviceId};
use crate::routing::{Backlog, Transit};

use super::parts::Port;

/// What routing may see: this switch's own ports.
struct PortView<'a> {
    ports: &'a [Port],
    now: u64,
    intact: bool,
}

impl Backlog for PortView<'_> {
    fn bytes(&self, channel: ChannelId) -> u64 {
        let port = &self.ports[channel.index()];
        let sending = if port.busy_until > self.now { port.on_wire } else { 0 };
        u64::from(port.queued) + u64::from(sending)
    }

    fn up(&self, channel: ChannelId) -> bool {
        self.intact || !self.ports[channel.index()].avoided
    }

    fn intact(&self) -> bool {
        self.intact
    }
}

/// The source of the one queue that an output has where packets wait in order of arrival.
const ANY_INPUT: u32 = NONE - 1;

impl Fabric {
    /// Handles a packet whose head (at a host its tail) came in on `channel`.
    pub(super) fn arrive(&mut self, channel: u32, packet: u32) {
        if self.packets[packet].count == 0 {
            self.packets.free(packet);
            return;
        }
        if self.faults.is_some() && self.is_stopped(channel, packet) {
            return;
        }
        let to = self.ports[channel as usize].to;
        if self.ports[channel as usize].to_host {
            self.receive(channel, packet, self.now);
            return;
        }
        let it = self.packets[packet];
        let input = self.ports[channel as usize].first_lane + u32::from(it.in_lane);
        if !self.constants.lossless && !self.take_place(channel, input, it.bytes) {
            self.overrun(packet);
            return;
        }
        if it.target == NONE {
            self.replicate(to, packet);
            return;
        }
        let mut transit = Transit {
            source: DeviceId(it.source),
            target: DeviceId(it.target),
            flow_hash: it.flow_hash,
            packet_hash: it.packet_hash,
            via: it.via,
            hops: it.hops,
            step: it.step,
        };
        let view = PortView { ports: &self.ports, now: self.now, intact: self.faults.is_none() };
        let Some(out) =
            self.network.router.next(&self.network.graph, DeviceId(to), &mut transit, &view)
        else {
            self.discard(packet);
            return;
        };
        let own = &mut self.packets[packet];
        own.out = out.0;
        own.via = transit.via;
        own.step = transit.step;
        own.hops += 1;
        self.trace_routed(packet);
        let wait = self.wait_for_tail(packet, out.0);
        if wait == 0 {
            self.enqueue(packet);
        } else {
            self.schedule(self.now + wait, FabricEventKind::Ready, channel, packet);
        }
    }

    /// Returns how long a packet of `bytes` must wait after its arrival so that a faster output
    /// does not overtake its tail.
    pub(super) fn deferral(&self, channel: u32, out: u32, bytes: u32) -> u64 {
        let (from, to) = (&self.ports[channel as usize], &self.ports[out as usize]);
        if from.store_and_forward || from.pace == to.pace {
            return 0;
        }
        from.pace.time(bytes).0.saturating_sub(to.pace.time(bytes).0)
    }

    /// Returns the lane of `out` that a packet of service level `level` at `step` takes, by its
    /// global number.
    pub(super) fn lane_of(&self, out: u32, level: u8, step: u8) -> u32 {
        let table = if self.tables.len() == 1 { 0 } else { self.table_of_port[out as usize] };
        let virtual_lane = self.tables[usize::from(table)][usize::from(level & 15)];
        self.ports[out as usize].first_lane + u32::from(virtual_lane * self.steps + step)
    }

    /// Puts a packet into the queue of its input for its output.
    pub(super) fn enqueue(&mut self, packet: u32) {
        if self.packets[packet].count == 0 {
            self.packets.free(packet);
            return;
        }
        if self.faults.is_some() && self.is_swept(packet) {
            return;
        }
        if self.is_first(packet) {
            self.offer(packet);
        }
    }

    /// Queues a packet for its output that nothing holds up in its input.
    #[inline(always)]
    pub(super) fn offer(&mut self, packet: u32) {
        let Packet { out, level, step, bytes, .. } = self.packets[packet];
        self.disturb(out);
        let lane = self.lane_of(out, level, step);
        if !self.constants.lossless && self.overflows(lane, bytes) {
            self.drop_at(out, packet);
            return;
        }
        if self.packets[packet].count > 1 {
            if self.ports[out as usize].occupied == 0 {
                self.ports[out as usize].whole = packet;
            } else {
                self.peel(packet);
            }
        }
        self.join_queue(packet, lane);
    }

    /// Lets a packet wait at its output, in a queue of `lane`, from now on.
    #[inline(always)]
    pub(super) fn join_queue(&mut self, packet: u32, lane: u32) {
        let it = &mut self.packets[packet];
        it.next = NONE;
        let Packet { out, bytes, in_channel, in_lane, .. } = *it;
        let source = if self.constants.output_fifo { ANY_INPUT } else { in_channel };
        if self.lanes[lane as usize].ring == NONE {
            let queue = self.new_queue(source, packet, bytes);
            self.begin_ring(out, lane, queue);
        } else {
            self.join_ring(packet, lane, source, (in_channel, in_lane));
        }
        self.lanes[lane as usize].queued += bytes;
        let port = &mut self.ports[out as usize];
        port.queued += bytes;
        port.statistics.queued(port.queued);
        self.watch_arrival(out, lane, packet);
        self.trace_queued(packet);
        self.touch(out);
    }

    /// Does the same where others wait on `lane`: behind those of the same `source`, or as a queue
    /// of its own.
    fn join_ring(&mut self, packet: u32, lane: u32, source: u32, (in_channel, in_lane): (u32, u8)) {
        let input = self.ports[in_channel as usize].first_lane + u32::from(in_lane);
        let recent = self.lanes[input as usize].recent;
        let queue = match self.queue_of(lane, source, recent) {
            Some(queue) => {
                let tail = std::mem::replace(&mut self.queues[queue].tail, packet);
                self.packets[tail].next = packet;
                queue
            }
            None => {
                let queue = self.new_queue(source, packet, self.packets[packet].bytes);
                self.extend_ring(lane, queue);
                queue
            }
        };
        self.lanes[input as usize].recent = queue;
    }

    /// Sends the packet whose turn it is on `lane` of `port` at `start`: now, or, a train that is
    /// alone, when the port is free.
    pub(super) fn forward(&mut self, port: u32, lane: u32, choice: Choice, start: u64) {
        let packet = self.queues[self.turn_of(lane)].head;
        if self.packets[packet].count > 1 && !self.fits_as_train(port, lane, packet) {
            self.peel(packet);
        }
        self.ports[port as usize].whole = NONE;
        if self.packets[packet].hold != NONE {
            self.hold(port, lane, choice, packet);
            return;
        }
        self.unqueue(port, lane);
        self.watch_departure(port, packet);
        let it = self.packets[packet];
        self.end_train(port);
        let record = if it.share == NONE {
            // The place in the input's buffer is free when the tail has left; the sender before
            // hears of it a cable later.
            let left = start + self.ports[port as usize].pace.time(it.bytes).0;
            let input = &self.ports[it.in_channel as usize];
            let input_lane = input.first_lane + u32::from(it.in_lane);
            let credit = CreditReturn {
                at: left + input.back,
                gap: it.gap,
                bytes: it.bytes,
                left: it.count,
                next: NONE,
            };
            self.advance_after(input_lane, left);
            self.freed(it.in_channel, input_lane, credit)
        } else {
            self.release_share(port, packet);
            NONE
        };
        if it.count > 1 {
            self.start_train(port, lane, packet, record, choice, start);
        } else {
            self.grant(port, lane, choice);
        }
        self.send(port, lane, packet, start);
    }

    /// Takes the packet whose turn it is on `lane` of `port` from its queue.
    #[inline(always)]
    pub(super) fn unqueue(&mut self, port: u32, lane: u32) {
        let on = &mut self.lanes[lane as usize];
        let queue = on.turn(&self.queues);
        let it = &mut self.queues[queue];
        let Packet { next, bytes, .. } = self.packets[it.head];
        on.queued -= bytes;
        self.ports[port as usize].queued -= bytes;
        if next == NONE {
            self.leave(port, lane);
            self.queues.free(queue);
        } else {
            (it.head, it.bytes) = (next, self.packets[next].bytes);
            on.ring = queue;
        }
    }

    /// Frees the places of packets in the buffer behind `channel`; returns the records of the
    /// credits, where there are credits.
    #[inline]
    pub(super) fn freed(&mut self, channel: u32, lane: u32, credit: CreditReturn) -> u32 {
        if self.lanes[lane as usize].credited {
            return self.give_credit(channel, lane, credit);
        }
        if !self.constants.lossless {
            let left = credit.at - self.ports[channel as usize].back;
            self.schedule(left.max(self.now + 1), FabricEventKind::Left, lane, credit.bytes);
        }
        NONE
    }

    /// Puts `packet` on the wire of `port` at `start`: takes the credit and schedules the arrival.
    #[inline(always)]
    pub(super) fn send(&mut self, port: u32, lane: u32, packet: u32, start: u64) {
        self.trace_start(port, lane, packet);
        let it = &mut self.packets[packet];
        let (bytes, count, gap) = (it.bytes, it.count, it.gap);
        let out = &mut self.ports[port as usize];
        let to_host = out.to_host;
        let serial = out.pace.time(bytes).0;
        out.busy_until = start + u64::from(count - 1) * gap + serial;
        out.on_wire = bytes;
        let is_express = self.constants.express & 1 << (lane - out.first_lane) != 0;
        if is_express {
            out.express_until = start + serial;
        }
        if let Some(buckets) = &mut out.buckets {
            out.busy_until = buckets.spend(start, serial);
            if is_express {
                out.express_until = buckets.spend_express(start, serial);
            }
        }
        it.in_channel = port;
        it.share = NONE;
        it.in_lane = (lane - out.first_lane) as u8;
        it.tail_at = start + if out.at_once { 0 } else { serial } + out.delay;
        let arrival = if out.store_and_forward || to_host { it.tail_at } else { start + out.delay };
        let on = &mut self.lanes[lane as usize];
        if on.credited {
            on.free -= bytes * count;
        }
        self.statistics.sent(lane, bytes, count);
        if self.faults.is_some() {
            return self.send_at_risk(port, lane, packet, arrival);
        }
        // The host's treatment of a packet is known when the packet is sent to it; an event is
        // needed only to be seen by others.
        if to_host {
            self.account_delivery(port, packet);
        }
        let certain = to_host && self.constants.foreseeable && !self.slow(port, bytes);
        if certain && self.options.events == EventSet::Lazy {
            self.receive(port, packet, arrival);
        } else {
            self.schedule(arrival, FabricEventKind::Arrive, port, packet);
        }
    }

    /// Returns a number that is different for each packet, the same in every run.
    pub(super) fn packet_hash(&self, message: u64, number: u32) -> u32 {
        (super::digest::mix(message ^ self.constants.seed.wrapping_add(u64::from(number) << 20))
            >> 32) as u32
    }
}
