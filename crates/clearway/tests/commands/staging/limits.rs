//! `clearway mount` and `stage` at their limits: values that cannot be, a store that cannot be written,
//! files with holes, paths that are not there, and connections that say nothing.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use super::{StagingPlace, staged};

#[test]
fn status__is_told_while_connections_to_the_mount_say_nothing() {
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&[]) {
        return;
    }
    // The path of the socket is longer than an address.
    let log = File::open(place.path("log")).expect("opened");
    let socket = format!("/proc/self/fd/{}/control", log.as_raw_fd());
    let idle: Vec<UnixStream> =
        (0..150).map(|_| UnixStream::connect(&socket).expect("connected")).collect();
    let status = staged(&["status"], &[&place.path("mnt")]);
    assert!(status.contains("log  "), "{status}");
    drop(idle);
    place.umount();
}
