//! `clearway timeslice`: what is built where, from flags.
//!
//! # Not here
//! Microslices, and where timeslices go: `timeslice_feed`.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use clearway_lab::Topology;
use clearway_proto::base::{BitsPerSec, Bytes, Nanos};
use clearway_proto::timeslice::{Dfs, Policy, SpeedUp, Window};

use super::run::{JobFlags, across};
use super::timeslice_feed::FeedFlags;
use super::{JobArguments, print};
use crate::mechanism::timeslice::Wanted as Go;
use crate::mechanism::timeslice::{
    Building, Change, HostConditions, LENGTHS, Messages, Plan, Rings, SIMULATED, Task, account, achievable_table,
    build, compare, consume, costs, figures, measure_achievable, page, simulate, simulate_achievable, table, told,
    watch,
};
use crate::report::model::Figure;
use crate::run::Place;
use crate::run::exit::Exit;
use crate::run::job::{JobOrder, Losses};
use crate::run::venue::{self, LabVenue, LaunchSpec, ProcessVenue, Venue as _};
use crate::scenario::{Fabric, RankAt, Time};

/// What stands beside a run.
#[derive(Debug, Subcommand)]
enum TimesliceCommand {
    /// Show a run while it lasts: rate, completion time, how full rings are, stragglers, who waits for whom.
    Watch {
        /// Its name, as the run says it when it begins; with `@HOST` behind it where another host conducts it, which ssh must reach.
        #[arg(value_name = "JOB[@HOST]")]
        job: String,
        /// Where this program is on that host [default: where it is here].
        #[arg(long, value_name = "PATH")]
        remote_program: Option<PathBuf>,
    },
    /// Take timeslices from a builder of this host (`--sink consumer:SOCKET`) and look at every microslice.
    Consume {
        /// Where the builder listens.
        socket: PathBuf,
        /// Put them into this archive instead.
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
}

/// What means nothing where nothing is built.
const BENCH_CONFLICTS: [&str; 18] = [
    "policy",
    "weights",
    "ring",
    "window",
    "interval",
    "history",
    "kill",
    "retire",
    "join",
    "heartbeat",
    "source",
    "sink",
    "compress",
    "timeslice_size",
    "overlap",
    "timeslices",
    "sizes",
    "memory",
];

/// What `clearway timeslice` builds.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct TimesliceFlags {
    #[command(subcommand)]
    command: Option<TimesliceCommand>,
    /// Where to build [default: sim].
    #[arg(long, value_enum)]
    on: Option<Place>,
    /// With --on sim: a shipped fabric, or the path of a fabric file [default: aries].
    #[arg(long, value_name = "FABRIC")]
    fabric: Option<String>,
    /// The queue at every port of a fabric or lab; its first one without this, in a lab fifo.
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// With --on lab: rate of every host's link [default: 50Mb/s].
    #[arg(long)]
    rate: Option<BitsPerSec>,
    /// With --on lab: rate of the first input's link, where it shall be another one.
    #[arg(long, value_name = "RATE")]
    slow: Option<BitsPerSec>,
    /// Ranks with contributions [default: 32; in a lab 4, of a job half].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=5_000))]
    inputs: Option<u32>,
    /// Ranks that build [default: 32; in a lab 4, of a job all others].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=5_000))]
    builders: Option<u32>,
    /// How many turns each builder has, in the order of their ranks: 2,1,1,1 gives the first two timeslices of five [default: one each].
    #[arg(long, value_name = "N", value_delimiter = ',')]
    weights: Vec<u32>,
    /// Schedules to compare: best-effort, offset, dfs, token.
    #[arg(long, value_name = "POLICY", value_delimiter = ',', default_value = "token")]
    policy: Vec<Policy>,
    /// Bytes of one contribution [default: 64KiB; in a lab 16KiB].
    #[arg(long, value_name = "BYTES")]
    contribution: Option<Bytes>,
    /// Bytes of the ring of each connection [default: 32MiB; in a lab 512KiB].
    #[arg(long, value_name = "BYTES")]
    ring: Option<Bytes>,
    /// Contributions that a builder of `token` lets in at a time: a number, or the bounds of what it finds.
    #[arg(long, value_name = "LEAST-MOST", default_value = "2-64")]
    window: Window,
    /// Timeslices of an interval of `dfs` [default: 10000, as published; in a lab 40].
    #[arg(long, value_name = "N")]
    interval: Option<u64>,
    /// Intervals that `dfs` looks back [default: 100, as published; in a lab 10].
    #[arg(long, value_name = "N")]
    history: Option<usize>,
    /// How much less than the median `dfs` proposes while inputs keep up, in percent; 0 for never.
    #[arg(long, value_name = "PERCENT", default_value_t = 5, value_parser = clap::value_parser!(u32).range(..=50))]
    speed_up: u32,
    /// Inputs begin within this time of each other.
    #[arg(long, value_name = "TIME", default_value = "5ms")]
    start_skew: Time,
    /// Time before anything is counted [default: 40ms; in a lab or a job 2s].
    #[arg(long, value_name = "TIME")]
    warm_up: Option<Time>,
    /// Time in which everything is counted [default: 10ms; in a lab or a job 4s].
    #[arg(long, value_name = "TIME")]
    measured: Option<Time>,
    /// With --on sim: at what hosts' interfaces fetch and place, in place of what the fabric file says.
    #[arg(long, value_name = "RATE")]
    node_rate: Option<BitsPerSec>,
    /// With --on sim: payload of a packet, in place of what the fabric file says; longer ones are coarser and faster to simulate.
    #[arg(long, value_name = "BYTES")]
    packet: Option<Bytes>,
    /// Ranks that die, and when after counting began: 40@2ms; of a lab or a job their processes, by SIGKILL. Builders are the ranks
    /// behind the inputs.
    #[arg(long, value_name = "RANK@TIME", value_delimiter = ',')]
    kill: Vec<RankAt>,
    /// Ranks that retire, and when that is asked of them: each goes when everything that it has is built.
    #[arg(long, value_name = "RANK@TIME", value_delimiter = ',')]
    retire: Vec<RankAt>,
    /// Ranks that take part again after they retired, or with --on sim died, and when that is asked of them.
    #[arg(long, value_name = "RANK@TIME", value_delimiter = ',')]
    join: Vec<RankAt>,
    /// How often ranks say that they are there, so that others go on without one that does not [default: in a lab or a job 250ms].
    #[arg(long, value_name = "TIME")]
    heartbeat: Option<Time>,
    /// Measure instead what unscheduled writes and puts carry: 64KiB, 128KiB, 512KiB and 1MiB, or --contribution alone, each without
    /// and with FLESnet's short messages beside it.
    #[arg(long, conflicts_with_all = BENCH_CONFLICTS)]
    bench: bool,
    /// Seeds: a run for each, figures are medians of them.
    #[arg(long, value_name = "SEED", value_delimiter = ',', default_value = "1")]
    seed: Vec<u64>,
    /// Write JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    feed: FeedFlags,
    #[command(flatten)]
    job: JobArguments,
}

/// The longest contribution: one timeslice of a whole second at 4 GB/s.
const CONTRIBUTION_MAX: Bytes = Bytes(u32::MAX as u64);
/// The longest ring: with five thousand inputs, offsets stay far below 64 bits.
const RING_MAX: Bytes = Bytes(1 << 40);
/// The longest simulated time: an hour of this machine for a few nodes. Longer ones are mistyped units.
const TIME_MAX: Time = Time(Nanos::from_secs(100));

/// What is usual in a place.
struct Usual {
    contribution: Bytes,
    ring: Bytes,
    warm_up: Time,
    measured: Time,
    dfs: Dfs,
    heartbeat: Option<Time>,
}

/// Three of them without a beat are too many: a header that TCP sends again twice is late by 0.6 s (its shortest time-out is 0.2 s, then
/// 0.4 s), and a rank that waits for a processor on a busy machine by less.
const HEARTBEAT: Time = Time(Nanos::from_millis(250));

impl Usual {
    fn at(place: Place) -> Self {
        let [kib, mib] = [10, 20].map(|bits| move |count: u64| Bytes(count << bits));
        let seconds = |count| Time(Nanos::from_secs(count));
        match place {
            Place::Sim => Self {
                contribution: kib(64),
                ring: mib(32),
                warm_up: Time::micros(40_000),
                measured: Time::micros(10_000),
                dfs: Dfs::default(),
                heartbeat: None,
            },
            // Ten rounds of four builders, a tenth of a second at 50 Mb/s: some dozens of intervals in a run.
            Place::Lab => Self {
                contribution: kib(16),
                ring: kib(512),
                warm_up: seconds(2),
                measured: seconds(4),
                dfs: Dfs { interval: 40, history: 10, ..Dfs::default() },
                heartbeat: Some(HEARTBEAT),
            },
            Place::Cluster => Self {
                contribution: kib(64),
                ring: mib(32),
                warm_up: seconds(2),
                measured: seconds(4),
                dfs: Dfs::default(),
                heartbeat: Some(HEARTBEAT),
            },
        }
    }
}

impl TimesliceFlags {
    /// What to build with so many inputs and builders.
    fn plan(&self, place: Place, [inputs, builders]: [u32; 2]) -> Result<Plan> {
        let usual = Usual::at(place);
        // A ring holds one contribution at least, and where nothing is built no more.
        let least = if self.bench { self.contribution.unwrap_or_default() } else { Bytes::default() };
        let ring = self.ring.unwrap_or(usual.ring.max(least));
        let contribution = self.contribution.unwrap_or(usual.contribution.min(ring));
        let (warm_up, measured) = (self.warm_up.unwrap_or(usual.warm_up), self.measured.unwrap_or(usual.measured));
        if contribution.0 == 0 || contribution > CONTRIBUTION_MAX {
            bail!("--contribution is {contribution}; 1B to {CONTRIBUTION_MAX} work");
        }
        if ring < contribution || ring > RING_MAX {
            bail!("--ring is {ring}; {contribution} (one contribution) to {RING_MAX} work");
        }
        if !self.weights.is_empty() && self.weights.len() != builders as usize {
            let given = self.weights.len();
            bail!("--weights has {given} numbers, and there are {builders} builders; one for each works");
        }
        if measured.0.0 == 0 || measured > TIME_MAX || warm_up > TIME_MAX || self.start_skew > TIME_MAX {
            bail!("--measured, --warm-up and --start-skew are at most {TIME_MAX}, and something must be measured");
        }
        let heartbeat = self.heartbeat.or(usual.heartbeat);
        if self.heartbeat.is_some_and(|every| every.0.0 == 0) {
            bail!("--heartbeat is no time; 100us works");
        }
        let changes = Change::of(&self.kill, &self.retire, &self.join);
        self.check_changes(&changes, place, inputs + builders, measured)?;
        if let (Some(Change { when, wanted }), None) = (changes.first(), heartbeat) {
            bail!("{} {}@{} needs --heartbeat: nobody notices without", flag(*wanted), when.rank, when.at);
        }
        let speed_up = usual.dfs.speed_up.map(|usual| SpeedUp { step: self.speed_up, ..usual });
        let dfs = Dfs {
            interval: self.interval.unwrap_or(usual.dfs.interval),
            history: self.history.unwrap_or(usual.dfs.history),
            speed_up: speed_up.filter(|speed_up| speed_up.step > 0),
            ..usual.dfs
        };
        Ok(Plan {
            inputs,
            builders,
            weights: self.weights.clone(),
            policies: self.policy.clone(),
            contribution,
            messages: Messages::Alone,
            ring,
            window: self.window,
            dfs,
            start_skew: self.start_skew.0,
            warm_up: warm_up.0,
            measured: measured.0,
            seeds: self.seed.clone(),
            rings: Rings::Empty,
            hosts: HostConditions { rate: self.node_rate, packet: self.packet, ..HostConditions::default() },
            slowdown: None,
            changes,
            heartbeat: heartbeat.map(|every| every.0),
        })
    }

    /// Refuses `changes` that never come, or cannot.
    fn check_changes(&self, changes: &[Change], place: Place, ranks: u32, measured: Time) -> Result<()> {
        // What has a source of so many timeslices is over when it is.
        let until = if self.feed.is_counted() { TIME_MAX } else { measured };
        for (number, Change { when, wanted }) in changes.iter().enumerate() {
            let RankAt { rank, at } = *when;
            if rank >= ranks || at >= until.0 {
                bail!("{} is rank {rank} at {at}; ranks below {ranks} and times below {until} work", flag(*wanted));
            }
            let before = changes[..number].iter().rfind(|change| change.when.rank == rank).map(|change| change.wanted);
            match (before, wanted) {
                (Some(Go::Retirement), Go::Return | Go::Death)
                | (None | Some(Go::Return), Go::Death | Go::Retirement) => {}
                (Some(Go::Death), Go::Return) if place == Place::Sim => {}
                (Some(Go::Death), Go::Return) => bail!(
                    "--join {rank}@{at}: a process that was killed is not started again within a run, since the others' wires know only \
                     the one that they met; who retired can join"
                ),
                _ => bail!("{} {rank}@{at}: a rank goes while it takes part, and joins after it went", flag(*wanted)),
            }
        }
        Ok(())
    }

    /// Lengths of the micro-benchmark.
    fn lengths(&self) -> &[Bytes] {
        self.contribution.as_ref().map_or(&LENGTHS, core::slice::from_ref)
    }

    /// Where to build.
    fn place(&self) -> Result<Place> {
        let given: Vec<Place> = self.on.into_iter().collect();
        let job = JobFlags::of(Some(&self.job));
        let place = job.places(&given)?.first().copied().unwrap_or(Place::Sim);
        let only = [
            ("--fabric", self.fabric.is_some(), place == Place::Sim, "sim"),
            ("--node-rate", self.node_rate.is_some(), place == Place::Sim, "sim"),
            ("--packet", self.packet.is_some(), place == Place::Sim, "sim"),
            ("--rate", self.rate.is_some(), place == Place::Lab, "lab"),
            ("--slow", self.slow.is_some(), place == Place::Lab, "lab"),
            ("--queue", self.queue.is_some(), place != Place::Cluster, "sim or lab"),
            ("--wire", !self.job.wire.is_empty(), place != Place::Sim, "lab or cluster"),
        ];
        match only.into_iter().find(|(_, given, fits, _)| *given && !fits) {
            Some((flag, _, _, where_)) => bail!("{flag} is for --on {where_}, and this is --on {}", place.name()),
            None => Ok(place),
        }
    }

    /// How many inputs and builders there are of `ranks`.
    fn parts(&self, ranks: u32) -> Result<[u32; 2]> {
        let parts = match (self.inputs, self.builders) {
            (Some(inputs), Some(builders)) => [inputs, builders],
            (Some(inputs), None) => [inputs, ranks.saturating_sub(inputs)],
            (None, Some(builders)) => [ranks.saturating_sub(builders), builders],
            (None, None) => [ranks / 2, ranks - ranks / 2],
        };
        match parts {
            [inputs, builders] if inputs > 0 && builders > 0 && inputs + builders == ranks => Ok(parts),
            [inputs, builders] => bail!(
                "{inputs} inputs and {builders} builders are not the {ranks} ranks of this job; each rank is one of the two"
            ),
        }
    }
}

/// The flag that asks for what is `wanted`.
const fn flag(wanted: Go) -> &'static str {
    match wanted {
        Go::Death => "--kill",
        Go::Retirement => "--retire",
        Go::Return => "--join",
    }
}

/// Builds timeslices where flags say.
pub(super) fn command(flags: &TimesliceFlags) -> Result<Exit> {
    match &flags.command {
        Some(TimesliceCommand::Watch { job, remote_program }) => {
            return watch(job, remote_program.as_deref(), &mut |text| print(text));
        }
        Some(TimesliceCommand::Consume { socket, to }) => {
            print(&consume(socket, to.as_deref())?)?;
            return Ok(Exit::Good);
        }
        None => {}
    }
    match flags.place()? {
        Place::Sim => simulated(flags),
        Place::Lab => {
            let parts = [flags.inputs, flags.builders].map(|count| count.unwrap_or(4));
            let plan = flags.plan(Place::Lab, parts)?;
            let task = flags.feed.task(&plan)?;
            let rate = flags.rate.unwrap_or(BitsPerSec::mega(50));
            let fabric = Fabric::lab(Topology::Star { hosts: parts.iter().sum(), rate });
            let queue = flags.queue.as_deref().unwrap_or("fifo");
            let seed = plan.seeds.first().copied().unwrap_or(1);
            let spec = LaunchSpec { wire: flags.job.wire_request()?, ..LaunchSpec::new::<Building>(seed) };
            let mut venue = LabVenue::open(&fabric, &spec)?;
            venue.arm(queue)?;
            flags.slow.map_or(Ok(()), |rate| venue.slow_first(rate))?;
            on_ranks(&mut venue, &plan, &task, flags)
        }
        Place::Cluster => {
            let order = JobFlags::of(Some(&flags.job)).order()?;
            let order = JobOrder { losses: Losses::AreBorne, ..order };
            across(&order, |site| {
                let plan = flags.plan(Place::Cluster, flags.parts(site.size())?)?;
                let task = flags.feed.task(&plan)?;
                let seed = plan.seeds.first().copied().unwrap_or(1);
                let mut venue = venue::of_job(Some(site), &LaunchSpec::new::<Building>(seed))?;
                on_ranks(&mut venue, &plan, &task, flags)
            })
        }
    }
}

/// Builds on the fabric that flags name.
fn simulated(flags: &TimesliceFlags) -> Result<Exit> {
    flags.feed.refuse_on_sim()?;
    let parts = [flags.inputs, flags.builders].map(|count| count.unwrap_or(32));
    let plan = flags.plan(Place::Sim, parts)?;
    let name = flags.fabric.as_deref().unwrap_or("aries");
    let fabric = Fabric::machine(name.to_owned(), Some(parts.iter().sum()));
    let queues = fabric.queues().map_err(|why| anyhow!(why))?;
    let queue = match &flags.queue {
        Some(queue) if queues.contains(queue) => queue,
        Some(queue) => bail!("{queue} is no queue of {name}; there are {}", queues.join(", ")),
        None => queues.first().context("the fabric has no queue")?,
    };
    if flags.bench {
        let [warm_up, measured] = [(flags.warm_up, SIMULATED[0]), (flags.measured, SIMULATED[1])]
            .map(|(given, usual)| given.map_or(usual, |time| time.0));
        let plan = Plan { warm_up, measured, ..plan };
        let figures = simulate_achievable(&fabric, queue, &plan, flags.lengths())?;
        return show_achievable(&format!("{name}, {queue}"), &plan, &figures, flags.json);
    }
    let runs = simulate(&fabric, queue, &plan, &|_, _| {})?;
    show(&format!("{name}, {queue}"), &plan, &figures(&plan, &runs), flags.json)
}

/// Builds with the ranks of `venue`.
fn on_ranks(venue: &mut dyn ProcessVenue, plan: &Plan, task: &Task, flags: &TimesliceFlags) -> Result<Exit> {
    let (about, json) = (venue.about(), flags.json);
    let host = venue.coordinator_host().map_or_else(String::new, |host| format!("@{host}"));
    eprintln!("watch it: clearway timeslice watch {}{host}", task.job);
    if flags.bench {
        let figures = measure_achievable(venue, plan, &task.job, flags.lengths())?;
        return show_achievable(&about, plan, &figures, json);
    }
    if task.is_timed {
        let (runs, built) = compare(venue, plan, task)?;
        eprint!("{}", account(&built));
        let figures: Vec<Figure> = figures(plan, &runs).into_iter().chain(costs(&built)).collect();
        show(&about, plan, &figures, json)?;
        return Ok(built.exit());
    }
    let built = build(venue, plan, task)?;
    let page = if json { serde_json::to_string_pretty(&told(&built))? + "\n" } else { page(&about, plan, &built) };
    print(&page)?;
    Ok(built.exit())
}

fn show_achievable(about: &str, plan: &Plan, figures: &[Figure], json: bool) -> Result<Exit> {
    let parts = [plan.inputs, plan.builders];
    print(&if json { serde_json::to_string_pretty(figures)? + "\n" } else { achievable_table(about, parts, figures) })?;
    Ok(Exit::Good)
}

fn show(about: &str, plan: &Plan, figures: &[Figure], json: bool) -> Result<Exit> {
    if json {
        print(&format!("{}\n", serde_json::to_string_pretty(figures)?))?;
    } else {
        print(&table(about, plan, figures))?;
    }
    Ok(Exit::Good)
}
