//! `clearway timeslice`: what is built where, from flags.

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use clearway_proto::base::Bytes;
use clearway_proto::timeslice::{Dfs, Policy, SpeedUp, Window};

use super::print;
use crate::exit::Exit;
use crate::scenario::{Fabric, Time};
use crate::timeslice::{Plan, figures, simulate, table};

/// What `clearway timeslice` builds.
#[derive(Debug, Args)]
pub(crate) struct TimesliceFlags {
    /// The simulated fabric: a shipped one, or the path of a fabric file.
    #[arg(long, value_name = "FABRIC", default_value = "aries")]
    fabric: String,
    /// The fabric's queue; its first one without this.
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Ranks with contributions.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    inputs: u32,
    /// Ranks that build.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    builders: u32,
    /// Schedules to compare: best-effort, offset, dfs, token.
    #[arg(long, value_name = "POLICY", value_delimiter = ',', default_value = "token")]
    policy: Vec<Policy>,
    /// Bytes of one contribution.
    #[arg(long, value_name = "BYTES", default_value = "64KiB")]
    contribution: Bytes,
    /// Bytes of the ring of each connection.
    #[arg(long, value_name = "BYTES", default_value = "32MiB")]
    ring: Bytes,
    /// Contributions that a builder of `token` lets in at a time: a number, or the bounds of what it finds.
    #[arg(long, value_name = "LEAST-MOST", default_value = "2-64")]
    window: Window,
    /// Timeslices of an interval of `dfs`.
    #[arg(long, value_name = "N", default_value_t = Dfs::default().interval)]
    interval: u64,
    /// Intervals that `dfs` looks back.
    #[arg(long, value_name = "N", default_value_t = Dfs::default().history)]
    history: usize,
    /// How much less than the median `dfs` proposes while inputs keep up, in percent; 0 for never.
    #[arg(long, value_name = "PERCENT", default_value_t = 5, value_parser = clap::value_parser!(u32).range(..=50))]
    speed_up: u32,
    /// Inputs begin within this time of each other.
    #[arg(long, value_name = "TIME", default_value = "5ms")]
    start_skew: Time,
    /// Simulated time before anything is counted.
    #[arg(long, value_name = "TIME", default_value = "40ms")]
    warm_up: Time,
    /// Simulated time in which everything is counted.
    #[arg(long, value_name = "TIME", default_value = "10ms")]
    measured: Time,
    /// Seeds: a run for each, figures are medians of them.
    #[arg(long, value_name = "SEED", value_delimiter = ',', default_value = "1")]
    seed: Vec<u64>,
    /// Write JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// The longest contribution: one timeslice of a whole second at 4 GB/s.
const CONTRIBUTION_MAX: Bytes = Bytes(u32::MAX as u64);
/// The longest ring: with five thousand inputs, offsets stay far below 64 bits.
const RING_MAX: Bytes = Bytes(1 << 40);
/// The longest simulated time: an hour of this machine for a few nodes. Longer ones are mistyped units.
const TIME_MAX: Time = Time(clearway_proto::base::Nanos::from_secs(100));

impl TimesliceFlags {
    fn plan(&self) -> Result<Plan> {
        if self.contribution.0 == 0 || self.contribution > CONTRIBUTION_MAX {
            bail!("--contribution is {}; 1B to {CONTRIBUTION_MAX} work", self.contribution);
        }
        if self.ring < self.contribution || self.ring > RING_MAX {
            bail!("--ring is {}; {} (one contribution) to {RING_MAX} work", self.ring, self.contribution);
        }
        if self.measured.0.0 == 0 || self.measured > TIME_MAX || self.warm_up > TIME_MAX || self.start_skew > TIME_MAX {
            bail!("--measured, --warm-up and --start-skew are at most {TIME_MAX}, and something must be measured");
        }
        let speed_up = Dfs::default().speed_up.map(|usual| SpeedUp { step: self.speed_up, ..usual });
        let dfs = Dfs {
            interval: self.interval,
            history: self.history,
            speed_up: speed_up.filter(|speed_up| speed_up.step > 0),
            ..Dfs::default()
        };
        Ok(Plan {
            inputs: self.inputs,
            builders: self.builders,
            policies: self.policy.clone(),
            contribution: self.contribution,
            ring: self.ring,
            window: self.window,
            dfs,
            start_skew: self.start_skew.0,
            warm_up: self.warm_up.0,
            measured: self.measured.0,
            seeds: self.seed.clone(),
        })
    }
}

/// Builds timeslices on the fabric that flags name.
pub(super) fn command(flags: &TimesliceFlags) -> Result<Exit> {
    let plan = flags.plan()?;
    let fabric = Fabric::machine(flags.fabric.clone(), Some(flags.inputs + flags.builders));
    let queues = fabric.queues().map_err(|why| anyhow!(why))?;
    let queue = match &flags.queue {
        Some(queue) if queues.contains(queue) => queue,
        Some(queue) => bail!("{queue} is no queue of {}; there are {}", flags.fabric, queues.join(", ")),
        None => queues.first().context("the fabric has no queue")?,
    };
    let runs = simulate(&fabric, queue, &plan)?;
    let figures = figures(&plan, &runs);
    if flags.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&figures)?))?;
    } else {
        print(&table(&format!("{}, {queue}", flags.fabric), &plan, &figures))?;
    }
    Ok(Exit::Good)
}
