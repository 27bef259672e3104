//! Reads the lanes and arbitration tables out of an opensm.conf: what the ports of a live
//! InfiniBand network got.
//!
//! # Model
//! OpenSM keeps five options for each kind of port (`qos_ca_`, `qos_swe_`, ...), falls back to
//! those of all ports (`qos_`) and then to its own. It gives a port the largest of 1, 2, 4, 8 or 15
//! lanes that is allowed and that the port has, and cuts what the tables say to fit: lane numbers
//! modulo that many, entries beyond the port's table not at all.
//!
//! # Source
//! Names, defaults, fall-back and what the tables hold: `doc/qos-config.txt` of OpenSM 3.3.
//!
//! # Invariants
//! I1. What OpenSM would quietly bend (weights over 255, lanes over 14) is refused.

mod faults;
mod policy;

use std::collections::BTreeSet;

use clearway_proto::base::Class;

pub(super) use faults::faults;
pub(super) use policy::{Policy, partitions};

use super::read::{NO_LANE, weights};
use super::section::nearest;

/// Kinds of ports that have options of their own; the first is the fall-back of all.
const PORTS: [&str; 6] = ["", "ca_", "sw0_", "swe_", "sw2sw_", "rtr_"];
const FIELDS: [&str; 5] = ["max_vls", "high_limit", "vlarb_high", "vlarb_low", "sl2vl"];
/// Options that begin with `qos_` and are none of the tables.
const OTHERS: [&str; 1] = ["qos_policy_file"];
/// Routings that need service levels to be free of deadlock, and so own the map to lanes.
const OWNERS: [&str; 4] = ["lash", "torus-2QoS", "dfsssp", "nue"];

/// Options of every complete file; a file without any of these and without `qos_` is somebody
/// else's.
const USUAL: [&str; 6] = ["qos", "no_qos", "guid", "subnet_prefix", "lmc", "routing_engine"];

/// OpenSM's own values where nothing is said.
const MAX_VLS: u8 = 15;
const HIGH_LIMIT: u8 = 0;
const VLARB_HIGH: &str = "0:4,1:0,2:0,3:0,4:0,5:0,6:0,7:0,8:0,9:0,10:0,11:0,12:0,13:0,14:0";
const VLARB_LOW: &str = "0:0,1:4,2:4,3:4,4:4,5:4,6:4,7:4,8:4,9:4,10:4,11:4,12:4,13:4,14:4";
const SL2VL: &str = "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,7";

/// Lanes, and entries of each table, of the adapters and switches in use: ConnectX and its switches
/// have VL0 to VL7.
const HARDWARE_LANES: u8 = 8;
/// The service level of each class by [`Class::index`]: the map that Clearway sets up by default.
pub(super) const LEVELS: [u8; Class::ALL.len()] = [1, 2, 0, 3, 4];

/// What ports of one kind got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PortTables {
    pub(super) lanes: u8,
    pub(super) high: Vec<(u8, u8)>,
    pub(super) low: Vec<(u8, u8)>,
    pub(super) high_limit: u8,
    pub(super) lane_of_level: [u8; 16],
}

/// What is said of a file that leaves QoS off.
const QOS_OFF: &str =
    "`qos` is not TRUE: OpenSM sets none of these tables unless it is started with -Q";

/// What an opensm.conf says about lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OpensmConf {
    pub(super) adapters: PortTables,
    pub(super) switches: PortTables,
    /// The service level of each class.
    pub(super) levels: [u8; Class::ALL.len()],
    /// What a person should know about it.
    pub(super) remarks: Vec<String>,
}

/// Reads the text of an opensm.conf.
///
/// # Errors
/// The line of the first option that cannot be; a text without any option of OpenSM.
pub(super) fn parse(text: &str) -> Result<OpensmConf, (u32, String)> {
    let Reading { options, is_on, owner, unknown } = read(text)?;
    refuse(&unknown)?;
    let mut remarks = Vec::new();
    if let Some((line, value)) = owner {
        remarks.push(format!(
            "line {line}: routing engine {value} sets the map from service level to lane itself"
        ));
    }
    if !is_on {
        remarks.push(QOS_OFF.to_owned());
    }
    conf(&options, remarks)
}

/// Returns the line of a routing engine that owns the service levels, and what it says.
///
/// # Errors
/// As [`parse`].
pub(super) fn owner(text: &str) -> Result<Option<(u32, String)>, (u32, String)> {
    let Reading { owner, unknown, .. } = read(text)?;
    refuse(&unknown)?;
    Ok(owner.map(|(line, engine)| (line, engine.to_owned())))
}

/// What a text says, before anything is made of it.
struct Reading<'t> {
    options: OpensmOptions,
    is_on: bool,
    /// The line of a routing engine that owns the service levels, and what it says.
    owner: Option<(u32, &'t str)>,
    /// Options that OpenSM does not have, with their lines.
    unknown: Vec<(u32, &'t str)>,
}

/// Refuses a text with options that OpenSM does not have.
fn refuse(unknown: &[(u32, &str)]) -> Result<(), (u32, String)> {
    unknown.first().map_or(Ok(()), |(line, key)| Err((*line, unknown_option(key))))
}

fn unknown_option(key: &str) -> String {
    let known = known_options();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    format!("unknown option `{key}`; {}", nearest(key, &known))
}

/// Returns the names of the tables' options.
fn known_options() -> Vec<String> {
    PORTS
        .iter()
        .flat_map(|port| FIELDS.iter().map(move |field| format!("qos_{port}{field}")))
        .collect()
}

/// Reads the options of a text.
fn read(text: &str) -> Result<Reading<'_>, (u32, String)> {
    if !is_conf(text) {
        return Err((
            1,
            "no option of OpenSM is in this file; `opensm -c FILE` writes one with all of them"
                .to_owned(),
        ));
    }
    let options = OpensmOptions::default();
    let mut reading = Reading { options, is_on: false, owner: None, unknown: Vec::new() };
    let known = known_options();
    for (line, content) in (1..).zip(text.lines()) {
        match option(content) {
            ("qos", value) => reading.is_on = value.eq_ignore_ascii_case("true"),
            ("no_qos", value) => reading.is_on = value.eq_ignore_ascii_case("false"),
            ("routing_engine", value) if OWNERS.iter().any(|owner| value.contains(owner)) => {
                reading.owner = Some((line, value));
            }
            (key, value) if known.iter().any(|name| name == key) => {
                reading.options.take(line, key, value)
            }
            (key, _) if key.starts_with("qos_") && !OTHERS.contains(&key) => {
                reading.unknown.push((line, key));
            }
            _ => {}
        }
    }
    Ok(reading)
}

/// Returns key and value of a line.
fn option(line: &str) -> (&str, &str) {
    let content = line.split('#').next().unwrap_or_default().trim();
    let (key, value) = content.split_once(char::is_whitespace).unwrap_or((content, ""));
    (key, value.trim())
}

/// Returns whether any line is an option of OpenSM. Nothing at all is OpenSM's too: it then takes
/// its own values.
pub(super) fn is_conf(text: &str) -> bool {
    let mut keys = text.lines().map(|line| option(line).0).filter(|key| !key.is_empty()).peekable();
    keys.peek().is_none() || keys.any(|key| USUAL.contains(&key) || key.starts_with("qos_"))
}

fn conf(options: &OpensmOptions, mut remarks: Vec<String>) -> Result<OpensmConf, (u32, String)> {
    let adapters = options.port("ca_", &mut remarks)?;
    let switches = options.port("swe_", &mut remarks)?;
    if FIELDS.iter().any(|field| options.lookup("sw2sw_", field).is_some()) {
        remarks.push(
            "qos_sw2sw_ options are left out: ports between switches are taken as qos_swe_ says"
                .to_owned(),
        );
    }
    if !FIELDS
        .iter()
        .any(|field| options.lookup("swe_", field).or(options.lookup("", field)).is_some())
    {
        remarks.push(
            "no qos_swe_ options: switches keep OpenSM's defaults, whatever adapters do".to_owned(),
        );
    }
    let mut levels = LEVELS;
    for class in Class::ALL {
        let level = &mut levels[class.index()];
        if adapters.lane_of_level[usize::from(*level)] == NO_LANE {
            remarks.push(format!(
                "service level {level} is dropped; class {class} travels at level 0 instead"
            ));
            *level = 0;
        }
    }
    Ok(OpensmConf { adapters, switches, levels, remarks })
}

/// What was said, by kind of port and field; the last word counts.
#[derive(Default)]
struct OpensmOptions {
    said: Vec<(String, u32, String)>,
}

impl OpensmOptions {
    fn take(&mut self, line: u32, key: &str, value: &str) {
        // These stand for "not said".
        let is_said =
            !matches!((value, key.ends_with("max_vls")), ("" | "(null)" | "-1", _) | ("0", true));
        if is_said {
            self.said.push((key.to_owned(), line, value.to_owned()));
        }
    }

    /// Returns a sentence for each value that its option cannot have, with its line.
    fn wrong_values(&self) -> Vec<(u32, String)> {
        let wrong = |(key, line, value): &(String, u32, String)| {
            let field = FIELDS.into_iter().find(|field| key.ends_with(field))?;
            let judged = match field {
                "max_vls" => number(field, value, MAX_VLS).map(drop),
                "high_limit" => number(field, value, u8::MAX).map(drop),
                "sl2vl" => return levels(Some((*line, value)), HARDWARE_LANES).err(),
                _ => weights(value).map(drop),
            };
            judged.err().map(|why| (*line, why))
        };
        self.said.iter().filter_map(wrong).collect()
    }

    /// Returns the options without those of some lines.
    fn without(&self, lines: &BTreeSet<u32>) -> Self {
        let said = self.said.iter().filter(|(_, line, _)| !lines.contains(line));
        Self { said: said.cloned().collect() }
    }

    fn lookup(&self, port: &str, field: &str) -> Option<(u32, &str)> {
        let key = format!("qos_{port}{field}");
        self.said
            .iter()
            .rev()
            .find(|(name, ..)| *name == key)
            .map(|(_, line, value)| (*line, value.as_str()))
    }

    /// Returns what ports of this kind get, after every fall-back and after cutting.
    fn port(&self, port: &str, remarks: &mut Vec<String>) -> Result<PortTables, (u32, String)> {
        let said = |field| self.lookup(port, field).or_else(|| self.lookup("", field));
        let number = |field, default: u8, most: u8| match said(field) {
            None => Ok(default),
            Some((line, value)) => number(field, value, most).map_err(|why| (line, why)),
        };
        let table = |field, default| {
            let (line, value) = said(field).unwrap_or((0, default));
            weights(value).map_err(|why| (line, why))
        };
        let max_vls = number("max_vls", MAX_VLS, MAX_VLS)?;
        let lanes = [HARDWARE_LANES, 4, 2].into_iter().find(|lanes| *lanes <= max_vls).unwrap_or(1);
        let mut cut = |field, default| {
            let table = table(field, default)?;
            let (kept, beyond) = table.split_at(table.len().min(usize::from(HARDWARE_LANES)));
            if said(field).is_some() && beyond.iter().any(|(_, weight)| *weight > 0) {
                remarks.push(format!(
                    "qos_{port}{field}: entries after the first {HARDWARE_LANES} find no room in a port"
                ));
            }
            Ok(kept.iter().map(|(lane, weight)| (lane % lanes, *weight)).collect())
        };
        let (high, low) = (cut("vlarb_high", VLARB_HIGH)?, cut("vlarb_low", VLARB_LOW)?);
        let high_limit = number("high_limit", HIGH_LIMIT, u8::MAX)?;
        let lane_of_level = levels(said("sl2vl"), lanes)?;
        Ok(PortTables { lanes, high, low, high_limit, lane_of_level })
    }
}

/// Returns the number that an option has.
fn number(field: &str, value: &str, most: u8) -> Result<u8, String> {
    let number = value.parse().ok().filter(|number| *number <= most);
    number.ok_or_else(|| format!("`{value}` is no {field}; it goes from 0 to {most}"))
}

/// Returns the lane of each service level. Levels that the list does not reach are on lane 0, as
/// OpenSM reads it.
fn levels(said: Option<(u32, &str)>, lanes: u8) -> Result<[u8; 16], (u32, String)> {
    let (line, value) = said.unwrap_or((0, SL2VL));
    let mut table = [0; 16];
    let entries: Vec<&str> =
        value.split(',').map(str::trim).filter(|entry| !entry.is_empty()).collect();
    if entries.len() > table.len() {
        return Err((line, format!("{} lanes for 16 service levels", entries.len())));
    }
    for (place, entry) in table.iter_mut().zip(entries) {
        let lane: u8 = entry.parse().ok().filter(|lane| *lane <= NO_LANE).ok_or_else(|| {
            (line, format!("`{entry}` is no virtual lane; they go from 0 to 14, and 15 drops the service level"))
        })?;
        *place = if lane == NO_LANE { NO_LANE } else { lane % lanes };
    }
    Ok(table)
}

#[cfg(test)]
mod tests;
