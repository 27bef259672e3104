//! `clearway mount` and its store: what arrives there, what continues after a kill, what is left out,
//! and what appears as a whole.

use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use clearway_proto::base::RandomKey;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::{Mode, SFlag, mknod};
use nix::unistd::Pid;

use super::{PROGRAM, StagingPlace, error_of, stage, staged};
use crate::waiting::comes;

/// Names in the root of a store that are not of the tree.
const OWN: [&str; 2] = [".clearway-objects", ".clearway-log"];

/// What is at a path, but its times.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    contents: Vec<u8>,
    /// The first path of the same inode.
    same_as: PathBuf,
    xattr: Vec<u8>,
}

/// Returns everything below a directory, by path.
fn tree(root: &Path) -> BTreeMap<PathBuf, Found> {
    let (mut all, mut inodes) = (BTreeMap::new(), BTreeMap::new());
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        let listed = fs::read_dir(root.join(&directory)).expect("listed");
        let mut names: Vec<PathBuf> =
            listed.map(|entry| directory.join(entry.expect("an entry").file_name())).collect();
        names.sort();
        for path in names {
            if OWN.iter().any(|own| path == Path::new(own)) {
                continue;
            }
            let full = root.join(&path);
            let metadata = fs::symlink_metadata(&full).expect("there");
            let kind = metadata.file_type();
            let contents = if kind.is_file() {
                fs::read(&full).expect("read")
            } else if kind.is_symlink() {
                fs::read_link(&full).expect("read").into_os_string().into_encoded_bytes()
            } else {
                Vec::new()
            };
            let mut value = vec![0; 100];
            let length = rustix::fs::lgetxattr(&full, "user.note", &mut value).unwrap_or(0);
            value.truncate(length);
            if kind.is_dir() {
                directories.push(path.clone());
            }
            let same_as = match kind.is_dir() {
                true => path.clone(),
                false => inodes.entry(metadata.ino()).or_insert(path.clone()).clone(),
            };
            let found = Found {
                mode: metadata.mode(),
                owner: (metadata.uid(), metadata.gid()),
                mtime: (metadata.mtime(), metadata.mtime_nsec()),
                contents,
                same_as,
                xattr: value,
            };
            all.insert(path, found);
        }
    }
    all
}

pub(super) fn status(place: &StagingPlace) -> serde_json::Value {
    let status = staged(&["status", "--json"], &[&place.path("mnt")]);
    serde_json::from_str(&status).expect("JSON")
}

/// Waits until the store has everything, and compares.
pub(super) fn assert_same(place: &StagingPlace) {
    staged(&["wait", "--until", "stored"], &[&place.path("mnt")]);
    let (mount, store) = (tree(&place.path("mnt")), tree(&place.path("store")));
    let names = |tree: &BTreeMap<PathBuf, Found>| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&mount), names(&store));
    for (path, expected) in &mount {
        let is_same = *expected == store[path];
        assert!(is_same, "{path:?}: {}", difference(expected, &store[path]));
    }
}

fn difference(expected: &Found, found: &Found) -> String {
    let short = |found: &Found| {
        let contents = format!("{} bytes", found.contents.len());
        format!("{:?}", Found { contents: contents.into_bytes(), ..found.clone() })
    };
    format!("{} in place of {}", short(found), short(expected))
}

fn set_note(path: &Path, value: &[u8]) {
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(path, "user.note", value, flags).expect("set");
}

#[test]
fn drain__everything_of_a_tree_arrives_and_a_later_mount_continues() {
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&[]) {
        return;
    }
    fs::create_dir_all(place.on_mount("a/b/c")).expect("made");
    let bytes: Vec<u8> = (0..3_000_000u32).map(|at| (at % 251) as u8).collect();
    fs::write(place.on_mount("a/b/file"), &bytes).expect("written");
    fs::hard_link(place.on_mount("a/b/file"), place.on_mount("a/same")).expect("linked");
    symlink("b/file", place.on_mount("a/link")).expect("made");
    mknod(&place.on_mount("pipe"), SFlag::S_IFIFO, Mode::S_IRUSR, 0).expect("made");
    let sparse = File::create(place.on_mount("sparse")).expect("made");
    sparse.write_all_at(b"far", 5 << 20).expect("written");
    sparse.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH)).expect("set");
    drop(sparse);
    set_note(&place.on_mount("a/b/file"), b"of a file");
    set_note(&place.on_mount("a"), b"of a directory");
    fs::set_permissions(place.on_mount("a/same"), fs::Permissions::from_mode(0o604)).expect("set");
    assert_same(&place);
    let shown = staged(&["stat"], &[&place.on_mount("a/same"), &place.on_mount("a")]);
    assert!(shown.lines().all(|line| line[2..].starts_with("stored ")), "{shown}");
    // What is read now comes from the store.
    assert_eq!(status(&place)["class_bytes"]["best-effort"].as_u64().unwrap_or(0), 0);
    assert_eq!(status(&place)["drain"], "idle");
    // Changes of what is there.
    fs::rename(place.on_mount("a/b"), place.on_mount("d")).expect("renamed");
    fs::rename(place.on_mount("d/file"), place.on_mount("a/new")).expect("renamed");
    let file = OpenOptions::new().write(true).open(place.on_mount("a/same")).expect("opened");
    file.write_all_at(b"changed", 1000).expect("written");
    file.set_len(2_000_000).expect("cut");
    drop(file);
    fs::remove_file(place.on_mount("pipe")).expect("removed");
    place.umount();
    assert!(place.mount(&[]));
    let read = fs::read(place.on_mount("a/new")).expect("read");
    assert!(read[..1000] == bytes[..1000] && read[1000..1007] == *b"changed");
    assert!(read[1007..] == bytes[1007..2_000_000]);
    assert_same(&place);
    assert!(!place.path("store/pipe").exists());
    place.umount();
    let output = Command::new(PROGRAM).args(["stage", "fsck"]).arg(place.path("log")).output();
    let output = output.expect("the program");
    assert!(output.status.success(), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("store    has everything"),
        "{output:?}"
    );
}

#[test]
fn drain__a_store_belongs_to_one_log() {
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&[]) {
        return;
    }
    fs::write(place.on_mount("file"), "bytes").expect("written");
    let name = place.on_mount(".clearway-objects");
    assert_eq!(
        fs::create_dir(&name).expect_err("not there").kind(),
        io::ErrorKind::PermissionDenied
    );
    assert_same(&place);
    place.umount();
    fs::rename(place.path("log"), place.path("first")).expect("moved");
    let said = error_of(&place.try_mount(&[]));
    assert!(said.contains("is the store of another log") && said.lines().count() == 1, "{said}");
    assert!(!place.path("log").exists(), "no log was made");
    fs::rename(place.path("first"), place.path("log")).expect("moved");
    fs::rename(place.path("store"), place.path("elsewhere")).expect("moved");
    fs::create_dir(place.path("store")).expect("made");
    let said = error_of(&place.try_mount(&[]));
    assert!(said.contains("is its file system mounted?") && said.lines().count() == 1, "{said}");
    fs::remove_dir(place.path("store")).expect("nothing is in it");
    fs::rename(place.path("elsewhere"), place.path("store")).expect("moved");
    assert!(place.mount(&[]));
    assert_eq!(fs::read(place.on_mount("file")).expect("read"), b"bytes");
    place.umount();
}

#[test]
fn drain__files_of_strangers_are_kept_under_other_names() {
    let Some(mut place) = StagingPlace::new() else { return };
    fs::write(place.path("store/file"), "a stranger's").expect("written");
    fs::write(place.path("store/other"), "another's").expect("written");
    if !place.mount(&[]) {
        return;
    }
    fs::write(place.on_mount("file"), "ours").expect("written");
    staged(&["wait", "--until", "stored"], &[&place.path("mnt")]);
    let read = |name: &str| fs::read_to_string(place.path(name)).expect(name);
    assert_eq!(read("store/file"), "ours");
    assert_eq!(read("store/file.stranger"), "a stranger's");
    assert_eq!(read("store/other"), "another's");
    let said = "another program made what was at /file; its name is now file.stranger\n";
    assert!(read("log/mount.log").contains(said), "{}", read("log/mount.log"));
    fs::remove_file(place.path("store/file")).expect("removed");
    fs::write(place.path("store/file"), "one more").expect("written");
    fs::write(place.on_mount("file"), "new").expect("written");
    staged(&["wait", "--until", "stored"], &[&place.path("mnt")]);
    assert_eq!(
        (read("store/file"), read("store/file.stranger-2")),
        ("new".into(), "one more".into())
    );
    assert!(read("log/mount.log").contains("its name is now file.stranger-2\n"));
    place.umount();
}

#[test]
fn write__a_full_log_goes_on_as_the_store_takes_it() {
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&["--memory", "16MiB"]) {
        return;
    }
    let mut file = File::create(place.on_mount("long")).expect("made");
    for mib in 0..300u32 {
        file.write_all(&mib.to_le_bytes().repeat(1 << 18)).expect("a log of 128 MiB takes it");
    }
    file.sync_all().expect("synced");
    drop(file);
    staged(&["wait", "--until", "stored"], &[&place.on_mount("long")]);
    let stored = File::open(place.path("store/long")).expect("there");
    let read = File::open(place.on_mount("long")).expect("there");
    for mib in [0u32, 1, 77, 150, 299] {
        let mut bytes = vec![0; 1 << 20];
        for file in [&stored, &read] {
            file.read_exact_at(&mut bytes, u64::from(mib) << 20).expect("read");
            assert!(bytes == mib.to_le_bytes().repeat(1 << 18), "{mib}");
        }
    }
    drop(read);
    place.umount();
}

#[test]
fn write__without_a_store_a_full_log_is_said_and_reads_fail() {
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&[]) {
        return;
    }
    fs::write(place.on_mount("old"), vec![5; 9000]).expect("written");
    assert_same(&place);
    place.umount();
    assert!(place.mount(&[]));
    place.remove_store();
    let why = fs::read(place.on_mount("old")).expect_err("it was only there");
    assert_eq!(why.raw_os_error(), Some(nix::libc::EIO));
    let mut file = File::create(place.on_mount("file")).expect("made");
    let bytes = vec![1; 1 << 20];
    let taken = (0..200).take_while(|_| file.write_all(&bytes).is_ok()).count();
    assert!((60..128).contains(&taken), "{taken} MiB of 128");
    let why = file.write_all(&bytes).expect_err("a full log");
    assert_eq!(why.kind(), io::ErrorKind::StorageFull);
    file.sync_all().expect("what was accepted is kept");
    let said = fs::read_to_string(place.path("log/mount.log")).expect("a log of the mount");
    let times = |part: &str| said.lines().filter(|line| line.contains(part)).count();
    assert_eq!(times("cannot read the bytes of /old"), 1, "{said}");
    assert_eq!(times("does not lead to the store of this log"), 1, "{said}");
    assert_eq!(status(&place)["drain"], "failing");
    let waits = Command::new(PROGRAM)
        .args(["stage", "wait", "--until", "stored"])
        .arg(place.on_mount("file"))
        .stderr(Stdio::piped())
        .spawn();
    let mut waits = waits.expect("started");
    let mut first = String::new();
    let said = waits.stderr.take().expect("piped");
    io::BufRead::read_line(&mut io::BufReader::new(said), &mut first).expect("read");
    assert!(first.contains("the store makes no progress"), "{first}");
    waits.kill().expect("killed");
    waits.wait().expect("ended");
    drop(file);
    place.umount();
}

#[test]
fn drain__a_store_that_is_moved_is_waited_for_and_not_changed_elsewhere() {
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&[]) {
        return;
    }
    fs::write(place.on_mount("first"), "one").expect("written");
    assert_same(&place);
    let waits = |name: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["stage", "wait", "--until", "stored"]).arg(place.on_mount(name));
        let mut waits = command.stderr(Stdio::piped()).spawn().expect("started");
        let mut first = String::new();
        let said = waits.stderr.take().expect("piped");
        io::BufRead::read_line(&mut io::BufReader::new(said), &mut first).expect("read");
        assert!(first.contains("the store makes no progress"), "{first}");
        waits
    };
    place.hide_store();
    // Also for what was stored before.
    let mut old = waits("first");
    fs::write(place.on_mount("second"), "two").expect("written");
    let mut new = waits("second");
    // As the mount point of a file system that was unmounted.
    fs::create_dir(place.path("store")).expect("made");
    assert!(comes(|| status(&place)["drain_failures"].as_u64() > Some(3)));
    assert_eq!(count(&place.path("store")), 0);
    assert!(!place.path("hidden/second").exists());
    let said = fs::read_to_string(place.path("log/mount.log")).expect("a log of the mount");
    assert_eq!(said.matches("does not lead to the store of this log").count(), 1, "{said}");
    fs::remove_dir(place.path("store")).expect("empty");
    place.show_store();
    for waits in [&mut old, &mut new] {
        assert!(waits.wait().expect("ended").success());
    }
    assert_same(&place);
    assert!(comes(|| {
        let said = fs::read_to_string(place.path("log/mount.log")).expect("a log of the mount");
        said.contains("the store works again")
    }));
    place.umount();
}

#[test]
fn deadline__files_that_the_store_lacks_after_it_are_counted_and_said() {
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&["--class", "scavenger"]) {
        return;
    }
    let said = || fs::read_to_string(place.path("log/mount.log")).expect("a log of the mount");
    fs::write(place.on_mount("first"), "one").expect("written");
    assert_same(&place);
    fs::create_dir(place.on_mount("run")).expect("made");
    let set = |value: &[u8]| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(place.on_mount("run"), "user.clearway.deadline", value, flags)
    };
    assert_eq!(set(b"soon"), Err(rustix::io::Errno::INVAL));
    assert!(said().contains("'soon' is no time of a second or more; 10min is one"), "{}", said());
    set(b"1s").expect("set");
    assert_eq!(status(&place)["late_files"], 0);
    place.hide_store();
    fs::write(place.on_mount("run/late"), "two").expect("written");
    fs::write(place.on_mount("other"), "without a deadline").expect("written");
    assert!(comes(|| status(&place)["late_files"] == 1));
    assert!(comes(|| said().contains("lacks 1 file that has passed its deadline")));
    assert!(comes(|| said().contains("are drained as best-effort")), "{}", said());
    place.show_store();
    assert!(comes(|| status(&place)["late_files"] == 0));
    assert!(comes(|| said().contains("the store has all files that had passed")));
    assert_same(&place);
    place.umount();
}

#[test]
fn drain__it_goes_on_after_its_process_was_killed() {
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&[]) {
        return;
    }
    for round in 0..5 {
        for name in 0..20 {
            let path = place.on_mount(&format!("{round}-{name}"));
            fs::write(path, vec![round; 200_000]).expect("written");
        }
        if let Some(process) = status(&place)["store_process"].as_u64() {
            let _ = kill(Pid::from_raw(process as i32), Signal::SIGKILL);
        }
    }
    assert_same(&place);
    place.umount();
}

#[test]
fn class__what_is_drained_is_counted_by_class_and_the_class_can_change() {
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&["--rule", "/ckpt/**=bulk"]) {
        return;
    }
    fs::create_dir(place.on_mount("ckpt")).expect("made");
    fs::write(place.on_mount("ckpt/a"), vec![1; 50_000]).expect("written");
    fs::write(place.on_mount("b"), vec![1; 7000]).expect("written");
    assert_same(&place);
    let drained = |place: &StagingPlace, class: &str| {
        status(place)["drained_bytes"][class].as_u64().unwrap_or(0)
    };
    assert_eq!(drained(&place, "bulk"), 50_000);
    assert_eq!(drained(&place, "best-effort"), 7000);
    // Without a store the class can change before anything is copied.
    place.hide_store();
    fs::write(place.on_mount("ckpt/c"), vec![2; 60_000]).expect("written");
    staged(&["set-class", "scavenger"], &[&place.on_mount("ckpt/c")]);
    let bytes = status(&place)["class_bytes"].clone();
    assert_eq!((bytes["bulk"].as_u64(), bytes["scavenger"].as_u64()), (None, Some(60_000)));
    place.kill();
    place.show_store();
    assert!(place.mount(&[]));
    assert_same(&place);
    assert_eq!((drained(&place, "bulk"), drained(&place, "scavenger")), (0, 60_000));
    place.umount();
}

#[test]
fn cancel__a_file_is_left_out_until_it_changes_or_is_asked_for() {
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&[]) {
        return;
    }
    place.hide_store();
    for name in ["a", "b", "c"] {
        fs::write(place.on_mount(name), name).expect("written");
    }
    staged(&["cancel"], &[&place.on_mount("a"), &place.on_mount("b")]);
    place.show_store();
    staged(&["wait", "--until", "stored"], &[&place.on_mount("c")]);
    place.kill();
    assert!(place.mount(&[]));
    fs::write(place.on_mount("later"), "later").expect("written");
    staged(&["wait", "--until", "stored"], &[&place.on_mount("later")]);
    let is_there =
        |place: &StagingPlace| ["a", "b", "c"].map(|name| place.path("store").join(name).exists());
    assert_eq!(is_there(&place), [false, false, true]);
    let shown = staged(&["stat"], &[&place.on_mount("a")]);
    assert!(shown.starts_with("- cancelled "), "{shown}");
    let output = stage(&["wait", "--until", "stored"], &[&place.on_mount("a")]);
    assert!(error_of(&output).contains("/a is left out of the store"), "{output:?}");
    fs::write(place.on_mount("a"), "changed").expect("written");
    staged(&["drain"], &[&place.on_mount("b")]);
    assert_same(&place);
    place.umount();
}

/// Makes a directory whose files appear when they are published.
pub(super) fn explicit(place: &StagingPlace, name: &str) -> PathBuf {
    let directory = place.on_mount(name);
    fs::create_dir(&directory).expect("made");
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&directory, "user.clearway.publish", b"explicit", flags).expect("set");
    directory
}

pub(super) fn count(directory: &Path) -> usize {
    fs::read_dir(directory).map_or(0, Iterator::count)
}

#[test]
fn publish__a_set_appears_when_it_is_published_and_not_before() {
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&[]) {
        return;
    }
    let set = explicit(&place, "set");
    for name in 0..5 {
        fs::write(set.join(name.to_string()), vec![name; 50_000]).expect("written");
    }
    fs::write(place.on_mount("seen"), "seen").expect("written");
    staged(&["wait", "--until", "stored"], &[&place.on_mount("seen")]);
    let output = stage(&["wait", "--until", "stored"], &[&set]);
    assert!(error_of(&output).contains("appears in the store when it is published"), "{output:?}");
    let output = stage(&["publish"], &[&place.on_mount("seen"), &set]);
    assert!(error_of(&output).contains("the store shows /seen already"), "{output:?}");
    assert!(comes(|| status(&place)["class_bytes"]["best-effort"].as_u64().unwrap_or(0) == 0));
    assert_eq!(count(&place.path("store/set")), 0, "the bytes are there, and nobody sees them");
    // The next mount does not know what this one tried.
    place.kill();
    assert!(place.mount(&[]));
    staged(&["publish"], &[&set]);
    assert_same(&place);
    staged(&["publish"], &[&set]);
    fs::write(set.join("0"), "a new version is nothing new").expect("written");
    assert_same(&place);
    place.umount();
}

#[test]
fn publish__commands_that_publish_one_set_at_once_all_return_when_it_is_there() {
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&[]) {
        return;
    }
    // As each rank of a program may do it.
    let set = explicit(&place, "set");
    for file in 0..100 {
        fs::write(set.join(file.to_string()), vec![file; 3000]).expect("written");
    }
    let publish = |_| {
        let mut command = Command::new(PROGRAM);
        command.args(["stage", "publish"]).arg(&set).stderr(Stdio::piped()).spawn()
    };
    let publishers: Vec<Child> = (0..8).map(publish).collect::<Result<_, _>>().expect("started");
    for publisher in publishers {
        let output = publisher.wait_with_output().expect("an end");
        assert!(output.status.success(), "{}", error_of(&output));
        assert_eq!(count(&place.path("store/set")), 100);
    }
    place.umount();
}

#[test]
fn publish__a_kill_leaves_all_of_a_set_or_nothing() {
    let Some(mut place) = StagingPlace::new() else { return };
    let rounds = std::env::var("CLEARWAY_KILL_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    let rounds: u64 = rounds.map_or(12, |rounds: u64| rounds.min(100));
    let mut published = 0;
    for round in 0..rounds {
        if !place.mount(&[]) {
            return;
        }
        let mut stream = RandomKey::new(round).purpose("kills of a publisher").stream();
        let name = format!("set-{round}");
        let set = explicit(&place, &name);
        for file in 0..8 {
            fs::write(set.join(file.to_string()), vec![file; 20_000]).expect("written");
        }
        let mut publisher = Command::new(PROGRAM)
            .args(["stage", "publish"])
            .arg(&set)
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        let stored = place.path("store").join(&name);
        if stream.below(3) > 0 {
            // Some of its names are there, or it ended.
            comes(|| count(&stored) > 0 || publisher.try_wait().is_ok_and(|end| end.is_some()));
        } else {
            std::thread::sleep(Duration::from_micros(stream.below(60_000)));
        }
        place.kill();
        let is_acknowledged = publisher.wait().expect("ended").success();
        let seen = count(&stored);
        assert!(place.mount(&[]));
        fs::write(place.on_mount("after"), round.to_le_bytes()).expect("written");
        staged(&["wait", "--until", "stored"], &[&place.on_mount("after")]);
        let is_whole = comes(|| [0, 8].contains(&count(&stored)));
        assert!(is_whole, "round {round}: {} files", count(&stored));
        if seen > 0 || is_acknowledged {
            assert!(comes(|| count(&stored) == 8), "round {round}: {seen} were there");
        }
        if count(&stored) == 0 {
            staged(&["publish"], &[&set]);
        }
        assert_eq!(count(&stored), 8, "round {round}");
        published += u64::from(is_acknowledged);
        assert_same(&place);
        place.umount();
    }
    println!("{published} of {rounds} were published before the kill");
}

/// Runs `stage fsck` on the log of a place.
fn fsck(place: &StagingPlace, more: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(["stage", "fsck"]).args(more).arg(place.path("log"));
    command.output().expect("the program")
}

/// Checks that fsck has one finding, and which.
fn finds(place: &StagingPlace, part: &str) {
    let output = fsck(place, &[]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    let is_finding = |line: &&str| line.starts_with("damaged") || line.starts_with("torn");
    let findings: Vec<&str> = said.lines().filter(is_finding).collect();
    assert!(findings.len() == 1 && findings[0].contains(part), "{part}: {said}");
}

#[test]
fn fsck__says_what_a_log_has_and_changes_nothing() {
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&["--rule", "/ckpt/**=bulk"]) {
        return;
    }
    place.hide_store();
    fs::create_dir(place.on_mount("ckpt")).expect("made");
    fs::write(place.on_mount("ckpt/a"), vec![0x5a; 50_000]).expect("written");
    let used = fsck(&place, &[]);
    assert_eq!(used.status.code(), Some(1));
    assert!(error_of(&used).contains("in use by another mount (process"), "{used:?}");
    place.umount();
    let before = tree(&place.path("log"));
    let clean = fsck(&place, &["--json"]);
    assert_eq!(clean.status.code(), Some(0), "{clean:?}");
    let said: serde_json::Value = serde_json::from_slice(&clean.stdout).expect("JSON");
    assert_eq!(said["class_bytes"]["bulk"], 50_000);
    assert_eq!((&said["undrained_files"], &said["has_torn_tail"]), (&1.into(), &false.into()));
    assert!(tree(&place.path("log")) == before, "nothing changed");
    let segment = place.path("log/segments/00000000");
    let bytes = fs::read(&segment).expect("read");
    let at = bytes.windows(4096).position(|window| window == [0x5a; 4096]).expect("the body");
    let file = OpenOptions::new().write(true).open(&segment).expect("opened");
    file.write_all_at(b"x", at as u64 + 100).expect("damaged");
    let damaged = fsck(&place, &[]);
    assert_eq!(damaged.status.code(), Some(3), "{damaged:?}");
    let said = String::from_utf8_lossy(&damaged.stdout).into_owned();
    assert!(said.contains("damaged  ckpt/a: reading its bytes fails"), "{said}");
    file.write_all_at(b"\x5a", at as u64 + 100).expect("mended");
    // Bytes behind the last group, where nothing was ever written.
    let end = bytes.iter().rposition(|byte| *byte != 0).expect("a group") as u64;
    file.write_all_at(b"x", end.next_multiple_of(4096)).expect("damaged");
    finds(&place, "the bytes behind the last group are no group");
    file.write_all_at(b"\0", end.next_multiple_of(4096)).expect("mended");
    file.write_all_at(&[0; 4096], 0).expect("damaged");
    finds(&place, "group 1 was durable and is damaged in segment 0");
    file.write_all_at(&bytes[..4096], 0).expect("mended");
    file.set_len(bytes.len() as u64 - 1).expect("shorter");
    finds(&place, "segment 0 is shorter than the others");
    file.set_len(bytes.len() as u64 + 1).expect("longer");
    assert_eq!(fsck(&place, &[]).status.code(), Some(0), "a longer one does no harm");
    file.set_len(bytes.len() as u64).expect("mended");
    let numbers = fs::read_dir(place.path("log/segments")).expect("segments").count();
    for missing in [0, 1, numbers - 1] {
        let [there, aside] = [format!("log/segments/{missing:08}"), "aside".to_owned()]
            .map(|name| place.path(&name));
        fs::rename(&there, &aside).expect("moved");
        finds(&place, &format!("segment {missing} is missing"));
        fs::rename(aside, there).expect("back");
    }
    fs::write(place.path("log/segments/notes"), "mine").expect("written");
    assert_eq!(fsck(&place, &[]).status.code(), Some(0), "a file of another name");
    let snapshot = fs::read(place.path("log/snapshot-0")).expect("read");
    fs::write(place.path("log/snapshot-0"), b"nonsense").expect("written");
    finds(&place, "damaged  1 of 2 snapshots");
    fs::write(place.path("log/snapshot-0"), snapshot).expect("written");
    let superblock = place.path("log/superblock");
    let good = fs::read(&superblock).expect("read");
    fs::write(&superblock, &good[..4100]).expect("written");
    finds(&place, "damaged  a copy of the superblock; the other one is whole");
    let refused = |bytes: &[u8], part: &str| {
        fs::write(&superblock, bytes).expect("written");
        let output = fsck(&place, &[]);
        let said = error_of(&output);
        assert!(output.status.code() == Some(1) && said.contains(part), "{output:?}");
        assert_eq!(said.lines().count(), 1, "{said}");
    };
    refused(&[b'x'; 8192], "the superblock is not that of a staging log");
    let mut other = good.clone();
    for copy in [0, 4096] {
        other[copy + 8] = 9;
        let digest = clearway_proto::base::crc32c(&other[copy..copy + 56]);
        other[copy + 56..copy + 60].copy_from_slice(&digest.to_le_bytes());
    }
    refused(&other, "the log has format 9");
    let nothing = Command::new(PROGRAM).args(["stage", "fsck"]).arg(place.path("mnt")).output();
    let nothing = nothing.expect("the program");
    assert!(error_of(&nothing).contains("has no log"), "{nothing:?}");
}
