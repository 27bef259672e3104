//! Writes a specification as a fabric file of its own, so that a network which was drawn can be
//! kept.
//!
//! # Invariants
//! I1. The file reads back as a fabric that behaves the same. Ranks of strict lanes become an
//!     order, so lanes of equal rank do
//!     not survive; nobody draws them.

use core::fmt::Write;

use clearway_proto::base::{Bytes, Class};

use super::figure::{write_rate, write_time};
use super::read::ROLES;
use super::{
    Arbiter, CongestionControl, FabricSpec, HostSpec, LossDomain, Queueing, Replication, Routing,
    Service, Switching, Topology,
};

impl FabricSpec {
    /// Writes this specification as the text of a fabric file.
    pub fn to_text(&self) -> String {
        let mut text = SpecWriter(String::new());
        text.line(format_args!(
            "format = 1\nname = {}\nabout = {}",
            quoted(&self.name),
            quoted(&self.about)
        ));
        topology(&mut text, &self.topology, self);
        routing(&mut text, self.routing);
        for link in &self.links {
            let role =
                ROLES.iter().find(|(_, role)| *role == link.role).map_or("host", |(name, _)| *name);
            text.line(format_args!("\n[link.{}]\nrole = \"{role}\"", quoted(&link.name)));
            let (rate, delay) = (write_rate(link.rate), write_time(link.delay));
            text.line(format_args!(
                "rate = \"{rate}\"\ndelay = \"{delay}\"\nbuffer = \"{}\"",
                bytes(link.buffer)
            ));
            if let Some(burst) = link.burst {
                text.line(format_args!("burst = \"{}\"", bytes(burst)));
            }
        }
        let switch = &self.switch;
        let switching = match switch.switching {
            Switching::CutThrough => "cut-through",
            Switching::StoreAndForward => "store-and-forward",
            Switching::TokenBucket => "token-bucket",
        };
        let queueing = match switch.queueing {
            Queueing::VirtualOutput => "virtual-output",
            Queueing::InputFifo => "input-fifo",
            Queueing::OutputFifo => "output-fifo",
        };
        let replication =
            if switch.replication == Replication::HoldAll { "hold-all" } else { "each-branch" };
        text.line(format_args!(
            "\n[switch]\ndelay = \"{}\"\nswitching = \"{switching}\"",
            write_time(switch.delay)
        ));
        text.line(format_args!("queueing = \"{queueing}\"\nreplication = \"{replication}\""));
        host(&mut text, &self.host);
        let packet = &self.packet;
        text.line(format_args!(
            "\n[packet]\npayload = \"{}\"\nheader = \"{}\"",
            bytes(packet.payload),
            bytes(packet.header)
        ));
        control(&mut text, self.congestion_control);
        policy(&mut text, self);
        text.0
    }
}

/// What is being written.
struct SpecWriter(String);

impl SpecWriter {
    fn line(&mut self, what: core::fmt::Arguments<'_>) {
        // Writing to a `String` cannot fail.
        let _ = writeln!(self.0, "{what}");
    }
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Writes bytes, exact, unlike what people are shown.
fn bytes(bytes: Bytes) -> String {
    format!("{}B", bytes.0)
}

fn topology(text: &mut SpecWriter, topology: &Topology, spec: &FabricSpec) {
    text.line(format_args!("\n[topology]"));
    match topology {
        Topology::Star { hosts } => text.line(format_args!("kind = \"star\"\nhosts = {hosts}")),
        Topology::TwoSwitch { hosts, trunks } => {
            text.line(format_args!("kind = \"two-switch\"\nhosts = {hosts}\ntrunks = {trunks}"));
        }
        Topology::FatTree { children, parents, cables } => text.line(format_args!(
            "kind = \"fat-tree\"\nchildren = {children:?}\nparents = {parents:?}\ncables = {cables:?}"
        )),
        Topology::DragonflyXc { groups, columns, rows, hosts_per_router, black_cables, blue_cables } => {
            text.line(format_args!("kind = \"dragonfly-xc\"\ngroups = {groups}\ncolumns = {columns}\nrows = {rows}"));
            text.line(format_args!("hosts-per-router = {hosts_per_router}"));
            text.line(format_args!("black-cables = {black_cables}\nblue-cables = {blue_cables}"));
        }
        Topology::Dragonfly { groups, switches, hosts_per_switch, local_cables, global_cables } => {
            text.line(format_args!("kind = \"dragonfly\"\ngroups = {groups}\nswitches = {switches}"));
            text.line(format_args!("hosts-per-switch = {hosts_per_switch}"));
            text.line(format_args!("local-cables = {local_cables}\nglobal-cables = {global_cables}"));
        }
        Topology::Explicit { hosts, switches, cables } => {
            text.line(format_args!("kind = \"explicit\"\nhosts = {hosts:?}\nswitches = {switches:?}\ncables = ["));
            for (a, b, link) in cables {
                let link = spec.links.get(usize::from(*link)).map_or("", |link| link.name.as_str());
                text.line(format_args!("  [{}, {}, {}],", quoted(a), quoted(b), quoted(link)));
            }
            text.line(format_args!("]"));
        }
    }
}

fn routing(text: &mut SpecWriter, routing: Routing) {
    let kind = match routing {
        Routing::Minimal => "minimal",
        Routing::DestinationModulo => "destination-modulo",
        Routing::Ecmp => "ecmp",
        Routing::Spray => "spray",
        Routing::Valiant => "valiant",
        Routing::Adaptive { .. } => "adaptive",
    };
    text.line(format_args!("\n[routing]\nkind = \"{kind}\""));
    if let Routing::Adaptive { minimal, detour, bias } = routing {
        text.line(format_args!("minimal = {minimal}\ndetour = {detour}\nbias = \"{bias}B\""));
    }
}

fn host(text: &mut SpecWriter, host: &HostSpec) {
    let service = match host.service {
        Service::ByConnection => "by-connection",
        Service::InOrder => "in-order",
        Service::ByMessage => "by-message",
    };
    text.line(format_args!(
        "\n[host]\nservice = \"{service}\"\nrails = {}\nclock-ppm = {}",
        host.rails, host.clock_ppm
    ));
    text.line(format_args!("memory-rate = \"{}\"", write_rate(host.memory_rate)));
    let times = [
        ("transmit-delay", host.transmit_delay),
        ("receive-delay", host.receive_delay),
        ("receive-tail", host.receive_tail),
        ("input-cost", host.input_cost),
        ("effect-cost", host.effect_cost),
    ];
    for (name, time) in times {
        text.line(format_args!("{name} = \"{}\"", write_time(time)));
    }
    let jitter = host.jitter;
    let (period, length) = (write_time(jitter.period), write_time(jitter.length));
    text.line(format_args!(
        "\n[host.jitter]\nperiod = \"{period}\"\nlength = \"{length}\"\nrare = {}",
        jitter.rare
    ));
}

fn control(text: &mut SpecWriter, control: CongestionControl) {
    text.line(format_args!("\n[congestion-control]"));
    match control {
        CongestionControl::None => text.line(format_args!("kind = \"none\"")),
        CongestionControl::Edge(edge) => {
            text.line(format_args!("kind = \"edge\"\nthreshold = \"{}\"", bytes(edge.threshold)));
            text.line(format_args!(
                "sources = {}\nnotice-delay = \"{}\"",
                edge.sources,
                write_time(edge.notice_delay)
            ));
        }
        CongestionControl::Dcqcn(rule) => {
            text.line(format_args!(
                "kind = \"dcqcn\"\nmark-millionths = {}",
                rule.mark_probability
            ));
            let (least, most) = (bytes(rule.mark_min), bytes(rule.mark_max));
            text.line(format_args!("mark-min = \"{least}\"\nmark-max = \"{most}\""));
            text.line(format_args!("notice-interval = \"{}\"", write_time(rule.notice_interval)));
            text.line(format_args!("increase-period = \"{}\"", write_time(rule.increase_period)));
            text.line(format_args!(
                "increase = \"{}\"\ngain-shift = {}",
                write_rate(rule.increase),
                rule.gain_shift
            ));
        }
    }
}

fn policy(text: &mut SpecWriter, spec: &FabricSpec) {
    let classes = &spec.classes;
    let lanes = usize::from(classes.virtual_lanes);
    text.line(format_args!("\n[policy.kept]\nabout = \"As it was.\"\nvirtual-lanes = {lanes}"));
    text.line(format_args!("lane-of-level = {:?}", classes.lane_of_level));
    let express = (0..lanes).filter(|lane| spec.arbitration.express & 1 << lane != 0);
    text.line(format_args!("express = {:?}", express.collect::<Vec<_>>()));
    let word = |loss: &LossDomain| match loss {
        LossDomain::Credits => "credits",
        LossDomain::Pauses => "pauses",
        LossDomain::Drops { .. } => "drops",
    };
    text.line(format_args!(
        "loss = {:?}",
        classes.loss.iter().take(lanes).map(word).collect::<Vec<_>>()
    ));
    if let Some(LossDomain::Drops { queue }) =
        classes.loss.iter().find(|loss| word(loss) == "drops")
    {
        text.line(format_args!("queue = \"{}\"", bytes(*queue)));
    }
    if !classes.lane_exceptions.is_empty() {
        text.line(format_args!("exceptions = ["));
        for it in &classes.lane_exceptions {
            let (from, to) = (quoted(&it.from), quoted(&it.to));
            text.line(format_args!(
                "  {{ from = {from}, to = {to}, lane-of-level = {:?} }},",
                it.lane_of_level
            ));
        }
        text.line(format_args!("]"));
    }
    text.line(format_args!("\n[policy.kept.service-level]"));
    for class in Class::ALL {
        text.line(format_args!("{class} = {}", classes.service_level[class.index()]));
    }
    for (end, rule) in [("host", &spec.arbitration.host), ("switch", &spec.arbitration.switch)] {
        text.line(format_args!("\n[policy.kept.{end}]"));
        arbiter(text, rule, lanes);
    }
}

fn arbiter(text: &mut SpecWriter, arbiter: &Arbiter, lanes: usize) {
    match arbiter {
        Arbiter::RoundRobin => text.line(format_args!("kind = \"round-robin\"")),
        Arbiter::Strict { rank } => {
            let mut order: Vec<usize> = (0..lanes).collect();
            order.sort_by_key(|lane| rank[*lane]);
            text.line(format_args!("kind = \"strict\"\norder = {order:?}"));
        }
        Arbiter::Weighted { quantum, first } => {
            let quanta = quantum.iter().take(lanes).map(|bytes| format!("{bytes}B"));
            text.line(format_args!(
                "kind = \"weighted\"\nquantum = {:?}",
                quanta.collect::<Vec<_>>()
            ));
            let mut before: Vec<usize> = (0..lanes).filter(|lane| first[*lane].is_some()).collect();
            before.sort_by_key(|lane| first[*lane]);
            text.line(format_args!("first = {before:?}"));
        }
        Arbiter::Tables(tables) => {
            let table = |entries: &[(u8, u8)]| {
                entries
                    .iter()
                    .map(|(lane, weight)| format!("{lane}:{weight}"))
                    .collect::<Vec<_>>()
                    .join(", ")
            };
            text.line(format_args!("kind = \"tables\"\nhigh = \"{}\"", table(&tables.high)));
            text.line(format_args!(
                "low = \"{}\"\nhigh-limit = {}",
                table(&tables.low),
                tables.high_limit
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use clearway_proto::base::RandomKey;

    use crate::check::draw;
    use crate::spec::file::{FabricFile, FileOptions};
    use crate::spec::presets;

    #[test]
    fn to_text__reads_back_as_what_was_written() {
        let drawn = (0..200).map(|seed| draw::network(&mut RandomKey::new(seed).stream()));
        let shipped = presets::names().into_iter().map(|name| presets::load(name, None).unwrap());
        for spec in drawn.chain(shipped) {
            let text = spec.to_text();
            let read = match FabricFile::parse("kept.toml", &text, FileOptions::default()) {
                Ok(file) => file.spec,
                Err(error) => panic!("{error}\n{text}"),
            };
            assert_eq!(read.to_text(), text);
            assert_eq!(
                (&read.topology, &read.links, &read.host),
                (&spec.topology, &spec.links, &spec.host)
            );
            assert_eq!(
                (&read.switch, read.congestion_control),
                (&spec.switch, spec.congestion_control)
            );
        }
    }
}
