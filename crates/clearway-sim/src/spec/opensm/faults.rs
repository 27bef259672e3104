//! What is wrong with the tables of an opensm.conf though OpenSM takes them: lanes that starve or
//! are alike, levels that vanish, ports that were forgotten.
//!
//! # Source
//! Weights count 64 bytes, the high limit 4096 bytes, 255 is no limit, and lane 15 of a level drops
//! it (InfiniBand specification volume 1, 7.6.6 and 7.6.9). A port sends whole packets, so a weight
//! below a packet is one packet.

use std::collections::{BTreeMap, BTreeSet};

use clearway_proto::base::Bytes;

use super::{FIELDS, NO_LANE, OpensmOptions, PortTables, QOS_OFF, Reading, read, unknown_option};
use crate::spec::read::weights;

/// Kinds of ports that carry traffic of jobs, and what they are.
const CARRY: [(&str, &str); 2] = [("ca_", "adapters"), ("swe_", "switches")];
/// Lines with unknown options, and with wrong values, at most: a file with more is not OpenSM's.
const WRONG_MAX: usize = 1000;
/// Bytes of one weight.
const WEIGHT_BYTES: u64 = 64;

/// Returns what is wrong with the text of an opensm.conf, a sentence each, where packets carry
/// `payload`.
///
/// # Errors
/// The text has no option of OpenSM.
pub(in crate::spec) fn faults(text: &str, payload: Bytes) -> Result<Vec<String>, (u32, String)> {
    let Reading { options, is_on, owner, unknown } = read(text)?;
    let mut faults = Vec::new();
    if !is_on {
        faults.push(QOS_OFF.to_owned());
    }
    if let Some((line, owner)) = owner {
        faults.push(format!(
            "line {line}: routing engine {owner} uses service levels to be free of deadlock, and sets their lanes itself"
        ));
    }
    let wrong_values = options.wrong_values();
    let wrong_lines: BTreeSet<u32> = wrong_values.iter().map(|(line, _)| *line).collect();
    let count = unknown.len() + wrong_values.len();
    let unknown = unknown.into_iter().map(|(line, key)| (line, unknown_option(key)));
    let wrong: BTreeMap<u32, String> =
        unknown.take(WRONG_MAX).chain(wrong_values.into_iter().take(WRONG_MAX)).collect();
    let left_out = count - wrong.len();
    faults.extend(wrong.into_iter().map(|(line, why)| format!("line {line}: {why}")));
    if left_out > 0 {
        faults.push(format!("{left_out} more lines have wrong options"));
    }
    forgotten_ports(&options, &mut faults);
    let right = options.without(&wrong_lines);
    for port in CARRY {
        port_faults((&options, &right), port, payload, &mut faults)?;
    }
    faults.dedup();
    Ok(faults)
}

/// Notes what is wrong with the ports of a kind by what is said of them and by what is `right` of
/// that. A fault that follows from an option is judged only where that is right.
fn port_faults(
    (options, right): (&OpensmOptions, &OpensmOptions),
    (kind, who): (&str, &str),
    payload: Bytes,
    faults: &mut Vec<String>,
) -> Result<(), (u32, String)> {
    let mut bent = Vec::new();
    let tables = right.port(kind, &mut bent)?;
    let said = |field: &str| options.lookup(kind, field).or_else(|| options.lookup("", field));
    let is_right = |fields: &[&str]| {
        fields.iter().all(|field| {
            right.lookup(kind, field).or_else(|| right.lookup("", field)) == said(field)
        })
    };
    let are_lanes_right = is_right(&["max_vls", "vlarb_high", "vlarb_low"]);
    if are_lanes_right {
        faults.append(&mut bent);
    }
    if let Some((line, _)) = said("sl2vl").filter(|_| is_right(&["sl2vl"])) {
        dropped_levels(line, kind, &tables, faults);
    }
    if are_lanes_right && is_right(&["sl2vl"]) {
        unserved_levels(who, &tables, faults);
    }
    if let Some((line, _)) = said("high_limit").filter(|_| is_right(&["high_limit"]))
        && are_lanes_right
    {
        starved_lanes(line, kind, &tables, faults);
    }
    for field in ["vlarb_high", "vlarb_low"] {
        if let Some((line, value)) = said(field)
            && let Ok(table) = weights(value)
        {
            alike_weights((line, kind, field), &table, payload, faults);
        }
    }
    Ok(())
}

/// Notes that some kinds of ports were given tables, and others not.
fn forgotten_ports(options: &OpensmOptions, faults: &mut Vec<String>) {
    let has = |kind: &str| FIELDS.iter().any(|field| options.lookup(kind, field).is_some());
    let kinds = [("ca_", "adapters"), ("swe_", "switches"), ("sw0_", "port 0 of switches")];
    let (given, forgotten): (Vec<_>, Vec<_>) = kinds.into_iter().partition(|(kind, _)| has(kind));
    if has("") || given.is_empty() || forgotten.is_empty() {
        return;
    }
    let list = |kinds: &[(&str, &str)]| {
        kinds
            .iter()
            .map(|(kind, who)| format!("{who} (qos_{kind})"))
            .collect::<Vec<_>>()
            .join(" and ")
    };
    faults.push(format!(
        "tables are given for {} and not for {}, which keep OpenSM's own: one packet of lane 0, and then a turn of all others; where many hosts send to one, \
         the queue is at a switch, so give the same to all",
        list(&given),
        list(&forgotten)
    ));
}

/// Notes levels that ports drop.
fn dropped_levels(line: u32, kind: &str, tables: &PortTables, faults: &mut Vec<String>) {
    let dropped: Vec<usize> =
        (0..16).filter(|level| tables.lane_of_level[*level] == NO_LANE).collect();
    if !dropped.is_empty() {
        faults.push(format!(
            "line {line}: qos_{kind}sl2vl puts service levels {} on lane 15, where packets are dropped: what uses them vanishes without an error; give them a \
             lane that is served",
            numbers(&dropped)
        ));
    }
}

/// Notes levels on lanes that no table serves.
fn unserved_levels(who: &str, tables: &PortTables, faults: &mut Vec<String>) {
    let is_served = |lane: u8| {
        tables.high.iter().chain(&tables.low).any(|(served, weight)| *served == lane && *weight > 0)
    };
    let unserved: Vec<usize> = (0..16)
        .filter(|level| {
            let lane = tables.lane_of_level[*level];
            lane != NO_LANE && !is_served(lane)
        })
        .collect();
    if !unserved.is_empty() {
        faults.push(format!(
            "at {who} the lanes of service levels {} have no weight in any table: they send nothing",
            numbers(&unserved)
        ));
    }
}

/// Notes lanes that wait without bound for others.
fn starved_lanes(line: u32, kind: &str, tables: &PortTables, faults: &mut Vec<String>) {
    let lanes = |table: &[(u8, u8)]| {
        let mut lanes: Vec<usize> = table
            .iter()
            .filter(|(_, weight)| *weight > 0)
            .map(|(lane, _)| usize::from(*lane))
            .collect();
        lanes.sort_unstable();
        lanes.dedup();
        lanes
    };
    let high = lanes(&tables.high);
    let low: Vec<usize> =
        lanes(&tables.low).into_iter().filter(|lane| !high.contains(lane)).collect();
    if tables.high_limit == u8::MAX && !high.is_empty() && !low.is_empty() {
        faults.push(format!(
            "line {line}: qos_{kind}high_limit 255 is no limit: lanes {} send nothing as long as lane {} has something to send; 4 lets it send 16 KiB at a time",
            numbers(&low),
            numbers(&high)
        ));
    }
}

/// Notes weights that are no multiples of a packet, where several lanes are weighed.
fn alike_weights(
    (line, kind, field): (u32, &str, &str),
    table: &[(u8, u8)],
    payload: Bytes,
    faults: &mut Vec<String>,
) {
    let packet = payload.0.div_ceil(WEIGHT_BYTES).max(1);
    let weighed: Vec<(u8, u8)> = table.iter().copied().filter(|(_, weight)| *weight > 0).collect();
    let odd: Vec<&(u8, u8)> =
        weighed.iter().filter(|(_, weight)| u64::from(*weight) % packet != 0).collect();
    if weighed.len() < 2 || odd.is_empty() {
        return;
    }
    let shown: Vec<String> = odd.iter().map(|(lane, weight)| format!("{lane}:{weight}")).collect();
    faults.push(format!(
        "line {line}: qos_{kind}{field} has weights that are no multiples of {packet}, which is one packet of {payload}: {}; a lane sends whole packets, so \
         smaller weights are all the same",
        shown.join(", ")
    ));
}

/// Returns numbers in order as a person writes them: `1 to 7 and 9`.
fn numbers(numbers: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => runs.push((*number, *number)),
        }
    }
    let words: Vec<String> = runs
        .iter()
        .map(|(first, last)| match last - first {
            0 => format!("{first}"),
            1 => format!("{first} and {last}"),
            _ => format!("{first} to {last}"),
        })
        .collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::tests::STUDY;
    use super::*;

    fn found(text: &str) -> Vec<String> {
        faults(text, Bytes(2048)).expect("OpenSM reads it")
    }

    #[test]
    fn faults__the_study_s_file_has_four() {
        let found = found(STUDY);
        let expected = [
            "tables are given for adapters (qos_ca_) and not for switches (qos_swe_) and port 0 of switches (qos_sw0_)",
            "line 5: qos_ca_sl2vl puts service levels 8 to 15 on lane 15",
            "line 2: qos_ca_high_limit 255 is no limit: lanes 1 to 7 send nothing as long as lane 0",
            "line 4: qos_ca_vlarb_low has weights that are no multiples of 32, which is one packet of 2 KiB: 1:2, 2:4, 3:8, 4:16",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (fault, expected) in found.iter().zip(expected) {
            assert!(fault.starts_with(expected), "{fault}");
        }
    }

    #[test]
    fn faults__each_is_reported_and_what_is_right_has_none() {
        let right = "qos TRUE\nqos_high_limit 4\nqos_vlarb_high 1:64\nqos_vlarb_low 0:64,2:128\nqos_sl2vl 0,1,2,0,0,0,0,0,0,0,0,0,0,0,0,0\n";
        assert_eq!(found(right), Vec::<String>::new());
        for (from, to, fault) in [
            ("qos TRUE", "", "`qos` is not TRUE"),
            ("qos TRUE", "qos FALSE", "`qos` is not TRUE"),
            ("qos TRUE", "qos TRUE\nrouting_engine lash", "line 2: routing engine lash"),
            ("0,1,2,0", "0,1,2,3", "service levels 3 have no weight in any table"),
            ("2:128", "2:129", "no multiples of 32"),
            ("qos_high", "qos_swe_high", ""),
        ] {
            let found = found(&right.replace(from, to));
            let is_said = found.iter().any(|said| said.contains(fault));
            assert_eq!(is_said && !found.is_empty(), !fault.is_empty(), "{to}: {found:?}");
        }
        assert!(faults("root:x:0:0", Bytes(2048)).is_err());
    }

    #[test]
    fn faults__every_wrong_value_is_reported_with_its_line_and_nothing_is_made_of_it() {
        let text = "qos TRUE\nqos_ca_max_vls 16\nqos_ca_vlarb_high 0:4\nqos_ca_vlarb_low 0:300\n\
                    qos_ca_sl2vl 0,x\nqos_cq_max_vls 8\nqos_ca_high_limit 256\nqos_ca_high_limit 255\n\
                    qos_swe_vlarb_low 0:3,1:64,2:32,3:32,4:32,5:32,6:32,7:32\nqos_sw0_vlarb_high 15:1\n";
        let expected = [
            "line 2: `16` is no max_vls",
            "line 4: `0:300` has no weight",
            "line 5: `x` is no virtual lane",
            "line 6: unknown option `qos_cq_max_vls`; did you mean `qos_ca_max_vls`?",
            "line 7: `256` is no high_limit",
            "line 10: `15:1` names virtual lane 15",
            "line 9: qos_swe_vlarb_low has weights that are no multiples of 32",
        ];
        let found = found(text);
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (fault, expected) in found.iter().zip(expected) {
            assert!(fault.starts_with(expected), "{fault}");
        }
    }

    #[test]
    fn faults__of_a_file_with_any_number_of_wrong_lines_are_bounded() {
        let found = found(&format!("qos TRUE\n{}", "qos_z 1\n".repeat(5 * WRONG_MAX)));
        assert_eq!(found.len(), WRONG_MAX + 1);
        let left_out = 4 * WRONG_MAX;
        assert_eq!(found[WRONG_MAX], format!("{left_out} more lines have wrong options"));
    }

    #[test]
    fn numbers__are_runs() {
        assert_eq!(numbers(&[1, 2, 4, 5, 6, 9]), "1 and 2, 4 to 6, 9");
    }
}
