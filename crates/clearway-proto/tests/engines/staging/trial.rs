//! Drawn programs on a log whose disk ends operations in any order, fails and loses power; what must
//! hold after each of them.
//!
//! # Model
//! After each operation of the disk, the disk is looked at as drawn crashes would leave it: a fresh
//! engine opens the copy. What it finds must be the reference tree after the first *k* calls, for
//! some *k* such that every call that a client learned to be durable is among them. Drained files
//! are read from a model of the backing store, which no crash touches.

use std::collections::BTreeMap;
use std::rc::Rc;

use clearway_proto::base::{Class, Nanos, RandomKey, RandomStream, xxh3};
use clearway_proto::staging::{
    AttributeSet, ClientId, EntryName, InodeId, LogCommand, LogError, LogEvent, LogId, LogOrigin,
    NodeKind, SpecialKind, SpecialNode, TreeChange, WallNs,
};
use clearway_proto::wire::{Fault, FileKind, Span};

use super::disk::{CrashKind, TrialDisk};
use super::faulty::PlantedLogFault;
use super::machine::{ARENA, Machine, SLOT, SLOTS, blank, segment_files};
use super::model::ModelTree;

/// The client that drains.
const DRAINER: ClientId = ClientId(9);

/// What a trial is.
#[derive(Clone, Debug)]
pub(super) struct TrialPlan {
    pub(super) seed: u64,
    /// Things that happen.
    pub(super) steps: u32,
    /// Crashes that are looked at after each operation.
    pub(super) crashes: u64,
    /// Of a thousand steps, how many are a crash that is lived through.
    pub(super) deaths: u64,
    /// Of a thousand operations, how many fail.
    pub(super) failures: u64,
    /// Of a hundred versions that could be drained, how many are.
    pub(super) drains: u64,
    pub(super) fault: Option<PlantedLogFault>,
}

/// What a trial did, for tests that want to know whether it did anything.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TrialFigures {
    pub(super) calls: u64,
    pub(super) crashes: u64,
    pub(super) full: u64,
    pub(super) retired: u64,
    pub(super) drained: u64,
    pub(super) known: u64,
    /// Bytes that compaction moved.
    pub(super) moved: u64,
}

pub(super) struct Trial {
    plan: TrialPlan,
    stream: RandomStream,
    key: RandomKey,
    machine: Machine,
    /// The reference after each number of calls.
    history: Vec<ModelTree>,
    /// Calls that were applied.
    calls: Vec<(ClientId, u64)>,
    numbers: BTreeMap<ClientId, u64>,
    durable: BTreeMap<ClientId, u64>,
    /// What was durable when the last durable group was this one.
    durable_at: Vec<(u64, BTreeMap<ClientId, u64>)>,
    backing: BTreeMap<u64, Rc<Vec<u8>>>,
    /// Copies in the backing store that are not recorded.
    copied: Vec<TreeChange>,
    /// Slots of the arena, and the calls that need them.
    slots: Vec<Option<(ClientId, u64)>>,
    has_failed: bool,
    is_stopped: bool,
    pub(super) figures: TrialFigures,
}

/// Draws a change, and the bytes of its body.
pub(super) fn draw_change(
    stream: &mut RandomStream,
    model: &ModelTree,
    next: InodeId,
) -> (TreeChange, Vec<u8>) {
    let (inodes, names, nameless) = (model.inodes(), model.names(), model.nameless());
    let mut inode = || InodeId(inodes[stream.below(inodes.len() as u64) as usize]);
    let (one, other) = (inode(), inode());
    let new_name = EntryName::new(format!("n{}", stream.below(12)).as_bytes()).expect("a name");
    let entry =
        (!names.is_empty()).then(|| names[stream.below(names.len() as u64) as usize].clone());
    let (from, name) = entry.map_or((one, new_name.clone()), |(parent, name)| {
        (InodeId(parent), EntryName::new(&name).expect("a name"))
    });
    let kind = if inodes.len() < 4 { 3 } else { stream.below(22) };
    let change = match kind {
        0..3 if inodes.len() < 24 => {
            let node = match stream.below(8) {
                0 | 1 => NodeKind::Directory,
                2 => NodeKind::Symlink(b"somewhere/else"[..].into()),
                3 => {
                    let kind = SpecialKind::Character;
                    NodeKind::Special(SpecialNode { kind, device: stream.below(9) as u32 })
                }
                _ => NodeKind::File,
            };
            let mode = stream.below(0o1000) as u32;
            let parent = one;
            TreeChange::Create { inode: next, parent, name: new_name, node, mode, uid: 5, gid: 6 }
        }
        3 => {
            let (parent, node) = (InodeId::ROOT, NodeKind::File);
            TreeChange::Create {
                inode: next,
                parent,
                name: new_name,
                node,
                mode: 0o644,
                uid: 1,
                gid: 2,
            }
        }
        4 => TreeChange::Link { inode: one, parent: other, name: new_name },
        5 => TreeChange::Unlink { parent: from, name },
        6 => TreeChange::RemoveDirectory { parent: from, name },
        7 | 8 => TreeChange::Rename { from, name, to: other, new_name },
        9 => {
            let set = AttributeSet {
                mode: (stream.below(2) == 0).then_some(0o600),
                owner: (stream.below(2) == 0).then_some((7, 8)),
                mtime: (stream.below(2) == 0).then_some(WallNs(5)),
                atime: (stream.below(3) == 0).then_some(WallNs(6)),
            };
            TreeChange::Attributes { inode: one, set }
        }
        10 => {
            let value = vec![1; stream.below(900) as usize].into();
            TreeChange::SetXattr { inode: one, name: new_name, value }
        }
        11 => TreeChange::UnsetXattr { inode: one, name: new_name },
        12 => TreeChange::Truncate { inode: one, size: stream.below(30_000) },
        13 if !nameless.is_empty() => TreeChange::Forget { inode: InodeId(nameless[0]) },
        _ => {
            let (offset, length) = (stream.below(24_000), 1 + stream.below(SLOT as u64));
            let length = if stream.below(3) == 0 { length.min(700) } else { length } as usize;
            let bytes: Vec<u8> = (0..length).map(|_| stream.next_u64() as u8).collect();
            let (length, digest) = (length as u32, xxh3(&bytes));
            return (TreeChange::Write { inode: one, offset, length, digest }, bytes);
        }
    };
    (change, Vec::new())
}

impl Trial {
    pub(super) fn new(plan: TrialPlan) -> Result<Self, String> {
        let key = RandomKey::new(plan.seed).purpose("staging trial");
        // The files had a log before.
        let before = Machine::open(blank(), LogOrigin::New(LogId(7)), None)?;
        let mut trial = Self {
            stream: key.stream(),
            key,
            machine: before,
            history: vec![ModelTree::new()],
            calls: Vec::new(),
            numbers: BTreeMap::new(),
            durable: BTreeMap::new(),
            durable_at: Vec::new(),
            backing: BTreeMap::new(),
            copied: Vec::new(),
            slots: vec![None; SLOTS],
            has_failed: false,
            is_stopped: false,
            figures: TrialFigures::default(),
            plan: TrialPlan { failures: 0, crashes: 0, fault: None, ..plan.clone() },
        };
        for _ in 0..6 {
            trial.call()?;
        }
        trial.settle()?;
        let mut disk = trial.machine.disk.crashed(CrashKind::Kill);
        disk.sync_all();
        trial.machine = Machine::open(disk, LogOrigin::New(LogId(8)), plan.fault)?;
        trial.plan = plan;
        trial.forget_all();
        (trial.numbers, trial.durable) = (BTreeMap::new(), BTreeMap::new());
        (trial.calls, trial.history) = (Vec::new(), vec![ModelTree::new()]);
        trial.backing.clear();
        Ok(trial)
    }

    fn forget_all(&mut self) {
        self.slots.fill(None);
        self.copied.clear();
        self.durable_at.clear();
        (self.has_failed, self.is_stopped) = (false, false);
    }

    fn model(&self) -> &ModelTree {
        self.history.last().expect("the first state")
    }

    pub(super) fn run(&mut self) -> Result<(), String> {
        for _ in 0..self.plan.steps {
            match self.stream.below(10) {
                _ if self.stream.below(1000) < self.plan.deaths => self.die()?,
                0..4 => self.call()?,
                4 if self.stream.below(3) == 0 => {
                    self.machine.now += Nanos::from_millis(self.stream.below(1500));
                    self.machine.tick();
                    self.hear()?;
                }
                5 => self.record_drained()?,
                _ => self.end_one()?,
            }
        }
        self.end_all()?;
        self.find_rot_under_load()?;
        self.settle()?;
        self.look_at_crashes(8)?;
        self.find_rot(&Self::check)?;
        if !self.is_stopped { self.drain_everything() } else { Ok(()) }
    }

    fn end_one(&mut self) -> Result<(), String> {
        let pending = &self.machine.disk.pending;
        if pending.is_empty() {
            return Ok(());
        }
        let index = self.stream.below(pending.len() as u64) as usize;
        let can_fail = pending[index].kind != FileKind::Read;
        let fails = can_fail && self.stream.below(1000) < self.plan.failures;
        let fault = fails.then_some(Fault::Io);
        self.has_failed |= fails;
        self.machine.end(index, fault)?;
        self.hear()?;
        self.look_at_crashes(self.plan.crashes)
    }

    /// Ends everything; what was applied must be durable.
    fn settle(&mut self) -> Result<(), String> {
        self.machine.command(LogCommand::Finish);
        self.hear()?;
        self.end_all()?;
        for (client, number) in &self.calls {
            let durable = self.durable.get(client).copied().unwrap_or(0);
            if *number > durable && !self.is_stopped {
                return Err(format!("call {number} of {client:?} never became durable"));
            }
        }
        Ok(())
    }

    fn end_all(&mut self) -> Result<(), String> {
        let failures = std::mem::replace(&mut self.plan.failures, 0);
        let mut left = 20_000;
        while !self.machine.disk.pending.is_empty() {
            self.end_one()?;
            left -= 1;
            if left == 0 {
                return Err("it never ends".into());
            }
        }
        self.plan.failures = failures;
        Ok(())
    }

    /// Hears what the engine says that is no answer to a call.
    fn hear(&mut self) -> Result<(), String> {
        while let Some(event) = self.machine.events.pop_front() {
            match event {
                LogEvent::Durable { client, number } => {
                    let durable = self.durable.entry(client).or_insert(0);
                    *durable = number.max(*durable);
                    let is_issued = self.numbers.get(&client).is_some_and(|last| number <= *last);
                    if !is_issued {
                        return Err(format!("call {number} of {client:?} is durable, not issued"));
                    }
                    for slot in 0..SLOTS {
                        if self.slots[slot].is_some_and(|(c, n)| c == client && n <= number) {
                            self.slots[slot] = None;
                            self.machine.arena[slot * SLOT..(slot + 1) * SLOT].fill(0xdd);
                        }
                    }
                }
                LogEvent::Drainable { inode, version, size } => self.copy(inode, version, size)?,
                LogEvent::Notice(LogError::Retired { .. }) => self.figures.retired += 1,
                LogEvent::Notice(_) | LogEvent::Finished => {}
                LogEvent::Stopped(_) => {
                    self.is_stopped = true;
                    if !self.has_failed {
                        return Err("it stopped without a failure".into());
                    }
                }
                other => return Err(format!("nobody asked for {other:?}")),
            }
        }
        self.durable_at.push((self.machine.log.durable(), self.durable.clone()));
        self.figures.moved = self.figures.moved.max(self.machine.log.moved());
        Ok(())
    }

    /// Copies a version of a file into the backing store.
    fn copy(&mut self, inode: InodeId, version: u64, size: u64) -> Result<(), String> {
        let content = self.machine.state().tree().content(inode);
        let is_current = content.is_some_and(|content| content.version() == version);
        if !is_current || self.stream.below(100) >= self.plan.drains {
            return Ok(());
        }
        let bytes = self.model().bytes(inode.0).ok_or("a drainable inode that is no file")?;
        if bytes.len() as u64 != size {
            return Err(format!("inode {} is drainable with {size} bytes", inode.0));
        }
        self.backing.insert(inode.0, bytes);
        self.copied.push(TreeChange::Drained { inode, version, size });
        Ok(())
    }

    fn record_drained(&mut self) -> Result<(), String> {
        if self.copied.is_empty() {
            return Ok(());
        }
        let change = self.copied.remove(0);
        self.figures.drained += 1;
        self.issue(DRAINER, change, &[])
    }

    /// Makes a drawn call.
    fn call(&mut self) -> Result<(), String> {
        let client = ClientId(1 + self.stream.below(2));
        if self.stream.below(30) == 0 {
            return self.resend(client);
        }
        let Some(slot) = self.slots.iter().position(Option::is_none) else { return Ok(()) };
        let (change, bytes) = self.draw();
        if !bytes.is_empty() {
            self.machine.arena[slot * SLOT..slot * SLOT + bytes.len()].copy_from_slice(&bytes);
            let number = self.numbers.get(&client).map_or(1, |number| number + 1);
            self.slots[slot] = Some((client, number));
        }
        self.issue(client, change, &bytes)
    }

    fn issue(&mut self, client: ClientId, change: TreeChange, bytes: &[u8]) -> Result<(), String> {
        let number = self.numbers.get(&client).map_or(1, |number| number + 1);
        self.numbers.insert(client, number);
        let slot = self.slots.iter().position(|slot| *slot == Some((client, number)));
        let body = slot.map_or(Span::EMPTY, |slot| Span {
            region: ARENA,
            offset: (slot * SLOT) as u64,
            length: bytes.len() as u32,
        });
        let mut model = self.model().clone();
        let expected = model.apply(&change, bytes);
        let class = Class::Bulk;
        self.figures.calls += 1;
        self.machine.command(LogCommand::Append {
            client,
            number,
            class,
            change: change.clone(),
            body,
        });
        let answer = self.machine.events.pop_front();
        let is_drain = client == DRAINER;
        let refused = match answer {
            Some(LogEvent::Applied { client: c, number: n }) if (c, n) == (client, number) => {
                expected.map_err(|why| format!("{change:?} was made, but {why}"))?;
                self.history.push(model);
                self.calls.push((client, number));
                if self.stream.below(2) == 0 {
                    self.machine.command(LogCommand::Commit);
                }
                return self.hear();
            }
            Some(LogEvent::Refused { why, .. }) => why,
            other => return Err(format!("{change:?} was answered by {other:?}")),
        };
        self.numbers.insert(client, number - 1);
        if let Some(slot) = slot {
            self.slots[slot] = None;
        }
        match refused {
            LogError::Full => self.figures.full += 1,
            LogError::Busy => {}
            LogError::Stopped(_) if self.is_stopped || self.has_failed => {}
            LogError::Tree(_) if is_drain || expected.is_err() => {}
            why => return Err(format!("{change:?} was refused: {why}")),
        }
        self.hear()
    }

    /// Sends a call again that was made before.
    fn resend(&mut self, client: ClientId) -> Result<(), String> {
        let made = self.calls.iter().rev().find(|(other, _)| *other == client);
        let Some((_, number)) = made.copied() else { return Ok(()) };
        let change = TreeChange::Truncate { inode: InodeId(2), size: 77 };
        let (class, body) = (Class::Bulk, Span::EMPTY);
        self.machine.command(LogCommand::Append { client, number, class, change, body });
        match self.machine.events.pop_front() {
            Some(LogEvent::Known { .. }) => self.figures.known += 1,
            Some(LogEvent::Refused { why: LogError::Stopped(_), .. }) if self.is_stopped => {}
            other => return Err(format!("a call that was made before was answered by {other:?}")),
        }
        self.hear()
    }

    fn draw(&mut self) -> (TreeChange, Vec<u8>) {
        let next = self.machine.state().tree().next_inode();
        let model = self.history.last().expect("the first state");
        draw_change(&mut self.stream, model, next)
    }

    /// Looks at what `crashes` drawn losses of power would leave.
    fn look_at_crashes(&mut self, crashes: u64) -> Result<(), String> {
        for crash in 0..crashes {
            self.figures.crashes += 1;
            let key = self.key.node(self.figures.crashes);
            let kind = if crash == 1 && !self.has_failed {
                CrashKind::Kill
            } else {
                CrashKind::Power(key)
            };
            let disk = self.machine.disk.crashed(kind);
            let opened = Machine::open(disk, LogOrigin::Existing, self.plan.fault);
            let opened = opened.map_err(|why| format!("after {kind:?}: {why}"))?;
            self.check(&opened).map_err(|why| format!("after {kind:?}: {why}"))?;
        }
        Ok(())
    }

    /// Checks what was found: some first calls, all durable ones among them, and what they make.
    /// Returns how many.
    fn check(&self, opened: &Machine) -> Result<usize, String> {
        let found = self.check_calls(opened)?;
        self.history[found]
            .compare(opened.state(), &|source, length| opened.body(source, length), &self.backing)
            .map_err(|why| format!("after {found} of {} calls: {why}", self.calls.len()))?;
        Ok(found)
    }

    fn check_calls(&self, opened: &Machine) -> Result<usize, String> {
        let state = opened.state();
        for (client, number) in &self.durable {
            if state.highest(*client) < *number {
                return Err(format!("call {number} of {client:?} was durable and is lost"));
            }
        }
        let is_found = |(client, number): &(ClientId, u64)| *number <= state.highest(*client);
        let found = self.calls.iter().filter(|call| is_found(call)).count();
        if !self.calls[..found].iter().all(is_found) {
            return Err(format!("what was found is no prefix: {found} calls"));
        }
        Ok(found)
    }

    /// Crashes, and lives on with what is found.
    fn die(&mut self) -> Result<(), String> {
        let key = self.key.node(u64::MAX).node(self.figures.crashes);
        self.figures.crashes += 1;
        let kind = if self.has_failed || self.stream.below(2) == 0 {
            CrashKind::Power(key)
        } else {
            CrashKind::Kill
        };
        let disk = self.machine.disk.crashed(kind);
        let now = self.machine.now;
        let opened = Machine::open(disk, LogOrigin::Existing, self.plan.fault);
        let opened = opened.map_err(|why| format!("in a new life after {kind:?}: {why}"))?;
        let found = self.check(&opened).map_err(|why| format!("in a new life: {why}"))?;
        self.machine = opened;
        self.machine.now = now;
        self.calls.truncate(found);
        self.history.truncate(found + 1);
        self.forget_all();
        for client in [ClientId(1), ClientId(2), DRAINER] {
            // Clients let go of what they hear that the log has.
            let highest = self.machine.state().highest(client);
            self.numbers.insert(client, highest);
            self.durable.insert(client, highest);
        }
        Ok(())
    }

    /// Flips bits of a log that has noted nothing: what headers say to be durable is found, or said
    /// to be damaged.
    fn find_rot_under_load(&mut self) -> Result<(), String> {
        // A header says what was durable when it was made, up to four groups before it.
        let known = self.machine.log.durable().saturating_sub(5);
        let then = self.durable_at.iter().rev().find(|(group, _)| *group <= known);
        let Some((_, then)) = then.cloned() else { return Ok(()) };
        let now = std::mem::replace(&mut self.durable, then);
        // Without the last groups, which nobody says to be durable, the backing store is ahead.
        let found = self.find_rot(&Self::check_calls);
        self.durable = now;
        found
    }

    /// Flips bits of a log at rest: what was durable is found, or said to be damaged.
    fn find_rot(
        &mut self,
        check: &dyn Fn(&Self, &Machine) -> Result<usize, String>,
    ) -> Result<(), String> {
        if self.is_stopped {
            return Ok(());
        }
        let mut disk: TrialDisk = self.machine.disk.crashed(CrashKind::Power(self.key));
        disk.sync_all();
        for _ in 0..12 {
            let mut rotten = disk.clone();
            let files = segment_files();
            let file = files[self.stream.below(files.len() as u64) as usize];
            let byte = self.stream.below(rotten.size(file) as u64) as usize;
            rotten.flip(file, byte, self.stream.below(8) as u32);
            match Machine::open(rotten, LogOrigin::Existing, self.plan.fault) {
                Err(why) if why.starts_with("not opened: group") || why.starts_with("damaged") => {}
                Err(why) => return Err(format!("rot at {byte} of {file:?}: {why}")),
                Ok(opened) => match check(self, &opened) {
                    // A body that recovery had no reason to read: a reader compares its digest.
                    Err(why) if why.contains("is not there any more") => {}
                    Err(why) => return Err(format!("rot at {byte} of {file:?}: {why}")),
                    Ok(_) => {}
                },
            }
        }
        Ok(())
    }

    /// Drains all files: a full log has space again.
    fn drain_everything(&mut self) -> Result<(), String> {
        self.plan.drains = 100;
        for inode in self.model().inodes() {
            let Some(bytes) = self.model().bytes(inode) else { continue };
            let inode = InodeId(inode);
            let version = self.machine.state().tree().content(inode).map_or(0, |c| c.version());
            self.backing.insert(inode.0, Rc::clone(&bytes));
            let size = bytes.len() as u64;
            let change = TreeChange::Drained { inode, version, size };
            self.issue(DRAINER, change, &[])?;
        }
        self.settle()?;
        self.look_at_crashes(4)?;
        let before = self.figures.full;
        for _ in 0..8 {
            self.call()?;
            self.settle()?;
        }
        // A segment that is retired is not space.
        let is_full = self.figures.full > before && self.figures.retired == 0;
        if is_full { Err("a drained log is full".into()) } else { Ok(()) }
    }
}

impl TrialFigures {
    pub(super) fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.crashes += other.crashes;
        self.full += other.full;
        self.retired += other.retired;
        self.drained += other.drained;
        self.known += other.known;
        self.moved += other.moved;
    }

    /// Returns whether everything happened that a trial is about.
    pub(super) fn is_busy(&self) -> bool {
        let Self { calls, crashes, full, retired, drained, known, moved } = *self;
        let all = [calls, crashes, full, retired, drained, known, moved];
        all.iter().all(|figure| *figure > 0)
    }
}
