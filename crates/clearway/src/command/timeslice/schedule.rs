//! Which rank may send to whom when, and which ranks go and come.

use anyhow::Result;
use clap::Args;
use clearway_proto::base::{Bytes, Nanos};
use clearway_proto::timeslice::{Dfs, SpeedUp, Window};

use crate::command::counted;
use crate::mechanism::timeslice::ScheduledAction as Go;
use crate::mechanism::timeslice::{ScheduledChange, TimeslicePlan};
use crate::run::VenueKind;
use crate::run::exit::wrong_usage;
use crate::scenario::{RankAt, Time, percent};

/// What schedules and ranks are like.
#[derive(Clone, Debug, Args)]
pub(super) struct ScheduleFlags {
    /// Give each builder this many turns, in the order of their ranks: 2,1,1,1 gives the first two
    /// timeslices of five [default: one each].
    #[arg(long, value_name = "N", value_delimiter = ',')]
    weights: Vec<u32>,
    /// Set the bytes of the ring of each connection [default: 32MiB; in a lab 512KiB].
    #[arg(long, value_name = "BYTES")]
    pub(super) ring: Option<Bytes>,
    /// Let a builder of `token` admit this many contributions at a time: a number, or the bounds of
    /// its search.
    #[arg(long, value_name = "LEAST-MOST", default_value = "2-64")]
    window: Window,
    /// Set the timeslices of an interval of `dfs` [default: 10000, as published; in a lab 40].
    #[arg(long, value_name = "N")]
    interval: Option<u64>,
    /// Let `dfs` look back N intervals [default: 100, as published; in a lab 10].
    #[arg(long, value_name = "N")]
    history: Option<usize>,
    /// Let `dfs` propose less than the median by this percentage while inputs keep up; 0 for never.
    #[arg(long, value_name = "PERCENT", default_value_t = 5, value_parser = percent::<50>)]
    speed_up: u32,
    /// Kill ranks at a time after counting began: 40@2ms; in a lab or a job their processes, by
    /// SIGKILL. Builders are the ranks behind the inputs.
    #[arg(long, value_name = "RANK@TIME", value_delimiter = ',')]
    kill: Vec<RankAt>,
    /// Ask ranks to retire at a time: each leaves when everything that it has is built.
    #[arg(long, value_name = "RANK@TIME", value_delimiter = ',')]
    retire: Vec<RankAt>,
    /// Join ranks again at a time after they retired, or with --on sim or --on lab --wire udp died.
    #[arg(long, value_name = "RANK@TIME", value_delimiter = ',')]
    join: Vec<RankAt>,
    /// Send heartbeats at this interval; the others continue without a rank whose heartbeats stop
    /// [default: in a lab or a job 250ms].
    #[arg(long, value_name = "TIME")]
    heartbeat: Option<Time>,
}

impl ScheduleFlags {
    /// Returns `plan` as flags say, of a run in `place` that is over at `until`.
    pub(super) fn extend(
        &self,
        plan: TimeslicePlan,
        place: VenueKind,
        until: Nanos,
    ) -> Result<TimeslicePlan> {
        let TimeslicePlan { inputs, builders, .. } = plan;
        if !self.weights.is_empty() && self.weights.len() != builders as usize {
            let given = counted(self.weights.len() as u64, "number");
            wrong_usage!(
                "--weights has {given}, and there are {builders} builders; one for each works"
            );
        }
        let heartbeat = self.heartbeat.map(|every| every.0).or(plan.heartbeat);
        if self.heartbeat.is_some_and(|every| every.0.0 == 0) {
            wrong_usage!("--heartbeat is no time; 100us works");
        }
        let changes = ScheduledChange::by_time(&self.kill, &self.retire, &self.join);
        check_changes(&changes, place, inputs + builders, until)?;
        if let (Some(ScheduledChange { when, wanted }), None) = (changes.first(), heartbeat) {
            wrong_usage!(
                "{} {}@{} needs --heartbeat: nobody notices without",
                flag(*wanted),
                when.rank,
                when.at
            );
        }
        let speed_up = plan.dfs.speed_up.map(|usual| SpeedUp { step: self.speed_up, ..usual });
        let dfs = Dfs {
            interval: self.interval.unwrap_or(plan.dfs.interval),
            history: self.history.unwrap_or(plan.dfs.history),
            speed_up: speed_up.filter(|speed_up| speed_up.step > 0),
            ..plan.dfs
        };
        Ok(TimeslicePlan {
            weights: self.weights.clone(),
            window: self.window,
            dfs,
            changes,
            heartbeat,
            ..plan
        })
    }
}

/// Refuses `changes` that never come, or cannot.
fn check_changes(
    changes: &[ScheduledChange],
    place: VenueKind,
    ranks: u32,
    until: Nanos,
) -> Result<()> {
    for (number, ScheduledChange { when, wanted }) in changes.iter().enumerate() {
        let RankAt { rank, at } = *when;
        if rank >= ranks || at >= until {
            wrong_usage!(
                "{} is rank {rank} at {at}; ranks below {ranks} and times below {until} work",
                flag(*wanted)
            );
        }
        let before = changes[..number]
            .iter()
            .rfind(|change| change.when.rank == rank)
            .map(|change| change.wanted);
        match (before, wanted) {
            (Some(Go::Retirement), Go::Return | Go::Death)
            | (None | Some(Go::Return), Go::Death | Go::Retirement) => {}
            (Some(Go::Death), Go::Return) if place == VenueKind::Sim => {}
            (Some(Go::Death), Go::Return) if place == VenueKind::Lab => {
                if changes.iter().filter(|change| change.when.rank == rank).count() > 2 {
                    wrong_usage!(
                        "--join {rank}@{at}: a rank of a lab is killed and started again once in a run, and does not retire in the same run"
                    );
                }
            }
            (Some(Go::Death), Go::Return) => wrong_usage!(
                "--join {rank}@{at}: the launcher of a job does not start a process again that was killed; who retired can join, and \
                 in a lab who was killed"
            ),
            _ => wrong_usage!(
                "{} {rank}@{at}: a rank goes while it takes part, and joins after it went",
                flag(*wanted)
            ),
        }
    }
    Ok(())
}

/// Returns the flag that asks for what is `wanted`.
pub(super) const fn flag(wanted: Go) -> &'static str {
    match wanted {
        Go::Death => "--kill",
        Go::Retirement => "--retire",
        Go::Return => "--join",
    }
}
