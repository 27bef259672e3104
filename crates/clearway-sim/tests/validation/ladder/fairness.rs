//! Turns over inputs are max-min fair where each stream has an input of its own at the one port it
//! fights for.
//!
//! # Model
//! Random networks with one stream for each sender, of different rates: at one switch to a few
//! receivers, or through a trunk that is the only narrow place. A port fills like a vessel: those
//! who want less than the level have all they want, the others have the level.
//!
//! # Source
//! Bertsekas, Gallager, "Data networks" (1992), 6.5.2.
//!
//! # Not here
//! Streams that fight twice, or share an input: there buffers are shared, one stalled stream holds
//! the other up, and no network of this kind is max-min fair.

use clearway_proto::base::{Class, RandomKey, RandomStream};
use clearway_sim::Picos;
use clearway_sim::spec::FabricSpec;

use super::rig::{self, Cabling, CheckedFigure, Flow, gigabits};

const SENDERS: usize = 8;

/// What each of those who want `wanted` gets of `whole`, in Gb/s.
fn filled(wanted: &[u64], whole: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|one| wanted[*one]);
    let (mut left, mut gets) = (whole, vec![0.0; wanted.len()]);
    for (served, one) in order.into_iter().enumerate() {
        gets[one] = f64::min(wanted[one] as f64, left / (wanted.len() - served) as f64);
        left -= gets[one];
    }
    gets
}

/// Streams from `h0`, `h1`, ... of the rates `wanted` to `targets`, against `expected`.
fn figures(
    name: &str,
    spec: &FabricSpec,
    wanted: &[u64],
    targets: &[u32],
    expected: &[f64],
) -> Vec<CheckedFigure> {
    let flow = |place: usize| Flow {
        from: place as u32,
        to: targets[place],
        class: Class::Bulk,
        bytes: 2048,
    };
    let flows: Vec<Flow> = (0..SENDERS).map(flow).collect();
    let (from, until) = (Picos::from_micros(300), Picos::from_micros(1_300));
    let sums = rig::delivered(spec, &flows, 18 << 20, from, until);
    let figure = |place: usize| CheckedFigure {
        what: format!("{name}: {} Gb/s to h{}", wanted[place], targets[place]),
        expected: expected[place],
        measured: sums[place] as f64 * 8.0 * 1e3 / (until - from).0 as f64,
    };
    (0..SENDERS).map(figure).collect()
}

/// Eight rates from 10 to 100 Gb/s.
fn rates(stream: &mut RandomStream) -> Vec<u64> {
    (0..SENDERS).map(|_| 10 * (1 + stream.below(10))).collect()
}

/// Three receivers of 100 Gb/s at the senders' switch.
pub(crate) fn stars() -> Vec<CheckedFigure> {
    (0..10).flat_map(star).collect()
}

fn star(seed: u64) -> Vec<CheckedFigure> {
    let mut stream = RandomKey::new(seed).purpose("stars").stream();
    let wanted = rates(&mut stream);
    let targets: Vec<u32> = (0..SENDERS).map(|_| SENDERS as u32 + stream.below(3) as u32).collect();
    let cables: Vec<_> = wanted.iter().copied().chain([100; 3]).map(gigabits).collect();
    let mut expected = vec![0.0; SENDERS];
    for target in SENDERS as u32..SENDERS as u32 + 3 {
        let here: Vec<usize> = (0..SENDERS).filter(|one| targets[*one] == target).collect();
        let gets = filled(&here.iter().map(|one| wanted[*one]).collect::<Vec<_>>(), 100.0);
        for (one, get) in here.iter().zip(gets) {
            expected[*one] = get;
        }
    }
    figures(&format!("star {seed}"), &rig::star(&cables).spec(), &wanted, &targets, &expected)
}

/// A trunk of 200 Gb/s to as many receivers, which take all they get.
pub(crate) fn trunks() -> Vec<CheckedFigure> {
    (0..10).flat_map(trunk).collect()
}

fn trunk(seed: u64) -> Vec<CheckedFigure> {
    let wanted = rates(&mut RandomKey::new(seed).purpose("trunks").stream());
    let targets: Vec<u32> = (SENDERS as u32..2 * SENDERS as u32).collect();
    let mut cabling = Cabling::new(2 * SENDERS as u32, 2);
    for (host, rate) in wanted.iter().enumerate() {
        cabling.cable(&format!("h{host}"), "s0", gigabits(*rate));
        cabling.cable(&format!("h{}", host + SENDERS), "s1", gigabits(400));
    }
    cabling.cable("s0", "s1", gigabits(200));
    figures(&format!("trunk {seed}"), &cabling.spec(), &wanted, &targets, &filled(&wanted, 200.0))
}
