//! Orders become messages: each is posted by a program, reaches its host's interface later, and
//! waits there in a connection.
//!
//! # Model
//! A post reaches the interface after `transmit_delay`. A connection is there as long as it has
//! messages that are not over, or something that holds it back.

use super::control::SendGate;
use super::host::Connection;
use super::multicast::Membership;
use super::parts::{Message, TrainOrigin};
use super::pool::NONE;
use super::{Fabric, FabricEventKind, SendRequest, Target};
use crate::graph::DeviceId;
use crate::time::Picos;

impl Fabric {
    /// Takes `order`, which the host's program posts at `at`.
    ///
    /// # Panics
    /// When `at` lies in the past, or the order names a host or port that is not there: a mistake
    /// of the caller.
    pub fn post(&mut self, at: Picos, order: SendRequest) {
        assert!(at.0 >= self.now, "a post in the past");
        let from = order.from;
        let is_host = |host: DeviceId| self.network.graph.is_host(host);
        assert!(is_host(from), "no such host");
        let membership = match order.to {
            Target::Host(target) => {
                assert!(is_host(target), "no such host");
                None
            }
            Target::Group(group) => Some(Membership::Joined(group)),
            Target::Range(first, last) => {
                assert!(is_host(first) && is_host(last), "no such host");
                Some(Membership::Range(first.0, last.0))
            }
        };
        let target = if let Target::Host(target) = order.to { target.0 } else { NONE };
        let ports = self.network.graph.ports(from);
        let port = ports.start + u32::from(order.rail);
        assert!(ports.contains(&port), "no such port");
        let packets = order.bytes.div_ceil(u64::from(self.constants.payload)).max(1);
        let host = &mut self.hosts[from.index()];
        let id = u64::from(from.0) << 40 | host.messages;
        host.messages += 1;
        let class = order.class.index() as u8;
        let key = (from.0, if self.constants.in_order { NONE } else { target }, class);
        let message = self.messages.put(Message {
            id,
            tag: order.tag,
            from: from.0,
            target,
            port,
            connection: NONE,
            flow_hash: (super::digest::mix(
                u64::from(from.0) << 32 | u64::from(target) ^ u64::from(class) << 60,
            ) >> 32) as u32,
            bytes: order.bytes,
            sent: 0,
            packets: u32::try_from(packets).expect("a message of less than four billion packets"),
            started: 0,
            resolved: 0,
            sent_at: u64::MAX,
            deliver_at: u64::MAX,
            next: NONE,
            reports: order.reports,
            level: self.constants.level[order.class.index()],
            marked: false,
            corrupt: false,
            lost: false,
            over: false,
        });
        self.messages[message].connection = self.connect(key);
        self.trace_post(message, at.0);
        if let Some(membership) = membership {
            let tree = self.cast_to(from.0, membership);
            if self.nobody(tree) {
                self.forget(message);
                return;
            }
            self.begin_cast(message, tree);
        }
        let due = at.0 + self.constants.transmit_delay;
        let posts = &mut self.hosts[from.index()].posts;
        let place = posts.partition_point(|(time, _)| *time <= due);
        let first_of_its_instant = place == 0 || posts[place - 1].0 < due;
        posts.insert(place, (due, message));
        if first_of_its_instant {
            self.schedule(due, FabricEventKind::Post, from.0, 0);
        }
    }

    /// Returns the connection of `key`, with one message more.
    fn connect(&mut self, key: (u32, u32, u8)) -> u32 {
        let connections = &mut self.connections;
        let own = &mut self.connection_of[key.0 as usize];
        let place = match own.binary_search_by_key(&(key.1, key.2), |(k, _)| *k) {
            Ok(at) => own[at].1,
            Err(at) => {
                let place = connections.put(Connection {
                    key,
                    queue: NONE,
                    alive: 0,
                    in_network: 0,
                    gate: SendGate::Open,
                });
                own.insert(at, ((key.1, key.2), place));
                place
            }
        };
        connections[place].alive += 1;
        place
    }

    /// Forgets a message that is over.
    pub(super) fn forget(&mut self, message: u32) {
        let connection = self.messages[message].connection;
        self.messages.free(message);
        let it = &mut self.connections[connection];
        it.alive -= 1;
        if it.alive == 0 && matches!(it.gate, SendGate::Open) {
            let key = it.key;
            let own = &mut self.connection_of[key.0 as usize];
            if let Ok(at) = own.binary_search_by_key(&(key.1, key.2), |(k, _)| *k) {
                own.remove(at);
            }
            self.connections.free(connection);
        }
    }

    /// Lets the posts of `host` that are due reach its interface.
    pub(super) fn posted(&mut self, host: u32) {
        while let Some((due, message)) = self.hosts[host as usize].posts.front().copied()
            && due <= self.now
        {
            self.hosts[host as usize].posts.pop_front();
            self.accept(message);
        }
    }

    /// Accepts `message` at the interface.
    fn accept(&mut self, message: u32) {
        let Message { port, connection, level, .. } = self.messages[message];
        let same = match self.ports[port as usize].train {
            NONE => true,
            train => {
                matches!(self.trains[train].origin, TrainOrigin::Message(before) if self.connection_still(before, train) == connection)
            }
        };
        if !same {
            self.disturb(port);
        }
        let queue = self.connections[connection].queue;
        if queue == NONE {
            let bytes = self.next_bytes(message);
            let queue = self.new_queue(connection, message, bytes);
            self.connections[connection].queue = queue;
            let opens = self.gate_opens(connection);
            if opens > self.now {
                self.schedule(opens, FabricEventKind::Pace, port, connection);
            } else {
                let lane = self.lane_of(port, level, 0);
                let short = self.constants.by_message && self.messages[message].packets == 1;
                if short {
                    self.enter_first(port, lane, queue)
                } else {
                    self.enter(port, lane, queue)
                }
            }
        } else {
            let tail = self.queues[queue].tail;
            self.messages[tail].next = message;
            self.queues[queue].tail = message;
        }
        self.trace_accept(message);
        self.touch(port);
    }

    /// Returns the connection of a train's message while packets of it are still to start; a
    /// message that is over has none.
    fn connection_still(&self, message: u32, train: u32) -> u32 {
        let it = &self.trains[train];
        let last = it.start + u64::from(it.count - 1) * it.gap;
        if last >= self.now { self.messages[message].connection } else { NONE }
    }
}
