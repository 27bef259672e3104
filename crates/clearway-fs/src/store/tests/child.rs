//! A child that is killed, stopped, or none.

use clearway_proto::base::RandomKey;
use clearway_proto::staging::{InodeId, StepEnd, StoreStep};
use clearway_proto::wire::Fault;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::against_model::{Doing, ModelTrial};
use super::*;

fn pid(store: &TestStore) -> Option<Pid> {
    store.worker.process().and_then(|process| Pid::from_raw(process as i32))
}

/// Stops a process, and waits until all its threads are.
fn stop(process: Pid) {
    kill_process(process, Signal::STOP).expect("stopped");
    let tasks = PathBuf::from(format!("/proc/{process}/task"));
    let is_stopped = |task: &Path| {
        let stat = fs::read_to_string(task.join("stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|behind| behind.starts_with(" T"))
    };
    let all = || fs::read_dir(&tasks).expect("there").map(|task| task.expect("one").path());
    while !all().all(|task| is_stopped(&task)) {
        std::thread::yield_now();
    }
}

fn sweep() -> StoreStep {
    StoreStep::Sweep { keeps: Vec::new() }
}

/// Does steps while children are killed.
fn kill_at_random(seed: u64, steps: u32) -> u32 {
    let mut stream = RandomKey::new(seed).purpose("kills").stream();
    let mut trial = ModelTrial::new(seed, TestDirectory::in_memory());
    let mut store = TestStore::at(trial.directory.path(), |_| {});
    let mut kills = 0;
    let mut carry_out = |step: &StoreStep| {
        loop {
            store.begin(step);
            if stream.below(4) == 0
                && let Some(child) = pid(&store)
            {
                // Some microseconds, up to the usual length of a step.
                for _ in 0..stream.below(20_000) {
                    std::hint::spin_loop();
                }
                let _ = kill_process(child, Signal::KILL);
                kills += 1;
            }
            match store.wait().1 {
                StepEnd::Failed(Fault::Io) | StepEnd::Stuck => {}
                end => return end,
            }
        }
    };
    trial.run(steps, Doing::Again(&mut carry_out));
    store.worker.close();
    kills
}

#[test]
fn begin__a_step_that_a_killed_child_had_is_done_again() {
    let kills: u32 = (20..23).map(|seed| kill_at_random(seed, 40)).sum();
    assert!(kills > 10, "{kills}");
}

#[test]
fn begin__a_child_that_makes_no_progress_is_given_up() {
    let mut store = TestStore::new(|options| options.timeout = Duration::from_millis(300));
    // A busy disk may need longer than that for a sync.
    while store.carry_out(&sweep()) == StepEnd::Stuck {}
    let first = pid(&store).expect("a child");
    stop(first);
    let mut begun: Vec<u64> = (0..5).map(|_| store.begin(&sweep())).collect();
    for _ in 0..5 {
        let (number, end) = store.wait();
        assert_eq!(end, StepEnd::Stuck);
        begun.retain(|begun| *begun != number);
    }
    assert!(begun.is_empty(), "{begun:?}");
    // Another one is started when the first is reaped.
    while store.carry_out(&sweep()) == StepEnd::Stuck {}
    assert_ne!(pid(&store), Some(first));
    assert!(test_kill_process(first).is_err(), "it is still there");
}

#[test]
fn begin__a_child_that_ends_or_talks_nonsense_fails_its_steps() {
    let nonsense = "printf '\\377\\377\\377\\377' >&0; sleep 100";
    let other = "printf '\\011\\0\\0\\0aaaaaaaa\\0' >&0; sleep 100";
    for command in ["exit 0", nonsense, other] {
        let mut store = TestStore::new(|options| {
            options.program = "/bin/sh".into();
            options.arguments = ["-c", command].map(Into::into).into();
        });
        assert_eq!(store.carry_out(&sweep()), StepEnd::Failed(Fault::Io), "{command}");
        store.worker.close();
    }
    let mut store = TestStore::new(|options| options.program = "/there/is/none".into());
    assert_eq!(store.carry_out(&sweep()), StepEnd::Failed(Fault::Io));
    store.worker.close();
}

/// The program of a child that panics.
#[test]
fn report_panics__as_a_child() {
    if std::env::args().any(|argument| argument == "--exact") {
        super::super::child::report_panics();
        panic!("planted\nhere");
    }
}

#[test]
fn begin__a_panic_of_a_child_is_a_line_for_the_operator() {
    let mut store = TestStore::new(|options| {
        options.arguments =
            ["store::tests::child::report_panics__as_a_child", "--exact"].map(Into::into).into();
    });
    assert_eq!(store.carry_out(&sweep()), StepEnd::Failed(Fault::Io));
    let mut lines = std::iter::from_fn(|| store.worker.take_line());
    let line = lines.find(|line| line.contains("bug")).expect("a line");
    assert!(
        line.contains("it ends because of a bug: ") && line.ends_with("planted here"),
        "{line}"
    );
    store.worker.close();
}

#[test]
fn begin__a_child_that_writes_without_end_does_not_fill_the_memory() {
    let mut store = TestStore::new(|options| {
        options.program = "/bin/sh".into();
        options.arguments = ["-c", "yes >&2 & sleep 0.2; kill $!; exit 1"].map(Into::into).into();
    });
    assert_eq!(store.carry_out(&sweep()), StepEnd::Failed(Fault::Io));
    let lines = std::iter::from_fn(|| store.worker.take_line()).count();
    assert!((1..=16).contains(&lines), "{lines}");
    store.worker.close();
}

#[test]
fn close__the_child_has_ended_then() {
    let mut store = TestStore::new(|_| {});
    assert_eq!(store.carry_out(&sweep()), StepEnd::Done);
    let child = pid(&store).expect("a child");
    store.worker.close();
    assert!(test_kill_process(child).is_err(), "it is still there");
    // One that is stopped does not see that.
    let mut store = TestStore::new(|options| options.timeout = Duration::from_millis(100));
    assert_eq!(store.carry_out(&sweep()), StepEnd::Done);
    let child = pid(&store).expect("a child");
    stop(child);
    store.worker.close();
    assert!(test_kill_process(child).is_err(), "it is still there");
}

#[test]
fn begin__a_store_is_changed_by_one_process() {
    let mut store = TestStore::new(|_| {});
    assert_eq!(store.carry_out(&sweep()), StepEnd::Done);
    let mut other = TestStore::at(&store.directory, |_| {});
    assert_eq!(other.carry_out(&StoreStep::Drop { inode: InodeId(5) }), StepEnd::Stuck);
    store.worker.close();
    assert_eq!(other.carry_out(&StoreStep::Drop { inode: InodeId(5) }), StepEnd::Done);
    other.worker.close();
}
