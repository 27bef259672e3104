//! Names of the hosts of a lab for programs in it: a file of hosts that only they see.
//!
//! # Invariants
//! I1. The machine's own file is neither written nor hidden from anybody else: the other one is
//!     mounted over it in a mount namespace of the process.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::state::KeptLab;
use crate::{LabError, PlannedHost};

/// Where programs look names up (hosts(5)).
const HOSTS: &str = "/etc/hosts";

/// Gives this process the names of the hosts of `lab`.
pub(super) fn give(lab: &KeptLab) -> Result<(), LabError> {
    let refused = |error: io::Error| {
        LabError::kernel(format!("give names to the hosts of the lab {}", lab.name), error)
    };
    let text = hosts_file(&lab.hosts, &fs::read_to_string(HOSTS).unwrap_or_default());
    let aside = std::env::temp_dir().join(format!(".clearway-hosts-{}", std::process::id()));
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(&aside);
    let mounted = file
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            // All users of the host read it, whatever this one's mask is.
            file.set_permissions(fs::Permissions::from_mode(0o644))
        })
        .and_then(|()| cover(&aside).map_err(io::Error::from));
    // What is mounted stays without its name.
    let _ = fs::remove_file(&aside);
    mounted.map_err(refused)
}

/// Mounts `file` over the machine's file of hosts, for this process and its children.
fn cover(file: &Path) -> nix::Result<()> {
    const NOTHING: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS)?;
    // What is mounted here must not be seen outside.
    mount(NOTHING, "/", NOTHING, MsFlags::MS_REC | MsFlags::MS_SLAVE, NOTHING)?;
    mount(Some(file), HOSTS, NOTHING, MsFlags::MS_BIND, NOTHING)
}

/// Returns the lines of `hosts` before those of the machine.
fn hosts_file(hosts: &[PlannedHost], machine: &str) -> String {
    let mut text = String::new();
    for host in hosts {
        text.push_str(&format!("{}\t{}\n", host.address, host.name));
        for (rail, address) in (1..).zip(&host.further) {
            text.push_str(&format!("{address}\t{}-{rail}\n", host.name));
        }
    }
    text + machine
}

#[cfg(test)]
mod tests {
    use clearway_proto::base::Rank;

    use super::*;

    #[test]
    fn hosts_file__names_every_host_and_rail_before_the_machine() {
        let host = |rank: u32, further: &[[u8; 4]]| PlannedHost {
            rank: Rank(rank),
            name: format!("h{rank}"),
            address: [10, 77, 0, rank as u8 + 1].into(),
            switch: "s0".to_owned(),
            interface: "eth0".to_owned(),
            further: further.iter().map(|address| (*address).into()).collect(),
        };
        let hosts = [host(0, &[[10, 78, 0, 1]]), host(1, &[])];
        assert_eq!(
            hosts_file(&hosts, "127.0.0.1 localhost\n"),
            "10.77.0.1\th0\n10.78.0.1\th0-1\n10.77.0.2\th1\n127.0.0.1 localhost\n"
        );
    }
}
