//! A server and mounts on hosts of their own: what a cut of the network and the loss of a host leave.
//!
//! A host is lost when its network is cut and its processes end: nobody hears that they did.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use super::served::{FileWriter, ServedPlace, check_files};

/// Writes files on the mount `mnt` while `disturb` runs, and checks on the mount `other` that nothing is
/// lost and nothing is there twice.
fn write_while(served: &mut ServedPlace, disturb: impl FnOnce(&mut ServedPlace, &mut FileWriter)) {
    if !served.mount("mnt", "") {
        return;
    }
    let mut writer = FileWriter::start(&served.place.path("mnt"));
    disturb(served, &mut writer);
    let count = writer.stop();
    served.umount("mnt");
    assert!(served.mount("other", ""));
    check_files(&served.place.path("other"), count);
    served.umount("other");
}

#[test]
fn apart__a_network_that_is_cut_delays_requests_and_loses_nothing() {
    let Some(mut served) = ServedPlace::apart() else { return };
    write_while(&mut served, |served, writer| {
        let mut dropped = 0;
        for host in ["h0", "h1", "h1"] {
            (0..4).for_each(|_| writer.wait_for_file());
            served.hosts().cut(host);
            dropped += served.hosts().restore(host);
        }
        assert!(dropped > 0, "nothing was on its way");
        (0..4).for_each(|_| writer.wait_for_file());
    });
}

#[test]
fn apart__a_server_whose_host_is_lost_and_comes_back_loses_nothing() {
    let Some(mut served) = ServedPlace::apart() else { return };
    write_while(&mut served, |served, writer| {
        for _ in 0..2 {
            (0..4).for_each(|_| writer.wait_for_file());
            served.hosts().cut("h0");
            served.kill();
            served.hosts().restore("h0");
            served.start();
        }
        (0..4).for_each(|_| writer.wait_for_file());
    });
}

#[test]
fn apart__a_mount_whose_host_is_lost_leaves_what_it_synced() {
    let Some(served) = ServedPlace::apart() else { return };
    if !served.mount("mnt", "") {
        return;
    }
    let directory = served.place.path("mnt");
    for number in 0..10_u8 {
        fs::write(directory.join(format!("file-{number}")), vec![number; 50_000]).expect("closed");
    }
    let open = File::create(directory.join("open")).expect("made");
    open.write_all_at(&[1; 5000], 0).expect("written");
    open.sync_all().expect("synced");
    let process = served.mount_process("mnt");
    served.hosts().cut("h1");
    open.write_all_at(&[2; 5000], 0).expect("in memory");
    nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGKILL).expect("killed");
    drop(open);
    assert!(served.mount("other", ""));
    let other = served.place.path("other");
    for number in 0..10_u8 {
        let bytes = fs::read(other.join(format!("file-{number}"))).expect("read");
        assert!(bytes == [number; 50_000], "file {number}");
    }
    assert_eq!(fs::read(other.join("open")).expect("read"), [1; 5000]);
    served.umount("other");
}
