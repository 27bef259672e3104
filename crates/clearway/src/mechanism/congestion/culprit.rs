//! Names the port at which victims of a congested cell wait, and the congestors that fill it.
//!
//! # Model
//! The draw says which links victims use and which congestors send over them. Which of them is full
//! is measured: where slow messages were followed, by the port that was the reason of their waits;
//! else by what ports counted in the phase. Where nobody counts, the link with the most offered
//! load is named, and that it is not measured is said.
//!
//! # Invariants
//! I1. A port is called measured only if it was.

use std::collections::BTreeMap;

use clearway_proto::base::Rank;
use clearway_proto::congestion::LinkId;

use super::cell::Cell;
use super::phases::FullPort;
use crate::report::model::{Culprit, Labels, Slowest};

/// Names of senders that a report lists.
const SENDERS_MAX: usize = 16;

/// What a place knows of its ports.
pub(super) struct PortKnowledge<'a> {
    /// Names of hosts, by rank.
    pub(super) hosts: &'a [String],
    /// Returns the names of the ports of a link; none where ports have no names.
    pub(super) names: &'a dyn Fn(LinkId) -> Vec<String>,
    /// What ports counted in the phase.
    pub(super) full: &'a [FullPort],
    /// The slowest messages of the cell, where they were followed.
    pub(super) slowest: Option<&'a Slowest>,
}

/// Returns where the victims of `cell` wait, and for whom; `None` when congestors send nothing.
pub(super) fn find(cell: &Cell<'_>, known: &PortKnowledge<'_>) -> Option<Culprit> {
    let suspects = cell.suspects();
    let (link, port, because) =
        followed(&suspects, known).or_else(|| counted(&suspects, known)).or_else(|| {
            let (link, part) = *suspects.first()?;
            let because = format!(
                "computed: congestors offer {:.0} % of its rate; this place measures no ports",
                part * 100.0
            );
            Some((link, spoken(link, known), because))
        })?;
    let mut senders: Vec<String> =
        cell.senders_over(link).into_iter().map(|rank| host(rank, known)).collect();
    if senders.len() > SENDERS_MAX {
        let more = senders.len() - SENDERS_MAX;
        senders.truncate(SENDERS_MAX);
        senders.push(format!("{more} more"));
    }
    Some(Culprit { labels: Labels::new(), port, senders, because })
}

/// Returns the link whose port the slowest messages waited for longest, together.
fn followed(
    suspects: &[(LinkId, f64)],
    known: &PortKnowledge<'_>,
) -> Option<(LinkId, String, String)> {
    let waits = known.slowest?.messages.iter().filter_map(|message| message.wait.as_ref());
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    waits.for_each(|wait| *sums.entry(&wait.root).or_default() += wait.us);
    let (port, us) = sums.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let is_it = |(link, _): &&(LinkId, f64)| (known.names)(*link).iter().any(|name| name == port);
    let (link, _) = suspects.iter().find(is_it)?;
    let because = format!("measured: the slowest messages waited here, {us:.1} us in total");
    Some((*link, port.to_owned(), because))
}

/// Returns the link whose port counted most.
fn counted(
    suspects: &[(LinkId, f64)],
    known: &PortKnowledge<'_>,
) -> Option<(LinkId, String, String)> {
    let mut best: Option<(LinkId, String, &FullPort)> = None;
    for (link, _) in suspects {
        for name in (known.names)(*link) {
            let Some(port) = known.full.iter().find(|port| port.name == name) else { continue };
            // Of equal ones the link with more offered load, which comes first.
            if best.as_ref().is_none_or(|(.., most)| port.amount > most.amount) {
                best = Some((*link, name, port));
            }
        }
    }
    let (link, name, port) = best?;
    Some((link, name, format!("measured: {} {}", port.amount, port.unit)))
}

fn host(rank: Rank, known: &PortKnowledge<'_>) -> String {
    known.hosts.get(rank.index()).cloned().unwrap_or_else(|| format!("rank {}", rank.0))
}

/// Returns a link in words, where ports have no names.
fn spoken(link: LinkId, known: &PortKnowledge<'_>) -> String {
    if let Some(name) = (known.names)(link).into_iter().next() {
        return name;
    }
    match link {
        LinkId::FromHost(rank) => format!("{} -> network", host(rank, known)),
        LinkId::ToHost(rank) => format!("network -> {}", host(rank, known)),
        LinkId::FromSwitch(switch) => format!("switch {switch} -> others"),
        LinkId::ToSwitch(switch) => format!("others -> switch {switch}"),
        LinkId::Cable(cable) => format!("cable {cable}"),
    }
}

#[cfg(test)]
mod tests {
    use clearway_proto::base::{BitsPerSec, Bytes, Nanos};
    use clearway_proto::congestion::{CongestorKind, Draw, SwitchedLayout, VictimKind};

    use super::super::cell::{Case, CongestorPresence};
    use super::super::windows::{Grid, Windows};
    use super::*;
    use crate::mechanism::congestion::{Bursts, CongestionSection};
    use crate::report::model::{LongestWait, SlowMessage};
    use crate::run::venue::{ClockAgreement, CongestionReach, HostNoise, VenueFacts};

    /// What is found where ports counted `full` and slow messages waited for `root`.
    fn found(full: &[FullPort], root: Option<&str>, placed: [&[u32]; 2]) -> Option<Culprit> {
        let layout = SwitchedLayout {
            switch_of: vec![0; 6],
            host_rate: BitsPerSec::mega(100),
            trunk_rate: None,
        };
        let [victims, group] = placed.map(|ranks| ranks.iter().copied().map(Rank).collect());
        let draw = Draw { number: 0, victims, groups: vec![group], rejected: 0 };
        let test = CongestionSection::default();
        let second = Nanos::from_secs(1);
        let grid = Grid { slice: Nanos::from_millis(100), drain: Nanos::ZERO };
        let cell = Cell {
            case: Case {
                queue: "fifo",
                victim: VictimKind::Ping,
                congestor: CongestorKind::Incast,
                intensity: 150,
                bursts: Bursts::Steady,
                members: None,
            },
            draw: &draw,
            test: &test,
            layout: &layout,
            windows: Windows::new(grid, second, second),
            facts: VenueFacts {
                frame: Bytes(1514),
                reach: CongestionReach::Link,
                hosts: HostNoise::Simulated,
                clocks: ClockAgreement::One,
                has_multicast: false,
            },
            congestors: CongestorPresence::Loading,
        };
        let hosts: Vec<String> = (0..6).map(|i| format!("n{i}")).collect();
        let names = |link| match link {
            LinkId::FromHost(rank) => vec![format!("n{} -> s", rank.0)],
            LinkId::ToHost(rank) => vec![format!("s -> n{}", rank.0)],
            _ => Vec::new(),
        };
        let message = |root: &str| SlowMessage {
            id: "p1:n0:1".to_owned(),
            ends: ["n0", "n1"].map(str::to_owned),
            bytes: 8,
            posted_us: 1.0,
            latency_us: 9.0,
            wait: Some(LongestWait {
                cause: String::new(),
                port: "n0 -> s".to_owned(),
                us: 8.0,
                root: root.to_owned(),
                because: String::new(),
            }),
        };
        let slowest = root.map(|root| Slowest {
            labels: Labels::new(),
            phase: String::new(),
            messages: vec![message(root)],
            note: None,
        });
        let known = PortKnowledge { hosts: &hosts, names: &names, full, slowest: slowest.as_ref() };
        find(&cell, &known)
    }

    fn port(name: &str, amount: u64) -> FullPort {
        FullPort { name: name.to_owned(), amount, unit: "packets were dropped there" }
    }

    #[test]
    fn find__the_measured_port_and_those_whose_messages_pass_it() {
        let placed: [&[u32]; 2] = [&[0, 1], &[0, 2, 3, 4]];
        // A port that victims do not use counts nothing.
        let full = [port("s -> n5", 900), port("s -> n0", 70), port("n1 -> s", 2)];
        let culprit = found(&full, None, placed).expect("a port");
        assert_eq!(culprit.port, "s -> n0");
        assert_eq!(culprit.senders, ["n2", "n3", "n4"]);
        assert_eq!(culprit.because, "measured: 70 packets were dropped there");
        let culprit = found(&full, Some("s -> n0"), placed).expect("a port");
        assert!(culprit.because.contains("the slowest messages waited here"), "{culprit:?}");
        // A root that no congestor's way passes is no culprit; the counters decide.
        let culprit = found(&full, Some("s -> n5"), placed).expect("a port");
        assert!(culprit.because.contains("dropped"), "{culprit:?}");
    }

    #[test]
    fn find__without_counters_the_place_is_computed_and_says_so() {
        let culprit = found(&[], None, [&[0, 1], &[0, 2, 3, 4]]).expect("a port");
        assert_eq!(culprit.port, "s -> n0");
        assert!(culprit.because.starts_with("computed: congestors offer 150 %"), "{culprit:?}");
    }
}
