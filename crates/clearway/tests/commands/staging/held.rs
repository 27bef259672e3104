//! A drain that follows the agent of its node.

use std::fs;

use super::drained::{assert_same, status};
use super::{StagingPlace, staged};
use crate::agent::{AgentTestPlace, fixed_agent};

#[test]
fn drain__keeps_the_rate_of_the_agent_and_status_says_its_price() {
    let Some(mut place) = StagingPlace::new() else { return };
    let agents = AgentTestPlace::new("drain");
    let socket = agents.path("socket");
    let agent = fixed_agent(&socket);
    if !place.mount(&["--agent", &socket]) {
        return;
    }
    fs::write(place.on_mount("file"), vec![7; 2 << 20]).expect("written");
    assert_same(&place);
    let held = status(&place)["held"].clone();
    let rates = (held["mean_bits_per_second"].as_u64(), held["least_bits_per_second"].as_u64());
    assert_eq!(rates, (Some(8_000_000), Some(8_000_000)), "{held}");
    assert!(held["time_ns"].as_u64() > Some(0), "{held}");
    let page = staged(&["status"], &[&place.path("mnt")]);
    assert!(page.contains(" by the agent of this node: mean 8 Mb/s, minimum 8 Mb/s\n"), "{page}");
    place.umount();
    assert!(agent.join().expect("no fault"), "it demanded something");
}
