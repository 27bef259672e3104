//! The credential of a run that can be joined: where it is kept, and how somebody on another host
//! gets it.
//!
//! # Model
//! The coordinator of a job writes it next to the board of its run (`status_board`), where its user
//! alone can read it, and removes it at the end. On another host it is asked for over ssh, as the
//! board is.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clearway_proto::base::Rank;
use clearway_runtime::launch::escaped;

use super::status_board::{
    RunLocation, check_name, directory, is_alive, path_of, paths_of, place_of, remote_command,
    remote_failure, replace,
};
use crate::run::exit::Exit;
use crate::run::job::{self, JobCredential};
use crate::run::notice;

/// The words of this program that say a credential to it.
const SAY: &str = "timeslice credential";
/// What the file of a credential is called, before the name of its run.
const KIND: &str = "credential";

/// A credential that others of its user can read, until it is dropped.
pub(super) struct KeptCredential(PathBuf);

impl KeptCredential {
    /// Keeps `credential` of `job`.
    pub(super) fn write(job: &str, credential: &JobCredential) -> Result<Self> {
        let path = path_of(&directory()?, KIND, job)?;
        replace(&path, credential).with_context(|| format!("{} cannot be made", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for KeptCredential {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Becomes a rank of `job`, a name or `NAME@HOST`: `rank`, or any that died. On another host
/// `program` says the credential, which is where this one is unless it is said.
///
/// # Errors
/// One sentence: there is no such run, it cannot be reached, or has no place.
pub(crate) fn join_run(job: &str, rank: Option<u32>, program: Option<&Path>) -> Result<Exit> {
    let credential = match place_of(job)? {
        RunLocation::Here(name) => kept_here(name)?,
        RunLocation::There(name, host) => kept_there(name, host, program)?,
    };
    job::join(job, &credential, rank.map(Rank), |rank| {
        notice!("clearway: rank {rank} of run `{job}` is here");
    })
}

/// Returns the credential of `job` as text, for the same program on another host.
///
/// # Errors
/// No such run is coordinated on this host.
pub(crate) fn credential_text(job: &str) -> Result<String> {
    Ok(serde_json::to_string(&kept_here(job)?)? + "\n")
}

fn kept_here(job: &str) -> Result<JobCredential> {
    let read = |path: PathBuf| -> Option<JobCredential> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    };
    let found =
        paths_of(KIND, job)?.into_iter().filter_map(read).find(|found| is_alive(found.process));
    found.with_context(|| {
        format!(
            "no run `{job}` of a job is coordinated on this host; it says its name and host when it begins, and {job}@HOST is joined from elsewhere"
        )
    })
}

fn kept_there(job: &str, host: &str, program: Option<&Path>) -> Result<JobCredential> {
    check_name(job)?;
    let (mut ssh, program) = remote_command(&format!("{SAY} {job}"), host, program)?;
    let output = ssh.output().context("ssh, which reaches other hosts, cannot be started")?;
    if let Some(error) = remote_failure(output.status, host, &program) {
        return Err(error);
    }
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().map(escaped).collect::<Vec<_>>().join(" ");
        bail!("host {host}: {}", said.trim_start_matches("clearway: "));
    }
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("host {host} says no credential: put the same program on all"))
}
