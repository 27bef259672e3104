//! Runs writers on a real mount whose log lies on a disk that forgets, and takes the mount or the power
//! away.
//!
//! # Model
//! ```text
//!   disk that forgets (FUSE, this process) <- log and store of `clearway mount` (a process) <- writers (threads)
//! ```
//! A trial has several *lives*. A life lasts from power-on to the loss of power, and has several mounts;
//! each ends by a kill or by `umount`. The next mount reads the writers' trees, and the trial compares
//! them with what was acknowledged and requested. `states` takes the record of each life.

use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::disk::Survival;
use super::server::{DiskRecord, ForgetfulDisk};
use super::tree::{tree_text, walk};
use super::writer::{Writer, WriterNotes, share_acknowledgements};
use crate::swarm::Draws;

/// Writers of a trial.
const WRITERS: usize = 3;
/// How often a kill looks whether its time has come, and a mount whether it is there.
const LOOK_EVERY: Duration = Duration::from_micros(300);
/// The longest that a mount may take to begin or end.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The programs of a trial.
#[derive(Clone, Debug)]
pub(super) struct CrashPrograms {
    /// `clearway`.
    pub(super) clearway: PathBuf,
    /// The example `recover` of clearway-fs.
    pub(super) recover: PathBuf,
}

/// What happened in one life.
#[derive(Clone)]
pub(super) struct LifeRecord {
    pub(super) disk: DiskRecord,
    pub(super) writers: Vec<WriterNotes>,
    /// Positions of the journal in which a mount opened its log.
    pub(super) openings: Vec<Range<usize>>,
}

/// How long a trial is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrialLength {
    /// Less than a second.
    Short,
    /// Some seconds.
    Usual,
    /// As long, and the log is moved along, so that it takes snapshots and uses segments again.
    Filling,
}

/// The process of a mount, killed when nobody wants it any more.
struct MountProcess(Child);

impl MountProcess {
    /// Returns what a process that ended said.
    fn said(&mut self) -> String {
        let mut said = String::new();
        if let Some(mut stderr) = self.0.stderr.take() {
            let _ = stderr.read_to_string(&mut said);
        }
        said.trim().to_owned()
    }

    /// Kills it, and waits until all that it had open is closed.
    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for MountProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The directories of a trial.
struct TrialPlace {
    root: PathBuf,
    mount: PathBuf,
    disk: PathBuf,
    clearway: PathBuf,
}

impl TrialPlace {
    fn new(programs: &CrashPrograms, seed: u64) -> Result<Self> {
        let root =
            std::env::temp_dir().join(format!("clearway-crash-{}-{seed}", std::process::id()));
        let place = Self {
            mount: root.join("mount"),
            disk: root.join("disk"),
            root,
            clearway: programs.clearway.clone(),
        };
        for directory in [&place.mount, &place.disk] {
            fs::create_dir_all(directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
        }
        Ok(place)
    }

    /// Mounts the log; its process.
    fn start(&self) -> Result<MountProcess> {
        let places = format!("{0}/log:{0}/store", self.disk.display());
        let mut command = Command::new(&self.clearway);
        command.args(["mount", "--foreground", "--size", "64MiB", "--inodes", "10000"]);
        command.args(["--memory", "32MiB", "--local", &places]).arg(&self.mount);
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = MountProcess(command.spawn().context("cannot start the mount")?);
        let until = Instant::now() + TIMEOUT;
        while !is_mounted(&self.mount)? {
            if child.0.try_wait()?.is_some() {
                bail!("no mount: {}", child.said());
            }
            ensure!(Instant::now() < until, "the mount does not begin");
            thread::sleep(LOOK_EVERY);
        }
        Ok(child)
    }

    /// Takes away what a killed mount left.
    fn detach(&self) {
        detach(&self.mount);
    }
}

impl Drop for TrialPlace {
    fn drop(&mut self) {
        detach(&self.mount);
        detach(&self.disk);
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn detach(path: &Path) {
    for (program, flag) in [("umount", "-l"), ("fusermount3", "-uz")] {
        let mut command = Command::new(program);
        command.arg(flag).arg(path).stdout(Stdio::null()).stderr(Stdio::null());
        if command.status().is_ok_and(|status| status.success()) {
            return;
        }
    }
}

fn is_mounted(path: &Path) -> Result<bool> {
    let table = fs::read_to_string("/proc/self/mounts").context("cannot read the mounts")?;
    let path = path.display().to_string();
    Ok(table.lines().any(|line| line.split(' ').nth(1) == Some(&path)))
}

/// A trial while it runs.
struct CrashTrial<'a> {
    place: &'a TrialPlace,
    disk: ForgetfulDisk,
    writers: Vec<Writer>,
    clock: AtomicU64,
    draws: Draws,
    length: TrialLength,
}

/// Runs a trial; the record of each of its lives.
///
/// # Errors
/// What the mount answered or kept was wrong, or it could not be run.
pub(super) fn run(
    programs: &CrashPrograms,
    seed: u64,
    length: TrialLength,
) -> Result<Vec<LifeRecord>> {
    let place = TrialPlace::new(programs, seed)?;
    let disk = ForgetfulDisk::new(&["log", "store"]);
    let mounted = disk.mount(&place.disk).context("cannot mount the disk that forgets")?;
    let is_filling = length == TrialLength::Filling;
    let writers = (0..WRITERS).map(|number| Writer::new(number, is_filling && number == 0));
    let mut trial = CrashTrial {
        place: &place,
        disk,
        writers: writers.collect(),
        clock: AtomicU64::new(0),
        draws: Draws::new(seed),
        length,
    };
    let records = trial.live()?;
    // What the kernel still closes for killed mounts keeps the disk busy for a while.
    detach(&place.disk);
    drop(mounted);
    Ok(records)
}

impl CrashTrial<'_> {
    fn live(&mut self) -> Result<Vec<LifeRecord>> {
        let lives = if self.length == TrialLength::Short { 1 } else { 1 + self.draws.below(3) };
        let (mut records, mut left_at) = (Vec::new(), None);
        for _ in 0..lives {
            let openings = self.life(left_at)?;
            let writers = self.writers.iter().map(|writer| writer.notes.clone()).collect();
            let survival = match self.draws.below(4) {
                0 => Survival::Nothing,
                _ => Survival::Drawn(self.draws.below(u64::MAX)),
            };
            let disk = self.disk.lose_power(survival);
            left_at = Some(disk.journal.len());
            records.push(LifeRecord { disk, writers, openings });
        }
        Ok(records)
    }

    /// Mounts some times. The life before this one, if there was one, ended at `left_at`.
    fn life(&mut self, left_at: Option<usize>) -> Result<Vec<Range<usize>>> {
        let mut openings = Vec::new();
        let is_short = self.length == TrialLength::Short;
        let mounts = if is_short { 2 } else { 1 + self.draws.below(3) };
        for number in 0..mounts {
            let begin = self.disk.position();
            let child = self.place.start()?;
            for writer in &mut self.writers {
                let found = tree_text(walk(&self.place.mount, writer.top())?);
                let before = left_at.filter(|_| number == 0);
                let continued = writer.continue_from(&found, before.unwrap_or(begin), &self.clock);
                continued.map_err(|why| anyhow!("{} on the mount: {why}", writer.top()))?;
                if before.is_some() {
                    writer.begin_life();
                }
                writer.all_safe(self.disk.position(), "mount");
            }
            openings.push(begin..self.disk.position());
            self.work(child, number + 1 == mounts)?;
            self.place.detach();
        }
        Ok(openings)
    }

    /// Lets the writers work on a mount, and ends it.
    fn work(&mut self, mut child: MountProcess, is_last: bool) -> Result<()> {
        let steps = match self.length {
            TrialLength::Short => 10,
            TrialLength::Usual => 5 + self.draws.below(30),
            TrialLength::Filling => 70 + self.draws.below(50),
        };
        let is_killed = is_last || self.draws.below(2) == 0;
        let began = self.clock.load(Ordering::SeqCst);
        // Each step counts twice; with some luck all are made before the kill.
        let kill_at = began + self.draws.below(steps * WRITERS as u64 * 2 + 20);
        let draws: Vec<Draws> =
            self.writers.iter().map(|_| Draws::new(self.draws.below(u64::MAX))).collect();
        let (mount, disk, clock) = (&self.place.mount, &self.disk, &self.clock);
        let writers = &mut self.writers;
        let outcomes: Vec<Result<(), String>> = thread::scope(|scope| {
            let working: Vec<_> = writers
                .iter_mut()
                .zip(draws)
                .map(|(writer, draws)| {
                    scope.spawn(move || writer.run(mount, disk, clock, draws, steps as usize))
                })
                .collect();
            while is_killed
                && clock.load(Ordering::SeqCst) < kill_at
                && !working.iter().all(thread::ScopedJoinHandle::is_finished)
            {
                thread::sleep(LOOK_EVERY);
            }
            if is_killed {
                child.kill();
            }
            let join = |worker: thread::ScopedJoinHandle<'_, _>| {
                worker.join().unwrap_or_else(|_| Err("a writer ended by a fault".into()))
            };
            working.into_iter().map(join).collect()
        });
        for outcome in outcomes {
            outcome.map_err(|why| anyhow!(why))?;
        }
        if !is_killed {
            self.writers.iter_mut().for_each(Writer::close_all);
            self.end(child)?;
        }
        share_acknowledgements(&mut self.writers);
        if !is_killed {
            let position = self.disk.position();
            self.writers.iter_mut().for_each(|writer| writer.all_safe(position, "umount"));
        }
        Ok(())
    }

    /// Unmounts, and waits for the end of the mount.
    fn end(&self, mut child: MountProcess) -> Result<()> {
        let mut command = Command::new(&self.place.clearway);
        let output = command.arg("umount").arg(&self.place.mount).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "no umount: {}", said.trim());
        let status = child.0.wait()?;
        ensure!(status.success(), "the mount ended badly: {}", child.said());
        Ok(())
    }
}
