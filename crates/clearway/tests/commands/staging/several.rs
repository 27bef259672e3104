//! One mount of several servers, which share a store.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::CWD;

use super::served::ServedPlace;
use super::{PROGRAM, error_of, staged};

const DIRECTORIES: usize = 40;
/// Of `statx(2)`: the kernel asks the file system.
const AT_STATX_FORCE_SYNC: u32 = 0x2000;

/// Two servers with a mount of both at `mnt` of the first, and of the first alone at `other`; `None`,
/// and says why, where nothing can be mounted.
fn mounted_pair() -> Option<([ServedPlace; 2], PathBuf)> {
    let [first, second] = ServedPlace::pair()?;
    if !first.mount("other", "") {
        return None;
    }
    let both = format!("{},{}", first.address, second.address);
    let output = first.try_mount_of(&both, "mnt", "key");
    assert!(output.status.success(), "{}", error_of(&output));
    let directory = first.place.path("mnt");
    Some(([first, second], directory))
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("listed");
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
    entries.map(|entry| name(entry).into_string().expect("text")).collect()
}

/// Makes directories with a file each; returns the names of those on the first server and on the
/// second.
fn fill([first, _]: &[ServedPlace; 2], directory: &Path) -> [Vec<String>; 2] {
    for number in 0..DIRECTORIES {
        let made = directory.join(format!("step.{number}"));
        fs::create_dir(&made).expect("made");
        fs::write(made.join("file"), format!("bytes of {number}")).expect("written");
    }
    let here: BTreeSet<String> = names(&first.place.path("other")).into_iter().collect();
    let parts: [Vec<String>; 2] =
        names(directory).into_iter().partition::<Vec<_>, _>(|name| here.contains(name)).into();
    assert!(parts.iter().all(|part| !part.is_empty()), "{parts:?}");
    parts
}

#[test]
fn several__every_mount_finds_each_name_on_its_server_and_the_store_gets_all() {
    let Some((pair, both)) = mounted_pair() else { return };
    let [first, second] = &pair;
    fill(&pair, &both);
    assert_eq!(fs::metadata(&both).expect("there").nlink(), 2 + DIRECTORIES as u64);
    let reversed = format!("{},{}", second.address, first.address);
    let output = second.try_mount_of(&reversed, "mnt", "key");
    assert!(output.status.success(), "{}", error_of(&output));
    let again = second.place.path("mnt");
    for number in 0..DIRECTORIES {
        fs::rename(both.join(format!("step.{number}")), both.join(format!("done.{number}")))
            .expect("an entry stays on its server");
    }
    let mut expected: Vec<String> = (0..DIRECTORIES).map(|at| format!("done.{at}")).collect();
    expected.sort();
    for directory in [&both, &again] {
        let mut found = names(directory);
        found.sort();
        assert_eq!(found, expected);
    }
    staged(&["wait", "--until", "stored"], &[&again]);
    for number in 0..DIRECTORIES {
        let file = format!("done.{number}/file");
        for place in [again.join(&file), first.place.path("store").join(&file)] {
            let found = fs::read_to_string(&place).expect("there");
            assert_eq!(found, format!("bytes of {number}"));
        }
        fs::remove_dir_all(again.join(format!("done.{number}"))).expect("removed");
    }
    assert!(names(&both).is_empty());
    first.umount("mnt");
    first.umount("other");
    second.umount("mnt");
}

#[test]
fn several__a_name_that_another_server_has_is_not_replaced_by_a_rename() {
    let Some((pair, both)) = mounted_pair() else { return };
    let [on_first, on_second] = fill(&pair, &both);
    let (one, other) = (both.join(&on_first[0]), both.join(&on_second[0]));
    fs::remove_file(other.join("file")).expect("removed");
    // As between two file systems: `mv` copies then.
    let refused = fs::rename(&one, &other).expect_err("another server has the name");
    assert_eq!(refused.kind(), std::io::ErrorKind::CrossesDevices);
    let refused = fs::rename(one.join("file"), other.join("file")).expect_err("another server");
    assert_eq!(refused.kind(), std::io::ErrorKind::CrossesDevices);
    let refused = fs::hard_link(one.join("file"), other.join("file")).expect_err("another server");
    assert_eq!(refused.kind(), std::io::ErrorKind::CrossesDevices);
    fs::write(both.join("top"), "a link of it stays on its server").expect("written");
    fs::hard_link(both.join("top"), both.join("link")).expect("linked");
    assert_eq!(fs::metadata(both.join("link")).expect("there").nlink(), 2);
    fs::hard_link(both.join("top"), &one).expect_err("there is an entry");
    pair[0].umount("mnt");
    pair[0].umount("other");
}

#[test]
fn several__a_server_that_is_killed_delays_its_own_names_only() {
    let Some((mut pair, both)) = mounted_pair() else { return };
    let [on_first, on_second] = fill(&pair, &both);
    pair[1].kill();
    // The kernel asks for the mounted directory on the way to each name below it.
    let synced = rustix::fs::AtFlags::from_bits_retain(AT_STATX_FORCE_SYNC);
    let found = rustix::fs::statx(CWD, &both, synced, rustix::fs::StatxFlags::NLINK);
    assert_eq!(found.expect("the last attributes").stx_nlink as usize, 2 + DIRECTORIES);
    rustix::fs::statvfs(&both).expect("the space of the first server");
    // Nothing waits for the server: the mount can be taken away and come back.
    pair[0].umount("mnt");
    pair[1].start();
    let servers = format!("{},{}", pair[0].address, pair[1].address);
    let output = pair[0].try_mount_of(&servers, "mnt", "key");
    assert!(output.status.success(), "{}", error_of(&output));
    pair[1].kill();
    let file = both.join(&on_first[0]).join("more");
    fs::write(&file, "while the other server is away").expect("written");
    assert_eq!(fs::read_to_string(&file).expect("read"), "while the other server is away");
    pair[1].start();
    let file = both.join(&on_second[0]).join("file");
    let number = on_second[0].strip_prefix("step.").expect("a number");
    assert_eq!(fs::read_to_string(file).expect("read"), format!("bytes of {number}"));
    assert_eq!(names(&both).len(), DIRECTORIES);
    pair[0].umount("mnt");
    pair[0].umount("other");
}

#[test]
fn several__commands_ask_the_server_of_each_path() {
    let Some((pair, both)) = mounted_pair() else { return };
    let [on_first, on_second] = fill(&pair, &both);
    let paths = [both.join(&on_first[0]), both.join(&on_second[0])];
    let each = [paths[0].as_path(), paths[1].as_path()];
    staged(&["wait", "--until", "stored"], &each);
    let listed = staged(&["ls"], &[each[0], each[1], &both]);
    assert_eq!(listed.lines().count(), 2 + DIRECTORIES, "{listed}");
    let status = staged(&["status", "--json"], &[&both]);
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    let servers: Vec<_> = pair.iter().map(|served| served.address.clone()).collect();
    for (at, server) in servers.iter().enumerate() {
        assert_eq!(status["servers"][at]["server"], *server);
    }
    // A set appears as a whole on one server.
    let set = both.join("set");
    fs::create_dir(&set).expect("made");
    rustix::fs::setxattr(
        &set,
        "user.clearway.publish",
        b"explicit",
        rustix::fs::XattrFlags::empty(),
    )
    .expect("set");
    fs::write(set.join("part"), "a part").expect("written");
    staged(&["publish"], &[&set]);
    let part = pair[0].place.path("store/set/part");
    assert_eq!(fs::read_to_string(part).expect("in the store"), "a part");
    let mut publish = Command::new(PROGRAM);
    let refused = publish.args(["stage", "publish"]).args(each).output().expect("the program");
    let said = error_of(&refused);
    assert!(!refused.status.success() && said.contains("only if it is on one server"), "{said}");
    pair[0].umount("mnt");
    pair[0].umount("other");
}

#[test]
fn several__servers_that_make_no_mount_are_named() {
    let Some([first, mut second]) = ServedPlace::pair() else { return };
    let refused = |servers: &str, words: &str| {
        let output = first.try_mount_of(servers, "mnt", "key");
        let said = error_of(&output);
        assert!(!output.status.success() && said.contains(words), "{said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    };
    let twice = format!("{0},{0}", first.address);
    refused(&twice, "are one server; name each server once");
    let both = format!("{},{}", first.address, second.address);
    refused(&format!("{both}:/nowhere"), &format!("the server {} has no directory", first.address));
    let alone = second.address.clone();
    second.kill();
    refused(&both, &format!("no server answers at {alone}"));
}

#[test]
fn several__a_store_is_shared_only_by_logs_that_all_say_so() {
    let Some([first, mut second]) = ServedPlace::pair() else { return };
    second.kill();
    let log = first.place.path("unshared");
    let serve = |data: &Path, store: &Path, more: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(["stage", "serve", "--size", "64MiB", "--listen", "127.0.0.1:0"]);
        command.arg("--data").arg(data).arg("--backing").arg(store).args(more);
        let output = command.arg("--key").arg(first.place.path("key")).output().expect("ended");
        assert!(!output.status.success());
        error_of(&output)
    };
    let said = serve(&log, &first.place.path("store"), &[]);
    assert!(said.contains("the store of other logs that share it; add --shared-store"), "{said}");
    let Some(alone) = ServedPlace::new() else { return };
    let said = serve(&log, &alone.place.path("store"), &["--shared-store"]);
    assert!(said.contains("is the store of another log"), "{said}");
}
