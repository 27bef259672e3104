//! Many teams that form, cast, end and die under random faults: no two that meet have one channel,
//! all living members have the same, and every agreement ends.
//!
//! # Model
//! A seed gives ranks, a pool, teams that overlap, when each member asks for what, and faults:
//! loss, doubling, delay, damage, members that are killed or stop. It runs on the wire in memory
//! until nobody has anything left to say. That no two teams that meet share a channel is checked
//! after every step.

use alloc::vec::Vec;

use super::trial::{ChannelsAction, ChannelsPlan, ChannelsTrial, IDLE, SILENCE};
use crate::base::{RandomKey, RandomStream};
use crate::wire::memory::FaultInjection;

fn plan(stream: &mut RandomStream, seed: u64) -> ChannelsPlan {
    let mut below = |bound: u64| stream.below(bound);
    let ranks = 1 + below(8) as u32;
    let channels = below(5) as u8;
    let (loss, fault_injection) = match below(3) {
        0 => (0, FaultInjection::default()),
        1 => (10_000, FaultInjection { doubled: 10_000, late: 10_000, damaged: 10_000 }),
        _ => (
            [50_000, 200_000][below(2) as usize],
            FaultInjection {
                doubled: below(100_000) as u32,
                late: below(200_000) as u32,
                damaged: below(50_000) as u32,
            },
        ),
    };
    let teams = 1 + below(9);
    let teams = (0..teams).map(|_| {
        let mut all: Vec<u32> = (0..ranks).collect();
        stream.shuffle(&mut all);
        let count = 1 + stream.below(u64::from(ranks));
        all.truncate(count as usize);
        all
    });
    let teams = teams.collect();
    ChannelsPlan { ranks, channels, teams, loss, fault_injection, seed }
}

/// Draws when every team is formed, casts and is disbanded, and what goes wrong.
fn script(trial: &mut ChannelsTrial, stream: &mut RandomStream) {
    let teams = trial.plan.teams.clone();
    let span = [100_000, 5_000_000, 20_000_000][stream.below(3) as usize];
    for (team, members) in (0..).zip(teams) {
        let start = stream.below(span);
        let formed = start + 1_000_000;
        let is_left = stream.below(3) == 0;
        for rank in members {
            trial.put(start + stream.below(1_000_000), rank, ChannelsAction::Form(team));
            for _ in 0..stream.below(3) {
                let begin = formed + stream.below(4 * IDLE);
                trial.put(begin, rank, ChannelsAction::Begin(team));
                trial.put(begin + stream.below(4 * IDLE), rank, ChannelsAction::End(team));
            }
            trial.put(formed + 8 * IDLE, rank, ChannelsAction::End(team));
            if is_left {
                trial.put(formed + stream.below(8 * IDLE), rank, ChannelsAction::Disband(team));
            }
        }
    }
    let mut killed = Vec::new();
    for _ in 0..stream.below(4) {
        let (at, rank) =
            (stream.below(span + 8 * IDLE), stream.below(u64::from(trial.plan.ranks)) as u32);
        match stream.below(3) {
            0 if !killed.contains(&rank) => {
                killed.push(rank);
                trial.put(at, rank, ChannelsAction::Kill);
                trial.put(at + stream.below(4 * SILENCE), rank, ChannelsAction::Notified);
            }
            1 => trial.put(at, rank, ChannelsAction::Pause(stream.below(4 * SILENCE))),
            _ => trial.put(at, rank, ChannelsAction::Pause(stream.below(IDLE))),
        }
    }
}

fn run(seed: u64) {
    let mut stream = RandomKey::new(seed).purpose("channels swarm").stream();
    let mut trial = ChannelsTrial::new(plan(&mut stream, seed));
    script(&mut trial, &mut stream);
    let acts = trial.acts.clone();
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| trial.run()));
    if let Err(why) = caught {
        let what = why.downcast_ref::<std::string::String>().cloned();
        let what = what
            .or_else(|| why.downcast_ref::<&str>().map(|what| std::string::String::from(*what)));
        let has: Vec<_> = trial
            .processes
            .iter()
            .map(|process| (process.driver.is_some(), &process.has))
            .collect();
        panic!(
            "seed {seed}, at {:?}: {what:?}; {:?} {acts:?}; {has:?}",
            trial.fabric.now(),
            trial.plan
        );
    }
}

/// `SWARM_SEEDS=2000 cargo test -p clearway-proto --lib channels::swarm` takes some seconds.
#[test]
fn swarm__no_two_teams_that_meet_have_one_channel_and_all_members_have_the_same() {
    let seeds = std::env::var("SWARM_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    (0..seeds.unwrap_or(200)).for_each(run);
}
