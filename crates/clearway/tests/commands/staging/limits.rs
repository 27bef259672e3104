//! `clearway mount` and `stage` at their limits: values that cannot be, a store that cannot be written,
//! files with holes, paths that are not there, and connections that say nothing.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{StagingPlace, error_of, stage, staged};
use crate::cast::Ground;
use crate::waiting::comes;

/// A file system of its own, until it is dropped.
struct OwnFileSystem(PathBuf);

impl OwnFileSystem {
    fn new(path: PathBuf) -> Option<Self> {
        match mount(Some("none"), &path, Some("tmpfs"), MsFlags::empty(), None::<&str>) {
            Ok(()) => Some(Self(path)),
            Err(why) => {
                eprintln!("skipped: cannot mount a tmpfs: {why}");
                None
            }
        }
    }

    fn set(&self, flags: MsFlags) {
        let set = || {
            let nothing = None::<&Path>;
            mount(nothing, &self.0, nothing, flags | MsFlags::MS_REMOUNT, nothing)
        };
        assert!(comes(|| set().is_ok()), "a file stays open there");
    }
}

impl Drop for OwnFileSystem {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

#[test]
fn mount__a_log_that_does_not_fit_on_its_disk_leaves_nothing_there() {
    let Some(mut place) = StagingPlace::new() else { return };
    let log = place.path("log");
    fs::create_dir_all(&log).expect("made");
    let size = Some("size=90m");
    if let Err(why) = mount(Some("none"), &log, Some("tmpfs"), MsFlags::empty(), size) {
        return eprintln!("skipped: cannot mount a tmpfs: {why}");
    }
    let _disk = OwnFileSystem(log.clone());
    let said = error_of(&place.try_mount(&[]));
    assert!(said.contains("No space left") && said.lines().count() == 1, "{said}");
    assert!(!log.join("segments").exists(), "its segments would fill the disk");
    let larger = Some("size=200m");
    mount(Some("none"), &log, Some("tmpfs"), MsFlags::MS_REMOUNT, larger).expect("larger");
    assert!(place.mount(&[]));
    place.umount();
}

/// The first signal finds the mount busy; the library that mounts does nothing at a second attempt.
#[test]
fn mount__a_busy_mount_stays_at_a_signal_and_ends_at_a_later_one() {
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&[]) {
        return;
    }
    let process = place.process.expect("a process");
    let end = || kill(Pid::from_raw(process as i32), Signal::SIGTERM).expect("a process");
    let open = File::create(place.on_mount("file")).expect("made");
    end();
    let log = place.path("log/mount.log");
    let said = || fs::read_to_string(&log).unwrap_or_default();
    assert!(comes(|| said().contains("the mount stays")), "{}", said());
    fs::write(place.on_mount("other"), "it works").expect("written");
    drop(open);
    end();
    let is_over = || !Path::new(&format!("/proc/{process}/exe")).exists();
    assert!(comes(is_over), "{}", said());
    assert_eq!(fs::read_dir(place.path("mnt")).expect("there").count(), 0, "unmounted");
    place.process = None;
}

#[test]
fn mount__values_that_cannot_be_are_refused_with_what_works() {
    let Some(place) = StagingPlace::new() else { return };
    for (words, status, part) in [
        (["--memory", "100TiB"], 2, "--memory is at most "),
        (["--memory", "1MiB"], 2, "--memory is at least 16 MiB"),
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
    assert!(said.contains("'--size <BYTES>':\n  `-1` has no usable number"), "{said}");
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
fn mount__a_store_that_is_mounted_read_only_is_named_with_what_works() {
    let Some(mut place) = StagingPlace::new() else { return };
    let Some(store) = OwnFileSystem::new(place.path("store")) else { return };
    store.set(MsFlags::MS_RDONLY);
    let said = error_of(&place.try_mount(&[]));
    let path = place.path("store").display().to_string();
    for part in [&path, "Read-only file system", "; mount its file system for writing, or name"] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(said.lines().count(), 1, "{said}");
    store.set(MsFlags::empty());
    assert!(place.mount(&[]));
    fs::write(place.on_mount("first"), "one").expect("written");
    staged(&["wait", "--until", "stored"], &[&place.path("mnt")]);
    store.set(MsFlags::MS_RDONLY);
    fs::write(place.on_mount("second"), "two").expect("written");
    let said = || fs::read_to_string(place.path("log/mount.log")).expect("a log of the mount");
    let part = format!("the store {path}: cannot copy the file with inode ");
    assert!(comes(|| said().contains(&part)), "{}", said());
    assert!(said().contains("permission is missing; mount its file system for writing"));
    store.set(MsFlags::empty());
    staged(&["wait", "--until", "stored"], &[&place.path("mnt")]);
    place.umount();
}

/// Returns the blocks of a file that its server has, whatever the kernel remembers.
fn blocks(path: &Path) -> u64 {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let found = statx(CWD, path, AtFlags::STATX_FORCE_SYNC, StatxFlags::BLOCKS);
    found.expect("there").stx_blocks
}

#[test]
fn stat__holes_of_a_file_take_no_blocks_in_log_and_store() {
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&[]) {
        return;
    }
    let path = place.on_mount("sparse");
    let sparse = File::create(&path).expect("made");
    sparse.set_len(1 << 30).expect("a long file");
    sparse.write_all_at(&[7; 9000], 500 << 20).expect("written");
    drop(sparse);
    let data = 9000_u64.div_ceil(512);
    assert_eq!(blocks(&path), data);
    staged(&["wait", "--until", "stored"], &[&path]);
    assert_eq!(blocks(&path), data, "in the store");
    let empty = File::create(place.on_mount("empty")).expect("made");
    empty.set_len(1 << 30).expect("a long file");
    fs::write(place.on_mount("full"), [7; 5000]).expect("written");
    staged(&["wait", "--until", "stored"], &[&place.path("mnt")]);
    assert_eq!(blocks(&place.on_mount("empty")), 0);
    assert_eq!(blocks(&place.on_mount("full")), 10);
    drop(empty);
    place.umount();
    assert!(place.mount(&[]));
    // What the store says is known when somebody reads there.
    File::open(&path).expect("there").read_exact_at(&mut [0; 10], 500 << 20).expect("read");
    let in_store = fs::metadata(place.path("store/sparse")).expect("there").blocks();
    assert!(in_store < 1 << 15, "{in_store} blocks");
    assert_eq!(blocks(&path), in_store);
    fs::write(&path, "short").expect("written");
    assert_eq!(blocks(&path), 1);
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
fn warm__files_of_the_store_are_read_and_cast_to_other_hosts() {
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&[]) {
        return;
    }
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    fs::create_dir(place.on_mount("step")).expect("made");
    fs::write(place.on_mount("step/large"), &bytes).expect("written");
    fs::write(place.on_mount("step/small"), b"small").expect("written");
    staged(&["wait", "--until", "stored"], &[&place.path("mnt")]);
    let ground = Ground::new("warm", 2);
    let (to, key) = (ground.to(), ground.root.join("key"));
    let key = key.to_str().expect("text");
    let said =
        staged(&["warm", "--to", &to, "--key", key, "--into", "w"], &[&place.on_mount("step")]);
    assert!(said.contains("2 of 2 have everything"), "{said}");
    for number in 0..2 {
        assert!(fs::read(ground.at(number, "w/step/large")).expect("cast") == bytes);
        assert_eq!(fs::read(ground.at(number, "w/step/small")).expect("cast"), b"small");
    }
    place.umount();
}

#[test]
fn status__is_reported_while_connections_to_the_mount_say_nothing() {
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
