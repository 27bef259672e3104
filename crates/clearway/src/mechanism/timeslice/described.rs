//! A timeslice as an archive has it, made of what each input gave.

use clearway_proto::archive::{
    Component, ComponentDescriptor, TimesliceDescriptor, TimesliceFlags,
};
use clearway_proto::microslice::{CutFaults, MicrosliceDescriptor, MicrosliceFlags, SliceRule};

use super::contribution::ContributionHead;
use super::ledger::BuiltCounts;

/// A timeslice's number, and its place in the order of its builder.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TimeslicePlace {
    pub(super) timeslice: u64,
    /// How many its builder gave before it.
    pub(super) position: u64,
}

/// A timeslice as an archive has it, and what there is of each input.
#[derive(Debug)]
pub(super) struct DescribedTimeslice<'a> {
    pub(super) descriptor: TimesliceDescriptor,
    pub(super) components: Vec<Component<'a>>,
    pub(super) inputs: Vec<BuiltCounts>,
}

impl<'a> DescribedTimeslice<'a> {
    /// Describes a timeslice of which each input gave one of `parts`.
    pub(super) fn new(
        TimeslicePlace { timeslice, position }: TimeslicePlace,
        parts: impl Iterator<Item = &'a [u8]>,
        slices: SliceRule,
    ) -> Self {
        let mut flags = TimesliceFlags::default();
        let (mut times, mut core_microslices) = (None, None);
        let mut inputs = Vec::with_capacity(parts.size_hint().0);
        let component = |bytes| {
            let contribution = ContributionHead::parse(bytes);
            let (head, data) = contribution.unwrap_or((ContributionHead::NONE, &[][..]));
            inputs.push(BuiltCounts {
                microslices: u64::from(head.core),
                absent: u64::from(bytes.is_empty()),
                corrupt: u64::from(contribution.is_none() && !bytes.is_empty()),
            });
            let own = flags_of(head, data);
            flags.0 |= own.0;
            if head.microslices == 0 {
                flags.0 |= TimesliceFlags::MISSING_COMPONENTS.0;
            } else {
                core_microslices.get_or_insert(head.core);
            }
            times = times.or_else(|| time_of(head, data, slices));
            let descriptor = ComponentDescriptor {
                timeslice,
                offset: 0,
                size: data.len() as u64,
                microslices: u64::from(head.microslices),
                flags: own,
            };
            Component { descriptor, data }
        };
        let components: Vec<_> = parts.map(component).collect();
        let (start_ns, duration_ns) = times.unwrap_or_default();
        let core_microslices = match slices {
            SliceRule::ByIndex { core, .. } => core,
            SliceRule::ByTime(_) => core_microslices.unwrap_or(0),
        };
        let descriptor = TimesliceDescriptor {
            index: timeslice,
            start_ns,
            duration_ns,
            flags,
            position,
            core_microslices,
            components: components.len() as u32,
        };
        DescribedTimeslice { descriptor, components, inputs }
    }
}

/// Returns what a component lacks.
fn flags_of(head: ContributionHead, data: &[u8]) -> TimesliceFlags {
    let (descriptors, _) = data.as_chunks::<{ MicrosliceDescriptor::BYTES }>();
    let mut descriptors =
        descriptors.iter().take(head.microslices as usize).map(MicrosliceDescriptor::from_bytes);
    let is_cut_off =
        descriptors.any(|descriptor| descriptor.flags.has(MicrosliceFlags::OVERFLOW_READOUT));
    let found = [
        (head.faults.has(CutFaults::MISSING), TimesliceFlags::MISSING_MICROSLICES),
        (head.faults.has(CutFaults::REPEATED), TimesliceFlags::REPEATED_MICROSLICES),
        (head.faults.has(CutFaults::LATE), TimesliceFlags::LATE_MICROSLICES),
        (is_cut_off, TimesliceFlags::OVERFLOW_READOUT),
    ];
    let found = found.iter().filter(|(is_found, _)| *is_found);
    TimesliceFlags(found.fold(0, |all, (_, flag)| all | flag.0))
}

/// Returns when a timeslice starts and how long it is, as far as this contribution tells. By index
/// that is the time of the microslices that are no overlap.
fn time_of(head: ContributionHead, data: &[u8], slices: SliceRule) -> Option<(u64, u64)> {
    if let SliceRule::ByTime(times) = slices {
        return Some((head.start?, times.duration.0));
    }
    let (descriptors, _) = data.as_chunks::<{ MicrosliceDescriptor::BYTES }>();
    let descriptors = descriptors.get(..head.microslices as usize)?;
    let start_of =
        |number: usize| Some(MicrosliceDescriptor::from_bytes(descriptors.get(number)?).index);
    let core = head.core as usize;
    let (start, last) = (start_of(0)?, start_of(core.checked_sub(1)?)?);
    let length = match start_of(core) {
        Some(end) => end.wrapping_sub(start),
        // The time from the last microslice to the next one is that from the one before it.
        None => {
            let before = core.checked_sub(2).and_then(start_of).unwrap_or(last);
            last.wrapping_sub(start).wrapping_add(last.wrapping_sub(before))
        }
    };
    Some((start, length))
}

#[cfg(test)]
mod tests {
    use super::super::contribution::tests::contribution;
    use super::*;
    use clearway_proto::base::Nanos;
    use clearway_proto::microslice::TimeRule;

    fn described(parts: &[Vec<u8>], slices: SliceRule) -> DescribedTimeslice<'_> {
        DescribedTimeslice::new(
            TimeslicePlace { timeslice: 4, position: 1 },
            parts.iter().map(Vec::as_slice),
            slices,
        )
    }

    fn with_faults(mut contribution: Vec<u8>, faults: CutFaults) -> Vec<u8> {
        contribution[16] = faults.0 as u8;
        contribution
    }

    #[test]
    fn new__what_an_input_lacks_is_marked() {
        let short = with_faults(contribution(&[8], 0), CutFaults::MISSING);
        let parts = [contribution(&[8, 8, 8], 1), short, Vec::new()];
        let slices = SliceRule::ByIndex { core: 2, overlap: 1 };
        let DescribedTimeslice { descriptor, components, inputs } = described(&parts, slices);
        assert_eq!(inputs.iter().map(|it| it.microslices).collect::<Vec<_>>(), [2, 1, 0]);
        assert_eq!(inputs.iter().map(|it| it.absent).collect::<Vec<_>>(), [0, 0, 1]);
        assert_eq!(
            components.iter().map(|it| it.descriptor.microslices).collect::<Vec<_>>(),
            [3, 1, 0]
        );
        assert_eq!((descriptor.start_ns, descriptor.duration_ns), (100, 20));
        assert_eq!(descriptor.flags.0, 1 | 4);
        let incomplete = components.iter().map(|it| it.descriptor.flags.is_incomplete());
        assert_eq!(incomplete.collect::<Vec<_>>(), [false, true, true]);
    }

    #[test]
    fn new__by_index_a_short_last_timeslice_says_how_long_it_is() {
        let time = |sizes: &[u32], core| {
            let short = with_faults(contribution(sizes, 0), CutFaults::MISSING);
            let slices = SliceRule::ByIndex { core, overlap: 0 };
            let descriptor = described(&[short], slices).descriptor;
            (descriptor.start_ns, descriptor.duration_ns)
        };
        assert_eq!(time(&[8, 8, 8], 5), (100, 30));
        assert_eq!(time(&[8], 5), (100, 0), "one microslice alone tells no time");
    }

    #[test]
    fn new__by_time_the_stretch_is_that_of_the_rule_even_where_all_is_missing() {
        let head = ContributionHead { start: Some(500), ..ContributionHead::NONE };
        let parts = [Vec::new(), head.to_bytes().to_vec()];
        let times = TimeRule {
            duration: Nanos(100),
            before: Nanos(0),
            after: Nanos(0),
            max_gap: Nanos(0),
            silence: None,
            step: None,
        };
        let DescribedTimeslice { descriptor, components, .. } =
            described(&parts, SliceRule::ByTime(times));
        assert_eq!((descriptor.start_ns, descriptor.duration_ns), (500, 100));
        assert!(components.iter().all(|it| it.descriptor.flags.is_incomplete()));
    }

    #[test]
    fn new__what_the_readout_cut_off_is_marked() {
        let mut cut = contribution(&[8, 8], 0);
        cut[ContributionHead::BYTES + MicrosliceDescriptor::BYTES + 4] =
            MicrosliceFlags::OVERFLOW_READOUT.0 as u8;
        let parts = [contribution(&[8, 8], 0), cut];
        let DescribedTimeslice { descriptor, components, .. } =
            described(&parts, SliceRule::ByIndex { core: 2, overlap: 0 });
        let flags = components.iter().map(|it| it.descriptor.flags.0);
        assert_eq!((descriptor.flags.0, flags.collect::<Vec<_>>()), (2, vec![0, 2]));
    }
}
