//! Tells how ranks of a job could be started here, who started this process, and whether the
//! interfaces tell how fast they are.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::finding::{Finding, FindingGroup};
use super::machine::{is_executable, program};
use crate::run::job::interface;

/// Launchers, and what the ranks find each other through.
const LAUNCHERS: [(&str, &str); 5] = [
    ("srun", "Slurm: PMIx, PMI-1, or TCP"),
    ("mpirun", "Open MPI: PMIx, or MPICH: PMI-1"),
    ("mpiexec", "Open MPI: PMIx, or MPICH: PMI-1"),
    ("mpiexec.hydra", "MPICH: PMI-1"),
    ("prterun", "PRRTE: PMIx"),
];
/// What launchers leave in the environment of a rank, and whose it is.
const SIGNS: [(&str, &str); 4] = [
    ("PMIX_NAMESPACE", "a launcher with PMIx"),
    ("PMI_FD", "MPICH's hydra, or srun --mpi=pmi2 (PMI-1)"),
    ("SLURM_STEP_NODELIST", "srun"),
    ("CLEARWAY_RANK", "clearway --hostfile"),
];

/// Looks at launchers, environment and interfaces.
pub(super) fn examine() -> FindingGroup {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut findings = vec![
        launchers(&path, &is_executable),
        ssh(program("ssh", &path, &is_executable)),
        environment(&|name| std::env::var_os(name).is_some()),
    ];
    findings.extend(interfaces());
    FindingGroup { title: "Jobs across hosts", findings }
}

fn launchers(path: &OsStr, runs: &dyn Fn(&Path) -> bool) -> Finding {
    let there = |(name, through): (&str, &str)| {
        program(name, path, runs).map(|_| format!("{name} ({through})"))
    };
    let found: Vec<String> = LAUNCHERS.into_iter().filter_map(there).collect();
    if found.is_empty() {
        let remedy = "load your site's MPI or Slurm module, or name hosts with --hostfile";
        return Finding::missing("launchers", "none in the path", remedy);
    }
    Finding::ok("launchers", found.join("; "))
}

fn ssh(file: Option<PathBuf>) -> Finding {
    match file {
        Some(file) => Finding::ok("ssh", format!("{}, for --hostfile", file.display())),
        None => Finding::missing(
            "ssh",
            "not in the path; needed for --hostfile only",
            "install openssh-client",
        ),
    }
}

fn environment(is_set: &dyn Fn(&str) -> bool) -> Finding {
    let item = "started by";
    match SIGNS.into_iter().find(|(name, _)| is_set(name)) {
        Some((name, who)) => Finding::ok(item, format!("{who}: {name} is in the environment")),
        None => Finding::ok(item, "a person: no launcher left a variable in the environment"),
    }
}

/// Returns one finding for each interface that is up and others can reach.
fn interfaces() -> Vec<Finding> {
    let Ok(all) = nix::ifaddrs::getifaddrs() else { return Vec::new() };
    let mut findings: Vec<Finding> = Vec::new();
    for interface in all {
        let Some(address) = interface.address.as_ref().and_then(|address| address.as_sockaddr_in())
        else {
            continue;
        };
        let up = interface.flags.contains(nix::net::if_::InterfaceFlags::IFF_UP);
        if !up || address.ip().is_loopback() || address.ip().is_link_local() {
            continue;
        }
        let name = interface.interface_name;
        findings.push(interface_of(&name, &address.ip().to_string(), interface::speed(&name)));
    }
    if findings.is_empty() {
        let remedy = "configure one, for runs across hosts";
        findings.push(Finding::limited(
            "interfaces",
            "none with an address that other hosts reach",
            remedy,
        ));
    }
    findings
}

fn interface_of(name: &str, address: &str, megabits: Option<u64>) -> Finding {
    // Sixteen characters fit the column; Linux allows fifteen in a name.
    match megabits {
        Some(megabits) => Finding::ok(name, format!("{address}, {megabits} Mb/s")),
        None => {
            let found = format!("{address}; does not tell how fast it is");
            Finding::limited(name, found, "a run across hosts measures it, or takes --rate")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    #[test]
    fn launchers__those_in_the_path_are_named_with_what_they_speak() {
        let found = launchers(OsStr::new("/bin"), &|file| file == Path::new("/bin/srun"));
        assert_eq!(found.found, "srun (Slurm: PMIx, PMI-1, or TCP)");
        assert_eq!(launchers(OsStr::new("/bin"), &|_| false).status, Status::Missing);
    }

    #[test]
    fn environment__the_first_sign_says_who() {
        assert!(environment(&|name| name == "PMI_FD").found.starts_with("MPICH's hydra"));
        assert!(environment(&|_| true).found.contains("PMIX_NAMESPACE"));
        assert!(environment(&|_| false).found.starts_with("a person"));
    }

    #[test]
    fn interface_of__an_unknown_speed_is_limited() {
        assert_eq!(interface_of("eth0", "10.0.0.1", Some(25_000)).found, "10.0.0.1, 25000 Mb/s");
        assert_eq!(interface_of("veth0", "10.0.0.1", None).status, Status::Limited);
    }
}
