//! Finds the mount of a path for commands that ask its process.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use clearway_fs::FsError;
use clearway_fs::client::ControlClient;
use clearway_fs::control::ControlPath;
use clearway_runtime::launch::escaped;

use crate::run::notice;

/// How long the process of a mount may be silent until the user learns of it.
const SILENT: Duration = Duration::from_secs(5);

/// Finds the mount that `path` lies on, and the path there. Says how to end a mount whose process does
/// not answer: a look at it waits as long as that lasts.
///
/// # Errors
/// As [`ControlClient::find`].
pub(super) fn find_mount(path: &Path) -> Result<(ControlClient, ControlPath), FsError> {
    let (found, waits) = channel::<()>();
    let shown = path.display().to_string();
    thread::spawn(move || {
        if waits.recv_timeout(SILENT) == Err(RecvTimeoutError::Timeout) {
            notice!(
                "clearway: the process of the mount at {} does not answer yet; `clearway umount --force` ends such a mount",
                escaped(&shown)
            );
        }
    });
    let client = ControlClient::find(path);
    drop(found);
    client
}
