//! The MPI program of a lab: whether it takes part, the tools of an MPI library that compile and start
//! it, and the times that it writes.
//!
//! # Model
//! The program marks nothing, so its messages have the class best-effort. Its ranks poll, and run on
//! the ranks' half of the processors. A run in which it fails has no figures of it; if it does not
//! start, later runs leave it out. The report says why.
//!
//! # Source
//! Options of `mpiexec`: MPICH 4.0 (Hydra), Open MPI 4.1.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use clearway_proto::base::{LocalNs, Nanos};
use clearway_runtime::clock;

use super::super::outcome::{Application, SharedRun};
use super::c_program::CProgram;
use crate::mechanism::congestion::program::ProgramGroup;
use crate::mechanism::congestion::windows::Windows;

/// The program.
pub(super) const PROGRAM: CProgram =
    CProgram { name: "mpi_ping", source: include_str!("mpi_ping.c") };
/// Processors from which on it takes part by itself: each rank polls on one of the ranks' half, and as
/// many are left for the other ranks.
const PROCESSORS_MIN: usize = 8;
/// Compilers and launchers of an MPI library: those that the user prefers, then the names by which
/// Debian keeps libraries apart.
const TOOLS: [[&str; 2]; 3] =
    [["mpicc", "mpiexec"], ["mpicc.mpich", "mpiexec.hydra"], ["mpicc.openmpi", "mpiexec.openmpi"]];
/// How long the program may take until it has written its first times.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How often they are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The least pause between two of its pings.
const PAUSE_MIN: Nanos = Nanos::from_micros(500);
/// Bytes that it writes for a round trip.
const TRIP_BYTES: usize = 16;

/// Whether the MPI program takes part in runs: before, during and after each phase.
pub(in super::super) struct MpiPart {
    /// None where it does not.
    tools: Option<MpiTools>,
    /// Where its figures are missing and why, each a sentence.
    warnings: Vec<String>,
}

impl MpiPart {
    /// Decides whether the program takes part, where the scenario's key `mpi` is `wanted`.
    pub(in super::super) fn new(wanted: Option<bool>) -> Self {
        let mut part = Self { tools: None, warnings: Vec::new() };
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let found = match wanted {
            Some(false) => return part,
            None if processors < PROCESSORS_MIN => Err(format!(
                "its ranks poll, and this machine has fewer than {PROCESSORS_MIN} processors ({processors}); `mpi = true` \
                 of [together] runs it all the same"
            )),
            _ => MpiTools::find(),
        };
        match found {
            Ok(tools) => part.tools = Some(tools),
            Err(why) => part.leave_out(&why),
        }
        part
    }

    /// Returns the tools that run the program, if it takes part.
    pub(super) const fn tools(&self) -> Option<MpiTools> {
        self.tools
    }

    /// Lets later runs go on without the program, because of `why`.
    pub(super) fn leave_out(&mut self, why: &str) {
        self.tools = None;
        self.warnings.push(format!("the MPI program was left out: {why}"));
    }

    /// Notes that the run called `name` has no figures of the program, because of `why`.
    pub(super) fn miss(&mut self, name: &str, why: &anyhow::Error) {
        self.warnings.push(format!("{name}: no figures of the MPI program: {why:#}"));
    }

    /// Returns where figures of the program are missing and why, as warnings.
    pub(in super::super) fn warnings(self) -> Vec<String> {
        self.warnings
    }
}

/// An MPI library, as far as its launcher differs from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MpiLibrary {
    Mpich,
    OpenMpi,
}

impl MpiLibrary {
    /// Recognises it by the version that its launcher prints.
    fn parse(version: &str) -> Option<Self> {
        if version.contains("HYDRA") {
            Some(Self::Mpich)
        } else {
            ["OpenRTE", "Open MPI"].iter().any(|it| version.contains(it)).then_some(Self::OpenMpi)
        }
    }
}

/// Tools of an MPI library.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct MpiTools {
    compiler: &'static str,
    launcher: &'static str,
    library: MpiLibrary,
}

impl MpiTools {
    /// Finds tools on PATH that compile the program.
    ///
    /// # Errors
    /// One sentence: what is not installed, or what the first compiler says.
    fn find() -> Result<Self, String> {
        let mut first = None;
        for [compiler, launcher] in TOOLS {
            let version = Command::new(launcher).arg("--version").stdin(Stdio::null()).output();
            let Ok(version) = version else { continue };
            let library = MpiLibrary::parse(&String::from_utf8_lossy(&version.stdout));
            let tried = match library {
                Some(library) => PROGRAM.try_compiler(Path::new(compiler)).map(|()| Self {
                    compiler,
                    launcher,
                    library,
                }),
                None => Err(format!("{launcher} belongs neither to MPICH nor to Open MPI")),
            };
            match tried {
                Ok(tools) => return Ok(tools),
                Err(why) => first = first.or(Some(why)),
            }
        }
        Err(first.unwrap_or_else(|| {
            "mpicc and mpiexec are not on PATH; install MPICH or Open MPI, and its headers"
                .to_owned()
        }))
    }

    pub(super) fn compiler(&self) -> &Path {
        Path::new(self.compiler)
    }

    /// Returns the beginning of a line for the shell that starts a rank at each of two `addresses`, the
    /// first of them here; `reach` holds the `ssh` that reaches them, and what launchers leave there, as
    /// a word of the shell.
    pub(super) fn launch(&self, reach: &str, [first, second]: [&str; 2]) -> String {
        let launcher = self.launcher;
        match self.library {
            // Without the two variables ranks find shared memory, whose names are those of the whole machine.
            MpiLibrary::Mpich => format!(
                "TMPDIR={reach} exec {launcher} -launcher ssh -launcher-exec {reach}/ssh -localhost {first} -hosts {first},{second} \
                 -ppn 1 -n 2 -genv UCX_TLS tcp -genv MPIR_CVAR_NOLOCAL 1"
            ),
            MpiLibrary::OpenMpi => format!(
                "TMPDIR={reach} OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 exec {launcher} --mca plm rsh --mca plm_rsh_agent {reach}/ssh \
                 -H {first},{second} --mca pml ob1 --mca btl tcp,self --mca mpi_yield_when_idle 1 --bind-to none -n 2"
            ),
        }
    }
}

/// The program in one run.
pub(super) struct MpiRun {
    group: ProgramGroup,
    /// The file in which it writes its times.
    times: PathBuf,
    started: LocalNs,
    /// Why it failed, if so.
    failure: Option<anyhow::Error>,
}

impl MpiRun {
    /// Starts the program of `group`, which writes `times`, and waits until it pings.
    ///
    /// # Errors
    /// One sentence: it fails, or does not ping.
    pub(super) fn start(mut group: ProgramGroup, times: PathBuf) -> Result<Self> {
        let started = clock::now();
        group.run_repeatedly()?;
        let until = Instant::now() + TIMEOUT;
        while !times.metadata().is_ok_and(|file| file.len() > 0) {
            group.check()?;
            if Instant::now() >= until {
                bail!("it does not ping within {} s of its start", TIMEOUT.as_secs());
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(Self { group, times, started, failure: None })
    }

    /// Looks whether the program failed.
    pub(super) fn check(&mut self) {
        if self.failure.is_none() {
            self.failure = self.group.check().err();
        }
    }

    /// Ends the program after a phase; returns its times.
    ///
    /// # Errors
    /// One sentence: it failed, or wrote what cannot be.
    pub(super) fn finish(mut self) -> Result<Vec<RoundTrip>> {
        self.check();
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        self.group.stop()?;
        let lifetime = [self.started, clock::now()];
        // One more would be too many, and is enough to see it.
        let room = (most_trips(lifetime) as u64 + 1).saturating_mul(TRIP_BYTES as u64);
        let mut bytes = Vec::new();
        let file = File::open(&self.times).map(|file| file.take(room));
        file.and_then(|mut file| file.read_to_end(&mut bytes))
            .map_err(|why| anyhow!("its times cannot be read: {why}"))?;
        round_trips(&bytes, lifetime).map_err(anyhow::Error::msg)
    }
}

/// A ping of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RoundTrip {
    begin: LocalNs,
    length: Nanos,
}

/// Returns the most pings that a program can make between two times.
fn most_trips([from, until]: [LocalNs; 2]) -> usize {
    usize::try_from(until.since(from).0 / PAUSE_MIN.0 + 1).unwrap_or(usize::MAX)
}

/// Parses what a program wrote that ran from `lifetime[0]` until `lifetime[1]`. A last ping without an
/// answer counts as one that took until then: without it, the slowest one would be missing.
///
/// # Errors
/// One sentence: its times are not of that time.
fn round_trips(bytes: &[u8], lifetime: [LocalNs; 2]) -> Result<Vec<RoundTrip>, String> {
    let (records, rest) = bytes.as_chunks::<TRIP_BYTES>();
    let most = most_trips(lifetime);
    if records.len() > most {
        return Err(format!("it wrote times of more pings than the {most} that its pauses allow"));
    }
    let mut trips: Vec<RoundTrip> = Vec::with_capacity(records.len());
    let mut earliest = lifetime[0];
    for (number, record) in (1..).zip(records) {
        let (begin, length) = record.split_at(TRIP_BYTES / 2);
        let [begin, length] =
            [begin, length].map(|it| it.try_into().map_or(u64::MAX, u64::from_ne_bytes));
        let end = begin.checked_add(length).map(LocalNs).filter(|end| *end <= lifetime[1]);
        let trip = RoundTrip { begin: LocalNs(begin), length: Nanos(length) };
        let Some(end) = end.filter(|_| trip.begin >= earliest) else {
            return Err(format!(
                "ping {number} of those that it wrote lies outside the time in which it ran"
            ));
        };
        earliest = end;
        trips.push(trip);
    }
    let unanswered = rest.first_chunk().map(|begin| LocalNs(u64::from_ne_bytes(*begin)));
    trips.extend(
        unanswered
            .filter(|begin| (earliest..=lifetime[1]).contains(begin))
            .map(|begin| RoundTrip { begin, length: lifetime[1].since(begin) }),
    );
    Ok(trips)
}

/// Adds `trips` to `run`, whose `windows` are counted from `begin`. A ping that lasts longer than the
/// time with transfers, so that none begins in it, counts as one of that time.
///
/// # Errors
/// One sentence: none is of a window that counts; then none is added.
pub(super) fn add_trips(
    run: &mut SharedRun,
    trips: &[RoundTrip],
    begin: LocalNs,
    windows: &Windows,
) -> Result<(), String> {
    let loaded = [windows.congested.from, windows.congested.until]
        .map(|slice| begin + windows.grid.slices(slice));
    let slice_of = |trip: &RoundTrip| {
        if trip.begin < loaded[0] && trip.begin + trip.length > loaded[1] {
            return Some(windows.congested.from);
        }
        let slice = trip.begin.since(begin).0 / windows.grid.slice.0.max(1);
        u32::try_from(slice).ok().filter(|_| trip.begin >= begin)
    };
    let counted: Vec<(u32, Nanos)> =
        trips.iter().filter_map(|trip| Some((slice_of(trip)?, trip.length))).collect();
    let has_any = |counts: &dyn Fn(u32) -> bool| counted.iter().any(|(slice, _)| counts(*slice));
    let is_congested = |slice| windows.congested.contains(slice);
    if !has_any(&|slice| windows.isolated(slice)) || !has_any(&is_congested) {
        return Err(format!(
            "it made no ping in a time that counts, of {} that it made; its ranks need two processors of their own",
            trips.len()
        ));
    }
    for (slice, length) in counted {
        run.timed(Application::MpiPing, slice, length);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clearway_proto::base::RandomKey;
    use clearway_proto::stats::Histogram;

    use super::super::super::outcome::TransferSet;
    use super::*;
    use crate::mechanism::congestion::windows::Grid;

    const LIFETIME: [LocalNs; 2] = [LocalNs(1_000_000_000), LocalNs(1_002_000_000)];

    /// When the phase of [`measured`] begins.
    const BEGIN: LocalNs = LocalNs(5_000_000_000);

    /// Creates a run that has no times yet, and its windows.
    fn measured() -> (Windows, SharedRun) {
        let slice = Nanos::from_millis(100);
        let grid = Grid { slice, drain: Nanos::ZERO };
        let windows = Windows::new(grid, slice.times(4), slice.times(2));
        let run = SharedRun::new("fifo", TransferSet::All, windows.after.until);
        (windows, run)
    }

    /// Creates a ping that begins in `slice`.
    fn trip_in(windows: &Windows, slice: u32, length: Nanos) -> RoundTrip {
        RoundTrip { begin: BEGIN + windows.grid.slices(slice) + Nanos(1), length }
    }

    fn written(trips: &[[u64; 2]]) -> Vec<u8> {
        trips.as_flattened().iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn round_trips__a_last_one_without_an_answer_takes_until_the_end() {
        let mut bytes = written(&[[1_000_500_000, 30_000], [1_001_100_000, 40_000]]);
        let second = RoundTrip { begin: LocalNs(1_001_100_000), length: Nanos(40_000) };
        assert_eq!(round_trips(&bytes, LIFETIME).map(|it| it[1..].to_vec()), Ok(vec![second]));
        bytes.pop();
        // It takes at least until the program ends.
        let unanswered = RoundTrip { length: Nanos(900_000), ..second };
        assert_eq!(round_trips(&bytes, LIFETIME).map(|it| it[1..].to_vec()), Ok(vec![unanswered]));
        assert_eq!(round_trips(&bytes[..5], LIFETIME), Ok(Vec::new()));
    }

    #[test]
    fn round_trips__times_that_cannot_be_are_refused() {
        let refused = |trips: &[[u64; 2]]| round_trips(&written(trips), LIFETIME).unwrap_err();
        assert!(refused(&[[999_999_999, 1]]).starts_with("ping 1"));
        assert!(refused(&[[1_000_500_000, 10], [1_000_500_005, 10]]).starts_with("ping 2"));
        assert!(refused(&[[1_000_500_000, 2_000_000]]).starts_with("ping 1"));
        assert!(refused(&[[1_000_500_000, u64::MAX]]).starts_with("ping 1"));
        // Pauses of half a millisecond leave room for five in two.
        assert!(round_trips(&written(&[[1_000_000_000, 0]; 5]), LIFETIME).is_ok());
        assert!(refused(&[[1_000_000_000, 0]; 6]).contains("more pings than the 5 that"));
    }

    #[test]
    fn round_trips__any_bytes_do_no_harm() {
        let mut stream = RandomKey::new(1).purpose("bytes").stream();
        for length in 0..200 {
            let bytes: Vec<u8> = (0..length).map(|_| stream.next_u64() as u8).collect();
            let [from, until] = [stream.next_u64(), stream.next_u64()].map(LocalNs);
            let trips = round_trips(&bytes, [from, until]).unwrap_or_default();
            assert!(trips.iter().all(|it| it.begin >= from && it.begin + it.length <= until));
        }
    }

    #[test]
    fn add_trips__pings_count_in_the_window_in_which_they_begin() {
        let (windows, mut run) = measured();
        let at = |slice: u32, length: u64| trip_in(&windows, slice, Nanos(length));
        let early = RoundTrip { begin: LocalNs(BEGIN.0 - 1), length: Nanos(1) };
        let trips = [
            early,
            at(0, 2),
            at(windows.before.from, 30),
            at(windows.congested.from, 40),
            at(windows.congested.until - 1, 50),
            at(windows.after.from, 60),
            at(windows.after.until, 7),
        ];
        for few in [&trips[..3], &trips[3..5]] {
            let refused = add_trips(&mut run, few, BEGIN, &windows);
            assert!(refused.is_err_and(|why| why.starts_with("it made no ping")));
        }
        assert!(!run.has_run(Application::MpiPing));
        assert_eq!(add_trips(&mut run, &trips, BEGIN, &windows), Ok(()));
        let isolated = run.times(Application::MpiPing, |slice| windows.isolated(slice));
        assert_eq!([30, 60].into_iter().collect::<Histogram>(), isolated);
        let loaded = run.times(Application::MpiPing, |slice| windows.congested.contains(slice));
        assert_eq!([40, 50].into_iter().collect::<Histogram>(), loaded);
    }

    #[test]
    fn add_trips__a_ping_that_lasts_through_the_load_is_one_under_load() {
        let (windows, mut run) = measured();
        let last = windows.before.until - 1;
        let through = windows.grid.slices(windows.congested.until - last);
        let short = trip_in(&windows, windows.before.from, Nanos(30));
        let trips = [short, trip_in(&windows, last, through)];
        assert_eq!(add_trips(&mut run, &trips, BEGIN, &windows), Ok(()));
        let isolated = run.times(Application::MpiPing, |slice| windows.isolated(slice));
        assert_eq!([30].into_iter().collect::<Histogram>(), isolated);
        let loaded = run.times(Application::MpiPing, |slice| windows.congested.contains(slice));
        assert_eq!([through.0].into_iter().collect::<Histogram>(), loaded);
    }

    #[test]
    fn warnings__name_each_run_without_figures_and_why_the_program_was_left_out() {
        let mut part = MpiPart::new(Some(false));
        assert!(part.tools().is_none() && part.warnings.is_empty(), "nobody asked for it");
        part.miss("fifo, cast", &anyhow!("it failed"));
        part.leave_out("mpicc failed");
        let expected = [
            "fifo, cast: no figures of the MPI program: it failed",
            "the MPI program was left out: mpicc failed",
        ];
        assert_eq!(part.warnings(), expected);
    }

    #[test]
    fn parse__libraries_are_known_by_their_launchers() {
        let mpich = "HYDRA build details:\n    Version: 4.0.2\n";
        assert_eq!(MpiLibrary::parse(mpich), Some(MpiLibrary::Mpich));
        assert_eq!(MpiLibrary::parse("mpiexec (OpenRTE) 4.1.4"), Some(MpiLibrary::OpenMpi));
        assert_eq!(MpiLibrary::parse("mpirun (Open MPI) 5.0.3"), Some(MpiLibrary::OpenMpi));
        assert_eq!(MpiLibrary::parse("another 1.0"), None);
    }
}
