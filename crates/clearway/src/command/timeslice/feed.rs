//! Options that choose the source of microslices, the rule that cuts timeslices, and their sink.

use anyhow::Result;
use clap::{Args, ValueEnum};
use clearway_proto::base::{BitsPerSec, Bytes, Nanos};
use clearway_proto::microslice::{MicrosliceDescriptor, SizeDistribution, SliceRule, TimeRule};

use super::network::{REAL, refuse_elsewhere};
use crate::mechanism::timeslice::archive::INPUT;
use crate::mechanism::timeslice::{
    BUILDER, BuildSpec, MadeMicroslices, SinkKind, SourceKind, TimeslicePlan, TimesliceTask,
    mean_length,
};
use crate::run::VenueKind;
use crate::run::exit::wrong_usage;
use crate::scenario::Time;

/// The longest memory of an input: one span of it is never longer than a span can be.
const MEMORY_MAX: Bytes = Bytes(u32::MAX as u64);
/// What an input holds unless more is asked for, where it need not fill all rings.
const MEMORY: Bytes = Bytes(256 << 20);
/// An input's memory holds descriptors in a sixteenth of it, and the rings' skipped ends need none.
const MEMORY_LEAST: Bytes = Bytes(1 << 20);

/// The usual timeslice: FLESnet's.
const DURATION: Nanos = Nanos::from_millis(40);
/// The longest gap between microslices, and between the first ones of inputs: a run is begun by hand
/// within a minute everywhere. A longer one is another run, or a clock that is not set.
const MAX_GAP: Nanos = Nanos::from_secs(60);
/// How long a silent input is waited for: FLESnet's builders publish without it after as long.
const SILENCE: Nanos = Nanos::from_secs(1);
/// The shortest timeslice: a hundredth of FLESnet's usual microslice.
const DURATION_LEAST: Nanos = Nanos::from_micros(1);
/// Empty timeslices of one gap at most: seconds of the work of a run.
const GAP_TIMESLICES_MAX: u64 = 1_000_000;

/// What a detector holds: FLESnet's readout has as much for each channel at least.
const DETECTOR_BUFFER: Bytes = Bytes(64 << 20);

/// The rule that cuts timeslices, and the microslices of generated sources.
#[derive(Debug, Args)]
#[command(next_help_heading = "In a lab or a job")]
pub(super) struct ShapeFlags {
    /// Cut timeslices by the time at which microslices start, or by their number [default: time for
    /// archives, pipes and sockets; else index].
    #[arg(long, value_enum, value_name = "RULE")]
    slice: Option<SliceChoice>,
    /// By time: set the experiment time that a timeslice covers [default: 40ms, as FLESnet].
    #[arg(long, value_name = "TIME")]
    duration: Option<Time>,
    /// By time: add the microslices that start up to TIME before a timeslice [default: 0s].
    #[arg(long, value_name = "TIME")]
    before: Option<Time>,
    /// By time: add the microslices that start less than TIME after the end of a timeslice
    /// [default: 0s].
    #[arg(long, value_name = "TIME")]
    after: Option<Time>,
    /// By time: expect a microslice every TIME, and count the missing ones [default: the step that
    /// the microslices show].
    #[arg(long, value_name = "TIME")]
    microslice: Option<Time>,
    /// By time: count a microslice as damaged if it starts more than TIME after the one before it,
    /// and refuse a run whose inputs start further apart [default: 60s].
    #[arg(long, value_name = "TIME")]
    max_gap: Option<Time>,
    /// By time: wait for a silent pipe, socket or detector until TIME after the timeslice's end,
    /// then build what came. For files the wait has no limit [default: 1s].
    #[arg(long, value_name = "TIME")]
    silence: Option<Time>,
    /// By index: set the number of microslices in the core of a timeslice, which no other
    /// timeslice's core has; 1 to 1000000 [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    timeslice_size: Option<u32>,
    /// By index: add N microslices after the core, with which the next timeslice begins; up to
    /// 1000000 [default: 0].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    overlap: Option<u32>,
    /// With --source pattern: draw the lengths of microslices from a law: constant, poisson, skewed
    /// [default: constant].
    #[arg(long, value_name = "LAW")]
    sizes: Option<SizeDistribution>,
    /// With --source pattern: make microslices at a fixed rate for each input, as a detector does,
    /// such as 100Mb/s. The rate does not drop when the input falls behind [default: as fast as the
    /// input takes them].
    #[arg(long, value_name = "RATE")]
    source_rate: Option<BitsPerSec>,
    /// With --source-rate: set the buffer of a detector. While it is full, new microslices are
    /// dropped and counted [default: 64MiB].
    #[arg(long, value_name = "BYTES")]
    source_buffer: Option<Bytes>,
    /// Set the memory of an input for microslices that are not built yet, 4KiB to less than 4GiB
    /// [default: the size of all its rings, but 1MiB to 256MiB].
    #[arg(long, value_name = "BYTES")]
    memory: Option<Bytes>,
}

/// What decides in which timeslice a microslice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SliceChoice {
    /// The time at which it starts.
    Time,
    /// Its number in its input.
    Index,
}

/// A source that never ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum GeneratedSource {
    /// Generates microslices.
    Pattern,
    /// Sends the same bytes again and again.
    Memory,
}

/// A sink that keeps nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum NullSink {
    /// Checks every microslice.
    Check,
    /// Drops complete timeslices.
    Discard,
}

/// The source and the sink of a comparison.
#[derive(Debug, Args)]
#[command(next_help_heading = "In a lab or a job")]
pub(super) struct GeneratedFlags {
    /// Choose the source of microslices [default: pattern].
    #[arg(long, value_enum, value_name = "SOURCE")]
    source: Option<GeneratedSource>,
    /// Choose the sink of timeslices [default: check].
    #[arg(long, value_enum, value_name = "SINK")]
    sink: Option<NullSink>,
}

/// The source and the sink of a run that builds, and its length.
#[derive(Debug, Args)]
#[command(next_help_heading = "In a lab or a job")]
pub(super) struct StreamFlags {
    /// Choose the source of microslices: `pattern` (generated), `memory` (the same bytes again and
    /// again), or archives, pipes or sockets with FLESnet's microslices, as in run42_%i.msa, where
    /// %i stands for the number of the input [default: pattern].
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
    /// Choose the sink of timeslices: `check` (check every microslice, keep nothing), `discard`
    /// (keep nothing), archives, as in ts_%b.tsa, where %b stands for the number of the builder, or
    /// a program that connects to a socket, as in consumer:/tmp/ts_%b [default: check].
    #[arg(long, value_name = "SINK")]
    sink: Option<String>,
    /// Compress archives of the sink with zstd, as FLESnet does.
    #[arg(long)]
    compress: bool,
    /// Build N timeslices; required unless the source is archives [default: all of the archives].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    timeslices: Option<u64>,
}

impl GeneratedFlags {
    /// Refuses a simulated fabric: it carries no bytes.
    pub(super) fn refuse_on_sim(&self) -> Result<()> {
        let given =
            [("--source", self.source.is_some(), REAL), ("--sink", self.sink.is_some(), REAL)];
        refuse_elsewhere(VenueKind::Sim, &given)
    }

    /// Returns what ranks build for `plan`.
    pub(super) fn feed(&self, shape: &ShapeFlags, plan: &TimeslicePlan) -> Result<BuildSpec> {
        let source = match self.source {
            None | Some(GeneratedSource::Pattern) => shape.pattern(plan)?,
            Some(GeneratedSource::Memory) => SourceKind::Memory(plan.contribution),
        };
        let sink = match self.sink {
            None | Some(NullSink::Check) => SinkKind::Check,
            Some(NullSink::Discard) => SinkKind::Discard,
        };
        Ok(BuildSpec { slices: shape.slices(SliceChoice::Index)?, source, sink, timeslices: None })
    }
}

impl StreamFlags {
    /// Returns what ranks build for `plan`.
    pub(super) fn feed(&self, shape: &ShapeFlags, plan: &TimeslicePlan) -> Result<BuildSpec> {
        let source = match self.source.as_deref() {
            None | Some("pattern") => shape.pattern(plan)?,
            Some("memory") => SourceKind::Memory(plan.contribution),
            Some(template) => SourceKind::Archives(template.to_owned()),
        };
        let sink = match self.sink.as_deref() {
            None | Some("check") => SinkKind::Check,
            Some("discard") => SinkKind::Discard,
            Some(template) => match template.strip_prefix("consumer:") {
                Some(socket) => SinkKind::Consumer(socket.to_owned()),
                None if self.compress => SinkKind::Compressed(template.to_owned()),
                None => SinkKind::Archives(template.to_owned()),
            },
        };
        if self.compress && !matches!(sink, SinkKind::Compressed(_)) {
            wrong_usage!("--compress needs archives as the sink, as in --sink ts_{BUILDER}.tsa");
        }
        if self.timeslices.is_none() && !matches!(source, SourceKind::Archives(_)) {
            wrong_usage!(
                "a source that never ends fills any disk; --timeslices says how many to build, and clearway timeslice compare \
                 builds for a time"
            );
        }
        check_templates(&source, &sink, plan)?;
        let usual = match source {
            SourceKind::Archives(_) => SliceChoice::Time,
            _ => SliceChoice::Index,
        };
        let slices = shape.slices(usual)?;
        Ok(BuildSpec { slices, source, sink, timeslices: self.timeslices })
    }
}

/// Refuses names of archives that several ranks would share, and sinks that get nothing to keep.
fn check_templates(source: &SourceKind, sink: &SinkKind, plan: &TimeslicePlan) -> Result<()> {
    if let (SourceKind::Archives(template), 2..) = (source, plan.inputs)
        && !template.contains(INPUT)
    {
        wrong_usage!(
            "--source {template} is one archive, and there are {} inputs: write {INPUT} where the number of the input stands",
            plan.inputs
        );
    }
    let (SinkKind::Archives(template)
    | SinkKind::Compressed(template)
    | SinkKind::Consumer(template)) = sink
    else {
        return Ok(());
    };
    if plan.builders > 1 && !template.contains(BUILDER) {
        wrong_usage!(
            "--sink {template} is one place, and there are {} builders: write {BUILDER} where the number of the builder stands",
            plan.builders
        );
    }
    if let SourceKind::Memory(_) = source {
        wrong_usage!(
            "--sink {template} needs microslices, and --source memory has none; --source pattern has"
        );
    }
    Ok(())
}

impl ShapeFlags {
    /// Refuses a simulated fabric: it carries no bytes.
    pub(super) fn refuse_on_sim(&self) -> Result<()> {
        let given = [
            ("--slice", self.slice.is_some(), REAL),
            ("--sizes", self.sizes.is_some(), REAL),
            ("--source-rate", self.source_rate.is_some(), REAL),
            ("--source-buffer", self.source_buffer.is_some(), REAL),
            ("--memory", self.memory.is_some(), REAL),
        ];
        let shape = self.index_flags().into_iter().chain(self.time_flags());
        let given: Vec<_> =
            given.into_iter().chain(shape.map(|(flag, is_given)| (flag, is_given, REAL))).collect();
        refuse_elsewhere(VenueKind::Sim, &given)
    }

    /// Returns the rule that the flags ask for; without any that say so, the `usual` one.
    fn slices(&self, usual: SliceChoice) -> Result<SliceRule> {
        let first = |flags: &[(&'static str, bool)]| {
            flags.iter().find(|(_, is_given)| *is_given).map(|(flag, _)| *flag)
        };
        let by_index = first(&self.index_flags());
        let by_time = first(&self.time_flags());
        let choice = match (self.slice, by_index, by_time) {
            (Some(SliceChoice::Time), Some(flag), _) => {
                wrong_usage!("{flag} is for timeslices by index; --slice index cuts them so")
            }
            (Some(SliceChoice::Index), _, Some(flag)) => {
                wrong_usage!("{flag} is for timeslices by time; --slice time cuts them so")
            }
            (None, Some(index), Some(time)) => wrong_usage!(
                "{index} is for timeslices by index and {time} for timeslices by time; give those of one kind"
            ),
            (Some(choice), ..) => choice,
            (None, Some(_), None) => SliceChoice::Index,
            (None, None, Some(_)) => SliceChoice::Time,
            (None, None, None) => usual,
        };
        if choice == SliceChoice::Index {
            let (core, overlap) = (self.timeslice_size.unwrap_or(1), self.overlap.unwrap_or(0));
            return Ok(SliceRule::ByIndex { core, overlap });
        }
        let nanos = |time: Option<Time>, usual| time.map_or(usual, |Time(nanos)| nanos);
        let times = TimeRule {
            duration: nanos(self.duration, DURATION),
            before: nanos(self.before, Nanos(0)),
            after: nanos(self.after, Nanos(0)),
            max_gap: nanos(self.max_gap, MAX_GAP),
            silence: Some(nanos(self.silence, SILENCE)),
            step: self.microslice.map(|Time(nanos)| nanos),
        };
        if times.duration.0 == 0 || times.step == Some(Nanos(0)) {
            wrong_usage!(
                "--duration and --microslice are longer than nothing, as in --duration 10ms"
            );
        }
        let least = Nanos(times.max_gap.0.div_ceil(GAP_TIMESLICES_MAX)).max(DURATION_LEAST);
        if times.duration < least {
            wrong_usage!(
                "--duration {} makes up to {} timeslices of one gap of {} (--max-gap); {} and longer works",
                Time(times.duration),
                times.max_gap.0 / times.duration.0,
                Time(times.max_gap),
                Time(least)
            );
        }
        Ok(SliceRule::ByTime(times))
    }

    fn index_flags(&self) -> [(&'static str, bool); 2] {
        [("--timeslice-size", self.timeslice_size.is_some()), ("--overlap", self.overlap.is_some())]
    }

    fn time_flags(&self) -> [(&'static str, bool); 6] {
        [
            ("--duration", self.duration.is_some()),
            ("--before", self.before.is_some()),
            ("--after", self.after.is_some()),
            ("--microslice", self.microslice.is_some()),
            ("--max-gap", self.max_gap.is_some()),
            ("--silence", self.silence.is_some()),
        ]
    }

    /// Returns made microslices for `plan`.
    fn pattern(&self, plan: &TimeslicePlan) -> Result<SourceKind> {
        let slices = self.slices(SliceChoice::Index)?;
        let sizes = self.sizes.unwrap_or(SizeDistribution::Constant);
        let Some(rate) = self.source_rate else {
            if self.source_buffer.is_some() {
                wrong_usage!("--source-buffer needs --source-rate, as in --source-rate 100Mb/s");
            }
            let mean = mean(plan, slices)?;
            return Ok(SourceKind::Pattern(MadeMicroslices::unpaced(sizes, mean)));
        };
        let buffer = Some(self.source_buffer.unwrap_or(DETECTOR_BUFFER));
        let descriptor = MicrosliceDescriptor::BYTES as u64;
        let made = match slices {
            // The length of contributions says that of microslices, and the rate when they come.
            SliceRule::ByIndex { .. } => {
                let mean = mean(plan, slices)?;
                let step = rate.time_for(Bytes(u64::from(mean) + descriptor));
                MadeMicroslices { sizes, mean, step, buffer }
            }
            // The rate says how long they are.
            SliceRule::ByTime(_) => {
                let usual = MadeMicroslices::unpaced(sizes, 0);
                let bytes = rate.bytes_in(usual.step).0.saturating_sub(descriptor) / 8 * 8;
                let mean = u32::try_from(bytes).unwrap_or(u32::MAX / 8 * 8);
                MadeMicroslices { mean, buffer, ..usual }
            }
        };
        if made.mean < 8 || made.step.0 == 0 {
            wrong_usage!(
                "--source-rate {rate} makes no microslices of 8 bytes and more; 10Mb/s does"
            );
        }
        Ok(SourceKind::Pattern(made))
    }

    /// Returns what ranks do with `feed` for `plan`, watched as `job`.
    pub(super) fn task(
        &self,
        feed: BuildSpec,
        plan: &TimeslicePlan,
        job: String,
    ) -> Result<TimesliceTask> {
        let is_made = matches!(feed.source, SourceKind::Pattern(_));
        if (self.source_rate.is_some() || self.source_buffer.is_some()) && !is_made {
            wrong_usage!("--source-rate and --source-buffer are for --source pattern");
        }
        if self.sizes.is_some() && !is_made {
            wrong_usage!(
                "--sizes works only with --source pattern; other sources set the lengths themselves"
            );
        }
        let all = Bytes(plan.ring.0.saturating_mul(u64::from(plan.builders)));
        let memory = self.memory.unwrap_or(all.clamp(MEMORY_LEAST, MEMORY));
        if memory.0 < 1 << 12 || memory > MEMORY_MAX {
            wrong_usage!("--memory is {memory}; 4KiB to {MEMORY_MAX} work");
        }
        Ok(TimesliceTask { job, feed, memory })
    }
}

/// Returns the mean length of a content with which contributions are as long as `plan` says.
fn mean(plan: &TimeslicePlan, slices: SliceRule) -> Result<u32> {
    let Some(mean) = mean_length(slices, plan.contribution) else {
        wrong_usage!(
            "--contribution is {}, which is too short for the descriptors of its microslices; a longer one works",
            plan.contribution
        );
    };
    Ok(mean)
}
