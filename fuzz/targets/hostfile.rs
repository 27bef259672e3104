//! Files and lists of hosts: any bytes name some hosts, or are refused.

#![no_main]

use clearway_runtime::launch::{hostfile, hostlist};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(hosts) = hostfile::parse(bytes) {
        assert!(hosts.iter().all(|host| !host.name.is_empty() && !host.name.starts_with('-')));
    }
    let _ = str::from_utf8(bytes).map(hostlist::expand);
});
