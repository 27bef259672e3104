//! Opens the wire to PEs of other hosts: all PEs exchange their addresses and make the same choice.
//!
//! # Model
//! The choice is libfabric if it has a fabric that only trusted hosts reach, else UDP, which is sealed
//! between network namespaces. `SHMEM_WIRE` overrides it. Each PE computes the choice from the
//! exchanged facts, so that no further message is needed.
//!
//! Keys are derived from the secret that the launcher gave all PEs. If there is none, PE 0 draws one
//! and sends it to the others through the launcher, in a credential of munge where hosts have it.

use std::fs::File;
use std::net::SocketAddrV4;
use std::os::fd::AsFd;

use clearway_proto::base::{Class, Rank};
use clearway_proto::wire::Granted;
use clearway_runtime::keys::{self, JobSecret, KeyScope, RankKeyPair};
use clearway_runtime::launch;
use clearway_wires::{
    EndLocation, Network, OpenWire, PortRequest, RankPort, WireNeeds, WirePlan, WireRequest,
    WireSetup, facts, grant_name,
};

use crate::card::Cards;
use crate::settings::Settings;

/// The wire, and its description for a person.
pub(crate) struct FarWire {
    pub(super) wire: OpenWire,
    pub(super) description: String,
}

impl FarWire {
    /// Returns the grant of each class, by [`Class::index`].
    pub(super) fn classes(&self) -> [Granted; Class::ALL.len()] {
        self.wire.classes
    }
}

/// Opens the wire between PEs of several hosts. Returns none where all PEs are near.
///
/// # Errors
/// The reason why there is no such wire, as a sentence.
pub(crate) fn open(
    joined: &mut launch::Job,
    cards: &Cards,
    settings: &Settings,
) -> Result<Option<FarWire>, String> {
    let leaders = cards.leaders();
    if leaders.iter().all(|leader| *leader == 0) {
        return Ok(None);
    }
    let me = joined.rank();
    let network = match (cards.is_one_machine() && cards.is_one_namespace(), settings.insecure) {
        (true, _) => Network::Machine,
        (false, true) => Network::Insecure,
        (false, false) => Network::Sealed,
    };
    let names = settings.wire.map(|name| vec![name]).unwrap_or_default();
    let hosts: Vec<u32> = (0..leaders.len() as u32).collect();
    let name = |rank: Rank| cards.name(rank.index());
    let plan = WireRequest::from_names(&names)
        .and_then(|request| WirePlan::new(request, &hosts, &name))
        .map_err(|error| in_words_of_users(&error.to_string()))?;
    let session = cards.session();
    let secret = secret(joined)?;
    let request = PortRequest {
        rank: me,
        session,
        address: SocketAddrV4::new(cards.address_of_host(me.index())?, 0),
        network,
        far: plan.far,
        incarnation: 0,
    };
    let said = |error: &dyn std::error::Error| in_words_of_users(&error.to_string());
    let scope = KeyScope { session, epoch: 0, secret: Some(secret) };
    let identity = RankKeyPair::new(me, scope).map_err(|error| said(&error))?;
    let port = RankPort::take(&request, Some(identity)).map_err(|error| said(&error))?;
    let peers = exchange(joined, &port.location())?;
    let choice = plan.choose(network, &peers, &name).map_err(|error| said(&error))?;
    let mut setup = WireSetup {
        far: choice.far,
        hosts: None,
        peers,
        need: WireNeeds::ShortWrites,
        incarnation: 0,
    };
    setup.peers.iter_mut().for_each(|peer| peer.keep(choice.far));
    // Nobody gives orders to a PE while it opens its wire.
    let nobody = File::open("/dev/null").map_err(|error| format!("/dev/null: {error}"))?;
    let wire = port.open(&request, &setup, nobody.as_fd()).map_err(|error| said(&error))?;
    let wires = choice.facts.get(facts::WIRES).map(String::as_str).unwrap_or_default();
    let described = wires.trim_end_matches(" between all ranks");
    let grants = wire.classes.map(grant_name);
    let description = format!(
        "{described}; classes: high {}, medium {}, low {}, scavenger {}",
        grants[1], grants[2], grants[3], grants[4]
    );
    Ok(Some(FarWire { wire, description }))
}

/// Replaces options of the command in a sentence by variables of this library.
fn in_words_of_users(sentence: &str) -> String {
    sentence
        .replace("--wire ofi: ", "SHMEM_WIRE=ofi: ")
        .replace("--wire ", "SHMEM_WIRE=")
        .replace("add --insecure", "set SHMEM_INSECURE=1")
}

/// Returns the secret from which the keys of all PEs are derived.
fn secret(joined: &mut launch::Job) -> Result<JobSecret, String> {
    let bytes = match joined.secret() {
        Some(secret) => secret.to_vec(),
        None => {
            let said = |error| format!("the system has no random bytes: {error}");
            let own = match joined.rank() {
                Rank(0) => keys::random::<32>().map_err(said)?.to_vec(),
                _ => Vec::new(),
            };
            let (all, _) =
                joined.exchange_with_credential(&own).map_err(|error| error.to_string())?;
            all.into_iter().next().unwrap_or_default()
        }
    };
    JobSecret::new(bytes).map_err(|error| error.to_string())
}

/// Exchanges the addresses of all PEs.
fn exchange(joined: &mut launch::Job, own: &EndLocation) -> Result<Vec<EndLocation>, String> {
    let bytes = serde_json::to_vec(own).map_err(|error| error.to_string())?;
    let all = joined.exchange(&bytes).map_err(|error| error.to_string())?;
    let parse = |(pe, bytes): (usize, &Vec<u8>)| {
        serde_json::from_slice(bytes)
            .map_err(|error| format!("PE {pe} said where it is in another form: {error}"))
    };
    all.iter().enumerate().map(parse).collect()
}
