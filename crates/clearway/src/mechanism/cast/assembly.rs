//! What a receiver makes of records: files that appear when they are whole and checked, each for
//! itself.
//!
//! # Model
//! A *survey* compares sizes and times with what is there. Of files of which something is there,
//! the sender tells hashes; blocks that agree, of an unfinished file or of an older whole one, are
//! kept. Blocks that come are written and read back; what was read back is hashed. When a file ends
//! and its hashes give the sender's, it gets its permissions and times, is synchronised and
//! renamed.
//!
//! # Invariants
//! I1. A file appears only if all its blocks, as read from where they lie, have the sender's hash.
//! I2. What is wrong with one file is that file's failure: records go on being taken.
//!
//! # Not here
//! How the directory is kept safe (`target`), and how records come (`receiver`).

mod replacement;

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};

use super::message::{HashPolicy, PlannedChanges, REPORTED_MAX, ReceiverOutcome, RemovalTask};
use super::path::RelativePath;
use super::plan::{
    BLOCK, BlockHash, EntryKind, Inventory, ManifestEntry, NumberRuns, hash_of, length_of, root_of,
};
use super::record::{ObjectPart, ObjectParts};
use super::removal::{self, RemovedNames};
use super::target::{FoundKind, TargetDirectory, TemporaryFile, reason, set_times};

/// Small files that wait for one synchronisation of their file system, each with an open
/// descriptor, and their bytes.
const READY_MAX: usize = 256;
const READY_BYTES_MAX: u64 = 64 << 20;
/// What a hole is made of: the smallest page of Linux, and of most file systems.
const PAGE: usize = 4096;

/// The age at which unfinished files among other files count as abandoned: longer than a weekend.
const ABANDONED: Duration = Duration::from_secs(7 * 24 * 3600);

/// How far an entry is.
#[derive(Debug)]
enum EntryProgress {
    /// Nothing is there.
    Absent,
    /// As it must be.
    Same,
    /// Some blocks are there.
    Part(Box<PartialFile>),
    /// Whole and checked; not yet under its name.
    Ready,
    Done,
    /// The sender could not send it, and says so once for all.
    Unsent,
    Failed(String),
}

/// What is there of a file.
#[derive(Debug)]
struct PartialFile {
    have: Vec<Option<BlockHash>>,
    /// The file under its own name has all blocks; as it was when they were read.
    in_place: Option<FileStamp>,
}

/// The file that is being written.
struct OpenFile {
    number: u32,
    unfinished: TemporaryFile,
    have: Vec<Option<BlockHash>>,
    /// Blocks were there before.
    had_part: bool,
    /// Where nothing was written there is a hole.
    fresh: bool,
}

/// What a file is and when something was last done to it, which nobody can set: number, seconds,
/// nanoseconds, length.
type FileStamp = (u64, i64, i64, u64);

/// Why a file fails.
type FileFailure = String;

/// The files of one receiver.
pub(super) struct Assembly {
    target: TargetDirectory,
    entries: Vec<ManifestEntry>,
    states: Vec<EntryProgress>,
    open: Option<OpenFile>,
    ready: Vec<(u32, TemporaryFile)>,
    ready_bytes: u64,
    /// Bytes of records that were taken, for who wants to know how far it is.
    taken: Arc<AtomicU64>,
    written: u64,
    buffer: Vec<u8>,
    /// What is removed when everything is there.
    pub(super) removal: Option<RemovalTask>,
    /// Below these a name of another kind makes room for what is cast.
    pub(super) replaced_below: Vec<RelativePath>,
    /// Whole files and links whose name a directory has until it is removed, at the end.
    blocked: Vec<(u32, Option<TemporaryFile>)>,
    /// The sender is gone: nothing more is removed.
    pub(super) is_over: Arc<AtomicBool>,
}

impl Assembly {
    /// Creates the assembly of entries that must be in `target`.
    pub(super) fn new(
        target: TargetDirectory,
        entries: Vec<ManifestEntry>,
        taken: Arc<AtomicU64>,
    ) -> Self {
        let states = entries.iter().map(|_| EntryProgress::Absent).collect();
        let buffer = vec![0; BLOCK as usize];
        Self {
            target,
            entries,
            states,
            open: None,
            ready: Vec::new(),
            ready_bytes: 0,
            taken,
            written: 0,
            buffer,
            removal: None,
            replaced_below: Vec::new(),
            blocked: Vec::new(),
            is_over: Arc::default(),
        }
    }

    /// Looks what is there, and makes directories.
    pub(super) fn survey(&mut self, check: HashPolicy) -> Inventory {
        let mut has = Inventory::default();
        for number in 0..self.entries.len() as u32 {
            let state = self.look(number, check).unwrap_or_else(EntryProgress::Failed);
            match &state {
                EntryProgress::Same => has.same.push(number),
                EntryProgress::Part(_) => has.part.push(number),
                EntryProgress::Failed(_) => has.failed.push(number),
                _ => {}
            }
            self.states[number as usize] = state;
        }
        has
    }

    fn look(&mut self, number: u32, check: HashPolicy) -> Result<EntryProgress, FileFailure> {
        let may_replace = self.may_replace(number);
        let entry = &self.entries[number as usize];
        let why = |error: io::Error| reason(&error);
        if entry.kind == EntryKind::Directory {
            self.make(number).map_err(why)?;
            return Ok(EntryProgress::Absent);
        }
        let found = match self.target.find(&entry.path) {
            // A file stands where a directory of the path would be made.
            Err(error)
                if may_replace
                    && self.target.only_looks()
                    && replacement::is_in_the_way(&error) =>
            {
                return Ok(EntryProgress::Absent);
            }
            found => found.map_err(why)?,
        };
        let is_directory = found.is_some_and(|found| found.kind == FoundKind::Directory);
        if is_directory && !may_replace {
            return Err(Self::in_the_way());
        }
        let EntryKind::File { size, .. } = entry.kind else { return Ok(EntryProgress::Absent) };
        match found.map(|found| found.kind) {
            Some(FoundKind::File { size: there }) if there == size => {
                let found = found.ok_or_else(Self::in_the_way)?;
                let is_kept = entry.modified.is_kept_as(found.modified) && !found.is_foreign;
                if check == HashPolicy::Times && is_kept {
                    if found.mode != entry.mode {
                        self.target.permit(&entry.path, entry.mode).map_err(why)?;
                    }
                    return Ok(EntryProgress::Same);
                }
            }
            _ => {}
        }
        let begun = self.target.begun(&entry.path).map_err(why)?.is_some();
        let some = begun || matches!(found.map(|found| found.kind), Some(FoundKind::File { .. }));
        let part = PartialFile { have: Vec::new(), in_place: None };
        Ok(if some && size > 0 {
            EntryProgress::Part(Box::new(part))
        } else {
            EntryProgress::Absent
        })
    }

    /// Returns how many blocks a file has, if it is one.
    pub(super) fn blocks(&self, number: u32) -> Option<u32> {
        self.entries.get(number as usize)?.blocks()
    }

    /// Returns which blocks of a file are not there, when these are the hashes to have.
    pub(super) fn compare(&mut self, number: u32, hashes: &[BlockHash]) -> NumberRuns {
        let mut lacks = NumberRuns::default();
        match self.keep(number, hashes) {
            Ok(part) => {
                (0..)
                    .zip(&part.have)
                    .filter(|(_, have)| have.is_none())
                    .for_each(|(block, _)| lacks.push(block));
                self.set(number, EntryProgress::Part(Box::new(part)));
            }
            Err(why) => self.fail(number, why),
        }
        lacks
    }

    /// Keeps what agrees: of an unfinished file where it is, of a whole one by copying it there.
    fn keep(&mut self, number: u32, hashes: &[BlockHash]) -> Result<PartialFile, FileFailure> {
        let why = |error: io::Error| reason(&error);
        let entry = self.entries.get(number as usize).ok_or("there is no such file")?;
        let EntryKind::File { size, .. } = entry.kind else {
            return Err("it is no file".to_owned());
        };
        if entry.blocks() != Some(hashes.len() as u32) {
            return Err("the sender sent more or fewer hashes than the file has blocks".to_owned());
        }
        let is_foreign =
            self.target.find(&entry.path).map_err(why)?.is_some_and(|found| found.is_foreign);
        let whole = self.target.whole(&entry.path).map_err(why)?;
        let begun = self.target.begun(&entry.path).map_err(why)?;
        let mut unfinished = begun.map(|begun| begun.file);
        let only_looks = self.target.only_looks();
        if let Some(file) = unfinished.as_ref().filter(|_| !only_looks) {
            file.set_len(size).map_err(why)?;
        }
        let before = whole.as_ref().map(mark).transpose().map_err(why)?;
        let is_long = whole
            .as_ref()
            .is_some_and(|file| file.metadata().is_ok_and(|found| found.len() == size));
        let mut agrees = |file: &Option<File>, block: u32, hash: &BlockHash| {
            let bytes = &mut self.buffer[..length_of(block, size) as usize];
            let read =
                file.as_ref().map(|file| file.read_exact_at(bytes, u64::from(block) * BLOCK));
            matches!(read, Some(Ok(()))) && hash_of(bytes) == *hash
        };
        let mut have = Vec::with_capacity(hashes.len());
        let mut copies = Vec::new();
        for (block, hash) in (0..).zip(hashes) {
            let is_here = agrees(&unfinished, block, hash);
            let is_there = !is_here && agrees(&whole, block, hash);
            copies.extend(is_there.then_some(block));
            have.push((is_here || is_there).then_some(*hash));
        }
        if unfinished.is_none() && is_long && !is_foreign && copies.len() == hashes.len() {
            return Ok(PartialFile { have, in_place: before });
        }
        if only_looks || unfinished.is_none() && copies.is_empty() {
            return Ok(PartialFile { have, in_place: None });
        }
        if unfinished.is_none() {
            unfinished = Some(self.create(number)?.file);
        }
        if let (Some(whole), Some(unfinished)) = (&whole, &unfinished) {
            for block in copies {
                let (at, length) = (u64::from(block) * BLOCK, length_of(block, size) as usize);
                let bytes = &mut self.buffer[..length];
                whole
                    .read_exact_at(bytes, at)
                    .and_then(|()| unfinished.write_all_at(bytes, at))
                    .map_err(why)?;
            }
        }
        Ok(PartialFile { have, in_place: None })
    }

    /// Creates a new unfinished file, as long as the whole one, with room for everything in it.
    fn create(&mut self, number: u32) -> Result<TemporaryFile, FileFailure> {
        let why = |error: io::Error| reason(&error);
        let entry = &self.entries[number as usize];
        let unfinished = self.target.create(&entry.path).map_err(why)?;
        let file = &unfinished.file;
        if let EntryKind::File { size, sparse } = entry.kind {
            if !sparse && size > BLOCK {
                match fallocate(file, FallocateFlags::empty(), 0, size as i64) {
                    // A file system without it tells when it is full.
                    Ok(()) | Err(Errno::EOPNOTSUPP) => {}
                    Err(error) => {
                        self.target.forget(&self.entries[number as usize].path);
                        return Err(error.desc().to_owned());
                    }
                }
            }
            file.set_len(size).map_err(why)?;
        }
        Ok(unfinished)
    }

    /// Takes an object of the broadcast.
    pub(super) fn take(&mut self, object: &[u8]) {
        for record in ObjectParts::from_object(object) {
            let Ok(record) = record else { return };
            let number = match record {
                ObjectPart::Block { file, .. } | ObjectPart::Zeros { file, .. } => file,
                ObjectPart::End { file, .. } | ObjectPart::Broken { file } => file,
            };
            if let Err(why) = self.take_record(number, &record) {
                self.fail(number, why);
            }
            let length = match record {
                ObjectPart::Block { bytes, .. } => bytes.len() as u64,
                ObjectPart::Zeros { length, .. } => length.into(),
                _ => 0,
            };
            self.taken.fetch_add(length, Ordering::Relaxed);
        }
    }

    fn take_record(&mut self, number: u32, record: &ObjectPart<'_>) -> Result<(), FileFailure> {
        match self.states.get(number as usize) {
            Some(EntryProgress::Absent | EntryProgress::Part(_)) => {}
            _ => return Ok(()),
        }
        if !matches!(self.entries[number as usize].kind, EntryKind::File { .. } | EntryKind::Stream)
        {
            return Ok(());
        }
        match *record {
            ObjectPart::Block { block, bytes, .. } => {
                self.block(number, block, Some(bytes), bytes.len())
            }
            ObjectPart::Zeros { block, length, .. } => {
                self.block(number, block, None, length as usize)
            }
            ObjectPart::End { size, root, .. } => self.end(number, size, root),
            ObjectPart::Broken { .. } => {
                // What is there of it stays for the next time.
                self.open.take_if(|open| open.number == number);
                self.set(number, EntryProgress::Unsent);
                Ok(())
            }
        }
    }

    /// Makes `number` the file that is being written.
    fn turn_to(&mut self, number: u32) -> Result<(), FileFailure> {
        if self.open.as_ref().is_some_and(|open| open.number == number) {
            return Ok(());
        }
        if let Some(before) = self.open.take() {
            self.fail(before.number, "it did not end".to_owned());
        }
        let path = &self.entries[number as usize].path;
        let begun = self.target.begun(path).map_err(|error| reason(&error))?;
        let have = match &mut self.states[number as usize] {
            EntryProgress::Part(part) => std::mem::take(&mut part.have),
            _ => Vec::new(),
        };
        let had_part = have.iter().any(Option::is_some);
        let (unfinished, fresh) = match begun {
            Some(unfinished) => {
                let file = &unfinished.file;
                if !had_part {
                    file.set_len(0).map_err(|error| reason(&error))?;
                }
                if let EntryKind::File { size, .. } = self.entries[number as usize].kind {
                    file.set_len(size).map_err(|error| reason(&error))?;
                }
                (unfinished, !had_part)
            }
            None if had_part => return Err("its beginning was removed".to_owned()),
            None => (self.create(number)?, true),
        };
        let blocks = self.entries[number as usize].blocks().unwrap_or_default() as usize;
        let have = if had_part { have } else { vec![None; blocks] };
        self.open = Some(OpenFile { number, unfinished, have, had_part, fresh });
        Ok(())
    }

    /// Takes a block that came; without bytes it is zeros.
    fn block(
        &mut self,
        number: u32,
        block: u32,
        bytes: Option<&[u8]>,
        length: usize,
    ) -> Result<(), FileFailure> {
        let is_part_in_place = matches!(&self.states[number as usize], EntryProgress::Part(part) if part.in_place.is_some());
        if is_part_in_place {
            return Ok(());
        }
        self.turn_to(number)?;
        let kind = &self.entries[number as usize].kind;
        let Some(open) = &mut self.open else { return Ok(()) };
        let file = &open.unfinished.file;
        let is_sound = match *kind {
            EntryKind::File { size, .. } => {
                (block as usize) < open.have.len() && length as u64 == length_of(block, size)
            }
            // Blocks of a stream come one behind the other, and none behind a short one.
            _ => {
                block as usize == open.have.len()
                    && file.metadata().is_ok_and(|it| it.len() % BLOCK == 0)
            }
        };
        if !is_sound {
            return Err("a block came that it does not have".to_owned());
        }
        if open.have.get(block as usize).is_some_and(Option::is_some) {
            return Ok(());
        }
        let sparse = matches!(kind, EntryKind::File { sparse: true, .. });
        let at = u64::from(block) * BLOCK;
        let room = &mut self.buffer[..length];
        match bytes {
            Some(bytes) if sparse => write_sparse(file, bytes, at, open.fresh),
            Some(bytes) => file.write_all_at(bytes, at),
            None if sparse => punch(file, at, length, open.fresh),
            None => {
                room.fill(0);
                file.write_all_at(room, at)
            }
        }
        .and_then(|()| file.read_exact_at(room, at))
        .map_err(|error| reason(&error))?;
        let hash = Some(hash_of(room));
        match open.have.get_mut(block as usize) {
            Some(have) => *have = hash,
            None => open.have.push(hash),
        }
        self.written += length as u64;
        Ok(())
    }

    /// Ends a file of which everything has come.
    fn end(&mut self, number: u32, size: u64, root: BlockHash) -> Result<(), FileFailure> {
        let is = |state: &EntryProgress| matches!(state, EntryProgress::Part(part) if part.in_place.is_some());
        if is(&self.states[number as usize]) {
            return self.end_in_place(number, size, root);
        }
        self.turn_to(number)?;
        let Some(mut open) = self.open.take() else { return Ok(()) };
        let why = |error: io::Error| reason(&error);
        let file = &open.unfinished.file;
        if file.metadata().map_err(why)?.len() != size {
            return Err("it has another length than the sender's".to_owned());
        }
        if open.had_part {
            // Another process may have had it meanwhile.
            for (block, have) in (0..).zip(&mut open.have) {
                let room = &mut self.buffer[..length_of(block, size) as usize];
                file.read_exact_at(room, u64::from(block) * BLOCK).map_err(why)?;
                *have = have.map(|_| hash_of(room));
            }
        }
        let hashes = open.have.iter().copied().collect::<Option<Vec<BlockHash>>>();
        let hashes = hashes.ok_or_else(|| "parts of it did not come".to_owned())?;
        if root_of(size, hashes) != root {
            self.target.forget(&self.entries[number as usize].path);
            return Err("what was written is not what was sent".to_owned());
        }
        let entry = &self.entries[number as usize];
        file.set_permissions(PermissionsExt::from_mode(entry.mode)).map_err(why)?;
        set_times(file, entry.modified).map_err(|error| error.desc().to_owned())?;
        if size > BLOCK {
            file.sync_all().map_err(why)?;
            self.put(number, open.unfinished);
            return Ok(());
        }
        self.set(number, EntryProgress::Ready);
        // Open, it is nobody else's; with its permissions it could perhaps not be opened again.
        self.ready.push((number, open.unfinished));
        self.ready_bytes += size;
        if self.ready.len() >= READY_MAX || self.ready_bytes >= READY_BYTES_MAX {
            self.appear();
        }
        Ok(())
    }

    /// Ends a file of which only times and permissions differ.
    fn end_in_place(&mut self, number: u32, size: u64, root: BlockHash) -> Result<(), FileFailure> {
        let entry = &self.entries[number as usize];
        let EntryProgress::Part(part) = &self.states[number as usize] else { return Ok(()) };
        let (hashes, before) = (part.have.iter().copied().flatten(), part.in_place);
        if root_of(size, hashes) != root {
            return Err("it changed while it was sent".to_owned());
        }
        let file = self.target.whole(&entry.path).map_err(|error| reason(&error))?;
        let file = file.ok_or("it was removed here")?;
        if Some(mark(&file).map_err(|error| reason(&error))?) != before {
            return Err("it changed here".to_owned());
        }
        set_times(&file, entry.modified).map_err(|error| error.desc().to_owned())?;
        file.set_permissions(PermissionsExt::from_mode(entry.mode))
            .map_err(|error| reason(&error))?;
        self.set(number, EntryProgress::Done);
        Ok(())
    }

    /// Interrupts the assembly, to go on later with what then comes; returns what is there, and of
    /// files of which a part is, what they lack.
    pub(super) fn interrupt(&mut self) -> (Inventory, Vec<(u32, NumberRuns)>) {
        if let Some(OpenFile { number, have, .. }) = self.open.take() {
            self.set(number, EntryProgress::Part(Box::new(PartialFile { have, in_place: None })));
        }
        self.appear();
        let (mut has, mut lacks) = (Inventory::default(), Vec::new());
        for (number, state) in (0..).zip(&self.states) {
            match state {
                EntryProgress::Same | EntryProgress::Ready | EntryProgress::Done => {
                    has.same.push(number)
                }
                EntryProgress::Failed(_) | EntryProgress::Unsent => has.failed.push(number),
                EntryProgress::Part(part) if part.have.iter().any(Option::is_some) => {
                    let mut runs = NumberRuns::default();
                    let blocks = (0..).zip(&part.have);
                    blocks
                        .filter(|(_, have)| have.is_none())
                        .for_each(|(block, _)| runs.push(block));
                    has.part.push(number);
                    lacks.push((number, runs));
                }
                EntryProgress::Part(_) | EntryProgress::Absent => {}
            }
        }
        (has, lacks)
    }

    /// Lets small files appear that are whole.
    pub(super) fn appear(&mut self) {
        let synced = if self.ready.is_empty() { Ok(()) } else { self.target.sync() };
        for (number, unfinished) in std::mem::take(&mut self.ready) {
            match &synced {
                Ok(()) => self.put(number, unfinished),
                Err(error) => self.fail(number, reason(&io::Error::from(error.kind()))),
            }
        }
        self.ready_bytes = 0;
    }

    /// Ends the assembly when all has been cast: what remains is done, and reported.
    pub(super) fn finish(&mut self) -> ReceiverOutcome {
        if self.target.only_looks() {
            let (changes, removed) = (self.changes(), self.remove());
            return ReceiverOutcome { changes, ..self.outcome(removed) };
        }
        if let Some(open) = self.open.take() {
            self.fail(open.number, "it did not end".to_owned());
        }
        self.appear();
        // Directories last, and inner ones before outer ones: what is made in one changes its time.
        for number in (0..self.entries.len() as u32).rev() {
            let entry = &self.entries[number as usize];
            let done = match (&entry.kind, &self.states[number as usize]) {
                (_, EntryProgress::Failed(_) | EntryProgress::Unsent) => continue,
                (EntryKind::Link { to }, _) => {
                    self.target.link(&entry.path, OsStr::from_bytes(&to.0))
                }
                (EntryKind::Directory, _) => Ok(()),
                (_, EntryProgress::Same | EntryProgress::Done | EntryProgress::Ready) => continue,
                _ => Err(io::Error::other("it did not come")),
            };
            match done {
                Ok(()) => self.set(number, EntryProgress::Same),
                Err(error) if self.waits(number, &error) => {
                    self.set(number, EntryProgress::Ready);
                    self.blocked.push((number, None));
                }
                Err(error) => self.fail(number, reason(&error)),
            }
        }
        self.sweep();
        let removed = self.remove();
        self.put_blocked();
        for number in (0..self.entries.len() as u32).rev() {
            let entry = &self.entries[number as usize];
            let is_directory = entry.kind == EntryKind::Directory && entry.path.split().is_some();
            if is_directory && matches!(self.states[number as usize], EntryProgress::Same) {
                let closed = self.target.close(&entry.path, entry.mode, entry.modified);
                closed.unwrap_or_else(|error| self.fail(number, reason(&error)));
            }
        }
        self.target.restore();
        self.outcome(removed)
    }

    /// Removes what the source does not have, if that is wanted and everything is there.
    fn remove(&mut self) -> RemovedNames {
        let Some(task) = self.removal.take() else { return RemovedNames::default() };
        let is_wrong = |state: &EntryProgress| {
            matches!(state, EntryProgress::Failed(_) | EntryProgress::Unsent)
        };
        if self.states.iter().any(is_wrong) {
            let note = "nothing was removed, because not everything arrived".to_owned();
            self.target.notes.push(note);
            return RemovedNames::default();
        }
        removal::remove(&mut self.target, &task, &self.entries, &self.is_over)
    }

    /// Returns how the files are.
    fn outcome(&mut self, removed: RemovedNames) -> ReceiverOutcome {
        let count_of = |is: fn(&EntryProgress) -> bool| {
            self.states.iter().filter(|state| is(state)).count() as u64
        };
        let files = count_of(|state| matches!(state, EntryProgress::Done));
        let unsent = count_of(|state| matches!(state, EntryProgress::Unsent));
        let failed = || {
            self.entries.iter().zip(&self.states).filter_map(|(entry, state)| match state {
                EntryProgress::Failed(why) => Some((entry.path.text(), why.clone())),
                _ => None,
            })
        };
        let (count, extras) = (removed.count, removed.extras);
        let why = failed().chain(removed.why.iter().cloned()).take(REPORTED_MAX).collect();
        let failed = failed().count() as u64 + removed.failed;
        ReceiverOutcome {
            written: self.written,
            files,
            failed,
            unsent,
            why,
            notes: std::mem::take(&mut self.target.notes),
            removed: count,
            extras,
            changes: PlannedChanges::default(),
        }
    }

    /// Removes unfinished parts of files that are not in the sender's directories any more. Other
    /// casts may have begun something in the target itself: what they did not go on with for long
    /// is removed there.
    fn sweep(&mut self) {
        let Self { target, entries, states, .. } = self;
        let is_done =
            |state: &EntryProgress| matches!(state, EntryProgress::Same | EntryProgress::Done);
        let kept = |directory: &RelativePath| {
            let undone = entries.iter().zip(states.iter()).filter(|(_, state)| !is_done(state));
            let inside = undone.filter_map(|(entry, _)| entry.path.split());
            let names: Vec<_> = inside
                .filter(|(parent, _)| parent == directory)
                .map(|(_, name)| name.to_owned())
                .collect();
            names.into_iter()
        };
        let directories = entries
            .iter()
            .zip(states.iter())
            .filter(|(entry, _)| entry.kind == EntryKind::Directory);
        for (entry, _) in directories.filter(|(_, state)| is_done(state)) {
            target.sweep(
                &entry.path,
                None,
                &mut std::iter::once_with(|| kept(&entry.path)).flatten(),
            );
        }
        let here = RelativePath::default();
        target.sweep(&here, SystemTime::now().checked_sub(ABANDONED), &mut kept(&here));
    }

    /// Returns what tells the target, and the directories that it is in, from others of its machine.
    pub(super) fn places(&self) -> io::Result<Vec<(u64, u64)>> {
        self.target.places()
    }

    /// Returns why entries failed so far, some of them.
    pub(super) fn failures(&self) -> Vec<(u32, FileFailure)> {
        let why = |(number, state): (u32, &EntryProgress)| match state {
            EntryProgress::Failed(why) => Some((number, why.clone())),
            _ => None,
        };
        (0..).zip(&self.states).filter_map(why).take(REPORTED_MAX).collect()
    }

    fn set(&mut self, number: u32, state: EntryProgress) {
        if let Some(place) = self.states.get_mut(number as usize) {
            *place = state;
        }
    }

    /// Fails a file. What is there of it stays for the next time, unless there is no room for it.
    fn fail(&mut self, number: u32, why: FileFailure) {
        if self.open.as_ref().is_some_and(|open| open.number == number) {
            self.open = None;
        }
        if why == Errno::ENOSPC.desc() || why == Errno::EDQUOT.desc() {
            let path = self.entries.get(number as usize).map(|entry| entry.path.clone());
            path.into_iter().for_each(|path| self.target.forget(&path));
        }
        self.set(number, EntryProgress::Failed(why));
    }
}

fn mark(file: &File) -> io::Result<FileStamp> {
    let found = file.metadata()?;
    Ok((found.ino(), found.ctime(), found.ctime_nsec(), found.len()))
}

/// Writes pages that are not zero, and leaves holes for the others.
fn write_sparse(file: &File, bytes: &[u8], at: u64, fresh: bool) -> io::Result<()> {
    let is_zero = |page: &[u8]| page.iter().all(|byte| *byte == 0);
    let pages: Vec<&[u8]> = bytes.chunks(PAGE).collect();
    let mut offset = at;
    for run in pages.chunk_by(|a, b| is_zero(a) == is_zero(b)) {
        let length: usize = run.iter().map(|page| page.len()).sum();
        if run.first().is_some_and(|page| is_zero(page)) {
            punch(file, offset, length, fresh)?;
        } else {
            let from = (offset - at) as usize;
            file.write_all_at(&bytes[from..from + length], offset)?;
        }
        offset += length as u64;
    }
    Ok(())
}

/// Makes sure of a hole.
fn punch(file: &File, at: u64, length: usize, fresh: bool) -> io::Result<()> {
    if fresh {
        return Ok(());
    }
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    match fallocate(file, flags, at as i64, length as i64) {
        Err(Errno::EOPNOTSUPP) => file.write_all_at(&vec![0; length], at),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests;
