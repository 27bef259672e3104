//! Turns over inputs are max-min fair where each stream has an input of its own at the one port it fights for.
//!
//! # Model
//! Random networks with one stream for each sender, of different rates: at one switch to a few receivers, or through a trunk
//! that is the only narrow place. The yardstick is the solver that judges congestors on every network.
//!
//! # Not here
//! Streams that fight twice, or share an input: there buffers are shared, one stalled stream holds the other up, and no
//! network of this kind is max-min fair.

use clearway_proto::base::{BitsPerSec, Class, RandomKey, Rank};
use clearway_proto::congestion::{Layout, LinkId, Stream, max_min_fair};
use clearway_sim::Picos;

use super::rig::{self, Cabling, Figure, Flow, gigabits};

/// Senders on switch 0, receivers behind them on switch 0 or 1.
struct Network {
    rates: Vec<BitsPerSec>,
    senders: usize,
    trunk: Option<BitsPerSec>,
}

impl Layout for Network {
    fn hosts(&self) -> usize {
        self.rates.len()
    }

    fn switch_of(&self, rank: Rank) -> u32 {
        u32::from(self.trunk.is_some() && rank.index() >= self.senders)
    }

    fn path(&self, a: Rank, b: Rank) -> Vec<LinkId> {
        let trunk = self.crossing(a, b).then_some(LinkId::FromSwitch(0));
        [LinkId::FromHost(a)].into_iter().chain(trunk).chain([LinkId::ToHost(b)]).collect()
    }

    fn rate(&self, link: LinkId) -> BitsPerSec {
        match link {
            LinkId::FromHost(host) | LinkId::ToHost(host) => self.rates[host.index()],
            _ => self.trunk.expect("only asked for where there is one"),
        }
    }
}

impl Network {
    fn spec(&self) -> clearway_sim::spec::FabricSpec {
        let mut cabling = Cabling::of(self.rates.len() as u32, 1 + u32::from(self.trunk.is_some()));
        for (host, rate) in self.rates.iter().enumerate() {
            let switch = self.switch_of(Rank(host as u32));
            cabling.cable(&format!("h{host}"), &format!("s{switch}"), *rate);
        }
        if let Some(rate) = self.trunk {
            cabling.cable("s0", "s1", rate);
        }
        cabling.spec()
    }
}

/// Streams of `network`, one for each sender, in Gb/s.
fn figures(name: &str, network: &Network, targets: &[u32]) -> Vec<Figure> {
    let stream = |(from, to): (usize, &u32)| -> Stream { (Rank(from as u32), Rank(*to), network.rates[from]) };
    let streams: Vec<Stream> = targets.iter().enumerate().map(stream).collect();
    let fair = max_min_fair(network, &streams);
    let flow = |(from, to): (usize, &u32)| Flow { from: from as u32, to: *to, class: Class::Bulk, bytes: 2048 };
    let flows: Vec<Flow> = targets.iter().enumerate().map(flow).collect();
    let (from, until) = (Picos::from_micros(300), Picos::from_micros(1_300));
    let sums = rig::delivered(&network.spec(), &flows, 18 << 20, from, until);
    let figure = |place: usize| Figure {
        what: format!("{name}: {} Gb/s to h{}", network.rates[place].0 / 1_000_000_000, targets[place]),
        expected: fair[place].0 as f64 / 1e9,
        measured: sums[place] as f64 * 8.0 * 1e3 / (until - from).0 as f64,
    };
    (0..targets.len()).map(figure).collect()
}

/// Eight senders of 10 to 100 Gb/s, three receivers of 100 Gb/s at the same switch.
pub(crate) fn stars() -> Vec<Figure> {
    let one = |seed: u64| {
        let mut stream = RandomKey::new(seed).purpose("stars").stream();
        let mut rates: Vec<BitsPerSec> = (0..8).map(|_| gigabits(10 * (1 + stream.below(10)))).collect();
        rates.extend([gigabits(100); 3]);
        let targets: Vec<u32> = (0..8).map(|_| 8 + stream.below(3) as u32).collect();
        figures(&format!("star {seed}"), &Network { rates, senders: 8, trunk: None }, &targets)
    };
    (0..10).flat_map(one).collect()
}

/// Eight senders of 10 to 100 Gb/s through a trunk of 200 Gb/s to as many receivers that take all they get.
pub(crate) fn trunks() -> Vec<Figure> {
    let one = |seed: u64| {
        let mut stream = RandomKey::new(seed).purpose("trunks").stream();
        let mut rates: Vec<BitsPerSec> = (0..8).map(|_| gigabits(10 * (1 + stream.below(10)))).collect();
        rates.extend([gigabits(400); 8]);
        let targets: Vec<u32> = (8..16).collect();
        let network = Network { rates, senders: 8, trunk: Some(gigabits(200)) };
        figures(&format!("trunk {seed}"), &network, &targets)
    };
    (0..10).flat_map(one).collect()
}
