//! One rank of a run: an engine over the wire that its conductor chose, obeying lines on standard input.
//!
//! # Invariants
//! I1. When standard input closes, the rank ends: no rank outlives its conductor. It says nothing then: whoever waits for it does.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context, Result, bail};
use clearway_proto::base::LocalNs;
use clearway_proto::wire::{Driver, SHORT_HEAD, Wire};
use clearway_runtime::keys::{self, Identity, JobSecret};
use clearway_runtime::noise::OwnWaits;
use clearway_runtime::{clock, progress};

use super::engine::{self, Heard, Measure, Measuring};
use super::message::{FromRank, RankRecord, Ready, Setup, ToRank, Waited};
use crate::mechanism::{broadcast, timeslice};
use crate::run::exit::Exit;
use clearway_wires::{Network, OpenWire, PortRequest, RankPort, grant_name};

/// Where a rank between machines finds its job's secret: never on a connection, and no other user can read it there.
pub(super) const SECRET_VARIABLE: &str = "CLEARWAY_JOB_SECRET";
/// The longest line a conductor sends: a phase of a thousand ranks with all their flows takes a tenth of this.
const LINE_MAX: usize = 1 << 20;

/// What only other processes of this program say to make a process a rank, and what they add for one that ends with them.
pub(crate) const RANK: &str = "rank";
pub(crate) const WITH_PARENT: &str = "--with-parent";

/// With what a rank ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bond {
    /// When its standard input closes.
    Input,
    /// With the process that started it as well.
    Parent,
}

/// What kind of rank `words`, a command line without the program's name, ask for, if they ask for one. Asked before they are
/// compared with all commands: making that table is a third of the instructions of such a process's start.
pub(crate) fn asked(mut words: impl Iterator<Item = OsString>) -> Option<Bond> {
    if words.next()? != RANK {
        return None;
    }
    match (words.next(), words.next()) {
        (None, _) => Some(Bond::Input),
        (Some(word), None) if word == WITH_PARENT => Some(Bond::Parent),
        _ => None,
    }
}

/// Runs until standard input closes, or what else `bond` says.
pub(crate) fn main(bond: Bond) -> Result<Exit> {
    if bond == Bond::Parent {
        nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL).context("a bond to the parent process")?;
    }
    let mut orders = Orders { lines: Lines::default(), input: standard_input()? };
    let bind = match orders.next()? {
        Some(ToRank::Bind(bind)) => bind,
        Some(_) => bail!("an order came before an address"),
        None => return Ok(Exit::Failed),
    };
    let port = match identity(&bind).and_then(|identity| Ok(RankPort::take(&bind, identity)?)) {
        Ok(port) => port,
        Err(error) => return refuse(&error),
    };
    if say(&FromRank::Bound(port.location())).is_err() {
        return Ok(Exit::Failed);
    }
    let setup = match orders.next()? {
        Some(ToRank::Open(setup)) => setup,
        Some(_) => bail!("an order came before the setup"),
        None => return Ok(Exit::Failed),
    };
    let opened = port.open(&bind, &setup.wire, orders.input.as_fd());
    match opened.map_err(Into::into).and_then(|opened| run(opened, &setup, orders)) {
        Ok(exit) => Ok(exit),
        Err(error) => refuse(&error),
    }
}

/// What this rank's keys are made with: where the network needs them, and for proofs over libfabric also elsewhere, as far as the
/// ranks share a secret.
fn identity(bind: &PortRequest) -> Result<Option<Identity>> {
    let secret = match std::env::var(SECRET_VARIABLE) {
        Ok(secret) if bind.network == Network::Sealed || RankPort::wants_fabric(bind) => secret,
        Err(error) if bind.network == Network::Sealed => {
            return Err(error).context("this rank was not told its job's secret");
        }
        _ => return Ok(None),
    };
    let secret = Some(JobSecret::new(secret.into_bytes())?);
    let job = keys::Scope { session: bind.session, epoch: 0, secret };
    Ok(Some(Identity::new(bind.rank, job)?))
}

fn standard_input() -> Result<File> {
    Ok(File::from(io::stdin().as_fd().try_clone_to_owned().context("standard input")?))
}

/// Tells the conductor why this rank takes no part.
fn refuse(why: &anyhow::Error) -> Result<Exit> {
    Ok(if say(&FromRank::Failed(format!("{why:#}"))).is_ok() { Exit::Good } else { Exit::Failed })
}

/// Orders before there is an engine: one at a time, waiting for each.
pub(crate) struct Orders {
    lines: Lines,
    input: File,
}

impl Orders {
    /// The next order; `None` when the conductor is gone.
    fn next(&mut self) -> Result<Option<ToRank>> {
        loop {
            if let Some(line) = self.lines.next() {
                return serde_json::from_str(&line).map(Some).context("an order that is none");
            }
            if self.lines.fill(&self.input)? == 0 {
                return Ok(None);
            }
        }
    }

    /// What can be waited for until there is one.
    pub(crate) fn source(&self) -> BorrowedFd<'_> {
        self.input.as_fd()
    }

    /// The next order of a conversation, waiting for it; `None` when the conductor is gone, or is none.
    pub(crate) fn next_of<A: Conversation>(&mut self) -> Result<Option<OrderOf<A>>> {
        Ok(self.next()?.and_then(OrderOf::of))
    }

    /// Those that are there, without waiting.
    pub(crate) fn waiting_of<A: Conversation>(&mut self) -> Option<Vec<OrderOf<A>>> {
        if self.lines.fill(&self.input).ok()? == 0 {
            return None;
        }
        let lines = std::iter::from_fn(|| self.lines.next());
        lines.map(|line| serde_json::from_str(&line).ok().and_then(OrderOf::of)).collect()
    }
}

/// An order to a rank with a conversation of its own.
pub(crate) enum OrderOf<A> {
    Asked(A),
    /// The run is over.
    Leave,
}

impl<A: Conversation> OrderOf<A> {
    fn of(order: ToRank) -> Option<Self> {
        match order {
            ToRank::Leave => Some(Self::Leave),
            other => A::of(Order(other)).map(Self::Asked),
        }
    }
}

/// An order as it came.
pub(crate) struct Order(ToRank);

/// What conductor and rank of one measurement say to each other: this is asked.
pub(crate) trait Conversation: Sized {
    /// What is said back.
    type Said;

    /// `order`, if it is one of these.
    fn of(order: Order) -> Option<Self>;

    /// Tells the conductor.
    ///
    /// # Errors
    /// The conductor is gone.
    fn say(said: Self::Said) -> Result<()>;
}

impl Conversation for timeslice::Asked {
    type Said = timeslice::Said;

    fn of(order: Order) -> Option<Self> {
        if let ToRank::Timeslice(asked) = order.0 { Some(asked) } else { None }
    }

    fn say(said: Self::Said) -> Result<()> {
        say(&FromRank::Timeslice(said))
    }
}

impl Conversation for broadcast::Asked {
    type Said = broadcast::Said;

    fn of(order: Order) -> Option<Self> {
        if let ToRank::Broadcast(asked) = order.0 { Some(asked) } else { None }
    }

    fn say(said: Self::Said) -> Result<()> {
        say(&FromRank::Broadcast(said))
    }
}

/// Runs the engine of `setup` on the wire that was opened.
fn run(mut opened: OpenWire, setup: &Setup, orders: Orders) -> Result<Exit> {
    match setup.measure {
        Measure::Congestion => {
            let node = engine::congestion(&mut *opened.wire, setup.seed)?;
            serve(opened, node, orders)
        }
        Measure::Gpcnet => {
            let node = engine::gpcnet(&mut *opened.wire)?;
            serve(opened, node, orders)
        }
        Measure::Timeslice => {
            say(&FromRank::Ready(ready(&opened)))?;
            timeslice::serve(&mut *opened.wire, orders)
        }
        Measure::Broadcast => {
            say(&FromRank::Ready(ready(&opened)))?;
            broadcast::serve(opened.wire, orders)
        }
    }
}

/// What the wire that was opened can do.
fn ready(opened: &OpenWire) -> Ready {
    let capabilities = opened.wire.capabilities();
    Ready {
        body_max: capabilities.body_beside(SHORT_HEAD) as u32,
        overhead: opened.overhead,
        operations: capabilities.operations,
        classes: opened.classes.map(|granted| grant_name(granted).to_owned()).to_vec(),
    }
}

fn serve<E: Measuring>(opened: OpenWire, node: E, orders: Orders) -> Result<Exit> {
    say(&FromRank::Ready(ready(&opened)))?;
    let OpenWire { mut wire, .. } = opened;
    let mut driver = Driver::boot(node, clock::now(), 0);
    let Orders { lines, input } = orders;
    let noise = OwnWaits::new(clock::now());
    let mut host = Host {
        lines,
        input: &input,
        over: false,
        is_dismissed: false,
        noise,
        waits: Vec::new(),
        has_order: false,
        refused: None,
    };
    loop {
        progress::run(&mut driver, &mut *wire, &[input.as_fd()], &mut host);
        if let Some(why) = host.refused.take() {
            return Err(why);
        }
        let Some(first) = driver.engine_mut().seen() else { return Ok(host.end()) };
        host.over = false;
        let counters = wire.counters();
        let (receive_overflow, strangers) = (counters.receive_overflow, counters.strangers);
        // A phase that the next one ended may be over in the same instant as that one.
        for seen in std::iter::once(first).chain(std::iter::from_fn(|| driver.engine_mut().seen())) {
            let waits = std::mem::take(&mut host.waits);
            if say(&FromRank::Record(Box::new(RankRecord { seen, receive_overflow, strangers, waits }))).is_err() {
                return Ok(host.end());
            }
        }
    }
}

/// Writes one line to the conductor.
fn say(message: &FromRank) -> Result<()> {
    let mut line = serde_json::to_vec(message).context("a message that JSON cannot hold")?;
    line.push(b'\n');
    let mut output = io::stdout().lock();
    output.write_all(&line).and_then(|()| output.flush()).context("the conductor is gone")
}

/// The rank's side of the progress loop.
struct Host<'a> {
    lines: Lines,
    input: &'a File,
    /// The loop shall end: a record waits, or standard input closed.
    over: bool,
    /// The conductor said that the run is over.
    is_dismissed: bool,
    noise: OwnWaits,
    /// What it told since the last record.
    waits: Vec<Waited>,
    /// The engine was given an order that the wire may have to be prepared for; and why it could not be.
    has_order: bool,
    refused: Option<anyhow::Error>,
}

impl Host<'_> {
    /// How this process ends: well, if it was told to.
    fn end(&self) -> Exit {
        if self.is_dismissed { Exit::Good } else { Exit::Failed }
    }
}

impl<E: Measuring> progress::Host<E> for Host<'_> {
    fn told(&mut self, event: E::Event) {
        self.over |= E::hear(event) == Heard::Over;
    }

    fn control(&mut self, _which: usize, now: LocalNs, driver: &mut Driver<E>) {
        match self.lines.fill(self.input) {
            Ok(n) if n > 0 => {
                while let Some(line) = self.lines.next() {
                    match serde_json::from_str(&line) {
                        Ok(ToRank::Leave) => (self.over, self.is_dismissed) = (true, true),
                        Ok(ToRank::Time) => self.over |= say(&FromRank::Time(clock::now())).is_err(),
                        // A conductor that says anything else is not one.
                        order => match order.ok().and_then(E::command) {
                            Some(command) => {
                                driver.command(now, command);
                                self.has_order = true;
                            }
                            None => self.over = true,
                        },
                    }
                }
            }
            _ => self.over = true,
        }
    }

    fn after_step(
        &mut self,
        now: LocalNs,
        driver: &mut Driver<E>,
        wire: &mut dyn Wire,
    ) -> ControlFlow<(), Option<LocalNs>> {
        if std::mem::take(&mut self.has_order) {
            self.refused = driver.engine_mut().prepare(wire).err();
            self.over |= self.refused.is_some();
        }
        self.waits.extend(self.noise.sample(now).map(Waited::from));
        if self.over { ControlFlow::Break(()) } else { ControlFlow::Continue(None) }
    }
}

/// Bytes from a pipe, handed out line by line.
#[derive(Debug, Default)]
struct Lines {
    bytes: Vec<u8>,
}

impl Lines {
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

    /// The next whole line, if there is one.
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
    fn asked__takes_the_two_command_lines_of_ranks_and_no_other() {
        let asked = |line: &str| asked(line.split_whitespace().map(OsString::from));
        assert_eq!(asked("rank"), Some(Bond::Input));
        assert_eq!(asked("rank --with-parent"), Some(Bond::Parent));
        for other in ["", "run", "rank --help", "rank --with-parent more", "ranks"] {
            assert_eq!(asked(other), None, "{other}");
        }
    }

    #[test]
    fn lines__come_whole_and_in_order() {
        let mut lines = Lines { bytes: b"one\ntwo\nthr".to_vec() };
        assert_eq!(lines.next().as_deref(), Some("one"));
        assert_eq!(lines.next().as_deref(), Some("two"));
        assert_eq!(lines.next(), None);
        lines.bytes.extend_from_slice(b"ee\n");
        assert_eq!(lines.next().as_deref(), Some("three"));
    }
}
