//! Where timeslices are built: which ranks there are, and the venue that has them.

use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use clearway_lab::{QueueKind, Topology};
use clearway_proto::base::{BitsPerSec, Bytes, Nanos, Rank};
use clearway_proto::timeslice::{Dfs, Policy, Window};

use crate::command::JobArguments;
use crate::command::flagged::FlagValues;
use crate::command::run::{JobFlags, across};
use crate::mechanism::timeslice::{
    HostConditions, InitialRings, Neighbourhoods, TimesliceMetrics, TimeslicePlan,
    TimesliceProtocol, UnscheduledMessages, measure,
};
use crate::policy::{Grant, TimeslicePolicyFlags};
use crate::report::FigureFormat;
use crate::run::VenueKind;
use crate::run::exit::{Exit, UsageError, wrong_usage};
use crate::run::job::{JobSpec, LossPolicy, TopologySource};
use crate::run::metrics::{MetricsAddress, MetricsListener};
use crate::run::notice;
use crate::run::venue::{self, LabVenue, LaunchSpec, ProcessVenue, Venue as _};
use crate::scenario::fabric::NodeMap;
use crate::scenario::{Fabric, Time};

/// Ranks and what is between them.
#[derive(Clone, Debug, Args)]
pub(super) struct NetworkFlags {
    /// Use this queue at every port of a fabric or lab [default: the fabric's first; in a lab
    /// fifo].
    #[arg(long, value_name = "QUEUE")]
    pub(super) queue: Option<String>,
    /// With --on lab: set the rate of every host's link [default: 50Mb/s].
    #[arg(long)]
    pub(super) rate: Option<BitsPerSec>,
    /// With --on lab: set the rate of the first input's link [default: that of the others].
    #[arg(long, value_name = "RATE")]
    pub(super) slow: Option<BitsPerSec>,
    /// With --on lab: put the second half of the ranks, with equal numbers the builders, on a second
    /// switch behind a trunk of this rate [default: one switch].
    #[arg(long, value_name = "RATE")]
    trunk: Option<BitsPerSec>,
    /// Use N ranks with contributions [default: 4 in a lab, 32 simulated, of a job half].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=5_000))]
    pub(super) inputs: Option<u32>,
    /// Use N ranks that build [default: 4 in a lab, 32 simulated, of a job all others].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=5_000))]
    pub(super) builders: Option<u32>,
    /// Set the bytes of one contribution [default: 64KiB; in a lab 16KiB].
    #[arg(long, value_name = "BYTES")]
    pub(super) contribution: Option<Bytes>,
    /// Let turns alternate between parts of the network: those that Slurm tells tasks of, or a
    /// simulated fabric has (auto), those that hosts measure by round trips before the run
    /// (measured), those of a job's hosts in a topology.conf that its coordinator reads (FILE), or
    /// none.
    #[arg(long, value_name = "auto|none|measured|FILE", default_value = "auto")]
    pub(super) topology: TopologySource,
    /// Start inputs within this time of each other.
    #[arg(long, value_name = "TIME", default_value = "5ms")]
    pub(super) start_skew: Time,
    /// In a lab or a job: give the run this name, by which `clearway timeslice watch` finds it
    /// [default: the number of its process].
    #[arg(long = "job", value_name = "NAME")]
    pub(super) name: Option<String>,
    /// In a lab or a job: serve figures of the run for Prometheus over HTTP, on the coordinator:
    /// a port of the loopback, or ADDR:PORT for everybody who reaches that address, for there is no
    /// authentication [default: none].
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<MetricsAddress>,
    #[command(flatten)]
    pub(super) format: FigureFormat,
    #[command(flatten)]
    pub(super) job: JobArguments,
    #[command(flatten)]
    site: TimeslicePolicyFlags,
}

/// A simulated fabric.
#[derive(Clone, Debug, Args)]
pub(super) struct FabricFlags {
    /// Run at this place [default: sim].
    #[arg(long, value_enum)]
    on: Option<VenueKind>,
    /// With --on sim: simulate this shipped fabric or fabric file [default: aries].
    #[arg(long, value_name = "FABRIC")]
    pub(super) fabric: Option<String>,
    /// With --on sim: place ranks on the fabric's hosts this way [default: random].
    #[arg(long, value_enum, value_name = "MAP")]
    node_map: Option<NodeMap>,
    /// With --on sim: set the rate at which hosts' interfaces fetch and place, in place of that of
    /// the fabric file.
    #[arg(long, value_name = "RATE")]
    pub(super) node_rate: Option<BitsPerSec>,
    /// With --on sim: set the payload of a packet, in place of that of the fabric file; longer ones
    /// are coarser and faster to simulate.
    #[arg(long, value_name = "BYTES")]
    pub(super) packet: Option<Bytes>,
}

/// How long something is measured, and how often.
#[derive(Clone, Debug, Args)]
pub(super) struct TimedFlags {
    /// Time before anything is counted [default: 40ms (achievable: 6ms); in a lab or a job 2s].
    #[arg(long, value_name = "TIME")]
    pub(super) warm_up: Option<Time>,
    /// Time in which everything is counted [default: 10ms (achievable: 2ms); in a lab or a job 4s].
    #[arg(long, value_name = "TIME")]
    pub(super) measured: Option<Time>,
    /// Run once for each of these seeds; figures are medians of the runs.
    #[arg(long, value_name = "SEED", value_delimiter = ',', default_value = "1")]
    pub(super) seed: Vec<u64>,
}

/// What the policy of a site calls timeslice building.
const MECHANISM: &str = "timeslice";
/// Where ranks are processes.
pub(super) const REAL: &[VenueKind] = &[VenueKind::Lab, VenueKind::Cluster];

/// The longest contribution: one timeslice of a whole second at 4 GB/s.
const CONTRIBUTION_MAX: Bytes = Bytes(u32::MAX as u64);
/// The longest ring: with five thousand inputs, offsets stay far below 64 bits.
const RING_MAX: Bytes = Bytes(1 << 40);
/// The longest simulated time: an hour of this machine for a few nodes. Longer ones are mistyped
/// units.
pub(super) const TIME_MAX: Time = Time(Nanos::from_secs(100));

/// What is usual in a place.
pub(super) struct VenueDefaults {
    contribution: Bytes,
    pub(super) ring: Bytes,
    warm_up: Time,
    measured: Time,
    dfs: Dfs,
    heartbeat: Option<Time>,
}

/// Three of them without a beat are too many: a header that TCP sends again twice is late by 0.6 s
/// (its shortest time-out is 0.2 s, then 0.4 s), and a rank that waits for a processor on a busy
/// machine by less.
const HEARTBEAT: Time = Time(Nanos::from_millis(250));

impl VenueDefaults {
    pub(super) fn at(place: VenueKind) -> Self {
        let [kib, mib] = [10, 20].map(|bits| move |count: u64| Bytes(count << bits));
        let seconds = |count| Time(Nanos::from_secs(count));
        match place {
            VenueKind::Sim => Self {
                contribution: kib(64),
                ring: mib(32),
                warm_up: Time::micros(40_000),
                measured: Time::micros(10_000),
                dfs: Dfs::default(),
                heartbeat: None,
            },
            // Ten rounds of four builders, a tenth of a second at 50 Mb/s: some dozens of intervals
            // in a run.
            VenueKind::Lab => Self {
                contribution: kib(16),
                ring: kib(512),
                warm_up: seconds(2),
                measured: seconds(4),
                dfs: Dfs { interval: 40, history: 10, ..Dfs::default() },
                heartbeat: Some(HEARTBEAT),
            },
            VenueKind::Cluster => Self {
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

impl NetworkFlags {
    /// Returns what is usual in `place` with this many inputs and builders, and rings of `ring` if
    /// that is given.
    pub(super) fn plan(
        &self,
        place: VenueKind,
        [inputs, builders]: [u32; 2],
        ring: Option<Bytes>,
    ) -> Result<TimeslicePlan> {
        let usual = VenueDefaults::at(place);
        let ring = ring.unwrap_or(usual.ring);
        let contribution = self.contribution.unwrap_or(usual.contribution.min(ring));
        if place == VenueKind::Lab {
            let known: Result<QueueKind, _> = self.lab_queue().parse();
            known.map_err(|why| UsageError::new(format!("--queue: {why}")))?;
        }
        if ring.0 == 0 {
            wrong_usage!("--ring is {ring}; 1B to {RING_MAX} work");
        }
        if contribution.0 == 0 || contribution > CONTRIBUTION_MAX {
            wrong_usage!("--contribution is {contribution}; 1B to {CONTRIBUTION_MAX} work");
        }
        if ring < contribution || ring > RING_MAX {
            wrong_usage!("--ring is {ring}; {contribution} (one contribution) to {RING_MAX} work");
        }
        if self.start_skew > TIME_MAX {
            wrong_usage!("--start-skew is {}; times up to {TIME_MAX} work", self.start_skew);
        }
        let grant = match place {
            // A simulated fabric is not the site's.
            VenueKind::Sim => None,
            _ => self.site.ask(MECHANISM, TimeslicePlan::REQUESTED),
        };
        Ok(TimeslicePlan {
            inputs,
            builders,
            weights: Vec::new(),
            neighbourhoods: match self.topology {
                TopologySource::None => Neighbourhoods::OfRanks(Vec::new()),
                TopologySource::Measured => Neighbourhoods::Measured,
                TopologySource::Auto | TopologySource::File(_) => Neighbourhoods::OfFabric,
            },
            policies: vec![Policy::Token],
            contribution,
            messages: UnscheduledMessages::Alone,
            ring,
            window: Window { least: 2, most: 64 },
            dfs: usual.dfs,
            start_skew: self.start_skew.0,
            warm_up: usual.warm_up.0,
            measured: usual.measured.0,
            seeds: vec![1],
            rings: InitialRings::Empty,
            hosts: HostConditions::default(),
            slowdown: None,
            changes: Vec::new(),
            heartbeat: usual.heartbeat.map(|every| every.0),
            grant,
        })
    }

    /// Returns the numbers of inputs and builders where both are chosen here, `each` of them unless
    /// flags say more.
    pub(super) fn parts(&self, each: u32) -> [u32; 2] {
        [self.inputs, self.builders].map(|count| count.unwrap_or(each))
    }

    /// Returns how many inputs and builders there are of `ranks`.
    fn parts_of(&self, ranks: u32) -> Result<[u32; 2]> {
        let parts = match (self.inputs, self.builders) {
            (Some(inputs), Some(builders)) => [inputs, builders],
            (Some(inputs), None) => [inputs, ranks.saturating_sub(inputs)],
            (None, Some(builders)) => [ranks.saturating_sub(builders), builders],
            (None, None) => [ranks / 2, ranks - ranks / 2],
        };
        match parts {
            [inputs, builders] if inputs > 0 && builders > 0 && inputs + builders == ranks => {
                Ok(parts)
            }
            [inputs, builders] => wrong_usage!(
                "{inputs} inputs and {builders} builders are not the {ranks} ranks of this job; each rank is one of the two"
            ),
        }
    }

    /// Returns what is in force of the ranks' network in a lab or a job.
    pub(super) fn values(&self, place: VenueKind) -> FlagValues {
        if place != VenueKind::Lab {
            return vec![("topology", self.topology.to_string())];
        }
        let mut values =
            vec![("queue", self.lab_queue().to_owned()), ("rate", self.lab_rate().to_string())];
        values.extend(self.slow.map(|rate| ("slow", rate.to_string())));
        values.extend(self.trunk.map(|rate| ("trunk", rate.to_string())));
        if self.topology == TopologySource::Measured {
            values.push(("topology", self.topology.to_string()));
        }
        values
    }

    fn lab_queue(&self) -> &str {
        self.queue.as_deref().unwrap_or("fifo")
    }

    fn lab_rate(&self) -> BitsPerSec {
        self.rate.unwrap_or(BitsPerSec::mega(50))
    }

    /// Returns how the `hosts` of a lab are joined.
    fn lab_wiring(&self, hosts: u32) -> Topology {
        let rate = self.lab_rate();
        self.trunk.map_or(Topology::Star { hosts, rate }, |trunk| Topology::TwoSwitch {
            hosts,
            rate,
            trunk,
        })
    }

    /// Returns `plan` with what the ranks of `venue` on `hosts` measure, where they are to.
    fn measured(
        &self,
        venue: &mut dyn ProcessVenue,
        hosts: &[Vec<Rank>],
        plan: TimeslicePlan,
    ) -> Result<TimeslicePlan> {
        if self.topology != TopologySource::Measured {
            return Ok(plan);
        }
        let measured = measure(venue, hosts, plan.seeds.first().copied().unwrap_or(1))?;
        notice!("{}", measured.about());
        let neighbourhoods = Neighbourhoods::OfRanks(measured.by_rank);
        Ok(TimeslicePlan { neighbourhoods, ..plan })
    }

    /// Returns the name under which the run can be watched.
    pub(super) fn job_name(&self) -> String {
        self.name.clone().unwrap_or_else(|| std::process::id().to_string())
    }

    /// Returns where to run when `on` was said, and `usual` otherwise.
    pub(super) fn place(&self, on: Option<VenueKind>, usual: VenueKind) -> Result<VenueKind> {
        let given: Vec<VenueKind> = on.into_iter().collect();
        let place = JobFlags::from_arguments(Some(&self.job))
            .places(&given)?
            .first()
            .copied()
            .unwrap_or(usual);
        refuse_elsewhere(
            place,
            &[
                ("--rate", self.rate.is_some(), &[VenueKind::Lab]),
                ("--slow", self.slow.is_some(), &[VenueKind::Lab]),
                ("--trunk", self.trunk.is_some(), &[VenueKind::Lab]),
                ("--queue", self.queue.is_some(), &[VenueKind::Sim, VenueKind::Lab]),
                ("--wire", !self.job.wire.is_empty(), REAL),
                (
                    "--topology none",
                    self.topology == TopologySource::None,
                    &[VenueKind::Sim, VenueKind::Cluster],
                ),
                (
                    "--topology FILE",
                    matches!(self.topology, TopologySource::File(_)),
                    &[VenueKind::Cluster],
                ),
            ],
        )?;
        Ok(place)
    }

    /// Refuses metrics of a simulated fabric, whose time is not theirs.
    pub(super) fn refuse_metrics_on_sim(&self) -> Result<()> {
        refuse_elsewhere(VenueKind::Sim, &[("--metrics", self.metrics.is_some(), REAL)])
    }

    /// Lets `run` work with the ranks of a lab or a job, with what `prepare` made of their number
    /// before any was started in a lab, and with where its figures are served.
    pub(super) fn with_ranks<T>(
        &self,
        place: VenueKind,
        prepare: impl Fn([u32; 2]) -> Result<(TimeslicePlan, T)>,
        run: impl FnOnce(&mut dyn ProcessVenue, &TimeslicePlan, &T, &TimesliceMetrics) -> Result<Exit>,
    ) -> Result<Exit> {
        let seed = |plan: &TimeslicePlan| plan.seeds.first().copied().unwrap_or(1);
        let watched = |venue: &mut dyn ProcessVenue, plan: &TimeslicePlan, rest: &T, listener| {
            let host = venue.coordinator_host().map_or_else(String::new, |host| format!("@{host}"));
            plan.grant.iter().for_each(Grant::say);
            notice!("watch it: clearway timeslice watch {}{host}", self.job_name());
            let metrics = TimesliceMetrics::default();
            let source = Arc::new(metrics.clone());
            let _served = MetricsListener::announce(listener, "timeslice", source)?;
            run(venue, plan, rest, &metrics)
        };
        if place == VenueKind::Cluster {
            let order = JobFlags::from_arguments(Some(&self.job)).order()?;
            return across(&JobSpec { losses: LossPolicy::Continue, ..order }, |site| {
                let listener = MetricsListener::bind(self.metrics)?;
                let neighbourhoods = site.neighbourhoods(&self.topology)?;
                let (plan, rest) = prepare(self.parts_of(site.size())?)?;
                eprint!("{}", neighbourhoods.about());
                let neighbourhoods = Neighbourhoods::OfRanks(neighbourhoods.by_rank);
                let plan = TimeslicePlan { neighbourhoods, ..plan };
                let mut venue = venue::open_job(
                    Some(site),
                    &LaunchSpec::new::<TimesliceProtocol>(seed(&plan)),
                )?;
                let plan = self.measured(&mut venue, &site.hosts(), plan)?;
                watched(&mut venue, &plan, &rest, listener)
            });
        }
        let listener = MetricsListener::bind(self.metrics)?;
        let parts = self.parts(4);
        let (plan, rest) = prepare(parts)?;
        let fabric = Fabric::lab(self.lab_wiring(parts.iter().sum()));
        let spec = LaunchSpec {
            wire: self.job.wire_request()?,
            ..LaunchSpec::new::<TimesliceProtocol>(seed(&plan))
        };
        let mut venue = LabVenue::open(&fabric, &spec)?;
        venue.arm(self.lab_queue())?;
        self.slow.map_or(Ok(()), |rate| venue.slow_first(rate))?;
        let hosts: Vec<_> = (0..parts.iter().sum()).map(|rank| vec![Rank(rank)]).collect();
        let plan = self.measured(&mut venue, &hosts, plan)?;
        watched(&mut venue, &plan, &rest, listener)
    }
}

impl FabricFlags {
    /// Returns where to run.
    pub(super) fn place(&self, network: &NetworkFlags) -> Result<VenueKind> {
        let place = network.place(self.on, VenueKind::Sim)?;
        refuse_elsewhere(
            place,
            &[
                ("--fabric", self.fabric.is_some(), &[VenueKind::Sim]),
                ("--node-rate", self.node_rate.is_some(), &[VenueKind::Sim]),
                ("--node-map", self.node_map.is_some(), &[VenueKind::Sim]),
                ("--packet", self.packet.is_some(), &[VenueKind::Sim]),
            ],
        )?;
        Ok(place)
    }

    /// Returns what flags change of the fabric's hosts.
    pub(super) fn hosts(&self) -> HostConditions {
        HostConditions { rate: self.node_rate, packet: self.packet, ..HostConditions::default() }
    }

    /// Returns the fabric for this many ranks, and its queue of `ground`.
    pub(super) fn open(&self, network: &NetworkFlags, ranks: u32) -> Result<(Fabric, String)> {
        let name = self.name();
        let node_map = self.node_map.unwrap_or_default();
        let fabric = Fabric::machine_placed(name.to_owned(), Some(ranks), node_map);
        let queues = fabric.queues().map_err(|why| anyhow!(why))?;
        let queue = match &network.queue {
            Some(queue) if queues.contains(queue) => queue,
            Some(queue) => {
                wrong_usage!("{queue} is no queue of {name}; there are {}", queues.join(", "))
            }
            None => queues.first().context("the fabric has no queue")?,
        };
        Ok((fabric, queue.clone()))
    }

    /// Returns what is in force of a simulated fabric under `queue`.
    pub(super) fn values(&self, queue: &str) -> FlagValues {
        let mut values = vec![("fabric", self.name().to_owned()), ("queue", queue.to_owned())];
        values.extend(self.node_map.map(|map| ("node-map", map.name().to_owned())));
        values.extend(self.node_rate.map(|rate| ("node-rate", rate.to_string())));
        values.extend(self.packet.map(|packet| ("packet", packet.to_string())));
        values
    }

    /// Returns the fabric's name.
    pub(super) fn name(&self) -> &str {
        self.fabric.as_deref().unwrap_or("aries")
    }
}

impl TimedFlags {
    /// Returns `plan` for the time and the seeds that flags say.
    pub(super) fn extend(&self, plan: TimeslicePlan) -> Result<TimeslicePlan> {
        let warm_up = self.warm_up.map_or(plan.warm_up, |time| time.0);
        let measured = self.measured.map_or(plan.measured, |time| time.0);
        if measured.0 == 0 || measured > TIME_MAX.0 || warm_up > TIME_MAX.0 {
            wrong_usage!(
                "--measured and --warm-up are at most {TIME_MAX}, and something must be measured"
            );
        }
        Ok(TimeslicePlan { warm_up, measured, seeds: self.seed.clone(), ..plan })
    }
}

/// Refuses the first of `flags` that is given and means nothing in `place`.
pub(super) fn refuse_elsewhere(
    place: VenueKind,
    flags: &[(&str, bool, &[VenueKind])],
) -> Result<()> {
    match flags.iter().find(|(_, given, fits)| *given && !fits.contains(&place)) {
        Some((flag, _, fits)) => {
            let fits: Vec<&str> = fits.iter().map(|place| place.name()).collect();
            wrong_usage!(
                "{flag} is for --on {}, and this is --on {}",
                fits.join(" or "),
                place.name()
            )
        }
        None => Ok(()),
    }
}
