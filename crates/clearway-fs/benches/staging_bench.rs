//! Measures one round of a mounted log, of a file system that does nothing, and of the log's own
//! disk.
//!
//! `staging_bench DIRECTORY`: a log, a store and mount points are made there and removed again. Each
//! figure is a line of a name and a value: MiB/s, microseconds, or operations a second.
//!
//! # Model
//! What the *null* server (module `null`) reaches is the most that any file system on this library
//! could. The memory of the
//! mount has room for all that is written. Its drain runs as for any user, but files that are removed
//! within a second are not copied (`drain_bench` measures copies); what a sync costs is measured
//! next to the same sync of a preallocated file on the disk of the log. Small files are created
//! next to the same on mounts of other programs, where those are installed (`peers`).
//!
//! # Not here
//! Rounds, medians and ratios: `xtask/src/bench/staging.rs`.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clearway_fs::log_directory::LogSizes;
use clearway_fs::mount::{LogOptions, MountOptions, Mounted};
use clearway_proto::base::Bytes;

#[path = "null/mod.rs"]
mod null;
#[path = "peers/mod.rs"]
mod peers;

use peers::PeerMount;

type BenchResult<T> = Result<T, Box<dyn Error>>;

/// Bytes of a write, and how many there are: less than the mount keeps in memory.
const WRITE: usize = 1 << 20;
const WRITES: u64 = 96;
/// Syncs whose time is measured.
const SYNCS: usize = 300;
/// Threads that sync at once, and for how long.
const TOGETHER: usize = 16;
const TOGETHER_FOR: Duration = Duration::from_millis(700);
/// Small files.
const CREATES: usize = 320;
const MEMORY: u64 = 256 << 20;

/// Whether a small file is synced before it is closed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sync {
    No,
    Each,
}

/// A mounted log in this process.
struct StagedMount {
    unmounter: clearway_fs::mount::Unmounter,
    thread: std::thread::JoinHandle<Result<(), clearway_fs::FsError>>,
}

impl StagedMount {
    fn open(place: &Path) -> BenchResult<Self> {
        let options = MountOptions {
            log: LogOptions {
                log: place.join("log"),
                store: place.join("store"),
                sharing: clearway_fs::store::StoreSharing::Alone,
                sizes: LogSizes { total: Bytes(2 << 30), inodes: 10_000 },
                memory: MEMORY,
                class: None,
                rules: Vec::new(),
                deadline: None,
                class_limit: None,
                store_timeout: Duration::from_secs(30),
                drain_rate: None,
                drain_allowance: None,
                shares: None,
            },
            directory: place.join("staged"),
        };
        let reporter: clearway_fs::mount::Reporter =
            Arc::new(|sentence| eprintln!("staging_bench: {sentence}"));
        let mut mounted = Mounted::open(&options, &reporter)?;
        let unmounter = mounted.unmounter();
        Ok(Self { unmounter, thread: std::thread::spawn(move || mounted.run()) })
    }

    fn close(self) -> BenchResult<()> {
        self.unmounter.unmount()?;
        self.thread.join().map_err(|_| "the thread of the mount ended badly")??;
        Ok(())
    }
}

/// Writes a file, in pieces; MiB a second until the last write returned.
fn write_rate(path: &Path) -> BenchResult<f64> {
    let bytes = vec![0x5a; WRITE];
    let file = File::create(path)?;
    let began = Instant::now();
    for number in 0..WRITES {
        file.write_all_at(&bytes, number * WRITE as u64)?;
    }
    let rate = WRITES as f64 / began.elapsed().as_secs_f64();
    drop(file);
    Ok(rate * WRITE as f64 / f64::from(1 << 20))
}

/// Opens a file whose blocks are there, so that a sync has only bytes to write.
fn prepared(path: &Path) -> BenchResult<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    file.write_all_at(&vec![1; 1 << 20], 0)?;
    file.sync_all()?;
    Ok(file)
}

/// Writes and syncs 4 KiB again and again; the median in microseconds.
fn sync_time(path: &Path) -> BenchResult<f64> {
    let file = prepared(path)?;
    let mut times = Vec::new();
    for number in 0..SYNCS {
        let began = Instant::now();
        file.write_all_at(&[number as u8; 4096], (number as u64 % 256) * 4096)?;
        file.sync_data()?;
        times.push(began.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// Lets `threads` threads do that to a file each; syncs a second of all.
fn sync_rate(directory: &Path, threads: usize) -> BenchResult<f64> {
    let (count, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let paths: Vec<PathBuf> = (0..threads).map(|one| directory.join(format!("s{one}"))).collect();
    let files: Vec<File> = paths.iter().map(|path| prepared(path)).collect::<Result<_, _>>()?;
    let began = Instant::now();
    std::thread::scope(|scope| {
        for file in &files {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let done = file.write_all_at(&[7; 4096], 0).and_then(|()| file.sync_data());
                    count.fetch_add(u64::from(done.is_ok()), Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(TOGETHER_FOR);
        is_over.store(true, Ordering::Relaxed);
    });
    let rate = count.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
    paths.iter().try_for_each(fs::remove_file)?;
    Ok(rate)
}

/// Lets `threads` threads create, write and close small files, and sync each before if that is
/// asked for; files a second.
fn create_rate(directory: &Path, threads: usize, sync: Sync) -> BenchResult<f64> {
    let path = |thread, number| directory.join(format!("c{thread}-{number}"));
    let count = CREATES / threads;
    let create = |thread| {
        (0..count).try_for_each(|number| {
            let mut file = File::create(path(thread, number))?;
            file.write_all(&[3; 4096])?;
            if sync == Sync::Each { file.sync_all() } else { Ok(()) }
        })
    };
    let began = Instant::now();
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|one| scope.spawn(move || create(one))).collect();
        let ended = started.into_iter().map(|one| one.join().expect("a thread that ends"));
        ended.collect::<io::Result<()>>()
    })?;
    let rate = (count * threads) as f64 / began.elapsed().as_secs_f64();
    for thread in 0..threads {
        (0..count).try_for_each(|number| fs::remove_file(path(thread, number)))?;
    }
    Ok(rate)
}

/// Prints the rates of small files in `directory`.
fn create_figures(name: &str, directory: &Path) -> BenchResult<()> {
    for (threads, one) in [(1, ""), (TOGETHER, "_sixteen")] {
        for (sync, each) in [(Sync::No, ""), (Sync::Each, "_sync")] {
            println!("creates{one}{each}_{name} {:.1}", create_rate(directory, threads, sync)?);
        }
    }
    Ok(())
}

/// Measures the null server: MiB a second of writes, and the time of a sync.
fn null_figures(place: &Path) -> BenchResult<(f64, f64)> {
    let directory = place.join("null");
    let session = null::mount(&directory)?;
    let rate = write_rate(&directory.join("file"));
    let time = sync_time(&directory.join("sync"));
    session.umount_and_join()?;
    Ok((rate?, time?))
}

fn main() -> BenchResult<()> {
    // The mount starts this program again as its child that changes the store.
    if std::env::args().nth(1).as_deref() == Some("store-worker") {
        return Ok(clearway_fs::store::serve()?);
    }
    // Cargo adds flags of its own to a bench.
    let place = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let Some(place) = place.map(PathBuf::from) else {
        println!("staging_bench needs a directory; `cargo xtask bench staging` gives it one");
        return Ok(());
    };
    for name in ["store", "staged", "null"] {
        fs::create_dir_all(place.join(name))?;
    }
    let (staged, disk) = (place.join("staged"), place.join("disk"));
    let (rate, time) = null_figures(&place)?;
    println!("write_null {rate:.1}\nsync_null {time:.1}");
    let mount = StagedMount::open(&place)?;
    // Both write blocks that were written before: those of the file, and the first of a log.
    println!("sync_disk {:.1}", sync_time(&disk)?);
    println!("sync_staged {:.1}", sync_time(&staged.join("sync"))?);
    println!("syncs_one {:.1}", sync_rate(&staged, 1)?);
    println!("syncs_sixteen {:.1}", sync_rate(&staged, TOGETHER)?);
    create_figures("staged", &staged)?;
    // The first time takes memory from the system, as a mount does once.
    for _ in 0..3 {
        write_rate(&staged.join("file"))?;
        fs::remove_file(staged.join("file"))?;
    }
    println!("write_staged {:.1}", write_rate(&staged.join("file"))?);
    fs::remove_file(staged.join("file"))?;
    mount.close()?;
    for peer in PeerMount::open_all(&place)? {
        create_figures(peer.name, &peer.directory)?;
    }
    Ok(())
}
