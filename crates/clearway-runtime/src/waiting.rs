//! How a thread waits for its wire: spinning while processors are free, asleep otherwise.
//!
//! # Model
//! Waking a sleeping thread costs 15 to 30 us on a virtual machine, spinning costs a processor. So
//! the wire is polled for [`SPIN_MAX`] first, if a processor is free for that, and then the thread
//! sleeps until a descriptor is ready. A processor is free when the machine has no more runnable
//! tasks than processors, and this thread did not itself wait for one: the first says that spinning
//! takes nothing from others, the second also holds where affinity or a container's limit leaves
//! this thread fewer processors than the machine has.
//!
//! Where none is free, a wire whose messages cost less than a wake-up may *yield* instead: as long
//! as the processor comes back soon, those who had it meanwhile were ranks that wait as well, and
//! one of them sent what is waited for. When it was kept for long, others compute, and who sleeps
//! is scheduled before who yields.
//!
//! # Source
//! `/proc/loadavg`, fourth field (`proc(5)`); `/proc/thread-self/schedstat`, second field
//! (`sched-stats` of the kernel).
//!
//! # Invariants
//! I1. A wait returns by `until`, up to the system's delay in scheduling this thread.
//! I2. Extra descriptors are looked at no less often than every [`GLANCE`], however busy the wire
//!     is.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use clearway_proto::base::{LocalNs, Nanos};
use clearway_proto::wire::Wire;
use rustix::event::{PollFd, PollFlags, Timespec, epoll};

use crate::noise::ThreadSchedule;
use crate::{clock, noise};

/// Longest spin: a little more than a wake-up costs, so that waiting costs at most about twice the
/// better choice.
pub const SPIN_MAX: Nanos = Nanos::from_micros(50);
/// A processor that was yielded for longer than this went to somebody who computes: hundreds of
/// ranks that look at their wires take turns within it (1 us each, measured), and the slice of one
/// who computes takes milliseconds.
const YIELD_LONG: Nanos = Nanos::from_micros(400);
/// How long no processor is yielded after that. With eight ranks on two processors, while
/// compilers ran, an allreduce took 31 us in the median with this, and 60 with 100 ms as well as
/// without yielding (measured).
const YIELD_AGAIN: Nanos = Nanos::from_micros(500);
/// How often extra descriptors are looked at while the wire keeps the thread busy.
pub const GLANCE: Nanos = Nanos::from_millis(1);
/// How often the processors' load is looked at. Reading two small files takes about 10 us, a
/// thousandth of this.
const LOOK: Nanos = Nanos::from_millis(10);
/// Waiting for a processor for more than this share of the time means that others want it.
const DELAYED_SHARE: u64 = 20;
/// Extra descriptors that can be distinguished.
const EXTRA_MAX: usize = 64;

/// How to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Spin a little while processors are free, then sleep.
    Adaptive,
    /// Sleep at once: for many ranks on few processors.
    Sleep,
    /// Never sleep: for measuring latency on a processor of one's own.
    Spin,
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WakeReason {
    /// The wire has something to poll.
    pub wire: bool,
    extra: u64,
}

impl WakeReason {
    /// Creates the reason out of what was found: the wire, and extra descriptors as bits, the first
    /// one lowest.
    pub(crate) const fn new(wire: bool, extra: u64) -> Self {
        Self { wire, extra }
    }

    /// Returns the ready extra descriptors, as bits, the first one lowest.
    pub(crate) const fn extra_set(self) -> u64 {
        self.extra
    }

    /// Returns whether anything at all is ready.
    pub const fn any(self) -> bool {
        self.wire || self.extra != 0
    }

    /// Returns whether the `i`-th extra descriptor can be read or was closed by its other end.
    pub const fn extra(self, i: usize) -> bool {
        i < EXTRA_MAX && self.extra & (1 << i) != 0
    }

    /// Returns whether any extra descriptor is ready.
    pub const fn any_extra(self) -> bool {
        self.extra != 0
    }
}

/// How a thread rests until a wire has something to poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Until one of the wire's descriptors can be read ([`Wake::wake_descriptors`]), at the latest
    /// until [`Wire::deadline`].
    Descriptor,
    /// Not now: something is there already.
    Again,
    /// Not on a descriptor: poll again soon.
    Poll,
}

/// The longest rest: wires give up by looking what waits for a peer in vain, a fiftieth of the
/// shortest time that matters there.
pub const REST_MAX: Nanos = Nanos::from_millis(100);

/// What a thread needs that sleeps without holding the wire, so that other threads can use it
/// meanwhile.
///
/// The thread takes the descriptors once, and again when the wire joined or left a group. Then, each
/// time: poll until nothing comes, ask [`Wake::rest`], let the wire go, and sleep on them, no longer
/// than [`REST_MAX`]. Nothing that arrives after `rest` was asked is missed.
pub trait Wake {
    /// Duplicates the descriptors of which one can be read when the wire wants a poll. They are the
    /// caller's, and stay readable until the next poll. `None` for a wire that has none, and is
    /// polled.
    ///
    /// # Errors
    /// The system has no room for another descriptor.
    fn wake_descriptors(&mut self) -> io::Result<Option<WakeDescriptors>>;

    /// Prepares for a sleep; says how to rest. To be called after a poll that gave nothing.
    fn rest(&mut self) -> Rest;
}

/// Descriptors of which one can be read when a wire wants a poll.
///
/// They are polled as they are. One descriptor made of them (`epoll`) would cost every packet that
/// arrives 0.25 us (measured), also while nobody sleeps on it.
#[derive(Debug)]
pub struct WakeDescriptors(Vec<OwnedFd>);

impl WakeDescriptors {
    /// Duplicates `descriptors`.
    ///
    /// # Errors
    /// The system has no room for another descriptor.
    pub fn duplicate<'a>(
        descriptors: impl IntoIterator<Item = BorrowedFd<'a>>,
    ) -> io::Result<Self> {
        let copies = descriptors.into_iter().map(|descriptor| descriptor.try_clone_to_owned());
        Ok(Self(copies.collect::<io::Result<_>>()?))
    }

    /// Returns those of two wires, if both have some.
    pub(crate) fn of_both(
        first: &mut (impl Wake + ?Sized),
        second: &mut (impl Wake + ?Sized),
    ) -> io::Result<Option<Self>> {
        let (Some(mut all), Some(second)) = (first.wake_descriptors()?, second.wake_descriptors()?)
        else {
            return Ok(None);
        };
        all.0.extend(second.0);
        Ok(Some(all))
    }

    /// Adds a duplicate of one more.
    pub(crate) fn with(mut self, descriptor: BorrowedFd<'_>) -> io::Result<Self> {
        self.0.push(descriptor.try_clone_to_owned()?);
        Ok(self)
    }

    /// Sleeps until the wire may have something or one of `extra` (at most 64) is ready, at most for
    /// `timeout`; returns what ended the sleep.
    pub fn sleep(&self, timeout: Nanos, extra: &[BorrowedFd<'_>]) -> WakeReason {
        ready(self.0.iter().map(AsFd::as_fd), Some(timeout), extra)
    }
}

/// Makes one descriptor of several, which can be read when one of them can.
///
/// # Errors
/// The system has no room for another descriptor.
pub(crate) fn any_of<'a>(
    descriptors: impl IntoIterator<Item = BorrowedFd<'a>>,
) -> io::Result<OwnedFd> {
    let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for descriptor in descriptors {
        epoll::add(&all, descriptor, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(all)
}

/// Returns how to rest for two wires, each of which said how for itself.
pub(crate) const fn rest_of_both(first: Rest, second: Rest) -> Rest {
    match (first, second) {
        (Rest::Again, _) | (_, Rest::Again) => Rest::Again,
        (Rest::Poll, _) | (_, Rest::Poll) => Rest::Poll,
        (Rest::Descriptor, Rest::Descriptor) => Rest::Descriptor,
    }
}

/// A wire that one can wait for.
pub trait Waitable: Wire + Wake {
    /// Returns when the wire has something to poll, when one of `extra` (at most 64) is ready to be
    /// read, or at `until`; may return early without any of these.
    fn wait(&mut self, until: Option<LocalNs>, extra: &[BorrowedFd<'_>]) -> WakeReason;
}

/// What a wire offers for waiting.
pub trait WaitSource: Wake {
    /// Returns what is ready within `timeout` (`None`: as long as it takes), of the wire and of
    /// `extra` (at most 64). May return early. A wire that is polled without time and without
    /// `extra` looks only at itself, as cheaply as it can.
    fn poll_ready(&mut self, timeout: Option<Nanos>, extra: &[BorrowedFd<'_>]) -> WakeReason;
}

/// Returns which of a wire's descriptors and of `extra` (at most 64) can be read or was closed
/// within `timeout`. A signal ends the wait early, with nothing ready.
pub fn ready<'a>(
    wire: impl IntoIterator<Item = BorrowedFd<'a>>,
    timeout: Option<Nanos>,
    extra: &[BorrowedFd<'a>],
) -> WakeReason {
    let extra = extra.iter().take(EXTRA_MAX).copied();
    let mut fds: Vec<PollFd<'_>> =
        extra.clone().chain(wire).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: (timeout.0 / 1_000_000_000) as _,
        tv_nsec: (timeout.0 % 1_000_000_000) as _,
    });
    if rustix::event::poll(&mut fds, timeout.as_ref()).unwrap_or(0) == 0 {
        return WakeReason::default();
    }
    let found = |fd: &PollFd<'_>| !fd.revents().is_empty();
    let (extra, wire) = fds.split_at(extra.len());
    WakeReason::new(
        wire.iter().any(found),
        extra.iter().enumerate().filter(|(_, fd)| found(fd)).fold(0, |set, (i, _)| set | 1 << i),
    )
}

/// Waits as a [`Waiting`] says.
#[derive(Debug)]
pub struct Pause {
    waiting: Waiting,
    processors: IdleProcessors,
    glanced: LocalNs,
    exact_timers: bool,
    /// From when on a processor may be yielded; never for a wire whose messages cost as much as a
    /// wake-up.
    yields_from: Option<LocalNs>,
}

/// What is done between two looks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PollGap {
    Spin,
    Yield,
}

impl Pause {
    /// Creates a thread that has not waited yet.
    pub fn new(waiting: Waiting) -> Self {
        Self {
            waiting,
            processors: IdleProcessors::default(),
            glanced: LocalNs(0),
            exact_timers: false,
            yields_from: None,
        }
    }

    /// Creates the same for a wire whose messages cost far less than a wake-up: it yields before it
    /// sleeps.
    pub(crate) fn yielding(waiting: Waiting) -> Self {
        Self { yields_from: Some(LocalNs(0)), ..Self::new(waiting) }
    }

    /// Waits; see [`Waitable::wait`].
    pub fn wait(
        &mut self,
        source: &mut dyn WaitSource,
        until: Option<LocalNs>,
        extra: &[BorrowedFd<'_>],
    ) -> WakeReason {
        let begin = clock::now();
        let may_yield = self.yields_from.is_some_and(|from| from <= begin);
        let (spin_for, between) = match self.waiting {
            Waiting::Spin => (Nanos::MAX, PollGap::Spin),
            Waiting::Adaptive if self.processors.free(begin) => (SPIN_MAX, PollGap::Spin),
            Waiting::Adaptive if may_yield => (SPIN_MAX, PollGap::Yield),
            Waiting::Adaptive | Waiting::Sleep => (Nanos::ZERO, PollGap::Spin),
        };
        let mut now = begin;
        while until.is_none_or(|until| now < until) && now.since(begin) < spin_for {
            let woken = self.look(source, now, extra);
            if woken.any() {
                return woken;
            }
            let before = now;
            match between {
                PollGap::Spin => std::hint::spin_loop(),
                PollGap::Yield => std::thread::yield_now(),
            }
            now = clock::now();
            if between == PollGap::Yield && now.since(before) > YIELD_LONG {
                self.yields_from = Some(now + YIELD_AGAIN);
                break;
            }
        }
        match until {
            Some(until) if until <= now => self.look(source, now, extra),
            _ => self.sleep(source, until.map(|until| until.since(now)), extra),
        }
    }

    /// Polls the wire, and the extra descriptors if that is due.
    fn look(
        &mut self,
        source: &mut dyn WaitSource,
        now: LocalNs,
        extra: &[BorrowedFd<'_>],
    ) -> WakeReason {
        if now.since(self.glanced) < GLANCE {
            return source.poll_ready(Some(Nanos::ZERO), &[]);
        }
        self.glanced = now;
        source.poll_ready(Some(Nanos::ZERO), extra)
    }

    fn sleep(
        &mut self,
        source: &mut dyn WaitSource,
        timeout: Option<Nanos>,
        extra: &[BorrowedFd<'_>],
    ) -> WakeReason {
        if !self.exact_timers {
            // By default the kernel may end a sleep 50 us late to join timers: as long as four
            // packets of 1500 bytes at 1 Gb/s, too coarse for pacing. A kernel that refuses leaves
            // the sleep late and nothing else.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
            self.exact_timers = true;
        }
        self.glanced = clock::now();
        source.poll_ready(timeout, extra)
    }
}

/// Whether a processor is free to spin on.
#[derive(Debug, Default)]
struct IdleProcessors {
    load: Option<File>,
    schedule: ThreadSchedule,
    looked: LocalNs,
    delayed: Nanos,
    free: bool,
}

impl IdleProcessors {
    fn free(&mut self, now: LocalNs) -> bool {
        let elapsed = now.since(self.looked);
        if elapsed >= LOOK {
            self.looked = now;
            self.look(elapsed);
        }
        self.free
    }

    fn look(&mut self, elapsed: Nanos) {
        let running = noise::reread(&mut self.load, "/proc/loadavg")
            .and_then(|text| noise::running_tasks(&text));
        let delayed = self.schedule.run_delay().unwrap_or_default();
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
        self.free = is_free(running, processors, delayed - self.delayed, elapsed);
        self.delayed = delayed;
    }
}

/// Returns whether processors are free; a machine that does not tell its load has no free ones.
fn is_free(running: Option<u64>, processors: u64, delayed: Nanos, elapsed: Nanos) -> bool {
    running.is_some_and(|running| running <= processors) && delayed.times(DELAYED_SHARE) <= elapsed
}

#[cfg(test)]
pub(crate) mod asleep {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use clearway_proto::base::{Class, Rank};
    use clearway_proto::wire::{Arrival, Destination, Operation, Out, PathId, Span};

    use super::*;

    const MESSAGES: usize = 300;
    /// A rest that takes so long has missed its message.
    const TIMEOUT: Nanos = Nanos::from_secs(20);

    /// Asserts that a thread that sleeps on the descriptor of `receiver`, rank 1, without holding
    /// it, wakes for each message of `sender`, and that others can use the wire meanwhile.
    pub(crate) fn assert_wakes(sender: &mut (dyn Waitable + '_), receiver: impl Waitable + Send) {
        let wire = Mutex::new(receiver);
        let descriptors =
            wire.lock().expect("free").wake_descriptors().expect("room").expect("descriptors");
        let received = AtomicUsize::new(0);
        thread::scope(|scope| {
            let listener = scope.spawn(|| {
                while received.load(Ordering::Acquire) < MESSAGES {
                    let mut messages = 0;
                    let rest = {
                        let mut wire = wire.lock().expect("nobody panics");
                        let given = wire.poll(64, &mut |arrival| {
                            messages += usize::from(matches!(arrival, Arrival::Datagram(_)));
                        });
                        if given > 0 { Rest::Again } else { wire.rest() }
                    };
                    received.fetch_add(messages, Ordering::AcqRel);
                    if rest == Rest::Descriptor {
                        let woken = descriptors.sleep(TIMEOUT, &[]);
                        assert!(woken.wire, "slept through a message");
                    }
                }
            });
            for number in 0..MESSAGES {
                let mut out: Out<()> = Out::with_limit(1);
                let head = out.head(&(number as u64).to_le_bytes());
                let (to, path, class) = (Destination::One(Rank(1)), PathId(0), Class::LowLatency);
                let send =
                    Operation::Send { to, path, class, head, body: Span::EMPTY, token: None };
                sender.post(&[send], out.heads(), &mut Vec::new());
                while received.load(Ordering::Acquire) <= number && !listener.is_finished() {
                    // A wire of its own kind may have to repeat the message.
                    sender.poll(64, &mut |_| {});
                    assert_eq!(wire.lock().expect("nobody panics").rank(), Rank(1));
                    thread::yield_now();
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn is_free__more_runnable_tasks_than_processors_or_own_delay_forbid_spinning() {
        let elapsed = Nanos::from_millis(10);
        assert!(is_free(Some(2), 2, Nanos::ZERO, elapsed));
        assert!(!is_free(Some(3), 2, Nanos::ZERO, elapsed));
        assert!(is_free(Some(1), 2, Nanos::from_micros(500), elapsed), "5 % is the limit");
        assert!(!is_free(Some(1), 2, Nanos::from_micros(501), elapsed));
        assert!(!is_free(None, 2, Nanos::ZERO, elapsed));
    }

    #[test]
    fn ready__tells_the_wire_from_the_others() {
        let [(silent, _open), (closed, _)] = [(); 2].map(|()| io::pipe().expect("a pipe"));
        let both = [silent.as_fd(), closed.as_fd()];
        assert_eq!(ready([silent.as_fd()], Some(Nanos::ZERO), &both), WakeReason::new(false, 0b10));
        assert_eq!(ready([closed.as_fd()], None, &[]), WIRE);
        assert_eq!(ready([], Some(Nanos::ZERO), &[]), WakeReason::default());
    }

    /// A wire that becomes ready at the given poll; extra descriptors are ready when it is asked
    /// for them.
    struct ReadyAfter {
        polls: usize,
        ready_at: usize,
        timeouts: Vec<Option<Nanos>>,
    }

    impl ReadyAfter {
        fn polls(ready_at: usize) -> Self {
            Self { polls: 0, ready_at, timeouts: Vec::new() }
        }
    }

    impl Wake for ReadyAfter {
        fn wake_descriptors(&mut self) -> io::Result<Option<WakeDescriptors>> {
            Ok(None)
        }

        fn rest(&mut self) -> Rest {
            Rest::Poll
        }
    }

    impl WaitSource for ReadyAfter {
        fn poll_ready(&mut self, timeout: Option<Nanos>, extra: &[BorrowedFd<'_>]) -> WakeReason {
            self.polls += 1;
            self.timeouts.push(timeout);
            WakeReason::new(self.polls >= self.ready_at, if extra.is_empty() { 0 } else { 1 })
        }
    }

    const WIRE: WakeReason = WakeReason::new(true, 0);

    #[test]
    fn wait__spinning_ends_when_the_wire_is_ready_and_never_sleeps() {
        let mut source = ReadyAfter::polls(3);
        assert_eq!(Pause::new(Waiting::Spin).wait(&mut source, None, &[]), WIRE);
        assert_eq!(source.timeouts, [Some(Nanos::ZERO); 3]);
    }

    #[test]
    fn wait__asleep_there_is_one_poll_as_long_as_allowed() {
        let mut source = ReadyAfter::polls(1);
        assert_eq!(Pause::new(Waiting::Sleep).wait(&mut source, None, &[]), WIRE);
        assert_eq!(source.timeouts, [None]);
    }

    #[test]
    fn wait__extra_descriptors_are_looked_at_although_the_wire_is_busy() {
        let (silent, _writer) = io::pipe().expect("a pipe");
        for waiting in [Waiting::Sleep, Waiting::Adaptive, Waiting::Spin] {
            let woken =
                Pause::new(waiting).wait(&mut ReadyAfter::polls(1), None, &[silent.as_fd()]);
            assert!(woken.wire && woken.extra(0) && !woken.extra(1), "{waiting:?}: {woken:?}");
        }
    }

    #[test]
    fn wait__a_time_in_the_past_looks_once_and_returns() {
        for waiting in [Waiting::Sleep, Waiting::Adaptive, Waiting::Spin] {
            let mut source = ReadyAfter::polls(usize::MAX);
            assert_eq!(
                Pause::new(waiting).wait(&mut source, Some(LocalNs(1)), &[]),
                WakeReason::default()
            );
            assert_eq!(source.timeouts, [Some(Nanos::ZERO)]);
        }
    }
}
