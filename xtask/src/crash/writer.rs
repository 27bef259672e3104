//! A program that writes to a mount, and notes what it asked for and what it was answered.
//!
//! # Model
//! A writer has a directory of its own and makes one change after the other. Before a change it notes
//! how far the journal of the disk is, and the tree as it will be. What a `fsync`, a `close`, or the
//! `fsync` of a directory returned for is *acknowledged*: the change that it covers and, because a log
//! has one order, everything that any writer had done before that change began.
//!
//! After a loss of power at a position of the journal, a writer's tree is one of those it had: not one
//! before what was acknowledged at that position, and not one of a change that began later.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::server::ForgetfulDisk;
use super::tree::{ModelTree, TreeStep, difference};
use crate::swarm::Draws;

/// Longest file that a writer makes, but for fillers.
const LONGEST: u64 = 96 << 10;
/// Bytes that are written at once to move the log along: zeros, which a sparse image does not store.
const FILLER: usize = 1 << 20;
/// Places in a file of fillers.
const FILLERS: u64 = 4;
/// Bytes of a page.
const PAGE: u64 = 4096;
/// Open files of a writer.
const OPEN_MAX: usize = 4;

/// One change, as it was noted.
#[derive(Clone, Debug)]
struct StepNote {
    /// The journal's position before it.
    begin: usize,
    /// Counts all beginnings and ends of all writers.
    began: u64,
    ended: Option<u64>,
    /// The tree behind it.
    state: Arc<str>,
    what: String,
}

/// From a position of the journal on the first `steps` changes are safe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acknowledgement {
    pub(super) steps: usize,
    pub(super) position: usize,
    /// By what.
    by: &'static str,
}

/// What is known about a writer since power came.
#[derive(Clone, Debug)]
pub(super) struct WriterNotes {
    /// The tree when power came.
    first: Arc<str>,
    steps: Vec<StepNote>,
    pub(super) acknowledged: Vec<Acknowledgement>,
}

impl WriterNotes {
    fn new(first: Arc<str>) -> Self {
        Self { first, steps: Vec::new(), acknowledged: Vec::new() }
    }

    fn state(&self, at: usize) -> &str {
        match at.checked_sub(1) {
            None => &self.first,
            Some(step) => &self.steps[step].state,
        }
    }

    /// Finds which state a tree is that was found after a crash at `position`.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub(super) fn place(&self, found: &str, position: usize) -> Result<usize, String> {
        let known = self.acknowledged.iter().filter(|it| it.position <= position);
        let (least, by) = known.map(|it| (it.steps, it.by)).max().unwrap_or((0, "nobody"));
        let most = self.steps.iter().take_while(|step| step.begin < position).count();
        if let Some(place) = (least..=most).rev().find(|at| self.state(*at) == found) {
            return Ok(place);
        }
        let what = |at: usize| at.checked_sub(1).map_or("nothing", |step| &self.steps[step].what);
        Err(match (0..=self.steps.len()).find(|at| self.state(*at) == found) {
            Some(at) if at < least => {
                let last = what(least);
                format!(
                    "only change {at} is there, and {least} are acknowledged by {by}, up to {last}"
                )
            }
            Some(at) => format!("change {at} is there, and only {most} were asked for"),
            None => {
                let (last, differs) = (what(most), difference(found, self.state(most)));
                format!(
                    "a tree that never was: {least} changes are acknowledged, {most} asked for, up \
                     to {last}: {differs}"
                )
            }
        })
    }

    /// Returns how many changes were acknowledged when they were made: what a log would promise that
    /// believes memory.
    pub(super) fn believe_memory(&mut self) {
        let ends = self.steps.iter().enumerate().skip(1);
        let early = ends.map(|(at, step)| Acknowledgement {
            steps: at,
            position: step.begin,
            by: "memory",
        });
        self.acknowledged = early.collect();
    }

    /// Acknowledges one change more each time.
    pub(super) fn acknowledge_next(&mut self) {
        for known in &mut self.acknowledged {
            known.steps = self.steps.len().min(known.steps + 1);
        }
    }
}

/// A writer and its tree.
pub(super) struct Writer {
    top: String,
    tree: ModelTree,
    /// The trees behind each change since power came, and the one before all.
    states: Vec<ModelTree>,
    pub(super) notes: WriterNotes,
    open: BTreeMap<usize, File>,
    /// The last change of each file and directory, as a number of changes.
    touched: BTreeMap<Touched, usize>,
    is_filling: bool,
}

/// What a sync covers changes of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Touched {
    File(usize),
    Directory(String),
}

fn directory_of(path: &str) -> String {
    path.rsplit_once('/').map_or(String::new(), |(directory, _)| directory.to_owned())
}

impl Writer {
    /// Makes one; a filling writer moves the log along fast.
    pub(super) fn new(number: usize, is_filling: bool) -> Self {
        let tree = ModelTree::default();
        Self {
            top: format!("w{number}"),
            notes: WriterNotes::new(tree.text()),
            states: vec![tree.clone()],
            tree,
            open: BTreeMap::new(),
            touched: BTreeMap::new(),
            is_filling,
        }
    }

    pub(super) fn top(&self) -> &str {
        &self.top
    }

    /// Takes what was found behind a crash at `position` as what is there.
    ///
    /// # Errors
    /// As [`WriterNotes::place`].
    pub(super) fn continue_from(
        &mut self,
        found: &str,
        position: usize,
        clock: &AtomicU64,
    ) -> Result<(), String> {
        let found = self.notes.place(found, position)?;
        self.open.clear();
        self.touched.clear();
        self.states.truncate(found + 1);
        self.notes.steps.truncate(found);
        self.tree = self.states[found].clone();
        // Nobody was answered for the last change, and everything to come is behind it.
        if let Some(last) = self.notes.steps.last_mut() {
            last.ended.get_or_insert_with(|| clock.fetch_add(1, Ordering::SeqCst));
        }
        Ok(())
    }

    /// Acknowledges everything at `position`.
    pub(super) fn all_safe(&mut self, position: usize, by: &'static str) {
        let steps = self.notes.steps.len();
        self.notes.acknowledged.push(Acknowledgement { steps, position, by });
    }

    /// Begins new notes with what is there: power came again.
    pub(super) fn begin_life(&mut self) {
        self.states = vec![self.tree.clone()];
        self.notes = WriterNotes::new(self.tree.text());
    }

    /// Closes all files.
    pub(super) fn close_all(&mut self) {
        self.open.clear();
    }

    /// Makes changes until `steps` of them are made or the mount is gone.
    ///
    /// # Errors
    /// An answer that no loss of the mount explains.
    pub(super) fn run(
        &mut self,
        mount: &Path,
        disk: &ForgetfulDisk,
        clock: &AtomicU64,
        mut draws: Draws,
        steps: usize,
    ) -> Result<(), String> {
        let until = self.notes.steps.len() + steps;
        while self.notes.steps.len() < until {
            let done = match draws.below(5) {
                0 => self.make_safe(mount, disk, &mut draws),
                1 if draws.below(3) == 0 => self.open_one(mount, &mut draws),
                _ => match self.draw(&mut draws) {
                    Some(step) => self.make(mount, disk, clock, &step),
                    None => continue,
                },
            };
            match done {
                // A full log: the change was not made.
                Err(why) if why.kind() == io::ErrorKind::StorageFull => {
                    self.take_back();
                    break;
                }
                // ENOTCONN, ECONNABORTED, and what a request gets that was under way.
                Err(why) if [107, 103, 5].contains(&why.raw_os_error().unwrap_or(0)) => break,
                Err(why) => {
                    let what = self.notes.steps.last().map_or("", |step| &step.what);
                    return Err(format!("{}: {why} behind {what}", self.top));
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Forgets the last change, which was refused.
    fn take_back(&mut self) {
        self.notes.steps.pop();
        self.states.pop();
        if let Some(before) = self.states.last() {
            self.tree = before.clone();
        }
    }

    /// Notes a change and makes it.
    fn make(
        &mut self,
        mount: &Path,
        disk: &ForgetfulDisk,
        clock: &AtomicU64,
        step: &TreeStep,
    ) -> io::Result<()> {
        let mut next = self.tree.clone();
        let file = next.apply(step);
        let what = format!("{step:.60?}");
        let what = what.chars().take(100).collect();
        let (begin, state) = (disk.position(), next.text());
        let began = clock.fetch_add(1, Ordering::SeqCst);
        self.notes.steps.push(StepNote { begin, began, ended: None, state, what });
        self.states.push(next.clone());
        self.tree = next;
        let opened = perform(mount, step, &self.open)?;
        let ended = clock.fetch_add(1, Ordering::SeqCst);
        let number = self.notes.steps.len();
        if let Some(last) = self.notes.steps.last_mut() {
            last.ended = Some(ended);
        }
        if let (Some(file), Some(opened)) = (file, opened) {
            self.open.insert(file, opened);
        }
        let names: &[&String] = match step {
            TreeStep::Rename(from, to) => &[from, to],
            TreeStep::Link(_, path)
            | TreeStep::MakeDirectory(path)
            | TreeStep::RemoveDirectory(path)
            | TreeStep::Create(path)
            | TreeStep::Unlink(path)
            | TreeStep::Symlink { path, .. } => &[path],
            _ => &[],
        };
        if let Some(file) = file {
            self.touched.insert(Touched::File(file), number);
        }
        for name in names {
            self.touched.insert(Touched::Directory(directory_of(name)), number);
        }
        Ok(())
    }

    /// Opens a file that is there.
    fn open_one(&mut self, mount: &Path, draws: &mut Draws) -> io::Result<()> {
        let files: Vec<(&String, usize)> = self
            .tree
            .names
            .iter()
            .filter(|(path, node)| self.tree.is_file(path) && !self.open.contains_key(node))
            .map(|(path, node)| (path, *node))
            .collect();
        if !files.is_empty() && self.open.len() < OPEN_MAX {
            let (path, node) = files[draws.below(files.len() as u64) as usize];
            let open = OpenOptions::new().read(true).write(true).open(mount.join(path))?;
            self.open.insert(node, open);
        }
        Ok(())
    }

    /// Syncs or closes a file, or syncs a directory, and notes what is safe then.
    fn make_safe(
        &mut self,
        mount: &Path,
        disk: &ForgetfulDisk,
        draws: &mut Draws,
    ) -> io::Result<()> {
        let files: Vec<usize> = self.open.keys().copied().collect();
        let (covers, by) = if files.is_empty() || draws.below(3) == 0 {
            let directories: Vec<&String> =
                self.tree.names.keys().filter(|path| self.tree.is_directory(path)).collect();
            if directories.is_empty() {
                return Ok(());
            }
            let path = directories[draws.below(directories.len() as u64) as usize].clone();
            File::open(mount.join(&path))?.sync_all()?;
            (Touched::Directory(path), "sync of a directory")
        } else {
            let file = files[draws.below(files.len() as u64) as usize];
            let by = match (draws.below(3), self.open.get(&file)) {
                (0, Some(open)) => open.sync_all().map(|()| "fsync")?,
                (1, Some(open)) => open.sync_data().map(|()| "fdatasync")?,
                _ => {
                    drop(self.open.remove(&file));
                    is_alive(mount)?;
                    "close"
                }
            };
            (Touched::File(file), by)
        };
        if let Some(steps) = self.touched.get(&covers).copied() {
            let position = disk.position();
            self.notes.acknowledged.push(Acknowledgement { steps, position, by });
        }
        Ok(())
    }

    /// Draws a change that can be made.
    fn draw(&self, draws: &mut Draws) -> Option<TreeStep> {
        if !self.tree.is_directory(&self.top) {
            return Some(TreeStep::MakeDirectory(self.top.clone()));
        }
        let path = |draws: &mut Draws| match draws.below(5) {
            0..3 => format!("{}/{}", self.top, draws.below(6)),
            _ => format!("{}/d{}/{}", self.top, draws.below(2), draws.below(4)),
        };
        let (one, other) = (path(draws), path(draws));
        let directory = format!("{}/d{}", self.top, draws.below(2));
        let is_free = |path: &str| {
            !self.tree.names.contains_key(path) && self.tree.is_directory(&directory_of(path))
        };
        let has = |path: &str| self.tree.names.contains_key(path);
        let files: Vec<usize> = self.open.keys().copied().collect();
        if !files.is_empty() && draws.below(2) == 0 {
            return Some(self.draw_bytes(files[draws.below(files.len() as u64) as usize], draws));
        }
        let step = match draws.below(12) {
            0..4 if is_free(&one) && files.len() < OPEN_MAX => TreeStep::Create(one),
            4 if is_free(&directory) => TreeStep::MakeDirectory(directory),
            5 if self.tree.is_directory(&directory) && self.tree.is_empty(&directory) => {
                TreeStep::RemoveDirectory(directory)
            }
            6 | 7
                if has(&one)
                    && self.tree.is_directory(&directory_of(&other))
                    && self.tree.names.get(&one) != self.tree.names.get(&other) =>
            {
                TreeStep::Rename(one, other)
            }
            8 if self.tree.is_file(&one) && is_free(&other) => TreeStep::Link(one, other),
            9 if has(&one) => TreeStep::Unlink(one),
            11 if self.tree.is_directory(&directory) => {
                let to = format!("{}/d{}", self.top, draws.below(2));
                if self.tree.names.contains_key(&to) {
                    return None;
                }
                TreeStep::Rename(directory, to)
            }
            10 if is_free(&one) => TreeStep::Symlink { target: other, path: one },
            _ => return None,
        };
        Some(step)
    }

    /// Draws a change of an open file.
    fn draw_bytes(&self, node: usize, draws: &mut Draws) -> TreeStep {
        if self.is_filling && draws.below(3) > 0 {
            let at = draws.below(FILLERS) * FILLER as u64;
            return TreeStep::Write { node, at, bytes: vec![0; FILLER] };
        }
        let size = self.tree.size(node);
        let at = match draws.below(3) {
            // As a log or a journal grows.
            0 => size.min(LONGEST),
            1 => draws.below(LONGEST),
            _ => draws.below(24) * 4096,
        };
        match draws.below(8) {
            0 => TreeStep::Cut { node, size: draws.below(LONGEST) },
            1 => TreeStep::Mode { node, mode: 0o600 | draws.below(0o100) as u32 },
            _ => {
                let most = [100, 5000, 40_000][draws.below(3) as usize];
                // The kernel sends what is in front of the first whole page as a write of its own.
                let most = if at % PAGE > 0 { PAGE - at % PAGE } else { most };
                let length = 1 + draws.below(most);
                TreeStep::Write { node, at, bytes: draws.bytes(length) }
            }
        }
    }
}

/// Asks a mount for something that no cache has. The standard library closes a file without saying how
/// that ended; on a mount that answers afterwards it ended well.
fn is_alive(mount: &Path) -> io::Result<()> {
    match fs::symlink_metadata(mount.join("nothing")) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(why) => Err(why),
        Ok(_) => Ok(()),
    }
}

/// Makes a change on a mount; a file that it creates.
fn perform(
    mount: &Path,
    step: &TreeStep,
    open: &BTreeMap<usize, File>,
) -> io::Result<Option<File>> {
    let at = |path: &String| mount.join(path);
    let handle = |node: &usize| open.get(node).ok_or(io::Error::from(io::ErrorKind::NotFound));
    match step {
        TreeStep::MakeDirectory(path) => fs::create_dir(at(path))?,
        TreeStep::RemoveDirectory(path) => fs::remove_dir(at(path))?,
        TreeStep::Create(path) => {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true).mode(0o600);
            return options.open(at(path)).map(Some);
        }
        TreeStep::Write { node, at, bytes } => handle(node)?.write_all_at(bytes, *at)?,
        TreeStep::Cut { node, size } => handle(node)?.set_len(*size)?,
        TreeStep::Mode { node, mode } => {
            handle(node)?.set_permissions(Permissions::from_mode(*mode))?;
        }
        TreeStep::Rename(from, to) => fs::rename(at(from), at(to))?,
        TreeStep::Link(from, to) => fs::hard_link(at(from), at(to))?,
        TreeStep::Unlink(path) => fs::remove_file(at(path))?,
        TreeStep::Symlink { target, path } => symlink(target, at(path))?,
    }
    Ok(None)
}

/// Adds what one writer's acknowledgements say about the others: what ended before a change began that
/// is safe, is safe.
pub(super) fn share_acknowledgements(writers: &mut [Writer]) {
    let known: Vec<(u64, usize)> = writers
        .iter()
        .flat_map(|writer| {
            writer.notes.acknowledged.iter().filter_map(|known| {
                let last = writer.notes.steps.get(known.steps.checked_sub(1)?)?;
                Some((last.began, known.position))
            })
        })
        .collect();
    for writer in writers {
        for (began, position) in &known {
            let before = |step: &&StepNote| step.ended.is_some_and(|ended| ended < *began);
            let steps = writer.notes.steps.iter().take_while(before).count();
            writer.notes.acknowledged.push(Acknowledgement {
                steps,
                position: *position,
                by: "another",
            });
        }
    }
}
