//! Waits until files are in the store, drains them first, publishes sets of them, and leaves files
//! out.
//!
//! # Model
//! The number of a set says how many members it has. A crash in the middle of holding them leaves a
//! set of fewer, which the next mount gives up; a whole one is published by whichever mount has the
//! log then.
//!
//! # Invariants
//! I1. A set is not published before all its members are held.

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::time::Duration;

use clearway_proto::staging::{DrainWish, InodeId, InodeKind, TreeChange};
use rustix::io::Errno;

use crate::classes::{PUBLISH_XATTR, wish};
use crate::engine::{Answer, ChangeSource, Core, DrainCondition, Engine, Held};

/// Bits of the number of a set that say how many members it has.
const COUNT_BITS: u32 = 24;
/// How long a wait lasts until it looks whether its client is there.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Inodes that are looked at under the lock of the engine: less than a millisecond.
const AT_ONCE: usize = 512;

/// Returns how many members a set has.
pub(crate) const fn members_of(set: u64) -> u64 {
    set & ((1 << COUNT_BITS) - 1)
}

/// What a client hears while it waits. Returns whether it is still there.
pub(crate) type Listener<'a> = &'a mut dyn FnMut(Option<&str>) -> bool;

/// How far something is.
enum Progress {
    Done,
    /// There is more to look at.
    Again,
    Waits,
    Refused(String),
}

fn shown(core: &mut Core, inode: InodeId) -> String {
    let path = core.tree().path(inode).unwrap_or_default();
    format!("/{}", String::from_utf8_lossy(&path))
}

/// Returns `roots` and everything below them. What changes meanwhile is there or not.
pub(crate) fn all_below(engine: &Engine, roots: &[InodeId]) -> Vec<InodeId> {
    let mut seen: BTreeSet<InodeId> = BTreeSet::new();
    let (mut all, mut next) = (Vec::new(), roots.to_vec());
    while !next.is_empty() {
        let some = next.split_off(next.len().saturating_sub(AT_ONCE));
        let some: Vec<InodeId> = some.into_iter().filter(|inode| seen.insert(*inode)).collect();
        engine.look(|core| {
            for inode in &some {
                if let Some(InodeKind::Directory { entries, .. }) =
                    core.tree().inode(*inode).map(|inode| &inode.kind)
                {
                    next.extend(entries.values());
                }
            }
        });
        all.extend(some);
    }
    all
}

/// Makes a change, and waits until it is made.
pub(crate) fn change<T: Send + 'static>(
    engine: &Engine,
    attempt: impl FnMut(&mut Core) -> Result<T, Held> + Send + 'static,
) -> Result<T, Errno> {
    let (sender, receiver) = mpsc::channel();
    let answer: Answer<T> = Box::new(move |made| {
        let _ = sender.send(made);
    });
    engine.change(ChangeSource::Operator, answer, attempt);
    receiver.recv().unwrap_or(Err(Errno::IO))
}

/// Waits until the store has all of `inodes`, each as it was at some time since the call.
///
/// # Errors
/// Why that cannot come to be, in a sentence.
pub(crate) fn wait(
    engine: &Engine,
    inodes: Vec<InodeId>,
    listener: Listener<'_>,
) -> Result<(), String> {
    let mut pending = inodes;
    engine.wait(|core| {
        // Somebody wants to have them as they are, open or not.
        core.update_drain(|drain, _| pending.iter().for_each(|inode| drain.awaited(*inode)));
    });
    until(engine, &mut *listener, |core| advance(core, &mut pending))?;
    // The records say what the store got, and not that it is still there.
    let mut number = None;
    engine.wait(|core| core.update_drain(|drain, _| number = Some(drain.request_check())));
    until(engine, listener, |core| {
        match core.query_drain(|drain, _| Some(drain.checked()) >= number) {
            None => Progress::Refused("the mount ends".to_owned()),
            Some(true) => Progress::Done,
            Some(false) => Progress::Waits,
        }
    })
}

/// Takes from the end of `pending` what the store has.
fn advance(core: &mut Core, pending: &mut Vec<InodeId>) -> Progress {
    for _ in 0..AT_ONCE {
        let Some(inode) = pending.last().copied() else { return Progress::Done };
        let has = core.query_drain(|drain, tree| {
            tree.inode(inode).is_none_or(|found| found.links == 0) || drain.has(tree, inode)
        });
        match has {
            None => return Progress::Refused("the mount ends".to_owned()),
            Some(true) => drop(pending.pop()),
            Some(false) => return why_not(core, inode),
        }
    }
    Progress::Again
}

fn why_not(core: &mut Core, inode: InodeId) -> Progress {
    let is_member = core.tree().member(inode).is_some();
    let is_directory = core.tree().content(inode).is_none();
    let is_seen = core.tree().stored_places(inode).next().is_some();
    match wish(core.tree(), inode) {
        DrainWish::Nothing if !is_member => {
            let path = shown(core, inode);
            Progress::Refused(format!(
                "{path} is left out of the store until it changes; `clearway stage drain` drains it again"
            ))
        }
        DrainWish::Unseen if !is_member && !is_seen && !is_directory => {
            let path = shown(core, inode);
            Progress::Refused(format!(
                "{path} appears in the store when it is published; `clearway stage publish` does this"
            ))
        }
        _ => Progress::Waits,
    }
}

/// Looks again after each round of the drain until something is done. Says once when the store makes
/// no progress.
fn until(
    engine: &Engine,
    listener: Listener<'_>,
    mut look: impl FnMut(&mut Core) -> Progress,
) -> Result<(), String> {
    let mut is_said = false;
    loop {
        let rounds = engine.rounds();
        let (progress, condition) = engine.look(|core| (look(core), core.drain_status().0));
        match progress {
            Progress::Done => return Ok(()),
            Progress::Refused(why) => return Err(why),
            Progress::Again => continue,
            Progress::Waits if engine.is_ending() => return Err("the mount ends".to_owned()),
            Progress::Waits => {}
        }
        let is_bad = matches!(condition, DrainCondition::Failing | DrainCondition::Parked);
        let sentence = (is_bad && !is_said).then_some(
            "the store makes no progress; this command waits, and mount.log in the directory of the log has the cause",
        );
        is_said |= is_bad;
        if !listener(sentence) {
            return Err("the client closed the connection".to_owned());
        }
        engine.wait_for_progress(rounds, LOOK_EVERY);
    }
}

/// Drains files before others of their classes.
///
/// # Errors
/// A sentence.
pub(crate) fn promote(engine: &Engine, inodes: Vec<InodeId>) -> Result<(), String> {
    for inode in &inodes {
        let inode = *inode;
        let done = change(engine, move |core| {
            let lacks = |core: &mut Core| {
                let content = core.tree().content(inode);
                content.is_some_and(|content| content.drained() < content.version())
            };
            if lacks(core) {
                core.resume(inode)?;
                core.promote(inode);
            }
            Ok(())
        });
        done.map_err(|why| format!("the log cannot record the request: {why}"))?;
    }
    Ok(())
}

/// Leaves files out of the store as they are now; a set that one of them is a member of is given up.
///
/// # Errors
/// A sentence.
pub(crate) fn cancel(engine: &Engine, inodes: Vec<InodeId>) -> Result<(), String> {
    for inode in &inodes {
        let inode = *inode;
        let done = change(engine, move |core| {
            let lacks = core.query_drain(|drain, tree| {
                tree.content(inode).is_some() && !drain.has(tree, inode)
            });
            if lacks != Some(true) {
                return Ok(());
            }
            match core.tree().member(inode) {
                Some(member) if member.published.is_some() => return Ok(()),
                Some(member) => core.append(TreeChange::Release { set: member.set }, &[])?,
                None => {}
            }
            core.cancel(inode)
        });
        done.map_err(|why| format!("the log cannot record the request: {why}"))?;
    }
    Ok(())
}

/// Makes a set of files appear in the store as a whole, and waits until it is there.
///
/// # Errors
/// Why not, in a sentence; nothing of the set appears by this then.
pub(crate) fn publish(
    engine: &Engine,
    inodes: Vec<InodeId>,
    listener: Listener<'_>,
) -> Result<(), String> {
    let files = claim(engine, &inodes, &mut *listener)?;
    if files.is_empty() {
        return wait(engine, inodes, listener);
    }
    let gathered = gather(engine, &files, &mut *listener);
    engine.look(|core| core.claimed.retain(|inode| !files.contains(inode)));
    let set = gathered?;
    let mut pending: Vec<InodeId> = files.into_iter().collect();
    engine.wait(|core| {
        core.update_drain(|drain, _| pending.iter().for_each(|one| drain.policy_changed(*one)));
    });
    until(engine, listener, |core| {
        let is_member = |core: &mut Core, inode: &InodeId| {
            core.tree().inode(*inode).is_none_or(|found| found.links == 0)
                || core.tree().member(*inode).is_some_and(|member| member.set == set)
                || core.query_drain(|drain, tree| drain.has(tree, *inode)) == Some(true)
                || core.tree().stored_places(*inode).next().is_some()
        };
        match pending.last() {
            Some(last) if !is_member(core, last) => Progress::Refused(
                "another command cancelled a file of the set; nothing of the set is published"
                    .to_owned(),
            ),
            _ => advance(core, &mut pending),
        }
    })
    .and_then(|()| wait(engine, inodes, listener))
}

/// Returns the files of a set, and claims them: commands that publish the same files at the same time
/// make sets one after another, and only the first of them has files.
fn claim(
    engine: &Engine,
    inodes: &[InodeId],
    listener: Listener<'_>,
) -> Result<BTreeSet<InodeId>, String> {
    let mut files = BTreeSet::new();
    until(engine, listener, |core| {
        if inodes.iter().any(|inode| core.claimed.contains(inode)) {
            return Progress::Waits;
        }
        match members(core, inodes) {
            Ok(found) => {
                core.claimed.extend(&found);
                files = found;
                Progress::Done
            }
            Err(why) => Progress::Refused(why),
        }
    })?;
    Ok(files)
}

/// Makes a set of files, and returns its number.
fn gather(
    engine: &Engine,
    files: &BTreeSet<InodeId>,
    listener: Listener<'_>,
) -> Result<u64, String> {
    let count = files.len() as u64;
    if count >= 1 << COUNT_BITS {
        return Err(format!(
            "the set has {count} files, and at most {} work; publish parts of it",
            (1 << COUNT_BITS) - 1
        ));
    }
    let set = engine.look(|core| {
        let set = core.next_set() << COUNT_BITS | count;
        core.update_drain(|drain, _| drain.gather(set));
        set
    });
    let held = hold(engine, set, files, listener);
    if held.is_err() {
        // What is held of it is what it was before.
        let _ = change(engine, move |core| match core.append(TreeChange::Release { set }, &[]) {
            Err(Held::Errno(Errno::NOENT)) => Ok(()),
            other => other,
        });
    }
    engine.wait(|core| core.update_drain(|drain, _| drain.gathered(set)));
    held.map(|()| set)
}

/// Returns the files that a set still has to publish: none if the store shows all of them, or a set in
/// progress will.
fn members(core: &mut Core, inodes: &[InodeId]) -> Result<BTreeSet<InodeId>, String> {
    let (mut files, mut seen, mut held) = (BTreeSet::new(), None, None);
    for inode in inodes {
        let is_directory = |core: &mut Core| {
            let kind = core.tree().inode(*inode).map(|inode| &inode.kind);
            !matches!(
                kind,
                Some(InodeKind::File(_) | InodeKind::Symlink(_) | InodeKind::Special(_))
            )
        };
        if is_directory(core) {
            continue;
        }
        if core.tree().stored_places(*inode).next().is_some() {
            seen.get_or_insert(*inode);
        } else if core.tree().member(*inode).is_some() {
            held.get_or_insert(*inode);
        } else {
            files.insert(*inode);
        }
    }
    match (seen, held) {
        _ if files.is_empty() => Ok(files),
        (Some(inode), _) => Err(is_seen(core, inode)),
        (None, Some(inode)) => {
            let path = shown(core, inode);
            Err(format!(
                "{path} is in another set that is being published; publish again when that set is in the store"
            ))
        }
        (None, None) => Ok(files),
    }
}

fn is_seen(core: &mut Core, inode: InodeId) -> String {
    let path = shown(core, inode);
    format!(
        "the store shows {path} already, so the set cannot appear as a whole; set {PUBLISH_XATTR}=explicit on the directory before files are made there"
    )
}

/// Holds the files of a set. One that a step is under way for is tried again after it.
fn hold(
    engine: &Engine,
    set: u64,
    files: &BTreeSet<InodeId>,
    listener: Listener<'_>,
) -> Result<(), String> {
    for inode in files.iter().copied() {
        until(engine, listener, |core| {
            if core.tree().stored_places(inode).next().is_some() {
                return Progress::Refused(is_seen(core, inode));
            }
            if core.query_drain(|drain, tree| drain.can_hold(tree, inode)) != Some(true) {
                return Progress::Waits;
            }
            let held = core.append(TreeChange::Hold { inode, set }, &[inode]);
            match held.and_then(|()| core.resume(inode)) {
                Ok(()) => Progress::Done,
                Err(Held::Lacks(_)) => Progress::Waits,
                Err(Held::Errno(Errno::NOENT)) => Progress::Refused(
                    "a file of the set was removed during the publish; publish again".to_owned(),
                ),
                Err(Held::Errno(why)) => {
                    let path = shown(core, inode);
                    Progress::Refused(format!(
                        "{path} cannot be kept out of the store until the set is complete: {why}"
                    ))
                }
            }
        })?;
    }
    Ok(())
}

impl Core {
    /// Returns a number that no set has, without the bits of its count.
    fn next_set(&mut self) -> u64 {
        let last = self.tree().members().map(|(_, member)| member.set >> COUNT_BITS).max();
        self.sets_ever = self.sets_ever.max(last.unwrap_or(0)) + 1;
        self.sets_ever
    }
}
