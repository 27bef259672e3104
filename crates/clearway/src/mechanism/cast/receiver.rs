//! A receiver: answers the sender, takes the broadcast, and leaves files behind.
//!
//! # Model
//! The thread that runs the engine copies each object out of its place and gives it to another one,
//! which writes. A place is offered again when everybody has what was in it and there is memory for
//! a copy: a slow disk so holds the sender back, and nothing grows.
//!
//! # Invariants
//! I1. When the sender is gone, or silent for as long as one that is gone, so is the receiver, and
//!     no file is its own any more. What was
//!     whole appears; the rest stays for the next time.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clearway_proto::base::{LocalNs, Nanos};
use clearway_proto::broadcast::{BroadcastCommand, BroadcastEvent, BroadcastNode};
use clearway_proto::wire::{Driver, RegionId, Span, Wire};
use clearway_runtime::progress;
use clearway_runtime::wake_signal::WakeSignal;

use super::assembly::Assembly;
use super::inbox::{PartialMessage, SenderMessages, SilenceCount, TICK};
use super::link::{MessageReceiver, MessageSender};
use super::membership::{MemberEnd, MemberPort, PLACES, place_of};
use super::message::{
    CastTask, ExtrasPolicy, FromReceiver, ReceiverOutcome, RemovalTask, ToReceiver,
};
use super::metrics::ReceiverFigures;
use super::path::RelativePath;
use super::plan::{BlockHash, ENTRIES_MAX, ManifestEntry};
use super::record::OBJECT_MAX;
use super::target::TargetDirectory;
use crate::run::job::host_name;
use clearway_wires::hexadecimal::bytes_of;

/// How often the sender learns how far this one is: as often as somebody reads it.
const TELL_EVERY: Nanos = Nanos::from_millis(250);

/// How often it is looked whether the sender still speaks.
const LISTEN_EVERY: Nanos = Nanos(TICK.as_nanos() as u64);

/// How often the sender hears of one that is busy: some times in what it takes for silence.
const ALIVE_EVERY: Duration = Duration::from_secs(5);

/// Where a receiver may write.
#[derive(Clone, Debug)]
pub(super) enum Destination {
    /// Where the sender says: it started this process.
    Anywhere,
    /// In this directory only.
    Beneath(PathBuf, RemovalRight),
}

/// Whether senders may remove names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemovalRight {
    Granted,
    Denied,
}

/// Takes part in one cast, to its end. `figures` has how far it is.
///
/// # Errors
/// The connection to the sender is broken.
pub(super) fn receive(
    (mut speaker, listener): (MessageSender, MessageReceiver),
    secret: &[u8],
    destination: &Destination,
    reached: Option<[std::net::Ipv4Addr; 2]>,
    figures: &ReceiverFigures,
) -> Result<()> {
    let inbox = SenderMessages::start(listener, TICK)?;
    let host = host_name()?;
    speaker.send(&FromReceiver::Here { host: host.clone(), boot: network()?, reached })?;
    let mut session =
        ReceiverSession { status: StatusSender::start(speaker)?, inbox, host, removal: None };
    match session.work(secret, destination, figures) {
        Ok(()) => Ok(()),
        Err(error) => {
            // A sender that is gone needs no reason.
            let _ = session.status.send(&FromReceiver::Failed(format!("{error:#}")));
            while let Ok(Some(message)) = session.inbox.next() {
                if matches!(message, ToReceiver::Leave) {
                    break;
                }
            }
            Err(error)
        }
    }
}

/// Returns what those share who share a loopback: the number of this start of the machine, and that
/// of the network namespace. Containers of one machine have networks of their own, which others can
/// listen to.
pub(super) fn network() -> Result<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .context("the number of this start")?;
    let namespace =
        std::fs::metadata("/proc/self/ns/net").context("the network namespace of this process")?;
    Ok(format!("{} {} {}", boot.trim(), namespace.dev(), namespace.ino()))
}

/// The receiver's end of the connection.
struct ReceiverSession {
    status: StatusSender,
    inbox: SenderMessages,
    host: String,
    /// What may be removed at the end.
    removal: Option<RemovalTask>,
}

/// Sends messages to the sender, and keep-alives while the receiver is busy.
struct StatusSender {
    speaker: Arc<Mutex<MessageSender>>,
    /// Dropped, the keep-alives end.
    _more: Sender<()>,
}

impl StatusSender {
    fn start(speaker: MessageSender) -> Result<Self> {
        let speaker = Arc::new(Mutex::new(speaker));
        let (more, end) = channel();
        let status = Self { speaker: speaker.clone(), _more: more };
        let repeat = move || {
            while end.recv_timeout(ALIVE_EVERY) == Err(RecvTimeoutError::Timeout)
                && send(&speaker, &FromReceiver::Alive).is_ok()
            {}
        };
        thread::Builder::new()
            .name("alive".to_owned())
            .spawn(repeat)
            .context("a thread that says so")?;
        Ok(status)
    }

    fn send(&self, message: &FromReceiver) -> Result<()> {
        send(&self.speaker, message)
    }
}

fn send(speaker: &Mutex<MessageSender>, message: &FromReceiver) -> Result<()> {
    speaker.lock().map_err(|_| anyhow!("a thread ended by a fault"))?.send(message)
}

impl ReceiverSession {
    fn work(
        &mut self,
        secret: &[u8],
        destination: &Destination,
        figures: &ReceiverFigures,
    ) -> Result<()> {
        let Some(mut assembly) = self.begin(destination, figures)? else { return Ok(()) };
        let taken = Arc::clone(&figures.taken);
        let mut hashes: (u32, Vec<BlockHash>) = (0, Vec::new());
        let (mut port, mut end) = (None, None);
        while let Some(message) = self.inbox.next()? {
            match message {
                ToReceiver::Hashes { file, hashes: more } => {
                    self.compare(&mut assembly, &mut hashes, (file, &more))?;
                }
                ToReceiver::Compare => self.status.send(&FromReceiver::Compared)?,
                ToReceiver::Seat(seat) => {
                    let taken = MemberPort::take(seat, secret)?;
                    self.status.send(&FromReceiver::Bound(taken.place()))?;
                    port = Some(taken);
                }
                ToReceiver::Open(places) => {
                    let port = port.take().context("a place in a broadcast without a seat")?;
                    end = Some(port.open(&places)?);
                    self.status.send(&FromReceiver::Opened)?;
                }
                ToReceiver::Begin { group_key } => {
                    let mut end = end.take().context("a broadcast without a place in it")?;
                    group_key.map_or(Ok(()), |key| end.take_group_key(&key))?;
                    let (over, after) = ReceivingHost::run(self, assembly, &taken, end)?;
                    assembly = after;
                    match over {
                        BroadcastEnd::Cast(extras) => {
                            self.finish(&mut assembly, extras, figures)?
                        }
                        BroadcastEnd::Gone => {
                            assembly.appear();
                            return Ok(());
                        }
                        // The sender knows why, and whether it goes on later.
                        BroadcastEnd::Out => {}
                        BroadcastEnd::Parked => self.resume(&mut assembly)?,
                        BroadcastEnd::Aborted => {
                            bail!("the broadcast was ended before all of it was everywhere")
                        }
                    }
                }
                ToReceiver::Resume => self.resume(&mut assembly)?,
                ToReceiver::Finish(extras) => self.finish(&mut assembly, extras, figures)?,
                ToReceiver::Leave => return Ok(()),
                ToReceiver::Alive => {}
                ToReceiver::Task(_) | ToReceiver::Entries(_) | ToReceiver::Survey => {
                    bail!("the sender began again")
                }
            }
        }
        Ok(())
    }

    /// Takes the task and the manifest, and tells what is there; nothing when the sender leaves.
    fn begin(
        &mut self,
        destination: &Destination,
        figures: &ReceiverFigures,
    ) -> Result<Option<Assembly>> {
        let Some(ToReceiver::Task(task)) = self.inbox.next()? else { return Ok(None) };
        figures.begin(task.access);
        if task.removal.is_some()
            && matches!(destination, Destination::Beneath(_, RemovalRight::Denied))
        {
            bail!("`clearway cast serve` runs with --no-delete here; cast without --delete");
        }
        let target = self.target(&task, destination)?;
        let Some(entries) = self.entries()? else { return Ok(None) };
        let mut assembly = Assembly::new(target, entries, Arc::clone(&figures.taken));
        assembly.is_over = self.inbox.is_gone.clone();
        assembly.replaced_below =
            task.removal.as_ref().map_or_else(Vec::new, |it| it.below.clone());
        self.removal = task.removal;
        let has = assembly.survey(task.check);
        let places = assembly.places().context("the target")?;
        self.status.send(&FromReceiver::Has { has, why: assembly.failures(), places })?;
        Ok(Some(assembly))
    }

    /// Returns the directory where everything goes.
    fn target(&self, task: &CastTask, destination: &Destination) -> Result<TargetDirectory> {
        let number = task.number.to_string();
        let into = task.into.as_ref().map(|into| expand(&into.0, &self.host, &number));
        match destination {
            Destination::Anywhere => {
                let into = into.unwrap_or_else(|| b".".to_vec());
                let into = Path::new(std::ffi::OsStr::from_bytes(&into));
                TargetDirectory::open_for(into, task.access)
            }
            Destination::Beneath(root, _) => {
                let into = String::from_utf8(into.unwrap_or_default())
                    .context("a directory that is no text")?;
                let below = RelativePath::read(&into);
                let below = below.with_context(|| {
                    format!("`{into}` is not below the directory that `clearway cast serve` has; say `sub/directory`")
                })?;
                TargetDirectory::beneath(root, &below, task.access)
            }
        }
    }

    /// Returns the whole manifest.
    fn entries(&self) -> Result<Option<Vec<ManifestEntry>>> {
        let mut entries = Vec::new();
        loop {
            match self.inbox.next()? {
                Some(ToReceiver::Entries(more)) => entries.extend(more),
                Some(ToReceiver::Survey) => break,
                Some(ToReceiver::Leave) | None => return Ok(None),
                Some(_) => bail!("the sender does not tell what there is"),
            }
            if entries.len() > ENTRIES_MAX {
                bail!("more than {ENTRIES_MAX} entries");
            }
        }
        if let Some(entry) = entries.iter().find(|entry| !entry.is_sound()) {
            bail!("{} cannot be what the sender says", entry.path);
        }
        Ok(Some(entries))
    }

    /// Takes more hashes; with the last one of a file it is compared.
    fn compare(
        &mut self,
        assembly: &mut Assembly,
        (file, hashes): &mut (u32, Vec<BlockHash>),
        (of, more): (u32, &str),
    ) -> Result<()> {
        if of != *file {
            hashes.clear();
            *file = of;
        }
        let bytes = bytes_of(more).context("hashes that are none")?;
        let (more, rest) = bytes.as_chunks::<32>();
        hashes.extend_from_slice(more);
        let blocks = assembly.blocks(of).context("hashes of no file")? as usize;
        if !rest.is_empty() || hashes.len() > blocks {
            bail!("more hashes than a file has blocks");
        }
        if hashes.len() == blocks {
            let runs = assembly.compare(of, hashes);
            hashes.clear();
            self.status.send(&FromReceiver::Lacks { file: of, runs })?;
        }
        Ok(())
    }

    /// Tells what is still missing after the others went on without this one.
    fn resume(&mut self, assembly: &mut Assembly) -> Result<()> {
        let (has, lacks) = assembly.interrupt();
        let places = assembly.places().context("the target")?;
        self.status.send(&FromReceiver::Has { has, why: assembly.failures(), places })?;
        for (file, runs) in lacks {
            self.status.send(&FromReceiver::Lacks { file, runs })?;
        }
        self.status.send(&FromReceiver::Compared)
    }

    fn finish(
        &mut self,
        assembly: &mut Assembly,
        extras: ExtrasPolicy,
        figures: &ReceiverFigures,
    ) -> Result<()> {
        assembly.removal = self.removal.take().filter(|_| extras == ExtrasPolicy::Remove);
        let outcome: ReceiverOutcome = assembly.finish();
        figures.end(&outcome);
        self.status.send(&FromReceiver::Outcome(outcome))
    }
}

/// Expands `%h` to the host, `%r` to the number of the receiver, `%%` to a percent sign.
fn expand(pattern: &[u8], host: &str, number: &str) -> Vec<u8> {
    let mut path = Vec::new();
    let mut rest = pattern.iter().copied();
    while let Some(byte) = rest.next() {
        match (byte, rest.clone().next()) {
            (b'%', Some(b'h')) => path.extend(host.bytes()),
            (b'%', Some(b'r')) => path.extend(number.bytes()),
            (b'%', Some(b'%')) => path.push(b'%'),
            _ => {
                path.push(byte);
                continue;
            }
        }
        rest.next();
    }
    path
}

/// How a broadcast ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BroadcastEnd {
    /// The sender says that all was cast.
    Cast(ExtrasPolicy),
    /// The sender is gone.
    Gone,
    /// The others went on without this one.
    Out,
    /// They did, and the sender continues with it.
    Parked,
    Aborted,
}

/// What comes back from the thread that writes.
enum WriteResult {
    /// Memory of an object.
    Buffer(Vec<u8>),
    /// A short object.
    Short(u32),
}

/// An object on its way to the thread that writes.
type WriteJob = (Vec<u8>, Option<u32>);

/// The thread that writes.
struct WriterThread {
    work: Sender<WriteJob>,
    done: Receiver<WriteResult>,
    thread: JoinHandle<Assembly>,
}

impl WriterThread {
    fn start(mut assembly: Assembly, bell: Arc<WakeSignal>) -> Result<Self> {
        let (work, to_do) = channel::<WriteJob>();
        let (to, done) = channel();
        let write = move || {
            for (object, short) in to_do {
                assembly.take(&object);
                // Nobody waits for memory any more at the end.
                let _ = to.send(short.map_or(WriteResult::Buffer(object), WriteResult::Short));
                bell.raise();
            }
            assembly
        };
        let thread = thread::Builder::new()
            .name("writer".to_owned())
            .spawn(write)
            .context("a thread that writes")?;
        Ok(Self { work, done, thread })
    }
}

/// What is around the engine.
struct ReceivingHost<'s> {
    session: &'s mut ReceiverSession,
    writer: WriterThread,
    taken: Arc<AtomicU64>,
    region: RegionId,
    /// Places that nobody uses.
    idle: Vec<usize>,
    /// Places that were given, in the order in which objects take them.
    given: VecDeque<usize>,
    /// Objects that lie in places.
    lying: VecDeque<(u32, usize)>,
    buffers: Vec<Vec<u8>>,
    /// Events of the engine in this step.
    events: Vec<BroadcastEvent>,
    /// The engine was asked for something that leaves with its next step.
    stirred: bool,
    tell_at: LocalNs,
    last_reported: u64,
    silence: SilenceCount,
    listen_at: LocalNs,
    over: Option<BroadcastEnd>,
}

impl<'s> ReceivingHost<'s> {
    fn run(
        session: &'s mut ReceiverSession,
        assembly: Assembly,
        taken: &Arc<AtomicU64>,
        mut end: MemberEnd,
    ) -> Result<(BroadcastEnd, Assembly)> {
        let (region, mut driver) = end.start()?;
        let bell = session.inbox.bell.clone();
        let writer = WriterThread::start(assembly, bell.clone())?;
        let mut broadcast = Self {
            session,
            writer,
            taken: taken.clone(),
            region,
            idle: (0..PLACES).collect(),
            given: VecDeque::new(),
            lying: VecDeque::new(),
            buffers: (0..PLACES).map(|_| Vec::with_capacity(OBJECT_MAX)).collect(),
            events: Vec::new(),
            stirred: false,
            tell_at: LocalNs(0),
            last_reported: 0,
            silence: SilenceCount::default(),
            listen_at: end.wire.now() + LISTEN_EVERY,
            over: None,
        };
        broadcast.offer(end.wire.now(), &mut driver);
        progress::run(&mut driver, &mut end.wire, &[bell.as_fd()], &mut broadcast);
        let over = broadcast.over.unwrap_or(BroadcastEnd::Gone);
        let WriterThread { work, thread, .. } = broadcast.writer;
        drop(work);
        Ok((over, thread.join().map_err(|_| anyhow!("the thread that writes ended by a fault"))?))
    }

    /// Offers places as long as there is memory for what comes to them.
    fn offer(&mut self, now: LocalNs, driver: &mut Driver<BroadcastNode>) {
        while self.given.len() < self.buffers.len()
            && let Some(place) = self.idle.pop()
        {
            self.given.push_back(place);
            driver.command(
                now,
                BroadcastCommand::Place { into: place_of(self.region, place, OBJECT_MAX) },
            );
            self.stirred = true;
        }
    }

    /// Takes an object out of the engine's memory.
    fn take(&mut self, object: u32, at: Span, wire: &dyn Wire) {
        let bytes =
            wire.region(at.region).and_then(|region| Some(&region[at.range_in(region.len())?]));
        let is_short = at.region != self.region;
        let mut copy = if is_short { Vec::new() } else { self.buffers.pop().unwrap_or_default() };
        copy.clear();
        copy.extend_from_slice(bytes.unwrap_or_default());
        if !is_short {
            let place = self.given.pop_front();
            self.lying.extend(place.map(|place| (object, place)));
        }
        // A writer that ended by a fault is found out at the end.
        let _ = self.writer.work.send((copy, is_short.then_some(object)));
    }

    /// Handles events of the engine, in order.
    fn handle(&mut self, event: BroadcastEvent, wire: &dyn Wire) {
        match event {
            BroadcastEvent::Received { object, at } => self.take(object, at, wire),
            BroadcastEvent::Stable { object, .. } => {
                if let Some((_, place)) =
                    self.lying.front().copied().filter(|(number, _)| *number == object)
                {
                    self.lying.pop_front();
                    self.idle.push(place);
                }
            }
            BroadcastEvent::Out => self.over = Some(BroadcastEnd::Out),
            BroadcastEvent::Aborted { .. }
            | BroadcastEvent::TooLong { .. }
            | BroadcastEvent::Refused { .. } => self.over = Some(BroadcastEnd::Aborted),
            _ => {}
        }
    }
}

impl progress::EngineHost<BroadcastNode> for ReceivingHost<'_> {
    fn event(&mut self, event: BroadcastEvent) {
        self.events.push(event);
    }

    fn control(&mut self, _which: usize, now: LocalNs, driver: &mut Driver<BroadcastNode>) {
        self.session.inbox.bell.clear();
        loop {
            match self.session.inbox.waiting() {
                PartialMessage::Nothing => break,
                PartialMessage::Message(ToReceiver::Finish(extras)) => {
                    self.over = Some(BroadcastEnd::Cast(extras))
                }
                PartialMessage::Message(ToReceiver::Resume) => {
                    self.over = Some(BroadcastEnd::Parked);
                    break;
                }
                PartialMessage::Message(_) | PartialMessage::Gone => {
                    self.over = self.over.or(Some(BroadcastEnd::Gone));
                    break;
                }
            }
        }
        for written in self.writer.done.try_iter() {
            match written {
                WriteResult::Buffer(buffer) => self.buffers.push(buffer),
                WriteResult::Short(object) => {
                    driver.command(now, BroadcastCommand::Release { object });
                    self.stirred = true;
                }
            }
        }
    }

    fn after_step(
        &mut self,
        now: LocalNs,
        driver: &mut Driver<BroadcastNode>,
        wire: &mut dyn Wire,
    ) -> ControlFlow<(), Option<LocalNs>> {
        for event in std::mem::take(&mut self.events) {
            self.handle(event, wire);
        }
        self.offer(now, driver);
        if now >= self.listen_at {
            self.listen_at = now + LISTEN_EVERY;
            if self.silence.is_long(self.session.inbox.received()) {
                self.over = self.over.or(Some(BroadcastEnd::Gone));
            }
        }
        if self.over.is_some() {
            return ControlFlow::Break(());
        }
        let taken = self.taken.load(Ordering::Relaxed);
        if now >= self.tell_at && taken != self.last_reported {
            (self.last_reported, self.tell_at) = (taken, now + TELL_EVERY);
            if self.session.status.send(&FromReceiver::Progress { bytes: taken }).is_err() {
                self.over = Some(BroadcastEnd::Gone);
                return ControlFlow::Break(());
            }
        }
        let next = if std::mem::take(&mut self.stirred) { now } else { self.listen_at };
        ControlFlow::Continue(Some(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expand__puts_hosts_and_numbers_into_patterns() {
        let expanded =
            |pattern: &str| String::from_utf8(expand(pattern.as_bytes(), "n1", "7")).expect("text");
        assert_eq!(expanded("/scratch/%h/%r"), "/scratch/n1/7");
        assert_eq!(expanded("100%%/%x/%"), "100%/%x/%");
    }
}
