//! The process of one rank: opens the wire that its coordinator chose, and serves requests from
//! standard input.
//!
//! # Invariants
//! I1. When standard input closes, the rank ends: no rank outlives its coordinator. It says nothing
//!     then: the process that waits for it does.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context, Result, bail};
use clearway_proto::base::Rank;
use clearway_proto::wire::SHORT_HEAD;
use clearway_runtime::clock;
use clearway_runtime::keys::{self, JobSecret, RankKeyPair};
use clearway_runtime::waiting::Waitable;
use clearway_wires::{Network, OpenWire, PeerMover, PortRequest, RankPort, grant_name};
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::exit::Exit;
use super::message::{FromRank, Ready, ToRank};
use super::session::Protocol;

/// Where a rank between machines finds its job's secret: never on a connection, and no other user
/// can read it there.
pub(crate) const SECRET_VARIABLE: &str = "CLEARWAY_JOB_SECRET";
/// The longest line a coordinator sends: a phase of a thousand ranks with all their flows takes a
/// tenth of this.
const LINE_MAX: usize = 1 << 20;

/// What only other processes of this program say to make a process a rank, and what they add for
/// one that ends with them.
pub(crate) const RANK: &str = "rank";
pub(crate) const WITH_PARENT: &str = "--with-parent";

/// With what a rank ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RankLifetime {
    /// When its standard input closes.
    Input,
    /// With the process that started it as well.
    Parent,
}

/// Returns what kind of rank `words`, a command line without the program's name, ask for, if they
/// ask for one. Asked before they are compared with all commands: making that table is a third of
/// the instructions of such a process's start.
pub(crate) fn requested_lifetime(
    mut words: impl Iterator<Item = OsString>,
) -> Option<RankLifetime> {
    if words.next()? != RANK {
        return None;
    }
    match (words.next(), words.next()) {
        (None, _) => Some(RankLifetime::Input),
        (Some(word), None) if word == WITH_PARENT => Some(RankLifetime::Parent),
        _ => None,
    }
}

/// Serves a rank's part of the mechanism that its coordinator names, which `find` finds by its
/// name. Runs until standard input closes, or what else `bond` says.
pub(crate) fn main(
    bond: RankLifetime,
    find: impl FnOnce(&str) -> Option<ServeRank>,
) -> Result<Exit> {
    if bond == RankLifetime::Parent {
        nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)
            .context("a bond to the parent process")?;
    }
    let mut input = CoordinatorInput { lines: LineBuffer::default(), file: standard_input()? };
    let bind = match input.next::<IgnoredAny>()? {
        Some(ToRank::Bind(bind)) => bind,
        Some(_) => bail!("a request came before an address"),
        None => return Ok(Exit::Failed),
    };
    let port = match identity(&bind).and_then(|identity| Ok(RankPort::take(&bind, identity)?)) {
        Ok(port) => port,
        Err(error) => return refuse(&bind, &error),
    };
    if send_line(&FromRank::<()>::Bound(port.location())).is_err() {
        return Ok(Exit::Failed);
    }
    let setup = match input.next::<IgnoredAny>()? {
        Some(ToRank::Open(setup)) => setup,
        Some(_) => bail!("a request came before the setup"),
        None => return Ok(Exit::Failed),
    };
    let begun = port.open(&bind, &setup.wire, input.file.as_fd()).map_err(anyhow::Error::from);
    let served = begun.and_then(|opened| {
        let serve = find(&setup.mechanism).with_context(|| {
            format!(
                "this version has no mechanism `{}`; start all ranks with one version",
                setup.mechanism
            )
        })?;
        let ready = ready(&opened);
        let OpenWire { wire, mover, .. } = opened;
        serve(RankContext { wire, mover, seed: setup.seed, ready, input })
    });
    served.or_else(|error| refuse(&bind, &error))
}

/// Returns what this rank's keys are made with: where the network needs them, and for proofs over
/// libfabric also elsewhere, as far as the ranks share a secret.
fn identity(bind: &PortRequest) -> Result<Option<RankKeyPair>> {
    let secret = match std::env::var(SECRET_VARIABLE) {
        Ok(secret) if bind.network == Network::Sealed || RankPort::wants_fabric(bind) => secret,
        Err(error) if bind.network == Network::Sealed => {
            return Err(error).context("this rank did not receive its job's secret");
        }
        _ => return Ok(None),
    };
    let secret = Some(JobSecret::new(secret.into_bytes())?);
    let job = keys::KeyScope { session: bind.session, epoch: bind.incarnation, secret };
    Ok(Some(RankKeyPair::new(bind.rank, job)?))
}

fn standard_input() -> Result<File> {
    Ok(File::from(io::stdin().as_fd().try_clone_to_owned().context("standard input")?))
}

/// Tells the coordinator why this rank takes no part. A run goes on without a process that was to
/// take the place of another.
fn refuse(bind: &PortRequest, why: &anyhow::Error) -> Result<Exit> {
    Ok(match send_line(&FromRank::<()>::Failed(format!("{why:#}"))) {
        Ok(()) if bind.incarnation > 0 => takes_no_part(bind.rank, why),
        Ok(()) => Exit::Good,
        Err(_) => Exit::Failed,
    })
}

/// Says to the user why the process that is `rank` takes no part in a run that goes on; returns how
/// it ends.
pub(crate) fn takes_no_part(rank: Rank, why: &anyhow::Error) -> Exit {
    eprintln!("clearway: rank {rank} cannot take part: {why:#}");
    Exit::NoPart
}

/// The rank's side of a mechanism.
pub(crate) type ServeRank = fn(RankContext) -> Result<Exit>;

/// What a mechanism is given at a rank: the wire, and its coordinator.
pub(crate) struct RankContext {
    pub(crate) wire: Box<dyn Waitable + Send>,
    pub(crate) seed: u64,
    mover: PeerMover,
    ready: Ready,
    input: CoordinatorInput,
}

impl RankContext {
    /// Says that this rank is ready, and begins the conversation of its mechanism.
    ///
    /// # Errors
    /// The coordinator is gone.
    pub(crate) fn begin<P: Protocol>(self) -> Result<(Box<dyn Waitable + Send>, Requests<P>)> {
        send_line(&FromRank::<()>::Ready(self.ready))?;
        let Self { wire, mover, input, .. } = self;
        Ok((wire, Requests { input, mover, protocol: PhantomData }))
    }
}

/// Returns what the wire that was opened can do.
fn ready(opened: &OpenWire) -> Ready {
    let capabilities = opened.wire.capabilities();
    Ready {
        body_max: capabilities.body_max_with_head(SHORT_HEAD) as u32,
        overhead: opened.overhead,
        operations: capabilities.operations,
        classes: opened.classes.map(|granted| grant_name(granted).to_owned()).to_vec(),
    }
}

/// The coordinator as a rank sees it: requests come in, responses go out.
pub(crate) struct Requests<P> {
    input: CoordinatorInput,
    mover: PeerMover,
    protocol: PhantomData<P>,
}

/// What comes from the coordinator.
pub(crate) enum Incoming<R> {
    Request(R),
    /// The run is over.
    Leave,
}

impl<P: Protocol> Requests<P> {
    /// Waits for the next; `None` when the coordinator is gone, or is none.
    pub(crate) fn next(&mut self) -> Result<Option<Incoming<P::Request>>> {
        loop {
            match self.input.next()? {
                Some(message) => match incoming(message, &self.mover) {
                    Some(Some(incoming)) => return Ok(Some(incoming)),
                    Some(None) => {}
                    None => return Ok(None),
                },
                None => return Ok(None),
            }
        }
    }

    /// Returns those that are there, without waiting; `None` when the coordinator is gone, or is
    /// none.
    pub(crate) fn waiting(&mut self) -> Option<Vec<Incoming<P::Request>>> {
        if self.input.lines.fill(&self.input.file).ok()? == 0 {
            return None;
        }
        let mut all = Vec::new();
        while let Some(line) = self.input.lines.next() {
            all.extend(incoming(serde_json::from_str(&line).ok()?, &self.mover)?);
        }
        Some(all)
    }

    /// Returns what can be waited for until there is one.
    pub(crate) fn source(&self) -> BorrowedFd<'_> {
        self.input.file.as_fd()
    }

    /// Sends a response.
    ///
    /// # Errors
    /// The coordinator is gone.
    pub(crate) fn respond(&self, response: P::Response) -> Result<()> {
        respond::<P>(response)
    }
}

/// Sends a response of `P` to the coordinator.
///
/// # Errors
/// The coordinator is gone.
pub(crate) fn respond<P: Protocol>(response: P::Response) -> Result<()> {
    send_line(&FromRank::Response(response))
}

/// Returns what `message` is for the mechanism: a question for the time is answered here, and the
/// wire hears from here of peers that moved (`Some(None)`); `None` is no message of a coordinator to
/// a rank that is ready.
fn incoming<R>(message: ToRank<R>, mover: &PeerMover) -> Option<Option<Incoming<R>>> {
    match message {
        ToRank::Request(request) => Some(Some(Incoming::Request(request))),
        ToRank::Leave => Some(Some(Incoming::Leave)),
        ToRank::Time => send_line(&FromRank::<()>::Time(clock::now())).ok().map(|()| None),
        ToRank::Moved { rank, location } => {
            mover.announce(rank, location);
            Some(None)
        }
        ToRank::Bind(_) | ToRank::Open(_) => None,
    }
}

/// Writes one line to the coordinator.
fn send_line<S: Serialize>(message: &FromRank<S>) -> Result<()> {
    let mut line = serde_json::to_vec(message).context("a message that JSON cannot hold")?;
    line.push(b'\n');
    let mut output = io::stdout().lock();
    output.write_all(&line).and_then(|()| output.flush()).context("the coordinator is gone")
}

/// Messages from the coordinator.
struct CoordinatorInput {
    lines: LineBuffer,
    file: File,
}

impl CoordinatorInput {
    /// Returns the next message; `None` when the coordinator is gone.
    fn next<R: DeserializeOwned>(&mut self) -> Result<Option<ToRank<R>>> {
        loop {
            if let Some(line) = self.lines.next() {
                return serde_json::from_str(&line).map(Some).context("a message that is none");
            }
            if self.lines.fill(&self.file)? == 0 {
                return Ok(None);
            }
        }
    }
}

/// Bytes from a pipe, handed out line by line.
#[derive(Debug, Default)]
struct LineBuffer {
    bytes: Vec<u8>,
}

impl LineBuffer {
    /// Reads once; returns how much came, zero at the end.
    fn fill(&mut self, mut input: &File) -> Result<usize> {
        let mut chunk = [0; 16 << 10];
        let count = match input.read(&mut chunk) {
            // A connection whose other end died in the middle of what was said.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
            other => other.context("standard input")?,
        };
        if self.bytes.len() + count > LINE_MAX {
            bail!("a line longer than {LINE_MAX} bytes");
        }
        self.bytes.extend_from_slice(&chunk[..count]);
        Ok(count)
    }

    /// Returns the next whole line, if there is one.
    fn next(&mut self) -> Option<String> {
        let end = self.bytes.iter().position(|byte| *byte == b'\n')?;
        let line = self.bytes.drain(..=end).take(end).collect();
        String::from_utf8(line).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requested_lifetime__takes_the_two_command_lines_of_ranks_and_no_other() {
        let asked = |line: &str| requested_lifetime(line.split_whitespace().map(OsString::from));
        assert_eq!(asked("rank"), Some(RankLifetime::Input));
        assert_eq!(asked("rank --with-parent"), Some(RankLifetime::Parent));
        for other in ["", "run", "rank --help", "rank --with-parent more", "ranks"] {
            assert_eq!(asked(other), None, "{other}");
        }
    }

    #[test]
    fn lines__come_whole_and_in_order() {
        let mut lines = LineBuffer { bytes: b"one\ntwo\nthr".to_vec() };
        assert_eq!(lines.next().as_deref(), Some("one"));
        assert_eq!(lines.next().as_deref(), Some("two"));
        assert_eq!(lines.next(), None);
        lines.bytes.extend_from_slice(b"ee\n");
        assert_eq!(lines.next().as_deref(), Some("three"));
    }
}
