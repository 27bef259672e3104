//! `clearway policy`: whether the policy of a site is right, and what it grants to whom.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use clearway_proto::base::Class;
use clearway_runtime::launch::escaped;

use super::{json_text, print};
use crate::policy::{
    CoordinatorFlags, FaultyPolicy, PolicyFlags, PolicyRequester, read, serve, shmem_class,
};
use crate::run::exit::Exit;

/// The policy of a site.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Check a policy, and show its rules; or with a user, group, job, program or class, say which
    /// rule counts and what it grants.
    ///
    /// Exit status 3: the policy has a fault, or grants a less urgent class than --class.
    Check(CheckFlags),
    /// Divide the budgets of a policy among all processes of all hosts that ask, until a signal ends
    /// it.
    ///
    /// SIGHUP reads the policy again; an invalid one is ignored. Without this command, a cast or a
    /// drain keeps its rate for 2 s, and then sends at most a thousandth of the budget.
    Serve(CoordinatorFlags),
    /// Print the value of SHMEM_CLASS that a program gets; for oshrun.
    #[command(hide = true)]
    ShmemClass {
        #[command(flatten)]
        policy: PolicyFlags,
        /// The program.
        program: OsString,
    },
}

/// What `clearway policy check` takes.
#[derive(Debug, Args)]
pub(crate) struct CheckFlags {
    /// Check this file, a regular one of at most 256 KiB.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Ask for this user.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Ask for a member of this group; repeat it for more groups.
    #[arg(long, value_name = "NAME")]
    group: Vec<String>,
    /// Ask for this job of Slurm, by its name or number.
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Ask for a mechanism (bench, cast, timeslice, stage, shmem) or for the file name of a program;
    /// repeat it for a program of a mechanism.
    #[arg(long, value_name = "NAME")]
    program: Vec<String>,
    /// Ask for this class: control, low-latency, best-effort, bulk or scavenger [default: the most
    /// urgent one that is granted].
    #[arg(long)]
    class: Option<Class>,
    /// Write JSON instead of text.
    #[arg(long)]
    json: bool,
}

impl CheckFlags {
    /// Returns who asks, if anybody does.
    fn requester(&self) -> Option<PolicyRequester> {
        let is_question = self.user.is_some()
            || !self.group.is_empty()
            || self.job.is_some()
            || !self.program.is_empty()
            || self.class.is_some();
        let one = |name: &Option<String>| name.iter().cloned().collect();
        let names = [one(&self.user), self.group.clone(), one(&self.job), self.program.clone()];
        is_question.then(|| PolicyRequester::new(names))
    }
}

/// Does what `command` says.
pub(super) fn command(command: &PolicyCommand) -> Result<Exit> {
    match command {
        PolicyCommand::Check(flags) => check(flags),
        PolicyCommand::Serve(flags) => serve(flags),
        PolicyCommand::ShmemClass { policy, program } => {
            let requested = std::env::var("SHMEM_CLASS").ok();
            if let Some((_, word)) = shmem_class(policy, requested.as_deref(), program) {
                print(&format!("{word}\n"))?;
            }
            Ok(Exit::Good)
        }
    }
}

fn check(flags: &CheckFlags) -> Result<Exit> {
    let policy = match read(&flags.file) {
        Err(why) if why.is::<FaultyPolicy>() => {
            let why = why.to_string();
            let fault = serde_json::json!({ "fault": why });
            print(&if flags.json { json_text(&fault)? } else { format!("{}\n", escaped(&why)) })?;
            return Ok(Exit::Findings);
        }
        other => other?,
    };
    let Some(requester) = flags.requester() else {
        print(&if flags.json { json_text(&policy.document())? } else { policy.table() })?;
        return Ok(Exit::Good);
    };
    // Nothing is more urgent than control, so that is the most that is granted.
    let grant = policy.grant(&requester, flags.class.unwrap_or(Class::Control));
    let text = match flags.class {
        _ if flags.json => json_text(&grant)?,
        Some(_) => format!("{}\n", escaped(&grant.sentence())),
        None => format!("{}\n", escaped(&grant.most())),
    };
    print(&text)?;
    let is_granted = flags.class.is_none_or(|class| class == grant.granted);
    Ok(if is_granted { Exit::Good } else { Exit::Findings })
}
