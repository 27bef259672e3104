//! `clearway broadcast`: what is cast where, from flags.

use anyhow::Result;
use clap::Args;
use clearway_lab::{QueueKind, Topology};
use clearway_proto::base::{BitsPerSec, Bytes, Nanos};
use clearway_proto::broadcast::MulticastReach;
use clearway_sim::spec::presets;

use super::flagged::{FlagValues, FlaggedRun, joined};
use super::results::{ReportDestination, ReportFlags};
use super::run::{JobFlags, across};
use super::{JobArguments, print};
use crate::mechanism::broadcast::RANKS_MAX as SIMULATED_RANKS_MAX;
use crate::mechanism::broadcast::simulated;
use crate::mechanism::broadcast::simulated::BroadcastTestBed;
use crate::mechanism::broadcast::{
    BroadcastPlan, BroadcastProtocol, CastMode, Millionths, MultiRootRun, casting, coordinate,
    explained, figures, run_with_faults, table, with_roots,
};
use crate::report::{FigureFormat, NothingMore};
use crate::run::exit::{Exit, UsageError, wrong_usage};
use crate::run::venue::{self, LabVenue, LaunchSpec, ProcessVenue, SimVenue, Venue as _};
use crate::run::{CompletedParts, RemainingTime, VenueKind};
use crate::scenario::{Fabric, RankAt, Time};

/// What `clearway broadcast` casts.
#[derive(Debug, Args)]
pub(crate) struct BroadcastFlags {
    /// Cast at this place [default: lab].
    #[arg(long, value_enum)]
    on: Option<VenueKind>,
    /// With --on lab or sim: use N ranks, the root included, each on a host of its own [default:
    /// 8].
    #[arg(long, value_name = "N")]
    ranks: Option<u32>,
    /// With --on lab: use N switches; 2 puts half of the hosts behind a trunk as fast as a host's
    /// link, which no multicast crosses.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=2))]
    leaves: u32,
    /// Set the rate of every host's link, to which the root keeps [default in a lab: 200Mb/s;
    /// elsewhere only windows limit it].
    #[arg(long)]
    rate: Option<BitsPerSec>,
    /// Use this queue at every port of a lab [default: fifo], or this policy of a simulated fabric.
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// With --on sim: simulate this shipped fabric or fabric file [default: edr].
    #[arg(long, value_name = "FABRIC")]
    fabric: Option<String>,
    /// With --on sim: set the payload of a packet, in place of that of the fabric file; longer ones
    /// are coarser and faster to simulate.
    #[arg(long, value_name = "BYTES")]
    packet: Option<Bytes>,
    /// Cast objects of these lengths.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "4B,16KiB,1MiB")]
    bytes: Vec<Bytes>,
    /// Send by this algorithm; programs use auto.
    #[arg(long, value_name = "MODE", value_enum, value_delimiter = ',', default_value = "auto")]
    mode: Vec<CastMode>,
    /// Lose these shares of the datagrams that arrive at each rank, as in 0.001.
    #[arg(long, value_name = "SHARE", value_delimiter = ',', default_value = "0")]
    loss: Vec<Millionths>,
    /// Cast N objects of each length [default: a thousand short ones, as many long ones as fit into
    /// 4s, at most 200].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    objects: Option<u32>,
    /// Kill ranks at a time after each cast began, by SIGKILL: 3@2s. Rank 0 is the root.
    #[arg(long, value_name = "RANK@TIME", value_delimiter = ',')]
    kill: Vec<RankAt>,
    /// With --on lab or cluster: filter the multicast group at this time after each cast began.
    #[arg(long, value_name = "TIME")]
    filter: Option<Time>,
    /// Continue without a rank that is silent for this time.
    #[arg(long, value_name = "TIME", default_value = "2s")]
    silence: Time,
    /// With --on lab: cast objects of all lengths by all algorithms for this time, while packets
    /// are lost, doubled, damaged and late, and ranks die and stand still; what happens follows
    /// from the seed.
    #[arg(long, hide = true, value_name = "TIME", conflicts_with_all = ["bytes", "mode", "loss", "objects", "kill", "filter", "explain", "json", "out"])]
    faults: Option<Time>,
    /// With --on lab: let the first N ranks cast at the same time, each to a team of all ranks with
    /// a multicast channel of its own from a pool of eight; the ninth shares one. The report
    /// compares them with one root.
    #[arg(long, hide = true, value_name = "N", conflicts_with_all = ["kill", "filter", "faults", "explain", "out"], value_parser = clap::value_parser!(u32).range(1..))]
    roots: Option<u32>,
    /// Say what each way costs by the engine's model, and why one is the best.
    #[arg(long)]
    explain: bool,
    /// Seed the contents of objects and the losses.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    format: FigureFormat,
    #[command(flatten)]
    report: ReportFlags,
    #[command(flatten)]
    job: JobArguments,
}

/// The name of its reports.
const NAME: &str = "broadcast";

/// The longest object: the length of a span has 32 bits, and eight ranks of one machine need memory
/// for it.
const BYTES_MAX: Bytes = Bytes(2 << 30);
/// The most ranks of a lab: that many processes on one machine.
const RANKS_MAX: u32 = 64;
/// The most roots: each has an engine at every rank.
const ROOTS_MAX: u32 = 32;
/// What ranks of a lab have between them.
const LAB_RATE: BitsPerSec = BitsPerSec::mega(200);
/// Longer times are mistyped units.
const TIME_MAX: Time = Time(Nanos::from_secs(600));

impl BroadcastFlags {
    fn plan(&self, ranks: u32, rate: Option<BitsPerSec>) -> Result<BroadcastPlan> {
        if ranks < 2 {
            wrong_usage!(
                "a broadcast has a root and receivers: {ranks} is too few, 2 ranks and more work"
            );
        }
        if let Some(length) = self.bytes.iter().find(|length| length.0 == 0 || **length > BYTES_MAX)
        {
            wrong_usage!("--bytes is {length}; 1B to {BYTES_MAX} work");
        }
        if let Some(kill) = self.kill.iter().find(|kill| kill.rank >= ranks || kill.at > TIME_MAX.0)
        {
            wrong_usage!(
                "--kill is rank {} at {}; ranks below {ranks} and times up to {TIME_MAX} work",
                kill.rank,
                kill.at
            );
        }
        let most = ranks.min(ROOTS_MAX);
        if let Some(roots) = self.roots.filter(|roots| *roots > most) {
            wrong_usage!("--roots is {roots}; 1 to {most} work with {ranks} ranks");
        }
        if self.silence < Time::millis(10) || self.silence > TIME_MAX {
            wrong_usage!("--silence is {}; 10ms to {TIME_MAX} work", self.silence);
        }
        if self.leaves > 1 && !ranks.is_multiple_of(self.leaves) {
            wrong_usage!(
                "{ranks} ranks do not split evenly over {} switches: use {}",
                self.leaves,
                ranks + 1
            );
        }
        Ok(BroadcastPlan {
            ranks,
            leaves: self.leaves,
            modes: self.mode.clone(),
            modes_up_to: None,
            lengths: self.bytes.clone(),
            losses: self.loss.clone(),
            objects: self.objects,
            rate,
            silence: self.silence.0,
            kills: self.kill.clone(),
            stops: Vec::new(),
            filter: self.filter.map(|filter| filter.0),
            seed: self.seed,
        })
    }

    /// Returns where the report goes; tests of the program itself have none.
    fn results(&self) -> Result<Option<ReportDestination>> {
        let is_of_users = self.faults.is_none() && self.roots.is_none();
        is_of_users.then(|| ReportDestination::open(NAME, &self.report)).transpose()
    }

    /// Returns what is in force of `plan` in `place`, by the names of flags.
    fn values(&self, plan: &BroadcastPlan, place: VenueKind) -> FlagValues {
        let mut values = vec![
            ("ranks", plan.ranks.to_string()),
            ("bytes", joined(&plan.lengths)),
            ("mode", joined(plan.modes.iter().map(|mode| mode.name()))),
            ("loss", joined(&plan.losses)),
            ("silence", self.silence.to_string()),
            ("seed", plan.seed.to_string()),
        ];
        values.extend(plan.rate.map(|rate| ("rate", rate.to_string())));
        values.extend(plan.objects.map(|objects| ("objects", objects.to_string())));
        values.extend(self.filter.map(|filter| ("filter", filter.to_string())));
        if !plan.kills.is_empty() {
            values.push((
                "kill",
                joined(plan.kills.iter().map(|kill| format!("{}@{}", kill.rank, kill.at))),
            ));
        }
        match place {
            VenueKind::Sim => {
                values.push(("fabric", self.fabric_name().to_owned()));
                values.extend(self.queue.clone().map(|queue| ("queue", queue)));
                values.extend(self.packet.map(|packet| ("packet", packet.to_string())));
            }
            VenueKind::Lab => {
                values.push(("queue", self.queue.clone().unwrap_or_else(|| "fifo".to_owned())));
                values.push(("leaves", self.leaves.to_string()));
            }
            VenueKind::Cluster => {}
        }
        values
    }

    fn fabric_name(&self) -> &str {
        self.fabric.as_deref().unwrap_or("edr")
    }

    fn place(&self) -> Result<VenueKind> {
        let given: Vec<VenueKind> = self.on.into_iter().collect();
        let job = JobFlags::from_arguments(Some(&self.job));
        let place = job.places(&given)?.first().copied().unwrap_or(VenueKind::Lab);
        match place {
            VenueKind::Cluster if self.ranks.is_some() => {
                wrong_usage!("--ranks is for --on lab and sim: a job has the ranks that it has")
            }
            VenueKind::Cluster | VenueKind::Sim if self.faults.is_some() => {
                wrong_usage!("--faults is for --on lab, where ranks that died are started anew")
            }
            VenueKind::Cluster if self.queue.is_some() => {
                wrong_usage!("--queue is for --on lab and sim: queues of a site are its own")
            }
            VenueKind::Sim if !self.kill.is_empty() => {
                wrong_usage!("--kill is for --on lab and cluster: there ranks are processes")
            }
            VenueKind::Cluster | VenueKind::Sim if self.roots.is_some() => {
                wrong_usage!("--roots is for --on lab, whose ranks read one clock")
            }
            VenueKind::Cluster | VenueKind::Sim if self.leaves > 1 => {
                wrong_usage!(
                    "--leaves is for --on lab: a simulated fabric has leaves of its own, and those of a site are not known"
                )
            }
            VenueKind::Sim if self.filter.is_some() => {
                wrong_usage!("--filter is for --on lab and cluster")
            }
            VenueKind::Lab | VenueKind::Cluster if self.fabric.is_some() => {
                wrong_usage!("--fabric is for --on sim")
            }
            VenueKind::Lab | VenueKind::Cluster if self.packet.is_some() => {
                wrong_usage!("--packet is for --on sim")
            }
            place => Ok(place),
        }
    }
}

/// Casts where flags say.
pub(super) fn command(flags: &BroadcastFlags) -> Result<Exit> {
    match flags.place()? {
        VenueKind::Sim => simulated(flags),
        VenueKind::Lab => {
            let ranks = flags.ranks.unwrap_or(8);
            if ranks > RANKS_MAX {
                wrong_usage!("--ranks is {ranks}; a lab of this machine has 2 to {RANKS_MAX}");
            }
            let rate = flags.rate.unwrap_or(LAB_RATE);
            let plan = flags.plan(ranks, Some(rate))?;
            let fabric = Fabric::lab(match flags.leaves {
                1 => Topology::Star { hosts: ranks, rate },
                _ => Topology::TwoSwitch { hosts: ranks, rate, trunk: rate },
            });
            let queue = flags.queue.as_deref().unwrap_or("fifo");
            let known: Result<QueueKind, _> = queue.parse();
            known.map_err(|why| UsageError::new(format!("--queue: {why}")))?;
            let results = flags.results()?;
            let spec = LaunchSpec {
                wire: flags.job.wire_request()?,
                ..LaunchSpec::new::<BroadcastProtocol>(flags.seed)
            };
            let mut venue = LabVenue::open(&fabric, &spec)?;
            venue.arm(queue)?;
            if flags.leaves > 1 {
                venue.confine_multicast()?;
            }
            on_ranks(&mut venue, &plan, VenueKind::Lab, flags, results.as_ref())
        }
        VenueKind::Cluster => {
            let order = JobFlags::from_arguments(Some(&flags.job)).order()?;
            across(&order, |site| {
                let plan = flags.plan(site.size(), flags.rate)?;
                let results = flags.results()?;
                let mut venue =
                    venue::open_job(Some(site), &LaunchSpec::new::<BroadcastProtocol>(flags.seed))?;
                on_ranks(&mut venue, &plan, VenueKind::Cluster, flags, results.as_ref())
            })
        }
    }
}

/// Casts on a simulated fabric.
fn simulated(flags: &BroadcastFlags) -> Result<Exit> {
    let ranks = flags.ranks.unwrap_or(8);
    if ranks > SIMULATED_RANKS_MAX {
        wrong_usage!("--ranks is {ranks}; 2 to {SIMULATED_RANKS_MAX} work on a simulated fabric");
    }
    let plan = flags.plan(ranks, flags.rate)?;
    let name = flags.fabric_name();
    let policies = presets::policies(name)?;
    if let Some(queue) = flags.queue.as_ref().filter(|queue| !policies.contains(queue)) {
        wrong_usage!("--queue is {queue}, no policy of {name}; there are {}", policies.join(", "));
    }
    let ground = BroadcastTestBed::open(name, flags.queue.as_deref(), ranks, flags.packet)?;
    let results = ReportDestination::open(NAME, &flags.report)?;
    let fabric = Fabric::machine(name.to_owned(), Some(ranks));
    let spec = LaunchSpec::new::<BroadcastProtocol>(plan.seed);
    let venue = SimVenue::open(&fabric, &spec, Box::new(|_| ()), CompletedParts::default())?;
    let mut run =
        FlaggedRun::begin(NAME, plan.seed, flags.values(&plan, VenueKind::Sim), &venue, &results);
    let remaining = RemainingTime::begin("run", vec![1.0], None);
    remaining.part(format!("{ranks} ranks on {name}"));
    let outcomes = ground.run(&plan)?;
    drop(remaining);
    let figures = simulated::figures(&ground, &outcomes);
    let table = || simulated::table(&ground, &outcomes);
    print(&flags.format.text(&figures, &NothingMore {}, table)?)?;
    if flags.explain && !flags.format.is_for_programs() {
        print(&simulated::explained(&ground, &outcomes))?;
    }
    run.report.figures.extend(figures);
    run.end(&venue)?;
    Ok(Exit::Good)
}

/// Casts from several ranks of `venue` at once.
fn from_roots(
    venue: &mut dyn ProcessVenue,
    plan: &BroadcastPlan,
    roots: u32,
    flags: &BroadcastFlags,
) -> Result<Exit> {
    let runs = with_roots(venue, plan, roots)?;
    let figures: Vec<_> = runs.iter().flat_map(MultiRootRun::figures).collect();
    let rows: Vec<String> = runs.iter().map(MultiRootRun::row).collect();
    let table = || MultiRootRun::frame(&venue.about(), &rows);
    print(&flags.format.text(&figures, &NothingMore {}, table)?)?;
    Ok(Exit::Good)
}

/// Casts with the ranks of `venue`; the report goes to `results`, where there is one.
fn on_ranks(
    venue: &mut dyn ProcessVenue,
    plan: &BroadcastPlan,
    place: VenueKind,
    flags: &BroadcastFlags,
    results: Option<&ReportDestination>,
) -> Result<Exit> {
    if let Some(time) = flags.faults {
        print(&run_with_faults(venue, plan, time.0)?)?;
        return Ok(Exit::Good);
    }
    if let Some(roots) = flags.roots {
        return from_roots(venue, plan, roots, flags);
    }
    let run = results.map(|results| {
        FlaggedRun::begin(NAME, plan.seed, flags.values(plan, place), venue, results)
    });
    let outcomes = coordinate(venue, plan, place)?;
    let figures = figures(plan, &outcomes);
    let shown = || table(&venue.about(), plan, &figures);
    print(&flags.format.text(&figures, &NothingMore {}, shown)?)?;
    if flags.explain && !flags.format.is_for_programs() {
        let has_multicast = venue.facts().has_multicast;
        let reach = if has_multicast { MulticastReach::All } else { MulticastReach::Some };
        let symbol = Bytes(u64::from(venue.processes().facts().body_max));
        print(&explained(plan, &figures, symbol, reach))?;
    }
    if let Some(mut run) = run {
        run.report.figures.extend(figures);
        if place == VenueKind::Lab {
            run.report.set_part(&casting(plan, venue.hosts(), &outcomes));
        }
        run.end(venue)?;
    }
    Ok(Exit::Good)
}
