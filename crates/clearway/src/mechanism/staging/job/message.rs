//! What the coordinator of a job and its tasks say to each other: lines of JSON.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Ipv4Addr;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The longest line: a path or a sentence.
const LINE_MAX: u64 = 64 << 10;

/// Both directions of a connection.
pub(super) type TaskConnection = (Box<dyn Read + Send>, Box<dyn Write + Send>);

/// What a task has to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum TaskRequest {
    /// Say whether the store has the file of a probe.
    FindProbe { name: String },
    /// Serve the log of the node.
    Serve,
    /// Mount these servers, in this order, for all tasks of the node.
    Mount { servers: Vec<JobServer> },
    /// Run the program with this mount point.
    Run { directory: PathBuf },
    /// End the program, because one of another task was killed.
    EndProgram,
    /// Unmount, when everything is at the server.
    Unmount,
    /// Give the server up if an unmount does not end soon.
    LimitUnmount,
    /// Say when the store has everything of the log.
    Drain,
    /// End the program and the mount at once: the job has failed.
    Abort,
    /// Close the log.
    CloseServer,
    /// The job is over.
    Leave,
}

/// Where a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct JobServer {
    /// Its host as the coordinator reaches it, or `None` for the coordinator's own host.
    pub(super) host: Option<Ipv4Addr>,
    pub(super) port: u16,
}

/// What a task has done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum TaskReport {
    /// Whether the store has the file of the probe.
    ProbeLookedUp {
        is_there: bool,
    },
    /// The log is served at this port.
    Serving {
        port: u16,
    },
    Mounted {
        directory: PathBuf,
    },
    /// The program ended.
    Ended(ApplicationEnd),
    Unmounted,
    /// The store has everything of the log.
    Drained,
    /// The log is closed.
    ServerClosed,
    /// A signal asked the job to end.
    Interrupted,
    /// The task cannot do its part.
    Failed {
        sentence: String,
    },
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ApplicationEnd {
    /// With status 0.
    Good,
    /// With another status.
    Bad,
    /// By a signal.
    Killed,
}

/// Sends `message`. An error is not returned: the reader of the connection notices its end.
pub(super) fn send(to: &mut dyn Write, message: &impl Serialize) {
    let Ok(mut line) = serde_json::to_vec(message) else { return };
    line.push(b'\n');
    let _ = to.write_all(&line).and_then(|()| to.flush());
}

/// Gives each message of `from` to `take`, until `take` returns `false`. At the end of the
/// connection, or at a line that is no message, `take` gets `None`, and nothing more.
pub(super) fn receive<M: DeserializeOwned>(
    from: Box<dyn Read + Send>,
    mut take: impl FnMut(Option<M>) -> bool,
) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = from.by_ref().take(LINE_MAX).read_until(b'\n', &mut line);
        let message = read.ok().and_then(|_| serde_json::from_slice(&line).ok());
        let is_over = message.is_none();
        if !take(message) || is_over {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receive__messages_come_in_order_and_nonsense_ends_them() {
        let mut bytes = Vec::new();
        let sent = [TaskRequest::Serve, TaskRequest::Unmount];
        sent.iter().for_each(|request| send(&mut bytes, request));
        for end in [&b""[..], b"{\"mount\":", b"\xff\n", &[b'['; 200_000]] {
            let input = [&bytes, end].concat();
            let mut got = Vec::new();
            receive(Box::new(std::io::Cursor::new(input)), |request: Option<TaskRequest>| {
                got.push(request);
                true
            });
            assert_eq!(got, [Some(sent[0].clone()), Some(sent[1].clone()), None]);
        }
    }
}
