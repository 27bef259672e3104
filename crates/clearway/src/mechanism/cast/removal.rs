//! Removes from a receiver's directories what the source does not have.
//!
//! # Model
//! First it is decided, without a change, which names go: all below the directories that were cast,
//! but for what was cast, what a pattern excludes, and what is not finished. A directory that holds
//! something that stays, stays. Then they are removed, inner names first. A pattern holds below each
//! of the directories, so where one lies in another, what either excludes stays.
//!
//! # Invariants
//! I1. Symbolic links are removed and not followed; nothing outside the directories is touched
//!     (`target`).
//! I2. What came after the decision stays: it keeps its directory from being removed.
//! I3. A directory goes for a file of its name with all that is in it, or nothing goes at all.
//! I4. When the sender is gone nothing more is removed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use super::exclusion::{ExcludePattern, NameKind, is_excluded, parse_all};
use super::message::{EXTRAS_MAX, ExtraNames, REPORTED_MAX, RemovalTask};
use super::path::{PathText, RelativePath, is_unfinished};
use super::plan::{ENTRIES_MAX, EntryKind, ManifestEntry};
use super::target::{ListedName, TargetDirectory, reason};

/// What was removed, or would be.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RemovedNames {
    pub(super) count: u64,
    pub(super) extras: ExtraNames,
    /// Names that could not be, and why, of some.
    pub(super) failed: u64,
    pub(super) why: Vec<(PathText, String)>,
}

/// Removes what `task` says and is not of `entries`; in a directory that is only looked at, lists
/// it.
pub(super) fn remove(
    target: &mut TargetDirectory,
    task: &RemovalTask,
    entries: &[ManifestEntry],
    is_over: &AtomicBool,
) -> RemovedNames {
    let mut removed = RemovedNames::default();
    let exclude = match parse_all(&task.exclude) {
        Ok(exclude) => exclude,
        Err(why) => {
            removed.fail(&RelativePath::default(), why);
            return removed;
        }
    };
    let of_entry =
        |entry: &ManifestEntry| NameKind::from_directory(entry.kind == EntryKind::Directory);
    let mut present: BTreeMap<&RelativePath, Option<NameKind>> =
        entries.iter().map(|entry| (&entry.path, Some(of_entry(entry)))).collect();
    present.extend(task.kept.iter().map(|path| (path, None)));
    let roots = &task.below;
    let mut choice =
        RemovalChoice { exclude, present, roots, extras: Vec::new(), staying: BTreeSet::new() };
    for root in roots {
        choice.walk(target, root, &mut removed);
    }
    let RemovalChoice { extras, staying, present, .. } = choice;
    let mut replaced = extras.iter().filter(|(path, _)| present.contains_key(path));
    if let Some((path, _)) = replaced.find(|(path, _)| staying.contains(path)) {
        removed.fail(path, "what stays in this directory is in the way of a file".to_owned());
        return removed;
    }
    let goes = |(path, _): &&(RelativePath, NameKind)| !staying.contains(path);
    if target.only_looks() {
        let listed = extras.iter().filter(goes);
        let count = listed.clone().count() as u64;
        let paths = listed.take(EXTRAS_MAX).map(|(path, _)| path.text()).collect();
        removed.extras = ExtraNames { count, paths };
        return removed;
    }
    for (path, kind) in extras.iter().rev().filter(goes) {
        if is_over.load(Ordering::Acquire) {
            removed.fail(path, "the sender is gone".to_owned());
            break;
        }
        match target.remove(path, *kind) {
            Ok(()) => removed.count += 1,
            // Somebody else was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => removed.fail(path, reason(&error)),
        }
    }
    removed
}

impl RemovedNames {
    fn fail(&mut self, path: &RelativePath, why: String) {
        self.failed += 1;
        if self.why.len() < REPORTED_MAX {
            self.why.push((path.text(), format!("not removed: {why}")));
        }
    }
}

/// Which names go.
struct RemovalChoice<'t> {
    exclude: Vec<ExcludePattern>,
    /// What the source has, and what it is there if it is cast.
    present: BTreeMap<&'t RelativePath, Option<NameKind>>,
    /// The directories that were cast.
    roots: &'t [RelativePath],
    /// What it has not, directories before what is in them.
    extras: Vec<(RelativePath, NameKind)>,
    /// Directories with something in them that stays.
    staying: BTreeSet<RelativePath>,
}

impl RemovalChoice<'_> {
    /// Chooses among the names below `root`.
    fn walk(
        &mut self,
        target: &mut TargetDirectory,
        root: &RelativePath,
        removed: &mut RemovedNames,
    ) {
        let mut open = vec![root.clone()];
        while let Some(directory) = open.pop() {
            let names = match target.list(&directory) {
                Ok(names) => names,
                // Where nothing is changed it may not be there yet.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    self.stay(&directory);
                    removed.fail(&directory, reason(&error));
                    continue;
                }
            };
            for listed in names {
                match self.choose(&directory, &listed) {
                    Ok(inner) => open.extend(inner),
                    Err(why) => {
                        self.stay(&directory);
                        let name = OsStr::from_bytes(&listed.name);
                        removed.fail(&directory.join(name.as_bytes()).unwrap_or_default(), why);
                    }
                }
            }
        }
    }

    /// Chooses whether a name in `directory` goes; returns the directory that it is, to be walked.
    fn choose(
        &mut self,
        directory: &RelativePath,
        listed: &ListedName,
    ) -> Result<Option<RelativePath>, String> {
        let ListedName { name, kind, is_mounted } = listed;
        if is_unfinished(name) {
            return Ok(None);
        }
        let path = directory.join(name).ok_or("its path is too long")?;
        let is_directory = *kind == NameKind::Directory;
        if self.roots.contains(&path) {
            // It is walked by itself.
            return Ok(None);
        }
        let is_replaced = match self.present.get(&path) {
            Some(Some(NameKind::Other)) if is_directory => true,
            Some(_) => return Ok(is_directory.then_some(path)),
            None => false,
        };
        let mut around = self.roots.iter().filter(|root| path.is_below(root));
        let is_kept = !is_replaced
            && around.any(|root| {
                let below: PathBuf = path.names().skip(root.names().count()).collect();
                is_excluded(&self.exclude, &below, *kind)
            });
        if is_kept {
            self.stay(directory);
            return Ok(None);
        }
        if *is_mounted {
            return Err("something is mounted there".to_owned());
        }
        if self.extras.len() == ENTRIES_MAX {
            return Err(format!("more than {ENTRIES_MAX} names would go"));
        }
        self.extras.push((path.clone(), *kind));
        Ok(is_directory.then_some(path))
    }

    /// Keeps `directory`, and those that it is in.
    fn stay(&mut self, directory: &RelativePath) {
        let mut at = directory.clone();
        while let Some((outer, _)) = at.split() {
            if !self.staying.insert(at) {
                return;
            }
            at = outer;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::mechanism::cast::message::TargetAccess;

    fn path(path: &str) -> RelativePath {
        RelativePath::read(path).expect("a path")
    }

    #[test]
    fn remove__links_and_paths_through_them_lead_nowhere() {
        let ground = std::env::temp_dir().join(format!("clearway-removal-{}", std::process::id()));
        let _ = fs::remove_dir_all(&ground);
        let (outside, inside) = (ground.join("outside"), ground.join("inside"));
        fs::create_dir_all(outside.join("dir")).expect("made");
        fs::create_dir_all(inside.join("cast")).expect("made");
        fs::write(outside.join("file"), b"kept").expect("written");
        symlink(&outside, inside.join("cast/link")).expect("a link");
        let mut target = TargetDirectory::open(&inside).expect("a target");
        for (name, kind) in
            [("cast/link/file", NameKind::Other), ("cast/link/dir", NameKind::Directory)]
        {
            assert!(target.remove(&path(name), kind).is_err(), "{name}");
        }
        assert!(target.list(&path("cast/link")).is_err());
        let through = RemovalTask { below: vec![path("cast/link")], ..RemovalTask::default() };
        let removed = remove(&mut target, &through, &[], &AtomicBool::new(false));
        assert_eq!((removed.count, removed.failed), (0, 1));
        let task = RemovalTask { below: vec![path("cast")], ..RemovalTask::default() };
        let mut looks = TargetDirectory::open_for(&inside, TargetAccess::Look).expect("a target");
        let listed = remove(&mut looks, &task, &[], &AtomicBool::new(false));
        let extras = ExtraNames { count: 1, paths: vec![path("cast/link").text()] };
        assert_eq!((listed.count, listed.extras), (0, extras));
        assert!(inside.join("cast/link").exists());
        let removed = remove(&mut target, &task, &[], &AtomicBool::new(false));
        assert_eq!((removed.count, removed.failed), (1, 0));
        assert!(outside.join("file").exists() && outside.join("dir").exists());
        assert!(!inside.join("cast/link").is_symlink());
        fs::remove_dir_all(ground).expect("removed");
    }

    #[test]
    fn remove__patterns_of_nobody_remove_nothing() {
        let ground = std::env::temp_dir().join(format!("clearway-patterns-{}", std::process::id()));
        let _ = fs::remove_dir_all(&ground);
        fs::create_dir_all(ground.join("inner")).expect("made");
        let mut target = TargetDirectory::open(&ground).expect("a target");
        let below = vec![RelativePath::default()];
        let task = RemovalTask { below, exclude: vec!["[".to_owned()], kept: Vec::new() };
        let removed = remove(&mut target, &task, &[], &AtomicBool::new(false));
        assert_eq!((removed.count, removed.failed), (0, 1));
        assert!(ground.join("inner").exists());
        fs::remove_dir_all(ground).expect("removed");
    }

    #[test]
    fn remove__what_is_mounted_stays_also_of_the_same_file_system() {
        let ground = std::env::temp_dir().join(format!("clearway-mounted-{}", std::process::id()));
        let _ = fs::remove_dir_all(&ground);
        let (outside, place) = (ground.join("outside"), ground.join("inside/cast/mounted"));
        fs::create_dir_all(&outside).expect("made");
        fs::create_dir_all(&place).expect("made");
        fs::write(outside.join("file"), b"kept").expect("written");
        let none = None::<&str>;
        let flags = nix::mount::MsFlags::MS_BIND;
        if let Err(error) = nix::mount::mount(Some(&outside), &place, none, flags, none) {
            println!("skipped: nothing can be mounted: {error}");
            return;
        }
        let mut target = TargetDirectory::open(&ground.join("inside")).expect("a target");
        let task = RemovalTask { below: vec![path("cast")], ..RemovalTask::default() };
        let removed = remove(&mut target, &task, &[], &AtomicBool::new(false));
        nix::mount::umount(&place).expect("mounted");
        assert_eq!((removed.count, removed.failed), (0, 1));
        assert!(outside.join("file").exists());
        fs::remove_dir_all(ground).expect("removed");
    }

    #[test]
    fn remove__ends_when_the_sender_is_gone() {
        let ground = std::env::temp_dir().join(format!("clearway-gone-{}", std::process::id()));
        fs::create_dir_all(&ground).expect("made");
        fs::write(ground.join("old"), b"kept").expect("written");
        let mut target = TargetDirectory::open(&ground).expect("a target");
        let task = RemovalTask { below: vec![RelativePath::default()], ..RemovalTask::default() };
        let gone = AtomicBool::new(true);
        let removed = remove(&mut target, &task, &[], &gone);
        assert_eq!((removed.count, removed.failed), (0, 1));
        assert!(removed.why[0].1.ends_with("the sender is gone"), "{:?}", removed.why);
        gone.store(false, Ordering::Release);
        assert_eq!(remove(&mut target, &task, &[], &gone).count, 1);
        fs::remove_dir_all(ground).expect("removed");
    }
}
