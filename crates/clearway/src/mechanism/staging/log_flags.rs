//! Flags of commands that open a log.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use clearway_fs::classes::ClassRule;
use clearway_fs::log_directory::LogSizes;
use clearway_fs::mount::LogOptions;
use clearway_fs::store::StoreSharing;
use clearway_proto::base::{BitsPerSec, Bytes, Class};
use clearway_runtime::launch::escaped;

use super::drain_limits::DrainLimits;
use crate::agent::AgentFlags;
use crate::policy::PolicyFlags;
use crate::run::notice;
use crate::scenario::seconds;

/// The size of a new log, and its inodes.
const SIZE: Bytes = Bytes(4 << 30);
const INODES: u32 = 1_000_000;
/// Inodes of the smallest log: the mount point, and one more.
const INODES_MIN: u32 = 2;
/// How long a step in the store may make no progress.
const STORE_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads a rate that lets something through.
pub(crate) fn positive_rate(text: &str) -> Result<BitsPerSec, String> {
    match text.parse::<BitsPerSec>() {
        Ok(BitsPerSec(0)) => Err("nothing passes at that rate; 1Gb/s is one".to_owned()),
        Ok(rate) => Ok(rate),
        Err(why) => Err(why.to_string()),
    }
}

/// Sizes, classes and limits of a log and its store.
#[derive(Debug, Args)]
pub(crate) struct LogFlags {
    /// Set the size of a new log, 64MiB to 512GiB, and reserve all of it on the disk. An existing
    /// log keeps its size, whatever this says [default: 4GiB].
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    size: Option<Bytes>,
    /// Limit the number of files, directories, symbolic links and further names of files in the log,
    /// at least 2: the mount point is one. Each takes about 500 bytes of memory [default: 1000000].
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = clap::value_parser!(u32).range(i64::from(INODES_MIN)..))]
    inodes: Option<u32>,
    /// Set the memory for written bytes, from 16MiB to that of the machine. A write waits while
    /// half of it holds bytes that are not on the log's disk; the rest caches bytes for reads.
    #[arg(long, value_name = "BYTES", default_value = "256MiB", allow_hyphen_values = true)]
    pub(crate) memory: Bytes,
    /// Set the class of files that no attribute and no rule gives one: control, low-latency,
    /// best-effort, bulk or scavenger. The log keeps it [default: that of the log, else
    /// best-effort].
    #[arg(long)]
    class: Option<Class>,
    /// Set the class of files whose path from the mount point matches PATTERN, as in
    /// '/ckpt/**=bulk'. `*` matches within a name, `**` across directories. Repeat the option for
    /// more rules; the first match counts. The log keeps the rules; any --rule replaces all of them
    /// [default: those of the log].
    #[arg(long = "rule", value_name = "PATTERN=CLASS")]
    rules: Vec<ClassRule>,
    /// Drain files in the order of their deadlines: this long after their last change, in seconds,
    /// or as 10min. A file or directory can have another time in the attribute
    /// user.clearway.deadline. The drain raises the class of files that would be late, up to
    /// best-effort. The log keeps it [default: `deadline` of the site's policy, else that of the
    /// log, else none].
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    deadline: Option<Duration>,
    /// Park the drain after this many seconds, or a time such as 2min, without progress in the
    /// store, and try again with a new child process [default: 30].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    store_timeout: Option<Duration>,
    /// Write to the store at no more than RATE, as in 2Gb/s [default: no limit, or the
    /// part of the site's budget].
    #[arg(long, value_name = "RATE", allow_hyphen_values = true, value_parser = positive_rate)]
    drain_rate: Option<BitsPerSec>,
    /// Share the store with the logs of other servers. The names at the top of their trees must
    /// differ: let all mounts name all of these servers.
    #[arg(long)]
    shared_store: bool,
    #[command(flatten)]
    policy: PolicyFlags,
    #[command(flatten)]
    agent: AgentFlags,
}

/// Returns the bytes of the log in `path`, if there is one that was written to.
fn length_of(path: &Path) -> Option<Bytes> {
    let segments = path.join("segments");
    let mut begin = [0; 512];
    let read = File::open(segments.join("00000000")).and_then(|mut file| file.read(&mut begin));
    read.ok().filter(|_| begin.iter().any(|byte| *byte != 0))?;
    let lengths = fs::read_dir(segments).ok()?.flatten().filter_map(|entry| entry.metadata().ok());
    Some(Bytes(lengths.map(|found| found.len()).sum()))
}

/// What the policy of a site calls staging.
pub(crate) const MECHANISM: &str = "stage";

impl LogFlags {
    /// Returns the options of the log and the store in these directories. The class that the policy
    /// of the site grants is a limit of all files; it is said on standard error.
    pub(crate) fn options(&self, log: &Path, store: &Path) -> LogOptions {
        if let Some((size, held)) =
            self.size.zip(length_of(log)).filter(|(size, held)| size != held)
        {
            notice!(
                "clearway: --size {size} is ignored: the log in {} exists and keeps its {held}",
                escaped(&log.display().to_string())
            );
        }
        // The most urgent class that is wanted for some files.
        let wanted = self.rules.iter().map(ClassRule::class).chain(self.class).min();
        let grant = self.policy.ask((MECHANISM, None), wanted.unwrap_or(Class::BestEffort));
        let granted_deadline = grant.as_ref().and_then(|grant| grant.deadline);
        let granted_deadline = granted_deadline.map(|time| Duration::from_nanos(time.0.0));
        let class_limit = grant.map(|grant| {
            grant.say();
            grant.limit
        });
        let terms = self.policy.budget(MECHANISM, Class::Bulk).inspect(|terms| {
            notice!("clearway: the drain has a budget of {terms}, shared by all hosts");
        });
        LogOptions {
            log: log.to_owned(),
            store: store.to_owned(),
            sharing: if self.shared_store { StoreSharing::Shared } else { StoreSharing::Alone },
            sizes: LogSizes {
                total: self.size.unwrap_or(SIZE),
                inodes: self.inodes.unwrap_or(INODES),
            },
            memory: self.memory.0,
            class: self.class,
            rules: self.rules.clone(),
            deadline: self.deadline.or(granted_deadline),
            class_limit,
            store_timeout: self.store_timeout.unwrap_or(STORE_TIMEOUT),
            drain_rate: self.drain_rate,
            drain_allowance: DrainLimits::new(terms, self.agent.in_force())
                .map(|limits| Arc::new(limits) as _),
            shares: None,
        }
    }

    /// Returns a flag that is set and that a mount of a server has no use for.
    pub(crate) fn first_of_log(&self) -> Option<&'static str> {
        let flags = [
            ("--size", self.size.is_some()),
            ("--inodes", self.inodes.is_some()),
            ("--class", self.class.is_some()),
            ("--rule", !self.rules.is_empty()),
            ("--deadline", self.deadline.is_some()),
            ("--store-timeout", self.store_timeout.is_some()),
            ("--drain-rate", self.drain_rate.is_some()),
            ("--shared-store", self.shared_store),
            ("--policy", self.policy.is_given()),
            ("--agent", self.agent.named().is_some()),
        ];
        flags.into_iter().find_map(|(flag, is_set)| is_set.then_some(flag))
    }
}
