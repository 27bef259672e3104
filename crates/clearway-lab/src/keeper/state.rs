//! The state file of a kept lab: where it lies, who may touch it, and whether the keeper it names
//! still lives.
//!
//! # Invariants
//! I1. The directory belongs to this user alone (mode 0700), or it is not used.
//! I2. A state file appears and is replaced whole, by rename, under a lock on the directory.
//! I3. A process is the keeper only when its number AND its start time match: numbers are used
//!     again.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

use crate::permission::outer_uid;
use crate::{LabError, LabName, LabSpec, PlannedHost};

/// The version of the file's form.
const SCHEMA: &str = "clearway-lab/1";

/// One process, distinguished from a later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// When it started, in clock ticks since boot (field 22 of `/proc/<pid>/stat`).
    pub started: u64,
}

impl Process {
    /// Finds the process `pid`, if it exists and has not ended.
    pub(crate) fn find(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        started(&stat).map(|started| Self { pid, started })
    }

    /// Returns whether this very process still lives.
    pub fn lives(&self) -> bool {
        Self::find(self.pid) == Some(*self)
    }
}

/// Returns the start time in a line of `/proc/<pid>/stat`; none for a process that has ended and
/// only waits to be collected.
fn started(stat: &str) -> Option<u64> {
    // The second field is the command in brackets and may hold anything, brackets and spaces
    // included.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?;
    if ["Z", "X"].contains(&state) { None } else { fields.nth(18)?.parse().ok() }
}

/// One namespace of a kept lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptNamespace {
    /// The file through which others enter it: `/proc/<pid>/fd/<n>` of the keeper.
    pub path: PathBuf,
    /// The number under which `/proc/<pid>/ns/net` shows it.
    pub inode: u64,
}

/// A kept lab as its state file describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptLab {
    /// The form of this file.
    pub schema: String,
    /// The lab's name.
    pub name: LabName,
    /// The process that holds the lab.
    pub keeper: Process,
    /// What was asked for.
    pub spec: LabSpec,
    /// The hosts, by rank.
    pub hosts: Vec<PlannedHost>,
    /// The namespaces: hosts by rank, then switches.
    pub spaces: Vec<KeptNamespace>,
}

impl KeptLab {
    pub(crate) fn new(
        name: LabName,
        keeper: Process,
        spec: LabSpec,
        hosts: Vec<PlannedHost>,
        spaces: Vec<KeptNamespace>,
    ) -> Self {
        Self { schema: SCHEMA.to_owned(), name, keeper, spec, hosts, spaces }
    }
}

/// The directory of state files.
#[derive(Debug)]
pub(crate) struct StateDirectory {
    directory: PathBuf,
}

impl StateDirectory {
    /// Finds the user's directory, making it if needed.
    pub(crate) fn open() -> Result<Self, LabError> {
        let mut refused = None;
        for directory in
            candidates(outer_uid(), std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from))
        {
            match own_directory(&directory) {
                Ok(()) => return Ok(Self { directory }),
                Err(cause) => refused = Some(LabError::State { path: directory, cause }),
            }
        }
        Err(refused.unwrap_or_else(|| LabError::NotUp(String::new())))
    }

    /// Returns the state of the lab `name`, whether its keeper lives or not.
    pub(crate) fn read(&self, name: &LabName) -> Result<Option<KeptLab>, LabError> {
        let path = self.path(name);
        let failed = |cause| LabError::State { path: path.clone(), cause };
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(failed)?,
        };
        let state: KeptLab = serde_json::from_slice(&text).map_err(|error| failed(error.into()))?;
        if state.schema != SCHEMA || state.name != *name {
            let reason =
                format!("not a state of the lab `{name}` in the form {SCHEMA}; remove the file");
            return Err(failed(io::Error::new(io::ErrorKind::InvalidData, reason)));
        }
        Ok(Some(state))
    }

    /// Returns the names of all labs with a state file.
    pub(crate) fn names(&self) -> Result<Vec<LabName>, LabError> {
        let entries = fs::read_dir(&self.directory).map_err(|cause| self.failed(cause))?;
        let name =
            |entry: fs::DirEntry| entry.file_name().to_str()?.strip_suffix(".json")?.parse().ok();
        let mut names: Vec<LabName> = entries.flatten().filter_map(name).collect();
        names.sort();
        Ok(names)
    }

    /// Writes the state of a new lab.
    ///
    /// # Errors
    /// [`LabError::Exists`] when a lab of this name lives.
    pub(crate) fn claim(&self, state: &KeptLab) -> Result<(), LabError> {
        let _lock = self.lock()?;
        if self.read(&state.name)?.is_some_and(|old| old.keeper.lives()) {
            return Err(LabError::Exists(state.name.to_string()));
        }
        let aside = self.directory.join(format!(".{}.{}", state.name, state.keeper.pid));
        let text = serde_json::to_vec_pretty(state).map_err(|error| self.failed(error.into()))?;
        let written =
            fs::write(&aside, text).and_then(|()| fs::rename(&aside, self.path(&state.name)));
        written.map_err(|cause| {
            let _ = fs::remove_file(&aside);
            LabError::State { path: self.path(&state.name), cause }
        })
    }

    /// Removes the state file of `state`, unless a new lab has taken the name meanwhile.
    pub(crate) fn remove(&self, state: &KeptLab) -> Result<(), LabError> {
        let _lock = self.lock()?;
        if self.read(&state.name)?.is_some_and(|now| now.keeper == state.keeper) {
            let path = self.path(&state.name);
            fs::remove_file(&path).map_err(|cause| LabError::State { path, cause })?;
        }
        Ok(())
    }

    fn path(&self, name: &LabName) -> PathBuf {
        self.directory.join(format!("{name}.json"))
    }

    fn lock(&self) -> Result<File, LabError> {
        let locked =
            File::open(&self.directory).and_then(|directory| directory.lock().map(|()| directory));
        locked.map_err(|cause| self.failed(cause))
    }

    fn failed(&self, cause: io::Error) -> LabError {
        LabError::State { path: self.directory.clone(), cause }
    }
}

/// Returns where state may lie, best first.
fn candidates(uid: u32, runtime: Option<PathBuf>) -> Vec<PathBuf> {
    let shared = PathBuf::from(format!("/tmp/clearway-{uid}"));
    match (uid, runtime) {
        (0, _) => vec!["/run/clearway".into(), shared],
        (_, Some(runtime)) => vec![runtime.join("clearway"), shared],
        (_, None) => vec![shared],
    }
}

/// Makes `directory` if it is missing, and refuses one that others could have prepared.
fn own_directory(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(directory)?;
    if found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    let reason = "not a directory of this user alone; remove it, or set its mode to 0700";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Topology;
    use clearway_proto::base::BitsPerSec;
    use std::os::unix::fs::PermissionsExt;

    struct TemporaryFile(PathBuf);

    impl TemporaryFile {
        fn new(word: &str) -> Self {
            let directory =
                std::env::temp_dir().join(format!("clearway-state-{word}-{}", std::process::id()));
            own_directory(&directory).unwrap();
            Self(directory)
        }
    }

    impl Drop for TemporaryFile {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn state(keeper: Process) -> KeptLab {
        let spec = LabSpec::new(Topology::Star { hosts: 1, rate: BitsPerSec::mega(100) });
        KeptLab::new("x".parse().unwrap(), keeper, spec, Vec::new(), Vec::new())
    }

    #[test]
    fn started__a_command_may_hold_brackets_and_spaces() {
        let tail = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(started(&format!("7 (a) b (c)) S {tail}")), Some(4711));
        assert_eq!(started(&format!("7 (x) Z {tail}")), None, "ended, not yet collected");
        assert_eq!(started("7 (x"), None);
        assert!(Process::find(std::process::id() as i32).unwrap().lives());
    }

    #[test]
    fn claim__a_living_keeper_keeps_its_name_and_a_dead_one_loses_it() {
        let directory = TemporaryFile::new("claim");
        let store = StateDirectory { directory: directory.0.clone() };
        let living = Process::find(std::process::id() as i32).unwrap();
        let dead = Process { started: living.started + 1, ..living };
        store.claim(&state(dead)).unwrap();
        store.claim(&state(living)).unwrap();
        assert!(matches!(store.claim(&state(dead)), Err(LabError::Exists(_))));
        store.remove(&state(dead)).unwrap();
        assert_eq!(
            store.read(&"x".parse().unwrap()).unwrap(),
            Some(state(living)),
            "another's file stays"
        );
        assert_eq!(store.names().unwrap().len(), 1);
        store.remove(&state(living)).unwrap();
        assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 0, "nothing is left aside");
    }

    #[test]
    fn read__what_is_not_a_state_is_refused_with_its_path() {
        let directory = TemporaryFile::new("read");
        let store = StateDirectory { directory: directory.0.clone() };
        fs::write(store.path(&"x".parse().unwrap()), "{").unwrap();
        let sentence = store.read(&"x".parse().unwrap()).unwrap_err().to_string();
        assert!(sentence.contains("x.json"), "{sentence}");
    }

    #[test]
    fn own_directory__one_that_others_can_enter_is_refused() {
        let directory = TemporaryFile::new("open");
        fs::set_permissions(&directory.0, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(
            own_directory(&directory.0).unwrap_err().kind(),
            io::ErrorKind::PermissionDenied
        );
    }

    #[test]
    fn candidates__a_user_and_root_do_not_meet() {
        let runtime = || Some(PathBuf::from("/run/user/7"));
        assert_eq!(candidates(0, runtime())[0], Path::new("/run/clearway"));
        assert_eq!(
            candidates(7, runtime()),
            [Path::new("/run/user/7/clearway"), Path::new("/tmp/clearway-7")]
        );
        assert_eq!(candidates(7, None), [Path::new("/tmp/clearway-7")]);
    }
}
