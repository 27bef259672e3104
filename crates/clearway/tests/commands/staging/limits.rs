//! `clearway mount` and `stage` at their limits: values that cannot be, a store that cannot be written,
//! files with holes, paths that are not there, and connections that say nothing.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use super::{StagingPlace, error_of, stage, staged};

#[test]
fn mount__values_that_cannot_be_are_refused_with_what_works() {
    let Some(place) = StagingPlace::new() else { return };
    for (words, status, part) in [
        (["--memory", "100TiB"], 1, "--memory is at most "),
        (["--memory", "1MiB"], 1, "--memory is at least 16 MiB"),
        (["--inodes", "0"], 2, "0 is not in 2.."),
        (["--inodes", "1"], 2, "1 is not in 2.."),
        (["--memory", "-1GiB"], 2, "`-1GiB` has no usable number"),
        (["--inodes", "-1"], 2, "-1 is not in 2.."),
    ] {
        let output = place.try_mount(&words);
        let said = error_of(&output);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {said}");
        assert!(said.contains(part) && !said.contains("tip:"), "{said}");
        assert!(status == 2 || said.lines().count() == 1, "{said}");
    }
    let output = std::process::Command::new(super::PROGRAM)
        .args(["mount", "--local", "log:store", "mnt", "--size", "-1"])
        .current_dir(&place.root)
        .output()
        .expect("the program");
    let said = error_of(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("'--size <BYTES>': `-1` has no usable number"), "{said}");
    assert!(!place.path("log").exists(), "nothing was begun");
}

#[test]
fn mount__the_smallest_number_of_inodes_is_the_mount_point_and_a_file() {
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&["--inodes", "2"]) {
        return;
    }
    fs::write(place.on_mount("file"), "some bytes").expect("written");
    let why = fs::write(place.on_mount("other"), "some bytes").expect_err("one too many");
    assert_eq!(why.kind(), std::io::ErrorKind::StorageFull);
    place.umount();
}

#[test]
fn warm__a_path_that_is_not_there_is_named() {
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&[]) {
        return;
    }
    let output = stage(&["warm"], &[&place.on_mount("missing")]);
    let said = error_of(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot find ") && said.contains("missing: No such file"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    place.umount();
}

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
