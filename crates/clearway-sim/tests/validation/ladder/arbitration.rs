//! What share of a port each lane gets when none of them runs dry: InfiniBand's tables, weighted
//! turns, strict order.
//!
//! # Model
//! Five hosts send, each in a class and on a lane of its own, to one host whose cable is half as
//! fast as theirs.
//!
//! # Source
//! InfiniBand's rule as OpenSM's documentation describes it (`doc/QoS_management_in_OpenSM.txt`,
//! section 7); Shreedhar, Varghese, "Efficient fair queuing using deficit round robin" (SIGCOMM
//! 1995). The tables of the data-staging study: Rajachandrasekar et al. (CLUSTER 2012), slide
//! "Configuring OpenSM".

use std::sync::LazyLock;

use clearway_proto::base::{Bytes, Class, RandomKey, RandomStream};
use clearway_sim::Picos;
use clearway_sim::arbiter;
use clearway_sim::spec::{Arbiter, VIRTUAL_LANES_MAX, VlArbitration};

use super::rig::{self, CheckedFigure, Flow, gigabits};

/// Senders, each on its lane.
const SENDERS: usize = 5;
/// Packets that the port sends at least while it is watched.
const PACKETS: u64 = 20_000;

/// What each lane of `lanes` sent, as parts of the whole, when senders have packets of `sizes` and
/// the port is watched while it sends `all` bytes.
fn measured(rule: &Arbiter, lanes: [u8; SENDERS], sizes: [u64; SENDERS], all: u64) -> Vec<f64> {
    let mut rates = vec![gigabits(200); SENDERS + 1];
    rates[0] = gigabits(100);
    let mut spec = rig::star(&rates).spec();
    spec.packet.payload = Bytes(4096);
    spec.classes.virtual_lanes = 15;
    spec.classes.service_level = [0, 1, 2, 3, 4];
    spec.classes.lane_of_level[..SENDERS].copy_from_slice(&lanes);
    spec.arbitration.switch = rule.clone();
    let flow = |place: usize| Flow {
        from: place as u32 + 1,
        to: 0,
        class: Class::ALL[place],
        bytes: sizes[place],
    };
    let flows: Vec<Flow> = (0..SENDERS).map(flow).collect();
    let (from, time) = (Picos::from_micros(5), all * 80);
    rig::shares(&rig::delivered(&spec, &flows, all + (4 << 20), from, Picos(from.0 + time)))
}

/// Figures of one rule: `expected` by lane of `lanes`, in packets of one round. The port is watched
/// for whole rounds.
fn figures(
    name: &str,
    rule: &Arbiter,
    lanes: [u8; SENDERS],
    sizes: [u64; SENDERS],
    expected: &[u64],
) -> Vec<CheckedFigure> {
    let round: u64 = expected.iter().sum();
    let largest = sizes.iter().copied().max().unwrap_or(1);
    let measured = measured(rule, lanes, sizes, PACKETS.next_multiple_of(round) * largest);
    let expected = rig::shares(expected);
    let figure = |place: usize| CheckedFigure {
        what: format!("{name}: lane {}", lanes[place]),
        expected: expected[place],
        measured: measured[place],
    };
    (0..SENDERS).map(figure).collect()
}

/// The tables of the data-staging study with another limit.
fn study(high_limit: u8) -> Arbiter {
    Arbiter::Tables(VlArbitration {
        high: vec![(0, 40)],
        low: vec![(1, 2), (2, 4), (3, 8), (4, 16), (5, 32), (6, 64), (7, 128)],
        high_limit,
    })
}

/// The study's tables against the specification's rule by hand.
pub(crate) fn by_hand() -> Vec<CheckedFigure> {
    let lanes = [0, 4, 5, 6, 7];
    let case = |name: &str, high_limit, bytes, expected: [u64; SENDERS]| {
        figures(name, &study(high_limit), lanes, [bytes; SENDERS], &expected)
    };
    [
        // A limit of 255 is none: lane 0 has all.
        case("study, limit 255, 2 KiB packets", 255, 2048, [1, 0, 0, 0, 0]),
        // A limit of 0 is one packet of lane 0 for each one of the others. 2048 bytes are 32 units,
        // so weights of 16, 32, 64 and 128 begin 1, 1, 2 and 4 packets in a round of 8.
        case("study, limit 0, 2 KiB packets", 0, 2048, [8, 1, 1, 2, 4]),
        // Packets of one unit: weights are packets.
        case("study, limit 0, 64 B packets", 0, 64, [240, 16, 32, 64, 128]),
        // A limit of 1 is 4096 bytes: two packets of 2048.
        case("study, limit 1, 2 KiB packets", 1, 2048, [16, 1, 1, 2, 4]),
    ]
    .concat()
}

/// The study's tables without lane 0: the low table alone, whatever the limit.
pub(crate) fn low_alone() -> Vec<CheckedFigure> {
    let (lanes, sizes) = ([3, 4, 5, 6, 7], [64; SENDERS]);
    figures("study, no lane 0, 64 B packets", &study(255), lanes, sizes, &[8, 16, 32, 64, 128])
}

fn one_of<T: Copy>(stream: &mut RandomStream, all: &[T]) -> T {
    all[stream.below(all.len() as u64) as usize]
}

fn random_table(stream: &mut RandomStream) -> Vec<(u8, u8)> {
    let entries = 1 + stream.below(8);
    (0..entries).map(|_| (stream.below(SENDERS as u64) as u8, stream.below(64) as u8)).collect()
}

/// Random tables against [`arbiter::shares`], run once for all who ask.
pub(crate) fn random_tables() -> Vec<CheckedFigure> {
    static FIGURES: LazyLock<Vec<CheckedFigure>> = LazyLock::new(run_random_tables);
    FIGURES.clone()
}

fn run_random_tables() -> Vec<CheckedFigure> {
    let mut all = Vec::new();
    for seed in 0..40 {
        let mut stream = RandomKey::new(seed).purpose("tables").stream();
        let (high, mut low) = (random_table(&mut stream), random_table(&mut stream));
        // Somebody must be served at all.
        low.push((stream.below(SENDERS as u64) as u8, 1));
        let high_limit = one_of(&mut stream, &[0, 1, 2, 255]);
        let bytes = one_of(&mut stream, &[256, 512, 1024, 2048, 4096]);
        let rule = Arbiter::Tables(VlArbitration { high, low, high_limit });
        let expected = arbiter::shares(&rule, 0b1_1111, bytes);
        let name = format!("random tables {seed}, {bytes} B packets");
        all.extend(figures(
            &name,
            &rule,
            [0, 1, 2, 3, 4],
            [u64::from(bytes); SENDERS],
            &expected[..SENDERS],
        ));
    }
    all
}

/// Weighted turns: shares as the quanta, whatever the packets' lengths.
pub(crate) fn weighted() -> Vec<CheckedFigure> {
    let mut quantum = [0; VIRTUAL_LANES_MAX];
    quantum[..SENDERS].copy_from_slice(&[4096, 8192, 12_288, 16_384, 40_960]);
    let rule = Arbiter::Weighted { quantum, first: [None; VIRTUAL_LANES_MAX] };
    let lanes = [0, 1, 2, 3, 4];
    let expected = [1, 2, 3, 4, 10];
    let equal = figures("weighted, 4 KiB packets", &rule, lanes, [4096; SENDERS], &expected);
    let mixed =
        figures("weighted, mixed packets", &rule, lanes, [256, 4096, 1000, 2048, 600], &expected);
    [equal, mixed].concat()
}

/// Strict order, and turns among equals.
pub(crate) fn strict() -> Vec<CheckedFigure> {
    let mut rank = [9; VIRTUAL_LANES_MAX];
    rank[3] = 0;
    let alone = Arbiter::Strict { rank };
    rank[1] = 0;
    let two = Arbiter::Strict { rank };
    let (lanes, sizes) = ([0, 1, 2, 3, 4], [2048; SENDERS]);
    [
        figures("strict, one first", &alone, lanes, sizes, &[0, 0, 0, 1, 0]),
        figures("strict, two first", &two, lanes, sizes, &[0, 1, 0, 1, 0]),
        figures("turns", &Arbiter::RoundRobin, lanes, sizes, &[1; SENDERS]),
    ]
    .concat()
}
