//! Reads the text of ibnetdiscover: which adapters and switches there are, and which cables join
//! them.
//!
//! # Model
//! A node begins with `Switch` or `Ca`, its ports and its identity; the lines after it are its
//! cables, each with the identity and port at the other end and, last, the active width and speed.
//! Most cables appear twice, once at each end.
//!
//! # Source
//! Topology file format of ibnetdiscover(8), infiniband-diags. Speeds: data rates of one lane as
//! vendors advertise them; no standard was read.
//!
//! # Invariants
//! I1. A host is a machine: adapters whose description begins with the same name and continues with
//!     an adapter's are one host.

use std::collections::{BTreeMap, BTreeSet};

use clearway_proto::base::BitsPerSec;

use super::section::nearest;

/// Data rate of one lane in Gb/s, after coding, times 100.
const SPEEDS: [(&str, u64); 9] = [
    ("SDR", 200),
    ("DDR", 400),
    ("QDR", 800),
    ("FDR10", 1_000),
    ("FDR", 1_364),
    ("EDR", 2_500),
    ("HDR", 5_000),
    ("NDR", 10_000),
    ("XDR", 20_000),
];
/// Lanes of a cable.
const WIDTHS: [u64; 5] = [1, 2, 4, 8, 12];
/// How the second word of a description begins when the first is the machine's name.
const ADAPTERS: [&str; 6] = ["HCA-", "mlx", "mthca", "qib", "hfi1", "ibp"];
/// Reduction engines inside switches; they call themselves adapters.
const ENGINE: &str = "Mellanox Technologies Aggregation Node";
/// Words that begin lines without meaning here.
const IGNORED: [&str; 9] = [
    "vendid=",
    "devid=",
    "sysimgguid=",
    "switchguid=",
    "caguid=",
    "rtguid=",
    "Chassis",
    "Non-Chassis",
    "DR path",
];

/// A cable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DiscoveredCable {
    pub(super) ends: [String; 2],
    /// As ibnetdiscover says it: `4xEDR`.
    pub(super) speed: String,
    pub(super) rate: BitsPerSec,
    /// Whether one end is a host.
    pub(super) at: CableEnd,
}

/// Where a cable is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CableEnd {
    Host,
    Switches,
}

/// What was discovered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Subnet {
    pub(super) hosts: Vec<String>,
    pub(super) switches: Vec<String>,
    pub(super) cables: Vec<DiscoveredCable>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DeviceKind {
    Switch,
    Adapter,
    /// A router or a reduction engine: part of the subnet, but no traffic of jobs ends there.
    Other,
}

struct Device {
    kind: DeviceKind,
    description: String,
    guid: String,
}

/// One end of a cable: identity and port.
type PortId = (String, u32);

/// Reads the text.
///
/// # Errors
/// The line of the first thing that is no part of a topology file.
pub(super) fn parse(text: &str) -> Result<Subnet, (u32, String)> {
    let mut devices: BTreeMap<String, Device> = BTreeMap::new();
    let mut cables: BTreeMap<[PortId; 2], (String, u32)> = BTreeMap::new();
    let mut current: Option<String> = None;
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.trim();
        if content.is_empty()
            || content.starts_with('#')
            || IGNORED.iter().any(|word| content.starts_with(word))
        {
            continue;
        }
        if content.starts_with('[') {
            let Some(near) = &current else {
                return Err((line, "a port before any `Switch` or `Ca`".to_owned()));
            };
            let (port, far, speed) =
                port(content).ok_or_else(|| (line, not_understood(content, "port")))?;
            let mut ends = [(near.clone(), port), far];
            ends.sort();
            cables.entry(ends).or_insert((speed, line));
        } else {
            let (id, device) =
                device(content).ok_or_else(|| (line, not_understood(content, "node")))?;
            current = Some(id.clone());
            devices.insert(id, device);
        }
    }
    if devices.is_empty() {
        return Err((
            1,
            "no device is in this file; give the plain output of ibnetdiscover".to_owned(),
        ));
    }
    join(&devices, cables)
}

/// A port of a switch or adapter, as the subnet manager addresses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortAddress {
    /// What its device says of itself.
    pub device: String,
    /// Whether it is a switch's.
    pub is_switch: bool,
    /// The local identifier of the port, or of its switch.
    pub lid: u16,
    /// Its number.
    pub number: u32,
}

impl PortAddress {
    /// Returns what a person finds it by: `leaf1 lid 2 port 7`.
    pub fn name(&self) -> String {
        format!("{} lid {} port {}", self.device, self.lid, self.number)
    }
}

/// Returns the ports with a cable, and each enhanced port 0 of a switch, of which the text tells the
/// local identifier.
///
/// # Errors
/// As [`parse`].
pub(super) fn ports(text: &str) -> Result<Vec<PortAddress>, (u32, String)> {
    parse(text)?;
    let lid = |words: &str| {
        let mut words = words.split_whitespace().skip_while(|word| *word != "lid");
        words.nth(1)?.parse::<u16>().ok().filter(|lid| *lid > 0)
    };
    let (mut ports, mut current): (Vec<PortAddress>, Option<(Device, Option<u16>)>) =
        (Vec::new(), None);
    for content in text.lines().map(str::trim) {
        let comment = content.split_once('#').map_or("", |(_, comment)| comment.trim());
        if !content.starts_with('[') {
            let Some((_, device)) = device(content) else { continue };
            // Behind the description: a device may call itself anything.
            let words = comment.rsplit('"').next().unwrap_or_default();
            let own = lid(words);
            // A base port 0 has no tables.
            if device.kind == DeviceKind::Switch
                && words.contains("enhanced port 0")
                && let Some(lid) = own
            {
                let device = device.description.clone();
                ports.push(PortAddress { device, is_switch: true, lid, number: 0 });
            }
            current = Some((device, own));
            continue;
        }
        let (Some((device, own)), Some((number, ..))) = (&current, port(content)) else { continue };
        let is_switch = device.kind == DeviceKind::Switch;
        // A line of an adapter begins with its own, one of a switch names the other end's.
        let own = if is_switch { *own } else { lid(comment.split('"').next().unwrap_or_default()) };
        if let Some(lid) = own.filter(|_| device.kind != DeviceKind::Other) {
            let device = device.description.clone();
            ports.push(PortAddress { device, is_switch, lid, number });
        }
    }
    Ok(ports)
}

/// Words with which programs of infiniband-diags begin the line of a failure.
const FAILURES: [&str; 2] = ["ibwarn:", "iberror:"];

fn not_understood(content: &str, what: &str) -> String {
    let shown: String = content.chars().take(40).collect();
    if FAILURES.iter().any(|word| content.starts_with(word)) {
        return format!(
            "ibnetdiscover failed: `{shown}`; run it as root on a host with an InfiniBand port"
        );
    }
    format!(
        "`{shown}` is no {what} as ibnetdiscover writes them; give its plain output, without -p, -l or --grouping"
    )
}

/// Parses `Switch 36 "S-0002c9020046c588" # "Infiniscale-IV" base port 0 lid 2 lmc 0`.
fn device(content: &str) -> Option<(String, Device)> {
    let (word, rest) = content.split_once(char::is_whitespace)?;
    let mut quoted = rest.split('"').skip(1).step_by(2);
    let id = quoted.next()?.to_owned();
    let description = quoted.next().unwrap_or_default().trim().to_owned();
    let kind = match word {
        "Switch" => DeviceKind::Switch,
        "Ca" if description.starts_with(ENGINE) => DeviceKind::Other,
        "Ca" => DeviceKind::Adapter,
        "Rt" => DeviceKind::Other,
        _ => return None,
    };
    let guid = id.split_once('-').map(|(_, guid)| guid.to_owned())?;
    Some((id, Device { kind, description, guid }))
}

/// Parses `[22] "H-0008f10403961354"[1](8f10403961355) # "MT23108" lid 4 4xSDR`, or from an adapter
/// `[1](...) "S-..."[33] # ...`.
fn port(content: &str) -> Option<(u32, PortId, String)> {
    let (near, rest) = content.strip_prefix('[')?.split_once(']')?;
    let (_, rest) = rest.split_once('"')?;
    let (far, rest) = rest.split_once('"')?;
    let (far_port, rest) = rest.strip_prefix('[')?.split_once(']')?;
    let is_speed =
        |word: &&str| word.split_once('x').is_some_and(|(width, _)| width.parse::<u64>().is_ok());
    let speed = rest.split_whitespace().rev().find(is_speed)?.to_owned();
    Some((near.trim().parse().ok()?, (far.to_owned(), far_port.trim().parse().ok()?), speed))
}

fn join(
    devices: &BTreeMap<String, Device>,
    cables: BTreeMap<[PortId; 2], (String, u32)>,
) -> Result<Subnet, (u32, String)> {
    let names = names(devices);
    let mut subnet = Subnet::default();
    for (ends, (speed, line)) in cables {
        let rate = rate(&speed).ok_or_else(|| {
            let known: Vec<&str> = SPEEDS.iter().map(|(name, _)| *name).collect();
            let word = speed.split_once('x').map_or("", |(_, word)| word);
            (line, format!("`{speed}` is no width and speed; {}", nearest(word, &known)))
        })?;
        let mut kinds = [DeviceKind::Other; 2];
        for (kind, (id, _)) in kinds.iter_mut().zip(&ends) {
            let stranger = || {
                (
                    line,
                    format!(
                        "a cable ends at `{id}`, which is not described; give the whole output"
                    ),
                )
            };
            *kind = devices.get(id).ok_or_else(stranger)?.kind;
        }
        if kinds.contains(&DeviceKind::Other) {
            continue;
        }
        let at =
            if kinds.contains(&DeviceKind::Adapter) { CableEnd::Host } else { CableEnd::Switches };
        let ends = ends.map(|(id, _)| names.get(&id).cloned().unwrap_or(id));
        subnet.cables.push(DiscoveredCable { ends, speed, rate, at });
    }
    let cabled: BTreeSet<&String> = subnet.cables.iter().flat_map(|cable| &cable.ends).collect();
    for (id, device) in devices {
        let list = if device.kind == DeviceKind::Switch {
            &mut subnet.switches
        } else {
            &mut subnet.hosts
        };
        let name = &names[id];
        if device.kind != DeviceKind::Other && cabled.contains(name) && !list.contains(name) {
            list.push(name.clone());
        }
    }
    subnet.hosts.sort();
    subnet.switches.sort();
    Ok(subnet)
}

/// Returns the name of each device: an adapter's machine, or the description, made unique by the
/// identity where it is not.
fn names(devices: &BTreeMap<String, Device>) -> BTreeMap<String, String> {
    let machine = |device: &Device| {
        let mut words = device.description.split_whitespace();
        let (first, second) = (words.next()?, words.next()?);
        let is_adapter = device.kind == DeviceKind::Adapter
            && ADAPTERS.iter().any(|prefix| second.starts_with(prefix));
        is_adapter.then(|| first.to_owned())
    };
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    for device in devices.values().filter(|device| machine(device).is_none()) {
        *seen.entry(&device.description).or_default() += 1;
    }
    let machines: BTreeSet<String> = devices.values().filter_map(machine).collect();
    let name = |device: &Device| {
        machine(device).unwrap_or_else(|| match seen.get(device.description.as_str()) {
            Some(1)
                if !device.description.is_empty() && !machines.contains(&device.description) =>
            {
                device.description.clone()
            }
            _ => format!("{} {}", device.description, device.guid).trim().to_owned(),
        })
    };
    devices.iter().map(|(id, device)| (id.clone(), name(device))).collect()
}

fn rate(speed: &str) -> Option<BitsPerSec> {
    let (width, word) = speed.split_once('x')?;
    let width: u64 = width.parse().ok().filter(|width| WIDTHS.contains(width))?;
    let (_, hundredths) = SPEEDS.iter().find(|(name, _)| *name == word)?;
    Some(BitsPerSec::mega(width * hundredths * 10))
}

#[cfg(test)]
mod tests;
