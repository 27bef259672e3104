//! Tells whether this node is set up as the site wants: its policy and marks, its agent, limits of
//! processes and sockets, and a clock that is true.
//!
//! # Model
//! Marks are compared as the kernel lists them: the rules that belong to the policy are loaded into a
//! network namespace of their own, and listed there too.
//!
//! # Invariants
//! I1. Nothing of the node changes.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use clearway_proto::base::Nanos;
use clearway_runtime::clock_status::{ClockStatus, clock_status};
use clearway_runtime::launch::escaped;
use rustix::process::{Resource, getrlimit};

use super::finding::{Finding, FindingGroup};
use super::transport::buffer_limits;
use crate::agent::{NodeAgentState, ask_agent};
use crate::policy::{SitePolicy, in_force, read};

/// Lists the table with the chain that keeps marks to the policy: `limits` alone is a word of `nft`.
const TABLE: [&str; 4] = ["list", "table", "inet", "clearway"];
/// How that chain begins and ends in the list.
const CHAIN: [&str; 2] = ["\tchain limits {\n", "\n\t}\n"];
/// Reads rules, and lists the table that they make.
const LISTED: &str = "nft -f - && exec nft list table inet clearway";
/// Memory that wires of RDMA devices register: some rings of some MiB.
const LOCKED_MIN: u64 = 64 << 20;
/// Descriptors of a server with a thousand clients, or of a cast to a thousand hosts.
const FILES_MIN: u64 = 4096;
/// The error up to which times of different hosts can be compared by a person.
const ERROR_MAX: Nanos = Nanos::from_millis(100);

/// Makes the rules of `nft` that belong to a policy.
pub(crate) type RulesOf<'r> = &'r dyn Fn(&SitePolicy) -> String;

/// Looks at everything; `named` is the policy in place of that of the site.
pub(super) fn examine(named: Option<&Path>, rules: RulesOf<'_>) -> Vec<FindingGroup> {
    vec![
        FindingGroup { title: "Site policy", findings: policy(named, rules) },
        FindingGroup { title: "Agent", findings: vec![agent(ask_agent())] },
        FindingGroup { title: "Limits", findings: limits() },
        FindingGroup { title: "Clock", findings: vec![clock(clock_status())] },
    ]
}

fn policy(named: Option<&Path>, rules: RulesOf<'_>) -> Vec<Finding> {
    let item = "policy";
    let Some(path) = in_force(named) else {
        let found = "none: programs get the classes that they ask for";
        return vec![Finding::ok(item, found)];
    };
    let shown = escaped(&path.display().to_string());
    let policy = match read(path) {
        Ok(policy) => policy,
        Err(why) => {
            let remedy = "correct the file, or name another one with --policy".to_owned();
            return vec![Finding::missing(item, escaped(&format!("{why:#}")), remedy)];
        }
    };
    let coordinator = policy.first_budget().map(|terms| {
        let place = terms.place();
        match terms.call() {
            Ok(_) => Finding::ok("coordinator", format!("{place} answers")),
            Err(why) => Finding::missing(
                "coordinator",
                format!(
                    "{place} does not answer ({}): each process is limited to a thousandth of its budget",
                    escaped(&format!("{why:#}"))
                ),
                format!("start `clearway policy serve {shown}` there"),
            ),
        }
    });
    let listed = Command::new("nft").args(TABLE).output();
    let wanted = || expected(&rules(&policy));
    let marks = marks(listed, wanted, &shown);
    let read = Finding::ok(item, format!("{shown} has no fault"));
    [Some(read), coordinator, Some(marks)].into_iter().flatten().collect()
}

/// Returns how the kernel lists the rules of a policy.
fn expected(rules: &str) -> io::Result<Output> {
    let mut command = Command::new("unshare");
    command.args(["--net", "--", "sh", "-c", LISTED]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let mut input = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
    // One that does not read it says why at its end.
    let _ = input.write_all(rules.as_bytes());
    drop(input);
    child.wait_with_output()
}

/// Judges the rules of this node by those that `wanted` lists for the policy in the file `shown`.
fn marks(
    listed: io::Result<Output>,
    wanted: impl FnOnce() -> io::Result<Output>,
    shown: &str,
) -> Finding {
    let item = "marks";
    let remedy = format!("`clearway setup-node --policy {shown} | sh` as root");
    let listed = match listed {
        Ok(listed) => listed,
        Err(why) => {
            return Finding::limited(item, format!("nft: {}", why.kind()), "install nftables");
        }
    };
    let found = "no rule limits marks as the policy says";
    if !listed.status.success() {
        let why = String::from_utf8_lossy(&listed.stderr);
        return match why.contains("No such file") {
            true => Finding::missing(item, found, remedy),
            false => Finding::limited(item, "this user cannot see the rules", "run it as root"),
        };
    }
    let Some(own) = chain(&listed) else { return Finding::missing(item, found, remedy) };
    match wanted() {
        Ok(wanted) if wanted.status.success() => match chain(&wanted) == Some(own) {
            true => Finding::ok(item, format!("the rules are those of {shown}")),
            false => Finding::missing(item, format!("the rules are not those of {shown}"), remedy),
        },
        _ => {
            Finding::limited(item, "the rules cannot be compared with the policy", "run it as root")
        }
    }
}

/// Returns the rules of the chain in a list of the table, if it has the chain.
fn chain(listed: &Output) -> Option<String> {
    let text = String::from_utf8_lossy(&listed.stdout);
    let (_, rest) = text.split_once(CHAIN[0])?;
    rest.split_once(CHAIN[1]).map(|(rules, _)| rules.to_owned())
}

/// Judges what the agent of the node answers; a node may be without.
fn agent(state: io::Result<Option<NodeAgentState>>) -> Finding {
    let item = "scavengers";
    match state {
        Ok(None) => Finding::ok(item, "no agent runs, which would spare the class low-latency"),
        Ok(Some(NodeAgentState::Limits)) => {
            Finding::ok(item, "the agent allows them less than the link carries")
        }
        Ok(Some(NodeAgentState::LimitsNothing)) => {
            Finding::ok(item, "the agent runs and allows them the whole link")
        }
        Ok(Some(NodeAgentState::Full)) => Finding::limited(
            item,
            "the agent accepts no further scavenger of this user",
            "end some scavengers; one that is not accepted has no limit",
        ),
        Err(why) => Finding::limited(
            item,
            format!("the agent does not answer ({why})"),
            "start `clearway agent` again",
        ),
    }
}

fn limits() -> Vec<Finding> {
    let of = |resource| getrlimit(resource).current;
    let [receive, send] = buffer_limits();
    vec![locked(of(Resource::Memlock)), files(of(Resource::Nofile)), receive, send]
}

/// Judges the memory that a process may lock, in bytes; `None` is no limit.
fn locked(limit: Option<u64>) -> Finding {
    let item = "locked memory";
    match limit {
        None => Finding::ok(item, "no limit"),
        Some(limit) if limit >= LOCKED_MIN => Finding::ok(item, format!("{} MiB", limit >> 20)),
        Some(limit) => Finding::limited(
            item,
            format!("{} KiB: RDMA devices register more", limit >> 10),
            "`ulimit -l unlimited`, or memlock in /etc/security/limits.conf",
        ),
    }
}

/// Judges the number of descriptors of a process.
fn files(limit: Option<u64>) -> Finding {
    let item = "open files";
    match limit {
        Some(limit) if limit < FILES_MIN => Finding::limited(
            item,
            format!("{limit}: fewer than a cast or a server with many hosts has"),
            format!("`ulimit -n {FILES_MIN}`, or LimitNOFILE of the unit"),
        ),
        Some(limit) => Finding::ok(item, limit.to_string()),
        None => Finding::ok(item, "no limit"),
    }
}

fn clock(status: io::Result<ClockStatus>) -> Finding {
    let item = "synchronised";
    let remedy = "run chronyd, ntpd or systemd-timesyncd";
    let ClockStatus { is_synchronised, error, error_max } = match status {
        Ok(status) => status,
        Err(why) => {
            let found = format!("the kernel does not say: {}", why.kind());
            return Finding::limited(item, found, "look at it outside of the container");
        }
    };
    let errors = format!("error {error} as estimated, {error_max} at most");
    match is_synchronised {
        false => {
            Finding::missing(item, "the kernel's clock is not synchronised (STA_UNSYNC)", remedy)
        }
        true if error_max > ERROR_MAX => Finding::limited(
            item,
            format!("{errors}: times of hosts differ visibly"),
            "use a nearer source of time",
        ),
        true => Finding::ok(item, errors),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::super::finding::Status;
    use super::*;

    fn output(status: i32, stdout: &str, stderr: &str) -> io::Result<Output> {
        let status = ExitStatus::from_raw(status << 8);
        Ok(Output { status, stdout: stdout.into(), stderr: stderr.into() })
    }

    #[test]
    fn marks__rules_of_another_policy_and_none_are_missing() {
        let judge = |listed, wanted| marks(listed, || wanted, "site.toml");
        let table = |rules: &str, more: &str| {
            format!("table inet clearway {{\n\tchain limits {{\n{rules}\n\t}}\n\n{more}}}\n")
        };
        let (chain, another) = (&table("\t\ta", "\tchain marks {\n\t}\n"), &table("\t\tb", ""));
        let same = judge(output(0, chain, ""), output(0, &table("\t\ta", ""), ""));
        assert_eq!(same, Finding::ok("marks", "the rules are those of site.toml"));
        let other = judge(output(0, chain, ""), output(0, another, ""));
        assert_eq!(other.status, Status::Missing);
        assert_eq!(other.remedies, ["`clearway setup-node --policy site.toml | sh` as root"]);
        let none = judge(output(1, "", "Error: No such file or directory"), output(0, chain, ""));
        assert!(none.status == Status::Missing && none.found.starts_with("no rule"), "{none:?}");
        let other_chains = judge(output(0, "table inet clearway {\n}\n", ""), output(0, chain, ""));
        assert_eq!(other_chains, none);
        for (listed, wanted) in [
            (output(1, "", "Operation not permitted (you must be root)"), output(0, chain, "")),
            (output(0, chain, ""), output(1, "", "unshare failed")),
            (output(0, chain, ""), Err(io::ErrorKind::NotFound.into())),
            (Err(io::ErrorKind::NotFound.into()), output(0, chain, "")),
        ] {
            assert_eq!(judge(listed, wanted).status, Status::Limited);
        }
    }

    #[test]
    fn clock__what_nobody_keeps_true_is_missing_and_a_wide_error_limited() {
        let status = |is_synchronised, millis| {
            let (error, error_max) = (Nanos::from_micros(20), Nanos::from_millis(millis));
            clock(Ok(ClockStatus { is_synchronised, error, error_max })).status
        };
        assert_eq!(status(true, 100), Status::Ok);
        assert_eq!(status(true, 101), Status::Limited);
        assert_eq!(status(false, 1), Status::Missing);
        assert_eq!(clock(Err(io::ErrorKind::Unsupported.into())).status, Status::Limited);
    }

    #[test]
    fn agent__a_node_without_one_is_well_and_one_that_does_not_answer_is_not() {
        assert_eq!(agent(Ok(None)).status, Status::Ok);
        assert_eq!(agent(Ok(Some(NodeAgentState::Limits))).status, Status::Ok);
        assert_eq!(agent(Ok(Some(NodeAgentState::LimitsNothing))).status, Status::Ok);
        assert_eq!(agent(Ok(Some(NodeAgentState::Full))).status, Status::Limited);
        let dead = agent(Err(io::ErrorKind::ConnectionRefused.into()));
        assert_eq!(
            (dead.status, dead.remedies[0].as_str()),
            (Status::Limited, "start `clearway agent` again")
        );
    }

    #[test]
    fn limits__small_ones_are_named_with_what_works() {
        assert_eq!(locked(None).status, Status::Ok);
        assert_eq!(locked(Some(64 << 20)).status, Status::Ok);
        assert!(locked(Some(8 << 20)).found.starts_with("8192 KiB"));
        assert_eq!(files(Some(4096)), Finding::ok("open files", "4096"));
        assert_eq!(files(Some(1024)).status, Status::Limited);
    }

    #[test]
    fn policy__a_fault_and_an_absent_coordinator_are_missing() {
        let directory = std::env::temp_dir().join(format!("clearway-node-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let path = directory.join("site.toml");
        let judge = |text: &str| {
            std::fs::write(&path, text).expect("written");
            policy(Some(&path), &|_| String::new())
        };
        let faulty = judge("rule = 1");
        assert_eq!((faulty.len(), faulty[0].status), (1, Status::Missing));
        // Nobody listens at a port that was just closed.
        let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr();
        let port = port.expect("bound").port();
        let text = format!("coordinator = \"127.0.0.1:{port}\"\n[budget]\nbulk = \"1Gb/s\"\n");
        let found = judge(&text);
        std::fs::remove_dir_all(&directory).expect("removed");
        assert_eq!((found[0].status, found[1].status), (Status::Ok, Status::Missing));
        assert!(found[1].found.contains("does not answer"), "{}", found[1].found);
        assert_eq!(found[2].item, "marks");
    }
}
