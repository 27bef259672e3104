//! The figures of a mount or a server as metrics: those of `clearway stage status`, read at the same
//! place.

use std::fmt;

use std::collections::BTreeMap;

use clearway_fs::control::{DrainState, MountStatus};
use clearway_fs::mount::StatusReader;
use clearway_fs::network::mount::RemoteStatusReader;
use clearway_fs::network::server::ClientAcceptor;
use clearway_proto::base::Class;

use crate::run::metrics::{MetricSheet, MetricSource, MetricTitle, MetricUnit};

const WRITTEN: MetricTitle = MetricTitle {
    name: "staging_written",
    help: "Bytes that programs wrote.",
    unit: MetricUnit::Bytes,
};
const READ: MetricTitle = MetricTitle {
    name: "staging_read",
    help: "Bytes that programs read.",
    unit: MetricUnit::Bytes,
};
const MOVED: MetricTitle = MetricTitle {
    name: "staging_moved",
    help: "Bytes of files that the log wrote again elsewhere, so that it has free segments.",
    unit: MetricUnit::Bytes,
};
const CHANGES: MetricTitle = MetricTitle {
    name: "staging_changes",
    help: "Changes that the log took, writes among them.",
    unit: MetricUnit::Number,
};
const STALLS: MetricTitle = MetricTitle {
    name: "staging_stalls",
    help: "Changes that waited for memory or for the log.",
    unit: MetricUnit::Number,
};
const STALLED: MetricTitle = MetricTitle {
    name: "staging_stalled_changes",
    help: "Changes that wait now.",
    unit: MetricUnit::Number,
};
const SYNC: MetricTitle = MetricTitle {
    name: "staging_sync",
    help: "How long fsync, close and waits waited for the disk of the log; above all bounds those that failed.",
    unit: MetricUnit::Seconds,
};
const UNLOGGED: MetricTitle = MetricTitle {
    name: "staging_unlogged",
    help: "Bytes of writes that are not durable yet.",
    unit: MetricUnit::Bytes,
};
const UNACKNOWLEDGED: MetricTitle = MetricTitle {
    name: "remote_mount_unacknowledged",
    help: "Bytes of writes that the server has not acknowledged.",
    unit: MetricUnit::Bytes,
};
const CALLS: MetricTitle = MetricTitle {
    name: "remote_mount_calls",
    help: "Calls to the server that are not answered.",
    unit: MetricUnit::Number,
};
const CLIENTS: MetricTitle = MetricTitle {
    name: "stage_serve_clients",
    help: "Mounts that are connected to the server, and lost ones that it waits for.",
    unit: MetricUnit::Number,
};
const PACE: MetricTitle = MetricTitle {
    name: "stage_serve_pace",
    help: "The rate that the server lets its mounts write at, as a part of the link; absent where it sets none.",
    unit: MetricUnit::Ratio,
};
const CACHED: MetricTitle = MetricTitle {
    name: "staging_cached",
    help: "Durable bytes in memory, kept for readers.",
    unit: MetricUnit::Bytes,
};
const LOG_USED: MetricTitle = MetricTitle {
    name: "staging_log_used",
    help: "Bytes of the log that are in use.",
    unit: MetricUnit::Bytes,
};
const LOG_FREE: MetricTitle = MetricTitle {
    name: "staging_log_free",
    help: "Bytes of the log that are free.",
    unit: MetricUnit::Bytes,
};
const SEGMENTS: MetricTitle = MetricTitle {
    name: "staging_log_segments",
    help: "Segments of the log: used, free, and retired because the disk failed there.",
    unit: MetricUnit::Number,
};
const CLASS_BYTES: MetricTitle = MetricTitle {
    name: "staging_class",
    help: "Bytes of files in the log, by the class of their traffic.",
    unit: MetricUnit::Bytes,
};
const USER_BYTES: MetricTitle = MetricTitle {
    name: "staging_user",
    help: "Bytes of files in the log, by the user that owns them.",
    unit: MetricUnit::Bytes,
};
const CLASS_FILES: MetricTitle = MetricTitle {
    name: "staging_class_files",
    help: "Files that the store does not have as they are, by the class of their traffic.",
    unit: MetricUnit::Number,
};
const LAG: MetricTitle = MetricTitle {
    name: "staging_lag",
    help: "Names, attributes and removals that the store lacks.",
    unit: MetricUnit::Number,
};
const DRAIN: MetricTitle = MetricTitle {
    name: "staging_drain_state",
    help: "1 for what the drain is: idle, working, failing, or parked because the store makes no progress.",
    unit: MetricUnit::Number,
};
const DRAINING: MetricTitle = MetricTitle {
    name: "staging_draining_steps",
    help: "Steps of the drain that are under way.",
    unit: MetricUnit::Number,
};
const DRAINED: MetricTitle = MetricTitle {
    name: "staging_drained",
    help: "Bytes that were copied to the store, by the class that they had then.",
    unit: MetricUnit::Bytes,
};
const DRAINED_FILES: MetricTitle = MetricTitle {
    name: "staging_drained_files",
    help: "Versions of files that the store got whole.",
    unit: MetricUnit::Number,
};
const DRAIN_FAILURES: MetricTitle = MetricTitle {
    name: "staging_drain_failures",
    help: "Steps of the drain that failed; they are tried again.",
    unit: MetricUnit::Number,
};
const LATE_FILES: MetricTitle = MetricTitle {
    name: "staging_late_files",
    help: "Files that the store lacks after their deadline.",
    unit: MetricUnit::Number,
};
const INODES: MetricTitle = MetricTitle {
    name: "staging_inodes",
    help: "Files, directories and links.",
    unit: MetricUnit::Number,
};
const INODES_LIMIT: MetricTitle = MetricTitle {
    name: "staging_inodes_limit",
    help: "Files, directories and links that there can be.",
    unit: MetricUnit::Number,
};
const STOPPED: MetricTitle = MetricTitle {
    name: "staging_stopped",
    help: "1 when the log takes no more changes because of an error, else 0.",
    unit: MetricUnit::Number,
};

/// The figures of a mount.
pub(crate) struct MountMetrics(pub(crate) StatusReader);

/// The figures of a mount of a server.
pub(crate) struct RemoteMountMetrics(pub(crate) RemoteStatusReader);

/// The figures of a server: those of its log, and of its clients.
pub(super) struct ServerMetrics {
    pub(super) log: StatusReader,
    pub(super) clients: ClientAcceptor,
}

impl MetricSource for RemoteMountMetrics {
    fn write(&self, sheet: &mut MetricSheet<'_>) -> fmt::Result {
        let counts = self.0.counts();
        sheet.counter(&WRITTEN, counts.written_bytes)?;
        sheet.counter(&READ, counts.read_bytes)?;
        sheet.gauge(&UNACKNOWLEDGED, counts.unacknowledged)?;
        sheet.gauge(&CALLS, counts.calls)
    }
}

impl MetricSource for ServerMetrics {
    fn write(&self, sheet: &mut MetricSheet<'_>) -> fmt::Result {
        let status = self.log.status();
        write_status(&status, sheet)?;
        if let Some(pace) = status.pace {
            let part = pace.rate as f64 / pace.link as f64;
            sheet.ratios(&PACE, [(Vec::new(), part)])?;
        }
        sheet.gauge(&CLIENTS, self.clients.connected())
    }
}

impl MetricSource for MountMetrics {
    fn write(&self, sheet: &mut MetricSheet<'_>) -> fmt::Result {
        write_status(&self.0.status(), sheet)
    }
}

fn write_status(status: &MountStatus, sheet: &mut MetricSheet<'_>) -> fmt::Result {
    let label = |name, value: &str| vec![(name, value.to_owned())];
    sheet.counter(&WRITTEN, status.written_bytes)?;
    sheet.counter(&READ, status.read_bytes)?;
    sheet.counter(&MOVED, status.moved_bytes)?;
    sheet.counter(&CHANGES, status.changes)?;
    sheet.counter(&STALLS, status.stalls)?;
    sheet.gauge(&STALLED, status.stalled)?;
    sheet.times(&SYNC, [(Vec::new(), &status.syncs)])?;
    sheet.gauge(&UNLOGGED, status.unlogged_bytes)?;
    sheet.gauge(&CACHED, status.cached_bytes)?;
    sheet.gauge(&LOG_USED, status.log_bytes.saturating_sub(status.log_bytes_free))?;
    sheet.gauge(&LOG_FREE, status.log_bytes_free)?;
    let segments = [
        ("used", status.segments.saturating_sub(status.segments_free)),
        ("free", status.segments_free),
        ("retired", status.segments_retired),
    ];
    sheet.gauges(&SEGMENTS, segments.map(|(state, count)| (label("state", state), count)))?;
    let by_class = |figures: &BTreeMap<Class, u64>| {
        Class::ALL.map(|class| {
            let figure = figures.get(&class).copied().unwrap_or(0);
            (label("class", class.name()), figure)
        })
    };
    sheet.gauges(&CLASS_BYTES, by_class(&status.class_bytes))?;
    sheet.gauges(&CLASS_FILES, by_class(&status.class_files))?;
    let users = status.users.iter();
    sheet.gauges(
        &USER_BYTES,
        users.map(|user| (label("uid", &user.uid.to_string()), user.log_bytes)),
    )?;
    sheet.gauge(&LAG, status.lag)?;
    let states = [
        ("idle", DrainState::Idle),
        ("working", DrainState::Working),
        ("failing", DrainState::Failing),
        ("parked", DrainState::Parked),
    ];
    sheet.gauges(
        &DRAIN,
        states.map(|(name, state)| (label("state", name), u64::from(status.drain == state))),
    )?;
    sheet.gauge(&DRAINING, status.draining)?;
    sheet.counters(&DRAINED, by_class(&status.drained_bytes))?;
    sheet.counter(&DRAINED_FILES, status.drained_files)?;
    sheet.counter(&DRAIN_FAILURES, status.drain_failures)?;
    sheet.gauge(&LATE_FILES, status.late_files)?;
    sheet.gauge(&INODES, status.inodes)?;
    sheet.gauge(&INODES_LIMIT, status.inodes_max)?;
    sheet.gauge(&STOPPED, u64::from(status.stopped.is_some()))
}
