//! Builds what a loss of power could leave at each position of a journal, opens it as a log with the
//! objects of its store, and compares what is found with what was acknowledged and asked for.
//!
//! # Model
//! At each position there are the states in which everything survives, nothing that was not synced, and
//! some that are drawn. Equal states are opened once; the bounds are compared at each position.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};

use super::disk::{DiskContent, DiskImage, NodeNumber, Survival, UnsyncedDisk};
use super::session::LifeRecord;
use super::tree::{FoundName, tree_text};
use crate::swarm::Draws;

/// What was counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StateCounts {
    /// States that were compared.
    pub(super) states: u64,
    /// States that were opened: the others were equal to one of them.
    pub(super) opened: u64,
}

/// Where a look at states begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstState {
    /// With what was there when power came.
    PowerOn,
    /// When the first mount was ready: the states before it are slow to open, and promise nothing.
    Mounted,
}

/// Which states are looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct StateChoice {
    /// Drawn ones at each position.
    pub(super) drawn: u64,
    /// The first one.
    pub(super) begins: FirstState,
    /// Positions from one to the next; the first is drawn.
    pub(super) stride: usize,
    pub(super) seed: u64,
}

/// A loss of power after which something is wrong.
#[derive(Debug)]
pub(super) struct StateFault {
    pub(super) position: usize,
    pub(super) survival: Survival,
    pub(super) why: String,
    image: DiskImage,
}

impl StateFault {
    /// Writes log and objects of the state into a directory, for people who look for the cause.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn keep(&self, directory: &Path) -> std::io::Result<()> {
        write_state(&self.image, directory)
    }
}

/// The trees of all writers in a state, or why it is not opened.
type FoundState = Result<Vec<Arc<str>>, String>;

/// A process that opens logs.
pub(super) struct Recoverer {
    program: PathBuf,
    place: PathBuf,
    running: Option<(Child, ChildStdin, BufReader<ChildStdout>)>,
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);

impl Recoverer {
    /// Makes one that puts states into memory where that is possible.
    pub(super) fn new(program: &Path) -> Self {
        let shared = Path::new("/dev/shm");
        let base = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let place = base.join(format!("clearway-states-{}-{number}", std::process::id()));
        Self { program: program.to_owned(), place, running: None }
    }

    /// Opens the log of a state; what each writer's directory has.
    fn open(&mut self, image: &DiskImage, writers: usize) -> Result<FoundState> {
        write_state(image, &self.place).context("cannot write a state")?;
        if self.running.is_none() {
            let mut command = Command::new(&self.program);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().context("cannot start recover")?;
            let (Some(asks), Some(says)) = (child.stdin.take(), child.stdout.take()) else {
                anyhow::bail!("recover has no pipes");
            };
            self.running = Some((child, asks, BufReader::new(says)));
        }
        let Some((_, asks, says)) = &mut self.running else { anyhow::bail!("recover is gone") };
        let mut found: Vec<FoundName> = Vec::new();
        // One that ended answers nothing.
        let _ = writeln!(asks, "{}", self.place.display());
        for line in says.lines() {
            let line = line?;
            if let Some(name) = FoundName::parse(&line) {
                found.push(name);
            } else if line == "end" {
                return Ok(Ok(trees(found, writers)));
            } else {
                return Ok(Err(line));
            }
        }
        self.stop();
        Ok(Err("the program that opens it ended by a fault".into()))
    }

    fn stop(&mut self) {
        if let Some((mut child, asks, says)) = self.running.take() {
            drop((asks, says));
            let _ = child.wait();
        }
    }
}

impl Drop for Recoverer {
    fn drop(&mut self) {
        self.stop();
        let _ = fs::remove_dir_all(&self.place);
    }
}

/// Returns each writer's tree. What belongs to none is wrong in the first one's.
fn trees(found: Vec<FoundName>, writers: usize) -> Vec<Arc<str>> {
    let mut by_writer: Vec<Vec<FoundName>> = vec![Vec::new(); writers];
    for name in found {
        let writer = name.top().strip_prefix('w').and_then(|number| number.parse().ok());
        let writer: usize = writer.unwrap_or(0);
        by_writer[writer.min(writers - 1)].push(name);
    }
    by_writer.into_iter().map(tree_text).collect()
}

/// The part of a store that has the bytes of files. Its names are links of these.
const OBJECTS: &str = "store/.clearway-objects";

/// Writes what `recover` reads.
fn write_state(image: &DiskImage, directory: &Path) -> std::io::Result<()> {
    let _ = fs::remove_dir_all(directory);
    fs::create_dir_all(directory.join("store"))?;
    for part in ["log", OBJECTS] {
        if let Some(node) = image.find(part) {
            write_directory(image, node, &directory.join(part))?;
        }
    }
    Ok(())
}

/// Returns a digest of what [`write_state`] writes.
fn digest_of_state(image: &DiskImage) -> u64 {
    let nodes = ["log", OBJECTS].into_iter().filter_map(|part| image.find(part));
    nodes.fold(0, |all: u64, node| all.rotate_left(1) ^ image.digest(node))
}

fn write_directory(image: &DiskImage, node: NodeNumber, path: &Path) -> std::io::Result<()> {
    fs::create_dir_all(path)?;
    for (name, node) in image.entries(node).into_iter().flatten() {
        let path = path.join(String::from_utf8_lossy(name).as_ref());
        match image.node(*node).map(|node| &node.content) {
            Some(DiskContent::Directory(_)) => write_directory(image, *node, &path)?,
            Some(DiskContent::File { size, .. }) => {
                let file = File::create(path)?;
                file.set_len(*size)?;
                for (at, mut bytes) in image.runs(*node) {
                    bytes.truncate(size.saturating_sub(at) as usize);
                    file.write_all_at(&bytes, at)?;
                }
            }
            // A socket of a mount that is gone, which the next one makes anew.
            _ => {}
        }
    }
    Ok(())
}

/// Looks at the states of a life until one is wrong.
///
/// # Errors
/// The system's, or the program that opens logs cannot be started.
pub(super) fn check(
    record: &LifeRecord,
    choice: StateChoice,
    recoverer: &mut Recoverer,
    counts: &mut StateCounts,
) -> Result<Option<StateFault>> {
    let mut draws = Draws::new(choice.seed);
    let mut disk = UnsyncedDisk::new(record.disk.base.clone());
    let mut known: HashMap<u64, FoundState> = HashMap::new();
    let first = draws.below(choice.stride as u64) as usize;
    let begins = match choice.begins {
        FirstState::PowerOn => 0,
        FirstState::Mounted => record.openings.first().map_or(0, |opening| opening.end),
    };
    for position in 0..=record.disk.journal.len() {
        if let Some(change) = position.checked_sub(1) {
            disk.take(&record.disk.journal[change]);
        }
        let is_chosen = position % choice.stride == first || position == record.disk.journal.len();
        if !is_chosen || position < begins {
            continue;
        }
        let drawn = (0..choice.drawn).map(|_| Survival::Drawn(draws.below(u64::MAX)));
        let unsynced = std::iter::once(Survival::Nothing).chain(drawn);
        let unsynced = unsynced.filter(|_| disk.has_unsynced());
        for survival in std::iter::once(Survival::All).chain(unsynced) {
            let image = disk.after_loss(survival);
            let digest = digest_of_state(&image);
            counts.states += 1;
            if let std::collections::hash_map::Entry::Vacant(unknown) = known.entry(digest) {
                counts.opened += 1;
                unknown.insert(recoverer.open(&image, record.writers.len())?);
            }
            if let Some(why) = compare(record, position, &known[&digest]) {
                return Ok(Some(StateFault { position, survival, why, image }));
            }
        }
    }
    Ok(None)
}

/// Returns what is wrong with a state.
fn compare(record: &LifeRecord, position: usize, found: &FoundState) -> Option<String> {
    let trees = match found {
        Ok(trees) => trees,
        Err(why) => return Some(format!("not opened: {why}")),
    };
    let mut places = record.writers.iter().zip(trees).enumerate();
    places.find_map(|(writer, (notes, tree))| {
        notes.place(tree, position).err().map(|why| format!("writer {writer}: {why}"))
    })
}
