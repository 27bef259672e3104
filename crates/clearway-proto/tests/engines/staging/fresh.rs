//! When the drain copies a file that changed: not at once, because many change again or go.

use clearway_proto::base::{Bytes, Class, Nanos, xxh3};
use clearway_proto::staging::{
    ClientId, DrainPolicy, DrainWish, EntryName, GroupNumber, InodeId, LogCommand, LogEvent, LogId,
    LogOrigin, NodeKind, StepEnd, StoreDrain, StoreDrainConfig, StoreStep, TreeChange, WallNs,
};
use clearway_proto::wire::Span;

use super::machine::{ARENA, Machine, blank};

const APPLICATION: ClientId = ClientId(1);
const DRAINER: ClientId = ClientId(2);
const DELAY: Nanos = Nanos::from_secs(1);
const PASS: u64 = 64 << 10;
const LENGTH: u32 = 16 << 10;
const FILE: InodeId = InodeId(2);

/// A log with a store that takes everything.
struct DrainedLog {
    machine: Machine,
    drain: StoreDrain,
    last: u64,
}

impl DrainedLog {
    /// A log with a file without bytes, which the store has.
    fn new() -> Self {
        let machine = Machine::open(blank(), LogOrigin::New(LogId(1)), None).expect("a new log");
        let config = StoreDrainConfig {
            files: 1,
            names: 1,
            pass: Bytes(PASS),
            pause: Nanos::from_millis(10),
            delay: DELAY,
            look: 100,
            weights: vec![(Class::Bulk, 1)],
            recorded: 0,
        };
        let drain = StoreDrain::new(config, machine.state().tree());
        let mut log = Self { machine, drain, last: 0 };
        let (parent, name) = (InodeId::ROOT, EntryName::new(b"a").expect("a name"));
        let (inode, node) = (FILE, NodeKind::File);
        let create = TreeChange::Create { inode, parent, name, node, mode: 0o600, uid: 1, gid: 1 };
        log.change(create, Span::EMPTY);
        log.machine.now += DELAY;
        log.round();
        log
    }

    fn change(&mut self, change: TreeChange, body: Span) {
        self.last += 1;
        self.append(APPLICATION, self.last, change, body);
    }

    fn append(&mut self, client: ClientId, number: u64, change: TreeChange, body: Span) {
        let class = Class::Bulk;
        self.machine.command(LogCommand::Append { client, number, class, change, body });
        self.machine.command(LogCommand::Commit);
        while !self.machine.disk.pending.is_empty() {
            self.machine.end(0, None).expect("a good end");
        }
        while let Some(event) = self.machine.events.pop_front() {
            match event {
                LogEvent::Drainable { inode, version, size } => {
                    let (now, tree) = (self.machine.now, self.machine.state().tree());
                    self.drain.drainable(now, tree, (inode, version, size));
                }
                LogEvent::Durable { client: DRAINER, number } => self.drain.durable(number),
                LogEvent::Durable { .. } => self.drain.stir(),
                LogEvent::Applied { .. } => {}
                other => panic!("it is {other:?}"),
            }
        }
    }

    fn write(&mut self, at: u64) {
        let digest = xxh3(&self.machine.arena[..LENGTH as usize]);
        let body = Span { region: ARENA, offset: 0, length: LENGTH };
        self.change(TreeChange::Write { inode: FILE, offset: at, length: LENGTH, digest }, body);
    }

    /// Lets the drain do all that it wants now; how often it copies the file.
    fn round(&mut self) -> usize {
        let mut copies = 0;
        let (class, wish) = (Class::Bulk, DrainWish::All);
        let policy = move |_: &_, _| DrainPolicy { class, deadline: WallNs(0), due: None, wish };
        loop {
            if let Some((number, change)) = self.drain.next_record() {
                self.drain.record_taken(Ok(()));
                self.append(DRAINER, number, change, Span::EMPTY);
                continue;
            }
            let (now, durable) = (self.machine.now, GroupNumber(self.machine.log.durable()));
            match self.drain.next_task(now, self.machine.state(), durable, &policy) {
                Some(task) => {
                    copies += usize::from(matches!(task.step, StoreStep::Copy { .. }));
                    self.drain.end(now, self.machine.state(), task.number, StepEnd::Done);
                }
                None if self.drain.deadline().is_some_and(|at| at <= now) => {}
                None => return copies,
            }
        }
    }
}

#[test]
fn copy__a_file_that_changes_all_the_time_is_copied_once_in_each_delay() {
    let mut log = DrainedLog::new();
    for _ in 0..3 {
        log.write(0);
        let due = log.machine.now + DELAY;
        for _ in 0..9 {
            log.machine.now += Nanos(DELAY.0 / 10);
            log.write(0);
            assert_eq!((log.round(), log.drain.deadline()), (0, Some(due)));
            assert!(!log.drain.is_idle());
        }
        log.machine.now = due;
        assert_eq!(log.round(), 1);
        assert!(log.drain.is_idle() && log.drain.has(log.machine.state().tree(), FILE));
    }
}

#[test]
fn copy__a_file_that_goes_within_the_delay_is_never_copied() {
    let mut log = DrainedLog::new();
    log.write(0);
    let name = EntryName::new(b"a").expect("a name");
    log.change(TreeChange::Unlink { parent: InodeId::ROOT, name }, Span::EMPTY);
    log.change(TreeChange::Forget { inode: FILE }, Span::EMPTY);
    assert_eq!(log.round(), 0);
    log.machine.now += DELAY;
    assert_eq!(log.round(), 0);
    assert!(log.drain.is_idle());
}

#[test]
fn copy__nothing_is_left_alone_that_is_awaited_or_long_or_takes_space_that_is_wanted() {
    let mut log = DrainedLog::new();
    log.write(0);
    assert_eq!(log.round(), 0);
    log.drain.awaited(FILE);
    assert_eq!(log.round(), 1);

    log.write(0);
    assert_eq!(log.round(), 0);
    log.drain.set_delay(Nanos::ZERO);
    assert_eq!(log.round(), 1);
    log.write(0);
    assert_eq!(log.round(), 1);
    log.drain.set_delay(DELAY);

    (0..3).for_each(|part| log.write(part * u64::from(LENGTH)));
    assert_eq!(log.round(), 0);
    log.write(3 * u64::from(LENGTH));
    assert_eq!(log.round(), 1, "the bytes of a pass");
}
