//! Measures one round of a drain into a directory and of a plain copy on the same disk.
//!
//! `drain_bench DIRECTORY [FILES] [MIB]`: a log, a store and a copy are made there and removed again.
//! Each figure is a line of a name and a value in MiB/s.
//!
//! # Model
//! The steps are those of a drain: copies of some files at a time, in passes, then names, then a sync
//! of the directory; each copy is synced and compared. The plain copy is `cp -r` and `sync`. Both read
//! what they copy from the disk where the caches can be dropped, which only root may do.
//!
//! # Not here
//! Rounds, medians and ratios: `xtask/src/bench/staging.rs`.

use std::error::Error;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use clearway_fs::store::{StoreOptions, StoreWorker};
use clearway_proto::base::{Class, xxh3};
use clearway_proto::staging::{
    CopyPiece, EntryName, InodeId, LogPlace, StepEnd, StoreAttributes, StoreBase, StorePath,
    StoreStep, StoreTask, WallNs,
};
use clearway_runtime::wake_signal::WakeSignal;
use rustix::event::{PollFd, PollFlags};

type DrainResult<T> = Result<T, Box<dyn Error>>;

/// Bytes of a body of the log, as a mount writes it.
const BODY: u64 = 1 << 20;
/// Bodies of a pass.
const PASS: u64 = 32;
/// Steps at a time.
const STEPS: usize = 4;

/// Drops what the system keeps of files, if this process may.
fn drop_caches() {
    rustix::fs::sync();
    let _ = fs::write("/proc/sys/vm/drop_caches", "1");
}

/// Fills a body so that no two are the same.
fn body(number: u64) -> Vec<u8> {
    let words = (0..BODY / 8).map(|word| (number << 32 | word).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    words.flat_map(u64::to_le_bytes).collect()
}

struct DrainedFiles {
    files: u64,
    /// Bodies of each.
    bodies: u64,
    digests: Vec<u64>,
}

impl DrainedFiles {
    /// Writes the log, and the same bytes as files.
    fn make(place: &Path, files: u64, bodies: u64) -> DrainResult<Self> {
        fs::create_dir_all(place.join("log/segments"))?;
        fs::create_dir_all(place.join("source"))?;
        fs::create_dir_all(place.join("store"))?;
        let mut digests = Vec::new();
        for file in 0..files {
            let segment = File::create(place.join(format!("log/segments/{file:08}")))?;
            let source = File::create(place.join(format!("source/{file}")))?;
            for number in 0..bodies {
                let bytes = body(file * bodies + number);
                segment.write_all_at(&bytes, number * BODY)?;
                source.write_all_at(&bytes, number * BODY)?;
                digests.push(xxh3(&bytes));
            }
        }
        Ok(Self { files, bodies, digests })
    }

    fn copies(&self, file: u64) -> Vec<StoreStep> {
        let starts = (0..self.bodies).step_by(PASS as usize);
        let pass = |start: u64| {
            let end = (start + PASS).min(self.bodies);
            let piece = |number: u64| CopyPiece {
                place: LogPlace { segment: file as u32, block: (number * BODY / 4096) as u32 },
                length: BODY as u32,
                digest: self.digests[(file * self.bodies + number) as usize],
                skip: 0,
                offset: number * BODY,
                bytes: BODY as u32,
            };
            let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
            let (atime, mtime) = (WallNs(1 << 60), WallNs(1 << 60));
            StoreStep::Copy {
                inode: InodeId(2 + file),
                is_named: false,
                keep: start * BODY,
                size: end * BODY,
                pieces: (start..end).map(piece).collect(),
                attributes: StoreAttributes { mode: 0o644, owner, atime, mtime, xattrs: vec![] },
            }
        };
        starts.map(pass).collect()
    }
}

/// Does lists of steps, each in its order, some lists at a time.
fn carry_out(
    worker: &mut StoreWorker,
    signal: &WakeSignal,
    lists: Vec<Vec<StoreStep>>,
) -> DrainResult<()> {
    let mut waiting = lists.into_iter();
    let mut under_way: Vec<(u64, std::vec::IntoIter<StoreStep>)> = Vec::new();
    let mut number = 0;
    let mut next = |worker: &mut StoreWorker, mut list: std::vec::IntoIter<StoreStep>| {
        let step = list.next()?;
        number += 1;
        worker.begin(StoreTask { number, class: Class::Bulk, step });
        Some((number, list))
    };
    loop {
        while under_way.len() < STEPS
            && let Some(list) = waiting.next()
        {
            under_way.extend(next(worker, list.into_iter()));
        }
        if under_way.is_empty() {
            return Ok(());
        }
        while let Some((ended, end)) = worker.poll() {
            if end != StepEnd::Done {
                return Err(format!("a step ended {end:?}").into());
            }
            if let Some(index) = under_way.iter().position(|(number, _)| *number == ended) {
                let (_, list) = under_way.swap_remove(index);
                under_way.extend(next(worker, list));
            }
        }
        if under_way.len() < STEPS && waiting.len() > 0 {
            continue;
        }
        if !under_way.is_empty() {
            rustix::event::poll(&mut [PollFd::new(signal, PollFlags::IN)], None)?;
            signal.clear();
        }
    }
}

fn drain(place: &Path, files: &DrainedFiles) -> DrainResult<f64> {
    let signal = Arc::new(WakeSignal::new()?);
    let options = StoreOptions::new(place.join("store"), place.join("log"));
    let mut worker = StoreWorker::new(options, Arc::clone(&signal))?;
    let sweep = StoreStep::Sweep { keeps: Vec::new() };
    carry_out(&mut worker, &signal, vec![vec![sweep]])?;
    drop_caches();
    let began = Instant::now();
    let lists = (0..files.files).map(|file| files.copies(file)).collect();
    carry_out(&mut worker, &signal, lists)?;
    let link = |file: u64| -> DrainResult<Vec<StoreStep>> {
        let names = vec![EntryName::new(format!("{file}").as_bytes()).map_err(|_| "a name")?];
        let to = StorePath { base: StoreBase::Root, names };
        Ok(vec![StoreStep::Link { inode: InodeId(2 + file), to }])
    };
    let links = (0..files.files).map(link).collect::<Result<_, _>>()?;
    carry_out(&mut worker, &signal, links)?;
    let root = StorePath { base: StoreBase::Root, names: Vec::new() };
    let sync = StoreStep::SyncDirectories { at: vec![root] };
    carry_out(&mut worker, &signal, vec![vec![sync]])?;
    let took = began.elapsed();
    worker.close();
    Ok((files.files * files.bodies) as f64 / took.as_secs_f64())
}

fn plain_copy(place: &Path, files: &DrainedFiles) -> DrainResult<f64> {
    drop_caches();
    let began = Instant::now();
    let copied =
        Command::new("cp").arg("-r").args(["source", "copy"]).current_dir(place).status()?;
    let synced = Command::new("sync").arg("-f").arg(place).status()?;
    let took = began.elapsed();
    if !copied.success() || !synced.success() {
        return Err("cp or sync failed".into());
    }
    Ok((files.files * files.bodies) as f64 / took.as_secs_f64())
}

fn main() -> DrainResult<()> {
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next().ok_or("name a directory")?;
    if first == "store-worker" {
        return Ok(clearway_fs::store::serve()?);
    }
    let place = Path::new(&first).join("drain");
    let mut number = |usual: u64| arguments.next().map_or(Ok(usual), |text| text.parse());
    let (files, bodies) = (number(64)?, number(32)?);
    fs::create_dir_all(&place)?;
    let files = DrainedFiles::make(&place, files, bodies)?;
    println!("drain_rate {:.1}", drain(&place, &files)?);
    println!("copy_rate {:.1}", plain_copy(&place, &files)?);
    fs::remove_dir_all(&place)?;
    Ok(())
}
