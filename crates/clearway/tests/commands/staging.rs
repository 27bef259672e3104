//! `clearway mount`, `umount` and `stage` as whole programs, on the machine's own FUSE: what survives
//! the end of the mount's process, what is refused and in which words, and what programs see.

mod apart;
mod differential;
mod drained;
mod held;
mod hung;
mod interrupted;
mod job;
mod kills;
mod limits;
mod metrics;
mod munge;
mod programs;
mod served;
mod several;
mod slurm_scripts;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::waiting::wait_until;

const PROGRAM: &str = env!("CARGO_BIN_EXE_clearway");
/// Times that an unmount is tried while something is open: a command takes milliseconds to begin.
const UNMOUNTS: u32 = 100;
static NUMBERS: AtomicU32 = AtomicU32::new(0);

/// Directories of a log, a store and a mount point, all gone at the end.
struct StagingPlace {
    root: PathBuf,
    /// The process of the mount.
    process: Option<u32>,
}

impl StagingPlace {
    /// Makes them; `None`, and says why, where nothing can be mounted.
    fn new() -> Option<Self> {
        if let Err(why) = OpenOptions::new().read(true).write(true).open("/dev/fuse") {
            eprintln!("skipped: /dev/fuse cannot be opened: {why}");
            return None;
        }
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        // Longer than a socket's address: the mount is reached nevertheless.
        let name = format!("clearway-staging-{}-{number}-{:x<100}", std::process::id(), "");
        let root = std::env::temp_dir().join(name);
        let place = Self { root, process: None };
        for directory in ["mnt", "store"] {
            fs::create_dir_all(place.root.join(directory)).expect("a directory");
        }
        Some(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Returns a path on the mount.
    fn on_mount(&self, name: &str) -> PathBuf {
        self.root.join("mnt").join(name)
    }

    fn try_mount(&self, more: &[&str]) -> Output {
        let mut command = Command::new(PROGRAM);
        let places = format!("{}:{}", self.path("log").display(), self.path("store").display());
        command.args(["mount", "--local", &places]).arg(self.path("mnt"));
        command.args(["--size", "128MiB"]).args(more).output().expect("the program")
    }

    /// Mounts; `false`, and says why, where the kernel does not let this user.
    fn mount(&mut self, more: &[&str]) -> bool {
        let output = self.try_mount(more);
        let said = error_of(&output);
        if !output.status.success() && said.contains("Operation not permitted") {
            eprintln!("skipped: {}", said.trim());
            return false;
        }
        assert!(output.status.success(), "{said}");
        let status = stage(&["status", "--json"], &[&self.path("mnt")]);
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).expect("JSON");
        self.process = status["process"].as_u64().map(|process| process as u32);
        true
    }

    /// Takes the store away, so that files stay in the log.
    fn hide_store(&self) {
        fs::rename(self.path("store"), self.path("hidden")).expect("moved");
    }

    /// Removes the store, also while a drain makes its directory of objects again.
    fn remove_store(&self) {
        while self.path("store").exists() {
            let _ = fs::remove_dir_all(self.path("store"));
        }
    }

    fn show_store(&self) {
        fs::rename(self.path("hidden"), self.path("store")).expect("moved");
    }

    fn umount(&mut self) {
        // A command that another thread starts has open files of this one until it begins.
        for _ in 0..UNMOUNTS {
            let output = Command::new(PROGRAM).arg("umount").arg(self.path("mnt")).output();
            let output = output.expect("the program");
            if output.status.success() {
                self.process = None;
                return;
            }
            let said = error_of(&output);
            if said.contains("has a copy of the mount") {
                // Another program of this machine made a namespace meanwhile.
                self.wait_until_closed();
                return;
            }
            assert!(said.contains("busy"), "{said}");
        }
        panic!("the mount stays busy");
    }

    /// Waits until the process of an unmounted mount has closed the log.
    fn wait_until_closed(&mut self) {
        let lock = File::open(self.path("log/lock")).expect("a lock");
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockShared).expect("closed");
        self.process = None;
    }

    /// Ends the process of the mount as an operator who knows nothing would.
    fn kill(&mut self) {
        let process = self.process.take().expect("a mount");
        kill(Pid::from_raw(process as i32), Signal::SIGKILL).expect("killed");
        // Its files are closed one by one: the lock of the log, and the connection of the kernel.
        let lock = File::open(self.path("log/lock")).expect("a lock");
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockShared)
            .expect("a lock that is free");
        // A command that another thread starts meanwhile has this file until it begins.
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::Unlock).expect("unlocked");
        wait_until("the mount is gone", || rustix::fs::statvfs(self.path("mnt")).is_err());
    }
}

impl Drop for StagingPlace {
    fn drop(&mut self) {
        if let Some(process) = self.process {
            let _ = kill(Pid::from_raw(process as i32), Signal::SIGKILL);
        }
        let mount = self.path("mnt");
        let _ = nix::mount::umount2(&mount, nix::mount::MntFlags::MNT_DETACH);
        let _ = Command::new("fusermount3").args(["-uzq", "--"]).arg(&mount).output();
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn error_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the kind and mode of what is at `path`.
fn mode_of(path: &Path) -> u32 {
    fs::symlink_metadata(path).map_or(0, |metadata| metadata.mode())
}

fn stage(arguments: &[&str], paths: &[&Path]) -> Output {
    Command::new(PROGRAM).arg("stage").args(arguments).args(paths).output().expect("the program")
}

/// Returns what `stage` prints.
fn staged(arguments: &[&str], paths: &[&Path]) -> String {
    let output = stage(arguments, paths);
    assert!(output.status.success(), "{}", error_of(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn mount__what_fsync_and_close_returned_for_survives_a_kill() {
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&[]) {
        return;
    }
    let closed = place.on_mount("closed");
    fs::write(&closed, "closed without a sync").expect("written");
    let synced = File::create(place.on_mount("synced")).expect("made");
    synced.write_all_at(&[7; 9000], 100).expect("written");
    synced.sync_all().expect("synced");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o604)).expect("set");
    fs::create_dir(place.on_mount("directory")).expect("made");
    File::open(place.path("mnt")).expect("opened").sync_all().expect("synced");
    let unlinked = File::create_new(place.on_mount("unlinked")).expect("made");
    fs::remove_file(place.on_mount("unlinked")).expect("removed");
    unlinked.write_all_at(b"still here", 0).expect("written");
    unlinked.sync_all().expect("synced");
    let second = place.try_mount(&[]);
    assert!(error_of(&second).contains("in use by another mount (process"), "{second:?}");
    place.kill();
    let output = place.try_mount(&[]);
    assert!(error_of(&output).contains("left behind by a mount"), "{output:?}");
    assert_eq!(fs::read(&closed).expect("read"), b"closed without a sync");
    assert_eq!(fs::metadata(&closed).expect("there").mode() & 0o7777, 0o604);
    let bytes = fs::read(place.on_mount("synced")).expect("read");
    assert!(bytes.len() == 9100 && bytes[..100] == [0; 100] && bytes[100..] == [7; 9000]);
    assert!(place.on_mount("directory").is_dir() && !place.on_mount("unlinked").exists());
    let status = staged(&["status", "--json"], &[&place.path("mnt")]);
    // The root, a directory, and two files.
    assert!(status.contains("\"inodes\": 4"), "{status}");
    place.umount();
    assert!(!closed.exists());
    assert!(place.mount(&[]), "the same log again");
    assert!(closed.exists());
    place.umount();
}

#[test]
fn mount__what_cannot_be_mounted_is_refused_in_one_sentence() {
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&[]) {
        return;
    }
    place.umount();
    let refused = |place: &StagingPlace, more: &[&str], part: &str| {
        let output = place.try_mount(more);
        let said = error_of(&output);
        assert!(!output.status.success() && said.contains(part), "{part}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    };
    refused(&place, &["--memory", "1MiB"], "--memory is at least 16 MiB");
    fs::rename(place.path("store"), place.path("elsewhere")).expect("moved");
    refused(&place, &[], "cannot use the store");
    fs::rename(place.path("elsewhere"), place.path("store")).expect("moved");
    let superblock = place.path("log/superblock");
    let good = fs::read(&superblock).expect("read");
    fs::write(&superblock, [b'x'; 8192]).expect("written");
    refused(&place, &[], "the superblock is not that of a staging log");
    let damaged: Vec<u8> =
        good.iter().enumerate().map(|(at, byte)| byte ^ u8::from(at % 4096 == 40)).collect();
    fs::write(&superblock, damaged).expect("written");
    refused(&place, &[], "both copies of the superblock are damaged");
    fs::write(&superblock, &good).expect("written");
    let segment = place.path("log/segments/00000000");
    fs::rename(&segment, place.path("segment")).expect("moved");
    refused(&place, &[], "segment 0 is missing in ");
    fs::rename(place.path("segment"), &segment).expect("moved");
    fs::create_dir(place.path("other")).expect("made");
    fs::write(place.path("other/file"), "").expect("written");
    // A drain would write into the log, or into itself.
    let apart = "need directories apart";
    for (log, store, mount, part) in [
        ("other", "store", "mnt", "is not empty and has no log"),
        ("store", "store", "mnt", apart),
        ("store/log", "store", "mnt", apart),
        ("log", "other", "other", apart),
        ("log", "log/segments", "mnt", apart),
    ] {
        let places = format!("{}:{}", place.path(log).display(), place.path(store).display());
        let mut command = Command::new(PROGRAM);
        command.args(["mount", "--local", &places]).arg(place.path(mount));
        let said = error_of(&command.output().expect("the program"));
        assert!(said.contains(part) && said.lines().count() == 1, "{said}");
    }
    assert!(!place.path("store/log").exists());
    assert!(place.mount(&[]), "nothing was changed");
    place.umount();
}

#[test]
fn mount__what_a_log_did_not_make_in_its_store_is_refused() {
    let Some(mut place) = StagingPlace::new() else { return };
    let objects = place.path("store/.clearway-objects");
    let refused = |place: &StagingPlace, part: &str| {
        let said = error_of(&place.try_mount(&[]));
        assert!(said.contains(part) && said.lines().count() == 1, "{part}: {said}");
        assert!(!place.path("store/.clearway-log").exists());
    };
    fs::create_dir(&objects).expect("made");
    if !place.mount(&[]) {
        return;
    }
    staged(&["wait", "--until", "stored"], &[&place.path("mnt")]);
    place.umount();
    assert_eq!(mode_of(&objects) & 0o7777, 0o700, "an empty one is taken");
    fs::remove_dir(&objects).expect("empty");
    fs::remove_file(place.path("store/.clearway-log")).expect("removed");
    std::os::unix::fs::symlink("nowhere", &objects).expect("made");
    refused(&place, "is no directory; move it away");
    fs::remove_file(&objects).expect("removed");
    fs::create_dir(&objects).expect("made");
    fs::write(objects.join("17"), "of another log").expect("written");
    refused(&place, "has entries that no mount of this log made");
    fs::remove_file(objects.join("17")).expect("removed");
    // The mark is not written through a link.
    fs::write(place.path("thesis"), "years of work").expect("written");
    let link = place.path("store/.clearway-log-new");
    std::os::unix::fs::symlink(place.path("thesis"), link).expect("made");
    assert!(place.mount(&[]));
    assert_eq!(fs::read_to_string(place.path("thesis")).expect("read"), "years of work");
    place.umount();
}

#[test]
fn umount__what_a_killed_process_left_goes_while_a_file_there_is_open() {
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&[]) {
        return;
    }
    let open = File::create(place.on_mount("open")).expect("made");
    place.kill();
    let output = Command::new(PROGRAM).arg("umount").arg(place.path("mnt")).output();
    let output = output.expect("the program");
    assert!(output.status.success(), "{}", error_of(&output));
    let entries = fs::read_dir(place.path("mnt")).expect("the directory below the mount");
    assert_eq!(entries.count(), 0);
    drop(open);
}

#[test]
fn umount__a_copy_of_the_mount_in_another_namespace_is_named() {
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&[]) {
        return;
    }
    // It keeps no copies of the mounts of other tests.
    let script =
        "for m in $(cut -d' ' -f5 /proc/self/mountinfo | grep clearway-staging | grep -vF \"$0\")
        do umount -l \"$m\"; done; exec sleep 1000";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(place.path("mnt"));
    let Ok(mut other) = command.spawn() else {
        eprintln!("skipped: there is no unshare");
        return place.umount();
    };
    let number = other.id().to_string();
    let name = || fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default();
    wait_until("the other namespace", || {
        name() == "sleep\n" || !matches!(other.try_wait(), Ok(None))
    });
    if matches!(other.try_wait(), Ok(Some(_))) {
        eprintln!("skipped: another namespace needs a privilege");
        return place.umount();
    }
    let output = Command::new(PROGRAM).arg("umount").arg(place.path("mnt")).output();
    let said = error_of(&output.expect("the program"));
    assert!(said.contains(" has a copy of the mount"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    other.kill().expect("ended");
    other.wait().expect("ended");
    // The mount ends with its last copy.
    place.wait_until_closed();
}

/// Returns the mode of a file of `user` after each of some changes of it by `user` in `group`.
fn modes_after(file: &Path, user: u32, group: u32) -> Vec<u32> {
    let changes = ["truncate -s 10 $0", ": > $0", "echo more >> $0", "chown $1 $0"];
    let mut modes = Vec::new();
    for change in changes {
        for mode in [0o6777, 0o4777, 0o2767, 0o2777] {
            fs::write(file, "some bytes").expect("written");
            std::os::unix::fs::chown(file, Some(user), Some(user)).expect("given");
            fs::set_permissions(file, fs::Permissions::from_mode(mode)).expect("set");
            let mut command = Command::new("sh");
            command.args(["-c", change]).arg(file).arg(user.to_string());
            std::os::unix::process::CommandExt::uid(&mut command, user);
            std::os::unix::process::CommandExt::gid(&mut command, group);
            assert!(command.status().expect("a shell").success(), "{change}");
            modes.push(mode_of(file));
        }
    }
    modes
}

#[test]
fn truncate__set_user_id_stays_and_goes_as_on_a_tmpfs() {
    let memory = Path::new("/dev/shm");
    if !rustix::process::geteuid().is_root() || !memory.exists() {
        eprintln!("skipped: it needs root and /dev/shm");
        return;
    }
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&[]) {
        return;
    }
    let other = memory.join(format!("clearway-set-id-{}", std::process::id()));
    for (user, group) in [(0, 0), (65534, 65534), (65534, 1)] {
        let expected = modes_after(&other, user, group);
        let modes = modes_after(&place.on_mount("file"), user, group);
        assert_eq!(modes, expected, "user {user}, group {group}");
    }
    fs::remove_file(&other).expect("removed");
    place.umount();
}

#[test]
fn mount__its_socket_lies_in_the_log_and_is_replaced_after_a_kill() {
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&[]) {
        return;
    }
    let control = place.path("log/control");
    assert_eq!(mode_of(&control), 0o140_600, "a socket that only its user opens");
    place.kill();
    assert_eq!(mode_of(&control), 0o140_600, "a kill leaves it");
    assert!(place.mount(&[]), "asks the mount for its status");
    place.umount();
    assert!(!control.exists());
}

#[test]
fn mount__no_file_has_a_more_urgent_class_than_the_policy_grants() {
    let Some(mut place) = StagingPlace::new() else { return };
    let rules = "[[rule]]\nprogram = \"stage\"\nclass = \"bulk\"\n";
    let site = place.path("site.toml");
    fs::write(&site, rules).expect("written");
    let policy = ["--policy", &site.display().to_string()];
    let wanted = ["--class", "control", "--rule", "/low/**=scavenger"];
    let output = place.try_mount(&[&policy[..], &wanted].concat());
    let said = error_of(&output);
    if said.contains("Operation not permitted") {
        return eprintln!("skipped: {}", said.trim());
    }
    assert!(said.contains("class control was requested, bulk is granted: rule 1 of"), "{said}");
    let found = staged(&["status", "--json"], &[&place.path("mnt")]);
    let found: serde_json::Value = serde_json::from_str(&found).expect("JSON");
    place.process = found["process"].as_u64().map(|process| process as u32);
    fs::create_dir(place.on_mount("low")).expect("made");
    fs::write(place.on_mount("low/a"), b"a").expect("written");
    fs::write(place.on_mount("b"), b"b").expect("written");
    let class = |name: &str| {
        let line = staged(&["stat"], &[&place.on_mount(name)]);
        line.split_whitespace().nth(2).map(str::to_owned)
    };
    assert_eq!(class("low/a").as_deref(), Some("scavenger"));
    assert_eq!(class("b").as_deref(), Some("bulk"));
    let path = place.on_mount("b");
    let output = stage(&[&["set-class", "low-latency"], &policy[..]].concat(), &[&path]);
    assert!(output.status.success(), "{}", error_of(&output));
    let said = error_of(&output);
    assert!(said.contains("low-latency was requested, bulk is granted: rule 1 of"), "{said}");
    // Also by somebody who asks nobody.
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&path, "user.clearway.class", b"control", flags).expect("set");
    assert_eq!(class("b").as_deref(), Some("bulk"));
    let said = fs::read_to_string(place.path("log/mount.log")).expect("a log of the mount");
    assert!(said.contains("of /b: control was requested, bulk is granted"), "{said}");
    place.umount();
}

#[test]
fn stage__shows_and_sets_classes_that_stay() {
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&["--class", "low-latency", "--rule", "/ckpt/**=bulk"]) {
        return;
    }
    place.hide_store();
    fs::create_dir(place.on_mount("ckpt")).expect("made");
    fs::write(place.on_mount("ckpt/a"), [1; 5000]).expect("written");
    fs::write(place.on_mount("b"), [1; 5000]).expect("written");
    let all = |place: &StagingPlace| {
        let (mount, below) = (place.path("mnt"), place.on_mount("ckpt"));
        staged(&["ls"], &[&mount, &below]).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let shown = all(&place);
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&shown[0]), ["-", "logged", "low-latency", "5000", "B", "5000", "B", "b"]);
    assert_eq!(words(&shown[2])[..3], ["-", "logged", "bulk"]);
    assert!(shown[2].ends_with(" ckpt/a"), "{shown:?}");
    staged(&["set-class", "scavenger"], &[&place.on_mount("ckpt/a")]);
    let mut value = [0; 32];
    let class = rustix::fs::getxattr(place.on_mount("ckpt/a"), "user.clearway.class", &mut value);
    assert_eq!(&value[..class.expect("a class")], b"scavenger");
    let flags = rustix::fs::XattrFlags::empty();
    let set = |name: &str, value: &[u8]| {
        rustix::fs::setxattr(place.on_mount("b"), name, value, flags)
            .map_err(|why| why.raw_os_error())
    };
    let invalid = Err(rustix::io::Errno::INVAL.raw_os_error());
    assert_eq!(set("user.clearway.class", b"fast"), invalid);
    assert_eq!(set("user.clearway.colour", b"red"), invalid);
    assert_eq!(set("user.other", b"red"), Ok(()));
    let said = fs::read_to_string(place.path("log/mount.log")).expect("a log of the mount");
    assert!(said.contains("user.clearway.class of /b: 'fast' is not a traffic class"), "{said}");
    staged(&["wait"], &[&place.path("mnt")]);
    place.kill();
    place.show_store();
    assert!(place.mount(&[]));
    let class = |line: &str| line.split_whitespace().nth(2).map(str::to_owned);
    let shown = all(&place);
    assert_eq!(class(&shown[0]).as_deref(), Some("low-latency"), "{shown:?}");
    assert_eq!(class(&shown[2]).as_deref(), Some("scavenger"), "{shown:?}");
    place.hide_store();
    staged(&["set-class", "inherit"], &[&place.on_mount("ckpt/a")]);
    assert_eq!(class(&all(&place)[2]).as_deref(), Some("bulk"));
    fs::write(place.on_mount("ckpt/a"), [2; 4000]).expect("written");
    let status = staged(&["status"], &[&place.path("mnt")]);
    assert!(status.contains("bulk: 3.9 KiB in the log, 1 file not in the store"), "{status}");
    place.umount();
    let output = stage(&["status"], &[&place.path("mnt")]);
    assert!(error_of(&output).contains("is not on a mounted log"), "{output:?}");
}

#[test]
fn setxattr__nonsense_in_any_amount_leaves_some_short_lines_in_the_log_of_the_mount() {
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&[]) {
        return;
    }
    fs::write(place.on_mount("file"), "some bytes").expect("written");
    let nonsense = [b'\x1b'; 60_000];
    for name in ["class", "rules", "publish", "deadline", "colour"] {
        for path in [place.path("mnt"), place.on_mount("file")] {
            for _ in 0..10 {
                let name = format!("user.clearway.{name}");
                let flags = rustix::fs::XattrFlags::empty();
                let set = rustix::fs::setxattr(&path, name, &nonsense, flags);
                assert_eq!(set, Err(rustix::io::Errno::INVAL));
            }
        }
    }
    let said = fs::read_to_string(place.path("log/mount.log")).expect("a log of the mount");
    // A slow machine takes some periods of the limit.
    assert!((8..80).contains(&said.lines().count()), "{said}");
    let line = said.lines().next().expect("a line");
    assert!(line.contains("user.clearway.class of /: '\\u{1b}") && line.contains('…'), "{line}");
    assert!(said.lines().all(|line| line.len() < 300), "{said}");
    place.umount();
}

#[test]
fn write__a_full_log_and_too_many_files_are_said_where_they_happen() {
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&["--inodes", "5"]) {
        return;
    }
    place.hide_store();
    // A hole needs no space.
    let sparse = File::create(place.on_mount("sparse")).expect("made");
    sparse.set_len(6 << 30).expect("a long file");
    assert_eq!(sparse.metadata().expect("there").len(), 6 << 30);
    assert_eq!(sparse.metadata().expect("there").blocks(), 0);
    let mut file = File::create(place.on_mount("file")).expect("made");
    let bytes = vec![1; 1 << 20];
    let taken = (0..200).take_while(|_| file.write_all(&bytes).is_ok()).count();
    assert!((60..128).contains(&taken), "{taken} MiB of 128");
    let why = file.write_all(&bytes).expect_err("a full log");
    assert_eq!(why.kind(), std::io::ErrorKind::StorageFull);
    file.sync_all().expect("what was accepted is kept");
    drop((file, sparse));
    fs::remove_file(place.on_mount("file")).expect("removed");
    let again = || fs::write(place.on_mount("again"), &bytes);
    // The space comes back when the kernel has let go of the file.
    while again().is_err() {}
    let made: Vec<bool> =
        (0..5).map(|name| File::create(place.on_mount(&name.to_string())).is_ok()).collect();
    assert_eq!(made, [true, true, false, false, false], "the root and two are there");
    place.umount();
}
