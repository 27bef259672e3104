//! What ranks tell each other before they are connected.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;

use anyhow::{Context, Result, bail};
use clearway_proto::base::BitsPerSec;
use serde::{Deserialize, Serialize};

use super::SealingPolicy;
use super::interface;
use super::listener::JobListener;
use super::switches::SlurmAddress;
use clearway_wires::Network;

/// This program's.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A rank's machine, and where the coordinator's listener is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct HostDescription {
    /// The name of its host.
    pub(super) host: String,
    /// The kernel's number of this start of the machine: two processes with the same read one
    /// clock.
    boot: String,
    /// The network namespace, which the machine's number alone does not tell.
    namespace: u64,
    /// Addresses that can be reached, and the rate of their interface in megabits per second where
    /// it is known.
    addresses: Vec<(Ipv4Addr, Option<u64>)>,
    /// Which program it runs: all ranks of a job must run the same.
    version: String,
    /// Which switches Slurm says are above it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) slurm: Option<SlurmAddress>,
    /// Only the coordinator has one.
    pub(super) door: Option<CoordinatorAddress>,
}

/// Where the coordinator can be reached, and what to say there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct CoordinatorAddress {
    pub(super) port: u16,
    /// What to say there.
    pub(super) word: String,
    /// What the keys of all ranks are made with, where the launcher gave them no secret: it travels
    /// with the description only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) job_secret: Option<String>,
}

impl HostDescription {
    /// Creates the description of this process's rank.
    pub(super) fn own(door: Option<&JobListener>) -> Result<Self> {
        use std::os::unix::fs::MetadataExt;
        let host = super::host_name()?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .context("the number of this start")?;
        let namespace = fs::metadata("/proc/self/ns/net")
            .context("the network namespace of this process")?
            .ino();
        let addresses = addresses()?;
        let (boot, version) = (boot.trim().to_owned(), VERSION.to_owned());
        let (slurm, door) = (SlurmAddress::own(), door.map(JobListener::address));
        Ok(Self { host, boot, namespace, addresses, version, slurm, door })
    }

    /// Checks that a rank with this description can take part.
    pub(super) fn check(&self) -> Result<()> {
        if self.version == VERSION {
            return Ok(());
        }
        let version = crate::report::numerals::printable(&self.version);
        bail!(
            "host {} runs version {version} of this program and this one is {VERSION}: put the same on all",
            self.host
        )
    }

    /// Returns whether both have the same network interfaces, and read one clock. Containers of one
    /// machine, on whose bridge others may listen, are several hosts.
    pub(super) fn is_same_host(&self, other: &Self) -> bool {
        self.boot == other.boot && self.namespace == other.namespace
    }

    /// Returns the rate of the fastest interface, if any is known.
    pub(super) fn rate(&self) -> Option<BitsPerSec> {
        self.addresses.iter().filter_map(|(_, rate)| *rate).max().map(BitsPerSec::mega)
    }

    /// Returns where to try to reach this rank from `other`, best first. Ranks of one host reach
    /// each other over the same addresses as everybody, unless nobody else is there (`alone`).
    pub(super) fn reachable(&self, alone: bool) -> Vec<Ipv4Addr> {
        if alone {
            return vec![Ipv4Addr::LOCALHOST];
        }
        self.addresses.iter().map(|(address, _)| *address).collect()
    }
}

/// Returns what kind of network lies between ranks with these descriptions, where the user wants
/// `sealing` of messages that leave a host.
pub(super) fn network_between(descriptions: &[HostDescription], sealing: SealingPolicy) -> Network {
    let first = descriptions.first();
    let together =
        |description: &HostDescription| first.is_some_and(|first| first.is_same_host(description));
    match (descriptions.iter().all(together), sealing) {
        (true, _) => Network::Machine,
        (false, SealingPolicy::Sealed) => Network::Sealed,
        (false, SealingPolicy::Insecure) => Network::Insecure,
    }
}

/// Returns the addresses of this host that others can reach.
fn addresses() -> Result<Vec<(Ipv4Addr, Option<u64>)>> {
    let found = clearway_wires::addresses::of_host().context("the addresses of this host")?;
    Ok(found.into_iter().map(|one| (one.address, interface::speed(&one.interface))).collect())
}

/// Returns the switches above each of `ranks`, as Slurm names them; none where hosts have the
/// address of another, because a launcher gave all ranks the environment of its own.
pub(super) fn paths_of_slurm(ranks: &[HostDescription]) -> Vec<Option<Vec<String>>> {
    let mut hosts: BTreeMap<&str, &HostDescription> = BTreeMap::new();
    for description in ranks {
        let Some(address) = &description.slurm else { continue };
        if !hosts.entry(&address.node).or_insert(description).is_same_host(description) {
            return Vec::new();
        }
    }
    let path = |address: &SlurmAddress| address.path().to_vec();
    ranks.iter().map(|description| description.slurm.as_ref().map(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_slurm__an_address_that_two_hosts_have_is_a_copy() {
        let at = |boot, address| HostDescription {
            slurm: SlurmAddress::parse(address, "switch.node"),
            ..description(boot, 1, &[])
        };
        let path = |name: &str| Some(vec![name.to_owned()]);
        let ranks = [at("a", "s1.n1"), at("a", "s1.n1"), at("b", "s2.n2"), at("c", "")];
        assert_eq!(paths_of_slurm(&ranks), [path("s1"), path("s1"), path("s2"), None]);
        let copied = [at("a", "s1.n1"), at("b", "s1.n1"), at("c", "s3.n3")];
        assert!(paths_of_slurm(&copied).is_empty());
    }

    fn description(boot: &str, namespace: u64, rates: &[Option<u64>]) -> HostDescription {
        let addresses = rates.iter().map(|rate| (Ipv4Addr::new(10, 0, 0, 1), *rate)).collect();
        let [host, boot, version] = ["n1", boot, VERSION].map(str::to_owned);
        HostDescription { host, boot, namespace, addresses, version, slurm: None, door: None }
    }

    #[test]
    fn network_between__containers_of_one_machine_are_sealed_like_several_machines() {
        let [one, container, far] =
            [("a", 1), ("a", 2), ("b", 1)].map(|(boot, space)| description(boot, space, &[]));
        let network = |other: &HostDescription, sealing| {
            network_between(&[one.clone(), one.clone(), other.clone()], sealing)
        };
        for other in [&container, &far] {
            assert_eq!(network(other, SealingPolicy::Sealed), Network::Sealed);
            assert_eq!(network(other, SealingPolicy::Insecure), Network::Insecure);
        }
        assert_eq!(network(&one, SealingPolicy::Sealed), Network::Machine);
    }

    #[test]
    fn rate__is_the_fastest_known() {
        assert_eq!(
            description("a", 1, &[None, Some(1_000), Some(25_000)]).rate(),
            Some(BitsPerSec::mega(25_000))
        );
        assert_eq!(description("a", 1, &[None]).rate(), None);
    }

    #[test]
    fn check__another_version_is_named() {
        let other = HostDescription { version: "0.0.1\n".to_owned(), ..description("a", 1, &[]) };
        let sentence = other.check().expect_err("another version").to_string();
        assert!(
            sentence.starts_with("host n1 runs version 0.0.1") && !sentence.contains('\n'),
            "{sentence}"
        );
        assert!(description("a", 1, &[]).check().is_ok());
    }

    #[test]
    fn own__is_this_machine_twice() {
        let [one, two] = [
            HostDescription::own(None).expect("a card"),
            HostDescription::own(None).expect("a card"),
        ];
        assert!(one.is_same_host(&two) && !one.host.is_empty() && one.door.is_none());
    }
}
