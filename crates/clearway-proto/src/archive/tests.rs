//! Archives from bytes laid out by hand, from files that FLESnet wrote, and from anything at all.

use super::*;
use crate::base::Nanos;
use crate::microslice::{
    Checksum, Generator, GeneratorPlan, Microslice, MicrosliceDescriptor, SizeDistribution,
};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::convert::Infallible;
use proptest::prelude::*;

const LIMITS: Limits = Limits { item_bytes: 1 << 20 };

const SIGNATURE: &[u8] =
    b"\x16\0\0\0\0\0\0\0serialization::archive\x0a\0\x04\x08\x04\x08\x01\0\0\0";

/// Returns an archive of microslices as FLESnet 1.0 wrote them: two, of 3 and of no bytes.
fn microslices_by_hand() -> Vec<u8> {
    let parts: [&[u8]; 11] = [
        SIGNATURE,
        &[0, 1, 0, 0, 0, 1, 0, 0, 0], // class of the header, version 1; microslices
        &[0x00, 0xf1, 0x53, 0x65, 0, 0, 0, 0], // 1700000000 s
        b"\x04\0\0\0\0\0\0\0host\x02\0\0\0\0\0\0\0me",
        &[0; 10], // classes of microslice and descriptor, version 0
        &[0xdd, 1, 2, 0, 1, 0, 0xf0, 0x10, 5, 0, 0, 0, 0, 0, 0, 0],
        &[0xb7, 0x3f, 0x4b, 0x36, 3, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0],
        b"\x03\0\0\0\0\0\0\0abc",
        &[0xdd, 1, 2, 0, 0, 0, 0xf0, 0x10, 6, 0, 0, 0, 0, 0, 0, 0],
        &[0, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0],
        &[0; 8],
    ];
    parts.concat()
}

/// Returns an archive of timeslices as FLESnet writes them since 2026: one without components, one
/// with two, of one microslice and none.
fn timeslices_by_hand() -> Vec<u8> {
    let parts: [&[u8]; 21] = [
        SIGNATURE,
        &[0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], // class of the header, version 2; timeslices, not compressed
        &[0xff; 8],                               // one second before 1970
        &[0; 16],                                 // no host, no user
        &[0, 0, 0, 0, 0, 0, 2, 0, 0, 0],          // classes of timeslice (0) and descriptor (2)
        &[7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0], // index, start, duration
        &[8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0], // flags, position, core, components
        &[0; 5 + 12], // class of the list; it is empty
        &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], // and so is the list of descriptors, of version 1
        &[8, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0],
        &[0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0],
        &[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], // the list has no class any more: two elements
        &[34, 0, 0, 0, 0, 0, 0, 0],
        &[
            0xdd, 1, 0, 0, 0, 0, 0x10, 0x20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 99, 0,
            0, 0, 0, 0, 0, 0,
        ],
        b"xy",
        &[0; 8],
        &[2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0],
        &[0, 1, 0, 0, 0], // the first descriptor of a component: its class, version 1
        &[
            8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 34, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0,
            0, 0, 0, 0, 0, 0, 0,
        ],
        &[8, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], // no microslices, which are missing
    ];
    parts.concat()
}

/// What came of reading.
#[derive(Debug, PartialEq)]
struct ReadOutcome {
    header: Option<Header>,
    end: Result<Remainder, ArchiveError>,
    /// Everything that was read, written again.
    again: Vec<u8>,
    tally: InspectionSummary,
}

/// Writes behind what is there.
fn behind_of(bytes: &mut Vec<u8>) -> impl FnMut(&[u8]) -> Result<(), Infallible> {
    |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    }
}

/// Reads `bytes`, given in pieces of the lengths that `pieces` repeats, and writes what was read.
fn read(bytes: &[u8], limits: Limits, pieces: &[usize]) -> ReadOutcome {
    let mut reader = Reader::new(limits);
    let (mut end, mut again, mut writer, mut inspector) =
        (None, Vec::new(), None, Inspector::default());
    let mut lengths = pieces.iter().cycle();
    let mut rest = bytes;
    while end.is_none() {
        let (mut piece, behind) =
            rest.split_at(rest.len().min(*lengths.next().unwrap_or(&usize::MAX)));
        rest = behind;
        loop {
            match reader.feed(&mut piece) {
                Ok(Some(Parsed::Header)) => again = Writer::new(reader.header().unwrap()).1,
                Ok(Some(Parsed::Item)) => {
                    let (header, item) = (reader.header().unwrap(), reader.item().unwrap());
                    inspector.look(&item, header.versions);
                    let writer = writer.get_or_insert_with(|| Writer::new(header).0);
                    let mut put = behind_of(&mut again);
                    let Ok(()) = match item {
                        Item::Microslice(microslice) => writer.microslice(&microslice, &mut put),
                        Item::Timeslice(timeslice) => writer.timeslice(
                            &timeslice.descriptor,
                            timeslice.components(),
                            &mut put,
                        ),
                    };
                }
                Ok(None) if !rest.is_empty() => break,
                Ok(None) => end = Some(Ok(reader.rest())),
                Err(error) => end = Some(Err(error)),
            }
            if end.is_some() {
                break;
            }
        }
    }
    ReadOutcome {
        header: reader.header().cloned(),
        end: end.unwrap(),
        again,
        tally: inspector.tally().clone(),
    }
}

fn fault(bytes: &[u8], limits: Limits) -> String {
    read(bytes, limits, &[7]).end.unwrap_err().to_string()
}

/// Returns `bytes` with `new` in the place of what is at `at`.
fn with(mut bytes: Vec<u8>, at: usize, new: &[u8]) -> Vec<u8> {
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

#[test]
fn feed__microslices_laid_out_by_hand() {
    let bytes = microslices_by_hand();
    let outcome = read(&bytes, LIMITS, &[usize::MAX]);
    let header = outcome.header.unwrap();
    assert_eq!((header.kind, header.compression), (ArchiveKind::Microslices, Compression::None));
    assert_eq!(
        (header.created_s, &header.host[..], &header.user[..]),
        (1_700_000_000, &b"host"[..], &b"me"[..])
    );
    assert_eq!((header.versions.library, header.versions.header), (10, 1));
    assert_eq!(outcome.end, Ok(Remainder::Nothing));
    assert_eq!(outcome.again, bytes);
    assert_eq!(
        (outcome.tally.items, outcome.tally.microslices, outcome.tally.content_bytes),
        (2, 2, 3)
    );
    assert_eq!((outcome.tally.crcs, outcome.tally.unchecked, outcome.tally.faults()), (1, 1, 0));
}

#[test]
fn feed__timeslices_laid_out_by_hand() {
    let bytes = timeslices_by_hand();
    let mut reader = Reader::new(LIMITS);
    let mut rest = &bytes[..];
    assert!(reader.feed(&mut rest) == Ok(Some(Parsed::Header)) && reader.item().is_none());
    assert_eq!(reader.header().map(|header| header.created_s), Some(-1));
    assert_eq!(reader.feed(&mut rest), Ok(Some(Parsed::Item)));
    let Some(Item::Timeslice(first)) = reader.item() else { panic!() };
    let TimesliceDescriptor {
        index,
        start_ns,
        duration_ns,
        flags,
        position,
        core_microslices,
        components,
    } = first.descriptor;
    assert_eq!(
        (index, start_ns, duration_ns, position, core_microslices, components),
        (7, 256, 512, 1, 3, 0)
    );
    assert!(
        flags == TimesliceFlags::MISSING_PARTS
            && flags.is_incomplete()
            && first.components().len() == 0
    );
    assert_eq!(reader.feed(&mut rest), Ok(Some(Parsed::Item)));
    let Some(Item::Timeslice(second)) = reader.item() else { panic!() };
    let versions = reader.header().unwrap().versions;
    assert_eq!((versions.timeslice, versions.component), (2, 1));
    let components: Vec<Component<'_>> = second.components().collect();
    let microslices: Vec<_> = components[0].microslices().collect();
    assert!(matches!(microslices[..], [Ok(Microslice { content: b"xy", .. })]), "{microslices:?}");
    let missing = TimesliceFlags::MISSING_MICROSLICES;
    assert_eq!((components[1].descriptor.offset, components[1].descriptor.flags), (64, missing));
    assert!(
        TimesliceFlags::MISSING_COMPONENTS.is_incomplete() && !TimesliceFlags(16).is_incomplete()
    );
    assert!(
        reader.feed(&mut rest) == Ok(None)
            && reader.rest() == Remainder::Nothing
            && reader.item().is_none()
    );

    let outcome = read(&bytes, LIMITS, &[3]);
    assert_eq!(outcome.again, bytes);
    assert_eq!(
        (outcome.tally.items, outcome.tally.components, outcome.tally.incomplete),
        (2, 2, 2)
    );
    assert_eq!(outcome.tally.faults(), 0);
}

#[test]
fn rest__an_archive_cut_anywhere_is_read_up_to_there() {
    for bytes in [microslices_by_hand(), timeslices_by_hand()] {
        let whole = read(&bytes, LIMITS, &[usize::MAX]);
        for length in 0..bytes.len() {
            let cut = read(&bytes[..length], LIMITS, &[5]);
            match cut.end.unwrap() {
                Remainder::Nothing => assert_eq!(cut.again, &bytes[..length], "{length}"),
                Remainder::CutItem(left) => {
                    assert_eq!(cut.again, &bytes[..length - left as usize], "{length}")
                }
                Remainder::CutHeader(left) => {
                    assert!(left == length as u64 && cut.header.is_none(), "{length}")
                }
            }
            assert!(cut.tally.items < whole.tally.items || cut.again.len() == length);
        }
    }
}

#[test]
fn feed__what_is_no_archive_is_refused_with_its_place() {
    let good = microslices_by_hand();
    let cases: [(usize, &[u8], &str); 9] = [
        (9, b"S", "at byte 0: this is no Boost archive"),
        (30, &[21], "at byte 0: version 21 of Boost's archives is not known here; 10 to 20 are"),
        (
            33,
            &[4],
            "at byte 0: the archive was written on a machine with other numbers ([4, 4, 4, 8, 1, 0, 0, 0]); 64-bit little-endian is read here",
        ),
        (
            40,
            &[1],
            "at byte 40: ArchiveDescriptor is marked as tracked, which no archive of this kind is",
        ),
        (
            41,
            &[3],
            "at byte 40: ArchiveDescriptor has version 3, of which the newest known here is 2",
        ),
        (
            45,
            &[2],
            "at byte 45: the archive holds reconstruction results; microslices and timeslices are read here",
        ),
        (45, &[9], "at byte 45: the archive holds items of the unknown kind 9"),
        (57, &[0, 4, 1], "at byte 45: the name of a host or user of 66560 bytes"),
        (
            84,
            &[1],
            "at byte 79: MicrosliceDescriptor is marked as tracked, which no archive of this kind is",
        ),
    ];
    for (at, new, sentence) in cases {
        assert_eq!(fault(&with(good.clone(), at, new), LIMITS), sentence);
    }
    let sentence = "at byte 45: the unknown compression 7; none (0) and zstd (1) are read here";
    assert_eq!(fault(&with(timeslices_by_hand(), 49, &[7]), LIMITS), sentence);
}

#[test]
fn feed__lengths_from_outside_are_never_followed() {
    let length = microslices_by_hand().iter().rposition(|byte| *byte == b'a').unwrap() - 8;
    for claimed in [u64::MAX, 1 << 40, 2, 4] {
        let bytes = with(microslices_by_hand(), length, &claimed.to_le_bytes());
        let sentence = format!(
            "at byte 79: a microslice has 3 bytes by its descriptor and {claimed} by the length of its content"
        );
        assert_eq!(fault(&bytes, LIMITS), sentence);
    }
    // Both numbers say so.
    let claim = |bytes: u32| {
        with(
            with(microslices_by_hand(), length - 12, &bytes.to_le_bytes()),
            length,
            &bytes.to_le_bytes(),
        )
    };
    for claimed in [u32::MAX, LIMITS.item_bytes as u32] {
        let (least, most) = (u64::from(claimed) + 50, LIMITS.item_bytes);
        let sentence =
            format!("at byte 79: an item of at least {least} bytes, of which {most} are accepted");
        assert_eq!(fault(&claim(claimed), LIMITS), sentence);
    }
    let just = claim(LIMITS.item_bytes as u32 - 50);
    assert_eq!(read(&just, LIMITS, &[1]).end, Ok(Remainder::CutItem(just.len() as u64 - 79)));

    let good = timeslices_by_hand();
    let second = good.len() - 12 - 24 - 36 - 5 - 12 - 8 - 34 - 8 - 12 - 44;
    let many = with(with(good.clone(), second + 40, &[1, 0, 1]), second + 44, &[1, 0, 1]);
    assert!(
        fault(&many, LIMITS)
            .ends_with("a timeslice of 65537 components; equipment numbers have 16 bits")
    );
    let three = with(good.clone(), second + 40, &[3]);
    assert!(
        fault(&three, LIMITS).ends_with("the timeslice is said to have 3 components, and 2 follow")
    );
    let version = with(good.clone(), second + 52, &[1]);
    let sentence =
        "a list of elements in version 1, which is unknown here or not that of the others";
    assert!(fault(&version, LIMITS).ends_with(sentence));
    for (at, what) in [
        (good.len() - 12 - 24 - 36 - 5 - 4, 0),
        (good.len() - 12 - 24 - 36 - 4, 0),
        (good.len() - 12 - 24 - 36 - 5 - 4, 2),
    ] {
        let sentence = fault(&with(good.clone(), at, &[what]), LIMITS);
        assert!(sentence.contains("a list of elements in version"), "{sentence}");
    }
    let data = with(good.clone(), second + 56, &u64::MAX.to_le_bytes());
    assert!(fault(&data, LIMITS).contains("an item of at least 18446744073709551615 bytes"));
}

#[test]
fn feed__an_error_is_repeated() {
    let mut reader = Reader::new(LIMITS);
    let first = reader.feed(&mut &[0; 64][..]).unwrap_err();
    assert_eq!(reader.feed(&mut &microslices_by_hand()[..]).unwrap_err(), first);
}

#[test]
fn feed__behind_the_header_of_a_compressed_archive_a_second_stream_begins() {
    let plain = timeslices_by_hand();
    let bytes = with(plain.clone(), 49, &[1]);
    let outcome = read(&bytes, LIMITS, &[11]);
    assert_eq!(outcome.header.unwrap().compression, Compression::Zstd);
    assert_eq!(outcome.again, bytes);
    // Places are those of the decompressed stream: the class of the first timeslice is its first
    // byte.
    let header = 40 + 13 + 8 + 16;
    assert!(fault(&with(bytes, header, &[9]), LIMITS).starts_with("at byte 0: StorableTimeslice"));
}

/// Returns what the inspector finds in the archive of microslices by hand, changed in one place.
fn found(at_from_end: usize, new: &[u8]) -> Vec<(Finding, u64)> {
    let good = microslices_by_hand();
    let at = good.len() - at_from_end;
    let tally = read(&with(good, at, new), LIMITS, &[usize::MAX]).tally;
    Finding::ALL
        .iter()
        .map(|finding| (*finding, tally.found(*finding).0))
        .filter(|(_, count)| *count > 0)
        .collect()
}

#[test]
fn look__every_kind_of_fault_is_found_in_microslices() {
    const SECOND: usize = 40;
    assert_eq!(found(SECOND, &[0xdd]), []);
    assert_eq!(found(SECOND, &[0xde]), [(Finding::Descriptor, 1)]);
    assert_eq!(found(SECOND - 1, &[2]), [(Finding::Descriptor, 1)]);
    assert_eq!(found(SECOND - 8, &[5]), [(Finding::Order, 1)]);
    assert_eq!(found(SECOND + 1, b"d"), [(Finding::Crc, 1)]);
    assert_eq!(found(SECOND - 7, &[0x81]), [(Finding::Origin, 1)]);
    let both = [(Finding::Checksum, 1), (Finding::Origin, 1)];
    assert_eq!(found(SECOND - 7, &[0x81, 7, 0, 0, 0, 0, 0, 0, 0, 1]), both);
}

#[test]
fn look__a_ramp_keeps_its_channel_in_an_archive_of_microslices() {
    let plan = GeneratorPlan {
        channel: 7,
        seed: 1,
        sizes: SizeDistribution::Constant,
        mean_bytes: 16,
        period: Nanos(10),
        checksum: Checksum::Fold,
    };
    let contents: Vec<([u8; 32], Vec<u8>)> = [7, 7, 8]
        .iter()
        .zip(0..)
        .map(|(channel, number)| {
            let mut content = Vec::new();
            let generator = Generator::new(GeneratorPlan { channel: *channel, ..plan });
            (generator.microslice(number, &mut content).to_bytes(), content)
        })
        .collect();
    let header = read(&microslices_by_hand(), LIMITS, &[usize::MAX]).header.unwrap();
    let (bytes, _) = write(&header, &[], &contents);
    let tally = read(&bytes, LIMITS, &[usize::MAX]).tally;
    let place = ArchivePosition { item: 2, component: None, microslice: None };
    assert_eq!(tally.found(Finding::Ramp), (1, Some(place)));
    assert_eq!((tally.faults(), tally.ramps, tally.unchecked), (1, 3, 0));
}

#[test]
fn look__contents_outside_their_component_are_counted_and_not_followed() {
    let good = timeslices_by_hand();
    let descriptor = good.windows(4).rposition(|bytes| bytes == [0xdd, 1, 0, 0]).unwrap();
    let outside = |at: usize, new: &[u8]| {
        let tally = read(&with(good.clone(), at, new), LIMITS, &[usize::MAX]).tally;
        (tally.found(Finding::Outside).0, tally.faults())
    };
    assert_eq!(outside(descriptor + 20, &[3]), (1, 1));
    assert_eq!(outside(descriptor + 20, &[0xff; 4]), (1, 1));
    let component = good.len() - 12 - 24 - 36;
    // The size of the component, and how many microslices it has.
    assert_eq!(outside(component + 16, &[35]), (0, 1));
    assert_eq!(outside(component + 24, &[2]), (2, 2));
    assert_eq!(outside(component + 24, &[0xff; 8]), (2, 2));
}

#[test]
fn look__timeslices_out_of_order_are_found() {
    let good = timeslices_by_hand();
    let second = good.len() - 12 - 24 - 36 - 5 - 12 - 8 - 34 - 8 - 12 - 44;
    let tally = read(&with(good, second, &[7]), LIMITS, &[usize::MAX]).tally;
    let place = ArchivePosition { item: 1, component: None, microslice: None };
    assert_eq!(tally.found(Finding::TimesliceOrder), (1, Some(place)));
}

/// Returns a file that FLESnet wrote, where there is one next to this checkout.
fn reference(name: &str) -> Option<Vec<u8>> {
    let path =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join(name);
    match std::fs::read(&path) {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            std::eprintln!("skipped: {} cannot be read: {error}", path.display());
            None
        }
    }
}

#[test]
fn feed__reads_and_writes_microslices_of_flesnet() {
    let Some(bytes) = reference("example1.msa") else { return };
    let outcome = read(&bytes, LIMITS, &[usize::MAX]);
    let header = outcome.header.unwrap();
    assert_eq!(
        (header.created_s, &header.host[..], &header.user[..]),
        (0x555b_5363, &b"ten-3.fritz.box"[..], &b"jan"[..])
    );
    assert_eq!(
        (outcome.tally.items, outcome.tally.content_bytes, outcome.end),
        (2, 8, Ok(Remainder::Nothing))
    );
    // Both begin at 0.
    assert_eq!((outcome.tally.found(Finding::Order).0, outcome.tally.faults()), (1, 1));
    assert_eq!(outcome.again, bytes);
}

#[test]
fn feed__reads_and_writes_timeslices_of_flesnet() {
    let Some(bytes) = reference("example1.tsa") else { return };
    let outcome = read(&bytes, LIMITS, &[1]);
    assert_eq!(outcome.header.unwrap().versions, Versions { header: 0, ..Versions::FLESNET_1 });
    let tally = &outcome.tally;
    assert_eq!(
        (tally.items, tally.components, tally.microslices, tally.content_bytes),
        (2, 4, 6, 16)
    );
    // Both have the number 1.
    assert_eq!((tally.found(Finding::TimesliceOrder).0, tally.faults()), (1, 1));
    assert_eq!(outcome.end, Ok(Remainder::Nothing));
    assert_eq!(outcome.again, bytes);
}

/// Everything that an archive of timeslices can hold, as data of tests.
type SampleArchive = (TimesliceDescriptor, Vec<(ComponentDescriptor, Vec<u8>)>);

fn headers() -> impl Strategy<Value = Header> {
    let names =
        (prop::collection::vec(any::<u8>(), 0..40), prop::collection::vec(any::<u8>(), 0..40));
    let versions = (10..=20u16, 0..=2u32, 0..=2u32, 0..=1u32);
    (versions, any::<i64>(), names, any::<(bool, bool)>()).prop_map(
        |(versions, created_s, (host, user), (kind, zstd))| {
            let (library, header, timeslice, component) = versions;
            let kind = if kind && header >= 1 {
                ArchiveKind::Microslices
            } else {
                ArchiveKind::Timeslices
            };
            let compression =
                if zstd && header >= 2 { Compression::Zstd } else { Compression::None };
            Header {
                versions: Versions { library, header, timeslice, component },
                kind,
                compression,
                created_s,
                host,
                user,
            }
        },
    )
}

fn timeslices() -> impl Strategy<Value = Vec<SampleArchive>> {
    let component = (any::<[u64; 4]>(), any::<u32>(), prop::collection::vec(any::<u8>(), 0..200))
        .prop_map(|([timeslice, offset, size, microslices], flags, data)| {
            (
                ComponentDescriptor {
                    timeslice,
                    offset,
                    size,
                    microslices,
                    flags: TimesliceFlags(flags),
                },
                data,
            )
        });
    let descriptor =
        (any::<[u64; 4]>(), any::<[u32; 2]>()).prop_map(|(long, [flags, core_microslices])| {
            let [index, start_ns, duration_ns, position] = long;
            let flags = TimesliceFlags(flags);
            TimesliceDescriptor {
                index,
                start_ns,
                duration_ns,
                flags,
                position,
                core_microslices,
                components: 0,
            }
        });
    prop::collection::vec((descriptor, prop::collection::vec(component, 0..4)), 0..5)
}

fn microslices() -> impl Strategy<Value = Vec<([u8; 32], Vec<u8>)>> {
    let microslice = (any::<[u8; 32]>(), prop::collection::vec(any::<u8>(), 0..200));
    let sized = microslice.prop_map(|(bytes, content): (_, Vec<u8>)| {
        let size = content.len() as u32;
        (
            MicrosliceDescriptor { size, ..MicrosliceDescriptor::from_bytes(&bytes) }.to_bytes(),
            content,
        )
    });
    prop::collection::vec(sized, 0..6)
}

/// Returns an archive of `header` with the items of its kind.
fn write(
    header: &Header,
    made: &[SampleArchive],
    microslices: &[([u8; 32], Vec<u8>)],
) -> (Vec<u8>, usize) {
    let (mut writer, mut bytes) = Writer::new(header);
    if header.kind == ArchiveKind::Microslices {
        for (descriptor, content) in microslices {
            let descriptor = MicrosliceDescriptor::from_bytes(descriptor);
            let Ok(()) =
                writer.microslice(&Microslice { descriptor, content }, &mut behind_of(&mut bytes));
        }
        return (bytes, microslices.len());
    }
    for (descriptor, components) in made {
        let components =
            components.iter().map(|(descriptor, data)| Component { descriptor: *descriptor, data });
        let Ok(()) = writer.timeslice(descriptor, components, &mut behind_of(&mut bytes));
    }
    (bytes, made.len())
}

proptest! {
    #[test]
    fn feed__what_was_written_is_read_however_it_is_cut(
        header in headers(),
        made in timeslices(),
        microslices in microslices(),
        pieces in prop::collection::vec(1..300usize, 1..5),
    ) {
        let (bytes, items) = write(&header, &made, &microslices);
        let outcome = read(&bytes, LIMITS, &pieces);
        prop_assert_eq!(outcome.end, Ok(Remainder::Nothing));
        prop_assert_eq!(outcome.tally.items, items as u64);
        prop_assert_eq!(&outcome.again, &bytes);
        let found = outcome.header.unwrap();
        prop_assert_eq!(Header { versions: header.versions, ..found }, header);
    }

    #[test]
    fn feed__any_bytes_are_read_or_refused_alike_however_they_are_cut(
        header in headers(),
        made in timeslices(),
        microslices in microslices(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        pieces in prop::collection::vec(1..50usize, 1..5),
        item_bytes in 0..2000u64,
    ) {
        let (mut bytes, _) = write(&header, &made, &microslices);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        let limits = Limits { item_bytes };
        let outcome = read(&bytes, limits, &[usize::MAX]);
        prop_assert_eq!(&outcome, &read(&bytes, limits, &pieces));
        prop_assert!(bytes.starts_with(&outcome.again));
    }

    #[test]
    fn feed__noise_is_no_archive(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let outcome = read(&bytes, LIMITS, &[13]);
        prop_assert!(outcome.header.is_none() && outcome.again.is_empty());
    }
}
