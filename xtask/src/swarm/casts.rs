//! Casts between processes of this machine under drawn mishaps: whatever happens, a name at a
//! receiver stands for a whole file.
//!
//! # Model
//! A trial draws files, what receivers already have of them, a rate, and a mishap with its time:
//! the sender or a receiver is killed or stopped for a while, a receiver is slow (stopped again and
//! again), files of the source are swapped or written to. One receiver may have a small disk (a
//! tmpfs, which needs root). A watcher reads each file that appears or changes at a receiver: it
//! must be one of the versions that were ever whole. Then the cast is repeated without a mishap,
//! and everything must be everywhere.
//!
//! # Not here
//! What attackers do: the tests of the commands.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};

/// Receivers of a trial; the last one may have a small disk.
const RECEIVERS: usize = 3;
/// Files of a trial: some of a few bytes, some of several blocks.
const FILES: usize = 6;
/// The longest file.
const LONGEST: u64 = 12 << 20;
/// A small disk: fewer bytes than most trials have.
const SMALL: &str = "size=6m";
/// The longest older file on a small disk: all of them fit.
const LONGEST_OLDER_SMALL: u64 = LONGEST / 16;
/// How often the watcher looks.
const WATCH_EVERY: Duration = Duration::from_millis(3);
/// The longest that a cast may take: longer than the timeout of all that it waits for.
const TIMEOUT: Duration = Duration::from_secs(150);

/// Something that happens in the middle of a cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mishap {
    KillSender,
    KillReceiver,
    StopSender,
    StopReceiver,
    SlowReceiver,
    SwapFiles,
    WriteFiles,
}

const MISHAPS: [Mishap; 7] = [
    Mishap::KillSender,
    Mishap::KillReceiver,
    Mishap::StopSender,
    Mishap::StopReceiver,
    Mishap::SlowReceiver,
    Mishap::SwapFiles,
    Mishap::WriteFiles,
];

/// Draws of one trial.
pub(crate) struct Draws(u64);

impl Draws {
    /// Begins those of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        let mut draws = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        // The first draws of small seeds are alike.
        draws.bytes(32);
        draws
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub(crate) fn bytes(&mut self, length: u64) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            (0..length.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        bytes.truncate(length as usize);
        bytes
    }
}

/// All contents that a file ever had when it was whole, by its number.
type Versions = Vec<Vec<Vec<u8>>>;

/// One trial's directories and processes.
struct Trial {
    program: PathBuf,
    root: PathBuf,
    receivers: Vec<(Child, String)>,
    has_small_disk: bool,
    versions: Versions,
}

/// Runs `count` trials from seed `first` on, no longer than `limit`.
///
/// # Errors
/// The first one with something wrong: its seed and what it was.
pub(super) fn run(program: &Path, first: u64, count: u64, limit: Duration) -> Result<()> {
    let begun = Instant::now();
    let mut done = 0;
    for seed in first..first.saturating_add(count) {
        if begun.elapsed() > limit {
            break;
        }
        trial(program, seed).with_context(|| format!("cast trial with seed {seed}"))?;
        done += 1;
    }
    println!("{done} casts with mishaps in {:.1} s", begun.elapsed().as_secs_f64());
    Ok(())
}

fn trial(program: &Path, seed: u64) -> Result<()> {
    let mut draws = Draws::new(seed);
    let mut trial = Trial::new(program, seed, &mut draws)?;
    let mishap = MISHAPS[draws.below(MISHAPS.len() as u64) as usize];
    let after = Duration::from_millis(draws.below(1200));
    let over = Arc::new(AtomicBool::new(false));
    // Versions that a swap will bring are drawn before the watcher begins.
    let coming: Vec<Vec<u8>> = (0..FILES).map(|_| contents(&mut draws)).collect();
    trial
        .versions
        .iter_mut()
        .zip(&coming)
        .for_each(|(versions, coming)| versions.push(coming.clone()));
    let watcher = trial.watch(over.clone());
    let outcome = trial.cast_with(mishap, after, &coming, &mut draws);
    over.store(true, Ordering::Relaxed);
    let watched = watcher.join().map_err(|_| anyhow::anyhow!("the watcher ended by a fault"))?;
    outcome.and(watched).with_context(|| format!("{mishap:?} after {after:?}"))?;
    trial.repeat().with_context(|| format!("repeated after {mishap:?} after {after:?}"))
}

/// Those of a file: a few bytes, or some blocks and a piece.
fn contents(draws: &mut Draws) -> Vec<u8> {
    let most = [0, 5000, 2 << 20, LONGEST][draws.below(4) as usize];
    let length = draws.below(most + 1);
    draws.bytes(length)
}

impl Trial {
    fn new(program: &Path, seed: u64, draws: &mut Draws) -> Result<Self> {
        let root =
            std::env::temp_dir().join(format!("clearway-swarm-{}-{seed}", std::process::id()));
        fs::create_dir_all(root.join("tree"))?;
        fs::write(root.join("key"), draws.bytes(32))?;
        fs::set_permissions(root.join("key"), fs::Permissions::from_mode(0o600))?;
        let mut trial = Self {
            program: program.to_owned(),
            root,
            receivers: Vec::new(),
            has_small_disk: false,
            versions: vec![Vec::new(); FILES],
        };
        for number in 0..FILES {
            let bytes = contents(draws);
            fs::write(trial.source(number), &bytes)?;
            trial.versions[number].push(bytes);
        }
        for receiver in 0..RECEIVERS {
            let tree = trial.target(receiver).join("tree");
            if receiver + 1 == RECEIVERS && draws.below(3) == 0 {
                fs::create_dir_all(trial.target(receiver))?;
                let mut mount = Command::new("mount");
                mount.args(["-t", "tmpfs", "-o", SMALL, "none"]).arg(trial.target(receiver));
                trial.has_small_disk =
                    mount.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
            }
            fs::create_dir_all(&tree)?;
            let is_small = receiver + 1 == RECEIVERS && trial.has_small_disk;
            let longest = if is_small { LONGEST_OLDER_SMALL } else { LONGEST / 4 };
            for number in 0..FILES {
                // What is there already: nothing, or an older file with some of the same blocks.
                if draws.below(3) == 0 {
                    let mut older = trial.versions[number][0].clone();
                    let at = draws.below(older.len() as u64) as usize;
                    older.get_mut(at).into_iter().for_each(|byte| *byte ^= 1);
                    older.truncate(longest as usize);
                    let mut file = fs::File::create(tree.join(number.to_string()))?;
                    file.write_all(&older)?;
                    // The same length and the same tick of the clock would be the same file.
                    file.set_modified(UNIX_EPOCH + Duration::from_secs(draws.below(1 << 30)))?;
                    trial.versions[number].push(older);
                }
            }
            let started = trial.serve(receiver, "127.0.0.1:0")?;
            trial.receivers.push(started);
        }
        Ok(trial)
    }

    fn source(&self, number: usize) -> PathBuf {
        self.root.join("tree").join(number.to_string())
    }

    fn target(&self, receiver: usize) -> PathBuf {
        self.root.join(format!("to{receiver}"))
    }

    /// Starts a receiver; the process and its address.
    fn serve(&self, receiver: usize, listen: &str) -> Result<(Child, String)> {
        let mut command = Command::new(&self.program);
        command.args(["cast", "serve", "--listen", listen, "--key"]).arg(self.root.join("key"));
        command
            .arg("--into")
            .arg(self.target(receiver))
            .env("XDG_STATE_HOME", self.root.join("state"));
        let mut child = command.stderr(Stdio::piped()).spawn().context("the program")?;
        let mut errors = BufReader::new(child.stderr.take().context("a pipe")?);
        let mut line = String::new();
        errors.read_line(&mut line)?;
        let address = line.strip_prefix("listening at ").and_then(|line| line.split(',').next());
        let address = address.with_context(|| format!("a receiver said {line}"))?.to_owned();
        thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        Ok((child, address))
    }

    fn cast(&self, rate: &str) -> Result<Child> {
        let to: Vec<&str> = self.receivers.iter().map(|(_, address)| &address[..]).collect();
        let mut command = Command::new(&self.program);
        command
            .args(["cast", "tree", "--rate", rate, "--to", &to.join(","), "--key"])
            .arg(self.root.join("key"));
        command.current_dir(&self.root).env("XDG_STATE_HOME", self.root.join("state"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("the program")
    }

    /// A cast in the middle of which `mishap` happens.
    fn cast_with(
        &mut self,
        mishap: Mishap,
        after: Duration,
        coming: &[Vec<u8>],
        draws: &mut Draws,
    ) -> Result<()> {
        let mut cast = self.cast(["100Mb/s", "400Mb/s"][draws.below(2) as usize])?;
        thread::sleep(after);
        let whom = draws.below(RECEIVERS as u64) as usize;
        let pause = Duration::from_millis(20 + draws.below(1500));
        match mishap {
            Mishap::KillSender => cast.kill()?,
            Mishap::KillReceiver => {
                let (child, address) = &mut self.receivers[whom];
                child.kill()?;
                child.wait()?;
                let address = address.clone();
                self.receivers[whom] = self.serve(whom, &address)?;
            }
            Mishap::StopSender => stopped(cast.id(), pause)?,
            Mishap::StopReceiver => stopped(self.receivers[whom].0.id(), pause)?,
            Mishap::SlowReceiver => {
                for _ in 0..20 {
                    stopped(self.receivers[whom].0.id(), Duration::from_millis(80))?;
                    thread::sleep(Duration::from_millis(20));
                }
            }
            Mishap::SwapFiles => {
                for (number, bytes) in coming.iter().enumerate() {
                    let new = self.root.join("new");
                    fs::write(&new, bytes)?;
                    fs::rename(&new, self.source(number))?;
                }
            }
            Mishap::WriteFiles => {
                for (number, bytes) in coming.iter().enumerate() {
                    fs::write(self.source(number), bytes)?;
                }
            }
        }
        wait(&mut cast)
    }

    /// Reads what appears or changes at receivers until it is `over`.
    fn watch(&self, over: Arc<AtomicBool>) -> thread::JoinHandle<Result<()>> {
        let versions = self.versions.clone();
        let paths: Vec<(usize, PathBuf)> = (0..RECEIVERS)
            .flat_map(|receiver| (0..FILES).map(move |number| (receiver, number)))
            .map(|(receiver, number)| {
                (number, self.target(receiver).join("tree").join(number.to_string()))
            })
            .collect();
        thread::spawn(move || {
            let mut seen = vec![None; paths.len()];
            loop {
                let is_last = over.load(Ordering::Relaxed);
                for ((number, path), seen) in paths.iter().zip(&mut seen) {
                    let Ok(found) = path.symlink_metadata() else { continue };
                    let mark = Some((found.ino(), found.ctime(), found.ctime_nsec()));
                    // Between both another version may have come.
                    let Some(bytes) = (mark != *seen).then(|| fs::read(path).ok()).flatten() else {
                        continue;
                    };
                    *seen = mark;
                    let (shown, length) = (path.display(), bytes.len());
                    ensure!(
                        versions[*number].contains(&bytes),
                        "{shown} stands for {length} bytes that were never whole"
                    );
                }
                if is_last {
                    return Ok(());
                }
                thread::sleep(WATCH_EVERY);
            }
        })
    }

    /// Casts again, and compares everything.
    fn repeat(&self) -> Result<()> {
        let output = self.cast("1Gb/s")?.wait_with_output()?;
        let said = [&output.stdout[..], &output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        ensure!(output.status.success() || self.has_small_disk, "{said}");
        let whole = RECEIVERS - usize::from(self.has_small_disk);
        for receiver in 0..whole {
            let tree = self.target(receiver).join("tree");
            for number in 0..FILES {
                let there = fs::read(tree.join(number.to_string()));
                let shown = tree.display();
                ensure!(
                    there.ok() == fs::read(self.source(number)).ok(),
                    "{shown}/{number} is not what was sent: {said}"
                );
            }
            let count = fs::read_dir(&tree)?.count();
            ensure!(count == FILES, "{} holds {count} names: {said}", tree.display());
        }
        Ok(())
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        for (child, _) in &mut self.receivers {
            let _ = child.kill();
            let _ = child.wait();
        }
        if self.has_small_disk {
            let _ = Command::new("umount").arg(self.target(RECEIVERS - 1)).status();
        }
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Stops a process for `pause`.
fn stopped(process: u32, pause: Duration) -> Result<()> {
    let signal = |name: &str| {
        // One that has ended meanwhile gets no signal.
        Command::new("kill")
            .args([name, &process.to_string()])
            .stderr(Stdio::null())
            .status()
            .context("kill")
    };
    signal("-STOP")?;
    thread::sleep(pause);
    signal("-CONT").map(drop)
}

/// Waits for the end of a cast.
fn wait(cast: &mut Child) -> Result<()> {
    let until = Instant::now() + TIMEOUT;
    while cast.try_wait()?.is_none() {
        if Instant::now() > until {
            cast.kill()?;
            cast.wait()?;
            bail!("it does not end");
        }
        thread::sleep(WATCH_EVERY);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws__are_those_of_the_seed() {
        let drawn = |seed| {
            let mut draws = Draws(seed);
            (draws.bytes(11), draws.below(7))
        };
        assert_eq!(drawn(3), drawn(3));
        assert_ne!(drawn(3), drawn(5));
        assert_eq!(drawn(3).0.len(), 11);
    }
}
