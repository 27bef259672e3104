//! The sender's connections to receivers: state of each, messages both ways, losses.
//!
//! # Invariants
//! I1. What goes wrong with one receiver is that receiver's failure; the others are waited for.
//! I2. No connection is written here: a receiver that reads nothing delays the others until it
//!     has sent nothing for [`SILENCE`].

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clearway_runtime::door::{DoorError, StreamEnds};
use clearway_runtime::launch::escaped;
use clearway_runtime::wake_signal::WakeSignal;

use super::link::{MessageReceiver, MessageSender, call};
use super::message::{
    CastTask, EXTRAS_MAX, FromReceiver, MemberAddress, REPORTED_MAX, ReceiverOutcome, ToReceiver,
};
use super::metrics::CastMetrics;
use super::outbox::{SendQueue, SharedMessage};
use super::path::PathText;
use super::plan::{Inventory, NumberRuns};
use super::preview::MissingSum;
use super::target::DEPTH_MAX;
use crate::run::interrupt::Interrupt;

/// How often a wait looks whether the user wants an end: hardly to be noticed by a person.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long a receiver may send nothing: six times its keep-alive interval.
const SILENCE: Duration = Duration::from_secs(30);
/// How long a receiver may take to connect: longer than ssh tries.
const ARRIVAL: Duration = Duration::from_secs(60);

/// How often a sender without messages sends a keep-alive.
const ALIVE_EVERY: Duration = Duration::from_secs(5);
/// A time between two looks at receivers that nobody spends working: this process was stopped, or
/// its machine asleep.
const ABSENCE: Duration = Duration::from_secs(5);

/// Bytes that may wait for a receiver before no more are made for it: half the longest message,
/// some seconds of a slow network.
const WAITING_MAX: usize = 32 << 20;
/// Events that wait to be handled; receivers' threads block when there are more.
const EVENTS_MAX: usize = 2;
/// Characters of a sentence of a receiver.
const SENTENCE_MAX: usize = 500;
/// How long the last messages may take to be written; they mostly fit into the socket's buffer.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a sender waits until it tries again to get a place at a receiver, in ms: longer each
/// time, six seconds in all.
const PAUSES_MS: [u64; 6] = [100, 200, 400, 800, 1500, 3000];

/// A receiver that is expected.
pub(super) struct ExpectedReceiver {
    /// For people.
    pub(super) name: String,
    /// The directory there.
    pub(super) into: Option<PathText>,
    pub(super) connect: Connector,
}

/// Connects: both directions, and the addresses of both ends, this one first, where there are some.
pub(super) enum Connector {
    Once(Box<dyn FnOnce() -> Result<ReceiverConnection> + Send>),
    /// As often as the other end ends the connection before it has heard the proof.
    Again(Box<dyn Fn() -> Result<ReceiverConnection> + Send>),
}

/// A connection to a receiver.
pub(super) struct ReceiverConnection {
    pub(super) ends: StreamEnds,
    pub(super) addresses: Option<[Ipv4Addr; 2]>,
}

/// A receiver.
pub(super) struct CastReceiver {
    pub(super) name: String,
    task: CastTask,
    outbox: Option<SendQueue>,
    /// Where it runs, once it came.
    pub(super) boot: Option<String>,
    /// Addresses of both ends, this one first.
    pub(super) addresses: Option<[Ipv4Addr; 2]>,
    pub(super) has: Option<Inventory>,
    /// What tells its target, and the directories that it is in, from others of its machine.
    pub(super) places: Vec<(u64, u64)>,
    pub(super) lacks: BTreeMap<u32, NumberRuns>,
    pub(super) has_compared: bool,
    /// What it would be sent, where nothing is.
    pub(super) missing: Option<MissingSum>,
    /// It lacks something that is cast.
    pub(super) lacks_some: bool,
    /// Its rank in the broadcast, if it takes part.
    pub(super) rank: Option<u32>,
    pub(super) place: Option<MemberAddress>,
    pub(super) is_open: bool,
    /// Bytes that it has taken.
    pub(super) taken: u64,
    pub(super) outcome: Option<ReceiverOutcome>,
    pub(super) ended: Option<Instant>,
    /// When its last message came, or the connection was begun.
    last_message: Instant,
    /// It takes less than a sixteenth of what most do, and gets the rest when they have everything.
    pub(super) is_parked: bool,
    pub(super) was_parked: bool,
    /// Why it does not take part any more.
    pub(super) lost: Option<String>,
    /// It said so itself before it compared anything: a directory that cannot be, a missing right.
    pub(super) has_refused: bool,
    pub(super) why: Vec<(u32, String)>,
}

impl CastReceiver {
    /// Returns whether it still is there.
    pub(super) fn is_here(&self) -> bool {
        self.lost.is_none()
    }

    /// Returns the bytes that it has taken, as far as it has said.
    pub(super) fn bytes(&self) -> u64 {
        self.outcome.as_ref().map_or(0, |outcome| outcome.written).max(self.taken)
    }

    /// Sends `message`; a receiver whose connection is broken is lost.
    pub(super) fn send(&mut self, message: &ToReceiver) {
        match SharedMessage::from_message(message) {
            Ok(message) => self.post(&message),
            Err(error) => self.lose(&error.to_string()),
        }
    }

    /// Sends an encoded message.
    pub(super) fn post(&mut self, message: &SharedMessage) {
        if let Some(Err(error)) = self.outbox.as_ref().map(|outbox| outbox.put(message)) {
            self.lose(&error.to_string());
        }
    }

    pub(super) fn lose(&mut self, why: &str) {
        self.lost.get_or_insert_with(|| why.to_owned());
        self.ended.get_or_insert_with(Instant::now);
    }

    /// Handles one of its messages.
    fn handle(&mut self, message: FromReceiver) {
        self.last_message = Instant::now();
        match message {
            FromReceiver::Here { boot, reached, .. } => {
                self.boot = Some(boot);
                self.addresses = self.addresses.or(reached);
            }
            FromReceiver::Has { has, mut why, mut places } => {
                places.truncate(DEPTH_MAX);
                why.truncate(REPORTED_MAX);
                why.iter_mut().for_each(|(_, why)| *why = tamed(why));
                (self.has, self.why, self.places) = (Some(has), why, places);
            }
            FromReceiver::Lacks { file, runs } => {
                self.lacks.insert(file, runs);
            }
            FromReceiver::Compared => self.has_compared = true,
            FromReceiver::Alive => {}
            FromReceiver::Bound(place) => self.place = Some(place),
            FromReceiver::Opened => self.is_open = true,
            FromReceiver::Progress { bytes } => self.taken = bytes,
            FromReceiver::Outcome(mut outcome) => {
                outcome.why.truncate(REPORTED_MAX);
                for (path, why) in &mut outcome.why {
                    path.0.truncate(SENTENCE_MAX);
                    *why = tamed(why);
                }
                let extras = &mut outcome.extras.paths;
                extras.truncate(EXTRAS_MAX);
                extras.iter_mut().for_each(|path| path.0.truncate(SENTENCE_MAX));
                outcome.notes.truncate(REPORTED_MAX);
                outcome.notes.iter_mut().for_each(|note| *note = tamed(note));
                self.outcome = Some(outcome);
                self.ended.get_or_insert_with(Instant::now);
            }
            FromReceiver::Failed(why) => {
                self.has_refused |= self.is_here() && self.has.is_none();
                self.lose(&tamed(&why));
            }
        }
    }
}

/// From the thread that listens to a receiver.
enum ReceiverEvent {
    Came(SendQueue, Option<[Ipv4Addr; 2]>),
    Said(FromReceiver),
    Gone(String),
}

/// All receivers.
pub(super) struct CastReceivers {
    pub(super) all: Vec<CastReceiver>,
    events: mpsc::Receiver<(usize, ReceiverEvent)>,
    pub(super) bell: Arc<WakeSignal>,
    interrupt: Interrupt,
    /// When receivers were looked at last.
    checked: Instant,
    metrics: CastMetrics,
}

impl CastReceivers {
    /// Connects to all of `contacts`, each of which gets `task` with its own number and directory.
    ///
    /// # Errors
    /// No thread.
    pub(super) fn call(
        contacts: Vec<ExpectedReceiver>,
        task: &CastTask,
        session: u64,
        secret: &[u8],
        interrupt: Interrupt,
        metrics: CastMetrics,
    ) -> Result<Self> {
        let bell = Arc::new(WakeSignal::new().context("a way to wake a thread")?);
        let (to, events) = sync_channel(EVENTS_MAX);
        let mut all = Vec::new();
        for (number, contact) in contacts.into_iter().enumerate() {
            let ExpectedReceiver { name, into, connect } = contact;
            let task = CastTask {
                number: number as u32,
                into: into.or_else(|| task.into.clone()),
                ..task.clone()
            };
            all.push(CastReceiver {
                name,
                task,
                outbox: None,
                boot: None,
                addresses: None,
                has: None,
                places: Vec::new(),
                lacks: BTreeMap::new(),
                has_compared: false,
                missing: None,
                lacks_some: false,
                rank: None,
                place: None,
                is_open: false,
                taken: 0,
                outcome: None,
                ended: None,
                last_message: Instant::now(),
                is_parked: false,
                was_parked: false,
                lost: None,
                has_refused: false,
                why: Vec::new(),
            });
            let (to, secret, bell) = (to.clone(), secret.to_vec(), bell.clone());
            let listen = move || {
                let post = |event| {
                    let is_taken = to.send((number, event)).is_ok();
                    bell.raise();
                    is_taken
                };
                let why = match listen(connect, session, &secret, &post) {
                    Ok(()) => "its connection ended".to_owned(),
                    Err(error) => format!("{error:#}"),
                };
                post(ReceiverEvent::Gone(why));
            };
            thread::Builder::new()
                .name("receiver".to_owned())
                .spawn(listen)
                .context("a thread for a receiver")?;
        }
        metrics.note_receivers(&all);
        Ok(Self { all, events, bell, interrupt, checked: Instant::now(), metrics })
    }

    /// Fails when the user wishes to stop. A receiver that has been silent for too long is lost
    /// from here on, unless this process was away itself.
    ///
    /// # Errors
    /// The user wants an end; this process was away for so long that receivers went on without it.
    pub(super) fn check(&mut self) -> Result<()> {
        let absent = std::mem::replace(&mut self.checked, Instant::now()).elapsed();
        if absent > SILENCE {
            bail!(
                "this process was stopped for {} s, longer than receivers wait ({} s); repeat the cast: it sends only what is missing",
                absent.as_secs(),
                SILENCE.as_secs()
            );
        }
        if absent > ABSENCE {
            // Nobody could be heard meanwhile.
            self.all.iter_mut().for_each(|peer| peer.last_message += absent);
        }
        // What was said while this thread was busy counts.
        self.look();
        for peer in self.all.iter_mut().filter(|peer| peer.is_here() && peer.outcome.is_none()) {
            let most = if peer.boot.is_some() { SILENCE } else { ARRIVAL };
            if peer.last_message.elapsed() > most {
                peer.lose(&format!("it has said nothing for {} s", most.as_secs()));
            }
        }
        self.metrics.note_receivers(&self.all);
        self.interrupt.check()
    }

    fn take(&mut self, number: usize, event: ReceiverEvent) {
        let Some(peer) = self.all.get_mut(number) else { return };
        match event {
            ReceiverEvent::Came(outbox, addresses) => {
                (peer.outbox, peer.addresses) = (Some(outbox), addresses)
            }
            ReceiverEvent::Said(message) => peer.handle(message),
            // A receiver that has reported its outcome may go.
            ReceiverEvent::Gone(_) if peer.outcome.is_some() => {}
            ReceiverEvent::Gone(why) => peer.lose(&why),
        }
    }

    /// Handles the messages that have come, without waiting.
    pub(super) fn look(&mut self) {
        self.bell.clear();
        while let Ok((number, event)) = self.events.try_recv() {
            self.take(number, event);
        }
    }

    /// Waits until `is_done` is true of everybody who is there; `watch` is called some ten times a
    /// second.
    ///
    /// # Errors
    /// The user wants an end.
    pub(super) fn gather(
        &mut self,
        is_done: &dyn Fn(&CastReceiver) -> bool,
        watch: &mut dyn FnMut(&[CastReceiver]),
    ) -> Result<()> {
        let mut looked = Instant::now();
        while self.all.iter().any(|peer| peer.is_here() && !is_done(peer)) {
            match self.events.recv_timeout(LOOK_EVERY) {
                Ok((number, event)) => self.take(number, event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if looked.elapsed() >= LOOK_EVERY {
                looked = Instant::now();
                self.check()?;
                watch(&self.all);
            }
        }
        self.look();
        Ok(())
    }

    /// Returns the receivers that are not lost.
    pub(super) fn here(&mut self) -> impl Iterator<Item = &mut CastReceiver> {
        self.all.iter_mut().filter(|peer| peer.is_here())
    }

    /// Sends each receiver its task.
    pub(super) fn give_tasks(&mut self) {
        for peer in self.here() {
            let task = ToReceiver::Task(peer.task.clone());
            peer.send(&task);
        }
    }

    /// Waits until no receiver has more than [`WAITING_MAX`] unsent bytes.
    ///
    /// # Errors
    /// The user wants an end.
    pub(super) fn keep_up(&mut self) -> Result<()> {
        let keeps_up = |peer: &CastReceiver| {
            peer.outbox.as_ref().is_none_or(|outbox| outbox.waiting() < WAITING_MAX)
        };
        self.gather(&keeps_up, &mut |_| {})
    }

    /// Sends `message` to all of whom `is_meant` is true.
    ///
    /// # Errors
    /// It cannot be written down.
    pub(super) fn send_to(
        &mut self,
        is_meant: &dyn Fn(&CastReceiver) -> bool,
        message: &ToReceiver,
    ) -> Result<()> {
        let message = SharedMessage::from_message(message)?;
        self.here().filter(|peer| is_meant(peer)).for_each(|peer| peer.post(&message));
        Ok(())
    }

    /// Sends `message` to all that are connected.
    ///
    /// # Errors
    /// It cannot be written down.
    pub(super) fn send(&mut self, message: &ToReceiver) -> Result<()> {
        self.send_to(&|_| true, message)
    }

    /// Ends all connections in order.
    ///
    /// # Errors
    /// It cannot be written down.
    pub(super) fn leave(&mut self) -> Result<()> {
        self.send(&ToReceiver::Leave)?;
        let until = Instant::now() + CLOSE_TIMEOUT;
        self.here().filter_map(|peer| peer.outbox.take()).for_each(|outbox| outbox.close(until));
        self.metrics.note_receivers(&self.all);
        Ok(())
    }
}

/// Returns a sentence of a receiver, no longer than one and without what would steer a terminal.
fn tamed(sentence: &str) -> String {
    escaped(&sentence.chars().take(SENTENCE_MAX).collect::<String>())
}

/// What is at the other end of a connection that shows the secret.
type AuthenticatedPeer = (Option<[Ipv4Addr; 2]>, (MessageSender, MessageReceiver));

fn meet(connection: ReceiverConnection, session: u64, secret: &[u8]) -> Result<AuthenticatedPeer> {
    let ReceiverConnection { ends, addresses } = connection;
    Ok((addresses, call(ends, session, secret)?))
}

/// Connects, again and again while the other end shows out who has not shown the secret, or is
/// full.
fn connect_with_retries(
    connect: &dyn Fn() -> Result<ReceiverConnection>,
    session: u64,
    secret: &[u8],
) -> Result<AuthenticatedPeer> {
    let mut pauses = PAUSES_MS.into_iter();
    loop {
        match meet(connect()?, session, secret) {
            Err(error) if is_crowded(&error) => match pauses.next() {
                Some(pause) => thread::sleep(Duration::from_millis(pause)),
                None => {
                    let tries = PAUSES_MS.len() + 1;
                    return Err(error.context(format!(
                        "it ended {tries} connections before this sender had shown its key: others hold all places, or it is no \
                         `clearway cast serve` of this version"
                    )));
                }
            },
            other => return other,
        }
    }
}

/// Returns whether the other end may have shown this one out to make room, or has no room.
fn is_crowded(error: &anyhow::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    error.chain().any(|cause| {
        let kind = cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        let is_full = matches!(cause.downcast_ref::<DoorError>(), Some(DoorError::Full));
        is_full || matches!(kind, Some(BrokenPipe | ConnectionReset | UnexpectedEof))
    })
}

/// Connects, and passes on what the other end says until it ends.
fn listen(
    connect: Connector,
    session: u64,
    secret: &[u8],
    post: &dyn Fn(ReceiverEvent) -> bool,
) -> Result<()> {
    let (addresses, (speaker, mut listener)) = match connect {
        Connector::Once(connect) => meet(connect()?, session, secret)?,
        Connector::Again(connect) => connect_with_retries(&*connect, session, secret)?,
    };
    let mut is_wanted =
        post(ReceiverEvent::Came(SendQueue::start(speaker, ALIVE_EVERY)?, addresses));
    while is_wanted && let Some(message) = listener.next()? {
        is_wanted = post(ReceiverEvent::Said(message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::mechanism::cast::link::answer;
    use crate::mechanism::cast::message::{HashPolicy, TargetAccess};

    const SECRET: &[u8] = b"sixteen bytes at least";

    /// Creates peers at the other ends of `streams`.
    fn peers(streams: &[UnixStream]) -> CastReceivers {
        let contact = |stream: &UnixStream| {
            let both = stream
                .try_clone()
                .and_then(|other| Ok((stream.try_clone()?, other)))
                .expect("two ends");
            let connect = move || {
                Ok(ReceiverConnection {
                    ends: (Box::new(both.0), Box::new(both.1)),
                    addresses: None,
                })
            };
            ExpectedReceiver {
                name: "n".to_owned(),
                into: None,
                connect: Connector::Once(Box::new(connect)),
            }
        };
        let task = CastTask {
            number: 0,
            into: None,
            check: HashPolicy::Times,
            access: TargetAccess::Change,
            removal: None,
        };
        let interrupt = Interrupt::listen().expect("signals");
        CastReceivers::call(
            streams.iter().map(contact).collect(),
            &task,
            7,
            SECRET,
            interrupt,
            CastMetrics::default(),
        )
        .expect("threads")
    }

    fn here() -> FromReceiver {
        FromReceiver::Here { host: String::new(), boot: String::new(), reached: None }
    }

    /// Returns a time so long ago that a receiver that last said something then is lost now; none
    /// on a machine that has just started.
    fn long_ago() -> Option<Instant> {
        Instant::now().checked_sub(ARRIVAL + Duration::from_secs(1))
    }

    #[test]
    fn check__who_says_nothing_for_too_long_is_lost_and_the_others_are_not() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let mut peers = peers(&[ours.try_clone().expect("the same"), ours]);
        let Some(long_ago) = long_ago() else { return };
        peers.all[0].last_message = long_ago;
        peers.check().expect("no interrupt");
        assert_eq!(peers.all[0].lost.as_deref(), Some("it has said nothing for 60 s"));
        assert!(peers.all[1].is_here());
        peers.all[1].handle(here());
        peers.all[1].last_message = long_ago;
        peers.all[1].handle(FromReceiver::Alive);
        peers.check().expect("no interrupt");
        assert!(peers.all[1].is_here(), "it said so");
        drop(theirs);
    }

    #[test]
    fn check__who_was_away_blames_itself() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let mut peers = peers(&[ours]);
        let Some(long_ago) = long_ago() else { return };
        peers.all[0].last_message = long_ago;
        peers.checked = Instant::now().checked_sub(SILENCE / 2).expect("shorter");
        peers.check().expect("receivers are waited for");
        assert!(peers.all[0].is_here(), "nobody could hear it");
        peers.checked = long_ago;
        let error = peers.check().expect_err("nobody is there any more").to_string();
        assert!(error.starts_with("this process was stopped for "), "{error}");
        assert!(peers.all[0].is_here());
        drop(theirs);
    }

    #[test]
    fn send__a_receiver_that_reads_nothing_delays_no_other_and_is_lost() {
        let pairs: [_; 2] = std::array::from_fn(|_| UnixStream::pair().expect("a pair"));
        let [(ours, stopped), (also_ours, theirs)] = pairs;
        let answered = |stream: UnixStream| {
            thread::spawn(move || {
                let ends: StreamEnds =
                    (Box::new(stream.try_clone().expect("two ends")), Box::new(stream));
                let mut link = answer(ends, SECRET).expect("agreed").expect("called");
                link.0.send(&here()).expect("said");
                link
            })
        };
        let (stopped, listens) = (answered(stopped), answered(theirs));
        let mut peers = peers(&[ours, also_ours]);
        peers.gather(&|peer| peer.boot.is_some(), &mut |_| {}).expect("no interrupt");
        let ends = stopped.join().expect("no panic");
        let hears = thread::spawn(move || {
            let mut link = listens.join().expect("no panic");
            let mut hashes = 0;
            while let Some(ToReceiver::Hashes { hashes: more, .. }) =
                link.1.next().expect("in order")
            {
                hashes += more.len();
            }
            link.0.send(&FromReceiver::Compared).expect("said");
            (link, hashes)
        });
        // More than sockets take, and than may wait.
        let (message, count) = (1 << 20, WAITING_MAX >> 19);
        for _ in 0..count {
            peers.send(&ToReceiver::Hashes { file: 0, hashes: "0".repeat(message) }).expect("said");
        }
        peers.send(&ToReceiver::Survey).expect("said");
        let (link, heard) = hears.join().expect("no panic");
        assert_eq!(heard, message * count);
        let Some(long_ago) = long_ago() else { return };
        peers.all[0].last_message = long_ago;
        peers.gather(&|peer| peer.has_compared, &mut |_| {}).expect("no interrupt");
        peers.keep_up().expect("no interrupt");
        assert_eq!(peers.all[0].lost.as_deref(), Some("it has said nothing for 30 s"));
        assert!(peers.all[1].is_here());
        drop((ends, link));
    }

    #[test]
    fn handle__what_a_receiver_sends_is_bounded_and_steers_no_terminal() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        theirs.set_write_timeout(Some(Duration::from_secs(1))).expect("set");
        let mut all = peers(&[ours]);
        let ends: StreamEnds = (Box::new(theirs.try_clone().expect("two ends")), Box::new(theirs));
        let mut link = answer(ends, SECRET).expect("agreed").expect("called");
        let why = "\u{1b}[2J".repeat(1 << 14);
        let mut say = |_: &u32| {
            let message = FromReceiver::Has {
                has: Inventory::default(),
                why: vec![(0, why.clone()); 4],
                places: vec![(0, 0)],
            };
            link.0.send(&message).is_ok()
        };
        let said = (0..40).take_while(|number| say(number)).count();
        // Those that wait, one that is about to, and what sockets hold.
        assert!(said < 20, "{said} messages are kept of one that nobody hears");
        all.gather(&|peer| peer.has.is_some(), &mut |_| {}).expect("no interrupt");
        let reported = &all.all[0].why[0].1;
        assert!(
            reported.starts_with("\\u{1b}[2J") && reported.len() < 10 * SENTENCE_MAX,
            "{reported}"
        );
    }
}
