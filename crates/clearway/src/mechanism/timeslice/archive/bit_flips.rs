//! Every bit of a small compressed archive, flipped: what a check accepts then has as many
//! microslices as before.
//!
//! # Model
//! A bit of a compressed stream can change a number wherever it stands, alike: of a timeslice and
//! its components, of times. No rule finds that. The checksum that streams end with here does;
//! those of FLESnet have none. What a bit changes in the clear is tested field by field where
//! archives are laid out.

use std::io::{Cursor, Write};
use std::path::Path;

use clearway_proto::archive::{
    ArchiveKind, Component, ComponentDescriptor, Compression, Header, Item, Limits,
    TimesliceDescriptor, Versions, Writer,
};
use clearway_proto::base::Nanos;
use clearway_proto::microslice::{
    Checksum, Generator, GeneratorPlan, MicrosliceDescriptor, SizeDistribution,
};
use zstd::decode_all;
use zstd::stream::write::Encoder;

use super::SurveyDepth;
use super::file::ArchiveFile;
use super::survey::walk;

const LIMITS: Limits = Limits { item_bytes: 1 << 20 };

/// Returns whether a check of `bytes` finds nothing wrong.
fn is_accepted(bytes: &[u8]) -> bool {
    let report =
        walk(Path::new("flipped"), open(bytes), SurveyDepth::Faults).expect("no disk fails here");
    !report.is_faulty()
}

fn open(bytes: &[u8]) -> Result<ArchiveFile, super::file::ArchiveReadError> {
    ArchiveFile::read(Box::new(Cursor::new(bytes.to_vec())), LIMITS)
}

/// By timeslice, component and place.
type ComponentContents = Vec<Vec<Vec<Vec<u8>>>>;

/// Returns whether `found` are as many contents as `wanted`, each of which lacks no more at its end
/// than can be padding: ramps begin alike, so the descriptor of a shorter one fits.
fn are_padded(found: &ComponentContents, wanted: &ComponentContents) -> bool {
    let counts = |all: &ComponentContents| -> Vec<Vec<usize>> {
        all.iter().map(|timeslice| timeslice.iter().map(Vec::len).collect()).collect()
    };
    let is_padded = |(found, wanted): (&Vec<u8>, &Vec<u8>)| {
        wanted.starts_with(found) && wanted.len() - found.len() < MicrosliceDescriptor::BYTES
    };
    counts(found) == counts(wanted)
        && found.iter().flatten().flatten().zip(wanted.iter().flatten().flatten()).all(is_padded)
}

/// Returns the contents of all microslices.
fn contents(bytes: &[u8]) -> ComponentContents {
    let mut file = open(bytes).expect("an archive");
    let mut all = Vec::new();
    while file.advance().expect("an item or the end") {
        let Some(Item::Timeslice(timeslice)) = file.item() else { panic!("another kind of item") };
        let of = |component: Component<'_>| {
            component
                .microslices()
                .map(|microslice| microslice.expect("it is accepted").content.to_vec())
                .collect()
        };
        all.push(timeslice.components().map(of).collect());
    }
    all
}

/// Returns three compressed timeslices of two components, each of three microslices.
fn compressed(has_checksum: bool) -> Vec<u8> {
    let header = Header {
        versions: Versions::NEWEST,
        kind: ArchiveKind::Timeslices,
        compression: Compression::Zstd,
        created_s: 0,
        host: Vec::new(),
        user: Vec::new(),
    };
    let (mut writer, head) = Writer::new(&header);
    let mut out = Encoder::new(head, 1).expect("a compressor");
    out.include_checksum(has_checksum).expect("a checksum");
    for index in 0..3 {
        let data = [2, 3].map(|channel| component(channel, 2 * index));
        let describe = |data: &Vec<u8>| ComponentDescriptor {
            timeslice: index,
            size: data.len() as u64,
            microslices: 3,
            ..ComponentDescriptor::default()
        };
        let components = data.iter().map(|data| Component { descriptor: describe(data), data });
        let descriptor =
            TimesliceDescriptor { index, core_microslices: 2, ..TimesliceDescriptor::default() };
        writer
            .timeslice(&descriptor, components, &mut |bytes| out.write_all(bytes))
            .expect("memory");
        out.flush().expect("memory");
    }
    out.finish().expect("memory")
}

/// Returns three microslices of `channel` from number `first` on.
fn component(channel: u16, first: u64) -> Vec<u8> {
    let (sizes, checksum) = (SizeDistribution::Skewed, Checksum::Crc32c);
    let generator = Generator::new(GeneratorPlan {
        channel,
        seed: 1,
        sizes,
        mean_bytes: 64,
        period: Nanos(100),
        checksum,
    });
    let (mut heads, mut contents, mut content) = (Vec::new(), Vec::new(), Vec::new());
    for number in first..first + 3 {
        let offset = contents.len() as u64;
        let descriptor =
            MicrosliceDescriptor { offset, ..generator.microslice(number, &mut content) };
        heads.extend(descriptor.to_bytes());
        contents.extend_from_slice(&content);
    }
    [heads, contents].concat()
}

#[test]
fn walk__a_flipped_bit_of_a_compressed_archive_hides_nothing() {
    for has_checksum in [false, true] {
        let bytes = compressed(has_checksum);
        let stream =
            bytes.windows(4).position(|bytes| bytes == [0x28, 0xb5, 0x2f, 0xfd]).expect("a stream");
        assert!(is_accepted(&bytes));
        let (all, original) = (contents(&bytes), decode_all(&bytes[stream..]).expect("a stream"));
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if is_accepted(&flipped) {
                let are_there = contents(&flipped) == all
                    || !has_checksum && are_padded(&contents(&flipped), &all);
                assert!(are_there, "bit {bit} of {}, checksum: {has_checksum}", 8 * bytes.len());
                let is_same =
                    decode_all(&flipped[stream..]).is_ok_and(|decoded| decoded == original);
                assert!(
                    is_same || !has_checksum,
                    "bit {bit} of {} changes what is there",
                    8 * bytes.len()
                );
            }
        }
    }
}
