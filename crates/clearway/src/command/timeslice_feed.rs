//! `clearway timeslice`: where microslices come from, of which timeslices are built and where these go.

use anyhow::{Result, bail};
use clap::Args;
use clearway_proto::base::Bytes;
use clearway_proto::microslice::Sizes;

use crate::mechanism::timeslice::archive::INPUT;
use crate::mechanism::timeslice::{BUILDER, Feed, Plan, Shape, SinkKind, SourceKind, Task};

/// The longest memory of an input: one span of it is never longer than a span can be.
const MEMORY_MAX: Bytes = Bytes(u32::MAX as u64);
/// What an input holds unless more is asked for, where it need not fill all rings.
const MEMORY: Bytes = Bytes(256 << 20);
/// An input's memory holds descriptors in a sixteenth of it, and the rings' skipped ends need none.
const MEMORY_LEAST: Bytes = Bytes(1 << 20);

/// In a lab or a job: microslices and timeslices.
#[derive(Debug, Args)]
#[command(next_help_heading = "In a lab or a job")]
pub(super) struct FeedFlags {
    /// Where microslices come from: `pattern` (made), `memory` (the same bytes again and again), or archives, pipes or sockets with
    /// FLESnet's microslices, as in run42_%i.msa, where %i stands for the number of the input [default: pattern].
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
    /// Where timeslices go: `check` (look at every microslice, keep nothing), `discard`, archives, as in ts_%b.tsa, where %b stands
    /// for the number of the builder, or to a program that comes in at a socket, as in consumer:/tmp/ts_%b [default: check].
    #[arg(long, value_name = "SINK")]
    sink: Option<String>,
    /// With archives: compress them with zstd, as FLESnet does.
    #[arg(long)]
    compress: bool,
    /// Microslices of a timeslice that are of no other one [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    timeslice_size: Option<u32>,
    /// Microslices behind them, with which the next timeslice begins [default: 0].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    overlap: Option<u32>,
    /// Build so many timeslices, not for a time.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    timeslices: Option<u64>,
    /// Lengths of made microslices: constant, poisson, skewed [default: constant].
    #[arg(long, value_name = "LAW")]
    sizes: Option<Sizes>,
    /// The name under which `clearway timeslice watch` finds this run [default: the number of its process].
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
    /// Bytes that an input holds until they are built [default: what all its rings hold, 1MiB to 256MiB].
    #[arg(long, value_name = "BYTES")]
    memory: Option<Bytes>,
}

impl FeedFlags {
    /// A simulated fabric carries no bytes.
    pub(super) fn refuse_on_sim(&self) -> Result<()> {
        let given = [
            ("--source", self.source.is_some()),
            ("--sink", self.sink.is_some()),
            ("--compress", self.compress),
            ("--timeslice-size", self.timeslice_size.is_some()),
            ("--overlap", self.overlap.is_some()),
            ("--timeslices", self.timeslices.is_some()),
            ("--sizes", self.sizes.is_some()),
            ("--memory", self.memory.is_some()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((flag, _)) => bail!("{flag} is for --on lab or --on cluster: a simulated fabric carries no bytes"),
            None => Ok(()),
        }
    }

    /// Whether it is over when so many timeslices are built, and not after a time.
    pub(super) fn is_counted(&self) -> bool {
        let is_endless = matches!(self.source.as_deref(), None | Some("pattern" | "memory"));
        self.timeslices.is_some() || !is_endless
    }

    /// What ranks shall do for `plan`.
    pub(super) fn task(&self, plan: &Plan) -> Result<Task> {
        let shape = Shape { core: self.timeslice_size.unwrap_or(1), overlap: self.overlap.unwrap_or(0) };
        let source = match self.source.as_deref() {
            None | Some("pattern") => {
                SourceKind::Pattern { sizes: self.sizes.unwrap_or(Sizes::Constant), mean: mean(plan, shape)? }
            }
            Some("memory") => SourceKind::Memory(plan.contribution),
            Some(template) => SourceKind::Archives(template.to_owned()),
        };
        if self.sizes.is_some() && !matches!(source, SourceKind::Pattern { .. }) {
            bail!("--sizes is for --source pattern; other microslices have the lengths that they have");
        }
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
        if let (SourceKind::Archives(template), 2..) = (&source, plan.inputs)
            && !template.contains(INPUT)
        {
            bail!(
                "--source {template} is one archive, and there are {} inputs: write {INPUT} where the number of the input stands",
                plan.inputs
            );
        }
        let kept_in = match &sink {
            SinkKind::Check | SinkKind::Discard => None,
            SinkKind::Archives(template) | SinkKind::Compressed(template) | SinkKind::Consumer(template) => {
                Some(template)
            }
        };
        if let (Some(template), 2..) = (kept_in, plan.builders)
            && !template.contains(BUILDER)
        {
            bail!(
                "--sink {template} is one place, and there are {} builders: write {BUILDER} where the number of the builder stands",
                plan.builders
            );
        }
        if let (SourceKind::Memory(_), Some(template)) = (&source, kept_in) {
            bail!("--sink {template} needs microslices, which --source memory has none of");
        }
        let all = Bytes(plan.ring.0.saturating_mul(u64::from(plan.builders)));
        let memory = self.memory.unwrap_or(all.clamp(MEMORY_LEAST, MEMORY));
        if memory.0 < 1 << 12 || memory > MEMORY_MAX {
            bail!("--memory is {memory}; 4KiB to {MEMORY_MAX} work");
        }
        let is_timed = self.timeslices.is_none() && !matches!(source, SourceKind::Archives(_)) && kept_in.is_none();
        if !is_timed && (plan.policies.len() > 1 || plan.seeds.len() > 1) {
            bail!(
                "--policy and --seed take one each where timeslices are counted or kept; schedules are compared without"
            );
        }
        if !is_timed && self.timeslices.is_none() && !matches!(source, SourceKind::Archives(_)) {
            bail!("a source that never ends fills any disk; --timeslices says how many to build");
        }
        let job = self.job.clone().unwrap_or_else(|| std::process::id().to_string());
        Ok(Task { job, feed: Feed { shape, source, sink, timeslices: self.timeslices }, memory, is_timed })
    }
}

/// Mean length of a content with which contributions are as long as `plan` says.
fn mean(plan: &Plan, shape: Shape) -> Result<u32> {
    let Some(mean) = shape.mean_length(plan.contribution) else {
        bail!("{} are too few for the descriptors of {} microslices: --contribution", plan.contribution, shape.all());
    };
    Ok(mean)
}
