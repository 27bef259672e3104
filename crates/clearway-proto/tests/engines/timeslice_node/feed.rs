//! Bytes as what one rank of a job gets from strangers: headers, writes that landed, and time that
//! passes.
//!
//! # Model
//! The first byte says who the rank is and by which policy it goes. Then, again and again: what
//! comes (1 byte), from whom (1), how many bytes of it (1), and these.

use std::sync::Arc;

use clearway_proto::base::{Bytes, Class, LocalNs, Nanos, Rank};
use clearway_proto::timeslice::{
    ContributionSizes, ContributionSource, Dfs, Policy, ReleasePolicy, TimesliceCommand,
    TimesliceConfig, TimesliceLayout, TimesliceNode, Window, WriteSlots,
};
use clearway_proto::wire::{
    Arrival, Datagram, Engine, Input, More, Out, PathId, RegionId, Span, Stamp,
};

/// Ranks of the job: three inputs, two builders, one of which is absent at first.
const RANKS: u32 = 5;
const RING: u32 = 256;
const BEAT: Nanos = Nanos(1_000);
/// Calls with nothing new that are made at most while an engine says that it has more to do.
const AGAIN_MAX: usize = 8;

fn node(first: u8) -> TimesliceNode {
    let rank = Rank(u32::from(first) % RANKS);
    let policy = Policy::ALL[usize::from(first / 5) % Policy::ALL.len()];
    let layout =
        TimesliceLayout::new((0..3).map(Rank).collect(), (3..RANKS).map(Rank).collect(), &[]);
    let layout = layout.and_then(|layout| layout.without(&[Rank(4)])).expect("a sound layout");
    let memory = Span { region: RegionId(0), offset: 0, length: 16 };
    TimesliceNode::new(TimesliceConfig {
        rank,
        run: 0,
        layout: Arc::new(layout),
        policy,
        window: Window { least: 2, most: 8 },
        dfs: Dfs { interval: 10, history: 4, ..Dfs::default() },
        source: ContributionSource::Endless(memory, ContributionSizes::Constant(Bytes(16))),
        slots: WriteSlots::from_policy(policy),
        rings: Span { region: RegionId(1), offset: 0, length: 3 * RING },
        ring: Bytes(u64::from(RING)),
        release: ReleasePolicy::AtOnce,
        heartbeat: Some(BEAT),
        class: Class::Bulk,
        control: Class::Control,
    })
}

/// Feeds a rank with `bytes`. It may do with them what it likes, but not panic.
pub(crate) fn run(bytes: &[u8]) {
    let Some((first, mut rest)) = bytes.split_first() else { return };
    let (mut node, mut out, mut now) = (node(*first), Out::with_limit(64), LocalNs(0));
    give_input(&mut node, now, Input::Boot { incarnation: 0 }, &mut out);
    give_input(&mut node, now, Input::Command(TimesliceCommand::Begin), &mut out);
    while let [what, from, length, more @ ..] = rest {
        let (head, behind) = more.split_at(more.len().min(usize::from(*length)));
        rest = behind;
        let (from, at) = (Rank(u32::from(*from)), Stamp::Taken(now));
        match what % 4 {
            0 => {
                now += Nanos(u64::from(*length) * 100);
                give_input(&mut node, now, Input::Tick, &mut out);
            }
            1 => {
                let mut word = [0; 8];
                word[..head.len().min(8)].copy_from_slice(&head[..head.len().min(8)]);
                let into = Span { region: RegionId(1), offset: u64::from(*length), length: 16 };
                let landed =
                    Arrival::Landed { from, into, immediate: u64::from_le_bytes(word), at };
                give_input(&mut node, now, Input::Arrival(landed), &mut out);
            }
            _ => {
                let (path, class, body) = (PathId(0), Some(Class::Control), Span::EMPTY);
                let datagram =
                    Datagram { from, path, class, congestion_marked: false, at, head, body };
                give_input(&mut node, now, Input::Arrival(Arrival::Datagram(datagram)), &mut out);
            }
        }
    }
    let _ = node.take_record(now);
}

fn give_input(
    node: &mut TimesliceNode,
    now: LocalNs,
    input: Input<'_, TimesliceCommand>,
    out: &mut Out<<TimesliceNode as Engine>::Event>,
) {
    let mut more = node.input(now, input, out);
    out.clear();
    for _ in 0..AGAIN_MAX {
        if more == More::No {
            return;
        }
        more = node.input(now, Input::Tick, out);
        out.clear();
    }
}
