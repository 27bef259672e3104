//! Every bit of small archives and drawn bits of larger ones, flipped: what is accepted then, and
//! what it hides.
//!
//! # Model
//! An archive is *accepted* when it is read to its end and nothing is found in it. The fields of an
//! accepted one are compared with the original field by field; only fields of [`FREE`] may differ,
//! because no rule fixes them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::convert::Infallible;

use super::*;
use crate::base::{Nanos, RandomKey};
use crate::microslice::{
    Checksum, Generator, GeneratorPlan, Microslice, MicrosliceDescriptor, SizeDistribution,
};

/// The fields in which one flipped bit is not noticed, as `docs/archives.md` lists them.
const FREE: [&str; 13] = [
    // Any of 10 to 20 reads alike.
    "header library",
    "header created",
    "header host",
    "header user",
    // Marks of a detector, and bits without a meaning; of a `.msa` also whether the readout cut a
    // content off.
    "microslice flags",
    // In a `.msa`, whose contents lie behind their descriptors.
    "microslice offset",
    "timeslice start",
    "timeslice duration",
    "timeslice flags",
    "timeslice position",
    "timeslice core",
    "component offset",
    "component flags",
];

/// Everything that an archive says, by where it is.
type ArchiveFields = BTreeMap<(u64, u32, u32, &'static str), Vec<u8>>;

/// Returns what the archive says, if it is accepted.
fn accepted(bytes: &[u8]) -> Option<ArchiveFields> {
    let mut reader = Reader::new(Limits { item_bytes: 1 << 20 });
    let (mut rest, mut inspector, mut said, mut item) =
        (bytes, Inspector::default(), ArchiveFields::new(), 1);
    while let Some(whole) = reader.feed(&mut rest).ok()? {
        let header = reader.header()?;
        match (whole, reader.item()) {
            // The rest is not compressed, so nobody decompresses it.
            (Parsed::Header, _) if header.compression == Compression::Zstd => return None,
            (Parsed::Header, _) => say_header(&mut said, header),
            (Parsed::Item, Some(found)) => {
                inspector.look(&found, header.versions);
                say_item(&mut said, item, &found);
                item += 1;
            }
            (Parsed::Item, None) => return None,
        }
    }
    (reader.rest() == Remainder::Nothing && inspector.tally().faults() == 0).then_some(said)
}

fn say_header(said: &mut ArchiveFields, header: &Header) {
    let mut say = |name, bytes: &[u8]| drop(said.insert((0, 0, 0, name), bytes.to_vec()));
    say("header library", &header.versions.library.to_le_bytes());
    say("header version", &header.versions.header.to_le_bytes());
    say("header kind", &[header.kind as u8]);
    say("header created", &header.created_s.to_le_bytes());
    say("header host", &header.host);
    say("header user", &header.user);
}

fn say_item(said: &mut ArchiveFields, item: u64, found: &Item<'_>) {
    let timeslice = match found {
        Item::Microslice(microslice) => return say_microslice(said, (item, 0, 0), microslice),
        Item::Timeslice(timeslice) => timeslice,
    };
    let TimesliceDescriptor {
        index,
        start_ns,
        duration_ns,
        flags,
        position,
        core_microslices,
        components,
    } = timeslice.descriptor;
    let mut say =
        |name, number: u64| drop(said.insert((item, 0, 0, name), number.to_le_bytes().to_vec()));
    say("timeslice index", index);
    say("timeslice start", start_ns);
    say("timeslice duration", duration_ns);
    say("timeslice flags", flags.0.into());
    say("timeslice position", position);
    say("timeslice core", core_microslices.into());
    say("timeslice components", components.into());
    for (component, place) in timeslice.components().zip(1..) {
        let ComponentDescriptor { timeslice, offset, size, microslices, flags } =
            component.descriptor;
        let mut say = |name, number: u64| {
            drop(said.insert((item, place, 0, name), number.to_le_bytes().to_vec()))
        };
        say("component timeslice", timeslice);
        say("component offset", offset);
        say("component size", size);
        say("component microslices", microslices);
        say("component flags", flags.0.into());
        for (microslice, number) in component.microslices().zip(1..) {
            if let Ok(microslice) = microslice {
                say_microslice(said, (item, place, number), &microslice);
            }
        }
    }
}

fn say_microslice(
    said: &mut ArchiveFields,
    (item, component, number): (u64, u32, u32),
    microslice: &Microslice<'_>,
) {
    let Microslice { descriptor, content } = microslice;
    let mut say =
        |name, bytes: &[u8]| drop(said.insert((item, component, number, name), bytes.to_vec()));
    let fixed =
        [descriptor.format, descriptor.version, descriptor.subsystem, descriptor.subsystem_format];
    say("microslice kind", &fixed);
    say("microslice equipment", &descriptor.equipment.to_le_bytes());
    say("microslice flags", &descriptor.flags.0.to_le_bytes());
    say("microslice index", &descriptor.index.to_le_bytes());
    say("microslice crc", &descriptor.crc.to_le_bytes());
    say("microslice size", &descriptor.size.to_le_bytes());
    say("microslice offset", &descriptor.offset.to_le_bytes());
    say("microslice content", content);
}

/// Returns made-up microslices of `channel`, from number `first` on.
fn microslices(
    channel: u16,
    mean_bytes: u32,
    first: u64,
    count: u64,
) -> Vec<(MicrosliceDescriptor, Vec<u8>)> {
    let plan = GeneratorPlan {
        channel,
        seed: 1,
        sizes: SizeDistribution::Skewed,
        mean_bytes,
        period: Nanos(100),
        // Both checksums, so that both are tried.
        checksum: if channel.is_multiple_of(2) { Checksum::Crc32c } else { Checksum::Fold },
    };
    let (generator, mut offset) = (Generator::new(plan), 1000);
    let one = |number| {
        let mut content = Vec::new();
        let descriptor =
            MicrosliceDescriptor { offset, ..generator.microslice(number, &mut content) };
        offset += u64::from(descriptor.size);
        (descriptor, content)
    };
    (first..first + count).map(one).collect()
}

fn header(kind: ArchiveKind) -> Header {
    let (host, user) = (b"host".to_vec(), b"me".to_vec());
    let compression = Compression::None;
    Header { versions: Versions::NEWEST, kind, compression, created_s: 1_700_000_000, host, user }
}

/// Returns an archive of `items` microslices.
fn msa(items: u64, mean_bytes: u32) -> Vec<u8> {
    let (mut writer, mut bytes) = Writer::new(&header(ArchiveKind::Microslices));
    for (descriptor, content) in microslices(2, mean_bytes, 0, items) {
        let microslice = Microslice { descriptor, content: &content };
        let Ok(()) = writer.microslice(&microslice, &mut behind_of(&mut bytes));
    }
    bytes
}

/// Returns an archive of `items` timeslices of two components of three microslices each, numbered
/// from 5 on.
fn tsa(items: u64, mean_bytes: u32) -> Vec<u8> {
    let (mut writer, mut bytes) = Writer::new(&header(ArchiveKind::Timeslices));
    for index in 5..5 + items {
        let data = [2, 3].map(|channel| {
            let microslices = microslices(channel, mean_bytes, 2 * index, 3);
            let heads = microslices.iter().flat_map(|(descriptor, _)| descriptor.to_bytes());
            heads
                .chain(microslices.iter().flat_map(|(_, content)| content.iter().copied()))
                .collect::<Vec<u8>>()
        });
        let describe = |data: &Vec<u8>| ComponentDescriptor {
            timeslice: index,
            size: data.len() as u64,
            microslices: 3,
            ..ComponentDescriptor::default()
        };
        let components = data.iter().map(|data| Component { descriptor: describe(data), data });
        let descriptor =
            TimesliceDescriptor { index, core_microslices: 2, ..TimesliceDescriptor::default() };
        let Ok(()) = writer.timeslice(&descriptor, components, &mut behind_of(&mut bytes));
    }
    bytes
}

fn behind_of(bytes: &mut Vec<u8>) -> impl FnMut(&[u8]) -> Result<(), Infallible> {
    |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    }
}

/// Returns the fields in which `bytes` differ from the original when each of `bits` is flipped
/// alone and they are accepted all the same.
fn unnoticed(bytes: &[u8], bits: impl Iterator<Item = usize>) -> BTreeSet<&'static str> {
    let original = accepted(bytes).expect("the original is right");
    let mut fields = BTreeSet::new();
    for bit in bits {
        let mut flipped = bytes.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let Some(said) = accepted(&flipped) else { continue };
        assert!(said.keys().eq(original.keys()), "bit {bit} hides something");
        let differ = said.iter().filter(|(place, value)| original[*place] != **value);
        fields.extend(differ.map(|((.., name), _)| *name));
        assert!(said != original, "bit {bit} is read by nobody");
    }
    fields
}

#[test]
fn look__a_flipped_bit_is_noticed_but_in_fields_that_nothing_fixes() {
    let mut fields = BTreeSet::new();
    for bytes in [msa(4, 32), tsa(3, 32)] {
        fields.extend(unnoticed(&bytes, 0..8 * bytes.len()));
    }
    assert_eq!(fields, BTreeSet::from(FREE));
}

#[test]
fn look__drawn_bits_of_larger_archives_are_noticed_alike() {
    for bytes in [msa(4, 10_000), tsa(8, 1_000)] {
        let mut draws = RandomKey::new(7).purpose("flips").stream();
        let bits = core::iter::repeat_with(|| draws.below(8 * bytes.len() as u64) as usize);
        let fields = unnoticed(&bytes, bits.take(200));
        assert!(fields.is_subset(&BTreeSet::from(FREE)), "{fields:?}");
    }
}

#[test]
fn look__a_flipped_length_of_a_content_hides_no_microslices() {
    let bytes = msa(4, 10_000);
    let length = 40 + 13 + 8 + 8 + 4 + 8 + 2 + 10 + 32;
    for bit in 8 * length..8 * (length + 8) {
        assert_eq!(unnoticed(&bytes, bit..bit + 1), BTreeSet::new(), "bit {bit}");
    }
}
