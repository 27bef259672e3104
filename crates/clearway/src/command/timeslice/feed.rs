//! Where microslices come from, of which timeslices are built and where these go.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use clearway_proto::base::Bytes;
use clearway_proto::microslice::SizeDistribution;

use super::network::{REAL, refuse_elsewhere};
use crate::mechanism::timeslice::archive::INPUT;
use crate::mechanism::timeslice::{
    BUILDER, BuildSpec, SinkKind, SourceKind, TimeslicePlan, TimesliceShape, TimesliceTask,
};
use crate::run::VenueKind;

/// The longest memory of an input: one span of it is never longer than a span can be.
const MEMORY_MAX: Bytes = Bytes(u32::MAX as u64);
/// What an input holds unless more is asked for, where it need not fill all rings.
const MEMORY: Bytes = Bytes(256 << 20);
/// An input's memory holds descriptors in a sixteenth of it, and the rings' skipped ends need none.
const MEMORY_LEAST: Bytes = Bytes(1 << 20);

/// Timeslices of microslices.
#[derive(Debug, Args)]
#[command(next_help_heading = "In a lab or a job")]
pub(super) struct ShapeFlags {
    /// Microslices of a timeslice that are of no other one [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    timeslice_size: Option<u32>,
    /// Microslices behind them, with which the next timeslice begins [default: 0].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    overlap: Option<u32>,
    /// Lengths of made microslices: constant, poisson, skewed [default: constant].
    #[arg(long, value_name = "LAW")]
    sizes: Option<SizeDistribution>,
    /// Bytes that an input holds until they are built [default: what all its rings hold, 1MiB to
    /// 256MiB].
    #[arg(long, value_name = "BYTES")]
    memory: Option<Bytes>,
}

/// A source that never ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum GeneratedSource {
    /// Made microslices.
    Pattern,
    /// The same bytes again and again.
    Memory,
}

/// A sink that keeps nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum NullSink {
    /// Looks at every microslice.
    Check,
    /// Lets timeslices go when they are complete.
    Discard,
}

/// Of what schedules are compared with.
#[derive(Debug, Args)]
#[command(next_help_heading = "In a lab or a job")]
pub(super) struct GeneratedFlags {
    /// Where microslices come from [default: pattern].
    #[arg(long, value_enum, value_name = "SOURCE")]
    source: Option<GeneratedSource>,
    /// What becomes of timeslices [default: check].
    #[arg(long, value_enum, value_name = "SINK")]
    sink: Option<NullSink>,
}

/// What is built, and where it goes.
#[derive(Debug, Args)]
#[command(next_help_heading = "In a lab or a job")]
pub(super) struct StreamFlags {
    /// Where microslices come from: `pattern` (made), `memory` (the same bytes again and again), or
    /// archives, pipes or sockets with FLESnet's microslices, as in run42_%i.msa, where %i stands
    /// for the number of the input [default: pattern].
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
    /// Where timeslices go: `check` (look at every microslice, keep nothing), `discard`, archives,
    /// as in ts_%b.tsa, where %b stands for the number of the builder, or to a program that comes
    /// in at a socket, as in consumer:/tmp/ts_%b [default: check].
    #[arg(long, value_name = "SINK")]
    sink: Option<String>,
    /// With archives: compress them with zstd, as FLESnet does.
    #[arg(long)]
    compress: bool,
    /// Build this many timeslices; archives without it as a whole.
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
        Ok(BuildSpec { shape: shape.shape(), source, sink, timeslices: None })
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
            bail!("--compress is for archives, as in --sink ts_{BUILDER}.tsa");
        }
        if self.timeslices.is_none() && !matches!(source, SourceKind::Archives(_)) {
            bail!(
                "a source that never ends fills any disk; --timeslices says how many to build, and clearway timeslice compare \
                 builds for a time"
            );
        }
        check_templates(&source, &sink, plan)?;
        Ok(BuildSpec { shape: shape.shape(), source, sink, timeslices: self.timeslices })
    }
}

/// Refuses names of archives that several ranks would share, and sinks that get nothing to keep.
fn check_templates(source: &SourceKind, sink: &SinkKind, plan: &TimeslicePlan) -> Result<()> {
    if let (SourceKind::Archives(template), 2..) = (source, plan.inputs)
        && !template.contains(INPUT)
    {
        bail!(
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
        bail!(
            "--sink {template} is one place, and there are {} builders: write {BUILDER} where the number of the builder stands",
            plan.builders
        );
    }
    if let SourceKind::Memory(_) = source {
        bail!("--sink {template} needs microslices, which --source memory has none of");
    }
    Ok(())
}

impl ShapeFlags {
    /// Refuses a simulated fabric: it carries no bytes.
    pub(super) fn refuse_on_sim(&self) -> Result<()> {
        let given = [
            ("--timeslice-size", self.timeslice_size.is_some(), REAL),
            ("--overlap", self.overlap.is_some(), REAL),
            ("--sizes", self.sizes.is_some(), REAL),
            ("--memory", self.memory.is_some(), REAL),
        ];
        refuse_elsewhere(VenueKind::Sim, &given)
    }

    fn shape(&self) -> TimesliceShape {
        TimesliceShape {
            core: self.timeslice_size.unwrap_or(1),
            overlap: self.overlap.unwrap_or(0),
        }
    }

    /// Returns made microslices for `plan`.
    fn pattern(&self, plan: &TimeslicePlan) -> Result<SourceKind> {
        let mean = mean(plan, self.shape())?;
        Ok(SourceKind::Pattern { sizes: self.sizes.unwrap_or(SizeDistribution::Constant), mean })
    }

    /// Returns what ranks do with `feed` for `plan`, watched as `job`.
    pub(super) fn task(
        &self,
        feed: BuildSpec,
        plan: &TimeslicePlan,
        job: String,
    ) -> Result<TimesliceTask> {
        if self.sizes.is_some() && !matches!(feed.source, SourceKind::Pattern { .. }) {
            bail!(
                "--sizes is for --source pattern; other microslices have the lengths that they have"
            );
        }
        let all = Bytes(plan.ring.0.saturating_mul(u64::from(plan.builders)));
        let memory = self.memory.unwrap_or(all.clamp(MEMORY_LEAST, MEMORY));
        if memory.0 < 1 << 12 || memory > MEMORY_MAX {
            bail!("--memory is {memory}; 4KiB to {MEMORY_MAX} work");
        }
        Ok(TimesliceTask { job, feed, memory })
    }
}

/// Returns the mean length of a content with which contributions are as long as `plan` says.
fn mean(plan: &TimeslicePlan, shape: TimesliceShape) -> Result<u32> {
    let Some(mean) = shape.mean_length(plan.contribution) else {
        bail!(
            "{} are too few for the descriptors of {} microslices: --contribution",
            plan.contribution,
            shape.all()
        );
    };
    Ok(mean)
}
