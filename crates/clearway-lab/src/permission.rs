//! Decides whether this process may make network namespaces, takes a user namespace where that is
//! the way, and says what is missing.
//!
//! # Model
//! Two roads: the process already has the capabilities (root), or it makes a user namespace in
//! which it is root. The second changes the whole process and needs it to be single-threaded, so
//! [`acquire`] belongs at the very beginning of `main`. [`probe`] only looks.
//!
//! # Source
//! `user_namespaces(7)`, `capabilities(7)`; the AppArmor setting is Ubuntu's since 23.10, the clone
//! setting Debian's.

use std::fs;
use std::io;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};
use serde::Serialize;

use crate::LabError;

/// `CAP_NET_ADMIN` and `CAP_SYS_ADMIN`: configure a network, make and enter namespaces.
const NEEDED: u64 = 1 << 12 | 1 << 21;

/// How this process may make a lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Permission {
    /// It has the capabilities itself (root).
    Direct,
    /// It became root of a user namespace of its own.
    UserNamespace,
}

/// What [`probe`] found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PermissionProbe {
    /// The road that [`acquire`] would take; none when something below is in the way.
    pub road: Option<Permission>,
    /// What is in the way, each with what would remove it, as one sentence.
    pub missing: Vec<String>,
}

/// What the kernel says about this process and its namespaces.
#[derive(Clone, Debug, Default)]
struct KernelFacts {
    capabilities: u64,
    threads: usize,
    seccomp: Option<u32>,
    max_user_namespaces: Option<u64>,
    max_net_namespaces: Option<u64>,
    userns_clone: Option<u64>,
    apparmor_restricts: Option<u64>,
    /// Names of drivers that are neither built in, loaded nor loadable.
    absent_modules: Vec<&'static str>,
}

/// Takes what is needed to make a lab. Call it first in `main`, before any thread is started.
///
/// # Errors
/// [`LabError::Permission`]: one sentence that says what is in the way and what would remove it.
pub fn acquire() -> Result<Permission, LabError> {
    if facts().capabilities & NEEDED == NEEDED {
        return Ok(Permission::Direct);
    }
    let (uid, gid) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER)
        .map_err(|errno| refusal(&format!("make a user namespace ({errno})")))?;
    let map = |file: &str, text: &str| fs::write(format!("/proc/self/{file}"), text);
    map("setgroups", "deny")
        .and_then(|()| map("uid_map", &format!("0 {uid} 1")))
        .and_then(|()| map("gid_map", &format!("0 {gid} 1")))
        .map_err(|error: io::Error| {
            refusal(&format!("become root of its user namespace ({error})"))
        })?;
    Ok(Permission::UserNamespace)
}

/// Tells which road [`acquire`] would take and what is in the way. Changes nothing.
pub fn probe() -> PermissionProbe {
    judge(&facts())
}

/// Returns the number of the user who owns this process outside a user namespace that [`acquire`]
/// made.
pub fn outer_uid() -> u32 {
    let here = geteuid().as_raw();
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let fields: Vec<u32> = map.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    match fields[..] {
        // Exactly the one-line map that `acquire` writes.
        [0, outer, 1] if here == 0 => outer,
        _ => here,
    }
}

/// Returns one sentence about what would allow making a lab, for a step the kernel refused with
/// EPERM.
pub(crate) fn advice() -> String {
    match judge(&facts()).missing.first() {
        Some(sentence) => sentence.clone(),
        None => {
            "run as root, or with CAP_NET_ADMIN and CAP_SYS_ADMIN, outside a container that forbids namespaces".into()
        }
    }
}

fn refusal(doing: &str) -> LabError {
    LabError::Permission(format!("this process may not {doing}: {}", advice()))
}

fn facts() -> KernelFacts {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        status.lines().find_map(|line| {
            line.strip_prefix(name)?.strip_prefix(':').map(str::trim).map(str::to_owned)
        })
    };
    let number =
        |path: &str| fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok());
    KernelFacts {
        capabilities: field("CapEff")
            .and_then(|hex| u64::from_str_radix(&hex, 16).ok())
            .unwrap_or(0),
        threads: field("Threads").and_then(|n| n.parse().ok()).unwrap_or(1),
        seccomp: field("Seccomp").and_then(|n| n.parse().ok()),
        max_user_namespaces: number("/proc/sys/user/max_user_namespaces"),
        max_net_namespaces: number("/proc/sys/user/max_net_namespaces"),
        userns_clone: number("/proc/sys/kernel/unprivileged_userns_clone"),
        apparmor_restricts: number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
        absent_modules: absent_modules(),
    }
}

fn judge(facts: &KernelFacts) -> PermissionProbe {
    let mut missing = Vec::new();
    let mut say = |found: bool, sentence: &str| missing.extend(found.then(|| sentence.to_owned()));
    say(
        facts.max_net_namespaces == Some(0),
        "network namespaces are switched off: set user.max_net_namespaces to 1000 with sysctl as root",
    );
    let direct = facts.capabilities & NEEDED == NEEDED;
    if !direct {
        say(
            facts.max_user_namespaces == Some(0),
            "user namespaces are switched off: set user.max_user_namespaces to 1000 with sysctl as root, or run as root",
        );
        say(
            facts.userns_clone == Some(0),
            "user namespaces are kept for root: set kernel.unprivileged_userns_clone to 1 with sysctl as root, or run as root",
        );
        say(
            facts.apparmor_restricts == Some(1),
            "AppArmor restricts user namespaces: set kernel.apparmor_restrict_unprivileged_userns to 0 with sysctl as root, or run as root",
        );
        say(
            facts.seccomp == Some(2),
            "a seccomp filter (a container's, usually) may forbid namespaces: start the container with `--privileged`, or with `--cap-add NET_ADMIN --cap-add SYS_ADMIN --security-opt seccomp=unconfined`",
        );
        say(
            facts.threads > 1,
            "this process has threads already, and only a single-threaded one can make a user namespace",
        );
    }
    for module in &facts.absent_modules {
        say(
            true,
            &format!(
                "the kernel has no `{module}`: install the package with its extra modules, or use a kernel that has it"
            ),
        );
    }
    // A filter need not forbid it: it is named, but the attempt decides.
    let blocked = missing.iter().any(|sentence| !sentence.starts_with("a seccomp filter"));
    let road = if direct { Permission::Direct } else { Permission::UserNamespace };
    PermissionProbe { road: (!blocked).then_some(road), missing }
}

/// Returns the drivers that a lab needs and that this kernel certainly lacks; nothing when its
/// module directory cannot be read.
fn absent_modules() -> Vec<&'static str> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let directory = format!("/lib/modules/{}", release.trim());
    let read = |file: &str| fs::read_to_string(format!("{directory}/{file}"));
    let (Ok(loadable), Ok(builtin)) = (read("modules.dep"), read("modules.builtin")) else {
        return Vec::new();
    };
    let loaded = fs::read_to_string("/proc/modules").unwrap_or_default();
    let present = |module: &str| {
        let file = format!("/{module}.ko");
        loadable.contains(&file)
            || builtin.contains(&file)
            || loaded.lines().any(|l| l.starts_with(module))
    };
    ["veth", "bridge", "sch_tbf", "sch_htb", "cls_u32"]
        .into_iter()
        .filter(|module| !present(module))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: KernelFacts = KernelFacts {
        capabilities: u64::MAX,
        threads: 1,
        seccomp: Some(0),
        max_user_namespaces: Some(1000),
        max_net_namespaces: Some(1000),
        userns_clone: None,
        apparmor_restricts: None,
        absent_modules: Vec::new(),
    };

    #[test]
    fn judge__root_needs_no_user_namespace() {
        let facts = KernelFacts { max_user_namespaces: Some(0), threads: 9, ..ROOT };
        assert_eq!(
            judge(&facts),
            PermissionProbe { road: Some(Permission::Direct), missing: Vec::new() }
        );
    }

    #[test]
    fn judge__each_obstacle_is_named_with_its_remedy() {
        let user = KernelFacts { capabilities: 0, ..ROOT };
        assert_eq!(judge(&user).road, Some(Permission::UserNamespace));
        for (facts, word) in [
            (
                KernelFacts { max_user_namespaces: Some(0), ..user.clone() },
                "user.max_user_namespaces",
            ),
            (
                KernelFacts { userns_clone: Some(0), ..user.clone() },
                "kernel.unprivileged_userns_clone",
            ),
            (
                KernelFacts { apparmor_restricts: Some(1), ..user.clone() },
                "apparmor_restrict_unprivileged_userns",
            ),
            (KernelFacts { threads: 2, ..user.clone() }, "threads"),
            (
                KernelFacts { max_net_namespaces: Some(0), ..user.clone() },
                "user.max_net_namespaces",
            ),
            (KernelFacts { absent_modules: vec!["sch_htb"], ..user.clone() }, "sch_htb"),
        ] {
            let probe = judge(&facts);
            assert_eq!((probe.road, probe.missing.len()), (None, 1), "{word}");
            assert!(probe.missing[0].contains(word), "{}", probe.missing[0]);
        }
    }

    #[test]
    fn judge__a_seccomp_filter_is_named_but_may_let_us_pass() {
        let probe = judge(&KernelFacts { capabilities: 0, seccomp: Some(2), ..ROOT });
        assert_eq!(probe.road, Some(Permission::UserNamespace));
        assert!(probe.missing[0].contains("seccomp"));
    }
}
