//! Networks cable by cable, and how the rungs measure on them.

use clearway_proto::base::{BitsPerSec, Bytes, Class};
use clearway_sim::fabric::{Fabric, FabricOptions, Notice, NoticeSet, SendRequest, Target};
use clearway_sim::graph::DeviceId;
use clearway_sim::spec::{FabricSpec, LinkRole, LinkSpec, Routing, Topology};
use clearway_sim::topology;
use clearway_sim::{Picos, calibrate};

/// A figure next to what it must be.
#[derive(Clone, Debug)]
pub(crate) struct CheckedFigure {
    /// What was measured, for a person.
    pub(crate) what: String,
    /// What a formula or a published source says.
    pub(crate) expected: f64,
    /// What the fabric did.
    pub(crate) measured: f64,
}

impl CheckedFigure {
    /// How far it is off, relative to what is expected; off nothing, by itself.
    pub(crate) fn error(&self) -> f64 {
        let off = (self.measured - self.expected).abs();
        if self.expected == 0.0 { off } else { off / self.expected.abs() }
    }
}

/// Of `figures` the one that is off most.
pub(crate) fn worst(figures: &[CheckedFigure]) -> &CheckedFigure {
    figures
        .iter()
        .max_by(|a, b| a.error().total_cmp(&b.error()))
        .expect("a rung measures something")
}

/// `gigabits` in units of 10^9 bits per second.
pub(crate) fn gigabits(gigabits: u64) -> BitsPerSec {
    BitsPerSec::mega(gigabits * 1_000)
}

/// Picoseconds of one byte at `rate`, without rounding.
pub(crate) fn pace(rate: BitsPerSec) -> f64 {
    8e12 / rate.0 as f64
}

/// A network under construction: hosts `h0`, ..., switches `s0`, ..., each cable with figures of
/// its own.
pub(crate) struct Cabling {
    hosts: u32,
    switches: u32,
    cables: Vec<(String, String, u8)>,
    links: Vec<LinkSpec>,
}

impl Cabling {
    /// Creates this many devices and no cable.
    pub(crate) fn new(hosts: u32, switches: u32) -> Self {
        Self { hosts, switches, cables: Vec::new(), links: Vec::new() }
    }

    /// A cable between `a` and `b` with 5 ns and buffers of 512 KiB; gives its link to be changed.
    pub(crate) fn cable(&mut self, a: &str, b: &str, rate: BitsPerSec) -> &mut LinkSpec {
        let place = self.links.len();
        self.cables.push((
            a.to_owned(),
            b.to_owned(),
            u8::try_from(place).expect("at most 256 kinds of cable"),
        ));
        self.links.push(LinkSpec {
            name: format!("{a}-{b}"),
            role: LinkRole::Up,
            rate,
            delay: Picos::from_nanos(5),
            buffer: Bytes(512 << 10),
            burst: None,
        });
        &mut self.links[place]
    }

    /// The plain network so cabled.
    pub(crate) fn spec(self) -> FabricSpec {
        let names = |letter: char, count: u32| (0..count).map(|n| format!("{letter}{n}")).collect();
        let topology = Topology::Explicit {
            hosts: names('h', self.hosts),
            switches: names('s', self.switches),
            cables: self.cables,
        };
        FabricSpec {
            links: self.links,
            ..FabricSpec::plain(topology, Routing::Minimal, gigabits(100))
        }
    }
}

/// `h0` and `h1` with switches between them; `rates` are those of the cables from `h0` on.
pub(crate) fn chain(rates: &[BitsPerSec]) -> Cabling {
    let switches = rates.len() as u32 - 1;
    let mut cabling = Cabling::new(2, switches);
    let name = |place: usize| match place {
        0 => "h0".to_owned(),
        last if last == rates.len() => "h1".to_owned(),
        between => format!("s{}", between - 1),
    };
    for (place, rate) in rates.iter().enumerate() {
        cabling.cable(&name(place), &name(place + 1), *rate);
    }
    cabling
}

/// One switch; `h0` takes, all others send. `rates` by host.
pub(crate) fn star(rates: &[BitsPerSec]) -> Cabling {
    let mut cabling = Cabling::new(rates.len() as u32, 1);
    for (host, rate) in rates.iter().enumerate() {
        cabling.cable(&format!("h{host}"), "s0", *rate);
    }
    cabling
}

/// The fabric of `spec` at rest.
pub(crate) fn fabric(spec: &FabricSpec, seed: u64) -> Fabric {
    let network = topology::build(spec).expect("a network that can be");
    Fabric::new(spec, network, seed, FabricOptions::default())
}

/// How long `bytes` take from post to memory when nobody else sends.
pub(crate) fn alone(spec: &FabricSpec, from: u32, to: u32, bytes: u64) -> Picos {
    let network = topology::build(spec).expect("a network that can be");
    calibrate::alone(spec, network, [DeviceId(from), DeviceId(to)], bytes)
}

/// The mean time of `bytes` from host `from` to every other, one after the other, in picoseconds.
pub(crate) fn one_by_one(spec: &FabricSpec, from: u32, bytes: u64) -> u64 {
    let mut fabric = fabric(spec, 1);
    let others: Vec<u32> = (0..fabric.graph().hosts()).filter(|host| *host != from).collect();
    let (mut sum, mut notices) = (0, Vec::new());
    for to in &others {
        let (posted, to) = (fabric.now() + Picos::from_micros(100), Target::Host(DeviceId(*to)));
        let (from, class, rail, reports) =
            (DeviceId(from), Class::LowLatency, 0, NoticeSet::Delivery);
        fabric.post(posted, SendRequest { from, to, class, bytes, rail, reports, tag: 0 });
        sum += (fabric.advance(Picos::NEVER, &mut notices) - posted).0;
    }
    sum / others.len() as u64
}

/// Messages from one host to another without an end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    /// The sender.
    pub(crate) from: u32,
    /// The receiver.
    pub(crate) to: u32,
    /// The class.
    pub(crate) class: Class,
    /// Of each message.
    pub(crate) bytes: u64,
}

/// Bytes of each of `flows` that are delivered between `from` and `until`, when each of them always
/// has something to send: `backlog` bytes are posted in the beginning.
pub(crate) fn delivered(
    spec: &FabricSpec,
    flows: &[Flow],
    backlog: u64,
    from: Picos,
    until: Picos,
) -> Vec<u64> {
    let mut fabric = fabric(spec, 1);
    for (tag, flow) in flows.iter().enumerate() {
        let Flow { from, to, class, bytes } = *flow;
        let (from, to) = (DeviceId(from), Target::Host(DeviceId(to)));
        let order = SendRequest {
            from,
            to,
            class,
            bytes,
            rail: 0,
            reports: NoticeSet::Delivery,
            tag: tag as u64,
        };
        for _ in 0..backlog.div_ceil(bytes) {
            fabric.post(Picos::ZERO, order);
        }
    }
    let mut sums = vec![0; flows.len()];
    let mut left: Vec<u64> = flows.iter().map(|flow| backlog.div_ceil(flow.bytes)).collect();
    let mut notices = Vec::new();
    while fabric.advance(until, &mut notices) < until {
        for notice in notices.drain(..) {
            let Notice::Delivered { tag, at, .. } = notice else {
                panic!("nothing is lost here: {notice:?}")
            };
            left[tag as usize] -= 1;
            assert!(left[tag as usize] > 0, "flow {tag} ran dry at {at}");
            if at >= from {
                sums[tag as usize] += flows[tag as usize].bytes;
            }
        }
    }
    sums
}

/// `parts` of their sum.
pub(crate) fn shares(parts: &[u64]) -> Vec<f64> {
    let sum: u64 = parts.iter().sum();
    parts.iter().map(|part| *part as f64 / sum.max(1) as f64).collect()
}
