//! The pace of a server's mounts, shared by the threads of its clients.

use std::sync::{Mutex, PoisonError};

use clearway_proto::base::{LocalNs, Nanos};
use clearway_proto::calls::{ClientPacer, PaceOrder, PacerConfig};
use clearway_runtime::clock;

use super::ClientName;
use crate::control::PaceStatus;

/// Decides for all clients.
pub(crate) struct MountPacing {
    config: PacerConfig,
    pacer: Mutex<ClientPacer<ClientName>>,
}

impl MountPacing {
    pub(super) fn new(config: PacerConfig) -> Self {
        Self { config, pacer: Mutex::new(ClientPacer::new(clock::now(), config)) }
    }

    /// Takes what a client's thread saw, and gives it what to send; returns when it is to ask again.
    pub(super) fn turn(
        &self,
        now: LocalNs,
        client: ClientName,
        newest: Option<LocalNs>,
        echoes: impl Iterator<Item = (LocalNs, Nanos)>,
        mut send: impl FnMut(PaceOrder),
    ) -> Option<LocalNs> {
        let mut pacer = self.pacer.lock().unwrap_or_else(PoisonError::into_inner);
        newest.into_iter().for_each(|at| pacer.data(now, client, at));
        echoes.for_each(|(sent_at, latency)| pacer.echo(sent_at, latency));
        while let Some(order) = pacer.poll(now, client) {
            send(order);
        }
        pacer.deadline(client)
    }

    /// Takes note of a client that connected.
    pub(super) fn join(&self, client: ClientName) {
        self.pacer.lock().unwrap_or_else(PoisonError::into_inner).join(clock::now(), client);
    }

    /// Forgets a client.
    pub(super) fn leave(&self, client: ClientName) {
        self.pacer.lock().unwrap_or_else(PoisonError::into_inner).leave(client);
    }

    /// Returns the pace for an operator.
    pub(crate) fn status(&self) -> PaceStatus {
        let report = self.pacer.lock().unwrap_or_else(PoisonError::into_inner).report();
        PaceStatus {
            link: self.config.link.0,
            rate: report.rate.0,
            excess_permille: report.excess_permille,
            for_floor: report.for_deadline.0,
        }
    }
}
