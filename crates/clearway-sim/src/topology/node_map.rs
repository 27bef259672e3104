//! Where ranks are placed: at random, as a batch system that has run for months places them.

use clearway_proto::base::RandomKey;

use crate::graph::DeviceId;

/// Returns the host of each of `ranks` ranks, drawn from `key` evenly among all placements: each
/// host gets a second rank only when all have one, and so on. Empty when there are no hosts.
///
/// Tests of congestion that place ranks in order can miss it altogether where routing goes by the
/// target's number.
pub fn node_map(hosts: u32, ranks: u32, key: RandomKey) -> Vec<DeviceId> {
    let mut places: Vec<DeviceId> = (0..hosts).map(DeviceId).collect();
    key.stream().shuffle(&mut places);
    places.iter().copied().cycle().take(ranks as usize).collect()
}
