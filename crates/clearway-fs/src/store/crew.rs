//! Threads that do steps of a drain.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use clearway_proto::staging::{StepEnd, StoreTask};
use clearway_runtime::wake_signal::WakeSignal;

use super::StoreOptions;
use super::steps::StepRunner;

/// What the threads share with whoever gives them steps.
struct CrewState {
    lists: Mutex<CrewLists>,
    work: Condvar,
    signal: Arc<WakeSignal>,
    runner: StepRunner,
}

#[derive(Default)]
struct CrewLists {
    tasks: VecDeque<StoreTask>,
    ends: VecDeque<(u64, StepEnd)>,
    is_closed: bool,
}

/// The threads.
pub(super) struct Crew(Arc<CrewState>);

impl Crew {
    pub(super) fn new(options: &StoreOptions, signal: Arc<WakeSignal>) -> io::Result<Self> {
        let state = Arc::new(CrewState {
            lists: Mutex::default(),
            work: Condvar::new(),
            signal,
            runner: StepRunner::new(&options.store, &options.log),
        });
        for _ in 0..options.steps {
            let shared = Arc::clone(&state);
            let thread = std::thread::Builder::new().name("staging-store".into());
            thread.spawn(move || shared.run())?;
        }
        Ok(Self(state))
    }

    pub(super) fn begin(&self, task: StoreTask) {
        self.0.lock().tasks.push_back(task);
        self.0.work.notify_one();
    }

    pub(super) fn poll(&self) -> Option<(u64, StepEnd)> {
        self.0.lock().ends.pop_front()
    }

    pub(super) fn close(self) {
        let mut lists = self.0.lock();
        lists.is_closed = true;
        lists.tasks.clear();
        drop(lists);
        self.0.work.notify_all();
    }
}

impl CrewState {
    fn lock(&self) -> MutexGuard<'_, CrewLists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        loop {
            let lists = self.lock();
            let is_idle = |lists: &mut CrewLists| lists.tasks.is_empty() && !lists.is_closed;
            let waited = self.work.wait_while(lists, is_idle);
            let mut lists = waited.unwrap_or_else(PoisonError::into_inner);
            let Some(task) = lists.tasks.pop_front() else { return };
            drop(lists);
            let end = self.runner.carry_out(&task.step, &|| {});
            self.lock().ends.push_back((task.number, end));
            self.signal.raise();
        }
    }
}
