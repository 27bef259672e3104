//! Calls of programs that wait for space or for a server, and end early when a signal ends their
//! program.
//!
//! # Model
//! The kernel holds the thread of a call until the call is answered, whatever signals come. So a
//! thread here looks once in [`ROUND`] at the signals of the threads that wait. A call of a thread that
//! a signal kills is answered at once: nobody sees the answer. A thread that would handle a signal
//! which asks programs to end has its call answered after [`HANDLED_ROUNDS`], so that the handler runs.
//! It gets the [`refusal`](Waits::start) of the mount, not `EINTR`: programs make a call again that
//! was only interrupted. For [`ASKED`] behind that, calls of the thread that still wait at the next
//! look are answered early, too: a program that ends may write what it has in memory.
//!
//! # Invariants
//! I1. A change of a log on this machine that is answered early is not made. A server may make one
//!     that it has heard of.
//!
//! # Source
//! `SigPnd`, `ShdPnd`, `SigBlk`, `SigIgn` and `SigCgt` of `status`, and the field `exit_code` of `stat`,
//! in proc(5).

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::engine::{Answer, Held};

/// The time between two looks at the signals of programs that wait.
const ROUND: Duration = Duration::from_secs(1);
/// Rounds that a signal waits for the call of a thread that will handle it.
const HANDLED_ROUNDS: u32 = 5;
/// How long a thread that was answered early is taken for one that ends.
const ASKED: Duration = Duration::from_secs(5);
/// The fields of `stat`, behind the name of the program, with the time at which the thread began, and
/// the status at its exit.
const BEGUN: usize = 19;
const EXIT_CODE: usize = 49;

/// Signals by their number in a mask of proc(5).
const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}
const HANGUP: u64 = bit(1);
const INTERRUPT: u64 = bit(2);
const QUIT: u64 = bit(3);
const TERMINATE: u64 = bit(15);
/// Signals that end no program which does not handle them, by signal(7): SIGCHLD, SIGCONT, SIGSTOP,
/// SIGTSTP, SIGTTIN, SIGTTOU, SIGURG and SIGWINCH.
const HARMLESS: u64 = bit(17) | bit(18) | bit(19) | bit(20) | bit(21) | bit(22) | bit(23) | bit(28);

/// What signals mean for a call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadSignal {
    None,
    /// The program handles one that asks it to end.
    Handled,
    /// The thread never returns to its program.
    Deadly,
}

impl ThreadSignal {
    /// Looks at a thread.
    fn read(thread: u32) -> Self {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{thread}/{name}"));
        // One that this process may not see waits as long as it takes.
        Self::parse(&read("status").unwrap_or_default(), &read("stat").unwrap_or_default())
    }

    fn parse(status: &str, stat: &str) -> Self {
        let mask = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name));
            value.and_then(|value| u64::from_str_radix(value.trim(), 16).ok()).unwrap_or(0)
        };
        let (own, shared) = (mask("SigPnd:"), mask("ShdPnd:"));
        let pending = (own | shared) & !mask("SigBlk:") & !mask("SigIgn:");
        let handled = pending & mask("SigCgt:");
        let is_killed = stat_field(stat, EXIT_CODE).is_some_and(|code| code & 0x7f != 0);
        // One that kills a program may stay pending as it is, where it writes a core or another
        // signal is pending already.
        if is_killed || pending & !handled & !HARMLESS != 0 {
            Self::Deadly
        } else if handled & (HANGUP | INTERRUPT | QUIT | TERMINATE) != 0 {
            Self::Handled
        } else {
            Self::None
        }
    }
}

/// Returns a number in `stat`.
fn stat_field(stat: &str, field: usize) -> Option<u64> {
    // The name may have spaces and parentheses.
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_whitespace().nth(field)?.parse().ok()
}

/// Returns when a thread began, in ticks of the system: its number may be given again.
fn begun(thread: u32) -> Option<u64> {
    stat_field(&std::fs::read_to_string(format!("/proc/{thread}/stat")).ok()?, BEGUN)
}

/// Whether an answer is still owed.
enum HeldState<T> {
    Waiting(Answer<T>),
    /// The change is made.
    Made(Answer<T>),
    Given,
}

/// The answer of a call that may be given early.
pub(super) struct HeldAnswer<T> {
    state: Mutex<HeldState<T>>,
    /// What is answered early.
    early: fn(Errno) -> Result<T, Errno>,
}

impl<T> HeldAnswer<T> {
    fn lock(&self) -> MutexGuard<'_, HeldState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers; returns whether the call was still waiting.
    pub(super) fn answer(&self, outcome: Result<T, Errno>) -> bool {
        let before = std::mem::replace(&mut *self.lock(), HeldState::Given);
        match before {
            HeldState::Waiting(answer) | HeldState::Made(answer) => {
                answer(outcome);
                true
            }
            HeldState::Given => false,
        }
    }

    /// Makes the change of the call, unless it was answered.
    pub(super) fn attempt<U>(&self, attempt: impl FnOnce() -> Result<U, Held>) -> Result<U, Held> {
        let mut state = self.lock();
        if matches!(*state, HeldState::Given) {
            return Err(Held::Errno(Errno::INTR));
        }
        let outcome = attempt();
        if outcome.is_ok()
            && let HeldState::Waiting(answer) = std::mem::replace(&mut *state, HeldState::Given)
        {
            *state = HeldState::Made(answer);
        }
        outcome
    }
}

/// A call that may be answered early.
trait Refusable: Send + Sync {
    fn is_waiting(&self) -> bool;
    /// Answers, unless the change of the call is made.
    fn refuse(&self, why: Errno);
}

impl<T> Refusable for HeldAnswer<T> {
    fn is_waiting(&self) -> bool {
        matches!(*self.lock(), HeldState::Waiting(_))
    }

    fn refuse(&self, why: Errno) {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, HeldState::Given) {
            HeldState::Waiting(answer) => {
                drop(state);
                answer((self.early)(why));
            }
            other => *state = other,
        }
    }
}

/// A call that is watched.
struct WatchedCall {
    thread: u32,
    call: Weak<dyn Refusable>,
    /// Rounds that a signal has waited.
    rounds: AtomicU32,
}

impl WatchedCall {
    /// Returns the call, if it still waits.
    fn waiting(&self) -> Option<Arc<dyn Refusable>> {
        self.call.upgrade().filter(|call| call.is_waiting())
    }

    /// Takes the signals that a round found; returns whether the call is to be answered.
    fn review(&self, found: ThreadSignal) -> bool {
        match found {
            ThreadSignal::None => {
                self.rounds.store(0, Ordering::Relaxed);
                false
            }
            ThreadSignal::Handled => self.rounds.fetch_add(1, Ordering::Relaxed) >= HANDLED_ROUNDS,
            ThreadSignal::Deadly => true,
        }
    }
}

/// A thread that is taken for one that ends.
#[derive(Clone, Copy)]
struct AskedThread {
    /// When it began.
    begun: u64,
    until: Instant,
}

#[derive(Default)]
struct WaitsState {
    calls: Vec<Arc<WatchedCall>>,
    /// Threads that a signal has asked to end.
    asked: BTreeMap<u32, AskedThread>,
    /// Calls get an error instead of waiting: the mount is ending.
    is_ending: bool,
    is_over: bool,
}

impl WaitsState {
    /// Forgets the calls that were answered.
    fn clean(&mut self) {
        self.calls.retain(|watched| watched.waiting().is_some());
    }
}

/// All calls that wait, and the thread that looks at their signals; it ends when this is dropped.
pub(super) struct Waits(Arc<WaitsShared>);

struct WaitsShared {
    state: Mutex<WaitsState>,
    changed: Condvar,
    /// What calls get that are answered early.
    refusal: Errno,
    /// Is called after calls were answered early.
    ended: Box<dyn Fn() + Send + Sync>,
}

impl WaitsShared {
    fn lock(&self) -> MutexGuard<'_, WaitsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        loop {
            let state = self.lock();
            let wait = |state: &mut WaitsState| state.calls.is_empty() && !state.is_over;
            let state =
                self.changed.wait_while(state, wait).unwrap_or_else(PoisonError::into_inner);
            let is_on = |state: &mut WaitsState| !state.is_over;
            let waited = self.changed.wait_timeout_while(state, ROUND, is_on);
            let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.is_over {
                return;
            }
            state.clean();
            let calls = state.calls.clone();
            drop(state);
            self.review(Instant::now(), &calls, ThreadSignal::read);
        }
    }

    /// Answers the calls whose threads have signals for it, or were asked to end before.
    fn review(&self, now: Instant, calls: &[Arc<WatchedCall>], look: impl Fn(u32) -> ThreadSignal) {
        let (signalled, others): (Vec<_>, Vec<_>) =
            calls.iter().partition(|watched| watched.review(look(watched.thread)));
        let mut state = self.lock();
        state.asked.retain(|thread, it| now < it.until && begun(*thread) == Some(it.begun));
        let asked = others.into_iter().filter(|it| state.asked.contains_key(&it.thread));
        let to_end: Vec<_> = asked.chain(signalled.iter().copied()).collect();
        for thread in signalled.iter().map(|watched| watched.thread) {
            if let Some(begun) = begun(thread) {
                state.asked.insert(thread, AskedThread { begun, until: now + ASKED });
            }
        }
        drop(state);
        let to_end: Vec<_> = to_end.iter().filter_map(|watched| watched.waiting()).collect();
        self.refuse(&to_end);
    }

    fn refuse(&self, calls: &[Arc<dyn Refusable>]) {
        calls.iter().for_each(|call| call.refuse(self.refusal));
        if !calls.is_empty() {
            (self.ended)();
        }
    }
}

impl Waits {
    /// Starts the thread. Calls that are answered early get `refusal`, and then it calls `ended`.
    ///
    /// # Errors
    /// The system has no room for a thread.
    pub(super) fn start(
        refusal: Errno,
        ended: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(WaitsShared { state, changed, refusal, ended: Box::new(ended) });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("staging-waits".into());
        thread.spawn(move || own.run())?;
        Ok(Self(shared))
    }

    /// Holds the answer of a call.
    pub(super) fn hold<T>(answer: Answer<T>) -> Arc<HeldAnswer<T>> {
        Self::hold_with(answer, Err)
    }

    /// Holds the answer of a call that gets `early` if it is answered early.
    pub(super) fn hold_with<T>(
        answer: Answer<T>,
        early: fn(Errno) -> Result<T, Errno>,
    ) -> Arc<HeldAnswer<T>> {
        Arc::new(HeldAnswer { state: Mutex::new(HeldState::Waiting(answer)), early })
    }

    /// Watches the thread of a call, if the call waits. The kernel itself has the number 0.
    pub(super) fn watch<T: 'static>(&self, thread: u32, held: &Arc<HeldAnswer<T>>) {
        if thread == 0 || !held.is_waiting() {
            return;
        }
        let call: Arc<dyn Refusable> = Arc::clone(held) as Arc<dyn Refusable>;
        let mut state = self.0.lock();
        if state.calls.len() == state.calls.capacity() {
            state.clean();
        }
        let (call, rounds) = (Arc::downgrade(&call), AtomicU32::new(0));
        state.calls.push(Arc::new(WatchedCall { thread, call, rounds }));
        let is_first = state.calls.len() == 1;
        let is_ending = state.is_ending;
        drop(state);
        if is_ending {
            held.refuse(self.0.refusal);
            (self.0.ended)();
        }
        if is_first {
            self.0.changed.notify_all();
        }
    }
}

impl Waits {
    /// Returns whether a call waits.
    pub(super) fn has_any(&self) -> bool {
        self.0.lock().calls.iter().any(|watched| watched.waiting().is_some())
    }

    /// Answers all calls that wait early, from now on.
    pub(super) fn refuse_all(&self) {
        let mut state = self.0.lock();
        state.is_ending = true;
        let waiting: Vec<_> = state.calls.iter().filter_map(|watched| watched.waiting()).collect();
        drop(state);
        self.0.refuse(&waiting);
    }

    /// Lets calls wait again.
    pub(super) fn wait_again(&self) {
        self.0.lock().is_ending = false;
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    //! What signals mean, as the kernel shows them.

    use super::*;

    /// Returns a `status` with these masks: pending for the thread and for all, blocked, ignored,
    /// handled.
    fn status([own, shared, blocked, ignored, handled]: [u64; 5]) -> String {
        format!(
            "Name:\ta b\nSigQ:\t1/2\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{handled:016x}\n"
        )
    }

    fn stat(exit_code: u32) -> String {
        format!("7 (a) b) D {}{exit_code}\n", "1 ".repeat(EXIT_CODE - 1))
    }

    #[test]
    fn parse__what_kills_what_is_handled_and_what_can_wait() {
        let user = bit(10);
        for (masks, exit_code, expected) in [
            ([0, 0, 0, 0, 0], 0, ThreadSignal::None),
            // The kernel's form of a signal that ends the program.
            ([bit(9), TERMINATE, 0, 0, 0], 0, ThreadSignal::Deadly),
            ([0, QUIT, 0, 0, 0], 0, ThreadSignal::Deadly),
            // It keeps one as it is behind another, handled one.
            ([0, TERMINATE | bit(14), 0, 0, bit(14)], 0, ThreadSignal::Deadly),
            ([0, TERMINATE | bit(17), 0, 0, bit(17)], 0, ThreadSignal::Deadly),
            ([0, bit(17) | bit(18) | bit(28), 0, 0, 0], 0, ThreadSignal::None),
            ([0, 0, 0, 0, 0], 15, ThreadSignal::Deadly),
            // A program that exits by itself with status 3.
            ([0, 0, 0, 0, 0], 3 << 8, ThreadSignal::None),
            ([0, TERMINATE, 0, 0, TERMINATE], 0, ThreadSignal::Handled),
            ([QUIT, 0, 0, 0, QUIT], 0, ThreadSignal::Handled),
            ([0, TERMINATE | QUIT, TERMINATE | QUIT, 0, TERMINATE], 0, ThreadSignal::None),
            ([0, INTERRUPT, 0, INTERRUPT, 0], 0, ThreadSignal::None),
            ([0, user, 0, 0, user], 0, ThreadSignal::None),
        ] {
            assert_eq!(
                ThreadSignal::parse(&status(masks), &stat(exit_code)),
                expected,
                "{masks:?}"
            );
        }
        assert_eq!(ThreadSignal::parse("", ""), ThreadSignal::None, "a thread that is hidden");
        assert_eq!(stat_field(&stat(7), EXIT_CODE), Some(7));
        assert!(begun(std::process::id()).is_some() && begun(u32::MAX).is_none());
    }

    /// Where the answer of a call goes.
    type GivenAnswer = Arc<Mutex<Option<Result<u8, Errno>>>>;

    /// Returns a call, and where its answer goes.
    fn call() -> (Arc<HeldAnswer<u8>>, GivenAnswer) {
        let place = Arc::new(Mutex::new(None));
        let given = Arc::clone(&place);
        let held =
            Waits::hold(Box::new(move |outcome| *given.lock().expect("whole") = Some(outcome)));
        (held, place)
    }

    fn watched(held: &Arc<HeldAnswer<u8>>) -> Vec<Arc<WatchedCall>> {
        let call: Arc<dyn Refusable> = Arc::clone(held) as Arc<dyn Refusable>;
        let call = Arc::downgrade(&call);
        vec![Arc::new(WatchedCall { thread: 1, call, rounds: AtomicU32::new(0) })]
    }

    fn shared() -> WaitsShared {
        WaitsShared {
            state: Mutex::default(),
            changed: Condvar::new(),
            refusal: Errno::NOSPC,
            ended: Box::new(|| ()),
        }
    }

    #[test]
    fn review__a_call_of_a_dead_program_ends_at_once_and_its_change_is_not_made() {
        let (held, place) = call();
        let calls = watched(&held);
        shared().review(Instant::now(), &calls, |_| ThreadSignal::None);
        assert_eq!(*place.lock().expect("whole"), None);
        let lacks = || Err::<u8, _>(Held::Lacks(crate::engine::Shortage::Common));
        assert_eq!(held.attempt(lacks), lacks());
        shared().review(Instant::now(), &calls, |_| ThreadSignal::Deadly);
        assert_eq!(*place.lock().expect("whole"), Some(Err(Errno::NOSPC)));
        let made = held.attempt(|| panic!("a change that was refused") as Result<u8, Held>);
        assert_eq!(made, Err(Held::Errno(Errno::INTR)));
        assert!(!held.answer(Ok(1)), "it was answered");
    }

    #[test]
    fn review__a_handler_waits_for_a_bounded_number_of_rounds() {
        let (held, place) = call();
        let calls = watched(&held);
        for _ in 0..HANDLED_ROUNDS {
            shared().review(Instant::now(), &calls, |_| ThreadSignal::Handled);
            assert_eq!(*place.lock().expect("whole"), None);
        }
        shared().review(Instant::now(), &calls, |_| ThreadSignal::Handled);
        assert_eq!(*place.lock().expect("whole"), Some(Err(Errno::NOSPC)));
    }

    #[test]
    fn review__later_calls_of_a_thread_that_was_asked_to_end_wait_again_after_a_time() {
        let (shared, begin) = (shared(), Instant::now());
        let (first, place) = call();
        shared.review(begin, &watched(&first), |_| ThreadSignal::Deadly);
        assert_eq!(*place.lock().expect("whole"), Some(Err(Errno::NOSPC)));
        for (later, outcome) in
            [(ASKED - Duration::from_millis(1), Some(Err(Errno::NOSPC))), (ASKED, None)]
        {
            let (held, place) = call();
            shared.review(begin + later, &watched(&held), |_| ThreadSignal::None);
            assert_eq!(*place.lock().expect("whole"), outcome, "{later:?}");
        }
    }

    #[test]
    fn refuse__a_change_that_is_made_is_answered_as_made() {
        let (held, place) = call();
        let calls = watched(&held);
        assert_eq!(held.attempt(|| Ok(3)), Ok(3));
        shared().review(Instant::now(), &calls, |_| ThreadSignal::Deadly);
        assert_eq!(*place.lock().expect("whole"), None);
        assert!(held.answer(Ok(3)));
        assert_eq!(*place.lock().expect("whole"), Some(Ok(3)));
    }
}
