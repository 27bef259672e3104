//! Reads the policies of a fabric file: which class travels on which lane, what happens to it
//! there, who sends first.
//!
//! # Invariants
//! I1. Every policy is read, whichever is wanted, so that a mistake in any of them is found.

use clearway_proto::base::{Bytes, Class};

use crate::spec::figure::Figure;
use crate::spec::file::FileError;
use crate::spec::section::{Section, nearest};
use crate::spec::{
    Arbiter, Arbitration, ClassMap, LaneException, LossDomain, VIRTUAL_LANES_MAX, VlArbitration,
};

/// The lane of service levels that travel on none (OpenSM, `doc/qos-config.txt`: lane 15 in a
/// SL-to-VL table drops).
pub(in crate::spec) const NO_LANE: u8 = 15;
/// The rank of lanes that a strict order does not name: behind all others.
const LAST_RANK: u8 = u8::MAX;

/// The policy that was chosen, and the names of all.
pub(super) struct ChosenPolicy {
    pub(super) name: String,
    pub(super) all: Vec<(String, String)>,
    pub(super) classes: ClassMap,
    pub(super) arbitration: Arbitration,
}

/// Reads every policy, so that a mistake in any of them is found.
pub(super) fn policies(
    table: Section<'_>,
    wanted: Option<&str>,
    figures: &mut Vec<Figure>,
) -> Result<ChosenPolicy, FileError> {
    let (mut all, mut chosen) = (Vec::new(), None);
    for (name, node) in table.entries() {
        let mut policy = Section::new(node, table.path_of(name))?;
        let about = policy.text("about")?.to_owned();
        let classes = class_map(&mut policy, figures)?;
        let lanes = classes.virtual_lanes;
        let arbitration = Arbitration {
            host: arbiter(policy.needed("host")?, lanes, figures)?,
            switch: arbiter(policy.needed("switch")?, lanes, figures)?,
            express: if policy.has("express") {
                policy
                    .counts("express", 0..=lanes - 1)?
                    .iter()
                    .fold(0, |all, lane: &u8| all | 1 << lane)
            } else {
                0
            },
        };
        policy.close(figures)?;
        all.push((name.clone(), about));
        if wanted.is_none_or(|wanted| wanted == name) && chosen.is_none() {
            chosen = Some((name.clone(), classes, arbitration));
        }
    }
    match chosen {
        Some((name, classes, arbitration)) => Ok(ChosenPolicy { name, all, classes, arbitration }),
        None => {
            let known: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
            let why = match wanted {
                Some(wanted) if !known.is_empty() => {
                    format!("there is no policy `{wanted}`; {}", nearest(wanted, &known))
                }
                _ => "a fabric needs at least one [policy.NAME]".to_owned(),
            };
            Err(table.place().wrong(why))
        }
    }
}

fn class_map(policy: &mut Section<'_>, figures: &mut Vec<Figure>) -> Result<ClassMap, FileError> {
    let virtual_lanes = policy.count("virtual-lanes", 1..=NO_LANE)?;
    let mut levels = policy.needed("service-level")?;
    let mut service_level = [0; Class::ALL.len()];
    for class in Class::ALL {
        service_level[class.index()] = levels.count(class.name(), 0..=15u8)?;
    }
    levels.close(figures)?;
    let lane_of_level = lane_table(policy)?;
    let mut lane_exceptions = Vec::new();
    if policy.has("exceptions") {
        let path = policy.path_of("exceptions");
        for node in policy.list("exceptions")?.1 {
            let mut exception = Section::new(node, path.clone())?;
            let (from, to) = (exception.text("from")?.to_owned(), exception.text("to")?.to_owned());
            lane_exceptions.push(LaneException {
                from,
                to,
                lane_of_level: lane_table(&mut exception)?,
            });
            exception.close(figures)?;
        }
    }
    Ok(ClassMap {
        virtual_lanes,
        service_level,
        lane_of_level,
        lane_exceptions,
        loss: loss(policy)?,
    })
}

/// Reads the lane table: service levels that the list does not reach travel on no lane.
fn lane_table(table: &mut Section<'_>) -> Result<[u8; 16], FileError> {
    let listed = table.counts("lane-of-level", 0..=NO_LANE)?;
    if listed.is_empty() || listed.len() > 16 {
        let why = format!(
            "{}: {} entries; there are 16 service levels",
            table.path_of("lane-of-level"),
            listed.len()
        );
        return Err(table.place().wrong(why));
    }
    let mut lanes = [NO_LANE; 16];
    lanes[..listed.len()].copy_from_slice(&listed);
    Ok(lanes)
}

/// Reads `loss`: one word for all lanes or a list by lane.
fn loss(policy: &mut Section<'_>) -> Result<[LossDomain; VIRTUAL_LANES_MAX], FileError> {
    const KINDS: [&str; 3] = ["credits", "pauses", "drops"];
    let path = policy.path_of("loss");
    let is_list = policy.is_list("loss");
    let words = if is_list {
        policy.texts("loss")?.into_iter().map(|(word, place)| (word, place.clone())).collect()
    } else {
        vec![(policy.text("loss")?, policy.place().clone())]
    };
    let queue = if words.iter().any(|(word, _)| *word == "drops") {
        policy.bytes("queue")?
    } else {
        Bytes(0)
    };
    let mut domains = Vec::new();
    for (word, place) in &words {
        domains.push(match *word {
            "credits" => LossDomain::Credits,
            "pauses" => LossDomain::Pauses,
            "drops" => LossDomain::Drops { queue },
            other => {
                return Err(place
                    .wrong(format!("{path}: `{other}` is not known; {}", nearest(other, &KINDS))));
            }
        });
    }
    let Some(last) = domains.last().copied() else {
        return Err(policy
            .place()
            .wrong(format!("{path}: an empty list; there are {}", KINDS.join(", "))));
    };
    let mut loss = [last; VIRTUAL_LANES_MAX];
    for (place, domain) in loss.iter_mut().zip(domains) {
        *place = domain;
    }
    Ok(loss)
}

fn arbiter(
    mut table: Section<'_>,
    lanes: u8,
    figures: &mut Vec<Figure>,
) -> Result<Arbiter, FileError> {
    let kinds = [("round-robin", 0u8), ("strict", 1), ("weighted", 2), ("tables", 3)];
    let last_lane = lanes.saturating_sub(1);
    let arbiter = match table.choice("kind", &kinds)? {
        1 => {
            let mut rank = [LAST_RANK; VIRTUAL_LANES_MAX];
            for (place, lane) in (0..).zip(table.counts("order", 0..=last_lane)?) {
                rank[usize::from(lane)] = place;
            }
            Arbiter::Strict { rank }
        }
        2 => weighted(&mut table, last_lane)?,
        3 => Arbiter::Tables(VlArbitration {
            high: table.quantity("high", weights)?,
            low: table.quantity("low", weights)?,
            high_limit: table.count("high-limit", 0..=u8::MAX)?,
        }),
        _ => Arbiter::RoundRobin,
    };
    table.close(figures)?;
    Ok(arbiter)
}

fn weighted(table: &mut Section<'_>, last_lane: u8) -> Result<Arbiter, FileError> {
    let mut quantum = [0; VIRTUAL_LANES_MAX];
    let listed = table.bytes_list("quantum")?;
    for (place, bytes) in quantum.iter_mut().zip(&listed) {
        let why =
            || table.place().wrong(format!("{}: {bytes} is too much", table.path_of("quantum")));
        *place = u32::try_from(bytes.0).map_err(|_| why())?;
    }
    let mut first = [None; VIRTUAL_LANES_MAX];
    if table.has("first") {
        for (rank, lane) in (0..).zip(table.counts("first", 0..=last_lane)?) {
            first[usize::from(lane)] = Some(rank);
        }
    }
    Ok(Arbiter::Weighted { quantum, first })
}

/// Reads a table as opensm.conf has it: `0:4, 1:0, 2:64`.
///
/// # Errors
/// What is wrong with it.
pub(in crate::spec) fn weights(text: &str) -> Result<Vec<(u8, u8)>, String> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    entries.map(weight).collect()
}

fn weight(entry: &str) -> Result<(u8, u8), String> {
    let Some((lane, weight)) = entry.split_once(':') else {
        return Err(format!(
            "`{entry}` is no entry of an arbitration table; write LANE:WEIGHT, as in `0:4`"
        ));
    };
    let lane: u8 =
        lane.trim().parse().map_err(|_| format!("`{entry}` names no virtual lane from 0 to 14"))?;
    if lane >= NO_LANE {
        return Err(format!(
            "`{entry}` names virtual lane {lane}; tables hold 0 to 14, management's 15 needs no weight"
        ));
    }
    let weight = weight.trim().parse();
    let weight = weight
        .map_err(|_| format!("`{entry}` has no weight from 0 to 255 (in units of 64 bytes)"))?;
    Ok((lane, weight))
}
