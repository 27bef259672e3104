//! How fast the interfaces of this host say they are, where that is worth believing.

use std::fs;
use std::path::Path;

/// Returns the rate of the interface `name` in megabits per second.
///
/// Devices without a rate of their own answer with an error, or with a negative number. One end of
/// a virtual cable (veth) and tunnels answer 10 Gb/s, which nobody measured: they have no hardware
/// behind them (`device`) and are no kind of interface that passes on what another says (`DEVTYPE`:
/// bond, vlan, bridge).
pub(crate) fn speed(name: &str) -> Option<u64> {
    rate_in(&Path::new("/sys/class/net").join(name))
}

fn rate_in(directory: &Path) -> Option<u64> {
    let has_hardware = directory.join("device").exists();
    let about = fs::read_to_string(directory.join("uevent")).unwrap_or_default();
    if !has_hardware && !about.lines().any(|line| line.starts_with("DEVTYPE=")) {
        return None;
    }
    fs::read_to_string(directory.join("speed")).ok()?.trim().parse().ok().filter(|rate| *rate > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed__is_believed_of_hardware_and_of_what_stands_on_it() {
        let directory = std::env::temp_dir().join(format!("clearway-speed-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let with = |speed: &str, about: &str| {
            fs::write(directory.join("speed"), speed).expect("written");
            fs::write(directory.join("uevent"), about).expect("written");
            rate_in(&directory)
        };
        assert_eq!(with("10000\n", "INTERFACE=veth0\nIFINDEX=3\n"), None);
        assert_eq!(with("25000\n", "DEVTYPE=bond\nINTERFACE=bond0\n"), Some(25_000));
        fs::create_dir_all(directory.join("device")).expect("made");
        assert_eq!(with("100000\n", "INTERFACE=eth0\n"), Some(100_000));
        for unknown in ["-1\n", "0\n", "", "fast"] {
            assert_eq!(with(unknown, "INTERFACE=eth0\n"), None, "{unknown}");
        }
        fs::remove_dir_all(&directory).expect("removed");
    }
}
