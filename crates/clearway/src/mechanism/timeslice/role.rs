//! What a rank does in one run: which source or sink it has, and the memory for it.
//!
//! # Model
//! An input gives microslices of a source, or the same memory again and again, or sends what nobody
//! waits for; a builder hands over to a sink, or looks at nothing. Each has one region, which lives
//! longer than the run.
//!
//! # Not here
//! Orders, and what the engine gets: `rank_host`.

use anyhow::{Result, anyhow};
use clearway_proto::base::Bytes;
use clearway_proto::timeslice::{
    ContributionSizes, ContributionSource, ContributionSpans, Policy, Role,
};
use clearway_proto::wire::{RegionId, Span};
use clearway_runtime::waiting::Waitable;

use super::archive::{INPUT, filled};
use super::builder_output::BuilderOutput;
use super::input_buffer::InputBuffer;
use super::messages::{SinkKind, SourceKind, TimesliceAssignment, TimesliceResult};
use super::source::MicrosliceSource;
use super::stream::look;

/// The region that this rank has, once it has one: every run uses it, since a wire keeps what was
/// registered.
#[derive(Default)]
pub(super) struct TimesliceMemory(Option<Span64>);

#[derive(Clone, Copy)]
struct Span64 {
    region: RegionId,
    length: Bytes,
}

impl TimesliceMemory {
    /// Returns a region of at least `length`.
    fn region(&mut self, wire: &mut dyn Waitable, length: Bytes) -> Result<RegionId> {
        if let Some(own) = self.0.filter(|own| own.length >= length) {
            return Ok(own.region);
        }
        let region = wire.register(length);
        let region = region.map_err(|_| {
            anyhow!("{length} of memory that peers can write to are not to be had here")
        })?;
        self.0 = Some(Span64 { region, length });
        Ok(region)
    }
}

/// What this rank does in a run.
pub(super) enum TimesliceRole {
    /// An input with microslices.
    Input(Box<InputBuffer>),
    /// An input that gives the same memory again and again.
    Same(RepeatedSpan),
    /// An input that has everything already, and sends it unscheduled.
    Endless { given: u64 },
    /// A builder with a sink.
    Builder(Box<BuilderOutput>),
    /// A builder that looks at nothing.
    Discard { account: TimesliceResult },
}

impl TimesliceRole {
    /// Returns what the rank does whose `role` has its number, the region that it does it with, and what its node
    /// knows of that.
    ///
    /// # Errors
    /// A sentence when the source or sink cannot be opened, or there is no such memory.
    pub(super) fn new(
        role: Role,
        wire: &mut dyn Waitable,
        assignment: &TimesliceAssignment,
        memory: &mut TimesliceMemory,
    ) -> Result<(Self, RegionId, ContributionSource)> {
        match role {
            Role::Input(number) => input(wire, assignment, memory, number),
            Role::Builder(number) => {
                let rings = Bytes(assignment.ring.0 * u64::from(assignment.inputs));
                Ok((
                    builder(assignment, number)?,
                    memory.region(wire, rings)?,
                    ContributionSource::Given,
                ))
            }
        }
    }

    /// Returns what a rank has done without a sink, as often as it is asked: one that retires at the
    /// end says it when it has ended, and again when it is out.
    pub(super) fn result(&self) -> TimesliceResult {
        match self {
            Self::Input(input_buffer) => TimesliceResult {
                cut: input_buffer.cut,
                source: input_buffer.account(),
                ..TimesliceResult::default()
            },
            Self::Discard { account } => account.clone(),
            // What a builder has is at its sink.
            Self::Same(_) | Self::Endless { .. } | Self::Builder(_) => TimesliceResult::default(),
        }
    }
}

/// Gives one span again and again, as often as rings can ask for it.
pub(super) struct RepeatedSpan {
    span: Span,
    pub(super) given: u64,
    pub(super) free: u64,
    pub(super) limit: u64,
    /// The limit unless an order changes it.
    pub(super) most: u64,
    ahead: u64,
}

impl RepeatedSpan {
    pub(super) fn pump(&mut self, give: &mut dyn FnMut(ContributionSpans)) {
        while self.given < self.limit && self.given - self.free < self.ahead {
            give(ContributionSpans::new([self.span]).expect("a span with bytes"));
            self.given += 1;
        }
    }
}

/// Returns what the input of this `number` does.
fn input(
    wire: &mut dyn Waitable,
    assignment: &TimesliceAssignment,
    memory: &mut TimesliceMemory,
    number: usize,
) -> Result<(TimesliceRole, RegionId, ContributionSource)> {
    let feed = &assignment.feed;
    let region = memory.region(wire, assignment.memory)?;
    let length = feed.usual_contribution().0.min(assignment.memory.0);
    let span = Span { region, offset: 0, length: length as u32 };
    // Nobody waits for what is unscheduled, so nobody says when its memory is free.
    if !assignment.policy.is_building() {
        let sizes = match feed.source {
            SourceKind::Mixed(length) => ContributionSizes::Mixed(length),
            _ => ContributionSizes::Constant(Bytes(length)),
        };
        return Ok((
            TimesliceRole::Endless { given: 0 },
            region,
            ContributionSource::Endless(span, sizes),
        ));
    }
    if assignment.restart.is_some() {
        check_source(&feed.source, number)?;
    }
    let part = match MicrosliceSource::open(feed, number as u64, assignment.seed)? {
        Some(source) => {
            let input_buffer =
                InputBuffer::new(feed.slices, source, region, assignment.memory, feed.timeslices)?;
            TimesliceRole::Input(Box::new(input_buffer))
        }
        None => {
            let in_rings = (assignment.ring.0 / length.max(1) + 1) * u64::from(assignment.builders);
            let most = feed.timeslices.unwrap_or(u64::MAX);
            TimesliceRole::Same(RepeatedSpan {
                span,
                given: 0,
                free: 0,
                limit: most,
                most,
                ahead: in_rings,
            })
        }
    };
    Ok((part, region, ContributionSource::Given))
}

/// Refuses archives of the input of this `number` that cannot be read here: where it takes the
/// place of another process, nobody has looked for them on its host.
fn check_source(source: &SourceKind, number: usize) -> Result<()> {
    match source {
        SourceKind::Archives(template) => {
            look(&filled(template, INPUT, number as u64).to_string_lossy())
        }
        SourceKind::Pattern(_) | SourceKind::Memory(_) | SourceKind::Mixed(_) => Ok(()),
    }
}

/// Returns what the builder of this `number` does.
fn builder(assignment: &TimesliceAssignment, number: usize) -> Result<TimesliceRole> {
    let feed = &assignment.feed;
    Ok(match (&feed.sink, &feed.source, assignment.policy) {
        (SinkKind::Discard, ..)
        | (_, SourceKind::Memory(_), _)
        | (.., Policy::Raw | Policy::Put) => {
            TimesliceRole::Discard { account: TimesliceResult::default() }
        }
        (sink, ..) => {
            TimesliceRole::Builder(Box::new(BuilderOutput::open(sink, number as u64, feed.slices)?))
        }
    })
}

#[cfg(test)]
mod tests {
    //! What ranks without a sink say at the end, and what ranks on another host look for.

    use super::*;

    #[test]
    fn result__a_builder_that_retires_at_the_end_says_the_same_when_it_is_out() {
        let mut account = TimesliceResult::default();
        (0..3).for_each(|timeslice| account.take(timeslice));
        let role = TimesliceRole::Discard { account };
        let counts = [role.result(), role.result()].map(|said| said.taken.count());
        assert_eq!(counts, [3, 3], "who hears both keeps the later one");
    }

    #[test]
    fn check_source__archives_that_are_not_on_this_host_are_refused_by_name() {
        let gone = SourceKind::Archives("/nowhere/run_%i.msa".to_owned());
        let refusal = check_source(&gone, 3).expect_err("it is not there");
        let sentence = format!("{refusal:#}");
        assert!(sentence.contains("/nowhere/run_3.msa: cannot be read"), "{sentence}");
        assert!(check_source(&SourceKind::Memory(Bytes(64)), 3).is_ok());
    }
}
