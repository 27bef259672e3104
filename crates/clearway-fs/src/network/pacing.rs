//! The pace of a server's mounts, shared by the threads of its clients.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use clearway_proto::base::{LocalNs, Nanos};
use clearway_proto::calls::{ClientPacer, PaceOrder, PacerConfig};
use clearway_runtime::clock;

use crate::control::PaceStatus;

/// Decides for all clients.
pub(crate) struct MountPacing {
    config: PacerConfig,
    pacer: Mutex<ClientPacer<u64>>,
    /// Connections that there ever were: two of one client can overlap.
    connections: AtomicU64,
}

impl MountPacing {
    pub(super) fn new(config: PacerConfig) -> Self {
        let pacer = Mutex::new(ClientPacer::new(clock::now(), config));
        Self { config, pacer, connections: AtomicU64::new(0) }
    }

    /// Takes what a client's thread saw, and gives it what to send; returns when it is to ask again.
    pub(super) fn poll(
        &self,
        now: LocalNs,
        connection: u64,
        newest: Option<LocalNs>,
        echoes: impl Iterator<Item = (LocalNs, Nanos)>,
        mut send: impl FnMut(PaceOrder),
    ) -> Option<LocalNs> {
        let mut pacer = self.lock();
        newest.into_iter().for_each(|at| pacer.data(now, connection, at));
        echoes.for_each(|(sent_at, latency)| pacer.echo(sent_at, latency));
        while let Some(order) = pacer.poll(now, connection) {
            send(order);
        }
        pacer.deadline(connection)
    }

    /// Takes note of a client that connected; returns the number of its connection.
    pub(super) fn join(&self) -> u64 {
        let connection = self.connections.fetch_add(1, Ordering::Relaxed);
        self.lock().join(clock::now(), connection);
        connection
    }

    /// Forgets a connection.
    pub(super) fn leave(&self, connection: u64) {
        self.lock().leave(connection);
    }

    fn lock(&self) -> MutexGuard<'_, ClientPacer<u64>> {
        self.pacer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the pace for an operator.
    pub(crate) fn status(&self) -> PaceStatus {
        let pacer = self.lock();
        let (report, senders) = (pacer.report(), pacer.senders(clock::now()));
        PaceStatus {
            link: self.config.link.0,
            rate: report.rate.0,
            excess_permille: report.excess_permille,
            for_floor: report.for_deadline.0,
            senders,
        }
    }
}
