//! Initialises and finalises an OpenSHMEM program, and holds the only globals of this library.
//!
//! # Model
//! [`init`] makes the executable's variables shareable, joins the job, exchanges the cards of all
//! PEs, meets the PEs of this host and waits for all PEs. From then on until [`finalize`] `get`
//! returns the `Job`. It is never moved or freed, because other threads may be in the middle of an
//! operation when the program finishes.
//!
//! A PE whose process ends before it leaves the job ends the job. Usually the launcher notices and
//! reports it; if it does not within `GRACE`, this library does.
//!
//! # Source
//! OpenSHMEM 1.6, "Library Setup, Exit, and Query Routines".
//!
//! # Not here
//! The meeting itself (`card`, [`clearway_runtime::near`]).

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use clearway_proto::base::Class;
use clearway_runtime::RuntimeError;
use clearway_runtime::launch::{self, JobEndAction, JoinOptions};
use clearway_runtime::near::{Entrance, Near, NearConfig, WaitPolicy};

use crate::address::{Place, Segments, Symmetric};
use crate::calls;
use crate::card::{Card, Cards};
use crate::collective::active::ActiveTeams;
use crate::collective::sync::Gathering;
use crate::constants::{THREAD_MULTIPLE, THREAD_SINGLE, VERSION};
use crate::context::{Context, ContextTable};
pub use crate::far::FarTraffic;
use crate::far::{self, Far, FarObject, FarWire};
use crate::fault::{Fault, Wrong};
use crate::heap::Heap;
use crate::memory;
use crate::queue::{self, ClassGrant, QueueClass, Queues};
use crate::settings::{Settings, StaticsWish, VARIABLES};
use crate::statics;
use crate::team::{self, Team, TeamEntry, Teams};
use crate::word::Word;

/// The exit status of a job whose PE ended too early, and of one that could not begin.
const LOST: i32 = 1;
/// How long the launcher has to end a job before this library does.
const GRACE: Duration = Duration::from_millis(400);
/// The report of a PE that left while others still run.
const MET_OTHERS: &str = "left the program while other PEs were in a barrier or another collective; \
     all PEs have to make the same collective calls before shmem_finalize or their end";
/// How long PEs wait for each other in `shmem_init`.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The job, after `shmem_init`.
static JOB: OnceLock<Job> = OnceLock::new();
/// The connection to the launcher, until this PE leaves the job.
static LAUNCH: Mutex<Option<launch::Job>> = Mutex::new(None);

/// One PE of a running job.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) segments: Segments,
    pub(crate) near: &'static Near,
    /// The way to PEs of other hosts, if there are any.
    pub(crate) far: Option<Far>,
    pub(crate) me: usize,
    /// This PE's place among those of its host.
    place: usize,
    /// How many PEs its host has.
    places: usize,
    pub(crate) wait_policy: WaitPolicy,
    pub(crate) debug: bool,
    pub(crate) teams: Teams,
    pub(crate) contexts: ContextTable,
    pub(crate) active: ActiveTeams,
    pub(crate) queues: Queues,
    heap: Mutex<Heap>,
    host: String,
    level: AtomicI32,
    begins: AtomicUsize,
    /// This PE left or is about to leave.
    is_leaving: AtomicBool,
    process: u32,
    /// This process is a child of the PE, with private memory.
    is_apart: AtomicBool,
    /// How often this PE reached the end of the program.
    leaves: AtomicU32,
    statics: Result<(usize, usize), String>,
}

/// An object of a PE, by the way to reach it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reach<T> {
    /// In memory that this process has mapped.
    Near(T),
    /// Over the wire.
    Far(FarObject),
    /// No bytes; the address is not checked.
    Nothing,
}

impl Reach<Place> {
    /// Returns the object `bytes` bytes further on, within the range that was checked.
    pub(crate) fn plus(self, bytes: usize) -> Self {
        match self {
            Self::Near(place) => Self::Near(place.plus(bytes)),
            Self::Far(object) => Self::Far(object.plus(bytes)),
            Self::Nothing => Self::Nothing,
        }
    }
}

/// Returns the job, between `shmem_init` and `shmem_finalize`.
#[inline]
pub(crate) fn get() -> Result<&'static Job, Fault> {
    match JOB.get() {
        Some(job) if job.begins.load(Ordering::Relaxed) > 0 => Ok(job),
        _ => Err(not_initialized()),
    }
}

/// Returns the job after `shmem_init`, also after `shmem_finalize`.
pub(crate) fn installed() -> Result<&'static Job, Fault> {
    JOB.get().ok_or_else(not_initialized)
}

/// Returns the fault of a call outside of these. Faults are made in functions of their own, so that
/// the functions inlined into each entry need no stack.
#[cold]
#[inline(never)]
fn not_initialized() -> Fault {
    Wrong::NotInitialized.into()
}

impl Job {
    /// Returns the `bytes` bytes at `address` on PE `pe` of `context`, if this process has them
    /// mapped. [`target`](Self::target) returns the reason if it has not.
    // A call takes as long as the operation, and so does a result that may be near or far, which is
    // returned in memory (measured). Without the attribute the compiler makes a call, because
    // hundreds of functions use this one.
    #[inline(always)]
    pub(crate) fn near(
        &self,
        context: Context,
        address: Symmetric,
        bytes: usize,
        pe: i32,
    ) -> Option<Place> {
        let pe = if context == Context::DEFAULT {
            pe as usize
        } else {
            self.world_pe(context, pe).ok()?
        };
        self.segments.place(address, bytes, pe)
    }

    /// Returns the `bytes` bytes at `address` on PE `pe` of `context`, near or far.
    pub(crate) fn target(
        &'static self,
        context: Context,
        address: Symmetric,
        bytes: usize,
        pe: i32,
        argument: &'static str,
    ) -> Result<Reach<Place>, Fault> {
        let target =
            if context == Context::DEFAULT { pe as usize } else { self.world_pe(context, pe)? };
        match self.segments.place(address, bytes, target) {
            Some(place) => Ok(Reach::Near(place)),
            None => self.not_near(context, address, bytes, target, argument),
        }
    }

    /// Finds an object that is not in memory mapped by this process.
    #[inline(never)]
    fn not_near(
        &'static self,
        context: Context,
        address: Symmetric,
        bytes: usize,
        pe: usize,
        argument: &'static str,
    ) -> Result<Reach<Place>, Fault> {
        if bytes == 0 && pe < self.segments.pes() {
            return Ok(Reach::Nothing);
        }
        let far = self.far.as_ref().filter(|_| pe < self.segments.pes());
        match (far, self.segments.locate(address, bytes)) {
            (Some(far), Some((segment, offset))) if !self.segments.is_near(pe) => {
                let class = self.contexts.class(context);
                Ok(Reach::Far(far.object(class, pe, segment, offset)))
            }
            _ => Err(self.segments.refuse(argument, address, bytes, pe)),
        }
    }

    /// Returns the number in the world team of PE `pe` of a context.
    #[inline(never)]
    pub(crate) fn world_pe(&self, context: Context, pe: i32) -> Result<usize, Fault> {
        let Some((slot, _)) = self.contexts.get(context) else {
            return Err(Wrong::Context(context.raw()).into());
        };
        let (_, members) = self.teams.get(Team::of_slot(slot))?;
        if !(0..members.size).contains(&pe) {
            return Err(Wrong::Pe { pe, pes: members.size as usize }.into());
        }
        Ok(members.pe(pe as usize))
    }

    /// Returns the word at `address` on PE `pe` of `context`, near or far.
    pub(crate) fn word<T: Word>(
        &'static self,
        context: Context,
        address: Symmetric,
        pe: i32,
        argument: &'static str,
    ) -> Result<Reach<&'static T::Atomic>, Fault> {
        match self.target(context, address, size_of::<T>(), pe, argument)? {
            Reach::Near(place) => match place.word::<T>() {
                Some(word) => Ok(Reach::Near(word)),
                None => Err(unaligned(argument, address, size_of::<T>())),
            },
            Reach::Far(object) if address.raw().is_multiple_of(size_of::<T>()) => {
                Ok(Reach::Far(object))
            }
            Reach::Far(_) | Reach::Nothing => Err(unaligned(argument, address, size_of::<T>())),
        }
    }

    /// Returns the class that `class` becomes between the members of a team.
    pub(crate) fn grant(&self, class: QueueClass, team: &TeamEntry) -> ClassGrant {
        let far = self.far.as_ref().filter(|_| team.spans_hosts());
        class.grant(far.map(|far| far.granted(class.far())))
    }

    /// Returns this PE's word at `address`.
    #[inline]
    pub(crate) fn own_word<T: Word>(
        &self,
        address: Symmetric,
        argument: &'static str,
    ) -> Result<&'static T::Atomic, Fault> {
        let Some(place) = self.segments.place(address, size_of::<T>(), self.me) else {
            return Err(self.segments.refuse(argument, address, size_of::<T>(), self.me));
        };
        let align = size_of::<T>();
        place
            .word::<T>()
            .ok_or_else(|| Wrong::Unaligned { argument, address: address.raw(), align }.into())
    }

    /// Returns the bytes of this PE's heap.
    pub(crate) fn heap_length(&self) -> usize {
        self.near.heap(self.place).length
    }

    /// Waits until `ready` returns true, and answers PEs of other hosts meanwhile.
    #[inline]
    pub(crate) fn wait(&self, ready: impl FnMut() -> bool) {
        match &self.far {
            None => self.wait_policy.wait(ready),
            Some(far) => far.wait(ready),
        }
    }

    /// Counts a test of a program that tests in a loop, and answers PEs of other hosts.
    #[inline]
    pub(crate) fn ask(&self) {
        if let Some(far) = &self.far {
            far.poll();
        }
        self.wait_policy.count_test();
    }

    /// Locks this PE's heap.
    pub(crate) fn heap(&self) -> MutexGuard<'_, Heap> {
        self.heap.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns why the host lacks this many more bytes for the heap of each of its PEs, as far as it
    /// can be known. No PE may allocate pages before all PEs called this.
    pub(crate) fn check_room(&self, bytes: usize) -> Result<(), String> {
        memory::check_room(bytes, self.places)
    }

    /// Allocates pages of this PE's heap. Fails with the reason.
    pub(crate) fn commit(&self, from: usize, to: usize) -> Result<(), String> {
        let said = |error| {
            format!("the system refused {} bytes for the symmetric heap: {error}", to - from)
        };
        self.near.commit(from, to).map_err(said)
    }

    /// Begins the program again after `shmem_finalize`. This PE has left the launcher for good; from
    /// here on the PEs watch each other.
    fn begin_again(&self, level: i32) -> Result<(), Fault> {
        self.level.store(level, Ordering::Release);
        self.is_leaving.store(false, Ordering::Release);
        Gathering::new(self, Team::WORLD)?.wait();
        Ok(())
    }

    /// Frees the program's teams, contexts and blocks of the heap.
    fn release_all(&self) {
        self.contexts.clear();
        self.queues.clear();
        self.active.clear();
        team::clear(self);
        self.heap().clear();
    }

    /// Prints `sentence` on standard error.
    pub(crate) fn say(&self, sentence: &str) {
        calls::say(&format!("PE {}: {sentence}\n", self.me));
    }
}

#[cold]
#[inline(never)]
fn unaligned(argument: &'static str, address: Symmetric, align: usize) -> Fault {
    Wrong::Unaligned { argument, address: address.raw(), align }.into()
}

/// Begins the program with a thread level of 0 to 3. Returns the level granted. Further calls are only
/// counted. After `shmem_finalize` the program begins again, with an empty heap.
///
/// # Errors
/// There is no such level. If the job cannot begin, the process ends.
pub fn init(level: i32) -> Result<i32, Fault> {
    if !(THREAD_SINGLE..=THREAD_MULTIPLE).contains(&level) {
        return Err(Fault::value(
            "requested",
            level.into(),
            "use SHMEM_THREAD_SINGLE to SHMEM_THREAD_MULTIPLE",
        ));
    }
    if let Some(job) = JOB.get() {
        if job.begins.fetch_add(1, Ordering::AcqRel) == 0 {
            job.begin_again(level)?;
        }
        return Ok(job.level.load(Ordering::Acquire));
    }
    if let Err(sentence) = begin(level) {
        end_with(LOST, &sentence);
    }
    Ok(level)
}

/// Joins the job, meets the PEs of this host, and waits for all PEs.
fn begin(level: i32) -> Result<(), String> {
    let settings = Settings::read();
    // Precedes all threads of this library.
    let shared = match settings.as_ref().map(|settings| settings.statics) {
        Ok(StaticsWish::Auto) => statics::share(),
        _ => Err("SHMEM_STATICS is private".to_owned()),
    };
    let options =
        JoinOptions { ending: JobEndAction::AtOnce, timeout: TIMEOUT, ..JoinOptions::default() };
    let mut joined = launch::join(&options).map_err(|error| error.to_string())?;
    let (me, pes) = (joined.rank().index(), joined.size() as usize);
    let met = settings.and_then(|settings| meet(&mut joined, shared, settings));
    // From here on the end of this PE ends the other PEs.
    *LAUNCH.lock().unwrap_or_else(PoisonError::into_inner) = Some(joined);
    let begun = met.and_then(|met| install(met, me, pes, level));
    if begun.is_err() && me > 0 {
        // Only the first PE reports a failure of all.
        std::thread::sleep(GRACE);
    }
    begun
}

/// The result of meeting the other PEs.
struct Met {
    settings: Settings,
    cards: Cards,
    near: &'static Near,
    near_pes: Vec<usize>,
    statics: Result<(usize, usize), String>,
    /// The wire to PEs of other hosts, if there are any.
    wire: Option<FarWire>,
}

/// Exchanges cards with all PEs, and maps the memory of those of this host.
fn meet(
    joined: &mut launch::Job,
    shared: Result<statics::Shared, String>,
    settings: Settings,
) -> Result<Met, String> {
    let said = |error: RuntimeError| error.to_string();
    let entrance = Entrance::open().map_err(said)?;
    let (me, pes) = (joined.rank().index(), joined.size() as usize);
    let group = settings.near.map_or(0, |near| me / near);
    let mut card = Card::of_process(group as u64);
    card.entrance = entrance.name();
    card.heap_wish = settings.heap.unwrap_or_default() as u64;
    card.heap_room = memory::room_for_heaps();
    if let Ok(shared) = &shared {
        (card.statics, card.build) =
            ((shared.range.end - shared.range.start) as u64, shared.range.build);
    }
    let all = joined.exchange(&card.bytes()).map_err(|error| error.to_string())?;
    let cards = Cards::parse(&all, me)?;
    let near_pes = cards.near(me);
    let heap = cards.heap()?;
    memory::check_heap(heap, near_pes.len())?;
    let shared = shared.and_then(|shared| match cards.share_statics() {
        true => Ok(shared),
        false => {
            Err("the executables of the PEs differ, or one had several threads at its start"
                .to_owned())
        }
    });
    let range =
        shared.as_ref().map(|shared| (shared.range.start, shared.range.end - shared.range.start));
    let statics = range.map_err(Clone::clone);
    let shared = shared.ok().map(|shared| shared.file);
    let place = near_pes.binary_search(&me).unwrap_or_default();
    let config = NearConfig {
        place,
        places: near_pes.len(),
        owners: pes,
        heap,
        statics: shared,
        timeout: TIMEOUT,
    };
    let near = Near::open(entrance, cards.0[near_pes[0]].entrance, &config).map_err(said)?;
    let wire = far::open(joined, &cards, &settings)?;
    Ok(Met { settings, cards, near: Box::leak(Box::new(near)), near_pes, statics, wire })
}

/// Makes the job, and waits for all PEs.
fn install(met: Met, me: usize, pes: usize, level: i32) -> Result<(), String> {
    let Met { settings, cards, near, near_pes, statics, wire } = met;
    let place_of = |pe| near_pes.binary_search(&pe).ok();
    let (place, places) = (place_of(me).unwrap_or_default(), near_pes.len());
    let all_places: Vec<Option<usize>> = (0..pes).map(place_of).collect();
    let far =
        wire.map(|wire| Far::new(wire, me, cards.leaders(), settings.threshold)).transpose()?;
    let job = Job {
        segments: Segments::new(near, place, &all_places, statics.as_ref().ok().copied()),
        near,
        far,
        me,
        place,
        places,
        wait_policy: WaitPolicy::new(places, cards.processors(&near_pes)),
        debug: settings.debug,
        teams: Teams::new(me, pes, &near_pes),
        contexts: ContextTable::new(settings.class.0),
        active: ActiveTeams::default(),
        queues: Queues::new(
            all_places,
            near_pes.clone(),
            near.pool(place).length,
            settings.threshold.unwrap_or(queue::THRESHOLD),
        ),
        heap: Mutex::new(Heap::new(near.heap(place).length)),
        host: cards.0[me].host.clone(),
        level: AtomicI32::new(level),
        begins: AtomicUsize::new(1),
        is_leaving: AtomicBool::new(false),
        process: std::process::id(),
        is_apart: AtomicBool::new(false),
        leaves: AtomicU32::new(0),
        statics,
    };
    team::publish_used(&job);
    let neighbours: Vec<(usize, u64)> =
        near_pes.iter().map(|pe| (*pe, cards.0[*pe].process)).collect();
    let job = JOB.get_or_init(|| job);
    let gone = move |place: usize| lost(job, neighbours.get(place).copied().unwrap_or_default());
    near.watch(gone).map_err(|error| error.to_string())?;
    if let Some(far) = &job.far {
        far.attend(job)?;
    }
    calls::at_exit(at_exit);
    if !calls::at_fork_child(after_fork) {
        return Err("the system refused to register a fork handler".to_owned());
    }
    Gathering::new(job, Team::WORLD).map_err(|fault| fault.sentence())?.wait();
    print_settings(&settings, me);
    Ok(())
}

/// Prints the version and the variables if `SHMEM_VERSION` and `SHMEM_INFO` request them.
fn print_settings(settings: &Settings, me: usize) {
    if me != 0 {
        return;
    }
    if settings.version {
        let (major, minor) = VERSION;
        let own = env!("CARGO_PKG_VERSION");
        calls::say(&format!("Clearway {own}, OpenSHMEM {major}.{minor}\n"));
    }
    if settings.list {
        calls::say(&format!("{VARIABLES}\n"));
    }
}

/// Ends the job when the PE at `place` ended before it left, unless the launcher is faster.
fn lost(job: &'static Job, (pe, process): (usize, u64)) {
    std::thread::sleep(GRACE);
    if job.is_leaving.load(Ordering::Acquire) {
        return;
    }
    if job.near.status_words().spoken.load(Ordering::Acquire) != 0 {
        let is_launched = LAUNCH.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if is_launched {
            return;
        }
        // A program that began again has no launcher that ends the other PEs.
        calls::exit_at_once(job.near.status_words().status.load(Ordering::Acquire) as i32);
    }
    end_with(
        LOST,
        &format!(
            "PE {pe} (process {process} on {}) ended without shmem_finalize, so the job ends",
            job.host
        ),
    );
}

/// Ends the job because far PE `pe` is gone, unless the launcher is faster or the program finished.
pub(crate) fn lost_far(job: &Job, pe: usize, how: &str) {
    if job.is_leaving.load(Ordering::Acquire) {
        return;
    }
    end_with(LOST, &format!("PE {pe} {how}, so the job ends"));
}

/// Keeps writes of a child of this PE out of the shared heap. Children of the child see its writes.
extern "C" fn after_fork() {
    let Some(job) = JOB.get() else { return };
    if !job.is_apart.swap(true, Ordering::AcqRel) && job.near.set_apart().is_err() {
        calls::exit_at_once(127);
    }
}

/// Leaves the job when the program exits without `shmem_finalize`. The launcher notices a program that
/// fails.
extern "C" fn at_exit(status: c_int, _: *mut c_void) {
    let Some(job) = JOB.get() else { return };
    let is_of_this_process = job.process == std::process::id();
    if is_of_this_process && status == 0 && !job.is_leaving.load(Ordering::Acquire) {
        // Operations that another thread has not sent yet are lost.
        let _ = queue::finish(job);
        leave(job);
    }
    if let Some(far) = job.far.as_ref().filter(|_| is_of_this_process) {
        far.end();
    }
}

/// Ends the program: waits for all PEs and leaves the job.
///
/// # Errors
/// The library is not initialised.
pub fn finalize() -> Result<(), Fault> {
    let job = get()?;
    queue::finish(job)?;
    if job.begins.fetch_sub(1, Ordering::AcqRel) > 1 {
        Gathering::new(job, Team::WORLD)?.wait();
        return Ok(());
    }
    leave(job);
    job.release_all();
    Ok(())
}

fn leave(job: &Job) {
    std::sync::atomic::fence(Ordering::SeqCst);
    if let Some(far) = &job.far {
        Class::ALL.into_iter().for_each(|class| far.quiet(class));
    }
    // All PEs of this host count up before they meet, and none counts again before all have read it.
    job.near.status_words().leaving.fetch_add(1, Ordering::AcqRel);
    let leaves = job.leaves.fetch_add(1, Ordering::AcqRel) + 1;
    if let Ok(all) = Gathering::new(job, Team::WORLD) {
        all.wait();
    }
    if job.near.status_words().leaving.load(Ordering::Acquire) != leaves * job.places as u32 {
        end_with(LOST, MET_OTHERS);
    }
    // From here on the end of another PE is no failure.
    job.is_leaving.store(true, Ordering::Release);
    let joined = LAUNCH.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(far) = &job.far {
        // Others may still wait for messages of this PE.
        match joined {
            Some(_) => Class::ALL.into_iter().for_each(|class| far.quiet(class)),
            None => far.part(),
        }
    }
    if let Some(Err(error)) = joined.map(launch::Job::finish) {
        job.say(&error.to_string());
    }
}

/// Ends all PEs with `status`.
pub fn global_exit(status: i32) -> ! {
    calls::flush_streams();
    end_with(status, "")
}

/// Prints `sentence`, ends the job with `status`, and ends this process. Of several PEs only the first
/// prints.
pub(crate) fn end_with(status: i32, sentence: &str) -> ! {
    let mut sentence = sentence.to_owned();
    if let Some(job) = JOB.get() {
        job.near.status_words().status.store(status as u32, Ordering::Release);
        let was_first = job.near.status_words().spoken.swap(1, Ordering::AcqRel) == 0;
        if !sentence.is_empty() && was_first {
            sentence = format!("PE {}: {sentence}", job.me);
        } else if !sentence.is_empty() {
            // The first PE prints its sentence and ends the job meanwhile.
            sentence.clear();
            std::thread::sleep(GRACE);
        }
    }
    // A thread that leaves the job holds the lock; then the process just ends.
    let joined = LAUNCH.try_lock().ok().and_then(|mut joined| joined.take());
    match joined {
        Some(joined) => joined.abort(status, &sentence),
        None => {
            if !sentence.is_empty() {
                calls::say(&format!("{sentence}\n"));
            }
            calls::exit_at_once(status)
        }
    }
}

/// Returns this PE's number, also after `shmem_finalize` (`shmem_my_pe`).
///
/// # Errors
/// The library is not initialised.
#[inline]
pub fn my_pe() -> Result<i32, Fault> {
    Ok(installed()?.me as i32)
}

/// Returns the number of PEs, also after `shmem_finalize` (`shmem_n_pes`).
///
/// # Errors
/// The library is not initialised.
#[inline]
pub fn n_pes() -> Result<i32, Fault> {
    Ok(installed()?.segments.pes() as i32)
}

/// Returns the thread level that the program was granted (`shmem_query_thread`).
///
/// # Errors
/// The library is not initialised.
pub fn query_thread() -> Result<i32, Fault> {
    Ok(installed()?.level.load(Ordering::Acquire))
}

/// Returns 1 between `shmem_init` and `shmem_finalize`, otherwise 0.
pub fn is_initialized() -> i32 {
    JOB.get().map_or(0, |job| i32::from(job.begins.load(Ordering::Acquire) > 0))
}

/// Returns 1 if there is a PE of this number, otherwise 0 (`shmem_pe_accessible`).
///
/// # Errors
/// The library is not initialised.
pub fn pe_accessible(pe: i32) -> Result<i32, Fault> {
    Ok(i32::from(
        usize::try_from(pe).is_ok_and(|pe| pe < JOB.get().map_or(0, |job| job.segments.pes())),
    ))
}

/// Returns 1 if PE `pe` has an object at `address`, otherwise 0 (`shmem_addr_accessible`).
///
/// # Errors
/// The library is not initialised.
pub fn addr_accessible(address: Symmetric, pe: i32) -> Result<i32, Fault> {
    let segments = &get()?.segments;
    let is_far = (pe as usize) < segments.pes() && !segments.is_near(pe as usize);
    let is_there = if is_far {
        segments.locate(address, 1).is_some()
    } else {
        segments.place(address, 1, pe as usize).is_some()
    };
    Ok(i32::from(is_there))
}

/// Returns the local address of an object of PE `pe`, or null (`shmem_ptr`).
///
/// # Errors
/// The library is not initialised.
pub fn ptr(dest: Symmetric, pe: i32) -> Result<*mut u8, Fault> {
    Ok(get()?.segments.place(dest, 1, pe as usize).map_or(std::ptr::null_mut(), Place::pointer))
}

/// Returns what this PE sent to PEs of other hosts so far, or none if all PEs are near.
pub fn far_traffic() -> Option<FarTraffic> {
    Some(get().ok()?.far.as_ref()?.traffic())
}

/// Describes this PE for a person, one fact on each line.
pub fn report() -> String {
    let Some(job) = JOB.get() else { return "not initialised\n".to_owned() };
    let statics = match &job.statics {
        Ok((start, length)) => format!("{length} bytes from {start:#x}"),
        Err(why) => format!("private: {why}"),
    };
    let heap = job.near.heap(job.place);
    let far = job.far.as_ref().map_or_else(
        || "no PE; near PEs need no wire and no class".to_owned(),
        |far| far.description().to_owned(),
    );
    format!(
        "version: Clearway {}, OpenSHMEM 1.6\nPE: {} of {} on {}\nnear: {} of {} PEs\nheap: {} bytes from {:#x}\nstatics: {statics}\n\
         far: {far}\n",
        env!("CARGO_PKG_VERSION"),
        job.me,
        job.segments.pes(),
        job.host,
        job.places,
        job.segments.pes(),
        heap.length,
        heap.start,
    )
}
