//! Reads what hosts of a lab and their commands count, while a run lasts.
//!
//! # Model
//! A thread inside each host reads the counters of its link and the metrics of the commands there, ten
//! times a second. Increments are spread evenly over the time between two readings.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use clearway_lab::Lab;
use clearway_proto::base::{LocalNs, Nanos, Rank};
use clearway_runtime::clock;

/// Time between two readings.
const INTERVAL: Duration = Duration::from_millis(100);
/// The longest that a command may take to answer.
const TIMEOUT: Duration = Duration::from_millis(500);
/// The longest answer that is read.
const ANSWER_MAX: u64 = 1 << 20;

/// A counter of what a transfer carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TransferCounter {
    /// A command of a host serves it.
    Served {
        /// The port of its metrics.
        port: u16,
        /// Its name; those that differ in labels are added.
        name: &'static str,
    },
    /// Processes write theirs into files, as 8 bytes; the names continue this path with a dot.
    Files(PathBuf),
}

impl TransferCounter {
    /// Returns its value now; nothing where nobody counts.
    fn read(&self) -> Option<u64> {
        match self {
            Self::Served { port, name } => scrape(*port, name),
            Self::Files(path) => sum_of_files(path),
        }
    }
}

/// Counters of a host at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct HostReading {
    pub(super) at: LocalNs,
    /// Bytes that its link received and sent.
    pub(super) link: [u64; 2],
    /// By the place of the counter; nothing where nobody counts.
    pub(super) served: Vec<Option<u64>>,
}

/// Reads the counters of one host until it is asked to end, or dropped.
pub(super) struct HostReader {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<HostReading>>>,
}

impl HostReader {
    /// Starts to read the counters of `host`, those of `served` too.
    pub(super) fn new(lab: &Lab, host: Rank, served: Vec<TransferCounter>) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let ended = stop.clone();
        // A thread stays in the network of the thread that starts it.
        let thread = lab.in_host(host, || thread::spawn(move || read_until(&ended, &served)));
        let thread = thread.with_context(|| format!("no thread can enter host {host}"))?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends, and returns all readings.
    pub(super) fn finish(mut self) -> Result<Vec<HostReading>> {
        self.stop.store(true, Ordering::Relaxed);
        let readings = self.thread.take().map(JoinHandle::join);
        readings
            .and_then(Result::ok)
            .context("a reader of counters failed; this is a defect of the program")
    }
}

impl Drop for HostReader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn read_until(stop: &AtomicBool, served: &[TransferCounter]) -> Vec<HostReading> {
    let mut readings = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let link = link_bytes().unwrap_or_default();
        let at = clock::now();
        let served = served.iter().map(TransferCounter::read).collect();
        readings.push(HostReading { at, link, served });
        thread::sleep(INTERVAL);
    }
    readings
}

/// Returns the bytes that eth0 of this thread's host received and sent. proc_pid_net(5): the first and
/// the ninth number of a line.
fn link_bytes() -> Option<[u64; 2]> {
    let text = fs::read_to_string("/proc/thread-self/net/dev").ok()?;
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("eth0:"))?;
    let mut numbers = line.split_whitespace().map(str::parse);
    let received = numbers.next()?.ok()?;
    Some([received, numbers.nth(7)?.ok()?])
}

/// Returns the sum of all values called `name` that a command serves at `port`.
fn scrape(port: u16, name: &str) -> Option<u64> {
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    let mut stream = TcpStream::connect_timeout(&address.into(), TIMEOUT).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    stream.set_write_timeout(Some(TIMEOUT)).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    // A command that is ended in the middle leaves a part of its answer.
    let _ = stream.take(ANSWER_MAX).read_to_string(&mut text);
    sum_of(&text, name)
}

/// Returns the sum of the counters in the files whose names continue `path` with a dot.
fn sum_of_files(path: &Path) -> Option<u64> {
    let begins = path.file_name()?.as_encoded_bytes();
    let values = fs::read_dir(path.parent()?).ok()?.flatten().filter_map(|entry| {
        let name = entry.file_name();
        let rest = name.as_encoded_bytes().strip_prefix(begins)?;
        let bytes = rest.starts_with(b".").then(|| fs::read(entry.path()).ok()).flatten()?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    });
    values.reduce(u64::saturating_add)
}

/// Returns the sum of the values called `name` in the metrics `text`; nothing where there is none.
fn sum_of(text: &str, name: &str) -> Option<u64> {
    let value = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let is_name = rest.starts_with(['{', ' ']);
        rest.rsplit(' ').next().filter(|_| is_name)?.parse::<f64>().ok()
    };
    let values: Vec<f64> = text.lines().filter_map(value).collect();
    // Bytes of a run are far below what such a number holds exactly.
    (!values.is_empty()).then(|| values.iter().sum::<f64>() as u64)
}

/// Returns the increments of a counter in each of `slices` from `begin` on. A command that was started
/// again counts from zero.
pub(super) fn spread(
    readings: &[(LocalNs, u64)],
    begin: LocalNs,
    slice: Nanos,
    slices: u32,
) -> Vec<u64> {
    let mut sums = vec![0.0; slices as usize];
    for pair in readings.windows(2) {
        let [(from, before), (until, after)] = [pair[0], pair[1]];
        let more = after.checked_sub(before).unwrap_or(after);
        let length = until.since(from).0.max(1) as f64;
        for (number, sum) in (0..).zip(&mut sums) {
            let [low, high] = [number, number + 1].map(|n| begin + slice.times(n));
            let overlap = until.min(high).since(from.max(low).min(until.min(high)));
            *sum += more as f64 * overlap.0 as f64 / length;
        }
    }
    sums.into_iter().map(|sum: f64| sum.round() as u64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_of__adds_labels_and_no_other_name() {
        let text = "# TYPE bytes counter\nbytes_total{receiver=\"a b\"} 5\nbytes_total{receiver=\"c\"} 7.0\n\
                    bytes_total_more 100\nother 3\nplain 4\n";
        assert_eq!(sum_of(text, "bytes_total"), Some(12));
        assert_eq!(sum_of(text, "plain"), Some(4));
        assert_eq!((sum_of(text, "absent"), sum_of("", "plain")), (None, None));
    }

    #[test]
    fn sum_of_files__adds_whole_counters_of_its_name() {
        let directory =
            std::env::temp_dir().join(format!("clearway-counters-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let write = |name: &str, bytes: &[u8]| {
            fs::write(directory.join(name), bytes).expect("written");
        };
        let path = directory.join("counter");
        assert_eq!(sum_of_files(&path), None);
        write("counter.0", &5u64.to_ne_bytes());
        write("counter.11", &7u64.to_ne_bytes());
        write("counter.2", b"half");
        write("counters", &100u64.to_ne_bytes());
        assert_eq!(sum_of_files(&path), Some(12));
        fs::remove_dir_all(directory).expect("removed");
    }

    #[test]
    fn spread__loses_nothing_between_slices_and_begins_anew_with_a_command() {
        let at = |ms: u64, value| (LocalNs(ms * 1_000_000), value);
        let begin = LocalNs(1_000_000_000);
        let slice = Nanos::from_millis(100);
        let readings = [at(950, 0), at(1050, 100), at(1150, 300), at(1250, 50), at(1350, 50)];
        assert_eq!(spread(&readings, begin, slice, 4), [150, 125, 25, 0]);
        assert_eq!(spread(&readings[..1], begin, slice, 2), [0, 0]);
    }
}
