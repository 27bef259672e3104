//! The server of a node: its first task serves the log of the node to the mounts of all nodes.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};

use anyhow::Result;
use clearway_fs::client::ControlClient;
use clearway_fs::control::{ControlPath, ControlRequest, ControlResponse, SafetyLevel};
use clearway_fs::store::StoreSharing;
use clearway_runtime::launch::escaped;
use clearway_runtime::machine_memory::return_large_blocks;

use super::super::service::{AcceptedClients, Service, error_reporter};
use super::StageJobFlags;

/// A log that is open, and accepts mounts.
pub(super) struct NodeServer {
    service: Service,
    log: PathBuf,
}

impl NodeServer {
    /// Opens the log of `flags`, and listens at a free port of `listen`, for mounts that know `secret`.
    ///
    /// # Errors
    /// One sentence: no log, no store, no port.
    pub(super) fn open(flags: &StageJobFlags, secret: &str, listen: Ipv4Addr) -> Result<Self> {
        return_large_blocks();
        let mut options = flags.log.options(&flags.data, &flags.backing);
        if flags.servers > 1 {
            options.sharing = StoreSharing::Shared;
        }
        let hosts_of_job = AcceptedClients::hosts(secret.as_bytes().to_vec())?;
        let pace = flags.yields.pace()?;
        let listen = SocketAddrV4::new(listen, 0);
        let service = Service::open(listen, hosts_of_job, &options, pace, &error_reporter())?;
        Ok(Self { service, log: flags.data.clone() })
    }

    /// Returns the port at which it listens.
    pub(super) fn port(&self) -> u16 {
        self.service.address.port()
    }

    /// Returns the directory of the log.
    pub(super) fn log(&self) -> &Path {
        &self.log
    }

    /// Closes the log.
    ///
    /// # Errors
    /// One sentence: the disk of the log fails.
    pub(super) fn close(self) -> Result<()> {
        self.service.close()
    }
}

/// Returns when the store has everything of the log in this directory, which this process serves.
///
/// # Errors
/// One sentence: why not everything can be there.
pub(super) fn wait_for_store(log: &Path) -> Result<()> {
    let paths = vec![ControlPath::from_bytes(b"")];
    let request = ControlRequest::Wait { paths, until: SafetyLevel::Stored };
    ControlClient::of_log(log).ask(&request, |response| {
        if let ControlResponse::Notice { what } = response {
            eprintln!("clearway: {}", escaped(&what));
        }
    })?;
    Ok(())
}
