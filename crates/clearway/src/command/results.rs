//! Where the report of a run goes: into a directory of its own, so that no run overwrites what
//! another one left.
//!
//! # Model
//! Without `--out` runs of a name are numbered, `out/NAME/1`, `out/NAME/2` and so on, and the
//! symbolic link `out/NAME/latest` leads to the newest. A number is taken when its report is
//! written, so that a run without one leaves nothing.
//!
//! # Invariants
//! I1. A report is overwritten only if the user says so.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

use super::registry::presenters;
use crate::report::model::Report;
use crate::report::store;

/// How often a directory is made again that other runs remove.
const ATTEMPTS: usize = 1_000;

/// Where the report of a run goes.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReportFlags {
    /// Write report.json and report.html into this directory [default: out/NAME/1, the next run
    /// out/NAME/2 and so on; out/NAME/latest is the newest].
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Overwrite the report of an earlier run in --out, which is refused otherwise.
    #[arg(long, requires = "out")]
    pub(super) overwrite: bool,
}

/// Where reports of a run go.
#[derive(Clone, Debug)]
pub(super) enum ReportDestination {
    /// Into this directory.
    In(PathBuf),
    /// Into the next number below this one.
    Below(PathBuf),
}

impl ReportDestination {
    /// Opens the place where `flags` want the report of a run called `name`. What cannot be written
    /// is known before anything is measured.
    ///
    /// # Errors
    /// One sentence: the directory holds a report, or cannot be written.
    pub(super) fn open(name: &str, flags: &ReportFlags) -> Result<Self> {
        let results = match &flags.out {
            Some(directory) => Self::In(directory.clone()),
            None => Self::Below(PathBuf::from("out").join(name)),
        };
        match &results {
            Self::In(directory) => claim(directory, store::JSON_NAME, flags)?,
            Self::Below(directory) => try_making(directory)?,
        }
        Ok(results)
    }

    /// Writes `report`; where it is then.
    ///
    /// # Errors
    /// As [`store::write`].
    pub(super) fn write(&self, report: &Report) -> Result<PathBuf> {
        match self {
            Self::In(directory) => {
                write_or_remove(directory, report)?;
                Ok(directory.clone())
            }
            Self::Below(parent) => {
                let directory = next_number(parent)?;
                write_or_remove(&directory, report)?;
                point(parent, &directory)?;
                Ok(directory)
            }
        }
    }
}

/// Writes `report` into `directory`, which does not stay empty when that fails.
fn write_or_remove(directory: &Path, report: &Report) -> Result<()> {
    // A directory that has anything in it stays.
    store::write(directory, report, &presenters()).inspect_err(|_| drop(fs::remove_dir(directory)))
}

/// Checks that a run may leave `file` in `directory`, which is made when that is written.
///
/// # Errors
/// One sentence: an earlier run left one, and nobody said that it may go; or the directory cannot
/// be written.
fn claim(directory: &Path, file: &str, flags: &ReportFlags) -> Result<()> {
    if directory.join(file).exists() && !flags.overwrite {
        let shown = directory.display();
        bail!(
            "{shown} holds the {file} of an earlier run; name another directory, or add --overwrite"
        );
    }
    try_making(directory)
}

/// Makes the directory below `parent` that has the next number.
fn next_number(parent: &Path) -> Result<PathBuf> {
    let cannot = || format!("no report can be written to {}", parent.display());
    fs::create_dir_all(parent).with_context(cannot)?;
    let entries = fs::read_dir(parent).with_context(cannot)?.filter_map(Result::ok);
    let last = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .max()
        .unwrap_or(0);
    for number in last.saturating_add(1).. {
        let directory = parent.join(number.to_string());
        match fs::create_dir(&directory) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => return made.map(|()| directory).with_context(cannot),
        }
    }
    bail!("{} has too many runs", parent.display())
}

/// Lets `latest` in `parent` lead to `directory`, in one step.
fn point(parent: &Path, directory: &Path) -> Result<()> {
    let latest = parent.join(store::LATEST);
    let aside = parent.join(format!(".{}-{}", store::LATEST, std::process::id()));
    let target = directory.file_name().context("a directory without a name")?;
    symlink(target, &aside)
        .and_then(|()| fs::rename(&aside, &latest))
        .inspect_err(|_| drop(fs::remove_file(&aside)))
        .with_context(|| format!("{} cannot be made", latest.display()))
}

/// Tries whether `directory` can be written, and removes what that made: a run without a report
/// leaves nothing.
fn try_making(directory: &Path) -> Result<()> {
    let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let made: Vec<&Path> = directory.ancestors().take_while(is_missing).collect();
    try_writing(directory)?;
    // One that another run uses by now is not empty, and stays.
    made.into_iter().for_each(|path| drop(fs::remove_dir(path)));
    Ok(())
}

/// Makes `directory` and tries whether files can be made in it.
fn try_writing(directory: &Path) -> Result<()> {
    // Another run that tries a directory next to this one may remove their common parent again: then
    // the parent exists when it is made, or is not there when the directory is made.
    let is_raced = |error: &anyhow::Error| {
        let source = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        source.is_some_and(|kind| [ErrorKind::NotFound, ErrorKind::AlreadyExists].contains(&kind))
    };
    let again = (1..ATTEMPTS).find_map(|_| match try_once(directory) {
        Err(error) if is_raced(&error) => None,
        tried => Some(tried),
    });
    again.unwrap_or_else(|| try_once(directory))
}

fn try_once(directory: &Path) -> Result<()> {
    let shown = directory.display();
    fs::create_dir_all(directory)
        .with_context(|| format!("the report's directory {shown} cannot be made"))?;
    let trial = directory.join(format!(".try-{}", std::process::id()));
    fs::write(&trial, b"").with_context(|| format!("no report can be written to {shown}"))?;
    fs::remove_file(&trial).with_context(|| format!("{}: cannot be removed", trial.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    /// Returns a directory of this test alone.
    fn scratch(name: &str) -> PathBuf {
        let directory =
            std::env::temp_dir().join(format!("clearway-results-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        directory
    }

    #[test]
    fn try_making__runs_next_to_each_other_do_not_take_away_their_parent() {
        let scratch = scratch("neighbours");
        let parent = scratch.join("missing");
        let tries = |name: &'static str| {
            let directory = parent.join(name);
            move || (0..200).try_for_each(|_| try_making(&directory))
        };
        let runs = ["a", "b", "c", "d"].map(|name| std::thread::spawn(tries(name)));
        for run in runs {
            run.join().expect("it does not panic").expect("made");
        }
        fs::remove_dir_all(&scratch).expect("removed");
    }

    #[test]
    fn write__each_run_has_a_number_of_its_own_and_the_link_leads_to_the_newest() {
        let parent = scratch("numbers");
        let results = ReportDestination::Below(parent.clone());
        let report = |seed| Report { seed, ..sample::incast_demo() };
        assert_eq!(results.write(&report(1)).expect("written"), parent.join("1"));
        fs::create_dir(parent.join("9")).expect("made");
        assert_eq!(
            results.write(&report(2)).expect("written"),
            parent.join("10"),
            "by number and not by letters"
        );
        let seed_of = |path: &Path| store::read(path, &presenters()).expect("a report").seed;
        assert_eq!(
            [parent.clone(), parent.join("1"), parent.join("latest")].map(|path| seed_of(&path)),
            [2, 1, 2]
        );
        assert_eq!(
            fs::read_dir(&parent).expect("a directory").count(),
            4,
            "three numbers and the link"
        );
        fs::remove_dir_all(parent).expect("removed");
    }

    #[test]
    fn try_making__leaves_what_was_there_and_nothing_else() {
        let parent = scratch("trial");
        try_making(&parent.join("one/two")).expect("it can be written");
        assert_eq!(fs::read_dir(&parent).expect("a directory").count(), 0);
        fs::create_dir(parent.join("one")).expect("made");
        try_making(&parent.join("one/two")).expect("it can be written");
        assert_eq!(fs::read_dir(parent.join("one")).expect("it stays").count(), 0);
        fs::remove_dir_all(parent).expect("removed");
    }

    #[test]
    fn open__a_run_that_fails_early_leaves_no_directory() {
        let parent = scratch("early");
        let flags = ReportFlags { out: Some(parent.join("a/b")), overwrite: false };
        let results = ReportDestination::open("bench", &flags).expect("it can be written");
        assert_eq!(fs::read_dir(&parent).expect("a directory").count(), 0);
        results.write(&sample::incast_demo()).expect("written");
        assert!(parent.join("a/b/report.json").exists());
        fs::remove_dir_all(parent).expect("removed");
    }

    #[test]
    fn of__a_directory_with_a_report_is_taken_only_if_it_is_said() {
        let directory = scratch("held");
        let flags = |overwrite| ReportFlags { out: Some(directory.clone()), overwrite };
        let first = ReportDestination::open("bench", &flags(false)).expect("empty");
        first.write(&sample::incast_demo()).expect("written");
        let said = ReportDestination::open("bench", &flags(false)).expect_err("held").to_string();
        assert!(said.ends_with(
            "holds the report.json of an earlier run; name another directory, or add --overwrite"
        ));
        assert!(ReportDestination::open("bench", &flags(true)).is_ok());
        fs::remove_dir_all(directory).expect("removed");
    }
}
