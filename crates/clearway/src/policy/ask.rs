//! Asks the policy of the site for a class, on behalf of a mechanism of this process.
//!
//! # Invariants
//! I1. A policy that cannot be read or is wrong stops nothing: one sentence on standard error says
//!     why, and the class becomes the more careful one.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use clearway_proto::base::{BitsPerSec, Class};
use clearway_runtime::launch::escaped;
use nix::unistd::{Gid, Group, Uid, User, getgroups};

use super::{BudgetTerms, Grant, PolicyRequester, SitePolicy, read};

/// The file of a site, which counts if it exists.
const SITE_FILE: &str = "/etc/clearway/policy.toml";
/// Words of `SHMEM_CLASS`, and the class of each.
const SHMEM_WORDS: [(&str, Class); 4] = [
    ("high", Class::LowLatency),
    ("medium", Class::BestEffort),
    ("low", Class::Bulk),
    ("scavenger", Class::Scavenger),
];

/// The policy that a command asks.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PolicyFlags {
    /// Ask the site policy in FILE which class may be used [default: /etc/clearway/policy.toml, if
    /// there is one].
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
}

/// The same for `clearway timeslice`, whose --policy is that of its schedule.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TimeslicePolicyFlags {
    /// Ask the site policy in FILE which class may be used [default: /etc/clearway/policy.toml, if
    /// there is one].
    #[arg(long, value_name = "FILE")]
    site_policy: Option<PathBuf>,
}

impl PolicyFlags {
    /// Returns what the policy grants to `program`, a mechanism, with the name of a program of the
    /// user's, if there is one; `None` where no policy is named and the site has none.
    pub(crate) fn ask(&self, program: (&str, Option<&OsStr>), requested: Class) -> Option<Grant> {
        asked(self.policy.as_deref(), program, requested)
    }

    /// Returns the budget that data of a mechanism is part of, in the class that it is granted; says
    /// nothing where the policy is wrong, which [`PolicyFlags::ask`] does.
    pub(crate) fn budget(&self, mechanism: &str, requested: Class) -> Option<BudgetTerms> {
        let policy = read(in_force(self.policy.as_deref())?).ok()?;
        policy.grant(&PolicyRequester::from_process(mechanism, None), requested).budget
    }

    /// Returns what the policy grants to a mechanism, and the rate of the link that it states; `None`
    /// where no policy is named and the site has none.
    ///
    /// # Errors
    /// The policy cannot be read, or is wrong.
    pub(crate) fn read(
        &self,
        mechanism: &str,
        requested: Class,
    ) -> anyhow::Result<Option<(Grant, Option<BitsPerSec>)>> {
        let Some(path) = in_force(self.policy.as_deref()) else { return Ok(None) };
        let policy = read(path)?;
        let grant = policy.grant(&PolicyRequester::from_process(mechanism, None), requested);
        Ok(Some((grant, policy.link)))
    }

    /// Returns whether a policy is named.
    pub(crate) const fn is_given(&self) -> bool {
        self.policy.is_some()
    }
}

impl TimeslicePolicyFlags {
    /// Returns what the policy grants to a mechanism, as [`PolicyFlags::ask`].
    pub(crate) fn ask(&self, mechanism: &str, requested: Class) -> Option<Grant> {
        asked(self.site_policy.as_deref(), (mechanism, None), requested)
    }
}

/// Returns the policy that is named, else that of the site if there is one.
pub(crate) fn in_force(named: Option<&Path>) -> Option<&Path> {
    let site = Path::new(SITE_FILE);
    named.or_else(|| site.symlink_metadata().is_ok().then_some(site))
}

/// Asks the policy that is named, else that of the site if there is one.
fn asked(
    named: Option<&Path>,
    (mechanism, program): (&str, Option<&OsStr>),
    requested: Class,
) -> Option<Grant> {
    let path = in_force(named)?;
    let requester = PolicyRequester::from_process(mechanism, program);
    Some(granted(read(path), path, &requester, requested))
}

/// Returns the grant of a policy, or a careful one with a sentence where there is none.
fn granted(
    policy: anyhow::Result<SitePolicy>,
    path: &Path,
    requester: &PolicyRequester,
    requested: Class,
) -> Grant {
    match policy {
        Ok(policy) => policy.grant(requester, requested),
        Err(why) => {
            let granted = careful(requested);
            let line = escaped(&format!("{why:#}; {granted} is used until the policy is right"));
            // Nothing stops because nobody can read it.
            let _ = writeln!(io::stderr(), "clearway: {line}");
            let file = escaped(&path.display().to_string());
            let rule = format!("{file} is no policy that can be read");
            Grant {
                requested,
                granted,
                limit: granted,
                rule,
                ceiling: None,
                deadline: None,
                budget: None,
            }
        }
    }
}

/// Returns the class of traffic whose right to `requested` is not known: bulk data yields to all
/// others, and what a program waits for is as urgent as traffic that asks for nothing.
fn careful(requested: Class) -> Class {
    if requested > Class::BestEffort { Class::Scavenger } else { Class::BestEffort }
}

impl PolicyRequester {
    /// Creates the requester that this process is, with the job that Slurm's variables name.
    fn from_process(mechanism: &str, program: Option<&OsStr>) -> Self {
        let own = Uid::effective();
        let user = User::from_uid(own).ok().flatten();
        let user = user.map_or_else(|| own.to_string(), |user| user.name);
        let group = |gid: Gid| {
            let group = Group::from_gid(gid).ok().flatten();
            group.map_or_else(|| gid.to_string(), |group| group.name)
        };
        let groups = getgroups().unwrap_or_default();
        let groups = std::iter::once(Gid::effective()).chain(groups).map(group).collect();
        let variable = |name: &&str| std::env::var(name).ok();
        let jobs = ["SLURM_JOB_NAME", "SLURM_JOB_ID"].iter().filter_map(variable).collect();
        let file = program.and_then(|program| Path::new(program).file_name());
        let file = file.map(|name| name.to_string_lossy().into_owned());
        let programs = std::iter::once(mechanism.to_owned()).chain(file).collect();
        Self::new([vec![user], groups, jobs, programs])
    }
}

/// Returns the value of `SHMEM_CLASS` that the policy grants to `program` of OpenSHMEM which asks for
/// `requested`, and says it on standard error; `None` where there is no policy, or the value is none
/// of the library's, which refuses it.
pub(crate) fn shmem_class(
    policy: &PolicyFlags,
    requested: Option<&str>,
    program: &OsStr,
) -> Option<(Grant, &'static str)> {
    let requested = class_of_shmem(requested.unwrap_or("medium"))?;
    let grant = policy.ask(("shmem", Some(program)), requested)?;
    grant.say();
    let word = shmem_word(grant.granted);
    Some((grant, word))
}

/// Returns the class that a value of `SHMEM_CLASS` means.
fn class_of_shmem(word: &str) -> Option<Class> {
    SHMEM_WORDS.iter().find(|(known, _)| *known == word).map(|(_, class)| *class)
}

/// Returns the value of `SHMEM_CLASS` for `class`.
fn shmem_word(class: Class) -> &'static str {
    let of = SHMEM_WORDS.iter().find(|(_, known)| *known >= class);
    of.map_or("scavenger", |(word, _)| word)
}

impl Grant {
    /// Prints the sentence on standard error.
    pub(crate) fn say(&self) {
        // Nothing stops because nobody can read it.
        let _ = writeln!(io::stderr(), "clearway: {}", escaped(&self.sentence()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::read_text;

    #[test]
    fn granted__a_wrong_policy_means_the_more_careful_class() {
        let path = Path::new("site.toml");
        let cases = [
            (Class::Bulk, Class::Scavenger),
            (Class::Scavenger, Class::Scavenger),
            (Class::BestEffort, Class::BestEffort),
            (Class::LowLatency, Class::BestEffort),
        ];
        for (requested, expected) in cases {
            let wrong = read_text("site.toml", "rule = 1").map_err(anyhow::Error::msg);
            let grant = granted(wrong, path, &PolicyRequester::default(), requested);
            assert_eq!(grant.granted, expected, "{requested}");
            assert_eq!(grant.rule, "site.toml is no policy that can be read");
        }
    }

    #[test]
    fn asked__without_a_file_there_is_no_grant_and_a_missing_one_is_careful() {
        let named = |path: &str| PolicyFlags { policy: Some(path.into()) };
        let grant = named("/no/such/policy.toml").ask(("cast", None), Class::Bulk);
        assert_eq!(grant.map(|grant| grant.granted), Some(Class::Scavenger));
        if !Path::new(SITE_FILE).exists() {
            assert_eq!(PolicyFlags::default().ask(("cast", None), Class::Bulk), None);
        }
    }

    #[test]
    fn from_process__a_program_has_the_name_of_its_file() {
        let found = PolicyRequester::from_process("shmem", Some(OsStr::new("/opt/bin/solver")));
        assert_eq!(found.names[3], ["shmem", "solver"]);
        assert!(found.names[0].len() == 1 && !found.names[1].is_empty());
    }

    #[test]
    fn shmem_word__no_class_becomes_more_urgent() {
        for class in Class::ALL {
            let back = class_of_shmem(shmem_word(class)).expect("a word of the library");
            assert!(back >= class, "{class} becomes {back}");
        }
        assert_eq!(class_of_shmem("HIGH"), None);
    }
}
