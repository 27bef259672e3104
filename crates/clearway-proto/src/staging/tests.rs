//! Literal bytes of everything that lies on the disk, and that what is no such thing is refused.
//! Whole logs: `tests/engines/staging`.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::group::{FRONT_MAX, GroupFront};
use super::snapshot::LogEnd;
use super::superblock::Superblock;
use super::*;
use crate::base::ByteReader;

fn name(bytes: &[u8]) -> EntryName {
    EntryName::new(bytes).expect("a name")
}

fn record(change: LogChange) -> LogRecord {
    let (client, number, class, time) = (ClientId(0x0102), 3, Class::Bulk, WallNs(4));
    LogRecord { client, number, class, time, change }
}

fn encoded(record: &LogRecord) -> (Vec<u8>, Vec<u8>) {
    let (mut heads, mut inline) = (Vec::new(), Vec::new());
    record.encode(&mut heads, &mut inline);
    (heads, inline)
}

fn decoded(heads: &[u8], inline: &[u8]) -> Option<LogRecord> {
    LogRecord::decode(&mut ByteReader::new(heads), &mut ByteReader::new(inline))
}

#[test]
fn record__fields_are_where_the_documentation_says() {
    let change = TreeChange::Rename {
        from: InodeId(1),
        name: name(b"ab"),
        to: InodeId(2),
        new_name: name(b"c"),
    };
    let rename = record(LogChange::Tree(change));
    let (heads, inline) = encoded(&rename);
    let mut expected = vec![6, 3, 3, 0, 0, 0, 0, 0];
    for word in [0_u64, 1, 2, 2, 0x0102, 3, 4] {
        expected.extend(word.to_le_bytes());
    }
    assert_eq!((&heads, &*inline), (&expected, &b"abc"[..]));
    assert_eq!(decoded(&heads, &inline), Some(rename));
    // Another kind, a class and a field that it does not have, names that are none or too short.
    for (byte, value) in [(0, 14), (1, 5), (4, 1), (8, 1), (24, 9)] {
        let mut bytes = heads.clone();
        bytes[byte] = value;
        assert_eq!(decoded(&bytes, &inline), None, "{value} at {byte}");
    }
    assert_eq!(decoded(&heads, b"a/c"), None);
    assert_eq!(decoded(&heads[..63], &inline), None);
    assert_eq!(decoded(&heads, b"ab"), None);
}

#[test]
fn record__a_move_names_the_body_that_had_the_bytes() {
    let body = BodyId { group: GroupNumber(0x0a09), index: 0x0c0b };
    let (inode, offset, length, skip, digest) = (InodeId(9), 7, 5000, 4096, 6);
    let moved = TreeChange::Relocate { inode, offset, length, body, skip, digest };
    let moved = record(LogChange::Tree(moved));
    assert_eq!(moved.body(), Some(RecordBody { inode, offset, length, digest }));
    let (heads, inline) = encoded(&moved);
    let mut expected = vec![21, 3, 10, 0, 0, 0, 0, 0];
    for word in [9_u64, 7, 5000 | 4096 << 32, 6, 0x0102, 3, 4] {
        expected.extend(word.to_le_bytes());
    }
    assert_eq!((&heads, &*inline), (&expected, &b"\x09\x0a\0\0\0\0\0\0\x0b\x0c"[..]));
    assert_eq!(decoded(&heads, &inline), Some(moved));
    assert_eq!(decoded(&heads, &inline[..9]), None);
    // No bytes, more than a body has, and more behind those before them.
    for (byte, value) in [(24, [0; 8]), (26, [0x20; 8]), (28, [0, 0, 0x10, 0, 0, 0, 0, 0])] {
        let mut bytes = heads.clone();
        bytes[24..26].fill(if byte == 24 { 0 } else { 0x10 });
        bytes[byte..byte + 4].copy_from_slice(&value[..4]);
        assert_eq!(decoded(&bytes, &inline), None, "{value:?} at {byte}");
    }
}

#[test]
fn record__a_device_keeps_its_kind_and_number() {
    let node = NodeKind::Special(SpecialNode { kind: SpecialKind::Block, device: 0x0708 });
    let (inode, parent, name) = (InodeId(9), InodeId(1), name(b"sd"));
    let made = TreeChange::Create { inode, parent, name, node, mode: 0o640, uid: 0, gid: 6 };
    let made = record(LogChange::Tree(made));
    let (heads, inline) = encoded(&made);
    assert_eq!((&heads[28..32], &*inline), (&[4, 2, 2, 0][..], &b"sd\x08\x07\0\0"[..]));
    assert_eq!(decoded(&heads, &inline), Some(made));
    let mut other = heads.clone();
    other[30] = 4;
    assert_eq!(decoded(&other, &inline), None, "no such kind");
    assert_eq!(decoded(&heads, b"sd\x08\x07\0"), None, "half a number");
}

#[test]
fn superblock__fields_are_where_the_documentation_says() {
    let superblock = Superblock {
        log: LogId(0x0203),
        epoch: Epoch(4),
        segments: 5,
        segment_size: 6 << 12,
        durable: GroupNumber(7),
    };
    let block = superblock.encode();
    assert_eq!(block[..16], *b"CLWYLOG\0\x03\0\0\0\x05\0\0\0");
    assert_eq!((block[16], block[17], block[32], block[41], block[48]), (3, 2, 4, 0x60, 7));
    assert_eq!(Superblock::parse(&block), Ok(superblock));
    for byte in 0..60 {
        let mut other = block;
        other[byte] ^= 4;
        let why = if byte < 8 { LogError::WrongMagic } else { LogError::SuperblockDamaged };
        assert_eq!(Superblock::parse(&other), Err(why), "{byte}");
    }
    assert_eq!(Superblock::parse(&block[..59]), Err(LogError::SuperblockDamaged));
}

fn header() -> GroupHeader {
    GroupHeader {
        log: LogId(9),
        epoch: Epoch(8),
        number: GroupNumber(7),
        durable: GroupNumber(6),
        segment_use: 5,
        place: LogPlace { segment: 4, block: 3 },
        previous: 2,
        records: 0,
        inline: 0,
        body_blocks: 0,
        front_digest: 0,
    }
}

#[test]
fn header__fields_are_where_the_documentation_says() {
    let mut front = GroupFront::default();
    front.push(&record(LogChange::Tree(TreeChange::Truncate { inode: InodeId(2), size: 5 })));
    let (inode, offset, length, digest) = (InodeId(2), 5, 4097, 0x0a09_0807_0605_0403);
    let body = RecordBody { inode, offset, length, digest };
    let change = TreeChange::Write { inode, offset, length, digest };
    front.push(&record(LogChange::Tree(change)));
    let (bytes, finished, digest) = front.finish(header());
    assert_eq!((bytes.len(), front.blocks()), (BLOCK, 1 + 2));
    assert_eq!(bytes[..8], *b"CLWYGRP\0");
    let bytes_at = [8, 24, 32, 40, 48, 56, 60, 64, 68, 72, 76].map(|at| bytes[at]);
    assert_eq!(bytes_at, [9, 8, 7, 6, 5, 4, 3, 2, 2, 0, 2]);
    assert_eq!(bytes[84..88], digest.to_le_bytes());
    assert_eq!((bytes[128], bytes[192], &bytes[224..232]), (10, 1, &[3, 4, 5, 6, 7, 8, 9, 10][..]));
    assert_eq!(GroupHeader::parse(&bytes), Some((finished, digest)));
    let records = finished.records_in(&bytes).expect("two records");
    assert_eq!(records.iter().map(LogRecord::body).collect::<Vec<_>>(), [None, Some(body)]);
    for byte in 0..bytes.len() {
        let mut other = bytes.clone();
        other[byte] ^= 0x20;
        let read = GroupHeader::parse(&other).and_then(|(header, _)| header.records_in(&other));
        // What lies behind the records is padding.
        assert_eq!(read.is_some(), byte >= 256, "{byte}");
    }
}

#[test]
fn fits__a_front_is_never_longer_than_its_memory() {
    let value = vec![1; 16 << 10].into();
    let change = TreeChange::SetXattr { inode: InodeId(1), name: name(&[b'x'; 255]), value };
    let long = record(LogChange::Tree(change));
    let mut front = GroupFront::default();
    let mut records = 0;
    while front.fits(&long, 1 << 20) {
        front.push(&long);
        records += 1;
    }
    let short = record(LogChange::Retired(1));
    while front.fits(&short, 1 << 20) {
        front.push(&short);
        records += 1;
    }
    let (bytes, header, _) = front.finish(header());
    assert!(bytes.len() <= FRONT_MAX && records > 200, "{} bytes, {records} records", bytes.len());
    assert_eq!(header.records_in(&bytes).map(|read| read.len()), Some(records));
}

#[test]
fn snapshot__fields_are_where_the_documentation_says() {
    let next = Some(LogPlace { segment: 6, block: 7 });
    let end = LogEnd { group: GroupNumber(2), epoch: Epoch(3), digest: 5, segment_use: 4, next };
    let header = SnapshotHeader { log: LogId(1), end, length: 9, digest: 8 };
    let block = header.encode();
    assert_eq!(block[..8], *b"CLWYSNP\0");
    let bytes_at = [8, 24, 32, 40, 48, 52, 56, 60, 64].map(|at| block[at]);
    assert_eq!(bytes_at, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(SnapshotHeader::parse(&block), Some(header));
    let end = LogEnd { next: None, ..end };
    let full = SnapshotHeader { end, ..header };
    assert_eq!(SnapshotHeader::parse(&full.encode()), Some(full));
    for byte in 0..76 {
        let mut other = block;
        other[byte] ^= 1;
        assert_eq!(SnapshotHeader::parse(&other), None, "{byte}");
    }
}

proptest! {
    #[test]
    fn parse__any_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = (Superblock::parse(&bytes), GroupHeader::parse(&bytes), SnapshotHeader::parse(&bytes));
        let _ = parse_snapshot(&bytes, 10);
        let (head, inline) = bytes.split_at(bytes.len().min(64));
        if let Some(record) = decoded(head, inline) {
            let (again, names) = encoded(&record);
            prop_assert_eq!((&again[..], &names[..]), (head, &inline[..names.len()]));
        }
    }
}
