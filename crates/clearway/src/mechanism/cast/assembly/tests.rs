//! What a receiver's files become of records in order, out of order, wrong and hostile.

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::mechanism::cast::path::{PathText, RelativePath};
use crate::mechanism::cast::plan::Modified;

/// A directory of its own, gone at the end.
struct ScratchDirectory(PathBuf);

impl ScratchDirectory {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("clearway-assembly-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    fn assembly(&self, entries: &[ManifestEntry]) -> Assembly {
        let mut assembly = Assembly::new(
            TargetDirectory::open(&self.0).expect("a directory"),
            entries.to_vec(),
            Arc::default(),
        );
        assembly.survey(HashPolicy::Times);
        assembly
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("a directory");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn entry(name: &str, kind: EntryKind) -> ManifestEntry {
    let path = RelativePath::read(name).expect("a path");
    ManifestEntry {
        path,
        kind,
        mode: 0o640,
        modified: Modified { seconds: 1_000_000_000, nanos: 5 },
    }
}

fn file(name: &str, size: u64) -> ManifestEntry {
    entry(name, EntryKind::File { size, sparse: false })
}

fn object(records: &[ObjectPart<'_>]) -> Vec<u8> {
    let mut object = Vec::new();
    records.iter().for_each(|record| record.write(&mut object));
    object
}

fn root(size: u64, blocks: &[&[u8]]) -> BlockHash {
    root_of(size, blocks.iter().map(|block| hash_of(block)))
}

const LONG: usize = BLOCK as usize;

#[test]
fn take__blocks_in_any_order_are_a_file() {
    let ground = ScratchDirectory::new("order");
    let mut assembly = ground.assembly(&[file("a", BLOCK + 3)]);
    let first = vec![7; LONG];
    let end =
        ObjectPart::End { file: 0, size: BLOCK + 3, root: root(BLOCK + 3, &[&first, b"end"]) };
    let blocks = [
        ObjectPart::Block { file: 0, block: 1, bytes: b"end" },
        ObjectPart::Block { file: 0, block: 0, bytes: &first },
    ];
    assembly.take(&object(&blocks));
    assert_eq!(ground.names().len(), 1);
    assert!(ground.names()[0].starts_with(".clearway-cast-"), "nothing under its name yet");
    assembly.take(&object(&[end]));
    assert_eq!(ground.names(), ["a"]);
    assert_eq!(fs::read(ground.0.join("a")).expect("there"), [&first[..], b"end"].concat());
    assert_eq!(
        assembly.finish(),
        ReceiverOutcome { written: BLOCK + 3, files: 1, failed: 0, ..ReceiverOutcome::default() }
    );
}

#[test]
fn take__records_that_cannot_be_fail_their_file_and_no_other() {
    let block = |block, bytes| ObjectPart::Block { file: 0, block, bytes };
    let end = |root| ObjectPart::End { file: 0, size: 5, root };
    let good = root(5, &[b"right"]);
    let zeros = |block, length| ObjectPart::Zeros { file: 0, block, length };
    for (name, records) in [
        ("a block behind the end", vec![block(1, &b"right"[..])]),
        ("far behind the end", vec![block(u32::MAX, &b"right"[..])]),
        ("too short", vec![block(0, &b"righ"[..])]),
        ("too long", vec![block(0, &b"right!"[..])]),
        ("zeros too long", vec![zeros(0, 6)]),
        ("no blocks", vec![end(good)]),
        ("other bytes", vec![block(0, &b"wrong"[..]), end(good)]),
        (
            "another length",
            vec![block(0, &b"right"[..]), ObjectPart::End { file: 0, size: 6, root: good }],
        ),
        ("no end", vec![block(0, &b"right"[..])]),
    ] {
        let ground = ScratchDirectory::new("wrong");
        let mut assembly = ground.assembly(&[file("a", 5), file("b", 1)]);
        let other = [
            ObjectPart::Block { file: 1, block: 0, bytes: b"b" },
            ObjectPart::End { file: 1, size: 1, root: root(1, &[b"b"]) },
        ];
        assembly.take(&object(&records));
        assembly.take(&object(&other));
        let outcome = assembly.finish();
        assert_eq!((outcome.failed, outcome.files), (1, 1), "{name}: {outcome:?}");
        assert!(!ground.0.join("a").exists() && ground.0.join("b").exists(), "{name}");
    }
}

#[test]
fn take__more_small_files_than_wait_for_each_other_all_appear() {
    let ground = ScratchDirectory::new("many");
    let count = 2 * READY_MAX as u32 + 7;
    let entries: Vec<ManifestEntry> =
        (0..count).map(|number| file(&number.to_string(), 1)).collect();
    let mut assembly = ground.assembly(&entries);
    for file in 0..count {
        let end = ObjectPart::End { file, size: 1, root: root(1, &[b"b"]) };
        assembly.take(&object(&[ObjectPart::Block { file, block: 0, bytes: b"b" }, end]));
    }
    let all = ReceiverOutcome {
        written: count.into(),
        files: count.into(),
        failed: 0,
        ..ReceiverOutcome::default()
    };
    assert_eq!((assembly.finish(), ground.names().len()), (all, count as usize));
}

#[test]
fn take__what_the_sender_cannot_send_does_not_appear_and_is_no_failure_here() {
    let ground = ScratchDirectory::new("broken");
    let mut assembly = ground.assembly(&[file("a", 5)]);
    let block = ObjectPart::Block { file: 0, block: 0, bytes: b"right" };
    let end = ObjectPart::End { file: 0, size: 5, root: root(5, &[b"right"]) };
    assembly.take(&object(&[block, ObjectPart::Broken { file: 0 }, block, end]));
    let outcome = ReceiverOutcome { written: 5, unsent: 1, ..ReceiverOutcome::default() };
    assert!(!outcome.is_complete());
    assert_eq!(assembly.finish(), outcome);
    assert!(!ground.0.join("a").exists());
}

#[test]
fn take__numbers_of_nothing_and_bytes_of_nobody_change_nothing() {
    let ground = ScratchDirectory::new("nobody");
    let mut assembly = ground.assembly(&[
        entry("d", EntryKind::Directory),
        entry("l", EntryKind::Link { to: PathText(b"d".to_vec()) }),
    ]);
    let records: Vec<ObjectPart<'_>> = [0, 1, 2, u32::MAX]
        .into_iter()
        .flat_map(|file| {
            [
                ObjectPart::Block { file, block: 0, bytes: b"x" },
                ObjectPart::End { file, size: 1, root: [0; 32] },
            ]
        })
        .collect();
    assembly.take(&object(&records));
    assembly.take(&[9; 100]);
    for at in 0..40 {
        let mut bytes = object(&records);
        bytes[at] ^= 0x55;
        assembly.take(&bytes);
    }
    assert_eq!(assembly.finish().failed, 0);
    assert_eq!(ground.names(), ["d", "l"]);
}

#[test]
fn compare__what_was_begun_is_kept_and_what_lies_there_wrongly_is_not() {
    let ground = ScratchDirectory::new("begun");
    let blocks = [vec![1; LONG], vec![2; LONG], vec![3; 10]];
    let size = 2 * BLOCK + 10;
    let hashes: Vec<BlockHash> = blocks.iter().map(|block| hash_of(block)).collect();
    let entries = [file("a", size)];
    let mut first = ground.assembly(&entries);
    first.take(&object(&[ObjectPart::Block { file: 0, block: 1, bytes: &blocks[1] }]));
    drop(first);
    let mut second = ground.assembly(&entries);
    let lacks = second.compare(0, &hashes);
    assert_eq!(lacks.below(9).collect::<Vec<_>>(), [0, 2]);
    second.take(&object(&[
        ObjectPart::Block { file: 0, block: 0, bytes: &blocks[0] },
        ObjectPart::Block { file: 0, block: 2, bytes: &blocks[2] },
    ]));
    // Somebody writes into it after it was compared.
    let begun = ground.0.join(&ground.names()[0]);
    let meddle = |byte: u8| {
        File::options()
            .write(true)
            .open(&begun)
            .and_then(|it| it.write_all_at(&[byte], BLOCK))
            .expect("written");
    };
    meddle(9);
    let end =
        object(&[ObjectPart::End { file: 0, size, root: root_of(size, hashes.iter().copied()) }]);
    second.take(&end);
    assert_eq!(second.finish().why[0].1, "what was written is not what was sent");
    assert!(ground.names().is_empty(), "{:?}", ground.names());
}

#[test]
fn compare__hashes_that_do_not_fit_are_refused() {
    let ground = ScratchDirectory::new("hashes");
    fs::create_dir_all(&ground.0).expect("made");
    fs::write(ground.0.join("a"), b"there").expect("written");
    let mut assembly = ground.assembly(&[file("a", 5), entry("d", EntryKind::Directory)]);
    for (number, hashes) in [(0, vec![[0; 32]; 2]), (1, vec![[0; 32]]), (7, Vec::new())] {
        assert_eq!(assembly.compare(number, &hashes), NumberRuns::default());
    }
    assert_eq!(fs::read(ground.0.join("a")).expect("there"), b"there");
}

#[test]
fn take__holes_stay_holes_where_something_was_before() {
    use std::os::unix::fs::MetadataExt;
    let ground = ScratchDirectory::new("holes");
    let entries = [entry("a", EntryKind::File { size: 3 * BLOCK, sparse: true })];
    let mut first = ground.assembly(&entries);
    let noise = vec![0x5a; LONG];
    first.take(&object(&[0, 1, 2].map(|block| ObjectPart::Block {
        file: 0,
        block,
        bytes: &noise,
    })));
    drop(first);
    let mut second = ground.assembly(&entries);
    let mut page = vec![0; LONG];
    page[PAGE * 3] = 1;
    let zeros = vec![0; LONG];
    let hashes = [&noise, &page, &zeros].map(|block| hash_of(block));
    assert_eq!(second.compare(0, &hashes).below(9).collect::<Vec<_>>(), [1, 2]);
    second.take(&object(&[
        ObjectPart::Block { file: 0, block: 1, bytes: &page },
        ObjectPart::Zeros { file: 0, block: 2, length: LONG as u32 },
        ObjectPart::End { file: 0, size: 3 * BLOCK, root: root_of(3 * BLOCK, hashes) },
    ]));
    assert_eq!(second.finish().failed, 0);
    let there = fs::read(ground.0.join("a")).expect("there");
    assert!(there == [noise, page, zeros].concat());
    let blocks = ground.0.join("a").metadata().expect("there").blocks() * 512;
    assert!(blocks < 2 * BLOCK, "{blocks} bytes on the disk");
}

#[test]
fn appear__what_another_cast_has_is_left_to_it() {
    let ground = ScratchDirectory::new("another");
    let block = |bytes| ObjectPart::Block { file: 0, block: 0, bytes };
    let end = |bytes: &[u8]| ObjectPart::End {
        file: 0,
        size: bytes.len() as u64,
        root: root(bytes.len() as u64, &[bytes]),
    };
    let mut first = ground.assembly(&[file("a", 5)]);
    let mut second = Assembly::new(
        TargetDirectory::open(&ground.0).expect("a directory"),
        vec![file("a", 4)],
        Arc::default(),
    );
    first.take(&object(&[block(b"first"), end(b"first")]));
    assert_eq!(ground.names().len(), 1, "whole, and without its name");
    second.take(&object(&[block(b"seco"), end(b"seco")]));
    let outcome = second.finish();
    assert_eq!((outcome.failed, &outcome.why[0].1[..]), (1, "another cast is writing it"));
    assert!(!ground.names().contains(&"a".to_owned()), "what is not whole has no name");
    assert_eq!(
        (first.finish().failed, fs::read(ground.0.join("a")).expect("there")),
        (0, b"first".to_vec())
    );
}

#[test]
fn end__a_file_that_is_changed_here_after_it_was_compared_keeps_its_time() {
    let ground = ScratchDirectory::new("compared");
    fs::create_dir_all(&ground.0).expect("made");
    fs::write(ground.0.join("a"), b"right").expect("written");
    let mut assembly = ground.assembly(&[file("a", 5)]);
    assembly.compare(0, &[hash_of(b"right")]);
    fs::write(ground.0.join("a"), b"wrong").expect("written");
    File::open(ground.0.join("a"))
        .and_then(|file| file.set_modified(std::time::UNIX_EPOCH))
        .expect("set");
    assembly.take(&object(&[ObjectPart::End { file: 0, size: 5, root: root(5, &[b"right"]) }]));
    let outcome = assembly.finish();
    assert_eq!((outcome.failed, &outcome.why[0].1[..]), (1, "it changed here"));
    assert_eq!(ground.0.join("a").metadata().expect("there").mtime(), 0);
}
