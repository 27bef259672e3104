//! What a server and a mount say to each other before they have a wire.

use std::net::SocketAddrV4;

use anyhow::{Context, Result, anyhow, bail};
use clearway_proto::base::Rank;
use clearway_runtime::door::{DoorError, HandshakeLabels, SealedReceiver, SealedSender};
use clearway_runtime::keys::{JobSecret, KeyScope, RankKeyPair};
use clearway_wires::{
    EndLocation, FabricAccess, Network, PortRequest, RemoteTransport, WireNeeds, WireSetup,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The version of the messages, and the length of the longest.
pub(super) const PROTOCOL: HandshakeLabels =
    HandshakeLabels { magic: *b"clearway stage 2", message_max: 64 << 10 };

/// What the server says first.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Welcome {
    /// The log, in hexadecimal digits.
    pub(super) log: String,
    /// The number of the user that the key belongs to.
    pub(super) uid: u32,
}

/// What a client says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Join {
    /// The name of the client, and whether it has just drawn it.
    pub(super) client: u64,
    pub(super) is_new: bool,
    /// The number of the wire.
    pub(super) session: u64,
    /// The secret of the wire's keys.
    pub(super) secret: [u8; 32],
    pub(super) far: RemoteTransport,
    pub(super) location: EndLocation,
}

/// What the server answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Joined {
    At(Box<EndLocation>),
    /// Another client has the name: draw one more.
    Taken,
    Refused(String),
}

/// Makes this rank's keys for a wire.
pub(super) fn key_pair(rank: Rank, session: u64, secret: [u8; 32]) -> Result<RankKeyPair> {
    let secret = Some(JobSecret::new(secret.to_vec())?);
    Ok(RankKeyPair::new(rank, KeyScope { session, epoch: 0, secret })?)
}

/// Returns the request for the port of one end.
pub(super) const fn port_request(
    rank: Rank,
    session: u64,
    address: SocketAddrV4,
    far: RemoteTransport,
) -> PortRequest {
    PortRequest { rank, session, address, network: Network::Sealed, far, incarnation: 0 }
}

/// Returns how both ends open the wire between them.
///
/// # Errors
/// One sentence: the wire seals nothing, and others can reach it.
pub(super) fn wire_setup(
    far: RemoteTransport,
    server: EndLocation,
    client: EndLocation,
) -> Result<WireSetup> {
    let peers = vec![server, client];
    for peer in peers.iter().filter(|_| far == RemoteTransport::Ofi) {
        if let Some(FabricAccess::End(end)) = &peer.fabric
            && !end.isolated
        {
            bail!(
                "--wire ofi: the provider {} sends messages as they are, over a network that others can reach; use --wire udp, which seals them",
                end.provider
            );
        }
    }
    Ok(WireSetup { far, hosts: None, peers, need: WireNeeds::Writes, incarnation: 0 })
}

pub(super) fn send(to: &mut SealedSender, message: &impl Serialize) -> Result<()> {
    let bytes = serde_json::to_vec(message).context("a message that JSON cannot hold")?;
    to.send(&bytes).map_err(sentence)
}

pub(super) fn next<M: DeserializeOwned>(from: &mut SealedReceiver) -> Result<M> {
    let bytes = from.receive().map_err(sentence)?;
    let bytes = bytes.context("the other end closed the connection")?;
    serde_json::from_slice(&bytes).context("the other end sent a message of another release")
}

/// Returns the sentence for people.
pub(super) fn sentence(error: DoorError) -> anyhow::Error {
    match error {
        DoorError::SendFailed(cause) | DoorError::ReceiveFailed(cause) => {
            anyhow!(cause).context("the other end closed the connection")
        }
        DoorError::OtherProtocol => {
            anyhow!("the other end is not of `clearway stage 1`: put the same release on all hosts")
        }
        other => anyhow!(other),
    }
}

#[cfg(test)]
mod tests {
    use clearway_wires::FabricEnd;

    use super::*;

    #[test]
    fn wire_setup__a_fabric_that_others_can_reach_is_refused() {
        let end = |isolated| {
            let end = FabricEnd { provider: "tcp".to_owned(), isolated, ..FabricEnd::default() };
            EndLocation { fabric: Some(FabricAccess::End(Box::new(end))), ..EndLocation::default() }
        };
        let refused = wire_setup(RemoteTransport::Ofi, end(true), end(false)).err();
        let why = refused.expect("refused").to_string();
        assert!(why.contains("the provider tcp") && why.contains("use --wire udp"), "{why}");
        assert!(wire_setup(RemoteTransport::Ofi, end(true), end(true)).is_ok());
        assert!(wire_setup(RemoteTransport::Udp, end(false), end(false)).is_ok());
    }
}
