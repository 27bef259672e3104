//! What went through the interfaces of this process's host: what multicast saves can be seen there.

use std::fs;

use clearway_proto::base::Bytes;

/// Returns the bytes received and sent on all interfaces but the loopback, since they came up.
pub(super) fn traffic() -> Option<[Bytes; 2]> {
    // The network of this process, not of its parent (`proc(5)`).
    Some(sum(&fs::read_to_string("/proc/self/net/dev").ok()?))
}

/// Sums the table of `/proc/net/dev`: a name, eight numbers of what was received, eight of what was
/// sent, bytes first.
fn sum(table: &str) -> [Bytes; 2] {
    let mut sums = [0_u64; 2];
    for (name, numbers) in table.lines().filter_map(|line| line.split_once(':')) {
        let mut numbers =
            numbers.split_ascii_whitespace().map(|number| number.parse().unwrap_or(0));
        if name.trim() != "lo" {
            sums[0] += numbers.next().unwrap_or(0);
            sums[1] += numbers.nth(7).unwrap_or(0);
        }
    }
    sums.map(Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum__leaves_the_loopback_out() {
        let table = "Inter-|   Receive                    |  Transmit\n face |bytes packets errs\n    lo: 99 1 0 0 0 0 0 0 98 1 0 0 0 0 0 0\n  \
                     eth0: 10 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n  eth1: 5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0\n";
        assert_eq!(sum(table), [Bytes(15), Bytes(26)]);
    }
}
