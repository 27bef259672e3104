//! Drawn programs on a log that is drained into a store, with crashes of both; what must hold after
//! each of them.
//!
//! # Model
//! The worker's steps end in any order, fail, or never end. After each event both disks are looked
//! at as drawn crashes would leave them: a fresh engine opens the log, and the tree that it has, with
//! the bytes that it expects in the store, must be that after the first *k* calls. What the store
//! shows is whole: each visible file has bytes that the file had once. Nothing of a held set is
//! visible. In the end the store has exactly the tree.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use clearway_proto::base::{Bytes, Class, LocalNs, Nanos, RandomKey, RandomStream, xxh3};
use clearway_proto::staging::{
    ClientId, CopyPiece, DrainNotice, DrainPolicy, DrainWish, EntryName, FileContent, GroupNumber,
    InodeId, InodeKind, LogCommand, LogError, LogEvent, LogId, LogOrigin, LogState, NodeKind,
    OwnerUsage, StepEnd, StoreBase, StoreDrain, StoreDrainConfig, StoreStep, StoreTask, Tree,
    TreeChange, TreeError, WallNs,
};
use clearway_proto::wire::{Fault, Span};

use super::careless::{CarelessDriver, DriverFault};
use super::disk::{CrashKind, TrialDisk};
use super::machine::{ARENA, Machine, SLOT, SLOTS, blank, segment_files};
use super::model::ModelTree;
use super::store::{ROOT, StoreKind, StoreName, TrialStore};
use super::trial::draw_change;

const APPLICATION: ClientId = ClientId(1);
const DRAINER: ClientId = ClientId(9);
/// Steps under way at a time.
const WORKERS: usize = 6;

#[derive(Clone, Debug)]
pub(super) struct DrainedPlan {
    pub(super) seed: u64,
    pub(super) steps: u32,
    pub(super) crashes: u64,
    pub(super) deaths: u64,
    /// Of a thousand steps of the worker, how many fail.
    pub(super) failures: u64,
    /// Bytes of a pass.
    pub(super) pass: u64,
    /// Differences that are looked at between two steps.
    pub(super) look: usize,
    pub(super) fault: Option<DriverFault>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DrainedFigures {
    pub(super) steps: u64,
    pub(super) crashes: u64,
    pub(super) moves: u64,
    pub(super) links: u64,
    pub(super) aside: u64,
    pub(super) removed: u64,
    pub(super) dropped: u64,
    pub(super) settled: u64,
    pub(super) based: u64,
    pub(super) published: u64,
    pub(super) failed: u64,
    pub(super) parked: u64,
}

pub(super) struct DrainedTrial {
    plan: DrainedPlan,
    stream: RandomStream,
    key: RandomKey,
    machine: Machine,
    store: TrialStore,
    drain: StoreDrain,
    driver: CarelessDriver,
    under_way: Vec<StoreTask>,
    history: Vec<ModelTree>,
    calls: Vec<(ClientId, u64)>,
    numbers: BTreeMap<ClientId, u64>,
    durable: BTreeMap<ClientId, u64>,
    slots: Vec<Option<u64>>,
    /// Digests of all bytes that files had.
    whole: BTreeSet<u64>,
    sets: u64,
    /// Members of all sets that there ever were.
    held_ever: BTreeSet<InodeId>,
    is_ending: bool,
    pub(super) figures: DrainedFigures,
}

fn drain_config(pass: u64, look: usize, recorded: u64) -> StoreDrainConfig {
    StoreDrainConfig {
        files: 3,
        names: 4,
        pass: Bytes(pass),
        pause: Nanos::from_millis(10),
        delay: Nanos::from_millis(5),
        look,
        weights: vec![(Class::Bulk, 1), (Class::Scavenger, 1)],
        recorded,
    }
}

const fn is_unseen(inode: InodeId) -> bool {
    inode.0.is_multiple_of(5)
}

/// Some files are left out, and some are not to be seen, until everything is to end.
fn policy(tree: &Tree, inode: InodeId, is_ending: bool) -> DrainPolicy {
    let class = if inode.0.is_multiple_of(2) { Class::Bulk } else { Class::Scavenger };
    let version = tree.content(inode).map_or(0, FileContent::version);
    let wish = match (inode.0 + version) % 8 {
        _ if is_ending => DrainWish::All,
        0 => DrainWish::Nothing,
        _ if is_unseen(inode) => DrainWish::Unseen,
        _ => DrainWish::All,
    };
    let due = inode.0.is_multiple_of(3).then_some(WallNs(inode.0));
    DrainPolicy { class, deadline: WallNs(inode.0), due, wish }
}

impl DrainedTrial {
    pub(super) fn new(plan: DrainedPlan) -> Result<Self, String> {
        let key = RandomKey::new(plan.seed).purpose("drained trial");
        let machine = Machine::open(blank(), LogOrigin::New(LogId(8)), None)?;
        let drain = StoreDrain::new(drain_config(plan.pass, plan.look, 0), machine.state().tree());
        Ok(Self {
            stream: key.stream(),
            key,
            machine,
            store: TrialStore::new(),
            drain,
            driver: CarelessDriver::new(plan.fault),
            under_way: Vec::new(),
            history: vec![ModelTree::new()],
            calls: Vec::new(),
            numbers: BTreeMap::new(),
            durable: BTreeMap::new(),
            slots: vec![None; SLOTS],
            whole: BTreeSet::from([xxh3(&[])]),
            sets: 0,
            held_ever: BTreeSet::new(),
            is_ending: false,
            figures: DrainedFigures::default(),
            plan,
        })
    }

    /// Returns the number of the application's next call.
    fn next_number(&self) -> u64 {
        self.numbers.get(&APPLICATION).map_or(1, |number| number + 1)
    }

    fn model(&self) -> &ModelTree {
        self.history.last().expect("the first state")
    }

    pub(super) fn run(&mut self) -> Result<(), String> {
        for _ in 0..self.plan.steps {
            match self.stream.below(16) {
                _ if self.stream.below(1000) < self.plan.deaths => self.die()?,
                0..4 => self.call()?,
                4 if self.stream.below(4) == 0 => self.hold()?,
                5 => self.open_or_close(),
                6..11 => self.end_disk()?,
                _ => self.end_step()?,
            }
            self.pump()?;
        }
        self.finish()
    }

    /// Lets the drain record and begin what it wants.
    fn pump(&mut self) -> Result<(), String> {
        loop {
            while let Some((number, change)) = self.drain.next_record() {
                let change = self.driver.change_record(change);
                let outcome = match change {
                    Some(change) => self.append(DRAINER, number, change, Span::EMPTY, &[])?,
                    None => Ok(()),
                };
                let is_later = matches!(outcome, Err(LogError::Full | LogError::Busy));
                self.drain.record_taken(outcome);
                if is_later {
                    break;
                }
            }
            self.hear()?;
            if self.under_way.len() >= WORKERS {
                return Ok(());
            }
            let durable = self.driver.durable(GroupNumber(self.machine.log.durable()));
            let state = self.machine.state();
            let is_ending = self.is_ending;
            let policy = |tree: &Tree, inode| policy(tree, inode, is_ending);
            let task = self.drain.next_task(self.machine.now, state, durable, &policy);
            let Some(task) = task else {
                // A pass over the differences continues at once.
                if self.drain.deadline() == Some(LocalNs(0)) {
                    continue;
                }
                self.check_left_out()?;
                break;
            };
            let place = self.driver.change_task(task);
            self.under_way.push(place);
        }
        if let Some(at) = self.drain.deadline()
            && at <= self.machine.now
        {
            self.drain.stir();
        }
        while let Some(notice) = self.drain.take_notice() {
            match notice {
                DrainNotice::Published(_) => self.figures.published += 1,
                DrainNotice::Parked => self.figures.parked += 1,
                DrainNotice::Failed { fault: Fault::Malformed, step } => {
                    return Err(format!("a copy of bytes that moved failed: {step:?}"));
                }
                DrainNotice::Failed { .. } => self.figures.failed += 1,
                DrainNotice::Stranger { step, .. } => return Err(format!("a stranger: {step:?}")),
                DrainNotice::Absent => return Err("the store is not absent".to_owned()),
            }
        }
        Ok(())
    }

    fn append(
        &mut self,
        client: ClientId,
        number: u64,
        change: TreeChange,
        body: Span,
        bytes: &[u8],
    ) -> Result<Result<(), LogError>, String> {
        let mut model = self.model().clone();
        let expected = model.apply(&change, bytes);
        let class = Class::Bulk;
        let call = LogCommand::Append { client, number, class, change: change.clone(), body };
        self.machine.command(call);
        // What becomes durable at once is heard after the answer.
        match self.machine.events.pop_front() {
            Some(LogEvent::Applied { .. }) => {
                expected.map_err(|why| format!("{change:?} was made, but {why}"))?;
                if let TreeChange::Write { inode, .. } | TreeChange::Truncate { inode, .. } = change
                {
                    let bytes = model.bytes(inode.0).unwrap_or_default();
                    self.whole.insert(xxh3(&bytes));
                }
                self.history.push(model);
                self.calls.push((client, number));
                self.numbers.insert(client, number);
                if self.stream.below(2) == 0 {
                    self.machine.command(LogCommand::Commit);
                }
                Ok(Ok(()))
            }
            Some(LogEvent::Refused { why, .. }) => Ok(Err(why)),
            other => Err(format!("{change:?} was answered by {other:?}")),
        }
    }

    fn hear(&mut self) -> Result<(), String> {
        while let Some(event) = self.machine.events.pop_front() {
            match event {
                LogEvent::Durable { client, number } => {
                    self.durable.insert(client, number);
                    if client == DRAINER {
                        self.drain.durable(number);
                    }
                    for slot in 0..SLOTS {
                        if client == APPLICATION && self.slots[slot].is_some_and(|n| n <= number) {
                            self.slots[slot] = None;
                            self.machine.arena[slot * SLOT..(slot + 1) * SLOT].fill(0xdd);
                        }
                    }
                    self.drain.stir();
                }
                LogEvent::Drainable { inode, version, size } => {
                    let (now, tree) = (self.machine.now, self.machine.state().tree());
                    self.drain.drainable(now, tree, (inode, version, size));
                }
                LogEvent::Notice(_) | LogEvent::Finished => {}
                other => return Err(format!("nobody asked for {other:?}")),
            }
        }
        Ok(())
    }

    fn call(&mut self) -> Result<(), String> {
        let Some(slot) = self.slots.iter().position(Option::is_none) else { return Ok(()) };
        let next = self.machine.state().tree().next_inode();
        let model = self.history.last().expect("the first state");
        let (change, bytes) = match self.stream.below(3) {
            0 => (draw_names(&mut self.stream, model, next), Vec::new()),
            _ => draw_change(&mut self.stream, model, next),
        };
        let length = bytes.len();
        let number = self.next_number();
        let mut body = Span::EMPTY;
        if length > 0 {
            self.machine.arena[slot * SLOT..slot * SLOT + length].copy_from_slice(&bytes);
            body = Span { region: ARENA, offset: (slot * SLOT) as u64, length: length as u32 };
        }
        let taken = self.append(APPLICATION, number, change, body, &bytes)?;
        if taken.is_ok() && length > 0 {
            self.slots[slot] = Some(number);
        }
        self.drain.stir();
        self.hear()
    }

    /// Holds some files that are not visible, or gives up or waits for a set.
    fn hold(&mut self) -> Result<(), String> {
        let tree = self.machine.state().tree();
        let is_new = |inode: &InodeId| {
            let is_file = tree.content(*inode).is_some();
            is_file && self.drain.can_hold(tree, *inode) && tree.member(*inode).is_none()
        };
        let new: Vec<InodeId> = tree.inodes().map(|(inode, _)| inode).filter(is_new).collect();
        self.sets += 1;
        let set = self.sets;
        for inode in new.into_iter().take(1 + self.stream.below(4) as usize) {
            let number = self.next_number();
            let change = TreeChange::Hold { inode, set };
            match self.append(APPLICATION, number, change, Span::EMPTY, &[])? {
                Ok(()) => drop(self.held_ever.insert(inode)),
                Err(LogError::Full | LogError::Busy) => {}
                Err(LogError::Tree(TreeError::NotFound)) => {}
                Err(why) => return Err(format!("{inode:?} is not held: {why}")),
            }
            self.hear()?;
        }
        if self.driver.publishes_early() {
            let number = self.next_number();
            let change = TreeChange::Published { set };
            let _ = self.append(APPLICATION, number, change, Span::EMPTY, &[])?;
        }
        if self.stream.below(6) == 0 {
            let number = self.next_number();
            let change = TreeChange::Release { set };
            let _ = self.append(APPLICATION, number, change, Span::EMPTY, &[])?;
        }
        self.drain.stir();
        self.hear()
    }

    fn open_or_close(&mut self) {
        let inodes = self.model().inodes();
        let inode = InodeId(inodes[self.stream.below(inodes.len() as u64) as usize]);
        if self.stream.below(3) == 0 {
            self.drain.opened(inode);
            self.drain.policy_changed(inode);
        } else {
            self.drain.closed(inode);
        }
    }

    fn end_disk(&mut self) -> Result<(), String> {
        let pending = self.machine.disk.pending.len() as u64;
        if pending == 0 {
            return Ok(());
        }
        let index = self.stream.below(pending) as usize;
        self.machine.end(index, None)?;
        self.hear()?;
        self.look_at_crashes(self.plan.crashes)
    }

    fn end_step(&mut self) -> Result<(), String> {
        self.machine.now += Nanos::from_millis(self.stream.below(4));
        if self.under_way.is_empty() {
            return Ok(());
        }
        let index = self.stream.below(self.under_way.len() as u64) as usize;
        let task = self.under_way.swap_remove(index);
        self.count(&task);
        let (number, draw) = (task.number, self.stream.below(1000));
        let end = if draw < self.plan.failures {
            // It may have been done all the same.
            if self.stream.below(2) == 0 {
                self.carry_out(&task)?;
            }
            if self.stream.below(3) == 0 { StepEnd::Stuck } else { StepEnd::Failed(Fault::Io) }
        } else {
            self.carry_out(&task)?
        };
        let end = self.driver.change_end(end);
        self.drain.end(self.machine.now, self.machine.state(), number, end);
        self.look_at_crashes(self.plan.crashes)
    }

    /// Lets a directory never move; names elsewhere come all the same.
    pub(super) fn fail_moves(&mut self) -> Result<(), String> {
        // No file is left out.
        self.is_ending = true;
        let name = |text: &str| EntryName::new(text.as_bytes()).expect("a name");
        let root = InodeId::ROOT;
        let create = |parent, text, node| {
            let (inode, name) = (InodeId(0), name(text));
            TreeChange::Create { inode, parent, name, node, mode: 0o700, uid: 5, gid: 6 }
        };
        let directory = self.change(create(root, "a", NodeKind::Directory))?;
        self.change(create(directory, "in", NodeKind::File))?;
        self.settle(|_| false)?;
        let (from, to, old, new_name) = (root, root, name("a"), name("b"));
        self.change(TreeChange::Rename { from, name: old, to, new_name })?;
        self.settle(|task| matches!(task.step, StoreStep::MoveDirectory { .. }))?;
        let inside = self.change(create(directory, "later", NodeKind::File))?;
        let elsewhere = self.change(create(root, "elsewhere", NodeKind::File))?;
        self.settle(|task| matches!(task.step, StoreStep::MoveDirectory { .. }))?;
        let tree = self.machine.state().tree();
        let has = [inside, elsewhere].map(|inode| self.drain.has(tree, inode));
        if has != [false, true] {
            return Err(format!("it has {has:?}"));
        }
        self.finish()
    }

    /// Makes a change of names; returns the inode that it made, if it made one.
    fn change(&mut self, mut change: TreeChange) -> Result<InodeId, String> {
        let next = self.machine.state().tree().next_inode();
        if let TreeChange::Create { inode, .. } = &mut change {
            *inode = next;
        }
        let number = self.next_number();
        let taken = self.append(APPLICATION, number, change, Span::EMPTY, &[])?;
        taken.map_err(|why| why.to_string())?;
        self.drain.stir();
        self.hear()?;
        Ok(next)
    }

    /// Ends what is under way until there is no progress; steps that `fails` names fail.
    fn settle(&mut self, fails: impl Fn(&StoreTask) -> bool) -> Result<(), String> {
        for _ in 0..400 {
            self.pump()?;
            if !self.machine.disk.pending.is_empty() {
                self.end_disk()?;
            } else if let Some(task) = self.under_way.pop() {
                let end = match fails(&task) {
                    true => StepEnd::Failed(Fault::Io),
                    false => self.carry_out(&task)?,
                };
                self.drain.end(self.machine.now, self.machine.state(), task.number, end);
            } else {
                self.machine.now += Nanos::from_millis(1);
                self.machine.tick();
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, task: &StoreTask) -> Result<StepEnd, String> {
        let Some(step) = self.driver.change_step(&task.step) else { return Ok(StepEnd::Done) };
        let disk = &self.machine.disk;
        let end = self.store.carry_out(&step, &|piece| Ok(read_piece(disk, piece)));
        if self.driver.skips_copy_sync() {
            self.store.forget_sync(&step);
        }
        end
    }

    fn count(&mut self, task: &StoreTask) {
        self.figures.steps += 1;
        match &task.step {
            StoreStep::MoveDirectory { to, .. } => {
                let is_aside = to.base == StoreBase::Objects;
                self.figures.aside += u64::from(is_aside);
                self.figures.moves += u64::from(!is_aside);
            }
            StoreStep::Link { .. } => self.figures.links += 1,
            StoreStep::Unlink { .. } => self.figures.removed += 1,
            StoreStep::Drop { .. } => self.figures.dropped += 1,
            StoreStep::Settle { .. } => self.figures.settled += 1,
            StoreStep::Copy { keep: 1.., .. } => self.figures.based += 1,
            _ => {}
        }
    }

    /// Returns both disks as a crash leaves them; steps under way were done, or partly, or not.
    fn crashed(
        &mut self,
        key: RandomKey,
        kind: CrashKind,
    ) -> Result<(TrialDisk, TrialStore), String> {
        let mut stream = key.purpose("steps").stream();
        let mut store = self.store.clone();
        let disk = &self.machine.disk;
        for task in &self.under_way {
            let Some(step) = self.driver.change_step(&task.step) else { continue };
            match stream.below(3) {
                0 => drop(store.carry_out(&step, &|piece| Ok(read_piece(disk, piece)))),
                1 => {
                    let pieces = stream.below(4) as usize;
                    drop(store.write(&step, &|piece| Ok(read_piece(disk, piece)), pieces));
                }
                _ => {}
            }
        }
        Ok((disk.crashed(kind), store.crashed(kind)))
    }

    fn draw_crash(&mut self) -> (RandomKey, CrashKind) {
        self.figures.crashes += 1;
        let key = self.key.node(self.figures.crashes);
        let is_kill = key.purpose("kind").stream().below(3) == 0;
        (key, if is_kill { CrashKind::Kill } else { CrashKind::Power(key) })
    }

    fn look_at_crashes(&mut self, crashes: u64) -> Result<(), String> {
        let before = self.figures.crashes;
        for _ in 0..crashes {
            let (key, kind) = self.draw_crash();
            let (disk, store) = self.crashed(key, kind)?;
            let opened = Machine::open(disk, LogOrigin::Existing, None)?;
            self.check(&opened, &store).map_err(|why| format!("after {kind:?}: {why}"))?;
        }
        // Only those that were lived through leave traces.
        if before == 0 && self.plan.deaths == 0 {
            self.figures.crashes = 0;
            self.key = self.key.purpose("more");
        }
        Ok(())
    }

    fn check(&self, opened: &Machine, store: &TrialStore) -> Result<usize, String> {
        let state = opened.state();
        for (client, number) in &self.durable {
            if state.highest(*client) < *number {
                return Err(format!("call {number} of {client:?} was durable and is lost"));
            }
        }
        let is_found = |(client, number): &(ClientId, u64)| *number <= state.highest(*client);
        let found = self.calls.iter().filter(|call| is_found(call)).count();
        let backing = backing(state, store);
        self.history[found]
            .compare(state, &|source, length| opened.body(source, length), &backing)
            .map_err(|why| format!("after {found} of {} calls: {why}", self.calls.len()))?;
        for (name, node) in visible(store) {
            if let StoreKind::File { bytes, .. } = &store.nodes[&node].kind
                && !self.whole.contains(&xxh3(bytes))
            {
                let length = bytes.len();
                return Err(format!("{name:?} is visible and not whole: {length} bytes"));
            }
        }
        check_sets(state.tree(), store)?;
        self.check_unseen(state.tree(), store)?;
        Ok(found)
    }

    /// Checks that nothing is visible that was never in a set and is to be seen as a member alone.
    fn check_unseen(&self, tree: &Tree, store: &TrialStore) -> Result<(), String> {
        if self.is_ending {
            return Ok(());
        }
        let seen: BTreeSet<u64> = visible(store).into_iter().map(|(_, node)| node).collect();
        for (inode, _) in tree.inodes() {
            let is_unseen = is_unseen(inode) && !self.held_ever.contains(&inode);
            if is_unseen && store.object(inode).is_some_and(|node| seen.contains(&node)) {
                return Err(format!("{inode:?} is visible, and was not published"));
            }
        }
        Ok(())
    }

    /// Crashes, and lives on with what is found.
    fn die(&mut self) -> Result<(), String> {
        let (key, kind) = self.draw_crash();
        let (disk, store) = self.crashed(key, kind)?;
        let now = self.machine.now;
        let opened = Machine::open(disk, LogOrigin::Existing, None)?;
        let found = self.check(&opened, &store).map_err(|why| format!("in a new life: {why}"))?;
        self.machine = opened;
        self.machine.now = now;
        self.store = store;
        self.under_way.clear();
        self.calls.truncate(found);
        self.history.truncate(found + 1);
        self.slots.fill(None);
        for client in [APPLICATION, DRAINER] {
            let highest = self.machine.state().highest(client);
            self.numbers.insert(client, highest);
            self.durable.insert(client, highest);
        }
        let recorded = self.numbers[&DRAINER];
        let tree = self.machine.state().tree();
        self.drain = StoreDrain::new(drain_config(self.plan.pass, self.plan.look, recorded), tree);
        self.driver.is_reborn();
        Ok(())
    }

    /// Compares what the drain leaves out, when it has nothing to do, with what the policy says.
    fn check_left_out(&self) -> Result<(), String> {
        // What is not durable is looked at later.
        if !self.drain.is_idle() || self.durable != self.numbers {
            return Ok(());
        }
        let tree = self.machine.state().tree();
        let mut expected = BTreeMap::new();
        for (id, inode) in tree.inodes() {
            let InodeKind::File(content) = &inode.kind else { continue };
            let is_left_out = policy(tree, id, self.is_ending).wish == DrainWish::Nothing;
            let is_shown = tree.member(id).is_some_and(|member| member.published.is_some());
            let is_news = content.drained() < content.version();
            if is_left_out && inode.links > 0 && !is_shown && is_news {
                *expected.entry(inode.uid).or_insert(0) += content.logged();
            }
        }
        let found = self.drain.left_out();
        if *found == OwnerUsage::from_owners(expected.clone()) {
            return Ok(());
        }
        Err(format!("{found:?} is left out in place of {expected:?}"))
    }

    /// Ends everything: then the store has exactly the tree.
    fn finish(&mut self) -> Result<(), String> {
        self.plan.failures = 0;
        self.plan.crashes = 0;
        self.is_ending = true;
        for inode in self.model().inodes() {
            self.drain.closed(InodeId(inode));
        }
        let mut idle = 0;
        for _ in 0..20_000 {
            self.pump()?;
            if let Some(nameless) = self.model().nameless().first().copied() {
                let number = self.next_number();
                let change = TreeChange::Forget { inode: InodeId(nameless) };
                let _ = self.append(APPLICATION, number, change, Span::EMPTY, &[])?;
                self.drain.stir();
            }
            if !self.machine.disk.pending.is_empty() {
                self.end_disk()?;
            } else if !self.under_way.is_empty() {
                self.end_step()?;
            } else if self.machine.state().tree().store_lag() == 0 && idle > 4 {
                return self.compare_store();
            } else {
                idle += 1;
                self.machine.now += Nanos::from_millis(5);
                self.machine.tick();
                self.drain.stir();
            }
        }
        Err(format!("it is never drained: {:?}", self.drain))
    }

    fn compare_store(&self) -> Result<(), String> {
        let tree = self.machine.state().tree();
        let mut nodes: BTreeMap<u64, u64> = BTreeMap::from([(1, ROOT)]);
        let mut count = 0;
        let mut directories = vec![InodeId::ROOT];
        while let Some(directory) = directories.pop() {
            let Some(InodeKind::Directory { entries, .. }) =
                tree.inode(directory).map(|inode| &inode.kind)
            else {
                continue;
            };
            for (name, inode) in entries {
                count += 1;
                let key: StoreName = (nodes[&directory.0], name.bytes().to_vec());
                let node = *self.store.names.get(&key).ok_or(format!("{key:?} is missing"))?;
                if *nodes.entry(inode.0).or_insert(node) != node {
                    return Err(format!("two files for {inode:?}"));
                }
                self.compare_node(tree, *inode, node)?;
                if tree.inode(*inode).is_some_and(|i| matches!(i.kind, InodeKind::Directory { .. }))
                {
                    directories.push(*inode);
                }
            }
        }
        let objects: BTreeSet<u64> = nodes.keys().copied().collect();
        let is_file = |inode: &u64| {
            let kind = tree.inode(InodeId(*inode)).map(|inode| &inode.kind);
            !matches!(kind, Some(InodeKind::Directory { .. }))
        };
        count += objects.into_iter().filter(is_file).count();
        let names: Vec<_> = self.store.names.keys().collect();
        if names.len() == count {
            Ok(())
        } else {
            Err(format!("{} names in place of {count}: {names:?}", names.len()))
        }
    }

    fn compare_node(&self, tree: &Tree, inode: InodeId, node: u64) -> Result<(), String> {
        let (found, expected) = (&self.store.nodes[&node], tree.inode(inode).expect("an inode"));
        let is_same = match (&found.kind, &expected.kind) {
            (StoreKind::Directory, InodeKind::Directory { .. }) => true,
            (StoreKind::Bare(NodeKind::Symlink(found)), InodeKind::Symlink(target)) => {
                found == target
            }
            (StoreKind::Bare(NodeKind::Special(found)), InodeKind::Special(made)) => found == made,
            (StoreKind::File { bytes, .. }, InodeKind::File(_)) => {
                Some(bytes) == self.model().bytes(inode.0).as_ref()
            }
            _ => false,
        };
        let xattrs: BTreeMap<Vec<u8>, Vec<u8>> =
            expected.xattrs.iter().map(|(n, v)| (n.bytes().to_vec(), v.to_vec())).collect();
        let times = (expected.atime.0, expected.mtime.0);
        let ours = (expected.mode, (expected.uid, expected.gid), times, &xattrs);
        let theirs = (found.mode, found.owner, found.times, &found.xattrs);
        if is_same && ours == theirs {
            Ok(())
        } else {
            Err(format!("{inode:?} is {theirs:?} in place of {ours:?}, same kind: {is_same}"))
        }
    }
}

/// Draws a change of directories and what is in them.
fn draw_names(stream: &mut RandomStream, model: &ModelTree, next: InodeId) -> TreeChange {
    let (directories, names) = (model.directories(), model.names());
    let mut directory = || InodeId(directories[stream.below(directories.len() as u64) as usize]);
    let (parent, to) = (directory(), directory());
    let new_name = EntryName::new(format!("n{}", stream.below(5)).as_bytes()).expect("a name");
    let draw = stream.below(8);
    if draw < 3 || names.is_empty() {
        let node = if draw < 2 { NodeKind::Directory } else { NodeKind::File };
        let (inode, name, mode) = (next, new_name, 0o700 + stream.below(0o100) as u32);
        return TreeChange::Create { inode, parent, name, node, mode, uid: 5, gid: 6 };
    }
    let (from, name) = &names[stream.below(names.len() as u64) as usize];
    let (from, name) = (InodeId(*from), EntryName::new(name).expect("a name"));
    match draw {
        3 => TreeChange::RemoveDirectory { parent: from, name },
        4 => TreeChange::Unlink { parent: from, name },
        _ => TreeChange::Rename { from, name, to, new_name },
    }
}

fn read_piece(disk: &TrialDisk, piece: &CopyPiece) -> Vec<u8> {
    let file = segment_files()[piece.place.segment as usize];
    disk.read(file, piece.place.offset() as usize, piece.length as usize)
}

/// Returns the bytes of the store of each file.
fn backing(state: &LogState, store: &TrialStore) -> BTreeMap<u64, Rc<Vec<u8>>> {
    let inodes = state.tree().inodes();
    inodes.filter_map(|(inode, _)| Some((inode.0, store.bytes(inode)?))).collect()
}

/// Returns the names of a store that can be seen.
fn visible(store: &TrialStore) -> Vec<(StoreName, u64)> {
    let (mut found, mut directories) = (Vec::new(), vec![ROOT]);
    while let Some(directory) = directories.pop() {
        let names = store.names.range((directory, Vec::new())..);
        for (name, node) in names.take_while(|(name, _)| name.0 == directory) {
            found.push((name.clone(), *node));
            if store.nodes[node].kind == StoreKind::Directory {
                directories.push(*node);
            }
        }
    }
    found
}

/// Checks that nothing of a set is visible that is not published.
fn check_sets(tree: &Tree, store: &TrialStore) -> Result<(), String> {
    let held = tree.members().filter(|(_, member)| member.published.is_none());
    let held: Vec<InodeId> = held.map(|(inode, _)| inode).collect();
    for inode in held {
        let object = store.object(inode);
        if object.is_some() && visible(store).iter().any(|(_, node)| Some(*node) == object) {
            return Err(format!("{inode:?} is visible, and its set is not published"));
        }
    }
    Ok(())
}

impl DrainedFigures {
    fn all(&mut self) -> [&mut u64; 12] {
        [
            &mut self.steps,
            &mut self.crashes,
            &mut self.moves,
            &mut self.links,
            &mut self.aside,
            &mut self.removed,
            &mut self.dropped,
            &mut self.settled,
            &mut self.based,
            &mut self.published,
            &mut self.failed,
            &mut self.parked,
        ]
    }

    pub(super) fn add(&mut self, other: &Self) {
        let mut other = *other;
        self.all().into_iter().zip(other.all()).for_each(|(sum, more)| *sum += *more);
    }

    /// Returns whether everything happened that a trial is about.
    pub(super) fn is_busy(&mut self) -> bool {
        self.all().into_iter().all(|figure| *figure > 0)
    }
}
