//! What becomes of teams one by one: lowest channel, retry, recall, the shared channel, silence,
//! death, strangers.

use alloc::vec::Vec;

use super::trial::{ChannelsAction, ChannelsPlan, ChannelsTrial, IDLE, SILENCE};
use super::*;
use crate::base::LocalNs;
use crate::wire::{Arrival, Datagram, Engine, Input, More, Out, PathId, Span, Stamp};

const MS: u64 = 1_000_000;

fn own(channel: u8) -> Option<Channel> {
    Some(Channel::Own(channel))
}

#[test]
fn form__teams_that_meet_get_the_lowest_free_channels_and_others_the_same() {
    let mut trial = ChannelsTrial::new(ChannelsPlan::new(
        6,
        8,
        &[&[0, 1, 2], &[2, 3], &[4, 5], &[0, 1, 2, 3, 4, 5]],
    ));
    for team in 0..4 {
        trial.put_all(u64::from(team) * MS, team, ChannelsAction::Form(team));
    }
    trial.run();
    assert_eq!([0, 1, 2, 3].map(|team| trial.has(team)), [own(0), own(1), own(0), own(2)]);
}

#[test]
fn form__teams_that_race_all_get_one_of_their_own() {
    let teams: [&[u32]; 8] =
        [&[0, 1, 2], &[1, 2, 0], &[2, 0, 1], &[0, 2, 1], &[1, 0, 2], &[2, 1, 0], &[0, 1], &[1, 2]];
    for seed in 0..20 {
        let mut trial =
            ChannelsTrial::new(ChannelsPlan { seed, ..ChannelsPlan::new(3, 8, &teams) });
        (0..8).for_each(|team| trial.put_all(0, team, ChannelsAction::Form(team)));
        trial.run();
        let shared = (0..8).filter(|team| trial.has(*team) == Some(Channel::Shared)).count();
        assert_eq!(shared, 0, "seed {seed}: there is one for each");
    }
}

#[test]
fn form__what_is_busy_and_in_use_leaves_the_shared_channel() {
    let mut trial = ChannelsTrial::new(ChannelsPlan::new(2, 1, &[&[0, 1], &[1, 0]]));
    trial.put_all(0, 0, ChannelsAction::Form(0));
    trial.put(MS, 0, ChannelsAction::Begin(0));
    trial.put(MS, 1, ChannelsAction::Begin(0));
    trial.put_all(3 * IDLE, 1, ChannelsAction::Form(1));
    trial.put_all(200 * MS, 0, ChannelsAction::End(0));
    trial.run();
    assert_eq!([trial.has(0), trial.has(1)], [own(0), Some(Channel::Shared)]);
}

#[test]
fn form__the_team_that_was_idle_longest_gives_its_channel_up() {
    let mut trial = ChannelsTrial::new(ChannelsPlan::new(4, 2, &[&[0, 1], &[0, 2], &[3, 0]]));
    trial.put_all(0, 0, ChannelsAction::Form(0));
    trial.put_all(MS, 1, ChannelsAction::Form(1));
    trial.put_all(2 * MS, 0, ChannelsAction::Begin(0));
    trial.put_all(3 * MS, 0, ChannelsAction::End(0));
    trial.put_all(3 * MS + 2 * IDLE, 2, ChannelsAction::Form(2));
    trial.run();
    assert_eq!([0, 1, 2].map(|team| trial.has(team)), [own(0), Some(Channel::Shared), own(1)]);
}

#[test]
fn recall__a_member_in_a_broadcast_keeps_the_channel_until_its_end() {
    // The root of team 0 is no member of team 1, which sees only an idle rank 1.
    let mut trial = ChannelsTrial::new(ChannelsPlan::new(3, 1, &[&[0, 1], &[1, 2]]));
    trial.put_all(0, 0, ChannelsAction::Form(0));
    trial.put_all(2 * IDLE, 1, ChannelsAction::Form(1));
    // It begins in the moment in which it is asked.
    trial.put(2 * IDLE, 0, ChannelsAction::Begin(0));
    trial.put(2 * IDLE + 2 * MS, 0, ChannelsAction::End(0));
    trial.run();
    assert_eq!(
        trial.has(0).zip(trial.has(1)).map(|(a, b)| a == b),
        Some(false),
        "one of them has it"
    );
}

#[test]
fn disband__a_channel_is_free_when_all_members_let_go() {
    let mut trial = ChannelsTrial::new(ChannelsPlan::new(2, 1, &[&[0, 1], &[0, 1], &[0, 1]]));
    trial.put_all(0, 0, ChannelsAction::Form(0));
    trial.put(MS, 0, ChannelsAction::Disband(0));
    trial.put(40 * MS, 1, ChannelsAction::Disband(0));
    trial.put_all(2 * MS, 1, ChannelsAction::Form(1));
    trial.put_all(50 * MS, 2, ChannelsAction::Form(2));
    trial.run();
    assert!(trial.processes.iter().all(|process| process.over.contains(&0)));
    assert_eq!([1, 2].map(|team| trial.has(team)), [Some(Channel::Shared), own(0)]);
}

#[test]
fn silence__of_a_member_ends_it_on_the_shared_channel_for_all() {
    for silent in 0..3 {
        let mut trial = ChannelsTrial::new(ChannelsPlan::new(3, 8, &[&[0, 1, 2], &[0, 1, 2]]));
        trial.put_all(0, 0, ChannelsAction::Form(0));
        trial.put(0, silent, ChannelsAction::Pause(10 * SILENCE));
        trial.put_all(20 * SILENCE, 1, ChannelsAction::Form(1));
        trial.run_until(5 * SILENCE);
        let others = (0..3).filter(|rank| *rank != silent);
        let reported: Vec<_> =
            others.map(|rank| trial.processes[rank as usize].has.get(&0).copied()).collect();
        assert_eq!(reported, [Some(Channel::Shared); 2], "{silent} is silent");
        trial.run();
        assert_eq!(
            [trial.has(0), trial.has(1)],
            [Some(Channel::Shared), own(0)],
            "and nothing stays busy"
        );
    }
}

#[test]
fn death__frees_nothing_that_the_living_use_and_holds_nobody_up() {
    // The leader dies when some know the channel and others do not.
    for at in 0..100 {
        let mut trial = ChannelsTrial::new(ChannelsPlan::new(3, 8, &[&[0, 1, 2]]));
        trial.put_all(0, 0, ChannelsAction::Form(0));
        trial.put(at * 1_000, 0, ChannelsAction::Kill);
        trial.put(at * 1_000 + MS, 0, ChannelsAction::Notified);
        trial.run();
    }
}

#[test]
fn form__what_is_no_team_is_refused() {
    let mut trial = ChannelsTrial::new(ChannelsPlan::new(2, 8, &[&[0, 1]]));
    trial.put_all(0, 0, ChannelsAction::Form(0));
    trial.run();
    let driver = trial.processes[0].driver.as_mut().expect("it lives");
    let mut refused = |team, members: &[u32]| {
        let members = members.iter().map(|rank| Rank(*rank)).collect();
        let mut out = Out::with_limit(8);
        let command = Input::Command(ChannelsCommand::Form { team, members });
        assert_eq!(driver.engine_mut().input(LocalNs(1_000_000_000), command, &mut out), More::No);
        out.split()
            .0
            .any(|effect| effect == crate::wire::Effect::Notify(ChannelsEvent::Refused { team }))
    };
    assert!(refused(0, &[0, 1]), "its number is taken");
    assert!(refused(1, &[1]), "this rank is not in it");
    assert!(refused(1, &[]) && refused(1, &[0, 1, 1]));
    assert!(!refused(1, &[0]));
}

proptest::proptest! {
    /// A peer that writes anything with a right check, any number of times.
    #[test]
    fn input__any_message_of_a_peer(
        messages in proptest::collection::vec((0u8..10, proptest::prelude::any::<[u8; 26]>(), 0usize..27, 0u32..3), 0..60)
    ) {
        let mut node = ChannelsNode::new(ChannelsConfig {
            rank: Rank(1),
            channels: 8,
            silence: Nanos(SILENCE),
            idle: Nanos(IDLE),
            retry: Nanos(1_000),
            seed: 0,
            class: Class::Control,
        });
        let mut out = Out::with_limit(64);
        let mut now = LocalNs(0);
        for team in 0..2 {
            let members = if team == 0 { [Rank(0), Rank(1)] } else { [Rank(1), Rank(2)] };
            let _ = node.input(now, Input::Command(ChannelsCommand::Form { team, members: members.into() }), &mut out);
        }
        for (kind, mut bytes, length, from) in messages {
            // Mostly of teams that there are.
            (bytes[0], bytes[2], bytes[3], bytes[4], bytes[5]) = (0x60 + kind, bytes[2] % 3, 0, 0, 0);
            let mut bytes = bytes[..length].to_vec();
            let check = crate::base::crc32c(&bytes);
            bytes.extend(check.to_le_bytes());
            now += Nanos(50_000);
            let datagram = Datagram {
                from: Rank(from),
                path: PathId(0),
                class: None,
                congestion_marked: false,
                at: Stamp::Taken(now),
                head: &bytes,
                body: Span::EMPTY,
            };
            let _ = node.input(now, Input::Arrival(Arrival::Datagram(datagram)), &mut out);
            let _ = node.input(now, Input::Tick, &mut out);
            out.clear();
        }
    }
}
