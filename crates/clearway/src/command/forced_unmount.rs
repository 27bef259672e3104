//! `clearway umount --force` of a mount whose process does not answer.

use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clearway_fs::client::ControlClient;
use clearway_fs::control::ControlRequest;
use clearway_fs::mount::detach;
use clearway_fs::mount_table::TableMount;
use clearway_runtime::launch::escaped;

use crate::run::exit::Exit;
use crate::run::notice;

/// How long the process of a mount may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Ends a mount whose process does not answer; returns nothing if it does, or if there is none.
///
/// # Errors
/// One sentence: what else to name, or what is missing.
pub(super) fn end(directory: &Path) -> Result<Option<Exit>> {
    let found = TableMount::find(directory).context("cannot read the table of mounts")?;
    let Some((mount, path)) = found else { return Ok(None) };
    let point = mount.point.display().to_string();
    if path != mount.point {
        bail!(
            "{} lies in the mount on {point}; name that, as in `clearway umount --force {point}`",
            directory.display()
        );
    }
    if abandons_in_time(&mount.point) {
        return Ok(None);
    }
    mount.abort()?;
    // An abort does not unmount, but nobody waits any more.
    detach(&mount.point).with_context(|| format!("cannot unmount {point}"))?;
    notice!(
        "clearway: unmounted {} without its process, which does not answer; writes that were not synced may be lost, and the process keeps the log open until it ends",
        escaped(&point)
    );
    Ok(Some(Exit::Good))
}

/// Has the process of a mount give up its servers; returns whether it answers, or is gone, in time. Its
/// silence holds a thread, which an abort frees.
fn abandons_in_time(point: &Path) -> bool {
    let (sender, answered) = channel();
    let point = point.to_owned();
    thread::spawn(move || {
        if let Ok((client, _)) = ControlClient::find(&point) {
            // One without servers refuses.
            let _ = client.ask(&ControlRequest::Abandon, |_| ());
        }
        sender.send(())
    });
    answered.recv_timeout(ANSWER_MAX).is_ok()
}
