//! Turns the tree of a fabric file into a [`FabricSpec`]: which keys there are, and what each of
//! them means.
//!
//! # Invariants
//! I1. Every key that is there is read, or refused by its name and place.
//!
//! # Not here
//! Classes, lanes and arbiters (`policy`); whether the figures go together (`check`).

mod policy;

use super::figure::Figure;
use super::file::{FileError, check_format};
use super::section::{Section, nearest};
use super::tree::SpecNode;
use super::{
    CongestionControl, Dcqcn, EdgeControl, FabricSpec, HostSpec, Jitter, LinkRole, LinkSpec,
    PacketSpec, Queueing, Replication, Routing, Service, SwitchSpec, Switching, Topology,
};
use crate::time::Picos;
use policy::{ChosenPolicy, policies};

pub(super) use policy::{NO_LANE, weights};

/// What a tree says.
pub(super) struct SpecReader {
    pub(super) spec: FabricSpec,
    pub(super) policies: Vec<(String, String)>,
    pub(super) policy: String,
    pub(super) figures: Vec<Figure>,
    /// Ports of a switch, where the file says.
    pub(super) ports: Option<u32>,
}

/// Reads `root` under the policy `wanted`, or the file's own choice.
///
/// # Errors
/// The first thing that is wrong, with its place.
pub(super) fn read(root: &SpecNode, wanted: Option<&str>) -> Result<SpecReader, FileError> {
    check_format(root)?;
    let mut figures = Vec::new();
    let mut top = Section::new(root, String::new())?;
    top.has("format");
    let name = top.text("name")?.to_owned();
    let about = top.text("about")?.to_owned();
    let links = links(top.needed("link")?, &mut figures)?;
    let topology = topology(top.needed("topology")?, &links, &mut figures)?;
    let routing = routing(top.needed("routing")?, &mut figures)?;
    let (switch, ports) = switch(top.needed("switch")?, &mut figures)?;
    let host = host(top.needed("host")?, &mut figures)?;
    let packet = packet(top.needed("packet")?, &mut figures)?;
    let congestion_control = congestion_control(top.needed("congestion-control")?, &mut figures)?;
    let own = if top.has("default-policy") { Some(top.text("default-policy")?) } else { None };
    let chosen = policies(top.needed("policy")?, wanted.or(own), &mut figures)?;
    top.close(&mut figures)?;
    let ChosenPolicy { name: policy, all: policies, classes, arbitration } = chosen;
    let spec = FabricSpec {
        name,
        about,
        topology,
        routing,
        links,
        switch,
        host,
        packet,
        classes,
        arbitration,
        congestion_control,
    };
    Ok(SpecReader { spec, policies, policy, figures, ports })
}

/// Roles of links by name; a link whose name is one of these needs no `role`.
pub(super) const ROLES: [(&str, LinkRole); 7] = [
    ("host", LinkRole::Host),
    ("up", LinkRole::Up),
    ("green", LinkRole::Green),
    ("black", LinkRole::Black),
    ("blue", LinkRole::Blue),
    ("local", LinkRole::Local),
    ("global", LinkRole::Global),
];

fn links(table: Section<'_>, figures: &mut Vec<Figure>) -> Result<Vec<LinkSpec>, FileError> {
    let mut links = Vec::new();
    for (name, node) in table.entries() {
        let mut link = Section::new(node, table.path_of(name))?;
        let own = ROLES.iter().find(|(role, _)| role == name).map(|(_, role)| *role);
        let role = match own {
            Some(role) if !link.has("role") => role,
            _ => link.choice("role", &ROLES)?,
        };
        let (rate, delay, buffer) =
            (link.rate("rate")?, link.time("delay")?, link.bytes("buffer")?);
        let burst = if link.has("burst") { Some(link.bytes("burst")?) } else { None };
        links.push(LinkSpec { name: name.clone(), role, rate, delay, buffer, burst });
        link.close(figures)?;
    }
    Ok(links)
}

/// Shapes by name.
#[derive(Clone, Copy)]
enum TopologyKind {
    Star,
    TwoSwitch,
    FatTree,
    DragonflyXc,
    Dragonfly,
    Explicit,
}

const SHAPES: [(&str, TopologyKind); 6] = [
    ("star", TopologyKind::Star),
    ("two-switch", TopologyKind::TwoSwitch),
    ("fat-tree", TopologyKind::FatTree),
    ("dragonfly-xc", TopologyKind::DragonflyXc),
    ("dragonfly", TopologyKind::Dragonfly),
    ("explicit", TopologyKind::Explicit),
];

fn topology(
    mut table: Section<'_>,
    links: &[LinkSpec],
    figures: &mut Vec<Figure>,
) -> Result<Topology, FileError> {
    let any = 0..=u32::MAX;
    let topology = match table.choice("kind", &SHAPES)? {
        TopologyKind::Star => Topology::Star { hosts: table.count("hosts", any)? },
        TopologyKind::TwoSwitch => Topology::TwoSwitch {
            hosts: table.count("hosts", any.clone())?,
            trunks: table.count("trunks", any)?,
        },
        TopologyKind::FatTree => Topology::FatTree {
            children: table.counts("children", any.clone())?,
            parents: table.counts("parents", any.clone())?,
            cables: table.counts("cables", any)?,
        },
        TopologyKind::DragonflyXc => Topology::DragonflyXc {
            groups: table.count("groups", any.clone())?,
            columns: table.count("columns", any.clone())?,
            rows: table.count("rows", any.clone())?,
            hosts_per_router: table.count("hosts-per-router", any.clone())?,
            black_cables: table.count("black-cables", any.clone())?,
            blue_cables: table.count("blue-cables", any)?,
        },
        TopologyKind::Dragonfly => Topology::Dragonfly {
            groups: table.count("groups", any.clone())?,
            switches: table.count("switches", any.clone())?,
            hosts_per_switch: table.count("hosts-per-switch", any.clone())?,
            local_cables: table.count("local-cables", any.clone())?,
            global_cables: table.count("global-cables", any)?,
        },
        TopologyKind::Explicit => explicit(&mut table, links)?,
    };
    table.close(figures)?;
    Ok(topology)
}

/// Cables are lists of two ends and a link: `["n0", "leaf0", "host"]`.
fn explicit(table: &mut Section<'_>, links: &[LinkSpec]) -> Result<Topology, FileError> {
    let names = |list: Vec<(&str, _)>| {
        list.into_iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
    };
    let hosts = names(table.texts("hosts")?);
    let switches = names(table.texts("switches")?);
    let mut cables = Vec::new();
    for cable in table.list("cables")?.1 {
        let mut ends = Vec::new();
        if let super::tree::Value::List(items) = &cable.value {
            ends.extend(items.iter().filter_map(|item| match &item.value {
                super::tree::Value::Text(text) => Some(text.as_str()),
                _ => None,
            }));
        }
        let &[a, b, link] = ends.as_slice() else {
            return Err(cable.place.wrong(
                "topology.cables: a cable is two names and a link: [\"n0\", \"leaf0\", \"host\"]",
            ));
        };
        let Some(at) = links.iter().position(|known| known.name == link) else {
            let known: Vec<&str> = links.iter().map(|known| known.name.as_str()).collect();
            let why =
                format!("topology.cables: there is no [link.{link}]; {}", nearest(link, &known));
            return Err(cable.place.wrong(why));
        };
        let at = u8::try_from(at)
            .map_err(|_| cable.place.wrong("topology.cables: more than 256 kinds of links"))?;
        cables.push((a.to_owned(), b.to_owned(), at));
    }
    Ok(Topology::Explicit { hosts, switches, cables })
}

fn routing(mut table: Section<'_>, figures: &mut Vec<Figure>) -> Result<Routing, FileError> {
    let adaptive = Routing::Adaptive { minimal: 0, detour: 0, bias: 0 };
    let routing = match table.choice(
        "kind",
        &[
            ("minimal", Routing::Minimal),
            ("destination-modulo", Routing::DestinationModulo),
            ("ecmp", Routing::Ecmp),
            ("spray", Routing::Spray),
            ("valiant", Routing::Valiant),
            ("adaptive", adaptive),
        ],
    )? {
        Routing::Adaptive { .. } => Routing::Adaptive {
            minimal: table.count("minimal", 0..=u8::MAX)?,
            detour: table.count("detour", 0..=u8::MAX)?,
            bias: table.bytes32("bias")?,
        },
        other => other,
    };
    table.close(figures)?;
    Ok(routing)
}

fn switch(
    mut table: Section<'_>,
    figures: &mut Vec<Figure>,
) -> Result<(SwitchSpec, Option<u32>), FileError> {
    let switch = SwitchSpec {
        delay: table.time("delay")?,
        switching: table.choice(
            "switching",
            &[
                ("cut-through", Switching::CutThrough),
                ("store-and-forward", Switching::StoreAndForward),
                ("token-bucket", Switching::TokenBucket),
            ],
        )?,
        queueing: table.choice(
            "queueing",
            &[
                ("virtual-output", Queueing::VirtualOutput),
                ("input-fifo", Queueing::InputFifo),
                ("output-fifo", Queueing::OutputFifo),
            ],
        )?,
        replication: table.choice(
            "replication",
            &[("each-branch", Replication::EachBranch), ("hold-all", Replication::HoldAll)],
        )?,
    };
    let ports = if table.has("ports") { Some(table.count("ports", 2..=u32::MAX)?) } else { None };
    table.close(figures)?;
    Ok((switch, ports))
}

fn host(mut table: Section<'_>, figures: &mut Vec<Figure>) -> Result<HostSpec, FileError> {
    let mut jitter = Jitter::default();
    if let Some(mut inner) = table.inner("jitter")? {
        jitter = Jitter {
            period: inner.time("period")?,
            length: inner.time("length")?,
            rare: inner.count("rare", 0..=u32::MAX)?,
        };
        inner.close(figures)?;
    }
    let host = HostSpec {
        rails: table.count("rails", 0..=u32::MAX)?,
        transmit_delay: table.time("transmit-delay")?,
        receive_delay: table.time("receive-delay")?,
        receive_tail: if table.has("receive-tail") {
            table.time("receive-tail")?
        } else {
            Picos::ZERO
        },
        memory_rate: table.rate("memory-rate")?,
        input_cost: table.time("input-cost")?,
        effect_cost: table.time("effect-cost")?,
        jitter,
        service: table.choice(
            "service",
            &[
                ("by-connection", Service::ByConnection),
                ("in-order", Service::InOrder),
                ("by-message", Service::ByMessage),
            ],
        )?,
        clock_ppm: table.count("clock-ppm", 0..=u32::MAX)?,
    };
    table.close(figures)?;
    Ok(host)
}

fn packet(mut table: Section<'_>, figures: &mut Vec<Figure>) -> Result<PacketSpec, FileError> {
    let packet = PacketSpec { payload: table.bytes("payload")?, header: table.bytes("header")? };
    table.close(figures)?;
    Ok(packet)
}

fn congestion_control(
    mut table: Section<'_>,
    figures: &mut Vec<Figure>,
) -> Result<CongestionControl, FileError> {
    let kinds = [("none", 0u8), ("edge", 1), ("dcqcn", 2)];
    let control = match table.choice("kind", &kinds)? {
        1 => CongestionControl::Edge(EdgeControl {
            threshold: table.bytes("threshold")?,
            sources: table.count("sources", 0..=u32::MAX)?,
            notice_delay: table.time("notice-delay")?,
        }),
        2 => CongestionControl::Dcqcn(Dcqcn {
            mark_min: table.bytes("mark-min")?,
            mark_max: table.bytes("mark-max")?,
            mark_probability: table.count("mark-millionths", 0..=u32::MAX)?,
            notice_interval: table.time("notice-interval")?,
            increase_period: table.time("increase-period")?,
            increase: table.rate("increase")?,
            gain_shift: table.count("gain-shift", 0..=u8::MAX)?,
        }),
        _ => CongestionControl::None,
    };
    table.close(figures)?;
    Ok(control)
}
