//! Kills the process of a mount at random points, and looks for what was acknowledged.
//!
//! # Model
//! Each writer has files of its own. A block of 4 KiB says which file it is of, where it lies, and a
//! number that counts up. What a writer was answered for (a sync, a close, a sync of the directory) is
//! *acknowledged*; what it asked for is *issued*. After a kill each block has a number between the two.
//! A second kind of file is replaced by a rename, as programs do it: under its name there is always one
//! whole version, at least the last acknowledged one.
//!
//! The drain runs all the time. What a writer waited for until it is stored is in the store, block for
//! block; in the end the store has all that the mount has.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};

use clearway_proto::base::{RandomKey, RandomStream, crc32c};

use super::drained::assert_same;
use super::{StagingPlace, stage};

const WRITERS: u64 = 3;
const BLOCKS: u64 = 24;
const BLOCK: usize = 4096;
/// Rounds of a usual test run; `CLEARWAY_KILL_ROUNDS` asks for more.
const ROUNDS: u64 = 50;

/// Numbers of a block or version.
#[derive(Clone, Copy, Default)]
struct Known {
    acknowledged: u64,
    issued: u64,
}

/// What one writer knows.
#[derive(Clone, Default)]
struct WriterState {
    blocks: BTreeMap<(u64, u64), Known>,
    versions: BTreeMap<u64, Known>,
    number: u64,
}

/// Returns a block that says what it is.
fn pattern(file: u64, block: u64, number: u64) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        [file, block, number].iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.resize(BLOCK - 4, number as u8);
    // Not the digest itself: all bytes with their own CRC-32C behind them have one and the same
    // CRC-32C, and the log could not tell an old block from a new one by it.
    bytes.extend(crc32c(&bytes).rotate_left(7).to_le_bytes());
    bytes
}

/// Returns the number of a block, zero for one that was never written.
fn number_of(bytes: &[u8], file: u64, block: u64) -> Result<u64, String> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(0);
    }
    let word = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    match (word(0), word(8), word(16)) {
        (Some(of), Some(at), Some(number)) if bytes == pattern(of, at, number) => {
            if (of, at) == (file, block) { Ok(number) } else { Err(format!("block {at} of {of}")) }
        }
        _ => Err("no block that was ever written".into()),
    }
}

/// Writes until the mount is gone; says each step to `steps`.
fn work(
    (directory, store): (&Path, &Path),
    writer: u64,
    mut stream: RandomStream,
    state: &mut WriterState,
    steps: &Sender<()>,
) -> io::Result<()> {
    loop {
        let file = writer * 10 + stream.below(3);
        if stream.below(20) == 0 {
            wait_until_stored((directory, store), file, state);
        } else if stream.below(4) == 0 {
            replace(directory, file, state)?;
        } else {
            rewrite(directory, file, &mut stream, state)?;
        }
        // The test counts steps no more once it has killed the mount.
        let _ = steps.send(());
    }
}

/// Waits until a file is in the store, and looks at it there.
fn wait_until_stored((directory, store): (&Path, &Path), file: u64, state: &WriterState) {
    let name = format!("blocks-{file}");
    let path = directory.join(&name);
    if !stage(&["wait", "--until", "stored"], &[&path]).status.success() {
        // There is no such file yet, or no mount any more.
        return;
    }
    let bytes = fs::read(store.join(&name)).expect("it is there");
    for ((of, block), known) in state.blocks.iter().filter(|((of, _), _)| *of == file) {
        let at = *block as usize * BLOCK;
        let found = bytes.get(at..at + BLOCK).map_or(Ok(0), |bytes| number_of(bytes, *of, *block));
        assert_eq!(found, Ok(known.acknowledged), "block {block} of {name} in the store");
    }
}

/// Writes some blocks of a file in place, and syncs or closes it.
fn rewrite(
    directory: &Path,
    file: u64,
    stream: &mut RandomStream,
    state: &mut WriterState,
) -> io::Result<()> {
    let path = directory.join(format!("blocks-{file}"));
    let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    let mut written = Vec::new();
    for _ in 0..1 + stream.below(6) {
        let block = stream.below(BLOCKS);
        state.number += 1;
        state.blocks.entry((file, block)).or_default().issued = state.number;
        open.write_all_at(&pattern(file, block, state.number), block * BLOCK as u64)?;
        written.push((block, state.number));
    }
    match stream.below(3) {
        0 => open.sync_all()?,
        1 => open.sync_data()?,
        _ => nix::unistd::close(open).map_err(io::Error::from)?,
    }
    for (block, number) in written {
        state.blocks.entry((file, block)).or_default().acknowledged = number;
    }
    Ok(())
}

/// Puts a new version of a file in the place of the old one.
fn replace(directory: &Path, file: u64, state: &mut WriterState) -> io::Result<()> {
    state.number += 1;
    let number = state.number;
    state.versions.entry(file).or_default().issued = number;
    let (part, whole) =
        (directory.join(format!("part-{file}")), directory.join(format!("whole-{file}")));
    let open = File::create(&part)?;
    for block in 0..3 {
        open.write_all_at(&pattern(file, block, number), block * BLOCK as u64)?;
    }
    fs::rename(&part, &whole)?;
    File::open(directory)?.sync_all()?;
    state.versions.entry(file).or_default().acknowledged = number;
    Ok(())
}

/// Compares what is there with what a writer knows, and takes it as known from now on.
fn check(directory: &Path, state: &mut WriterState) -> Result<(), String> {
    let read = |name: PathBuf| match fs::read(directory.join(&name)) {
        Ok(bytes) => Ok(bytes),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(why) => Err(format!("{}: {why}", name.display())),
    };
    let within = |what: String, number: u64, known: &mut Known| {
        let range = known.acknowledged..=known.issued;
        let is_good = range.contains(&number);
        *known = Known { acknowledged: number, issued: number };
        is_good.then_some(()).ok_or(format!("{what} has number {number}, and not one of {range:?}"))
    };
    for ((file, block), known) in &mut state.blocks {
        let bytes = read(format!("blocks-{file}").into())?;
        let at = *block as usize * BLOCK;
        let found =
            bytes.get(at..at + BLOCK).map_or(Ok(0), |bytes| number_of(bytes, *file, *block));
        let what = format!("block {block} of file {file}");
        within(what.clone(), found.map_err(|why| format!("{what}: {why}"))?, known)?;
    }
    for (file, known) in &mut state.versions {
        let bytes = read(format!("whole-{file}").into())?;
        let what = format!("version of file {file}");
        let numbers: Vec<u64> = (0..)
            .zip(bytes.chunks(BLOCK))
            .map(|(block, bytes)| number_of(bytes, *file, block))
            .collect::<Result<_, _>>()
            .map_err(|why| format!("{what}: {why}"))?;
        if numbers.iter().any(|number| *number != numbers[0]) || ![0, 3].contains(&numbers.len()) {
            return Err(format!("{what} is torn: {numbers:?}"));
        }
        within(what, numbers.first().copied().unwrap_or(0), known)?;
    }
    Ok(())
}

#[test]
fn kill__nothing_that_was_acknowledged_is_lost_at_any_point() {
    let Some(mut place) = StagingPlace::new() else { return };
    let rounds = std::env::var("CLEARWAY_KILL_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    let mut states = vec![WriterState::default(); WRITERS as usize];
    for round in 0..rounds.unwrap_or(ROUNDS) {
        if !place.mount(&[]) {
            return;
        }
        let key = RandomKey::new(round).purpose("kills of a mount");
        for (writer, state) in (0..).zip(&mut states) {
            let directory = place.on_mount(&format!("writer-{writer}"));
            if let Err(why) = check(&directory, state) {
                panic!("round {round}, writer {writer}: {why}");
            }
            if round == 0 {
                fs::create_dir(&directory).expect("made");
            }
        }
        let steps_until_kill = key.stream().below(120);
        let (sender, receiver) = channel();
        std::thread::scope(|scope| {
            for (writer, state) in (0..).zip(&mut states) {
                let name = format!("writer-{writer}");
                let places = (place.on_mount(&name), place.path("store").join(&name));
                let stream = key.node(writer).stream();
                let sender = sender.clone();
                scope.spawn(move || {
                    let ended = work((&places.0, &places.1), writer, stream, state, &sender);
                    let why = ended.expect_err("the mount ends").raw_os_error();
                    let gone = [nix::libc::ENOTCONN, nix::libc::ECONNABORTED, nix::libc::EIO];
                    assert!(gone.contains(&why.unwrap_or(0)), "{why:?}");
                });
            }
            drop(sender);
            receiver.iter().take(steps_until_kill as usize).for_each(drop);
            place.kill();
        });
    }
    assert!(place.mount(&[]));
    for (writer, state) in states.iter_mut().enumerate() {
        check(&place.on_mount(&format!("writer-{writer}")), state).expect("after the last kill");
        assert!(state.number > 0);
    }
    assert_same(&place);
    place.umount();
}
