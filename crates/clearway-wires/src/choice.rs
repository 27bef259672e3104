//! The coordinator's side: which wires a run can have at all, and which it takes once every rank
//! said what it has.

use std::collections::BTreeMap;

use clearway_proto::base::Rank;
use clearway_runtime::shm::LOCAL_RANKS_MAX;

use crate::facts::{LIBRARY, OFFERS, UNUSED, WIRES};
use crate::request::LocalTransport;
use crate::{
    EndLocation, FabricAccess, FabricEnd, Network, RemoteTransport, WireRequest, WiresError,
};

/// Returns a refusal as one sentence.
macro_rules! refuse {
    ($($sentence:tt)*) => {
        return Err(WiresError::Request(format!($($sentence)*)))
    };
}

/// Hosts that a sentence names one by one.
const HOSTS_NAMED: usize = 4;

/// What the ranks of a run are asked for.
#[derive(Clone, Debug)]
pub struct WirePlan {
    /// How ranks reach those that share no memory with them.
    pub far: RemoteTransport,
    /// The number of each rank's host, where ranks of one host share memory.
    pub hosts: Option<Vec<u32>>,
    /// Why it is not what one might expect, a sentence each.
    notes: Vec<String>,
}

/// What they get.
#[derive(Clone, Debug)]
pub struct WireChoice {
    /// Never [`RemoteTransport::Best`].
    pub far: RemoteTransport,
    /// For a person, by name.
    pub facts: BTreeMap<String, String>,
}

impl WirePlan {
    /// Creates the plan with every rank on a host of its own and `far` between them: a
    /// laboratory's.
    pub const fn apart(far: RemoteTransport) -> Self {
        Self { far, hosts: None, notes: Vec::new() }
    }

    /// Determines what ranks on `hosts` (a number for each rank) can have of what the user
    /// `wanted`; `name` names a rank for a person.
    ///
    /// # Errors
    /// One sentence: which ranks cannot reach each other so, and what would do.
    pub fn new(
        request: WireRequest,
        hosts: &[u32],
        name: &dyn Fn(Rank) -> String,
    ) -> Result<Self, WiresError> {
        let mut crowds: BTreeMap<u32, usize> = BTreeMap::new();
        for host in hosts {
            *crowds.entry(*host).or_default() += 1;
        }
        let crowd = crowds.values().copied().max().unwrap_or(0);
        let mut notes = Vec::new();
        let near = match request.near {
            LocalTransport::Never => false,
            LocalTransport::WherePossible if crowd > LOCAL_RANKS_MAX => {
                notes.push(format!(
                    "{crowd} ranks of one host are too many to share memory, which {LOCAL_RANKS_MAX} can"
                ));
                false
            }
            LocalTransport::Always if crowd > LOCAL_RANKS_MAX => {
                refuse!(
                    "{crowd} ranks of one host cannot share memory: at most {LOCAL_RANKS_MAX} can; use --wire udp"
                )
            }
            LocalTransport::WherePossible | LocalTransport::Always => crowd > 1,
        };
        let far = match request.far {
            _ if near && crowds.len() == 1 => RemoteTransport::Nothing,
            RemoteTransport::Nothing => {
                let first = hosts.first().copied().unwrap_or_default();
                let other = (0..)
                    .map(Rank)
                    .zip(hosts)
                    .find(|(_, host)| **host != first)
                    .map_or(Rank(0), |(rank, _)| rank);
                refuse!(
                    "{} and {} share no memory; name a wire between hosts as well, as in --wire shm,udp",
                    name(Rank(0)),
                    name(other)
                )
            }
            far => far,
        };
        Ok(Self { far, hosts: near.then(|| hosts.to_vec()), notes })
    }

    /// Returns what to take of what the ranks have.
    ///
    /// # Errors
    /// One sentence: which rank lacks what was asked for, or that it is not safe on this network.
    pub fn choose(
        &self,
        network: Network,
        ranks: &[EndLocation],
        name: &dyn Fn(Rank) -> String,
    ) -> Result<WireChoice, WiresError> {
        let mut notes = self.notes.clone();
        let far = match self.far {
            far @ (RemoteTransport::Ofi | RemoteTransport::Both) => {
                let ends = common_fabric(ranks, name)
                    .map_err(|why| WiresError::Request(format!("--wire ofi: {why}")))?;
                if network == Network::Sealed && !ends.iter().all(|end| end.isolated) {
                    let provider = ends.first().map_or("", |end| &end.provider);
                    refuse!(
                        "--wire ofi: the provider {provider} sends messages between machines as they are, over a network that \
                         others can reach; add --insecure if that is right, or use --wire udp, which seals them"
                    );
                }
                far
            }
            RemoteTransport::Best => match common_fabric(ranks, name) {
                Ok(_) => RemoteTransport::Ofi,
                Err(why) => {
                    if ranks.iter().any(|rank| rank.fabric.is_some()) {
                        notes.push(format!("not over libfabric: {why}"));
                    }
                    RemoteTransport::Udp
                }
            },
            far => far,
        };
        let mut facts =
            BTreeMap::from([(WIRES.to_owned(), self.sentence(far, network, ranks, name))]);
        if !notes.is_empty() {
            facts.insert(UNUSED.to_owned(), notes.join("; "));
        }
        if let (true, Some(FabricAccess::End(end))) =
            (far.has_fabric(), ranks.first().and_then(|rank| rank.fabric.as_ref()))
        {
            facts.insert(
                LIBRARY.to_owned(),
                format!("provider {} on {}, {}", end.provider, end.domain, end.library),
            );
            facts.insert(OFFERS.to_owned(), end.judged.join("; "));
        }
        Ok(WireChoice { far, facts })
    }

    /// Returns which wire is between which ranks.
    fn sentence(
        &self,
        far: RemoteTransport,
        network: Network,
        ranks: &[EndLocation],
        name: &dyn Fn(Rank) -> String,
    ) -> String {
        let sealed = match network {
            Network::Sealed => "sealed",
            Network::Insecure => "NOT sealed",
            Network::Lab | Network::Machine => "within one machine, not sealed",
        };
        let provider = ranks.first().and_then(|rank| match &rank.fabric {
            Some(FabricAccess::End(end)) => Some(end.provider.as_str()),
            _ => None,
        });
        let fabric = format!("libfabric ({}), not sealed by Clearway", provider.unwrap_or("?"));
        let between = match far {
            RemoteTransport::Nothing => {
                return "all ranks are on one host and share memory; no network is between them"
                    .to_owned();
            }
            RemoteTransport::Udp | RemoteTransport::Best => format!("UDP, {sealed}"),
            RemoteTransport::Ofi => fabric,
            RemoteTransport::Both => {
                format!("{fabric}, and UDP, {sealed}, one for the other when it fails,")
            }
        };
        match &self.hosts {
            None => format!("{between} between all ranks"),
            Some(hosts) => {
                format!(
                    "shared memory between ranks of one host ({}); {between} between others",
                    crowds(hosts, name)
                )
            }
        }
    }
}

/// Returns which ranks are together, for a person.
fn crowds(hosts: &[u32], name: &dyn Fn(Rank) -> String) -> String {
    let mut together: BTreeMap<u32, Vec<Rank>> = BTreeMap::new();
    for (rank, host) in (0..).map(Rank).zip(hosts) {
        together.entry(*host).or_default().push(rank);
    }
    let crowds: Vec<&Vec<Rank>> = together.values().filter(|ranks| ranks.len() > 1).collect();
    let mut named: Vec<String> = crowds
        .iter()
        .take(HOSTS_NAMED)
        .filter_map(|ranks| Some(format!("{} and {} more", name(*ranks.first()?), ranks.len() - 1)))
        .collect();
    if crowds.len() > HOSTS_NAMED {
        named.push(format!("{} more hosts", crowds.len() - HOSTS_NAMED));
    }
    named.join(", ")
}

/// Returns the end of each rank, if all have one of the same provider.
fn common_fabric<'a>(
    ranks: &'a [EndLocation],
    name: &dyn Fn(Rank) -> String,
) -> Result<Vec<&'a FabricEnd>, WiresError> {
    let mut ends: Vec<&FabricEnd> = Vec::new();
    for (rank, place) in (0..).map(Rank).zip(ranks) {
        match &place.fabric {
            Some(FabricAccess::End(end)) => ends.push(end),
            Some(FabricAccess::None(why)) => refuse!("{} has none: {why}", name(rank)),
            None => refuse!("{} has no device of a fabric", name(rank)),
        }
    }
    let other = ends.iter().position(|end| end.provider != ends[0].provider);
    if let Some(other) = other {
        let (here, there) = (&ends[0].provider, &ends[other].provider);
        let [first, other] = [Rank(0), Rank(other as u32)].map(name);
        refuse!(
            "{first} has the provider {here}, {other} has {there}: they have no fabric in common; use --wire udp"
        );
    }
    Ok(ends)
}

#[cfg(test)]
mod tests {
    use super::super::WireName::{self, Auto, Ofi, Shm, Udp};
    use super::*;

    fn name(rank: Rank) -> String {
        format!("rank {rank}")
    }

    fn plan(names: &[WireName], hosts: &[u32]) -> Result<WirePlan, WiresError> {
        WirePlan::new(WireRequest::from_names(names).expect("words that go together"), hosts, &name)
    }

    fn end(provider: &str, isolated: bool) -> EndLocation {
        let end = FabricEnd { provider: provider.to_owned(), isolated, ..FabricEnd::default() };
        EndLocation { fabric: Some(FabricAccess::End(Box::new(end))), ..EndLocation::default() }
    }

    #[test]
    fn new__hosts_decide_whether_memory_is_shared_and_a_far_wire_is_needed() {
        let found = |names: &[WireName], hosts: &[u32]| {
            plan(names, hosts).map(|plan| (plan.far, plan.hosts.is_some())).ok()
        };
        assert_eq!(found(&[Auto], &[0, 0]), Some((RemoteTransport::Nothing, true)));
        assert_eq!(found(&[Auto], &[0, 0, 1]), Some((RemoteTransport::Best, true)));
        assert_eq!(found(&[Auto], &[0, 1]), Some((RemoteTransport::Best, false)));
        assert_eq!(found(&[Udp], &[0, 0]), Some((RemoteTransport::Udp, false)));
        assert_eq!(found(&[Ofi], &[0, 0]), Some((RemoteTransport::Ofi, false)));
        assert_eq!(found(&[Shm, Ofi], &[0, 0, 1]), Some((RemoteTransport::Ofi, true)));
        assert_eq!(found(&[Shm], &[0, 0]), Some((RemoteTransport::Nothing, true)));
        let crowd = [7; 65];
        assert_eq!(found(&[Auto], &crowd), Some((RemoteTransport::Best, false)));
        let said = plan(&[Shm], &crowd).expect_err("too many").to_string();
        assert_eq!(
            said,
            "65 ranks of one host cannot share memory: at most 64 can; use --wire udp"
        );
    }

    #[test]
    fn new__ranks_without_a_common_wire_are_named() {
        let said = plan(&[Shm], &[0, 0, 1]).expect_err("two hosts").to_string();
        assert_eq!(
            said,
            "rank 0 and rank 2 share no memory; name a wire between hosts as well, as in --wire shm,udp"
        );
    }

    #[test]
    fn choose__a_fabric_is_taken_by_itself_only_if_all_have_the_same() {
        let chosen = |ranks: &[EndLocation]| {
            let choice = plan(&[Auto], &[0, 1])
                .expect("a plan")
                .choose(Network::Sealed, ranks, &name)
                .expect("a choice");
            (choice.far, choice.facts.get("wires not used").cloned())
        };
        assert_eq!(chosen(&[end("cxi", true), end("cxi", true)]), (RemoteTransport::Ofi, None));
        let (far, why) = chosen(&[end("cxi", true), end("psm3", true)]);
        assert_eq!(far, RemoteTransport::Udp);
        assert!(
            why.is_some_and(|why| why.contains("rank 0 has the provider cxi, rank 1 has psm3"))
        );
        let (far, why) = chosen(&[end("cxi", true), EndLocation::default()]);
        assert_eq!(
            (far, why.as_deref()),
            (RemoteTransport::Udp, Some("not over libfabric: rank 1 has no device of a fabric"))
        );
        assert_eq!(
            chosen(&[EndLocation::default(), EndLocation::default()]),
            (RemoteTransport::Udp, None)
        );
    }

    #[test]
    fn choose__what_seals_nothing_must_be_asked_for_twice() {
        let choose = |network, isolated| {
            plan(&[Ofi], &[0, 1]).expect("a plan").choose(
                network,
                &[end("tcp", isolated), end("tcp", isolated)],
                &name,
            )
        };
        let said = choose(Network::Sealed, false).expect_err("not sealed").to_string();
        assert!(said.contains("add --insecure if that is right, or use --wire udp"), "{said}");
        for (network, isolated) in
            [(Network::Sealed, true), (Network::Insecure, false), (Network::Machine, false)]
        {
            let wires = choose(network, isolated).expect("a choice").facts.remove("wires");
            assert_eq!(
                wires.as_deref(),
                Some("libfabric (tcp), not sealed by Clearway between all ranks")
            );
        }
    }

    #[test]
    fn choose__who_lacks_what_was_asked_for_says_why() {
        let plan = plan(&[Shm, Ofi], &[0, 0, 1]).expect("a plan");
        let none = EndLocation {
            fabric: Some(FabricAccess::None("no libfabric".to_owned())),
            ..EndLocation::default()
        };
        let error = plan
            .choose(Network::Insecure, &[end("tcp", false), end("tcp", false), none], &name)
            .expect_err("none");
        assert_eq!(format!("{error}"), "--wire ofi: rank 2 has none: no libfabric");
        let all = [end("tcp", false), end("tcp", false), end("tcp", false)];
        let wires =
            plan.choose(Network::Insecure, &all, &name).expect("a choice").facts.remove("wires");
        let sentence = "shared memory between ranks of one host (rank 0 and 1 more); libfabric (tcp), not sealed by Clearway \
                        between others";
        assert_eq!(wires.as_deref(), Some(sentence));
    }
}
